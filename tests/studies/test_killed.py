"""Real processes, killed for real: nothing lost, nothing doubled, the same bytes at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.studies.conftest import SMALL

pytest.importorskip("psutil", reason="psutil comes with Dask: pip install 'datacenter-planner[dask]'")
import psutil

Write = Callable[..., Path]
ROWS = "64"
LIMIT_S = 180.0


def command(study: Path, out: Path, *options: str) -> list[str]:
    arguments = ["montecarlo", str(study), "-n", ROWS, "--out", str(out), "--no-charts", *options]
    return [sys.executable, "-m", "planner.cli.app", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def finish(study: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(study, out, *options), capture_output=True, text=True, check=True, env=environment(), timeout=LIMIT_S
    )


@pytest.fixture
def study(study_file: Write) -> Path:
    return study_file()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted study in one process writes."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "study.yaml").write_text(SMALL)
    finish(folder / "study.yaml", folder / "out", "--workers", "1")
    return files(folder / "out")


@pytest.fixture
def running(study: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a study and wait until its first shards are written."""
    started: list[subprocess.Popen[str]] = []

    def start(out: Path, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(study, out, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        started.append(process)
        wait_for(lambda: len(list(out.glob("shards/*.parquet"))) >= 2 or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process

    yield start
    for process in started:
        for child in [*children(process), psutil.Process(process.pid)] if process.poll() is None else []:
            child.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that do the work: forked from the fork server, or started by Dask."""
    found = []
    for child in children(process):
        line = " ".join(child.cmdline())
        forked = "forkserver" in line and child.ppid() != process.pid
        if forked or ("spawn_main" in line and "resource_tracker" not in line):
            found.append(child)
    return found


def files(folder: Path) -> dict[str, bytes]:
    """All bytes; but a study's folder is named in its data dictionary."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name not in ("datapackage.json", "manifest.json")
    }


@pytest.mark.parametrize("options", [("--workers", "2"), ("--workers", "2", "--scheduler", "local-dask")])
def test_a_killed_worker_costs_nothing(
    study: Path,
    tmp_path: Path,
    running: Callable[..., subprocess.Popen[str]],
    options: tuple[str, ...],
    whole: dict[str, bytes],
) -> None:
    if "local-dask" in options:
        pytest.importorskip("distributed")
    process = running(tmp_path / "killed", *options)
    wait_for(lambda: bool(workers(process)))
    workers(process)[0].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, (out, err)
    assert files(tmp_path / "killed") == whole


def test_a_killed_study_is_resumed(
    study: Path, tmp_path: Path, running: Callable[..., subprocess.Popen[str]], whole: dict[str, bytes]
) -> None:
    process = running(tmp_path / "killed", "--workers", "1")
    process.send_signal(signal.SIGKILL)
    process.wait()
    refused = subprocess.run(
        command(study, tmp_path / "killed"), capture_output=True, text=True, check=False, env=environment()
    )
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    finish(study, tmp_path / "killed", "--workers", "2", "--resume")
    assert files(tmp_path / "killed") == whole


def test_an_interrupt_says_how_to_go_on(
    study: Path, tmp_path: Path, running: Callable[..., subprocess.Popen[str]], whole: dict[str, bytes]
) -> None:
    process = running(tmp_path / "cut", "--workers", "2")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    kept = re.search(r"stopped with (\d+) of 64 replications kept; continue with:\n  planner (.*--resume)", err)
    assert kept is not None, err
    assert 0 < int(kept[1]) <= 64
    assert not psutil.pid_exists(process.pid) or not children(process)
    finish(study, tmp_path / "cut", "--workers", "2", "--resume")
    assert files(tmp_path / "cut") == whole


@pytest.mark.skipif(sys.platform == "win32", reason="limits on file size are POSIX")
def test_a_full_disk_is_one_message_and_what_was_finished_stays(
    study: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    program = (
        "import resource, sys; import planner.studies.store, planner.reporting.study_folder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "from planner.cli.app import main; sys.argv = ['planner', *sys.argv[1:]]; main()\n"
    )
    arguments = command(study, tmp_path / "full", "--workers", "1")[3:]
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=LIMIT_S,
    )
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert "cannot be written: " in done.stderr
    assert "--resume" in done.stderr
    assert not list((tmp_path / "full").glob("*.part"))
    finish(study, tmp_path / "full", "--workers", "1", "--resume")
    assert files(tmp_path / "full") == whole
