from __future__ import annotations

from pathlib import Path

from planner.calibration.validation import CHART, PAGE, shipped_check, validation_page

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def test_the_committed_page_is_what_the_code_says() -> None:
    assert (REFERENCE / PAGE).read_text(encoding="utf-8") == validation_page(*shipped_check())
    assert (REFERENCE / CHART).stat().st_size > 10_000


def test_the_page_tells_errors_left_out_rows_and_the_worst() -> None:
    page = validation_page(*shipped_check())
    for part in ("| **dense** | 477 |", "one campaign | dense", "one model | dense", "within 90%", "worst rows", CHART):
        assert part in page
