"""A study begun anew over a finished one, stopped dead before each of its steps in turn."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.reporting.study_folder import write_study
from planner.studies.analysis import Finished
from planner.studies.prepare import Prepared, prepare
from planner.studies.runner import Goal, Workforce, run_rows
from planner.studies.store import MANIFEST, Store
from planner.studies.study import open_store
from tests.hardening.test_stopped import faults_of

ROWS = 8
STEPS = ("unlink", "replace", "rmdir", "mkdir")


class Killed(BaseException):
    """The process is gone: nothing in it goes on, no exception handler either."""


def opened_and_killed(prepared: Prepared, folder: Path, after: int, patch: pytest.MonkeyPatch) -> bool:
    """Begin a study anew, dead from the step of that number on; return whether it came so far."""
    return killed(lambda: open_store(prepared, folder, restart=True), after, patch)


def killed(work: Callable[[], object], after: int, patch: pytest.MonkeyPatch) -> bool:
    """Do some work, dead from the step of that number on; return whether it came so far."""
    taken = 0
    with patch.context() as patched:
        for name in STEPS:
            real = getattr(os, name)

            def step(*arguments: Any, _real: Any = real, **options: Any) -> Any:
                nonlocal taken
                taken += 1
                if taken > after:
                    raise Killed
                return _real(*arguments, **options)

            patched.setattr(os, name, step)
        try:
            work()
        except Killed:
            return True
    return False


def done(prepared: Prepared, store: Store, rows: int = ROWS) -> None:
    goal = Goal(rows=rows, headline=prepared.headline.name, scramblings=prepared.study.scramblings)
    count = run_rows(store, goal, Workforce(workers=1))
    write_study(Finished(prepared=prepared, store=store, rows=count), charts=True)


def test_killed_before_any_step_it_looks_unfinished_and_can_be_begun_again(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    done(prepared, open_store(prepared, tmp_path / "finished"))
    listed = {path.relative_to(tmp_path / "finished") for path in (tmp_path / "finished").rglob("*")}
    after = 0
    while True:
        shutil.rmtree(tmp_path / "o", ignore_errors=True)
        shutil.copytree(tmp_path / "finished", tmp_path / "o")
        if not opened_and_killed(prepared, tmp_path / "o", after, monkeypatch):
            break
        assert not (tmp_path / "o" / MANIFEST).exists() or faults_of(tmp_path / "o") == []
        store = open_store(prepared, tmp_path / "o", restart=True)
        assert {path.name for path in store.folder.iterdir()} == {"study.json", "shards"}  # nothing is left behind
        after += 1
    assert after > len(listed) / 2
    store = open_store(prepared, tmp_path / "o", resume=True)
    done(prepared, store)
    assert faults_of(tmp_path / "o") == []
    assert {path.relative_to(tmp_path / "o") for path in (tmp_path / "o").rglob("*")} == listed


def test_a_study_that_was_being_cleared_resumes_with_what_is_left(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    done(prepared, open_store(prepared, tmp_path / "o"))
    assert opened_and_killed(prepared, tmp_path / "o", 3, monkeypatch)
    store = open_store(prepared, tmp_path / "o", resume=True)
    assert not any(path.name.startswith(".") for path in store.folder.iterdir())
    done(prepared, store)
    assert faults_of(tmp_path / "o") == []


def test_a_new_folder_killed_before_any_step_is_in_nobodys_way(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    after = 0
    while opened_and_killed(prepared, tmp_path / f"o{after}", after, monkeypatch):
        open_store(prepared, tmp_path / f"o{after}")
        after += 1
    assert after >= 3


def test_a_study_killed_while_it_grows_does_not_look_finished(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(study)
    done(prepared, open_store(prepared, tmp_path / "finished"))
    for after in range(0, 40, 3):
        folder = tmp_path / f"o{after}"
        shutil.copytree(tmp_path / "finished", folder)

        def grow(folder: Path = folder) -> None:
            done(prepared, open_store(prepared, folder, resume=True), 2 * ROWS)

        killed(grow, after, monkeypatch)
        assert faults_of(folder) == []
    done(prepared, open_store(prepared, folder, resume=True), 2 * ROWS)
    assert faults_of(folder) == []
    assert not any(path.name.startswith(".") for path in folder.iterdir())
