"""``planner size``: the cheapest purchases that keep the promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Overrides, Quiet, ScenarioFile, Seed, Strict
from planner.cli.progress import say, tell
from planner.cli.study_options import Restart, Resume, Scheduler, Workers


def size(
    scenario: ScenarioFile,
    study: Annotated[
        Path | None,
        typer.Option(
            "--study", metavar="STUDY", help="Study whose uncertain inputs the plan must withstand.", show_default=False
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="USD", help="Most that may be paid for nodes.", show_default=False),
    ] = None,
    power: Annotated[
        float | None, typer.Option("--power", metavar="KW", help="Most nameplate IT power on site.", show_default=False)
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option("--parts", metavar="A,B", help="Parts that may be bought, e.g. H200,B200.", show_default=False),
    ] = None,
    promise: Annotated[
        float | None,
        typer.Option("--promise", metavar="SHARE", help="Share of requests in time, e.g. 0.999.", show_default=False),
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", metavar="WHAT", help="net-present-cost, levelised or capital.")
    ] = "net-present-cost",
    replications: Annotated[
        int, typer.Option("--replications", "-n", min=1, max=10_000, help="Replications of the search.")
    ] = 48,
    confirmations: Annotated[
        int,
        typer.Option("--confirmations", min=1, max=100_000, help="Fresh replications on which the plan is confirmed."),
    ] = 200,
    gap: Annotated[float, typer.Option("--gap", min=0.0, max=1.0, help="Stop at this distance from the bound.")] = 0.0,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", min=0.0, help="Stop the search after so long, with the best so far.", show_default=False
        ),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>-size].")
    ] = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    resume: Resume = False,
    restart: Restart = False,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the cheapest purchases and retirements that keep the promise, and confirm them by simulation."""
    from planner.verbs import size

    answer = size(
        scenario,
        out,
        study=study,
        budget=budget,
        power=power,
        parts=[part for part in (parts or "").split(",") if part],
        promise=promise,
        objective=objective,
        replications=replications,
        confirmations=confirmations,
        gap=gap,
        minutes=minutes,
        overrides=overrides or (),
        seed=seed,
        workers=workers,
        scheduler=scheduler,
        resume=resume,
        restart=restart,
        strict=strict,
        decimal_comma=decimal_comma,
        byte_order_mark=byte_order_mark,
        progress=say(quiet=quiet),
    )
    tell(answer, as_json=as_json, quiet=quiet)
