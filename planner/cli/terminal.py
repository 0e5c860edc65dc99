"""The terminal: progress on stderr, answers on stdout, and work that can be stopped."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from planner import api
from planner.errors import printable
from planner.files import json_text
from planner.progress import silent
from planner.records import record

if TYPE_CHECKING:
    from planner.answers.answer import Answer
    from planner.studies.runner import Progress, Watch

NOT_MET = 3
"""Exit status of --fail-on-miss."""
REPORT_HINT = "/report.html; more: -v"
"""Ends the line that says where the results are, for commands with a first screen."""
_LINES_PRINTED = 20
"""Warnings, and notes, that a terminal gets: a sweep may have thousands."""
_COLOUR_CODES = {"red": "31", "yellow": "33"}


def paint(text: str, colour: str) -> str:
    """Return the text in a colour where standard error is a terminal with colours and the user has not refused them.

    NO_COLOR is obeyed as no-color.org asks: present and not empty.
    """
    is_refused = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if is_refused or not sys.stderr.isatty():
        return text
    return f"\x1b[{_COLOUR_CODES[colour]}m{text}\x1b[0m"


def print_line(text: str) -> None:
    """Write a line to standard error; the word "note" or "warning" before its colon is in colour."""
    severity, colon, message = text.partition(":")
    if severity in ("note", "warning"):
        text = f"{paint(severity + colon, 'yellow')}{message}"
    print(text, file=sys.stderr)


def print_stage(text: str, *, each: bool = False) -> None:
    """Show the stage of a run in one line of a terminal, over the stage before.

    Elsewhere only what is simulated is a line, or ``each`` stage.

    A library's bar takes longer to load than a stage to do, and has a thread that a fork would lack.
    """
    if sys.stderr.isatty():
        # A line as wide as the terminal would wrap, and the next stage could not erase all of it.
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)
    elif text.startswith("simulating") or (each and text):
        print(text, file=sys.stderr, flush=True)


def print_files(
    content: dict[str, Any], paths: Sequence[Path], *, as_json: bool, quiet: bool
) -> None:
    """Print which files were written, as JSON or a line each."""
    if as_json:
        typer.echo(json_text(content), nl=False)
    elif not quiet:
        for path in paths:
            typer.echo(f"wrote {printable(str(path))}")


@record
class Screen:
    """How a command prints its progress and its answer, as its options ask."""

    as_json: bool
    quiet: bool
    verbose: bool

    @property
    def progress(self) -> Callable[[str], None]:
        """What prints a line of progress."""
        return silent if self.quiet else print_line

    def print_answer(
        self,
        answer: Answer[Any],
        *,
        hint: str = "",
        printed: str = "",
        fail_on_miss: bool = False,
    ) -> str:
        """Print an answer's warnings, then its JSON, or its text, where its files are and its notes; return the text.

        ``printed`` is how the text begins where that much stands on the screen already: its
        warnings do too. ``hint`` ends the line that says where the files are. With ``fail_on_miss``
        the command ends with its own status unless an SLO target is met.
        """
        # The first screen has printed them with the base replication.
        if not self.quiet and not printed:
            _print_remarks("warning", answer.warnings)
        text = ""
        if self.as_json:
            typer.echo(json_text(answer.summary()), nl=False)
        elif not self.quiet:
            text = answer.text(verbose=self.verbose) + "\n"
            place = ""
            if answer.is_written:
                place = f"\nresults in {printable(str(answer.folder))}{hint}"
            # The text begins as the first screen did: only the rest is printed.
            typer.echo(f"{text.removeprefix(printed)[:-1]}{place}")
            # The answer first: notes are what a reader may want to check behind it.
            if self.verbose and answer.is_written:
                _print_remarks("note", answer.notes)
        # Last, so that whoever asks for the status has the answer too.
        if fail_on_miss and not answer.is_met():
            raise typer.Exit(NOT_MET)
        return text

    @contextlib.contextmanager
    def bar(self) -> Iterator[Watch | None]:
        """Show a bar on standard error with rate, time left and the objective's interval, where someone is looking."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        # Loaded where a bar is shown, and nowhere else: commands start faster without.
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

            def update(progress: Progress) -> None:
                estimate = progress.interval
                text = ""
                if estimate is not None:
                    text = f"{estimate.value:.4g} ± {estimate.half_width:.2g}"
                if progress.furthest is not None:
                    text += f"; {progress.furthest.words}"
                bar.update(task, total=progress.total, completed=progress.done, interval=text)

            yield update


def _print_remarks(severity: str, lines: Sequence[str]) -> None:
    """Print warnings or notes, each as a line of its own, and how many more there are."""
    for line in lines[:_LINES_PRINTED]:
        print_line(f"{severity}: {line}")
    if len(lines) > _LINES_PRINTED:
        print_line(f"{severity}: and {len(lines) - _LINES_PRINTED} more in the report")


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C, or a polite order to end (of a batch system, of a closed terminal), stop work that can be resumed."""

    # As Ctrl-C does, so that work is stored on one path alone.
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # Windows has no SIGHUP. What is not at its default was set by a parent, as nohup does: it stays.
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [getattr(signal, name) for name in names]
    handled = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    except api.Stopped as stopped:
        # The same command continues, whatever it was begun with.
        words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
        command = shlex.join(["planner", *words, "--resume"])
        print(f"{stopped}; continue with:\n  {command}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        # A program may call several commands: each leaves signals as it found them.
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
