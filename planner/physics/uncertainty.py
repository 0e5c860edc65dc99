"""How far a prediction may be off: spread from cross-validation, at its distance from the measurements.

The log error of a predicted time per token or throughput is normal with the variance

    σ² = σ_setting² + [layout unmeasured]·σ_layout² or [pair unmeasured]·σ_pair²
       + [model unmeasured]·σ_model² + [part unmeasured]·σ_part²

σ_setting is what remains when the pair itself (model, part, engine and precision) was measured in the same layout at
other lengths; the others are what fits without a layout's, a pair's, a model's or a part's rows under an engine miss by
beyond that. A pair without rows has no layout with any: σ_pair holds that too. Everything known
of a model under an engine is shared by all its pairs, so the errors of two predictions are correlated as their shared
terms are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

DENSE, MIXTURE = "dense", "mixture-of-experts"
ANY_LAYOUT = "any"
"""Stands for a replica whose layout is not settled: it has no effect of its own, and a measured layout's doubt."""
NORMAL_90 = 1.6448536269514722
"""A normal variable lies within this many standard deviations of its mean nine times in ten."""


class Groups(NamedTuple):
    """The groups of measurements that a replica belongs to, each with an effect of its own on time per token."""

    model: str
    """Model, engine and kind."""
    part: str
    """Accelerator, engine and kind."""
    campaign: str
    """Model, accelerator, engine, precision and kind: what one series of runs shares."""
    layout: str
    """The campaign's runs in one layout: degrees are tuned, and updated, at different times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviations of ln(measured/predicted) of one architecture class, by what was not measured."""

    setting: float
    layout: float
    pair: float
    model: float
    part: float
    first_token: float
    """Of time to first token, whatever was measured."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What one prediction's error is made of: standard deviations of its independent terms."""

    pair: float
    """Of this pair alone."""
    model: float
    """Shared by all pairs of this model and engine; 0 where that was measured."""
    part: float
    """Shared by all pairs of this part and engine; 0 where that was measured."""
    first_token: float
    is_validated: bool
    """Whether the pair itself was measured."""

    @property
    def sigma(self) -> float:
        """Standard deviation of the log error of time per token and throughput."""
        return float(np.sqrt(self.pair**2 + self.model**2 + self.part**2))

    @property
    def half_width_fraction(self) -> float:
        """Half the 90% interval over the prediction: sinh(1.645·σ)."""
        return float(np.sinh(NORMAL_90 * self.sigma))

    def in_words(self) -> str:
        """Say how the prediction stands to the measurements."""
        start = "validated on this pair" if self.is_validated else "extrapolating"
        return f"{start}, ±{self.half_width_fraction:.0%}"


def doubt_of(
    groups: Groups, spread: Spread, measured: Mapping[str, float], updated: Mapping[str, float] | None = None
) -> Doubt:
    """Return the doubt about a replica of these groups; ``measured`` holds the groups with rows.

    ``updated`` holds the posterior spread of groups that a buyer's own rows updated. A pair among them stands by
    itself: its spread is that of its whole effect, σ² = σ_setting² + σ_posterior².
    """
    updated = updated or {}
    is_validated, is_own = groups.campaign in measured, groups.campaign in updated
    is_laid_out = groups.layout in measured or groups.layout.endswith(ANY_LAYOUT)

    def beyond(group: str, unmeasured: float, known: float = 0.0) -> float:
        return updated.get(group, known if group in measured else unmeasured)

    in_layout = 0.0 if is_laid_out else spread.layout
    return Doubt(
        pair=float(np.hypot(spread.setting, beyond(groups.campaign, spread.pair, in_layout))),
        model=0.0 if is_own else beyond(groups.model, spread.model),
        part=0.0 if is_own else beyond(groups.part, spread.part),
        first_token=spread.first_token,
        is_validated=is_validated,
    )


def interval(predicted: float, sigma: float) -> tuple[float, float]:
    """Return the ends of the 90% interval: predicted·exp(∓1.645·σ)."""
    factor = float(np.exp(NORMAL_90 * sigma))
    return predicted / factor, predicted * factor
