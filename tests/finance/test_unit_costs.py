from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ScenarioError
from planner.finance.measures import net_present_value
from planner.finance.unit_costs import (
    break_even_rental_utilisation,
    break_even_start_price,
    break_even_utilisation,
    cumulative_usd_per_million_tokens,
    levelised_cost,
    margin,
    per_million_tokens,
    price_path,
    usd_per_million_tokens,
)

AMOUNTS = st.lists(st.floats(1, 1e6), min_size=12, max_size=12)


def test_a_month_without_tokens_has_no_cost_per_token() -> None:
    per_token = usd_per_million_tokens([10.0, 10.0], [0.0, 5e6])
    assert np.isnan(per_token[0])
    assert per_token[1] == 2.0
    assert cumulative_usd_per_million_tokens([10.0, 10.0], [0.0, 5e6])[1] == 4.0


@given(costs=AMOUNTS, tokens=AMOUNTS, rate=st.floats(-0.2, 0.5))
def test_levelised_cost_is_the_price_of_no_gain_and_no_loss(
    costs: list[float], tokens: list[float], rate: float
) -> None:
    price = levelised_cost(rate, costs, tokens)
    assert price is not None
    flows = price * np.array(tokens) - np.array(costs)
    assert net_present_value(rate, flows) == pytest.approx(0, abs=1e-6 * sum(costs))


@given(costs=AMOUNTS, tokens=AMOUNTS)
def test_levelised_cost_without_discount_is_the_plain_ratio(costs: list[float], tokens: list[float]) -> None:
    assert levelised_cost(0.0, costs, tokens) == pytest.approx(sum(costs) / sum(tokens))


@given(costs=AMOUNTS, tokens=AMOUNTS, scale=st.floats(0.1, 100))
def test_a_fleet_twice_the_size_costs_the_same_per_token(costs: list[float], tokens: list[float], scale: float) -> None:
    larger = levelised_cost(0.1, np.array(costs) * scale, np.array(tokens) * scale)
    assert larger == pytest.approx(levelised_cost(0.1, costs, tokens))


def test_levelised_cost_of_nothing_is_nothing() -> None:
    assert levelised_cost(0.1, [1.0], [0.0]) is None


def test_at_break_even_utilisation_revenue_meets_cost() -> None:
    fixed, capacity, price, variable = 70_000.0, 1e5, 1.2, 0.2
    use = break_even_utilisation(fixed, capacity, price, variable)
    assert use == pytest.approx(0.7)
    assert use is not None
    assert use * capacity * price == pytest.approx(fixed + use * capacity * variable)
    assert break_even_utilisation(fixed, capacity, 0.2, 0.2) is None


def test_owning_beats_on_demand_rent_above_a_share_of_use() -> None:
    # Published: H200 owned 1.41 an hour, on demand 2.60: owning pays above 54% use.
    assert break_even_rental_utilisation(1.41, 2.60) == pytest.approx(0.542, abs=5e-4)
    assert break_even_rental_utilisation(1.41, 0.0) is None


def test_an_api_price_path_falls_evenly_in_ratio() -> None:
    assert price_path(10.0, 0.9, [0, 6, 12, 24]) == pytest.approx([10, 10 * 0.1**0.5, 1.0, 0.1])


def test_break_even_start_price_makes_buying_cost_the_same() -> None:
    months = np.arange(36)
    costs, tokens = np.full(36, 1_000.0), np.full(36, 1e9)
    path = price_path(1.0, 0.6, months)
    start = break_even_start_price(0.1, costs, tokens, path)
    assert start is not None
    bought = start / 1e6 * path * tokens
    assert net_present_value(0.1, bought) == pytest.approx(net_present_value(0.1, costs))
    assert start > 1.0  # above the owned 1.00 per million, because the market keeps falling
    flat = break_even_start_price(0.1, costs, tokens, np.ones(36))
    assert flat == pytest.approx(1.0)
    assert break_even_start_price(0.1, costs, np.zeros(36), path) is None


def test_margin() -> None:
    margins = margin([100.0, 100.0, 0.0], [60.0, 120.0, 5.0])
    assert margins[:2] == pytest.approx([0.4, -0.2])
    assert np.isnan(margins[2])


def test_energy_per_million_tokens() -> None:
    assert per_million_tokens(250.0, 1e9) == pytest.approx(0.25)


def test_an_api_price_cannot_be_negative_or_vanish_within_the_year() -> None:
    with pytest.raises(ScenarioError, match="api_price_usd_per_million_tokens"):
        price_path(-1.0, 0.5, [0])
    with pytest.raises(ScenarioError, match="above -1"):
        price_path(1.0, 1.0, [0])
