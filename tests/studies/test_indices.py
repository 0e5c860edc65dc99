"""Known answers through our own designs and distributions: the Ishigami function and a linear model."""

from __future__ import annotations

import numpy as np
import pytest

from planner.scenario import study as language
from planner.studies.designs import OneAtATime, PointSet, Saltelli
from planner.studies.inputs import UncertainInput, UncertainInputs
from planner.studies.sensitivity import importance, sobol_indices, tornado

PI = float(np.pi)


def inputs(*distributions: language.Uniform | language.Normal) -> UncertainInputs:
    each = tuple(UncertainInput(name=f"x{k}", distribution=d) for k, d in enumerate(distributions))
    return UncertainInputs(entries=each, mixing=None)


ISHIGAMI = inputs(*[language.Uniform(kind="uniform", low=-PI, high=PI)] * 3)


def ishigami(x: np.ndarray) -> np.ndarray:
    """Ishigami and Homma (1990) with a = 7, b = 0.1."""
    return np.asarray(
        np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])
    )


FIRST = (0.3139, 0.4424, 0.0)
TOTAL = (0.5576, 0.4424, 0.2437)


def saltelli(dimensions: int) -> Saltelli:
    return Saltelli(
        points=PointSet(sampling="sobol", dimensions=2 * dimensions, scramblings=8, seed=5)
    )


def test_sobol_indices_of_ishigami() -> None:
    design = saltelli(3)
    points, _ = design.rows(0, 8192 * design.period)
    found = sobol_indices(design, ishigami(ISHIGAMI.drawn(points)))
    for place in range(3):
        for estimate, truth in (
            (found[place]["first_order"], FIRST[place]),
            (found[place]["total"], TOTAL[place]),
        ):
            assert estimate.value == pytest.approx(truth, abs=0.01)
            assert abs(estimate.value - truth) <= 3 * estimate.half_width + 1e-3
    assert found[3]["first_order"].value == pytest.approx(
        0.0, abs=0.01
    )  # this model has no chance in it
    assert found[3]["total"].value == pytest.approx(0.0, abs=1e-12)


def test_chance_gets_its_share_of_the_variance() -> None:
    design = saltelli(1)
    points, chance = design.rows(0, 4096 * design.period)
    noise = np.random.default_rng(2).standard_normal(2 * 4096)[chance]
    drawn = inputs(language.Normal(kind="normal", mean=0, sd=np.sqrt(3))).drawn(points)[:, 0]
    found = sobol_indices(design, drawn + noise)
    assert found[0]["first_order"].value == pytest.approx(0.75, abs=0.04)
    assert found[1]["first_order"].value == pytest.approx(0.25, abs=0.04)
    assert found[1]["total"].value == pytest.approx(0.25, abs=0.02)


def test_rows_of_saltelli_can_be_asked_for_in_parts() -> None:
    design = saltelli(3)
    whole_points, whole_chance = design.rows(0, 60)
    parts = [design.rows(first, first + 7) for first in range(0, 56, 7)]
    assert np.array_equal(np.concatenate([part[0] for part in parts]), whole_points[:56])
    assert np.array_equal(np.concatenate([part[1] for part in parts]), whole_chance[:56])


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
    cube = PointSet(sampling="sobol", dimensions=3, scramblings=4, seed=1).points(np.arange(8192))
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
