"""What runs a plan or a few of them: ``planner run``, ``compare``, ``sweep`` and ``size``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import options
from planner.cli.progress import do, stages, stoppable, tell
from planner.run.measure_names import DRAWS


def run(
    scenario: options.ScenarioFile,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, options.out_option("<name>")] = None,
    draws: options.Draws = DRAWS,
    hourly: Annotated[bool, typer.Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Also write the timelines as Parquet.")] = False,
    processes: Annotated[
        list[str] | None,
        typer.Option(
            "--process",
            metavar="MODULE:FUNCTION",
            help="Run a SimPy process of your own with it, e.g. rounds:weekly from rounds.py here; repeatable.",
        ),
    ] = None,
    strict: options.Strict = False,
    decimal_comma: options.DecimalComma = False,
    byte_order_mark: options.ByteOrderMark = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Simulate a scenario and write its timelines, ledger, measures, events, assumptions and workbook."""
    given = locals()
    from planner.scenario.loading import load_scenario

    loaded = given["scenario"] = load_scenario(scenario, given.pop("overrides") or ())
    with stages(f"{loaded.name}, {loaded.horizon_months} months from {loaded.start}", 4, quiet=quiet) as begin:
        answer = do("run", given, begin)
    tell(answer, as_json=as_json, quiet=quiet, more="; open report.html there")


def compare(
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", help="Two or more scenario files.")],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="Scenario to hold the others against [default: the first]."),
    ] = None,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, options.out_option("<names>")] = None,
    draws: options.Draws = DRAWS,
    strict: options.Strict = False,
    decimal_comma: options.DecimalComma = False,
    byte_order_mark: options.ByteOrderMark = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run scenarios side by side: measures, savings, and why a token costs more or less."""
    tell(do("compare", locals()), as_json=as_json, quiet=quiet)


def sweep(
    scenario: options.ScenarioFile,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=VALUES",
            help="Key and its values, start:stop:step (stop included) or a,b,c; repeatable, all combinations are run.",
        ),
    ],
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, options.out_option("<name>-sweep")] = None,
    workers: options.Workers = None,
    resume: options.Resume = False,
    restart: options.Restart = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run more than 10,000 points without asking.")] = False,
    strict: options.Strict = False,
    decimal_comma: options.DecimalComma = False,
    byte_order_mark: options.ByteOrderMark = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run every combination of some values and write one tidy CSV."""
    given = locals()
    with stoppable(options.resume_command()):
        answer = do("sweep", given)
    tell(answer, as_json=as_json, quiet=quiet)


def size(
    scenario: options.ScenarioFile,
    study: Annotated[
        Path | None,
        typer.Option("--study", metavar="STUDY", help="Study whose uncertain inputs the plan must withstand."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", help="Most that may be paid for nodes.")
    ] = None,
    power: Annotated[
        float | None, typer.Option("--power", metavar="KW", help="Most nameplate IT power on site.")
    ] = None,
    parts: Annotated[
        str | None, typer.Option("--parts", metavar="A,B", help="Parts that may be bought, e.g. H200,B200.")
    ] = None,
    promise: Annotated[
        float | None, typer.Option("--promise", metavar="SHARE", help="Share of requests in time, e.g. 0.999.")
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", metavar="WHAT", help="net-present-cost, levelised or capital.")
    ] = "net-present-cost",
    replications: Annotated[
        int, typer.Option("--replications", "-n", min=1, max=10_000, help="Replications of the search.")
    ] = 48,
    confirmations: Annotated[
        int,
        typer.Option("--confirmations", min=1, max=100_000, help="Fresh replications on which the plan is confirmed."),
    ] = 200,
    gap: Annotated[float, typer.Option("--gap", min=0.0, max=1.0, help="Stop at this distance from the bound.")] = 0.0,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.0, help="Stop the search after so long, with the best so far.")
    ] = None,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, options.out_option("<name>-size")] = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    resume: options.Resume = False,
    restart: options.Restart = False,
    strict: options.Strict = False,
    decimal_comma: options.DecimalComma = False,
    byte_order_mark: options.ByteOrderMark = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the cheapest purchases and retirements that keep the promise, and confirm them by simulation."""
    given = locals() | {"parts": [part for part in (parts or "").split(",") if part]}
    tell(do("size", given), as_json=as_json, quiet=quiet)
