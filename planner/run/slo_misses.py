"""Why requests were not in time, and what would mend it.

**Causes.** A run's hours are evaluated again with one cause after another taken away. Each rung of the ladder takes one
cause more away than the one before, in the order of :data:`REASONS`, and what is missed less is lost to that cause:

1. the power cap: no limit on what the site draws, and no idle node parked;
2. outages: every machine on site in service, the site never dark;
3. incidents: software as fast as without those that are open;
4. bursts: each hour's requests come evenly;
5. no capacity: whatever exceeds what nodes sustain at the objective is served as late as at it, and nothing is shed;
6. queueing: every replica idle when a request comes;
7. a prompt too long for its objective: what is left, late on an idle replica.

The order goes from what happens to a fleet to what is asked of it, so that a cause is charged for what it costs the
plan as it stands. No rung may miss more than the one before (work that moves between clusters can): the parts are none
of them negative, and sum to all that was missed.

**Remedies.** What a cause took is given back by as much as it took: the nodes that were out of service, those that slow
software was worth, the power by which the site would have passed its cap. What lacked capacity is carried by nodes for
the work that found none, that of workloads which are served before included. What bursts and queues take falls with the
load, and is halved by the nodes that bring it to where half as much is late. The remedies of the worst losses are
tried: the scenario is changed, compiled, and the run's hours are evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.engine.hourly import WindowInput, WindowResult, rent_by_hour
from planner.engine.window import Missed, evaluate_window, missed_under
from planner.errors import ScenarioError
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.build import build_plan
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan, full_load_kw, load_grid
from planner.plan.sizes import sizes_by_hour
from planner.run.simulate import RunResult, per_run
from planner.scenario.scenario import Scenario
from planner.units import rounded_up

REASONS: Mapping[str, str] = {
    "power_cap": "the power cap or parked nodes",
    "outage": "outages",
    "incident": "software incidents",
    "bursts": "bursts within the hour",
    "no_capacity": "no capacity",
    "queueing": "queueing",
    "too_long": "prompts too long for the objective",
}
"""What takes requests, from the first rung to the last, in words."""
LEAST_NAMED = 1e-5
"""Share of a workload's requests below which nothing is named."""
CAPACITY_CELL = int(LOAD_CELLS / MOST_LOAD)
"""Cell of the tables by load at which it is what nodes sustain at the objective."""
_ONE_AT_LEAST = 1e-3  # requests of a month or an hour: less than that is no request, but rounding
_HALVED = ("bursts", "queueing", "too_long")
"""What a remedy is said to halve; the rest it is said to carry."""
_CARRIED = 0.9  # of what a cause took: nodes come whole, and some of what they carry is late
_NEARLY = 0.9  # of what is said: the same hours, and not those of another run
_SPREADING = "routing: proportional, on what idles"
SPREAD = f"{_SPREADING}, would halve it"
"""What mends queues where more nodes do not."""
_TIMES = (1.0, 1.5, 2.0)  # what was worked out for a remedy, and what is tried where it is too little


class Remedy(NamedTuple):
    """What would mend a loss, month by month."""

    amount: Floats
    """How much of it, shape (months,); NaN where nothing stated would."""
    words: tuple[str, ...]
    """What of, in words, by month."""
    of: str
    """What kind of thing: nodes, kw or ttft_s."""
    cluster: Ints | None = None
    """Whose nodes, by month; None where it is no nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What each cause took; arrays of shape (reasons, months, workloads)."""

    fraction: Floats
    """Of the month's settled requests; over reasons they sum to 1 − the share in time."""
    requests: Floats
    mend_amount: Floats
    """How much would mend it, NaN where nothing stated would."""
    mends: tuple[tuple[Remedy, ...], ...]
    """What of, by reason and workload."""


@per_run
def lost_requests(result: RunResult) -> Lost:
    """Return what each cause took of a run's requests."""
    plan, rungs = result.plan, _rungs(result)
    missed = np.stack([_missed_by_month(result, late_and_shed) for late_and_shed in rungs])
    missed[4:] = np.where(_outgrown(plan), missed[3], missed[4:])  # missed since no batch meets the objective
    missed = np.minimum.accumulate(missed, axis=0)
    requests = np.append(missed[:-1] - missed[1:], missed[-1:], axis=0)
    hourly = [late + shed for late, shed in rungs]
    power = _power_remedy(result, hourly, requests)
    by_workload = [_Remedies(result, w).by_reason(hourly, requests, power) for w in range(len(plan.workloads))]
    return Lost(
        fraction=np.nan_to_num(ratio(requests, result.settled_requests())),
        requests=requests,
        mend_amount=np.moveaxis(np.array([[mend.amount for mend in mends] for mends in by_workload]), 0, -1),
        mends=tuple(zip(*by_workload, strict=True)),
    )


def _rungs(result: RunResult) -> list[Floats]:
    """Return what the run missed, and what with one cause more taken away each time.

    Requests late and shed, shape (2, workloads, hours) each.
    """
    plan, inputs, machines = result.plan, result.run.inputs, result.run.node_hours
    rungs = [_late_and_shed(result.run.windows)]
    if plan.site.cap_kw is None and plan.site.parking is None:
        rungs += rungs
    else:
        plan = _without_cap(plan)
        rungs += _missed(plan, inputs, [_as_it_is])
    inputs = tuple(
        replace(given, nodes=nodes.present, lit_fraction=None) for given, nodes in zip(inputs, machines, strict=True)
    )
    is_whole = not any(nodes.failed.any() or nodes.dark.any() for nodes in machines)
    rungs += rungs[-1:] if is_whole else _missed(plan, inputs, [_as_it_is])
    inputs = tuple(replace(given, speed=_speed_without_incidents(given), incidents={}) for given in inputs)
    rungs += _missed(plan, inputs, [_as_it_is, _without_bursts, _up_to_capacity, _idle])
    for rung in rungs[5:]:
        rung[1] = 0.0  # had there been room, it would have been served, late as the rest
    return rungs


def _missed(plan: Plan, inputs: Iterable[WindowInput], changes: Sequence[Callable[[Plan], Plan]]) -> list[Floats]:
    """Return what windows, one after another, miss under each change of the plan's tables."""
    windows: list[Missed] = []
    before: dict[str, Any] = {}
    for given in inputs:
        windows.append(missed_under(plan, replace(given, **before), changes))
        before = {"waiting_requests": windows[-1].waiting_requests, "replicas_before": windows[-1].replicas_after}
    late, shed = (
        np.concatenate([getattr(window, name) for window in windows], axis=-1)
        for name in ("late_requests", "shed_requests")
    )
    return list(np.stack((late, shed), axis=1))


def _evaluated(plan: Plan, inputs: Iterable[WindowInput]) -> list[WindowResult]:
    """Return what windows yield under a plan, each going on from the one before."""
    windows: list[WindowResult] = []
    before: dict[str, Any] = {}
    for given in inputs:
        window = evaluate_window(plan, replace(given, **before))
        before = {
            "waiting_requests": window.waiting_requests,
            "replicas_before": window.replicas_after,
            "awake_before": window.awake_after,
        }
        windows.append(window)
    return windows


def _late_and_shed(windows: Iterable[WindowResult]) -> Floats:
    """Return the requests of windows late and shed, shape (2, workloads, hours)."""
    return np.concatenate([np.stack((window.late_requests, window.shed_requests)) for window in windows], axis=-1)


def _speed_without_incidents(given: WindowInput) -> dict[tuple[int, int], Floats]:
    """Return a window's speeds without what open incidents take of them."""
    speeds = dict(given.speed)
    for pair, slowed in given.incidents.items():
        left = 1.0 - slowed.lost_fraction
        speeds[pair] = speeds[pair].copy()
        slow = speeds[pair][slowed.hours]
        speeds[pair][slowed.hours] = np.divide(slow, left, out=np.ones_like(slow), where=left > 1e-6)
    return speeds


def _as_it_is(plan: Plan) -> Plan:
    return plan


def _without_cap(plan: Plan) -> Plan:
    """Return a plan whose site, and that of the pools that models share clusters in, may draw any power."""
    if (placement := plan.placement) is not None:
        placement = replace(placement, pools=_without_cap(placement.pools))
    return replace(plan, site=replace(plan.site, cap_kw=None), placement=placement)


def _without_bursts(plan: Plan) -> Plan:
    """Return a plan whose requests come evenly within each hour."""
    tables = plan.no_burst_tables
    if tables is None:
        return plan
    return replace(plan, late_tables=tables[0], refused_tables=tables[1], no_burst_tables=None, burst_tables={})


def _up_to_capacity(plan: Plan, last_cell: int = CAPACITY_CELL) -> Plan:
    """Return a plan without bursts in which loads beyond a cell are as late as at it, and nothing is refused."""
    even = _without_bursts(plan)
    late = even.late_tables.copy()
    late[..., last_cell:] = late[..., last_cell, None]
    return replace(even, late_tables=late, refused_tables=np.zeros_like(late))


def _idle(plan: Plan) -> Plan:
    """Return a plan in which every request finds an idle replica."""
    return _up_to_capacity(plan, 0)


def _missed_by_month(result: RunResult, late_and_shed: Floats) -> Floats:
    """Return requests late, or shed and not rented for, shape (months, workloads)."""
    late, shed = late_and_shed
    horizon = replace(result.run.windows[0], first_hour=0, shed_requests=shed)
    rented, _ = rent_by_hour(result.plan, horizon)
    starts = result.plan.month_edges_h[:-1]
    by_month = [np.add.reduceat(requests, starts, axis=-1).T for requests in (late, shed, rented)]
    return quantities.missed_requests(by_month[0], quantities.shed_requests(*by_month[1:]))


def _outgrown(plan: Plan) -> Bools:
    """Say in which months no batch meets a workload's objective on any cluster, shape (months or 1, workloads)."""
    columns = []
    for w, load in enumerate(plan.workloads):
        unserved = np.all(plan.requests_per_node_h[list(load.cluster_order), w] <= 0.0, axis=0)
        columns.append(unserved if load.overdue_share is None else load.overdue_share > 0.0)
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def _power_remedy(result: RunResult, hourly: Sequence[Floats], requests: Floats) -> Remedy:
    """Return the power by which the site would pass its cap without one, in the worst hour in which it took requests.

    Where no cap is stated idle nodes are parked, of which no amount is known.
    """
    plan, months = result.plan, len(result.plan.months.labels)
    cap, amount = plan.site.cap_kw, np.full(months, np.nan)
    if cap is None:
        return Remedy(amount, ("more site.parking.headroom_fraction would carry it",) * months, "kw")
    words = ["kW more of site.power_cap_kw would carry it"] * months
    if requests[0].max(initial=0.0) >= _ONE_AT_LEAST:
        # Cooling is built for what a site may draw, so a site that may draw more has more of it.
        rated_kw = full_load_kw(plan.clusters, plan.hours)
        free = replace(_without_cap(plan), site=replace(plan.site, cap_kw=None, rated_kw=rated_kw))
        drawn = np.concatenate([window.facility_kw for window in _evaluated(free, result.run.inputs)])
        taken = np.maximum(hourly[0] - hourly[1], 0.0).sum(axis=0)
        beyond = np.where(taken > _ONE_AT_LEAST, drawn - cap, 0.0)
        amount = np.maximum.reduceat(beyond, plan.month_edges_h[:-1])
        for m, (first, last) in enumerate(pairwise(plan.month_edges_h.tolist())):
            if cap[first + int(beyond[first:last].argmax())] < cap.max():
                words[m] = "kW less of site.curtailments would carry it"
    return Remedy(amount, tuple(words), "kw")


class _Remedies:
    """What would mend what was missed of one workload, on the machines as it sees them."""

    def __init__(self, result: RunResult, w: int) -> None:
        self.result, self.plan, self.w = result, result.plan, w
        self.months = self.plan.months.hour_periods
        self.order = sorted(self.plan.workloads[w].cluster_order)
        self.present = result.monthly.present_node_h / np.diff(self.plan.month_edges_h)[:, None]
        """Nodes, shape (months, clusters)."""
        months, clusters = self.present.shape
        self.rates = np.broadcast_to(self.plan.requests_per_node_h.T, (months, len(self.plan.workloads), clusters))
        """Requests of a node and hour, shape (months, workloads, clusters)."""
        served = np.zeros((months, clusters))
        served[:, self.order] = self.rates[:, w, self.order]
        self.best = np.where(self.present > 0.0, served, 0.0).argmax(axis=1)
        """By month, the cluster there that serves most of the workload a node; of all where none is there."""
        nowhere = ~np.any((self.present > 0.0) & (served > 0.0), axis=1)
        self.best[nowhere] = served[nowhere].argmax(axis=1)
        most = result.monthly.served_requests[:, :, w]
        self.main = np.where(most.sum(axis=1) > 0.0, most.argmax(axis=1), self.best)
        """By month, the cluster that serves most of it."""

    def by_reason(self, hourly: Sequence[Floats], requests: Floats, power: Remedy) -> list[Remedy]:
        """Return what would mend what each cause took, in the order of the causes.

        ``hourly`` is what was late or shed with one cause more taken away each time, ``requests`` what each took by
        month and workload, ``power`` what would mend what the power cap took.
        """
        w, run = self.w, self.result.run
        taken = [np.maximum(before[w] - after[w], 0.0) for before, after in pairwise(hourly)]
        # Nodes that do what those do not that are down, n·f / (1 − f), of which as many are down; slow software alike.
        down = [
            nodes.failed * nodes.present / np.maximum(nodes.present - nodes.failed, _ONE_AT_LEAST)
            for nodes in run.node_hours
        ]
        slow = []
        for given in run.inputs:
            lost = np.zeros_like(given.nodes)
            for (c, _), slowed in given.incidents.items():
                lost[c, slowed.hours] = np.maximum(lost[c, slowed.hours], slowed.lost_fraction)
            slow.append(given.nodes * lost / np.maximum(1.0 - lost, _ONE_AT_LEAST))
        without, sooner = "but for hours in which the site is dark", "and so would mending incidents sooner"
        mends = [
            power,
            self._nodes(self.main, self._made_up(down, taken[1]), f"{{}} would carry it, {without}"),
            self._nodes(self.main, self._made_up(slow, taken[2]), f"{{}} would carry it, {sooner}"),
            self._nodes(self.main, self._against_bursts(requests[3, :, w]), "{} as headroom would halve it"),
            self._nodes(self.best, self._lacking(hourly), "{} would carry it"),
            self._nodes(self.main, self.against_queues(requests[5:, :, w].sum(axis=0)), "{} would halve it"),
            self._first_token(),
        ]
        return [
            mend._replace(amount=np.where((lost < _ONE_AT_LEAST) | ~(mend.amount > 0.0), np.nan, mend.amount))
            for mend, lost in zip(mends, requests[:, :, w], strict=True)
        ]

    def _nodes(self, cluster: Ints, amount: Floats, words: str) -> Remedy:
        """Return nodes of a cluster by month; where it has none yet, or no more, as nodes there by then."""
        said = []
        for m, c in enumerate(cluster.tolist()):
            name, there = self.plan.clusters[c].name, self.present[m, c] > 0.0
            said.append(words.format(f"more nodes of {name}" if there else f"nodes of {name} in service in that month"))
        return Remedy(amount, tuple(said), "nodes", cluster)

    def _of_month(self, hourly: Floats, taken: Floats) -> Floats:
        """Return the most of an hourly figure in each month, over the hours in which something was taken."""
        return np.maximum.reduceat(np.where(taken > _ONE_AT_LEAST, hourly, 0.0), self.plan.month_edges_h[:-1])

    def _made_up(self, nodes: Sequence[Floats], taken: Floats) -> Floats:
        """Return as many nodes of the main cluster as serve what nodes of all would, in the worst hour of each month.

        ``nodes`` are those of all clusters by window, shape (clusters, hours) each. No more than carry all that comes.
        """
        rates = self.rates[self.months, self.w]  # (hours, clusters)
        rate = np.take_along_axis(rates, self.main[self.months][:, None], axis=1)[:, 0]
        asked = np.concatenate([given.demand_requests[self.w] for given in self.result.run.inputs])
        work = (np.concatenate(nodes, axis=1)[self.order] * rates.T[self.order]).sum(axis=0)
        needed = np.divide(np.minimum(work, asked), rate, out=np.zeros_like(work), where=rate > 0.0)
        return self._of_month(needed, taken)

    def _lacking(self, hourly: Sequence[Floats]) -> Floats:
        """Return the nodes for what finds no room in the worst hour: the workload's own, and what is served before it.

        Of those before it only what the same cluster would take, for they take it first.
        """
        mine = self.plan.workloads[self.w]
        before = [v for v, load in enumerate(self.plan.workloads) if load.priority <= mine.priority]
        rates = np.take_along_axis(self.rates, self.best[:, None, None], axis=2)[self.months, :, 0].T
        lost = np.maximum(hourly[4] - hourly[5], 0.0)
        needed = np.divide(lost, rates, out=np.zeros_like(lost), where=rates > 0.0)
        return self._of_month(needed[before].sum(axis=0), lost[self.w])

    def _to_halve(self, m: int, late: float, table: Floats, idle: float = 0.0) -> float:
        """Return the nodes that halve a late share beyond that of an idle replica; NaN where none do.

        N·(ρ / ρ½ − 1), with ρ the load up to capacity at which the table by load has that share, and ρ½ with half.
        """
        beyond, table = max(late - idle, 0.0), table[: CAPACITY_CELL + 1]
        load, lower = np.interp([idle + beyond, idle + 0.5 * beyond], table, load_grid(CAPACITY_CELL)).tolist()
        if table[0] > idle + 0.5 * beyond or lower <= 0.0:
            return float(np.nan)
        return float(self.present[m, self.main[m]] * (load - lower) / lower)

    def _against_bursts(self, lost: Floats) -> Floats:
        """Return the nodes at whose load bursts take half as much; NaN where no load does."""
        plan, w, demand = self.plan, self.w, self.result.monthly.demand_requests[:, self.w]
        share, even, more = np.nan_to_num(ratio(lost, demand)), _without_bursts(plan), []
        for m, c in enumerate(self.main.tolist()):
            if (by_rate := plan.burst_tables.get((c, w))) is not None:
                added = by_rate.at_rate(float(demand[m] / np.diff(plan.month_edges_h)[m])).sum(axis=0)
            else:
                bursty, calm = (of.late_tables[c, w] + of.refused_tables[c, w] for of in (plan, even))
                added = bursty - calm
            more.append(self._to_halve(m, share[m], np.maximum.accumulate(added)))
        return np.array(more)

    def against_queues(self, late: Floats) -> Floats:
        """Return the nodes that halve what queues; ``late`` is that, and what is late on an idle replica."""
        share = np.nan_to_num(ratio(late, self.result.monthly.demand_requests[:, self.w]))
        tables = _without_bursts(self.plan).late_tables[self.main, self.w]
        return np.array([self._to_halve(m, share[m], table, table[0]) for m, table in enumerate(tables)])

    def _first_token(self) -> Remedy:
        """Return the first-token objective that halves what is too long for it, on the cluster that has most of that.

        It is no less than what is stated: a stricter one would halve nothing.
        """
        plan, w = self.plan, self.w
        too_long = self.result.monthly.served_requests[:, :, w] * _without_bursts(plan).late_tables[:, w, 0]
        slowest = np.where(too_long.sum(axis=1) > 0.0, too_long.argmax(axis=1), self.main).tolist()
        stated = self.result.scenario.workloads[plan.workloads[w].name].slo.ttft_s
        halves = [np.nan if plan.alone_s is None else rounded_up(float(plan.alone_s[c, w]), 3) for c in slowest]
        words = tuple(f"s as its slo.ttft_s would halve it on {plan.clusters[c].name}" for c in slowest)
        return Remedy(np.where(np.array(halves) > stated, halves, np.nan), words, "ttft_s")


def worst_reasons(result: RunResult, most: int = 3) -> list[dict[str, str | float | None]]:
    """Return what takes the largest shares of a workload's requests over the run, and what would mend its worst month.

    Nothing is named that takes less than one request in a hundred thousand.
    """
    lost, plan = lost_requests(result), result.plan
    share = np.nan_to_num(ratio(lost.requests.sum(axis=1), result.settled_requests().sum(axis=0)))
    reasons: list[dict[str, str | float | None]] = []
    for place in np.argsort(-share, axis=None, kind="stable")[:most].tolist():
        r, w = (int(index) for index in np.unravel_index(place, share.shape))
        month, name = int(lost.fraction[r, :, w].argmax()), [*REASONS][r]
        if share[r, w] < LEAST_NAMED:
            break  # those that follow take less
        amount, words = _enough(result, lost, r, month, w), lost.mends[r][w].words[month]
        if name == "queueing":
            less = result.missed_requests()[:, w].sum() - _missed_where_spread(result)[w]
            if less >= _NEARLY * 0.5 * lost.requests[r, :, w].sum():
                words = SPREAD if amount is None else f"{words}, and so would {_SPREADING}"
        reasons.append(
            {
                "workload": plan.workloads[w].name,
                "reason": name,
                "lost_fraction": float(share[r, w]),
                "worst_month": plan.months.labels[month],
                "worst_lost_fraction": float(lost.fraction[r, month, w]),
                "mend_amount": amount,
                "mend": words,
            }
        )
    return reasons


def _enough(result: RunResult, lost: Lost, r: int, month: int, w: int) -> float | None:
    """Return how much mends what a cause took of a workload's month; None where nothing that was tried does.

    The plan is compiled and its hours are evaluated again with it: as much less must be missed as is said to be given
    back. Whoever shares machines may have to leave to others what was added for it, work may be routed elsewhere, or
    another layout be chosen: no formula knows all of that.
    """
    remedy = lost.mends[r][w]
    amount = float(remedy.amount[month])
    if not np.isfinite(amount):
        return None
    wanted = _NEARLY * (0.5 if [*REASONS][r] in _HALVED else _CARRIED) * lost.requests[r, month, w]
    for times in _TIMES:
        more = rounded_up(times * amount, 3) if remedy.of == "ttft_s" else float(np.ceil(times * amount))
        missed = _missed_with(result, *_changed(result, remedy, month, w, more))
        if missed is not None and result.missed_requests()[month, w] - missed[month, w] >= wanted:
            return amount if times == 1.0 else more
    return None


@per_run
def _missed_where_spread(result: RunResult) -> Floats:
    """Return requests that a run would miss were work spread evenly, shape (workloads,); all that it can, if it is."""
    missed = None
    if result.plan.preferred_utilisation > 0.0 and len(result.plan.clusters) > 1:
        missed = _missed_with(result, result.scenario.model_copy(update={"routing": "proportional"}), None)
    return np.full(len(result.plan.workloads), np.inf) if missed is None else missed.sum(axis=0)


def _missed_with(result: RunResult, scenario: Scenario, more_nodes: Sequence[Floats] | None) -> Floats | None:
    """Return requests that a run's hours would miss under a changed scenario, shape (months, workloads).

    The scenario is compiled, since layouts, waits and cooling may follow; None where it cannot be. ``more_nodes`` are
    added to those of each window, shape (clusters, hours) each; clusters have the sizes that the other plan knows,
    those of the fewest nodes in each window.
    """
    try:
        plan = build_plan(scenario)
    except ScenarioError:
        return None
    inputs = []
    for number, (given, machines) in enumerate(zip(result.run.inputs, result.run.node_hours, strict=True)):
        nodes, present = given.nodes, machines.present
        if more_nodes is not None:
            lit = 1.0 if given.lit_fraction is None else np.where(plan.on_site[:, None], given.lit_fraction, 1.0)
            nodes, present = nodes + more_nodes[number] * lit, present + more_nodes[number]
        fewest = present.min(axis=1, keepdims=True)
        sizes = tuple(sizes_by_hour(plan, fewest)[:, 0].tolist()) if plan.sizes else ()
        inputs.append(replace(given, nodes=nodes, sizes=sizes))
    return _missed_by_month(result, _late_and_shed(_evaluated(plan, inputs)))


def _changed(
    result: RunResult, remedy: Remedy, month: int, w: int, amount: float
) -> tuple[Scenario, list[Floats] | None]:
    """Return a run's scenario with so much of a remedy for a month and a workload, and the nodes that come with it.

    Nodes are there whenever their cluster has some, and in the scenario too; of a cluster that has none in the month,
    in that month alone.
    """
    plan, scenario = result.plan, result.scenario
    if remedy.of == "ttft_s":
        name = plan.workloads[w].name
        load = scenario.workloads[name]
        load = load.model_copy(update={"slo": load.slo.model_copy(update={"ttft_s": amount})})
        return scenario.model_copy(update={"workloads": {**scenario.workloads, name: load}}), None
    if remedy.cluster is None:
        cap_kw = scenario.site.power_cap_kw
        site = scenario.site.model_copy(update={"power_cap_kw": None if cap_kw is None else cap_kw + amount})
        return scenario.model_copy(update={"site": site}), None
    cluster, periods = int(remedy.cluster[month]), plan.months.hour_periods
    there = [machines.present[cluster] > 0.0 for machines in result.run.node_hours]
    within = [periods[given.hours] == month for given in result.run.inputs]
    if any(np.any(nodes & hours) for nodes, hours in zip(there, within, strict=True)):
        name = plan.clusters[cluster].name
        stated = scenario.clusters[name]
        more = stated.model_copy(update={"nodes": stated.nodes + int(amount)})
        scenario = scenario.model_copy(update={"clusters": {**scenario.clusters, name: more}})
    else:
        there = within
    is_it = np.arange(len(plan.clusters))[:, None] == cluster
    return scenario, [amount * (is_it & nodes) for nodes in there]
