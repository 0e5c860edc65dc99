"""What accelerators cost on the day they are ordered: quotes that expire, volume tiers.

Hosts, network and storage have prices of their own, in the catalogue or the scenario.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

import numpy as np

from planner.errors import Problem, ScenarioError
from planner.finance import refusals
from planner.finance.cents import cents


class TierRule(StrEnum):
    """Which units of an order a volume discount applies to."""

    WHOLE_ORDER = "whole_order"
    """The tier reached prices every unit."""
    MARGINAL = "marginal"
    """Each tier prices only the units inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscountTier:
    """A discount from a number of units on."""

    minimum_units: int
    """Units in the order from which the discount holds."""
    discount_fraction: float
    """Share taken off the list price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A vendor's price, and the order dates it holds for."""

    name: str
    """Whose quote it is, for error messages and the assumptions table."""
    list_price_usd: float
    """Price of one unit before discount."""
    tiers: tuple[DiscountTier, ...] = ()
    """Volume discounts, by rising number of units."""
    tier_rule: TierRule = TierRule.WHOLE_ORDER
    """Which units a tier prices."""
    valid_from: date | None = None
    """First order date; None for always."""
    valid_until: date | None = None
    """Last order date, included; None for never expiring."""

    def __post_init__(self) -> None:
        """Refuse negative prices, discounts outside 0 to 1, tiers out of order and dates reversed."""
        path = f"quotes[{self.name}]"
        problems = [refusals.not_negative(f"{path}.list_price_usd", self.list_price_usd)]
        minima = [tier.minimum_units for tier in self.tiers]
        if minima != sorted(set(minima)) or any(units < 1 for units in minima):
            message = f"minimum_units must be 1 or more and rise from tier to tier, not {minima}"
            problems.append(Problem(path=f"{path}.tiers", message=message))
        for tier in self.tiers:
            place = f"{path}.tiers[{tier.minimum_units}].discount_fraction"
            problems.append(refusals.fraction(place, tier.discount_fraction))
        if self.valid_from and self.valid_until and self.valid_until < self.valid_from:
            message = f"the quote ends on {self.valid_until}, before it begins on {self.valid_from}"
            problems.append(Problem(path=f"{path}.valid_until", message=message))
        refusals.raise_problems(problems)

    def holds_on(self, order_date: date) -> bool:
        """Return whether an order on this date gets the quoted price."""
        begins = self.valid_from is None or self.valid_from <= order_date
        return begins and (self.valid_until is None or order_date <= self.valid_until)

    def order_cents(self, units: int) -> int:
        """Return what an order of this many units costs, in cents."""
        if units < 0:
            raise ScenarioError(Problem(path=f"quotes[{self.name}]", message=f"cannot order {units} units"))
        edges = np.array([0, *(tier.minimum_units for tier in self.tiers)])
        prices = self.list_price_usd * (1 - np.array([0.0, *(tier.discount_fraction for tier in self.tiers)]))
        if self.tier_rule is TierRule.WHOLE_ORDER:
            reached = int(np.searchsorted(edges, units, side="right")) - 1
            return int(cents(prices[reached] * units))
        # Tier k prices units minimum_k to minimum_(k+1) − 1, counting from one.
        starts = np.maximum(edges, 1)
        ends = np.array([*starts[1:], np.inf])
        inside = np.clip(np.minimum(units + 1, ends) - starts, 0, None)
        return int(cents(float(prices @ inside)))


def choose_quote(quotes: Sequence[Quote], order_date: date) -> Quote:
    """Return the quote for an order date: of those that hold, the one that begins last.

    An expired special offer thus falls back to the standing price list. No quote for a date is an error that
    says which dates the quotes hold for.
    """
    holding = [quote for quote in quotes if quote.holds_on(order_date)]
    if not holding:
        spans = "; ".join(
            f"{quote.name}: {quote.valid_from or 'any time'} to {quote.valid_until or 'any time'}" for quote in quotes
        )
        message = f"no quote holds on the order date {order_date}"
        raise ScenarioError(Problem(path="quotes", message=message, hint=spans or "there are no quotes"))
    return max(holding, key=lambda quote: (quote.valid_from is not None, quote.valid_from or order_date))
