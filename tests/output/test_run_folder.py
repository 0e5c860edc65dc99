from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.answers.run import run_answer, write_run
from planner.answers.run_screen import first_screen
from planner.answers.run_summary import run_summary
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY, WriteScenario, csv_rows, files_of


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    path = tmp_path_factory.mktemp("run") / "tiny.yaml"
    path.write_text(TINY)
    return simulate(load_scenario(path), seed=3)


@pytest.fixture(scope="module")
def folder(result: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests read it and leave it as it is."""
    target = tmp_path_factory.mktemp("run") / "out"
    write_run(result, target)
    return target


def test_every_dollar_of_the_timeline_is_the_sum_of_ledger_rows(folder: Path) -> None:
    posted: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for row in csv_rows(folder / "ledger.csv"):
        posted[row["month"], row["cluster"]] += Decimal(row["amount_usd"])
    total: dict[str, Decimal] = defaultdict(Decimal)
    for row in csv_rows(folder / "timeline_monthly_clusters.csv"):
        assert Decimal(row["cost_usd"]) == posted.get((row["month"], row["cluster"]), Decimal()), (
            row
        )
        total[row["month"]] += Decimal(row["cost_usd"])
    for row in csv_rows(folder / "timeline_monthly.csv"):
        shared = posted.get((row["month"], "site"), Decimal())
        assert Decimal(row["cost_usd"]) == total[row["month"]] + shared, row
    assert sum(total.values()) > 0


def test_a_token_costs_what_the_columns_beside_it_say(folder: Path) -> None:
    seen = 0
    for row in csv_rows(folder / "timeline_monthly.csv"):
        if row["cost_per_million_tokens_usd"]:
            per_million = float(row["cost_usd"]) / float(row["served_tokens"]) * 1e6
            assert float(row["cost_per_million_tokens_usd"]) == pytest.approx(
                per_million, rel=1e-6, abs=1e-6
            )
            seen += 1
    assert seen


def test_the_place_of_the_file_shows_in_the_command_alone(
    write: WriteScenario, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    found = []
    for name in ("tiny.yaml", "elsewhere/tiny.yaml"):
        path = write(name=name)
        write_run(simulate(load_scenario(path)), tmp_path / f"out-{len(name)}")
        files = files_of(tmp_path / f"out-{len(name)}")
        report = files.pop("report.html")
        manifest = json.loads(files.pop("manifest.json"))
        del manifest["files"]["report.html"]
        named = (json.dumps(manifest).encode(), report)
        found.append(
            (files, [content.replace(str(path).encode(), b"tiny.yaml") for content in named])
        )
    assert found[0] == found[1]


def test_the_manifest_tells_runs_apart(write: WriteScenario, tmp_path: Path) -> None:
    overlay = "accelerators: {H200: {idle_w: {value: %d, source: our meter, grade: A}}}\n"
    manifests = []
    for watts in (100, 101):
        write(overlay % watts, "own.yaml")
        scenario = load_scenario(write(), [f"catalog.overlay={tmp_path / 'own.yaml'}"])
        write_run(simulate(scenario), tmp_path / "out")
        manifests.append(json.loads((tmp_path / "out" / "manifest.json").read_text()))
    first, second = manifests
    assert first["scenario_sha256"] == second["scenario_sha256"]
    assert first["catalog"]["sha256"] != second["catalog"]["sha256"]
    assert (first["version"], first["overrides"]) == (
        planner.__version__,
        [f"catalog.overlay={tmp_path / 'own.yaml'}"],
    )


def test_the_summary_agrees_with_the_tables(result: RunResult, folder: Path) -> None:
    figures: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert figures == run_summary(result).to_json()
    rows = csv_rows(folder / "timeline_monthly.csv")
    fleet = figures["clusters"]["fleet"]
    assert fleet["cost_usd"] == pytest.approx(
        sum(float(row["cost_usd"]) for row in rows), abs=0.005
    )
    assert fleet["served_tokens"] == pytest.approx(
        sum(float(row["served_tokens"]) for row in rows), abs=3
    )
    assert fleet["energy_kwh"] == pytest.approx(
        sum(float(row["energy_kwh"]) for row in rows), abs=0.01
    )
    assert 0 <= fleet["shed_fraction"] <= 1
    assert set(figures["clusters"]) == {"fleet", "h200", "mi325x"}


def test_the_first_screen_answers_in_24_lines_of_80_columns(result: RunResult, root: Path) -> None:
    reference = simulate(
        load_scenario(root / "scenarios" / "mixed-fleet.yaml", ["horizon_months=13"])
    )
    for one in (result, reference):
        answer = run_answer(root, one, None)
        lines = first_screen(run_summary(one)).splitlines()
        assert all(len(line) <= 80 for line in answer.text().splitlines())
        assert len(lines) <= 20  # below them stand verdict, intervals and where the files are
        words = "\n".join(lines)
        assert answer.text().startswith(words)
        for word in (
            "SLO ",
            "COST ",
            "levelised",
            "NPC",
            "capex",
            "P&L cost",
            "headroom",
            "W peak",
            "SLO low",
        ):
            assert word in words, word
        table = next(number for number, line in enumerate(lines) if line.startswith("cluster"))
        named = [line.split()[0] for line in lines[table + 1 : table + 1 + len(one.plan.clusters)]]
        assert named == [cluster.name for cluster in one.plan.clusters]
    answer = run_answer(root, result, None)
    assert answer.text(verbose=True).startswith(answer.text())
    assert "= net present cost" in answer.text(verbose=True)
