"""Settings: the scenario fields that can be changed on the live page, written as ``--set`` takes them."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from pydantic import BaseModel

from planner.catalog.load import Catalog
from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Future, Scenario
from planner.scenario.site import Site
from planner.scenario.workload import GrowthByYear, Length, Workload
from planner.validation import field_docstring

MAX_CHANGES = 400
"""Changes of one plan that the page takes."""
NEW_CLUSTER = "clusters.*"
"""Path of machines that are added to a scenario."""
_PLAIN_VALUE = r"[\w.+-]{1,64}"
"""A plain word, number or date: no change names a file or holds further keys."""
_FEWEST_NODES = 16.0
"""Nodes that a slider reaches at least."""
_SLIDER_STEPS = 200.0
"""Steps of a slider from end to end, so that each is a pixel or more."""


@record
class SettingKind:
    """A kind of setting: every scenario field that matches a path."""

    group: str
    """Heading it stands under."""
    label: str
    """What it is, with its unit."""
    bounds: tuple[float, float] | None
    """Ends of its slider. Default: nothing to twice what is stated."""
    template: str
    """How its value, ``%``, is written."""


def _read_kind(row: dict[str, str]) -> SettingKind:
    """Return the kind of a setting from its row of the table."""
    bounds = None
    if row["low"]:
        bounds = (float(row["low"]), float(row["high"]))
    template = row["template"] or "%"
    return SettingKind(group=row["group"], label=row["label"], bounds=bounds, template=template)


SETTING_KINDS = {row["path"]: _read_kind(row) for row in data_rows(__file__, "settings.csv")}
"""Everything that can be changed, by its path; ``*`` is any cluster or workload.

Machines that are added have eight nodes, one rack row, to be changed at once (assumption)."""


@record
class FutureSetting:
    """A setting that nobody decides."""

    stated: str
    """Its value where everything is as the scenario states it."""
    template: str
    """How a future with another value is called."""
    multiplied: tuple[str, ...] = ()
    """Paths of the fields that it multiplies; none for a delay of deliveries."""


def _lengths(side: str) -> tuple[str, ...]:
    """Return the paths of all that states the lengths of one side."""
    keys = ("mean", "p95", "quantiles")
    return tuple(f"workloads.*.lengths.{side}.{key}" for key in keys)


FUTURE_SETTINGS = {
    "future.traffic": FutureSetting(
        stated="1", template="traffic ×%", multiplied=("workloads.*.requests_per_s",)
    ),
    "future.growth": FutureSetting(
        stated="1", template="growth ×%", multiplied=("workloads.*.growth.per_year",)
    ),
    "future.input_tokens": FutureSetting(
        stated="1", template="prompts ×%", multiplied=_lengths("input")
    ),
    "future.output_tokens": FutureSetting(
        stated="1", template="replies ×%", multiplied=_lengths("output")
    ),
    "future.slip_months": FutureSetting(stated="0", template="deliveries % months late"),
    "future.lead_time": FutureSetting(
        stated="1", template="lead time ×%", multiplied=("clusters.*.order.lead_weeks",)
    ),
    "future.price": FutureSetting(
        stated="1", template="price ×%", multiplied=("clusters.*.accelerator_price_usd",)
    ),
}


@record
class Setting:
    """One setting with its present value."""

    path: str
    kind: SettingKind
    owner: str = ""
    """Cluster or workload it is of."""
    value: str
    """What is stated, as text; empty where it is left to its default."""
    default: str = ""
    """What stands where nothing is stated."""
    choices: tuple[str, ...] = ()
    """Words to choose from; empty for a number or a date."""
    is_date: bool = False
    is_optional: bool = False
    """Whether it may be left empty."""
    help: str = ""
    """The field's own description."""

    @property
    def input_text(self) -> str:
        """Text of its input box; for a date without a value, the default date."""
        if self.is_date:
            return self.value or self.default
        return self.value

    @property
    def placeholder(self) -> str:
        """Placeholder of an empty input box."""
        return self.default or ("none" if self.is_optional else "")

    @property
    def is_new_cluster(self) -> bool:
        """Whether it is of machines that do not exist yet."""
        return self.kind is SETTING_KINDS[NEW_CLUSTER]

    @property
    def slider(self) -> tuple[float, float, float] | None:
        """Lowest, highest and step of its slider; None without a number to start from."""
        text = self.value or self.default
        if self.choices or self.is_date or not text:
            return None
        start = float(text)
        usual = self.kind.bounds or (0.0, _round_up(2.0 * start))
        low, high = usual
        # What a file states may lie outside the usual range, and the slider begins there.
        low = min(low, start)
        high = max(high, start)
        # Of what is quoted nothing is bought yet.
        if self.path.endswith("nodes"):
            high = max(high, _FEWEST_NODES)
        if not high > low:
            return None
        step_length = (high - low) / _SLIDER_STEPS
        step = _round_up(step_length)
        # Nobody buys half a node.
        if self.path.endswith(("nodes", "months")):
            step = max(1.0, step)
        return low, high, step


def settings_of(scenario: Scenario, future: Sequence[str] = ()) -> list[Setting]:
    """Return the settings of a scenario that have an effect, in the order of their groups, and those of its future."""
    catalog = scenario.load_catalog()
    settings = [
        *_future_settings(future),
        *_scenario_settings(scenario, catalog),
        *_new_clusters(scenario, catalog),
    ]
    # In the order of the table, which is that of the page.
    group_names = (kind.group for kind in SETTING_KINDS.values())
    groups = list(dict.fromkeys(group_names))
    owners = [*scenario.clusters, *scenario.workloads, ""]

    def position(setting: Setting) -> tuple[int, int]:
        return groups.index(setting.kind.group), owners.index(setting.owner)

    return sorted(settings, key=position)


def _future_settings(changes: Sequence[str]) -> Iterator[Setting]:
    """Yield the settings of the future, with what is changed of them."""
    changed = dict(change.split("=") for change in changes)
    for path, setting in FUTURE_SETTINGS.items():
        value = changed.get(path, setting.stated)
        yield Setting(path=path, kind=SETTING_KINDS[path], value=value)


def _scenario_settings(scenario: Scenario, catalog: Catalog) -> Iterator[Setting]:
    """Yield the settings of fields that a scenario has."""
    engine_names = (stack.engine.value for stack in catalog.stacks.values())
    engines = dict.fromkeys(engine_names)
    catalogue_names = {
        "accelerator": tuple(catalog.accelerators),
        "engine": ("auto", *engines),
        "model": tuple(catalog.models),
        "precision": tuple(catalog.precisions),
        "tariff": tuple(catalog.tariffs),
    }
    for pattern, kind in SETTING_KINDS.items():
        for (*parents, field), section in _matching_fields(scenario, pattern):
            # None where the file leaves it to its default, which is then shown as a placeholder.
            stated = _value(section, field)
            attribute = _attribute(type(section), field)
            words, is_optional, description = _describe_field(type(section), attribute)
            path = ".".join((*parents, field))
            default = ""
            if stated is None:
                default = _default_text(scenario, section, field)
            owner = ""
            if "*" in pattern:
                owner = parents[1]
            yield Setting(
                path=path,
                kind=kind,
                owner=owner,
                # A workload that does not grow has no number to show: its growth is zero.
                value="0" if field == "growth" else _value_text(stated),
                default=default,
                choices=catalogue_names.get(field, words),
                is_date=field in ("online", "placed"),
                is_optional=is_optional,
                help=description,
            )


def _new_clusters(scenario: Scenario, catalog: Catalog) -> Iterator[Setting]:
    """Yield machines that could be added: every accelerator with a price, under a name that is free."""
    kind = SETTING_KINDS[NEW_CLUSTER]
    for accelerator, entry in catalog.accelerators.items():
        if not entry.accelerator_price_usd:
            continue
        stem = re.sub(r"[^a-z0-9]+", "-", accelerator.lower())
        name = stem = stem.strip("-")
        numbers = itertools.count(2)
        while name in scenario.clusters:
            name = f"{stem}-{next(numbers)}"
        path = f"clusters.{name}"
        yield Setting(path=path, kind=kind, value="", choices=(accelerator,))


def build_future(scenario: Scenario, changes: Sequence[str]) -> Future | None:
    """Return what changed settings of the future set in a scenario; None where all of it is as stated."""
    overrides: dict[str, Any] = {}
    for change in changes:
        path, text = change.split("=")
        setting = FUTURE_SETTINGS[path]
        # A slider moved there and back leaves "1.0" where "1" is stated.
        if float(text) == float(setting.stated):
            continue
        if setting.multiplied:
            for path in _multiplied_paths(scenario, setting):
                overrides[path] = f"×{text}"
        else:
            overrides["clusters.*.delivered"] = f"+{round(float(text))} months"
    if overrides:
        return Future(set=overrides)
    return None


def _multiplied_paths(scenario: Scenario, setting: FutureSetting) -> Iterator[str]:
    """Yield the paths of what a setting of the future multiplies in a scenario."""
    for pattern in setting.multiplied:
        for keys, section in _matching_fields(scenario, pattern):
            # A length that is not stated follows from the others.
            is_derived = isinstance(section, Length) and not _value(section, keys[-1])
            if not is_derived:
                yield ".".join(keys)


def _value(section: BaseModel, key: str) -> Any:
    """Return the value of a key of a file in a section."""
    return getattr(section, _attribute(type(section), key))


def _attribute(model: type[BaseModel], key: str) -> str:
    """Return the name under which a model holds a key of a file."""
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    return names.get(key, key)


def future_of(changes: Sequence[str]) -> tuple[str, ...]:
    """Return the changes that are of the future and not as stated, in the order of the page."""
    by_path = {change.partition("=")[0]: change for change in changes}
    # Compared as text, since a future's name shows the text: build_future compares numbers.
    return tuple(
        by_path[path]
        for path, setting in FUTURE_SETTINGS.items()
        if path in by_path and by_path[path] != f"{path}={setting.stated}"
    )


def future_name(changes: Sequence[str]) -> str:
    """Return what a future is called: traffic ×1.3, 3 months late; empty where all is as stated."""
    names = []
    for change in future_of(changes):
        path, _, text = change.partition("=")
        names.append(FUTURE_SETTINGS[path].template.replace("%", text))
    return ", ".join(names)


def _matching_fields(
    scenario: Scenario, pattern: str
) -> Iterator[tuple[tuple[str, ...], BaseModel]]:
    """Yield the keys of every field that matches a pattern and has an effect, with the section that holds it."""
    *parents, field = pattern.split(".")
    # Down one key at a time; a star goes to every member of a mapping.
    sections: list[tuple[tuple[str, ...], Any]] = [((), scenario)]
    for parent in parents:
        below: list[tuple[tuple[str, ...], Any]] = []
        for keys, section in sections:
            if parent == "*":
                # What follows another workload is set with it.
                below += [
                    ((*keys, name), member)
                    for name, member in section.items()
                    if not getattr(member, "follows", None)
                ]
            else:
                member = getattr(section, parent, None)
                below.append(((*keys, parent), member))
        sections = below
    for keys, section in sections:
        # A section that is absent, or a kind of growth without the field, has no such setting.
        if not isinstance(section, BaseModel):
            continue
        if _attribute(type(section), field) not in type(section).model_fields:
            continue
        if _has_effect(section, field):
            yield (*keys, field), section


def _has_effect(section: BaseModel, field: str) -> bool:
    """Return whether a field is read: an offer takes the place of a price, an order that of a date."""
    match section:
        case Cluster() if field == "online":
            return section.order is None and section.owned is None
        case Cluster() if field in ("accelerator_price_usd", "discount_fraction"):
            return section.contract is None and section.owned is None and not section.quotes
        case Cluster() if field == "host_memory_gb":
            return section.contract is None or section.contract.kind != "api"
        case Length() if field in ("mean", "p95"):
            return not section.quantiles
        case Site() if field == "electricity_usd_per_kwh":
            return not section.electricity.windows
        case Workload() if field == "growth":
            return section.growth.kind == "flat"
        case GrowthByYear():  # has no one rate
            return False
        case _:
            return True


@functools.cache
def _describe_field(model: type[BaseModel], field: str) -> tuple[tuple[str, ...], bool, str]:
    """Return a field's allowed words, whether it is optional, and its description without the default."""
    # A union or a Literal has its members as arguments; a plain type has none.
    alternatives = get_args(model.model_fields[field].annotation)
    words = tuple(str(word) for word in alternatives if isinstance(word, str))
    description = " ".join(field_docstring(model, field).split())
    # The default stands beside the control already.
    summary = re.split(r"\s+Default\b", description)[0]
    return words, type(None) in alternatives, summary


def _default_text(scenario: Scenario, section: BaseModel, field: str) -> str:
    """Return the default of a field as text."""
    catalog = scenario.load_catalog()
    match section, field:
        case Cluster(), "online":
            return _value_text(scenario.start)
        case Cluster(), "accelerator_price_usd":
            accelerator = catalog.accelerator(section.accelerator)
            price = accelerator.accelerator_price_usd
            if price:
                return _value_text(price.value)
            return ""
        case Cluster(), "host_memory_gb":
            memory_gb = catalog.accelerator(section.accelerator).host_memory_gb
            return _value_text(memory_gb.value) if memory_gb else ""
        case Length(), "p95":
            return _value_text(round(section.distribution.quantile(0.95)))
        case Site(), "electricity_usd_per_kwh":
            tariff = catalog.tariff(section.tariff)
            return _value_text(tariff.energy_usd_per_kwh.value)
        case _:
            return ""


def _value_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def _round_up(number: float) -> float:
    """Return the next of 1, 2, 5 times a power of ten."""
    if number <= 0.0:
        return 1.0
    # Powers of ten by text: 10.0 ** −2 times 5 is not 0.05 to the last digit.
    power = math.floor(math.log10(number))
    candidates = [float(f"{digit}e{power}") for digit in (1, 2, 5, 10)]
    # The tolerance keeps 0.3 / 0.1 and the like, a rounding error above a step, on that step.
    return next(step for step in candidates if step >= number * (1.0 - 1e-9))


def check_changes(scenario: Scenario, changes: Sequence[str]) -> None:
    """Raise an error for changes that are not of a setting, so that a page cannot reach other keys or files."""
    if len(changes) > MAX_CHANGES:
        raise ScenarioError(f"{len(changes):,} changes; the page takes {MAX_CHANGES}")
    for change in changes:
        if not _is_setting(scenario, change):
            message = f"{change[:120]!r} is not a setting of this page"
            raise ScenarioError(Problem(message=message, hint="use its controls"))


def _pattern(path: str) -> tuple[str, str]:
    """Return a path with a star for its cluster or workload, and the name of that; empty where it is of neither."""
    keys = path.split(".")
    if keys[0] in ("clusters", "workloads") and len(keys) > 1:
        section, owner, *rest = keys
        return ".".join([section, "*", *rest]), owner
    return path, ""


def refusal(error: ScenarioError) -> str:
    """Return what is wrong in the words of the page: a setting by its label, and no option of a command."""
    lines = []
    for problem in error.problems:
        pattern, owner = _pattern(problem.path or "")
        if pattern in SETTING_KINDS and pattern != NEW_CLUSTER:
            label = SETTING_KINDS[pattern].label
            problem = replace(problem, path=f"{owner}, {label}" if owner else label)  # noqa: PLW2901
        if (problem.file or "").startswith("--set"):
            problem = replace(problem, file=None)  # noqa: PLW2901
        lines.append(str(problem))
    return "\n".join(lines)


def _is_setting(scenario: Scenario, change: str) -> bool:
    """Return whether a change has the path of a setting and a value as the page writes it."""
    path, _, text = change.partition("=")
    keys = path.split(".")
    # Plain names alone: no key of the page leads to a file.
    if not all(re.fullmatch(r"[\w-]{1,64}", key) for key in keys):
        return False
    pattern, _ = _pattern(path)
    if pattern not in SETTING_KINDS:
        return False
    # Machines are added, never put in the place of others: those may hold what no setting states.
    if pattern == NEW_CLUSTER and keys[1] in scenario.clusters:
        return False
    is_number = re.fullmatch(r"\d{1,2}(\.\d{1,3})?", text)
    if path in FUTURE_SETTINGS and not is_number:
        return False
    # The template is escaped, since it may hold braces; its % stands for the value.
    template = re.escape(SETTING_KINDS[pattern].template)
    value = template.replace("%", _PLAIN_VALUE)
    return re.fullmatch(value, text) is not None
