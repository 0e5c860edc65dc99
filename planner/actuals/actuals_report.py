"""The sections of actual months compared with their plan."""

from __future__ import annotations

from planner.actuals.actuals_summary import ActualsSummary
from planner.actuals.review import COST, SLO
from planner.answers.sections import section
from planner.answers.timelines import Calendar
from planner.finance.bridge import VARIANCE_CAUSES
from planner.output.blocks import Block, Grid, Section, Sentence, Series, TimeChart, sentences
from planner.output.folder import Contents
from planner.output.scales import TOTAL
from planner.output.tables import Table
from planner.output.terminal import cell
from planner.output.words import dollars, figure, input_words, measured, spoken

SIDE_BY_SIDE = ("month", "budget", "actual", "forecast", "SLO budget", "actual", "forecast")
"""Headings of budget, actual and forecast beside one another."""
VARIANCES = "Budget against actual"
"""Caption of the accounts by cause."""
_AGES = ("prior", "posterior")
"""The forecasts before and after the actual months, as their columns begin."""


def actuals_sections(contents: Contents) -> list[Section]:
    """Return the sections of the report on actual months."""
    summary = ActualsSummary.from_json(contents)
    # Cost comes first among the series that are forecast.
    cost_chart, *charts = _forecast_charts(contents.tables["forecast_monthly"])
    return [
        _answer_section(contents.tables["variance"], summary, cost_chart),
        _forecast_section(contents, charts),
        _outside_section(contents.tables["actuals"]),
    ]


def _answer_section(variance: Table, summary: ActualsSummary, cost_chart: TimeChart) -> Section:
    """Return the sentences and budget against actual by account and cause."""
    # A cause that moved no account has no column.
    causes = [cause for cause in VARIANCE_CAUSES if any(variance.totals(f"{cause}_usd"))]
    cause_columns = (f"{cause}_usd" for cause in causes)
    columns = ("budget_usd", "actual_usd", "difference_usd", "noise_two_sd_usd", *cause_columns)
    rows = []
    for account, *amounts in variance.rows("account", totals=columns):
        # Accounts that nobody budgeted or booked are left out.
        if any(amounts):
            label = account.replace("_", " ")
            rows.append((label, *map(dollars, amounts)))
    header = ("account", "budget", "actual", "actual less budget", "2 sd of noise", *causes)
    grid = Grid(caption=VARIANCES, header=header, rows=rows, numeric=range(1, len(header)))
    blocks: list[Block] = [
        *sentences(summary.sentences[:1], "headline"),
        cost_chart,
        *sentences(summary.sentences[1:]),
        grid,
    ]
    return section("answer", blocks, "Actuals against plan")


def _forecast_charts(monthly: Table) -> list[TimeChart]:
    """Return the forecast of each figure by month before and after, with their bands: cost first."""
    # In the order of the file, in which cost comes first.
    return [
        _forecast_chart(name, monthly.where("figure", name))
        for name in dict.fromkeys(monthly.texts("figure"))
    ]


def _forecast_chart(name: str, months: Table) -> TimeChart:
    """Return budget, actual and both forecasts of one figure."""
    calendar = Calendar(months.texts("month"))
    days = [calendar.middle(month) for month in months.texts("month")]

    def points(column: str) -> list[tuple[float, float | None]]:
        return list(zip(days, months.numbers(column), strict=True))

    series = []
    forecasts = (("forecast before", "prior", 1), ("forecast now", "posterior", 0))
    for title, age, colour in forecasts:
        low = points(f"{age}_p5")
        high = points(f"{age}_p95")
        band = (low, high)
        middle = points(f"{age}_p50")
        series.append(Series(name=title, points=middle, colour=colour, bands=[band]))
    for title, colour in (("budget", 2), ("actual", TOTAL)):
        line = Series(name=title, points=points(title), colour=colour)
        series.append(line)
    unit = "number"
    if name.endswith("_usd"):
        unit = "usd"
    elif name.endswith("_fraction"):
        unit = "percent"
    key = f"forecast-{name.replace('_', '-')}"
    note = "The bands contain nine of ten replications."
    title_words = spoken(name).capitalize()
    return calendar.chart(key, title_words, note, unit, series)


def _forecast_section(contents: Contents, charts: list[TimeChart]) -> Section:
    """Return the forecasts by month but for cost, which the answer has, and which inputs moved them."""
    by_month = Grid(
        caption="Cost in USD and SLO attainment",
        header=SIDE_BY_SIDE,
        rows=side_by_side(contents.tables["forecast_monthly"]),
        numeric=range(1, 7),
    )
    # Both forecasts side by side, so that a reader sees which input narrowed.
    columns = [f"{age}_p10 {age}_p50 {age}_p90".split() for age in _AGES]
    inputs = contents.tables["forecast_inputs"].rows(
        "input", *columns[0], *columns[1], totals=["moved_usd"]
    )
    by_size = sorted(inputs, key=lambda row: -abs(row[-1]))
    rows = [
        (input_words(name), *map(figure, cells), dollars(usd))
        # What moved the forecast most comes first.
        for name, *cells, usd in by_size
    ]
    deciles = ("P10 before", "P50", "P90", "P10 now", "P50", "P90")
    header = ("input", *deciles, "changes the cost of the months to come by")
    # Every column but the name is a number.
    by_input = Grid(caption="Why the forecast moved", header=header, rows=rows, numeric=range(1, 8))
    return section("time", [*charts, by_month, by_input], "Forecast")


def side_by_side(monthly: Table) -> list[tuple[str, ...]]:
    """Return budget, actual and forecast (P50) of cost and SLO attainment, a row for each month."""
    columns = ("budget", "actual", "posterior_p50")
    cost_rows = monthly.where("figure", COST.figure)
    costs = cost_rows.rows("month", numbers=columns)
    slo_rows = monthly.where("figure", SLO.figure)
    shares = slo_rows.rows("month", numbers=columns)
    rows = []
    months = zip(costs, shares, strict=True)
    for (month, *usd), (_, *attained) in months:
        usd_cells = [cell(amount, ",.0f") for amount in usd]
        share_cells = (cell(share, ".2%") for share in attained)
        rows.append((month[:7], *usd_cells, *share_cells))
    return rows


def _outside_section(actuals: Table) -> Section:
    """Return what lay outside the interval, month by month."""
    rows = []
    for entity, name, month, is_outside, use, *numbers in actuals.rows(
        "of",
        "figure",
        "month",
        "is_outside",
        "forecast",
        numbers=("plan", "low", "high", "actual"),
    ):
        if is_outside == "true":
            cells = [measured(number, name) for number in numbers]
            label = f"{entity} {name.replace('_', ' ')}"
            rows.append((label, month[:7], *cells, use))
    explanation = (
        "Months in which a figure lay outside the range of nine of ten replications of the plan. By chance this "
        "happens in one month of ten, but not to the same figure several months in a row."
    )
    grid = Grid(
        caption=f"{len(rows)} of {len(actuals)} lay outside",
        header=("figure", "month", "plan", "P5", "P95", "actual", "forecast"),
        rows=rows,
        numeric=(2, 3, 4, 5),
    )
    return section("outside", [Sentence(text=explanation), grid], "Outside the plan")
