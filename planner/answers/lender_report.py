"""The sections of a report on who lends and what the books carry: a loan as its lender sees it, book against market."""

from __future__ import annotations

from collections.abc import Mapping

from planner.answers.sections import section
from planner.answers.timelines import Calendar
from planner.output.blocks import Grid, Section, Sentence, Series, TimeChart
from planner.output.folder import Contents
from planner.output.tables import Table
from planner.output.words import NOTHING, dollars, percent

LOAN_LINES = {
    "loan_balance_usd": "owed",
    "orderly_value_usd": "orderly sale",
    "auction_value_usd": "auction",
    "borrowing_base_usd": "borrowing base",
}
"""The lines of the chart of a loan, by the column of each."""
CARRYING_LINES = {"carrying_value_usd": "carrying value", "resale_value_usd": "resale value"}
"""The lines of the chart of book against market."""


def loan_section(contents: Contents) -> Section | None:
    """Return what a loan's lender reads first: value against debt, cover, covenants, and all of it under stress."""
    months = contents.table("loan_monthly")
    stresses = contents.table("loan_stress")
    if not months or not stresses:
        return None
    last_balance = months.numbers("loan_balance_usd")[-1] or 0.0
    final = "Nothing is owed on the last day."
    if last_balance:
        final = (
            f"{dollars(last_balance)} is owed on the last day; the LLCR also counts the months after it, up to the "
            "last payment."
        )
    rows = []
    for stress, *cells in stresses.rows(
        "stress",
        "cover_broken_in",
        "cap_passed_in",
        numbers=(
            "least_cover_ratio",
            "least_loan_life_cover_ratio",
            "highest_loan_to_value_fraction",
            "levered_irr_per_year",
        ),
    ):
        broken, passed, cover, life_cover, loan_to_value, internal_rate = cells
        rows.append(
            (
                stress,
                _times(cover),
                broken or NOTHING,
                _times(life_cover),
                percent(loan_to_value, 0),
                passed or NOTHING,
                percent(internal_rate, 0),
            )
        )
    grid = Grid(
        caption="The loan as planned and under stress; late deliveries are simulated in a run of their own",
        header=(
            "stress",
            "least DSCR",
            "below covenant in",
            "least LLCR",
            "highest LTV",
            "above cap in",
            "levered IRR",
        ),
        rows=rows,
        numeric=(1, 3, 4, 6),
    )
    unused = sum(months.totals("unused_take_or_pay_usd"))
    take = sum(months.totals("take_or_pay_usd"))
    obligations = f"Take-or-pay for space and power comes to {dollars(take)}, of which {dollars(unused)} is unused."
    chart = _lines(
        contents,
        months,
        LOAN_LINES,
        "loan-months",
        "Debt and the security behind it",
        "Balance of the loan, and resale value of the machines, at the end of each month.",
    )
    return section("loan", [Sentence(text=f"{final} {obligations}"), chart, grid])


def carrying_blocks(contents: Contents) -> list[Sentence | TimeChart]:
    """Return where servers are carried above what they would fetch, and both by month; nothing without servers."""
    table = contents.table("carrying_values")
    if not table:
        return []
    first: dict[str, str] = {}
    highest: dict[str, float] = {}
    for month, cluster, above in table.rows("month", "cluster", totals=["above_resale_usd"]):
        if above > 0.0:
            first.setdefault(cluster, month[:7])
            highest[cluster] = max(highest.get(cluster, 0.0), above)
    chart = _lines(
        contents,
        table,
        CARRYING_LINES,
        "carrying-months",
        "Carrying value and resale value of servers",
        "Carrying value and resale value of owned servers at the end of each month.",
    )
    if not first:
        return [
            Sentence(text="In no month is the carrying value of servers above their resale value."),
            chart,
        ]
    words = "; ".join(
        f"{cluster}, first in {month}, by up to {dollars(highest[cluster])}"
        for cluster, month in first.items()
    )
    text = f"Carrying value is above resale value, so test for impairment: {words}."
    return [Sentence(text=text), chart]


def _times(ratio: float | None) -> str:
    """Return a cover ratio with two decimals."""
    return NOTHING if ratio is None else f"{ratio:.2f}"


def _lines(
    contents: Contents,
    table: Table,
    columns: Mapping[str, str],
    key: str,
    title: str,
    summary: str,
) -> TimeChart:
    """Return sums by month of some columns, in dollars, as lines."""
    calendar = Calendar(table.texts("month"))
    series = []
    for colour, (column, name) in enumerate(columns.items()):
        by_month = dict.fromkeys(calendar.months, 0.0)
        for month, amount in table.rows("month", totals=[column]):
            by_month[month] += amount
        # A column of nothing has no line.
        if any(by_month.values()):
            points = [(calendar.middle(month), usd) for month, usd in by_month.items()]
            series.append(Series(name=name, colour=colour, points=points))
    return calendar.chart(f"{contents.anchor}{key}", title, summary, "usd", series)
