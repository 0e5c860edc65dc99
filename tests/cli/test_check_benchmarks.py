from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.benchmarks.tables import write_table
from tests.conftest import Planner


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
