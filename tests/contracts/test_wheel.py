"""The wheel: what it carries, and that it works in an empty environment, from a folder that is no checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import planner as library
from tests.conftest import ROOT, Planner, WriteScenario

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "planner", source / "planner", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--quiet",
        "--wheel-dir",
        str(folder),
    ]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if (
        done.returncode
        and "setuptools" in done.stderr
        and "No matching distribution" in done.stderr
    ):
        pytest.skip("no package index at hand to fetch the build backend from")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_carries_the_catalogue(wheel: Path, root: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    shipped = {path.relative_to(root).as_posix() for path in (root / "planner").rglob("*.y*ml")}
    assert {
        "planner/catalog/accelerators.yaml",
        "planner/catalog/articles-2024.yaml",
        "planner/py.typed",
    } <= held
    assert shipped <= held
    assert {path.relative_to(root).as_posix() for path in (root / "planner").rglob("*.py")} <= held
    assert not [name for name in held if name.startswith(("tests/", "scenarios/"))]


def test_the_wheel_works_in_an_empty_environment(
    wheel: Path, tmp_path: Path, planner: Planner, write: WriteScenario
) -> None:
    assert wheel.name.split("-")[1] == library.__version__
    venv.create(tmp_path / "empty")
    target = next((tmp_path / "empty").glob("lib*/python3*/site-packages"))
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--target",
        str(target),
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    # The libraries it needs are lent by path: this environment's own entries, its checkout among them, are not read.
    (target / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = tmp_path / "empty" / "bin" / "python"

    def call(*words: str) -> str:
        command = [str(python), "-W", "error", "-m", "planner.cli.app", *words]
        done = subprocess.run(command, cwd=tmp_path, env={"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True,
                              check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    write()
    where = [str(python), "-c", "import planner; print(planner.__file__)"]
    assert Path(
        subprocess.check_output(where, cwd=tmp_path, env={}, text=True).strip()
    ).is_relative_to(target)
    assert call("--version") == f"planner {library.__version__}\n"
    call("run", "tiny.yaml", "--replications", "1", "--out", "of-the-wheel")
    assert planner("run", "tiny.yaml", "--replications", "1", "--out", "of-the-checkout").code == 0
    for file in (tmp_path / "of-the-checkout").iterdir():
        assert (tmp_path / "of-the-wheel" / file.name).read_bytes() == file.read_bytes(), file.name
