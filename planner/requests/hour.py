"""The inputs of a zoom into one hour of a replication: its replicas, requests and failures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.demand.bursts import BURST_S
from planner.demand.tokens import RequestLog
from planner.engine.driver import Run
from planner.engine.hourly import WindowInput, WindowResult
from planner.engine.log import Streams
from planner.errors import Problem, ScenarioError
from planner.finance.present_value import ratio
from planner.physics.replica import price_replicas
from planner.plan.capacity import Services
from planner.plan.placement import ROUNDING
from planner.plan.plan import Plan
from planner.plan.sizes import at_sizes
from planner.requests.batching import StepTimes
from planner.requests.router import PrefillStage
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Length, Workload
from planner.units import SECONDS_PER_HOUR

_ANY_LENGTH = 1 << 40  # tokens: no request is longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Accelerators that fail within the hour."""

    cluster: int | None
    """None for the whole site."""
    accelerators: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """Replicas, failures, demand and lengths of one hour."""

    replica_groups: tuple[ReplicaGroup, ...]
    breakdowns: tuple[Breakdown, ...]
    demand_requests_per_s: Floats
    """Shape (workloads,)."""
    backlog_requests: Floats
    """Deferrable requests that wait at the beginning of the hour, shape (workloads,)."""
    lengths: tuple[RequestLengths, ...]
    """By workload."""
    served_fraction: Floats
    """Requests that the hourly model serves over those that arrive, shape (workloads,)."""
    late_fraction: Floats
    """Of those that arrive, those it serves late, shape (workloads,)."""
    shed_fraction: Floats
    utilisation_fraction: Floats
    """Node-hours at work over node-hours in service, shape (clusters,); NaN where there are none."""


def window_of(
    scenario: Scenario, plan: Plan, run: Run, at: datetime
) -> tuple[int, WindowInput, WindowResult]:
    """Return the hour of the horizon that contains a time, and its window; raise ScenarioError outside the horizon."""
    start = datetime.combine(plan.start, time())
    hour = math.floor((at - start).total_seconds() / SECONDS_PER_HOUR)
    if not 0 <= hour < plan.hours:
        last = start + timedelta(hours=plan.hours - 1)
        message = f"{at:%Y-%m-%dT%H:%M} lies outside the horizon of {scenario.name}"
        hint = f"from {start:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M}"
        raise ScenarioError(Problem(path="--at", message=message, hint=hint))
    windows = zip(run.inputs, run.windows, strict=True)
    return hour, *next(pair for pair in windows if pair[0].hours.start <= hour < pair[0].hours.stop)


def hour_at(scenario: Scenario, plan: Plan, run: Run, services: Services, at: datetime) -> Hour:
    """Return the hour that contains a time, as one replication simulated it."""
    hour, given, window = window_of(scenario, plan, run, at)
    plan = at_sizes(plan, given.sizes)
    place = hour - window.first_hour
    month = int(np.searchsorted(plan.month_edges_h, hour, side="right")) - 1
    outages = run.shop.outages()  # in service when the hour begins
    nodes = np.zeros(len(plan.clusters))
    for change in run.log.changes:
        if change.time_h <= hour:
            nodes[change.cluster] += (
                change.accelerators / plan.clusters[change.cluster].accelerators_per_node
            )
    for outage in outages:
        if outage.start_h <= hour < outage.end_h:
            nodes[outage.cluster] -= (
                outage.accelerators / plan.clusters[outage.cluster].accelerators_per_node
            )
    nodes = np.maximum(nodes, 0.0)
    for c in run.offers:  # of what is rented by the hour, what is held and has started
        nodes[c] = min(nodes[c], round(given.nodes[c, place]))
    if not np.any(nodes > 0.0):
        first = min((change.time_h for change in run.log.changes), default=math.inf)
        later = "none is left" if first <= hour else "none comes"
        if hour < first < plan.hours:
            come = datetime.combine(plan.start, time()) + timedelta(hours=first)
            later = f"the first come at {come:%Y-%m-%dT%H:%M}"
        raise ScenarioError(
            Problem(
                path="--at", message=f"no machine is in service at {at:%Y-%m-%dT%H:%M}: {later}"
            )
        )
    off = window.throttled_nodes[:, place]  # what the power cap takes has no power
    logs: dict[
        tuple[int, int], float
    ] = {}  # of speed against day one, where software has changed it
    for speed in run.log.speeds():
        if speed.time_h <= hour:
            pair = (speed.cluster, speed.workload)
            logs[pair] = logs.get(pair, 0.0) + speed.log_factor
    speeds = {pair: math.exp(factor) for pair, factor in logs.items()}
    groups = _replica_groups(
        scenario, plan, window, services, (place, month), np.maximum(nodes - off, 0.0), speeds
    )

    def breakdown(
        cluster: int | None, accelerators: int, start_h: float, end_h: float
    ) -> Breakdown:
        start_s, end_s = ((time_h - hour) * SECONDS_PER_HOUR for time_h in (start_h, end_h))
        return Breakdown(cluster=cluster, accelerators=accelerators, start_s=start_s, end_s=end_s)

    failing = [outage for outage in outages if hour < outage.start_h < hour + 1]
    dark = [event for event in run.log.site if event.start_h < hour + 1 and event.end_h > hour]
    breakdowns = [breakdown(o.cluster, o.accelerators, o.start_h, o.end_h) for o in failing]
    breakdowns += [breakdown(None, 0, max(event.start_h, hour), event.end_h) for event in dark]
    waiting = np.zeros(len(plan.workloads))  # arrived before the hour, neither served nor shed
    for other in run.windows:
        left = other.demand_requests - other.served_requests.sum(axis=0) - other.shed_requests
        waiting += left[:, : max(hour - other.first_hour, 0)].sum(axis=1)
    deferrable = np.array([workload.deadline_h > 0 for workload in plan.workloads])
    lengths = []
    for w, load in enumerate(plan.workloads):
        # How long requests may be where it is served; where no replica stands for it, all are refused anyway.
        serving = [group for group in groups if w in group.served]
        specs = [services[plan.clusters[group.cluster].name, load.name].spec for group in serving]
        context = min((float(spec.shape.max_context_tokens) for spec in specs), default=math.inf)
        memory = min((group.times.kv_capacity_tokens for group in serving), default=math.inf)
        lengths.append(
            RequestLengths(
                input_mean_tokens=float(load.input_tokens[month]),
                output_mean_tokens=float(load.output_tokens[month]),
                longest_tokens=math.floor(min(context, memory)) if serving else _ANY_LENGTH,
                longest_is=f"{load.model} can attend to"
                if context <= memory
                else "one replica has memory for",
            )
        )
    served = window.served_requests[:, :, place]
    apis = [cluster.api for cluster in plan.clusters]
    sent = served[[api is not None and api.serves_all for api in apis]].sum(
        axis=0
    )  # no machine sees it
    demand = window.demand_requests[:, place] - sent
    return Hour(
        replica_groups=groups,
        breakdowns=tuple(sorted(breakdowns, key=lambda breakdown: breakdown.start_s)),
        demand_requests_per_s=demand / SECONDS_PER_HOUR,
        backlog_requests=np.where(deferrable, np.maximum(waiting, 0.0), 0.0),
        lengths=tuple(lengths),
        served_fraction=ratio(served.sum(axis=0) - sent, demand),
        late_fraction=ratio(window.late_requests[:, place], demand),
        shed_fraction=ratio(window.shed_requests[:, place], demand),
        utilisation_fraction=ratio(window.busy_nodes[:, place], window.nodes[:, place]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
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
    prefill: PrefillStage | None
    """Where prompts are prefilled by accelerators of their own, those."""
    served: tuple[int, ...]
    """Workloads it may serve."""
    pace_s: dict[int, float]
    """By workload, the mean time per token up to which a router that refuses takes requests."""
    capacity_requests_per_s: dict[int, float]
    """By workload, what one replica sustains by the hourly model; 0 where it has outgrown its objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tenant:
    """One layout of one model within a deployment."""

    deployment: int
    leader: int
    """The workload whose service says what a replica is."""
    accelerators: int
    served: tuple[int, ...]


def _replica_groups(
    scenario: Scenario,
    plan: Plan,
    window: WindowResult,
    services: Services,
    at: tuple[int, int],
    nodes: Floats,
    speeds: Mapping[tuple[int, int], float],
) -> tuple[ReplicaGroup, ...]:
    """Return the replica groups in service in an hour, cluster by cluster.

    ``nodes`` are those in service when it begins, shape (clusters,), and ``speeds`` those of a cluster on a workload
    against day one, where software has changed them. Work that can wait goes with the layouts it shares; where the
    hourly model gives a cluster nothing to do, the hour's demand says what it would need. Accelerators are those placed
    where whole replicas count, else go by the work; models that share some have them by their work.
    """
    calibration = scenario.load_calibration().calibration()
    placement = plan.placement
    (hour, month) = at
    table = plan.requests_per_node_h[:, :, month if plan.requests_per_node_h.shape[2] > 1 else 0]
    groups: list[ReplicaGroup] = []
    for c, cluster in enumerate(plan.clusters):
        per_node = cluster.accelerators_per_node
        tenants = _tenants(plan, services, c)
        rates = [float(table[c, w]) * speeds.get((c, w), 1.0) for w in range(len(plan.workloads))]
        busy = [0.0] * len(tenants)
        served = window.served_requests[c, :, hour]
        work = served if served.sum() > 0.0 else window.demand_requests[:, hour]
        for w in sorted(range(len(plan.workloads)), key=lambda w: plan.workloads[w].deadline_h > 0):
            homes = [place for place, tenant in enumerate(tenants) if w in tenant.served]
            if homes and rates[w] > 0.0 and work[w] > 0.0:
                weights = [busy[place] for place in homes]
                weights = weights if sum(weights) else [1.0] * len(homes)
                for place, weight in zip(homes, weights, strict=True):
                    busy[place] += float(work[w]) / rates[w] * weight / sum(weights)
        room = float(nodes[c]) * per_node
        wanted = []
        for place, tenant in enumerate(tenants):
            if placement is None or not placement.placed[c]:
                wanted.append(room * busy[place] / sum(busy) if sum(busy) > 0.0 else 0.0)
                continue
            sharing = [
                busy[n] for n, other in enumerate(tenants) if other.deployment == tenant.deployment
            ]
            part = busy[place] / sum(sharing) if sum(sharing) > 0.0 else 1.0 / len(sharing)
            replicas = float(window.replicas[tenant.deployment, hour])
            wanted.append(
                replicas
                * placement.deployments[tenant.deployment].nodes_per_replica
                * per_node
                * part
            )
        if (
            placement is not None and placement.placed[c]
        ):  # of what is down when the hour begins all have less
            scale = min(room / sum(wanted), 1.0) if sum(wanted) > 0.0 else 0.0
            wanted = [accelerators * scale for accelerators in wanted]
        counts = _whole_replicas(tenants, wanted, math.floor(room + ROUNDING))
        for tenant, busy_nodes, count in zip(tenants, busy, counts, strict=True):
            if not count:
                continue
            leader = plan.workloads[tenant.leader]
            service = services[cluster.name, leader.name]
            speed = service.speed * speeds.get((c, tenant.leader), 1.0)
            # What accelerators do over what they do for one model alone.
            deployed_speed = (
                1.0 if placement is None else placement.deployments[tenant.deployment].speed
            )
            share = tenant.accelerators / per_node / SECONDS_PER_HOUR * deployed_speed
            prefill = None
            if service.prefill is not None:
                prefill = PrefillStage(
                    times=StepTimes.of(
                        price_replicas([service.prefill.spec], calibration), 0, speed
                    ),
                    replicas=service.prefill.spec.accelerators / tenant.accelerators,
                    share=service.prefill.share,
                    transfer_s_per_token=service.prefill.transfer_s_per_token,
                )
            of = {w: services[cluster.name, plan.workloads[w].name] for w in tenant.served}
            groups.append(
                ReplicaGroup(
                    cluster=c,
                    model=leader.model,
                    accelerators=tenant.accelerators,
                    replicas_per_node=max(per_node // tenant.accelerators, 1),
                    replicas=count,
                    busy_nodes=busy_nodes,
                    times=StepTimes.of(price_replicas([service.spec], calibration), 0, speed),
                    prefill=prefill,
                    served=tenant.served,
                    pace_s={
                        w: other.held_tpot_s / other.speed for w, other in of.items()
                    },  # at its day-one speed
                    capacity_requests_per_s={w: rates[w] * share for w in tenant.served},
                )
            )
    return tuple(groups)


def _tenants(plan: Plan, services: Services, cluster: int) -> list[_Tenant]:
    """Return the layouts in a cluster's deployments; deferrable work runs on any layout of its model."""
    tenants = []
    for d, held in enumerate(plan.placement.deployments if plan.placement is not None else ()):
        if held.cluster != cluster:
            continue
        layouts: dict[tuple[object, ...], list[int]] = {}
        for w in sorted(held.workloads, key=lambda w: (plan.workloads[w].priority, w)):
            if w not in held.waiting_speed:
                load = plan.workloads[w]
                service = services[plan.clusters[cluster].name, load.name]
                layouts.setdefault(
                    (load.model, service.spec.layout, service.prefill is None), []
                ).append(w)
        for members in layouts.values():
            leader = plan.workloads[members[0]]
            waiting = [w for w in held.waiting_speed if plan.workloads[w].model == leader.model]
            served = tuple(sorted({*members, *waiting}))
            size = services[plan.clusters[cluster].name, leader.name].tensor_parallel
            tenants.append(
                _Tenant(deployment=d, leader=members[0], accelerators=size, served=served)
            )
    return tenants


def _whole_replicas(tenants: Sequence[_Tenant], wanted: Sequence[float], room: int) -> list[int]:
    """Return the number of whole replicas per layout: rounded down, then one where none, then largest remainders.

    Of models that share accelerators each has one at the least: they take turns.
    """
    exact = [
        accelerators / tenant.accelerators
        for accelerators, tenant in zip(wanted, tenants, strict=True)
    ]
    counts = [math.floor(replicas + ROUNDING) for replicas in exact]
    left = room - sum(
        count * tenant.accelerators for count, tenant in zip(counts, tenants, strict=True)
    )
    deployments = [tenant.deployment for tenant in tenants]
    for place in sorted(
        range(len(tenants)), key=lambda place: (counts[place] > 0, counts[place] - exact[place])
    ):
        takes_turns = counts[place] == 0 and deployments.count(deployments[place]) > 1
        if exact[place] - counts[place] > ROUNDING and (
            tenants[place].accelerators <= left or takes_turns
        ):
            counts[place] += 1
            left -= tenants[place].accelerators
    return counts


Ints = NDArray[np.int64]
_MOST_BEYOND_FRACTION = (
    0.05  # of drawn requests longer than the model's context, before it is an error
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests of one workload in order of time; arrays of shape (requests,)."""

    times_s: Floats
    """Since the moment zoomed at; those of the minutes before it are below 0."""
    prompt_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    minute_factors: Floats
    """Rate of each minute over the hour's, from the first that is simulated, shape (minutes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomWindow:
    """The minutes simulated: warm-up, the minutes measured, and those after."""

    before: int
    minutes: int
    after: int

    @property
    def all_minutes(self) -> int:
        """Total number of minutes simulated."""
        return self.before + self.minutes + self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLengths:
    """Mean and longest request lengths of a workload in the month of a zoom."""

    input_mean_tokens: float
    output_mean_tokens: float
    longest_tokens: float
    """Prompt and output together that the model's context and one replica's memory hold."""
    longest_is: str
    """Which of the two that is, in words."""


def draw_arrivals(
    workload: Workload,
    rates: tuple[float, float],
    lengths: RequestLengths,
    span: ZoomWindow,
    name: str,
    draw: Streams,
) -> Arrivals:
    """Draw a workload's requests for the simulated share of the fleet.

    ``rates`` are the requests a second of the whole fleet, and the share of them that is simulated. The streams are the
    workload's own, by its name, and the minutes' factors do not depend on the share simulated.
    """
    requests_per_s, share = rates
    factors = minute_factors(workload, requests_per_s, span, draw(f"zoom/{name}/minutes"))
    generator = draw(f"zoom/{name}/arrivals")
    counts = generator.poisson(requests_per_s * share * BURST_S * factors)
    minute = np.repeat(np.arange(counts.size) - span.before, counts)
    times_s = np.sort((minute + generator.random(minute.size)) * BURST_S)
    generator = draw(f"zoom/{name}/lengths")
    prompt = _drawn(workload.lengths.input, lengths.input_mean_tokens, times_s.size, generator)
    output = _drawn(workload.lengths.output, lengths.output_mean_tokens, times_s.size, generator)
    beyond = prompt + output > lengths.longest_tokens
    if times_s.size and beyond.mean() > _MOST_BEYOND_FRACTION:
        message = f"{beyond.mean():.0%} of its requests are longer than the {lengths.longest_tokens:,.0f} tokens that "
        raise ScenarioError(
            Problem(path=f"workloads.{name}.lengths", message=message + lengths.longest_is)
        )
    output = np.minimum(output, int(lengths.longest_tokens) // 2)
    prompt = np.minimum(prompt, int(lengths.longest_tokens) - output)
    cached = np.floor(prompt * workload.prefix_cache_hit_fraction).astype(np.int64)
    return Arrivals(
        times_s=times_s,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        minute_factors=factors,
    )


def minute_factors(
    workload: Workload, requests_per_s: float, span: ZoomWindow, generator: np.random.Generator
) -> Floats:
    """Return each minute's rate over the hour's, shape (minutes simulated,); measured minutes have mean 1."""
    variance = (
        workload.bursts.at(requests_per_s).minute_rate_cv ** 2 if requests_per_s > 0.0 else 0.0
    )
    if variance <= 0.0:
        return np.ones(span.all_minutes)
    factors = generator.gamma(1.0 / variance, variance, span.all_minutes)
    mean = factors[span.before : span.before + span.minutes].mean()
    return np.asarray(factors / mean if mean > 0.0 else np.ones(span.all_minutes))


def _drawn(length: Length, mean_tokens: float, size: int, generator: np.random.Generator) -> Ints:
    """Draw lengths from a distribution scaled to a mean."""
    tokens = length.distribution.at_scores(generator.standard_normal(size)) * (
        mean_tokens / length.mean
    )
    return np.maximum(np.rint(tokens), 1.0).astype(np.int64)


def replay(
    log: RequestLog,
    lengths: RequestLengths,
    span: ZoomWindow,
    share: float,
    generator: np.random.Generator,
) -> Arrivals:
    """Return the requests of a log from its first on, thinned to the simulated share of the fleet."""
    times_s = log.times_s - log.times_s[0]
    if not log.one_clock and log.clients is not None:
        # Every client's clock starts at zero: as nothing says when each began, they begin evenly over the minutes.
        times_s = log.times_s + log.clients / (log.clients.max() + 1) * span.minutes * BURST_S
    kept = np.flatnonzero(times_s < span.minutes * BURST_S)
    kept = kept[np.argsort(times_s[kept], kind="stable")]
    if share < 1.0:
        kept = kept[generator.random(kept.size) < share]
    prompt = np.maximum(np.rint(log.input_tokens[kept]), 1.0)
    output = np.maximum(np.rint(log.output_tokens[kept]), 1.0)
    beyond = np.flatnonzero(prompt + output > lengths.longest_tokens)
    if beyond.size:
        longest = float((prompt + output)[beyond].max())
        message = (
            f"{beyond.size} of {kept.size} requests are longer than the {lengths.longest_tokens:,.0f} tokens that "
            f"{lengths.longest_is}; the longest has {longest:,.0f}"
        )
        raise ScenarioError(
            Problem(path="--trace", message=message, hint="choose another model, or cut the log")
        )
    cached = np.zeros(kept.size)
    if log.cached_tokens is not None:
        cached = np.minimum(log.cached_tokens[kept], prompt - 1.0)
    minute = (times_s[kept] // BURST_S).astype(np.int64)
    counts = np.bincount(minute, minlength=span.minutes)[: span.minutes].astype(np.float64)
    return Arrivals(
        times_s=times_s[kept],
        prompt_tokens=prompt.astype(np.int64),
        cached_tokens=np.maximum(cached, 0.0).astype(np.int64),
        output_tokens=output.astype(np.int64),
        minute_factors=counts / counts.mean() if counts.sum() else np.ones(span.minutes),
    )
