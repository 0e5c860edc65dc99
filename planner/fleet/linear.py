"""Linear programs that differ in their right-hand sides alone, solved together.

The basis of an optimum stays optimal for every right-hand side that it can carry: B⁻¹b ≥ 0. So one hour is solved by
the simplex method and its basis then serves all hours it fits; the next hour left over gives the next basis. A site's
three years need a handful, where solving hour by hour would need 26,280.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Basis = tuple[int, ...]
_TOLERANCE = 1e-9  # matrices, objectives and right-hand sides are scaled to about 1


def maximise(matrix: Floats, objectives: Floats, limits: Floats, known: list[Basis]) -> Floats:
    """Return x ≥ 0 with A x ≤ b that maximises the first objective, then the second, and so on; shape (n, hours).

    ``matrix`` has shape (m, n), ``objectives`` (levels, n), ``limits`` (m, hours) and holds no negative number, so that
    x = 0 is feasible. ``known`` are bases tried before any is searched for; those found are put at its head.
    """
    rows, columns = matrix.shape
    full = np.hstack((matrix, np.eye(rows)))
    gains = np.zeros((len(objectives), columns + rows))
    gains[:, :columns] = objectives
    solution = np.zeros((columns + rows, limits.shape[1]))
    unsolved = np.arange(limits.shape[1])
    left = limits
    candidates = iter(tuple(known))
    while unsolved.size:
        basis = next(candidates, None)
        searched = basis is None
        if basis is None:
            basis = _simplex(full, gains, left[:, 0])
        inverse = _inverse(full, gains, basis)
        if inverse is None:
            continue
        levels = inverse @ left
        fits = levels.min(axis=0) >= -_TOLERANCE
        if searched:
            known.insert(0, basis)
            fits[0] = True  # but for rounding, which must not keep the search going for ever
        if fits.any():
            solution[np.array(basis)[:, None], unsolved[fits]] = np.maximum(levels[:, fits], 0.0)
            unsolved, left = unsolved[~fits], left[:, ~fits]
    return solution[:columns]


def _rank(gains: Floats) -> Floats:
    """Return for each column a number with the sign of its first gain that is not zero, larger for earlier ones."""
    signs = (gains > _TOLERANCE).astype(np.float64) - (gains < -_TOLERANCE)
    ranks: Floats = 2.0 ** np.arange(len(gains) - 1, -1, -1) @ signs
    return ranks


def _inverse(full: Floats, gains: Floats, basis: Basis) -> Floats | None:
    """Return the inverse of a basis; None where one that other hours left is none here, or not an optimal one."""
    try:
        inverse = np.asarray(np.linalg.inv(full[:, basis]), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    reduced = gains - (gains[:, basis] @ inverse) @ full
    return None if _rank(reduced).max() > 0 else inverse


def _simplex(full: Floats, gains: Floats, limits: Floats) -> Basis:
    """Return an optimal basis of one linear program, from the basis of slacks on: the tableau method.

    The column of the highest objective enters. After many steps it is the first that gains anything, and the first row
    of those that bind leaves: by Bland's rule the search then cannot circle.
    """
    rows, columns = full.shape
    # Rows of the program, then the gains of each objective; the last column is the right-hand side.
    tableau = np.zeros((rows + len(gains), columns + 1))
    tableau[:rows, :-1], tableau[:rows, -1], tableau[rows:, :-1] = full, limits, gains
    basis = list(range(columns - rows, columns))
    steps = 0
    while (rank := _rank(tableau[rows:, :-1])).max() > 0:
        entering = int(rank.argmax()) if steps < 10 * rows else int((rank > 0).argmax())
        column = tableau[:, entering].copy()
        binding = np.flatnonzero(column[:rows] > _TOLERANCE)
        ratios = tableau[binding, -1] / column[binding]
        leaving = int(min(binding[ratios <= ratios.min() + 1e-14], key=basis.__getitem__))
        pivot = tableau[leaving] / column[leaving]
        tableau -= column[:, None] * pivot
        tableau[leaving] = pivot
        np.maximum(tableau[:rows, -1], 0.0, out=tableau[:rows, -1])
        basis[leaving] = entering
        steps += 1
    return tuple(basis)
