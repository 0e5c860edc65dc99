"""What used to end in a traceback, or in silence, is one message now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.errors import ScenarioError
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario

LINE = '{"timestamp": %d000, "input_length": 900, "output_length": 5%s}\n'


@pytest.mark.parametrize("hashes", ['"x"', "3", "[[1]]", '{"a": 1}'])
def test_odd_block_hashes_are_refused_by_their_request(
    planner: Planner, tmp_path: Path, hashes: str
) -> None:
    lines = [LINE % (n + 1, ', "hash_ids": [1]') for n in range(40)]
    lines[20] = LINE % (21, f', "hash_ids": {hashes}')
    (tmp_path / "log.jsonl").write_text("".join(lines))
    planner("init", "a", "--from", "log.jsonl").refused(
        "hash_ids of request 21 must be a list of numbers"
    )


def test_a_request_without_block_hashes_hits_nothing(planner: Planner, tmp_path: Path) -> None:
    lines = [LINE % (60 * n + 1, ', "hash_ids": [1]' if n % 2 else "") for n in range(400)]
    (tmp_path / "log.jsonl").write_text("".join(lines))
    done = planner("init", "a", "--from", "log.jsonl")
    assert "Traceback" not in done.err
    assert done.code == 0, done


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", [["schema"], ["catalog"]])
def test_a_full_standard_output_is_one_message(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "planner.cli.app", *words]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=os.environ
        )
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


def test_memory_that_runs_out_is_one_message(
    planner: Planner, write: WriteScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("planner.plan.build.build_plan", exhausted)
    write()
    done = planner("validate", "tiny.yaml")
    assert (done.code, done.err) == (1, "error: not enough memory\n")


@pytest.mark.parametrize("seed", [float("nan"), -1, 1.5, "x"])
def test_a_seed_is_a_whole_number(write: WriteScenario, seed: Any) -> None:
    with pytest.raises(ScenarioError, match="seed must be a whole number from 0 on"):
        simulate(load_scenario(write()), seed=seed)


def test_a_file_that_never_ends_is_refused(tmp_path: Path, write: WriteScenario, tiny: str) -> None:
    line = "requests_per_s: 5\n    growth: {kind: csv, file: /dev/zero}\n"
    with pytest.raises(ScenarioError, match="longer than the 100,000,000 bytes a file may have"):
        load_scenario(write(tiny.replace("requests_per_s: 5\n", line)))
