from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc

from planner.studies.designs import MAX_DIMENSIONS, PointSet, _generator


@pytest.mark.parametrize("dimensions", [1, 2, 17, 300])
def test_points_are_one_scipy_sequence_for_each_scrambling(dimensions: int) -> None:
    ours = PointSet(dimensions=dimensions, scramblings=3, seed=5).points(np.arange(3 * 256))
    for scrambling in range(3):
        theirs = qmc.Sobol(dimensions, bits=32, rng=_generator(5, scrambling, 0)).random(256)
        assert np.array_equal(ours[scrambling::3], theirs + 2.0**-33)


def test_as_many_dimensions_as_scipy_has() -> None:
    assert MAX_DIMENSIONS == qmc.Sobol.MAXDIM


def test_importing_studies_does_not_wait_for_scipys_statistics() -> None:
    code = (
        "import sys, planner.studies.prepare, planner.cli.app; print('scipy.stats' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def test_every_scrambling_is_balanced() -> None:
    cube = PointSet(dimensions=6, scramblings=4, seed=1).points(np.arange(4 * 512))
    for which in range(4):
        own = cube[which::4]
        for column in own.T:
            assert len(np.unique((column * 512).astype(int))) == 512
    assert not np.allclose(cube[0::4], cube[1::4])


def test_scrambled_points_are_more_even_than_plain_ones() -> None:
    ours = PointSet(dimensions=5, scramblings=4, seed=1).points(np.arange(4 * 1024))[0::4]
    plain = np.random.default_rng(1).random((1024, 5))
    assert qmc.discrepancy(ours) < 0.1 * qmc.discrepancy(plain)


@given(first=st.integers(0, 5000), count=st.integers(1, 40))
def test_a_point_does_not_depend_on_which_others_are_asked_for(first: int, count: int) -> None:
    cube = PointSet(dimensions=3, scramblings=8, seed=7)
    together = cube.points(np.arange(first, first + count))
    alone = np.concatenate([cube.points(np.array([i])) for i in range(first, first + count)])
    assert np.array_equal(together, alone)
    assert np.all((together > 0.0) & (together < 1.0))
