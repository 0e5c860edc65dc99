"""One run as an answer: its tables, its folder, and what a program and a terminal get of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from planner.answers.answer import Answer
from planner.answers.assumptions import assumptions, layouts, model_error
from planner.answers.identity import command_again, run_identity
from planner.answers.run_screen import details, first_screen, replications_screen
from planner.answers.run_summary import key_figures, plan_verdict, run_summary, slo_misses
from planner.answers.tables import TABLES, by_scenario
from planner.engine.processes import name_of
from planner.files import json_text
from planner.finance.accounting.carrying_values import carrying_columns
from planner.finance.accounting.commitments import commitments
from planner.finance.accounting.measures import measures
from planner.finance.measure_names import DRAWS, MEASURES
from planner.finance.statements import Frequency
from planner.output import folder as folders
from planner.output.folder import REPORT, SUMMARY, WORKBOOK, Contents
from planner.output.tables import Cells, Table, csv_files, stacked, write_csv
from planner.parallel import shared
from planner.run import tables
from planner.run.events import events
from planner.run.incidents import incident_rows
from planner.run.loan_tables import loan_rows, stress_rows
from planner.run.replications import Replications, ends_of
from planner.run.simulate import RunResult
from planner.scenario.scenario import Scenario
from planner.studies.remedy import NoRemedy, Remedy
from planner.units import unit_of

PLAN_COLUMNS: dict[str, Callable[[RunResult], Mapping[str, Cells]]] = {
    "clusters": lambda result: TABLES["clusters"].of_rows(tables.cluster_rows(result)).columns,
    "timeline_monthly": tables.timeline_monthly,
    "timeline_monthly_clusters": partial(tables.timeline_monthly, clusters=True),
    "timeline_workloads": tables.timeline_workloads,
    "unit_economics": tables.unit_economics,
    "workload_costs": tables.workload_costs,
    "losses": tables.losses,
    "placement": tables.placement,
    "routing_monthly": tables.routing_monthly,
    "ledger": lambda result: {**tables.ledger(result), "amount_usd": result.ledger.amount_cents},
    "events": events,
    "warnings": lambda result: {
        "severity": ["warning"] * len(result.warnings) + ["note"] * len(result.plan.notes),
        "text": [*result.warnings, *result.plan.notes],
    },
}
"""What makes each table that says how a run went, where its money and its machine time were spent: those that a
comparison or a study has for each of its scenarios."""


def run_tables(result: RunResult, *, hourly: bool = False) -> list[Table]:
    """Return every table of a run; its measures have no intervals yet."""
    columns: dict[str, Mapping[str, Cells]] = {
        name: make(result) for name, make in PLAN_COLUMNS.items()
    }
    # Dear to work out: the live page leaves these out, and only a folder has them.
    columns["slo_misses"] = tables.slo_misses(result)
    columns["commitments"] = commitments(result)
    columns["carrying_values"] = carrying_columns(result)
    for span in (Frequency.QUARTER, Frequency.YEAR):
        columns[f"unit_economics_{span}ly"] = tables.unit_economics(result, span)
    for suffix, by_cluster in (("", False), ("_clusters", True)):
        for span in Frequency:
            statement = tables.statement(result, span, clusters=by_cluster)
            columns[f"statement_{span}ly{suffix}"] = statement
        if hourly:
            timeline = tables.timeline_hourly(result, clusters=by_cluster)
            columns[f"timeline_hourly{suffix}"] = timeline
    rows: dict[str, Iterable[Sequence[object]]] = {
        "software_incidents": incident_rows(result),
        "focus": tables.focus_rows(result),
        "accounts": tables.account_rows(),
        "reconciliation": tables.reconciliation_rows(result),
        "loan_monthly": loan_rows(result),
        "loan_stress": stress_rows(result),
    }
    by_name = {name: Table(TABLES[name], cells) for name, cells in columns.items()}
    by_name |= {name: TABLES[name].of_rows(cells) for name, cells in rows.items()}
    inputs = (
        layouts(result.scenario, tables.usd_per_node_year(result)),
        assumptions(result.scenario),
        model_error(),
    )
    further = (measure_table(result), *inputs)
    by_name |= {table.name: table for table in further}
    del by_name["warnings"]  # those of a single run stand in its summary
    # In the order of the reference, whoever made them first.
    return [by_name[name] for name in TABLES if name in by_name]


def with_scenario(table: Table, scenario: str) -> Table:
    """Return a run's table as its file has it, with the name of the scenario in a column."""
    described = by_scenario(table.description)
    # The chart of accounts and the model's error are the same in every run.
    if described == table.description:
        return table
    names = [scenario] * len(table)
    return Table(described, {"scenario": names, **table.columns})


def measure_table(result: RunResult, replications: Replications | None = None) -> Table:
    """Return measures.csv."""
    rows = []
    values = measures(result).items()
    for (name, value), measure in zip(values, MEASURES, strict=True):
        interval = None
        if replications is not None:
            interval = replications.interval(name)
        unit = unit_of(name) or ""
        definition = (measure.view, measure.formula)
        rows.append((name, value, *ends_of(interval), unit, *definition))
    return TABLES["measures"].of_rows(rows)


def plan_tables(results: Mapping[str, RunResult]) -> list[Table]:
    """Return timelines, losses, ledger and events of runs, by the names of their scenarios on top of one another."""
    if not results:
        return []
    stacks = []
    # Table by table, so that only one of them is held for all plans at a time.
    for name, make in PLAN_COLUMNS.items():
        by_plan = {
            scenario: Table(TABLES[name], make(result)) for scenario, result in results.items()
        }
        description = by_scenario(TABLES[name])
        stacks.append(stacked(description, by_plan))
    return stacks


def evidence_tables(scenarios: Mapping[str, Scenario]) -> list[Table]:
    """Return what scenarios assume, each value with source and grade, and the model's own error."""
    by_plan = {name: assumptions(scenario) for name, scenario in scenarios.items()}
    stack = stacked(by_scenario(TABLES["assumptions"]), by_plan)
    return [stack, model_error()]


def write_run(
    result: RunResult,
    folder: Path,
    await_replications: Callable[[], Replications | None] | None = None,
    *,
    hourly: bool = False,
    command: Sequence[str] = (),
    remedy: Remedy | NoRemedy | None = None,
) -> Replications | None:
    """Write a run's folder, whole or not at all, and return the replications behind its intervals.

    ``await_replications`` waits for these, once all else is worked out: others may run them meanwhile. ``hourly`` adds
    to the usual files. ``command`` is what writes the same bytes, where it is not a run; ``remedy``
    what was found to meet a target that is missed.
    """
    # Loaded once the first screen is there: a fifth of a second.
    from planner.answers.live_workbook import run_pages, run_workbook  # noqa: PLC0415 - as above
    from planner.answers.plan_workbooks import months_pages  # noqa: PLC0415 - as above
    from planner.answers.report import build_report  # noqa: PLC0415 - as above

    plain_tables = run_tables(result, hourly=hourly)
    scenario = result.scenario.name
    columns = {table.name: table.columns for table in plain_tables}
    pages = run_pages(result, columns)
    by_name = {table.name: with_scenario(table, scenario) for table in plain_tables}
    # Everything that needs no replication is done before these are awaited: others run them meanwhile.
    csv_bytes = {name: write_csv(table) for name, table in by_name.items() if name != "measures"}
    # Kept with the run: the summary below finds it ready.
    slo_misses(result)
    replications = await_replications() if await_replications else None
    number = 1 if replications is None else replications.number
    measured = measure_table(result, replications)
    by_name["measures"] = with_scenario(measured, scenario)
    # A number that is the usual one is no option of the command.
    options = {
        "--seed": result.seed,
        "--replications": None if number == DRAWS else number,
        "--hourly": hourly,
        "--advise": remedy is not None,
    }
    identity = run_identity(result.scenario, result.seed, result.replication)
    if result.processes:
        # A process of the user's own changes results, and is in no scenario file.
        process_names = [name_of(process) for process in result.processes]
        identity["processes"] = process_names
    identity["replications"] = number
    identity["command"] = list(command)
    if not command:
        identity["command"] = command_again("run", [result.scenario], options)
    summary = run_summary(result, replications, remedy).to_json()
    csv_names = (f"{name}.csv" for name in by_name)
    contents = Contents(
        manifest=identity,
        tables=by_name,
        summary=summary,
        beside=folders.openable([*csv_names, WORKBOOK]),
    )
    months = {}
    if replications is not None:
        months = months_pages(result.plan.months.labels, {scenario: replications})
    # Workbook and report need nothing of each other: two processes make them.
    workbook, report = shared(
        [lambda: run_workbook(result, pages, months), lambda: build_report(contents)]
    )
    files = csv_files(contents.name.lower(), by_name.values(), ready=csv_bytes)
    summary_bytes = json_text(contents.summary).encode()
    files |= {SUMMARY: summary_bytes, WORKBOOK: workbook, REPORT: report}
    folders.write_folder(folder, files, identity)
    return replications


def run_answer(
    folder: Path,
    result: RunResult,
    replications: Replications | None,
    remedy: Remedy | NoRemedy | None = None,
) -> Answer[RunResult]:
    """Return a run as an answer: its first screen, what replications say and, where they are wanted, the details."""

    def text(verbose: bool) -> str:
        summary = run_summary(result, replications, remedy)
        screen = f"{first_screen(summary)}\n{replications_screen(summary)}"
        return f"{screen}\n\n{details(summary)}" if verbose else screen

    return Answer(
        folder=folder,
        result=result,
        warnings=result.warnings,
        notes=result.plan.notes,
        summarise=lambda: run_summary(result, replications, remedy).to_json(),
        say=text,
        is_met=lambda: plan_verdict(result, replications).status == "MET",
        rows=lambda: measure_table(result, replications),
    )


def first_answer(folder: Path, result: RunResult) -> Answer[RunResult]:
    """Return the base replication as an answer, before others are run and anything is written."""
    return replace(
        run_answer(folder, result, None),
        # Key figures alone: why requests are late takes longer than all the rest.
        say=lambda _: first_screen(key_figures(result)),
        is_written=False,
    )
