"""How fast studies run: replications a second, efficiency of two workers, Dask against processes, time in storing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from planner.studies.analysis import open_store
from planner.studies.engines import LOCAL_DASK, run_batches
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import Replicator, Rows
from planner.studies.runner import batch_size

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "tests" / "benchmarks" / "november" / "mixed-fleet-study.yaml"
TARGET_ROWS = 10_000
REPLANNED = """\
name: replanned
scenarios: {{mixed: {{extends: {scenario}}}}}
uncertain:
  workloads.*.slo.ttft_s: {{kind: uniform, low: 0.8, high: 1.2, times_stated: true}}
"""


def reference_study() -> Prepared:
    """The shipped study with its first scenario alone: the reference scenario under 17 uncertain inputs."""
    whole = prepare(STUDY)
    each = tuple(
        type(found)(
            name=found.name,
            distribution=found.distribution,
            times_stated=found.times_stated,
            targets=found.targets[:1],
            throughput_of=found.throughput_of,
        )
        for found in whole.inputs.entries
    )
    inputs = type(whole.inputs)(entries=each, mixing=whole.inputs.mixing)
    return Prepared(study=whole.study, scenarios=whole.scenarios[:1], inputs=inputs, seed=whole.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast workers are, once they have started and filled their memories."""

    start_s: float
    """From the order to start workers to their first batch, less that batch's own share of the pace."""
    wall_s: float
    """Of one replication."""
    cpu_s: float
    """Of one replication, in all processes together: unlike the wall, it does not see what else the machine does."""

    def study_s(self, rows: int) -> float:
        """Return the wall of a study from the start of its workers to its last batch."""
        return self.start_s + rows * self.wall_s


def pace(prepared: Prepared, workers: int, scheduler: str | None, batches: int) -> Pace:
    """Run batches of the study's own size; look at the clocks when workers are warm and when they are nearly done."""
    setup, size = prepared.setup(prepared.montecarlo()), batch_size(1)
    warm, spare = 8 * workers, workers
    work = run_batches(setup, [(n * size, (n + 1) * size) for n in range(warm + batches + spare)], workers, scheduler)
    start = time.perf_counter()
    walls, clocks = [], {}
    for number, _ in enumerate(work):
        walls.append(time.perf_counter())
        if number in (warm - 1, warm + batches - 1):  # before the spare batches end: workers are still there
            clocks[number] = _cpu_s()
    rows = batches * size
    wall_s = (walls[warm + batches - 1] - walls[warm - 1]) / rows
    before, after = clocks[warm - 1], clocks[warm + batches - 1]
    cpu_s = sum(after[process] - before.get(process, 0.0) for process in after) / rows
    return Pace(start_s=max(walls[0] - start - size * workers * wall_s, 0.0), wall_s=wall_s, cpu_s=cpu_s)


def _cpu_s() -> dict[int, float]:
    """Return the processor time of this process and all below it."""
    own = psutil.Process()
    found = {}
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def replanned_s(rows: int = 16) -> float:
    """Return processor seconds of a replication whose service objectives are drawn, so that it is planned anew."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        path.write_text(REPLANNED.format(scenario=ROOT / "tests" / "benchmarks" / "november" / "mixed-fleet.yaml"))
        return cpu_s_of(prepare(path), rows)


def cpu_s_of(prepared: Prepared, rows: int = 16) -> float:
    """Return processor seconds of a replication in this process, once it is warm."""
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    replicator.run(0, 4)
    start = time.process_time()
    replicator.run(4, 4 + rows)
    return (time.process_time() - start) / rows


def collector_mb(rows: int = 20_000) -> float:
    """Return the peak memory of the process that collects a study of four scenarios."""
    arguments = [sys.executable, "-m", "tests.benchmarks.study_memory", str(rows)]
    done = subprocess.run(arguments, check=True, cwd=ROOT, capture_output=True, text=True)
    return float(done.stdout.split()[0])


def storing_s(prepared: Prepared, rows: Rows) -> float:
    """Return seconds to store one replication."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(prepared, Path(folder) / "out")
        store.write(rows)
        start = time.perf_counter()
        for _ in range(20):
            store.write(rows)
        return (time.perf_counter() - start) / 20 / len(rows.chance)


def paces(batches: int = 24) -> tuple[Pace, Pace, Pace, int]:
    """Return the pace of one process, of two and of Dask with two, and the rows each was measured on, warm-up too."""
    prepared = reference_study()
    one = pace(prepared, 1, None, batches)
    turns = [(pace(prepared, 2, None, batches), pace(prepared, 2, LOCAL_DASK, batches)) for _ in range(2)]
    two, dask = (min(both, key=lambda found: found.wall_s) for both in zip(*turns, strict=True))
    return one, two, dask, (batches + 18) * batch_size(1)


def study_lines(one: Pace, two: Pace, dask: Pace) -> list[tuple[str, float, str]]:
    """Measure the rest, and return names, figures and bounds to print."""
    prepared = reference_study()
    start = time.perf_counter()
    prepare(STUDY)
    load_s = time.perf_counter() - start
    kept, anew = cpu_s_of(prepared), replanned_s()
    whole = dask.study_s(TARGET_ROWS) / two.study_s(TARGET_ROWS)
    stored = storing_s(prepared, Replicator(prepared.setup(prepared.montecarlo())).run(0, batch_size(1)))
    return [
        ("study: replications a second, two workers", 1.0 / two.wall_s, ""),
        ("study: 10,000 replications on two workers, s", two.study_s(TARGET_ROWS), "at most 130"),
        ("study: efficiency of two workers", one.wall_s / two.wall_s / 2.0, "at least 0.85"),
        ("study: Dask / processes, 10,000 and the start", whole, "at most 1.10"),
        ("study: Dask / processes, processor time", dask.cpu_s / two.cpu_s, "at most 1.10"),
        ("study: start of workers, processes, s", two.start_s, ""),
        ("study: start of workers, Dask, s", dask.start_s, ""),
        ("study: planned anew / plan kept", anew / kept, ""),
        ("study: collector's memory, 20,000 x 4, MB", collector_mb(), "at most 1000"),
        ("study: reading and checking, s", load_s, "at most 2"),
        ("study: share of time in storing", stored / one.wall_s, ""),
    ]


if __name__ == "__main__":
    for name, figure, bound in study_lines(*paces()[:3]):
        print(f"{name:<46} {figure:8.2f}  {bound}".rstrip())
