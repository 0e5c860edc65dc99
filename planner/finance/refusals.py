"""The checks on financial inputs, each with its error message."""

from __future__ import annotations

import math
from collections.abc import Iterable

from planner.errors import Problem, ScenarioError

MAXIMUM_LIFE_MONTHS = 600
"""Fifty years: longer than any building, so a longer life is a slip of the unit (days for months)."""


def raise_problems(problems: Iterable[Problem | None]) -> None:
    """Raise one ScenarioError with all problems, or return when there is none."""
    raised = [problem for problem in problems if problem is not None]
    if raised:
        raise ScenarioError(raised)


def finite(path: str, amount: float) -> Problem | None:
    """Return the problem of a number that is NaN or infinite, or None."""
    if math.isfinite(amount):
        return None
    return Problem(path=path, message=f"{amount} is not a finite number")


def not_negative(path: str, amount: float) -> Problem | None:
    """Return the problem of a price, share or quantity below zero, or None."""
    if math.isfinite(amount) and amount >= 0:
        return None
    return Problem(path=path, message=f"{amount:g} is not allowed; it must be zero or more")


def fraction(path: str, share: float, *, below_one: bool = False) -> Problem | None:
    """Return the problem of a share outside 0 to 1 (1 itself excluded where ``below_one``), or None."""
    if math.isfinite(share) and 0 <= share <= 1 and not (below_one and share == 1):
        return None
    allowed = "at least 0 and below 1" if below_one else "between 0 and 1"
    hint = f"for {share:g} percent write {share / 100:g}" if 1 < share <= 100 else None
    return Problem(path=path, message=f"{share:g} is not allowed; it must be {allowed}", hint=hint)


def annual_rate(path: str, rate: float) -> Problem | None:
    """Return the problem of a yearly rate of change at or below −100%, or None."""
    if math.isfinite(rate) and rate > -1:
        return None
    message = f"a rate of {rate:.6g} a year is not allowed; it must be above -1 (-100%)"
    return Problem(path=path, message=message, hint="write 0.10 for 10% a year")


def life_months(path: str, months: float) -> Problem | None:
    """Return the problem of a depreciation life other than 1 to 600 whole months, or None."""
    if math.isfinite(months) and 1 <= months <= MAXIMUM_LIFE_MONTHS and months == int(months):
        return None
    allowed = f"a whole number from 1 to {MAXIMUM_LIFE_MONTHS}"
    message = f"a depreciation life of {months:g} months is not allowed; it must be {allowed}"
    return Problem(path=path, message=message, hint="36 is the default; 48, 60 and 72 are common")
