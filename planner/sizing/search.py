"""The search: a start from a small linear program, then ever smaller steps, all by the surrogate.

What it ends with is simulated in the replications of the search block that tell most, and the surrogate is calibrated
by them. It settles nothing: it hands a shortlist to the selection, which simulates on replications of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from scipy.optimize import linprog

from planner.arrays import Bools, Floats
from planner.records import record
from planner.sizing.archive import Archive
from planner.sizing.evaluate import BLOCK, SEARCH, Clock, Judged
from planner.sizing.policy import (
    Policy,
    fewer_nodes,
    more_nodes,
    other_levels,
    other_rent,
    other_retirements,
    other_reviews,
    other_steps,
)
from planner.sizing.surrogate import Surrogate

_ROUNDS = 4
"""Most rounds of search, simulation and calibration."""
_CALIBRATION_RUNS = 10
"""Replications in which a policy is simulated to calibrate: those nearest to its threshold."""
_DOUBTFUL = 0.5
"""Probability at which a policy may do or may not."""
_MASTER_ROUNDS = 30
"""Of the linear program, each with the rows that its last answer breaks."""
_BLOCKS = 6
"""Parts of the horizon from each of which a replication may add a row."""
_SCALES = 7
"""Halvings of the margin on demand."""
_LEAST_SCALE = 1e-3
"""λ of a month in which next to nothing is served."""
_SAME_COST = 1e-7
"""Of the cost: what is no difference."""
_START_LOADS = (60, 80, 100, 120)
"""Loads in percent up to which orders are first tried."""
_ENLARGED_PERCENTS = (2, 20)
"""Points by which the load of a rule is lowered at a time, where a policy is to serve more.

A few points are no node more in a small fleet, and gain nothing by themselves.
"""
_LEAST_FIRST_STEP = 4
"""Nodes of the first steps, at least: few nodes of one part are exchanged for fewer of another."""
_COARSE_DESCENTS = 3
"""Starts that are followed in large steps: the cheapest."""
_FINE_DESCENTS = 2
"""Starts that are followed in small steps: those that are cheapest after large ones."""
_NEAR_DATES = 2
"""Dates by which nodes are moved in one step."""
_NEAR_DAYS = 45
"""Between purchases of two clusters that are exchanged, where dates are many."""
_MANY_PURCHASES = 16
_PROBABILITY_ERROR = 0.005
"""Between what the surrogate says of a policy before and after its runs, at which they agree."""


Kind = Callable[[Policy], Iterable[Policy]]
"""A kind of change: the policies that it makes of one."""


@record
class Levers:
    """What a search may decide."""

    purchases: tuple[bool, ...]
    """Purchases that it may make."""
    rules: bool = False
    """Whether clusters may be ordered on a signal."""
    rent: bool = False
    """Whether overflow rent may be taken."""


class Search:
    """Finds the cheapest policies that are likely enough to meet the SLO target, as predicted."""

    def __init__(self, surrogate: Surrogate, archive: Archive, clock: Clock) -> None:
        self.surrogate = surrogate
        self.archive = archive
        self.clock = clock
        self.trial = surrogate.trial
        self.choices = surrogate.choices
        self.confidence = self.trial.held_confidence
        """Probability that a policy must have; lower and higher ones trace the curve."""
        self.values: dict[Policy, tuple[float, float]] = {}
        """Cost and probability of every policy looked at, as predicted."""

    def levers(self, *, rules: bool = False, rent: bool = False) -> Levers:
        """Return levers with every purchase open."""
        every = (True,) * len(self.choices.purchases)
        return Levers(purchases=every, rules=rules, rent=rent)

    def simple_levers(self) -> Levers:
        """Return the levers of policies that are soon searched and run: first purchases, and rules for what follows."""
        reviews = {window for windows in self.choices.windows for window in windows}
        first = [windows[0] for windows in self.choices.windows if windows]
        # The first review of each stands for its rule.
        allowed = [
            place not in reviews or place in first for place in range(len(self.choices.purchases))
        ]
        return Levers(purchases=tuple(allowed), rules=bool(first))

    def by(self, surrogate: Surrogate) -> Search:
        """Return the same search by another surrogate, with its limits."""
        other = copy.copy(self)
        other.surrogate = surrogate
        other.choices = surrogate.choices
        other.values = {}
        return other

    def value(self, policy: Policy) -> tuple[float, float]:
        """Return a policy's cost and probability by the surrogate."""
        if policy not in self.values:
            # A search of seconds is to end where it is stopped.
            self.clock.check()
            surrogate = self.surrogate
            nodes = surrogate.nodes(policy)
            fleet = surrogate.fleet(policy, nodes)
            cost = surrogate.cost_of(policy, fleet, nodes)
            self.values[policy] = (cost, surrogate.probability_of(fleet))
        return self.values[policy]

    def cost(self, policy: Policy) -> float:
        """Return a policy's cost by the surrogate."""
        return self.value(policy)[0]

    def is_likely(self, policy: Policy) -> bool:
        """Return whether a policy is likely enough to meet the SLO target."""
        return self.value(policy)[1] >= self.confidence

    def solve(self, levers: Levers, start: Policy | None = None) -> Policy | None:
        """Return the cheapest policy, simulated and searched on until the prediction holds; None where none will do."""
        best = start
        # Where misses have a price their cost is learnt from run to run.
        for turn in range(_ROUNDS if self.confidence else 2 * _ROUNDS):
            before = best
            # After the first turn the cheapest is near the one before.
            near = self.at(self.confidence, before, levers) if turn and before else None
            best = near or self._found(levers, before)
            if best is None:
                return None
            predicted = self.value(best)[1]
            # What may do or may not tells where the threshold lies; what does tells only that it is lower.
            doubtful = self.at(_DOUBTFUL, best, levers) if self.confidence else None
            self._simulate(*dict.fromkeys([doubtful or best, best]))
            cost, probability = self.value(best)
            self.clock.say(
                f"{self.archive.workers.runs:,} runs: {self.choices.words(best)}; about {cost / 1e6:,.2f} M, "
                f"P(SLO met) {probability:.1%}"
            )
            is_settled = abs(probability - predicted) < _PROBABILITY_ERROR
            if best == before or (self.confidence and is_settled and self.is_likely(best)):
                break
        return best

    def _found(self, levers: Levers, start: Policy | None) -> Policy | None:
        """Return the cheapest policy by the surrogate, or the most that limits allow where that is enough."""
        found = self.find(levers, start)
        if found is not None:
            return found
        # The surrogate may be too strict before any run: the most that limits allow tells.
        fullest = self.fullest(levers)
        if not self.choices.within_limits(fullest):
            return None
        is_enough = self._simulate(fullest)
        return self.find(levers, start or fullest) or (fullest if is_enough else None)

    def _simulate(self, *policies: Policy) -> bool:
        """Run policies in the replications that tell most, those nearest to the threshold, and learn from them.

        Return whether the last of them met the target in enough of its runs.
        """
        surrogate = self.surrogate
        for policy in policies:
            logs, _ = surrogate.log_loads(surrogate.fleet(policy))
            distance = np.abs(logs - surrogate.threshold.log)
            distance[surrogate.hopeless] = np.inf
            nearest = np.argsort(distance, kind="stable")[:_CALIBRATION_RUNS]
            telling = [int(r) for r in nearest if np.isfinite(distance[r])]
            outcomes = self.archive.outcomes([(policy, SEARCH * BLOCK + r) for r in telling])
        surrogate.refit(policies[-1])
        known = [(run, seen) for run, seen in self.archive.known.items() if run[1] < BLOCK]
        surrogate.calibrate(known, policies[-1])
        self.values = {}
        met = sum(outcome.meets(self.trial.attainment) for outcome in outcomes)
        return met >= self.confidence * len(outcomes)

    def expect(self, *outcomes: Judged) -> None:
        """Predict by how often policies were seen to meet the target over whole blocks, too."""
        self.surrogate.expect(outcomes)
        self.values = {}

    def find(self, levers: Levers, start: Policy | None = None) -> Policy | None:
        """Return the cheapest policy by the surrogate; None where none is likely enough to meet the SLO target."""
        starts = [policy for policy in (start, self._started(levers.purchases)) if policy]
        enlarged = [self._enlarged(policy, levers.purchases) for policy in starts]
        likely = [policy for policy in dict.fromkeys(enlarged) if policy is not None]
        if levers.rules:
            first = likely[-1] if likely else self.choices.nothing()
            likely += self._ordered_starts(first, levers)
        # A few large steps tell which starts are worth the small ones; from the dearest no step is.
        cheapest = sorted(dict.fromkeys(likely), key=self.cost)[:_COARSE_DESCENTS]
        coarse = [self.descend(policy, levers, _LEAST_FIRST_STEP) for policy in cheapest]
        cheapest = sorted(dict.fromkeys(coarse), key=self.cost)[:_FINE_DESCENTS]
        return min(
            (self.descend(policy, levers) for policy in cheapest), key=self.cost, default=None
        )

    def at(self, confidence: float, policy: Policy, levers: Levers) -> Policy | None:
        """Return the cheapest policy near one at another probability; None where there is none."""
        required = self.confidence
        self.confidence = confidence
        try:
            enlarged = self._enlarged(policy, levers.purchases)
            return None if enlarged is None else self.descend(enlarged, levers)
        finally:
            self.confidence = required

    def _ordered_starts(self, fixed: Policy, levers: Levers) -> Iterator[Policy]:
        """Yield policies that order one cluster on a signal in place of later purchases, at the cheapest load each."""
        choices = self.choices
        first_review = choices.plan.months.edges[1]
        kept = [
            nodes if choices.purchases[place].date < first_review else 0
            for place, nodes in enumerate(fixed.purchases)
        ]
        base = dataclasses.replace(fixed, purchases=tuple(kept))
        for place, windows in enumerate(choices.windows):
            if not windows or not levers.purchases[windows[0]]:
                continue
            tried = [base.with_rule(place, choices.rule(place, load)) for load in _START_LOADS]
            within = [policy for policy in tried if choices.within_limits(policy)]
            likely = [policy for policy in within if self.is_likely(policy)]
            if not likely and within:
                enlarged = self._enlarged(within[0], levers.purchases)
                likely = [] if enlarged is None else [enlarged]
            if likely:
                yield min(likely, key=self.cost)

    # The start

    def _started(self, allowed: Sequence[bool]) -> Policy | None:
        """Return the answer of the linear program at the least margin on demand that makes it likely enough."""
        low = -0.6
        high = 0.6
        best = None
        keep = self._spared(None)
        for number in range(_SCALES):
            middle = 0.5 * (low + high) if number else self.surrogate.threshold.log + 0.02
            nodes = self.master(allowed, math.exp(middle), keep)
            if nodes is None:
                high = middle
                continue
            policy = self._rounded(nodes)
            keep = self._spared(policy)
            if self.value(policy)[1] >= self.confidence:
                high = middle
                best = policy
            else:
                low = middle
        if best is None:
            nodes = self.master(allowed, math.exp(low), keep)
            best = None if nodes is None else self._rounded(nodes)
        return best

    def _rounded(self, nodes: Floats) -> Policy:
        nothing = self.choices.nothing()
        purchases = tuple(math.ceil(count - 1e-6) for count in nodes.tolist())
        policy = dataclasses.replace(nothing, purchases=purchases)
        if not self.choices.within_limits(policy):
            purchases = tuple(math.floor(count + 1e-6) for count in nodes.tolist())
            policy = dataclasses.replace(nothing, purchases=purchases)
        return policy

    def _spared(self, policy: Policy | None) -> Bools:
        """Return the replications that the start is to serve: all but as many of the hardest as may be missed."""
        surrogate = self.surrogate
        policy = policy or self.choices.reference
        logs, _ = surrogate.log_loads(surrogate.fleet(policy))
        fixable = np.flatnonzero(~surrogate.hopeless)
        share = min(1.0, self.confidence / max(surrogate.fixable, 1e-9))
        must = fixable[np.argsort(-logs[fixable], kind="stable")][
            : max(1, math.ceil(share * fixable.size))
        ]
        keep = np.zeros(logs.size, dtype=bool)
        keep[must] = True
        return keep

    def master(self, allowed: Sequence[bool], scale: float, keep: Bools) -> Floats | None:
        """Return the cheapest nodes, in parts, that serve a multiple of demand in some replications, or None."""
        surrogate = self.surrogate
        choices = self.choices
        none = choices.nothing()
        standing = surrogate.fleet(none)
        present = surrogate.present[:, surrogate.column]  # replications, columns, months
        limits, most = self._limits()
        upper = np.where(allowed, choices.most_at_once, 0.0)
        usd = np.maximum(surrogate.node_usd[surrogate.column], 1e-9)
        rows = []
        least = []
        months = standing.shape[1]
        blocks = np.array_split(np.arange(months), min(_BLOCKS, months))
        nodes = np.zeros(upper.size)
        for _ in range(_MASTER_ROUNDS):
            fleet = standing.copy()
            for column, group in enumerate(surrogate.group_of.tolist()):
                fleet[:, :, group] += nodes[column] * present[:, column]
            served = surrogate.scales(fleet)  # prices, replications, months
            lowest = served.min(axis=0)
            which = served.argmin(axis=0)
            fresh = 0
            for r in np.flatnonzero(keep).tolist():
                for block in blocks:
                    month = block[int(lowest[r, block].argmin())]
                    if lowest[r, month] < scale * (1.0 - 1e-4):
                        per_node = surrogate.bounds[:, which[r, month], r, month]
                        rows.append(per_node[surrogate.group_of] * present[r, :, month])
                        least.append(scale - float(per_node @ standing[r, month]))
                        fresh += 1
            if not fresh:
                return nodes
            matrix = np.concatenate([-np.array(rows), limits]) if len(limits) else -np.array(rows)
            bound = np.concatenate([-np.array(least), most])
            size = np.maximum(np.abs(matrix).max(axis=1), 1e-12)
            solution = linprog(
                usd / usd.max(), A_ub=matrix / size[:, None], b_ub=bound / size,
                bounds=[*zip(np.zeros(upper.size), upper, strict=True)], method="highs",
            )  # fmt: skip
            if solution.status != 0:
                return None
            nodes = np.asarray(solution.x)
        return nodes

    def _limits(self) -> tuple[Floats, Floats]:
        """Return rows Σ a·nodes ≤ b of the limits on nodes, budget and power."""
        choices = self.choices
        rows = list[Floats]()
        most = list[float]()
        least, top = choices.nodes_allowed
        for group in range(len(choices.offers)):
            row = (choices.group_of == group).astype(np.float64)
            rows += [row, -row]
            most += [float(top[group]), -float(least[group])]
        if choices.choose.budget_usd is not None:
            rows.append(
                np.array(
                    [sum(choices.node_prices_usd(p, 1)) for p in range(len(choices.purchases))]
                )
            )
            most.append(choices.choose.budget_usd)
        if (cap_kw := choices.choose.it_power_cap_kw) is not None:
            fixed = choices.power_kw(choices.nothing())
            nothing = choices.nothing()
            of_one = [
                choices.power_kw(nothing.with_nodes({place: 1})) - fixed
                for place in range(len(choices.purchases))
            ]
            rows += list(np.array(of_one).T)
            most += (cap_kw - fixed).tolist()
        return np.array(rows).reshape(len(rows), len(choices.purchases)), np.array(most)

    def _enlarged(self, policy: Policy, allowed: Sequence[bool]) -> Policy | None:
        """Return a policy enlarged until it is likely enough to meet the SLO target, or None within limits."""
        share = 0.02
        while not self.is_likely(policy):
            # The one addition that raises the service most per dollar.
            step = max(1, round(share * sum(policy.purchases)))
            wider = filter(self.choices.within_limits, self._wider(policy, allowed, step))
            cost = self.cost(policy)
            service = self.service(policy)
            best_gain = 0.0
            for larger in wider:
                gain = self.service(larger) - service
                gain /= max(self.cost(larger) - cost, 1e-9)
                if gain > best_gain:
                    best_gain = gain
                    policy = larger
            if best_gain <= 0.0:
                return None
            share *= 1.1
        return policy

    def _wider(self, policy: Policy, allowed: Sequence[bool], step: int) -> Iterator[Policy]:
        """Yield policies that buy more on one day, order earlier or more often, or may rent more."""
        choices = self.choices
        for place, is_allowed in enumerate(allowed):
            more = min(step, int(choices.most_at_once[place]) - policy.purchases[place])
            if is_allowed and more > 0:
                yield policy.with_nodes({place: more})
        for place, rule in enumerate(policy.rules):
            if rule is not None:
                for percent in _ENLARGED_PERCENTS:
                    yield from other_levels(policy, place, percent)
                yield from other_reviews(policy, place, len(choices.windows[place]))
        if policy.rented_instances:
            yield from other_rent(policy, step, choices.most_instances)

    def fullest(self, levers: Levers) -> Policy:
        """Return the policy of most service within limits, purchase by purchase, with all rent."""
        choices = self.choices
        policy = choices.nothing()
        if levers.rent:
            policy = dataclasses.replace(policy, rented_instances=choices.most_instances)
        for group, least in enumerate(choices.nodes_allowed[0].tolist()):
            own = np.flatnonzero(choices.group_of == group).tolist()
            allowed = [place for place in own if levers.purchases[place]]
            # No more than it must, on the first day that it may.
            policy = policy.with_nodes({place: int(least) for place in allowed[:1]})
        step = max(1, int(choices.nodes_allowed[1].max(initial=1)) // 4)
        while step:
            wider = more_nodes(policy, step, levers.purchases)
            within = [larger for larger in wider if choices.within_limits(larger)]
            best = max(within, key=self._service_by_month, default=policy)
            if self._service_by_month(best) <= self._service_by_month(policy):
                step //= 2
            else:
                policy = best
        return policy

    def service(self, policy: Policy) -> float:
        """Return the mean of log λ in the hard half of the replications: what rises before the probability does."""
        surrogate = self.surrogate
        logs = np.sort(surrogate.log_loads(surrogate.fleet(policy))[0][~surrogate.hopeless])
        return float(logs[: max(1, logs.size // 2)].mean()) if logs.size else 0.0

    def _service_by_month(self, policy: Policy) -> tuple[float, float]:
        """Return the service of a policy, and the mean of log λ over all months: it rises where some month has none."""
        surrogate = self.surrogate
        scales = surrogate.scales(surrogate.fleet(policy)).min(axis=0)
        return self.service(policy), float(np.log(np.maximum(scales, _LEAST_SCALE)).mean())

    # The steps

    def descend(self, policy: Policy, levers: Levers, least_step: int = 1) -> Policy:
        """Return a cheaper policy: nodes removed, delayed, exchanged, loads raised, in ever smaller steps."""
        total = sum(policy.purchases)
        step = max(_LEAST_FIRST_STEP, 2 ** int(math.log2(max(1, total // 16))))
        while step >= least_step:
            kinds = self._kinds(step, levers)
            before = None
            # The kinds take turns until none saves any more.
            while policy != before:
                before = policy
                for kind in kinds:
                    policy = self._changed(policy, kind)
            step //= 2
        return policy

    def _changed(self, policy: Policy, kind: Kind) -> Policy:
        """Return a policy with a kind of change made as long as it saves."""
        cheaper: Policy | None = policy
        while cheaper is not None:
            policy = cheaper
            cheaper = self._cheaper(policy, kind)
        return policy

    def _cheaper(self, policy: Policy, kind: Kind) -> Policy | None:
        """Return the first policy that a kind of change makes cheaper and leaves likely enough."""
        most = self.cost(policy) * (1.0 - _SAME_COST)
        for near in kind(policy):
            # What limits allow is told sooner than what serves.
            if not self.choices.within_limits(near):
                continue
            if self.is_likely(near) and self.cost(near) < most:
                return near
        return None

    def neighbours(self, policy: Policy, step: int, levers: Levers) -> Iterator[Policy]:
        """Yield the policies beside one, by kinds of change: what saves most comes first."""
        for kind in self._kinds(step, levers):
            yield from kind(policy)

    def _kinds(self, step: int, levers: Levers) -> list[Kind]:
        """Return the kinds of change of a policy: what saves most comes first."""
        days = [len(one.dates) for one in self.choices.retirements]
        kinds: list[Kind] = [
            lambda policy: fewer_nodes(policy, step),
            lambda policy: self._exchanged_nodes(policy, step, levers),
            lambda policy: other_retirements(policy, days),
            self._next_discounts,
        ]
        if self.surrogate.trades:
            kinds.append(lambda policy: more_nodes(policy, step, levers.purchases))
        kinds.append(lambda policy: self._changed_rules(policy, step, levers))
        if levers.rent:
            most = self.choices.most_instances
            kinds.append(lambda policy: other_rent(policy, step, most))
        return kinds

    def _changed_rules(self, policy: Policy, step: int, levers: Levers) -> Iterator[Policy]:
        """Yield policies with one rule changed, or with a further one."""
        for place, rule in enumerate(policy.rules):
            if rule is not None:
                yield from self._other_rules(policy, place, step, levers)
            elif levers.rules and self.choices.windows[place] and policy.orders:
                # Another that orders what the first may not.
                loads = [other.load_percent for other in policy.rules if other]
                yield policy.with_rule(place, self.choices.rule(place, max(loads)))

    def _other_rules(
        self, policy: Policy, place: int, step: int, levers: Levers
    ) -> Iterator[Policy]:
        """Yield policies with another rule for one cluster, alone and with nodes in exchange."""
        choices = self.choices
        levels = [*other_levels(policy, place, min(5 * step, 20)), *other_levels(policy, place, 1)]
        yield from levels
        for level in levels:
            yield from more_nodes(level, step, levers.purchases)
            yield from fewer_nodes(level, step)
        if choices.has_free_step(place):
            yield from other_steps(policy, place)
        yield from other_reviews(policy, place, len(choices.windows[place]))
        yield policy.with_rule(place, None)

    def _exchanged_nodes(self, policy: Policy, step: int, levers: Levers) -> Iterator[Policy]:
        """Yield policies with nodes of one purchase for those of another, what is predicted to save most first."""
        choices = self.choices
        surrogate = self.surrogate
        usd = surrogate.node_usd[surrogate.column]
        worth = surrogate.worth[surrogate.group_of]
        exchanges = []
        pairs = itertools.product(range(len(policy.purchases)), repeat=2)
        for source, target in pairs:
            nodes = min(step, policy.purchases[source])
            if not nodes or not levers.purchases[target] or not self._may_swap(source, target):
                continue
            equivalent = nodes * worth[source] / max(worth[target], 1e-12)
            # One fewer as well: what was there may have had room to spare.
            least = math.floor(equivalent)
            for added in {math.ceil(equivalent), least, least - 1} - {0, -1}:
                saved_usd = nodes * usd[source] - added * usd[target]
                if added <= choices.most_at_once[target] and (saved_usd > 0 or surrogate.trades):
                    exchanges.append((-saved_usd, source, target, nodes, added))
        for _, source, target, nodes, added in sorted(exchanges):
            yield policy.with_nodes({source: -nodes, target: added})

    def _next_discounts(self, policy: Policy) -> Iterator[Policy]:
        """Yield policies in which one purchase reaches another volume discount."""
        for place, nodes in enumerate(policy.purchases):
            for tier in self.choices.tiers[place] if nodes else ():
                if tier > nodes:
                    yield policy.with_nodes({place: tier - nodes})

    def _may_swap(self, source: int, target: int) -> bool:
        """Return whether nodes of one purchase may be exchanged for another's: of another cluster, or soon after."""
        one = self.choices.purchases[source]
        other = self.choices.purchases[target]
        if one.cluster == other.cluster:
            dates = sorted(p.date for p in self.choices.purchases if p.cluster == one.cluster)
            return 0 < abs(dates.index(one.date) - dates.index(other.date)) <= _NEAR_DATES
        days = abs((one.date - other.date).days)
        return days <= _NEAR_DAYS or len(self.choices.purchases) <= _MANY_PURCHASES
