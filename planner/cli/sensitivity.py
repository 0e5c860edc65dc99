"""``planner sensitivity``: what drives the answer, and what would change it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.options import AsJson, Overrides, Quiet, Seed, Strict, tell
from planner.cli.study_options import Out, Restart, Resume, Scheduler, StudyFile, Workers, command_again

if TYPE_CHECKING:
    from planner.studies.analysis import Driver
    from planner.studies.designs import Morris, OneAtATime, Saltelli
    from planner.studies.prepare import Prepared

Method = Literal["tornado", "morris", "sobol", "importance"]
_DEFAULT_SIZE = {"tornado": 16, "morris": 20, "sobol": 256}


def sensitivity(
    study: StudyFile,
    method: Annotated[
        Method,
        typer.Option(
            "--method",
            help="tornado: one input at a time, P10 to P90; morris: screening; sobol: shares of the variance; "
            "importance: from a finished montecarlo, without new runs.",
        ),
    ] = "tornado",
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            "-n",
            min=4,
            max=1_000_000,
            help="Chances (tornado), trajectories (morris) or points (sobol) [default: 16, 20, 256].",
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
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure what drives the headline of a study, and at which value of an input the scenarios change places."""
    from planner.errors import printable
    from planner.reporting.folder import json_text
    from planner.reporting.study_rows import driver_columns
    from planner.studies.prepare import prepare

    prepared = prepare(study, overrides or (), seed)
    tell(prepared.warnings if strict else (), strict=strict, quiet=quiet)  # before hours are spent on it
    if method == "importance":
        folder = out or Path("outputs") / prepared.study.name
        drivers = _importance(prepared, folder)
    else:
        folder = out or Path("outputs") / f"{prepared.study.name}-{method}"
        count = size or _DEFAULT_SIZE[method]
        options = _Options(
            workers=workers,
            scheduler=scheduler,
            resume=resume,
            restart=restart,
            quiet=quiet,
            overrides=overrides or [],
        )
        drivers = _designed(prepared, _design(prepared, method), folder, count, options)
    tell(prepared.warnings, strict=strict, quiet=quiet)
    if as_json:
        typer.echo(json_text(_plain(driver_columns(drivers))), nl=False)
    elif not quiet:
        typer.echo(_table(prepared, drivers))
        if method != "importance":
            typer.echo(f"\nresults in {printable(str(folder))}")


def _design(prepared: Prepared, method: Method) -> OneAtATime | Morris | Saltelli:
    """Return the design of a method."""
    if method == "tornado":
        return prepared.one_at_a_time()
    return prepared.morris() if method == "morris" else prepared.saltelli()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """How a designed study is run."""

    workers: int | None
    scheduler: str | None
    resume: bool
    restart: bool
    quiet: bool
    overrides: list[str]


def _designed(
    prepared: Prepared, design: OneAtATime | Morris | Saltelli, folder: Path, count: int, options: _Options
) -> list[Driver]:
    """Run a design, measure it, write its folder."""
    from planner.cli.study_options import command_of, run_watched, workforce
    from planner.reporting.study_folder import write_designed
    from planner.studies.identity import identity
    from planner.studies.runner import Goal, batch_size
    from planner.studies.store import Store

    force = workforce(options.workers, options.scheduler)
    setup = prepared.setup(design)
    store = Store(folder, setup, identity(prepared.study, setup, batch_size(len(setup.scenarios))))
    store.open(resume=options.resume, restart=options.restart)
    rows = count * design.period
    if not options.quiet:
        print(f"{prepared.study.name}: {rows:,} rows of {len(setup.scenarios)} scenarios", file=sys.stderr)
    goal = Goal(rows=rows, headline=prepared.headline.name)
    run_watched(store, goal, force, quiet=options.quiet, again=command_again())
    asked = ("--method", design.name, "--size", str(count))
    command = command_of("sensitivity", prepared, asked, options.overrides)
    return write_designed(prepared, design, store, rows, command)


def _importance(prepared: Prepared, folder: Path) -> list[Driver]:
    """Read a finished Monte Carlo study."""
    from planner.studies.analysis import Finished
    from planner.studies.identity import identity
    from planner.studies.runner import batch_size
    from planner.studies.store import Store

    setup = prepared.setup(prepared.montecarlo())
    store = Store(folder, setup, identity(prepared.study, setup, batch_size(len(setup.scenarios))))
    rows = store.finished_rows()
    return list(Finished(prepared=prepared, store=store, rows=rows).drivers())


def _plain(columns: dict[str, list[object]]) -> list[dict[str, object]]:
    """Return rows with null for what is not known."""
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return [
        {name: None if isinstance(value, float) and value != value else value for name, value in row.items()}  # noqa: PLR0124
        for row in rows
    ]


def _table(prepared: Prepared, drivers: list[Driver]) -> str:
    """Lay out the measures of the first scenario, and of what it is held against, largest first."""
    from planner.reporting.text_table import text_table

    order = ("swing", "mu_star", "total", "threshold")
    lines: list[str] = []
    for against in dict.fromkeys(driver.against for driver in drivers):
        own = [d for d in drivers if d.against == against and d.scenario == prepared.names[0] and d.measure in order]
        own.sort(key=lambda driver: (order.index(driver.measure), -abs(driver.value)))
        cells = [(d.input, d.method, d.measure, _short(d.value), _short(d.low), _short(d.high)) for d in own]
        title = f"{prepared.names[0]} less {against}" if against else prepared.names[0]
        header = ("input", "method", "measure", "value", "low", "high")
        lines += [f"{title}: {prepared.headline.name}", "", text_table(header, cells), ""]
    return "\n".join(lines).rstrip()


def _short(value: float) -> str:
    return "" if value != value else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"  # noqa: PLR0124 - NaN
