"""A figure with its uncertainty: P10, P50 and P90."""

from __future__ import annotations

import math

import numpy as np

from planner.catalog.entries import Range
from planner.records import record
from planner.scenario.fields import Spread

_P10_TO_P90 = 2.5631
"""Standard deviations between the tenth and the ninetieth percentile of a normal distribution."""


@record
class ThreePoint:
    """P10, P50 and P90 of a figure, or the lowest, most likely and highest value of a triangular distribution."""

    low: float
    base: float
    high: float

    @classmethod
    def of(cls, stated: Range | Spread | ThreePoint, factor: float = 1.0) -> ThreePoint:
        """Return the figures of a scenario or of the catalogue times a factor, such as a change of unit."""
        return cls(low=stated.low * factor, base=stated.base * factor, high=stated.high * factor)

    def lognormal(self, generator: np.random.Generator) -> float:
        """Draw from the lognormal with this median and this P90 / P10."""
        return self.lognormal_at(generator.standard_normal())

    @property
    def _sigma(self) -> float:
        """Standard deviation of the logarithm; only where the figures are above zero."""
        log_width = math.log(self.high / self.low)
        return log_width / _P10_TO_P90

    @property
    def _normal_sigma(self) -> float:
        """Standard deviation of the normal with this P90 − P10."""
        return (self.high - self.low) / _P10_TO_P90

    @property
    def _reaches_zero(self) -> bool:
        """Whether the figures reach zero, which a lognormal does not."""
        return self.base <= 0 or self.low <= 0

    def lognormal_at(self, z: float) -> float:
        """Return the quantile of that lognormal at a standard normal one; of a normal where the figures reach zero."""
        # A lognormal has no zero: such figures are taken as normal, cut at zero.
        if self._reaches_zero:
            return max(0.0, self.base + self._normal_sigma * z)
        return self.base * math.exp(self._sigma * z)

    @property
    def lognormal_mean(self) -> float:
        """Mean of the lognormal with this median and this P90 / P10: median · exp(σ²/2)."""
        if self._reaches_zero:
            return max(0.0, self.base)
        return self.base * math.exp(0.5 * self._sigma**2)

    def normal(self, generator: np.random.Generator) -> float:
        """Draw from the normal with this median and this P90 − P10."""
        return self.base + self._normal_sigma * generator.standard_normal()

    def triangular(self, generator: np.random.Generator) -> float:
        """Draw from the triangular distribution."""
        # numpy refuses a triangle without width.
        if self.high <= self.low:
            return self.low
        return float(generator.triangular(self.low, self.base, self.high))
