"""The present value of even payments in closed form, against which the program's sums are held."""

from __future__ import annotations

import numpy as np


def annuity_factor(rate: float, periods: float) -> float:
    """Return the present value of 1 at the end of each period: (1 − (1 + i)^−n) / i, or n when i = 0."""
    return float(periods) if rate == 0 else float(-np.expm1(-periods * np.log1p(rate)) / rate)
