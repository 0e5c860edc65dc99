"""Posts a run's ledger from its machines and energy; the only writer of the ledger."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from planner.arrays import Cents, Floats
from planner.engine.driver import Run
from planner.engine.hourly import joined
from planner.engine.log import ChangeLog
from planner.engine.rental import Rented
from planner.finance import depreciation, ledger
from planner.finance.depreciation import DepreciationSchedule, TaxRules
from planner.finance.financing import (
    Books,
    LoanTerms,
    contracted_kw,
    loan_schedule,
    open_cents,
    yearly_cost_usd,
)
from planner.finance.ledger import (
    CAPEX_ACCOUNTS,
    Account,
    Ledger,
    Position,
    series_cents,
    split_cents,
    usd,
)
from planner.finance.statements import check_positions, monthly_statements
from planner.finance.tariffs import carbon_cost_usd, demand_charges_of_peaks_usd, operational_kg
from planner.plan.parts import Headcount
from planner.plan.plan import Plan
from planner.plan.quantities import missed_requests, settled_requests, shares, shed_requests
from planner.run import cohorts as purchases
from planner.run.cohorts import Cohort, OrderPayments
from planner.run.monthly import Monthly, check_books, shares_of_power
from planner.units import MILLION, MONTHS_PER_YEAR

_SAME_KW = 1e-6
MOST_LOAD = 0.9
"""Load of a queue beyond which it is named; with one server waits are then nine times the work (M/M/1)."""


def people(
    plan: Plan, log: ChangeLog, headcount: Headcount, clusters: Sequence[int], accelerators: Floats
) -> Floats:
    """Return headcount by month and cluster: ∫ number(accelerators) dt / hours · share, shape (months, clusters).

    It grows with the accelerators of some clusters together, and is the cost of each by its share of them, or of all
    alike in a month without any. ``accelerators`` are means of each month, shape (months, clusters).
    """
    edges = plan.month_edges_h.astype(np.float64)
    changes = sorted(
        change
        for change in log.changes
        if change.cluster in clusters and change.time_h < plan.hours
    )
    moments = np.array([0.0, *(change.time_h for change in changes), float(plan.hours)])
    on_site = np.cumsum([0, *(change.accelerators for change in changes)])
    level = np.array([headcount.number(count) for count in on_site.tolist()])
    spent = np.concatenate(
        ([0.0], np.cumsum(level * np.diff(moments)))
    )  # linear between moments, so read by interp
    by_month = np.diff(np.interp(edges, moments, spent)) / np.diff(edges)
    belongs = np.isin(np.arange(len(plan.clusters)), clusters).astype(np.float64)
    return np.asarray(by_month[:, None] * shares(accelerators * belongs, belongs), dtype=np.float64)


def overloaded(plan: Plan, monthly: Monthly) -> list[str]:
    """Return the queues for crews and engineers whose load exceeds 0.9 in some month, where waits grow fast."""
    reliability = plan.reliability
    per_node = plan.accelerators_per_node
    queues: dict[str, list[tuple[float, int]]] = {}
    engineer_load = functools.cache(
        plan.engineer_load
    )  # of a team and its number, which is the same for many months
    for month in monthly.present_node_h / plan.months.period_hours[:, None]:
        if crews := reliability.crews.number(float((month * plan.on_site) @ per_node)):
            name = "repair crews (reliability.repair_crews)"
            queues.setdefault(name, []).append((plan.crew_load(month, crews), crews))
        for number, team in enumerate(plan.software.teams):
            members = list(team.clusters)
            if engineers := team.engineers.number(float(month[members] @ per_node[members])):
                name = f"engineers of {team.name} (software.engineers)"
                queues.setdefault(name, []).append((engineer_load(number, engineers), engineers))
    warnings = []
    for name, loads in queues.items():
        load, people_there = max(loads)
        if load > MOST_LOAD:
            warnings.append(
                f"the {people_there} {name} are at a load of {load:.2f}: above {MOST_LOAD:g} work piles up"
            )
    return warnings


def rma_usd(plan: Plan, run: Run) -> Floats:
    """Return the freight of every hard failure's part, and the part's price after the warranty.

    Shape (months, clusters). A failure that found its machine already down broke nothing and costs nothing.
    """
    upkeep = plan.money.upkeep
    grid = plan.months
    cost = np.zeros((grid.period_count, len(plan.clusters)))
    time_h, cluster, node = run.shop.hard_failures()
    bought_h = np.zeros(time_h.shape)
    for index in range(len(plan.clusters)):
        # Nodes are numbered in the order of the log; the warranty runs from delivery.
        entered = [
            change for change in run.log.changes if change.cluster == index and change.purchase >= 0
        ]
        nodes = [
            change.accelerators // plan.clusters[index].accelerators_per_node for change in entered
        ]
        paid_h = np.repeat([run.log.purchases[change.purchase].time_h for change in entered], nodes)
        bought_h[cluster == index] = paid_h[node[cluster == index]]
    expired = time_h - bought_h >= upkeep.warranty_h
    unit_usd = upkeep.rma_usd + np.where(expired, upkeep.replacement_usd[cluster], 0.0)
    np.add.at(cost, (grid.period_of_hour(time_h), cluster), unit_usd)
    return cost


class _Books:
    """The ledger being built, its inputs, and the figures that tax needs."""

    def __init__(self, plan: Plan, cohorts: tuple[Cohort, ...]) -> None:
        self.plan = plan
        self.cohorts = cohorts
        self.owner = np.array([cohort.cluster for cohort in cohorts], dtype=np.intp)
        self.is_leased = np.array(
            [plan.clusters[c].lease is not None for c in self.owner], dtype=bool
        )[:, None]
        """Whether each cohort is under a finance lease, shape (cohorts, 1)."""
        self.months = np.arange(plan.months.period_count)
        clusters = tuple(cluster.name for cluster in plan.clusters)
        names = tuple(cohort.name for cohort in cohorts)
        labels = ledger.LedgerLabels(months=plan.months.labels, clusters=clusters, cohorts=names)
        self.builder = ledger.LedgerBuilder(labels)
        self.running_cents = np.zeros(self.months.size, dtype=np.int64)
        """Costs less income of each month that are deducted from taxable income as they are paid."""
        self.written_off_cents = np.zeros(self.months.size, dtype=np.int64)
        """Book depreciation and losses on disposal of each month, and what leases of rented machines add to rent."""
        self.lent_cents = np.zeros(self.months.size, dtype=np.int64)
        """Interest and amortised fees of loans in each month."""
        self.opening_book_cents = np.zeros(0, dtype=np.int64)
        """By cohort."""
        self.held: dict[Position, Cents] = {}
        """What is owned and owed by month and cluster, the site as a whole last."""

    def by_cluster(self, by_cohort: Cents) -> Cents:
        """Return a table of shape (cohorts, months) summed by cluster, shape (months, clusters + 1)."""
        table = np.zeros((len(self.plan.clusters) + 1, self.months.size), dtype=np.int64)
        np.add.at(table, self.owner, by_cohort)
        return table.T

    def hold(self, position: Position, by_cluster: Cents) -> None:
        """Add what is held by month and cluster, shape (months, clusters) or with the site as a whole last."""
        if position not in self.held:
            self.held[position] = np.zeros(
                (self.months.size, len(self.plan.clusters) + 1), dtype=np.int64
            )
        self.held[position][:, : by_cluster.shape[1]] += by_cluster


def write_ledger(
    plan: Plan, run: Run, monthly: Monthly, cohorts: tuple[Cohort, ...], rented: Rented
) -> Ledger:
    """Post every account of a run."""
    books = _Books(plan, cohorts)
    if cohorts:
        schedule = depreciation.depreciate(
            purchases.assets_of(plan, cohorts), plan.months.edge_coordinates
        )
        books.opening_book_cents = schedule.opening_book_cents
        _post_capital(books, schedule)
        _post_leases(books, schedule)
        if plan.money.capital.loan is not None:
            _post_loan(books, schedule, plan.money.capital.loan)
    _post_orders(books, purchases.order_payments(plan, run.log))
    sold, bought = np.zeros((2, books.months.size, len(plan.clusters) + 1), dtype=np.int64)
    for account, amount_usd in running_usd(plan, run, monthly, cohorts, rented):
        posted = series_cents(amount_usd)
        if posted.ndim == 1:
            books.builder.post(account, posted, month=books.months)
        else:
            books.builder.post_clusters(account, posted)
        books.running_cents += posted.reshape(books.months.size, -1).sum(axis=1)
        if account is Account.RENT:
            _post_rent_leases(books, posted)
        if account is Account.REVENUE:
            sold[:, -1 if posted.ndim == 1 else slice(-1)] -= posted
        elif account not in _PAID_AT_ONCE:
            bought[:, -1 if posted.ndim == 1 else slice(-1)] += posted
    _post_open(books, sold, bought)
    if plan.money.market.tax is not None:
        _post_tax(books, plan.money.market.tax)
    written = books.builder.build()
    written.check(books.opening_book_cents)
    check_books(plan, run, monthly, cohorts, written)
    opening = purchases.opening_of(plan, cohorts, run.log)
    check_positions(monthly_statements(written, opening, plan.money.capital.books), books.held)
    return written


_PEOPLE = (Account.OPERATIONS_STAFF, Account.SOFTWARE_ENGINEERS)
_PAID_AT_ONCE = (*_PEOPLE, Account.RENT, Account.EXIT_FEES, Account.SLA_CREDITS)
"""Running costs that no vendor gives credit for: pay, rent of machines, fees on leaving, credits to customers."""


def _post_open(books: _Books, sold_cents: Cents, bought_cents: Cents) -> None:
    """Post what customers owe and vendors are owed, from tables of shape (months, clusters + 1)."""
    capital = books.plan.money.capital
    edges = books.plan.months.edge_hours.astype(np.float64)
    clusters = np.arange(len(books.plan.clusters) + 1)
    clusters[-1] = ledger.SHARED
    for position, account, at_end, sign, days, amounts in (
        (
            Position.RECEIVABLES,
            Account.RECEIVABLES,
            Account.RECEIVABLES_END,
            1,
            capital.receivable_days,
            sold_cents,
        ),
        (
            Position.PAYABLES,
            Account.PAYABLES,
            Account.ORDER_BALANCE,
            -1,
            capital.payable_days,
            bought_cents,
        ),
    ):
        balance = open_cents(amounts, days, edges)
        change = sign * np.diff(balance, axis=0, prepend=0)
        books.builder.post(account, change, month=books.months[:, None], cluster=clusters)
        books.builder.post(at_end, -sign * balance[-1], month=books.months[-1], cluster=clusters)
        books.hold(position, balance)


def _post_rent_leases(books: _Books, rent_cents: Cents) -> None:
    """Post rent for terms as leases on the balance sheet: right of use, debt, and their cost in place of rent."""
    is_ifrs = books.plan.money.capital.books is Books.IFRS
    for cluster, lease in purchases.rent_leases(books.plan, rent_cents):
        interest = lease.interest_cents * is_ifrs
        for account, amount in (
            (Account.RENT_LEASED, np.diff(lease.owed_cents, prepend=0)),
            (Account.RENT_CAPITALISED, -lease.paid_cents),
            (Account.RIGHT_OF_USE_COST, lease.cost_cents),
            (Account.RENT_INTEREST, interest),
        ):
            books.builder.post(account, amount, month=books.months, cluster=cluster)
        books.written_off_cents += lease.cost_cents + interest - lease.paid_cents
        column = np.arange(len(books.plan.clusters)) == cluster
        books.hold(Position.RIGHT_OF_USE, lease.asset_cents[:, None] * column)
        books.hold(Position.LEASES, lease.owed_cents[:, None] * column)


def _post_capital(books: _Books, schedule: DepreciationSchedule) -> None:
    """Post purchases, depreciation, disposals, the capital charge and the end value."""
    plan = books.plan
    cohorts = books.cohorts
    builder = books.builder
    owner = books.owner
    capital = plan.money.capital
    places = np.arange(len(cohorts))
    entered = (schedule.acquired_cents > 0) & ~books.is_leased
    parts = split_cents(purchases.cost_cents(cohorts), shares(purchases.parts_usd(cohorts)))
    charge_usd = depreciation.capital_charge_usd(schedule, capital.discount_rate_per_year)
    taxed = series_cents(
        depreciation.property_tax_usd(schedule, capital.property_tax_fraction_per_year), axis=1
    )
    for account, amount in (
        *(
            (part, np.where(entered, cost[:, None], 0))
            for part, cost in zip(CAPEX_ACCOUNTS, parts.T, strict=True)
        ),
        (Account.DEPRECIATION, schedule.depreciation_cents),
        (Account.RESALE, -schedule.proceeds_cents),
        (Account.DISPOSAL_LOSS, schedule.disposal_loss_cents),
        (Account.COST_OF_CAPITAL, series_cents(charge_usd, axis=1)),
        (Account.PROPERTY_TAX, taxed),
    ):
        builder.post_cohorts(account, amount, owner)
    books.written_off_cents += (schedule.depreciation_cents + schedule.disposal_loss_cents).sum(
        axis=0
    )
    books.running_cents += taxed.sum(axis=0)
    value = purchases.owned_value_cents(plan, cohorts)[:, -1]
    builder.post(
        Account.RESIDUAL_VALUE, -value, month=books.months[-1], cluster=owner, cohort=places
    )
    kept = purchases.opening_value_cents(plan, cohorts, plan.money.market.tax)
    builder.post(Account.OPENING_VALUE, kept, month=0, cluster=owner, cohort=places)


def _post_loan(books: _Books, schedule: DepreciationSchedule, terms: LoanTerms) -> None:
    """Post a loan on purchases, its fees over its life."""
    loan = loan_schedule(
        terms, books.by_cluster(np.where(books.is_leased, 0, schedule.acquired_cents))[:, :-1]
    )
    amortised = loan.fee_cents - np.diff(loan.fee_left_cents, axis=0, prepend=0)
    for account, amount in (
        (Account.LOAN_DRAWN, -loan.drawn_cents),
        (Account.LOAN_FEES, loan.fee_cents),
        (Account.LOAN_REPAID, loan.repaid_cents),
        (Account.LOAN_INTEREST, loan.interest_cents),
        (Account.LOAN_FEES_AMORTISED, amortised),
    ):
        books.builder.post_clusters(account, amount)
    books.lent_cents += (loan.interest_cents + amortised).sum(axis=1)
    books.hold(Position.LOANS, loan.balance_cents - loan.fee_left_cents)


def _post_leases(books: _Books, schedule: DepreciationSchedule) -> None:
    """Post finance leases: right of use, debt, payments, and the capital charge borne by the lessor.

    The right of use is written off as the cohort is; each month's part of it, and what is left when it is bought out,
    goes over to hardware first.
    """
    plan = books.plan
    builder = books.builder
    months = books.months
    growth = np.log1p(plan.money.capital.discount_rate_per_year) / MONTHS_PER_YEAR
    right = np.zeros_like(schedule.acquired_cents)
    owed = np.zeros((months.size, len(plan.clusters) + 1), dtype=np.int64)
    for lease in purchases.leases_of(plan, books.cohorts):
        drawn = schedule.acquired_cents[lease.rows]
        booked = lease.schedule
        cluster = lease.cluster
        kept = (months < booked.ends) | (not lease.terms.is_bought)
        right[lease.rows] = np.where(kept, schedule.closing_book_cents[lease.rows], 0)
        owed[:, cluster] += booked.balance_cents
        builder.post(
            Account.LEASE_STARTED, drawn, month=months, cluster=cluster, cohort=lease.rows[:, None]
        )
        carried = np.append(0, booked.balance_cents[:-1]) + drawn.sum(axis=0)
        lent = usd(carried) * np.expm1(growth * schedule.held_months[lease.rows[0]])
        for account, amount in (
            (Account.LEASE_PRINCIPAL, booked.principal_cents),
            (Account.LEASE_INTEREST, booked.interest_cents),
            (Account.EXIT_FEES, booked.exit_fee_cents),
            (Account.OTHER_CAPITAL, -series_cents(lent)),
        ):
            builder.post(account, amount, month=months, cluster=cluster)
        if lease.terms.is_bought:
            builder.post(
                Account.LEASE_OWED, booked.balance_cents[-1], month=months[-1], cluster=cluster
            )
        books.running_cents += booked.interest_cents + booked.exit_fee_cents
    used = np.where(books.is_leased, schedule.acquired_cents, 0) - np.diff(right, axis=1, prepend=0)
    builder.post_cohorts(Account.LEASE_USED, used, books.owner)
    right_of_use = books.by_cluster(right)
    books.hold(Position.HARDWARE, books.by_cluster(schedule.closing_book_cents) - right_of_use)
    books.hold(Position.RIGHT_OF_USE, right_of_use)
    books.hold(Position.LEASES, owed)


def _post_orders(books: _Books, orders: OrderPayments) -> None:
    """Post deposits and milestones of orders; amounts lost with a cancelled delivery are exit fees."""
    plan, clusters, balance = (
        books.plan,
        np.arange(len(books.plan.clusters)),
        orders.balance_cents(books.plan),
    )
    lost = orders.by_period(
        plan, orders.settled_months, np.where(orders.is_lost, orders.amount_cents, 0)
    )
    for account, amount in (
        (Account.ORDER_PAID, orders.by_period(plan, orders.paid_months)),
        (Account.ORDER_SETTLED, -orders.by_period(plan, orders.settled_months)),
        (Account.EXIT_FEES, lost),
        (Account.OTHER_CAPITAL, series_cents(orders.charge_usd(plan))),
    ):
        books.builder.post_clusters(account, amount)
    books.running_cents += lost.sum(axis=1)
    books.builder.post(Account.OPENING_VALUE, balance[0], month=0, cluster=clusters)
    books.builder.post(
        Account.ORDER_BALANCE, -balance[-1], month=books.months[-1], cluster=clusters
    )
    books.hold(Position.DEPOSITS, balance[1:])


def running_usd(
    plan: Plan, run: Run, monthly: Monthly, cohorts: tuple[Cohort, ...], rented: Rented
) -> Iterator[tuple[Account, Floats]]:
    """Yield the monthly running amounts by account before rounding: power, upkeep, rent and revenue.

    A table has shape (months, clusters); what belongs to the site as a whole has (months,). Where a process changes a
    price, each month has the mean of the factors of its hours.
    """
    amounts = _power_usd(plan, run, monthly), _upkeep_usd(plan, run, monthly, cohorts)
    for account, amount in itertools.chain(*amounts, _market_usd(plan, monthly, rented)):
        factor = np.ones(plan.months.period_count)
        for effect in run.log.effects:
            if effect.kind == "price" and effect.target == account:
                hours = np.clip(plan.month_edges_h, effect.start_h, min(effect.end_h, plan.hours))
                factor *= 1.0 + (effect.amount - 1.0) * np.diff(hours) / plan.months.period_hours
        yield account, amount * (factor[:, None] if amount.ndim == 2 else factor)


def _market_usd(plan: Plan, monthly: Monthly, rented: Rented) -> Iterator[tuple[Account, Floats]]:
    """Yield rent, its fees, tokens bought and sold, and credits."""
    is_spot = [
        cluster.rent is not None and cluster.rent.interruptions_per_h > 0
        for cluster in plan.clusters
    ]
    held_node_h = np.where(
        is_spot, monthly.in_service_node_h, monthly.present_node_h
    )  # what is taken back is not paid
    rent, fees, apis = np.zeros((3, *held_node_h.shape))
    for index, cluster in enumerate(plan.clusters):
        if cluster.rent is not None:
            rent[:, index] = (
                held_node_h[:, index]
                * cluster.accelerators_per_node
                * cluster.rent.usd_per_accelerator_h
            )
            if cluster.rent.exit_usd_per_accelerator > 0:
                month = int(plan.months.period_of_hour(np.array(cluster.retire_h)))
                accelerators = cluster.nodes * cluster.accelerators_per_node
                fees[month, index] = accelerators * cluster.rent.exit_usd_per_accelerator
        elif cluster.api is not None:
            apis[:, index] = (monthly.served_requests[:, index] * plan.api_request_usd(index)).sum(
                axis=1
            )
    paid = ((Account.RENT, rent), (Account.EXIT_FEES, fees), (Account.API, apis))
    yield from ((account, amount) for account, amount in paid if amount.any())
    market = plan.money.market
    extra = rented.requests
    if market.sla_credit_usd_per_million_tokens > 0:
        beyond = credited_tokens(plan, monthly, rented).sum(axis=1)
        yield Account.SLA_CREDITS, beyond / MILLION * market.sla_credit_usd_per_million_tokens
    if market.burst is not None:
        yield Account.BURST_RENTAL, rented.accelerator_h * market.burst.hourly.usd_per_accelerator_h
    if market.token_price is not None:
        per_request = plan.request_usd(market.token_price)
        yield Account.REVENUE, -(monthly.served_requests * per_request[:, None, :]).sum(axis=2)
        if extra.any():
            yield Account.REVENUE, -(extra * per_request).sum(axis=1)


def credited_tokens(plan: Plan, monthly: Monthly, rented: Rented) -> Floats:
    """Return the tokens late or shed beyond the share that is allowed, shape (months, workloads)."""
    missed = missed_requests(
        monthly.late_requests, shed_requests(monthly.shed_requests, rented.requests)
    )
    settled = settled_requests(monthly.served_requests.sum(axis=1), monthly.shed_requests)
    allowed = (1.0 - plan.money.market.sla_objective_fraction) * settled
    return np.asarray(np.maximum(missed - allowed, 0.0) * plan.tokens_per_request, dtype=np.float64)


def _power_usd(plan: Plan, run: Run, monthly: Monthly) -> Iterator[tuple[Account, Floats]]:
    """Yield the cost of energy, cooling, demand charges, space and carbon.

    Cooling (and distribution) belongs to the site; clusters bear it, and the demand charge, in proportion to their IT
    energy, or to rated power where a month has none. Machines at a provider's draw none of the site's.
    """
    power = plan.money.power
    starts = plan.month_edges_h[:-1]
    share = shares_of_power(plan, monthly.it_kwh)
    if (hourly := power.hourly_usd_per_kwh) is None:
        price = power.monthly_usd_per_kwh[:, None]
        energy = monthly.it_kwh * price
        cooling = (monthly.facility_kwh - monthly.it_kwh) * price
    else:
        energy = np.add.reduceat(joined("it_kw", run.windows) * hourly, starts, axis=-1).T
        site = np.add.reduceat(joined("facility_kw", run.windows) * hourly, starts)
        cooling = (site - energy.sum(axis=1))[:, None] * share
    yield Account.ENERGY, energy
    yield Account.COOLING, cooling
    if power.tariff.demand_charge_usd_per_kw_month > 0:
        charge = demand_charges_of_peaks_usd(power.tariff, plan.months, monthly.peak_facility_kw)
        yield Account.DEMAND_CHARGE, charge[:, None] * share
    rent = power.colocation_usd_per_kw_month * MONTHS_PER_YEAR
    rise = power.colocation_escalator_per_year
    kw = purchases.provisioned_kw(plan, monthly.present_node_h)
    yield Account.COLOCATION, yearly_cost_usd(kw, rent, plan.months, rise)
    unused = contracted_kw(kw.sum(axis=1), power.colocation_term_months)[1] - kw.sum(axis=1)
    if rent and np.any(unused > _SAME_KW):  # contracted, and left by its machines
        yield Account.COLOCATION, yearly_cost_usd(unused[:, None], rent, plan.months, rise)[:, 0]
    if power.carbon_usd_per_tonne.any():
        emitted = operational_kg(monthly.facility_kwh, power.grid_carbon_g_per_kwh)
        yield Account.CARBON, carbon_cost_usd(emitted, power.carbon_usd_per_tonne[:, None])


def _upkeep_usd(
    plan: Plan, run: Run, monthly: Monthly, cohorts: tuple[Cohort, ...]
) -> Iterator[tuple[Account, Floats]]:
    """Yield the cost of maintenance, insurance, people, contracts, spares and parts.

    People are there for all machines that may serve, support and licences are paid as the machines are: for those that
    are rented by the hour, while they are held. Maintenance and insurance go with what the machines in service
    cost when they were bought, Σ over cohorts of cost · nodes in service / nodes: each order at its own price, and what
    is leased at what it costs new. The spare parts of a delivery are bought with it, as the stock grows; the stock of
    machines owned before the start is owned with them.
    """
    grid = plan.months
    upkeep = plan.money.upkeep
    reliability = plan.reliability
    per_node = plan.accelerators_per_node
    capital, spares = (np.zeros(monthly.present_node_h.shape) for _ in range(2))
    if cohorts:
        nodes, owner = (
            np.array([getattr(cohort, name) for cohort in cohorts]) for name in ("nodes", "cluster")
        )
        serving = purchases.nodes_in_service(plan, cohorts) / nodes[:, None]
        new = (
            np.array([sum(cluster.leased_prices_usd or (np.nan,)) for cluster in plan.clusters])[
                owner
            ]
            * nodes
        )
        cost = np.where(np.isnan(new), usd(purchases.cost_cents(cohorts)), new)
        np.add.at(capital.T, owner, cost[:, None] * serving)
    accelerators = monthly.present_node_h / grid.period_hours[:, None] * per_node
    engineers = np.zeros_like(accelerators)
    for team in plan.software.teams:
        engineers += people(plan, run.log, team.engineers, team.clusters, accelerators)
    staff = accelerators * plan.on_site * upkeep.staff_per_accelerator
    here = np.flatnonzero(plan.on_site)
    crews = people(plan, run.log, reliability.crews, here.tolist(), accelerators) * bool(here.size)
    for account, quantity, price, rise in (
        (Account.MAINTENANCE, capital, upkeep.operations_fraction_per_year, 0.0),
        (Account.INSURANCE, capital, upkeep.insurance_fraction_per_year, 0.0),
        (
            Account.SOFTWARE_ENGINEERS,
            engineers,
            upkeep.engineer_usd_per_year,
            upkeep.escalator_per_year,
        ),
        (Account.OPERATIONS_STAFF, staff, upkeep.staff_usd_per_year, upkeep.escalator_per_year),
        (
            Account.SUPPORT_CONTRACTS,
            accelerators,
            upkeep.support_usd_per_accelerator_year,
            upkeep.escalator_per_year,
        ),
        (
            Account.LICENCES,
            accelerators,
            upkeep.licence_usd_per_accelerator_year,
            upkeep.escalator_per_year,
        ),
        (Account.OPERATIONS_STAFF, crews, upkeep.crew_usd_per_year, upkeep.escalator_per_year),
    ):
        if price and quantity.any():
            yield account, yearly_cost_usd(quantity, price, grid, rise)
    if upkeep.part_usd.any():
        delivered = [0] * len(plan.clusters)
        stock = [0] * len(plan.clusters)
        for purchase in sorted(run.log.purchases):
            index = purchase.cluster
            delivered[index] += purchase.nodes
            wanted = reliability.spares.number(
                delivered[index] * int(per_node[index]), delivered[index]
            )
            if purchase.time_h >= 0:
                month = int(grid.period_of_hour(np.array(purchase.time_h)))
                spares[month, index] += (wanted - stock[index]) * upkeep.part_usd[index]
            stock[index] = wanted
        yield Account.SPARES, spares * plan.on_site
    if upkeep.rma_usd or upkeep.replacement_usd.any():
        yield Account.RMA, rma_usd(plan, run) * plan.on_site


def _post_tax(books: _Books, rules: TaxRules) -> None:
    """Post income tax: expense on book income, cash on taxable income, the difference deferred."""
    plan = books.plan
    months = books.months
    before = -usd(books.running_cents)
    taxable = before.copy()
    gain = 0.0
    if books.cohorts:
        income, end_gain = purchases.tax_base(plan, books.cohorts, rules)
        taxable += usd(income.sum(axis=0))
        gain = float(usd(end_gain[:, -1].sum()))
    income_usd = taxable, before - usd(books.written_off_cents), usd(books.lent_cents)
    begun = purchases.opening_deferred_cents(
        plan, books.cohorts, rules, int(books.opening_book_cents.sum())
    )
    charge = depreciation.income_tax(income_usd, plan.months, rules, gain, begun)
    books.builder.post(Account.TAX_ON_INTEREST, charge.on_interest_cents, month=months)
    books.builder.post(Account.TAX_CASH, charge.cash_cents, month=months)
    books.builder.post(Account.TAX_DEFERRED, charge.deferred_cents, month=months)
    books.builder.post(Account.TAX_ON_END_VALUE, charge.on_end_gain_cents, month=months[-1])
