"""The figures a study keeps of each run: names, units and meanings, without the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One figure of a run."""

    name: str
    unit: str
    description: str
    lower_is_better: bool
    decimals: int = 6


def _cost(name: str, description: str, unit: str = "USD", decimals: int = 2) -> Output:
    return Output(name=name, unit=unit, description=description, lower_is_better=True, decimals=decimals)


def _service(name: str, unit: str, description: str, *, lower_is_better: bool) -> Output:
    return Output(name=name, unit=unit, description=description, lower_is_better=lower_is_better)


_UTILISATION = "Accelerator-hours at work over accelerator-hours in service."
_PER_MILLION = "USD/million tokens"
HEADLINES = (
    _cost("cost_per_million_tokens_usd", "Accrued cost per million tokens served, prompt and output.", _PER_MILLION, 6),
    _cost("cost_per_million_output_tokens_usd", "Accrued cost per million output tokens served.", _PER_MILLION, 6),
    _cost(
        "levelised_cost_per_million_tokens_usd",
        "Discounted cost per discounted million tokens, what is still owned at the end taken off.",
        _PER_MILLION,
        6,
    ),
    _cost("cost_usd", "Accrued cost over the horizon."),
    _cost("tco_usd", "Cash paid over the horizon less the value of what is still owned at the end."),
    _cost("capex_usd", "Purchases over the horizon."),
    _cost("cash_usd", "Cash paid over the horizon."),
    Output(
        name="npv_usd",
        unit="USD",
        description="Present value of income less cost; minus the discounted cost where nothing is sold.",
        lower_is_better=False,
        decimals=2,
    ),
    Output(
        name="served_tokens",
        unit="tokens",
        description="Tokens served over the horizon, prompt and output.",
        lower_is_better=False,
        decimals=0,
    ),
    _service("shed_fraction", "fraction", "Tokens shed over tokens asked for.", lower_is_better=True),
    _service(
        "slo_attainment_fraction",
        "fraction",
        "Requests served within their objective over requests.",
        lower_is_better=False,
    ),
    _service(
        "utilisation_fraction",
        "fraction",
        "Accelerator-hours at work over accelerator-hours in service.",
        lower_is_better=False,
    ),
    _service(
        "availability_fraction",
        "fraction",
        "Accelerator-hours in service over accelerator-hours on site.",
        lower_is_better=False,
    ),
    _service("energy_kwh", "kWh", "Energy at the meter.", lower_is_better=True),
)
"""Figures over the whole horizon, in column order."""
MONTHLY = (
    _service(
        "utilisation_fraction",
        "fraction",
        "Accelerator-hours at work over accelerator-hours in service.",
        lower_is_better=False,
    ),
    _cost("cost_per_million_tokens_usd", "Accrued cost of the month per million tokens served.", _PER_MILLION, 6),
    _cost("spend_usd", "Cash paid in the month."),
)
"""Figures by month, in column order."""


def headline_names() -> tuple[str, ...]:
    """Return the names of the headline figures."""
    return tuple(output.name for output in HEADLINES)
