"""The workbook of real runs: what it stores, and what LibreOffice makes of its formulas."""

from __future__ import annotations

import csv
import functools
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from planner.answers.live_workbook import run_pages, run_workbook
from planner.answers.run import run_tables, write_run
from planner.finance.accounting import measures as run_measures
from planner.finance.accounting.measures import row_factors, series_of
from planner.finance.accounts import ACCOUNT_CODES, NOT_COST_ACCOUNTS, Account, View
from planner.finance.ledger import Dimension
from planner.finance.measure_names import FLEET, SITE
from planner.finance.statements import Frequency
from planner.run import tables
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY
from tests.finance.test_accounting import EVERYTHING
from tests.ledgers import Run
from tests.output.calculator import calculate
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

SHEETS = (
    "Summary", "Inputs", "By month", "Timeline", "By cluster", "Lines", "Quantities", "Cohorts", "Depreciation",
    "Statements", "Unit economics", "Reconciliation", "Measures", "Assumptions", "Events",
)  # fmt: skip
FURTHER = ("Open items", "Loan", "Loan stress")
"""Sheets of runs with days to payment, or with a loan."""
RECORDS = SHEETS[SHEETS.index("Statements") :]
TAX = (Account.TAX_CASH, Account.TAX_DEFERRED, Account.TAX_ON_END_VALUE)
MEASURES = {
    "Cost of ownership, USD": "tco_usd",
    "NPV, USD": "npv_usd",
    "Cost, USD": "cost_usd",
    "Cash, USD": "cash_usd",
    "Cost per million output tokens, USD": "cost_per_million_output_tokens_usd",
    "Cost per million tokens, USD": "cost_per_million_tokens_usd",
    "Levelised cost per million output tokens, USD": "levelised_cost_per_million_output_tokens_usd",
    "Levelised cost per million tokens, USD": "levelised_cost_per_million_tokens_usd",
    "Revenue, USD": "revenue_usd",
    "Gross margin": "gross_margin_fraction",
    "Operating margin": "operating_margin_fraction",
}
TIMELINE = {
    "cost_usd": "Cost, USD",
    "cost_per_million_tokens_usd": "Cost per million tokens, USD",
    "cumulative_cost_per_million_output_tokens_usd": "Cumulative cost per million output tokens, USD",
    "served_tokens": "Served tokens",
    "utilisation_fraction": "Utilisation",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the tiny scenario with changes, the same ones once."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    path.write_text(TINY)

    @functools.cache
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(path, overrides))

    return runner


@functools.cache
def written(result: RunResult) -> bytes:
    return run_workbook(
        result, run_pages(result, {table.name: table.columns for table in run_tables(result)}), {}
    )


def before_tax(result: RunResult) -> dict[str, float | None]:
    """Return the measures of a run without what tax adds to its ledger, worked out here from the ledger alone."""
    ledger = result.ledger
    figures = dict(run_measures.measures(result))
    series = series_of(result)
    paid = result.ledger.amount_cents / 100

    def of(view: View, *left_out: Account) -> np.ndarray:
        return ledger.rows_in(view) & ~np.isin(
            ledger.account_code, [ACCOUNT_CODES[account] for account in (*TAX, *left_out)]
        )

    factors = row_factors(result)
    figures["npv_usd"] = -float((paid * factors)[of(View.ECONOMIC)].sum())
    figures["cash_usd"] = float(paid[of(View.CASH)].sum())
    capital = result.plan.money.capital
    edges = result.plan.months.edge_coordinates
    middles = (
        edges[1:] + (edges[:-1] if capital.timing == "mid_month" else edges[1:])
    ) / 2 - edges[0]
    running = (1 + capital.discount_rate_per_year) ** (-middles / 12)
    cost = float((paid * factors)[of(View.ECONOMIC, *NOT_COST_ACCOUNTS)].sum())
    for kind, tokens in (("output_tokens", series.output_tokens), ("tokens", series.tokens)):
        sold = float(tokens @ running) / 1e6
        figures[f"levelised_cost_per_million_{kind}_usd"] = cost / sold if sold else None
    return figures


def agree(sheets: dict[str, Sheet], result: RunResult, cent: int = 0) -> None:
    """Hold a workbook against a run: headlines, timeline, and every line of every month, to so many cents."""
    found = measures(sheets)
    figures = run_measures.measures(result)
    if result.plan.money.market.tax is not None:
        figures = before_tax(result)
    else:
        for name, figure in before_tax(result).items():
            assert figure is figures[name] or figure == pytest.approx(figures[name], rel=1e-9), name
    for label, name in MEASURES.items():
        assert label in found or figures[name] is None, label
        assert label not in found or found[label] == pytest.approx(
            figures[name], rel=1e-6, abs=0.02 * cent
        ), label
    assert ("before income tax" in sheets["Summary"][0][0]) == (
        result.plan.money.market.tax is not None
    )
    by_month = result.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    clusters = [*(cluster.name for cluster in result.plan.clusters), SITE]
    months = by_month.shape[0]
    lines: dict[tuple[str, str], list[list[float]]] = {}
    for row in sheets["Lines"][3:]:
        lines.setdefault((row[0], row[2]), []).append(
            [cell or 0.0 for cell in row[11 : 11 + months]]
        )
    for place, cluster in enumerate(clusters):
        cohorts = sum(known.cluster == place for known in result.cohorts)
        for account in Account:
            posted = by_month[:, place, ACCOUNT_CODES[account]]
            own = lines.get((cluster, str(account)), [])
            if account in TAX or not account.views & (View.CASH | View.ACCRUAL | View.ECONOMIC):
                assert not own
                continue
            now = np.rint(np.sum(own, axis=0) * 100) if own else np.zeros(months)
            off = np.abs(now - posted).max()
            assert off <= cent * max(len(own), cohorts), (cluster, account, off)
    table = {
        row[0]: dict(zip(sheets["By cluster"][1], row, strict=True))
        for row in sheets["By cluster"][2:]
    }
    for heading in table[FLEET]:
        parts = [table[cluster][heading] or 0.0 for cluster in clusters]
        if "illion" not in heading and heading not in (
            "Cluster",
            "Served tokens",
            "Served output tokens",
        ):
            assert table[FLEET][heading] == pytest.approx(sum(parts), abs=0.005), heading
    totals = tables.timeline_monthly(result)
    split = tables.timeline_monthly(result, clusters=True)
    rows = {(row[0], row[1]): row for row in sheets["Timeline"][2:]}
    heading = sheets["Timeline"][1]
    for name, said in TIMELINE.items():
        shown = [*zip(totals["month"], [FLEET] * months, totals[name], strict=True)]
        shown += zip(
            split["month"],
            split["cluster"],
            split.get(name, [np.nan] * len(split["month"])),
            strict=True,
        )
        for month, cluster, figure in shown:
            now = rows[month, cluster][heading.index(said)]
            assert (now == "") == bool(np.isnan(figure)), (said, month, cluster)
            assert now == "" or now == pytest.approx(figure, rel=1e-6, abs=0.02 * cent), (
                said,
                month,
                cluster,
            )
    paid = totals["cost_usd"].tolist()
    assert column(sheets["By month"], "Cost, USD", 1)[:months] == pytest.approx(
        paid, rel=1e-6, abs=0.02 * cent
    )


def test_summary_csv_and_workbook_agree(run: Run, tmp_path: Path) -> None:
    result = run(*EVERYTHING)
    write_run(result, tmp_path / "out")
    figures = json.loads((tmp_path / "out" / "summary.json").read_text())["measures"]
    with (tmp_path / "out" / "measures.csv").open(newline="", encoding="utf-8") as stream:
        listed = {row["measure"]: row["value"] for row in csv.DictReader(stream)}
    assert set(listed) == set(figures)
    for name, value in figures.items():
        cents = 0.0051 if name.endswith("_usd") and "_per_" not in name else 1e-6
        assert (
            listed[name] == ""
            if value is None
            else float(listed[name]) == pytest.approx(value, abs=cents)
        ), name
    content = (tmp_path / "out" / "workbook.xlsx").read_bytes()
    sheets = sheets_of(content)
    agree(sheets, result)
    assert tuple(name for name in sheets if name not in FURTHER) == SHEETS
    assert set(sheets) == {*SHEETS, *FURTHER}
    assert sheets["Open items"][0][0].startswith("Recalculated from the yellow cells")
    for name in ("Loan", "Loan stress"):
        assert sheets[name][0][0].startswith("A record of the run")
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        assert len([name for name in book.namelist() if name.startswith("xl/charts/chart")]) == 6
        assert not [name for name in book.namelist() if "external" in name]


def test_a_sheet_follows_its_inputs_or_says_that_it_is_a_record(run: Run) -> None:
    content = written(run(*FLEET_SET, *SETTINGS["every input"]))
    sheets = sheets_of(content)
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        formulas = {
            name: book.read(f"xl/worksheets/sheet{number}.xml").decode().count("<f>")
            for number, name in enumerate(sheets, start=1)
        }
        drawn = [
            book.read(name).decode()
            for name in book.namelist()
            if name.startswith("xl/charts/chart")
        ]
    for name, sheet in sheets.items():
        is_record = name in RECORDS
        assert sheet[0][0].startswith("A record of the run") == is_record, name
        assert bool(formulas[name]) != (is_record or name == "Inputs"), name
    assert not [chart for chart in drawn if any(f"<c:f>{name}!" in chart for name in RECORDS)]


def test_the_statements_are_those_of_the_tables(run: Run) -> None:
    result = run(*EVERYTHING)
    sheet = sheets_of(written(result))["Statements"]
    shown = dict(zip(column(sheet, "Period", 1), column(sheet, "Net income, USD", 1), strict=True))
    for frequency in Frequency:
        table = tables.statement(result, frequency)
        periods = table["month" if frequency is Frequency.MONTH else "period"]
        lines = zip(periods, table["net_income_usd"], strict=True)
        net = {period: amount / 100 for period, amount in lines}
        assert {period: shown[period] for period in net} == pytest.approx(net)


def test_a_run_without_machines_still_has_a_workbook(run: Run) -> None:
    result = run("clusters.h200.nodes=0", "clusters.mi325x=null")
    agree(sheets_of(written(result)), result)


FLEET_SET = (
    "horizon_months=14",
    "clusters.h200.accelerator_price_usd=31234.57",
    "clusters.mi325x={accelerator: MI325X, nodes: 2, accelerator_price_usd: 17777.77, online: 2026-05-20}",
    "clusters.mi325x.retire=2026-11-05",
    "clusters.b200={accelerator: B200, nodes: 1, accelerator_price_usd: 40000, online: 2027-02-27}",
    "clusters.h200.retire=2027-01-15",
    "site.electricity_usd_per_kwh=0.08",
    "finance.depreciation_months=48",
)
"""Bought and retired inside months, sold before the end and owned beyond it."""
SOLD = "workloads.*.token_price=" + (
    "{input_usd_per_million_tokens: 3, output_usd_per_million_tokens: 90, change_per_year: -0.2}"
)
WINDOWS = (
    "site.electricity.windows=[{name: day, usd_per_kwh: %r, start_hour: 8}, "
    "{name: night, usd_per_kwh: %r, end_hour: 8}]"
)
SETTINGS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "listed prices, paid later": (
        "workloads.chat.token_price=api",
        "workloads.chat.prefix_cache_hit_fraction=0.3",
        "workloads.chat.model=gpt-oss-120b",
        "workloads.nightly={model: llama-3.1-8b, requests_per_s: 30, priority: deferrable, token_price: api,"
        " lengths: {input: {mean: 700}, output: {mean: 150}}}",
        "finance.token_price_change_per_year=-0.3",
        "finance.receivable_days=45",
        "finance.payable_days=33",
        "finance.insurance_fraction_per_year=0.01",
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "finance.selling_cost_fraction=0.06",
        "clusters.old={accelerator: H200, nodes: 1, owned: {bought: 2024-05-01}, retire: 2026-08-11}",
        "clusters.booked={accelerator: H200, nodes: 2, order: {placed: 2025-12-10, lead_weeks: 8,"
        " payments: [{fraction: 0.3}, {fraction: 0.1, when: delivery, weeks: 9}]}}",
    ),
    "model change": (
        "workloads.chat.token_price=api",
        "workloads.chat.models=[{from: 2026-02-10, model: gpt-oss-120b}]",
        "workloads.nightly={model: llama-3.1-8b, requests_per_s: 30, priority: deferrable, token_price: api,"
        " lengths: {input: {mean: 700}, output: {mean: 150}}}",
        "finance.payable_days=20",
    ),
    "paid later": (
        SOLD,
        "finance.receivable_days=30",
        "finance.payable_days=45",
        "finance.books=ifrs",
    ),
    "every input": (
        SOLD,
        "workloads.chat.prefix_cache_hit_fraction=0.3",
        "workloads.chat.requests_per_s=4000",
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
    "ordered": (
        SOLD,
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "clusters.booked={accelerator: H200, nodes: 2, order: {placed: 2025-12-10, lead_weeks: 8,"
        " payments: [{fraction: 0.3}, {fraction: 0.1, when: delivery, weeks: 9}]}}",
        "clusters.h200.components={hosts: {depreciation_months: 60}, network: {residual_fraction: 0}}",
    ),
    "mid-month start": (
        "start=2026-01-10",
        "finance.cash_flow_timing=month_end",
        "finance.end_value=none",
    ),
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
    "residuals of vendors": (
        SOLD,
        "finance.residual_basis=vendor-prior",
        "finance.tax={rate_fraction: 0.25}",
    ),
    "owned at a book value": (
        "clusters.old={accelerator: H200, nodes: 2, owned: {bought: 2024-05-05, book_value_usd: 250000.01}}",
    ),
    "contracts, deposits, parts and inflation": (
        SOLD,
        "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}",
        "finance.inflation_per_year=0.03",
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
DEFAULT = ("plain", "every input", "listed prices, paid later")
"""Settings calculated anew in every run of the tests; of the others, and cell by cell, ``make prove``."""
SALARIES = {"Salary of a software engineer", "Salary of operations staff", "Cost of a repair crew"}
PRICES = {"price of an accelerator", "discount", "price of a host"}
BOOKS = {"book life", "residual book value"}
UNFOLLOWED = {
    "listed prices, paid later": {"old": PRICES, "booked": PRICES},
    "every input": {"old": PRICES},
    "declining balance": dict.fromkeys(("h200", "mi325x", "b200"), PRICES | BOOKS),
    "residuals of vendors": dict.fromkeys(("h200", "mi325x", "b200"), BOOKS),
    "owned at a book value": {"old": PRICES | BOOKS},
    "contracts, deposits, parts and inflation": {
        "h200": PRICES | BOOKS,
        "back": PRICES | BOOKS,
        "kept": PRICES | BOOKS,
        "booked": PRICES,
    },
    "leased": dict.fromkeys(("h200", "back"), PRICES | BOOKS),
    "ordered": {"booked": PRICES, "h200": PRICES | BOOKS},
}
"""Inputs of clusters that have no cell, by setting."""
NO_RATE = (
    "listed prices, paid later",
    "leased",
    "ordered",
    "real rate",
    "contracts, deposits, parts and inflation",
)
"""Settings in which the discount rate has none: capital is charged for beyond the books, or the rate is real."""


def other(number: float, unit: str) -> float:
    """Return another number for a cell, by what it is."""
    steps = {"months": 13, "share of the price": 0.07, "share of cost": 0.11, "a year": 0.03}
    return number + steps[unit] if unit in steps else round(number * 1.37, 4)


def changes_of(content: bytes) -> dict[str, tuple[dict[str, float], tuple[str, ...]]]:
    """Return for every live cell, and for all at once, what is typed and the same change of the scenario."""
    rows = {row[0]: row for row in sheets_of(content)["Inputs"]}
    found = {}
    for label, (cell, number) in live_cells(content).items():
        unit = rows[label][3]
        key = rows[label][4]
        now = other(number, unit)
        typed = f"{key}={now:.0f}" if unit == "months" else f"{key}={now!r}"
        change = (typed,) if key else (WINDOWS % (0.11 * now / number, 0.05 * now / number),)
        found[label] = ({cell: now}, change)
    cells = {cell: number for typed, _ in found.values() for cell, number in typed.items()}
    return found | {
        "all": (cells, tuple(change for _, changes in found.values() for change in changes))
    }


@pytest.mark.parametrize("name", DEFAULT)
def test_all_live_cells_changed_at_once_give_what_a_new_run_gives(run: Run, name: str) -> None:
    base = (*FLEET_SET, *SETTINGS[name])
    book = written(run(*base))
    agree(calculate(book), run(*base))
    cells, overrides = changes_of(book)["all"]
    assert len(cells) >= 20 or name == "plain"
    agree(calculate(with_cells(book, cells)), run(*base, *overrides), cent=1)


@pytest.mark.prove
@pytest.mark.parametrize("name", DEFAULT)
def test_every_live_cell_alone_gives_what_a_new_run_gives(run: Run, name: str) -> None:
    base = (*FLEET_SET, *SETTINGS[name])
    book = written(run(*base))
    for cells, overrides in changes_of(book).values():
        agree(calculate(with_cells(book, cells)), run(*base, *overrides), cent=1)


@pytest.mark.prove
@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in DEFAULT])
def test_the_live_cells_of_every_setting_give_what_a_new_run_gives(run: Run, name: str) -> None:
    base = (*FLEET_SET, *SETTINGS[name])
    book = written(run(*base))
    cells, overrides = changes_of(book)["all"]
    agree(calculate(with_cells(book, cells)), run(*base, *overrides), cent=1)


@NEEDS_OFFICE
def test_libreoffice_calculates_what_the_tests_calculate(run: Run, tmp_path: Path) -> None:
    books = {}
    for name in DEFAULT:
        book = written(run(*FLEET_SET, *SETTINGS[name]))
        books[name] = with_cells(book, changes_of(book)["all"][0])
    for name, sheets in recalculate(books, tmp_path).items():
        base = (*FLEET_SET, *SETTINGS[name])
        _, overrides = changes_of(written(run(*base)))["all"]
        agree(sheets, run(*base, *overrides), cent=1)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_stores_what_was_simulated_and_has_a_cell_for_what_it_follows(
    run: Run, name: str
) -> None:
    result = run(*FLEET_SET, *SETTINGS[name])
    book = written(result)
    sheets = sheets_of(book)
    agree(sheets, result)
    live = set(live_cells(book))
    assert live == {row[0] for row in sheets["Inputs"][2:]}
    bought = [cluster.name for cluster in result.plan.clusters if cluster.rent is None]
    wanted = {f"{cluster}: {kind}" for cluster in bought for kind in PRICES | BOOKS}
    missing = {
        f"{cluster}: {kind}"
        for cluster, kinds in UNFOLLOWED.get(name, {}).items()
        for kind in kinds
    }
    assert {
        label
        for label in live
        if ": " in label and not label.endswith("rent") and "token" not in label
    } == wanted - missing
    assert ("Discount rate" in live) == (name not in NO_RATE)
    if name == "every input":
        rents = {
            "leased: rent",
            "cloud: rent",
            "Rent instead of shedding",
            "Rent of space and power provisioned",
        }
        prices = {
            "chat: token price, input",
            "chat: token price, output",
            "Electricity",
            "Discount rate",
        }
        assert SALARIES | rents | prices <= live
