"""A user's own processes inside a run: what they see, what they change, and what becomes of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

from planner.engine.processes import Process, SimulationContext
from planner.engine.repair_shop import RepairShopProcess
from planner.errors import ScenarioError
from planner.run.simulate import run_engine, simulate
from tests.engine.plans import cluster_plan, reliability_plan
from tests.engine.worlds import QUIET, assert_same_months, plan_of, scenario_of

Steps = Generator[simpy.Event, Any, None]


def idle(world: SimulationContext) -> Steps:
    """A process that does nothing."""
    yield world.timeout(1.0)


def drain(world: SimulationContext) -> Steps:
    """Two nodes of four out from hour 100 to hour 130."""
    yield world.timeout(100.0)
    held = world.take_out("h200", world.nodes_up("h200")[:2], "rounds")
    world.note("two nodes drained", "h200")
    yield world.timeout(30.0)
    world.bring_back(held)


def test_a_process_that_does_nothing_changes_nothing() -> None:
    """The fast kernel without it, the shop inside the clock with it: the same outages, months and money."""
    for change in ({}, {"clusters": {"h200": {"retire": "2026-02-10"}}, "reliability": {"spare_fraction": 0.1}}):
        plan = plan_of(change)
        (plain, one), (open_run, other) = run_engine(plan, 3), run_engine(plan, 3, processes=[idle])
        assert_same_months(one, other)
        ended = [[o for o in run.shop.outages() if o.end_h < plan.hours] for run in (plain, open_run)]
        lost = [[(o.start_h, o.end_h, o.node, o.cause, o.severity) for o in outages] for outages in ended]
        assert len(lost[0]) > 10
        assert sum(o.accelerators for o in ended[0]) == sum(o.accelerators for o in ended[1])
        assert set(lost[0]) == set(lost[1])


def test_nodes_taken_out_are_lost_for_as_long_and_written_down() -> None:
    scenario = scenario_of(QUIET)
    result = simulate(scenario, processes=[drain])
    assert result.monthly.failed_node_h.sum(axis=0) == pytest.approx([60.0, 0.0])
    assert simulate(scenario).monthly.failed_node_h.sum() == 0.0
    rows = result.events().query("event == 'process'")
    assert rows.lost_node_h.tolist() == pytest.approx([0.0, 30.0, 30.0])
    assert set(rows.cause) == {"rounds", "tests.engine.test_processes:drain"}
    assert "two nodes drained" in rows.detail.tolist()
    assert result.events().to_csv() == simulate(scenario, processes=[drain]).events().to_csv()


def test_a_process_waits_for_crews_and_spares_and_keeps_them_from_others() -> None:
    seen: list[float] = []

    def greedy(world: SimulationContext) -> Steps:
        yield world.crews.take()
        yield world.spare("h200")
        seen.append(world.now_h)
        yield world.spare("h200")  # the only one is gone: the next comes back from RMA
        seen.append(world.now_h)

    def second(world: SimulationContext) -> Steps:
        yield world.crews.take()
        seen.append(-1.0)

    crew = {"reliability": {"repair_crews": 1, "spares": 1, "rma_weeks": 1}}
    run_engine(plan_of(QUIET, crew), 1, processes=[greedy, second])
    assert seen == [0.0, 168.0]  # and the second never has the crew
    one, other = (run_engine(plan_of(crew), 1, processes=[p])[1] for p in (idle, greedy))
    assert other.failed_node_h.sum() > 2 * one.failed_node_h.sum()


def test_a_process_sees_the_last_month_and_orders_and_retires_by_it() -> None:
    seen: list[Any] = []

    def review(world: SimulationContext) -> Steps:
        assert world.last_month is None
        assert len(world.nodes("h200")) == 4
        world.order("h200", 2, lead_h=24.0)
        yield world.timeout(31 * 24.0)
        seen.append(world.last_month)
        seen.append(world.retire("mi325x", 1))

    result = simulate(scenario_of(QUIET), processes=[review])
    timeline = result.timeline_monthly()
    for name in ("h200", "mi325x"):
        told = timeline.query(f"month == '2026-01' and cluster == '{name}'").utilisation_fraction.iloc[0]
        assert seen[0].utilisation[name] == pytest.approx(told)
    assert seen[1] == 1
    assert [purchase.nodes for purchase in result.run.log.purchases] == [4, 3, 2]
    assert [c.accelerators for c in result.run.log.changes if c.kind == "retired"] == [-8]


def test_the_reserve_is_a_share_of_the_nodes_that_are_still_there() -> None:
    """Of ten nodes four have left."""
    env = simpy.Environment()
    shop = RepairShopProcess(env, reliability_plan(), (cluster_plan(nodes=10),))
    shop.admit(0, np.zeros(10))
    env.run(until=5.0)
    assert shop.count(0) == len(shop.nodes(0)) == 10
    shop.drop(0, 0, 4, 5.0)
    assert shop.count(0) == len(shop.nodes(0)) == 6


def test_random_numbers_are_its_own() -> None:
    drawn: dict[str, list[float]] = {}

    def gambler(world: SimulationContext) -> Steps:
        drawn.setdefault("one", []).append(float(world.random.random()))
        yield world.timeout(1.0)

    plan = plan_of()
    (_, alone), (_, beside) = run_engine(plan, 5, processes=[idle]), run_engine(plan, 5, processes=[idle, gambler])
    np.testing.assert_array_equal(alone.served_requests, beside.served_requests)
    run_engine(plan, 5, processes=[gambler])
    run_engine(plan, 6, processes=[gambler])
    assert drawn["one"][0] == drawn["one"][1] != drawn["one"][2]


def throws(world: SimulationContext) -> Steps:
    yield world.timeout(5.0)
    raise ZeroDivisionError("by nothing")


def yields_nothing(world: SimulationContext) -> None:
    world.note("never")


def yields_a_number(world: SimulationContext) -> Generator[int, Any, None]:
    yield 5


def wrong_cluster(world: SimulationContext) -> Steps:
    yield world.timeout(1.0)
    world.take_out("h2000", [0], "x")


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (throws, ("test_processes:throws failed at hour 5", "ZeroDivisionError: by nothing", "test_processes.py:")),
        (yields_nothing, ("is not a process",)),
        (yields_a_number, ("yielded 5",)),
        (wrong_cluster, ("no cluster is called 'h2000'", "did you mean h200?")),
    ],
)
def test_one_that_fails_ends_the_run_with_its_name_and_line(process: Process, words: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError) as caught:
        run_engine(plan_of(QUIET), 1, processes=[process])
    for word in words:
        assert word in str(caught.value)
    if process is throws:
        line = throws.__code__.co_firstlineno + 2
        assert f"test_processes.py:{line}:" in str(caught.value)


MODULE = """
def weekly(world):
    while True:
        yield world.timeout(168)
        held = world.take_out("h200", world.nodes_up("h200")[:1], "round")
        yield world.timeout(4)
        world.bring_back(held)

def broken(world):
    yield world.timeout(1)
    raise RuntimeError("no")
"""


def test_the_command_line_runs_one_or_refuses_it_whole(
    planner: Callable[..., Any], write: Callable[..., Path], tmp_path: Path
) -> None:
    scenario = write()
    write(MODULE, "own_rounds.py")
    for out in ("a", "b"):
        done = planner("run", scenario, "--process", "own_rounds:weekly", "--out", out, "--replications", "2", "-q")
        assert done.code == 0, done
    events = (tmp_path / "a" / "events.csv").read_text()
    assert events.count(",process,round,") == 12
    assert events == (tmp_path / "b" / "events.csv").read_text()
    for named, words in (
        ("own_rounds:broken", ("own_rounds:broken failed at hour 1", "own_rounds.py:11", "RuntimeError: no")),
        ("own_rounds", ("module:function",)),
        ("own_rounds:missing", ("cannot load own_rounds:missing",)),
        ("no_such_module:f", ("cannot load no_such_module:f",)),
    ):
        planner("run", scenario, "--process", named, "--out", "c").refused(*words)
        assert not (tmp_path / "c").exists()
