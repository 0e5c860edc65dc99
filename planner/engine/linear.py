"""Many small linear programs, solved together by the dual simplex method.

Each hour asks for x ≥ 0 with A x ≤ b ≥ 0 that maximises several objectives, one after the other; hours of one program
differ in b alone. The search begins where some rows are met in full at the least cost, whether or not there is room: a
basis that is optimal but for what it overfills. Each step mends the row that is overfilled most. Which column mends it
at the least loss is a matter of the basis and not of b, so hours at the same basis with the same row to mend take the
step as one. Every figure of an hour comes from the hour alone: who is solved beside it does not move it by a bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import in_hours

_TOLERANCE = 1e-9  # matrices, objectives and right-hand sides are scaled to about 1
_MOST_CELLS = 2**21  # of tableaus held at once: 16 MB
_STEPS_PER_ROW = 100  # a program takes a few; more would be a circle that rounding has closed


def maximise(
    matrices: Floats,
    objectives: Floats,
    met: Sequence[int],
    limits: Floats,
    program: Ints,
    filled: Sequence[tuple[int, int]] = (),
) -> Floats:
    """Return x ≥ 0 with A x ≤ b that maximises the objectives in lexicographic order; shape (n, hours).

    ``matrices`` has shape (programs, m, n), ``objectives`` (programs, levels, n + m) with the slacks of the m rows at
    the end, ``limits`` (m, hours) and holds no negative number; ``program`` is that of each hour. No column has a part
    in two of the rows ``met``, and where these are met in full at the least cost, no column gains anything.

    ``filled`` are rows to fill before those are met, each with a column that nothing but its row holds back and whose
    gain comes after that of all rows met: beginning there saves the steps by which its work would be driven from row to
    row.
    """
    rows, columns = matrices.shape[1:]
    tableaus = np.zeros((len(matrices), rows + objectives.shape[1], columns + rows))
    tableaus[:, :rows, :columns] = matrices
    tableaus[:, rows:] = objectives
    tableaus[:, :rows, columns:] = np.eye(rows)
    bases = np.tile(np.arange(columns, columns + rows), (len(matrices), 1))
    levels = limits.copy()
    for row in set(range(rows)) - set(
        met
    ):  # its slack is there to begin with: what it counts, its columns count
        counted = objectives[:, :, columns + row, None]
        if counted.any():
            tableaus[:, rows:] -= counted * tableaus[:, row, None]
    if filled:
        _fill(tableaus, bases, np.array(filled, dtype=np.intp), levels, program)
    _meet(tableaus, bases, np.array(met, dtype=np.intp), levels, program)
    solution = np.zeros((columns + rows, limits.shape[1]))
    most = max(1, _MOST_CELLS // tableaus[0].size)
    for first in range(0, limits.shape[1], most):
        chunk = slice(first, first + most)
        _mend(tableaus, bases, program[chunk], levels[:, chunk], solution[:, chunk])
    return solution[:columns]


def _fill(tableaus: Floats, bases: Ints, filled: Ints, levels: Floats, program: Ints) -> None:
    """Pivot the columns of ``filled``, shape (rows, 2) of row and column, into the basis.

    No column has a part in two of them, so they can enter all at once.
    """
    rows, columns = filled.T
    amounts = tableaus[:, :, columns]  # shape (programs, m + levels, filled)
    pivots = amounts[:, rows, np.arange(rows.size)]
    new_rows = tableaus[:, rows] / pivots[:, :, None]
    tableaus -= amounts @ new_rows
    tableaus[:, rows] = new_rows
    bases[:, rows] = columns
    for row, pivot, amount in zip(rows.tolist(), pivots.T, amounts.T, strict=True):
        level = levels[row] / pivot.take(program)
        for other in np.flatnonzero(amount[: bases.shape[1]].any(axis=1)).tolist():
            levels[other] -= amount[other].take(program) * level
        levels[row] = level


def _meet(tableaus: Floats, bases: Ints, met: Ints, levels: Floats, program: Ints) -> None:
    """Satisfy some rows in full, each by the column of least cost, or by its slack where no column can."""
    programs = np.arange(len(bases))[:, None]
    rows = bases.shape[1]
    columns = slice(tableaus.shape[2] - rows)
    able = tableaus[:, met, columns] > _TOLERANCE
    entering = _cheapest(tableaus[:, met, columns], tableaus[:, None, rows:, columns], able)
    can = np.asarray(able.any(axis=2))
    amounts = np.where(
        can[:, :, None], tableaus[programs, :, entering], 0.0
    )  # shape (programs, met, m + levels)
    pivots = np.where(
        can, np.take_along_axis(tableaus[:, met], entering[:, :, None], axis=2)[:, :, 0], 1.0
    )
    new_rows = tableaus[:, met] / pivots[:, :, None]
    new_levels = levels[met] / pivots.T[:, program]
    # Each column is met in one row at most, so these sums have one term each and the rows can enter all at once.
    tableaus -= np.einsum("pkr,pkc->prc", amounts, new_rows)
    for row in np.flatnonzero(amounts[:, :, :rows].any(axis=(0, 1))).tolist():
        by = np.flatnonzero(amounts[:, :, row].any(axis=0)).tolist()
        terms = [amounts[:, k, row][program] * new_levels[k] for k in by]
        levels[row] -= sum(terms[1:], start=terms[0])
    tableaus[:, met] = new_rows
    levels[met] = new_levels
    bases[:, met] = np.where(can, entering, bases[:, met])


def _mend(tableaus: Floats, bases: Ints, group: Ints, levels: Floats, solution: Floats) -> None:
    """Take dual simplex steps until every row is feasible; write the solution, shape (n + m, hours).

    ``tableaus`` has shape (groups, m + levels, n + m), ``bases`` (groups, m) and ``levels``, what the basic columns
    come to, (m, hours). Each step makes the objectives of an hour less than they were, so none comes back to a basis.
    """
    rows = bases.shape[1]
    hours = np.arange(group.size)
    for _ in range(_STEPS_PER_ROW * rows):
        least = levels.min(axis=0)
        fits = least >= -_TOLERANCE
        if fits.any():
            fit = np.flatnonzero(fits)
            unfit = np.flatnonzero(~fits)
            solution[bases[group[fit]].T, hours[fit]] = np.maximum(in_hours(levels, fit), 0.0)
            if not unfit.size:
                return
            hours = hours[unfit]
            levels = in_hours(levels, unfit)
            group = group[unfit]
            least = least[unfit]
        leaving = _first(levels == least)
        step = group * rows + leaving
        taken = np.zeros(bases.size, dtype=np.bool_)
        taken[step] = True
        before, row = np.divmod(np.flatnonzero(taken), rows)
        group = (np.cumsum(taken) - 1)[step]
        tableaus = tableaus[before]
        bases = bases[before]
        to_mend = -tableaus[np.arange(row.size), row]
        able = to_mend > _TOLERANCE
        can = np.asarray(able.any(axis=1))
        if not can.all():  # x = 0 fits, so what nothing can mend is overfilled by rounding alone
            stuck = np.flatnonzero(~can[group])
            levels[leaving[stuck], stuck] = 0.0
            continue
        entering = _cheapest(to_mend, tableaus[:, rows:], able)
        levels = _pivot(tableaus, (row, entering), levels, least, group)
        bases[np.arange(row.size), row] = entering
    solution[bases[group].T, hours] = np.maximum(levels, 0.0)


def _first(holds: Bools) -> Ints:
    """Return the first row in which each column is true, ten times faster than numpy's argmax."""
    rank = np.arange(len(holds), 0, -1).astype(np.min_scalar_type(len(holds)))
    highest: Ints = np.max(holds * rank[:, None], axis=0).astype(np.intp)
    return len(holds) - highest


def _cheapest(per_column: Floats, gains: Floats, able: Bools) -> Ints:
    """Return the entering column of least loss per unit among the eligible, by objective in order.

    ``per_column`` is what a unit of a column mends, shape (..., columns), and ``gains`` what it gains, shape (...,
    objectives, columns): a loss in the first objective in which it is not nothing, after which it may be a gain.
    """
    losses = gains / np.where(able, -per_column, -1.0)[..., None, :]
    for level in range(gains.shape[-2]):
        loss = np.where(able, losses[..., level, :], np.inf)
        least = loss.min(axis=-1, keepdims=True)
        able = loss <= least + _TOLERANCE * (1.0 + np.abs(least))
        if np.count_nonzero(able) == able[..., 0].size:
            break
    return np.asarray(able.argmax(axis=-1), dtype=np.intp)


def _pivot(
    tableaus: Floats, place: tuple[Ints, Ints], levels: Floats, leaving: Floats, group: Ints
) -> Floats:
    """Exchange one row's basic column in each tableau; return the new levels, shape (m, hours).

    ``leaving`` is the level of that row in each hour.
    """
    (row, column), program, rows = place, np.arange(len(tableaus)), len(levels)
    amounts = tableaus[program, :, column]
    pivots = amounts[program, row]
    new_row = tableaus[program, row] / pivots[:, None]
    tableaus -= amounts[:, :, None] * new_row[:, None, :]
    tableaus[program, row] = new_row
    hours = np.arange(group.size)
    left = row[group]
    new_level = leaving / pivots[group]
    change = in_hours(amounts.T[:rows], group)
    change *= new_level
    levels = levels - change
    levels[left, hours] = new_level
    return levels
