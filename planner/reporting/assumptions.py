"""Every input of a run and where it comes from: the scenario's file and line, the catalogue's source, or a default."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from planner.catalog.entries import Entry, Range
from planner.catalog.load import VERSION, Catalog
from planner.documents import KeyPath, dotted
from planner.scenario.scenario import Scenario
from planner.units import unit_of

Row = tuple[str, str, str, str, str, str]
HEADER = ("path", "value", "unit", "source", "date", "grade")


def assumptions(scenario: Scenario) -> dict[str, list[str]]:
    """Return the columns of assumptions.csv: the scenario's inputs, then the catalogue values it used."""
    catalog = scenario.load_catalog()
    rows = [*_inputs(scenario), *_facts(scenario, catalog)]
    columns = zip(*rows, strict=True)
    return {name: list(column) for name, column in zip(HEADER, columns, strict=True)}


def _leaves(model: BaseModel, path: KeyPath, around: str) -> Iterator[tuple[KeyPath, Any, str]]:
    """Yield each plain value inside a scenario: its path, the value, its documentation or that of what is around it."""
    for name, field in type(model).model_fields.items():
        text = field.description or ""
        yield from _leaf(getattr(model, name), (*path, field.alias or name), text if "Default" in text else around)


def _leaf(value: Any, path: KeyPath, text: str) -> Iterator[tuple[KeyPath, Any, str]]:
    if isinstance(value, BaseModel):
        yield from _leaves(value, path, text)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaf(item, (*path, key), text)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaf(item, (*path, index), text)
    elif value is not None:
        yield path, value, text


def _inputs(scenario: Scenario) -> Iterator[Row]:
    for path, value, text in _leaves(scenario, (), ""):
        place = scenario.document.locations.get(path)
        if place is not None:
            line = f":{place.line}" if place.line is not None else ""
            source, grade = f"{Path(place.file).name}{line}", "user"
        else:
            reason = text.partition("Default")[2].strip(": ").rstrip(".")
            source, grade = f"default: {reason}" if reason else "default", "default"
        yield dotted(path), _plain(value), unit_of(str(path[-1])) or "", source, "", grade


def _facts(scenario: Scenario, catalog: Catalog) -> Iterator[Row]:
    """Yield the catalogue values of every accelerator, model, stack and tariff that the scenario names, and resale."""
    used: dict[tuple[str, str], Entry] = {}
    vendors = set()
    for cluster in scenario.clusters.values():
        accelerator = catalog.accelerator(cluster.accelerator)
        used["accelerators", cluster.accelerator] = accelerator
        if not cluster.resale_curve:
            vendors.add(accelerator.vendor.value)
        stack = catalog.stack(accelerator.vendor.value, cluster.engine)
        used["stacks", f"{stack.platform.value}-{stack.engine.value}"] = stack
    for workload in scenario.workloads.values():
        used["models", workload.model] = catalog.model(workload.model)
    used["tariffs", scenario.site.tariff] = catalog.tariff(scenario.site.tariff)
    facts = [
        (f"{section}.{name}.{key}", fact, unit)
        for (section, name), entry in sorted(used.items())
        for key, fact, unit in entry.facts()
    ]
    resale = [name for vendor in sorted(vendors) for name in catalog.resale_priors(vendor)]
    facts += [(f"priors.{name}", catalog.prior(name), catalog.prior(name).unit) for name in resale]
    for path, fact, unit in facts:
        title, date = catalog.provenance(fact)
        shown = f"{fact.low:g} / {fact.base:g} / {fact.high:g}" if isinstance(fact, Range) else _plain(fact.value)
        yield f"catalog.{path}", shown, unit or "", title, date, fact.grade
    prices = (scenario.finance.token_price, scenario.finance.api_price)
    if any(price is not None and price.cached_input_usd_per_million_tokens is None for price in prices):
        prior = catalog.prior("cached_input_price_ratio")
        title, date = catalog.provenance(prior)
        yield "catalog.priors.cached_input_price_ratio", _plain(prior.base), prior.unit or "", title, date, prior.grade
    yield "catalog.version", VERSION, "", "shipped with the planner", "", ""


def _plain(value: Any) -> str:
    """Write a value the way a spreadsheet reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}" if abs(value) < 1e15 else f"{value:.0f}"
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
