"""Posts a run's ledger from its machines and energy; the only writer of the ledger."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from planner.arrays import Cents, Floats
from planner.engine.driver import Run
from planner.engine.hourly import joined
from planner.engine.log import ChangeLog
from planner.engine.monthly import Monthly, shares_of_power
from planner.engine.rental import Rented
from planner.errors import ConservationError
from planner.finance import depreciation, ledger
from planner.finance.accounting import cohorts as purchases
from planner.finance.accounting.cohorts import AllCohorts, OrderPayments
from planner.finance.accounts import ACCOUNT_CODES, CAPEX_ACCOUNTS, Account, Driver, Position
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
    MONTH_CLUSTER_ACCOUNT,
    Ledger,
    cents,
    series_cents,
    split_cents,
    usd,
    zero_cents,
)
from planner.finance.statements import check_positions, monthly_statements
from planner.finance.tariffs import carbon_cost_usd, demand_charges_of_peaks_usd, operational_kg
from planner.plan.plan import Plan
from planner.plan.quantities import missed_requests, settled_requests, shares, shed_requests
from planner.plan.staffing import Headcount
from planner.units import MILLION, MONTHS_PER_YEAR

_SAME_KW = 1e-6
"""Contracted power within this of what is used is used: sums over clusters round."""


def people(
    plan: Plan, log: ChangeLog, headcount: Headcount, clusters: Sequence[int], accelerators: Floats
) -> Floats:
    """Return headcount by month and cluster: ∫ number(accelerators) dt / hours · share, shape (months, clusters).

    It grows with the accelerators of some clusters together, and is the cost of each by its share of them, or of all
    alike in a month without any. ``accelerators`` are means of each month, shape (months, clusters).
    """
    edges = plan.month_edges_h.astype(np.float64)
    changes = [
        change
        for change in sorted(log.changes)
        if change.cluster in clusters and change.time_h < plan.hours
    ]
    times_h = [change.time_h for change in changes]
    added = [change.accelerators for change in changes]
    moments = np.array([0.0, *times_h, float(plan.hours)])
    on_site = np.cumsum([0, *added])
    level = np.array([headcount.number(count) for count in on_site.tolist()])
    # Person-hours to date are linear between changes of the fleet, so interp reads them at the months' edges exactly.
    person_h = np.cumsum(level * np.diff(moments))
    person_h = np.concatenate(([0.0], person_h))
    month_person_h = np.diff(np.interp(edges, moments, person_h))
    by_month = month_person_h / np.diff(edges)
    indices = np.arange(len(plan.clusters))
    belongs = np.isin(indices, clusters).astype(np.float64)
    # The second weights stand in for a month in which none of these clusters has a machine.
    share = shares(accelerators * belongs, belongs)
    headcounts: Floats = by_month[:, None] * share
    return headcounts


def rma_usd(plan: Plan, run: Run) -> Floats:
    """Return the freight of every hard failure's part, and the part's price after the warranty.

    Shape (months, clusters). A failure that found its machine already down broke nothing and costs nothing.
    """
    upkeep = plan.money.upkeep
    grid = plan.months
    time_h, owner, node = run.shop.hard_failures()
    bought_h = np.zeros(time_h.shape)
    for index, cluster in enumerate(plan.clusters):
        delivery_h = []
        nodes = []
        # Nodes are numbered in the order of the log; the warranty runs from delivery.
        for change in run.log.changes:
            if change.cluster == index and change.purchase >= 0:
                purchase = run.log.purchases[change.purchase]
                delivery_h.append(purchase.time_h)
                nodes.append(change.accelerators // cluster.accelerators_per_node)
        # One entry for each node, so that a node's number finds its delivery.
        node_delivery_h = np.repeat(delivery_h, nodes)
        failed = owner == index
        bought_h[failed] = node_delivery_h[node[failed]]
    is_expired = time_h - bought_h >= upkeep.warranty_h
    part_usd = np.where(is_expired, upkeep.replacement_usd[owner], 0.0)
    shape = (grid.period_count, len(plan.clusters))
    cost = np.zeros(shape)
    month = grid.period_of_hour(time_h)
    # Many failures share a month and cluster: each one adds.
    failure_usd = upkeep.rma_usd + part_usd
    np.add.at(cost, (month, owner), failure_usd)
    return cost


class _Books:
    """The ledger being built, its inputs, and the figures that tax needs."""

    def __init__(self, plan: Plan, cohorts: AllCohorts) -> None:
        self.plan = plan
        self.cohorts = cohorts
        self.owner = purchases.owners(cohorts)
        is_leased = [plan.clusters[index].lease is not None for index in self.owner]
        self.is_leased = np.array(is_leased, dtype=bool)[:, None]
        """Whether each cohort is under a finance lease, shape (cohorts, 1)."""
        self.months = np.arange(plan.months.period_count)
        labels = ledger.LedgerLabels(
            months=plan.months.labels,
            clusters=tuple(cluster.name for cluster in plan.clusters),
            cohorts=tuple(cohort.name for cohort in cohorts),
        )
        self.builder = ledger.LedgerBuilder(labels)
        # The site as a whole is the last column.
        self.shape = (self.months.size, len(plan.clusters) + 1)
        """Of a table by month and cluster."""
        self.running_cents = zero_cents(self.months.size)
        """Costs less income of each month that are deducted from taxable income as they are paid."""
        self.written_off_cents = zero_cents(self.months.size)
        """Book depreciation and losses on disposal of each month, and what leases of rented machines add to rent."""
        self.lent_cents = zero_cents(self.months.size)
        """Interest and amortised fees of loans in each month."""
        self.opening_book_cents = zero_cents(0)
        """By cohort."""
        self.balances: dict[Position, Cents] = {}
        """What is owned and owed by month and cluster, the site as a whole last."""

    def by_cluster(self, by_cohort: Cents) -> Cents:
        """Return a table of shape (cohorts, months) summed by cluster, shape (months, clusters + 1)."""
        table = zero_cents(self.shape)
        # A cluster has many cohorts: each one adds to its column.
        np.add.at(table.T, self.owner, by_cohort)
        return table

    def add_balance(self, position: Position, by_cluster: Cents) -> None:
        """Add what is owned or owed by month and cluster, shape (months, clusters) or with the site as a whole last."""
        if position not in self.balances:
            self.balances[position] = zero_cents(self.shape)
        columns = by_cluster.shape[1]
        self.balances[position][:, :columns] += by_cluster


def write_ledger(
    plan: Plan, run: Run, monthly: Monthly, cohorts: AllCohorts, rented: Rented
) -> Ledger:
    """Post every account of a run."""
    books = _Books(plan, cohorts)
    if cohorts:
        assets = purchases.assets_of(plan, cohorts)
        schedule = depreciation.depreciate(assets, plan.months.edge_coordinates)
        books.opening_book_cents = schedule.opening_book_cents
        _post_capital(books, schedule)
        _post_leases(books, schedule)
        loan = plan.money.capital.loan
        if loan is not None:
            _post_loan(books, schedule, loan)
    _post_orders(books, purchases.order_payments(plan, run.log))
    _post_running(books, running_usd(plan, run, monthly, cohorts, rented))
    # Tax comes last: it is on the income that all other postings leave.
    if plan.money.market.tax is not None:
        _post_tax(books, plan.money.market.tax)
    ledger = books.builder.build()
    # Every run is checked, since a ledger that does not add up would still give plausible figures.
    ledger.check(books.opening_book_cents)
    check_books(plan, run, monthly, cohorts, ledger)
    opening = purchases.opening_of(plan, cohorts, run.log)
    statements = monthly_statements(ledger, opening, plan.money.capital.books)
    check_positions(statements, books.balances)
    return ledger


def _post_running(books: _Books, amounts: Iterator[tuple[Account, Floats]]) -> None:
    """Post running costs and income, and of both what is not yet paid or received."""
    sold = zero_cents(books.shape)
    bought = zero_cents(books.shape)
    for account, amount_usd in amounts:
        posted = series_cents(amount_usd)
        if posted.ndim == 1:
            books.builder.post(account, posted, month=books.months)
            columns: int | slice = -1  # the site as a whole
        else:
            books.builder.post_clusters(account, posted)
            columns = slice(-1)
        # By month, whether the amounts have clusters or are the site's.
        by_month = posted.reshape(books.months.size, -1)
        books.running_cents += by_month.sum(axis=1)
        if account is Account.RENT:
            _post_rent_leases(books, posted)
        if account is Account.REVENUE:
            # Income is negative in the ledger; what customers owe is positive.
            sold[:, columns] -= posted
        elif account.is_invoiced:
            bought[:, columns] += posted
    capital = books.plan.money.capital
    _post_open(books, Account.RECEIVABLES, Account.RECEIVABLES_END, capital.receivable_days, sold)
    _post_open(books, Account.PAYABLES, Account.ORDER_BALANCE, capital.payable_days, bought)


def check_books(
    plan: Plan, run: Run, monthly: Monthly, cohorts: AllCohorts, ledger: Ledger
) -> None:
    """Raise ConservationError unless the ledger agrees with the deliveries, and the cohorts with the node-hours.

    Capex and debts of leases = Σ delivered nodes · their price in the books, by cluster and month of delivery. What was
    delivered before the start was paid then, and is no capex of the horizon. Held against the deliveries of the log,
    apart from cohorts, calendar coordinates and depreciation. Node-hours of the cohorts in service = node-hours on
    site, by cluster and month.
    """
    shape = (plan.months.period_count, len(plan.clusters))
    delivered = zero_cents(shape)
    for purchase in run.log.purchases:
        if purchase.time_h >= 0:
            month = plan.months.period_of_hour(np.array(purchase.time_h))
            price_usd = sum(purchase.prices_usd)
            delivered[month, purchase.cluster] += cents(purchase.nodes * price_usd)
    table = ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    codes = [ACCOUNT_CODES[account] for account in (*CAPEX_ACCOUNTS, Account.LEASE_STARTED)]
    capex = table[:, :-1, codes]
    posted = capex.sum(axis=2)
    problems = []
    for period, index in np.argwhere(posted != delivered).tolist():
        place = f"{plan.clusters[index].name}, {plan.months.labels[period]}"
        posted_usd = posted[period, index] / 100
        delivered_usd = delivered[period, index] / 100
        problems.append(
            f"{place}: {posted_usd:,.2f} USD of capex in the ledger, {delivered_usd:,.2f} delivered"
        )
    node_h = np.zeros_like(monthly.present_node_h)
    # Where components have cohorts of their own, the first of each delivery counts its machines.
    complete = tuple(cohort for cohort in cohorts if cohort.machines)
    if complete:
        owner = purchases.owners(complete)
        in_service = purchases.nodes_in_service(plan, complete)
        node_h_in_service = in_service * plan.months.period_hours
        np.add.at(node_h.T, owner, node_h_in_service)
    missing_h = monthly.present_node_h - node_h
    gap = np.abs(missing_h)
    # Of nodes rented by the hour only some are held, but no more than there are.
    rented = [*run.offers]
    too_few_h = np.maximum(missing_h, 0.0)
    gap[:, rented] = too_few_h[:, rented]
    # A cohort has the mean hour of its nodes, and sums of hours round: a millionth, and seconds where there are few.
    tolerance_h = 1e-6 * monthly.present_node_h + 1e-3
    if np.any(gap > tolerance_h):
        problems.append(f"node-hours of cohorts in service are off by {gap.max():.3g}")
    if problems:
        raise ConservationError("purchases and book values differ: " + "; ".join(problems))


def _post_open(
    books: _Books, account: Account, end_account: Account, days: float, amounts_cents: Cents
) -> None:
    """Post what customers owe or vendors are owed, from a table of shape (months, clusters + 1)."""
    # The account's own row says which balance it moves, and which way.
    ((position, sign),) = account.positions
    clusters = np.arange(amounts_cents.shape[1])
    clusters[-1] = ledger.SHARED
    edges = books.plan.months.edge_hours.astype(np.float64)
    balance = open_cents(amounts_cents, days, edges)
    change = sign * np.diff(balance, axis=0, prepend=0)
    builder = books.builder
    by_month = books.months[:, None]
    builder.post(account, change, month=by_month, cluster=clusters)
    # What is still open on the last day counts as settled then in the economic view.
    end_month = books.months[-1]
    end_balance = balance[-1]
    builder.post(end_account, -sign * end_balance, month=end_month, cluster=clusters)
    books.add_balance(position, balance)


def _post_rent_leases(books: _Books, rent_cents: Cents) -> None:
    """Post rent for terms as leases on the balance sheet: right of use, debt, and their cost in place of rent."""
    is_ifrs = books.plan.money.capital.books is Books.IFRS
    clusters = np.arange(len(books.plan.clusters))
    for cluster, lease in purchases.rent_leases(books.plan, rent_cents):
        # Under US GAAP the cost of an operating lease is one line, its interest in it.
        interest = lease.interest_cents * is_ifrs
        amounts = {
            Account.RENT_LEASED: np.diff(lease.owed_cents, prepend=0),
            Account.RENT_CAPITALISED: -lease.paid_cents,
            Account.RIGHT_OF_USE_COST: lease.cost_cents,
            Account.RENT_INTEREST: interest,
        }
        for account, amount in amounts.items():
            books.builder.post(account, amount, month=books.months, cluster=cluster)
        books.written_off_cents += lease.cost_cents + interest - lease.paid_cents
        # One at the column of its cluster, zero at all others.
        column = clusters == cluster
        right_of_use = lease.asset_cents[:, None] * column
        books.add_balance(Position.RIGHT_OF_USE, right_of_use)
        owed = lease.owed_cents[:, None] * column
        books.add_balance(Position.LEASES, owed)


def _post_capital(books: _Books, schedule: DepreciationSchedule) -> None:
    """Post purchases, depreciation, disposals, the capital charge and the end value."""
    plan = books.plan
    cohorts = books.cohorts
    builder = books.builder
    owner = books.owner
    capital = plan.money.capital
    places = np.arange(len(cohorts))
    # What is leased is no capex: its debt is posted with the lease.
    is_bought = (schedule.acquired_cents > 0) & ~books.is_leased
    share = shares(purchases.parts_usd(cohorts))
    # A cohort's cents are split, not its prices rounded: its four accounts sum to what was paid.
    parts = split_cents(purchases.cost_cents(cohorts), share)
    for account, cost in zip(CAPEX_ACCOUNTS, parts.T, strict=True):
        amount = np.where(is_bought, cost[:, None], 0)
        builder.post_cohorts(account, amount, owner)
    charge_usd = depreciation.capital_charge_usd(schedule, capital.discount_rate_per_year)
    property_tax_usd = depreciation.property_tax_usd(
        schedule, capital.property_tax_fraction_per_year
    )
    property_tax = series_cents(property_tax_usd, axis=1)
    amounts = {
        Account.DEPRECIATION: schedule.depreciation_cents,
        Account.RESALE: -schedule.proceeds_cents,
        Account.DISPOSAL_LOSS: schedule.disposal_loss_cents,
        Account.COST_OF_CAPITAL: series_cents(charge_usd, axis=1),
        Account.PROPERTY_TAX: property_tax,
    }
    for account, amount in amounts.items():
        builder.post_cohorts(account, amount, owner)
    written_off = schedule.depreciation_cents + schedule.disposal_loss_cents
    books.written_off_cents += written_off.sum(axis=0)
    books.running_cents += property_tax.sum(axis=0)
    # What is owned counts as if sold on the last day, and as if bought on the first.
    value = purchases.owned_value_cents(plan, cohorts)[:, -1]
    builder.post(
        Account.RESIDUAL_VALUE, -value, month=books.months[-1], cluster=owner, cohort=places
    )
    opening_value = purchases.opening_value_cents(plan, cohorts, plan.money.market.tax)
    builder.post(Account.OPENING_VALUE, opening_value, month=0, cluster=owner, cohort=places)


def _post_loan(books: _Books, schedule: DepreciationSchedule, terms: LoanTerms) -> None:
    """Post a loan on purchases, its fees over its life."""
    # The lessor lends what is leased, so the loan is on the rest.
    bought = np.where(books.is_leased, 0, schedule.acquired_cents)
    purchases_cents = books.by_cluster(bought)[:, :-1]
    loan = loan_schedule(terms, purchases_cents)
    # Fees taken in the month less what the balance of fees rose by: the part that became interest.
    fee_rise = np.diff(loan.fee_left_cents, axis=0, prepend=0)
    amortised = loan.fee_cents - fee_rise
    amounts = {
        Account.LOAN_DRAWN: -loan.drawn_cents,
        Account.LOAN_FEES: loan.fee_cents,
        Account.LOAN_REPAID: loan.repaid_cents,
        Account.LOAN_INTEREST: loan.interest_cents + loan.undrawn_fee_cents,
        Account.LOAN_FEES_AMORTISED: amortised,
    }
    for account, amount in amounts.items():
        books.builder.post_clusters(account, amount)
    interest = loan.interest_cents + loan.undrawn_fee_cents + amortised
    books.lent_cents += interest.sum(axis=1)
    books.add_balance(Position.LOANS, loan.balance_cents - loan.fee_left_cents)


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
    owed = zero_cents(books.shape)
    for lease in purchases.leases_of(plan, books.cohorts):
        rows = lease.rows
        acquired = schedule.acquired_cents[rows]
        booked = lease.schedule
        cluster = lease.cluster
        # Machines that are bought out are hardware from the month in which the lease ends.
        is_running = months < booked.ends
        is_right_of_use = is_running | (not lease.terms.is_bought)
        book_value = schedule.closing_book_cents[rows]
        right[rows] = np.where(is_right_of_use, book_value, 0)
        owed[:, cluster] += booked.balance_cents
        builder.post(
            Account.LEASE_STARTED, acquired, month=months, cluster=cluster, cohort=rows[:, None]
        )
        # The lessor bears the capital of what is still owed: the charge on the book value is less by that part.
        opening_balance = np.append(0, booked.balance_cents[:-1])
        carried = opening_balance + acquired.sum(axis=0)
        # The cohorts of a delivery come on the same day, so the first one's months are those of all.
        held_months = schedule.held_months[rows[0]]
        charge_usd = usd(carried) * np.expm1(growth * held_months)
        amounts = {
            Account.LEASE_PRINCIPAL: booked.principal_cents,
            Account.LEASE_INTEREST: booked.interest_cents,
            Account.EXIT_FEES: booked.exit_fee_cents,
            Account.OTHER_CAPITAL: -series_cents(charge_usd),
        }
        for account, amount in amounts.items():
            builder.post(account, amount, month=months, cluster=cluster)
        # The end value counts these machines as owned, so what is still owed for them counts against it.
        if lease.terms.is_bought:
            end_balance = booked.balance_cents[-1]
            builder.post(Account.LEASE_OWED, end_balance, month=months[-1], cluster=cluster)
        books.running_cents += booked.interest_cents + booked.exit_fee_cents
    # What was had under a lease and is no longer: written off, given back or bought out.
    leased = np.where(books.is_leased, schedule.acquired_cents, 0)
    right_rise = np.diff(right, axis=1, prepend=0)
    used = leased - right_rise
    builder.post_cohorts(Account.LEASE_USED, used, books.owner)
    right_of_use = books.by_cluster(right)
    book_value = books.by_cluster(schedule.closing_book_cents)
    books.add_balance(Position.HARDWARE, book_value - right_of_use)
    books.add_balance(Position.RIGHT_OF_USE, right_of_use)
    books.add_balance(Position.LEASES, owed)


def _post_orders(books: _Books, orders: OrderPayments) -> None:
    """Post deposits and milestones of orders; amounts lost with a cancelled delivery are exit fees."""
    plan = books.plan
    clusters = np.arange(len(plan.clusters))
    balance = orders.balance_cents(plan)
    lost_cents = np.where(orders.is_lost, orders.amount_cents, 0)
    lost = orders.by_period(plan, orders.settled_months, lost_cents)
    amounts = {
        Account.ORDER_PAID: orders.by_period(plan, orders.paid_months),
        Account.ORDER_SETTLED: -orders.by_period(plan, orders.settled_months),
        Account.EXIT_FEES: lost,
        Account.OTHER_CAPITAL: series_cents(orders.charge_usd(plan)),
    }
    for account, amount in amounts.items():
        books.builder.post_clusters(account, amount)
    books.running_cents += lost.sum(axis=1)
    # A deposit is worth its amount on the first day and the last, as machines are worth their resale value.
    books.builder.post(Account.OPENING_VALUE, balance[0], month=0, cluster=clusters)
    end_month = books.months[-1]
    end_balance = balance[-1]
    books.builder.post(Account.ORDER_BALANCE, -end_balance, month=end_month, cluster=clusters)
    books.add_balance(Position.DEPOSITS, balance[1:])


def running_usd(
    plan: Plan, run: Run, monthly: Monthly, cohorts: AllCohorts, rented: Rented
) -> Iterator[tuple[Account, Floats]]:
    """Yield the monthly running amounts by account before rounding: power, upkeep, rent and revenue.

    A table has shape (months, clusters); what belongs to the site as a whole has (months,). Where a process changes a
    price, each month has the mean of the factors of its hours.
    """
    amounts = itertools.chain(
        _power_usd(plan, run, monthly),
        _upkeep_usd(plan, run, monthly, cohorts),
        _market_usd(plan, monthly, rented),
    )
    for account, amount in amounts:
        factor = np.ones(plan.months.period_count)
        for effect in run.log.effects:
            if effect.kind == "price" and effect.target == account:
                end_h = min(effect.end_h, plan.hours)
                # Hours of the effect in each month: its own span clipped at the months' edges.
                edges_h = np.clip(plan.month_edges_h, effect.start_h, end_h)
                month_fraction = np.diff(edges_h) / plan.months.period_hours
                rise = (effect.amount - 1.0) * month_fraction
                factor *= 1.0 + rise
        # Transposed, months are the last axis of a table too, so that one factor a month meets both shapes.
        yield account, (amount.T * factor).T


def _market_usd(plan: Plan, monthly: Monthly, rented: Rented) -> Iterator[tuple[Account, Floats]]:
    """Yield rent, its fees, tokens bought and sold, and credits."""
    shape = monthly.present_node_h.shape
    rent_usd = np.zeros(shape)
    fees_usd = np.zeros(shape)
    api_usd = np.zeros(shape)
    for index, cluster in enumerate(plan.clusters):
        terms = cluster.rent
        if terms is not None:
            # A spot node that is taken back is not paid for until another takes its place.
            is_spot = terms.interruptions_per_h > 0
            node_h = monthly.in_service_node_h if is_spot else monthly.present_node_h
            accelerator_h = node_h[:, index] * cluster.accelerators_per_node
            rent_usd[:, index] = accelerator_h * terms.usd_per_accelerator_h
            # A fee is only stated for a cluster that leaves within the horizon, so its month is there.
            if terms.exit_usd_per_accelerator > 0:
                month = plan.months.period_of_hour(np.array(cluster.retire_h))
                accelerators = cluster.nodes * cluster.accelerators_per_node
                fees_usd[month, index] = accelerators * terms.exit_usd_per_accelerator
        elif cluster.api is not None:
            served = monthly.served_requests[:, index]
            request_usd = served * plan.api_request_usd(index)
            api_usd[:, index] = request_usd.sum(axis=1)
    amounts = {Account.RENT: rent_usd, Account.EXIT_FEES: fees_usd, Account.API: api_usd}
    for account, amount_usd in amounts.items():
        if amount_usd.any():
            yield account, amount_usd
    market = plan.money.market
    credit_usd = market.sla_credit_usd_per_million_tokens
    if credit_usd > 0:
        tokens = credited_tokens(plan, monthly, rented).sum(axis=1)
        yield Account.SLA_CREDITS, tokens / MILLION * credit_usd
    if market.burst is not None:
        price_usd = market.burst.hourly.usd_per_accelerator_h
        yield Account.BURST_RENTAL, rented.accelerator_h * price_usd
    if market.token_price is not None:
        per_request = plan.request_usd(market.token_price)
        earned_usd = monthly.served_requests * per_request[:, None, :]
        yield Account.REVENUE, -earned_usd.sum(axis=2)
        # What was served on accelerators rented for bursts is sold by the site as a whole.
        if rented.requests.any():
            burst_usd = rented.requests * per_request
            yield Account.REVENUE, -burst_usd.sum(axis=1)


def credited_tokens(plan: Plan, monthly: Monthly, rented: Rented) -> Floats:
    """Return the tokens late or shed beyond the share that is allowed, shape (months, workloads)."""
    # What was shed and then served on rented accelerators was not missed.
    shed = shed_requests(monthly.shed_requests, rented.requests)
    missed = missed_requests(monthly.late_requests, shed)
    served = monthly.served_requests.sum(axis=1)
    settled = settled_requests(served, monthly.shed_requests)
    allowed = (1.0 - plan.money.market.sla_objective_fraction) * settled
    credited_requests = np.maximum(missed - allowed, 0.0)
    tokens: Floats = credited_requests * plan.tokens_per_request
    return tokens


def _power_usd(plan: Plan, run: Run, monthly: Monthly) -> Iterator[tuple[Account, Floats]]:
    """Yield the cost of energy, cooling, demand charges, space and carbon.

    Cooling (and distribution) belongs to the site; clusters bear it, and the demand charge, in proportion to their IT
    energy, or to rated power where a month has none. Machines at a provider's draw none of the site's.
    """
    power = plan.money.power
    starts = plan.month_edges_h[:-1]
    share = shares_of_power(plan, monthly.it_kwh)
    hourly = power.hourly_usd_per_kwh
    if hourly is None:
        price = power.monthly_usd_per_kwh[:, None]
        energy = monthly.it_kwh * price
        cooling = (monthly.facility_kwh - monthly.it_kwh) * price
    else:
        it_usd = joined("it_kw", run.windows) * hourly
        energy = np.add.reduceat(it_usd, starts, axis=-1).T
        # Cooling has no meter of its own: it is what the whole site pays less what the machines do.
        site_usd = joined("facility_kw", run.windows) * hourly
        site = np.add.reduceat(site_usd, starts)
        site_cooling = site - energy.sum(axis=1)
        cooling = site_cooling[:, None] * share
    yield Account.ENERGY, energy
    yield Account.COOLING, cooling
    if power.tariff.demand_charge_usd_per_kw_month > 0:
        charge = demand_charges_of_peaks_usd(power.tariff, plan.months, monthly.peak_facility_kw)
        yield Account.DEMAND_CHARGE, charge[:, None] * share
    rent = power.colocation_usd_per_kw_month * MONTHS_PER_YEAR
    rise = power.colocation_escalator_per_year
    kw = purchases.provisioned_kw(plan, monthly.present_node_h)
    yield Account.COLOCATION, yearly_cost_usd(kw, rent, plan.months, rise)
    used_kw = kw.sum(axis=1)
    paid_kw = contracted_kw(used_kw, power.colocation_term_months)[1]
    unused_kw = paid_kw - used_kw
    # Space that its machines have left is paid to the end of its term, by the site as a whole.
    if rent and np.any(unused_kw > _SAME_KW):
        unused_usd = yearly_cost_usd(unused_kw[:, None], rent, plan.months, rise)
        yield Account.COLOCATION, unused_usd[:, 0]
    if power.carbon_usd_per_tonne.any():
        emitted_kg = operational_kg(monthly.facility_kwh, power.grid_carbon_g_per_kwh)
        price = power.carbon_usd_per_tonne[:, None]
        yield Account.CARBON, carbon_cost_usd(emitted_kg, price)


def _upkeep_usd(
    plan: Plan, run: Run, monthly: Monthly, cohorts: AllCohorts
) -> Iterator[tuple[Account, Floats]]:
    """Yield the cost of maintenance, insurance, people, contracts, spares and parts.

    People are there for all machines that may serve, support and licences are paid as the machines are: for those that
    are rented by the hour, while they are held.
    """
    grid = plan.months
    upkeep = plan.money.upkeep
    nodes = monthly.present_node_h / grid.period_hours[:, None]
    accelerators = nodes * plan.accelerators_per_node
    engineers = np.zeros_like(accelerators)
    for team in plan.software.teams:
        engineers += people(plan, run.log, team.engineers, team.clusters, accelerators)
    quantities = {
        Driver.CAPITAL_IN_SERVICE: _capital_in_service_usd(plan, monthly, cohorts),
        Driver.ENGINEERS: engineers,
        Driver.STAFF: accelerators * plan.on_site * upkeep.staff_per_accelerator,
        Driver.ACCELERATORS: accelerators,
    }
    for account, price in upkeep.yearly_usd.items():
        quantity = quantities[account.driver]
        # A share of what machines cost rises with their prices alone.
        is_share = account.driver is Driver.CAPITAL_IN_SERVICE
        rise = 0.0 if is_share else upkeep.escalator_per_year
        if price and quantity.any():
            yield account, yearly_cost_usd(quantity, price, grid, rise)
    on_site = np.flatnonzero(plan.on_site).tolist()
    # Without a cluster on site there is nothing to look after, whatever the smallest crew is.
    crews = people(plan, run.log, plan.reliability.crews, on_site, accelerators)
    crews = crews * bool(on_site)
    crew_usd = upkeep.crew_usd_per_year
    if crew_usd and crews.any():
        cost_usd = yearly_cost_usd(crews, crew_usd, grid, upkeep.escalator_per_year)
        yield Account.OPERATIONS_STAFF, cost_usd
    if upkeep.part_usd.any():
        yield Account.SPARES, _spares_usd(plan, run) * plan.on_site
    if upkeep.rma_usd or upkeep.replacement_usd.any():
        yield Account.RMA, rma_usd(plan, run) * plan.on_site


def _capital_in_service_usd(plan: Plan, monthly: Monthly, cohorts: AllCohorts) -> Floats:
    """Return what the machines in service cost, Σ over cohorts of cost · nodes in service / nodes, (months, clusters).

    Each order counts at its own price, and what is leased at what it costs new.
    """
    capital = np.zeros(monthly.present_node_h.shape)
    if not cohorts:
        return capital
    nodes = np.array([cohort.nodes for cohort in cohorts])
    owner = purchases.owners(cohorts)
    in_service = purchases.nodes_in_service(plan, cohorts)
    serving = in_service / nodes[:, None]
    bought_usd = usd(purchases.cost_cents(cohorts))
    # NaN for a cluster that is not leased: there the price paid counts.
    new_usd = np.full(len(plan.clusters), np.nan)
    for index, cluster in enumerate(plan.clusters):
        if cluster.leased_prices_usd:
            new_usd[index] = sum(cluster.leased_prices_usd)
    leased_usd = new_usd[owner] * nodes
    cost = np.where(np.isnan(leased_usd), bought_usd, leased_usd)
    capital_usd = cost[:, None] * serving
    np.add.at(capital.T, owner, capital_usd)
    return capital


def _spares_usd(plan: Plan, run: Run) -> Floats:
    """Return the cost of spare parts bought with each delivery, as the stock grows, shape (months, clusters).

    The stock of machines owned before the start is owned with them.
    """
    shape = (plan.months.period_count, len(plan.clusters))
    spares = np.zeros(shape)
    nodes = [0] * len(plan.clusters)
    stock = [0] * len(plan.clusters)
    # In the order of time, since a stock for all machines so far needs less than stocks for each delivery.
    for purchase in sorted(run.log.purchases):
        index = purchase.cluster
        nodes[index] += purchase.nodes
        accelerators = nodes[index] * int(plan.accelerators_per_node[index])
        needed = plan.reliability.spares.number(accelerators, nodes[index])
        if purchase.time_h >= 0:
            month = plan.months.period_of_hour(np.array(purchase.time_h))
            parts = needed - stock[index]
            part_usd = plan.money.upkeep.part_usd[index]
            spares[month, index] += parts * part_usd
        stock[index] = needed
    return spares


def _post_tax(books: _Books, rules: TaxRules) -> None:
    """Post income tax: expense on book income, cash on taxable income, the difference deferred."""
    plan = books.plan
    months = books.months
    running_income = -usd(books.running_cents)
    taxable = running_income.copy()
    gain = 0.0
    if books.cohorts:
        income, end_gain = purchases.tax_base(plan, books.cohorts, rules)
        taxable += usd(income.sum(axis=0))
        total_gain = end_gain[:, -1].sum()
        gain = float(usd(total_gain))
    book_income = running_income - usd(books.written_off_cents)
    opening_book = int(books.opening_book_cents.sum())
    opening_deferred = purchases.opening_deferred_cents(plan, books.cohorts, rules, opening_book)
    charge = depreciation.income_tax(
        (taxable, book_income, usd(books.lent_cents)), plan.months, rules, gain, opening_deferred
    )
    amounts = {
        Account.TAX_ON_INTEREST: charge.on_interest_cents,
        Account.TAX_CASH: charge.cash_cents,
        Account.TAX_DEFERRED: charge.deferred_cents,
    }
    for account, amount in amounts.items():
        books.builder.post(account, amount, month=months)
    books.builder.post(Account.TAX_ON_END_VALUE, charge.on_end_gain_cents, month=months[-1])
