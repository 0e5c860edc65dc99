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
from planner.finance.depreciation import (
    capital_charge_usd,
    depreciate,
    make_cohorts,
    property_tax_usd,
)
from planner.finance.ledger import (
    ACCOUNT_CODES,
    CAPEX_ACCOUNTS,
    Account,
    Category,
    Dimension,
    View,
    cents,
)
from planner.finance.present_value import discount_factors, per_million_tokens, running_months
from planner.finance.statements import Frequency
from planner.output.workbook import Cell, Page, SheetChart, style_of, words, write_tables
from planner.plan.money import rent_prior
from planner.plan.parts import TOKEN_KINDS
from planner.plan.quantities import shares
from planner.run.accounting import rma_usd, running_usd
from planner.run.cohorts import assets_of, nodes_in_service, owned_value_cents, parts_usd
from planner.run.measure_names import FLEET, SITE
from planner.run.measure_names import TIMELINE as TIMELINE_FIGURES
from planner.run.measures import dated_rows, series_of
from planner.run.simulate import RunResult
from planner.units import DOLLARS, MILLION, MONTHS_PER_YEAR, unit_of

SUMMARY = "Summary"
INPUTS = "Inputs"
BY_MONTH = "By month"
TIMELINE = "Timeline"
BY_CLUSTER = "By cluster"
LINES = "Lines"
QUANTITIES = "Quantities"
COHORTS = "Cohorts"
DEPRECIATION = "Depreciation"
_RECORD = "A record of the run: this sheet does not follow the cells of the sheet Inputs."
_FOLLOWS = "Follows the yellow cells of the sheet Inputs."
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
PricedAmount = tuple[str, Cell, Floats]
"""What one unit price adds to a line: what is paid for, the price, and the running total of units, shape (months,)."""
_VIEWS: dict[str, Callable[[Account], bool]] = {
    "cost": lambda account: (
        View.ACCRUAL in account.views and account not in books.NOT_COST_ACCOUNTS
    ),
    "cost_of_ownership": lambda account: (
        View.ECONOMIC in account.views and account not in books.NOT_COST_ACCOUNTS
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
_LIMITS = {
    "a year": (-0.99, 10.0, "percent"),
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
    "Cost per million tokens to date, fleet, USD": ("cumulative_cost_per_million_tokens_usd",),
    "Cost per million output tokens to date, fleet, USD": (
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


def run_pages(result: RunResult, shown: Mapping[str, Mapping[str, Any]]) -> dict[str, Page]:
    """Return the sheets of a run by name, given its tables by name: live sheets first, then records."""
    live = _Live(result)
    statements = statements_page({result.scenario.name: result}, tuple(Frequency))["Statements"]
    used = ("cluster", "account", "paid_for", "price_per_unit_usd", *live.labels)
    note = f"Quantities of the run, added up from its start, at the prices of now. {_FOLLOWS}"
    return {
        SUMMARY: live.summary(),
        INPUTS: live.inputs_page(),
        BY_MONTH: live.by_month(),
        TIMELINE: live.timeline(shown["timeline_monthly"], shown["timeline_monthly_clusters"]),
        BY_CLUSTER: live.by_cluster(),
        LINES: live.lines_page(),
        QUANTITIES: Page(headings=used, rows=live.quantities, note=note, fixed_columns=4),
        COHORTS: live.cohorts_page(),
        DEPRECIATION: live.depreciation_page(),
        "Statements": replace(statements, note=f"{_RECORD} {statements.note}"),
        "Unit economics": _dollars(shown["unit_economics_yearly"]),
        "Reconciliation": _dollars(shown["reconciliation"]),
        "Measures": Page.of(shown["measures"], note=_RECORD),
        "Assumptions": Page.of(shown["assumptions"], note=_RECORD),
        "Events": Page.of(shown["events"], most=1_000, note=_RECORD),
    }


def _dollars(table: Mapping[str, Any]) -> Page:
    """Return a table as a record, what it has in cents in dollars."""
    paid = [name for name in table if unit_of(name) == DOLLARS]
    return Page.of(
        {**table, **{name: [cents / 100 for cents in table[name]] for name in paid}}, note=_RECORD
    )


def run_workbook(result: RunResult, pages: Mapping[str, Page], more: Mapping[str, Page]) -> bytes:
    """Return the workbook of a run with further sheets, which are records: only charts that follow stand on Summary."""
    records = {name: replace(page, charts=()) for name, page in more.items()}
    return write_tables(
        result.scenario.name, result.plan.start, {**pages, **records}, charts_on=SUMMARY
    )


def _area(
    sheet: str, row: int, column: int, last_row: int | None = None, last_column: int | None = None
) -> str:
    """Return the fixed address of a cell, or of the cells from it to another, counting from zero."""
    last = row if last_row is None else last_row, column if last_column is None else last_column
    return f"'{sheet}'!{xl_range_abs(row, column, *last)}"


def _per_million(cost: str, tokens: str) -> str:
    """Return the formula of cost per million tokens; nothing without tokens."""
    return f'IF({tokens}=0,"",{cost}/{tokens}*1000000)'


class _Live:
    """A run, the inputs that its sheets follow, and its lines; each sheet is a method."""

    def __init__(self, result: RunResult) -> None:
        self.result, self.plan, self.capital = result, result.plan, result.plan.money.capital
        self.months, self.edges = (
            result.plan.months.period_count,
            result.plan.months.edge_coordinates,
        )
        self.labels = result.plan.months.labels
        self.clusters = [cluster.name for cluster in result.plan.clusters]
        self.names = [*self.clusters, SITE]
        """Of the clusters, and last, at −1, of the site as a whole."""
        owners = [cohort.cluster for cohort in result.cohorts]
        self.cohorts = [
            [row for row, owner in enumerate(owners) if owner == c]
            for c in range(len(self.clusters))
        ]
        """Cohorts by cluster; those of one stand together."""
        self.assets = (
            assets_of(result.plan, result.cohorts) if result.cohorts else make_cohorts([], [])
        )
        self.schedule = depreciate(self.assets, self.edges)
        self.offsets = running_months(self.edges - self.edges[0], self.capital.timing)
        self.factors = discount_factors(self.capital.discount_rate_per_year, self.offsets)
        """Of what runs through a month, shape (months,)."""
        posted = [
            *running_usd(result.plan, result.run, result.monthly, result.cohorts, result.rented)
        ]
        upkeep = result.plan.money.upkeep
        on_site = result.monthly.present_node_h * result.plan.on_site
        has_staff = (
            upkeep.staff_usd_per_year > 0
            and upkeep.staff_per_accelerator > 0
            and bool(on_site.any())
        )
        self.people = ["staff", "crews"] if has_staff else ["crews"]
        """Whom each posting to operations staff pays, in their order."""
        self.inputs = self._inputs(posted)
        """By name and cluster, −1 for the site as a whole; in the order of their rows."""
        self.rate = self._input("discount rate") or repr(self.capital.discount_rate_per_year)
        """The discount rate in formulas: its cell, or a number where it has none."""
        self.quantities: list[Sequence[object]] = []
        """Rows of the sheet Quantities."""
        self.lines = [*self._book_lines(), *self._running_lines(posted), *self._dated_lines()]
        # What the ledger holds besides these follows no cell.
        left = result.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
        for line in self.lines:
            left[:, line.cluster, ACCOUNT_CODES[line.account]] -= line.cents
        self.lines += [
            MoneyLine(account, index, amounts)
            for account in _ACCOUNTS
            for index in range(-1, len(self.clusters))
            if account not in books.DATED_ACCOUNTS
            and (amounts := left[:, index, ACCOUNT_CODES[account]]).any()
        ]
        self.lines.sort(
            key=lambda line: (line.cluster < 0, line.cluster, ACCOUNT_CODES[line.account])
        )
        self.facts: dict[str, NDArray[Any]] = {
            "cluster": np.array([self.names[line.cluster] for line in self.lines]),
            "account": np.array([str(line.account) for line in self.lines]),
            "category": np.array([str(line.account.category) for line in self.lines]),
            **{
                view: np.array([counts(line.account) for line in self.lines])
                for view, counts in _VIEWS.items()
            },
        }
        """Columns of the lines by which they are summed, shape (lines,) each."""
        self.usd = np.array([line.cents for line in self.lines]).reshape(-1, self.months) / 100
        """Every line by month, shape (lines, months)."""
        self.discounted_usd = self.usd @ self.factors
        rate = self.capital.discount_rate_per_year
        for place, line in enumerate(self.lines):
            if line.day_months is not None:
                self.discounted_usd[place] = self.usd[place].sum() * discount_factors(
                    rate, np.array(line.day_months)
                )
        self.shown = [account for account in _ACCOUNTS if str(account) in self.facts["account"]]
        """The accounts that have a line."""
        taxed = (
            " Cash, present value and levelised cost are before income tax."
            if self.plan.money.market.tax
            else ""
        )
        self.note = f"{_FOLLOWS}{taxed}"
        """What a sheet with cash and present values says at its top."""

    # -- Inputs ------------------------------------------------------------------------------------------------------

    def _inputs(self, posted: Sequence[tuple[Account, Floats]]) -> dict[tuple[str, int], Input]:
        """Return every figure that the sheets can follow: it is paid, and all that depends on it is in the workbook."""
        money = self.plan.money
        scenario = self.result.scenario
        ledger = self.result.ledger
        power = money.power
        burst = money.market.burst
        accounts = {account for account, amounts in posted if amounts.any()}
        inputs: dict[tuple[str, int], Input] = {}
        has_other_capital = (ledger.account_code == ACCOUNT_CODES[Account.OTHER_CAPITAL]).any()
        if scenario.finance.discount_rate_basis != "real" and not has_other_capital:
            key = "finance.discount_rate_per_year"
            inputs["discount rate", -1] = Input(
                "Discount rate", "a year", key, self.capital.discount_rate_per_year
            )
        if (
            self.capital.receivable_days or self.capital.payable_days
        ):  # what is open at a month's end follows no cell
            return inputs
        usd_each = {
            "electricity": float(power.monthly_usd_per_kwh[0]),
            "space": power.colocation_usd_per_kw_month,
            "engineers": money.upkeep.engineer_usd_per_year,
            "staff": money.upkeep.staff_usd_per_year if "staff" in self.people else 0.0,
            "crews": money.upkeep.crew_usd_per_year,
            "burst": float(burst.hourly.usd_per_accelerator_h[0]) if burst else 0.0,
        }
        if has_windows := power.hourly_usd_per_kwh is not None and Account.ENERGY in accounts:
            # Under time-of-use windows it is what a kWh cost on average: changing it scales every window.
            paid = (
                ledger.account_cents(Account.ENERGY) + ledger.account_cents(Account.COOLING)
            ) / 100
            usd_each["electricity"] = round(paid / float(self.result.monthly.facility_kwh.sum()), 6)
        for name, account, label, unit, key in (
            _WINDOWED if has_windows else _SITE_INPUTS[0],
            *_SITE_INPUTS[1:],
        ):
            if account in accounts and usd_each[name] > 0:
                inputs[name, -1] = Input(label, unit, key, usd_each[name])
        for w, (name, load) in enumerate(
            scenario.workloads.items() if Account.REVENUE in accounts else ()
        ):
            for kind in TOKEN_KINDS:
                field = f"{kind}_usd_per_million_tokens"
                said = f"{name}: token price, {kind.replace('_', ' ')}"
                if unit_usd := getattr(load.token_price, field, None):
                    inputs[kind, w] = Input(
                        said,
                        unit_of(field) or "",
                        f"workloads.{name}.token_price.{field}",
                        unit_usd,
                    )
        catalog = scenario.load_catalog()
        capital = self.capital
        for index, (name, plan) in enumerate(zip(self.clusters, self.plan.clusters, strict=True)):
            cluster = scenario.clusters[name]
            key = f"clusters.{name}"
            if plan.rent is not None:
                stated = getattr(cluster.contract, "usd_per_accelerator_h", None)
                unit_usd = catalog.priors[rent_prior(cluster)].base if stated is None else stated
                rents = ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)[index]
                if unit_usd > 0 and rents[ACCOUNT_CODES[Account.RENT]] > 0:
                    path = f"{key}.contract.usd_per_accelerator_h"
                    inputs["rent", index] = Input(f"{name}: rent", _RENTED, path, unit_usd)
                continue
            # Neither follows where machines are leased, or the books are those of single parts or decline.
            if (
                not self.cohorts[index]
                or plan.lease
                or capital.declining_factor > 0
                or index in capital.components
            ):
                continue
            # Price does not where machines were owned already or had by a quote, with deposits or by a budget.
            owned = plan.owned
            book = plan.price_book
            price = cluster.accelerator_price_usd
            is_had_otherwise = (
                owned or (book and book.quotes) or (plan.order and plan.order.payments)
            )
            is_free = not (is_had_otherwise or np.isfinite(self.plan.expansion.budget_usd))
            if book and book.list_price.list_price_usd > 0 and is_free:
                entry = catalog.accelerator(cluster.accelerator).accelerator_price_usd
                usd = price if price is not None else entry.value if entry else 0.0
                path = f"{key}.accelerator_price_usd"
                share = cluster.discount_fraction
                said = f"{name}: discount"
                inputs["price", index] = Input(f"{name}: price of an accelerator", "USD", path, usd)
                inputs["discount", index] = Input(
                    said, "share of the price", f"{key}.discount_fraction", share
                )
            # Books do not where they are stated or follow a resale curve.
            residual = capital.residual_fraction[index]
            months = capital.depreciation_months[index]
            is_restated = (
                owned is not None and not owned.book_value_usd is owned.remaining_months is None
            )
            if residual is not None and not is_restated:
                path = f"{key}.residual_fraction"
                said = f"{name}: residual book value"
                inputs["life", index] = Input(
                    f"{name}: book life", "months", f"{key}.depreciation_months", months
                )
                inputs["residual", index] = Input(said, "share of cost", path, residual)
        return inputs

    def _input(self, name: str, cluster: int = -1) -> str:
        """Return the address of an input; empty where it has no cell."""
        key = name, cluster
        return _area(INPUTS, _FIRST + list(self.inputs).index(key), 1) if key in self.inputs else ""

    def _discounted(self, index: int) -> tuple[str, float]:
        """Return the price of a cluster's accelerators after its discount, before those by volume: formula, dollars.

        The formula is empty where the price has no cell.
        """
        if ("price", index) not in self.inputs:
            return "", np.nan
        price = self.inputs["price", index].simulated
        discount = self.inputs["discount", index].simulated
        return f"{self._input('price', index)}*(1-{self._input('discount', index)})", price * (
            1 - discount
        )

    def inputs_page(self) -> Page:
        """Return the cells that a person turns."""
        rows = []
        for known in self.inputs.values():
            low, high, style = _LIMITS.get(known.unit, (0.0, 1e12, "number"))
            now = Cell(known.simulated, "", style, (low, high))
            simulated = Cell(known.simulated, "", style)
            rows.append((known.label, now, simulated, known.unit, known.key))
        note = (
            "Change a yellow cell: Summary to Depreciation follow, as a new run with that key of the scenario would. "
            "What has no cell here is as the run found it: change the scenario and run again."
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
        return ("price", index) in self.inputs or ("life", index) in self.inputs

    def _written_off(self, row: int, until: str) -> str:
        """Return the formula of what a cohort is written off until a month coordinate: (C − R)·e/L, to the cent."""
        life = self._cohort(row, "book_life_months")
        since = self._cohort(row, "in_service_month")
        elapsed = f"MAX(0,MIN({life},MIN({until},{self._cohort(row, 'retired_month')})-{since}))"
        return f"ROUND(({self._cohort(row, 'cost_usd')}-{self._cohort(row, 'residual_usd')})*{elapsed}/{life},2)"

    def cohorts_page(self) -> Page:
        """Return what was bought together, what it cost, and what it fetches.

        With K, L, M, N the prices of a node's accelerators, host, network and storage, S their sum, n nodes, f before:

            K        = price · (1 − discount) · factor (accelerators of a node, volume discount, list prices since)
            cost     = round(S·(f + n)) − round(S·f)
            residual = round(cost · share), or of what servers of that age fetch, at most cost
            resale   = round((K + L)·n·share that used servers of its age fetch), as is the value on the last day
        """
        rows = [
            [*map(self._cohort_cells(row).get, _COHORT_COLUMNS)] for row in range(self.assets.count)
        ]
        return Page(headings=_COHORT_COLUMNS, rows=rows, note=_FOLLOWS)

    def _cohort_cells(self, row: int) -> dict[str, Cell]:
        """Return a cohort's cells by column, as formulas where they move with an input."""
        cohort = self.result.cohorts[row]
        assets = self.assets
        at = {name: self._cohort(row, name) for name in _COHORT_COLUMNS}
        index = cohort.cluster
        paid = assets.acquired_months[row]
        retired = assets.retired_months[row]
        curve, (life, share) = (
            self.capital.resale[index],
            self.capital.books_of(index, cohort.component),
        )
        listed, listed_usd = self._discounted(index)
        end_usd = owned_value_cents(self.plan, self.result.cohorts)[row, -1] / 100
        node = "(" + "+".join(at[part] for part in _PART_COLUMNS) + ")"
        servers = f"({at['accelerators_usd']}+{at['host_usd']})*{at['nodes']}"
        before = at["nodes_before_it"]
        after = f"({at['nodes_before_it']}+{at['nodes']})"
        share_left = share
        residual = f"{at['cost_usd']}*{at['residual_fraction']}"
        if share is None:
            share_left = float(curve.fraction(life))
            residual = f"MIN({servers}*{at['residual_fraction']},{at['cost_usd']})"
        has_left = self._follows(index) and self._retired_in(row)
        left = f"{at['cost_usd']}-{self._written_off(row, at['retired_month'])}" if has_left else ""

        def priced(figure: float, formula: str) -> Cell:
            return Cell(figure, formula if listed else "")

        days = {
            "paid": cohort.bought_h,
            "in_service": cohort.in_service_h,
            "retired": cohort.retired_h,
        }
        parts = (
            books.split_cents(
                cents(assets.cost_usd)[row], shares(parts_usd(self.result.cohorts))[row]
            )
            / 100
        )
        upto = "0"
        capex = {}
        for account, part, figure in zip(CAPEX_ACCOUNTS, _PART_COLUMNS, parts, strict=True):
            below = upto
            upto = f"{upto}+{at[part]}"
            edges = (f"ROUND({at['cost_usd']}*({edge})/{node},2)" for edge in (upto, below))
            capex[f"{account}_usd"] = priced(figure, "-".join(edges))
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
            "in_service_month": Cell(min(assets.basis_months[row], _NEVER_MONTHS)),
            "retired_month": Cell(min(retired, _NEVER_MONTHS)),
            "price_factor": Cell(cohort.prices_usd[0] / listed_usd),
            **{
                part: Cell(price)
                for part, price in zip(_PART_COLUMNS, cohort.prices_usd, strict=True)
            },
            "accelerators_usd": priced(cohort.prices_usd[0], f"{listed}*{at['price_factor']}"),
            "cost_usd": priced(
                assets.cost_usd[row], f"ROUND({node}*{after},2)-ROUND({node}*{before},2)"
            ),
            **capex,
            "book_life_months": Cell(assets.life_months[row], self._input("life", index)),
            "residual_fraction": Cell(share_left, self._input("residual", index)),
            "residual_usd": Cell(
                assets.residual_usd[row], f"ROUND({residual},2)" if self._follows(index) else ""
            ),
            "resale_fraction": Cell(
                curve.fraction(retired - paid) if np.isfinite(retired) else 0.0
            ),
            "resale_usd": priced(
                cents(assets.proceeds_usd)[row] / 100, f"ROUND({servers}*{at['resale_fraction']},2)"
            ),
            "last_day_fraction": Cell(curve.fraction(self.edges[-1] - paid) if end_usd else 0.0),
            "residual_value_usd": priced(end_usd, f"ROUND({servers}*{at['last_day_fraction']},2)"),
            "book_value_when_retired_usd": Cell(
                self.schedule.disposed_book_cents[row].sum() / 100, left
            ),
        }

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
        tax = property_tax_usd(self.schedule, yearly)
        return [
            (Account.COST_OF_CAPITAL, "Charge for capital to date, USD", charge),
            *([(Account.PROPERTY_TAX, "Property tax to date, USD", tax)] if yearly else []),
        ]

    def _book(self, block: int, row: int, edge: int, last_row: int | None = None) -> str:
        """Return where Depreciation has a cohort's figure until a month's edge, or those down to another cohort."""
        first = _FIRST + 1 + block * self.assets.count
        return _area(
            DEPRECIATION, first + row, 2 + edge, None if last_row is None else first + last_row
        )

    def depreciation_page(self) -> Page:
        """Return by cohort what is written off, charged for capital and paid in property tax, to each month's end.

        A month's charge is B·((1 + r)^(h/12) − 1), property tax B·t·h/12: B is cost less what is written off until the
        month's start, h the part of the month in which the cohort is on the books.
        """
        until = [_area(DEPRECIATION, _FIRST, 2 + edge) for edge in range(self.months + 1)]
        rows: list[list[object]] = [["Month coordinate", "", *self.edges.tolist()]]
        is_opening = self.assets.acquired_months < self.edges[0]
        before = np.where(
            is_opening, cents(self.assets.cost_usd) - self.schedule.opening_book_cents, 0
        )
        written_off = (
            np.cumsum(np.column_stack((before, self.schedule.depreciation_cents)), axis=1) / 100
        )
        for row, cohort in enumerate(self.result.cohorts):
            formulas = [
                self._written_off(row, at) if self._follows(cohort.cluster) else "" for at in until
            ]
            cells = [
                Cell(*figure, "usd")
                for figure in zip(written_off[row].tolist(), formulas, strict=True)
            ]
            rows.append([cohort.name, "Written off to date, USD", *cells])
        monthly_tax = self.capital.property_tax_fraction_per_year / MONTHS_PER_YEAR
        for block, (account, said, charged) in enumerate(self._charges(), start=1):
            for row, cohort in enumerate(self.result.cohorts):
                leaves, paid, price = (
                    self._cohort(row, name) for name in ("retired_month", "paid_month", "cost_usd")
                )
                cells = [Cell(0.0, "", "usd")]
                for month, figure in enumerate(np.cumsum(charged[row]).tolist()):
                    held = f"MAX(0,MIN({until[month + 1]},{leaves})-MAX({until[month]},{paid}))"
                    is_tax = account is Account.PROPERTY_TAX
                    charge = (
                        f"{held}*{monthly_tax!r}" if is_tax else f"((1+{self.rate})^({held}/12)-1)"
                    )
                    book = f"({price}-{self._book(0, row, month)})"
                    cells.append(
                        Cell(figure, f"{self._book(block, row, month)}+{book}*{charge}", "usd")
                    )
                rows.append([cohort.name, said, *cells])
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
        for index, rows in ((index, rows) for index, rows in enumerate(self.cohorts) if rows):
            for block, (account, posted) in enumerate(blocks):
                # Each cohort is rounded on its own running total, as it was posted.
                ranges = (
                    self._book(block, rows[0], edge, rows[-1]) for edge in range(self.months + 1)
                )
                ends = [f"SUMPRODUCT(ROUND({cells},2))" for cells in ranges]
                formulas = {
                    month: f"{ends[month + 1]}-{ends[month]}" for month in range(self.months)
                }
                yield MoneyLine(account, index, posted[rows].sum(axis=0), formulas)
            for row in rows if self._follows(index) else ():
                for month in self._retired_in(row):
                    lost = f"{self._cohort(row, 'book_value_when_retired_usd')}-{self._cohort(row, 'resale_usd')}"
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
            table = amounts[:, None] if amounts.ndim == 1 else amounts
            for place in np.flatnonzero(table.any(axis=0)).tolist():
                index = -1 if amounts.ndim == 1 else place
                parts = self._parts(account, index, table[:, place], paid_for)
                if not any(price.formula for _, price, _ in parts):
                    continue
                first = _FIRST + len(self.quantities)
                last = first + len(parts) - 1
                named = (self.names[index], str(account))
                self.quantities += [
                    (*named, said, price, *units.tolist()) for said, price, units in parts
                ]
                prices = _area(QUANTITIES, first, 3, last)
                ranges = (_area(QUANTITIES, first, 4 + month, last) for month in range(self.months))
                ends = [f"ROUND(SUMPRODUCT({prices},{cells}),2)" for cells in ranges]
                formulas = {
                    month: f"{ends[month]}-{ends[month - 1]}" for month in range(1, self.months)
                }
                yield MoneyLine(
                    account, index, books.series_cents(table[:, place]), {0: ends[0], **formulas}
                )

    def _parts(
        self, account: Account, index: int, amounts: Floats, paid_for: str
    ) -> list[PricedAmount]:
        """Return a posting as prices times quantities, amounts of shape (months,); those without a cell do not move."""

        def priced(name: str, cluster: int, paid: Floats) -> PricedAmount:
            if not (unit := self._input(name, cluster)):
                return "as simulated", Cell(1.0, "", "unit_usd"), np.cumsum(paid)
            label, *_, unit_usd = self.inputs[name, cluster]
            unit, unit_usd = self._discounted(cluster) if name == "price" else (unit, unit_usd)
            return label, Cell(unit_usd, unit, "unit_usd"), np.cumsum(paid) / unit_usd

        money, cohorts, months, upkeep = (
            self.plan.money,
            self.result.cohorts,
            self.plan.months,
            self.plan.money.upkeep,
        )
        match account:
            case Account.MAINTENANCE | Account.INSURANCE:
                # A yearly share of what machines in service cost: one part a cohort, cost times years in service.
                if ("price", index) not in self.inputs:
                    return []
                is_upkeep = account is Account.MAINTENANCE
                yearly = (
                    upkeep.operations_fraction_per_year
                    if is_upkeep
                    else upkeep.insurance_fraction_per_year
                )
                serving = (
                    nodes_in_service(self.plan, cohorts)
                    / np.array([cohort.nodes for cohort in cohorts])[:, None]
                )
                years = np.cumsum(serving * months.month_fractions / MONTHS_PER_YEAR, axis=1)
                parts = []
                for row in self.cohorts[index]:
                    unit_usd = float(self.assets.cost_usd[row]) * yearly
                    price = Cell(
                        unit_usd, f"{self._cohort(row, 'cost_usd')}*{yearly!r}", "unit_usd"
                    )
                    parts.append((f"{cohorts[row].name}: share of cost a year", price, years[row]))
                return parts
            case Account.RENT | Account.EXIT_FEES:
                return [priced("rent", index, amounts)]
            case Account.SPARES:
                return [priced("price", index, amounts)]
            case Account.RMA:  # freight, and the part itself
                bare = replace(upkeep, replacement_usd=np.zeros_like(upkeep.replacement_usd))
                plan = replace(self.plan, money=replace(money, upkeep=bare))
                freight = (rma_usd(plan, self.result.run) * plan.on_site)[:, index]
                return [
                    priced("freight", index, freight),
                    priced("price", index, amounts - freight),
                ]
            case Account.REVENUE:
                # By the price it moves with: that of fresh tokens, where cached ones have none of their own.
                served = (
                    self.result.rented.requests
                    if index < 0
                    else self.result.monthly.served_requests[:, index, :]
                )
                earned = (
                    served[:, :, None]
                    * self.plan.request_tokens
                    * np.asarray(money.market.token_price)
                    / MILLION
                )
                revenue: dict[tuple[str, int], Floats] = {}
                for place in np.ndindex(earned.shape[1:]):
                    name = TOKEN_KINDS[place[1]], place[0]
                    moved = (
                        name if name in self.inputs or name[0] == "output" else ("input", place[0])
                    )
                    revenue[moved] = revenue.get(moved, np.zeros(self.months)) - earned[:, *place]
                return [priced(*moved, paid) for moved, paid in revenue.items() if paid.any()]
            case _:
                return [priced(paid_for, -1, amounts)]

    def _dated_lines(self) -> Iterator[MoneyLine]:
        """Yield what counts on a day of its own, one line for each row of the ledger."""
        ledger = self.result.ledger
        for row, day in zip(*(column.tolist() for column in dated_rows(self.result)), strict=True):
            account = books.ACCOUNT_ORDER[ledger.account_code[row]]
            month = int(ledger.month_index[row])
            index = int(ledger.cluster_index[row])
            place = int(ledger.cohort_index[row])
            if account not in _ACCOUNTS:
                continue
            amounts = np.where(np.arange(self.months) == month, ledger.amount_cents[row], 0)
            sign = "" if account in CAPEX_ACCOUNTS else "-"
            column = f"{account}_usd"
            follows = column in _COHORT_COLUMNS and place >= 0 and ("price", index) in self.inputs
            formulas = {month: sign + self._cohort(place, column)} if follows else {}
            name = self.result.cohorts[place].name if place >= 0 else ""
            yield MoneyLine(account, index, amounts, formulas, name, day)

    def lines_page(self) -> Page:
        """Return every dollar by month; the first row is the discount factor of what runs through a month."""
        width = len(_LINE_COLUMNS)
        offsets = zip(self.factors.tolist(), self.offsets.tolist(), strict=True)
        factors = [
            Cell(factor, f"(1+{self.rate})^(-{offset!r}/12)", "unit_usd")
            for factor, offset in offsets
        ]
        rows: list[list[object]] = [["Discount factor", *[None] * (width - 1), *factors]]
        factor_row = _area(LINES, _FIRST, width, None, width + self.months - 1)
        for place, (line, usd) in enumerate(zip(self.lines, self.usd, strict=True)):
            row = _FIRST + 1 + place
            account = line.account
            day = line.day_months
            by_month = _area(LINES, row, width, None, width + self.months - 1)
            discounted = f"{_area(LINES, row, width - 2)}*(1+{self.rate})^(-{day!r}/12)"
            discounted = f"SUMPRODUCT({by_month},{factor_row})" if day is None else discounted
            named = (self.names[line.cluster], line.cohort, str(account), str(account.category))
            views = (Cell(int(counts(account)), "", "count") for counts in _VIEWS.values())
            sums = (
                Cell(float(usd.sum()), f"SUM({by_month})"),
                Cell(self.discounted_usd[place], discounted),
            )
            months = (
                Cell(amount, line.formulas.get(month, ""), "usd")
                if amount or month in line.formulas
                else None
                for month, amount in enumerate(usd.tolist())
            )
            rows.append([*named, *views, day, *sums, *months])
        note = f"{_FOLLOWS} Costs are positive, income is negative; a view counts the lines with a 1 in its column."
        return Page(headings=(*_LINE_COLUMNS, *self.labels), rows=rows, note=note, fixed_columns=3)

    # -- Sums over the lines -----------------------------------------------------------------------------------------

    def _sum(self, column: int | str, **where: str | int) -> Cell:
        """Return the sum of a column of the lines, a month's or one by name, over the rows whose columns fit."""
        last = _FIRST + max(len(self.lines), 1)

        def cells_of(name: int | str) -> str:
            place = (
                _LINE_COLUMNS.index(name) if isinstance(name, str) else len(_LINE_COLUMNS) + name
            )
            return _area(LINES, _FIRST + 1, place, last)

        wanted = {name: f'"{fit}"' if isinstance(fit, str) else fit for name, fit in where.items()}
        tests = ",".join(f"{cells_of(name)},{fit}" for name, fit in wanted.items())
        fits = np.logical_and.reduce([self.facts[name] == fit for name, fit in where.items()])
        totals = {"total_usd": self.usd.sum(axis=1), "discounted_usd": self.discounted_usd}
        figures = self.usd[:, column] if isinstance(column, int) else totals[column]
        return Cell(float(figures[fits].sum()), f"SUMIFS({cells_of(column)},{tests})", "usd")

    def by_month(self) -> Page:
        """Return what each month of the fleet comes to, and every account."""
        rows = []
        cash = 0.0
        column = _BY_MONTH_COLUMNS.index("cash_usd")
        for month, label in enumerate(self.labels):
            views = {view: self._sum(month, **{view: 1}) for view in _VIEWS}
            cash += views["cash"].value
            to_date = Cell(cash, f"SUM({_area(BY_MONTH, _FIRST, column, _FIRST + month)})")
            factor = Cell(
                self.factors[month], _area(LINES, _FIRST, len(_LINE_COLUMNS) + month), "unit_usd"
            )
            accounts = (self._sum(month, account=str(account)) for account in self.shown)
            rows.append((label, factor, *views.values(), to_date, *accounts))
        spent = tuple(f"{account}_usd" for account in self.shown if _VIEWS["cost"](account)) or (
            "cost_usd",
        )
        charts = (
            SheetChart(title="Monthly cost by account, USD", columns=spent, kind="stacked"),
            SheetChart(title="Cash paid to date, USD", columns=("cash_to_date_usd",)),
        )
        headings = (*_BY_MONTH_COLUMNS, *(f"{account}_usd" for account in self.shown))
        return Page(headings=headings, rows=rows, note=self.note, charts=charts)

    def timeline(self, fleet: Mapping[str, Any], clusters: Mapping[str, Any]) -> Page:
        """Return the timeline, the fleet first, then cluster by cluster; its money follows, all else is the run's."""
        rows: list[list[object]] = []
        columns = {name: column for column, name in enumerate(_TIMELINE_COLUMNS)}
        for cluster in (FLEET, *self.clusters):
            where = {} if cluster == FLEET else {"cluster": cluster}
            table, step, place = (
                (clusters, len(self.clusters), self.clusters.index(cluster))
                if where
                else (fleet, 1, 0)
            )
            first = _FIRST + len(rows)
            for month in range(self.months):
                row = first + month
                at = {name: _area(TIMELINE, row, column) for name, column in columns.items()}
                to_date = {
                    name: f"SUM({_area(TIMELINE, first, column, row)})"
                    for name, column in columns.items()
                }
                formulas = {"cost_usd": self._sum(month, **where, cost=1).formula}
                for kind in ("tokens", "output_tokens"):
                    name = f"cost_per_million_{kind}_usd"
                    sold = f"served_{kind}"
                    formulas[name] = _per_million(at["cost_usd"], at[sold])
                    formulas[f"cumulative_{name}"] = _per_million(
                        to_date["cost_usd"], to_date[sold]
                    )
                figures = {name: column[month * step + place] for name, column in table.items()} | {
                    "cluster": cluster
                }
                rows.append(
                    [Cell(figures.get(name), formulas.get(name, "")) for name in _TIMELINE_COLUMNS]
                )
        # A chart would draw months before the first token, which have no cost per token, as zero.
        begins = int(np.argmax(series_of(self.result).output_tokens > 0))
        charts = tuple(
            SheetChart(
                title=title, columns=shown, first=begins if "Cost" in title else 0, last=self.months
            )
            for title, shown in _TIMELINE_CHARTS.items()
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
            where = {} if cluster == FLEET else {"cluster": cluster}
            at = {
                name: _area(BY_CLUSTER, _FIRST + place, column)
                for column, name in enumerate(_BY_CLUSTER_COLUMNS)
            }
            value = self._sum("discounted_usd", **where, net_cost_of_ownership=1)
            cells = {
                "cluster": Cell(cluster),
                **{f"{view}_usd": self._sum("total_usd", **where, **{view: 1}) for view in _VIEWS},
                "present_cost_usd": self._sum("discounted_usd", **where, cost_of_ownership=1),
                "npv_usd": Cell(-value.value, f"-{value.formula}"),
            }
            for kind in ("tokens", "output_tokens") if cluster != SITE else ():
                served = getattr(sums, f"served_{kind}")[:, -1 if cluster == FLEET else place]
                first = _FIRST + (FLEET, *self.clusters).index(cluster) * self.months
                column = _TIMELINE_COLUMNS.index(f"served_{kind}")
                name = f"cost_per_million_{kind}_usd"
                months = _area(TIMELINE, first, column, first + self.months - 1)
                cells[f"served_{kind}"] = Cell(served.sum(), f"SUM({months})")
                for said, paid, sold, sold_at in (
                    ("", "cost_usd", served.sum(), f"SUM({months})"),
                    (
                        "levelised_",
                        "present_cost_usd",
                        served @ self.factors,
                        f"SUMPRODUCT({months},{factors})",
                    ),
                ):
                    unit_cost = per_million_tokens(np.array(cells[paid].value), sold)
                    cells[said + name] = Cell(float(unit_cost), _per_million(at[paid], sold_at))
            totals = [
                self._sum("total_usd", **where, account=str(account)) for account in self.shown
            ]
            rows.append([*(cells.get(name) for name in _BY_CLUSTER_COLUMNS), *totals])
        headings = (*_BY_CLUSTER_COLUMNS, *(f"{account}_usd" for account in self.shown))
        return Page(headings=headings, rows=rows, note=self.note)

    def summary(self) -> Page:
        """Return the headline measures: now, as simulated, and the change."""
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
                measures[label] = Cell(
                    1 + spent / revenue.value if revenue.value else None, share, "percent"
                )
        rows = []
        for row, (label, now) in enumerate(measures.items(), start=_FIRST):
            at = _area(SUMMARY, row, 1)
            simulated = _area(SUMMARY, row, 2)
            change = Cell(0.0, f'IF({at}="","",{at}-{simulated})', now.style)
            rows.append((label, now, Cell(now.value, "", now.style), change))
        note = f"{self.result.scenario.name}. {self.note} What was simulated stands beside each figure."
        return Page(headings=("measure", "now", "as_simulated", "change"), rows=rows, note=note)
