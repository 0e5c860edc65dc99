"""A short run of the fuzzer, and a look at whether its guards bite."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.errors import ConservationError, ScenarioError
from tests.fuzz import __main__ as parent
from tests.fuzz import guards
from tests.fuzz.guards import FaultError, Watch, guarded, verdict
from tests.fuzz.inputs import Tally, feed, target_of

INPUTS = 60


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests took in this process before is no input's doing."""
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    monkeypatch.setattr(guards, "MEMORY_LIMIT_BYTES", taken + guards.MEMORY_LIMIT_BYTES)


@pytest.mark.prove
def test_spoiled_files_are_read_or_refused(watch: Watch, tmp_path: Path) -> None:
    seed = int(os.environ.get("PLANNER_FUZZ_SEED", "2"))
    tally = Tally(seed=seed, first=0)
    for ended in feed(seed, range(INPUTS), watch, tmp_path):
        tally.add(ended)
    assert tally.faults == []
    assert tally.done == INPUTS
    assert tally.slowest_s < 6 * guards.TIME_LIMIT_S
    refused = sum(number for name, number in tally.endings.items() if name.endswith("refused"))
    assert INPUTS * 0.3 < refused < INPUTS  # most are spoiled for good, and some are not
    assert f"{INPUTS} inputs from 0 of seed {seed}" in tally.summary()


@pytest.mark.prove
def test_an_input_ends_the_same_whatever_went_before_it(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    together = [
        (e.number, e.target, e.ending) for e in feed(3, range(20, 40), watch, tmp_path / "a")
    ]
    alone = [(e.number, e.target, e.ending) for e in feed(3, range(30, 40), watch, tmp_path / "b")]
    assert together[10:] == alone
    assert [target for _, target, _ in together] == [
        target_of(3, number) for number in range(20, 40)
    ]


WORKER = """\
import json, os, sys
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    print(number, flush=True)
    if number == 2:
        {deed}
    print(json.dumps(dict(number=number, target="scenario", ending="refused", seconds=0.1)), flush=True)
"""


def _run_with(deed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tally:
    """Let the parent run a worker that does something at its third input."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(deed=deed))
    real = subprocess.Popen

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return real([sys.executable, str(script), *command[3:]], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    tally = Tally(seed=1, first=0)
    parent.run(tally, 5)
    return tally


@pytest.mark.parametrize(
    ("deed", "how"),
    [
        ("os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("sys.exit(3)", "exit code 3"),
        ("import time; time.sleep(60)", "killed by signal 9"),
    ],
)
def test_a_process_that_dies_or_hangs_is_a_fault_of_its_input(
    deed: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "SILENCE_S", 4.0)
    monkeypatch.setattr(parent, "GRACE_S", 2.0)
    tally = _run_with(deed, tmp_path, monkeypatch)
    assert tally.done == 5
    (fault,) = tally.faults
    assert fault.startswith("input 2, ")
    assert how in fault


def test_a_worker_that_cannot_start_is_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SystemExit, match="cannot start"):
        parent.run(Tally(seed=1, first=0), 5)


def test_a_hang_is_found(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "TIME_LIMIT_S", 1)
    with pytest.raises(FaultError, match="took more than 1 s"), guarded(watch, tmp_path):
        sum(1 for _ in itertools.count())


def test_a_gigabyte_is_found(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "MEMORY_LIMIT_BYTES", 1 << 20)
    with pytest.raises(FaultError, match="MiB"), guarded(watch, tmp_path):
        pass


@pytest.mark.parametrize("deed", ["write", "mkdir", "rename"])
def test_a_file_in_the_wrong_place_is_found(watch: Watch, tmp_path: Path, deed: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("")
    stray = tmp_path / "stray"
    deeds = {
        "write": lambda: stray.write_text("x"),
        "mkdir": stray.mkdir,
        "rename": lambda: (tmp_path / "in" / "a").rename(stray),
    }
    with pytest.raises(FaultError, match="wrote outside"), guarded(watch, tmp_path / "in"):
        deeds[deed]()  # type: ignore[operator]


def _raise(error: Exception) -> None:
    raise error


def test_only_refusals_meant_for_the_user_count_as_such() -> None:
    assert verdict(lambda: _raise(ScenarioError("no"))) == "refused"
    assert verdict(lambda: None) == "accepted"
    for error in (ConservationError("ours"), KeyError("x"), RecursionError()):
        with pytest.raises(type(error)):
            verdict(lambda error=error: _raise(error))  # type: ignore[misc]
