"""From machines and kilowatt-hours to dollars: the only writer of a run's ledger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.depreciation import capital_charge_usd, depreciate, make_cohorts, market_value_usd
from planner.finance.ledger import Ledger, LedgerBuilder, LedgerLabels
from planner.finance.money import cents, series_cents, split_cents
from planner.finance.recurring import colocation_usd, yearly_cost_usd
from planner.fleet.plan import Plan
from planner.simulation.log import ChangeLog
from planner.simulation.monthly import Monthly

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Nodes bought together that also leave together."""

    name: str
    cluster: int
    nodes: int
    bought_h: float
    retired_h: float
    """Infinity for never."""
    price_factor: float


def cohorts_of(plan: Plan, log: ChangeLog) -> tuple[Cohort, ...]:
    """Return purchase cohorts, those retired in part split in two; first in, first out."""
    cohorts: list[Cohort] = []
    for index, cluster in enumerate(plan.clusters):
        retired = [
            (change.time_h, -change.accelerators // cluster.accelerators_per_node)
            for change in log.changes
            if change.kind == "retired" and change.cluster == index
        ]
        own = [purchase for purchase in log.purchases if purchase.cluster == index]
        for number, purchase in enumerate(own, start=1):
            left, part = purchase.nodes, 0
            while left:
                time_h, leaving = retired[0] if retired else (np.inf, left)
                taken = min(left, leaving)
                name = f"{cluster.name}-{number}" + (f"-{'abcdefghijklmnopqrstuvwxyz'[min(part, 25)]}" if part else "")
                cohorts.append(
                    Cohort(
                        name=name,
                        cluster=index,
                        nodes=taken,
                        bought_h=purchase.time_h,
                        retired_h=time_h,
                        price_factor=purchase.price_factor,
                    )
                )
                left, part = left - taken, part + 1
                if retired:
                    retired[0] = (time_h, leaving - taken)
                    if retired[0][1] == 0:
                        retired.pop(0)
    return tuple(cohorts)


def write_ledger(plan: Plan, monthly: Monthly, cohorts: tuple[Cohort, ...]) -> Ledger:
    """Post every account of a run."""
    grid, money, clusters = plan.months, plan.money, plan.clusters
    labels = LedgerLabels(
        months=grid.labels,
        clusters=tuple(cluster.name for cluster in clusters),
        cohorts=tuple(cohort.name for cohort in cohorts),
    )
    builder = LedgerBuilder(labels)
    opening = _post_capital(builder, plan, cohorts)

    def by_month(account: Account, amount_usd: Floats) -> None:
        builder.post_clusters(account, series_cents(amount_usd))

    price = money.electricity_usd_per_kwh
    by_month(Account.ENERGY, monthly.it_kwh * price)
    by_month(Account.COOLING, (monthly.facility_kwh - monthly.it_kwh) * price)
    nodes = monthly.present_node_h / grid.period_hours[:, None]
    nameplate = np.array([cluster.nameplate_kw for cluster in clusters])
    by_month(Account.COLOCATION, colocation_usd(nodes * nameplate, money.colocation_usd_per_kw_month, grid, 0.0))
    capital = nodes * np.array([cluster.node_usd for cluster in clusters])
    by_month(Account.MAINTENANCE, yearly_cost_usd(capital, money.operations_fraction_per_year, grid))
    accelerators = nodes * np.array([cluster.accelerators_per_node for cluster in clusters])
    engineers = accelerators * np.array([cluster.engineers_per_accelerator for cluster in clusters])
    by_month(Account.SOFTWARE_ENGINEERS, yearly_cost_usd(engineers, money.engineer_usd_per_year, grid))
    support = yearly_cost_usd(accelerators, money.support_usd_per_accelerator_year, grid)
    by_month(Account.SUPPORT_CONTRACTS, support)
    ledger = builder.build()
    ledger.check(opening)
    return ledger


def _post_capital(builder: LedgerBuilder, plan: Plan, cohorts: tuple[Cohort, ...]) -> NDArray[np.int64]:
    """Post purchases, depreciation, disposals and the charge for capital; return opening book values."""
    if not cohorts:
        return np.zeros(0, dtype=np.int64)
    grid, money = plan.months, plan.money
    owner = np.array([cohort.cluster for cohort in cohorts])
    scale = np.array([cohort.nodes * cohort.price_factor for cohort in cohorts])
    parts = np.array([plan.clusters[cohort.cluster].prices_usd for cohort in cohorts]) * scale[:, None]
    capital = parts.sum(axis=1)
    bought = grid.coordinate_of_hour(np.array([cohort.bought_h for cohort in cohorts]))
    retired_h = np.array([cohort.retired_h for cohort in cohorts])
    stays = ~np.isfinite(retired_h)
    retired = np.where(stays, np.inf, grid.coordinate_of_hour(np.where(stays, 0.0, retired_h)))
    age = np.where(stays, 0.0, retired - bought)
    proceeds = np.where(stays, 0.0, market_value_usd(capital, age, money.residual_fraction))
    schedule = depreciate(
        make_cohorts(
            capital,
            bought,
            residual_usd=capital * money.residual_fraction,
            life_months=money.depreciation_months,
            disposal=(retired, proceeds),
        ),
        grid.edge_coordinates,
    )
    shares = np.divide(parts, capital[:, None], out=np.full_like(parts, 0.25), where=capital[:, None] > 0)
    entered = schedule.acquired_cents > 0
    for account, amount in zip(CAPEX_ACCOUNTS, split_cents(cents(capital), shares).T, strict=True):
        builder.post_cohorts(account, np.where(entered, amount[:, None], 0), owner)
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, owner)
    builder.post_cohorts(Account.RESALE, -schedule.proceeds_cents, owner)
    builder.post_cohorts(Account.DISPOSAL_LOSS, schedule.disposal_loss_cents, owner)
    charge = capital_charge_usd(schedule, money.discount_rate_per_year)
    builder.post_cohorts(Account.COST_OF_CAPITAL, series_cents(charge, axis=1), owner)
    return schedule.opening_book_cents
