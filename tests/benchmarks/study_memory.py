"""Studies of made-up replications through the real way from worker to report.

Only the workers' part is made up, a few rows drawn once and shifted a little for each batch: storing, joining,
statistics and tables are the study's own.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from planner.answers.study import write_study
from planner.studies import runner
from planner.studies.analysis import Finished
from planner.studies.engines import Workforce
from planner.studies.prepare import prepare
from planner.studies.replicate import HEADLINES, Rows, Setup
from planner.studies.store import Store, identity

STUDY = Path(__file__).parents[2] / "tests" / "benchmarks" / "november" / "mixed-fleet-study.yaml"


def made_up(setup: Setup, batches: Iterable[tuple[int, int]]) -> Iterator[Rows]:
    """Yield batches of the shape that workers send."""
    ahead = iter(batches)
    if (begin := next(ahead, None)) is None:
        return
    generator = np.random.default_rng(1)
    rows = begin[1] - begin[0]
    shape = (rows, len(setup.scenarios))
    base = Rows(
        start=0,
        replications=np.arange(rows),
        inputs=setup.inputs.drawn(generator.random((rows, len(setup.inputs)))),
        headlines=generator.lognormal(size=(*shape, len(HEADLINES))),
        monthly=generator.lognormal(size=(*shape, len(setup.monthly), setup.months)),
        errors=(),
    )
    for start, stop in itertools.chain([begin], ahead):
        factor = generator.lognormal(sigma=0.2)
        yield dataclasses.replace(
            base,
            start=start,
            replications=np.arange(start, stop),
            inputs=base.inputs * factor,
            headlines=base.headlines * factor,
            monthly=base.monthly * factor if setup.is_detailed(start) else base.monthly[:, :, :0],
        )


class MadeUp:
    """Workers who make rows up."""

    def __init__(self, setup: Setup, *_: object) -> None:
        self.setup = setup

    def unordered(
        self, _: object, pieces: Iterable[tuple[Any, ...]], __: str
    ) -> Iterator[tuple[int, Rows]]:
        return enumerate(made_up(self.setup, [(first, last) for first, last, *_ in pieces]))

    def close(self) -> None:
        """End nothing."""


def collect(rows: int, folder: Path, batch: int | None = None, *, study: Path = STUDY) -> Finished:
    """Run, store and write a study of made-up replications; ``batch`` is the study's own unless given."""
    prepared = prepare(study)
    setup = prepared.setup(prepared.montecarlo())
    store = Store(
        folder,
        setup,
        identity(prepared.study, setup, batch or runner.batch_size(len(setup.scenarios))),
    )
    store.open(resume=False, restart=False)
    goal = runner.Goal(
        rows=rows, objective=prepared.objective.name, scramblings=prepared.study.scramblings
    )
    with mock.patch.object(runner, "replicators", MadeUp):
        done = runner.run_rows(store, goal, Workforce())
    finished = Finished(prepared=prepared, store=store, rows=done)
    write_study(finished)
    return finished
