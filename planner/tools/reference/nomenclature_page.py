"""The page of names: one for each quantity, with its unit and where it appears."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from planner.reporting.run_columns import RUN_TABLES
from planner.tools.reference.catalog_page import SECTIONS
from planner.tools.reference.fields import scenario_sections
from planner.tools.reference.markdown import code, page, table, text
from planner.units import unit_of, unit_suffixes
from planner.validation import field_docstring

_INTRODUCTION = """\
One name for each quantity, the same in a scenario, in the catalogue, in the code and in the output files. A number with
a dimension ends in its unit; a count, a name or a switch has none."""


def nomenclature_page() -> str:
    """Return the page of unit suffixes and of every named quantity."""
    suffixes = [(code(suffix), text(unit)) for suffix, unit in sorted(unit_suffixes().items())]
    places: dict[str, list[str]] = defaultdict(list)
    meanings: dict[str, str] = {}
    for name, place, meaning in _quantities():
        if place not in places[name]:
            places[name].append(place)
        meanings.setdefault(name, meaning)
    rows = [
        (code(name), text(unit_of(name) or ""), meanings[name], ", ".join(places[name]))
        for name in sorted(places)
        if unit_of(name) is not None
    ]
    return page(
        "Names and units",
        _INTRODUCTION,
        "## Units in names\n\nThe longest ending that fits states the unit.\n\n"
        + table(("a name that ends in", "is in"), suffixes),
        f"## Quantities\n\n{table(('name', 'unit', 'meaning', 'where'), rows)}",
    )


def _quantities() -> Iterator[tuple[str, str, str]]:
    """Yield every named figure, with the place it appears and what it means there (Markdown)."""
    for section in scenario_sections():
        for field in section.fields:
            yield field.path.rpartition(".")[2], "[scenario](scenario.md)", text(field.meaning)
    for model in SECTIONS.values():
        for name in model.model_fields:
            yield name, "[catalogue](catalog.md)", text(field_docstring(model, name))
    for output in RUN_TABLES:
        for column in output.columns:
            yield column.name, f"[{output.name}.csv](outputs.md)", column.description
