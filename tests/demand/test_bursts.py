"""Bursts inside the hour against draws of them, and against what must hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.demand.bursts import SHARP, Bursts, Lateness, shares_with_bursts
from planner.requests.hour import ZoomWindow, minute_factors
from tests.engine.worlds import scenario_of

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


@pytest.mark.parametrize("lateness", [SHARP, QUEUEING, REFUSING])
@pytest.mark.parametrize("rate", [6.0, 40.0, 600.0])
def test_an_hour_misses_what_its_minutes_do_weighted_by_their_crowds(
    lateness: Lateness, rate: float
) -> None:
    factors = _factors(rate)
    loads = np.array([0.0, 0.4, 0.8, 0.95, 1.0, 1.4, 1.5, 4.0])
    shares = shares_with_bursts(lateness, Bursts(requests_per_s=rate), loads)
    for share, by_minute in zip(shares, lateness.at(loads[:, None] * factors), strict=True):
        expected = factors * by_minute
        error = expected.std(axis=1) / np.sqrt(factors.size)
        assert np.all(np.abs(share - expected.mean(axis=1)) < 4.0 * error + 6e-4)


def test_without_bursts_it_is_the_table_itself_and_beyond_its_end_no_more_is_admitted() -> None:
    late, refused = shares_with_bursts(REFUSING, EVEN, np.array([0.0, 0.5, 1.0, 1.25, 1.5, 3.0]))
    # At 1.5 of capacity 0.9 · 1.5 is admitted and 0.03 · 1.5 of it late; at 3.0 no more.
    assert late == pytest.approx([0.001, 0.002, 0.01, 0.02, 0.03, 0.015])
    assert refused == pytest.approx([0.0, 0.0, 0.0, 0.05, 0.1, 0.55])


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 1e4), st.floats(1.0, 100.0), st.sampled_from([SHARP, QUEUEING, REFUSING]))
def test_more_load_never_misses_less(
    requests_per_s: float, dispersion: float, lateness: Lateness
) -> None:
    bursts = Bursts(
        requests_per_s=requests_per_s, index_of_dispersion=dispersion, lowest_requests_per_s=0.5
    )
    late, refused = shares_with_bursts(lateness, bursts, np.linspace(0.0, 2.0, 401))
    assert np.all((late >= 0.0) & (refused >= 0.0) & (late + refused <= 1.0 + 1e-12))
    assert np.all(np.diff(late + refused) >= -1e-9)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(1.0, 100.0), st.floats(0.01, 50.0))
def test_an_index_holds_from_the_lowest_measured_rate_on_and_is_thinned_below_it(
    rate: float, dispersion: float, lowest: float
) -> None:
    """I from λ₀ on, as n users have n times the variance and the mean of one; below it 1 + (I − 1) λ / λ₀."""
    users = Bursts(
        requests_per_s=lowest, index_of_dispersion=dispersion, lowest_requests_per_s=lowest
    )
    bursts = users.at(rate)
    index = 1.0 + 60.0 * rate * bursts.minute_rate_cv**2
    assert index == pytest.approx(1.0 + (dispersion - 1.0) * min(rate / lowest, 1.0))
    assert dataclasses.replace(users, requests_per_s=rate).minute_rate_cv == bursts.minute_rate_cv
    # Equal as a key: what is worked out for one rate below the lowest serves them all.
    assert (bursts == users) == (rate <= lowest)
    # One client's are as large beside the mean at any rate as at its own.
    client = dataclasses.replace(users, requests_per_s=rate, scaling="proportional")
    assert client.at(lowest).minute_rate_cv ** 2 == pytest.approx(
        (dispersion - 1.0) / (60.0 * rate)
    )


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
def test_a_part_of_a_stream_varies_from_minute_to_minute_as_the_whole(share: float) -> None:
    """Each request of gamma minutes sent to a pool by chance: its counts have the index 1 + p (I − 1)."""
    whole = Bursts(requests_per_s=6.0)
    random = np.random.default_rng(2)
    counts = random.binomial(random.poisson(360.0 * _factors(6.0)), share)
    index = counts.var() / counts.mean()
    assert index == pytest.approx(1.0 + 360.0 * share * whole.minute_rate_cv**2, rel=0.02)
    assert whole.at(6.0 * share) == whole


@pytest.mark.parametrize(
    ("stated", "lowest"),
    [
        ({}, 6.0),
        ({"preset": "chat"}, 6.0),
        ({"preset": "long-context"}, 3.4),
        ({"burst_index_of_dispersion": 8.0}, 0.5),
        ({"burst_index_of_dispersion": 8.0, "preset": "chat"}, 0.5),
        ({"burst_index_of_dispersion": 8.0, "requests_per_s": 50.0}, 6.0),
        ({"burst_index_of_dispersion": 8.0, "burst_index_requests_per_s": 2.0}, 2.0),
    ],
)
def test_an_index_of_ones_own_is_kept_at_the_rate_of_day_one(
    stated: dict[str, Any], lowest: float
) -> None:
    chat = scenario_of({"workloads": {"chat": {"requests_per_s": 0.5} | stated}}).workloads["chat"]
    assert chat.bursts.lowest_requests_per_s == lowest
    assert type(chat).model_validate(chat.model_dump(by_alias=True)).bursts == chat.bursts
    # Minutes of the zoom vary alike.
    span = ZoomWindow(warm_up=0, minutes=200_000, drain=0)
    factors = minute_factors(chat, 0.25, span, np.random.default_rng(3))
    variance = (chat.burst_index_of_dispersion - 1.0) / (60.0 * lowest)
    assert factors.var() == pytest.approx(variance, rel=0.03)
