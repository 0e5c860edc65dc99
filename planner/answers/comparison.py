"""Plans side by side as an answer, a comparison or a sweep: tables, summary, what the terminal says, and the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.answers import judgement, run
from planner.answers.answer import Answer
from planner.answers.futures import futures_lines, futures_table
from planner.answers.plan_workbooks import (
    bridge_page,
    comparison_page,
    months_pages,
    plain_pages,
    statements_page,
)
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables, plan_tables, rounded, scenario_sha256
from planner.answers.tables import figure_column, tables_of
from planner.finance.bridge import CAUSES, PLAN_CAUSE_MEANINGS, PLAN_CAUSES, account_bridge
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
)
from planner.output.terminal import cell, text_table, wrapped
from planner.output.workbook import Page, SheetChart, words, write_tables
from planner.run.measure_names import DRAWS, MEASURES, SERVICE
from planner.run.measures import present_parts, series_of
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
SHOWN_ROWS = 40
"""Points printed to a terminal; the file has them all."""


def comparison_rows(comparison: Comparison) -> Table:
    """Return comparison.csv."""
    base = comparison.figures[comparison.baseline]
    first = comparison.chances[comparison.baseline]
    rows: list[tuple[Any, ...]] = []
    for name, figures, chance in zip(
        comparison.names, comparison.figures, comparison.chances, strict=True
    ):
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
        (name, cause, cents)
        for name, parts in comparison.others(comparison.dollars)
        for cause, cents in parts.items()
    )
    before = present_parts(comparison.results[comparison.baseline])
    accounts = COMPARISON_TABLES["bridge_accounts"].of_rows(
        (name, *row)
        for name, after in comparison.others(map(present_parts, comparison.results))
        for row in account_bridge(before, after)
    )
    base = series_of(comparison.results[comparison.baseline]).cash_flow_usd
    monthly = {}
    for name, result in zip(comparison.names, comparison.results, strict=True):
        months = series_of(result)
        cost = months.accrued_usd
        tokens = months.tokens
        cash = months.cash_flow_usd
        unit_costs = per_million_tokens(cost, tokens), cumulative_per_million_tokens(cost, tokens)
        monthly[name] = [
            figures.tolist() for figures in (cost, cash, cash - base, tokens, *unit_costs)
        ]
    by_month = COMPARISON_TABLES["comparison_monthly"].of_rows(
        (label, name, *(figure[month] for figure in figures))
        for month, label in enumerate(comparison.results[0].plan.months.labels)
        for name, figures in monthly.items()
    )
    return [
        comparison_rows(comparison),
        bridge,
        dollars,
        accounts,
        by_month,
        *in_futures(comparison),
    ]


def in_futures(comparison: Comparison) -> list[Table]:
    """Return the plans in each future as a table; none where no future is named."""
    return (
        [futures_table(COMPARISON_TABLES["futures"], comparison.futures)]
        if comparison.futures
        else []
    )


def comparison_summary(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON: measures, bridges, verdicts, intervals, warnings."""
    names = comparison.names
    base = comparison.chances[comparison.baseline]
    savings = {
        name: ends_of(saving)
        for name, chance in zip(names, comparison.chances, strict=True)
        if chance is not base and (saving := chance.saving(judgement.COST, base)) is not None
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": names[comparison.baseline],
        "seed": comparison.results[0].seed,
        "scenarios": {
            name: {
                measure: None if value is None else rounded(value)
                for measure, value in figures.items()
            }
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
        "verdicts": dict(
            zip(
                names, map(run.verdict_summary, comparison.results, comparison.chances), strict=True
            )
        ),
        "replications": dict(
            zip(names, map(run.replications_summary, comparison.chances), strict=True)
        ),
        "saving_interval_fraction": {
            name: [rounded(end or 0.0) for end in ends] for name, ends in savings.items()
        },
        **{table.name: table.records() for table in in_futures(comparison)},
        "warnings": list(comparison.warnings),
        "notes": list(comparison.notes),
    }


def comparison_table(comparison: Comparison, *, verbose: bool = False) -> str:
    """Lay the comparison out for a terminal: which plan to take, the plans, and with details why they differ."""
    summary = comparison_summary(comparison)
    figures_of = dict(zip(comparison.names, comparison.figures, strict=True))
    plans = judgement.plans_of(figures_of, summary["verdicts"])
    base = plans[comparison.baseline]
    choice = judgement.choose(plans)
    rows = []
    for plan in choice.ranked:
        figures = figures_of[plan.name]
        change = (
            plan.cost / base.cost - 1.0
            if judgement.comparable(plan, base) and plan.cost and base.cost
            else None
        )
        cells = (
            cell(summary["verdicts"][plan.name]["lowest_fraction"], ".2%"),
            cell(plan.cost, ",.4f"),
            cell(change, "+.1%"),
            cell(-figures["npv_usd"] if figures["npv_usd"] is not None else None, ",.1f", MILLION),
            cell(figures["capex_usd"], ",.1f", MILLION),
            cell(figures["pl_cost_usd"], ",.1f", MILLION),
        )
        rows.append((plan.name[:20], plan.standing, *cells))
    header = ("scenario", "SLO", "lowest", "USD/Mtok", "change", "NPC M$", "capex", "P&L cost")
    advice = [*judgement.much_shed(plans), judgement.recommendation(plans, base.name, summary)]
    advice += [
        *judgement.target_lines(summary["verdicts"]),
        *judgement.inconclusive_lines(choice.ranked),
    ]
    lines = [*wrapped(list(filter(None, advice))), "", text_table(header, rows), ""]
    lines += wrapped(judgement.warnings_of(choice)) if choice.best else []
    lines += wrapped(judgement.resale_lines(figures_of, base.name))
    savings = summary["saving_interval_fraction"]
    spans = [
        f"{plan.name} costs {judgement.interval_words(*(-end for end in savings[plan.name]))} a token"
        for plan in plans
        if plan.name in savings and judgement.comparable(plan, base)
    ]
    if spans:
        chance = f"in {comparison.chances[0].words}, inputs as stated, against {base.name}: "
        lines += wrapped([chance + ", ".join(spans)])
    for table in in_futures(comparison):
        lines += ["", *futures_lines(table)]
    lines += wrapped(
        ["! inputs were not varied; order under uncertainty: planner montecarlo STUDY"]
    )
    if verbose and (bridges := comparison.others(comparison.bridges)):
        steps = [
            (
                name[:15],
                *(
                    f"{parts[0][cause]:+.4f}" if round(parts[0][cause], 4) else "0"
                    for cause in CAUSES
                ),
            )
            for name, parts in bridges
        ]
        amounts = [
            (
                name[:15],
                *(
                    cell(cents / 100, "+,.3f", MILLION)
                    for cents in (*parts.values(), sum(parts.values()))
                ),
            )
            for name, parts in comparison.others(comparison.dollars)
        ]
        lines += ["", f"USD per million tokens against {base.name}, by cause:"]
        lines += [
            text_table(("scenario", *(cause.replace("_", " ") for cause in CAUSES)), steps),
            "",
        ]
        lines += [
            "M USD over the horizon, by cause:",
            text_table(("scenario", *PLAN_CAUSES, "sum"), amounts),
        ]
    return "\n".join(lines).rstrip()


def write_comparison(
    comparison: Comparison,
    folder: Path,
    form: CsvFormat = DEFAULT_FORMAT,
    futures: Path | None = None,
) -> None:
    """Write a comparison's folder, whole or not at all; ``futures`` is the file that names them."""
    names = comparison.names
    plan = comparison.results[0].plan
    results = dict(zip(names, comparison.results, strict=True))
    scenarios = {name: result.scenario for name, result in results.items()}
    made = (*held_tables(comparison), *plan_tables(results), *evidence_tables(scenarios))
    tables = {table.name: table for table in made}
    baseline = names[comparison.baseline]
    seed = comparison.results[0].seed
    drawn = comparison.chances[0].number
    options = {
        "--baseline": baseline,
        "--seed": seed,
        "--replications": None if drawn == DRAWS else drawn,
    }
    options |= {"--futures": futures}
    manifest = {
        "kind": "comparison",
        "version": __version__,
        "scenarios": {name: scenario_sha256(scenario) for name, scenario in scenarios.items()},
        "baseline": baseline,
        "overrides": list(run.common_overrides([*scenarios.values()]) or ()),
        "seed": seed,
        "replications": drawn,
        "command": run.command_again("compare", [*scenarios.values()], options | form.options),
    }
    contents = Contents(manifest=manifest, tables=tables, summary=comparison_summary(comparison))
    shown: dict[str, Mapping[str, Any]] = {name: table.columns for name, table in tables.items()}
    pages = {
        "Comparison": comparison_page(names, comparison.figures, comparison.baseline),
        **bridge_page(shown["bridge_usd"]),
        **plain_pages({"Bridge, per token": shown["bridge"]}),
        **bridge_page(shown["bridge_accounts"], "Bridge, accounts"),
        **months_pages(plan.months.labels, dict(zip(names, comparison.chances, strict=True))),
        **statements_page(results),
        **plain_pages({"Futures": shown["futures"]} if comparison.futures else {}),
        **plain_pages(
            {"Timeline": shown["comparison_monthly"], "Assumptions": shown["assumptions"]}
        ),
    }
    workbook = write_tables(" against ".join(names), plan.start, pages)
    write_folder(folder, answer_files(contents, "comparison", form, {WORKBOOK: workbook}), manifest)


def sweep_description(axes: Sequence[SweepAxis]) -> TableDescription:
    """Return the columns of sweep.csv: the keys varied, as numbers where all values are, service, every measure."""
    varied = []
    for path, values in ((axis.path, axis.values) for axis in axes):
        numbers = [number_of(value) for value in values]
        kind = ColumnKind.TEXT
        unit = ""
        if None not in numbers:
            unit = unit_of(path.rpartition(".")[2]) or ""
            is_whole = all(isinstance(n, int) for n in numbers)
            kind = ColumnKind.INTEGER if is_whole else ColumnKind.DECIMAL
        decimals = max(
            len(value.partition(".")[2]) if "e" not in value.lower() else 9 for value in values
        )
        varied.append(
            Column(
                name=path, kind=kind, description=f"Value of {path}.", unit=unit, decimals=decimals
            )
        )
    problem = Column(
        name="problem", kind=ColumnKind.TEXT, description="Why the combination could not be run."
    )
    figures = (figure_column(name) for name in (*SERVICE, *(measure.name for measure in MEASURES)))
    return TableDescription(
        name="sweep",
        description="One row per combination, under the same random numbers. Measures are defined in "
        "docs/explanation/finance.md; they are empty where a combination is not a scenario, and `problem` says why.",
        key=tuple(axis.path for axis in axes),
        columns=(*varied, *figures, problem),
    )


def sweep_rows(axes: Sequence[SweepAxis], points: Sequence[SweepPoint]) -> Table:
    """Return sweep.csv."""
    description = sweep_description(axes)
    varied = description.columns[: len(axes)]
    measured = description.columns[len(axes) : -1]
    rows: list[tuple[Any, ...]] = []
    for point in points:
        settings = zip(varied, point.values, strict=True)
        values = (
            value if column.kind is ColumnKind.TEXT else number_of(value)
            for column, value in settings
        )
        known = ((point.figures or {}).get(column.name) for column in measured)
        figures = (None if figure is None else figure + 0.0 for figure in known)  # −0 is 0
        rows.append((*values, *figures, point.problem))
    return description.of_rows(rows)


def sweep_text(axes: Sequence[SweepAxis], points: Sequence[SweepPoint]) -> str:
    """Lay out the best points for a terminal: the SLO target met, cheapest first; then missed, by how far."""
    paths = [axis.path for axis in axes]
    named = {}
    for point in points:
        named[
            ", ".join(f"{path} = {value}" for path, value in zip(paths, point.values, strict=True))
        ] = point
    choice = judgement.choose(
        [judgement.served(name, point.figures or {}) for name, point in named.items()]
    )
    rows = []
    for plan in choice.ranked[:SHOWN_ROWS]:
        figures = named[plan.name].figures or {}
        cells = (
            cell(figures.get(judgement.ATTAINED), ".2%"),
            cell(figures.get(judgement.COST), ",.4f"),
            cell(figures.get("cost_usd"), ",.2f", MILLION),
            cell(figures.get("utilisation_fraction"), ".1%"),
        )
        rows.append((*named[plan.name].values, plan.standing, *cells))
    titles = [".".join(path.split(".")[-2:]) for path in paths]
    lines = [text_table((*titles, "base case", "attained", "levelised", "M USD", "utilised"), rows)]
    if len(points) > SHOWN_ROWS:
        lines.append(f"and {len(points) - SHOWN_ROWS} more in sweep.csv")
    if failed := [point for point in points if point.problem]:
        lines.append(
            f"{len(failed)} of {len(points)} combinations could not be run; the first: {failed[0].problem}"
        )
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
    kind = "column" if len(axes) > 1 else "line"
    last = min(len(points), SHOWN_ROWS)
    charts = tuple(
        SheetChart(
            title=words(name), columns=(name,), kind=kind, last=last, across_columns=len(axes)
        )
        for name in (judgement.COST, judgement.ATTAINED)
    )
    note = "One run of each point under the same random numbers; run planner montecarlo for percentiles."
    pages = {
        "Sweep": Page.of(tables["sweep"].columns, most=5_000, charts=charts, note=note),
        **plain_pages({"Assumptions": tables["assumptions"].columns}),
    }
    workbook = write_tables(f"{scenario.name}: sweep", scenario.start, pages)
    contents = Contents(manifest=identity, tables=tables)
    place_folder(folder, answer_files(contents, "sweep", form, {WORKBOOK: workbook}), identity)


def comparison_answer(folder: Path, comparison: Comparison) -> Answer[Comparison]:
    """Return a comparison as an answer."""
    return Answer(
        folder=folder,
        result=comparison,
        warnings=comparison.warnings,
        notes=comparison.notes,
        summarise=lambda: comparison_summary(comparison),
        say=lambda verbose: comparison_table(comparison, verbose=verbose),
        is_met=lambda: any(
            one["status"] == "MET" for one in comparison_summary(comparison)["verdicts"].values()
        ),
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
        """Return the points that no other beats in both levelised cost and lowest SLO attainment, cheapest first."""
        plans = [
            judgement.served(str(place), point.figures or {})
            for place, point in enumerate(self.points)
        ]
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
