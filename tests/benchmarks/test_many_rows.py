"""A hundred thousand made-up replications on a Dask cluster, killed, resumed, held against closed forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.many_rows import checks, cluster, collector
from tests.conftest import TINY
from tests.studies.conftest import SMALL

ROWS = 100_000
DETAILED = 1_024


@pytest.mark.prove
def test_a_study_on_two_dask_workers_is_killed_and_resumed_and_its_statistics_are_those_of_the_made_up_rows(
    tmp_path: Path,
) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "tiny.yaml").write_text(TINY)
    study = tmp_path / "study.yaml"
    study.write_text(f"{SMALL}detailed_replications: {DETAILED}\n")
    with cluster(tmp_path) as address:
        killed = collector(study, tmp_path / "out", ROWS, address, kill_at=ROWS // 2)
        assert ROWS // 2 <= killed.last[0] < ROWS
        assert list((tmp_path / "out" / "shards").glob("*.parquet"))
        resumed = collector(study, tmp_path / "out", ROWS, address)
    assert resumed.first is not None
    assert resumed.first[0] > ROWS // 4  # what was stored is not run again
    listed = checks(tmp_path / "out", ROWS, DETAILED, ("both", "nvidia"))
    assert len(listed) == 2 * 8 + 2 + 2 + 3
    assert [check for check in listed if not check.is_right] == []
    assert resumed.peak_mb < 1000.0
