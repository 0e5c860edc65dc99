"""A small sample of a study of millions: made-up replications, killed, resumed, held against closed forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.many_rows import checks, collector
from tests.conftest import TINY
from tests.studies.conftest import SMALL

ROWS, DETAILED = 40_000, 1_024


@pytest.mark.prove
def test_a_killed_collector_is_resumed_and_its_statistics_are_those_of_the_made_up_rows(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    study = tmp_path / "study.yaml"
    study.write_text(f"{SMALL}detailed_replications: {DETAILED}\n")
    killed = collector(study, tmp_path / "out", ROWS, "-", kill_at=ROWS // 2)
    assert killed.last[0] == ROWS // 2
    shards = list((tmp_path / "out" / "shards").glob("*.parquet"))
    assert shards
    resumed = collector(study, tmp_path / "out", ROWS, "-")
    assert resumed.first is not None
    assert resumed.first[0] > ROWS // 4  # what was stored is not run again
    listed = checks(tmp_path / "out", ROWS, DETAILED, ("both", "nvidia"))
    assert len(listed) == 2 * 8 + 2 + 2 + 3
    assert [check for check in listed if not check.is_right] == []
    assert resumed.peak_mb < 1000.0
