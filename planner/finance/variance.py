"""Why an amount is not what was planned: the difference in whole cents, by cause, summing to it exactly.

An amount is a product: of what was served, of what that took, and of what it was paid:

    amount = quantity · (driver / quantity) · (amount / driver)
             volume     efficiency            price

Each cause switches its factor from the plan's to what happened, and the Shapley value shares what they do jointly
(:func:`planner.finance.bridge.shapley_bridge`). What is bought on a date is timing as far as the plan holds it in
another month.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import copysign, prod
from types import MappingProxyType

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
    factors = [(own[0] / before[0], own[1] / before[1]) for before, own in pairwise(ends)]
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
