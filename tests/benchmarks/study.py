"""How fast studies run: plain rows, rows that draw money alone again, and both on Dask against processes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from planner.studies.engines import LOCAL_DASK, Workforce, replicators
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import Replicator, Rows, Setup, objective_names
from planner.studies.runner import batch_size, draws_for, money_share
from tests.benchmarks.lines import figure

STUDY = Path(__file__).parent / "november" / "mixed-fleet-study.yaml"
TARGET_ROWS = 10_000
TARGET_S = 130.0
WORKERS = 2
ROWS = (100, 1_000, 10_000, 100_000, 1_000_000)
OBJECTIVES = ("tco_usd", "cost_per_million_tokens_usd")
"""The first is money's for the most part; the second, the study's own, is demand's."""
_WARM = WORKERS
_SPARE = WORKERS
"""Pieces of work before the clocks are first read, and after they are read last: workers are then all at work."""


def reference_study() -> Prepared:
    """The frozen study with its first scenario alone: the reference scenario under all uncertain inputs."""
    study = prepare(STUDY)
    entries = tuple(
        dataclasses.replace(entry, targets=entry.targets[:1]) for entry in study.inputs.entries
    )
    inputs = dataclasses.replace(study.inputs, entries=entries)
    return dataclasses.replace(study, scenarios=study.scenarios[:1], inputs=inputs)


def pace(
    setup: Setup, pieces: Sequence[tuple[int, int]], scheduler: str | None
) -> tuple[float, float, list[Rows]]:
    """Run pieces of a study as the study does; return the wait for the first, seconds of a row after it, and all rows.

    The second is processor time in all processes together: unlike a wait, it hardly sees what else the machine does.
    """
    begun = time.perf_counter()
    done = list[Rows]()
    clocks = list[dict[int, float]]()
    first_s = 0.0
    with contextlib.closing(replicators(setup, len(pieces), Workforce(WORKERS, scheduler))) as crew:
        for _, rows in crew.unordered(Replicator.run, pieces):
            first_s = first_s or time.perf_counter() - begun
            done.append(rows)
            if len(done) in (_WARM, len(pieces) - _SPARE):
                clocks.append(_cpu_s())
    before, after = clocks
    timed = sum(len(rows.replications) for rows in done[_WARM : len(pieces) - _SPARE])
    return (
        first_s,
        sum(after[process] - before.get(process, 0.0) for process in after) / timed,
        done,
    )


def _cpu_s() -> dict[int, float]:
    """Return the processor time of this process and all below it."""
    this = psutil.Process()
    spent = {}
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent[process.pid] = times.user + times.system
    return spent


class Study(NamedTuple):
    """What a study of any length takes: a pilot of plain rows, and the others, plain or with money drawn again."""

    pilot: int
    start_s: float
    """Waited from the order to start two workers to their first row."""
    plain_s: float
    """Processor time of a row that is simulated."""
    nested_s: float
    """Of a row that shares its simulation with others."""

    def seconds(self, rows: int, *, is_nested: bool) -> float:
        """Return the wait on two cores that do nothing else."""
        early = min(rows, self.pilot)
        late = max(rows - self.pilot, 0)
        work_s = early * self.plain_s + late * (self.nested_s if is_nested else self.plain_s)
        return self.start_s + work_s / WORKERS


def study_lines(noise_ms: float) -> Iterator[str]:
    """Measure plain rows and nested ones, on processes and on Dask, and yield each figure, then the table of rows."""
    prepared = reference_study()
    setup = prepared.setup(prepared.montecarlo())
    size = batch_size(1)
    pilot = prepared.montecarlo().pilot
    pieces = [
        *pairwise([0, 1, 2, *range(size, pilot + size, size)])
    ]  # each worker begins with a single row
    start_s, plain_s, done = pace(setup, pieces, None)
    rows = sorted(done, key=lambda part: part.start)
    inputs, headlines = (
        np.concatenate(parts)
        for parts in zip(*((r.inputs, r.headlines) for r in rows), strict=True)
    )
    money = Replicator(setup).redrawn()
    places = [objective_names().index(name) for name in OBJECTIVES]
    shares = [money_share(inputs[:, [*money]], headlines[:, :, place]) for place in places]
    draws = [draws_for(share) for share in shares]
    yield figure("a row that is simulated, ms", plain_s * 1e3)
    yield figure("the same, in noise draws", plain_s * 1e3 / noise_ms)
    step = math.lcm(prepared.study.scramblings * draws[0], size)
    further = [*pairwise(range(pilot, pilot + 9 * step, step))]
    carrying = setup.nested(money, draws[0])
    _, again_s, _ = pace(carrying, further, None)
    for name, share, count in zip(OBJECTIVES, shares, draws, strict=True):
        yield figure(f"{name}: money's share of variance", share)
        yield figure(f"{name}: draws a simulation", count)
    most_ms = TARGET_S * WORKERS / TARGET_ROWS * 1e3
    yield figure(f"a row of {draws[0]} draws a simulation, ms", again_s * 1e3, at_most=most_ms)
    yield figure("simulated row / such a row", plain_s / again_s)
    processes = Study(pilot, start_s, plain_s, again_s)
    for name, count in zip(OBJECTIVES, draws, strict=True):
        wait_s = processes.seconds(TARGET_ROWS, is_nested=count > 1)
        yield figure(f"10,000 rows, {name}, s", wait_s, at_most=TARGET_S)
    dask_start_s, dask_plain_s, _ = pace(setup, pieces, LOCAL_DASK)
    on_dask = Study(pilot, dask_start_s, dask_plain_s, pace(carrying, further, LOCAL_DASK)[1])
    yield figure("start of two processes, waited, s", start_s)
    yield figure("start of Dask with two, waited, s", dask_start_s)
    yield figure("Dask / processes, a row that is simulated", dask_plain_s / plain_s, at_most=1.1)
    yield figure(
        "Dask / processes, a row of several draws", on_dask.nested_s / again_s, at_most=1.1
    )
    yield ""
    yield from row_lines(processes, on_dask)


def row_lines(processes: Study, dask: Study) -> list[str]:
    """Return the table of rows: seconds on two cores that do nothing else, from starts and paces; a pilot was run."""
    lines = [
        f"{'rows':<12}{'simulated':>12}{'on Dask':>10}{'several draws':>16}{'on Dask':>10}   s"
    ]
    for rows in ROWS:
        waits = [
            one.seconds(rows, is_nested=many) for many in (False, True) for one in (processes, dask)
        ]
        cells = "".join(
            f"{wait:>{width},.0f}" for wait, width in zip(waits, (12, 10, 16, 10), strict=True)
        )
        lines.append(f"{rows:<12,}{cells}{'' if rows <= processes.pilot else '   extrapolated'}")
    return lines
