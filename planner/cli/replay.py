"""``planner replay``: one replication of a study, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, Overrides, Quiet, Seed
from planner.cli.study_options import StudyFile


def replay(
    study: StudyFile,
    replication: Annotated[int, typer.Option("--replication", min=0, help="Number, as in samples.csv.")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="Scenario of the study [default: the first].", show_default=False)
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<study>-<scenario>-<number>]."),
    ] = None,
    hourly: Annotated[bool, typer.Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run one replication of a Monte Carlo study again and write its full timeline, ledger, events and assumptions."""
    from planner.errors import ScenarioError, printable
    from planner.files import check_target, json_text
    from planner.reporting.run_folder import Wanted, write_run
    from planner.reporting.study_folder import study_command
    from planner.reporting.summary import summary, summary_table
    from planner.studies.prepare import prepare
    from planner.studies.replicate import Replicator
    from planner.validation import choices, nearest

    prepared = prepare(study, overrides or (), seed)
    name = prepared.names[0] if scenario is None else scenario
    if name not in prepared.names:
        hint = nearest(name, prepared.names) or f"there are {choices(prepared.names)}"
        raise ScenarioError(f"the study has no scenario {name!r} ({hint})")
    folder = out or Path("outputs") / f"{prepared.study.name}-{name}-{replication}"
    check_target(folder)
    replicator = Replicator(prepared.setup(prepared.montecarlo()))
    values, chance = replicator.values(replication, replication + 1)
    result = replicator.simulate(prepared.names.index(name), values[0], int(chance[0]))
    asked = ["--replication", str(replication), "--scenario", name, *(["--hourly"] if hourly else [])]
    command = study_command("replay", prepared, asked, overrides or ())
    write_run(result, folder, wanted=Wanted(hourly=hourly), command=command)
    if as_json:
        typer.echo(json_text(summary(result)), nl=False)
    elif not quiet:
        typer.echo(summary_table(summary(result)))
        typer.echo(f"\nresults in {printable(str(folder))}")
