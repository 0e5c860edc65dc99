"""The registry of figures: names, formulas and meanings, apart from their arithmetic.

The arithmetic of each is one function in :mod:`planner.fleet.quantities` or :mod:`planner.finance.unit_costs`; columns,
data dictionary and reference take their words from ``figures.csv``, a line for each figure, and need no array library.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FLEET = "fleet"
"""All clusters and the site together, in every table."""
SITE = "site"
"""What belongs to no cluster, in the ledger: tax, credits, burst rental."""
DRAWS = 19
"""How often a run and a comparison draw a plan unless told otherwise: the fewest whose ends hold nine in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureDescription:
    """What a measure is, for the files and the docs."""

    name: str
    """With its unit as suffix."""
    view: str
    """The view of the ledger it reads; empty where it reads none."""
    formula: str
    """Over the sums of the ledger; docs/explanation/finance.md says how these are made."""
    meaning: str
    """What it says, and what it needs, for the reference (Markdown)."""
    needs: str = ""
    """The key of ``finance`` without which it has no meaning; empty where it always has one."""


def _measure(name: str, view: str, needs: str, _better: str, formula: str, meaning: str) -> MeasureDescription:
    said = f"{meaning.removesuffix('.')}; needs `finance.{needs}`." if needs else meaning
    return MeasureDescription(name=name, view=view, formula=formula, meaning=said, needs=needs)


with Path(__file__).with_name("figures.csv").open(encoding="utf-8", newline="") as _file:
    _LINES = list(csv.reader(_file))[1:]
MEASURES = tuple(_measure(*line) for kind, *line in _LINES if kind == "measure")
"""Every measure of a run, in the order of the files."""
AGAINST_BASELINE = tuple(_measure(*line) for kind, *line in _LINES if kind == "against baseline")
"""Measures of one scenario against the baseline, at the baseline's discount rate."""
DEFINITIONS = {measure.name: measure.meaning for measure in MEASURES} | {
    name: meaning for kind, name, *_, meaning in _LINES if kind == "figure"
}
"""What each figure is, once for every file that has it."""
HIGHER_IS_BETTER = frozenset(name for _, name, _, _, better, *_ in _LINES if better == "higher")
"""Figures of which more is better; of all others less is."""
SERVICE = (
    "availability_fraction", "utilisation_fraction", "shed_fraction", "slo_attainment_fraction",
    "worst_in_time_fraction", "promise_shortfall_fraction", "promise_kept_months", "energy_kwh",
)  # fmt: skip
"""How a plan served: what a cost per token must be read with."""
TIMELINE = (
    "accelerators_in_service", "availability_fraction", "utilisation_fraction", "demand_tokens", "served_tokens",
    "shed_tokens", "energy_kwh", "cost_usd", "cost_per_million_tokens_usd", "served_output_tokens",
    "cost_per_million_output_tokens_usd", "backlog_tokens", "slo_attainment_fraction", "peak_facility_kw",
    "cumulative_cost_per_million_tokens_usd", "cumulative_cost_per_million_output_tokens_usd",
    "levelised_cost_per_million_tokens_usd", "levelised_cost_per_million_output_tokens_usd", "rented_tokens",
    "accelerators_needed", "peak_accelerators_needed", "power_limit_kw",
)  # fmt: skip
"""The figures of the monthly timeline, in the order of its columns."""
FLEET_ONLY = frozenset(
    (
        "demand_tokens", "shed_tokens", "backlog_tokens", "slo_attainment_fraction", "peak_facility_kw",
        "rented_tokens", "accelerators_needed", "peak_accelerators_needed", "power_limit_kw",
    )
)  # fmt: skip
"""Figures of the timeline that belong to no cluster."""
