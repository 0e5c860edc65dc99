"""Disaggregated serving: a pool of prefill workers in balance with a pool of decode workers.

A worker that only prefills is one whose replies have a single token, and one that only decodes finds every prompt in
its cache: the miss shares of both are those of a replica (``planner.physics.slo_model``).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.physics.replica import (
    OperatingPoint,
    ReplicaSpec,
    Traffic,
    disaggregated,
    handover_s,
    lone_step_s,
)
from planner.physics.slo_model import MissCurve
from planner.plan.candidates import PREFILL_CHUNK_TOKENS, pooled_nodes, traffic_of
from planner.plan.overload import queueing_lateness
from planner.plan.slo_capacity import (
    LayoutCapacity,
    LayoutSearch,
    ServicePoint,
    Speed,
    as_tokens_grow,
    lengths_of,
)
from planner.records import record
from planner.scenario.workload import Objective, Workload

_TTFT_MISS_FRACTION = 0.8
"""Of the requests that may be late, those left to first tokens: the time per token hardly varies where no prompt is
computed beside it, so little room is enough for it (assumption)."""
_PREFILL_POOLING = 0.5
"""Power of the number of prefill workers among which a router is as good as choosing freely: a long prompt that holds
one of them up sends what it would have taken to the others. Held to the zoom."""
_PREFILL_FILL = 0.92
"""What a pool of prefill workers sustains over what the waits of one by itself allow: held to the zoom, where a queue
of prompts, once there, drains slowly."""
_NO_OBJECTIVE_S = 60.0
"""Objective that never binds: on the TTFT of a decode worker, and on the TPOT of a prefill worker."""
_LEAST_TTFT_S = 1e-3
"""What is left of an objective that transfer and handover use up: too little for any prompt, but above zero."""


@record
class PoolPair:
    """A prefill pool and a decode pool in balance."""

    rate: float
    """Requests per second and accelerator of both together."""
    prefill: int
    """The prefill workers' layout, by its place among the candidates."""
    decode: int
    """The decode workers'."""
    prefill_share: float
    """Share of the accelerators that prefill."""
    transfer_s: float
    """Time in which a mean prompt's cache moves from one pool to the other."""
    handover_s: float
    """Time from a prompt's prefill to its first token, beyond the transfer."""
    point: OperatingPoint
    """Of the decode workers, by layout."""
    prefill_rates: Floats
    """Requests per second and accelerator of prefill workers by mean times, shape (layouts,)."""
    decode_rates: Floats
    """The same of decode workers; below zero in layouts that are not tried."""


def pools_by_mean_times(
    specs: list[ReplicaSpec], search: LayoutSearch, traffic: Traffic, slo: Objective
) -> PoolPair:
    """Return the best prefill workers balanced with the best decode workers, by mean times.

    1/rate = 1/prefill rate + 1/decode rate. Decode workers take the layouts that may be tried with the smallest
    chunk, as they compute no prompt; prefill workers take any layout with a chunk of their own.
    """
    replicas = search.replicas
    chunks = replicas["chunk_tokens"]
    may_decode = search.mean_rates >= 0.0
    may_decode &= chunks == chunks[may_decode].min()
    prompt = traffic.input_tokens * (1.0 - traffic.cached_fraction)
    prompt_bytes = []
    for spec in specs:
        number_format = spec.part.formats[spec.precision]
        prompt_bytes.append(spec.shape.kv_bytes_per_token(number_format.cache_bytes) * prompt)
    # All accelerators of a worker send at once.
    network = np.array([spec.part.network_bytes_per_s * spec.accelerators for spec in specs])
    transfer_s = np.array(prompt_bytes) / network
    # Of the quickest decode worker of all layouts: which one serves most depends on the objectives, and a looser one
    # must not delay first tokens; nor must stating the layout that was chosen.
    fastest_step_s = float(lone_step_s(replicas, traffic).min())
    to_first_token_s = float(handover_s(fastest_step_s))
    objectives_s = (slo.ttft_s, slo.tpot_s)
    prefill_rates, point = disaggregated(
        replicas, traffic, objectives_s, transfer_s, to_first_token_s
    )
    decode_rates = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0)
    accelerators = replicas["accelerators"]
    # Where the usual chunk is not among the layouts, the next smaller one, or else the smallest.
    usual = chunks[chunks <= PREFILL_CHUNK_TOKENS].max(initial=chunks.min())
    may_prefill = chunks == usual
    prefill_rates = np.where(may_prefill, prefill_rates / accelerators, -1.0)
    decode_rates = np.where(may_decode, decode_rates / accelerators, -1.0)
    prefill = int(np.argmax(prefill_rates))
    decode = int(np.argmax(decode_rates))
    prefill_rate = float(prefill_rates[prefill])
    decode_rate = float(decode_rates[decode])
    total = prefill_rate + decode_rate
    # Where neither serves anything there is no balance to strike.
    if total <= 0.0:
        total = np.inf
    return PoolPair(
        rate=prefill_rate * decode_rate / total,
        prefill=prefill,
        decode=decode,
        prefill_share=decode_rate / total,
        transfer_s=float(transfer_s[prefill]),
        handover_s=to_first_token_s,
        point=point,
        prefill_rates=prefill_rates,
        decode_rates=decode_rates,
    )


def worker_counts(
    accelerators: int, sizes: tuple[int, int], rates: tuple[float, float]
) -> tuple[int, int]:
    """Return the whole prefill and decode workers that serve most with some accelerators; none where two do not fit.

    ``sizes`` are the accelerators of one worker of each kind, and ``rates`` what each accelerator of it sustains.
    """
    prefill_size, decode_size = sizes
    # At least one decode worker: prompts alone serve nothing.
    most_prefill = max((accelerators - decode_size) // prefill_size, 0)
    if not most_prefill:
        return 0, 0
    prefill = np.arange(1, most_prefill + 1)
    decode = (accelerators - prefill * prefill_size) // decode_size
    prefilled = prefill * prefill_size * rates[0]
    decoded = decode * decode_size * rates[1]
    # The slower pool decides.
    served = np.minimum(prefilled, decoded)
    # The first of equals: fewer prefill workers leave more to decode.
    best = int(np.argmax(served))
    return int(prefill[best]), int(decode[best])


def disaggregated_point(
    search: LayoutSearch,
    specs: list[ReplicaSpec],
    workload: Workload,
    horizon_months: int,
    speed: Speed,
    floor: float = 0.0,
) -> tuple[PoolPair, ServicePoint] | None:
    """Return the pools and their operating point at the SLO, by mean times for deferrable work.

    None where no pools sustain more than ``floor`` requests per second and accelerator.
    """
    if workload.priority == "deferrable":
        return _point_by_mean_times(search, specs, workload, horizon_months, speed, floor)
    within_slo = pools_within_slo(search, specs, workload, speed.steps, floor=floor / speed.rates)
    if within_slo is None:
        return None
    pools, prefill, decode = within_slo

    def rate_after(growth: float) -> float:
        # The pools of day one are there already.
        if growth == 1.0:
            return pools.rate
        later = pools_within_slo(search, specs, workload, speed.steps, growth)
        return 0.0 if later is None else later[0].rate

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, rate_after)
    batch, tpot_s = decode.at(decode.capacity_requests_per_s)
    lateness = pool_pair_lateness(prefill, decode)
    return pools, ServicePoint(
        yearly=yearly * speed.rates,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed.steps,
        admission_tpot_s=tpot_s * speed.steps,
        lateness=lateness if workload.admission == "queue" else lateness.up_to_capacity(),
        prefill_fraction=pools.prefill_share,
    )


def _point_by_mean_times(
    search: LayoutSearch,
    specs: list[ReplicaSpec],
    workload: Workload,
    horizon_months: int,
    speed: Speed,
    floor: float,
) -> tuple[PoolPair, ServicePoint] | None:
    """Return the pools and their operating point for deferrable work; None where they do not exceed the floor."""

    def pools_after(growth: float) -> PoolPair:
        return pools_by_mean_times(specs, search, traffic_of(workload, growth), workload.slo)

    pools = pools_after(1.0)
    factor = speed.steps * speed.rates
    if pools.rate * factor <= floor and floor > 0.0:
        return None
    yearly, outgrown_years = as_tokens_grow(
        workload, horizon_months, lambda growth: pools_after(growth).rate
    )
    tpot_s = float(pools.point.tpot_s[pools.decode])
    return pools, ServicePoint(
        yearly=yearly * factor,
        outgrown_years=outgrown_years,
        batch=float(pools.point.running_sequences[pools.decode]),
        tpot_s=tpot_s,
        admission_tpot_s=tpot_s,
        prefill_fraction=pools.prefill_share,
    )


def pools_within_slo(
    search: LayoutSearch,
    specs: list[ReplicaSpec],
    workload: Workload,
    speed: float,
    growth: float = 1.0,
    floor: float = 0.0,
) -> tuple[PoolPair, MissCurve, MissCurve] | None:
    """Return the balanced pools at the SLO percentile, and the miss curves of a worker of each.

    A router sees the workers of its pool alone, as many as mean times would make it. Both kinds must stand on the
    accelerators there are: the larger ones of either are left out, and where no two fit nothing is served. Pools in
    balance sustain p·d/(p + d): None as soon as that is seen to be no more than ``floor``.
    """
    slo = workload.slo
    lengths = lengths_of(workload, growth)
    may_be_late = 1.0 - slo.share
    mean = pools_by_mean_times(specs, search, traffic_of(workload, growth), slo)
    sizes = search.replicas["accelerators"]
    nodes = pooled_nodes(search.nodes) if search.router_pool == "cluster" else 1
    accelerators = nodes * search.accelerators_per_node

    # A prefill worker's replies end with their first token, so its TPOT never binds.
    first_token = slo.model_copy(
        update={
            "ttft_s": max(slo.ttft_s - mean.transfer_s - mean.handover_s, _LEAST_TTFT_S),
            "tpot_s": _NO_OBJECTIVE_S,
            "percentile": 1.0 - _TTFT_MISS_FRACTION * may_be_late,
        }
    )
    room = accelerators - sizes[mean.decode_rates >= 0.0].min()
    prefill_search = replace(
        search,
        mean_rates=_fitting(mean.prefill_rates, sizes, room),
        accelerators_fraction=mean.prefill_share,
        room=float(room),
        pooling_power=_PREFILL_POOLING,
    )
    # A decode worker finds every prompt in its cache, so its TTFT never binds.
    per_token = slo.model_copy(
        update={
            "ttft_s": _NO_OBJECTIVE_S,
            "percentile": 1.0 - (1.0 - _TTFT_MISS_FRACTION) * may_be_late,
        }
    )
    replies = replace(lengths, cached_fraction=1.0)
    prompts = replace(lengths, output_tokens=np.ones(1), output_weights=np.ones(1))
    prefill_floor = 0.0
    if floor > 0.0:
        # What the prefill pool must exceed, even beside a decode pool that is at its bound.
        decode_search = replace(search, mean_rates=mean.decode_rates)
        decode_bound = decode_search.rate_bound(speed, per_token, replies)
        if decode_bound <= floor:
            return None
        prefill_floor = 1.0 / (1.0 / floor - 1.0 / decode_bound)
    prefill = prefill_search.best(speed, first_token, prompts, prefill_floor / _PREFILL_FILL)
    if prefill is None:
        return None
    prefill_rate = prefill.rate * _PREFILL_FILL

    decode_room = float(accelerators - sizes[prefill.layout])
    decode_rates = _fitting(mean.decode_rates, sizes, decode_room)
    prefill_size = specs[prefill.layout].accelerators
    best: PoolPair | None = None
    best_decode: LayoutCapacity | None = None
    best_rate = floor
    # Worker by worker, since a pool has whole ones: where little is decoded, one small worker leaves more to prompts
    # than one large worker with a higher rate by accelerator. The size of the best by mean times comes first.
    decode_sizes = np.unique(sizes[decode_rates >= 0.0])
    from_expected = np.abs(decode_sizes - sizes[int(np.argmax(decode_rates))])
    for decode_size in decode_sizes[np.argsort(from_expected, kind="stable")].astype(int).tolist():
        # No more workers than the workload's own traffic takes, by pairs of both kinds.
        pooled = int(min(accelerators, search.max_replicas * (prefill_size + decode_size)))
        decode_floor = 0.0
        if best_rate > 0.0:
            # To beat the best so far, prompts take so many workers at the least; the others must decode as much.
            to_beat = best_rate * pooled
            fewest_prefills = math.floor(to_beat / (prefill_size * prefill_rate)) + 1
            most_decodes = (pooled - fewest_prefills * prefill_size) // decode_size
            if most_decodes < 1:
                continue
            decode_floor = to_beat / (most_decodes * decode_size)
        decode_search = replace(
            search,
            mean_rates=np.where(sizes == decode_size, decode_rates, -1.0),
            accelerators_fraction=1.0 - mean.prefill_share,
            room=decode_room,
        )
        decode = decode_search.best(speed, per_token, replies, decode_floor)
        if decode is None:
            continue
        worker_sizes = prefill_size, decode_size
        prefills, decodes = worker_counts(pooled, worker_sizes, (prefill_rate, decode.rate))
        prefilled = prefills * prefill_size * prefill_rate
        served = min(prefilled, decodes * decode_size * decode.rate)
        rate = served / pooled
        if best is None or rate > best_rate:
            best_rate = rate
            best_decode = decode
            best = replace(
                mean,
                rate=rate,
                prefill=prefill.layout,
                decode=decode.layout,
                prefill_share=prefills * prefill_size / pooled,
            )
    if best is None or best_decode is None or (best.rate <= floor and floor > 0.0):
        return None
    return best, prefill.curve, best_decode.curve


def _fitting(rates: Floats, sizes: Floats, room: float) -> Floats:
    """Return rates with the layouts left out that do not fit in the room; all of them where none fits."""
    fitting = np.where(sizes <= room, rates, -1.0)
    return fitting if fitting.max() >= 0.0 else rates


def pool_pair_lateness(prefill: MissCurve, decode: MissCurve) -> Lateness:
    """Return the miss share by load over capacity of requests that must pass both pools within the SLO."""
    if min(prefill.capacity_requests_per_s, decode.capacity_requests_per_s) <= 0.0:
        return SHARP
    loads_by_pool = [
        curve.requests_per_s / curve.capacity_requests_per_s for curve in (prefill, decode)
    ]
    # Both curves are known up to the lower of their largest loads, and read at the points of either.
    largest = min(float(loads[-1]) for loads in loads_by_pool)
    common = [loads[loads <= largest] for loads in loads_by_pool]
    all_loads = np.concatenate([[0.0], *common, [largest]])
    loads = np.unique(all_loads)
    attainment = np.ones_like(loads)
    # Waits in one pool tell nothing of those in the other, so shares in time multiply.
    for pool_loads, curve in zip(loads_by_pool, (prefill, decode), strict=True):
        attainment *= 1.0 - np.interp(loads, pool_loads, curve.late_fraction)
    # More load never leaves fewer late; interpolation may, by a hair.
    late = np.maximum.accumulate(1.0 - attainment)
    return queueing_lateness(loads, late, prefill)
