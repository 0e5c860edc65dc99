"""Charts of a study: fan, histogram, tornado, convergence; from the tables that it writes."""

from __future__ import annotations

from dataclasses import replace

from planner.reporting.picture import (
    Area,
    Axis,
    Box,
    Draw,
    Line,
    Mark,
    Panel,
    Picture,
    Rule,
    even_axis,
    files_of,
    ratio_axis,
    swings,
)
from planner.reporting.plan_charts import keys_of
from planner.reporting.report.contents import Contents
from planner.reporting.report.drivers import TORNADOES, panels, rows_of
from planner.reporting.report.study_sections import fan_charts, headline_of
from planner.reporting.report.timechart import panel_of
from planner.reporting.report.timelines import by_name, colours
from planner.reporting.report.words import measured
from planner.reporting.scales import Scale

_BARS = 12
_PANELS = 4
"""Tornadoes in one picture: the first scenario's, and its difference from the next ones."""


def study_pictures(contents: Contents) -> dict[str, bytes]:
    """Return the PNG charts that a study writes beside its tables, as far as it has those tables."""
    pictures = {name: draw(contents) for name, draw in STUDY_CHARTS.items()}
    return {f"{name}.png": files_of(picture, ["png"])["png"] for name, picture in pictures.items() if picture}


def _words(name: str) -> str:
    return name.replace("_", " ").replace("usd", "USD")


def fan(contents: Contents) -> Picture | None:
    """Draw monthly medians with bands from P10 to P90 and, paler, P5 to P95."""
    charts = fan_charts(contents, [("p5", "p95"), ("p10", "p90")], "")
    if not charts:
        return None
    title = f"By month: median, P10 to P90, P5 to P95, {contents.name}"
    drawn = [panel_of(chart, chart.title, height=230.0) for chart in charts]
    return Picture(title=title, panels=drawn, keys=keys_of(charts[0]))


def histogram(contents: Contents) -> Picture | None:
    """Draw the headline's distribution for each scenario on one scale, with P10, P50 and P90."""
    distribution = contents.table("distribution")
    if distribution is None or not len(distribution):
        return None
    output = headline_of(contents)
    ends = [*distribution.totals("bin_low"), *distribution.totals("bin_high")]
    x = even_axis(min(ends), max(ends), _words(output))
    unlabelled = replace(x, label="", ticks=[(tick, "") for tick, _ in x.ticks])
    y = Axis(
        scale=Scale(low=0.0, high=1.3 * max(distribution.totals("replications")) or 1.0)
    )  # room for the marks' names
    palette, strips = colours(distribution.texts("scenario")), []
    for scenario in dict.fromkeys(distribution.texts("scenario")):
        bars = distribution.where("scenario", scenario)
        bins = zip(bars.totals("bin_low"), bars.totals("bin_high"), bars.totals("replications"), strict=True)
        boxes: list[Mark] = [Box(x=(a, b), y=(0.0, number), colour=palette[scenario]) for a, b, number in bins]
        marks = [*boxes, *_percentiles(contents, scenario, output)]
        strips.append(Panel(x=unlabelled, y=y, marks=marks, title=scenario, height=130.0))
    strips[-1] = replace(strips[-1], x=x)
    return Picture(title=f"How the replications are spread, {contents.name}", panels=strips)


def _percentiles(contents: Contents, scenario: str, output: str) -> list[Rule]:
    """Return P10, P50 and P90 of one scenario as lines with their values."""
    table = contents.table("percentiles")
    if table is None:
        return []
    rows = table.where("output", output).where("scenario", scenario)
    values = dict(zip(rows.texts("statistic"), rows.numbers("value"), strict=True))
    return [
        Rule(x=value, note=f"{name.upper()} {measured(value, output)}")
        for name in ("p10", "p50", "p90")
        if (value := values.get(name)) is not None
    ]


def tornado(contents: Contents) -> Picture | None:
    """Draw what the first scenario's headline, and its difference from the others', hang on."""
    ranked = list(panels(rows_of(contents)))
    if not ranked:
        return None
    shown = [panel for panel in ranked if panel.scenario == ranked[0].scenario and panel.method == ranked[0].method]
    method, drawn = TORNADOES[ranked[0].method], []
    for panel in shown[:_PANELS]:
        rows = [(name, [(low, 0), (high, 1)]) for name, low, high in panel.longest(_BARS)]
        one = swings(rows, panel.middle, panel.title)
        drawn.append(replace(one, marks=[*one.marks, Rule(x=0.0, is_dashed=True)]) if panel.against else one)
    title = f"What {_words(headline_of(contents))} hangs on, {contents.name}"
    keys = dict(zip(method.ends, (0, 1), strict=True))
    return Picture(title=title, panels=drawn, keys=keys, shape="square", note=f"{method.said}.")


def convergence(contents: Contents) -> Picture | None:
    """Draw the headline's mean against the number of replications, with its interval."""
    means = contents.table("convergence")
    if means is None or not len(means):
        return None
    palette = colours(means.texts("scenario"))
    mean, low, high = (by_name(means, "scenario", "replications", name, float) for name in ("mean", "low", "high"))
    bands: list[Mark] = [Area(upper=high[s], lower=low[s], colour=palette[s], opacity=0.2) for s in mean]
    lines: list[Mark] = [Line(points=mean[s], colour=palette[s]) for s in mean]
    values = [v for edges in (mean, low, high) for line in edges.values() for _, v in line if v is not None] or [0.0]
    room = 0.05 * ((max(values) - min(values)) or abs(values[0]) or 1.0)
    y = even_axis(min(values) - room, max(values) + room, f"mean {_words(headline_of(contents))}")
    x = ratio_axis(means.totals("replications"), "replications")
    panel = Panel(x=x, y=y, marks=[*bands, *lines], height=360.0)
    title = f"How sure the mean is, with its 95% interval, {contents.name}"
    return Picture(title=title, panels=[panel], keys={s: palette[s] for s in mean})


STUDY_CHARTS: dict[str, Draw] = {
    "fan": fan,
    "histogram": histogram,
    "tornado": tornado,
    "convergence": convergence,
}
"""File name to what draws it."""
