"""``planner catalog``: what the planner knows, and where it knows it from."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer import Argument, Option

from planner.cli.options import AsJson, Overlay
from planner.errors import Problem, ScenarioError, printable
from planner.files import json_text

if TYPE_CHECKING:
    from planner.catalog.load import Catalog
    from planner.catalog.support import SupportRow

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
    "engine_support",
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
    # The options before a subcommand are handed on to it.
    if context.invoked_subcommand is not None:
        context.obj = assumptions, overlay
        return
    # Loaded where it is read: help on commands does not wait for it.
    from planner.catalog.load import load_catalog

    entries = load_catalog(assumptions, overlay)
    if as_json:
        facts = {}
        for section in _SECTIONS:
            names = getattr(entries, section)
            facts[section] = {name: _facts(entries, section, name) for name in names}
        typer.echo(json_text(facts), nl=False)
        return
    # A name with hyphens stays whole, so that it can be copied.
    wrapper = textwrap.TextWrapper(
        78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    for section in _SECTIONS:
        names = ", ".join(getattr(entries, section))
        if not names:
            continue
        typer.echo(f"{section}:")
        # Names of a user's overlay may hold what a terminal would obey.
        typer.echo(wrapper.fill(printable(names)))
    typer.echo("\nplanner catalog show NAME prints one entry with its sources.")
    typer.echo(
        "planner catalog support MODEL ACCELERATOR says which engines serve that model there."
    )


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

    # Options may stand on either side of the command.
    group_assumptions, group_overlay = context.obj or ("measured", None)
    entries = load_catalog(assumptions or group_assumptions, overlay or group_overlay)
    places: dict[str, tuple[str, str]] = {}
    # In reverse, so that a name of two sections is that of the first.
    for section in reversed(_SECTIONS):
        places |= {entry.lower(): (section, entry) for entry in getattr(entries, section)}
    if name.lower() not in places:
        names = [entry for _, entry in places.values()]
        hint = nearest(name, names) or "planner catalog lists all entries"
        raise ScenarioError(Problem(message=f"the catalogue has no {name!r}", hint=hint))
    section, name = places[name.lower()]
    facts = _facts(entries, section, name)
    if as_json:
        answer = {"section": section, "name": name, "facts": facts}
        typer.echo(json_text(answer), nl=False)
        return
    typer.echo(f"{printable(name)} ({section})\n")
    rows = []
    for key, fact in facts.items():
        value = fact["value"]
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        source = str(fact["source"])
        if fact["note"]:
            source += f" ({fact['note']})"
        unit = fact["unit"] or ""
        rows.append((key, text, unit, fact["grade"], fact["date"], source))
    header = ("field", "value", "unit", "grade", "date", "source")
    typer.echo(text_table(header, rows))


@app.command("support")
def support(
    context: typer.Context,
    model: Annotated[str, Argument(help="Model of the catalogue, or your own.")],
    accelerator: Annotated[str, Argument(help="Accelerator of the catalogue, or your own.")],
    overlay: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """Say which engines serve a model on an accelerator, and whether public runs or the engine's own pages show it."""
    from planner.catalog.entries import Feature
    from planner.catalog.load import load_catalog
    from planner.output.terminal import text_table

    _, group_overlay = context.obj or ("measured", None)
    entries = load_catalog("measured", overlay or group_overlay)
    # Both raise an error that names the nearest one.
    entries.model(model)
    vendor = entries.accelerator(accelerator).vendor.value
    # By what is said: mostly the same of several precisions.
    precisions_of: dict[tuple[str, str, SupportRow], list[str]] = {}
    for engine in entries.engines(vendor):
        for feature in get_args(Feature):
            for precision in entries.precisions:
                row = entries.support.row(engine, model, accelerator, precision, feature)
                # What is not known is not listed: it is a candidate, and extrapolated.
                if row is not None:
                    precisions_of.setdefault((engine, feature, row), []).append(precision)
    records = []
    for (engine, feature, row), precisions in precisions_of.items():
        since = row.since.isoformat() if row.since else ""
        source = f"{row.source}, {row.note}" if row.note else row.source
        statement = (row.status, since, row.grade, source)
        records.append((engine, feature, " ".join(precisions), *statement))
    header = ("engine", "feature", "precisions", "status", "since", "grade", "source")
    if as_json:
        typer.echo(json_text([dict(zip(header, one, strict=True)) for one in records]), nl=False)
        return
    typer.echo(text_table(header, records))
    typer.echo(
        "\nPlans do not consider engines that are unsupported or broken. Engines not listed are considered, with "
        "extrapolated throughput."
    )


_STATED = "A key of the entry and its value, e.g. tdp_w=1000 or source='Datasheet of May'. Can be repeated."
Own = Annotated[
    Path, Option("--overlay", metavar="FILE", help="Your own catalogue file, to write or extend.")
]
Keys = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_STATED)]


@app.command("add-model")
def add_model(
    config: Annotated[
        Path, Argument(metavar="CONFIG.json", help="Configuration as Hugging Face publishes it.")
    ],
    overlay: Own,
    name: Annotated[
        str | None, Option(help="Name of the model [default: from the file, else from its folder].")
    ] = None,
    stated: Keys = None,
) -> None:
    """Add a model of your own to a catalogue file, from its config.json."""
    from planner.catalog.own import add_entry, model_entry

    usual, entry = model_entry(config)
    add_entry(overlay, "models", name or usual, entry, stated or ())
    typer.echo(
        f"wrote {printable(name or usual)} to {overlay}; to use it in any command: --overlay {overlay}"
    )


@app.command("add-accelerator")
def add_accelerator(
    name: Annotated[str, Argument(help="Name of the accelerator.")],
    overlay: Own,
    stated: Keys = None,
    like: Annotated[
        str | None,
        Option(metavar="NAME", help="Accelerator whose values are used where none is stated."),
    ] = None,
) -> None:
    """Add an accelerator of your own to a catalogue file; an error names required values that are missing."""
    from planner.catalog.own import accelerator_like, add_entry

    # Without a likeness every value has to be stated: the error names those that are not.
    entry = accelerator_like(like) if like else {}
    add_entry(overlay, "accelerators", name, entry, stated or ())
    typer.echo(
        f"wrote {printable(name)} to {overlay}; to use it in any command: --overlay {overlay}"
    )


def _facts(entries: Catalog, section: str, name: str) -> dict[str, dict[str, Any]]:
    """Return the values of an entry by field, each with its unit, source, date and grade."""
    from planner.catalog.entries import Range

    entry = getattr(entries, section)[name]
    # A prior is a value itself, not an entry that holds some.
    facts = [("range", entry, entry.unit)] if section == "priors" else list(entry.facts())
    described = {}
    for key, fact, unit in facts:
        title, date = entries.provenance(fact)
        if isinstance(fact, Range):
            value: Any = {"low": fact.low, "base": fact.base, "high": fact.high}
        else:
            value = fact.value
        # JSON has no dates.
        if hasattr(value, "isoformat"):
            value = value.isoformat()
        described[key] = {
            "value": value,
            "unit": unit,
            "source": title,
            "date": date,
            "grade": fact.grade,
            "note": fact.note,
        }
    return described
