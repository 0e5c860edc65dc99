"""Why requests were not in time: a run's hours evaluated again with one cause after another taken away.

Each rung of the ladder takes one cause more away than the one before, in the order of :data:`REASONS`, and what is
missed less is lost to that cause:

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Bools, Floats
from planner.finance.unit_costs import ratio
from planner.fleet import quantities
from planner.fleet.hourly import WindowInput
from planner.fleet.plan import LOAD_CELLS, MOST_LOAD, Plan, load_grid
from planner.fleet.rented import rent_by_hour
from planner.fleet.window import Missed, missed_under
from planner.results.kept import per_run
from planner.results.replication import Replication

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
_LEAST_NAMED = 1e-5
_ONE_AT_LEAST = 1e-3  # requests of a month: less than that is no request, but rounding
_CAPACITY_CELL = int(LOAD_CELLS / MOST_LOAD)  # at which the load is what nodes sustain at the objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What each cause took; arrays of shape (reasons, months, workloads)."""

    fraction: Floats
    """Of the month's settled requests; over reasons they sum to 1 − the share in time."""
    requests: Floats
    mend_amount: Floats
    """How much would mend it, NaN where nothing stated would."""
    mends: tuple[tuple[str, ...], ...]
    """What of, in words, by reason and workload."""


@per_run
def lost_requests(result: Replication) -> Lost:
    """Return what each cause took of a run's requests."""
    plan = result.plan
    hourly = _rungs(result)
    missed = np.stack([_missed_by_month(result, late, shed) for late, shed in hourly])
    missed[4:] = np.where(_outgrown(plan), missed[3], missed[4:])  # missed since no batch meets the objective
    missed = np.minimum.accumulate(missed, axis=0)
    requests = np.append(missed[:-1] - missed[1:], missed[-1:], axis=0)
    amount, mends = _mends(result, hourly, requests)
    return Lost(
        fraction=np.nan_to_num(ratio(requests, result.settled_requests())),
        requests=requests,
        mend_amount=amount,
        mends=mends,
    )


Hourly = tuple[Floats, Floats]
"""Requests late and shed, shape (workloads, hours) each."""


def _rungs(result: Replication) -> list[Hourly]:
    """Return what the run missed, and what with one cause more taken away each time."""
    plan, inputs, windows = result.plan, result.run.inputs, result.run.windows
    rungs = [_joined([(window.late_requests, window.shed_requests) for window in windows])]
    if plan.site.cap_kw is None and plan.site.parking is None:
        rungs += rungs
    else:
        plan = _without_cap(plan)
        rungs += _missed(plan, inputs, [_as_it_is])
    machines = result.run.node_hours
    inputs = tuple(
        replace(given, nodes=nodes.present, lit_fraction=None) for given, nodes in zip(inputs, machines, strict=True)
    )
    is_whole = not any(nodes.failed.any() or nodes.dark.any() for nodes in machines)
    rungs += rungs[-1:] if is_whole else _missed(plan, inputs, [_as_it_is])
    inputs = tuple(replace(given, speed=_mended(given), incidents={}) for given in inputs)
    rungs += _missed(plan, inputs, [_as_it_is, _calm, _up_to_capacity, _idle])
    for _, shed in rungs[5:]:
        shed[:] = 0.0  # had there been room, it would have been served, late as the rest
    return rungs


def _missed(plan: Plan, inputs: Iterable[WindowInput], changes: Sequence[Callable[[Plan], Plan]]) -> list[Hourly]:
    """Return what windows, one after another, miss under each change of the plan's tables."""
    windows: list[Missed] = []
    for given in inputs:
        waiting, replicas = given.waiting_requests, given.replicas_before
        if windows:
            waiting, replicas = windows[-1].waiting_requests, windows[-1].replicas_after
        followed = replace(given, waiting_requests=waiting, replicas_before=replicas)
        windows.append(missed_under(plan, followed, changes))
    return [
        _joined([(window.late_requests[number], window.shed_requests[number]) for window in windows])
        for number in range(len(changes))
    ]


def _joined(windows: Sequence[Hourly]) -> Hourly:
    late, shed = (np.concatenate(hours, axis=-1) for hours in zip(*windows, strict=True))
    return late, shed


def _mended(given: WindowInput) -> dict[tuple[int, int], Floats]:
    """Return a window's speeds without what open incidents take of them."""
    speeds = dict(given.speed)
    for pair, slowed in given.incidents.items():
        left = 1.0 - slowed.lost_fraction
        speeds[pair] = speeds[pair].copy()
        slow = speeds[pair][slowed.hours]
        speeds[pair][slowed.hours] = np.divide(slow, left, out=np.ones_like(slow), where=left > 1e-6)
    return speeds


def _without_cap(plan: Plan) -> Plan:
    """Return a plan whose site, and that of the pools that models share clusters in, may draw any power."""
    if (placement := plan.placement) is not None:
        placement = replace(placement, pools=_without_cap(placement.pools))
    return replace(plan, site=replace(plan.site, cap_kw=None), placement=placement)


def _as_it_is(plan: Plan) -> Plan:
    return plan


def _calm(plan: Plan) -> Plan:
    """Return a plan without bursts."""
    calm = plan.calm_tables
    return plan if calm is None else replace(plan, late_tables=calm[0], refused_tables=calm[1])


def _up_to_capacity(plan: Plan, last_cell: int = _CAPACITY_CELL) -> Plan:
    """Return a plan without bursts in which loads beyond a cell are as late as at it, and nothing is refused."""
    late = _calm(plan).late_tables.copy()
    late[..., last_cell:] = late[..., last_cell, None]
    return replace(plan, late_tables=late, refused_tables=np.zeros_like(late))


def _idle(plan: Plan) -> Plan:
    """Return a plan in which every request finds an idle replica."""
    return _up_to_capacity(plan, 0)


def _missed_by_month(result: Replication, late: Floats, shed: Floats) -> Floats:
    """Return requests late, or shed and not rented for, shape (months, workloads)."""
    horizon = replace(result.run.windows[0], first_hour=0, shed_requests=shed)
    rented, _ = rent_by_hour(result.plan, horizon)
    starts = result.plan.month_edges_h[:-1]
    by_month = [np.add.reduceat(requests, starts, axis=-1).T for requests in (late, shed, rented)]
    return quantities.missed_requests(by_month[0], quantities.shed_requests(*by_month[1:]))


def _outgrown(plan: Plan) -> Bools:
    """Say in which months no batch meets a workload's objective on any cluster, shape (months or 1, workloads)."""
    rates = plan.requests_per_node_h
    columns = []
    for w, load in enumerate(plan.workloads):
        unserved = np.all(rates[list(load.cluster_order), w] <= 0.0, axis=0)
        columns.append(unserved if load.overdue_share is None else load.overdue_share > 0.0)
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def _mends(result: Replication, rungs: list[Hourly], requests: Floats) -> tuple[Floats, tuple[tuple[str, ...], ...]]:
    """Return how much of what would mend each loss, shape (reasons, months, workloads), and what, in words.

    Of nodes as many as carry, at the objective, what the worst hour of the month loses to the cause, on the cluster
    that serves most of the workload a node. Of queueing as many as halve it, by the load at which the late share is
    half of the month's. Of power what such nodes draw at full load, with their cooling. Of prompts too long the
    first-token objective that halves them, or keeps to its percentile, on the cluster where fewest are.
    """
    plan, months = result.plan, len(result.plan.months.labels)
    amount, words = np.full(requests.shape, np.nan), []
    starts = plan.month_edges_h[:-1]
    fastest = np.full(plan.most_loads.shape, np.nan) if plan.alone_s is None else plan.alone_s
    hourly = [late + shed for late, shed in rungs]
    for w, load in enumerate(plan.workloads):
        order = list(load.cluster_order)
        best = max(order, key=lambda c: float(plan.requests_per_node_h[c, w].max()))
        rates = np.broadcast_to(plan.requests_per_node_h[best, w], (months,))
        # Where fewest prompts are too long: late on an idle replica.
        name, quickest = plan.clusters[best].name, min(order, key=lambda c: float(_calm(plan).late_tables[c, w, 0]))
        for r in range(5):
            peak = np.maximum.reduceat(np.maximum(hourly[r][w] - hourly[r + 1][w], 0.0), starts)
            amount[r, :, w] = np.divide(peak, rates, out=np.full(months, np.nan), where=rates > 0.0)
        amount[0, :, w] *= plan.clusters[best].node_power.full_kw * (1.0 + float(plan.site.overhead_ratio.mean()))
        main = int(result.monthly.served_requests[:, :, w].sum(axis=0).argmax())
        queued = requests[5:, :, w].sum(axis=0)
        amount[5, :, w] = _nodes_to_halve(result, main, w, queued)
        is_named = queued.sum() >= _LEAST_NAMED * result.monthly.demand_requests[:, w].sum()
        is_spread = is_named and _spreading_halves(result, w, float(requests[5, :, w].sum()))
        spread = ", and so would routing: proportional, on what idles" if is_spread else ""
        amount[6, :, w] = fastest[quickest, w] if fastest[quickest, w] > 0.0 else np.nan
        more = f"more nodes of {name} would carry it"
        words.append((
            "kW more of site.power_cap_kw would carry it"
            if plan.site.cap_kw is not None
            else "more site.parking.headroom_fraction would carry it",
            f"{more}, but for hours in which the site is dark",
            f"{more}, and so would mending incidents sooner", f"{more} as headroom", more,
            f"more nodes of {plan.clusters[main].name} would halve it{spread}",
            f"s as its slo.ttft_s would halve it on {plan.clusters[quickest].name}",
        ))  # fmt: skip
    if plan.site.cap_kw is None:
        amount[0] = np.nan  # what is parked is a matter of headroom, of which no amount is known
    # Nothing to mend, or nothing by more of a cluster that is not there yet.
    amount[(requests < _ONE_AT_LEAST) | (amount <= 0.0)] = np.nan
    return amount, tuple(zip(*words, strict=True))


def _nodes_to_halve(result: Replication, cluster: int, w: int, late: Floats) -> Floats:
    """Return the nodes of a cluster that halve what a month has late by queueing, shape (months,): N·(ρ / ρ½ − 1)."""
    at, halved = _loads_to_halve(result, cluster, w, late)
    nodes = result.monthly.present_node_h[:, cluster] / np.diff(result.plan.month_edges_h)
    more = np.divide(nodes * (at - halved), halved, out=np.full(at.size, np.nan), where=halved > 0.0)
    return np.asarray(more)


def _spreading_halves(result: Replication, w: int, queued: float) -> bool:
    """Say whether a workload would queue half as much, were work spread evenly over all that serve it.

    Each hour all clusters would be as utilised as they are together, each by what its nodes serve of the workload.
    Machines paid by the hour do not stand idle.
    """
    plan, spread = result.plan, 0.0
    if plan.preferred_utilisation == 0.0:  # it is spread so already
        return False
    tables = _calm(plan).late_tables[:, w]
    loads = load_grid(tables.shape[-1] - 1)
    owned = [c for c in plan.workloads[w].cluster_order if not plan.clusters[c].is_paid_by_the_hour]
    months = plan.months.hour_periods
    monthly = np.broadcast_to(plan.requests_per_node_h[:, w], (len(plan.clusters), len(plan.months.labels)))
    for given, window in zip(result.run.inputs, result.run.windows, strict=True):
        rates = monthly[owned][:, months[given.hours]]
        room = given.nodes[owned] * rates
        together = np.maximum(room.sum(axis=0), 1e-9)
        load = (window.busy_nodes[owned] * rates).sum(axis=0) / together
        for c, share in zip(owned, room / together, strict=True):
            queue = np.interp(load, loads, tables[c]) - tables[c, 0]
            spread += float((given.demand_requests[w] * share * queue).sum())
    return spread <= 0.5 * queued


def _loads_to_halve(result: Replication, cluster: int, w: int, late: Floats) -> tuple[Floats, Floats]:
    """Return ρ, the load up to capacity at which a cluster has a month's late share, and ρ½, with half of it queued."""
    table, loads = _calm(result.plan).late_tables[cluster, w, : _CAPACITY_CELL + 1], load_grid(_CAPACITY_CELL)
    queued = np.maximum(np.nan_to_num(ratio(late, result.monthly.demand_requests[:, w])) - table[0], 0.0)
    return np.interp(table[0] + queued, table, loads), np.interp(table[0] + 0.5 * queued, table, loads)


def worst_reasons(result: Replication, most: int = 3) -> list[dict[str, str | float | None]]:
    """Return what takes the largest shares of a workload's requests over the run, and what would mend its worst month.

    Nothing is named that takes less than one request in a hundred thousand.
    """
    lost, plan = lost_requests(result), result.plan
    settled = result.settled_requests().sum(axis=0)
    share = np.nan_to_num(ratio(lost.requests.sum(axis=1), settled))  # (reasons, workloads)
    reasons: list[dict[str, str | float | None]] = []
    for place in np.argsort(-share, axis=None, kind="stable")[:most].tolist():
        r, w = np.unravel_index(place, share.shape)
        month = int(lost.fraction[r, :, w].argmax())
        amount = float(lost.mend_amount[r, month, w])
        if share[r, w] >= _LEAST_NAMED:
            reasons.append(
                {
                    "workload": plan.workloads[w].name,
                    "reason": [*REASONS][r],
                    "lost_fraction": float(share[r, w]),
                    "worst_month": plan.months.labels[month],
                    "worst_lost_fraction": float(lost.fraction[r, month, w]),
                    "mend_amount": amount if np.isfinite(amount) else None,
                    "mend": lost.mends[r][w],
                }
            )
    return reasons
