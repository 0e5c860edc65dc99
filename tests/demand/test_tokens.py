from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import lognorm, norm

from planner.demand.tokens import LengthDistribution
from planner.errors import ScenarioError


@given(st.floats(1, 1e6), st.floats(1.0001, 3.86))
def test_mean_and_p95_are_met(mean: float, ratio: float) -> None:
    lengths = LengthDistribution.from_mean_p95(mean, mean * ratio)
    assert lengths.mean_tokens == pytest.approx(mean, rel=1e-9)
    assert lengths.quantile(0.95) == pytest.approx(mean * ratio, rel=1e-9)


@given(st.floats(-2, 12), st.floats(0.05, 2.0), st.floats(0.01, 0.99))
def test_two_quantiles_are_a_lognormal_as_scipy_has_it(
    mu: float, sigma: float, probability: float
) -> None:
    other = lognorm(s=sigma, scale=np.exp(mu))
    unbounded = LengthDistribution(scores=(-1.0, 2.0), log_tokens=(mu - sigma, mu + 2.0 * sigma))
    assert unbounded.mean_tokens == pytest.approx(other.mean(), rel=1e-9)
    assert unbounded.coefficient_of_variation == pytest.approx(other.std() / other.mean(), rel=1e-6)
    assert unbounded.moment(2) == pytest.approx(other.moment(2), rel=1e-9)
    assert unbounded.quantile(probability) == pytest.approx(other.ppf(probability), rel=1e-9)


AZURE_CHAT = {
    0.01: 29,
    0.1: 207,
    0.25: 396,
    0.5: 1020,
    0.75: 1189,
    0.9: 2734,
    0.99: 4142,
    1.0: 14050,
}
STEEP = {0.2: 10, 0.5: 100, 0.5001: 90_000, 0.9: 90_000, 0.99: 120_000, 1.0: 131_072}


@pytest.mark.parametrize(
    "stated", [AZURE_CHAT, STEEP, {0.3: 50, 0.6: 50}, {0.0: 40, 0.5: 60, 0.95: 800, 1.0: 900}]
)
def test_stated_quantiles_are_met_and_moments_are_their_integrals(
    stated: Mapping[float, float],
) -> None:
    lengths = LengthDistribution.from_quantiles(stated)
    for share, tokens in stated.items():
        if 0.0 < share < 1.0:
            assert lengths.quantile(share) == pytest.approx(tokens)
    assert stated.get(0.0, 0.0) <= lengths.quantile(1e-9)
    assert lengths.quantile(1.0 - 1e-12) <= stated.get(1.0, 1e9)
    knots = [-9.0, *(float(norm.ppf(share)) for share in stated if 0.0 < share < 1.0), 9.0]

    def density(z: float, order: int) -> float:
        return float(lengths.at_scores(np.array(z)) ** order * norm.pdf(z))

    for order in (1, 2):
        integral = sum(quad(density, a, b, (order,), limit=200)[0] for a, b in pairwise(knots))
        assert lengths.moment(order) == pytest.approx(integral, rel=1e-5)


def test_cells_keep_the_mean_and_the_order() -> None:
    edges = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
    for lengths in (
        LengthDistribution.from_quantiles(AZURE_CHAT),
        LengthDistribution.from_mean_p95(300, 900),
    ):
        cells = lengths.cells(edges, 6)
        assert np.diff(edges) @ cells == pytest.approx(lengths.mean_tokens)
        assert np.all(np.diff(cells) > 0.0)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {0.5: 100, 0.9: 90},
            "must not fall as their share rises: 90 tokens at 0.9 after 100 at 0.5",
        ),
        ({0.5: 100, 1.5: 900}, "between 0 and 1, not 1.5"),
        ({-0.1: 100, 0.5: 900}, "between 0 and 1, not -0.1"),
        ({0.5: 100, 1.0: 900}, "at least two quantiles between 0 and 1"),
        ({0.5: 0.0, 0.9: 900}, "above 0"),
    ],
)
def test_impossible_quantiles_are_refused_with_the_numbers(
    stated: Mapping[float, float], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        LengthDistribution.from_quantiles(stated)


@pytest.mark.parametrize(("mean", "p95"), [(100, 390), (100, 99), (-1, float("nan"))])
def test_impossible_lognormals_are_refused(mean: float, p95: float) -> None:
    with pytest.raises(ScenarioError, match="no lognormal has mean"):
        LengthDistribution.from_mean_p95(mean, p95)
