"""A study begun anew over a finished one, or grown, killed at each of its file operations in turn."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from planner.files import MANIFEST
from planner.studies import runner
from planner.studies.analysis import Finished, open_store, study_manifest
from planner.studies.engines import Workforce
from planner.studies.prepare import Prepared, prepare
from planner.studies.runner import Goal, Watch, run_rows
from planner.studies.store import SINGLE
from tests.benchmarks.study_memory import MadeUp
from tests.hardening.killing import faults_of, killed_at

ROWS = 8


def done(
    prepared: Prepared,
    folder: Path,
    rows: int = ROWS,
    *,
    resume: bool = True,
    made: bool = True,
    watch: Watch | None = None,
) -> Finished:
    """Store and finish a study, of made-up rows unless real ones are asked for: what is looked at is the store."""
    store = open_store(prepared, folder, resume=resume, restart=not resume)
    goal = Goal(
        rows=rows, objective=prepared.objective.name, scramblings=prepared.study.scramblings
    )
    try:
        with pytest.MonkeyPatch.context() as patched:
            if made:
                patched.setattr(runner, "replicators", MadeUp)
            count = run_rows(store, goal, Workforce(workers=1), watch)
        store.commit(study_manifest(prepared, store, count))
    finally:
        store.close()
    return Finished(prepared=prepared, store=store, rows=count)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize(("exchange", "resume"), [(True, True), (True, False), (False, True)])
def test_killed_at_any_operation_the_earlier_study_or_the_new_one_is_there(
    study: Path, tmp_path: Path, exchange: bool, resume: bool, stride: int
) -> None:
    prepared = prepare(study)
    done(prepared, tmp_path / "finished")
    place = tmp_path / "place"
    after = 2 * resume + exchange
    while True:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(tmp_path / "finished", place / "o")
        if not killed_at(
            lambda: done(prepared, place / "o", 2 * ROWS, resume=resume), after, exchange=exchange
        ):
            break
        assert faults_of(place / "o") == []
        if exchange:
            assert (place / "o" / MANIFEST).exists()  # never out of sight
        done(prepared, place / "o", 2 * ROWS, resume=True)
        assert faults_of(place / "o") == []
        assert {path.name for path in (place / "o").iterdir()} == {MANIFEST, SINGLE}
        assert [path.name for path in place.iterdir()] == ["o"]  # nothing is left behind
        after += stride
    assert after > 15


def test_a_new_folder_killed_at_any_operation_is_in_nobodys_way(
    study: Path, tmp_path: Path
) -> None:
    prepared = prepare(study)
    after = 0
    while killed_at(lambda: open_store(prepared, tmp_path / f"o{after}"), after):  # noqa: B023 - called at once
        open_store(prepared, tmp_path / f"o{after}").close()
        assert not list(tmp_path.glob("o*"))  # a study of nothing leaves nothing
        after += 1
    assert after >= 3


def test_a_file_laid_into_the_folder_while_it_works_is_not_swept_away(
    study: Path, tmp_path: Path
) -> None:
    prepared = prepare(study)
    store = open_store(prepared, tmp_path / "o")
    (tmp_path / "o" / "notes.txt").write_text("mine")
    goal = Goal(rows=ROWS, objective=prepared.objective.name)
    with mock.patch.object(runner, "replicators", MadeUp):
        run_rows(store, goal, Workforce())
    with pytest.raises(Exception, match=r"holds 'notes\.txt', which planner did not write"):
        store.commit({})
    store.close()
    assert (tmp_path / "o" / "notes.txt").read_text() == "mine"
    (tmp_path / "o" / "notes.txt").rename(tmp_path / "notes.txt")
    done(prepared, tmp_path / "o")
    assert faults_of(tmp_path / "o") == []
