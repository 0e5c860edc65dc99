"""The headline of a run: the few numbers a reader wants first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.reporting.judgement import much_shed, served, sizing
from planner.reporting.text_table import text_table, wrapped
from planner.simulation.chance import Chance
from planner.simulation.measures import measures
from planner.simulation.result import FLEET, RunResult
from planner.units import MILLION

Floats = NDArray[np.float64]


def summary(result: RunResult, chance: Chance | None = None) -> dict[str, Any]:
    """Return the headline numbers of a run: fleet, clusters, workloads, the worst month, the losses.

    ``chance`` is the plan drawn again; with it the headline has intervals.
    """
    monthly = result.monthly
    cost = result.cost_usd()
    fleet_cost, rented = result.fleet_cost_usd(), result.rented.requests
    rows = {FLEET: _figures(result, slice(None), fleet_cost, rented)}
    for index, cluster in enumerate(result.plan.clusters):
        rows[cluster.name] = _figures(result, index, cost[:, index])
    demand, shed = result.tokens(monthly.demand_requests), result.tokens(result.shed_requests())
    rows[FLEET]["demand_tokens"] = round(float(demand.sum()))
    rows[FLEET]["shed_tokens"] = round(float(shed.sum()))
    rows[FLEET]["shed_fraction"] = _round(shed.sum() / demand.sum() if demand.sum() > 0 else 0.0)
    missed = result.shed_requests() + monthly.late_requests
    attained = _attainment(monthly.demand_requests, missed)
    rows[FLEET]["slo_attainment_fraction"] = attained
    workloads = {
        workload.name: {
            "demand_tokens": round(float(demand[:, w].sum())),
            "shed_tokens": round(float(shed[:, w].sum())),
            "slo_attainment_fraction": _attainment(monthly.demand_requests[:, w], missed[:, w]),
        }
        for w, workload in enumerate(result.plan.workloads)
    }
    return {
        "scenario": result.scenario.name,
        "start": result.plan.months.start.isoformat(),
        "horizon_months": result.scenario.horizon_months,
        "seed": result.seed,
        "replication": result.replication,
        "clusters": rows,
        "workloads": workloads,
        "measures": {name: None if value is None else _round(value) for name, value in measures(result).items()},
        "chance": None if chance is None else chance_summary(chance),
        "worst_month": _worst_month(result, fleet_cost),
        "capacity_fraction": _capacity(result),
        "warnings": list(result.warnings),
        "notes": list(result.plan.notes),
    }


def chance_summary(chance: Chance) -> dict[str, Any]:
    """Return how often a plan was drawn, and where its figures lie."""
    found = {name: chance.interval(name) for name in chance.figures[0]}
    return {
        "draws": chance.draws,
        "coverage_fraction": _round(chance.coverage_fraction),
        "words": chance.words,
        "intervals": {
            name: [_round(interval.low), _round(interval.high)]
            for name, interval in found.items()
            if interval is not None
        },
    }


def _attainment(demand: Floats, missed: Floats) -> float | None:
    """Return the share of requests served within their objective."""
    return _round(1.0 - missed.sum() / demand.sum()) if demand.sum() > 0 else None


def _worst_month(result: RunResult, cost: Floats) -> dict[str, Any] | None:
    """Return the month in which most of what was settled was shed or late; the dearest one where nothing was.

    Work that waits is settled when it is served or given up, which may be a month after it came.
    """
    monthly = result.monthly
    settled = monthly.served_requests.sum(axis=(1, 2)) + monthly.shed_requests.sum(axis=1)
    missed = (result.shed_requests() + monthly.late_requests).sum(axis=1)
    share = np.divide(missed, settled, out=np.zeros_like(settled), where=settled > 0)
    served = result.tokens(monthly.served_requests).sum(axis=(1, 2))
    if not served.any():
        return None
    each = np.divide(cost, served, out=np.zeros_like(served), where=served > 0) * MILLION
    worst = int(np.argmax(share)) if share.max() > 1e-6 else int(np.argmax(each))
    return {
        "month": result.plan.months.labels[worst],
        "missed_fraction": _round(share[worst]),
        "cost_per_million_tokens_usd": _round(each[worst]) if served[worst] > 0 else None,
    }


def _capacity(result: RunResult) -> dict[str, float]:
    """Return where the node-hours on site went, as shares that sum to one."""
    monthly = result.monthly
    present = monthly.present_node_h.sum()
    parts = {
        "working": monthly.busy_node_h - monthly.drag_node_h,
        "lost_to_failures": monthly.failed_node_h,
        "lost_to_software": monthly.drag_node_h,
        "lost_to_outages": monthly.dark_node_h,
        "lost_to_power_cap": monthly.throttled_node_h,
        "without_demand": monthly.idle_node_h,
    }
    return {name: _round(part.sum() / present) if present > 0 else 0.0 for name, part in parts.items()}


def _figures(result: RunResult, which: Any, cost: Floats, rented: Floats | None = None) -> dict[str, Any]:
    """Return the figures of a cluster or the fleet; ``rented`` requests were served for the fleet elsewhere."""
    monthly = result.monthly
    per_node = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters])
    in_service = (monthly.in_service_node_h * per_node)[:, which].sum()
    present = (monthly.present_node_h * per_node)[:, which].sum()
    busy = (monthly.busy_node_h * per_node)[:, which].sum()
    served = result.tokens(monthly.served_requests).sum(axis=2)[:, which].sum()
    output = result.tokens(monthly.served_requests, output_only=True).sum(axis=2)[:, which].sum()
    if rented is not None:
        served += result.tokens(rented).sum()
        output += result.tokens(rented, output_only=True).sum()
    spent = cost.sum()
    return {
        "availability_fraction": _round(in_service / present) if present > 0 else None,
        "utilisation_fraction": _round(busy / in_service) if in_service > 0 else None,
        "served_tokens": round(float(served)),
        "energy_kwh": _round(monthly.facility_kwh[:, which].sum(), 3),
        "cost_usd": _round(spent, 2),
        "cost_per_million_tokens_usd": _round(spent / served * MILLION) if served > 0 else None,
        "cost_per_million_output_tokens_usd": _round(spent / output * MILLION) if output > 0 else None,
    }


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
    return "\n".join([*first, *([""] if first else []), text_table(header, rows), "", *_sentences(figures)])


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
    names = {"lost_to_failures": "failures", "lost_to_software": "software", "lost_to_outages": "outages",
             "lost_to_power_cap": "power cap", "without_demand": "no demand"}  # fmt: skip
    lost = sorted(((capacity[key], name) for key, name in names.items()), reverse=True)
    lines.append("node-hours lost to: " + ", ".join(f"{name} {share:.2%}" for share, name in lost if share > 0))
    if advice := sizing(figures, fleet):
        lines.append(advice)
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
