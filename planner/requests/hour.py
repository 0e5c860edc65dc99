"""One hour of one replication as it comes to the zoom: the replicas that stand in it, what comes, and what fails."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

import numpy as np

from planner.arrays import Floats
from planner.engine.driver import Run
from planner.engine.hourly import WindowInput, WindowResult
from planner.errors import Problem, ScenarioError
from planner.plan.plan import Plan
from planner.plan.sizes import at_sizes
from planner.requests.arrivals import Lengths
from planner.requests.replica_groups import Services, Stand, Standing, spec_of, stands_of
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR

_ANY_LENGTH = 1 << 40  # tokens: no request is longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Accelerators that go down within the hour."""

    cluster: int | None
    """None for the whole site."""
    accelerators: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """All that one hour brings."""

    at: datetime
    stands: tuple[Stand, ...]
    breakdowns: tuple[Breakdown, ...]
    demand_requests_per_s: Floats
    """Shape (workloads,)."""
    backlog_requests: Floats
    """Deferrable requests that wait at the beginning of the hour, shape (workloads,)."""
    lengths: tuple[Lengths, ...]
    """By workload."""
    served_fraction: Floats
    """Requests that the hourly model serves over those that arrive, shape (workloads,)."""
    late_fraction: Floats
    """Of those that arrive, those it serves late, shape (workloads,)."""
    shed_fraction: Floats
    utilisation_fraction: Floats
    """Node-hours at work over node-hours in service, shape (clusters,); NaN where there are none."""


def hour_of(scenario: Scenario, plan: Plan, at: datetime) -> int:
    """Return the hour of the horizon that a moment lies in; raise ScenarioError outside the horizon."""
    start = datetime.combine(plan.start, time())
    hour = math.floor((at - start).total_seconds() / SECONDS_PER_HOUR)
    if not 0 <= hour < plan.hours:
        last = start + timedelta(hours=plan.hours - 1)
        message = f"{at:%Y-%m-%dT%H:%M} lies outside the horizon of {scenario.name}"
        raise ScenarioError(
            Problem(path="--at", message=message, hint=f"from {start:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M}")
        )
    return hour


def window_of(run: Run, hour: int) -> tuple[WindowInput, WindowResult]:
    """Return the window that an hour lies in."""
    windows = zip(run.inputs, run.windows, strict=True)
    return next(pair for pair in windows if pair[0].hours.start <= hour < pair[0].hours.stop)


def stand_in_hour(scenario: Scenario, plan: Plan, run: Run, services: Services, at: datetime) -> Hour:
    """Return the hour in which a moment lies, as one replication has it."""
    hour = hour_of(scenario, plan, at)
    given, window = window_of(run, hour)
    plan = at_sizes(plan, given.sizes)
    place = hour - window.first_hour
    month = int(np.searchsorted(plan.month_edges_h, hour, side="right")) - 1
    healthy = _healthy_nodes(plan, run, hour)
    if not np.any(healthy > 0.0):
        first = min((change.time_h for change in run.log.changes), default=math.inf)
        when = "none comes" if first >= plan.hours else f"the first come at {_moment(plan, first):%Y-%m-%dT%H:%M}"
        later = "none is left" if first <= hour else when
        message = f"no machine is in service at {at:%Y-%m-%dT%H:%M}: {later}"
        raise ScenarioError(Problem(path="--at", message=message))
    off = window.throttled_nodes[:, place]  # what the power cap takes has no power, nor has what is parked
    if window.parked_nodes is not None:
        off = off + window.parked_nodes[:, place]
    healthy = np.maximum(healthy - off, 0.0)
    stands = stands_of(
        scenario, plan, window, services, Standing(hour=place, month=month, nodes=healthy, speeds=_speeds(run, hour))
    )
    demand = window.demand_requests[:, place]
    served, late, shed = (
        window.served_requests[:, :, place].sum(axis=0),
        window.late_requests[:, place],
        window.shed_requests[:, place],
    )
    nodes, busy = window.nodes[:, place], window.busy_nodes[:, place]

    def share(part: Floats, total: Floats) -> Floats:
        return np.asarray(np.divide(part, total, out=np.full(total.shape, np.nan), where=total > 0))

    return Hour(
        at=at,
        stands=stands,
        breakdowns=_breakdowns(run, hour),
        demand_requests_per_s=demand / SECONDS_PER_HOUR,
        backlog_requests=_backlog(plan, run, hour),
        lengths=tuple(_lengths(plan, services, stands, w, month) for w in range(len(plan.workloads))),
        served_fraction=share(served, demand),
        late_fraction=share(late, demand),
        shed_fraction=share(shed, demand),
        utilisation_fraction=share(busy, nodes),
    )


def _moment(plan: Plan, hour: float) -> datetime:
    return datetime.combine(plan.start, time()) + timedelta(hours=hour)


def _healthy_nodes(plan: Plan, run: Run, hour: int) -> Floats:
    """Return nodes in service at the beginning of an hour, shape (clusters,)."""
    nodes = np.zeros(len(plan.clusters))
    for change in run.log.changes:
        if change.time_h <= hour:
            nodes[change.cluster] += change.accelerators / plan.clusters[change.cluster].accelerators_per_node
    for outage in run.shop.outages():
        if outage.start_h <= hour < outage.end_h:
            nodes[outage.cluster] -= outage.accelerators / plan.clusters[outage.cluster].accelerators_per_node
    return np.maximum(nodes, 0.0)


def _speeds(run: Run, hour: int) -> dict[tuple[int, int], float]:
    """Return the speed of each cluster on each workload against day one, where software has changed it."""
    logs: dict[tuple[int, int], float] = {}
    for change in run.log.speeds():
        if change.time_h <= hour:
            pair = (change.cluster, change.workload)
            logs[pair] = logs.get(pair, 0.0) + change.log_factor
    return {pair: math.exp(factor) for pair, factor in logs.items()}


def _backlog(plan: Plan, run: Run, hour: int) -> Floats:
    """Return the deferrable requests that wait when an hour begins: arrived before, neither served nor shed."""
    waiting = np.zeros(len(plan.workloads))
    for window in run.windows:
        before = min(max(hour - window.first_hour, 0), window.nodes.shape[1])
        left = window.demand_requests - window.served_requests.sum(axis=0) - window.shed_requests
        waiting += left[:, :before].sum(axis=1)
    deferrable = np.array([workload.deadline_h > 0 for workload in plan.workloads])
    return np.where(deferrable, np.maximum(waiting, 0.0), 0.0)


def _breakdowns(run: Run, hour: int) -> tuple[Breakdown, ...]:
    """Return what goes down in an hour, and what is dark when it begins."""

    def seconds(time_h: float) -> float:
        return (time_h - hour) * SECONDS_PER_HOUR

    breakdowns = [
        Breakdown(
            cluster=outage.cluster,
            accelerators=outage.accelerators,
            start_s=seconds(outage.start_h),
            end_s=seconds(outage.end_h),
        )
        for outage in run.shop.outages()
        if hour < outage.start_h < hour + 1
    ]
    breakdowns += [
        Breakdown(cluster=None, accelerators=0, start_s=max(seconds(event.start_h), 0.0), end_s=seconds(event.end_h))
        for event in run.log.site
        if event.start_h < hour + 1 and event.end_h > hour
    ]
    return tuple(sorted(breakdowns, key=lambda breakdown: breakdown.start_s))


def _lengths(plan: Plan, services: Services, stands: Sequence[Stand], workload: int, month: int) -> Lengths:
    """Return how long a workload's requests are in a month, and how long they may be where it is served.

    Where no replica stands for it nobody asks how long they are: all are refused.
    """
    load = plan.workloads[workload]
    context, memory = math.inf, math.inf
    for stand in stands:
        if workload in stand.served:
            service = services[plan.clusters[stand.cluster].name, load.name]
            context = min(context, float(spec_of(service).shape.max_context))
            memory = min(memory, stand.times.kv_capacity_tokens)
    return Lengths(
        input_mean_tokens=float(load.input_tokens[month]),
        output_mean_tokens=float(load.output_tokens[month]),
        longest_tokens=math.floor(min(context, memory)) if math.isfinite(context) else _ANY_LENGTH,
        longest_is=f"{load.model} can attend to" if context <= memory else "one replica has memory for",
    )
