"""Plans in named futures as part of an answer: a table, what the terminal says, and the grid of the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.answers.ranking import COST
from planner.answers.sections import section
from planner.answers.verdicts import first_missed_month
from planner.output.blocks import Grid, Section, sentences
from planner.output.tables import ColumnKind, Table, TableDescription
from planner.output.terminal import cell, text_table, wrapped
from planner.output.words import dollars, percent
from planner.studies.futures import InFuture
from planner.studies.remedy import NoRemedy, Remedy
from planner.units import MILLION, counted

NOT_RANKED = (
    "Nobody chooses a future, so plans are compared within each one and never ranked across them."
)


def future_row(in_future: InFuture) -> tuple[object, ...]:
    """Return the row of futures.csv of a plan in a future."""
    verdict = in_future.verdict
    replications = in_future.replications.figures
    base = replications[0]
    # None in a replication without requests becomes NaN, which counts nowhere.
    met_months = np.array([figures["slo_met_months"] for figures in replications], float)
    labels = in_future.result.plan.months.labels
    remedy = in_future.remedy
    # Money is that of the base case, the first replication.
    return (
        in_future.scenario,
        in_future.future,
        in_future.weight,
        verdict.status,
        verdict.share,
        *verdict.interval,
        # Empty where the plan lasts to the horizon.
        first_missed_month(met_months, verdict.confidence, labels) or "",
        None if base["npv_usd"] is None else -base["npv_usd"],
        base[COST],
        base["utilisation_fraction"],
        *_remedy_cells(remedy),
    )


def pending_row(described: TableDescription, scenario: str, future: str) -> tuple[object, ...]:
    """Return the row of a plan in a future that is still to run: an ellipsis for its status, no other figures."""
    stated = {"scenario": scenario, "future": future, "status": "…"}
    words = (ColumnKind.TEXT, ColumnKind.MONTH)
    return tuple(
        stated.get(column.name, "" if column.kind in words else None)
        for column in described.columns
    )


def _remedy_cells(remedy: Remedy | NoRemedy | None) -> tuple[object, ...]:
    """Return a remedy's cluster, nodes and cost, or why there is none."""
    if isinstance(remedy, Remedy):
        return remedy.cluster, remedy.nodes, remedy.net_present_cost_usd, None
    reason = None if remedy is None else remedy.reason
    return None, None, None, reason


def futures_table(described: TableDescription, in_futures: Sequence[InFuture]) -> Table:
    """Return futures.csv: one row for each plan in each future."""
    return described.of_rows(map(future_row, in_futures))


def futures_lines(futures: Table) -> list[str]:
    """Return the plans in each future for a terminal, and what they come to by the futures' weights."""
    texts = ("future", "scenario", "status", "first_missed_month", "remedy_cluster")
    numbers = ("slo_met_fraction", "net_present_cost_usd", "remedy_nodes", "remedy_cost_usd")
    # Names are cut to what a line of a terminal holds.
    rows = [
        (
            future[:24],
            plan[:16],
            f"{status} {cell(met_fraction, '.0%')}",
            month[:7],
            cell(cost_usd, ",.1f", MILLION),
            f"{nodes:,.0f} {cluster}" if cluster else "",
            cell(remedy_usd, ",.1f", MILLION),
        )
        for (
            future,
            plan,
            status,
            month,
            cluster,
            met_fraction,
            cost_usd,
            nodes,
            remedy_usd,
        ) in futures.rows(*texts, numbers=numbers)
    ]
    header = ("future", "plan", "SLO", "missed", "NPC M$", "more nodes", "M$")
    # A sizing looks for no remedies, and where every target is met none is needed.
    has_remedies = any(row[-1] for row in rows)
    columns = len(header) if has_remedies else header.index("more nodes")
    table = text_table(header[:columns], [row[:columns] for row in rows])
    remarks = wrapped([*reason_lines(futures), *weighted_lines(futures)])
    return [*wrapped([NOT_RANKED]), "", table, "", *remarks]


def reason_lines(futures: Table) -> list[str]:
    """Say of each plan that misses its target in a future without a remedy why there is none."""
    missed = futures.where("status", "MISSED")
    return [
        f"No remedy for {plan} in the future {name!r}: {reason}."
        for plan, name, reason in missed.rows("scenario", "future", "remedy_reason")
        if reason
    ]


def weighted_lines(futures: Table) -> list[str]:
    """Say what each plan costs, and how often it meets its SLO target, over the futures by their weights."""
    lines = []
    for name in dict.fromkeys(futures.texts("scenario")):
        plan = futures.where("scenario", name)
        weights = plan.totals("weight")
        total = sum(weights)
        if not total:  # no future has a weight
            continue
        # A future without a weight counts nothing, whatever it costs.
        costs = zip(weights, plan.totals("net_present_cost_usd"), strict=True)
        shares = zip(weights, plan.totals("slo_met_fraction"), strict=True)
        cost_usd = sum(weight * cost for weight, cost in costs) / total
        met_fraction = sum(weight * share for weight, share in shares) / total
        lines.append(
            f"Weighted over the futures, {name} has a net present cost of {dollars(cost_usd)} and P(SLO met) "
            f"{percent(met_fraction, 0)}."
        )
    return lines


def futures_section(futures: Table | None) -> Section | None:
    """Return one grid of plans by futures: verdict, first month missed, P(SLO met), cost, nodes that would meet it."""
    if not futures:
        return None
    cells: dict[str, dict[str, str]] = {}
    texts = ("scenario", "future", "status", "first_missed_month", "remedy_cluster")
    numbers = ("slo_met_fraction", "net_present_cost_usd", "remedy_nodes")
    table_rows = futures.rows(*texts, numbers=numbers)
    for plan, future, status, month, cluster, met_fraction, cost_usd, nodes in table_rows:
        words = [status]
        if month:
            words.append(f"from {month[:7]}")
        if met_fraction is not None:  # not run yet on the live page
            words += [f"P {percent(met_fraction, 0)}", dollars(cost_usd)]
        if cluster:
            words.append(f"{counted(int(nodes), 'more node')} of {cluster} would meet it")
        cells.setdefault(plan, {})[future] = ", ".join(words)
    names = [*dict.fromkeys(futures.texts("future"))]
    rows = []
    for plan, by_future in cells.items():
        row = [by_future[name] for name in names]
        rows.append((plan, *row))
    grid = Grid(
        caption="Each plan in each future: SLO verdict, first month missed, P(SLO met), net present cost",
        header=("plan", *names),
        rows=rows,
    )
    return section(
        "futures",
        [
            *sentences([NOT_RANKED], "note"),
            grid,
            *sentences([*reason_lines(futures), *weighted_lines(futures)]),
        ],
    )
