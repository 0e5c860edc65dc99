from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from planner.studies.decision import (
    half_width,
    mean_estimate,
    percentile_estimate,
    spread_estimates,
)
from planner.studies.designs import PointSet

SCRAMBLINGS = 8


def model(points: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """A sum of three normals of variance 1 and noise of variance 1: normal with mean 0 and variance 4."""
    return np.asarray(stats.norm.ppf(points).sum(axis=1) + chance.standard_normal(len(points)))


def coverage(percentile: float | None, studies: int = 400, rows: int = 1024) -> float:
    truth = 0.0 if percentile is None else float(stats.norm.ppf(percentile / 100, scale=2.0))
    covered = 0
    for seed in range(studies):
        cube = PointSet(dimensions=3, scramblings=SCRAMBLINGS, seed=seed)
        output = model(cube.points(np.arange(rows)), np.random.default_rng(seed))
        if percentile is None:
            found = mean_estimate(output, SCRAMBLINGS)
        else:
            found = percentile_estimate(output, SCRAMBLINGS, percentile)
        covered += found.low <= truth <= found.high
    return covered / studies


@pytest.mark.parametrize(
    "percentile", [None, 95, *(pytest.param(other, marks=pytest.mark.prove) for other in (5, 50))]
)
@pytest.mark.prove
def test_intervals_cover_at_the_stated_rate(percentile: float | None) -> None:
    found = coverage(percentile)
    assert abs(found - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)


def test_the_naive_interval_would_be_far_too_wide() -> None:
    cube = PointSet(dimensions=3, scramblings=SCRAMBLINGS, seed=1)
    output = stats.norm.ppf(cube.points(np.arange(2048))).sum(axis=1)
    naive = 1.96 * output.std() / np.sqrt(len(output))
    assert mean_estimate(output, SCRAMBLINGS).half_width < 0.2 * naive


def test_half_width_is_students() -> None:
    figures = np.array([1.0, 2.0, 4.0, 5.0])
    low, high = stats.t.interval(0.95, 3, loc=figures.mean(), scale=stats.sem(figures))
    assert half_width(figures) == pytest.approx((high - low) / 2)
    assert np.isnan(half_width(np.array([1.0])))
    assert half_width(np.array([1.0, 2.0, 4.0, 5.0, np.nan])) == pytest.approx((high - low) / 2)


def test_too_few_rows_give_no_interval() -> None:
    rows = np.random.default_rng(1).random(200)
    assert np.isnan(percentile_estimate(rows, SCRAMBLINGS, 95).half_width)
    assert np.isfinite(percentile_estimate(rows, SCRAMBLINGS, 50).half_width)


def test_failed_rows_are_left_out() -> None:
    rows = np.arange(64, dtype=float)
    rows[10] = np.nan
    found = mean_estimate(rows, SCRAMBLINGS)
    assert found.value == pytest.approx(np.nanmean(rows))
    assert np.isfinite(found.half_width)
    assert np.isnan(mean_estimate(np.full(8, np.nan), SCRAMBLINGS).value)


def test_tail_mean_is_the_mean_of_the_worst_twentieth() -> None:
    rows = np.arange(100.0)
    high, low = (dict(spread_estimates(rows, SCRAMBLINGS, upper=upper)) for upper in (True, False))
    assert high["cvar95"].value == pytest.approx(97.0)
    assert low["cvar95"].value == pytest.approx(2.0)
    assert high["sd"].value == pytest.approx(rows.std(ddof=1))
