"""Spreading one workload's requests over clusters, for all hours at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FEW = 0.4  # below this share of hours, working on the hours alone is cheaper than on whole arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Where one workload may go; arrays of shape (clusters, hours)."""

    usable: Floats
    """Nodes that may work."""
    used: Floats
    """Nodes at work, updated by routing."""
    rates: Sequence[Floats]
    """Requests per node and hour of this workload, by cluster, each of shape (1,) or (hours,)."""
    order: Sequence[int]
    """Clusters in the order in which they are offered the work."""


def fill_in_order(wanted: Floats, room: Room, levels: Sequence[float], nodes: Floats) -> None:
    """Offer requests to clusters in order, first up to each one's first level of utilisation, then to the next level.

    ``wanted`` has shape (hours,). The node-equivalents that the work takes are added to ``nodes`` and to ``room.used``,
    both of shape (clusters, hours).
    """
    left = wanted.copy()
    hours: NDArray[np.intp] | None = None
    for level in levels:
        for cluster in room.order:
            rate = room.rates[cluster]
            if hours is None:
                free = room.usable[cluster] * level
                free -= room.used[cluster]
                np.maximum(free, 0.0, out=free)
                np.minimum(free, left / rate, out=free)
                room.used[cluster] += free
                nodes[cluster] += free
                free *= rate
                left -= free
            else:
                some = rate if rate.size == 1 else rate[hours]
                free = room.usable[cluster, hours] * level - room.used[cluster, hours]
                free = np.minimum(np.maximum(free, 0.0), left / some)
                room.used[cluster, hours] += free
                nodes[cluster, hours] += free
                left = left - free * some
            still = np.flatnonzero(left > 1e-12 * (wanted if hours is None else wanted[hours]))
            if not still.size:
                return
            if hours is not None:
                hours, left = hours[still], left[still]
            elif still.size < _FEW * left.size:
                hours, left = still, left[still]


def fill_in_proportion(wanted: Floats, room: Room, nodes: Floats) -> None:
    """Spread requests over clusters in proportion to what each has free; arguments as for :func:`fill_in_order`."""
    free = [np.maximum(room.usable[c] - room.used[c], 0.0) for c in room.order]
    capacity = [part * room.rates[c] for c, part in zip(room.order, free, strict=True)]
    whole = np.sum(capacity, axis=0)
    share = np.divide(np.minimum(wanted, whole), whole, out=np.zeros_like(wanted), where=whole > 0)
    for cluster, part in zip(room.order, free, strict=True):
        taken = part * share
        room.used[cluster] += taken
        nodes[cluster] += taken
