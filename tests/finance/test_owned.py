"""Machines owned before the start: the books go on, nothing is paid again, and age counts from the purchase."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import numpy as np
import pytest

from planner.finance.accounting.cohorts import opening_of, opening_value_cents
from planner.finance.accounting.measures import measures
from planner.finance.accounts import CAPEX_ACCOUNTS, Account, Position
from planner.finance.depreciation import make_cohorts, tax_depreciation
from planner.finance.months import MonthGrid
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario
from tests.ledgers import Run, by_month

OWNED = """\
name: owner
start: 2026-01-01
horizon_months: 3
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 5
    lengths: {input: {mean: 500}, output: {mean: 100}}
clusters:
  h200:
    accelerator: H200
    nodes: 4
    depreciation_months: 48
    residual_fraction: 0.25
    resale_curve: [{age_months: 12, fraction_of_new: 0.6}, {age_months: 24, fraction_of_new: 0.36}]
    owned: {bought: 2024-07-01, cost_usd: 1440000}
"""


@pytest.fixture
def run(write: WriteScenario) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(OWNED), overrides), seed=1)

    return runner


def capex(result: RunResult) -> int:
    return sum(result.ledger.account_cents(account) for account in CAPEX_ACCOUNTS)


def server_usd(result: RunResult) -> float:
    return float(sum(result.cohorts[0].prices_usd[:2]) * 4)


def test_depreciation_goes_on_and_nothing_is_paid_again(run: Run) -> None:
    result = run()
    assert capex(result) == 0
    # 1,440,000 · (1 − 0.25) / 48 a month; 18 of them are past.
    assert by_month(result, Account.DEPRECIATION) == [22_500.0] * 3
    book = result.ledger.book_value_cents([103_500_000])
    assert book[0].tolist() == [101_250_000, 99_000_000, 96_750_000]
    # 10% a year on the opening book value of the first month.
    assert by_month(result, Account.COST_OF_CAPITAL)[0] == pytest.approx(
        1_035_000 * (1.1 ** (1 / 12) - 1), abs=0.01
    )
    assert sum(result.cohorts[0].prices_usd) * 4 == pytest.approx(1_440_000)


def test_property_tax_is_on_the_book_value_of_the_months_start(run: Run) -> None:
    taxed = by_month(run("finance.property_tax_fraction_per_year=0.04"), Account.PROPERTY_TAX)
    books = (1_035_000, 1_012_500, 990_000)
    assert taxed == [pytest.approx(book * 0.04 / 12, abs=0.01) for book in books]


@pytest.mark.parametrize(
    ("overrides", "monthly"),
    [
        # (600,000 − 360,000) / 24
        (["book_value_usd=600000", "remaining_months=24"], 10_000.0),
        # 30 months of the 48 are left: (600,000 − 360,000) / 30
        (["book_value_usd=600000"], 8_000.0),
        # book value by the schedule, 1,035,000, over a longer life: (1,035,000 − 360,000) / 45
        (["remaining_months=45"], 15_000.0),
        (["book_value_usd=600000", "remaining_months=0"], 0.0),
        # below the residual there is nothing left to write off
        (["book_value_usd=100000", "remaining_months=24"], 0.0),
        (["bought=2021-01-01"], 0.0),
    ],
)
def test_a_stated_book_value_is_written_off_over_the_life_that_is_left(
    run: Run, overrides: list[str], monthly: float
) -> None:
    result = run(*(f"clusters.h200.owned.{change}" for change in overrides))
    assert by_month(result, Account.DEPRECIATION) == [monthly] * 3
    assert capex(result) == 0


def test_a_sale_is_by_age_since_the_purchase(run: Run) -> None:
    result = run("clusters.h200.retire=2026-02-15")
    age = 19.5  # 1 July 2024 to 15 February 2026, of 28 days
    fetched = -by_month(result, Account.RESALE)[1]
    assert fetched == pytest.approx(server_usd(result) * 0.6 ** (age / 12), abs=0.01)
    book = 1_440_000 - age * 22_500
    assert by_month(result, Account.DISPOSAL_LOSS)[1] == pytest.approx(book - fetched, abs=0.01)
    assert result.ledger.book_value_cents([103_500_000])[0, -1] == 0


def test_what_is_kept_costs_what_it_would_have_fetched(run: Run) -> None:
    result = run()
    opening, end = (server_usd(result) * 0.6 ** (months / 12) for months in (18, 21))
    assert by_month(result, Account.OPENING_VALUE) == [pytest.approx(opening, abs=0.01), 0.0, 0.0]
    assert by_month(result, Account.RESIDUAL_VALUE)[-1] == pytest.approx(-end, abs=0.01)
    found = measures(result)
    running = sum(
        result.ledger.account_cents(account) / 100
        for account in (
            Account.ENERGY, Account.COOLING, Account.COLOCATION, Account.MAINTENANCE, Account.SOFTWARE_ENGINEERS,
            Account.SUPPORT_CONTRACTS, Account.OPERATIONS_STAFF,
        )
    )  # fmt: skip
    assert found["capex_usd"] == 0
    assert found["tco_usd"] == pytest.approx(running + opening - end, abs=0.01)
    tokens = result.tokens(result.monthly.served_requests).sum() / 1e6
    undiscounted = measures(run("finance.discount_rate_per_year=0"))[
        "levelised_cost_per_million_tokens_usd"
    ]
    assert undiscounted == pytest.approx((running + opening - end) / tokens, rel=1e-6)


def test_owning_costs_what_buying_at_the_market_on_the_first_day_does(run: Run) -> None:
    """Same machines, bought new at today's value with the same value at the end: NPV is the same to the cent."""
    kept = run()
    opening, end = (server_usd(kept) * 0.6 ** (months / 12) for months in (18, 21))
    each = opening / 32 - 4_000.0
    host = 32_000.0
    bought = run(
        "clusters.h200.owned=null",
        f"clusters.h200.accelerator_price_usd={each}",
        f"clusters.h200.host_usd_per_node={host}",
        f"clusters.h200.resale_curve=[{{age_months: 3, fraction_of_new: {end / opening}}}]",
        "finance.operations_fraction_per_year=0",
        "reliability.failure_multiplier=0",
    )
    kept = run("finance.operations_fraction_per_year=0", "reliability.failure_multiplier=0")
    network = (
        sum(bought.cohorts[0].prices_usd[2:]) * 4
    )  # fetches nothing, so owning it already is worth nothing
    assert measures(kept)["npv_usd"] == pytest.approx(
        float(measures(bought)["npv_usd"] or 0) + network, abs=0.05
    )


def test_tax_depreciation_goes_on_from_the_day_of_purchase(run: Run) -> None:
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=12)
    bought = grid.coordinate(date(2024, 7, 1))
    tables = tax_depreciation(make_cohorts([100_000.0], [bought]), grid, bonus_fraction=0.0)
    assert tables.before_cents.tolist() == [5_200_000]  # 20 + 32% of Table A-1
    assert tables.deduction_cents.sum() == 1_920_000
    result = run("finance.tax={rate_fraction: 0.25, bonus_fraction: 0}")
    # Sold on the first day, it would be taxed on its value less a basis of 48%.
    value = server_usd(result) * 0.6**1.5
    kept = value - 0.25 * (value - 0.48 * 1_440_000)
    assert by_month(result, Account.OPENING_VALUE)[0] == pytest.approx(kept, abs=0.01)
    end = server_usd(result) * 0.6 ** (21 / 12)
    basis = 0.48 * 1_440_000 - 0.192 * 1_440_000 / 4
    assert by_month(result, Account.TAX_ON_END_VALUE)[-1] == pytest.approx(
        0.25 * (end - basis), abs=0.01
    )


def test_what_is_bought_later_is_no_part_of_the_opening(run: Run) -> None:
    """At a tax of six tenths, where a cent too many would show."""
    tax = "finance.tax={rate_fraction: 0.6, bonus_fraction: 0}"
    alone = run(tax)
    beside = run(tax, "clusters.new={accelerator: H200, nodes: 1}")
    opened = [
        opening_of(each.plan, each.cohorts, each.run.log).position_cents for each in (alone, beside)
    ]
    for position in (Position.HARDWARE, Position.DEFERRED_TAX):
        assert opened[0][position].sum() == opened[1][position].sum() > 0
    rules = beside.plan.money.market.tax
    worth = opening_value_cents(beside.plan, beside.cohorts, rules)
    assert [*worth] == [*opening_value_cents(alone.plan, alone.cohorts, rules), 0]


def test_early_life_is_over_for_old_machines(write: WriteScenario) -> None:
    early = ["reliability.early_life_multiplier=9", "reliability.early_life_months=1"]
    shops = [
        simulate(
            load_scenario(write(OWNED), [*early, *more, "clusters.h200.nodes=150"]), seed=3
        ).run.shop
        for more in ([], ["clusters.h200.owned=null"], ["reliability.early_life_multiplier=1"])
    ]
    old, new, steady = (len(list(shop.outages())) for shop in shops)
    assert new > 2 * old
    assert abs(old - steady) < 4 * np.sqrt(old + steady)


def test_an_order_that_came_before_the_start_is_owned(run: Run) -> None:
    order = (
        "clusters.h200.owned=null",
        "clusters.h200.order={placed: 2025-01-01, lead_weeks: 8, slip_weeks: {low: 0, base: 0, high: 0}}",
    )
    result = run(*order)
    assert capex(result) == 0
    (cohort,) = result.cohorts
    assert cohort.bought_h == -(date(2026, 1, 1) - date(2025, 2, 26)).days * 24
    assert cohort.in_service_h == 0
    cost = sum(cohort.prices_usd) * 4
    months = result.plan.months.coordinate(date(2025, 2, 26))
    book = result.ledger.book_value_cents([round(100 * cost * (1 - 0.75 * -months / 48))])
    assert book[0, -1] == pytest.approx(100 * cost * (1 - 0.75 * (3 - months) / 48), abs=2)
    assert any("count as owned" in note for note in result.plan.notes)


def test_more_nodes_of_an_owned_cluster_are_bought_at_list_price(run: Run) -> None:
    rule = "{when: utilisation_above, threshold_fraction: 0.000001, months: 1, cluster: h200, nodes: 2, lead_weeks: 1}"
    result = run(f"expansion.rules=[{rule}]")
    first, *later = result.cohorts
    assert first.bought_h < 0
    assert sum(first.prices_usd) == pytest.approx(360_000)
    assert later
    assert all(cohort.prices_usd == result.plan.clusters[0].prices_usd for cohort in later)
    assert capex(result) == round(
        100 * sum(cohort.nodes * sum(cohort.prices_usd) for cohort in later)
    )


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["clusters.h200.owned.bought=2026-01-01"],
            ["clusters.h200.owned.bought", "not before the start", "online:"],
        ),
        (["clusters.h200.owned.bought=1996-01-01"], ["more than 20 years before the start"]),
        (["clusters.h200.owned.book_value_usd=1500000"], ["above the cost, 1,440,000.00"]),
        (
            ["clusters.h200.owned.cost_usd=null", "clusters.h200.owned.book_value_usd=15000000"],
            [
                "clusters.h200.owned.book_value_usd",
                "they cost at list prices",
                "state owned.cost_usd",
            ],
        ),
        (["clusters.h200.online=2026-02-01"], ["online, order and owned exclude each other"]),
        (
            ["clusters.h200.owned=null", "clusters.h200.online=2025-02-01"],
            ["before the start", "owned: {bought: 2025-02-01}"],
        ),
    ],
)
def test_what_cannot_be_owned_is_refused_with_a_way_out(
    write: WriteScenario, planner: Callable[..., object], overrides: list[str], parts: list[str]
) -> None:
    outcome = planner(
        "run", write(OWNED), *(word for change in overrides for word in ("--set", change))
    )
    outcome.refused(*parts)  # type: ignore[attr-defined]
