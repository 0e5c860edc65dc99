"""What an answer hangs on: in words, with the range of each input, and grey where chance would draw as long a bar."""

from __future__ import annotations

import pytest

from planner.output.report.drivers import Row, panels
from planner.output.report.words import input_words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("workloads.*.requests_per_s", "requests per s, all workloads"),
        ("workloads.chat.growth.per_year", "growth per year, chat"),
        ("clusters.h200*.unit_price_usd", "unit price, h200"),
        ("finance.discount_rate_per_year", "discount rate per year"),
        ("throughput_error.MI325X.vllm.llama-3.1-70b", "throughput against the formula, MI325X.vllm.llama-3.1-70b"),
        ("seed", "seed"),
    ],
)
def test_an_input_in_words(path: str, words: str) -> None:
    assert input_words(path) == words


def _row(
    method: str, name: str, measure: str, value: float, low: float | None = None, high: float | None = None
) -> Row:
    return ("a", "", method, name, measure, value, low, high)


def test_bars_within_noise_are_known() -> None:
    rows = [
        _row("conditional-mean", "x", "swing", 2.0, 1.0, 3.0),
        _row("conditional-mean", "y", "swing", 1.0, 1.5, 2.5),
        _row("variance-share", "x", "first_order", 0.5),
        _row("variance-share", "x", "noise_level", 0.2),
        _row("variance-share", "y", "first_order", 0.1),
        _row("variance-share", "y", "noise_level", 0.2),
        _row("tornado", "x", "at_p10", 1.0, 0.9, 1.1),
        _row("tornado", "x", "at_p90", 2.0, 1.9, 2.1),
        _row("tornado", "y", "at_p10", 1.0, 0.8, 1.2),
        _row("tornado", "y", "at_p90", 1.1, 0.9, 1.3),
    ]
    found = {panel.method: panel.noise for panel in panels(rows)}
    assert found == {"conditional-mean": {"y"}, "tornado": {"y"}}
