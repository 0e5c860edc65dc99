from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.output.words import (
    NOTHING,
    axis_label,
    count,
    dollars,
    figure,
    measured,
    percent,
    short,
    unit_price,
)


@pytest.mark.parametrize(
    ("share", "decimals", "shown"),
    [(0.304, 1, "30.4%"), (0.0, 2, "0.00%"), (0.00001, 1, "<0.1%"), (None, 1, NOTHING), (math.nan, 1, NOTHING),
     (1.0, 0, "100%")],
)  # fmt: skip
def test_percent(share: float | None, decimals: int, shown: str) -> None:
    assert percent(share, decimals) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (95_590_127.26, "$95.6 million"),
        (999.0, "$999"),
        (-2.5e9, "−$2.5 billion"),
        (0.0, "$0"),
        (None, NOTHING),
    ],
)
def test_dollars(amount: float | None, shown: str) -> None:
    assert dollars(amount) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0.130880, "$0.131"),
        (9.378, "$9.38"),
        (0.054046, "$0.0540"),
        (1234.5, "$1,234"),
        (0.0, "$0"),
        (None, NOTHING),
    ],
)
def test_unit_price(amount: float | None, shown: str) -> None:
    assert unit_price(amount) == shown


def test_counts() -> None:
    assert count(730_366_435_860_103) == "730.4 trillion"
    assert count(12) == "12"
    assert count(None) == NOTHING
    assert short(730_366_435_860_103) == "730 T"
    assert short(0.25) == "0.25"


def test_axis_labels_follow_their_unit() -> None:
    assert axis_label(0.2, "percent") == "20%"
    assert axis_label(0.05, "usd") == "$0.05"
    assert axis_label(3e6, "usd") == "$3M"
    assert axis_label(4e13, "tokens") == "40 T"


@given(st.floats(1e-5, 1e5))
def test_a_price_is_shown_to_half_a_percent(amount: float) -> None:
    shown = float(unit_price(amount).replace("$", "").replace(",", ""))
    assert shown == pytest.approx(amount, rel=0.006, abs=1e-6)


@pytest.mark.parametrize(
    ("number", "name", "shown"),
    [
        (0.0886, "cost_per_million_tokens_usd", "$0.0886"),
        (2.5, "levelised_cost_per_accelerator_h_usd", "$2.50"),
        (95_590_127.0, "cost_usd", "$95.6 million"),
        (0.25, "irr_per_year", "25.0%"),
        (1.234, "break_even_api_price_ratio", "1.23"),
        (5e6, "energy_kwh", "5.0 million"),
        (None, "npv_usd", "–"),
        (float("inf"), "npv_usd", "–"),
    ],
)
def test_a_figure_is_read_as_its_name_says(number: float | None, name: str, shown: str) -> None:
    assert measured(number, name) == shown


@pytest.mark.parametrize(
    ("cell", "shown"),
    [("31000.04", "31,000"), ("0.825115", "0.8251"), ("fp8", "fp8"), ("inf", "inf")],
)
def test_a_figure_in_full_is_shown_in_short(cell: str, shown: str) -> None:
    assert figure(cell) == shown


@given(st.sampled_from([percent, dollars, unit_price, count]), st.floats(-1.0, 1.0))
@example(dollars, -0.4)
@example(percent, -0.0)
@example(unit_price, -1e-9)
@example(count, -0.2)
def test_nothing_has_no_minus(shown: Callable[[float], str], number: float) -> None:
    assert not re.fullmatch(r"[-−]\$?0[.0]*%?", shown(number))
