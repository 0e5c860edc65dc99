"""``planner sweep``: a grid of what-ifs to one CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Overrides, Quiet, ScenarioFile, Seed, Strict
from planner.cli.progress import say, stoppable, tell
from planner.cli.study_options import Restart, Resume, Workers, command_again


def sweep(
    scenario: ScenarioFile,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=VALUES",
            help="Key and its values, start:stop:step (stop included) or a,b,c; repeatable, all combinations are run.",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>-sweep].")
    ] = None,
    workers: Workers = None,
    resume: Resume = False,
    restart: Restart = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run more than 10,000 points without asking.")] = False,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every combination of some values and write one tidy CSV."""
    from planner.verbs import sweep

    with stoppable(command_again()):
        answer = sweep(
            scenario,
            vary,
            out,
            overrides=overrides or (),
            seed=seed,
            strict=strict,
            workers=workers,
            resume=resume,
            restart=restart,
            yes=yes,
            decimal_comma=decimal_comma,
            byte_order_mark=byte_order_mark,
            progress=say(quiet=quiet),
        )
    tell(answer, as_json=as_json, quiet=quiet)
