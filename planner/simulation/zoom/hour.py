"""The fleet as it stands in one hour of one replication: which replicas serve which model, how fast, and what fails.

The hourly model moves nodes between models from hour to hour; here they stand still for the hour. Each cluster's nodes
are divided among the replicas it needs in proportion to the work that the hourly model gives them, spare nodes too.
Replicas are those of the hourly model: one layout for each workload, shared by the workloads of one model that have
the same; deferrable work takes whatever replicas of its model there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta

import numpy as np

from planner.arrays import Floats
from planner.compile.in_time import traffic_of
from planner.compile.service import Service
from planner.errors import ConservationError, Problem, ScenarioError
from planner.fleet.hourly import WindowInput, WindowResult
from planner.fleet.plan import Plan
from planner.fleet.sizes import at_sizes
from planner.language.scenario import Scenario
from planner.physics.coefficients import Calibration
from planner.physics.operating import at_objective
from planner.physics.replica import Replicas, ReplicaSpec, price_replicas
from planner.simulation.driver import Run
from planner.simulation.zoom.arrivals import Lengths
from planner.simulation.zoom.steps import StepTimes
from planner.units import SECONDS_PER_HOUR

Services = dict[tuple[str, str], Service]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Replicas of one layout of one model on one cluster."""

    cluster: int
    model: str
    accelerators: int
    """Of one replica."""
    replicas_per_node: int
    replicas: int
    """In service at the beginning of the hour, on the whole cluster."""
    busy_nodes: float
    """Node-equivalents that the hourly model's work for it takes."""
    times: StepTimes
    served: tuple[int, ...]
    """Workloads it may serve."""
    most_sequences: dict[int, float]
    """By workload, requests on one replica at which the mean time per token is just the objective."""
    pace_s: dict[int, float]
    """By workload, the mean time per token up to which a router that refuses takes requests."""
    preferred_sequences: dict[int, float]
    """The same at the utilisation up to which the policy fills a cluster before the next."""


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
    speeds = _speeds(run, hour)
    stands = _stands(scenario, plan, window, services, (place, month, healthy, speeds))
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


Place = tuple[int, int, Floats, dict[tuple[int, int], float]]
"""An hour within its window, its month, healthy nodes by cluster, and speeds."""


def _stands(
    scenario: Scenario, plan: Plan, window: WindowResult, services: Services, place: Place
) -> tuple[Stand, ...]:
    """Divide each cluster's nodes among the replicas that the hour's work needs."""
    calibration = scenario.load_calibration().calibration()
    stands = []
    for c, cluster in enumerate(plan.clusters):
        work = _work(plan, window, services, c, place)
        total = sum(work.values())
        for (model, accelerators), nodes in sorted(work.items()):
            served = tuple(_served(plan, services, c, (model, accelerators), work))
            leader = min(
                served,
                key=lambda w: (_layout(plan, services, c, w) != (model, accelerators), plan.workloads[w].priority, w),
            )
            service = services[cluster.name, plan.workloads[leader].name]
            share = place[2][c] * nodes / total
            per_node = service.accelerators_per_node // accelerators
            count = round(share * per_node)
            if count:
                stand = Stand(
                    cluster=c,
                    model=model,
                    accelerators=accelerators,
                    replicas_per_node=per_node,
                    replicas=count,
                    busy_nodes=nodes,
                    times=_times(service, place[3].get((c, leader), 1.0), calibration),
                    served=served,
                    most_sequences={},
                    pace_s={w: _pace_s(plan, services, c, w) for w in served},
                    preferred_sequences={},
                )
                stands.append(_with_sequences(scenario, plan, stand, service, calibration))
    return tuple(stands)


def _layout(plan: Plan, services: Services, cluster: int, workload: int) -> tuple[str, int] | None:
    """Return the model and accelerators per replica by which a cluster serves a workload."""
    service = services.get((plan.clusters[cluster].name, plan.workloads[workload].name))
    return None if service is None else (plan.workloads[workload].model, service.tensor_parallel)


def _work(
    plan: Plan, window: WindowResult, services: Services, cluster: int, place: Place
) -> dict[tuple[str, int], float]:
    """Return the nodes that each layout keeps busy on a cluster, deferrable work with the layouts it shares.

    Where the hourly model gives a cluster nothing to do, what the hour's demand would need there.
    """
    hour, month, _, speeds = place
    table = plan.requests_per_node_h
    work: dict[tuple[str, int], float] = {}
    deferred: dict[tuple[str, int], float] = {}
    served = window.served_requests[cluster, :, hour]
    wanted = served if served.sum() > 0.0 else window.demand_requests[:, hour]
    for w, workload in enumerate(plan.workloads):
        layout = _layout(plan, services, cluster, w)
        rate = float(table[cluster, w, month if table.shape[2] > 1 else 0]) * speeds.get((cluster, w), 1.0)
        if layout is None or rate <= 0.0 or wanted[w] <= 0.0:
            continue
        kept = deferred if workload.deadline_h else work
        kept[layout] = kept.get(layout, 0.0) + float(wanted[w]) / rate
    for (model, accelerators), nodes in deferred.items():
        sharing = {layout: busy for layout, busy in work.items() if layout[0] == model}
        if not sharing:
            work[model, accelerators] = nodes
        for layout, busy in sharing.items():
            work[layout] += nodes * busy / sum(sharing.values())
    return work


def _served(
    plan: Plan, services: Services, cluster: int, layout: tuple[str, int], work: dict[tuple[str, int], float]
) -> list[int]:
    """Return the workloads that replicas of a layout serve."""
    served = []
    for w, workload in enumerate(plan.workloads):
        at_home = _layout(plan, services, cluster, w)
        if (
            at_home is not None
            and at_home[0] == layout[0]
            and (at_home == layout or workload.deadline_h or at_home not in work)
        ):
            served.append(w)
    return served


def spec_of(service: Service) -> ReplicaSpec:
    """Return the replica that serves a workload."""
    if service.spec is None:
        raise ConservationError("a service without a replica")
    return service.spec


def _times(service: Service, speed: float, calibration: Calibration) -> StepTimes:
    return StepTimes.of(price_replicas([spec_of(service)], calibration), 0, service.speed * speed)


def _pace_s(plan: Plan, services: Services, cluster: int, workload: int) -> float:
    """Return the mean time per token up to which a router that refuses takes requests, at its day-one speed."""
    service = services[plan.clusters[cluster].name, plan.workloads[workload].name]
    return service.held_tpot_s / service.speed


def _with_sequences(scenario: Scenario, plan: Plan, stand: Stand, service: Service, calibration: Calibration) -> Stand:
    """Add the requests per replica at the objective, and at the load up to which the policy fills a cluster.

    With t(n) = a + b·n a replica finishes n / t(n) requests' tokens a second; a share u of its most, N / t(N), is
    reached at n = u·N·a / (t(N) − u·N·b).
    """
    replicas: Replicas = price_replicas([spec_of(service)], calibration)
    most, preferred = {}, {}
    for w in stand.served:
        workload = scenario.workloads[plan.workloads[w].name]
        allowed_s = workload.slo.tpot_s
        slower = stand.times.fixed_s / float(replicas.fixed_s[0])
        point = at_objective(replicas, np.zeros(1, dtype=np.intp), traffic_of(workload), np.inf, allowed_s / slower)
        sequences = max(float(point.running_sequences[0]), 1.0)
        step_s = float(point.tpot_s[0]) if math.isfinite(float(point.tpot_s[0])) else allowed_s
        fixed_s = min(float(replicas.fixed_s[0] + replicas.routed_s[0]), step_s)
        share = plan.preferred_utilisation
        most[w] = sequences
        preferred[w] = share * sequences * fixed_s / max(step_s - share * (step_s - fixed_s), 1e-12)
    return replace(stand, most_sequences=most, preferred_sequences=preferred)


def _lengths(plan: Plan, services: Services, stands: Sequence[Stand], workload: int, month: int) -> Lengths:
    """Return how long a workload's requests are in a month, and how long they may be where it is served."""
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
        longest_tokens=math.floor(min(context, memory)) if math.isfinite(context) else 0,
        longest_is=f"{load.model} can attend to" if context <= memory else "one replica has memory for",
    )
