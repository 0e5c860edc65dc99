"""Linear programs solved together, held against another library's, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from planner.engine.linear import maximise

Floats = NDArray[np.float64]
_MET = range(3, 6)


def programs(seed: int, count: int, hours: int) -> tuple[Floats, Floats, Floats, NDArray[np.intp]]:
    """Clusters with room for one unit of work a node, kinds of work that each can do at its own rate, and its cost."""
    generator = np.random.default_rng(seed)
    rates = generator.uniform(0.2, 1.0, (count, 3, 3)) * (generator.random((count, 3, 3)) < 0.8)
    matrices = np.zeros((count, 6, 9))
    objectives = np.zeros((count, 3, 15))
    for c, w in np.ndindex(3, 3):
        matrices[:, c, 3 * c + w] = 1.0
        matrices[:, 3 + w, 3 * c + w] = rates[:, c, w]
        objectives[:, 2, 3 * c + w] = -generator.uniform(0.5, 1.0, count)  # the cost comes last
    objectives[:, 0, 9 + 3], objectives[:, 1, 9 + 4 :] = (
        -1.0,
        -generator.uniform(0.5, 1.0, (count, 2)),
    )
    return (
        matrices,
        objectives,
        generator.uniform(0.0, 1.0, (6, hours)),
        generator.integers(0, count, hours),
    )


def one_by_one(matrix: Floats, objectives: Floats, limits: Floats) -> Floats:
    """Maximise objective after objective, each holding those before it."""
    full = np.hstack((matrix, np.eye(6)))
    rows = np.zeros((0, 15))
    bounds = np.zeros(0)
    held = np.zeros(0)
    for objective in objectives:
        found = linprog(-objective, A_ub=rows, b_ub=bounds, A_eq=full, b_eq=limits)
        assert found.x is not None, found.message
        assert found.fun is not None
        rows = np.vstack((rows, -objective))
        bounds = np.append(bounds, found.fun + 1e-10)
        held = np.asarray(found.x)
    return held[:9]


@pytest.mark.parametrize("seed", range(4))
def test_each_hour_is_the_optimum_of_its_own_program(seed: int) -> None:
    matrices, objectives, limits, program = programs(seed, 5, 15)
    solution = maximise(matrices, objectives, _MET, limits, program)
    for h, p in enumerate(program):
        expected = one_by_one(matrices[p], objectives[p], limits[:, h])
        assert solution[:, h] == pytest.approx(expected, abs=1e-6), (h, p)


def test_an_hour_is_the_same_to_the_bit_whoever_is_solved_beside_it() -> None:
    matrices, objectives, limits, program = programs(7, 5, 40)
    solution = maximise(matrices, objectives, _MET, limits, program)
    for h, p in enumerate(program):
        alone = maximise(
            matrices[[p]], objectives[[p]], _MET, limits[:, [h]], np.zeros(1, dtype=np.intp)
        )
        assert np.array_equal(alone[:, 0], solution[:, h])


def test_beginning_where_work_without_end_fills_its_rows_ends_at_the_same_optimum() -> None:
    matrices, objectives, limits, program = programs(11, 4, 60)
    matrices[:, 5, [2, 5, 8]] = np.maximum(
        matrices[:, 5, [2, 5, 8]], 0.3
    )  # every cluster does the last kind
    limits[5] = 2.0 * limits[:3].sum(axis=0)
    objectives = np.insert(objectives, 2, 0.0, axis=1)  # what has no end comes after all other work
    objectives[:, 2, 9 + 5] = objectives[:, 1, 9 + 5]
    objectives[:, 1, 9 + 5] = 0.0
    plain = maximise(matrices, objectives, _MET, limits, program)
    begun = maximise(matrices, objectives, [3, 4], limits, program, [(0, 2), (1, 5), (2, 8)])
    assert begun == pytest.approx(plain, abs=1e-9)
    assert (plain[[2, 5, 8]] > 0.0).any()
    of_another_unit = np.array([2.0, 3.0, 0.5])  # rows that count in other units hold back the same
    matrices[:, :3] *= of_another_unit[:, None]
    limits[:3] *= of_another_unit[:, None]
    scaled = maximise(matrices, objectives, [3, 4], limits, program, [(0, 2), (1, 5), (2, 8)])
    assert scaled == pytest.approx(plain, abs=1e-9)
