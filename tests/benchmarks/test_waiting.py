from __future__ import annotations

import numpy as np
import pytest

from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.benchmarks.memory import peak_of
from tests.benchmarks.monthly_sheet import monthly_sheet
from tests.benchmarks.waiting import REFERENCE, move_ms


def test_the_sheet_serves_or_sheds_all_that_is_asked_for() -> None:
    plan = build_plan(load_scenario(REFERENCE))
    sheet = monthly_sheet(plan)
    asked = plan.demand.expected_requests_per_s.sum() * 3600.0
    assert np.asarray(sheet["served"]).sum() + np.asarray(sheet["shed"]).sum() == pytest.approx(
        asked
    )
    hours = plan.hours * np.array([cluster.nodes for cluster in plan.clusters])
    assert np.all(np.asarray(sheet["used_node_h"]).sum(axis=0) <= hours)
    assert np.all(np.asarray(sheet["cost_usd"]) > 0.0)


def test_commands_and_moves_are_timed() -> None:
    peak = peak_of("validate", str(REFERENCE))
    assert 0.01 < peak.cpu_s < 60.0
    assert peak.cpu_s < peak.wall_s < 600.0
    assert 10.0 < peak.largest_mb <= peak.all_mb < 1000.0
    assert 1.0 < move_ms("clusters.h200.nodes", [49]) < 60_000.0
