from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import pyxirr

from planner.finance.accounts import (
    ACCOUNTS,
    CAPEX_ACCOUNTS,
    COST_OF_SERVING_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    OPERATING_EXPENSE_ACCOUNTS,
    Account,
    View,
)
from planner.scenario.loading import load_scenario
from planner.simulation.measure_names import MEASURES
from planner.simulation.measures import levelised_to_date, measures, series_of, service
from planner.simulation.result import RunResult
from planner.simulation.run import simulate
from planner.units import unit_of

Write = Callable[..., Path]
Run = Callable[..., RunResult]
SOLD = "finance.token_price={input_usd_per_million_tokens: 30, output_usd_per_million_tokens: 90}"


@pytest.fixture
def run(write: Write) -> Run:
    def runner(*overrides: str) -> RunResult:
        return simulate(load_scenario(write(), overrides))

    return runner


def known(result: RunResult) -> dict[str, float]:
    return {name: value for name, value in measures(result).items() if value is not None}


def test_every_measure_is_there_with_a_unit_in_its_name(run: Run) -> None:
    assert list(measures(run())) == [measure.name for measure in MEASURES]
    assert all(unit_of(measure.name) for measure in MEASURES)


def test_every_measure_is_defined_once_in_the_docs(root: Path) -> None:
    page = (root / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    of_a_run, _, rest = page.partition("\n## How a plan served\n")
    for measure in MEASURES:
        assert of_a_run.count(f"\n| `{measure.name}` |") == 1, measure.name
        assert rest.count(f"| {measure.formula} |") == 0, "a formula is written once"


def test_what_needs_a_price_is_empty_without_one(run: Run) -> None:
    figures = measures(run())
    for name in ("revenue_usd", "gross_margin_fraction", "operating_margin_fraction",
                 "margin_after_capital_charge_fraction", "irr_per_year", "payback_months", "tax_usd",
                 "break_even_utilisation_fraction", "break_even_rental_utilisation_fraction",
                 "break_even_api_price_ratio"):  # fmt: skip
        assert figures[name] is None, name


def test_headlines_from_the_ledger_by_hand(run: Run) -> None:
    result = run()
    figures, ledger = known(result), result.ledger
    economic = ledger.monthly_cents(View.ECONOMIC) / 100
    factors = 1.1 ** (-np.arange(3) / 12)
    tokens = result.monthly.served_requests.sum(axis=(1, 2)) * 600
    assert figures["tco_usd"] == pytest.approx(economic.sum())
    assert figures["npv_usd"] == pytest.approx(-economic @ factors)
    assert figures["levelised_cost_per_million_tokens_usd"] == pytest.approx(
        economic @ factors / (tokens @ factors) * 1e6
    )
    assert figures["levelised_cost_per_million_output_tokens_usd"] == pytest.approx(
        6 * figures["levelised_cost_per_million_tokens_usd"]
    )
    assert figures["cost_per_million_tokens_usd"] == pytest.approx(figures["cost_usd"] / tokens.sum() * 1e6)
    capital = sum(ledger.account_cents(account) for account in CAPEX_ACCOUNTS) / 100
    assert figures["capex_usd"] == capital
    assert figures["cash_usd"] == pytest.approx(figures["tco_usd"] + figures["end_value_usd"])


def test_without_discounting_levelised_and_plain_cost_meet(run: Run) -> None:
    figures = known(run("finance.discount_rate_per_year=0"))
    assert figures["npv_usd"] == pytest.approx(-figures["tco_usd"])
    # no capital charge and the end at book value: the books and the economic view are the same money
    assert figures["levelised_cost_per_million_tokens_usd"] == pytest.approx(figures["cost_per_million_tokens_usd"])


def test_sold_tokens_have_a_margin_a_rate_and_a_payback(run: Run) -> None:
    result = run(SOLD, "horizon_months=24")
    figures, series = known(result), series_of(result)
    left = 1 - figures["cost_usd"] / figures["revenue_usd"]
    assert figures["margin_after_capital_charge_fraction"] == pytest.approx(left)
    flows = series.economic_flow_usd
    monthly = pyxirr.irr(flows)
    assert monthly is not None
    assert figures["irr_per_year"] == pytest.approx((1 + monthly) ** 12 - 1, rel=1e-6)
    assert figures["npv_usd"] == pytest.approx(pyxirr.npv(1.1 ** (1 / 12) - 1, flows), rel=1e-9)
    total = np.cumsum(series.cash_flow_usd)
    turned = int(np.flatnonzero(total < 0)[-1])
    assert turned <= figures["payback_months"] <= turned + 1
    assert figures["discounted_payback_months"] >= figures["payback_months"]


def test_margins_take_off_what_their_names_say(run: Run) -> None:
    """The charge for capital is in neither the gross nor the operating margin, people are not in the gross."""
    result = run(SOLD, "finance.insurance_fraction_per_year=0.02", "finance.operations_staff_per_1000_accelerators=10",
                 "clusters.h200.retire=2026-03-10")  # fmt: skip
    figures = known(result)

    def spent(*names: str) -> float:
        return sum(result.ledger.account_cents(Account(name)) for name in names) / 100

    machines = spent("depreciation", "energy", "cooling", "colocation", "maintenance")
    people = spent("operations_staff", "software_engineers", "support_contracts", "insurance", "disposal_loss")
    revenue = -spent("revenue")
    assert revenue == figures["revenue_usd"]
    assert figures["gross_margin_fraction"] == pytest.approx(1 - machines / revenue)
    assert figures["operating_margin_fraction"] == pytest.approx(1 - (machines + people) / revenue)
    charge = figures["operating_margin_fraction"] - figures["margin_after_capital_charge_fraction"]
    assert charge == pytest.approx(spent("cost_of_capital") / revenue)
    assert min(machines, people, spent("cost_of_capital")) > 0
    dearer = known(run(SOLD, "finance.discount_rate_per_year=0.3"))
    plain = known(run(SOLD))
    for name in ("gross_margin_fraction", "operating_margin_fraction"):
        assert dearer[name] == plain[name]
    assert dearer["margin_after_capital_charge_fraction"] < plain["margin_after_capital_charge_fraction"]


def test_every_cost_is_in_exactly_one_step_of_the_margins() -> None:
    accrued = {account for account in Account if View.ACCRUAL in ACCOUNTS[account].views} - set(NOT_COST_ACCOUNTS)
    steps = [*COST_OF_SERVING_ACCOUNTS, *OPERATING_EXPENSE_ACCOUNTS, Account.COST_OF_CAPITAL]
    assert sorted(steps) == sorted(accrued)


CACHED = "finance.%s={input_usd_per_million_tokens: 2, output_usd_per_million_tokens: 8, " + (
    "cached_input_usd_per_million_tokens: %s, change_per_year: -0.5}"
)


@pytest.mark.parametrize(("stated", "cached_usd"), [("0.3", 0.3), ("null", 2 * 0.05), ("2", 2.0), ("0", 0.0)])
def test_cached_prompt_tokens_are_sold_and_bought_at_their_own_price(run: Run, stated: str, cached_usd: float) -> None:
    """500 prompt tokens of which 0.6 are cached, and 100 generated; prices fall by half a year."""
    result = run(
        CACHED % ("token_price", stated), CACHED % ("api_price", stated), "workloads.chat.prefix_cache_hit_fraction=0.6"
    )
    served = result.monthly.served_requests.sum(axis=(1, 2))
    fall = 0.5 ** (np.arange(3) / 12)
    bill = served * fall * (200 * 2 + 300 * cached_usd + 100 * 8) / 1e6
    figures, series = known(result), series_of(result)
    assert figures["revenue_usd"] == pytest.approx(bill.sum(), abs=0.02)
    factors = 1.1 ** (-np.arange(3) / 12)
    saved = (bill - series.economic_usd) @ factors
    assert figures["api_saving_npv_usd"] == pytest.approx(saved, abs=0.02)


def test_without_a_cache_the_cached_price_does_not_count(run: Run) -> None:
    dear, cheap = (known(run(CACHED % ("token_price", price)))["revenue_usd"] for price in ("2", "0"))
    assert dear == cheap


def test_at_the_break_even_utilisation_revenue_covers_cost(run: Run) -> None:
    result = run(SOLD)
    figures, ledger = known(result), result.ledger
    energy = (ledger.account_cents(Account.ENERGY) + ledger.account_cents(Account.COOLING)) / 100
    used = result.monthly.busy_node_h.sum() / result.monthly.in_service_node_h.sum()
    scale = figures["break_even_utilisation_fraction"] / used
    revenue, fixed = figures["revenue_usd"] * scale, figures["cost_usd"] - energy
    assert revenue == pytest.approx(fixed + energy * scale)


def test_break_even_against_rent(run: Run) -> None:
    figures = known(run("finance.rental={usd_per_accelerator_h: 4}"))
    owned = figures["levelised_cost_per_accelerator_h_usd"]
    assert figures["break_even_rental_utilisation_fraction"] == pytest.approx(owned / 4)
    falling = known(run("finance.rental={usd_per_accelerator_h: 4, change_per_year: -0.5}"))
    assert falling["break_even_rental_utilisation_fraction"] > owned / 4


def test_an_api_at_the_break_even_price_saves_nothing(run: Run) -> None:
    price = "finance.api_price={input_usd_per_million_tokens: %r, output_usd_per_million_tokens: %r, " + (
        "change_per_year: -0.6}"
    )
    ratio = known(run(price % (1.0, 4.0)))["break_even_api_price_ratio"]
    there = known(run(price % (ratio, 4 * ratio)))
    assert there["break_even_api_price_ratio"] == pytest.approx(1)
    assert there["api_saving_npv_usd"] == pytest.approx(0, abs=1)


def test_energy_and_emissions_of_a_token(run: Run) -> None:
    result = run("site.grid_carbon_g_per_kwh=500", "clusters.mi325x=null", "clusters.h200.embodied_kg_per_node=6000")
    figures, tokens = known(result), series_of(result).tokens.sum()
    assert figures["energy_kwh_per_million_tokens"] == pytest.approx(result.monthly.facility_kwh.sum() / tokens * 1e6)
    assert figures["operational_kg_per_million_tokens"] == pytest.approx(0.5 * figures["energy_kwh_per_million_tokens"])
    assert figures["embodied_kg_per_million_tokens"] == pytest.approx(4 * 6000 * 3 / 60 / tokens * 1e6)


def test_an_unpublished_footprint_is_unknown_not_zero(run: Run) -> None:
    result = run("clusters.mi325x.accelerator=MI355X", "clusters.mi325x.unit_price_usd=30000")
    assert measures(result)["embodied_kg_per_million_tokens"] is None


def test_a_plan_that_serves_nothing_has_no_cost_per_token(run: Run) -> None:
    result = run("workloads.chat.requests_per_s=0")
    figures = measures(result)
    assert figures["cost_usd"]
    for name, value in figures.items():
        assert (value is None) if "tokens" in name else True, name
    assert service(result)["shed_fraction"] is None


def test_the_levelised_series_ends_at_the_measure(run: Run) -> None:
    for choice in ("book", "market", "none"):
        result = run(f"finance.end_value={choice}", "finance.tax={rate_fraction: 0.2, bonus_fraction: 0.5}", SOLD)
        frame = result.timeline_monthly().query("cluster == 'fleet'")
        figures = known(result)
        for name in ("tokens", "output_tokens"):
            last = frame[f"levelised_cost_per_million_{name}_usd"].iloc[-1]
            assert last == pytest.approx(figures[f"levelised_cost_per_million_{name}_usd"]), choice
            gathered = frame[f"cumulative_cost_per_million_{name}_usd"].iloc[-1]
            assert gathered == pytest.approx(figures[f"cost_per_million_{name}_usd"])


def test_the_levelised_cost_to_date_is_that_of_a_shorter_horizon(run: Run) -> None:
    quiet = ("reliability.failure_multiplier=0", "software.incident_multiplier=0", "site.outages_per_year=0",
             "software.release_gain_multiplier=0")  # fmt: skip
    whole, half = run("horizon_months=6", *quiet), run("horizon_months=3", *quiet)
    tokens = np.tile(series_of(whole).tokens[:, None], 3)
    until = levelised_to_date(whole, tokens)[2, -1]
    shorter = levelised_to_date(half, np.tile(series_of(whole).tokens[:3, None], 3))[-1, -1]
    assert until == pytest.approx(shorter, rel=1e-3)  # the same machines, other random demand
