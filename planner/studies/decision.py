"""Which scenario to choose, how likely that is right, and what it costs to be wrong.

Scenarios are compared row by row: row i of both has the same inputs and the same chance, so their difference is what
the choice makes, not what luck makes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.studies.intervals import Estimate, mean_estimate, percentile_estimate, share_estimate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One scenario against another, or against the best of all others."""

    scenario: str
    against: str
    """Empty for all others together."""
    probability_better: Estimate
    mean_difference: Estimate
    """The scenario's headline less the other's."""
    mean_regret: Estimate
    """Mean of what the scenario gives away where the other is better, nothing where it is not."""
    p95_regret: Estimate


def decisions(headline: Floats, names: tuple[str, ...], scramblings: int, *, lower_is_better: bool) -> list[Comparison]:
    """Compare all scenarios; ``headline`` has shape (rows, scenarios), NaN where a run failed."""
    worse = headline if lower_is_better else -headline
    worse = np.where(np.isfinite(worse).all(axis=1, keepdims=True), worse, np.nan)
    found = []
    for one, name in enumerate(names):
        for other, against in enumerate(names):
            if other != one:
                found.append(_compare(name, against, worse[:, one] - worse[:, other], scramblings, lower_is_better))
        if len(names) > 2:
            others = [worse[:, other] for other in range(len(names)) if other != one]
            rest = functools.reduce(np.minimum, others)
            found.append(_compare(name, "", worse[:, one] - rest, scramblings, lower_is_better))
    return found


def _compare(name: str, against: str, excess: Floats, scramblings: int, lower_is_better: bool) -> Comparison:
    """Compare by how much one scenario is worse than the other, row by row."""
    is_better = np.where(np.isnan(excess), np.nan, (excess < 0.0) + 0.5 * (excess == 0.0))
    regret = np.where(np.isnan(excess), np.nan, np.maximum(excess, 0.0))
    return Comparison(
        scenario=name,
        against=against,
        probability_better=share_estimate(is_better, scramblings),
        mean_difference=mean_estimate(excess if lower_is_better else -excess, scramblings),
        mean_regret=mean_estimate(regret, scramblings),
        p95_regret=percentile_estimate(regret, scramblings, 95),
    )
