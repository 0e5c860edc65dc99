"""Monte Carlo from Python: one call from a study file to a finished study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.studies.analysis import Finished
from planner.studies.designs import Design, MonteCarlo, Morris, OneAtATime, Saltelli
from planner.studies.identity import identity
from planner.studies.prepare import Prepared, prepare
from planner.studies.runner import Goal, Until, Workforce, batch_size, run_rows
from planner.studies.store import Store


def store_of(prepared: Prepared, folder: Path, design: Design) -> Store:
    """Return the store of a study's design, not opened yet."""
    setup = prepared.setup(design)
    return Store(folder, setup, identity(prepared.study, setup, batch_size(len(setup.scenarios))))


def open_store(
    prepared: Prepared, folder: Path, design: Design | None = None, *, resume: bool = False, restart: bool = False
) -> Store:
    """Return the store of a study, Monte Carlo unless another design is given, ready to be run."""
    store = store_of(prepared, folder, design or prepared.montecarlo())
    store.open(resume=resume, restart=restart)
    return store


def goal_of(
    prepared: Prepared, design: MonteCarlo | OneAtATime | Morris | Saltelli, size: int, until: Until | None = None
) -> Goal:
    """Return how far a design is to run: ``size`` replications of Monte Carlo, or rounds of another design."""
    headline = prepared.headline.name
    if isinstance(design, MonteCarlo):
        return Goal(
            rows=size,
            headline=headline,
            scramblings=prepared.study.scramblings,
            until=until,
            promised=prepared.promised,
            lower_is_better=prepared.headline.lower_is_better,
        )
    return Goal(rows=size * design.period, headline=headline)


def study_manifest(prepared: Prepared, store: Store, rows: int) -> dict[str, Any]:
    """Return what identifies a finished study; where only some replications have their months, how many do."""
    detailed = store.joined.detailed
    said = {"detailed": detailed} if isinstance(store.setup.design, MonteCarlo) and detailed < rows else {}
    return {
        "kind": "study",
        "name": prepared.study.name,
        "headline": prepared.headline.name,
        "replications": rows,
        **said,
        "identity": store.identity,
    }


def run_study(
    path: str | os.PathLike[str],
    replications: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    force: Workforce | None = None,
) -> Finished:
    """Run a study and return it finished; its replications are stored in ``folder``, ``outputs/<name>`` unless given.

    An interrupted or shorter study of the same version in the folder is continued.
    """
    prepared = prepare(Path(path), overrides)
    store = open_store(prepared, Path(folder) if folder else Path("outputs") / prepared.study.name, resume=True)
    try:
        rows = run_rows(
            store,
            goal_of(prepared, prepared.montecarlo(), replications or prepared.usual_replications),
            force or Workforce(),
        )
        store.commit(study_manifest(prepared, store, rows))
    finally:
        store.close()
    return Finished(prepared=prepared, store=store, rows=rows)
