"""Running a design to its end: what is missing is run, stored as it comes, and the study may stop early."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import ScenarioError
from planner.studies.engines import LOCAL_DASK, run_batches
from planner.studies.headlines import headline_names
from planner.studies.intervals import Estimate, half_width
from planner.studies.store import Store

Floats = NDArray[np.float64]
EVALUATIONS_PER_BATCH = 16
"""Runs in one batch: about half a second, so that sending and storing cost little."""
_FEWEST_PER_SCRAMBLING = 32
_CHECK_EVERY = 16
"""Rows per randomisation between two looks at the interval; looks are at fixed places, whoever finishes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """Who runs a study."""

    workers: int = 1
    scheduler: str | None = None


def workforce(workers: int | None, scheduler: str | None) -> Workforce:
    """Return who runs a study: one process per core unless told otherwise."""
    if scheduler is not None and scheduler != LOCAL_DASK and "://" not in scheduler:
        raise ScenarioError(f"--scheduler must be an address such as tcp://10.0.0.5:8786, or local-dask: {scheduler!r}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Workforce(workers=workers or cores, scheduler=scheduler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How far a study is to run."""

    rows: int
    headline: str
    scramblings: int = 1
    until: float | None = None
    """Share of the headline's mean to which its interval is to shrink; None: run all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a study is."""

    done: int
    total: int
    interval: Estimate | None
    """Mean of the headline of the first scenario over the rows finished without a gap."""


Watch = Callable[[Progress], None]


def batch_size(scenarios: int) -> int:
    """Return the rows of one batch."""
    return max(1, EVALUATIONS_PER_BATCH // scenarios)


class _Prefix:
    """The headline of the first scenario, row by row, and how far it is known without a gap."""

    def __init__(self, rows: int, batch: int) -> None:
        self.values = np.full(-(-rows // batch) * batch, np.nan)
        self.known = np.zeros(len(self.values) // batch, dtype=bool)
        """By batch."""
        self.batch, self.end = batch, 0

    def add(self, first: int, values: Floats) -> None:
        """Take in a batch."""
        self.values[first : first + self.batch] = values
        self.known[first // self.batch] = True
        while self.end < len(self.values) and self.known[self.end // self.batch]:  # each batch is passed once
            self.end += self.batch


def run_rows(store: Store, goal: Goal, force: Workforce, watch: Watch | None = None) -> int:
    """Run what is missing of a design's first rows and consolidate; return how many rows the study has.

    With ``until``, the study ends at the first look where the interval of the headline's mean is narrower than that
    share of it: a look is every sixteen rows of each randomisation, so the end does not depend on who ran what.
    """
    store.check_extends(goal.rows)
    place = headline_names().index(goal.headline)
    finished = set(store.finished())
    missing = [batch for batch in store.batches(goal.rows) if batch not in finished]
    prefix = _Prefix(goal.rows, store.batch)
    _read_back(store, prefix, goal, sorted(first for first, _ in finished))
    looks = _Looks(prefix, goal)
    end = looks.end()
    done = len(prefix.values) - len(missing) * store.batch
    results = run_batches(store.setup, missing, force.workers, force.scheduler)
    try:
        while end is None and (part := next(results, None)) is not None:
            store.write(part)
            prefix.add(part.first, part.headlines[:, 0, place])
            done += store.batch
            end = looks.end()
            if watch is not None:
                watch(Progress(done=min(done, goal.rows), total=goal.rows, interval=looks.interval))
    finally:
        results.close()  # ends the workers
        store.flush()
    rows = goal.rows if end is None else end
    store.consolidate(rows)
    return rows


def _read_back(store: Store, prefix: _Prefix, goal: Goal, starts: list[int]) -> None:
    """Take in the headline of rows that were stored before."""
    if not starts:
        return
    stored = store.column(f"out:{goal.headline}")[:, 0]
    for position, first in enumerate(starts):
        if first < goal.rows:
            prefix.add(first, stored[position * store.batch : (position + 1) * store.batch])


class _Looks:
    """Looks at the interval, at fixed numbers of rows."""

    def __init__(self, prefix: _Prefix, goal: Goal) -> None:
        self.prefix, self.until, self.scramblings = prefix, goal.until, goal.scramblings
        self.looked = 0
        self.sums = np.zeros(goal.scramblings)
        self.counts = np.zeros(goal.scramblings)
        self.interval: Estimate | None = None

    def end(self) -> int | None:
        """Return the number of rows at which the study may end, or None."""
        step = self.scramblings * _CHECK_EVERY
        while self.looked + step <= self.prefix.end:
            rows = self.prefix.values[self.looked : self.looked + step].reshape(-1, self.scramblings)
            # Running sums: a look costs the same however far the study is.
            self.sums += np.where(np.isfinite(rows), rows, 0.0).sum(axis=0)
            self.counts += np.isfinite(rows).sum(axis=0)
            self.looked += step
            self.interval = self._estimate()
            enough = self.looked >= _FEWEST_PER_SCRAMBLING * self.scramblings
            if self.until is not None and enough and self.interval.relative <= self.until:
                return self.looked
        return None

    def _estimate(self) -> Estimate:
        """Return the mean of all rows so far, with the interval from the means of the randomisations."""
        known = self.counts > 0
        if not known.any():
            return Estimate(value=float("nan"), half_width=float("nan"))
        mean = float(self.sums.sum() / self.counts.sum())
        return Estimate(value=mean, half_width=half_width(self.sums[known] / self.counts[known]))
