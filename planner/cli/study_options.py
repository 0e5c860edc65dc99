"""Options that the study commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

StudyFile = Annotated[
    Path,
    typer.Argument(
        metavar="STUDY",
        help="Study file (YAML), or a scenario: then the catalogue's priors are drawn.",
        show_default=False,
    ),
]
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


def answer_study(
    study: Path, number: int | None, out: Path | None, *, as_json: bool, quiet: bool, **asked: Any
) -> None:
    """Run a study, stoppable and with its progress shown, and print its answer."""
    from planner.cli.progress import say, stoppable, tell, watching
    from planner.verbs import study as run_study

    written = asked.get("method") != "importance"  # which reads what a study wrote, and writes nothing
    with stoppable(command_again()), watching(quiet=quiet) as watch:
        answer = run_study(study, number, out, **asked, progress=say(quiet=quiet), watch=watch)
    tell(answer, as_json=as_json, quiet=quiet, written=written)


def command_again(*, add: tuple[str, ...] = ("--resume",)) -> str:
    """Return the command line that was called, with options added."""
    import shlex

    words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
    return shlex.join(["planner", *words, *add])
