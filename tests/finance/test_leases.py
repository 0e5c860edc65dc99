"""Finance leases against numpy-financial, a table worked by hand, buying at the same rate, and statements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy_financial as npf  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.finance.accounting.measures import measures, ownership
from planner.finance.accounts import CAPEX_ACCOUNTS, Account, View
from planner.finance.financing import LeaseSchedule, LeaseTerms, lease_schedule
from planner.finance.ledger import Dimension
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario
from tests.ledgers import Run, total


def schedule(
    owed: int, signed: float, months: int, leaves: float = np.inf, **changes: Any
) -> LeaseSchedule:
    terms = {
        "rate_per_year": 0.12,
        "term_months": 4,
        "buy_out_fraction": 0.1,
        "is_bought": True,
        "exit_fee_fraction": 0,
    }
    agreed = LeaseTerms(**(terms | changes))
    return lease_schedule(
        agreed, owed, signed + np.arange(agreed.term_months + 1.0), np.arange(months + 1.0), leaves
    )


def test_a_thousand_over_four_months_with_a_buy_out_of_a_hundred_by_hand() -> None:
    """1,000 at 1% a month leave 100: payments (1000 − 100/1.01⁴)·0.01/(1 − 1.01⁻⁴) = 231.6530, then 100 more.

    Owed 1000 → 778.3470 → 554.4775 → 328.3692 → 100; interest 10.00, 7.7835, 5.5448, 3.2837.
    """
    lease = schedule(100_000, 0.0, 6)
    assert lease.interest_cents.tolist() == [1000, 778, 555, 328, 0, 0]
    assert lease.balance_cents.tolist() == [77_835, 55_448, 32_837, 0, 0, 0]
    assert lease.principal_cents.tolist() == [22_165, 22_387, 22_611, 32_837, 0, 0]
    assert lease.paid_months[:4].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert lease.ends == 3


def test_leaving_pays_what_is_owed_interest_since_and_the_fee() -> None:
    lease = schedule(100_000, 0.0, 6, leaves=2.5, exit_fee_fraction=0.05)
    assert lease.balance_cents.tolist() == [77_835, 55_448, 0, 0, 0, 0]
    assert lease.interest_cents.tolist() == [1000, 778, 278, 0, 0, 0]  # half a month on 554.48
    assert lease.exit_fee_cents.tolist() == [0, 0, 2772, 0, 0, 0]
    assert lease.paid_months[2] == 2.5
    assert lease.ends == 2


def test_a_lease_signed_within_a_month_pays_within_the_next() -> None:
    lease = schedule(100_000, 1.25, 6)
    assert lease.principal_cents.tolist() == [0, 0, 22_165, 22_387, 22_611, 32_837]
    assert lease.balance_cents.tolist() == [0, 100_000, 77_835, 55_448, 32_837, 0]
    assert lease.paid_months[2] == 2.25


@given(st.floats(1e-4, 0.4), st.integers(1, 84), st.floats(0, 0.6), st.integers(10_000, 10**10))
@settings(max_examples=25)
def test_payments_are_numpy_financials(rate: float, term: int, share: float, owed: int) -> None:
    lease = schedule(owed, 0.0, term, rate_per_year=rate, term_months=term, buy_out_fraction=share)
    paid = lease.principal_cents + lease.interest_cents
    each = -npf.pmt(rate / 12, term, owed, -share * owed)
    theirs = np.full(term, each)
    theirs[-1] += share * owed
    assert paid.tolist() == pytest.approx(theirs.tolist(), abs=2.001 + 1e-9 * owed)
    assert lease.principal_cents.sum() == owed
    back = schedule(
        owed,
        0.0,
        term,
        rate_per_year=rate,
        term_months=term,
        buy_out_fraction=share,
        is_bought=False,
    )
    worth = LeaseTerms(
        rate_per_year=rate,
        term_months=term,
        buy_out_fraction=share,
        is_bought=False,
        exit_fee_fraction=0,
    ).owed_fraction
    assert worth * owed == pytest.approx(-npf.pv(rate / 12, term, each), rel=1e-9)
    assert back.principal_cents.sum() == owed


@pytest.fixture
def run(run: Run) -> Run:
    def runner(lease: str, *overrides: str) -> RunResult:
        contract = f"{{kind: finance-lease, {lease}}}" if lease else "null"
        return run("clusters.mi325x=null", f"clusters.h200.contract={contract}", *overrides)

    return runner


MONTHLY = 0.12 / 12
SAME = f"finance.discount_rate_per_year={(1 + MONTHLY) ** 12 - 1!r}"
IFRS = "finance.books=ifrs"
SOLD = "workloads.*.token_price={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 9}"


@pytest.mark.parametrize("term", [2, 12])
def test_a_lease_at_the_price_of_capital_is_worth_what_buying_is(run: Run, term: int) -> None:
    """Over its end or within it: at its own rate, payments and what is owed are worth the price; any other rate is not.

    Accrued cost has the same present value as what is paid, less what is left (Lücke's theorem).
    """
    bought, leased, dear = (
        run(lease, SAME)
        for lease in (
            "",
            f"rate_per_year: 0.12, term_months: {term}",
            f"rate_per_year: 0.18, term_months: {term}",
        )
    )
    price = total(bought, *CAPEX_ACCOUNTS)
    assert price == total(leased, Account.LEASE_STARTED)
    value, same, more = (
        float(measures(result)["npv_usd"] or 0) for result in (bought, leased, dear)
    )
    assert same == pytest.approx(value, abs=0.05)
    assert more < value - 0.001 * price
    assert -float(ownership(leased).cost_pv_usd[-1, -1]) == pytest.approx(same, abs=0.05)
    for name in ("levelised_cost_per_million_tokens_usd", "tco_usd"):
        assert measures(dear)[name] > measures(bought)[name]  # type: ignore[operator]
    charged = [result.cost_cents(View.ACCRUAL).sum(axis=1) / 100 for result in (bought, leased)]
    factors = (1 + MONTHLY) ** -np.arange(1.0, 4.0)
    assert charged[1] @ factors == pytest.approx(charged[0] @ factors, abs=0.05)
    assert measures(leased)["capex_usd"] == 0
    for account in (Account.MAINTENANCE, Account.COLOCATION, Account.ENERGY, Account.DEPRECIATION):
        assert total(leased, account) == total(bought, account) > 0


def test_the_statements_of_a_lease_that_is_bought_out(run: Run) -> None:
    result = run("rate_per_year: 0.12, term_months: 2", SOLD, IFRS)
    months = result.statements().reset_index()
    price = total(result, Account.LEASE_STARTED)
    payment = -npf.pmt(MONTHLY, 2, price, -0.1 * price)
    written_off = 0.8 * price / 36
    assert months.right_of_use_usd.tolist() == pytest.approx([price - written_off, 0, 0], abs=0.01)
    assert months.hardware_usd.tolist() == pytest.approx(
        [0, price - 2 * written_off, price - 3 * written_off], abs=0.02
    )
    first = price * (1 + MONTHLY) - payment
    assert months.leases_usd.tolist() == pytest.approx([first, 0, 0], abs=0.01)
    interest = [price * MONTHLY, first * MONTHLY, 0]
    assert months.interest_usd.tolist() == pytest.approx(interest, abs=0.01)
    paid = [payment, payment + 0.1 * price, 0]
    lessor = months.financing_cash_flow_usd - months.paid_in_usd
    assert lessor.tolist() == pytest.approx([-amount for amount in paid], abs=0.01)
    assert months.debt_service_usd.tolist() == pytest.approx(paid, abs=0.01)
    assert not months.investing_cash_flow_usd.any()
    plain = run("", SOLD, IFRS).statements().reset_index()
    assert months.operating_cash_flow_usd.tolist() == plain.operating_cash_flow_usd.tolist()
    assert (plain.net_income_usd - months.net_income_usd).tolist() == pytest.approx(
        interest, abs=0.011
    )


def test_machines_that_go_back_leave_with_their_lease(run: Run) -> None:
    result = run("rate_per_year: 0.12, term_months: 2, at_end: return, buy_out_fraction: 0.4")
    price = total(run(""), *CAPEX_ACCOUNTS)
    owed = total(result, Account.LEASE_STARTED)
    assert owed == pytest.approx(price * (1 - 0.4 * 1.01**-2), abs=0.05)
    payment = -npf.pmt(MONTHLY, 2, price, -0.4 * price)
    assert total(result, Account.LEASE_PRINCIPAL, Account.LEASE_INTEREST) == pytest.approx(
        2 * payment, abs=0.05
    )
    assert result.monthly.present_node_h[:, 0].tolist() == [4 * 744, 4 * 672, 0]
    assert not total(
        result, Account.RESIDUAL_VALUE, Account.RESALE, Account.LEASE_OWED, Account.DISPOSAL_LOSS
    )
    assert total(result, Account.DEPRECIATION) == pytest.approx(owed, abs=0.01)
    upkeep = 0.05 / 12 * price  # of what they cost new, not of what is owed
    by_month = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)[
        :, list(Account).index(Account.MAINTENANCE)
    ]
    assert by_month.tolist() == pytest.approx([upkeep * 100, upkeep * 100, 0], abs=1.01)


def test_what_is_retired_early_is_paid_off_and_sold_or_given_back(run: Run) -> None:
    lease = "rate_per_year: 0.12, term_months: 36, exit_fee_fraction: 0.03"
    sold, given = (
        run(f"{lease}, at_end: {end}", "clusters.h200.retire=2026-03-01")
        for end in ("buy", "return")
    )
    for result, is_sold in ((sold, True), (given, False)):
        price = total(result, Account.LEASE_STARTED)
        assert total(result, Account.LEASE_PRINCIPAL) == pytest.approx(price, abs=0.01)
        share = 0.1 if is_sold else 0.0
        left = npf.fv(MONTHLY, 2, -npf.pmt(MONTHLY, 36, price, -share * price), -price)
        assert total(result, Account.EXIT_FEES) == pytest.approx(0.03 * left, abs=0.01)
        assert (total(result, Account.RESALE) < 0) == is_sold
        assert result.statements().leases_usd.iloc[-1] == 0


def test_tax_of_a_lease(run: Run) -> None:
    """What is bought out is written off by the lessee; what goes back has its payments deducted."""
    tax = "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}"
    bought = run("rate_per_year: 0.12", SOLD, tax)
    owned = run("", SOLD, tax)
    interest = total(bought, Account.LEASE_INTEREST)
    assert total(owned, Account.TAX_CASH) - total(bought, Account.TAX_CASH) == pytest.approx(
        0.25 * interest, abs=0.02
    )
    back = run("rate_per_year: 0.12, at_end: return", SOLD, tax)
    before = run("rate_per_year: 0.12, at_end: return", SOLD)
    flow = before.statements()
    taxable = (flow.operating_cash_flow_usd + flow.financing_cash_flow_usd - flow.paid_in_usd).sum()
    assert total(back, Account.TAX_CASH) == pytest.approx(0.25 * taxable, abs=0.02)
    expense = total(back, Account.TAX_CASH, Account.TAX_DEFERRED)
    assert expense == pytest.approx(0.25 * flow.net_income_usd.sum(), abs=0.02)


def test_a_loan_lends_nothing_on_leased_machines(run: Run) -> None:
    loan = "finance.loan={share_of_purchases_fraction: 0.7, rate_per_year: 0.09}"
    assert total(run("rate_per_year: 0.12", loan), Account.LOAN_DRAWN) == 0


@pytest.mark.parametrize(
    ("lease", "parts"),
    [
        ("term_months: 36", ["rate_per_year"]),
        ("rate_per_year: 0.1, buy_out_fraction: 1", ["buy_out_fraction", "less than 1"]),
        ("rate_per_year: 0.1, usd_per_accelerator_h: 2", ["usd_per_accelerator_h"]),
    ],
)
def test_a_lease_that_cannot_be_is_refused(
    write: WriteScenario, planner: Planner, lease: str, parts: list[str]
) -> None:
    planner(
        "run", write(), "--set", f"clusters.h200.contract={{kind: finance-lease, {lease}}}"
    ).refused(*parts)


def test_an_operating_lease_keeps_ones_own_machines_up(write: WriteScenario) -> None:
    """All running costs are one's own, those that are a share of the price included."""
    more = ("finance.insurance_fraction_per_year=0.01", "finance.spare_part_price_fraction=1")
    owned, leased = (
        simulate(load_scenario(write(), ["clusters.mi325x=null", *more, *contract]), seed=1)
        for contract in (
            (),
            ("clusters.h200.contract={kind: operating-lease, usd_per_accelerator_h: 1.5}",),
        )
    )
    for account in (Account.MAINTENANCE, Account.INSURANCE, Account.SPARES):
        assert total(leased, account) == total(owned, account) > 0


@pytest.mark.parametrize(
    ("signed", "months", "horizon"),
    [
        ("2026-02-15", 1, 3),
        ("2026-01-31", 13, 24),
        ("2028-02-29", 12, 24),
        ("2028-02-29", 12, 12),
        ("2026-03-31", 6, 6),
    ],
)
def test_a_lease_pays_on_its_day_of_the_month_to_its_end_and_no_fee_for_leaving_then(
    write: WriteScenario, signed: str, months: int, horizon: int
) -> None:
    """By hand: eight H200 and a host, 1% a month; a term ends on its day of the month, or the last of a shorter one."""
    lease = f"{{kind: finance-lease, rate_per_year: 0.12, term_months: {months}, at_end: return, exit_fee_fraction: 0.2}}"  # noqa: E501
    result = simulate(
        load_scenario(
            write(),
            [
                f"start={signed}", f"horizon_months={horizon}", "clusters.mi325x=null", "clusters.h200.nodes=1",
                f"clusters.h200.contract={lease}", "reliability.failure_multiplier=0",
            ],
        ),
        seed=1,
    )  # fmt: skip
    cost = sum(result.plan.clusters[0].upkeep_prices_usd)
    payment = cost * (1 - 0.1 * 1.01**-months) * 0.01 / (1 - 1.01**-months)
    paid = [
        result.ledger.account_cents(account) / 100
        for account in (Account.LEASE_PRINCIPAL, Account.LEASE_INTEREST, Account.EXIT_FEES)
    ]
    assert paid[0] + paid[1] == pytest.approx(months * payment, abs=0.01 * months)
    assert paid[2] == 0
