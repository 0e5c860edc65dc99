"""Bursts inside the hour: the share of requests that miss their objective although the hourly mean fits.

Requests arrive as a Poisson stream whose rate is redrawn every minute. If counts per minute have index of dispersion I
(variance ÷ mean; Poisson: 1), the minute's rate has squared coefficient of variation

    c² = (I − 1) / (60 λ),        λ the mean rate in requests/s,

because Var[count] = 60 λ + (60 λ c)². A minute whose rate is G times the mean (G gamma with mean 1) loads a pool at
utilisation ρ to ρG, at which a share ℓ(ρG) of requests is late without any burst (``planner.physics.promptness``).
Where late requests wait, the hour's share is E[G ℓ(ρG)], weighted by G because requests see their own crowd. Where they
are refused, a pool never lets its queue grow beyond what a request can bear, s, and loses of such a minute the work in
excess of what it serves and of what may wait:

    E[G ℓ(min(ρG, 1)) + max(0, G − (1 + s/60)/ρ)].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.errors import Problem, ScenarioError

DEFAULT_INDEX_OF_DISPERSION = 12.0
"""One-minute index of dispersion at 28–45 requests/s: 11–13 in the public Azure week of 2024 (as published)."""
BURST_S = 60.0
"""The minute over which the index of dispersion is defined and a burst's rate is taken to last."""
_MAX_RATE_CV = 3.0
"""Most variation that Wilson and Hilferty's cube root can carry: beyond it every quadrature point is clipped to zero.
A stream that varies more has less than a request a minute, and no burst of it fills a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstConditions:
    """What decides how a pool stands up to bursts, apart from its utilisation."""

    requests_per_s: float
    """Rate at which the index of dispersion holds; the relative size of bursts is taken from it."""
    slack_s: float
    """Wait a request can bear: the objective less what an empty pool takes."""
    index_of_dispersion: float = DEFAULT_INDEX_OF_DISPERSION
    """Variance ÷ mean of requests per minute."""
    refuses: bool = False
    """Whether requests that would be late are refused at the door."""
    loads: tuple[float, ...] = (0.0, 1.0)
    """Loads over capacity at which the late share without bursts is known, rising."""
    late_fractions: tuple[float, ...] = (0.0, 0.0)
    """That share at each; beyond the last load it stays, and before the first it is the first."""

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 < self.requests_per_s < np.inf:
            problems.append(Problem(path="requests_per_s", message=f"must be above 0, not {self.requests_per_s}"))
        if not 0.0 <= self.slack_s < np.inf:
            problems.append(Problem(path="slack_s", message=f"must be at least 0, not {self.slack_s}"))
        if not 1.0 <= self.index_of_dispersion < np.inf:
            message = f"must be at least 1 (Poisson), not {self.index_of_dispersion}"
            problems.append(Problem(path="burst_index_of_dispersion", message=message))
        if problems:
            raise ScenarioError(problems)

    @property
    def minute_rate_cv(self) -> float:
        """Return c, the coefficient of variation of the rate from minute to minute."""
        return float(np.sqrt((self.index_of_dispersion - 1.0) / (BURST_S * self.requests_per_s)))


def missed_share(conditions: BurstConditions, utilisation: ArrayLike) -> NDArray[np.float64]:
    """Return the share of requests late or refused, in the shape of ``utilisation``: see the module's head."""
    rho = np.clip(np.asarray(utilisation, dtype=np.float64), 1e-9, None)
    rate, weights = _minutes(min(conditions.minute_rate_cv, _MAX_RATE_CV))
    load = rho[..., np.newaxis] * rate
    within = np.minimum(load, 1.0) if conditions.refuses else load
    share = np.interp(within, conditions.loads, conditions.late_fractions)
    if conditions.refuses:
        share = share * within / load + np.maximum(1.0 - (1.0 + conditions.slack_s / BURST_S) / load, 0.0)
    return np.asarray(np.clip((share * rate) @ weights, 0.0, 1.0))


@lru_cache(maxsize=64)
def _minutes(rate_cv: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rates of minutes over the mean, gamma distributed with mean 1, and their weights."""
    if rate_cv == 0.0:
        return np.ones(1), np.ones(1)
    gauss, weights = np.polynomial.hermite_e.hermegauss(48)
    weights = weights / weights.sum()
    rate = np.maximum(1.0 - rate_cv**2 / 9.0 + rate_cv * gauss / 3.0, 1e-9) ** 3  # Wilson and Hilferty's gamma
    return np.asarray(rate / (weights @ rate)), np.asarray(weights)
