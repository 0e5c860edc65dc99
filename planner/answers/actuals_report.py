"""The sections of months that happened, held against their plan."""

from __future__ import annotations

from planner.answers.sections import section
from planner.answers.timelines import Calendar
from planner.finance.bridge import VARIANCE_CAUSES
from planner.output.blocks import Block, Grid, Part, Section, Sentence, Series, bar_grid, sentences
from planner.output.folder import Contents
from planner.output.scales import TOTAL
from planner.output.words import dollars, figure, measured


def answer_section(contents: Contents) -> Section | None:
    """Return the sentences and budget against actual by account and cause."""
    variance = contents.table("variance")
    if contents.kind != "actuals" or variance is None:
        return None
    said = [str(sentence) for sentence in contents.summary.get("sentences", ())]
    shown = [cause for cause in VARIANCE_CAUSES if any(variance.totals(f"{cause}_usd"))]
    columns = ("budget_usd", "actual_usd", "difference_usd", *(f"{cause}_usd" for cause in shown))
    most = max(map(abs, variance.totals("difference_usd")), default=0.0) or 1.0
    rows = [
        (
            account.replace("_", " "),
            [dollars(cell) for cell in cells],
            [Part(name=account, share=abs(cells[2]) / most, colour=1 if cells[2] > 0 else 2, shown=dollars(cells[2]))],
        )
        for account, *cells in variance.rows("account", totals=columns)
        if any(cells)
    ]
    header = ("account", "budget", "actual", "actual less budget", *shown, "")
    grid = bar_grid(header, rows, "Budget against actual")
    return section("answer", [*sentences(said[:1], "headline"), *sentences(said[1:]), grid], "Where do we stand?")


def forecast_section(contents: Contents) -> Section | None:
    """Return the old and the new forecast by month with their bands, and which inputs moved it."""
    monthly, inputs = contents.table("forecast_monthly"), contents.table("forecast_inputs")
    if monthly is None or inputs is None:
        return None
    blocks: list[Block] = []
    for name in dict.fromkeys(monthly.texts("figure")):
        months = monthly.where("figure", name)
        calendar = Calendar(months.texts("month"))
        places = [calendar.middle(month) for month in months.texts("month")]

        def line(column: str) -> list[tuple[float, float | None]]:
            return list(zip(places, months.numbers(column), strict=True))  # noqa: B023 - called within the turn

        series = [
            Series(name=said, points=line(f"{age}_p50"), colour=colour, bands=[(line(f"{age}_p5"), line(f"{age}_p95"))])
            for said, age, colour in (("forecast before", "old", 1), ("forecast now", "new", 0))
        ]
        series.append(Series(name="actual", points=line("actual"), colour=TOTAL))
        unit = "usd" if name.endswith("_usd") else "percent" if name.endswith("_fraction") else "number"
        title = name.removesuffix("_usd").removesuffix("_fraction").replace("_", " ").capitalize()
        said = "The bands hold nine of ten replications."
        blocks.append(calendar.chart(f"forecast-{name.replace('_', '-')}", title, said, unit, series))
    names = [f"{age}_{place}" for age in ("old", "new") for place in ("p10", "p50", "p90")]
    rows = sorted(inputs.rows("input", *names, totals=["moved_usd"]), key=lambda row: -abs(row[-1]))
    shown = [(name, *map(figure, cells), dollars(usd)) for name, *cells, usd in rows]
    header = ("input", "P10 before", "P50", "P90", "P10 now", "P50", "P90", "moves the months to come by")
    blocks.append(Grid(caption="Why the forecast moved", header=header, rows=shown, numeric=range(1, 8)))
    return section("time", blocks, "What is to come")


def figures_section(contents: Contents) -> Section | None:
    """Return what lay outside the interval, month by month."""
    held = contents.table("actuals")
    if held is None or contents.kind != "actuals":
        return None
    rows = [
        (f"{of} {name.replace('_', ' ')}", month, *(measured(number, name) for number in numbers), said)
        for of, name, month, outside, said, *numbers in held.rows(
            "of", "figure", "month", "is_outside", "forecast", numbers=("plan", "low", "high", "actual")
        )
        if outside == "true"
    ]
    header = ("figure", "month", "plan", "P5", "P95", "actual", "forecast")
    said = (
        "Months in which a figure lay outside what nine of ten replications of the plan hold. One in ten does so by "
        "chance; several of one figure in a row do not."
    )
    caption = f"{len(rows)} of {len(held)} lay outside"
    grid = Grid(caption=caption, header=header, rows=rows, numeric=(2, 3, 4, 5))
    return section("outside", [Sentence(text=said), grid], "What the plan did not expect")
