"""Charts of an output folder as PNG and SVG files for slides: the report's own figures, and plans side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from planner.answers import run_report
from planner.answers.comparison_report import costs_picture, frontier_picture, side_by_side
from planner.answers.run_report import LOSSES, node_hours
from planner.answers.study_report import fan_charts, histogram, objective_of, tornado_picture
from planner.answers.timelines import by_name, colours, demand_chart, line_chart, power_chart
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


def money(contents: Contents) -> Figure | None:
    """Draw accrued cost: of one plan by account and month, of several by scenario and account."""
    return costs_picture(contents) if contents.plans else run_report.money_chart(contents)


def losses(contents: Contents) -> Figure | None:
    """Draw node-hours lost by cause: of one plan by month, of several side by side as shares."""
    if not contents.plans:
        return run_report.losses_chart(contents)
    layers: dict[str, dict[str, float]] = {}
    for plan in contents.plans:
        hours = (node_hours(contents.of_plan(plan)) or {}).values()
        total = sum(sum(row.values()) for row in hours) or 1.0
        for name in (name for column, name in LOSSES.items() if column.startswith("lost_")):
            layers.setdefault(name, {})[plan] = 100 * sum(row[name] for row in hours) / total
    return side_by_side("Where capacity was lost", layers, "node-hours on site, %", 1)


def fan(contents: Contents) -> Figure | None:
    """Draw monthly medians with bands from P10 to P90 and, paler, P5 to P95."""
    if not (charts := fan_charts(contents, [("p5", "p95"), ("p10", "p90")], "")):
        return None
    title, drawn = (
        "By month: median, P10 to P90, P5 to P95",
        [panel_of(one, one.title, height=230.0) for one in charts],
    )
    return Picture(
        title=title, panels=drawn, keys={series.name: series.colour for series in charts[0].series}
    )


def convergence(contents: Contents) -> Figure | None:
    """Draw the headline's mean against the number of replications, with its interval."""
    if not (means := contents.table("convergence")):
        return None
    palette = colours(means.texts("scenario"))
    mean, low, high = (
        by_name(means, "scenario", "replications", name, float) for name in ("mean", "low", "high")
    )
    marks: list[Mark] = [
        Area(upper=high[s], lower=low[s], colour=palette[s], opacity=0.2) for s in mean
    ]
    marks += [Line(points=mean[s], colour=palette[s]) for s in mean]
    values = [
        v
        for edges in (mean, low, high)
        for line in edges.values()
        for _, v in line
        if v is not None
    ] or [0.0]
    room = 0.05 * ((max(values) - min(values)) or abs(values[0]) or 1.0)
    y = even_axis(min(values) - room, max(values) + room, f"mean {spoken(objective_of(contents))}")
    x = ratio_axis(means.totals("replications"), "replications")
    title = "How sure the mean is, with its 95% interval"
    panel = Panel(x=x, y=y, marks=marks, height=360.0)
    return Picture(title=title, panels=[panel], keys={s: palette[s] for s in mean})


def bridge(contents: Contents) -> Figure | None:
    """Draw why a token costs more or less than in the baseline, by cause, one panel for each scenario."""
    if not (table := contents.table("bridge")):
        return None
    column = "difference_per_million_tokens_usd"
    drawn = []
    for scenario, parts in table.sums("scenario", "cause", column).items():
        rows = [
            (cause.replace("_", " "), [(part, 1 if part > 0 else 2)])
            for cause, part in parts.items()
        ]
        total = sum(parts.values())
        title = f"{scenario}: {unit_price(abs(total))} {'dearer' if total > 0 else 'cheaper'} than the baseline"
        drawn.append(swings(rows, 0.0, title, table.totals(column)))
    title = "Why a token costs more or less than in the baseline"
    note = "USD per million tokens, shared among the causes."
    return Picture(
        title=title, panels=drawn, keys={"dearer": 1, "cheaper": 2}, shape="square", note=note
    )


STUDY_CHARTS: dict[str, Draw] = {
    "fan": fan,
    "histogram": histogram,
    "tornado": tornado_picture,
    "convergence": convergence,
}
CHARTS: dict[str, Draw] = {
    "demand": lambda contents: None if contents.plans else demand_chart(contents),
    "power": lambda contents: None if contents.plans else power_chart(contents),
    "frontier": frontier_picture,
    "utilisation": lambda contents: line_chart(contents, "utilisation"),
    "cost-per-token": lambda contents: line_chart(contents, "cost"),
    "money": money,
    "losses": losses,
    "bridge": bridge,
    **STUDY_CHARTS,
}
"""File name to what draws it."""


def figures_of(contents: Contents, names: Sequence[str] = tuple(CHARTS)) -> dict[str, Picture]:
    """Return the charts that a folder's contents allow, each with the folder's name in its title."""
    drawn = {name: CHARTS[name](contents) for name in names}
    pictures = {name: picture_of(figure) for name, figure in drawn.items() if figure is not None}
    return {
        name: replace(picture, title=f"{picture.title}, {contents.name}")
        for name, picture in pictures.items()
    }


def study_pictures(contents: Contents) -> dict[str, bytes]:
    """Return the PNG charts that a study writes beside its tables, as far as it has those tables."""
    drawn = figures_of(contents, tuple(STUDY_CHARTS))
    return {f"{name}.png": files_of(picture, ["png"])["png"] for name, picture in drawn.items()}


def write_charts(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw an output folder's charts into its folder ``charts`` and enter them in its manifest."""
    contents = read_contents(folder)
    with fitting(str(folder)):
        drawn = {
            f"{FOLDER}/{name}.{suffix}": content
            for name, picture in figures_of(contents).items()
            for suffix, content in files_of(picture, formats).items()
        }
    if not drawn:
        raise ScenarioError(
            Problem(file=str(folder), message="holds no timeline, ledger or losses to draw")
        )
    change_files(folder, drawn)
    return [folder / name for name in drawn]
