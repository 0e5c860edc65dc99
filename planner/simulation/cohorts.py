"""Purchase cohorts: what was bought together, what it cost, how it is written off, what it is still worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.finance.depreciation import Cohorts, make_cohorts
from planner.finance.money import cents, usd
from planner.finance.tax import TaxRules, tax_depreciation
from planner.fleet.plan import Plan
from planner.simulation.log import ChangeLog

Floats = NDArray[np.float64]
Cents = NDArray[np.int64]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
SERVER_PARTS = 2
"""Of a node's four prices, the accelerators and the host are the server that can be sold."""


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
    capital = plan.money.capital
    cost = usd(cents(parts_usd(cohorts).sum(axis=1)))
    bought, retired = bought_months(plan, cohorts), retired_months(plan, cohorts)
    stays = ~np.isfinite(retired)
    sold = resale_usd(plan, cohorts, np.where(stays, bought, retired)[:, None])[:, 0]
    if capital.residual_fraction is None:
        residual = resale_usd(plan, cohorts, (bought + capital.depreciation_months)[:, None])[:, 0]
    else:
        residual = cost * capital.residual_fraction
    return make_cohorts(
        cost,
        bought,
        residual_usd=usd(cents(residual)),
        life_months=capital.depreciation_months,
        declining_factor=capital.declining_factor,
        disposal=(retired, np.where(stays, 0.0, sold)),
    )


def bought_months(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the month coordinate of the day each cohort is paid for, shape (cohorts,)."""
    return plan.months.coordinate_of_hour(np.array([cohort.bought_h for cohort in cohorts]))


def retired_months(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the month coordinate of the day each cohort leaves, infinity for never, shape (cohorts,)."""
    hours = np.array([cohort.retired_h for cohort in cohorts])
    stays = ~np.isfinite(hours)
    months = plan.months.coordinate_of_hour(np.where(stays, 0.0, hours))
    return np.asarray(np.where(stays, np.inf, months), dtype=np.float64)


def resale_usd(plan: Plan, cohorts: tuple[Cohort, ...], months: Floats) -> Floats:
    """Return what each cohort would fetch at month coordinates of shape (cohorts or 1, times), shape (cohorts, times).

    Servers, accelerators and hosts, fetch their price times the cluster's resale curve at their age; network and
    storage fetch nothing, since no figure for them is known and cabling stays with its building.
    """
    servers = parts_usd(cohorts)[:, :SERVER_PARTS].sum(axis=1)
    ages = months - bought_months(plan, cohorts)[:, None]
    curves = [plan.money.capital.resale[cohort.cluster] for cohort in cohorts]
    fractions = np.stack([curve.fraction(age) for curve, age in zip(curves, ages, strict=True)])
    return np.asarray(servers[:, None] * fractions, dtype=np.float64)


def is_owned(plan: Plan, cohorts: tuple[Cohort, ...]) -> NDArray[np.bool_]:
    """Return whether each cohort is paid for and not yet retired at each month's end, shape (cohorts, months)."""
    edges = plan.months.edge_coordinates[None, 1:]
    bought, retired = bought_months(plan, cohorts)[:, None], retired_months(plan, cohorts)[:, None]
    return np.asarray((bought < edges) & (retired >= edges))


def owned_value_cents(plan: Plan, cohorts: tuple[Cohort, ...]) -> Cents:
    """Return what a sale of all that is owned at each month's end would bring, before tax, shape (cohorts, months)."""
    if plan.money.capital.end_value == "none":
        return np.zeros((len(cohorts), plan.months.period_count), dtype=np.int64)
    worth = resale_usd(plan, cohorts, plan.months.edge_coordinates[None, 1:])
    return cents(np.where(is_owned(plan, cohorts), worth, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxBase:
    """What purchases add to taxable income, in cents, shape (cohorts, months)."""

    income_cents: Cents
    """Gains on what was retired, less tax depreciation."""
    end_gain_cents: Cents
    """What a sale of all that is owned at the month's end would add: its proceeds less the tax basis left."""


def tax_base(plan: Plan, cohorts: tuple[Cohort, ...], rules: TaxRules) -> TaxBase:
    """Return what purchases add to taxable income.

    The basis counts for all that is owned, whether it would fetch anything or not: what is scrapped is still deducted.
    """
    assets = assets_of(plan, cohorts)
    tables = tax_depreciation(assets, plan.months, rules.bonus_fraction)
    basis = cents(assets.cost_usd)[:, None] - np.cumsum(tables.deduction_cents, axis=1)
    return TaxBase(
        income_cents=tables.gain_cents - tables.deduction_cents,
        end_gain_cents=np.where(is_owned(plan, cohorts), owned_value_cents(plan, cohorts) - basis, 0),
    )
