"""Spreading one workload's requests over clusters, for all hours at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fill_in_order(
    wanted: Floats, used: Floats, usable: Floats, rates: Sequence[Floats], order: Sequence[int], levels: Sequence[float]
) -> list[tuple[int, Floats]]:
    """Offer requests to clusters in order, first up to each one's first level of utilisation, then to the next level.

    ``wanted`` has shape (hours,); ``used`` and ``usable`` are nodes at work and nodes that may work, shape (clusters,
    hours), of which ``used`` is updated; ``rates`` are requests per node and hour. Returns requests taken by cluster.
    """
    left = wanted.copy()
    taken: list[tuple[int, Floats]] = []
    for level in levels:
        for cluster in order:
            free = usable[cluster] * level if level < 1.0 else usable[cluster].copy()
            free -= used[cluster]
            np.maximum(free, 0.0, out=free)
            free *= rates[cluster]
            np.minimum(free, left, out=free)
            left -= free
            used[cluster] += free / rates[cluster]
            taken.append((cluster, free))
        if not left.any():
            break
    return taken


def fill_in_proportion(
    wanted: Floats, used: Floats, usable: Floats, rates: Sequence[Floats], order: Sequence[int]
) -> list[tuple[int, Floats]]:
    """Spread requests over clusters in proportion to what each has free; arguments as for :func:`fill_in_order`."""
    room = [np.maximum(usable[cluster] - used[cluster], 0.0) * rates[cluster] for cluster in order]
    whole = np.sum(room, axis=0)
    share = np.divide(np.minimum(wanted, whole), whole, out=np.zeros_like(wanted), where=whole > 0)
    taken = []
    for cluster, free in zip(order, room, strict=True):
        free *= share
        used[cluster] += free / rates[cluster]
        taken.append((cluster, free))
    return taken
