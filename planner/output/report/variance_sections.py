"""The sections of differences in dollars: months that happened against their budget, and one plan against another."""

from __future__ import annotations

from planner.output.report.contents import Contents
from planner.output.report.html import Html, Part, bar_table, join, paragraph, table
from planner.output.report.page import Section
from planner.output.report.timechart import Series, draw
from planner.output.report.timelines import Calendar
from planner.output.report.words import dollars, figure, measured
from planner.output.scales import TOTAL

CAUSES = ("volume", "efficiency", "price", "timing", "unexplained")


def answer_section(contents: Contents) -> Section | None:
    """Return the sentences and budget against actual by account and cause."""
    variance = contents.table("variance")
    if contents.kind != "actuals" or variance is None:
        return None
    said = [str(sentence) for sentence in contents.json("summary.json").get("sentences", ())]
    shown = [cause for cause in CAUSES if any(variance.totals(f"{cause}_usd"))]
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
    body = [
        *(paragraph(sentence, class_="headline" if not place else None) for place, sentence in enumerate(said)),
        bar_table(("account", "budget", "actual", "actual less budget", *shown, ""), rows, "Budget against actual"),
    ]
    return Section(key="answer", asks="Where do we stand?", body=join(body, "\n"))


def forecast_section(contents: Contents) -> Section | None:
    """Return the old and the new forecast by month with their bands, and which inputs moved it."""
    monthly, inputs = contents.table("forecast_monthly"), contents.table("forecast_inputs")
    if monthly is None or inputs is None:
        return None
    charts = []
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
        charts.append(draw(calendar.chart((f"forecast-{name.replace('_', '-')}", title, said, unit), series)))
    return Section(key="time", asks="What is to come", body=join([*charts, _moved(contents)], "\n"))


def _moved(contents: Contents) -> Html:
    """Return what the months say about each input, the one that moves the forecast most first."""
    inputs = contents.table("forecast_inputs")
    if inputs is None:
        return Html("")
    names = [f"{age}_{place}" for age in ("old", "new") for place in ("p10", "p50", "p90")]
    rows = sorted(inputs.rows("input", *names, totals=["moved_usd"]), key=lambda row: -abs(row[-1]))
    shown = [(name, *map(figure, cells), dollars(usd)) for name, *cells, usd in rows]
    header = ("input", "P10 before", "P50", "P90", "P10 now", "P50", "P90", "moves the months to come by")
    return table(header, shown, "Why the forecast moved", numeric=range(1, 8))


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
    said = paragraph(
        "Months in which a figure lay outside what nine of ten replications of the plan hold. One in ten does so by "
        "chance; several of one figure in a row do not."
    )
    shown = table(header, rows, f"{len(rows)} of {len(held)} lay outside", numeric=(2, 3, 4, 5))
    return Section(key="outside", asks="What the plan did not expect", body=join([said, shown], "\n"))


def dollars_section(contents: Contents) -> Section | None:
    """Return why a plan costs more or less in all than the baseline, in dollars."""
    bridge = contents.table("bridge_usd")
    if not bridge:
        return None
    rows = list(bridge.rows("scenario", "cause", totals=["difference_usd"]))
    most = max((abs(part) for *_, part in rows), default=0.0) or 1.0
    tables = []
    for scenario in dict.fromkeys(name for name, *_ in rows):
        parts = {cause: part for name, cause, part in rows if name == scenario}
        cells = [
            (
                cause,
                [f"{part:+,.2f}"],
                [Part(name=cause, share=abs(part) / most, colour=1 if part > 0 else 2, shown=dollars(part))],
            )
            for cause, part in parts.items()
        ]
        total = sum(parts.values())
        caption = f"{scenario}: {dollars(abs(total))} {'more' if total > 0 else 'less'} over the horizon"
        tables.append(bar_table(("cause", "USD", "size"), cells, caption))
    said = paragraph(
        "The same in dollars of accrued cost, which sum to the cent. Policy is what other books (life, method or "
        "residual of depreciation) move: no price, and no cash."
    )
    return Section(key="money", body=join([said, *tables]))
