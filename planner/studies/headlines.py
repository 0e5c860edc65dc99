"""The figures a study keeps of each run: names, units and meanings, without the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from planner.run.measure_names import DEFINITIONS, HIGHER_IS_BETTER, MEASURES
from planner.units import decimals_of, unit_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One figure of a run."""

    name: str
    unit: str
    description: str
    lower_is_better: bool
    decimals: int = 6


def _output(name: str) -> Output:
    """Return a registered figure as a study keeps it."""
    unit = unit_of(name) or ""
    return Output(
        name=name,
        unit=unit,
        description=DEFINITIONS[name],
        lower_is_better=name not in HIGHER_IS_BETTER,
        decimals=decimals_of(name),
    )


HEADLINES = tuple(
    _output(name)
    for name in dict.fromkeys((
        "cost_per_million_tokens_usd", "cost_per_million_output_tokens_usd", "levelised_cost_per_million_tokens_usd",
        "cost_usd", "tco_usd", "capex_usd", "cash_usd", "npv_usd", "served_tokens",
        "shed_fraction", "slo_attainment_fraction", "worst_in_time_fraction", "promise_shortfall_fraction",
        "promise_kept_months", "utilisation_fraction", "availability_fraction", "energy_kwh",
        *(measure.name for measure in MEASURES),
    ))
)  # fmt: skip
"""Figures over the whole horizon, in column order: how a plan serves, and every measure."""
CLUSTER_MONTHLY = tuple(_output(name) for name in ("cost_usd", "served_tokens", "revenue_usd"))
"""Figures by month of the fleet and of each cluster, in column order."""
MONTHLY = (
    *(_output(name) for name in ("utilisation_fraction", "cost_per_million_tokens_usd", "spend_usd")),
    *CLUSTER_MONTHLY,
)
"""Figures by month, in column order."""


def headline_names() -> tuple[str, ...]:
    """Return the names of the headline figures."""
    return tuple(output.name for output in HEADLINES)


def needed_by(name: str) -> str:
    """Return the key of finance without which a measure has no meaning; empty where it always has one."""
    return next((measure.needs for measure in MEASURES if measure.name == name), "")
