"""Lives and residuals by kind of part: accelerators, hosts, network and storage, each on the books apart."""

from __future__ import annotations

import numpy as np
import pytest

from planner.finance.accounting.measures import measures
from planner.finance.accounts import CAPEX_ACCOUNTS, Account
from planner.finance.ledger import Dimension
from planner.run.simulate import RunResult
from tests.conftest import Planner, WriteScenario
from tests.ledgers import Run

APART = (
    "clusters.h200.components={accelerators: {depreciation_months: 48, residual_fraction: 0.1}, "
    "hosts: {depreciation_months: 60}, network: {depreciation_months: 96, residual_fraction: 0}}"
)
ODD = "clusters.h200.accelerator_price_usd=12345.678", "clusters.h200.host_usd_per_node=33333.337"
SOLD_LATER = "clusters.h200.retire=2026-03-10"


def accounts(result: RunResult) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return result.ledger.totals_cents(Dimension.CLUSTER, Dimension.MONTH, Dimension.ACCOUNT)


def test_each_kind_is_written_off_over_its_own_life(run: Run) -> None:
    """The first month of a machine bought on the first day, by hand; storage is written off as the cluster is."""
    result = run(APART)
    accelerators, hosts, network, storage = (
        4 * price for price in result.plan.clusters[0].prices_usd
    )
    monthly = 0.9 * accelerators / 48 + 0.8 * hosts / 60 + network / 96 + 0.8 * storage / 36
    charged = accounts(result)[0, :, list(Account).index(Account.DEPRECIATION)] / 100
    assert charged.tolist() == pytest.approx([monthly] * 3, abs=0.04)
    assert result.ledger.labels.cohorts[:4] == tuple(
        f"h200-1-{kind}" for kind in ("accelerators", "hosts", "network", "storage")
    )
    assert result.ledger.labels.cohorts[4] == "mi325x-1"


@pytest.mark.parametrize(
    "more", [(), ODD, (*ODD, SOLD_LATER), ("finance.residual_basis=vendor-prior",)]
)
def test_books_by_kind_move_no_cash_and_count_no_machine_twice(
    run: Run, more: tuple[str, ...]
) -> None:
    tax = "finance.tax={rate_fraction: 0.25, bonus_fraction: 0.4}"
    apart = run(APART, tax, *more)
    whole = run(tax, *more)
    for account in (*CAPEX_ACCOUNTS, Account.MAINTENANCE):
        place = list(Account).index(account)
        assert accounts(apart)[:, :, place].sum(axis=1) == pytest.approx(
            accounts(whole)[:, :, place].sum(axis=1), abs=1 if account is Account.MAINTENANCE else 0
        )
    found = measures(apart)
    usual = measures(whole)
    for name in ("tco_usd", "npv_usd", "levelised_cost_per_million_tokens_usd"):
        assert found[name] == pytest.approx(usual[name], abs=0.1)
    assert found["embodied_kg_per_million_tokens"] == usual["embodied_kg_per_million_tokens"]
    assert found["cost_usd"] != usual["cost_usd"]


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            ["clusters.h200.contract={kind: reserved}"],
            ["only machines that are bought have components"],
        ),
        (
            ["clusters.h200.owned={bought: 2024-01-01, book_value_usd: 9}"],
            ["covers all their parts"],
        ),
    ],
)
def test_components_that_cannot_be_are_refused(
    write: WriteScenario, planner: Planner, overrides: list[str], parts: list[str]
) -> None:
    outcome = planner(
        "run", write(), *(word for change in (APART, *overrides) for word in ("--set", change))
    )
    outcome.refused(*parts)
