from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from planner.studies import distributions
from planner.studies.designs import PointSet


def points(count: int, dimensions: int) -> np.ndarray:
    cube = PointSet(dimensions=dimensions, scramblings=4, seed=3)
    return cube.points(np.arange(count))


def matrix(*pairs: tuple[int, int, float], size: int = 3) -> np.ndarray:
    ranks = np.eye(size)
    for a, b, rank in pairs:
        ranks[a, b] = ranks[b, a] = rank
    return ranks


def test_columns_get_the_rank_correlations_asked_for() -> None:
    ranks = matrix((0, 1, 0.7), (1, 2, -0.4))
    moved = distributions.correlate(points(8192, 3), distributions.factor(ranks))
    found = stats.spearmanr(moved).statistic
    assert found == pytest.approx(ranks, abs=0.01)


def test_columns_stay_uniform_and_uncorrelated_inputs_stay_put() -> None:
    cube = points(4096, 3)
    moved = distributions.correlate(cube, distributions.factor(matrix((0, 1, 0.8))))
    assert moved[:, 2] == pytest.approx(cube[:, 2], abs=1e-9)
    for column in moved.T:
        assert stats.kstest(column, "uniform").pvalue > 0.01


def test_perfect_correlation_is_allowed() -> None:
    moved = distributions.correlate(points(256, 3), distributions.factor(matrix((0, 1, 1.0))))
    assert moved[:, 0] == pytest.approx(moved[:, 1])


def test_an_impossible_matrix_is_seen_and_mended() -> None:
    ranks = matrix((0, 1, 0.9), (1, 2, 0.9), (0, 2, -0.9))
    assert not distributions.is_valid(ranks)


@given(st.floats(-1, 1))
def test_scores_and_ranks_are_inverse(rank: float) -> None:
    there = distributions.score_correlation(np.array([rank]))
    assert 6.0 / np.pi * np.arcsin(there / 2.0) == pytest.approx([rank], abs=1e-9)
