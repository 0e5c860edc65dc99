"""A first throughput core: memory fit, weight and cache streaming, compute.

One decode step of a batch of B sequences on a replica of N accelerators takes

    t(B) = (W + B·K) / (N·β·η_β) + B·(2·P·(1 + I·(1 − h)/O)) / (N·φ·η_φ)

W weight bytes, K cache bytes of a mean sequence, P active parameters, I and O mean prompt and output tokens, h the
prefix-cache hit fraction, β and φ the part's bandwidth and arithmetic rate, η what serving engines reach of them.
Prompts are prefilled between decode steps: at steady state I/O prompt tokens come with every generated one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.errors import CapacityError
from planner.physics.model_shape import ModelShape
from planner.physics.part import Part

BYTES_PER_PARAMETER = {"bf16": 2.0, "fp8": 1.02, "fp4": 0.56}
"""Weights and their scales: one scale per 128 values at fp8, one byte per 16 at fp4."""
BANDWIDTH_EFFICIENCY = 0.8  # read 4.21 of 4.8 TB/s measured on an H200, less what attention kernels lose
COMPUTE_EFFICIENCY = 0.55  # 1,471 of 1,979 TFLOP/s in one large GEMM measured; serving mixes small ones
MEMORY_USABLE_FRACTION = 0.9  # engines' default share of memory for weights and cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one request asks of a replica."""

    input_tokens: float
    output_tokens: float
    prefix_cache_hit_fraction: float
    precision: str
    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """How a model sits on a part and what it sustains."""

    tensor_parallel: int
    batch: int
    tpot_s: float
    requests_per_s: float


def fit(model: ModelShape, part: Part, service: Service) -> list[int]:
    """Return the tensor-parallel degrees at which the model and at least one sequence fit, smallest first."""
    weights = model.total_parameters * BYTES_PER_PARAMETER[service.precision]
    sequence = model.kv_bytes_of_sequence(service.input_tokens + service.output_tokens)
    usable = part.hbm_bytes * MEMORY_USABLE_FRACTION
    degrees = [2**k for k in range(11) if 2**k <= part.scaleup_accelerators and model.divides_heads(2**k)]
    fits = [n for n in degrees if n * usable >= weights + sequence]
    if not fits:
        needed = (weights + sequence) / usable
        most = max(degrees)
        raise CapacityError(
            f"{model.name} at {service.precision} needs {(weights + sequence) / 1e9:,.0f} GB for weights and one "
            f"sequence, {needed:.1f} x {part.name}; {most} share a scale-up domain: {most * usable / 1e9:,.0f} GB"
        )
    return fits


def best_replica(model: ModelShape, part: Part, service: Service) -> Replica:
    """Return the replica with the most requests per second and accelerator that meets the objective."""
    found = [_sustained(model, part, service, n) for n in fit(model, part, service)]
    best = max(found, key=lambda replica: replica.requests_per_s / replica.tensor_parallel)
    if best.requests_per_s <= 0:
        fastest = min(found, key=lambda replica: replica.tpot_s)
        raise CapacityError(
            f"no batch of {model.name} on {part.name} meets {service.tpot_s:g} s per token; "
            f"a single sequence takes {fastest.tpot_s:.3g} s on {fastest.tensor_parallel} accelerators"
        )
    return best


def _sustained(model: ModelShape, part: Part, service: Service, tensor_parallel: int) -> Replica:
    """Return the largest batch that fits in memory and meets the time per output token."""
    width = BYTES_PER_PARAMETER[service.precision]
    weights = model.total_parameters * width
    context = service.input_tokens + service.output_tokens / 2
    sequence = model.kv_bytes_of_sequence(context)
    room = tensor_parallel * part.hbm_bytes * MEMORY_USABLE_FRACTION - weights
    batch = np.unique(np.geomspace(1, max(1, min(4096, int(room / sequence))), 64).astype(int))
    bandwidth = tensor_parallel * part.hbm_bytes_per_s * BANDWIDTH_EFFICIENCY
    compute = tensor_parallel * part.dense_flops_per_s[service.precision] * COMPUTE_EFFICIENCY
    prompt = service.input_tokens * (1 - service.prefix_cache_hit_fraction) / service.output_tokens
    step_s = (weights + batch * sequence) / bandwidth + batch * 2 * model.active_parameters * (1 + prompt) / compute
    meets = step_s <= service.tpot_s
    if not meets.any():
        return Replica(tensor_parallel=tensor_parallel, batch=0, tpot_s=float(step_s[0]), requests_per_s=0.0)
    best = int(np.flatnonzero(meets)[-1])
    rate = batch[best] / (service.output_tokens * step_s[best])
    return Replica(
        tensor_parallel=tensor_parallel, batch=int(batch[best]), tpot_s=float(step_s[best]), requests_per_s=float(rate)
    )
