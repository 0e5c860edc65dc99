"""Commands about studies: montecarlo, sensitivity, and replay of one of their replications."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from planner import api
from planner.cli import terminal
from planner.cli.options import (
    AllowCode,
    AsJson,
    FailOnMiss,
    Hourly,
    Overlay,
    Overrides,
    Quiet,
    Restart,
    Resume,
    Scheduler,
    Seed,
    Strict,
    StudyFile,
    Verbose,
    Workers,
    out_option,
    with_overlay,
)

# Help that is too long for the line of its option.
_AT_MOST = (
    "Number of replications; with --until, the limit [default: as many as --until needs, at most 4,096]. "
    "After the 256th, draws that differ only in prices may share a simulation."
)
_UNTIL = (
    "Stop when half the width of each 95% interval is at most as stated, e.g. mean=0.5% (of the objective's mean), "
    "p90=2% (of a percentile), best=1% (of P(best)), slo=4% (of P(SLO met) of plans without a verdict). "
    "All stated rules must hold [default without -n: mean=0.5%, p10=2%, p90=2%, slo=4%]."
)
_SAMPLES = (
    "Write every replication to samples.csv "
    "[default: if there are at most 100,000 rows; replications.parquet has all of them]."
)


def montecarlo(
    *,
    file: StudyFile,
    replications: Annotated[
        int | None, Option("--replications", "-n", min=1, max=10_000_000, help=_AT_MOST)
    ] = None,
    until: Annotated[str | None, Option(metavar="RULES", help=_UNTIL)] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>")] = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    restart: Restart = False,
    strict: Strict = False,
    samples: Annotated[bool | None, Option(help=_SAMPLES)] = None,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    fail_on_miss: FailOnMiss = False,
) -> None:
    """Simulate scenarios with uncertain inputs drawn, and write percentiles, monthly bands, decisions and drivers."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    # Outermost, so that the bar is gone before the line that says how to go on.
    with terminal.stoppable(), screen.bar() as watch:
        answer = api.study(
            file,
            replications,
            out,
            until=until,
            overrides=with_overlay(overrides, overlay),
            seed=seed,
            workers=workers,
            scheduler=scheduler,
            resume=resume,
            restart=restart,
            strict=strict,
            samples=samples,
            progress=screen.progress,
            watch=watch,
        )
    screen.print_answer(answer, hint=terminal.REPORT_HINT, fail_on_miss=fail_on_miss)


def sensitivity(
    *,
    file: StudyFile,
    size: Annotated[
        int | None,
        Option("--size", "-n", min=4, max=1_000_000, help="Replications [default: 16]."),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>")] = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    restart: Restart = False,
    strict: Strict = False,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Move one input at a time from P10 to P90: which moves the objective most, and which changes the best plan."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    with terminal.stoppable(), screen.bar() as watch:
        answer = api.study(
            file,
            size,
            out,
            method="tornado",
            overrides=with_overlay(overrides, overlay),
            seed=seed,
            workers=workers,
            scheduler=scheduler,
            resume=resume,
            restart=restart,
            strict=strict,
            progress=screen.progress,
            watch=watch,
        )
    screen.print_answer(answer)


def replay(
    *,
    file: StudyFile,
    replication: Annotated[
        int, Option(min=0, help="Number of the replication, as in samples.csv.")
    ],
    draws: Annotated[
        int,
        Option(
            min=1, max=16, help="Number of price draws per simulation, as the study reports it."
        ),
    ] = 1,
    scenario: Annotated[
        str | None, Option(help="Scenario of the study [default: the first].")
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<study>-<scenario>-<number>")] = None,
    hourly: Hourly = False,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run one replication of a Monte Carlo study again and write its full timeline, ledger, events and assumptions."""
    answer = api.replay(
        file,
        replication,
        out,
        scenario=scenario,
        draws=draws,
        overrides=with_overlay(overrides, overlay),
        seed=seed,
        hourly=hourly,
    )
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    screen.print_answer(answer)
