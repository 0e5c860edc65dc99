"""How fast studies run: replications a second, efficiency of two workers, Dask against processes, time in storing."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from planner.studies.engines import LOCAL_DASK, run_batches
from planner.studies.prepare import Prepared, prepare
from planner.studies.replicate import Replicator, Rows
from planner.studies.runner import batch_size
from planner.studies.study import open_store

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "scenarios" / "mixed-fleet-study.yaml"
TARGET_ROWS = 10_000


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
        for found in whole.inputs.each
    )
    inputs = type(whole.inputs)(each=each, mixing=whole.inputs.mixing)
    return Prepared(study=whole.study, scenarios=whole.scenarios[:1], inputs=inputs, seed=whole.seed)


def steady_s(prepared: Prepared, workers: int, scheduler: str | None, batches: int) -> float:
    """Return seconds per replication once workers have started and filled their memories."""
    setup, size = prepared.setup(prepared.montecarlo()), batch_size(1)
    warm = 8 * workers
    work = run_batches(setup, [(n * size, (n + 1) * size) for n in range(warm + batches)], workers, scheduler)
    ends = [time.perf_counter() for _ in work]
    return (ends[-1] - ends[warm - 1]) / (batches * size)


def storing_s(prepared: Prepared, rows: Rows) -> float:
    """Return seconds to store one replication."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(prepared, Path(folder) / "out")
        store.write(rows)
        start = time.perf_counter()
        for _ in range(20):
            store.write(rows)
        return (time.perf_counter() - start) / 20 / len(rows.chance)


def study_lines(batches: int = 24) -> list[tuple[str, float, str]]:
    """Measure, and return names, figures and bounds to print."""
    prepared = reference_study()
    start = time.perf_counter()
    prepare(STUDY)
    load_s = time.perf_counter() - start
    one = steady_s(prepared, 1, None, batches)
    two = steady_s(prepared, 2, None, 2 * batches)
    dask = steady_s(prepared, 2, LOCAL_DASK, 2 * batches)
    stored = storing_s(prepared, Replicator(prepared.setup(prepared.montecarlo())).run(0, batch_size(1)))
    return [
        ("study: replications a second, two workers", 1.0 / two, ""),
        ("study: 10,000 replications on two workers, s", TARGET_ROWS * two, "at most 240, goal 90"),
        ("study: efficiency of two workers", one / two / 2.0, "at least 0.85"),
        ("study: Dask / local processes", dask / two, "at most 1.10"),
        ("study: reading and checking, s", load_s, "at most 2"),
        ("study: share of time in storing", stored / one, ""),
    ]


if __name__ == "__main__":
    for name, figure, bound in study_lines():
        print(f"{name:<46} {figure:8.2f}  {bound}".rstrip())
