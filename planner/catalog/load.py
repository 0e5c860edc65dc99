"""Loading the catalogue: the shipped files, an assumption set over them, and a user's overlay over that."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import Field

from planner.catalog import entries as kinds
from planner.catalog.entries import (
    FOLDER,
    GROUPS,
    NESTED,
    Entry,
    Range,
    Sourced,
    with_provenance,
)
from planner.catalog.support import ANY, SupportMatrix
from planner.errors import Problem, ScenarioError, raise_all
from planner.physics.model_on_part import AcceleratorSpec, Formats, ModelShape, NumberFormat
from planner.physics.prefix_cache import ReuseCurve, from_curves, from_points
from planner.units import GIB, GIGA, TB, TERA
from planner.validation import Strict, choices, nearest, validate
from planner.yaml_io import MAX_BYTES, Document, KeyPath, document_from, read_bytes, read_document

ASSUMPTION_SETS = ("measured", "articles-2024")
VERSION = "2026.11"
"""Of the shipped catalogue; a run's manifest names it."""
ENTRY_SECTIONS = (
    "accelerators",
    "models",
    "stacks",
    "tariffs",
    "failures",
    "precisions",
    "vendors",
    "incidents",
    "engine_support",
)
_SECTIONS = (*ENTRY_SECTIONS, "priors", "sources")
_TABLES = ("engine_support",)
"""Sections that a user may write and that are shipped as a table: as YAML they would take longer to read than a run."""


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
    engine_support: dict[str, kinds.EngineSupport] = Field(default_factory=dict)
    """Which engine serves what: a user's own statements, which go before the shipped table."""
    priors: dict[str, Range] = Field(default_factory=dict)
    """Low, base and high of every uncertain figure."""
    sources: dict[str, kinds.Source] = Field(default_factory=dict)
    """Sources that several values share."""

    @functools.cached_property
    def support(self) -> SupportMatrix:
        """Return what is known of which engine serves what."""
        own = self.engine_support.values()
        stacks = self.stacks.values()
        return SupportMatrix(own, self.accelerators, self.models, stacks)

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Yield section, name and entry of everything but priors and sources."""
        for section in ENTRY_SECTIONS:
            for name, entry in getattr(self, section).items():
                yield section, name, entry

    def provenance(self, fact: Sourced[Any] | Range) -> tuple[str, str]:
        """Return the title and the ISO date of a value's source."""
        title = fact.source
        date = fact.date
        # A source may be said in words: then it is its own title, and has no date but the value's.
        if source := self.sources.get(fact.source):
            title = source.title
            date = date or source.date
        return title, date.isoformat() if date else ""

    def accelerator(self, name: str) -> kinds.Accelerator:
        """Return the accelerator of that name."""
        return self._entry("accelerators", name)  # type: ignore[no-any-return]

    def model(self, name: str) -> kinds.Model:
        """Return the model of that name."""
        return self._entry("models", name)  # type: ignore[no-any-return]

    def stack(self, vendor: str, engine: str) -> kinds.Stack:
        """Return the stack that serves with ``engine`` on the accelerators of ``vendor``."""
        for stack in self.stacks.values():
            key = (stack.vendor.value, stack.engine.value)
            if key == (vendor, engine):
                return stack
        engines = self.engines(vendor)
        raise ScenarioError(
            f"engine {engine!r} does not run on {vendor} accelerators; choose from {choices(engines)}"
        )

    def engines(self, vendor: str) -> list[str]:
        """Return the engines that serve on the accelerators of a vendor."""
        all_stacks = self.stacks.values()
        stacks = [stack for stack in all_stacks if stack.vendor.value == vendor]
        return [stack.engine.value for stack in stacks]

    def incident(self, stack: kinds.Stack, kind: str) -> kinds.StackIncident:
        """Return an incident kind's figures on a stack: the stack's own, else the kind's, else the stack's fix time."""
        unstated = kinds.StackIncident.model_construct()
        stated = stack.incidents.get(kind, unstated)
        # Value by value, so that a stack states only what differs.
        usual = self.incidents[kind]
        figures = {
            key: getattr(stated, key) or getattr(usual, key)
            for key in kinds.StackIncident.model_fields
        }
        figures["fix_days"] = figures["fix_days"] or stack.fix_days
        # Built of values that were validated with their entries.
        return kinds.StackIncident.model_construct(**figures)

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
        vendor = self.accelerator(part).vendor.value
        # The part's own come first: a vendor's are those of its usual parts.
        for owner in (part.lower(), vendor):
            pattern = re.compile(rf"resale_(\d+)m_{re.escape(owner)}")
            ages = {}
            for name in self.priors:
                if match := pattern.fullmatch(name):
                    ages[name] = float(match[1])
            if ages:
                by_age = sorted(ages.items(), key=operator.itemgetter(1))
                return dict(by_age)
        return {}

    def resale_fractions(self, part: str) -> dict[float, float]:
        """Return the resale values of an accelerator's used servers as a share of new, by age in months."""
        ages = self.resale_priors(part)
        return {age: self.priors[name].base for name, age in ages.items()}

    def _entry(self, section: str, name: str) -> Any:
        entries = getattr(self, section)
        if name not in entries:
            hint = nearest(name, entries) or f"the catalogue has {choices(entries)}"
            raise ScenarioError(f"unknown {section[:-1]} {name!r}", hint=hint)
        return entries[name]


def load_catalog(assumption_set: str = "measured", overlay: Path | None = None) -> Catalog:
    """Return the catalogue, merged value by value: shipped files, assumption set, user's overlay."""
    if overlay is None:
        return catalog_with(assumption_set, None)
    # Read here, so that the cache goes by content and sees an edited file.
    content = read_bytes(overlay, MAX_BYTES)
    return catalog_with(assumption_set, (str(overlay), content))


@functools.lru_cache(maxsize=16)
def catalog_with(assumption_set: str, overlay: tuple[str, bytes] | None) -> Catalog:
    """Return the catalogue with an overlay given by its name in messages and its bytes."""
    # A scenario's field allows only these; the API and the command line take any text.
    if assumption_set not in ASSUMPTION_SETS:
        raise ScenarioError(
            f"unknown assumption set {assumption_set!r}; choose from {choices(ASSUMPTION_SETS)}"
        )
    merged = Document({section: {} for section in _SECTIONS})
    layers = [*_shipped(), *_overlays(assumption_set, overlay)]
    # From weakest to strongest: a later layer replaces values of the ones before it.
    for layer in layers:
        _lay_over(merged, layer)
    catalog = validate(Catalog, merged)
    _check_sources(catalog, merged)
    _check_names(catalog, merged)
    # A contradiction between entries makes sense only where all that they name is there.
    problems = [merged.problem(path, message) for path, message in _contradictions(catalog)]
    raise_all(problems)
    return catalog


def _shipped() -> Iterator[Document]:
    """Yield the shipped files, one for each section."""
    for section in _SECTIONS:
        if section in _TABLES:
            continue
        file = read_document(FOLDER / f"{section}.yaml")
        locations = {}
        for path, place in file.locations.items():
            # A file holds one section, without its heading.
            locations[section, *path] = place
        yield Document({section: file.content}, locations)


def _overlays(assumption_set: str, overlay: tuple[str, bytes] | None) -> Iterator[Document]:
    """Yield what lies over the shipped files: an assumption set of another name, and a user's overlay."""
    if assumption_set != "measured":
        yield read_document(FOLDER / f"{assumption_set}.yaml")
    if overlay is not None:
        name, content = overlay
        document = document_from(content, name)
        if not isinstance(document.content, dict):
            message = f"expected a mapping with {', '.join(_SECTIONS)}"
            raise ScenarioError(message, file=name, line=1)
        yield document


def _lay_over(base: Document, layer: Document) -> None:
    """Merge one document over another, entry by entry and value by value."""
    for section, entries in layer.content.items():
        is_section = section in base.content and isinstance(entries, dict)
        if not is_section:
            base.content[section] = entries  # validation says what is wrong with it
            continue
        base_entries = base.content[section]
        for name, entry in entries.items():
            # Priors and sources are one value each, so they are replaced whole.
            if not isinstance(entry, dict) or section not in ENTRY_SECTIONS:
                base_entries[name] = entry
                continue
            base_entry = base_entries.get(name)
            # Each value takes its entry's source along, so that none gets the other layer's.
            base_facts = {}
            if isinstance(base_entry, dict):
                base_facts = with_provenance(base_entry)
            facts = with_provenance(entry)
            base_entries[name] = _merged(base_facts, facts, GROUPS)
    base.locations.update(layer.locations)


def _merged(base: dict[str, Any], layer: dict[str, Any], groups: tuple[str, ...]) -> dict[str, Any]:
    """Return one entry merged over another, also within its groups; null removes a group's value."""
    merged = {**base, **layer}
    for key in groups:
        group = layer.get(key)
        if not isinstance(group, dict):
            continue
        base_group = base.get(key)
        if not isinstance(base_group, dict):
            base_group = {}
        subgroups = tuple(group) if key in NESTED else ()
        facts = _merged(base_group, group, subgroups)
        merged[key] = {name: value for name, value in facts.items() if value is not None}
    return merged


def _check_sources(catalog: Catalog, document: Document) -> None:
    """Raise an error for values with an unknown source."""
    facts: dict[KeyPath, Sourced[Any] | Range] = {}
    for section, name, entry in catalog.entries():
        for key, fact, _ in entry.facts():
            facts[section, name, key] = fact
    for name, prior in catalog.priors.items():
        facts["priors", name, "source"] = prior
    problems: dict[Problem, None] = {}  # once for an entry whose values share their source
    for path, fact in facts.items():
        # One word is a reference to the sources, and a misspelt one if it is not there.
        is_reference = " " not in fact.source
        if is_reference and fact.source not in catalog.sources:
            message = f"source {fact.source!r} is not in sources; add it there or say it in words"
            hint = nearest(fact.source, catalog.sources)
            problems[document.problem(path, message, hint)] = None
    raise_all(list(problems))


def _check_names(catalog: Catalog, document: Document) -> None:
    """Raise an error for entries that name an unknown vendor, precision or incident kind."""
    problems = []
    for path, name, section in _references(catalog):
        entries = getattr(catalog, section)
        if name not in entries:
            hint = nearest(name, entries) or f"the catalogue has {choices(entries)}"
            problems.append(document.problem(path, f"unknown {section[:-1]} {name!r}", hint))
    raise_all(problems)


_PRECISION_KEYS = (
    "native_precision",
    "shared_precision",
    "published_shared_precision",
    "wider",
    "falls_back_to",
    "published_computes_in",
)
"""Keys of models and precisions that name precisions."""


def _references(catalog: Catalog) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield each name of another entry: its place, the name, and the section that should have it."""
    for name, part in catalog.accelerators.items():
        yield ("accelerators", name, "vendor"), part.vendor.value, "vendors"
        for precision in part.dense_tflops:
            yield ("accelerators", name, "dense_tflops", precision), precision, "precisions"
    for name, stack in catalog.stacks.items():
        yield ("stacks", name, "vendor"), stack.vendor.value, "vendors"
        for kind in stack.incidents:
            yield ("stacks", name, "incidents", kind), kind, "incidents"
    yield from _support_references(catalog)
    for section in ("models", "precisions"):
        for name, entry in getattr(catalog, section).items():
            for key, fact, _ in entry.facts():
                if key not in _PRECISION_KEYS:
                    continue
                # Some keys name one precision, others several.
                precisions = fact.value if isinstance(fact.value, tuple) else (fact.value,)
                for precision in precisions:
                    yield (section, name, key), precision, "precisions"


def _support_references(catalog: Catalog) -> Iterator[tuple[KeyPath, str, str]]:
    """Yield the names in a user's statements of support, but for words that stand for several."""
    classes = get_args(kinds.ArchitectureClass)
    for name, entry in catalog.engine_support.items():
        path = ("engine_support", name)
        groups = {
            "model": (entry.model, classes, "models"),
            "accelerator": (entry.accelerator, tuple(catalog.vendors), "accelerators"),
            "precision": (entry.precision, (), "precisions"),
        }
        for key, (fact, words, section) in groups.items():
            names = fact.value.split() if fact else []
            for one in names:
                if one != ANY and one not in words:
                    yield (*path, key), one, section


Contradictions = Iterator[tuple[KeyPath, str]]
"""Places of a catalogue, each with what is wrong there."""


def _contradictions(catalog: Catalog) -> Contradictions:
    """Yield the contradictions between entries whose references are valid."""
    stated_roles = [entry.role for entry in catalog.precisions.values() if entry.role]
    roles = [role.value for role in stated_roles]
    for role in ("activations", "default"):
        count = roles.count(role)
        if count != 1:
            yield ("precisions",), f"one precision must have the role {role}, not {count}"
            return  # the checks below need the precision of activations
    yield from _odd_precisions(catalog)
    yield from _odd_parts(catalog)
    for name, model in catalog.models.items():
        if not model.experts:
            continue
        visited = model.experts_per_token.value if model.experts_per_token else 0
        if not 1 <= visited <= model.experts.value:
            message = f"must lie between 1 and {model.experts.value}, its experts"
            yield ("models", name, "experts_per_token"), message
    engines = sorted({stack.engine.value for stack in catalog.stacks.values()})
    for name, support in catalog.engine_support.items():
        if support.engine.value not in engines:
            message = (
                f"no stack has the engine {support.engine.value!r}; choose from {choices(engines)}"
            )
            yield ("engine_support", name, "engine"), message
    for name, stack in catalog.stacks.items():
        for kind in catalog.incidents:
            yield from _odd_incident(catalog, name, stack, kind)


def _odd_precisions(catalog: Catalog) -> Contradictions:
    """Yield precisions whose next wider one is no wider."""
    for name, entry in catalog.precisions.items():
        if entry.wider is None:
            continue
        wider = catalog.precisions[entry.wider.value]
        if wider.weight_bytes.value <= entry.weight_bytes.value:
            message = f"{entry.wider.value} has weights no larger than {name}"
            yield ("precisions", name, "wider"), message


def _odd_parts(catalog: Catalog) -> Contradictions:
    """Yield accelerators that cannot compute activations, or draw more idle than at full load."""
    activations = catalog.precision_with("activations")
    for name, part in catalog.accelerators.items():
        path = ("accelerators", name)
        if activations not in part.dense_tflops:
            message = f"needs {activations}, in which activations are stored"
            yield (*path, "dense_tflops"), message
        if part.idle_w.value >= part.tdp_w.value:
            yield (*path, "idle_w"), f"must be below tdp_w, {part.tdp_w.value:g}"


def _odd_incident(catalog: Catalog, name: str, stack: kinds.Stack, kind: str) -> Contradictions:
    """Yield what a stack's figures for a kind of incident lack."""
    incident = catalog.incidents[kind]
    effect = incident.effect.value
    figures = catalog.incident(stack, kind)
    path = ("stacks", name, "incidents", kind)
    if figures.per_year or figures.per_upgrade:
        if effect == "slows" and not figures.loss_fraction:
            yield path, f"{kind} slows the stack: state its loss_fraction"
        if effect != "falsifies" and not figures.most_loss_fraction:
            yield path, f"{kind} costs throughput: state its most_loss_fraction"
    if figures.per_upgrade and not incident.detection_h:
        yield ("incidents", kind), f"{kind} comes with upgrades: state its detection_h"


@functools.cache
def _workload_presets() -> dict[str, Any]:
    """Return the shipped workload presets: default figures for what a log or scenario does not state."""
    document = read_document(FOLDER / "workload_presets.yaml")
    content: dict[str, Any] = document.content
    return content


def workload_preset_names() -> tuple[str, ...]:
    """Return the names of the shipped workload presets."""
    return tuple(_workload_presets())


def workload_preset(name: str) -> dict[str, Any]:
    """Return one preset as field → value, without sources; raise ScenarioError for an unknown name."""
    presets = _workload_presets()
    if name not in presets:
        # Validation has its own list; this one is for callers of the API.
        hint = nearest(name, presets) or f"classes are {choices(presets)}"
        raise ScenarioError(f"unknown workload preset {name!r}", path="preset", hint=hint)
    preset = presets[name]
    return {field: fact["value"] for field, fact in preset.items()}


@functools.cache
def _reuse_curves() -> dict[str, dict[str, Any]]:
    """Return the shipped reuse curves as field → value, by name."""
    content = read_document(FOLDER / "reuse_curves.yaml").content
    curves = {}
    for name, curve in content.items():
        curves[name] = {field: fact["value"] for field, fact in curve.items()}
    return curves


def reuse_curve_names() -> tuple[str, ...]:
    """Return the names of the shipped reuse curves."""
    return tuple(_reuse_curves())


@functools.cache
def reuse_curve(name: str) -> ReuseCurve:
    """Return a shipped reuse curve."""
    figures = _reuse_curves()[name]
    rows = figures["reused_fraction"]
    if len(rows) == 1:
        # Known of the turn before alone: how prompts grow is derived.
        points = dict(zip(figures["gap_s"], rows["1"], strict=True))
        return dataclasses.replace(from_points(points), shared_fraction=figures["shared_fraction"])
    gap_s = [0.0, *figures["gap_s"]]
    by_turn = [[0.0, *row] for row in rows.values()]
    return from_curves(gap_s, by_turn, figures["shared_fraction"])


def formats_of(catalog: Catalog) -> Formats:
    """Return the catalogue's precisions as the throughput formula needs them."""
    formats = {}
    for name, entry in catalog.precisions.items():
        stated: dict[str, Any] = {}
        for key, fact, _ in entry.facts():
            if isinstance(fact, Sourced):
                stated[key] = fact.value
        # The formula needs a yes or no, the catalogue says which models.
        stated["falls_back_for_all"] = stated.pop("falls_back_for", "published") == "all"
        stated.setdefault("published_weight_bytes", entry.weight_bytes.value)
        formats[name] = NumberFormat(**stated)
    return formats


def part_of(name: str, catalog: Catalog) -> AcceleratorSpec:
    """Return a catalogue accelerator as the throughput formula needs it."""
    entry = catalog.accelerator(name)
    # Without a network of its own a node is left by the links between its parts.
    network = entry.scaleout_gb_per_s or entry.scaleup_gb_per_s
    bring_up = {}
    for stack in catalog.stacks.values():
        if stack.vendor.value == entry.vendor.value:
            speed = stack.bring_up_throughput_fraction.base
            bring_up[stack.engine.value] = (speed, stack.bring_up_weeks.base)
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
        network_bytes_per_s=network.value * GIGA,
        host_bytes=entry.host_memory_gb.value * GIGA if entry.host_memory_gb else 0.0,
        host_link_bytes_per_s=entry.host_link_gb_per_s.value * GIGA
        if entry.host_link_gb_per_s
        else 0.0,
        bring_up=bring_up,
    )


def shape_of(name: str, catalog: Catalog) -> ModelShape:
    """Return a catalogue model as the throughput formula needs it, with the formula's defaults where not stated."""
    # Prices, dates and the like are facts of the model that the formula does not take.
    fields = {field.name for field in dataclasses.fields(ModelShape)}
    stated: dict[str, Any] = {}
    model = catalog.model(name)
    for key, fact, _ in model.facts():
        if key in fields and isinstance(fact, Sourced):
            stated[key] = fact.value
    # Published in what activations are kept in, unless the entry says otherwise.
    stated.setdefault("native_precision", catalog.precision_with("activations"))
    return ModelShape(name=name, **stated)
