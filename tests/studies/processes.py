"""Studies as processes of their own: started, waited for, looked into, killed."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from planner.cli.app import main

ROWS = "40"
LIMIT_S = 900.0  # a busy machine is slow, not wrong
TRIES = 10
Process = subprocess.Popen[str]


def command(study: Path, out: Path, *options: str) -> list[str]:
    """Return the command line of a study."""
    arguments = ["montecarlo", str(study), "-n", ROWS, "--out", str(out), *options]
    return [sys.executable, "-m", "planner.cli.app", *arguments]


def environment() -> dict[str, str]:
    """Return the environment of a study."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def start(arguments: list[str]) -> Process:
    """Start a command apart from the test's own terminal."""
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )


def finish(study: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a study to its end."""
    return subprocess.run(
        command(study, out, *options),
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=LIMIT_S,
    )


def finish_here(study: Path, out: Path, *options: str) -> None:
    """Run a study to its end in this process, which has read the code: the same files as from one of its own."""
    with (
        mock.patch.object(sys, "argv", ["planner", *command(study, out, *options)[3:]]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as told,
        contextlib.suppress(SystemExit),
    ):
        main()
    assert (out / "manifest.json").exists(), told.getvalue()


def start_study(study: Path, out: Path, *options: str) -> Process:
    """Start a study and wait until its first shard is written; begin anew where it ended before anyone looked."""
    for _ in range(TRIES):
        process = start(command(study, out, *options))
        wait_for(lambda: len(list(out.glob("shards/*.parquet"))) >= 1 or process.poll() is not None)  # noqa: B023 - called here
        if process.poll() is None:
            return process
        told = process.communicate()
        assert process.returncode == 0, told
        shutil.rmtree(out)
    raise AssertionError(f"the study ended {TRIES} times before it could be looked at")


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def children(process: Process) -> list[Any]:
    """Return all processes below one."""
    import psutil  # noqa: PLC0415 - comes with Dask, an extra

    return list(psutil.Process(process.pid).children(recursive=True))


def end(process: Process) -> None:
    """Kill a process and all below it, where it still runs."""
    if process.poll() is None:
        for child in children(process):
            child.kill()
        process.kill()
    process.communicate()


def files(folder: Path) -> dict[str, bytes]:
    """Return all bytes but where the study lies, which its data dictionary, manifest and command name."""
    place = str(folder.parent).encode()
    return {
        path.name: path.read_bytes().replace(place, b"")
        for path in folder.iterdir()
        if path.name not in ("datapackage.json", "manifest.json")
    }
