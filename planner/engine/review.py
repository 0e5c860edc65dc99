"""The monthly review: rules that order or retire nodes, by how finished months went or by forecast demand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from planner.arrays import Floats
from planner.engine import orders
from planner.engine.log import Note
from planner.engine.supply import Supply
from planner.plan.expansion import RulePlan
from planner.plan.plan import Plan
from planner.records import record
from planner.units import HOURS_PER_YEAR, counted


@record
class MonthFigures:
    """How one finished month went, as the review and processes see it."""

    utilisation: Mapping[str, float]
    """By cluster; 0 where none is in service."""
    shed_fraction: float
    """Tokens shed over tokens asked for."""
    missed_fraction: float
    """Requests late or shed over those settled: 1 − SLO attainment."""


NOT_LOOKED_AT = MonthFigures(utilisation={}, shed_fraction=np.nan, missed_fraction=np.nan)
"""A month of a run in which every rule goes by demand alone."""
_NO_ACTION = -(10**6)
"""The month of a rule's last action where it has not acted: longer ago than any rest."""


class Review:
    """The monthly expansion review, with the figures of finished months and its orders so far.

    ``requests`` are the run's demand, shape (workloads, hours): of it a review reads the months that have ended.
    """

    def __init__(self, plan: Plan, supply: Supply, requests: Floats) -> None:
        self.plan = plan
        self.supply = supply
        # Worked out once for all months; a month reads only what has ended by then.
        enlarged = {rule.cluster for rule in plan.expansion.rules if rule.forecasts}
        self.peaks = {}
        self.node_values = {}
        for c in enlarged:
            self.peaks[c] = orders.peak_needs(plan, c, requests)
            self.node_values[c] = orders.node_values(plan, c, requests)
        self.history: list[MonthFigures] = []
        self.spent_usd = 0.0
        self.ordered = [cluster.nodes for cluster in plan.clusters]
        """By cluster, the nodes stated and ordered so far."""
        self.orders = [0] * len(plan.clusters)
        """By cluster, how many were placed."""
        self.action_month = [_NO_ACTION] * len(plan.expansion.rules)
        """By rule, the month of its last action."""

    def close_month(self, figures: MonthFigures) -> None:
        """Add a finished month and act on the rules whose conditions are met at its end."""
        self.history.append(figures)
        month = len(self.history)
        now_h = float(self.plan.month_edges_h[month])
        # In the order stated: a rule sees what those before it have ordered and spent.
        for index, rule in enumerate(self.plan.expansion.rules):
            rest_months = month - self.action_month[index]
            is_rested = rest_months > rule.cooldown_months
            is_open = month >= rule.months and month in rule.windows
            if not (is_rested and is_open):
                continue
            is_met = self._months_met(rule) == rule.months
            if is_met and self._act(rule, now_h):
                self.action_month[index] = month

    def _months_met(self, rule: RulePlan) -> int:
        """Return for how many last months in a row a rule's condition was met, at most the number it requires."""
        if rule.forecasts:
            return rule.months  # the order itself says whether there is a need
        # Latest first: the count ends at the first month that did not meet it.
        recent = self.history[: -rule.months - 1 : -1]
        for count, figures in enumerate(recent):
            if not self._is_met(rule, figures):
                return count
        return len(recent)

    def _is_met(self, rule: RulePlan, figures: MonthFigures) -> bool:
        """Return whether a month's figure is on the rule's side of its threshold."""
        measure, _, side = rule.when.rpartition("_")
        if measure == "utilisation":
            cluster = self.plan.clusters[rule.watched]
            share = figures.utilisation[cluster.name]
        elif measure == "shed":
            share = figures.shed_fraction
        else:
            share = figures.missed_fraction
        if side == "below":
            return share < rule.threshold
        return share > rule.threshold

    def unmoved_until_h(self) -> float:
        """Return the hour before which no coming review can change the fleet.

        A rule acts at the earliest in its first window after its months are complete and its rest is over, and an order
        comes its lead time and least slip after that; one that has bought all it may, or all there is power for, does
        not until nodes retire, and one that has retired all there were not until some are bought. A cluster that
        retires changes what the site has power for, and so what a review may buy.
        """
        month = len(self.history)
        edges_h = self.plan.month_edges_h
        # Retirements by date free power, and with it what a rule may buy.
        retirements_h = [cluster.retire_h for cluster in self.plan.clusters]
        effects_h = [time_h for time_h in retirements_h if time_h >= edges_h[month]]
        rules = self.plan.expansion.rules
        for action_month, rule in zip(self.action_month, rules, strict=True):
            until_met = rule.months - self._months_met(rule)
            until_rested = action_month + rule.cooldown_months + 1 - month
            # At the earliest at the end of the month that runs.
            ready = month + max(1, until_met, until_rested)
            reviews = [window for window in rule.windows if window >= ready]
            # Windows rise; one at or beyond the end of the horizon changes nothing in it.
            if not reviews or reviews[0] >= edges_h.size:
                continue
            review_h = float(edges_h[reviews[0]])
            if rule.when == "utilisation_below":
                if self.supply.retired[rule.cluster] < self.ordered[rule.cluster]:
                    effects_h.append(review_h)
            elif self._may_buy(rule):
                least_slip_h = rule.slip_h.low if rule.slip_h else 0.0
                effects_h.append(review_h + (rule.lead_h + least_slip_h))
        return min(effects_h, default=math.inf)

    def _may_buy(self, rule: RulePlan) -> float:
        """Return the nodes that a rule may buy within its limit and the site's power: a lot, a limit, or 0."""
        plan = self.plan
        owned_nodes = np.array(self.ordered) - np.array(self.supply.retired)
        owned = owned_nodes[rule.cluster]
        cap_kw = plan.expansion.it_power_cap_kw
        power = orders.PowerRoom(plan, rule.cluster, cap_kw).beside(owned_nodes)
        if rule.forecasts:
            room = orders.order_room(
                rule.max_nodes, rule.max_nodes_per_order, owned, power, rule.nodes
            )
            return float(room)
        # A lot comes as a whole or not at all where power is short, but may be cut by the rule's own limit.
        lot = min(rule.nodes, rule.max_nodes - owned)
        return max(lot, 0) if lot <= power else 0

    def _act(self, rule: RulePlan, now_h: float) -> bool:
        """Retire or order nodes by a rule; return whether there were any."""
        if rule.when == "utilisation_below":
            return self.supply.retire(rule.cluster, rule.nodes) > 0
        if rule.forecasts:
            nodes, reason = self._forecast_order(rule)
        else:
            nodes = int(self._may_buy(rule))
            reason = ""
        nodes, prices_usd = self._within_budget(rule, nodes, now_h)
        if not nodes:
            return False
        self.ordered[rule.cluster] += nodes
        self.spent_usd += nodes * sum(prices_usd)
        # Counted before the slip is drawn: the n-th order of a cluster slips by the same in every run.
        self.orders[rule.cluster] += 1
        key = self.supply.keys[rule.cluster]
        number = self.orders[rule.cluster]
        delay_h = orders.slip_h(rule.slip_h, self.supply.streams, key, number)
        arrival_h = now_h + rule.lead_h + delay_h
        self.supply.expand(rule.cluster, nodes, now_h, arrival_h, prices_usd)
        if reason:
            text = f"{counted(nodes, 'node')} ordered: {reason}"
            name = self.plan.clusters[rule.cluster].name
            note = Note(now_h, "review", text, name)
            self.supply.log.notes.append(note)
        return True

    def _within_budget(
        self, rule: RulePlan, nodes: int, now_h: float
    ) -> tuple[int, tuple[float, ...]]:
        """Return the nodes of an order that the rest of the budget pays for, and a node's prices; a lot as a whole."""
        expansion = self.plan.expansion
        rest_usd = expansion.budget_usd - self.spent_usd
        # Agreed with the order, whenever it comes.
        years = now_h / HOURS_PER_YEAR
        price_factor = (1.0 + expansion.price_change_per_year) ** years
        cluster = self.plan.clusters[rule.cluster]
        if rule.forecasts:
            return orders.affordable_order(
                cluster, nodes, rule.nodes, rest_usd, now_h, price_factor
            )
        if not nodes:
            return 0, ()
        prices_usd = cluster.order_prices_usd(now_h, nodes, price_factor)
        return (nodes, prices_usd) if nodes * sum(prices_usd) <= rest_usd else (0, ())

    def _forecast_order(self, rule: RulePlan) -> tuple[int, str]:
        """Return the nodes that bring the forecast load to a rule's target, within all limits but budget, and why."""
        month = len(self.history)
        by_h = orders.forecast_hour(self.plan, month, rule.forecast_months)
        if self.plan.clusters[rule.cluster].retire_h <= by_h:
            return 0, ""
        peaks = self.peaks[rule.cluster][:month]
        ahead_months = rule.forecast_months
        forecast = orders.forecast_peak(peaks, ahead_months, rule.growth_per_year)
        log_error = orders.forecast_log_error(peaks, ahead_months, rule.growth_per_year)
        # What rules have ordered counts from the order on, also before it comes: else it would be ordered twice.
        stated_nodes = [cluster.nodes for cluster in self.plan.clusters]
        bought = np.array(self.ordered) - stated_nodes
        retired = np.array(self.supply.retired)
        node_value = self.node_values[rule.cluster]
        installed = orders.installed_nodes(self.plan, by_h, bought, retired, node_value)
        max_nodes = self._may_buy(rule)
        nodes = orders.order_up_to(
            forecast, installed, rule.threshold, rule.target, rule.nodes, max_nodes
        )
        error = ""
        if not np.isnan(log_error):
            error = f" (standard error {np.expm1(log_error):.0%})"
        need = f"peak of {forecast:.1f} nodes{error} forecast"
        return int(nodes), f"{need}, {installed:.1f} installed and on order"
