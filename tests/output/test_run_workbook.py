"""The workbook of real runs: what it stores, and what LibreOffice makes of its formulas."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]

from planner.finance.accounts import Account
from planner.finance.ledger import Dimension
from planner.finance.statements import Frequency
from planner.output.run_folder import run_tables, write_run
from planner.output.run_workbook import SHEET_NAMES, workbook_content, write_workbook
from planner.run import measures as run_measures
from planner.run import tables
from planner.run.measure_names import FLEET
from planner.run.result import RunResult
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.output.office import (
    NEEDS_OFFICE,
    Sheet,
    column,
    live_cells,
    measures,
    recalculate,
    sheets_of,
    with_cells,
)
from tests.run.test_accounting import EVERYTHING

Write = Callable[..., Path]
Run = Callable[..., RunResult]
LABELS = {
    "Total cost of ownership, USD": "tco_usd",
    "Net present value, USD (gains positive)": "npv_usd",
    "Accrued cost, USD": "cost_usd",
    "Cash paid, USD": "cash_usd",
    "Cost per million output tokens, USD": "cost_per_million_output_tokens_usd",
    "Cost per million total tokens, USD": "cost_per_million_tokens_usd",
    "Levelised cost per million output tokens, USD": "levelised_cost_per_million_output_tokens_usd",
    "Levelised cost per million total tokens, USD": "levelised_cost_per_million_tokens_usd",
    "Revenue, USD": "revenue_usd",
    "Gross margin": "gross_margin_fraction",
    "Operating margin": "operating_margin_fraction",
}
LINES = {
    "Gross profit": "gross_profit_usd", "Operating income": "operating_income_usd", "Net income": "net_income_usd",
    "Operating cash flow": "operating_cash_flow_usd", "Investing cash flow": "investing_cash_flow_usd",
    "Financing cash flow": "financing_cash_flow_usd", "Net cash flow": "net_cash_flow_usd", "Cash": "cash_usd",
    "Hardware": "hardware_usd", "Assets": "assets_usd", "Deferred tax": "deferred_tax_usd", "Loans": "loans_usd",
    "Liabilities": "liabilities_usd", "Equity": "equity_usd",
}  # fmt: skip


@pytest.fixture
def run(write: Write) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(), overrides))

    return runner


def written(result: RunResult) -> bytes:
    return write_workbook(workbook_content(result, {table.name: rows for table, rows in run_tables(result)}))


def agree(sheets: dict[str, Sheet], result: RunResult) -> None:
    """Hold a workbook against a run: headlines, every account of every month, every statement; to the cent."""
    found, figures = measures(sheets), run_measures.measures(result)
    for label, name in LABELS.items():
        if label not in found:  # nothing is sold, or the sheets do not follow it and say so
            said = [row[3] for row in sheets["Summary"] if row[0] == label]
            assert figures[name] is None or "as simulated" in said[0], label
            continue
        tolerance = 5e-7 if "million" in label or "margin" in label else 0.005
        assert found[label] == pytest.approx(figures[name], abs=tolerance), label
    table = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    codes = sheets["Accounts"][1]
    for account, simulated in zip(Account, table.T, strict=True):
        if str(account) in codes:
            now = column(sheets["Accounts"], str(account), headings=1)[: len(simulated)]
            assert [round(amount * 100) for amount in now] == simulated.tolist(), account
        else:
            assert account is Account.BALANCE_SHEET or not simulated.any(), account
    for frequency, periods in periods_of(result).items():
        statement_agrees(sheets["Statements"], result, frequency, periods)


def periods_of(result: RunResult) -> dict[Frequency, list[str]]:
    """Return the labels of the statements' periods, as the tables of a run have them."""
    return {name: list(dict.fromkeys(tables.statement(result, name)["period" if name != "month" else "month"]))
            for name in Frequency}  # fmt: skip


def statement_agrees(sheet: Sheet, result: RunResult, frequency: Frequency, periods: list[str]) -> None:
    """Hold the statements of one length of period against the tables of the run."""
    heading = [cell if isinstance(cell, str) else f"{cell:%Y-%m}" for cell in sheet[3]]
    places = [heading.index(period) for period in periods]
    expected = tables.statement(result, frequency)
    whole = np.array([cluster == FLEET for cluster in expected["cluster"]])
    rows = {row[0]: row for row in sheet}
    for label, name in LINES.items():
        now = [round((rows[label][place] or 0.0) * 100) for place in places]
        assert now == np.asarray(expected[name])[whole].tolist(), (frequency, label)
    assert not any(rows["Assets less liabilities and equity"][1:])


def test_the_plain_worksheet_writes_what_xlsxwriters_own_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(*EVERYTHING)
    ours = written(result)
    monkeypatch.setattr("planner.output.worksheet.PlainWorksheet", Worksheet)
    assert written(result) == ours


def test_a_worksheet_of_another_release_is_written_by_its_own_means(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run()
    ours = written(result)
    monkeypatch.setattr("planner.output.worksheet._KNOWN", frozenset({"what another release has"}))
    assert written(result) == ours


def test_summary_csv_and_workbook_agree(run: Run, tmp_path: Path) -> None:
    result = run(*EVERYTHING)
    write_run(result, tmp_path / "out")
    figures = json.loads((tmp_path / "out" / "summary.json").read_text())["measures"]
    with (tmp_path / "out" / "measures.csv").open(newline="", encoding="utf-8") as stream:
        listed = {row["measure"]: row["value"] for row in csv.DictReader(stream)}
    assert set(listed) == set(figures)
    for name, value in figures.items():
        cents = 0.0051 if name.endswith("_usd") and "_per_" not in name else 1e-6
        assert listed[name] == "" if value is None else float(listed[name]) == pytest.approx(value, abs=cents), name
    content = (tmp_path / "out" / "workbook.xlsx").read_bytes()
    sheets = sheets_of(content)
    agree(sheets, result)
    assert tuple(sheets) == SHEET_NAMES
    ledger = sum(round(amount * 100) for amount in column(sheets["Ledger"], "Amount as simulated, USD"))
    assert ledger == int(result.ledger.amount_cents.sum())
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        assert len([name for name in book.namelist() if name.startswith("xl/charts/chart")]) == 6


def test_a_run_without_machines_still_has_a_workbook(run: Run) -> None:
    result = run("clusters.h200.nodes=0", "clusters.mi325x=null")
    agree(sheets_of(written(result)), result)


FLEET_SET = (
    "horizon_months=14",
    "clusters.h200.unit_price_usd=31234.57",
    "clusters.mi325x={accelerator: MI325X, nodes: 2, unit_price_usd: 17777.77, online: 2026-05-20, retire: 2026-11-05}",
    "clusters.b200={accelerator: B200, nodes: 1, unit_price_usd: 40000, online: 2027-02-27}",
    "clusters.h200.retire=2027-01-15",
    "site.electricity_usd_per_kwh=0.08",
    "finance.depreciation_months=48",
)
"""Bought and retired inside months, sold before the end and owned beyond it."""
SOLD = "finance.token_price={input_usd_per_million_tokens: 3, output_usd_per_million_tokens: 90, change_per_year: -0.2}"
WINDOWS = (
    "site.electricity.windows=[{name: day, usd_per_kwh: %r, start_hour: 8}, "
    "{name: night, usd_per_kwh: %r, end_hour: 8}]"
)
SETTINGS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "every input": (
        SOLD,
        "workloads.chat.prefix_cache_hit_fraction=0.3",
        "workloads.chat.requests_per_s=400",
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "finance.property_tax_fraction_per_year=0.037",
        "finance.insurance_fraction_per_year=0.01",
        "finance.operations_staff_per_1000_accelerators=30",
        "finance.repair_crew_usd_per_year=120000",
        "finance.people_escalator_per_year=0.03",
        "finance.spare_part_price_fraction=1.1",
        "finance.rma_usd_per_repair=500",
        "finance.warranty_months=3",
        "finance.replacement_price_fraction=0.9",
        "finance.burst_rental={usd_per_accelerator_h: 3}",
        "finance.opening_cash_usd=1000000",
        "finance.fiscal_year_start_month=4",
        "software.engineers={amd: 1, nvidia: {per_1000_accelerators: 20}}",
        "clusters.leased={accelerator: H200, nodes: 1, retire: 2026-12-03,"
        " contract: {kind: operating-lease, usd_per_accelerator_h: 2}}",
        "clusters.cloud={accelerator: H200, nodes: 1, contract: {kind: on-demand, change_per_year: 0.2}}",
        "clusters.old={accelerator: H200, nodes: 1, owned: {bought: 2024-05-01}, retire: 2026-08-11}",
        "clusters.h200.discount_fraction=0.13",
        "clusters.h200.volume_discounts=[{from_accelerators: 10, discount_fraction: 0.03},"
        " {from_accelerators: 100, discount_fraction: 0.2}]",
    ),
    "leased": (
        SOLD,
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "clusters.h200.contract={kind: finance-lease, rate_per_year: 0.15, term_months: 7, exit_fee_fraction: 0.05}",
        "clusters.back={accelerator: H200, nodes: 1,"
        " contract: {kind: finance-lease, rate_per_year: 0.12, term_months: 24, at_end: return}}",
    ),
    "ordered and housed": (
        SOLD,
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "clusters.booked={accelerator: H200, nodes: 2, order: {placed: 2025-12-10, lead_weeks: 8,"
        " payments: [{fraction: 0.3}, {fraction: 0.1, when: delivery, weeks: 9}]}}",
        "clusters.h200.components={hosts: {depreciation_months: 60}, network: {residual_fraction: 0}}",
        "site.colocation_usd_per_kw_month=0",
        "site.building={cost_usd: 3600000, land_usd: 1000, opened: 2020-05-02}",
    ),
    "mid-month start": ("start=2026-01-10", "finance.cash_flow_timing=month_end", "finance.end_value=none"),
    "losses carried": (
        "horizon_months=26",
        SOLD.replace("input_usd", "cached_input_usd_per_million_tokens: 1, input_usd"),
        "finance.tax={rate_fraction: 0.3, losses: carry-forward}",
        "clusters.b200.online=null",
        "clusters.b200.order={placed: 2026-03-01, lead_weeks: 20, deliveries: 3}",
        "clusters.b200.nodes=5",
    ),
    "waiting for power, and bought by a rule": (
        "site.power_blocks=[{date: 2026-01-01, it_kw: 20}, {date: 2026-03-17, it_kw: 200}]",
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0}",
        "clusters.mi325x.retire=null",
        "expansion={price_change_per_year: -0.1, rules: [{when: utilisation_above, threshold_fraction: 0.01,"
        " cluster: mi325x, nodes: 2, lead_weeks: 5}]}",
    ),
    "declining balance": ("start=2026-01-10", "finance.depreciation_method=declining-balance"),
    "residuals of vendors": (SOLD, "finance.residual_basis=vendor-prior", "finance.tax={rate_fraction: 0.25}"),
    "owned at a book value": (
        "clusters.old={accelerator: H200, nodes: 2, owned: {bought: 2024-05-05, book_value_usd: 250000.01}}",
    ),
    "contracts, deposits, a building, parts and inflation": (
        SOLD,
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "finance.inflation_per_year=0.03",
        "site.colocation_usd_per_kw_month=0",
        "site.building={cost_usd: 3600000.01, land_usd: 500000, opened: 2026-02-11, upkeep_fraction_per_year: 0.03,"
        " property_tax_fraction_per_year: 0.012}",
        "clusters.back={accelerator: H200, nodes: 1, contract: {kind: finance-lease, rate_per_year: 0.15,"
        " term_months: 12}}",
        "clusters.kept={accelerator: H200, nodes: 1, contract: {kind: finance-lease, rate_per_year: 0.12,"
        " at_end: buy, buy_out_fraction: 0.1}}",
        "clusters.booked={accelerator: B200, nodes: 2, order: {placed: 2026-03-01, lead_weeks: 20, deliveries: 2,"
        " payments: [{fraction: 0.2}, {fraction: 0.1, when: delivery, weeks: 5}]}}",
        "clusters.h200.components={hosts: {depreciation_months: 72}, network: {residual_fraction: 0.0}}",
    ),
    "real rate": ("finance.inflation_per_year=0.03", "finance.discount_rate_basis=real"),
    "borrowed": ("finance.loan={share_of_purchases_fraction: 0.6, rate_per_year: 0.1}",),
    "time of use": (
        "site.electricity_usd_per_kwh=null",
        WINDOWS % (0.11, 0.05),
        "site.electricity.escalator_per_year=0.04",
        "site.electricity.demand_charge_usd_per_kw_month=14",
    ),
}
DEFAULT = ("plain", "every input")
"""Settings recalculated in every run of the tests; of the others, and cell by cell, ``make prove``."""
SALARIES = {"Salary of a software engineer", "Salary of operations staff", "Cost of a repair crew"}
PRICES, BOOKS = {"price of an accelerator", "discount"}, {"book life", "residual of the books"}
UNFOLLOWED = {
    "every input": {"old": PRICES},
    "declining balance": dict.fromkeys(("h200", "mi325x", "b200"), PRICES | BOOKS),
    "residuals of vendors": dict.fromkeys(("h200", "mi325x", "b200"), BOOKS),
    "owned at a book value": {"old": PRICES | BOOKS},
    "contracts, deposits, a building, parts and inflation": {
        "h200": PRICES | BOOKS,
        "back": PRICES | BOOKS,
        "kept": PRICES | BOOKS,
        "booked": PRICES,
    },
    "borrowed": dict.fromkeys(("h200", "mi325x", "b200"), PRICES),
    "leased": dict.fromkeys(("h200", "back"), PRICES | BOOKS),
    "ordered and housed": {"booked": PRICES, "h200": PRICES | BOOKS},
}
"""Inputs of clusters that are not yellow, by setting."""


def other(label: str, number: float, unit: str, share: float = 1.37) -> float:
    """Return another number for a cell, by what it is."""
    steps = {"months": 13, "share of the price": 0.07, "share of cost": 0.11, "a year": 0.03}
    return number + steps[unit] if unit in steps else round(number * share, 4)


def changes_of(content: bytes) -> dict[str, tuple[dict[str, float], tuple[str, ...]]]:
    """Return for every live cell, and for all at once, what is typed and the same change of the scenario."""
    rows = {row[0]: row for row in sheets_of(content)["Assumptions"]}
    found = {}
    for label, (cell, number) in live_cells(content).items():
        unit, key = rows[label][3], rows[label][4]
        now = other(label, number, unit)
        typed = f"{key}={now:.0f}" if unit == "months" else f"{key}={now!r}"
        change = (typed,) if key else (WINDOWS % (0.11 * now / number, 0.05 * now / number),)
        found[label] = ({cell: now}, change)
    cells = {cell: number for typed, _ in found.values() for cell, number in typed.items()}
    return found | {"all": (cells, tuple(change for _, changes in found.values() for change in changes))}


def recalculated_cells_agree(run: Run, name: str, folder: Path, only: tuple[str, ...] | None = None) -> None:
    """Type other numbers into the yellow cells, let LibreOffice calculate, and hold all of it against new runs."""
    base = (*FLEET_SET, *SETTINGS[name])
    book = written(run(*base))
    changes = {label: change for label, change in changes_of(book).items() if only is None or label in only}
    books = {label: with_cells(book, cells) for label, (cells, _) in changes.items()}
    for label, sheets in recalculate(books, folder).items():
        agree(sheets, run(*base, *changes[label][1]))


@NEEDS_OFFICE
def test_all_live_cells_changed_at_once_give_what_a_new_run_gives(run: Run, tmp_path: Path) -> None:
    books, expected = {}, {}
    result = run(*EVERYTHING)
    books["as simulated"], expected["as simulated"] = written(result), result
    for name in DEFAULT:
        base = (*FLEET_SET, *SETTINGS[name])
        book = written(run(*base))
        cells, overrides = changes_of(book)["all"]
        books[name], expected[name] = with_cells(book, cells), run(*base, *overrides)
    for name, sheets in recalculate(books, tmp_path).items():
        agree(sheets, expected[name])


@NEEDS_OFFICE
@pytest.mark.prove
@pytest.mark.parametrize("name", DEFAULT)
def test_every_live_cell_alone_gives_what_a_new_run_gives(run: Run, tmp_path: Path, name: str) -> None:
    recalculated_cells_agree(run, name, tmp_path)


@NEEDS_OFFICE
@pytest.mark.prove
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in DEFAULT])
def test_the_live_cells_of_every_setting_give_what_a_new_run_gives(run: Run, tmp_path: Path, name: str) -> None:
    only = ("all", "Discount rate", "Electricity, average of its windows") if name != "borrowed" else None
    recalculated_cells_agree(run, name, tmp_path, only)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_stores_what_was_simulated_and_paints_what_it_follows(run: Run, name: str) -> None:
    result = run(*FLEET_SET, *SETTINGS[name])
    book = written(result)
    sheets = sheets_of(book)
    agree(sheets, result)
    figures, kept = run_measures.measures(result), {row[0]: row[2] for row in sheets["Summary"]}
    for label, measure in LABELS.items():
        assert label not in kept or kept[label] == pytest.approx(figures[measure], rel=1e-9), label
    live = set(live_cells(book))
    missing = {f"{cluster}: {kind}" for cluster, kinds in UNFOLLOWED.get(name, {}).items() for kind in kinds}
    for row in sheets["Assumptions"][4:]:
        if not row[0]:
            break
        follows, own = row[0] in live, row[0].partition(": ")[2]
        if own in PRICES | BOOKS:
            assert follows == (row[0] not in missing), row
        assert follows == (not row[5] and own != "price after discounts"), row
        assert follows or "does not follow" in row[5] or own == "price after discounts", row
    if name == "every input":
        rents = {"leased: rent", "cloud: rent", "Rent for what would be shed", "Rent of space and power provisioned"}
        prices = {"Token price, input", "Token price, output", "Electricity", "Discount rate"}
        assert SALARIES | rents | prices <= live
