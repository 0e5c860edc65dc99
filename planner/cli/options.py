"""Options and arguments that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def out_option(name: str) -> Any:
    """Return the option that says where a folder goes, by default one of such a name under outputs."""
    return typer.Option("--out", metavar="DIR", help=f"Output folder [default: outputs/{name}].")


ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change one value of the scenario, e.g. clusters.h200.nodes=80; repeatable, last wins.",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Root of all random numbers [default: the scenario's].")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Take every warning as an error: figures nobody means, dates without effect.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
DecimalComma = Annotated[bool, typer.Option("--decimal-comma", help="Write 1,5 and separate cells by ;.")]
ByteOrderMark = Annotated[bool, typer.Option("--bom", help="Begin CSV files with a UTF-8 byte order mark.")]

Draws = Annotated[
    int,
    typer.Option(
        "--replications",
        "--draws",
        min=1,
        max=10_000,
        metavar="N",
        help="Replications behind each interval; 19 hold nine in ten of further ones, 1 leaves intervals out.",
    ),
]


StudyFile = Annotated[
    Path,
    typer.Argument(metavar="STUDY", help="Study file (YAML), or a scenario: then the catalogue's priors are drawn."),
]
Out = Annotated[Path | None, out_option("<name>")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=1024, help="Worker processes [default: one per core].")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Run on the Dask cluster at tcp://HOST:PORT, or local-dask to start one here.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what was interrupted; extend a finished study.")]
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew where unfinished work lies.")]


def resume_command() -> str:
    """Return the command line that goes on with what was called."""
    import shlex

    words = [word for word in sys.argv[1:] if word not in ("--resume", "--restart")]
    return shlex.join(["planner", *words, "--resume"])
