"""Orders, deliveries, commissioning with limited crews, power blocks: how nodes get into service."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from planner.fleet.plan import ClusterPlan, Plan
from planner.simulation.failures import draw_failures
from planner.simulation.log import Change, ChangeLog, Purchase
from planner.simulation.repair_shop import RepairShop
from planner.simulation.streams import Streams

Steps = Generator[simpy.Event, Any, None]
Floats = NDArray[np.float64]


class Supply:
    """Brings nodes into service; owns the commissioning crews and the power handed out so far."""

    def __init__(self, env: simpy.Environment, plan: Plan, shop: RepairShop, log: ChangeLog, streams: Streams) -> None:
        self.env = env
        self.plan = plan
        self.shop = shop
        self.log = log
        self.streams = streams
        self.crews = simpy.Resource(env, capacity=1)  # the crews work as one team, delivery by delivery
        self.arrived = {cluster.accelerator: env.event() for cluster in plan.clusters}
        """By part: happens when its first nodes are in service."""
        self.provisioned_kw = 0.0
        self.batches = [0] * len(plan.clusters)
        self.in_service = [0] * len(plan.clusters)
        self.retired = [0] * len(plan.clusters)

    def start(self) -> None:
        """Set every cluster on its way; where two want the same crew or power at once, the first by name has it."""
        for index, cluster in sorted(enumerate(self.plan.clusters), key=lambda pair: pair[1].name):
            if cluster.nodes:
                self.env.process(self._arrive(index, cluster))
            if cluster.retire_h < self.plan.hours:
                self.env.process(self._retire_all(index, cluster))

    def _arrive(self, index: int, cluster: ClusterPlan) -> Steps:
        order = cluster.order
        if order is None:
            yield self.env.timeout(cluster.online_h or 0.0)
            self.enter(index, np.full(cluster.nodes, self.env.now), cluster.prices_usd)
            return
        draw = self.streams(f"supply/{cluster.name}")
        arrival_h = order.placed_h + order.lead_h + order.slip_h.draw(draw)
        shares = np.diff(np.linspace(0, cluster.nodes, order.deliveries + 1).round().astype(int))
        for shipment, nodes in enumerate(shares.tolist()):
            yield self.env.timeout(max(0.0, arrival_h + shipment * order.interval_h - self.env.now))
            yield from self._commission(index, nodes, order.acceptance_failure_fraction, draw)

    def _commission(self, index: int, nodes: int, failing_fraction: float, draw: np.random.Generator) -> Steps:
        """Install and accept a delivery; nodes that fail acceptance come back after a hard repair and its part."""
        site = self.plan.site
        with self.crews.request() as turn:
            yield turn
            rounds = np.arange(nodes) // site.commissioning_crews + 1
            ready_h = self.env.now + rounds * site.commissioning_h
            refused = draw.random(nodes) < failing_fraction
            ready_h[refused] += self.plan.reliability.rma_h + self.plan.reliability.repair_h[2]
            self.enter(index, np.sort(ready_h), self.plan.clusters[index].prices_usd)
            if nodes:
                yield self.env.timeout(float(rounds[-1] * site.commissioning_h))

    def enter(self, index: int, ready_h: Floats, prices_usd: tuple[float, float, float, float]) -> None:
        """Put nodes bought at a price into service when they are ready and have power, and draw their failures."""
        cluster, end_h = self.plan.clusters[index], float(self.plan.hours)
        ready_h = np.maximum(ready_h, self._powered_h(cluster, ready_h.size))
        ready_h = ready_h[ready_h < min(end_h, cluster.retire_h)]
        if not ready_h.size:
            return
        self.batches[index] += 1
        times, counts = np.unique(ready_h, return_counts=True)
        for time_h, count in zip(times.tolist(), counts.tolist(), strict=True):
            accelerators = count * cluster.accelerators_per_node
            detail = f"batch {self.batches[index]}"
            self.log.changes.append(Change(time_h, "delivered", index, accelerators, detail))
        self.in_service[index] += ready_h.size
        self.env.process(self._announce(cluster.accelerator, float(times[0])))
        self.log.purchases.append(Purchase(float(times[0]), index, int(ready_h.size), prices_usd))
        stream = self.streams(f"failures/{cluster.name}/{self.batches[index]}")
        first = self.shop.admit(index, ready_h.size)
        failures = draw_failures(self.plan.reliability, cluster, ready_h, first, end_h, stream)
        self.shop.expect(index, failures)

    def _announce(self, part: str, time_h: float) -> Steps:
        """Tell those who wait for a part that the first nodes of it are there."""
        if not self.arrived[part].triggered:
            yield self.env.timeout(max(0.0, time_h - self.env.now))
            if not self.arrived[part].triggered:  # another cluster's may have come in the meantime
                self.arrived[part].succeed()

    def _powered_h(self, cluster: ClusterPlan, nodes: int) -> Floats:
        """Return when power for each further node is energised; infinity for never."""
        site = self.plan.site
        if not site.block_h.size:
            return np.zeros(nodes)
        needed = self.provisioned_kw + cluster.nameplate_kw * np.arange(1, nodes + 1)
        block = np.searchsorted(site.block_kw, needed - 1e-9)
        self.provisioned_kw = float(needed[block < site.block_h.size].max(initial=self.provisioned_kw))
        return np.append(site.block_h, np.inf)[block]

    def expand(self, index: int, nodes: int, lead_h: float, price_factor: float) -> None:
        """Order more nodes of a cluster; they enter service after the lead time and commissioning.

        ``price_factor`` is today's list price against the scenario's; a quote that holds today goes before it.
        """
        prices = self.plan.clusters[index].order_prices_usd(float(self.env.now), nodes, price_factor)

        def arrive() -> Steps:
            yield self.env.timeout(lead_h)
            site = self.plan.site
            with self.crews.request() as turn:
                yield turn
                rounds = np.arange(nodes, dtype=np.float64) // site.commissioning_crews + 1.0
                self.enter(index, self.env.now + rounds * site.commissioning_h, prices)
                yield self.env.timeout(float(rounds[-1] * site.commissioning_h))

        self.env.process(arrive())

    def _retire_all(self, index: int, cluster: ClusterPlan) -> Steps:
        yield self.env.timeout(cluster.retire_h)
        self.retire(index, self.in_service[index])

    def retire(self, index: int, nodes: int) -> int:
        """Take nodes out of service for good, those first in; return how many."""
        arrived = [c.accelerators for c in self.log.changes if c.cluster == index and c.time_h <= self.env.now]
        leaving = min(nodes, sum(arrived) // self.plan.clusters[index].accelerators_per_node)
        if leaving:
            self.in_service[index] -= leaving
            first = self.retired[index]
            self.retired[index] += leaving
            self.shop.work_until(float(self.env.now))  # what failed until now failed
            self.shop.drop(index, first, first + leaving, float(self.env.now))
            accelerators = -leaving * self.plan.clusters[index].accelerators_per_node
            self.log.changes.append(Change(float(self.env.now), "retired", index, accelerators, f"{leaving} nodes"))
        return leaving
