"""Spreading one workload's requests over clusters, for all hours at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_ROUNDING = 1e-12  # what is left of a request after rounding is nothing
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


def fill_in_order(wanted: Floats, room: Room, levels: Sequence[float], nodes: Floats) -> Floats:
    """Offer requests to clusters in order, first up to each one's first level of utilisation, then to the next level.

    ``wanted`` has shape (hours,). The node-equivalents that the work takes are added to ``nodes`` and to ``room.used``,
    both of shape (clusters, hours). Returns the requests that found no room, shape (hours,).
    """
    left = wanted
    for position, cluster in enumerate(room.order):
        free = _free(room, cluster, levels[0])
        needed = left / room.rates[cluster]
        hours = np.flatnonzero(needed > free)
        np.minimum(free, needed, out=free)
        room.used[cluster] += free
        nodes[cluster] += free
        if hours.size < _FEW * left.size:
            rest = [(levels[0], c) for c in room.order[position + 1 :]]
            rest += [(level, c) for level in levels[1:] for c in room.order]
            rate = room.rates[cluster] if room.rates[cluster].size == 1 else room.rates[cluster][hours]
            some = left[hours] - free[hours] * rate
            return _fill_hours(some, hours, room, rest, nodes)
        left = np.maximum(left - free * room.rates[cluster], 0.0)
    for level in levels[1:]:
        left = fill_in_order(left, room, (level,), nodes)
    return left


def _free(room: Room, cluster: int, level: float) -> Floats:
    """Return the nodes of a cluster that are free below a level of utilisation."""
    free = room.usable[cluster] * level
    free -= room.used[cluster]
    np.maximum(free, 0.0, out=free)
    return np.asarray(free)


def _fill_hours(
    some: Floats, hours: NDArray[np.intp], room: Room, rest: Sequence[tuple[float, int]], nodes: Floats
) -> Floats:
    """Go on with the few hours in which ``some`` work is left, through the remaining levels and clusters."""
    unserved = np.zeros(room.usable.shape[1])
    for level, cluster in rest:
        if not hours.size:
            return unserved
        rate = room.rates[cluster] if room.rates[cluster].size == 1 else room.rates[cluster][hours]
        used = room.used[cluster].take(hours)
        free = np.minimum(np.maximum(room.usable[cluster].take(hours) * level - used, 0.0), some / rate)
        if not free.any():
            continue
        room.used[cluster][hours] = used + free
        nodes[cluster][hours] += free
        before = some
        some = before - free * rate
        still = some > _ROUNDING * before
        hours, some = hours[still], some[still]
    unserved[hours] = some
    return unserved


def fill_in_proportion(wanted: Floats, room: Room, nodes: Floats) -> Floats:
    """Spread requests over clusters in proportion to what each has free; arguments as for :func:`fill_in_order`."""
    free = [np.maximum(room.usable[c] - room.used[c], 0.0) for c in room.order]
    capacity = [part * room.rates[c] for c, part in zip(room.order, free, strict=True)]
    whole = np.sum(capacity, axis=0)
    share = np.divide(np.minimum(wanted, whole), whole, out=np.zeros_like(wanted), where=whole > 0)
    for cluster, part in zip(room.order, free, strict=True):
        taken = part * share
        room.used[cluster] += taken
        nodes[cluster] += taken
    return np.asarray(np.maximum(wanted - whole, 0.0))
