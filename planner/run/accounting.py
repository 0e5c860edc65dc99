"""From machines and kilowatt-hours to dollars: the only writer of a run's ledger."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Floats
from planner.engine.driver import Run
from planner.engine.rented import Rented
from planner.finance.accounts import CAPEX_ACCOUNTS, Account, Position
from planner.finance.carbon import carbon_cost_usd, operational_kg
from planner.finance.cents import cents, series_cents, split_cents, usd
from planner.finance.depreciation import (
    Cohorts,
    DepreciationSchedule,
    capital_charge_usd,
    depreciate,
    property_tax_usd,
)
from planner.finance.ledger import Ledger, LedgerBuilder, LedgerLabels
from planner.finance.loan import LoanSchedule, loan_schedule
from planner.finance.recurring import colocation_usd, yearly_cost_usd
from planner.finance.statements import check_positions, monthly_statements
from planner.finance.tax import TaxRules, income_tax
from planner.plan.plan import Plan
from planner.plan.quantities import missed_requests, settled_requests, shares, shed_requests
from planner.run.building import BuildingBooks, building_of
from planner.run.checks import check_books
from planner.run.cohorts import (
    Cohort,
    assets_of,
    leases_of,
    nodes_in_service,
    opening_of,
    opening_value_cents,
    owned_value_cents,
    parts_usd,
    tax_base,
)
from planner.run.energy import demand_charge_usd, energy_usd
from planner.run.monthly import Monthly
from planner.run.orders import OrderPayments, order_payments
from planner.run.parts import paid_node_h, people, rma_usd, spares_usd
from planner.units import MILLION, MONTHS_PER_YEAR


class _Books:
    """The ledger in the making, and what tax needs to know of it."""

    def __init__(self, plan: Plan, cohorts: tuple[Cohort, ...]) -> None:
        self.plan = plan
        self.cohorts = cohorts
        self.builder = LedgerBuilder(
            LedgerLabels(
                months=plan.months.labels,
                clusters=tuple(cluster.name for cluster in plan.clusters),
                cohorts=tuple(cohort.name for cohort in cohorts),
            )
        )
        self.running_cents = np.zeros(plan.months.period_count, dtype=np.int64)
        """Costs less income of each month that are deducted from taxable income as they are paid."""
        self.written_off_cents = np.zeros(plan.months.period_count, dtype=np.int64)
        """Book depreciation and losses on disposal of each month."""
        self.running_usd: list[tuple[Account, Floats]] = []
        """What was posted month by month, before it was rounded to cents."""

    def by_cluster(self, account: Account, amount_usd: Floats) -> None:
        """Post a monthly series for every cluster, shape (months, clusters)."""
        posted = series_cents(amount_usd)
        self.running_usd.append((account, amount_usd))
        self.builder.post_clusters(account, posted)
        self.running_cents += posted.sum(axis=1)

    def whole_site(self, account: Account, amount_usd: Floats) -> None:
        """Post a monthly series that belongs to no cluster, shape (months,)."""
        posted = series_cents(amount_usd)
        self.running_usd.append((account, amount_usd))
        self.builder.post(account, posted, month=np.arange(posted.size))
        self.running_cents += posted


def write_ledger(
    plan: Plan, run: Run, monthly: Monthly, cohorts: tuple[Cohort, ...], rented: Rented | None = None
) -> Ledger:
    """Post every account of a run."""
    books = _Books(plan, cohorts)
    assets = assets_of(plan, cohorts) if cohorts else None
    schedule = _post_capital(books, assets) if assets else None
    held = _post_leases(books, schedule) if schedule else {}
    held |= _post_orders(books, order_payments(plan, run.log))
    building = building_of(plan)
    if building is not None:
        held |= _post_building(books, building, _nodes(plan, monthly) * plan.on_site)
    _post_running(books, run, monthly, assets, rented)
    if plan.money.market.tax is not None:
        _post_tax(books, plan.money.market.tax, building)
    loan = _post_loan(books, schedule) if schedule and plan.money.capital.loan else None
    ledger = books.builder.build()
    ledger.check(schedule.opening_book_cents if schedule else 0)
    check_books(plan, run, monthly, cohorts, ledger)
    if schedule is not None:
        held[Position.HARDWARE] = _by_cluster(books, schedule.closing_book_cents) - held[Position.RIGHT_OF_USE]
    if loan is not None:
        held[Position.LOANS] = np.column_stack((loan.balance_cents, np.zeros_like(loan.balance_cents[:, 0])))
    check_positions(monthly_statements(ledger, opening_of(plan, cohorts, run.log)), held)
    return ledger


def running_usd(
    plan: Plan, run: Run, monthly: Monthly, cohorts: tuple[Cohort, ...], rented: Rented | None = None
) -> list[tuple[Account, Floats]]:
    """Return what a ledger holds of each month before rounding to cents, in the order of its posting.

    A table has shape (months, clusters); what belongs to the site as a whole has (months,).
    """
    books = _Books(plan, cohorts)
    _post_running(books, run, monthly, assets_of(plan, cohorts) if cohorts else None, rented)
    return books.running_usd


def _post_running(books: _Books, run: Run, monthly: Monthly, assets: Cohorts | None, rented: Rented | None) -> None:
    """Post what runs through the months: power, upkeep, rent, and what is sold."""
    _post_power(books, run, monthly)
    _post_upkeep(books, run, monthly, assets)
    _post_rent(books, monthly)
    _post_market(books, monthly, rented)


def _by_cluster(books: _Books, by_cohort: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum a table of shape (cohorts, months) by cluster, shape (months, clusters + 1); the site as a whole has none."""
    table = np.zeros((len(books.plan.clusters) + 1, by_cohort.shape[1]), dtype=np.int64)
    np.add.at(table, [cohort.cluster for cohort in books.cohorts], by_cohort)
    return table.T


def _post_loan(books: _Books, schedule: DepreciationSchedule) -> LoanSchedule:
    """Post a loan on purchases, and what its interest and fees save of tax; no other account moves with it."""
    plan, terms = books.plan, books.plan.money.capital.loan
    assert terms is not None
    loan = loan_schedule(terms, _by_cluster(books, np.where(_is_leased(books), 0, schedule.acquired_cents))[:, :-1])
    interest = loan.interest_cents + loan.fee_cents
    for account, amount in (
        (Account.LOAN_DRAWN, -loan.drawn_cents),
        (Account.LOAN_REPAID, loan.repaid_cents),
        (Account.LOAN_INTEREST, interest),
    ):
        books.builder.post_clusters(account, amount)
    if (rules := plan.money.market.tax) is not None:
        saved = series_cents(usd(interest.sum(axis=1)) * rules.rate_fraction)
        books.builder.post(Account.TAX_ON_INTEREST, -saved, month=np.arange(saved.size))
    return loan


def _post_capital(books: _Books, assets: Cohorts) -> DepreciationSchedule:
    """Post purchases, depreciation, disposals, the charge for capital and the end value; return the schedule."""
    plan, cohorts, builder = books.plan, books.cohorts, books.builder
    owner = np.array([cohort.cluster for cohort in cohorts])
    schedule = depreciate(assets, plan.months.edge_coordinates)
    entered = (schedule.acquired_cents > 0) & ~_is_leased(books)
    parts = split_cents(cents(assets.cost_usd), shares(parts_usd(cohorts)))
    for account, amount in zip(CAPEX_ACCOUNTS, parts.T, strict=True):
        builder.post_cohorts(account, np.where(entered, amount[:, None], 0), owner)
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, owner)
    builder.post_cohorts(Account.RESALE, -schedule.proceeds_cents, owner)
    builder.post_cohorts(Account.DISPOSAL_LOSS, schedule.disposal_loss_cents, owner)
    books.written_off_cents += (schedule.depreciation_cents + schedule.disposal_loss_cents).sum(axis=0)
    charge = capital_charge_usd(schedule, plan.money.capital.discount_rate_per_year)
    builder.post_cohorts(Account.COST_OF_CAPITAL, series_cents(charge, axis=1), owner)
    taxed = series_cents(property_tax_usd(schedule, plan.money.capital.property_tax_fraction_per_year), axis=1)
    builder.post_cohorts(Account.PROPERTY_TAX, taxed, owner)
    books.running_cents += taxed.sum(axis=0)
    value = owned_value_cents(plan, cohorts)[:, -1]
    last = plan.months.period_count - 1
    builder.post(Account.RESIDUAL_VALUE, -value, month=last, cluster=owner, cohort=np.arange(len(cohorts)))
    kept = opening_value_cents(plan, cohorts, plan.money.market.tax)
    builder.post(Account.OPENING_VALUE, kept, month=0, cluster=owner, cohort=np.arange(len(cohorts)))
    return schedule


def _is_leased(books: _Books) -> Bools:
    """Return whether each cohort is under a finance lease, shape (cohorts, 1)."""
    return np.array([books.plan.clusters[cohort.cluster].lease is not None for cohort in books.cohorts])[:, None]


def _post_leases(books: _Books, schedule: DepreciationSchedule) -> dict[Position, NDArray[np.int64]]:
    """Post finance leases: the right of use and the debt, payments, and the charge for capital that is the lessor's.

    Return what is held of either by month and cluster, the site as a whole last. The right of use is written off as the
    cohort is; each month's part of it, and what is left when it is bought out, goes over to hardware first.
    """
    plan, builder, months = books.plan, books.builder, np.arange(books.plan.months.period_count)
    owner = np.array([cohort.cluster for cohort in books.cohorts])
    growth = np.log1p(plan.money.capital.discount_rate_per_year) / MONTHS_PER_YEAR
    right = np.zeros_like(schedule.acquired_cents)
    owed = np.zeros((len(plan.clusters) + 1, months.size), dtype=np.int64)
    leases = leases_of(plan, books.cohorts)
    if not leases:
        return {Position.RIGHT_OF_USE: owed.T, Position.LEASES: owed.T}
    for lease in leases:
        drawn, booked, cluster = schedule.acquired_cents[lease.rows], lease.schedule, lease.cluster
        kept = (months < booked.ends) | (not lease.terms.is_bought)
        right[lease.rows] = np.where(kept, schedule.closing_book_cents[lease.rows], 0)
        owed[cluster] += booked.balance_cents
        builder.post(Account.LEASE_STARTED, drawn, month=months, cluster=cluster, cohort=lease.rows[:, None])
        carried = np.append(0, booked.balance_cents[:-1]) + drawn.sum(axis=0)
        lent = usd(carried) * np.expm1(growth * schedule.held_months[lease.rows[0]])
        end_debt = booked.balance_cents[-1:] * lease.terms.is_bought
        for account, amount, month in (
            (Account.LEASE_PRINCIPAL, booked.principal_cents, months),
            (Account.LEASE_INTEREST, booked.interest_cents, months),
            (Account.EXIT_FEES, booked.exit_fee_cents, months),
            (Account.OTHER_CAPITAL, -series_cents(lent), months),
            (Account.LEASE_OWED, end_debt, months[-1:]),
        ):
            builder.post(account, amount, month=month, cluster=cluster)
        books.running_cents += booked.interest_cents + booked.exit_fee_cents
    used = np.where(_is_leased(books), schedule.acquired_cents, 0) - np.diff(right, axis=1, prepend=0)
    builder.post_cohorts(Account.LEASE_USED, used, owner)
    return {Position.RIGHT_OF_USE: _by_cluster(books, right), Position.LEASES: owed.T}


def _post_orders(books: _Books, orders: OrderPayments) -> dict[Position, NDArray[np.int64]]:
    """Post deposits and milestones of orders; return what is open of them by month and cluster, the site last.

    What is lost with a cancelled delivery is set off too, and is an exit fee.
    """
    plan, clusters, balance = books.plan, np.arange(len(books.plan.clusters)), orders.balance_cents(books.plan)
    if not orders.cluster.size:
        return {Position.DEPOSITS: np.zeros((plan.months.period_count, clusters.size + 1), dtype=np.int64)}
    lost = orders.by_period(plan, orders.settled_months, orders.is_lost)
    for account, amount in (
        (Account.ORDER_PAID, orders.by_period(plan, orders.paid_months)),
        (Account.ORDER_SETTLED, -orders.by_period(plan, orders.settled_months)),
        (Account.EXIT_FEES, lost),
        (Account.OTHER_CAPITAL, series_cents(orders.charge_usd(plan))),
    ):
        books.builder.post_clusters(account, amount)
    books.running_cents += lost.sum(axis=1)
    books.builder.post(Account.OPENING_VALUE, balance[0], month=0, cluster=clusters)
    books.builder.post(Account.ORDER_BALANCE, -balance[-1], month=plan.months.period_count - 1, cluster=clusters)
    return {Position.DEPOSITS: np.pad(balance[1:], ((0, 0), (0, 1)))}


def _post_building(books: _Books, building: BuildingBooks, nodes: Floats) -> dict[Position, NDArray[np.int64]]:
    """Post an owned building and what clusters are charged for it; return its book value, all of it the site's."""
    plan, builder, months, schedule = books.plan, books.builder, np.arange(len(nodes)), building.schedule
    for account, amount in (
        (Account.CAPEX_BUILDING, schedule.acquired_cents[0]),
        (Account.BUILDING_DEPRECIATION, schedule.depreciation_cents[0]),
        (Account.OTHER_CAPITAL, building.charge_cents),
        (Account.PROPERTY_TAX, building.property_tax_cents),
        (Account.MAINTENANCE, building.upkeep_cents),
    ):
        builder.post(account, amount, month=months)
    books.written_off_cents += schedule.depreciation_cents[0]
    books.running_cents += building.property_tax_cents + building.upkeep_cents
    builder.post(Account.RESIDUAL_VALUE, -building.value_cents[-1:], month=months[-1:])
    kept = building.after_tax_cents(plan.money.market.tax)
    builder.post(Account.OPENING_VALUE, np.array([kept]), month=0)
    kw = nodes * np.array([cluster.nameplate_kw for cluster in plan.clusters])
    used = kw.sum(axis=1) > 0  # an empty building is nobody's but the site's
    charged = np.zeros(kw.shape, dtype=np.int64)
    charged[used] = split_cents(building.cost_cents[used], kw[used] / kw[used].sum(axis=1, keepdims=True))
    builder.post_clusters(Account.SPACE, charged)
    builder.post(Account.SPACE, -charged.sum(axis=1), month=months)
    return {Position.BUILDING: np.pad(schedule.closing_book_cents.T, ((0, 0), (len(plan.clusters), 0)))}


def _nodes(plan: Plan, monthly: Monthly) -> Floats:
    """Return nodes on site, averaged over each month, shape (months, clusters)."""
    return np.asarray(monthly.present_node_h / plan.months.period_hours[:, None], dtype=np.float64)


def _post_power(books: _Books, run: Run, monthly: Monthly) -> None:
    """Post energy, cooling, demand charges, space and carbon."""
    plan = books.plan
    power, grid = plan.money.power, plan.months
    energy, cooling = energy_usd(plan, run, monthly)
    books.by_cluster(Account.ENERGY, energy)
    books.by_cluster(Account.COOLING, cooling)
    if power.tariff.demand_charge_usd_per_kw_month > 0:
        books.by_cluster(Account.DEMAND_CHARGE, demand_charge_usd(plan, monthly))
    provisioned = _nodes(plan, monthly) * plan.on_site * np.array([cluster.nameplate_kw for cluster in plan.clusters])
    rent, rise = power.colocation_usd_per_kw_month, power.colocation_escalator_per_year
    books.by_cluster(Account.COLOCATION, colocation_usd(provisioned, rent, grid, rise))
    if power.carbon_usd_per_tonne.any():
        emitted = operational_kg(monthly.facility_kwh, power.grid_carbon_g_per_kwh)
        books.by_cluster(Account.CARBON, carbon_cost_usd(emitted, power.carbon_usd_per_tonne[:, None]))


def _capital_in_service_usd(books: _Books, assets: Cohorts | None) -> Floats:
    """Return what the machines in service cost when they were bought, averaged over each month.

    Σ over cohorts of cost · nodes in service / nodes, shape (months, clusters): each order at its own price, and what
    is leased at what it costs new.
    """
    capital = np.zeros((books.plan.months.period_count, len(books.plan.clusters)))
    if assets is not None:
        nodes = np.array([cohort.nodes for cohort in books.cohorts])
        serving = nodes_in_service(books.plan, books.cohorts) / nodes[:, None]
        owner = np.array([cohort.cluster for cohort in books.cohorts])
        new = np.array([sum(cluster.leased_prices_usd or (np.nan,)) for cluster in books.plan.clusters])[owner] * nodes
        np.add.at(capital.T, owner, np.where(np.isnan(new), assets.cost_usd, new)[:, None] * serving)
    return capital


def _post_upkeep(books: _Books, run: Run, monthly: Monthly, assets: Cohorts | None) -> None:
    """Post maintenance, insurance, people, contracts, spares and parts.

    People are there for all machines that may serve, support and licences are paid as the machines are: for those that
    are rented by the hour, in the hours that they are.
    """
    plan, grid, upkeep = books.plan, books.plan.months, books.plan.money.upkeep
    nodes, capital = _nodes(plan, monthly), _capital_in_service_usd(books, assets)
    accelerators = nodes * plan.accelerators_per_node
    engineers = np.zeros_like(accelerators)
    for team in plan.software.teams:
        engineers += people(plan, run.log, team.engineers, team.clusters, accelerators)
    staff = accelerators * plan.on_site * upkeep.staff_per_accelerator
    here = np.flatnonzero(plan.on_site)
    crews = people(plan, run.log, plan.reliability.crews, here.tolist(), accelerators) * bool(here.size)
    paid = paid_node_h(plan, monthly) / grid.period_hours[:, None] * plan.accelerators_per_node
    yearly = (
        (Account.MAINTENANCE, capital, upkeep.operations_fraction_per_year, 0.0),
        (Account.INSURANCE, capital, upkeep.insurance_fraction_per_year, 0.0),
        (Account.SOFTWARE_ENGINEERS, engineers, upkeep.engineer_usd_per_year, upkeep.escalator_per_year),
        (Account.OPERATIONS_STAFF, staff, upkeep.staff_usd_per_year, upkeep.escalator_per_year),
        (Account.SUPPORT_CONTRACTS, paid, upkeep.support_usd_per_accelerator_year, upkeep.escalator_per_year),
        (Account.LICENCES, paid, upkeep.licence_usd_per_accelerator_year, upkeep.escalator_per_year),
        (Account.OPERATIONS_STAFF, crews, upkeep.crew_usd_per_year, upkeep.escalator_per_year),
    )
    for account, quantity, price, rise in yearly:
        if price and quantity.any():
            books.by_cluster(account, yearly_cost_usd(quantity, price, grid, rise))
    if plan.site.parking is not None:
        books.by_cluster(Account.MAINTENANCE, monthly.woken_nodes * plan.site.parking.wake_usd)
    if upkeep.part_usd.any():
        books.by_cluster(Account.SPARES, spares_usd(plan, run) * plan.on_site)
    if upkeep.rma_usd or upkeep.replacement_usd.any():
        books.by_cluster(Account.RMA, rma_usd(plan, run) * plan.on_site)


def _post_rent(books: _Books, monthly: Monthly) -> None:
    """Post what machines under contract cost: by the hour on site or at work, and for leaving before the term ends."""
    plan, paid = books.plan, paid_node_h(books.plan, monthly)
    rent, fees = np.zeros_like(paid), np.zeros_like(paid)
    for index, cluster in enumerate(plan.clusters):
        if cluster.rent is not None:
            rent[:, index] = paid[:, index] * cluster.accelerators_per_node * cluster.rent.usd_per_accelerator_h
            if cluster.rent.exit_usd_per_accelerator > 0:
                month = int(plan.months.period_of_hour(np.array(cluster.retire_h)))
                accelerators = cluster.nodes * cluster.accelerators_per_node
                fees[month, index] = accelerators * cluster.rent.exit_usd_per_accelerator
    for account, amount in ((Account.RENT, rent), (Account.EXIT_FEES, fees)):
        if amount.any():
            books.by_cluster(account, amount)


def _post_market(books: _Books, monthly: Monthly, rented: Rented | None) -> None:
    """Post what customers pay, what they are owed, and what is rented for them."""
    plan, market = books.plan, books.plan.money.market
    extra = np.zeros_like(monthly.shed_requests) if rented is None else rented.requests
    if market.sla_credit_usd_per_million_tokens > 0:
        missed = missed_requests(monthly.late_requests, shed_requests(monthly.shed_requests, extra))
        settled = settled_requests(monthly.served_requests.sum(axis=1), monthly.shed_requests)
        allowed = (1.0 - market.sla_objective_fraction) * settled
        beyond = (np.maximum(missed - allowed, 0.0) * plan.tokens_per_request).sum(axis=1)
        books.whole_site(Account.SLA_CREDITS, beyond / MILLION * market.sla_credit_usd_per_million_tokens)
    if market.burst is not None and rented is not None:
        books.whole_site(Account.BURST_RENTAL, rented.accelerator_h * market.burst.usd_per_accelerator_h)
    if market.token_price is not None:
        per_request = plan.request_usd(market.token_price)
        books.by_cluster(Account.REVENUE, -(monthly.served_requests * per_request[:, None, :]).sum(axis=2))
        if extra.any():
            books.whole_site(Account.REVENUE, -(extra * per_request).sum(axis=1))


def _post_tax(books: _Books, rules: TaxRules, building: BuildingBooks | None) -> None:
    """Post income tax: on book income as expense, on taxable as cash, the difference deferred; on the end value."""
    plan, months = books.plan, np.arange(books.plan.months.period_count)
    before = -usd(books.running_cents)
    taxable, gain = before.copy(), 0.0
    if books.cohorts:
        base = tax_base(plan, books.cohorts, rules)
        taxable += usd(base.income_cents.sum(axis=0))
        gain = float(usd(base.end_gain_cents[:, -1].sum()))
    if building is not None:
        taxable -= usd(building.deduction_cents)
        gain += float(usd(building.value_cents[-1] - building.basis_cents[-1]))
    charge = income_tax(taxable, before - usd(books.written_off_cents), plan.months, rules, gain)
    books.builder.post(Account.TAX_CASH, charge.cash_cents, month=months)
    books.builder.post(Account.TAX_DEFERRED, charge.deferred_cents, month=months)
    books.builder.post(Account.TAX_ON_END_VALUE, charge.on_end_gain_cents, month=months[-1])
