"""The terminal: options that commands share, progress on stderr, answers on stdout."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from planner.api import Stopped
from planner.errors import printable
from planner.files import ALLOW_CODE, json_text

if TYPE_CHECKING:
    from planner.answers.answer import Answer
    from planner.studies.runner import Progress, Watch

ScenarioFile = Annotated[Path, Argument(metavar="SCENARIO", help="Scenario file (YAML).")]
_SET = "Change one value of the scenario, e.g. clusters.h200.nodes=80 or clusters.*.nodes=80; repeatable, last wins."
Overrides = Annotated[list[str] | None, Option("--set", metavar="PATH=VALUE", help=_SET)]
Seed = Annotated[
    int | None, Option(min=0, help="Root of all random numbers [default: the scenario's].")
]
_STRICT = "Take every warning as an error: figures nobody means, dates without effect."
Strict = Annotated[bool, Option("--strict", help=_STRICT)]


def _allow_code(context: typer.Context, is_allowed: bool) -> bool:
    """Let code of files run, for as long as the command does."""
    if is_allowed:
        os.environ[ALLOW_CODE] = "1"
        context.call_on_close(functools.partial(os.environ.pop, ALLOW_CODE, None))
    return is_allowed


AllowCode = Annotated[
    bool,
    Option(
        "--allow-code",
        callback=_allow_code,
        help="Run the Python files that scenarios name: read them first.",
    ),
]
_OVERLAY = "Your own catalogue file, laid over the shipped one."
Overlay = Annotated[Path | None, Option("--overlay", metavar="FILE", help=_OVERLAY)]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
Verbose = Annotated[
    bool, Option("--verbose", "-v", help="Print all there is to say, not the first screen alone.")
]
FailOnMiss = Annotated[
    bool, Option("--fail-on-miss", help="Exit with status 3 unless an SLO target is MET.")
]
NOT_MET = 3
"""Exit status of --fail-on-miss."""

_TOLD = 20  # lines of a kind that a terminal is given; a sweep may have thousands
_COLOURS = {"red": "31", "yellow": "33"}


def laid_over(overrides: list[str] | None, overlay: Path | None) -> list[str]:
    """Return what is laid over a scenario, an own catalogue among it."""
    return [*(overrides or ()), *([] if overlay is None else [f"catalog.overlay={overlay}"])]


def out_option(name: str) -> Any:
    """Return the option that says where a folder goes, by default one of such a name under outputs."""
    return Option(metavar="DIR", help=f"Output folder [default: outputs/{name}].")


def paint(text: str, colour: str) -> str:
    """Return the text in a colour where standard error is a terminal with colours and the user has not refused them.

    NO_COLOR is obeyed as no-color.org asks: present and not empty.
    """
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def say(text: str) -> None:
    """Write a line to standard error; what kind of line it is, in colour."""
    kind, colon, rest = text.partition(":")
    print(
        f"{paint(kind + colon, 'yellow')}{rest}" if kind in ("note", "warning") else text,
        file=sys.stderr,
    )


def tell(
    answer: Answer[Any],
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool = False,
    more: str = "",
    begun: str = "",
) -> str:
    """Print an answer, its warnings and notes, then JSON, or a table and where its files are; return its text.

    Where its text has ``begun`` to be printed, only the rest is.
    """
    told = {"warning": answer.warnings, "note": answer.notes if verbose else ()}
    for kind, lines in told.items() if not (quiet or begun) else ():
        for line in lines[:_TOLD]:
            say(f"{kind}: {line}")
        if len(lines) > _TOLD:
            say(f"{kind}: and {len(lines) - _TOLD} more in the report")
    text = "" if as_json or quiet else answer.text(verbose=verbose) + "\n"
    if as_json:
        typer.echo(json_text(answer.summary()), nl=False)
    elif not quiet:
        place = f"\n\nresults in {printable(str(answer.folder))}{more}" if answer.is_written else ""
        typer.echo(f"{text.removeprefix(begun)[:-1]}{place}")
    return text


def show_files(
    content: dict[str, Any], written: Sequence[Path], *, as_json: bool, quiet: bool
) -> None:
    """Print which files were written, as JSON or a line each."""
    lines = "\n".join(f"wrote {printable(str(path))}" for path in written)
    if as_json or (written and not quiet):
        typer.echo(json_text(content) if as_json else f"{lines}\n", nl=False)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C, or a polite order to end (of a batch system, of a closed terminal), stop work that can be resumed."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    kinds = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heeded = [kind for kind in kinds if signal.getsignal(kind) is signal.SIG_DFL]
    for kind in heeded:
        signal.signal(kind, stop)
    try:
        yield
    except Stopped as stopped:
        words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
        print(
            f"{stopped}; continue with:\n  {shlex.join(['planner', *words, '--resume'])}",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    finally:
        for kind in heeded:
            signal.signal(kind, signal.SIG_DFL)


def show_stage(text: str) -> None:
    """Show what a run is at in one line of a terminal, over the last; elsewhere what is simulated, and no more.

    A library's bar takes longer to load than a stage to do, and has a thread that a fork would lack.
    """
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
    elif text.startswith("simulating"):
        print(text, file=sys.stderr)


@contextlib.contextmanager
def watching(*, quiet: bool) -> Iterator[Watch | None]:
    """Show a bar on standard error with rate, time left and the headline's interval, where someone is looking."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.speed or 0.0:,.0f}/s")

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[interval]}"),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, interval="")

        def watch(progress: Progress) -> None:
            near = progress.interval
            text = "" if near is None else f"{near.value:.4g} ± {near.half_width:.2g}"
            bar.update(task, total=progress.total, completed=progress.done, interval=text)

        yield watch
