"""A comparison as an answer: tables, summary, what the terminal says, and the folder."""

from __future__ import annotations

from pathlib import Path

from planner.answers.answer import Answer
from planner.answers.futures import futures_lines, futures_table
from planner.answers.identity import command_again, common_overrides, scenario_sha256
from planner.answers.json_records import Json, fields_json
from planner.answers.plan_workbooks import (
    bridge_page,
    comparison_page,
    months_pages,
    plain_pages,
    statements_page,
)
from planner.answers.ranking import COST, SHORTFALL, RankedPlan, is_comparable, rank, ranked_plans
from planner.answers.report import answer_files
from planner.answers.run import evidence_tables, plan_tables
from planner.answers.run_summary import (
    plan_verdict,
    replications_summary,
    rounded,
    rounded_measures,
)
from planner.answers.sentences import (
    break_even_lines,
    inconclusive_lines,
    no_alternatives,
    plans_that_shed,
    recommendation,
    saving_words,
    target_lines,
)
from planner.answers.summaries import ComparisonSummary, Measures
from planner.answers.tables import tables_of
from planner.finance.accounting.measures import present_parts, series_of
from planner.finance.bridge import CAUSES, account_bridge
from planner.finance.measure_names import DRAWS
from planner.finance.present_value import cumulative_per_million_tokens, per_million_tokens
from planner.output.folder import WORKBOOK, Contents, write_folder
from planner.output.tables import SCHEMA_VERSION, Table
from planner.output.terminal import cell, text_table, wrapped
from planner.output.workbook import write_tables
from planner.run.replications import ends_of
from planner.studies.compare import Comparison
from planner.units import MILLION, unit_of
from planner.version import __version__

COMPARISON_TABLES = tables_of("compare", causes=", ".join(CAUSES))
"""The files in which plans are compared with a baseline, by their names."""


_MEASURED_ALONE = "If only measured layouts are used (for models that have one),"
_SHOWN = 0.01
"""Of a cost: a smaller move is not worth a line of figures."""


def comparison_rows(comparison: Comparison) -> Table:
    """Return comparison.csv."""
    base = comparison.figures[comparison.baseline]
    base_replications = comparison.replications[comparison.baseline]
    rows = []
    plans = zip(comparison.names, comparison.figures, comparison.replications, strict=True)
    for name, figures, replications in plans:
        for measure, value in figures.items():
            interval = None
            paired = None
            # Measures against the baseline are of the base case alone.
            if measure in replications.figures[0]:
                interval = replications.interval(measure)
                # The baseline against itself would be a column of zeros.
                if replications is not base_replications:
                    paired = replications.difference(measure, base_replications)
            reference = base[measure]
            difference = None
            share = None
            if value is not None and reference is not None:
                difference = value - reference
                # A reference below zero, as of a net present value, must not turn the sign.
                share = None
                if reference:
                    share = difference / abs(reference)
            unit = unit_of(measure) or ""
            compared = (name, measure, value, unit, reference, difference, share)
            rows.append((*compared, *ends_of(interval), *ends_of(paired)))
    return COMPARISON_TABLES["comparison"].of_rows(rows)


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return the tables in which the plans are compared with the baseline, which itself has no bridge."""
    bridge: list[tuple[str, str, float]] = []
    for name, by_cause in comparison.others(comparison.bridges):
        bridge += [(name, cause, by_cause[cause]) for cause in CAUSES]
    base_parts = present_parts(comparison.results[comparison.baseline])
    accounts: list[tuple[object, ...]] = []
    # By account and cluster; the baseline has no bridge to itself.
    for name, compared_parts in comparison.others(map(present_parts, comparison.results)):
        accounts += [(name, *row) for row in account_bridge(base_parts, compared_parts)]
    tables = [
        comparison_rows(comparison),
        COMPARISON_TABLES["bridge"].of_rows(bridge),
        COMPARISON_TABLES["bridge_accounts"].of_rows(accounts),
        _monthly_table(comparison),
    ]
    if comparison.futures:
        tables.append(future_rows(comparison))
    return tables


def future_rows(comparison: Comparison) -> Table:
    """Return the plans in each future as a table."""
    return futures_table(COMPARISON_TABLES["futures"], comparison.futures)


def _monthly_table(comparison: Comparison) -> Table:
    """Return comparison_monthly.csv: each month's plans below one another."""
    base_cash = series_of(comparison.results[comparison.baseline]).cash_flow_usd
    by_plan = {}
    for name, result in zip(comparison.names, comparison.results, strict=True):
        months = series_of(result)
        cost = months.accrued_usd
        tokens = months.tokens
        cash_difference = months.cash_flow_usd - base_cash
        figures = (
            cost,
            months.cash_flow_usd,
            cash_difference,
            tokens,
            per_million_tokens(cost, tokens),
            cumulative_per_million_tokens(cost, tokens),
        )
        columns = (figure.tolist() for figure in figures)
        by_plan[name] = [*zip(*columns, strict=True)]
    rows = []
    # Month by month, so that the plans of one month stand together.
    labels = comparison.results[0].plan.months.labels
    for month, label in enumerate(labels):
        for name, months_of_plan in by_plan.items():
            rows.append((label, name, *months_of_plan[month]))
    return COMPARISON_TABLES["comparison_monthly"].of_rows(rows)


def comparison_summary(comparison: Comparison) -> ComparisonSummary:
    """Return measures, bridges, verdicts, intervals and warnings of plans side by side."""
    names = comparison.names
    base = comparison.replications[comparison.baseline]
    replications = dict(zip(names, comparison.replications, strict=True))
    results = dict(zip(names, comparison.results, strict=True))
    savings = {}
    for name, plan_replications in replications.items():
        # Paired by replication: both met the same traffic and failures.
        is_baseline = plan_replications is base
        saving = None
        if not is_baseline:
            saving = plan_replications.saving(COST, base)
        if saving is not None:
            savings[name] = (rounded(saving.low), rounded(saving.high))
    figures_by_plan = zip(names, comparison.figures, strict=True)
    return ComparisonSummary(
        schema_version=SCHEMA_VERSION,
        baseline=names[comparison.baseline],
        seed=comparison.results[0].seed,
        scenarios={name: rounded_measures(figures) for name, figures in figures_by_plan},
        bridge_per_million_tokens_usd={
            name: {cause: round(part, 9) for cause, part in per_token.items()}
            for name, per_token in comparison.others(comparison.bridges)
        },
        verdicts={name: plan_verdict(results[name], replications[name]) for name in names},
        replications={name: replications_summary(replications[name]) for name in names},
        saving_interval_fraction=savings,
        futures=future_rows(comparison).records() if comparison.futures else None,
        measured_layouts=_with_measured_layouts(comparison),
        warnings=list(comparison.warnings),
        notes=list(comparison.notes),
    )


def _with_measured_layouts(comparison: Comparison) -> dict[str, Measures] | None:
    """Return cost and shortfall of each base case with measured layouts alone; None where these were not run."""
    if not comparison.with_measured_layouts:
        return None
    plans = zip(comparison.names, comparison.with_measured_layouts, strict=True)
    return {
        name: rounded_measures({COST: figures[COST], SHORTFALL: figures[SHORTFALL]})
        for name, figures in plans
    }


def comparison_text(comparison: Comparison, *, verbose: bool = False) -> str:
    """Lay the comparison out for a terminal: which plan to take, the plans, and with details why they differ."""
    summary = comparison_summary(comparison)
    # By name, as tables and sentences ask for a plan's figures.
    measures: dict[str, Measures] = dict(zip(comparison.names, comparison.figures, strict=True))
    plans = ranked_plans(measures, summary.verdicts)
    baseline = plans[comparison.baseline]
    ranking = rank(plans)
    advice = [
        *plans_that_shed(plans),
        recommendation(plans, summary),
        *target_lines(summary.verdicts),
        *inconclusive_lines(ranking),
    ]
    # What sells tokens is judged by its value, what sells none by its cost.
    sells = any(figures["revenue_usd"] for figures in measures.values())
    value = "NPV M$" if sells else "NPC M$"
    header = ("scenario", "SLO", "lowest", "USD/Mtok", "change", value, "capex", "P&L cost")
    rows = [
        _plan_cells(
            plan,
            baseline,
            measures[plan.name],
            summary.verdicts[plan.name].lowest_fraction,
            sells=sells,
        )
        for plan in ranking.plans
    ]
    advice_lines = list(filter(None, advice))
    lines = [
        *wrapped(advice_lines),
        "",
        text_table(header, rows),
        "",
        *wrapped([*no_alternatives(ranking), *break_even_lines(measures, baseline.name)]),
        *wrapped(_saving_lines(plans, baseline, summary)),
        *wrapped(measured_layouts_lines(summary)),
    ]
    if comparison.futures:
        futures = future_rows(comparison)
        lines += ["", *futures_lines(futures)]
    lines += wrapped(
        [
            "! Inputs are as stated. To see whether the ranking holds when they vary: planner montecarlo STUDY"
        ]
    )
    if verbose:
        lines += _bridge_lines(comparison)
    return "\n".join(lines).rstrip()


def _plan_cells(
    plan: RankedPlan,
    baseline: RankedPlan,
    measures: Measures,
    lowest: float | None,
    *,
    sells: bool,
) -> tuple[str, ...]:
    """Return the row of a plan in the terminal's table."""
    change = None
    # A cheap plan that serves worse saves nothing, so its change is left empty.
    if is_comparable(plan, baseline) and plan.cost and baseline.cost:
        change = plan.cost / baseline.cost - 1.0
    npv_usd = measures["npv_usd"]
    sign = 1.0 if sells else -1.0
    value_usd = None if npv_usd is None else sign * npv_usd
    return (
        plan.name[:20],
        plan.standing,
        cell(lowest, ".2%"),
        cell(plan.cost, ",.4f"),
        cell(change, "+.1%"),
        cell(value_usd, ",.1f", MILLION),
        cell(measures["capex_usd"], ",.1f", MILLION),
        cell(measures["pl_cost_usd"], ",.1f", MILLION),
    )


def _saving_lines(
    plans: list[RankedPlan], baseline: RankedPlan, summary: ComparisonSummary
) -> list[str]:
    """Say where the cost of each comparable plan lies against the baseline's over replications."""
    comparable = {plan.name for plan in plans if is_comparable(plan, baseline)}
    spans = [
        f"{name} {saving_words(saving)}"
        for name, saving in summary.saving_interval_fraction.items()
        if name in comparable
    ]
    if not spans:
        return []
    replications = summary.replications[plans[0].name].words
    return [
        f"Cost per token compared with {baseline.name}, in {replications} with inputs as stated: {', '.join(spans)}."
    ]


def measured_layouts_lines(summary: ComparisonSummary) -> list[str]:
    """Say what the answer would be if no layout were taken that nobody measured, where some was."""
    measured = summary.measured_layouts
    if measured is None:
        return []
    as_chosen = {name: figures[COST] for name, figures in summary.scenarios.items()}
    parts = []
    moves: dict[str, float] = {}
    for name, figures in measured.items():
        cost = figures[COST]
        chosen = as_chosen[name]
        # A plan that serves nothing has no cost per token.
        if cost is None or not chosen:
            continue
        moves[name] = cost / chosen - 1.0
        misses = ", SLO missed" if figures[SHORTFALL] else ""
        parts.append(f"{name} ${cost:.3g} ({moves[name]:+.0%}{misses})")
    if not any(abs(move) >= _SHOWN for move in moves.values()):
        return [f"{_MEASURED_ALONE} no plan's cost changes by as much as 1%."]
    met = {name: measured[name][COST] or 0.0 for name in moves if not measured[name][SHORTFALL]}
    order = ""
    if met:
        cheapest = min(met, key=lambda name: met[name])
        order = f" {cheapest} is then the cheapest plan that meets its target."
    return [
        f"{_MEASURED_ALONE} base-case cost per million tokens (and its change from the cost above) would be: "
        f"{', '.join(parts)}.{order}"
    ]


def _bridge_lines(comparison: Comparison) -> list[str]:
    """Return why plans differ from the baseline, by cause, per million tokens."""
    per_token = []
    for name, parts in comparison.others(comparison.bridges):
        # A cause that moves nothing has no sign.
        # Rounded as it is printed: what shows as zero has no sign.
        cells = (f"{parts[cause]:+.4f}" if round(parts[cause], 4) else "0" for cause in CAUSES)
        per_token.append((name[:15], *cells))
    if not per_token:
        return []
    baseline = comparison.names[comparison.baseline]
    cause_words = (cause.replace("_", " ") for cause in CAUSES)
    return [
        "",
        f"Difference from {baseline} in USD per million tokens, by cause:",
        text_table(("scenario", *cause_words), per_token),
    ]


def write_comparison(comparison: Comparison, folder: Path, futures: Path | None = None) -> None:
    """Write a comparison's folder, whole or not at all; ``futures`` is the file that names them."""
    names = comparison.names
    plan = comparison.results[0].plan
    results = dict(zip(names, comparison.results, strict=True))
    scenarios = {name: result.scenario for name, result in results.items()}
    tables = {
        table.name: table
        for table in (
            *comparison_tables(comparison),
            *plan_tables(results),
            *evidence_tables(scenarios),
        )
    }
    number = comparison.replications[0].number
    options = {
        "--baseline": names[comparison.baseline],
        "--seed": comparison.results[0].seed,
        # The usual number needs no option to get it again.
        "--replications": None if number == DRAWS else number,
        "--futures": futures,
    }
    hashes = {name: scenario_sha256(scenario) for name, scenario in scenarios.items()}
    manifest: Json = {
        "kind": "comparison",
        "version": __version__,
        "scenarios": hashes,
        "baseline": names[comparison.baseline],
        "overrides": list(common_overrides([*scenarios.values()]) or ()),
        "seed": comparison.results[0].seed,
        "replications": number,
        "command": command_again("compare", [*scenarios.values()], options),
    }
    columns = {name: table.columns for name, table in tables.items()}
    replications = dict(zip(names, comparison.replications, strict=True))
    futures_sheet = {}
    if comparison.futures:
        futures_sheet["Futures"] = columns["futures"]
    pages = {
        "Comparison": comparison_page(names, comparison.figures, comparison.baseline),
        **plain_pages({"Bridge, per token": columns["bridge"]}),
        **bridge_page(columns["bridge_accounts"]),
        **months_pages(plan.months.labels, replications),
        **statements_page(results),
        **plain_pages(futures_sheet),
        **plain_pages(
            {"Timeline": columns["comparison_monthly"], "Assumptions": columns["assumptions"]}
        ),
    }
    workbook = write_tables(" against ".join(names), plan.start, pages)
    summary = fields_json(comparison_summary(comparison))
    contents = Contents(manifest=manifest, tables=tables, summary=summary)
    files = answer_files(contents, "comparison", {WORKBOOK: workbook})
    write_folder(folder, files, manifest)


def comparison_answer(folder: Path, comparison: Comparison) -> Answer[Comparison]:
    """Return a comparison as an answer."""

    def is_met() -> bool:
        verdicts = comparison_summary(comparison).verdicts.values()
        return any(verdict.status == "MET" for verdict in verdicts)

    return Answer(
        folder=folder,
        result=comparison,
        warnings=comparison.warnings,
        notes=comparison.notes,
        summarise=lambda: fields_json(comparison_summary(comparison)),
        say=lambda verbose: comparison_text(comparison, verbose=verbose),
        is_met=is_met,
        rows=lambda: comparison_rows(comparison),
    )
