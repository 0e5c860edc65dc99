from __future__ import annotations

import math

import numpy as np
import pytest

from planner.studies.decision import decisions, worth_of_knowing

NAMES = ("a", "b", "c")


def table(rows: int = 800) -> np.ndarray:
    generator = np.random.default_rng(4)
    luck = generator.standard_normal(rows)  # common to all
    return np.stack([luck, luck + 1.0, luck + generator.normal(0.5, 1.0, rows)], axis=1)


def test_pairs_are_compared_row_by_row() -> None:
    found = {(c.scenario, c.against): c for c in decisions(table(), NAMES, 8, lower_is_better=True)}
    assert found["a", "b"].probability_better.value == 1.0
    assert found["a", "b"].mean_difference.value == pytest.approx(-1.0)
    assert found["a", "b"].mean_difference.half_width == pytest.approx(0.0, abs=1e-9)
    assert found["b", "a"].mean_regret.value == pytest.approx(1.0)
    assert found["a", "b"].mean_regret.value == 0.0
    assert found["a", "c"].probability_better.value == pytest.approx(0.69, abs=0.05)


def test_against_all_others_is_against_the_best_of_them() -> None:
    rows = table()
    found = {c.scenario: c for c in decisions(rows, NAMES, 8, lower_is_better=True) if not c.against}
    best = rows.argmin(axis=1)
    assert [found[n].probability_better.value for n in NAMES] == pytest.approx([(best == k).mean() for k in range(3)])
    regret = rows[:, 0] - rows.min(axis=1)
    assert found["a"].mean_regret.value == pytest.approx(regret.mean())


def test_higher_can_be_better() -> None:
    found = {(c.scenario, c.against): c for c in decisions(table(), NAMES, 8, lower_is_better=False)}
    assert found["b", "a"].probability_better.value == 1.0
    assert found["b", "a"].mean_difference.value == pytest.approx(1.0)
    assert found["a", "b"].mean_regret.value == pytest.approx(1.0)


def test_ties_count_half_and_failed_rows_not_at_all() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 2.0], [np.nan, 0.0], [2.0, 2.0]] * 8)
    found = decisions(rows, ("a", "b"), 4, lower_is_better=True)
    assert len(found) == 2
    assert found[0].probability_better.value == pytest.approx(2 / 3)


def test_a_probability_is_never_told_more_exactly_than_its_rows_can() -> None:
    """Randomisations that all count the same would have an interval of no width."""
    certain = {(c.scenario, c.against): c for c in decisions(table(), NAMES, 8, lower_is_better=True)}["a", "b"]
    assert certain.probability_better.value == 1.0
    assert certain.probability_better.half_width == pytest.approx(0.5 * 8 / 800)
    rows = np.tile([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]], (40, 1)).reshape(40, 4, 2)
    alike = decisions(rows.transpose(1, 0, 2).reshape(160, 2), ("a", "b"), 4, lower_is_better=True)[0]
    assert alike.probability_better.value == pytest.approx(0.75)
    assert alike.probability_better.half_width == pytest.approx(3.0 / 160)  # the rule of three


def normal_case(rows: int, offset: float, slope: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Two scenarios: the second costs ``offset`` more, less ``slope`` times what may be known, give or take."""
    generator = np.random.default_rng(11)
    theta = generator.standard_normal(rows)
    luck = generator.standard_normal(rows) * 5.0
    other = luck + offset - slope * theta + noise * generator.standard_normal(rows)
    return theta, np.stack([luck, other], axis=1)


@pytest.mark.parametrize(("offset", "slope", "noise"), [(0.5, 1.0, 0.5), (0.5, 1.0, 4.0), (-0.3, 2.0, 1.0)])
def test_knowing_a_normal_figure_is_worth_what_the_textbook_says(offset: float, slope: float, noise: float) -> None:
    """Unit normal loss: σ·(φ(m) − m·Φ(−m)) with m = |offset|/σ, σ the slope: Raiffa and Schlaifer 1961."""
    theta, headline = normal_case(40_000, offset, slope, noise)
    m = abs(offset) / slope
    density, tail = math.exp(-m * m / 2) / math.sqrt(2 * math.pi), 0.5 * math.erfc(m / math.sqrt(2))
    expected = slope * (density - m * tail)
    found = worth_of_knowing(theta, headline, 8, lower_is_better=True)
    assert found.value == pytest.approx(expected, abs=4 * math.hypot(slope, noise) / math.sqrt(40_000))
    assert worth_of_knowing(theta, -headline, 8, lower_is_better=False).value == found.value


def test_knowing_what_changes_no_choice_is_worth_nothing() -> None:
    theta, headline = normal_case(4000, 8.0, 1.0, 1.0)
    assert worth_of_knowing(theta, headline, 8, lower_is_better=True).value == 0.0  # it never catches up
    idle = np.random.default_rng(5).standard_normal(4000)
    theta, headline = normal_case(4000, 0.3, 1.0, 1.0)
    assert worth_of_knowing(idle, headline, 8, lower_is_better=True).value < 0.01  # noise is not knowledge
    assert worth_of_knowing(np.ones(4000), headline, 8, lower_is_better=True).value == 0.0
    headline[::7, 1] = np.nan
    assert worth_of_knowing(theta, headline, 8, lower_is_better=True).completed == 4000 - 572
