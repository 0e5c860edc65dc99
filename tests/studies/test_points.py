from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc

from planner.scenario.study import Sampling
from planner.studies.points import MAX_DIMENSIONS, PointSet, _digital, direction_numbers

SAMPLINGS: tuple[Sampling, ...] = ("sobol", "lhs", "plain")


@pytest.mark.parametrize("dimensions", [1, 2, 17, MAX_DIMENSIONS])
def test_the_net_is_scipys_before_scrambling(dimensions: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = qmc.Sobol(dimensions, scramble=False, bits=32).random(700)
    ours = _digital(direction_numbers(dimensions), np.arange(700)) * 2.0**-32
    assert np.array_equal(ours, theirs)


def test_every_scrambling_is_balanced() -> None:
    cube = PointSet(sampling="sobol", dimensions=6, scramblings=4, seed=1).points(np.arange(4 * 512))
    for which in range(4):
        own = cube[which::4]
        for column in own.T:
            assert len(np.unique((column * 512).astype(int))) == 512
    assert not np.allclose(cube[0::4], cube[1::4])


def test_scrambled_points_are_as_even_as_scipys() -> None:
    ours = PointSet(sampling="sobol", dimensions=5, scramblings=4, seed=1).points(np.arange(4 * 1024))[0::4]
    theirs = qmc.Sobol(5, rng=1).random(1024)
    plain = np.random.default_rng(1).random((1024, 5))
    assert qmc.discrepancy(ours) < 2 * qmc.discrepancy(theirs)
    assert qmc.discrepancy(ours) < 0.1 * qmc.discrepancy(plain)


def test_a_hypercube_has_one_point_in_each_strip() -> None:
    cube = PointSet(sampling="lhs", dimensions=3, scramblings=4, seed=1).points(np.arange(4 * 16))
    for which in range(4):
        for column in cube[which::4].T:
            assert sorted((column * 16).astype(int)) == list(range(16))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@given(first=st.integers(0, 5000), count=st.integers(1, 40))
def test_a_point_does_not_depend_on_which_others_are_asked_for(sampling: Sampling, first: int, count: int) -> None:
    cube = PointSet(sampling=sampling, dimensions=3, scramblings=8, seed=7)
    together = cube.points(np.arange(first, first + count))
    alone = np.concatenate([cube.points(np.array([i])) for i in range(first, first + count)])
    assert np.array_equal(together, alone)
    assert np.all((together > 0.0) & (together < 1.0))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_another_seed_gives_other_points(sampling: Sampling) -> None:
    one, two = (
        PointSet(sampling=sampling, dimensions=2, scramblings=4, seed=seed).points(np.arange(8)) for seed in (1, 2)
    )
    assert not np.isclose(one, two).any()


def test_no_inputs_are_no_columns() -> None:
    for sampling in SAMPLINGS:
        assert PointSet(sampling=sampling, dimensions=0, scramblings=4, seed=1).points(np.arange(5)).shape == (5, 0)
