"""Why an amount is not what was planned: the difference in whole cents, by cause, summing to it exactly.

An amount is a product: of what was served, of what that took, and of what it was paid:

    amount = quantity · (driver / quantity) · (amount / driver)
             volume     efficiency            price

Each cause switches its factor from the plan's to what happened, and the Shapley value shares what they do jointly
(:func:`planner.finance.bridge.shapley_bridge`). What is bought on a date is timing as far as the plan holds it in
another month.

Two plans' accrued costs are held against each other in the same way (:func:`dollar_bridge`):

    cost = tokens · (machines / tokens) · hours on site · Σ mix · (USD / h + kWh / h · USD / kWh) + missed work
           volume   efficiency            timing            mix    price   effic.   price         efficiency

with hours on site of a machine on average, and the sum over clusters by their share of all machines' hours. The books'
own choices (life, method, residual) are no price: what they move is found by writing the same run's books by the other
plan's rules, and stands apart as policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import copysign, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from planner.errors import ConservationError
from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.bridge import shapley_bridge

CAUSES = ("volume", "efficiency", "price", "timing", "unexplained")
CAUSE_MEANINGS = {
    "volume": "More or less was served, or more or fewer machines were in service.",
    "efficiency": "The same work took more or less of what is paid for: kWh of a token.",
    "price": "A unit of it cost more or less: a kWh, a token sold, a machine's month.",
    "timing": "The plan has it in another month.",
    "unexplained": "What was seen does not tell volume from price: the quantity behind it is not among the actuals.",
}
_POWER, _MACHINES = ("served_tokens", "energy_kwh"), ("accelerators_in_service",)
DRIVERS: Mapping[Account, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(Account, _MACHINES)
    | dict.fromkeys((Account.ENERGY, Account.COOLING, Account.CARBON), _POWER)
    | {
        Account.REVENUE: ("served_tokens",),
        Account.DEMAND_CHARGE: ("peak_facility_kw",),
        Account.SLA_CREDITS: ("demand_tokens",),
        Account.BURST_RENTAL: ("demand_tokens",),
    }
)
"""The fleet's quantities that an account follows, from what is served to what is paid for."""
ON_A_DATE = (*CAPEX_ACCOUNTS, Account.RESALE)
ARRIVED = "arrived"
"""Accelerators in service in the last month seen, among the quantities."""


PLAN_CAUSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "volume": ("tokens",),
        "price": ("usd_per_h", "usd_per_kwh"),
        "mix": ("mix",),
        "efficiency": ("machines_per_token", "kwh_per_h", "missed_usd_per_token"),
        "timing": ("hours",),
        "policy": (),
    }
)
"""The factors that each cause of a difference between two plans switches."""
PLAN_CAUSE_MEANINGS = {
    "volume": "More or fewer tokens are served.",
    "price": "An accelerator-hour on site costs more or less (capital, rent, space, upkeep, people), or a kWh does.",
    "mix": "More of the machines' hours are of a dearer or a cheaper cluster; also one that the other plan has not.",
    "efficiency": "A token takes more or fewer machines or kWh, or more work is missed (credits, burst rental).",
    "timing": "A machine is on site for more or fewer hours of the horizon.",
    "policy": "The books differ: life, method or residual of depreciation. No price, and no cash.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpending:
    """What a cluster is and costs over a run."""

    machines: float
    """Accelerators on site at most."""
    hours: float
    """On site, of each of them on average."""
    usd_per_h: float
    """Of an accelerator-hour on site, without what is paid by the kWh."""
    kwh_per_h: float
    usd_per_kwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A plan's accrued cost in factors."""

    cents: int
    """What they multiply to."""
    tokens: float
    missed_usd_per_token: float
    """What belongs to no cluster: credits, burst rental."""
    clusters: Mapping[str, ClusterSpending]
    """By name; only those that had machines."""


def dollar_bridge(baseline: Spending, other: Spending, policy_cents: int) -> dict[str, int] | None:
    """Return other less baseline by cause, in cents; None where one of them served nothing.

    ``other`` is kept by the baseline's books; ``policy_cents`` is what its own books add to it.
    """
    if min(baseline.tokens, other.tokens) <= 0 or not baseline.clusters or not other.clusters:
        return None
    names = list(dict.fromkeys((*baseline.clusters, *other.clusters)))
    ends = _factors(baseline, other.clusters, names), _factors(other, baseline.clusters, names)

    def usd(switched: frozenset[str]) -> float:
        f = {name: ends[cause in switched][name] for cause, of in PLAN_CAUSES.items() for name in of}
        hourly = (f["mix"] * (f["usd_per_h"] + f["kwh_per_h"] * f["usd_per_kwh"])).sum()
        return float(f["tokens"] * (f["machines_per_token"] * f["hours"] * hourly + f["missed_usd_per_token"]))

    for plan, switched in ((baseline, frozenset()), (other, frozenset(PLAN_CAUSES))):
        if not math.isclose(usd(switched) * 100, plan.cents, rel_tol=1e-9, abs_tol=1.0):
            raise ConservationError(
                f"the factors of a plan's cost give {usd(switched):.2f} USD, not {plan.cents / 100}"
            )
    parts = shapley_bridge([cause for cause in PLAN_CAUSES if cause != "policy"], lambda switched: 100 * usd(switched))
    bridge = to_the_cent(parts, other.cents - baseline.cents) | {"policy": policy_cents}
    return {cause: bridge.get(cause, 0) for cause in PLAN_CAUSES}


def _factors(plan: Spending, elsewhere: Mapping[str, ClusterSpending], names: list[str]) -> dict[str, Any]:
    """Return a plan's factors over both plans' clusters; one that it does not have costs what it costs elsewhere.

    So a cluster that only one plan has is a matter of mix, not of price.
    """
    rows = [plan.clusters.get(name) or elsewhere[name] for name in names]
    machines = np.array([plan.clusters[name].machines if name in plan.clusters else 0.0 for name in names])
    machine_h = machines * np.array([row.hours for row in rows])
    return {
        "tokens": plan.tokens,
        "machines_per_token": machines.sum() / plan.tokens,
        "missed_usd_per_token": plan.missed_usd_per_token,
        "hours": machine_h.sum() / machines.sum(),
        "mix": machine_h / machine_h.sum(),
        **{name: np.array([getattr(row, name) for row in rows]) for name in ("usd_per_h", "kwh_per_h", "usd_per_kwh")},
    }


def account_variance(
    account: Account, cents: tuple[int, int], planned_cents: int, quantities: Mapping[str, tuple[float, float]]
) -> dict[str, int]:
    """Return actual less budget by cause, in cents; causes without effect are left out.

    ``cents`` are the budget and the actual of the same months, ``planned_cents`` the plan's amount over its whole
    horizon, ``quantities`` the fleet's in the same months, planned and actual, as far as they were seen.
    """
    budget, actual = cents
    if account in ON_A_DATE:
        return _of_a_purchase(budget, actual, planned_cents, quantities.get(ARRIVED))
    drivers = DRIVERS[account]
    known = [name for name in drivers if name in quantities and min(quantities[name]) > 0]
    if not known or known[0] != drivers[0] or not budget or not actual:
        return _without_nothing({"unexplained": actual - budget})
    ends = [(1.0, 1.0), *(quantities[name] for name in known), (float(budget), float(actual))]
    factors = [(after[0] / before[0], after[1] / before[1]) for before, after in pairwise(ends)]
    causes = [
        "volume",
        *(["efficiency"] if len(known) > 1 else []),
        "price" if known == list(drivers) else "unexplained",
    ]

    def amount(switched: frozenset[str]) -> float:
        return prod(pair[cause in switched] for cause, pair in zip(causes, factors, strict=True))

    return to_the_cent(shapley_bridge(causes, amount), actual - budget)


def _of_a_purchase(budget: int, actual: int, planned_cents: int, arrived: tuple[float, float] | None) -> dict[str, int]:
    """Return timing and price of what is bought on a date.

    Machines that have arrived, over those planned by now, are what the budget would have paid for by now; the rest is
    their price. Where the plan has nothing yet, all that it holds for later came early.
    """
    if not budget:
        timing = int(copysign(min(abs(actual), abs(planned_cents)), actual))
    elif arrived is not None and arrived[0] > 0:
        timing = round(budget * (arrived[1] / arrived[0] - 1.0))
    else:
        return _without_nothing({"unexplained": actual - budget})
    return _without_nothing({"timing": timing, "price": actual - budget - timing})


def to_the_cent(parts: Mapping[str, float], total_cents: int) -> dict[str, int]:
    """Round parts to whole cents that sum to their total; what rounding leaves goes to the largest."""
    rounded = {name: round(part) for name, part in parts.items()}
    largest = max(parts, key=lambda name: abs(parts[name]))
    rounded[largest] += total_cents - sum(rounded.values())
    return _without_nothing(rounded)


def _without_nothing(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: part for name, part in parts.items() if part}
