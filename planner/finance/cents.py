"""The one rounding rule: money is written in whole cents, and rounding never accumulates.

**Rule.** An amount becomes money when it is posted. It is then a whole number of cents in a 64-bit integer,
and stays one: every table, total and file is a sum of those integers. Integer addition is exact and does not
depend on order, so every grouping of the ledger has the same sum, and what a spreadsheet adds up from the two
printed decimals is the ledger itself. (Micro-dollars would also add up exactly, but a file printed in cents
would then disagree with its own total.) The largest sum, 2⁶³ cents, is 92 million billion dollars.

**Series.** A monthly series is rounded on its running total: cents[m] = round(S[m]) − round(S[m−1]), with
S[m] = Σ_{k ≤ m} amount[k]. Each month is within one cent of the exact figure, every running total within half
a cent, and a series whose exact total is a whole number of cents sums to it exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.arrays import Floats
from planner.errors import ConservationError

CENTS_PER_USD = 100
HALF_CENT = 0.5 + 1e-6
"""Halves round away from zero, as a spreadsheet's ROUND does; the millionth of a cent keeps a half that a float holds
as 0.4999999999 a half, so that a workbook that repeats the sum finds the same cent."""
MAXIMUM_EXACT_CENTS = 2.0**50
"""Above this a float can no longer round to the cent (11 thousand billion dollars)."""


def cents(amount_usd: ArrayLike) -> NDArray[np.int64]:
    """Round dollars to whole cents, each alone, halves away from zero; shape as given."""
    return whole_cents(np.asarray(amount_usd, dtype=np.float64) * CENTS_PER_USD)


def whole_cents(amount_cents: Floats) -> NDArray[np.int64]:
    """Round fractional cents to whole cents, halves away from zero; shape as given."""
    if amount_cents.size and not np.all(np.abs(amount_cents) < MAXIMUM_EXACT_CENTS):
        msg = "an amount of money is not finite, or too large to hold to the cent"
        raise ConservationError(msg)
    return np.trunc(amount_cents + np.copysign(HALF_CENT, amount_cents)).astype(np.int64)


def series_cents(amount_usd: ArrayLike, *, axis: int = 0) -> NDArray[np.int64]:
    """Round a series of dollars to cents on its running total along ``axis``; shape as given."""
    running = cents(np.cumsum(np.asarray(amount_usd, dtype=np.float64), axis=axis))
    return np.diff(running, axis=axis, prepend=0)


def split_cents(total_cents: NDArray[np.int64], shares: ArrayLike) -> NDArray[np.int64]:
    """Split whole cents by shares that sum to one, losing none; shape (…,) to (…, shares)."""
    edges = np.cumsum(np.asarray(shares, dtype=np.float64), axis=-1)
    if not np.allclose(edges[..., -1], 1.0, rtol=0, atol=1e-9):
        msg = "the shares of a split do not sum to one"
        raise ConservationError(msg)
    totals = np.asarray(total_cents, dtype=np.int64)[..., None]
    running = whole_cents(totals * edges)
    running[..., -1:] = totals
    return np.diff(running, axis=-1, prepend=0)


def usd(amount_cents: ArrayLike) -> Floats:
    """Return dollars, for measures (ratios, discounting); never to be posted again. Shape as given."""
    return np.asarray(amount_cents, dtype=np.float64) / CENTS_PER_USD
