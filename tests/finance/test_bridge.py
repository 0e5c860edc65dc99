from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.bridge import shapley_bridge, to_the_cent


@given(
    first=st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
    ratios=st.lists(st.floats(0.5, 2), min_size=4, max_size=4),
)
def test_a_bridge_sums_to_the_whole_difference(first: list[float], ratios: list[float]) -> None:
    names = ["price", "throughput", "power", "people"]
    second = dict(zip(names, (a * r for a, r in zip(first, ratios, strict=True)), strict=True))
    base = dict(zip(names, first, strict=True))

    def cost_per_token(switched: frozenset[str]) -> float:
        chosen = {name: (second if name in switched else base)[name] for name in names}
        return (chosen["price"] + chosen["power"] + chosen["people"]) / chosen["throughput"]

    parts = shapley_bridge(names, cost_per_token)
    assert sum(parts.values()) == pytest.approx(
        cost_per_token(frozenset(names)) - cost_per_token(frozenset())
    )


def test_a_cause_that_changes_nothing_explains_nothing() -> None:
    parts = shapley_bridge(["a", "b"], lambda s: 5.0 if "a" in s else 3.0)
    assert parts == pytest.approx({"a": 2.0, "b": 0.0})


def test_a_joint_effect_is_shared_evenly() -> None:
    parts = shapley_bridge(["a", "b", "c"], lambda s: 6.0 if {"a", "b"} <= s else 0.0)
    assert parts == pytest.approx({"a": 3.0, "b": 3.0, "c": 0.0})


def test_the_largest_part_takes_the_cent_that_is_over() -> None:
    parts = {"large": -100.4, "small": -0.4, "none": 0.2}
    assert to_the_cent(parts, -101) == {"large": -101}
