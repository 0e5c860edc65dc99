"""Passes over arrays of hours, in the forms in which numpy is fast or safe.

A year has 8,760 hours, and a run makes hundreds of passes over them, so the form of a pass counts. What is here pays,
measured on a replication of the reference scenario (x86, CPU time, 60 pairs of runs); bounds by a cached array and
indexing by slices gained nothing there, and are plain numpy. Results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats, Ints

Hours = slice | Ints


def in_hours(series: Floats, hours: Ints) -> Floats:
    """Return some hours of series, whose last axis is hours."""
    # Indexing would keep the figures of an hour together, not those of a series, and make each later pass slower: 9% of
    # a replication. Clipping spares a check of each index.
    return series.take(hours, axis=-1, mode="clip")


def added(rows: Floats, owner: Sequence[int]) -> Floats:
    """Return rows of shape (members, hours) summed by owner."""
    owners = max(owner) + 1
    if len(owner) == owners:  # each is its own
        return rows
    total = np.zeros((owners, rows.shape[1]))
    # numpy's add.at and reduceat go cell by cell: 23% of a replication.
    for c, row in zip(owner, rows, strict=True):
        total[c] += row
    return total


def pad_edge(tables: Floats, cells: int) -> Floats:
    """Return tables by load extended with their last value to ``cells`` cells, shape (..., cells)."""
    filled = tables.shape[-1]
    longer = np.empty((*tables.shape[:-1], cells))
    longer[..., :filled] = tables
    longer[..., filled:] = tables[..., -1:]
    return longer


def safe_denominator(total: Floats) -> Floats:
    """Return the totals as divisors, with infinity where a total is not above 0."""
    # Nearly all are above 0 throughout, and are not copied: 3% of a replication.
    if total.size and total.min() > 0.0:
        return total
    return np.where(total > 0.0, total, np.inf)


def quotient(part: Floats, total: Floats) -> Floats:
    """Return part / total, and 0 where the total is not above 0; ``total`` may have a single cell."""
    return part / safe_denominator(total)
