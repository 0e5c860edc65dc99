"""What a policy would serve and cost, worked out from surveys in milliseconds: the surrogate that the search goes by.

*Service.* λ of a replication is the largest factor on its demand that the fleet of every month still serves:

    max λ:  Σ_g rate·y ≥ λ·H·urgent (bin, workload),  Σ_g,b rate·y ≥ λ·waiting (workload),  Σ_w y ≤ H·X (group, bin)

with y node-hours, H hours and X nodes there. By duality any prices u, v of a request give a bound, and the prices that
are best for one month are good for others: a pool of them, learnt where they are loose, gives λ of all months at once.

*Probability.* log λ is regressed on the uncertain inputs over the surveyed replications; the threshold μ and the spread
σ at which the simulation meets the SLO target come from a probit over all runs so far; p₀ is the share of replications
that miss whatever is bought. Then P = (1 − p₀)·mean of Φ((log λ(inputs) − μ) / spread) over many draws of the inputs. A
count of misses in the same replications would jump with each of them; this does not.

*Cost.* Nodes of each purchase at the mean cost of its survey, discounts and whole people, energy and rent of work.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.special import log_ndtr, ndtr

from planner.arrays import Bools, Floats, Ints
from planner.engine.orders import forecast_hour, forecast_peak, order_up_to
from planner.finance.accounting.measures import running_factors
from planner.plan.attainment import LEAST_SHORTFALL
from planner.sizing.choices import Counts, due_h
from planner.sizing.evaluate import DRAWS, Run, SizingOutcome, Trial
from planner.sizing.survey import BINS, Survey, mean_of, outage_misses, staffed_usd
from planner.studies.decision import IntervalEstimate

_LEAST_LOG = -5.0  # log λ of a month in which nothing serves
_MOST_SCALE = 20.0  # λ where next to nothing is asked
_LEARNT = 12  # replications in which prices are learnt at a time
_LOOSE = 0.003  # by how much a bound may be above λ before its prices are added
_HELD = 8.0  # hours for which an instance is held for each in which it is needed, about
_MOST_PRICES = 60
_PER_FEATURE = 6  # surveyed replications for each input that the regression takes
_THRESHOLDS = np.linspace(-0.5, 0.5, 201)
_SPREADS = np.array([0.01, 0.015, 0.025, 0.04, 0.06, 0.1])
_ALIKE = 0.3  # difference of fleets' shares at which a run counts for a third
_PRIOR_RUNS = 40.0  # fresh runs that having no bias weighs as
_MISSED = (
    0.5  # of requests beyond capacity: those that miss, before any run tells; an API takes them all
)
_FULL = np.linspace(
    0.8, 2.0, 13
)  # of what a machine serves within the SLO: what it serves while others take the rest
_PULL = 0.01  # what that weighs beside runs
_PRIOR = 0.15  # standard deviation of the threshold before any run


class Threshold(NamedTuple):
    """Where the simulation begins to meet the SLO target: log λ, and its spread."""

    log: float = 0.0
    spread: float = 0.06


@dataclass(frozen=True, slots=True)
class Regression:
    """Log λ as a linear function of some inputs."""

    inverse: Floats
    """Coefficients by log λ, shape (features, replications)."""
    surveyed: Floats
    """Features of the surveyed replications, shape (replications, features)."""
    drawn: Floats
    """Features of the draws, shape (draws, features)."""
    chosen: tuple[tuple[int, int], ...]
    """Inputs whose product each feature is; −1 for none."""


class Surrogate:
    """Service, probability and cost of policies over surveyed replications."""

    def __init__(
        self, trial: Trial, surveys: Sequence[Survey], leaving: Sequence[Sequence[Sequence[Survey]]]
    ) -> None:
        """Take the surveys; ``leaving`` are those of the first few with each retirement on each of its days."""
        choices = self.choices = trial.choices
        self.trial = trial
        self.surveys = surveys
        plan = choices.plan
        purchases = choices.purchases
        self.column = np.array(
            [choices.place(purchase.name) for purchase in purchases], dtype=np.intp
        )
        bought = set(self.column.tolist())
        self.standing = [c for c in range(len(plan.clusters)) if c not in bought]
        """Clusters that are there whatever is bought; groups are those, then the offers."""
        first = {
            name: self.column[place]
            for place, name in reversed([*enumerate(p.cluster for p in purchases)])
        }
        self.group_clusters = np.array(
            [*self.standing, *(first[name] for name in choices.offers)], dtype=np.intp
        )
        self.group_of = len(self.standing) + choices.group_of
        self.weights = [
            1.0 / max(s.tokens, 1e-9) if trial.objective == "levelised" else 1.0 for s in surveys
        ]
        self.hours = np.stack([s.hours for s in surveys])
        self.urgent, self.waiting = (
            np.stack([s.urgent for s in surveys]),
            np.stack([s.waiting for s in surveys]),
        )
        self._unasked = (
            self.urgent.sum(axis=(2, 3)) + self.waiting.sum(axis=2)
        ) <= 0.0  # an API takes all that comes
        self.rates = np.stack(
            [s.rates[self.group_clusters] for s in surveys]
        )  # replications, groups, workloads, months
        self._rent_place = -1
        self.on_offer = np.stack([s.on_offer for s in surveys])
        if (
            choices.most_instances
        ):  # rented accelerators are one more group, there as far as they are on offer
            self._rent_place = self.group_clusters.size
            self.rates = np.concatenate(
                [self.rates, np.stack([s.rent_rates for s in surveys])[:, None]], axis=1
            )
        self.groups = self.rates.shape[1]
        self._requests, self._fastest = (
            np.stack([s.requests for s in surveys]),
            np.stack([s.fastest for s in surveys]),
        )
        self._overflow_usd = np.stack([s.overflow_usd for s in surveys])
        self.trades = choices.choose.miss_cost_usd is not None or any(
            cluster.api for cluster in plan.clusters
        )
        """Whether what own machines do not serve has a price."""
        self._slope = 1.0 if choices.choose.miss_cost_usd is None else _MISSED
        self.overflow_line, self.full = (0.0, self._slope), _FULL[len(_FULL) // 2]
        """Of that cost: what no node saves, and how simulated goes with predicted, in runs of a policy's like."""
        self.present = np.stack([s.present for s in surveys])
        self.peaks, self.worths = (
            np.stack([s.peaks for s in surveys]),
            np.stack([s.worths for s in surveys]),
        )
        self._mean_present = self.present.mean(axis=0)
        self._standing_nodes = np.array([float(cluster.nodes) for cluster in plan.clusters])
        self._staying: dict[Counts, Floats] = {}
        self._forecasts: dict[tuple[int, int], Floats] = {}
        self._due_h = np.array([due_h(cluster) for cluster in plan.clusters])
        self._of_rule = [
            np.array([one.cluster == name for one in purchases]) for name in choices.reactive
        ]
        """By rule, which purchases are of the cluster that it orders, shape (purchases,) each."""
        self._tiered = [place for place in range(len(purchases)) if choices.tiers(place)]
        self.hopeless: Bools = self._past_mending(np.array([s.ceilings for s in surveys]))
        self.bounds = np.zeros((0, *self.hours.shape[:2], self.groups))
        """Of each set of prices: λ per node there, shape (prices, replications, months, groups)."""
        for seed in range(BINS + 1):  # each bin alone, and all hours together with what can wait
            rate = np.maximum(self.rates.max(axis=(0, 1, 3)), 1e-12)
            u = np.where(
                np.arange(BINS)[:, None] == seed, 1.0 / rate, 1.0 / rate if seed == BINS else 0.0
            )
            self._add_prices(u, 1.0 / rate if seed == BINS else 0.0 * rate)
        self._prices(leaving)
        self.threshold, self.fixable = Threshold(), np.full(DRAWS, 1.0 - self.hopeless.mean())
        """And of each draw, the probability that any purchase meets the SLO target in it."""
        dark = outage_misses(trial, DRAWS)
        self._is_drawn = dark is not None
        if dark is not None:
            self.fixable = np.where(dark, 0.0, 1.0)
        self.bias = IntervalEstimate(value=0.0, half_width=np.nan, completed=0)
        """What is added to the probability after fresh runs, with its 95% interval."""
        self.worth = np.ones(self.groups)
        """What a node of each group is worth where λ is decided, shape (groups,)."""
        self.refit(choices.reference())

    def _past_mending(self, ceilings: Floats) -> Bools:
        return np.asarray((self.trial.attainment - ceilings >= LEAST_SHORTFALL).any(axis=-1))

    # Fleet

    def nodes(self, counts: Counts, until: tuple[datetime.date, int] | None = None) -> Floats:
        """Return the nodes of each purchase in each replication, with orders on a signal, (replications, columns).

        ``until`` leaves out that review, of a date and a rule, and those that follow it.
        """
        choices = self.choices
        nodes = np.tile(np.array(counts[choices.bought], dtype=np.float64), (len(self.surveys), 1))
        loads = enumerate(counts[choices.loads])
        reviews = [
            (choices.purchases[at].date, which, at, load)
            for which, load in loads
            if load
            for at in choices.windows[which]
        ]
        for date, which, place, load in sorted(reviews):
            if until is not None and (date, which) >= until:
                break
            self._order(nodes, counts, which, place, load / 100.0)
        return nodes

    def _order(self, nodes: Floats, counts: Counts, which: int, place: int, load: float) -> None:
        """Add what one cluster's rule orders at one of its windows, as :mod:`planner.engine.orders` has it."""
        choices = self.choices
        limit = choices.choose.clusters[choices.reactive[which]]
        ahead = choices.forecast_months[which]
        month = self._month(place)
        if (which, month) not in self._forecasts:
            peaks = self.peaks[:, which, :month]
            self._forecasts[which, month] = forecast_peak(peaks, ahead, choices.expected_growth)
        installed = self._installed(nodes, counts, which, place)
        bought = nodes[:, self._of_rule[which]].sum(axis=1)
        room = np.minimum(limit.max_nodes_per_date or np.inf, limit.max_nodes - bought)
        forecast = self._forecasts[which, month]
        most = np.maximum(room, 0.0)
        nodes[:, place] += order_up_to(forecast, installed, load, load, limit.step_nodes, most)

    def _month(self, place: int) -> int:
        """Return the months that have ended on the day of a purchase."""
        return bisect_left(self.choices.plan.months.edges, self.choices.purchases[place].date)

    def _installed(self, nodes: Floats, counts: Counts, which: int, place: int) -> Floats:
        """Return the nodes installed or on order at a review, in nodes of the rule's cluster, shape (replications,).

        Purchases count that are due as far ahead as the rule looks; what a rule has ordered counts from its order.
        """
        choices, plan, worth = self.choices, self.choices.plan, self.worths[:, which]
        leaves = choices.leaves_h(counts)
        leaves_h = np.array(
            [leaves.get(cluster.name, cluster.retire_h) for cluster in plan.clusters]
        )
        until_h = forecast_hour(plan, self._month(place), choices.forecast_months[which])
        counted = (self._due_h <= until_h) * (until_h < leaves_h) * worth  # replications, clusters
        installed = counted[:, self.standing] @ self._standing_nodes[self.standing]
        installed += (nodes * counted[:, self.column]).sum(axis=1)
        stated = np.array(counts[choices.bought], dtype=np.float64)
        ordered = (nodes - stated) * worth[:, self.column]  # by any rule
        return np.asarray(installed + (ordered * (counted[:, self.column] == 0)).sum(axis=1))

    def installed(self, counts: Counts, which: int, place: int) -> Floats:
        """Return what counts as installed at one review of a rule, in nodes of its cluster, shape (replications,)."""
        nodes = self.nodes(counts, (self.choices.purchases[place].date, which))
        return self._installed(nodes, counts, which, place)

    def _stays(self, counts: Counts) -> Floats:
        """Return whether each cluster stays through each month in a policy, shape (clusters, months)."""
        plan = self.choices.plan
        days = counts[self.choices.days]
        if days not in self._staying:
            edges = plan.month_edges_h
            stays = np.ones((len(plan.clusters), self.hours.shape[1]))
            for name, leaves_h in self.choices.leaves_h(counts).items():
                stays[self.choices.place(name)] = leaves_h >= edges[1:]
            self._staying[days] = stays
        return self._staying[days]

    def fleet(self, counts: Counts, nodes: Floats | None = None) -> Floats:
        """Return the nodes of each group that serve in each month, shape (replications, months, groups)."""
        nodes = self.nodes(counts) if nodes is None else nodes
        stays = self._stays(counts)
        fleet = np.zeros((*self.hours.shape[:2], self.groups))
        for group, c in enumerate(self.standing):
            fleet[:, :, group] = self.choices.plan.clusters[c].nodes * self.present[:, c] * stays[c]
        for group in range(len(self.standing), self.group_clusters.size):
            columns = np.flatnonzero(self.group_of == group)
            clusters = self.column[columns]
            fleet[:, :, group] = np.einsum(
                "rc,rcm,cm->rm", nodes[:, columns], self.present[:, clusters], stays[clusters]
            )
        if self._rent_place >= 0:
            accelerators = sum(counts[self.choices.rent]) * self.choices.instance_accelerators
            fleet[:, :, self._rent_place] = accelerators * self.on_offer
        return fleet

    # Service

    def _add_prices(self, u: Floats, v: Floats) -> None:
        """Add prices of an urgent request by bin and workload, (bins, workloads), and of one that can wait."""
        price = np.maximum(u, v)  # machines in a bin do what pays best
        best = np.stack(
            [(price[b][:, None] * self.rates).max(axis=2) for b in range(BINS)], axis=-1
        )  # replications, groups, months, bins
        worth = np.einsum("rgmb,rmb->rmg", best, self.hours)
        asked = np.einsum("rmbw,rmb,bw->rm", self.urgent, self.hours, u) + self.waiting @ v
        bound = np.divide(
            worth,
            asked[:, :, None],
            out=np.full_like(worth, _MOST_SCALE),
            where=asked[:, :, None] > 1e-12,
        )
        kept = (
            self.bounds
            if len(self.bounds) < _MOST_PRICES
            else np.delete(self.bounds, BINS + 1, axis=0)
        )
        self.bounds = np.concatenate([kept, bound[None]])

    def scales(self, fleet: Floats) -> Floats:
        """Return the bound on λ that each set of prices gives, shape (prices, replications, months)."""
        return np.where(self._unasked, _MOST_SCALE, np.einsum("krmg,rmg->krm", self.bounds, fleet))

    def log_loads(self, fleet: Floats) -> tuple[Floats, Ints]:
        """Return log λ of each replication and the month that decides it."""
        scale = self.scales(fleet).min(axis=0)
        months = scale.argmin(axis=1)
        return np.log(
            np.clip(scale[np.arange(months.size), months], np.exp(_LEAST_LOG), _MOST_SCALE)
        ), months

    def learn(self, counts: Counts) -> None:
        """Add the prices of the months that decide a policy's λ, as long as bounds are loose there."""
        fleet = self.fleet(counts)
        for _ in range(4):
            logs, months = self.log_loads(fleet)
            order = np.argsort(logs, kind="stable")
            picked = order[
                np.unique(np.linspace(0, order.size // 2, min(_LEARNT, order.size)).astype(int))
            ]
            loose = 0
            for r in picked.tolist():
                solved = self._solve(r, int(months[r]), fleet[r, months[r]])
                if (
                    solved is not None
                    and np.log(max(solved[0], np.exp(_LEAST_LOG))) < logs[r] - _LOOSE
                ):
                    self._add_prices(*solved[1:])
                    loose += 1
            if not loose:
                break

    def _solve(self, r: int, month: int, fleet: Floats) -> tuple[float, Floats, Floats] | None:
        """Return λ of one month, and the prices of requests that prove it; None without demand."""
        groups = self.groups
        loads = self.urgent.shape[3]
        rate = self.rates[r, :, :, month]
        hours = self.hours[r, month]
        urgent = self.urgent[r, month] * hours[:, None]
        waiting = self.waiting[r, month]
        total = urgent.sum() + waiting.sum()
        if total <= 0:
            return None
        g, w, b = (
            axis.ravel()
            for axis in np.meshgrid(
                np.arange(groups), np.arange(loads), np.arange(BINS), indexing="ij"
            )
        )
        y = np.arange(g.size)
        is_late = waiting > 0
        # Rows: each bin and workload, each workload that waits, each group and bin; the last column is λ.
        served = b * loads + w
        rows = np.concatenate(
            [np.where(is_late[w], BINS * loads + w, served), BINS * loads + loads + g * BINS + b]
        )
        values = np.concatenate([-rate[g, w], np.ones(y.size)])
        asked = np.concatenate([urgent.ravel(), waiting])
        rows = np.concatenate([rows, np.arange(asked.size)])
        columns = np.concatenate([y, y, np.full(asked.size, y.size)])
        matrix = coo_array(
            (np.concatenate([values, asked]), (rows, columns)),
            shape=(asked.size + groups * BINS, y.size + 1),
        )
        limits = np.concatenate(
            [np.zeros(asked.size), np.maximum(fleet[:, None] * hours, 0.0).ravel()]
        )
        cost = np.zeros(y.size + 1)
        cost[-1] = -1.0
        solution = linprog(
            cost, A_ub=matrix.toarray(), b_ub=limits, bounds=(0, None), method="highs"
        )
        if solution.status != 0:
            return None
        assert solution.x is not None
        prices = -np.asarray(solution.ineqlin.marginals)[: asked.size]
        u = prices[: BINS * loads].reshape(BINS, loads)
        v = prices[BINS * loads :]
        return float(solution.x[-1]), np.where(is_late, 0.0, u), np.where(is_late, v, 0.0)

    # Probability

    def _features(self, values: Floats, chosen: Sequence[tuple[int, int]]) -> Floats:
        """Return a constant, and products of standardised inputs, shape (rows, features)."""
        columns = [np.ones(len(values))]
        columns += [values[:, i] * (values[:, j] if j >= 0 else 1.0) for i, j in chosen]
        return np.stack(columns, axis=1)

    def _regressed(self, logs: Floats) -> Regression:
        """Choose the inputs that explain log λ, one after another, and then their squares and products."""
        usable = ~self.hopeless & (logs > _LEAST_LOG)
        surveyed, drawn = self._standardised()
        chosen: list[tuple[int, int]] = []
        options = [(i, -1) for i in range(surveyed.shape[1])]
        most = max(0, int(usable.sum()) // _PER_FEATURE)
        left = logs[usable] - logs[usable].mean() if usable.any() else logs[usable]
        while len(chosen) < most and left.size and (variance := left.var()) > 1e-10:
            inputs = {i for i, _ in chosen}
            options += [(i, j) for i in inputs for j in inputs if i <= j and (i, j) not in options]
            best = None
            gain = 2.0 * np.log(left.size) / left.size
            for option in options:
                if option in chosen:
                    continue
                features = self._features(surveyed[usable], [*chosen, option])
                residual = (
                    logs[usable] - features @ np.linalg.lstsq(features, logs[usable], rcond=None)[0]
                )
                explained = np.log(variance / max(residual.var(), 1e-12))
                if explained > gain:
                    best = option
                    gain = explained
                    after = residual
            if best is None:
                break
            chosen.append(best)
            left = after
        features = self._features(surveyed, chosen)
        inverse = np.zeros((features.shape[1], len(logs)))
        if usable.any():
            inverse[:, usable] = np.linalg.pinv(features[usable])
        return Regression(inverse, features, self._features(drawn, chosen), tuple(chosen))

    def _standardised(self) -> tuple[Floats, Floats]:
        values = self.trial.drawn(0, max(DRAWS, len(self.surveys)))
        values = np.where(
            values.min(axis=0, initial=np.inf) > 0, np.log(np.maximum(values, 1e-300)), values
        )
        spread = values.std(axis=0)
        values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return values[: len(self.surveys)], values

    def refit(self, counts: Counts) -> None:
        """Learn prices at a policy, and choose anew the inputs that explain its log λ."""
        self.learn(counts)
        fleet = self.fleet(counts)
        logs, months = self.log_loads(fleet)
        which = self.scales(fleet).argmin(axis=0)
        rows = np.arange(months.size)
        self.worth = self.bounds[which[rows, months], rows, months].mean(axis=0)
        self.regression = self._regressed(logs)

    def with_known(self, inputs: Sequence[int]) -> Surrogate:
        """Return the surrogate for the case that some inputs are known to be at their means."""
        other = copy.copy(self)
        fit = self.regression
        moves = np.array([False, *(i in inputs or j in inputs for i, j in fit.chosen)])
        other.regression = dataclasses.replace(fit, drawn=np.where(moves, 0.0, fit.drawn))
        return other

    def predicted_logs(self, fleet: Floats) -> tuple[Floats, Floats, float]:
        """Return log λ in each survey, the regression's over the draws, and its residual spread."""
        logs, _ = self.log_loads(fleet)
        fit = self.regression
        coefficients = fit.inverse @ logs
        usable = ~self.hopeless & (logs > _LEAST_LOG)
        residual = (logs - fit.surveyed @ coefficients)[usable]
        spare = max(residual.size - coefficients.size, 1)
        return logs, fit.drawn @ coefficients, float(np.sqrt((residual**2).sum() / spare))

    def probability_of(self, fleet: Floats) -> float:
        """Return the probability that a fleet meets the SLO target."""
        return float(np.clip(self._expected(fleet).mean() + self.bias.value, 0.0, 1.0))

    def _expected(self, fleet: Floats) -> Floats:
        """Return the probability that a fleet meets the SLO target in each draw, shape (draws,)."""
        _, drawn, spread = self.predicted_logs(fleet)
        log, own_spread = self.threshold
        return np.asarray(self.fixable * ndtr((drawn[:DRAWS] - log) / np.hypot(spread, own_spread)))

    def calibrate(self, known: Sequence[tuple[Run, SizingOutcome]], near: Counts) -> None:
        """Fit threshold and spread to runs, those of policies like ``near`` weighing most; and the unfixable share."""
        attainment = self.trial.attainment
        by_replication = {
            r: bool(self._past_mending(outcome.ceilings)) for (_, r), outcome in known
        }
        by_replication |= dict(enumerate(self.hopeless.tolist()))
        if not self._is_drawn:
            self.fixable[:] = 1.0 - np.mean([*by_replication.values()])
        mix = self._mix(near)
        rows: list[tuple[float, float, float, bool]] = []
        fresh: list[tuple[Counts, int, float, bool]] = []
        predicted: dict[Counts, tuple[Floats, Floats, float]] = {}
        alike: dict[Counts, float] = {}
        for (counts, r), outcome in known:
            if counts not in predicted:
                predicted[counts] = self.predicted_logs(self.fleet(counts))
                alike[counts] = float(np.exp(-np.abs(self._mix(counts) - mix).sum() / _ALIKE))
            logs, drawn, spread = predicted[counts]
            is_surveyed = r < logs.size
            weight = alike[counts]
            is_met = outcome.meets(attainment)
            if not is_surveyed:
                fresh.append((counts, r, weight, is_met))
            if by_replication[r] or not np.isfinite(outcome.cost):
                continue
            log = logs[r] if is_surveyed else drawn[r] if r < drawn.size else np.nan
            rows.append((log, 0.0 if is_surveyed else spread, weight, is_met))
        rows = [row for row in rows if np.isfinite(row[0])]
        if not rows:
            return
        logs_of, spread_of, weights, met = (
            np.array(part, dtype=np.float64) for part in zip(*rows, strict=True)
        )
        sign = np.where(met > 0, 1.0, -1.0)
        best = (-np.inf, Threshold())
        for spread in _SPREADS:
            total = np.hypot(spread, spread_of)
            z = sign * (logs_of - _THRESHOLDS[:, None]) / total
            # A small share of runs goes otherwise for reasons that λ knows nothing of.
            fit = (weights * np.logaddexp(log_ndtr(z), np.log(0.002))).sum(axis=1) - 0.5 * (
                _THRESHOLDS / _PRIOR
            ) ** 2
            at = int(fit.argmax())
            if fit[at] > best[0] + 1e-9:
                best = float(fit[at]), Threshold(float(_THRESHOLDS[at]), float(spread))
        self.threshold = best[1]
        self._correct(fresh)
        self._count_overflow(known, alike)

    def _count_overflow(
        self, known: Sequence[tuple[Run, SizingOutcome]], alike: Mapping[Counts, float]
    ) -> None:
        """Fit to runs how full machines are before work overflows, and the line from predicted to simulated cost.

        Its slope is drawn to what is expected of it.
        """
        runs = [
            (run, seen)
            for run, seen in known
            if run[1] < len(self.surveys) and np.isfinite(seen.cost)
        ]
        if not self.trades or not runs:
            return
        weight = np.array([alike[counts] for (counts, _), _ in runs])
        seen = np.array([outcome.overflow_usd for _, outcome in runs])
        weight /= weight.sum()
        y = seen - weight @ seen
        fits = []
        self.overflow_line = (0.0, 1.0)
        for full in _FULL:
            self.full = float(full)
            usd = {counts: self.overflow_usd(self.fleet(counts)) for counts in alike}
            predicted = np.array([usd[counts][r] for (counts, r), _ in runs])
            x = predicted - weight @ predicted
            pull = _PULL * float(weight @ predicted) ** 2 + 1e-9
            slope = (float(weight @ (x * y)) + pull * self._slope) / (float(weight @ x**2) + pull)
            least = max(0.0, float(weight @ (seen - slope * predicted)))
            off = (
                float(weight @ (seen - least - slope * predicted) ** 2)
                + pull * (slope - self._slope) ** 2
            )
            off += 1e-3 * pull * (full - _FULL.mean()) ** 2  # where runs say nothing of it
            fits.append((off, self.full, (least, max(slope, 0.0))))
        _, self.full, self.overflow_line = min(fits)

    def _correct(self, fresh: Sequence[tuple[Counts, int, float, bool]]) -> None:
        """Set the bias of the probability: what fresh runs show beyond what was expected of their replications."""
        expected = {counts: self._expected(self.fleet(counts)) for counts, *_ in fresh}
        seen = [(w, met - expected[counts][r]) for counts, r, w, met in fresh if r < DRAWS]
        if seen:
            weight, beyond = np.array(seen).T
            total = weight.sum()
            mean = float(weight @ beyond / total)
            error = float(np.sqrt(weight**2 @ (beyond - mean) ** 2) / total)
            kept = total / (total + _PRIOR_RUNS)
            self.bias = IntervalEstimate(
                value=kept * mean, half_width=1.96 * error, completed=len(seen)
            )

    @property
    def unfixable(self) -> float:
        """Share of replications that miss the SLO target whatever is bought."""
        return 1.0 - float(self.fixable.mean())

    def _mix(self, counts: Counts) -> Floats:
        """Return the share of each group in a policy's fleet, shape (groups,)."""
        fleet = self.fleet(counts).mean(axis=(0, 1))
        return np.asarray(fleet / max(fleet.sum(), 1e-9))

    # Cost

    def _prices(self, leaving: Sequence[Sequence[Sequence[Survey]]]) -> None:
        """Set the mean cost of a node of every cluster, and what each day of retirement adds to it."""
        self.node_usd = mean_of(self.surveys, self.weights, "node_usd")
        self.left_usd = []
        """By retirement and day, what leaving then adds to a node's cost, shape (clusters,)."""
        for days in leaving:
            few = len(days[0])
            before = mean_of(self.surveys[:few], self.weights[:few], "node_usd")
            self.left_usd.append(
                [mean_of(day, self.weights[:few], "node_usd") - before for day in days]
            )
        self.busy_usd = mean_of(self.surveys, self.weights, "busy_usd")
        self.weight = float(np.mean(self.weights))

    def overflow_usd(self, fleet: Floats) -> Floats:
        """Return the present cost of what own machines do not serve, by replication: misses and what APIs charge.

        Work is in hours of the fastest node. Of a bin's, 1 − f·machines / work is overflow, f being how full machines
        are then; of work that can wait, what bins leave no room for.
        """
        if not self.trades:
            return np.zeros(len(self.surveys))
        owned = slice(self.group_clusters.size)
        speed = (self.rates[:, owned] / np.maximum(self._fastest[:, None, :, None], 1e-9)).max(
            axis=2
        )
        machines = (
            self.full * np.einsum("rgm,rmg->rm", speed, fleet[:, :, owned])[:, :, None] * self.hours
        )
        work = np.einsum("rmbw,rw->rmb", self._requests, 1.0 / np.maximum(self._fastest, 1e-9))
        spare = np.maximum(machines - work[:, :, :BINS], 0.0).sum(axis=2, keepdims=True)
        served = np.concatenate([machines, spare], axis=2) / np.maximum(work, 1e-9)
        over = np.einsum(
            "rmb,rmbw,rmw->rm", np.clip(1.0 - served, 0.0, 1.0), self._requests, self._overflow_usd
        )
        least, slope = self.overflow_line
        return np.asarray(least + slope * (over @ running_factors(self.choices.plan)))

    def cost_of(self, counts: Counts, fleet: Floats, nodes: Floats) -> float:
        """Return the mean cost of a policy, as the objective counts it."""
        choices, plan = self.choices, self.choices.plan
        usd = self.node_usd
        for of_days, day in zip(self.left_usd, counts[choices.days], strict=True):
            usd = usd + of_days[day - 1] if day else usd
        numbers = self._standing_nodes.copy()
        numbers[self.column] = nodes.mean(axis=0)
        cost = float(usd @ numbers) + self._discounts(numbers[self.column])
        there = numbers[:, None] * self._mean_present * self._stays(counts)
        cost += self.weight * staffed_usd(plan, there) + self._work_usd(fleet)
        if self._rent_place >= 0 and any(counts[choices.rent]):
            cost += self._rent_usd(fleet)
        return cost + float(self.overflow_usd(fleet).mean())

    def _discounts(self, nodes: Floats) -> float:
        """Return what volume discounts that a purchase does not reach add to its cost."""
        choices = self.choices
        more = 0.0
        reference = choices.reference()
        for place in self._tiered:
            if nodes[place] > 0:
                paid, of_reference = (
                    choices.accelerators_usd(place, n)
                    for n in (int(np.ceil(nodes[place])), reference[place])
                )
                price = sum(choices.node_prices_usd(place, reference[place]))
                share = self.node_usd[self.column[place]] / price if price else 1.0
                more += nodes[place] * (paid - of_reference) * min(share, 1.0)
        return more

    def _work_usd(self, fleet: Floats) -> float:
        """Return the mean cost of energy of hours at work and rent of hours held: machines paid anyway work first."""
        few = min(8, fleet.shape[0])
        owned = slice(self.group_clusters.size)
        hours = self.hours[:few].sum(axis=2)
        fleet = fleet[:few, :, owned]
        rates = self.rates[:few, owned]
        clusters = self.choices.plan.clusters
        groups_hourly = np.array(
            [clusters[c].is_paid_by_the_hour for c in self.group_clusters.tolist()]
        )
        total = np.maximum(fleet.sum(axis=2), 1e-9)
        rate = np.einsum("rmg,rgwm->rmw", fleet / total[:, :, None], rates)
        with np.errstate(divide="ignore", invalid="ignore"):
            need = np.where(
                self.urgent[:few] > 0, self.urgent[:few] / rate[:, :, None, :], 0.0
            ).sum(axis=3)
            later = (
                np.where(self.waiting[:few] > 0, self.waiting[:few] / rate, 0.0).sum(axis=2) / hours
            )
        need = np.nan_to_num(need, posinf=0.0)
        later = np.nan_to_num(later, posinf=0.0)
        paid = fleet[:, :, ~groups_hourly].sum(axis=2)
        first = np.minimum(need, paid[:, :, None])
        share = self.hours[:few] / hours[:, :, None]
        done = (first * share).sum(axis=2)
        busy_paid = np.minimum(done + later, paid)
        beyond = np.append(
            need - first, np.zeros((*need.shape[:2], 1)), axis=2
        )  # busiest hours first
        held_share = np.minimum(_HELD * share.cumsum(axis=2), 1.0)
        over = (-np.diff(beyond, axis=2) * held_share).sum(axis=2) + np.maximum(
            done + later - paid, 0.0
        )
        busy_hourly = np.minimum(over, fleet[:, :, groups_hourly].sum(axis=2))
        busy_usd = self.busy_usd[self.group_clusters].T  # months, groups
        cost = 0.0
        for busy, which in ((busy_paid, ~groups_hourly), (busy_hourly, groups_hourly)):
            if which.any():
                some = fleet[:, :, which]
                mixed = some / np.maximum(some.sum(axis=2, keepdims=True), 1e-9)
                cost += float(
                    ((mixed * busy_usd[:, which]).sum(axis=2) * busy * hours).sum(axis=1).mean()
                )
        return cost

    def _rent_usd(self, fleet: Floats) -> float:
        """Return the mean cost of overflow rent: of accelerators held in the days in which machines are short."""
        plan = self.choices.plan
        place = self._rent_place
        burst = self.choices.plan.money.market.burst
        assert burst is not None
        machines = np.einsum("rmg,rgwm->rmw", fleet[:, :, :place], self.rates[:, :place])
        with np.errstate(divide="ignore", invalid="ignore"):
            load = np.where(self.urgent > 0, self.urgent / machines[:, :, None], 0.0).sum(axis=3)
            beyond = (
                np.maximum(load - 1.0, 0.0)[..., None]
                / np.maximum(load, 1e-9)[..., None]
                * self.urgent
            )
            wanted = np.nan_to_num(
                beyond / self.rates[:, place].transpose(0, 2, 1)[:, :, None], posinf=0.0
            ).sum(axis=3)
        taken = np.minimum(wanted, fleet[:, :, place][:, :, None])
        held_h = np.minimum(_HELD * self.hours, self.hours.sum(axis=2, keepdims=True) / BINS)
        usd = (
            (taken * held_h).sum(axis=2)
            * burst.hourly.usd_per_accelerator_h
            * running_factors(plan)
        )
        return float(usd.sum(axis=1).mean()) * self.weight
