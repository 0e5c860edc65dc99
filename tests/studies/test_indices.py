"""Known answers through our own designs and distributions, of a linear model."""

from __future__ import annotations

import numpy as np
import pytest

from planner.scenario import study as language
from planner.studies.designs import OneAtATime, PointSet
from planner.studies.inputs import UncertainInput, UncertainInputs
from planner.studies.sensitivity import importance, tornado


def inputs(*distributions: language.Uniform | language.Normal) -> UncertainInputs:
    each = tuple(UncertainInput(name=f"x{k}", distribution=d) for k, d in enumerate(distributions))
    return UncertainInputs(entries=each, mixing=None)


LINEAR = inputs(
    language.Normal(kind="normal", mean=10, sd=1),
    language.Normal(kind="normal", mean=0, sd=2),
    language.Uniform(kind="uniform", low=0, high=1),
)
SLOPES = np.array([3.0, -1.0, 5.0])


def linear(x: np.ndarray) -> np.ndarray:
    return np.asarray(x @ SLOPES)


def test_tornado_of_a_linear_model_is_its_slopes_times_p10_to_p90() -> None:
    design = OneAtATime(inputs=3)
    points, chance = design.rows(0, 6 * design.period)
    bars = tornado(design, linear(LINEAR.drawn(points)) + 100.0 * chance)
    z90 = 1.2815515655446004
    assert [bar["swing"].value for bar in bars] == pytest.approx(
        [3 * 2 * z90, 1 * 2 * 2 * z90, 5 * 0.8]
    )
    assert bars[0]["base"].value == pytest.approx(30 + 2.5 + 250.0)
    assert bars[0]["at_p10"].value < bars[0]["base"].value < bars[0]["at_p90"].value
    assert bars[1]["at_p10"].value > bars[1]["at_p90"].value  # falls with its input
    assert bars[0]["at_p10"].half_width == pytest.approx(
        0.0, abs=1e-9
    )  # the same chance on both sides cancels


def test_conditional_tornado_of_a_linear_model() -> None:
    cube = PointSet(dimensions=3, scramblings=4, seed=1).points(np.arange(8192))
    drawn = LINEAR.drawn(cube)
    found = [importance(drawn[:, place], linear(drawn)) for place in range(3)]
    tail = 1.7550  # mean of a standard normal beyond its 90th percentile: φ(1.2816) / 0.1
    assert found[0]["conditional-mean", "swing"][0] == pytest.approx(3 * 2 * tail, rel=0.02)
    assert found[1]["conditional-mean", "swing"][0] == pytest.approx(2 * 2 * tail, rel=0.02)
    assert found[2]["conditional-mean", "swing"][0] == pytest.approx(5 * 0.9, rel=0.03)
    variances = np.array([9.0, 4.0, 25 / 12])
    within_ten_bins = np.array(
        [0.9577, 0.9577, 0.99]
    )  # of a normal's and of a uniform's variance, between tenths
    shares = within_ten_bins * variances / variances.sum()
    assert [f["variance-share", "first_order"][0] for f in found] == pytest.approx(
        shares.tolist(), abs=0.005
    )
    assert (
        found[0]["rank-correlation", "spearman"][0]
        > 0
        > found[1]["rank-correlation", "spearman"][0]
    )
