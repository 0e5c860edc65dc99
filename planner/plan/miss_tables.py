"""The tables of misses by load: which share of a workload's requests a pool serves late or refuses at each load.

A router over many replicas keeps each busier for the same waits, so a workload has tables for each pool that may serve
it. They are worked out without bursts and with those of the traffic; where bursts even out as traffic grows, also by
request rate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.demand.bursts import Bursts, Lateness, shares_with_bursts
from planner.demand.plan import DemandPlan, Rates
from planner.elementwise import pad_edge
from planner.plan.choice import PREFERRED_UTILISATION, Service, Services
from planner.plan.load_tables import (
    LITTLE_LATE,
    LOAD_CELLS,
    MOST_LOAD,
    BurstTables,
    MissTables,
    load_grid,
)
from planner.plan.plan import Plan
from planner.plan.reuse import Reuse
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR

_MOST_OCTAVES = 12
"""Between the slackest and the busiest hour: a four-thousandth of the busiest's requests fills no machine."""
_SLACK_FRACTION = 0.25
"""Of the rate of day one: where bursts add next to nothing even then, their tables by rate are not worked out."""
_NOBODY_REFUSED = 1e-6
"""Share of requests."""
_FURTHEST_LOAD = 8 * MOST_LOAD
"""Where work queues and a replica could take more: nothing of it is in time."""


class LoadTables(NamedTuple):
    """A plan's tables by load; the fields have the names of the plan's fields."""

    late_tables: Floats
    refused_tables: Floats
    no_burst_tables: Floats
    most_loads: Floats
    alone_s: Floats
    burst_tables: dict[tuple[int, int], BurstTables]


def load_tables(
    scenario: Scenario, services: Services, demand: DemandPlan, reuse: Reuse
) -> LoadTables:
    """Return the tables of all clusters and workloads, at the size that each cluster begins with."""
    by_pair: dict[tuple[int, int], MissTables] = {}
    alone_s = np.full((len(scenario.clusters), len(scenario.workloads)), np.nan)
    for w, name in enumerate(scenario.workloads):
        for c, cluster in enumerate(scenario.clusters):
            service = services.get((cluster, name))
            tables = None
            if service is not None:
                tables = miss_tables(scenario, name, service, demand, reuse)
            if service is not None and tables is not None:
                by_pair[c, w] = tables
                alone_s[c, w] = service.lateness.alone_s
    cells = max((tables.late.size for tables in by_pair.values()), default=LOAD_CELLS + 1)
    shape = alone_s.shape
    late = np.zeros((*shape, cells))
    refused = np.zeros((*shape, cells))
    no_burst = np.zeros((2, *shape, cells))
    most_loads = np.ones(shape)
    by_rate: dict[tuple[int, int], BurstTables] = {}
    for pair, narrow in by_pair.items():
        # Where its shares are not known they are as at the end of its own loads.
        tables = narrow.pad_edge(cells)
        late[pair] = tables.late
        refused[pair] = tables.refused
        no_burst[:, *pair] = tables.no_burst
        most_loads[pair] = tables.most_load
        if tables.by_rate is not None:
            by_rate[pair] = tables.by_rate
    return LoadTables(late, refused, no_burst, most_loads, alone_s, by_rate)


def miss_tables(
    scenario: Scenario, name: str, service: Service, demand: DemandPlan, reuse: Reuse
) -> MissTables | None:
    """Return the tables of a workload as one service has them; None where it can wait, or nobody asks for it."""
    workload = scenario.workloads[name]
    if workload.requests_per_s <= 0 or workload.priority == "deferrable":
        return None
    highest_load = _most_load(service.lateness)
    cells = math.ceil(max(highest_load, MOST_LOAD) / MOST_LOAD) * LOAD_CELLS
    pair = _Pair(service.lateness, load_grid(cells), reuse)
    filled_load = 1.0 if scenario.routing == "proportional" else PREFERRED_UTILISATION
    late, refused = pair.with_bursts(workload.bursts)
    return MissTables(
        late=late,
        refused=refused,
        no_burst=pair.without_bursts(),
        most_load=highest_load,
        by_rate=pair.by_rate(workload.bursts, demand.rates(name), filled_load),
    )


def pool_tables(plan: Plan, c: int, w: int, lateness: Lateness) -> MissTables:
    """Return the tables of a workload in a pool of another size than its cluster.

    Without bursts they are the pool's own. What bursts add at a load is what they add on the whole cluster: the loads
    are over what either sustains, and a burst raises both alike.
    """
    assert plan.no_burst_tables is not None  # a compiled plan has them
    most_load = _most_load(lateness)
    cells = math.ceil(max(most_load, MOST_LOAD) / MOST_LOAD) * LOAD_CELLS
    cells = max(cells + 1, plan.late_tables.shape[-1])
    calm = np.array(lateness.at(load_grid(cells - 1)))
    with_bursts = np.stack([plan.late_tables[c, w], plan.refused_tables[c, w]])
    added = pad_edge(with_bursts - plan.no_burst_tables[:, c, w], cells)
    late, refused = np.clip(calm + added, 0.0, 1.0)
    by_rate = plan.burst_tables.get((c, w))
    return MissTables(
        late=late,
        refused=refused,
        no_burst=calm,
        most_load=most_load,
        by_rate=None if by_rate is None else by_rate.pad_edge(cells),
    )


class _Pair(NamedTuple):
    """One workload on one pool: its misses without bursts, and the loads of the tables."""

    lateness: Lateness
    loads: Floats
    reuse: Reuse

    def without_bursts(self) -> Floats:
        """Return the shares late and rejected without bursts, shape (2, loads)."""
        key = ("calm", self.lateness, self.loads.size)
        return self.reuse.once(key, lambda: np.array(self.lateness.at(self.loads)))

    def with_bursts(self, bursts: Bursts) -> Floats:
        """Return the shares late and rejected with bursts, shape (2, loads)."""
        key = ("bursts", self.lateness, bursts, self.loads.size)
        return self.reuse.once(
            key, lambda: np.array(shares_with_bursts(self.lateness, bursts, self.loads))
        )

    def by_rate(self, bursts: Bursts, rates: Rates, filled_load: float) -> BurstTables | None:
        """Return the misses that bursts add at rates that are powers of two, over the range of hourly rates.

        None where they are the same at any rate, and where they are next to nothing up to the load to which pools are
        filled, even at a fraction of the rate of day one. No later rate decides that: what comes later must not move
        what was.
        """
        if bursts.scaling == "proportional" or not rates.busiest_hour > 0.0:
            return None
        slack = bursts.at(bursts.requests_per_s * _SLACK_FRACTION)
        if self._adds_little(slack, round(filled_load * LOAD_CELLS / MOST_LOAD) + 1):
            return None
        # Below the lowest measured rate bursts are those at it.
        lowest = bursts.lowest_requests_per_s
        final = math.ceil(math.log2(max(rates.busiest_hour, lowest)))
        slackest_octave = math.floor(math.log2(max(rates.slackest_hour, lowest)))
        first = max(slackest_octave, final - _MOST_OCTAVES)

        def at_octaves() -> BurstTables:
            calm = self.without_bursts()
            octaves = range(first, final + 1)
            # The first octave may begin below the lowest rate, and is read from there up.
            shares = [self.with_bursts(bursts.continued_to(2.0**power)) - calm for power in octaves]
            added = np.stack(shares, axis=1)
            makes_late = np.abs(added[0]) > LITTLE_LATE
            refuses = added[1] + calm[1] > _NOBODY_REFUSED
            return BurstTables(
                first_requests=2.0**first * SECONDS_PER_HOUR,
                least_requests=lowest * SECONDS_PER_HOUR,
                added=added,
                calm_cells=np.stack([_cells_before(makes_late), _cells_before(refuses)]),
                even_cells=float(_cells_before(calm[1] > _NOBODY_REFUSED)),
            )

        first_bursts = bursts.continued_to(2.0**first)
        key = ("by rate", self.lateness, first_bursts, final, lowest, self.loads.size)
        return self.reuse.once(key, at_octaves)

    def _adds_little(self, bursts: Bursts, cells: int) -> bool:
        """Return whether bursts add a negligible miss share in the first cells of a table."""

        def adds_little() -> bool:
            late, refused = shares_with_bursts(self.lateness, bursts, self.loads[:cells])
            calm = self.without_bursts()[:, :cells].sum(axis=0)
            return bool((late + refused - calm).max() < LITTLE_LATE)

        return self.reuse.once(("adds little", self.lateness, bursts, cells), adds_little)


def _cells_before(is_many: Bools) -> Floats:
    """Return the last cell before the first true one along the last axis, infinity where none is true."""
    return np.where(is_many.any(axis=-1), is_many.argmax(axis=-1) - 1.0, np.inf)


def _most_load(lateness: Lateness) -> float:
    """Return the highest load that is offered to a pool.

    Work that queues is offered up to :data:`MOST_LOAD`, or to what a replica can take at all where that is more.
    """
    if lateness.refuses:
        return lateness.loads[-1]
    return max(MOST_LOAD, min(lateness.loads[-2], _FURTHEST_LOAD))
