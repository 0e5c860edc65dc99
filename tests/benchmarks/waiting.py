"""What a person waits for: the first screen, a run with its folder, the first run in a notebook, the live page."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from planner.disk_cache import NO_CACHE
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.ui.page import controls_hash, controls_update
from planner.ui.workbench import Workbench
from tests.benchmarks.lines import figure
from tests.benchmarks.memory import COMMAND, ENVIRONMENT, ROOT, peak_of

REFERENCE = ROOT / "tests" / "benchmarks" / "november" / "mixed-fleet.yaml"
"""The reference scenario of November 2026, frozen: speed is measured on it whatever the shipped one becomes."""
SHIPPED = ROOT / "scenarios" / "mixed-fleet.yaml"


def first_screen_s(
    scenario: Path = REFERENCE, repetitions: int = 3, *, is_warm: bool = False
) -> tuple[float, float]:
    """Return the least wait for the first screen of ``planner run``, and the least processor time until then.

    The first time does not count: Python compiles the planner, and where it ``is_warm`` finds nothing that an earlier
    command kept. What comes after the screen is not waited for.
    """
    waits = []
    times = []
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", COMMAND, "run", str(scenario), "--out", f"{folder}/out"]
        environment = ENVIRONMENT | {"XDG_CACHE_HOME": folder, NO_CACHE: "" if is_warm else "1"}
        for _ in range(1 + repetitions):
            begun = time.perf_counter()
            with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  env=environment, start_new_session=True) as running:  # fmt: skip
                assert running.stdout is not None
                for line in running.stdout:
                    if line.startswith(
                        "workload "
                    ):  # the last table, printed together with all above
                        break
                waits.append(time.perf_counter() - begun)
                spent = psutil.Process(running.pid).cpu_times()
                times.append(spent.user + spent.system)
                os.killpg(running.pid, signal.SIGKILL)  # with the processes that draw replications
    return min(waits[1:]), min(times[1:])


def simulate_ms() -> tuple[float, float]:
    """Return milliseconds of ``simulate`` in a process that has compiled nothing yet, and again with other seeds.

    In a thread, since a notebook has threads: so no fork takes over what would not be counted here.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as notebook:
        return notebook.submit(_simulate_ms).result()


def _simulate_ms() -> tuple[float, float]:
    scenario = load_scenario(REFERENCE)
    times = []
    for seed in range(1, 6):
        start = time.thread_time()
        simulate(scenario, seed=seed)
        times.append((time.thread_time() - start) * 1e3)
    return times[0], min(times[1:])


def move_ms(path: str, values: Iterable[object]) -> float:
    """Return the median of the server's processor time from a move of the live page to its answer."""
    workbench = Workbench([load_scenario(REFERENCE)])
    times = []
    workbench.run_first_plan()  # the page has shown the stated plan before any change
    for value in values:
        start = time.thread_time()
        changed = ("mixed-fleet", f"{path}={value}")
        plan = workbench.plan(changed)
        workbench.answer([changed])
        controls_update(plan.settings, controls_hash(plan.settings))
        workbench.line(plan)
        times.append((time.thread_time() - start) * 1e3)
    return statistics.median(times)


def waiting_lines() -> Iterator[str]:
    """Measure and yield each figure; first in a process, before anything is compiled."""
    first_ms, again_ms = simulate_ms()
    yield figure("simulate in a notebook, the first time, ms", first_ms)
    yield figure("simulate, with another seed, ms", again_ms)
    for name, scenario in (("frozen", REFERENCE), ("shipped", SHIPPED)):
        wait_s, cpu_s = first_screen_s(scenario)
        yield figure(f"planner run, first screen, {name}, waited, s", wait_s, at_most=1.5)
        yield figure(f"planner run, first screen, {name}, processor, s", cpu_s)
        _, warm_s = first_screen_s(scenario, is_warm=True)
        yield figure(f"the same from the second run on, {name}, s", warm_s, at_most=1.5)
        yield figure("over the first run", warm_s / cpu_s, at_most=0.55)
    peak = peak_of("run", str(REFERENCE), "--out", "{folder}/out", "--quiet")
    yield figure("planner run with its folder, waited, s", peak.wall_s)
    yield figure("planner run with its folder, all processors, s", peak.cpu_s)
    yield figure("planner run, peak memory of all processes, MB", peak.all_mb, at_most=300)
    yield figure(
        "live page, other nodes, ms", move_ms("clusters.h200.nodes", range(49, 54)), at_most=200
    )
    yield figure("live page, other growth, ms", move_ms("workloads.chat.growth.per_year", (0.61, 0.62, 0.63)),
                 at_most=200)  # fmt: skip
