"""Every surface of one answer prints the same verdict, and what is named as a remedy is one."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tests.answers.hand_made import without_badges
from tests.conftest import Planner, WriteScenario

STATUS = re.compile(r"\b(MET|MISSED|INCONCLUSIVE)\b")


def statuses(text: str, plan: str = "") -> set[str]:
    """Return the verdicts that a text states of a plan, or at all."""
    lines = [line for line in text.splitlines() if plan in line and "no alternative" not in line]
    return {status for line in lines for status in STATUS.findall(line.replace("that are MET", ""))}


def random_plan(seed: int) -> tuple[list[str], int]:
    """Return the overrides of a plan drawn at random, from idle to far too small, and its replications."""
    draw = random.Random(seed)
    settings = {
        "workloads.chat.requests_per_s": draw.choice([5, 60, 150, 400, 1500]),
        "clusters.h200.nodes": draw.randint(1, 5),
        "clusters.mi325x.nodes": draw.randint(0, 3),
        "slo_target.attainment": draw.choice([0.9, 0.98, 0.999]),
        "finance.discount_rate_per_year": draw.choice([0.0, 0.1]),
        "finance.tax": draw.choice(["null", "{rate_fraction: 0.25}"]),
    }
    return [
        word for path, value in settings.items() for word in ("--set", f"{path}={value}")
    ], draw.choice([1, 3, 19])


@pytest.mark.parametrize(
    "seed", [1, 2, 3, 6, *(pytest.param(seed, marks=pytest.mark.prove) for seed in (0, 4, 7, 8))]
)
def test_a_random_plans_surfaces_agree_and_its_sums_add_up(
    planner: Planner, write: WriteScenario, tmp_path: Path, seed: int
) -> None:
    write()
    settings, number = random_plan(seed)
    outcome = planner(
        "run", "tiny.yaml", *settings, "-n", number, "--advise", "--out", "o", "--fail-on-miss"
    )
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    record = summary["verdict"]
    assert planner("memo", "o", "-q").code == 0
    for text in (
        outcome.out,
        *((tmp_path / "o" / name).read_text() for name in ("report.html", "memo.md")),
    ):
        assert statuses(text) == {record["status"]}
    assert outcome.code == (0 if record["status"] == "MET" else 3)
    assert record["met_low_fraction"] <= record["met_fraction"] <= record["met_high_fraction"]
    assert (record["settled_by_replications"] is not None) == (record["status"] == "INCONCLUSIVE")
    so_far = 0
    for step in summary["reconciliation"]:
        cents = round(100 * step["amount_usd"])
        so_far = cents if step["kind"] == "sum" and cents == so_far else so_far + cents
        assert step["kind"] == "item" or cents == so_far, step
    for low, high in (summary["replications"] or {"intervals": {}})["intervals"].values():
        assert low <= high
    if (remedy := summary.get("remedy")) is not None and remedy["cluster"] is not None:
        more = (
            "--set",
            f"clusters.{remedy['cluster']}.nodes={remedy['nodes_in_all']}",
            "--out",
            "p",
            "--fail-on-miss",
        )
        assert (
            planner("run", "tiny.yaml", *settings, *more).code == 0
        )  # 19 replications unless stated


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "tiny.yaml", "small.yaml", "-n", "6"),
        ("montecarlo", "s.yaml", "-n", "8", "--workers", "1"),
    ],
)
def test_the_surfaces_of_several_plans_agree_and_none_recommends_what_is_not_met(
    planner: Planner, write: WriteScenario, tmp_path: Path, command: tuple[str, ...]
) -> None:
    write()
    write(
        "extends: tiny.yaml\nname: small\nclusters: {h200: {nodes: 0}, mi325x: {nodes: 0}}\n",
        "small.yaml",
    )
    write(
        "name: s\nscenarios:\n  tiny: {extends: tiny.yaml}\n  small: {extends: small.yaml}\n",
        "s.yaml",
    )
    outcome = planner(*command, "--out", "o", "--fail-on-miss", "--json")
    assert outcome.code == 3  # too few replications for any MET
    verdicts = json.loads(outcome.out)["verdicts"]
    assert {name: record["status"] for name, record in verdicts.items()} == {
        "tiny": "INCONCLUSIVE",
        "small": "MISSED",
    }
    assert planner("memo", "o", "-q").code == 0
    memo = (tmp_path / "o" / "memo.md").read_text()
    page = (tmp_path / "o" / "report.html").read_text()
    assert "None of these plans is known to meet its SLO target" in memo
    assert "None of these plans is known to meet its SLO target" in page
    for text in (memo, page):
        assert "costs least of the plans" not in text
        assert "only one of these plans" not in text
        assert "does best" not in text
    assert "tiny: SLO INCONCLUSIVE at n = " in without_badges(page)
    assert statuses(memo, "| small |") == {"MISSED"}
    assert statuses(memo, "| tiny |") == {"INCONCLUSIVE"}
