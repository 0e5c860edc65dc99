"""The change log: the only thing the SimPy processes produce."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Change(NamedTuple):
    """One change of the number of accelerators on the site."""

    time_h: float
    kind: str
    """delivered or retired."""
    cluster: int
    accelerators: int
    """Accelerators that enter (positive) or leave (negative)."""
    detail: str


class Outage(NamedTuple):
    """Accelerators out of service from a failure until their repair."""

    start_h: float
    end_h: float
    cluster: int
    node: int
    accelerators: int
    cause: str
    severity: str
    wait_h: float
    """Hours of it spent waiting for a crew or a part."""


class SpeedChange(NamedTuple):
    """A change of a stack's speed on one workload from a moment on."""

    time_h: float
    cluster: int
    workload: int
    log_factor: float
    kind: str
    incident: int
    """Number that ties the end of an incident to its beginning; -1 for a release, which has no end."""


class SiteEvent(NamedTuple):
    """The whole site without power."""

    start_h: float
    end_h: float


@dataclass(slots=True)
class ChangeLog:
    """Everything that happened to the fleet, in the order in which it became known."""

    changes: list[Change] = field(default_factory=list)
    speeds: list[SpeedChange] = field(default_factory=list)
    site: list[SiteEvent] = field(default_factory=list)
    purchases: list[Purchase] = field(default_factory=list)


class Purchase(NamedTuple):
    """Nodes that entered service together at one price: a purchase cohort."""

    time_h: float
    cluster: int
    nodes: int
    prices_usd: tuple[float, float, float, float]
    """Price of a node: accelerators, host, network, storage."""
