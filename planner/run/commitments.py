"""What signed contracts have yet to be paid for at each fiscal year's end.

A commitment is what a signed contract has yet to be paid for: hardware on order and not delivered, less deposits;
payments of finance leases, of rent for a term and of contracted space to their ends; payments of loans. Nodes that a
rule orders are in none before they are delivered, and a renewal in none before it is signed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import Cents, Floats
from planner.finance.financing import contracted_kw
from planner.finance.ledger import ACCOUNT_CODES, Account, Dimension, cents, usd
from planner.finance.statements import Frequency, fiscal_periods
from planner.run import cohorts as purchases
from planner.run.simulate import RunResult
from planner.units import MONTHS_PER_YEAR

_SAME_MONTH = 1e-9
KINDS = ("hardware on order", "finance leases", "rent", "space", "loans")
"""What is committed."""
SPANS = ("within_1_year_usd", "after_1_to_5_years_usd", "later_usd")
SPAN_ENDS = (12.0, 60.0)
"""Months after a year's end by which the first two are due."""


def contracts(result: RunResult) -> Iterator[tuple[str, float, Floats, Floats]]:
    """Yield kind and signing of each contract, and when its payments are due and how many dollars, (payments,) each.

    Times are month coordinates. What is due after a delivery counts with it.
    """
    plan, power, at = result.plan, result.plan.money.power, result.plan.months.coordinate_of_hour
    edges = plan.months.edge_coordinates
    loan = plan.money.capital.loan
    for purchase in (*result.run.log.purchases, *result.run.log.undelivered):
        cluster = plan.clusters[purchase.cluster]
        if (
            cluster.order is not None
            and np.isfinite(purchase.placed_h)
            and purchase.time_h < cluster.retire_h
        ):
            due_h, parts = np.array(purchases.parts_due(cluster.order, purchase)).T
            signed, *due = at(np.minimum([purchase.placed_h, *due_h], purchase.time_h))
            yield KINDS[0], signed, np.array(due), usd(parts)
    for lease in purchases.leases_of(plan, result.cohorts):
        of = tuple(result.cohorts[row] for row in lease.rows)
        left = lease.terms.left_fraction()
        signed, leaves = at(np.array([of[0].bought_h, plan.clusters[lease.cluster].retire_h]))
        due = signed + np.arange(1, left.size)
        interest = left[:-1] * lease.terms.rate_per_year / MONTHS_PER_YEAR
        paid = left[:-1] - left[1:] + np.where(due <= leaves, interest, 0.0)
        yield KINDS[1], signed, np.minimum(due, leaves), usd(purchases.cost_cents(of).sum()) * paid
    for index, edge_h, rent_usd in purchases.rent_terms(plan):
        cluster = plan.clusters[index]
        months = at(edge_h)
        fee = (
            cluster.rent.exit_usd_per_accelerator
            if cluster.rent and edge_h[-1] == cluster.retire_h
            else 0.0
        )
        fee *= cluster.nodes * cluster.accelerators_per_node
        yield KINDS[2], months[0], np.append(months[1:], months[-1]), np.append(rent_usd, fee)
    used = purchases.provisioned_kw(plan, result.monthly.present_node_h)
    after = np.arange(power.colocation_term_months)
    for signed, kw in zip(edges, contracted_kw(used.sum(axis=1), after.size)[0], strict=False):
        rise = (1.0 + power.colocation_escalator_per_year) ** np.floor(
            (signed - edges[0] + after) / MONTHS_PER_YEAR
        )
        yield KINDS[3], signed, signed + after + 1.0, kw * power.colocation_usd_per_kw_month * rise
    if loan is not None:
        left = loan.left_fraction()
        drawn = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
        paid = left[:-1] * (1.0 + loan.rate_per_year / MONTHS_PER_YEAR) - left[1:]
        for month, amount in enumerate(usd(-drawn[:, ACCOUNT_CODES[Account.LOAN_DRAWN]])):
            yield KINDS[4], edges[month], edges[month + 1] + np.arange(1, left.size), amount * paid


def commitments(result: RunResult) -> dict[str, list[str] | Cents]:
    """One row per fiscal year and kind of contract: what is due after the year's end, by when, in cents."""
    grid = result.plan.months
    capital = result.plan.money.capital
    years = fiscal_periods(grid, capital.fiscal_year_start_month, Frequency.YEAR)
    ends = grid.edge_coordinates[[*[*years.values()][1:], -1]]
    table = np.zeros((len(years), len(KINDS), len(SPANS)))
    for kind, signed, due, amount_usd in contracts(result):
        for year in np.flatnonzero(signed < ends):
            left = due - ends[year] - _SAME_MONTH
            np.add.at(
                table[year, KINDS.index(kind)],
                np.searchsorted(SPAN_ENDS, left[left > 0]),
                amount_usd[left > 0],
            )
    return {
        "period": [year for year in years for _ in KINDS],
        "commitment": [kind for _ in years for kind in KINDS],
        **dict(zip(SPANS, cents(table).reshape(-1, len(SPANS)).T, strict=True)),
    }
