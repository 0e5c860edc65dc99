"""Loading a scenario from files, with layers and overrides.

Precedence, from weakest to strongest, key by key:

1. the defaults in the field reference,
2. for a workload with a ``preset``, the figures of that preset,
3. the file at the end of the ``extends`` chain, then each file that extends it, down to the one that was named,
4. ``--set path=value``, in the order given; ``clusters.*.engine`` is that of every cluster, ``×2`` twice what stands
   there, and ``+3 months`` that much after the date that stands there.

Mappings merge key by key; lists and plain values replace. ``null`` takes a key away again, so that a what-if can drop
a cluster of its base: ``clusters: {h200: null}``. The place of each value follows it, so that a message or the list
of assumptions names the file whose value stands.
"""

from __future__ import annotations

import copy
import datetime
import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from planner.catalog.load import workload_preset, workload_preset_names
from planner.errors import ScenarioError
from planner.finance.months import add_months
from planner.scenario.consistency import check_scenario
from planner.scenario.scenario import Future, Scenario
from planner.scenario.workload import Workload
from planner.units import DAYS_PER_YEAR, MONTHS_PER_YEAR
from planner.validation import nearest, sound_part, validate
from planner.yaml_io import (
    Document,
    KeyPath,
    Location,
    document_of_mapping,
    dotted,
    flow_text,
    parse_document,
    read_document,
    value_at,
    with_value,
)

MAX_EXTENDS = 16
"""Most files that one extends, and most files of a chain."""

Source = str | os.PathLike[str] | Mapping[str, Any] | Scenario
"""What a scenario may be given as: a file, what would stand in one, or a scenario that was loaded before."""


def load_scenario(source: Source, overrides: Sequence[str] = ()) -> Scenario:
    """Read and check a scenario from a path, a dict, or a scenario to extend.

    ``overrides`` are ``dotted.path=value`` strings as ``--set`` takes them. Files that a dict names are relative to the
    current folder; overrides of a loaded scenario come after those it was loaded with.
    """
    # A single text would otherwise be read letter by letter.
    overrides = (overrides,) if isinstance(overrides, str) else overrides
    if isinstance(source, Scenario):
        if overrides:
            return source.laid_over(overrides)
        return source
    document = document_of(source)
    # Of a dict, validation says which keys are wrong: it has no file for another command.
    is_file = not isinstance(source, Mapping)
    if is_file and kind_of(document) == "study":
        hint = f"planner montecarlo {source} runs it, and planner validate checks it"
        raise ScenarioError(document.problem((), "is a study, not a scenario", hint))
    return scenario_from_document(document, overrides)


def mapping_keys(content: object) -> set[object]:
    """Return the keys of a mapping that a file states; none where it states anything else."""
    if isinstance(content, dict):
        return set(content)
    return set()


def kind_of(document: Document) -> Literal["scenario", "study"]:
    """Return whether a file is a study, which names scenarios, or a scenario, which states machines or traffic."""
    # By its keys, not its name: files are called as their users like.
    keys = mapping_keys(document.content)
    states_plan = keys & {"workloads", "clusters", "extends"}
    if "scenarios" in keys and not states_plan:
        return "study"
    return "scenario"


def document_of(source: str | os.PathLike[str] | Mapping[str, Any]) -> Document:
    """Read a scenario from a file or a dict, merged over the files it extends, unchecked."""
    if isinstance(source, Mapping):
        # Relative to the current folder, as if the dict were a file in it.
        document = document_of_mapping(source)
        return _over_bases(document, Path("dict"), ())
    path = Path(source)
    return _over_bases(read_document(path), path, ())


def scenario_from_document(document: Document, overrides: Sequence[str] = ()) -> Scenario:
    """Apply overrides to merged content, then validate it, also across fields."""
    document.without_overrides = document.copy()
    document.overrides = ()
    for number, override in enumerate(overrides, start=1):
        origin = f"--set #{number}"
        applied = _moved_deliveries(document, override, origin)
        for plain_override in applied:
            _apply_override(document, plain_override, origin)
        document.overrides = (*document.overrides, *applied)
    # After the overrides: one may name a preset, and what the user states goes before it.
    lay_presets_under(document)
    try:
        scenario = _validated(document)
    except ScenarioError as error:
        raise _with_nearest_names(document, error) from None
    scenario._document = document
    scenario._from_document = scenario_from_document
    check_scenario(scenario)
    # Refused here, before any work, where the user has not allowed code.
    scenario.load_code()
    return with_catalog(scenario)


def _with_nearest_names(document: Document, error: ScenarioError) -> ScenarioError:
    """Return an error whose problems with an entry that only an override names say the nearest that the files have."""
    files = document.without_overrides or document
    problems = []
    for problem in error.problems:
        section, _, rest = (problem.path or "").partition(".")
        stated = value_at(files.content, (section,))
        name = rest.partition(".")[0]
        is_by_override = (problem.file or "").startswith("--set")
        if is_by_override and section in ("clusters", "workloads") and isinstance(stated, dict):
            names = [str(key) for key in stated]
            if name not in names:
                near = _first_beginning(name, names) or nearest(name, names)
                hint = near or f"the scenario has {', '.join(names)}"
                message = f"{problem.message}: the scenario has no {section}.{name}"
                problem = replace(problem, message=message, hint=hint)  # noqa: PLW2901
        problems.append(problem)
    return ScenarioError(problems)


def _first_beginning(start: str, names: Sequence[str]) -> str | None:
    """Return a hint to the first of names that begins so: b200 stands for b200-quote, and not for h200."""
    longer = [candidate for candidate in names if candidate.startswith(start)]
    return f"did you mean {longer[0]}?" if longer else None


def _moved_deliveries(document: Document, override: str, origin: str) -> Sequence[str]:
    """Return what an override sets: a delay of ``clusters.NAME.delivered`` moves an order's slip or the day online.

    Of ``clusters.*`` only what is still to come is late.
    """
    path_text, _, delay_text = override.partition("=")
    pattern = _pattern(path_text.strip())
    if pattern[0] != "clusters" or pattern[2:] != ("delivered",):
        return (override,)
    delay = _DELAY.fullmatch(str(parse_document(delay_text, origin).content))
    if delay is None:
        message = f"takes a delay, not {delay_text!r}"
        example = "+6 months, +3 weeks or +10 days"
        raise ScenarioError(message, file=origin, path=path_text, hint=example)
    clusters = value_at(document.content, ("clusters",))
    stated = clusters if isinstance(clusters, dict) else {}
    names = fnmatch.filter(stated, str(pattern[1]))
    if not names:
        message = "matches nothing in the scenario"
        near = nearest(str(pattern[1]), stated)
        raise ScenarioError(message, file=origin, path=path_text, hint=near)
    start = _validated_value(document, ("start",))
    moved = []
    for name in names:
        cluster = _validated_value(document, ("clusters", name))
        is_to_come = cluster["online"] is not None and cluster["online"] > start
        if cluster["order"] is not None:
            # A late order keeps its own uncertainty: every end of the slip moves by the same weeks.
            weeks = int(delay[1]) * _WEEKS[delay[2]]
            ends = cluster["order"]["slip_weeks"].items()
            slip_weeks = {end: round(slip + weeks, 2) for end, slip in ends}
            moved.append(f"clusters.{name}.order.slip_weeks={flow_text(slip_weeks)}")
        elif cluster["owned"] is None and (is_to_come or name == pattern[1]):
            moved.append(f"clusters.{name}.online={delay[0]}")
        elif name == pattern[1]:
            raise ScenarioError("is owned: it was delivered", file=origin, path=path_text)
    return moved


def _apply_override(document: Document, override: str, origin: str) -> None:
    """Lay ``dotted.path=value`` over a document; the value is YAML: ``[1, 2]``, ``{a: 1}``."""
    path_text, equals, value_text = override.partition("=")
    path_text = path_text.strip()
    pattern = _pattern(path_text)
    if not equals or not all(pattern):
        message = f"{override!r} is not of the form dotted.path=value"
        raise ScenarioError(message, file=origin, hint="for example clusters.h200.nodes=80")
    if pattern == ("extends",):
        message = "cannot be set: the file that a scenario extends is read before any --set"
        raise ScenarioError(message, file=origin, path="extends")
    value = parse_document(value_text, origin)
    paths = _matching(document.content, pattern)
    if not paths:
        raise ScenarioError("matches nothing in the scenario", file=origin, path=path_text)
    for path in paths:
        # Each by what is stated at its own path: ``×2`` doubles every one that matches.
        list_path = _list_on(document, path, origin)
        absolute = _absolute(document, path, value)
        if list_path is not None:
            # An item is laid over as its whole list: layers replace lists, and never merge them.
            items = tuple(value_at(document.content, list_path))
            changed = with_value(items, path[len(list_path) :], absolute.content)
            absolute = Document(list(changed), {(): Location(origin, None)})
            path = list_path  # noqa: PLW2901
        _lay_value_over(document, path, absolute, origin)


def _pattern(path_text: str) -> KeyPath:
    """Return the parts of a dotted path; ``dates[0]`` is ``dates.0``, and what a future sets is one key."""
    in_future = _IN_FUTURE.fullmatch(path_text)
    if in_future:
        return ("futures", in_future[1], "set", in_future[2])
    return tuple(re.sub(r"\[(\d{1,6})\]", r".\1", path_text).split("."))


def _resolved(content: Any, pattern: KeyPath) -> KeyPath:
    """Return the keys that a dotted path means: a name that has dots as a whole, an item of a list by its number."""
    keys: list[str | int] = []
    parts = [str(part) for part in pattern]
    while parts:
        key: Any = parts[0]
        length = 1
        if isinstance(content, list | tuple) and parts[0].isdigit():
            key = int(parts[0])
        elif isinstance(content, dict):
            names = {str(name): name for name in content}
            lengths = range(len(parts), 0, -1)
            known = [length for length in lengths if ".".join(parts[:length]) in names]
            if known:
                length = known[0]
                key = names[".".join(parts[:length])]
        keys.append(key)
        content = value_at(content, (key,))
        parts = parts[length:]
    return tuple(keys)


def _list_on(document: Document, path: KeyPath, origin: str) -> KeyPath | None:
    """Return the path of the list that a path leads through; raise an error where it has no such item."""
    for end in range(1, len(path)):
        content = value_at(document.content, path[:end])
        if not isinstance(content, list | tuple) or not isinstance(path[end], int):
            continue
        if int(path[end]) < len(content):
            return path[:end]
        message = f"has {len(content)} items, counted from 0"
        raise ScenarioError(message, file=origin, path=dotted(path[:end]))
    return None


def _validated(document: Document) -> Scenario:
    """Return a document as a scenario; raise one error with all that is wrong in its values and between them."""
    try:
        return validate(Scenario, document)
    except ScenarioError as error:
        if not isinstance(document.content, dict):
            raise
        # The sections without a fault are checked too, so that a user sees all problems at once.
        sound = sound_part(Scenario, document)
        if sound is None:
            raise
        # The checks name places in the user's files.
        sound._document = document
        try:
            check_scenario(sound)
        except ScenarioError as contradictions:
            problems = [*error.problems, *contradictions.problems]
            raise ScenarioError(problems) from None
        raise


def with_catalog(scenario: Scenario) -> Scenario:
    """Return the scenario with the catalogue's vendor figures and longest lengths filled in, for plans and studies.

    A workload that changes its model becomes those that follow one another.
    """
    catalog = scenario.load_catalog()
    reliability = scenario.reliability
    software = scenario.software
    workloads: dict[str, Workload] = {}
    end = add_months(scenario.start, scenario.horizon_months)
    targets = dict(scenario.slo_target.workloads)
    for name, workload in scenario.workloads.items():
        successors = workload.successors(name, end)
        if name in targets:
            targets |= dict.fromkeys(successors, targets[name])
        workloads |= successors
    for name, workload in workloads.items():
        # The model's context is the longest length of workloads whose quantiles state none.
        longest = catalog.models[workload.model].max_context_tokens.value
        lengths = workload.lengths
        prompt = lengths.input.within(longest)
        reply = lengths.output.within(longest)
        bounded = lengths.model_copy(update={"input": prompt, "output": reply})
        workloads[name] = workload.model_copy(update={"lengths": bounded})
    failures = {}
    engineers = {}
    incidents = {}
    speedups = {}
    no_rollback = {}
    for name, vendor in catalog.vendors.items():
        failures[name] = vendor.failure_multiplier.value
        engineers[name] = vendor.engineers_per_800.value
        incidents[name] = vendor.ratio("incident_multiplier")
        speedups[name] = vendor.ratio("maturing_multiplier")
        if vendor.rollback_impossible_fraction:
            no_rollback[name] = vendor.rollback_impossible_fraction.base
    # What the user states for a vendor goes before the catalogue.
    failures |= reliability.vendor_failure_multiplier
    engineers |= software.engineers_per_800
    no_rollback |= software.rollback_impossible_fraction
    incidents |= software.vendor_incident_multiplier
    speedups |= software.vendor_software_speedup_multiplier
    failure_figures = {"vendor_failure_multiplier": failures}
    software_figures = {
        "engineers_per_800": engineers,
        "rollback_impossible_fraction": no_rollback,
        "vendor_incident_multiplier": incidents,
        "vendor_software_speedup_multiplier": speedups,
    }
    sections = {
        "reliability": reliability.model_copy(update=failure_figures),
        "software": software.model_copy(update=software_figures),
        "slo_target": scenario.slo_target.model_copy(update={"workloads": targets}),
        "workloads": workloads,
    }
    return scenario.model_copy(update=sections)


_PRESET_PATHS = {
    "input_mean_tokens": "lengths.input.mean",
    "input_p95_tokens": "lengths.input.p95",
    "output_mean_tokens": "lengths.output.mean",
    "output_p95_tokens": "lengths.output.p95",
    "prefix_cache_hit_fraction": "prefix_cache_hit_fraction",
    "peak_to_mean": "load_profile.peak_to_mean",
    "trough_to_mean": "load_profile.trough_to_mean",
    "weekend_fraction": "load_profile.weekend_fraction",
    "noise_sigma": "noise.sigma",
    "noise_correlation_h": "noise.correlation_h",
    "burst_index_of_dispersion": "burst_index_of_dispersion",
    "burst_index_requests_per_s": "burst_index_requests_per_s",
    "ttft_s": "slo.ttft_s",
    "tpot_s": "slo.tpot_s",
    "priority": "priority",
    "completion_window_h": "completion_window_h",
}
"""Figures of a workload preset, each with the field of a workload that it stands in for."""


def lay_presets_under(document: Document) -> None:
    """Fill in the fields that the user did not state, for each workload that names a preset."""
    workloads = value_at(document.content, ("workloads",))
    if not isinstance(workloads, dict):
        return
    filled = dict(workloads)
    document.content = {**document.content, "workloads": filled}
    for name, stated in workloads.items():
        preset = value_at(stated, ("preset",))
        if preset not in workload_preset_names():
            continue  # no preset, or one that validation refuses
        figures = workload_preset(preset)
        for figure, field in _PRESET_PATHS.items():
            path = tuple(field.split("."))
            value = _preset_value(figures, figure, path, stated)
            if value is not None and _is_open(stated, path):
                filled[name] = with_value(filled[name], path, value)
                place = Location(f"workload preset {preset}", None)
                document.locations["workloads", name, *path] = place


def _preset_value(
    figures: Mapping[str, Any], figure: str, path: tuple[str, ...], stated: Mapping[str, Any]
) -> Any:
    """Return a preset's figure for a workload's field; None where what the user states rules it out."""
    value = figures.get(figure)
    if value is None:
        return None
    section = path[0]
    if section == "load_profile":
        # A load profile of one's own is taken whole: peak, trough and weekend belong together.
        profile = stated.get("load_profile")
        keys = mapping_keys(profile)
        own_shape = keys & {"peak_to_mean", "weekend_fraction", "weekly_profile"}
        return None if own_shape else value
    side = path[:-1]
    # Quantiles of one's own state the whole distribution.
    if section == "lengths" and value_at(stated, (*side, "quantiles")):
        return None
    # What follows from reuse is not stated.
    if section == "prefix_cache_hit_fraction" and stated.get("reuse") is not None:
        return None
    # The rate of a preset's index is not that of one's own.
    if section == "burst_index_requests_per_s" and "burst_index_of_dispersion" in stated:
        return None
    if section == "completion_window_h":
        is_deferrable = stated.get("priority", "deferrable") == "deferrable"
        return value if is_deferrable else None
    if path[-1] == "p95":
        # The preset's spread is kept around a mean of the user's own.
        preset_mean = figures[figure.replace("p95", "mean")]
        mean = value_at(stated, (*side, "mean"))
        # In Python a bool is an int; in a scenario it is no number.
        is_number = isinstance(mean, int | float) and not isinstance(mean, bool)
        if not is_number:
            mean = preset_mean
        return value / preset_mean * float(mean)
    return value


def _is_open(content: Any, path: KeyPath) -> bool:
    """Return whether a field is not stated and can be: what should be a mapping and is none is left to validation."""
    # A section that is null or absent can be filled; one of another type is the user's mistake.
    for key in path:
        if content is None:
            return True
        if not isinstance(content, dict):
            return False
        if key not in content:
            return True
        content = content[key]
    return False


def _over_bases(document: Document, path: Path, chain: tuple[str, ...]) -> Document:
    """Return a document merged over the files it extends; ``chain`` are the files that led to it."""
    extends = value_at(document.content, ("extends",))
    if extends is None:
        return document
    # An empty list is refused with other values that are no names.
    is_list = isinstance(extends, list | tuple) and extends
    names = extends if is_list else [extends]
    are_names = all(isinstance(name, str) for name in names)
    if not are_names or len(names) > MAX_EXTENDS:
        message = f"must be a file name, or a list of up to {MAX_EXTENDS}"
        raise ScenarioError(document.problem(("extends",), message))
    # Real paths, so that a circle through a symbolic link is seen.
    chain = (*chain, os.path.realpath(path))
    files = [path.parent / name for name in names]
    # From the first, which the others change, to the document, which goes before all.
    base, *layers = [_base(document, file, chain) for file in files]
    for layer in (*layers, document):
        merge(base, layer)
    return base


def _base(document: Document, path: Path, chain: tuple[str, ...]) -> Document:
    """Return a file that a document extends, merged over those that it extends itself."""
    try:
        exists = path.exists()
    except (OSError, ValueError):  # a name that no file can have: too long, a NUL in it
        exists = False
    if not exists:
        raise ScenarioError(document.problem(("extends",), f"no such file: {path}"))
    is_circular = os.path.realpath(path) in chain
    if is_circular or len(chain) > MAX_EXTENDS:
        files = (*chain, str(path))
        names = " -> ".join(os.path.basename(file) for file in files)  # noqa: PTH119 - plain text
        extent = "itself" if is_circular else f"more than {MAX_EXTENDS} deep"
        raise ScenarioError(document.problem(("extends",), f"extends {extent}: {names}"))
    base = _over_bases(read_document(path), path, chain)
    if not isinstance(base.content, dict):
        raise ScenarioError("expected a mapping of keys to values", file=str(path), line=1)
    return base


def merge(base: Document, layer: Document) -> None:
    """Merge one document over another in place: mappings merge, other values replace, null removes."""
    removals: dict[KeyPath, bool] = {}
    base.content = _merged(base.content, layer.content, (), removals)
    for choice in _choices_of_removed(base.content, layer.content, removals):
        base.content = _without(base.content, choice)
        removals[choice] = True

    def is_replaced(path: KeyPath) -> bool:
        parents = [path[:end] for end in range(len(path) + 1)]
        return any(parent in removals for parent in parents)

    # The place of a value follows it: those of replaced values go, and a removed key leaves none.
    base.locations = {
        path: place for path, place in base.locations.items() if not is_replaced(path)
    }
    for path, place in layer.locations.items():
        is_removed = removals.get(path, False)
        if not is_removed:
            base.locations[path] = place


def _choices_of_removed(
    content: Any, layer: Any, removals: Mapping[KeyPath, bool]
) -> Iterator[KeyPath]:
    """Yield what ``sizing`` says of clusters that a layer removes, where the layer itself does not say it."""
    removed = [path for path, is_removed in removals.items() if is_removed]
    names = [path[1] for path in removed if len(path) == 2 and path[0] == "clusters"]
    for choice in [
        ("sizing", section, name) for name in names for section in ("clusters", "retire")
    ]:
        if value_at(content, choice) is not None and value_at(layer, choice) is None:
            yield choice


def _without(content: Any, path: KeyPath) -> Any:
    """Return content without the value at a path, nor the sections that held nothing else."""
    key = path[0]
    rest = {name: part for name, part in content.items() if name != key}
    inner = _without(content[key], path[1:]) if len(path) > 1 else None
    if not inner:
        return rest
    return {name: inner if name == key else part for name, part in content.items()}


def _merged(base: Any, layer: Any, path: KeyPath, removals: dict[KeyPath, bool]) -> Any:
    """Return ``layer`` over ``base``; record each replaced path, and whether a null removed it."""
    # Only a mapping over a mapping merges; anything else takes the place of what was there.
    is_mapping = isinstance(base, dict)
    if not isinstance(layer, dict):
        removals[path] = False
        return layer
    if not is_mapping:
        removals[path] = False
    result = dict(base) if is_mapping else {}
    for key, value in layer.items():
        if value is None:
            # Also where there was nothing: a what-if may drop what only some of its bases have.
            removals[*path, key] = True
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, (*path, key), removals)
    return result


def _lay_value_over(document: Document, path: KeyPath, value: Document, origin: str) -> None:
    """Lay one value over a document; raise an error where its path leads through something other than a mapping."""
    parents = [path[:end] for end in range(1, len(path))]
    for parent in parents:
        content = value_at(document.content, parent)
        # What is not there yet is made; what is there must take keys, as does the word for a price that states none.
        if content not in (None, "api") and not isinstance(content, dict):
            message = f"{dotted(parent)} holds no keys"
            raise ScenarioError(message, file=origin, path=dotted(path))
    place = Location(origin, None)
    # A section that the override brings in is of the override too.
    locations = {parent: place for parent in parents if parent not in document.locations}
    locations |= {(*path, *inner): place for inner in value.locations}
    # A copy: one override may be laid over several paths, which later ones change apart.
    content = with_value(None, path, copy.deepcopy(value.content))
    merge(document, Document(content, locations))


_FACTOR = re.compile(r"[×x] ?(\d{1,9}(?:\.\d{1,9})?)")
_WEEKS = {"day": 1 / 7, "week": 1.0, "month": DAYS_PER_YEAR / MONTHS_PER_YEAR / 7}
_IN_FUTURE = re.compile(r"futures\.([^.]+)\.set\.(.+)")
"""A path within what a future sets, which is one key there."""
_DELAY = re.compile(r"([+-]\d{1,4}) (day|week|month)s?")


def _is_relative(value: object) -> bool:
    """Return whether a value is given by what is stated: ``×2`` times a number, ``+3 months`` after a date."""
    if not isinstance(value, str):
        return False
    return bool(_FACTOR.fullmatch(value) or _DELAY.fullmatch(value))


def _is_in_future(path: KeyPath) -> bool:
    """Return whether a path leads to what a future sets."""
    return len(path) == 4 and path[0] == "futures" and path[2] == "set"


def _absolute(document: Document, path: KeyPath, value: Document) -> Document:
    """Return a value that is given by what is stated as the value it comes to; any other unchanged."""
    # What a future doubles is known in each plan alone.
    if not _is_relative(value.content) or _is_in_future(path):
        return value
    text = value.content
    factor = _FACTOR.fullmatch(text)
    delay = _DELAY.fullmatch(text)

    def changed(stated: Any) -> Any:
        if isinstance(stated, dict):
            return {key: changed(part) for key, part in stated.items()}
        is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
        if factor and is_number:
            product = stated * float(factor[1])
            # Half a node is none: whole numbers stay whole.
            if isinstance(stated, int):
                return round(product)
            return product
        if delay and isinstance(stated, datetime.date):
            count = int(delay[1])
            if delay[2] == "month":
                return add_months(stated, count)
            days = 7 * count if delay[2] == "week" else count
            return stated + datetime.timedelta(days=days)
        kind = "number" if factor else "date"
        message = f"{text!r} needs a {kind} to change, and {dotted(path)} states none"
        raise ScenarioError(message, path=dotted(path), hint="give the value itself")

    stated = value_at(document.content, path)
    # A rate may be written as 5, and is no whole number all the same: the field decides.
    is_ambiguous = factor and isinstance(stated, int)
    if stated is None or is_ambiguous:
        stated = _validated_value(document, path)
    return Document(changed(stated), value.locations)


def _validated_value(document: Document, path: KeyPath) -> Any:
    """Return the value at a path as the scenario has it, with defaults and the catalogue's price."""
    # On a copy: the overrides that come later still change this document.
    copied = document.copy()
    lay_presets_under(copied)
    scenario = validate(Scenario, copied)
    scenario._document = copied
    value = value_at(scenario.model_dump(by_alias=True), path)
    # Two defaults that no model states: they follow from the scenario and from the catalogue.
    match path:
        case ("clusters", _, "online") if value is None:
            return scenario.start
        case ("clusters", name, "accelerator_price_usd") if value is None:
            accelerator = scenario.clusters[str(name)].accelerator
            price = scenario.load_catalog().accelerator(accelerator).accelerator_price_usd
            return price and price.value
    return value


SHARED = ("name", "description", "extends", "seed", "start", "horizon_months")
"""What names a plan, and the months and random numbers that plans which are compared have in common."""


def plan_in_future(scenario: Scenario, future: Future) -> tuple[Scenario | None, list[str]]:
    """Return a plan in a future, None where that changes nothing of it, and the paths of the future that reach it."""
    content = scenario.document.content
    changes = {}
    for path, value in future.set.items():
        keys = _pattern(path)
        section = keys[0]
        if section in (*SHARED, "futures", "sizing"):
            message = "is the same in a plan and its futures, so a future cannot set it"
            raise ScenarioError(message, path=path)
        is_by_name = section in ("clusters", "workloads") and len(keys) > 1
        names = fnmatch.filter(content[section], keys[1]) if is_by_name else ()
        if is_by_name and not names:
            continue  # a plan without such a cluster or workload is as stated
        if _matching(content, keys):
            changes[path] = value
    changed = None
    if changes:
        changed = scenario.with_(changes)
    return changed, list(changes)


def _matching(content: Any, pattern: KeyPath) -> list[KeyPath]:
    """Return the paths that a path stands for: ``*`` in a key is any part of the names there, as in a study."""
    if _is_in_future(pattern):
        # What a future sets is resolved in each plan, not here: its path is kept as it is written.
        return [(*path, pattern[-1]) for path in _matching(content, pattern[:-1])]
    if not any("*" in str(key) for key in pattern):
        return [_resolved(content, pattern)]
    mapping = content if isinstance(content, dict) else {}
    key = pattern[0]
    # A key without * need not be there: an override may add it.
    names = [key]
    if "*" in str(key):
        names = fnmatch.filter(mapping, str(key))
    paths: list[KeyPath] = []
    for name in names:
        inner_paths = _matching(mapping.get(name), pattern[1:])
        paths += [(name, *inner) for inner in inner_paths]
    return paths


def layer_of(document: Document) -> dict[str, Any]:
    """Return a document's overrides as an extending file would state them; later ones win, and nulls stay."""
    layer: dict[str, Any] = {}
    for override in document.overrides:
        path_text, _, value_text = override.partition("=")
        pattern = _pattern(path_text.strip())
        for path in _matching(document.content, pattern):
            value = parse_document(value_text, "--set").content
            list_path = _list_on(document, path, "--set")
            if list_path is not None:
                whole = value_at(document.content, list_path)
                layer = _overlaid(layer, with_value(None, list_path, whole))
                continue
            # The document holds what a relative value has come to.
            if _is_relative(value):
                value = value_at(document.content, path)
            layer = _overlaid(layer, with_value(None, path, value))
    return layer


def _overlaid(base: Any, layer: Any) -> Any:
    """Return ``layer`` over ``base``, mappings merged and nulls kept."""
    if not (isinstance(base, dict) and isinstance(layer, dict)):
        return layer
    overlaid = {key: _overlaid(base.get(key), value) for key, value in layer.items()}
    return base | overlaid
