from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.catalog.calibration import SHIPPED_CALIBRATION, SHIPPED_MEASUREMENTS
from tests.benchmarks.tables import write_table
from tests.conftest import Planner


def test_the_shipped_measurements_are_checked(planner: Planner) -> None:
    done = planner("check-benchmarks", str(SHIPPED_MEASUREMENTS))
    assert done.code == 0
    for part in ("time per output token", "mixture-of-experts", "within 90%", "worst rows"):
        assert part in done.out


def test_json_has_rows_and_a_summary(planner: Planner, tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {}, {"model": "llama-9"})
    found = json.loads(planner("check-benchmarks", str(path), "--json").out)
    assert set(found) == {"rows", "summary"}
    assert len(found["rows"]) == 4
    predicted = [row for row in found["rows"] if "predicted" in row]
    assert {row["quantity"] for row in predicted} == {"ttft_ms", "tpot_ms"}
    assert all(
        {"model", "tp", "measured", "predicted", "error_fraction"} <= set(row) for row in predicted
    )
    told = [row for row in found["rows"] if "reason" in row]
    assert [row["row"] for row in told] == [3, 3]
    assert found["summary"]["predicted"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_tokens": "-1"}, "t.csv:3: input_tokens: must be a number above zero, not '-1'"),
        (
            {"output_tokens": "NaN"},
            "t.csv:3: output_tokens: must be a number above zero, not 'NaN'",
        ),
        ({"scenario": "Batch"}, "t.csv:3: scenario: unknown scenario 'Batch'"),
    ],
)
def test_bad_cells_are_refused_with_their_row(
    planner: Planner, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    planner("check-benchmarks", str(write_table(tmp_path / "t.csv", {}, change))).refused(message)


def test_a_missing_or_empty_file_is_refused(planner: Planner, tmp_path: Path) -> None:
    planner("check-benchmarks", "absent.csv").refused("absent.csv: there is no such file")
    (tmp_path / "empty.csv").write_text("")
    planner("check-benchmarks", str(tmp_path / "empty.csv")).refused("the file is empty")


def test_calibrate_writes_what_check_benchmarks_reads(planner: Planner, tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "t.csv",
        {"tpot_ms": "30"},
        {"concurrency": "32", "tpot_ms": "37", "ttft_ms": "450"},
    )
    done = planner("calibrate", str(table), "--out", str(tmp_path / "c.yaml"))
    assert done.code == 0
    assert "written to" in done.out
    found = []
    for chosen in ([], ["--calibration", str(tmp_path / "c.yaml")]):
        again = planner("check-benchmarks", str(table), *chosen, "--json")
        found.append(
            json.loads(again.out)["summary"]["quantities"]["tpot_ms"]["all"][
                "mean_absolute_error_fraction"
            ]
        )
    printed = re.search(r"mean (\S+)% before, (\S+)% after", done.out)
    assert printed is not None
    assert [float(share) / 100 for share in printed.groups()] == pytest.approx(found, abs=0.001)
    assert found[1] < found[0] / 2


def test_calibrate_refuses_rows_it_cannot_fit(planner: Planner, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv", {}, {"model": "llama-9"})
    planner("calibrate", str(table), "--out", str(tmp_path / "c.yaml"), "--quiet").refused(
        "t.csv:3: unknown model"
    )
    assert not (tmp_path / "c.yaml").exists()


def test_a_damaged_calibration_is_refused(planner: Planner, tmp_path: Path) -> None:
    damaged = tmp_path / "c.yaml"
    damaged.write_text(
        SHIPPED_CALIBRATION.read_text().replace("\n  weight_stream:", "\n  weight_steam:", 1)
    )
    table = write_table(tmp_path / "t.csv", {})
    planner("check-benchmarks", str(table), "--calibration", str(damaged)).refused(
        "common.weight_stream: is required"
    )
