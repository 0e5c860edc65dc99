"""Money: depreciation, the price of capital, and people."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.scenario.fields import Fraction, NonNegative
from planner.validation import Strict


class Finance(Strict):
    """How purchases turn into monthly cost."""

    depreciation_months: Annotated[int, Field(ge=1, le=240)] = 36
    """Straight-line book life. Default 36: the horizon of the decision."""
    residual_fraction: Fraction = 0.2
    """Value left at the end of book life, as a share of capital. Default 0.2: middle of public resale figures."""
    discount_rate_per_year: Annotated[float, Field(gt=-1, le=10)] = 0.1
    """Price of capital. Default 0.1: borrowing rates in GPU cloud filings, 7 to 15%."""
    operations_fraction_per_year: NonNegative = 0.05
    """Maintenance and operations a year, as a share of capital. Default 0.05: published TCO models."""
