"""Print the engine's ratios: each is the least of several repetitions over the least of several of its yardstick."""

from __future__ import annotations

import cProfile
import functools
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one thread, as replications run side by side

import numpy as np

from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.requests.zoom import ZoomRequest, zoom
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from tests.benchmarks.growth import plan_costs, plan_lines, row_lines
from tests.benchmarks.million import CLUSTERS, MOST_S, million_s
from tests.benchmarks.monthly_sheet import monthly_sheet
from tests.benchmarks.naive_simpy import NaiveFleet
from tests.benchmarks.study import paces, study_lines
from tests.benchmarks.throughput import operating_points_per_s
from tests.benchmarks.waiting import REFERENCE, waiting_lines

ROOT = Path(__file__).parents[2]


def least_s(action: Callable[[], object], repetitions: int) -> float:
    """Return the least processor time of several runs, which other work on the machine has disturbed least.

    Everything measured so runs in one thread, for which processor time is what a quiet machine's clock would show.
    """
    times = []
    for _ in range(repetitions):
        start = time.thread_time()
        action()
        times.append(time.thread_time() - start)
    return min(times)


def alternating_s(actions: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
    """Return the shortest of several runs of each, taken in turn so that a slow stretch of the machine hits all."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repetitions):
        for action, own in zip(actions, times, strict=True):
            own.append(least_s(action, 1))
    return [min(own) for own in times]


def noise_draw(plan: Plan) -> Callable[[], object]:
    """What numpy needs to draw the hourly noise of the run's demand: one normal per workload and hour."""
    generator = np.random.default_rng(1)
    shape = (len(plan.workloads), plan.hours)
    return lambda: generator.standard_normal(shape)


def enlarged(factor: int) -> Plan:
    """The reference scenario with more accelerators and as much more traffic."""
    base = load_scenario(REFERENCE)
    changes = [f"clusters.{name}.nodes={cluster.nodes * factor}" for name, cluster in base.clusters.items()]
    changes += [
        f"workloads.{name}.requests_per_s={load.requests_per_s * factor}" for name, load in base.workloads.items()
    ]
    return build_plan(load_scenario(REFERENCE, changes))


RULES = (
    "expansion.rules=[{when: utilisation_above, threshold_fraction: 0.6, cluster: h200, nodes: 8},"
    " {when: shed_above, threshold_fraction: 0.01, cluster: b200, nodes: 8, lead_weeks: 20}]"
)


def reviewed_ratio(months: int) -> float:
    """Return the time of a replication of so many months with rules that buy over that of one without."""
    plain, reviewed = (build_plan(load_scenario(REFERENCE, [f"horizon_months={months}", *r])) for r in ((), (RULES,)))
    return usual_s(reviewed, 3, 3) / usual_s(plain, 3, 3)


def engine(plan: Plan) -> Callable[[], object]:
    """One replication, a new one each time."""
    replication = iter(range(1_000_000))
    return lambda: run_engine(plan, 1, next(replication))


def usual_s(plan: Plan, replications: int = 12, repetitions: int = 6) -> float:
    """Return the mean over replications of the least time of each: some have many hours that are short, some none."""
    actions = [functools.partial(run_engine, plan, 1, number) for number in range(replications)]
    return statistics.mean(alternating_s(actions, repetitions))


def shares(plan: Plan, replications: int = 20) -> dict[str, float]:
    """Return the shares of profiled time in SimPy's processes, the repair shop, and everything else: arrays."""
    profile = cProfile.Profile()
    action = engine(plan)
    profile.enable()
    for _ in range(replications):
        action()
    profile.disable()
    rows = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    whole = sum(row[2] for row in rows.values())
    cumulative = {(Path(file).name, name): row[3] for (file, _, name), row in rows.items()}
    events = cumulative.get(("core.py", "run"), 0.0)
    shop = cumulative.get(("repair_shop.py", "work_until"), 0.0) + cumulative.get(("failures.py", "draw_failures"), 0.0)
    drawn = cumulative.get(("failures.py", "draw_failures"), 0.0)  # called from within a SimPy process
    return {
        "SimPy": (events - drawn) / whole,
        "failures": shop / whole,
        "numpy and the rest": 1.0 - (events - drawn + shop) / whole,
    }


def peak_mb() -> float:
    """Return the peak resident memory of ``planner run`` on the reference scenario."""
    with tempfile.TemporaryDirectory() as folder:
        command = "from planner.cli.app import main; main()"
        arguments = [sys.executable, "-c", command, "run", str(REFERENCE), "--out", f"{folder}/out", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        subprocess.run(arguments, check=True, cwd=ROOT)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak > before  # the largest child so far is this one
    return peak / 1024.0 * (1.0 if sys.platform.startswith("linux") else 1 / 1024.0)


def zoom_s(requests: int = 100_000) -> tuple[float, int]:
    """Return the processor time of an hour of the reference, request by request, and the requests simulated."""
    scenario, asked = load_scenario(REFERENCE), ZoomRequest(at=datetime(2027, 3, 4, 15), requests=requests)
    start = time.process_time()
    found = zoom(scenario, asked)
    return time.process_time() - start, found.counts[0]


def main() -> None:
    """Measure and print."""
    began_s = time.monotonic()
    memory_mb = peak_mb()  # first, while this process has no larger child
    waited = waiting_lines()  # before anything is compiled
    plan, large = build_plan(load_scenario(REFERENCE)), enlarged(10)
    actions = [engine(plan), noise_draw(plan), engine(large)]
    for action in actions:
        action()
    once, noise, ten = alternating_s(actions, 60)
    sheet = least_s(lambda: monthly_sheet(plan), 5)
    walked = least_s(lambda: NaiveFleet(plan, 1).run(), 1)
    points = operating_points_per_s()
    hour_s, arrived = zoom_s()
    alone, two, dask, measured = paces()
    accelerators = sum(cluster.nodes * cluster.accelerators_per_node for cluster in plan.clusters)
    rows = [
        ("engine / drawing the hourly noise", usual_s(plan) / noise, ""),
        ("the same, the replication that takes least", once / noise, ""),
        *waited,
        ("ten times the accelerators / one time", ten / once, "at most 3"),
        ("hour-by-hour SimPy loop / engine", walked / once, "at least 50"),
        ("engine / monthly sheet of means in pandas", once / sheet, ""),
        ("peak memory of planner run, MB", memory_mb, "at most 300"),
        *((f"with expansion rules / without, {n} months", reviewed_ratio(n), "at most 2") for n in (36, 72)),
        *((f"operating points {kind}, million/s", rate / 1e6, "at least 1") for kind, rate in points.items()),
        *((f"share of time in {name}", share, "") for name, share in shares(plan).items()),
        *((f"a million accelerators in {n} clusters, s", million_s(n), f"at most {MOST_S:.0f}") for n in CLUSTERS),
        *study_lines(alone, two, dask),
        (f"one hour of {arrived:,} requests, s", hour_s, "at most 60"),
    ]
    print(f"{REFERENCE.name}: {accelerators:,} accelerators, {len(plan.workloads)} workloads, {plan.hours:,} hours")
    print(f"one replication {once * 1e3:.1f} ms, its noise {noise * 1e3:.2f} ms, walked {walked:.2f} s")
    for name, figure, bound in rows:
        print(f"{name:<46} {figure:8.2f}  {bound}".rstrip())
    print("\n".join(["", *plan_lines(plan_costs()), "", *row_lines(two, dask, measured)]))
    print(f"{'all of this, minutes':<46} {(time.monotonic() - began_s) / 60.0:8.2f}  at most 10")


if __name__ == "__main__":
    main()
