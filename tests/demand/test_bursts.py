"""Bursts inside the hour against draws of them, and against what must hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.demand.bursts import BurstConditions, missed_share
from planner.errors import ScenarioError

LOADS, LATE = (0.0, 0.5, 1.0, 1.5), (0.001, 0.002, 0.01, 0.6)


def _factors(requests_per_s: float) -> np.ndarray:
    variance = 11.0 / (60.0 * requests_per_s)
    return np.random.default_rng(1).gamma(1.0 / variance, variance, 200_000)


@pytest.mark.parametrize(("requests_per_s", "slack_s", "rho"), [(40.0, 0.0, 0.95), (40.0, 2.0, 1.0), (5.0, 2.0, 0.8)])
def test_refused_requests_are_what_a_bounded_queue_has_no_room_for(
    requests_per_s: float, slack_s: float, rho: float
) -> None:
    conditions = BurstConditions(requests_per_s=requests_per_s, slack_s=slack_s, index_of_dispersion=12.0, refuses=True)
    factors = _factors(requests_per_s)
    lost_s = np.maximum(rho * factors * 60.0 - 60.0 - slack_s, 0.0)  # work of a minute that finds no room
    error = lost_s.std() / np.sqrt(factors.size) / (60.0 * rho)
    expected = lost_s.mean() / (60.0 * rho)
    assert float(missed_share(conditions, rho)) == pytest.approx(expected, abs=4.0 * error + 2e-4)


@pytest.mark.parametrize("rho", [0.4, 0.8, 1.0])
def test_late_requests_are_those_of_each_minute_weighted_by_its_crowd(rho: float) -> None:
    conditions = BurstConditions(
        requests_per_s=5.0, slack_s=2.0, index_of_dispersion=12.0, loads=LOADS, late_fractions=LATE
    )
    factors = _factors(5.0)
    late = factors * np.interp(rho * factors, LOADS, LATE)
    error = late.std() / np.sqrt(factors.size)
    assert float(missed_share(conditions, rho)) == pytest.approx(late.mean(), abs=4.0 * error + 3e-4)


def test_without_bursts_it_is_the_late_share_itself_and_nothing_is_refused_up_to_capacity() -> None:
    conditions = BurstConditions(
        requests_per_s=40.0, slack_s=0.0, index_of_dispersion=1.0, refuses=True, loads=LOADS, late_fractions=LATE
    )
    assert missed_share(conditions, np.array([0.0, 0.5, 1.0])) == pytest.approx([0.001, 0.002, 0.01])
    assert float(missed_share(conditions, 1.25)) == pytest.approx(0.01 / 1.25 + 0.2)  # what is served, and the excess


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 1e4), st.floats(0.0, 10.0), st.floats(1.0, 100.0), st.booleans())
def test_more_load_never_misses_less(requests_per_s: float, slack_s: float, dispersion: float, refuses: bool) -> None:
    conditions = BurstConditions(
        requests_per_s=requests_per_s, slack_s=slack_s, index_of_dispersion=dispersion, refuses=refuses,
        loads=LOADS, late_fractions=LATE,
    )  # fmt: skip
    share = missed_share(conditions, np.linspace(0.0, 1.0, 41))
    assert np.all((share >= 0.0) & (share <= 1.0))
    assert np.all(np.diff(share) >= -1e-9)


def test_counts_of_a_minute_have_the_stated_dispersion() -> None:
    conditions = BurstConditions(requests_per_s=36.0, slack_s=1.0)
    counts = np.random.default_rng(3).poisson(36.0 * 60.0 * _factors(36.0)[:4000])
    assert counts.var() / counts.mean() == pytest.approx(12.0, rel=4 * math.sqrt(2 / 4000))
    assert conditions.minute_rate_cv == pytest.approx(math.sqrt(11 / 2160))


def test_bad_conditions_are_refused_all_at_once() -> None:
    with pytest.raises(ScenarioError, match=r"(?s)requests_per_s.*slack_s.*burst_index_of_dispersion"):
        BurstConditions(requests_per_s=0.0, slack_s=-1.0, index_of_dispersion=0.5)


@pytest.mark.parametrize("dispersion", [50.0, 1e3, 1e5])
def test_a_trickle_with_any_variation_has_a_share(dispersion: float) -> None:
    for rate in (1e-3, 1e-12, 5e-324):
        conditions = BurstConditions(requests_per_s=rate, slack_s=2.0, index_of_dispersion=dispersion)
        share = missed_share(conditions, np.linspace(0.0, 1.0, 11))
        assert np.all((share >= 0.0) & (share <= 1.0))
