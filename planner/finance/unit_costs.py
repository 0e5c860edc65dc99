"""Money per token and per hour: levelised cost, break-even points and margins.

A ratio whose denominator is zero has no value: it is given as None (one figure) or NaN (a series, an empty
cell in the files), never as zero or infinity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.finance import checks
from planner.finance.measures import discount_factors
from planner.units import MILLION, MONTHS_PER_YEAR

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> NDArray[np.float64]:
    """Return numerator / denominator, NaN where the denominator is zero; shapes broadcast."""
    top, bottom = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    quotient = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=quotient, where=bottom != 0)
    return quotient


def usd_per_million_tokens(cost_usd: ArrayLike, tokens: ArrayLike) -> NDArray[np.float64]:
    """Return 10⁶·cost / tokens by period, NaN where no token was served; shapes broadcast."""
    return ratio(cost_usd, tokens) * MILLION


def cumulative_usd_per_million_tokens(cost_usd: ArrayLike, tokens: ArrayLike) -> NDArray[np.float64]:
    """Return 10⁶·Σ cost / Σ tokens from the start up to each period, shape (periods,)."""
    return usd_per_million_tokens(np.cumsum(cost_usd), np.cumsum(tokens))


def levelised_cost(
    annual_rate: float, cost_usd: ArrayLike, quantity: ArrayLike, offset_months: ArrayLike | None = None
) -> float | None:
    """Return Σ cost·v^m / Σ quantity·v^m: the constant price at which the plan's present value is zero.

    The quantity (tokens, hours) is discounted like the dollars it would earn. None where none is produced.
    """
    costs, quantities = np.asarray(cost_usd, dtype=np.float64), np.asarray(quantity, dtype=np.float64)
    months = np.arange(costs.shape[0]) if offset_months is None else offset_months
    factors = discount_factors(annual_rate, months)
    produced = float(quantities @ factors)
    return float(costs @ factors) / produced if produced else None


def break_even_utilisation(
    fixed_cost_usd: float, capacity_quantity: float, price_usd: float, variable_cost_usd: float = 0.0
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


def price_path(start_price_usd: float, annual_decline_fraction: float, offset_months: ArrayLike) -> NDArray[np.float64]:
    """Return a price that falls evenly in ratio: p₀·(1 − d)^(months/12); negative d rises. Shape as given."""
    checks.raise_problems(
        [
            checks.not_negative("api_price_usd_per_million_tokens", start_price_usd),
            checks.annual_rate("annual change of the API price", -annual_decline_fraction),
        ]
    )
    months = np.asarray(offset_months, dtype=np.float64)
    return start_price_usd * (1.0 - annual_decline_fraction) ** (months / MONTHS_PER_YEAR)


def break_even_start_price(
    annual_rate: float, cost_usd: ArrayLike, tokens: ArrayLike, relative_path: ArrayLike
) -> float | None:
    """Return the first-month API price per million tokens at which buying tokens costs the same as owning.

    p* = 10⁶·Σ cost·v^m / Σ tokens·path·v^m, with path the API price relative to its first month: a market
    that falls by 90% a year must start far above the owned levelised cost before owning pays.
    """
    weighted = np.asarray(tokens, dtype=np.float64) * np.asarray(relative_path, dtype=np.float64)
    price = levelised_cost(annual_rate, cost_usd, weighted)
    return None if price is None else price * MILLION


def margin(revenue_usd: ArrayLike, cost_usd: ArrayLike) -> NDArray[np.float64]:
    """Return (revenue − cost) / revenue, NaN without revenue; which costs, the margin's name says. Shapes broadcast."""
    return 1.0 - ratio(cost_usd, revenue_usd)


def per_million_tokens(quantity: ArrayLike, tokens: ArrayLike) -> NDArray[np.float64]:
    """Return any quantity (kWh, kgCO2e) per million tokens, NaN without tokens; shapes broadcast."""
    return ratio(quantity, tokens) * MILLION
