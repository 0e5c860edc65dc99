"""Commands that answer about plans: run, compare, sweep and size."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

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
    Replications,
    Restart,
    Resume,
    ScenarioFile,
    Scheduler,
    Seed,
    Strict,
    Verbose,
    Workers,
    out_option,
    with_overlay,
)
from planner.progress import silent

if TYPE_CHECKING:
    from planner.answers.answer import Answer

# Help that is too long for the line of its option.
_ADVISE = "If the SLO target is missed, find by simulation how many more nodes of one cluster would meet it."
_VARY = (
    "Key and its values: start:stop:step (stop included) or a,b,c. "
    "Can be repeated; all combinations are run."
)


def run(
    *,
    scenario: ScenarioFile,
    replications: Replications = 19,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>")] = None,
    advise: Annotated[bool, Option("--advise", help=_ADVISE)] = False,
    hourly: Hourly = False,
    strict: Strict = False,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    fail_on_miss: FailOnMiss = False,
) -> None:
    """Simulate a scenario and write its timelines, ledger, measures, events, assumptions and workbook."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    # Stages replace each other in one line, which the answer then takes: a run is over in seconds.
    # A program that asks for all there is to say hears of each stage.
    each = as_json and verbose
    print_stage = silent if quiet else functools.partial(terminal.print_stage, each=each)
    first_screen = ""

    def print_first(answer: Answer[Any]) -> None:
        nonlocal first_screen
        print_stage("")  # the screen begins where the line of the stage stands
        first_screen = screen.print_answer(answer)

    try:
        answer = api.run(
            scenario,
            out,
            overrides=with_overlay(overrides, overlay),
            seed=seed,
            replications=replications,
            advise=advise,
            hourly=hourly,
            strict=strict,
            progress=print_stage,
            # JSON is one document, printed when all replications are there.
            first=silent if as_json else print_first,
        )
    finally:
        # Also after an error, whose message begins on a line of its own.
        print_stage("")
    # What the first screen has printed is not printed again.
    screen.print_answer(
        answer, hint=terminal.REPORT_HINT, printed=first_screen, fail_on_miss=fail_on_miss
    )


def compare(
    *,
    scenarios: Annotated[
        list[Path], Argument(metavar="SCENARIO...", help="Two or more scenario files.")
    ],
    baseline: Annotated[
        str | None, Option(metavar="NAME", help="Scenario to compare with [default: the first].")
    ] = None,
    futures: Annotated[
        Path | None,
        Option(metavar="FILE", help="File of futures; each plan is also run in each of them."),
    ] = None,
    replications: Replications = 19,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<names>")] = None,
    strict: Strict = False,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    fail_on_miss: FailOnMiss = False,
) -> None:
    """Run scenarios side by side: measures, savings, and why a token costs more or less."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    answer = api.compare(
        scenarios,
        out,
        baseline=baseline,
        futures=futures,
        overrides=with_overlay(overrides, overlay),
        seed=seed,
        replications=replications,
        strict=strict,
        progress=screen.progress,
    )
    screen.print_answer(answer, hint=terminal.REPORT_HINT, fail_on_miss=fail_on_miss)


def sweep(
    *,
    scenario: ScenarioFile,
    vary: Annotated[list[str], Option(metavar="PATH=VALUES", help=_VARY)],
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>-sweep")] = None,
    workers: Workers = None,
    resume: Resume = False,
    restart: Restart = False,
    strict: Strict = False,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run every combination of some values and write one tidy CSV."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    # Finished points are stored, so that a stop loses only those under way.
    with terminal.stoppable():
        answer = api.sweep(
            scenario,
            vary,
            out,
            overrides=with_overlay(overrides, overlay),
            seed=seed,
            workers=workers,
            resume=resume,
            restart=restart,
            strict=strict,
            progress=screen.progress,
        )
    screen.print_answer(answer)


def size(
    *,
    scenario: ScenarioFile,
    study: Annotated[
        Path | None,
        Option(metavar="STUDY", help="Study whose uncertain inputs the plan must withstand."),
    ] = None,
    budget: Annotated[
        float | None, Option(metavar="USD", help="Limit on what is paid for nodes, in USD.")
    ] = None,
    power: Annotated[
        float | None, Option(metavar="KW", help="Limit on nameplate IT power on site, in kW.")
    ] = None,
    accelerators: Annotated[
        str | None, Option(metavar="A,B", help="Accelerators that may be bought, e.g. H200,B200.")
    ] = None,
    slo_target: Annotated[
        float | None, Option(metavar="SHARE", help="SLO attainment to size for, e.g. 0.999.")
    ] = None,
    objective: Annotated[
        str, Option(metavar="WHAT", help="Cost to minimise: net-present-cost or levelised.")
    ] = "net-present-cost",
    replications: Annotated[
        int, Option("--replications", "-n", min=1, max=1_000, help="Replications in the search.")
    ] = 48,
    confirmations: Annotated[
        int | None,
        Option(min=1, max=10_000, help="Limit on the new replications that confirm a policy."),
    ] = None,
    rivals: Annotated[
        bool, Option(help="After the answer, also estimate rivals, limits and prices.")
    ] = True,
    minutes: Annotated[
        float | None,
        Option(
            min=0.0,
            help="Stop the search after so many minutes and answer with the best plan so far.",
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>-size")] = None,
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
    fail_on_miss: FailOnMiss = False,
) -> None:
    """Find the cheapest policy that meets the SLO target: what to buy, order on a signal, rent and retire."""
    screen = terminal.Screen(as_json=as_json, quiet=quiet, verbose=verbose)
    # Every plan tried is stored, so that a search goes on where it was stopped.
    with terminal.stoppable():
        answer = api.size(
            scenario,
            out,
            study=study,
            budget=budget,
            power=power,
            # Typer has no empty list: what is not stated is None.
            accelerators=accelerators or (),
            slo_target=slo_target,
            objective=objective,
            replications=replications,
            confirmations=confirmations,
            rivals=rivals,
            minutes=minutes,
            overrides=with_overlay(overrides, overlay),
            seed=seed,
            workers=workers,
            scheduler=scheduler,
            resume=resume,
            restart=restart,
            strict=strict,
            progress=screen.progress,
        )
    # The policy is a scenario of its own: the next step is to run it.
    hint = "/report.html; to run the plan: policy.yaml next to it; more: -v"
    screen.print_answer(answer, hint=hint, fail_on_miss=fail_on_miss)
