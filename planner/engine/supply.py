"""Supply: orders, deliveries, commissioning with limited crews, and power blocks: how nodes enter service.

A delivery is paid when it comes. Its nodes serve once they are commissioned and the site has power for them; until
then, and for good where it never has, they are owned and wait. What came before the start was paid then: its purchase
has a time below zero, and its age is counted from there.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np
import simpy

from planner.arrays import Bools, Floats
from planner.engine.failures import draw_failures, draw_interruptions
from planner.engine.log import Change, ChangeLog, PlacedOrder, Purchase, Streams, stream_keys
from planner.engine.repair_shop import RepairShop
from planner.plan.plan import ClusterPlan, Plan

Steps = Generator[simpy.Event, Any, None]
Prices = tuple[float, ...]
SAME_KW = 1e-6
"""A milliwatt: ten nodes of 10.2 kW fit into 102 kW, however the floats round."""


class Supply:
    """Brings nodes into service; owns the commissioning crews and the unallocated power."""

    def __init__(
        self,
        env: simpy.Environment,
        plan: Plan,
        shop: RepairShop,
        log: ChangeLog,
        streams: Streams,
    ) -> None:
        self.env = env
        self.plan = plan
        self.shop = shop
        self.log = log
        self.streams = streams
        accelerators = [cluster.accelerator for cluster in plan.clusters]
        self.keys = stream_keys(accelerators)
        """By cluster, what its streams are called by."""
        # The commissioning crews work as one team, delivery by delivery.
        self.crews = simpy.Resource(env, capacity=1)
        self.arrived = {accelerator: env.event() for accelerator in accelerators}
        """By accelerator: happens when its first nodes are in service."""
        self.free_kw = 0.0
        """Energised and given to no node, where power comes in blocks."""
        self.waiting: list[tuple[int, int, float]] = []
        """Nodes without power, in the order in which they asked for it: cluster, purchase, when commissioned."""
        self.batches = [0] * len(plan.clusters)
        """By cluster, how many groups of nodes have entered service together."""
        self.in_service = [0] * len(plan.clusters)
        self.retired = [0] * len(plan.clusters)

    @property
    def now_h(self) -> float:
        """The current hour."""
        return float(self.env.now)

    def start(self) -> None:
        """Start the delivery and the retirement of every cluster."""
        if self.plan.site.block_h.size:
            self.env.process(self._energise_blocks())
        # In the order of their streams' names: where two need the same crew or power at once, neither the names of the
        # clusters nor their order in the scenario decide.
        by_key = sorted(range(len(self.keys)), key=lambda index: self.keys[index])
        for index in by_key:
            cluster = self.plan.clusters[index]
            if cluster.nodes and cluster.order is None:
                self.env.process(self._go_online(index, cluster))
            elif cluster.nodes:
                self.env.process(self._deliver_order(index, cluster))
            if cluster.retire_h < self.plan.hours:
                self.env.process(self._retire_all(index, cluster))

    def _go_online(self, index: int, cluster: ClusterPlan) -> Steps:
        """Let a cluster that states no order serve from its date on, already commissioned."""
        online_h = cluster.online_h or 0.0
        if online_h > 0.0:
            self.log.orders.append(
                PlacedOrder(online_h, index, cluster.nodes, online_h, is_stated=True)
            )
        yield self.env.timeout(online_h)
        paid_h = self.now_h
        if cluster.owned is not None:
            paid_h = float(cluster.owned.bought_h)
        purchase = self._buy(index, cluster.nodes, cluster.first_prices_usd, paid_h)
        ready_h = np.full(cluster.nodes, self.env.now)
        self._request_power(index, purchase, ready_h)

    def _deliver_order(self, index: int, cluster: ClusterPlan) -> Steps:
        """Let the shipments of an order come, all late by the same delay, and commission each."""
        order = cluster.order
        assert order is not None
        draw = self.streams(f"supply/{self.keys[index]}")
        slip_h = order.slip_h.triangular(draw)
        arrival_h = order.placed_h + order.lead_h + slip_h
        # What was ordered before the first day is no decision any more.
        if order.placed_h >= 0.0:
            self.log.orders.append(
                PlacedOrder(order.placed_h, index, cluster.nodes, arrival_h, is_stated=True)
            )
        # Whole nodes, as even as can be: the shares of the first k shipments are rounded, so none is lost.
        edges = np.linspace(0, cluster.nodes, order.deliveries + 1)
        delivered = edges.round()
        shares = np.diff(delivered.astype(int))
        gone_h = min(cluster.retire_h, self.plan.hours)
        for shipment, nodes in enumerate(shares.tolist()):
            shipped_h = arrival_h + shipment * order.interval_h
            if nodes and shipped_h >= gone_h:
                undelivered = Purchase(shipped_h, index, nodes, cluster.prices_usd, order.placed_h)
                self.log.undelivered.append(undelivered)
                continue
            wait_h = max(0.0, shipped_h - self.env.now)
            yield self.env.timeout(wait_h)
            if nodes:
                is_refused = draw.random(nodes) < order.acceptance_failure_fraction
                # Below zero where it came before the start; the clock, which may be off by a rounding, else.
                delivered_h = min(shipped_h, self.env.now)
                commissioning = self._commission(
                    index, cluster.prices_usd, is_refused, delivered_h, order.placed_h
                )
                self.env.process(commissioning)

    def _buy(
        self, index: int, nodes: int, prices_usd: Prices, paid_h: float, placed_h: float = np.inf
    ) -> int:
        """Record a purchase; return its index in the log."""
        purchase = Purchase(paid_h, index, nodes, prices_usd, placed_h)
        self.log.purchases.append(purchase)
        return len(self.log.purchases) - 1

    def _commission(
        self,
        index: int,
        prices_usd: Prices,
        is_refused: Bools,
        delivered_h: float,
        placed_h: float = np.inf,
    ) -> Steps:
        """Install a delivery and record its payment; nodes that fail acceptance return after a hard repair.

        One that came before the start was installed from then on, by crews that had nothing else to do.
        """
        site = self.plan.site
        reliability = self.plan.reliability
        nodes = is_refused.size
        purchase = self._buy(index, nodes, prices_usd, delivered_h, placed_h)
        with self.crews.request() as turn:
            yield turn
            # Crews take a node each: with n crews every n-th node is ready a round later.
            rounds = np.arange(nodes) // site.commissioning_crews + 1
            begin_h = delivered_h if delivered_h < 0 else self.now_h
            ready_h = np.asarray(begin_h + rounds * site.commissioning_h, dtype=np.float64)
            ready_h[is_refused] += reliability.rma_h + reliability.repair_h[2]
            # In the order of their numbers, which rise with the time of service.
            ready_h.sort()
            np.maximum(ready_h, 0.0, out=ready_h)
            # Requested at once, with the hour at which each node is ready: their failures are drawn in one go.
            self._request_power(index, purchase, ready_h)
            end_h = begin_h + float(rounds[-1] * site.commissioning_h)
            rest_h = max(0.0, end_h - self.env.now)
            yield self.env.timeout(rest_h)

    def _energise_blocks(self) -> Steps:
        """Release each power block on its date."""
        site = self.plan.site
        totals_kw = pairwise([0.0, *site.block_kw])
        times_h = site.block_h.tolist()
        for time_h, (earlier_kw, total_kw) in zip(times_h, totals_kw, strict=True):
            if time_h > self.env.now:
                yield self.env.timeout(time_h - self.env.now)
            self.free_kw += total_kw - earlier_kw
            self._energise()

    def _request_power(self, index: int, purchase: int, ready_h: Floats) -> None:
        """Put nodes into service once commissioned, or queue them for power where it comes in blocks."""
        cluster = self.plan.clusters[index]
        comes_in_blocks = self.plan.site.block_h.size > 0
        if comes_in_blocks and not cluster.is_hosted:
            self.waiting += [(index, purchase, time_h) for time_h in ready_h.tolist()]
            self._energise()
        else:
            self._serve(index, purchase, ready_h)

    def _energise(self) -> None:
        """Allocate free power to waiting nodes, first in first out; skip nodes too large for the rest."""
        queue = self.waiting
        self.waiting = []
        powered_h = dict[tuple[int, int], list[float]]()
        for index, purchase, ready_h in queue:
            cluster = self.plan.clusters[index]
            if self.env.now >= cluster.retire_h:
                continue  # its cluster is gone
            if cluster.nameplate_kw > self.free_kw + SAME_KW:
                self.waiting.append((index, purchase, ready_h))
                continue
            self.free_kw -= cluster.nameplate_kw
            service_h = max(self.now_h, ready_h)
            purchase_h = powered_h.setdefault((index, purchase), [])
            purchase_h.append(service_h)
        for (index, purchase), times_h in powered_h.items():
            self._serve(index, purchase, np.sort(times_h))

    def _serve(self, index: int, purchase: int, service_h: Floats) -> None:
        """Put nodes of a purchase into service at their times, and draw their failures within the horizon.

        Those that come after its end are numbered with the others, whose past does not depend on where it ends.
        """
        cluster = self.plan.clusters[index]
        end_h = float(self.plan.hours)
        service_h = service_h[service_h < cluster.retire_h]
        if not service_h.size:
            return
        # Early life is behind what came before the start: its failures are drawn from then on, and those before go.
        aged_h = min(self.log.purchases[purchase].time_h, 0.0)
        self.batches[index] += 1
        detail = f"batch {self.batches[index]}"
        if aged_h:
            detail += ", owned before the start"
        # A change of the log is all nodes of one moment.
        within_h = service_h[service_h < end_h]
        times_h, counts = np.unique(within_h, return_counts=True)
        for time_h, count in zip(times_h.tolist(), counts.tolist(), strict=True):
            accelerators = count * cluster.accelerators_per_node
            change = Change(time_h, "delivered", index, accelerators, detail, purchase)
            self.log.changes.append(change)
        self.in_service[index] += service_h.size
        # Whatever waits for the first nodes of an accelerator, a bring-up for one, begins then.
        arrived = self.arrived[cluster.accelerator]
        announcement = self._announce(arrived, float(service_h[0]))
        self.env.process(announcement)
        first_node = self.shop.admit(index, service_h)
        reliability = self.plan.reliability
        random = (end_h, self.streams, self.keys[index])
        failures = draw_failures(reliability, cluster, service_h + aged_h, first_node, *random)
        entered_h = service_h[failures.node - first_node]
        in_service = failures.time_h >= entered_h
        self.shop.expect(index, failures.where(in_service))
        rent = cluster.rent
        if rent is not None and rent.interruptions_per_h > 0:
            interruptions = draw_interruptions(reliability, cluster, service_h, first_node, *random)
            self.shop.expect(index, interruptions)

    def _announce(self, arrived: simpy.Event, time_h: float) -> Steps:
        """Signal that the first nodes of an accelerator are in service."""
        if not arrived.triggered:
            wait_h = max(0.0, time_h - self.env.now)
            yield self.env.timeout(wait_h)
            if not arrived.triggered:  # another cluster's may have come in the meantime
                arrived.succeed()

    def expand(
        self, index: int, nodes: int, placed_h: float, arrival_h: float, prices_usd: Prices
    ) -> None:
        """Schedule the arrival of further ordered nodes of a cluster, at a price each.

        A review may have placed the order before the clock's hour: a window ends where nothing comes before its end.
        """
        self.log.orders.append(PlacedOrder(placed_h, index, nodes, arrival_h, is_stated=False))
        arrival = self._arrive(index, nodes, arrival_h, prices_usd)
        self.env.process(arrival)

    def _arrive(self, index: int, nodes: int, arrival_h: float, prices_usd: Prices) -> Steps:
        """Let ordered nodes come; those of a provider serve as they come, commissioned long ago."""
        yield self.env.timeout(arrival_h - self.env.now)
        cluster = self.plan.clusters[index]
        if self.env.now >= cluster.retire_h:
            return
        if cluster.is_hosted:
            purchase = self._buy(index, nodes, prices_usd, self.now_h)
            ready_h = np.full(nodes, self.now_h)
            self._request_power(index, purchase, ready_h)
        else:
            is_refused = np.zeros(nodes, dtype=bool)
            yield from self._commission(index, prices_usd, is_refused, self.now_h)

    def _retire_all(self, index: int, cluster: ClusterPlan) -> Steps:
        yield self.env.timeout(cluster.retire_h)
        self.retire(index, self.in_service[index])

    def retire(self, index: int, nodes: int) -> int:
        """Retire nodes for good, first in first out, and release their power; return how many."""
        cluster = self.plan.clusters[index]
        # Only what has arrived can leave: the log has nodes ahead of their time too.
        accelerators = 0
        for change in self.log.changes:
            if change.cluster == index and change.time_h <= self.env.now:
                accelerators += change.accelerators
        leaving = min(nodes, accelerators // cluster.accelerators_per_node)
        if not leaving:
            return 0
        self.in_service[index] -= leaving
        self.retired[index] += leaving
        self.shop.drop(index, leaving)
        accelerators = leaving * cluster.accelerators_per_node
        change = Change(self.now_h, "retired", index, -accelerators, f"{leaving} nodes")
        self.log.changes.append(change)
        if not cluster.is_hosted:
            self.free_kw += leaving * cluster.nameplate_kw
            self._energise()
        return leaving
