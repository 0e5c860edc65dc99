"""``planner zoom``: one hour of a scenario, request by request."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import AsJson, Overrides, Quiet, ScenarioFile, Seed, out_option

if TYPE_CHECKING:
    from planner.demand.tokens import RequestLog


def zoom(
    scenario: ScenarioFile,
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="Moment to begin at, UTC, e.g. 2027-03-04T15:00.")],
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=60, help="Minutes to simulate.")] = 60,
    requests: Annotated[
        int,
        typer.Option(
            "--requests",
            min=100,
            max=10_000_000,
            help="About how many requests, deferrable ones too; a larger fleet is sampled.",
        ),
    ] = 100_000,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Replay this log (CSV, JSON lines, .gz) for one workload."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", help="Workload that --trace stands for [default: the first].")
    ] = None,
    replication: Annotated[int, typer.Option("--replication", min=0, help="Which replication's hour.")] = 0,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[Path | None, out_option("<name>-zoom")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate one hour request by request on the fleet as it stands then: who is late, why, and every percentile."""
    from planner.cli.progress import stages
    from planner.errors import printable
    from planner.files import check_target, json_text
    from planner.output.folder import command_line
    from planner.output.zoom_folder import summary_text, write_zoom
    from planner.requests.zoom import Asked
    from planner.requests.zoom import zoom as simulate_hour
    from planner.scenario.loading import load_scenario

    loaded = load_scenario(scenario, overrides or ())
    folder = out or Path("outputs") / f"{loaded.name}-zoom"
    check_target(folder)
    asked = Asked(
        at=_moment(at),
        minutes=minutes,
        seed=seed,
        replication=replication,
        requests=requests,
        log=_log(trace),
        log_workload=workload,
    )
    with stages(f"{loaded.name}, {minutes} minutes from {at}", 2, quiet=quiet) as begin:
        begin("request by request")
        result = simulate_hour(loaded, asked)
        begin("writing")
        words = ["--at", at, "--minutes", str(minutes), "--requests", str(requests)]
        words += ["--seed", str(result.seed), "--replication", str(replication)]
        words += ["--trace", trace.name] if trace is not None else []
        words += ["--workload", workload] if workload is not None else []
        summary = write_zoom(result, folder, command_line("zoom", [scenario.name], words, overrides or ()))
    if as_json:
        typer.echo(json_text(summary), nl=False)
    elif not quiet:
        typer.echo(summary_text(summary))
        typer.echo(f"\nresults in {printable(str(folder))}; open report.html there")


def _moment(text: str) -> datetime:
    """Read a moment, UTC unless it says otherwise."""
    from planner.errors import Problem, ScenarioError

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"must be a date and time such as 2027-03-04T15:00, not {text!r}"
        raise ScenarioError(Problem(path="--at", message=message)) from None
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _log(trace: Path | None) -> RequestLog | None:
    from planner.onramp.traffic_log import read_request_log

    return None if trace is None else read_request_log(trace, in_order=True)
