"""A plan's tables by load, and its tables and node capacities at each cluster size that rules can reach.

A router over many replicas keeps each busier for the same waits, so what a node sustains, and how late requests are at
a load, follow the number of nodes. They are worked out for a few sizes; between two, the smaller's figures hold.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.demand.bursts import Bursts, Lateness, shares_with_bursts
from planner.demand.plan import DemandPlan, Rates
from planner.elementwise import pad_edge
from planner.plan.candidates import POOL_STEPS, as_first_bought, pooled_nodes
from planner.plan.choice import PREFERRED_UTILISATION, Factors, Services
from planner.plan.load_tables import LITTLE_LATE, LOAD_CELLS, MOST_LOAD, BurstTables, load_grid
from planner.plan.placement import figures_in_pools, laid_out
from planner.plan.plan import ClusterSize, Plan
from planner.plan.reuse import Reuse
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR


def sizes_by_hour(plan: Plan, present: Floats) -> Ints:
    """Return the index of each cluster's size in each hour, −1 for the plan's own, shape (clusters, hours).

    ``present`` are its nodes, in service or not.
    """
    which = np.full(present.shape, -1, dtype=np.intp)
    for c, sizes in plan.sizes.items():
        which[c] = np.searchsorted([size.nodes for size in sizes], present[c], side="right") - 1
    return which


_kept: deque[tuple[Plan, dict[tuple[int, ...], Plan]]] = deque(maxlen=1)
"""The last plan that was asked for, and what it is at the sizes that it had: its replications go through the same."""


def at_sizes(plan: Plan, which: tuple[int, ...]) -> Plan:
    """Return the plan with its clusters at given sizes, one index per cluster as in :func:`sizes_by_hour`."""
    if all(size < 0 for size in which):
        return plan
    by_sizes = next((sized for known, sized in tuple(_kept) if known is plan), None)
    if by_sizes is None:
        by_sizes = {}
        _kept.append((plan, by_sizes))
    if which in by_sizes:
        return by_sizes[which]
    chosen = {c: plan.sizes[c][size] for c, size in enumerate(which) if size >= 0}
    most = max(plan.late_tables.shape[-1], *(size.late_table.shape[-1] for size in chosen.values()))
    rows: dict[str, Any] = {
        "requests_per_node_h": plan.requests_per_node_h.copy(),
        "late_tables": pad_edge(plan.late_tables, most),
        "refused_tables": pad_edge(plan.refused_tables, most),
        "no_burst_tables": None
        if plan.no_burst_tables is None
        else pad_edge(plan.no_burst_tables, most),
        "most_loads": plan.most_loads.copy(),
        "burst_tables": {
            pair: by_rate for pair, by_rate in plan.burst_tables.items() if pair[0] not in chosen
        },
    }
    for c, size in chosen.items():
        rows["requests_per_node_h"][c] *= size.speed[:, None]
        rows["late_tables"][c] = pad_edge(size.late_table, most)
        rows["refused_tables"][c] = pad_edge(size.refused_table, most)
        rows["most_loads"][c] = size.most_loads
        rows["burst_tables"] |= {(c, w): by_rate for w, by_rate in size.burst_tables.items()}
        if plan.no_burst_tables is not None:
            rows["no_burst_tables"][:, c] = pad_edge(size.no_burst_tables, most)
    rows["burst_tables"] = {
        pair: by_rate.pad_edge(most) for pair, by_rate in rows["burst_tables"].items()
    }
    sized = replace(plan, **rows)
    if (placement := plan.placement) is not None:
        pools = replace(
            placement.pools, **figures_in_pools(sized, placement.pool_cluster, placement.pool_speed)
        )
        sized = replace(sized, placement=replace(placement, pools=pools))
    by_sizes[which] = sized
    return sized


_STEP = 2  # sizes are at least so many times the one before
_SAME = 1.005  # what a node may sustain at one size over another that is as good as it


def sizes_of(
    scenario: Scenario, services: Services, factors: Factors, demand: DemandPlan, reuse: Reuse
) -> dict[int, tuple[ClusterSize, ...]]:
    """Return the sizes, rising, of each cluster that rules resize; clusters whose figures stay the same are left out.

    Its models keep the layouts they begin with. From the size on at which a node does as well as in the largest, no
    more are worked out.
    """
    sizes = {}

    def over(one: Services, other: Services, pair: tuple[str, str]) -> float:
        """Return a node's capacity for a workload at one size over that at another."""
        return one[pair].requests_per_s / other[pair].requests_per_s

    for c, name in enumerate(scenario.clusters):
        known: Services = {pair: service for pair, service in services.items() if pair[0] == name}
        steps = _steps(scenario, name) if known and scenario.router_pool == "cluster" else []
        begins = pooled_nodes(as_first_bought(scenario, name).nodes)
        largest = resized(scenario, known, steps[-1], factors, reuse) if steps[1:] else known
        worked_out: list[ClusterSize] = []
        now = known
        for nodes in steps:
            if nodes > begins and all(over(largest, now, pair) <= _SAME for pair in known):
                break
            now = known if nodes == begins else resized(scenario, known, nodes, factors, reuse)
            alone = scenario.model_copy(update={"clusters": {name: scenario.clusters[name]}})
            tables = load_tables(alone, now, demand, reuse)
            loads = [(name, w) for w in scenario.workloads]
            worked_out.append(
                ClusterSize(
                    nodes=nodes,
                    speed=np.array(
                        [over(now, known, pair) if pair in known else 1.0 for pair in loads]
                    ),
                    late_table=tables.late_tables[0],
                    refused_table=tables.refused_tables[0],
                    no_burst_tables=tables.no_burst_tables[:, 0],
                    most_loads=tables.most_loads[0],
                    burst_tables={w: by_rate for (_, w), by_rate in tables.burst_tables.items()},
                )
            )
        if worked_out[1:]:
            sizes[c] = tuple(worked_out)
    return sizes


def _steps(scenario: Scenario, name: str) -> list[int]:
    """Return the sizes a cluster can reach by rules, on the grid of sizes with their own figures."""
    rules = [rule for rule in scenario.expansion.rules if rule.cluster == name]
    begins = pooled_nodes(as_first_bought(scenario, name).nodes)
    enlarging = [rule.max_nodes or math.inf for rule in rules if rule.enlarges]
    least = begins if len(enlarging) == len(rules) else 1
    most = max(begins, max(enlarging, default=begins))
    steps: list[int] = []
    for step in POOL_STEPS:
        if least <= step <= most and (not steps or step >= _STEP * steps[-1] or step == begins):
            steps.append(step)
    return steps if rules else []


def resized(
    scenario: Scenario, known: Services, nodes: int, factors: Factors, reuse: Reuse
) -> Services:
    """Return how a cluster with this many nodes serves its workloads in the known layouts, if it can."""
    services = {}
    for (name, workload), service in known.items():
        layout = {"nodes": nodes, **service.as_keys()}
        services[name, workload] = (
            laid_out(scenario, factors, reuse, name, workload, layout) or service
        )
    return services


_MOST_OCTAVES = 12  # between slackest and busiest hour: a four-thousandth of the busiest's requests fills no machine
_NOBODY_REFUSED = 1e-6  # share of requests
_FURTHEST = (
    8 * MOST_LOAD
)  # where work queues and a replica could take more: nothing of it is in time


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
    """Return the shares of requests late and rejected by load, with and without bursts, and the highest load."""
    shape = (len(scenario.clusters), len(scenario.workloads))
    furthest = max(
        (_most_load(service.lateness) for service in services.values()), default=MOST_LOAD
    )
    grid = load_grid(math.ceil(furthest / MOST_LOAD) * LOAD_CELLS)
    tables = np.zeros((2, 2, *shape, grid.size))
    most = np.ones(shape)
    alone_s = np.full(shape, np.nan)
    by_rate = {}
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        if workload.requests_per_s <= 0 or workload.priority == "deferrable":
            continue
        rates = demand.rates(name)
        bursts = workload.bursts
        for c, cluster in enumerate(scenario.clusters):
            if (service := services.get((cluster, name))) is not None:
                ends = _most_load(service.lateness)
                upto = grid[: math.ceil(max(ends, MOST_LOAD) / MOST_LOAD) * LOAD_CELLS + 1]
                pair = _Pair(service.lateness, bursts, upto, reuse)
                for table, shares in zip(
                    tables[:, :, c, w], (pair.bursty(bursts), pair.without_bursts()), strict=True
                ):
                    table[:] = pad_edge(
                        shares, grid.size
                    )  # where it is not known, as at the end of its own loads
                most[c, w] = ends
                alone_s[c, w] = service.lateness.alone_s
                known = pair.by_rate(
                    rates, 1.0 if scenario.routing == "proportional" else PREFERRED_UTILISATION
                )
                if known is not None:
                    by_rate[c, w] = known.pad_edge(grid.size)
    return LoadTables(tables[0, 0], tables[0, 1], tables[1], most, alone_s, by_rate)


class _Pair(NamedTuple):
    """One workload on one cluster: its misses without bursts, its bursts, and the loads of the tables."""

    lateness: Lateness
    bursts: Bursts
    loads: Floats
    reuse: Reuse

    def without_bursts(self) -> Floats:
        """Return the shares late and rejected without bursts, shape (2, loads)."""
        return self.reuse.once(
            ("calm", self.lateness), lambda: np.array(self.lateness.at(self.loads))
        )

    def bursty(self, bursts: Bursts) -> Floats:
        """Return the shares late and rejected with bursts, shape (2, loads)."""
        key = ("bursts", self.lateness, bursts)
        return self.reuse.once(
            key, lambda: np.array(shares_with_bursts(self.lateness, bursts, self.loads))
        )

    def by_rate(self, rates: Rates, filled: float) -> BurstTables | None:
        """Return the misses that bursts add at rates that are powers of two, over the range of hourly rates.

        None where it is the same at any rate, and where it is next to nothing up to the load to which clusters are
        filled: at the mean of the slackest week, since its slackest hours leave machines idle.
        """
        if self.bursts.scaling == "proportional" or not rates.busiest_hour > 0.0:
            return None
        if self.add_little(
            self.bursts.at(rates.slackest_week), round(filled * LOAD_CELLS / MOST_LOAD) + 1
        ):
            return None
        last = math.ceil(math.log2(rates.busiest_hour))
        first = max(math.floor(math.log2(rates.slackest_hour)), last - _MOST_OCTAVES)

        def at_octaves() -> BurstTables:
            even = self.without_bursts()
            octaves = [
                self.bursty(self.bursts.at(2.0**power)) - even for power in range(first, last + 1)
            ]
            added = np.stack(octaves, axis=1)
            makes_late = np.abs(added[0]) > LITTLE_LATE
            refuses = added[1] + even[1] > _NOBODY_REFUSED
            return BurstTables(
                first_requests=2.0**first * SECONDS_PER_HOUR,
                added=added,
                calm_cells=np.stack([_cells_before(makes_late), _cells_before(refuses)]),
                even_cells=float(_cells_before(even[1] > _NOBODY_REFUSED)),
            )

        return self.reuse.once(
            ("by rate", self.lateness, self.bursts.at(2.0**first), last), at_octaves
        )

    def add_little(self, bursts: Bursts, cells: int) -> bool:
        """Return whether bursts add a negligible miss share in the first cells of a table."""

        def add_little() -> bool:
            late, refused = shares_with_bursts(self.lateness, bursts, self.loads[:cells])
            return bool(
                (late + refused - self.without_bursts()[:, :cells].sum(axis=0)).max() < LITTLE_LATE
            )

        return self.reuse.once(("add little", self.lateness, bursts, cells), add_little)


def _cells_before(many: Bools) -> Floats:
    """Return the last cell before the first true one along the last axis, infinity where none is true."""
    return np.where(many.any(axis=-1), many.argmax(axis=-1) - 1.0, np.inf)


def _most_load(lateness: Lateness) -> float:
    """Return the highest load that is offered to a cluster.

    Work that queues is offered up to :data:`MOST_LOAD`, or to what a replica can take at all where that is more.
    """
    if lateness.refuses:
        return lateness.loads[-1]
    return max(MOST_LOAD, min(lateness.loads[-2], _FURTHEST))
