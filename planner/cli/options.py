"""Options and arguments that several commands share, each written out once as typer reads it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from planner.files import ALLOW_CODE


def _allow_code(context: typer.Context, is_allowed: bool) -> bool:
    """Let the Python files of a scenario run for as long as the command does."""
    if is_allowed:
        # Worker processes read it too, so it is a variable of the environment. It goes with the
        # command: a program that calls two of them allows code in one alone.
        os.environ[ALLOW_CODE] = "1"
        context.call_on_close(functools.partial(os.environ.pop, ALLOW_CODE, None))
    return is_allowed


def out_option(name: str) -> Any:
    """Return the option of the output folder, by default one of such a name under outputs."""
    return Option(metavar="DIR", help=f"Output folder [default: outputs/{name}].")


def with_overlay(overrides: list[str] | None, overlay: Path | None) -> list[str]:
    """Return the overrides of a scenario, with the user's own catalogue file as the last of them."""
    paths = list(overrides or ())
    # Of overrides the last wins, so that the option goes before a --set of the same key.
    if overlay is not None:
        paths.append(f"catalog.overlay={overlay}")
    return paths


# Help that is too long for the line of its option.
_SET = (
    "Change one value of the scenario, e.g. clusters.h200.nodes=80 or clusters.*.nodes=80; "
    "can be repeated, and the last one wins."
)
_REPLICATIONS = (
    "Number of replications. With 19, nine in ten further ones lie between the lowest and the highest; "
    "with 1 there are no intervals."
)
_STUDY = (
    "Study file (YAML), or a scenario: inputs it leaves open are drawn from the catalogue's priors."
)
_STRICT = "Refuse plans with warnings: implausible figures, dates without effect."
_CODE = "Allow Python files named in scenarios to run. Review them before you do."
_DASK = "Run on the Dask cluster at tcp://HOST:PORT, or local-dask to start one here."
_RESUME = "Continue work that was interrupted, or extend a finished study."

# Options that several commands take, so that each means the same everywhere.
ScenarioFile = Annotated[Path, Argument(metavar="SCENARIO", help="Scenario file (YAML).")]
StudyFile = Annotated[Path, Argument(metavar="STUDY", help=_STUDY)]
Folder = Annotated[Path, Argument(metavar="DIR", help="Output folder that planner wrote.")]
Overrides = Annotated[list[str] | None, Option("--set", metavar="PATH=VALUE", help=_SET)]
Seed = Annotated[
    int | None, Option(min=0, help="Seed of all random numbers [default: the scenario's].")
]
Replications = Annotated[
    int, Option("--replications", "-n", min=1, max=10_000, metavar="N", help=_REPLICATIONS)
]
Hourly = Annotated[bool, Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")]
Workers = Annotated[
    int | None, Option(min=1, max=1024, help="Worker processes [default: one per core].")
]
Scheduler = Annotated[str | None, Option(metavar="ADDRESS", help=_DASK)]
Resume = Annotated[bool, Option("--resume", help=_RESUME)]
Restart = Annotated[
    bool, Option("--restart", help="Discard unfinished work in the folder and start again.")
]
Strict = Annotated[bool, Option("--strict", help=_STRICT)]
Overlay = Annotated[
    Path | None,
    Option(
        "--overlay",
        metavar="FILE",
        help="Your own catalogue file; its values replace the shipped ones.",
    ),
]
AllowCode = Annotated[bool, Option("--allow-code", callback=_allow_code, help=_CODE)]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
Verbose = Annotated[bool, Option("--verbose", "-v", help="Print details too.")]
FailOnMiss = Annotated[
    bool, Option("--fail-on-miss", help="Exit with status 3 unless an SLO target is MET.")
]
