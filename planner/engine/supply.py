"""Orders, deliveries, commissioning with limited crews, and power blocks: how nodes enter service.

A delivery is paid when it comes. Its nodes serve once they are commissioned and the site has power for them; until
then, and for good where it never has, they are owned and wait. What came before the start was paid then: its purchase
has a time below zero, and its age is counted from there.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import simpy

from planner.arrays import Bools, Floats
from planner.engine import orders
from planner.engine.failures import draw_failures, draw_interruptions
from planner.engine.log import Change, ChangeLog, Note, Purchase, Streams, stream_keys
from planner.engine.repair_shop import RepairShop, RepairShopProcess
from planner.plan.plan import ClusterPlan, Plan, RulePlan
from planner.units import HOURS_PER_YEAR, counted

Steps = Generator[simpy.Event, Any, None]
Prices = tuple[float, ...]
_SAME_KW = 1e-6
"""A milliwatt: ten nodes of 10.2 kW fit into 102 kW, however the floats round."""


class Supply:
    """Brings nodes into service; owns the commissioning crews and the unallocated power."""

    def __init__(
        self,
        env: simpy.Environment,
        plan: Plan,
        shop: RepairShop | RepairShopProcess,
        log: ChangeLog,
        streams: Streams,
    ) -> None:
        self.env = env
        self.plan = plan
        self.shop = shop
        self.log = log
        self.streams = streams
        self.keys = stream_keys([cluster.accelerator for cluster in plan.clusters])
        """By cluster, what its streams are called by."""
        self.crews = simpy.Resource(
            env, capacity=1
        )  # the crews work as one team, delivery by delivery
        self.arrived = {cluster.accelerator: env.event() for cluster in plan.clusters}
        """By part: happens when its first nodes are in service."""
        self.free_kw = 0.0
        """Energised and given to no node, where power comes in blocks."""
        self.waiting: list[tuple[int, int, float]] = []
        """Nodes without power, in the order in which they asked for it: cluster, purchase, when commissioned."""
        self.batches, self.in_service, self.retired = ([0] * len(plan.clusters) for _ in range(3))

    def start(self) -> None:
        """Start the delivery of every cluster; by accelerator where two need the same crew or power at once."""
        if self.plan.site.block_h.size:
            self.env.process(self._energise_blocks())
        for index, cluster in sorted(
            enumerate(self.plan.clusters), key=lambda pair: self.keys[pair[0]]
        ):
            if cluster.nodes:
                self.env.process(self._arrive(index, cluster))
            if cluster.retire_h < self.plan.hours:
                self.env.process(self._retire_all(index, cluster))

    def _arrive(self, index: int, cluster: ClusterPlan) -> Steps:
        order = cluster.order
        owned = cluster.owned
        if order is None:
            yield self.env.timeout(cluster.online_h or 0.0)
            paid_h = float(self.env.now if owned is None else owned.bought_h)
            purchase = self._deliver(index, cluster.nodes, cluster.first_prices_usd, paid_h)
            self._ask_for_power(index, purchase, np.full(cluster.nodes, self.env.now))
            return
        draw = self.streams(f"supply/{self.keys[index]}")
        arrival_h = order.placed_h + order.lead_h + order.slip_h.triangular(draw)
        shares = np.diff(np.linspace(0, cluster.nodes, order.deliveries + 1).round().astype(int))
        for shipment, nodes in enumerate(shares.tolist()):
            came_h = arrival_h + shipment * order.interval_h
            if nodes and came_h >= min(cluster.retire_h, self.plan.hours):
                self.log.undelivered.append(
                    Purchase(came_h, index, nodes, cluster.prices_usd, order.placed_h)
                )
                continue
            yield self.env.timeout(max(0.0, came_h - self.env.now))
            if nodes:
                refused = draw.random(nodes) < order.acceptance_failure_fraction
                came_h = min(came_h, self.env.now)
                self.env.process(
                    self._commission(index, cluster.prices_usd, refused, came_h, order.placed_h)
                )

    def _deliver(
        self, index: int, nodes: int, prices_usd: Prices, paid_h: float, placed_h: float = np.inf
    ) -> int:
        """Record a delivery; return its index in the log."""
        self.log.purchases.append(Purchase(paid_h, index, nodes, prices_usd, placed_h))
        return len(self.log.purchases) - 1

    def _commission(
        self,
        index: int,
        prices_usd: Prices,
        refused: Bools,
        came_h: float,
        placed_h: float = np.inf,
    ) -> Steps:
        """Install a delivery and record its payment; nodes that fail acceptance return after a hard repair.

        One that came before the start was installed from then on, by crews that had nothing else to do.
        """
        site = self.plan.site
        purchase = self._deliver(index, refused.size, prices_usd, came_h, placed_h)
        with self.crews.request() as turn:
            yield turn
            rounds = np.arange(refused.size) // site.commissioning_crews + 1
            begins_h = came_h if came_h < 0 else float(self.env.now)
            ready_h = begins_h + rounds * site.commissioning_h
            ready_h[refused] += self.plan.reliability.rma_h + self.plan.reliability.repair_h[2]
            self._ask_for_power(index, purchase, np.maximum(np.sort(ready_h), 0.0))
            yield self.env.timeout(
                max(0.0, begins_h + float(rounds[-1] * site.commissioning_h) - self.env.now)
            )

    def _energise_blocks(self) -> Steps:
        """Release each power block on its date."""
        site = self.plan.site
        for time_h, (before_kw, after_kw) in zip(
            site.block_h.tolist(), pairwise([0.0, *site.block_kw]), strict=True
        ):
            if time_h > self.env.now:
                yield self.env.timeout(time_h - self.env.now)
            self.free_kw += after_kw - before_kw
            self._energise()

    def _ask_for_power(self, index: int, purchase: int, ready_h: Floats) -> None:
        """Put nodes into service once commissioned, or queue them for power where it comes in blocks."""
        if self.plan.site.block_h.size and not self.plan.clusters[index].is_hosted:
            self.waiting += [(index, purchase, time_h) for time_h in ready_h.tolist()]
            self._energise()
        else:
            self._serve(index, purchase, ready_h)

    def _energise(self) -> None:
        """Allocate free power to waiting nodes, first in first out; skip nodes too large for the rest."""
        waiting = self.waiting
        powered = dict[tuple[int, int], list[float]]()
        self.waiting = []
        for index, purchase, ready_h in waiting:
            cluster = self.plan.clusters[index]
            if self.env.now >= cluster.retire_h:
                continue
            if cluster.nameplate_kw > self.free_kw + _SAME_KW:
                self.waiting.append((index, purchase, ready_h))
                continue
            self.free_kw -= cluster.nameplate_kw
            powered.setdefault((index, purchase), []).append(max(float(self.env.now), ready_h))
        for (index, purchase), times in powered.items():
            self._serve(index, purchase, np.sort(times))

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
        times, counts = np.unique(service_h[service_h < end_h], return_counts=True)
        for time_h, count in zip(times.tolist(), counts.tolist(), strict=True):
            accelerators = count * cluster.accelerators_per_node
            detail = f"batch {self.batches[index]}{', owned before the start' if aged_h else ''}"
            self.log.changes.append(
                Change(time_h, "delivered", index, accelerators, detail, purchase)
            )
        self.in_service[index] += service_h.size
        self.env.process(self._announce(self.arrived[cluster.accelerator], float(service_h[0])))
        first = self.shop.admit(index, service_h)
        chance = (end_h, self.streams, self.keys[index])
        failures = draw_failures(self.plan.reliability, cluster, service_h + aged_h, first, *chance)
        self.shop.expect(index, failures.where(failures.time_h >= service_h[failures.node - first]))
        if cluster.rent is not None and cluster.rent.interruptions_per_h > 0:
            self.shop.expect(
                index, draw_interruptions(self.plan.reliability, cluster, service_h, first, *chance)
            )

    def _announce(self, arrived: simpy.Event, time_h: float) -> Steps:
        """Signal that the first nodes of an accelerator are in service."""
        if not arrived.triggered:
            yield self.env.timeout(max(0.0, time_h - self.env.now))
            if not arrived.triggered:  # another cluster's may have come in the meantime
                arrived.succeed()

    def expand(self, index: int, nodes: int, arrival_h: float, prices_usd: Prices) -> None:
        """Schedule the arrival of further ordered nodes of a cluster, at a price each.

        Those of a provider serve as they come: they were commissioned long ago.
        """

        def arrive() -> Steps:
            yield self.env.timeout(arrival_h - self.env.now)
            if self.env.now >= self.plan.clusters[index].retire_h:
                return
            if self.plan.clusters[index].is_hosted:
                purchase = self._deliver(index, nodes, prices_usd, float(self.env.now))
                self._ask_for_power(index, purchase, np.full(nodes, float(self.env.now)))
            else:
                yield from self._commission(
                    index, prices_usd, np.zeros(nodes, dtype=bool), float(self.env.now)
                )

        self.env.process(arrive())

    def _retire_all(self, index: int, cluster: ClusterPlan) -> Steps:
        yield self.env.timeout(cluster.retire_h)
        self.retire(index, self.in_service[index])

    def retire(self, index: int, nodes: int) -> int:
        """Retire nodes for good, first in first out, and release their power; return how many."""
        arrived = [
            c.accelerators
            for c in self.log.changes
            if c.cluster == index and c.time_h <= self.env.now
        ]
        leaving = min(nodes, sum(arrived) // self.plan.clusters[index].accelerators_per_node)
        if leaving:
            self.in_service[index] -= leaving
            first = self.retired[index]
            self.retired[index] += leaving
            self.shop.work_until(float(self.env.now))  # what failed until now failed
            self.shop.drop(index, first, first + leaving, float(self.env.now))
            accelerators = -leaving * self.plan.clusters[index].accelerators_per_node
            self.log.changes.append(
                Change(float(self.env.now), "retired", index, accelerators, f"{leaving} nodes")
            )
            if not self.plan.clusters[index].is_hosted:
                self.free_kw += leaving * self.plan.clusters[index].nameplate_kw
                self._energise()
        return leaving


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFigures:
    """How one finished month went, as the review and processes see it."""

    utilisation: Mapping[str, float]
    """By cluster; 0 where none is in service."""
    shed_fraction: float
    """Tokens shed over tokens asked for."""
    missed_fraction: float
    """Requests late or shed over those settled: what is missing from 1 of those in time."""


NOT_LOOKED_AT = MonthFigures(utilisation={}, shed_fraction=np.nan, missed_fraction=np.nan)
"""A month of a run in which every rule goes by demand alone."""


class Review:
    """The monthly expansion review, with the figures of finished months and its orders so far.

    ``requests`` are the run's demand, shape (workloads, hours): of it a review reads the months that have ended.
    """

    def __init__(self, plan: Plan, supply: Supply, requests: Floats) -> None:
        self.plan = plan
        self.supply = supply
        enlarged = {rule.cluster for rule in plan.expansion.rules if rule.forecasts}
        self.peaks = {c: orders.peak_needs(plan, c, requests) for c in enlarged}
        self.worths = {c: orders.worths(plan, c, requests) for c in enlarged}
        self.history: list[MonthFigures] = []
        self.spent_usd = 0.0
        self.ordered = [cluster.nodes for cluster in plan.clusters]
        self.orders = [0] * len(plan.clusters)
        """By cluster, how many were placed."""
        self.acted = [-(10**6)] * len(plan.expansion.rules)

    def close_month(self, figures: MonthFigures) -> None:
        """Add a finished month and act on the rules whose conditions are met at its end."""
        self.history.append(figures)
        month = len(self.history)
        now_h = float(self.plan.month_edges_h[month])
        for index, rule in enumerate(self.plan.expansion.rules):
            ready = month >= rule.months and month - self.acted[index] > rule.cooldown_months
            ready &= month in rule.windows
            if ready and self._held(rule) == rule.months and self._act(rule, now_h):
                self.acted[index] = month

    def _held(self, rule: RulePlan) -> int:
        """Return for how many last months in a row a rule's condition was met, at most the number it requires."""
        recent = self.history[: -rule.months - 1 : -1]
        what, _, how = rule.when.rpartition("_")
        if rule.forecasts:
            return rule.months  # the order itself says whether there is a need
        for number, past in enumerate(recent):
            share = past.shed_fraction if what == "shed" else past.missed_fraction
            share = (
                past.utilisation[self.plan.clusters[rule.watched].name]
                if what == "utilisation"
                else share
            )
            if not (share < rule.threshold if how == "below" else share > rule.threshold):
                return number
        return len(recent)

    def unmoved_until_h(self) -> float:
        """Return the hour before which no coming review can change the fleet.

        A rule acts at the earliest in its first window after its months are complete and its rest is over, and an order
        comes its lead time and least slip after that; one that has bought all it may, or all there is power for, does
        not until nodes retire, and one that has retired all there were not until some are bought. A cluster that
        retires changes what the site has power for, and so what a review may buy.
        """
        month = len(self.history)
        edges_h = self.plan.month_edges_h
        retirements_h = [c.retire_h for c in self.plan.clusters if c.retire_h >= edges_h[month]]
        for acted, rule in zip(self.acted, self.plan.expansion.rules, strict=True):
            retires = rule.when == "utilisation_below"
            to_retire = self.supply.retired[rule.cluster] < self.ordered[rule.cluster]
            soonest = month + max(
                1, rule.months - self._held(rule), acted + rule.cooldown_months + 1 - month
            )
            soonest = next((month for month in rule.windows if month >= soonest), edges_h.size)
            if soonest < edges_h.size and (to_retire if retires else self._may_buy(rule)):
                lead_h = rule.lead_h + (rule.slip_h.low if rule.slip_h else 0.0)
                retirements_h.append(float(edges_h[soonest]) + (0.0 if retires else lead_h))
        return min(retirements_h, default=math.inf)

    def _may_buy(self, rule: RulePlan) -> float:
        """Return the nodes that a rule may buy within its own limit and the site's power: a lot, or most; 0 for none.

        The site must be able to run all its nodes and these at full load, and have blocks for their nameplate: nodes
        that only lower clocks would make room for add their cost and next to no work. What is at a provider's takes
        none of it.
        """
        nodes = [
            owned - gone for owned, gone in zip(self.ordered, self.supply.retired, strict=True)
        ]
        bought = self.plan.clusters[rule.cluster]
        site = self.plan.site
        ceiling = rule.max_nodes - nodes[rule.cluster]
        room = math.inf
        if not bought.is_hosted:
            here = [
                (n, cluster)
                for n, cluster in zip(nodes, self.plan.clusters, strict=True)
                if not cluster.is_hosted
            ]
            full_kw = (
                site.most_it_kw
                + _SAME_KW
                - sum(count * cluster.node_power.full_kw for count, cluster in here)
            )
            block_kw = min([self.plan.expansion.it_power_cap_kw, *site.block_kw[-1:].tolist()])
            nameplate_kw = (
                block_kw + _SAME_KW - sum(count * cluster.nameplate_kw for count, cluster in here)
            )
            room = min(full_kw / bought.node_power.full_kw, nameplate_kw / bought.nameplate_kw)
        if rule.forecasts:
            most = min(rule.max_nodes_per_order, ceiling, room)
            return most if most >= rule.nodes else 0
        lot = min(rule.nodes, ceiling)
        return max(lot, 0) if lot <= room else 0

    def _act(self, rule: RulePlan, now_h: float) -> bool:
        if rule.when == "utilisation_below":
            return self.supply.retire(rule.cluster, rule.nodes) > 0
        cluster = self.plan.clusters[rule.cluster]
        expansion = self.plan.expansion
        left_usd = expansion.budget_usd - self.spent_usd
        price_factor = (1.0 + expansion.price_change_per_year) ** (
            now_h / HOURS_PER_YEAR
        )  # agreed with the order
        nodes, why = (
            self._forecast_order(rule) if rule.forecasts else (int(self._may_buy(rule)), "")
        )
        while nodes > 0:
            prices = cluster.order_prices_usd(now_h, nodes, price_factor)
            if nodes * sum(prices) <= left_usd:
                break
            # What the budget has no room for: all of a lot, or as many steps; fewer nodes may cost more each.
            steps = (
                min(nodes // rule.nodes - 1, int(left_usd / sum(prices) / rule.nodes))
                if rule.forecasts
                else 0
            )
            nodes = steps * rule.nodes
        else:
            return False
        self.ordered[rule.cluster] += nodes
        self.spent_usd += nodes * sum(prices)
        self.orders[rule.cluster] += 1
        key = self.supply.keys[rule.cluster]
        late_h = orders.slip_h(rule.slip_h, self.supply.streams, key, self.orders[rule.cluster])
        self.supply.expand(rule.cluster, nodes, now_h + rule.lead_h + late_h, prices)
        if why:
            text = f"{counted(nodes, 'node')} ordered: {why}"
            self.supply.log.notes.append(Note(now_h, "review", text, cluster.name))
        return True

    def _forecast_order(self, rule: RulePlan) -> tuple[int, str]:
        """Return the nodes that bring the forecast load to a rule's target, within all limits but budget, and why."""
        month = len(self.history)
        by_h = orders.looks_to_h(self.plan, month, rule.forecast_months)
        if self.plan.clusters[rule.cluster].retire_h <= by_h:
            return 0, ""
        seen = (self.peaks[rule.cluster][:month], rule.forecast_months, rule.growth_per_year)
        forecast = orders.forecast_peak(*seen)
        error = orders.forecast_log_error(*seen)
        bought = np.array(self.ordered) - [cluster.nodes for cluster in self.plan.clusters]
        installed = orders.installed_nodes(
            self.plan, by_h, bought, np.array(self.supply.retired), self.worths[rule.cluster]
        )
        nodes = orders.order_up_to(
            forecast, installed, rule.threshold, rule.target, rule.nodes, self._may_buy(rule)
        )
        doubt = "" if np.isnan(error) else f" (standard error {np.expm1(error):.0%})"
        return int(
            nodes
        ), f"peak of {forecast:.1f} nodes{doubt} forecast, {installed:.1f} installed and on order"
