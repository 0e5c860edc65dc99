"""A lender's view of a run: what is owed against what secures it, and what covers it.

With B[k] the loan's balance at the end of month k, V[k] what the machines bought since the start would fetch then, C[k]
the month's cash for debt service (operating cash before interest, after tax), i a twelfth of the loan's rate and M the
month of its last payment:

* LTV[k]            B[k] / V[k]; in an orderly sale V is the resale value, in an auction a share of it
* borrowing base    most that may be owed: LTV cap · V[k]
* DSCR              Σ C / Σ (interest + fees + repayments) of a fiscal quarter
* LLCR[k]           Σ C[j]·(1 + i)^(k − j) over j = k + 1 .. M, over B[k]

Beyond the horizon each month has the mean cash of the last year within it, and B goes on by the schedule. The levered
rate of return is of the plan's own flows and the loan's together; what is still owed is paid off on the last day.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Floats
from planner.finance.accounting import cohorts as purchases
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.accounting.measures import series_of
from planner.finance.accounts import ACCOUNT_CODES, Account
from planner.finance.financing import LoanTerms, contracted_kw, yearly_cost_usd
from planner.finance.ledger import Dimension, usd
from planner.finance.present_value import internal_rate, ratio
from planner.finance.statements import (
    Frequency,
    Statements,
    cover_ratio,
    monthly_statements,
)
from planner.finance.tariffs import demand_charges_of_peaks_usd
from planner.records import record
from planner.units import MONTHS_PER_YEAR

_LOAN_ACCOUNTS = (
    Account.LOAN_DRAWN,
    Account.LOAN_REPAID,
    Account.LOAN_INTEREST,
    Account.LOAN_FEES,
    Account.TAX_ON_INTEREST,
)
"""Accounts through which a loan moves the owner's cash."""


@record
class LenderView:
    """A loan by month, shape (months,) each, and what its covenants come to."""

    balance_usd: Floats
    """Owed at each month's end, fees not taken off."""
    undrawn_usd: Floats
    """To be drawn after each month's end."""
    orderly_usd: Floats
    """What the machines bought since the start would fetch then in an orderly sale."""
    auction_usd: Floats
    """The same in an auction."""
    base_usd: Floats
    """Borrowing base: the cap on LTV, or without one the share that was lent, of the value in an orderly sale."""
    has_cap: bool
    """Whether a cap on LTV is agreed."""
    cash_usd: Floats
    """Cash for debt service of the month."""
    service_usd: Floats
    """Interest, fees on what is undrawn, and repayments of the month."""
    loan_life_cover: Floats
    """Present value of cash to the loan's last payment, over what is owed; NaN where nothing is."""
    quarters: tuple[str, ...]
    quarter_cover: Floats
    """Cash for debt service over debt service, by fiscal quarter, shape (quarters,); NaN where none is due."""
    levered_irr: float | None
    """Of the owner's flows, the loan's included; None where nothing is sold or no single rate is."""

    @property
    def loan_to_value(self) -> Floats:
        """Return what is owed over what an orderly sale fetches; NaN where nothing is owed or fetched."""
        owed = np.where(self.balance_usd > 0.0, self.balance_usd, np.nan)
        return ratio(owed, self.orderly_usd)

    @property
    def is_above_cap(self) -> Bools:
        """Return whether more is owed than the borrowing base, by month; nowhere without a cap."""
        return (self.balance_usd > self.base_usd) & self.has_cap


def statements_by(result: BookedRun, frequency: Frequency) -> Statements:
    """Return the statements of a run by month, fiscal quarter or fiscal year."""
    plan = result.plan
    capital = plan.money.capital
    opening = purchases.opening_of(plan, result.cohorts, result.run.log)
    monthly = monthly_statements(result.ledger, opening, capital.books)
    return monthly.by(frequency, plan.months, capital.fiscal_year_start_month)


@per_run
def lender_view(result: BookedRun) -> LenderView:
    """Return a run as the lender of its loan sees it."""
    plan = result.plan
    loan = plan.money.capital.loan
    assert loan is not None  # asked only of plans with a loan
    accounts = usd(result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT))
    # Draws are income of the ledger, and so negative.
    drawn_usd = -accounts[:, ACCOUNT_CODES[Account.LOAN_DRAWN]]
    repaid_usd = accounts[:, ACCOUNT_CODES[Account.LOAN_REPAID]]
    # To the cent, which sums of floats are not.
    balance_usd: Floats = np.cumsum(drawn_usd - repaid_usd).round(2)
    monthly = statements_by(result, Frequency.MONTH).lines_cents
    cash_usd = usd(monthly["cash_for_debt_service_usd"][:, -1])
    orderly_usd = _collateral_usd(result)
    cap = loan.share_fraction if loan.ltv_cap_fraction is None else loan.ltv_cap_fraction
    quarters = statements_by(result, Frequency.QUARTER)
    return LenderView(
        balance_usd=balance_usd,
        undrawn_usd=drawn_usd.sum() - np.cumsum(drawn_usd),
        orderly_usd=orderly_usd,
        auction_usd=loan.auction_fraction * orderly_usd,
        base_usd=cap * orderly_usd,
        has_cap=loan.ltv_cap_fraction is not None,
        cash_usd=cash_usd,
        service_usd=usd(monthly["debt_service_usd"][:, -1]),
        loan_life_cover=loan_life_cover(loan, drawn_usd, balance_usd, cash_usd),
        quarters=quarters.periods,
        quarter_cover=cover_ratio(quarters)[:, -1],
        levered_irr=_levered_irr(result, accounts, balance_usd[-1]),
    )


def loan_life_cover(
    loan: LoanTerms, drawn_usd: Floats, balance_usd: Floats, cash_usd: Floats
) -> Floats:
    """Return the present value of cash to the loan's last payment over its balance, by month, shape (months,)."""
    months = cash_usd.size
    cover = np.full(months, np.nan)
    draws = np.flatnonzero(drawn_usd)
    if not draws.size:
        return cover
    last_payment = int(draws[-1]) + loan.term_months
    # Beyond the horizon a month has the mean of the last year within it.
    tail_usd = cash_usd[-MONTHS_PER_YEAR:].mean()
    beyond = np.full(max(last_payment + 1 - months, 0), tail_usd)
    to_maturity = np.concatenate([cash_usd, beyond])[: last_payment + 1]
    growth = 1.0 + loan.rate_per_year / MONTHS_PER_YEAR
    # Backwards: what the cash after a month is worth at its end is the next month's cash and worth, a month earlier.
    worth = 0.0
    for month in reversed(range(to_maturity.size - 1)):
        worth = (worth + to_maturity[month + 1]) / growth
        is_owed = month < months and balance_usd[month] > 0.0
        if is_owed:
            cover[month] = worth / balance_usd[month]
    return cover


def _collateral_usd(result: BookedRun) -> Floats:
    """Return what the machines bought since the start would fetch at each month's end, shape (months,).

    Whatever the plan's end value counts: a lender would sell them.
    """
    plan = result.plan
    bought = [
        cohort
        for cohort in result.cohorts
        if cohort.bought_h >= 0 and plan.clusters[cohort.cluster].lease is None
    ]
    if not bought:
        return np.zeros(plan.months.period_count)
    cohorts = tuple(bought)
    worth_usd = purchases.resale_usd(plan, cohorts, plan.months.edge_coordinates[None, 1:])
    owned_usd = np.where(purchases.is_owned(plan, cohorts), worth_usd, 0.0)
    total: Floats = owned_usd.sum(axis=0)
    return total


def _levered_irr(result: BookedRun, accounts_usd: Floats, owed_usd: float) -> float | None:
    """Return the rate of return on what the owner puts in beside the loan; None where nothing is sold."""
    plan = result.plan
    if plan.money.market.token_price is None:
        return None
    edges = plan.months.edge_coordinates - plan.months.edge_coordinates[0]
    own_usd, own_months = series_of(result).economic.at_their_time()
    codes = [ACCOUNT_CODES[account] for account in _LOAN_ACCOUNTS]
    loan_usd = -accounts_usd[:, codes].sum(axis=1)
    loan_usd[-1] -= owed_usd
    # The lender pays and is paid as months end.
    amounts = np.concatenate([own_usd, loan_usd])
    return internal_rate(amounts, np.concatenate([own_months, edges[1:]]))


def take_or_pay_usd(result: BookedRun) -> tuple[Floats, Floats]:
    """Return what contracted space and power cost by month, used or not, and of it what was not used, shape (months,).

    Space is contracted for its term, power by its minimum take: the demand charge on a share of the contracted kW.
    """
    plan = result.plan
    power = plan.money.power
    kw = purchases.provisioned_kw(plan, result.monthly.present_node_h).sum(axis=1)
    paid_kw = contracted_kw(kw, power.colocation_term_months)[1]
    rent_usd = power.colocation_usd_per_kw_month * MONTHS_PER_YEAR
    rise = power.colocation_escalator_per_year
    space_kw = np.stack([paid_kw, paid_kw - kw], axis=1)
    space_usd = yearly_cost_usd(space_kw, rent_usd, plan.months, rise)
    least_kw = np.full(kw.shape, power.tariff.least_billed_kw)
    peak_kw = result.monthly.peak_facility_kw
    # Measured alone, without the ratchet: what is above the peak is not used.
    plain = replace(power.tariff, demand_ratchet_fraction=0.0, least_billed_kw=0.0)
    unused_kw = np.maximum(least_kw - peak_kw, 0.0)
    take_usd = demand_charges_of_peaks_usd(plain, plan.months, np.stack([least_kw, unused_kw], 1))
    both = space_usd + take_usd
    return both[:, 0], both[:, 1]
