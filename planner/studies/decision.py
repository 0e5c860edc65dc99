"""Which scenario to choose, how likely that is right, and what it costs to be wrong.

Scenarios are compared row by row: row i of both has the same inputs and the same chance, so their difference is what
the choice makes, not what luck makes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.studies.intervals import Estimate, half_width, mean_estimate, percentile_estimate, share_estimate

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


def choice(headline: Floats, *, lower_is_better: bool) -> int:
    """Return the scenario that is best in the mean over the rows that could be run in all; shape (rows, scenarios)."""
    means = headline[np.isfinite(headline).all(axis=1)].mean(axis=0)
    return int(np.argmin(means) if lower_is_better else np.argmax(means))


_DEGREE = 3
"""Of the polynomial by which the difference between scenarios follows what is known: curved, and turning once."""


def worth_of_knowing(known: Floats, headline: Floats, scramblings: int, *, lower_is_better: bool) -> Estimate:
    """Return what knowing one figure before the choice is worth, in the unit of the headline.

    The expected value of partial perfect information, E[max_d E(u_d | θ)] − max_d E(u_d), by regression on the study's
    own rows (Strong, Oakley and Brennan 2014): how far each scenario lies behind the chosen one follows θ, here
    ``known`` of shape (rows,), by a cubic; where it is expected ahead, it is chosen instead. The cubic of each
    randomisation's rows is fitted to the others', so that noise does not pass for knowledge: what is reported was
    gained on rows that the rule had not seen.
    """
    sound = np.isfinite(headline).all(axis=1) & np.isfinite(known)
    fold = (np.arange(len(headline)) % scramblings)[sound]
    worse = (headline if lower_is_better else -headline)[sound]
    if len(np.unique(fold)) < 2 or len(worse) < 4 * (_DEGREE + 1) or np.ptp(known[sound]) == 0.0:
        return Estimate(value=0.0, half_width=float("nan"), completed=len(worse))
    behind = worse - worse[:, [choice(worse, lower_is_better=True)]]
    score = (known[sound] - known[sound].mean()) / known[sound].std()
    basis = np.vander(score, _DEGREE + 1)
    gained = np.zeros(len(worse))
    for each in np.unique(fold):
        own = fold == each
        rule, *_ = np.linalg.lstsq(basis[~own], behind[~own], rcond=None)
        picked = np.argmin(basis[own] @ rule, axis=1)
        gained[own] = -behind[own, picked]
    parts = np.array([gained[fold == each].mean() for each in np.unique(fold)])
    return Estimate(value=max(0.0, float(gained.mean())), half_width=half_width(parts), completed=len(worse))
