"""Runs under either accounting standard: what stands in the statements, and that no measure of value moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.finance.accounting.commitments import commitments
from planner.finance.accounting.measures import measures, ownership
from planner.finance.accounts import Account
from planner.run.simulate import RunResult
from tests.ledgers import Run

SOLD = "workloads.*.token_price={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 9}"
RENT = [32 * 1.5 * 24 * days for days in (31, 28, 31)]
"""Of 32 accelerators at 1.50 an hour, from January to March 2026."""


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *overrides: run("clusters.mi325x=null", *overrides)


def leased(months: int, kind: str = "operating-lease", more: str = "") -> str:
    terms = f"kind: {kind}, usd_per_accelerator_h: 1.5, term_months: {months}{more}"
    return f"clusters.h200.contract={{{terms}}}"


def fleet(result: RunResult, frequency: str = "month") -> Any:
    return result.statements(frequency)


def moved(one: RunResult, other: RunResult) -> set[str]:
    return {name for name, value in measures(one).items() if measures(other)[name] != value}


def test_an_operating_lease_stands_in_the_balance_sheet(run: Run) -> None:
    """36 months of rent by the day at 6% / 12 a month, worked out apart from the last month to the first."""
    lease = (
        leased(36),
        "finance.borrowing_rate_per_year=0.06",
        SOLD,
        "finance.opening_cash_usd=1e7",
    )
    gaap = run(*lease)
    ifrs = run(*lease, "finance.books=ifrs")
    firsts = np.arange("2026-01", "2029-02", dtype="datetime64[M]").astype("datetime64[D]")
    rent = 32 * 1.5 * 24 * np.diff(firsts).astype(float)
    owed = np.zeros(37)
    for month in range(35, -1, -1):
        owed[month] = (owed[month + 1] + rent[month]) / 1.005
    for result in (gaap, ifrs):
        assert fleet(result).leases_usd.tolist() == pytest.approx(owed[1:4].tolist(), abs=0.02)
    used = 1 - np.cumsum(np.diff(firsts).astype(float))[:3] / 1096
    assert fleet(ifrs).right_of_use_usd.tolist() == pytest.approx(
        (owed[0] * used).tolist(), abs=0.02
    )
    assert fleet(gaap).right_of_use_usd.tolist() == fleet(gaap).leases_usd.tolist()
    interest = 0.005 * owed[:3]
    assert fleet(ifrs).interest_usd.tolist() == pytest.approx(interest.tolist(), abs=0.02)
    assert not fleet(gaap).interest_usd.any()
    written_off = -np.diff(owed[0] * used, prepend=owed[0])
    more = fleet(ifrs).cost_of_serving_usd - fleet(gaap).cost_of_serving_usd
    assert more.tolist() == pytest.approx((written_off - rent[:3]).tolist(), abs=0.03)
    # Rent is operating cash flow under US GAAP, financing under IFRS; cash is the same.
    shifted = fleet(ifrs).operating_cash_flow_usd - fleet(gaap).operating_cash_flow_usd
    assert shifted.tolist() == pytest.approx(RENT, abs=0.01)
    assert fleet(ifrs).cash_usd.tolist() == fleet(gaap).cash_usd.tolist()
    assert (
        fleet(ifrs).cash_for_debt_service_usd.tolist()
        == fleet(gaap).cash_for_debt_service_usd.tolist()
    )
    assert moved(gaap, ifrs) == {"pl_cost_usd"}


def test_deferred_tax_of_a_lease_is_on_right_of_use_less_debt(run: Run) -> None:
    """Rent is deducted as it is paid, so neither has a tax basis (IAS 12.22A)."""
    months = fleet(run(leased(36), SOLD, "finance.books=ifrs", "finance.tax={rate_fraction: 0.25}"))
    apart = 0.25 * (months.right_of_use_usd - months.leases_usd)
    assert months.deferred_tax_usd.tolist() == pytest.approx(apart.tolist(), abs=0.02)
    assert apart.abs().min() > 1


def test_rent_of_a_year_or_of_a_service_is_an_expense(run: Run) -> None:
    for contract in (leased(12), leased(36, "reserved")):
        for books in ("ifrs", "us-gaap"):
            months = fleet(run(contract, f"finance.books={books}"))
            assert not months.leases_usd.any()
            assert not months.right_of_use_usd.any()
    named = run(leased(36, "reserved", ", identified_machines: true"))
    assert fleet(named).leases_usd.all()
    assert moved(named, run(leased(36, "reserved"))) == set()  # P&L cost is the rent under US GAAP


def test_interest_is_where_each_standard_puts_it(run: Run) -> None:
    loan = (
        SOLD,
        "finance.tax={rate_fraction: 0.25}",
        "finance.loan={share_of_purchases_fraction: 0.7, rate_per_year: 0.09}",
    )
    gaap, ifrs = (fleet(run(*loan, f"finance.books={books}")) for books in ("us-gaap", "ifrs"))
    paid = 0.75 * ifrs.interest_usd  # interest less the tax it saves
    shifted = ifrs.operating_cash_flow_usd - gaap.operating_cash_flow_usd
    assert shifted.tolist() == pytest.approx(paid.tolist(), abs=0.02)
    assert (gaap.financing_cash_flow_usd - ifrs.financing_cash_flow_usd).tolist() == pytest.approx(
        shifted.tolist()
    )
    assert gaap.net_income_usd.tolist() == ifrs.net_income_usd.tolist()


def test_what_is_paid_later_is_owed_until_then(run: Run) -> None:
    at_once = run(SOLD)
    later = run(SOLD, "finance.receivable_days=45", "finance.payable_days=14")
    before = fleet(at_once)
    after = fleet(later)
    sold = before.revenue_usd
    assert after.receivables_usd[1] == pytest.approx(sold[1] + sold[0] * 17 / 31, abs=0.02)
    assert after.net_income_usd.tolist() == before.net_income_usd.tolist()
    change = np.diff(after.receivables_usd - after.payables_usd, prepend=0)
    shifted = before.operating_cash_flow_usd - after.operating_cash_flow_usd
    assert shifted.tolist() == pytest.approx(change.tolist(), abs=0.01)
    bills = (
        Account.ENERGY,
        Account.COOLING,
        Account.COLOCATION,
        Account.MAINTENANCE,
        Account.SUPPORT_CONTRACTS,
    )
    table = later.ledger_table().query("month == '2026-03-01'")
    billed = table[table.account.isin([str(account) for account in bills])].amount_usd.sum()
    assert after.payables_usd[2] == pytest.approx(billed * 14 / 31, abs=0.03)
    one = measures(at_once)
    other = measures(later)
    assert one["cost_usd"] == other["cost_usd"]
    assert one["tco_usd"] == pytest.approx(
        other["tco_usd"], abs=0.01
    )  # what is open counts on the last day
    assert float(other["npv_usd"] or 0) < float(one["npv_usd"] or 0)
    cheaper = run("finance.payable_days=30")
    assert float(measures(cheaper)["npv_usd"] or 0) > float(measures(run())["npv_usd"] or 0)
    assert -float(ownership(cheaper).cost_pv_usd[-1, -1]) == pytest.approx(
        measures(cheaper)["npv_usd"], abs=0.05
    )


def test_a_loan_beside_carried_losses(run: Run) -> None:
    """Without income all is loss: no tax is paid or saved, and no asset is shown unless profit is probable."""
    loan = (
        "finance.loan={share_of_purchases_fraction: 0.7, rate_per_year: 0.09, fee_fraction: 0.02}"
    )
    tax = "finance.tax={rate_fraction: 0.25, bonus_fraction: 0, losses: carry-forward%s}"
    doubtful = fleet(run(loan, tax % ""))
    sure = fleet(run(loan, tax % ", future_profit: probable"))
    assert not doubtful.tax_expense_usd.any()
    assert not doubtful.deferred_tax_usd.any()
    assert sure.tax_expense_usd.sum() == pytest.approx(
        0.25 * doubtful.net_income_usd.sum(), abs=0.02
    )
    assert sure.deferred_tax_usd.iloc[-1] == pytest.approx(sure.tax_expense_usd.sum(), abs=0.001)
    assert moved(run(loan, tax % ""), run(tax % "")) == {"pl_cost_usd"}


def rows(result: RunResult) -> dict[str, list[float]]:
    """Return the commitments at the last fiscal year's end, by kind."""
    table = commitments(result)
    spans = zip(*(table[span] for span in [*table][2:]), strict=True)
    last = table["period"][-1]
    return {
        kind: [float(cents) / 100 for cents in amounts]
        for period, kind, amounts in zip(table["period"], table["commitment"], spans, strict=True)
        if period == last
    }


def test_commitments_by_hand(run: Run) -> None:
    """At the end of March 2026: rent of 275 days of this year, of 90 more within a year, and of 1,006 days after it."""
    result = run(leased(48, "reserved"), "site.colocation_term_months=6")
    day = 32 * 1.5 * 24
    assert rows(result)["rent"] == pytest.approx([365 * day, (1461 - 90 - 365) * day, 0], abs=0.01)
    assert rows(result)["space"] == [0, 0, 0]  # at a provider's
    owned = run("site.colocation_term_months=84", "site.colocation_escalator_per_year=0.1",
                "finance.loan={share_of_purchases_fraction: 0.5, rate_per_year: 0, term_months: 20}")  # fmt: skip
    price = sum(-fleet(owned).investing_cash_flow_usd)
    assert rows(owned)["loans"] == pytest.approx([0.3 * price, 0.5 * price * 6 / 20, 0], abs=0.05)
    month = owned.ledger_table().query("account == 'colocation'").amount_usd.iloc[0]
    years = [
        9 + 3 * 1.1,
        9 * 1.1 + 12 * (1.1**2 + 1.1**3 + 1.1**4) + 3 * 1.1**5,
        9 * 1.1**5 + 12 * 1.1**6,
    ]
    assert rows(owned)["space"] == pytest.approx([month * share for share in years], rel=1e-6)
    ordered = run(
        "clusters.later={accelerator: H200, nodes: 2, order: {placed: 2026-03-01, lead_weeks: 4, "
        "slip_weeks: {low: 0, base: 9, high: 9}, payments: [{fraction: 0.3}]}}"
    )
    (order,) = ordered.run.log.undelivered
    price = order.nodes * sum(order.prices_usd)
    assert rows(ordered)["hardware on order"] == pytest.approx([0.7 * price, 0, 0], abs=0.01)
    assert fleet(ordered).deposits_usd.iloc[-1] == pytest.approx(0.3 * price, abs=0.01)


def test_what_is_signed_after_a_years_end_is_not_committed_then(run: Run) -> None:
    result = run(
        leased(48, "reserved"),
        "clusters.h200.online=2026-02-10",
        "finance.fiscal_year_start_month=2",
    )
    table = commitments(result)
    rent = [place for place, kind in enumerate(table["commitment"]) if kind == "rent"]
    within = [int(table["within_1_year_usd"][place]) for place in rent]
    assert [table["period"][place] for place in rent] == ["FY2026", "FY2027"]
    assert within[0] == 0 < within[1]


def test_space_outlives_its_machines(run: Run) -> None:
    plain, bound = (
        run("clusters.h200.retire=2026-02-01", f"site.colocation_term_months={term}")
        for term in (1, 12)
    )
    table = bound.ledger_table().query("account == 'colocation'")
    assert table.cluster.tolist() == ["h200", "site", "site"]
    assert table.amount_usd.tolist() == pytest.approx([table.amount_usd.iloc[0]] * 3, abs=0.01)
    assert plain.ledger_table().query("account == 'colocation'").amount_usd.tolist() == [
        table.amount_usd.iloc[0]
    ]
    assert rows(bound)["space"] == pytest.approx([9 * table.amount_usd.iloc[0], 0, 0], abs=0.05)


def test_statements_carry_tokens_and_their_cost(run: Run) -> None:
    result = run(SOLD)
    year = fleet(result, "year").iloc[0]
    timeline = result.timeline_monthly()
    assert year.served_tokens == pytest.approx(timeline.served_tokens.sum())
    assert year.cost_of_serving_per_million_tokens_usd == pytest.approx(
        1e6 * year.cost_of_serving_usd / year.served_tokens
    )
    parts = result.statements("quarter", clusters=True)
    assert parts.served_tokens.sum() == pytest.approx(year.served_tokens)


def test_the_owner_pays_in_what_cash_lacks(run: Run) -> None:
    months = fleet(run("finance.opening_cash_usd=1000"))
    assert not months.cash_usd.any()
    assert months.paid_in_usd.iloc[0] == pytest.approx(
        -(months.operating_cash_flow_usd + months.investing_cash_flow_usd).iloc[0] - 1000
    )
    assert months.paid_in_capital_usd.iloc[-1] == pytest.approx(months.paid_in_usd.sum())
    rich = fleet(run("finance.opening_cash_usd=1e9"))
    assert not rich.paid_in_usd.any()
