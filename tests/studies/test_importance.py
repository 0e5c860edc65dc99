from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from planner.studies.sensitivity import bin_of, flip, importance, spearman

GENERATOR = np.random.default_rng(8)
X = GENERATOR.random(4000)
NOISE = GENERATOR.standard_normal(4000)


def test_an_idle_input_stays_within_the_noise() -> None:
    found = importance(X, NOISE)
    assert abs(found["rank-correlation", "spearman"][0]) < 0.06
    assert (
        found["variance-share", "first_order"][0] < found["variance-share", "noise_level"][0] < 0.01
    )


def test_an_idle_input_passes_for_a_driver_once_in_a_hundred() -> None:
    random = np.random.default_rng(3)
    tries = [importance(random.random(64), random.standard_normal(64)) for _ in range(1000)]
    passed = np.mean(
        [
            found["variance-share", "first_order"][0] > found["variance-share", "noise_level"][0]
            for found in tries
        ]
    )
    assert 0.005 < passed < 0.016
    many = [
        importance(random.random(64), random.standard_normal(64), inputs=20) for _ in range(1000)
    ]
    assert (
        np.mean(
            [
                found["variance-share", "first_order"][0]
                > found["variance-share", "noise_level"][0]
                for found in many
            ]
        )
        < 0.002
    )


def test_a_driver_stands_out_even_without_a_trend() -> None:
    found = importance(X, (X - 0.5) ** 2 * 40 + NOISE)
    assert abs(found["rank-correlation", "spearman"][0]) < 0.1
    assert (
        found["variance-share", "first_order"][0] > 0.3 > found["variance-share", "noise_level"][0]
    )


def test_spearman_is_scipys_ties_included() -> None:
    first = np.round(X * 20)
    second = np.round(X * 10 + NOISE)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert spearman(np.ones(10), X[:10]) == 0.0


@given(st.lists(st.floats(-10, 10), min_size=30, max_size=200, unique=True))
def test_bins_are_equal_and_in_order(values: list[float]) -> None:
    array = np.array(values)
    bins = bin_of(array)
    counts = np.bincount(bins)
    assert len(counts) == 10
    assert counts.max() - counts.min() <= 1
    assert np.all(np.diff(bins[np.argsort(array)]) >= 0)


def test_a_flip_is_found_where_the_difference_changes_sign() -> None:
    assert flip(X, (X - 0.3) + 0.1 * NOISE) == pytest.approx(0.3, abs=0.02)
    assert flip(X, -(X - 0.7) + 0.1 * NOISE) == pytest.approx(0.7, abs=0.02)


def test_no_flip_where_one_is_always_better_or_nothing_but_noise() -> None:
    assert flip(X, X + 1.0 + 0.1 * NOISE) is None
    assert flip(X, NOISE) is None
    assert flip(X, 0.01 * X + NOISE - 0.005) is None
