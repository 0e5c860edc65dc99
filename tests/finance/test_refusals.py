"""What the formulas of finance take for granted is refused where a scenario is read."""

from __future__ import annotations

import pytest

from planner.errors import ScenarioError
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario


@pytest.mark.parametrize(
    "stated",
    [
        *(f"horizon_months={months}" for months in (0, -3, 601)),
        "clusters.h200.accelerator_price_usd=-1",
        "clusters.h200.accelerator_price_usd=.nan",
        "clusters.h200.nodes=-1",
        "clusters.h200.quotes=[{name: q, accelerator_price_usd: -5}]",
        "clusters.h200.volume_discounts=[{from_accelerators: 0, discount_fraction: 0.1}]",
        "clusters.h200.volume_discounts=[{from_accelerators: 5, discount_fraction: 14}]",
        "clusters.mi325x.retire=2026-01-15",  # before it comes
        "finance.residual_fraction=2",
        "finance.depreciation_months=0",
        "finance.depreciation_months=36.5",
        "finance.declining_balance_ratio=-2",
        "finance.resale_multiplier=-1",
        *(f"finance.discount_rate_per_year={rate}" for rate in ("-1", "-1.5", ".nan", ".inf")),
        "finance.property_tax_fraction_per_year=-0.1",
        "finance.tax={rate_fraction: 1}",
        "finance.tax={rate_fraction: -0.1}",
        "finance.tax={rate_fraction: 0.21, bonus_fraction: 1.5}",
        "finance.api_price={input_usd_per_million_tokens: -1, output_usd_per_million_tokens: 1}",
        "finance.api_price={input_usd_per_million_tokens: 1, output_usd_per_million_tokens: 1, change_per_year: -1}",
        "finance.carbon_usd_per_tonne=-5",
        "finance.service_life_months=0",
        "finance.operations_staff_usd_per_year=-1",
        "finance.people_escalator_per_year=-1",
        "site.grid_carbon_g_per_kwh=-5",
        "site.electricity.windows=[{name: x, usd_per_kwh: -0.01}]",
        "site.electricity.windows=[{name: x, usd_per_kwh: 0.1, months: [13]}]",
        "site.electricity.windows=[{name: x, usd_per_kwh: 0.1, weekdays: []}]",
        "site.electricity.windows=[{name: x, usd_per_kwh: 0.1, start_hour: 24}]",
        "site.electricity.escalator_per_year=-1",
        "site.electricity.demand_charge_usd_per_kw_month=-3",
        "site.electricity.demand_ratchet_fraction=1.5",
    ],
)
def test_what_no_contract_and_no_book_has_is_refused_at_its_key(
    stated: str, write: WriteScenario
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(), [stated])
    keys = [
        (problem.path or "").partition("[")[0].split(".")[:2] for problem in caught.value.problems
    ]
    assert stated.partition("=")[0].split(".")[:2] in keys
