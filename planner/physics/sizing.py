"""What one replica sustains for a workload: the smallest question the planner asks of the throughput formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.errors import CapacityError
from planner.physics.memory import candidate_degrees, memory_fit, smallest_fit
from planner.physics.operating import Traffic, at_objective, coefficient_of_variation
from planner.physics.precision import refusal
from planner.physics.replica import ReplicaSpec, price_replicas

if TYPE_CHECKING:
    from planner.physics.coefficients import Calibration
    from planner.physics.model_shape import ModelShape
    from planner.physics.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What requests ask of a replica."""

    input_tokens: float
    output_tokens: float
    input_p95_tokens: float | None = None
    output_p95_tokens: float | None = None
    prefix_cache_hit_fraction: float = 0.0
    precision: str = "fp8"
    ttft_s: float = np.inf
    tpot_s: float = np.inf

    def traffic(self) -> Traffic:
        """Return the same as the throughput formula takes it."""
        return Traffic(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_fraction=self.prefix_cache_hit_fraction,
            input_cv=_variation(self.input_tokens, self.input_p95_tokens),
            output_cv=_variation(self.output_tokens, self.output_p95_tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedReplica:
    """A replica at the largest load that meets its objective."""

    tensor_parallel: int
    running_sequences: float
    tpot_s: float
    ttft_s: float
    requests_per_s: float
    output_tokens_per_s: float


def sized_replicas(
    part: Part, shape: ModelShape, engine: str, service: Service, calibration: Calibration
) -> list[SizedReplica]:
    """Return every tensor-parallel degree that fits, at the largest load within the objective, smallest first."""
    precision = service.precision
    reason = refusal(part, shape, precision)
    if reason:
        raise CapacityError(f"{shape.name}: {reason}")
    context = service.input_tokens + service.output_tokens
    smallest_fit(part, shape, precision, context)  # raises with what would fit
    degrees = [
        degree
        for degree in candidate_degrees(part, shape)
        if memory_fit(part, shape, precision, degree).kv_capacity_tokens >= context
    ]
    specs = [
        ReplicaSpec(part=part, shape=shape, precision=precision, accelerators=degree, engine=engine)
        for degree in degrees
    ]
    replicas = price_replicas(specs, calibration)
    point = at_objective(replicas, np.arange(len(specs)), service.traffic(), service.ttft_s, service.tpot_s)
    return [
        SizedReplica(
            tensor_parallel=degree,
            running_sequences=float(point.running_sequences[index]),
            tpot_s=float(point.tpot_s[index]),
            ttft_s=float(point.ttft_s[index]),
            requests_per_s=float(point.requests_per_s[index]),
            output_tokens_per_s=float(point.output_tokens_per_s[index]),
        )
        for index, degree in enumerate(degrees)
    ]


def best_replica(
    part: Part, shape: ModelShape, engine: str, service: Service, calibration: Calibration
) -> SizedReplica:
    """Return the replica with the most requests per second and accelerator that meets the objective."""
    found = sized_replicas(part, shape, engine, service, calibration)
    best = max(found, key=lambda replica: replica.requests_per_s / replica.tensor_parallel)
    if best.requests_per_s <= 0:
        fastest = min(found, key=lambda replica: max(replica.tpot_s / service.tpot_s, replica.ttft_s / service.ttft_s))
        raise CapacityError(
            f"{shape.name} on {part.name} cannot meet {service.ttft_s:g} s to the first token and {service.tpot_s:g} s "
            f"per token; one sequence alone takes {fastest.ttft_s:.3g} s and {fastest.tpot_s:.3g} s on "
            f"{fastest.tensor_parallel} accelerators"
        )
    return best


def _variation(mean: float, p95: float | None) -> float:
    return 0.0 if p95 is None else float(coefficient_of_variation(mean, p95))
