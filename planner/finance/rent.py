"""Rent of machines under contract: terms at a fixed price, renewed at the price of the day, and leaving early.

A term signed at time s (in hours from the start) costs p₀·(1 + g)^(s / hours of a year) an hour until it ends, whatever
the market does meanwhile. What is left of it when the machines go is owed in part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.units import HOURS_PER_YEAR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def term_prices_usd_per_h(first_usd_per_h: float, change_per_year: float, signed_h: Floats) -> Floats:
    """Return what an hour costs in each term by when it is signed, shape (terms,)."""
    prices: Floats = first_usd_per_h * (1.0 + change_per_year) ** (signed_h / HOURS_PER_YEAR)
    return prices


def mean_price_usd_per_h(edge_h: Floats, term_edge_h: Floats, prices_usd_per_h: Floats) -> Floats:
    """Return what an hour costs on average in each month, shape (months,).

    Σ hours of the month in a term · its price / Σ those hours, zero in months before the first term. Terms follow one
    another between ``term_edge_h`` (terms + 1) and reach beyond the horizon.
    """
    low = np.maximum(edge_h[:-1, None], term_edge_h[None, :-1])
    high = np.minimum(edge_h[1:, None], term_edge_h[None, 1:])
    hours = np.maximum(high - low, 0.0)
    total = hours.sum(axis=1)
    mean: Floats = np.divide(hours @ prices_usd_per_h, total, out=np.zeros(total.shape), where=total > 0)
    return mean


def left_of_term_usd(leaves_h: float, term_edge_h: Floats, prices_usd_per_h: Floats) -> float:
    """Return the rent from the time of leaving to the end of the term that runs then, for one accelerator."""
    term = int(np.searchsorted(term_edge_h, leaves_h, side="right")) - 1
    if leaves_h == term_edge_h[term]:  # on the day of renewal nothing is left
        return 0.0
    return float((term_edge_h[term + 1] - leaves_h) * prices_usd_per_h[term])
