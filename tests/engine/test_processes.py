"""A user's own processes inside a run: what they see, what they change, and what becomes of one that fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

from planner.engine.processes import Process, SimulationContext
from planner.errors import ScenarioError
from planner.run.simulate import run_engine, simulate
from tests.conftest import Planner, WriteScenario
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
    """The same outages and months as without it, though its run is evaluated month by month."""
    for change in (
        {},
        {"clusters": {"h200": {"retire": "2026-02-10"}}, "reliability": {"spare_fraction": 0.1}},
    ):
        plan = plan_of(change)
        (plain, one), (open_run, other) = run_engine(plan, 3), run_engine(plan, 3, processes=[idle])
        assert_same_months(one, other)
        ended = [
            [o for o in run.shop.outages() if o.end_h < plan.hours] for run in (plain, open_run)
        ]
        lost = [
            [(o.start_h, o.end_h, o.node, o.cause, o.severity) for o in outages]
            for outages in ended
        ]
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
    assert other.failed_node_h.sum() > 1.5 * one.failed_node_h.sum()


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
    timeline = result.timeline_monthly(clusters=True)
    for name in ("h200", "mi325x"):
        told = timeline.query(
            f"month == '2026-01-01' and cluster == '{name}'"
        ).utilisation_fraction.iloc[0]
        assert seen[0].utilisation[name] == pytest.approx(told)
    assert seen[1] == 1
    assert [purchase.nodes for purchase in result.run.log.purchases] == [4, 3, 2]
    assert [c.accelerators for c in result.run.log.changes if c.kind == "retired"] == [-8]


def test_random_numbers_are_its_own() -> None:
    drawn: dict[str, list[float]] = {}

    def gambler(world: SimulationContext) -> Steps:
        drawn.setdefault("one", []).append(float(world.random.random()))
        yield world.timeout(1.0)

    plan = plan_of()
    (_, alone), (_, beside) = (
        run_engine(plan, 5, processes=[idle]),
        run_engine(plan, 5, processes=[idle, gambler]),
    )
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
        (
            throws,
            (
                "test_processes:throws failed at hour 5",
                "ZeroDivisionError: by nothing",
                "test_processes.py:",
            ),
        ),
        (yields_nothing, ("is not a process",)),
        (yields_a_number, ("yielded 5",)),
        (wrong_cluster, ("no cluster is called 'h2000'", "did you mean h200?")),
    ],
)
def test_one_that_fails_ends_the_run_with_its_name_and_line(
    process: Process, words: tuple[str, ...]
) -> None:
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
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    scenario = write()
    write(MODULE, "own_rounds.py")

    def named(function: str, file: str = "own_rounds.py") -> str:
        return f"processes=[{{file: {file}, function: {function}}}]"

    for out in ("a", "b"):
        given = (
            "--set",
            named("weekly"),
            "--allow-code",
            "--out",
            out,
            "--replications",
            "2",
            "-q",
        )
        assert planner("run", scenario, *given).code == 0
    events = (tmp_path / "a" / "events.csv").read_text()
    assert events.count(",process,round,") == 12
    assert events == (tmp_path / "b" / "events.csv").read_text()
    assert "--allow-code" in (tmp_path / "a" / "manifest.json").read_text()
    refused = planner("run", scenario, "--set", named("weekly"), "--out", "c")
    refused.refused(
        "own_rounds.py is code", "processes[0].file", "review it, then allow it with --allow-code"
    )
    for override, words in (
        (
            named("broken"),
            ("own_rounds:broken failed at hour 1", "own_rounds.py:11", "RuntimeError: no"),
        ),
        (named("missing"), ("cannot load the process own_rounds:missing", "KeyError")),
        (named("f", "no_such.py"), ("no_such.py",)),
        ("processes=[{function: nobodys}]", ("cannot load the process nobodys",)),
    ):
        planner("run", scenario, "--set", override, "--allow-code", "--out", "c").refused(*words)
        assert not (tmp_path / "c").exists()


def test_every_command_that_simulates_runs_a_scenario_s_process(
    planner: Planner, write: WriteScenario, tmp_path: Path, tiny: str
) -> None:
    """The same process in a comparison, a sweep and a study on two workers: nodes taken are in each."""
    write(MODULE, "own_rounds.py")
    own = write(tiny + "processes: [{file: own_rounds.py, function: weekly}]\n", "own.yaml")
    plain = write(tiny.replace("name: ", "name: plain-", 1), "plain.yaml")
    study = write(
        f"name: s\nscenarios: {{own: {{extends: {own.name}}}}}\nscramblings: 4\n", "study.yaml"
    )
    for command, *words in (
        ("compare", plain, own, "--replications", "1"),
        ("sweep", own, "--vary", "clusters.h200.nodes=2,3"),
        ("montecarlo", study, "--replications", "8", "--workers", "2"),
        ("validate", own),
    ):
        out = () if command == "validate" else ("--out", command)
        assert planner(command, *words, "--allow-code", *out, "-q").code == 0
        planner(command, *words, *out[:1], *(["again"] if out else []), "-q").refused(
            "--allow-code"
        )
    assert ",process,round," in (tmp_path / "compare" / "events.csv").read_text()


def test_a_process_slows_curtails_reprices_and_adds_demand_under_its_own_name() -> None:
    """Each against what the same hours give by hand; nothing of it counts as failures, software or the cap."""

    def busier(world: SimulationContext) -> Steps:
        yield world.timeout(240.0)
        world.add_demand("chat", 50.0, hours=36.5)

    def slower(world: SimulationContext) -> Steps:
        yield world.timeout(100.0)
        world.slow("h200", 0.5, hours=48.0)

    def darker(world: SimulationContext) -> Steps:
        yield world.timeout(24.0)
        world.curtail(0.6 * float(plain.run.windows[0].facility_kw[24:72].min()), hours=48.0)

    def dearer(world: SimulationContext) -> Steps:
        yield world.timeout(31 * 24.0)
        world.reprice("energy", 1.5)
        world.reprice("cooling", 0.0, hours=14 * 24.0)

    scenario = scenario_of(QUIET)
    plain = simulate(scenario, processes=[idle])
    busy, slow, dark, dear = (
        simulate(scenario, processes=[one]) for one in (busier, slower, darker, dearer)
    )
    more = busy.monthly.demand_requests - plain.monthly.demand_requests
    assert more.sum(axis=0) == pytest.approx([50.0 * 36.5 * 3600.0, 0.0])

    # Half as fast: what is served in those hours takes twice the nodes, and half of them work for nothing.
    lost = slow.monthly.process_node_h.sum(axis=0)
    assert lost[0] == pytest.approx(
        0.5 * slow.run.windows[0].busy_nodes[0, 100:148].sum(), rel=1e-6
    )
    assert lost[1] == 0.0
    assert slow.losses().filter(
        regex="lost_to_(failures|software)"
    ).to_numpy().sum() == pytest.approx(0.0)
    rows = slow.events().query("event == 'process'")
    assert rows.lost_node_h.sum() == pytest.approx(lost.sum())
    assert set(rows.cause) == {"slowed"}

    capped = np.concatenate([window.facility_kw for window in dark.run.windows])[24:72]
    assert capped.max() <= 0.6 * plain.run.windows[0].facility_kw[24:72].min() * (1.0 + 1e-6)

    def paid(result: Any, account: str) -> Any:
        return (
            result.ledger_table().query(f"account == '{account}'").groupby("month").amount_usd.sum()
        )

    assert (paid(dear, "energy") / paid(plain, "energy")).tolist() == pytest.approx(
        [1.0, 1.5], rel=1e-4
    )
    assert (paid(dear, "cooling") / paid(plain, "cooling")).tolist() == pytest.approx(
        [1.0, 0.5], rel=1e-4
    )

    overwhelmed = scenario_of(QUIET, {"workloads": {"chat": {"requests_per_s": 1200}}})
    missed = (
        simulate(overwhelmed, processes=[darker])
        .slo_misses()
        .groupby("cause")
        .missed_requests.sum()
    )
    before = simulate(overwhelmed).slo_misses().groupby("cause").missed_requests.sum()
    assert missed["process"] > 0.0 == before["process"]
    assert missed["power_cap"] == 0.0
    assert (missed - before).drop("process").abs().max() <= 1e-6 * missed.sum()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda world: world.slow("h200", 0.0, 5), "0.0 is not a fraction"),
        (
            lambda world: world.slow("h200", 0.5, 5, "chats"),
            "no workload is called 'chats'; did you mean chat?",
        ),
        (lambda world: world.curtail(-1.0, 5), "-1.0 kW is not a limit"),
        (lambda world: world.add_demand("chat", 1.0, 0.0), "0.0 hours from now"),
        (lambda world: world.add_demand("chat", float("inf"), 5), "inf requests/s cannot be added"),
        (lambda world: world.reprice("energy", float("inf")), "inf is not a factor of a price"),
        (lambda world: sys.exit(0), "failed at hour 1: SystemExit: 0"),
        (
            lambda world: world.reprice("enrgy", 2.0),
            "no price is of the account 'enrgy'; did you mean energy?",
        ),
    ],
)
def test_what_no_process_can_do_is_refused(
    call: Callable[[SimulationContext], None], words: str
) -> None:
    def wrong(world: SimulationContext) -> Steps:
        yield world.timeout(1.0)
        call(world)

    with pytest.raises(ScenarioError, match=words):
        run_engine(plan_of(QUIET), 1, processes=[wrong])
