from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import lfilter

from planner.demand.plan import (
    LaunchSpike,
    LognormalNoise,
    TenantStream,
    log2_noise,
    on_off_fraction,
    spike_factor,
)


def lognormal_noise(
    noise: LognormalNoise, hours: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return noise factors of mean 1, shape (hours,)."""
    return np.asarray(np.exp2(log2_noise(noise, hours, generator)) * np.exp(-0.5 * noise.sigma**2))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 2000), st.floats(0.05, 500.0), st.floats(0.01, 1.0), st.integers(0, 2**32))
def test_noise_is_what_a_linear_filter_gives(
    hours: int, correlation_h: float, sigma: float, seed: int
) -> None:
    noise = LognormalNoise(sigma=sigma, correlation_h=correlation_h)
    drawn = np.random.default_rng(seed).standard_normal(hours)
    phi = np.exp(-1.0 / correlation_h)
    drive = sigma * np.sqrt(1 - phi**2) * drawn
    drive[0] = sigma * drawn[0]
    expected = lfilter([1.0], [1.0, -phi], drive)
    np.testing.assert_allclose(
        log2_noise(noise, hours, np.random.default_rng(seed)) * np.log(2), expected, atol=1e-9
    )


def test_mean_is_one_at_every_hour_and_correlation_is_as_asked() -> None:
    noise = LognormalNoise(sigma=0.4, correlation_h=5.0)
    runs = np.array(
        [lognormal_noise(noise, 60, np.random.default_rng([7, run])) for run in range(4000)]
    )
    z = (runs.mean(axis=0) - 1.0) / (runs.std(axis=0, ddof=1) / np.sqrt(4000))
    assert np.abs(z).max() < 4.5  # the largest of 60 correlated hours
    assert abs((runs.mean() - 1.0) / (runs.mean(axis=1).std(ddof=1) / np.sqrt(4000))) < 4
    logs = np.log(runs)
    for lag in (1, 5, 10):
        got = np.corrcoef(logs[:, 0], logs[:, lag])[0, 1]
        assert abs(np.arctanh(got) - np.arctanh(np.exp(-lag / 5.0))) * np.sqrt(3997) < 4
    assert logs[:, 0].std() == pytest.approx(0.4, rel=4 / np.sqrt(2 * 4000))
    assert logs[:, 59].std() == pytest.approx(0.4, rel=4 / np.sqrt(2 * 4000))


def test_spike_is_the_integral_over_each_hour() -> None:
    spike = LaunchSpike(hour_h=10.25, multiple=4.0, decay_days=0.5)
    fine = np.arange(0, 48, 0.001) + 0.0005
    curve = np.where(fine >= 10.25, 1 + 3 * np.exp(-(fine - 10.25) / 12.0), 1.0)
    np.testing.assert_allclose(
        spike_factor((spike,), 48), curve.reshape(48, 1000).mean(axis=1), rtol=1e-5
    )


def test_spikes_multiply_and_may_lie_before_the_start() -> None:
    first = LaunchSpike(hour_h=-24.0, multiple=2.0, decay_days=1.0)
    second = LaunchSpike(hour_h=5.0, multiple=3.0, decay_days=9.0)
    both = spike_factor((first, second), 20)
    np.testing.assert_allclose(both, spike_factor((first,), 20) * spike_factor((second,), 20))
    assert both[0] == pytest.approx(1 + np.exp(-1) * 24 * -np.expm1(-1 / 24))
    np.testing.assert_array_equal(spike_factor((), 3), 1.0)


def _tenant(on_h: float, off_h: float) -> TenantStream:
    return TenantStream(name="big", share_fraction=0.3, mean_on_h=on_h, mean_off_h=off_h)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.05, 200), st.floats(0.05, 200), st.integers(1, 500), st.integers(0, 2**32))
def test_on_fraction_is_that_of_a_walk_through_the_same_switches(
    on_h: float, off_h: float, hours: int, seed: int
) -> None:
    """Walk the alternating periods one by one, adding each to the hours it covers."""
    generator = np.random.default_rng(seed)
    on = bool(generator.random() < on_h / (on_h + off_h))
    expected = np.zeros(hours)
    now = 0.0
    while now < hours:
        end = now + generator.standard_exponential() * (on_h if on else off_h)
        if on:
            edges = np.arange(hours)
            expected += np.clip(np.minimum(end, edges + 1) - np.maximum(now, edges), 0, None)
        now = end
        on = not on
    got = on_off_fraction(on_h, off_h, hours, np.random.default_rng(seed))
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_long_run_on_fraction_and_number_of_switches_follow_renewal_theory() -> None:
    tenant = _tenant(6.0, 2.0)
    runs = np.array(
        [
            on_off_fraction(
                tenant.mean_on_h, tenant.mean_off_h, 2000, np.random.default_rng([3, run])
            )
            for run in range(300)
        ]
    )
    per_run = runs.mean(axis=1)
    assert abs(per_run.mean() - 0.75) / (per_run.std(ddof=1) / np.sqrt(300)) < 4
    # the variance of the time average of an alternating exponential process: 2 p q τ / T, τ = on·off / (on + off)
    assert per_run.var(ddof=1) == pytest.approx(
        2 * 0.75 * 0.25 * 1.5 / 2000, rel=4 * np.sqrt(2 / 299)
    )
    first = runs[:, 0]
    assert abs(first.mean() - 0.75) / (first.std(ddof=1) / np.sqrt(300)) < 4
