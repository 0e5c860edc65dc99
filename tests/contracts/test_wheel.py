from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_wheel_carries_the_catalogue(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(root / "planner", source / "planner", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    if done.returncode and "setuptools" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no package index at hand to fetch the build backend from")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    shipped = {path.relative_to(root).as_posix() for path in (root / "planner").rglob("*.y*ml")}
    assert {"planner/catalog/accelerators.yaml", "planner/catalog/articles-2024.yaml", "planner/py.typed"} <= held
    assert shipped <= held
    assert {path.relative_to(root).as_posix() for path in (root / "planner").rglob("*.py")} <= held
    assert not [name for name in held if name.startswith(("tests/", "scenarios/"))]
