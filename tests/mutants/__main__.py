"""``make mutants``: do one small wrong at a time, and see whether a test tells.

A process that has the libraries loaded forks for each mutant; the child's imports read the mutated text in place of the
file, so nothing on disk changes. It runs the tests that concern the room, nearest first, until one fails. What it found
is kept in the journal, so a run that was stopped goes on; a mutant of changed source is run anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

import pandas as pd  # noqa: F401 - loaded before the forks, as the libraries below are
import pydantic  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import simpy  # noqa: F401
import yaml  # noqa: F401

from tests.mutants.mutations import ROOMS, ROOT, SAMPLE, Mutant, once_unnoticed, sample

GOAL = 0.85
TIMEOUT_S = 300
_FATES = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)  # the last: no import
_NEAR = {
    "finance": ("tests/finance", "tests/results"),
    "results": ("tests/results", "tests/simulation/test_one_number.py"),
    "fleet": ("tests/fleet", "tests/compile/test_oracle.py", "tests/simulation/test_one_number.py"),
    "compile": ("tests/compile", "tests/simulation/test_one_number.py"),
    "simulation": ("tests/simulation/test_one_number.py", "tests/simulation/test_expansion.py"),
}


def tests_of(mutant: Mutant) -> list[str]:
    """Return the tests that concern a mutant's room, those of its own module first."""
    room, stem = mutant.file.split("/")[1], Path(mutant.file).stem
    nearest = ROOT / "tests" / room / f"test_{stem}.py"
    return [*([str(nearest)] if nearest.exists() else []), *(str(ROOT / path) for path in _NEAR[room])]


class _Finder(importlib.machinery.SourceFileLoader):
    """Imports one module from other text than its file's."""

    def __init__(self, mutant: Mutant) -> None:
        self.module = ".".join(Path(mutant.file).with_suffix("").parts).removesuffix(".__init__")
        super().__init__(self.module, str(ROOT / mutant.file))
        self.text = mutant.text

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Stand in for the file of that module, and of no other."""
        del path, target
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.module else None

    def get_code(self, fullname: str) -> CodeType:
        """Compile the other text; what was compiled of the file is left aside."""
        del fullname
        return compile(self.text, self.path, "exec")


def is_killed(mutant: Mutant, timeout_s: int) -> bool:
    """Say whether a test fails, or none comes to its end in time, under a mutant."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (timeout_s, timeout_s))  # a busy machine is slow, not wrong
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.meta_path.insert(0, _Finder(mutant))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not prove", *tests_of(mutant)]
        os._exit(int(pytest.main(options)))
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) not in _FATES:
        raise SystemExit(f"pytest ended with {os.WEXITSTATUS(status)} under {mutant}: see what it says of its options")
    return status != 0


def main() -> int:
    """Run the sample and say what survived."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=SAMPLE, help=f"mutants, the first of the sample [{SAMPLE}]")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, choices=ROOMS)
    parser.add_argument("--known", action="store_true", help="only those that went unnoticed once")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "mutants.json")
    parser.add_argument("--timeout", type=int, default=TIMEOUT_S, help="seconds of processor time for one mutant")
    asked = parser.parse_args()
    os.chdir(ROOT)
    mutants = once_unnoticed()
    if not asked.known:
        mutants += sample(SAMPLE, tuple(asked.rooms))[: asked.count]
    asked.journal.parent.mkdir(parents=True, exist_ok=True)
    journal: dict[str, bool] = json.loads(asked.journal.read_text()) if asked.journal.exists() else {}
    for room, mutant in {mutant.file.split("/")[1]: mutant for mutant in mutants}.items():
        if room not in journal and is_killed(dataclasses.replace(mutant, after=mutant.before), asked.timeout):
            raise SystemExit(f"the tests of {room} fail without any wrong in it, so they can tell none")
        journal[room] = False
    for number, mutant in enumerate(mutants, 1):
        if (name := str(mutant)) not in journal:
            begun = time.monotonic()
            journal[name] = is_killed(mutant, asked.timeout)
            asked.journal.write_text(json.dumps(journal, indent=1))
            fate = "killed  " if journal[name] else "SURVIVED"
            print(f"{number}/{len(mutants)} {fate} {time.monotonic() - begun:4.0f} s  {name}", flush=True)
    fates = [journal[str(mutant)] for mutant in mutants]
    survivors = [str(mutant) for mutant, killed in zip(mutants, fates, strict=True) if not killed]
    print(f"{sum(fates)} of {len(fates)} mutants killed, {sum(fates) / len(fates):.1%}; at least {GOAL:.0%} should be")
    print("\n".join(survivors))
    return int(sum(fates) < GOAL * len(fates))


if __name__ == "__main__":
    sys.exit(main())
