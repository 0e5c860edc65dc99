"""Mixed-integer programs, laid out row by row and solved by HiGHS."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from planner.arrays import Floats

Places = NDArray[np.int64]
_MOST_SOLVING_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a program: least ≤ Σ value·variable ≤ most, entry by entry."""

    row: Places
    column: Places
    value: Floats
    least: Floats
    """Shape (rows,)."""
    most: Floats


def rows_of(
    row: Places, column: Places, value: Floats, *, least: Floats | None = None, most: Floats | None = None
) -> Rows:
    """Return rows that are bounded on one side, or on both."""
    size = most if least is None else least
    assert size is not None
    free = np.full(size.shape, np.inf)
    return Rows(
        row=row,
        column=column,
        value=value,
        least=-free if least is None else least,
        most=free if most is None else most,
    )


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep HiGHS from standard output, to which it now and then writes whatever it is told: --json writes there."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def minimised(cost: Floats, rows: Sequence[Rows], integral: Places, upper: Floats) -> tuple[Floats, float] | None:
    """Return the variables of least cost, from 0 on, and a bound on that cost; None where there are none."""
    starts = np.cumsum([0, *(block.least.size for block in rows)])
    places = np.concatenate([block.row + start for block, start in zip(rows, starts[:-1], strict=True)])
    columns, values = np.concatenate([block.column for block in rows]), np.concatenate([block.value for block in rows])
    matrix = coo_array((values, (places, columns)), shape=(int(starts[-1]), cost.size)).tocsr()
    least, most = np.concatenate([block.least for block in rows]), np.concatenate([block.most for block in rows])
    scale = float(np.abs(cost).max()) or 1.0
    with _silenced():
        solution = milp(
            cost / scale, integrality=integral, bounds=Bounds(0.0, upper),
            constraints=LinearConstraint(matrix, least, most),
            options={"time_limit": _MOST_SOLVING_S, "mip_rel_gap": 1e-3},
        )  # fmt: skip
    if solution.x is None:
        return None
    dual = solution.mip_dual_bound if integral.any() and solution.mip_dual_bound is not None else solution.fun
    return np.asarray(solution.x), float(dual) * scale
