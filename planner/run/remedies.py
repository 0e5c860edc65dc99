"""What would mend the requests that a run missed: how much of what, by cause, month and workload.

What a cause took is given back by as much as it took: the nodes that were out of service, those that slow software was
worth, the power by which the site would have passed its cap. What lacked capacity is carried by nodes for the work that
found none, that of workloads which are served before included. What bursts and queues take falls with the load, and is
halved by the nodes that bring it to where half as much is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import distinct
from planner.engine.hourly import WindowInput, WindowResult
from planner.engine.window import evaluate_window
from planner.errors import ScenarioError
from planner.finance.unit_costs import ratio
from planner.plan.build import build_plan
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan, load_grid
from planner.plan.power import full_load_kw
from planner.plan.sizes import sizes_by_hour
from planner.run.replication import Replication
from planner.scenario.scenario import Scenario
from planner.units import rounded_up

CAPACITY_CELL = int(LOAD_CELLS / MOST_LOAD)
"""Cell of the tables by load at which it is what nodes sustain at the objective."""
_ONE_AT_LEAST = 1e-3  # requests of a month or an hour: less than that is no request, but rounding


class Mend(NamedTuple):
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
class Ladder:
    """What a run missed on its way up the ladder of causes."""

    hourly: Sequence[Floats]
    """Requests late or shed with one cause more taken away each time, shape (workloads, hours) each."""
    requests: Floats
    """What each cause took, shape (reasons, months, workloads)."""


def calm(plan: Plan) -> Plan:
    """Return a plan without bursts."""
    tables = plan.calm_tables
    if tables is None:
        return plan
    return replace(plan, late_tables=tables[0], refused_tables=tables[1], calm_tables=None, burst_tables={})


def without_cap(plan: Plan) -> Plan:
    """Return a plan whose site, and that of the pools that models share clusters in, may draw any power."""
    if (placement := plan.placement) is not None:
        placement = replace(placement, pools=without_cap(placement.pools))
    return replace(plan, site=replace(plan.site, cap_kw=None), placement=placement)


def again(plan: Plan, inputs: Sequence[WindowInput]) -> list[WindowResult]:
    """Return what windows yield under a plan, each going on from the one before."""
    windows: list[WindowResult] = []
    for given in inputs:
        went_on = given
        if windows:
            before = windows[-1]
            went_on = replace(
                given,
                waiting_requests=before.waiting_requests,
                replicas_before=before.replicas_after,
                awake_before=before.awake_after,
            )
        windows.append(evaluate_window(plan, went_on))
    return windows


def with_more(result: Replication, mend: Mend, place: tuple[int, int], amount: float) -> list[WindowResult] | None:
    """Return what a run's windows yield with so much of a mend for a month and a workload; None where it cannot be.

    The plan is compiled with it, since layouts, waits and cooling may follow. Nodes are there whenever their cluster
    has some; of a cluster that has none in the month, in that month.
    """
    month, w = place
    scenario, inputs, present = result.scenario, result.run.inputs, _present(result)
    if mend.of == "nodes":
        assert mend.cluster is not None
        inputs, present, scenario = _with_nodes(result, month, int(mend.cluster[month]), amount)
    elif mend.of == "ttft_s":
        loads, name = scenario.workloads, result.plan.workloads[w].name
        slo = loads[name].slo.model_copy(update={"ttft_s": amount})
        stated = {name: loads[name].model_copy(update={"slo": slo})}
        scenario = scenario.model_copy(update={"workloads": {**loads, **stated}})
    elif scenario.site.power_cap_kw is not None:
        site = scenario.site.model_copy(update={"power_cap_kw": scenario.site.power_cap_kw + amount})
        scenario = scenario.model_copy(update={"site": site})
    try:
        plan = build_plan(scenario)
    except ScenarioError:
        return None
    return again(plan, _resized(plan, inputs, present))


def _present(result: Replication) -> list[Floats]:
    """Return the nodes of a run's clusters, in service or not, by window, shape (clusters, hours) each."""
    return [machines.present for machines in result.run.node_hours]


def _resized(plan: Plan, inputs: Sequence[WindowInput], present: Sequence[Floats]) -> list[WindowInput]:
    """Return windows in which clusters have the sizes that another plan knows: those of the fewest nodes in each."""
    fewest = [nodes.min(axis=1, keepdims=True) for nodes in present]
    which = [tuple(sizes_by_hour(plan, nodes)[:, 0].tolist()) if plan.sizes else () for nodes in fewest]
    return [replace(given, sizes=sizes) for given, sizes in zip(inputs, which, strict=True)]


def _with_nodes(
    result: Replication, month: int, cluster: int, amount: float
) -> tuple[tuple[WindowInput, ...], list[Floats], Scenario]:
    """Return a run's windows with more nodes of a cluster, all nodes in them, and its scenario.

    They are in the scenario too where the cluster has some already.
    """
    plan, scenario, inputs = result.plan, result.scenario, []
    standing = [nodes.copy() for nodes in _present(result)]
    present = [nodes[cluster] > 0.0 for nodes in standing]
    within = [_within(plan, month, given) for given in result.run.inputs]
    if any(there[hours].any() for there, hours in zip(present, within, strict=True)):
        name = plan.clusters[cluster].name
        stated = scenario.clusters[name]
        more = {name: stated.model_copy(update={"nodes": stated.nodes + int(amount)})}
        scenario = scenario.model_copy(update={"clusters": {**scenario.clusters, **more}})
    else:
        present = [
            np.isin(np.arange(there.size), np.arange(there.size)[hours])
            for there, hours in zip(present, within, strict=True)
        ]
    for there, given, machines in zip(present, result.run.inputs, standing, strict=True):
        machines[cluster] += amount * there
        nodes = given.nodes.copy()
        lit = 1.0 if given.lit_fraction is None or plan.clusters[cluster].is_hosted else given.lit_fraction
        nodes[cluster] += amount * there * lit
        inputs.append(replace(given, nodes=nodes))
    return tuple(inputs), standing, scenario


def _within(plan: Plan, month: int, given: WindowInput) -> slice:
    """Return the hours of a window that lie in a month."""
    first, last = np.clip(plan.month_edges_h[month : month + 2] - given.first_hour, 0, given.nodes.shape[1]).tolist()
    return slice(first, last)


def mends_of(result: Replication, ladder: Ladder, power: Mend, w: int) -> list[Mend]:
    """Return what would mend what each cause took of a workload, in the order of the causes.

    ``power`` is what would mend what the power cap took, the same for all of them.
    """
    site = _Site(result, w)
    taken = [np.maximum(before[w] - after[w], 0.0) for before, after in pairwise(ladder.hourly)]
    mends = [
        power,
        site.nodes(
            site.main, site.out_of_service(taken[1]), "{} would carry it, but for hours in which the site is dark"
        ),
        site.nodes(site.main, site.slowed(taken[2]), "{} would carry it, and so would mending incidents sooner"),
        site.nodes(site.main, site.against_bursts(ladder.requests[3, :, w]), "{} as headroom would halve it"),
        site.nodes(site.best, site.lacking(ladder), "{} would carry it"),
        site.nodes(site.main, site.against_queues(ladder.requests[5:, :, w].sum(axis=0)), "{} would halve it"),
        site.first_token(),
    ]
    return [
        mend._replace(amount=np.where((lost < _ONE_AT_LEAST) | ~(mend.amount > 0.0), np.nan, mend.amount))
        for mend, lost in zip(mends, ladder.requests[:, :, w], strict=True)
    ]


class _Site:
    """A run's machines as one workload sees them."""

    def __init__(self, result: Replication, w: int) -> None:
        self.result, self.plan, self.w = result, result.plan, w
        self.hours = np.diff(self.plan.month_edges_h)
        self.months = self.plan.months.hour_periods
        self.order = sorted(self.plan.workloads[w].cluster_order)
        self.present = result.monthly.present_node_h / self.hours[:, None]
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

    def nodes(self, cluster: Ints, amount: Floats, words: str) -> Mend:
        """Return nodes of a cluster by month as a mend; where it has none yet, or no more, as nodes there by then."""
        said = []
        for m, c in enumerate(cluster.tolist()):
            there = self.present[m, c] > 0.0
            name = self.plan.clusters[c].name
            said.append(words.format(f"more nodes of {name}" if there else f"nodes of {name} in service in that month"))
        return Mend(amount, tuple(said), "nodes", cluster)

    def of_month(self, hourly: Floats, taken: Floats) -> Floats:
        """Return the most of an hourly figure in each month, over the hours in which something was taken."""
        return np.maximum.reduceat(np.where(taken > _ONE_AT_LEAST, hourly, 0.0), self.plan.month_edges_h[:-1])

    def as_nodes_of(self, cluster: Ints, nodes: Floats) -> Floats:
        """Return nodes of all clusters, shape (clusters, hours), as nodes of one that serve as much, shape (hours,).

        No more than carry all that comes.
        """
        rates = self.rates[self.months, self.w]  # (hours, clusters)
        rate = np.take_along_axis(rates, cluster[self.months][:, None], axis=1)[:, 0]
        asked = np.concatenate([given.demand_requests[self.w] for given in self.result.run.inputs])
        work = (nodes[self.order] * rates.T[self.order]).sum(axis=0)
        needed: Floats = np.divide(np.minimum(work, asked), rate, out=np.zeros_like(work), where=rate > 0.0)
        return needed

    def out_of_service(self, taken: Floats) -> Floats:
        """Return the nodes that do what those do not that were down: n·f / (1 − f), of which as many are down."""
        parts = []
        for machines in self.result.run.node_hours:
            up = np.maximum(machines.present - machines.failed, _ONE_AT_LEAST)
            parts.append(machines.failed * machines.present / up)
        return self.of_month(self.as_nodes_of(self.main, np.concatenate(parts, axis=1)), taken)

    def slowed(self, taken: Floats) -> Floats:
        """Return the nodes that do what slow software does not: n·l / (1 − l), as slow as the others."""
        parts = []
        for given in self.result.run.inputs:
            lost = np.zeros_like(given.nodes)
            for (c, _), slow in given.incidents.items():
                lost[c, slow.hours] = np.maximum(lost[c, slow.hours], slow.lost_fraction)
            parts.append(given.nodes * lost / np.maximum(1.0 - lost, _ONE_AT_LEAST))
        return self.of_month(self.as_nodes_of(self.main, np.concatenate(parts, axis=1)), taken)

    def lacking(self, ladder: Ladder) -> Floats:
        """Return the nodes for what finds no room in the worst hour: the workload's own, and what is served before it.

        Of those before it only what the same cluster would take, for they take it first.
        """
        plan, mine = self.plan, self.plan.workloads[self.w]
        before = [v for v, load in enumerate(plan.workloads) if load.priority <= mine.priority]
        rates = np.take_along_axis(self.rates, self.best[:, None, None], axis=2)[self.months, :, 0].T
        lost = np.maximum(ladder.hourly[4] - ladder.hourly[5], 0.0)
        needed = np.divide(lost, rates, out=np.zeros_like(lost), where=rates > 0.0)
        return self.of_month(needed[before].sum(axis=0), lost[self.w])

    def against_bursts(self, lost: Floats) -> Floats:
        """Return the nodes at whose load bursts take half as much; NaN where no load does."""
        share = np.nan_to_num(ratio(lost, self.result.monthly.demand_requests[:, self.w]))
        loads, more = load_grid(CAPACITY_CELL), np.full(lost.size, np.nan)
        for m, c in enumerate(self.main.tolist()):
            taken = np.maximum.accumulate(self.added_by_bursts(m, c)[: CAPACITY_CELL + 1])
            at, halved = np.interp([share[m], 0.5 * share[m]], taken, loads)
            if taken[0] <= 0.5 * share[m]:
                more[m] = _to_lower(self.present[m, c], at, halved)
        return more

    def added_by_bursts(self, month: int, c: int) -> Floats:
        """Return the share that bursts of a month's mean rate add to what is missed by load, shape (cells + 1,)."""
        if (by_rate := self.plan.burst_tables.get((c, self.w))) is not None:
            hours = np.diff(self.plan.month_edges_h)[month]
            at_rate = by_rate.at_rate(float(self.result.monthly.demand_requests[month, self.w] / hours))
            return np.asarray(at_rate.sum(axis=0))
        bursty, even = (of.late_tables[c, self.w] + of.refused_tables[c, self.w] for of in (self.plan, calm(self.plan)))
        return np.asarray(bursty - even)

    def against_queues(self, late: Floats) -> Floats:
        """Return the nodes that halve what queues; ``late`` is that, and what is late on an idle replica."""
        more = np.full(late.size, np.nan)
        for c in distinct(self.main).tolist():
            more[self.main == c] = nodes_to_halve(self.result, c, self.w, late)[self.main == c]
        return more

    def first_token(self) -> Mend:
        """Return the first-token objective that halves what is too long for it, on the cluster that has most of that.

        It is no less than what is stated: a stricter one would halve nothing.
        """
        plan, w = self.plan, self.w
        too_long = self.result.monthly.served_requests[:, :, w] * calm(plan).late_tables[:, w, 0]
        slowest = np.where(too_long.sum(axis=1) > 0.0, too_long.argmax(axis=1), self.main)
        stated = self.result.scenario.workloads[plan.workloads[w].name].slo.ttft_s
        halves = [
            np.nan if plan.alone_s is None else rounded_up(float(plan.alone_s[c, w]), 3) for c in slowest.tolist()
        ]
        words = tuple(f"s as its slo.ttft_s would halve it on {plan.clusters[c].name}" for c in slowest.tolist())
        return Mend(np.where(np.array(halves) > stated, halves, np.nan), words, "ttft_s")


def power_mend(result: Replication, ladder: Ladder) -> Mend:
    """Return the power by which the site would pass its cap without one, in the worst hour in which it took requests.

    Where no cap is stated idle nodes are parked, of which no amount is known.
    """
    plan = result.plan
    cap, months = plan.site.cap_kw, len(plan.months.labels)
    none = np.full(months, np.nan)
    if cap is None:
        return Mend(none, ("more site.parking.headroom_fraction would carry it",) * months, "kw")
    words = ["kW more of site.power_cap_kw would carry it"] * months
    if ladder.requests[0].max(initial=0.0) < _ONE_AT_LEAST:
        return Mend(none, tuple(words), "kw")
    # Cooling is built for what a site may draw, so a site that may draw more has more of it.
    rated_kw = full_load_kw(plan.clusters, plan.hours)
    free = replace(without_cap(plan), site=replace(plan.site, cap_kw=None, rated_kw=rated_kw))
    drawn = np.concatenate([window.facility_kw for window in again(free, result.run.inputs)])
    taken = np.maximum(ladder.hourly[0] - ladder.hourly[1], 0.0).sum(axis=0)
    beyond = np.where(taken > _ONE_AT_LEAST, drawn - cap, 0.0)
    starts = plan.month_edges_h[:-1]
    amount = np.maximum.reduceat(beyond, starts)
    for m, (first, last) in enumerate(pairwise(plan.month_edges_h.tolist())):
        if cap[first + int(beyond[first:last].argmax())] < cap.max():
            words[m] = "kW less of site.curtailments would carry it"
    return Mend(amount, tuple(words), "kw")


def nodes_to_halve(result: Replication, cluster: int, w: int, late: Floats) -> Floats:
    """Return the nodes of a cluster that halve what a month has late by queueing, shape (months,)."""
    nodes = result.monthly.present_node_h[:, cluster] / np.diff(result.plan.month_edges_h)
    return _to_lower(nodes, *_loads_to_halve(result, cluster, w, late))


def _to_lower(nodes: Floats, load: Floats, lower: Floats) -> Floats:
    """Return the nodes more that bring a load to a lower one: N·(ρ / ρ½ − 1); NaN where that is none at all."""
    return np.asarray(np.divide(nodes * (load - lower), lower, out=np.full(np.shape(lower), np.nan), where=lower > 0.0))


def _loads_to_halve(result: Replication, cluster: int, w: int, late: Floats) -> tuple[Floats, Floats]:
    """Return ρ, the load up to capacity at which a cluster has a month's late share, and ρ½, with half of it queued."""
    table, loads = calm(result.plan).late_tables[cluster, w, : CAPACITY_CELL + 1], load_grid(CAPACITY_CELL)
    queued = np.maximum(np.nan_to_num(ratio(late, result.monthly.demand_requests[:, w])) - table[0], 0.0)
    return np.interp(table[0] + queued, table, loads), np.interp(table[0] + 0.5 * queued, table, loads)


def spread(result: Replication) -> list[WindowResult] | None:
    """Return what a run's windows yield where work is spread evenly over the clusters; None where it is so already."""
    if result.plan.preferred_utilisation == 0.0 or len(result.plan.clusters) == 1:
        return None
    plan = build_plan(result.scenario.model_copy(update={"routing": "proportional"}))
    return again(plan, _resized(plan, result.run.inputs, _present(result)))
