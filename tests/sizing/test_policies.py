"""Policies: orders on a signal, rent and sale, against exhaustive search and against the run of the policy itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import planner
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.sizing.toys import STUDY, keeps, ordered, problem, whole


def written(content: dict[str, Any], folder: Path) -> Path:
    """Write a toy and its study; return the study's file."""
    text = re.sub(r"'(\d{4}-\d\d-\d\d)'", r"\1", yaml.safe_dump(content))
    (folder / "toy.yaml").write_text(text)
    (folder / "study.yaml").write_text(STUDY)
    return folder / "study.yaml"


def test_orders_on_a_signal_cost_less_than_the_best_fixed_plan(tmp_path: Path) -> None:
    """Growth between none and fourfold a year: what is seen by spring tells how much autumn needs."""
    content = ordered(orders="reactive")
    with problem(content, study=written(content, tmp_path), replications=16) as search:
        every = [True] * len(search.choices.purchases)
        fixed = search.solve(every)
        assert fixed is not None
        reactive = search.solve(every, fixed, reacts=True)
        assert reactive is not None
        plans = [whole(search, counts) for counts in (fixed, reactive)]
        assert all(keeps(search, plan) for plan in plans)
        assert not any(fixed[search.choices.loads])
        assert any(reactive[search.choices.loads])
        assert plans[1].cost < 0.97 * plans[0].cost


@pytest.mark.prove
@pytest.mark.parametrize("growth", [0.9, 1.5])
def test_a_reactive_policy_is_within_one_per_cent_of_exhaustive_search(growth: float, tmp_path: Path) -> None:
    content = ordered(growth, orders="reactive")
    with problem(content, study=written(content, tmp_path), replications=16) as search:
        every = [True] * len(search.choices.purchases)
        found = search.solve(every, search.solve(every), reacts=True)
        assert found is not None
        tried = [(now, later, 0, 0, load) for now in (1, 2, 3) for later in (0, 1) for load in (0, *range(50, 101, 5))]
        best = min(plan.cost for counts in tried if keeps(search, plan := whole(search, counts)))
        assert whole(search, found).cost <= 1.01 * best


def test_the_surrogate_orders_what_the_run_orders(tmp_path: Path) -> None:
    content = ordered(orders="reactive")
    with problem(content, study=written(content, tmp_path), replications=8) as search:
        policy = (2, 0, 0, 0, 100)
        predicted = search.surrogate.nodes(policy).sum(axis=1)
        evaluator = search.archive.workers.subject
        runs = [evaluator.simulate(policy, replication) for replication in range(8)]
        bought = [sum(purchase.nodes for purchase in run.run.log.purchases) for run in runs]
        assert np.abs(predicted - bought).max() <= 1.0
        assert np.corrcoef(predicted, bought)[0, 1] > 0.9
        assert predicted.max() > predicted.min()


def test_the_policy_of_an_answer_is_a_scenario_with_its_rule_and_its_trigger_table(tmp_path: Path) -> None:
    content = ordered(orders="reactive")
    study = written(content, tmp_path)
    out = tmp_path / "out"
    answer = planner.size(tmp_path / "toy.yaml", out, study=study, replications=16, confirmations=8, workers=1)
    policy = load_scenario(out / "policy.yaml")
    (rule,) = policy.expansion.rules
    load = answer.result.plan.counts[answer.result.choices.loads]
    assert rule.when == "forecast_load_above"
    assert rule.threshold_fraction == pytest.approx(load[0] / 100.0)
    assert answer.result.as_stated().cost_cents().sum() == simulate(policy).cost_cents().sum()
    triggers = answer.result.explanation.triggers
    assert [trigger.date for trigger in triggers] == [*rule.windows]
    assert all(low <= middle <= high for low, middle, high in (trigger.ordered for trigger in triggers))
    said = " ".join(answer.summary()["sentences"])
    assert "forecast of peak load passes" in said
    assert [way.name for way in answer.result.ways] == ["fixed on the first day", "ordered on a signal"]
    saved = answer.result.ways[0].saved
    assert saved is not None
    assert saved.value > 0.0
    assert (out / "triggers.csv").exists()


def test_rent_is_a_choice_and_none_of_it_is_one_too(tmp_path: Path) -> None:
    """At a hundredth of its price rent never makes it cost more; at a hundred times its price none is taken."""
    counts = {}
    for usd in (0.05, 500.0):
        content = ordered(max_rented_accelerators=64)
        rent = {"usd_per_accelerator_h": usd, "available_fraction": 1.0, "startup_h": 0, "hold_h": 1}
        content["finance"] = {"burst_rental": rent}
        with problem(content, study=written(content, tmp_path), replications=6) as search:
            every = [True] * len(search.choices.purchases)
            fixed = search.solve(every)
            assert fixed is not None
            found = search.solve(every, fixed, rents=True)
            assert found is not None
            counts[usd] = found
            assert whole(search, found).cost <= 1.001 * whole(search, fixed).cost
            assert search.choices.content(found)["finance"]["burst_rental"] is None or found[search.choices.rent][0]
    assert counts[500.0][-1] == 0


def test_what_is_bought_may_be_sold(tmp_path: Path) -> None:
    """A policy that sells what it bought has the day in its scenario, for each date of purchase."""
    content = ordered()
    content["sizing"]["retire"] = {"h200": ["2026-12-01"]}
    written(content, tmp_path)
    with problem(content) as search:
        sold = (2, 1, 0, 0, 1)
        clusters = search.choices.content(sold)["clusters"]
        assert {str(cluster["retire"]) for cluster in clusters.values()} == {"2026-12-01"}
        assert search.value(sold)[0] != search.value((2, 1, 0, 0, 0))[0]
        assert search.value(sold)[1] < 0.5  # nothing serves the last months
