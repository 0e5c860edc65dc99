"""The tables of a plan by load: which shares of requests are late and refused, and how much is offered at all."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.compile.reuse import Reuse
from planner.compile.service import Service
from planner.demand.bursts import Bursts, Lateness, shares_with_bursts
from planner.fleet.plan import LOAD_CELLS, MOST_LOAD, load_grid
from planner.language.scenario import Scenario

Floats = NDArray[np.float64]
_FURTHEST = 8 * MOST_LOAD  # where work queues and a replica could take more: nothing of it is in time


class LoadTables(NamedTuple):
    """The tables of a plan by load, as its fields of these names are."""

    late_tables: Floats
    refused_tables: Floats
    calm_tables: Floats
    most_loads: Floats
    alone_s: Floats


def load_tables(scenario: Scenario, services: Mapping[tuple[str, str], Service], reuse: Reuse) -> LoadTables:
    """Return the shares of requests late and refused at each load, with and without bursts, and the most offered."""
    shape = (len(scenario.clusters), len(scenario.workloads))
    furthest = max((_most_load(service.lateness) for service in services.values()), default=MOST_LOAD)
    grid = load_grid(math.ceil(furthest / MOST_LOAD) * LOAD_CELLS)
    tables, most, alone_s = np.zeros((2, 2, *shape, grid.size)), np.ones(shape), np.full(shape, np.nan)
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        if workload.requests_per_s <= 0 or workload.priority == "deferrable":
            continue
        for c, cluster in enumerate(scenario.clusters):
            if (service := services.get((cluster, name))) is not None:
                bursts = Bursts(
                    requests_per_s=workload.requests_per_s, index_of_dispersion=workload.burst_index_of_dispersion
                )
                ends = _most_load(service.lateness)
                upto = grid[: math.ceil(max(ends, MOST_LOAD) / MOST_LOAD) * LOAD_CELLS + 1]
                key = ("tables", service.lateness, bursts)
                table = reuse.once(key, functools.partial(_tables, service.lateness, bursts, upto))
                tables[:, :, c, w] = table[:, :, -1:]  # as at the end of its own loads wherever it is not known beyond
                tables[:, :, c, w, : upto.size] = table
                most[c, w] = ends
                alone_s[c, w] = service.lateness.alone_s
    return LoadTables(tables[0, 0], tables[0, 1], tables[1], most, alone_s)


def _most_load(lateness: Lateness) -> float:
    """Return the load up to which work is offered: to the last at which is known what becomes of it.

    Work that queues is offered up to :data:`MOST_LOAD`, or to what a replica can take at all where that is more.
    """
    if lateness.refuses:
        return lateness.loads[-1]
    return max(MOST_LOAD, min(lateness.loads[-2], _FURTHEST))


def _tables(lateness: Lateness, bursts: Bursts, grid: Floats) -> Floats:
    """Return the shares late and refused at each load, with and without bursts, shape (2, 2, loads)."""
    return np.array([shares_with_bursts(lateness, bursts, grid), lateness.at(grid)])
