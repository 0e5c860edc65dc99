"""``planner catalog``: what the planner knows, and where it knows it from."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from planner.cli.terminal import AsJson, Overlay
from planner.errors import Problem, ScenarioError, printable
from planner.files import json_text

if TYPE_CHECKING:
    from planner.catalog.load import Catalog

app = typer.Typer(name="catalog", rich_markup_mode=None)

_SECTIONS = [
    "accelerators",
    "models",
    "stacks",
    "tariffs",
    "failures",
    "precisions",
    "vendors",
    "incidents",
    "priors",
]

_SET = "Assumption set: measured or articles-2024."
Assumptions = Annotated[str, Option("--assumptions", help=_SET)]


@app.callback(invoke_without_command=True)
def catalog(
    context: typer.Context,
    assumptions: Assumptions = "measured",
    overlay: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """List what the catalogue holds, with sources."""
    if context.invoked_subcommand is not None:
        context.obj = assumptions, overlay
        return
    from planner.catalog.load import load_catalog

    known = load_catalog(assumptions, overlay)
    names = {section: list(getattr(known, section)) for section in _SECTIONS}
    if as_json:
        facts = {
            section: {name: _facts(known, section, name) for name in names[section]}
            for section in _SECTIONS
        }
        typer.echo(json_text(facts), nl=False)
        return
    for section in _SECTIONS:
        text = printable(", ".join(names[section]))
        typer.echo(f"{section}:")
        typer.echo(
            textwrap.fill(
                text, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )
        )
    typer.echo("\nplanner catalog show NAME prints one entry with its sources.")


@app.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, Argument(help="Any entry of the catalogue.")],
    assumptions: Annotated[str | None, Option("--assumptions", help=_SET)] = None,
    overlay: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """Show one entry: every value with unit, source, date and grade."""
    from planner.catalog.load import load_catalog
    from planner.output.terminal import text_table
    from planner.validation import nearest

    before_it = context.obj or ("measured", None)  # options may stand on either side of the command
    known = load_catalog(assumptions or before_it[0], overlay or before_it[1])
    names = {
        entry.lower(): (section, entry)
        for section in reversed(_SECTIONS)
        for entry in getattr(known, section)
    }
    if name.lower() not in names:
        hint = (
            nearest(name, [entry for _, entry in names.values()])
            or "planner catalog lists what there is"
        )
        raise ScenarioError(Problem(message=f"the catalogue has no {name!r}", hint=hint))
    section, shown = names[name.lower()]
    facts = _facts(known, section, shown)
    if as_json:
        typer.echo(json_text({"section": section, "name": shown, "facts": facts}), nl=False)
        return
    typer.echo(f"{printable(shown)} ({section})\n")
    rows = []
    for key, fact in facts.items():
        value = ", ".join(fact["value"]) if isinstance(fact["value"], tuple) else str(fact["value"])
        source = f"{fact['source']} ({fact['note']})" if fact["note"] else str(fact["source"])
        rows.append((key, value, fact["unit"] or "", fact["grade"], fact["date"], source))
    typer.echo(text_table(("field", "value", "unit", "grade", "date", "source"), rows))


_STATED = (
    "A key of the entry and its value, e.g. tdp_w=1000 or source='Datasheet of May'; repeatable."
)
Own = Annotated[
    Path, Option("--overlay", metavar="FILE", help="Catalogue file of your own to write or extend.")
]
Keys = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_STATED)]


@app.command("add-model")
def add_model(
    config: Annotated[
        Path, Argument(metavar="CONFIG.json", help="Configuration as Hugging Face publishes it.")
    ],
    overlay: Own,
    name: Annotated[
        str | None, Option(help="Name of the model [default: its own, or its folder's].")
    ] = None,
    stated: Keys = None,
) -> None:
    """Add a model of your own to a catalogue file, from its config.json."""
    from planner.catalog.own import add_entry, model_entry

    usual, entry = model_entry(config)
    add_entry(overlay, "models", name or usual, entry, stated or ())
    typer.echo(
        f"wrote {printable(name or usual)} to {overlay}; every command takes it with --overlay {overlay}"
    )


@app.command("add-accelerator")
def add_accelerator(
    name: Annotated[str, Argument(help="Name of the accelerator.")],
    overlay: Own,
    stated: Keys = None,
    like: Annotated[
        str | None, Option(metavar="NAME", help="Assume what is not stated as of another.")
    ] = None,
) -> None:
    """Add an accelerator of your own to a catalogue file; what it needs and is not stated is named."""
    from planner.catalog.own import accelerator_like, add_entry

    add_entry(overlay, "accelerators", name, accelerator_like(like) if like else {}, stated or ())
    typer.echo(
        f"wrote {printable(name)} to {overlay}; every command takes it with --overlay {overlay}"
    )


def _facts(known: Catalog, section: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the values of an entry by field, each with its unit, source, date and grade."""
    from planner.catalog.entries import Range

    entry = getattr(known, section)[name]
    facts = [("range", entry, entry.unit)] if section == "priors" else list(entry.facts())
    described = {}
    for key, fact, unit in facts:
        title, date = known.provenance(fact)
        value = (
            {"low": fact.low, "base": fact.base, "high": fact.high}
            if isinstance(fact, Range)
            else fact.value
        )
        plain = value.isoformat() if hasattr(value, "isoformat") else value
        told = {"value": plain, "unit": unit, "source": title, "date": date}
        described[key] = told | {"grade": fact.grade, "note": fact.note}
    return described
