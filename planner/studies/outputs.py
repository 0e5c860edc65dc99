"""What a study keeps of each run: headline figures and monthly series, read off the run's own result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import View
from planner.finance.ledger import Dimension
from planner.simulation.result import RunResult
from planner.units import MILLION

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One figure of a run."""

    name: str
    unit: str
    description: str
    lower_is_better: bool
    decimals: int = 6


HEADLINES = (
    Output(
        name="cost_per_million_tokens_usd",
        unit="USD/million tokens",
        description="Accrued cost over the horizon per million tokens served, prompt and output.",
        lower_is_better=True,
    ),
    Output(
        name="cost_per_million_output_tokens_usd",
        unit="USD/million tokens",
        description="Accrued cost over the horizon per million output tokens served.",
        lower_is_better=True,
    ),
    Output(name="cost_usd", unit="USD", description="Accrued cost over the horizon.", lower_is_better=True, decimals=2),
    Output(name="spend_usd", unit="USD", description="Cash paid over the horizon.", lower_is_better=True, decimals=2),
    Output(
        name="served_tokens",
        unit="tokens",
        description="Tokens served over the horizon, prompt and output.",
        lower_is_better=False,
        decimals=0,
    ),
    Output(
        name="shed_fraction",
        unit="fraction",
        description="Share of the tokens demanded that were refused or expired.",
        lower_is_better=True,
    ),
    Output(
        name="slo_attainment_fraction",
        unit="fraction",
        description="Share of requests served within their objective.",
        lower_is_better=False,
    ),
    Output(
        name="utilisation_fraction",
        unit="fraction",
        description="Accelerator-hours at work over accelerator-hours in service.",
        lower_is_better=False,
    ),
    Output(
        name="availability_fraction",
        unit="fraction",
        description="Accelerator-hours in service over accelerator-hours on site.",
        lower_is_better=False,
    ),
    Output(
        name="energy_kwh",
        unit="kWh",
        description="Energy the facility drew over the horizon.",
        lower_is_better=True,
        decimals=3,
    ),
)
"""Figures over the whole horizon, in column order."""
MONTHLY = (
    Output(
        name="utilisation_fraction",
        unit="fraction",
        description="Accelerator-hours at work over accelerator-hours in service.",
        lower_is_better=False,
    ),
    Output(
        name="cost_per_million_tokens_usd",
        unit="USD/million tokens",
        description="Accrued cost of the month per million tokens served.",
        lower_is_better=True,
    ),
    Output(name="spend_usd", unit="USD", description="Cash paid in the month.", lower_is_better=True, decimals=2),
)
"""Figures by month, in column order."""


def headline_names() -> tuple[str, ...]:
    """Return the names of the headline figures."""
    return tuple(output.name for output in HEADLINES)


def headlines(result: RunResult) -> Floats:
    """Return a run's headline figures in column order, shape (outputs,); NaN where nothing was served."""
    monthly, per_node = result.monthly, _per_node(result)
    served = result.tokens(monthly.served_requests).sum()
    output = result.tokens(monthly.served_requests, output_only=True).sum()
    demand, shed = result.tokens(monthly.demand_requests).sum(), result.tokens(monthly.shed_requests).sum()
    missed = monthly.shed_requests.sum() + monthly.late_requests.sum()
    cost = result.cost_usd().sum()
    in_service = (monthly.in_service_node_h * per_node).sum()
    return np.array(
        [
            _share(cost * MILLION, served),
            _share(cost * MILLION, output),
            cost,
            _spend(result).sum(),
            served,
            _share(shed, demand),
            1.0 - _share(missed, monthly.demand_requests.sum()),
            _share((monthly.busy_node_h * per_node).sum(), in_service),
            _share(in_service, (monthly.present_node_h * per_node).sum()),
            monthly.facility_kwh.sum(),
        ]
    )


def monthly_series(result: RunResult) -> Floats:
    """Return a run's monthly figures in column order, shape (outputs, months); NaN where there is nothing to divide."""
    monthly, per_node = result.monthly, _per_node(result)
    served = result.tokens(monthly.served_requests).sum(axis=(1, 2))
    in_service = (monthly.in_service_node_h * per_node).sum(axis=1)
    busy = (monthly.busy_node_h * per_node).sum(axis=1)
    cost = result.cost_usd().sum(axis=1)
    nothing = np.full(len(served), np.nan)
    return np.stack(
        [
            np.divide(busy, in_service, out=nothing.copy(), where=in_service > 0),
            np.divide(cost * MILLION, served, out=nothing.copy(), where=served > 0),
            _spend(result),
        ]
    )


def _per_node(result: RunResult) -> Floats:
    return np.array([cluster.accelerators_per_node for cluster in result.plan.clusters], dtype=np.float64)


def _spend(result: RunResult) -> Floats:
    """Return cash paid by month; a sum of ledger rows."""
    return np.asarray(result.ledger.totals_cents(Dimension.MONTH, view=View.CASH) / 100.0, dtype=np.float64)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
