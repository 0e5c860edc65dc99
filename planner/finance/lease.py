"""Finance leases: payments at the end of each month of the lease, what they leave owed, buy-out and leaving early.

A lease of machines that cost C at i = yearly rate / 12 a month over n months, with a share b of C left at the end (the
price of the buy-out), is paid in equal amounts A with C = A·(1 − vⁿ)/i + b·C·vⁿ, v = 1 / (1 + i). Where the machines
are to be bought out the debt is C and its last payment b·C (ASC 842: an option that will be used is part of the
payments); where they go back it is what the payments alone are worth, C·(1 − b·vⁿ), and nothing is left. Either way it
is the annuity of :mod:`planner.finance.loan`. Months are the lease's own: one signed on the 15th pays on the 15th, one
signed on the 31st on the last day of shorter months.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import Cents, Floats
from planner.finance.cents import cents, series_cents, usd, whole_cents
from planner.finance.loan import Amortisation, LoanTerms
from planner.units import MONTHS_PER_YEAR

_SAME_MONTH = 1e-9
"""Month coordinates that differ by less are the same moment; a payment due as a period ends belongs to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """What was agreed with the lessor."""

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
        """The debt on the first day as a share of what the machines cost: 1, or 1 − b·vⁿ where they go back."""
        if self.is_bought:
            return 1.0
        return 1.0 - self.buy_out_fraction * (1.0 + self.rate_per_year / MONTHS_PER_YEAR) ** -self.term_months

    def left_fraction(self) -> Floats:
        """Return the share of the debt that is left after each month, shape (term_months + 1,)."""
        return LoanTerms(
            share_fraction=1.0,
            rate_per_year=self.rate_per_year,
            term_months=self.term_months,
            grace_months=0,
            amortisation=Amortisation.ANNUITY,
            fee_fraction=0.0,
            least_cover_ratio=None,
            balloon_fraction=self.buy_out_fraction if self.is_bought else 0.0,
        ).left_fraction()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSchedule:
    """What one lease pays and owes by period, in cents, shape (periods,) each."""

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
    terms: LeaseTerms, owed_cents: int, day_months: Floats, edge_coordinates: Floats, leaves_months: float = np.inf
) -> LeaseSchedule:
    """Return the schedule of a debt, paid off at once where the lessee leaves before its end.

    ``day_months`` are month coordinates of its signing and of each payment, shape (term_months + 1,). Leaving pays what
    is owed, interest since the last payment, and the fee on what is owed.
    """
    left, rate, periods = terms.left_fraction(), terms.rate_per_year / MONTHS_PER_YEAR, edge_coordinates.size - 1
    signed_months, due = float(day_months[0]), day_months[1:]
    balances = whole_cents(owed_cents * left)
    interest_usd = usd(owed_cents) * left[:-1] * rate
    fee = 0
    if leaves_months < due[-1] - _SAME_MONTH:
        regular = int(np.searchsorted(due, leaves_months + _SAME_MONTH))
        since = max(leaves_months - float(day_months[regular]), 0.0)
        due = np.append(due[:regular], leaves_months)
        interest_usd = np.append(interest_usd[:regular], interest_usd[regular] * since)
        fee = int(cents(usd(balances[regular]) * terms.exit_fee_fraction))
        balances = np.append(balances[: regular + 1], 0)
    principal, interest = -np.diff(balances), series_cents(interest_usd)
    period = np.searchsorted(edge_coordinates, due - _SAME_MONTH, side="right") - 1

    def by_period(amounts: Floats | Cents) -> Floats:
        sums = np.bincount(np.minimum(period, periods), weights=amounts, minlength=periods + 1)
        return sums[:periods].astype(np.float64)

    paid, fees = by_period(principal), np.zeros(periods, dtype=np.int64)
    if fee:
        fees[period[-1]] = fee
    all_paid = by_period(principal + interest)
    begun = np.searchsorted(edge_coordinates, signed_months + _SAME_MONTH, side="right") - 1
    return LeaseSchedule(
        principal_cents=whole_cents(paid),
        interest_cents=whole_cents(by_period(interest)),
        balance_cents=np.where(np.arange(periods) >= begun, owed_cents - whole_cents(np.cumsum(paid)), 0),
        exit_fee_cents=fees,
        paid_months=np.divide(
            by_period((principal + interest) * due), all_paid, out=np.full(periods, np.nan), where=all_paid > 0
        ),
        ends=int(min(period[-1], periods)),
    )
