from __future__ import annotations

from pathlib import Path

from docs.generate.aiconfigurator import beside_rows
from docs.generate.readme import KINDS, PARTS, with_accuracy
from docs.generate.validation_page import frontier_rows, shipped_beside, shipped_points

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def test_the_readme_states_the_accuracy_of_the_validation_page() -> None:
    rows = frontier_rows(shipped_points())
    beside = beside_rows(shipped_beside())
    assert with_accuracy(README, rows, beside) == README, "make reference"


def test_other_figures_replace_those_that_stand_there() -> None:
    names = [f"{part}, {kind}" for part in PARTS for kind in KINDS]
    rows = [(name, "7", "1.23", "1.00 to 1.50", "0%", "") for name in names]
    without = (names[0], "0", "", "", "", "", "", "7")
    known = ("5", "1.23", "1.00 to 1.50", "1.34", "1.10 to 1.60", "80%", "2")
    beside = [without, *[(name, *known) for name in names[1:]]]
    fresh = with_accuracy(README, rows, beside)
    assert fresh.count("1.23 (1.00 to 1.50, 7 points)") == len(names)
    assert fresh.count("1.34 (1.10 to 1.60, 5 points)") == len(names) - 1
    assert fresh.count("| no data |") == 1
    assert with_accuracy(fresh, rows, beside) == fresh
