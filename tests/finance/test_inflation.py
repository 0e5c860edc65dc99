"""Inflation: what rises with it, and what a real rate is."""

from __future__ import annotations

import numpy as np
import pytest

from planner.finance.accounting.measures import measures
from planner.finance.accounts import Account
from planner.finance.ledger import Dimension
from planner.run.simulate import RunResult
from tests.ledgers import Run

RISING = {
    Account.OPERATIONS_STAFF: "finance.people_escalator_per_year",
    Account.COLOCATION: "site.colocation_escalator_per_year",
    Account.ENERGY: "site.electricity.escalator_per_year",
    Account.CARBON: "finance.carbon_change_per_year",
}


@pytest.fixture
def run(run: Run) -> Run:
    staff = "finance.operations_staff_per_1000_accelerators=30"
    carbon = "finance.carbon_usd_per_tonne=50"
    usual = ("horizon_months=14", "clusters.mi325x=null", staff, carbon)
    return lambda *overrides: run(*usual, *overrides)


def monthly(result: RunResult) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return result.ledger.totals_cents(Dimension.ACCOUNT, Dimension.MONTH) / 100.0


def test_what_states_no_rise_of_its_own_rises_with_prices(run: Run) -> None:
    """From the first anniversary on, by 3%; what is stated stays as stated, and purchases do not move."""
    flat = run()
    inflated = run("finance.inflation_per_year=0.03")
    real = ("finance.inflation_per_year=0.03", "finance.discount_rate_basis=real")
    stated = run(*real, *(f"{path}=0.0" for path in RISING.values()))
    for account in RISING:
        before, after, kept = (
            monthly(result)[list(Account).index(account)] for result in (flat, inflated, stated)
        )
        assert after[:12].tolist() == before[:12].tolist() == kept[:12].tolist()
        assert after[12:].tolist() == pytest.approx((1.03 * before[12:]).tolist(), abs=0.02)
        assert kept.tolist() == before.tolist()
    assert measures(flat)["capex_usd"] == measures(inflated)["capex_usd"]
    assert stated.plan.money.capital.discount_rate_per_year == pytest.approx(1.1 * 1.03 - 1)
