"""``planner montecarlo``: thousands of replications, compared."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Overrides, Quiet, Seed, Strict
from planner.cli.study_options import Out, Restart, Resume, Scheduler, StudyFile, Workers, answer_study


def montecarlo(
    study: StudyFile,
    replications: Annotated[
        int | None,
        typer.Option(
            "--replications",
            "-n",
            min=1,
            max=10_000_000,
            help="Replications to simulate, at most; 1,024 unless the study has other than 8 scramblings.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="SHARE",
            help="Stop when the 95% interval of the headline's mean is this narrow, e.g. 0.5%; "
            "p90=2% and best=1% look at a percentile and at P(best).",
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
    samples: Annotated[
        bool | None,
        typer.Option(
            "--samples/--no-samples",
            help="Write every replication to samples.csv [default: up to 100,000 rows; replications.parquet has all].",
            show_default=False,
        ),
    ] = None,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate scenarios under drawn inputs and chance; write percentiles, bands, decisions and what drives them."""
    answer_study(
        study, replications, out, until=until, charts=charts, samples=samples, overrides=overrides or (), seed=seed,
        strict=strict, workers=workers, scheduler=scheduler, resume=resume, restart=restart,
        decimal_comma=decimal_comma, byte_order_mark=byte_order_mark, as_json=as_json, quiet=quiet,
    )  # fmt: skip
