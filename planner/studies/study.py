"""Monte Carlo from Python: one call from a study file to a finished study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.studies.analysis import Finished
from planner.studies.identity import identity
from planner.studies.prepare import Prepared, prepare
from planner.studies.runner import Goal, Workforce, batch_size, run_rows
from planner.studies.store import Store


def open_store(prepared: Prepared, folder: Path, *, resume: bool = False, restart: bool = False) -> Store:
    """Return the store of a Monte Carlo study, ready to be run."""
    setup = prepared.setup(prepared.montecarlo())
    store = Store(folder, setup, identity(prepared.study, setup, batch_size(len(setup.scenarios))))
    store.open(resume=resume, restart=restart)
    return store


def study_manifest(prepared: Prepared, store: Store, rows: int) -> dict[str, Any]:
    """Return what identifies a finished study."""
    return {
        "kind": "study",
        "name": prepared.study.name,
        "headline": prepared.headline.name,
        "replications": rows,
        "identity": store.identity,
    }


def run_study(
    path: str | os.PathLike[str],
    replications: int = 1000,
    folder: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    force: Workforce | None = None,
) -> Finished:
    """Run a study and return it finished; its replications are stored in ``folder``, ``outputs/<name>`` unless given.

    An interrupted or shorter study of the same version in the folder is continued.
    """
    prepared = prepare(Path(path), overrides)
    store = open_store(prepared, Path(folder) if folder else Path("outputs") / prepared.study.name, resume=True)
    goal = Goal(rows=replications, headline=prepared.headline.name, scramblings=prepared.study.scramblings)
    try:
        rows = run_rows(store, goal, force or Workforce())
        store.commit(study_manifest(prepared, store, rows))
    finally:
        store.close()
    return Finished(prepared=prepared, store=store, rows=rows)
