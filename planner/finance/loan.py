"""A loan on purchases: drawn as hardware is delivered, paid back month by month, held to a covenant.

A share of each month's purchases is drawn at the month's end, less a fee. From the next month on a tranche P of n
months, g of them grace, at i = yearly rate / 12 a month, has left after k months the share f(k) of P:

* grace:     f(k) = 1 for k ≤ g; only interest is paid
* annuity:   f(k) = ((1 + i)^(n − g) − (1 + i)^(k − g)) / ((1 + i)^(n − g) − 1): equal payments
* straight:  f(k) = 1 − (k − g) / (n − g): equal repayments
* bullet:    f(k) = 1 until the last month, which pays it back

Where a share b is to be left at the end (a balloon, or the buy-out of a lease), it is b + (1 − b)·f(k), and the last
month pays b back besides. Month k pays interest i·P·f(k − 1) and repays P·(f(k − 1) − f(k)). Balances are whole cents:
what is repaid sums to P.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from planner.arrays import Cents, Floats
from planner.finance.cents import cents, series_cents, usd, whole_cents
from planner.units import MONTHS_PER_YEAR


class Amortisation(StrEnum):
    """How a loan is paid back."""

    ANNUITY = "annuity"
    STRAIGHT = "straight"
    BULLET = "bullet"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoanTerms:
    """What was agreed with the lender."""

    share_fraction: float
    """Share of each purchase that is drawn."""
    rate_per_year: float
    """Nominal: a twelfth of it is charged a month."""
    term_months: int
    """Months from draw to the last payment, grace included."""
    grace_months: int
    amortisation: Amortisation
    fee_fraction: float
    """Share of what is drawn, kept by the lender at once."""
    least_cover_ratio: float | None
    """Covenant: operating cash flow over debt service of a fiscal quarter; None for none."""
    balloon_fraction: float = 0.0
    """Share of what is drawn that the last payment pays back besides its own part."""

    def left_fraction(self) -> Floats:
        """Return f(0) to f(n), the share of a tranche that is left after each month, shape (term_months + 1,)."""
        left = self.balloon_fraction + (1.0 - self.balloon_fraction) * self._without_balloon()
        left[-1] = 0.0
        return left

    def _without_balloon(self) -> Floats:
        months = np.arange(self.term_months + 1.0)
        paying = self.term_months - self.grace_months
        done = np.maximum(months - self.grace_months, 0.0)
        rate = self.rate_per_year / MONTHS_PER_YEAR
        if self.amortisation is Amortisation.BULLET:
            return np.where(months < self.term_months, 1.0, 0.0)
        if self.amortisation is Amortisation.STRAIGHT or rate == 0:
            return np.asarray(1.0 - done / paying)
        # (1 + i)^m − 1 without the loss of digits that a small rate brings.
        grown: Floats = np.expm1(np.log1p(rate) * np.append(done, paying))
        return np.asarray(1.0 - grown[:-1] / grown[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoanSchedule:
    """What is drawn and paid by month, in cents, shape (months, clusters) each."""

    drawn_cents: Cents
    fee_cents: Cents
    interest_cents: Cents
    repaid_cents: Cents
    balance_cents: Cents
    """Owed at each month's end."""


def loan_schedule(terms: LoanTerms, purchases_cents: Cents) -> LoanSchedule:
    """Return the schedule of a loan on purchases of shape (months, clusters)."""
    months = purchases_cents.shape[0]
    drawn = cents(usd(purchases_cents) * terms.share_fraction)
    fees = cents(usd(drawn) * terms.fee_fraction)
    balance, interest = np.zeros_like(drawn), np.zeros(drawn.shape)
    left, rate = terms.left_fraction(), terms.rate_per_year / MONTHS_PER_YEAR
    for month in np.flatnonzero(drawn.any(axis=1)):
        shown = min(months - month, left.size)
        balance[month : month + shown] += whole_cents(drawn[month] * left[:shown, None])
        charged = min(months - month - 1, left.size - 1)
        interest[month + 1 : month + 1 + charged] += usd(drawn[month]) * left[:charged, None] * rate
    return LoanSchedule(
        drawn_cents=drawn,
        fee_cents=fees,
        interest_cents=series_cents(interest),
        repaid_cents=drawn - np.diff(balance, axis=0, prepend=0),
        balance_cents=balance,
    )
