"""``planner actuals``: months that happened, against the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from planner import api
from planner.cli import terminal
from planner.cli.options import (
    AllowCode,
    AsJson,
    FailOnMiss,
    Overlay,
    Overrides,
    Quiet,
    Seed,
    Strict,
    Verbose,
    Workers,
    out_option,
    with_overlay,
)

# Help that is too long for the line of its option.
_MONTHS = "Folder with mapping.yaml and the CSV files that it names."


def actuals(
    *,
    plan: Annotated[
        Path, Argument(metavar="PLAN", help="Scenario, study, or the folder of a run.")
    ],
    months: Annotated[Path, Argument(metavar="FOLDER", help=_MONTHS)],
    scenario: Annotated[
        str | None, Option(help="Scenario of a study [default: the first].")
    ] = None,
    replications: Annotated[
        int, Option("--replications", "-n", min=32, max=100_000, help="Replications per forecast.")
    ] = 256,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>-actuals")] = None,
    workers: Workers = None,
    strict: Strict = False,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    fail_on_miss: FailOnMiss = False,
) -> None:
    """Compare actual months with the plan: what moved operating income, and when capacity will now run out."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    answer = api.actuals(
        plan,
        months,
        out,
        scenario=scenario,
        replications=replications,
        overrides=with_overlay(overrides, overlay),
        seed=seed,
        workers=workers,
        strict=strict,
        progress=screen.progress,
    )
    screen.print_answer(answer, hint="; open report.html there", fail_on_miss=fail_on_miss)
