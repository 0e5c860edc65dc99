from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ScenarioError
from planner.finance.accounting.measures import measures
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.studies.sweep import (
    SweepWork,
    check_values,
    count_points,
    parse_axes,
    parse_axis,
    sweep,
)
from tests.conftest import Planner, WriteScenario


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("clusters.h200.nodes=0:128:64", ("0", "64", "128")),
        ("a=0:10:4", ("0", "4", "8")),
        ("a=3:1:-1", ("3", "2", "1")),
        ("a=0.1:0.3:0.1", ("0.1", "0.2", "0.3")),
        ("a=5:5:1", ("5",)),
        ("a=1e-1:2e-1:5e-2", ("0.10", "0.15", "0.20")),
        ("a=x,y", ("x", "y")),
        ("a= 1 , 2 ", ("1", "2")),
        ("a=[1, 2],[3]", ("[1, 2]", "[3]")),
        ("a={x: 1, y: 2},null", ("{x: 1, y: 2}", "null")),
        ("a=2026-01-01,2026-07-01", ("2026-01-01", "2026-07-01")),
    ],
)
def test_an_axis_is_a_range_with_its_end_or_a_list(text: str, values: tuple[str, ...]) -> None:
    axis = parse_axis(text)
    assert axis.path == text.partition("=")[0]
    assert axis.values == values


@given(
    start=st.integers(-1000, 1000),
    count=st.integers(1, 200),
    step=st.decimals("0.001", "50", places=3),
)
def test_a_range_is_exact_and_inclusive(start: int, count: int, step: Decimal) -> None:
    stop = start + step * (count - 1)
    values = parse_axis(f"a={start}:{stop}:{step}").values
    assert len(values) == count
    assert [Decimal(value) for value in values] == [start + step * k for k in range(count)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes", "is not of the form path=start:stop:step or path=a,b,c"),
        ("=1,2", "is not of the form"),
        ("a=", "is not of the form"),
        ("a=1:2:0", "whose step never reaches its stop"),
        ("a=1:2:-1", "whose step never reaches its stop"),
        ("a=x:2:1", "not all numbers"),
        ("a=1:inf:1", "an infinite range"),
        ("a=nan:2:1", "an infinite range"),
        ("a=1,,2", "has an empty value"),
        ("a=1,2,1", "names a value twice"),
        ("a=0:1e12:1", "1,000,000,000,001 values"),
    ],
)
def test_an_axis_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message.replace("(", r"\(")) as caught:
        parse_axis(text)
    assert "clusters.h200.nodes=0:128:16" in str(caught.value)


def test_a_key_is_varied_once() -> None:
    with pytest.raises(ScenarioError, match="seed is varied twice"):
        parse_axes(["seed=1,2", "clusters.h200.nodes=1,2", "seed=3,4"])


def test_a_sweep_that_would_not_end_is_refused_with_its_size() -> None:
    texts = ["a=1:1000:1", "b=1:100:1", "c=1:100:1"]
    assert count_points(parse_axes(texts[:2])) == 10**5
    with pytest.raises(ScenarioError, match=r"1,000 × 100 × 100 = 10,000,000 points"):
        parse_axes(texts)


def test_wrong_keys_and_values_are_all_found_before_any_run(write: WriteScenario) -> None:
    axes = parse_axes(
        ["clusters.h200.nods=1,2", "finance.residual_fraction=0.5,1.5", "horizon_months=0:3:1"]
    )
    with pytest.raises(ScenarioError) as caught:
        check_values(write(), axes)
    text = str(caught.value)
    assert "did you mean nodes?" in text
    assert "finance.residual_fraction" in text
    assert "horizon_months" in text


@pytest.mark.parametrize(
    "vary",
    [
        ["clusters.h200.nodes=2,4", "site.pue_ratio=1.1,1.4"],
        ["workloads.chat.requests_per_s=300,2000", "clusters.h200.nodes=1,3"],
        ["workloads.chat.slo.ttft_s=0.5,5", "finance.discount_rate_per_year=0.05,0.2"],
        ["catalog.assumptions=measured,articles-2024", "clusters.h200.discount_fraction=0,0.3"],
        ["software.incident_multiplier=0,9", "reliability.failure_multiplier=0,9"],
        ["clusters.h200.throughput_multiplier=0.5,2", "seed=1,2"],
    ],
)
def test_every_combination_is_its_own_run(write: WriteScenario, vary: list[str]) -> None:
    path = write()
    axes = parse_axes(vary)
    seed = None if axes[1].path == "seed" else 5
    points = sweep(load_scenario(path, ["horizon_months=2"]), axes, seed)
    assert [point.values for point in points] == list(
        itertools.product(axes[0].values, axes[1].values)
    )
    for point in points:
        settings = [f"{axis.path}={value}" for axis, value in zip(axes, point.values, strict=True)]
        alone = measures(simulate(load_scenario(path, ["horizon_months=2", *settings]), seed=seed))
        assert point.figures is not None
        assert {name: point.figures[name] for name in alone} == alone, settings


def test_a_combination_that_contradicts_itself_is_reported_and_the_rest_runs(
    write: WriteScenario,
) -> None:
    axes = parse_axes(["horizon_months=1,2", "clusters.mi325x.online=2026-01-15,2026-02-10"])
    points = sweep(write(), axes)
    assert [bool(point.problem) for point in points] == [False, True, False, False]
    assert "2026-02-10 is after the end" in points[1].problem
    assert points[1].figures is None


def test_a_sweep_that_was_stopped_goes_on_with_the_points_it_has(
    write: WriteScenario, tmp_path: Path
) -> None:
    path = write()
    axes = parse_axes(["clusters.h200.nodes=2:5:1"])
    scenario = load_scenario(path)
    wanted = sweep(path, axes)

    def stop(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    work = SweepWork(tmp_path / "o", scenario, axes, (), 1)
    work.open(resume=False, restart=False)
    with pytest.raises(KeyboardInterrupt):
        sweep(path, axes, progress=stop, work=work)
    work.close()
    with pytest.raises(
        ScenarioError, match=r"holds an unfinished sweep \(continue it with --resume"
    ):
        SweepWork(tmp_path / "o", scenario, axes, (), 1).open(resume=False, restart=False)
    with pytest.raises(ScenarioError, match="another version of this sweep: the seed changed"):
        SweepWork(tmp_path / "o", scenario, axes, (), 2).open(resume=True, restart=False)
    journal = tmp_path / "o" / "shards" / "points.jsonl"
    lines = journal.read_bytes().splitlines()
    assert len(lines) == 2
    journal.write_bytes(
        lines[0] + b"\n" + lines[1].replace(b"cost", b"most", 1) + b"\n" + lines[1][:40]
    )
    work = SweepWork(tmp_path / "o", scenario, axes, (), 1)
    work.open(resume=True, restart=False)
    assert list(work.points) == [("2",)]
    assert "has 2 damaged lines" in work.notes[0]
    ran: list[int] = []
    assert sweep(path, axes, progress=ran.append, work=work) == wanted
    assert ran == [1, 2, 3]
    work.close()


def test_a_scenario_edited_during_a_sweep_changes_none_of_its_points(
    write: WriteScenario, tiny: str
) -> None:
    path = write()
    axes = parse_axes(["clusters.h200.nodes=2:3:1"])
    wanted = sweep(path, axes)

    def edit(_: int) -> None:
        path.write_text(tiny.replace("requests_per_s: 5", "requests_per_s: 9"))

    assert sweep(path, axes, progress=edit) == wanted


def test_two_processes_give_the_points_of_one(write: WriteScenario) -> None:
    axes = parse_axes(["horizon_months=1,2", "clusters.mi325x.online=2026-01-15,2026-02-10"])
    seen: list[int] = []
    points = sweep(write(), axes, progress=seen.append, workers=2)
    assert points == sweep(write(), axes)
    assert [bool(point.problem) for point in points] == [False, True, False, False]
    assert seen == [0, 1, 2, 3]


def test_the_command_goes_on_to_the_same_bytes(
    planner: Planner, write: WriteScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    words = ("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=2:4:1")
    assert planner(*words, "--out", "whole").code == 0
    real = SweepWork.write

    def stopped(self: SweepWork, point: Any) -> None:
        real(self, point)
        if point["values"] == ("3",):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SweepWork, "write", stopped)
        cut = planner(*words, "--out", "o")
    assert cut.code == 130
    assert "continue with:\n  planner sweep" in cut.err
    planner(*words, "--out", "o").refused("holds an unfinished sweep")
    planner("run", "tiny.yaml", "--out", "o").refused(
        "is not finished, and will not be overwritten"
    )
    done = planner(*words, "--out", "o", "--resume")
    assert done.code == 0
    assert "point 1 of 3" not in done.err
    for name in ("sweep.csv", "report.html", "manifest.json"):
        assert (tmp_path / "o" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
