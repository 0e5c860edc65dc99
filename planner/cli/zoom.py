"""``planner zoom``: one hour, request by request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from planner import api
from planner.cli import terminal
from planner.cli.options import (
    AllowCode,
    AsJson,
    Overlay,
    Overrides,
    Quiet,
    ScenarioFile,
    Seed,
    Verbose,
    out_option,
    with_overlay,
)

# Help that is too long for the line of its option.
_AT = "Time (UTC) at which to begin, e.g. 2027-03-04T15:00."
_REQUESTS = (
    "About how many requests to simulate, deferrable ones included; a larger fleet is sampled."
)
_TRACE = "Replay this log (CSV, JSON lines, .gz) for one workload."


def zoom(
    *,
    replication: Annotated[int, Option(min=0, help="Number of the replication.")] = 0,
    scenario: ScenarioFile,
    minutes: Annotated[int, Option(min=1, max=60, help="Minutes to simulate.")] = 60,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>-zoom")] = None,
    at: Annotated[str, Option(metavar="TIME", help=_AT)],
    requests: Annotated[int, Option(min=100, max=10_000_000, help=_REQUESTS)] = 100_000,
    trace: Annotated[Path | None, Option(metavar="FILE", help=_TRACE)] = None,
    workload: Annotated[
        str | None, Option(help="Workload that --trace replaces [default: the first].")
    ] = None,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Simulate one hour request by request on the fleet of that hour: which requests are late, why, and percentiles."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    answer = api.zoom(
        scenario,
        at,
        out,
        minutes=minutes,
        requests=requests,
        trace=trace,
        workload=workload,
        replication=replication,
        overrides=with_overlay(overrides, overlay),
        seed=seed,
        progress=screen.progress,
    )
    screen.print_answer(answer, hint="; open report.html there")
