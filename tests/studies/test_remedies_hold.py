"""What is printed as a remedy or a recommendation is true: re-run as printed on replications that nothing has seen.

``make test`` runs a few random plans, ``make prove`` thirty on 400 replications each.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.memo.board_memo import memo_sections
from planner.output.blocks import Sentence
from planner.output.folder import read_contents
from planner.plan.attainment import Verdict
from planner.plan.build import build_plan
from planner.run.replications import draw_again
from planner.run.simulate import simulate, simulate_plan
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.remedy import NoRemedy, Remedy, find_remedy
from tests.laws.worlds import START, random_world
from tests.sizing.toys import toy

SEED = 61
SEARCHED = 19
"""Replications of a run, in which a remedy is sought; as many more confirm it."""
UNSEEN = 10_000
"""First replication of those that nothing has seen."""


def short_plan(number: int) -> Scenario:
    """Return a random plan with twice the traffic, in which some machines are owned and some only quoted."""
    world = replace(random_world(SEED, number), is_quiet=False)
    content = world.document()
    random = np.random.default_rng([SEED, number, 1])
    workloads = content["workloads"]
    clusters = content["clusters"]
    assert isinstance(workloads, dict)
    assert isinstance(clusters, dict)
    for workload in workloads.values():
        workload["requests_per_s"] *= 2.0
    for cluster in clusters.values():
        if "online" not in cluster and random.random() < 0.4:
            cluster["owned"] = {"bought": START.replace(year=START.year - 1)}
    clusters["offer"] = {"accelerator": "B200", "nodes": 0}
    return load_scenario(content)


def fresh_verdict(scenario: Scenario, seed: int, replications: int) -> Verdict:
    """Return the verdict on a plan over replications that nothing has seen."""
    plan = build_plan(scenario)
    numbers = range(UNSEEN, UNSEEN + replications)
    met = sum(simulate_plan(scenario, plan, seed, r).slo_result().is_met for r in numbers)
    return Verdict.of(scenario, met, replications)


def check_remedy(number: int, replications: int) -> Remedy | NoRemedy | None:
    """Check the remedy of a random plan against fresh replications; return it, None where the plan is not MISSED."""
    scenario = short_plan(number)
    result = simulate(scenario)
    figures = draw_again(result, SEARCHED).figures
    met = sum(row["slo_shortfall_fraction"] == 0.0 for row in figures)
    if Verdict.of(scenario, met, SEARCHED).status != "MISSED":
        return None
    found = find_remedy(result, SEARCHED, lambda _: None)
    if isinstance(found, NoRemedy):
        assert found.reason
        return found
    assert scenario.clusters[found.cluster].owned is None
    larger = scenario.laid_over([f"clusters.{found.cluster}.nodes={found.nodes_in_all}"])
    verdict = fresh_verdict(larger, result.seed, replications)
    assert verdict.status != "MISSED", (number, found, verdict)
    return found


@pytest.mark.slow
def test_the_remedy_of_a_random_plan_holds() -> None:
    assert isinstance(check_remedy(5, 40), Remedy)


@pytest.mark.prove
def test_remedies_of_thirty_random_plans_hold() -> None:
    """Plans that are not MISSED, or that no cluster helps, have none to check: thirty are those that have one."""
    checked = 0
    number = 0
    while checked < 30:
        checked += isinstance(check_remedy(number, 400), Remedy)
        number += 1


def random_sizing(number: int) -> dict[str, object]:
    """Return a sizing of one to three workload sizes whose traffic, growth and noise are random."""
    random = np.random.default_rng([SEED, number, 2])
    content = toy(("2026-01-01",), 12, seed=int(random.integers(1, 1000)))
    chat = content["workloads"]["chat"]
    chat["requests_per_s"] = float(random.uniform(20.0, 120.0))
    chat["growth"]["per_year"] = float(random.uniform(0.2, 4.0))
    content["site"] = {"outages_per_year": 0}
    content["reliability"] = {"failure_multiplier": float(random.uniform(0.5, 2.0))}
    return content


def check_sizing(number: int, replications: int, folder: Path) -> None:
    """Check that what a sizing recommends holds on fresh replications, and that it recommends what it confirmed."""
    answer = planner.size(
        random_sizing(number), folder, replications=8, confirmations=128, workers=1, rivals=False
    )
    sized = answer.result
    text = answer.text()
    assert text.startswith("Buy ") is sized.confirmation.passed
    if not sized.confirmation.passed:
        return
    recommended = load_scenario(folder / "policy.yaml")
    verdict = fresh_verdict(recommended, sized.trial.seed, replications)
    assert verdict.status != "MISSED", (number, text, verdict)


@pytest.mark.slow
def test_the_recommendation_of_a_random_sizing_holds(tmp_path: Path) -> None:
    check_sizing(0, 100, tmp_path / "out")


@pytest.mark.prove
@pytest.mark.parametrize("number", range(1, 11))
def test_recommendations_of_ten_random_sizings_hold(number: int, tmp_path: Path) -> None:
    check_sizing(number, 400, tmp_path / "out")


@pytest.mark.parametrize("confirmations", [3, 12])
def test_the_memo_of_a_sizing_that_confirms_nothing_recommends_no_purchase(
    confirmations: int, tmp_path: Path
) -> None:
    """So few replications confirm no plan, however well it serves."""
    planner.size(
        toy(("2026-01-01",)),
        tmp_path / "out",
        replications=2,
        confirmations=confirmations,
        workers=1,
        rivals=False,
    )
    contents = read_contents(tmp_path / "out")
    assert contents.summary["verdict"]["status"] == "INCONCLUSIVE"
    blocks = [block for section in memo_sections(contents) for block in section.blocks]
    sentences = [block.text for block in blocks if isinstance(block, Sentence)]
    assert not [text for text in sentences if re.search(r"\bbuy\b(?! for)", text, re.IGNORECASE)]
    assert any("none is recommended" in text and "P(SLO met)" in text for text in sentences)
    assert "Buy" not in (tmp_path / "out" / "report.html").read_text()
