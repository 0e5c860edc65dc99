"""The headline of a run: the few numbers a reader wants first."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.reporting.text_table import text_table
from planner.simulation.result import FLEET, RunResult
from planner.units import MILLION


def summary(result: RunResult) -> dict[str, Any]:
    """Return the headline numbers of a run, the fleet's and each cluster's."""
    monthly = result.monthly
    cost = result.cost_usd()
    rows = {FLEET: _figures(result, slice(None), cost)}
    for index, cluster in enumerate(result.plan.clusters):
        rows[cluster.name] = _figures(result, index, cost)
    demand, shed = monthly.demand_tokens.sum(), monthly.shed_tokens.sum()
    rows[FLEET]["demand_tokens"] = round(float(demand))
    rows[FLEET]["shed_tokens"] = round(float(shed))
    rows[FLEET]["shed_fraction"] = _round(shed / demand if demand > 0 else 0.0)
    return {
        "scenario": result.scenario.name,
        "start": result.plan.months.start.isoformat(),
        "horizon_months": result.scenario.horizon_months,
        "seed": result.seed,
        "replication": result.replication,
        "clusters": rows,
    }


def _figures(result: RunResult, which: Any, cost: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    monthly = result.monthly
    in_service = monthly.accelerator_hours_in_service[:, which].sum()
    delivered = monthly.accelerator_hours_delivered[:, which].sum()
    busy = monthly.busy_accelerator_hours[:, which].sum()
    served = monthly.served_tokens[:, which].sum()
    output = monthly.served_output_tokens[:, which].sum()
    spent = cost[:, which].sum()
    return {
        "availability_fraction": _round(in_service / delivered) if delivered > 0 else None,
        "utilisation_fraction": _round(busy / in_service) if in_service > 0 else None,
        "served_tokens": round(float(served)),
        "energy_kwh": _round(monthly.energy_kwh[:, which].sum() * result.plan.money.pue_ratio, 3),
        "cost_usd": _round(spent, 2),
        "cost_per_million_tokens_usd": _round(spent / served * MILLION) if served > 0 else None,
        "cost_per_million_output_tokens_usd": _round(spent / output * MILLION) if output > 0 else None,
    }


def _round(number: float, decimals: int = 6) -> float:
    return round(float(number), decimals)


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
    return text_table(header, rows)
