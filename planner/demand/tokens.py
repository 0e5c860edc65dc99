"""How long requests are: lognormal lengths, and request logs as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.errors import ScenarioError

_NORMAL = NormalDist()
Z_P95 = _NORMAL.inv_cdf(0.95)
MAX_P95_TO_MEAN = exp(Z_P95**2 / 2.0)
"""No lognormal has its 95th percentile further above its mean than this, 3.87 times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """Lognormal tokens per request: ln L is normal with mean μ and standard deviation σ."""

    mu: float
    """Mean of the natural logarithm."""
    sigma: float
    """Standard deviation of the natural logarithm."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mu) and 0.0 <= self.sigma < np.inf):
            raise ScenarioError(
                f"a length distribution needs a finite mu and sigma of at least 0, not {self.mu}, {self.sigma}"
            )

    @classmethod
    def from_mean_p95(cls, mean_tokens: float, p95_tokens: float) -> LengthDistribution:
        """Return the lognormal with this mean and 95th percentile.

        ln(p95 / mean) = zσ − σ²/2 with z = 1.645; of its two roots the smaller, σ = z − √(z² − 2 ln(p95 / mean)), is
        taken: the other has σ > 1.645 and is better named by its median.
        """
        _check_positive(mean=mean_tokens, p95=p95_tokens)
        ratio = p95_tokens / mean_tokens
        if not 1.0 <= ratio <= MAX_P95_TO_MEAN:
            raise ScenarioError(
                f"no lognormal has mean {mean_tokens:g} and p95 {p95_tokens:g}: p95 must lie between the mean and "
                f"{MAX_P95_TO_MEAN:.3g} times it, here {mean_tokens:g}..{MAX_P95_TO_MEAN * mean_tokens:.6g}"
            )
        sigma = Z_P95 - sqrt(max(Z_P95**2 - 2.0 * log(ratio), 0.0))
        return cls(mu=log(mean_tokens) - sigma**2 / 2.0, sigma=sigma)

    @property
    def mean_tokens(self) -> float:
        """Return E[L] = exp(μ + σ²/2)."""
        return exp(self.mu + self.sigma**2 / 2.0)

    def quantile(self, probability: float) -> float:
        """Return the length that this fraction of requests does not exceed."""
        return exp(self.mu + self.sigma * _NORMAL.inv_cdf(probability))


def _check_positive(**named: float) -> None:
    """Raise for any number that is not above zero and finite."""
    bad = [f"{name} must be above 0, not {number}" for name, number in named.items() if not 0.0 < number < np.inf]
    if bad:
        raise ScenarioError("tokens: " + "; ".join(bad))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """A request log as arrays of shape (requests,), in order of time."""

    times_s: NDArray[np.float64]
    """Arrival, in seconds since the epoch or since any other moment."""
    input_tokens: NDArray[np.float64]
    """Prompt lengths."""
    output_tokens: NDArray[np.float64]
    """Generated lengths."""
    has_date: bool = False
    """Whether times count from 1970-01-01 UTC, so that the hour of the week is known."""
    one_clock: bool = True
    """False where every client's times start at its own zero: then rates and bursts cannot be seen."""
    cached_tokens: NDArray[np.float64] | None = None
    """Input tokens found in the prefix cache, where the log shows them."""
    clients: NDArray[np.int64] | None = None
    """Client numbers from 0, where the log names clients."""

    @property
    def prefix_cache_hit_fraction(self) -> float | None:
        """Cached ÷ all input tokens, where the log shows it."""
        total = float(self.input_tokens.sum())
        return None if self.cached_tokens is None or total == 0.0 else float(self.cached_tokens.sum()) / total
