"""What a user may not write about money, each refused with its place before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import ScenarioError
from planner.scenario.loading import load_scenario
from planner.scenario.site import dated_quotes, standing_price, tariff_of
from tests.conftest import Planner, WriteScenario

BAD = [
    ("clusters.h200.accelerator_price_usd=-1", ["clusters.h200.accelerator_price_usd", "greater than or equal to 0"]),
    ("finance.depreciation_months=0", ["finance.depreciation_months", "greater than or equal to 1"]),
    ("finance.residual_fraction=1.2", ["finance.residual_fraction", "less than or equal to 1"]),
    ("finance.end_value=book", ["finance.end_value", "end_value can no longer be book", "write market"]),
    ("finance.cash_flow_timing=month_start", ["must be one of 'mid_month' or 'month_end'"]),
    ("clusters.h200.resale_curve=[{age_months: 12, fraction_of_new: 0}]", ["fraction_of_new", "greater than 0"]),
    ("clusters.h200.resale_curve=[{age_months: 9, fraction_of_new: 1}, {age_months: 9, fraction_of_new: 0.5}]",
     ["clusters.h200", "ages of resale_curve must rise"]),
    ("finance.discount_rate_per_year=-1", ["finance.discount_rate_per_year", "greater than -1"]),
    ("finance.currency=EUR", ["finance.currency", "US dollars", "convert"]),
    ("clusters.h200.accelerator_price_usd=30000 EUR", ["clusters.h200.accelerator_price_usd", "must be a number"]),
    ("clusters.h200.accelerator_price_eur=30000", ["price_eur", "did you mean accelerator_price_usd?"]),
    ("finance.tax.bonus_fraction=0.5", ["finance.tax.rate_fraction: is required"]),
    ("finance.depreciation_method=sum-of-years", ["must be one of 'straight-line' or 'declining-balance'"]),
    ("workloads.*.token_price={input_usd_per_million_tokens: 1, output_usd_per_million_tokens: 1, change_per_year: -1}",
     ["workloads.chat.token_price.change_per_year"]),
    ("workloads.*.token_price={input_usd_per_million_tokens: 0.1, output_usd_per_million_tokens: 4, "
     "cached_input_usd_per_million_tokens: 1}", ["workloads.chat.token_price", "cached prompt token at 1 costs more"]),
    ("site.electricity.timezone=America/Chicargo", ["site.electricity.timezone", "America/Chicago"]),
    ("site.electricity.windows=[{name: day, usd_per_kwh: 0.1, start_hour: 6, end_hour: 22}]",
     ["site.electricity.windows", "no window covers 00:00-06:00 and 22:00-24:00"]),
    ("site.electricity.windows=[{name: a, usd_per_kwh: 0.1}, {name: b, usd_per_kwh: 0.2, months: [7]}]",
     ["site.electricity.windows", "'a' and 'b' both cover 00:00-24:00 in July"]),
    ("site.electricity.windows=[{name: a, usd_per_kwh: 0.1, start_hour: 5, end_hour: 5}]", ["the window is empty"]),
    ("site.electricity.windows=[{name: a, usd_per_kwh: 0.1, weekdays: [someday]}]", ["must be one of 'monday'"]),
    ("clusters.h200.volume_discounts=[{from_accelerators: 100, discount_fraction: 0.1}, "
     "{from_accelerators: 50, discount_fraction: 0.2}]", ["clusters.h200.volume_discounts", "rise from tier to tier"]),
    ("clusters.h200.quotes=[{name: q, accelerator_price_usd: 1, valid_from: 2026-05-01, valid_until: 2026-04-01}]",
     ["clusters.h200.quotes", "ends on 2026-04-01, before it begins on 2026-05-01"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "parts"), BAD, ids=[change[:60] for change, _ in BAD])
def test_bad_money_is_refused(
    planner: Planner, write: WriteScenario, tmp_path: Path, change: str, parts: list[str]
) -> None:
    planner("run", write(), "--set", change).refused(*parts)
    assert not (tmp_path / "outputs").exists()


def test_a_flat_price_beside_windows_has_no_effect_and_is_refused(write: WriteScenario) -> None:
    both = [
        "site.electricity_usd_per_kwh=0.1",
        "site.electricity.windows=[{name: all, usd_per_kwh: 0.2}]",
    ]
    with pytest.raises(
        ScenarioError,
        match=r"site\.electricity_usd_per_kwh.*no effect: electricity\.windows price every hour",
    ):
        load_scenario(write(), both)


def test_prices_become_what_finance_takes(write: WriteScenario) -> None:
    scenario = load_scenario(
        write(),
        [
            "clusters.h200.discount_fraction=0.1",
            "clusters.h200.quotes=[{name: q, accelerator_price_usd: 100, volume_rule: marginal, volume_discounts: "
            "[{from_accelerators: 11, discount_fraction: 0.5}]}]",
            "site.electricity={windows: [{name: a, usd_per_kwh: 0.1, months: [1, 2, 3, 4, 5, 6]}, {name: b, "
            "usd_per_kwh: 0.3, months: [7, 8, 9, 10, 11, 12]}], demand_ratchet_fraction: 0.5}",
        ],
    )
    cluster = scenario.clusters["h200"]
    assert standing_price(cluster, 1000.0).order_cents(3) == 3 * 900_00
    (quote,) = dated_quotes(cluster)
    assert quote.order_cents(12) == 10 * 100_00 + 2 * 50_00
    tariff = tariff_of(scenario.site, 9.0)
    assert tariff.price_table()[5, 0, 0] == 0.1
    assert tariff.price_table()[6, 6, 23] == 0.3
    assert tariff.demand_ratchet_fraction == 0.5
    flat = load_scenario(write()).site
    assert (tariff_of(flat, 0.07).price_table() == 0.07).all()
