"""The change log: the only thing the SimPy processes produce."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What can happen to a fleet."""

    DELIVERED = "delivered"
    FAILED = "failed"
    REPAIRED = "repaired"


class Change(NamedTuple):
    """One change of the fleet's state."""

    time_h: float
    kind: Kind
    cluster: int
    nodes: int
    """Nodes that enter (positive) or leave (negative) service."""
    node: int
    """Which node, or -1 for a whole delivery."""
    cause: str
