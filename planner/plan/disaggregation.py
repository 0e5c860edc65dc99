"""Prompts prefilled by accelerators of their own: two pools in balance, by mean times and at a percentile.

A worker that only prefills is one whose replies have a single token, and one that only decodes finds every prompt in
its cache: the late shares of both are those of a replica (``planner.physics.slo_model``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.physics.operating import OperatingPoint, separate_pools
from planner.physics.replica import Replicas, ReplicaSpec
from planner.physics.slo_model import Curve
from planner.plan.overload import without_end
from planner.plan.slo_capacity import Candidates, Point, as_tokens_grow, lengths_of, traffic_of
from planner.scenario.workload import Workload

_TO_FIRST_TOKENS = 0.8
"""Of the requests that may be late, those left to first tokens: the time per token hardly varies where no prompt is
computed beside it, so little room is enough for it (assumption)."""
_PROMPTS_AT_ONCE = 10.0  # up to which the curve of a worker that only prefills is worked out
_NO_OBJECTIVE_S = 60.0  # to the first token of a worker that computes no prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A prefill pool and a decode pool in balance."""

    rate: float
    """Requests per second and accelerator of both together."""
    decode: int
    """The decode workers' layout, by its place among the candidates."""
    prefill_accelerators: int
    """Accelerators of one prefill worker."""
    prefill_share: float
    """Share of the accelerators that prefill."""
    transfer_s: float
    """Time in which a prompt's cache moves from one pool to the other."""
    point: OperatingPoint
    """Of the decode workers, by layout."""
    mean_rates: tuple[Floats, Floats]
    """Requests per second and accelerator of prefill and of decode workers by mean times, shape (layouts,) each."""


def separate(specs: list[ReplicaSpec], replicas: Replicas, workload: Workload, growth: float = 1.0) -> Apart:
    """Balance the best prefill workers with the best decode workers by mean times.

    1/rate = 1/prefill rate + 1/decode rate.
    """
    traffic = traffic_of(workload, growth)
    prompt = workload.tokens.input.mean * growth * (1.0 - workload.prefix_cache_hit_fraction)
    cached = [spec.part.formats[spec.precision].cache_bytes for spec in specs]
    moved = np.array([s.shape.kv_bytes_per_token(width) * prompt for s, width in zip(specs, cached, strict=True)])
    network = np.array([spec.part.network_bytes_per_s * spec.accelerators for spec in specs])
    pools = separate_pools(replicas, traffic, (workload.slo.ttft_s, workload.slo.tpot_s), moved / network)
    prefill = pools.prefill_requests_per_s / replicas.accelerators
    decoded = np.where(np.isfinite(pools.decode.requests_per_s), pools.decode.requests_per_s, 0.0)
    decode = decoded / replicas.accelerators
    first, second = int(np.argmax(prefill)), int(np.argmax(decode))
    rate, share = _balanced(float(prefill[first]), float(decode[second]))
    return Apart(
        rate=rate,
        decode=second,
        prefill_accelerators=specs[first].accelerators,
        prefill_share=share,
        transfer_s=float((moved / network)[first]),
        point=pools.decode,
        mean_rates=(prefill, decode),
    )


def _balanced(prefill: float, decode: float) -> tuple[float, float]:
    """Return the rate of two pools in balance, from what an accelerator of each does, and the share that prefills."""
    total = prefill + decode
    return (prefill * decode / total, decode / total) if total > 0.0 else (0.0, 0.0)


def apart_point(
    candidates: Candidates,
    specs: list[ReplicaSpec],
    workload: Workload,
    horizon_months: int,
    speeds: tuple[float, float],
) -> tuple[Apart, Point]:
    """Return the pools and the point at which the stated share is in time; of deferrable work, by mean times.

    ``speeds`` are that of the steps and a factor on the rates that come of it.
    """
    speed, factor = speeds
    if workload.priority == "deferrable":
        return _mean_point(candidates.replicas, specs, workload, horizon_months, speed * factor)
    known: dict[float, tuple[Apart, Curve, Curve]] = {}

    def after(growth: float) -> float:
        known[growth] = _in_time(candidates, specs, workload, speed, growth)
        return known[growth][0].rate

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, after)
    apart, prefill, decode = known[1.0]
    batch, tpot_s = decode.at(decode.capacity_requests_per_s)
    lateness = _lateness(prefill, decode)
    return apart, Point(
        yearly=yearly * factor,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed,
        held_tpot_s=tpot_s * speed,
        lateness=lateness if workload.on_overload == "queue" else lateness.up_to_capacity(),
        prefill_fraction=apart.prefill_share,
    )


def _mean_point(
    replicas: Replicas, specs: list[ReplicaSpec], workload: Workload, horizon_months: int, speed: float
) -> tuple[Apart, Point]:
    """Return the pools and the point of work with a deadline of hours."""
    apart = separate(specs, replicas, workload)
    rates, outgrown_years = as_tokens_grow(
        workload, horizon_months, lambda growth: separate(specs, replicas, workload, growth).rate
    )
    tpot_s = float(apart.point.tpot_s[apart.decode])
    return apart, Point(
        yearly=rates * speed,
        outgrown_years=outgrown_years,
        batch=float(apart.point.running_sequences[apart.decode]),
        tpot_s=tpot_s,
        held_tpot_s=tpot_s,
        prefill_fraction=apart.prefill_share,
    )


def _in_time(
    candidates: Candidates, specs: list[ReplicaSpec], workload: Workload, speed: float, growth: float
) -> tuple[Apart, Curve, Curve]:
    """Return the pools in balance at the percentile, and the late shares of a worker of each.

    A router sees the workers of its pool alone, as many as mean times would make it.
    """
    mean, lengths = separate(specs, candidates.replicas, workload, growth), lengths_of(workload, growth)
    slo, may_be_late = workload.slo, 1.0 - workload.slo.percentile
    first_s = max(slo.ttft_s - mean.transfer_s - slo.tpot_s, 1e-3)
    # Of a worker without replies the time per token is no promise: that of some prompts lets its curve rise to where
    # they take all its time.
    prompt_s = 1.0 / max(float(mean.mean_rates[0].max()) * mean.prefill_accelerators, 1e-9)
    to_first = {
        "ttft_s": first_s,
        "tpot_s": _PROMPTS_AT_ONCE * prompt_s,
        "percentile": 1.0 - _TO_FIRST_TOKENS * may_be_late,
    }
    to_tokens = {"ttft_s": _NO_OBJECTIVE_S, "percentile": 1.0 - (1.0 - _TO_FIRST_TOKENS) * may_be_late}
    bare = replace(lengths, output_tokens=np.ones(1), output_weights=np.ones(1))
    shares = (mean.prefill_share, 1.0 - mean.prefill_share)
    (first, prefill, prefill_rate), (second, decode, decode_rate) = (
        replace(candidates, mean_rates=rates, share=share).best(
            speed, workload.model_copy(update={"slo": slo.model_copy(update=asked)}), work
        )
        for rates, share, asked, work in zip(
            mean.mean_rates, shares, (to_first, to_tokens), (bare, replace(lengths, cached_fraction=1.0)), strict=True
        )
    )
    rate, share = _balanced(prefill_rate, decode_rate)
    apart = replace(mean, rate=rate, decode=second, prefill_accelerators=specs[first].accelerators, prefill_share=share)
    return apart, prefill, decode


def _lateness(prefill: Curve, decode: Curve) -> Lateness:
    """Return the late share by load over capacity: in time is who is so in both pools, which are loaded alike."""
    if min(prefill.capacity_requests_per_s, decode.capacity_requests_per_s) <= 0.0:
        return SHARP
    by_pool = [
        (curve.requests_per_s / curve.capacity_requests_per_s, curve.late_fraction) for curve in (prefill, decode)
    ]
    last = min(float(loads[-1]) for loads, _ in by_pool)
    loads = np.unique(np.concatenate([[0.0], *(loads[loads <= last] for loads, _ in by_pool), [last]]))
    in_time = np.ones_like(loads)
    for at, late in by_pool:
        in_time *= 1.0 - np.interp(loads, at, late)
    return without_end(loads, np.maximum.accumulate(1.0 - in_time), prefill)
