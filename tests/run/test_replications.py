"""Intervals of chance against what order statistics promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.finance.measure_names import DRAWS
from planner.run.replications import Interval, Replications, draw_again, interval_of
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario


@pytest.mark.parametrize(("draws", "coverage"), [(19, 0.9), (39, 0.9), (199, 0.9), (5, 4 / 6)])
def test_a_further_draw_lies_within_at_the_stated_rate(draws: int, coverage: float) -> None:
    """Lognormal draws, 4,000 times: no distribution is assumed, so any will do."""
    random = np.random.default_rng(draws)
    values = random.lognormal(size=(4000, draws + 1))
    inside = 0
    for row in values.tolist():
        found = interval_of(row[:-1])
        assert found is not None
        inside += found.low <= row[-1] <= found.high
    stated = Replications(figures=({},) * draws).coverage_fraction
    assert stated == pytest.approx(coverage)
    assert abs(inside / 4000 - stated) < 4 * math.sqrt(stated * (1 - stated) / 4000)


def test_a_figure_without_meaning_in_one_draw_has_no_interval() -> None:
    assert interval_of([1.0, None, 2.0]) is None
    assert interval_of([1.0]) is None
    assert interval_of([]) is None


def test_differences_are_taken_draw_by_draw() -> None:
    base = Replications(figures=({"x": 1.0}, {"x": 5.0}, {"x": 9.0}))
    other = Replications(figures=({"x": 1.5}, {"x": 5.5}, {"x": 9.5}))
    assert other.difference("x", base) == Interval(low=0.5, high=0.5)
    nothing = Replications(figures=({"x": None}, {"x": 5.0}, {"x": 9.0}))
    assert other.difference("x", nothing) is None


def test_a_plan_drawn_again_differs_by_chance_alone(write: WriteScenario) -> None:
    scenario = load_scenario(write())
    result = simulate(scenario)
    chance = draw_again(result)
    assert chance.number == DRAWS
    assert chance.figures == draw_again(result).figures  # the same draws every time
    assert chance.figures[3] == draw_again(simulate(scenario, replication=3), 1).figures[0]
    tokens = chance.interval("cost_per_million_tokens_usd")
    bought = chance.interval("capex_usd")
    assert tokens is not None
    assert bought is not None
    assert tokens.low < tokens.high  # traffic and failures differ
    assert bought.low == bought.high  # what is bought does not
    assert draw_again(result, 1).interval("cost_usd") is None
