"""What bursts add to the late and the refused, by load and rate: those of many users even out as their number grows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import Hours, lengthened, part_of

LITTLE_LATE = 1e-4
"""Share of requests: bursts that add less up to the preferred use are not followed to other clusters or by rate, and
where they are followed by rate not in hours in which they add less."""
_MANTISSA_BITS, _NO_EXPONENT = 52, 1023  # of a number of 64 bits: IEEE 754


class Between(NamedTuple):
    """Between which two rates the requests of hours lie."""

    row: Ints
    """The lower of them, shape (hours,)."""
    times: Floats
    """The hours' rate over the first of all, shape (hours,)."""

    @property
    def further(self) -> Floats:
        """Weight of the next rate, shape (hours,).

        What bursts add goes about with their variance, and so with one over the rate: at x times a rate, 1 ≤ x < 2,
        the next has the weight (1 − 1/x) / (1 − 1/2).
        """
        half, _ = np.frexp(self.times)  # of x
        return np.asarray(2.0 - 1.0 / half)

    def part(self, hours: Hours) -> Between:
        """Return the same of some hours."""
        row = self.row[hours] if isinstance(hours, slice) else self.row.take(hours, mode="clip")
        return Between(row, part_of(self.times, hours))


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstTables:
    """What bursts add to what a cluster misses of a workload, by load and rate."""

    first_requests: float
    """Requests an hour at the first rate; each of the others is twice the one before."""
    added: Floats
    """Shares late and refused less those without bursts, shape (2, rates, cells + 1)."""
    calm_cells: Floats
    """Cells from the first up to which bursts make nobody late, and up to which nobody is refused, shape (2, rates)."""
    even_cells: float
    """Cells from the first up to which nobody is refused without bursts."""
    _steps: Floats = field(init=False, repr=False, compare=False)
    """From each cell to the next; none beyond the end, where a table stays as it is."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_steps", np.diff(self.added, append=self.added[..., -1:]))

    def between(self, requests: Floats) -> Between:
        """Return between which rates hours of some requests lie, shape (hours,); beyond the ends, at them."""
        times = requests * (1.0 / self.first_requests)
        np.clip(times, 1.0, 2.0 ** (self.added.shape[1] - 1), out=times)
        # ⌊log₂⌋, as the number has it: a logarithm takes ten times as long.
        row = times.view(np.int64) >> _MANTISSA_BITS
        row -= _NO_EXPONENT
        return Between(row, times)

    def at_rate(self, requests: float) -> Floats:
        """Return what bursts add in hours of some requests, shape (2, cells + 1)."""
        between = self.between(np.array([requests]))
        (row,), (further,) = between.row, between.further
        after = min(row + 1, self.added.shape[1] - 1)
        return np.asarray((1.0 - further) * self.added[:, row] + further * self.added[:, after])

    def adding(self, kind: int, place: Floats, between: Between) -> Ints:
        """Return the hours at whose loads bursts make requests late (kind 0), or refused (1).

        Loads are places along the cells of a table, shape (hours,).
        """
        return np.flatnonzero(place > self.calm_cells[kind].take(between.row, mode="clip"))

    def refusing(self, place: Floats, bursts_at: Floats, between: Between) -> Ints:
        """Return the hours in which some are refused at a load, or by bursts that are borne at another."""
        by_bursts = bursts_at > self.calm_cells[1].take(between.row, mode="clip")
        return np.flatnonzero(np.logical_or(by_bursts, place > self.even_cells, out=by_bursts))

    def read(self, kind: int, place: Floats, between: Between) -> Floats:
        """Return what bursts add to the late (kind 0) or refused (1) at places along a table's cells, shape (hours,).

        Linear between cells and between rates.
        """
        cells = self.added.shape[2]
        cell = np.minimum(place.astype(np.intp), cells - 1)
        along = place - cell
        cell += between.row * cells
        table, steps = self.added[kind].reshape(-1), self._steps[kind].reshape(-1)
        share = steps.take(cell, mode="clip")
        share *= along
        share += table.take(cell, mode="clip")
        cell += cells  # beyond the last rate there is none, and no weight
        after = steps.take(cell, mode="clip")
        after *= along
        after += table.take(cell, mode="clip")
        after -= share
        after *= between.further
        share += after
        return np.asarray(share)

    def lengthened(self, cells: int) -> BurstTables:
        """Return the same whose tables go on as they end up to some cells."""
        return self if cells == self.added.shape[2] else replace(self, added=lengthened(self.added, cells))
