"""The names and formulas of the measures, apart from their arithmetic: the reference needs no array library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureDescription:
    """What a measure is, for the files and the docs."""

    name: str
    """With its unit as suffix."""
    view: str
    """The view of the ledger it reads; empty where it reads none."""
    formula: str
    """As in docs/explanation/finance.md."""


def _measure(name: str, view: str, formula: str) -> MeasureDescription:
    return MeasureDescription(name=name, view=view, formula=formula)


MEASURES = (
    _measure("cost_usd", "accrual", "Σ cost"),
    _measure("cost_per_million_tokens_usd", "accrual", "10⁶ · Σ cost / Σ tokens"),
    _measure("cost_per_million_output_tokens_usd", "accrual", "10⁶ · Σ cost / Σ output tokens"),
    _measure("levelised_cost_per_million_tokens_usd", "economic", "10⁶ · Σ cost·v / Σ tokens·v"),
    _measure("levelised_cost_per_million_output_tokens_usd", "economic", "10⁶ · Σ cost·v / Σ output tokens·v"),
    _measure("tco_usd", "economic", "Σ cost"),
    _measure("npv_usd", "economic", "Σ (income − cost − tax)·v"),
    _measure("capex_usd", "cash", "Σ purchases"),
    _measure("cash_usd", "cash", "Σ (cost + tax − income)"),
    _measure("end_value_usd", "economic", "value of what is still owned on the last day"),
    _measure("levelised_cost_per_accelerator_h_usd", "economic", "Σ cost·v / Σ accelerator-hours in service·v"),
    _measure("break_even_rental_utilisation_fraction", "economic", "levelised owned hour / levelised rent of an hour"),
    _measure("break_even_api_price_ratio", "economic", "Σ cost·v / Σ API bill·v"),
    _measure("api_saving_npv_usd", "economic", "Σ (API bill − cost)·v"),
    _measure("revenue_usd", "accrual", "Σ tokens·price"),
    _measure("gross_margin_fraction", "accrual", "(revenue − cost) / revenue"),
    _measure("break_even_utilisation_fraction", "accrual", "F / (Q·(p − v))"),
    _measure("irr_per_year", "economic", "r at which Σ flow·(1 + r)^(−m/12) = 0, if there is exactly one"),
    _measure("payback_months", "cash", "months until the running total of flows last turns to gain"),
    _measure("discounted_payback_months", "cash", "the same for flow·v"),
    _measure("tax_usd", "accrual", "Σ tax"),
    _measure("energy_kwh_per_million_tokens", "", "10⁶ · Σ kWh at the meter / Σ tokens"),
    _measure("operational_kg_per_million_tokens", "", "10⁶ · Σ kWh·g/kWh / 1000 / Σ tokens"),
    _measure("embodied_kg_per_million_tokens", "", "10⁶ · Σ embodied kg of the months / Σ tokens"),
)
"""Every measure of a run, in the order of the files."""

SERVICE = {
    "availability_fraction": "Accelerator-hours in service over accelerator-hours on site.",
    "utilisation_fraction": "Accelerator-hours at work over accelerator-hours in service.",
    "shed_fraction": "Tokens shed over tokens asked for.",
    "slo_attainment_fraction": "Requests served within their objective over requests.",
    "energy_kwh": "Energy at the meter.",
}
"""How a plan served: what a cost per token must be read with."""
AGAINST_BASELINE = (
    MeasureDescription(name="saving_npv_usd", view="economic", formula="Σ (flow − baseline's flow)·v"),
    MeasureDescription(
        name="saving_irr_per_year", view="economic", formula="r at which that sum is zero, if there is exactly one"
    ),
    MeasureDescription(
        name="saving_payback_months", view="cash", formula="months until the running saving last turns to gain"
    ),
    MeasureDescription(name="saving_discounted_payback_months", view="cash", formula="the same for saving·v"),
)
"""Measures of one scenario against the baseline, at the baseline's discount rate."""
