"""What a study keeps of each run: headline figures and monthly series, as the run's own measures define them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.finance.unit_costs import ratio, usd_per_million_tokens
from planner.simulation.measures import Series, measures, series_of, service
from planner.simulation.result import RunResult
from planner.studies.headlines import headline_names

Floats = NDArray[np.float64]


def headlines(result: RunResult, series: Series | None = None) -> Floats:
    """Return a run's headline figures in column order, shape (outputs,); NaN where a figure has no meaning.

    ``series`` are the run's monthly series, where the caller has them already.
    """
    series = series_of(result) if series is None else series
    figures = {**measures(result, series), **service(result), "served_tokens": float(series.tokens.sum())}
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
