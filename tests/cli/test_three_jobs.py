"""The jobs that people come with, from their files to their answers, every command counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TINY, Planner, WriteScenario
from tests.onramp.test_first_scenario import FLEET, QUOTES, log_text, series_text


class Counted:
    """The command line, each call of which succeeds and counts."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.calls = 0

    def __call__(self, *words: str) -> str:
        self.calls += 1
        outcome = self.planner(*words)
        assert outcome.code == 0, outcome.err
        return str(outcome.out)


def _capacity_planner(planner: Counted, effort: tuple[str, ...], growth: str) -> None:
    files = (
        "--log",
        "chat.csv",
        "--series",
        "hourly.csv",
        "--fleet",
        "owned.csv",
        "--quotes",
        "quotes.csv",
    )
    planner("init", "fleet", *files)
    owned = planner("run", "fleet.yaml", "--replications", "1")
    assert "Promise" in owned
    assert "first in 20" in owned or "SLO met" in owned  # when do we run out?
    sized = planner("size", "fleet.yaml", *effort)
    assert "Buy" in sized
    report = planner(
        "run", "outputs/fleet-size/plan.yaml", "--replications", "1", "--out", "outputs/plan"
    )
    assert "report.html" in report
    faster = planner("run", "outputs/fleet-size/plan.yaml", "--replications", "1", "--out", "outputs/faster",
                     "--set", f"workloads.chat.growth.per_year={growth}")  # fmt: skip
    assert "Promise" in faster
    planner("memo", "outputs/fleet-size")
    memo = Path("outputs/fleet-size/memo.md").read_text(encoding="utf-8")
    assert "Buy" in memo
    assert "kept in" in memo
    assert planner.calls <= 6


def _write_files(write: WriteScenario, owned: str, scale: int) -> None:
    series = series_text()
    if scale > 1:
        head, *rows = series.splitlines()
        stamped = [row.split(",") for row in rows]
        series = (
            "\n".join([head, *(f"{stamp},{float(rate) * scale:.3f}" for stamp, rate in stamped)])
            + "\n"
        )
    for name, text in {
        "chat.csv": log_text(), "hourly.csv": series, "owned.csv": owned, "quotes.csv": QUOTES
    }.items():  # fmt: skip
        write(text, name)


@pytest.mark.prove
def test_a_capacity_planner_of_1500_accelerators_needs_six_commands(
    planner: Planner, write: WriteScenario
) -> None:
    owned = (
        FLEET.replace("H200,6,", "H200,150,")
        .replace("H100,2,", "H100,38,")
        .replace("$1,800,000", "$45,000,000")
    )
    _write_files(write, owned, 120)
    _capacity_planner(Counted(planner), ("-n", "8", "--confirmations", "20"), "1.2")


@pytest.mark.prove
def test_a_small_capacity_planner_needs_six_commands(
    planner: Planner, write: WriteScenario
) -> None:
    _write_files(write, FLEET, 1)
    _capacity_planner(
        Counted(planner),
        ("-n", "2", "--confirmations", "2", "--workers", "1", "--gap", "0.5"),
        "1.2",
    )


def test_a_finance_analyst_needs_two_commands(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    """From a run's and a comparison's folder that somebody sent: which plan, what cash when, how costs reconcile."""
    write(TINY)
    write(TINY.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9"), "dear.yaml")
    assert planner("run", "tiny.yaml", "--replications", "1", "--out", "sent/run").code == 0
    assert planner("compare", "tiny.yaml", "dear.yaml", "--out", "sent/compare").code == 0
    (tmp_path / "tiny.yaml").unlink()  # only the folders were sent
    (tmp_path / "dear.yaml").unlink()
    analyst = Counted(planner)
    analyst("memo", "sent/run")
    analyst("memo", "sent/compare")
    assert analyst.calls <= 2
    run, compared = (
        (tmp_path / "sent" / name / "memo.md").read_text() for name in ("run", "compare")
    )
    assert "tiny costs least of the plans that are MET" in compared
    assert "| 2026 | $" in run
    assert "| = net present cost | " in run
