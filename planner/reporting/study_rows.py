"""The columns of a study's tables, from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.language.scenario import Scenario
from planner.reporting import study_columns
from planner.studies.analysis import Band, Driver, Finished, Statistic, first_broken_month
from planner.studies.decision import Comparison, Standing
from planner.studies.intervals import Estimate
from planner.studies.prepare import Prepared

Floats = NDArray[np.float64]
Columns = dict[str, list[Any]]
_BINS = 60


def statistics_columns(statistics: Iterable[Statistic]) -> Columns:
    """Lay out percentiles.csv."""
    return study_columns.PERCENTILES.filled(
        (row.scenario, row.output, row.statistic, *_ends(row.estimate), row.estimate.completed) for row in statistics
    )


def _ends(estimate: Estimate) -> tuple[float, float, float]:
    """Return a figure and its interval."""
    return estimate.value, estimate.low, estimate.high


def _share(estimate: Estimate) -> tuple[float, float, float]:
    """Return a share and its interval, which ends at none and all."""
    return estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0)


def band_columns(bands: Iterable[Band]) -> Columns:
    """Lay out monthly_bands.csv."""
    return study_columns.MONTHLY_BANDS.filled(
        (row.scenario, row.output, row.cluster, row.month, row.mean, *row.percentiles, row.completed) for row in bands
    )


def decision_columns(comparisons: Iterable[Comparison]) -> Columns:
    """Lay out decision.csv."""
    return study_columns.DECISION.filled(
        (
            row.scenario, row.against, *_share(row.probability_better), *_ends(row.mean_difference),
            row.mean_regret.value, row.p95_regret.value, row.mean_difference.completed,
        )
        for row in comparisons
    )  # fmt: skip


def promise_columns(prepared: Prepared, standings: Iterable[Standing]) -> Columns:
    """Lay out promise.csv."""

    def row(scenario: Scenario, standing: Standing) -> tuple[Any, ...]:
        promise, yes = scenario.promise, {True: "yes", False: "no"}
        stated = (promise.in_time, promise.each, promise.of, promise.in_replications, yes[scenario.states("promise")])
        kept = (yes[standing.keeps_promise], *_share(standing.kept_fraction), standing.shortfall_fraction)
        first = first_broken_month(prepared, standing) or ""
        completed = standing.kept_fraction.completed
        return (standing.scenario, *stated, *kept, first, *_share(standing.best_fraction), completed)

    scenarios = [base.scenario for base in prepared.scenarios]
    return study_columns.PROMISE.filled(map(row, scenarios, standings))


def driver_columns(drivers: Iterable[Driver], completed: int) -> Columns:
    """Lay out sensitivity.csv; ``completed`` replications, with every scenario run, stand behind it."""
    return study_columns.SENSITIVITY.filled(
        (row.scenario, row.against, row.method, row.input, row.measure, row.value, row.low, row.high, completed)
        for row in drivers
    )


def completed_rows(headline: Floats) -> int:
    """Return the rows in which every scenario could be run; ``headline`` has shape (rows, scenarios)."""
    return int(np.isfinite(headline).all(axis=1).sum())


def distribution_columns(headline: Floats, names: Sequence[str]) -> Columns:
    """Lay out distribution.csv: one scale for all scenarios, so that they can be held against each other."""
    known = headline[np.isfinite(headline)]
    low, high = np.percentile(known, [0.2, 99.8]) if known.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    runs = [headline[np.isfinite(headline[:, which]), which] for which in range(len(names))]
    return study_columns.DISTRIBUTION.filled(
        (name, *cells, values.size)
        for name, values in zip(names, runs, strict=True)
        for cells in zip(edges[:-1].tolist(), edges[1:].tolist(), np.histogram(values, edges)[0].tolist(), strict=True)
    )


def convergence_columns(finished: Finished) -> Columns:
    """Lay out convergence.csv."""
    return study_columns.CONVERGENCE.filled(
        (name, end, *_ends(path[which]), path[which].completed)
        for which, name in enumerate(finished.prepared.names)
        for end, path in finished.convergence()
    )
