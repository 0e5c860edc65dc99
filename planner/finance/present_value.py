"""Time value of money, and cost per token and hour: NPV, internal rate, payback, levelised cost, break-evens.

Rates are yearly and effective; a month's rate is (1 + r)^(1/12) − 1, so that twelve monthly steps are the
yearly rate. Flows are gains when positive.

**When a flow counts.** One convention serves every measure. What runs through a month (energy, people, income, tax)
flows evenly and counts at the month's middle; what is bought or sold counts on its day, and what is still owned on the
horizon's last day. Times are month coordinates (:mod:`planner.finance.months`) less that of the first day, so what is
bought on the first day is not discounted. With :attr:`CashFlowTiming.MONTH_END`, what runs through a month is paid on
its last day instead. :class:`CashFlows` holds flows so, and gives NPV, internal rate and payback.

**Ratios.** A ratio whose denominator is zero has no value: it is given as None (one figure) or NaN (a series, an empty
cell in the files), never as zero or infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Floats
from planner.records import record
from planner.units import MILLION, MONTHS_PER_YEAR

HALF_CENT_USD = 0.005
"""A running total less than this below zero is zero: cents are whole, sums of dollars are not."""
SEARCH_POINTS = 4001
"""Rates tried between the two: about 0.7% apart in (1 + r)."""


def discount_factors(annual_rate: float, offset_months: ArrayLike) -> Floats:
    """Return (1 + r)^(−months/12) for flows that many months after the start; shape as given."""
    months = np.asarray(offset_months, dtype=np.float64)
    exponent = -np.log1p(annual_rate) * months / MONTHS_PER_YEAR
    return np.asarray(np.exp(exponent), dtype=np.float64)


def net_present_value(
    annual_rate: float, flows_usd: ArrayLike, offset_months: ArrayLike | None = None
) -> float:
    """Return Σ flow[m]·(1 + r)^(−months[m]/12); months default to 0, 1, 2 and so on."""
    flows = np.asarray(flows_usd, dtype=np.float64)
    if offset_months is None:
        offset_months = np.arange(flows.shape[0])
    return float(flows @ discount_factors(annual_rate, offset_months))


def internal_rate(flows_usd: ArrayLike, offset_months: ArrayLike | None = None) -> float | None:
    """Return the yearly rate at which the NPV of the flows is zero; None where none or several exist.

    Rates from −99.9999% to 10⁸% a year are searched, and the interval in which the value changes sign once more finely.
    """
    flows = np.asarray(flows_usd, dtype=np.float64)
    if offset_months is None:
        offset_months = np.arange(flows.shape[0])
    low = np.log(1e-6)
    high = np.log(1e6)
    # Each turn searches a hundredth of the interval before: six of them reach the last digits of a float.
    for points in (SEARCH_POINTS, *[101] * 6):
        grid = np.linspace(low, high, points)
        # Scaled by the largest discount factor: keeps the sign and cannot overflow at far rates. A row sum,
        # not a matrix product: a product of one row may round otherwise than the same row among many.
        exponent = -np.multiply.outer(grid / MONTHS_PER_YEAR, offset_months)
        largest = exponent.max(axis=-1, keepdims=True)
        discounted = np.exp(exponent - largest) * flows
        value = discounted.sum(axis=-1)
        is_loss = value < 0
        crossed = np.flatnonzero(is_loss[:-1] != is_loss[1:])
        # Several crossings of the coarse grid are several rates, none of which is the rate.
        if points == SEARCH_POINTS and crossed.size != 1:
            return None
        # As close as rounding lets one see.
        if not crossed.size:
            break
        crossing = crossed[0]
        low = grid[crossing]
        high = grid[crossing + 1]
    return float(np.expm1(0.5 * (low + high)))


class CashFlowTiming(StrEnum):
    """The time within a month at which its running flows are discounted."""

    MID_MONTH = "mid_month"
    """It flows evenly, so it counts at the month's middle."""
    MONTH_END = "month_end"
    """It is paid on the month's last day."""


def running_months(edge_months: Floats, timing: CashFlowTiming) -> Floats:
    """Return the discounting time of each period's running flows, from its edges; shape (periods,)."""
    if timing is CashFlowTiming.MONTH_END:
        return edge_months[1:]
    return 0.5 * (edge_months[:-1] + edge_months[1:])


@record
class CashFlows:
    """Net cash flows, running through each month or on a date."""

    running_usd: Floats
    """Of each period, shape (periods,)."""
    edge_months: Floats
    """Months from the start to the periods' boundaries, shape (periods + 1,)."""
    dated_usd: Floats
    """Purchases, sales and end value, shape (dates,)."""
    dated_months: Floats
    """Months from the start to the day of each, shape (dates,)."""
    timing: CashFlowTiming = CashFlowTiming.MID_MONTH

    def __sub__(self, baseline: CashFlows) -> CashFlows:
        """Return these flows less others over the same periods."""
        usd = np.concatenate([self.dated_usd, -baseline.dated_usd])
        months = np.concatenate([self.dated_months, baseline.dated_months])
        return replace(
            self,
            running_usd=self.running_usd - baseline.running_usd,
            dated_usd=usd,
            dated_months=months,
        )

    def at_their_time(self) -> tuple[Floats, Floats]:
        """Return every amount and the month at which it is discounted."""
        running = running_months(self.edge_months, self.timing)
        months = np.concatenate([running, self.dated_months])
        return np.concatenate([self.running_usd, self.dated_usd]), months

    def net_present_value(self, annual_rate: float) -> float:
        """Return Σ flow·(1 + r)^(−months/12)."""
        return net_present_value(annual_rate, *self.at_their_time())

    def internal_rate(self) -> float | None:
        """Return the single rate at which the NPV is zero; None where none or several exist."""
        return internal_rate(*self.at_their_time())

    def payback_months(self, annual_rate: float = 0.0) -> float | None:
        """Return when the running total of discounted flows last turns from loss to gain, in months from the start.

        0 if it is never negative, None if it ends negative. The total is a broken line: it jumps on the day of a dated
        flow and rises or falls evenly through a month (under MONTH_END it jumps at the month's end). A total that
        turns, falls back and turns again pays back at the last turn: only then is the money safe.
        """
        months_through = running_months(self.edge_months, self.timing)
        running = self.running_usd * discount_factors(annual_rate, months_through)
        jump_months = self.dated_months
        jumps = self.dated_usd * discount_factors(annual_rate, self.dated_months)
        running_total = np.concatenate([[0.0], np.cumsum(running)])
        # Paid on the last day, a month's flow is one more jump and nothing runs evenly.
        if self.timing is CashFlowTiming.MONTH_END:
            jump_months = np.concatenate([jump_months, self.edge_months[1:]])
            jumps = np.concatenate([jumps, running])
            running_total = np.zeros_like(running_total)
        moments = np.concatenate([self.edge_months, jump_months])
        # Moments in order, each once, and where each flow falls among them.
        months, moment = np.unique(moments, return_inverse=True)
        jump_moment = moment[self.edge_months.size :]
        jump = np.bincount(jump_moment, weights=jumps, minlength=months.size)
        running_after = np.interp(months, self.edge_months, running_total)
        total_after = running_after + np.cumsum(jump)
        # Each moment twice: before its jump and after it.
        total_before = total_after - jump
        at_dates = np.stack([total_before, total_after], axis=1)
        total = at_dates.ravel()
        months = np.repeat(months, 2)
        # Half a cent of loss is what rounding leaves of nothing.
        negative = np.flatnonzero(total < -HALF_CENT_USD)
        if not negative.size:
            return 0.0
        last_negative = int(negative[-1])
        if last_negative == total.size - 1:
            return None
        # Linear from the last negative point to the next; half a cent below zero may give a share above one.
        rise = total[last_negative + 1] - total[last_negative]
        share = min(-total[last_negative] / rise, 1.0)
        month = months[last_negative]
        next_month = months[last_negative + 1]
        return float(month + share * (next_month - month))


SEARCH_TURNS = 200
"""Turns after which the search for a price ends in any case; five to ten find it."""
RESOLUTION = 1e-14
"""A value of this share of the money turned over is zero: it is what rounding leaves of the sums."""
TINY = 1e-12
"""Smallest first step of that search, in dollars, where a plan costs nothing."""


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """Return numerator / denominator, NaN where the denominator is zero; shapes broadcast."""
    quantity = np.asarray(numerator, dtype=np.float64)
    top, bottom = np.broadcast_arrays(quantity, denominator)
    quotient = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=quotient, where=bottom != 0)
    return quotient


def per_million_tokens(quantity: ArrayLike, tokens: ArrayLike) -> Floats:
    """Return 10⁶·quantity / tokens for dollars, kWh or kgCO2e, NaN where no token was served; shapes broadcast."""
    return ratio(quantity, tokens) * MILLION


def cumulative_per_million_tokens(quantity: ArrayLike, tokens: ArrayLike) -> Floats:
    """Return 10⁶·Σ quantity / Σ tokens from the start up to each period, the first axis."""
    quantity_to_date = np.cumsum(quantity, axis=0)
    tokens_to_date = np.cumsum(tokens, axis=0)
    return per_million_tokens(quantity_to_date, tokens_to_date)


def levelised_cost(
    cost_pv_usd: float, quantity_pv: float, tax_pv_usd: Callable[[float], float] | None = None
) -> float | None:
    """Return the constant price at which the owner's NPV is zero; None where nothing is sold.

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

    tax_at_low = abs(tax_pv_usd(low)) / quantity_pv
    step = max(abs(low), tax_at_low, TINY)
    high = low
    # The bracket doubles its step each time. It ends, since tax takes less than a dollar of each dollar.
    while gain(low) > 0:
        low = low - step
        step = 2 * step
    while gain(high) < 0:
        high = high + step
        step = 2 * step

    def rounding_usd(price: float) -> float:
        return RESOLUTION * (abs(cost_pv_usd) + abs(price * quantity_pv))

    return zero_between(gain, low, high, rounding_usd)


def zero_between(
    gain: Callable[[float], float], low: float, high: float, tolerance: Callable[[float], float]
) -> float:
    """Return where a gain that rises from a loss at ``low`` to a profit at ``high`` is within a tolerance of zero."""
    at_low = gain(low)
    at_high = gain(high)
    side = 0
    for _ in range(SEARCH_TURNS):
        # No chord is left: the bracket is as narrow as floats allow.
        if at_high <= at_low:
            break
        price = low - at_low * (high - low) / (at_high - at_low)
        gained = gain(price)
        if abs(gained) <= tolerance(price):
            return price
        # The chord alone may leave one end of the bracket where it is for ever; its weight is halved while it stays
        # (the Illinois method), so both ends close in.
        if gained > 0:
            high = price
            at_high = gained
            at_low = at_low / (2 if side > 0 else 1)
            side = 1
        else:
            low = price
            at_low = gained
            at_high = at_high / (2 if side < 0 else 1)
            side = -1
    return 0.5 * (low + high)


LEAST_CHANGE = -0.99
"""Yearly change of prices beyond which no break-even is looked for: a hundredth a year later."""
MOST_CHANGE = 10.0
"""The same upwards: eleven times as much a year later, the most that a scenario may state."""


def break_even_change(value_usd: Callable[[float], float]) -> float | None:
    """Return the yearly change of prices at which a value is zero; None where it keeps its sign from −99% to +1,000%.

    The value rises with the change, as what is sold brings more, or falls, as what is bought costs more.
    """
    least = value_usd(LEAST_CHANGE)
    most = value_usd(MOST_CHANGE)
    if not least * most < 0.0:
        return None
    direction = 1.0 if most > 0.0 else -1.0

    def gain(growth: float) -> float:
        return direction * value_usd(float(np.expm1(growth)))

    # By growth rates, ln(1 + c): the value is bent less along them than along the change itself.
    low = float(np.log1p(LEAST_CHANGE))
    high = float(np.log1p(MOST_CHANGE))
    growth = zero_between(gain, low, high, lambda _: HALF_CENT_USD)
    return float(np.expm1(growth))


def break_even_utilisation(
    fixed_cost_usd: float, capacity_quantity: float, price_usd: float, variable_cost_usd: float
) -> float | None:
    """Return the share of capacity that must be sold for revenue to cover cost.

    u* = F / (Q·(p − v)), with F the cost that does not depend on use, Q the quantity at full use, p the price
    and v the variable cost of one unit. Above 1 it cannot be reached. None where a unit sold earns nothing (p
    ≤ v or Q = 0).
    """
    margin = capacity_quantity * (price_usd - variable_cost_usd)
    if margin > 0:
        return fixed_cost_usd / margin
    return None


def margin(revenue_usd: ArrayLike, cost_usd: ArrayLike) -> Floats:
    """Return (revenue − cost) / revenue, NaN without revenue; shapes broadcast."""
    return 1.0 - ratio(cost_usd, revenue_usd)
