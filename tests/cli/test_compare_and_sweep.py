from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Planner = Callable[..., Any]
Write = Callable[..., Path]


@pytest.fixture
def other(write: Write) -> Path:
    write()
    return write("extends: tiny.yaml\nname: other\nclusters: {mi325x: null}\n", "other.yaml")


def test_compare_prints_a_table_and_writes_a_folder(
    planner: Planner, other: Path, tmp_path: Path
) -> None:
    outcome = planner("compare", "tiny.yaml", "other.yaml", "-v", "-n", "2")
    assert outcome.code == 0, outcome.err
    assert "simulating tiny\nsimulating other\n" in outcome.err
    assert "against tiny, by cause" in outcome.out
    assert outcome.out.endswith("results in outputs/tiny-vs-other/report.html; more: -v\n")
    assert (tmp_path / "outputs" / "tiny-vs-other" / "bridge.csv").exists()


@pytest.mark.parametrize("baseline", ["other", "other.yaml"])
def test_the_baseline_may_be_named_or_be_its_file(
    planner: Planner, other: Path, baseline: str
) -> None:
    outcome = planner(
        "compare", "tiny.yaml", "other.yaml", "--baseline", baseline, "--json", "-q", "-n", "2"
    )
    assert outcome.code == 0
    figures = json.loads(outcome.out)
    assert figures["baseline"] == "other"
    assert outcome.err == ""


def test_settings_and_formats_reach_every_scenario(
    planner: Planner, other: Path, tmp_path: Path
) -> None:
    outcome = planner("compare", "tiny.yaml", "other.yaml", "--set", "horizon_months=2", "--seed", "7", "--out", "o",
                      "--decimal-comma", "--bom", "-q", "-n", "2")  # fmt: skip
    assert (outcome.code, outcome.out) == (0, "")
    content = (tmp_path / "o" / "comparison_monthly.csv").read_text(encoding="utf-8")
    assert content.startswith("\ufeffmonth;scenario;")
    assert len(content.splitlines()) == 1 + 2 * 2
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert (manifest["seed"], manifest["overrides"]) == (7, ["horizon_months=2"])


def test_a_comparison_repeats_byte_for_byte(planner: Planner, other: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert (
            planner("compare", "tiny.yaml", "other.yaml", "--out", name, "-q", "-n", "3").code == 0
        )
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    )
    assert one == two


def test_what_cannot_be_compared_is_refused_before_any_work(
    planner: Planner, other: Path, tmp_path: Path
) -> None:
    planner("compare", "tiny.yaml").refused("a comparison needs two scenarios or more")
    planner("compare", "tiny.yaml", "tiny.yaml").refused("two scenarios are called 'tiny'")
    planner("compare", "tiny.yaml", "other.yaml", "--baseline", "nobody").refused(
        "no scenario is called 'nobody'"
    )
    planner("compare", "tiny.yaml", "missing.yaml").refused("missing.yaml")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    planner("compare", "tiny.yaml", "other.yaml", "--out", "mine").refused(
        "was not written by planner"
    )
    assert not (tmp_path / "outputs").exists()


def test_sweep_prints_a_table_and_writes_one_csv(
    planner: Planner, write: Write, tmp_path: Path
) -> None:
    write()
    outcome = planner("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=2:4:2", "--vary", "site.pue_ratio=1.1,1.5",
                      "--set", "horizon_months=1", "--set", "clusters.mi325x=null")  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "point 4 of 4" in outcome.err
    assert outcome.out.endswith("results in outputs/tiny-sweep\n")
    lines = (tmp_path / "outputs" / "tiny-sweep" / "sweep.csv").read_text().splitlines()
    assert lines[0].startswith("clusters.h200.nodes,site.pue_ratio,availability_fraction")
    assert [line.split(",")[:2] for line in lines[1:]] == [
        ["2", "1.1"],
        ["2", "1.5"],
        ["4", "1.1"],
        ["4", "1.5"],
    ]


def test_sweep_as_json_and_for_other_spreadsheets(
    planner: Planner, write: Write, tmp_path: Path
) -> None:
    write()
    outcome = planner("sweep", "tiny.yaml", "--vary", "seed=1,2", "--set", "horizon_months=1", "--json", "-q",
                      "--set", "clusters.mi325x=null", "--decimal-comma", "--bom", "--out", "o")  # fmt: skip
    rows = json.loads(outcome.out)
    assert [row["seed"] for row in rows] == [1, 2]
    assert rows[0]["cost_usd"] > 0
    assert (
        (tmp_path / "o" / "sweep.csv")
        .read_text(encoding="utf-8")
        .startswith("\ufeffseed;availability")
    )


@pytest.mark.parametrize(
    ("vary", "parts"),
    [
        (
            ["clusters.h200.nodes=0:99999:1", "seed=1:100:1"],
            ["100,000 × 100 = 10,000,000 points", "--yes"],
        ),
        (["clusters.h200.nodess=1,2"], ["clusters.h200.nodess", "did you mean nodes?"]),
        (["clusters.h200.nodes=1,-2"], ["clusters.h200.nodes", "-2"]),
        (["clusters.h200.nodes"], ["is not of the form"]),
        (["seed=1,2", "seed=3,4"], ["seed is varied twice"]),
    ],
)
def test_a_sweep_that_cannot_be_meant_is_refused(
    planner: Planner, write: Write, tmp_path: Path, vary: list[str], parts: list[str]
) -> None:
    write()
    options = [option for text in vary for option in ("--vary", text)]
    planner("sweep", "tiny.yaml", *options).refused(*parts)
    assert not (tmp_path / "outputs").exists()
