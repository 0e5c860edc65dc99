"""The workbooks of comparisons, sweeps and studies hold what their CSV files hold, with percentiles by month."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.answers.plan_workbooks import BANDS_SHEET
from planner.run.simulate import simulate, simulate_plan
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario, csv_rows
from tests.output.office import Sheet, sheets_of
from tests.studies.conftest import SMALL

SOLD = "    token_price: {input_usd_per_million_tokens: 3, output_usd_per_million_tokens: 90}\n"


def workbook(folder: Path) -> dict[str, Sheet]:
    return sheets_of((folder / "workbook.xlsx").read_bytes())


def test_a_comparison_has_its_plans_side_by_side_and_percentiles_by_month(
    planner: Planner, write: WriteScenario, tiny: str, tmp_path: Path
) -> None:
    write(tiny.replace("clusters:", SOLD + "clusters:"))
    write("extends: tiny.yaml\nname: other\nclusters: {mi325x: null}\n", "other.yaml")
    done = planner("compare", "tiny.yaml", "other.yaml", "--out", "o", "--replications", "4", "-q")
    assert done.code == 0, done
    sheets = workbook(tmp_path / "o")
    assert list(sheets) == [
        "Charts", "Comparison", "Bridge, per token", "Bridge, accounts", BANDS_SHEET,
        "Statements", "Timeline", "Assumptions",
    ]  # fmt: skip
    assert sheets["Comparison"][0] == ["Measure", "Unit", "tiny", "other", "other less tiny"]
    told = {
        (row["scenario"], row["measure"]): row["value"]
        for row in csv_rows(tmp_path / "o" / "comparison.csv")
    }
    levelised = next(
        row for row in sheets["Comparison"] if row[0] == "Levelised cost per million tokens"
    )
    for name, value in zip(("tiny", "other"), levelised[2:4], strict=True):
        assert value == pytest.approx(
            float(told[name, "levelised_cost_per_million_tokens_usd"]), abs=1e-6
        )
    assert levelised[4] == pytest.approx(levelised[3] - levelised[2])
    rows = csv_rows(tmp_path / "o" / "bridge_accounts.csv")
    bridge = [row[5] for row in sheets["Bridge, accounts"][1:]]
    assert bridge == pytest.approx([float(row["difference_usd"]) for row in rows], abs=1e-6)
    plan = simulate(load_scenario("tiny.yaml"))
    again = [
        plan,
        *(simulate_plan(plan.scenario, plan.plan, plan.seed, chance) for chance in (1, 2, 3)),
    ]
    cost = np.array([result.cost_cents().sum(axis=1) / 100 for result in again])
    expected = np.percentile(cost, [10, 50, 90], axis=0, method="median_unbiased")
    own = [row for row in sheets[BANDS_SHEET][2:] if (row[0], row[1]) == ("tiny", "Cost, USD")]
    assert [row[2] for row in own] == ["2026-01", "2026-02", "2026-03"]
    np.testing.assert_allclose(
        np.array([row[4:7] for row in own], dtype=float).T, expected, rtol=1e-12
    )
    assert {row[1] for row in sheets[BANDS_SHEET][2:]} == {
        "Cost, USD",
        "Served tokens",
        "Revenue, USD",
    }
    assert all(row[2] > 0 for row in sheets["Statements"][2:])  # revenue


def test_a_run_s_workbook_has_percentiles_by_month_where_it_was_drawn_again(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    for draws, is_there in ((1, False), (3, True)):
        assert (
            planner("run", "tiny.yaml", "--out", f"o{draws}", "--replications", draws, "-q").code
            == 0
        )
        assert (BANDS_SHEET in workbook(tmp_path / f"o{draws}")) == is_there


def test_a_sweep_has_every_point_with_every_measure(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    done = planner("sweep", "tiny.yaml", "--vary", "clusters.h200.nodes=2,4", "--out", "o", "-q")
    assert done.code == 0, done
    sheets = workbook(tmp_path / "o")
    told = csv_rows(tmp_path / "o" / "sweep.csv")
    assert sheets["Sweep"][1][0] == "clusters.h200.nodes"
    assert [row[0] for row in sheets["Sweep"][2:]] == [2.0, 4.0]
    place = sheets["Sweep"][1].index("Cost, USD")
    for row, point in zip(sheets["Sweep"][2:], told, strict=True):
        assert row[place] == pytest.approx(float(point["cost_usd"]), abs=0.005)


def test_a_study_carries_revenue_margin_and_irr_and_decides_by_any_of_them(
    planner: Planner, write: WriteScenario, tiny: str, tmp_path: Path
) -> None:
    objective = "irr_per_year"
    write(tiny.replace("clusters:", SOLD + "clusters:"))
    write(f"{SMALL}objective: {objective}\n", "study.yaml")
    done = planner("montecarlo", "study.yaml", "-n", "8", "--workers", "1", "--out", "o")
    assert done.code == 0, done
    assert f"{objective}:" in done.out
    folder = tmp_path / "o"
    carried = {row["output"] for row in csv_rows(folder / "percentiles.csv")}
    assert {
        "revenue_usd",
        "gross_margin_fraction",
        "operating_margin_fraction",
        "irr_per_year",
    } <= carried
    bands = csv_rows(folder / "monthly_bands.csv")
    sheets = workbook(folder)
    shown = sheets[BANDS_SHEET][2:]
    assert len(shown) == len(bands)
    for row, band in zip(shown, bands, strict=True):
        assert row[4:7] == pytest.approx(
            [float(band[name] or "nan") for name in ("p10", "p50", "p90")], rel=1e-6
        )
    best = [
        row["scenario"]
        for row in csv_rows(folder / "slo_target.csv")
        if float(row["best_fraction"]) > 0.5
    ]
    samples = csv_rows(folder / "samples.csv")
    mean = {name: np.mean([float(row[objective]) for row in samples if row["scenario"] == name])
            for name in ("both", "nvidia")}  # fmt: skip
    assert not best or mean[best[0]] == max(mean.values())  # more is better


def test_a_headline_without_meaning_is_refused_before_any_run(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write()
    write(f"{SMALL}objective: irr_per_year\n", "study.yaml")
    planner("montecarlo", "study.yaml", "-n", "8", "--out", "o").refused(
        "irr_per_year has no meaning in both, nvidia: workloads.*.token_price is not stated"
    )
    assert not (tmp_path / "o").exists()
