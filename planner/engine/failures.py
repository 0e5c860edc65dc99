"""Failures: independent Poisson processes by node, drawn in the order of time when nodes enter service."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Floats, Ints
from planner.engine.log import Streams
from planner.plan.parts import ReliabilityPlan
from planner.plan.plan import ClusterPlan

SEVERITIES = ("soft", "medium", "hard")
SOFT = 0
MEDIUM = 1
HARD = 2


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


_ROUNDS = 16
"""Failures of each node that are drawn first; then twice as many, and so on up to :data:`_MOST_ROUNDS`."""
_MOST_ROUNDS = 1024
_MARKS = 5


def _lives(
    streams: Streams, name: str, first_node: int, hazard: Floats
) -> tuple[Ints, Floats, Floats]:
    """Draw a Poisson process of rate 1 for each node, up to its own hazard, shape (nodes,).

    Returns the node of each event, the hazard at which it comes, and uniform marks, shape (marks, events). The k-th
    event of a node takes the same numbers however many nodes and events there are: a longer life has the same past.
    """
    events: list[tuple[Ints, Floats, Floats]] = []
    reached = np.zeros(hazard.size)
    rounds = _ROUNDS
    block = 0
    while (alive := np.flatnonzero(reached < hazard)).size:
        shape = (first_node + int(alive[-1]) + 1, rounds, _MARKS)
        drawn = streams(f"{name}/{block}").random(shape)[first_node:]
        at = np.cumsum(-np.log1p(-drawn[..., 0]), axis=1) + reached[: len(drawn), None]
        node, place = np.nonzero(at < hazard[: len(drawn), None])
        events.append((node, at[node, place], drawn[node, place, 1:].T))
        reached[: len(drawn)] = at[:, -1]
        rounds = min(2 * rounds, _MOST_ROUNDS)
        block = block + 1
    if not events:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((_MARKS - 1, 0))
    nodes, hazards, marks = zip(*events, strict=True)
    return np.concatenate(nodes), np.concatenate(hazards), np.concatenate(marks, axis=1)


def draw_failures(
    plan: ReliabilityPlan,
    cluster: ClusterPlan,
    start_h: Floats,
    first_node: int,
    end_h: float,
    streams: Streams,
    key: str,
) -> Failures:
    """Draw every failure of nodes that enter service at ``start_h`` (shape (nodes,)) until the horizon's end.

    A node's rate is λ·w·(1 + (m − 1)·exp(−age/τ)): w tells lemons from the rest with mean 1, m and τ are early life.
    Steady and early failures go by age and have streams of their own.
    """
    exposure = np.maximum(min(end_h, cluster.retire_h) - start_h, 0.0)
    total_rate = sum(cause.per_node_h for cause in plan.causes) * cluster.failure_multiplier
    plain = 1.0 / (1.0 + plan.lemon_fraction * (plan.lemon_multiplier - 1.0))
    chosen = streams(f"failures/{key}/lemons").random(first_node + start_h.size)[first_node:]
    rate = total_rate * np.where(chosen < plan.lemon_fraction, plan.lemon_multiplier * plain, plain)
    tau = plan.early_life_h
    most = rate * (plan.early_life_multiplier - 1.0) * plan.early_life_h
    node, hazard, marks = _lives(streams, f"failures/{key}", first_node, rate * exposure)
    young, early, more = _lives(
        streams, f"failures/{key}/early", first_node, most * -np.expm1(-exposure / tau)
    )
    age = np.concatenate((hazard / rate[node], -tau * np.log1p(-early / most[young])))
    node = np.concatenate((node, young))
    kind, heal, length, turn = np.concatenate((marks, more), axis=1)
    spread = np.sqrt(-2.0 * np.log1p(-length)) * np.cos(
        2.0 * np.pi * turn
    )  # standard normal (Box and Muller)
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
    plan: ReliabilityPlan,
    cluster: ClusterPlan,
    start_h: Floats,
    first_node: int,
    end_h: float,
    streams: Streams,
    key: str,
) -> Failures:
    """Draw spot interruptions: Poisson processes of each node and of all nodes of the accelerator together.

    Times to replacement are exponential. Interruptions take no crew and no part, as a soft failure does; their cause is
    the plan's last.
    """
    rent = cluster.rent
    cause = len(plan.causes) - 1
    assert rent is not None, "only machines under contract are taken back"
    until_h = min(end_h, cluster.retire_h)
    rate = rent.interruptions_per_h
    alone = rate * (1.0 - rent.together_fraction)
    together = rate * rent.together_fraction
    exposure = np.maximum(until_h - start_h, 0.0)
    node, hazard, marks = _lives(streams, f"interruptions/{key}", first_node, alone * exposure)
    _, all_hazard, all_marks = _lives(
        streams, f"interruptions/{cluster.accelerator}", 0, np.array([together * end_h])
    )
    time_h = start_h[node] + hazard / alone
    all_h = all_hazard / together
    hit, event = np.nonzero((start_h[:, None] <= all_h) & (all_h < until_h))
    node = np.concatenate((node, hit))
    return Failures(
        time_h=np.concatenate((time_h, all_h[event])),
        node=node + first_node,
        group=np.full(node.size, -1),
        cause=np.full(node.size, cause),
        severity=np.full(node.size, SOFT),
        repair_h=-np.log1p(-np.concatenate((marks[0], all_marks[0, event]))) * rent.interruption_h,
    )
