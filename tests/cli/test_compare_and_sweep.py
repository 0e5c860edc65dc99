from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Planner, WriteScenario


@pytest.fixture
def other(write: WriteScenario) -> Path:
    write()
    return write("extends: tiny.yaml\nname: other\nclusters: {mi325x: null}\n", "other.yaml")


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


def test_settings_reach_every_scenario(planner: Planner, other: Path, tmp_path: Path) -> None:
    outcome = planner("compare", "tiny.yaml", "other.yaml", "--set", "horizon_months=2", "--seed", "7", "--out", "o",
                      "-q", "-n", "2")  # fmt: skip
    assert (outcome.code, outcome.out) == (0, "")
    content = (tmp_path / "o" / "comparison_monthly.csv").read_text(encoding="utf-8")
    assert content.startswith("month,scenario,")
    assert len(content.splitlines()) == 1 + 2 * 2
    manifest = json.loads((tmp_path / "o" / "manifest.json").read_text())
    assert (manifest["seed"], manifest["overrides"]) == (7, ["horizon_months=2"])


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


def test_sweep_as_json(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    write()
    outcome = planner("sweep", "tiny.yaml", "--vary", "seed=1,2", "--set", "horizon_months=1", "--json", "-q",
                      "--set", "clusters.mi325x=null", "--out", "o")  # fmt: skip
    rows = json.loads(outcome.out)
    assert [row["seed"] for row in rows] == [1, 2]
    assert rows[0]["cost_usd"] > 0
    assert (
        (tmp_path / "o" / "sweep.csv").read_text(encoding="utf-8").startswith("seed,availability")
    )
