"""Every surface of one answer prints the same verdict, and what is named as a remedy is one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Planner

Write = Callable[..., Path]
STATUS = re.compile(r"\b(MET|MISSED|INCONCLUSIVE)\b")
BUSY = ("--set", "workloads.chat.requests_per_s=150", "--set", "clusters.mi325x.nodes=1")


def statuses(text: str, plan: str = "") -> set[str]:
    """Return the verdicts that a text states of a plan, or at all."""
    lines = [line for line in text.splitlines() if plan in line and "no alternative" not in line]
    return {status for line in lines for status in STATUS.findall(line.replace("that are MET", ""))}


@pytest.mark.parametrize(("nodes", "replications"), [(4, 19), (4, 3), (1, 19), (0, 1), (0, 4)])
def test_a_runs_surfaces_agree(planner: Planner, write: Write, tmp_path: Path, nodes: int, replications: int) -> None:
    write()
    words = ("--set", f"clusters.h200.nodes={nodes}", "-n", str(replications), "--out", "o", "--fail-on-miss")
    outcome = planner("run", "tiny.yaml", *BUSY, *words)
    record = json.loads((tmp_path / "o" / "summary.json").read_text())["verdict"]
    assert planner("memo", "o", "-q").code == 0
    for surface in (
        outcome.out,
        (tmp_path / "o" / "report.html").read_text(),
        (tmp_path / "o" / "memo.md").read_text(),
    ):
        assert statuses(surface) == {record["status"]}
    assert outcome.code == (0 if record["status"] == "MET" else 3)
    assert record["met_low_fraction"] <= record["met_fraction"] <= record["met_high_fraction"]
    assert (record["settled_by_replications"] is not None) == (record["status"] == "INCONCLUSIVE")


@pytest.mark.parametrize(
    "command", [("compare", "tiny.yaml", "small.yaml", "-n", "6"), ("montecarlo", "s.yaml", "-n", "8")]
)
def test_the_surfaces_of_several_plans_agree_and_none_recommends_what_is_not_met(
    planner: Planner, write: Write, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write()
    write("extends: tiny.yaml\nname: small\nclusters: {h200: {nodes: 0}, mi325x: {nodes: 0}}\n", "small.yaml")
    write("name: s\nscenarios:\n  tiny: {extends: tiny.yaml}\n  small: {extends: small.yaml}\n", "s.yaml")
    assert planner(*command, "--out", "o", "--fail-on-miss").code == 3  # too few replications for any MET
    outcome = planner(*command, "--out", "p", "--json")
    verdicts = json.loads(outcome.out)["verdicts"]
    assert {name: record["status"] for name, record in verdicts.items()} == {"tiny": "INCONCLUSIVE", "small": "MISSED"}
    assert planner("memo", "o", "-q").code == 0
    memo, page = (tmp_path / "o" / "memo.md").read_text(), (tmp_path / "o" / "report.html").read_text()
    assert "None of these plans is known to meet its SLO target" in memo
    assert "None of these plans is known to meet its SLO target" in page
    for text in (memo, page):
        assert "costs least of the plans" not in text
        assert "only one of these plans" not in text
        assert "does best" not in text
    assert "tiny: SLO INCONCLUSIVE at n = " in page
    assert statuses(memo, "| small |") == {"MISSED"}
    assert statuses(memo, "| tiny |") == {"INCONCLUSIVE"}


def test_a_remedy_that_is_named_meets_the_target_when_it_is_carried_out(
    planner: Planner, write: Write, tmp_path: Path
) -> None:
    write()
    short = (*BUSY, "--set", "clusters.h200.nodes=1", "--set", "workloads.chat.requests_per_s=900")
    outcome = planner("run", "tiny.yaml", *short, "--advise", "--out", "o")
    remedy = json.loads((tmp_path / "o" / "summary.json").read_text())["remedy"]
    assert f"{remedy['nodes']} more node" in " ".join(outcome.out.split())
    printed = re.search(r"--set (clusters\.\S+=\d+);", outcome.out)
    assert printed is not None
    assert printed[1] == f"clusters.{remedy['cluster']}.nodes={1 + remedy['nodes']}"  # each has one as stated
    more = (*short, "--set", printed[1], "--out", "p", "--fail-on-miss")
    assert planner("run", "tiny.yaml", *more).code == 0
