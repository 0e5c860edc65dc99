from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.answers.run import month_lines
from planner.output.terminal import ASCII, BLOCKS, sparkline
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario

NUMBERS = st.lists(st.none() | st.floats(-1e12, 1e12), min_size=1, max_size=200)


def test_low_is_low_and_high_is_high() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == BLOCKS
    assert sparkline([7, 0], levels=ASCII) == ASCII[-1] + ASCII[0]


def test_what_is_not_there_is_a_gap() -> None:
    assert sparkline([None, 0.0, math.nan, 1.0]) == " ▁ █"
    assert sparkline([None, None]) == "  "


def test_no_change_is_mid_height() -> None:
    assert sparkline([3.0, 3.0]) == BLOCKS[4] * 2


def test_a_long_series_is_averaged_down() -> None:
    line = sparkline([float(i // 10) for i in range(80)], width=8)
    assert line == BLOCKS


@given(NUMBERS, st.integers(1, 60))
def test_any_series_fits_its_width(values: list[float | None], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    assert set(line) <= {*BLOCKS, " "}


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.floats(0.5, 100.0))
def test_the_picture_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    if max(values) - min(values) < 1e-3:
        return
    ours, theirs = sparkline(values), sparkline([v * factor for v in values])
    steps = [abs(BLOCKS.index(a) - BLOCKS.index(b)) for a, b in zip(ours, theirs, strict=True)]
    assert max(steps) <= 1  # a value on the edge between two blocks may round either way


@pytest.mark.parametrize(("encoding", "levels"), [("utf-8", BLOCKS), ("ascii", ASCII), ("latin-1", ASCII)])
def test_the_months_of_a_run(write, encoding: str, levels: str) -> None:  # type: ignore[no-untyped-def]
    text = month_lines(simulate(load_scenario(write())), encoding)
    lines = text.splitlines()
    assert lines[0].startswith("cluster")
    assert "2026-01 to 2026-03" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["h200", "mi325x", "fleet", "fleet"]
    assert any(level in text for level in levels)
    assert max(map(len, lines)) <= 80
