"""What a study keeps of each run: headline figures and monthly series, as the run's own measures define them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.finance.unit_costs import ratio, usd_per_million_tokens
from planner.simulation.measures import SERVICE, Series, measures, series_of, service
from planner.simulation.result import RunResult

Floats = NDArray[np.float64]


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


def _service(name: str, unit: str, *, lower_is_better: bool) -> Output:
    return Output(name=name, unit=unit, description=SERVICE[name], lower_is_better=lower_is_better)


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
    _service("shed_fraction", "fraction", lower_is_better=True),
    _service("slo_attainment_fraction", "fraction", lower_is_better=False),
    _service("utilisation_fraction", "fraction", lower_is_better=False),
    _service("availability_fraction", "fraction", lower_is_better=False),
    _service("energy_kwh", "kWh", lower_is_better=True),
)
"""Figures over the whole horizon, in column order."""
MONTHLY = (
    _service("utilisation_fraction", "fraction", lower_is_better=False),
    _cost("cost_per_million_tokens_usd", "Accrued cost of the month per million tokens served.", _PER_MILLION, 6),
    _cost("spend_usd", "Cash paid in the month."),
)
"""Figures by month, in column order."""


def headline_names() -> tuple[str, ...]:
    """Return the names of the headline figures."""
    return tuple(output.name for output in HEADLINES)


def headlines(result: RunResult, series: Series | None = None) -> Floats:
    """Return a run's headline figures in column order, shape (outputs,); NaN where a figure has no meaning.

    ``series`` are the run's monthly series, where the caller has them already.
    """
    series = series_of(result) if series is None else series
    figures = {**measures(result), **service(result), "served_tokens": float(series.tokens.sum())}
    found = [figures[name] for name in headline_names()]
    return np.array([np.nan if value is None else value for value in found])


def monthly_series(result: RunResult, series: Series) -> Floats:
    """Return a run's monthly figures in column order, shape (outputs, months); NaN where there is nothing to divide."""
    monthly = result.monthly
    per_node = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters], dtype=np.float64)
    busy = (monthly.busy_node_h * per_node).sum(axis=1)
    return np.stack(
        [
            ratio(busy, series.accelerator_h),
            usd_per_million_tokens(series.accrued_usd, series.tokens),
            -series.cash_flow_usd,
        ]
    )
