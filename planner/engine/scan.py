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

_BLOCK = 64
"""Hours walked through at once in each block; a few hundred blocks then make arrays worth an operation."""
_ROUNDING = 1e-13
"""Of all requests so far: what adding them up may be off by."""


def clamp_scan(step: Floats, lower: Floats, upper: Floats, start: float) -> Floats:
    """Return G with G[t] = min(max(G[t−1] + step[t], lower[t]), upper[t]) and G[−1] = start; shape (hours,).

    Composition of (a₁, l₁, u₁) then (a₂, l₂, u₂): a = a₁ + a₂, l = clamp₂(l₁ + a₂), u = clamp₂(u₁ + a₂). Hours are
    cut into blocks: clamps are composed hour by hour within all blocks at once, then what one block hands to the next
    is walked through.
    """
    blocks = -(-step.size // _BLOCK)
    filler = blocks * _BLOCK - step.size  # hours after the end, which nobody reads
    # An hour of all blocks is a row, so that each operation goes through memory in order.
    rows = []
    for series in (step, lower, upper):
        padded = np.pad(series, (0, filler))
        by_block = padded.reshape(blocks, _BLOCK)
        rows.append(by_block.T.copy())
    added, low, high = rows
    bounds = np.empty((_BLOCK, 2, blocks))  # of what has passed through a block's hours so far
    bounds[0, 0] = low[0]
    bounds[0, 1] = high[0]
    for hour, hour_bounds in enumerate(bounds[1:], start=1):
        np.add(bounds[hour - 1], added[hour], out=hour_bounds)
        np.maximum(hour_bounds, low[hour], out=hour_bounds)
        np.minimum(hour_bounds, high[hour], out=hour_bounds)
        added[hour] += added[hour - 1]
    openings = [start]
    totals = added[-1].tolist()
    for total, block_low, block_high in zip(totals, *bounds[-1].tolist(), strict=True):
        closing = max(openings[-1] + total, block_low)
        openings.append(min(closing, block_high))
    # The last block hands on to nobody.
    added += openings[:-1]
    np.maximum(added, bounds[:, 0], out=added)
    np.minimum(added, bounds[:, 1], out=added)
    return added.T.ravel()[: step.size]


def steps_by_hour(
    times_h: Floats, levels: Floats, first_hour: int, hours: int, *, opening_level: float = 1.0
) -> Floats:
    """Return the mean over each hour of a piecewise constant function; shape (hours,).

    It stands at ``opening_level`` until its first step and at ``levels[k]`` from ``times_h[k]`` (rising) on.
    """
    elapsed_h = np.maximum(times_h - first_hour, 0.0)
    np.minimum(elapsed_h, float(hours), out=elapsed_h)
    hour = elapsed_h.astype(np.intp)
    # An hour more takes the steps that come after the last.
    edges = np.concatenate(([0], hour, [hours + 1]))
    heights = np.concatenate(([opening_level], levels))
    # Steps are few and hours many: levels are repeated, and only hours with a step in them are corrected by the part
    # before it.
    lengths = edges[1:] - edges[:-1]
    series = np.repeat(heights, lengths)
    drops = heights[:-1] - heights[1:]
    # Several steps may share an hour, which add.at adds up.
    part_before = elapsed_h - hour
    np.add.at(series, hour, drops * part_before)
    return series[:hours]


def hours_within(spans_h: Sequence[tuple[float, float]], first_hour: int, hours: int) -> Ints:
    """Return the hours, counted from ``first_hour``, that overlap time spans given in rising order."""
    runs = [np.zeros(0, dtype=np.intp)]
    covered = 0
    for start_h, end_h in spans_h:
        # Two spans may share an hour, which counts once; the end may be infinity, which has no whole number.
        begin = max(math.floor(start_h) - first_hour, covered)
        end = hours
        if end_h < first_hour + hours:
            end = math.ceil(end_h) - first_hour
        if begin < end:
            runs.append(np.arange(begin, end))
            covered = end
    return np.concatenate(runs)


def defer(arrivals: Floats, room: Floats, waiting: Floats) -> tuple[Floats, Floats, Floats]:
    """Serve deferrable work first in, first out from spare capacity; shed it when its deadline has passed.

    With A the cumulative arrivals (those still waiting included), d the deadline and c the spare capacity, the work
    that has left by the end of hour t, served or expired, is G[t] = min(max(G[t−1] + c[t], A[t−d]), A[t]): the queue
    serves what it can, drops what arrived d hours ago, and never gets ahead of arrivals. Returns served and shed
    by hour, and what still waits by hour of arrival.
    """
    deadline = waiting.size
    requests = np.concatenate((waiting, arrivals))
    cumulative = np.cumsum(requests)
    arrived = cumulative[deadline:]
    expired = cumulative[:-deadline]
    # Without deadlines the queue is a reflected walk: gone = C + min(0, running min of A − C). It is the answer up to
    # the first hour in which a deadline binds, and costs a tenth of the scan.
    offered = np.cumsum(room)
    settled = arrived - offered
    np.minimum.accumulate(settled, out=settled)
    np.minimum(settled, 0.0, out=settled)
    settled += offered
    # By hour, as all that decides an hour: what comes later does not move it by a bit.
    rounding = _ROUNDING * arrived
    binding = np.flatnonzero(settled < expired - rounding)
    served = settled.copy()
    served[1:] -= settled[:-1]
    np.maximum(served, 0.0, out=served)
    shed = np.zeros_like(served)
    if binding.size:
        first = int(binding[0])
        start = float(settled[first - 1]) if first else 0.0
        settled[first:] = clamp_scan(room[first:], expired[first:], arrived[first:], start)
        opening = np.concatenate(([start], settled[first:-1]))
        served[first:] = np.minimum(opening + room[first:], arrived[first:]) - opening
        shed[first:] = settled[first:] - opening - served[first:]
        # What differences of large sums leave is not shed.
        shed[shed < rounding] = 0.0
    backlog = cumulative[-deadline:] - settled[-1]
    np.maximum(backlog, 0.0, out=backlog)
    return served, shed, np.diff(backlog, prepend=0.0)


def needed(arrivals: Floats, room: Floats, extra_room: Floats, waiting: Floats) -> Floats:
    """Return the least additional capacity that deferrable work needs, used as late as possible; shape (hours,).

    Of what can be served at all, N[t] = min(max(N[t+1] − c[t+1], A[t−d]), A[t]) is the least that has to be gone by
    the end of hour t for the rest to be in time with all room c there is. So the queue takes the further room where its
    own would leave it short of that: G[t] = min(max(G[t−1] + room[t], N[t]), A[t]).
    """
    all_room = room + extra_room
    deadline = waiting.size
    requests = np.concatenate((waiting, arrivals))
    # What expires with all room there is, is not waited for: it goes with the hour in which it came.
    _, expiring, _ = defer(arrivals, all_room, waiting)
    requests[: arrivals.size] -= expiring
    cumulative = np.cumsum(requests)
    arrived = cumulative[deadline:]
    expired = cumulative[:-deadline]
    # The recursion of N runs from the end to the start: the same scan on reversed hours.
    steps = np.concatenate(([0.0], -all_room[:0:-1]))
    reversed_due = clamp_scan(steps, expired[::-1], arrived[::-1], 0.0)
    due = reversed_due[::-1]
    settled = clamp_scan(room, due, arrived, 0.0)
    borrowed = np.diff(settled, prepend=0.0)
    borrowed -= room
    rounding = _ROUNDING * cumulative[-1]
    borrowed[borrowed < rounding] = 0.0
    return np.minimum(borrowed, extra_room)
