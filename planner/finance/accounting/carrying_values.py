"""What servers are carried at in the books against what they would fetch: where a test for impairment is due.

Servers are accelerators and hosts: of network and storage no resale figure is known. Under IAS 36 and ASC 360 a fall of
the market price below the carrying value is a sign of impairment, not yet a loss: what the machines still earn counts
too. Nothing is written down here.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.finance.accounting import cohorts as purchases
from planner.finance.accounting.booked_run import BookedRun
from planner.finance.depreciation import depreciate
from planner.finance.ledger import cents, usd
from planner.plan.quantities import shares


def carrying_values(result: BookedRun) -> tuple[Floats, Floats]:
    """Return the carrying value of owned servers at each month's end and what they would fetch then, in dollars.

    Shape (months, clusters) each. What is leased is the lessor's, or a right of use, and is left out.
    """
    plan = result.plan
    shape = (plan.months.period_count, len(plan.clusters))
    book_usd = np.zeros(shape)
    market_usd = np.zeros(shape)
    cohorts = tuple(
        cohort for cohort in result.cohorts if plan.clusters[cohort.cluster].lease is None
    )
    if not cohorts:
        return book_usd, market_usd
    schedule = depreciate(purchases.assets_of(plan, cohorts), plan.months.edge_coordinates)
    server_share = shares(purchases.parts_usd(cohorts))[:, : purchases.SERVER_PARTS].sum(axis=1)
    owner = purchases.owners(cohorts)
    carried_usd = usd(schedule.closing_book_cents) * server_share[:, None]
    worth_usd = purchases.resale_usd(plan, cohorts, plan.months.edge_coordinates[None, 1:])
    owned_usd = np.where(purchases.is_owned(plan, cohorts), worth_usd, 0.0)
    # A cluster has many cohorts: each one adds.
    np.add.at(book_usd.T, owner, carried_usd)
    np.add.at(market_usd.T, owner, owned_usd)
    return book_usd, market_usd


def carrying_columns(result: BookedRun) -> dict[str, list[object]]:
    """Return carrying_values.csv by column: a row for each month and cluster with servers of its own, in cents."""
    book_usd, market_usd = carrying_values(result)
    names = [cluster.name for cluster in result.plan.clusters]
    columns: dict[str, list[object]] = {
        "month": [],
        "cluster": [],
        "carrying_value_usd": [],
        "resale_value_usd": [],
        "above_resale_usd": [],
        "impairment_test": [],
    }
    for month, index in np.argwhere((book_usd > 0.0) | (market_usd > 0.0)).tolist():
        book = int(cents(book_usd[month, index]))
        market = int(cents(market_usd[month, index]))
        above = max(book - market, 0)
        row = (result.plan.months.labels[month], names[index], book, market, above)
        cells = (*row, "yes" if above else "no")
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    return columns
