from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import ConservationError
from planner.finance.accounts import DATED_ACCOUNTS, NOT_COST_ACCOUNTS, Account, View
from planner.finance.cents import cents, series_cents, usd
from planner.finance.depreciation import Cohorts, capital_charge_usd, depreciate, make_cohorts
from planner.finance.ledger import LedgerBuilder, LedgerLabels
from planner.finance.months import MonthGrid
from planner.finance.tax import LossRule, TaxRules
from planner.reporting.workbook import SheetTable, WorkbookContent, write_workbook
from planner.reporting.workbook_sheets import SHEET_NAMES, column_letters
from tests.reporting.office import NEEDS_OFFICE, column, measures, recalculate, sheets_of, with_cells

GRID = MonthGrid(start=date(2026, 3, 1), horizon_months=36)


@dataclass(frozen=True)
class Inputs:
    rate: float = 0.10
    price: float = 0.08
    residual: float = 0.2


def cohorts_of(inputs: Inputs) -> Cohorts:
    cost = np.array([16_351_000.01, 9_876_543.21, 1_234_567.89, 2_000_000.0])
    return make_cohorts(
        cost,
        [0.0, GRID.coordinate(date(2027, 5, 17)), -8.0, 2.0],
        residual_usd=usd(cents(cost * inputs.residual)),
        life_months=[36, 48, 36, 60],
        disposal=([np.inf, np.inf, 20.5, np.inf], [0.0, 0.0, 150_000.0, 0.0]),
        acquired_months=[0.0, GRID.coordinate(date(2027, 3, 9)), -8.0, 1.25],
    )


def content_of(inputs: Inputs) -> WorkbookContent:
    """Return a run of four cohorts: a whole life, one that waits, one owned before and sold, one outlasting."""
    names = ("h200-1", "h200-2", "=old", "mi325x-1")
    builder = LedgerBuilder(LedgerLabels(months=GRID.labels, clusters=("h200", "mi325x"), cohorts=names))
    cohorts, cluster = cohorts_of(inputs), np.array([0, 0, 0, 1])
    schedule = depreciate(cohorts, GRID.edge_coordinates)
    builder.post_cohorts(Account.CAPEX_ACCELERATORS, schedule.acquired_cents, cluster)
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, cluster)
    builder.post_cohorts(Account.RESALE, -schedule.proceeds_cents, cluster)
    builder.post_cohorts(Account.DISPOSAL_LOSS, schedule.disposal_loss_cents, cluster)
    charge = capital_charge_usd(schedule, inputs.rate)
    builder.post_cohorts(Account.COST_OF_CAPITAL, series_cents(charge, axis=1), cluster)
    builder.post(
        Account.RESIDUAL_VALUE, [-3_000_000_00, -5_000_000_00, 0, -1], month=35, cluster=cluster, cohort=np.arange(4)
    )
    energy = np.linspace(400_000, 900_000, 72).reshape(36, 2) * inputs.price
    builder.post_clusters(Account.ENERGY, series_cents(energy))
    builder.post_clusters(Account.COOLING, series_cents(energy * 0.25))
    builder.post_clusters(Account.COLOCATION, np.full((36, 2), 1_234_56))
    builder.post(Account.REVENUE, np.full(36, -900_000_00), month=np.arange(36))
    output = np.concatenate([[0.0], np.linspace(1e11, 4e11, 35)])
    ledger = builder.build()
    accounts = [list(Account).index(account) for account in DATED_ACCOUNTS]
    rows = np.flatnonzero(np.isin(ledger.account_code, accounts))
    # Bought on the day it enters service, sold on the day it leaves, owned until the last.
    days = np.array([
        {Account.RESALE: cohorts.retired_months[cohort], Account.RESIDUAL_VALUE: 36.0}.get(
            list(Account)[code], cohorts.in_service_months[cohort]
        )
        for code, cohort in zip(ledger.account_code[rows], ledger.cohort_index[rows], strict=True)
    ])  # fmt: skip
    content = WorkbookContent(
        title="Mixed fleet",
        created=datetime(2026, 3, 1),
        grid=GRID,
        ledger=ledger,
        cohorts=cohorts,
        discount_rate_per_year=inputs.rate,
        running_months=np.linspace(0.5, 35.5, 36),
        dated_rows=rows,
        dated_months=days,
        electricity_usd_per_kwh=inputs.price,
        energy_usd=energy,
        cooling_usd=energy * 0.25,
        levelised_usd_per_million={},
        output_tokens=output,
        total_tokens=output * 4,
        assumptions=SheetTable(
            headings=("name", "value", "source"),
            rows=[("=1+1", 0.5, "@a"), ("b", None, date(2026, 1, 1))],
        ),
        events=SheetTable(headings=("time", "event"), rows=[("2026-03-01", "online"), ("2026-04-01", True)]),
    )  # fmt: skip
    levelled = present_usd(content, NOT_COST_ACCOUNTS) / (output @ factors(content)) * 1e6
    return replace(content, levelised_usd_per_million={"output": levelled, "total": levelled / 4})


def factors(content: WorkbookContent) -> Any:
    return (1 + content.discount_rate_per_year) ** (-(np.arange(36) + 0.5) / 12)


def present_usd(content: WorkbookContent, leave_out: tuple[Account, ...] = ()) -> float:
    """Return the present value of the economic view, row by row: on its day, or at the middle of its month."""
    ledger, rate = content.ledger, content.discount_rate_per_year
    weights = factors(content)[ledger.month_index]
    weights[content.dated_rows] = (1 + rate) ** (-content.dated_months / 12)
    left_out = [list(Account).index(account) for account in leave_out]
    seen = ledger.rows_in(View.ECONOMIC) & ~np.isin(ledger.account_code, left_out)
    return float(usd(ledger.amount_cents)[seen] @ weights[seen])


def expected_measures(content: WorkbookContent) -> dict[str, float]:
    """Return the headline figures straight from the ledger, by the finance functions."""
    ledger = content.ledger
    cost = usd(ledger.monthly_cents(View.ECONOMIC, leave_out=NOT_COST_ACCOUNTS))
    accrued = usd(ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS))
    levelled = present_usd(content, NOT_COST_ACCOUNTS) / (content.output_tokens @ factors(content)) * 1e6
    return {
        "Total cost of ownership, USD": float(cost.sum()),
        "Net present value, USD (gains positive)": -present_usd(content),
        "Accrued cost, USD": float(accrued.sum()),
        "Cost per million output tokens, USD": float(accrued.sum() / content.output_tokens.sum() * 1e6),
        "Cost per million total tokens, USD": float(accrued.sum() / content.total_tokens.sum() * 1e6),
        "Levelised cost per million output tokens, USD": levelled,
        "Sum of the cash flow, USD": float(usd(ledger.monthly_cents(View.CASH)).sum()),
    }


def test_every_sheet_is_there_with_its_stored_values() -> None:
    content = content_of(Inputs())
    sheets = sheets_of(write_workbook(content))
    assert tuple(sheets) == SHEET_NAMES
    found = measures(sheets)
    for label, value in expected_measures(content).items():
        assert found[label] == pytest.approx(value, rel=1e-12), label
    assert len(sheets["Ledger"]) == content.ledger.row_count + 1
    total = sum(round(amount * 100) for amount in column(sheets["Ledger"], "amount_usd"))
    assert total == int(content.ledger.amount_cents.sum())


def test_statements_sum_to_the_ledger_to_the_cent() -> None:
    content = content_of(Inputs())
    sheets = sheets_of(write_workbook(content))
    for name, view in (("Monthly P&L", View.ACCRUAL), ("Cash flow", View.ECONOMIC)):
        monthly = [round(amount * 100) for amount in column(sheets[name], "net")]
        assert monthly == content.ledger.monthly_cents(view).tolist()
    cash = [round(amount * 100) for amount in column(sheets["Cash flow"], "cash")]
    assert cash == content.ledger.monthly_cents(View.CASH).tolist()
    assert column(sheets["Monthly P&L"], "usd_per_million_output_tokens")[0] == ""


def test_formulas_are_live_and_text_is_never_run() -> None:
    written = write_workbook(content_of(Inputs()))
    with zipfile.ZipFile(io.BytesIO(written)) as book:
        profit = book.read("xl/worksheets/sheet2.xml").decode()
        assumptions = book.read("xl/worksheets/sheet8.xml").decode()
        charts = [name for name in book.namelist() if name.startswith("xl/charts/chart")]
    assert profit.count("SUMIFS(") >= 36 * 5
    assert "<f>" not in assumptions
    assert len(charts) == 3


def test_the_same_run_gives_the_same_bytes() -> None:
    assert write_workbook(content_of(Inputs())) == write_workbook(content_of(Inputs()))


def test_cohorts_that_do_not_match_the_ledger_are_our_bug() -> None:
    content = content_of(Inputs())
    other = replace(content.cohorts, life_months=content.cohorts.life_months + 12)
    with pytest.raises(ConservationError, match="depreciation: the ledger does not hold"):
        write_workbook(replace(content, cohorts=other))
    fewer = make_cohorts([1.0], [0.0])
    with pytest.raises(ConservationError, match="not those of its ledger"):
        write_workbook(replace(content, cohorts=fewer))
    with pytest.raises(ConservationError, match="cost_of_capital"):
        write_workbook(replace(content, discount_rate_per_year=0.2))
    with pytest.raises(ConservationError, match="energy"):
        write_workbook(replace(content, energy_usd=content.energy_usd * 1.01))


def tiny_content(cohorts: Cohorts, names: tuple[str, ...]) -> WorkbookContent:
    """Return a run with nothing in its ledger but what its cohorts give."""
    builder = LedgerBuilder(LedgerLabels(months=GRID.labels, clusters=("a",), cohorts=names))
    schedule = depreciate(cohorts, GRID.edge_coordinates)
    cluster = np.zeros(cohorts.count, dtype=np.int64)
    builder.post_cohorts(Account.CAPEX_HOSTS, schedule.acquired_cents, cluster)
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, cluster)
    charge = capital_charge_usd(schedule, 0.1)
    builder.post_cohorts(Account.COST_OF_CAPITAL, series_cents(charge, axis=1), cluster)
    return replace(
        content_of(Inputs()),
        ledger=builder.build(),
        cohorts=cohorts,
        energy_usd=np.zeros((36, 1)),
        cooling_usd=np.zeros((36, 1)),
        dated_rows=np.zeros(0, dtype=np.intp),
        dated_months=np.zeros(0),
        levelised_usd_per_million={"output": None, "total": None},
        output_tokens=np.zeros(36),
        total_tokens=np.zeros(36),
    )


def test_a_run_without_purchases_or_tokens_still_opens() -> None:
    content = tiny_content(make_cohorts(np.zeros(0), np.zeros(0)), ())
    found = measures(sheets_of(write_workbook(content)))
    assert found["Total cost of ownership, USD"] == 0
    assert "Cost per million output tokens, USD" not in found  # no token, no cost per token


def painted(content: WorkbookContent) -> set[str]:
    """Return the inputs whose cell is yellow, and hold that each of the others says why it is not."""
    written = write_workbook(content)
    with zipfile.ZipFile(io.BytesIO(written)) as book:
        summary, styles = book.read("xl/worksheets/sheet1.xml").decode(), book.read("xl/styles.xml").decode()
    yellow = [place for place, fill in enumerate(re.findall(r"<fill>.*?</fill>", styles)) if "FFFFF4C2" in fill]
    cells = re.search(r"<cellXfs.*?</cellXfs>", styles, re.DOTALL)
    assert cells
    fills = [int(fill) for fill in re.findall(r'<xf [^>]*fillId="(\d+)"', cells[0])]
    notes = {row[0]: row[3] for row in sheets_of(written)["Summary"][4:7]}
    found = set()
    for row, label in enumerate(notes, start=5):
        style = re.search(rf'<c r="B{row}" s="(\d+)"', summary)
        if style and fills[int(style[1])] in yellow:
            found.add(label)
            assert notes[label] == ""
        else:
            assert "does not follow" in notes[label]
    return found


RATE, PRICE, RESIDUAL = (
    "Discount rate per year",
    "Electricity price, USD/kWh",
    "Residual value of the books, share of cost",
)


def test_what_the_sheets_cannot_follow_is_not_painted_as_an_input() -> None:
    content = content_of(Inputs())
    assert painted(content) == {RATE, PRICE, RESIDUAL}
    assert painted(replace(content, electricity_usd_per_kwh=0.0)) == {RATE, RESIDUAL}
    carried = TaxRules(rate_fraction=0.25, losses=LossRule.CARRY_FORWARD)
    taxed = replace(content, tax=carried, purchase_income_cents=np.zeros(36, dtype=np.int64))
    assert painted(taxed) == {RATE, RESIDUAL}
    offset = replace(taxed, tax=TaxRules(rate_fraction=0.25))
    assert painted(offset) == {RATE, PRICE, RESIDUAL}
    for cohorts in (
        make_cohorts([1_000.0, 1_000.0], [0.0, 1.0], residual_usd=[100.0, 300.0]),
        make_cohorts([1_000.0, 1_000.0], [0.0, 1.0], residual_usd=100.0, declining_factor=[0.0, 2.0]),
    ):
        assert painted(tiny_content(cohorts, ("one", "two"))) == {RATE, PRICE}


def test_residuals_that_differ_are_told_by_cohort() -> None:
    cohorts = make_cohorts([1_000.0, 1_000.0], [0.0, 1.0], residual_usd=[100.0, 300.0], declining_factor=[0.0, 2.0])
    sheets = sheets_of(write_workbook(tiny_content(cohorts, ("one", "two"))))
    rows = {row[0]: row for row in sheets["Depreciation"][3:5]}
    assert [rows["one"][2], rows["two"][2]] == [10_000, 30_000]
    assert {"straight line", "declining balance (fixed)"} <= {*rows["one"], *rows["two"]}


@NEEDS_OFFICE
def test_declining_balance_and_own_residuals_recalculate_to_the_cent(tmp_path: Path) -> None:
    cohorts = make_cohorts([999.99, 54_321.01], [0.3, 1.0], residual_usd=[100.0, 300.0], declining_factor=[0.0, 2.0])
    content = tiny_content(cohorts, ("one", "two"))
    sheets = recalculate(write_workbook(content), tmp_path)
    monthly = [round(amount * 100) for amount in column(sheets["Monthly P&L"], "net")]
    assert monthly == content.ledger.monthly_cents(View.ACCRUAL).tolist()


@pytest.mark.parametrize(("place", "letters"), [(0, "A"), (25, "Z"), (26, "AA"), (701, "ZZ"), (702, "AAA")])
def test_column_letters(place: int, letters: str) -> None:
    assert column_letters(place) == letters


def compare_to_the_cent(sheets: dict[str, list[list[Any]]], content: WorkbookContent) -> None:
    found = measures(sheets)
    for label, value in expected_measures(content).items():
        tolerance = 5e-7 if "million" in label else 0.005
        assert found[label] == pytest.approx(value, abs=tolerance), label
    for name, view in (("Monthly P&L", View.ACCRUAL), ("Cash flow", View.ECONOMIC)):
        monthly = [round(amount * 100) for amount in column(sheets[name], "net")]
        assert monthly == content.ledger.monthly_cents(view).tolist(), name


@NEEDS_OFFICE
def test_recalculated_by_libreoffice_it_agrees_with_the_simulation_to_the_cent(tmp_path: Path) -> None:
    content = content_of(Inputs())
    compare_to_the_cent(recalculate(write_workbook(content), tmp_path), content)


@NEEDS_OFFICE
def test_changed_inputs_give_what_a_new_run_would(tmp_path: Path) -> None:
    changed = Inputs(rate=0.15, price=0.04, residual=0.35)
    written = write_workbook(content_of(Inputs()))
    cells = {"B5": changed.rate, "B6": changed.price, "B7": changed.residual}
    sheets = recalculate(with_cells(written, cells), tmp_path)
    expected = content_of(changed)
    compare_to_the_cent(sheets, expected)
    before = expected_measures(content_of(Inputs()))["Net present value, USD (gains positive)"]
    assert abs(measures(sheets)["Net present value, USD (gains positive)"] - before) > 1_000
