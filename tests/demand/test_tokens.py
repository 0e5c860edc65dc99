from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import lognorm

from planner.demand.tokens import MAX_P95_TO_MEAN, LengthDistribution, TokenMix
from planner.errors import ScenarioError
from planner.units import HOURS_PER_YEAR


@given(st.floats(1, 1e6), st.floats(1.0001, 3.86))
def test_mean_and_p95_are_met(mean: float, ratio: float) -> None:
    lengths = LengthDistribution.from_mean_p95(mean, mean * ratio)
    assert lengths.mean_tokens == pytest.approx(mean, rel=1e-9)
    assert lengths.quantile(0.95) == pytest.approx(mean * ratio, rel=1e-9)


@given(st.floats(1, 1e6), st.floats(1.0, 50.0))
def test_mean_and_median_are_met(median: float, ratio: float) -> None:
    lengths = LengthDistribution.from_mean_p50(median * ratio, median)
    assert lengths.mean_tokens == pytest.approx(median * ratio, rel=1e-9)
    assert lengths.quantile(0.5) == pytest.approx(median, rel=1e-9)


@given(st.floats(-2, 12), st.floats(0.05, 2.0), st.floats(0.01, 0.99))
def test_moments_and_tails_agree_with_scipy(mu: float, sigma: float, probability: float) -> None:
    lengths = LengthDistribution(mu=mu, sigma=sigma)
    other = lognorm(s=sigma, scale=np.exp(mu))
    assert lengths.mean_tokens == pytest.approx(other.mean(), rel=1e-9)
    assert lengths.coefficient_of_variation == pytest.approx(other.std() / other.mean(), rel=1e-9)
    assert lengths.moment(2) == pytest.approx(other.moment(2), rel=1e-9)
    assert lengths.quantile(probability) == pytest.approx(other.ppf(probability), rel=1e-9)
    assert lengths.fraction_longer(lengths.quantile(probability)) == pytest.approx(1 - probability, rel=1e-6)


def test_share_of_tokens_in_long_requests_agrees_with_a_sum() -> None:
    lengths = LengthDistribution(mu=6.63, sigma=0.99)
    quantiles = lognorm(s=0.99, scale=np.exp(6.63)).ppf((np.arange(200_000) + 0.5) / 200_000)
    for threshold in (500.0, 2000.0, 8000.0):
        assert lengths.token_fraction_longer(threshold) == pytest.approx(
            quantiles[quantiles > threshold].sum() / quantiles.sum(), abs=2e-4
        )
    assert lengths.token_fraction_longer(0.0) == 1.0


def test_fixed_length() -> None:
    fixed = LengthDistribution.from_mean_p95(100.0, 100.0)
    assert fixed.sigma == 0.0
    assert fixed.fraction_longer(99.0) == 1.0
    assert fixed.fraction_longer(101.0) == 0.0


def test_prefill_is_what_the_cache_does_not_hold() -> None:
    mix = TokenMix(
        input=LengthDistribution.from_mean_p95(122_379, 300_666),
        output=LengthDistribution.from_mean_p95(440, 1554),
        prefix_cache_hit_fraction=0.963,
    )
    assert mix.mean_prefill_tokens == pytest.approx(122_379 * 0.037)
    assert mix.input.mean_tokens / mix.mean_prefill_tokens == pytest.approx(27, abs=0.1)  # the traces' "27-fold"


def test_context_while_decoding_agrees_with_a_walk_over_steps() -> None:
    generator = np.random.default_rng(4)
    mix = TokenMix(input=LengthDistribution(mu=5.0, sigma=0.5), output=LengthDistribution(mu=4.0, sigma=0.6))
    tokens_in = np.exp(5.0 + 0.5 * generator.standard_normal(200_000))
    tokens_out = np.exp(4.0 + 0.6 * generator.standard_normal(200_000))
    over_steps = ((tokens_in + tokens_out / 2) * tokens_out).sum() / tokens_out.sum()
    assert mix.mean_decode_context_tokens == pytest.approx(over_steps, rel=0.01)


def test_lengths_grow_by_the_year() -> None:
    mix = TokenMix(
        input=LengthDistribution(mu=5, sigma=1), output=LengthDistribution(mu=5, sigma=1), growth_per_year=0.5
    )
    np.testing.assert_allclose(mix.length_multiplier([0, HOURS_PER_YEAR, 2 * HOURS_PER_YEAR]), [1.0, 1.5, 2.25])
    assert mix.input.scaled(1.5).mean_tokens == pytest.approx(1.5 * mix.input.mean_tokens)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LengthDistribution.from_mean_p95(100, 390), "3.87 times it, here 100..386"),
        (lambda: LengthDistribution.from_mean_p95(100, 99), "no lognormal"),
        (lambda: LengthDistribution.from_mean_p95(-1, float("nan")), "mean must be above 0.*p95 must be above 0"),
        (lambda: LengthDistribution.from_mean_p50(100, 101), "cannot lie below"),
        (lambda: LengthDistribution(mu=1.0, sigma=-1.0), "sigma"),
        (lambda: LengthDistribution(mu=1.0, sigma=1.0).scaled(0.0), "factor"),
    ],
)
def test_impossible_lengths_are_refused_with_the_numbers(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ScenarioError, match=message):
        make()


def test_bad_mix_is_refused() -> None:
    lengths = LengthDistribution(mu=1, sigma=1)
    with pytest.raises(ScenarioError, match="prefix_cache_hit_fraction"):
        TokenMix(input=lengths, output=lengths, prefix_cache_hit_fraction=1.1)
    with pytest.raises(ScenarioError, match="above -1"):
        TokenMix(input=lengths, output=lengths, growth_per_year=-1.0)


def test_no_lognormal_lies_beyond_the_stated_limit() -> None:
    ratios = [
        LengthDistribution(mu=0, sigma=s).quantile(0.95) / LengthDistribution(mu=0, sigma=s).mean_tokens
        for s in np.linspace(0, 4, 401)
    ]
    assert max(ratios) <= MAX_P95_TO_MEAN == pytest.approx(3.868, abs=1e-3)
