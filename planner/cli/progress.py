"""What a command says: progress and warnings on stderr, a bar on a terminal, answers on stdout; less when quiet."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from planner.answers import Answer
    from planner.studies.runner import Progress

_TOLD = 20  # lines of a kind that a terminal is given; a sweep may have thousands

_COLOURS = {"red": "31", "yellow": "33", "bold": "1"}


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Return the text in a colour where the stream is a terminal that shows colours and the user has not refused them.

    NO_COLOR is obeyed as no-color.org asks: present and not empty.
    """
    target = sys.stderr if stream is None else stream
    if not target.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def say(*, quiet: bool) -> Callable[[str], None]:
    """Return what a verb tells of its progress to: lines on standard error, their kind in colour."""

    def line(text: str) -> None:
        kind, colon, rest = text.partition(":")
        shown = f"{paint(kind + colon, 'yellow')}{rest}" if kind in ("note", "warning") else text
        if not quiet:
            print(shown, file=sys.stderr)

    return line


def _warn(answer: Answer, line: Callable[[str], None]) -> None:
    """Print what a reader of the answer should know."""
    for kind, lines in (("warning", answer.warnings), ("note", answer.notes)):
        for warning in lines[:_TOLD]:
            line(f"{kind}: {warning}")
        if len(lines) > _TOLD:
            line(f"{kind}: and {len(lines) - _TOLD} more in the report")


def do(verb: str, given: dict[str, Any], progress: Callable[[str], None] | None = None) -> Answer:
    """Do what a command asks by the verb of its name, which takes the command's options by the same names."""
    from planner import verbs

    asked = {name: option for name, option in given.items() if option is not None and name not in ("as_json", "quiet")}
    answer: Answer = getattr(verbs, verb)(**asked, progress=progress or say(quiet=given["quiet"]))
    return answer


def tell(answer: Answer, *, as_json: bool, quiet: bool, written: bool = True, more: str = "") -> None:
    """Print an answer: its warnings and notes, then JSON, or a table and where its files are."""
    from planner.errors import printable
    from planner.files import json_text

    _warn(answer, say(quiet=quiet))
    if as_json:
        typer.echo(json_text(answer.summary()), nl=False)
    elif not quiet:
        typer.echo(answer.text(sys.stdout.encoding or "ascii"))
        if written:
            typer.echo(f"\nresults in {printable(str(answer.folder))}{more}")


@contextlib.contextmanager
def stoppable(again: str) -> Iterator[None]:
    """Let Ctrl-C or an order to end stop a sweep or a study, and say how it goes on."""
    from planner.verbs import Stopped

    try:
        with _stopped_by_signals():
            yield
    except Stopped as stopped:
        print(f"{stopped}; continue with:\n  {again}", file=sys.stderr)
        raise typer.Exit(130) from None


@contextlib.contextmanager
def stages(title: str, count: int, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the stages of a command; the function that is handed out begins the next one."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _line(title, count)
    else:
        told = [f"simulating {title}"]  # once, when the first stage begins: nothing is said of a run that is refused

        def begin(_: str) -> None:
            while told:
                print(told.pop(), file=sys.stderr)

        yield begin


def _line(title: str, count: int) -> Iterator[Callable[[str], None]]:
    """Keep one line of a terminal that names the stage, and take it away when the command is done.

    A library's bar takes longer to load than a stage to do, and has a thread that a fork would lack.
    """
    begun = 0

    def begin(stage: str) -> None:
        nonlocal begun
        begun += 1
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[K{f'{title}: {stage} ({begun} of {count})'[:width]}", end="", file=sys.stderr, flush=True)

    try:
        yield begin
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let a polite order to end (of a batch system, of a closed terminal) stop a study as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    kinds = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {kind: signal.signal(kind, stop) for kind in kinds if signal.getsignal(kind) is signal.SIG_DFL}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextlib.contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Show a bar on standard error with rate, time left and the headline's interval, where someone is looking."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.speed or 0.0:,.0f}/s")

    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), TextColumn("{task.fields[interval]}"))
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None, interval="")

        def watch(progress: Progress) -> None:
            text = ""
            if progress.interval is not None:
                text = f"{progress.interval.value:.4g} ± {progress.interval.half_width:.2g}"
            bar.update(task, total=progress.total, completed=progress.done, interval=text)

        yield watch
