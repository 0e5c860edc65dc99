"""Reading the catalogue: the shipped files, an assumption set over them, and a user's own file over that."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from planner.catalog.entries import (
    Accelerator,
    Entry,
    FailureCause,
    Model,
    Range,
    Source,
    Sourced,
    Stack,
    Tariff,
    with_provenance,
)
from planner.documents import MAX_BYTES, Document, document_from, read_bytes, read_document
from planner.errors import Problem, ScenarioError
from planner.validation import Strict, choices, nearest, validate

FOLDER = Path(__file__).parent
ASSUMPTION_SETS = ("measured", "articles-2024")
VERSION = "2026.11"
_SECTIONS = ("accelerators", "models", "stacks", "tariffs", "failures", "priors", "sources")


class Catalog(Strict):
    """Everything the planner knows about hardware, models, software and prices, with provenance."""

    accelerators: dict[str, Accelerator] = Field(default_factory=dict)
    """Accelerators by name."""
    models: dict[str, Model] = Field(default_factory=dict)
    """Served models by name."""
    stacks: dict[str, Stack] = Field(default_factory=dict)
    """Software stacks by platform and engine."""
    tariffs: dict[str, Tariff] = Field(default_factory=dict)
    """Electricity tariffs by name."""
    failures: dict[str, FailureCause] = Field(default_factory=dict)
    """Why nodes fail, by cause."""
    priors: dict[str, Range] = Field(default_factory=dict)
    """Low, base and high of every uncertain figure."""
    sources: dict[str, Source] = Field(default_factory=dict)
    """Sources that several values share."""

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Yield section, name and entry of everything but priors and sources."""
        for section in ("accelerators", "models", "stacks", "tariffs", "failures"):
            for name, entry in getattr(self, section).items():
                yield section, name, entry

    def provenance(self, fact: Sourced[Any] | Range) -> tuple[str, str]:
        """Return the title and the ISO date of a value's source."""
        source = self.sources.get(fact.source)
        date = fact.date or (source.date if source else None)
        return (source.title if source else fact.source), (date.isoformat() if date else "")

    def accelerator(self, name: str) -> Accelerator:
        """Return the accelerator of that name."""
        return self._entry("accelerators", name)  # type: ignore[no-any-return]

    def model(self, name: str) -> Model:
        """Return the model of that name."""
        return self._entry("models", name)  # type: ignore[no-any-return]

    def stack(self, vendor: str, engine: str) -> Stack:
        """Return the stack that serves with ``engine`` on the accelerators of ``vendor``."""
        for stack in self.stacks.values():
            if stack.vendor.value == vendor and stack.engine.value == engine:
                return stack
        engines = [stack.engine.value for stack in self.stacks.values() if stack.vendor.value == vendor]
        raise ScenarioError(f"engine {engine!r} does not run on {vendor} accelerators; choose from {choices(engines)}")

    def tariff(self, name: str) -> Tariff:
        """Return the tariff of that name."""
        return self._entry("tariffs", name)  # type: ignore[no-any-return]

    def prior(self, name: str) -> Range:
        """Return the prior of that name."""
        return self._entry("priors", name)  # type: ignore[no-any-return]

    def resale_priors(self, vendor: str) -> dict[str, float]:
        """Return the names of a vendor's resale priors (``resale_12m_nvidia``) and their ages in months, rising."""
        names = {name: re.fullmatch(rf"resale_(\d+)m_{vendor}", name) for name in self.priors}
        ages = {name: float(match[1]) for name, match in names.items() if match}
        return dict(sorted(ages.items(), key=lambda item: item[1]))

    def resale_fractions(self, vendor: str) -> dict[float, float]:
        """Return what a vendor's used servers fetch, as a share of new, by rising age in months."""
        return {age: self.priors[name].base for name, age in self.resale_priors(vendor).items()}

    def _entry(self, section: str, name: str) -> Any:
        known = getattr(self, section)
        if name not in known:
            hint = nearest(name, known) or f"the catalogue has {choices(known)}"
            raise ScenarioError(Problem(message=f"unknown {section[:-1]} {name!r}", hint=hint))
        return known[name]


def load_catalog(assumption_set: str = "measured", overlay: Path | None = None) -> Catalog:
    """Read the catalogue. Later layers win, value by value: shipped files, the assumption set, the user's overlay."""
    return catalog_with(assumption_set, None if overlay is None else (str(overlay), read_bytes(overlay, MAX_BYTES)))


@functools.lru_cache(maxsize=16)
def catalog_with(assumption_set: str, overlay: tuple[str, bytes] | None) -> Catalog:
    """Return the catalogue with an overlay that has been read already: its name in messages, and its bytes."""
    layers = [_shipped(section) for section in _SECTIONS]
    if assumption_set not in ASSUMPTION_SETS:
        raise ScenarioError(f"unknown assumption set {assumption_set!r}; choose from {choices(ASSUMPTION_SETS)}")
    if assumption_set != "measured":
        layers.append(read_document(FOLDER / f"{assumption_set}.yaml"))
    if overlay is not None:
        layers.append(_overlay(*overlay))
    merged = Document({section: {} for section in _SECTIONS})
    for layer in layers:
        _lay_over(merged, layer)
    catalog = validate(Catalog, merged)
    _check_sources(catalog, merged)
    return catalog


def _overlay(name: str, content: bytes) -> Document:
    """Parse a user's catalogue file, which may be empty of sections but not of a mapping."""
    document = document_from(content, name)
    if not isinstance(document.content, dict):
        raise ScenarioError(Problem(file=name, line=1, message=f"expected a mapping with {', '.join(_SECTIONS)}"))
    return document


def _shipped(section: str) -> Document:
    """Read one shipped file as a document with that one section."""
    document = read_document(FOLDER / f"{section}.yaml")
    locations = {(section, *path): place for path, place in document.locations.items()}
    return Document({section: document.content}, locations)


def _lay_over(base: Document, layer: Document) -> None:
    """Lay one document over another, entry by entry and inside an entry value by value."""
    for section, entries in layer.content.items():
        if section not in base.content or not isinstance(entries, dict):
            base.content[section] = entries  # validation says what is wrong with it
            continue
        for name, entry in entries.items():
            below = base.content[section].get(name)
            if isinstance(entry, dict) and isinstance(below, dict) and section not in ("priors", "sources"):
                base.content[section][name] = {**with_provenance(below), **with_provenance(entry)}
            else:
                base.content[section][name] = entry
    base.locations.update(layer.locations)


def _check_sources(catalog: Catalog, document: Document) -> None:
    """Refuse a one-word source that is not a key of the sources: it is a misspelt reference."""
    problems = []
    facts = [(s, n, k, f) for s, n, entry in catalog.entries() for k, f, _ in entry.facts()]
    facts += [("priors", name, "source", prior) for name, prior in catalog.priors.items()]
    for section, name, key, fact in facts:
        if " " not in fact.source and fact.source not in catalog.sources:
            message = f"source {fact.source!r} is not in sources; add it there or say it in words"
            problems.append(document.problem((section, name, key), message, nearest(fact.source, catalog.sources)))
    if problems:
        raise ScenarioError(list(dict.fromkeys(problems)))
