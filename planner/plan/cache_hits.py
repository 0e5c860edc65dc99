"""What the prefix cache of a replica finds at a load, where a workload states its reuse.

Memory that weights and running sequences leave free holds what was used last (``planner.physics.prefix_cache``). More
load leaves less free, and its tokens come back after more others: both lower what is found. What is not found is
prefilled, which keeps sequences running for longer. So a replica may be stable both cold and warm at one load; it is
planned warm: from all found that ever is, what is found falls until it fits the load.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np

from planner.arrays import Floats
from planner.physics.prefix_cache import (
    GAPS_S,
    ReuseCurve,
    WorkingSet,
    found_fraction,
    residence_s,
    working_set,
)
from planner.physics.replica import Lengths, Replicas, ReplicaTimes, Traffic, at_objective
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Objective, Workload

_MOST_STEPS = 60
"""From warm to what a load leaves: near the load at which a cache goes cold it takes some twenty."""
_SETTLED = 1e-5
"""Of prompts: what a step changes where the state is settled."""
_COPY_SLOWDOWN = 0.07
"""Of a decode step beside a copy from host memory: 7.55 to 8.09 ms (own measurement on one H200)."""
_TIER_SLOWDOWN = 0.02
"""Of all steps where a second tier is kept, used or not: public runs lose 1.5 to 2.7%."""
_BATCHES = np.linspace(0.0, 1.0, 120)[1:] ** 1.6
"""Batches over the largest between which that of a load is interpolated."""


_HALVINGS = 14
"""Of the share found by mean times: to a ten-thousandth."""


@record
class SharingWorkload:
    """Another workload of the same model, whose tokens are in the same caches."""

    tokens_ratio: float
    """Its input tokens over those of the workload itself."""
    curve: ReuseCurve
    routing: str


@record
class CacheTerms:
    """What decides the hits of a workload beside the layout."""

    curve: ReuseCurve
    routing: str
    """session, prefix or random."""
    tiers: tuple[bool, ...]
    """Whether host memory holds what leaves the accelerators: the choices."""
    time_share: float = 1.0
    """Of a replica's time, that of the workload; the rest is that of those it shares with."""
    sharing: tuple[SharingWorkload, ...] = ()

    @property
    def key(self) -> Hashable:
        """What tells those who share from others, for the cache of figures."""
        others = [
            (other.tokens_ratio, other.curve.reused_fraction.tobytes(), other.routing)
            for other in self.sharing
        ]
        return self.time_share, tuple(others)

    def working_set(self, replicas: float) -> WorkingSet:
        """Return what the workload finds by residence time, and what all who share put into one of some replicas.

        A replica that spends a share s of its time on the workload takes s of the rate that it would take of it alone,
        and the tokens of others in proportion to all traffic: s · λ · (D + Σ ratio · D of each other).
        """
        own = working_set(self.curve, self.routing, replicas)
        distinct_s = own.distinct_s.copy()
        for other in self.sharing:
            of_other = working_set(other.curve, other.routing, replicas)
            distinct_s += other.tokens_ratio * of_other.distinct_s
        return WorkingSet(
            found_fraction=own.found_fraction, distinct_s=self.time_share * distinct_s
        )


@record
class CacheState:
    """What a replica's caches find and hold at a load."""

    found_fraction: float
    """Of input tokens, in all tiers."""
    host_fraction: float
    """Of input tokens, copied from host memory."""
    free_tokens: float
    """Tokens of finished requests that the accelerators hold."""
    host_tokens: float
    """Tokens that host memory holds."""
    prompt_tokens: float
    """Of a mean prompt, as far as the model attends to it."""
    speed: float
    """Of the steps, over those without a second tier."""
    is_settled: bool
    """Whether it lasts at this load: False where more requests come than the replica takes."""

    def lengths(self, lengths: Lengths) -> Lengths:
        """Return the lengths of a workload with what is found of its prompts."""
        return replace(
            lengths, cached_fraction=self.found_fraction, host_fraction=self.host_fraction
        )


LOADS = tuple(step / 10.0 for step in range(1, 11))
"""Loads over capacity at which what is found is kept; between them it is interpolated."""


@record
class CacheUse:
    """What a workload finds in the caches of its replicas, by load; at capacity the last of :data:`LOADS`."""

    found_fractions: tuple[float, ...]
    """Of input tokens, in all tiers."""
    host_fractions: tuple[float, ...]
    """Of input tokens, copied from host memory."""
    contexts: float
    """Mean prompts of finished requests that one replica holds at capacity, in all tiers."""
    host_contexts: float
    """Of these, in host memory."""
    accelerators: int
    """Of one replica."""

    @property
    def has_host(self) -> bool:
        """Whether host memory is used."""
        return self.host_contexts > 0.0

    def at(self, load: Floats) -> tuple[Floats, Floats]:
        """Return the shares found, and found in host memory, at loads over capacity; NaN where the load is."""
        found = np.interp(load, LOADS, self.found_fractions)
        host = np.interp(load, LOADS, self.host_fractions)
        return np.where(np.isnan(load), np.nan, found), np.where(np.isnan(load), np.nan, host)


@record
class ReplicaCache:
    """The caches of one replica of a layout, for one workload."""

    replicas: Replicas
    layout: int
    traffic: WorkingSet
    has_host: bool

    @property
    def most_found(self) -> float:
        """Share of input tokens that an endless cache finds."""
        return float(self.traffic.found_fraction[-1])

    def figure(self, name: str) -> float:
        """Return a figure of the layout."""
        return float(self.replicas[name][self.layout])

    def _found(self, room_s: Floats) -> list[float]:
        """Return the shares found in caches that hold so many seconds of new tokens.

        As by the residence time, of which both are functions: one look-up less for each of thousands of loads.
        """
        residence = np.interp(room_s, self.traffic.distinct_s, GAPS_S)
        shares: list[float] = found_fraction(self.traffic, residence).tolist()
        return shares

    def state(self, speed: float, lengths: Lengths, requests_per_s: float) -> CacheState:
        """Return the warm state at a load, or the coldest where the replica does not take the load."""
        kv_tokens = self.figure("kv_capacity_tokens")
        host_tokens = self.figure("host_tokens") if self.has_host else 0.0
        copy_s = self.figure("host_copy_s_per_token")
        found = self.most_found
        host = 0.0
        prompt = 1.0
        free = kv_tokens
        tier_speed = 1.0 / (1.0 + _TIER_SLOWDOWN) if self.has_host else 1.0
        step_speed = tier_speed
        is_settled = False
        for _ in range(_MOST_STEPS):
            cached = replace(lengths, cached_fraction=found, host_fraction=host)
            times = ReplicaTimes(self.replicas, self.layout, speed * step_speed, cached)
            prompt = times.mean_prompt_tokens
            sequences = _in_replica(times, requests_per_s)
            free = max(kv_tokens - sequences * kv_tokens / times.room, 0.0)
            tokens_per_s = requests_per_s * prompt * times.kept_fraction
            # Seconds of new tokens that the first tier holds, and both; without traffic all stays.
            room_s = np.array([free, free + host_tokens]) / max(tokens_per_s, 1e-12)
            in_hbm, in_both = self._found(room_s)
            # From warm to cold: what is found falls until it no longer changes.
            now_found = min(in_both, found)
            now_host = max(now_found - in_hbm, 0.0)
            change = abs(now_found - found) + abs(now_host - host)
            found = now_found
            host = now_host
            link_busy = min(requests_per_s * prompt * host * copy_s, 1.0)
            step_speed = tier_speed / (1.0 + _COPY_SLOWDOWN * link_busy)
            if change < _SETTLED:
                is_settled = link_busy < 1.0
                break
        return CacheState(
            found_fraction=found,
            host_fraction=host,
            free_tokens=free,
            host_tokens=host_tokens,
            prompt_tokens=prompt,
            speed=step_speed,
            is_settled=is_settled,
        )


def stated_hits(scenario: Scenario) -> Iterator[str]:
    """Yield a note on the workloads whose share in the cache is stated."""
    stated = [
        name
        for name, workload in scenario.workloads.items()
        if workload.prefix_cache_hit_fraction > 0.0
    ]
    if stated:
        yield (
            f"prefix_cache_hit_fraction of {', '.join(stated)} is taken as stated: it follows neither memory nor load "
            "nor routing; with reuse it does"
        )


def cache_terms(cluster: Cluster, workload: Workload) -> CacheTerms | None:
    """Return what decides the hits of a workload on a cluster; None where its share in the cache is stated."""
    curve = workload.reuse_curve
    if curve is None:
        return None
    tiers = {"auto": (False, True), "none": (False,), "host": (True,)}
    return CacheTerms(curve=curve, routing=workload.prefix_routing, tiers=tiers[cluster.kv_offload])


def cache_use(
    cache: ReplicaCache, speed: float, lengths: Lengths, capacity_requests_per_s: float
) -> CacheUse:
    """Return what is found by load over a capacity."""
    states = [cache.state(speed, lengths, load * capacity_requests_per_s) for load in LOADS]
    at_capacity = states[-1]
    prompt = at_capacity.prompt_tokens
    return CacheUse(
        found_fractions=tuple(state.found_fraction for state in states),
        host_fractions=tuple(state.host_fraction for state in states),
        contexts=(at_capacity.free_tokens + at_capacity.host_tokens) / prompt,
        host_contexts=at_capacity.host_tokens / prompt,
        accelerators=int(cache.figure("accelerators")),
    )


def replica_cache(
    replicas: Replicas, layout: int, terms: CacheTerms, pooled: float, *, has_host: bool
) -> ReplicaCache:
    """Return the caches of a replica of a layout, one of some behind a router.

    Groups of attention in data parallel keep caches of their own, among which a router chooses as among replicas.
    """
    groups = float(replicas["attention_groups"][layout])
    return ReplicaCache(
        replicas=replicas,
        layout=layout,
        traffic=terms.working_set(max(pooled, 1.0) * groups),
        has_host=has_host,
    )


def _in_replica(times: ReplicaTimes, requests_per_s: float) -> float:
    """Return the mean number of sequences that decode or are prefilled at a rate."""
    batches: Floats = max(float(times.most_batch), 1.0) * _BATCHES
    rates = times.requests_per_s(batches)
    decoding = float(np.interp(requests_per_s, np.append(0.0, rates), np.append(0.0, batches)))
    prefilled = requests_per_s * float(times.alone_s @ times.prompt_weights)
    return decoding + prefilled


def found_by_mean_times(
    replicas: Replicas, traffic: Traffic, slo: Objective, terms: CacheTerms, pooled: Floats
) -> Floats:
    """Return the share of input tokens found at what each layout sustains by mean times, shape (layouts,).

    More found lets a replica take more load, at which less is found: one share fits, and halving finds it.
    """
    layouts = np.arange(pooled.size)
    caches = np.maximum(pooled, 1.0) * replicas["attention_groups"]
    by_caches = {count: terms.working_set(count) for count in set(caches.tolist())}
    tier_tokens = replicas["host_tokens"] if any(terms.tiers) else 0.0
    low = np.zeros(pooled.size)
    high = np.ones(pooled.size)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        trial = replace(traffic, cached_fraction=middle)
        point = at_objective(replicas, layouts, trial, slo.ttft_s, slo.tpot_s)
        rate = np.nan_to_num(point.requests_per_s, posinf=0.0)
        held = np.nan_to_num(point.concurrency) * (traffic.input_tokens + traffic.output_tokens)
        room = np.maximum(replicas["kv_capacity_tokens"] - held, 0.0) + tier_tokens
        found = np.empty_like(middle)
        for count, of_workload in by_caches.items():
            alike = caches == count
            residence = residence_s([of_workload], rate[alike] * traffic.input_tokens, room[alike])
            found[alike] = found_fraction(of_workload, residence)
        low = np.where(found >= middle, middle, low)
        high = np.where(found >= middle, high, middle)
    return low
