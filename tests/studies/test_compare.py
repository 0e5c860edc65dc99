from __future__ import annotations

import numpy as np
import pytest
import pyxirr
from numpy.typing import NDArray

from planner.errors import ScenarioError
from planner.finance.accounts import CAPEX_ACCOUNTS, Account, View
from planner.finance.measure_names import AGAINST_BASELINE
from planner.run.simulate import RunResult
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.compare import check_comparable, compare, find_baseline
from tests.conftest import WriteScenario

Floats = NDArray[np.float64]


@pytest.fixture
def pair(write: WriteScenario) -> list[Scenario]:
    path = write()
    return [load_scenario(path), load_scenario(path, ["name=small", "clusters.mi325x=null"])]


@pytest.fixture
def at_once(write: WriteScenario) -> list[Scenario]:
    path = write()
    first_day = "clusters.mi325x.online=2026-01-01"
    return [
        load_scenario(path, [first_day]),
        load_scenario(path, ["name=small", "clusters.mi325x=null"]),
    ]


def test_the_same_traffic_reaches_both(pair: list[Scenario]) -> None:
    comparison = compare(pair, seed=9)
    first, second = comparison.results
    assert first.seed == second.seed == 9
    assert np.array_equal(first.monthly.demand_requests, second.monthly.demand_requests)
    own = [row for row in first.run.shop.outages() if row.cluster == 0]
    assert own == second.run.shop.outages()  # the shared cluster's machines fail alike
    assert comparison.names == ("tiny", "small")


def half_months(result: RunResult) -> Floats:
    """Return a run's gains less losses on a grid of half months; all is bought on the first day."""
    ledger = result.ledger
    months = result.plan.months.period_count
    capital = sum(ledger.account_cents(account) for account in CAPEX_ACCOUNTS) / 100
    flows = np.zeros(2 * months + 1)
    flows[1::2] = -ledger.monthly_cents(View.CASH) / 100
    flows[1] += capital
    flows[0], flows[-1] = -capital, -ledger.account_cents(Account.RESIDUAL_VALUE) / 100
    return flows


def test_plans_that_keep_other_books_are_warned_about(
    pair: list[Scenario], write: WriteScenario
) -> None:
    assert check_comparable(pair, 0) == ()
    other = load_scenario(
        write(), ["name=long", "finance.depreciation_months=60", "finance.residual_fraction=0.1"]
    )
    (warning,) = check_comparable([pair[0], other], 0)
    assert "long keeps other books than tiny (depreciation_months 60 against 36, " in warning
    assert "residual_fraction 0.1 against 0.2): accrued cost cannot be compared, but NPV" in warning
    taxed = load_scenario(
        write(), ["name=taxed", "finance.tax={rate_fraction: 0.2}", "finance.end_value=none"]
    )
    (warning,) = check_comparable([pair[0], taxed], 0)
    assert (
        "taxed is valued differently than tiny (end_value none against market, tax {rate_fraction: 0.2"
        in warning
    )
    assert "NPV, TCO and levelised cost cannot be compared" in warning


def test_a_longer_book_life_saves_nothing(write: WriteScenario) -> None:
    path = write()
    comparison = compare(
        [load_scenario(path), load_scenario(path, ["name=long", "finance.depreciation_months=60"])],
        replications=1,
    )
    short, long = comparison.figures
    for name in ("npv_usd", "tco_usd", "levelised_cost_per_million_tokens_usd"):
        assert short[name] == long[name]
    assert long["saving_npv_usd"] == pytest.approx(0, abs=1e-6)
    assert short["cost_usd"] != long["cost_usd"]
    assert any("keeps other books" in warning for warning in comparison.warnings)


def test_savings_are_those_of_the_difference_of_flows(at_once: list[Scenario]) -> None:
    comparison = compare(at_once)
    figures = comparison.figures[1]
    flows = half_months(comparison.results[1]) - half_months(comparison.results[0])
    assert figures["saving_npv_usd"] == pytest.approx(
        pyxirr.npv(1.1 ** (1 / 24) - 1, flows.tolist())
    )
    own = figures["npv_usd"]
    base = comparison.figures[0]["npv_usd"]
    assert own is not None
    assert base is not None
    assert figures["saving_npv_usd"] == pytest.approx(own - base)
    assert all(comparison.figures[0][measure.name] is None for measure in AGAINST_BASELINE)


def test_a_saving_has_a_rate_and_a_payback(write: WriteScenario) -> None:
    path = write()
    spend = [
        "name=dear",
        "clusters.h200.accelerator_price_usd=60000",
        "site.electricity_usd_per_kwh=0.05",
        "horizon_months=24",
    ]
    save = [
        "name=cheap",
        "clusters.h200.accelerator_price_usd=35000",
        "site.electricity_usd_per_kwh=9",
        "horizon_months=24",
    ]
    comparison = compare([load_scenario(path, save), load_scenario(path, spend)])
    figures = comparison.figures[1]
    flows = [half_months(result) for result in comparison.results]
    half_month = pyxirr.irr((flows[1] - flows[0]).tolist())
    assert half_month is not None
    assert figures["saving_irr_per_year"] == pytest.approx((1 + half_month) ** 24 - 1, rel=1e-6)
    assert figures["saving_payback_months"] is not None
    assert 0 < figures["saving_payback_months"] < 24


def test_bridges_sum_to_the_difference(pair: list[Scenario]) -> None:
    comparison = compare(pair, baseline=1)
    parts = comparison.bridges[0]
    assert parts is not None
    costs = [figures["cost_per_million_tokens_usd"] for figures in comparison.figures]
    assert costs[0] is not None
    assert costs[1] is not None
    assert sum(parts.values()) == pytest.approx(costs[0] - costs[1])
    assert comparison.bridges[1] is not None
    assert not any(comparison.bridges[1].values())  # the baseline against itself


def test_the_baseline_is_found_by_name(pair: list[Scenario]) -> None:
    assert find_baseline(pair, None) == 0
    assert find_baseline(pair, "small") == 1
    with pytest.raises(ScenarioError, match=r"no scenario is called 'smal'.*there are tiny, small"):
        find_baseline(pair, "smal")
    with pytest.raises(ScenarioError, match="two scenarios are called 'tiny'"):
        find_baseline([pair[0], pair[0]], None)


def test_horizons_that_differ_are_refused_and_other_traffic_is_said(write: WriteScenario) -> None:
    path = write()
    base = load_scenario(path)
    longer = load_scenario(path, ["name=longer", "horizon_months=4"])
    with pytest.raises(
        ScenarioError,
        match=r"longer runs 4 months from 2026-01-01, but tiny runs 3 .*cannot be compared",
    ):
        check_comparable([base, longer], 0)
    busier = load_scenario(path, ["name=busier", "workloads.chat.requests_per_s=6"])
    dearer = load_scenario(path, ["name=dearer", "finance.discount_rate_per_year=0.2"])
    routed = load_scenario(path, ["name=routed", "workloads.chat.prefix_routing=random"])
    traffic, rate = check_comparable([base, busier, dearer, routed], 0)
    assert "busier serves other traffic than tiny" in traffic
    assert "dearer has another discount rate" in rate


def test_a_scenario_that_serves_nothing_is_compared_without_a_bridge(write: WriteScenario) -> None:
    path = write()
    idle = load_scenario(path, ["name=idle", "workloads.chat.requests_per_s=0"])
    comparison = compare([load_scenario(path), idle])
    assert comparison.bridges[1] is None
    assert comparison.figures[1]["cost_per_million_tokens_usd"] is None
