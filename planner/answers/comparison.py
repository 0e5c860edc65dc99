"""Plans side by side as an answer, a comparison or a sweep: tables, summary, what the terminal says, and the folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.answers import judgement
from planner.answers.answer import Answer
from planner.answers.plan_workbooks import bridge_page, comparison_page, months_pages, plain_pages, statements_page
from planner.answers.report import answer_files
from planner.answers.run import (
    chance_summary,
    command_again,
    common_overrides,
    evidence_tables,
    plan_tables,
    promise_summary,
    scenario_sha256,
)
from planner.answers.tables import figure_column, tables_of
from planner.finance.bridge import CAUSES, PLAN_CAUSE_MEANINGS, PLAN_CAUSES
from planner.finance.present_value import cumulative_per_million_tokens, per_million_tokens
from planner.output.folder import WORKBOOK, Contents, place_folder, write_folder
from planner.output.tables import (
    DEFAULT_FORMAT,
    SCHEMA_VERSION,
    Column,
    ColumnKind,
    CsvFormat,
    Table,
    TableDescription,
    text_column,
)
from planner.output.terminal import signed, text_table, wrapped
from planner.output.workbook import Page, SheetChart, words, write_tables
from planner.run.measure_names import DRAWS, MEASURES, SERVICE
from planner.run.measures import series_of
from planner.run.replications import ends_of
from planner.scenario.scenario import Scenario
from planner.studies.compare import Comparison
from planner.studies.sweep import SweepAxis, SweepPoint, number_of, warnings_of_points
from planner.units import MILLION, unit_of
from planner.version import __version__

COMPARISON_TABLES = tables_of(
    "compare",
    causes=", ".join(CAUSES),
    plan_causes=" ".join(f"{cause}: {meaning}" for cause, meaning in PLAN_CAUSE_MEANINGS.items()),
)
"""The files in which plans are held against a baseline, by their names."""
MOST_POINTS = 5_000
"""Points listed in the workbook; the file has them all, and the sheet says so."""
SHOWN_ROWS = 40
"""Points printed to a terminal; the file has them all."""


def comparison_rows(comparison: Comparison) -> Table:
    """Return comparison.csv."""
    base, first = comparison.figures[comparison.baseline], comparison.chances[comparison.baseline]
    rows: list[tuple[Any, ...]] = []
    for name, figures, chance in zip(comparison.names, comparison.figures, comparison.chances, strict=True):
        for measure, value in figures.items():
            drawn = measure in chance.figures[0]
            band = chance.interval(measure) if drawn else None
            apart = chance.difference(measure, first) if drawn and chance is not first else None
            reference = base[measure]
            difference = value - reference if value is not None and reference is not None else None
            share = difference / abs(reference) if difference is not None and reference else None
            held = (name, measure, value, unit_of(measure) or "", reference, difference, share)
            rows.append((*held, *ends_of(band), *ends_of(apart)))
    return COMPARISON_TABLES["comparison"].of_rows(rows)


def held_tables(comparison: Comparison) -> list[Table]:
    """Return the tables in which the plans are held against the baseline, which itself has no bridge."""
    bridge = COMPARISON_TABLES["bridge"].of_rows(
        (name, cause, *(part[cause] for part in parts))
        for name, parts in comparison.others(comparison.bridges)
        for cause in CAUSES
    )
    dollars = COMPARISON_TABLES["bridge_usd"].of_rows(
        (name, cause, cents) for name, parts in comparison.others(comparison.dollars) for cause, cents in parts.items()
    )
    return [comparison_rows(comparison), bridge, dollars, _monthly_rows(comparison)]


def _monthly_rows(comparison: Comparison) -> Table:
    """Return comparison_monthly.csv."""
    series = {name: series_of(result) for name, result in zip(comparison.names, comparison.results, strict=True)}
    base = series[comparison.names[comparison.baseline]].cash_flow_usd
    columns = {
        name: (
            months.accrued_usd.tolist(),
            months.cash_flow_usd.tolist(),
            (months.cash_flow_usd - base).tolist(),
            months.tokens.tolist(),
            per_million_tokens(months.accrued_usd, months.tokens).tolist(),
            cumulative_per_million_tokens(months.accrued_usd, months.tokens).tolist(),
        )
        for name, months in series.items()
    }
    return COMPARISON_TABLES["comparison_monthly"].of_rows(
        (label, name, *(figure[month] for figure in figures))
        for month, label in enumerate(comparison.results[0].plan.months.labels)
        for name, figures in columns.items()
    )


def comparison_summary(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON: measures, bridges, promises, what chance moves, warnings."""
    names, base = comparison.names, comparison.chances[comparison.baseline]
    chances = dict(zip(names, comparison.chances, strict=True))
    savings = {name: chance.saving(judgement.COST, base) for name, chance in chances.items() if chance is not base}
    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": names[comparison.baseline],
        "seed": comparison.results[0].seed,
        "scenarios": {
            name: {measure: None if value is None else _rounded(value) for measure, value in figures.items()}
            for name, figures in zip(names, comparison.figures, strict=True)
        },
        "bridge_per_million_tokens_usd": {
            name: {cause: round(part, 9) for cause, part in parts[0].items()}
            for name, parts in comparison.others(comparison.bridges)
        },
        "bridge_usd": {
            name: {cause: cents / 100 for cause, cents in parts.items()}
            for name, parts in comparison.others(comparison.dollars)
        },
        "promise": {
            result.scenario.name: promise_summary(result, chance)
            for result, chance in zip(comparison.results, comparison.chances, strict=True)
        },
        "chance": {name: chance_summary(chance) for name, chance in chances.items()},
        "saving_interval_fraction": {
            name: [_rounded(saving.low), _rounded(saving.high)]
            for name, saving in savings.items()
            if saving is not None
        },
        "warnings": list(comparison.warnings),
        "notes": list(comparison.notes),
    }


def _rounded(number: float) -> float:
    return round(number, 6) + 0.0  # −0 is 0


def comparison_table(comparison: Comparison) -> str:
    """Lay the comparison out for a terminal of 80 columns: the plans, which to take, and why they differ."""
    summary, figures_of = comparison_summary(comparison), dict(zip(comparison.names, comparison.figures, strict=True))
    plans = judgement.plans_of(figures_of, summary["promise"])
    base, choice = plans[comparison.baseline], judgement.choose(plans)
    rows = []
    for plan in choice.ranked:
        figures = figures_of[plan.name]
        change = plan.cost / base.cost - 1.0 if judgement.comparable(plan, base) and plan.cost and base.cost else None
        cells = (
            _cell(plan.in_time_fraction, ".2%"),
            _cell(plan.cost, ",.4f"),
            _cell(change, "+.1%"),
            _cell(figures["cost_per_million_tokens_usd"], ",.4f"),
            _cell(figures["cost_usd"], ",.2f", MILLION),
            _cell(figures["npv_usd"], ",.2f", MILLION),
        )
        rows.append((plan.name[:15], plan.standing, *cells))
    header = ("scenario", "promise", "in time", "levelised", "change", "USD/Mtok", "M USD", "NPV M USD")
    first = wrapped(judgement.much_shed(plans))
    advice = [judgement.recommendation(plans, base.name, summary)]
    advice += judgement.warnings_of(choice) if choice.best else []
    lines = [*first, *([""] if first else []), text_table(header, rows), "", *wrapped(advice)]
    savings = summary["saving_interval_fraction"]
    spans = [
        f"{plan.name} costs {judgement.change_words(-low)} to {judgement.change_words(-high)} a token"
        for plan in plans
        if plan.name in savings and judgement.comparable(plan, base)
        for low, high in [savings[plan.name]]
    ]
    if spans:
        chance = f"in {comparison.chances[0].words}, inputs as stated, against {base.name}: "
        lines += wrapped([chance + ", ".join(spans)])
    return "\n".join([*lines, *_bridge_lines(comparison)])


def _cell(value: float | None, pattern: str, scale: float = 1.0) -> str:
    return "" if value is None else signed(value / scale, pattern)


def _bridge_lines(comparison: Comparison) -> list[str]:
    """Lay out why a token, and the whole, costs more or less than in the baseline."""
    bridges = comparison.others(comparison.bridges)
    if not bridges:
        return []
    steps = [
        (name[:15], *(f"{parts[0][cause]:+.4f}" if round(parts[0][cause], 4) else "0" for cause in CAUSES))
        for name, parts in bridges
    ]
    short = ("scenario", "price", "through", "power", "software", "failing", "utilised", "people")
    amounts = [
        (name[:15], *(_cell(cents / 100, "+,.3f", MILLION) for cents in (*parts.values(), sum(parts.values()))))
        for name, parts in comparison.others(comparison.dollars)
    ]
    return [
        "",
        f"USD per million tokens against {comparison.names[comparison.baseline]}, by cause:",
        text_table(short, steps),
        "",
        "M USD over the horizon, by cause:",
        text_table(("scenario", *PLAN_CAUSES, "sum"), amounts),
    ]


def write_comparison(comparison: Comparison, folder: Path, form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write a comparison's folder, whole or not at all."""
    results = dict(zip(comparison.names, comparison.results, strict=True))
    scenarios = {name: result.scenario for name, result in results.items()}
    tables = _by_name([*held_tables(comparison), *plan_tables(results), *evidence_tables(scenarios)])
    baseline, seed, draws = (
        comparison.names[comparison.baseline],
        comparison.results[0].seed,
        comparison.chances[0].draws,
    )
    options = ["--baseline", baseline, "--seed", str(seed), *([] if draws == DRAWS else ["--draws", str(draws)])]
    manifest = {
        "kind": "comparison",
        "version": __version__,
        "scenarios": {name: scenario_sha256(scenario) for name, scenario in scenarios.items()},
        "baseline": baseline,
        "overrides": list(common_overrides([*scenarios.values()]) or ()),
        "seed": seed,
        "draws": draws,
        "command": command_again("compare", [*scenarios.values()], [*options, *form.options]),
    }
    contents = Contents(manifest=manifest, tables=tables, summary=comparison_summary(comparison))
    workbook = _comparison_workbook(comparison, {name: table.columns for name, table in tables.items()})
    write_folder(folder, answer_files(contents, "comparison", form, {WORKBOOK: workbook}), manifest)


def _by_name(tables: Iterable[Table]) -> dict[str, Table]:
    return {table.name: table for table in tables}


def _comparison_workbook(comparison: Comparison, shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the workbook: the plans side by side, why they differ, percentiles by month, statements by year."""
    names, plan = comparison.names, comparison.results[0].plan
    pages = {
        "Comparison": comparison_page(names, comparison.figures, comparison.baseline),
        **bridge_page(shown["bridge_usd"]),
        **plain_pages({"Bridge, per token": shown["bridge"]}),
        **months_pages(plan.months.labels, dict(zip(names, comparison.chances, strict=True))),
        **statements_page(dict(zip(names, comparison.results, strict=True))),
        **plain_pages({"Timeline": shown["comparison_monthly"], "Assumptions": shown["assumptions"]}),
    }
    return write_tables(" against ".join(names), plan.start, pages)


def sweep_description(axes: Sequence[SweepAxis]) -> TableDescription:
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


def _axis_column(axis: SweepAxis) -> Column:
    """Return a column of numbers where all values are, of text otherwise."""
    numbers = [number_of(value) for value in axis.values]
    about = f"Value of {axis.path}."
    unit = unit_of(axis.path.rpartition(".")[2]) or ""
    if all(isinstance(number, int) for number in numbers):
        return Column(name=axis.path, kind=ColumnKind.INTEGER, description=about, unit=unit)
    if all(number is not None for number in numbers):
        decimals = max(len(value.partition(".")[2]) if "e" not in value.lower() else 9 for value in axis.values)
        return Column(name=axis.path, kind=ColumnKind.DECIMAL, description=about, unit=unit, decimals=decimals)
    return text_column(axis.path, about)


def sweep_rows(axes: Sequence[SweepAxis], points: Sequence[SweepPoint]) -> Table:
    """Return sweep.csv."""
    description = sweep_description(axes)
    varied, measured = description.columns[: len(axes)], description.columns[len(axes) : -1]
    rows: list[tuple[Any, ...]] = []
    for point in points:
        values = (
            value if column.kind is ColumnKind.TEXT else number_of(value)
            for column, value in zip(varied, point.values, strict=True)
        )
        figures = [None if point.figures is None else point.figures[column.name] for column in measured]
        rows.append(
            (*values, *(None if figure is None else figure + 0.0 for figure in figures), point.problem)
        )  # −0 is 0
    return description.of_rows(rows)


def sweep_text(axes: Sequence[SweepAxis], points: Sequence[SweepPoint]) -> str:
    """Lay out the best points for a terminal: those that keep their promise, cheapest first, then the others."""
    paths = [axis.path for axis in axes]
    named = {
        ", ".join(f"{path} = {value}" for path, value in zip(paths, point.values, strict=True)): point
        for point in points
    }
    choice = judgement.choose([judgement.served(name, point.figures or {}) for name, point in named.items()])
    rows = []
    for plan in choice.ranked[:SHOWN_ROWS]:
        point = named[plan.name]
        figures = point.figures or {}
        cells = (
            _cell(figures.get(judgement.IN_TIME), ".2%"),
            _cell(figures.get(judgement.COST), ",.4f"),
            _cell(figures.get("cost_usd"), ",.2f", MILLION),
            _cell(figures.get("utilisation_fraction"), ".1%"),
        )
        rows.append((*point.values, plan.standing, *cells))
    titles = [".".join(path.split(".")[-2:]) for path in paths]
    lines = [text_table((*titles, "promise", "in time", "levelised", "M USD", "utilised"), rows)]
    if len(points) > SHOWN_ROWS:
        lines.append(f"and {len(points) - SHOWN_ROWS} more in sweep.csv")
    failed = [point for point in points if point.problem]
    if failed:
        lines.append(f"{len(failed)} of {len(points)} combinations could not be run; the first: {failed[0].problem}")
    return "\n".join([*lines, "", *wrapped([judgement.sweep_advice(choice)])])


def write_sweep(
    scenario: Scenario,
    axes: Sequence[SweepAxis],
    points: Sequence[SweepPoint],
    folder: Path,
    manifest: Mapping[str, Any],
    form: CsvFormat = DEFAULT_FORMAT,
) -> None:
    """Write a sweep's folder, whole or not at all; the caller holds its lock and has checked it."""
    tables = _by_name([sweep_rows(axes, points), *evidence_tables({scenario.name: scenario})])
    identity = {
        "kind": "sweep",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_sha256": scenario_sha256(scenario),
        "promise": scenario.promise.model_dump(),
        "vary": {axis.path: list(axis.values) for axis in axes},
        **manifest,
    }
    contents = Contents(manifest=identity, tables=tables)
    workbook = _sweep_workbook(scenario, axes, {name: table.columns for name, table in tables.items()})
    place_folder(folder, answer_files(contents, "sweep", form, {WORKBOOK: workbook}), identity)


def _sweep_workbook(scenario: Scenario, axes: Sequence[SweepAxis], shown: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the workbook: every point with its measures, what is assumed, and the cost of the first points drawn."""
    charts = [
        SheetChart(
            title=words(name),
            columns=(name,),
            kind="column" if len(axes) > 1 else "line",
            last=last,
            across_columns=len(axes),
        )
        for name in (judgement.COST, judgement.IN_TIME)
        if (last := min(len(shown["sweep"]["problem"]), SHOWN_ROWS))
    ]
    note = "One run of each point under the same random numbers; run planner montecarlo for percentiles."
    points = Page.of(shown["sweep"], most=MOST_POINTS, charts=tuple(charts), note=note)
    pages = {"Sweep": points, **plain_pages({"Assumptions": shown["assumptions"]})}
    return write_tables(f"{scenario.name}: sweep", scenario.start, pages)


def comparison_answer(folder: Path, comparison: Comparison) -> Answer[Comparison]:
    """Return a comparison as an answer."""
    return Answer(
        folder=folder,
        result=comparison,
        warnings=comparison.warnings,
        notes=comparison.notes,
        summarise=lambda: comparison_summary(comparison),
        say=lambda _: comparison_table(comparison),
        rows=lambda: comparison_rows(comparison),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Every combination of some values."""

    axes: tuple[SweepAxis, ...]
    """The keys that were varied, with their values."""
    points: tuple[SweepPoint, ...]
    """Each combination and what came of it, the last axis moving fastest."""

    def frontier(self) -> list[int]:
        """Return the points that no other beats in both levelised cost and the worst share in time, cheapest first."""
        plans = [judgement.served(str(place), point.figures or {}) for place, point in enumerate(self.points)]
        return [int(plan.name) for plan in judgement.frontier(plans)]


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
