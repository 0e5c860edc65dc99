"""Loans against numpy-financial, a table worked by hand, and the statements of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy_financial as npf  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.finance.accounting.measures import measures
from planner.finance.financing import Amortisation, LoanTerms, loan_schedule
from planner.finance.ledger import cents
from planner.finance.statements import Statements, cover_ratio
from tests.conftest import Planner, WriteScenario
from tests.ledgers import Run


def terms(**changes: Any) -> LoanTerms:
    plain: dict[str, Any] = {
        "share_fraction": 1.0,
        "rate_per_year": 0.12,
        "term_months": 4,
        "grace_months": 0,
        "amortisation": Amortisation.ANNUITY,
        "fee_fraction": 0.0,
        "least_cover_ratio": None,
    }
    return LoanTerms(**{**plain, **changes})


def single(loan: LoanTerms, usd: float, months: int) -> tuple[list[int], list[int], list[int]]:
    """Return interest, repayments and balances of one draw in the first month, in cents."""
    purchases = np.zeros((months, 1), dtype=np.int64)
    purchases[0] = round(usd * 100)
    found = loan_schedule(loan, purchases)
    return (
        found.interest_cents[:, 0].tolist(),
        found.repaid_cents[:, 0].tolist(),
        found.balance_cents[:, 0].tolist(),
    )


def test_a_thousand_over_four_months_by_hand() -> None:
    """1,000 at 1% a month: payments of 256.2811; interest 10.00, 7.5372, 5.0498, 2.5374."""
    interest, repaid, balance = single(terms(), 1_000.0, 6)
    assert interest == [0, 1000, 754, 505, 253, 0]
    assert repaid == [0, 24628, 24874, 25124, 25374, 0]
    assert balance == [100_000, 75_372, 50_498, 25_374, 0, 0]


@pytest.mark.parametrize(
    ("amortisation", "repaid", "interest"),
    [
        ("straight", [0, 0, 50_000, 50_000], [1000, 1000, 1000, 500]),
        ("bullet", [0, 0, 0, 100_000], [1000] * 4),
    ],
)
def test_grace_pays_interest_alone(
    amortisation: str, repaid: list[int], interest: list[int]
) -> None:
    loan = terms(amortisation=Amortisation(amortisation), grace_months=2)
    found = single(loan, 1_000.0, 5)
    assert found[0] == [0, *interest]
    assert found[1] == [0, *repaid]


@given(
    st.just(0.0) | st.floats(1e-4, 0.4),
    st.integers(1, 120),
    st.integers(0, 24),
    st.floats(1.0, 1e8).map(lambda usd: round(usd, 2)),
)
@settings(max_examples=25)
def test_an_annuity_is_numpy_financials(rate: float, paying: int, grace: int, usd: float) -> None:
    loan = terms(rate_per_year=rate, term_months=paying + grace, grace_months=grace)
    interest, repaid, balance = single(loan, usd, paying + grace + 1)
    periods = np.arange(1, paying + 1)
    # numpy-financial 1.0 gives no share of interest at a rate of zero.
    theirs = -npf.ipmt(rate / 12, periods, paying, usd) if rate > 0 else np.zeros(paying)
    back = -npf.ppmt(rate / 12, periods, paying, usd) if rate > 0 else np.full(paying, usd / paying)
    grown = 1e-9 * usd * 100
    assert interest[1 + grace :] == pytest.approx((theirs * 100).tolist(), abs=1.001 + grown)
    assert repaid[1 + grace :] == pytest.approx((back * 100).tolist(), abs=1.001 + grown)
    assert sum(repaid) == round(usd * 100)
    assert balance[-1] == 0


PYSAM = {
    "annuity": (
        [546_480.00, 455_167.31412, 355_636.48652, 247_147.88442, 128_895.30814],
        [1_014_585.39864, 1_105_898.08452, 1_205_428.91213, 1_313_917.51422, 1_432_170.09050],
        [0.33054348681, 0.30934642483, 0.28732482982, 0.26445514237, 0.24071318466],
    ),
    "straight": (
        [546_480.0, 437_184.0, 327_888.0, 218_592.0, 109_296.0],
        [1_214_400.0] * 5,
        [0.29303530053, 0.29239203092, 0.29082301749, 0.28809077249, 0.28387864250],
    ),
}
"""Interest, principal and pre-tax DSCR by year from PySAM 7.1.1 (NREL), single owner, custom generation profile of
1,000 kW at 0.35 USD/kWh, installed cost 10,000,000, debt_option 0, debt_percent 60, term_tenor 5, term_int_rate 9,
cost_debt_fee 2, no closing cost or reserves, payment_option 0 (equal payments) and 1 (equal principal); all else its
defaults."""
PYSAM_CASH_USD = [516_000.0, 482_910.0, 448_532.85, 412_831.77225, 375_769.02356625]
"""Its cash available for debt service."""


@pytest.mark.parametrize("amortisation", ["annuity", "straight"])
def test_debt_and_its_cover_by_year_are_pysams(amortisation: str) -> None:
    """A month of ours is a year there, so the rate is twelve times 9%; 60% of 10,120,000 are its debt, 2% its fee."""
    loan = terms(
        share_fraction=0.6, rate_per_year=12 * 0.09, term_months=5, fee_fraction=0.02,
        amortisation=Amortisation(amortisation),
    )  # fmt: skip
    found = loan_schedule(loan, np.array([[1_012_000_000], *[[0]] * 5]))
    interest, principal, cover = PYSAM[amortisation]
    assert found.interest_cents[1:, 0] / 100 == pytest.approx(interest, abs=0.011)
    assert found.repaid_cents[1:, 0] / 100 == pytest.approx(principal, abs=0.011)
    assert found.fee_cents[0, 0] == 12_144_000
    service = found.interest_cents[1:] + found.repaid_cents[1:]
    lines = {
        "cash_for_debt_service_usd": cents(PYSAM_CASH_USD)[:, None],
        "debt_service_usd": service,
    }
    years = Statements(periods=tuple("12345"), lines_cents=lines)
    assert cover_ratio(years)[:, 0].tolist() == pytest.approx(cover, rel=1e-6)


def test_a_balloon_is_numpy_financials_future_value() -> None:
    """1,000 at 1% a month of which 300 are left to the end: equal payments of pmt(1%, 4, 1000, −300), then 300."""
    interest, repaid, balance = single(terms(balloon_fraction=0.3), 1_000.0, 6)
    each = -npf.pmt(0.01, 4, 1_000.0, -300.0)
    paid = [(i + r) / 100 for i, r in zip(interest, repaid, strict=True)]
    assert paid == pytest.approx([0, each, each, each, each + 300.0, 0], abs=0.011)
    assert balance[-2:] == [0, 0]


def test_draws_of_several_months_and_clusters_add_up() -> None:
    purchases = np.array([[100_00, 0], [0, 333_33], [700_01, 50], [0, 0], [0, 0]])
    loan = terms(share_fraction=0.6, term_months=2, fee_fraction=0.01)
    found = loan_schedule(loan, purchases)
    assert found.drawn_cents.tolist() == [[60_00, 0], [0, 200_00], [420_01, 30], [0, 0], [0, 0]]
    assert found.fee_cents.sum() == 60 + 200 + 420 + 0
    alone = [
        loan_schedule(loan, np.where(np.arange(5)[:, None] == month, purchases, 0))
        for month in range(3)
    ]
    assert np.array_equal(
        found.balance_cents, np.sum([each.balance_cents for each in alone], axis=0)
    )
    assert np.array_equal(
        found.drawn_cents.sum(axis=0) - found.repaid_cents.sum(axis=0), found.balance_cents[-1]
    )
    assert not found.balance_cents[-1].any()


LOAN = "finance.loan={share_of_purchases_fraction: 0.7, rate_per_year: 0.09, term_months: 36, fee_fraction: 0.01%s}"
SOLD = "workloads.*.token_price={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 9}"
TAX = "finance.tax={rate_fraction: 0.25, bonus_fraction: 0}"


def test_a_loan_stands_in_the_statements_and_moves_no_measure(
    run: Run,
) -> None:
    own = run(SOLD, TAX)
    lent = run(SOLD, TAX, LOAN % "")
    moved = {name for name, value in measures(own).items() if measures(lent)[name] != value}
    assert moved == {"pl_cost_usd"}  # the income statement's, which has the interest
    before, after = (result.statements().reset_index() for result in (own, lent))
    drawn = 0.7 * -before.investing_cash_flow_usd
    # By hand with numpy-financial: what 36 equal payments are worth at the rate at which they are worth 0.99 of it.
    effective = npf.rate(36, npf.pmt(0.0075, 36, 1), 0.99, 0)
    net = [-npf.pv(effective, 36 - months, -npf.pmt(0.0075, 36, 1)) for months in range(3)]
    left = [
        ((1 + 0.0075) ** 36 - (1 + 0.0075) ** months) / ((1 + 0.0075) ** 36 - 1)
        for months in range(3)
    ]
    first = drawn.iloc[0]
    second = drawn.iloc[1]
    shown = [first * net[0], first * net[1] + second * net[0], first * net[2] + second * net[1]]
    assert after.loans_usd.tolist() == pytest.approx(shown, abs=0.03)
    interest = 0.0075 * np.array([0, first, first * left[1] + second])
    fees = 0.01 * (first + second) - (first * (left[2] - net[2]) + second * (left[1] - net[1]))
    paid = after.interest_usd.sum()
    assert paid == pytest.approx(interest.sum() + fees, abs=0.03)
    assert fees > 0
    assert (before.net_income_usd - after.net_income_usd).sum() == pytest.approx(
        0.75 * paid, abs=0.02
    )
    moved = (
        (after.cash_usd - after.paid_in_capital_usd)
        - (before.cash_usd - before.paid_in_capital_usd)
    ).iloc[-1]
    assert moved == pytest.approx(after.loans_usd.iloc[-1] - 0.75 * paid, abs=0.02)
    repaid = first * (1 - left[2]) + second * (1 - left[1])
    assert after.debt_service_usd.sum() == pytest.approx(interest.sum() + repaid, abs=0.03)


def test_a_broken_covenant_is_a_warning(run: Run) -> None:
    result = run(SOLD, LOAN % ", least_cover_ratio: 1.3")
    quarter = result.statements("quarter").iloc[0]
    cover = quarter.cash_for_debt_service_usd / quarter.debt_service_usd
    assert cover < 1.3
    assert quarter.cover_ratio == pytest.approx(cover)
    assert (
        quarter.cash_for_debt_service_usd > quarter.operating_cash_flow_usd
    )  # which has interest, under US GAAP
    (told,) = [text for text in result.warnings if "covenant" in text]
    assert (
        f"cash for debt service is {cover:.2f} times debt service in FY2026-Q1, and the covenant requires 1.3"
        in told
    )
    assert not any("covenant" in text for text in run(SOLD, LOAN % "").warnings)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ([LOAN % ", grace_months: 36"], ["36 months of grace leave none of 36"]),
        (
            [(LOAN % "").replace("0.7", "1.7")],
            ["share_of_purchases_fraction", "less than or equal to 1"],
        ),
    ],
)
def test_what_no_lender_agrees_to_is_refused(
    write: WriteScenario, planner: Planner, overrides: list[str], parts: list[str]
) -> None:
    outcome = planner("run", write(), *(word for change in overrides for word in ("--set", change)))
    outcome.refused(*parts)
