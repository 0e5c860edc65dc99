from __future__ import annotations

import math

import pytest

from planner.errors import Problem, ScenarioError
from planner.finance import refusals


@pytest.mark.parametrize("amount", [0.0, 1e-9, 35_000.0])
def test_prices_of_zero_or_more_pass(amount: float) -> None:
    assert refusals.not_negative("accelerator_price_usd", amount) is None


@pytest.mark.parametrize("amount", [-0.01, math.nan, math.inf, -math.inf])
def test_negative_and_endless_prices_do_not(amount: float) -> None:
    problem = refusals.not_negative("accelerator_price_usd", amount)
    assert problem is not None
    assert str(problem).startswith("accelerator_price_usd: ")
    assert "must be zero or more" in problem.message


@pytest.mark.parametrize(("share", "passes"), [(0.0, True), (0.5, True), (1.0, True), (-0.1, False), (1.1, False)])
def test_shares(share: float, passes: bool) -> None:
    assert (refusals.fraction("share", share) is None) is passes


def test_a_share_that_looks_like_a_percentage_is_asked_about() -> None:
    problem = refusals.fraction("discount", 14.0)
    assert problem is not None
    assert problem.hint == "for 14 percent write 0.14"
    beyond = refusals.fraction("discount", 140.0)
    assert beyond is not None
    assert beyond.hint is None


def test_a_share_of_all_is_refused_where_nothing_would_be_left() -> None:
    assert refusals.fraction("tax", 1.0, below_one=True) is not None
    assert refusals.fraction("tax", 0.999, below_one=True) is None


@pytest.mark.parametrize(("rate", "passes"), [(0.0, True), (-0.99, True), (5.0, True), (-1.0, False), (-2.0, False)])
def test_rates_stop_above_minus_100_percent(rate: float, passes: bool) -> None:
    assert (refusals.annual_rate("discount_rate", rate) is None) is passes


@pytest.mark.parametrize("months", [1, 36, 48, 60, 72, 600])
def test_lives_that_pass(months: int) -> None:
    assert refusals.life_months("life", months) is None


@pytest.mark.parametrize("months", [0, -36, 36.5, 601, math.nan, math.inf])
def test_lives_that_do_not(months: float) -> None:
    problem = refusals.life_months("life", months)
    assert problem is not None
    assert "1 to 600" in problem.message
    assert problem.hint is not None
    assert "36" in problem.hint


def test_finite() -> None:
    assert refusals.finite("x", 1.0) is None
    assert refusals.finite("x", math.nan) is not None


def test_all_problems_are_raised_together_and_none_is_raised_for_nothing() -> None:
    refusals.raise_problems([None, None])
    with pytest.raises(ScenarioError) as caught:
        refusals.raise_problems([None, Problem(path="a", message="first"), Problem(path="b", message="second")])
    assert str(caught.value) == "a: first\nb: second"
    assert caught.value.exit_code == 2
