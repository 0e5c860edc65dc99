from __future__ import annotations

import pytest

from planner.onramp.first_scenario import starter_text
from planner.plan.build import build_plan
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario


@pytest.mark.parametrize(
    "name", ["first", "2026", "2026-01-01", "null", "true", "1e5", "v1.5", "no", "東京"]
)
def test_the_starter_works_under_any_name(write: WriteScenario, name: str) -> None:
    scenario = load_scenario(write(starter_text(name)))
    assert scenario.name == name
    assert build_plan(scenario).seed == scenario.seed


def test_what_the_starter_lets_be_chosen_is_what_it_states(write: WriteScenario) -> None:
    scenario = load_scenario(write(starter_text("x")))
    assert scenario.sizing is not None
    assert set(scenario.sizing.clusters) == set(scenario.clusters)
    for name, choice in scenario.sizing.clusters.items():
        cluster = scenario.clusters[name]
        assert list(choice.dates) == [cluster.online or scenario.start]


def test_the_starter_meets_its_target_without_a_node_too_many(write: WriteScenario) -> None:
    scenario = load_scenario(write(starter_text("x")))
    assert simulate(scenario).slo_result().is_met
    for name, cluster in scenario.clusters.items():
        fewer = scenario.laid_over([f"clusters.{name}.nodes={cluster.nodes - 1}"])
        assert not simulate(fewer).slo_result().is_met, name
