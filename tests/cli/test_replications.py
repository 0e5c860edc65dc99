"""Intervals of chance in what ``run`` and ``compare`` print and write."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import TINY, Planner, WriteScenario


def test_a_run_says_where_its_headline_lies(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    outcome = planner("run", write(), "--out", "out", "-v")
    assert "in nine of ten replications, inputs as stated: " in outcome.out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["replications"]["number"] == 19
    assert summary["replications"]["coverage_fraction"] == 0.9
    low, high = summary["replications"]["intervals"]["cost_per_million_tokens_usd"]
    assert low < high
    table = pd.read_csv(tmp_path / "out" / "measures.csv").set_index("measure")
    known = table.dropna(subset=["low"])
    assert ((known.low <= known.value) & (known.value <= known.high)).all()  # the run is one of the nineteen
    assert table.low["cost_per_million_tokens_usd"] == pytest.approx(low, abs=1e-6)
    assert table.low["capex_usd"] == table.high["capex_usd"]


def test_more_draws_are_said_in_percent_and_remembered(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    assert "in 67% of replications" in planner("run", write(), "--out", "out", "--replications", "5", "-v").out
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["replications"] == 5
    assert manifest["command"][-2:] == ["--replications", "5"]


def test_one_draw_has_no_interval(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    assert "replications, inputs" not in planner("run", write(), "--out", "out", "--replications", "1", "-v").out
    assert pd.read_csv(tmp_path / "out" / "measures.csv").low.isna().all()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["replications"] is None


def test_no_draw_at_all_is_refused(planner: Planner, write: WriteScenario) -> None:
    outcome = planner("run", write(), "--replications", "0")
    assert outcome.code == 2
    assert "--replications" in outcome.err


def test_a_comparison_holds_draw_against_draw(planner: Planner, write: WriteScenario, tmp_path: Path) -> None:
    """Two plans that differ by one price alone differ by the same sum in every draw, whatever chance does to each."""
    write()
    dear = TINY.replace("name: tiny", "name: dear", 1) + "finance: {operations_staff_per_1000_accelerators: 30}\n"
    outcome = planner("compare", "tiny.yaml", write(dear, "dear.yaml"), "--out", "out")
    assert outcome.code == 0, outcome.err
    said = " ".join(outcome.out.split())
    assert "in nine of ten replications, inputs as stated, against tiny: dear costs " in said
    assert re.search(r"dear costs [\d.]+%( to [\d.]+%)? more a token", said)
    assert "saves" not in said
    table = pd.read_csv(tmp_path / "out" / "comparison.csv")
    cost = table[table.measure == "cost_usd"].set_index("scenario")
    apart = cost.difference_high - cost.difference_low
    assert cost.high["dear"] > cost.low["dear"]
    assert apart["dear"] < 0.02 * (cost.high - cost.low)["dear"] + 0.05
    assert apart.isna()["tiny"]
