"""``planner compare``: several scenarios under the same traffic and random numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Draws, Overrides, Quiet, Seed, Strict
from planner.cli.progress import say, tell
from planner.results.measure_names import DRAWS


def compare(
    scenarios: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Two or more scenario files.", show_default=False)
    ],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="Scenario to hold the others against [default: the first]."),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<names>].")
    ] = None,
    draws: Draws = DRAWS,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run scenarios side by side: measures, savings, and why a token costs more or less."""
    from planner.verbs import compare

    answer = compare(
        scenarios,
        out,
        baseline=baseline,
        overrides=overrides or (),
        seed=seed,
        strict=strict,
        draws=draws,
        decimal_comma=decimal_comma,
        byte_order_mark=byte_order_mark,
        progress=say(quiet=quiet),
    )
    tell(answer, as_json=as_json, quiet=quiet)
