"""The bridge between two plans in dollars: worked by hand, and summing to the cent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.finance.bridge import (
    PLAN_CAUSES,
    ClusterSpending,
    Spending,
    dollar_bridge,
)


def _plan(
    tokens: float, missed: float, **clusters: tuple[float, float, float, float, float]
) -> Spending:
    names = ("machines", "hours", "usd_per_h", "kwh_per_h", "usd_per_kwh")
    found = {
        name: ClusterSpending(**dict(zip(names, row, strict=True)))
        for name, row in clusters.items()
    }
    usd = sum(m * h * (p + w * e) for m, h, p, w, e in clusters.values()) + missed
    return Spending(
        cents=round(100 * usd), tokens=tokens, missed_usd_per_token=missed / tokens, clusters=found
    )


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
        (
            _plan(1e9, 0.0, h200=(5, 1000, 2.0, 1.0, 0.1), b200=(5, 1000, 4.0, 1.0, 0.1)),
            "mix",
            1_000_000,
        ),
    ):
        found = dollar_bridge(ONE, other, 0)
        assert found is not None
        assert {name: part for name, part in found.items() if part} == {cause: cents}
    assert dollar_bridge(ONE, ONE, 700) == dict.fromkeys(PLAN_CAUSES, 0) | {"policy": 700}


amounts = st.floats(0.01, 100.0)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(amounts, amounts, amounts, amounts, amounts), min_size=3, max_size=3),
    st.integers(-99, 99),
)
def test_the_bridge_sums_to_the_cent(
    rows: list[tuple[float, float, float, float, float]], policy: int
) -> None:
    first = _plan(1e6, 10.0, a=rows[0], b=rows[1])
    second = _plan(3e6, 0.0, b=rows[2])
    found = dollar_bridge(first, second, policy)
    back = dollar_bridge(second, first, 0)
    assert found is not None
    assert sum(found.values()) == second.cents - first.cents + policy
    assert back is not None
    assert all(abs(back[cause] + found[cause]) <= 5 for cause in PLAN_CAUSES if cause != "policy")
