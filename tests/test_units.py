from __future__ import annotations

import pytest

from planner import units
from planner.units import counted, unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("accelerator_price_usd", "USD"),
        ("electricity_usd_per_kwh", "USD/kWh"),
        ("colocation_usd_per_kw_month", "USD/(kW·month)"),
        ("cost_per_million_tokens_usd", "USD/million tokens"),
        ("cost_per_million_output_tokens_usd", "USD/million tokens"),
        ("energy_kwh", "kWh"),
        ("served_tokens", "tokens"),
        ("requests_per_s", "requests/s"),
        ("tokens_per_s", "tokens/s"),
        ("hbm_tb_per_s", "TB/s"),
        ("bf16_dense_tflops", "TFLOP/s"),
        ("ttft_s", "s"),
        ("arrivals_per_s", "1/s"),
        ("mean_repair_h", "h"),
        ("per_year", "1/year"),
        ("operations_fraction_per_year", "1/year"),
        ("discount_fraction", "fraction"),
        ("pue_ratio", "ratio"),
        ("peak_to_mean", "ratio"),
        ("multiplier", "ratio"),
        ("days", "days"),
        ("hours_per_day", "h/day"),
        ("commissioning_h_per_node", "h/node"),
        ("depreciation_months", "months"),
        ("node_failures_per_1000_node_days", "1/(1000 node·days)"),
    ],
)
def test_the_longest_suffix_names_the_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("water_litres_per_kwh", "l/kWh"),
        ("litres_per_kwh", "l/kWh"),
        ("electricity_eur_per_kwh", "EUR/kWh"),
        ("price_eur", "EUR"),
        ("visits_per_kwh", None),
        ("cost_per_million_tokens", None),
        ("requests_per_node_h", None),
        ("energy_kwh_per_million_tokens", "kWh/million tokens"),
    ],
)
def test_what_something_is_counted_per_is_not_its_unit(name: str, unit: str | None) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize("name", ["nodes", "seed", "name", "layers", "s", "h", "usd", "", "c"])
def test_a_count_or_a_bare_word_has_no_unit(name: str) -> None:
    assert unit_of(name) is None


def test_a_year_is_the_same_length_in_every_unit() -> None:
    hours = units.DAYS_PER_YEAR * units.HOURS_PER_DAY
    assert hours == pytest.approx(units.HOURS_PER_YEAR)
    assert units.GB * units.KILO == units.TB


def test_one_is_not_many() -> None:
    assert [counted(number, "node") for number in (0, 1, 1200)] == [
        "0 nodes",
        "1 node",
        "1,200 nodes",
    ]
