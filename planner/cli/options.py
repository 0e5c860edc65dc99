"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML).", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change one value of the scenario, e.g. clusters.h200.nodes=80; repeatable, last wins.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Root of all random numbers [default: the scenario's].")
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Take every warning as an error: figures nobody means, dates without effect."),
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
