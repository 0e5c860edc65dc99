"""The tables of several runs on top of one another: a run's own tables, with the scenario as first column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.output.assumptions import assumptions, model_error
from planner.output.columns import DescribedTable, TableDescription, text_column
from planner.output.run_columns import TABLES
from planner.run import tables
from planner.run.result import RunResult
from planner.scenario.scenario import Scenario

_SCENARIO = text_column("scenario", "Scenario, by its name.")


def _by_scenario(table: TableDescription) -> TableDescription:
    key = ("scenario", *table.key) if table.key else ()
    return replace(table, columns=(_SCENARIO, *table.columns), key=key)


def _warnings(result: RunResult) -> dict[str, list[str]]:
    told = [("warning", text) for text in result.warnings] + [("note", text) for text in result.plan.notes]
    return TABLES["warnings"].filled(told)


RUN_COLUMNS: dict[str, Callable[[RunResult], Mapping[str, Any]]] = {
    "timeline_monthly": tables.timeline_monthly,
    "timeline_workloads": tables.timeline_workloads,
    "losses": tables.losses,
    "placement": tables.placement,
    "routing_monthly": tables.routing_monthly,
    "ledger": lambda result: {**tables.ledger(result), "amount_usd": result.ledger.amount_cents},
    "events": tables.events,
    "warnings": _warnings,
}
"""What makes each table that says how a run went, where its money and its machine time were spent."""
BY_SCENARIO = {name: _by_scenario(TABLES[name]) for name in (*RUN_COLUMNS, "assumptions")}
"""Tables of a run that a comparison or a study has for each of its scenarios."""


def run_columns_of(result: RunResult) -> dict[str, Mapping[str, Any]]:
    """Return those tables of a run."""
    return {name: make(result) for name, make in RUN_COLUMNS.items()}


def _stacked(name: str, by_plan: Mapping[str, Mapping[str, Any]]) -> DescribedTable:
    """Put the same table of several scenarios on top of one another."""
    description = BY_SCENARIO[name]
    columns: dict[str, list[Any]] = {column.name: [] for column in description.columns}
    for scenario, table in by_plan.items():
        length = len(next(iter(table.values())))
        columns["scenario"] += [scenario] * length
        for column in description.columns[1:]:
            columns[column.name] += list(table[column.name])
    return description, columns


def plan_tables(results: Mapping[str, RunResult]) -> list[DescribedTable]:
    """Return timelines, losses, ledger and events of runs by the names of their scenarios."""
    by_plan = {scenario: run_columns_of(result) for scenario, result in results.items()}
    names = RUN_COLUMNS if by_plan else ()
    return [_stacked(name, {scenario: tables[name] for scenario, tables in by_plan.items()}) for name in names]


def evidence_tables(scenarios: Mapping[str, Scenario]) -> list[DescribedTable]:
    """Return what scenarios assume, each value with source and grade, and the model's own error."""
    by_plan = {name: assumptions(scenario) for name, scenario in scenarios.items()}
    return [_stacked("assumptions", by_plan), (TABLES["model_error"], model_error())]
