"""Many small linear programs, solved together: max-min fair shares at the least cost.

An hour has columns x ≥ 0, limits A x ≤ b and workloads, of each of which S x is served. Shares rise by progressive
filling. All workloads of a rank rise from nothing towards their demand at one common share, until a limit stops some of
them. The others rise on, and then the next rank. So the lowest share of a rank is as high as it can be, then the next
lowest, and so on. Whatever is served is served at the least cost, by several costs in order.

This is the parametric dual simplex method. A plan is a basis: the columns that may be above zero, one for each row, and
the amount of each. While shares rise, amounts change in proportion. Where one is used up, the column that adds the
least cost takes its place. Where none can, the workloads that draw on it have reached their highest share. A tableau
has the other columns alone: those of a basis are unit columns, and would take more than half of it.

Which column comes in depends on the basis alone, so hours of the same basis take the step as one. Every figure of an
hour comes from the hour alone: who is solved beside it does not move it by a bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import in_hours
from planner.records import record

_TOLERANCE = 1e-9
"""What rounding may leave of a zero: matrices, costs and right-hand sides are scaled to about 1."""
_MOST_CELLS = 2**21
"""Of the tableaus of hours that are solved at once: 16 MB."""
_STEPS_PER_ROW = 100
"""An hour takes a few; more would be a circle that rounding closed."""


@record
class Programs:
    """Linear programs of one size; an hour belongs to one of them and has right-hand sides of its own."""

    limits: Floats
    """What a unit of each column takes of each limit, shape (limits, columns): in all programs the same."""
    served: Floats
    """What it serves of each workload, at most one, shape (programs, workloads, columns)."""
    costs: Floats
    """Costs of a unit of each column, none below 0, shape (programs, costs in order, columns)."""
    ranks: Ints
    """Rank of each workload from 0 on, shape (workloads,): lower ones rise first."""


def raise_shares(programs: Programs, limits: Floats, demand: Floats, program: Ints) -> Floats:
    """Return the columns of each hour's plan, shape (columns, hours).

    ``limits`` has shape (limits, hours) and ``demand`` (workloads, hours), neither below 0; ``program`` is that of each
    hour.
    """
    start = _start(programs)
    hours = demand.shape[1]
    columns = programs.limits.shape[1]
    # Nothing is served at first, and every limit is free.
    amounts = np.concatenate((limits, np.zeros_like(demand)))
    plans = np.zeros((columns + len(amounts), hours))
    batch = max(1, _MOST_CELLS // start.cells[0].size)
    for begin in range(0, hours, batch):
        part = slice(begin, begin + batch)
        rise = _Rise(programs.ranks, start, program[part], amounts[:, part], demand[:, part])
        rise.finish(plans[:, part])
    return plans[:columns]


class _Tableaus(NamedTuple):
    """Tableaus of some bases.

    Rows are limits, workloads and costs. Columns are numbered: first those of the program, then the slack of each
    limit, then one for each workload, which says how each row moves as the workload rises.
    """

    cells: Floats
    """Shape (tableaus, rows and costs, slots and workloads). Slots hold the columns that are not basic. Workloads'
    columns stand behind them: those never become basic again."""
    bases: Ints
    """Basic column of each row, shape (tableaus, rows)."""
    others: Ints
    """Column in each slot, shape (tableaus, slots)."""

    def select(self, places: Ints) -> _Tableaus:
        """Return copies of some of the tableaus, with repetitions."""
        return _Tableaus(self.cells[places], self.bases[places], self.others[places])

    def pivot(self, places: Ints, row: Ints, slot: Ints) -> None:
        """Exchange the basic column of a row and the column of a slot in each of the tableaus at some places."""
        index = np.arange(places.size)
        factors, inverse = _eliminate(self.cells, places, row, slot)
        # The column that was basic was a unit column.
        column = -factors * inverse[:, np.newaxis]
        column[index, row] = inverse
        self.cells[places, :, slot] = column
        leaving = self.bases[places, row]
        self.bases[places, row] = self.others[places, slot]
        self.others[places, slot] = leaving


def _start(programs: Programs) -> _Tableaus:
    """Return a tableau for each program with nothing served."""
    limits, columns = programs.limits.shape
    count = len(programs.costs)
    workloads = programs.ranks.size
    rows = limits + workloads
    cells = np.zeros((count, rows + programs.costs.shape[1], columns + workloads))
    cells[:, :limits, :columns] = programs.limits
    cells[:, limits:rows, :columns] = programs.served
    cells[:, rows:, :columns] = programs.costs
    bases = np.tile(np.arange(columns, columns + rows), (count, 1))
    others = np.tile(np.arange(columns), (count, 1))
    for workload in range(workloads):
        row = limits + workload
        gains = cells[:, row, :columns]
        # Where no column serves a workload, its own stays basic, and it never rises.
        servable = np.flatnonzero((gains > _TOLERANCE).any(axis=1))
        costs = cells[servable, rows:, :columns]
        slot = _cheapest(gains[servable], costs, others[servable])
        cells[servable, row, columns + workload] = 1.0
        _eliminate(cells, servable, np.full(servable.size, row), slot)
        # Its column has a place of its own, so what becomes basic leaves an empty slot.
        cells[servable, :, slot] = 0.0
        bases[servable, row] = others[servable, slot]
    return _Tableaus(cells, bases, others)


class _Rise:
    """Hours whose workloads rise from nothing to their shares."""

    def __init__(
        self, ranks: Ints, tableaus: _Tableaus, tableau: Ints, amounts: Floats, demand: Floats
    ) -> None:
        """Begin with the first rank."""
        self.ranks = ranks
        self.tableaus = tableaus
        """Those that some hour has."""
        self.tableau = tableau
        """That of each hour, shape (hours,)."""
        self.amounts = amounts
        """Of the basic column of each row, shape (rows, hours)."""
        self.demand = demand
        """Shape (workloads, hours)."""
        self.hours = np.arange(tableau.size)
        """Those that still rise."""
        self.rank = np.zeros(tableau.size, dtype=np.intp)
        """The one that rises, shape (hours,)."""
        self.share = np.zeros(tableau.size)
        """Of its demand that it has reached, shape (hours,)."""
        self.slots = tableaus.others.shape[1]
        first_workload_column = self.slots + len(amounts) - ranks.size
        workload_bases = tableaus.bases[:, -ranks.size :]
        self.is_servable = (workload_bases < first_workload_column)[tableau].T
        """Whether any column serves each workload, shape (workloads, hours)."""
        self.is_rising = self.is_servable & (ranks == 0)[:, np.newaxis]

    def finish(self, plans: Floats) -> None:
        """Raise every workload as far as it goes; write the plans, shape (columns of a tableau, hours)."""
        for _ in range(_STEPS_PER_ROW * len(self.amounts)):
            leaving = self._rise_to_limit()
            self._exchange(leaving)
            self._next_rank()
            is_finished = self.rank > self.ranks.max()
            if is_finished.any():
                self._write(plans, np.flatnonzero(is_finished))
                self._continue_with(np.flatnonzero(~is_finished))
            if not self.hours.size:
                return
        # What has risen so far fits, whatever closed the circle.
        self._write(plans, np.arange(self.hours.size))

    def _rise_to_limit(self) -> Ints:
        """Raise shares until a basic column is used up; return its row, or the number of rows at the full share."""
        speed = np.where(self.is_rising, self.demand, 0.0)
        slopes = np.zeros_like(self.amounts)
        for workload in np.flatnonzero(self.is_rising.any(axis=1)):
            column = self.tableaus.cells[:, : len(slopes), self.slots + workload]
            slopes += in_hours(column.T, self.tableau) * speed[workload]
        reach = np.full_like(slopes, np.inf)
        is_falling = slopes < -_TOLERANCE * speed.max(axis=0)
        np.divide(self.amounts, -slopes, out=reach, where=is_falling)
        nearest = reach.min(axis=0)
        step = np.minimum(nearest, 1.0 - self.share)
        slopes *= step
        self.amounts += slopes
        # What rounding leaves below nothing.
        np.maximum(self.amounts, 0.0, out=self.amounts)
        is_full = step < nearest
        self.share = np.where(is_full, 1.0, self.share + step)
        return np.where(is_full, len(slopes), _first_row(reach == nearest))

    def _exchange(self, leaving: Ints) -> None:
        """Replace the basic column of a row in each hour by the cheapest that can; stop workloads where none can."""
        rows = len(self.amounts)
        # Hours of one tableau that change the same row, or none, have one tableau again.
        change = self.tableau * (rows + 1) + leaving
        is_present = np.zeros(len(self.tableaus.cells) * (rows + 1), dtype=np.bool_)
        is_present[change] = True
        source, row = np.divmod(np.flatnonzero(is_present), rows + 1)
        self.tableau = (np.cumsum(is_present) - 1)[change]
        self.tableaus = self.tableaus.select(source)
        cells = self.tableaus.cells
        changed = np.flatnonzero(row < rows)
        row = row[changed]
        gains = -cells[changed, row, : self.slots]
        is_able = (gains > _TOLERANCE).any(axis=1)
        self._stop(leaving, changed[~is_able])
        changed = changed[is_able]
        costs = cells[changed, rows:, : self.slots]
        slot = _cheapest(gains[is_able], costs, self.tableaus.others[changed])
        self.tableaus.pivot(changed, row[is_able], slot)

    def _stop(self, leaving: Ints, stuck: Ints) -> None:
        """Stop the workloads that draw on a row that no column can relieve, in the hours of some tableaus."""
        is_stuck = np.zeros(len(self.tableaus.cells), dtype=np.bool_)
        is_stuck[stuck] = True
        hours = np.flatnonzero(is_stuck[self.tableau])
        slopes = self.tableaus.cells[self.tableau[hours], leaving[hours], self.slots :]
        # Where k workloads make a row fall by more than the tolerance, one does so by more than its k-th part.
        steepest = -_TOLERANCE / self.ranks.size
        is_free = slopes >= steepest
        self.is_rising[:, hours] &= is_free.T

    def _next_rank(self) -> None:
        """Let the next rank rise in hours in which one has reached its shares."""
        is_over = (self.share >= 1.0) | ~self.is_rising.any(axis=0)
        if not is_over.any():
            return
        self.rank = self.rank + is_over
        self.share[is_over] = 0.0
        is_next = self.is_servable & (self.ranks[:, np.newaxis] == self.rank)
        self.is_rising = np.where(is_over, is_next, self.is_rising)

    def _write(self, plans: Floats, places: Ints) -> None:
        """Write the plans of some of the hours."""
        basic_columns = self.tableaus.bases[self.tableau[places]].T
        plans[basic_columns, self.hours[places]] = in_hours(self.amounts, places)

    def _continue_with(self, places: Ints) -> None:
        """Drop all but some of the hours."""
        self.hours = self.hours[places]
        self.tableau = self.tableau[places]
        self.rank = self.rank[places]
        self.share = self.share[places]
        self.amounts = in_hours(self.amounts, places)
        self.demand = in_hours(self.demand, places)
        self.is_servable = self.is_servable[:, places]
        self.is_rising = self.is_rising[:, places]


def _first_row(is_true: Bools) -> Ints:
    """Return the first row in which each column is true, ten times faster than numpy's argmax."""
    rank = np.arange(len(is_true), 0, -1).astype(np.min_scalar_type(len(is_true)))
    highest: Ints = np.max(is_true * rank[:, np.newaxis], axis=0).astype(np.intp)
    return len(is_true) - highest


def _cheapest(gains: Floats, costs: Floats, columns: Ints) -> Ints:
    """Return the slot with a gain that costs least for it, by costs in order, shape (tableaus,).

    ``gains`` has shape (tableaus, slots) and ``costs`` (tableaus, costs, slots); of those that cost the same it is that
    of the first of the ``columns``, shape (tableaus, slots).
    """
    is_candidate = gains > _TOLERANCE
    ratios = costs / np.where(is_candidate, gains, 1.0)[:, np.newaxis]
    for ratio in ratios.transpose(1, 0, 2):
        cost = np.where(is_candidate, ratio, np.inf)
        lowest = cost.min(axis=1, keepdims=True)
        is_candidate = cost <= lowest + _TOLERANCE * (1.0 + np.abs(lowest))
    slot = np.where(is_candidate, columns, np.iinfo(columns.dtype).max).argmin(axis=1)
    return np.asarray(slot, dtype=np.intp)


def _eliminate(cells: Floats, places: Ints, row: Ints, slot: Ints) -> tuple[Floats, Floats]:
    """Clear a column of each of the tableaus at some places but in one row, where it becomes 1.

    Return what stood in the column, shape (some tableaus, rows and costs), and by what its row was multiplied.
    """
    index = np.arange(places.size)
    # Mostly all of them change, and are written where they are.
    is_whole = places.size == len(cells)
    chosen = cells if is_whole else cells[places]
    factors = chosen[index, :, slot]
    pivots = factors[index, row]
    new_row = chosen[index, row] / pivots[:, np.newaxis]
    chosen -= factors[:, :, np.newaxis] * new_row[:, np.newaxis]
    chosen[index, row] = new_row
    if not is_whole:
        cells[places] = chosen
    return factors, 1.0 / pivots
