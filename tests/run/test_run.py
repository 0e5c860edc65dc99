"""One replication after another of the same scenario."""

from __future__ import annotations

import gc
import weakref

import pytest
import yaml

from planner.run import simulate as run
from planner.run.measures import measures, series_of
from planner.run.simulate import plan_of, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY


def test_a_scenario_is_compiled_once_for_all_its_seeds_and_another_one_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario(yaml.safe_load(TINY))
    first = simulate(scenario, seed=1)
    with monkeypatch.context() as patched:
        patched.setattr(run, "build_plan", lambda _: pytest.fail("compiled again"))
        assert simulate(scenario, seed=2).plan is first.plan
    other = load_scenario(scenario, ["clusters.h200.nodes=9"])
    assert [cluster.nodes for cluster in plan_of(other).clusters] != [cluster.nodes for cluster in first.plan.clusters]
    assert plan_of(load_scenario(yaml.safe_load(TINY))) is not first.plan, "another object of the same text"


def test_what_is_worked_out_of_a_run_is_kept_with_it_and_let_go_with_it() -> None:
    result = simulate(load_scenario(yaml.safe_load(TINY)))
    assert series_of(result) is series_of(result)
    assert measures(result) is measures(result)
    with pytest.raises(TypeError):
        measures(result)["tco_usd"] = 0.0  # type: ignore[index]
    kept = weakref.ref(result)
    del result
    gc.collect()
    assert kept() is None
