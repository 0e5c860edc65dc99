"""Failures: independent Poisson processes by node, drawn in one block when nodes enter service."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from planner.arrays import Bools, Floats, Ints
from planner.engine.log import Streams
from planner.plan.parts import ReliabilityPlan
from planner.plan.plan import ClusterPlan

SEVERITIES = ("soft", "medium", "hard")
SOFT, MEDIUM, HARD = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures drawn for a set of nodes; arrays of shape (failures,)."""

    time_h: Floats
    node: NDArray[np.int64]
    """Index within the cluster."""
    group: NDArray[np.int64]
    """Which tensor-parallel group of the node; -1 for the whole node."""
    cause: NDArray[np.int64]
    severity: NDArray[np.int64]
    repair_h: Floats

    def where(self, chosen: Bools | Ints | slice) -> Failures:
        """Return the failures selected by a mask, an order or a slice."""
        return Failures(**{name: column[chosen] for name, column in self._columns().items()})

    def rows(self) -> list[tuple[float, int, int, int, int, float]]:
        """Return time, node, group, cause, severity and repair time of each failure."""
        return list(zip(*(column.tolist() for column in self._columns().values()), strict=True))

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def draw_failures(
    plan: ReliabilityPlan, cluster: ClusterPlan, start_h: Floats, first_node: int, end_h: float, draw: Generator
) -> Failures:
    """Draw every failure of nodes that enter service at ``start_h`` (shape (nodes,)) until the horizon's end.

    A node's rate is λ·w·(1 + (m − 1)·exp(−age/τ)): w tells lemons from the rest with mean 1, m and τ are early life.
    """
    nodes = start_h.size
    exposure = np.maximum(min(end_h, cluster.retire_h) - start_h, 0.0)
    total_rate = sum(cause.per_node_h for cause in plan.causes) * cluster.failure_multiplier
    plain = 1.0 / (1.0 + plan.lemon_fraction * (plan.lemon_multiplier - 1.0))
    weight = np.where(draw.random(nodes) < plan.lemon_fraction, plan.lemon_multiplier * plain, plain)
    tau = plan.early_life_h
    reached = -np.expm1(-exposure / tau)
    steady = total_rate * weight * exposure
    early = total_rate * weight * (plan.early_life_multiplier - 1.0) * tau * reached
    steady_count, early_count = draw.poisson(steady.sum()), draw.poisson(early.sum())
    count = int(steady_count + early_count)
    place, moment, kind, heal = draw.random((4, count))
    spread = draw.standard_normal(count)
    node = np.empty(count, dtype=np.int64)
    age = np.empty(count)
    for part, expected in ((slice(0, steady_count), steady), (slice(steady_count, count), early)):
        if part.stop > part.start:
            running = np.cumsum(expected)
            node[part] = np.minimum(np.searchsorted(running, place[part] * running[-1], side="right"), nodes - 1)
    age[:steady_count] = moment[:steady_count] * exposure[node[:steady_count]]
    age[steady_count:] = -tau * np.log1p(-moment[steady_count:] * reached[node[steady_count:]])
    rates = np.array([cause.per_node_h for cause in plan.causes])
    edges = np.cumsum(rates) / rates.sum() if rates.sum() > 0 else np.ones(len(plan.causes))
    cause = np.minimum(np.searchsorted(edges, kind, side="right"), len(plan.causes) - 1)
    soft = np.array([c.soft_fraction for c in plan.causes])[cause]
    medium = soft + np.array([c.medium_fraction for c in plan.causes])[cause]
    severity = np.where(heal < soft, SOFT, np.where(heal < medium, MEDIUM, HARD)).astype(np.int64)
    # The fraction left over of the number that picked the cause picks the group.
    groups = cluster.accelerators_per_node // cluster.group_accelerators
    takes_node = np.array([c.whole_node for c in plan.causes])[cause] | (groups == 1)
    below = np.where(cause > 0, edges[cause - 1], 0.0)
    within = np.clip((kind - below) / np.maximum(edges[cause] - below, 1e-300), 0.0, 1.0 - 1e-12)
    # Repairs are lognormal, with each severity's mean and the common coefficient of variation.
    sigma = np.sqrt(np.log1p(plan.repair_cv**2))
    return Failures(
        time_h=start_h[node] + age,
        node=node + first_node,
        group=np.where(takes_node, -1, (within * groups).astype(np.int64)),
        cause=cause.astype(np.int64),
        severity=severity,
        repair_h=np.array(plan.repair_h)[severity] * np.exp(sigma * spread - 0.5 * sigma**2),
    )


def draw_interruptions(
    plan: ReliabilityPlan, cluster: ClusterPlan, start_h: Floats, first_node: int, end_h: float, streams: Streams
) -> Failures:
    """Draw spot interruptions: Poisson processes of each node and of all nodes of the accelerator together.

    Times to replacement are exponential. Interruptions take no crew and no part, as a soft failure does; their cause is
    the plan's last.
    """
    rent, cause = cluster.rent, len(plan.causes) - 1
    assert rent is not None, "only machines under contract are taken back"
    draw, pool = (streams(f"interruptions/{name}") for name in (f"{cluster.name}/{first_node}", cluster.accelerator))
    until_h, together = min(end_h, cluster.retire_h), rent.together_fraction
    exposure = np.maximum(until_h - start_h, 0.0)
    node = np.repeat(np.arange(start_h.size), draw.poisson(rent.interruptions_per_h * (1.0 - together) * exposure))
    time_h, gone_h = start_h[node] + draw.random(node.size) * exposure[node], draw.exponential(size=node.size)
    count = pool.poisson(rent.interruptions_per_h * together * end_h)
    all_h, all_gone_h = pool.random(count) * end_h, pool.exponential(size=count)
    hit, event = np.nonzero((start_h[:, None] <= all_h) & (all_h < until_h))
    node = np.concatenate((node, hit))
    return Failures(
        time_h=np.concatenate((time_h, all_h[event])),
        node=node + first_node,
        group=np.full(node.size, -1),
        cause=np.full(node.size, cause),
        severity=np.full(node.size, SOFT),
        repair_h=np.concatenate((gone_h, all_gone_h[event])) * rent.interruption_h,
    )
