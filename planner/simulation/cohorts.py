"""Purchase cohorts: what was bought together, what it cost, how it is written off, what it is still worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.finance.depreciation import Cohorts, DepreciationSchedule, make_cohorts, market_value_usd
from planner.finance.money import cents, usd
from planner.finance.tax import tax_depreciation
from planner.fleet.plan import Plan
from planner.simulation.log import ChangeLog

Floats = NDArray[np.float64]
Cents = NDArray[np.int64]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Nodes bought together that also leave together."""

    name: str
    cluster: int
    nodes: int
    bought_h: float
    retired_h: float
    """Infinity for never."""
    prices_usd: tuple[float, float, float, float]
    """Price of a node: accelerators, host, network, storage."""


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
                cohorts.append(
                    Cohort(
                        name=f"{cluster.name}-{number}{_suffix(part)}",
                        cluster=index,
                        nodes=taken,
                        bought_h=purchase.time_h,
                        retired_h=time_h,
                        prices_usd=purchase.prices_usd,
                    )
                )
                left, part = left - taken, part + 1
                if retired:
                    retired[0] = (time_h, leaving - taken)
                    if retired[0][1] == 0:
                        retired.pop(0)
    return tuple(cohorts)


def _suffix(part: int) -> str:
    """Return what tells the parts of a cohort apart: nothing for the first, then -a to -z, -aa and so on."""
    letters = ""
    while part:
        part, rest = divmod(part - 1, len(_LETTERS))
        letters = _LETTERS[rest] + letters
    return f"-{letters}" if letters else ""


def parts_usd(cohorts: tuple[Cohort, ...]) -> Floats:
    """Return what each cohort's accelerators, hosts, network and storage cost, shape (cohorts, 4)."""
    nodes = np.array([cohort.nodes for cohort in cohorts], dtype=np.float64)
    return np.array([cohort.prices_usd for cohort in cohorts]).reshape(-1, 4) * nodes[:, None]


def assets_of(plan: Plan, cohorts: tuple[Cohort, ...]) -> Cohorts:
    """Return the cohorts as the books see them: cost, residual, life, and the sale of what is retired.

    Cost and residual are whole cents, so that a spreadsheet that repeats the schedule finds the same cents.
    """
    capital, grid = plan.money.capital, plan.months
    owner = np.array([cohort.cluster for cohort in cohorts], dtype=np.int64)
    cost = usd(cents(parts_usd(cohorts).sum(axis=1)))
    bought = grid.coordinate_of_hour(np.array([cohort.bought_h for cohort in cohorts]))
    retired_h = np.array([cohort.retired_h for cohort in cohorts])
    stays = ~np.isfinite(retired_h)
    retired = np.where(stays, np.inf, grid.coordinate_of_hour(np.where(stays, 0.0, retired_h)))
    age = np.where(stays, 0.0, retired - bought)
    sold = market_value_usd(cost, age, capital.market_fraction[owner], capital.market_months)
    return make_cohorts(
        cost,
        bought,
        residual_usd=usd(cents(cost * capital.residual_fraction[owner])),
        life_months=capital.depreciation_months,
        declining_factor=capital.declining_factor,
        disposal=(retired, np.where(stays, 0.0, sold)),
    )


def owned_value_cents(plan: Plan, owner: Cents, assets: Cohorts, schedule: DepreciationSchedule) -> Cents:
    """Return what is still owned at each month's end, at the value the scenario chose, shape (cohorts, months).

    Under income tax the value is what a sale would leave: less tax on what it brings above the tax basis.
    """
    capital, edges = plan.money.capital, plan.months.edge_coordinates[None, 1:]
    if capital.end_value == "none":
        return np.zeros_like(schedule.acquired_cents)
    value = schedule.closing_book_cents
    if capital.end_value == "market":
        start, retired = assets.in_service_months[:, None], assets.retired_months[:, None]
        share = capital.market_fraction[owner][:, None]
        worth = market_value_usd(assets.cost_usd[:, None], edges - start, share, capital.market_months)
        value = cents(np.where((start < edges) & (retired >= edges), worth, 0.0))
    if plan.money.market.tax is None:
        return value
    rules = plan.money.market.tax
    deducted = np.cumsum(tax_depreciation(assets, plan.months, rules.bonus_fraction).deduction_cents, axis=1)
    basis = np.where(value > 0, cents(assets.cost_usd)[:, None] - deducted, 0)
    return value - cents(usd(value - basis) * rules.rate_fraction)
