"""Assets: purchase cohorts, their leases and values, rent for a term as a lease, deposits on orders.

**Orders.** A delivery is in the books at cost on its day. What was paid ahead of it until then is a claim on the
vendor, what is paid after it a debt: one balance, paid − settled, above or below zero. It is worth its amount on the
first and the last day.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Cents, Floats, Ints
from planner.engine.log import ChangeLog, Purchase
from planner.finance import depreciation
from planner.finance.depreciation import Cohorts, TaxRules, depreciate
from planner.finance.financing import (
    LeaseSchedule,
    LeaseTerms,
    RightOfUse,
    lease_schedule,
    right_of_use,
)
from planner.finance.ledger import Position, cents, series_cents, split_cents, usd, whole_cents
from planner.finance.months import MonthGrid
from planner.finance.statements import Opening
from planner.plan.plan import OrderPlan, Plan
from planner.units import MONTHS_PER_YEAR

COMPONENTS = ("accelerators", "hosts", "network", "storage")
"""The kinds of parts of a node, in the order of its prices."""
SERVER_PARTS = 2
"""Of a node's four prices, the accelerators and the host are the server that can be sold."""


class OrderPayments(NamedTuple):
    """Payments on other days than delivery; every array has shape (payments,)."""

    cluster: Ints
    amount_cents: Cents
    paid_months: Floats
    """Month coordinate of the payment."""
    settled_months: Floats
    """Month coordinate of the delivery, or of the day on which a cancelled one is given up."""
    is_lost: Bools
    """Whether it is given up."""

    def by_period(
        self, plan: Plan, months: Floats, amounts: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return amounts by period and cluster, shape (periods, clusters), without those outside the horizon."""
        edges = plan.months.edge_coordinates
        amounts = self.amount_cents if amounts is None else amounts
        inside = (months >= edges[0]) & (months < edges[-1])
        period = np.searchsorted(edges, months[inside], side="right") - 1
        table = np.zeros((edges.size - 1, len(plan.clusters)), dtype=amounts.dtype)
        np.add.at(table, (period, self.cluster[inside]), amounts[inside])
        return table

    def balance_cents(self, plan: Plan) -> Cents:
        """Return amounts paid and not settled at each period's start and the end, shape (periods + 1, clusters)."""
        edges = plan.months.edge_coordinates[:, None]
        is_open = (self.paid_months < edges).astype(np.int64) - (self.settled_months < edges)
        table = np.zeros((edges.size, len(plan.clusters)), dtype=np.int64)
        np.add.at(table.T, self.cluster, (self.amount_cents * is_open).T)
        return table

    def charge_usd(self, plan: Plan) -> Floats:
        """Return the capital charge on the balance, shape (periods, clusters).

        ±amount·((1 + r)^(h/12) − 1), h the share of a month for which it is open, as of hardware's book value.
        """
        edges = plan.months.edge_coordinates
        growth = np.log1p(plan.money.capital.discount_rate_per_year)
        opens, closes = np.sort([self.paid_months, self.settled_months], axis=0)
        sign = np.where(self.paid_months < self.settled_months, 1.0, -1.0)
        held = np.minimum(edges[1:, None], closes) - np.maximum(edges[:-1, None], opens)
        charge = (
            usd(self.amount_cents)
            * sign
            * np.expm1(growth * np.maximum(held, 0.0) / MONTHS_PER_YEAR)
        )
        table = np.zeros((edges.size - 1, len(plan.clusters)))
        np.add.at(table.T, self.cluster, charge.T)
        return table

    def mean_months(self, plan: Plan, months: Floats) -> Floats:
        """Return the mean month coordinate of each period's amounts, shape (periods, clusters); 0 without any."""
        total = self.by_period(plan, months)
        weighted = self.by_period(plan, months, self.amount_cents * months)
        mean: Floats = np.divide(weighted, total, out=np.zeros(total.shape), where=total > 0)
        return mean


def parts_due(order: OrderPlan, purchase: Purchase) -> list[tuple[float, int]]:
    """Return when each stated part of a purchase is due and its cents, and last what is due on delivery."""
    stated = [payment.fraction for payment in order.payments]
    shares = np.array([*stated, max(1.0 - sum(stated), 0.0)])
    parts = split_cents(
        np.asarray(cents(purchase.nodes * sum(purchase.prices_usd))), shares / shares.sum()
    )
    days = [
        (purchase.placed_h if one.from_order else purchase.time_h) + one.after_h
        for one in order.payments
    ]
    return [*zip([*days, purchase.time_h], parts.tolist(), strict=True)]


def order_payments(plan: Plan, log: ChangeLog) -> OrderPayments:
    """Return all payments on orders on other days than delivery, for orders delivered or not.

    A delivery that would come after its cluster is gone is cancelled on that day, and what was paid on it is lost.
    """
    rows: list[tuple[int, int, float, float, bool]] = []
    for purchase in (*log.purchases, *log.undelivered):
        order = plan.clusters[purchase.cluster].order
        retire_h = plan.clusters[purchase.cluster].retire_h
        if order is None or not order.payments or not np.isfinite(purchase.placed_h):
            continue
        is_lost = purchase in log.undelivered and purchase.time_h >= retire_h
        settled_h = retire_h if is_lost else purchase.time_h
        for paid_h, amount in parts_due(order, purchase)[:-1]:
            if amount and paid_h != settled_h and not (is_lost and paid_h >= retire_h):
                rows.append((purchase.cluster, amount, paid_h, settled_h, is_lost))
    cluster, amount_cents, paid, settled, lost = zip(*rows, strict=True) if rows else ((),) * 5
    return OrderPayments(
        cluster=np.array(cluster, dtype=np.intp),
        amount_cents=np.array(amount_cents, dtype=np.int64),
        paid_months=plan.months.coordinate_of_hour(np.array(paid, dtype=np.float64)),
        settled_months=plan.months.coordinate_of_hour(np.array(settled, dtype=np.float64)),
        is_lost=np.array(lost, dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """Nodes of one delivery that enter service in the same month and are retired together."""

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
    prices_usd: tuple[float, ...]
    """Price of a node: accelerators, host, network, storage; of one kind of part alone, the others are zero."""
    component: int = -1
    """Place of the kind of part that it is, where these have books of their own; −1 for all of them."""
    before_usd: float = 0.0
    """Price of a node's kinds of parts before it."""

    @property
    def machines(self) -> int:
        """Number of nodes, counted once over the component kinds."""
        return self.nodes if self.component <= 0 else 0


def cohorts_of(plan: Plan, log: ChangeLog) -> tuple[Cohort, ...]:
    """Return the purchase cohorts; partly retired ones are split in two, first in, first out.

    What never serves leaves with its cluster, if that is retired. Where the kinds of a node's parts have books of their
    own there is a cohort for each.
    """
    cohorts: list[Cohort] = []
    for index, cluster in enumerate(plan.clusters):
        left_it = [
            change for change in log.changes if change.kind == "retired" and change.cluster == index
        ]
        retired = [
            (change.time_h, -change.accelerators // cluster.accelerators_per_node)
            for change in left_it
        ]
        dissolved_h = cluster.retire_h if cluster.retire_h < plan.hours else np.inf
        parts = Counter[int]()
        counted = Counter[int]()
        for in_service_h, delivery, nodes, purchase in sorted(_lots(plan, log, index)):
            left = nodes
            served = np.isfinite(in_service_h)
            while left:
                time_h, leaving = (
                    retired[0] if served and retired else (np.inf if served else dissolved_h, left)
                )
                taken = min(left, leaving)
                letters = ""
                part = parts[delivery]
                while part:  # what tells a delivery's cohorts apart: nothing for the first, then -a to -z, -aa, ...
                    part, rest = divmod(part - 1, len(ascii_lowercase))
                    letters = ascii_lowercase[rest] + letters
                cohort = Cohort(
                    name=f"{cluster.name}-{delivery}{letters and '-'}{letters}",
                    cluster=index,
                    nodes=taken,
                    first_node=counted[delivery],
                    bought_h=purchase.time_h,
                    in_service_h=min(in_service_h, time_h) if served else np.inf,
                    retired_h=time_h,
                    prices_usd=purchase.prices_usd,
                )
                if index not in plan.money.capital.components:
                    cohorts.append(cohort)
                else:
                    before = 0.0
                    for place, (kind, price) in enumerate(
                        zip(COMPONENTS, cohort.prices_usd, strict=True)
                    ):
                        if price > 0 or place == 0:
                            prices = tuple(
                                price if at == place else 0.0 for at in range(len(COMPONENTS))
                            )
                            name = f"{cohort.name}-{kind}"
                            of = replace(
                                cohort,
                                name=name,
                                prices_usd=prices,
                                component=place,
                                before_usd=before,
                            )
                            cohorts.append(of)
                        before += price
                left -= taken
                parts[delivery] += 1
                counted[delivery] += taken
                if served and retired:
                    retired[0] = (time_h, leaving - taken)
                    if retired[0][1] == 0:
                        retired.pop(0)
    return tuple(cohorts)


def _lots(plan: Plan, log: ChangeLog, cluster: int) -> list[tuple[float, int, int, Purchase]]:
    """Return a cluster's deliveries by month of entry into service, and the nodes that never enter.

    When they enter service, the number of the delivery from 1, nodes, and the purchase.
    """
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
            lots.append((max(mean_h, purchase.time_h), delivery, count, purchase))
        if (waiting := purchase.nodes - int(nodes.sum())) > 0:
            lots.append((np.inf, delivery, waiting, purchase))
    return lots


def parts_usd(cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the cost of each cohort's accelerators, hosts, network and storage, shape (cohorts, 4)."""
    nodes = np.array([cohort.nodes for cohort in cohorts], dtype=np.float64)
    return np.array([cohort.prices_usd for cohort in cohorts]).reshape(-1, 4) * nodes[:, None]


def cost_cents(cohorts: tuple[Cohort, ...]) -> Cents:
    """Return the cost of each cohort, shape (cohorts,), rounded on the running total of its delivery.

    cents = round(p·(f + n)) − round(p·f), p the price of a node, f the nodes before it: a delivery's cohorts sum to
    what was paid for it. Of one kind of parts it is that up to this kind less that up to the one before.
    """
    first, nodes, before_usd = (
        np.array([getattr(cohort, name) for cohort in cohorts])
        for name in ("first_node", "nodes", "before_usd")
    )
    node_usd = before_usd + np.array([sum(cohort.prices_usd) for cohort in cohorts])
    upto, before = (
        cents(price * (first + nodes)) - cents(price * first) for price in (node_usd, before_usd)
    )
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
    """Return the finance leases of all deliveries; a lease ends early when its cluster retires."""
    leases = []
    for index, cluster in enumerate(plan.clusters):
        if cluster.lease is None:
            continue
        for signed_h in sorted({cohort.bought_h for cohort in cohorts if cohort.cluster == index}):
            rows = np.flatnonzero(
                [cohort.cluster == index and cohort.bought_h == signed_h for cohort in cohorts]
            )
            owed = int(cost_cents(tuple(cohorts[row] for row in rows)).sum())
            leaves_h = cluster.retire_h if cluster.retire_h < plan.hours else np.inf
            days = plan.months.months_after(signed_h, cluster.lease.term_months)
            leaves = float(plan.months.coordinate_of_hour(np.array(leaves_h)))
            schedule = lease_schedule(
                cluster.lease, owed, days, plan.months.edge_coordinates, leaves
            )
            leases.append(Lease(cluster=index, rows=rows, terms=cluster.lease, schedule=schedule))
    return leases


def rent_terms(plan: Plan) -> Iterator[tuple[int, Floats, Floats]]:
    """Yield cluster, hours from the start and rent of each term signed within the horizon, split by calendar months.

    Hours have shape (parts + 1,), rent in dollars (parts,). A term ends when the machines leave, at the latest.
    """
    for index, cluster in enumerate(plan.clusters):
        if cluster.rent is None:
            continue
        edges = cluster.rent.term_edge_h
        accelerators = cluster.nodes * cluster.accelerators_per_node
        for begins, stated, price in zip(
            edges[:-1], edges[1:], cluster.rent.term_usd_per_h, strict=True
        ):
            ends = min(stated, cluster.retire_h)
            if begins < min(ends, plan.hours):
                split = np.unique([begins, ends, *plan.months.month_firsts[0], *plan.month_edges_h])
                parts = split[(split >= begins) & (split <= ends)]
                yield index, parts, accelerators * price * np.diff(parts)


def rent_leases(plan: Plan, rent_cents: Cents) -> Iterator[tuple[int, RightOfUse]]:
    """Yield the cluster and the months of each term of more than a year that is a lease of identified machines.

    ``rent_cents`` is rent as posted, shape (months, clusters); after the horizon it is as contracted.
    """
    capital = plan.money.capital
    terms = [*rent_terms(plan)]
    months = plan.months.period_count
    contracted = np.zeros(rent_cents.shape)
    for cluster, edge_h, rent_usd in terms:
        month = plan.months.period_of_hour(edge_h[:-1])
        np.add.at(contracted[:, cluster], month[month < months], rent_usd[month < months])
    for cluster, edge_h, rent_usd in terms:
        rent = plan.clusters[cluster].rent
        held = np.diff(plan.months.coordinate_of_hour(edge_h))
        if rent is None or not rent.is_lease or held.sum() <= MONTHS_PER_YEAR + 1e-9:
            continue
        month = plan.months.period_of_hour(edge_h[:-1])
        month = month[month < months]
        paid = series_cents(rent_usd)
        inside = slice(0, month.size)
        hours = np.diff(edge_h)
        share = rent_usd[inside] / contracted[month, cluster]
        paid[inside] = whole_cents(rent_cents[month, cluster] * share)
        growth = capital.borrowing_rate_per_year / MONTHS_PER_YEAR * held
        columns = np.zeros((len(RightOfUse._fields), months), dtype=np.int64)
        columns[:, month] = np.array(
            right_of_use(paid, growth, hours / hours.sum(), capital.books)
        )[:, inside]
        yield cluster, RightOfUse(*columns)


def provisioned_kw(plan: Plan, present_node_h: Floats) -> Floats:
    """Return the nameplate power of the nodes on site, averaged over each month, shape (months, clusters)."""
    nameplate = np.array([cluster.nameplate_kw for cluster in plan.clusters])
    nodes = present_node_h / plan.months.period_hours[:, None]
    return np.asarray(nodes * plan.on_site * nameplate, dtype=np.float64)


def assets_of(plan: Plan, cohorts: tuple[Cohort, ...]) -> Cohorts:
    """Return the cohorts as fixed assets: cost, residual, life, and proceeds of retirement.

    Cost and residual are whole cents, so that a spreadsheet that repeats the schedule finds the same cents. Resale
    value falls with age since delivery, in service or not. What came before the start has served since.

    Of what is owned at the start book value and remaining life may be stated. A book value that is not stated is cost
    less depreciation since the purchase; a life that is not stated is what is left of the book life, in whole months.
    Without a month left the book value stays as it is.
    """
    capital = plan.money.capital
    start = plan.months.edge_coordinates[0]
    cost = usd(cost_cents(cohorts))
    bought, (in_service, retired) = (
        months_at(plan, cohorts, "bought_h"),
        service_months(plan, cohorts),
    )
    stays = np.isinf(retired)
    sold = resale_usd(plan, cohorts, np.where(stays, bought, retired)[:, None])[:, 0]
    books = [capital.books_of(cohort.cluster, cohort.component) for cohort in cohorts]
    life = np.array([months for months, _ in books], dtype=np.float64)
    at_end = resale_usd(plan, cohorts, (bought + life)[:, None])[:, 0]
    stated = np.array([np.nan if share is None else share for _, share in books])
    assets = depreciation.make_cohorts(
        cost,
        in_service,
        residual_usd=usd(
            cents(np.minimum(np.where(np.isnan(stated), at_end, cost * stated), cost))
        ),
        life_months=life,
        declining_factor=capital.declining_factor,
        disposal=(retired, np.where(stays, 0.0, sold)),
        acquired_months=bought,
    )
    basis = assets.basis_usd.copy()
    since = assets.basis_months.copy()
    residual = assets.residual_usd.copy()
    charged = usd(depreciation.accumulated_cents(assets, np.full((assets.count, 1), start)))[:, 0]
    for row, cohort in enumerate(cohorts):
        owned = plan.clusters[cohort.cluster].owned
        if (
            owned is None
            or cohort.bought_h != owned.bought_h
            or owned.book_value_usd is owned.remaining_months is None
        ):
            continue
        basis[row] = cost[row] - charged[row]
        since[row] = start
        if owned.book_value_usd is not None:
            first = cohort.first_node
            last = cohort.first_node + cohort.nodes
            basis[row] = usd(
                cents(owned.book_value_usd * last) - cents(owned.book_value_usd * first)
            )
        left = max(np.ceil(bought[row] + life[row] - start), 0.0)
        left = left if owned.remaining_months is None else owned.remaining_months
        residual[row] = min(residual[row], basis[row]) if left else basis[row]
        life[row] = max(left, 1.0)
    return replace(
        assets, basis_usd=basis, basis_months=since, residual_usd=residual, life_months=life
    )


def service_months(plan: Plan, cohorts: tuple[Cohort, ...]) -> tuple[Floats, Floats]:
    """Return the month coordinates at which each cohort begins to serve and is retired, shape (cohorts,) each."""
    bought, begins, ends = (
        months_at(plan, cohorts, hour) for hour in ("bought_h", "in_service_h", "retired_h")
    )
    return np.where(is_opening(cohorts), bought, begins), ends


def is_opening(cohorts: tuple[Cohort, ...]) -> Bools:
    """Return whether each cohort was delivered and paid before the start, shape (cohorts,)."""
    return np.array([cohort.bought_h < 0 for cohort in cohorts], dtype=bool)


def nodes_in_service(plan: Plan, cohorts: tuple[Cohort, ...]) -> Floats:
    """Return the nodes of each cohort in service, averaged over each month by the hour, shape (cohorts, months)."""
    nodes, begins, ends = (
        np.array([getattr(cohort, name) for cohort in cohorts], dtype=np.float64)[:, None]
        for name in ("nodes", "in_service_h", "retired_h")
    )
    edges = plan.month_edges_h.astype(np.float64)
    hours = np.minimum(edges[1:], ends) - np.maximum(edges[:-1], begins)
    return np.asarray(nodes * np.maximum(hours, 0.0) / plan.months.period_hours, dtype=np.float64)


def months_at(plan: Plan, cohorts: tuple[Cohort, ...], hour: str) -> Floats:
    """Return the month coordinate of a cohort's ``bought_h``, say, infinity for never, shape (cohorts,)."""
    return _months_of(plan.months, tuple(getattr(cohort, hour) for cohort in cohorts))


@functools.lru_cache(maxsize=64)  # a study's draws of money share them
def _months_of(months: MonthGrid, hours: tuple[float, ...]) -> Floats:
    coordinates = months.coordinate_of_hour(np.array(hours))
    coordinates.flags.writeable = False
    return coordinates


def resale_usd(plan: Plan, cohorts: tuple[Cohort, ...], months: Floats) -> Floats:
    """Return each cohort's resale value at month coordinates of shape (cohorts or 1, times), shape (cohorts, times).

    Servers, accelerators and hosts, fetch their price times the cluster's resale curve at their age; network and
    storage fetch nothing, since no figure for them is known and cabling stays with its building.
    """
    servers = parts_usd(cohorts)[:, :SERVER_PARTS].sum(axis=1)
    ages = months - months_at(plan, cohorts, "bought_h")[:, None]
    curves = [plan.money.capital.resale[cohort.cluster] for cohort in cohorts]
    fractions = np.stack([curve.fraction(age) for curve, age in zip(curves, ages, strict=True)])
    return np.asarray(servers[:, None] * fractions, dtype=np.float64)


def is_owned(plan: Plan, cohorts: tuple[Cohort, ...]) -> Bools:
    """Return whether each cohort is paid for and not yet retired at each month's end, shape (cohorts, months)."""
    edges = plan.months.edge_coordinates[None, 1:]
    bought, retired = (
        months_at(plan, cohorts, hour)[:, None] for hour in ("bought_h", "retired_h")
    )
    return np.asarray((bought < edges) & (retired >= edges))


def owned_value_cents(plan: Plan, cohorts: tuple[Cohort, ...]) -> Cents:
    """Return the proceeds before tax of selling all owned cohorts at each month's end, shape (cohorts, months)."""
    if plan.money.capital.end_value == "none":
        return np.zeros((len(cohorts), plan.months.period_count), dtype=np.int64)
    worth = resale_usd(plan, cohorts, plan.months.edge_coordinates[None, 1:])
    return cents(np.where(is_owned(plan, cohorts), worth, 0.0))


def opening_value_cents(plan: Plan, cohorts: tuple[Cohort, ...], rules: TaxRules | None) -> Cents:
    """Return the proceeds after tax of selling all owned cohorts on the first day, shape (cohorts,).

    V − t·(V − tax basis), V the resale value at its age. It is what keeping the machines costs their owner: without it,
    their value on the last day would look like a gain.
    """
    if plan.money.capital.end_value == "none":
        return np.zeros(len(cohorts), dtype=np.int64)
    worth = resale_usd(plan, cohorts, plan.months.edge_coordinates[None, :1])[:, 0]
    value = cents(np.where(is_opening(cohorts), worth, 0.0))
    if rules is None:
        return value
    gain = np.where(is_opening(cohorts), value - _opening_basis_cents(plan, cohorts, rules), 0)
    return value - cents(usd(gain) * rules.rate_fraction)


def _opening_basis_cents(plan: Plan, cohorts: tuple[Cohort, ...], rules: TaxRules) -> Cents:
    """Return the tax basis of owned cohorts on the first day, zero for all others, shape (cohorts,)."""
    assets = assets_of(plan, cohorts)
    deducted = depreciation.tax_depreciation(assets, plan.months, rules.bonus_fraction).before_cents
    return np.where(is_opening(cohorts), cents(assets.cost_usd) - deducted, 0)


def opening_of(plan: Plan, cohorts: tuple[Cohort, ...], log: ChangeLog) -> Opening:
    """Return the opening balance: cash, hardware at book value, deferred tax on it as recognised, deposits."""
    book, deferred = np.zeros((2, len(plan.clusters) + 1), dtype=np.int64)
    rules = plan.money.market.tax
    if is_opening(cohorts).any():
        held = depreciate(assets_of(plan, cohorts), plan.months.edge_coordinates).opening_book_cents
        np.add.at(book, [cohort.cluster for cohort in cohorts], held)
    if rules is not None:
        deferred[-1] = depreciation.recognised(
            opening_deferred_cents(plan, cohorts, rules, int(book.sum())), rules
        )
    positions = {
        Position.HARDWARE: book,
        Position.DEFERRED_TAX: deferred,
        Position.DEPOSITS: np.append(order_payments(plan, log).balance_cents(plan)[0], 0),
    }
    return Opening(
        cash_cents=int(cents(plan.money.capital.opening_cash_usd)), position_cents=positions
    )


def opening_deferred_cents(
    plan: Plan, cohorts: tuple[Cohort, ...], rules: TaxRules, book_cents: int
) -> int:
    """Return deferred tax on the first day, t·(book value − tax basis), of hardware; the site's."""
    if not is_opening(cohorts).any():
        return 0
    return int(
        cents(
            usd(book_cents - _opening_basis_cents(plan, cohorts, rules).sum()) * rules.rate_fraction
        )
    )


def tax_base(plan: Plan, cohorts: tuple[Cohort, ...], rules: TaxRules) -> tuple[Cents, Cents]:
    """Return the purchases' part of taxable income, in cents, shape (cohorts, months), and that of selling everything.

    The first are gains on what was retired, less tax depreciation; the second, of what is owned at the month's end, its
    proceeds less the tax basis left.

    The basis counts for all that is owned, whether it would fetch anything or not: what is scrapped is still deducted.
    What is leased and goes back is the lessor's for tax: its payments are deducted, of which interest is a cost anyway.
    What is bought out is a sale on credit: the lessee writes it off.
    """
    assets = assets_of(plan, cohorts)
    tables = depreciation.tax_depreciation(assets, plan.months, rules.bonus_fraction)
    basis = (cents(assets.cost_usd) - tables.before_cents)[:, None] - np.cumsum(
        tables.deduction_cents, axis=1
    )
    income = tables.gain_cents - tables.deduction_cents
    end_gain = np.where(is_owned(plan, cohorts), owned_value_cents(plan, cohorts) - basis, 0)
    for lease in leases_of(plan, cohorts):
        if not lease.terms.is_bought:
            income[lease.rows] = 0
            end_gain[lease.rows] = 0
            income[lease.rows[0]] = -lease.schedule.principal_cents
    return income, end_gain
