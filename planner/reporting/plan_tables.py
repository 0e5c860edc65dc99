"""The tables of several runs on top of one another: a run's own tables, with the scenario as first column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.language.scenario import Scenario
from planner.reporting.assumptions import assumptions, model_error
from planner.reporting.columns import Column, ColumnKind, DescribedTable, TableDescription
from planner.reporting.run_columns import (
    ASSUMPTIONS,
    EVENTS,
    LEDGER,
    LOSSES,
    MODEL_ERROR,
    PLACEMENT,
    ROUTING_MONTHLY,
    TIMELINE_MONTHLY,
    TIMELINE_WORKLOADS,
    WARNINGS,
)
from planner.results import tables
from planner.results.result import RunResult

_SCENARIO = Column(name="scenario", kind=ColumnKind.TEXT, description="Scenario, by its name.")


def _by_scenario(table: TableDescription) -> TableDescription:
    key = ("scenario", *table.key) if table.key else ()
    return replace(table, columns=(_SCENARIO, *table.columns), key=key)


BY_SCENARIO = {
    table.name: _by_scenario(table)
    for table in (
        TIMELINE_MONTHLY,
        TIMELINE_WORKLOADS,
        LOSSES,
        PLACEMENT,
        ROUTING_MONTHLY,
        LEDGER,
        EVENTS,
        WARNINGS,
        ASSUMPTIONS,
    )
}
"""Tables of a run that a comparison or a study has for each of its scenarios."""


def _warnings(result: RunResult) -> dict[str, list[str]]:
    told = [("warning", text) for text in result.warnings] + [("note", text) for text in result.plan.notes]
    return WARNINGS.filled(told)


RUN_COLUMNS: dict[str, Callable[[RunResult], Mapping[str, Any]]] = {
    TIMELINE_MONTHLY.name: tables.timeline_monthly,
    TIMELINE_WORKLOADS.name: tables.timeline_workloads,
    LOSSES.name: tables.losses,
    PLACEMENT.name: tables.placement,
    ROUTING_MONTHLY.name: tables.routing_monthly,
    LEDGER.name: lambda result: {**tables.ledger(result), "amount_usd": result.ledger.amount_cents},
    EVENTS.name: tables.events,
    WARNINGS.name: _warnings,
}
"""What makes each table that says how a run went, where its money and its machine time were spent."""


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
    names = [name for name in BY_SCENARIO if name != ASSUMPTIONS.name]
    return (
        [_stacked(name, {scenario: tables[name] for scenario, tables in by_plan.items()}) for name in names]
        if by_plan
        else []
    )


def evidence_tables(scenarios: Mapping[str, Scenario]) -> list[DescribedTable]:
    """Return what scenarios assume, each value with source and grade, and the model's own error."""
    by_plan = {name: assumptions(scenario) for name, scenario in scenarios.items()}
    return [_stacked(ASSUMPTIONS.name, by_plan), (MODEL_ERROR, model_error())]
