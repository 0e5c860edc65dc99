"""Recursions over hours without a loop over hours.

A queue that may neither run empty nor hold what has expired follows G[t] = min(max(G[t−1] + c[t], lower[t]), upper[t]).
Each step is a clamp x → min(max(x + a, l), u); clamps compose to clamps, so a prefix scan (Hillis and Steele, 1986)
finds all G in log₂ n array operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def clamp_scan(step: Floats, lower: Floats, upper: Floats, start: float) -> Floats:
    """Return G with G[t] = min(max(G[t−1] + step[t], lower[t]), upper[t]) and G[−1] = start; shape (hours,).

    Composition of (a₁, l₁, u₁) then (a₂, l₂, u₂): a = a₁ + a₂, l = clamp₂(l₁ + a₂), u = clamp₂(u₁ + a₂).
    """
    added, low, high = step.copy(), lower.copy(), upper.copy()
    span = 1
    while span < added.size:
        now_low, now_high = low[span:], high[span:]
        carried_low = np.minimum(np.maximum(low[:-span] + added[span:], now_low), now_high)
        carried_high = np.minimum(np.maximum(high[:-span] + added[span:], now_low), now_high)
        carried_added = added[span:] + added[:-span]
        low[span:], high[span:], added[span:] = carried_low, carried_high, carried_added
        span *= 2
    return np.minimum(np.maximum(start + added, low), high)


def time_weighted(times_h: Floats, deltas: Floats, first_hour: int, hours: int) -> Floats:
    """Return the mean over each hour of a step function, for the hours from ``first_hour``; shape (hours,).

    The function starts at 0 and jumps by ``deltas`` at ``times_h``, in any order.
    """
    order = np.argsort(times_h, kind="stable")
    return steps_by_hour(times_h[order], np.cumsum(deltas[order]), first_hour, hours, before=0.0)


def steps_by_hour(times_h: Floats, levels: Floats, first_hour: int, hours: int, *, before: float = 1.0) -> Floats:
    """Return the mean over each hour of a piecewise constant function; shape (hours,).

    It stands at ``before`` until its first step and at ``levels[k]`` from ``times_h[k]`` (rising) on. Steps are few and
    hours many: levels are repeated, and only hours with a step in them are corrected by the part before it.
    """
    since = np.minimum(np.maximum(times_h - first_hour, 0.0), float(hours))
    hour = since.astype(np.intp)
    edges = np.concatenate(([0], hour, [hours + 1]))  # an hour more takes the steps that come after the last
    heights = np.concatenate(([before], levels))
    series = np.repeat(heights, edges[1:] - edges[:-1])
    np.add.at(series, hour, (heights[:-1] - heights[1:]) * (since - hour))
    return series[:hours]


def hours_within(spans_h: Sequence[tuple[float, float]], first_hour: int, hours: int) -> NDArray[np.intp]:
    """Return the hours, counted from ``first_hour``, that spans of time touch; the spans begin in rising order."""
    runs: list[tuple[int, int]] = []
    for start_h, end_h in spans_h:
        first = max(math.floor(start_h) - first_hour, runs[-1][1] if runs else 0)
        last = hours if end_h >= first_hour + hours else math.ceil(end_h) - first_hour
        if first < last:
            runs.append((first, last))
    return np.concatenate([np.arange(*run) for run in runs]) if runs else np.zeros(0, dtype=np.intp)
