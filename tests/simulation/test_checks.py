"""A run that does not add up is refused, whatever part of it is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from planner.errors import ConservationError
from planner.fleet.plan import Plan
from planner.simulation.checks import check_run
from planner.simulation.driver import Run
from planner.simulation.monthly import Monthly
from planner.simulation.run import run_engine
from tests.fleet.plans import make_plan, workload_plan


@pytest.fixture(scope="module")
def finished() -> tuple[Plan, Run, Monthly]:
    plan = make_plan(workloads=[workload_plan(deadline_h=5, priority=2)])
    return plan, *run_engine(plan, 1)


def test_a_sound_run_passes(finished: tuple[Plan, Run, Monthly]) -> None:
    check_run(*finished)


def falsified(array: Any, factor: float = 1.001) -> Any:
    return np.asarray(array) * factor


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("served_requests", "requests came"),
        ("demand_requests", "requests came"),
        ("it_kwh", "IT energy"),
        ("facility_kwh", "facility energy"),
        ("busy_node_h", "node-hours by cause"),
    ],
)
def test_a_month_that_is_off_is_noticed(finished: tuple[Plan, Run, Monthly], field: str, told: str) -> None:
    plan, run, monthly = finished
    factor = 100.0 if field == "busy_node_h" else 1.001
    wrong = dataclasses.replace(monthly, **{field: falsified(getattr(monthly, field), factor)})
    with pytest.raises(ConservationError, match=told):
        check_run(plan, run, wrong)


def test_a_backlog_that_vanishes_is_noticed(finished: tuple[Plan, Run, Monthly]) -> None:
    plan, run, monthly = finished
    more = dataclasses.replace(run.windows[-1], waiting_requests=(np.full(5, 1000.0),))
    with pytest.raises(ConservationError, match="off by 5e"):
        check_run(plan, dataclasses.replace(run, windows=(*run.windows[:-1], more)), monthly)


def test_machines_from_nowhere_are_noticed(finished: tuple[Plan, Run, Monthly]) -> None:
    plan, run, monthly = finished
    hours = run.node_hours[-1]
    more = dataclasses.replace(hours, present=hours.present + 1.0)
    with pytest.raises(ConservationError, match="accelerators on site"):
        check_run(plan, dataclasses.replace(run, node_hours=(*run.node_hours[:-1], more)), monthly)
