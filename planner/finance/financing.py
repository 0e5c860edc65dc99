"""Contract terms with vendors, lessors, lenders and landlords: quotes, rent, loans, leases, yearly costs.

**Quotes.** What accelerators cost on the day they are ordered: quotes that expire, volume tiers. Hosts, network and
storage have prices of their own, in the catalogue or the scenario.

**Rent.** A term signed at time s (in hours from the start) costs p₀·(1 + g)^(s / hours of a year) an hour until it
ends, whatever the market does meanwhile. What is left of it when the machines go is owed in part.

**Loans.** A share of each month's purchases is drawn at the month's end, less a fee F. From the next month on a tranche
P of n months, g of them grace, at i = yearly rate / 12 a month, has left after k months the share f(k) of P:

* grace:     f(k) = 1 for k ≤ g; only interest is paid
* annuity:   f(k) = ((1 + i)^(n − g) − (1 + i)^(k − g)) / ((1 + i)^(n − g) − 1): equal payments
* straight:  f(k) = 1 − (k − g) / (n − g): equal repayments
* bullet:    f(k) = 1 until the last month, which pays it back

Where a share b is to be left at the end (a balloon, or the buy-out of a lease), it is b + (1 − b)·f(k), and the last
month pays b back besides. Month k pays interest i·P·f(k − 1) and repays P·(f(k − 1) − f(k)). Balances are whole cents:
what is repaid sums to P. The fee is interest over the loan's life, by the effective rate e at which all payments are
worth P − F: the loan is shown at c[k] = c[k − 1]·(1 + e) − payment[k], c[0] = P − F (IFRS 9, ASC 835-30-45-1A).

**Finance leases.** A lease of machines that cost C at i = yearly rate / 12 a month over n months, with a share b of C
left at the end (the price of the buy-out), is paid in equal amounts A with C = A·(1 − vⁿ)/i + b·C·vⁿ, v = 1 / (1 + i).
Where the machines are to be bought out the debt is C and its last payment b·C (ASC 842: an option that will be used is
part of the payments); where they go back it is what the payments alone are worth, C·(1 − b·vⁿ), and nothing is left.
Either way it is the annuity of a loan. Months are the lease's own: one signed on the 15th pays on the 15th, one signed
on the 31st on the last day of shorter months.

**Rent as a lease.** Rent for a term of more than a year of identified machines is on the balance sheet (IFRS 16, ASC
842-20). With payments P[k] at the ends of periods with interest g[k], P on the first day having g = 0,

* liability:    L[k − 1] = (L[k] + P[k]) / (1 + g[k]), L[n] = 0; interest I[k] = g[k]·L[k − 1]
* IFRS:         right of use L[0], written off evenly over the term: D[k] = L[0]·share[k]; cost is D + I
* US GAAP:      one even cost S[k] = ΣP·share[k], and the right of use falls by S[k] − I[k]

Initial direct costs are payments on the first day, incentives negative ones. A lease of a year or less is expensed.

**Yearly costs** (people, space, support, licences) are prorated by each period's share of a month, and rise once a year
on the anniversary of the horizon's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from enum import StrEnum
from typing import Literal, NamedTuple

import numpy as np

from planner.arrays import Cents, Floats
from planner.errors import raise_wrong
from planner.finance.ledger import (
    cents,
    series_cents,
    split_cents,
    usd,
    whole_cents,
    zero_cents,
)
from planner.finance.months import MonthGrid
from planner.finance.tariffs import escalation
from planner.records import record
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR


class Books(StrEnum):
    """The accounting standard of the statements."""

    IFRS = "ifrs"
    US_GAAP = "us-gaap"


@record
class DiscountTier:
    """A volume discount from a number of units on."""

    minimum_units: int
    """Units in the order from which the discount holds."""
    discount_fraction: float
    """Share taken off the list price."""


@record
class Quote:
    """A vendor's price, and the order dates for which it is valid."""

    name: str
    """Whose quote it is, for error messages and the assumptions table."""
    list_price_usd: float
    """Price of one unit before discount."""
    tiers: tuple[DiscountTier, ...] = ()
    """Volume discounts, by rising number of units."""
    tier_rule: Literal["whole-order", "marginal"] = "whole-order"
    """Whether the tier reached prices every unit, or each tier those inside it."""
    valid_from: date | None = None
    """First order date; None for always."""
    valid_until: date | None = None
    """Last order date, included; None for never expiring."""

    def __post_init__(self) -> None:
        """Raise an error for unordered tiers or reversed dates."""
        path = f"quotes[{self.name}]"
        minima = [tier.minimum_units for tier in self.tiers]
        # A set, since two tiers from the same number on would both hold.
        is_unordered = minima != sorted(set(minima))
        order = f"minimum_units must be 1 or more and rise from tier to tier, not {minima}"
        dates = f"the quote ends on {self.valid_until}, before it begins on {self.valid_from}"
        is_reversed = bool(
            self.valid_from and self.valid_until and self.valid_until < self.valid_from
        )
        raise_wrong(
            (is_unordered, f"{path}.tiers", order),
            (is_reversed, f"{path}.valid_until", dates),
        )

    def holds_on(self, order_date: date) -> bool:
        """Return whether an order on this date gets the quoted price."""
        has_begun = self.valid_from is None or self.valid_from <= order_date
        has_ended = self.valid_until is not None and self.valid_until < order_date
        return has_begun and not has_ended

    def order_cents(self, units: int) -> int:
        """Return the price of an order of this many units, in cents."""
        # Below the first tier the list price holds.
        minima = [tier.minimum_units for tier in self.tiers]
        fractions = [tier.discount_fraction for tier in self.tiers]
        edges = np.array([0, *minima])
        discounts = np.array([0.0, *fractions])
        prices = self.list_price_usd * (1 - discounts)
        if self.tier_rule == "whole-order":
            tier = np.searchsorted(edges, units, side="right") - 1
            return int(cents(prices[tier] * units))
        # Tier k prices units minimum_k to minimum_(k+1) − 1, counting from one.
        starts = np.maximum(edges, 1)
        ends = np.array([*starts[1:], np.inf])
        tier_ends = np.minimum(units + 1, ends)
        inside = np.clip(tier_ends - starts, 0, None)
        return int(cents(float(prices @ inside)))


def choose_quote(quotes: Sequence[Quote], order_date: date) -> Quote | None:
    """Return the valid quote for an order date that began last; None where none is valid."""

    def precedence(quote: Quote) -> tuple[bool, date]:
        # A quote that always holds gives way to every one that has a first day.
        return quote.valid_from is not None, quote.valid_from or order_date

    holding = [quote for quote in quotes if quote.holds_on(order_date)]
    return max(holding, key=precedence, default=None)


def mean_prices(start_price_usd: float, change_per_year: float, edge_months: Floats) -> Floats:
    """Return the mean of a price over each period: p₀·∫ (1 + c)^(t/12) dt / Δt, from the periods' edges."""
    growth = np.log1p(change_per_year) / MONTHS_PER_YEAR
    step = growth * np.diff(edge_months)
    # (e^s − 1) / s is 1 where nothing changes, and expm1 keeps its digits where little does.
    risen = np.ones_like(step)
    np.divide(np.expm1(step), step, out=risen, where=step != 0)
    opening_prices = start_price_usd * np.exp(growth * edge_months[:-1])
    mean: Floats = opening_prices * risen
    return mean


def term_prices_usd_per_h(
    first_usd_per_h: float, change_per_year: float, signed_h: Floats
) -> Floats:
    """Return the hourly price of each contract term by its signing time, shape (terms,)."""
    return first_usd_per_h * (1.0 + change_per_year) ** (signed_h / HOURS_PER_YEAR)


def mean_price_usd_per_h(edge_h: Floats, term_edge_h: Floats, prices_usd_per_h: Floats) -> Floats:
    """Return the mean hourly price in each month, shape (months,).

    Σ hours of the month in a term · its price / Σ those hours, zero in months before the first term. Terms follow one
    another between ``term_edge_h`` (terms + 1) and reach beyond the horizon.
    """
    low = np.maximum(edge_h[:-1, None], term_edge_h[None, :-1])
    high = np.minimum(edge_h[1:, None], term_edge_h[None, 1:])
    # Below zero for a term that does not touch the month.
    hours = np.maximum(high - low, 0.0)
    total = hours.sum(axis=1)
    mean = np.zeros(total.shape)
    price_hours = hours @ prices_usd_per_h
    np.divide(price_hours, total, out=mean, where=total > 0)
    return mean


def left_of_term_usd(leaves_h: float, term_edge_h: Floats, prices_usd_per_h: Floats) -> float:
    """Return the rent per accelerator from the time of leaving to the end of the current term."""
    term = int(np.searchsorted(term_edge_h, leaves_h, side="right")) - 1
    # On the day of renewal nothing is left: the next term is not signed.
    if leaves_h == term_edge_h[term]:
        return 0.0
    hours_left = term_edge_h[term + 1] - leaves_h
    return float(hours_left * prices_usd_per_h[term])


_STEPS = 60
"""Newton's steps to an effective rate; a few suffice for any fee that is charged."""


class Amortisation(StrEnum):
    """The repayment profile of a loan."""

    ANNUITY = "annuity"
    STRAIGHT = "straight"
    BULLET = "bullet"


@record
class LoanTerms:
    """The terms agreed with the lender."""

    share_fraction: float = 1.0
    """Share of each purchase that is drawn."""
    rate_per_year: float
    """Nominal: a twelfth of it is charged a month."""
    term_months: int
    """Months from draw to the last payment, grace included."""
    grace_months: int = 0
    amortisation: Amortisation = Amortisation.ANNUITY
    fee_fraction: float = 0.0
    """Share of what is drawn that the lender takes at once."""
    least_cover_ratio: float | None = None
    """Covenant: cash for debt service over debt service of a fiscal quarter; None for none."""
    ltv_cap_fraction: float | None = None
    """Covenant: what is owed over what an orderly sale of the machines fetches; None for none."""
    auction_fraction: float = 1.0
    """What an auction fetches, of their value in an orderly sale."""
    undrawn_fee_per_year: float = 0.0
    """Charged monthly on what is yet to be drawn."""
    balloon_fraction: float = 0.0
    """Share of what is drawn that the last payment pays back besides its own part."""

    def left_fraction(self) -> Floats:
        """Return f(0) to f(n), the share of a tranche outstanding after each month, shape (term_months + 1,)."""
        months = np.arange(self.term_months + 1.0)
        paying = self.term_months - self.grace_months
        months_repaid = np.maximum(months - self.grace_months, 0.0)
        rate = self.rate_per_year / MONTHS_PER_YEAR
        if self.amortisation is Amortisation.BULLET:
            outstanding = np.where(months < self.term_months, 1.0, 0.0)
        elif self.amortisation is Amortisation.STRAIGHT or rate == 0:
            outstanding = 1.0 - months_repaid / paying
        else:
            # (1 + i)^m − 1 without the loss of digits that a small rate brings.
            payments = np.append(months_repaid, paying)
            grown = np.expm1(np.log1p(rate) * payments)
            outstanding = 1.0 - grown[:-1] / grown[-1]
        balloon = self.balloon_fraction
        outstanding = balloon + (1.0 - balloon) * outstanding
        # The last payment clears the balloon too.
        outstanding[-1] = 0.0
        return outstanding

    def fee_left_fraction(self) -> Floats:
        """Return the share of a tranche that is fee not yet amortised after each month, shape (term_months + 1,)."""
        outstanding = self.left_fraction()
        months = np.arange(1.0, self.term_months + 1)
        rate = self.rate_per_year / MONTHS_PER_YEAR
        with_interest = outstanding[:-1] * (1.0 + rate)
        paid = with_interest - outstanding[1:]
        # Newton's method from below: what payments are worth is convex in the rate and falls, so no step overshoots.
        for _ in range(_STEPS):
            worth = paid * (1.0 + rate) ** -months
            # The lender pays out what is drawn less the fee, so the payments are worth that at the effective rate.
            excess = worth.sum() - 1.0 + self.fee_fraction
            rate += excess / ((worth @ months) / (1.0 + rate))
        # From the end backwards: the worth of all payments still to come, brought to the month before the next of them.
        worth_from_end = np.cumsum(worth[::-1])
        worth_left = worth_from_end[::-1]
        carried = worth_left * (1.0 + rate) ** (months - 1.0)
        return np.append(outstanding[:-1] - carried, 0.0)


@record
class LoanSchedule:
    """Drawings and payments by month, in cents, shape (months, clusters) each."""

    drawn_cents: Cents
    fee_cents: Cents
    interest_cents: Cents
    repaid_cents: Cents
    balance_cents: Cents
    """Owed at each month's end."""
    fee_left_cents: Cents
    """Of the fees, not yet amortised then."""
    undrawn_fee_cents: Cents
    """Charged in the month on what was yet to be drawn as it began."""


def loan_schedule(terms: LoanTerms, purchases_cents: Cents) -> LoanSchedule:
    """Return the schedule of a loan on purchases of shape (months, clusters)."""
    months = purchases_cents.shape[0]
    tranches = cents(usd(purchases_cents) * terms.share_fraction)
    balance = np.zeros_like(tranches)
    fee_left = np.zeros_like(tranches)
    interest = np.zeros(tranches.shape)
    outstanding = terms.left_fraction()
    fees = terms.fee_left_fraction()
    rate = terms.rate_per_year / MONTHS_PER_YEAR
    for month in np.flatnonzero(tranches.any(axis=1)):
        tranche = tranches[month]
        # A tranche outlives the horizon; only its months inside are in the schedule.
        months_shown = min(months - month, outstanding.size)
        horizon_months = slice(month, month + months_shown)
        balance[horizon_months] += whole_cents(tranche * outstanding[:months_shown, None])
        fee_left[horizon_months] += whole_cents(tranche * fees[:months_shown, None])
        # Interest on what was outstanding a month ago, so none in the month of the draw.
        charged = min(months - month - 1, outstanding.size - 1)
        charged_months = slice(month + 1, month + 1 + charged)
        interest[charged_months] += usd(tranche) * outstanding[:charged, None] * rate
    undrawn = tranches.sum(axis=0) - np.cumsum(tranches, axis=0) + tranches
    undrawn_rate = terms.undrawn_fee_per_year / MONTHS_PER_YEAR
    return LoanSchedule(
        undrawn_fee_cents=series_cents(usd(undrawn) * undrawn_rate),
        drawn_cents=tranches,
        fee_cents=cents(usd(tranches) * terms.fee_fraction),
        interest_cents=series_cents(interest),
        repaid_cents=tranches - np.diff(balance, axis=0, prepend=0),
        balance_cents=balance,
        fee_left_cents=fee_left,
    )


_SAME_MONTH = 1e-9
"""Month coordinates that differ by less are the same moment; a payment due as a period ends belongs to it."""


@record
class LeaseTerms:
    """The terms agreed with the lessor."""

    rate_per_year: float
    """Nominal, implicit in the payments: a twelfth of it is charged a month."""
    term_months: int
    buy_out_fraction: float
    """Share of what the machines cost that the payments leave, due if they are bought out."""
    is_bought: bool
    """Whether they are bought out at the end, or go back."""
    exit_fee_fraction: float
    """Share of what is owed that leaving early costs besides paying it off."""

    @property
    def owed_fraction(self) -> float:
        """The debt on the first day over the machines' cost: 1, or 1 − b·vⁿ where they go back."""
        if self.is_bought:
            return 1.0
        rate = self.rate_per_year / MONTHS_PER_YEAR
        return 1.0 - self.buy_out_fraction * (1.0 + rate) ** -self.term_months

    def left_fraction(self) -> Floats:
        """Return the share of the debt outstanding after each month, shape (term_months + 1,)."""
        balloon = self.buy_out_fraction if self.is_bought else 0.0
        # The lessor is repaid as by an annuity.
        loan = LoanTerms(
            rate_per_year=self.rate_per_year, term_months=self.term_months, balloon_fraction=balloon
        )
        return loan.left_fraction()


@record
class LeaseSchedule:
    """Payments and debt of one lease by period, in cents, shape (periods,) each."""

    principal_cents: Cents
    interest_cents: Cents
    balance_cents: Cents
    """Owed at each period's end."""
    exit_fee_cents: Cents
    paid_months: Floats
    """Month coordinate of the payment, the mean of all in a period by what they pay; NaN without one."""
    ends: int
    """Period in which the last payment falls; the number of periods where that is later."""


def lease_schedule(
    terms: LeaseTerms,
    owed_cents: int,
    day_months: Floats,
    edge_coordinates: Floats,
    leaves_months: float = np.inf,
) -> LeaseSchedule:
    """Return the schedule of a lease, with the debt paid off where the lessee leaves early.

    ``day_months`` are month coordinates of its signing and of each payment, shape (term_months + 1,). Leaving pays what
    is owed, interest since the last payment, and the fee on what is owed.
    """
    outstanding = terms.left_fraction()
    rate = terms.rate_per_year / MONTHS_PER_YEAR
    periods = edge_coordinates.size - 1
    signed_months = float(day_months[0])
    due = day_months[1:]
    balances = whole_cents(owed_cents * outstanding)
    interest_usd = usd(owed_cents) * outstanding[:-1] * rate
    fee = 0
    # The regular payments until leaving, then one that pays off the rest with interest since the last.
    if leaves_months < due[-1] - _SAME_MONTH:
        regular = int(np.searchsorted(due, leaves_months + _SAME_MONTH))
        months_since_payment = max(leaves_months - float(day_months[regular]), 0.0)
        due = np.append(due[:regular], leaves_months)
        interest_since = interest_usd[regular] * months_since_payment
        interest_usd = np.append(interest_usd[:regular], interest_since)
        balance_usd = usd(balances[regular])
        fee = int(cents(balance_usd * terms.exit_fee_fraction))
        balances = np.append(balances[: regular + 1], 0)
    principal = -np.diff(balances)
    interest = series_cents(interest_usd)
    # A hair earlier: a payment on a period's last instant belongs to it.
    period = np.searchsorted(edge_coordinates, due - _SAME_MONTH, side="right") - 1
    # Payments after the horizon fall into one period more, which is cut off.
    place = np.minimum(period, periods)

    def by_period(amounts: Floats | Cents) -> Floats:
        sums = np.bincount(place, weights=amounts, minlength=periods + 1)
        return sums[:periods].astype(np.float64)

    repaid = by_period(principal)
    fees = zero_cents(periods)
    # A fee is only due for leaving within the horizon: nobody leaves after it.
    if fee:
        fees[period[-1]] = fee
    payments = principal + interest
    paid = by_period(payments)
    paid_months = np.full(periods, np.nan)
    weighted_months = by_period(payments * due)
    np.divide(weighted_months, paid, out=paid_months, where=paid > 0)
    first_period = np.searchsorted(edge_coordinates, signed_months + _SAME_MONTH, side="right") - 1
    is_signed = np.arange(periods) >= first_period
    owed_left = owed_cents - whole_cents(np.cumsum(repaid))
    return LeaseSchedule(
        principal_cents=whole_cents(repaid),
        interest_cents=whole_cents(by_period(interest)),
        balance_cents=np.where(is_signed, owed_left, 0),
        exit_fee_cents=fees,
        paid_months=paid_months,
        ends=int(min(period[-1], periods)),
    )


class RightOfUse(NamedTuple):
    """A lease of a term by period, in cents, shape (periods,) each."""

    paid_cents: Cents
    owed_cents: Cents
    """At each period's end, after its payment."""
    asset_cents: Cents
    """Right of use at each period's end."""
    interest_cents: Cents
    cost_cents: Cents
    """Depreciation, or lease cost with interest in it."""


def right_of_use(payments_cents: Cents, growth: Floats, shares: Floats, books: Books) -> RightOfUse:
    """Return what a lease is worth, owes and costs; ``growth`` is the interest of each period before its payment.

    ``shares`` of the term in each period sum to one. All have shape (periods,).
    """
    owed = np.zeros(payments_cents.size + 1)
    # Backwards: what is owed before a payment is what is owed after it and the payment, discounted by its period.
    for period in reversed(range(payments_cents.size)):
        before_payment = owed[period + 1] + payments_cents[period]
        owed[period] = before_payment / (1.0 + growth[period])
    owed_cents = whole_cents(owed)
    opening_cents = owed_cents[0]
    # Of the rounded debt, so that debt, interest and payments tie to the cent.
    interest = np.diff(owed_cents) + payments_cents
    if books is Books.IFRS:
        # The right of use falls evenly, and interest is a cost of its own.
        asset = whole_cents(opening_cents * (1.0 - np.cumsum(shares)))
        cost = -np.diff(asset, prepend=opening_cents)
        used = np.cumsum(cost)
    else:
        cost = split_cents(payments_cents.sum(), shares)
        # A level rent is its own straight line, to the cent: rounding shall not make a difference of it.
        if np.abs(cost - payments_cents).max(initial=0) <= 1:
            cost = payments_cents
        # The cost is level with interest in it, so the right of use falls by the rest.
        used = np.cumsum(cost - interest)
    return RightOfUse(payments_cents, owed_cents[1:], opening_cents - used, interest, cost)


def contracted_kw(used_kw: Floats, term_months: int) -> tuple[Floats, Floats]:
    """Return power newly contracted and power paid by month, shape (months,) each.

    What is used beyond what is paid already is contracted for the term, and then goes on from month to month.
    """
    new_kw = np.zeros(used_kw.shape)
    paid_kw = np.zeros(used_kw.shape)
    contracted = 0.0
    for month, used in enumerate(used_kw.tolist()):
        # The months before are final when a month is looked at: contracts are signed in order of time.
        new_kw[month] = max(used - contracted, 0.0)
        oldest = max(month - term_months + 1, 0)
        # Beyond their terms contracts go on only as far as they are used.
        signed_kw = new_kw[oldest : month + 1].sum()
        contracted = max(used, signed_kw)
        paid_kw[month] = contracted
    return new_kw, paid_kw


def open_shares(days: float, edge_hours: Floats) -> Floats:
    """Return the share of each month's amount that is open at each month's end, if all is paid ``days`` later.

    Shape (ends, months). Amounts run evenly through their month, so open is what ran in the last ``days`` before.
    """
    ends = edge_hours[1:, None]
    open_from = np.maximum(ends - days * HOURS_PER_DAY, edge_hours[:-1])
    open_until = np.minimum(ends, edge_hours[1:])
    # Hours of each month that lie within the days before each month's end, shape (months, months).
    hours = np.maximum(open_until - open_from, 0.0)
    open_share: Floats = hours / np.diff(edge_hours)
    return open_share


def open_cents(amount_cents: Cents, days: float, edge_hours: Floats) -> Cents:
    """Return what is open at each month's end if all is paid ``days`` later; shape (months, columns) both ways."""
    return whole_cents(open_shares(days, edge_hours) @ amount_cents)


def yearly_cost_usd(
    quantity: Floats, unit_usd_per_year: float, grid: MonthGrid, escalator_per_year: float = 0.0
) -> Floats:
    """Return quantity × yearly unit price, by period, shape (periods, clusters) both ways.

    The quantity is the period's average: engineers, support contracts, licensed accelerators, dollars
    insured.
    """
    unit_usd_per_month = unit_usd_per_year / MONTHS_PER_YEAR
    rise = escalation(grid, escalator_per_year)
    per_period = unit_usd_per_month * grid.month_fractions * rise
    return quantity * per_period[:, None]
