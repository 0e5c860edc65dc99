"""Bursts inside the hour against draws of them, and against what must hold."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.demand.bursts import SHARP, Bursts, Lateness, shares_with_bursts

LOADS = (0.0, 0.5, 1.0, 1.5)
LATE = (0.001, 0.002, 0.01, 0.6)
QUEUEING = Lateness(loads=LOADS, late_fractions=LATE, refused_fractions=(0.0,) * 4, refuses=False)
REFUSING = Lateness(
    loads=LOADS, late_fractions=(0.001, 0.002, 0.01, 0.03), refused_fractions=(0.0, 0.0, 0.0, 0.1)
)
EVEN = Bursts(requests_per_s=40.0, index_of_dispersion=1.0)


def _factors(requests_per_s: float) -> np.ndarray:
    variance = 11.0 / (60.0 * requests_per_s)
    return np.random.default_rng(1).gamma(1.0 / variance, variance, 200_000)


SCALINGS: tuple[Literal["pooled", "proportional"], ...] = ("pooled", "proportional")


@pytest.mark.parametrize(("requests_per_s", "rho"), [(40.0, 0.95), (40.0, 1.0), (5.0, 0.8)])
def test_by_mean_times_what_exceeds_a_minute_is_refused(requests_per_s: float, rho: float) -> None:
    factors = _factors(requests_per_s)
    lost = np.maximum(rho * factors - 1.0, 0.0) / rho
    late, refused = shares_with_bursts(
        SHARP, Bursts(requests_per_s=requests_per_s), np.array([rho])
    )
    error = lost.std() / np.sqrt(factors.size)
    assert refused[0] == pytest.approx(lost.mean(), abs=4.0 * error + 2e-4)
    assert late[0] == 0.0


@pytest.mark.parametrize("rho", [0.4, 0.8, 1.0, 1.4])
def test_late_requests_are_those_of_each_minute_weighted_by_its_crowd(rho: float) -> None:
    factors = _factors(5.0)
    expected = factors * np.interp(rho * factors, LOADS, LATE)
    error = expected.std() / np.sqrt(factors.size)
    late, refused = shares_with_bursts(QUEUEING, Bursts(requests_per_s=5.0), np.array([rho]))
    assert late[0] == pytest.approx(expected.mean(), abs=4.0 * error + 6e-4)
    assert refused[0] == 0.0


def test_without_bursts_it_is_the_table_itself_and_beyond_its_end_no_more_is_admitted() -> None:
    late, refused = shares_with_bursts(REFUSING, EVEN, np.array([0.0, 0.5, 1.0, 1.25, 1.5, 3.0]))
    # At 1.5 of capacity 0.9 · 1.5 is admitted and 0.03 · 1.5 of it late; at 3.0 no more.
    assert late == pytest.approx([0.001, 0.002, 0.01, 0.02, 0.03, 0.015])
    assert refused == pytest.approx([0.0, 0.0, 0.0, 0.05, 0.1, 0.55])


@pytest.mark.parametrize("lateness", [SHARP, QUEUEING, REFUSING])
@pytest.mark.parametrize("requests_per_s", [0.05, 5.0, 600.0])
def test_minutes_left_out_and_those_beyond_the_last_load_make_no_difference(
    lateness: Lateness, requests_per_s: float
) -> None:
    """Each minute by itself, the rarest too: E[G ℓ(ρG)] at all nodes of the quadrature."""
    loads = np.linspace(0.0, 4.0, 301)
    bursts = Bursts(requests_per_s=requests_per_s)
    gauss, weights = np.polynomial.hermite_e.hermegauss(48)
    rate = (
        np.maximum(1.0 - bursts.minute_rate_cv**2 / 9.0 + bursts.minute_rate_cv * gauss / 3.0, 1e-9)
        ** 3
    )
    rate /= weights @ rate / weights.sum()
    expected = [
        (share * rate) @ weights / weights.sum() for share in lateness.at(loads[:, None] * rate)
    ]
    for share, all_minutes in zip(
        shares_with_bursts(lateness, bursts, loads), expected, strict=True
    ):
        np.testing.assert_allclose(share, all_minutes, rtol=0.0, atol=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 1e4), st.floats(1.0, 100.0), st.sampled_from([SHARP, QUEUEING, REFUSING]))
def test_more_load_never_misses_less(
    requests_per_s: float, dispersion: float, lateness: Lateness
) -> None:
    bursts = Bursts(requests_per_s=requests_per_s, index_of_dispersion=dispersion)
    late, refused = shares_with_bursts(lateness, bursts, np.linspace(0.0, 2.0, 41))
    assert np.all((late >= 0.0) & (refused >= 0.0) & (late + refused <= 1.0 + 1e-12))
    assert np.all(np.diff(late + refused) >= -1e-9)


@pytest.mark.parametrize("times", [0.1, 1.0, 10.0])
def test_bursts_of_many_users_even_out_and_those_of_one_client_do_not(times: float) -> None:
    """n independent users have n times the variance and the mean of one: 1 / √n of its variation."""
    users, client = (
        Bursts(requests_per_s=6.0, index_of_dispersion=9.0, scaling=by) for by in SCALINGS
    )
    grown = users.at(6.0 * times)
    assert grown.index_of_dispersion == 9.0
    assert grown.minute_rate_cv == pytest.approx(users.minute_rate_cv / math.sqrt(times))
    assert client.at(6.0 * times).minute_rate_cv == client.minute_rate_cv == users.minute_rate_cv
