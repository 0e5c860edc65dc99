from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from planner.finance.financing import mean_prices
from planner.finance.present_value import (
    break_even_utilisation,
    cumulative_per_million_tokens,
    levelised_cost,
    per_million_tokens,
)


def test_a_month_without_tokens_has_no_cost_per_token() -> None:
    per_token = per_million_tokens([10.0, 10.0], [0.0, 5e6])
    assert np.isnan(per_token[0])
    assert per_token[1] == 2.0
    assert cumulative_per_million_tokens([10.0, 10.0], [0.0, 5e6])[1] == 4.0


@given(
    cost=st.floats(0, 1e9), tokens=st.floats(1, 1e9), rate=st.floats(0, 0.9), refund=st.floats(0, 1)
)
def test_under_a_tax_in_proportion_the_price_has_a_closed_form(
    cost: float, tokens: float, rate: float, refund: float
) -> None:
    # Tax on sales less a share of cost: p·Q = C + t·(p·Q − s·C).
    price = levelised_cost(cost, tokens, lambda p: rate * (p * tokens - refund * cost))
    assert price == pytest.approx(
        cost * (1 - rate * refund) / (tokens * (1 - rate)), rel=1e-9, abs=1e-9
    )


def test_under_a_tax_with_bends_the_price_is_found_where_the_line_bends() -> None:
    def tax(
        price: float,
    ) -> float:  # nothing up to an income of 100, a quarter above, a half above 300
        income = 10 * price
        return 0.25 * max(income - 100, 0) + 0.25 * max(income - 300, 0)

    for cost, expected in ((80.0, 8.0), (100.0, 10.0), (175.0, 20.0), (250.0, 30.0), (300.0, 40.0)):
        assert levelised_cost(cost, 10.0, tax) == pytest.approx(expected, rel=1e-12)


def test_at_break_even_utilisation_revenue_meets_cost() -> None:
    fixed = 70_000.0
    capacity = 1e5
    price = 1.2
    variable = 0.2
    use = break_even_utilisation(fixed, capacity, price, variable)
    assert use == pytest.approx(0.7)
    assert use is not None
    assert use * capacity * price == pytest.approx(fixed + use * capacity * variable)
    assert break_even_utilisation(fixed, capacity, 0.2, 0.2) is None


@pytest.mark.parametrize("change", [-0.9, 0.0, 0.04, 1e-13])
def test_a_months_price_is_the_mean_over_it(change: float) -> None:
    """The integral over the month, not its first day: at −90% a year the first day is 9.9% too high."""
    edges = np.array([0.0, 0.5, 1.5, 2.5])
    integrals = [
        quad(lambda t: 8 * (1 + change) ** (t / 12), *ends)[0] for ends in itertools.pairwise(edges)
    ]
    assert mean_prices(8.0, change, edges) == pytest.approx(
        np.array(integrals) / np.diff(edges), rel=1e-12
    )
    if change == -0.9:
        assert 8.0 * 0.1 ** (0.5 / 12) / mean_prices(8.0, change, edges)[1] == pytest.approx(
            1.099, abs=1e-4
        )
