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
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.engine.hourly import NodeHours, WindowInput, joined
from planner.engine.log import SpeedChange
from planner.engine.rental import rent_by_hour
from planner.engine.scan import steps_by_hour
from planner.engine.window import Missed, missed_under
from planner.errors import CapacityError, ScenarioError
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.attainment import (
    CEILINGS,
    LEAST_SHORTFALL,
    SloResult,
    judge,
    lowest_share,
    targeted_shares,
)
from planner.plan.build import build_plan
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.plan.plan import Plan
from planner.records import record
from planner.units import rounded_up

REASONS: Mapping[str, str] = {
    "process": "your own processes",
    "power_cap": "the power cap",
    "outage": "outages",
    "incident": "software incidents",
    "bursts": "bursts within the hour",
    "no_capacity": "lack of capacity",
    "queueing": "queueing",
    "too_long": "prompts that take longer than the TTFT objective even on an idle replica",
}
"""What takes requests, from the first rung to the last, in words."""
INCIDENT = [*REASONS].index("incident")
LEAST_NAMED = 1e-5
"""Share of a workload's requests below which nothing is named."""
_REASONS_NAMED = 3
"""How many causes are named at most."""
_CLOSE_FRACTION = 0.05
"""Of what may be missed, the part that no plan does without: prompts that leave less are too long; assumption."""
_FEW_FRACTION = 0.8
"""Of what may be missed, the part that prompts may take under an objective that is named; assumption."""
_OBJECTIVES_TRIED = 6
_LONGER = 1.1
"""Each objective that is tried over the one before, at least."""
CAPACITY_CELL = int(LOAD_CELLS / MOST_LOAD)
"""Cell of the tables by load at which it is what nodes sustain at the objective."""


@record
class Lost:
    """Requests missed by each cause; arrays of shape (reasons, months, workloads)."""

    fraction: Floats
    """Of the month's settled requests; over reasons they sum to 1 − the share in time."""
    requests: Floats
    hourly_to_incidents: Floats
    """Requests missed for software incidents by the hour, before anything is evened out, shape (workloads, hours)."""


@per_run
def lost_requests(result: BookedRun) -> Lost:
    """Return the requests of a run missed by each cause."""
    rungs = _rungs(result)
    missed = np.stack([_missed_by_month(result, late_and_shed) for late_and_shed in rungs])
    # Where no batch meets the objective, all that bursts leave is missed for that, and for neither room nor queues.
    is_outgrown = _outgrown(result.plan)
    missed[5:] = np.where(is_outgrown, missed[4], missed[5:])
    # A rung that misses more than the one before, by work that moved, counts as missing the same.
    missed = np.minimum.accumulate(missed, axis=0)
    # Each cause has what its removal saves; the last has all that is still missed.
    saved = missed[:-1] - missed[1:]
    requests = np.append(saved, missed[-1:], axis=0)
    share = ratio(requests, result.settled_requests())
    fraction = np.nan_to_num(share)
    hourly_saved = rungs[INCIDENT] - rungs[INCIDENT + 1]
    hourly = np.maximum(hourly_saved, 0.0).sum(axis=0)
    return Lost(fraction=fraction, requests=requests, hourly_to_incidents=hourly)


def _rungs(result: BookedRun) -> list[Floats]:
    """Return the requests missed by the run, and with one more cause removed each time.

    Requests late and shed, shape (2, workloads, hours) each. A cause that the run does not have repeats the rung before
    it: to evaluate the hours again takes as long as the run's own.
    """
    plan = result.plan
    inputs = result.run.inputs
    machines = result.run.node_hours
    windows = result.run.windows
    late = joined("late_requests", windows)
    shed = joined("shed_requests", windows)
    rungs = [np.stack((late, shed))]
    # Each rung starts from the inputs of the one before: causes are removed one after the other.
    if result.processes or plan.processes:
        pairs = zip(inputs, machines, strict=True)
        inputs = tuple(_without_processes(result, window, nodes) for window, nodes in pairs)
        rungs += _missed(plan, inputs, [_unchanged])
    else:
        rungs += rungs[-1:]
    if plan.site.cap_kw is None:
        rungs += rungs[-1:]
    else:
        inputs = tuple(replace(window, cap_kw=None) for window in inputs)
        rungs += _missed(plan, inputs, [_unchanged])
    pairs = zip(inputs, machines, strict=True)
    inputs = tuple(
        replace(window, nodes=nodes.present, lit_fraction=None) for window, nodes in pairs
    )
    outages = (nodes.failed.any() or nodes.dark.any() for nodes in machines)
    has_outages = any(outages)
    if has_outages:
        rungs += _missed(plan, inputs, [_unchanged])
    else:
        rungs += rungs[-1:]
    inputs = tuple(
        replace(window, speed=_speed_without_incidents(window), incidents={}) for window in inputs
    )
    idle_replicas = partial(_up_to_capacity, last_cell=0)
    # These change tables alone, so one pass over the windows evaluates all four.
    rungs += _missed(plan, inputs, [_unchanged, _without_bursts, _up_to_capacity, idle_replicas])
    for rung in rungs[6:]:
        rung[1] = 0.0  # had there been room, it would have been served, late as the rest
    return rungs


def _missed(
    plan: Plan, inputs: Iterable[WindowInput], changes: Sequence[Callable[[Plan], Plan]]
) -> list[Floats]:
    """Return the requests missed by consecutive windows under each change of the plan's tables."""
    missed: list[Missed] = []
    for run_window in inputs:
        window = run_window
        # What waits and what is resident at the start of a window follows from the one before, not from the run's.
        if missed:
            window = replace(
                run_window,
                waiting_requests=missed[-1].waiting_requests,
                replicas_before=missed[-1].replicas_after,
            )
        missed.append(missed_under(plan, window, changes))
    late = joined("late_requests", missed)
    shed = joined("shed_requests", missed)
    # The first axis has the changes, each with late and shed.
    return [*np.stack((late, shed), axis=1)]


def _speed_without_incidents(window: WindowInput) -> dict[tuple[int, int], Floats]:
    """Return a window's speeds without the slowdown by open incidents."""
    speeds = dict(window.speed)
    for pair, loss in window.incidents.items():
        remaining = 1.0 - loss.lost_fraction
        # A copy: the window's own speeds are the run's.
        speed = speeds[pair].copy()
        slow = speed[loss.hours]
        # What an incident stops altogether says nothing of the speed without it: that of day one.
        full_speed = np.ones_like(slow)
        np.divide(slow, remaining, out=full_speed, where=remaining > 1e-6)
        speed[loss.hours] = full_speed
        speeds[pair] = speed
    return speeds


def _unchanged(plan: Plan) -> Plan:
    return plan


def _without_processes(result: BookedRun, window: WindowInput, machines: NodeHours) -> WindowInput:
    """Return a window's input without what the user's processes change."""
    plan = result.plan
    log = result.run.log
    hours = window.nodes.shape[1]
    names = [load.name for load in plan.workloads]
    # What a process takes away may be more than there was: below zero is none, further down.
    added = log.added_requests(names, window.first_hour, hours)
    demand = window.demand_requests - added
    changes_of = defaultdict[tuple[int, int], list[SpeedChange]](list)
    for change in log.speeds():
        if change.process:
            changes_of[change.cluster, change.workload].append(change)
    speed = {**window.speed}
    incidents = {**window.incidents}
    for pair, changes in changes_of.items():
        loss = incidents.get(pair)
        # Without a slowdown in this window there is nothing to undo.
        if loss is None:
            continue
        times_h = np.array([change.time_h for change in changes])
        log_factors = [change.log_factor for change in changes]
        # Factors add up in logs: a level is the product of all changes so far.
        levels = np.exp(np.cumsum(log_factors))
        factor = steps_by_hour(times_h, levels, window.first_hour, hours)
        speed[pair] = speed[pair] / factor
        remaining = (1.0 - loss.lost_fraction) / factor[loss.hours]
        incidents[pair] = replace(loss, lost_fraction=1.0 - remaining)
    cap_kw = plan.site.cap_kw
    # A node that a process took out would have been dark in a site outage as the rest.
    lit: Floats | float = 1.0
    if window.lit_fraction is not None:
        on_site = plan.on_site[:, None] > 0.0
        lit = np.where(on_site, window.lit_fraction, 1.0)
    return replace(
        window,
        nodes=window.nodes + machines.taken_out * lit,
        demand_requests=np.maximum(demand, 0.0),
        # As planned: a process may have lowered it.
        cap_kw=None if cap_kw is None else cap_kw[window.hours],
        speed=speed,
        incidents=incidents,
    )


def _without_bursts(plan: Plan) -> Plan:
    """Return a plan whose requests arrive evenly within each hour."""
    tables = plan.no_burst_tables
    if tables is None:
        return plan
    late, refused = tables
    return replace(
        plan, late_tables=late, refused_tables=refused, no_burst_tables=None, burst_tables={}
    )


def _up_to_capacity(plan: Plan, last_cell: int = CAPACITY_CELL) -> Plan:
    """Return a plan without bursts or rejection, in which load beyond a cell misses as at that cell.

    Beyond the first, every request finds an idle replica.
    """
    without_bursts = _without_bursts(plan)
    late = without_bursts.late_tables.copy()
    # From that load on it is as late as there: room is no cause any more.
    late[..., last_cell:] = late[..., last_cell, None]
    refused = np.zeros_like(late)
    return replace(without_bursts, late_tables=late, refused_tables=refused)


def _missed_by_month(result: BookedRun, late_and_shed: Floats) -> Floats:
    """Return requests late, or shed and not served on rented accelerators, shape (months, workloads)."""
    starts = result.plan.month_edges_h[:-1]

    def by_month(requests: Floats) -> Floats:
        return np.add.reduceat(requests, starts, axis=-1).T

    late, shed = late_and_shed
    # Rent follows what is shed hour by hour, so it comes before the months.
    rented, _ = rent_by_hour(result.plan, shed, result.run.on_offer)
    still_shed = quantities.shed_requests(by_month(shed), by_month(rented))
    return quantities.missed_requests(by_month(late), still_shed)


def _outgrown(plan: Plan) -> Bools:
    """Return the months in which no batch meets a workload's SLO on any cluster, shape (months or 1, workloads)."""
    columns = []
    for w, load in enumerate(plan.workloads):
        rates = plan.requests_per_node_h[list(load.cluster_order), w]
        is_unserved = np.all(rates <= 0.0, axis=0)
        columns.append(is_unserved if load.overdue_share is None else load.overdue_share > 0.0)
    # A workload whose requests do not change has one column for all months.
    by_month = np.broadcast_arrays(*columns)
    return np.stack(by_month, axis=-1)


def lit_share(result: BookedRun, offered: Plan | None = None) -> Floats:
    """Return the share of each hour without a site outage, shape (workloads, hours).

    What can wait, or may be served on a provider's machines, is not lost to one. ``offered`` is the plan with all
    clusters that may be bought, where the run's own has not all of them.
    """
    plan = offered or result.plan
    lit = np.ones((len(plan.workloads), plan.hours))
    hours = np.arange(plan.hours, dtype=np.float64)
    on_site = plan.is_here
    served_here = [w for w in range(len(plan.workloads)) if on_site[w]]
    urgent = [w for w in served_here if not plan.workloads[w].deadline_h]
    # What can wait is served later; only what cannot is lost.
    for outage in result.run.log.site:
        lit[urgent] -= quantities.open_fraction(hours, *outage)
    return lit


def slo_ceilings(result: BookedRun, offered: Plan | None = None) -> dict[str, float]:
    """Return the SLO attainment that no further node raises, by the names of :data:`CEILINGS`; NaN without requests.

    Each is the lowest that the SLO target is about, as if nothing else were missed than :func:`past_capacity` has.
    """
    settled = result.settled_requests()
    return {
        name: lowest_share(result.plan, missed, settled)
        for name, missed in zip(CEILINGS, past_capacity(result, offered), strict=True)
    }


def past_capacity(result: BookedRun, offered: Plan | None = None) -> tuple[Floats, Floats]:
    """Return the requests that no further node serves in time, shape (months, workloads) each.

    With site outages alone, less what burst rental serves of them; and with prompts too long for the objective on every
    cluster as well, which are all of a workload's in months in which no batch meets it.
    """
    demand = joined("demand_requests", result.run.windows)
    settled = result.settled_requests()
    dark = demand * (1.0 - lit_share(result, offered))
    nothing = np.zeros_like(dark)
    # As if an outage shed it all: rental may serve some of that.
    dark_requests = np.stack((nothing, dark))
    outages = _missed_by_month(result, dark_requests)
    late_share = np.ones((1, 1))
    for plan in (result.plan, offered or result.plan):
        idle_late = []
        for w, load in enumerate(plan.workloads):
            # The best cluster may serve all of a workload.
            late = plan.idle_late_shares[list(load.cluster_order), w]
            idle_late.append(late.min(initial=1.0))
        plan_late = np.where(_outgrown(plan), 1.0, idle_late)
        late_share = np.minimum(late_share, plan_late)
    in_light = np.maximum(settled - outages, 0.0)
    with_long_prompts = outages + in_light * late_share
    return outages, with_long_prompts


class LongPrompts(NamedTuple):
    """A workload whose prompts alone miss the SLO target: more nodes of the cluster that serves it do not mend that."""

    workload: str
    missed_fraction: float
    """Share of its prompts that take longer than the TTFT objective on an idle replica, in the worst month."""
    cluster: str
    """The one that serves most of it in that month."""
    ttft_s: float
    """The objective."""
    sufficient_ttft_s: float | None
    """An objective that was tried and that few enough prompts exceed on that cluster; None where none was found."""
    faster_cluster: str | None
    """Another on which few enough prompts are too long, were it the first to serve it; None where the plan has none."""


@per_run
def long_prompts(result: BookedRun) -> tuple[LongPrompts, ...]:
    """Return the workloads that miss the SLO target for prompts that are too long, however many nodes there are."""
    plan = result.plan
    settled = result.settled_requests()
    is_missed = _falls_short(plan, result.missed_requests(), settled)
    if not is_missed.any():
        return ()
    too_long = _missed_by_long_prompts(result)
    # Next to nothing of what may be missed is left to queues and failures: no plan serves by that.
    close = _CLOSE_FRACTION * (1.0 - plan.slo_attainments)
    is_missed &= _falls_short(plan, too_long, settled, close)
    if not is_missed.any():
        return ()
    shares = np.nan_to_num(ratio(too_long, settled)).max(axis=0)
    workloads = np.flatnonzero(is_missed.any(axis=0))
    if plan.slo_target.scope == "fleet":
        # Of a target for all together, the workload that takes most of it.
        workloads = too_long.sum(axis=0).argmax(keepdims=True)
    return tuple(_long_prompts_of(result, w, float(shares[w])) for w in workloads.tolist())


def _falls_short(plan: Plan, missed: Floats, settled: Floats, close: Floats | float = 0.0) -> Bools:
    """Return where the SLO target is missed, or met by less than so much, shape (months, workloads or 1)."""
    short = plan.slo_attainments - targeted_shares(plan, missed, settled)
    return np.asarray(short + close >= LEAST_SHORTFALL)


def _long_prompts_of(result: BookedRun, w: int, missed_fraction: float) -> LongPrompts:
    """Return what is known of a workload, a share of whose prompts are too long for their objective."""
    plan = result.plan
    workload = plan.workloads[w]
    idle_late = plan.idle_late_shares[:, w]
    by_lateness = sorted(workload.cluster_order, key=lambda c: float(idle_late[c]))
    homes = _homes(result)[:, w]
    worst_month = int(idle_late[homes].argmax())
    home = int(homes[worst_month])
    attainment = np.broadcast_to(plan.slo_attainments, len(plan.workloads))[w]
    few = (1.0 - _CLOSE_FRACTION) * (1.0 - attainment)
    faster = by_lateness[0] if idle_late[by_lateness[0]] < few else None
    return LongPrompts(
        workload=workload.name,
        missed_fraction=missed_fraction,
        cluster=plan.clusters[home].name,
        ttft_s=result.scenario.workloads[workload.name].slo.ttft_s,
        sufficient_ttft_s=_sufficient_ttft_s(result, w, home, _FEW_FRACTION * (1.0 - attainment)),
        faster_cluster=None if faster is None else plan.clusters[faster].name,
    )


def _sufficient_ttft_s(result: BookedRun, w: int, home: int, few: float) -> float | None:
    """Return an objective under which few enough prompts of a workload are too long on a cluster; None without one.

    A longer objective may have another layout chosen, so each is planned: none is named that was not tried.
    """
    plan = result.plan
    name = plan.workloads[w].name
    ttft_s = result.scenario.workloads[name].slo.ttft_s
    for _ in range(_OBJECTIVES_TRIED):
        assert plan.alone_s is not None  # a compiled plan has them
        needed_s = np.nan_to_num(plan.alone_s[home, w])
        ttft_s = rounded_up(max(float(needed_s), ttft_s * _LONGER), 2)
        try:
            scenario = result.scenario.laid_over([f"workloads.{name}.slo.ttft_s={ttft_s:g}"])
            plan = build_plan(scenario)
        except (ScenarioError, CapacityError):
            return None
        names = [cluster.name for cluster in plan.clusters]
        # A cluster that is bought by a rule alone may have another place.
        if names[home : home + 1] != [result.plan.clusters[home].name]:
            return None
        is_served = not _outgrown(plan)[:, w].any()
        if is_served and plan.idle_late_shares[home, w] <= few:
            return ttft_s
    return None


def without_long_prompts(result: BookedRun) -> SloResult:
    """Return how a replication stands to its SLO target with late requests of such workloads set aside.

    What they shed for want of room still counts, and what all others miss: more nodes may mend that.
    """
    missed = result.missed_requests()
    # What no batch serves in time is shed however much room there is.
    shed = np.where(_outgrown(result.plan), 0.0, result.shed_requests())
    names = [workload.name for workload in result.plan.workloads]
    for prompts in long_prompts(result):
        w = names.index(prompts.workload)
        missed[:, w] = shed[:, w]
    return judge(result.plan, missed, result.settled_requests())


def _missed_by_long_prompts(result: BookedRun) -> Floats:
    """Return the requests too long for an idle replica of the cluster that serves most, shape (months, workloads)."""
    plan = result.plan
    late_share = np.take_along_axis(plan.idle_late_shares, _homes(result), axis=0)
    is_served = result.monthly.served_requests.sum(axis=1) > 0.0
    late_share = np.where(is_served, late_share, 0.0)
    # What no batch serves in time is not served at all.
    is_there = np.any(result.monthly.present_node_h > 0.0, axis=1)[:, None]
    late_share = np.where(_outgrown(plan) & is_there, 1.0, late_share)
    outages, _ = past_capacity(result)
    in_light = np.maximum(result.settled_requests() - outages, 0.0)
    return np.asarray(in_light * late_share)


def _homes(result: BookedRun) -> Ints:
    """Return the cluster that serves most of each workload's requests, shape (months, workloads)."""
    return np.asarray(result.monthly.served_requests.argmax(axis=1))


class SloMiss(NamedTuple):
    """A cause for which requests of a workload miss their SLO."""

    workload: str
    cause: str
    """One of :data:`REASONS`."""
    missed_fraction: float
    """Of its requests over the run."""
    worst_month: str
    worst_missed_fraction: float
    """Of its requests in that month."""


def worst_reasons(result: BookedRun) -> list[SloMiss]:
    """Return the causes of the largest miss shares by workload over the run, each with its worst month.

    Nothing is named that takes less than one request in a hundred thousand.
    """
    lost = lost_requests(result)
    plan = result.plan
    missed = lost.requests.sum(axis=1)
    settled = result.settled_requests().sum(axis=0)
    share = np.nan_to_num(ratio(missed, settled))
    reasons = []
    # Of equal shares the earlier cause comes first, so that the list does not depend on the sort.
    order = np.argsort(-share, axis=None, kind="stable")
    largest = order[:_REASONS_NAMED]
    for cell in largest.tolist():
        r, w = divmod(cell, len(plan.workloads))
        if share[r, w] < LEAST_NAMED:
            break  # those that follow take less
        by_month = lost.fraction[r, :, w]
        month = int(by_month.argmax())
        reasons.append(
            SloMiss(
                workload=plan.workloads[w].name,
                cause=[*REASONS][r],
                missed_fraction=float(share[r, w]),
                worst_month=plan.months.labels[month],
                worst_missed_fraction=float(lost.fraction[r, month, w]),
            )
        )
    return reasons
