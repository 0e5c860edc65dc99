"""The columns of a study's tables, from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.reporting import study_columns
from planner.studies.analysis import Band, Driver, Finished, Statistic, first_broken_month
from planner.studies.decision import Comparison, Standing
from planner.studies.prepare import Prepared

Floats = NDArray[np.float64]
_BINS = 60


def statistics_columns(statistics: Iterable[Statistic]) -> dict[str, list[Any]]:
    """Lay out percentiles.csv."""
    rows = list(statistics)
    return {
        "scenario": [row.scenario for row in rows],
        "output": [row.output for row in rows],
        "statistic": [row.statistic for row in rows],
        "value": [row.estimate.value for row in rows],
        "low": [row.estimate.low for row in rows],
        "high": [row.estimate.high for row in rows],
        "completed": [row.estimate.completed for row in rows],
    }


def band_columns(bands: Iterable[Band]) -> dict[str, list[Any]]:
    """Lay out monthly_bands.csv."""
    rows = list(bands)
    names = ("p5", "p10", "p50", "p90", "p95")
    columns: dict[str, list[Any]] = {
        "scenario": [row.scenario for row in rows],
        "output": [row.output for row in rows],
        "cluster": [row.cluster for row in rows],
        "month": [row.month for row in rows],
        "mean": [row.mean for row in rows],
    }
    columns.update({name: [row.percentiles[place] for row in rows] for place, name in enumerate(names)})
    columns["completed"] = [row.completed for row in rows]
    return columns


def decision_columns(comparisons: Iterable[Comparison]) -> dict[str, list[Any]]:
    """Lay out decision.csv."""
    rows = list(comparisons)
    return {
        "scenario": [row.scenario for row in rows],
        "against": [row.against for row in rows],
        "probability_better": [row.probability_better.value for row in rows],
        "probability_low": [max(row.probability_better.low, 0.0) for row in rows],
        "probability_high": [min(row.probability_better.high, 1.0) for row in rows],
        "mean_difference": [row.mean_difference.value for row in rows],
        "difference_low": [row.mean_difference.low for row in rows],
        "difference_high": [row.mean_difference.high for row in rows],
        "mean_regret": [row.mean_regret.value for row in rows],
        "p95_regret": [row.p95_regret.value for row in rows],
        "completed": [row.mean_difference.completed for row in rows],
    }


def promise_columns(prepared: Prepared, standings: Iterable[Standing]) -> dict[str, list[Any]]:
    """Lay out promise.csv."""
    rows = list(standings)
    stated = [base.scenario.promise for base in prepared.scenarios]
    return {
        "scenario": [row.scenario for row in rows],
        "in_time_fraction": [promise.in_time for promise in stated],
        "each": [promise.each for promise in stated],
        "of": [promise.of for promise in stated],
        "in_replications_fraction": [promise.in_replications for promise in stated],
        "stated": ["yes" if base.scenario.states("promise") else "no" for base in prepared.scenarios],
        "kept": ["yes" if row.keeps_promise else "no" for row in rows],
        "kept_fraction": [row.kept_fraction.value for row in rows],
        "kept_low": [max(row.kept_fraction.low, 0.0) for row in rows],
        "kept_high": [min(row.kept_fraction.high, 1.0) for row in rows],
        "shortfall_fraction": [row.shortfall_fraction for row in rows],
        "first_broken_month": [first_broken_month(prepared, row) or "" for row in rows],
        "best_fraction": [row.best_fraction.value for row in rows],
        "best_low": [max(row.best_fraction.low, 0.0) for row in rows],
        "best_high": [min(row.best_fraction.high, 1.0) for row in rows],
        "completed": [row.kept_fraction.completed for row in rows],
    }


def driver_columns(drivers: Iterable[Driver], completed: int) -> dict[str, list[Any]]:
    """Lay out sensitivity.csv; ``completed`` replications, with every scenario run, stand behind it."""
    rows = list(drivers)
    names = ("scenario", "against", "method", "input", "measure", "value", "low", "high")
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in names}
    return {**columns, "completed": [completed] * len(rows)}


def completed_rows(headline: Floats) -> int:
    """Return the rows in which every scenario could be run; ``headline`` has shape (rows, scenarios)."""
    return int(np.isfinite(headline).all(axis=1).sum())


def distribution_columns(headline: Floats, names: Sequence[str]) -> dict[str, list[Any]]:
    """Lay out distribution.csv: one scale for all scenarios, so that they can be held against each other."""
    known = headline[np.isfinite(headline)]
    low, high = np.percentile(known, [0.2, 99.8]) if known.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    columns: dict[str, list[Any]] = {column.name: [] for column in study_columns.DISTRIBUTION.columns}
    for which, name in enumerate(names):
        rows = headline[np.isfinite(headline[:, which]), which]
        columns["scenario"] += [name] * _BINS
        columns["bin_low"] += edges[:-1].tolist()
        columns["bin_high"] += edges[1:].tolist()
        columns["replications"] += np.histogram(rows, edges)[0].tolist()
        columns["completed"] += [rows.size] * _BINS
    return columns


def convergence_columns(finished: Finished) -> dict[str, list[Any]]:
    """Lay out convergence.csv."""
    rows = [
        (name, end, path[which].value, path[which].low, path[which].high, path[which].completed)
        for which, name in enumerate(finished.prepared.names)
        for end, path in finished.convergence()
    ]
    names = ("scenario", "replications", "mean", "low", "high", "completed")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
