"""Carrying out the steps of a page in a folder that looks like a fresh checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.generate.navigation import tutorial_pages
from tests.docs.blocks import Output, Step, steps

ROOT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(".*", "planner", "tests", "outputs", "site", "build", "dist", "*.egg-info")
_MAKE = re.compile(r"^make((?: [\w-]+)*)$")
_LIMIT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a step."""

    step: Step
    exit_code: int
    printed: tuple[str, ...]
    """Both streams, without trailing spaces and blank lines at the end."""
    is_compared: bool = True


def pages() -> list[Path]:
    """Return README.md and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def courses() -> list[list[Path]]:
    """Return the pages by how a reader follows them: the tutorial's in a row and in one folder, the others alone."""
    tutorial = [ROOT / "docs" / name for name in tutorial_pages(ROOT / "docs")]
    return [*([page] for page in pages() if page not in tutorial), tutorial]


def copy_checkout(target: Path) -> None:
    """Copy what a reader finds in a checkout; the package itself is the installed one."""
    shutil.copytree(ROOT, target, ignore=_LEFT_OUT)
    (target / "outputs").mkdir()


def carry_out(text: str, folder: Path) -> Iterator[Outcome]:
    """Carry out the steps of a page in a copy of the checkout, in order."""
    earlier = ""
    for step in steps(text):
        match step.kind:
            case "file":
                (folder / step.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / step.name).write_text(step.content, encoding="utf-8")
            case "python":
                # Compiled apart, so that a traceback names the block's own lines.
                muted = (
                    f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    exec({earlier!r})\n"
                )
                yield _run(
                    step, [sys.executable, "-c", muted + f"exec(compile({step.content!r}, 'block', 'exec'))"], folder
                )
                earlier += step.content
            case "script":
                yield _run(step, ["sh", "-ec", step.content], folder)
            case _:
                yield _command(step, folder)


def _command(step: Step, folder: Path) -> Outcome:
    made = _MAKE.match(step.content)
    if made is None:
        return _run(step, ["sh", "-c", step.content], folder)
    recipes = makefile_recipes((folder / "Makefile").read_text(encoding="utf-8"))
    unknown = [target for target in made[1].split() if target not in recipes]
    if unknown:
        return Outcome(step=step, exit_code=2, printed=(f"the Makefile has no target {unknown[0]}",))
    recipe = [line for target in made[1].split() for line in recipes[target]]
    if not all(line.startswith("$(BIN)/planner ") for line in recipe):
        return Outcome(step=step, exit_code=0, printed=(), is_compared=False)
    printed: list[str] = []
    exit_code = 0
    for line in recipe:  # what make would print and do, without building an environment inside the tests
        outcome = _run(step, ["sh", "-c", line.removeprefix("$(BIN)/")], folder)
        printed += [line.replace("$(BIN)", ".venv/bin"), *outcome.printed]
        exit_code = exit_code or outcome.exit_code
    return Outcome(step=step, exit_code=exit_code, printed=tuple(printed))


def makefile_recipes(makefile: str) -> dict[str, list[str]]:
    """Return the recipe lines of each plainly named target."""
    recipes: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in makefile.splitlines():
        if line.startswith("\t") and current is not None:
            current.append(line.strip())
        elif (target := re.match(r"^([a-z][\w-]*):(?!=)", line)) is not None:
            current = recipes.setdefault(target[1], [])
        elif line.strip():
            current = None
    return recipes


def environment(folder: Path) -> dict[str, str]:
    """Return the surroundings of what is carried out: this Python, a plain terminal, the folder as home."""
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "SYSTEMROOT", "PYTHONPATH") if name in os.environ}
    return {
        **kept,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "HOME": str(folder),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _run(step: Step, arguments: list[str], folder: Path) -> Outcome:
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_LIMIT_S,
        check=False,
    )
    return Outcome(step=step, exit_code=done.returncode, printed=_trimmed(done.stdout.decode().splitlines()))


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def shown(output: Output) -> tuple[str, ...]:
    """Return what a page shows, trimmed as what was printed is."""
    return _trimmed(list(output.lines))
