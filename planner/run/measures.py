"""The measures of a run for finance, each a formula over the ledger's sums.

Every measure is defined once, in :mod:`planner.run.measure_names`, from which docs/reference/metrics.md is
written; docs/explanation/finance.md says what they rest on. One that has no meaning for a run (a margin without a
price, a cost per token without tokens) is None, never zero.

What owning the fleet costs and earns counts each dollar at its time, by the timing convention of
:mod:`planner.finance.present_value`: the ledger says how much, the cohorts when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats, Ints
from planner.finance import ledger as books
from planner.finance import present_value
from planner.finance.depreciation import TaxRules, assess_usd, tax_years
from planner.finance.ledger import (
    ACCOUNT_CODES,
    ACCOUNT_ORDER,
    NOT_COST_ACCOUNTS,
    Account,
    Category,
    Dimension,
    View,
    usd,
)
from planner.finance.present_value import (
    CashFlows,
    discount_factors,
    per_million_tokens,
    running_months,
)
from planner.finance.tariffs import embodied_kg, operational_kg
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.run import cohorts
from planner.run.measure_names import MEASURES, SERVICE, SITE
from planner.run.simulate import RunResult, per_run
from planner.scenario.actuals import FLEET, Seen
from planner.units import HOURS_PER_YEAR, KILO, MILLION, MONTHS_PER_YEAR

Figures = dict[str, float | None]


@per_run
def dated_rows(result: RunResult) -> tuple[Ints, Floats]:
    """Return the ledger rows that have their own date, and the months from the start to it."""
    ledger = result.ledger
    plan = result.plan
    start, *_, end = plan.months.edge_coordinates
    orders = cohorts.order_payments(plan, result.run.log)
    days = np.zeros(ledger.row_count)
    places = []

    def dated(
        accounts: tuple[Account, ...],
        coordinates: Floats | float,
        index: tuple[NDArray[Any], ...] = (),
    ) -> None:
        """Date the rows of some accounts, all on one day or by lookup in a table."""
        rows = np.flatnonzero(ledger.rows_of(*accounts))
        places.append(rows)
        if rows.size:
            days[rows] = np.asarray(coordinates)[tuple(column[rows] for column in index)]

    by_cohort = (ledger.cohort_index,)
    by_month = (ledger.month_index, ledger.cluster_index)
    dated(books.CAPEX_ACCOUNTS, cohorts.months_at(plan, result.cohorts, "bought_h"), by_cohort)
    dated((Account.RESALE,), cohorts.months_at(plan, result.cohorts, "retired_h"), by_cohort)
    dated(books.END_ACCOUNTS, end)
    dated((Account.OPENING_VALUE,), start)
    paid, weighted = (np.zeros((plan.months.period_count, len(plan.clusters))) for _ in range(2))
    for lease in cohorts.leases_of(
        plan, result.cohorts
    ):  # when a month's payments are paid: the mean by what is paid
        amount = lease.schedule.principal_cents + lease.schedule.interest_cents
        paid[:, lease.cluster] += amount
        weighted[:, lease.cluster] += np.where(amount, amount * lease.schedule.paid_months, 0.0)
    dated(
        books.LEASE_PAYMENTS,
        np.divide(weighted, paid, out=np.zeros_like(paid), where=paid > 0),
        by_month,
    )
    dated((Account.ORDER_PAID,), orders.mean_months(plan, orders.paid_months), by_month)
    dated((Account.ORDER_SETTLED,), orders.mean_months(plan, orders.settled_months), by_month)
    rows = np.concatenate(places)
    return rows, days[rows] - start


def flows_of(result: RunResult, by_account: NDArray[np.int64], view: View) -> CashFlows:
    """Return a view's net cash flows with their times, given the ledger by month and account."""
    ledger = result.ledger
    edges = result.plan.months.edge_coordinates
    rows, months = dated_rows(result)
    seen = ledger.rows_in(view)[rows]
    return CashFlows(
        running_usd=-usd(books.view_cents(by_account, view, leave_out=books.DATED_ACCOUNTS)),
        edge_months=edges - edges[0],
        dated_usd=-usd(ledger.amount_cents[rows[seen]]),
        dated_months=months[seen],
        timing=result.plan.money.capital.timing,
    )


def running_factors(plan: Plan) -> Floats:
    """Return the present value of a dollar of running cost in each month, shape (months,)."""
    capital = plan.money.capital
    edges = plan.months.edge_coordinates
    return discount_factors(
        capital.discount_rate_per_year, running_months(edges - edges[0], capital.timing)
    )


def row_factors(result: RunResult) -> Floats:
    """Return the discount factor of each ledger row, by its date, shape (rows,)."""
    factors = running_factors(result.plan)[result.ledger.month_index]
    dated, months = dated_rows(result)
    factors[dated] = discount_factors(result.plan.money.capital.discount_rate_per_year, months)
    return factors


_PL_CATEGORIES = (Category.COST_OF_SERVING, Category.OPERATING_EXPENSE, Category.INTEREST)
PL_ACCOUNTS = tuple(account for account in Account if account.category in _PL_CATEGORIES)
"""The cost of the income statements: cost of serving, operating expense and interest."""


SUMS = ("cost incl. capital charge", "TCO", "net present cost")
"""Lines of the reconciliation that are the sums so far."""


def reconciliation(result: RunResult) -> dict[str, int]:
    """Return the lines from P&L cost to net present cost in cents; :data:`SUMS` are the sums of the lines before.

    Interest on loans is in the income statement and not in the ledger's cost, whose capital charge stands for all
    capital: so that charge is shown less the interest. Discounting is what is left to net present cost.
    """
    ledger = result.ledger
    figures = measures(result)
    pl = int(ledger.account_cents(*PL_ACCOUNTS))
    charged = int(result.cost_cents().sum())
    owned = round(100 * (figures["tco_usd"] or 0.0))
    present = round(-100 * (figures["npv_usd"] or 0.0))
    taxed = int(ledger.account_cents(Account.REVENUE, Account.TAX_CASH, Account.TAX_ON_END_VALUE))
    return {
        "P&L cost": pl,
        "capital charge, less loan interest": charged - pl,
        "cost incl. capital charge": charged,
        "purchases, opening and end value, less depreciation and charge": owned - charged,
        "TCO": owned,
        "tax, less revenue": taxed,
        "discounting": present - owned - taxed,
        "net present cost": present,
    }


def present_cost_usd(result: RunResult, leave_out: tuple[Account, ...] = ()) -> Floats:
    """Return net present cost by cluster, with the whole site last, shape (clusters + 1,).

    Σ cost·v in the economic view, before income and tax: all that is paid, less what is owned on the last day as if
    sold then, each discounted from its time. Over all columns it is what :class:`Ownership` says at the last month's
    end. ``leave_out`` names accounts that are not wanted.
    """
    left_out = [ACCOUNT_CODES[account] for account in (*NOT_COST_ACCOUNTS, *leave_out)]
    return np.asarray(np.delete(_present_usd(result), left_out, axis=1).sum(axis=1))


def _present_usd(result: RunResult) -> Floats:
    """Return the economic view by cluster and account, discounted, shape (clusters + 1, accounts)."""
    ledger = result.ledger
    table = np.zeros((len(result.plan.clusters) + 1, len(ACCOUNT_CODES)))
    rows = ledger.rows_in(View.ECONOMIC)
    places = ledger.cluster_index[rows], ledger.account_code[rows]
    np.add.at(table, places, usd(ledger.amount_cents[rows]) * row_factors(result)[rows])
    return table


def present_parts(result: RunResult) -> dict[tuple[str, str], float]:
    """Return net present cost in cents by cluster and account, income and tax included."""
    table = _present_usd(result)
    names = [*(cluster.name for cluster in result.plan.clusters), SITE]
    return {
        (names[c], str(ACCOUNT_ORDER[code])): 100 * table[c, code]
        for c, code in np.argwhere(table).tolist()
    }


RESOLD_ACCOUNTS = (Account.RESALE, Account.RESIDUAL_VALUE)
"""What used hardware fetches, when it retires and as if sold on the last day."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        due, on_sale = assess_usd(
            income, years, self.tax, float(self.end_gain_usd[months - 1, column])
        )
        return float(due @ self.running_factors[:months] + on_sale * self.end_factors[months - 1])

    def value_usd(self, earned_usd: Floats) -> float:
        """Return the owner's NPV after tax for given monthly earnings of the fleet."""
        return float(
            earned_usd @ self.running_factors - self.cost_pv_usd[-1, -1]
        ) - self.tax_pv_usd(earned_usd)

    def price_usd(self, quantity: Floats, column: int = -1) -> float | None:
        """Return the constant price of a quantity of shape (months,) at which the NPV to its last month is zero."""
        months = quantity.size
        cost = self.cost_pv_usd[months - 1, column]
        sold = quantity @ self.running_factors[:months]
        taxed = (
            None if self.tax is None else lambda price: self.tax_pv_usd(price * quantity, column)
        )
        return present_value.levelised_cost(float(cost), float(sold), taxed)


@per_run
def ownership(result: RunResult) -> Ownership:
    """Return the cost of ownership up to each month's end, by cluster and for the fleet."""
    plan, ledger, capital = result.plan, result.ledger, result.plan.money.capital
    edges = plan.months.edge_coordinates - plan.months.edge_coordinates[0]
    rate = capital.discount_rate_per_year
    rules = plan.money.market.tax
    shape = (edges.size - 1, len(plan.clusters) + 1)
    ends = discount_factors(rate, edges[1:])
    cost = ledger.rows_in(View.ECONOMIC) & ~ledger.rows_of(*NOT_COST_ACCOUNTS, *books.END_ACCOUNTS)
    expensed = cost & ledger.rows_in(View.ACCRUAL)
    paid, income, owned, gain = (np.zeros(shape) for _ in range(4))
    amount_usd = usd(ledger.amount_cents)
    places = np.stack((ledger.month_index, ledger.cluster_index))
    np.add.at(paid, tuple(places[:, cost]), amount_usd[cost] * row_factors(result)[cost])
    np.subtract.at(income, tuple(places[:, expensed]), amount_usd[expensed])
    if result.cohorts:
        owner = np.array([cohort.cluster for cohort in result.cohorts])
        np.add.at(owned.T, owner, usd(cohorts.owned_value_cents(plan, result.cohorts)) * ends)
        for lease in (
            lease for lease in cohorts.leases_of(plan, result.cohorts) if lease.terms.is_bought
        ):
            owned[:, lease.cluster] -= usd(lease.schedule.balance_cents) * ends
        if rules is not None:
            for table, added in zip(
                (income, gain), cohorts.tax_base(plan, result.cohorts, rules), strict=True
            ):
                np.add.at(table.T, owner, usd(added))
    owned[:, :-1] += (
        usd(cohorts.order_payments(plan, result.run.log).balance_cents(plan)[1:]) * ends[:, None]
    )
    payables = ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    owned += usd(np.cumsum(payables[:, :, ACCOUNT_CODES[Account.PAYABLES]], axis=0)) * ends[:, None]
    for table in (paid, income, owned, gain):
        # Until here the last column held what belongs to no cluster.
        table[:, -1] = table.sum(axis=1)
    return Ownership(
        cost_pv_usd=np.cumsum(paid, axis=0) - owned,
        income_usd=income,
        end_gain_usd=gain,
        running_factors=running_factors(plan),
        end_factors=ends,
        years=tax_years(plan.months),
        tax=rules,
    )


def without_resale(result: RunResult) -> Ownership:
    """Return the fleet's cost of ownership to the last month if used hardware fetched nothing at any time."""
    plan, money, owner, ledger = result.plan, result.plan.money, ownership(result), result.ledger
    worthless = tuple(replace(curve, multiplier=0.0) for curve in money.capital.resale)
    bare = replace(plan, money=replace(money, capital=replace(money.capital, resale=worthless)))
    rows = ledger.rows_of(*RESOLD_ACCOUNTS, Account.OPENING_VALUE) & (ledger.cohort_index >= 0)
    cost, income, gain = (
        table.copy() for table in (owner.cost_pv_usd, owner.income_usd, owner.end_gain_usd)
    )
    cost[-1, -1] -= usd(ledger.amount_cents[rows]) @ row_factors(result)[rows]
    if money.market.tax is not None and result.cohorts:
        of = (result.cohorts, money.market.tax)
        cost[-1, -1] += usd(cohorts.opening_value_cents(bare, *of).sum())
        bases = cohorts.tax_base(plan, *of), cohorts.tax_base(bare, *of)
        for table, now, then in zip((income, gain), *bases, strict=True):
            table[:, -1] += usd((then - now).sum(axis=0))
    return replace(owner, cost_pv_usd=cost, income_usd=income, end_gain_usd=gain)


def levelised_to_date(owner: Ownership, quantity: Floats) -> Floats:
    """Return the levelised cost per million of a quantity from the start to each month, shape (months, columns).

    The quantity (tokens) has a column for each cluster and then the fleet. What is owned at a month's end counts as if
    the horizon ended there, so the last month of the fleet is the measure of the whole run. Under tax, each cluster is
    taxed on its own income.
    """
    millions = np.ascontiguousarray(quantity.T) / MILLION
    months = range(1, quantity.shape[0] + 1)
    prices = [
        [owner.price_usd(sold[:month], column) for month in months]
        for column, sold in enumerate(millions)
    ]
    return np.array(prices, dtype=np.float64).T


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return Sums(
            **{
                field.name: getattr(self, field.name).sum(axis=0, keepdims=True)
                for field in fields(Sums)
            }
        )

    def figures(self) -> dict[str, Floats]:
        """Return the figures of every cluster and the fleet, by their names in :data:`DEFINITIONS`."""
        return {
            "availability_fraction": quantities.availability(self.in_service_h, self.on_site_h),
            "utilisation_fraction": quantities.utilisation(self.busy_h, self.in_service_h),
            "served_tokens": self.served_tokens,
            "energy_kwh": self.energy_kwh,
            "cost_usd": self.cost_usd,
            "cost_per_million_tokens_usd": per_million_tokens(self.cost_usd, self.served_tokens),
            "served_output_tokens": self.served_output_tokens,
            "cost_per_million_output_tokens_usd": per_million_tokens(
                self.cost_usd, self.served_output_tokens
            ),
        }

    def fleet_figures(self) -> dict[str, Floats]:
        """Return the figures that only the fleet has, shape (periods,)."""
        return {
            "demand_tokens": self.demand_tokens,
            "shed_tokens": self.shed_tokens,
            "shed_fraction": quantities.shed_share(self.shed_tokens, self.demand_tokens),
            "slo_attainment_fraction": quantities.attainment(
                self.missed_requests, self.settled_requests
            ),
        }


@per_run
def sums_of(result: RunResult) -> Sums:
    """Return a run's sums by month."""
    monthly = result.monthly
    rented = result.rented.requests
    per_node = result.plan.accelerators_per_node
    cents = result.cost_cents()

    def served(*, output_only: bool) -> Floats:
        tokens = result.tokens(monthly.served_requests, output_only=output_only).sum(axis=2)
        return with_fleet(
            tokens, elsewhere=result.tokens(rented, output_only=output_only).sum(axis=1)
        )

    return Sums(
        on_site_h=with_fleet(monthly.present_node_h * per_node),
        in_service_h=with_fleet(monthly.in_service_node_h * per_node),
        busy_h=with_fleet(monthly.busy_node_h * per_node),
        drag_h=with_fleet(monthly.drag_node_h * per_node),
        served_tokens=served(output_only=False),
        served_output_tokens=served(output_only=True),
        energy_kwh=with_fleet(monthly.facility_kwh),
        cost_usd=usd(with_fleet(cents[:, :-1], elsewhere=cents[:, -1])),
        demand_tokens=result.tokens(monthly.demand_requests).sum(axis=1),
        shed_tokens=result.tokens(result.shed_requests()).sum(axis=1),
        settled_requests=result.settled_requests().sum(axis=1),
        missed_requests=result.missed_requests().sum(axis=1),
    )


def with_fleet(per_cluster: NDArray[Any], elsewhere: NDArray[Any] | float = 0.0) -> NDArray[Any]:
    """Return a table with the fleet as last column: the sum of clusters, and amounts of no cluster."""
    return np.column_stack((per_cluster, per_cluster.sum(axis=1) + elsewhere))


@dataclass(frozen=True, slots=True, kw_only=True)
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
def series_of(result: RunResult) -> FleetSeries:
    """Return the monthly series of the whole fleet."""
    cents = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    return FleetSeries(
        sums=sums_of(result),
        economic_usd=usd(books.view_cents(cents, View.ECONOMIC, leave_out=NOT_COST_ACCOUNTS)),
        cash_flow_usd=-usd(books.view_cents(cents, View.CASH)),
        economic=flows_of(result, cents, View.ECONOMIC),
        cash=flows_of(result, cents, View.CASH),
    )


@per_run
def measures(result: RunResult) -> Mapping[str, float | None]:
    """Return every measure of a run by name, in the order of :data:`MEASURES`."""
    series, plan, ledger, market = (
        series_of(result),
        result.plan,
        result.ledger,
        result.plan.money.market,
    )
    owner = ownership(result)
    sums = series.sums.over_run()
    tokens_m = series.tokens / MILLION
    resold = ledger.rows_of(*RESOLD_ACCOUNTS) & (ledger.cohort_index >= 0)
    mw_h = result.monthly.present_node_h.sum(axis=0) @ [
        cluster.nameplate_kw / KILO for cluster in plan.clusters
    ]
    figures: Figures = {
        **{name: _known(accrued) for name, accrued in sums.figures().items()},
        "pl_cost_usd": float(usd(ledger.account_cents(*PL_ACCOUNTS))),
        "tco_usd": float(series.economic_usd.sum()),
        "npv_usd": series.economic.net_present_value(plan.money.capital.discount_rate_per_year),
        "capex_usd": float(usd(ledger.account_cents(*books.CAPEX_ACCOUNTS))),
        "cash_usd": float(-series.cash_flow_usd.sum()),
        "end_value_usd": float(-usd(ledger.account_cents(Account.RESIDUAL_VALUE))),
        "resale_pv_usd": -float(usd(ledger.amount_cents[resold]) @ row_factors(result)[resold]),
        "levelised_cost_without_resale_per_million_tokens_usd": without_resale(result).price_usd(
            tokens_m
        ),
        "levelised_cost_per_accelerator_h_usd": owner.price_usd(series.sums.in_service_h[:, -1]),
        "levelised_cost_per_million_tokens_usd": owner.price_usd(tokens_m),
        "levelised_cost_per_million_output_tokens_usd": owner.price_usd(
            series.output_tokens / MILLION
        ),
    }
    figures["cost_per_mw_year_usd"] = _known(
        present_value.ratio(sums.cost_usd[0, -1] * HOURS_PER_YEAR, mw_h)
    )
    if market.tax:
        figures["tax_usd"] = float(
            usd(ledger.account_cents(Account.TAX_CASH, Account.TAX_DEFERRED))
        )
    if inflation := plan.money.capital.inflation_per_year:  # in dollars of the first day
        paid = running_months(series.economic.edge_months, series.economic.timing)
        level = (1.0 + inflation) ** (paid / MONTHS_PER_YEAR)
        figures["real_cost_usd"] = float((series.accrued_usd / level).sum())
        figures["real_levelised_cost_per_million_tokens_usd"] = owner.price_usd(tokens_m * level)
    if market.api_price is not None:
        requests = result.monthly.served_requests.sum(axis=1) + result.rented.requests
        bill = (requests * plan.request_usd(market.api_price)).sum(axis=1)
        figures["break_even_api_price_ratio"] = owner.price_usd(bill)
        figures["api_saving_npv_usd"] = owner.value_usd(bill)
    accrued = float(sums.cost_usd[0, -1])
    tokens = float(sums.served_tokens[0, -1])
    if market.token_price is not None:
        by_the_hour = np.array([cluster.is_paid_by_the_hour for cluster in plan.clusters])
        rents = ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)[
            :-1, ACCOUNT_CODES[Account.RENT]
        ]
        with_use = float(usd(ledger.account_cents(Account.ENERGY, Account.COOLING))) + float(
            usd(rents @ by_the_hour)
        )
        revenue = float(-usd(ledger.account_cents(Account.REVENUE)))
        serving = float(usd(ledger.account_cents(*books.COST_OF_SERVING_ACCOUNTS)))
        running = float(usd(ledger.account_cents(*books.OPERATING_EXPENSE_ACCOUNTS)))
        used = float(quantities.utilisation(sums.busy_h, sums.in_service_h)[0, -1])
        figures |= {
            "revenue_usd": revenue,
            "gross_margin_fraction": _known(present_value.margin(revenue, serving)),
            "operating_margin_fraction": _known(present_value.margin(revenue, serving + running)),
            "margin_after_capital_charge_fraction": _known(present_value.margin(revenue, accrued)),
            "irr_per_year": series.economic.internal_rate(),
            "payback_months": series.cash.payback_months(),
            "discounted_payback_months": series.cash.payback_months(
                plan.money.capital.discount_rate_per_year
            ),
        }
        if tokens > 0 and used > 0:
            figures["break_even_utilisation_fraction"] = present_value.break_even_utilisation(
                accrued - with_use, tokens / used, revenue / tokens, with_use / tokens
            )
    power = plan.money.power  # tokens served at the site
    here = (sums.served_tokens[0, :-1] * plan.on_site).sum()
    emitted = operational_kg(sums.energy_kwh[0, -1], power.grid_carbon_g_per_kwh)
    figures["energy_kwh_per_million_tokens"] = _known(
        per_million_tokens(sums.energy_kwh[0, -1], here)
    )
    figures["operational_kg_per_million_tokens"] = _known(per_million_tokens(emitted, here))
    made = np.array(
        [power.embodied_kg[cohort.cluster] * cohort.machines for cohort in result.cohorts]
    )
    if result.cohorts and not np.isnan(made).any():
        served = cohorts.service_months(plan, result.cohorts)
        spread = embodied_kg(made, served, power.service_life_months, plan.months.edge_coordinates)
        figures["embodied_kg_per_million_tokens"] = _known(per_million_tokens(spread.sum(), here))
    return MappingProxyType({measure.name: figures.get(measure.name) for measure in MEASURES})


def service(result: RunResult) -> Figures:
    """Return the service figures over the whole horizon, by the names of :data:`SERVICE`."""
    sums = sums_of(result).over_run()
    figures = sums.figures() | sums.fleet_figures()
    targeted = slo_figures(result)
    return {name: targeted[name] if name in targeted else _known(figures[name]) for name in SERVICE}


def slo_figures(result: RunResult) -> Figures:
    """Return how a run stands to its SLO target; the worst share is None where no request was settled."""
    verdict = result.slo_result()
    return {
        "slo_attainment_lowest_fraction": None
        if verdict.worst is None
        else verdict.worst.slo_attainment_fraction,
        "slo_shortfall_fraction": verdict.shortfall_fraction,
        "slo_met_months": float(verdict.met_months(len(result.plan.months.labels))),
    }


def _known(figures: Floats) -> float | None:
    """Return the fleet's figure, the last one, or None where it is NaN."""
    number = float(figures.flat[-1])
    return None if np.isnan(number) else number


def revenue_usd(result: RunResult) -> Floats:
    """Return the revenue from tokens by month, shape (months, clusters + 1), the fleet last; NaN without a price."""
    cents = -result.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    sold = cents[:, :, ACCOUNT_CODES[Account.REVENUE]]
    if result.plan.money.market.token_price is None:
        return np.full(sold.shape, np.nan)
    return usd(with_fleet(sold[:, :-1], elsewhere=sold[:, -1]))


def workload_figures(result: RunResult) -> dict[str, Floats]:
    """Return the figures of workloads, shape (months, workloads) each."""
    monthly = result.monthly
    served = monthly.served_requests.sum(axis=1) + result.rented.requests
    return {
        "demand_tokens": result.tokens(monthly.demand_requests),
        "served_tokens": result.tokens(served),
        "served_output_tokens": result.tokens(served, output_only=True),
        "shed_tokens": result.tokens(result.shed_requests()),
        "late_tokens": result.tokens(monthly.late_requests),
        "slo_attainment_fraction": quantities.attainment(
            result.missed_requests(), result.settled_requests()
        ),
    }


def observed(result: RunResult, series: Sequence[Seen]) -> Floats:
    """Return the series of a run that can be compared with actuals, shape (series, months).

    NaN where there is nothing to divide.
    """
    plan = result.plan
    monthly = result.monthly
    sums = sums_of(result)
    accounts = usd(result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT))
    by_workload = workload_figures(result)
    by_cluster = {
        **sums.figures(),
        **sums.fleet_figures(),
        "accelerators_in_service": sums.in_service_h / plan.months.period_hours[:, None],
        "peak_facility_kw": monthly.peak_facility_kw,
        **{
            f"{name}_node_h": with_fleet(monthly.fates_node_h[name])
            for name in ("lost_to_failures", "lost_to_software")
        },
    }
    clusters = [*(cluster.name for cluster in plan.clusters), FLEET]
    workloads = [workload.name for workload in plan.workloads]

    def one(seen: Seen) -> Floats:
        match seen.kind:
            case "account":
                return np.asarray(accounts[:, ACCOUNT_CODES[Account(seen.name)]])
            case "workload":
                return by_workload[seen.name][:, workloads.index(seen.of)]
        table = by_cluster[seen.name]
        return table if table.ndim == 1 else table[:, clusters.index(seen.of)]

    return (
        np.stack([one(seen) for seen in series])
        if series
        else np.zeros((0, len(plan.months.labels)))
    )
