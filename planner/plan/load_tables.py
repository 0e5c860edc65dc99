"""The tables of a plan by load: which shares of requests are late and refused, and how much is offered at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.demand.bursts import Bursts, Lateness, shares_with_bursts
from planner.demand.plan import DemandPlan, Rates
from planner.elementwise import lengthened
from planner.plan.burst_tables import LITTLE_LATE, BurstTables
from planner.plan.capacity import PREFERRED_UTILISATION
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, load_grid
from planner.plan.reuse import Reuse
from planner.plan.service import Service
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR

_MOST_OCTAVES = 12  # between slackest and busiest hour: a four-thousandth of the busiest's requests fills no machine
_NOBODY_REFUSED = 1e-6  # share of requests
_FURTHEST = 8 * MOST_LOAD  # where work queues and a replica could take more: nothing of it is in time


class LoadTables(NamedTuple):
    """The tables of a plan by load, as its fields of these names are."""

    late_tables: Floats
    refused_tables: Floats
    calm_tables: Floats
    most_loads: Floats
    alone_s: Floats
    burst_tables: dict[tuple[int, int], BurstTables]


def load_tables(
    scenario: Scenario, services: Mapping[tuple[str, str], Service], demand: DemandPlan, reuse: Reuse
) -> LoadTables:
    """Return the shares of requests late and refused at each load, with and without bursts, and the most offered."""
    shape = (len(scenario.clusters), len(scenario.workloads))
    furthest = max((_most_load(service.lateness) for service in services.values()), default=MOST_LOAD)
    grid = load_grid(math.ceil(furthest / MOST_LOAD) * LOAD_CELLS)
    tables, most, alone_s = np.zeros((2, 2, *shape, grid.size)), np.ones(shape), np.full(shape, np.nan)
    by_rate = {}
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        if workload.requests_per_s <= 0 or workload.priority == "deferrable":
            continue
        rates, bursts = demand.rates(name), workload.bursts
        for c, cluster in enumerate(scenario.clusters):
            if (service := services.get((cluster, name))) is not None:
                ends = _most_load(service.lateness)
                upto = grid[: math.ceil(max(ends, MOST_LOAD) / MOST_LOAD) * LOAD_CELLS + 1]
                pair = _Pair(service.lateness, bursts, upto, reuse)
                for table, shares in zip(tables[:, :, c, w], (pair.bursty(bursts), pair.calm()), strict=True):
                    table[:] = lengthened(shares, grid.size)  # where it is not known, as at the end of its own loads
                most[c, w] = ends
                alone_s[c, w] = service.lateness.alone_s
                known = pair.by_rate(rates, 1.0 if scenario.routing == "proportional" else PREFERRED_UTILISATION)
                if known is not None:
                    by_rate[c, w] = known.lengthened(grid.size)
    return LoadTables(tables[0, 0], tables[0, 1], tables[1], most, alone_s, by_rate)


class _Pair(NamedTuple):
    """A workload on a cluster: what becomes of it without bursts, its bursts, and the loads to know it at."""

    lateness: Lateness
    bursts: Bursts
    loads: Floats
    reuse: Reuse

    def calm(self) -> Floats:
        """Return the shares late and refused without bursts, shape (2, loads)."""
        return self.reuse.once(("calm", self.lateness), lambda: np.array(self.lateness.at(self.loads)))

    def bursty(self, bursts: Bursts) -> Floats:
        """Return the same with bursts."""
        key = ("bursts", self.lateness, bursts)
        return self.reuse.once(key, lambda: np.array(shares_with_bursts(self.lateness, bursts, self.loads)))

    def by_rate(self, rates: Rates, filled: float) -> BurstTables | None:
        """Return what bursts add at rates that are powers of two, from the slackest hour's to the busiest's.

        None where it is the same at any rate, and where it is next to nothing up to the load to which clusters are
        filled: at the mean of the slackest week, since its slackest hours leave machines idle.
        """
        if self.bursts.follow == "traffic" or not rates.busiest_hour > 0.0:
            return None
        if self.add_little(self.bursts.at(rates.slackest_week), round(filled * LOAD_CELLS / MOST_LOAD) + 1):
            return None
        last = math.ceil(math.log2(rates.busiest_hour))
        first = max(math.floor(math.log2(rates.slackest_hour)), last - _MOST_OCTAVES)
        key = ("by rate", self.lateness, self.bursts.at(2.0**first), last)
        return self.reuse.once(key, lambda: self.at_octaves(first, last))

    def add_little(self, bursts: Bursts, cells: int) -> bool:
        """Return whether bursts add next to nothing in the first cells of a table."""

        def add_little() -> bool:
            late, refused = shares_with_bursts(self.lateness, bursts, self.loads[:cells])
            return bool((late + refused - self.calm()[:, :cells].sum(axis=0)).max() < LITTLE_LATE)

        return self.reuse.once(("add little", self.lateness, bursts, cells), add_little)

    def at_octaves(self, first: int, last: int) -> BurstTables:
        """Return what bursts add at powers of two."""
        added = np.stack([self.added(2.0**power) for power in range(first, last + 1)], axis=1)
        makes_late, refuses = np.abs(added[0]) > LITTLE_LATE, added[1] + self.calm()[1] > _NOBODY_REFUSED
        return BurstTables(
            first_requests=2.0**first * SECONDS_PER_HOUR,
            added=added,
            calm_cells=np.stack([_cells_before(makes_late), _cells_before(refuses)]),
            even_cells=float(_cells_before(self.calm()[1] > _NOBODY_REFUSED)),
        )

    def added(self, requests_per_s: float) -> Floats:
        """Return what bursts add to the shares late and refused at a rate, shape (2, loads)."""
        return self.bursty(self.bursts.at(requests_per_s)) - self.calm()


def _cells_before(many: Bools) -> Floats:
    """Return the last cell before the first of a table that has many, infinity where none has; tables lie last."""
    return np.where(many.any(axis=-1), many.argmax(axis=-1) - 1.0, np.inf)


def _most_load(lateness: Lateness) -> float:
    """Return the load up to which work is offered: to the last at which is known what becomes of it.

    Work that queues is offered up to :data:`MOST_LOAD`, or to what a replica can take at all where that is more.
    """
    if lateness.refuses:
        return lateness.loads[-1]
    return max(MOST_LOAD, min(lateness.loads[-2], _FURTHEST))
