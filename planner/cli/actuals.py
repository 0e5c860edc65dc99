"""``planner actuals``: months that happened, held against their plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Overrides, Quiet, Seed, Strict
from planner.cli.progress import say, tell
from planner.cli.study_options import Workers


def actuals(
    plan: Annotated[
        Path,
        typer.Argument(metavar="PLAN", help="Scenario, study, or the folder of a run.", show_default=False),
    ],
    months: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Folder with mapping.yaml and the CSV files it names.", show_default=False
        ),
    ],
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="Scenario of a study [default: the first].", show_default=False)
    ] = None,
    replications: Annotated[
        int, typer.Option("--replications", "-n", min=32, max=100_000, help="Replications of each forecast.")
    ] = 256,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>-actuals].")
    ] = None,
    workers: Workers = None,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Hold months that happened against budget and intervals, and forecast the months to come from what was seen."""
    from planner.verbs import actuals

    answer = actuals(
        plan,
        months,
        out,
        scenario=scenario,
        replications=replications,
        overrides=overrides or (),
        seed=seed,
        workers=workers,
        strict=strict,
        decimal_comma=decimal_comma,
        byte_order_mark=byte_order_mark,
        progress=say(quiet=quiet),
    )
    tell(answer, as_json=as_json, quiet=quiet, more="; open report.html there")
