from __future__ import annotations

import pytest

from planner.onramp.first_scenario import starter_text
from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario


@pytest.mark.parametrize(
    "name", ["first", "2026", "2026-01-01", "null", "true", "1e5", "v1.5", "no", "東京"]
)
def test_the_starter_works_under_any_name(write: WriteScenario, name: str) -> None:
    scenario = load_scenario(write(starter_text(name)))
    assert scenario.name == name
    assert build_plan(scenario).seed == scenario.seed


def test_what_the_starter_lets_be_chosen_is_allowed(write: WriteScenario) -> None:
    """The commented lines on the SLO target and on choices, uncommented, are a scenario that can be sized."""
    first, _, rest = starter_text("x").partition("# slo_target:")
    chosen, blank, site = rest.partition("\n\n")
    text = (
        first + ("# slo_target:" + chosen).replace("\n# ", "\n").removeprefix("# ") + blank + site
    )
    scenario = load_scenario(write(text))
    assert scenario.sizing is not None
    assert set(scenario.sizing.clusters) == set(scenario.clusters)
    assert scenario.sizing.it_power_cap_kw is not None
