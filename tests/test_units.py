from __future__ import annotations

import pytest

from planner.units import counted, unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("accelerator_price_usd", "USD"),
        ("electricity_usd_per_kwh", "USD/kWh"),
        ("colocation_usd_per_kw_month", "USD/(kW·month)"),
        ("cost_per_million_tokens_usd", "USD/million tokens"),
        ("served_tokens", "tokens"),
        ("requests_per_s", "requests/s"),
        ("bf16_dense_tflops", "TFLOP/s"),
        ("ttft_s", "s"),
        ("per_year", "1/year"),
        ("operations_fraction_per_year", "1/year"),
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
        ("electricity_eur_per_kwh", "EUR/kWh"),
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


def test_one_is_not_many() -> None:
    assert [counted(number, "node") for number in (0, 1, 1200)] == [
        "0 nodes",
        "1 node",
        "1,200 nodes",
    ]
