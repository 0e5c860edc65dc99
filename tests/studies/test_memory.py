"""The process that collects a study needs about the same memory for many replications as for few."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from planner.answers import study as study_folder
from planner.studies import store
from tests.benchmarks.study_memory import collect

BATCH = 64
FEW = 128
MANY = 640
BYTES_PER_ROW = 700
"""Half a gigabyte for a million replications: one figure of four scenarios takes 32 bytes each, and some are needed at
a time."""


def peaks(rows: int, folder: Path, study: Path) -> tuple[int, int]:
    """Return the most that Python and numpy, and that Arrow, held at any time of a study (Arrow: of the process)."""
    tracemalloc.start()
    try:
        collect(rows, folder, BATCH, study=study)
        return tracemalloc.get_traced_memory()[1], pa.default_memory_pool().max_memory() or 0
    finally:
        tracemalloc.stop()


@pytest.mark.prove
def test_memory_hardly_grows_with_replications(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        store, "_ROW_GROUP", 64
    )  # so that few replications fill what is held at a time, too,
    monkeypatch.setattr(store, "SHARD_ROWS", 64)
    monkeypatch.setattr(study_folder, "_SAMPLE_ROWS", 64)
    monkeypatch.setattr(store, "_SHARDS_IN_MEMORY", 1)  # and the shards that are kept read
    collect(BATCH, tmp_path / "first", BATCH, study=study)  # loads and keeps what any study needs
    few, arrow_few = peaks(FEW, tmp_path / "few", study)
    many, arrow_many = peaks(MANY, tmp_path / "many", study)
    assert many - few < BYTES_PER_ROW * (MANY - FEW)
    assert arrow_many - arrow_few < BYTES_PER_ROW * (MANY - FEW)


def test_a_finished_study_is_read_back_a_row_group_at_a_time(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_ROW_GROUP", 64)
    finished = collect(FEW, tmp_path / "out", 8, study=study)
    before = pa.total_allocated_bytes()
    most = 0
    rows = []
    for part in finished.store.samples(300):
        most = max(most, pa.total_allocated_bytes() - before)
        rows += part.column("replication").to_pylist()
    assert rows == [number for number in range(FEW) for _ in range(2)]
    size = (finished.store.folder / store.SINGLE).stat().st_size
    assert most < size / 2  # of four groups, one and a half are in hand while the next is read
