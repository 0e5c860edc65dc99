"""``workbook.xlsx`` of a run: the plan as finance works with it, with live formulas.

The yellow cells of the assumptions move every sheet. Each account of a month is what the ledger holds, and what the
inputs add to it: purchases, resale and end value by the cohorts' formulas, depreciation and capital charge by those of
the depreciation sheet, and all that is a price times a quantity by the workings. Statements and headline measures read
the accounts. Every formula is stored with the value that the simulation found, so that a reader that does not calculate
shows the right figures. With the inputs as simulated, every cell equals the ledger to the cent; with others, what a new
run would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.finance.depreciation import capital_charge_usd, depreciate, make_cohorts, property_tax_usd
from planner.finance.ledger import Dimension
from planner.finance.present_value import running_months
from planner.reporting.workbook import (
    Page,
    SheetChart,
    Sheets,
    draw_charts,
    in_usd,
    open_book,
    sheet_of,
    write_page,
)
from planner.reporting.workbook_accounts import write_accounts, write_ledger
from planner.reporting.workbook_cohorts import cohort_figures, unfollowed_prices, write_cohorts
from planner.reporting.workbook_content import Content
from planner.reporting.workbook_depreciation import write_depreciation
from planner.reporting.workbook_inputs import SHEET as ASSUMPTIONS
from planner.reporting.workbook_inputs import inputs_of, write_assumptions
from planner.reporting.workbook_statements import write_statements
from planner.reporting.workbook_summary import write_summary
from planner.reporting.workbook_tax import write_tax
from planner.reporting.workbook_workings import series_of_inputs, write_workings
from planner.results.accounting import running_usd
from planner.results.cohorts import assets_of
from planner.results.measure_names import FLEET
from planner.results.measures import measures, series_of
from planner.results.ownership import dated_rows
from planner.results.result import RunResult

MOST_EVENTS = 5_000
"""Events listed in the workbook; the rest is in events.csv, and the sheet says so."""
SHEET_NAMES = (
    "Summary", ASSUMPTIONS, "Statements", "Cohorts", "Depreciation", "Timeline", "Accounts", "Workings", "Tax",
    "By cluster", "Ledger", "Events",
)  # fmt: skip


def workbook_content(
    result: RunResult, tables: Mapping[str, Mapping[str, Any]], more: Mapping[str, Page] | None = None
) -> Content:
    """Return what the workbook of a run shows, given its tables by name and further sheets."""
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
        more=more or {},
    )


def by_cluster_first(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of months and clusters with the fleet first, then cluster by cluster."""
    names = list(dict.fromkeys(table["cluster"]))
    ranks = [(name != FLEET, names.index(name)) for name in table["cluster"]]
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return {name: [column[place] for place in order] for name, column in table.items()}


def write_workbook(content: Content) -> bytes:
    """Return the workbook as bytes; the same content gives the same bytes."""
    target, book = open_book(content.result.scenario.name, content.result.plan.start)
    with book:
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
        for name, page in content.more.items():
            write_page(sheets, name, page)
    return target.getvalue()
