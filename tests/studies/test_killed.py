"""Real processes, killed for real: nothing lost, nothing doubled, the same bytes at the end."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Planner
from tests.studies.processes import (
    LIMIT_S,
    TRIES,
    Process,
    children,
    command,
    end,
    environment,
    files,
    finish,
    finish_here,
    start_study,
)

pytest.importorskip(
    "psutil", reason="psutil comes with Dask: pip install 'datacenter-planner[dask]'"
)
import psutil


@pytest.fixture
def running(study: Path) -> Iterator[Callable[..., Process]]:
    """Start a study and wait until its first shard is written."""
    started: list[Process] = []

    def begin(out: Path, *options: str) -> Process:
        started.append(start_study(study, out, *options))
        return started[-1]

    yield begin
    for process in started:
        end(process)


def workers(process: Process) -> list[Any]:
    """The processes that do the work: forked from the fork server, or started by Dask."""
    found = []
    for child in children(process):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended since it was listed
            line = " ".join(child.cmdline())
            forked = "forkserver" in line and child.ppid() != process.pid
            if forked or ("spawn_main" in line and "resource_tracker" not in line):
                found.append(child)
    return found


def kill_a_worker(process: Process) -> bool:
    """Kill one worker; say whether there was one, or the study was done before."""
    while process.poll() is None:
        for worker in workers(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGKILL)
                return True
    return False


@pytest.mark.prove
@pytest.mark.parametrize(
    "options", [("--workers", "2"), ("--workers", "2", "--scheduler", "local-dask")]
)
def test_a_killed_worker_costs_nothing(
    study: Path,
    tmp_path: Path,
    running: Callable[..., Process],
    options: tuple[str, ...],
    whole: dict[str, bytes],
) -> None:
    if "local-dask" in options:
        pytest.importorskip("distributed")
    for attempt in range(TRIES):  # on a busy machine a study may end between the look and the blow
        folder = tmp_path / f"killed-{attempt}"
        process = running(folder, *options)
        killed = kill_a_worker(process)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, (out, err)
        assert files(folder) == whole
        if killed:
            return
    pytest.fail(f"no worker was met in {TRIES} studies")


def test_a_killed_study_is_resumed(
    study: Path,
    tmp_path: Path,
    running: Callable[..., Process],
    whole: dict[str, bytes],
    planner: Planner,
) -> None:
    process = running(tmp_path / "killed", "--workers", "1")
    process.send_signal(signal.SIGKILL)
    process.wait()
    planner(*command(study, tmp_path / "killed")[3:]).refused("--resume")
    finish_here(study, tmp_path / "killed", "--workers", "2", "--resume")
    assert files(tmp_path / "killed") == whole


@pytest.mark.prove
def test_an_interrupt_says_how_to_go_on(
    study: Path, tmp_path: Path, running: Callable[..., Process], whole: dict[str, bytes]
) -> None:
    for attempt in range(
        TRIES
    ):  # on a busy machine a study may end before the interrupt reaches it
        folder = tmp_path / f"cut-{attempt}"
        process = running(folder, "--workers", "2")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
        if process.returncode != 0:
            break
    assert process.returncode == 130, err
    assert "Traceback" not in err
    kept = re.search(
        r"stopped with (\d+) of 40 replications stored; continue with:\n  planner (.*--resume)", err
    )
    assert kept is not None, err
    assert 0 < int(kept[1]) <= 40
    assert not psutil.pid_exists(process.pid) or not children(process)
    finish(study, folder, "--workers", "2", "--resume")
    assert files(folder) == whole


@pytest.mark.parametrize(
    "kind", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.prove)]
)
def test_workers_end_with_their_study_however_it_ends(
    study: Path,
    tmp_path: Path,
    running: Callable[..., Process],
    kind: signal.Signals,
    whole: dict[str, bytes],
) -> None:
    for attempt in range(TRIES):  # on a busy machine a study may end before anybody looks
        folder = tmp_path / f"ended-{attempt}"
        process = running(folder, "--workers", "2")
        below = children(process)
        if len(below) >= 3:
            break
    assert len(below) >= 3  # two workers and the server that forks them
    process.send_signal(kind)
    _, err = process.communicate(timeout=LIMIT_S)
    assert "Traceback" not in err
    assert process.returncode == (130 if kind == signal.SIGTERM else -signal.SIGKILL)
    _, alive = psutil.wait_procs(below, timeout=LIMIT_S)
    assert alive == []
    if kind == signal.SIGTERM:
        assert "replications stored; continue with:" in err
        finish_here(study, folder, "--workers", "1", "--resume")
        assert files(folder) == whole


@pytest.mark.prove
def test_a_dask_cluster_of_our_own_listens_to_this_machine_alone(
    tmp_path: Path, running: Callable[..., Process]
) -> None:
    pytest.importorskip("distributed")
    process = running(tmp_path / "out", "--workers", "2", "--scheduler", "local-dask")
    listening = []
    for found in (psutil.Process(process.pid), *children(process)):
        with contextlib.suppress(psutil.Error):
            listening += [
                one.laddr.ip
                for one in found.net_connections("inet")
                if one.status == psutil.CONN_LISTEN
            ]
    assert len(listening) >= 3  # the scheduler and two workers
    assert set(listening) <= {"127.0.0.1", "::1"}


@pytest.mark.prove
@pytest.mark.skipif(sys.platform == "win32", reason="limits on file size are POSIX")
def test_a_full_disk_is_one_message_and_what_was_finished_stays(
    study: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    program = (
        "import resource, sys; import planner.studies.store, planner.answers.study\n"
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
    assert not list((tmp_path / "full").rglob("*.part"))
    finish(study, tmp_path / "full", "--workers", "1", "--resume")
    assert files(tmp_path / "full") == whole
