"""Memory that a command takes: its processes together, a page that several of them share counted once.

``python -m tests.benchmarks.memory size SCENARIO -n 96`` prints the peak of any command line of the planner.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.benchmarks.lines import figure

ROOT = Path(__file__).parents[2]
COMMAND = "from planner.cli.app import main; main()"
SIZING = (
    "size",
    "scenarios/which-mix.yaml",
    "--study",
    "scenarios/mixed-fleet-study.yaml",
    "--no-rivals",
)
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
"""In which Python compiles the planner the first time and never again, as for anybody who installs it."""
_LOOK_S = 0.1


class Peak(NamedTuple):
    """The most that a command held, and how long it took."""

    all_mb: float
    """Proportional set size of all its processes at one time."""
    largest_mb: float
    """Of any one process."""
    wall_s: float
    cpu_s: float
    """Of all its processes, to a tenth of a second: when each was last looked at."""


def peak_of(*arguments: str) -> Peak:
    """Run a command to its end and look at its processes ten times a second; ``{folder}`` is one to write to."""
    most = largest = 0.0
    begun = time.perf_counter()
    spent = dict[int, float]()
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            "-c",
            COMMAND,
            *(word.replace("{folder}", folder) for word in arguments),
        ]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(
            words, cwd=ROOT, stdout=nowhere, stderr=nowhere, env=ENVIRONMENT
        ) as running:
            first = psutil.Process(running.pid)
            while running.poll() is None:
                held = []
                for process in (first, *_below(first)):
                    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        held.append(process.memory_full_info().pss / 2**20)
                        times = process.cpu_times()
                        spent[process.pid] = times.user + times.system
                most = max(most, sum(held))
                largest = max([largest, *held])
                time.sleep(_LOOK_S)
        assert running.returncode == 0, words
    wait_s = time.perf_counter() - begun
    return Peak(all_mb=most, largest_mb=largest, wall_s=wait_s, cpu_s=sum(spent.values()))


def _below(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(process.children(recursive=True))
    return []


def sizing_lines() -> Iterator[str]:
    """Measure a sizing at 96 replications, on a busy machine as far as a minute and a half of search come."""
    peak = peak_of(
        *SIZING, "-n", "96", "--workers", "2", "--minutes", "1.5", "--out", "{folder}/out"
    )
    yield figure("planner size -n 96, peak of all processes, MB", peak.all_mb, at_most=600)
    yield figure("the same, its largest process, MB", peak.largest_mb)
    yield figure("the same, all processors, s", peak.cpu_s)


if __name__ == "__main__":
    peak = peak_of(*sys.argv[1:])
    print(
        f"all {peak.all_mb:.0f} MB, largest {peak.largest_mb:.0f} MB, {peak.wall_s:.0f} s, {peak.cpu_s:.0f} s of CPU"
    )
