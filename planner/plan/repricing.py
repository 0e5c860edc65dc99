"""Plans that differ in money alone: they share one simulation, and the money is compiled anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.finance.pricing import money_plan
from planner.plan.clusters import cluster_plan
from planner.plan.plan import Plan
from planner.plan.reuse import Reuse
from planner.plan.site import site_plan
from planner.scenario.scenario import Scenario

MONEY_FIELDS = {
    "money",
    "warnings",
    "notes",
    "prices_usd",
    "leased_prices_usd",
    "price_book",
    "lease",
    "prices",
    "book_value_usd",
    "remaining_months",
    "overhead_ratio",
    "fixed_fraction",
    "usd_per_accelerator_h",
    "exit_usd_per_accelerator",
    "bound_usd_per_accelerator",
    "term_usd_per_h",
}
"""Fields of a plan and its parts that no simulation reads, beyond what :func:`_deciding_money` returns."""


def repriced(plan: Plan, scenario: Scenario, reuse: Reuse) -> Plan:
    """Return a plan with the money of a scenario that differs in nothing else: prices, contracts, tariffs, PUE.

    A sixth of the work of compiling it whole; where :func:`same_machines` holds of both, the result is the same.
    """
    clusters = []
    for cluster in plan.clusters:
        # Compiled without services, whose figures are those of before.
        compiled = cluster_plan(scenario, cluster.name, {}, plan.months, reuse)
        clusters.append(
            dataclasses.replace(
                compiled,
                node_power=cluster.node_power,
                group_accelerators=cluster.group_accelerators,
            )
        )
    fleet = tuple(clusters)
    money = money_plan(scenario, reuse.catalog, fleet, plan.months, plan.requests_per_node_h)
    # Burst rental is the plan's own: what it costs moves nothing, and it hangs on services.
    market = dataclasses.replace(money.market, burst=plan.money.market.burst)
    return dataclasses.replace(
        plan,
        clusters=fleet,
        money=dataclasses.replace(money, market=market),
        site=site_plan(scenario, fleet, plan.hours),
    )


def same_machines(plan: Plan, other_plan: Plan) -> bool:
    """Return whether two plans have the same simulation for the same seed and differ at most in money."""
    money = _deciding_money(plan)
    other_money = _deciding_money(other_plan)
    return _is_same(plan, other_plan) and _is_same(money, other_money)


def _deciding_money(plan: Plan) -> list[object]:
    """Return the money by which a plan's simulation decides.

    Rent by the hour orders clusters, orders by rule or process are bounded by their prices, and a cap on what the
    site draws is one on IT power by way of PUE. What burst rental costs moves nothing, and is not compiled anew.
    """
    orders = plan.expansion.rules or plan.processes
    burst = plan.money.market.burst
    figures: list[object] = [burst]
    for cluster in plan.clusters:
        if cluster.rent is not None and cluster.is_paid_by_the_hour:
            figures.append(cluster.rent.usd_per_accelerator_h)
        if orders:
            figures += [cluster.prices_usd, cluster.price_book]
    if burst:
        figures.append(burst.hourly.usd_per_accelerator_h)
    if orders or plan.site.cap_kw is not None:
        figures += [plan.site.overhead_ratio, plan.site.fixed_fraction]
    return figures


def _is_same(part: Any, other_part: Any) -> bool:
    """Return whether two parts of plans are equal to the last bit, money aside."""
    # Plans of one study share most of their parts, so this ends most comparisons.
    if part is other_part:
        return True
    if type(part) is not type(other_part):
        return False
    if isinstance(part, np.ndarray):
        # By bytes: NaN stands for what is unknown, and is not equal to itself.
        if part.shape != other_part.shape:
            return False
        return bool(part.tobytes() == other_part.tobytes())
    if dataclasses.is_dataclass(part):
        names = [field.name for field in dataclasses.fields(part)]
        return all(
            name in MONEY_FIELDS or _is_same(getattr(part, name), getattr(other_part, name))
            for name in names
        )
    if isinstance(part, Mapping):
        return _is_same(list(part.items()), list(other_part.items()))
    if isinstance(part, tuple | list):
        return len(part) == len(other_part) and all(map(_is_same, part, other_part))
    return bool(part == other_part)
