"""The command from plan and folder to variances and a forecast."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.finance.bridge import VARIANCE_CAUSES
from planner.output.tables import SCHEMA_VERSION
from tests.conftest import TINY, Planner, csv_rows

PLAN = TINY.replace("requests_per_s: 5", "requests_per_s: 50")
STUDY = """\
name: plan-study
scenarios: {plan: {extends: plan.yaml}}
throughput_error: false
uncertain:
  workloads.chat.requests_per_s: {kind: lognormal, median: 1.0, sigma: 0.2, times_stated: true}
  site.electricity_usd_per_kwh: {kind: triangular, low: 0.04, mode: 0.07, high: 0.15}
  clusters.h200.host_usd_per_node: {kind: triangular, low: 17000, mode: 32000, high: 110000}
"""
MAPPING = "files:\n  books.csv: {kind: finance}\n  own.csv: {kind: figures}\n"
BOOKS = "account,month,usd\nenergy,2026-01,900\nenergy,2026-02,2000\ncolocation,2026-01,9000\ncolocation,2026-02,9000\n"
OWN = "month,cluster,demand_tokens,served_tokens,energy_kwh,accelerators_in_service\n"
OWN += "2026-01,fleet,9.2e10,9.2e10,15700,32\n2026-02,fleet,8.4e10,8.4e10,25200,56\n"


def _folder(place: Path, books: str = BOOKS, own: str = OWN) -> Path:
    (place / "plan.yaml").write_text(PLAN)
    (place / "study.yaml").write_text(STUDY)
    folder = place / "seen"
    folder.mkdir(exist_ok=True)
    for name, content in (("mapping.yaml", MAPPING), ("books.csv", books), ("own.csv", own)):
        (folder / name).write_text(content)
    return folder


def test_actuals_write_variances_and_a_forecast(planner: Planner, tmp_path: Path) -> None:
    seen = _folder(tmp_path)
    out = tmp_path / "out"
    call = (
        "actuals",
        str(tmp_path / "study.yaml"),
        str(seen),
        "-n",
        "32",
        "--workers",
        "1",
        "--out",
        str(out),
    )
    done = planner(*call, "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["schema_version"] == SCHEMA_VERSION
    assert summary["actual_operating_income_usd"] == -20_900.0
    causes = summary["difference_by_cause_usd"]
    difference = summary["actual_operating_income_usd"] - summary["budget_operating_income_usd"]
    assert round(sum(causes.values()), 2) == round(difference, 2)
    assert summary["capacity_runs_out"]["status"] == "MET"
    assert summary["capacity_runs_out"]["p5"] is None
    for row in csv_rows(out / "variance.csv"):
        parts = sum(float(row[f"{cause}_usd"]) for cause in VARIANCE_CAUSES)
        assert round(parts, 2) == round(float(row["actual_usd"]) - float(row["budget_usd"]), 2)
    monthly = {(row["figure"], row["month"]): row for row in csv_rows(out / "forecast_monthly.csv")}
    happened = monthly["demand_tokens", "2026-02-01"]
    coming = monthly["demand_tokens", "2026-03-01"]
    assert float(happened["posterior_p5"]) == float(happened["posterior_p95"]) == 8.4e10
    assert (
        float(coming["posterior_p5"])
        < float(coming["posterior_p50"])
        < float(coming["posterior_p95"])
    )
    assert float(coming["posterior_p95"]) - float(coming["posterior_p5"]) < float(
        coming["prior_p95"]
    ) - float(coming["prior_p5"])
    inputs = csv_rows(out / "forecast_inputs.csv")
    moved = sum(float(row["moved_usd"]) for row in inputs)
    change = (
        summary["remaining_cost_usd"]["posterior"]["mean"]
        - summary["remaining_cost_usd"]["prior"]["mean"]
    )
    assert round(moved, 2) == round(change, 2)
    assert moved
    assert round(sum(summary["moved_by_usd"].values()), 2) == round(moved, 2)
    names = [row["input"] for row in inputs]
    assert (
        "clusters.h200.host_usd_per_node" not in names
    )  # its machines are bought: no price of theirs is uncertain
    assert names[:2] == ["workloads.chat.requests_per_s", "site.electricity_usd_per_kwh"]
    said = summary["sentences"][0]
    dollars = [int(part.replace(",", "")) for part in re.findall(r"([+-][\d,]+) USD", said)]
    assert sum(dollars) == round(difference)
    # Budget, actual and forecast stand side by side, for SLO attainment too.
    assert float(monthly["slo_attainment_fraction", "2026-03-01"]["posterior_p50"]) <= 1.0
    booked = float(monthly["cost_usd", "2026-01-01"]["actual"]) - float(
        monthly["cost_usd", "2026-01-01"]["budget"]
    )
    january = [
        row
        for row in csv_rows(out / "actuals.csv")
        if row["kind"] == "account" and row["month"] == "2026-01-01"
    ]
    assert abs(booked - sum(float(row["actual"]) - float(row["plan"]) for row in january)) < 0.01
    # Cost of a month seen: the accounts reported are what was booked, the others the plan's.
    cost = monthly["cost_usd", "2026-01-01"]
    assert float(cost["posterior_p95"]) != float(cost["prior_p95"])
    report = (out / "report.html").read_text()
    for part in ("Actuals against plan", "Forecast", "Outside the plan"):
        assert part in report
    assert planner("report", str(out)).code == 0
    assert (out / "report.html").read_text() == report
    assert planner("memo", str(out)).code == 0
    memo = (out / "memo.md").read_text()
    for part in (said, "SLO MET in the months to come", "| colocation |"):
        assert part in memo


@pytest.mark.slow
def test_a_plan_that_runs_out_says_so_first_and_fails_on_a_miss(
    planner: Planner, tmp_path: Path
) -> None:
    """Traffic grows by half a month on a few nodes: the month is named, with its band."""
    seen = _folder(tmp_path)
    growth = "growth: {kind: compound, per_year: 100}"
    plan = PLAN.replace("requests_per_s: 50", f"requests_per_s: 50\n    {growth}")
    plan = plan.replace("nodes: 4", "nodes: 1").replace("horizon_months: 3", "horizon_months: 14")
    (tmp_path / "plan.yaml").write_text(plan)
    call = ("actuals", str(tmp_path / "study.yaml"), str(seen), "-n", "32", "--workers", "1")
    done = planner(*call, "--out", "out", "--fail-on-miss")
    assert done.code == 3, done.err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    capacity = summary["capacity_runs_out"]
    assert capacity["status"] == "MISSED"
    assert "2026-03" <= capacity["p5"] <= capacity["p50"] <= (capacity["p95"] or "9") <= "9"
    forecast = [text for text in summary["sentences"] if "to come" in text]
    assert forecast[0].startswith(
        f"Capacity runs out in {capacity['p50']} (P5 {capacity['p5']}, P95"
    )


def test_a_run_s_folder_stands_for_its_scenario(planner: Planner, tmp_path: Path) -> None:
    seen = _folder(tmp_path)
    out = tmp_path / "run"
    plan = tmp_path / "plan.yaml"
    assert (
        planner(
            "run",
            str(plan),
            "--replications",
            "1",
            "--set",
            "clusters.h200.nodes=3",
            "--out",
            str(out),
        ).code
        == 0
    )
    plan.write_text(PLAN.replace("nodes: 3", "nodes: 2"))
    planner("actuals", str(out), str(seen)).refused("has changed since the run")
    planner("actuals", str(seen), str(seen)).refused("is not the folder of a run")


def test_fewer_replications_than_the_inputs_need_are_refused_in_words(
    planner: Planner, tmp_path: Path
) -> None:
    seen = _folder(tmp_path)
    keys = ["site.pue_ratio", "finance.resale_multiplier", "reliability.failure_multiplier"]
    keys += [f"reliability.vendor_failure_multiplier.{vendor}" for vendor in ("amd", "nvidia")]
    by_vendor = (
        "engineers_per_800",
        "vendor_incident_multiplier",
        "vendor_software_speedup_multiplier",
    )
    keys += [f"software.{key}.{vendor}" for vendor in ("amd", "nvidia") for key in by_vendor]
    keys += [
        "software.incident_multiplier",
        "finance.discount_rate_per_year",
        "site.colocation_usd_per_kw_month",
    ]
    keys += ["software.engineer_usd_per_year", "finance.insurance_fraction_per_year"]
    more = "".join(
        f"  {key}: {{kind: triangular, low: 1.0, mode: 1.1, high: 1.2}}\n" for key in keys
    )
    (tmp_path / "study.yaml").write_text(STUDY + more)
    done = planner(
        "actuals",
        str(tmp_path / "study.yaml"),
        str(seen),
        "-n",
        "32",
        "--workers",
        "1",
        "--out",
        "out",
    )
    assert done.code == 2, done.err
    assert (
        "32 replications are too few for 19 uncertain inputs (ask for 38 or more with --replications)"
        in done.err
    )
    assert not (tmp_path / "out").exists()
