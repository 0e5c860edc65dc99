"""What a person waits for: commands from the shell, the first run in a notebook, a move of the live page.

``python -m tests.benchmarks.waiting`` prints these alone.
"""

from __future__ import annotations

import concurrent.futures
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.ui import desk as page
from planner.ui.desk import Desk

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "benchmarks" / "november" / "mixed-fleet.yaml"
"""The reference scenario of November 2026, frozen: speed is measured on it whatever the shipped one becomes."""
SHIPPED = ROOT / "scenarios" / "mixed-fleet.yaml"
_COMMAND = "from planner.cli.app import main; main()"


def command_s(*arguments: str, repetitions: int = 3) -> tuple[float, float]:
    """Return the least wait for a command and its least processor time, from the start of its process to its end.

    The first time, Python compiles the planner and keeps that, as it does once for anybody who installs it.
    """
    waits, times = [], []
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": kept, "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(1 + repetitions):
            with tempfile.TemporaryDirectory() as folder:
                words = [sys.executable, "-c", _COMMAND, *(word.replace("{folder}", folder) for word in arguments)]
                before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run(words, check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)
                waits.append(time.perf_counter() - begun)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(waits[1:]), min(times[1:])


def first_screen_s(scenario: Path = REFERENCE, repetitions: int = 3) -> tuple[float, float]:
    """Return the least wait for the first screen of ``planner run``, and the least processor time until then."""
    waits, times = [], []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/kept", "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        words = [sys.executable, "-c", _COMMAND, "run", str(scenario), "--out", f"{folder}/out"]
        for _ in range(1 + repetitions):
            begun = time.perf_counter()
            with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
                                  text=True) as running:  # fmt: skip
                assert running.stdout is not None
                for line in running.stdout:
                    if line.startswith("workload "):  # the last table, printed together with all above
                        break
                waits.append(time.perf_counter() - begun)
                spent = psutil.Process(running.pid).cpu_times()
                times.append(spent.user + spent.system)
                running.stdout.read()
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
    for seed in range(1, 10):
        start = time.thread_time()
        simulate(scenario, seed=seed)
        times.append((time.thread_time() - start) * 1e3)
    return times[0], min(times[1:])


def move_ms(path: str, values: Iterable[object]) -> float:
    """Return the median of the server's processor time from a move of the live page to its answer."""
    desk, times = Desk([load_scenario(REFERENCE)]), []
    desk.begin()  # the page has shown the stated plan before anybody turns a knob
    for value in values:
        start = time.thread_time()
        turned = ("mixed-fleet", f"{path}={value}")
        plan = desk.plan(turned)
        page.answer(desk, [turned])
        page.held(plan.knobs, page.form_of(plan.knobs))
        page.line(desk, plan)
        times.append((time.thread_time() - start) * 1e3)
    return statistics.median(times)


def waiting_lines() -> list[tuple[str, float, str]]:
    """Measure, and return names, figures and bounds to print; first in a process, before anything is compiled."""
    first_ms, again_ms = simulate_ms()
    run_s, run_cpu_s = command_s("run", str(REFERENCE), "--out", "{folder}/out", "--quiet")
    screens = [(name, *first_screen_s(path)) for name, path in (("", REFERENCE), (", shipped", SHIPPED))]
    validate_s, validate_cpu_s = command_s("validate", str(REFERENCE), "--quiet")
    return [
        ("simulate, the first time, ms", first_ms, ""),
        ("simulate, with another seed, ms", again_ms, ""),
        *((f"planner run, first screen{name}, waited, s", wait, "at most 1.5") for name, wait, _ in screens),
        *((f"planner run, first screen{name}, processor, s", cpu, "") for name, _, cpu in screens),
        ("planner run, waited, s", run_s, ""),
        ("planner run, processor time of all cores, s", run_cpu_s, ""),
        ("planner validate, waited, s", validate_s, ""),
        ("planner validate, processor time, s", validate_cpu_s, ""),
        ("live page, other nodes, ms", move_ms("clusters.h200.nodes", range(49, 56)), "at most 200"),
        ("live page, other growth, ms", move_ms("workloads.chat.growth.per_year", (0.61, 0.62, 0.63)), "at most 400"),
    ]


if __name__ == "__main__":
    for name, figure, bound in waiting_lines():
        print(f"{name:<46} {figure:8.2f}  {bound}".rstrip())
