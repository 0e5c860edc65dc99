"""Replications beyond the detailed ones keep their headlines and no months; what hangs on months says of how many."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from planner.errors import ScenarioError
from planner.files import MANIFEST
from planner.studies import analysis
from planner.studies.dask_engine import Todo
from planner.studies.intervals import (
    mean_estimate,
    percentile_estimate,
    spread_estimates,
)
from planner.studies.merge import FURTHER, SINGLE
from planner.studies.prepare import Prepared, prepare
from planner.studies.runner import Workforce
from planner.studies.shard_index import Homes
from planner.studies.stored_columns import stored_bytes
from planner.studies.study import open_store
from planner.verbs.many_runs import study
from tests.studies.conftest import SMALL
from tests.studies.test_clearing import done
from tests.studies.test_runner import bytes_of, finish

Write = Callable[..., Path]
ROWS, DETAILED = 40, 24
"""Asked for are 20 detailed ones: of a batch of eight that begins below, all are kept."""
OF_ALL = ("samples.csv", "percentiles.csv", "promise.csv", "decision.csv", "distribution.csv", "convergence.csv")
OF_THE_DETAILED = ("monthly_bands.csv", "sensitivity.csv")


@pytest.fixture
def every(study_file: Write) -> Prepared:
    return prepare(study_file())


@pytest.fixture
def few(study_file: Write) -> Prepared:
    return prepare(study_file(f"{SMALL}detailed_replications: 20\n", "few.yaml"))


def test_headlines_are_those_of_all_and_months_those_of_the_first(
    every: Prepared, few: Prepared, tmp_path: Path
) -> None:
    finished = finish(few, tmp_path / "few", ROWS)
    assert (finished.rows, finished.detailed) == (ROWS, DETAILED)
    finish(every, tmp_path / "every", ROWS)
    finish(every, tmp_path / "first", DETAILED)
    written, of_all, of_first = (bytes_of(tmp_path / name) for name in ("few", "every", "first"))
    assert {name: written[name] for name in OF_ALL} == {name: of_all[name] for name in OF_ALL}
    assert {name: written[name] for name in OF_THE_DETAILED} == {name: of_first[name] for name in OF_THE_DETAILED}
    assert written[SINGLE] == of_first[SINGLE]
    further, beyond = pq.read_table(tmp_path / "few" / FURTHER), pq.read_table(tmp_path / "every" / SINGLE)
    assert not [name for name in further.column_names if name.startswith("month:")]
    wanted = beyond.slice(DETAILED * 2).select(further.column_names)
    assert further.to_pandas().equals(wanted.to_pandas())  # where NaN is NaN
    assert FURTHER not in of_all
    assert json.loads(written[MANIFEST])["detailed"] == DETAILED
    assert "detailed" not in json.loads(of_all[MANIFEST])
    assert b"The median of the first 24 replications by month" in written["report.html"]
    assert b"Measured on the first 24 replications." in written["report.html"]
    assert b"The median of all replications by month" in of_all["report.html"]


def test_a_study_that_was_extended_over_the_border_by_others_has_the_same_bytes(few: Prepared, tmp_path: Path) -> None:
    finish(few, tmp_path / "at-once", ROWS)
    finish(few, tmp_path / "grown", 8)
    finish(few, tmp_path / "grown", 32, Workforce(workers=2), resume=True)
    finish(few, tmp_path / "grown", ROWS, resume=True)
    assert bytes_of(tmp_path / "grown") == bytes_of(tmp_path / "at-once")


def test_a_long_study_is_read_a_scenario_at_a_time_to_the_same_bytes(
    every: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(every, tmp_path / "held", ROWS)
    monkeypatch.setattr(analysis, "_AT_ONCE_BYTES", 1)
    assert not isinstance(finish(every, tmp_path / "read", ROWS).by_scenario("cost_usd"), np.ndarray)
    assert bytes_of(tmp_path / "read") == bytes_of(tmp_path / "held")


def test_damage_beyond_the_detailed_costs_those_beyond_alone(few: Prepared, tmp_path: Path) -> None:
    finish(few, tmp_path / "o", ROWS)
    before = bytes_of(tmp_path / "o")
    spoiled = bytearray(before[FURTHER])
    spoiled[100] ^= 1
    (tmp_path / "o" / FURTHER).write_bytes(bytes(spoiled))
    with pytest.raises(ScenarioError, match=r"replications_further\.parquet: has changed since planner wrote it"):
        study(tmp_path / "few.yaml", out=tmp_path / "o", method="importance")
    store = open_store(few, tmp_path / "o", resume=True)
    assert store.finished().tolist() == [0, 1, 2]
    assert store.notes == [f"{tmp_path / 'o' / FURTHER} is damaged; its replications are run again"]
    store.close()
    finish(few, tmp_path / "o", ROWS, resume=True)
    assert bytes_of(tmp_path / "o") == before


def test_how_many_are_detailed_is_part_of_the_study_and_told(few: Prepared, every: Prepared, tmp_path: Path) -> None:
    said: list[str] = []
    study(tmp_path / "few.yaml", ROWS, tmp_path / "o", workers=1, charts=False, progress=said.append)
    assert "fans by month and what drives the headline are of the first 24 replications" in said
    with pytest.raises(ScenarioError, match="detailed_replications changed"):
        open_store(every, tmp_path / "o", resume=True)


def test_fewer_detailed_replications_than_a_percentile_needs_are_refused(study_file: Write) -> None:
    with pytest.raises(ScenarioError, match=r"detailed_replications.*16"):
        prepare(study_file(f"{SMALL}detailed_replications: 3\n"))


def test_a_disk_without_the_room_is_warned_of_before_anything_is_run(
    few: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(few, tmp_path / "o", 2048)
    written = sum((tmp_path / "o" / name).stat().st_size for name in (SINGLE, FURTHER))
    setup = few.setup(few.montecarlo())
    assert written == pytest.approx(stored_bytes(setup, 2048), rel=0.15)
    store = open_store(few, tmp_path / "o", resume=True)
    room = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room._replace(free=2 * stored_bytes(setup, 4096) - 1))
    assert store.short_of_disk(4096) == []  # half of them are there
    (told,) = store.short_of_disk(8192)
    assert told.startswith(f"{tmp_path / 'o'} needs about 0.0 GB to be written and joined")
    store.close()
    said: list[str] = []
    study(tmp_path / "few.yaml", ROWS, tmp_path / "p", workers=1, charts=False, progress=said.append)
    assert not [line for line in said if "needs about" in line]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room._replace(free=1000))
    study(tmp_path / "few.yaml", ROWS, tmp_path / "q", workers=1, charts=False, progress=said.append)
    assert len([line for line in said if line.startswith("note: ") and "needs about" in line]) == 1


def test_homes_are_by_batch_in_order_whichever_file_came_first() -> None:
    homes = Homes()
    homes.put(np.array([4, 5, 7]), Path("b"))
    homes.put(np.array([], dtype=np.int64), Path("none"))
    homes.put(np.array([0, 6, 9]), Path("a"))
    homes.remove(9)
    runs = [(path.name, numbers.tolist()) for path, numbers in homes.runs()]
    assert runs == [("a", [0]), ("b", [4, 5]), ("a", [6]), ("b", [7])]
    assert [(path.name, numbers.tolist()) for path, numbers in homes.runs(5, 7)] == [("b", [5]), ("a", [6])]
    assert homes.numbers().tolist() == [0, 4, 5, 6, 7]
    homes.clear()
    assert list(homes.runs()) == []


def test_batches_that_were_lost_are_the_next() -> None:
    todo = Todo(((first, first + 8) for first in range(0, 32, 8)), 4)
    assert (len(todo), todo.next, todo.take(), todo.take()) == (4, (0, 8), (0, 8), (8, 16))
    todo.put_back([(0, 8), (8, 16)])
    assert len(todo) == 4
    assert list(todo) == [(0, 8), (8, 16), (16, 24), (24, 32)]
    assert not todo


@pytest.mark.parametrize("rows", [5, 60, 1000])
def test_statistics_taken_together_are_those_taken_one_by_one(rows: int) -> None:
    values = np.random.default_rng(rows).lognormal(size=rows)
    values[3] = np.nan
    before = values.copy()
    together = dict(spread_estimates(values, 4, upper=True))
    assert list(together) == ["mean", "sd", "p5", "p10", "p50", "p90", "p95", "cvar95"]
    alone = {f"p{share}": percentile_estimate(values, 4, share) for share in (5, 10, 50, 90, 95)}
    alone["mean"] = mean_estimate(values, 4)
    assert {name: repr(together[name]) for name in alone} == {name: repr(figure) for name, figure in alone.items()}
    assert np.array_equal(values, before, equal_nan=True)
