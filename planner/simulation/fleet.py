"""The fleet's mutable state and the processes that change it: deliveries, failures, the repair shop."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, cast

import numpy as np
import simpy

from planner.fleet.plan import ClusterPlan, Plan
from planner.simulation.log import Change, Kind
from planner.simulation.streams import Streams

Steps = Generator[simpy.Event, Any, None]


class RepairShop:
    """Technicians who repair one node each, first come, first served."""

    def __init__(self, env: simpy.Environment, crews: int, log: list[Change]) -> None:
        self.env = env
        self.free = crews
        self.log = log
        self.waiting: deque[tuple[int, int, float]] = deque()
        self.down: set[tuple[int, int]] = set()

    def take_in(self, cluster: int, node: int, repair_h: float) -> None:
        """Take a failed node out of service and repair it as soon as a crew is free."""
        self.log.append(Change(self.env.now, Kind.FAILED, cluster, -1, node, "hardware"))
        self.down.add((cluster, node))
        if self.free:
            self.free -= 1
            self._start(cluster, node, repair_h)
        else:
            self.waiting.append((cluster, node, repair_h))

    def _start(self, cluster: int, node: int, repair_h: float) -> None:
        done = self.env.timeout(repair_h, value=(cluster, node))
        assert done.callbacks is not None  # an event that has not happened yet has callbacks
        done.callbacks.append(self._finish)

    def _finish(self, done: simpy.Event) -> None:
        cluster, node = cast("tuple[int, int]", done.value)
        self.down.discard((cluster, node))
        self.log.append(Change(self.env.now, Kind.REPAIRED, cluster, 1, node, "hardware"))
        if self.waiting:
            self._start(*self.waiting.popleft())
        else:
            self.free += 1


def deliver(env: simpy.Environment, plan: Plan, index: int, shop: RepairShop, streams: Streams) -> Steps:
    """Bring a cluster into service on its date, then let its nodes fail until the horizon ends."""
    cluster = plan.clusters[index]
    if cluster.nodes == 0:
        return
    if cluster.online_h > 0:
        yield env.timeout(cluster.online_h)
    shop.log.append(Change(env.now, Kind.DELIVERED, index, cluster.nodes, -1, "delivery"))
    yield from fail(env, index, cluster, shop, streams(f"failures/{cluster.name}"), plan.hours)


def fail(
    env: simpy.Environment, index: int, cluster: ClusterPlan, shop: RepairShop, draw: np.random.Generator, end_h: float
) -> Steps:
    """Let nodes fail as independent Poisson processes, drawn in one block; a node that is down cannot fail again.

    Dropping the points that fall on a down node leaves exponential times between repair and next failure, so a node
    with crews at hand is available MTBF / (MTBF + MTTR) of the time.
    """
    exposure_h = end_h - env.now
    count = draw.poisson(cluster.failures_per_node_h * cluster.nodes * exposure_h)
    times = np.sort(draw.random(count)) * exposure_h + env.now
    nodes = draw.integers(cluster.nodes, size=count)
    repairs = draw.exponential(cluster.mean_repair_h, size=count)
    for time_h, node, repair_h in zip(times.tolist(), nodes.tolist(), repairs.tolist(), strict=True):
        yield env.timeout(time_h - env.now)
        if (index, node) not in shop.down:
            shop.take_in(index, node, repair_h)


def run_processes(plan: Plan, streams: Streams) -> list[Change]:
    """Run SimPy over the horizon and return the change log, in time order."""
    env = simpy.Environment()
    log: list[Change] = []
    shop = RepairShop(env, plan.repair_crews, log)
    for index in range(len(plan.clusters)):
        env.process(deliver(env, plan, index, shop, streams))
    env.run(until=plan.hours)
    return log
