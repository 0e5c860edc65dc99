"""Erlang's formulas, for tests to hold queues to."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def erlang_c(servers: int, offered_load: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that a request waits in M/M/c (Erlang C), in the shape of ``offered_load`` (erlangs).

    Erlang B comes from its stable recursion 1/B_k = 1 + (k/a) / B_{k−1}; then C = B / (1 − ρ (1 − B)).
    """
    load = np.asarray(offered_load, dtype=np.float64)
    blocking = np.ones_like(load)
    for k in range(1, servers + 1):
        blocking = load * blocking / (k + load * blocking)
    return np.asarray(blocking / (1.0 - load / servers * (1.0 - blocking)), dtype=np.float64)
