"""What a study keeps of each run: headline figures and monthly series, as the run's own measures define them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.results.measures import Series, measures, series_of, service
from planner.results.result import RunResult
from planner.studies.headlines import MONTHLY, headline_names

Floats = NDArray[np.float64]


def headlines(result: RunResult, series: Series | None = None) -> Floats:
    """Return a run's headline figures in column order, shape (outputs,); NaN where a figure has no meaning.

    ``series`` are the run's monthly series, where the caller has them already.
    """
    series = series_of(result) if series is None else series
    figures = {**measures(result, series), **service(result, series), "served_tokens": float(series.tokens.sum())}
    found = [figures[name] for name in headline_names()]
    return np.array([np.nan if value is None else value for value in found])


def monthly_series(series: Series) -> Floats:
    """Return a run's monthly figures in column order, shape (outputs, months); NaN where there is nothing to divide."""
    figures = series.sums.figures()
    shown = {name: table[:, -1] for name, table in figures.items()} | {"spend_usd": -series.cash_flow_usd}
    return np.stack([shown[output.name] for output in MONTHLY])
