"""A scenario small enough to run in a blink, and the command line called in this process."""

from __future__ import annotations

import csv
import functools
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # before numpy: as many processes as processors already
os.environ["PLANNER_NO_CACHE"] = "1"  # a test finds nothing that another left
# A busy machine is slow, not wrong: no deadline. A quarter of the usual examples, in a suite of thousands of tests.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("many", settings.get_profile("house"), max_examples=200)  # of make prove
settings.load_profile("house")

ROOT = Path(__file__).parents[1]

_PAGE = "tests/docs/test_docs.py::test_what_a_page_shows_happens"
LONG = (
    f"{_PAGE}[docs/tutorial/decide.md]",
    _PAGE,
    *(f"tests/{name}/" for name in ("studies", "sizing", "cli", "output")),
)
"""Where the tests of many seconds are, the longest first."""

TINY = """\
name: tiny
start: 2026-01-01
horizon_months: 3
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 5
    lengths: {input: {mean: 500}, output: {mean: 100}}
clusters:
  h200:
    accelerator: H200
    nodes: 4
  mi325x:
    accelerator: MI325X
    nodes: 3
    online: 2026-02-01
"""


@pytest.hookimpl(trylast=True)  # after those that leave tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let every worker begin with its share of the long tests: what others take over from it at the end is short.

    ``--dist worksteal`` cuts the tests into one stretch for each worker, and moves tests from the end of a stretch to
    whoever is done. A file's tests stay together, for the fixtures they share.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    long = dict.fromkeys(item for start in LONG for item in items if item.nodeid.startswith(start))
    groups = groupby(long, lambda item: item.nodeid if item.nodeid.startswith(_PAGE) else item.path)
    shares = [list(group) for _, group in groups]
    short = iter([item for item in items if item not in long])
    spread: list[pytest.Item] = []
    for worker in range(workers):
        stretch = (len(items) - len(spread)) // (workers - worker)
        share = list(chain.from_iterable(shares[worker::workers]))
        spread += [*share, *islice(short, max(0, stretch - len(share)))]
    items[:] = [*spread, *short]


def pytest_configure() -> None:
    # What is read before the first test stays to the end: looking for what can go takes as long as reading it.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


class Outcome(NamedTuple):
    """What one call of the command line did."""

    code: int
    out: str
    err: str

    def refused(self, *parts: str) -> Outcome:
        """Assert exit code 2, one clean message on stderr with all the parts, and nothing on stdout."""
        assert self.code == 2, self
        assert self.out == ""
        assert "Traceback" not in self.err
        assert all(line.isprintable() for line in self.err.splitlines())
        for part in parts:
            assert part in self.err, (part, self.err)
        return self


def files_of(folder: Path) -> dict[str, bytes]:
    """Return what the files below a folder hold, by their path in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, by column."""
    with path.open(newline="", encoding="utf-8-sig") as stream:
        return list(csv.DictReader(stream))


@functools.cache
def built_commands() -> Any:
    """Return the commands of ``planner`` as Typer builds them: a tenth of a second, which a program pays once."""
    from typer.main import get_command  # noqa: PLC0415 - tests of pure functions need no command line

    from planner.cli.app import app  # noqa: PLC0415 - as above

    return get_command(app)


Planner = Callable[..., Outcome]
WriteScenario = Callable[..., Path]


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def tiny() -> str:
    return TINY


@pytest.fixture
def write(tmp_path: Path) -> WriteScenario:
    """Write text or bytes to a file in the test's folder."""

    def writer(content: str | bytes = TINY, name: str = "tiny.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return writer


@pytest.fixture
def run(write: WriteScenario) -> Callable[..., Any]:
    """Simulate the tiny scenario with overrides."""
    from planner.run.simulate import simulate  # noqa: PLC0415 - as below
    from planner.scenario.loading import load_scenario  # noqa: PLC0415 - as below

    return lambda *overrides, seed=1: simulate(load_scenario(write(), overrides), seed=seed)


@pytest.fixture
def planner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Planner:
    """Call ``planner ARGUMENTS`` in this process, inside the test's folder."""
    from planner.cli.app import main  # noqa: PLC0415 - tests of pure functions need no command line

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("planner.cli.app.app", built_commands())

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["planner", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main()
        out, err = capsys.readouterr()
        code = leaving.value.code
        return Outcome(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    return call


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site of the docs, where MkDocs is installed, and return its folder."""
    pytest.importorskip("material", reason="no MkDocs here: pip install -e '.[docs]'")
    target = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    done = subprocess.run(
        [*build, str(target)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target
