"""One replica as numbers: the work of a step at peak rates, and its price under a calibration.

A replica is a model at a precision on a number of accelerators with an engine. Its decode step with B running
sequences is a sum of physical terms (docs/explanation/throughput.md derives them):

    t(B) = fixed + routed·(1 − (1 − k/E)^B) + B·(per sequence + per cached token · context)

and one request's prefill of I tokens takes ``per token · I + per token² · I²``. Everything here is per replica, shape
(replicas,); the operating points in ``planner.physics.operating`` are per case.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from planner.physics.coefficients import (
    DEFAULT_RESERVED_OUTPUT_FRACTION,
    KV_RESERVED_OUTPUT_FRACTION,
)
from planner.physics.memory import kv_shards, memory_fit, streamed_shared_bytes
from planner.physics.precision import KV_STREAM_BYTES, compute_flops_per_s, routed_weight_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.physics.arrays import Bools, Floats
    from planner.physics.coefficients import Calibration
    from planner.physics.model_shape import ModelShape
    from planner.physics.part import Part

ACTIVATION_BYTES = 2.0  # all-reduced activations travel at 16 bits
ALL_REDUCES_PER_LAYER = 2  # after attention and after the feed-forward (Megatron-LM, arXiv 1909.08053, section 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpec:
    """What a replica is made of."""

    part: Part
    shape: ModelShape
    precision: str
    accelerators: int
    engine: str = ""
    """Serving engine; a name without calibration rows takes the common coefficients."""
    reserved_output_fraction: float | None = None
    """Share of the output for which cache is held from the start; None: the engine's habit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaWork:
    """The work of replicas at peak rates, before any coefficient; every array has shape (replicas,)."""

    accelerators: Floats
    shared_stream_s: Floats
    routed_stream_s: Floats
    log_expert_missed: Floats
    """log(1 − k/E): with B tokens an expert stays untouched with probability (1 − k/E)^B."""
    flops_s_per_token: Floats
    link_s_per_token: Floats
    kv_stream_s_per_token: Floats
    attention_s_per_token2: Floats
    dense_layers: Floats
    moe_layers: Floats
    hops: Floats
    window_tokens: Floats
    windowed_fraction: Floats
    kv_capacity_tokens: Floats
    reserved_output_fraction: Floats
    is_fp4: Bools
    is_fp4_compute: Bools
    is_emulated: Bools
    is_moe: Bools
    is_latent: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Replicas priced by a calibration: seconds per step and per token; every array has shape (replicas,)."""

    accelerators: Floats
    fixed_s: Floats
    routed_s: Floats
    log_expert_missed: Floats
    sequence_s: Floats
    kv_s_per_token: Floats
    prefill_s_per_token: Floats
    attention_s_per_token2: Floats
    window_tokens: Floats
    windowed_fraction: Floats
    kv_capacity_tokens: Floats
    reserved_output_fraction: Floats
    ttft_fixed_s: Floats
    ttft_prefill: Floats
    ttft_burst: Floats
    ttft_steps: Floats

    def table(self) -> Floats:
        """Return the columns side by side, shape (columns, replicas), for gathering by case."""
        return np.stack([getattr(self, field.name) for field in fields(self)])


def all_reduce_hops(part: Part, accelerators: int) -> float:
    """Return the latency hops of one all-reduce: log₂ n through a switch, n − 1 along direct links."""
    if accelerators == 1:
        return 0.0
    return float(np.log2(accelerators)) if part.switched else float(accelerators - 1)


def describe(specs: Sequence[ReplicaSpec]) -> ReplicaWork:
    """Compute the work of each replica; heavy enough (microseconds each) to do once per distinct replica."""
    columns = [_describe_one(spec) for spec in specs]
    booleans = {"is_fp4", "is_fp4_compute", "is_emulated", "is_moe", "is_latent"}
    return ReplicaWork(
        **{
            field.name: np.array(
                [column[field.name] for column in columns], dtype=bool if field.name in booleans else float
            )
            for field in fields(ReplicaWork)
        }
    )


def _describe_one(spec: ReplicaSpec) -> dict[str, float | bool]:
    """Return one replica's columns of ReplicaWork."""
    part, shape, precision, count = spec.part, spec.shape, spec.precision, spec.accelerators
    bandwidth = part.hbm_bytes_per_s
    head_width = (
        (shape.qk_nope_head_dim + shape.qk_rope_head_dim + shape.v_head_dim) / 2 if shape.is_latent else shape.head_dim
    )
    all_reduced = ALL_REDUCES_PER_LAYER * 2 * shape.layers * shape.hidden * ACTIVATION_BYTES * (count - 1) / count
    missed = 1.0 - shape.experts_per_token / shape.experts if shape.experts else 1.0
    native_fp4 = shape.native_precision == "fp4"
    return {
        "accelerators": count,
        "shared_stream_s": streamed_shared_bytes(shape, precision) / (count * bandwidth),
        "routed_stream_s": shape.routed_parameters * routed_weight_bytes(shape, precision) / (count * bandwidth),
        "log_expert_missed": float(np.log(max(missed, 1e-12))),
        "flops_s_per_token": 2 * shape.active_parameters / (count * compute_flops_per_s(part, shape, precision)),
        "link_s_per_token": all_reduced / part.link_bytes_per_s,
        "kv_stream_s_per_token": shape.kv_bytes_per_token(KV_STREAM_BYTES[precision])
        / (kv_shards(shape, count) * bandwidth),
        "attention_s_per_token2": 4 * shape.heads * head_width * shape.layers
        / (count * part.dense_flops_per_s["bf16"]),
        "dense_layers": shape.layers - shape.moe_layers,
        "moe_layers": shape.moe_layers,
        "hops": ALL_REDUCES_PER_LAYER * shape.layers * all_reduce_hops(part, count),
        "window_tokens": shape.sliding_window,
        "windowed_fraction": shape.sliding_layers_fraction if shape.sliding_window else 0.0,
        "kv_capacity_tokens": memory_fit(part, shape, precision, count).kv_capacity_tokens,
        "reserved_output_fraction": _reserved(spec),
        "is_fp4": precision == "fp4",
        "is_fp4_compute": precision == "fp4" and not native_fp4,
        "is_emulated": precision == "fp4" and not part.has_precision("fp4"),
        "is_moe": shape.experts > 0,
        "is_latent": shape.is_latent,
    }  # fmt: skip


def _reserved(spec: ReplicaSpec) -> float:
    if spec.reserved_output_fraction is not None:
        return spec.reserved_output_fraction
    return KV_RESERVED_OUTPUT_FRACTION.get(spec.engine, DEFAULT_RESERVED_OUTPUT_FRACTION)


def price(work: ReplicaWork, coefficient: Mapping[str, Floats]) -> Replicas:
    """Multiply work by coefficients (each of shape (replicas,)) into seconds."""
    c = coefficient
    one = np.ones(1)
    weight_stream = c["weight_stream"] * np.where(work.is_fp4, c["fp4_weight"], one)
    expert_stream = np.where(
        work.is_fp4,
        c["fp4_expert"] * np.where(work.is_emulated, c["emulated_fp4"], one),
        c["expert_stream"],
    )
    compute = (
        c["compute"]
        * np.where(work.is_fp4_compute, c["fp4_compute"], one)
        * np.where(work.is_moe, c["moe_compute"], one)
    )
    prefill_s_per_token = compute * work.flops_s_per_token + c["link"] * work.link_s_per_token
    fixed_s = (
        weight_stream * work.shared_stream_s
        + c["layer_s"] * work.dense_layers
        + c["moe_layer_s"] * work.moe_layers
        + c["hop_s"] * work.hops
    )
    return Replicas(
        accelerators=work.accelerators,
        fixed_s=fixed_s,
        routed_s=expert_stream * work.routed_stream_s,
        log_expert_missed=work.log_expert_missed,
        sequence_s=prefill_s_per_token + c["request_s"],
        kv_s_per_token=c["kv_stream"] * np.where(work.is_latent, c["latent_kv"], one) * work.kv_stream_s_per_token,
        prefill_s_per_token=prefill_s_per_token,
        attention_s_per_token2=c["attention_compute"] * work.attention_s_per_token2,
        window_tokens=work.window_tokens,
        windowed_fraction=work.windowed_fraction,
        kv_capacity_tokens=work.kv_capacity_tokens,
        reserved_output_fraction=work.reserved_output_fraction,
        ttft_fixed_s=c["ttft_fixed_s"],
        ttft_prefill=c["ttft_prefill"],
        ttft_burst=c["ttft_burst"],
        ttft_steps=c["ttft_steps"],
    )


def price_replicas(specs: Sequence[ReplicaSpec], calibration: Calibration) -> Replicas:
    """Describe replicas and price them with the coefficients of their engine and vendor."""
    coefficient = calibration.coefficients([spec.engine for spec in specs], [spec.part.vendor for spec in specs])
    return price(describe(specs), coefficient)
