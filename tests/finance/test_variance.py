"""Variances by cause: worked by hand, and summing to the cent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.finance.accounts import Account
from planner.finance.variance import ARRIVED, account_variance

QUANTITIES = {"served_tokens": (100.0, 120.0), "energy_kwh": (50.0, 66.0), "accelerators_in_service": (10.0, 10.0)}


def test_energy_by_volume_efficiency_and_price() -> None:
    """1,000 USD = 100 tokens · 0.5 kWh · 20 USD becomes 1,584 = 120 · 0.55 · 24.

    Shapley's value of a product of three, by hand: volume (120 − 100)·[(0.5·20 + 0.55·24)/3 + (0.5·24 + 0.55·20)/6].
    """
    found = account_variance(Account.ENERGY, (100_000, 158_400), 100_000, QUANTITIES)
    assert found == {"volume": 23_133, "efficiency": 12_133, "price": 23_134}  # the cent of rounding with the largest
    assert sum(found.values()) == 58_400


def test_a_quantity_not_seen_leaves_its_part_unexplained() -> None:
    seen = {"served_tokens": (100.0, 120.0)}
    found = account_variance(Account.ENERGY, (100_000, 158_400), 100_000, seen)
    assert found == {"volume": 23_200, "unexplained": 35_200}  # 20 tokens at the mean of 1,000 and 1,320 cents
    assert account_variance(Account.ENERGY, (100_000, 158_400), 100_000, {}) == {"unexplained": 58_400}


def test_a_rate_alone_is_price() -> None:
    assert account_variance(Account.MAINTENANCE, (1_000, 1_300), 9_000, QUANTITIES) == {"price": 300}


def test_a_purchase_is_timing_as_far_as_machines_have_not_come() -> None:
    late = {ARRIVED: (10.0, 6.0)}
    assert account_variance(Account.CAPEX_HOSTS, (1_000, 660), 1_000, late) == {"timing": -400, "price": 60}
    early = account_variance(Account.CAPEX_HOSTS, (0, 1_200), 1_000, {})
    assert early == {"timing": 1_000, "price": 200}
    assert account_variance(Account.CAPEX_HOSTS, (1_000, 660), 1_000, {}) == {"unexplained": -340}


@settings(max_examples=30)
@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.sampled_from(sorted(Account)))
def test_causes_sum_to_the_difference(budget: int, actual: int, account: Account) -> None:
    quantities = {**QUANTITIES, ARRIVED: (10.0, 7.0), "peak_facility_kw": (5.0, 4.0)}
    assert sum(account_variance(account, (budget, actual), 2 * budget, quantities).values()) == actual - budget
