"""The request router: groups of replicas, priorities, admission, retries, deferrable work.

A *pool* is what one router chooses between: all replicas of a cluster that serve one model, those of one node, or one
replica alone. Within a pool the replica with the fewest requests takes the next. Clusters are offered work in the order
of the scenario's policy: the first that is below its preferred use, else the one with the lowest; use is the hourly
model's, what it took lately over what it sustains. A pool in which no replica has room within the objective holds
requests in one queue, or refuses those that would be late anyway, as the scenario says. Deferrable work waits in a
queue of its own, from which replicas with time to spare help themselves.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from planner.requests.batching import PACE_FRACTION, YIELD_FRACTION, Replica, Request, StepTimes

_RATE_MEMORY_S = (
    30.0  # over which a pool's rate of finished requests, and what a group takes, are averaged
)
_LEAST_REMEMBERED = (
    100.0  # requests, at least, of which a group's use is the mean: of few it says nothing
)
_DOWN = 1_000_000_000  # a load that no replica in service has


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySlo:
    """A workload's priority, latency objectives and admission policy, for the router."""

    name: str
    level: int
    """Priority: 0 is served first."""
    ttft_s: float
    tpot_s: float
    is_deferrable: bool = False
    """Whether it waits in a queue of its own until replicas have time."""
    refuses: bool = True
    """Whether a request that would be late is refused; otherwise it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillStage:
    """Accelerators that only prefill prompts, whose caches then move to the replicas that decode."""

    times: StepTimes
    """Of one worker."""
    replicas: float
    """What one worker takes of accelerators, in replicas that decode."""
    share: float
    """Of the pool's accelerators."""
    transfer_s_per_token: float


class ReplicaPool:
    """Replicas of one model behind one router; workers that only prefill prompts come last."""

    def __init__(
        self,
        router: RequestRouter,
        times: StepTimes,
        replicas: int,
        held_s: Mapping[int, float],
        prefill: PrefillStage | None = None,
    ) -> None:
        """Take the number of replicas, and the mean time per token to hold for each workload served.

        Of the accelerators of so many replicas a share prefills, in whole workers.
        """
        self.router = router
        self.times = times
        served = list(held_s)
        slos = [router.slos[workload] for workload in served]
        levels = range(1 + max((slo.level for slo in slos), default=0))
        self.held_s = [
            min((held_s[w] for w in served if router.slos[w].level <= most), default=math.inf)
            for most in levels
        ]
        tightest_s = [
            min((p.tpot_s for p in slos if p.level < most), default=math.inf) for most in levels
        ]
        self.pace_s = [YIELD_FRACTION * tpot_s for tpot_s in tightest_s]
        self.deferrable = [workload for workload in served if router.slos[workload].is_deferrable]
        more = self._more if self.deferrable else None
        self.prefill = prefill
        self.moving = 0
        decoding = replicas
        """Workers for prompts, if any, and the requests whose caches move."""
        stages = [(times, None if prefill else more)] * replicas
        if prefill is not None:
            first = max(round(prefill.share * replicas / prefill.replicas), 1)
            decoding = max(int(replicas - first * prefill.replicas), 1)
            stages = stages[:decoding] + [(prefill.times, more)] * first
        self.decoding = range(decoding)
        self.entry = range(len(stages))[decoding if prefill else 0 :]
        """Places of the replicas that decode, and of those to which requests come."""
        self.replicas = [
            Replica(router.env, of, self.pace_s, self._done, helps) for of, helps in stages
        ]
        self.loads = [0] * len(stages)
        """Requests of each replica, deferrable work left out."""
        self.places = {replica: place for place, replica in enumerate(self.replicas)}
        self.queue: list[Request] = []
        self.up = len(stages)
        self._finish_rate = 0.0
        self._finished_s = router.env.now

    def offer(self, request: Request, slo: LatencySlo) -> bool:
        """Take a request, at once or in the queue; return False where admission control rejects it."""
        place = self._least(self.entry)
        decoder = self._least(self.decoding) if self.prefill else place
        is_up = max(self.loads[place], self.loads[decoder]) < _DOWN
        ttft_s = self.replicas[place].expected_ttft_s(request) if is_up else math.inf
        if is_up and ttft_s > 0.5 * slo.ttft_s:
            # The fewest requests, but a long prompt among them: look at every replica, which is seldom needed.
            up = [place for place in self.entry if self.loads[place] < _DOWN]
            ttft_s, place = min(
                (self.replicas[place].expected_ttft_s(request), place) for place in up
            )
        if not self.prefill:
            decoder = place
        at_once = is_up and not self.queue and self._has_room(self.replicas[decoder], request)
        if slo.refuses:
            wait_s = self._transfer_s(request)
            wait_s += (
                0.0
                if at_once
                else (len(self.queue) + 1) / max(self._finish_rate, 1e-12) / PACE_FRACTION
            )
            if not is_up or wait_s + ttft_s > slo.ttft_s:
                return False
        if at_once:
            self._start(place, request)
        else:
            heapq.heappush(self.queue, request)
        return True

    def _least(self, places: range) -> int:
        """Return the place among some whose replica has the fewest requests."""
        loads = self.loads[places.start : places.stop]
        return places.start + loads.index(min(loads))

    def _start(self, place: int, request: Request) -> None:
        """Give a request to a replica; a worker that only prefills computes its first token alone."""
        if not self.router.slos[request.workload].is_deferrable:
            self.loads[place] += 1
        if place not in self.decoding:
            request.left_tokens = 1
        self.replicas[place].take(request)

    def _transfer_s(self, request: Request) -> float:
        """Return the time in which a request's cache moves to the replica that decodes."""
        fresh = request.prompt_tokens - request.cached_tokens
        return fresh * self.prefill.transfer_s_per_token if self.prefill else 0.0

    def _hand_over(self, request: Request) -> Generator[simpy.Event, Any, None]:
        """Move a prefilled request to the replica that decodes with the fewest requests; with none it starts anew."""
        self.moving += 1
        yield self.router.env.timeout(self._transfer_s(request))
        self.moving -= 1
        request.begin()
        request.first_token_s = request.finished_s = math.nan
        place = self._least(self.decoding)
        if self.loads[place] == _DOWN:
            self.router.offer(request)
            return
        request.prefilled_tokens = request.needed_tokens
        self._start(place, request)

    def _has_room(self, replica: Replica, request: Request) -> bool:
        """Return whether a replica has room for one more request.

        Where late requests are refused it must also keep the time per token promised to all it has; where they wait,
        they wait in the batch, as engines have it, and make everything slower.
        """
        level = request.level
        sequences = sum(replica.requests[: level + 1])
        if self.prefill:  # and its share of those to come
            coming = self.moving + sum(
                self.loads[place] for place in self.entry if self.loads[place] < _DOWN
            )
            sequences += coming // len(self.decoding)
        if sequences == 0 or sequences >= self.times.most_sequences:
            return sequences == 0
        if not self.router.slos[request.workload].refuses:
            return True
        context = sum(replica.context_tokens[: level + 1]) + request.prompt_tokens
        return self.times.decode_s(sequences + 1, context) <= self.held_s[
            level
        ] * replica.decoding_share(level)

    def _done(self, replica: Replica, request: Request) -> None:
        """Count a finished request, and let its replica take the next from the queue."""
        now = self.router.env.now
        fading = math.exp((self._finished_s - now) / _RATE_MEMORY_S)
        self._finish_rate = self._finish_rate * fading + 1.0 / _RATE_MEMORY_S
        self._finished_s = now
        place = self.places[replica]
        if not self.router.slos[request.workload].is_deferrable:
            self.loads[place] -= 1
        if place not in self.decoding:
            self.router.env.process(self._hand_over(request))
            return
        self.router.finished(request)
        self._pull(place)

    def _pull(self, place: int) -> None:
        """Let a replica take requests from the queue while it has room; reject any that waited too long."""
        replica = self.replicas[place]
        while self.queue and self._has_room(replica, self.queue[0]):
            request = heapq.heappop(self.queue)
            slo = self.router.slos[request.workload]
            waited_s = self.router.env.now - request.arrived_s + self._transfer_s(request)
            entry = self._least(self.entry) if self.prefill else place
            is_up = self.loads[entry] < _DOWN
            if slo.refuses and not (
                is_up and waited_s + self.replicas[entry].expected_ttft_s(request) <= slo.ttft_s
            ):
                self.router.refuse(request)
                continue
            if not is_up:
                heapq.heappush(self.queue, request)
                return
            self._start(entry, request)

    def _more(self, replica: Replica) -> bool:
        """Give a replica that computes no prompt deferrable work, if any, while steps stay within the objectives."""
        decoder = self.replicas[self._least(self.decoding)] if self.prefill else replica
        for workload in self.deferrable if not replica.prefilling else ():
            if waiting := self.router.deferred[workload]:
                sequences = sum(decoder.requests) + 1
                context = sum(decoder.context_tokens) + waiting[0].prompt_tokens
                limit_s = decoder.allowed_s(waiting[0].level)
                if (
                    sequences <= self.times.most_sequences
                    and self.times.decode_s(sequences, context) <= limit_s
                ):
                    self._start(self.places[replica], waiting.popleft())
                    return True
        return False

    def fail(self, place: int) -> None:
        """Take a replica out of service and route its requests again."""
        if self.loads[place] == _DOWN:
            return
        self.up -= 1
        self.loads[place] = _DOWN
        for request in self.replicas[place].fail():
            self.router.offer(request)

    def repair(self, place: int) -> None:
        """Put a replica back into service."""
        if self.loads[place] != _DOWN:
            return
        self.up += 1
        self.loads[place] = 0
        replica = self.replicas[place]
        replica.is_up = True
        self._pull(place)
        replica.wake()


@dataclass(slots=True, kw_only=True)
class Group:
    """The replicas of one cluster that serve one model."""

    pools: list[ReplicaPool]
    capacity_requests_per_s: Mapping[int, float]
    """By workload, what one replica sustains."""
    taken: dict[int, float] = field(default_factory=dict)
    """By rank of workload, replicas that what it took lately keeps at work, times the seconds over which that fades."""
    faded_s: float = -math.inf
    allowed_use: float = 1.0
    """Share of its replicas up to which waits allow it to be filled before machines are rented by the hour."""
    work_s: float = 0.0
    """Seconds for which all that it ever took keeps a replica at work."""
    memory_s: float = field(init=False)
    """Over which what it takes fades, τ: longer where requests are few."""

    def __post_init__(self) -> None:
        slowest = min(
            (rate for rate in self.capacity_requests_per_s.values() if rate > 0.0), default=math.inf
        )
        replicas = sum(len(pool.replicas) for pool in self.pools)
        self.memory_s = max(_RATE_MEMORY_S, _LEAST_REMEMBERED / (slowest * replicas))

    def take(self, rank: int, workload: int, now_s: float) -> None:
        """Record that a request was taken: it occupies a replica for 1 / capacity seconds."""
        self._fade(now_s)
        capacity = self.capacity_requests_per_s[workload]
        work_s = 1.0 / capacity if capacity > 0.0 else 0.0
        self.taken[rank] = self.taken.get(rank, 0.0) + work_s
        self.work_s += work_s

    def use(self, rank: int, now_s: float, began_s: float) -> float:
        """Return the share of replicas in service that is busy with a rank and those above it.

        What was taken t seconds ago counts e^(−t/τ), in all τ·(1 − e^(−T/τ)) seconds since the beginning, T ago.
        """
        self._fade(now_s)
        up = sum([pool.up for pool in self.pools])
        remembered_s = -math.expm1((began_s - now_s) / self.memory_s) * self.memory_s
        taken = sum([part for other, part in self.taken.items() if other <= rank])
        return taken / max(remembered_s, 1e-9) / up if up else math.inf

    def _fade(self, now_s: float) -> None:
        if self.faded_s == now_s:  # it is asked several times for each request
            return
        kept = math.exp((self.faded_s - now_s) / self.memory_s)
        self.taken = {rank: kept * part for rank, part in self.taken.items()}
        self.faded_s = now_s


_use = operator.itemgetter(0)


@dataclass(slots=True)
class RequestRouter:
    """All groups of replicas, and the admission and routing of requests."""

    env: simpy.Environment
    slos: Sequence[LatencySlo]
    by_rank: Sequence[int]
    """Workloads in the order in which the hourly model offers them to clusters; each sees those before it."""
    preferred_use: float
    """Share of a group's replicas up to which it is offered work before the next."""
    groups: list[Group] = field(default_factory=list)
    ways: dict[int, list[list[Group]]] = field(default_factory=dict)
    """By workload, the groups that may serve it, in the order of the policy; those that are alike together."""
    paid_tiers: dict[int, int] = field(default_factory=dict)
    """By workload, how many of those tiers are paid anyway; those after them are rented by the hour."""
    deferred: dict[int, deque[Request]] = field(default_factory=dict)
    arrived: int = 0
    refused: int = 0
    done: int = 0
    on_end: Callable[[Request], None] = lambda _: None
    """Told of every request that is finished or refused."""
    began_s: float = field(init=False)
    ranks: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.env.now
        self.ranks = {workload: rank for rank, workload in enumerate(self.by_rank)}

    def arrive(self, request: Request) -> None:
        """Count a request and route it."""
        self.arrived += 1
        self.offer(request)

    def offer(self, request: Request) -> None:
        """Route a request, or reject it."""
        slo = self.slos[request.workload]
        tiers = self.ways[request.workload]
        if slo.is_deferrable:
            self.deferred.setdefault(request.workload, deque()).append(request)
            pools = (pool for tier in tiers for group in tier for pool in group.pools)
            idle = (
                one
                for pool in pools
                for one in pool.replicas
                if one.alarm is not None and one.is_up
            )
            if (replica := next(idle, None)) is not None:
                replica.wake()
            return
        for group in self._in_order(request.workload, tiers):
            pool = group.pools[int(request.lot * len(group.pools))]
            if pool.offer(request, slo):
                group.take(self.ranks[request.workload], request.workload, self.env.now)
                return
        self.refuse(request)

    def refuse(self, request: Request) -> None:
        """Reject a request."""
        self.refused += 1
        request.refused_s = self.env.now
        self.on_end(request)

    def _in_order(self, workload: int, tiers: list[list[Group]]) -> list[Group]:
        """Return the groups in the order in which a request is offered to them now.

        The first tier with a group below its preferred use has it, the least used of those; then whoever is least used.
        Machines rented by the hour come after what the others' waits allow.
        """
        if len(tiers) <= 1 and sum(map(len, tiers)) <= 1:
            return tiers[0] if tiers else []
        rank = self.ranks[workload]
        used = []
        now_s = self.env.now
        for at, tier in enumerate(tiers):
            for group in tier:
                use = group.use(rank, now_s, self.began_s)
                used.append((use, use < self.preferred_use, at, group))
        used.sort(key=_use)
        first = min((row for row in used if row[1]), key=lambda row: row[2], default=used[0])
        paid = self.paid_tiers.get(workload, len(tiers))
        if first[2] >= paid:
            first = next(
                (row for row in used if row[2] < paid and row[0] < row[-1].allowed_use), first
            )
        return [first[-1], *(row[-1] for row in used if row is not first)]

    def finished(self, request: Request) -> None:
        """Count a finished request."""
        self.done += 1
        self.on_end(request)

    @property
    def in_flight(self) -> int:
        """Number of requests arrived and neither finished nor rejected."""
        queued = sum(len(waiting) for waiting in self.deferred.values())
        pools = [pool for group in self.groups for pool in group.pools]
        inside = sum(sum(replica.requests) for pool in pools for replica in pool.replicas)
        return queued + inside + sum(len(pool.queue) + pool.moving for pool in pools)
