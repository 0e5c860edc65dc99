"""A sweep as one tidy table and its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.output.columns import Column, ColumnKind, TableDescription, figure_column, text_column
from planner.output.csv_table import DEFAULT_FORMAT, CsvFormat, csv_files
from planner.output.folder import place_folder
from planner.output.judgement import COST, IN_TIME, choose, served, sweep_advice
from planner.output.plan_tables import evidence_tables
from planner.output.plan_workbooks import plain_pages
from planner.output.report.build import with_report
from planner.output.run_folder import scenario_sha256
from planner.output.text_table import signed, text_table, wrapped
from planner.output.workbook import Page, SheetChart, sheet_of, words, write_tables
from planner.run.measure_names import MEASURES, SERVICE
from planner.scenario.scenario import Scenario
from planner.studies.axes import Axis, number_of
from planner.studies.sweep import Point
from planner.units import MILLION, unit_of
from planner.version import __version__

MOST_POINTS = 5_000
"""Points listed in the workbook; the file has them all, and the sheet says so."""
SHOWN_ROWS = 40
"""Points printed to a terminal; the file has them all."""


def sweep_description(axes: Sequence[Axis]) -> TableDescription:
    """Return the columns of sweep.csv: the keys varied, how the plan served, every measure."""
    figures = (*SERVICE, *(measure.name for measure in MEASURES))
    return TableDescription(
        name="sweep",
        description="One row per combination, under the same random numbers. Measures are defined in "
        "docs/explanation/finance.md; they are empty where a combination is not a scenario, and `problem` says why.",
        key=tuple(axis.path for axis in axes),
        columns=(
            *(_axis_column(axis) for axis in axes),
            *(figure_column(name) for name in figures),
            text_column("problem", "Why the combination could not be run."),
        ),
    )


def _axis_column(axis: Axis) -> Column:
    """Return a column of numbers where all values are, of text otherwise."""
    numbers = [number_of(value) for value in axis.values]
    about = f"Value of {axis.path}."
    unit = unit_of(axis.path.rpartition(".")[2]) or ""
    if all(isinstance(number, int) for number in numbers):
        return Column(name=axis.path, kind=ColumnKind.INTEGER, description=about, unit=unit)
    if all(number is not None for number in numbers):
        decimals = max(len(value.partition(".")[2]) if "e" not in value.lower() else 9 for value in axis.values)
        return Column(name=axis.path, kind=ColumnKind.DECIMAL, description=about, unit=unit, decimals=decimals)
    return Column(name=axis.path, kind=ColumnKind.TEXT, description=about)


def sweep_rows(axes: Sequence[Axis], points: Sequence[Point]) -> dict[str, Any]:
    """Return the columns of sweep.csv."""
    description = sweep_description(axes)
    columns: dict[str, Any] = {}
    for place, axis in enumerate(axes):
        numeric = description.columns[place].kind is not ColumnKind.TEXT
        columns[axis.path] = [number_of(point.values[place]) if numeric else point.values[place] for point in points]
    for column in description.columns[len(axes) : -1]:
        figures = [None if point.figures is None else point.figures[column.name] for point in points]
        columns[column.name] = [None if figure is None else figure + 0.0 for figure in figures]  # −0 is 0
    columns["problem"] = [point.problem for point in points]
    return columns


def sweep_text(axes: Sequence[Axis], points: Sequence[Point]) -> str:
    """Lay out the best points for a terminal: those that keep their promise, cheapest first, then the others."""

    def cell(point: Point, name: str, pattern: str, scale: float = 1.0) -> str:
        value = None if point.figures is None else point.figures[name]
        return "" if value is None else signed(value / scale, pattern)

    named = [", ".join(f"{axis.path} = {value}" for axis, value in zip(axes, point.values, strict=True))
             for point in points]  # fmt: skip
    plans = [served(name, point.figures or {}) for name, point in zip(named, points, strict=True)]
    point_of = {id(plan): point for plan, point in zip(plans, points, strict=True)}
    choice = choose(plans)
    header = (*(axis.path.rpartition(".")[0].rpartition(".")[2] + "." + axis.path.rpartition(".")[2] for axis in axes),
              "promise", "in time", "levelised", "M USD", "utilised")  # fmt: skip
    rows = [
        (
            *point.values,
            plan.standing,
            cell(point, IN_TIME, ".2%"),
            cell(point, COST, ",.4f"),
            cell(point, "cost_usd", ",.2f", MILLION),
            cell(point, "utilisation_fraction", ".1%"),
        )
        for plan, point in ((plan, point_of[id(plan)]) for plan in choice.ranked[:SHOWN_ROWS])
    ]
    lines = [text_table([title.lstrip(".") for title in header], rows)]
    if len(points) > SHOWN_ROWS:
        lines.append(f"and {len(points) - SHOWN_ROWS} more in sweep.csv")
    failed = [point for point in points if point.problem]
    if failed:
        lines.append(f"{len(failed)} of {len(points)} combinations could not be run; the first: {failed[0].problem}")
    return "\n".join([*lines, "", *wrapped([sweep_advice(choice)])])


def _workbook(scenario: Scenario, axes: Sequence[Axis], shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the workbook: every point with its measures, what is assumed, and the cost of the first points drawn."""
    charts = [
        SheetChart(
            title=words(name),
            columns=(name,),
            kind="column" if len(axes) > 1 else "line",
            last=last,
            across_columns=len(axes),
        )
        for name in (COST, IN_TIME)
        if (last := min(len(shown["sweep"]["problem"]), SHOWN_ROWS))
    ]
    points = Page(
        table=sheet_of(shown["sweep"], MOST_POINTS), charts=tuple(charts),
        note="One run of each point under the same random numbers; run planner montecarlo for percentiles.",
    )  # fmt: skip
    pages = {"Sweep": points, **plain_pages({"Assumptions": shown["assumptions"]})}
    return write_tables(f"{scenario.name}: sweep", scenario.start, pages)


def write_sweep(
    scenario: Scenario,
    axes: Sequence[Axis],
    points: Sequence[Point],
    folder: Path,
    manifest: dict[str, Any],
    form: CsvFormat = DEFAULT_FORMAT,
) -> None:
    """Write a sweep's folder, whole or not at all; the caller holds its lock and has checked it."""
    description = sweep_description(axes)
    tables = [(description, sweep_rows(axes, points)), *evidence_tables({scenario.name: scenario})]
    files = csv_files("sweep", tables, form)
    files["workbook.xlsx"] = _workbook(scenario, axes, {table.name: columns for table, columns in tables})
    identity = {
        "kind": "sweep",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_sha256": scenario_sha256(scenario),
        "promise": scenario.promise.model_dump(),
        "vary": {axis.path: list(axis.values) for axis in axes},
    }
    identified = identity | manifest
    place_folder(folder, with_report(files, identified), identified)
