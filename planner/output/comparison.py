"""A comparison as tables, text and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.files import json_text
from planner.finance.bridge import CAUSES
from planner.finance.unit_costs import cumulative_per_million_tokens, per_million_tokens
from planner.finance.variance import PLAN_CAUSE_MEANINGS, PLAN_CAUSES
from planner.output import judgement
from planner.output.columns import DescribedTable, tables_of
from planner.output.csv_table import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, csv_files
from planner.output.folder import write_folder
from planner.output.judgement import change_words
from planner.output.plan_tables import evidence_tables, plan_tables
from planner.output.plan_workbooks import bridge_page, comparison_page, months_pages, plain_pages, statements_page
from planner.output.report.build import with_report
from planner.output.run_folder import command_again, common_overrides, scenario_sha256
from planner.output.summary import chance_summary, promise_summary
from planner.output.text_table import signed, text_table, wrapped
from planner.output.workbook import write_tables
from planner.plan.slo_target import shortfall_over
from planner.run.measure_names import DRAWS
from planner.run.measures import series_of
from planner.run.replications import Interval, ends_of
from planner.studies.compare import Comparison
from planner.units import MILLION, unit_of
from planner.version import __version__

COMPARISON_TABLES = tables_of(
    "compare",
    causes=", ".join(CAUSES),
    plan_causes=" ".join(f"{cause}: {meaning}" for cause, meaning in PLAN_CAUSE_MEANINGS.items()),
)
"""The files in which plans are held against a baseline, by their names."""


def comparison_rows(comparison: Comparison) -> dict[str, list[Any]]:
    """Return the columns of comparison.csv."""
    base = comparison.figures[comparison.baseline]
    rows: list[tuple[Any, ...]] = []
    first = comparison.chances[comparison.baseline]
    for name, figures, chance in zip(comparison.names, comparison.figures, comparison.chances, strict=True):
        for measure, value in figures.items():
            drawn = measure in chance.figures[0]
            band = chance.interval(measure) if drawn else None
            apart = chance.difference(measure, first) if drawn and chance is not first else None
            reference = base[measure]
            known = value is not None and reference is not None
            difference = value - reference if value is not None and reference is not None else None
            share = difference / abs(reference) if known and difference is not None and reference else None
            ends = [end for interval in (band, apart) for end in ends_of(interval)]
            rows.append((name, measure, value, unit_of(measure) or "", reference, difference, share, *ends))
    return COMPARISON_TABLES["comparison"].filled(rows)


def bridge_rows(comparison: Comparison) -> dict[str, list[Any]]:
    """Return the columns of bridge.csv; the baseline itself has none."""
    bridges = comparison.others(comparison.bridges)
    return COMPARISON_TABLES["bridge"].filled(
        (name, cause, *(part[cause] for part in parts)) for name, parts in bridges for cause in CAUSES
    )


def dollar_rows(comparison: Comparison) -> dict[str, Any]:
    """Return the columns of bridge_usd.csv; the baseline itself has none."""
    rows = [
        (name, cause, amount)
        for name, parts in comparison.others(comparison.dollars)
        for cause, amount in parts.items()
    ]
    scenarios, causes, amounts = zip(*rows, strict=True) if rows else ((), (), ())
    return {"scenario": scenarios, "cause": causes, "difference_usd": np.array(amounts, dtype=np.int64)}


def monthly_rows(comparison: Comparison) -> dict[str, Any]:
    """Return the columns of comparison_monthly.csv."""
    series = [series_of(result) for result in comparison.results]
    labels, names = comparison.results[0].plan.months.labels, comparison.names
    base = series[comparison.baseline].cash_flow_usd
    table = {
        "cost_usd": [months.accrued_usd for months in series],
        "cash_flow_usd": [months.cash_flow_usd for months in series],
        "cash_saving_usd": [months.cash_flow_usd - base for months in series],
        "served_tokens": [months.tokens for months in series],
        "cost_per_million_tokens_usd": [per_million_tokens(months.accrued_usd, months.tokens) for months in series],
        "cumulative_cost_per_million_tokens_usd": [
            cumulative_per_million_tokens(months.accrued_usd, months.tokens) for months in series
        ],
    }
    columns: dict[str, Any] = {
        "month": [label for label in labels for _ in names],
        "scenario": list(names) * len(labels),
    }
    columns.update({name: np.stack(values, axis=1).ravel() for name, values in table.items()})
    return columns


def held_tables(comparison: Comparison) -> list[DescribedTable]:
    """Return the tables in which the plans are held against the baseline."""
    rows = (comparison_rows(comparison), bridge_rows(comparison), dollar_rows(comparison), monthly_rows(comparison))
    return list(zip(COMPARISON_TABLES.values(), rows, strict=True))


def comparison_summary(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON: measures, bridges, warnings."""

    def plain(figures: dict[str, float | None]) -> dict[str, float | None]:
        return {name: None if value is None else round(value, 6) + 0.0 for name, value in figures.items()}

    return {
        "schema_version": SCHEMA_VERSION,
        "baseline": comparison.names[comparison.baseline],
        "seed": comparison.results[0].seed,
        "scenarios": {name: plain(figures) for name, figures in zip(comparison.names, comparison.figures, strict=True)},
        "bridge_per_million_tokens_usd": {
            name: {cause: round(part, 9) for cause, part in parts[0].items()}
            for name, parts in comparison.others(comparison.bridges)
        },
        "bridge_usd": {
            name: {cause: amount / 100 for cause, amount in parts.items()}
            for name, parts in comparison.others(comparison.dollars)
        },
        "promise": {
            name: promise_summary(result, chance)
            for name, result, chance in zip(comparison.names, comparison.results, comparison.chances, strict=True)
        },
        "chance": {
            name: chance_summary(chance) for name, chance in zip(comparison.names, comparison.chances, strict=True)
        },
        "saving_interval_fraction": {
            name: [round(end, 6) + 0.0 for end in (saving.low, saving.high)]
            for name, saving in _savings(comparison).items()
        },
        "warnings": list(comparison.warnings),
        "notes": list(comparison.notes),
    }


def _savings(comparison: Comparison) -> dict[str, Interval]:
    """Return what share of the baseline's levelised cost per token each other scenario saves, draw by draw."""
    base = comparison.chances[comparison.baseline]
    savings = {
        name: chance.saving(judgement.COST, base)
        for name, chance in zip(comparison.names, comparison.chances, strict=True)
        if chance is not base
    }
    return {name: saving for name, saving in savings.items() if saving is not None}


def _plans(comparison: Comparison) -> list[judgement.Served]:
    """Return the plans as advice sees them, each judged by its promise over its replications."""
    plans = []
    for name, result, figures, chance in zip(
        comparison.names, comparison.results, comparison.figures, comparison.chances, strict=True
    ):
        shortfalls = np.array([drawn[judgement.SHORTFALL] for drawn in chance.figures], dtype=np.float64)
        plans.append(
            judgement.served(name, figures, shortfall_over(shortfalls, result.scenario.promise.in_replications))
        )
    return plans


def comparison_table(comparison: Comparison) -> str:
    """Lay the comparison out for a terminal of 80 columns."""
    plans, savings = _plans(comparison), _savings(comparison)
    base, choice, words = plans[comparison.baseline], judgement.choose(plans), comparison.chances[0].words
    interval = savings.get(choice.best.name) if choice.best is not None else None
    saving = (interval.low, interval.high, words) if interval is not None else None
    advice = [
        judgement.recommendation(plans, base.name, saving),
        *(judgement.warnings_of(choice) if choice.best else ()),
    ]
    first = wrapped(judgement.much_shed(plans))
    lines = [*first, *([""] if first else []), _ranked_table(comparison, plans, choice), "", *wrapped(advice)]
    spans = [
        f"{plan.name} costs {change_words(-savings[plan.name].low)} to {change_words(-savings[plan.name].high)} a token"
        for plan in plans
        if plan.name in savings and judgement.comparable(plan, base)
    ]
    if spans:
        lines += wrapped([f"in {words}, inputs as stated, against {base.name}: " + ", ".join(spans)])
    return "\n".join([*lines, *_bridge_lines(comparison)])


def _ranked_table(comparison: Comparison, plans: Sequence[judgement.Served], choice: judgement.Choice) -> str:
    """Lay out the plans, those that keep their promise first."""

    def cell(value: float | None, pattern: str, scale: float = 1.0) -> str:
        return "" if value is None else signed(value / scale, pattern)

    base, figures_of = plans[comparison.baseline], dict(zip(plans, comparison.figures, strict=True))
    rows = []
    for plan in choice.ranked:
        figures = figures_of[plan]
        change = plan.cost / base.cost - 1.0 if judgement.comparable(plan, base) and plan.cost and base.cost else None
        rows.append(
            (
                plan.name[:15], plan.standing, cell(plan.in_time_fraction, ".2%"), cell(plan.cost, ",.4f"),
                cell(change, "+.1%"), cell(figures["cost_per_million_tokens_usd"], ",.4f"),
                cell(figures["cost_usd"], ",.2f", MILLION), cell(figures["npv_usd"], ",.2f", MILLION),
            )
        )  # fmt: skip
    return text_table(("scenario", "promise", "in time", "levelised", "change", "USD/Mtok", "M USD", "NPV M USD"), rows)


def _bridge_lines(comparison: Comparison) -> list[str]:
    """Lay out why a token, and the whole, costs more or less than in the baseline."""
    bridges = comparison.others(comparison.bridges)
    if not bridges:
        return []
    steps = [(name[:15], *(_signed(parts[0][cause]) for cause in CAUSES)) for name, parts in bridges]
    heading = f"USD per million tokens against {comparison.names[comparison.baseline]}, by cause:"
    short = ("scenario", "price", "through", "power", "software", "failing", "utilised", "people")
    amounts = [
        (name[:15], *(signed(part / 100 / MILLION, "+,.3f") for part in (*parts.values(), sum(parts.values()))))
        for name, parts in comparison.others(comparison.dollars)
    ]
    over = text_table(("scenario", *PLAN_CAUSES, "sum"), amounts)
    return ["", heading, text_table(short, steps), "", "M USD over the horizon, by cause:", over]


def _signed(amount: float) -> str:
    """Show a change with its sign; nothing has none."""
    return f"{amount:+.4f}" if round(amount, 4) else "0"


def write_comparison(comparison: Comparison, folder: Path, form: CsvFormat = DEFAULT_FORMAT) -> None:
    """Write a comparison's folder, whole or not at all."""
    results = dict(zip(comparison.names, comparison.results, strict=True))
    tables = [
        *held_tables(comparison),
        *plan_tables(results),
        *evidence_tables({name: result.scenario for name, result in results.items()}),
    ]
    files = csv_files("comparison", tables, form)
    files["summary.json"] = json_text(comparison_summary(comparison)).encode()
    files["workbook.xlsx"] = _workbook(comparison, {table.name: columns for table, columns in tables})
    manifest: dict[str, Any] = {
        "kind": "comparison",
        "version": __version__,
        "scenarios": {result.scenario.name: scenario_sha256(result.scenario) for result in comparison.results},
        "baseline": comparison.names[comparison.baseline],
        "overrides": list(common_overrides([result.scenario for result in comparison.results]) or ()),
        "seed": comparison.results[0].seed,
        "draws": comparison.chances[0].draws,
    }
    manifest["command"] = _command(comparison, form)
    write_folder(folder, with_report(files, manifest), manifest)


def _workbook(comparison: Comparison, shown: Mapping[str, Mapping[str, Any]]) -> bytes:
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


def _command(comparison: Comparison, form: CsvFormat) -> list[str]:
    """Return the command that makes the same comparison again."""
    options = ["--baseline", comparison.names[comparison.baseline], "--seed", str(comparison.results[0].seed)]
    if (draws := comparison.chances[0].draws) != DRAWS:
        options += ["--draws", str(draws)]
    return command_again("compare", [result.scenario for result in comparison.results], [*options, *form.options])
