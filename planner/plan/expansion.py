"""Expansion rules, compiled: when each may act, and how many nodes it may order."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from planner.finance.months import MonthGrid
from planner.plan.distributions import ThreePoint
from planner.records import record
from planner.scenario.scenario import Rule, Scenario
from planner.units import HOURS_PER_WEEK, HOURS_PER_YEAR, MONTHS_PER_YEAR


@record
class RulePlan:
    """A rule that buys, rents or retires nodes once a condition has lasted some months, or by a forecast."""

    when: str
    threshold: float
    target: float
    """Load that an order by forecast brings the peak down to."""
    months: int
    watched: int
    """Cluster whose utilisation counts."""
    cluster: int
    """Cluster that is enlarged or reduced."""
    nodes: int
    max_nodes: float
    """Of the cluster at once; infinity for no ceiling."""
    max_nodes_per_order: float
    windows: tuple[int, ...]
    """Months at whose ends it may act, counted from 1, rising."""
    lead_h: float
    slip_h: ThreePoint | None
    cooldown_months: int
    forecast_months: int
    """After the review; and the growth expected before any is seen."""
    growth_per_year: float

    @property
    def forecasts(self) -> bool:
        """Whether it orders up to a forecast; the others order a fixed number."""
        return self.when == "forecast_load_above"


@record
class ExpansionPlan:
    """The monthly expansion review: its rules, budget and limits."""

    rules: tuple[RulePlan, ...]
    budget_usd: float
    it_power_cap_kw: float
    price_change_per_year: float


_FORECAST_MARGIN_MONTHS = 3
"""Months that a forecast looks beyond the lead time where nothing is stated."""


def expansion_plan(scenario: Scenario, months: MonthGrid) -> ExpansionPlan:
    """Compile the monthly expansion review."""
    stated = scenario.expansion
    names = list(scenario.clusters)
    return ExpansionPlan(
        rules=tuple(_rule_plan(rule, names, months) for rule in stated.rules),
        budget_usd=np.inf if stated.budget_usd is None else stated.budget_usd,
        it_power_cap_kw=np.inf if stated.it_power_cap_kw is None else stated.it_power_cap_kw,
        price_change_per_year=stated.price_change_per_year,
    )


def _rule_plan(rule: Rule, names: list[str], months: MonthGrid) -> RulePlan:
    """Compile one rule; what it does not state depends on whether it orders by forecast."""
    lead_h = rule.lead_weeks * HOURS_PER_WEEK
    lead_months = math.ceil(lead_h * MONTHS_PER_YEAR / HOURS_PER_YEAR)
    # A forecast counts what is on order, so it may act again at once; a threshold would order twice.
    cooldown_months = 0 if rule.forecasts else 3
    if rule.cooldown_months is not None:
        cooldown_months = rule.cooldown_months
    return RulePlan(
        when=rule.when,
        threshold=rule.threshold_fraction,
        target=rule.target_fraction or rule.threshold_fraction,
        months=rule.months or (1 if rule.forecasts else 2),
        watched=names.index(rule.watch or rule.cluster),
        cluster=names.index(rule.cluster),
        nodes=rule.nodes,
        # Infinity in place of None, so that limits compare as numbers.
        max_nodes=rule.max_nodes or np.inf,
        max_nodes_per_order=rule.max_nodes_per_order or np.inf,
        windows=_review_months(rule, months),
        lead_h=lead_h,
        slip_h=ThreePoint.of(rule.slip_weeks, HOURS_PER_WEEK) if rule.slip_weeks else None,
        cooldown_months=cooldown_months,
        forecast_months=rule.forecast_months or lead_months + _FORECAST_MARGIN_MONTHS,
        growth_per_year=rule.growth_per_year,
    )


def _review_months(rule: Rule, months: MonthGrid) -> tuple[int, ...]:
    """Return the months at whose ends a rule may act, counted from 1."""
    if isinstance(rule.windows, str):
        step = 1 if rule.windows == "monthly" else 3
        return tuple(range(step, len(months.edges), step))
    # Several days before the same review make one of it, and the horizon's end is no review.
    reviews = {max(1, bisect_left(months.edges, day)) for day in rule.windows}
    within_horizon = [month for month in reviews if month < len(months.edges)]
    return tuple(sorted(within_horizon))
