"""The command ``planner zoom``: what it takes, and the folder it writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import Problem, ScenarioError
from planner.files import Place, check_target, output_folder
from planner.progress import PrintLine, silent

if TYPE_CHECKING:
    from planner.answers.answer import Answer
    from planner.output.blocks import Section
    from planner.output.folder import Contents
    from planner.requests.zoom import Zoom
    from planner.scenario.loading import Source


def zoom(
    scenario: Source,
    at: str,
    out: Place | None = None,
    *,
    minutes: int = 60,
    requests: int = 100_000,
    trace: Place | None = None,
    workload: str | None = None,
    replication: int = 0,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    progress: PrintLine = silent,
) -> Answer[Zoom]:
    """Simulate one hour request by request on the fleet as it stands then: who is late, why, and every percentile.

    ``at`` is a moment in UTC such as ``2027-03-04T15:00``; ``trace`` a log whose requests stand for one workload's.
    """
    # Imported here: the command line reads this signature before it knows which command is asked for.
    from planner.answers.identity import scenario_file
    from planner.output.folder import command_line
    from planner.requests.zoom import ZoomRequest, simulate_zoom
    from planner.requests.zoom_answer import write_zoom
    from planner.scenario.loading import load_scenario

    loaded = load_scenario(scenario, overrides)
    folder = output_folder(out, f"{loaded.name}-zoom")
    check_target(folder)
    log = None
    if trace is not None:
        from planner.onramp.traffic_log import read_request_log

        log = read_request_log(Path(trace), in_order=True)
    request = ZoomRequest(
        start=_utc_moment(at),
        minutes=minutes,
        seed=seed,
        replication=replication,
        requests=requests,
        log=log,
        log_workload=workload,
    )
    progress(f"simulating {loaded.name}, {minutes} minutes from {at}")
    progress("request by request")
    result = simulate_zoom(loaded, request)
    progress("writing")
    options: dict[str, object] = {
        "--at": at,
        "--minutes": minutes,
        "--requests": requests,
        "--seed": result.seed,
        "--replication": replication,
        "--trace": trace and Path(trace).name,
        "--workload": workload,
    }
    command = command_line("zoom", [scenario_file(loaded)], options, loaded.document.overrides)
    return write_zoom(result, folder, command)


def zoom_sections(contents: Contents) -> list[Section]:
    """Return the sections of a zoom's report, made from its folder."""
    from planner.requests import zoom_report

    return zoom_report.zoom_sections(contents)


def _utc_moment(text: str) -> datetime:
    """Return a moment as UTC without a zone; raise ScenarioError where it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"must be a date and time such as 2027-03-04T15:00, not {text!r}"
        raise ScenarioError(Problem(path="--at", message=message)) from None
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)
