"""Purchase cohorts: what was bought together, what it cost, how it is written off, what it is still worth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.finance.depreciation import Cohorts, DepreciationSchedule, make_cohorts, market_value_usd
from planner.finance.money import cents, usd
from planner.finance.tax import tax_depreciation
from planner.fleet.plan import Plan
from planner.simulation.log import ChangeLog, Purchase

Floats = NDArray[np.float64]
Cents = NDArray[np.int64]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Nodes of one delivery that enter service in the same month and also leave together."""

    name: str
    cluster: int
    nodes: int
    first_node: int
    """Nodes of its delivery that are in cohorts before it."""
    bought_h: float
    """Delivered and paid."""
    in_service_h: float
    """Commissioned and powered: depreciation and upkeep begin. The mean of its nodes, by which straight-line
    depreciation and node-hours by month are those of the single nodes; infinity for never."""
    retired_h: float
    """Infinity for never."""
    prices_usd: tuple[float, float, float, float]
    """Price of a node: accelerators, host, network, storage."""


class _Lot(NamedTuple):
    """Nodes of one delivery that enter service in one month."""

    in_service_h: float
    delivery: int
    """Number of the delivery among its cluster's, from 1."""
    nodes: int
    purchase: Purchase


def cohorts_of(plan: Plan, log: ChangeLog) -> tuple[Cohort, ...]:
    """Return purchase cohorts, those retired in part split in two; first in service, first out.

    What never serves leaves with its cluster, if that is retired.
    """
    cohorts: list[Cohort] = []
    for index, cluster in enumerate(plan.clusters):
        retired = [
            (change.time_h, -change.accelerators // cluster.accelerators_per_node)
            for change in log.changes
            if change.kind == "retired" and change.cluster == index
        ]
        dissolved_h = cluster.retire_h if cluster.retire_h < plan.hours else np.inf
        parts, counted = Counter[int](), Counter[int]()
        for lot in sorted(_lots(plan, log, index)):
            left = lot.nodes
            while left:
                served = np.isfinite(lot.in_service_h)
                time_h, leaving = retired[0] if served and retired else (np.inf if served else dissolved_h, left)
                taken = min(left, leaving)
                cohorts.append(
                    Cohort(
                        name=f"{cluster.name}-{lot.delivery}{_suffix(parts[lot.delivery])}",
                        cluster=index,
                        nodes=taken,
                        first_node=counted[lot.delivery],
                        bought_h=lot.purchase.time_h,
                        in_service_h=min(lot.in_service_h, time_h) if served else np.inf,
                        retired_h=time_h,
                        prices_usd=lot.purchase.prices_usd,
                    )
                )
                left -= taken
                parts[lot.delivery] += 1
                counted[lot.delivery] += taken
                if served and retired:
                    retired[0] = (time_h, leaving - taken)
                    if retired[0][1] == 0:
                        retired.pop(0)
    return tuple(cohorts)


def _lots(plan: Plan, log: ChangeLog, cluster: int) -> list[_Lot]:
    """Return a cluster's deliveries by the month in which their nodes enter service, and what of them never does."""
    per_node = plan.clusters[cluster].accelerators_per_node
    own = [place for place, purchase in enumerate(log.purchases) if purchase.cluster == cluster]
    lots = []
    for delivery, place in enumerate(own, start=1):
        purchase = log.purchases[place]
        entered = [change for change in log.changes if change.purchase == place]
        times = np.array([change.time_h for change in entered])
        nodes = np.array([change.accelerators // per_node for change in entered], dtype=np.int64)
        months = plan.months.period_of_hour(times)
        for month in np.unique(months):
            inside = months == month
            count = int(nodes[inside].sum())
            mean_h = float(times[inside] @ nodes[inside]) / count
            lots.append(_Lot(max(mean_h, purchase.time_h), delivery, count, purchase))
        if (waiting := purchase.nodes - int(nodes.sum())) > 0:
            lots.append(_Lot(np.inf, delivery, waiting, purchase))
    return lots


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


def cost_cents(cohorts: tuple[Cohort, ...]) -> Cents:
    """Return what each cohort cost, shape (cohorts,), rounded on the running total of its delivery.

    cents = round(p·(f + n)) − round(p·f), p the price of a node, f the nodes before it: a delivery's cohorts sum to
    what was paid for it.
    """
    node_usd = np.array([sum(cohort.prices_usd) for cohort in cohorts])
    first, nodes = (np.array([getattr(cohort, name) for cohort in cohorts]) for name in ("first_node", "nodes"))
    return cents(node_usd * (first + nodes)) - cents(node_usd * first)


def assets_of(plan: Plan, cohorts: tuple[Cohort, ...]) -> Cohorts:
    """Return the cohorts as the books see them: cost, residual, life, and the sale of what is retired.

    Cost and residual are whole cents, so that a spreadsheet that repeats the schedule finds the same cents. Resale
    value falls with age since delivery, in service or not.
    """
    capital, grid = plan.money.capital, plan.months
    owner = np.array([cohort.cluster for cohort in cohorts], dtype=np.int64)
    cost = usd(cost_cents(cohorts))
    bought, in_service, retired = (
        grid.coordinate_of_hour(np.array([getattr(cohort, name) for cohort in cohorts]))
        for name in ("bought_h", "in_service_h", "retired_h")
    )
    stays = np.isinf(retired)
    age = np.where(stays, 0.0, retired - bought)
    sold = market_value_usd(cost, age, capital.market_fraction[owner], capital.market_months)
    return make_cohorts(
        cost,
        in_service,
        residual_usd=usd(cents(cost * capital.residual_fraction[owner])),
        life_months=capital.depreciation_months,
        declining_factor=capital.declining_factor,
        disposal=(retired, np.where(stays, 0.0, sold)),
        acquired_months=bought,
    )


def nodes_in_service(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the nodes of each cohort that serve, averaged over each month by the hour, shape (cohorts, months)."""
    nodes, begins, ends = (
        np.array([getattr(cohort, name) for cohort in cohorts], dtype=np.float64)[:, None]
        for name in ("nodes", "in_service_h", "retired_h")
    )
    edges = plan.month_edges_h.astype(np.float64)
    hours = np.minimum(edges[1:], ends) - np.maximum(edges[:-1], begins)
    return np.asarray(nodes * np.maximum(hours, 0.0) / plan.months.period_hours, dtype=np.float64)


def owned_value_cents(plan: Plan, owner: Cents, assets: Cohorts, schedule: DepreciationSchedule) -> Cents:
    """Return what is still owned at each month's end, at the value the scenario chose, shape (cohorts, months).

    Under income tax the value is what a sale would leave: less tax on what it brings above the tax basis.
    """
    capital, edges = plan.money.capital, plan.months.edge_coordinates[None, 1:]
    if capital.end_value == "none":
        return np.zeros_like(schedule.acquired_cents)
    value = schedule.closing_book_cents
    if capital.end_value == "market":
        start, retired = assets.acquired_months[:, None], assets.retired_months[:, None]
        share = capital.market_fraction[owner][:, None]
        worth = market_value_usd(assets.cost_usd[:, None], edges - start, share, capital.market_months)
        value = cents(np.where((start < edges) & (retired >= edges), worth, 0.0))
    if plan.money.market.tax is None:
        return value
    rules = plan.money.market.tax
    deducted = np.cumsum(tax_depreciation(assets, plan.months, rules.bonus_fraction).deduction_cents, axis=1)
    basis = np.where(value > 0, cents(assets.cost_usd)[:, None] - deducted, 0)
    return value - cents(usd(value - basis) * rules.rate_fraction)
