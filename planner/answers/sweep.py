"""A sweep as an answer: its table, what the terminal says of it, and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from planner.answers.answer import Answer
from planner.answers.identity import scenario_sha256
from planner.answers.json_records import Json
from planner.answers.plan_workbooks import plain_pages
from planner.answers.ranking import ATTAINMENT, COST, frontier, rank, ranked_plan
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables
from planner.answers.sentences import sweep_advice
from planner.answers.tables import figure_column
from planner.finance.measure_names import MEASURES, SERVICE
from planner.output.folder import WORKBOOK, Contents, place_folder
from planner.output.tables import Column, ColumnKind, Table, TableDescription
from planner.output.terminal import cell, text_table, wrapped
from planner.output.workbook import Page, SheetChart, words, write_tables
from planner.records import record
from planner.scenario.scenario import Scenario
from planner.studies.sweep import SweepAxis, SweepPoint, number_of, warnings_of_points
from planner.units import MILLION, unit_of
from planner.version import __version__

MAX_ROWS = 40
"""Points printed to a terminal, and drawn in the workbook; the file has them all."""
MAX_SHEET_ROWS = 5_000
EXPONENT_DECIMALS = 9
"""Decimals of a value that is written with an exponent, which does not tell them."""


@record
class Sweep:
    """Every combination of some values."""

    axes: tuple[SweepAxis, ...]
    """The keys that were varied, with their values."""
    points: tuple[SweepPoint, ...]
    """Each combination and what came of it, the last axis moving fastest."""

    def frontier(self) -> list[int]:
        """Return the points that no other beats in both levelised cost and lowest SLO attainment, cheapest first."""
        plans = [
            ranked_plan(str(place), point.figures or {}) for place, point in enumerate(self.points)
        ]
        return [int(plan.name) for plan in frontier(plans)]


def axis_column(axis: SweepAxis) -> Column:
    """Return the column of a key that is varied: of numbers where all its values are."""
    numbers = [number_of(value) for value in axis.values]
    kind = ColumnKind.TEXT
    unit = ""
    # One word among the values makes a column of words.
    if None not in numbers:
        is_whole = all(isinstance(number, int) for number in numbers)
        kind = ColumnKind.INTEGER if is_whole else ColumnKind.DECIMAL
        unit = unit_of(axis.path.rpartition(".")[2]) or ""
    decimals = [
        EXPONENT_DECIMALS if "e" in value.lower() else len(value.partition(".")[2])
        for value in axis.values
    ]
    description = f"Value of {axis.path}."
    return Column(
        name=axis.path, kind=kind, description=description, unit=unit, decimals=max(decimals)
    )


def sweep_description(axes: Sequence[SweepAxis]) -> TableDescription:
    """Return the columns of sweep.csv: the keys varied, service, every measure, and why a point could not be run."""
    # Service first: a cost is worth nothing where nobody is served.
    names = [*SERVICE, *(measure.name for measure in MEASURES)]
    figures = map(figure_column, names)
    problem = Column(
        name="problem", kind=ColumnKind.TEXT, description="Why the combination could not be run."
    )
    return TableDescription(
        name="sweep",
        description="One row per combination, all under the same random numbers. docs/explanation/finance.md defines "
        "the measures. They are empty if a combination could not be run; `problem` then has the reason.",
        key=tuple(axis.path for axis in axes),
        columns=(*map(axis_column, axes), *figures, problem),
    )


def sweep_rows(axes: Sequence[SweepAxis], points: Sequence[SweepPoint]) -> Table:
    """Return sweep.csv."""
    description = sweep_description(axes)
    axis_columns = description.columns[: len(axes)]
    figure_columns = description.columns[len(axes) : -1]
    rows = []
    for point in points:
        settings = [
            value if column.kind is ColumnKind.TEXT else number_of(value)
            for column, value in zip(axis_columns, point.values, strict=True)
        ]
        figures = []
        for column in figure_columns:
            figure = (point.figures or {}).get(column.name)
            figures.append(None if figure is None else figure + 0.0)  # −0 is 0
        rows.append((*settings, *figures, point.problem))
    return description.of_rows(rows)


def sweep_text(axes: Sequence[SweepAxis], points: Sequence[SweepPoint]) -> str:
    """Lay out the best points for a terminal: the SLO target met, cheapest first; then missed, by how far."""
    paths = [axis.path for axis in axes]
    points_by_name = {}
    for point in points:
        settings = zip(paths, point.values, strict=True)
        points_by_name[", ".join(f"{path} = {value}" for path, value in settings)] = point
    ranking = rank(
        [ranked_plan(name, point.figures or {}) for name, point in points_by_name.items()]
    )
    rows = []
    for plan in ranking.plans[:MAX_ROWS]:
        point = points_by_name[plan.name]
        figures = point.figures or {}
        rows.append(
            (
                *point.values,
                plan.standing,
                cell(figures.get(ATTAINMENT), ".2%"),
                cell(figures.get(COST), ",.4f"),
                cell(figures.get("cost_usd"), ",.2f", MILLION),
                cell(figures.get("utilisation_fraction"), ".1%"),
            )
        )
    # The last two keys tell columns apart, and leave room for figures.
    titles = []
    for path in paths:
        keys = path.split(".")
        titles.append(".".join(keys[-2:]))
    header = (*titles, "base case", "attained", "levelised", "M USD", "utilised")
    lines = [text_table(header, rows)]
    if len(points) > MAX_ROWS:
        lines.append(f"and {len(points) - MAX_ROWS} more in sweep.csv")
    # A combination may contradict itself; the others are no less true for that.
    failed = [point for point in points if point.problem]
    if failed:
        lines.append(
            f"{len(failed)} of {len(points)} combinations could not be run; the first: {failed[0].problem}"
        )
    advice = wrapped([sweep_advice(ranking)])
    return "\n".join([*lines, "", *advice])


def write_sweep(
    scenario: Scenario,
    axes: Sequence[SweepAxis],
    points: Sequence[SweepPoint],
    folder: Path,
    manifest: Json,
) -> None:
    """Write a sweep's folder, whole or not at all; the caller holds its lock and has checked it."""
    tables = {
        table.name: table
        for table in (sweep_rows(axes, points), *evidence_tables({scenario.name: scenario}))
    }
    identity = {
        "kind": "sweep",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_sha256": scenario_sha256(scenario),
        "slo_target": scenario.slo_target.model_dump(),
        "vary": {axis.path: list(axis.values) for axis in axes},
        **manifest,
    }
    charts = tuple(
        SheetChart(
            title=words(name),
            columns=(name,),
            kind="column" if len(axes) > 1 else "line",
            last=min(len(points), MAX_ROWS),
            across_columns=len(axes),
        )
        for name in (COST, ATTAINMENT)
    )
    note = "Each point was run once, all under the same random numbers. For percentiles: planner montecarlo."
    sheet = Page.of(tables["sweep"].columns, most=MAX_SHEET_ROWS, charts=charts, note=note)
    assumptions = plain_pages({"Assumptions": tables["assumptions"].columns})
    pages = {"Sweep": sheet, **assumptions}
    workbook = write_tables(f"{scenario.name}: sweep", scenario.start, pages)
    contents = Contents(manifest=identity, tables=tables)
    place_folder(folder, answer_files(contents, "sweep", {WORKBOOK: workbook}), identity)


def sweep_answer(folder: Path, sweep: Sweep) -> Answer[Sweep]:
    """Return a sweep as an answer."""
    return Answer(
        folder=folder,
        result=sweep,
        warnings=warnings_of_points(sweep.points),
        summarise=lambda: sweep_rows(sweep.axes, sweep.points).records(),
        say=lambda _: sweep_text(sweep.axes, sweep.points),
        rows=lambda: sweep_rows(sweep.axes, sweep.points),
    )
