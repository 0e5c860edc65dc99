"""The workbook of real runs: what it stores, and what LibreOffice makes of its formulas."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.finance.accounts import View
from planner.reporting.run_folder import write_run
from planner.reporting.run_workbook import MOST_EVENTS, workbook_content
from planner.reporting.workbook import write_workbook
from planner.scenario.loading import load_scenario
from planner.simulation import measures as run_measures
from planner.simulation.result import RunResult
from planner.simulation.run import simulate
from tests.reporting.office import NEEDS_OFFICE, column, measures, recalculate, sheets_of, with_cells
from tests.simulation.test_accounting import EVERYTHING

Write = Callable[..., Path]
Run = Callable[..., RunResult]
LABELS = {
    "Total cost of ownership, USD": "tco_usd",
    "Net present value, USD (gains positive)": "npv_usd",
    "Accrued cost, USD": "cost_usd",
    "Cost per million output tokens, USD": "cost_per_million_output_tokens_usd",
    "Cost per million total tokens, USD": "cost_per_million_tokens_usd",
    "Levelised cost per million output tokens, USD": "levelised_cost_per_million_output_tokens_usd",
    "Levelised cost per million total tokens, USD": "levelised_cost_per_million_tokens_usd",
}


@pytest.fixture
def run(write: Write) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(), overrides))

    return runner


def written(result: RunResult) -> bytes:
    return write_workbook(workbook_content(result, {"time": ["2026"]}, {"path": ["a"]}))


def agree(sheets: dict[str, list[list[Any]]], result: RunResult, cents: float = 0.5) -> None:
    """Hold a workbook against a run: headlines and every month, to the cent."""
    found, figures = measures(sheets), run_measures.measures(result)
    for label, name in LABELS.items():
        tolerance = 5e-7 if "million" in label else cents / 100
        assert found[label] == pytest.approx(figures[name], abs=tolerance), label
    for name, view in (("Monthly P&L", View.ACCRUAL), ("Cash flow", View.ECONOMIC)):
        monthly = np.array([amount * 100 for amount in column(sheets[name], "net")])
        assert monthly == pytest.approx(result.ledger.monthly_cents(view), abs=cents), name


def test_summary_csv_and_workbook_agree(run: Run, tmp_path: Path) -> None:
    result = run(*EVERYTHING)
    write_run(result, tmp_path / "out")
    figures = json.loads((tmp_path / "out" / "summary.json").read_text())["measures"]
    with (tmp_path / "out" / "measures.csv").open(newline="", encoding="utf-8") as stream:
        listed = {row["measure"]: row["value"] for row in csv.DictReader(stream)}
    assert set(listed) == set(figures)
    for name, value in figures.items():
        assert listed[name] == "" if value is None else float(listed[name]) == pytest.approx(value, abs=1e-6), name
    sheets = sheets_of((tmp_path / "out" / "workbook.xlsx").read_bytes())
    agree(sheets, result)
    found = measures(sheets)
    assert found["Net present value, USD (gains positive)"] == pytest.approx(figures["npv_usd"], abs=1e-5)
    ledger = sum(round(amount * 100) for amount in column(sheets["Ledger"], "amount_usd"))
    assert ledger == int(result.ledger.amount_cents.sum())


def test_long_lists_of_events_are_cut_and_say_so(run: Run) -> None:
    events = {"time": [str(number) for number in range(MOST_EVENTS + 7)], "lost": np.full(MOST_EVENTS + 7, np.nan)}
    content = workbook_content(run(), events, {"path": ["a"]})
    assert len(content.events.rows) == MOST_EVENTS + 1
    assert content.events.rows[-1] == ("and 7 more in events.csv", None)
    assert content.events.rows[0] == ("0", None)


def test_a_run_without_machines_still_has_a_workbook(run: Run) -> None:
    result = run("clusters.h200.nodes=0", "clusters.mi325x=null")
    found = measures(sheets_of(written(result)))
    assert found["Total cost of ownership, USD"] == run_measures.measures(result)["tco_usd"]


@NEEDS_OFFICE
def test_every_account_recalculates_to_the_cent(run: Run, tmp_path: Path) -> None:
    result = run(*EVERYTHING)
    agree(recalculate(written(result), tmp_path), result)


@NEEDS_OFFICE
def test_changed_cells_give_what_a_new_run_gives(run: Run, tmp_path: Path) -> None:
    settings = ("horizon_months=14", "finance.depreciation_months=48", "site.electricity_usd_per_kwh=0.08")
    book = written(run(*settings))
    price = measures(sheets_of(book))["Electricity price, USD/kWh (average)"]
    assert price == pytest.approx(0.08, abs=1e-6)
    sheets = recalculate(with_cells(book, {"B5": 0.04, "B7": 0.35}), tmp_path)
    agree(sheets, run(*settings, "finance.discount_rate_per_year=0.04", "finance.residual_fraction=0.35"))
    (tmp_path / "dear").mkdir()
    sheets = recalculate(with_cells(book, {"B6": price * 2}), tmp_path / "dear")
    # Energy and cooling are scaled after rounding: a cent for each, month and cluster.
    agree(sheets, run(*settings, "site.electricity_usd_per_kwh=0.16"), cents=14 * 4)
