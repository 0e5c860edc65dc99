"""``planner catalog``: what the planner knows, and where it knows it from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.options import AsJson

if TYPE_CHECKING:
    from planner.catalog.load import Catalog

app = typer.Typer(help="List what the catalogue holds, with sources.", rich_markup_mode=None)

Assumptions = Annotated[str, typer.Option("--assumptions", help="Assumption set: measured or articles-2024.")]
Overlay = Annotated[
    Path | None, typer.Option("--overlay", metavar="FILE", help="Your own catalogue file, laid over the set.")
]


@app.callback(invoke_without_command=True)
def catalog(
    context: typer.Context, assumptions: Assumptions = "measured", overlay: Overlay = None, as_json: AsJson = False
) -> None:
    """List accelerators, models, software stacks, precisions, vendors, incidents, tariffs and priors."""
    if context.invoked_subcommand is not None:
        return
    from planner.catalog.load import load_catalog
    from planner.files import json_text

    known = load_catalog(assumptions, overlay)
    sections = {section: list(getattr(known, section)) for section in _SECTIONS}
    if as_json:
        typer.echo(json_text({section: _section_json(known, section) for section in _SECTIONS}), nl=False)
        return
    for section, names in sections.items():
        typer.echo(f"{section}:")
        typer.echo(_wrap(names))
    typer.echo("\nplanner catalog show NAME prints one entry with its sources.")


_SECTIONS = (
    "accelerators", "models", "stacks", "tariffs", "failures", "precisions", "vendors", "incidents", "priors",
)  # fmt: skip


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Any entry of the catalogue.")],
    assumptions: Assumptions = "measured",
    overlay: Overlay = None,
    as_json: AsJson = False,
) -> None:
    """Show one entry: every value with unit, source, date and grade."""
    from planner.catalog.load import load_catalog
    from planner.errors import Problem, ScenarioError, printable
    from planner.files import json_text
    from planner.output.text_table import text_table
    from planner.validation import nearest

    known = load_catalog(assumptions, overlay)
    names = {entry.lower(): (section, entry) for section in reversed(_SECTIONS) for entry in getattr(known, section)}
    if name.lower() not in names:
        hint = nearest(name, [entry for _, entry in names.values()]) or "planner catalog lists what there is"
        raise ScenarioError(Problem(message=f"the catalogue has no {name!r}", hint=hint))
    section, shown = names[name.lower()]
    facts = _facts_json(known, section, shown)
    if as_json:
        typer.echo(json_text({"section": section, "name": shown, "facts": facts}), nl=False)
        return
    typer.echo(f"{printable(shown)} ({section})\n")
    rows = [
        (key, _written(fact["value"]), fact["unit"] or "", fact["grade"], fact["date"], _short(fact))
        for key, fact in facts.items()
    ]
    typer.echo(text_table(("field", "value", "unit", "grade", "date", "source"), rows))


def _written(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _short(fact: dict[str, Any]) -> str:
    return f"{fact['source']} ({fact['note']})" if fact["note"] else str(fact["source"])


def _section_json(known: Catalog, section: str) -> dict[str, Any]:
    return {name: _facts_json(known, section, name) for name in getattr(known, section)}


def _facts_json(known: Catalog, section: str, name: str) -> dict[str, Any]:
    from planner.catalog.entries import Range

    entry = getattr(known, section)[name]
    facts = [("range", entry, entry.unit)] if section == "priors" else list(entry.facts())
    described = {}
    for key, fact, unit in facts:
        title, date = known.provenance(fact)
        value = {"low": fact.low, "base": fact.base, "high": fact.high} if isinstance(fact, Range) else fact.value
        plain = value.isoformat() if hasattr(value, "isoformat") else value
        described[key] = {
            "value": plain, "unit": unit, "source": title, "date": date, "grade": fact.grade, "note": fact.note,
        }  # fmt: skip
    return described


def _wrap(names: list[str]) -> str:
    import textwrap

    from planner.errors import printable

    return textwrap.fill(
        printable(", ".join(names)), width=78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
