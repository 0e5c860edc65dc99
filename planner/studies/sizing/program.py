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

Floats = NDArray[np.float64]
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


def minimised(cost: Floats, rows: Sequence[Rows], whole: Places, upper: Floats) -> tuple[Floats, float] | None:
    """Return the variables of least cost, from 0 on, and a bound on that cost; None where there are none."""
    starts = np.cumsum([0, *(each.least.size for each in rows)])
    places = np.concatenate([each.row + start for each, start in zip(rows, starts[:-1], strict=True)])
    columns, values = np.concatenate([each.column for each in rows]), np.concatenate([each.value for each in rows])
    matrix = coo_array((values, (places, columns)), shape=(int(starts[-1]), cost.size)).tocsr()
    least, most = np.concatenate([each.least for each in rows]), np.concatenate([each.most for each in rows])
    scale = float(np.abs(cost).max()) or 1.0
    with _silenced():
        found = milp(
            cost / scale, integrality=whole, bounds=Bounds(0.0, upper),
            constraints=LinearConstraint(matrix, least, most),
            options={"time_limit": _MOST_SOLVING_S, "mip_rel_gap": 1e-3},
        )  # fmt: skip
    if found.x is None:
        return None
    dual = found.mip_dual_bound if whole.any() and found.mip_dual_bound is not None else found.fun
    return np.asarray(found.x), float(dual) * scale
