"""Failures: independent Poisson processes by node, drawn in the order of time when nodes enter service."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Floats, Ints
from planner.engine.log import Streams
from planner.plan.plan import ClusterPlan
from planner.plan.reliability import ReliabilityPlan
from planner.records import record

SEVERITIES = ("soft", "medium", "hard")
SOFT = 0
MEDIUM = 1
HARD = 2


@record
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
        columns = self._columns().items()
        return Failures(**{name: column[chosen] for name, column in columns})

    def rows(self) -> list[tuple[float, int, int, int, int, float]]:
        """Return time, node, group, cause, severity and repair time of each failure."""
        columns = [column.tolist() for column in self._columns().values()]
        return list(zip(*columns, strict=True))

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


_EVENTS_AT_ONCE = 16
"""Failures of each node that are drawn first; then twice as many, and so on."""
_MAX_EVENTS_AT_ONCE = 1024
_MARKS = 5
"""Random numbers of an event: the hazard until it, and four marks."""


def _poisson_events(
    streams: Streams, name: str, first_node: int, hazard: Floats
) -> tuple[Ints, Floats, Floats]:
    """Draw a Poisson process of rate 1 for each node, up to its own hazard, shape (nodes,).

    Returns the node of each event, the hazard at which it comes, and uniform marks, shape (marks, events). The k-th
    event of a node takes the same numbers however many nodes and events there are: a longer life has the same past.
    """
    nodes = [np.zeros(0, dtype=np.int64)]
    hazards = [np.zeros(0)]
    marks = [np.zeros((_MARKS - 1, 0))]
    reached = np.zeros(hazard.size)
    events = _EVENTS_AT_ONCE
    block = 0
    # Ends, since every block takes each node further by as many exponentials of mean 1.
    while (unfinished := np.flatnonzero(reached < hazard)).size:
        # From node 0 on, though the first are not looked at: a node's numbers are its place in the block.
        last_node = first_node + int(unfinished[-1])
        shape = (last_node + 1, events, _MARKS)
        draw = streams(f"{name}/{block}")
        numbers = draw.random(shape)[first_node:]
        count = len(numbers)
        gaps = -np.log1p(-numbers[..., 0])
        hazard_of = np.cumsum(gaps, axis=1)
        hazard_of += reached[:count, None]
        node, event = np.nonzero(hazard_of < hazard[:count, None])
        nodes.append(node)
        hazards.append(hazard_of[node, event])
        marks.append(numbers[node, event, 1:].T)
        reached[:count] = hazard_of[:, -1]
        events = min(2 * events, _MAX_EVENTS_AT_ONCE)
        block += 1
    all_marks = np.concatenate(marks, axis=1)
    return np.concatenate(nodes), np.concatenate(hazards), all_marks


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
    retired_h = min(end_h, cluster.retire_h)
    exposure_h = np.maximum(retired_h - start_h, 0.0)
    total_rate = sum(cause.per_node_h for cause in plan.causes)
    total_rate *= cluster.failure_multiplier
    # The others fail less, so that the mean of all is 1.
    excess = plan.lemon_fraction * (plan.lemon_multiplier - 1.0)
    other_weight = 1.0 / (1.0 + excess)
    lemon_weight = plan.lemon_multiplier * other_weight
    # Drawn from node 0 on, so that a node is a lemon in whichever delivery it comes.
    lemon_draw = streams(f"failures/{key}/lemons")
    scores = lemon_draw.random(first_node + start_h.size)
    is_lemon = scores[first_node:] < plan.lemon_fraction
    rate = total_rate * np.where(is_lemon, lemon_weight, other_weight)
    total_hazard = rate * exposure_h
    name = f"failures/{key}"
    node, hazard, marks = _poisson_events(streams, name, first_node, total_hazard)
    constant_h = plan.early_life_h
    early_total = rate * (plan.early_life_multiplier - 1.0) * constant_h
    early_share = -np.expm1(-exposure_h / constant_h)
    early_hazard = early_total * early_share
    early_node, early, early_marks = _poisson_events(
        streams, f"failures/{key}/early", first_node, early_hazard
    )
    # Ages are the inverse of the cumulative hazard: λ·t, and the total·(1 − exp(−t/τ)) of early life.
    early_fraction = early / early_total[early_node]
    early_age_h = -constant_h * np.log1p(-early_fraction)
    steady_age_h = hazard / rate[node]
    age_h = np.concatenate((steady_age_h, early_age_h))
    node = np.concatenate((node, early_node))
    all_marks = np.concatenate((marks, early_marks), axis=1)
    cause_mark, severity_mark, radius_mark, angle_mark = all_marks
    rates = np.array([cause.per_node_h for cause in plan.causes])
    # Where no cause has a rate nothing was drawn, and any edges will do.
    edges = np.ones(rates.size)
    if rates.sum() > 0:
        edges = np.cumsum(rates) / rates.sum()
    # The last edge is 1 but for rounding, so a mark may lie beyond it.
    cause = np.searchsorted(edges, cause_mark, side="right")
    cause = np.minimum(cause, len(plan.causes) - 1)
    soft_fractions = np.array([c.soft_fraction for c in plan.causes])
    medium_fractions = np.array([c.medium_fraction for c in plan.causes])
    soft = soft_fractions[cause]
    medium = soft + medium_fractions[cause]
    medium_or_hard = np.where(severity_mark < medium, MEDIUM, HARD)
    severity = np.where(severity_mark < soft, SOFT, medium_or_hard)
    severity = severity.astype(np.int64)
    # The fraction left over of the number that picked the cause picks the group.
    groups = cluster.accelerators_per_node // cluster.group_accelerators
    is_whole_node = np.array([c.whole_node for c in plan.causes])
    takes_node = is_whole_node[cause] | (groups == 1)
    edge = np.where(cause > 0, edges[cause - 1], 0.0)
    width = np.maximum(edges[cause] - edge, 1e-300)
    # Below 1 by a hair: a mark at the very edge must not pick a group that is not there.
    place_in_cause = (cause_mark - edge) / width
    group_mark = np.clip(place_in_cause, 0.0, 1.0 - 1e-12)
    group = (group_mark * groups).astype(np.int64)
    # Repairs are lognormal, with each severity's mean and the common coefficient of variation.
    radius = np.sqrt(-2.0 * np.log1p(-radius_mark))
    angle = 2.0 * np.pi * angle_mark
    z = radius * np.cos(angle)  # standard normal (Box and Muller)
    sigma = np.sqrt(np.log1p(plan.repair_cv**2))
    mean_repair_h = np.array(plan.repair_h)[severity]
    # Less half the variance, so that the mean of the lognormal is 1.
    repair_factor = np.exp(sigma * z - 0.5 * sigma**2)
    return Failures(
        time_h=start_h[node] + age_h,
        node=node + first_node,
        group=np.where(takes_node, -1, group),
        cause=cause.astype(np.int64),
        severity=severity,
        repair_h=mean_repair_h * repair_factor,
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
    assert rent is not None, "only machines under contract are taken back"
    until_h = min(end_h, cluster.retire_h)
    single_rate = rent.interruptions_per_h * (1.0 - rent.together_fraction)
    joint_rate = rent.interruptions_per_h * rent.together_fraction
    exposure_h = np.maximum(until_h - start_h, 0.0)
    single_hazard = single_rate * exposure_h
    node, hazard, marks = _poisson_events(
        streams, f"interruptions/{key}", first_node, single_hazard
    )
    # By accelerator and from hour 0: clusters of one accelerator are interrupted at the same hours.
    joint_total = np.array([joint_rate * end_h])
    _, joint_hazard, joint_marks = _poisson_events(
        streams, f"interruptions/{cluster.accelerator}", 0, joint_total
    )
    joint_h = joint_hazard / joint_rate
    is_in_service = start_h[:, None] <= joint_h
    is_hit = is_in_service & (joint_h < until_h)
    joint_node, event = np.nonzero(is_hit)
    single_h = start_h[node] + hazard / single_rate
    time_h = np.concatenate((single_h, joint_h[event]))
    node = np.concatenate((node, joint_node))
    length_mark = np.concatenate((marks[0], joint_marks[0, event]))
    # The inverse of the exponential distribution, at a uniform mark.
    waits = -np.log1p(-length_mark)
    return Failures(
        time_h=time_h,
        node=node + first_node,
        group=np.full(node.size, -1),
        cause=np.full(node.size, len(plan.causes) - 1),
        severity=np.full(node.size, SOFT),
        repair_h=waits * rent.interruption_h,
    )
