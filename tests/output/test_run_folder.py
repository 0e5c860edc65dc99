from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.answers.run import first_screen, run_answer, scenario_sha256, summary, write_run
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY

Write = Callable[..., Path]
FILES = [
    "assumptions.csv",
    "events.csv",
    "ledger.csv",
    "manifest.json",
    "summary.json",
    "timeline_monthly.csv",
]
COLUMNS = [
    "scenario", "month", "accelerators_in_service", "availability_fraction", "utilisation_fraction", "demand_tokens",
    "served_tokens", "shed_tokens", "energy_kwh", "cost_usd", "cost_per_million_tokens_usd",
]  # fmt: skip


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


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


def test_the_folder_holds_what_is_promised(folder: Path) -> None:
    assert set(FILES) <= {path.name for path in folder.iterdir()}
    assert list(table(folder / "timeline_monthly.csv")[0])[: len(COLUMNS)] == COLUMNS
    assert list(table(folder / "ledger.csv")[0])[:5] == [
        "scenario",
        "month",
        "cluster",
        "account",
        "amount_usd",
    ]


def test_what_would_mend_late_requests_is_tried_once_and_before_the_draws_are_awaited(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = simulate(load_scenario(write()), seed=3)
    tried: list[RunResult] = []

    def reasons(run: RunResult) -> list[dict[str, Any]]:
        tried.append(run)
        return []

    monkeypatch.setattr("planner.answers.run.worst_reasons", reasons)
    write_run(result, tmp_path / "out")
    assert summary(result)["slo_misses"] == []
    assert tried == [result]


def test_there_is_a_row_per_month_of_the_fleet_and_a_file_of_clusters(folder: Path) -> None:
    months = ["2026-01-01", "2026-02-01", "2026-03-01"]
    assert [row["month"] for row in table(folder / "timeline_monthly.csv")] == months
    keys = [
        (row["month"], row["cluster"]) for row in table(folder / "timeline_monthly_clusters.csv")
    ]
    assert keys == [(month, cluster) for month in months for cluster in ("h200", "mi325x")]


def test_every_dollar_of_the_timeline_is_the_sum_of_ledger_rows(folder: Path) -> None:
    posted: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for row in table(folder / "ledger.csv"):
        posted[row["month"], row["cluster"]] += Decimal(row["amount_usd"])
    total: dict[str, Decimal] = defaultdict(Decimal)
    for row in table(folder / "timeline_monthly_clusters.csv"):
        assert Decimal(row["cost_usd"]) == posted.get((row["month"], row["cluster"]), Decimal()), (
            row
        )
        total[row["month"]] += Decimal(row["cost_usd"])
    for row in table(folder / "timeline_monthly.csv"):
        shared = posted.get((row["month"], "site"), Decimal())
        assert Decimal(row["cost_usd"]) == total[row["month"]] + shared, row
    assert sum(total.values()) > 0


def test_a_token_costs_what_the_columns_beside_it_say(folder: Path) -> None:
    seen = 0
    for row in table(folder / "timeline_monthly.csv"):
        if row["cost_per_million_tokens_usd"]:
            per_million = float(row["cost_usd"]) / float(row["served_tokens"]) * 1e6
            assert float(row["cost_per_million_tokens_usd"]) == pytest.approx(
                per_million, rel=1e-6, abs=1e-6
            )
            seen += 1
    assert seen


def test_a_cluster_not_yet_delivered_serves_nothing(folder: Path) -> None:
    rows = table(folder / "timeline_monthly_clusters.csv")
    (row,) = [row for row in rows if (row["month"], row["cluster"]) == ("2026-01-01", "mi325x")]
    assert float(row["accelerators_in_service"]) == 0
    assert float(row["served_tokens"]) == 0
    assert row["cost_per_million_tokens_usd"] == row["availability_fraction"] == ""


def test_the_same_seed_writes_the_same_bytes(write: Write, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(simulate(load_scenario(write()), seed=3), tmp_path / name)
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "two")


def test_the_place_of_the_file_shows_in_the_command_alone(write: Write, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    found = []
    for name in ("tiny.yaml", "elsewhere/tiny.yaml"):
        path = write(name=name)
        write_run(simulate(load_scenario(path)), tmp_path / f"out-{len(name)}")
        files = folder_bytes(tmp_path / f"out-{len(name)}")
        report = files.pop("report.html")
        manifest = json.loads(files.pop("manifest.json"))
        del manifest["files"]["report.html"]
        named = (json.dumps(manifest).encode(), report)
        found.append(
            (files, [content.replace(str(path).encode(), b"tiny.yaml") for content in named])
        )
    assert found[0] == found[1]


def test_another_seed_writes_other_bytes(write: Write, tmp_path: Path, folder: Path) -> None:
    write_run(simulate(load_scenario(write()), seed=4), tmp_path / "other")
    ours = folder_bytes(folder)
    others = folder_bytes(tmp_path / "other")
    assert ours["timeline_monthly.csv"] != others["timeline_monthly.csv"]
    assert ours["manifest.json"] != others["manifest.json"]
    assert ours["assumptions.csv"] == others["assumptions.csv"]


def test_the_manifest_tells_runs_apart(write: Write, tmp_path: Path) -> None:
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


def test_the_hash_is_of_what_is_said_not_of_how(write: Write, tiny: str) -> None:
    plain = scenario_sha256(load_scenario(write()))
    assert scenario_sha256(load_scenario(write("# a remark\n" + tiny + "seed: 1\n"))) == plain
    assert scenario_sha256(load_scenario(write(tiny + "seed: 2\n"))) != plain
    write(tiny)
    top = write("extends: tiny.yaml\n", "top.yaml")
    assert scenario_sha256(load_scenario(top)) == plain


def test_the_summary_agrees_with_the_tables(result: RunResult, folder: Path) -> None:
    figures: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert figures == summary(result)
    rows = table(folder / "timeline_monthly.csv")
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
        lines = first_screen(summary(one)).splitlines()
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
        named = [line.split()[0] for line in lines[table + 2 : table + 2 + len(one.plan.clusters)]]
        assert named == [cluster.name for cluster in one.plan.clusters]
    answer = run_answer(root, result, None)
    assert answer.text(verbose=True).startswith(answer.text())
    assert "= net present cost" in answer.text(verbose=True)


def test_a_notebook_gets_frames(root: Path) -> None:
    from planner import simulate  # noqa: PLC0415 - as a notebook writes it
    from planner.api import load  # noqa: PLC0415 - as a notebook writes it
    from planner.run.simulate import RunResult  # noqa: PLC0415 - as a notebook writes it

    scenario = load(
        root / "scenarios" / "mixed-fleet.yaml", ["horizon_months=3", "clusters.b200-2027=null"]
    )
    outcome = simulate(scenario, seed=1)
    assert isinstance(outcome, RunResult)
    frame = outcome.timeline_monthly()
    assert list(frame.columns[: len(COLUMNS)]) == COLUMNS
    assert len(frame) == 3
    assert len(outcome.timeline_monthly(clusters=True)) == 3 * len(scenario.clusters)
    assert scenario.workloads["chat"].model == "llama-3.1-70b"
    assert outcome.ledger_table()["amount_usd"].sum() == pytest.approx(
        frame["cost_usd"].sum(), abs=0.005
    )
    assert {"time", "cluster", "event"} <= set(outcome.events().columns)
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        planner.simulat  # noqa: B018 - reading it is the test
