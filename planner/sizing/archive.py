"""What a sizing has run: surveys and outcomes, each worked out once, kept on disk until the answer is written."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from planner import files
from planner.arrays import Floats
from planner.scenario.scenario import Scenario
from planner.sizing.evaluate import Clock, Evaluator, Run, SizingOutcome, Trial, Workers
from planner.sizing.policy import OrderRule, Policy
from planner.sizing.survey import Survey, survey
from planner.studies.work import LinesWork, inputs_identity, scenario_identity

Figures = TypeVar("Figures", Survey, SizingOutcome)
_FEWEST_TIMED = 4
"""Runs from which on their time says how long others take."""


class SizeWork(LinesWork):
    """The folder of a sizing: one line per finished survey or run, until the result is written."""

    def __init__(self, folder: Path, scenario: Scenario, trial: Trial) -> None:
        """Set the folder; nothing is read or written yet."""
        who = {
            **scenario_identity({scenario.name: scenario}),
            "inputs": inputs_identity(trial.inputs, trial.design),
            "parts": list(trial.choices.accelerators),
            "objective": trial.objective,
            "seed": trial.seed,
        }
        super().__init__(folder, "sizing", who)

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, read what was run, and note why a sizing that is to go on begins anew."""
        manifest = files.read_json(self.folder / files.MANIFEST)
        super().open(resume=resume, restart=restart)
        if resume and not self.lines:
            is_finished = manifest.get("kind") == "size"
            why = "its sizing is finished" if is_finished else "it holds nothing of a sizing"
            self.notes.append(f"{self.folder} has nothing to resume: {why}, so it starts again")

    def stored(self, kind: type[Figures]) -> dict[Run, Figures]:
        """Return the surveys or the outcomes stored by an interrupted sizing."""
        done: dict[Run, Figures] = {}
        for name, policy, replication, line in self.lines:
            if name == kind.__name__:
                figures = {field: _figure(part) for field, part in line.items()}
                done[_policy(policy), replication] = kind(**figures)
        return done

    def add(self, run: Run, figures: Survey | SizingOutcome) -> None:
        """Store what one run gave."""
        plain = {name: _plain(part) for name, part in dataclasses.asdict(figures).items()}
        policy, replication = run
        self.write([type(figures).__name__, dataclasses.asdict(policy), replication, plain])


def _plain(figure: float | Floats) -> Any:
    """Return a number or an array as a line has it: an array without entries has a shape too."""
    if isinstance(figure, np.ndarray):
        return {"shape": figure.shape, "values": figure.ravel().tolist()}
    return figure


def _figure(plain: Any) -> Any:
    """Return a number or an array from a line."""
    if isinstance(plain, dict):
        return np.array(plain["values"], dtype=np.float64).reshape(plain["shape"])
    return plain


def _policy(line: dict[str, Any]) -> Policy:
    """Return a policy as a line of the folder has it."""
    rules = [None if rule is None else OrderRule(**rule) for rule in line["rules"]]
    return Policy(
        purchases=tuple(line["purchases"]),
        rules=tuple(rules),
        rented_instances=line["rented_instances"],
        retirements=tuple(line["retirements"]),
    )


class Archive:
    """All surveys and outcomes so far, by candidate and replication; each is run only once.

    What a sizing that was stopped has kept counts as known, and as run, only once it is asked for: so one that goes on
    takes the turns that an undisturbed one takes, and tells the same.
    """

    def __init__(self, workers: Workers, clock: Clock, work: SizeWork | None = None) -> None:
        """Take the workers for missing runs, the time limit, and the folder that stores them."""
        self.clock = clock
        self.workers = workers
        self.work = work
        self.known: dict[Run, SizingOutcome] = {}
        self._kept = {} if work is None else work.stored(SizingOutcome)
        self._kept_surveys = {} if work is None else work.stored(Survey)
        self._timed_runs = 0
        self._timed_s = 0.0

    def outcomes(self, runs: Sequence[Run]) -> list[SizingOutcome]:
        """Return the outcomes of candidates in replications, running the missing ones."""
        wanted = [run for run in dict.fromkeys(runs) if run not in self.known]
        self._run(Evaluator.outcome, wanted, self._kept)
        self.known.update((run, self._kept.pop(run)) for run in wanted)
        return [self.known[run] for run in runs]

    def surveys(self, policy: Policy, replications: int) -> list[Survey]:
        """Return the surveys of the first replications with the purchases of a policy, making the missing ones."""
        wanted = [(policy, replication) for replication in range(replications)]
        self._run(survey, wanted, self._kept_surveys)
        return [self._kept_surveys.pop(run) for run in wanted]

    def _run(
        self,
        function: Callable[[Evaluator, Policy, int], Figures],
        wanted: Sequence[Run],
        kept: dict[Run, Figures],
    ) -> None:
        """Add to what is kept the runs that are missing.

        A stop is noticed between two of them, so that it ends within seconds; what is done is kept.
        """
        missing = [run for run in wanted if run not in kept]
        self.workers.runs += len(wanted) - len(missing)
        results: Iterator[Figures] = self.workers.all(function, missing)
        began_s = time.monotonic()
        for run, figures in zip(missing, results, strict=True):
            kept[run] = figures
            if self.work is not None:
                self.work.add(run, figures)
            self._timed_runs += 1
            self._timed_s += time.monotonic() - began_s
            self.clock.check()
            began_s = time.monotonic()

    def duration_words(self, runs: int) -> str:
        """Say how long so many runs take at most, by those so far; nothing before any were timed."""
        if self._timed_runs < _FEWEST_TIMED:
            return ""
        seconds = runs * self._timed_s / self._timed_runs
        words = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60.0:.0f} min"
        return f", at most {words}"
