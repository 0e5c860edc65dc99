"""What signed contracts have yet to be paid for at each fiscal year's end.

A commitment is what a signed contract has yet to be paid for: hardware on order and not delivered, less deposits;
payments of finance leases, of rent for a term and of contracted space to their ends; payments of loans. Nodes that a
rule orders are in none before they are delivered, and a renewal in none before it is signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.arrays import Cents, Floats
from planner.finance.accounting import cohorts as purchases
from planner.finance.accounting.booked_run import BookedRun
from planner.finance.accounts import ACCOUNT_CODES, Account
from planner.finance.financing import LoanTerms, contracted_kw
from planner.finance.ledger import Dimension, cents, usd
from planner.finance.statements import Frequency, fiscal_periods
from planner.plan.plan import Plan
from planner.units import MONTHS_PER_YEAR

_SAME_MONTH = 1e-9
KINDS = ("hardware on order", "finance leases", "rent", "space", "loans")
"""What is committed."""
SPANS = ("within_1_year_usd", "after_1_to_5_years_usd", "later_usd")
SPAN_ENDS = (12.0, 60.0)
"""Months after a year's end by which the first two are due."""


class Contract(NamedTuple):
    """A signed contract: its kind, when it was signed, when its payments are due and how many dollars.

    Times are month coordinates; payments have shape (payments,) each.
    """

    kind: str
    signed: float
    due: Floats
    amount_usd: Floats


def contracts(result: BookedRun) -> Iterator[Contract]:
    """Yield every contract that is signed within the horizon. What is due after a delivery counts with it."""
    plan = result.plan
    yield from _orders(result)
    yield from _leases(result)
    yield from _rents(plan)
    yield from _space(result)
    if plan.money.capital.loan is not None:
        yield from _loans(result, plan.money.capital.loan)


def _orders(result: BookedRun) -> Iterator[Contract]:
    plan = result.plan
    log = result.run.log
    for purchase in (*log.purchases, *log.undelivered):
        cluster = plan.clusters[purchase.cluster]
        # What was never ordered (owned already) is no contract, nor what would come after its cluster is gone.
        is_ordered = cluster.order is not None and np.isfinite(purchase.placed_h)
        if cluster.order is not None and is_ordered and purchase.time_h < cluster.retire_h:
            parts_due = purchases.parts_due(cluster.order, purchase)
            due_h, parts = np.array(parts_due).T
            # What is due after a delivery counts with it.
            hours = np.minimum([purchase.placed_h, *due_h], purchase.time_h)
            signed, *due = plan.months.coordinate_of_hour(hours)
            due_months = np.array(due)
            yield Contract("hardware on order", signed, due_months, usd(parts))


def _leases(result: BookedRun) -> Iterator[Contract]:
    plan = result.plan
    for lease in purchases.leases_of(plan, result.cohorts):
        delivery = tuple(result.cohorts[row] for row in lease.rows)
        outstanding = lease.terms.left_fraction()
        cluster = plan.clusters[lease.cluster]
        hours = np.array([delivery[0].bought_h, cluster.retire_h])
        signed, leaves = plan.months.coordinate_of_hour(hours)
        due = signed + np.arange(1, outstanding.size)
        balance = outstanding[:-1]
        principal = balance - outstanding[1:]
        interest = balance * lease.terms.rate_per_year / MONTHS_PER_YEAR
        # A lessee who leaves early pays off the debt that day, and no interest on the rest.
        paid = principal + np.where(due <= leaves, interest, 0.0)
        cost_usd = usd(purchases.cost_cents(delivery).sum())
        due = np.minimum(due, leaves)
        yield Contract("finance leases", signed, due, cost_usd * paid)


def _rents(plan: Plan) -> Iterator[Contract]:
    for index, edge_h, rent_usd in purchases.rent_terms(plan):
        cluster = plan.clusters[index]
        months = plan.months.coordinate_of_hour(edge_h)
        fee = 0.0
        # A fee is for leaving within a term, so it falls with the term that the leaving ends.
        if cluster.rent and edge_h[-1] == cluster.retire_h:
            accelerators = cluster.nodes * cluster.accelerators_per_node
            fee = cluster.rent.exit_usd_per_accelerator * accelerators
        # Each month's rent is due at its end.
        due = np.append(months[1:], months[-1])
        amounts = np.append(rent_usd, fee)
        yield Contract("rent", months[0], due, amounts)


def _space(result: BookedRun) -> Iterator[Contract]:
    power = result.plan.money.power
    edges = result.plan.months.edge_coordinates
    present_kw = purchases.provisioned_kw(result.plan, result.monthly.present_node_h)
    term = np.arange(power.colocation_term_months)
    new_kw, _ = contracted_kw(present_kw.sum(axis=1), term.size)
    # Signed as a month begins: the last edge begins none.
    for signed, kw in zip(edges[:-1], new_kw, strict=True):
        end_months = signed - edges[0] + term
        years = np.floor(end_months / MONTHS_PER_YEAR)
        rise = (1.0 + power.colocation_escalator_per_year) ** years
        rent_usd = kw * power.colocation_usd_per_kw_month * rise
        yield Contract("space", signed, signed + term + 1.0, rent_usd)


def _loans(result: BookedRun, loan: LoanTerms) -> Iterator[Contract]:
    edges = result.plan.months.edge_coordinates
    outstanding = loan.left_fraction()
    totals = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    # Draws are income of the ledger, and so negative.
    drawn_cents = -totals[:, ACCOUNT_CODES[Account.LOAN_DRAWN]]
    growth = 1.0 + loan.rate_per_year / MONTHS_PER_YEAR
    paid = outstanding[:-1] * growth - outstanding[1:]
    for month, amount in enumerate(usd(drawn_cents)):
        # Drawn within the month, and repaid from the end of the next on.
        due = edges[month + 1] + np.arange(1, outstanding.size)
        yield Contract("loans", edges[month], due, amount * paid)


def commitments(result: BookedRun) -> dict[str, list[str] | Cents]:
    """One row per fiscal year and kind of contract: what is due after the year's end, by when, in cents."""
    grid = result.plan.months
    capital = result.plan.money.capital
    years = fiscal_periods(grid, capital.fiscal_year_start_month, Frequency.YEAR)
    # A year ends where the next begins, and the last with the horizon.
    next_starts = [*years.values()][1:]
    ends = grid.edge_coordinates[[*next_starts, -1]]
    shape = (len(years), len(KINDS), len(SPANS))
    table = np.zeros(shape)
    for contract in contracts(result):
        rows = table[:, KINDS.index(contract.kind)]
        for year in np.flatnonzero(contract.signed < ends):
            # What is due as the year ends is no longer open.
            months = contract.due - ends[year] - _SAME_MONTH
            is_open = months > 0
            span = np.searchsorted(SPAN_ENDS, months[is_open])
            amounts = contract.amount_usd[is_open]
            np.add.at(rows[year], span, amounts)
    rows_by_span = cents(table).reshape(-1, len(SPANS))
    by_span = rows_by_span.T
    return {
        "period": np.repeat([*years], len(KINDS)).tolist(),
        "commitment": [*KINDS] * len(years),
        **dict(zip(SPANS, by_span, strict=True)),
    }
