"""One run as an answer: its tables, its summary, what the terminal says of it, and its folder."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from planner.answers.answer import Answer
from planner.answers.assumptions import assumptions, model_error
from planner.answers.judgement import SHORTFALL, dearest_cluster, much_shed, promise_verdict, served, sizing
from planner.answers.live_workbook import run_pages, run_workbook
from planner.answers.plan_workbooks import months_pages
from planner.answers.report import build_report
from planner.answers.run_report import mend_words
from planner.answers.tables import RUN_TABLES, TABLES, by_scenario
from planner.catalog.load import VERSION
from planner.engine.processes import name_of
from planner.errors import Problem, ScenarioError
from planner.files import MANIFEST, json_text, read_json
from planner.finance.statements import Frequency
from planner.output.folder import (
    REPORT,
    SUMMARY,
    WORKBOOK,
    Contents,
    command_line,
    openable,
    parquet_bytes,
    write_folder,
)
from planner.output.tables import DEFAULT_FORMAT, SCHEMA_VERSION, CsvFormat, Table, csv_files, stacked, write_csv
from planner.output.terminal import ASCII, BLOCKS, sparkline, text_table, wrapped
from planner.parallel import shared
from planner.plan.quantities import in_time
from planner.plan.slo_target import Moment, kept_months_over, lacking_nodes, shortfall_over
from planner.run import tables
from planner.run.measure_names import DRAWS, FLEET, MEASURES
from planner.run.measures import Sums, measures, promise_figures, sums_of
from planner.run.replications import Chance, ends_of
from planner.run.simulate import RunResult, per_run
from planner.run.slo_misses import REASONS, worst_reasons
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.units import MILLION, decimals_of, unit_of
from planner.version import __version__

_LOST_TO = {
    "lost_to_failures": "failures",
    "lost_to_software": "software",
    "lost_to_outages": "outages",
    "lost_to_power_cap": "power cap",
    "without_demand": "no demand",
}


def scenario_sha256(scenario: Scenario) -> str:
    """Return the hash of what the scenario says, defaults included, wherever it was written."""
    return _sha256(scenario, exclude={"extends"})


def _sha256(model: BaseModel, exclude: set[str] | None = None) -> str:
    content = model.model_dump(mode="json", by_alias=True, exclude=exclude)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def scenario_file(scenario: Scenario) -> str:
    """Return the file that a scenario was read from, as it was named; nothing where it was given as a dict."""
    place = scenario.document.locate(())
    return place.file if place is not None and place.line is not None else ""


def command_again(verb: str, scenarios: Sequence[Scenario], options: Sequence[str]) -> list[str]:
    """Return the command that writes the same bytes; none where there is none: no file, or overrides that differ."""
    files, overrides = [scenario_file(scenario) for scenario in scenarios], common_overrides(scenarios)
    return command_line(verb, files, options, overrides) if all(files) and overrides is not None else []


def common_overrides(scenarios: Sequence[Scenario]) -> tuple[str, ...] | None:
    """Return the overrides laid over all scenarios alike; None where they differ."""
    first, *others = {scenario.document.overrides for scenario in scenarios}
    return None if others else first


def planned_from(plan: Path) -> tuple[Path, list[str], int | None]:
    """Return the file, overrides and seed of a plan: a scenario or study itself, or what a run's folder was made of."""
    if not plan.is_dir():
        return plan, [], None
    manifest = read_json(plan / MANIFEST)
    if manifest.get("kind") != "run" or not manifest.get("scenario_file"):
        hint = "give a scenario, a study, or a folder that planner run wrote"
        raise ScenarioError(Problem(file=str(plan), message="is not the folder of a run", hint=hint))
    file = Path(str(manifest["scenario_file"]))
    overrides = [str(override) for override in manifest.get("overrides", ())]
    if scenario_sha256(load_scenario(file, overrides)) != manifest.get("scenario_sha256"):
        message = f"{file} is no longer what the run was made of"
        raise ScenarioError(Problem(file=str(plan), message=message, hint="run it again, or give the scenario itself"))
    return file, overrides, int(manifest["seed"])


def manifest(result: RunResult) -> dict[str, Any]:
    """Return what identifies a run: the same manifest means the same bytes."""
    identity = scenario_identity(result.scenario, result.seed, result.replication)
    return identity | ({"processes": [name_of(process) for process in result.processes]} if result.processes else {})


def scenario_identity(scenario: Scenario, seed: int, replication: int) -> dict[str, Any]:
    """Return what identifies one replication of a scenario."""
    return {
        "kind": "run",
        "version": __version__,
        "scenario": scenario.name,
        "scenario_file": scenario_file(scenario),
        "scenario_sha256": scenario_sha256(scenario),
        "overrides": list(scenario.document.overrides),
        "seed": seed,
        "replication": replication,
        "catalog": {
            "assumptions": scenario.catalog.assumptions,
            "version": VERSION,
            "sha256": _sha256(scenario.load_catalog()),
        },
        **({"files": hashes} if (hashes := _file_hashes(scenario)) else {}),
    }


def _file_hashes(scenario: Scenario) -> dict[str, str]:
    """Return the hashes of the further files that a scenario reads, by name."""
    files = sorted(scenario.document.files.items())
    return {Path(path).name: hashlib.sha256(content).hexdigest() for path, content in files}


def _warnings(result: RunResult) -> dict[str, list[str]]:
    told = [("warning", text) for text in result.warnings] + [("note", text) for text in result.plan.notes]
    return {"severity": [severity for severity, _ in told], "text": [text for _, text in told]}


PLAN_COLUMNS: dict[str, Callable[[RunResult], Mapping[str, Any]]] = {
    "timeline_monthly": tables.timeline_monthly,
    "timeline_workloads": tables.timeline_workloads,
    "losses": tables.losses,
    "placement": tables.placement,
    "routing_monthly": tables.routing_monthly,
    "ledger": lambda result: {**tables.ledger(result), "amount_usd": result.ledger.amount_cents},
    "events": tables.events,
    "warnings": _warnings,
}
"""What makes each table that says how a run went, where its money and its machine time were spent: those that a
comparison or a study has for each of its scenarios."""


def run_tables(result: RunResult, chance: Chance | None = None, *, hourly: bool = False) -> list[Table]:
    """Return every table of a run; with ``chance``, the plan drawn again, measures have intervals."""
    columns: dict[str, Mapping[str, Any]] = {
        **{name: make(result) for name, make in PLAN_COLUMNS.items()},
        "late_reasons": tables.late_reasons(result),
        "timeline_daily": tables.timeline_daily(result),
        "accounts": tables.accounts(),
        **{f"statement_{span}ly": tables.statement(result, span) for span in Frequency},
    }
    made = {name: Table(TABLES[name], cells) for name, cells in columns.items()}
    made |= {
        "measures": measure_table(result, chance),
        "assumptions": assumptions(result.scenario),
        "model_error": model_error(),
    }
    return [
        *(made[table.name] for table in RUN_TABLES),
        *([Table(TABLES["timeline_hourly"], tables.timeline_hourly(result))] if hourly else []),
    ]


def measure_table(result: RunResult, chance: Chance | None = None) -> Table:
    """Return measures.csv."""
    figures = measures(result)
    bands = [ends_of(chance.interval(name) if chance is not None else None) for name in figures]
    return TABLES["measures"].of_rows(
        (name, value, *ends, unit_of(name) or "", measure.view, measure.formula)
        for (name, value), ends, measure in zip(figures.items(), bands, MEASURES, strict=True)
    )


def plan_tables(results: Mapping[str, RunResult]) -> list[Table]:
    """Return timelines, losses, ledger and events of runs, by the names of their scenarios on top of one another."""
    return [
        stacked(
            by_scenario(TABLES[name]),
            {scenario: Table(TABLES[name], make(result)) for scenario, result in results.items()},
        )
        for name, make in (PLAN_COLUMNS.items() if results else ())
    ]


def evidence_tables(scenarios: Mapping[str, Scenario]) -> list[Table]:
    """Return what scenarios assume, each value with source and grade, and the model's own error."""
    by_plan = {name: assumptions(scenario) for name, scenario in scenarios.items()}
    return [stacked(by_scenario(TABLES["assumptions"]), by_plan), model_error()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run's folder holds beyond the usual, and how its CSV files are written."""

    form: CsvFormat = DEFAULT_FORMAT
    hourly: bool = False
    parquet: bool = False


USUAL = Wanted()


def no_intervals() -> None:
    """Return no further replications."""


def write_run(
    result: RunResult,
    folder: Path,
    *,
    drawn_again: Callable[[], Chance | None] = no_intervals,
    wanted: Wanted = USUAL,
    command: Sequence[str] = (),
) -> Chance | None:
    """Write a run's folder, whole or not at all, and return the replications behind its intervals.

    ``drawn_again`` waits for these, once all else is worked out: others may draw them meanwhile. ``command`` is what
    writes the same bytes, where it is not a run.
    """
    tables = {table.name: table for table in run_tables(result, hourly=wanted.hourly)}
    pages = run_pages(result, {name: made.columns for name, made in tables.items()})
    ready = {name: write_csv(table, wanted.form) for name, table in tables.items() if name != "measures"}
    late_reasons(result)  # kept for the summary: the plan is compiled and routed anew for them
    chance = drawn_again()
    tables["measures"] = measure_table(result, chance)
    identity = manifest(result)
    identity["draws"] = 1 if chance is None else chance.draws
    identity["command"] = list(command) or _command(result.scenario, identity, wanted)
    contents = Contents(
        manifest=identity,
        tables=tables,
        summary=summary(result, chance),
        beside=openable([*(f"{name}.csv" for name in tables), WORKBOOK]),
    )
    months = months_pages(result.plan.months.labels, {result.scenario.name: chance}) if chance else {}
    workbook, report = shared([lambda: run_workbook(result, pages, months), lambda: build_report(contents)])
    files = csv_files(contents.name.lower(), tables.values(), wanted.form, ready=ready)
    timelines = [table for name, table in tables.items() if wanted.parquet and name.startswith("timeline_")]
    files |= {f"{table.name}.parquet": parquet_bytes(table) for table in timelines}
    files |= {SUMMARY: json_text(contents.summary).encode(), WORKBOOK: workbook, REPORT: report}
    write_folder(folder, files, identity)
    return chance


def _command(scenario: Scenario, identity: Mapping[str, Any], wanted: Wanted) -> list[str]:
    """Return the command that writes the same bytes again."""
    options = ["--seed", str(identity["seed"])]
    if identity["draws"] != DRAWS:
        options += ["--draws", str(identity["draws"])]
    options += [word for process in identity.get("processes", ()) for word in ("--process", process)]
    options += [option for option, asked in (("--hourly", wanted.hourly), ("--parquet", wanted.parquet)) if asked]
    return command_again("run", [scenario], [*options, *wanted.form.options])


def summary(result: RunResult, chance: Chance | None = None) -> dict[str, Any]:
    """Return the headline numbers of a run: fleet, clusters, workloads, the worst month, the losses.

    ``chance`` is the plan drawn again; with it the headline has intervals.
    """
    return headline_summary(result, chance) | {"late_reasons": [dict(one) for one in late_reasons(result)]}


@per_run
def late_reasons(result: RunResult) -> list[dict[str, Any]]:
    """Return why most requests are late, and what was tried and would mend it, as the summary has it."""
    return [_rounded(one) for one in worst_reasons(result)]


def headline_summary(result: RunResult, chance: Chance | None = None) -> dict[str, Any]:
    """Return the same without why requests are late, which takes longer than all the rest: work is routed anew."""
    by_month = sums_of(result)
    sums = by_month.over_run()
    names = [*(cluster.name for cluster in result.plan.clusters), FLEET]
    shown = {key: table[0] for key, table in sums.figures().items() if key != "served_output_tokens"}
    rows = {name: {key: _plain(key, figures[c]) for key, figures in shown.items()} for c, name in enumerate(names)}
    fleet = rows.pop(FLEET) | {key: _plain(key, figures[0]) for key, figures in sums.fleet_figures().items()}
    by_workload = {
        "demand_tokens": result.tokens(result.monthly.demand_requests).sum(axis=0),
        "shed_tokens": result.tokens(result.shed_requests()).sum(axis=0),
        "slo_attainment_fraction": in_time(result.missed_requests().sum(axis=0), result.settled_requests().sum(axis=0)),
    }
    workloads = {
        workload.name: {key: _plain(key, figures[w]) for key, figures in by_workload.items()}
        for w, workload in enumerate(result.plan.workloads)
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": result.scenario.name,
        "start": result.plan.months.start.isoformat(),
        "horizon_months": result.scenario.horizon_months,
        "seed": result.seed,
        "replication": result.replication,
        "promise": promise_summary(result, chance),
        "clusters": {FLEET: fleet, **rows},
        "workloads": workloads,
        "measures": {name: None if value is None else _round(value) for name, value in measures(result).items()},
        "chance": None if chance is None else chance_summary(chance),
        "worst_month": _worst_month(result, by_month),
        "late_reasons": [],
        "capacity_fraction": _capacity(result),
        "warnings": list(result.warnings),
        "notes": list(result.plan.notes),
    }


def chance_summary(chance: Chance) -> dict[str, Any]:
    """Return how often a plan was drawn, and where its figures lie."""
    intervals = {name: chance.interval(name) for name in chance.figures[0]}
    return {
        "draws": chance.draws,
        "coverage_fraction": _round(chance.coverage_fraction),
        "words": chance.words,
        "intervals": {
            name: [_round(interval.low), _round(interval.high)]
            for name, interval in intervals.items()
            if interval is not None
        },
    }


def promise_summary(result: RunResult, chance: Chance | None = None) -> dict[str, Any]:
    """Return what is promised, whether it is kept over the replications drawn, and where this one is worst."""
    stated, verdict, labels = result.scenario.promise, result.verdict(), result.plan.months.labels
    drawn = (promise_figures(result),) if chance is None else chance.figures
    shortfalls, months = (
        np.array([figures[name] for figures in drawn], dtype=np.float64) for name in (SHORTFALL, "promise_kept_months")
    )
    shortfall = shortfall_over(shortfalls, stated.in_replications)
    through = int(kept_months_over(months, stated.in_replications))
    kept = shortfall == 0.0

    def moment(reached: Moment | None) -> dict[str, Any] | None:
        if reached is None:
            return None
        workload = None if reached.workload is None else result.plan.workloads[reached.workload].name
        share = _round(reached.in_time_fraction)
        return {"month": labels[reached.month], "workload": workload, "in_time_fraction": share}

    return {
        **stated.model_dump(),
        "stated": result.scenario.states("promise"),
        "kept": kept,
        "shortfall_fraction": _round(shortfall),
        "first_broken_month": None if kept else labels[through],
        "replications": len(drawn),
        "kept_replications": int((shortfalls == 0.0).sum()),
        "worst": moment(verdict.worst),
        "first_broken": moment(verdict.first_broken),
        "lacking": None if verdict.kept else _lacking(result),
    }


def _lacking(result: RunResult) -> dict[str, Any] | None:
    """Return what a broken monthly promise lacks: nodes by the work missed, and those that enter service later."""
    plan, first = result.plan, result.verdict().first_broken
    if first is None or not plan.promise.each_month:
        return None
    names, rates = [cluster.name for cluster in plan.clusters], plan.requests_per_node_h
    hours = np.diff(plan.month_edges_h).astype(np.float64)
    nodes = lacking_nodes(result.missed_requests(), result.settled_requests(), rates, hours, plan.promise)
    asked = slice(None) if first.workload is None else slice(first.workload, first.workload + 1)
    helps = rates[:, asked].max(axis=(1, 2)) > 0
    later = dict.fromkeys(names, 0)
    for cohort in result.cohorts:
        if plan.month_edges_h[first.month + 1] <= cohort.in_service_h < np.inf and helps[cohort.cluster]:
            later[names[cohort.cluster]] += cohort.machines
    return {
        "nodes": {name: math.ceil(most) for name, most in zip(names, nodes, strict=True) if np.isfinite(most)},
        "later_nodes": {name: number for name, number in later.items() if number},
    }


def _worst_month(result: RunResult, sums: Sums) -> dict[str, Any] | None:
    """Return the month in which most of what was settled was shed or late; the dearest one where nothing was."""
    missed = np.nan_to_num(1.0 - sums.fleet_figures()["slo_attainment_fraction"])
    costs = sums.figures()["cost_per_million_tokens_usd"][:, -1]
    if np.isnan(costs).all():
        return None
    worst = int(np.argmax(missed)) if missed.max() > 1e-6 else int(np.nanargmax(costs))
    return {
        "month": result.plan.months.labels[worst],
        "missed_fraction": _round(missed[worst]),
        "cost_per_million_tokens_usd": _plain("cost_per_million_tokens_usd", costs[worst]),
    }


def _rounded(reason: dict[str, str | float | None]) -> dict[str, str | float | None]:
    return {key: _round(value) if isinstance(value, float) else value for key, value in reason.items()}


def _capacity(result: RunResult) -> dict[str, float]:
    """Return where the node-hours on site went, as shares that sum to one."""
    present = result.monthly.present_node_h.sum()
    fates = result.monthly.fates_node_h
    return {fate: _round(node_h.sum() / present) if present > 0 else 0.0 for fate, node_h in fates.items()}


def _plain(name: str, figure: float) -> float | None:
    """Return a figure as JSON holds it, with the decimals of its unit; None where there was nothing to divide by."""
    decimals = decimals_of(name)
    return None if np.isnan(figure) else _round(figure, decimals) if decimals else round(float(figure))


def _round(number: float, decimals: int = 6) -> float:
    return round(float(number), decimals) + 0.0  # a small loss is 0, not −0


def summary_table(figures: dict[str, Any]) -> str:
    """Lay out the headline for a terminal of 80 columns."""

    def percent(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}"

    rows = []
    for name, row in [
        *((n, r) for n, r in figures["clusters"].items() if n != FLEET),
        (FLEET, figures["clusters"][FLEET]),
    ]:
        per_total, per_output = row["cost_per_million_tokens_usd"], row["cost_per_million_output_tokens_usd"]
        rows.append(
            (
                name[:16],
                percent(row["availability_fraction"]),
                percent(row["utilisation_fraction"]),
                f"{row['served_tokens'] / 1e12:,.2f}",
                f"{row['cost_usd'] / MILLION:,.2f}",
                "" if per_total is None else f"{per_total:,.3f}",
                "" if per_output is None else f"{per_output:,.3f}",
            )
        )
    header = ("cluster", "available", "utilised", "T tokens", "M USD", "USD/Mtok", "USD/Mtok out")
    first = wrapped(much_shed([served(figures["scenario"], figures["clusters"][FLEET])]))
    broken = [] if figures["promise"]["kept"] else [sizing(figures)]
    lead = [*first, *wrapped([promise_verdict(figures["promise"]), *broken]), ""]
    return "\n".join([*lead, text_table(header, rows), "", *_sentences(figures)])


def _sentences(figures: dict[str, Any]) -> list[str]:
    """Say in words what the table does not show."""
    fleet, capacity = figures["clusters"][FLEET], figures["capacity_fraction"]
    lines = []
    if fleet["slo_attainment_fraction"] is not None:
        late = min(figures["workloads"].items(), key=lambda item: item[1]["slo_attainment_fraction"] or 1.0)
        lines.append(
            f"{fleet['slo_attainment_fraction']:.2%} of requests in time; least by {late[0]}, "
            f"{late[1]['slo_attainment_fraction']:.2%}; {fleet['shed_fraction']:.2%} of tokens shed"
        )
    if (chance := figures["chance"]) is not None and chance["intervals"]:
        lines.append(_chance_sentence(chance))
    if (worst := figures["worst_month"]) is not None:
        lines.append(f"worst month {worst['month']}: {worst['missed_fraction']:.2%} of requests shed or late")
    lines += [
        f"{reason['lost_fraction']:.3%} of {reason['workload']} not in time for {REASONS[reason['reason']]}, most in "
        f"{reason['worst_month']}: {reason['worst_lost_fraction']:.2%}{mend_words(reason)}"
        for reason in figures["late_reasons"]
    ]
    lost = sorted(((capacity[key], name) for key, name in _LOST_TO.items()), reverse=True)
    lines.append("node-hours lost to: " + ", ".join(f"{name} {share:.2%}" for share, name in lost if share > 0))
    if figures["promise"]["kept"] and (advice := sizing(figures)):
        lines.append(advice)
    if stands_by := dearest_cluster(figures, most_of_fleets_utilisation=0.5):
        lines.append(stands_by)
    return wrapped(lines)


def _chance_sentence(chance: dict[str, Any]) -> str:
    """Say where the headline lies when the same plan is drawn again."""
    shown = {
        "cost_per_million_tokens_usd": "{:,.4f} to {:,.4f} USD/Mtok",
        "utilisation_fraction": "{:.1%} to {:.1%} utilised",
        "slo_attainment_fraction": "{:.2%} to {:.2%} in time",
    }
    parts = [text.format(*chance["intervals"][name]) for name, text in shown.items() if name in chance["intervals"]]
    return f"in {chance['words']}, inputs as stated: " + ", ".join(parts)


def month_lines(result: RunResult, encoding: str = "utf-8") -> str:
    """Return utilisation and cost per token by month, a line for each cluster, with lowest and highest."""
    levels = BLOCKS if encoding.lower().replace("-", "") in ("utf8", "utf16", "utf32") else ASCII
    timeline = tables.timeline_monthly(result)
    names = timeline["cluster"][: len(result.plan.clusters) + 1]
    labels = result.plan.months.labels
    rows = []
    for column, unit in (("utilisation_fraction", "utilised"), ("cost_per_million_tokens_usd", "USD/Mtok")):
        for index, name in enumerate(names):
            values = [float(v) for v in timeline[column][index :: len(names)]]
            known = [v for v in values if math.isfinite(v)]
            if known and (column == "utilisation_fraction" or name == FLEET):
                pattern = "{:.0%} to {:.0%}" if unit == "utilised" else "{:.3g} to {:.3g}"
                span = pattern.format(min(known), max(known))
                rows.append((name[:10], unit, sparkline(values, levels=levels), span))
    return text_table(("cluster", "", f"{labels[0]} to {labels[-1]}", "lowest to highest"), rows)


def run_answer(folder: Path, result: RunResult, chance: Chance | None) -> Answer[RunResult]:
    """Return a run as an answer; its text is the clusters' figures, what there is to say of them, and the months."""
    return Answer(
        folder=folder,
        result=result,
        warnings=result.warnings,
        notes=result.plan.notes,
        summarise=lambda: summary(result, chance),
        say=lambda encoding: f"{summary_table(summary(result, chance))}\n\n{month_lines(result, encoding)}",
        rows=lambda: measure_table(result, chance),
    )
