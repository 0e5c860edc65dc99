"""The inputs of a zoom into one hour of a replication: its replicas, requests and failures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from planner.physics.coefficients import Calibration
from planner.physics.replica import HANDOVER_S, price_replicas
from planner.plan.choice import Services
from planner.plan.placement import ROUNDING
from planner.plan.plan import Placement, Plan
from planner.records import record
from planner.requests.batching import StepTimes
from planner.requests.router import PrefillStage
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Length, Workload
from planner.units import SECONDS_PER_HOUR

_ANY_LENGTH = 1 << 40
"""Tokens: no request is longer."""


@record
class Breakdown:
    """Accelerators that fail within the hour."""

    cluster: int | None
    """None for the whole site."""
    accelerators: int
    start_s: float
    end_s: float


@record
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
    scenario: Scenario, plan: Plan, run: Run, moment: datetime
) -> tuple[int, WindowInput, WindowResult]:
    """Return the hour of the horizon that contains a time, and its window; raise ScenarioError outside the horizon."""
    start = datetime.combine(plan.start, time())
    elapsed_s = (moment - start).total_seconds()
    hour = math.floor(elapsed_s / SECONDS_PER_HOUR)
    if not 0 <= hour < plan.hours:
        end = start + timedelta(hours=plan.hours - 1)
        message = f"{moment:%Y-%m-%dT%H:%M} lies outside the horizon of {scenario.name}"
        hint = f"from {start:%Y-%m-%dT%H:%M} to {end:%Y-%m-%dT%H:%M}"
        raise ScenarioError(Problem(path="--at", message=message, hint=hint))
    # Windows follow one another and cover the horizon: exactly one has the hour.
    windows = zip(run.inputs, run.windows, strict=True)
    return hour, *next(pair for pair in windows if pair[0].hours.start <= hour < pair[0].hours.stop)


def hour_at(scenario: Scenario, plan: Plan, run: Run, services: Services, moment: datetime) -> Hour:
    """Return the hour that contains a moment, as one replication simulated it."""
    hour, window_input, window = window_of(scenario, plan, run, moment)
    column = hour - window.first_hour
    months_begun = int(np.searchsorted(plan.month_edges_h, hour, side="right"))
    month = months_begun - 1
    nodes = _nodes_in_service(plan, run, hour)
    for cluster in run.offers:
        # Of what is rented by the hour, only what has started is there.
        started_nodes = round(window_input.nodes[cluster, column])
        nodes[cluster] = min(nodes[cluster], started_nodes)
    if not np.any(nodes > 0.0):
        next_nodes = _next_nodes(plan, run, hour)
        message = f"no machine is in service at {moment:%Y-%m-%dT%H:%M}: {next_nodes}"
        raise ScenarioError(Problem(path="--at", message=message))
    # Nodes that the power cap throttles have no power, and carry no replica.
    powered_nodes = np.maximum(nodes - window.throttled_nodes[:, column], 0.0)
    fleet = _FleetHour(
        scenario=scenario,
        plan=plan,
        window=window,
        services=services,
        column=column,
        month=month,
        nodes=powered_nodes,
        speeds=_software_speeds(run, hour),
        held=_held_by_group(plan, hour, window),
    )
    groups = fleet.replica_groups()
    served = window.served_requests[:, :, column]
    # Requests that go to another provider's API by contract: no machine of the fleet sees them.
    is_elsewhere = [cluster.api is not None and cluster.api.serves_all for cluster in plan.clusters]
    sent_elsewhere = served[is_elsewhere].sum(axis=0)
    demand = window.demand_requests[:, column] - sent_elsewhere
    served_here = served.sum(axis=0) - sent_elsewhere
    lengths = tuple(fleet.lengths(w, groups) for w in range(len(plan.workloads)))
    return Hour(
        replica_groups=groups,
        breakdowns=_breakdowns(run, hour),
        demand_requests_per_s=demand / SECONDS_PER_HOUR,
        backlog_requests=_backlog(plan, run, hour),
        lengths=lengths,
        served_fraction=ratio(served_here, demand),
        late_fraction=ratio(window.late_requests[:, column], demand),
        shed_fraction=ratio(window.shed_requests[:, column], demand),
        utilisation_fraction=ratio(window.busy_nodes[:, column], window.nodes[:, column]),
    )


def _nodes_in_service(plan: Plan, run: Run, hour: int) -> Floats:
    """Return the nodes in service when an hour begins, shape (clusters,)."""
    nodes = np.zeros(len(plan.clusters))
    per_node = [cluster.accelerators_per_node for cluster in plan.clusters]
    for change in run.log.changes:
        if change.time_h <= hour:
            nodes[change.cluster] += change.accelerators / per_node[change.cluster]
    for outage in run.shop.outages():
        if outage.start_h <= hour < outage.end_h:
            nodes[outage.cluster] -= outage.accelerators / per_node[outage.cluster]
    # A cluster that was retired with nodes in repair would have fewer than none.
    return np.maximum(nodes, 0.0)


def _next_nodes(plan: Plan, run: Run, hour: int) -> str:
    """Return in words when a fleet without a node has its first."""
    starts_h = (change.time_h for change in run.log.changes)
    start_h = min(starts_h, default=math.inf)
    if start_h <= hour:
        return "none is left"
    if start_h >= plan.hours:
        return "none comes"
    start = datetime.combine(plan.start, time())
    delivery = start + timedelta(hours=start_h)
    return f"the first come at {delivery:%Y-%m-%dT%H:%M}"


def _software_speeds(run: Run, hour: int) -> dict[tuple[int, int], float]:
    """Return the speed of a cluster on a workload against day one, where software has changed it."""
    log_speeds: dict[tuple[int, int], float] = {}
    for speed in run.log.speeds():
        if speed.time_h <= hour:
            pair = (speed.cluster, speed.workload)
            # Logarithms add where factors multiply: several releases may have come.
            log_speeds[pair] = log_speeds.get(pair, 0.0) + speed.log_factor
    return {pair: math.exp(log_speed) for pair, log_speed in log_speeds.items()}


def _breakdowns(run: Run, hour: int) -> tuple[Breakdown, ...]:
    """Return the failures that begin within an hour, and the site's outages that reach into it, by time."""
    breakdowns = [
        Breakdown(
            cluster=outage.cluster,
            accelerators=outage.accelerators,
            start_s=(outage.start_h - hour) * SECONDS_PER_HOUR,
            end_s=(outage.end_h - hour) * SECONDS_PER_HOUR,
        )
        for outage in run.shop.outages()
        # What failed before is not in service, and so not among the replicas.
        if hour < outage.start_h < hour + 1
    ]
    breakdowns += [
        Breakdown(
            cluster=None,
            accelerators=0,
            start_s=(max(event.start_h, hour) - hour) * SECONDS_PER_HOUR,
            end_s=(event.end_h - hour) * SECONDS_PER_HOUR,
        )
        for event in run.log.site
        if event.start_h < hour + 1 and event.end_h > hour
    ]
    return tuple(sorted(breakdowns, key=lambda breakdown: breakdown.start_s))


def _backlog(plan: Plan, run: Run, hour: int) -> Floats:
    """Return the deferrable requests that arrived before an hour and were neither served nor shed."""
    waiting = np.zeros(len(plan.workloads))
    for window in run.windows:
        served = window.served_requests.sum(axis=0)
        queued = window.demand_requests - served - window.shed_requests
        hours_past = max(hour - window.first_hour, 0)
        waiting += queued[:, :hours_past].sum(axis=1)
    is_deferrable = np.array([workload.deadline_h > 0 for workload in plan.workloads])
    # Sums of differences may end a rounding below zero.
    return np.where(is_deferrable, np.maximum(waiting, 0.0), 0.0)


@record
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


@record
class _Tenant:
    """One layout of one model within a deployment."""

    deployment: int
    leader: int
    """The workload whose service says what a replica is."""
    accelerators: int
    served: tuple[int, ...]


@record
class _FleetHour:
    """The fleet of one hour, and what the hourly model makes of it."""

    scenario: Scenario
    plan: Plan
    window: WindowResult
    services: Services
    column: int
    """The hour's, within the window."""
    month: int
    nodes: Floats
    """In service and under power when the hour begins, shape (clusters,)."""
    speeds: Mapping[tuple[int, int], float]
    """Of a cluster on a workload against day one, where software has changed it."""
    held: Sequence[int]
    """The deployments that are there, one of each model and cluster."""

    def replica_groups(self) -> tuple[ReplicaGroup, ...]:
        """Return the replica groups in service, cluster by cluster."""
        calibration = self.scenario.load_calibration().calibration()
        groups: list[ReplicaGroup] = []
        for c, cluster in enumerate(self.plan.clusters):
            tenants = _tenants(self.plan, self.services, c, self.held)
            rates = self._requests_per_node_h(c)
            busy_nodes = self._busy_nodes(c, tenants, rates)
            accelerators = float(self.nodes[c]) * cluster.accelerators_per_node
            shares = self._accelerator_shares(c, tenants, busy_nodes, accelerators)
            # Nodes are sums of fractions: a whole number of accelerators may come out a hair below.
            whole_accelerators = math.floor(accelerators + ROUNDING)
            counts = _whole_replicas(tenants, shares, whole_accelerators)
            for tenant, busy, count in zip(tenants, busy_nodes, counts, strict=True):
                if count:
                    group = self._group(c, tenant, count, busy, rates, calibration)
                    groups.append(group)
        return tuple(groups)

    def _requests_per_node_h(self, c: int) -> list[float]:
        """Return what a node of a cluster serves in an hour, by workload, at the speed its software has now."""
        by_month = self.plan.requests_per_node_h[c]
        # A table that does not change over the months has one column for all.
        month = self.month if by_month.shape[1] > 1 else 0
        rates = []
        for w, rate in enumerate(by_month[:, month].tolist()):
            pool_speed = 1.0
            if self.plan.placement is not None:
                held = [self.plan.placement.deployments[d] for d in self.held]
                pools = [
                    one.pool_speed[w] for one in held if one.cluster == c and w in one.pool_speed
                ]
                # Where it is not served in a pool of its own it has the plan's figure.
                pool_speed = min(pools, default=1.0)
            rates.append(rate * pool_speed * self.speeds.get((c, w), 1.0))
        return rates

    def _busy_nodes(
        self, c: int, tenants: Sequence[_Tenant], rates: Sequence[float]
    ) -> list[float]:
        """Return the nodes that the hourly model's work takes, by layout.

        Where the model gives a cluster nothing to do, the hour's demand says what it would need.
        """
        workloads = self.plan.workloads
        busy = [0.0] * len(tenants)
        served = self.window.served_requests[c, :, self.column]
        work = self.window.demand_requests[:, self.column]
        if served.sum() > 0.0:
            work = served
        # Work that can wait comes last: it goes with the layouts it shares, by what they already have.
        in_order = sorted(range(len(workloads)), key=lambda w: workloads[w].deadline_h > 0)
        for w in in_order:
            homes = [place for place, tenant in enumerate(tenants) if w in tenant.served]
            if not homes or rates[w] <= 0.0 or work[w] <= 0.0:
                continue
            weights = [busy[place] for place in homes]
            if not sum(weights):
                weights = [1.0] * len(homes)
            for place, weight in zip(homes, weights, strict=True):
                nodes_needed = float(work[w]) / rates[w]
                busy[place] += nodes_needed * weight / sum(weights)
        return busy

    def _accelerator_shares(
        self, c: int, tenants: Sequence[_Tenant], busy: Sequence[float], accelerators: float
    ) -> list[float]:
        """Return the accelerators of each layout: those placed where whole replicas count, else by the work."""
        placement = self.plan.placement
        if placement is None or not placement.placed[c]:
            total = sum(busy)
            # Without work no layout has a claim: the cluster stands idle.
            return [accelerators * nodes / total if total > 0.0 else 0.0 for nodes in busy]
        shares = []
        for place, tenant in enumerate(tenants):
            deployment = placement.deployments[tenant.deployment]
            # Models that share accelerators have them by their work.
            sharing = [
                nodes
                for nodes, neighbour in zip(busy, tenants, strict=True)
                if neighbour.deployment == tenant.deployment
            ]
            part = 1.0 / len(sharing)
            if sum(sharing) > 0.0:
                part = busy[place] / sum(sharing)
            replicas = float(self.window.replicas[tenant.deployment, self.column])
            per_node = self.plan.clusters[c].accelerators_per_node
            shares.append(replicas * deployment.nodes_per_replica * per_node * part)
        # Of what is down when the hour begins all have less.
        scale = 0.0
        if sum(shares) > 0.0:
            scale = min(accelerators / sum(shares), 1.0)
        return [share * scale for share in shares]

    def _group(
        self,
        c: int,
        tenant: _Tenant,
        replicas: int,
        busy_nodes: float,
        rates: Sequence[float],
        calibration: Calibration,
    ) -> ReplicaGroup:
        """Return the replicas of one layout on one cluster."""
        cluster = self.plan.clusters[c]
        leader = self.plan.workloads[tenant.leader]
        service = self.services[cluster.name, leader.name]
        pair = (c, tenant.leader)
        speed = service.speed * self.speeds.get(pair, 1.0)
        has_host = False
        if service.cache is not None:
            speed *= service.cache.speed
            has_host = service.cache.has_host
        # What accelerators that several models share do over what they do for one model alone.
        deployed_speed = 1.0
        if self.plan.placement is not None:
            deployed_speed = self.plan.placement.deployments[tenant.deployment].speed
        nodes_per_replica = tenant.accelerators / cluster.accelerators_per_node
        # Requests an hour of a node, as requests a second of a replica.
        share = nodes_per_replica / SECONDS_PER_HOUR * deployed_speed
        prefill = None
        if service.prefill is not None:
            priced = price_replicas([service.prefill.spec], calibration)
            prefill = PrefillStage(
                times=StepTimes.of_replica(priced, 0, speed),
                replicas=service.prefill.spec.accelerators / tenant.accelerators,
                share=service.prefill.share,
                transfer_s_per_token=service.prefill.transfer_s_per_token,
                handover_s=HANDOVER_S,
            )
        pace_s = {}
        for w in tenant.served:
            name = self.plan.workloads[w].name
            own_service = self.services[cluster.name, name]
            # Objectives do not move with software: the pace is that of day one.
            pace_s[w] = own_service.admission_tpot_s / own_service.speed
        priced = price_replicas([service.spec], calibration)
        replicas_per_node = cluster.accelerators_per_node // tenant.accelerators
        return ReplicaGroup(
            cluster=c,
            model=leader.model,
            accelerators=tenant.accelerators,
            replicas_per_node=max(replicas_per_node, 1),
            replicas=replicas,
            busy_nodes=busy_nodes,
            times=StepTimes.of_replica(priced, 0, speed, has_host=has_host),
            prefill=prefill,
            served=tenant.served,
            pace_s=pace_s,
            capacity_requests_per_s={w: rates[w] * share for w in tenant.served},
        )

    def lengths(self, w: int, groups: Sequence[ReplicaGroup]) -> RequestLengths:
        """Return how long the requests of a workload are, and may be where it is served."""
        workload = self.plan.workloads[w]
        serving = [group for group in groups if w in group.served]
        context = math.inf
        memory = math.inf
        for group in serving:
            name = self.plan.clusters[group.cluster].name
            spec = self.services[name, workload.name].spec
            model_context = float(spec.shape.max_context_tokens)
            context = min(context, model_context)
            memory = min(memory, group.times.kv_capacity_tokens)
        is_context = context <= memory
        room_tokens = _ANY_LENGTH
        if serving:
            room_tokens = math.floor(min(context, memory))
        return RequestLengths(
            workload=workload.name,
            input_mean_tokens=float(workload.input_tokens[self.month]),
            output_mean_tokens=float(workload.output_tokens[self.month]),
            # Where no replica serves it, all its requests are refused, whatever their lengths.
            longest_tokens=room_tokens,
            limit=f"{workload.model} can attend to" if is_context else "one replica has memory for",
        )


def held_deployments(placement: Placement, hour: int, window: WindowResult) -> list[int]:
    """Return the deployment of each model and cluster that is there in an hour, or would be."""
    column = hour - window.first_hour
    held = []
    for group in placement.groups:
        resident = [d for d in group if window.replicas[d, column] > 0.0]
        held.append(resident[0] if resident else group[0])
    return held


def _held_by_group(plan: Plan, hour: int, window: WindowResult) -> list[int]:
    if plan.placement is None:
        return []
    return held_deployments(plan.placement, hour, window)


def _tenants(plan: Plan, services: Services, cluster: int, held: Sequence[int]) -> list[_Tenant]:
    """Return the layouts in a cluster's deployments; deferrable work runs on any layout of its model."""
    tenants = []
    name = plan.clusters[cluster].name
    deployments = plan.placement.deployments if plan.placement is not None else ()
    for d in held:
        deployment = deployments[d]
        if deployment.cluster != cluster:
            continue
        layouts: dict[tuple[object, ...], list[int]] = {}
        # The highest priority leads: its service says what a replica of the layout is.
        by_priority = sorted(deployment.workloads, key=lambda w: (plan.workloads[w].priority, w))
        for w in by_priority:
            if w not in deployment.waiting_speed:
                workload = plan.workloads[w]
                service = services[name, workload.name]
                layout = (workload.model, service.spec.layout, service.prefill is None)
                layouts.setdefault(layout, []).append(w)
        for members in layouts.values():
            leader = plan.workloads[members[0]]
            deferrable = [
                w for w in deployment.waiting_speed if plan.workloads[w].model == leader.model
            ]
            tenants.append(
                _Tenant(
                    deployment=d,
                    leader=members[0],
                    accelerators=services[name, leader.name].tensor_parallel,
                    served=tuple(sorted({*members, *deferrable})),
                )
            )
    return tenants


def _whole_replicas(
    tenants: Sequence[_Tenant], shares: Sequence[float], accelerators: int
) -> list[int]:
    """Return the number of whole replicas per layout: rounded down, then one where none, then largest remainders.

    Of models that share accelerators each has one at the least: they take turns.
    """
    sizes = [tenant.accelerators for tenant in tenants]
    pairs = zip(shares, sizes, strict=True)
    exact = [share / size for share, size in pairs]
    counts = [math.floor(replicas + ROUNDING) for replicas in exact]
    used = sum(count * size for count, size in zip(counts, sizes, strict=True))
    unused = accelerators - used
    deployments = [tenant.deployment for tenant in tenants]
    # Layouts without a replica come first, then those that were rounded down by most.
    order = sorted(
        range(len(tenants)), key=lambda place: (counts[place] > 0, counts[place] - exact[place])
    )
    for place in order:
        takes_turns = counts[place] == 0 and deployments.count(deployments[place]) > 1
        has_remainder = exact[place] - counts[place] > ROUNDING
        has_room = sizes[place] <= unused or takes_turns
        if has_remainder and has_room:
            counts[place] += 1
            unused -= sizes[place]
    return counts


Ints = NDArray[np.int64]
_MAX_BEYOND_FRACTION = 0.05
"""Share of drawn requests that may be longer than the model's context, before it is an error."""


@record
class Arrivals:
    """Requests of one workload in order of time; arrays of shape (requests,)."""

    times_s: Floats
    """Since the moment zoomed at; those of the minutes before it are below 0."""
    prompt_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    minute_factors: Floats
    """Rate of each minute over the hour's, from the first that is simulated, shape (minutes,)."""
    turns: Turns | None = None
    """Where the workload states its reuse."""


@record
class Turns:
    """To which session each of some requests belongs; arrays of shape (requests,)."""

    sessions: Ints
    shared_tokens: Ints
    """Of each prompt, those it shares with the turn before."""
    lots: Floats
    """In 0..1, by session: which pool of a group it is sent to."""

    def since(self, request: int) -> Turns:
        """Return those from a request on."""
        return Turns(
            sessions=self.sessions[request:],
            shared_tokens=self.shared_tokens[request:],
            lots=self.lots[request:],
        )


@record
class ZoomWindow:
    """The minutes simulated: warm-up, the minutes measured, and those after."""

    warm_up: int
    """Minutes before those that count, until batches are as full as the hour keeps them."""
    minutes: int
    """Minutes that count."""
    drain: int
    """Minutes after them, for their replies to end under the load they began in."""

    @property
    def all_minutes(self) -> int:
        """Total number of minutes simulated."""
        return self.warm_up + self.minutes + self.drain


@record
class RequestLengths:
    """Mean and longest request lengths of a workload in the month of a zoom."""

    workload: str
    input_mean_tokens: float
    output_mean_tokens: float
    longest_tokens: float
    """Prompt and output together that the model's context and one replica's memory hold."""
    limit: str
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
    # A stream for each purpose: another share of the fleet then draws other requests under the same bursts.
    minutes_stream = draw(f"zoom/{name}/minutes")
    factors = minute_factors(workload, requests_per_s, span, minutes_stream)
    generator = draw(f"zoom/{name}/arrivals")
    expected = requests_per_s * share * BURST_S * factors
    counts = generator.poisson(expected)
    minutes = np.arange(counts.size) - span.warm_up
    minute = np.repeat(minutes, counts)
    # Within a minute arrivals are Poisson: their number drawn, their times are uniform.
    within_minute = generator.random(minute.size)
    times_s = np.sort((minute + within_minute) * BURST_S)
    prompt, output = draw_lengths(workload, lengths, times_s.size, draw(f"zoom/{name}/lengths"))
    cached_tokens = np.floor(prompt * workload.prefix_cache_hit_fraction)
    cached = cached_tokens.astype(np.int64)
    return Arrivals(
        times_s=times_s,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        minute_factors=factors,
    )


def draw_lengths(
    workload: Workload, lengths: RequestLengths, size: int, generator: np.random.Generator
) -> tuple[Ints, Ints]:
    """Draw prompts and outputs of some requests, which the model's context and one replica's memory hold."""
    prompt = _draw_lengths(workload.lengths.input, lengths.input_mean_tokens, size, generator)
    output = _draw_lengths(workload.lengths.output, lengths.output_mean_tokens, size, generator)
    # A few beyond the limit are the tail of a fitted distribution, and are cut. More are a model that cannot serve it.
    beyond = prompt + output > lengths.longest_tokens
    if size and beyond.mean() > _MAX_BEYOND_FRACTION:
        message = f"{beyond.mean():.0%} of its requests are longer than the {lengths.longest_tokens:,.0f} tokens that "
        path = f"workloads.{lengths.workload}.lengths"
        raise ScenarioError(Problem(path=path, message=message + lengths.limit))
    # The output is cut to half first, so that a prompt of some length always remains.
    output = np.minimum(output, int(lengths.longest_tokens) // 2)
    prompt = np.minimum(prompt, int(lengths.longest_tokens) - output)
    return prompt, output


def minute_factors(
    workload: Workload, requests_per_s: float, span: ZoomWindow, generator: np.random.Generator
) -> Floats:
    """Return each minute's rate over the hour's, shape (minutes simulated,); measured minutes have mean 1."""
    all_equal = np.ones(span.all_minutes)
    if requests_per_s <= 0.0:
        return all_equal
    variance = workload.bursts.at(requests_per_s).minute_rate_cv ** 2
    if variance <= 0.0:
        return all_equal
    factors = generator.gamma(1.0 / variance, variance, span.all_minutes)
    # The hour's own demand is known: bursts move it between minutes, and not the sum.
    measured = factors[span.warm_up : span.warm_up + span.minutes]
    mean = measured.mean()
    if mean > 0.0:
        return np.asarray(factors / mean)
    return all_equal


def _draw_lengths(
    length: Length, mean_tokens: float, size: int, generator: np.random.Generator
) -> Ints:
    """Draw lengths from a distribution scaled to a mean."""
    scores = generator.standard_normal(size)
    scale = mean_tokens / length.mean
    tokens = length.distribution.at_scores(scores) * scale
    # Whole tokens, and one at the least: an empty request is none.
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
        client_share = log.clients / (log.clients.max() + 1)
        times_s = log.times_s + client_share * span.minutes * BURST_S
    replayed = np.flatnonzero(times_s < span.minutes * BURST_S)
    # Stable: requests of one time keep the order of the log.
    order = np.argsort(times_s[replayed], kind="stable")
    replayed = replayed[order]
    # Thinned at random: bursts and sessions of the log stay what they are.
    if share < 1.0:
        is_simulated = generator.random(replayed.size) < share
        replayed = replayed[is_simulated]
    prompt = np.maximum(np.rint(log.input_tokens[replayed]), 1.0)
    output = np.maximum(np.rint(log.output_tokens[replayed]), 1.0)
    is_beyond = prompt + output > lengths.longest_tokens
    beyond = np.flatnonzero(is_beyond)
    if beyond.size:
        longest = float((prompt + output)[beyond].max())
        message = (
            f"{beyond.size} of {replayed.size} requests are longer than the {lengths.longest_tokens:,.0f} tokens that "
            f"{lengths.limit}; the longest has {longest:,.0f}"
        )
        problem = Problem(
            path="--trace", message=message, hint="choose another model, or cut the log"
        )
        raise ScenarioError(problem)
    # The last token of a prompt is always computed: it gives the first of the reply.
    cached = np.zeros(replayed.size)
    if log.cached_tokens is not None:
        cached = np.minimum(log.cached_tokens[replayed], prompt - 1.0)
    minute = (times_s[replayed] // BURST_S).astype(np.int64)
    counts_by_minute = np.bincount(minute, minlength=span.minutes)
    by_minute = counts_by_minute[: span.minutes]
    counts = by_minute.astype(np.float64)
    factors = np.ones(span.minutes)
    if counts.sum():
        factors = counts / counts.mean()
    return Arrivals(
        times_s=times_s[replayed],
        prompt_tokens=prompt.astype(np.int64),
        cached_tokens=np.maximum(cached, 0.0).astype(np.int64),
        output_tokens=output.astype(np.int64),
        minute_factors=factors,
    )
