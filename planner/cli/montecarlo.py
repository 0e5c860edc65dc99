"""``planner montecarlo``: thousands of futures, compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Overrides, Quiet, Seed, Strict, tell
from planner.cli.study_options import Out, Restart, Resume, Scheduler, StudyFile, Workers, command_again


def montecarlo(
    study: StudyFile,
    replications: Annotated[
        int, typer.Option("--replications", "-n", min=1, max=10_000_000, help="Futures to simulate, at most.")
    ] = 1000,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="SHARE",
            help="Stop when the 95% interval of the headline's mean is this narrow, e.g. 0.5%.",
            show_default=False,
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Out = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    restart: Restart = False,
    strict: Strict = False,
    charts: Annotated[bool, typer.Option("--charts/--no-charts", help="Draw PNG charts.")] = True,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate scenarios under drawn inputs and chance; write percentiles, bands, decisions and what drives them."""
    from planner.cli.study_options import command_of, run_watched, workforce
    from planner.errors import PlannerError, printable
    from planner.reporting.csv_table import CsvFormat
    from planner.reporting.folder import json_text
    from planner.reporting.study_folder import write_study
    from planner.reporting.study_summary import study_summary, study_table
    from planner.studies.analysis import Finished
    from planner.studies.prepare import prepare
    from planner.studies.runner import Goal
    from planner.studies.study import open_store

    share = _share(until)
    force = workforce(workers, scheduler)
    prepared = prepare(study, overrides or (), seed)
    tell(prepared.warnings if strict else (), strict=strict, quiet=quiet)  # before hours are spent on it
    folder = out or Path("outputs") / prepared.study.name
    store = open_store(prepared, folder, resume=resume, restart=restart)
    if not quiet:
        print(
            f"{prepared.study.name}: {replications:,} replications of {len(prepared.scenarios)} scenarios, "
            f"{len(prepared.inputs)} uncertain inputs",
            file=sys.stderr,
        )
    goal = Goal(
        rows=replications,
        headline=prepared.headline.name,
        scramblings=prepared.study.scramblings,
        until=share,
    )
    rows = run_watched(store, goal, force, quiet=quiet, again=command_again())
    finished = Finished(prepared=prepared, store=store, rows=rows)
    form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
    asked = ["--replications", str(rows), *form.options, *([] if charts else ["--no-charts"])]
    command = command_of("montecarlo", prepared, asked, overrides or ())
    write_study(finished, form, charts=charts, command=command)
    if share is not None and not quiet and not (reached := finished.interval().relative) <= share:
        told = "is not known" if reached != reached else f"is ±{reached:.2%}"  # noqa: PLR0124 - NaN: too few rows
        print(
            f"the interval of the mean {told} after {rows:,} replications; extend with --resume and more",
            file=sys.stderr,
        )
    tell(prepared.warnings, strict=strict, quiet=quiet)
    if as_json:
        typer.echo(json_text(study_summary(finished)), nl=False)
    elif not quiet:
        typer.echo(study_table(study_summary(finished)))
        typer.echo(f"\nresults in {printable(str(folder))}")
    if finished.is_void():
        raise PlannerError(f"every run failed, the first with: {finished.failures()[0].message}")


def _share(until: str | None) -> float | None:
    """Read 0.5% or 0.005 as a share."""
    from planner.errors import ScenarioError

    if until is None:
        return None
    try:
        share = float(until.strip().removesuffix("%")) / (100.0 if until.strip().endswith("%") else 1.0)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise ScenarioError(f"--until must be a share such as 0.5% or 0.005, not {until!r}")
    return share
