"""Purchase cohorts: what was bought together, what it cost, how it is written off, what it is still worth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Cents, Floats, Ints
from planner.engine.log import ChangeLog, Purchase
from planner.finance.accounts import Position
from planner.finance.cents import cents, usd
from planner.finance.depreciation import Cohorts, accumulated_cents, depreciate, make_cohorts
from planner.finance.lease import LeaseSchedule, LeaseTerms, lease_schedule
from planner.finance.statements import Opening
from planner.finance.tax import TaxRules, tax_depreciation
from planner.plan.plan import Plan
from planner.run.building import building_of
from planner.run.caching import last_kept
from planner.run.orders import order_payments

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
SERVER_PARTS = 2
"""Of a node's four prices, the accelerators and the host are the server that can be sold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Nodes of one delivery that enter service in the same month and also leave together."""

    name: str
    cluster: int
    nodes: int
    first_node: int
    """Nodes of its delivery that are in cohorts before it."""
    bought_h: float
    """Delivered and paid; below zero for what is owned at the start."""
    in_service_h: float
    """Commissioned and powered: depreciation and upkeep begin. The mean of its nodes, by which straight-line
    depreciation and node-hours by month are those of the single nodes; infinity for never."""
    retired_h: float
    """Infinity for never."""
    prices_usd: tuple[float, float, float, float]
    """Price of a node: accelerators, host, network, storage; of one kind of part alone, the others are zero."""
    component: int = -1
    """Place of the kind of part that it is, where these have books of their own; −1 for all of them."""
    before_usd: float = 0.0
    """Price of a node's kinds of parts before it."""

    @property
    def machines(self) -> int:
        """Nodes, counted once over the kinds of their parts."""
        return self.nodes if self.component <= 0 else 0


COMPONENTS = ("accelerators", "hosts", "network", "storage")
"""The kinds of parts of a node, in the order of its prices."""


def _by_component(plan: Plan, cohort: Cohort) -> tuple[Cohort, ...]:
    """Return a cohort, or one for each kind of its parts where these have books of their own."""
    if not plan.money.capital.has_components(cohort.cluster):
        return (cohort,)
    kinds, before = [], 0.0
    for place, (name, price) in enumerate(zip(COMPONENTS, cohort.prices_usd, strict=True)):
        if price > 0 or place == 0:
            accelerators, host, network, storage = (price if at == place else 0.0 for at in range(len(COMPONENTS)))
            prices = (accelerators, host, network, storage)
            part = f"{cohort.name}-{name}"
            kinds.append(replace(cohort, name=part, prices_usd=prices, component=place, before_usd=before))
        before += price
    return tuple(kinds)


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
                cohort = Cohort(
                    name=f"{cluster.name}-{lot.delivery}{_suffix(parts[lot.delivery])}",
                    cluster=index,
                    nodes=taken,
                    first_node=counted[lot.delivery],
                    bought_h=lot.purchase.time_h,
                    in_service_h=min(lot.in_service_h, time_h) if served else np.inf,
                    retired_h=time_h,
                    prices_usd=lot.purchase.prices_usd,
                )
                cohorts += _by_component(plan, cohort)
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
    places = [place for place, purchase in enumerate(log.purchases) if purchase.cluster == cluster]
    lots = []
    for delivery, place in enumerate(places, start=1):
        purchase = log.purchases[place]
        entered = [change for change in log.changes if change.purchase == place]
        times = np.array([change.time_h for change in entered])
        nodes = np.array([change.accelerators // per_node for change in entered], dtype=np.int64)
        months = plan.months.period_of_hour(times)
        for month in sorted(set(months.tolist())):
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
    what was paid for it. Of one kind of parts it is that up to this kind less that up to the one before.
    """
    first, nodes, before_usd = (
        np.array([getattr(cohort, name) for cohort in cohorts]) for name in ("first_node", "nodes", "before_usd")
    )
    node_usd = before_usd + np.array([sum(cohort.prices_usd) for cohort in cohorts])
    upto, before = (cents(price * (first + nodes)) - cents(price * first) for price in (node_usd, before_usd))
    return upto - before


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One delivery under a finance lease."""

    cluster: int
    rows: Ints
    """Its cohorts."""
    terms: LeaseTerms
    schedule: LeaseSchedule


def leases_of(plan: Plan, cohorts: tuple[Cohort, ...]) -> list[Lease]:
    """Return the finance leases of all deliveries; one is left early with its cluster."""
    leases = []
    for index, cluster in enumerate(plan.clusters):
        if cluster.lease is None:
            continue
        for signed_h in sorted({cohort.bought_h for cohort in cohorts if cohort.cluster == index}):
            rows = np.flatnonzero([cohort.cluster == index and cohort.bought_h == signed_h for cohort in cohorts])
            owed = int(cost_cents(tuple(cohorts[row] for row in rows)).sum())
            leaves_h = cluster.retire_h if cluster.retire_h < plan.hours else np.inf
            days = plan.months.months_after(signed_h, cluster.lease.term_months)
            leaves = float(plan.months.coordinate_of_hour(np.array(leaves_h)))
            schedule = lease_schedule(cluster.lease, owed, days, plan.months.edge_coordinates, leaves)
            leases.append(Lease(cluster=index, rows=rows, terms=cluster.lease, schedule=schedule))
    return leases


@last_kept
def assets_of(plan: Plan, cohorts: tuple[Cohort, ...]) -> Cohorts:
    """Return the cohorts as the books see them: cost, residual, life, and the sale of what is retired.

    Cost and residual are whole cents, so that a spreadsheet that repeats the schedule finds the same cents. Resale
    value falls with age since delivery, in service or not. What came before the start has served since.
    """
    capital = plan.money.capital
    cost = usd(cost_cents(cohorts))
    bought, retired = bought_months(plan, cohorts), retired_months(plan, cohorts)
    in_service = plan.months.coordinate_of_hour(np.array([cohort.in_service_h for cohort in cohorts]))
    in_service = np.where(is_opening(cohorts), bought, in_service)
    stays = np.isinf(retired)
    sold = resale_usd(plan, cohorts, np.where(stays, bought, retired)[:, None])[:, 0]
    books = [capital.books_of(cohort.cluster, cohort.component) for cohort in cohorts]
    life, shares = np.array([months for months, _ in books], dtype=np.float64), [share for _, share in books]
    at_end = resale_usd(plan, cohorts, (bought + life)[:, None])[:, 0]
    stated = np.array([np.nan if share is None else share for share in shares])
    residual = np.minimum(np.where(np.isnan(stated), at_end, cost * stated), cost)
    assets = make_cohorts(
        cost,
        in_service,
        residual_usd=usd(cents(residual)),
        life_months=life,
        declining_factor=capital.declining_factor,
        disposal=(retired, np.where(stays, 0.0, sold)),
        acquired_months=bought,
    )
    return _restated(plan, cohorts, assets)


def is_opening(cohorts: tuple[Cohort, ...]) -> Bools:
    """Return whether each cohort was delivered and paid before the start, shape (cohorts,)."""
    return np.array([cohort.bought_h < 0 for cohort in cohorts], dtype=bool)


def _restated(plan: Plan, cohorts: tuple[Cohort, ...], assets: Cohorts) -> Cohorts:
    """Return the assets with the book values and remaining lives that are stated for what is owned at the start.

    A book value that is not stated is cost less depreciation since the purchase; a life that is not stated is what is
    left of the book life, in whole months. Without a month left the book value stays as it is.
    """
    start = plan.months.edge_coordinates[0]
    basis, since = assets.basis_usd.copy(), assets.basis_months.copy()
    residual, life = assets.residual_usd.copy(), assets.life_months.copy()
    charged = usd(accumulated_cents(assets, np.full((assets.count, 1), start)))[:, 0]
    for row, cohort in enumerate(cohorts):
        owned = plan.clusters[cohort.cluster].owned
        if owned is None or cohort.bought_h != owned.bought_h or owned.book_value_usd is owned.remaining_months is None:
            continue
        basis[row], since[row] = assets.cost_usd[row] - charged[row], start
        if owned.book_value_usd is not None:
            first, last = cohort.first_node, cohort.first_node + cohort.nodes
            basis[row] = usd(cents(owned.book_value_usd * last) - cents(owned.book_value_usd * first))
        left = max(np.ceil(bought_months(plan, (cohort,))[0] + life[row] - start), 0.0)
        left = left if owned.remaining_months is None else owned.remaining_months
        residual[row] = min(residual[row], basis[row]) if left else basis[row]
        life[row] = max(left, 1.0)
    return replace(assets, basis_usd=basis, basis_months=since, residual_usd=residual, life_months=life)


def nodes_in_service(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the nodes of each cohort that serve, averaged over each month by the hour, shape (cohorts, months)."""
    nodes, begins, ends = (
        np.array([getattr(cohort, name) for cohort in cohorts], dtype=np.float64)[:, None]
        for name in ("nodes", "in_service_h", "retired_h")
    )
    edges = plan.month_edges_h.astype(np.float64)
    hours = np.minimum(edges[1:], ends) - np.maximum(edges[:-1], begins)
    return np.asarray(nodes * np.maximum(hours, 0.0) / plan.months.period_hours, dtype=np.float64)


@last_kept
def bought_months(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the month coordinate of the day each cohort is delivered and paid, shape (cohorts,)."""
    return plan.months.coordinate_of_hour(np.array([cohort.bought_h for cohort in cohorts]))


@last_kept
def retired_months(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the month coordinate of the day each cohort leaves, infinity for never, shape (cohorts,)."""
    return plan.months.coordinate_of_hour(np.array([cohort.retired_h for cohort in cohorts]))


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


def is_owned(plan: Plan, cohorts: tuple[Cohort, ...]) -> Bools:
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


def opening_value_cents(plan: Plan, cohorts: tuple[Cohort, ...], rules: TaxRules | None) -> Cents:
    """Return what a sale on the first day of all that is owned then would bring, after tax, shape (cohorts,).

    V − t·(V − tax basis), V the resale value at its age. It is what keeping the machines costs their owner: without it,
    their value on the last day would look like a gain.
    """
    if plan.money.capital.end_value == "none":
        return np.zeros(len(cohorts), dtype=np.int64)
    worth = resale_usd(plan, cohorts, plan.months.edge_coordinates[None, :1])[:, 0]
    value = cents(np.where(is_opening(cohorts), worth, 0.0))
    if rules is None:
        return value
    assets = assets_of(plan, cohorts)
    before = tax_depreciation(assets, plan.months, rules.bonus_fraction).before_cents
    gain = np.where(is_opening(cohorts), value - (cents(assets.cost_usd) - before), 0)
    return value - cents(usd(gain) * rules.rate_fraction)


def opening_of(plan: Plan, cohorts: tuple[Cohort, ...], log: ChangeLog) -> Opening:
    """Return what is owned and owed before the first month: cash, hardware at book value, deferred tax on it, deposits.

    Deferred tax = t·(book value − tax basis); it belongs to the site as a whole, as tax does.
    """
    book, deferred = (np.zeros(len(plan.clusters) + 1, dtype=np.int64) for _ in range(2))
    rules = plan.money.market.tax
    if is_opening(cohorts).any():
        assets = assets_of(plan, cohorts)
        held = depreciate(assets, plan.months.edge_coordinates).opening_book_cents
        np.add.at(book, [cohort.cluster for cohort in cohorts], held)
        if rules is not None:
            before = tax_depreciation(assets, plan.months, rules.bonus_fraction).before_cents
            basis = np.where(is_opening(cohorts), cents(assets.cost_usd) - before, 0)
            deferred[-1] = cents(usd(held.sum() - basis.sum()) * rules.rate_fraction)
    building = building_of(plan)
    space = np.zeros_like(book)
    if building is not None:
        space[-1] = building.schedule.opening_book_cents[0]
        deferred[-1] += building.deferred_tax_cents(rules) if rules else 0
    deposits = np.append(order_payments(plan, log).balance_cents(plan)[0], 0)
    positions = {Position.HARDWARE: book, Position.DEFERRED_TAX: deferred, Position.DEPOSITS: deposits}
    positions[Position.BUILDING] = space
    return Opening(cash_cents=int(cents(plan.money.capital.opening_cash_usd)), position_cents=positions)


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
    What is leased and goes back is the lessor's for tax: its payments are deducted, of which interest is a cost anyway.
    What is bought out is a sale on credit: the lessee writes it off.
    """
    assets = assets_of(plan, cohorts)
    tables = tax_depreciation(assets, plan.months, rules.bonus_fraction)
    basis = (cents(assets.cost_usd) - tables.before_cents)[:, None] - np.cumsum(tables.deduction_cents, axis=1)
    income = tables.gain_cents - tables.deduction_cents
    end_gain = np.where(is_owned(plan, cohorts), owned_value_cents(plan, cohorts) - basis, 0)
    for lease in leases_of(plan, cohorts):
        if not lease.terms.is_bought:
            income[lease.rows], end_gain[lease.rows] = 0, 0
            income[lease.rows[0]] = -lease.schedule.principal_cents
    return TaxBase(income_cents=income, end_gain_cents=end_gain)
