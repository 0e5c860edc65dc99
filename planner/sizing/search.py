"""The search: a start from a small linear program, then ever smaller steps, all by the surrogate.

What it ends with is simulated where that tells most, the surrogate is calibrated by what was seen, and the search goes
on from there until both agree. A count of misses decides only where nodes are so few that all cheaper policies can be
simulated.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import linprog

from planner.arrays import Bools, Floats
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Archive, Clock, SizingOutcome
from planner.sizing.surrogate import Surrogate

ROUNDS = 4  # of search, simulation and calibration
MOST_RUNS = (
    24  # replications in which a policy is simulated to calibrate: those nearest to its threshold
)
_MASTER_ROUNDS = 30  # of the linear program, each with the rows that its last answer breaks
_BLOCKS = 6  # parts of the horizon from each of which a replication may add a row
_SCALES = 7  # halvings of the margin on demand
_SAME = 1e-7  # of the cost: what is no difference
_LOADS = (50, 60, 70, 80, 90)  # percent: loads up to which orders are first tried
_LOAD_STEPS = {8: 10, 4: 5, 2: 2, 1: 1}
_NEAR_DATES = 2  # dates by which nodes are moved in one step
_NEAR_DAYS = 45  # between purchases of two clusters that are exchanged, where dates are many
_MANY = 16  # purchases
_PROBABILITY_ERROR = 0.005  # between what the surrogate says of a policy before and after its runs
_MOST_EXACT = (
    60  # cheaper policies that are simulated one by one, each until it has missed too often
)
_MOST_HELD = 4  # of those, that meet the SLO target: the cheapest as simulated is taken
_AS_CHEAP = 1.03  # times the cost of the answer, for the error of a prediction
_AS_CHEAP_TRADED = 1.1  # the same where overflow has a price, which is predicted less well
_MOST_LISTED = (
    20_000  # policies, begun or complete, that are looked at before they are too many to list
)
_LOADS_BESIDE = (-10, -5, 0, 5, 10)  # percent: loads beside the answer's that are listed
_MOST_NODES_EXACT = 48  # nodes of a policy: with more, one of them is less than a surrogate's error
_DOUBTED = 0.3  # of log λ: by how much a cheaper policy may fall short of the threshold that is still simulated


class Search:
    """Finds the cheapest policy that is likely enough to meet the SLO target."""

    def __init__(self, surrogate: Surrogate, archive: Archive, clock: Clock) -> None:
        self.surrogate = surrogate
        self.archive = archive
        self.clock = clock
        self.trial = surrogate.trial
        self.choices = surrogate.choices
        self.confidence = self.trial.confidence
        self.trades = surrogate.trades
        self._values: dict[Counts, tuple[float, float]] = {}
        self._reacts = self._rents = False
        self.fresh: list[int] = []
        """Replications beyond the surveyed ones to which an answer has been held."""
        self.best: Counts | None = None
        """The cheapest policy so far, if the search is stopped."""

    @property
    def every(self) -> list[bool]:
        """All purchases, where none is excluded."""
        return [True] * len(self.choices.purchases)

    def by(self, surrogate: Surrogate) -> Search:
        """Return the same search by another surrogate, with its limits."""
        other = copy.copy(self)
        other.surrogate, other.choices = surrogate, surrogate.choices
        other.forget()
        return other

    @property
    def replications(self) -> int:
        """Replications that were surveyed."""
        return len(self.surrogate.surveys)

    def value(self, counts: Counts) -> tuple[float, float]:
        """Return a policy's cost and probability by the surrogate."""
        if counts not in self._values:
            surrogate = self.surrogate
            nodes = surrogate.nodes(counts)
            fleet = surrogate.fleet(counts, nodes)
            self._values[counts] = (
                surrogate.cost_of(counts, fleet, nodes),
                surrogate.probability_of(fleet),
            )
        return self._values[counts]

    def outcomes(self, counts: Counts, replications: Sequence[int]) -> list[SizingOutcome]:
        """Return a policy's outcomes in some replications."""
        return self.archive.outcomes([(counts, replication) for replication in replications])

    def calibrate(self, near: Counts) -> None:
        """Take up all runs so far, those of policies like ``near`` most."""
        self.surrogate.refit(near)
        self.surrogate.calibrate([*self.archive.known.items()], near)
        self.forget()

    def solve(
        self, allowed: Sequence[bool], start: Counts | None = None, *, reacts: bool = False, rents: bool = False,
        rounds: int = ROUNDS,
    ) -> Counts | None:  # fmt: skip
        """Return the cheapest policy among some purchases; None where none meets the SLO target.

        It may order on a signal where it ``reacts``, and take overflow rent where it ``rents``.
        """
        best = start
        for _ in range(rounds if self.confidence else 2 * rounds):
            before = best
            best = self.searched(allowed, before, reacts=reacts, rents=rents)
            if best is None:  # the surrogate may be too strict: the most that limits allow tells
                best = self._fullest(allowed)
                if not self.holds(best):
                    return None
            self.best = best
            expected = self.value(best)[1]
            self._simulate(best)
            self.calibrate(best)
            cost, probability = self.value(best)
            self.clock.say(
                f"{self.archive.workers.runs:,} runs: {self.choices.words(best)}; about {cost / 1e6:,.2f} M, "
                f"P(SLO met) {probability:.1%}"
            )
            if best == before or (
                self.confidence and abs(probability - expected) < _PROBABILITY_ERROR
            ):
                break
        if best is None:
            return None
        made = self.exact(best, allowed)
        if rents and start is not None and self.holds(start):
            made = min(
                start, made, key=self._seen_cost
            )  # what rent costs is predicted less well than nodes
        return made

    def _simulate(self, counts: Counts) -> None:
        """Run a policy in the replications that tell most: those nearest to the threshold."""
        surrogate = self.surrogate
        logs, _ = surrogate.log_loads(surrogate.fleet(counts))
        away = np.where(surrogate.hopeless, np.inf, np.abs(logs - surrogate.threshold.log))
        nearest = np.argsort(away, kind="stable")[:MOST_RUNS]
        self.clock.check()
        self.outcomes(counts, [int(r) for r in nearest if np.isfinite(away[r])])

    def forget(self) -> None:
        """Drop values that no longer hold: of another surrogate, or under other limits."""
        self._values = {}

    def searched(
        self,
        allowed: Sequence[bool],
        start: Counts | None,
        *,
        reacts: bool = False,
        rents: bool = False,
    ) -> Counts | None:
        """Return the cheapest policy by the surrogate; None where none is likely enough to meet the SLO target."""
        self._reacts = reacts
        self._rents = rents
        starts = [made for made in (start, self._started(allowed)) if made is not None]
        starts = [
            made for made in (self._enlarged(made, allowed) for made in starts) if made is not None
        ]
        if not starts:
            return None
        best = min(
            (self.descend(made, allowed) for made in dict.fromkeys(starts)),
            key=lambda made: self.value(made)[0],
        )
        if reacts:
            for made in self._reactive(best, allowed):
                best = min(best, self.descend(made, allowed), key=lambda made: self.value(made)[0])
        return best

    def _reactive(self, fixed: Counts, allowed: Sequence[bool]) -> Iterator[Counts]:
        """Yield policies that order one cluster on a signal in place of its later purchases, the cheapest load each."""
        choices = self.choices
        for which, windows in enumerate(choices.windows):
            if not windows or not allowed[windows[0]]:
                continue
            first = choices.plan.months.edges[1]
            kept = [
                n if choices.purchases[p].date < first else 0
                for p, n in enumerate(fixed[choices.bought])
            ]
            tried = []
            for load in _LOADS:
                loads = [load if at == which else 0 for at in range(len(choices.reactive))]
                tried.append((*kept, *loads, *fixed[choices.rent.start :]))
            made = [
                counts
                for counts in tried
                if choices.within_limits(counts) and self.value(counts)[1] >= self.confidence
            ]
            if not made and (enlarged := self._enlarged(tried[0], allowed)) is not None:
                made = [enlarged]
            if made:
                yield min(made, key=lambda counts: self.value(counts)[0])

    # The start

    def _started(self, allowed: Sequence[bool]) -> Counts | None:
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
            counts = self._rounded(nodes)
            keep = self._spared(counts)
            if self.value(counts)[1] >= self.confidence:
                high = middle
                best = counts
            else:
                low = middle
        if best is None:
            nodes = self.master(allowed, math.exp(low), keep)
            best = None if nodes is None else self._rounded(nodes)
        return best

    def _rounded(self, nodes: Floats) -> Counts:
        bought = tuple(math.ceil(count - 1e-6) for count in nodes.tolist())
        counts = (*bought, *self.choices.nothing()[len(bought) :])
        if not self.choices.within_limits(counts):
            bought = tuple(math.floor(count + 1e-6) for count in nodes.tolist())
            counts = (*bought, *self.choices.nothing()[len(bought) :])
        return counts

    def _spared(self, counts: Counts | None) -> Bools:
        """Return the replications that the start is to serve: all but as many of the hardest as may be missed."""
        surrogate = self.surrogate
        counts = counts or self.choices.reference()
        logs, _ = surrogate.log_loads(surrogate.fleet(counts))
        fixable = np.flatnonzero(~surrogate.hopeless)
        share = min(1.0, self.confidence / max(1.0 - surrogate.unfixable, 1e-9))
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
                        per_node = surrogate.bounds[which[r, month], r, month]
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

    def near(self, counts: Counts, probability: float) -> Counts | None:
        """Return the cheapest policy near one whose probability is another; None where there is none."""
        most = float(self.surrogate.fixable.mean()) - 1e-4
        asked, self.confidence = self.confidence, min(max(probability, 0.01), most)
        try:
            enlarged = self._enlarged(counts, self.every)
            return None if enlarged is None else self.descend(enlarged, self.every)
        finally:
            self.confidence = asked

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
            unit = np.eye(len(choices.purchases), dtype=int)
            kw = np.array(
                [
                    choices.power_kw((*one.tolist(), *choices.nothing()[len(one) :])) - fixed
                    for one in unit
                ]
            )
            rows += list(kw.T)
            most += (cap_kw - fixed).tolist()
        return np.array(rows).reshape(len(rows), len(choices.purchases)), np.array(most)

    def _enlarged(self, counts: Counts, allowed: Sequence[bool]) -> Counts | None:
        """Return a policy enlarged until it is likely enough to meet the SLO target, or None within limits."""
        choices = self.choices
        share = 0.02
        while self.value(counts)[1] < self.confidence:
            # The one more purchase that raises the probability most per dollar.
            more = max(1, round(share * sum(counts[choices.bought])))
            wider = [
                moved(counts, {place: int(step)})
                for place in range(len(choices.purchases))
                if allowed[place]
                for step in (min(more, choices.most_at_once[place] - counts[place]),)
                if step > 0
            ]
            wider = [made for made in wider if choices.within_limits(made)]
            if not wider:
                return None
            cost = self.value(counts)[0]
            service = self.service(counts)
            gains = [
                (self.service(made) - service) / max(self.value(made)[0] - cost, 1e-9)
                for made in wider
            ]
            best = int(np.argmax(gains))
            if gains[best] <= 0:
                return None
            counts = wider[best]
            share = share * 1.1
        return counts

    def _fullest(self, allowed: Sequence[bool]) -> Counts:
        """Return the policy of most service within limits, purchase by purchase."""
        choices = self.choices
        counts = self._least_allowed(allowed)
        step = max(1, int(choices.nodes_allowed[1].max(initial=1)) // 4)
        while step:
            wider = [
                moved(counts, {place: step})
                for place in range(len(choices.purchases))
                if allowed[place]
            ]
            able = [made for made in wider if choices.within_limits(made)]
            best = max(able, key=self.service, default=None)
            if best is None or self.service(best) <= self.service(counts):
                step //= 2
            else:
                counts = best
        return counts

    def _least_allowed(self, allowed: Sequence[bool]) -> Counts:
        """Return the policy that buys no more than it must, each offer on its first date."""
        choices, counts = self.choices, self.choices.nothing()
        for group, least in enumerate(choices.nodes_allowed[0].tolist()):
            places = [
                place
                for place in np.flatnonzero(choices.group_of == group).tolist()
                if allowed[place]
            ]
            if least and places:
                counts = moved(counts, {places[0]: int(least)})
        return counts

    def service(self, counts: Counts) -> float:
        """Return the mean of log λ in the hard half of the replications: what rises before the probability does."""
        surrogate = self.surrogate
        logs = np.sort(surrogate.log_loads(surrogate.fleet(counts))[0][~surrogate.hopeless])
        return float(logs[: max(1, logs.size // 2)].mean()) if logs.size else 0.0

    # The steps

    def descend(self, counts: Counts, allowed: Sequence[bool]) -> Counts:
        """Return a cheaper policy: nodes removed, delayed, exchanged, loads raised, in ever smaller steps."""
        total = sum(counts[self.choices.bought])
        step = max(1, 2 ** int(math.log2(max(1, total // 16))))
        while step:
            cost = self.value(counts)[0]
            better = next(
                (
                    made
                    for made in self._near(counts, step, allowed)
                    if self.choices.within_limits(made)
                    and self.value(made)[1] >= self.confidence
                    and self.value(made)[0] < cost * (1.0 - _SAME)
                ),
                None,
            )
            if better is None:
                step //= 2
            else:
                counts = better
        return counts

    def _near(self, counts: Counts, step: int, allowed: Sequence[bool]) -> Iterator[Counts]:
        """Yield policies nearby, by what the change saves in nodes, largest first; then those of other levers."""
        choices = self.choices
        surrogate = self.surrogate
        used = [place for place, nodes in enumerate(counts[choices.bought]) if nodes]
        usd = surrogate.node_usd[surrogate.column]
        worth = surrogate.worth
        changes = [{place: -min(step, counts[place])} for place in used]
        changes += [{place: step} for place, may in enumerate(allowed) if may and self.trades]
        for out, into in itertools.product(used, range(len(choices.purchases))):
            if allowed[into] and self._exchangeable(out, into):
                taken = min(step, counts[out])
                alike = (
                    taken
                    * worth[surrogate.group_of[out]]
                    / max(worth[surrogate.group_of[into]], 1e-12)
                )
                wanted = {math.ceil(alike), math.floor(alike)} - {0}
                changes += [
                    {out: -taken, into: given}
                    for given in wanted
                    if given <= choices.most_at_once[into]
                ]
        loads = range(choices.loads.start, choices.loads.stop)
        load_step = next((move for size, move in _LOAD_STEPS.items() if step >= size), 1)
        for at in loads:
            if counts[at]:
                changes += [{at: load_step}]
                changes += [
                    {at: load_step, place: step}
                    for place in range(len(choices.purchases))
                    if allowed[place]
                ]
                changes += [{at: -load_step, place: -min(step, counts[place])} for place in used]
                changes += [{at: -counts[at]}]
            elif (
                self._reacts and choices.windows[at - loads.start]
            ):  # another that orders what the first may not
                changes += [{at: load} for load in {max(counts[choices.loads]), _LOADS[-1]} - {0}]
        for at in range(choices.rent.start, choices.rent.stop) if self._rents else ():
            changes += [{at: move} for move in (-step, step)]
            changes += [{at: step, place: -min(step, counts[place])} for place in used]
        saved = [
            sum(-by * usd[place] for place, by in change.items() if place < usd.size)
            + sum(abs(by) * 1e-9 for place, by in change.items() if place >= usd.size)
            for change in changes
        ]
        for place in np.argsort(-np.array(saved), kind="stable").tolist() if changes else ():
            made = moved(counts, changes[place])
            is_other = any(at >= usd.size for at in changes[place])
            if (saved[place] > 0 or is_other or self.trades) and self._allowed(made):
                yield made
        for at, retirement in zip(
            range(choices.days.start, choices.days.stop), choices.retirements, strict=True
        ):
            for day in range(1 + len(retirement.dates)):
                if day != counts[at]:
                    yield (*counts[:at], day, *counts[at + 1 :])
        for place in used:
            for nodes in choices.tiers(place):
                if nodes > counts[place]:
                    yield moved(counts, {place: nodes - counts[place]})

    def _exchangeable(self, out: int, into: int) -> bool:
        """Return whether nodes of one purchase may be exchanged for another's: of another cluster, or soon after."""
        one = self.choices.purchases[out]
        other = self.choices.purchases[into]
        if one.cluster == other.cluster:
            dates = sorted(p.date for p in self.choices.purchases if p.cluster == one.cluster)
            return 0 < abs(dates.index(one.date) - dates.index(other.date)) <= _NEAR_DATES
        return (
            abs((one.date - other.date).days) <= _NEAR_DAYS or len(self.choices.purchases) <= _MANY
        )

    def _allowed(self, counts: Counts) -> bool:
        choices = self.choices
        return (
            min(counts) >= 0
            and all(load <= 100 for load in counts[choices.loads])
            and all(instances <= choices.most_instances for instances in counts[choices.rent])
        )

    # What is simulated

    def exact(self, counts: Counts, allowed: Sequence[bool]) -> Counts:
        """Return the cheapest policy that the simulation finds as good, of all that are predicted to cost less.

        It matters where a node is much of the total, and there are few policies: a surrogate is off by some hundredths.
        """
        if self.surrogate.nodes(counts).sum(axis=1).mean() > _MOST_NODES_EXACT:
            return counts
        least = self.surrogate.threshold.log - _DOUBTED
        held = [counts] if self.holds(counts) else []
        cheaper = sorted(
            (self.value(made)[0], made) for made in self._below(counts, allowed) if made != counts
        )
        likely = (
            made
            for _, made in cheaper
            if self.service(made) > least and self.choices.within_limits(made)
        )
        for made in itertools.islice(likely, _MOST_EXACT):
            self.clock.check()
            if self.holds(made):
                held.append(made)
            if len(held) > (_MOST_EXACT // 4 if self.trades else _MOST_HELD):
                break
        return min(held, key=self._seen_cost, default=counts)

    def _seen_cost(self, counts: Counts) -> float:
        """Return the mean cost of a policy as it is simulated."""
        return float(
            np.mean([outcome.cost for outcome in self.outcomes(counts, range(self.replications))])
        )

    def _below(self, counts: Counts, allowed: Sequence[bool]) -> list[Counts]:
        """Return all policies that may cost less than one by what is predicted; its neighbours where they are many."""
        choices = self.choices
        most = self.value(counts)[0] * (_AS_CHEAP_TRADED if self.trades else _AS_CHEAP)
        usd = np.maximum(self.surrogate.node_usd[self.surrogate.column], 0.0)
        loads = [
            sorted({0, *(min(max(load + by, 1), 100) for by in _LOADS_BESIDE)} if load else {0})
            for load in counts[choices.loads]
        ]
        days = [range(1 + len(retirement.dates)) for retirement in choices.retirements]
        below = list[Counts]()
        begun = [((0,) * len(choices.purchases), 0)]
        others = [*itertools.product(*loads, *([rent] for rent in counts[choices.rent]), *days)]
        floor = (
            0.0 if self.trades else min(self.value((*begun[0][0], *other))[0] for other in others)
        )
        for _ in range(_MOST_LISTED):
            if not begun:
                return [made for made in below if self.value(made)[0] < most]
            bought, place = begun.pop()
            if floor + float(usd @ np.array(bought)) >= most:
                continue
            if place < len(bought):
                begun.append((bought, place + 1))
                if allowed[place] and bought[place] < choices.most_at_once[place]:
                    begun.append((moved(bought, {place: 1}), place))
            else:
                below += [(*bought, *other) for other in others]
        near = (made for made in self._near(counts, 1, allowed) if choices.within_limits(made))
        return [made for made in near if self.value(made)[0] < most]

    def holds(self, counts: Counts) -> bool:
        """Return whether a policy meets the SLO target in enough of the replications so far, hardest first."""
        surrogate = self.surrogate
        if not self.choices.within_limits(counts):
            return False
        logs, _ = surrogate.log_loads(surrogate.fleet(counts))
        order = [*np.argsort(logs, kind="stable").tolist(), *self.fresh]
        spare = len(order) - math.ceil(self.confidence * len(order) - 1e-9)
        attainment = self.trial.attainment
        for first in range(0, len(order), 4):
            part = order[first : first + 4]
            spare -= sum(not outcome.meets(attainment) for outcome in self.outcomes(counts, part))
            if spare < 0:
                return False
        return True


def moved(counts: Counts, changes: dict[int, int]) -> Counts:
    """Return a policy with some of its numbers changed."""
    return tuple(count + changes.get(place, 0) for place, count in enumerate(counts))
