from __future__ import annotations

from pathlib import Path

import pytest

from planner.benchmarks.chart import validation_chart
from planner.benchmarks.validation import CHART, PAGE, shipped_check, validation_page, write_validation
from planner.errors import ScenarioError

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_committed_page_is_what_the_code_says() -> None:
    assert (REFERENCE / PAGE).read_text(encoding="utf-8") == validation_page(*shipped_check())
    assert (REFERENCE / CHART).stat().st_size > 10_000


def test_the_page_tells_errors_left_out_rows_and_the_worst() -> None:
    page = validation_page(*shipped_check())
    for part in ("| **dense** | 477 |", "one campaign | dense", "one model | dense", "within 90%", "worst rows", CHART):
        assert part in page


def test_page_and_chart_are_written(tmp_path: Path) -> None:
    write_validation(tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [PAGE, CHART]


def test_a_chart_of_another_kind_is_refused(tmp_path: Path) -> None:
    check, _ = shipped_check()
    with pytest.raises(ScenarioError, match="a chart is written as"):
        validation_chart(check, tmp_path / "chart.bmp")
