from __future__ import annotations

from pathlib import Path

from docs.generate.readme import KINDS, PARTS, with_accuracy
from docs.generate.validation_page import frontier_rows, shipped_points

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def test_the_readme_states_the_accuracy_of_the_validation_page() -> None:
    assert with_accuracy(README, frontier_rows(shipped_points())) == README, "make reference"


def test_other_figures_replace_those_that_stand_there() -> None:
    rows = [
        (f"{part}, {kind}", "7", "1.23", "1.00 to 1.50", "0%", "")
        for part in PARTS
        for kind in KINDS
    ]
    fresh = with_accuracy(README, rows)
    cells = "1.23 (1.00 to 1.50, 7 points)"
    assert fresh.count(cells) == len(rows)
    assert with_accuracy(fresh, rows) == fresh
