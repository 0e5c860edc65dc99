"""The summary sheet: the three input cells, the headline measures, the checks and the charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.finance.accounts import NOT_COST_ACCOUNTS, Account, View
from planner.finance.cents import usd
from planner.finance.unit_costs import per_million_tokens
from planner.reporting.workbook_sheets import FIRST_ROW, ledger_range
from planner.reporting.workbook_workings import tax_range

if TYPE_CHECKING:
    from planner.reporting.workbook import Figures, WorkbookContent
    from planner.reporting.workbook_sheets import Sheets
    from planner.reporting.workbook_statements import Statement

INPUT_ROW = 4
MEASURE_ROW = 10
"""Rows of the first input and the first measure, counting from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the summary."""

    label: str
    formula: str | None
    """None where the sheets do not follow it."""
    simulated: float | None
    style: str


def measures_of(content: WorkbookContent, figures: Figures, accrual: Statement, economic: Statement) -> list[Measure]:
    """Return the headline measures, each with its formula and its value as simulated."""
    months = content.grid.period_count
    cost = accrual.range_of("cost", months)
    accrued = float(accrual.series["cost"].sum())
    measures = [
        Measure(
            label="Total cost of ownership, USD",
            formula=f"=SUM({economic.range_of('cost', months)})",
            simulated=float(economic.series["cost"].sum()),
            style="usd_bold",
        ),
        Measure(
            label="Net present value, USD (gains positive)",
            formula=f"=-SUM({economic.range_of('discounted_net', months)})",
            simulated=-float(economic.series["discounted_net"].sum()),
            style="usd_bold",
        ),
        Measure(label="Accrued cost, USD", formula=f"=SUM({cost})", simulated=accrued, style="usd_bold"),
    ]
    for name, tokens in (("output", content.output_tokens), ("total", content.total_tokens)):
        column = accrual.range_of(f"{name}_tokens", months)
        served = float(tokens.sum())
        measures += [
            Measure(
                label=f"Cost per million {name} tokens, USD",
                formula=f'=IF(SUM({column})=0,"",SUM({cost})/SUM({column})*1000000)',
                simulated=float(per_million_tokens(accrued, served)) if served else None,
                style="unit_usd",
            ),
            Measure(
                label=f"Levelised cost per million {name} tokens, USD",
                formula=None if "levelised" in figures.fixed else _levelised_formula(content, economic, column),
                simulated=content.levelised_usd_per_million[name],
                style="unit_usd",
            ),
        ]
    return measures


def _levelised_formula(content: WorkbookContent, economic: Statement, tokens: str) -> str:
    """Return the price at which NPV is zero: cost and the tax there is without sales, over tokens after tax.

    Tax of the offset kind is the rate times income, so selling at p adds rate·p·tokens to it and p has a closed form.
    """
    months = content.grid.period_count
    factors = economic.range_of("discount_factor", months)
    others = [account for account in (Account.REVENUE, Account.TAX_CASH) if str(account) in economic.columns]
    terms = [f"SUM({economic.range_of('discounted_net', months)})"]
    terms += [f"-SUMPRODUCT({economic.range_of(str(account), months)},{factors})" for account in others]
    rate = 0.0 if content.tax is None else content.tax.rate_fraction
    if content.tax is not None:
        # The tax on the end value stays in: it is part of what the tokens must earn.
        terms.append(f"+{rate!r}*SUMPRODUCT({tax_range('income_before_sales', months)},{factors})")
    earned = f"SUMPRODUCT({tokens},{factors})*(1-{rate!r})"
    return f'=IF(SUM({tokens})=0,"",({"".join(terms)})/({earned})*1000000)'


def write_summary(
    sheets: Sheets, content: WorkbookContent, figures: Figures, statements: tuple[Statement, Statement]
) -> None:
    """Write the summary sheet."""
    sheet, formats = sheets.summary, sheets.formats
    accrual, economic = statements
    sheet.write_string(0, 0, content.title, formats["title"])
    note = (
        "Change a yellow cell: every sheet follows. The column beside it keeps what was simulated. An input that is not"
    )
    note += " yellow does not follow in this run."
    sheet.write_string(1, 0, note, formats["note"])
    sheet.write_row(INPUT_ROW - 1, 0, ("input", "now", "as simulated"), formats["heading"])
    _write_inputs(sheets, content, figures)
    measures = measures_of(content, figures, accrual, economic)
    sheet.write_row(MEASURE_ROW - 1, 0, ("measure", "now", "as simulated", "change"), formats["heading"])
    for row, measure in enumerate(measures, start=MEASURE_ROW):
        style = formats[measure.style]
        value: float | str = "" if measure.simulated is None else measure.simulated
        sheet.write_string(row, 0, measure.label)
        if measure.simulated is not None:
            sheet.write_number(row, 2, measure.simulated, style)
        if measure.formula is None:
            sheet.write_string(row, 3, figures.fixed["levelised"], formats["note"])
            continue
        sheet.write_formula(row, 1, measure.formula, style, value)
        if measure.simulated is not None:
            sheet.write_formula(row, 3, f"=B{row + 1}-C{row + 1}", style, 0.0)
    _write_checks(sheets, content, economic, MEASURE_ROW + len(measures) + 1)
    sheet.set_column(0, 0, 52)
    sheet.set_column(1, 3, 22)
    _add_charts(sheets, content, accrual, economic)


def _write_inputs(sheets: Sheets, content: WorkbookContent, figures: Figures) -> None:
    """Write the three inputs and what was simulated; one that the sheets do not follow is plain, with the reason."""
    sheet, formats = sheets.summary, sheets.formats
    rows = (
        ("Discount rate per year", "discount", content.discount_rate_per_year, "percent"),
        ("Electricity price, USD/kWh", "electricity", content.electricity_usd_per_kwh, "number"),
        ("Residual value of the books, share of cost", "residual", figures.residual_fraction, "percent"),
    )
    for row, (label, name, value, style) in enumerate(rows, start=INPUT_ROW):
        sheet.write_string(row, 0, label)
        plain = formats["percent" if style == "percent" else "plain"]
        if value is not None:
            sheet.write_number(row, 1, value, plain if name in figures.fixed else formats[f"{style}_in"])
            sheet.write_number(row, 2, value, plain)
        sheet.write_string(row, 3, figures.fixed.get(name, ""), formats["note"])


def _write_checks(sheets: Sheets, content: WorkbookContent, economic: Statement, row: int) -> None:
    """Write the checks: the ledger's total, the statements' against it, and whether the inputs are as simulated."""
    sheet, formats = sheets.summary, sheets.formats
    months = content.grid.period_count
    total = float(usd(content.ledger.amount_cents.sum()))
    cash = float(usd(content.ledger.monthly_cents(View.CASH).sum()))
    sheet.write_row(row, 0, ("check", "now", "as simulated"), formats["heading"])
    sheet.write_string(row + 1, 0, "Sum of the ledger sheet, all accounts, USD")
    sheet.write_formula(row + 1, 1, f"=SUM({ledger_range(content, 'E')})", formats["usd"], total)
    sheet.write_number(row + 1, 2, total, formats["usd"])
    sheet.write_string(row + 2, 0, "Sum of the cash flow, USD")
    sheet.write_formula(row + 2, 1, f"=SUM({economic.range_of('cash', months)})", formats["usd"], cash)
    sheet.write_number(row + 2, 2, cash, formats["usd"])


def _add_charts(sheets: Sheets, content: WorkbookContent, accrual: Statement, economic: Statement) -> None:
    """Add the native charts: cost by account, cost per token, cumulative cash."""
    months = content.grid.period_count
    last = FIRST_ROW + months - 1

    def series(statement: Statement, name: str, first: int = FIRST_ROW) -> dict[str, object]:
        place, column = statement.sheet_name, statement.columns[name]
        return {
            "name": [place, 0, column],
            "categories": [place, first, 0, last, 0],
            "values": [place, first, column, last, column],
        }

    stacked = sheets.book.add_chart({"type": "column", "subtype": "stacked"})
    for account in Account:
        shown = str(account) in accrual.columns and account not in NOT_COST_ACCOUNTS
        if shown and np.any(accrual.series[str(account)]):
            stacked.add_series(series(accrual, str(account)))
    if not stacked.series:  # nothing was spent; a chart without a series cannot be written
        stacked.add_series(series(accrual, "cost"))
    per_token = sheets.book.add_chart({"type": "line"})
    # Months before the first token have no cost per token, and a chart would draw them as zero.
    begin = FIRST_ROW + int(np.argmax(content.output_tokens > 0))
    per_token.add_series(series(accrual, "cumulative_usd_per_million_output", begin))
    cash = sheets.book.add_chart({"type": "line"})
    cash.add_series(series(economic, "cumulative_cash"))
    titles = ("Monthly cost by account, USD", "Cumulative cost per million output tokens, USD", "Cumulative cash, USD")
    for place, chart, title in zip(("F2", "F22", "F42"), (stacked, per_token, cash), titles, strict=True):
        chart.set_title({"name": title, "name_font": {"size": 11}})
        chart.set_x_axis({"text_axis": True, "num_format": "yyyy-mm", "label_position": "low"})
        chart.set_legend({"position": "bottom", "none": chart is not stacked})
        chart.set_size({"width": 760, "height": 380})
        sheets.summary.insert_chart(place, chart)
