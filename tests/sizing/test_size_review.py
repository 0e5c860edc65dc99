"""What a review is worth: policies against exhaustive search, forecasts against their closed form."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import planner
from planner.errors import ScenarioError
from planner.scenario.loading import load_scenario
from planner.sizing.choices import Policies
from planner.sizing.evaluate import Archive, Clock, SizingOutcome, Workers
from planner.sizing.replications import Surveyed
from planner.sizing.review import FIXED, REVIEWED, forecast, levels_of, policy_search
from planner.sizing.search import Search
from planner.sizing.size import trial_of
from tests.sizing.test_size import toy

REVIEW = datetime.date(2026, 3, 1)
REPLICATIONS = 10


def uncertain(folder: Path, **changes: Any) -> tuple[dict[str, Any], Path]:
    """Return a problem whose demand is not known, and the study that says so."""
    content = toy(("2026-01-01", "2026-03-01"), 20, horizon_months=4, **changes)
    del content["clusters"]["mi325x"], content["sizing"]["clusters"]["mi325x"]
    content["sizing"]["decision_dates"] = [REVIEW.isoformat()]
    (folder / "toy.yaml").write_text(yaml.safe_dump(content).replace("'", ""))  # dates, not words
    study = {
        "name": "demand",
        "scenarios": {"toy": {"extends": "toy.yaml"}},
        "uncertain": {
            "workloads.*.requests_per_s": {"kind": "lognormal", "median": 1.0, "sigma": 0.3, "times_stated": True}
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return content, folder / "study.yaml"


def fixed_search(content: dict[str, Any], study: Path) -> Search:
    trial = trial_of(load_scenario(content), (), study, "net-present-cost", None)
    workers = Workers(trial, 1)
    surveyed = Surveyed(trial, workers, REPLICATIONS)
    search = Search(surveyed, Archive(workers), Clock(), [True] * len(trial.choices.purchases))
    search.run()
    return search


def cost(search: Search, counts: Sequence[int]) -> float:
    return float(np.mean([each.cost for each in search.outcomes(tuple(counts), range(REPLICATIONS))]))


def keeps(search: Search, counts: Sequence[int]) -> bool:
    outcomes = search.outcomes(tuple(counts), range(REPLICATIONS))
    return sum(each.worst >= 0.99 for each in outcomes) >= 0.9 * REPLICATIONS


def test_a_policy_beats_the_best_fixed_plan_and_buys_more_where_more_is_seen(tmp_path: Path) -> None:
    content, study = uncertain(tmp_path)
    main = fixed_search(content, study)
    assert main.best is not None
    policy = policy_search(main, main.best, REVIEW, lambda _: True)
    assert policy.best is not None
    assert keeps(policy, policy.best)
    assert cost(policy, policy.best) < cost(main, main.best)
    assert isinstance(policy.choices, Policies)
    later = [policy.choices.at(policy.best, level)[1] for level in range(policy.choices.levels)]
    assert later[-1] == max(later) > min(later)  # of the two lower levels either may have a node more at equal cost


@pytest.mark.prove
def test_a_policy_is_within_one_per_cent_of_exhaustive_search(tmp_path: Path) -> None:
    """One part, up to 14 nodes now and ten at each of three levels: 20,000 policies made of 165 plans."""
    content, study = uncertain(tmp_path)
    main = fixed_search(content, study)
    assert main.best is not None
    policy = policy_search(main, main.best, REVIEW, lambda _: True)
    assert policy.best is not None
    every = itertools.product(range(15), *[range(11)] * (len(policy.choices.purchases) - 1))
    allowed = [counts for counts in every if policy.choices.within_limits(counts)]
    best = min(cost(policy, counts) for counts in allowed if keeps(policy, counts))
    assert cost(policy, policy.best) <= 1.01 * best


def test_the_forecast_of_compound_growth_is_exact() -> None:
    tokens = np.array([100.0 * 1.05**month for month in range(36)])
    assert forecast(tokens, 12) == pytest.approx(tokens[-3:].mean(), rel=1e-12)
    assert forecast(tokens, 2) == pytest.approx(tokens[:2].mean(), rel=1e-12)  # too little to see growth


def shown(tokens: float, delivered_h: float) -> SizingOutcome:
    months = np.ones(4)
    return SizingOutcome(
        cost=1.0, net_present_cost_usd=1.0, capital_usd=1.0, shares=months[:, None], utilisation=months,
        tokens=tokens * months, delivered_h={"h200": delivered_h}, ceilings=np.ones(2),
    )  # fmt: skip


def test_levels_part_replications_equally_and_late_ones_by_themselves() -> None:
    on_time = [shown(tokens, 700.0) for tokens in range(1, 10)]
    late = [shown(tokens, 2000.0) for tokens in (20.0, 30.0, 40.0)]
    levels = levels_of([*on_time, *late], ["h200"], 2, 1416.0)
    assert [levels.of(each, ["h200"]) for each in [*on_time, *late]] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    nothing_due = levels_of([*on_time, *late], [], 2, 1416.0)
    assert nothing_due.count == 3


def test_what_is_never_delivered_is_late() -> None:
    levels = levels_of([shown(1.0, 0.0)] * 4, [], 2, 1416.0)
    assert levels.is_late(shown(1.0, 0.0), ["b200"])


@pytest.mark.prove
def test_the_answer_says_what_a_review_is_worth(tmp_path: Path) -> None:
    content, study = uncertain(tmp_path)
    answer = planner.size(content, tmp_path / "out", study=study, replications=8, confirmations=8, workers=1)
    review = answer.result.review
    assert review is not None
    by_name = {each.name: each for each in review.alternatives}
    saved, fixed, reviewed = by_name[FIXED].saved, by_name[FIXED].outcome, by_name[REVIEWED].outcome
    assert saved is not None
    assert fixed is not None
    assert reviewed is not None
    assert saved.value == pytest.approx(fixed.cost - reviewed.cost, rel=1e-9)
    assert saved.low <= saved.value <= saved.high
    assert sum(level.share for level in review.levels) == pytest.approx(1.0)
    assert any("Deciding on 2026-03-01" in sentence for sentence in answer.summary()["sentences"])
    assert answer.summary()["review"][0]["decided"] == REVIEWED
    assert "Decision dates" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "plan-branch-1.yaml").exists()


@pytest.mark.parametrize(
    ("review", "said"),
    [
        ("2025-12-01", "not within the horizon"),
        ("2026-01-15", "at least a month"),
        ("2026-04-15", "nothing can be bought"),
    ],
)
def test_a_review_that_cannot_be_is_refused(review: str, said: str) -> None:
    content = toy(("2026-01-01", "2026-03-01"), horizon_months=4)
    content["sizing"]["decision_dates"] = [review]
    with pytest.raises(ScenarioError, match=said) as refused:
        load_scenario(content)
    assert len(refused.value.problems) == 1
