"""Killed, out of space, forbidden to write: what is there afterwards is whole, or does not look finished."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import files
from planner.answers.report import rebuild_report
from planner.answers.run import write_run
from planner.errors import ScenarioError
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY

Planner = Callable[..., Any]
MOMENTS = 5
STUDY = """\
name: tiny-study
scenarios:
  tiny: {extends: tiny.yaml}
uncertain:
  site.pue_ratio: {kind: pert, low: 1.1, mode: 1.2, high: 1.5}
"""


def faults_of(folder: Path) -> list[str]:
    """Return what is wrong with a folder that looks finished; one without a manifest does not look so."""
    manifest = folder / "manifest.json"
    if not manifest.exists():
        return []
    listed = json.loads(manifest.read_text())["files"]
    return [
        name
        for name, digest in listed.items()
        if not (folder / name).is_file()
        or hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]


# Does the work once, then forks for every moment: what is killed is the work, not the start of Python.
KILLER = """
import os, random, signal, sys, time
sys.argv = ["planner", *ARGUMENTS]
from planner.cli.app import main

def once():
    try:
        main()
    except SystemExit as leaving:
        return leaving.code or 0
    return 0

def work(extra):
    child = os.fork()
    if child == 0:
        sys.argv += extra
        os._exit(once())
    return child

assert once() == 0
begun = time.monotonic()
assert os.waitpid(work([]), 0)[1] == 0
whole_s = time.monotonic() - begun
chance = random.Random(20)
killed = tried = 0
while killed < MOMENTS and tried < 3 * MOMENTS:
    tried += 1
    child = work(["--seed", str(tried)] if AGAIN else [])
    begun = time.monotonic()
    until = begun + chance.uniform(0.02, 1.0) * whole_s
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            whole_s = min(whole_s, time.monotonic() - begun)  # it was measured on a busier machine
            break
        time.sleep(0.0005)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
    print("moment", tried, flush=True)
    sys.stdin.readline()
print("killed", killed, flush=True)
assert os.waitpid(work([]), 0)[1] == 0
"""


def kill_often(arguments: list[str], folder: Path, look: Callable[[], None], *, again: bool) -> int:
    """Carry a command out again and again, killed at random moments; look at what is left after each."""
    script = (
        KILLER.replace("ARGUMENTS", repr(arguments))
        .replace("MOMENTS", str(MOMENTS))
        .replace("AGAIN", str(again))
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        for line in process.stdout:
            if line.startswith("killed"):
                killed = int(line.split()[1])
                break
            look()
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == 0
    return killed


def test_a_run_killed_at_any_moment_leaves_nothing_that_only_looks_finished(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)

    def look() -> None:
        assert faults_of(tmp_path / "o") == []

    killed = kill_often(
        ["run", "tiny.yaml", "-n", "2", "--out", "o", "-q"], tmp_path, look, again=True
    )
    assert killed >= MOMENTS // 2
    look()
    assert (tmp_path / "o" / "manifest.json").exists()  # what a killed run left is in nobody's way


@pytest.mark.prove
def test_a_study_killed_at_any_moment_leaves_nothing_that_only_looks_finished(
    tmp_path: Path,
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "study.yaml").write_text(STUDY)

    def look() -> None:
        assert faults_of(tmp_path / "o") == []

    command = [
        "montecarlo",
        "study.yaml",
        "-n",
        "4",
        "--workers",
        "1",
        "--no-charts",
        "--out",
        "o",
        "-q",
        "--restart",
    ]
    killed = kill_often(command, tmp_path, look, again=False)
    assert killed >= MOMENTS // 2
    look()
    assert (tmp_path / "o" / "manifest.json").exists()


class FullDisk(io.BytesIO):
    """A file on a disk that fills up after some bytes."""

    def __init__(self, room: list[int]) -> None:
        super().__init__()
        self.room = room
        self.real = tempfile.TemporaryFile()  # noqa: SIM115 - something that can be synced; closed with this

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()
        super().close()

    def write(self, content: Any, /) -> int:
        self.room[0] -= len(content)
        if self.room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(content)


@pytest.fixture
def result(tmp_path: Path) -> Any:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return simulate(load_scenario(tmp_path / "tiny.yaml"))


@pytest.mark.parametrize("room_bytes", [0, 1_000, 50_000, 120_000])
def test_a_full_disk_is_a_message_and_leaves_the_earlier_results(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    write_run(result, tmp_path / "o")
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    room = [room_bytes]
    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        return FullDisk(room) if "w" in mode else real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(ScenarioError, match="No space left on device"):
        write_run(result, tmp_path / "o")
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "o"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A real file system of 64 kB, where we may make one."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip(
            "no small file system can be mounted here; the test with a failing write covers it"
        )
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_real_small_disk(small_disk: Path, tmp_path: Path, planner: Planner) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    planner("run", "tiny.yaml", "--out", small_disk / "o", "-q").refused("No space left on device")
    assert list(small_disk.iterdir()) == []


def test_a_read_only_folder_is_found_out_before_the_run(
    small_disk: Path, tmp_path: Path, planner: Planner
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    outcome = planner("run", "tiny.yaml", "--out", small_disk / "o").refused("cannot be written")
    assert "simulating" not in outcome.err


def test_a_report_on_a_full_disk_leaves_the_earlier_one(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(result, tmp_path / "o")
    before = (tmp_path / "o" / "report.html").read_bytes()

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(ScenarioError, match="No space left on device"):
        rebuild_report(tmp_path / "o")
    monkeypatch.undo()
    assert (tmp_path / "o" / "report.html").read_bytes() == before
    assert faults_of(tmp_path / "o") == []
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "o"}
