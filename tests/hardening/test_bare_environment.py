"""No home, no locale, no UTF-8, no PATH: the same bytes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

import planner
from tests.conftest import TINY, files_of

PLAIN_C = {
    "LANG": "C",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "HOME": "/nowhere",
}
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "nothing at all, not even a home": {},
    "plain C": PLAIN_C,
    "decimal commas, Latin-1, another zone": {
        "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "PYTHONIOENCODING": "latin-1", "TZ": "Pacific/Kiritimati",
    },
}  # fmt: skip


def run(
    arguments: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "planner.cli.app", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("usual")
    (folder / "tiny.yaml").write_text(TINY)
    with contextlib.chdir(folder):
        planner.run("tiny.yaml", "o", replications=2)
    return folder


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_surroundings_do_not_show(usual: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    done = run(["run", "tiny.yaml", "-n", "2", "--out", "o"], tmp_path, ENVIRONMENTS[name])
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert files_of(tmp_path / "o") == files_of(usual / "o")
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "o"}


def test_an_error_in_plain_c_is_readable(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("name: Zürich\nstart: später\n", encoding="utf-8")
    done = run(["run", "x.yaml"], tmp_path, PLAIN_C)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert done.stderr.isascii()
