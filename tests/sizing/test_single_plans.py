"""The table of plans of one accelerator: its settings are taken by the scenario, and the page shows their steps."""

from __future__ import annotations

import pytest

from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.scenario.loading import load_scenario
from tests.conftest import ROOT
from tests.sizing.single_plans import BEGIN, END, NODES, PAGE, SETTINGS, single, steps


def page_rows() -> list[list[str]]:
    """Return the cells of the page's table, without its head."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.strip().splitlines()[2:]
    ]


def test_the_page_shows_every_step_with_the_setting_it_leaves_out() -> None:
    shown = [row[:2] for row in page_rows()]
    assert shown == [
        [step, f"`{SETTINGS[step]}`" if step in SETTINGS else ""] for step, _ in steps()
    ]
    assert all(len(row) == 2 + len(NODES) for row in page_rows())


def test_each_setting_binds_every_cluster_or_workload() -> None:
    scenario = load_scenario(ROOT / "scenarios" / "which-mix.yaml", list(SETTINGS.values()))
    services, _ = build_services(scenario, Reuse(scenario), {})
    for service in services.values():
        assert (service.spec.engine, service.spec.precision, service.spec.chunk_tokens) == (
            "vllm",
            "fp8",
            8192,
        )
        assert service.prefill is None
    assert scenario.software.incident_multiplier == 0.0
    assert {load.burst_index_of_dispersion for load in scenario.workloads.values()} == {1.0}


@pytest.mark.prove
def test_a_cell_is_what_the_page_shows() -> None:
    nodes, cost = page_rows()[-1][2].split(", ")
    plan = single("B200", [])
    assert plan.nodes == pytest.approx(int(nodes), rel=0.05)
    assert plan.net_present_cost_usd / 1e6 == pytest.approx(float(cost.strip("$ M")), rel=0.05)
