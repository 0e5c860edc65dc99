"""A run that does not add up is refused, whatever part of it is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from planner.engine.driver import Run
from planner.engine.log import ChangeLog, SiteEvent
from planner.engine.monthly import Monthly, check_run
from planner.errors import ConservationError
from planner.plan.plan import Plan
from planner.run.simulate import run_engine
from tests.engine.plans import make_plan, workload_plan


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
def test_a_month_that_is_off_is_noticed(
    finished: tuple[Plan, Run, Monthly], field: str, told: str
) -> None:
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


def test_power_beyond_full_load_or_below_rest_is_noticed(
    finished: tuple[Plan, Run, Monthly],
) -> None:
    plan, run, monthly = finished
    for factor in (0.1, 10.0):
        window = dataclasses.replace(run.windows[0], it_kw=run.windows[0].it_kw * factor)
        wrong = dataclasses.replace(monthly, it_kwh=monthly.it_kwh * factor)
        with pytest.raises(
            ConservationError, match="more than its nodes do at full load, or less than at rest"
        ):
            check_run(plan, dataclasses.replace(run, windows=(window,)), wrong)


def test_work_done_in_the_dark_is_noticed() -> None:
    """Half an hour dark at 30% load: the machines could carry all of the hour's requests in the rest of it."""
    plan = make_plan(requests_per_s=[3.0])
    run, monthly = run_engine(plan, 1)
    check_run(plan, run, monthly)
    moments = (SiteEvent(90.0, 90.0), SiteEvent(110.0, 110.0))  # over as they begin
    check_run(
        plan,
        dataclasses.replace(run, log=ChangeLog(changes=run.log.changes, site=[*moments])),
        monthly,
    )
    for before in ((), moments[:1]):
        log = ChangeLog(changes=run.log.changes, site=[*before, SiteEvent(100.25, 100.75)])
        with pytest.raises(ConservationError, match="arrived in an outage were served"):
            check_run(plan, dataclasses.replace(run, log=log), monthly)


def test_work_before_a_launch_is_noticed() -> None:
    plan = make_plan()
    run, monthly = run_engine(plan, 1)
    launched = dataclasses.replace(plan, workloads=(workload_plan(launch_h=24.0),))
    with pytest.raises(ConservationError, match="before its model's launch"):
        check_run(launched, run, monthly)
