"""The monthly review: rules that buy, rent or retire nodes on what finished months show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.engine.supply import Supply
from planner.plan.plan import Plan, RulePlan
from planner.units import HOURS_PER_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFigures:
    """What the review sees of one finished month."""

    utilisation: tuple[float, ...]
    """By cluster; 0 where none is in service."""
    shed_fraction: float
    """Tokens shed over tokens asked for."""
    missed_fraction: float
    """Requests late or shed over those settled: what is missing from 1 of those in time."""


class Review:
    """Remembers finished months and what has been bought."""

    def __init__(self, plan: Plan, supply: Supply) -> None:
        self.plan = plan
        self.supply = supply
        self.history: list[MonthFigures] = []
        self.spent_usd = 0.0
        self.ordered = [cluster.nodes for cluster in plan.clusters]
        self.acted = [-(10**6)] * len(plan.expansion.rules)

    def close_month(self, figures: MonthFigures) -> None:
        """Look at a finished month and act on the rules it completes, as of its end."""
        self.history.append(figures)
        month = len(self.history)
        now_h = float(self.plan.month_edges_h[month])
        for index, rule in enumerate(self.plan.expansion.rules):
            ready = month >= rule.months and month - self.acted[index] > rule.cooldown_months
            if ready and self._held(rule) == rule.months and self._act(rule, now_h):
                self.acted[index] = month

    def _held(self, rule: RulePlan) -> int:
        """Return for how many of the last months a rule has held in a row, at most as many as it asks for."""
        recent = self.history[: -rule.months - 1 : -1]
        return next((number for number, past in enumerate(recent) if not self._holds(rule, past)), len(recent))

    def unmoved_until_h(self) -> float:
        """Return until when no review to come can change the fleet, whatever the months until then show.

        A rule acts at the earliest when its months are complete and its rest is over, and an order comes its lead time
        after that; one that has bought all it may, or all there is power for, does not until nodes retire, and one that
        has retired all there were not until some are bought. A cluster that retires changes what the site has power
        for, and so what a review may buy.
        """
        month, edges_h = len(self.history), self.plan.month_edges_h
        retirements_h = [c.retire_h for c in self.plan.clusters if c.retire_h >= edges_h[month]]
        for acted, rule in zip(self.acted, self.plan.expansion.rules, strict=True):
            if not self._may_act(rule):
                continue
            soonest = month + max(1, rule.months - self._held(rule), acted + rule.cooldown_months + 1 - month)
            if soonest < edges_h.size:
                retirements_h.append(
                    float(edges_h[soonest]) + (0.0 if rule.when == "utilisation_below" else rule.lead_h)
                )
        return min(retirements_h, default=math.inf)

    @staticmethod
    def _holds(rule: RulePlan, figures: MonthFigures) -> bool:
        match rule.when:
            case "utilisation_above":
                return figures.utilisation[rule.watched] > rule.threshold
            case "utilisation_below":
                return figures.utilisation[rule.watched] < rule.threshold
            case "shed_above":
                return figures.shed_fraction > rule.threshold
            case _:
                return figures.missed_fraction > rule.threshold

    def _has_power(self, index: int, more: int) -> bool:
        """Say whether the site can run all its nodes and some more at full load, and has blocks for their nameplate.

        Nodes that only lower clocks would make room for are not bought: they add their cost and next to no work. What
        is at a provider's takes none of it.
        """
        site, clusters = self.plan.site, self.plan.clusters
        if clusters[index].is_hosted:
            return True
        nodes = [owned - gone for owned, gone in zip(self.ordered, self.supply.retired, strict=True)]
        nodes[index] += more
        here = [(count, cluster) for count, cluster in zip(nodes, clusters, strict=True) if not cluster.is_hosted]
        full_kw = sum(count * cluster.node_power.full_kw for count, cluster in here)
        nameplate_kw = sum(count * cluster.nameplate_kw for count, cluster in here)
        within = nameplate_kw <= self.plan.expansion.power_envelope_kw and full_kw <= site.most_it_kw
        return within and (not site.block_kw.size or nameplate_kw <= site.block_kw[-1])

    def _may_act(self, rule: RulePlan) -> bool:
        """Say whether there is anything for a rule to do, should it hold: nodes to retire, or to buy."""
        if rule.when == "utilisation_below":
            return self.supply.retired[rule.cluster] < self.ordered[rule.cluster]
        return self._may_buy(rule) > 0

    def _may_buy(self, rule: RulePlan) -> int:
        """Return the nodes that a rule may buy by its own limit and the site's power; 0 for none."""
        there = self.ordered[rule.cluster] - self.supply.retired[rule.cluster]
        nodes = int(min(rule.nodes, rule.most_nodes - there))
        return nodes if nodes > 0 and self._has_power(rule.cluster, nodes) else 0

    def _act(self, rule: RulePlan, now_h: float) -> bool:
        if rule.when == "utilisation_below":
            return self.supply.retire(rule.cluster, rule.nodes) > 0
        cluster, expansion = self.plan.clusters[rule.cluster], self.plan.expansion
        nodes = self._may_buy(rule)
        if not nodes:
            return False
        price_factor = (1.0 + expansion.price_change_per_year) ** (now_h / HOURS_PER_YEAR)  # agreed with the order
        prices = cluster.order_prices_usd(now_h, nodes, price_factor)
        cost = nodes * sum(prices)
        if self.spent_usd + cost > expansion.budget_usd:
            return False
        self.ordered[rule.cluster] += nodes
        self.spent_usd += cost
        self.supply.expand(rule.cluster, nodes, now_h + rule.lead_h, prices)
        return True
