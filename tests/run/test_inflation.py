"""Inflation: what rises with it, what a real rate is, and figures in dollars of the first day."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from planner.finance.ledger import Account, Dimension
from planner.run.measures import measures
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario

Write = Callable[..., Path]
Run = Callable[..., RunResult]
RISING = {
    Account.OPERATIONS_STAFF: "finance.people_escalator_per_year",
    Account.COLOCATION: "site.colocation_escalator_per_year",
    Account.ENERGY: "site.electricity.escalator_per_year",
    Account.CARBON: "finance.carbon_change_per_year",
}


@pytest.fixture
def run(write: Write) -> Run:
    staff = "finance.operations_staff_per_1000_accelerators=30"
    carbon = "finance.carbon_usd_per_tonne=50"
    usual = ("horizon_months=14", "clusters.mi325x=null", staff, carbon)
    return lambda *overrides: simulate(load_scenario(write(), [*usual, *overrides]), seed=1)


def monthly(result: RunResult) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return result.ledger.totals_cents(Dimension.ACCOUNT, Dimension.MONTH) / 100.0


def test_what_states_no_rise_of_its_own_rises_with_prices(run: Run) -> None:
    """From the first anniversary on, by 3%; what is stated stays as stated, and purchases do not move."""
    flat = run()
    inflated = run("finance.inflation_per_year=0.03")
    stated = run("finance.inflation_per_year=0.03", *(f"{path}=0.0" for path in RISING.values()))
    for account in RISING:
        before, after, kept = (
            monthly(result)[list(Account).index(account)] for result in (flat, inflated, stated)
        )
        assert after[:12].tolist() == before[:12].tolist() == kept[:12].tolist()
        assert after[12:].tolist() == pytest.approx((1.03 * before[12:]).tolist(), abs=0.02)
        assert kept.tolist() == before.tolist()
    assert measures(flat)["capex_usd"] == measures(inflated)["capex_usd"]


def test_a_real_rate_is_a_nominal_one_less_inflation(run: Run) -> None:
    """Fisher: 5% real and 3% inflation are 8.15% nominal."""
    real = measures(run("finance.inflation_per_year=0.03", "finance.discount_rate_per_year=0.05",
                        "finance.discount_rate_basis=real"))  # fmt: skip
    nominal = measures(
        run("finance.inflation_per_year=0.03", "finance.discount_rate_per_year=0.0815")
    )
    for name in ("npv_usd", "levelised_cost_per_million_tokens_usd", "cost_usd"):
        assert real[name] == pytest.approx(nominal[name], rel=1e-12)


@pytest.mark.parametrize("tax", ["null", "{rate_fraction: 0.25, losses: carry-forward}"])
def test_real_figures_are_nominal_ones_in_dollars_of_the_first_day(run: Run, tax: str) -> None:
    """Tokens sold at the real levelised cost, rising with inflation month by month, earn a value of zero."""
    plan = ("finance.inflation_per_year=0.04", f"finance.tax={tax}")
    result = run(*plan)
    figures = measures(result)
    level = 1.04 ** ((np.arange(14) + 0.5) / 12)
    cost = result.cost_cents().sum(axis=1) / 100.0
    assert figures["real_cost_usd"] == pytest.approx(float((cost / level).sum()))
    price = figures["real_levelised_cost_per_million_tokens_usd"]
    assert price is not None
    assert price < (figures["levelised_cost_per_million_tokens_usd"] or 0.0)
    kinds = ("input", "output", "cached_input")
    prices = ", ".join(f"{kind}_usd_per_million_tokens: {price!r}" for kind in kinds)
    sold = measures(run(*plan, f"workloads.*.token_price={{{prices}, change_per_year: 0.04}}"))
    assert abs(float(sold["npv_usd"] or 0.0)) < 1e-6 * float(figures["capex_usd"] or 0.0)
    assert measures(run())["real_cost_usd"] is None
