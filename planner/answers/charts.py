"""Charts of an output folder as PNG and SVG files for slides: the report's own figures, and plans side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
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
    demand_chart,
    hits_chart,
    line_chart,
    power_chart,
)
from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.output.blocks import Figure, Picture, VerticalRule
from planner.output.folder import CHARTS as FOLDER
from planner.output.folder import Contents, fitting, read_contents
from planner.output.svg import (
    panel_of,
    picture_of,
    png_of,
    svg_of,
    swings,
)
from planner.output.words import unit_price

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
    """Draw a run's demand against its capacity, with its orders and when it runs out without them."""
    if not contents.table("timeline_monthly"):
        return None
    summary = RunSummary.read(contents)
    chart = demand_chart(contents, summary.verdict)
    if chart is None:
        return None
    orders = [marker for marker in chart.markers if marker.kind == "order"]
    # What falls on one day has one line, or its words would lie upon each other.
    words: dict[float, list[str]] = {}
    for number, marker in enumerate(orders, start=1):
        words.setdefault(marker.start, []).append(f"order {number}")
    run_out_day = None
    if summary.missed_without_orders is not None:
        run_out = date.fromisoformat(f"{summary.missed_without_orders}-01")
        run_out_day = (run_out - chart.start).days
        words.setdefault(run_out_day, []).append("runs out")
    rules = [
        VerticalRule(x=day, note=", ".join(of_day), is_dashed=day != run_out_day)
        for day, of_day in words.items()
    ]
    picture = picture_of(chart)
    panels = [replace(panel, marks=[*panel.marks, *rules]) for panel in picture.panels]
    return replace(picture, panels=panels)


RUN_CHARTS: Mapping[str, Draw] = {
    "demand": run_demand,
    "power": power_chart,
    "cache-hits": hits_chart,
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
CHARTS: Mapping[str, Mapping[str, Draw]] = {
    "run": RUN_CHARTS,
    "comparison": {**PLANS_CHARTS, "bridge": bridge},
    "sweep": {"frontier": lambda contents: frontier_picture(contents, Manifest.read(contents))},
    "study": {
        **PLANS_CHARTS,
        "fan": fan,
        "histogram": lambda contents: histogram(contents, StudyResults.read(contents)),
        "tornado": lambda contents: tornado_picture(StudyResults.read(contents)),
    },
}
"""What draws each chart, by the kind of folder and the chart's file name."""


def figures_of(contents: Contents) -> dict[str, Picture]:
    """Return the charts that a folder's contents allow, each with the folder's name in its title."""
    # Kinds that only their own rooms know have no charts here.
    pictures = {}
    for name, draw in CHARTS.get(contents.kind, {}).items():
        figure = draw(contents)
        if figure is not None:
            picture = picture_of(figure)
            # The folder's name, since pictures are passed on without their page.
            pictures[name] = replace(picture, title=f"{picture.title}, {contents.name}")
    return pictures


def write_charts(folder: Path) -> list[Path]:
    """Draw an output folder's charts into its folder ``charts`` and enter them in its manifest."""
    contents = read_contents(folder)
    files: dict[str, bytes] = {}
    with fitting(str(folder)):
        for name, picture in figures_of(contents).items():
            svg = svg_of(picture)
            # Paths within the folder, as its manifest names them.
            files |= {f"{FOLDER}/{name}.png": png_of(svg), f"{FOLDER}/{name}.svg": svg.encode()}
    if not files:
        message = "holds no timeline, ledger or losses to draw"
        raise ScenarioError(Problem(file=str(folder), message=message))
    change_files(folder, files)
    return [folder / name for name in files]
