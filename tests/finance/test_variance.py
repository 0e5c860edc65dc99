"""Variances by cause: worked by hand, and summing to the cent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.finance.bridge import (
    ARRIVED,
    PLAN_CAUSES,
    ClusterSpending,
    Spending,
    account_variance,
    dollar_bridge,
)
from planner.finance.ledger import Account

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


def _plan(tokens: float, missed: float, **clusters: tuple[float, float, float, float, float]) -> Spending:
    names = ("machines", "hours", "usd_per_h", "kwh_per_h", "usd_per_kwh")
    found = {name: ClusterSpending(**dict(zip(names, row, strict=True))) for name, row in clusters.items()}
    usd = sum(m * h * (p + w * e) for m, h, p, w, e in clusters.values()) + missed
    return Spending(cents=round(100 * usd), tokens=tokens, missed_usd_per_token=missed / tokens, clusters=found)


ONE = _plan(1e9, 0.0, h200=(10, 1000, 2.0, 1.0, 0.1))  # 21,000 USD


def test_each_cause_alone_is_the_whole_difference() -> None:
    """From 10 machines · 1,000 h · (2 USD + 1 kWh · 0.1 USD), one factor changed at a time, by hand."""
    for other, cause, cents in (
        (_plan(2e9, 0.0, h200=(20, 1000, 2.0, 1.0, 0.1)), "volume", 2_100_000),
        (_plan(1e9, 0.0, h200=(12, 1000, 2.0, 1.0, 0.1)), "efficiency", 420_000),
        (_plan(1e9, 0.0, h200=(10, 1000, 2.0, 1.5, 0.1)), "efficiency", 50_000),
        (_plan(1e9, 500.0, h200=(10, 1000, 2.0, 1.0, 0.1)), "efficiency", 50_000),
        (_plan(1e9, 0.0, h200=(10, 1100, 2.0, 1.0, 0.1)), "timing", 210_000),
        (_plan(1e9, 0.0, h200=(10, 1000, 2.5, 1.0, 0.1)), "price", 500_000),
        (_plan(1e9, 0.0, h200=(10, 1000, 2.0, 1.0, 0.2)), "price", 100_000),
        (_plan(1e9, 0.0, h200=(5, 1000, 2.0, 1.0, 0.1), b200=(5, 1000, 4.0, 1.0, 0.1)), "mix", 1_000_000),
    ):
        found = dollar_bridge(ONE, other, 0)
        assert found is not None
        assert {name: part for name, part in found.items() if part} == {cause: cents}
    assert dollar_bridge(ONE, ONE, 700) == dict.fromkeys(PLAN_CAUSES, 0) | {"policy": 700}


amounts = st.floats(0.01, 100.0)


@settings(max_examples=30)
@given(st.lists(st.tuples(amounts, amounts, amounts, amounts, amounts), min_size=3, max_size=3), st.integers(-99, 99))
def test_the_bridge_sums_to_the_cent(rows: list[tuple[float, float, float, float, float]], policy: int) -> None:
    first, second = _plan(1e6, 10.0, a=rows[0], b=rows[1]), _plan(3e6, 0.0, b=rows[2])
    found, back = dollar_bridge(first, second, policy), dollar_bridge(second, first, 0)
    assert found is not None
    assert sum(found.values()) == second.cents - first.cents + policy
    assert back is not None
    assert all(abs(back[cause] + found[cause]) <= 5 for cause in PLAN_CAUSES if cause != "policy")
