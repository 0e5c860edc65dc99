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

from planner.arrays import Bools, Floats
from planner.physics.prefix_cache import (
    GAPS_S,
    ReuseCurve,
    WorkingSet,
    found_within,
    with_states,
    working_set,
)
from planner.physics.replica import Lengths, Replicas, ReplicaTimes, Traffic, at_objective
from planner.plan.reuse import digest, once
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
_MISSED_CELLS = np.append(np.arange(0, 400, 8), np.arange(400, 1000))
"""Places in the cells of prompts at which those of prompts that are not found begin."""
_NEWTON_STEPS = 7
"""To the batch of a rate where experts are touched: each step doubles the digits."""
_NEARLY_WARM = 0.01
"""Of prompts: a cache that finds less than that below what it finds warm is as good as warm."""
_HALVINGS = 14
"""Of the share found by mean times: to a ten-thousandth."""


@record
class SharingWorkload:
    """Another workload of the same model, whose tokens are in the same caches."""

    tokens_ratio: float
    """Its input tokens over those of the workload itself."""
    requests_ratio: float
    """Its requests over those of the workload itself."""
    curve: ReuseCurve
    routing: str


@record
class CacheTerms:
    """What decides the hits of a workload beside the layout."""

    curve: ReuseCurve
    routing: str
    """session, prefix or random."""
    tiers: tuple[bool, ...]
    """Whether host memory holds what leaves the accelerators: the choices, the likelier first."""
    time_share: float = 1.0
    """Of a replica's time, that of the workload; the rest is that of those it shares with."""
    sharing: tuple[SharingWorkload, ...] = ()

    @property
    def key(self) -> Hashable:
        """What tells these terms from all others, for the cache of figures."""
        curves = [(1.0, self.curve, self.routing)]
        curves += [(other.tokens_ratio, other.curve, other.routing) for other in self.sharing]
        by_curve = [
            (
                ratio,
                digest([curve.reused_fraction]),
                curve.shared_fraction,
                curve.shared_gap_s,
                routing,
            )
            for ratio, curve, routing in curves
        ]
        return self.time_share, self.requests_share, tuple(by_curve)

    @property
    def requests_share(self) -> float:
        """Return the requests that a replica takes of all who share it, over those of the workload if it were alone."""
        return self.time_share * (1.0 + sum(other.requests_ratio for other in self.sharing))

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
class CacheStates:
    """What a replica's caches find and hold at some loads; arrays of shape (loads,)."""

    requests_per_s: Floats
    found_fraction: Floats
    """Of input tokens, in all tiers."""
    host_fraction: Floats
    """Of input tokens, copied from host memory."""
    free_tokens: Floats
    """Tokens of finished requests that the accelerators hold."""
    speed: Floats
    """Of the steps, over those without a second tier."""
    prefill_s: Floats
    """What a mean request adds to the steps that carry its prompt."""
    is_settled: Bools
    """Whether it lasts at this load: False where more requests come than the replica takes."""

    turn_fraction: float
    """Of a prompt that is found, what is."""
    common_fraction: float
    """Of every prompt, what is found at any time."""

    def lengths(self, load: int, lengths: Lengths) -> Lengths:
        """Return the lengths of a workload with what is found of its prompts at one of the loads.

        Some are found and the others not: a few whole prompts delay others more than a little of each.
        """
        found = float(self.found_fraction[load])
        hit = (found - self.common_fraction) / max(self.turn_fraction, 1e-12)
        # Prompts that are not found are few, so that coarser cells of length do.
        starts = _MISSED_CELLS[lengths.prompt_tokens.size > _MISSED_CELLS]
        weights = np.add.reduceat(lengths.prompt_weights, starts)
        tokens = np.add.reduceat(lengths.prompt_tokens * lengths.prompt_weights, starts)
        missed = np.full(starts.size, self.common_fraction)
        by_prompt = np.full(lengths.prompt_tokens.size, self.common_fraction + self.turn_fraction)
        copied = float(self.host_fraction[load]) / max(hit, 1e-12)
        return replace(
            lengths,
            prompt_tokens=np.append(tokens / weights, lengths.prompt_tokens),
            prompt_weights=np.append((1.0 - hit) * weights, hit * lengths.prompt_weights),
            cached_fraction=np.append(missed, by_prompt),
            host_fraction=np.append(np.zeros(starts.size), np.full(by_prompt.size, copied)),
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
    speed: float
    """Of the steps at capacity, over those without a second tier."""
    cold_fraction: float
    """Of input tokens, what is found at capacity by caches that began empty, with no request held back."""
    warm_up_s: float
    """From empty caches to warm ones at capacity, with requests held back that a replica does not take meanwhile."""
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
class RequestTimes:
    """What requests of a workload take on a replica of a layout, by the share found of their prompts."""

    found_fractions: Floats
    """Where no prompt's turn before is there, and where every one's is; between the two all is straight."""
    prefill_s: Floats
    """Mean time that a prompt adds to the steps that carry it."""
    alone_s: Floats
    """Mean time to the first token on an idle replica, without copies."""
    overhead_s: float
    """Of that, what no speed shortens."""
    fixed_s: float
    routed_s: float
    log_missed: float
    sequence_s: float
    output_tokens: float
    prompt_tokens: float
    """Of a mean prompt, as far as the model attends to it."""
    kept_fraction: float
    room: float
    """Sequences for which there is memory."""
    most_batch: float

    def decoding(self, requests_per_s: Floats, prefill_s: Floats) -> Floats:
        """Return the sequences that decode at some rates, at most those for which there is room.

        B = λ·(E[output]·D(B) + B·E[S]) by Newton's method from the largest batch: what is left of B over what the rate
        needs is convex in B, so that steps from above end at the root.
        """
        replies_s = requests_per_s * self.output_tokens
        rest = 1.0 - replies_s * self.sequence_s - requests_per_s * prefill_s
        batch = np.full_like(rest, self.most_batch)
        for _ in range(_NEWTON_STEPS if self.routed_s else 1):
            missed = np.exp(batch * self.log_missed)
            weights_s = self.fixed_s + self.routed_s * (1.0 - missed)
            excess = rest * batch - replies_s * weights_s
            slope = rest - replies_s * self.routed_s * -self.log_missed * missed
            step = excess / np.where(excess > 0.0, slope, 1.0)
            # At the largest batch itself the replica does not keep up.
            batch = np.where(excess > 0.0, batch - step, batch)
        return batch


def _request_times(
    replicas: Replicas, layout: int, lengths: Lengths, curve: ReuseCurve
) -> RequestTimes:
    """Return what requests take at the formula's speed, found and not found."""
    shares = curve.common_fraction + np.array([0.0, curve.turn_fraction])
    by_share = replace(lengths, cached_fraction=shares[:, None], host_fraction=0.0)
    times = ReplicaTimes(replicas, np.full(shares.size, layout), 1.0, by_share)

    def number(column: Floats) -> float:
        return float(column[0, 0])

    return RequestTimes(
        found_fractions=shares,
        prefill_s=times.mean_prefill_s[:, 0],
        alone_s=times.alone_s @ times.prompt_weights,
        overhead_s=number(times.overhead_s),
        fixed_s=number(times.fixed_s),
        routed_s=number(times.routed_s),
        log_missed=number(times.log_missed),
        sequence_s=number(times.sequence_s),
        output_tokens=times.output,
        prompt_tokens=number(times.mean_prompt_tokens),
        kept_fraction=number(times.kept_fraction),
        room=number(times.room),
        most_batch=number(times.most_batch),
    )


@record
class ReplicaCache:
    """The caches of one replica of a layout, for one workload."""

    replicas: Replicas
    layout: int
    traffic: WorkingSet
    has_host: bool
    times: RequestTimes

    @property
    def host_tokens(self) -> float:
        """Tokens that host memory holds."""
        return self.figure("host_tokens") if self.has_host else 0.0

    def figure(self, name: str) -> float:
        """Return a figure of the layout."""
        return float(self.replicas[name][self.layout])

    def states(self, speed: float, requests_per_s: Floats, *, is_cold: bool = False) -> CacheStates:
        """Return the states at some loads: the warm ones, or with ``is_cold`` those of caches that begin empty.

        From all found that ever is, what is found falls until it fits the load; from nothing found, it rises.
        """
        times = self.times
        kv_tokens = self.figure("kv_capacity_tokens")
        copy_s = self.figure("host_copy_s_per_token")
        most_found = float(self.traffic.found_fraction[-1])
        found = np.full_like(requests_per_s, 0.0 if is_cold else most_found)
        host = np.zeros_like(found)
        tier_speed = 1.0 / (1.0 + _TIER_SLOWDOWN) if self.has_host else 1.0
        step_speed = np.full_like(found, tier_speed)
        link_busy = np.zeros_like(found)
        prompts_per_s = requests_per_s * times.prompt_tokens
        # Without traffic all stays.
        tokens_per_s = np.maximum(prompts_per_s * times.kept_fraction, 1e-12)
        for _ in range(_MOST_STEPS):
            all_speed = speed * step_speed
            prefill_s = np.interp(found, times.found_fractions, times.prefill_s)
            # Twice the speed at a rate is the formula's at half of it.
            decoding = times.decoding(requests_per_s / all_speed, prefill_s)
            alone_s = np.interp(found, times.found_fractions, times.alone_s) - times.overhead_s
            stay_s = alone_s / all_speed + times.overhead_s
            stay_s += copy_s * times.prompt_tokens * host
            sequences = decoding + requests_per_s * stay_s
            free = np.maximum(kv_tokens * (1.0 - sequences / times.room), 0.0)
            in_hbm = found_within(self.traffic, free / tokens_per_s)
            in_both = found_within(self.traffic, (free + self.host_tokens) / tokens_per_s)
            now_found = np.maximum(in_both, found) if is_cold else np.minimum(in_both, found)
            now_host = np.maximum(now_found - in_hbm, 0.0)
            change = np.abs(now_found - found) + np.abs(now_host - host)
            found = now_found
            host = now_host
            link_busy = np.minimum(prompts_per_s * host * copy_s, 1.0)
            step_speed = tier_speed / (1.0 + _COPY_SLOWDOWN * link_busy)
            if (change < _SETTLED).all():
                break
        keeps_up = (decoding < times.most_batch) & (link_busy < 1.0)
        return CacheStates(
            requests_per_s=requests_per_s,
            found_fraction=found,
            host_fraction=host,
            free_tokens=free,
            speed=step_speed,
            prefill_s=prefill_s / all_speed,
            is_settled=(change < _SETTLED) & keeps_up,
            turn_fraction=float(np.diff(times.found_fractions)[0]),
            common_fraction=float(times.found_fractions[0]),
        )

    def warm_up_s(self, speed: float, warm: CacheStates, load: int) -> float:
        """Return the time from empty caches to within a point of what is found at one of the loads of ``warm``.

        Requests beyond what the replica takes meanwhile are held back. After t seconds of the traffic there is H(t), up
        to the residence time; a replica that finds less takes a load at which as many sequences run:
        1 / λ(t) = 1 / λ + E[S](H(t)) − E[S](H(T)).
        """
        requests_per_s = float(warm.requests_per_s[load])
        reached = float(warm.found_fraction[load]) - _NEARLY_WARM
        found = self.traffic.found_fraction
        last = int(np.searchsorted(found, reached))
        if last == 0:
            return 0.0
        all_speed = speed * float(warm.speed[load])
        prefill_s = np.interp(found, self.times.found_fractions, self.times.prefill_s) / all_speed
        further_s = np.maximum(prefill_s - float(warm.prefill_s[load]), 0.0)
        # Seconds that pass for each second of traffic.
        pace = 1.0 + requests_per_s * further_s
        steps_s = np.diff(GAPS_S) * (pace[1:] + pace[:-1]) / 2.0
        passed_s = np.append(0.0, np.cumsum(steps_s))
        return float(np.interp(reached, found[: last + 1], passed_s[: last + 1]))


def stated_hits(scenario: Scenario) -> Iterator[str]:
    """Yield a note on the workloads whose share in the cache is stated."""
    stated = [
        name
        for name, workload in scenario.workloads.items()
        if workload.prefix_cache_hit_fraction > 0.0
    ]
    if stated:
        yield (
            f"prefix_cache_hit_fraction of {', '.join(stated)} is used as stated, whatever memory, load and routing "
            "are; state reuse instead to calculate it from them"
        )


def cache_terms(cluster: Cluster, workload: Workload) -> CacheTerms | None:
    """Return what decides the hits of a workload on a cluster; None where its share in the cache is stated."""
    curve = workload.reuse_curve
    if curve is None:
        return None
    tiers = {"auto": (True, False), "none": (False,), "host": (True,)}
    return CacheTerms(curve=curve, routing=workload.prefix_routing, tiers=tiers[cluster.kv_offload])


def cache_use(cache: ReplicaCache, speed: float, capacity_requests_per_s: float) -> CacheUse:
    """Return what is found by load over a capacity."""
    loads = np.array(LOADS) * capacity_requests_per_s
    states = cache.states(speed, loads)
    cold = cache.states(speed, loads[-1:], is_cold=True)
    prompt = cache.times.prompt_tokens
    return CacheUse(
        found_fractions=tuple(states.found_fraction.tolist()),
        host_fractions=tuple(states.host_fraction.tolist()),
        speed=float(states.speed[-1]),
        cold_fraction=float(cold.found_fraction[0]),
        warm_up_s=cache.warm_up_s(speed, states, -1),
        contexts=(float(states.free_tokens[-1]) + cache.host_tokens) / prompt,
        host_contexts=cache.host_tokens / prompt,
        accelerators=int(cache.figure("accelerators")),
    )


def replica_cache(
    replicas: Replicas,
    layout: int,
    terms: CacheTerms,
    pooled: float,
    lengths: Lengths,
    *,
    has_host: bool,
) -> ReplicaCache:
    """Return the caches of a replica of a layout, one of some behind a router.

    Groups of attention in data parallel keep caches of their own, among which a router chooses as among replicas.
    """
    caches = max(pooled, 1.0) * float(replicas["attention_groups"][layout])
    figures = tuple(float(column[layout]) for column in replicas.values())
    shares = (terms.curve.common_fraction, terms.curve.turn_fraction)
    lengths_key = (digest([lengths.prompt_tokens, lengths.output_tokens]), shares)
    times = once(
        ("request times", figures, lengths_key),
        lambda: _request_times(replicas, layout, lengths, terms.curve),
    )
    traffic = once(("working set", terms.key, caches), lambda: terms.working_set(caches))
    state_tokens = float(replicas["state_tokens"][layout])
    if state_tokens:
        kept_tokens = times.prompt_tokens * times.kept_fraction
        traffic = with_states(traffic, terms.requests_share * state_tokens / kept_tokens)
    return ReplicaCache(
        replicas=replicas, layout=layout, traffic=traffic, has_host=has_host, times=times
    )


def found_by_mean_times(
    replicas: Replicas, traffic: Traffic, slo: Objective, terms: CacheTerms, pooled: Floats
) -> Floats:
    """Return the share of input tokens found at what each layout sustains by mean times, shape (layouts,).

    More found lets a replica take more load, at which less is found: one share fits, and halving finds it. What is
    sustained is worked out at a few shares; the time of a request is all but straight between them.
    """
    count = pooled.size
    layouts = np.arange(count)
    caches = np.maximum(pooled, 1.0) * replicas["attention_groups"]
    by_caches = {number: terms.working_set(number) for number in set(caches.tolist())}
    tier_tokens = replicas["host_tokens"] if any(terms.tiers) else 0.0
    shares = np.array([0.0, 0.5, 0.8, 1.0]) * terms.curve.most_found
    trial = replace(traffic, cached_fraction=np.repeat(shares, count))
    point = at_objective(replicas, np.tile(layouts, shares.size), trial, slo.ttft_s, slo.tpot_s)
    by_share = (shares.size, count)
    rates = np.nan_to_num(point.requests_per_s, posinf=0.0).reshape(by_share)
    request_s = 1.0 / np.maximum(rates, 1e-12)
    concurrency = np.nan_to_num(point.concurrency).reshape(by_share)
    low = np.zeros(count)
    high = np.ones(count)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = np.clip(np.searchsorted(shares, middle), 1, shares.size - 1)
        width = np.maximum(shares[above] - shares[above - 1], 1e-12)
        part = np.minimum((middle - shares[above - 1]) / width, 1.0)

        def between(table: Floats) -> Floats:
            lower = table[above - 1, layouts]  # noqa: B023 - called within this step
            return np.asarray(lower + part * (table[above, layouts] - lower))  # noqa: B023

        rate = 1.0 / between(request_s)
        held = between(concurrency) * (traffic.input_tokens + traffic.output_tokens)
        room = np.maximum(replicas["kv_capacity_tokens"] - held, 0.0) + tier_tokens
        found = np.empty_like(middle)
        room_s = room / (rate * traffic.input_tokens)
        for number, of_workload in by_caches.items():
            alike = caches == number
            found[alike] = found_within(of_workload, room_s[alike])
        low = np.where(found >= middle, middle, low)
        high = np.where(found >= middle, high, middle)
    return low
