"""Memory fit: what a model and its cache take, the smallest replica that holds them, and what would fit instead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import CapacityError
from planner.physics.part import refusal
from planner.physics.precision import routed_weight_bytes, shared_weight_bytes
from planner.units import GB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.physics.model_shape import ModelShape
    from planner.physics.part import Part
    from planner.physics.precision import Formats

USABLE_FRACTION = 0.9
"""Share of memory an engine takes for weights, activations and cache (vLLM's and TensorRT-LLM's default)."""
ENGINE_OVERHEAD_BYTES = 1.0e9
"""Runtime, graphs and communication buffers of one accelerator; grade D, engines report 0.5 to 2 GB."""
PREFILL_CHUNK_TOKENS = 8192
"""Tokens of one prefill chunk, whose activations must fit beside the cache (vLLM's default)."""
_HEAD_BYTES = 2.0  # embeddings and output head stay at 16 bits in quantised checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """How a model sits in the memory of one replica."""

    accelerators: int
    weight_bytes: float
    """Weights of the whole replica, scales included."""
    overhead_bytes: float
    """Activations and engine overhead of the whole replica."""
    kv_capacity_tokens: float
    """Tokens of full-attention context the replica can cache; zero or less when the model does not fit."""
    kv_bytes_per_token: float
    """Cache bytes of one token over the whole replica, copies on ranks that share a head included."""

    @property
    def fits(self) -> bool:
        """Whether weights fit and leave room for a cache."""
        return self.kv_capacity_tokens > 0

    def largest_batch(self, context_tokens: float) -> int:
        """Return how many sequences of this context the cache holds at once."""
        return max(0, math.floor(self.kv_capacity_tokens / context_tokens))


def weight_bytes(formats: Formats, shape: ModelShape, precision: str, attention_copies: int = 1) -> float:
    """Return the bytes of all weights: body at its precision, embeddings and head at 16 bits.

    With attention in data parallel each group holds the attention projections whole: ``attention_copies`` of them.
    """
    embedding = 0.0 if shape.tied_embeddings else float(shape.vocab * shape.hidden)
    routed = shape.routed_parameters * routed_weight_bytes(formats, shape, precision)
    return streamed_shared_bytes(formats, shape, precision, attention_copies) + routed + embedding * _HEAD_BYTES


def streamed_shared_bytes(formats: Formats, shape: ModelShape, precision: str, attention_copies: int = 1) -> float:
    """Return the bytes every decode step reads whatever the batch: all but the routed experts and the embedding."""
    head = float(shape.vocab * shape.hidden)
    attention = shape.layers * shape.attention_parameters_per_layer * (attention_copies - 1)
    body = shape.shared_parameters - head + attention
    return body * shared_weight_bytes(formats, shape, precision) + head * _HEAD_BYTES


def activation_bytes(shape: ModelShape, accelerators: int) -> float:
    """Return the activations of one prefill chunk on one accelerator, at 16 bits.

    The residual stream and its copy are whole on every rank, the feed-forward's gate and up halves are split.
    """
    routed = shape.experts_per_token * (shape.moe_intermediate or shape.intermediate) if shape.experts else 0
    width = 4.0 * shape.hidden + 2.0 * max(shape.intermediate, routed) / accelerators
    return PREFILL_CHUNK_TOKENS * width * 2.0


def memory_fit(
    part: Part, shape: ModelShape, precision: str, accelerators: int, attention_data_parallel: int = 1
) -> MemoryFit:
    """Lay a model out over a replica of ``accelerators`` that share every layer.

    Attention runs in ``attention_data_parallel`` groups, each with its own sequences and all of attention's weights.
    Within a group key-value heads are split until each rank has one, then copied; a latent vector is on every rank.
    """
    weights = weight_bytes(part.formats, shape, precision, attention_data_parallel)
    overhead = accelerators * (ENGINE_OVERHEAD_BYTES + activation_bytes(shape, accelerators))
    free = USABLE_FRACTION * part.hbm_bytes * accelerators - weights - overhead
    group = accelerators // attention_data_parallel
    copies = group / kv_shards(shape, group)
    per_token = shape.kv_bytes_per_token(part.formats[precision].cache_bytes) * copies
    return MemoryFit(
        accelerators=accelerators,
        weight_bytes=weights,
        overhead_bytes=overhead,
        kv_capacity_tokens=free / per_token,
        kv_bytes_per_token=per_token,
    )


def kv_shards(shape: ModelShape, accelerators: int) -> int:
    """Return over how many ranks one sequence's cache is split."""
    return 1 if shape.is_latent else min(accelerators, shape.kv_heads)


def candidate_degrees(part: Part, shape: ModelShape) -> list[int]:
    """Return the tensor-parallel degrees that divide the heads and stay within the scale-up domain."""
    return [2**k for k in range(8) if 2**k <= part.scaleup_accelerators and shape.divides_heads(2**k)]


def smallest_fit(part: Part, shape: ModelShape, precision: str, context_tokens: float = 1.0) -> MemoryFit:
    """Return the smallest replica that holds the weights and one sequence; raise CapacityError saying what would."""
    reason = refusal(part, shape, precision)
    if reason:
        raise CapacityError(f"{shape.name}: {reason}")
    fits = [memory_fit(part, shape, precision, degree) for degree in candidate_degrees(part, shape)]
    for fit in fits:
        if fit.kv_capacity_tokens >= context_tokens:
            return fit
    raise CapacityError(_what_would_fit(part, shape, precision, fits))


def _what_would_fit(part: Part, shape: ModelShape, precision: str, fits: Sequence[MemoryFit]) -> str:
    """Say how far off a model is, and which precision or how much memory would hold it."""
    largest = fits[-1]
    needed = largest.weight_bytes + largest.overhead_bytes
    room = USABLE_FRACTION * part.hbm_bytes * largest.accelerators
    narrower = [
        name
        for name, other in sorted(part.formats.items(), key=lambda item: -item[1].weight_bytes)
        if other.weight_bytes < part.formats[precision].weight_bytes
        and not other.falls_back_for_all  # a checkpoint that someone must quantise first is no advice
        and refusal(part, shape, name) is None
        and memory_fit(part, shape, name, largest.accelerators).fits
    ]
    advice = (
        f"{narrower[0]} would fit" if narrower else f"{math.ceil(needed / room * largest.accelerators)} would hold it"
    )
    return (
        f"{shape.name} at {precision} takes {needed / GB:,.0f} GB with activations and a cache; "
        f"{largest.accelerators} × {part.name} offer {room / GB:,.0f} GB: {advice}"
    )
