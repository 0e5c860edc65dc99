from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.table import COLUMNS, read_benchmarks
from planner.errors import ScenarioError
from tests.benchmarks.tables import write_table


def _problems(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_benchmarks(path)
    return [str(problem) for problem in caught.value.problems]


def test_numbers_are_numbers_and_blanks_are_nan(tmp_path: Path) -> None:
    frame = read_benchmarks(write_table(tmp_path / "t.csv", {}, {"tp": "", "concurrency": "35.7"}))
    assert list(frame.index) == [2, 3]
    assert frame.at[2, "tp"] == 1.0
    assert np.isnan(frame["tp"].to_numpy()[1])
    assert frame.at[3, "concurrency"] == 35.7


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("input_tokens", "0", "must be a number above zero, not '0'"),
        ("concurrency", "1e300", "must be at most 1e+12, not '1e300'"),
        ("output_tokens", "-5", "must be a number above zero, not '-5'"),
        ("input_tokens", "nan", "must be a number above zero, not 'nan'"),
        ("concurrency", "inf", "must be at most 1e+12, not 'inf'"),
        ("tpot_ms", "fast", "must be a number above zero, not 'fast'"),
        ("tp", "1.5", "must be a whole number above zero, not '1.5'"),
        ("scenario", "Conkurrency", "did you mean Concurrency?"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(tmp_path: Path, column: str, cell: str, message: str) -> None:
    path = write_table(tmp_path / "t.csv", {}, {column: cell})
    (problem,) = _problems(path)
    assert problem.startswith(f"{path}:3: {column}: ")
    assert message in problem


def test_all_problems_come_at_once_in_order(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"tpot_ms": "x"}, {}, {"input_tokens": "-1", "tp": "0"})
    assert [problem.split(": ")[0].rsplit(":", 1)[1] for problem in _problems(path)] == ["2", "4", "4"]


def test_very_many_problems_are_cut(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", *[{"tp": "0"}] * 200)
    problems = _problems(path)
    assert len(problems) == 51
    assert problems[-1].startswith("and at least")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("model,acelerator,engine\nx,y,z\n")
    problems = _problems(path)
    assert len(problems) == len(COLUMNS) - 2
    assert any("'accelerator' is missing (did you mean acelerator?)" in problem for problem in problems)


@pytest.mark.parametrize(
    ("content", "message"), [("", "the file is empty"), (",".join(COLUMNS) + "\n", "a header and no rows")]
)
def test_an_empty_file_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert message in _problems(path)[0]


def test_what_is_no_csv_is_an_error(tmp_path: Path) -> None:
    assert "no such file" in _problems(tmp_path / "absent.csv")[0]
    assert "is a folder" in _problems(tmp_path)[0]
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 20)
    assert _problems(binary)


def test_a_blank_scenario_follows_from_the_concurrency(tmp_path: Path) -> None:
    frame = read_benchmarks(
        write_table(tmp_path / "t.csv", {"scenario": ""}, {"scenario": "", "concurrency": ""}, {"scenario": "SERVER"})
    )
    assert list(frame["scenario"]) == ["Concurrency", "Offline", "Server"]


def test_a_byte_order_mark_and_spaces_do_no_harm(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"model": " llama-3.1-70b "})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(read_benchmarks(path)["model"]) == ["llama-3.1-70b"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda lines: [lines[0], *(line + ",surplus" for line in lines[1:])], "more cells than the header"),
        (
            lambda lines: [lines[0] + ",model ", *(line + ",x" for line in lines[1:])],
            "the column 'model' is there twice",
        ),
    ],
)
def test_a_table_out_of_shape_is_refused(tmp_path: Path, spoil: Callable[[list[str]], list[str]], message: str) -> None:
    path = write_table(tmp_path / "t.csv", {})
    path.write_text("\n".join(spoil(path.read_text().splitlines())) + "\n")
    with pytest.raises(ScenarioError, match=message):
        read_benchmarks(path)
