"""Reliability's part of a plan: why nodes fail, what fails with them, and who mends it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.plan.software_plan import Headcount

INTERRUPTION = "spot interruption"
"""Cause of an outage of a spot node, the last of a plan's causes where one has such a contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausePlan:
    """One reason why nodes fail."""

    name: str
    per_node_h: float
    whole_node: bool
    soft_fraction: float
    medium_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPlan:
    """What fails as one and takes the nodes behind it, such as a rack."""

    name: str
    nodes: int
    per_year: float
    """Failures of each."""
    repair_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """Work that drains nodes at even intervals."""

    every_h: float
    length_h: float
    nodes_fraction: float = 1.0
    """Mean share of nodes that come up for it each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityPlan:
    """Failures, crews and spares."""

    causes: tuple[CausePlan, ...]
    lemon_fraction: float
    lemon_multiplier: float
    early_life_multiplier: float
    early_life_h: float
    repair_h: tuple[float, float, float]
    """Mean soft, medium and hard repair."""
    repair_cv: float
    crews: Headcount
    spares: Headcount
    """For each cluster, by its own machines."""
    rma_h: float
    domains: tuple[DomainPlan, ...] = ()
    maintenance: PlannedWork | None = None
    firmware: PlannedWork | None = None
    reserve_nodes: int = 1
    reserve_fraction: float = 0.0

    def reserve(self, nodes: int) -> int:
        """Return how many of a cluster's nodes may be down for planned work to go on: max(stated, ⌈share · nodes⌉)."""
        return max(self.reserve_nodes, math.ceil(self.reserve_fraction * nodes - 1e-9))

    @property
    def crew_h_per_node_h(self) -> float:
        """Hours of a crew's work that a node brings in an hour: Σ rate · (medium · its repair + hard · its repair)."""
        _, medium_h, hard_h = self.repair_h
        return sum(
            cause.per_node_h
            * (cause.medium_fraction * medium_h + (1.0 - cause.soft_fraction - cause.medium_fraction) * hard_h)
            for cause in self.causes
        )
