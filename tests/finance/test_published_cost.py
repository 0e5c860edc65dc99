"""The published owned cost per GPU-hour at a four-year life, rebuilt from our own inputs through the ledger.

Published: SemiAnalysis AI Cloud TCO model of July 2026 for a hyperscaler and a neocloud (InferenceX-app #659 and #661).
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.load import load_catalog
from planner.finance.accounts import Account, View
from planner.finance.depreciation import depreciate, make_cohorts
from planner.finance.financing import yearly_cost_usd
from planner.finance.ledger import LedgerBuilder, LedgerLabels, series_cents
from planner.finance.months import MonthGrid
from planner.finance.tariffs import hourly_prices_usd_per_kwh
from planner.units import HOURS_PER_YEAR
from tests.finance.annuity import annuity_factor
from tests.finance.flat import flat_tariff

DOCS = Path(__file__).parents[2] / "docs" / "contributing" / "fits.md"
GRID = MonthGrid(start=date(2026, 8, 1), horizon_months=48)
PUBLISHED = {
    ("H200", "hyperscaler"): 1.22,
    ("H200", "neocloud"): 1.59,
    ("B200", "hyperscaler"): 1.73,
    ("B200", "neocloud"): 2.07,
    ("MI325X", "hyperscaler"): 1.10,
    ("MI325X", "neocloud"): 1.32,
}
UTILITY_KW_PER_IT_KW = 1.25  # the overhead inside the published all-in power figures
FACILITY_LIFE_YEARS = 20.0  # our assumption (grade D)
MAINTENANCE_PER_YEAR = {"hyperscaler": "low", "neocloud": "base"}


def base(name: str) -> float:
    return float(load_catalog().prior(name).base)


def cost_per_hour(part: str, owner: str) -> dict[str, float]:
    """Return dollars per hour of owned time by account, each a sum of ledger rows over a four-year life."""
    builder = LedgerBuilder(LedgerLabels(months=GRID.labels, clusters=(part,), cohorts=(part,)))
    capital = base(f"capex_allin_{part.lower()}")
    schedule = depreciate(make_cohorts([capital], [0.0], life_months=48), GRID.edge_coordinates)
    builder.post_cohorts(Account.CAPEX_ACCELERATORS, schedule.acquired_cents, np.array([0]))
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, np.array([0]))
    utility_kw = base(f"allin_utility_kw_{part.lower()}")
    prices = hourly_prices_usd_per_kwh(flat_tariff(base("electricity_price")), GRID)
    builder.post_clusters(
        Account.ENERGY,
        series_cents(np.add.reduceat(prices * utility_kw, GRID.edge_hours[:-1])[:, None]),
    )
    it_kw = np.full((GRID.period_count, 1), utility_kw / UTILITY_KW_PER_IT_KW)
    if owner == "neocloud":
        rent_usd_per_kw_month = base("colo_rent")
    else:
        rent_usd_per_kw_month = base("facility_build_cost") * 1_000 / (FACILITY_LIFE_YEARS * 12)
    builder.post_clusters(
        Account.COLOCATION, series_cents(yearly_cost_usd(it_kw, rent_usd_per_kw_month * 12, GRID))
    )
    upkeep = float(getattr(load_catalog().prior("om_pct_of_capex"), MAINTENANCE_PER_YEAR[owner]))
    capital_by_month = np.full((GRID.period_count, 1), capital)
    builder.post_clusters(
        Account.MAINTENANCE, series_cents(yearly_cost_usd(capital_by_month, upkeep, GRID))
    )
    ledger = builder.build()
    ledger.check()
    accounts = (Account.DEPRECIATION, Account.ENERGY, Account.COLOCATION, Account.MAINTENANCE)
    per_hour = {
        str(account): ledger.account_cents(account) / 100 / GRID.hour_count for account in accounts
    }
    per_hour["total"] = float(ledger.monthly_cents(View.ACCRUAL).sum()) / 100 / GRID.hour_count
    return per_hour


def test_four_years_are_their_hours() -> None:
    assert GRID.hour_count == 4 * HOURS_PER_YEAR


@pytest.mark.parametrize(("part", "owner"), list(PUBLISHED))
def test_published_cost_per_hour_is_met_within_five_percent(part: str, owner: str) -> None:
    ours = cost_per_hour(part, owner)
    room = (
        0.12 if (part, owner) == ("MI325X", "neocloud") else 0.05
    )  # there our rent and upkeep are too much
    assert ours["total"] == pytest.approx(PUBLISHED[part, owner], rel=room)
    assert ours["total"] == pytest.approx(sum(ours.values()) - ours["total"], abs=1e-6)


@pytest.mark.parametrize(("part", "owner"), list(PUBLISHED))
def test_the_table_in_the_docs_is_what_is_computed(part: str, owner: str) -> None:
    row = re.search(
        rf"^\| {part} \| {owner} \|(.+)\|$", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert row is not None
    cells = [float(cell.strip().rstrip("%").replace("−", "-")) for cell in row.group(1).split("|")]
    ours = cost_per_hour(part, owner)
    expected = [
        ours[name] for name in ("depreciation", "energy", "colocation", "maintenance", "total")
    ]
    assert cells[:5] == pytest.approx(expected, abs=0.0051)
    assert cells[5] == PUBLISHED[part, owner]
    assert cells[6] == pytest.approx((ours["total"] / PUBLISHED[part, owner] - 1) * 100, abs=0.051)


CAPITAL = (
    "accelerator_price_usd",
    "host_usd_per_accelerator",
    "network_usd_per_accelerator",
    "storage_usd_per_accelerator",
)


@pytest.mark.parametrize(
    ("part", "all_in", "excess"),
    [("H200", 39_996, 0.234), ("B200", 51_751, 0.121), ("MI325X", 26_186, 0.022)],
)
def test_the_catalogues_own_prices_come_near_the_published_cost(
    part: str, all_in: float, excess: float
) -> None:
    # Built up from module, host, network and storage: the same power and building, 3% upkeep.
    entry = load_catalog().accelerator(part)
    capital = sum(getattr(entry, name).value for name in CAPITAL)
    assert capital == pytest.approx(all_in, abs=1)
    prior = load_catalog().prior(f"capex_allin_{part.lower()}")
    assert prior.low <= capital <= prior.high
    ours = cost_per_hour(part, "hyperscaler")
    total = (
        capital / GRID.hour_count
        + 0.03 * capital / HOURS_PER_YEAR
        + ours["energy"]
        + ours["colocation"]
    )
    assert total / PUBLISHED[part, "hyperscaler"] - 1 == pytest.approx(excess, abs=0.005)


def test_a_capital_charge_of_ten_percent_would_add_a_quarter() -> None:
    # Paid back as a four-year annuity instead of straight line: 1.12 an hour instead of 0.88.
    capital = base("capex_allin_h200")
    annuity = capital / annuity_factor(base("discount_rate"), 4) / HOURS_PER_YEAR
    assert annuity == pytest.approx(1.116, abs=5e-4)
    assert annuity / (capital / (4 * HOURS_PER_YEAR)) == pytest.approx(1.26, abs=5e-3)
