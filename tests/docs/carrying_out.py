"""Carrying out the steps of a page in a folder that looks like a fresh checkout."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from docs.generate.navigation import tutorial_pages
from planner.cli.app import main
from tests.conftest import built_commands
from tests.docs.blocks import Output, Step, steps
from tests.docs.figures import Correction, judge

ROOT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(
    ".*", "planner", "tests", "outputs", "site", "build", "dist", "*.egg-info"
)
_MAKE = re.compile(r"^make((?: [\w-]+)*)$")
_PLANNER = re.compile(
    r"^planner ([^|;&<>$`]*)(?:> ([\w./-]+))? ?(?:(\||;|&&|\|\|) (.*))?$", re.DOTALL
)
"""A call of the planner, the file that its output goes to, and how the shell goes on."""
_LINE = re.compile(r"^(planner (?:.*\\\n)*.*\n)", re.MULTILINE)
"""A call of the planner in a script."""
_LIMIT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a step."""

    step: Step
    exit_code: int
    printed: tuple[str, ...]
    """Both streams, without trailing spaces and blank lines at the end."""
    is_compared: bool = True
    corrections: tuple[Correction, ...] = ()
    """Figures of the prose that the run does not give any more."""


def pages() -> list[Path]:
    """Return README.md and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def courses() -> list[list[Path]]:
    """Return the pages that are followed in a row and in one folder: README and the tutorial's first page, its others.

    The others need none of what the first page writes, so two workers of the tests can share the tutorial.
    """
    first, *others = [ROOT / "docs" / name for name in tutorial_pages(ROOT / "docs")]
    readme, *further = pages()
    alone = [[page] for page in further if page not in (first, *others)]
    return [*alone, [readme, first], others]


def copy_checkout(target: Path) -> None:
    """Copy what a reader finds in a checkout; the package itself is the installed one."""
    shutil.copytree(ROOT, target, ignore=_LEFT_OUT)
    (target / "outputs").mkdir()


def carry_out(
    text: str, folder: Path, done: dict[str, Outcome] | None = None, *, is_whole: bool = True
) -> Iterator[Outcome]:
    """Carry out the steps of a page in a copy of the checkout, in order; long ones where it ``is_whole``.

    Python, and the planner where a shell need not call it, run in this process: it has read their code. A command that
    was the last to be carried out, which ``done`` tells from page to page, is not carried out again.
    """
    done = {} if done is None else done
    names: dict[str, Any] = {"__name__": "__main__"}
    for step in steps(text):
        if step.is_long and not is_whole:
            continue
        if step.content in done:
            yield replace(done[step.content], step=step)
            continue
        if step.kind == "figures":
            corrections, problems = judge(step, text, folder)
            yield Outcome(
                step=step,
                exit_code=int(bool(problems)),
                printed=tuple(problems),
                corrections=tuple(corrections),
            )
            continue
        last = dict(done)
        done.clear()
        match step.kind:
            case "file":
                (folder / step.name).parent.mkdir(parents=True, exist_ok=True)
                (folder / step.name).write_text(step.content, encoding="utf-8")
            case "python":
                yield _python(step, names, folder)
            case "script":
                yield _script(step, folder)
            case _:
                outcome = _command(step, folder)
                done |= (
                    {step.content: outcome} if outcome.is_compared else last
                )  # what is not run changes nothing
                yield outcome


def _command(step: Step, folder: Path) -> Outcome:
    made = _MAKE.match(step.content)
    if made is None:
        return _shell(step, step.content, folder)
    recipes = makefile_recipes((folder / "Makefile").read_text(encoding="utf-8"))
    unknown = [target for target in made[1].split() if target not in recipes]
    if unknown:
        return Outcome(
            step=step, exit_code=2, printed=(f"the Makefile has no target {unknown[0]}",)
        )
    recipe = [line for target in made[1].split() for line in recipes[target]]
    if not all(line.startswith("$(BIN)/planner ") for line in recipe):
        return Outcome(step=step, exit_code=0, printed=(), is_compared=False)
    printed: list[str] = []
    exit_code = 0
    for (
        line
    ) in recipe:  # what make would print and do, without building an environment inside the tests
        outcome = _shell(step, line.removeprefix("$(BIN)/"), folder)
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
    kept = {
        name: os.environ[name]
        for name in ("LANG", "TMPDIR", "SYSTEMROOT", "PYTHONPATH")
        if name in os.environ
    }
    return {
        **kept,
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        ),
        "HOME": str(folder),
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _script(step: Step, folder: Path) -> Outcome:
    """Carry out a script; what stands between two calls of the planner has a shell of its own."""
    printed: list[str] = []
    for part in filter(str.strip, _LINE.split(step.content)):
        if _LINE.match(part):
            outcome = _shell(step, part.replace("\\\n", "").strip(), folder)
        else:
            outcome = _run(step, ["sh", "-ec", part], folder)
        printed += outcome.printed
        if outcome.exit_code:
            break
    return Outcome(step=step, exit_code=outcome.exit_code, printed=tuple(printed))


def _shell(step: Step, command: str, folder: Path) -> Outcome:
    """Give a command to a shell, but the planner's own, with its words as the shell reads them, to this process."""
    plain = _PLANNER.match(command)
    if plain is None:
        return _run(step, ["sh", "-c", command], folder)
    given, target, then, rest = plain.groups()
    words = _output(["sh", "-c", f"printf '%s\\0' {given}"], folder)[1].decode().split("\0")[:-1]

    def call() -> None:
        with (
            mock.patch("planner.cli.app.app", built_commands()),
            mock.patch.object(sys, "argv", ["planner", *words]),
        ):
            main()

    exit_code, out, err = here(call, folder, apart=target is not None or then == "|")
    if target is not None:
        (folder / target).write_bytes(out)
        out = b""
    if then == "|":
        exit_code, out = _output(["sh", "-c", rest], folder, out)
    elif then is not None:
        exit_code, more = _output(["sh", "-c", f"(exit {exit_code}) {then} {rest}"], folder)
        out += more
    return Outcome(
        step=step, exit_code=exit_code, printed=_trimmed((err + out).decode().splitlines())
    )


def _python(step: Step, names: dict[str, Any], folder: Path) -> Outcome:
    def carry_on() -> None:
        exec(compile(step.content, "block", "exec"), names)

    exit_code, out, _ = here(carry_on, folder)
    return Outcome(step=step, exit_code=exit_code, printed=_trimmed(out.decode().splitlines()))


def here(work: Callable[[], None], folder: Path, apart: bool = False) -> tuple[int, bytes, bytes]:
    """Do something in this process as in one of its own: exit code and streams, those two in one if not apart."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) if apart else out
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment(folder), clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ResourceWarning)  # as Python does outside the tests
        code: object = 0
        try:
            work()
        except SystemExit as leaving:
            code = leaving.code or 0
        except Exception:
            traceback.print_exc()
            code = 1
    printed = [stream.buffer.getvalue() for stream in (out, err)]
    return code if isinstance(code, int) else 1, printed[0], printed[1] if apart else b""


def _run(step: Step, arguments: list[str], folder: Path) -> Outcome:
    exit_code, printed = _output(arguments, folder)
    return Outcome(step=step, exit_code=exit_code, printed=_trimmed(printed.decode().splitlines()))


def _output(arguments: list[str], folder: Path, given: bytes = b"") -> tuple[int, bytes]:
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=environment(folder),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def shown(output: Output) -> tuple[str, ...]:
    """Return what a page shows, trimmed as what was printed is."""
    return _trimmed(list(output.lines))
