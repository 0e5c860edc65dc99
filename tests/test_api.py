"""What a command does, a function does: the same bytes in the folder, and an answer to look at."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import planner as library
from planner.answers.ranking import RankedPlan, frontier
from planner.api import Stopped
from planner.errors import ScenarioError
from planner.studies.sweep import axis_text, parse_axis
from tests.conftest import Planner, WriteScenario, files_of

STUDY = """\
name: doubts
scenarios: {plan: {extends: tiny.yaml}, rival: {extends: tiny.yaml, set: {clusters: {mi325x: {nodes: 6}}}}}
uncertain: {clusters.h200.accelerator_price_usd: {kind: uniform, low: 20000, high: 40000}}
"""
SET = ("--set", "horizon_months=2")
LAID = ["horizon_months=2"]
VARY = ("--vary", "clusters.h200.nodes=2:4:2", "--vary", "site.pue_ratio=1.1,1.4")

Verb = Callable[[], Any]
CASES: dict[str, tuple[tuple[str, ...], Verb]] = {
    "run": (
        ("run", "tiny.yaml", *SET, "-n", "2", "--hourly", "--seed", "7"),
        lambda: library.run("tiny.yaml", "verb", overrides=LAID, replications=2, hourly=True,
                            seed=7),
    ),
    "run of a loaded scenario": (
        ("run", "tiny.yaml", *SET, "--set", "seed=3", "--replications", "1"),
        lambda: library.run(library.load("tiny.yaml", LAID), "verb", overrides=["seed=3"], replications=1),
    ),
    "compare": (
        ("compare", "tiny.yaml", "other.yaml", "--baseline", "other.yaml", *SET, "-n", "2"),
        lambda: library.compare(["tiny.yaml", Path("other.yaml")], "verb", baseline="other.yaml", overrides=LAID,
                                replications=2),
    ),
    "sweep": (
        ("sweep", "tiny.yaml", *VARY, *SET),
        lambda: library.sweep("tiny.yaml", VARY[1::2], "verb", overrides=LAID),
    ),
    "study": (
        ("montecarlo", "doubts.yaml", "-n", "4", "--workers", "1", *SET),
        lambda: library.study("doubts.yaml", 4, "verb", workers=1, overrides=LAID),
    ),
    "tornado": (
        ("sensitivity", "few.yaml", "-n", "4", "--workers", "1", *SET),
        lambda: library.study("few.yaml", 4, "verb", method="tornado", workers=1, overrides=LAID),
    ),
}  # fmt: skip


@pytest.fixture
def plans(write: WriteScenario) -> None:
    write()
    write("extends: tiny.yaml\nname: other\nclusters: {mi325x: {nodes: 5}}\n", "other.yaml")
    write(STUDY, "doubts.yaml")
    write(f"{STUDY}throughput_error: false\n", "few.yaml")


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("name", CASES)
def test_a_verb_writes_what_its_command_writes(name: str, planner: Planner, tmp_path: Path) -> None:
    words, verb = CASES[name]
    told = planner(*words, "--out", "command")
    assert told.code == 0, told.err
    answer = verb()
    assert answer.folder == Path("verb")
    written = files_of(tmp_path / "verb")
    assert written == files_of(tmp_path / "command")
    assert len(written) > 5
    has_page = words[0] in ("run", "compare", "montecarlo", "size")
    more = "/report.html; more: -v" if has_page else ""
    assert told.out == f"{answer}\nresults in command{more}\n"
    assert len(repr(answer)) < 200
    assert len(answer.table())
    for table in answer.tables:
        assert len(answer.table(table).columns) > 1
    (tmp_path / "verb" / "report.html").write_text("lost")
    assert library.report("verb") == Path("verb/report.html")
    assert files_of(tmp_path / "verb") == written
    if name == "compare":
        assert planner("report", "command").code == 0
        assert files_of(tmp_path / "command") == written


def test_a_scenario_is_a_path_a_dict_or_a_scenario(write: WriteScenario, tiny: str) -> None:
    path = write()
    loaded = library.load(path)
    content = yaml.safe_load(tiny)
    for given in (str(path), content, {**content, "start": "2026-01-01"}, loaded):
        assert library.load(given).model_dump() == loaded.model_dump()
    assert library.load(loaded) is loaded
    assert (
        library.load({"extends": str(path), "clusters": {"h200": {"nodes": np.int64(9)}}})
        .clusters["h200"]
        .nodes
        == 9
    )
    more = library.load(library.load(path, ["clusters.h200.nodes=5"]), "clusters.mi325x.nodes=6")
    assert more.document.overrides == ("clusters.h200.nodes=5", "clusters.mi325x.nodes=6")
    assert more.model_dump() == library.load(path, more.document.overrides).model_dump()
    assert loaded.clusters["h200"].nodes == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"name": "x", "start": {1: 2}}, "start: is a dict; a scenario holds text, numbers, dates"),
        (
            {"name": "x", "clusters": {"h200": {"nodes": {4, 5}}}},
            r"clusters\.h200\.nodes: is a set",
        ),
        ({"name": "x", "nods": 1}, "dict: nods: unknown key"),
        ({"extends": "nowhere.yaml"}, "dict: extends: no such file: nowhere.yaml"),
        ({}, "name: is required"),
    ],
)
def test_a_dict_that_is_no_scenario_is_refused_by_its_path(
    content: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        library.load(content)


def test_a_dict_that_holds_itself_is_refused() -> None:
    content: dict[str, Any] = {"name": "x"}
    content["site"] = content
    with pytest.raises(ScenarioError, match="too deep"):
        library.load(content)


def test_a_dict_has_no_command_that_runs_it_again(
    tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = library.run({**yaml.safe_load(tiny), "horizon_months": 2}, replications=1)
    assert answer.folder == Path("outputs/tiny")
    manifest = yaml.safe_load((answer.folder / "manifest.json").read_text())
    assert (manifest["scenario_file"], manifest["command"]) == ("", [])
    assert (
        "Run this command in the same folder as before"
        not in (answer.folder / "report.html").read_text()
    )
    assert "start,2026-01-01,,dict,,user" in (answer.folder / "assumptions.csv").read_text()


def test_what_is_public_is_listed() -> None:
    functions = {
        "actuals",
        "compare",
        "explain",
        "init",
        "load",
        "memo",
        "replay",
        "report",
        "run",
        "simulate",
        "size",
        "study",
        "sweep",
    }
    functions |= {"zoom"}
    assert set(dir(library)) == {*functions, "RunResult", "__version__"}
    assert all(
        callable(getattr(library, name)) and getattr(library, name).__doc__ for name in functions
    )
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        library.nothing  # noqa: B018 - the asking is what is tested


def test_a_function_keeps_its_name_when_the_room_of_that_name_is_loaded() -> None:
    loads = "import planner.run.simulate, planner; print(planner.run, planner.actuals)"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert done.stdout.count("<function ") == 2


def test_values_of_python_are_those_of_the_command_line() -> None:
    day = datetime.date(2026, 3, 1)
    text = axis_text("a", [1, 2.5, np.float64(0.1), True, day, "h200", "1", "x, y", [1, 2], None])
    assert text == 'a=1,2.5,0.1,true,2026-03-01,h200,"1","x, y",[1, 2],null'
    assert axis_text("clusters.h200.nodes", range(2, 7, 2)) == "clusters.h200.nodes=2,4,6"
    assert axis_text("a", "0:4:2") == "a=0:4:2"
    assert parse_axis(axis_text("a", [1, 2])).values == ("1", "2")


def test_a_plan_that_costs_more_and_serves_less_is_beaten() -> None:
    figures = {
        "dear": (3.0, 0.99),
        "cheap": (1.0, 0.5),
        "twin": (1.0, 0.4),
        "mid": (2.0, 0.99),
        "same": (2.5, 0.9900004),
        "idle": (None, None),
    }
    plans = [RankedPlan(name=name, cost=cost, slo_attainment_fraction=kept, shed_fraction=0.0, lowest_fraction=kept,
                    shortfall_fraction=0.0)
             for name, (cost, kept) in figures.items()]  # fmt: skip
    assert [plan.name for plan in frontier(plans)] == ["cheap", "mid"]


@pytest.mark.usefixtures("plans")
def test_a_verb_refuses_what_makes_no_sense_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    for verb in (
        lambda: library.compare("tiny.yaml"),
        lambda: library.compare(["tiny.yaml"]),
        lambda: library.run("tiny.yaml", seed=-1),
        lambda: library.run("tiny.yaml", replications=-1),
        lambda: library.study("doubts.yaml", 0),
        lambda: library.study("doubts.yaml", scheduler="nowhere"),
        lambda: library.run("doubts.yaml"),
        lambda: library.sweep("tiny.yaml", {"clusters.h200.nods": [1]}),
        lambda: library.report(tmp_path),
    ):
        with pytest.raises(ScenarioError):
            verb()
    assert set(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("plans")
def test_a_study_that_is_stopped_lets_go_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Stopped, match=r"stopped with \d+ of 20 replications stored"):
        library.study("doubts.yaml", 20, workers=1, overrides=["horizon_months=2"], watch=stop)
    with pytest.raises(ScenarioError, match="holds an unfinished study"):
        library.study("doubts.yaml", 20, workers=1, overrides=["horizon_months=2"])
    done = library.study("doubts.yaml", 20, workers=1, overrides=["horizon_months=2"], resume=True)
    assert done.summary()["completed"] == 20


def test_a_plan_with_other_values_is_what_set_makes_of_it(write: WriteScenario) -> None:
    plan = library.load(write())
    other = plan.with_(
        {"clusters.h200.nodes": 9, "clusters.mi325x.online": "2026-03-01"}, horizon_months=4
    )
    same = library.load(
        write(), ["clusters.h200.nodes=9", "clusters.mi325x.online=2026-03-01", "horizon_months=4"]
    )
    assert other.model_dump() == same.model_dump()
    assert list(plan.with_(clusters={"h200": None}).clusters) == ["mi325x"]
    assert plan.clusters["h200"].nodes == 4
    with pytest.raises(ScenarioError, match="must be a whole number"):
        plan.with_({"clusters.h200.nodes": 2.5})


def test_frames_of_an_answer_know_their_units(write: WriteScenario, tmp_path: Path) -> None:
    answer = library.run(write(), tmp_path / "o", replications=1)
    units = answer.result.timeline_monthly().attrs["units"]
    assert units["cost_per_million_tokens_usd"] == "USD/million tokens"
    assert units["energy_kwh"] == "kWh"
    assert answer.result.statements("year").attrs["units"]["revenue_usd"] == "USD"
