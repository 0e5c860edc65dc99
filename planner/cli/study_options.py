"""Options and running that the study commands share."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.colour import paint

if TYPE_CHECKING:
    from planner.studies.prepare import Prepared
    from planner.studies.runner import Goal, Progress, Workforce
    from planner.studies.store import Store
    from planner.studies.work import Work

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file (YAML).", show_default=False)]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>].")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=1024, help="Worker processes [default: one per core].")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run on the Dask cluster at tcp://HOST:PORT, or local-dask to start one here.",
        show_default=False,
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what was interrupted; extend a finished study.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew where unfinished work lies.")]


def workforce(workers: int | None, scheduler: str | None) -> Workforce:
    """Return who runs a study, by the options."""
    from planner.errors import ScenarioError
    from planner.studies.engines import LOCAL_DASK
    from planner.studies.runner import Workforce

    if scheduler is not None and scheduler != LOCAL_DASK and "://" not in scheduler:
        raise ScenarioError(f"--scheduler must be an address such as tcp://10.0.0.5:8786, or local-dask: {scheduler!r}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Workforce(workers=workers or cores, scheduler=scheduler)


def run_watched(store: Store, goal: Goal, force: Workforce, *, quiet: bool, again: str) -> int:
    """Run a study under a progress bar; an interrupt leaves it resumable and says how."""
    from planner.studies.runner import run_rows

    say_notes(store, quiet=quiet)
    try:
        with stopped_by_signals(), _watching(quiet=quiet) as watch:
            return run_rows(store, goal, force, watch)
    except KeyboardInterrupt:
        store.close()
        rows = sum(last - first for first, last in store.finished())
        print(
            f"stopped with {min(rows, goal.rows):,} of {goal.rows:,} replications kept; continue with:", file=sys.stderr
        )
        print(f"  {again}", file=sys.stderr)
        raise typer.Exit(130) from None


def say_notes(work: Work, *, quiet: bool) -> None:
    """Say what was found in the folder: a lock taken over, damaged files."""
    from planner.errors import printable

    for note in work.notes if not quiet else ():
        print(f"{paint('note:', 'yellow')} {printable(note)}", file=sys.stderr)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
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
def _watching(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
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


def command_of(verb: str, prepared: Prepared, asked: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the command that makes the same study again, whatever it was resumed from and whoever ran it."""
    from planner.reporting.folder import command_line
    from planner.reporting.uncertain_inputs import study_file

    return command_line(verb, [study_file(prepared.study)], [*asked, "--seed", str(prepared.seed)], overrides)


def command_again(*, add: tuple[str, ...] = ("--resume",)) -> str:
    """Return the command line that was called, with options added."""
    import shlex

    words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
    return shlex.join(["planner", *words, *add])
