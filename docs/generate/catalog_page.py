"""The page of what the catalogue holds."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

from docs.generate.markdown import code, page, table, text
from planner.catalog.entries import (
    Accelerator,
    Entry,
    Grade,
    IncidentKind,
    Model,
    Precision,
    Range,
    Sourced,
    Stack,
    Tariff,
    Vendor,
)
from planner.catalog.load import ASSUMPTION_SETS, VERSION, Catalog, load_catalog
from planner.units import unit_of
from planner.validation import field_docstring

GRADES: dict[Grade, str] = {
    "A": "primary: a datasheet, a filing, a paper, a benchmark log",
    "B": "credible secondary",
    "C": "derived from A or B",
    "D": "assumption",
}
SECTIONS: dict[str, type[Entry]] = {
    "accelerators": Accelerator,
    "models": Model,
    "stacks": Stack,
    "tariffs": Tariff,
    "precisions": Precision,
    "vendors": Vendor,
    "incidents": IncidentKind,
}

_INTRODUCTION = f"""\
What the planner knows before you tell it anything, catalogue version {VERSION}. Every value has a unit, a source, a
date and a grade; `planner catalog show NAME` prints them for one entry, `--json` for a program. To change a figure, or
add an entry, [lay a file of your own over it](../how-to/overlay-the-catalogue.md)."""


def catalog_page() -> str:
    """Return the page of catalogue entries, assumption sets and grades."""
    known = load_catalog()
    return page(
        "Catalogue",
        _INTRODUCTION,
        "## Grades\n\n" + table(("grade", "meaning"), [(grade, text(words)) for grade, words in GRADES.items()]),
        _sets(known),
        *(_section(known, section, model) for section, model in SECTIONS.items()),
        _priors(known),
        _sources(known),
    )


def _sets(known: Catalog) -> str:
    """Say what each assumption set changes against the measured one."""
    parts = [
        "## Assumption sets",
        "`measured` is the default: datasheets and public measurements. The others change what is listed here and "
        "nothing else; choose one with `catalog: {assumptions: NAME}` in a scenario.",
    ]
    for name in ASSUMPTION_SETS[1:]:
        other = load_catalog(name)
        rows = [
            (f"`{entry}`", f"`{key}`", unit or "", _shown(before), _shown(after))
            for section in SECTIONS
            for entry, key, unit, before, after in _changes(known, other, section)
        ]
        parts += [f"### `{name}`", table(("entry", "field", "unit", "measured", name), rows)]
    return "\n\n".join(parts)


def _changes(known: Catalog, other: Catalog, section: str) -> list[tuple[str, str, str | None, Any, Any]]:
    """Return which values of a section differ: entry, key, unit, before and after."""
    changes = []
    for entry, changed in getattr(other, section).items():
        base = getattr(known, section).get(entry)
        before, after = ({key: (fact, unit) for key, fact, unit in entry.facts()} if entry else {}
                         for entry in (base, changed))  # fmt: skip
        for key in dict.fromkeys([*before, *after]):
            (old, unit), (new, _) = before.get(key) or (None, after[key][1]), after.get(key) or (None, None)
            if _shown(old) != _shown(new):
                changes.append((entry, key, unit, old, new))
    return changes


def _section(known: Catalog, section: str, model: type[Entry]) -> str:
    entries: dict[str, Entry] = getattr(known, section)
    counts = {name: Counter(fact.grade for _, fact, _ in entry.facts()) for name, entry in entries.items()}
    by_grade = [(code(name), *(str(count[grade] or "") for grade in GRADES)) for name, count in counts.items()]
    fields = [
        (code(name), text(field_docstring(model, name)), unit_of(name) or "", "yes" if field.is_required() else "")
        for name, field in model.model_fields.items()
    ]
    parts = [
        f"## {section.capitalize()}",
        f"Entries, and how many of their values have each grade:\n\n{table(('entry', *GRADES), by_grade)}",
        f"Fields of an entry:\n\n{table(('field', 'what it means', 'unit', 'required'), fields)}",
    ]
    if section not in ("models", "stacks"):
        parts.append("Values, each with its grade:\n\n" + _values(entries))
    return "\n\n".join(parts)


def _values(entries: dict[str, Entry]) -> str:
    """Show every value of every entry, the longer side of the table downwards."""
    facts = {name: {key: fact for key, fact, _ in entry.facts()} for name, entry in entries.items()}
    names, keys = list(entries), list(dict.fromkeys(key for entries in facts.values() for key in entries))
    cell = {(name, key): _shown(facts[name].get(key)) for name in names for key in keys}
    if len(names) > len(keys):
        return table(("entry", *map(code, keys)), [(code(n), *(cell[n, k] for k in keys)) for n in names])
    return table(("field", *map(code, names)), [(code(k), *(cell[n, k] for n in names)) for k in keys])


def _shown(fact: Sourced[Any] | Range | None) -> str:
    """Show a value and its grade."""
    if fact is None:
        return "none"
    if isinstance(fact, Range):
        return f"{fact.low:g} / {fact.base:g} / {fact.high:g} ({fact.grade})"
    value = fact.value
    if isinstance(value, bool):
        written = "yes" if value else "no"
    elif isinstance(value, tuple):
        written = text(", ".join(value))
    elif isinstance(value, float):
        written = f"{value:,.12g}"
    else:
        written = value.isoformat() if isinstance(value, datetime.date) else text(str(value))
    return f"{written} ({fact.grade})"


def _priors(known: Catalog) -> str:
    rows = [
        (code(name), f"{prior.low:g}", f"{prior.base:g}", f"{prior.high:g}", text(prior.unit or ""), prior.grade,
         text(known.provenance(prior)[0]))
        for name, prior in known.priors.items()
    ]  # fmt: skip
    header = ("prior", "low (P10)", "base (P50)", "high (P90)", "unit", "grade", "source")
    return f"## Priors\n\nWhat is believed about uncertain figures.\n\n{table(header, rows)}"


def _sources(known: Catalog) -> str:
    rows = [(code(key), text(source.title), source.date.isoformat()) for key, source in known.sources.items()]
    return f"## Sources\n\n{table(('key', 'source', 'date'), rows)}"
