"""An owned building: a life of its own, its charge to clusters, its tax and its value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.finance.ledger import Account, Dimension, View
from planner.run.measures import measures, ownership, present_cost_usd
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario

Write = Callable[..., Path]
Run = Callable[..., RunResult]
NO_RENT = "site.colocation_usd_per_kw_month=0"
BUILDING = "site.building={cost_usd: 3600000, land_usd: 500000, opened: %s, life_months: 360, " + (
    "upkeep_fraction_per_year: 0.03, property_tax_fraction_per_year: 0.012}"
)
"""10,000 a month of depreciation, 9,000 of upkeep."""


@pytest.fixture
def run(write: Write) -> Run:
    return lambda *overrides: simulate(load_scenario(write(), [NO_RENT, *overrides]), seed=1)


def by_month(result: RunResult, account: Account) -> list[list[float]]:
    """Return dollars by month, of each cluster and last the site."""
    table = result.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    return [[float(amount) for amount in row] for row in table[:, :, list(Account).index(account)] / 100]


def site(result: RunResult, account: Account) -> list[float]:
    return [row[-1] for row in by_month(result, account)]


def test_a_building_on_the_books_by_hand(run: Run) -> None:
    """Opened on the first day: 4,100,000 paid, 10,000 written off a month, land never; capital at 10% a year."""
    result = run(BUILDING % "2026-01-01")
    assert site(result, Account.CAPEX_BUILDING) == [4_100_000, 0, 0]
    assert site(result, Account.BUILDING_DEPRECIATION) == [10_000] * 3
    assert site(result, Account.MAINTENANCE) == [9_000] * 3
    carried = [4_100_000, 4_090_000, 4_080_000]
    assert site(result, Account.PROPERTY_TAX) == pytest.approx([book * 0.001 for book in carried], abs=0.01)
    charge = [book * (1.1 ** (1 / 12) - 1) for book in carried]
    assert site(result, Account.OTHER_CAPITAL) == pytest.approx(charge, abs=0.01)
    assert site(result, Account.RESIDUAL_VALUE) == [0, 0, -4_070_000]
    months = result.statements()
    assert months.building_usd.tolist() == [4_090_000, 4_080_000, 4_070_000]
    plain = run()
    value, without = (float(measures(each)["npv_usd"] or 0) for each in (result, plain))
    running = sum((9_000 + book * 0.001) * 1.1 ** (-(month + 0.5) / 12) for month, book in enumerate(carried))
    assert without - value == pytest.approx(4_100_000 - 4_070_000 * 1.1 ** (-0.25) + running, abs=0.05)
    assert float(ownership(result).cost_pv_usd[-1, -1]) == pytest.approx(-value, abs=0.05)


def test_clusters_are_charged_what_it_costs_by_nameplate(run: Run) -> None:
    result = run(BUILDING % "2020-01-01")
    charged, plan = by_month(result, Account.SPACE), result.plan
    kw = np.array([cluster.nodes * cluster.nameplate_kw for cluster in plan.clusters])
    assert charged[0][1] == 0  # the second comes in February
    assert charged[1][0] / charged[1][1] == pytest.approx(kw[0] / kw[1], rel=1e-6)
    assert [sum(row) for row in charged] == pytest.approx([0, 0, 0], abs=1e-9)
    accrued = result.cost_cents(View.ACCRUAL)
    assert accrued[:, -1].tolist() == [0, 0, 0]  # nothing is left to the site
    assert not by_month(result, Account.CAPEX_BUILDING)[0][-1]
    assert site(result, Account.OPENING_VALUE)[0] == pytest.approx(4_100_000 - 72 * 10_000)
    assert float(present_cost_usd(result).sum()) == pytest.approx(-float(measures(result)["npv_usd"] or 0), abs=0.01)


def test_its_tax_is_39_years_straight_from_the_middle_of_its_month(run: Run) -> None:
    """IRS Publication 946, Table A-7a: 1/468 a month, half of it in the first; a sale is taxed above the basis."""
    sold = "workloads.*.token_price={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 9}"
    tax = "finance.tax={rate_fraction: 0.25, bonus_fraction: 0}"
    taxed, plain = run(BUILDING % "2026-01-01", sold, tax), run(sold, tax)
    months = taxed.statements().reset_index()
    before = plain.statements().reset_index()
    deducted = 3_600_000 / 468 * 2.5
    expensed = 27_000 + (4_100_000 + 4_090_000 + 4_080_000) * 0.001
    paid = [sum(site(each, Account.TAX_CASH)) for each in (taxed, plain)]
    assert paid[0] - paid[1] == pytest.approx(-0.25 * (deducted + expensed), abs=0.02)
    owed = (months.deferred_tax_usd - before.deferred_tax_usd).iloc[-1]
    assert owed == pytest.approx(0.25 * (4_070_000 - (4_100_000 - deducted)), abs=0.02)
    on_sale = [sum(site(each, Account.TAX_ON_END_VALUE)) for each in (taxed, plain)]
    assert on_sale[0] - on_sale[1] == pytest.approx(0.25 * (4_070_000 - (4_100_000 - deducted)), abs=0.02)
    earned = -np.array(by_month(taxed, Account.REVENUE)).sum(axis=1)
    assert ownership(taxed).value_usd(earned) == pytest.approx(float(measures(taxed)["npv_usd"] or 0), abs=0.5)
    # Six years old: worth 3,380,000 with a basis of 4,100,000 − 71.5 · 3,600,000 / 468, so a sale would save tax.
    (old, *later) = site(run(BUILDING % "2020-01-01", tax), Account.OPENING_VALUE)
    assert old == pytest.approx(3_380_000 + 0.25 * (3_550_000 - 3_380_000), abs=0.01)
    assert later == [0, 0]


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ([BUILDING % "2026-01-01"], ["site", "colocation_usd_per_kw_month: 0"]),
        ([BUILDING % "2026-06-01", NO_RENT], ["site.building.opened", "after the end of the horizon"]),
        ([BUILDING % "1926-06-01", NO_RENT], ["site.building.opened", "50 years"]),
    ],
)
def test_a_building_that_cannot_be_is_refused(
    write: Write, planner: Callable[..., Any], overrides: list[str], parts: list[str]
) -> None:
    planner("run", write(), *(word for change in overrides for word in ("--set", change))).refused(*parts)
