from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from docs.generate.aiconfigurator import (
    ANSWERS,
    Answer,
    beside,
    beside_rows,
    class_of,
    closer_to_measured,
    key_of,
    read_answers,
    write_answers,
)
from docs.generate.frontier import Point
from docs.generate.validation_page import shipped_beside, shipped_points, unseen
from tests.docs.generate.test_frontier import POINT

PAGE = (Path(__file__).parents[3] / "docs/reference/validation.md").read_text(encoding="utf-8")
TOOL, SHIPPED = read_answers(ANSWERS)


def answer(point: Point, rate: float) -> Answer:
    note = "nothing" if math.isnan(rate) else ""
    return Answer(*key_of(point), rate, engine="vllm 1", layout="tp2, batch 8", note=note)


def test_every_point_of_the_frontier_has_a_row_and_no_other() -> None:
    keys = [one.key for one in SHIPPED]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {key_of(point) for point in shipped_points()}, (
        "the frontier has moved: python -m docs.generate.ask_aiconfigurator"
    )


def test_a_row_has_an_answer_with_its_layout_or_says_why_not() -> None:
    for one in SHIPPED:
        said = [bool(one.engine), bool(one.layout), not one.note]
        assert said == [one.is_known] * 3, one
        if one.is_known:
            assert one.tokens_per_s_per_accelerator > 0.0
        if one.accelerator.startswith("MI"):
            assert not one.is_known
    assert TOOL.startswith("0.12.0, ")


def test_the_table_of_the_page_follows_from_the_answers() -> None:
    rows = beside_rows(shipped_beside())
    for row in [*rows, *beside_rows(unseen(shipped_beside()))]:
        assert f"| {' | '.join(row)} |" in PAGE, "make reference"
    assert "Version {} was asked on {} for".format(*TOOL.split(", ")) in PAGE
    # One class by another way: straight from the answers and the points.
    rates = {one.key: one.tokens_per_s_per_accelerator for one in SHIPPED if one.is_known}
    own = [point for point in shipped_points() if class_of(point) == "H200, dense"]
    ratios = [rates[key_of(one)] / one.measured for one in own if key_of(one) in rates]
    (row,) = [row for row in rows if row[0] == "H200, dense"]
    assert row[1] == str(len(ratios))
    assert row[4] == f"{np.median(ratios):.2f}"
    assert int(row[1]) + int(row[7]) == len(own)
    assert sum(int(row[1]) + int(row[7]) for row in rows) == len(shipped_points())


def test_both_are_held_against_the_measured_on_points_that_both_answer() -> None:
    slower = POINT._replace(tpot_s=0.03, measured=100.0, chosen=80.0)
    # Without an answer: the planner's own ratio of this point does not count either.
    alone = POINT._replace(tpot_s=0.05, measured=100.0, chosen=1000.0)
    other = POINT._replace(accelerator="MI325X")
    answers = [answer(POINT, 150.0), answer(slower, 90.0), answer(alone, math.nan)]
    rows = beside_rows(beside([POINT, slower, alone, other], answers))
    assert rows == [
        ("H200, dense", "2", "0.95", "0.83 to 1.07", "1.20", "0.96 to 1.44", "50%", "1"),
        ("MI325X, dense", "0", "", "", "", "", "", "1"),
    ]
    assert closer_to_measured(rows) == "H200, dense"
    assert closer_to_measured(rows[1:]) == "none"


def test_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    known = answer(POINT, 1234.5)
    unknown = answer(POINT._replace(model="a model"), math.nan)._replace(engine="", layout="")
    write_answers(path, [known, unknown], "1.0, 2026-11-20")
    tool, (first, second) = read_answers(path)
    assert tool == "1.0, 2026-11-20"
    assert second == known
    assert first.key == unknown.key
    assert first.note == "nothing"
    assert math.isnan(first.tokens_per_s_per_accelerator)


def test_what_the_fit_never_saw_is_deepseek_r1_alone() -> None:
    found = unseen(shipped_beside())
    assert found == [pair for pair in found if not math.isnan(pair.aiconfigurator)]
    assert {pair.point.model for pair in found} == {"deepseek-r1"}


def test_a_file_of_another_form_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("# aiconfigurator 1\nmodel\nllama\n", encoding="utf-8")
    with pytest.raises(KeyError):
        read_answers(path)
