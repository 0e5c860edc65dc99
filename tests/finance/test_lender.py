"""A loan as its lender sees it: against closed forms, numpy-financial, pyxirr and runs of the stressed scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy_financial as npf  # type: ignore[import-untyped]
import pytest
import pyxirr

from planner.finance.accounting.carrying_values import carrying_values
from planner.finance.accounting.lender import lender_view, loan_life_cover, take_or_pay_usd
from planner.finance.accounting.measures import series_of
from planner.finance.accounts import Account
from planner.finance.financing import LoanTerms, loan_schedule
from planner.run.loan_tables import (
    STRESSES,
    loan_rows,
    stress_rows,
    stressed,
    with_late_deliveries,
)
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario

Write = Callable[..., Path]
Run = Callable[..., RunResult]
SOLD = (
    "workloads.*.token_price={input_usd_per_million_tokens: %r, output_usd_per_million_tokens: %r}"
)
BUSY = ("horizon_months=12", "workloads.chat.requests_per_s=900", "clusters.mi325x=null")
LOAN = (
    "finance.loan={share_of_purchases_fraction: 0.63, rate_per_year: 0.08, term_months: 60,"
    " undrawn_fee_per_year: 0.004, least_cover_ratio: 1.05, ltv_cap_fraction: 0.8}"
)


@pytest.fixture
def run(write: Write) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(), (*BUSY, *overrides)))

    return runner


def sold(multiple: float = 1.0) -> str:
    """Return tokens at a price that covers the loan twice or so, times a multiple."""
    return SOLD % (0.3 * multiple, 0.9 * multiple)


@pytest.mark.parametrize("grace", [0, 5])
def test_llcr_of_level_cash_is_a_present_value_over_the_balance(grace: int) -> None:
    """With cash c a month and n months to go, LLCR is pv(i, n, c) / B; of an annuity, c over its payment throughout."""
    loan = LoanTerms(rate_per_year=0.12, term_months=24, grace_months=grace)
    drawn = np.zeros(30)
    drawn[2] = 1_000.0
    purchases = np.round(drawn * 100).astype(np.int64)[:, None]
    balance = loan_schedule(loan, purchases).balance_cents[:, 0] / 100
    found = loan_life_cover(loan, drawn, balance, np.full(30, 80.0))
    for month in range(2, 26):
        worth = -npf.pv(0.01, 26 - month, 80.0)
        assert found[month] == pytest.approx(worth / balance[month], rel=1e-12)
    assert np.isnan(found[:2]).all()
    assert np.isnan(found[26:]).all()
    if not grace:
        assert found[2:26] == pytest.approx(80.0 / -npf.pmt(0.01, 24, 1_000.0), rel=1e-4)


def test_a_loan_that_outlives_the_horizon_has_the_last_years_cash_to_its_maturity() -> None:
    """Cash of 50, then 80 in the last year: beyond it each month has 80, as a longer horizon of such months would."""
    loan = LoanTerms(rate_per_year=0.08, term_months=60)
    cash = np.append(np.full(12, 50.0), np.full(60, 80.0))
    drawn = np.zeros(72)
    drawn[0] = 2_000.0
    purchases = np.round(drawn * 100).astype(np.int64)[:, None]
    balance = loan_schedule(loan, purchases).balance_cents[:, 0] / 100
    whole = loan_life_cover(loan, drawn, balance, cash)
    short = loan_life_cover(loan, drawn[:24], balance[:24], cash[:24])
    assert balance[23] > 0
    assert short == pytest.approx(whole[:24], rel=1e-12)


def test_the_fee_on_what_is_undrawn_by_hand() -> None:
    """600 drawn in month 0 and 1,200 in month 2, at 1.2% a year: 1.8, then 1.2 twice, then nothing."""
    purchases = np.array([[60_000], [0], [120_000], [0]])
    loan = LoanTerms(rate_per_year=0.1, term_months=12, undrawn_fee_per_year=0.012)
    assert loan_schedule(loan, purchases).undrawn_fee_cents[:, 0].tolist() == [180, 120, 120, 0]


def test_loan_to_value_by_hand_and_the_first_month_above_its_cap(run: Run) -> None:
    """H200 bought on the first day: balances of an annuity over the price of servers, 0.625 of it after a year."""
    result = run(sold(), LOAN)
    view = lender_view(result)
    cluster = result.plan.clusters[0]
    servers_usd = 4 * sum(cluster.first_prices_usd[:2])
    cost_usd = 4 * sum(cluster.first_prices_usd)
    ages = np.arange(1, 13)
    assert view.orderly_usd == pytest.approx(servers_usd * 0.625 ** (ages / 12), rel=1e-9)
    assert view.auction_usd == pytest.approx(0.65 * view.orderly_usd)
    # Drawn at the end of the first month; nothing is repaid in it.
    paid = ages - 1
    owed = -npf.fv(0.08 / 12, paid, npf.pmt(0.08 / 12, 60, 0.63 * cost_usd), 0.63 * cost_usd)
    assert view.balance_usd == pytest.approx(owed, abs=0.011)
    assert view.loan_to_value == pytest.approx(owed / view.orderly_usd, rel=1e-6)
    is_above = owed > 0.8 * view.orderly_usd
    assert 0 < is_above.sum() < 12
    first = result.plan.months.labels[int(np.argmax(is_above))]
    assert next(row[5] for row in stress_rows(result)) == first
    assert any(f"the first {first}" in warning for warning in result.warnings)
    bases = [row[6] for row in loan_rows(result)]
    assert bases == pytest.approx((80 * view.orderly_usd).tolist(), abs=0.5001)


@pytest.mark.parametrize("further", [(), ("finance.tax={rate_fraction: 0.25}",)])
def test_the_levered_return_is_pyxirrs(run: Run, further: tuple[str, ...]) -> None:
    """All at months' ends but the purchase on the first day: monthly flows, their monthly rate compounded."""
    result = run(sold(), LOAN, "finance.cash_flow_timing=month_end", *further)
    own = series_of(result).economic
    flows = np.zeros(13)
    np.add.at(flows, np.rint(own.dated_months).astype(int), own.dated_usd)
    assert own.dated_months == pytest.approx(np.rint(own.dated_months), abs=1e-9)
    flows[1:] += own.running_usd
    view = lender_view(result)
    ledger = result.ledger
    for account in (
        Account.LOAN_DRAWN,
        Account.LOAN_REPAID,
        Account.LOAN_INTEREST,
        Account.LOAN_FEES,
        Account.TAX_ON_INTEREST,
    ):
        rows = ledger.rows_of(account)
        np.add.at(flows, ledger.month_index[rows] + 1, -ledger.amount_cents[rows] / 100)
    flows[-1] -= view.balance_usd[-1]
    monthly = pyxirr.irr(flows)
    assert monthly is not None
    assert view.levered_irr == pytest.approx((1 + monthly) ** 12 - 1, rel=1e-6)


def test_each_stress_is_a_run_of_the_stressed_scenario(run: Run) -> None:
    """Token prices and resale values at 0.7 of what is stated, in new runs; late customers pay nothing for 3 months."""
    base = run(sold(), LOAN)
    same = {
        "token prices -30%": run(sold(0.7), LOAN),
        "resale values -30%": run(sold(), LOAN, "finance.resale_multiplier=0.7"),
    }
    for name, expected in same.items():
        found = lender_view(stressed(base, STRESSES[name]))
        view = lender_view(expected)
        assert found.quarter_cover == pytest.approx(view.quarter_cover, rel=1e-6)
        assert found.orderly_usd == pytest.approx(view.orderly_usd)
        assert found.levered_irr == pytest.approx(view.levered_irr, rel=1e-6)
        assert found.loan_life_cover == pytest.approx(view.loan_life_cover, nan_ok=True, rel=1e-6)
    late = stressed(base, STRESSES["customers three months late"])
    lost = lender_view(base).cash_usd - lender_view(late).cash_usd
    earned = -base.ledger.amount_cents[base.ledger.rows_of(Account.REVENUE)] / 100
    months = base.ledger.month_index[base.ledger.rows_of(Account.REVENUE)]
    revenue = np.bincount(months, weights=earned, minlength=12)
    assert lost[:3] == pytest.approx(revenue[:3], abs=0.011)
    assert np.abs(lost[3:]).max() < 0.011
    rows = {row[0]: row for row in stress_rows(base)}
    assert rows["as planned"][2] == ""
    assert rows["customers three months late"][2] == "FY2026-Q1"
    assert rows["all four"][4] == rows["resale values -30%"][4]


def test_late_deliveries_are_a_run_of_plans_that_come_a_quarter_later(run: Run) -> None:
    """Machines with a day come 91 days later, orders slip by 13 weeks more; what is there stays, and so do payments."""
    dated = "clusters.dated={accelerator: B200, nodes: 2, online: %s, retire: 2026-11-30}"
    order = (
        "clusters.ordered={accelerator: B200, nodes: 2, order: {placed: 2026-01-15, lead_weeks: 8,"
        " slip_weeks: {low: %d, base: %d, high: %d}, payments: [{fraction: 0.3, when: order}]}}"
    )
    rule = (
        "expansion.rules=[{when: utilisation_above, threshold_fraction: 0.01, cluster: ordered, nodes: 1,"
        " lead_weeks: 8, cooldown_months: 6%s}]"
    )
    base = run(sold(), LOAN, dated % "2026-04-01", order % (0, 2, 12), rule % "")
    late = stressed(base, STRESSES["deliveries three months late"])
    slip = ", slip_weeks: {low: 13, base: 13, high: 13}"
    expected = run(sold(), LOAN, dated % "2026-07-01", order % (13, 15, 25), rule % slip)
    assert late.ledger.amount_cents.tolist() == expected.ledger.amount_cents.tolist()
    assert late.ledger.account_cents(Account.REVENUE) != base.ledger.account_cents(Account.REVENUE)
    assert with_late_deliveries(run(sold(), LOAN).scenario) is None


ORDER = (
    "order: {placed: 2026-10-15, lead_weeks: 6, slip_weeks: {low: 0, base: 0, high: 0},"
    " payments: [{fraction: 0.3, when: order}]}"
)


@pytest.mark.parametrize(
    ("dates", "deposit_fraction"),
    [("online: 2026-12-01", 0.0), ("online: 2026-10-01, retire: 2026-11-30", 0.0), (ORDER, 0.3)],
    ids=["after the horizon", "after it retires", "ordered"],
)
def test_what_is_late_by_more_than_is_left_does_not_come(
    run: Run, dates: str, deposit_fraction: float
) -> None:
    """A deposit that falls due as planned is paid all the same; nothing is delivered, nor is the rest paid."""
    base = run(sold(), LOAN, f"clusters.dated={{accelerator: B200, nodes: 2, {dates}}}")
    late = stressed(base, STRESSES["deliveries three months late"])
    assert {cohort.cluster for cohort in base.cohorts if cohort.nodes} == {0, 1}
    assert {cohort.cluster for cohort in late.cohorts if cohort.nodes} == {0}
    price_usd = 2 * sum(base.plan.clusters[1].first_prices_usd)
    paid_usd = late.ledger.account_cents(Account.ORDER_PAID) / 100
    assert paid_usd == pytest.approx(deposit_fraction * price_usd, abs=0.01)
    assert len(list(stress_rows(base))) == len(STRESSES)


def test_a_plan_whose_only_machines_would_come_after_the_horizon_has_all_its_stress_rows(
    run: Run,
) -> None:
    rows = list(stress_rows(run(sold(), LOAN, "clusters.h200.online=2026-12-01")))
    assert [row[0] for row in rows] == [*STRESSES]


def test_contracted_power_and_space_are_paid_used_or_not(run: Run) -> None:
    """85% of 500 kW at 10 USD each month whatever is drawn; space to its term after the machines have left."""
    result = run(
        "site.electricity={demand_charge_usd_per_kw_month: 10, contracted_kw: 500}",
        "site.colocation_term_months=8",
        "clusters.h200.retire=2026-04-01",
        "clusters.b200={accelerator: B200, nodes: 1, online: 2026-04-01}",
    )
    by_month = result.ledger.account_cents(Account.DEMAND_CHARGE) / 100 / 12
    assert by_month == pytest.approx(0.85 * 500 * 10)
    take, unused = take_or_pay_usd(result)
    space = np.zeros(12)
    rows = result.ledger.rows_of(Account.COLOCATION)
    np.add.at(space, result.ledger.month_index[rows], result.ledger.amount_cents[rows] / 100)
    assert take == pytest.approx(space + 4250.0, abs=0.02)
    drawn = 10 * result.monthly.peak_facility_kw
    four_nodes, one_node = (
        nodes * result.plan.clusters[place].nameplate_kw for place, nodes in ((0, 4), (1, 1))
    )
    idle_space = 180 * (four_nodes - one_node)
    assert unused[4] == pytest.approx(4250.0 - drawn[4] + idle_space, rel=1e-6)
    assert unused[-1] == pytest.approx(4250.0 - drawn[-1], rel=1e-6)


def test_books_pass_the_market_where_a_straight_line_crosses_the_curve(run: Run) -> None:
    """Over 72 months to 0.2, a straight line from 1 lies above 0.625^(t/12) from the first month on; over 6 below."""
    for life, is_above in ((72, True), (6, False)):
        result = run(f"finance.depreciation_months={life}", "horizon_months=6")
        book, market = carrying_values(result)
        servers = 4 * sum(result.plan.clusters[0].first_prices_usd[:2])
        ages = np.arange(1, 7)
        assert book[:, 0] == pytest.approx(servers * (1 - 0.8 * ages / life), abs=0.01)
        assert market[:, 0] == pytest.approx(servers * 0.625 ** (ages / 12), rel=1e-9)
        assert bool((book > market).all()) == is_above
