"""The measures of a run for finance, each a formula over the ledger's sums.

Every measure is defined once, in :mod:`planner.finance.measure_names`, from which docs/reference/metrics.md is
written; docs/explanation/finance.md says what they rest on. One that has no meaning for a run (a margin without a
price, a cost per token without tokens) is None, never zero.

What owning the fleet costs and earns counts each dollar at its time, by the timing convention of
:mod:`planner.finance.present_value`: the ledger says how much, the cohorts when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Cents, Floats, Ints
from planner.finance import present_value
from planner.finance.accounting import cohorts
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.accounts import (
    ACCOUNT_CODES,
    ACCOUNT_ORDER,
    CAPEX_ACCOUNTS,
    COST_OF_SERVING_ACCOUNTS,
    DATED_ACCOUNTS,
    END_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    OPERATING_EXPENSE_ACCOUNTS,
    Account,
    Category,
    Dated,
    View,
)
from planner.finance.depreciation import TaxRules, assess_usd, tax_years
from planner.finance.financing import mean_prices
from planner.finance.ledger import MONTH_CLUSTER_ACCOUNT, Dimension, Ledger, usd, view_cents
from planner.finance.measure_names import (
    FLEET,
    MEASURES,
    SERVICE,
    SITE,
    SLO_MISSED,
    SeriesKey,
)
from planner.finance.present_value import (
    CashFlows,
    break_even_change,
    discount_factors,
    per_million_tokens,
    running_months,
)
from planner.finance.tariffs import embodied_kg, operational_kg
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.records import record
from planner.units import HOURS_PER_YEAR, KILO, MILLION

Figures = dict[str, float | None]


@per_run
def dated_rows(result: BookedRun) -> tuple[Ints, Floats]:
    """Return the ledger rows that have their own date, and the months from the start to it."""
    ledger = result.ledger
    plan = result.plan
    edges = plan.months.edge_coordinates
    orders = cohorts.order_payments(plan, result.run.log)
    by_cohort = (ledger.cohort_index,)
    by_month = (ledger.month_index, ledger.cluster_index)
    delivery_days = cohorts.months_at(plan, result.cohorts, "bought_h")
    retirement_days = cohorts.months_at(plan, result.cohorts, "retired_h")
    payment_days = orders.mean_months(plan, orders.paid_months)
    settlement_days = orders.mean_months(plan, orders.settled_months)
    # A day for all rows of a kind, or a table of days and the index columns that look it up. The order of kinds is the
    # order in which present values are summed.
    days_by_kind: dict[Dated, tuple[Floats, tuple[NDArray[np.int32], ...]]] = {
        Dated.DELIVERY: (delivery_days, by_cohort),
        Dated.RETIREMENT: (retirement_days, by_cohort),
        Dated.LAST_DAY: (edges[-1], ()),
        Dated.FIRST_DAY: (edges[0], ()),
        Dated.LEASE_PAYMENT: (_lease_payment_months(result), by_month),
        Dated.ORDER_PAYMENT: (payment_days, by_month),
        Dated.ORDER_SETTLEMENT: (settlement_days, by_month),
    }
    rows_by_kind = []
    months_by_kind = []
    for kind, (days, index) in days_by_kind.items():
        accounts = [account for account in DATED_ACCOUNTS if account.dated is kind]
        rows = np.flatnonzero(ledger.rows_of(*accounts))
        # Without rows the table of days may be empty, and has no place to look up.
        if rows.size:
            keys = tuple(column[rows] for column in index)
            months = np.broadcast_to(days[keys], rows.shape)
            rows_by_kind.append(rows)
            months_by_kind.append(months - edges[0])
    # An empty array ahead of each, since a run may have no row with a day of its own.
    nothing = np.zeros(0)
    rows = np.concatenate([nothing.astype(np.intp), *rows_by_kind])
    return rows, np.concatenate([nothing, *months_by_kind])


def _lease_payment_months(result: BookedRun) -> Floats:
    """Return when each month's lease payments are paid: the mean by what is paid, shape (months, clusters)."""
    plan = result.plan
    shape = (plan.months.period_count, len(plan.clusters))
    paid = np.zeros(shape)
    weighted = np.zeros_like(paid)
    for lease in cohorts.leases_of(plan, result.cohorts):
        schedule = lease.schedule
        amount = schedule.principal_cents + schedule.interest_cents
        paid[:, lease.cluster] += amount
        # A month without a payment has no day (NaN).
        paid_days = np.where(amount, amount * schedule.paid_months, 0.0)
        weighted[:, lease.cluster] += paid_days
    mean_months = np.zeros_like(paid)
    np.divide(weighted, paid, out=mean_months, where=paid > 0)
    return mean_months


def flows_of(result: BookedRun, by_account: Cents, view: View) -> CashFlows:
    """Return a view's net cash flows with their times, given the ledger by month and account."""
    ledger = result.ledger
    edges = result.plan.months.edge_coordinates
    rows, months = dated_rows(result)
    in_view = ledger.rows_in(view)[rows]
    running_cents = view_cents(by_account, view, leave_out=DATED_ACCOUNTS)
    dated_cents = ledger.amount_cents[rows[in_view]]
    # Costs are positive in the ledger; a flow is what comes in less what goes out.
    return CashFlows(
        running_usd=-usd(running_cents),
        edge_months=edges - edges[0],
        dated_usd=-usd(dated_cents),
        dated_months=months[in_view],
        timing=result.plan.money.capital.timing,
    )


def running_factors(plan: Plan) -> Floats:
    """Return the present value of a dollar of running cost in each month, shape (months,)."""
    capital = plan.money.capital
    edges = plan.months.edge_coordinates
    months = running_months(edges - edges[0], capital.timing)
    return discount_factors(capital.discount_rate_per_year, months)


def row_factors(result: BookedRun) -> Floats:
    """Return the discount factor of each ledger row, by its date, shape (rows,)."""
    plan = result.plan
    factors = running_factors(plan)[result.ledger.month_index]
    dated, months = dated_rows(result)
    # What has a day of its own is discounted from it, all else from its month.
    rate = plan.money.capital.discount_rate_per_year
    factors[dated] = discount_factors(rate, months)
    return factors


_PL_CATEGORIES = (Category.COST_OF_SERVING, Category.OPERATING_EXPENSE, Category.INTEREST)
PL_ACCOUNTS = tuple(account for account in Account if account.category in _PL_CATEGORIES)
"""The cost of the income statements: cost of serving, operating expense and interest."""


SUMS = ("cost incl. capital charge", "TCO", "net present cost")
"""Lines of the reconciliation that are the sums so far."""


def reconciliation(result: BookedRun) -> dict[str, int]:
    """Return the lines from P&L cost to net present cost in cents; :data:`SUMS` are the sums of the lines before.

    Interest on loans is in the income statement and not in the ledger's cost, whose capital charge stands for all
    capital: so that charge is shown less the interest. Discounting is what is left to net present cost.
    """
    ledger = result.ledger
    figures = measures(result)
    pl = ledger.account_cents(*PL_ACCOUNTS)
    # Whole cents throughout, so that the lines between two sums are their exact difference.
    charged = int(result.cost_cents().sum())
    owned = round(100 * (figures["tco_usd"] or 0.0))
    present = round(-100 * (figures["npv_usd"] or 0.0))
    taxed = ledger.account_cents(Account.REVENUE, Account.TAX_CASH, Account.TAX_ON_END_VALUE)
    return {
        "P&L cost": pl,
        "capital charge, less loan interest": charged - pl,
        "cost incl. capital charge": charged,
        "purchases + opening − end value, less depreciation and charge": owned - charged,
        "TCO": owned,
        "tax, less revenue": taxed,
        "discounting": present - owned - taxed,
        "net present cost": present,
    }


def present_cost_usd(result: BookedRun, leave_out: tuple[Account, ...] = ()) -> Floats:
    """Return net present cost by cluster, with the whole site last, shape (clusters + 1,).

    Σ cost·v in the economic view, before income and tax: all that is paid, less what is owned on the last day as if
    sold then, each discounted from its time. Over all columns it is what :class:`Ownership` says at the last month's
    end. ``leave_out`` names accounts that are not wanted.
    """
    left_out = [ACCOUNT_CODES[account] for account in (*NOT_COST_ACCOUNTS, *leave_out)]
    by_account = np.delete(_present_usd(result), left_out, axis=1)
    by_cluster: Floats = by_account.sum(axis=1)
    return by_cluster


def _present_usd(result: BookedRun) -> Floats:
    """Return the economic view by cluster and account, discounted, shape (clusters + 1, accounts)."""
    ledger = result.ledger
    rows = ledger.rows_in(View.ECONOMIC)
    amount_usd = usd(ledger.amount_cents[rows])
    discounted_usd = amount_usd * row_factors(result)[rows]
    places = ledger.cluster_index[rows], ledger.account_code[rows]
    shape = (len(result.plan.clusters) + 1, len(ACCOUNT_CODES))
    table = np.zeros(shape)
    # The whole site has index −1, which is the last row.
    np.add.at(table, places, discounted_usd)
    return table


def present_parts(result: BookedRun) -> dict[tuple[str, str], float]:
    """Return net present cost in cents by cluster and account, income and tax included."""
    table = _present_usd(result)
    names = [cluster.name for cluster in result.plan.clusters]
    names.append(SITE)
    parts = {}
    for c, code in np.argwhere(table).tolist():
        account = str(ACCOUNT_ORDER[code])
        parts[names[c], account] = 100 * table[c, code]
    return parts


RESOLD_ACCOUNTS = (Account.RESALE, Account.RESIDUAL_VALUE)
"""What used hardware fetches, when it retires and as if sold on the last day."""


@record
class Ownership:
    """Cost of ownership up to each month's end, before income, and the figures for tax on an income.

    Shape (months, clusters + 1) where not stated; the last column is the fleet, the whole site's costs included.
    """

    cost_pv_usd: Floats
    """Cost paid up to the month's end, less what is owned then as if sold, each discounted from its time."""
    income_usd: Floats
    """Taxable income of the month before any is earned: gains on sales, less costs and tax depreciation."""
    end_gain_usd: Floats
    """What selling all that is owned at the month's end would add to taxable income."""
    running_factors: Floats
    """Discount factors of what runs through a month, shape (months,)."""
    end_factors: Floats
    """Discount factors of the months' ends, shape (months,)."""
    years: NDArray[np.int64]
    """Tax year of each month, shape (months,)."""
    tax: TaxRules | None

    def tax_pv_usd(self, earned_usd: Floats, column: int = -1) -> float:
        """Return the present value of tax on given monthly earnings, with everything sold at the end."""
        if self.tax is None:
            return 0.0
        months = earned_usd.size
        income = self.income_usd[:months, column] + earned_usd
        years = self.years[:months]
        end_gain = float(self.end_gain_usd[months - 1, column])
        due, on_sale = assess_usd(income, years, self.tax, end_gain)
        due_pv = due @ self.running_factors[:months]
        return float(due_pv + on_sale * self.end_factors[months - 1])

    def value_usd(self, earned_usd: Floats) -> float:
        """Return the owner's NPV after tax for given monthly earnings of the fleet."""
        earned_pv = earned_usd @ self.running_factors
        before_tax = float(earned_pv - self.cost_pv_usd[-1, -1])
        return before_tax - self.tax_pv_usd(earned_usd)

    def price_usd(self, quantity: Floats, column: int = -1) -> float | None:
        """Return the constant price of a quantity of shape (months,) at which the NPV to its last month is zero."""
        months = quantity.size
        cost = float(self.cost_pv_usd[months - 1, column])
        sold = float(quantity @ self.running_factors[:months])
        if self.tax is None:
            return present_value.levelised_cost(cost, sold)

        def tax_pv_usd(price: float) -> float:
            return self.tax_pv_usd(price * quantity, column)

        # Tax depends on the price itself, since income above the losses carried is taxed.
        return present_value.levelised_cost(cost, sold, tax_pv_usd)


@per_run
def ownership(result: BookedRun) -> Ownership:
    """Return the cost of ownership up to each month's end, by cluster and for the fleet."""
    plan = result.plan
    ledger = result.ledger
    edges = plan.months.edge_coordinates - plan.months.edge_coordinates[0]
    rules = plan.money.market.tax
    shape = (edges.size - 1, len(plan.clusters) + 1)
    rate = plan.money.capital.discount_rate_per_year
    end_factors = discount_factors(rate, edges[1:])
    # What is owned on the last day is counted below, at every month's end.
    not_cost = ledger.rows_of(*NOT_COST_ACCOUNTS, *END_ACCOUNTS)
    cost = ledger.rows_in(View.ECONOMIC) & ~not_cost
    expensed = cost & ledger.rows_in(View.ACCRUAL)
    paid = np.zeros(shape)
    income = np.zeros(shape)
    owned = np.zeros(shape)
    gain = np.zeros(shape)
    amount_usd = usd(ledger.amount_cents)
    discounted_usd = amount_usd * row_factors(result)
    places = np.stack((ledger.month_index, ledger.cluster_index))
    cost_places = tuple(places[:, cost])
    np.add.at(paid, cost_places, discounted_usd[cost])
    # Income is counted in its own month: tax is assessed by the year, and discounted after that.
    expense_places = tuple(places[:, expensed])
    np.subtract.at(income, expense_places, amount_usd[expensed])
    if result.cohorts:
        owner = cohorts.owners(result.cohorts)
        value_usd = usd(cohorts.owned_value_cents(plan, result.cohorts))
        np.add.at(owned.T, owner, value_usd * end_factors)
        for lease in cohorts.leases_of(plan, result.cohorts):
            # Machines that will be bought out count at their value, so the debt for them counts too.
            if lease.terms.is_bought:
                debt_usd = usd(lease.schedule.balance_cents)
                owned[:, lease.cluster] -= debt_usd * end_factors
        if rules is not None:
            taxed, taxed_at_end = cohorts.tax_base(plan, result.cohorts, rules)
            np.add.at(income.T, owner, usd(taxed))
            np.add.at(gain.T, owner, usd(taxed_at_end))
    orders = cohorts.order_payments(plan, result.run.log)
    deposits = orders.balance_cents(plan)[1:]
    deposits_usd = usd(deposits)
    owned[:, :-1] += deposits_usd * end_factors[:, None]
    table = ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    # The account has what is bought and not yet paid as negative cost: its running total is minus the debt.
    payable_changes = table[:, :, ACCOUNT_CODES[Account.PAYABLES]]
    payables = np.cumsum(payable_changes, axis=0)
    owned += usd(payables) * end_factors[:, None]
    for totals in (paid, income, owned, gain):
        # Until here the last column held what belongs to no cluster.
        totals[:, -1] = totals.sum(axis=1)
    return Ownership(
        cost_pv_usd=np.cumsum(paid, axis=0) - owned,
        income_usd=income,
        end_gain_usd=gain,
        running_factors=running_factors(plan),
        end_factors=end_factors,
        years=tax_years(plan.months),
        tax=rules,
    )


def without_resale(result: BookedRun) -> Ownership:
    """Return the fleet's cost of ownership to the last month if used hardware fetched nothing at any time."""
    plan = result.plan
    ledger = result.ledger
    money = plan.money
    owner = ownership(result)
    curves = money.capital.resale
    worthless = tuple(replace(curve, multiplier=0.0) for curve in curves)
    capital = replace(money.capital, resale=worthless)
    bare_money = replace(money, capital=capital)
    bare = replace(plan, money=bare_money)
    rows = ledger.rows_of(*RESOLD_ACCOUNTS, Account.OPENING_VALUE)
    # Deposits on orders are in these accounts too, without a cohort: they keep their value.
    rows &= ledger.cohort_index >= 0
    cost = owner.cost_pv_usd.copy()
    income = owner.income_usd.copy()
    gain = owner.end_gain_usd.copy()
    # The last cell is the fleet over the whole run, the only one that is read of this.
    value_usd = usd(ledger.amount_cents[rows])
    factors = row_factors(result)[rows]
    cost[-1, -1] -= value_usd @ factors
    rules = money.market.tax
    if rules is not None and result.cohorts:
        # A loss on the tax basis remains where hardware fetches nothing: it still lowers tax.
        opening_value = cohorts.opening_value_cents(bare, result.cohorts, rules)
        cost[-1, -1] += usd(opening_value.sum())
        taxed, taxed_at_end = cohorts.tax_base(plan, result.cohorts, rules)
        bare_taxed, bare_at_end = cohorts.tax_base(bare, result.cohorts, rules)
        taxed_change = (bare_taxed - taxed).sum(axis=0)
        gain_change = (bare_at_end - taxed_at_end).sum(axis=0)
        income[:, -1] += usd(taxed_change)
        gain[:, -1] += usd(gain_change)
    return replace(owner, cost_pv_usd=cost, income_usd=income, end_gain_usd=gain)


def levelised_to_date(owner: Ownership, quantity: Floats) -> Floats:
    """Return the levelised cost per million of a quantity from the start to each month, shape (months, columns).

    The quantity (tokens) has a column for each cluster and then the fleet. What is owned at a month's end counts as if
    the horizon ended there, so the last month of the fleet is the measure of the whole run. Under tax, each cluster is
    taxed on its own income.
    """
    # Contiguous, since each price takes dot products of a prefix of its column.
    millions = np.ascontiguousarray(quantity.T) / MILLION
    months = range(1, quantity.shape[0] + 1)
    prices = [
        [owner.price_usd(sold[:month], column) for month in months]
        for column, sold in enumerate(millions)
    ]
    return np.array(prices, dtype=np.float64).T


@record
class Sums:
    """Sums of a run by period and cluster, with the fleet last: shape (periods, clusters + 1) unless stated.

    Every figure of service and of accrued cost, by month or over the run, is a quantity of these sums.
    """

    on_site_h: Floats
    """Accelerator-hours delivered and not retired."""
    in_service_h: Floats
    """Accelerator-hours in service."""
    busy_h: Floats
    """Accelerator-hours at work."""
    drag_h: Floats
    """Of those, what slow software cost."""
    served_tokens: Floats
    """The fleet's include those served on rented accelerators."""
    served_output_tokens: Floats
    energy_kwh: Floats
    """At the meter."""
    cost_usd: Floats
    """Accrued, without income and tax; the fleet's includes what belongs to the site as a whole."""
    demand_tokens: Floats
    """Shape (periods,), as are the following: they belong to no cluster."""
    shed_tokens: Floats
    settled_requests: Floats
    missed_requests: Floats

    def over_run(self) -> Sums:
        """Return the sums over all periods, as one period."""
        totals = {}
        for field in fields(Sums):
            monthly = getattr(self, field.name)
            totals[field.name] = monthly.sum(axis=0, keepdims=True)
        return Sums(**totals)

    def figures(self) -> dict[str, Floats]:
        """Return the figures of every cluster and the fleet, by their names in :data:`DEFINITIONS`."""
        tokens = self.served_tokens
        output_tokens = self.served_output_tokens
        return {
            "availability_fraction": quantities.availability(self.in_service_h, self.on_site_h),
            "utilisation_fraction": quantities.utilisation(self.busy_h, self.in_service_h),
            "served_tokens": tokens,
            "energy_kwh": self.energy_kwh,
            "cost_usd": self.cost_usd,
            "cost_per_million_tokens_usd": per_million_tokens(self.cost_usd, tokens),
            "served_output_tokens": output_tokens,
            "cost_per_million_output_tokens_usd": per_million_tokens(self.cost_usd, output_tokens),
        }

    def fleet_figures(self) -> dict[str, Floats]:
        """Return the figures that only the fleet has, shape (periods,)."""
        attainment = quantities.attainment(self.missed_requests, self.settled_requests)
        return {
            "demand_tokens": self.demand_tokens,
            "shed_tokens": self.shed_tokens,
            "shed_fraction": quantities.shed_share(self.shed_tokens, self.demand_tokens),
            "slo_attainment_fraction": attainment,
        }


@per_run
def sums_of(result: BookedRun) -> Sums:
    """Return a run's sums by month."""
    monthly = result.monthly
    rented = result.rented.requests
    per_node = result.plan.accelerators_per_node
    cents = result.cost_cents()

    def served(*, output_only: bool) -> Floats:
        tokens = result.tokens(monthly.served_requests, output_only=output_only)
        rented_tokens = result.tokens(rented, output_only=output_only)
        elsewhere = rented_tokens.sum(axis=1)
        return with_fleet(tokens.sum(axis=2), elsewhere=elsewhere)

    return Sums(
        on_site_h=with_fleet(monthly.present_node_h * per_node),
        in_service_h=with_fleet(monthly.in_service_node_h * per_node),
        busy_h=with_fleet(monthly.busy_node_h * per_node),
        drag_h=with_fleet(monthly.drag_node_h * per_node),
        served_tokens=served(output_only=False),
        served_output_tokens=served(output_only=True),
        energy_kwh=with_fleet(monthly.facility_kwh),
        # The last column of the ledger is the site's, which only the fleet bears.
        cost_usd=usd(with_fleet(cents[:, :-1], elsewhere=cents[:, -1])),
        demand_tokens=result.tokens(monthly.demand_requests).sum(axis=1),
        shed_tokens=result.tokens(result.shed_requests()).sum(axis=1),
        settled_requests=result.settled_requests().sum(axis=1),
        missed_requests=result.missed_requests().sum(axis=1),
    )


def with_fleet(per_cluster: NDArray[Any], elsewhere: NDArray[Any] | float = 0.0) -> NDArray[Any]:
    """Return a table with the fleet as last column: the sum of clusters, and amounts of no cluster."""
    fleet = per_cluster.sum(axis=1) + elsewhere
    return np.column_stack((per_cluster, fleet))


@record
class FleetSeries:
    """The monthly series of the fleet behind the measures, shape (months,) each."""

    sums: Sums
    economic_usd: Floats
    """Cost in the economic view, without income and tax."""
    cash_flow_usd: Floats
    """Gains less losses in cash, by month."""
    economic: CashFlows
    """Gains less losses in the economic view, income and tax included, each at its time."""
    cash: CashFlows
    """Gains less losses in cash, each at its time."""

    @property
    def tokens(self) -> Floats:
        """Tokens served, including on rented accelerators."""
        return self.sums.served_tokens[:, -1]

    @property
    def output_tokens(self) -> Floats:
        """Output tokens served, including on rented accelerators."""
        return self.sums.served_output_tokens[:, -1]

    @property
    def accrued_usd(self) -> Floats:
        """Cost in the accrual view, without income and tax."""
        return self.sums.cost_usd[:, -1]


@per_run
def series_of(result: BookedRun) -> FleetSeries:
    """Return the monthly series of the whole fleet."""
    cents = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    economic_cents = view_cents(cents, View.ECONOMIC, leave_out=NOT_COST_ACCOUNTS)
    return FleetSeries(
        sums=sums_of(result),
        economic_usd=usd(economic_cents),
        cash_flow_usd=-usd(view_cents(cents, View.CASH)),
        economic=flows_of(result, cents, View.ECONOMIC),
        cash=flows_of(result, cents, View.CASH),
    )


@per_run
def measures(result: BookedRun) -> Mapping[str, float | None]:
    """Return every measure of a run by name, in the order of :data:`MEASURES`."""
    series = series_of(result)
    sums = series.sums.over_run()
    figures: Figures = {}
    for name, accrued in sums.figures().items():
        figures[name] = _known(accrued)
    figures |= _cost_measures(result, series)
    figures |= _api_measures(result)
    if result.plan.money.market.token_price is not None:
        figures |= _revenue_measures(result, series, sums)
    figures |= _footprint_measures(result, sums)
    # A measure that has no meaning for this run is in none of the parts, and is None.
    by_name = {measure.name: figures.get(measure.name) for measure in MEASURES}
    return MappingProxyType(by_name)


def _cost_measures(result: BookedRun, series: FleetSeries) -> Figures:
    """Return what a plan costs: accrued, in cash, in present value and levelised."""
    plan = result.plan
    ledger = result.ledger
    owner = ownership(result)
    tokens_m = series.tokens / MILLION
    resold = ledger.rows_of(*RESOLD_ACCOUNTS) & (ledger.cohort_index >= 0)
    resale_usd = usd(ledger.amount_cents[resold])
    resale_pv = resale_usd @ row_factors(result)[resold]
    nameplate_mw = np.array([cluster.nameplate_kw / KILO for cluster in plan.clusters])
    mw_h = result.monthly.present_node_h.sum(axis=0) @ nameplate_mw
    accrued_usd = series.sums.over_run().cost_usd[0, -1]
    per_mw_year = present_value.ratio(accrued_usd * HOURS_PER_YEAR, mw_h)
    discount_rate = plan.money.capital.discount_rate_per_year
    figures: Figures = {
        "pl_cost_usd": _account_usd(ledger, *PL_ACCOUNTS),
        "tco_usd": float(series.economic_usd.sum()),
        "npv_usd": series.economic.net_present_value(discount_rate),
        "capex_usd": _account_usd(ledger, *CAPEX_ACCOUNTS),
        "cash_usd": float(-series.cash_flow_usd.sum()),
        "end_value_usd": -_account_usd(ledger, Account.RESIDUAL_VALUE),
        "resale_pv_usd": -float(resale_pv),
        "levelised_cost_without_resale_per_million_tokens_usd": without_resale(result).price_usd(
            tokens_m
        ),
        "levelised_cost_per_accelerator_h_usd": owner.price_usd(series.sums.in_service_h[:, -1]),
        "levelised_cost_per_million_tokens_usd": owner.price_usd(tokens_m),
        "levelised_cost_per_million_output_tokens_usd": owner.price_usd(
            series.output_tokens / MILLION
        ),
        "cost_per_mw_year_usd": _known(per_mw_year),
    }
    if plan.money.market.tax:
        figures["tax_usd"] = _account_usd(ledger, Account.TAX_CASH, Account.TAX_DEFERRED)
    return figures


def _api_measures(result: BookedRun) -> Figures:
    """Return what an API would have to charge, and what owning saves against its price."""
    price = result.plan.money.market.api_price
    if price is None:
        return {}
    owner = ownership(result)
    served = result.monthly.served_requests.sum(axis=1)
    requests = served + result.rented.requests
    # What these requests would have cost at the API's price, by month.
    request_usd = result.plan.request_usd(price)
    bill = (requests * request_usd).sum(axis=1)
    figures = {
        "break_even_api_price_ratio": owner.price_usd(bill),
        "api_saving_npv_usd": owner.value_usd(bill),
    }
    if result.plan.money.market.is_api_listed:
        # What the plan itself sends to an API changes alike.
        own_bill = _bought_at_lists_usd(result)

        def saving_usd(change_per_year: float) -> float:
            factors = _list_factors(result.plan, change_per_year)
            return owner.value_usd(bill * factors - own_bill * (factors - 1.0))

        figures["break_even_api_price_change_per_year"] = break_even_change(saving_usd)
    return figures


def _revenue_measures(result: BookedRun, series: FleetSeries, sums: Sums) -> Figures:
    """Return margins, break-even, return and payback of tokens sold."""
    plan = result.plan
    ledger = result.ledger
    accrued = float(sums.cost_usd[0, -1])
    revenue = -_account_usd(ledger, Account.REVENUE)
    serving = _account_usd(ledger, *COST_OF_SERVING_ACCOUNTS)
    operating = _account_usd(ledger, *OPERATING_EXPENSE_ACCOUNTS)
    discount_rate = plan.money.capital.discount_rate_per_year
    figures: Figures = {
        "revenue_usd": revenue,
        "gross_margin_fraction": _known(present_value.margin(revenue, serving)),
        "operating_margin_fraction": _known(present_value.margin(revenue, serving + operating)),
        "margin_after_capital_charge_fraction": _known(present_value.margin(revenue, accrued)),
        "irr_per_year": series.economic.internal_rate(),
        "payback_months": series.cash.payback_months(),
        "discounted_payback_months": series.cash.payback_months(discount_rate),
        "break_even_price_change_per_year": break_even_change(value_at_price_change(result)),
    }
    tokens = float(sums.served_tokens[0, -1])
    busy_fraction = quantities.utilisation(sums.busy_h, sums.in_service_h)
    utilisation = float(busy_fraction[0, -1])
    if tokens > 0 and utilisation > 0:
        by_the_hour = np.array([cluster.is_paid_by_the_hour for cluster in plan.clusters])
        by_cluster = ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
        rent = by_cluster[:-1, ACCOUNT_CODES[Account.RENT]] @ by_the_hour
        power = _account_usd(ledger, Account.ENERGY, Account.COOLING)
        # Cost that follows use; all else is there whether the machines work or not.
        variable = power + float(usd(rent))
        figures["break_even_utilisation_fraction"] = present_value.break_even_utilisation(
            accrued - variable, tokens / utilisation, revenue / tokens, variable / tokens
        )
    return figures


def value_at_price_change(result: BookedRun) -> Callable[[float], float]:
    """Return the function from the yearly change of listed token prices to the NPV of a run.

    Prices that state a change of their own stay. What is bought from an API moves with what is sold.
    """
    plan = result.plan
    market = plan.money.market
    owner = ownership(result)
    listed_usd = -_bought_at_lists_usd(result)
    if market.token_price is not None:
        request_usd = plan.request_usd(market.token_price) * market.is_listed
        sold = result.monthly.served_requests.sum(axis=1) + result.rented.requests
        listed_usd += (sold * request_usd).sum(axis=1)
    earned_usd = -usd(result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT))
    income_usd = earned_usd[:, ACCOUNT_CODES[Account.REVENUE]]
    npv_usd = series_of(result).economic.net_present_value(
        plan.money.capital.discount_rate_per_year
    )
    # Only the difference is revalued: the NPV as run has what customers pay later, too.
    revalued_from = owner.value_usd(income_usd)

    def value_usd(change_per_year: float) -> float:
        changed_usd = listed_usd * (_list_factors(plan, change_per_year) - 1.0)
        return npv_usd + owner.value_usd(income_usd + changed_usd) - revalued_from

    return value_usd


def _bought_at_lists_usd(result: BookedRun) -> Floats:
    """Return what is paid to APIs at prices that change with the market's lists, shape (months,)."""
    plan = result.plan
    bought_usd = np.zeros(plan.months.period_count)
    for index, cluster in enumerate(plan.clusters):
        if cluster.api is not None:
            request_usd = plan.api_request_usd(index) * cluster.api.is_listed
            bought = result.monthly.served_requests[:, index] * request_usd
            bought_usd += bought.sum(axis=1)
    return bought_usd


def _list_factors(plan: Plan, change_per_year: float) -> Floats:
    """Return listed prices at a yearly change over those of the plan, by month."""
    edges = plan.months.edge_coordinates - plan.months.edge_coordinates[0]
    prices = mean_prices(1.0, change_per_year, edges)
    return prices / mean_prices(1.0, plan.money.market.price_change_per_year, edges)


def _footprint_measures(result: BookedRun, sums: Sums) -> Figures:
    """Return energy and emissions per token; machines at a provider's neither draw nor count."""
    plan = result.plan
    power = plan.money.power
    cluster_tokens = sums.served_tokens[0, :-1]
    site_tokens = (cluster_tokens * plan.on_site).sum()
    energy_kwh = sums.energy_kwh[0, -1]
    emitted_kg = operational_kg(energy_kwh, power.grid_carbon_g_per_kwh)
    figures: Figures = {
        "energy_kwh_per_million_tokens": _known(per_million_tokens(energy_kwh, site_tokens)),
        "operational_kg_per_million_tokens": _known(per_million_tokens(emitted_kg, site_tokens)),
    }
    machines_kg = []
    for cohort in result.cohorts:
        node_kg = power.embodied_kg[cohort.cluster]
        machines_kg.append(node_kg * cohort.machines)
    made_kg = np.array(machines_kg)
    # One machine of which nobody has published a figure leaves the sum unknown.
    if result.cohorts and not np.isnan(made_kg).any():
        service = cohorts.service_months(plan, result.cohorts)
        edges = plan.months.edge_coordinates
        spread = embodied_kg(made_kg, service, power.service_life_months, edges)
        per_million = per_million_tokens(spread.sum(), site_tokens)
        figures["embodied_kg_per_million_tokens"] = _known(per_million)
    return figures


def _account_usd(ledger: Ledger, *accounts: Account) -> float:
    """Return the total of some accounts in dollars."""
    return float(usd(ledger.account_cents(*accounts)))


def service(result: BookedRun) -> Figures:
    """Return the service figures over the whole horizon, by the names of :data:`SERVICE`."""
    sums = sums_of(result).over_run()
    figures = sums.figures() | sums.fleet_figures()
    targeted = slo_figures(result)
    by_name = dict(targeted)
    for name in SERVICE:
        if name not in targeted:
            by_name[name] = _known(figures[name])
    return {name: by_name[name] for name in SERVICE}


def slo_figures(result: BookedRun) -> Figures:
    """Return how a run stands to its SLO target; the worst share is None where no request was settled."""
    verdict = result.slo_result()
    attainment = None
    if verdict.worst is not None:
        attainment = verdict.worst.slo_attainment_fraction
    return {
        "slo_attainment_lowest_fraction": attainment,
        "slo_shortfall_fraction": verdict.shortfall_fraction,
        "slo_met_months": float(verdict.met_months(len(result.plan.months.labels))),
    }


def _known(figures: Floats) -> float | None:
    """Return the fleet's figure, the last one, or None where it is NaN."""
    number = float(figures.flat[-1])
    if np.isnan(number):
        return None
    return number


def revenue_usd(result: BookedRun) -> Floats:
    """Return the revenue from tokens by month, shape (months, clusters + 1), the fleet last; NaN without a price."""
    cents = -result.ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    sold = cents[:, :, ACCOUNT_CODES[Account.REVENUE]]
    if result.plan.money.market.token_price is None:
        return np.full(sold.shape, np.nan)
    sold_elsewhere = sold[:, -1]
    return usd(with_fleet(sold[:, :-1], elsewhere=sold_elsewhere))


def workload_figures(result: BookedRun) -> dict[str, Floats]:
    """Return the figures of workloads, shape (months, workloads) each."""
    monthly = result.monthly
    own_served = monthly.served_requests.sum(axis=1)
    served = own_served + result.rented.requests
    attainment = quantities.attainment(result.missed_requests(), result.settled_requests())
    return {
        "demand_tokens": result.tokens(monthly.demand_requests),
        "served_tokens": result.tokens(served),
        "served_output_tokens": result.tokens(served, output_only=True),
        "shed_tokens": result.tokens(result.shed_requests()),
        "late_tokens": result.tokens(monthly.late_requests),
        "slo_attainment_fraction": attainment,
    }


def observed(result: BookedRun, series: Sequence[SeriesKey]) -> Floats:
    """Return the series of a run that can be compared with actuals, shape (series, months).

    NaN where there is nothing to divide.
    """
    plan = result.plan
    monthly = result.monthly
    sums = sums_of(result)
    accounts_cents = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    accounts = usd(accounts_cents)
    by_workload = workload_figures(result)
    by_cluster = {
        **sums.figures(),
        **sums.fleet_figures(),
        "accelerators_in_service": sums.in_service_h / plan.months.period_hours[:, None],
        "on_site_accelerator_h": sums.on_site_h,
        "peak_facility_kw": monthly.peak_facility_kw,
    }
    if SLO_MISSED in series:
        is_missed = np.zeros(len(plan.months.labels))
        is_missed[list(result.slo_result().missed_months)] = 1.0
        by_cluster[SLO_MISSED.figure] = is_missed
    for name in ("lost_to_failures", "lost_to_software"):
        by_cluster[f"{name}_node_h"] = with_fleet(monthly.fates_node_h[name])
    clusters = [cluster.name for cluster in plan.clusters]
    clusters.append(FLEET)
    workloads = [workload.name for workload in plan.workloads]

    def months_of(key: SeriesKey) -> Floats:
        match key.kind:
            case "account":
                code = ACCOUNT_CODES[Account(key.figure)]
                return accounts[:, code]
            case "workload":
                column = workloads.index(key.entity)
                return by_workload[key.figure][:, column]
        table = by_cluster[key.figure]
        # Figures that only the fleet has are one series.
        if table.ndim == 1:
            return table
        return table[:, clusters.index(key.entity)]

    months_by_key = [months_of(key) for key in series]
    columns = np.array(months_by_key, dtype=np.float64)
    # Without a series the array has one axis: the months are given to it here.
    return columns.reshape(len(series), len(plan.months.labels))
