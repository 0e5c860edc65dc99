"""Every input of a run and where it comes from: the scenario's file and line, the catalogue's source, or a default."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from planner.build.capacity import build_services
from planner.build.reuse import Reuse
from planner.catalog.calibration import shipped_calibration
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
    rows = [*_inputs(scenario), *_facts(scenario, catalog), *_throughput(scenario)]
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


def _throughput(scenario: Scenario) -> Iterator[Row]:
    """Yield what the throughput model says of each pair, in which layout, and how that stands to the measurements."""
    services, _ = build_services(scenario, shipped_calibration(), Reuse(scenario), {})
    for (cluster, workload), service in services.items():
        tokens = service.requests_per_s * scenario.workloads[workload].tokens.output.mean
        standing = service.doubt.in_words() if service.doubt else "not cross-validated"
        yield (
            f"throughput.{cluster}.{workload}.output_tokens_per_s_per_accelerator",
            _plain(float(f"{tokens / service.accelerators_per_node:.6g}")),
            "tokens/s",
            f"throughput model, {service.layout}: {standing} at 90%",
            "",
            "C",
        )


def _facts(scenario: Scenario, catalog: Catalog) -> Iterator[Row]:
    """Yield the catalogue values of every accelerator, model, stack and tariff that the scenario names."""
    used: dict[tuple[str, str], Entry] = {}
    for cluster in scenario.clusters.values():
        accelerator = catalog.accelerator(cluster.accelerator)
        used["accelerators", cluster.accelerator] = accelerator
        stack = catalog.stack(accelerator.vendor.value, cluster.engine)
        used["stacks", f"{stack.platform.value}-{stack.engine.value}"] = stack
    for workload in scenario.workloads.values():
        used["models", workload.model] = catalog.model(workload.model)
    used["tariffs", scenario.site.tariff] = catalog.tariff(scenario.site.tariff)
    for (section, name), entry in sorted(used.items()):
        for key, fact, unit in entry.facts():
            title, date = catalog.provenance(fact)
            shown = f"{fact.low:g} / {fact.base:g} / {fact.high:g}" if isinstance(fact, Range) else _plain(fact.value)
            yield f"catalog.{section}.{name}.{key}", shown, unit or "", title, date, fact.grade
    yield "catalog.version", VERSION, "", "shipped with the planner", "", ""


def _plain(value: Any) -> str:
    """Write a value the way a spreadsheet reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}" if abs(value) < 1e15 else f"{value:.0f}"
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
