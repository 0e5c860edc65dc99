"""The core stands without its outbuildings: each goes with its folder, its command and the lines that name it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import planner
from tests.conftest import TINY

OUTBUILDINGS = {
    "requests": ("zoom",),
    "actuals": ("actuals",),
    "memo": ("memo",),
    "onramp": ("init",),
    "calibration": ("throughput",),
    "ui": ("ui",),
    "mcp": ("mcp",),
}
"""Rooms that could be deleted, and the files of the command line that are theirs."""
NAMES = {"init", "check_benchmarks", "calibrate"} | {
    name for names in OUTBUILDINGS.items() for name in (names[0], *names[1])
}
DOORS = ("__init__.py", "api.py", "cli/app.py")
"""Files that name an outbuilding, a line for each."""


def without_outbuildings(target: Path) -> None:
    """Copy the package, and take its outbuildings out of it."""
    shutil.copytree(Path(planner.__file__).parent, target)
    for room, commands in OUTBUILDINGS.items():
        shutil.rmtree(target / room)
        for command in commands:
            (target / "cli" / f"{command}.py").unlink()
    for door in DOORS:
        lines = (target / door).read_text().splitlines(keepends=True)
        kept = [line for line in lines if not names_outbuilding(line)]
        (target / door).write_text("".join(kept))


def names_outbuilding(line: str) -> bool:
    """Return whether a line imports, lists or exports something of an outbuilding."""
    imported = re.match(r"from planner\.(\w+)[. ]", line)
    if imported and imported[1] in OUTBUILDINGS:
        return True
    listed = re.match(r'\s+"?(?:planner\.)?(\w+)"?(\.\w+)?[,:]', line)
    return listed is not None and listed[1] in NAMES


def run_files(package: Path, scenario: Path, out: Path) -> dict[str, bytes]:
    """Return what ``planner run`` of a package writes, but for the manifest, which names the program's own hash."""
    program = "from planner.cli.app import main; main()"
    words = ("run", scenario, "-n", "1", "--set", "horizon_months=2", "--out", out, "-q")
    subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        check=True,
        cwd=package.parent,
        env={"PYTHONPATH": str(package.parent)},
    )
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != "manifest.json"}


@pytest.mark.slow
def test_a_run_is_the_same_without_the_outbuildings(tmp_path: Path) -> None:
    scenario = tmp_path / "tiny.yaml"
    scenario.write_text(TINY)
    core = tmp_path / "core" / "planner"
    without_outbuildings(core)
    files = run_files(core, scenario, tmp_path / "alone")
    assert files == run_files(Path(planner.__file__).parent, scenario, tmp_path / "whole")
    assert {"report.html", "workbook.xlsx", "ledger.csv"} <= set(files)
