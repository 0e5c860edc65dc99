"""``planner sensitivity``: what drives the answer, and what would change it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from planner.cli.options import AsJson, Overrides, Quiet, Seed, Strict
from planner.cli.study_options import Out, Restart, Resume, Scheduler, StudyFile, Workers, answer_study


def sensitivity(
    study: StudyFile,
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
    answer_study(
        study, size, out, method=method, overrides=overrides or (), seed=seed, strict=strict, workers=workers,
        scheduler=scheduler, resume=resume, restart=restart, as_json=as_json, quiet=quiet,
    )  # fmt: skip
