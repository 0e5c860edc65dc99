"""Elementwise operations in the form in which numpy is fast.

A year has 8,760 hours, and a run makes hundreds of passes over them, so the form of a pass counts. With an array on
both sides numpy takes minima and maxima by vector instructions; with a number on one side, or a mask, it goes cell by
cell, at four to six times the time. Results are the same to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats, Ints

Hours = slice | Ints


@functools.cache
def _level(bound: float, digits: int) -> Floats:
    """Return a constant array of length 2**digits, cached and read-only."""
    level = np.full(2**digits, bound)
    level.flags.writeable = False
    return level


def maximum(least: float, numbers: Floats, out: Floats | None = None) -> Floats:
    """Return max(least, x) elementwise, with a cached bound array."""
    bound = _level(least, numbers.size.bit_length())[: numbers.size]
    return np.maximum(numbers, bound.reshape(numbers.shape), out=out)


def at_most(most: float, numbers: Floats) -> Floats:
    """Return min(most, x) elementwise."""
    bound = np.empty(numbers.shape)
    bound.fill(most)
    np.minimum(numbers, bound, out=bound)
    return bound


def in_hours(series: Floats, hours: Ints) -> Floats:
    """Return some hours of series, whose last axis is hours.

    Indexing would keep the figures of an hour together, not those of a series, and make each later pass slower.
    """
    return series.take(hours, axis=-1, mode="clip")


def part_of(series: Floats, hours: Hours) -> Floats:
    """Return some hours of one series, or all."""
    return series[hours] if isinstance(hours, slice) else series.take(hours, mode="clip")


def span_above_zero(series: Floats) -> slice:
    """Return the hours from the first to the last in which a series is above 0; none where it never is."""
    some = series > 0.0
    return (
        slice(int(some.argmax()), some.size - int(some[::-1].argmax()))
        if some.any()
        else slice(0, 0)
    )


def added(rows: Floats, owner: Sequence[int]) -> Floats:
    """Return rows of shape (members, hours) summed by owner.

    numpy's add.at and reduceat go cell by cell, at many times the time.
    """
    if len(owner) == max(owner) + 1:  # each is its own
        return rows
    total = np.zeros((max(owner) + 1, rows.shape[1]))
    for c, row in zip(owner, rows, strict=True):
        total[c] += row
    return total


def pad_edge(tables: Floats, cells: int) -> Floats:
    """Return tables by load extended with their last value to ``cells`` cells, shape (..., cells)."""
    longer = np.empty((*tables.shape[:-1], cells))
    longer[..., : tables.shape[-1]] = tables
    longer[..., tables.shape[-1] :] = tables[..., -1:]
    return longer


def distinct(numbers: Ints) -> Ints:
    """Return the distinct numbers, rising.

    numpy's unique alone asks whether its array is a masked one, and loads all that numpy has for those: 15 ms, in each
    process that asks. Where it counts them too, it does not.
    """
    return np.unique(numbers, return_counts=True)[0]


def safe_denominator(total: Floats) -> Floats:
    """Return the totals as divisors, with infinity where a total is not above 0."""
    if total.size and total.min() > 0.0:
        return total
    safe = total.copy()
    safe.reshape(-1)[np.flatnonzero(~(total > 0.0))] = np.inf
    return safe


def quotient(part: Floats, total: Floats) -> Floats:
    """Return part / total, and 0 where the total is not above 0; ``total`` may have a single cell."""
    return part / safe_denominator(total)
