"""Which test runs which line: for a wrong in a line, only the tests that come by it are worth running."""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import coverage
import hypothesis
import pytest

from tests.mutants.forks import forked
from tests.mutants.mutations import ROOMS, ROOT, Mutant, function_at, once_unnoticed

POOL = (*ROOMS, "oracles", "answers")
"""Folders of the tests that may tell: those of a room are about what it computes, and answers sum it to the cent."""
OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not prove"),
    *("-W", "ignore:Module already imported"),  # hypothesis, before the forks
)
_LIMIT_S = 500
_ROOMS = {*ROOMS, *(mutant.file.split("/")[1] for mutant in once_unnoticed())}
Lines = dict[str, dict[str, list[int]]]
"""By file and unit, lines counted from the unit's first."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test that passes where nothing is wrong; without a name, what its file runs while it is imported."""

    __test__ = False
    name: str
    seconds: float
    lines: Lines


class Reach:
    """What every test runs."""

    def __init__(self, tests: dict[str, list[Test]]) -> None:
        """Of each test file its tests."""
        self._tests = tests

    def tests_of(self, mutant: Mutant, budget_s: float) -> list[str]:
        """Return the tests worth running: those that run the line, quickest first, then others of the same files.

        The others, because what a file's tests share is made for the first of them only. Of either those of the
        mutant's own room come first: they are about it. What one file's tests have in the budget is handed over
        together, so that it is made once.
        """
        worth: list[tuple[bool, bool, float, str, str]] = []
        for file, tests in self._tests.items():
            runs = [_runs(test, mutant) for test in tests]
            away = not file.startswith(f"tests/{mutant.file.split('/')[1]}/")
            if any(runs):
                worth += [
                    (not run, away, test.seconds, test.name, file)
                    for run, test in zip(runs, tests, strict=True)
                ]
        by_file: dict[str, list[str]] = defaultdict(list)
        spent = 0.0
        for *_, seconds, name, file in sorted(worth):
            spent += seconds
            if name and (spent < budget_s or not by_file):
                by_file[file].append(name)
        return [name for names in by_file.values() for name in names]


@dataclass(frozen=True, slots=True)
class Record:
    """A file of what one test file's tests run."""

    path: Path
    file: str
    digest: str
    """Of that test file and of the program."""

    def tests(self, *, keep: bool = True) -> list[Test] | None:
        """Return the tests, if they are recorded: of this program, or of any if that is to be kept."""
        if not self.path.exists():
            return None
        digest, tests = json.loads(self.path.read_text())
        return [Test(*test) for test in tests] if keep or digest == self.digest else None

    def write(self, tests: list[Test]) -> None:
        """Write them."""
        rows = [(test.name, test.seconds, test.lines) for test in tests]
        self.path.write_text(json.dumps([self.digest, rows]))

    def make(self) -> int:
        """Run the tests and note what each runs; nothing, if they take too long."""
        self.write([])
        recorder = _Recorder()
        code = int(pytest.main([*OPTIONS, self.file], plugins=[recorder]))
        self.write(recorder.tests())
        return code


def reach(folder: Path, workers: int, *, keep: bool) -> Reach:
    """Return what every test runs: as it is recorded, else recorded now, file by file, so a stopped call goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    program = _digest(_shared_files())
    records = [
        Record(folder / f"{file.replace('/', '-')}.json", file, _digest([ROOT / file]) + program)
        for file in _test_files()
    ]
    left = [record for record in records if record.tests(keep=keep) is None]
    for number, (record, _, seconds) in enumerate(forked(left, Record.make, workers, _LIMIT_S), 1):
        tests = len(record.tests() or ())
        none = "" if tests else ", NONE OF THEM PASSES BY ITSELF"
        print(
            f"{number}/{len(left)} {tests} tests, {seconds:.0f} s  {record.file}{none}", flush=True
        )
    return Reach({record.file: record.tests() or [] for record in records})


def hold_short() -> None:
    """Let a property fail at its first example: which is the smallest is of no use here."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants", hypothesis.settings(), phases=phases, database=None
    )
    hypothesis.settings.load_profile("mutants")


def _runs(test: Test, mutant: Mutant) -> bool:
    """Say whether a test runs a mutant's statement; what is outside functions runs once, for all who use its module."""
    if mutant.unit.first:
        return not set(mutant.lines).isdisjoint(
            test.lines.get(mutant.file, {}).get(mutant.unit.name, ())
        )
    return any(file in test.lines for file in (mutant.file, *_importers(mutant.file)))


@cache
def _importers(file: str) -> list[str]:
    """Return the files that import from a file."""
    module = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    return [
        str(path.relative_to(ROOT))
        for path in (ROOT / "planner").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and module in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    ]


class _Recorder:
    """Notes the lines of the rooms that each test runs."""

    def __init__(self) -> None:
        rooms = [f"{ROOT}/planner/{room}/**" for room in _ROOMS]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=rooms)
        self.coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self.passed: dict[str, bool] = {}
        self.seconds = {"": 0.0}

    def pytest_sessionstart(self) -> None:
        """Begin with what the test file itself runs."""
        hold_short()
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note one test."""
        self.coverage.switch_context(item.nodeid)
        begun = time.process_time()
        try:
            return (yield)
        finally:
            if self.passed.get(item.nodeid):
                self.seconds[item.nodeid] = round(time.process_time() - begun, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep whether it passed in every phase."""
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def tests(self) -> list[Test]:
        """Return the tests that passed, each with its lines by unit; those outside of functions are left out."""
        self.coverage.stop()
        measured = self.coverage.get_data()
        lines: dict[str, Lines] = {name: {} for name in self.seconds}
        for path in measured.measured_files():
            file = path.removeprefix(f"{ROOT}/")
            for number, names in sorted(measured.contexts_by_lineno(path).items()):
                if (function := function_at(file, number)) is None:
                    continue
                for name in lines.keys() & names:
                    units = lines[name].setdefault(file, {})
                    units.setdefault(function.name, []).append(number - function.first)
        return [Test(name, seconds, lines[name]) for name, seconds in self.seconds.items()]


def _pool_files() -> list[Path]:
    return [path for name in POOL for path in (ROOT / "tests" / name).rglob("*.py")]


def _test_files() -> list[str]:
    """Return the test files of the pool, the largest first: they take longest."""
    paths = [path for path in _pool_files() if path.name.startswith("test_")]
    paths.sort(key=lambda path: -path.stat().st_size)
    return [str(path.relative_to(ROOT)) for path in paths]


def _shared_files() -> list[Path]:
    """Return the files of the program, and those of the tests' that are no tests."""
    program = [
        path for path in (ROOT / "planner").rglob("*") if path.suffix in {".py", ".yaml", ".csv"}
    ]
    helpers = [path for path in _pool_files() if not path.name.startswith("test_")]
    return sorted([*program, *helpers, ROOT / "tests" / "conftest.py"])


def _digest(paths: Iterable[Path]) -> str:
    """Return a digest of some files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()
