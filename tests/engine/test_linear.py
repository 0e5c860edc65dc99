"""Linear programs solved together, held against another library's, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from planner.engine.linear import Programs, raise_shares
from tests.engine.naive import Oracle

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
CLUSTERS = 3
WORKLOADS = 4
COLUMNS = CLUSTERS * WORKLOADS


def random_hours(seed: int, count: int, hours: int) -> tuple[Programs, Floats, Floats, Ints]:
    """Clusters that do each kind of work at a rate of their own, within their nodes and the power of all."""
    random = np.random.default_rng(seed)
    rates = random.uniform(0.2, 1.0, (count, CLUSTERS, WORKLOADS))
    rates *= random.random(rates.shape) < 0.8
    limits = np.zeros((CLUSTERS + 1, COLUMNS))
    served = np.zeros((count, WORKLOADS, COLUMNS))
    for column, (c, w) in enumerate(np.ndindex(CLUSTERS, WORKLOADS)):
        limits[c, column] = 1.0
        served[:, w, column] = rates[:, c, w]
    limits[CLUSTERS] = random.uniform(0.3, 1.0, COLUMNS)
    costs = random.uniform(0.5, 1.0, (count, 2, COLUMNS))
    costs[:, 0, WORKLOADS:] = 0.0  # of the first kind on one cluster alone
    ranks = random.integers(0, 2, WORKLOADS)
    programs = Programs(limits=limits, served=served, costs=costs, ranks=ranks)
    sizes = random.uniform(0.0, 1.0, (CLUSTERS + 1, hours)) * random.choice([1.0, 5.0], hours)
    demand = random.uniform(0.0, 1.0, (WORKLOADS, hours)) * (random.random(hours) < 0.8)
    return programs, sizes, demand, random.integers(0, count, hours)


def least_cost(programs: Programs, p: int, sizes: Floats, demand: Floats) -> Floats:
    """Return the columns at the least cost of the levelled shares, one kind of cost after the other."""
    oracle = Oracle(programs.limits, sizes, programs.served[p], demand, np.full(COLUMNS, np.inf))
    oracle.slack = (
        1e-9  # enough where no power is stepped, and columns are held to a thousand times as much
    )
    for rank in range(2):
        oracle.level(np.flatnonzero(programs.ranks == rank).tolist())
    for cost in programs.costs[p]:
        row = np.append(cost, 0.0)
        plan, _ = oracle.least(row, [])
        oracle.rows.append(row)
        oracle.bounds.append(float(row @ plan) + oracle.slack)
    return plan[:COLUMNS]


@pytest.mark.parametrize("seed", range(4))
def test_each_hour_has_levelled_shares_at_the_least_cost(seed: int) -> None:
    programs, sizes, demand, program = random_hours(seed, 5, 75)
    plans = raise_shares(programs, sizes, demand, program)
    for h, p in enumerate(program.tolist()):
        expected = least_cost(programs, p, sizes[:, h], demand[:, h])
        assert plans[:, h] == pytest.approx(expected, abs=1e-6), (h, p)


def test_an_hour_is_the_same_to_the_bit_whoever_is_solved_beside_it() -> None:
    programs, sizes, demand, program = random_hours(7, 5, 40)
    plans = raise_shares(programs, sizes, demand, program)
    for h, p in enumerate(program.tolist()):
        own = Programs(
            limits=programs.limits,
            served=programs.served[[p]],
            costs=programs.costs[[p]],
            ranks=programs.ranks,
        )
        alone = raise_shares(own, sizes[:, [h]], demand[:, [h]], np.zeros(1, dtype=np.intp))
        assert np.array_equal(alone[:, 0], plans[:, h])
