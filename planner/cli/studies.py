"""What runs a plan thousands of times: ``planner montecarlo``, ``sensitivity``, ``replay`` and ``actuals``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from planner.cli import options
from planner.cli.progress import do, stoppable, tell, watching


def montecarlo(
    file: options.StudyFile,
    replications: Annotated[
        int | None,
        typer.Option(
            "--replications",
            "-n",
            min=1,
            max=10_000_000,
            help="Replications to simulate, at most; 1,024 unless the study has other than 8 scramblings.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="SHARE",
            help="Stop when the 95% interval of the headline's mean is this narrow, e.g. 0.5%; "
            "p90=2% and best=1% look at a percentile and at P(best).",
        ),
    ] = None,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: options.Out = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    resume: options.Resume = False,
    restart: options.Restart = False,
    strict: options.Strict = False,
    charts: Annotated[bool, typer.Option("--charts/--no-charts", help="Draw PNG charts.")] = True,
    samples: Annotated[
        bool | None,
        typer.Option(
            "--samples/--no-samples",
            help="Write every replication to samples.csv [default: up to 100,000 rows; replications.parquet has all].",
        ),
    ] = None,
    decimal_comma: options.DecimalComma = False,
    byte_order_mark: options.ByteOrderMark = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Simulate scenarios under drawn inputs and chance; write percentiles, bands, decisions and what drives them."""
    given = locals()
    _answer(given | {"size": given.pop("replications")})


def sensitivity(
    file: options.StudyFile,
    method: Annotated[
        Literal["tornado", "morris", "sobol", "importance"],
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
            help="Replications (tornado), trajectories (morris) or points (sobol) [default: 16, 20, 256].",
        ),
    ] = None,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: options.Out = None,
    workers: options.Workers = None,
    scheduler: options.Scheduler = None,
    resume: options.Resume = False,
    restart: options.Restart = False,
    strict: options.Strict = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure what drives the headline of a study, and at which value of an input the scenarios change places."""
    _answer(locals())


def _answer(given: dict[str, Any]) -> None:
    """Run a study, stoppable and with its progress shown, and print its answer."""
    written = given.get("method") != "importance"  # which reads what a study wrote, and writes nothing
    with stoppable(options.resume_command()), watching(quiet=given["quiet"]) as watch:
        answer = do("study", given | {"watch": watch})
    tell(answer, as_json=given["as_json"], quiet=given["quiet"], written=written)


def replay(
    study: options.StudyFile,
    replication: Annotated[int, typer.Option("--replication", min=0, help="Number, as in samples.csv.")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="Scenario of the study [default: the first].")
    ] = None,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, options.out_option("<study>-<scenario>-<number>")] = None,
    hourly: Annotated[bool, typer.Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run one replication of a Monte Carlo study again and write its full timeline, ledger, events and assumptions."""
    from planner.errors import printable
    from planner.files import check_target, json_text
    from planner.output.run_folder import Wanted, write_run
    from planner.output.study_folder import study_command
    from planner.output.summary import summary, summary_table
    from planner.studies.prepare import prepare
    from planner.studies.replicate import Replicator

    prepared = prepare(study, overrides or (), seed)
    which = prepared.place_of(scenario)
    name = prepared.names[which]
    folder = out or Path("outputs") / f"{prepared.study.name}-{name}-{replication}"
    check_target(folder)
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    values, chance = replicator.values(replication, replication + 1)
    result = replicator.simulate(which, values[0], int(chance[0]))
    asked = ["--replication", str(replication), "--scenario", name, *(["--hourly"] if hourly else [])]
    command = study_command("replay", prepared, asked, overrides or ())
    write_run(result, folder, wanted=Wanted(hourly=hourly), command=command)
    if as_json:
        typer.echo(json_text(summary(result)), nl=False)
    elif not quiet:
        typer.echo(summary_table(summary(result)))
        typer.echo(f"\nresults in {printable(str(folder))}")


def actuals(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Scenario, study, or the folder of a run.")],
    months: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with mapping.yaml and the CSV files it names.")
    ],
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="Scenario of a study [default: the first].")
    ] = None,
    replications: Annotated[
        int, typer.Option("--replications", "-n", min=32, max=100_000, help="Replications of each forecast.")
    ] = 256,
    overrides: options.Overrides = None,
    seed: options.Seed = None,
    out: Annotated[Path | None, options.out_option("<name>-actuals")] = None,
    workers: options.Workers = None,
    strict: options.Strict = False,
    decimal_comma: options.DecimalComma = False,
    byte_order_mark: options.ByteOrderMark = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Hold months that happened against budget and intervals, and forecast the months to come from what was seen."""
    tell(do("actuals", locals()), as_json=as_json, quiet=quiet, more="; open report.html there")
