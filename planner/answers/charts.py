"""Charts of an output folder as PNG and SVG files for slides: the report's own figures, and plans side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.answers.comparison_report import costs_picture, side_by_side
from planner.answers.manifests import Manifest
from planner.answers.run_report import LOSSES, losses_chart, money_chart, node_hours
from planner.answers.sensitivity_report import tornado_picture
from planner.answers.study_report import fan_charts, histogram
from planner.answers.study_results import StudyResults
from planner.answers.summaries import RunSummary
from planner.answers.sweep_report import frontier_picture
from planner.answers.timelines import (
    colours,
    demand_chart,
    line_chart,
    points_by_name,
    power_chart,
)
from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.output.blocks import Area, Figure, Line, Mark, Panel, Picture
from planner.output.folder import CHARTS as FOLDER
from planner.output.folder import Contents, fitting, read_contents
from planner.output.svg import (
    FORMATS,
    even_axis,
    files_of,
    panel_of,
    picture_of,
    ratio_axis,
    swings,
)
from planner.output.words import spoken, unit_price

Draw = Callable[[Contents], Figure | None]
"""Draws what a folder holds; None where what it needs is not there."""


def plan_losses(contents: Contents) -> Picture | None:
    """Draw node-hours lost by cause, as shares, of several plans side by side."""
    layers: dict[str, dict[str, float]] = {}
    for plan in contents.plans:
        by_cluster = node_hours(contents.of_plan(plan)).values()
        # A plan without machines has no hours: its shares are zero, not a division by zero.
        total = sum(sum(by_use.values()) for by_use in by_cluster) or 1.0
        for words in LOSSES.values():
            lost = sum(by_use[words] for by_use in by_cluster)
            layers.setdefault(words, {})[plan] = 100 * lost / total
    if not layers:
        return None
    return side_by_side("Where capacity was lost", layers, "node-hours on site, %", 1)


def fan(contents: Contents) -> Picture | None:
    """Draw monthly medians with bands from P10 to P90 and, paler, P5 to P95."""
    percentiles = [("p5", "p95"), ("p10", "p90")]
    charts = fan_charts(contents, percentiles, "")
    if not charts:
        return None
    return Picture(
        title="By month: median, P10 to P90, P5 to P95",
        panels=[panel_of(chart, chart.title, height=230.0) for chart in charts],
        keys={series.name: series.colour for series in charts[0].series},
    )


def convergence(contents: Contents) -> Picture | None:
    """Draw the headline's mean against the number of replications, with its interval."""
    means = contents.table("convergence")
    if not means:
        return None
    palette = colours(means.texts("scenario"))
    mean, low, high = (
        points_by_name(means, "scenario", "replications", name, float)
        for name in ("mean", "low", "high")
    )
    marks: list[Mark] = [
        Area(upper=high[scenario], lower=low[scenario], colour=palette[scenario], opacity=0.2)
        for scenario in mean
    ]
    # Lines after areas, and so over them: an interval must not hide a mean.
    marks += [Line(points=mean[scenario], colour=palette[scenario]) for scenario in mean]
    columns = [means.numbers(name) for name in ("mean", "low", "high")]
    # Without a value an axis still needs a range.
    values = [value for value in itertools.chain(*columns) if value is not None]
    values = values or [0.0]
    # Room above and below, also where all values are one.
    spread = max(values) - min(values)
    margin = 0.05 * (spread or abs(values[0]) or 1.0)
    objective = Manifest.read(contents).objective
    label = f"mean {spoken(objective)}"
    panel = Panel(
        x=ratio_axis(means.totals("replications"), "replications"),
        y=even_axis(min(values) - margin, max(values) + margin, label),
        marks=marks,
        height=360.0,
    )
    title = "How sure the mean is, with its 95% interval"
    keys = {scenario: palette[scenario] for scenario in mean}
    return Picture(title=title, panels=[panel], keys=keys)


def bridge(contents: Contents) -> Picture | None:
    """Draw why a token costs more or less than in the baseline, by cause, one panel for each scenario."""
    table = contents.table("bridge")
    if not table:
        return None
    column = "difference_per_million_tokens_usd"
    panels = []
    sums = table.sums("scenario", "cause", column)
    for scenario, parts in sums.items():
        rows = [
            (cause.replace("_", " "), [(amount, 1 if amount > 0 else 2)])
            for cause, amount in parts.items()
        ]
        total = sum(parts.values())
        direction = "dearer" if total > 0 else "cheaper"
        title = f"{scenario}: {unit_price(abs(total))} {direction} than the baseline"
        # All panels have the scale of all differences.
        totals = table.totals(column)
        panels.append(swings(rows, 0.0, title, totals))
    return Picture(
        title="Why a token costs more or less than in the baseline",
        panels=panels,
        keys={"dearer": 1, "cheaper": 2},
        shape="square",
        note="USD per million tokens, shared among the causes.",
    )


def run_demand(contents: Contents) -> Figure | None:
    """Draw a run's demand against its capacity, with the months that miss the SLO target."""
    if not contents.table("timeline_monthly"):
        return None
    summary = RunSummary.read(contents)
    return demand_chart(contents, summary.verdict)


RUN_CHARTS: Mapping[str, Draw] = {
    "demand": run_demand,
    "power": power_chart,
    "utilisation": lambda contents: line_chart(contents, "utilisation"),
    "cost-per-token": lambda contents: line_chart(contents, "cost"),
    "money": money_chart,
    "losses": losses_chart,
}
PLANS_CHARTS: Mapping[str, Draw] = {
    "utilisation": lambda contents: line_chart(contents, "utilisation"),
    "cost-per-token": lambda contents: line_chart(contents, "cost"),
    "money": costs_picture,
    "losses": plan_losses,
}
"""Those of several plans side by side."""
STUDY_CHARTS: Mapping[str, Draw] = {
    "fan": fan,
    "histogram": lambda contents: histogram(contents, StudyResults.read(contents)),
    "tornado": lambda contents: tornado_picture(StudyResults.read(contents)),
    "convergence": convergence,
}
CHARTS: Mapping[str, Mapping[str, Draw]] = {
    "run": RUN_CHARTS,
    "comparison": {**PLANS_CHARTS, "bridge": bridge},
    "sweep": {"frontier": lambda contents: frontier_picture(contents, Manifest.read(contents))},
    "study": {**PLANS_CHARTS, **STUDY_CHARTS},
}
"""What draws each chart, by the kind of folder and the chart's file name."""


def figures_of(contents: Contents, charts: Mapping[str, Draw] | None = None) -> dict[str, Picture]:
    """Return the charts that a folder's contents allow, each with the folder's name in its title."""
    # Kinds that only their own rooms know have no charts here.
    if charts is None:
        charts = CHARTS.get(contents.kind, {})
    pictures = {}
    for name, draw in charts.items():
        figure = draw(contents)
        if figure is not None:
            picture = picture_of(figure)
            # The folder's name, since pictures are passed on without their page.
            pictures[name] = replace(picture, title=f"{picture.title}, {contents.name}")
    return pictures


def study_pictures(contents: Contents) -> dict[str, bytes]:
    """Return the PNG charts that a study writes beside its tables, as far as it has those tables."""
    pictures = figures_of(contents, STUDY_CHARTS)
    images = {}
    for name, picture in pictures.items():
        files = files_of(picture, ["png"])
        images[f"{name}.png"] = files["png"]
    return images


def write_charts(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw an output folder's charts into its folder ``charts`` and enter them in its manifest."""
    contents = read_contents(folder)
    files: dict[str, bytes] = {}
    with fitting(str(folder)):
        for name, picture in figures_of(contents).items():
            # A picture has a file for each format.
            by_format = files_of(picture, formats)
            # Paths within the folder, as its manifest names them.
            files |= {f"{FOLDER}/{name}.{suffix}": content for suffix, content in by_format.items()}
    if not files:
        message = "holds no timeline, ledger or losses to draw"
        raise ScenarioError(Problem(file=str(folder), message=message))
    change_files(folder, files)
    return [folder / name for name in files]
