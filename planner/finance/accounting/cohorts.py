"""Assets: purchase cohorts, their leases and values, rent for a term as a lease, deposits on orders.

**Orders.** A delivery is in the books at cost on its day. What was paid ahead of it until then is a claim on the
vendor, what is paid after it a debt: one balance, paid − settled, above or below zero. It is worth its amount on the
first and the last day.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Cents, Floats, Ints
from planner.engine.log import ChangeLog, Purchase
from planner.finance import depreciation
from planner.finance.accounts import Position
from planner.finance.depreciation import Cohorts, TaxRules, depreciate
from planner.finance.financing import (
    LeaseSchedule,
    LeaseTerms,
    RightOfUse,
    lease_schedule,
    right_of_use,
)
from planner.finance.ledger import (
    cents,
    series_cents,
    split_cents,
    usd,
    whole_cents,
    zero_cents,
)
from planner.finance.months import MonthGrid
from planner.finance.statements import Opening
from planner.plan.plan import OrderPlan, Plan
from planner.records import record
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
        has_begun = months >= edges[0]
        inside = has_begun & (months < edges[-1])
        # To the right of an edge: what falls on a month's first instant is of that month.
        inside_months = months[inside]
        period = np.searchsorted(edges, inside_months, side="right") - 1
        shape = (edges.size - 1, len(plan.clusters))
        table = np.zeros(shape, dtype=amounts.dtype)
        # Several payments may fall on one month and cluster: plain indexing would keep the last of them.
        cell = (period, self.cluster[inside])
        np.add.at(table, cell, amounts[inside])
        return table

    def balance_cents(self, plan: Plan) -> Cents:
        """Return amounts paid and not settled at each period's start and the end, shape (periods + 1, clusters)."""
        edges = plan.months.edge_coordinates[:, None]
        # +1 while paid ahead of delivery, −1 while delivered and owed, 0 once both have happened.
        is_paid = (self.paid_months < edges).astype(np.int64)
        is_open = is_paid - (self.settled_months < edges)
        shape = (edges.size, len(plan.clusters))
        table = zero_cents(shape)
        balance = self.amount_cents * is_open
        # By cluster on the first axis of the transposed views; the table itself is filled.
        np.add.at(table.T, self.cluster, balance.T)
        return table

    def charge_usd(self, plan: Plan) -> Floats:
        """Return the capital charge on the balance, shape (periods, clusters).

        ±amount·((1 + r)^(h/12) − 1), h the share of a month for which it is open, as of hardware's book value.
        """
        edges = plan.months.edge_coordinates
        growth = np.log1p(plan.money.capital.discount_rate_per_year)
        # Paid or delivered, whichever comes first, opens the balance; a debt to the vendor earns the charge.
        opens, closes = np.sort([self.paid_months, self.settled_months], axis=0)
        sign = np.where(self.paid_months < self.settled_months, 1.0, -1.0)
        ends = np.minimum(edges[1:, None], closes)
        starts = np.maximum(edges[:-1, None], opens)
        # Below zero in periods that the balance does not touch.
        open_months = np.maximum(ends - starts, 0.0)
        interest = np.expm1(growth * open_months / MONTHS_PER_YEAR)
        charge = usd(self.amount_cents) * sign * interest
        shape = (edges.size - 1, len(plan.clusters))
        table = np.zeros(shape)
        np.add.at(table.T, self.cluster, charge.T)
        return table

    def mean_months(self, plan: Plan, months: Floats) -> Floats:
        """Return the mean month coordinate of each period's amounts, shape (periods, clusters); 0 without any."""
        total = self.by_period(plan, months)
        weighted = self.by_period(plan, months, self.amount_cents * months)
        mean = np.zeros(total.shape)
        np.divide(weighted, total, out=mean, where=total > 0)
        return mean


def parts_due(order: OrderPlan, purchase: Purchase) -> list[tuple[float, int]]:
    """Return when each stated part of a purchase is due and its cents, and last what is due on delivery."""
    stated = [payment.fraction for payment in order.payments]
    rest = max(1.0 - sum(stated), 0.0)
    shares = np.array([*stated, rest])
    price = cents(purchase.nodes * sum(purchase.prices_usd))
    # Stated shares may sum to a hair above one; the split needs exactly one.
    parts = split_cents(price, shares / shares.sum())
    due_h = []
    for payment in order.payments:
        start_h = purchase.placed_h if payment.from_order else purchase.time_h
        due_h.append(start_h + payment.after_h)
    due_h.append(purchase.time_h)
    return list(zip(due_h, parts.tolist(), strict=True))


def order_payments(plan: Plan, log: ChangeLog) -> OrderPayments:
    """Return all payments on orders on other days than delivery, for orders delivered or not.

    A delivery that would come after its cluster is gone is cancelled on that day, and what was paid on it is lost.
    """
    rows: list[tuple[int, int, float, float, bool]] = []
    for purchase in (*log.purchases, *log.undelivered):
        cluster = plan.clusters[purchase.cluster]
        order = cluster.order
        # What was owned at the start has no order day, and nothing of it is still to be paid.
        if order is None or not np.isfinite(purchase.placed_h):
            continue
        retire_h = cluster.retire_h
        is_lost = purchase in log.undelivered and purchase.time_h >= retire_h
        settled_h = retire_h if is_lost else purchase.time_h
        # The last part is due on delivery: it is capex on its day, and opens no balance.
        for paid_h, amount in parts_due(order, purchase)[:-1]:
            is_cancelled = is_lost and paid_h >= retire_h
            opens_balance = paid_h != settled_h
            if amount and opens_balance and not is_cancelled:
                rows.append((purchase.cluster, amount, paid_h, settled_h, is_lost))
    # Without rows zip yields no columns to unpack.
    clusters, amount_cents, paid, settled, lost = zip(*rows, strict=True) if rows else ((),) * 5
    coordinates = plan.months.coordinate_of_hour
    return OrderPayments(
        cluster=np.array(clusters, dtype=np.intp),
        amount_cents=np.array(amount_cents, dtype=np.int64),
        paid_months=coordinates(np.array(paid, dtype=np.float64)),
        settled_months=coordinates(np.array(settled, dtype=np.float64)),
        is_lost=np.array(lost, dtype=np.bool_),
    )


@record
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
        if self.component <= 0:
            return self.nodes
        return 0


AllCohorts = tuple[Cohort, ...]
"""The cohorts of a run, by cluster in the order of entry into service."""


def cohorts_of(plan: Plan, log: ChangeLog) -> AllCohorts:
    """Return the purchase cohorts; partly retired ones are split in two, first in, first out.

    What never serves leaves with its cluster, if that is retired. Where the kinds of a node's parts have books of their
    own there is a cohort for each.
    """
    cohorts: list[Cohort] = []
    for index, cluster in enumerate(plan.clusters):
        # Within the horizon only: what is retired after it is still there on the last day.
        dissolved_h = np.inf
        if cluster.retire_h < plan.hours:
            dissolved_h = cluster.retire_h
        # Nodes retired together, in order; the front of the queue takes from the oldest lot that serves.
        retirements = deque(
            (change.time_h, -change.accelerators // cluster.accelerators_per_node)
            for change in log.changes
            if change.kind == "retired" and change.cluster == index
        )
        cohorts_made = Counter[int]()
        nodes_made = Counter[int]()
        # By the hour of entry: the oldest lot is the first to leave, and what never enters comes last.
        lots = sorted(_lots(plan, log, index))
        for in_service_h, delivery, nodes, purchase in lots:
            serves = np.isfinite(in_service_h)
            nodes_left = nodes
            # Ends, since each round takes at least one node: retirements of none are never in the queue.
            while nodes_left:
                size = nodes_left
                retired_h = np.inf if serves else dissolved_h
                if serves and retirements:
                    retired_h, leaving = retirements.popleft()
                    size = min(nodes_left, leaving)
                    if leaving > size:
                        retirements.appendleft((retired_h, leaving - size))
                suffix = _suffix(cohorts_made[delivery])
                cohort = Cohort(
                    name=f"{cluster.name}-{delivery}{suffix}",
                    cluster=index,
                    nodes=size,
                    first_node=nodes_made[delivery],
                    bought_h=purchase.time_h,
                    # The mean day of a lot may lie after the day on which some of its nodes are retired.
                    in_service_h=min(in_service_h, retired_h) if serves else np.inf,
                    retired_h=retired_h,
                    prices_usd=purchase.prices_usd,
                )
                if index in plan.money.capital.components:
                    cohorts += _component_cohorts(cohort)
                else:
                    cohorts.append(cohort)
                nodes_left -= size
                cohorts_made[delivery] += 1
                nodes_made[delivery] += size
    return tuple(cohorts)


def _suffix(number: int) -> str:
    """Return what tells a delivery's cohorts apart: nothing for the first, then -a to -z, -aa and so on."""
    letters = ""
    while number:
        # Letters have no zero, so the number is counted from one in base 26.
        number, letter = divmod(number - 1, len(ascii_lowercase))
        letters = ascii_lowercase[letter] + letters
    return f"-{letters}" if letters else ""


def _component_cohorts(cohort: Cohort) -> Iterator[Cohort]:
    """Yield a cohort for each kind of part that costs something, and always one of accelerators, which counts nodes."""
    before_usd = 0.0
    kinds = zip(COMPONENTS, cohort.prices_usd, strict=True)
    for place, (kind, price) in enumerate(kinds):
        if price > 0 or place == 0:
            prices = [0.0] * len(COMPONENTS)
            prices[place] = price
            yield replace(
                cohort,
                name=f"{cohort.name}-{kind}",
                prices_usd=tuple(prices),
                component=place,
                before_usd=before_usd,
            )
        before_usd += price


def _lots(plan: Plan, log: ChangeLog, cluster: int) -> list[tuple[float, int, int, Purchase]]:
    """Return a cluster's deliveries by month of entry into service, and the nodes that never enter.

    When they enter service, the number of the delivery from 1, nodes, and the purchase.
    """
    per_node = plan.clusters[cluster].accelerators_per_node
    lots = []
    delivery = 0
    for place, purchase in enumerate(log.purchases):
        if purchase.cluster != cluster:
            continue
        delivery += 1
        entered = [change for change in log.changes if change.purchase == place]
        times = np.array([change.time_h for change in entered])
        accelerators = np.array([change.accelerators for change in entered], dtype=np.int64)
        nodes = accelerators // per_node
        months = plan.months.period_of_hour(times)
        for month in sorted(set(months.tolist())):
            inside = months == month
            count = int(nodes[inside].sum())
            # Straight-line depreciation from the mean day is the sum of that of the single nodes.
            mean_h = float(times[inside] @ nodes[inside]) / count
            # Of nodes that all enter at delivery the mean may round to a hair before it.
            in_service_h = max(mean_h, purchase.time_h)
            lots.append((in_service_h, delivery, count, purchase))
        waiting = purchase.nodes - int(nodes.sum())
        if waiting > 0:
            lots.append((np.inf, delivery, waiting, purchase))
    return lots


def parts_usd(cohorts: AllCohorts) -> Floats:
    """Return the cost of each cohort's accelerators, hosts, network and storage, shape (cohorts, 4)."""
    nodes = np.array([cohort.nodes for cohort in cohorts], dtype=np.float64)
    prices = np.array([cohort.prices_usd for cohort in cohorts])
    # An array of no cohorts has one axis, and is given the four columns here.
    columns = len(COMPONENTS)
    return prices.reshape(-1, columns) * nodes[:, None]


def cost_cents(cohorts: AllCohorts) -> Cents:
    """Return the cost of each cohort, shape (cohorts,), rounded on the running total of its delivery.

    cents = round(p·(f + n)) − round(p·f), p the price of a node, f the nodes before it: a delivery's cohorts sum to
    what was paid for it. Of one kind of parts it is that up to this kind less that up to the one before.
    """
    first_node = np.array([cohort.first_node for cohort in cohorts])
    nodes = np.array([cohort.nodes for cohort in cohorts])
    before_usd = np.array([cohort.before_usd for cohort in cohorts])
    own_usd = np.array([sum(cohort.prices_usd) for cohort in cohorts])
    node_usd = before_usd + own_usd

    def delivered_cents(price_usd: Floats) -> Cents:
        end_node = first_node + nodes
        return cents(price_usd * end_node) - cents(price_usd * first_node)

    return delivered_cents(node_usd) - delivered_cents(before_usd)


@record
class Lease:
    """One delivery under a finance lease."""

    cluster: int
    rows: Ints
    """Its cohorts."""
    terms: LeaseTerms
    schedule: LeaseSchedule


def leases_of(plan: Plan, cohorts: AllCohorts) -> list[Lease]:
    """Return the finance leases of all deliveries; a lease ends early when its cluster retires."""
    leases = []
    for index, cluster in enumerate(plan.clusters):
        if cluster.lease is None:
            continue
        # A lease that outlives the horizon is not ended early by it.
        leaves_h = np.inf
        if cluster.retire_h < plan.hours:
            leaves_h = cluster.retire_h
        leaves = float(plan.months.coordinate_of_hour(np.array(leaves_h)))
        rows_by_day: dict[float, list[int]] = {}
        for row, cohort in enumerate(cohorts):
            if cohort.cluster == index:
                rows_by_day.setdefault(cohort.bought_h, []).append(row)
        for signed_h, rows in sorted(rows_by_day.items()):
            # Rounded on the delivery's running total, so the cohorts sum to what is owed to the cent.
            lease_cohorts = tuple(cohorts[row] for row in rows)
            owed = cost_cents(lease_cohorts).sum()
            schedule = lease_schedule(
                cluster.lease,
                int(owed),
                plan.months.months_after(signed_h, cluster.lease.term_months),
                plan.months.edge_coordinates,
                leaves,
            )
            leases.append(
                Lease(cluster=index, rows=np.array(rows), terms=cluster.lease, schedule=schedule)
            )
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
        rents_usd_per_h = cluster.rent.term_usd_per_h
        terms = zip(edges[:-1], edges[1:], rents_usd_per_h, strict=True)
        for begins, stated, price in terms:
            ends = min(stated, cluster.retire_h)
            is_signed = begins < min(ends, plan.hours)
            if not is_signed:
                continue
            # Both kinds of months: those of the horizon, and calendar months to which a term runs on after it.
            months = (*plan.months.month_firsts[0], *plan.month_edges_h)
            split = np.unique([begins, ends, *months])
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
        inside = month < months
        cluster_rent = contracted[:, cluster]
        np.add.at(cluster_rent, month[inside], rent_usd[inside])
    for cluster, edge_h, rent_usd in terms:
        rent = plan.clusters[cluster].rent
        month_lengths = np.diff(plan.months.coordinate_of_hour(edge_h))
        # A hair beyond twelve months is a year: coordinates of days round.
        is_short = month_lengths.sum() <= MONTHS_PER_YEAR + 1e-9
        if rent is None or not rent.is_lease or is_short:
            continue
        month = plan.months.period_of_hour(edge_h[:-1])
        # Parts are in the order of time: those inside the horizon are the first ones.
        month = month[month < months]
        horizon_parts = slice(0, month.size)
        # Inside the horizon rent is what was posted, to the cent; two terms may share the month of a renewal.
        paid = series_cents(rent_usd)
        share = rent_usd[horizon_parts] / contracted[month, cluster]
        paid[horizon_parts] = whole_cents(rent_cents[month, cluster] * share)
        growth = capital.borrowing_rate_per_year / MONTHS_PER_YEAR * month_lengths
        hours = np.diff(edge_h)
        share_of_term = hours / hours.sum()
        lease = right_of_use(paid, growth, share_of_term, capital.books)
        shape = (len(RightOfUse._fields), months)
        columns = zero_cents(shape)
        by_part = np.array(lease)
        columns[:, month] = by_part[:, horizon_parts]
        yield cluster, RightOfUse(*columns)


def provisioned_kw(plan: Plan, present_node_h: Floats) -> Floats:
    """Return the nameplate power of the nodes on site, averaged over each month, shape (months, clusters)."""
    nameplate = np.array([cluster.nameplate_kw for cluster in plan.clusters])
    nodes = present_node_h / plan.months.period_hours[:, None]
    nameplate_kw: Floats = nodes * plan.on_site * nameplate
    return nameplate_kw


def assets_of(plan: Plan, cohorts: AllCohorts) -> Cohorts:
    """Return the cohorts as fixed assets: cost, residual, life, and proceeds of retirement.

    Cost and residual are whole cents, so that a spreadsheet that repeats the schedule finds the same cents. Resale
    value falls with age since delivery, in service or not. What came before the start has served since.
    """
    capital = plan.money.capital
    cost = usd(cost_cents(cohorts))
    bought = months_at(plan, cohorts, "bought_h")
    in_service, retired = service_months(plan, cohorts)
    stays = np.isinf(retired)
    # No curve has a value at infinity: what stays is read at age zero, and not sold.
    sale_months = np.where(stays, bought, retired)
    sale_values_usd = resale_usd(plan, cohorts, sale_months[:, None])
    proceeds = sale_values_usd[:, 0]
    books = [capital.books_of(cohort.cluster, cohort.component) for cohort in cohorts]
    life = np.array([float(months) for months, _ in books])
    life_end = bought + life
    end_values_usd = resale_usd(plan, cohorts, life_end[:, None])
    resale = end_values_usd[:, 0]
    # NaN where the books state no residual: there the resale curve at the end of the life stands in.
    # None becomes NaN.
    stated = np.array([share for _, share in books], dtype=np.float64)
    residual = np.where(np.isnan(stated), resale, cost * stated)
    assets = depreciation.make_cohorts(
        cost,
        in_service,
        # Nothing is written up: a residual above cost would be negative depreciation.
        residual_usd=usd(cents(np.minimum(residual, cost))),
        life_months=life,
        declining_factor=capital.declining_factor,
        disposal=(retired, np.where(stays, 0.0, proceeds)),
        acquired_months=bought,
    )
    return _restated(plan, cohorts, assets)


def _restated(plan: Plan, cohorts: AllCohorts, assets: Cohorts) -> Cohorts:
    """Return the assets with the book values and remaining lives stated for what is owned at the start.

    A book value that is not stated is cost less depreciation since the purchase; a life that is not stated is what is
    left of the book life, in whole months. Without a month left the book value stays as it is.
    """
    start = plan.months.edge_coordinates[0]
    basis = assets.basis_usd.copy()
    basis_months = assets.basis_months.copy()
    residual = assets.residual_usd.copy()
    life = assets.life_months.copy()
    starts = np.full((assets.count, 1), start)
    charged_cents = depreciation.accumulated_cents(assets, starts)
    charged = usd(charged_cents)[:, 0]
    for row, cohort in enumerate(cohorts):
        owned = plan.clusters[cohort.cluster].owned
        # A cluster may also grow by orders; only what was bought on the stated day is restated.
        if owned is None or cohort.bought_h != owned.bought_h:
            continue
        if owned.book_value_usd is None and owned.remaining_months is None:
            continue
        basis[row] = assets.cost_usd[row] - charged[row]
        basis_months[row] = start
        if owned.book_value_usd is not None:
            # Rounded on the running total of the delivery's nodes, as its cost is.
            end_node = cohort.first_node + cohort.nodes
            end_cents = cents(owned.book_value_usd * end_node)
            start_cents = cents(owned.book_value_usd * cohort.first_node)
            basis[row] = usd(end_cents - start_cents)
        months_left = owned.remaining_months
        if months_left is None:
            life_end = assets.acquired_months[row] + life[row]
            months_left = max(np.ceil(life_end - start), 0.0)
        # With the residual at the basis nothing is left to write off, whatever the life.
        residual[row] = basis[row]
        if months_left:
            residual[row] = min(assets.residual_usd[row], basis[row])
        # The schedule divides by the life: what is written off already keeps a month of it.
        life[row] = max(months_left, 1.0)
    return replace(
        assets, basis_usd=basis, basis_months=basis_months, residual_usd=residual, life_months=life
    )


def service_months(plan: Plan, cohorts: AllCohorts) -> tuple[Floats, Floats]:
    """Return the month coordinates at which each cohort begins to serve and is retired, shape (cohorts,) each."""
    in_service = months_at(plan, cohorts, "in_service_h")
    bought = months_at(plan, cohorts, "bought_h")
    # What was owned before the start has served since it was bought; the log only knows the first day.
    in_service = np.where(is_opening(cohorts), bought, in_service)
    return in_service, months_at(plan, cohorts, "retired_h")


def owners(cohorts: AllCohorts) -> Ints:
    """Return the cluster of each cohort, shape (cohorts,)."""
    return np.array([cohort.cluster for cohort in cohorts], dtype=np.intp)


def is_opening(cohorts: AllCohorts) -> Bools:
    """Return whether each cohort was delivered and paid before the start, shape (cohorts,)."""
    return np.array([cohort.bought_h < 0 for cohort in cohorts], dtype=bool)


def nodes_in_service(plan: Plan, cohorts: AllCohorts) -> Floats:
    """Return the nodes of each cohort in service, averaged over each month by the hour, shape (cohorts, months)."""
    # Down the rows, so that months can run along them.
    node_counts = [cohort.nodes for cohort in cohorts]
    nodes = np.array(node_counts, dtype=np.float64)[:, None]
    begin_h = np.array([cohort.in_service_h for cohort in cohorts])[:, None]
    end_h = np.array([cohort.retired_h for cohort in cohorts])[:, None]
    edges = plan.month_edges_h.astype(np.float64)
    ends = np.minimum(edges[1:], end_h)
    begins = np.maximum(edges[:-1], begin_h)
    # Hours of the month in which the cohort serves: negative where it serves in none of them.
    hours = np.maximum(ends - begins, 0.0)
    mean_nodes: Floats = nodes * hours / plan.months.period_hours
    return mean_nodes


def months_at(plan: Plan, cohorts: AllCohorts, hour: str) -> Floats:
    """Return the month coordinate of a cohort's ``bought_h``, say, infinity for never, shape (cohorts,)."""
    # A tuple, since the cache below needs a key that can be hashed.
    hours = tuple(getattr(cohort, hour) for cohort in cohorts)
    return _months_of(plan.months, hours)


@functools.lru_cache(maxsize=64)  # a study's draws of money share them
def _months_of(months: MonthGrid, hours: tuple[float, ...]) -> Floats:
    coordinates = months.coordinate_of_hour(np.array(hours))
    # All callers share the cached array.
    coordinates.flags.writeable = False
    return coordinates


def resale_usd(plan: Plan, cohorts: AllCohorts, months: Floats) -> Floats:
    """Return each cohort's resale value at month coordinates of shape (cohorts or 1, times), shape (cohorts, times).

    Servers, accelerators and hosts, fetch their price times the cluster's resale curve at their age; network and
    storage fetch nothing, since no figure for them is known and cabling stays with its building.
    """
    server_parts = parts_usd(cohorts)[:, :SERVER_PARTS]
    servers = server_parts.sum(axis=1)
    bought = months_at(plan, cohorts, "bought_h")
    ages = months - bought[:, None]
    fractions = []
    for cohort, age in zip(cohorts, ages, strict=True):
        curve = plan.money.capital.resale[cohort.cluster]
        fractions.append(curve.fraction(age))
    value_usd: Floats = servers[:, None] * np.stack(fractions)
    return value_usd


def is_owned(plan: Plan, cohorts: AllCohorts) -> Bools:
    """Return whether each cohort is paid for and not yet retired at each month's end, shape (cohorts, months)."""
    month_ends = plan.months.edge_coordinates[None, 1:]
    bought = months_at(plan, cohorts, "bought_h")[:, None]
    retired = months_at(plan, cohorts, "retired_h")[:, None]
    # Retired on the last instant of a month, it still counts as owned then.
    return (bought < month_ends) & (retired >= month_ends)


def owned_value_cents(plan: Plan, cohorts: AllCohorts) -> Cents:
    """Return the proceeds before tax of selling all owned cohorts at each month's end, shape (cohorts, months)."""
    if plan.money.capital.end_value == "none":
        return zero_cents((len(cohorts), plan.months.period_count))
    month_ends = plan.months.edge_coordinates[None, 1:]
    worth = resale_usd(plan, cohorts, month_ends)
    owned_worth = np.where(is_owned(plan, cohorts), worth, 0.0)
    return cents(owned_worth)


def opening_value_cents(plan: Plan, cohorts: AllCohorts, rules: TaxRules | None) -> Cents:
    """Return the proceeds after tax of selling all owned cohorts on the first day, shape (cohorts,).

    V − t·(V − tax basis), V the resale value at its age. It is what keeping the machines costs their owner: without it,
    their value on the last day would look like a gain.
    """
    if plan.money.capital.end_value == "none":
        return zero_cents(len(cohorts))
    start = plan.months.edge_coordinates[None, :1]
    worth = resale_usd(plan, cohorts, start)[:, 0]
    opening_worth = np.where(is_opening(cohorts), worth, 0.0)
    value = cents(opening_worth)
    if rules is None:
        return value
    basis = opening_basis_cents(plan, cohorts, rules)
    # What comes later has neither value nor basis here, so its gain is zero as well.
    gain = value - basis
    return value - cents(usd(gain) * rules.rate_fraction)


def opening_basis_cents(plan: Plan, cohorts: AllCohorts, rules: TaxRules) -> Cents:
    """Return the tax basis of owned cohorts on the first day, zero for all others, shape (cohorts,)."""
    assets = assets_of(plan, cohorts)
    tables = depreciation.tax_depreciation(assets, plan.months, rules.bonus_fraction)
    basis = cents(assets.cost_usd) - tables.before_cents
    return np.where(is_opening(cohorts), basis, 0)


def opening_of(plan: Plan, cohorts: AllCohorts, log: ChangeLog) -> Opening:
    """Return the opening balance: cash, hardware at book value, deferred tax on it as recognised, deposits."""
    # A place more than clusters: the last is the site as a whole.
    book = zero_cents(len(plan.clusters) + 1)
    deferred = np.zeros_like(book)
    rules = plan.money.market.tax
    if is_opening(cohorts).any():
        assets = assets_of(plan, cohorts)
        schedule = depreciate(assets, plan.months.edge_coordinates)
        np.add.at(book, owners(cohorts), schedule.opening_book_cents)
    if rules is not None:
        book_cents = int(book.sum())
        owed = opening_deferred_cents(plan, cohorts, rules, book_cents)
        deferred[-1] = depreciation.recognised(owed, rules)
    deposits = order_payments(plan, log).balance_cents(plan)[0]
    return Opening(
        cash_cents=int(cents(plan.money.capital.opening_cash_usd)),
        position_cents={
            Position.HARDWARE: book,
            Position.DEFERRED_TAX: deferred,
            Position.DEPOSITS: np.append(deposits, 0),
        },
    )


def opening_deferred_cents(
    plan: Plan, cohorts: AllCohorts, rules: TaxRules, book_cents: int
) -> int:
    """Return deferred tax on the first day, t·(book value − tax basis), of hardware; the site's."""
    if not is_opening(cohorts).any():
        return 0
    difference = book_cents - opening_basis_cents(plan, cohorts, rules).sum()
    return int(cents(usd(difference) * rules.rate_fraction))


def tax_base(plan: Plan, cohorts: AllCohorts, rules: TaxRules) -> tuple[Cents, Cents]:
    """Return the purchases' part of taxable income, in cents, shape (cohorts, months), and that of selling everything.

    The first are gains on what was retired, less tax depreciation; the second, of what is owned at the month's end, its
    proceeds less the tax basis left.

    The basis counts for all that is owned, whether it would fetch anything or not: what is scrapped is still deducted.
    What is leased and goes back is the lessor's for tax: its payments are deducted, of which interest is a cost anyway.
    What is bought out is a sale on credit: the lessee writes it off.
    """
    assets = assets_of(plan, cohorts)
    tables = depreciation.tax_depreciation(assets, plan.months, rules.bonus_fraction)
    deducted = np.cumsum(tables.deduction_cents, axis=1)
    opening_basis = cents(assets.cost_usd) - tables.before_cents
    # Tax basis left at each month's end: cost less all that was deducted until then.
    basis = opening_basis[:, None] - deducted
    income = tables.gain_cents - tables.deduction_cents
    proceeds = owned_value_cents(plan, cohorts)
    gain = proceeds - basis
    end_gain = np.where(is_owned(plan, cohorts), gain, 0)
    for lease in leases_of(plan, cohorts):
        if not lease.terms.is_bought:
            income[lease.rows] = 0
            end_gain[lease.rows] = 0
            # The debt is of the whole delivery, and its rows are only summed: one of them bears it.
            income[lease.rows[0]] = -lease.schedule.principal_cents
    return income, end_gain
