"""What owning the fleet costs and earns, each dollar at its time: the flows, and the price at which they pay.

The timing convention is that of :mod:`planner.finance.present_value`: the ledger says how much, the cohorts when.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats, Ints
from planner.finance.accounts import (
    ACCOUNT_CODES,
    CAPEX_ACCOUNTS,
    DATED_ACCOUNTS,
    END_ACCOUNTS,
    LEASE_PAYMENTS,
    NOT_COST_ACCOUNTS,
    Account,
    View,
)
from planner.finance.cents import usd
from planner.finance.ledger import Ledger, view_cents
from planner.finance.present_value import CashFlows, discount_factors, running_months
from planner.finance.tax import TaxRules, assess_usd, tax_years
from planner.finance.unit_costs import levelised_cost
from planner.run.building import building_of
from planner.run.caching import per_run
from planner.run.cohorts import bought_months, leases_of, owned_value_cents, retired_months, tax_base
from planner.run.orders import order_payments
from planner.run.replication import Replication
from planner.units import MILLION


@per_run
def dated_rows(result: Replication) -> tuple[Ints, Floats]:
    """Return the ledger rows that count on a day of their own, and the months from the start to it."""
    ledger, plan = result.ledger, result.plan
    purchases = _rows_of(ledger, CAPEX_ACCOUNTS)
    sales, ends = _rows_of(ledger, (Account.RESALE,)), _rows_of(ledger, END_ACCOUNTS)
    days = [np.zeros(0)]
    if result.cohorts:
        days = [
            bought_months(plan, result.cohorts)[ledger.cohort_index[purchases]],
            retired_months(plan, result.cohorts)[ledger.cohort_index[sales]],
        ]
    kept, (start, *_, end) = _rows_of(ledger, (Account.OPENING_VALUE,)), plan.months.edge_coordinates
    days += [np.full(ends.size, end), np.full(kept.size, start)]
    orders = order_payments(plan, result.run.log)
    others = [
        _rows_of(ledger, accounts) for accounts in (LEASE_PAYMENTS, (Account.ORDER_PAID,), (Account.ORDER_SETTLED,))
    ]
    paid, settled = (orders.mean_months(plan, months) for months in (orders.paid_months, orders.settled_months))
    for rows, table in zip(others, (_lease_days(result), paid, settled), strict=True):
        days.append(table[ledger.month_index[rows], ledger.cluster_index[rows]])
    built, building = _rows_of(ledger, (Account.CAPEX_BUILDING,)), building_of(plan)
    days.append(np.full(built.size, building.opened_months if building else 0.0))
    return np.concatenate([purchases, sales, ends, kept, *others, built]), np.concatenate(days) - start


def _lease_days(result: Replication) -> Floats:
    """Return when what lessors are paid in a month is paid, shape (months, clusters): the mean by what is paid."""
    paid, weighted = (np.zeros((result.plan.months.period_count, len(result.plan.clusters))) for _ in range(2))
    for lease in leases_of(result.plan, result.cohorts):
        amount = lease.schedule.principal_cents + lease.schedule.interest_cents
        paid[:, lease.cluster] += amount
        weighted[:, lease.cluster] += np.where(amount, amount * lease.schedule.paid_months, 0.0)
    days: Floats = np.divide(weighted, paid, out=np.zeros_like(paid), where=paid > 0)
    return days


def _rows_of(ledger: Ledger, accounts: tuple[Account, ...]) -> Ints:
    return np.flatnonzero(ledger.rows_with([ACCOUNT_CODES[account] for account in accounts]))


def flows_of(result: Replication, by_account: NDArray[np.int64], view: View) -> CashFlows:
    """Return a view's gains less losses, each at its time, given the ledger by month and account."""
    ledger, edges = result.ledger, result.plan.months.edge_coordinates
    rows, months = dated_rows(result)
    seen = ledger.rows_in(view)[rows]
    return CashFlows(
        running_usd=-usd(view_cents(by_account, view, leave_out=DATED_ACCOUNTS)),
        edge_months=edges - edges[0],
        dated_usd=-usd(ledger.amount_cents[rows[seen]]),
        dated_months=months[seen],
        timing=result.plan.money.capital.timing,
    )


def row_factors(result: Replication) -> Floats:
    """Return the discount factor of each row of the ledger, by the day on which it counts, shape (rows,)."""
    capital, edges = result.plan.money.capital, result.plan.months.edge_coordinates
    running = discount_factors(capital.discount_rate_per_year, running_months(edges - edges[0], capital.timing))
    factors = running[result.ledger.month_index]
    dated, months = dated_rows(result)
    factors[dated] = discount_factors(capital.discount_rate_per_year, months)
    return factors


def present_cost_usd(result: Replication, leave_out: tuple[Account, ...] = ()) -> Floats:
    """Return net present cost by cluster, what belongs to the whole site last, shape (clusters + 1,).

    Σ cost·v in the economic view, before income and tax: all that is paid, less what is owned on the last day as if
    sold then, each discounted from its time. Over all columns it is what :class:`Ownership` says at the last month's
    end. ``leave_out`` names accounts that are not wanted.
    """
    ledger = result.ledger
    left_out = [ACCOUNT_CODES[account] for account in (*NOT_COST_ACCOUNTS, *leave_out)]
    rows = ledger.rows_in(View.ECONOMIC) & ~ledger.rows_with(left_out)
    amounts = usd(ledger.amount_cents[rows]) * row_factors(result)[rows]
    by_cluster = np.zeros(len(result.plan.clusters) + 1)
    np.add.at(by_cluster, ledger.cluster_index[rows], amounts)
    return by_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What owning costs up to each month's end, before income, and what tax is due on an income.

    Shape (months, clusters + 1) where not stated; the last column is the fleet, the whole site's costs included.
    """

    cost_pv_usd: Floats
    """Cost paid up to the month's end, less what is owned then as if sold, each discounted from its time."""
    income_usd: Floats
    """Taxable income of the month before any is earned: gains on sales, less costs and tax depreciation."""
    end_gain_usd: Floats
    """What selling all that is owned at the month's end would add to taxable income."""
    running_factors: Floats
    """Discount factors of what runs through a month, shape (months,)."""
    end_factors: Floats
    """Discount factors of the months' ends, shape (months,)."""
    years: NDArray[np.int64]
    """Tax year of each month, shape (months,)."""
    tax: TaxRules | None

    def tax_pv_usd(self, earned_usd: Floats, column: int = -1) -> float:
        """Return the present value of tax when so much is earned in each month and all is sold at their end."""
        if self.tax is None:
            return 0.0
        months = earned_usd.size
        income, years = self.income_usd[:months, column] + earned_usd, self.years[:months]
        due, on_sale = assess_usd(income, years, self.tax, float(self.end_gain_usd[months - 1, column]))
        return float(due @ self.running_factors[:months] + on_sale * self.end_factors[months - 1])

    def value_usd(self, earned_usd: Floats) -> float:
        """Return the owner's net present value when the fleet earns so much in each month, after tax."""
        return float(earned_usd @ self.running_factors - self.cost_pv_usd[-1, -1]) - self.tax_pv_usd(earned_usd)

    def price_usd(self, quantity: Floats, column: int = -1) -> float | None:
        """Return the one price of a quantity of shape (months,) at which the value up to its last month is zero."""
        months = quantity.size
        cost, sold = self.cost_pv_usd[months - 1, column], quantity @ self.running_factors[:months]
        if self.tax is None:
            return levelised_cost(float(cost), float(sold))
        return levelised_cost(float(cost), float(sold), lambda price: self.tax_pv_usd(price * quantity, column))


@per_run
def ownership(result: Replication) -> Ownership:
    """Return what owning costs up to each month's end, by cluster and for the fleet."""
    plan, ledger, capital = result.plan, result.ledger, result.plan.money.capital
    edges = plan.months.edge_coordinates - plan.months.edge_coordinates[0]
    rate, rules, shape = capital.discount_rate_per_year, plan.money.market.tax, (edges.size - 1, len(plan.clusters) + 1)
    running = discount_factors(rate, running_months(edges, capital.timing))
    ends = discount_factors(rate, edges[1:])
    factors = row_factors(result)
    left_out = [ACCOUNT_CODES[account] for account in (*NOT_COST_ACCOUNTS, *END_ACCOUNTS)]
    cost = ledger.rows_in(View.ECONOMIC) & ~ledger.rows_with(left_out)
    expensed = cost & ledger.rows_in(View.ACCRUAL)
    paid, income, owned, gain = (np.zeros(shape) for _ in range(4))
    np.add.at(
        paid, (ledger.month_index[cost], ledger.cluster_index[cost]), usd(ledger.amount_cents[cost]) * factors[cost]
    )
    np.subtract.at(
        income, (ledger.month_index[expensed], ledger.cluster_index[expensed]), usd(ledger.amount_cents[expensed])
    )
    if result.cohorts:
        owner = np.array([cohort.cluster for cohort in result.cohorts])
        np.add.at(owned.T, owner, usd(owned_value_cents(plan, result.cohorts)) * ends)
        for lease in (lease for lease in leases_of(plan, result.cohorts) if lease.terms.is_bought):
            owned[:, lease.cluster] -= usd(lease.schedule.balance_cents) * ends
        if rules is not None:
            base = tax_base(plan, result.cohorts, rules)
            np.add.at(income.T, owner, usd(base.income_cents))
            np.add.at(gain.T, owner, usd(base.end_gain_cents))
    building = building_of(plan)
    if building is not None:
        owned[:, -1] += usd(building.value_cents[1:]) * ends
        if rules is not None:
            income[:, -1] -= usd(building.deduction_cents)
            gain[:, -1] += usd(building.value_cents[1:] - building.basis_cents[1:])
    owned[:, :-1] += usd(order_payments(plan, result.run.log).balance_cents(plan)[1:]) * ends[:, None]
    for table in (paid, income, owned, gain):
        # Until here the last column held what belongs to no cluster.
        table[:, -1] = table.sum(axis=1)
    return Ownership(
        cost_pv_usd=np.cumsum(paid, axis=0) - owned,
        income_usd=income,
        end_gain_usd=gain,
        running_factors=running,
        end_factors=ends,
        years=tax_years(plan.months),
        tax=rules,
    )


def levelised_to_date(owner: Ownership, quantity: Floats) -> Floats:
    """Return the levelised cost of a million of a quantity from the start to each month, shape (months, columns).

    The quantity (tokens) has a column for each cluster and then the fleet. What is owned at a month's end counts as if
    the horizon ended there, so the last month of the fleet is the measure of the whole run. Under tax, each cluster is
    taxed on its own income.
    """
    millions = np.ascontiguousarray(quantity.T) / MILLION
    prices = [
        [owner.price_usd(sold[: month + 1], column) for month in range(sold.size)]
        for column, sold in enumerate(millions)
    ]
    return np.array(prices, dtype=np.float64).T
