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
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import simpy

from planner.records import record
from planner.requests.batching import PACE_FRACTION, YIELD_FRACTION, Replica, Request, StepTimes

_RATE_MEMORY_S = 30.0
"""Seconds over which a pool's rate of finished requests, and what a group takes, are averaged."""
_MIN_REMEMBERED = 100.0
"""Requests, at least, of which a group's use is the mean: of few it says nothing."""
_DOWN = 1_000_000_000
"""A load that no replica in service has, so that the least loaded is never one that is down."""


@record
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


@record
class PrefillStage:
    """Accelerators that only prefill prompts, whose caches then move to the replicas that decode."""

    times: StepTimes
    """Of one worker."""
    replicas: float
    """What one worker takes of accelerators, in replicas that decode."""
    share: float
    """Of the pool's accelerators."""
    transfer_s_per_token: float
    handover_s: float = 0.0
    """Beyond the transfer, until a replica that decodes takes a request into its steps."""


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
        lowest_level = max((slo.level for slo in slos), default=0)
        self.held_s: list[float] = []
        """By priority, the mean time per token that its requests and all above them are to keep."""
        self.pace_s: list[float] = []
        """By priority, the longest step that those above it allow: a fraction of their tightest objective."""
        for level in range(1 + lowest_level):
            # A priority shares each step with all above it, so the tightest of their paces is its
            # own.
            paces_s = [held_s[w] for w in served if router.slos[w].level <= level]
            objectives_s = [slo.tpot_s for slo in slos if slo.level < level]
            self.held_s.append(min(paces_s, default=math.inf))
            self.pace_s.append(YIELD_FRACTION * min(objectives_s, default=math.inf))
        self.deferrable = [workload for workload in served if router.slos[workload].is_deferrable]
        pull_deferrable = self._pull_deferrable if self.deferrable else None
        self.prefill = prefill
        self.moving = 0
        """Requests whose caches move from a worker for prompts to a replica that decodes."""
        worker_times = [times] * replicas
        self.decoding = range(replicas)
        """Places of the replicas that decode."""
        self.entry = self.decoding
        """Places of the replicas to which requests come."""
        if prefill is not None:
            workers = prefill.share * replicas / prefill.replicas
            prefill_workers = max(round(workers), 1)
            remaining = replicas - prefill_workers * prefill.replicas
            decoders = max(int(remaining), 1)
            worker_times = [times] * decoders + [prefill.times] * prefill_workers
            self.decoding = range(decoders)
            self.entry = range(decoders, decoders + prefill_workers)
        # Deferrable work begins where all work does: with a prompt.
        self.replicas = [
            Replica(
                router.env,
                own_times,
                self.pace_s,
                self._done,
                pull_deferrable if place in self.entry else None,
            )
            for place, own_times in enumerate(worker_times)
        ]
        self.loads = [0] * len(worker_times)
        """Requests of each replica, deferrable work left out."""
        self.places = {replica: place for place, replica in enumerate(self.replicas)}
        self.homes: dict[int | None, int] = {}
        """Places to which sessions were sent last, where a router keeps them there."""
        self.queue: list[Request] = []
        self.up = len(worker_times)
        self._finish_rate = 0.0
        self._finished_s = router.env.now

    def offer(self, request: Request, slo: LatencySlo) -> bool:
        """Take a request, at once or in the queue; return False where admission control rejects it."""
        # Of replicas with equally few requests the first: the choice needs no draw.
        place = self._home(request)
        decoder = place
        if self.prefill:
            decoder = self._least(self.decoding)
        busiest = max(self.loads[place], self.loads[decoder])
        is_up = busiest < _DOWN
        ttft_s = math.inf
        if is_up:
            ttft_s = self._expected_ttft_s(place, request)
        # A session stays where its prompts are held, however long it waits there.
        is_free = self.homes.get(request.session) != place
        if is_up and is_free and ttft_s > 0.5 * slo.ttft_s:
            # The fewest requests, but a long prompt among them: look at every replica, which is seldom needed.
            places_up = [place for place in self.entry if self.loads[place] < _DOWN]
            ttft_s, place = min(
                (self._expected_ttft_s(place, request), place) for place in places_up
            )
        # Where one replica does both, the one with the shortest wait decodes too.
        if not self.prefill:
            decoder = place
        at_once = is_up and not self.queue and self._has_room(self.replicas[decoder], request)
        if slo.refuses:
            wait_s = self._transfer_s(request)
            if not at_once:
                # Its turn comes when those before it in the queue and itself have found a place.
                places_needed = len(self.queue) + 1
                finish_rate = max(self._finish_rate, 1e-12)
                wait_s += places_needed / finish_rate / PACE_FRACTION
            would_be_late = not is_up or wait_s + ttft_s > slo.ttft_s
            if would_be_late:
                return False
        if at_once:
            self._start(place, request)
        else:
            heapq.heappush(self.queue, request)
        return True

    def _home(self, request: Request) -> int:
        """Return the place to which a router sends a request first: its session's, else that with fewest requests."""
        home = self.homes.get(request.session)
        if home is not None and self.loads[home] < _DOWN:
            return home
        return self._least(self.entry)

    def _expected_ttft_s(self, place: int, request: Request) -> float:
        """Return the TTFT of a request at a place, with what it would find there."""
        self.replicas[place].look_up(request)
        return self.replicas[place].expected_ttft_s(request)

    def _least(self, places: range) -> int:
        """Return the place among some whose replica has the fewest requests."""
        loads = self.loads[places.start : places.stop]
        return places.start + loads.index(min(loads))

    def _start(self, place: int, request: Request) -> None:
        """Give a request to a replica; a worker that only prefills computes its first token alone."""
        if not self.router.slos[request.workload].is_deferrable:
            # Deferrable work does not count: it never keeps a request away.
            self.loads[place] += 1
        if place not in self.decoding:
            # The prompt's step gives one token; the replica that decodes begins with the rest.
            request.left_tokens = 1
        if request.session is not None and request.workload in self.router.keeps_sessions:
            self.homes[request.session] = place
        self.replicas[place].take(request)

    def _transfer_s(self, request: Request) -> float:
        """Return the time in which a request and its cache move to the replica that decodes."""
        fresh = request.prompt_tokens - request.cached_tokens
        if self.prefill:
            return fresh * self.prefill.transfer_s_per_token + self.prefill.handover_s
        return 0.0

    def _hand_over(self, request: Request) -> Generator[simpy.Event, Any, None]:
        """Move a prefilled request to the replica that decodes with the fewest requests; with none it starts anew."""
        self.moving += 1
        yield self.router.env.timeout(self._transfer_s(request))
        self.moving -= 1
        # Its only token so far was the worker's: the client sees the first when the cache has moved.
        request.begin()
        request.first_token_s = request.finished_s = math.nan
        place = self._least(self.decoding)
        if self.loads[place] == _DOWN:
            # Every replica that decodes is down, and with the last of them went the cache.
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
        if sequences == 0:
            return True  # whatever its length: nobody is slowed by it
        if sequences >= self.times.max_sequences:
            return False
        if not self.router.slos[request.workload].refuses:
            return True
        held_context = sum(replica.context_tokens[: level + 1])
        context = held_context + request.prompt_tokens
        # Steps that carry prompts take their share of the time: what is left must do for decoding.
        limit_s = self.held_s[level] * replica.decoding_share(level)
        step_s = self.times.decode_s(sequences + 1, context)
        return step_s <= limit_s

    def _done(self, replica: Replica, request: Request) -> None:
        """Count a finished request, and let its replica take the next from the queue."""
        now_s = self.router.env.now
        # Each finished request counts 1/τ and fades with τ: a mean rate over the last half minute or so.
        fading = math.exp((self._finished_s - now_s) / _RATE_MEMORY_S)
        # Written once per request, so that no list of past ones is kept.
        self._finish_rate = self._finish_rate * fading + 1.0 / _RATE_MEMORY_S
        self._finished_s = now_s
        place = self.places[replica]
        if not self.router.slos[request.workload].is_deferrable:
            self.loads[place] -= 1
        if place not in self.decoding:
            self.router.env.process(self._hand_over(request))
            return
        self.router.count_finished(request)
        self._pull(place)

    def _pull(self, place: int) -> None:
        """Let a replica take requests from the queue while it has room; reject any that waited too long."""
        replica = self.replicas[place]
        while self.queue and self._has_room(replica, self.queue[0]):
            request = heapq.heappop(self.queue)
            slo = self.router.slos[request.workload]
            queued_s = self.router.env.now - request.arrived_s
            waited_s = queued_s + self._transfer_s(request)
            entry = place
            if self.prefill:
                entry = self._least(self.entry)
            is_up = self.loads[entry] < _DOWN
            if slo.refuses:
                ttft_s = math.inf
                if is_up:
                    ttft_s = self._expected_ttft_s(entry, request)
                if waited_s + ttft_s > slo.ttft_s:
                    self.router.refuse(request)
                    continue
            if not is_up:
                # No worker for prompts is up: the request goes back, and a repair pulls it again.
                heapq.heappush(self.queue, request)
                return
            self._start(entry, request)

    def _pull_deferrable(self, replica: Replica) -> bool:
        """Give a replica that computes no prompt deferrable work, if any, while steps stay within the objectives."""
        if replica.prefilling:
            return False
        decoder = replica
        if self.prefill:
            decoder = self.replicas[self._least(self.decoding)]
        sequences = sum(decoder.requests) + 1
        if sequences > self.times.max_sequences:
            return False
        for workload in self.deferrable:
            waiting = self.router.deferred[workload]
            if not waiting:
                continue
            # It may fill a step only as far as the priorities above allow.
            held_context = sum(decoder.context_tokens)
            context = held_context + waiting[0].prompt_tokens
            step_s = self.times.decode_s(sequences, context)
            if step_s <= decoder.allowed_s(waiting[0].level):
                self._start(self.places[replica], waiting.popleft())
                return True
        return False

    def fail(self, place: int) -> None:
        """Take a replica out of service and route its requests again."""
        # The site and a node of it may fail at the same time: once is enough.
        if self.loads[place] == _DOWN:
            return
        self.up -= 1
        self.loads[place] = _DOWN
        for request in self.replicas[place].fail():
            self.router.offer(request)

    def repair(self, place: int) -> None:
        """Put a replica back into service."""
        # Another outage may have ended first and brought it back.
        if self.loads[place] != _DOWN:
            return
        self.up += 1
        self.loads[place] = 0
        replica = self.replicas[place]
        replica.is_up = True
        # First what waits for the pool, then a look for deferrable work.
        self._pull(place)
        replica.wake()


@dataclass(slots=True, kw_only=True)
class Group:
    """The replicas of one cluster that serve one model."""

    pools: list[ReplicaPool]
    capacity_requests_per_s: Mapping[int, float]
    """By workload, what one replica sustains."""
    recent_work: dict[int, float] = field(default_factory=dict)
    """By rank of workload, replicas that what it took lately keeps at work, times the seconds over which that fades."""
    faded_s: float = -math.inf
    allowed_use: float = 1.0
    """Share of its replicas up to which waits allow it to be filled before machines are rented by the hour."""
    work_s: float = 0.0
    """Seconds for which all that it ever took keeps a replica at work."""
    memory_s: float = field(init=False)
    """Over which what it takes fades, τ: longer where requests are few."""

    def __post_init__(self) -> None:
        rates = [rate for rate in self.capacity_requests_per_s.values() if rate > 0.0]
        slowest = min(rates, default=math.inf)
        replicas = sum(len(pool.replicas) for pool in self.pools)
        # Long enough that about a hundred of the slowest requests fall into it.
        requests_per_s = slowest * replicas
        self.memory_s = max(_RATE_MEMORY_S, _MIN_REMEMBERED / requests_per_s)

    def replicas(self) -> list[Replica]:
        """Return the replicas of all its pools, in order."""
        by_pool = [pool.replicas for pool in self.pools]
        return list(chain.from_iterable(by_pool))

    def take(self, rank: int, workload: int, now_s: float) -> None:
        """Record that a request was taken: it occupies a replica for 1 / capacity seconds."""
        self._fade(now_s)
        capacity = self.capacity_requests_per_s[workload]
        work_s = 1.0 / capacity if capacity > 0.0 else 0.0
        self.recent_work[rank] = self.recent_work.get(rank, 0.0) + work_s
        self.work_s += work_s

    def use(self, rank: int, now_s: float, began_s: float) -> float:
        """Return the share of replicas in service that is busy with a rank and those above it.

        What was taken t seconds ago counts e^(−t/τ), in all τ·(1 − e^(−T/τ)) seconds since the beginning, T ago.
        """
        self._fade(now_s)
        # Lists, not generators: this runs for every request and group.
        replicas_up = sum([pool.up for pool in self.pools])
        since_start = (began_s - now_s) / self.memory_s
        remembered_s = -math.expm1(since_start) * self.memory_s
        if not replicas_up:
            return math.inf
        # Just after the beginning nothing is remembered: a division by next to nothing is avoided.
        at_most_rank = [work for ranked, work in self.recent_work.items() if ranked <= rank]
        work = sum(at_most_rank)
        return work / max(remembered_s, 1e-9) / replicas_up

    def _fade(self, now_s: float) -> None:
        """Let what was taken fade up to now."""
        if self.faded_s == now_s:
            return  # each request looks several times
        # Each finished request counts 1/τ and fades with τ: a mean rate over the last half minute or so.
        fading = math.exp((self.faded_s - now_s) / self.memory_s)
        self.recent_work = {rank: fading * work for rank, work in self.recent_work.items()}
        self.faded_s = now_s


class _Offer(NamedTuple):
    """A group that may take a request now."""

    use: float
    tier: int
    group: Group


_by_use = operator.itemgetter(0)


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
    tiers: dict[int, list[list[Group]]] = field(default_factory=dict)
    """By workload, the groups that may serve it, in the order of the policy; those that are alike together."""
    paid_tiers: dict[int, int] = field(default_factory=dict)
    """By workload, how many of those tiers are paid anyway; those after them are rented by the hour."""
    deferred: dict[int, deque[Request]] = field(default_factory=dict)
    arrived: int = 0
    refused: int = 0
    completed: int = 0
    keeps_sessions: set[int] = field(default_factory=set)
    """Workloads whose sessions are sent to the replica that served them last."""
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
        tiers = self.tiers[request.workload]
        if slo.is_deferrable:
            self.deferred.setdefault(request.workload, deque()).append(request)
            self._wake_idle(chain.from_iterable(tiers))
            return
        for group in self._in_order(request.workload, tiers):
            # A request keeps its lot, and so its pool of a group, when it is offered again.
            pool_index = int(request.lot * len(group.pools))
            pool = group.pools[pool_index]
            if pool.offer(request, slo):
                rank = self.ranks[request.workload]
                group.take(rank, request.workload, self.env.now)
                return
        self.refuse(request)

    def _wake_idle(self, groups: Iterable[Group]) -> None:
        """Wake the first replica that sleeps, so that it helps itself to deferrable work."""
        for group in groups:
            for replica in group.replicas():
                if replica.alarm is not None and replica.is_up:
                    replica.wake()
                    return

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
        # One group, as most models have, needs no ranking.
        if len(tiers) <= 1 and sum(map(len, tiers)) <= 1:
            if tiers:
                return tiers[0]
            return []
        rank = self.ranks[workload]
        offers = []
        now_s = self.env.now
        for tier_index, tier in enumerate(tiers):
            offers += [
                _Offer(group.use(rank, now_s, self.began_s), tier_index, group) for group in tier
            ]
        # By use alone, and stable: of groups used alike the earlier tier stays first.
        offers.sort(key=_by_use)
        preferred = [offer for offer in offers if offer.use < self.preferred_use]
        choice = min(preferred, key=lambda offer: offer.tier, default=offers[0])
        paid_tiers = self.paid_tiers.get(workload, len(tiers))
        if choice.tier >= paid_tiers:
            # Before machines are rented, those that are paid anyway are filled as far as waits allow.
            paid = [offer for offer in offers if offer.tier < paid_tiers]
            with_room = [offer for offer in paid if offer.use < offer.group.allowed_use]
            choice = with_room[0] if with_room else choice
        others = (offer.group for offer in offers if offer is not choice)
        return [choice.group, *others]

    def count_finished(self, request: Request) -> None:
        """Count a finished request."""
        self.completed += 1
        self.on_end(request)

    @property
    def in_flight(self) -> int:
        """Number of requests arrived and neither finished nor rejected."""
        queued = sum(len(waiting) for waiting in self.deferred.values())
        for group in self.groups:
            in_replicas = sum(sum(replica.requests) for replica in group.replicas())
            queued += in_replicas
            in_pools = sum(len(pool.queue) + pool.moving for pool in group.pools)
            queued += in_pools
        return queued
