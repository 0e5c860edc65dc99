"""Tables of miss shares by load over capacity, and what bursts add to them by request rate."""

from __future__ import annotations

from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import Hours, pad_edge
from planner.records import record

LITTLE_LATE = 1e-4
"""Share of requests: bursts that add less up to the preferred use are not followed to other clusters or by rate, and
where they are followed by rate not in hours in which they add less."""


_MANTISSA_BITS = 52
"""Of a number of 64 bits (IEEE 754): the exponent stands above them."""
_NO_EXPONENT = 1023
"""What the exponent of 1 is stored as."""


class RateInterpolation(NamedTuple):
    """Interpolation of hourly request rates between the rates of burst tables."""

    row: Ints
    """The lower of them, shape (hours,)."""
    times: Floats
    """The hours' rate over the first of all, shape (hours,)."""

    @property
    def further(self) -> Floats:
        """Interpolation weight of the next higher rate, shape (hours,).

        What bursts add goes about with their variance, and so with one over the rate: at x times a rate, 1 ≤ x < 2,
        the next has the weight (1 − 1/x) / (1 − 1/2).
        """
        # frexp returns x/2, between a half and one, whatever the power of two.
        half, _ = np.frexp(self.times)
        return np.asarray(2.0 - 1.0 / half)

    def part(self, hours: Hours) -> RateInterpolation:
        """Return the interpolation for some of the hours."""
        return RateInterpolation(self.row[hours], self.times[hours])


@record
class BurstTables:
    """Misses of a workload on a cluster that bursts add, by load and request rate."""

    first_requests: float
    """Requests an hour at the first rate; each of the others is twice the one before."""
    least_requests: float
    """Requests an hour below which bursts add what they add at it."""
    added: Floats
    """Shares late and refused less those without bursts, shape (2, rates, cells + 1)."""
    calm_cells: Floats
    """Cells from the first up to which bursts make nobody late, and up to which nobody is refused, shape (2, rates)."""
    even_cells: float
    """Cells from the first up to which nobody is refused without bursts."""
    _steps: Floats = field(init=False, repr=False, compare=False)
    """From each cell to the next; none beyond the end, where a table stays as it is."""

    def __post_init__(self) -> None:
        final_cell = self.added[..., -1:]
        steps = np.diff(self.added, append=final_cell)
        # The class is frozen for all but its own making.
        object.__setattr__(self, "_steps", steps)

    def between(self, requests: Floats) -> RateInterpolation:
        """Return the interpolation of hourly requests between the tables' rates, shape (hours,)."""
        times = requests * (1.0 / self.first_requests)
        doublings = self.added.shape[1] - 1
        least = max(self.least_requests / self.first_requests, 1.0)
        np.clip(times, least, 2.0**doublings, out=times)
        # ⌊log₂⌋, as the number has it: a logarithm takes ten times as long.
        row = times.view(np.int64) >> _MANTISSA_BITS
        row -= _NO_EXPONENT
        return RateInterpolation(row, times)

    def adding(self, kind: int, place: Floats, rates: RateInterpolation) -> Ints:
        """Return the hours at whose loads bursts make requests late (kind 0) or rejected (kind 1).

        Loads are places along the cells of a table, shape (hours,).
        """
        calm_cells = self.calm_cells[kind].take(rates.row, mode="clip")
        return np.flatnonzero(place > calm_cells)

    def refusing(self, place: Floats, bursts_at: Floats, rates: RateInterpolation) -> Ints:
        """Return the hours in which requests are rejected at a load, or by bursts at the load ``bursts_at``."""
        calm_cells = self.calm_cells[1].take(rates.row, mode="clip")
        is_refusing = bursts_at > calm_cells
        # In place: one array less for every hour of every pair.
        is_refusing |= place > self.even_cells
        return np.flatnonzero(is_refusing)

    def read(self, kind: int, place: Floats, rates: RateInterpolation) -> Floats:
        """Return the share that bursts add to late (kind 0) or rejected (1) at table positions, shape (hours,).

        Linear between cells and between rates.
        """
        cells = self.added.shape[2]
        # In place and on flat tables, since this is read for every hour of every pair.
        cell = np.minimum(place.astype(np.intp), cells - 1)
        offset = place - cell
        cell += rates.row * cells
        table = self.added[kind].reshape(-1)
        steps = self._steps[kind].reshape(-1)
        share = steps.take(cell, mode="clip")
        share *= offset
        share += table.take(cell, mode="clip")
        # The same cell of the next rate; beyond the last there is none, and it has no weight.
        cell += cells
        next_share = steps.take(cell, mode="clip")
        next_share *= offset
        next_share += table.take(cell, mode="clip")
        next_share -= share
        next_share *= rates.further
        share += next_share
        return np.asarray(share)

    def pad_edge(self, cells: int) -> BurstTables:
        """Return the tables extended to this many cells with their last value."""
        if cells == self.added.shape[2]:
            return self
        return replace(self, added=pad_edge(self.added, cells))


@record
class MissTables:
    """Shares of a workload's requests that a pool serves late or refuses, by load over its capacity."""

    late: Floats
    """With the bursts of day one, shape (cells + 1,)."""
    refused: Floats
    no_burst: Floats
    """Late and refused without bursts, shape (2, cells + 1)."""
    most_load: float
    """What the pool is offered at most, over what it sustains at the objective."""
    by_rate: BurstTables | None
    """What bursts add by request rate; None where that is the same at any, or next to nothing."""

    def pad_edge(self, cells: int) -> MissTables:
        """Return the tables extended to this many cells with their last value."""
        if cells == self.late.size:
            return self
        return MissTables(
            late=pad_edge(self.late, cells),
            refused=pad_edge(self.refused, cells),
            no_burst=pad_edge(self.no_burst, cells),
            most_load=self.most_load,
            by_rate=self.by_rate.pad_edge(cells) if self.by_rate is not None else None,
        )


LOAD_CELLS = 256
"""Cells of a table by load up to :data:`MOST_LOAD`; between their edges it is interpolated."""


MOST_LOAD = 2.0
"""The load at which tables end, unless some cluster is offered more: then at the next multiple of it. What exceeds a
cluster's own most is shed at once."""


def highest_load(missed: Floats, allowance: Floats | float) -> Floats:
    """Return the highest load, up to capacity, to which tables by load miss no more than an allowance."""
    cells = round(LOAD_CELLS / MOST_LOAD)
    is_within = missed[..., : cells + 1] <= allowance
    is_kept = np.minimum.accumulate(is_within, axis=-1)
    return np.asarray((is_kept.sum(axis=-1) - 1) / cells)


def load_grid(cells: int) -> Floats:
    """Return the loads at the edges of a table's cells, shape (cells + 1,)."""
    cell_width = MOST_LOAD / LOAD_CELLS
    return np.asarray(np.arange(cells + 1) * cell_width, dtype=np.float64)
