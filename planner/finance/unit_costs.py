"""Money per token and per hour: levelised cost, break-even points and margins.

A ratio whose denominator is zero has no value: it is given as None (one figure) or NaN (a series, an empty
cell in the files), never as zero or infinity.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Floats
from planner.finance import refusals
from planner.units import MILLION, MONTHS_PER_YEAR

SEARCH_TURNS = 200
"""Turns after which the search for a price ends in any case; five to ten find it."""
RESOLUTION = 1e-14
"""A value of this share of the money turned over is zero: it is what rounding leaves of the sums."""
TINY = 1e-12
"""Smallest first step of that search, in dollars, where a plan costs nothing."""


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """Return numerator / denominator, NaN where the denominator is zero; shapes broadcast."""
    top, bottom = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    quotient = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=quotient, where=bottom != 0)
    return quotient


def per_million_tokens(quantity: ArrayLike, tokens: ArrayLike) -> Floats:
    """Return 10⁶·quantity / tokens for dollars, kWh or kgCO2e, NaN where no token was served; shapes broadcast."""
    return ratio(quantity, tokens) * MILLION


def cumulative_per_million_tokens(quantity: ArrayLike, tokens: ArrayLike) -> Floats:
    """Return 10⁶·Σ quantity / Σ tokens from the start up to each period, the first axis."""
    return per_million_tokens(np.cumsum(quantity, axis=0), np.cumsum(tokens, axis=0))


def levelised_cost(
    cost_pv_usd: float, quantity_pv: float, tax_pv_usd: Callable[[float], float] | None = None
) -> float | None:
    """Return the one price p at which selling makes the owner's net present value zero; None where nothing is sold.

        p·Σ quantity·v = Σ cost·v + PV of the tax due when all is sold at p

    The quantity (tokens, hours) is discounted like the dollars it earns. Without tax p is the plain quotient. Tax rises
    by less than a dollar with each dollar of income, so the left side gains on the right as p rises and there is
    one such price. With losses carried forward the tax is bent where a year turns to profit, hence a search along
    the chord between a price that loses and one that gains, exact at once where nothing bends.
    """
    if quantity_pv == 0:
        return None
    low = cost_pv_usd / quantity_pv
    if tax_pv_usd is None:
        return low

    def gain(price: float) -> float:
        return price * quantity_pv - cost_pv_usd - tax_pv_usd(price)

    step = max(abs(low), abs(tax_pv_usd(low)) / quantity_pv, TINY)
    high = low
    while gain(low) > 0:
        low, step = low - step, 2 * step
    while gain(high) < 0:
        high, step = high + step, 2 * step
    at_low, at_high, side = gain(low), gain(high), 0
    for _ in range(SEARCH_TURNS):
        if at_high <= at_low:
            break
        price = low - at_low * (high - low) / (at_high - at_low)
        gained = gain(price)
        if abs(gained) <= RESOLUTION * (abs(cost_pv_usd) + abs(price * quantity_pv)):
            return price
        # The chord alone may leave one end of the bracket where it is for ever; its weight is halved while it stays
        # (the Illinois method), so both ends close in.
        if gained > 0:
            high, at_high, at_low, side = price, gained, at_low / (2 if side > 0 else 1), 1
        else:
            low, at_low, at_high, side = price, gained, at_high / (2 if side < 0 else 1), -1
    return 0.5 * (low + high)


def break_even_utilisation(
    fixed_cost_usd: float, capacity_quantity: float, price_usd: float, variable_cost_usd: float
) -> float | None:
    """Return the share of capacity that must be sold for revenue to cover cost.

    u* = F / (Q·(p − v)), with F the cost that does not depend on use, Q the quantity at full use, p the price
    and v the variable cost of one unit. Above 1 it cannot be reached. None where a unit sold earns nothing (p
    ≤ v or Q = 0).
    """
    margin = capacity_quantity * (price_usd - variable_cost_usd)
    return fixed_cost_usd / margin if margin > 0 else None


def break_even_rental_utilisation(owned_usd_per_available_hour: float, rental_usd_per_hour: float) -> float | None:
    """Return the use above which owning is cheaper than renting by the hour: owned cost per hour / rent.

    Owned hours cost the same used or not, on-demand hours only when used. None where rent is free. Against a
    reserved rental, paid whether used or not, the break-even rent is the owned levelised cost per hour
    itself.
    """
    return owned_usd_per_available_hour / rental_usd_per_hour if rental_usd_per_hour > 0 else None


def price_path(start_price_usd: float, annual_decline_fraction: float, offset_months: ArrayLike) -> Floats:
    """Return a price that falls evenly in ratio: p₀·(1 − d)^(months/12); negative d rises. Shape as given."""
    refusals.raise_problems(
        [
            refusals.not_negative("api_price_usd_per_million_tokens", start_price_usd),
            refusals.annual_rate("annual change of the API price", -annual_decline_fraction),
        ]
    )
    months = np.asarray(offset_months, dtype=np.float64)
    return start_price_usd * (1.0 - annual_decline_fraction) ** (months / MONTHS_PER_YEAR)


def margin(revenue_usd: ArrayLike, cost_usd: ArrayLike) -> Floats:
    """Return (revenue − cost) / revenue, NaN without revenue; which costs, the margin's name says. Shapes broadcast."""
    return 1.0 - ratio(cost_usd, revenue_usd)
