"""Plans in named futures as part of an answer: a table, what the terminal says, and the grid of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.answers.sections import section
from planner.output.blocks import Block, Grid, Section, sentences
from planner.output.folder import Contents
from planner.output.tables import Table, TableDescription
from planner.output.terminal import cell, text_table, wrapped
from planner.output.words import dollars, percent
from planner.plan.attainment import met_months_over
from planner.studies.futures import InFuture
from planner.units import MILLION, counted

_KEPT = "A future is no choice: nobody decides it, and plans are not ranked by it."


def future_row(one: InFuture) -> tuple[Any, ...]:
    """Return the row of futures.csv of a plan in a future."""
    verdict = one.verdict
    figures = one.chance.figures[0]
    remedy = one.remedy
    months, labels = (
        [drawn["slo_met_months"] for drawn in one.chance.figures],
        one.result.plan.months.labels,
    )
    through = int(met_months_over(np.array(months, float), verdict.confidence))
    cost = None if figures["npv_usd"] is None else -figures["npv_usd"]
    money = (
        cost,
        figures["levelised_cost_per_million_tokens_usd"],
        figures["utilisation_fraction"],
    )
    more = (
        (None, None, None)
        if remedy is None
        else (remedy.cluster, remedy.nodes, remedy.net_present_cost_usd)
    )
    missed = labels[through] if through < len(labels) else ""
    met = (verdict.status, verdict.share, *verdict.interval, missed)
    return (one.scenario, one.future, one.weight, *met, *money, *more)


def futures_table(described: TableDescription, cells: Sequence[InFuture]) -> Table:
    """Return futures.csv: one row for each plan in each future."""
    return described.of_rows(map(future_row, cells))


def futures_lines(table: Table) -> list[str]:
    """Return the plans in each future for a terminal, and what they come to by the futures' weights."""
    rows = []
    texts = ("future", "scenario", "status", "first_missed_month", "remedy_cluster")
    numbers = ("slo_met_fraction", "net_present_cost_usd", "remedy_nodes", "remedy_cost_usd")
    for future, plan, status, month, cluster, met, cost, nodes, usd in table.rows(
        *texts, numbers=numbers
    ):
        more = (f"{nodes:,.0f} {cluster}" if cluster else "", cell(usd, ",.1f", MILLION))
        stands = f"{status} {cell(met, '.0%')}"
        rows.append((future[:24], plan[:16], stands, month[:7], cell(cost, ",.1f", MILLION), *more))
    header = ("future", "plan", "SLO", "missed", "NPC M$", "more nodes", "M$")
    return [*wrapped([_KEPT]), "", text_table(header, rows), "", *wrapped(weighted_lines(table))]


def weighted_lines(table: Table) -> list[str]:
    """Say what each plan costs, and how often it meets its SLO target, over the futures by their weights."""
    lines = []
    plans = dict[str, list[tuple[float, float, float]]]()
    for scenario, *figures in table.rows(
        "scenario", totals=("weight", "net_present_cost_usd", "slo_met_fraction")
    ):
        plans.setdefault(scenario, []).append((figures[0], figures[1], figures[2]))
    for name, rows in plans.items():
        if weight := sum(row[0] for row in rows):
            cost, met = (sum(row[0] * row[at] for row in rows) / weight for at in (1, 2))
            lines.append(
                f"By weight, {name} costs {dollars(cost)} and meets its SLO target with P {percent(met, 0)}."
            )
    return lines


def futures_section(contents: Contents) -> Section | None:
    """Return one grid of plans by futures: verdict, first month missed, P(SLO met), cost, nodes that would meet it."""
    if not (table := contents.table("futures")):
        return None
    grid: dict[str, dict[str, str]] = {}
    texts = ("scenario", "future", "status", "first_missed_month", "remedy_cluster")
    for plan, future, status, month, cluster, met, cost, nodes in table.rows(
        *texts, numbers=("slo_met_fraction", "net_present_cost_usd", "remedy_nodes")
    ):
        said = [status, f"from {month[:7]}" if month else ""]
        said += [] if met is None else [f"P {percent(met, 0)}", dollars(cost)]  # not drawn yet
        said.append(
            f"{counted(int(nodes), 'more node')} of {cluster} would meet it" if cluster else ""
        )
        grid.setdefault(plan, {})[future] = ", ".join(part for part in said if part)
    futures = [*dict.fromkeys(table.texts("future"))]
    rows = [(plan, *(cells[future] for future in futures)) for plan, cells in grid.items()]
    caption = (
        "Each plan in each future: SLO verdict, first month missed, P(SLO met), net present cost"
    )
    shown = Grid(caption=caption, header=("plan", *futures), rows=rows)
    blocks: list[Block] = [*sentences([_KEPT], "note"), shown, *sentences(weighted_lines(table))]
    return section("futures", blocks)
