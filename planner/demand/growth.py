"""How a workload's requests grow over the horizon: a multiplier, 1 at the start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError
from planner.units import HOURS_PER_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class CompoundGrowth:
    """Growth by a constant fraction a year: m(t) = (1 + per_year)^t, t in years."""

    per_year: float
    """Fraction a year; 0.6 is +60% a year, negative shrinks."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.per_year) and self.per_year > -1.0):
            raise ScenarioError(f"growth per_year must be a number above -1, not {self.per_year}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SCurveGrowth:
    """Logistic adoption from 1 towards a ceiling, half of the rise behind at the midpoint.

    m(t) = 1 + (ceiling − 1) (exp(kt) − 1) / (exp(kt) + exp(k t_mid) − 2): the logistic L(t) = 1 / (1 + exp(−k (t − τ)))
    taken from L(0), with exp(kτ) = exp(k t_mid) − 2, so that it is exactly 1 at the start, half up at t_mid and at the
    ceiling in the far future. A midpoint before ln 2 / k is earlier than any logistic of steepness k can be; k is then
    ln 2 / t_mid, at which the S has become an exponential approach.
    """

    ceiling_multiple: float
    """Requests in the far future ÷ requests at the start."""
    midpoint_years: float
    """When half of the rise is behind, in years since start."""
    steepness_per_year: float
    """k: 10–90% of a full logistic takes 4.4 / k years."""

    def __post_init__(self) -> None:
        problems = []
        if not (np.isfinite(self.ceiling_multiple) and self.ceiling_multiple >= 0.0):
            problems.append(f"ceiling_multiple must be a number of at least 0, not {self.ceiling_multiple}")
        if not (np.isfinite(self.midpoint_years) and self.midpoint_years > 0.0):
            problems.append(f"midpoint_years must be above 0, not {self.midpoint_years}")
        if not (np.isfinite(self.steepness_per_year) and self.steepness_per_year > 0.0):
            problems.append(f"steepness_per_year must be above 0, not {self.steepness_per_year}")
        _raise_all("s-curve growth", problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrowth:
    """Jumps on dates: from each step's hour on, its factor is the multiplier (not a product of steps)."""

    steps: tuple[tuple[float, float], ...]
    """(hour since start, multiplier from then on), in any order."""

    def __post_init__(self) -> None:
        hours_h = [hour for hour, _ in self.steps]
        problems = [
            f"step at hour {h}: factor must be at least 0, not {f}" for h, f in self.steps if not 0 <= f < np.inf
        ]
        problems += [f"two steps at hour {hour}" for hour in sorted({h for h in hours_h if hours_h.count(h) > 1})]
        problems += ["a step's hour is not a number"] if not np.all(np.isfinite(hours_h)) else []
        _raise_all("step growth", problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGrowth:
    """A user's own forecast: points joined by straight lines, held level before the first and after the last."""

    hours_h: tuple[float, ...]
    """Hours since start, rising."""
    factors: tuple[float, ...]
    """Multiplier at each."""

    def __post_init__(self) -> None:
        problems = []
        if len(self.hours_h) != len(self.factors) or not self.hours_h:
            problems.append(
                f"needs as many factors as hours, at least one: {len(self.factors)} and {len(self.hours_h)}"
            )
        hours, factors = np.array(self.hours_h, dtype=np.float64), np.array(self.factors, dtype=np.float64)
        falls = np.flatnonzero(~(np.diff(hours) > 0.0))
        problems += [f"row {i + 2}: hour {self.hours_h[i + 1]} does not come after {self.hours_h[i]}" for i in falls]
        bad = np.flatnonzero(~((factors >= 0.0) & (factors < np.inf)))
        problems += [f"row {i + 1}: factor must be at least 0, not {self.factors[i]}" for i in bad]
        _raise_all("growth table", problems)


Growth: TypeAlias = CompoundGrowth | SCurveGrowth | StepGrowth | TableGrowth


def growth_multiplier(growth: Growth, hours_h: ArrayLike) -> Floats:
    """Return the multiplier at times in hours since start, in the shape of ``hours_h``."""
    time_h = np.asarray(hours_h, dtype=np.float64)
    match growth:
        case CompoundGrowth(per_year=per_year):
            return np.asarray(np.exp(np.log1p(per_year) / HOURS_PER_YEAR * time_h), dtype=np.float64)
        case SCurveGrowth():
            return _s_curve(growth, time_h / HOURS_PER_YEAR)
        case StepGrowth(steps=steps):
            ordered = sorted(steps)
            level = np.array([1.0, *(factor for _, factor in ordered)])
            return level[np.searchsorted([hour for hour, _ in ordered], time_h, side="right")]
        case TableGrowth(hours_h=at_h, factors=factors):
            return np.asarray(np.interp(time_h, at_h, factors), dtype=np.float64)


def hourly_growth(growth: Growth, hours: int) -> Floats:
    """Return the multiplier in the middle of each hour, shape (hours,)."""
    if isinstance(growth, CompoundGrowth):  # a day's 24 factors times each day's: exponentials of hours cost the most
        days = growth_multiplier(growth, np.arange(0.0, hours, 24.0))
        return np.outer(days, growth_multiplier(growth, np.arange(24) + 0.5)).reshape(-1)[:hours]
    return growth_multiplier(growth, np.arange(hours) + 0.5)


def _s_curve(growth: SCurveGrowth, time_years: Floats) -> Floats:
    """Return the logistic multiplier.

    What is left of the rise, (exp(k t_mid) − 1) / (exp(k t_mid) − 2 + exp(kt)), with both sides divided by
    exp(k t_mid), so that a steep or late curve does not overflow; beyond exp(700) nothing is left.
    """
    middle = growth.midpoint_years
    k = max(growth.steepness_per_year, math.log(2.0) / middle)
    tail = math.exp(-k * middle)
    left = (1.0 - tail) / (1.0 - 2.0 * tail + np.exp(np.minimum(k * (time_years - middle), 700.0)))
    return np.asarray(1.0 + (growth.ceiling_multiple - 1.0) * (1.0 - left), dtype=np.float64)


def _raise_all(subject: str, problems: list[str]) -> None:
    """Raise every problem found with one kind of growth, if there is any."""
    if problems:
        raise ScenarioError([Problem(path=subject, message=message) for message in problems])
