"""Causes of SLO misses.

**Causes.** A run's hours are evaluated again with one cause after another taken away. Each rung of the ladder takes one
cause more away than the one before, in the order of :data:`REASONS`, and what is missed less is lost to that cause:

1. processes of the user's own: the nodes, speed, power and requests as without what they change;
2. the power cap: no limit on what the site draws;
3. outages: every machine on site in service, the site never dark;
4. incidents: software as fast as without those that are open;
5. bursts: each hour's requests come evenly;
6. no capacity: whatever exceeds what nodes sustain at the objective is served as late as at it, and nothing is shed;
7. queueing: every replica idle when a request comes;
8. a prompt too long for its objective: what is left, late on an idle replica.

The order goes from what happens to a fleet to what is asked of it, so that a cause is charged for what it costs the
plan as it stands. No rung may miss more than the one before (work that moves between clusters can): the parts are none
of them negative, and sum to all that was missed.

**The SLO ceiling.** What no further node of any cluster changes: requests that arrive while the site is dark, and
prompts too long for their objective on an idle replica. Capacity that failures, incidents or bursts take is made up by
more nodes, for an incident slows a stack and never stops it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from planner.arrays import Bools, Floats
from planner.engine.hourly import NodeHours, WindowInput, joined
from planner.engine.log import SpeedChange
from planner.engine.rental import rent_by_hour
from planner.engine.scan import steps_by_hour
from planner.engine.window import Missed, missed_under
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.attainment import CEILINGS, lowest_share
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan
from planner.run.simulate import RunResult, per_run

REASONS: Mapping[str, str] = {
    "process": "processes of one's own",
    "power_cap": "the power cap",
    "outage": "outages",
    "incident": "software incidents",
    "bursts": "bursts within the hour",
    "no_capacity": "no capacity",
    "queueing": "queueing",
    "too_long": "prompts too long for the objective",
}
"""What takes requests, from the first rung to the last, in words."""
INCIDENT = [*REASONS].index("incident")
LEAST_NAMED = 1e-5
"""Share of a workload's requests below which nothing is named."""
CAPACITY_CELL = int(LOAD_CELLS / MOST_LOAD)
"""Cell of the tables by load at which it is what nodes sustain at the objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Requests missed by each cause; arrays of shape (reasons, months, workloads)."""

    fraction: Floats
    """Of the month's settled requests; over reasons they sum to 1 − the share in time."""
    requests: Floats
    hourly_to_incidents: Floats
    """Requests missed for software incidents by the hour, before anything is evened out, shape (workloads, hours)."""


@per_run
def lost_requests(result: RunResult) -> Lost:
    """Return the requests of a run missed by each cause."""
    plan = result.plan
    rungs = _rungs(result)
    missed = np.stack([_missed_by_month(result, late_and_shed) for late_and_shed in rungs])
    missed[5:] = np.where(
        _outgrown(plan), missed[4], missed[5:]
    )  # missed since no batch meets the objective
    missed = np.minimum.accumulate(missed, axis=0)
    requests = np.append(missed[:-1] - missed[1:], missed[-1:], axis=0)
    fraction = np.nan_to_num(ratio(requests, result.settled_requests()))
    hourly = np.maximum(rungs[INCIDENT] - rungs[INCIDENT + 1], 0.0).sum(axis=0)
    return Lost(fraction=fraction, requests=requests, hourly_to_incidents=hourly)


def _rungs(result: RunResult) -> list[Floats]:
    """Return the requests missed by the run, and with one more cause removed each time.

    Requests late and shed, shape (2, workloads, hours) each.
    """
    plan = result.plan
    inputs = result.run.inputs
    machines = result.run.node_hours
    rungs = [
        np.stack([joined(name, result.run.windows) for name in ("late_requests", "shed_requests")])
    ]
    if result.processes or plan.processes:
        inputs = tuple(
            _without_processes(result, given, nodes)
            for given, nodes in zip(inputs, machines, strict=True)
        )
        rungs += _missed(plan, inputs, [_as_it_is])
    else:
        rungs += rungs
    if plan.site.cap_kw is None:
        rungs += rungs[-1:]
    else:
        inputs = tuple(replace(given, cap_kw=None) for given in inputs)
        rungs += _missed(plan, inputs, [_as_it_is])
    inputs = tuple(
        replace(given, nodes=nodes.present, lit_fraction=None)
        for given, nodes in zip(inputs, machines, strict=True)
    )
    is_whole = not any(nodes.failed.any() or nodes.dark.any() for nodes in machines)
    rungs += rungs[-1:] if is_whole else _missed(plan, inputs, [_as_it_is])
    inputs = tuple(
        replace(given, speed=_speed_without_incidents(given), incidents={}) for given in inputs
    )
    rungs += _missed(
        plan,
        inputs,
        [_as_it_is, _without_bursts, _up_to_capacity, partial(_up_to_capacity, last_cell=0)],
    )
    for rung in rungs[6:]:
        rung[1] = 0.0  # had there been room, it would have been served, late as the rest
    return rungs


def _missed(
    plan: Plan, inputs: Iterable[WindowInput], changes: Sequence[Callable[[Plan], Plan]]
) -> list[Floats]:
    """Return the requests missed by consecutive windows under each change of the plan's tables."""
    windows: list[Missed] = []
    before: dict[str, Any] = {}
    for given in inputs:
        windows.append(missed_under(plan, replace(given, **before), changes))
        before = {
            "waiting_requests": windows[-1].waiting_requests,
            "replicas_before": windows[-1].replicas_after,
        }
    return list(
        np.stack([joined(name, windows) for name in ("late_requests", "shed_requests")], axis=1)
    )


def _speed_without_incidents(given: WindowInput) -> dict[tuple[int, int], Floats]:
    """Return a window's speeds without the slowdown by open incidents."""
    speeds = dict(given.speed)
    for pair, slowed in given.incidents.items():
        left = 1.0 - slowed.lost_fraction
        speeds[pair] = speeds[pair].copy()
        slow = speeds[pair][slowed.hours]
        speeds[pair][slowed.hours] = np.divide(
            slow, left, out=np.ones_like(slow), where=left > 1e-6
        )
    return speeds


def _as_it_is(plan: Plan) -> Plan:
    return plan


def _without_processes(result: RunResult, given: WindowInput, nodes: NodeHours) -> WindowInput:
    """Return a window's input without what the user's processes change."""
    plan = result.plan
    log = result.run.log
    hours = given.nodes.shape[1]
    demand = given.demand_requests - log.added_requests(
        [load.name for load in plan.workloads], given.first_hour, hours
    )
    slowed = defaultdict[tuple[int, int], list[SpeedChange]](list)
    speed = {**given.speed}
    incidents = {**given.incidents}
    for change in log.speeds():
        if change.process:
            slowed[change.cluster, change.workload].append(change)
    for pair, changes in slowed.items():
        if (slow := incidents.get(pair)) is not None:
            times, logs = (np.array([change[place] for change in changes]) for place in (0, 3))
            factor = steps_by_hour(times, np.exp(np.cumsum(logs)), given.first_hour, hours)
            speed[pair] = speed[pair] / factor
            lost = 1.0 - (1.0 - slow.lost_fraction) / factor[slow.hours]
            incidents[pair] = replace(slow, lost_fraction=lost)
    lit = (
        1.0
        if given.lit_fraction is None
        else np.where(plan.on_site[:, None] > 0.0, given.lit_fraction, 1.0)
    )
    cap_kw = None if plan.site.cap_kw is None else plan.site.cap_kw[given.hours]
    there = given.nodes + nodes.taken * lit
    demand = np.maximum(demand, 0.0)
    return replace(
        given, nodes=there, demand_requests=demand, cap_kw=cap_kw, speed=speed, incidents=incidents
    )


def _without_bursts(plan: Plan) -> Plan:
    """Return a plan whose requests arrive evenly within each hour."""
    tables = plan.no_burst_tables
    if tables is None:
        return plan
    return replace(
        plan, late_tables=tables[0], refused_tables=tables[1], no_burst_tables=None, burst_tables={}
    )


def _up_to_capacity(plan: Plan, last_cell: int = CAPACITY_CELL) -> Plan:
    """Return a plan without bursts or rejection, in which load beyond a cell misses as at that cell.

    Beyond the first, every request finds an idle replica.
    """
    even = _without_bursts(plan)
    late = even.late_tables.copy()
    late[..., last_cell:] = late[..., last_cell, None]
    return replace(even, late_tables=late, refused_tables=np.zeros_like(late))


def _missed_by_month(result: RunResult, late_and_shed: Floats) -> Floats:
    """Return requests late, or shed and not served on rented accelerators, shape (months, workloads)."""
    late, shed = late_and_shed
    rented, _ = rent_by_hour(result.plan, shed, result.run.on_offer)
    starts = result.plan.month_edges_h[:-1]
    by_month = [np.add.reduceat(requests, starts, axis=-1).T for requests in (late, shed, rented)]
    return quantities.missed_requests(by_month[0], quantities.shed_requests(*by_month[1:]))


def _outgrown(plan: Plan) -> Bools:
    """Return the months in which no batch meets a workload's SLO on any cluster, shape (months or 1, workloads)."""
    columns = []
    for w, load in enumerate(plan.workloads):
        unserved = np.all(plan.requests_per_node_h[list(load.cluster_order), w] <= 0.0, axis=0)
        columns.append(unserved if load.overdue_share is None else load.overdue_share > 0.0)
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def lit_share(result: RunResult, offered: Plan | None = None) -> Floats:
    """Return the share of each hour without a site outage, shape (workloads, hours).

    What can wait, or may be served on a provider's machines, is not lost to one. ``offered`` is the plan with all
    clusters that may be bought, where the run's own has not all of them.
    """
    plan = offered or result.plan
    lit = np.ones((len(plan.workloads), plan.hours))
    hours = np.arange(plan.hours, dtype=np.float64)
    here = plan.is_here
    urgent = [w for w, load in enumerate(plan.workloads) if not load.deadline_h and here[w]]
    for outage in result.run.log.site:
        lit[urgent] -= quantities.open_fraction(hours, *outage)
    return lit


def slo_ceilings(result: RunResult, offered: Plan | None = None) -> dict[str, float]:
    """Return the SLO attainment that no further node raises, by the names of :data:`CEILINGS`; NaN without requests.

    Each is the lowest that the SLO target is about, as if nothing else were missed: with site outages alone, less what
    burst rental serves of them, and with prompts too long for the objective on every cluster as well, which are all
    of a workload's in months in which no batch meets it.
    """
    demand = np.concatenate([window.demand_requests for window in result.run.windows], axis=1)
    settled = result.settled_requests()
    dark = demand * (1.0 - lit_share(result, offered))
    outages = _missed_by_month(result, np.stack((np.zeros_like(dark), dark)))
    late = np.ones((1, 1))
    for plan in (result.plan, offered or result.plan):
        assert plan.no_burst_tables is not None  # a compiled plan has them
        tables = enumerate(load.cluster_order for load in plan.workloads)
        idle = [plan.no_burst_tables[0, list(order), w, 0].min(initial=1.0) for w, order in tables]
        late = np.minimum(late, np.where(_outgrown(plan), 1.0, idle))
    both = outages + np.maximum(settled - outages, 0.0) * late
    return {
        name: lowest_share(result.plan, by, settled)
        for name, by in zip(CEILINGS, (outages, both), strict=True)
    }


def worst_reasons(result: RunResult, most: int = 3) -> list[dict[str, str | float]]:
    """Return the causes of the largest miss shares by workload over the run, each with its worst month.

    Nothing is named that takes less than one request in a hundred thousand.
    """
    lost = lost_requests(result)
    plan = result.plan
    share = np.nan_to_num(ratio(lost.requests.sum(axis=1), result.settled_requests().sum(axis=0)))
    reasons: list[dict[str, str | float]] = []
    for place in np.argsort(-share, axis=None, kind="stable")[:most].tolist():
        r, w = (int(index) for index in np.unravel_index(place, share.shape))
        if share[r, w] < LEAST_NAMED:
            break  # those that follow take less
        month = int(lost.fraction[r, :, w].argmax())
        reasons.append(
            {
                "workload": plan.workloads[w].name,
                "cause": [*REASONS][r],
                "missed_fraction": float(share[r, w]),
                "worst_month": plan.months.labels[month],
                "worst_missed_fraction": float(lost.fraction[r, month, w]),
            }
        )
    return reasons
