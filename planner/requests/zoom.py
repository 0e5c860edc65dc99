"""One hour, request by request: the fleet of that hour, or a sample of it, under its own traffic.

A fleet of thousands of replicas sees millions of requests an hour. A sample takes a share of every group's replicas and
the same share of every workload's requests; its routers pool replicas as the scenario's do. What the sample leaves
open is printed as an interval.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import simpy

from planner.arrays import Floats
from planner.demand.bursts import BURST_S
from planner.demand.tokens import RequestLog
from planner.engine.dispatch import allowed_loads
from planner.engine.driver import run_plan
from planner.engine.log import Streams, streams
from planner.errors import ConservationError, Problem, ScenarioError
from planner.physics.prefix_cache import with_states, working_set
from planner.plan.build import build_plan
from planner.plan.choice import build_services
from planner.plan.deployments import Compiler, deployed_services
from planner.plan.plan import Plan
from planner.plan.reuse import Reuse
from planner.records import record
from planner.requests.batching import Request
from planner.requests.hour import (
    Arrivals,
    Breakdown,
    Hour,
    Turns,
    ZoomWindow,
    draw_arrivals,
    draw_lengths,
    held_deployments,
    hour_at,
    replay,
    window_of,
)
from planner.requests.router import Group, LatencySlo, ReplicaPool, RequestRouter
from planner.requests.sessions import (
    draw_sessions,
    most_seconds_before,
    seconds_before,
)
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR
from planner.validation import nearest

MIN_REPLICAS = 4
"""Replicas of the busiest group in a sample: fewer pool worse than a real router does."""
_CANDIDATE_SHARES = 400
"""Shares of the fleet among which the sample is chosen to suit whole replicas."""
_WARM_UP_MINUTES = 1
"""At the least, until batches are as full as the hour keeps them."""
_WARM_UP_REPLIES = 3.0
"""Mean replies that the warm-up lasts, where they take longer."""
_DRAIN_MINUTES = 4
"""At the least, for the longest replies of the last minute to end under the load they began in."""
_LONGEST_QUANTILE = 0.99
"""Of replies, which end within the drain at the pace of their objective."""
_BACKLOG_HOURS = 1.5
"""Hours of deferrable work that may lie ready: more than the hour can serve is not simulated."""
_BEFORE_ALL_S = 1e-6
"""Seconds before the first arrival at which the backlog is offered."""


@record
class ZoomRequest:
    """The time, length, seed and sample size of a zoom."""

    start: datetime
    minutes: int = 60
    seed: int | None = None
    replication: int = 0
    requests: int = 100_000
    """About how many requests to simulate, of all workloads and from the minutes before those that count on: a larger
    fleet is sampled, of whose busiest group a few replicas are the least."""
    log: RequestLog | None = None
    """Requests to replay in the place of one workload's."""
    log_workload: str | None = None
    """That workload; None: the first."""


@record
class Zoom:
    """The result of a zoom into one hour."""

    scenario: Scenario
    plan: Plan
    hour: Hour
    request: ZoomRequest
    seed: int
    share: float
    """Of the fleet and its traffic that was simulated, but for models of few replicas: each has one."""
    replicas: tuple[int, ...]
    """Simulated, by group."""
    slos: tuple[LatencySlo, ...]
    span: ZoomWindow
    arrivals: tuple[Arrivals, ...]
    """By workload."""
    requests: tuple[Request, ...]
    """Those that count, in order of arrival."""
    finished_s: tuple[Floats, ...]
    """By workload, when requests were finished in the minutes that count, whenever they arrived."""
    seconds: Floats
    """Requests waiting, sequences running and share of cache in use at every second, shape (seconds, groups, 3)."""
    utilisation_fraction: Floats
    """As the hour's, of what replicas were given to do and could not put off, shape (clusters,); NaN where none are."""
    counts: tuple[int, int, int, int]
    """Arrived, finished, refused and in flight at the end, those before and after the hour included."""


def simulate_zoom(scenario: Scenario, request: ZoomRequest) -> Zoom:
    """Simulate one hour of one replication, request by request."""
    reuse = Reuse(scenario)
    plan = build_plan(scenario, reuse)
    # The replicas' times are those by which the plan was compiled.
    services, _ = build_services(scenario, reuse, {})
    seed = plan.seed if request.seed is None else request.seed
    run = run_plan(plan, seed, request.replication)
    hour_number, _, window = window_of(scenario, plan, run, request.start)
    compiler = Compiler(scenario=scenario, plan=plan, services=services, factors={}, reuse=reuse)
    by_deployment = deployed_services(compiler)
    placement = plan.placement
    assert placement is not None  # a compiled plan has one
    # A model has the layout of the pool in which it is held.
    in_pools = dict(services)
    for d in held_deployments(placement, hour_number, window):
        cluster = plan.clusters[placement.deployments[d].cluster].name
        for w, service in by_deployment[d].items():
            in_pools[cluster, plan.workloads[w].name] = service
    hour = hour_at(scenario, plan, run, in_pools, request.start)
    return simulate_hour(_with_common_beginnings(scenario), plan, hour, request, seed)


def _with_common_beginnings(scenario: Scenario) -> Scenario:
    """Return a scenario whose workloads that state their reuse find at any time what all sessions have in common."""
    workloads = dict(scenario.workloads)
    for name, workload in workloads.items():
        curve = workload.reuse_curve
        if curve is not None:
            found = {"prefix_cache_hit_fraction": curve.common_fraction}
            workloads[name] = workload.model_copy(update=found)
    return scenario.model_copy(update={"workloads": workloads})


def simulate_hour(
    scenario: Scenario, plan: Plan, hour: Hour, request: ZoomRequest, seed: int
) -> Zoom:
    """Simulate a given hour, request by request."""
    # Every request is kept to the end: looking for garbage among a million of them, again and again, takes a tenth.
    collects = gc.isenabled()
    gc.disable()
    try:
        draw = streams(seed, request.replication)
        return _Simulation(scenario, plan, hour, request, draw).run(seed)
    finally:
        if collects:
            gc.enable()


class _Simulation:
    """One zoom in progress."""

    def __init__(
        self, scenario: Scenario, plan: Plan, hour: Hour, request: ZoomRequest, draw: Streams
    ) -> None:
        self.scenario = scenario
        self.plan = plan
        self.hour = hour
        self.request = request
        self.draw = draw
        self.slos = _latency_slos(scenario, plan)
        """What the router knows of each workload."""
        self.span = self._span()
        self.measured_s = request.minutes * BURST_S
        """Requests that arrive from 0 to here count."""
        # Time 0 is the moment zoomed at: the warm-up lies before it.
        self.env = simpy.Environment(initial_time=-self.span.warm_up * BURST_S)
        self.router = RequestRouter(
            self.env, self.slos, plan.by_priority, plan.preferred_utilisation
        )
        minutes_before_end = self.span.warm_up + self.span.minutes
        requests_per_s = float(hour.demand_requests_per_s.sum())
        expected = requests_per_s * minutes_before_end * BURST_S
        workloads = range(len(plan.workloads))
        backlog = sum(map(self._backlog_requests, workloads))
        self.share = self._sample_share(expected + backlog)
        self.replicas = tuple(
            max(round(self.share * group.replicas), 1) for group in hour.replica_groups
        )
        self.shares = [self._traffic_share(w) for w in workloads]
        """Of each workload's traffic that is simulated."""
        self.groups = self._build_groups()
        self.router.groups = self.groups
        for w in workloads:
            self._build_routes(w)
        self.under_way: set[int] = set()
        """Sessions of which a turn is under way."""
        self.held: dict[int, deque[Request]] = {}
        """By session, turns that come when the one before has ended."""
        self.open = 0
        """Requests that count and are neither finished nor refused, deferrable work left out."""
        self.all_ended = self.env.event()
        self.work_s = [0.0] * len(self.groups)
        """By group, what it took since the minutes that count began, in seconds of a replica at work."""

    def _span(self) -> ZoomWindow:
        """Return the minutes to simulate: a reply of thousands of tokens takes minutes, and fills batches as slowly."""
        warm_up = _WARM_UP_MINUTES
        drain = _DRAIN_MINUTES
        for slo, lengths in zip(self.slos, self.hour.lengths, strict=True):
            if slo.is_deferrable:
                continue  # it may go on beyond the hour
            output = self.scenario.workloads[slo.name].lengths.output
            longest = output.distribution.quantile(_LONGEST_QUANTILE)
            longest_ratio = longest / output.mean
            reply_minutes = lengths.output_mean_tokens * slo.tpot_s / BURST_S
            warm_up_minutes = math.floor(_WARM_UP_REPLIES * reply_minutes)
            warm_up = max(warm_up, warm_up_minutes)
            drain_minutes = math.floor(longest_ratio * reply_minutes)
            drain = max(drain, drain_minutes)
        if self.request.log is not None:
            # A log begins with its first request: nothing is known of what came before.
            warm_up = 0
        return ZoomWindow(warm_up=warm_up, minutes=self.request.minutes, drain=drain)

    def _sample_share(self, expected_requests: float) -> float:
        """Return the share of the fleet to simulate, chosen near the requested one to suit whole replicas."""
        groups = self.hour.replica_groups
        if not groups:
            return 1.0
        requested = 1.0
        if expected_requests > 0.0:
            requested = self.request.requests / expected_requests
        busiest = max(groups, key=lambda group: group.busy_nodes)
        # Of an idle fleet the first group stands for the busiest.
        smallest = max(requested, MIN_REPLICAS / busiest.replicas)
        if smallest >= 1.0:
            return 1.0
        # Up to three tenths more is simulated where replicas then round to nearly the same share of every group.
        largest = min(1.3 * smallest, 1.0)
        candidates = np.linspace(smallest, largest, _CANDIDATE_SHARES)
        replicas = np.array([group.replicas for group in groups], dtype=np.float64)
        weight = np.array([group.busy_nodes for group in groups])
        exact = candidates[:, None] * replicas
        rounded = np.maximum(np.rint(exact), 1.0)
        # Errors count by the work of their group: an idle one may be off.
        relative_error = np.abs(rounded / exact - 1.0)
        error = relative_error @ (weight / weight.sum())
        return float(candidates[int(np.argmin(error))])

    def _traffic_share(self, w: int) -> float:
        """Return the share of a workload's traffic to simulate: that of its capacity.

        Of a model with few replicas one is simulated at the least: with the fleet's share of its traffic it would idle.
        """
        in_service = 0.0
        simulated = 0.0
        for group, count in zip(self.hour.replica_groups, self.replicas, strict=True):
            if w in group.served:
                capacity = group.capacity_requests_per_s[w]
                in_service += capacity * group.replicas
                simulated += group.capacity_requests_per_s[w] * count
        if in_service > 0.0:
            return simulated / in_service
        return self.share

    def _build_groups(self) -> list[Group]:
        """Return the simulated replicas, in pools as the scenario's routers have them."""
        requests_per_s = self.hour.demand_requests_per_s[:, np.newaxis]
        demand_requests = requests_per_s * SECONDS_PER_HOUR
        allowed_use = allowed_loads(self.plan, demand_requests)[:, 0]
        groups = []
        for planned, count in zip(self.hour.replica_groups, self.replicas, strict=True):
            pool_sizes = {"cluster": count, "node": planned.replicas_per_node, "replica": 1}
            pool_size = pool_sizes[self.scenario.router_pool]
            pools = max(round(count / pool_size), 1)
            # As even as whole replicas allow: the first pools have one more.
            sizes = [count // pools + (place < count % pools) for place in range(pools)]
            groups.append(
                Group(
                    pools=[
                        ReplicaPool(
                            self.router, planned.times, size, planned.pace_s, planned.prefill
                        )
                        for size in sizes
                    ],
                    capacity_requests_per_s=planned.capacity_requests_per_s,
                    allowed_use=float(allowed_use[planned.cluster]),
                )
            )
        return groups

    def _build_routes(self, w: int) -> None:
        """Tell the router which groups serve a workload, in the order of the scenario's policy."""
        workload = self.plan.workloads[w]
        by_cluster: dict[int, list[Group]] = {}
        for planned, group in zip(self.hour.replica_groups, self.groups, strict=True):
            if w in planned.served:
                by_cluster.setdefault(planned.cluster, []).append(group)
        tiers = [
            list(chain.from_iterable(by_cluster.get(c, ()) for c in tier))
            for tier in workload.cluster_tiers
        ]
        # Tiers without a replica in this hour are left out, of the paid ones too.
        paid = tiers[: len(tiers) - workload.rented_tiers]
        self.router.tiers[w] = [groups for groups in tiers if groups]
        self.router.paid_tiers[w] = sum(bool(groups) for groups in paid)
        self.router.deferred[w] = deque()

    def run(self, seed: int) -> Zoom:
        """Run the simulation of the hour and return its result."""
        arrivals = self._arrivals()
        arrivals = tuple(self._in_sessions(w, arriving) for w, arriving in enumerate(arrivals))
        requests = self._requests(arrivals)
        counted = [request for request in requests if self._counts(request.arrived_s)]
        self.router.on_end = self._on_end
        self.env.process(self._arrive(requests))
        for breakdown in self.hour.breakdowns:
            self.env.process(self._break(breakdown))
        shape = (self.request.minutes * 60, len(self.groups), 3)
        seconds = np.zeros(shape)
        self.env.process(self._watch(seconds))
        self.open = sum(not self.slos[request.workload].is_deferrable for request in counted)
        end_s = (self.span.minutes + self.span.drain) * BURST_S
        if self.open:
            # Ends with the last request that counts, or with the drain where a queue never empties.
            drained = self.env.timeout(end_s - self.env.now)
            self.env.run(until=self.all_ended | drained)
        if self.env.now < self.measured_s:
            # All may have ended early, but every second of the hour is on record.
            self.env.run(until=self.measured_s)
        router = self.router
        counts = (router.arrived, router.completed, router.refused, router.in_flight)
        # Conservation: a request that got lost would pass for one in time.
        if counts[0] != sum(counts[1:]):
            raise ConservationError(
                f"requests: {counts[0]} arrived, {counts[1:]} finished, refused or in flight"
            )
        finished_s = [list[float]() for _ in self.slos]
        for request in requests:
            if self._counts(request.finished_s):
                finished_s[request.workload].append(request.finished_s)
        return Zoom(
            scenario=self.scenario,
            plan=self.plan,
            hour=self.hour,
            request=self.request,
            seed=seed,
            share=self.share,
            replicas=self.replicas,
            slos=self.slos,
            span=self.span,
            arrivals=arrivals,
            requests=tuple(counted),
            finished_s=tuple(np.array(times_s) for times_s in finished_s),
            seconds=seconds,
            utilisation_fraction=self._utilisation(),
            counts=counts,
        )

    def _counts(self, time_s: float) -> bool:
        """Return whether a time lies in the minutes that count; not where there is none (NaN)."""
        return 0.0 <= time_s < self.measured_s

    def _arrivals(self) -> tuple[Arrivals, ...]:
        """Return the requests of each workload: drawn, or one's replayed from a log."""
        names = [slo.name for slo in self.slos]
        log = self.request.log
        replayed = self.request.log_workload or names[0]
        if log is not None and replayed not in names:
            hint = nearest(replayed, names) or f"there are {', '.join(names)}"
            raise ScenarioError(
                Problem(path="--workload", message=f"there is no workload {replayed!r}", hint=hint)
            )
        arrivals = []
        for w, name in enumerate(names):
            lengths = self.hour.lengths[w]
            share = self.shares[w]
            if log is not None and name == replayed:
                draws = self.draw(f"zoom/{name}/log")
                arrivals.append(replay(log, lengths, self.span, share, draws))
            else:
                requests_per_s = float(self.hour.demand_requests_per_s[w])
                rates = (requests_per_s, share)
                workload = self.scenario.workloads[name]
                arrivals.append(draw_arrivals(workload, rates, lengths, self.span, name, self.draw))
        return tuple(arrivals)

    def _in_sessions(self, w: int, arriving: Arrivals) -> Arrivals:
        """Return requests as turns of sessions, of which those before the simulation have filled the caches.

        Only where the workload states its reuse: what a log replays finds what the log says.
        """
        name = self.slos[w].name
        workload = self.scenario.workloads[name]
        curve = workload.reuse_curve
        is_replayed = self.request.log is not None and name == (
            self.request.log_workload or self.slos[0].name
        )
        tiers = self.router.tiers[w]
        if curve is None or is_replayed or not tiers:
            return arriving
        if workload.prefix_routing != "random":
            self.router.keeps_sessions.add(w)
        groups = list(chain.from_iterable(tiers))
        replicas = [replica for group in groups for replica in group.replicas()]
        lengths = self.hour.lengths[w]
        requests_per_s = float(self.hour.demand_requests_per_s[w]) * self.shares[w]
        room = sum(one.times.kv_capacity_tokens + one.times.host_tokens for one in replicas)
        times = replicas[0].times
        kept_tokens = times.kept_tokens(lengths.input_mean_tokens)
        traffic = with_states(working_set(curve), times.state_tokens / kept_tokens)
        before_s = min(
            seconds_before(traffic, requests_per_s * kept_tokens, room),
            most_seconds_before(requests_per_s),
        )
        stream = self.draw(f"zoom/{name}/sessions")
        begin_s = -self.span.warm_up * BURST_S
        count = int(stream.poisson(requests_per_s * before_s))
        earlier_s = np.sort(begin_s - before_s * stream.random(count))
        prompts, outputs = draw_lengths(workload, lengths, count, stream)
        # As long as replies take at the pace that admission keeps.
        pace_s = min(group.pace_s[w] for group in self.hour.replica_groups if w in group.served)
        stays_s = np.append(outputs, arriving.output_tokens).astype(float) * pace_s
        times_s = np.append(earlier_s, arriving.times_s)
        sessions = draw_sessions(curve, times_s, stays_s, stream)
        shared = curve.turn_fraction
        all_prompts = np.append(prompts, arriving.prompt_tokens)
        lots = stream.random(times_s.size)
        turns = Turns(
            # Numbers of sessions of several workloads differ.
            sessions=sessions * len(self.slos) + w,
            shared_tokens=np.floor(shared * all_prompts).astype(np.int64),
            lots=lots[sessions],
        )
        # In the order in which they end; where a new session goes, capacity decides.
        weights = np.array([group.capacity_requests_per_s[w] for group in groups])
        weights = weights * [len(group.replicas()) for group in groups]
        drawn_groups = stream.choice(len(groups), size=count, p=weights / weights.sum())
        drawn_places = stream.random(count)
        homes: dict[int, tuple[ReplicaPool, int]] = {}
        for request in np.argsort(earlier_s + stays_s[:count], kind="stable").tolist():
            session = int(turns.sessions[request])
            group = groups[int(drawn_groups[request])]
            pool = group.pools[int(turns.lots[request] * len(group.pools))]
            home = pool, int(drawn_places[request] * len(pool.replicas))
            if w in self.router.keeps_sessions:
                home = homes.setdefault(session, home)
                home[0].homes[session] = home[1]
            replica = home[0].replicas[home[1]]
            tokens = replica.times.kept_tokens(float(prompts[request] + outputs[request]))
            replica.kept.take(session, shared)
            replica.kept.keep(session, tokens, replica.free_tokens)
        return replace(arriving, turns=turns.since(count))

    def _requests(self, arrivals: Sequence[Arrivals]) -> list[Request]:
        """Return all requests in order of arrival, backlog first.

        The backlog is deferrable work that lies ready when the simulation begins, with lengths of the hour's own.
        """
        rows = []
        ready_s = -self.span.warm_up * BURST_S - _BEFORE_ALL_S
        for w, arriving in enumerate(arrivals):
            level = self.slos[w].level
            stream = self.draw(f"zoom/{self.slos[w].name}/lot")
            lots = stream.random(arriving.times_s.size)
            lengths = list(
                zip(
                    arriving.prompt_tokens.tolist(),
                    arriving.cached_tokens.tolist(),
                    arriving.output_tokens.tolist(),
                    strict=True,
                )
            )
            times_s = arriving.times_s.tolist()
            turns = arriving.turns
            sessions: list[int | None] = [None] * len(times_s)
            shared = [0] * len(times_s)
            if turns is not None:
                lots = turns.lots
                sessions = turns.sessions.tolist()
                shared = turns.shared_tokens.tolist()
            columns = zip(times_s, lengths, lots.tolist(), sessions, shared, strict=True)
            rows += [(time_s, w, level, *of_request) for time_s, *of_request in columns]
            # Lengths are taken from the hour's own requests in turn; without any there is none to take.
            ready = 0
            if lengths:
                ready = int(self._backlog_requests(w) * self.shares[w])
            # Replicas help themselves to deferrable work, so that its lot is never read.
            for n in range(ready):
                length = lengths[n % len(lengths)]
                rows.append((ready_s, w, level, length, 0.0, None, 0))
        # Stable, by time and workload: requests of one workload at one time keep their order.
        rows.sort(key=lambda row: (row[0], row[1]))
        return [
            Request(number, w, level, time_s, *of_request)
            for number, (time_s, w, level, *of_request) in enumerate(rows)
        ]

    def _backlog_requests(self, w: int) -> float:
        """Return the fleet's backlog of deferrable requests, capped at what could be served."""
        served_fraction = np.nan_to_num(self.hour.served_fraction[w])
        served = float(served_fraction * self.hour.demand_requests_per_s[w])
        servable = _BACKLOG_HOURS * served * self.request.minutes * BURST_S
        return min(float(self.hour.backlog_requests[w]), servable)

    def _arrive(self, requests: Sequence[Request]) -> Generator[simpy.Event, Any, None]:
        """Offer every request to the router when it arrives."""
        env = self.env
        arrive = self.router.arrive
        for request in requests:
            if request.arrived_s > env.now:
                yield env.timeout(request.arrived_s - env.now)
            if request.session in self.under_way:
                # Nobody asks on before the answer is there.
                self.held.setdefault(request.session, deque()).append(request)
                continue
            if request.session is not None:
                self.under_way.add(request.session)
            arrive(request)

    def _on_end(self, request: Request) -> None:
        """Let the next turn of a session come; count down the measured requests, and end with the last."""
        if request.session is not None:
            self.under_way.discard(request.session)
            if waiting := self.held.get(request.session):
                self.env.process(self._ask_on(waiting.popleft()))
        is_deferrable = self.slos[request.workload].is_deferrable
        if is_deferrable or not self._counts(request.arrived_s):
            return
        self.open -= 1
        if self.open == 0:
            self.all_ended.succeed()

    def _ask_on(self, request: Request) -> Generator[simpy.Event, Any, None]:
        """Offer the next turn of a session, now that the one before it has ended."""
        assert request.session is not None
        self.under_way.add(request.session)
        request.arrived_s = self.env.now
        # The answer before is done with when this one comes.
        yield self.env.timeout(0.0)
        self.router.arrive(request)

    def _watch(self, seconds: Floats) -> Generator[simpy.Event, Any, None]:
        """Record queue, batch and KV cache every second, and the work taken at the end."""
        if self.env.now < 0.0:
            yield self.env.timeout(-self.env.now)
        start_work_s = [group.work_s for group in self.groups]
        for second in range(seconds.shape[0]):
            for g, group in enumerate(self.groups):
                waiting = sum(len(pool.queue) for pool in group.pools)
                running = 0
                cached = 0.0
                for replica in group.replicas():
                    waiting += len(replica.waiting) + len(replica.prefilling)
                    running += replica.running
                    cached += replica.cached_tokens
                group_times = self.hour.replica_groups[g].times
                capacity = group_times.kv_capacity_tokens * self.replicas[g]
                seconds[second, g] = waiting, running, cached / capacity
            yield self.env.timeout(1.0)
            # After every second, so that an hour that ends early has the work up to then.
            self.work_s = [
                group.work_s - start_s
                for group, start_s in zip(self.groups, start_work_s, strict=True)
            ]

    def _utilisation(self) -> Floats:
        """Return what the work taken in the minutes that count takes of each cluster's accelerators.

        Work is weighed by what the hourly model has a replica sustain, so that the two compare.
        """
        busy_s = np.zeros(len(self.plan.clusters))
        available_s = np.zeros(len(self.plan.clusters))
        groups = zip(self.hour.replica_groups, self.replicas, self.work_s, strict=True)
        for planned, count, work_s in groups:
            busy_s[planned.cluster] += work_s * planned.accelerators
            accelerators = count * planned.accelerators
            available_s[planned.cluster] += accelerators * self.measured_s
        utilisation = np.full(available_s.size, np.nan)
        np.divide(busy_s, available_s, out=utilisation, where=available_s > 0.0)
        return utilisation

    def _break(self, breakdown: Breakdown) -> Generator[simpy.Event, Any, None]:
        """Fail the simulated replicas that a breakdown hits, and bring them back after it."""
        hit = self._replicas_hit(breakdown)
        until_start_s = breakdown.start_s - self.env.now
        yield self.env.timeout(max(until_start_s, 0.0))
        for pool, place in hit:
            pool.fail(place)
        if math.isfinite(breakdown.end_s):
            until_end_s = breakdown.end_s - self.env.now
            yield self.env.timeout(max(until_end_s, 0.0))
            for pool, place in hit:
                pool.repair(place)

    def _replicas_hit(self, breakdown: Breakdown) -> list[tuple[ReplicaPool, int]]:
        """Return the pool and index of the simulated replicas that a breakdown hits.

        Which replicas a failing node carries is drawn by the nodes of each group.
        """
        planned = self.hour.replica_groups
        if breakdown.cluster is None:
            on_site = [
                g
                for g, group in enumerate(planned)
                if not self.plan.clusters[group.cluster].is_hosted
            ]
            places = (_places(self.groups[g]) for g in on_site)
            return list(chain.from_iterable(places))
        candidates = [g for g, group in enumerate(planned) if group.cluster == breakdown.cluster]
        if not candidates:
            return []
        generator = self.draw(f"zoom/breakdown/{breakdown.cluster}/{breakdown.start_s:.3f}")
        groups = [planned[g] for g in candidates]
        accelerators = [float(group.replicas * group.accelerators) for group in groups]
        sizes = np.array(accelerators)
        shares = sizes / sizes.sum()
        drawn = int(generator.choice(len(candidates), p=shares))
        g = candidates[drawn]
        # Drawn among all replicas of the fleet: one beyond the sample hits none that is simulated.
        place = int(generator.integers(planned[g].replicas))
        # A failure of less than one replica's accelerators still takes that replica down.
        count = max(breakdown.accelerators // planned[g].accelerators, 1)
        return _places(self.groups[g])[place : place + count]


def _latency_slos(scenario: Scenario, plan: Plan) -> tuple[LatencySlo, ...]:
    """Return priority, objectives and admission of each workload."""
    slos = []
    for planned in plan.workloads:
        stated = scenario.workloads[planned.name]
        slos.append(
            LatencySlo(
                name=planned.name,
                level=planned.priority,
                ttft_s=stated.slo.ttft_s,
                tpot_s=stated.slo.tpot_s,
                is_deferrable=planned.deadline_h > 0,
                refuses=stated.admission == "reject",
            )
        )
    return tuple(slos)


def _places(group: Group) -> list[tuple[ReplicaPool, int]]:
    """Return the pool and index of each replica of a group, in order."""
    places = []
    for pool in group.pools:
        places += [(pool, place) for place in range(len(pool.replicas))]
    return places
