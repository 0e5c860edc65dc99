"""Recursions over hours without a loop over hours.

A queue that may neither run empty nor hold what has expired follows G[t] = min(max(G[t−1] + c[t], lower[t]), upper[t]).
Each step is a clamp x → min(max(x + a, l), u); clamps compose to clamps, so blocks of hours can be walked through side
by side, in as many array operations as a block has hours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats, Ints

_BLOCK = 64  # hours walked through at once in each block; a few hundred blocks then make arrays worth an operation
_ROUNDING = 1e-13  # of all requests so far: what adding them up may be off by


def clamp_scan(step: Floats, lower: Floats, upper: Floats, start: float) -> Floats:
    """Return G with G[t] = min(max(G[t−1] + step[t], lower[t]), upper[t]) and G[−1] = start; shape (hours,).

    Composition of (a₁, l₁, u₁) then (a₂, l₂, u₂): a = a₁ + a₂, l = clamp₂(l₁ + a₂), u = clamp₂(u₁ + a₂). Hours are
    cut into blocks: clamps are composed hour by hour within all blocks at once, then what one block hands to the next
    is walked through.
    """
    blocks = -(-step.size // _BLOCK)
    filler = blocks * _BLOCK - step.size  # hours after the end, which nobody reads
    added, low, high = (
        np.pad(series, (0, filler)).reshape(blocks, _BLOCK).T.copy()
        for series in (step, lower, upper)
    )
    bounds = np.empty((_BLOCK, 2, blocks))  # of what has passed through a block's hours so far
    bounds[0] = low[0], high[0]
    for hour, now in enumerate(bounds[1:], start=1):
        np.add(bounds[hour - 1], added[hour], out=now)
        np.maximum(now, low[hour], out=now)
        np.minimum(now, high[hour], out=now)
        added[hour] += added[hour - 1]
    handed = [start]
    for a, least, most in zip(added[-1].tolist(), *bounds[-1].tolist(), strict=True):
        handed.append(min(max(handed[-1] + a, least), most))
    added += handed[:-1]
    np.maximum(added, bounds[:, 0], out=added)
    np.minimum(added, bounds[:, 1], out=added)
    return added.T.ravel()[: step.size]


def steps_by_hour(
    times_h: Floats, levels: Floats, first_hour: int, hours: int, *, before: float = 1.0
) -> Floats:
    """Return the mean over each hour of a piecewise constant function; shape (hours,).

    It stands at ``before`` until its first step and at ``levels[k]`` from ``times_h[k]`` (rising) on. Steps are few and
    hours many: levels are repeated, and only hours with a step in them are corrected by the part before it.
    """
    since = np.minimum(np.maximum(times_h - first_hour, 0.0), float(hours))
    hour = since.astype(np.intp)
    edges = np.concatenate(
        ([0], hour, [hours + 1])
    )  # an hour more takes the steps that come after the last
    heights = np.concatenate(([before], levels))
    series = np.repeat(heights, edges[1:] - edges[:-1])
    np.add.at(series, hour, (heights[:-1] - heights[1:]) * (since - hour))
    return series[:hours]


def hours_within(spans_h: Sequence[tuple[float, float]], first_hour: int, hours: int) -> Ints:
    """Return the hours, counted from ``first_hour``, that overlap time spans given in rising order."""
    runs: list[tuple[int, int]] = []
    for start_h, end_h in spans_h:
        first = max(math.floor(start_h) - first_hour, runs[-1][1] if runs else 0)
        last = hours if end_h >= first_hour + hours else math.ceil(end_h) - first_hour
        if first < last:
            runs.append((first, last))
    return np.concatenate([np.arange(*run) for run in runs]) if runs else np.zeros(0, dtype=np.intp)


def defer(arrivals: Floats, room: Floats, waiting: Floats) -> tuple[Floats, Floats, Floats]:
    """Serve deferrable work first in, first out from spare capacity; shed it when its deadline has passed.

    With A the cumulative arrivals (those still waiting included), d the deadline and c the spare capacity, the work
    that has left by the end of hour t, served or expired, is G[t] = min(max(G[t−1] + c[t], A[t−d]), A[t]): the queue
    serves what it can, drops what arrived d hours ago, and never gets ahead of arrivals. Returns served and shed
    by hour, and what still waits by hour of arrival.
    """
    deadline = waiting.size
    cumulative = np.cumsum(np.concatenate((waiting, arrivals)))
    arrived = cumulative[deadline:]
    expired = cumulative[:-deadline]
    # Without deadlines the queue is a reflected walk: gone = C + min(0, running min of A − C). It is the answer where
    # no deadline binds, and costs a tenth of the scan.
    offered = np.cumsum(room)
    gone = arrived - offered
    np.minimum.accumulate(gone, out=gone)
    np.minimum(gone, 0.0, out=gone)
    gone += offered
    rounding = _ROUNDING * cumulative[-1]
    if (gone < expired - rounding).any():
        gone = clamp_scan(room, expired, arrived, 0.0)
        before = np.concatenate(([0.0], gone[:-1]))
        served = np.minimum(before + room, arrived) - before
        shed = gone - before - served
        shed[shed < rounding] = 0.0
    else:
        served = gone.copy()
        served[1:] -= gone[:-1]
        np.maximum(served, 0.0, out=served)
        shed = np.zeros_like(served)
    return served, shed, np.diff(np.maximum(cumulative[-deadline:] - gone[-1], 0.0), prepend=0.0)


def needed(arrivals: Floats, room: Floats, more: Floats, waiting: Floats) -> Floats:
    """Return the least additional capacity that deferrable work needs, used as late as possible; shape (hours,).

    Of what can be served at all, N[t] = min(max(N[t+1] − c[t+1], A[t−d]), A[t]) is the least that has to be gone by
    the end of hour t for the rest to be in time with all room c there is. So the queue takes the further room where its
    own would leave it short of that: G[t] = min(max(G[t−1] + room[t], N[t]), A[t]).
    """
    all_room = room + more
    deadline = waiting.size
    came = np.concatenate((waiting, arrivals))
    came[: arrivals.size] -= defer(arrivals, all_room, waiting)[1]
    cumulative = np.cumsum(came)
    arrived = cumulative[deadline:]
    expired = cumulative[:-deadline]
    least = clamp_scan(
        np.concatenate(([0.0], -all_room[:0:-1])), expired[::-1], arrived[::-1], 0.0
    )[::-1]
    gone = clamp_scan(room, least, arrived, 0.0)
    taken = np.diff(gone, prepend=0.0) - room
    taken[taken < _ROUNDING * cumulative[-1]] = 0.0
    return np.minimum(taken, more)
