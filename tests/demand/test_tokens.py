from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import lognorm

from planner.demand.tokens import MAX_P95_TO_MEAN, LengthDistribution
from planner.errors import ScenarioError


@given(st.floats(1, 1e6), st.floats(1.0001, 3.86))
def test_mean_and_p95_are_met(mean: float, ratio: float) -> None:
    lengths = LengthDistribution.from_mean_p95(mean, mean * ratio)
    assert lengths.mean_tokens == pytest.approx(mean, rel=1e-9)
    assert lengths.quantile(0.95) == pytest.approx(mean * ratio, rel=1e-9)


@given(st.floats(-2, 12), st.floats(0.05, 2.0), st.floats(0.01, 0.99))
def test_mean_and_quantiles_agree_with_scipy(mu: float, sigma: float, probability: float) -> None:
    lengths = LengthDistribution(mu=mu, sigma=sigma)
    other = lognorm(s=sigma, scale=np.exp(mu))
    assert lengths.mean_tokens == pytest.approx(other.mean(), rel=1e-9)
    assert lengths.quantile(probability) == pytest.approx(other.ppf(probability), rel=1e-9)


def test_fixed_length() -> None:
    fixed = LengthDistribution.from_mean_p95(100.0, 100.0)
    assert fixed.sigma == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LengthDistribution.from_mean_p95(100, 390), "3.87 times it, here 100..386"),
        (lambda: LengthDistribution.from_mean_p95(100, 99), "no lognormal"),
        (lambda: LengthDistribution.from_mean_p95(-1, float("nan")), "mean must be above 0.*p95 must be above 0"),
        (lambda: LengthDistribution(mu=1.0, sigma=-1.0), "sigma"),
    ],
)
def test_impossible_lengths_are_refused_with_the_numbers(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ScenarioError, match=message):
        make()


def test_no_lognormal_lies_beyond_the_stated_limit() -> None:
    ratios = [
        LengthDistribution(mu=0, sigma=s).quantile(0.95) / LengthDistribution(mu=0, sigma=s).mean_tokens
        for s in np.linspace(0, 4, 401)
    ]
    assert max(ratios) <= MAX_P95_TO_MEAN == pytest.approx(3.868, abs=1e-3)
