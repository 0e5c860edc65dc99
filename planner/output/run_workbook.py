"""``workbook.xlsx`` of a run: the plan as finance works with it, with live formulas.

The yellow cells of the assumptions move every sheet. Each account of a month is what the ledger holds, and what the
inputs add to it: purchases, resale and end value by the cohorts' formulas, depreciation and capital charge by those of
the depreciation sheet, and all that is a price times a quantity by the workings. Statements and headline measures read
the accounts. Every formula is stored with the value that the simulation found, so that a reader that does not calculate
shows the right figures. With the inputs as simulated, every cell equals the ledger to the cent; with others, what a new
run would find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.finance.accounts import (
    COST_OF_SERVING_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    OPERATING_EXPENSE_ACCOUNTS,
    Account,
    View,
)
from planner.finance.cents import usd
from planner.finance.depreciation import capital_charge_usd, depreciate, make_cohorts, property_tax_usd
from planner.finance.ledger import Dimension
from planner.finance.present_value import running_months
from planner.finance.tax import LossRule
from planner.output.workbook import (
    Page,
    SheetChart,
    Sheets,
    draw_charts,
    finish_chart,
    in_usd,
    open_book,
    sheet_of,
    write_page,
)
from planner.output.workbook_accounts import MEASURES, ledger_range, write_accounts, write_ledger
from planner.output.workbook_cohorts import cohort_figures, unfollowed_prices, write_cohorts
from planner.output.workbook_content import ACCOUNTS_SHEET, FIRST_MONTH_ROW, Content, Layout
from planner.output.workbook_depreciation import write_depreciation
from planner.output.workbook_inputs import SHEET as ASSUMPTIONS
from planner.output.workbook_inputs import inputs_of, write_assumptions
from planner.output.workbook_statements import write_statements
from planner.output.workbook_tax import tax_range, write_tax
from planner.output.workbook_workings import series_of_inputs, write_workings
from planner.run.accounting import running_usd
from planner.run.cohorts import assets_of
from planner.run.measure_names import FLEET
from planner.run.measures import measures, series_of
from planner.run.ownership import dated_rows
from planner.run.result import RunResult

MOST_EVENTS = 5_000
"""Events listed in the workbook; the rest is in events.csv, and the sheet says so."""
SHEET_NAMES = (
    "Summary", ASSUMPTIONS, "Statements", "Cohorts", "Depreciation", "Timeline", "Accounts", "Workings", "Tax",
    "By cluster", "Ledger", "Events",
)  # fmt: skip


def workbook_content(result: RunResult, tables: Mapping[str, Mapping[str, Any]]) -> Content:
    """Return what the workbook of a run shows, given its tables by name."""
    plan, capital, series = result.plan, result.plan.money.capital, series_of(result)
    assets = assets_of(plan, result.cohorts) if result.cohorts else make_cohorts([], [])
    schedule = depreciate(assets, plan.months.edge_coordinates)
    posted = running_usd(plan, result.run, result.monthly, result.cohorts, result.rented)
    figures = cohort_figures(result, assets)
    inputs = inputs_of(result, posted, unfollowed_prices(result, figures), assets)
    rows, days = dated_rows(result)
    timeline = by_cluster_first(tables["timeline_monthly"])
    return Content(
        result=result,
        inputs=inputs,
        assets=assets,
        cohorts=figures,
        schedule=schedule,
        charge_usd=capital_charge_usd(schedule, capital.discount_rate_per_year),
        property_usd=property_tax_usd(schedule, capital.property_tax_fraction_per_year),
        table_cents=result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT),
        series=series_of_inputs(result, posted, inputs),
        measures=measures(result),
        output_tokens=series.output_tokens,
        total_tokens=series.tokens,
        running_months=running_months(series.economic.edge_months, series.economic.timing),
        dated_rows=rows,
        dated_months=days,
        tables={
            ASSUMPTIONS: sheet_of(tables["assumptions"]),
            "Timeline": sheet_of(timeline),
            "By cluster": sheet_of(in_usd(tables["statement_yearly"])),
            "Events": sheet_of(tables["events"], MOST_EVENTS),
        },
    )


def by_cluster_first(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of months and clusters with the fleet first, then cluster by cluster."""
    names = list(dict.fromkeys(table["cluster"]))
    ranks = [(name != FLEET, names.index(name)) for name in table["cluster"]]
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return {name: [column[place] for place in order] for name, column in table.items()}


def write_workbook(content: Content, more: Mapping[str, Page] | None = None) -> bytes:
    """Return the workbook as bytes, with further sheets after all others; the same content gives the same bytes."""
    return begin_workbook(content)(more or {})


def begin_workbook(content: Content) -> Callable[[Mapping[str, Page]], bytes]:
    """Write the sheets of a run; the function that is handed out adds further ones, and returns the workbook."""
    target, book = open_book(content.result.scenario.name, content.result.plan.start)
    sheets = Sheets.of(book)
    for name in SHEET_NAMES:  # in this order, whichever is written first
        _ = sheets[name]
    write_ledger(sheets, content)
    write_cohorts(sheets, content)
    write_depreciation(sheets, content)
    write_workings(sheets, content)
    layout = write_accounts(sheets, content)
    write_tax(sheets, content, layout)
    write_summary(sheets, content, layout, write_statements(sheets, content, layout))
    write_assumptions(sheets, content.inputs, content.tables[ASSUMPTIONS])
    months = content.grid.period_count
    drawn = tuple(
        SheetChart(title=title, columns=columns, last=months)
        for title, columns in (
            ("Tokens a month, fleet", ("demand_tokens", "served_tokens")),
            ("Utilisation and requests in time, fleet", ("utilisation_fraction", "slo_attainment_fraction")),
            ("Cost per million tokens to date, fleet, USD", ("cumulative_cost_per_million_tokens_usd",)),
        )
    )
    timeline = Page(table=content.tables["Timeline"], charts=drawn)
    write_page(sheets, "Timeline", timeline)
    draw_charts(sheets, "Timeline", timeline, ("Summary", 1, 17))
    year = "Statements by fiscal year and cluster, as simulated; they do not follow the yellow cells."
    write_page(sheets, "By cluster", Page(table=content.tables["By cluster"], note=year))
    write_page(sheets, "Events", Page(table=content.tables["Events"]))

    def finish(more: Mapping[str, Page]) -> bytes:
        for name, page in more.items():
            write_page(sheets, name, page)
        book.close()
        return target.getvalue()

    return finish


SHEET = "Summary"
MEASURE_ROW = 4
"""Row of the first measure, counting from zero."""
_SEARCHED = "as simulated: losses carried forward take a search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the summary."""

    label: str
    name: str
    """Of the measure whose value as simulated stands beside it."""
    formula: str | None
    """None where the sheets do not follow it."""
    style: str = "usd_bold"


def measures_of(content: Content, layout: Layout) -> list[Measure]:
    """Return the headline measures, each with its formula."""
    cost, at = f"SUM({layout.range_of('cost')})", layout.range_of
    measures = [
        Measure(label="Total cost of ownership, USD", name="tco_usd", formula=f"=SUM({at('total_cost')})"),
        Measure(label="Net present value, USD (gains positive)", name="npv_usd", formula=f"=-SUM({at('discounted')})"),
        Measure(label="Accrued cost, USD", name="cost_usd", formula=f"={cost}"),
        Measure(label="Cash paid, USD", name="cash_usd", formula=f"=SUM({at('cash')})"),
    ]
    for kind, suffix in (("output", "output_tokens"), ("total", "tokens")):
        tokens = at(f"{kind}_tokens")
        measures += [
            Measure(
                label=f"Cost per million {kind} tokens, USD",
                name=f"cost_per_million_{suffix}_usd",
                formula=f'=IF(SUM({tokens})=0,"",{cost}/SUM({tokens})*1000000)',
                style="unit_usd",
            ),
            Measure(
                label=f"Levelised cost per million {kind} tokens, USD",
                name=f"levelised_cost_per_million_{suffix}_usd",
                formula=_levelised_formula(content, layout, tokens),
                style="unit_usd",
            ),
        ]
    return measures + _margins(layout)


def _margins(layout: Layout) -> list[Measure]:
    """Return revenue and what share of it is left, where something is sold."""
    if str(Account.REVENUE) not in layout.columns:
        return []
    revenue = f"-SUM({layout.range_of(str(Account.REVENUE))})"

    def total(accounts: tuple[Account, ...]) -> str:
        shown = [f"SUM({layout.range_of(str(account))})" for account in accounts if str(account) in layout.columns]
        return "+".join(shown) or "0"

    serving = total(COST_OF_SERVING_ACCOUNTS)
    running = f"{serving}+{total(OPERATING_EXPENSE_ACCOUNTS)}"
    margins = [Measure(label="Revenue, USD", name="revenue_usd", formula=f"={revenue}")]
    for label, name, spent in (("Gross margin", "gross", serving), ("Operating margin", "operating", running)):
        formula = f'=IF({revenue}=0,"",1-({spent})/({revenue}))'
        margins.append(Measure(label=label, name=f"{name}_margin_fraction", formula=formula, style="percent"))
    return margins


def _levelised_formula(content: Content, layout: Layout, tokens: str) -> str | None:
    """Return the price at which NPV is zero: cost and the tax there is without sales, over tokens after tax.

    Tax of the offset kind is the rate times income, so selling at p adds rate·p·tokens to it and p has a closed form.
    """
    rules, months = content.result.plan.money.market.tax, content.grid.period_count
    if rules is not None and rules.losses is LossRule.CARRY_FORWARD:
        return None
    factors = layout.range_of("factor")
    others = [account for account in (Account.REVENUE, Account.TAX_CASH) if str(account) in layout.columns]
    terms = [f"SUM({layout.range_of('discounted')})"]
    terms += [f"-SUMPRODUCT({layout.range_of(str(account))},{factors})" for account in others]
    rate = 0.0 if rules is None else rules.rate_fraction
    if rules is not None:
        # The tax on the end value stays in: it is part of what the tokens must earn.
        terms.append(f"+{rate!r}*SUMPRODUCT({tax_range('before_sales', months)},{factors})")
    earned = f"SUMPRODUCT({tokens},{factors})*(1-{rate!r})"
    return f'=IF(SUM({tokens})=0,"",({"".join(terms)})/({earned})*1000000)'


def write_summary(sheets: Sheets, content: Content, layout: Layout, check: str) -> None:
    """Write the summary sheet; ``check`` is where the statements hold by how much the balance sheet is off."""
    sheet, formats = sheets[SHEET], sheets.formats
    sheet.write_string(0, 0, content.result.scenario.name, formats["title"])
    note = "Change a yellow cell of the sheet Assumptions: every figure follows. What was simulated stands beside it."
    sheet.write_string(1, 0, note, formats["note"])
    sheet.write_row(MEASURE_ROW - 1, 0, ("Measure", "Now", "As simulated", "Change"), formats["heading"])
    measures = measures_of(content, layout)
    for row, measure in enumerate(measures, start=MEASURE_ROW):
        style, simulated = formats[measure.style], content.measures[measure.name]
        sheet.write_string(row, 0, measure.label)
        if simulated is not None:
            sheet.write_number(row, 2, simulated, style)
        if measure.formula is None:
            sheet.write_string(row, 3, _SEARCHED, formats["note"])
            continue
        sheet.write_formula(row, 1, measure.formula, style, "" if simulated is None else simulated)
        if simulated is not None:
            sheet.write_formula(row, 3, f"=B{row + 1}-C{row + 1}", style, 0.0)
    _write_checks(sheets, content, check, MEASURE_ROW + len(measures) + 1)
    sheet.set_column(0, 0, 52)
    sheet.set_column(1, 3, 22)
    _add_charts(sheets, content, layout)


def _write_checks(sheets: Sheets, content: Content, check: str, row: int) -> None:
    """Write the checks: the ledger's total, and by how much the balance sheet is off, which is nothing."""
    sheet, formats = sheets[SHEET], sheets.formats
    total = float(usd(content.result.ledger.amount_cents.sum()))
    sheet.write_row(row, 0, ("Check", "Now", "As simulated"), formats["heading"])
    sheet.write_string(row + 1, 0, "Sum of the ledger, all accounts, USD")
    sheet.write_formula(row + 1, 1, f"=SUM({ledger_range(content, 'E')})", formats["usd"], total)
    sheet.write_number(row + 1, 2, total, formats["usd"])
    sheet.write_string(row + 2, 0, "Assets less liabilities and equity, all months, USD")
    sheet.write_formula(row + 2, 1, f"=SUMPRODUCT(ABS({check}))", formats["usd"], 0.0)
    sheet.write_number(row + 2, 2, 0.0, formats["usd"])


def _add_charts(sheets: Sheets, content: Content, layout: Layout) -> None:
    """Add the native charts: cost by account, cost per token, cumulative cash."""
    last = FIRST_MONTH_ROW + content.grid.period_count - 1

    def series(name: str, first: int = FIRST_MONTH_ROW) -> dict[str, object]:
        column = layout.columns[name]
        return {
            "name": [ACCOUNTS_SHEET, 0, column],
            "categories": [ACCOUNTS_SHEET, first, 0, last, 0],
            "values": [ACCOUNTS_SHEET, first, column, last, column],
        }

    stacked = sheets.book.add_chart({"type": "column", "subtype": "stacked"})
    for account in Account:
        accrued = View.ACCRUAL in account.views and account not in NOT_COST_ACCOUNTS
        if accrued and np.any(layout.series.get(str(account), 0.0)):
            stacked.add_series(series(str(account)) | {"gap": 30})
    if not stacked.series:  # nothing was spent; a chart without a series cannot be written
        stacked.add_series(series("cost"))
    per_token = sheets.book.add_chart({"type": "line"})
    # Months before the first token have no cost per token, and a chart would draw them as zero.
    per_token.add_series(series("cumulative_unit_cost", FIRST_MONTH_ROW + int(np.argmax(content.output_tokens > 0))))
    cash = sheets.book.add_chart({"type": "line"})
    cash.add_series(series("cumulative_cash"))
    charts = (
        (stacked, "Monthly cost by account, USD", "usd"),
        (per_token, MEASURES["cumulative_unit_cost"], "unit_usd"),
        (cash, MEASURES["cumulative_cash"], "usd"),
    )
    for place, (chart, title, style) in zip(("F2", "F22", "F42"), charts, strict=True):
        sheets[SHEET].insert_chart(
            place, finish_chart(chart, title, legend=chart is stacked, style=style, axis="yyyy-mm")
        )
