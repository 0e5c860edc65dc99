"""Loading a scenario from files, with layers and overrides.

Precedence, from weakest to strongest, key by key:

1. the defaults in the field reference,
2. for a workload with a ``class``, the figures of that class,
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from planner.catalog.load import workload_preset, workload_preset_names
from planner.errors import Problem, ScenarioError
from planner.finance.months import add_months
from planner.scenario.consistency import check_scenario
from planner.scenario.scenario import Future, Scenario
from planner.validation import sound_part, validate
from planner.yaml_io import (
    Document,
    KeyPath,
    Location,
    document_of_mapping,
    dotted,
    parse_document,
    read_document,
)

MAX_EXTENDS = 16

Source = str | os.PathLike[str] | Mapping[str, Any] | Scenario
"""What a scenario may be given as: a file, what would stand in one, or a scenario that was loaded before."""


def load_scenario(source: Source, overrides: Sequence[str] = ()) -> Scenario:
    """Read and check a scenario from a path, a dict, or a scenario to extend.

    ``overrides`` are ``dotted.path=value`` strings as ``--set`` takes them. Files that a dict names are relative to the
    current folder; overrides of a loaded scenario come after those it was loaded with.
    """
    overrides = (overrides,) if isinstance(overrides, str) else overrides
    if isinstance(source, Scenario):
        return source.laid_over(overrides) if overrides else source
    document = document_of(source)
    if kind_of(document) == "study" and not isinstance(source, Mapping):
        hint = f"planner montecarlo {source} runs it, and planner validate checks it"
        raise ScenarioError(document.problem((), "is a study, not a scenario", hint))
    return scenario_from_document(document, overrides)


def kind_of(document: Document) -> Literal["scenario", "study"]:
    """Return whether a file is a study, which names scenarios, or a scenario, which states machines or traffic."""
    keys = set(document.content) if isinstance(document.content, dict) else set()
    return (
        "study"
        if "scenarios" in keys and not keys & {"workloads", "clusters", "extends"}
        else "scenario"
    )


def document_of(source: str | os.PathLike[str] | Mapping[str, Any]) -> Document:
    """Read a scenario from a file or a dict, merged over the files it extends, unchecked."""
    if isinstance(source, Mapping):
        read = document_of_mapping(source)
        path = Path("dict")
    else:
        read = read_document(Path(source))
        path = Path(source)
    return _over_base(read, path, ())


def scenario_from_document(document: Document, overrides: Sequence[str] = ()) -> Scenario:
    """Apply overrides to merged content, then validate it, also across fields."""
    document.before, document.overrides = document.copy(), tuple(overrides)
    for number, override in enumerate(
        overrides, start=1
    ):  # dotted.path=value, the value being YAML: [1, 2], {a: 1}
        origin = f"--set #{number}"
        path_text, equals, value_text = override.partition("=")
        keys: KeyPath = tuple(path_text.strip().split("."))
        if not equals or not all(keys):
            message = f"{override!r} is not of the form dotted.path=value"
            raise ScenarioError(
                Problem(file=origin, message=message, hint="for example clusters.h200.nodes=80")
            )
        if keys == ("extends",):
            message = "cannot be set: the file that a scenario extends is read before any --set"
            raise ScenarioError(Problem(file=origin, path="extends", message=message))
        value = parse_document(value_text, origin)
        if not (paths := _matching(document.content, keys)):
            raise ScenarioError(
                Problem(
                    file=origin, path=path_text.strip(), message="matches nothing in the scenario"
                )
            )
        for path in paths:
            _set(document, path, _related(document, path, value), origin)
    lay_presets_under(document)
    try:
        scenario = validate(Scenario, document)
    except ScenarioError as error:
        sound = sound_part(Scenario, document) if isinstance(document.content, dict) else None
        if (
            sound is not None
        ):  # what is wrong between its parts is said with what is wrong in themselves
            sound._document = document
            try:
                check_scenario(sound)
            except ScenarioError as further:
                raise ScenarioError([*error.problems, *further.problems]) from None
        raise
    scenario._document = document
    scenario._read = scenario_from_document
    check_scenario(scenario)
    scenario.load_code()
    return with_catalog(scenario)


def with_catalog(scenario: Scenario) -> Scenario:
    """Return the scenario with the catalogue's vendor figures and longest lengths filled in, for plans and studies."""
    catalog = scenario.load_catalog()
    reliability = scenario.reliability
    software = scenario.software
    vendors = catalog.vendors
    workloads = dict(scenario.workloads)
    # The model's context is the longest length of workloads whose quantiles state none.
    for name, workload in workloads.items():
        longest = catalog.models[workload.model].max_context_tokens.value
        tokens = workload.lengths
        sides = {"input": tokens.input.within(longest), "output": tokens.output.within(longest)}
        workloads[name] = workload.model_copy(update={"lengths": tokens.model_copy(update=sides)})
    failures = {name: vendor.failure_multiplier.value for name, vendor in vendors.items()}
    engineers = {name: vendor.engineers_per_800.value for name, vendor in vendors.items()}
    incidents = {name: vendor.ratio("incident_multiplier") for name, vendor in vendors.items()}
    maturing = {name: vendor.ratio("maturing_multiplier") for name, vendor in vendors.items()}
    stuck = {
        name: fact.base
        for name, vendor in vendors.items()
        if (fact := vendor.rollback_impossible_fraction)
    }
    failing = {"vendor_failure_multiplier": failures | reliability.vendor_failure_multiplier}
    by_vendor = {
        "engineers_per_800": engineers | software.engineers_per_800,
        "rollback_impossible_fraction": stuck | software.rollback_impossible_fraction,
        "vendor_incident_multiplier": incidents | software.vendor_incident_multiplier,
        "vendor_software_speedup_multiplier": maturing
        | software.vendor_software_speedup_multiplier,
    }
    update = {
        "reliability": reliability.model_copy(update=failing),
        "software": software.model_copy(update=by_vendor),
    }
    return scenario.model_copy(update={**update, "workloads": workloads})


_PRESET_PATHS: dict[str, tuple[str, ...]] = {
    **{
        f"{side}_{what}_tokens": ("lengths", side, what)
        for side in ("input", "output")
        for what in ("mean", "p95")
    },
    "prefix_cache_hit_fraction": ("prefix_cache_hit_fraction",),
    **{
        name: ("load_profile", name)
        for name in ("peak_to_mean", "trough_to_mean", "weekend_fraction")
    },
    **{f"noise_{name}": ("noise", name) for name in ("sigma", "correlation_h")},
    "burst_index_of_dispersion": ("burst_index_of_dispersion",),
    **{name: ("slo", name) for name in ("ttft_s", "tpot_s")},
    **{name: (name,) for name in ("priority", "completion_window_h")},
}


def lay_presets_under(document: Document) -> None:
    """Fill in the fields that the user did not state, for each workload that names a preset."""
    workloads = document.content.get("workloads") if isinstance(document.content, dict) else None
    if not isinstance(workloads, dict):
        return
    filled = dict(workloads)
    document.content = {**document.content, "workloads": filled}
    for name, stated in workloads.items():
        if (
            not isinstance(stated, dict)
            or (preset := stated.get("preset")) not in workload_preset_names()
        ):
            continue
        figures, filled[name], shape = (
            workload_preset(preset),
            dict(stated),
            stated.get("load_profile"),
        )
        own_shape = isinstance(shape, dict) and {
            "peak_to_mean",
            "weekend_fraction",
            "weekly_profile",
        } & set(shape)
        for field, path in _PRESET_PATHS.items():
            value = figures.get(field)
            if value is None or (path[0] == "load_profile" and own_shape):
                continue  # a shape of one's own is taken whole: peak, trough and weekend belong together
            if path[0] == "lengths" and value_at(stated, (*path[:-1], "quantiles")):
                continue
            if (
                field == "completion_window_h"
                and stated.get("priority", "deferrable") != "deferrable"
            ):
                continue
            if field.endswith(
                "p95_tokens"
            ):  # the preset's spread is kept around a mean of the user's own
                mean = figures[field.replace("p95", "mean")]
                stated_mean = value_at(stated, (*path[:-1], "mean"))
                usable = isinstance(stated_mean, int | float) and not isinstance(stated_mean, bool)
                value = value / mean * float(stated_mean if usable else mean)
            target = filled[name]
            for key in path[:-1]:
                below = target.get(key)
                if below is not None and not isinstance(below, dict):
                    break  # not a mapping: validation will say so
                target[key] = target = dict(below or {})
            else:
                if path[-1] not in target:
                    target[path[-1]] = value
                    document.locations["workloads", name, *path] = Location(
                        f"workload preset {preset}", None
                    )


def value_at(content: Any, path: KeyPath | list[str], absent: object = None) -> Any:
    """Return what the user wrote at a path, or ``absent``."""
    for key in path:
        content = content.get(key, absent) if isinstance(content, dict) else absent
    return content


def _over_base(document: Document, path: Path, below: tuple[str, ...]) -> Document:
    """Return the content of ``path`` merged over the files it extends."""
    written = document.content.get("extends") if isinstance(document.content, dict) else None
    if written is None:
        return document
    names = written if isinstance(written, list | tuple) and written else [written]

    def fail(message: str) -> ScenarioError:
        return ScenarioError(document.problem(("extends",), message))

    if not all(isinstance(name, str) for name in names) or len(names) > MAX_EXTENDS:
        raise fail(f"must be a file name, or a list of up to {MAX_EXTENDS}")
    chain = (*below, os.path.realpath(path))
    layers: list[Document] = []
    for base_path in (path.parent / name for name in names):
        try:
            is_there = base_path.exists()
        except (OSError, ValueError):  # a name that no file can have: too long, a NUL in it
            is_there = False
        if not is_there:
            raise fail(f"no such file: {base_path}")
        circular = os.path.realpath(base_path) in chain
        if circular or len(chain) > MAX_EXTENDS:
            circle = " -> ".join(os.path.basename(part) for part in (*chain, str(base_path)))  # noqa: PTH119 - plain text
            raise fail(
                f"{'extends itself' if circular else f'extends more than {MAX_EXTENDS} deep'}: {circle}"
            )
        layers.append(_over_base(read_document(base_path), base_path, chain))
        if not isinstance(layers[-1].content, dict):
            raise ScenarioError(
                Problem(file=str(base_path), line=1, message="expected a mapping of keys to values")
            )
    base, *over = layers
    for layer in (*over, document):
        merge(base, layer)
    return base


def merge(base: Document, layer: Document) -> None:
    """Merge one document over another in place: mappings merge, other values replace, null removes."""
    gone: dict[KeyPath, bool] = {}
    base.content = _merged(base.content, layer.content, (), gone)
    stand = [
        path
        for path in base.locations
        if not any(path[:end] in gone for end in range(len(path) + 1))
    ]
    base.locations = {path: base.locations[path] for path in stand}
    base.locations |= {
        path: place for path, place in layer.locations.items() if not gone.get(path, False)
    }


def _merged(below: Any, above: Any, path: KeyPath, gone: dict[KeyPath, bool]) -> Any:
    """Return ``above`` over ``below``; record replaced paths in ``gone``, and whether a null removed them."""
    if not isinstance(above, dict) or not isinstance(below, dict):
        gone[path] = False
    if not isinstance(above, dict):
        return above
    result = dict(below) if isinstance(below, dict) else {}
    for key, value in above.items():
        if value is None:
            gone[(*path, key)] = True
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value, (*path, key), gone)
    return result


def _set(document: Document, keys: KeyPath, value: Document, origin: str) -> None:
    """Lay one value over a document."""
    parent = _walk(document.content, keys[:-1])
    if parent is not None and not isinstance(parent, dict):
        # The part of the path that leads to something other than a mapping.
        ends = (
            end
            for end in range(1, len(keys))
            if not isinstance(_walk(document.content, keys[:end]), dict)
        )
        message = f"{dotted(keys[: next(ends)])} holds no keys"
        raise ScenarioError(Problem(file=origin, path=dotted(keys), message=message))
    layer: Any = copy.deepcopy(value.content)
    for key in reversed(keys):
        layer = {key: layer}
    place = Location(origin, None)
    new = {keys[:end]: place for end in range(1, len(keys)) if keys[:end] not in document.locations}
    merge(document, Document(layer, new | {(*keys, *path): place for path in value.locations}))


_TIMES = re.compile(r"[×x] ?(\d{1,9}(?:\.\d{1,9})?)")
_LATER = re.compile(r"([+-]\d{1,4}) (day|week|month)s?")


def _related(document: Document, path: KeyPath, value: Document) -> Document:
    """Return a value that is given by what is stated: ``×2`` times a number, ``+3 months`` after a date."""
    text = value.content if isinstance(value.content, str) else ""
    times = _TIMES.fullmatch(text)
    later = _LATER.fullmatch(text)
    if not (times or later):
        return value
    stated = _walk(document.content, path)
    if stated is None or (times and isinstance(stated, int)):  # a default, or a rate such as 5
        copied = document.copy()
        lay_presets_under(copied)
        scenario = validate(Scenario, copied)
        scenario._document = copied
        stated = value_at(scenario.model_dump(by_alias=True), path)
        match path:
            case ("clusters", name, "online") if stated is None:
                stated = scenario.start
            case ("clusters", name, "accelerator_price_usd") if stated is None:
                price = scenario.load_catalog().accelerator(
                    scenario.clusters[str(name)].accelerator
                )
                stated = price.accelerator_price_usd and price.accelerator_price_usd.value

    def related(before: Any) -> Any:
        if isinstance(before, dict):
            return {key: related(part) for key, part in before.items()}
        if times and isinstance(before, int | float) and not isinstance(before, bool):
            product = before * float(times[1])
            return round(product) if isinstance(before, int) else product
        if later and isinstance(before, datetime.date):
            count = int(later[1])
            days = {"day": 1, "week": 7}.get(later[2])
            return (
                before + datetime.timedelta(days=count * days)
                if days
                else add_months(before, count)
            )
        kind = "number" if times else "date"
        message = f"{text!r} needs a {kind} to go by, and {dotted(path)} states none"
        raise ScenarioError(
            Problem(path=dotted(path), message=message, hint="give the value itself")
        )

    return Document(related(stated), value.locations)


SHARED = ("name", "description", "extends", "seed", "start", "horizon_months")
"""What names a plan, and the months and the chance that plans which are compared have in common."""


def under(scenario: Scenario, future: Future) -> tuple[Scenario | None, list[str]]:
    """Return a plan in a future, None where that changes nothing of it, and the paths of the future that reach it."""
    laid = []
    content = scenario.document.content
    for path in future.set:
        keys = tuple(path.split("."))
        if keys[0] in (*SHARED, "futures", "sizing"):
            raise ScenarioError(
                Problem(
                    path=path, message="is what plans and futures share; a future cannot set it"
                )
            )
        among = content.get(keys[0]) if keys[0] in ("clusters", "workloads") else None
        if _matching(content, keys) and (
            among is None or len(keys) == 1 or fnmatch.filter(among, keys[1])
        ):
            laid.append(path)
    changes = {path: future.set[path] for path in laid}
    return (scenario.with_(changes) if changes else None), laid


def _matching(content: Any, keys: KeyPath) -> list[KeyPath]:
    """Return the paths that a path stands for: ``*`` in a key is any part of the names there, as in a study."""
    if not any("*" in str(key) for key in keys):
        return [keys]
    below = content if isinstance(content, dict) else {}
    names = fnmatch.filter(below, str(keys[0])) if "*" in str(keys[0]) else [keys[0]]
    return [(name, *rest) for name in names for rest in _matching(below.get(name), keys[1:])]


def layer_of(document: Document) -> dict[str, Any]:
    """Return a document's overrides as an extending file would state them; later ones win, and nulls stay."""

    def over(below: Any, above: Any) -> Any:
        if not (isinstance(below, dict) and isinstance(above, dict)):
            return above
        return below | {key: over(below.get(key), value) for key, value in above.items()}

    layer: Any = {}
    for override in document.overrides:
        pattern, _, text = override.partition("=")
        for path in _matching(document.content, tuple(pattern.strip().split("."))):
            value = parse_document(text, "--set").content
            if isinstance(value, str) and (_TIMES.fullmatch(value) or _LATER.fullmatch(value)):
                value = _walk(document.content, path)
            for key in reversed(path):
                value = {key: value}
            layer = over(layer, value)
    return layer  # type: ignore[no-any-return]  # a mapping over a mapping


def _walk(content: Any, path: KeyPath) -> Any:
    """Return the value at a path of keys; None where the path does not exist yet."""
    for key in path:
        if not isinstance(content, dict):
            return content
        content = content.get(key)
        if content is None:
            return None
    return content
