"""Charts of an output folder as PNG and SVG files for slides, in one style, from the folder's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.output.folder import CHARTS as FOLDER
from planner.output.picture import (
    FORMATS,
    Area,
    Axis,
    Box,
    Draw,
    Line,
    Mark,
    Panel,
    Picture,
    Rule,
    bars,
    even_axis,
    files_of,
    ratio_axis,
    swings,
)
from planner.output.report import run_sections
from planner.output.report.compare_sections import frontier_picture
from planner.output.report.contents import Contents, fitting, read_contents
from planner.output.report.drivers import TORNADOES, panels, rows_of
from planner.output.report.study_sections import fan_charts, headline_of
from planner.output.report.timechart import Series, TimeChart, panel_of
from planner.output.report.timelines import Calendar, by_name, colours, demand_chart, line_chart, power_chart
from planner.output.report.words import measured, unit_price
from planner.output.scales import COLOURS, Scale
from planner.run.measure_names import FLEET
from planner.units import MILLION

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
    if not distribution:
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
        bins = distribution.where("scenario", scenario).rows(totals=("bin_low", "bin_high", "replications"))
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
    values = dict(rows.rows("statistic", numbers=["value"]))
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
    if not means:
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


LOST = {column: name for column, name in run_sections.LOSSES.items() if column.startswith("lost_")}


def _timeline(contents: Contents, column: str, unit: str, title: str, said: str) -> Picture | None:
    """Return a column of the monthly timeline: by cluster for one plan, the whole fleet's by scenario for several."""
    table = contents.table("timeline_monthly")
    if table is None or column not in table or not len(table):
        return None
    by, of = ("scenario", "by scenario") if contents.plans else ("cluster", "by cluster")
    if contents.plans:
        table, of = table.where("cluster", FLEET), of + (", as stated" if contents.kind == "study" else "")
    calendar = Calendar(table.texts("month"))
    chart = line_chart(calendar, by_name(table, by, "month", column, calendar.middle), ("", title, said, unit))
    return Picture(title=f"{title} {of}, {contents.name}", panels=[panel_of(chart)], keys=keys_of(chart))


def keys_of(chart: TimeChart) -> dict[str, int]:
    """Return the legend of a chart."""
    return {series.name: series.colour for series in chart.series}


def utilisation(contents: Contents) -> Picture | None:
    """Draw utilisation by cluster, or by scenario."""
    said = "Share of accelerator-hours in service that were at work."
    return _timeline(contents, "utilisation_fraction", "percent", "Utilisation", said)


def _of_run(contents: Contents, chart: TimeChart | None) -> Picture | None:
    """Return a chart that one plan alone has as a picture."""
    if chart is None or contents.plans:
        return None
    return Picture(title=f"{chart.title}, {contents.name}", panels=[panel_of(chart)], keys=keys_of(chart))


def demand(contents: Contents) -> Picture | None:
    """Draw what was asked for against what was there."""
    return _of_run(contents, demand_chart(contents))


def power(contents: Contents) -> Picture | None:
    """Draw the highest hours at the meter against the site's limit."""
    return _of_run(contents, power_chart(contents))


def cost_per_token(contents: Contents) -> Picture | None:
    """Draw the cost of a million tokens; on a logarithmic axis where the lines differ widely."""
    said = "Accrued cost over tokens served, USD per million tokens."
    return _timeline(contents, "cost_per_million_tokens_usd", "usd", "Cost per million tokens", said)


def _stacked(contents: Contents, title: str, layers: dict[str, dict[str, float]], label: str, first: int) -> Picture:
    """Draw bars that lie down, one for each name; the layers are {layer: {name: width}}."""
    names = list(next(iter(layers.values())))
    panel = bars(names, {layer: [row[name] for name in names] for layer, row in layers.items()}, label, first)
    keys = {layer: colour for colour, layer in enumerate(layers, start=first)}
    return Picture(title=f"{title}, {contents.name}", panels=[panel], keys=keys, shape="square")


def money(contents: Contents) -> Picture | None:
    """Draw accrued cost: of one plan by account and cluster, of several by scenario and account."""
    if contents.plans:
        layers = _money_of_plans(contents)
    else:
        sums = run_sections.account_sums(contents)
        order = sorted(sums, key=lambda account: -sum(sums[account].values()))
        clusters = dict.fromkeys(cluster for account in sums for cluster in sums[account])
        layers = {c: {run_sections.words_of(a): sums[a].get(c, 0.0) / MILLION for a in order} for c in clusters}
    return _stacked(contents, "Where the money goes", layers, "accrued cost, million USD", 0) if layers else None


def _money_of_plans(contents: Contents) -> dict[str, dict[str, float]]:
    """Return each scenario's cost, the largest accounts by name and the rest together."""
    totals = {plan: run_sections.account_totals(contents.of_plan(plan)) for plan in contents.plans}
    accounts = sorted(
        {account for accounts in totals.values() for account in accounts},
        key=lambda account: -max(accounts.get(account, 0.0) for accounts in totals.values()),
    )
    named, rest = accounts[: len(COLOURS) - 1], accounts[len(COLOURS) - 1 :]
    together = {run_sections.words_of(account): [account] for account in named} | ({"other": rest} if rest else {})
    return {
        layer: {
            plan: sum(accounts.get(account, 0.0) for account in parts) / MILLION for plan, accounts in totals.items()
        }
        for layer, parts in together.items()
    }


def losses(contents: Contents) -> Picture | None:
    """Draw the share of node-hours lost by cause: of one plan by month, of several side by side."""
    table = contents.table("losses")
    if contents.plans:
        shares = {plan: _lost(contents.of_plan(plan)) for plan in contents.plans}
        layers = {name: {plan: losses[name] for plan, losses in shares.items()} for name in LOST.values()}
        return _stacked(contents, "Where capacity was lost", layers, "node-hours on site, %", 1)
    if not table:
        return None
    calendar = Calendar(table.texts("month"))

    present = table.summed("month", "present_node_h")
    lost = {name: table.summed("month", column) for column, name in LOST.items() if column in table}
    series = [
        Series(name=name, colour=colour, points=[(calendar.middle(m), h / present[m] if present[m] else 0.0)
                                                 for m, h in hours.items()])
        for colour, (name, hours) in enumerate(lost.items(), start=1)
    ]  # fmt: skip
    texts = ("", "Where capacity was lost", "Share of node-hours on site.", "percent")
    chart = calendar.chart(texts, series, stacked=True)
    title = f"{chart.title}, {contents.name}"
    return Picture(title=title, panels=[panel_of(chart)], keys=keys_of(chart), shape="square")


def _lost(contents: Contents) -> dict[str, float]:
    """Return the percentages of one plan's node-hours on site that each cause took."""
    hours = run_sections.node_hours(contents) or {}
    total = sum(sum(row.values()) for row in hours.values()) or 1.0
    return {name: 100 * sum(row.get(name, 0.0) for row in hours.values()) / total for name in LOST.values()}


def bridge(contents: Contents) -> Picture | None:
    """Draw why a token costs more or less than in the baseline, by cause, one panel for each scenario."""
    table = contents.table("bridge")
    if not table:
        return None
    column = "difference_per_million_tokens_usd"
    panels = []
    for scenario in dict.fromkeys(table.texts("scenario")):
        of_plan = table.where("scenario", scenario)
        parts = of_plan.totals(column)
        causes = [cause.replace("_", " ") for cause in of_plan.texts("cause")]
        rows = [(cause, [(part, 1 if part > 0 else 2)]) for cause, part in zip(causes, parts, strict=True)]
        total = sum(parts)
        title = f"{scenario}: {unit_price(abs(total))} {'dearer' if total > 0 else 'cheaper'} than the baseline"
        panels.append(swings(rows, 0.0, title, table.totals(column)))
    keys = {"dearer": 1, "cheaper": 2}
    return Picture(
        title="Why a token costs more or less than in the baseline", panels=panels, keys=keys, shape="square",
        note="USD per million tokens, shared among the causes.",
    )  # fmt: skip


PLAN_CHARTS: dict[str, Draw] = {
    "demand": demand,
    "power": power,
    "frontier": frontier_picture,
    "utilisation": utilisation,
    "cost-per-token": cost_per_token,
    "money": money,
    "losses": losses,
    "bridge": bridge,
}
"""File name to what draws it."""


CHARTS: dict[str, Draw] = {**PLAN_CHARTS, **STUDY_CHARTS}
"""File name to what draws it."""


def draw_charts(
    contents: Contents, formats: Sequence[str] = FORMATS, names: Sequence[str] = tuple(CHARTS)
) -> dict[str, bytes]:
    """Return the charts that the folder's files allow, by file name; the same files give the same bytes."""
    return {
        f"{FOLDER}/{name}.{suffix}": picture
        for name in names
        if (drawn := CHARTS[name](contents))
        for suffix, picture in files_of(drawn, formats).items()
    }


def checked_charts(
    contents: Contents, place: str, formats: Sequence[str] = FORMATS, names: Sequence[str] = tuple(CHARTS)
) -> dict[str, bytes]:
    """Return the charts of files that may have been changed, hashes and all; what does not fit is refused."""
    with fitting(place):
        return draw_charts(contents, formats, names)


def write_charts(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw an output folder's charts into its folder ``charts`` and enter them in its manifest."""
    drawn = checked_charts(read_contents(folder), str(folder), formats)
    if not drawn:
        raise ScenarioError(Problem(file=str(folder), message="holds no timeline, ledger or losses to draw"))
    change_files(folder, drawn)
    return [folder / name for name in drawn]
