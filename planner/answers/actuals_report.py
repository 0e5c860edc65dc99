"""The sections of months that happened, held against their plan."""

from __future__ import annotations

from planner.answers.sections import section
from planner.answers.timelines import Calendar
from planner.finance.bridge import VARIANCE_CAUSES
from planner.output.blocks import Block, Grid, Section, Sentence, Series, TimeChart, sentences
from planner.output.folder import Contents
from planner.output.scales import TOTAL
from planner.output.tables import Table
from planner.output.terminal import cell
from planner.output.words import dollars, figure, input_words, measured, spoken
from planner.reforecast import COST, SLO


def answer_section(contents: Contents) -> Section:
    """Return the sentences and budget against actual by account and cause."""
    variance = contents.tables["variance"]
    rows = []
    said = [str(sentence) for sentence in contents.summary["sentences"]]
    shown = [cause for cause in VARIANCE_CAUSES if any(variance.totals(f"{cause}_usd"))]
    columns = ("budget_usd", "actual_usd", "difference_usd", *(f"{cause}_usd" for cause in shown))
    for account, *cells in variance.rows("account", totals=columns):
        if any(cells):
            rows.append((account.replace("_", " "), *map(dollars, cells)))
    header = ("account", "budget", "actual", "actual less budget", *shown)
    grid = Grid(
        caption="Budget against actual", header=header, rows=rows, numeric=range(1, len(header))
    )
    first, *_ = _forecast_charts(contents)
    blocks: list[Block] = [*sentences(said[:1], "headline"), first, *sentences(said[1:]), grid]
    return section("answer", blocks, "Actuals against plan")


def _forecast_charts(contents: Contents) -> list[TimeChart]:
    """Return the old and the new forecast of each figure by month, with their bands: cost first."""
    charts = list[TimeChart]()
    monthly = contents.tables["forecast_monthly"]
    for name in dict.fromkeys(monthly.texts("figure")):
        months = monthly.where("figure", name)
        calendar = Calendar(months.texts("month"))
        places = [calendar.middle(month) for month in months.texts("month")]
        series = []
        for said, age, colour in (
            ("forecast before", "prior", 1),
            ("forecast now", "posterior", 0),
        ):
            columns = (months.numbers(f"{age}_{end}") for end in ("p5", "p50", "p95"))
            low, middle, high = (list(zip(places, column, strict=True)) for column in columns)
            series.append(Series(name=said, points=middle, colour=colour, bands=[(low, high)]))
        for said, colour in (("budget", 2), ("actual", TOTAL)):
            series.append(
                Series(
                    name=said,
                    points=list(zip(places, months.numbers(said), strict=True)),
                    colour=colour,
                )
            )
        unit = (
            "usd"
            if name.endswith("_usd")
            else "percent"
            if name.endswith("_fraction")
            else "number"
        )
        key = f"forecast-{name.replace('_', '-')}"
        said = "The bands hold nine of ten replications."
        charts.append(calendar.chart(key, spoken(name).capitalize(), said, unit, series))
    return charts


def forecast_section(contents: Contents) -> Section:
    """Return the forecasts by month but for the first chart, which the answer has, and which inputs moved them."""
    monthly = contents.tables["forecast_monthly"]
    inputs = contents.tables["forecast_inputs"]
    blocks: list[Block] = [*_forecast_charts(contents)[1:]]
    grid = Grid(
        caption="Cost in USD and SLO attainment",
        header=BESIDE,
        rows=beside(monthly),
        numeric=range(1, 7),
    )
    blocks.append(grid)
    names = [f"{age}_{place}" for age in ("prior", "posterior") for place in ("p10", "p50", "p90")]
    rows = sorted(inputs.rows("input", *names, totals=["moved_usd"]), key=lambda row: -abs(row[-1]))
    shown = [(input_words(name), *map(figure, cells), dollars(usd)) for name, *cells, usd in rows]
    header = (
        "input",
        "P10 before",
        "P50",
        "P90",
        "P10 now",
        "P50",
        "P90",
        "moves the months to come by",
    )
    blocks.append(
        Grid(caption="Why the forecast moved", header=header, rows=shown, numeric=range(1, 8))
    )
    return section("time", blocks, "Forecast")


BESIDE = ("month", "budget", "actual", "forecast", "SLO budget", "actual", "forecast")


def beside(monthly: Table) -> list[tuple[str, ...]]:
    """Return budget, actual and forecast (P50) of cost and SLO attainment side by side, a row for each month."""
    sides = ("budget", "actual", "posterior_p50")
    costs, shares = (
        monthly.where("figure", series.name).rows("month", numbers=sides) for series in (COST, SLO)
    )
    both = zip(costs, shares, strict=True)
    return [
        (m[:7], *(cell(n, ",.0f") for n in cost), *(cell(n, ".2%") for n in met))
        for (m, *cost), (_, *met) in both
    ]


def figures_section(contents: Contents) -> Section:
    """Return what lay outside the interval, month by month."""
    held = contents.tables["actuals"]
    texts = ("of", "figure", "month", "is_outside", "forecast")
    rows = [
        (
            f"{of} {name.replace('_', ' ')}",
            month[:7],
            *(measured(number, name) for number in numbers),
            said,
        )
        for of, name, month, outside, said, *numbers in held.rows(
            *texts, numbers=("plan", "low", "high", "actual")
        )
        if outside == "true"
    ]
    header = ("figure", "month", "plan", "P5", "P95", "actual", "forecast")
    said = (
        "Months in which a figure lay outside what nine of ten replications of the plan hold. One in ten does so by "
        "chance; several of one figure in a row do not."
    )
    grid = Grid(
        caption=f"{len(rows)} of {len(held)} lay outside",
        header=header,
        rows=rows,
        numeric=(2, 3, 4, 5),
    )
    return section("outside", [Sentence(text=said), grid], "Outside the plan")
