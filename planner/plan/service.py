"""What compiling finds out of one cluster and workload, before it becomes arrays."""

from __future__ import annotations

from dataclasses import dataclass

from planner.demand.bursts import SHARP, Lateness
from planner.physics.replica import ReplicaSpec
from planner.physics.uncertainty import Doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a cluster serves a workload on day one."""

    tensor_parallel: int
    accelerators_per_node: int
    requests_per_s: float
    """Of one node, stack and user multipliers included."""
    yearly: tuple[float, ...]
    """The same after 0, 1, 2, ... years of growth in tokens per request."""
    outgrown_years: float
    """When its requests have grown so long that no batch meets the objective any more; infinity for never."""
    batch: float
    tpot_s: float
    single_tpot_s: float
    prefill_fraction: float
    """Share of a loaded replica's time spent in prefill."""
    single_stream_s: float
    """Bytes that one board moves in the step of a single sequence, over its bandwidth."""
    stream_s: float
    """The same in a step of the full batch."""
    compute_s_per_token: float
    """Operations of one token on one board, over its dense rate at the precision served."""
    prefill_compute_fraction: float
    """Operations of prefill over its time and the dense rate at the precision served."""
    wide_factor: float
    """Speed in the next wider precision over this one; 0 where it does not fit."""
    roofline_factor: float = 1.0
    """Throughput of the same replica under perfect software over the formula's."""
    spec: ReplicaSpec | None = None
    """The replica that serves it; None where a cluster serves nothing."""
    speed: float = 1.0
    """Speed over the throughput formula's: the stack's maturity times the user's factor, or the user's claim."""
    held_tpot_s: float = 0.0
    """The mean time per token up to which a router that refuses admits requests, at the formula's speed."""
    lateness: Lateness = SHARP
    """The shares of requests late and refused by load over capacity, without bursts."""
    layout: str = ""
    """How a replica is laid out, in words."""
    is_apart: bool = False
    """Whether prompts are prefilled by accelerators of their own."""
    doubt: Doubt | None = None
    """How far the throughput may be off; None where the calibration knows nothing of it."""
