"""One hour, request by request: the fleet of that hour, or a sample of it, under its own traffic.

A fleet of thousands of replicas sees millions of requests an hour. A sample takes a share of every stand's replicas and
the same share of every workload's requests; its routers pool replicas as the scenario's do. What the sample leaves
open is printed as an interval.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
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
from planner.plan.build import build_plan
from planner.plan.placement import services_of
from planner.plan.plan import Plan, Reuse
from planner.plan.sizes import resized
from planner.requests.batching import Request
from planner.requests.hour import (
    Arrivals,
    Breakdown,
    Hour,
    ZoomWindow,
    draw_arrivals,
    hour_at,
    replay,
    window_of,
)
from planner.requests.router import Group, LatencySlo, ReplicaPool, RequestRouter
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR
from planner.validation import nearest

DEFAULT_REQUESTS = 100_000
LEAST_REPLICAS = 4
"""Of the busiest stand in a sample: fewer pool worse than a real router does."""
_TRIED_SHARES = 400
_BEFORE_MINUTES = 1  # at least, until batches are as full as the hour keeps them
_BEFORE_REPLIES = 3.0  # mean replies, for the same where they take longer
_AFTER_MINUTES = (
    4  # at least, for the longest replies of the last minute to end under the load they began in
)
_LONGEST = 0.99  # of replies, which end within those minutes at the pace promised
_BACKLOG_HOURS = (
    1.5  # of deferrable work that may lie ready: more than the hour can serve is not simulated
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoomRequest:
    """The time, length, seed and sample size of a zoom."""

    at: datetime
    minutes: int = 60
    seed: int | None = None
    replication: int = 0
    requests: int = DEFAULT_REQUESTS
    """About how many requests to simulate, of all workloads and from the minutes before those that count on: a larger
    fleet is sampled, of whose busiest stand a few replicas are the least."""
    log: RequestLog | None = None
    """Requests to replay in the place of one workload's."""
    log_workload: str | None = None
    """That workload; None: the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoom:
    """The result of a zoom into one hour."""

    scenario: Scenario
    plan: Plan
    hour: Hour
    asked: ZoomRequest
    seed: int
    share: float
    """Of the fleet and its traffic that was simulated, but for models of few replicas: each has one."""
    replicas: tuple[int, ...]
    """Simulated, by stand."""
    slos: tuple[LatencySlo, ...]
    span: ZoomWindow
    arrivals: tuple[Arrivals, ...]
    """By workload."""
    requests: tuple[Request, ...]
    """Those that count, in order of arrival."""
    finished_s: tuple[Floats, ...]
    """By workload, when requests were finished in the minutes that count, whenever they arrived."""
    seconds: Floats
    """Requests waiting, sequences running and share of cache in use at every second, shape (seconds, stands, 3)."""
    utilisation_fraction: Floats
    """As the hour's, of what replicas were given to do and could not put off, shape (clusters,); NaN where none are."""
    counts: tuple[int, int, int, int]
    """Arrived, finished, refused and in flight at the end, those before and after the hour included."""


def zoom(scenario: Scenario, asked: ZoomRequest) -> Zoom:
    """Simulate one hour of one replication, request by request."""
    reuse = Reuse(scenario)
    plan = build_plan(scenario, reuse)
    services, _ = services_of(scenario, {}, reuse)
    seed = plan.seed if asked.seed is None else asked.seed
    run = run_plan(plan, seed, asked.replication)
    for c, size in enumerate(window_of(scenario, plan, run, asked.at)[1].sizes):
        if size >= 0:  # a rule has resized it, and its routers hold another pace
            of_cluster = {
                pair: service
                for pair, service in services.items()
                if pair[0] == plan.clusters[c].name
            }
            services |= resized(scenario, of_cluster, plan.sizes[c][size].nodes, {}, reuse)
    return simulate_hour(
        scenario, plan, hour_at(scenario, plan, run, services, asked.at), asked, seed
    )


def simulate_hour(
    scenario: Scenario, plan: Plan, hour: Hour, asked: ZoomRequest, seed: int
) -> Zoom:
    """Simulate a given hour, request by request."""
    # Every request is kept to the end: looking for garbage among a million of them, again and again, takes a tenth.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _Simulation(scenario, plan, hour, asked, streams(seed, asked.replication)).run(seed)
    finally:
        if collects:
            gc.enable()


class _Simulation:
    """One zoom in progress."""

    def __init__(
        self, scenario: Scenario, plan: Plan, hour: Hour, asked: ZoomRequest, draw: Streams
    ) -> None:
        self.scenario = scenario
        self.plan = plan
        self.hour = hour
        self.asked = asked
        self.draw = draw
        self.slos = tuple(
            LatencySlo(
                name=load.name,
                level=load.priority,
                ttft_s=scenario.workloads[load.name].slo.ttft_s,
                tpot_s=scenario.workloads[load.name].slo.tpot_s,
                is_deferrable=load.deadline_h > 0,
                refuses=scenario.workloads[load.name].admission == "reject",
            )
            for load in plan.workloads
        )
        """What the router knows of each workload."""
        before = _BEFORE_MINUTES
        after = _AFTER_MINUTES
        for slo, lengths in zip(self.slos, hour.lengths, strict=True):
            if (
                not slo.is_deferrable
            ):  # a reply of thousands of tokens takes minutes, and fills batches as slowly
                output = scenario.workloads[slo.name].lengths.output
                longest = output.distribution.quantile(_LONGEST) / output.mean
                mean_minutes = lengths.output_mean_tokens * slo.tpot_s / BURST_S
                before = max(before, math.floor(_BEFORE_REPLIES * mean_minutes))
                after = max(after, math.floor(longest * mean_minutes))
        self.span = ZoomWindow(
            before=0 if asked.log is not None else before, minutes=asked.minutes, after=after
        )
        self.env = simpy.Environment(initial_time=-self.span.before * BURST_S)
        self.router = RequestRouter(
            self.env, self.slos, plan.by_priority, plan.preferred_utilisation
        )
        coming = (
            float(hour.demand_requests_per_s.sum())
            * (self.span.before + self.span.minutes)
            * BURST_S
        )
        every = range(len(plan.workloads))
        planned = hour.replica_groups
        self.share = self._sample_share(coming + sum(map(self._ready_requests, every)))
        self.replicas = tuple(max(round(self.share * group.replicas), 1) for group in planned)
        self.shares = [self.share] * len(every)
        """Of each workload's traffic that is simulated: the share of its capacity. Of a model with few replicas one is
        simulated at the least: with the fleet's share of its traffic it would idle."""
        for w in every:
            serving = [
                (group, count)
                for group, count in zip(planned, self.replicas, strict=True)
                if w in group.served
            ]
            standing = sum(
                group.capacity_requests_per_s[w] * group.replicas for group, _ in serving
            )
            simulated = sum(group.capacity_requests_per_s[w] * count for group, count in serving)
            self.shares[w] = simulated / standing if standing > 0.0 else self.share
        allowed = allowed_loads(plan, hour.demand_requests_per_s[:, np.newaxis] * SECONDS_PER_HOUR)[
            :, 0
        ]
        self.groups: list[Group] = []
        for group, count in zip(
            planned, self.replicas, strict=True
        ):  # in pools as the scenario's routers have them
            size = {"cluster": count, "node": group.replicas_per_node, "replica": 1}[
                scenario.router_pool
            ]
            pools = max(round(count / size), 1)
            sizes = [count // pools + (place < count % pools) for place in range(pools)]
            self.groups.append(
                Group(
                    pools=[
                        ReplicaPool(self.router, group.times, n, group.pace_s, group.prefill)
                        for n in sizes
                    ],
                    capacity_requests_per_s=group.capacity_requests_per_s,
                    allowed_use=float(allowed[group.cluster]),
                )
            )
        self.router.groups = self.groups
        for w, load in enumerate(plan.workloads):
            served = [
                (at.cluster, group)
                for at, group in zip(planned, self.groups, strict=True)
                if w in at.served
            ]
            tiers = [
                [group for c in tier for at, group in served if at == c]
                for tier in load.cluster_tiers
            ]
            self.router.ways[w] = [groups for groups in tiers if groups]
            self.router.paid_tiers[w] = sum(
                bool(groups) for groups in tiers[: len(tiers) - load.rented_tiers]
            )
            self.router.deferred[w] = deque()
        self.open = 0
        """Requests that count and are neither finished nor refused, deferrable work left out."""
        self.all_ended = self.env.event()
        self.work_s = [0.0] * len(self.groups)
        """By group, what it took since the minutes that count began, in seconds of a replica at work."""

    def _sample_share(self, expected_requests: float) -> float:
        """Return the share of the fleet to simulate, chosen near the wanted one to suit whole replicas."""
        wanted = self.asked.requests / expected_requests if expected_requests > 0.0 else 1.0
        busiest = max(self.hour.replica_groups, key=lambda group: group.busy_nodes, default=None)
        least = max(wanted, LEAST_REPLICAS / busiest.replicas if busiest is not None else 1.0)
        if least >= 1.0:
            return 1.0
        tried = np.linspace(least, min(1.3 * least, 1.0), _TRIED_SHARES)
        replicas = np.array(
            [group.replicas for group in self.hour.replica_groups], dtype=np.float64
        )
        weight = np.array([group.busy_nodes for group in self.hour.replica_groups])
        exact = tried[:, None] * replicas
        off = np.abs(np.maximum(np.rint(exact), 1.0) / exact - 1.0) @ (weight / weight.sum())
        return float(tried[int(np.argmin(off))])

    def run(self, seed: int) -> Zoom:
        """Run the simulation of the hour and return its result."""
        names = [load.name for load in self.plan.workloads]
        replayed = self.asked.log_workload or names[0]
        if self.asked.log is not None and replayed not in names:
            hint = nearest(replayed, names) or f"there are {', '.join(names)}"
            raise ScenarioError(
                Problem(path="--workload", message=f"there is no workload {replayed!r}", hint=hint)
            )
        arrivals = []
        for w, (name, lengths, share) in enumerate(
            zip(names, self.hour.lengths, self.shares, strict=True)
        ):
            if self.asked.log is not None and name == replayed:
                arrivals.append(
                    replay(self.asked.log, lengths, self.span, share, self.draw(f"zoom/{name}/log"))
                )
            else:
                rates = (float(self.hour.demand_requests_per_s[w]), share)
                workload = self.scenario.workloads[name]
                arrivals.append(draw_arrivals(workload, rates, lengths, self.span, name, self.draw))
        requests, counted = self._requests(arrivals)
        self.router.on_end = self._on_end
        self.env.process(self._arrive(requests))
        for breakdown in self.hour.breakdowns:
            self.env.process(self._break(breakdown))
        seconds = np.zeros((self.asked.minutes * 60, len(self.groups), 3))
        self.env.process(self._watch(seconds))
        self.open = sum(not self.slos[request.workload].is_deferrable for request in counted)
        end_s = (self.span.minutes + self.span.after) * BURST_S
        if self.open:
            self.env.run(until=self.all_ended | self.env.timeout(end_s - self.env.now))
        if self.env.now < self.asked.minutes * BURST_S:
            self.env.run(until=self.asked.minutes * BURST_S)
        router = self.router
        counts = (router.arrived, router.done, router.refused, router.in_flight)
        if counts[0] != sum(counts[1:]):
            raise ConservationError(
                f"requests: {counts[0]} arrived, {counts[1:]} finished, refused or in flight"
            )
        # What the work taken in the minutes counted takes of each cluster's accelerators, by what the hourly model has
        # them sustain, so that the two compare.
        work, size = np.zeros((2, len(self.plan.clusters)))
        for planned, count, work_s in zip(
            self.hour.replica_groups, self.replicas, self.work_s, strict=True
        ):
            work[planned.cluster] += work_s * planned.accelerators
            size[planned.cluster] += count * planned.accelerators * self.asked.minutes * BURST_S
        utilisation = np.divide(work, size, out=np.full(size.size, np.nan), where=size > 0.0)
        finished_s = [list[float]() for _ in names]
        for request in requests:
            if 0.0 <= request.finished_s < self.asked.minutes * BURST_S:
                finished_s[request.workload].append(request.finished_s)
        same = ("scenario", "plan", "hour", "asked", "share", "replicas", "slos", "span")
        figures: dict[str, Any] = {name: getattr(self, name) for name in same}
        return Zoom(
            **figures,
            seed=seed,
            arrivals=tuple(arrivals),
            requests=tuple(counted),
            finished_s=tuple(np.array(ended_s) for ended_s in finished_s),
            seconds=seconds,
            utilisation_fraction=utilisation,
            counts=counts,
        )

    def _requests(self, arrivals: Sequence[Arrivals]) -> tuple[list[Request], list[Request]]:
        """Return all requests in order of arrival, backlog first, and the measured ones among them.

        The backlog is deferrable work that lies ready when the simulation begins, with lengths of the hour's own.
        """
        rows = []
        start_s = -self.span.before * BURST_S
        for w, coming in enumerate(arrivals):
            level = self.slos[w].level
            lot = self.draw(f"zoom/{self.plan.workloads[w].name}/lot").random(coming.times_s.size)
            columns = (coming.prompt_tokens, coming.cached_tokens, coming.output_tokens)
            lengths = list(zip(*(column.tolist() for column in columns), strict=True))
            rows += [
                (time_s, w, level, length, place)
                for time_s, length, place in zip(
                    coming.times_s.tolist(), lengths, lot.tolist(), strict=True
                )
            ]
            ready = int(self._ready_requests(w) * self.shares[w]) if lengths else 0
            rows += [
                (start_s - 1e-6, w, level, lengths[n % len(lengths)], 0.0) for n in range(ready)
            ]
        rows.sort(key=lambda row: (row[0], row[1]))
        requests = [
            Request(n, w, level, time_s, length, lot)
            for n, (time_s, w, level, length, lot) in enumerate(rows)
        ]
        return requests, [
            one for one in requests if 0.0 <= one.arrived_s < self.asked.minutes * BURST_S
        ]

    def _ready_requests(self, w: int) -> float:
        """Return the fleet's backlog of deferrable requests, capped at what could be served."""
        served = float(
            np.nan_to_num(self.hour.served_fraction[w]) * self.hour.demand_requests_per_s[w]
        )
        most = _BACKLOG_HOURS * served * self.asked.minutes * BURST_S
        return min(float(self.hour.backlog_requests[w]), most)

    def _arrive(self, requests: Sequence[Request]) -> Generator[simpy.Event, Any, None]:
        env = self.env
        arrive = self.router.arrive
        for request in requests:
            if request.arrived_s > env.now:
                yield env.timeout(request.arrived_s - env.now)
            arrive(request)

    def _on_end(self, request: Request) -> None:
        """Count down the measured requests; end the simulation with the last."""
        if (
            not self.slos[request.workload].is_deferrable
            and 0.0 <= request.arrived_s < self.asked.minutes * BURST_S
        ):
            self.open -= 1
            if self.open == 0:
                self.all_ended.succeed()

    def _watch(self, seconds: Floats) -> Generator[simpy.Event, Any, None]:
        """Record queue, batch and KV cache every second, and the work taken at the end."""
        if self.env.now < 0.0:
            yield self.env.timeout(-self.env.now)
        before_s = [group.work_s for group in self.groups]
        for second in range(seconds.shape[0]):
            for g, group in enumerate(self.groups):
                waiting = running = cached = 0.0
                for pool in group.pools:
                    waiting += len(pool.queue)
                    for replica in pool.replicas:
                        waiting += len(replica.waiting) + len(replica.prefilling)
                        running += replica.running
                        cached += replica.cached_tokens
                capacity = self.hour.replica_groups[g].times.kv_capacity_tokens * self.replicas[g]
                seconds[second, g] = waiting, running, cached / capacity
            yield self.env.timeout(1.0)
            self.work_s = [
                group.work_s - was for group, was in zip(self.groups, before_s, strict=True)
            ]

    def _break(self, breakdown: Breakdown) -> Generator[simpy.Event, Any, None]:
        """Fail the simulated replicas that a breakdown hits, and bring them back after it.

        Which replicas a failing node carries is drawn by the nodes of each stand.
        """
        planned = self.hour.replica_groups
        hit = list[tuple[ReplicaPool, int]]()
        if breakdown.cluster is None:
            for g, at in enumerate(planned):
                hit += [] if self.plan.clusters[at.cluster].is_hosted else _places(self.groups[g])
        elif there := [g for g, at in enumerate(planned) if at.cluster == breakdown.cluster]:
            generator = self.draw(f"zoom/breakdown/{breakdown.cluster}/{breakdown.start_s:.3f}")
            sizes = np.array([float(planned[g].replicas * planned[g].accelerators) for g in there])
            g = there[int(generator.choice(len(there), p=sizes / sizes.sum()))]
            first = int(generator.integers(planned[g].replicas))
            count = max(breakdown.accelerators // planned[g].accelerators, 1)
            hit = _places(self.groups[g])[first : first + count]
        yield self.env.timeout(max(breakdown.start_s - self.env.now, 0.0))
        for pool, place in hit:
            pool.fail(place)
        if math.isfinite(breakdown.end_s):
            yield self.env.timeout(max(breakdown.end_s - self.env.now, 0.0))
            for pool, place in hit:
                pool.repair(place)


def _places(group: Group) -> list[tuple[ReplicaPool, int]]:
    """Return the pool and index of each replica of a group, in order."""
    return [(pool, place) for pool in group.pools for place in range(len(pool.replicas))]
