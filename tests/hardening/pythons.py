"""``make pythons``: install into every Python from 3.11 on that is found here, and run what a user runs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
OLDEST = (3, 11)
NEWEST = (3, 20)
STUDY = (
    "name: s\nscenarios: {tiny: {extends: tiny.yaml}}\n"
    "uncertain: {site.pue_ratio: {kind: pert, low: 1.1, mode: 1.2, high: 1.5}}\n"
)
COMMANDS = (
    ("run", "reference.yaml", "--out", "run"),
    ("compare", "tiny.yaml", "dear.yaml", "--out", "compare"),
    ("montecarlo", "s.yaml", "-n", "8", "--workers", "1", "--out", "montecarlo"),
    ("sensitivity", "s.yaml", "-n", "4", "--workers", "1", "--out", "sensitivity"),
    *(
        (verb, folder)
        for verb in ("report", "charts")
        for folder in ("run", "compare", "montecarlo", "sensitivity")
    ),
)


def version_of(python: Path) -> tuple[int, int] | None:
    """Return the version of an interpreter that works and has what a virtual environment needs; None otherwise."""
    asked = "import sys, venv, ensurepip, ssl; print(*sys.version_info[:2])"
    try:
        told = subprocess.run(
            [str(python), "-c", asked], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.fullmatch(r"(\d+) (\d+)\s*", told.stdout)
    return (int(found[1]), int(found[2])) if found else None


def find_pythons(folders: Iterable[Path], installed: Path) -> dict[tuple[int, int], Path]:
    """Return one interpreter of each version from 3.11 on: pyenv's own first, then those in the folders."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    candidates = sorted(installed.glob("3.*/bin/python3")) + [f / n for f in folders for n in names]
    found: dict[tuple[int, int], Path] = {}
    for path in candidates:
        version = version_of(path) if path.is_file() else None
        if version is not None and version >= OLDEST:
            found.setdefault(version, path)
    return dict(sorted(found.items()))


def check(python: Path, folder: Path) -> str:
    """Install into a new environment, run every command with warnings as errors, and return the ledger's hash."""
    from tests.conftest import TINY  # noqa: PLC0415 - pytest's, and only this needs it

    subprocess.run([str(python), "-m", "venv", str(folder / "venv")], check=True)
    pip = [
        str(folder / "venv" / "bin" / "pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, str(ROOT)], check=True, stderr=subprocess.DEVNULL)
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "dear.yaml").write_text(
        TINY.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9")
    )
    (folder / "s.yaml").write_text(STUDY)
    shutil.copyfile(ROOT / "scenarios" / "mixed-fleet.yaml", folder / "reference.yaml")
    surroundings = {**os.environ, "PYTHONWARNINGS": "error", "OPENBLAS_NUM_THREADS": "1"}
    for command in COMMANDS:
        planner = [str(folder / "venv" / "bin" / "planner"), *command, "--quiet"]
        subprocess.run(planner, cwd=folder, env=surroundings, check=True)
    return hashlib.sha256((folder / "run" / "ledger.csv").read_bytes()).hexdigest()


def main() -> int:
    """Check every version found; print one line each, and fail where one does."""
    paths = [Path(path) for path in os.environ.get("PATH", "").split(os.pathsep)]
    found = find_pythons(paths, Path.home() / ".pyenv" / "versions")
    failed = 0
    for (major, minor), python in found.items():
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                ending = f"ledger.csv {check(python, Path(folder))[:16]}"
            except subprocess.CalledProcessError as error:
                ending = f"FAILED: {error}"
                failed = failed + 1
        print(f"{major}.{minor}  {time.monotonic() - begun:4.0f} s  {ending}", flush=True)
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
