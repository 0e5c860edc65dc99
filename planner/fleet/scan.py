"""Recursions over hours without a loop over hours.

A queue that may neither run empty nor hold what has expired follows G[t] = min(max(G[t−1] + c[t], lower[t]), upper[t]).
Each step is a clamp x → min(max(x + a, l), u); clamps compose to clamps, so a prefix scan (Hillis and Steele, 1986)
finds all G in log₂ n array operations.
"""

from __future__ import annotations

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

    The function jumps by ``deltas`` at ``times_h``. A jump of d at time t counts d·(1 − (t − ⌊t⌋)) in its own hour and
    d in every later one; jumps before the first hour count in full, jumps after the last not at all.
    """
    since = np.clip(times_h - first_hour, 0.0, float(hours))
    hour = since.astype(np.intp)
    into_hour = since - hour
    jump = np.bincount(hour, deltas * (1.0 - into_hour), hours + 2)
    jump += np.bincount(hour + 1, deltas * into_hour, hours + 2)
    return np.cumsum(jump[:hours])


def steps_by_hour(times_h: Floats, levels: Floats, first_hour: int, hours: int, *, before: float = 1.0) -> Floats:
    """Return the mean over each hour of a piecewise constant function; shape (hours,).

    It stands at ``before`` until its first step and at ``levels[k]`` from ``times_h[k]`` (rising) on. Steps are few and
    hours many: levels are repeated, and only hours with a step in them are corrected by the part before it.
    """
    since = np.clip(times_h - first_hour, 0.0, float(hours))
    hour = since.astype(np.intp)
    heights = np.concatenate(([before], levels))
    series = np.repeat(heights, np.diff(np.concatenate(([0], hour, [hours]))))
    for at, part in zip(hour.tolist(), ((heights[:-1] - heights[1:]) * (since - hour)).tolist(), strict=True):
        if at < hours:
            series[at] += part
    return series
