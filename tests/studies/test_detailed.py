"""Replications beyond the detailed ones keep their headlines and no months; what hangs on months says of how many."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from planner.api import study
from planner.errors import ScenarioError
from planner.files import MANIFEST
from planner.studies.analysis import open_store
from planner.studies.decision import mean_estimate, percentile_estimate, spread_estimates
from planner.studies.engines import Workforce
from planner.studies.prepare import Prepared, prepare
from planner.studies.store import FURTHER, SINGLE
from tests.conftest import WriteScenario, files_of
from tests.studies.conftest import SMALL
from tests.studies.test_runner import finish

ROWS = 28
DETAILED = 24
MORE = 40
"""Asked for are 20 detailed ones: of a batch of eight that begins below, all are kept."""
OF_ALL = (
    "samples.csv",
    "percentiles.csv",
    "slo_target.csv",
    "decision.csv",
    "distribution.csv",
)
OF_THE_DETAILED = ("monthly_bands.csv", "sensitivity.csv")


@pytest.fixture
def every(study_file: WriteScenario) -> Prepared:
    return prepare(study_file())


@pytest.fixture
def few(study_file: WriteScenario) -> Prepared:
    return prepare(study_file(f"{SMALL}detailed_replications: 20\n", "few.yaml"))


def test_headlines_are_those_of_all_and_months_those_of_the_first(
    every: Prepared, few: Prepared, tmp_path: Path
) -> None:
    said: list[str] = []
    asked = {"workers": 1, "progress": said.append}
    finished = study(tmp_path / "few.yaml", ROWS, tmp_path / "few", **asked).result  # type: ignore[arg-type]
    assert "monthly bands and sensitivities use the first 24 replications" in said
    with pytest.raises(ScenarioError, match="detailed_replications changed"):
        open_store(every, tmp_path / "few", resume=True)
    assert (finished.rows, finished.detailed) == (ROWS, DETAILED)
    finish(every, tmp_path / "every", DETAILED)
    of_first = files_of(tmp_path / "every")
    finish(every, tmp_path / "every", ROWS, resume=True)
    written, of_all = (files_of(tmp_path / name) for name in ("few", "every"))
    assert {name: written[name] for name in OF_ALL} == {name: of_all[name] for name in OF_ALL}
    assert {name: written[name] for name in OF_THE_DETAILED} == {
        name: of_first[name] for name in OF_THE_DETAILED
    }
    assert written[SINGLE] == of_first[SINGLE]
    further = pq.read_table(tmp_path / "few" / FURTHER)
    beyond = pq.read_table(tmp_path / "every" / SINGLE)
    assert not [name for name in further.column_names if name.startswith("month:")]
    wanted = beyond.slice(DETAILED * 2).select(further.column_names)
    assert further.to_pandas().equals(wanted.to_pandas())  # where NaN is NaN
    assert FURTHER not in of_all
    assert json.loads(written[MANIFEST])["detailed"] == DETAILED
    assert "detailed" not in json.loads(of_all[MANIFEST])
    assert b"The median of the first 24 replications by month" in written["report.html"]
    assert b"Measured on the first 24 replications." in written["report.html"]
    assert b"The median of all replications by month" in of_all["report.html"]


@pytest.mark.prove
def test_a_study_that_was_extended_over_the_border_by_others_has_the_same_bytes(
    few: Prepared, tmp_path: Path
) -> None:
    finish(few, tmp_path / "at-once", MORE)
    finish(few, tmp_path / "grown", 8)
    finish(few, tmp_path / "grown", 32, Workforce(workers=2), resume=True)
    finish(few, tmp_path / "grown", MORE, resume=True)
    assert files_of(tmp_path / "grown") == files_of(tmp_path / "at-once")


@pytest.mark.prove
def test_damage_beyond_the_detailed_costs_those_beyond_alone(few: Prepared, tmp_path: Path) -> None:
    finish(few, tmp_path / "o", ROWS)
    before = files_of(tmp_path / "o")
    spoiled = bytearray(before[FURTHER])
    spoiled[100] ^= 1
    (tmp_path / "o" / FURTHER).write_bytes(bytes(spoiled))
    store = open_store(few, tmp_path / "o", resume=True)
    assert store.finished().tolist() == [0, 1, 2]
    assert store.notes == [f"{tmp_path / 'o' / FURTHER} is damaged; its replications are run again"]
    store.close()
    finish(few, tmp_path / "o", ROWS, resume=True)
    assert files_of(tmp_path / "o") == before


def test_fewer_detailed_replications_than_a_percentile_needs_are_refused(
    study_file: WriteScenario,
) -> None:
    with pytest.raises(ScenarioError, match=r"detailed_replications.*16"):
        prepare(study_file(f"{SMALL}detailed_replications: 3\n"))


@pytest.mark.parametrize("rows", [5, 60, 1000])
def test_statistics_taken_together_are_those_taken_one_by_one(rows: int) -> None:
    values = np.random.default_rng(rows).lognormal(size=rows)
    values[3] = np.nan
    before = values.copy()
    together = dict(spread_estimates(values, 4, upper=True))
    assert list(together) == ["mean", "sd", "p5", "p10", "p50", "p90", "p95", "cvar95"]
    alone = {f"p{share}": percentile_estimate(values, 4, share) for share in (5, 10, 50, 90, 95)}
    alone["mean"] = mean_estimate(values, 4)
    assert {name: repr(together[name]) for name in alone} == {
        name: repr(figure) for name, figure in alone.items()
    }
    assert np.array_equal(values, before, equal_nan=True)
