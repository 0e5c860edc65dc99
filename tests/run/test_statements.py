"""The statements of runs: they tie whatever a plan owns, buys, sells and owes, and are what the files say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.answers.run import write_run
from planner.finance.accounting.cohorts import (
    assets_of,
    is_owned,
    leases_of,
    owned_value_cents,
    tax_base,
)
from planner.finance.accounts import View
from planner.finance.depreciation import LossRule, depreciate
from planner.finance.statements import LINES
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario, csv_rows

TAX_ROUNDING_USD = 0.02
"""Tax paid and tax expense are each rounded on a running total."""
PRICE = (
    "workloads.*.token_price={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 9}"
)


def deferred_tax_usd(result: RunResult) -> list[float]:
    """Return rate × (book value − tax basis) at each month's end, apart from the ledger's tax accounts."""
    plan, rules = result.plan, result.plan.money.market.tax
    assert rules is not None
    gain = tax_base(plan, result.cohorts, rules)[1]
    basis = np.where(
        is_owned(plan, result.cohorts), owned_value_cents(plan, result.cohorts) - gain, 0
    )
    book = depreciate(
        assets_of(plan, result.cohorts), plan.months.edge_coordinates
    ).closing_book_cents
    apart = (book - basis).sum(axis=0)
    table = result.statements()
    owned, owed = (np.zeros(plan.months.period_count) for _ in range(2))
    for lease in leases_of(plan, result.cohorts):
        held = depreciate(
            assets_of(plan, result.cohorts), plan.months.edge_coordinates
        ).closing_book_cents[lease.rows]
        kept = (np.arange(owned.size) < lease.schedule.ends) | (not lease.terms.is_bought)
        owned += np.where(kept, held.sum(axis=0), 0)
        owed += lease.schedule.balance_cents
        if (
            not lease.terms.is_bought
        ):  # the lessor's for tax: neither its worth nor its debt is in the basis
            apart -= lease.schedule.balance_cents
    # Rent for a term is deducted as it is paid: its right of use and debt have no tax basis.
    apart = apart + (table.right_of_use_usd * 100 - owned) - (table.leases_usd * 100 - owed)
    return [float(cents) / 100 for cents in rules.rate_fraction * apart]


@st.composite
def ordered(draw: st.DrawFn, start: str) -> list[str]:
    """Draw an order with deposits and milestones, or none."""
    chosen: list[str] = []
    if draw(st.booleans()):
        terms = [f"{{fraction: {draw(st.integers(1, 33)) / 100}, when: {when}, weeks: {draw(st.integers(0, 20))}}}"
                 for when in ("order", "delivery", "order")]  # fmt: skip
        chosen.append(
            f"clusters.booked={{accelerator: H200, nodes: 5, order: {{placed: {start}, lead_weeks: 1, deliveries: 3, "
            f"delivery_interval_weeks: {draw(st.integers(0, 12))}, payments: [{', '.join(terms)}]}}}}"
        )
        if draw(st.booleans()):
            chosen.append(f"clusters.booked.retire=2027-0{draw(st.integers(1, 9))}-09")
    return chosen


@st.composite
def contracted(draw: st.DrawFn) -> list[str]:
    """Draw a contract of a cluster, or none."""
    chosen: list[str] = []
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["reserved", "operating-lease", "on-demand", "finance-lease"]))
        terms = "usd_per_accelerator_h: 1.87"
        if kind == "reserved":
            terms += (
                f", identified_machines: true, term_months: {draw(st.sampled_from([1, 13, 36]))}"
            )
        if kind == "finance-lease":
            at_end = draw(st.sampled_from(["buy", "return"]))
            fee = draw(st.sampled_from([0, 0.07]))
            terms = (
                f"rate_per_year: 0.137, term_months: {draw(st.integers(1, 9))}, at_end: {at_end}"
            )
            terms += (
                f", exit_fee_fraction: {fee}, buy_out_fraction: {draw(st.integers(0, 90)) / 100}"
            )
        chosen.append(f"clusters.mi325x.contract={{kind: {kind}, {terms}}}")
        if draw(st.booleans()):
            chosen.append(f"clusters.mi325x.retire=2027-0{draw(st.integers(1, 9))}-17")
    return chosen


@st.composite
def plans(draw: st.DrawFn) -> list[str]:
    """Draw what a plan owns, buys, retires, earns and owes."""
    start = f"2026-{draw(st.integers(1, 12)):02d}-{draw(st.integers(1, 28)):02d}"
    chosen = [f"start={start}", "clusters.mi325x.online=null"]
    chosen += draw(ordered(start))
    chosen.append(f"horizon_months={draw(st.integers(1, 8))}")
    chosen.append(f"finance.opening_cash_usd={draw(st.integers(0, 10**9)) / 100}")
    chosen.append(f"finance.fiscal_year_start_month={draw(st.integers(1, 12))}")
    chosen.append(
        f"finance.depreciation_method={draw(st.sampled_from(['straight-line', 'declining-balance']))}"
    )
    if draw(st.booleans()):
        owned = [f"bought: 202{draw(st.integers(1, 5))}-{draw(st.integers(1, 12)):02d}-11"]
        if draw(st.booleans()):
            owned.append(f"cost_usd: {draw(st.integers(10**6, 10**8)) / 100}")
        if draw(st.booleans()):
            owned.append(f"book_value_usd: {draw(st.integers(0, 10**6)) / 100}")
        if draw(st.booleans()):
            owned.append(f"remaining_months: {draw(st.integers(0, 30))}")
        chosen.append("clusters.h200.owned={" + ", ".join(owned) + "}")
    if draw(st.booleans()):
        chosen.append(f"clusters.h200.retire=2027-0{draw(st.integers(1, 9))}-03")
    if draw(st.booleans()):
        chosen.append(PRICE)
    chosen.append(f"finance.books={draw(st.sampled_from(['ifrs', 'us-gaap']))}")
    chosen += [
        f"finance.{days}={draw(st.sampled_from([0, 17, 100]))}"
        for days in ("receivable_days", "payable_days")
    ]
    if draw(st.booleans()):
        bonus = draw(st.sampled_from([0, 0.4, 1]))
        losses = draw(st.sampled_from(["offset", "carry-forward"]))
        chosen.append(
            f"finance.tax={{rate_fraction: 0.25, bonus_fraction: {bonus}, losses: {losses}}}"
        )
    if draw(st.booleans()):
        how = draw(st.sampled_from(["annuity", "straight", "bullet"]))
        term = draw(st.integers(3, 60))
        fee = draw(st.sampled_from([0, 0.013]))
        chosen.append(
            "finance.loan={share_of_purchases_fraction: 0.61, rate_per_year: 0.087, grace_months: 2, "
            f"term_months: {term}, amortisation: {how}, fee_fraction: {fee}}}"
        )
    chosen += draw(contracted())
    return chosen


@given(overrides=plans())
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_balance_sheets_tie_on_some_plans(write: WriteScenario, overrides: list[str]) -> None:
    statements_tie(write, overrides)


@pytest.mark.prove
@given(overrides=plans())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_balance_sheets_tie_on_any_plan(write: WriteScenario, overrides: list[str]) -> None:
    statements_tie(write, overrides)


def statements_tie(write: WriteScenario, overrides: list[str]) -> None:
    """Hold the statements of a plan against each other, the ledger, and deferred tax from its own definition."""
    result = simulate(load_scenario(write(), overrides), seed=1)
    for frequency in ("month", "quarter", "year"):
        fleet, parts = (
            (table[list(LINES)] * 100).round().astype("int64")
            for table in (result.statements(frequency), result.statements(frequency, clusters=True))
        )
        for cents in (fleet, parts):
            assert (cents.assets_usd == cents.liabilities_usd + cents.equity_usd).all()
            assert (cents.cash_usd == cents.opening_cash_usd + cents.net_cash_flow_usd).all()
            assert cents.cash_usd.min() >= 0
        assert (fleet.sum() - parts.sum()).abs().max() == 0
        paid = [
            int(result.ledger.monthly_cents(view).sum()) for view in (View.CASH, View.FINANCING)
        ]
        assert fleet.net_cash_flow_usd.sum() - fleet.paid_in_usd.sum() == -sum(paid)
    months = result.statements()
    rules = result.plan.money.market.tax
    if rules is not None and rules.losses is LossRule.CARRY_FORWARD:
        assert (months.deferred_tax_usd >= 0).all()
    elif rules is not None:
        assert months.deferred_tax_usd.tolist() == pytest.approx(
            deferred_tax_usd(result), abs=TAX_ROUNDING_USD
        )


def test_the_files_hold_the_statements_to_the_cent(write: WriteScenario, tmp_path: Path) -> None:
    result = simulate(load_scenario(write(), [PRICE, "finance.fiscal_year_start_month=2"]), seed=1)
    write_run(result, tmp_path / "out")
    rows = csv_rows(tmp_path / "out" / "statement_quarterly.csv")
    table = result.statements("quarter")
    assert [row["period"] for row in rows] == ["FY2026-Q4", "FY2027-Q1"] == table.period.tolist()
    assert [row["date"] for row in rows] == ["2026-01-01", "2026-02-01"]
    assert [row["equity_usd"] for row in rows] == [f"{amount:.2f}" for amount in table.equity_usd]
    chart = {row["account"]: row for row in csv_rows(tmp_path / "out" / "accounts.csv")}
    ledger = csv_rows(tmp_path / "out" / "ledger.csv")
    # What accounts.csv says of each account is enough to rebuild the statements from ledger.csv.
    income = sum(
        -round(100 * float(row["amount_usd"]))
        for row in ledger
        if chart[row["account"]]["category"]
        in ("revenue", "cost_of_serving", "operating_expense", "tax")
    )
    paid = sum(
        round(100 * float(row["amount_usd"]))
        for row in ledger
        if chart[row["account"]]["is_cash"] == "true"
    )
    months = result.statements()
    assert income == round(100 * months.net_income_usd.sum())
    assert -paid == round(100 * (months.cash_usd - months.paid_in_capital_usd).iloc[-1])
