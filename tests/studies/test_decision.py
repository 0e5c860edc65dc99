from __future__ import annotations

import numpy as np
import pytest

from planner.plan.attainment import Verdict
from planner.studies.decision import Targeted, decisions, standings

NAMES = ("a", "b", "c")
ALL = (0, 1, 2)


def table(rows: int = 800) -> np.ndarray:
    generator = np.random.default_rng(4)
    luck = generator.standard_normal(rows)  # common to all
    return np.stack([luck, luck + 1.0, luck + generator.normal(0.5, 1.0, rows)], axis=1)


def test_pairs_are_compared_row_by_row() -> None:
    found = {
        (c.scenario, c.against): c
        for c in decisions(table().T, NAMES, 8, ALL, lower_is_better=True)
    }
    assert found["a", "b"].probability_better.value == 1.0
    assert found["a", "b"].mean_difference.value == pytest.approx(-1.0)
    assert found["a", "b"].mean_difference.half_width == pytest.approx(0.0, abs=1e-9)
    assert found["b", "a"].mean_regret.value == pytest.approx(1.0)
    assert found["a", "b"].mean_regret.value == 0.0
    assert found["a", "c"].probability_better.value == pytest.approx(0.69, abs=0.05)


def test_against_all_others_is_against_the_best_of_them() -> None:
    rows = table()
    found = {
        c.scenario: c
        for c in decisions(rows.T, NAMES, 8, ALL, lower_is_better=True)
        if not c.against
    }
    best = rows.argmin(axis=1)
    assert [found[n].probability_better.value for n in NAMES] == pytest.approx(
        [(best == k).mean() for k in range(3)]
    )
    regret = rows[:, 0] - rows.min(axis=1)
    assert found["a"].mean_regret.value == pytest.approx(regret.mean())


def test_higher_can_be_better() -> None:
    found = {
        (c.scenario, c.against): c
        for c in decisions(table().T, NAMES, 8, ALL, lower_is_better=False)
    }
    assert found["b", "a"].probability_better.value == 1.0
    assert found["b", "a"].mean_difference.value == pytest.approx(1.0)
    assert found["a", "b"].mean_regret.value == pytest.approx(1.0)


def test_ties_count_half_and_failed_rows_not_at_all() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 2.0], [np.nan, 0.0], [2.0, 2.0]] * 8)
    found = decisions(rows.T, ("a", "b"), 4, (0, 1), lower_is_better=True)
    assert len(found) == 2
    assert found[0].probability_better.value == pytest.approx(2 / 3)


def test_a_probability_is_never_told_more_exactly_than_its_rows_can() -> None:
    """Randomisations that all count the same would have an interval of no width."""
    certain = {
        (c.scenario, c.against): c
        for c in decisions(table().T, NAMES, 8, ALL, lower_is_better=True)
    }["a", "b"]
    assert certain.probability_better.value == 1.0
    assert certain.probability_better.half_width == pytest.approx(0.5 * 8 / 800)
    rows = np.tile([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]], (40, 1)).reshape(40, 4, 2)
    alike = decisions(
        rows.transpose(1, 0, 2).reshape(160, 2).T, ("a", "b"), 4, (0, 1), lower_is_better=True
    )[0]
    assert alike.probability_better.value == pytest.approx(0.75)
    assert alike.probability_better.half_width == pytest.approx(3.0 / 160)  # the rule of three


def test_only_what_may_meet_its_slo_target_can_be_best() -> None:
    """Scenario a is cheapest but meets its target in 8 of 10 replications; between b and c the objective decides."""
    rows = np.tile([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 2.5], [1.0, 2.0, 2.0]], (20, 1))
    short = np.zeros((80, 3))
    short[:16, 0] = np.linspace(0.01, 0.16, 16)
    short[:8, 1] = 0.3
    months = np.where(short > 0, 5.0, 36.0)
    asked = [Targeted(name, 0.99, 0.9) for name in NAMES]
    a, b, c = standings([rows.T, short.T, months.T], asked, 4, lower_is_better=True)
    assert [each.verdict.status for each in (a, b, c)] == ["MISSED", "INCONCLUSIVE", "MET"]
    assert [each.verdict.share for each in (a, b, c)] == pytest.approx([0.8, 0.9, 1.0])
    assert a.shortfall_fraction == pytest.approx(0.08)  # the 72nd smallest of 80
    assert (a.met_months, b.met_months) == (5.0, 36.0)
    assert np.isnan(a.best_fraction.value)
    assert [b.best_fraction.value, c.best_fraction.value] == pytest.approx([0.625, 0.375])
    pairs = {
        (each.scenario, each.against)
        for each in decisions(rows.T, NAMES, 4, (1, 2), lower_is_better=True)
    }
    assert len(pairs) == 6  # against all others only where more than two keep it
    others_short = np.tile([[0.1], [0.0], [0.1]], 80)
    alone = standings([rows.T, others_short, months.T], asked, 4, lower_is_better=True)
    assert alone[1].best_fraction.value == 1.0
    none = standings([rows.T, np.full((3, 80), 0.1), months.T], asked, 4, lower_is_better=True)
    assert all(np.isnan(each.best_fraction.value) for each in none)


def test_replications_that_failed_judge_nothing() -> None:
    rows = np.array([[1.0, 2.0]] * 16)
    rows[3, 0] = np.nan
    short = np.where(np.isnan(rows), np.nan, 0.0)
    asked = [Targeted(name, 0.99, 0.8) for name in "ab"]
    found = standings([rows.T, short.T, short.T + 36.0], asked, 4, lower_is_better=True)
    assert found[0].verdict == Verdict(15, 15, 0.8)
    assert found[0].verdict.status == "MET"
    assert found[0].best_fraction.completed == 15
