"""``planner explain``: what a figure means, and what it is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from planner import api
from planner.cli.options import AllowCode, AsJson, Overlay, Overrides, with_overlay
from planner.files import json_text

_PLACE = "Folder that planner run wrote, or a scenario (it is then run once)."


def explain(
    figure: Annotated[str, Argument(metavar="FIGURE", help="Name of a figure, account or column.")],
    place: Annotated[Path | None, Argument(metavar="[FOLDER|SCENARIO]", help=_PLACE)] = None,
    inputs: Annotated[int, Option(min=0, metavar="N", help="How many inputs to list.")] = 20,
    overrides: Overrides = None,
    overlay: Overlay = None,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Say what a figure means, its formula, its parts with their values, and its inputs with their sources."""
    stated = with_overlay(overrides, overlay)
    explanation = api.explain(figure, place, overrides=stated, inputs=inputs)
    if as_json:
        typer.echo(json_text(explanation.to_json()), nl=False)
    else:
        typer.echo(explanation.text())
