"""Loading the catalogue: the shipped files, an assumption set over them, and a user's overlay over that."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from planner.catalog import entries as kinds
from planner.catalog.entries import FOLDER, GROUPS, NESTED, Entry, Range, Sourced
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics.model_on_part import AcceleratorSpec, Formats, ModelShape, NumberFormat
from planner.units import GIB, GIGA, TB, TERA
from planner.validation import Strict, choices, nearest, validate
from planner.yaml_io import MAX_BYTES, Document, KeyPath, document_from, read_bytes, read_document

ASSUMPTION_SETS = ("measured", "articles-2024")
VERSION = "2026.11"
ENTRY_SECTIONS = (
    "accelerators",
    "models",
    "stacks",
    "tariffs",
    "failures",
    "precisions",
    "vendors",
    "incidents",
)
_SECTIONS = (*ENTRY_SECTIONS, "priors", "sources")


class Catalog(Strict):
    """All hardware, models, software and prices known to the planner, with provenance."""

    accelerators: dict[str, kinds.Accelerator] = Field(default_factory=dict)
    """Accelerators by name."""
    models: dict[str, kinds.Model] = Field(default_factory=dict)
    """Served models by name."""
    stacks: dict[str, kinds.Stack] = Field(default_factory=dict)
    """Software stacks by platform and engine."""
    tariffs: dict[str, kinds.Tariff] = Field(default_factory=dict)
    """Electricity tariffs by name."""
    failures: dict[str, kinds.FailureCause] = Field(default_factory=dict)
    """Why nodes fail, by cause."""
    precisions: dict[str, kinds.Precision] = Field(default_factory=dict)
    """Number formats by name."""
    vendors: dict[str, kinds.Vendor] = Field(default_factory=dict)
    """Makers of accelerators by name."""
    incidents: dict[str, kinds.IncidentKind] = Field(default_factory=dict)
    """What goes wrong with software, by kind."""
    priors: dict[str, Range] = Field(default_factory=dict)
    """Low, base and high of every uncertain figure."""
    sources: dict[str, kinds.Source] = Field(default_factory=dict)
    """Sources that several values share."""

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Yield section, name and entry of everything but priors and sources."""
        for section in ENTRY_SECTIONS:
            for name, entry in getattr(self, section).items():
                yield section, name, entry

    def provenance(self, fact: Sourced[Any] | Range) -> tuple[str, str]:
        """Return the title and the ISO date of a value's source."""
        source = self.sources.get(fact.source)
        date = fact.date or (source.date if source else None)
        return (source.title if source else fact.source), (date.isoformat() if date else "")

    def accelerator(self, name: str) -> kinds.Accelerator:
        """Return the accelerator of that name."""
        return self._entry("accelerators", name)  # type: ignore[no-any-return]

    def model(self, name: str) -> kinds.Model:
        """Return the model of that name."""
        return self._entry("models", name)  # type: ignore[no-any-return]

    def stack(self, vendor: str, engine: str) -> kinds.Stack:
        """Return the stack that serves with ``engine`` on the accelerators of ``vendor``."""
        for stack in self.stacks.values():
            if stack.vendor.value == vendor and stack.engine.value == engine:
                return stack
        engines = self.engines(vendor)
        raise ScenarioError(
            f"engine {engine!r} does not run on {vendor} accelerators; choose from {choices(engines)}"
        )

    def engines(self, vendor: str) -> list[str]:
        """Return the engines that serve on the accelerators of a vendor."""
        return [
            stack.engine.value for stack in self.stacks.values() if stack.vendor.value == vendor
        ]

    def incident(self, stack: kinds.Stack, kind: str) -> kinds.StackIncident:
        """Return an incident kind's figures on a stack: the stack's own, else the kind's, else the stack's fix time."""
        stated = stack.incidents.get(kind) or kinds.StackIncident.model_construct()
        usual = self.incidents[kind]
        figures = {
            key: getattr(stated, key) or getattr(usual, key)
            for key in kinds.StackIncident.model_fields
        }
        return kinds.StackIncident.model_construct(
            **figures | {"fix_days": figures["fix_days"] or stack.fix_days}
        )

    def precision_with(self, role: str) -> str:
        """Return the precision with a role: that of activations, or the default for serving."""
        return next(
            name
            for name, entry in self.precisions.items()
            if entry.role and entry.role.value == role
        )

    def vendor(self, name: str) -> kinds.Vendor:
        """Return the vendor of that name."""
        return self._entry("vendors", name)  # type: ignore[no-any-return]

    def tariff(self, name: str) -> kinds.Tariff:
        """Return the tariff of that name."""
        return self._entry("tariffs", name)  # type: ignore[no-any-return]

    def prior(self, name: str) -> Range:
        """Return the prior of that name."""
        return self._entry("priors", name)  # type: ignore[no-any-return]

    def resale_priors(self, part: str) -> dict[str, float]:
        """Return the names of an accelerator's resale priors and their ages in months, rising.

        Its own (``resale_12m_h200``) where there are any, else its vendor's (``resale_12m_nvidia``).
        """
        for owner in (part.lower(), self.accelerator(part).vendor.value):
            ages = re.compile(rf"resale_(\d+)m_{re.escape(owner)}")
            if matches := [match for name in self.priors if (match := ages.fullmatch(name))]:
                return {
                    match[0]: float(match[1])
                    for match in sorted(matches, key=lambda match: float(match[1]))
                }
        return {}

    def resale_fractions(self, part: str) -> dict[float, float]:
        """Return the resale values of an accelerator's used servers as a share of new, by age in months."""
        return {age: self.priors[name].base for name, age in self.resale_priors(part).items()}

    def _entry(self, section: str, name: str) -> Any:
        known = getattr(self, section)
        if name not in known:
            hint = nearest(name, known) or f"the catalogue has {choices(known)}"
            raise ScenarioError(Problem(message=f"unknown {section[:-1]} {name!r}", hint=hint))
        return known[name]


def load_catalog(assumption_set: str = "measured", overlay: Path | None = None) -> Catalog:
    """Return the catalogue, merged value by value: shipped files, assumption set, user's overlay."""
    return catalog_with(
        assumption_set, None if overlay is None else (str(overlay), read_bytes(overlay, MAX_BYTES))
    )


@functools.lru_cache(maxsize=16)
def catalog_with(assumption_set: str, overlay: tuple[str, bytes] | None) -> Catalog:
    """Return the catalogue with an overlay given by its name in messages and its bytes."""
    if assumption_set not in ASSUMPTION_SETS:
        raise ScenarioError(
            f"unknown assumption set {assumption_set!r}; choose from {choices(ASSUMPTION_SETS)}"
        )
    layers = []
    for section in _SECTIONS:  # one shipped file each
        shipped = read_document(FOLDER / f"{section}.yaml")
        locations = {(section, *path): place for path, place in shipped.locations.items()}
        layers.append(Document({section: shipped.content}, locations))
    if assumption_set != "measured":
        layers.append(read_document(FOLDER / f"{assumption_set}.yaml"))
    if overlay is not None:
        name, content = overlay
        layers.append(document_from(content, name))
        if not isinstance(layers[-1].content, dict):
            raise ScenarioError(
                Problem(
                    file=name, line=1, message=f"expected a mapping with {', '.join(_SECTIONS)}"
                )
            )
    merged = Document({section: {} for section in _SECTIONS})
    for layer in layers:
        _lay_over(merged, layer)
    catalog = validate(Catalog, merged)
    problems = []
    facts = [(s, n, k, f) for s, n, entry in catalog.entries() for k, f, _ in entry.facts()]
    facts += [("priors", name, "source", prior) for name, prior in catalog.priors.items()]
    for (
        section,
        name,
        key,
        fact,
    ) in facts:  # a one-word source that is no key of the sources is a misspelt reference
        if " " not in fact.source and fact.source not in catalog.sources:
            message = f"source {fact.source!r} is not in sources; add it there or say it in words"
            problems.append(
                merged.problem((section, name, key), message, nearest(fact.source, catalog.sources))
            )
    raise_all(list(dict.fromkeys(problems)))
    _check_names(catalog, merged)
    return catalog


def _lay_over(base: Document, layer: Document) -> None:
    """Merge one document over another, entry by entry and value by value."""
    for section, entries in layer.content.items():
        if section not in base.content or not isinstance(entries, dict):
            base.content[section] = entries  # validation says what is wrong with it
            continue
        for name, entry in entries.items():
            below = base.content[section].get(name)
            if isinstance(entry, dict) and section in ENTRY_SECTIONS:
                above = kinds.with_provenance(entry)
                below = kinds.with_provenance(below) if isinstance(below, dict) else {}
                base.content[section][name] = _merged(below, above, GROUPS)
            else:
                base.content[section][name] = entry
    base.locations.update(layer.locations)


def _merged(
    below: dict[str, Any], above: dict[str, Any], groups: tuple[str, ...]
) -> dict[str, Any]:
    """Return one entry merged over another, also within its groups; null removes a group's value."""
    merged = {**below, **above}
    for key in groups:
        if isinstance(inner := above.get(key), dict):
            under = below.get(key) if isinstance(below.get(key), dict) else {}
            names = tuple(inner) if key in NESTED else ()
            kept = _merged(under or {}, inner, names)
            merged[key] = {name: value for name, value in kept.items() if value is not None}
    return merged


def _check_names(catalog: Catalog, document: Document) -> None:
    """Raise an error for entries that name an unknown vendor, precision or incident kind."""
    named: list[tuple[KeyPath, str, str]] = []  # where, which name, and the section it should be in
    for name, part in catalog.accelerators.items():
        named.append((("accelerators", name, "vendor"), part.vendor.value, "vendors"))
        named += [
            (("accelerators", name, "dense_tflops", of), of, "precisions")
            for of in part.dense_tflops
        ]
    for name, stack in catalog.stacks.items():
        named.append((("stacks", name, "vendor"), stack.vendor.value, "vendors"))
        named += [
            (("stacks", name, "incidents", kind), kind, "incidents") for kind in stack.incidents
        ]
    keys = ("native_precision", "shared_precision", "published_shared_precision")
    for section in ("models", "precisions"):
        for name, entry in getattr(catalog, section).items():
            for key in (*keys, "wider", "falls_back_to", "published_computes_in"):
                if (fact := getattr(entry, key, None)) is not None:
                    names = fact.value if isinstance(fact.value, tuple) else (fact.value,)
                    named += [
                        ((section, name, key), precision, "precisions") for precision in names
                    ]
    problems = []
    for path, name, section in named:
        known = getattr(catalog, section)
        if name not in known:
            hint = nearest(name, known) or f"the catalogue has {choices(known)}"
            problems.append(document.problem(path, f"unknown {section[:-1]} {name!r}", hint))
    problems += (
        [document.problem(path, message) for path, message in _contradictions(catalog)]
        if not problems
        else []
    )
    raise_all(problems)


def _contradictions(catalog: Catalog) -> Iterator[tuple[KeyPath, str]]:
    """Yield the contradictions between entries whose references are valid."""
    roles = {name: entry.role.value for name, entry in catalog.precisions.items() if entry.role}
    for role in ("activations", "default"):
        if (count := list(roles.values()).count(role)) != 1:
            yield ("precisions",), f"one precision must have the role {role}, not {count}"
            return
    always = catalog.precision_with("activations")
    for name, entry in catalog.precisions.items():
        if (
            entry.wider
            and catalog.precisions[entry.wider.value].weight_bytes.value <= entry.weight_bytes.value
        ):
            yield (
                ("precisions", name, "wider"),
                f"{entry.wider.value} has weights no larger than {name}",
            )
    for name, part in catalog.accelerators.items():
        if always not in part.dense_tflops:
            yield (
                ("accelerators", name, "dense_tflops"),
                f"needs {always}, in which activations are stored",
            )
        if part.idle_w.value >= part.tdp_w.value:
            yield ("accelerators", name, "idle_w"), f"must be below tdp_w, {part.tdp_w.value:g}"
    for name, model in catalog.models.items():
        visited = model.experts_per_token.value if model.experts_per_token else 0
        if model.experts and not 1 <= visited <= model.experts.value:
            yield (
                ("models", name, "experts_per_token"),
                f"must lie between 1 and {model.experts.value}, its experts",
            )
    for name, stack in catalog.stacks.items():
        for kind, told in catalog.incidents.items():
            figures = catalog.incident(stack, kind)
            path = ("stacks", name, "incidents", kind)
            comes = figures.per_year or figures.per_upgrade
            if comes and told.effect.value == "slows" and not figures.loss_fraction:
                yield path, f"{kind} slows the stack: state its loss_fraction"
            if comes and told.effect.value != "falsifies" and not figures.most_loss_fraction:
                yield path, f"{kind} costs throughput: state its most_loss_fraction"
            if figures.per_upgrade and not told.detection_h:
                yield ("incidents", kind), f"{kind} comes with upgrades: state its detection_h"


@functools.cache
def _workload_presets() -> dict[str, Any]:
    """Return the shipped workload presets: default figures for what a log or scenario does not state."""
    content: dict[str, Any] = read_document(FOLDER / "workload_presets.yaml").content
    return content


def workload_preset_names() -> tuple[str, ...]:
    """Return the names of the shipped workload presets."""
    return tuple(_workload_presets())


def workload_preset(name: str) -> dict[str, Any]:
    """Return one preset as field → value, without sources; raise ScenarioError for an unknown name."""
    classes = _workload_presets()
    if name not in classes:
        hint = nearest(name, list(classes)) or f"classes are {choices(list(classes))}"
        raise ScenarioError(
            Problem(path="preset", message=f"unknown workload preset {name!r}", hint=hint)
        )
    return {field: fact["value"] for field, fact in classes[name].items()}


def formats_of(catalog: Catalog) -> Formats:
    """Return the catalogue's precisions as the throughput formula needs them."""
    formats = {}
    for name, entry in catalog.precisions.items():
        stated: dict[str, Any] = {
            key: fact.value for key, fact, _ in entry.facts() if isinstance(fact, Sourced)
        }
        stated["falls_back_for_all"] = stated.pop("falls_back_for", "published") == "all"
        stated.setdefault("published_weight_bytes", entry.weight_bytes.value)
        formats[name] = NumberFormat(**stated)
    return formats


def part_of(name: str, catalog: Catalog) -> AcceleratorSpec:
    """Return a catalogue accelerator as the throughput formula needs it."""
    entry = catalog.accelerator(name)
    return AcceleratorSpec(
        name=name,
        vendor=entry.vendor.value,
        hbm_bytes=entry.hbm_gb.value * GIB,
        hbm_bytes_per_s=entry.hbm_tb_per_s.value * TB,
        dense_flops_per_s={
            precision: rate.value * TERA for precision, rate in entry.dense_tflops.items()
        },
        formats=formats_of(catalog),
        tdp_w=entry.tdp_w.value,
        link_bytes_per_s=entry.scaleup_gb_per_s.value * GIGA,
        scaleup_accelerators=entry.scaleup_accelerators.value,
        switched=entry.scaleup_switched.value,
        accelerators_per_node=entry.accelerators_per_node.value,
        network_bytes_per_s=(entry.scaleout_gb_per_s or entry.scaleup_gb_per_s).value * GIGA,
        bring_up={
            stack.engine.value: (stack.bring_up_throughput_fraction.base, stack.bring_up_weeks.base)
            for stack in catalog.stacks.values()
            if stack.vendor.value == entry.vendor.value
        },
    )


def shape_of(name: str, catalog: Catalog) -> ModelShape:
    """Return a catalogue model as the throughput formula needs it, with the formula's defaults where not stated."""
    taken = {field.name for field in dataclasses.fields(ModelShape)}
    facts = catalog.model(name).facts()
    stated: dict[str, Any] = {
        key: fact.value for key, fact, _ in facts if key in taken and isinstance(fact, Sourced)
    }
    stated.setdefault("native_precision", catalog.precision_with("activations"))
    return ModelShape(name=name, **stated)
