"""The live sheets of a run's workbook: what the plan costs and earns, following the prices that a person turns.

The sheet Inputs has a yellow cell for each figure of the scenario that the sheets can follow in this run; what has none
is as the run found it. Every dollar is a row of the sheet Lines, by month:

    running   ROUND(Σ unit price · quantity to date, 2), less the same a month before; the quantities are the run's
    dated     a purchase, a sale or a value on the last day, from the sheet Cohorts
    books     depreciation and the charge for capital, from the sheet Depreciation
    recorded  numbers: what follows no cell

Summary, By month, Timeline and By cluster are sums over those rows. The rounding is the ledger's, so with the inputs as
simulated a line is the ledger's to the cent, and with others what a new run would post, within a cent.

Tax and loans are not among the lines: they hang on all the others by rules that formulas would have to restate. What a
taxed run shows here is before tax; its statements and measures are records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xlsxwriter.utility import xl_range_abs  # type: ignore[import-untyped]

from planner.answers.plan_workbooks import statements_page
from planner.arrays import Cents, Floats
from planner.finance import ledger as books
from planner.finance.accounting.cohorts import (
    assets_of,
    nodes_in_service,
    opening_basis_cents,
    opening_value_cents,
    owned_value_cents,
    parts_usd,
)
from planner.finance.accounting.measures import dated_rows, series_of
from planner.finance.accounting.posting import rma_usd, running_usd
from planner.finance.accounts import (
    ACCOUNT_CODES,
    ACCOUNT_ORDER,
    CAPEX_ACCOUNTS,
    DATED_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    Account,
    Category,
    View,
)
from planner.finance.depreciation import (
    ResaleCurve,
    capital_charge_usd,
    depreciate,
    make_cohorts,
    property_tax_usd,
)
from planner.finance.financing import mean_prices, open_cents, open_shares
from planner.finance.ledger import Dimension, cents
from planner.finance.measure_names import FLEET, SITE
from planner.finance.measure_names import TIMELINE as TIMELINE_FIGURES
from planner.finance.money_plan import TOKEN_KINDS
from planner.finance.present_value import discount_factors, per_million_tokens, running_months
from planner.finance.pricing import rent_prior
from planner.finance.statements import Frequency
from planner.output.tables import Cells
from planner.output.workbook import Cell, Page, SheetChart, style_of, words, write_tables
from planner.plan.quantities import shares
from planner.run.simulate import RunResult
from planner.units import DOLLARS, MILLION, MONTHS_PER_YEAR, unit_of

LOAN_SHEETS = {"Loan": "loan_monthly", "Loan stress": "loan_stress"}
"""Sheets of a run with a loan, and the table of each."""
SUMMARY = "Summary"
INPUTS = "Inputs"
BY_MONTH = "By month"
TIMELINE = "Timeline"
BY_CLUSTER = "By cluster"
LINES = "Lines"
QUANTITIES = "Quantities"
COHORTS = "Cohorts"
DEPRECIATION = "Depreciation"
OPEN_ITEMS = "Open items"
"""What is billed and not yet paid, where the scenario states days to payment."""
_OPEN_ENDS = {
    Account.RECEIVABLES: Account.RECEIVABLES_END,
    Account.PAYABLES: Account.ORDER_BALANCE,
}
"""Accounts of what is open, and in which account it counts as settled on the last day."""
_RECORD = "A record of the run: changes on the sheet Inputs do not change this sheet."
_FOLLOWS = "Recalculated from the yellow cells of the sheet Inputs."
_FIRST = 2
"""Row of a page's first record, below its note and its headings, counting from zero."""
_NEVER_MONTHS = 1e6
"""Stands for never: a spreadsheet has no infinity."""
_TAX_ACCOUNTS = (Account.TAX_CASH, Account.TAX_DEFERRED, Account.TAX_ON_END_VALUE)
_COUNTED = View.CASH | View.ACCRUAL | View.ECONOMIC
_ACCOUNTS = tuple(
    account for account in Account if account.views & _COUNTED and account not in _TAX_ACCOUNTS
)
"""Accounts that have lines: all but tax, loans, and what moves no money."""
Columns = Mapping[str, Cells]
"""A table's columns by name."""
PricedAmount = tuple[str, Cell, Floats]
"""What one unit price adds to a line: what is paid for, the price, and the running total of units, shape (months,)."""
_VIEWS: dict[str, Callable[[Account], bool]] = {
    "cost": lambda account: View.ACCRUAL in account.views and account not in NOT_COST_ACCOUNTS,
    "cost_of_ownership": lambda account: (
        View.ECONOMIC in account.views and account not in NOT_COST_ACCOUNTS
    ),
    "net_cost_of_ownership": lambda account: View.ECONOMIC in account.views,
    "cash": lambda account: View.CASH in account.views,
}
"""What counts a line: accrued cost; cost of ownership, and that less income; cash paid."""
_PER_KW = "USD/kW and month"
_YEAR = "USD a year"
_RENTED = "USD/accelerator and hour"
_SITE_INPUTS = (
    ("electricity", Account.ENERGY, "Electricity", "USD/kWh", "site.electricity_usd_per_kwh"),
    (
        "space",
        Account.COLOCATION,
        "Rent of space and power provisioned",
        _PER_KW,
        "site.colocation_usd_per_kw_month",
    ),
    (
        "engineers",
        Account.SOFTWARE_ENGINEERS,
        "Salary of a software engineer",
        _YEAR,
        "software.engineer_usd_per_year",
    ),
    (
        "staff",
        Account.OPERATIONS_STAFF,
        "Salary of operations staff",
        _YEAR,
        "finance.operations_staff_usd_per_year",
    ),
    (
        "crews",
        Account.OPERATIONS_STAFF,
        "Cost of a repair crew",
        _YEAR,
        "finance.repair_crew_usd_per_year",
    ),
    (
        "burst",
        Account.BURST_RENTAL,
        "Rent instead of shedding",
        _RENTED,
        "finance.burst_rental.usd_per_accelerator_h",
    ),
)
"""Prices of the whole site: name, what is paid at it, label, unit, key of the scenario."""
_WINDOWED = ("electricity", Account.ENERGY, "Electricity, average of its windows", "USD/kWh", "")
_PRICES = {account: name for name, account, *_ in _SITE_INPUTS} | {Account.COOLING: "electricity"}
_COST_SHARES = {
    Account.MAINTENANCE: (
        "Maintenance and operations",
        "finance.operations_fraction_per_year",
    ),
    Account.INSURANCE: ("Insurance", "finance.insurance_fraction_per_year"),
}
"""Yearly shares of what machines in service cost: label and key of the scenario, by what they pay."""
_SMALL_SHARE = 1e-9
"""A factor at which no resale curve reaches the price of new machines, so that its shape can be read."""
_LIMITS = {
    "a year": (-0.99, 10.0, "percent"),
    "of cost a year": (0.0, 10.0, "percent"),
    "share of the price": (0.0, 0.999999, "percent"),
    "share of cost": (0.0, 1.0, "percent"),
    "months": (1, 240, "count"),
}
"""Between which numbers an input may lie, and how it is shown, by its unit."""
_PART_COLUMNS = ("accelerators_usd", "host_usd", "network_usd", "storage_usd")
_COHORT_COLUMNS = (
    *("cohort", "cluster", "nodes", "nodes_before_it", "paid", "in_service", "retired"),
    *(
        "paid_month",
        "in_service_month",
        "retired_month",
        "price_factor",
        *_PART_COLUMNS,
        "cost_usd",
    ),
    *(f"{account}_usd" for account in CAPEX_ACCOUNTS),
    *("book_life_months", "residual_fraction", "residual_usd", "resale_fraction", "resale_usd"),
    *("last_day_fraction", "residual_value_usd", "book_value_when_retired_usd"),
    "opening_value_usd",
)
_LINE_COLUMNS = (
    "cluster",
    "cohort",
    "account",
    "category",
    *_VIEWS,
    "day_months",
    "total_usd",
    "discounted_usd",
)
_BY_MONTH_COLUMNS = (
    "month",
    "discount_factor",
    *(f"{view}_usd" for view in _VIEWS),
    "cash_to_date_usd",
)
_TIMELINE_COLUMNS = (
    "month",
    "cluster",
    *(name for name in TIMELINE_FIGURES if not name.startswith("levelised")),
)
"""Levelised cost to date is in timeline_monthly.csv: it takes what would be fetched at every month's end."""
_BY_CLUSTER_COLUMNS = (
    *(
        "cluster",
        "served_tokens",
        "served_output_tokens",
        *(f"{view}_usd" for view in _VIEWS),
        "present_cost_usd",
    ),
    *("npv_usd", "cost_per_million_tokens_usd", "levelised_cost_per_million_tokens_usd"),
    *("cost_per_million_output_tokens_usd", "levelised_cost_per_million_output_tokens_usd"),
)
_TIMELINE_CHARTS = {
    "Tokens a month, fleet": ("demand_tokens", "served_tokens"),
    "Utilisation and SLO attainment, fleet": ("utilisation_fraction", "slo_attainment_fraction"),
    "Accrued cost per million tokens to date, fleet, USD": (
        "cumulative_cost_per_million_tokens_usd",
    ),
    "Accrued cost per million output tokens to date, fleet, USD": (
        "cumulative_cost_per_million_output_tokens_usd",
    ),
}


class Input(NamedTuple):
    """A figure of the scenario that may be changed in the workbook."""

    label: str
    unit: str
    key: str
    """What ``--set`` changes; empty where no single key says it."""
    simulated: float


class MoneyLine(NamedTuple):
    """A row of money by month."""

    account: Account
    cluster: int
    """−1 for the site as a whole."""
    cents: Cents
    """As simulated, shape (months,)."""
    formulas: Mapping[int, str] = {}
    """By month; amounts of other months are numbers."""
    cohort: str = ""
    day_months: float | None = None
    """Months from the start to the day on which it counts; None for what runs through its month."""


class OpenItems(NamedTuple):
    """What customers owe a cluster, or it owes its vendors, at each month's end."""

    account: Account
    """Receivables, or payables."""
    cluster: int
    """−1 for the site as a whole."""
    billed_cents: Cents
    """Sold or bought in each month, shape (months,)."""
    balance_cents: Cents
    """Open at its end, shape (months,)."""

    @property
    def sign(self) -> int:
        """Return 1 for receivables, whose rise takes cash, and −1 for payables."""
        ((_, sign),) = self.account.positions
        return sign


def run_pages(result: RunResult, tables: Mapping[str, Columns]) -> dict[str, Page]:
    """Return the sheets of a run by name, given its tables by name: live sheets first, then records."""
    live = _Live(result)
    statement_pages = statements_page({result.scenario.name: result}, tuple(Frequency))
    statements = statement_pages["Statements"]
    used = ("cluster", "account", "paid_for", "price_per_unit_usd", *live.labels)
    note = f"Quantities of the run, summed from its start, at the current prices of the sheet Inputs. {_FOLLOWS}"
    return {
        SUMMARY: live.summary(),
        INPUTS: live.inputs_page(),
        BY_MONTH: live.by_month(),
        TIMELINE: live.timeline(tables["timeline_monthly"], tables["timeline_monthly_clusters"]),
        BY_CLUSTER: live.by_cluster(),
        LINES: live.lines_page(),
        QUANTITIES: Page(headings=used, rows=live.quantities, note=note, fixed_columns=4),
        COHORTS: live.cohorts_page(),
        DEPRECIATION: live.depreciation_page(),
        **({OPEN_ITEMS: live.open_items_page()} if live.open_items else {}),
        "Statements": replace(statements, note=f"{_RECORD} {statements.note}"),
        "Unit economics": _dollars(tables["unit_economics_yearly"]),
        "Reconciliation": _dollars(tables["reconciliation"]),
        **_loan_pages(tables),
        "Measures": Page.of(tables["measures"], note=_RECORD),
        "Assumptions": Page.of(tables["assumptions"], note=_RECORD),
        "Events": Page.of(tables["events"], most=1_000, note=_RECORD),
    }


def _loan_pages(tables: Mapping[str, Columns]) -> dict[str, Page]:
    """Return a loan as its lender sees it, as records; nothing without a loan."""
    if not len(tables["loan_monthly"]["month"]):
        return {}
    return {sheet: _dollars(tables[name]) for sheet, name in LOAN_SHEETS.items()}


def _dollars(table: Columns) -> Page:
    """Return a table as a record, what it has in cents in dollars."""
    paid = [name for name in table if unit_of(name) == DOLLARS]
    in_usd = dict(table)
    for name in paid:
        in_usd[name] = [cents / 100 for cents in table[name]]
    return Page.of(in_usd, note=_RECORD)


def run_workbook(
    result: RunResult, pages: Mapping[str, Page], record_pages: Mapping[str, Page]
) -> bytes:
    """Return the workbook of a run with further sheets, which are records: only charts that follow stand on Summary."""
    records = {name: replace(page, charts=()) for name, page in record_pages.items()}
    return write_tables(
        result.scenario.name, result.plan.start, {**pages, **records}, charts_on=SUMMARY
    )


def _area(
    sheet: str, row: int, column: int, last_row: int | None = None, last_column: int | None = None
) -> str:
    """Return the fixed address of a cell, or of the cells from it to another, counting from zero."""
    last_row = row if last_row is None else last_row
    last_column = column if last_column is None else last_column
    return f"'{sheet}'!{xl_range_abs(row, column, last_row, last_column)}"


def _per_million(cost: str, tokens: str) -> str:
    """Return the formula of cost per million tokens; nothing without tokens."""
    return f'IF({tokens}=0,"",{cost}/{tokens}*1000000)'


class _Live:
    """A run, the inputs that its sheets follow, and its lines; each sheet is a method."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        self.plan = result.plan
        self.capital = result.plan.money.capital
        self.months = result.plan.months.period_count
        self.edges = result.plan.months.edge_coordinates
        self.labels = result.plan.months.labels
        self.clusters = [cluster.name for cluster in result.plan.clusters]
        self.names = [*self.clusters, SITE]
        """Of the clusters, and last, at −1, of the site as a whole."""
        self.cohorts: list[list[int]] = [[] for _ in self.clusters]
        """Cohorts by cluster; those of one stand together."""
        # In the order of their rows on the sheet Cohorts: sums over a cluster's cohorts are one
        # range.
        for row, cohort in enumerate(result.cohorts):
            self.cohorts[cohort.cluster].append(row)
        self.assets = make_cohorts([], [])
        if result.cohorts:
            self.assets = assets_of(result.plan, result.cohorts)
        self.schedule = depreciate(self.assets, self.edges)
        months_from_start = self.edges - self.edges[0]
        self.offsets = running_months(months_from_start, self.capital.timing)
        self.factors = discount_factors(self.capital.discount_rate_per_year, self.offsets)
        """Of what runs through a month, shape (months,)."""
        posted = [
            *running_usd(result.plan, result.run, result.monthly, result.cohorts, result.rented)
        ]
        self.people = ["crews"]
        if self._has_staff():
            self.people = ["staff", "crews"]
        """Whom each posting to operations staff pays, in their order."""
        self.inputs = self._inputs(posted)
        """By name and cluster, −1 for the site as a whole; in the order of their rows."""
        self.rate = self._input("discount rate") or repr(self.capital.discount_rate_per_year)
        """The discount rate in formulas: its cell, or a number where it has none."""
        self.quantities: list[Sequence[object]] = []
        """Rows of the sheet Quantities."""
        self.open_items = [*self._open_items()]
        """By account and cluster, where something is paid later."""
        self.lines = [*self._book_lines(), *self._running_lines(posted), *self._dated_lines()]
        self.lines += self._open_lines()
        self.lines += self._recorded_lines()
        # By cluster, the site last: the order in which people look for a line.
        # The site has cluster −1: it would come first without the first key.
        self.lines.sort(
            key=lambda line: (line.cluster < 0, line.cluster, ACCOUNT_CODES[line.account])
        )
        # Only now is it known in which rows the lines stand that are paid later.
        self.lines = [self._settled_later(line) for line in self.lines]
        self.facts: dict[str, NDArray[Any]] = {
            "cluster": np.array([self.names[line.cluster] for line in self.lines]),
            "account": np.array([str(line.account) for line in self.lines]),
            "category": np.array([str(line.account.category) for line in self.lines]),
        }
        """Columns of the lines by which they are summed, shape (lines,) each."""
        for view, counts in _VIEWS.items():
            self.facts[view] = np.array([counts(line.account) for line in self.lines])
        # Reshaped, since a run without lines has no second axis.
        all_cents = np.array([line.cents for line in self.lines])
        self.usd = all_cents.reshape(-1, self.months) / 100
        """Every line by month, shape (lines, months)."""
        self.discounted_usd = self.usd @ self.factors
        for place, line in enumerate(self.lines):
            if line.day_months is not None:
                # What counts on a day is discounted from that day, not as if it ran through its month.
                day = np.array(line.day_months)
                factor = discount_factors(self.capital.discount_rate_per_year, day)
                self.discounted_usd[place] = self.usd[place].sum() * factor
        self.shown = [account for account in _ACCOUNTS if str(account) in self.facts["account"]]
        """The accounts that have a line."""
        self.note = _FOLLOWS
        """What a sheet with cash and present values says at its top."""
        if self.plan.money.market.tax:
            self.note += " Cash, present value and levelised cost are before income tax."

    def _has_staff(self) -> bool:
        """Return whether operations staff is paid besides repair crews, by the accelerators on site."""
        upkeep = self.plan.money.upkeep
        on_site = self.result.monthly.present_node_h * self.plan.on_site
        is_paid = upkeep.yearly_usd[Account.OPERATIONS_STAFF] > 0
        return is_paid and upkeep.staff_per_accelerator > 0 and bool(on_site.any())

    def _recorded_lines(self) -> list[MoneyLine]:
        """Return what the ledger holds besides the lines so far: it follows no cell."""
        # The rest is what was posted less what has a line: so the sheets sum to the ledger,
        # whatever has a cell.
        rest = self.result.ledger.totals_cents(
            Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT
        )
        for line in self.lines:
            rest[:, line.cluster, ACCOUNT_CODES[line.account]] -= line.cents
        lines = []
        for account in _ACCOUNTS:
            if account in DATED_ACCOUNTS:
                continue  # each row of theirs has a line already
            for index in range(-1, len(self.clusters)):
                amounts = rest[:, index, ACCOUNT_CODES[account]]
                if amounts.any():
                    lines.append(MoneyLine(account, index, amounts))
        return lines

    # -- Inputs ------------------------------------------------------------------------------------------------------

    def _inputs(self, posted: Sequence[tuple[Account, Floats]]) -> dict[tuple[str, int], Input]:
        """Return every figure that the sheets can follow: it is paid, and all that depends on it is in the workbook."""
        # An account without a dollar would have a cell that moves nothing.
        accounts = {account for account, amounts in posted if amounts.any()}
        inputs: dict[tuple[str, int], Input] = {}
        finance = self.result.scenario.finance
        other_capital = ACCOUNT_CODES[Account.OTHER_CAPITAL]
        is_other_capital = self.result.ledger.account_code == other_capital
        has_other_capital = is_other_capital.any()
        is_nominal = finance.discount_rate_basis != "real"
        if is_nominal and not has_other_capital:
            rate = self.capital.discount_rate_per_year
            key = "finance.discount_rate_per_year"
            inputs["discount rate", -1] = Input("Discount rate", "a year", key, rate)
        inputs |= self._site_inputs(accounts)
        inputs |= self._share_inputs(accounts)
        if Account.REVENUE in accounts:
            inputs |= self._token_prices()
        for index in range(len(self.clusters)):
            inputs |= self._cluster_inputs(index)
        return inputs

    def _site_inputs(self, accounts: set[Account]) -> dict[tuple[str, int], Input]:
        """Return the prices of the whole site at which something is paid."""
        money = self.plan.money
        burst = money.market.burst
        yearly_usd = money.upkeep.yearly_usd
        burst_usd = 0.0
        if burst:
            burst_usd = float(burst.hourly.usd_per_accelerator_h[0])
        staff_usd = 0.0
        if "staff" in self.people:
            staff_usd = yearly_usd[Account.OPERATIONS_STAFF]
        unit_usd = {
            "electricity": float(money.power.monthly_usd_per_kwh[0]),
            "space": money.power.colocation_usd_per_kw_month,
            "engineers": yearly_usd[Account.SOFTWARE_ENGINEERS],
            "staff": staff_usd,
            "crews": money.upkeep.crew_usd_per_year,
            "burst": burst_usd,
        }
        electricity, *other_inputs = _SITE_INPUTS
        if money.power.hourly_usd_per_kwh is not None and Account.ENERGY in accounts:
            # Under time-of-use windows it is what a kWh cost on average: changing it scales every window.
            electricity = _WINDOWED
            ledger = self.result.ledger
            cooling_cents = ledger.account_cents(Account.COOLING)
            paid_cents = ledger.account_cents(Account.ENERGY) + cooling_cents
            metered_kwh = float(self.result.monthly.facility_kwh.sum())
            mean_usd = paid_cents / 100 / metered_kwh
            # Six decimals: a reader changes a price, not the last digits of an average.
            unit_usd["electricity"] = round(mean_usd, 6)
        return {
            (name, -1): Input(label, unit, key, unit_usd[name])
            for name, account, label, unit, key in (electricity, *other_inputs)
            if account in accounts and unit_usd[name] > 0
        }

    def _share_inputs(self, accounts: set[Account]) -> dict[tuple[str, int], Input]:
        """Return upkeep as shares of what machines cost, and the factor on what used machines fetch."""
        finance = self.result.scenario.finance
        unit = "of cost a year"
        inputs = {}
        for account, (label, key) in _COST_SHARES.items():
            if account in accounts:
                yearly = self.plan.money.upkeep.yearly_usd[account]
                inputs[str(account), -1] = Input(label, unit, key, yearly)
        multiplier = finance.resale_multiplier
        # A residual by the resale curve moves depreciation, which follows only where the books are plain.
        has_plain_residuals = all(
            residual is not None or self._has_plain_books(index)
            for index, residual in enumerate(self.capital.residual_fraction)
        )
        if self.result.cohorts and multiplier > 0 and has_plain_residuals:
            label = "Factor on resale values of used machines"
            key = "finance.resale_multiplier"
            inputs["resale", -1] = Input(label, "times", key, multiplier)
        return inputs

    def _has_plain_books(self, index: int) -> bool:
        """Return whether a cluster's machines are its own and written off whole, in a straight line."""
        plan = self.plan.clusters[index]
        return not (
            plan.lease or self.capital.declining_factor > 0 or index in self.capital.components
        )

    def _token_prices(self) -> dict[tuple[str, int], Input]:
        """Return the token prices by kind of token and workload, the lists' where the scenario states none.

        A price of cached tokens that is not stated follows that of fresh ones.
        """
        inputs = {}
        workloads = self.result.scenario.workloads
        changing = {workload.follows for workload in workloads.values()}
        market = self.plan.money.market
        months_from_start = self.edges - self.edges[0]
        for w, (name, workload) in enumerate(workloads.items()):
            price = workload.token_price
            # Where the model changes, one key has the prices of several models: no cell could stand for it.
            if price is None or name in changing or workload.follows:
                continue
            change = price.change_per_year
            if change is None:
                change = market.price_change_per_year
            rise = mean_prices(1.0, change, months_from_start)[0]
            for place, kind in enumerate(TOKEN_KINDS):
                field = f"{kind}_usd_per_million_tokens"
                unit_usd = getattr(price, field)
                if unit_usd is None and kind != "cached_input":
                    # To twelve digits: the list's own, which the mean of the first month is a multiple of.
                    listed_usd = float(np.asarray(market.token_price)[0, w, place] / rise)
                    unit_usd = float(f"{listed_usd:.12g}")
                if unit_usd:
                    kind_words = kind.replace("_", " ")
                    label = f"{name}: token price, {kind_words}"
                    key = f"workloads.{name}.token_price.{field}"
                    unit = unit_of(field) or ""
                    inputs[kind, w] = Input(label, unit, key, unit_usd)
        return inputs

    def _cluster_inputs(self, index: int) -> dict[tuple[str, int], Input]:
        """Return the rent of a cluster, or what its machines cost and how they are written off."""
        plan = self.plan.clusters[index]
        if plan.rent is not None:
            return self._rent_input(index)
        # Neither follows where machines are leased, or the books are those of single parts or decline.
        if not self.cohorts[index] or not self._has_plain_books(index):
            return {}
        return self._price_inputs(index) | self._book_inputs(index)

    def _rent_input(self, index: int) -> dict[tuple[str, int], Input]:
        """Return the rent of a cluster, where some was paid."""
        name = self.clusters[index]
        cluster = self.result.scenario.clusters[name]
        unit_usd = getattr(cluster.contract, "usd_per_accelerator_h", None)
        if unit_usd is None:
            catalog = self.result.scenario.load_catalog()
            unit_usd = catalog.priors[rent_prior(cluster)].base
        totals = self.result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)
        if unit_usd <= 0 or totals[index, ACCOUNT_CODES[Account.RENT]] <= 0:
            return {}
        key = f"clusters.{name}.contract.usd_per_accelerator_h"
        return {("rent", index): Input(f"{name}: rent", _RENTED, key, unit_usd)}

    def _price_inputs(self, index: int) -> dict[tuple[str, int], Input]:
        """Return price and discount of a cluster's accelerators, and the price of a host.

        They have no cell where machines were owned already or had by a quote, with deposits or by a budget.
        """
        plan = self.plan.clusters[index]
        book = plan.price_book
        has_deposits = plan.order is not None and plan.order.payments
        has_budget = np.isfinite(self.plan.expansion.budget_usd)
        if not book or book.quotes or plan.owned or has_deposits or has_budget:
            return {}
        if book.list_price.list_price_usd <= 0:
            return {}
        name = self.clusters[index]
        cluster = self.result.scenario.clusters[name]
        unit_usd = cluster.accelerator_price_usd
        if unit_usd is None:
            catalog = self.result.scenario.load_catalog()
            entry = catalog.accelerator(cluster.accelerator).accelerator_price_usd
            unit_usd = entry.value if entry else 0.0
        price_key = f"clusters.{name}.accelerator_price_usd"
        discount_key = f"clusters.{name}.discount_fraction"
        discount = Input(
            f"{name}: discount", "share of the price", discount_key, cluster.discount_fraction
        )
        price = Input(f"{name}: price of an accelerator", "USD", price_key, unit_usd)
        inputs = {("price", index): price, ("discount", index): discount}
        host_usd = plan.prices_usd[1]
        if host_usd > 0:
            host_key = f"clusters.{name}.host_usd_per_node"
            inputs["host", index] = Input(f"{name}: price of a host", "USD", host_key, host_usd)
        return inputs

    def _book_inputs(self, index: int) -> dict[tuple[str, int], Input]:
        """Return book life and residual value of a cluster; none where books are stated or follow a resale curve."""
        residual = self.capital.residual_fraction[index]
        owned = self.plan.clusters[index].owned
        is_restated = owned is not None and (
            owned.book_value_usd is not None or owned.remaining_months is not None
        )
        if residual is None or is_restated:
            return {}
        name = self.clusters[index]
        months = self.capital.depreciation_months[index]
        life_key = f"clusters.{name}.depreciation_months"
        residual_key = f"clusters.{name}.residual_fraction"
        life = Input(f"{name}: book life", "months", life_key, months)
        residual_value = Input(
            f"{name}: residual book value", "share of cost", residual_key, residual
        )
        return {
            ("life", index): life,
            ("residual", index): residual_value,
        }

    def _input(self, name: str, cluster: int = -1) -> str:
        """Return the address of an input; empty where it has no cell."""
        key = (name, cluster)
        if key not in self.inputs:
            return ""
        # The rows of the sheet are the inputs in their order.
        row = _FIRST + list(self.inputs).index(key)
        return _area(INPUTS, row, 1)

    def _discounted(self, index: int) -> tuple[str, float]:
        """Return the price of a cluster's accelerators after its discount, before those by volume: formula, dollars.

        The formula is empty where the price has no cell.
        """
        if ("price", index) not in self.inputs:
            return "", np.nan
        price = self.inputs["price", index].simulated
        discount = self.inputs["discount", index].simulated
        price_cell = self._input("price", index)
        discount_cell = self._input("discount", index)
        formula = f"{price_cell}*(1-{discount_cell})"
        return formula, price * (1 - discount)

    def inputs_page(self) -> Page:
        """Return the cells that a person turns."""
        rows = []
        for entry in self.inputs.values():
            low, high, style = _LIMITS.get(entry.unit, (0.0, 1e12, "number"))
            turned = Cell(entry.simulated, "", style, (low, high))
            simulated = Cell(entry.simulated, "", style)
            # Turned and simulated begin alike; the second has no limits, as nobody turns it.
            rows.append((entry.label, turned, simulated, entry.unit, entry.key))
        note = (
            "Change a yellow cell, and the sheets from Summary to Depreciation change as in a new run with that value "
            "in the scenario. To change anything that has no cell here, change the scenario and run again."
        )
        return Page(
            headings=("input", "now", "as_simulated", "unit", "key_of_the_scenario"),
            rows=rows,
            note=note,
        )

    # -- Cohorts and their books -------------------------------------------------------------------------------------

    def _cohort(self, row: int, name: str) -> str:
        """Return the address of a cohort's figure."""
        return _area(COHORTS, _FIRST + row, _COHORT_COLUMNS.index(name))

    def _follows(self, index: int) -> bool:
        """Return whether a cluster's depreciation moves with an input of its own."""
        follows_resale = self.capital.residual_fraction[index] is None and self._input("resale")
        has_own = ("price", index) in self.inputs or ("life", index) in self.inputs
        return has_own or bool(follows_resale)

    def _written_off(self, row: int, end_month: str) -> str:
        """Return the formula of what a cohort is written off until a month coordinate: (C − R)·e/L, to the cent."""
        life = self._cohort(row, "book_life_months")
        start_month = self._cohort(row, "in_service_month")
        # No earlier than service begins, no longer than the book life, and not beyond the day it leaves.
        retired_month = self._cohort(row, "retired_month")
        elapsed = f"MAX(0,MIN({life},MIN({end_month},{retired_month})-{start_month}))"
        cost = self._cohort(row, "cost_usd")
        residual = self._cohort(row, "residual_usd")
        return f"ROUND(({cost}-{residual})*{elapsed}/{life},2)"

    def cohorts_page(self) -> Page:
        """Return what was bought together, what it cost, and what it fetches.

        With K, L, M, N the prices of a node's accelerators, host, network and storage, S their sum, n nodes, f before:

            K        = price · (1 − discount) · factor (accelerators of a node, volume discount, list prices since)
            cost     = round(S·(f + n)) − round(S·f)
            residual = round(cost · share), or of what servers of that age fetch, at most cost
            resale   = round((K + L)·n·share that used servers of its age fetch), as is the value on the last day
        """
        rows = []
        for row in range(self.assets.count):
            cells = self._cohort_cells(row)
            rows.append([cells.get(column) for column in _COHORT_COLUMNS])
        return Page(headings=_COHORT_COLUMNS, rows=rows, note=_FOLLOWS)

    def _cohort_cells(self, row: int) -> dict[str, Cell]:
        """Return a cohort's cells by column, as formulas where they move with an input."""
        cohort = self.result.cohorts[row]
        assets = self.assets
        address = {name: self._cohort(row, name) for name in _COHORT_COLUMNS}
        index = cohort.cluster
        paid = assets.acquired_months[row]
        retired = assets.retired_months[row]
        curve = self.capital.resale[index]
        life, share = self.capital.books_of(index, cohort.component)
        listed, listed_usd = self._discounted(index)
        value_cents = owned_value_cents(self.plan, self.result.cohorts)
        owned_cents = value_cents[row, -1]
        end_usd = owned_cents / 100
        # Addresses of the row's own cells: every formula of the sheet reads its neighbours.
        node = "(" + "+".join(address[part] for part in _PART_COLUMNS) + ")"
        servers = f"({address['accelerators_usd']}+{address['host_usd']})*{address['nodes']}"
        nodes_before = address["nodes_before_it"]
        nodes_with = f"({address['nodes_before_it']}+{address['nodes']})"
        residual = f"{address['cost_usd']}*{address['residual_fraction']}"
        if share is None:
            # The residual follows the resale curve of servers, and is at most what was paid.
            residual = f"MIN({servers}*{address['residual_fraction']},{address['cost_usd']})"
        book_value = ""
        if self._follows(index) and self._retired_in(row):
            written_off = self._written_off(row, address["retired_month"])
            book_value = f"{address['cost_usd']}-{written_off}"

        def priced(figure: float, formula: str) -> Cell:
            return Cell(figure, formula if listed else "")

        def fetched(figure_usd: float, fraction: float, formula: str) -> Cell:
            # What goes back, or is scrapped, fetches nothing at any price.
            servers_usd = sum(cohort.prices_usd[:2]) * cohort.nodes
            is_sold = abs(servers_usd * fraction - figure_usd) < 0.01
            follows = is_sold and (listed or self._input("resale"))
            return Cell(figure_usd, formula if follows else "")

        def used_share(age_months: float, figure: float) -> Cell:
            # Before the factor of the inputs; of its own, and never above what it costs new.
            multiplier = self._input("resale")
            if not multiplier or not figure:
                return Cell(figure)
            stated = self.inputs["resale", -1].simulated
            plain = replace(curve, multiplier=_SMALL_SHARE).fraction(age_months) / _SMALL_SHARE
            share_at_one = float(plain) * curve.multiplier / stated
            return Cell(figure, f"MIN(1,{share_at_one!r}*{multiplier})")

        days = {
            "paid": cohort.bought_h,
            "in_service": cohort.in_service_h,
            "retired": cohort.retired_h,
        }
        part_shares = shares(parts_usd(self.result.cohorts))[row]
        cost_cents = cents(assets.cost_usd)[row]
        parts = books.split_cents(cost_cents, part_shares) / 100
        # Each part is the difference of two rounded running sums, so that the parts sum to the cost to the cent.
        upper_share = "0"
        capex = {}
        for account, part, figure in zip(CAPEX_ACCOUNTS, _PART_COLUMNS, parts, strict=True):
            lower_share = upper_share
            upper_share = f"{upper_share}+{address[part]}"
            upper = f"ROUND({address['cost_usd']}*({upper_share})/{node},2)"
            lower = f"ROUND({address['cost_usd']}*({lower_share})/{node},2)"
            capex[f"{account}_usd"] = priced(figure, f"{upper}-{lower}")
        # A cohort that never leaves has no date there, and a very late month for the formulas.
        in_service_month = min(assets.basis_months[row], _NEVER_MONTHS)
        node_cost = f"ROUND({node}*{nodes_with},2)-ROUND({node}*{nodes_before},2)"
        residual_formula = ""
        if self._follows(index):
            residual_formula = f"ROUND({residual},2)"
        resale_usd = cents(assets.proceeds_usd)[row] / 100
        resale_formula = f"ROUND({servers}*{address['resale_fraction']},2)"
        end_formula = f"ROUND({servers}*{address['last_day_fraction']},2)"
        resale_fraction = curve.fraction(retired - paid) if np.isfinite(retired) else 0.0
        end_fraction = curve.fraction(self.edges[-1] - paid) if end_usd else 0.0
        disposed_usd = self.schedule.disposed_book_cents[row].sum() / 100
        list_formula = f"{listed}*{address['price_factor']}"
        price_factor = cohort.prices_usd[0] / listed_usd
        return {
            "cohort": Cell(cohort.name),
            "cluster": Cell(self.clusters[index]),
            "nodes": Cell(cohort.nodes),
            "nodes_before_it": Cell(cohort.first_node),
            **{
                name: Cell(self.plan.start + timedelta(hours=h))
                for name, h in days.items()
                if np.isfinite(h)
            },
            "paid_month": Cell(paid),
            "in_service_month": Cell(in_service_month),
            "retired_month": Cell(min(retired, _NEVER_MONTHS)),
            "price_factor": Cell(price_factor),
            **{
                part: Cell(price)
                for part, price in zip(_PART_COLUMNS, cohort.prices_usd, strict=True)
            },
            "accelerators_usd": priced(cohort.prices_usd[0], list_formula),
            "host_usd": self._host(index, cohort.prices_usd[1]),
            "cost_usd": priced(assets.cost_usd[row], node_cost),
            **capex,
            "book_life_months": Cell(assets.life_months[row], self._input("life", index)),
            "residual_fraction": (
                used_share(life, float(curve.fraction(life)))
                if share is None
                else Cell(share, self._input("residual", index))
            ),
            "residual_usd": Cell(assets.residual_usd[row], residual_formula),
            "resale_fraction": used_share(retired - paid, float(resale_fraction)),
            "resale_usd": fetched(resale_usd, float(resale_fraction), resale_formula),
            "last_day_fraction": used_share(self.edges[-1] - paid, float(end_fraction)),
            "residual_value_usd": fetched(end_usd, float(end_fraction), end_formula),
            "opening_value_usd": self._opening_value(row, servers, curve),
            "book_value_when_retired_usd": Cell(disposed_usd, book_value),
        }

    def _host(self, index: int, host_usd: float) -> Cell:
        """Return the price of a cohort's hosts, which moves with list prices as that of accelerators does."""
        if ("host", index) not in self.inputs:
            return Cell(host_usd)
        factor = host_usd / self.inputs["host", index].simulated
        return Cell(host_usd, f"{self._input('host', index)}*{factor!r}")

    def _opening_value(self, row: int, servers: str, curve: ResaleCurve) -> Cell:
        """Return what a cohort owned before the start would fetch on the first day, after tax on its sale."""
        rules = self.plan.money.market.tax
        cohorts = self.result.cohorts
        after_tax = opening_value_cents(self.plan, cohorts, rules)[row] / 100
        multiplier = self._input("resale")
        if not after_tax or not multiplier:
            return Cell(after_tax)
        stated = self.inputs["resale", -1].simulated
        age = self.edges[0] - self.assets.acquired_months[row]
        plain = replace(curve, multiplier=_SMALL_SHARE).fraction(age) / _SMALL_SHARE
        share_at_one = float(plain) * curve.multiplier / stated
        value = f"ROUND({servers}*MIN(1,{share_at_one!r}*{multiplier}),2)"
        if rules is None:
            return Cell(after_tax, value)
        # V − ROUND(t·(V − B)): the basis follows from what was posted.
        before_tax = opening_value_cents(self.plan, cohorts, None)[row] / 100
        basis_usd = float(opening_basis_cents(self.plan, cohorts, rules)[row]) / 100
        taxed = f"ROUND(({value}-{basis_usd!r})*{rules.rate_fraction!r},2)"
        assert before_tax >= 0
        return Cell(after_tax, f"{value}-{taxed}")

    def _retired_in(self, row: int) -> list[int]:
        """Return the month in which a cohort leaves; none where it stays to the end."""
        leaves = self.assets.retired_months[row]
        return [
            month
            for month in range(self.months)
            if self.edges[month] <= leaves < self.edges[month + 1]
        ]

    def _charges(self) -> list[tuple[Account, str, Floats]]:
        """Return what books cost besides depreciation: account, words, dollars of shape (cohorts, months)."""
        rate = self.capital.discount_rate_per_year
        yearly = self.capital.property_tax_fraction_per_year
        charge = capital_charge_usd(self.schedule, rate)
        charges = [(Account.COST_OF_CAPITAL, "Charge for capital to date, USD", charge)]
        if yearly:
            tax = property_tax_usd(self.schedule, yearly)
            charges.append((Account.PROPERTY_TAX, "Property tax to date, USD", tax))
        return charges

    def _book(self, block: int, row: int, edge: int, last_row: int | None = None) -> str:
        """Return where Depreciation has a cohort's figure until a month's edge, or those down to another cohort."""
        first_row = _FIRST + 1 + block * self.assets.count
        end_row = None if last_row is None else first_row + last_row
        return _area(
            DEPRECIATION,
            first_row + row,
            2 + edge,
            end_row,
        )

    def depreciation_page(self) -> Page:
        """Return by cohort what is written off, charged for capital and paid in property tax, to each month's end.

        A month's charge is B·((1 + r)^(h/12) − 1), property tax B·t·h/12: B is cost less what is written off until the
        month's start, h the part of the month in which the cohort is on the books.
        """
        edge_cells = [_area(DEPRECIATION, _FIRST, 2 + edge) for edge in range(self.months + 1)]
        rows: list[list[object]] = [["Month coordinate", "", *self.edges.tolist()]]
        is_opening = self.assets.acquired_months < self.edges[0]
        # What was owned before the start has been written off in part already.
        written_off_cents = cents(self.assets.cost_usd) - self.schedule.opening_book_cents
        opening_cents = np.where(is_opening, written_off_cents, 0)
        # A column before the first month: formulas of a month subtract the one before it.
        by_edge = np.column_stack((opening_cents, self.schedule.depreciation_cents))
        written_off = np.cumsum(by_edge, axis=1) / 100
        for row, cohort in enumerate(self.result.cohorts):
            formulas = [
                self._written_off(row, edge_cell) if self._follows(cohort.cluster) else ""
                for edge_cell in edge_cells
            ]
            cells = [
                Cell(*figure, "usd")
                for figure in zip(written_off[row].tolist(), formulas, strict=True)
            ]
            rows.append([cohort.name, "Written off to date, USD", *cells])
        monthly_tax = self.capital.property_tax_fraction_per_year / MONTHS_PER_YEAR
        for block, (account, label, charged) in enumerate(self._charges(), start=1):
            for row, cohort in enumerate(self.result.cohorts):
                leaves, paid, price = (
                    self._cohort(row, name) for name in ("retired_month", "paid_month", "cost_usd")
                )
                cells = [Cell(0.0, "", "usd")]
                charged_to_date = np.cumsum(charged[row]).tolist()
                for month, figure in enumerate(charged_to_date):
                    years_on_books = f"MAX(0,MIN({edge_cells[month + 1]},{leaves})-MAX({edge_cells[month]},{paid}))"
                    is_tax = account is Account.PROPERTY_TAX
                    charge = (
                        f"{years_on_books}*{monthly_tax!r}"
                        if is_tax
                        else f"((1+{self.rate})^({years_on_books}/12)-1)"
                    )
                    # Charged on the book value at the month's start, so that no cell depends on
                    # itself.
                    written_off_before = self._book(0, row, month)
                    book = f"({price}-{written_off_before})"
                    charged_before = self._book(block, row, month)
                    cells.append(Cell(figure, f"{charged_before}+{book}*{charge}", "usd"))
                rows.append([cohort.name, label, *cells])
        return Page(
            headings=("cohort", "figure", "before", *self.labels),
            rows=rows,
            note=_FOLLOWS,
            fixed_columns=2,
        )

    # -- Lines -------------------------------------------------------------------------------------------------------

    def _book_lines(self) -> Iterator[MoneyLine]:
        """Yield depreciation and capital charge by cluster, and disposal losses by cohort."""
        blocks = [(Account.DEPRECIATION, self.schedule.depreciation_cents)]
        blocks += [
            (account, books.series_cents(figures, axis=1))
            for account, _, figures in self._charges()
        ]
        for index, rows in enumerate(self.cohorts):
            if not rows:
                continue
            for block, (account, posted) in enumerate(blocks):
                # Each cohort is rounded on its own running total, as it was posted.
                ranges = (
                    self._book(block, rows[0], edge, rows[-1]) for edge in range(self.months + 1)
                )
                ends = [f"SUMPRODUCT(ROUND({cells},2))" for cells in ranges]
                formulas = {
                    month: f"{ends[month + 1]}-{ends[month]}" for month in range(self.months)
                }
                cents_by_month = posted[rows].sum(axis=0)
                yield MoneyLine(account, index, cents_by_month, formulas)
            for row in rows:
                for month in self._retired_in(row):
                    book_value = self._cohort(row, "book_value_when_retired_usd")
                    resale = self._cohort(row, "resale_usd")
                    lost = f"{book_value}-{resale}"
                    amounts = self.schedule.disposal_loss_cents[row]
                    name = self.result.cohorts[row].name
                    yield MoneyLine(Account.DISPOSAL_LOSS, index, amounts, {month: lost}, name)

    def _running_lines(self, posted: Sequence[tuple[Account, Floats]]) -> Iterator[MoneyLine]:
        """Yield what runs through the months at a price with a cell: prices times quantities to date."""
        people = iter(self.people)
        for account, amounts in posted:
            paid_for = (
                next(people) if account is Account.OPERATIONS_STAFF else _PRICES.get(account, "")
            )
            table = amounts
            if amounts.ndim == 1:
                table = amounts[:, None]
            paid_places = np.flatnonzero(table.any(axis=0)).tolist()
            for place in paid_places:
                index = -1 if amounts.ndim == 1 else place
                parts = self._parts(account, index, table[:, place], paid_for)
                has_cell = any(price.formula for _, price, _ in parts)
                if not has_cell:
                    continue  # no price of it has a cell: it is among the recorded lines
                first_row = _FIRST + len(self.quantities)
                last_row = first_row + len(parts) - 1
                owner = (self.names[index], str(account))
                self.quantities += [
                    (*owner, label, price, *units.tolist()) for label, price, units in parts
                ]
                # Rounded on the running total, as the ledger posts, so that no cents are lost from month to month.
                prices = _area(QUANTITIES, first_row, 3, last_row)
                ranges = (
                    _area(QUANTITIES, first_row, 4 + month, last_row)
                    for month in range(self.months)
                )
                ends = [f"ROUND(SUMPRODUCT({prices},{cells}),2)" for cells in ranges]
                formulas = {
                    month: f"{ends[month]}-{ends[month - 1]}" for month in range(1, self.months)
                }
                cents_by_month = books.series_cents(table[:, place])
                all_formulas = {0: ends[0], **formulas}
                yield MoneyLine(account, index, cents_by_month, all_formulas)

    def _parts(
        self, account: Account, index: int, amounts: Floats, paid_for: str
    ) -> list[PricedAmount]:
        """Return a posting as prices times quantities, amounts of shape (months,); those without a cell do not move."""

        def priced(name: str, cluster: int, paid: Floats) -> PricedAmount:
            formula = self._input(name, cluster)
            if not formula:
                return "as simulated", Cell(1.0, "", "unit_usd"), np.cumsum(paid)
            entry = self.inputs[name, cluster]
            unit_usd = entry.simulated
            if name == "price":
                formula, unit_usd = self._discounted(cluster)
            return entry.label, Cell(unit_usd, formula, "unit_usd"), np.cumsum(paid) / unit_usd

        money = self.plan.money
        upkeep = money.upkeep
        cohorts = self.result.cohorts
        match account:
            case Account.MAINTENANCE | Account.INSURANCE:
                # A yearly share of what machines in service cost: one part a cohort, cost times years in service.
                if ("price", index) not in self.inputs:
                    return [priced(str(account), -1, amounts)]
                share_cell = self._input(str(account))
                yearly = upkeep.yearly_usd[account]
                nodes = np.array([cohort.nodes for cohort in cohorts])
                serving = nodes_in_service(self.plan, cohorts) / nodes[:, None]
                month_fractions = self.plan.months.month_fractions
                yearly_shares = serving * month_fractions / MONTHS_PER_YEAR
                years = np.cumsum(yearly_shares, axis=1)
                parts = []
                for row in self.cohorts[index]:
                    unit_usd = float(self.assets.cost_usd[row]) * yearly
                    price = Cell(
                        unit_usd, f"{self._cohort(row, 'cost_usd')}*{share_cell}", "unit_usd"
                    )
                    label = f"{cohorts[row].name}: share of cost a year"
                    parts.append((label, price, years[row]))
                return parts
            # What is paid on leaving early is a share of the rent.
            case Account.RENT | Account.EXIT_FEES:
                return [priced("rent", index, amounts)]
            case Account.SPARES:
                return [priced("price", index, amounts)]
            case Account.RMA:
                # Freight is what is paid where parts cost nothing; the rest moves with their price.
                bare = replace(upkeep, replacement_usd=np.zeros_like(upkeep.replacement_usd))
                plan = replace(self.plan, money=replace(money, upkeep=bare))
                all_freight = rma_usd(plan, self.result.run) * plan.on_site
                freight = all_freight[:, index]
                return [
                    priced("freight", index, freight),
                    priced("price", index, amounts - freight),
                ]
            case Account.REVENUE:
                # By the price it moves with: that of fresh tokens, where cached ones have none of their own.
                served = self.result.rented.requests
                if index >= 0:
                    served = self.result.monthly.served_requests[:, index, :]
                # Revenue is income, which the ledger has negative: earned is subtracted.
                token_price = np.asarray(money.market.token_price)
                earned = served[:, :, None] * self.plan.request_tokens * token_price / MILLION
                revenue: dict[tuple[str, int], Floats] = {}
                for place in np.ndindex(earned.shape[1:]):
                    w, kind = place
                    moved = (TOKEN_KINDS[kind], w)
                    if moved not in self.inputs and moved[0] != "output":
                        moved = ("input", w)
                    earlier_usd = revenue.get(moved, np.zeros(self.months))
                    revenue[moved] = earlier_usd - earned[:, w, kind]
                return [priced(*moved, paid) for moved, paid in revenue.items() if paid.any()]
            case _:
                return [priced(paid_for, -1, amounts)]

    def _open_items(self) -> Iterator[OpenItems]:
        """Yield what is open at the months' ends, by account and cluster."""
        table = self.result.ledger.totals_cents(
            Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT
        )
        edges = self.plan.months.edge_hours.astype(np.float64)
        for account in _OPEN_ENDS:
            codes = [ACCOUNT_CODES[billed] for billed in self._billed_in(account)]
            # Income is negative in the ledger; what customers owe is positive.
            direction = -1 if account is Account.RECEIVABLES else 1
            billed = direction * table[:, :, codes].sum(axis=2)
            balance = open_cents(billed, self._days(account), edges)
            for index in range(-1, len(self.clusters)):
                if balance[:, index].any():
                    yield OpenItems(account, index, billed[:, index], balance[:, index])

    def _days(self, account: Account) -> float:
        """Return the days from sale, or purchase, to payment."""
        if account is Account.RECEIVABLES:
            return self.capital.receivable_days
        return self.capital.payable_days

    @staticmethod
    def _billed_in(account: Account) -> list[Account]:
        """Return the accounts whose amounts customers, or vendors, are paid later."""
        if account is Account.RECEIVABLES:
            return [Account.REVENUE]
        return [
            billed for billed in Account if billed.is_invoiced and billed is not Account.REVENUE
        ]

    def _open_lines(self) -> Iterator[MoneyLine]:
        """Yield what each month adds to what is open, and what is open on the last day as if settled then."""
        last_day = float(self.edges[-1] - self.edges[0])
        is_last = np.arange(self.months) == self.months - 1
        for items in self.open_items:
            change = items.sign * np.diff(items.balance_cents, prepend=0)
            yield MoneyLine(items.account, items.cluster, change)
            owed = np.where(is_last, -items.sign * items.balance_cents[-1], 0)
            end_account = _OPEN_ENDS[items.account]
            yield MoneyLine(end_account, items.cluster, owed, {}, OPEN_ITEMS, last_day)
            # Deposits on orders are in the same account, and follow no cell.
            ends = self.result.ledger.totals_cents(
                Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT
            )
            deposits = ends[:, items.cluster, ACCOUNT_CODES[end_account]] - owed
            if deposits.any():
                yield MoneyLine(end_account, items.cluster, deposits, day_months=last_day)

    def _settled_later(self, line: MoneyLine) -> MoneyLine:
        """Return a line with the formulas of what is open; other lines as they are."""
        for place, items in enumerate(self.open_items):
            if items.cluster != line.cluster:
                continue
            balances = [
                _area(OPEN_ITEMS, _FIRST + 2 * place + 1, 3 + month) for month in range(self.months)
            ]
            sign = "" if items.sign > 0 else "-"
            other_sign = "-" if items.sign > 0 else ""
            if line.account is items.account:
                formulas = {0: f"{sign}{balances[0]}"}
                for month in range(1, self.months):
                    formulas[month] = f"{sign}({balances[month]}-{balances[month - 1]})"
                return line._replace(formulas=formulas)
            if line.account is _OPEN_ENDS[items.account] and line.cohort == OPEN_ITEMS:
                formulas = {self.months - 1: f"{other_sign}{balances[-1]}"}
                return line._replace(formulas=formulas, cohort="")
        return line

    def open_items_page(self) -> Page:
        """Return by account and cluster what is billed in each month, and what of it is open at its end.

        Amounts run evenly through their month, so open is the share of each that ran in the last days before.
        """
        edges = self.plan.months.edge_hours.astype(np.float64)
        rows: list[Sequence[object]] = []
        for items in self.open_items:
            place = len(rows)
            days = self._days(items.account)
            open_share = open_shares(days, edges)
            own = [
                row
                for row, line in enumerate(self.lines)
                if line.cluster == items.cluster and line.account in self._billed_in(items.account)
            ]
            direction = "-" if items.account is Account.RECEIVABLES else ""
            named = (self.names[items.cluster], str(items.account))
            billed = []
            balances = []
            for month in range(self.months):
                column = len(_LINE_COLUMNS) + month
                cells = "+".join(_area(LINES, _FIRST + 1 + row, column) for row in own)
                billed.append(Cell(items.billed_cents[month] / 100, f"{direction}({cells})", "usd"))
                parts = [
                    f"{float(open_share[month, earlier])!r}*{_area(OPEN_ITEMS, _FIRST + place, 3 + earlier)}"
                    for earlier in np.flatnonzero(open_share[month]).tolist()
                ]
                formula = f"ROUND({'+'.join(parts)},2)" if parts else "0"
                balances.append(Cell(items.balance_cents[month] / 100, formula, "usd"))
            rows.append((*named, "billed in the month, USD", *billed))
            rows.append(
                (*named, f"unpaid at month end (accrued in the last {days:g} days), USD", *balances)
            )
        headings = ("cluster", "account", "figure", *self.labels)
        return Page(headings=headings, rows=rows, note=_FOLLOWS, fixed_columns=3)

    def _dated_lines(self) -> Iterator[MoneyLine]:
        """Yield what counts on a day of its own, one line for each row of the ledger."""
        ledger = self.result.ledger
        columns = (column.tolist() for column in dated_rows(self.result))
        # What is open on the last day has lines of its own.
        settled_ends = {(_OPEN_ENDS[items.account], items.cluster) for items in self.open_items}
        for row, day in zip(*columns, strict=True):
            account = ACCOUNT_ORDER[ledger.account_code[row]]
            month = int(ledger.month_index[row])
            index = int(ledger.cluster_index[row])
            place = int(ledger.cohort_index[row])
            if account not in _ACCOUNTS or (account, index) in settled_ends:
                continue
            is_month = np.arange(self.months) == month
            amounts = np.where(is_month, ledger.amount_cents[row], 0)
            # Cohorts holds what is paid and what is fetched as positive numbers; income is negative in the ledger.
            sign = "" if account in CAPEX_ACCOUNTS else "-"
            column = f"{account}_usd"
            # What is opened with is a cost: it is positive in both.
            if account is Account.OPENING_VALUE:
                sign = ""
            formulas = {}
            if column in _COHORT_COLUMNS and place >= 0:
                formulas = {month: sign + self._cohort(place, column)}
            name = ""
            if place >= 0:
                name = self.result.cohorts[place].name
            yield MoneyLine(account, index, amounts, formulas, name, day)

    def lines_page(self) -> Page:
        """Return every dollar by month; the first row is the discount factor of what runs through a month."""
        width = len(_LINE_COLUMNS)
        factor_list = self.factors.tolist()
        offsets = zip(factor_list, self.offsets.tolist(), strict=True)
        factors = [
            Cell(factor, f"(1+{self.rate})^(-{offset!r}/12)", "unit_usd")
            for factor, offset in offsets
        ]
        blanks = [None] * (width - 1)
        rows: list[list[object]] = [["Discount factor", *blanks, *factors]]
        last_column = width + self.months - 1
        factor_row = _area(LINES, _FIRST, width, None, last_column)
        lines_and_usd = zip(self.lines, self.usd, strict=True)
        for place, (line, usd) in enumerate(lines_and_usd):
            # Below the row of discount factors.
            row = _FIRST + 1 + place
            account = line.account
            day = line.day_months
            by_month = _area(LINES, row, width, None, last_column)
            discounted = f"SUMPRODUCT({by_month},{factor_row})"
            if day is not None:
                total = _area(LINES, row, width - 2)
                discounted = f"{total}*(1+{self.rate})^(-{day!r}/12)"
            named = (self.names[line.cluster], line.cohort, str(account), str(account.category))
            views = (Cell(int(counts(account)), "", "count") for counts in _VIEWS.values())
            total_usd = Cell(float(usd.sum()), f"SUM({by_month})")
            sums = (
                total_usd,
                Cell(self.discounted_usd[place], discounted),
            )
            # Months without money stay empty: most lines have a handful.
            months = [
                Cell(amount, line.formulas.get(month, ""), "usd")
                if amount or month in line.formulas
                else None
                for month, amount in enumerate(usd.tolist())
            ]
            rows.append([*named, *views, day, *sums, *months])
        note = f"{_FOLLOWS} Costs are positive, income is negative; a view counts the lines with a 1 in its column."
        headings = (*_LINE_COLUMNS, *self.labels)
        return Page(headings=headings, rows=rows, note=note, fixed_columns=3)

    # -- Sums over the lines -----------------------------------------------------------------------------------------

    def _sum(self, column: int | str, **conditions: str | int) -> Cell:
        """Return the sum of a column of the lines, a month's or one by name, over the rows whose columns fit."""
        # A range needs a row, also where a run without machines has no line.
        last_row = _FIRST + max(len(self.lines), 1)

        def cells_of(name: int | str) -> str:
            # Months stand after the named columns.
            place = (
                len(_LINE_COLUMNS) + name if isinstance(name, int) else _LINE_COLUMNS.index(name)
            )
            return _area(LINES, _FIRST + 1, place, last_row)

        criteria = {
            name: f'"{value_wanted}"' if isinstance(value_wanted, str) else value_wanted
            for name, value_wanted in conditions.items()
        }
        tests = ",".join(
            f"{cells_of(name)},{value_wanted}" for name, value_wanted in criteria.items()
        )
        # reduce, since there may be one condition or several.
        is_counted = np.logical_and.reduce(
            [self.facts[name] == value_wanted for name, value_wanted in conditions.items()]
        )
        if isinstance(column, int):
            figures = self.usd[:, column]
        else:
            totals = {"total_usd": self.usd.sum(axis=1), "discounted_usd": self.discounted_usd}
            figures = totals[column]
        total_usd = float(figures[is_counted].sum())
        formula = f"SUMIFS({cells_of(column)},{tests})"
        return Cell(total_usd, formula, "usd")

    def by_month(self) -> Page:
        """Return what each month of the fleet comes to, and every account."""
        rows = []
        cash = 0.0
        column = _BY_MONTH_COLUMNS.index("cash_usd")
        for month, label in enumerate(self.labels):
            views = {view: self._sum(month, **{view: 1}) for view in _VIEWS}
            cash += views["cash"].value
            cash_cells = _area(BY_MONTH, _FIRST, column, _FIRST + month)
            to_date = Cell(cash, f"SUM({cash_cells})")
            factor_cell = _area(LINES, _FIRST, len(_LINE_COLUMNS) + month)
            factor = Cell(self.factors[month], factor_cell, "unit_usd")
            accounts = (self._sum(month, account=str(account)) for account in self.shown)
            rows.append((label, factor, *views.values(), to_date, *accounts))
        costs = [account for account in self.shown if _VIEWS["cost"](account)]
        # A chart needs a column, also where nothing was spent.
        spent = tuple(f"{account}_usd" for account in costs) or ("cost_usd",)
        charts = (
            SheetChart(title="Monthly cost by account, USD", columns=spent, kind="stacked"),
            SheetChart(title="Cash paid to date, USD", columns=("cash_to_date_usd",)),
        )
        account_columns = (f"{account}_usd" for account in self.shown)
        headings = (*_BY_MONTH_COLUMNS, *account_columns)
        return Page(headings=headings, rows=rows, note=self.note, charts=charts)

    def timeline(self, fleet: Columns, clusters: Columns) -> Page:
        """Return the timeline, the fleet first, then cluster by cluster; its money follows, all else is the run's."""
        rows: list[list[object]] = []
        columns = {name: column for column, name in enumerate(_TIMELINE_COLUMNS)}
        for cluster in (FLEET, *self.clusters):
            conditions = {} if cluster == FLEET else {"cluster": cluster}
            table = fleet
            step = 1
            place = 0
            if conditions:
                # The clusters' table has all clusters of a month together.
                table = clusters
                step = len(self.clusters)
                place = self.clusters.index(cluster)
            first_row = _FIRST + len(rows)
            for month in range(self.months):
                row = first_row + month
                # Addresses of the row's own cells, and of all from the first month down to it.
                address = {name: _area(TIMELINE, row, column) for name, column in columns.items()}
                to_date = {
                    name: f"SUM({_area(TIMELINE, first_row, column, row)})"
                    for name, column in columns.items()
                }
                cost = self._sum(month, **conditions, cost=1)
                formulas = {"cost_usd": cost.formula}
                for kind in ("tokens", "output_tokens"):
                    name = f"cost_per_million_{kind}_usd"
                    served = f"served_{kind}"
                    formulas[name] = _per_million(address["cost_usd"], address[served])
                    formulas[f"cumulative_{name}"] = _per_million(
                        to_date["cost_usd"], to_date[served]
                    )
                month_figures = {
                    name: column[month * step + place] for name, column in table.items()
                }
                figures = month_figures | {"cluster": cluster}
                rows.append(
                    [Cell(figures.get(name), formulas.get(name, "")) for name in _TIMELINE_COLUMNS]
                )
        # A chart would draw months before the first token, which have no cost per token, as zero.
        has_output = series_of(self.result).output_tokens > 0
        begins = int(np.argmax(has_output))
        charts = tuple(
            SheetChart(
                title=title,
                columns=columns_drawn,
                first=begins if "Cost" in title else 0,
                last=self.months,
            )
            for title, columns_drawn in _TIMELINE_CHARTS.items()
        )
        return Page(
            headings=_TIMELINE_COLUMNS, rows=rows, note=_FOLLOWS, charts=charts, fixed_columns=2
        )

    def by_cluster(self) -> Page:
        """Return what each cluster comes to over the whole horizon, the site as a whole, and the fleet last."""
        sums = series_of(self.result).sums
        rows = []
        factors = _area(BY_MONTH, _FIRST, 1, _FIRST + self.months - 1)
        for place, cluster in enumerate((*self.clusters, SITE, FLEET)):
            conditions = {} if cluster == FLEET else {"cluster": cluster}
            address = {
                name: _area(BY_CLUSTER, _FIRST + place, column)
                for column, name in enumerate(_BY_CLUSTER_COLUMNS)
            }
            value = self._sum("discounted_usd", **conditions, net_cost_of_ownership=1)
            cells = {
                "cluster": Cell(cluster),
                **{
                    f"{view}_usd": self._sum("total_usd", **conditions, **{view: 1})
                    for view in _VIEWS
                },
                "present_cost_usd": self._sum("discounted_usd", **conditions, cost_of_ownership=1),
                "npv_usd": Cell(-value.value, f"-{value.formula}"),
            }
            # The site as a whole serves no token.
            kinds = ("tokens", "output_tokens") if cluster != SITE else ()
            for kind in kinds:
                column_of_served = -1 if cluster == FLEET else place
                served = getattr(sums, f"served_{kind}")[:, column_of_served]
                # On the sheet Timeline the fleet comes first, here last.
                block = (FLEET, *self.clusters).index(cluster)
                first_row = _FIRST + block * self.months
                column = _TIMELINE_COLUMNS.index(f"served_{kind}")
                name = f"cost_per_million_{kind}_usd"
                final_row = first_row + self.months - 1
                months = _area(TIMELINE, first_row, column, final_row)
                cells[f"served_{kind}"] = Cell(served.sum(), f"SUM({months})")
                for prefix, cost_column, tokens, tokens_formula in (
                    ("", "cost_usd", served.sum(), f"SUM({months})"),
                    (
                        "levelised_",
                        "present_cost_usd",
                        served @ self.factors,
                        f"SUMPRODUCT({months},{factors})",
                    ),
                ):
                    cost_usd = np.array(cells[cost_column].value)
                    unit_cost = per_million_tokens(cost_usd, tokens)
                    formula = _per_million(address[cost_column], tokens_formula)
                    cells[prefix + name] = Cell(float(unit_cost), formula)
            # Only accounts that have a line: a column of zeros says nothing.
            totals = [
                self._sum("total_usd", **conditions, account=str(account)) for account in self.shown
            ]
            named_cells = (cells.get(name) for name in _BY_CLUSTER_COLUMNS)
            rows.append([*named_cells, *totals])
        account_columns = (f"{account}_usd" for account in self.shown)
        headings = (*_BY_CLUSTER_COLUMNS, *account_columns)
        return Page(headings=headings, rows=rows, note=self.note)

    def summary(self) -> Page:
        """Return the headline measures: now, as simulated, and the change."""
        # The fleet's row of By cluster, but for its name and its tokens.
        fleet = self.by_cluster().rows[-1]
        row = _FIRST + len(self.clusters) + 1
        measures = {}
        for column, (name, figure) in enumerate(zip(_BY_CLUSTER_COLUMNS, fleet, strict=False)):
            if column >= 3 and isinstance(figure, Cell):
                measures[words(name)] = Cell(
                    figure.value, _area(BY_CLUSTER, row, column), style_of(name)
                )
        if Account.REVENUE in self.shown:
            revenue = self._sum("total_usd", account=str(Account.REVENUE))
            spent = 0.0
            formula = "0"
            # Costs are positive in the ledger, so that revenue is negative: a margin is one plus
            # their ratio.
            measures["Revenue, USD"] = Cell(-revenue.value, f"-{revenue.formula}", "usd")
            margins = {
                "Gross margin": Category.COST_OF_SERVING,
                "Operating margin": Category.OPERATING_EXPENSE,
            }
            for label, category in margins.items():
                total = self._sum("total_usd", category=str(category))
                spent = spent + total.value
                formula = f"{formula}+{total.formula}"
                share = f'IF({revenue.formula}=0,"",1+({formula})/{revenue.formula})'
                margin = None
                if revenue.value:
                    margin = 1 + spent / revenue.value
                measures[label] = Cell(margin, share, "percent")
        rows = []
        for row, (label, measure) in enumerate(measures.items(), start=_FIRST):
            address = _area(SUMMARY, row, 1)
            simulated = _area(SUMMARY, row, 2)
            change = Cell(0.0, f'IF({address}="","",{address}-{simulated})', measure.style)
            as_simulated = Cell(measure.value, "", measure.style)
            rows.append((label, measure, as_simulated, change))
        note = (
            f"{self.result.scenario.name}. {self.note} The simulated value is next to each figure."
        )
        headings = ("measure", "now", "as_simulated", "change")
        return Page(headings=headings, rows=rows, note=note)
