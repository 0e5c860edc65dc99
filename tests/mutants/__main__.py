"""``make mutants``: do one small wrong at a time, and see whether a test tells.

A process that has the libraries loaded forks for each mutant; the child's imports read the mutated text in place of the
file, so nothing on disk changes. First every test is run once, to see which lines it runs; then each mutant has the
tests that run its line, until one fails. Both are kept in files, so a run that was stopped goes on: what tests run is
seen anew when the program changes, and a mutant is tried anew when its function does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as many processes as processors already

import argparse
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

import pandas as pd  # noqa: F401 - loaded before the forks, as the libraries below are
import pydantic  # noqa: F401
import pytest
import scipy.optimize
import scipy.stats  # noqa: F401
import simpy  # noqa: F401
import yaml  # noqa: F401

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.forks import OUT_OF_TIME, forked
from tests.mutants.mutations import (
    ROOMS,
    ROOT,
    SAMPLE,
    Mutant,
    every_mutant,
    once_unnoticed,
    sample,
)
from tests.mutants.reach import OPTIONS, Reach, hold_short, reach

GOAL = 0.85
SURVIVED = "SURVIVED"
KILLED = "killed"
LATE = "out of time"
UNTESTED = "NO TEST RUNS IT"
_FATES = {
    int(pytest.ExitCode.OK): SURVIVED,
    int(pytest.ExitCode.TESTS_FAILED): KILLED,
    int(pytest.ExitCode.INTERRUPTED): KILLED,  # it could not even be imported
    int(pytest.ExitCode.USAGE_ERROR): KILLED,  # as above: the tests' names were not found
    int(pytest.ExitCode.NO_TESTS_COLLECTED): UNTESTED,
    OUT_OF_TIME: LATE,
}


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
        return (
            importlib.util.spec_from_file_location(name, self.path, loader=self)
            if name == self.module
            else None
        )

    def get_code(self, fullname: str) -> CodeType:
        """Compile the other text; what was compiled of the file is left aside."""
        del fullname
        return compile(self.text, self.path, "exec")


class _Short:
    """Holds the properties' search short."""

    def pytest_sessionstart(self) -> None:
        """Before any test is read."""
        hold_short()


class Trial:
    """Tries mutants by the tests that run their lines."""

    def __init__(self, reached: Reach, budget_s: float) -> None:
        self._reached = reached
        self._budget_s = budget_s

    def __call__(self, mutant: Mutant) -> int:
        """Return what pytest says under a mutant."""
        sys.meta_path.insert(0, _Finder(mutant))
        tests = self._reached.tests_of(mutant, self._budget_s)
        if not tests:
            return int(pytest.ExitCode.NO_TESTS_COLLECTED)
        return int(pytest.main(["-x", *OPTIONS, *tests], plugins=[_Short()]))


class Journal:
    """What became of each mutant, in a file: a run that was stopped goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fates: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}

    def fate(self, mutant: Mutant) -> str:
        """Return what became of a mutant of today's function, or nothing."""
        fate, digest = self._fates.get(mutant.name, ("", ""))
        return fate if digest == mutant.digest else ""

    def enter(self, mutant: Mutant, fate: str) -> None:
        """Keep what became of a mutant."""
        self._fates[mutant.name] = [fate, mutant.digest]
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._fates, indent=0))
        beside.replace(self._path)


def main() -> int:
    """Run the sample and say what survived."""
    asked = _arguments()
    os.chdir(ROOT)
    mutants = once_unnoticed()
    if not asked.known:
        mutants += sample(SAMPLE, tuple(asked.rooms))[: asked.count]
    journal = Journal(asked.out)
    reached = reach(asked.out.with_suffix(""), asked.workers, keep=asked.keep_map)
    again = (SURVIVED, UNTESTED) if asked.again else ()
    left = [mutant for mutant in mutants if journal.fate(mutant) in ("", *again)]
    tried = forked(left, Trial(reached, asked.budget), asked.workers, asked.timeout)
    for number, (mutant, code, seconds) in enumerate(tried, 1):
        journal.enter(mutant, _FATES[code])
        print(f"{number}/{len(left)} {_FATES[code]:15} {seconds:4.0f} s  {mutant.name}", flush=True)
    return _say(mutants, journal)


def _arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=SAMPLE, help=f"mutants, the first of the sample [{SAMPLE}]"
    )
    parser.add_argument("--rooms", nargs="+", default=ROOMS, choices=ROOMS)
    parser.add_argument("--known", action="store_true", help="only those that went unnoticed once")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="how many at a time [processors]"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "mutants.json",
        help="the journal, which is read too",
    )
    parser.add_argument("--again", action="store_true", help="try anew those that survived")
    parser.add_argument(
        "--keep-map",
        action="store_true",
        help="trust what tests ran of an earlier state of the program",
    )
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds of tests for one mutant, at most"
    )
    parser.add_argument(
        "--timeout", type=int, default=300, help="seconds of processor time for one mutant"
    )
    return parser.parse_args()


def _say(mutants: list[Mutant], journal: Journal) -> int:
    """Print how many were killed and what survived; return 1 if too much did."""
    survivors = [mutant for mutant in mutants if journal.fate(mutant) in (SURVIVED, UNTESTED)]
    equal = sum(mutant.name in EQUIVALENT for mutant in survivors)
    killed = len(mutants) - len(survivors)
    wrongs = len(mutants) - equal
    print(
        f"{killed} of {wrongs} mutants killed, {killed / wrongs:.1%}; at least {GOAL:.0%} should be"
    )
    print(
        f"{equal} others are no wrongs (tests/mutants/equivalent.py); {len(survivors) - equal} are not told:"
    )
    print(
        "\n".join(
            f"{journal.fate(mutant)}  {mutant}"
            for mutant in survivors
            if mutant.name not in EQUIVALENT
        )
    )
    for name in EQUIVALENT.keys() - {mutant.name for mutant in every_mutant()}:
        print(f"no longer there, take it out of equivalent.py: {name}")
    return int(killed < GOAL * wrongs)


if __name__ == "__main__":
    sys.exit(main())
