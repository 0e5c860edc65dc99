"""What a policy would serve and cost, worked out from surveys in milliseconds: the surrogate that the search goes by.

*Service.* λ of a replication is the largest factor on its demand that the fleet of every month still serves:

    max λ:  Σ_g rate·y ≥ λ·H·urgent (bin, workload),  Σ_g,b rate·y ≥ λ·waiting (workload),  Σ_w y ≤ H·X (group, bin)

with y node-hours, H hours and X nodes there. By duality any prices u, v of a request give a bound, and the prices that
are best for one month are good for others: a pool of them, learnt where they are loose, gives λ of all months at once.

*Probability.* log λ is regressed on the uncertain inputs over the surveyed replications; the threshold μ and the spread
σ at which the simulation meets the SLO target come from a probit over the runs of the search; p₀ is the share of
replications that miss whatever is bought, where that counts. Then P = (1 − p₀)·mean of Φ((log λ(inputs) − μ) / spread)
over many draws of the inputs. A
count of misses in the same replications would jump with each of them; this does not.

*Cost.* Nodes of each purchase at the mean cost of its survey, discounts and whole people, energy and rent of work.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.special import log_ndtr, ndtr

from planner.arrays import Bools, Floats, Ints
from planner.engine.orders import (
    PowerRoom,
    affordable_order,
    forecast_hour,
    forecast_peak,
    order_room,
    order_up_to,
)
from planner.finance.accounting.measures import running_factors
from planner.plan.attainment import LEAST_SHORTFALL
from planner.sizing.archive import Archive
from planner.sizing.choices import due_h
from planner.sizing.evaluate import DRAWS, SEARCH, Judged, Run, SizingOutcome, Trial
from planner.sizing.policy import Policy
from planner.sizing.survey import BINS, Survey, mean_of, staffed_usd
from planner.units import HOURS_PER_YEAR

_LEAVING = 4  # replications in which the cost of a retirement is measured
_LEAST_LOG = -5.0  # log λ of a month in which nothing serves
_MOST_SCALE = 20.0  # λ where next to nothing is asked
_LEARNT = 12  # replications in which prices are learnt at a time
_LOOSE = 0.003  # by how much a bound may be above λ before its prices are added
_HELD = 8.0  # hours for which an instance is held for each in which it is needed, about
_MOST_PRICES = 60
_FAR = 3  # groups in which a fleet may differ from the one that its scales are told from
_PER_FEATURE = 6  # surveyed replications for each input that the regression takes
_THRESHOLDS = np.linspace(-1.0, 1.0, 401)
_SPREADS = np.array([0.01, 0.015, 0.025, 0.04, 0.06, 0.1])
_QUANTILES = (np.arange(256) + 0.5) / 256  # of the draws, in which a block's share is fitted
_LEAST_SHARE = 1e-4  # that a block meets or misses: no more is known of a share of nothing
_ALIKE = 0.3  # difference of fleets' shares at which a run counts for a third
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


def _mean_threshold(log_likelihood: Floats) -> Threshold:
    """Return the mean over all that runs allow, by likelihoods of shape (spreads, thresholds).

    It is not the likeliest: before a miss is seen the threshold may be far lower.
    """
    weighed = log_likelihood - 0.5 * (_THRESHOLDS / _PRIOR) ** 2
    likelihood = np.exp(weighed - weighed.max())
    likelihood /= likelihood.sum()
    mean = float(likelihood.sum(axis=0) @ _THRESHOLDS)
    # How far it is uncertain is left out: what is proposed too low is simulated, and then known.
    variance = float(likelihood.sum(axis=1) @ _SPREADS**2)
    return Threshold(mean, math.sqrt(variance))


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
        self.chances = np.full(len(surveys), 1.0 / len(surveys))
        """Of each surveyed replication, for means of what is paid, shape (replications,)."""
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
            rent_rates = np.stack([s.rent_rates for s in surveys])
            self.rates = np.concatenate([self.rates, rent_rates[:, None]], axis=1)
            per_request = np.divide(
                1.0, rent_rates, out=np.zeros_like(rent_rates), where=rent_rates > 0
            )
            self._rent_need = np.einsum("rmbw,rwm->rmb", self.urgent, per_request)
            """Rented accelerators that would serve all that cannot wait, shape (replications, months, bins)."""
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
        self._staying: dict[tuple[int, ...], Floats] = {}
        self._owning: dict[tuple[tuple[int, ...], float], Bools] = {}
        self._counting: dict[tuple[tuple[int, ...], int, int], tuple[Floats, Floats, Floats]] = {}
        self._first_ordered = [int(self.column[one]) for one in choices.first_of_reactive()]
        self._forecasts: dict[tuple[int, int], Floats] = {}
        self._due_h = np.array([due_h(cluster) for cluster in plan.clusters])
        caps_kw = (choices.choose.it_power_cap_kw, choices.scenario.expansion.it_power_cap_kw)
        self._cap_kw = next((cap for cap in caps_kw if cap is not None), np.inf)
        self._power_rooms = [
            PowerRoom(plan, cluster, self._cap_kw) for cluster in self._first_ordered
        ]
        self._of_rule = [
            np.array([one.cluster == name for one in purchases]) for name in choices.reactive
        ]
        """By rule, which purchases are of the cluster that it orders, shape (purchases,) each."""
        self._tiered = [place for place in range(len(purchases)) if choices.tiers[place]]
        ceilings = np.array([s.ceilings for s in surveys])
        self.hopeless: Bools = self._past_mending(ceilings) & trial.includes_outages
        self.bounds = np.zeros((self.groups, 0, *self.hours.shape[:2]))
        """Of each set of prices: λ per node there, shape (groups, prices, replications, months)."""
        self._base: tuple[Floats, Floats] | None = None
        """A fleet with its scales, from which those of fleets that differ in few groups are soon told."""
        for seed in range(BINS + 1):  # each bin alone, and all hours together with what can wait
            rate = np.maximum(self.rates.max(axis=(0, 1, 3)), 1e-12)
            u = np.where(
                np.arange(BINS)[:, None] == seed, 1.0 / rate, 1.0 / rate if seed == BINS else 0.0
            )
            self._add_prices(u, 1.0 / rate if seed == BINS else 0.0 * rate)
        self._prices(leaving)
        self.threshold = Threshold()
        self._of_runs = np.zeros((_SPREADS.size, _THRESHOLDS.size))
        """Logarithm of the likelihood of the search's runs, at each spread and threshold."""
        self.fixable = float(1.0 - self.hopeless.mean())
        """Share of replications in which any purchase meets the SLO target."""
        self.worth = np.ones(self.groups)
        """What a node of each group is worth where λ is decided, shape (groups,)."""
        self.refit(choices.reference)

    def _past_mending(self, ceilings: Floats) -> Bools:
        return np.asarray((self.trial.attainment - ceilings >= LEAST_SHORTFALL).any(axis=-1))

    # Fleet

    def nodes(self, policy: Policy, until: tuple[datetime.date, int] | None = None) -> Floats:
        """Return the nodes of each purchase in each replication, with orders on a signal, (replications, columns).

        ``until`` leaves out that review, of a date and a rule, and those that follow it.
        """
        choices = self.choices
        nodes = np.tile(np.array(policy.purchases, dtype=np.float64), (len(self.surveys), 1))
        spent_usd = np.zeros(len(self.surveys))
        reviews = list[tuple[datetime.date, int, int]]()
        for place, rule in enumerate(policy.rules):
            windows = choices.windows[place][: rule.reviews] if rule else ()
            reviews += [(choices.purchases[window].date, place, window) for window in windows]
        for date, place, window in sorted(reviews):
            if until is not None and (date, place) >= until:
                break
            nodes[:, window] += self._orders(nodes, spent_usd, policy, place, window)
        return nodes

    def _orders(
        self, nodes: Floats, spent_usd: Floats, policy: Policy, place: int, window: int
    ) -> Floats:
        """Return what one cluster's rule orders at one of its reviews, as :mod:`planner.engine.orders` has it.

        What it costs is added to ``spent_usd`` where there is a budget.
        """
        choices = self.choices
        plan = choices.plan
        rule = policy.rules[place]
        assert rule is not None
        limit = choices.choose.clusters[choices.reactive[place]]
        ahead = choices.forecast_months[place]
        month = self._month(window)
        if (place, month) not in self._forecasts:
            peaks = self.peaks[:, place, :month]
            self._forecasts[place, month] = forecast_peak(peaks, ahead, choices.expected_growth)
        now_h = float(plan.month_edges_h[month])
        first = self._first_ordered[place]
        power = self._power_rooms[place].beside(self._owned(nodes, policy, now_h))
        bought = nodes[:, self._of_rule[place]].sum(axis=1)
        per_order = limit.max_nodes_per_date or np.inf
        room = order_room(limit.max_nodes, per_order, bought, power, rule.step_nodes)
        load = rule.load_percent / 100.0
        forecast = self._forecasts[place, month]
        installed = self._installed(nodes, policy, place, window)
        orders = order_up_to(forecast, installed, load, load, rule.step_nodes, room)
        budget_usd = choices.budget_left_usd(policy)
        if budget_usd is None:
            return np.asarray(orders, dtype=np.float64)
        cluster = plan.clusters[first]
        years = now_h / HOURS_PER_YEAR
        factor = (1.0 + plan.expansion.price_change_per_year) ** years
        for r in np.flatnonzero(orders).tolist():
            rest_usd = budget_usd - spent_usd[r]
            orders[r], prices_usd = affordable_order(
                cluster, int(orders[r]), rule.step_nodes, rest_usd, now_h, factor
            )
            spent_usd[r] += orders[r] * sum(prices_usd)
        return np.asarray(orders, dtype=np.float64)

    def _owned(self, nodes: Floats, policy: Policy, now_h: float) -> Floats:
        """Return the nodes stated or ordered so far that have not left, shape (replications, clusters)."""
        plan = self.choices.plan
        key = (policy.retirements, now_h)
        if key not in self._owning:
            leaves = self.choices.leaves_h(policy)
            leaves_h = [leaves.get(cluster.name, cluster.retire_h) for cluster in plan.clusters]
            self._owning[key] = np.array(leaves_h) > now_h
        owned = np.tile(self._standing_nodes, (len(nodes), 1))
        owned[:, self.column] = nodes
        return np.asarray(owned * self._owning[key])

    def _month(self, place: int) -> int:
        """Return the months that have ended on the day of a purchase."""
        return bisect_left(self.choices.plan.months.edges, self.choices.purchases[place].date)

    def _installed(self, nodes: Floats, policy: Policy, which: int, place: int) -> Floats:
        """Return the nodes installed or on order at a review, in nodes of the rule's cluster, shape (replications,).

        Purchases count that are due as far ahead as the rule looks; what a rule has ordered counts from its order.
        """
        standing, due, later = self._counted(policy.retirements, which, place)
        stated = np.array(policy.purchases, dtype=np.float64)
        return np.asarray(standing + (nodes * due + (nodes - stated) * later).sum(axis=1))

    def _counted(
        self, retirements: tuple[int, ...], which: int, place: int
    ) -> tuple[Floats, Floats, Floats]:
        """Return what counts at a review, in nodes of the rule's cluster: what stands, and a node of each purchase.

        Of shape (replications,), (replications, purchases) where it is due by then, and the same where it is not and
        counts only if a rule has ordered it.
        """
        key = (retirements, which, place)
        if key not in self._counting:
            choices, plan, worth = self.choices, self.choices.plan, self.worths[:, which]
            leaves = choices.leaves_h(
                dataclasses.replace(choices.nothing(), retirements=retirements)
            )
            leaves_h = np.array(
                [leaves.get(cluster.name, cluster.retire_h) for cluster in plan.clusters]
            )
            until_h = forecast_hour(plan, self._month(place), choices.forecast_months[which])
            counted = (self._due_h <= until_h) * (until_h < leaves_h) * worth
            standing = counted[:, self.standing] @ self._standing_nodes[self.standing]
            due = counted[:, self.column]
            self._counting[key] = standing, due, np.where(due == 0.0, worth[:, self.column], 0.0)
        return self._counting[key]

    def installed(self, policy: Policy, which: int, place: int) -> Floats:
        """Return what counts as installed at one review of a rule, in nodes of its cluster, shape (replications,)."""
        nodes = self.nodes(policy, (self.choices.purchases[place].date, which))
        return self._installed(nodes, policy, which, place)

    def _stays(self, policy: Policy) -> Floats:
        """Return whether each cluster stays through each month in a policy, shape (clusters, months)."""
        plan = self.choices.plan
        days = policy.retirements
        if days not in self._staying:
            edges = plan.month_edges_h
            stays = np.ones((len(plan.clusters), self.hours.shape[1]))
            for name, leaves_h in self.choices.leaves_h(policy).items():
                stays[self.choices.place(name)] = leaves_h >= edges[1:]
            self._staying[days] = stays
        return self._staying[days]

    def fleet(self, policy: Policy, nodes: Floats | None = None) -> Floats:
        """Return the nodes of each group that serve in each month, shape (replications, months, groups)."""
        nodes = self.nodes(policy) if nodes is None else nodes
        stays = self._stays(policy)
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
            accelerators = policy.rented_instances * self.choices.instance_accelerators
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
        kept = self.bounds
        if kept.shape[1] >= _MOST_PRICES:
            kept = np.delete(kept, BINS + 1, axis=1)
        by_group = np.moveaxis(bound, -1, 0)
        self.bounds = np.concatenate([kept, by_group[:, None]], axis=1)
        self._base = None

    def scales(self, fleet: Floats) -> Floats:
        """Return the bound on λ that each set of prices gives, shape (prices, replications, months)."""
        return np.where(self._unasked, _MOST_SCALE, self._bounded(fleet))

    def _bounded(self, fleet: Floats) -> Floats:
        """Return the same where something is asked: those of the base, and what groups change that differ from it."""
        more = fleet
        scales = np.zeros(self.bounds.shape[1:])
        if self._base is not None:
            more = fleet - self._base[0]
            scales = self._base[1].copy()
        changed = np.flatnonzero(more.any(axis=(0, 1))).tolist()
        for group in changed:
            scales += self.bounds[group] * more[:, :, group]
        if self._base is None or len(changed) > _FAR:
            self._base = fleet, scales
        return scales

    def log_loads(self, fleet: Floats) -> tuple[Floats, Ints]:
        """Return log λ of each replication and the month that decides it."""
        scale = self.scales(fleet).min(axis=0)
        months = scale.argmin(axis=1)
        return np.log(
            np.clip(scale[np.arange(months.size), months], np.exp(_LEAST_LOG), _MOST_SCALE)
        ), months

    def learn(self, policy: Policy) -> None:
        """Add the prices of the months that decide a policy's λ, as long as bounds are loose there."""
        fleet = self.fleet(policy)
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
        surveyed, drawn = self.standardised
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

    @functools.cached_property
    def standardised(self) -> tuple[Floats, Floats]:
        """The inputs of the surveyed replications and of all draws, by standard deviations above their means."""
        values = self.trial.drawn(SEARCH, 0, max(DRAWS, len(self.surveys)))
        values = np.where(
            values.min(axis=0, initial=np.inf) > 0, np.log(np.maximum(values, 1e-300)), values
        )
        spread = values.std(axis=0)
        values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        return values[: len(self.surveys)], values

    def refit(self, policy: Policy) -> None:
        """Learn prices at a policy, and choose anew the inputs that explain its log λ."""
        self.learn(policy)
        fleet = self.fleet(policy)
        logs, months = self.log_loads(fleet)
        which = self.scales(fleet).argmin(axis=0)
        rows = np.arange(months.size)
        self.worth = self.bounds[:, which[rows, months], rows, months].mean(axis=1)
        self.regression = self._regressed(logs)

    def given(self, place: int, score: float) -> Surrogate:
        """Return the surrogate for the case that one input is so many standard deviations above its mean.

        log λ of every draw follows by the regression. What is ordered and paid follows by its slope on the input over
        the surveyed replications, beside all other inputs: the mean weighs them so that it is that of the case.
        """
        other = copy.copy(self)
        surveyed, drawn = self.standardised
        known = drawn.copy()
        known[:, place] = score
        fit = self.regression
        other.regression = dataclasses.replace(fit, drawn=self._features(known, fit.chosen))
        design = np.column_stack([np.ones(len(surveyed)), surveyed])
        other.chances = self.chances + score * np.linalg.pinv(design)[1 + place]
        other.node_usd, other.busy_usd = other._node_prices()
        return other

    def scores(self, place: int, quantiles: Sequence[float]) -> tuple[Floats, Floats]:
        """Return an input's values at some quantiles, and how many standard deviations above its mean they are."""
        values = self.trial.drawn(SEARCH, 0, DRAWS)[:, place]
        _, drawn = self.standardised
        return np.quantile(values, quantiles), np.quantile(drawn[:, place], quantiles)

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
        """Return the probability that a fleet meets the SLO target, as predicted."""
        logs, drawn, spread = self.predicted_logs(fleet)
        log, own_spread = self.threshold
        met = float(ndtr((drawn - log) / np.hypot(spread, own_spread)).mean())
        return self._share_served(logs) * met

    def _share_served(self, logs: Floats) -> float:
        """Return the share of replications that more nodes may help, and in which every month has some."""
        # Where nothing is there in some month there is no λ to regress: those replications miss.
        return self.fixable * float((logs > _LEAST_LOG)[~self.hopeless].mean())

    def calibrate(self, known: Sequence[tuple[Run, SizingOutcome]], near: Policy) -> None:
        """Fit threshold and spread to runs of the search, those of policies like ``near`` weighing most."""
        mix = self._mix(near)
        logs_of = dict[Policy, Floats]()
        alike = dict[Policy, float]()
        rows = []
        for (policy, r), outcome in known:
            if policy not in logs_of:
                logs_of[policy], _ = self.log_loads(self.fleet(policy))
                alike[policy] = float(np.exp(-np.abs(self._mix(policy) - mix).sum() / _ALIKE))
            if not self.hopeless[r] and np.isfinite(outcome.cost):
                rows.append(
                    (logs_of[policy][r], alike[policy], outcome.meets(self.trial.attainment))
                )
        if not rows:
            return
        logs, weights, met = np.array(rows, dtype=np.float64).T
        sign = np.where(met > 0, 1.0, -1.0)
        fits = []
        for spread in _SPREADS:
            z = sign * (logs - _THRESHOLDS[:, None]) / spread
            # A small share of runs goes otherwise for reasons that λ knows nothing of.
            fits.append((weights * np.logaddexp(log_ndtr(z), np.log(0.002))).sum(axis=1))
        self._of_runs = np.array(fits)
        self.threshold = _mean_threshold(self._of_runs)
        self._count_overflow(known, alike)

    def expect(self, outcomes: Sequence[Judged]) -> None:
        """Fit threshold and spread to whole blocks of policies as well, those like the last weighing most."""
        mix = self._mix(outcomes[-1].policy)
        log_likelihood = self._of_runs.copy()
        for outcome in outcomes:
            alike = float(np.exp(-np.abs(self._mix(outcome.policy) - mix).sum() / _ALIKE))
            logs, drawn, residual = self.predicted_logs(self.fleet(outcome.policy))
            # In quantiles, of which there are fewer than draws.
            points = np.quantile(drawn, _QUANTILES)
            z = (points - _THRESHOLDS[:, None]) / np.hypot(residual, _SPREADS)[:, None, None]
            share = self._share_served(logs) * ndtr(z).mean(axis=2)
            share = np.clip(share, _LEAST_SHARE, 1.0 - _LEAST_SHARE)
            met = outcome.verdict.met
            missed = outcome.verdict.replications - met
            log_likelihood += alike * (met * np.log(share) + missed * np.log(1.0 - share))
        self.threshold = _mean_threshold(log_likelihood)

    def _count_overflow(
        self, known: Sequence[tuple[Run, SizingOutcome]], alike: Mapping[Policy, float]
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
        weight = np.array([alike[policy] for (policy, _), _ in runs])
        seen = np.array([outcome.overflow_usd for _, outcome in runs])
        weight /= weight.sum()
        y = seen - weight @ seen
        fits = []
        self.overflow_line = (0.0, 1.0)
        for full in _FULL:
            self.full = float(full)
            usd = {policy: self.overflow_usd(self.fleet(policy)) for policy in alike}
            predicted = np.array([usd[policy][r] for (policy, r), _ in runs])
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

    def _mix(self, policy: Policy) -> Floats:
        """Return the share of each group in a policy's fleet, shape (groups,)."""
        fleet = self.fleet(policy).mean(axis=(0, 1))
        return np.asarray(fleet / max(fleet.sum(), 1e-9))

    # Cost

    def _prices(self, leaving: Sequence[Sequence[Sequence[Survey]]]) -> None:
        """Set the mean cost of a node of every cluster, and what each day of retirement adds to it."""
        self.node_usd, self.busy_usd = self._node_prices()
        self.left_usd = []
        """By retirement and day, what leaving then adds to a node's cost, shape (clusters,)."""
        for days in leaving:
            few = len(days[0])
            before = mean_of(self.surveys[:few], self.weights[:few], "node_usd")
            self.left_usd.append(
                [mean_of(day, self.weights[:few], "node_usd") - before for day in days]
            )
        self.weight = float(np.mean(self.weights))

    def _node_prices(self) -> tuple[Floats, Floats]:
        """Return the mean cost of a node of every cluster, and of its hours at work."""
        chances = self.chances * np.array(self.weights)
        node_usd = np.array([survey.node_usd for survey in self.surveys])
        busy_usd = np.array([survey.busy_usd for survey in self.surveys])
        return chances @ node_usd, np.einsum("r,rcm->cm", chances, busy_usd)

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

    def cost_of(self, policy: Policy, fleet: Floats, nodes: Floats) -> float:
        """Return the mean cost of a policy, as the objective counts it."""
        plan = self.choices.plan
        usd = self.node_usd
        for of_days, day in zip(self.left_usd, policy.retirements, strict=True):
            usd = usd + of_days[day - 1] if day else usd
        numbers = self._standing_nodes.copy()
        numbers[self.column] = self.chances @ nodes
        cost = float(usd @ numbers) + self._discounts(numbers[self.column])
        there = numbers[:, None] * self._mean_present * self._stays(policy)
        cost += self.weight * staffed_usd(plan, there) + self._work_usd(fleet)
        if self._rent_place >= 0 and policy.rented_instances:
            cost += self._rent_usd(fleet)
        return cost + float(self.overflow_usd(fleet).mean())

    def _discounts(self, nodes: Floats) -> float:
        """Return what volume discounts that a purchase does not reach add to its cost."""
        choices = self.choices
        more = 0.0
        reference = choices.reference.purchases
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
        # Where no machine is there, there is no overflow of it.
        a_request = np.divide(1.0, machines, out=np.zeros_like(machines), where=machines > 0)
        load = np.einsum("rmbw,rmw->rmb", self.urgent, a_request)
        wanted = np.maximum(1.0 - 1.0 / np.maximum(load, 1e-9), 0.0) * self._rent_need
        taken = np.minimum(wanted, fleet[:, :, place][:, :, None])
        held_h = np.minimum(_HELD * self.hours, self.hours.sum(axis=2, keepdims=True) / BINS)
        usd = (
            (taken * held_h).sum(axis=2)
            * burst.hourly.usd_per_accelerator_h
            * running_factors(plan)
        )
        return float(usd.sum(axis=1).mean()) * self.weight


def surveyed(trial: Trial, archive: Archive, replications: int) -> Surrogate:
    """Survey the replications, and the first few with every retirement on each of its days."""
    reference = trial.choices.reference
    surveys = archive.surveys(reference, replications)
    few = min(_LEAVING, replications)
    leaving = []
    for place, retirement in enumerate(trial.choices.retirements):
        days = range(1, 1 + len(retirement.dates))
        leaving.append(
            [archive.surveys(reference.with_retirement(place, day), few) for day in days]
        )
    return Surrogate(trial, surveys, leaving)
