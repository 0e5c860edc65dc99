"""Which test runs which line: for a wrong in a line, only the tests that come by it are worth running."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

from tests.mutants.forks import forked
from tests.mutants.mutations import ROOMS, ROOT, Mutant, once_unnoticed, unit_at

_LEFT_ASIDE = (
    "attack",
    "benchmarks",
    "browser",
    "contracts",
    "docs",
    "editor",
    "fuzz",
    "hardening",
    "mutants",
)
POOL = sorted(path.name for path in (ROOT / "tests").iterdir() if path.name not in _LEFT_ASIDE)
"""The tests that may tell. What they run in a process of its own is not counted, and would not have the wrong in it."""
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


@dataclass(slots=True)
class Reach:
    """What every test runs."""

    program: str
    """A digest of the program and of what the tests share."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of each test file."""
    tests: dict[str, list[Test]] = field(default_factory=dict)
    """By test file."""

    def tests_of(self, mutant: Mutant, budget_s: float) -> list[str]:
        """Return the tests worth running: those that run the line, quickest first, then others of the same files.

        The others, because what a file's tests share is made for the first of them only. Of either those of the
        mutant's own room come first: they are about it. What one file's tests have in the budget is handed over
        together, so that it is made once.
        """
        worth: list[tuple[bool, bool, float, str, str]] = []
        for file, tests in self.tests.items():
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

    def save(self, path: Path) -> None:
        """Write it, for the next call."""
        tests = {
            file: [(test.name, test.seconds, test.lines) for test in tests]
            for file, tests in self.tests.items()
        }
        path.write_bytes(
            gzip.compress(json.dumps([self.program, self.digests, tests]).encode(), 1, mtime=0)
        )


def reach(path: Path, workers: int, *, keep: bool) -> Reach:
    """Return what every test runs: as it is stored, if it is of this program or to be kept, else made anew."""
    program = _digest(_shared_files())
    known = _load(path) if path.exists() else Reach(program)
    made = known if keep or known.program == program else Reach(program)
    files = _test_files()
    left = [file for file in files if made.digests.get(file) != _digest([ROOT / file])]
    folder = path.parent / "reach"
    folder.mkdir(parents=True, exist_ok=True)
    for number, (file, _, seconds) in enumerate(
        forked(left, partial(_run_file, folder), workers, _LIMIT_S), 1
    ):
        out = folder / f"{file.replace('/', '-')}.json"
        made.tests[file] = (
            [Test(*test) for test in json.loads(out.read_text())] if out.exists() else []
        )
        if not made.tests[file]:
            print(f"NONE OF ITS TESTS PASSES BY ITSELF, none is used: {file}", flush=True)
        made.digests[file] = _digest([ROOT / file])
        out.unlink(missing_ok=True)
        print(
            f"{number}/{len(left)} {len(made.tests[file])} tests, {seconds:.0f} s  {file}",
            flush=True,
        )
        made.save(path)
    return made


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
        self.lines: dict[str, set[int]] = defaultdict(set)
        self.passed: dict[str, bool] = {}
        self.tests: list[tuple[str, float, Lines]] = []
        self._files: dict[str, str | None] = {}

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Follow the frames of the rooms line by line, and no others."""
        del event, arg
        path = frame.f_code.co_filename
        if path not in self._files:
            parts = path.removeprefix(f"{ROOT}/").split("/")
            self._files[path] = (
                "/".join(parts) if parts[0] == "planner" and parts[1] in _ROOMS else None
            )
        if (file := self._files[path]) is None:
            return None
        add = self.lines[file].add

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            del event, arg
            add(frame.f_lineno)
            return local

        add(frame.f_lineno)
        return local

    def pytest_sessionstart(self) -> None:
        """Begin with what the test file itself runs."""
        hold_short()
        sys.settrace(self.trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note one test."""
        sys.settrace(None)
        if not self.tests:
            self.tests.append(("", 0.0, _by_unit(self.lines)))
        self.lines.clear()
        begun = time.process_time()
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            if self.passed.get(item.nodeid):
                self.tests.append(
                    (item.nodeid, round(time.process_time() - begun, 3), _by_unit(self.lines))
                )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep whether it passed in every phase."""
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed


def _by_unit(lines: dict[str, set[int]]) -> Lines:
    """Return lines by file and unit; those outside of functions are left out."""
    by_unit: Lines = {}
    for file, numbers in lines.items():
        for number in sorted(numbers):
            if (unit := unit_at(file, number)).first:
                by_unit.setdefault(file, {}).setdefault(unit.name, []).append(number - unit.first)
    return by_unit


def _run_file(folder: Path, file: str) -> int:
    """Run one file's tests and write what each runs."""
    recorder = _Recorder()
    code = int(pytest.main([*OPTIONS, file], plugins=[recorder]))
    (folder / f"{file.replace('/', '-')}.json").write_text(json.dumps(recorder.tests))
    return code


def _test_files() -> list[str]:
    """Return the files of the pool, the largest first: they take longest."""
    paths = [
        path
        for name in POOL
        for path in [ROOT / "tests" / name, *(ROOT / "tests" / name).rglob("test_*.py")]
    ]
    files = sorted(
        (path for path in paths if path.is_file()), key=lambda path: -path.stat().st_size
    )
    return [str(path.relative_to(ROOT)) for path in files]


def _shared_files() -> list[Path]:
    """Return the files of the program, and those of the tests' that are no tests."""
    program = [
        path for path in (ROOT / "planner").rglob("*") if path.suffix in {".py", ".yaml", ".csv"}
    ]
    helpers = [
        path
        for name in POOL
        for path in (ROOT / "tests" / name).rglob("*.py")
        if "test_" not in path.name
    ]
    return sorted([*program, *helpers, ROOT / "tests" / "conftest.py"])


def _digest(paths: Iterable[Path]) -> str:
    """Return a digest of some files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> Reach:
    """Read what an earlier call wrote."""
    program, digests, tests = json.loads(gzip.decompress(path.read_bytes()))
    return Reach(
        program, digests, {file: [Test(*test) for test in tests] for file, tests in tests.items()}
    )
