"""The change log: the only thing the SimPy processes produce."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple


class Change(NamedTuple):
    """One change of the number of accelerators in service."""

    time_h: float
    kind: str
    """delivered or retired."""
    cluster: int
    accelerators: int
    """Accelerators that enter (positive) or leave (negative)."""
    detail: str
    purchase: int = -1
    """Position in the log of the purchase that those who enter belong to."""


class Outage(NamedTuple):
    """Accelerators out of service from a failure until their repair."""

    start_h: float
    end_h: float
    cluster: int
    node: int
    accelerators: int
    cause: str
    severity: str
    """Of its repair; "domain" where what fails takes several nodes, "planned" for nodes drained, empty for those that a
    process took out."""
    wait_h: float
    """Hours of it spent waiting for a crew or a part."""


class SoftwareEvent(NamedTuple):
    """A change of a stack's speed from a moment on."""

    time_h: float
    pairs: tuple[tuple[int, int], ...]
    """Clusters and workloads it concerns."""
    log_factors: tuple[float, ...]
    """What the logarithm of speed changes by, for each pair."""
    kind: str
    incident: int
    """Number that ties the end of an incident to its beginning; -1 for a release, which has no end."""


class SpeedChange(NamedTuple):
    """What a software event does to one cluster on one workload."""

    time_h: float
    cluster: int
    workload: int
    log_factor: float
    kind: str
    incident: int


class Note(NamedTuple):
    """A line that a process of the user's wrote."""

    time_h: float
    process: str
    text: str
    cluster: str


class SiteEvent(NamedTuple):
    """The whole site without power."""

    start_h: float
    end_h: float


@dataclass(slots=True)
class ChangeLog:
    """Everything that happened to the fleet, in the order in which it became known."""

    changes: list[Change] = field(default_factory=list)
    software: list[SoftwareEvent] = field(default_factory=list)
    site: list[SiteEvent] = field(default_factory=list)
    purchases: list[Purchase] = field(default_factory=list)
    undelivered: list[Purchase] = field(default_factory=list)
    """Shipments of orders that come after the horizon, or would after their cluster is gone."""
    notes: list[Note] = field(default_factory=list)

    def speeds(self) -> list[SpeedChange]:
        """Return every change of speed of every cluster on every workload, in time order."""
        return [
            SpeedChange(event.time_h, *pair, factor, event.kind, event.incident)
            for event in sorted(self.software, key=lambda event: event.time_h)
            for pair, factor in zip(event.pairs, event.log_factors, strict=True)
            if factor != 0.0
        ]


class Purchase(NamedTuple):
    """Nodes delivered together at one price, whenever they enter service; paid on that day, or as their order says."""

    time_h: float
    cluster: int
    nodes: int
    prices_usd: tuple[float, float, float, float]
    """Price of a node: accelerators, host, network, storage."""
    placed_h: float = math.inf
    """When it was ordered, where its order says how it is paid; infinity where it is paid on delivery."""
