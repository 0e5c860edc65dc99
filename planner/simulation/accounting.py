"""From machines and kilowatt-hours to dollars: the only writer of a run's ledger."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.depreciation import capital_charge_usd, depreciate, make_cohorts
from planner.finance.ledger import Ledger, LedgerBuilder, LedgerLabels
from planner.finance.money import cents, series_cents, split_cents
from planner.finance.recurring import colocation_usd, yearly_cost_usd
from planner.fleet.plan import Plan
from planner.units import HOURS_PER_DAY

Floats = NDArray[np.float64]


def write_ledger(plan: Plan, energy_kwh: Floats) -> Ledger:
    """Post every account of a run; ``energy_kwh`` is IT energy, shape (months, clusters)."""
    grid, money, clusters = plan.months, plan.money, plan.clusters
    online = [grid.start + np.timedelta64(int(c.online_h // HOURS_PER_DAY), "D").astype(object) for c in clusters]
    names = tuple(cluster.name for cluster in clusters)
    labels = LedgerLabels(months=grid.labels, clusters=names, cohorts=tuple(f"{n}-1" for n in names))
    builder = LedgerBuilder(labels)
    parts = np.array([cluster.capital_usd for cluster in clusters])
    capital = parts.sum(axis=1)
    cohorts = make_cohorts(
        capital,
        grid.coordinates(online),
        residual_usd=capital * money.residual_fraction,
        life_months=money.depreciation_months,
    )
    schedule = depreciate(cohorts, grid.edge_coordinates)
    own = np.arange(len(clusters))
    entered = schedule.acquired_cents > 0
    for account, amount in zip(CAPEX_ACCOUNTS, split_cents(cents(capital), parts / capital[:, None]).T, strict=True):
        builder.post_cohorts(account, np.where(entered, amount[:, None], 0), own)
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, own)
    charge = capital_charge_usd(schedule, money.discount_rate_per_year)
    builder.post_cohorts(Account.COST_OF_CAPITAL, series_cents(charge, axis=1), own)
    present = _present_fraction(plan)

    def by_month(account: Account, amount_usd: Floats) -> None:
        builder.post_clusters(account, series_cents(amount_usd))

    price = money.electricity_usd_per_kwh
    by_month(Account.ENERGY, energy_kwh * price)
    by_month(Account.COOLING, energy_kwh * (price * (money.pue_ratio - 1.0)))
    provisioned = np.array([cluster.provisioned_kw for cluster in clusters]) * present
    by_month(Account.COLOCATION, colocation_usd(provisioned, money.colocation_usd_per_kw_month, grid, 0.0))
    by_month(Account.MAINTENANCE, yearly_cost_usd(capital * present, money.operations_fraction_per_year, grid))
    engineers = np.array([cluster.engineers for cluster in clusters]) * present
    by_month(Account.SOFTWARE_ENGINEERS, yearly_cost_usd(engineers, money.engineer_usd_per_year, grid))
    ledger = builder.build()
    ledger.check(schedule.opening_book_cents)
    return ledger


def _present_fraction(plan: Plan) -> Floats:
    """Return the share of each month in which each cluster stands on the site, shape (months, clusters)."""
    edges = plan.months.edge_hours.astype(np.float64)
    online = np.array([cluster.online_h for cluster in plan.clusters])
    covered = np.clip(edges[1:, None] - np.maximum(edges[:-1, None], online), 0.0, None)
    share: Floats = covered / np.diff(edges)[:, None]
    return share
