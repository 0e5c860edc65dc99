"""Uncertain inputs: their distributions, the fields they set, and a scenario with drawn values.

Dotted paths say which fields an input reaches; resolving a study finds every path's fields and every distribution's
figures, and all that is wrong at once.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner.arrays import Floats
from planner.catalog.load import shape_of
from planner.errors import PlannerError, Problem, ScenarioError, raise_all
from planner.physics.coefficients import Uncertainty, groups_of
from planner.plan.candidates import engine_options
from planner.plan.choice import Service, build_services
from planner.plan.reuse import Reuse
from planner.records import record
from planner.scenario import study as language
from planner.scenario.consistency import check_scenario
from planner.scenario.loading import SHARED, with_catalog
from planner.scenario.plausibility import implausibility, plausible_range
from planner.scenario.scenario import Scenario
from planner.studies import distributions
from planner.studies.distributions import TAIL, Resolved, is_numeric, is_smooth, quantile, value_of
from planner.validation import choices, frozen, nearest
from planner.yaml_io import KeyPath, dotted, value_at, with_value

FIXED = (*SHARED, "catalog", "calibration")
"""What a study cannot vary: the months that scenarios share, and the catalogue and the calibration that compiled parts
are kept by."""
ERROR_PREFIX = "throughput_error"
"""How the name of an input begins that is an error of the throughput model."""
_NORMAL_80 = 1.2815515655446004
"""A normal variable lies within this many standard deviations eight times in ten."""
_MOST_TRIED = 1000
"""Names of a long list that are tried: each takes a validation of the whole scenario."""


@record
class UncertainInput:
    """One uncertain input."""

    name: str
    distribution: Resolved
    times_stated: bool = False
    targets: tuple[tuple[KeyPath, ...], ...] = ()
    """Fields it sets, by scenario."""
    throughput_of: tuple[str, str, str] | None = None
    """Accelerator, engine and model whose modelled throughput it multiplies, for model error; empty: any."""


@record
class UncertainInputs:
    """All uncertain inputs of a study."""

    entries: tuple[UncertainInput, ...]
    mixing: Floats | None
    """The factor of the scores' correlations; None where inputs are independent."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs in column order."""
        return tuple(entry.name for entry in self.entries)

    def drawn(self, points: Floats) -> Floats:
        """Return the inputs' values at points of the unit cube, both of shape (points, inputs)."""
        if self.mixing is not None:
            points = distributions.correlate(points, self.mixing)
        columns = zip(self.entries, points.T, strict=True)
        values = [quantile(entry.distribution, column) for entry, column in columns]
        # Nothing to stack where nothing is uncertain.
        if not values:
            return np.zeros((len(points), 0))
        return np.stack(values, axis=1)


@record
class Stated:
    """One scenario of a study as stated, with its content and its values."""

    name: str
    scenario: Scenario
    content: dict[str, Any]
    """What the user wrote, merged, with tuples for lists."""
    dump: dict[str, Any]
    """Every field with its value, defaults included."""


def stated(name: str, scenario: Scenario) -> Stated:
    """Return a scenario prepared for changes by a study."""
    content = frozen(scenario.document.content)
    dump = scenario.model_dump(by_alias=True)
    # A workload that follows another is drawn with it: only what the user wrote has a place of its own.
    dump["workloads"] = {
        key: fields
        for key, fields in dump["workloads"].items()
        if scenario.workloads[key].follows is None
    }
    return Stated(name=name, scenario=scenario, content=content, dump=dump)


def changed(
    base: Stated, place: int, inputs: UncertainInputs, values: Floats
) -> tuple[Scenario, dict[tuple[str, str, str], float]]:
    """Return a scenario with every input's value set, and the throughput factors, which are not scenario fields."""
    content = base.content
    factors: dict[tuple[str, str, str], float] = {}
    draws = zip(inputs.entries, values.tolist(), strict=True)
    for uncertain, draw in draws:
        if uncertain.throughput_of is not None:
            factors[uncertain.throughput_of] = draw
            continue
        for path in uncertain.targets[place]:
            stated_value = value_at(base.dump, path)
            value = new_value(uncertain, stated_value, draw)
            content = with_value(content, path, value)
    scenario = Scenario.model_validate(content)
    # Files that the scenario names were read when the study began, and are not read again.
    scenario._document = base.scenario.document
    return with_catalog(scenario), factors


def new_value(uncertain: UncertainInput, stated_value: Any, draw: float) -> Any:
    """Return a field's value for a draw; whole numbers stay whole."""
    value = value_of(uncertain.distribution, draw)
    if uncertain.times_stated and isinstance(value, int | float):
        value = stated_value * value
    # By type, not isinstance: true and false are integers too.
    is_whole = type(stated_value) is int
    if is_whole and isinstance(value, float):
        return round(value)
    return value


def reach(pattern: str, stated: dict[str, Any]) -> list[KeyPath]:
    """Return the fields of a dumped scenario that match a dotted path, in which ``*`` matches any part of a name.

    ``{a,b}`` stands for either name, and what is stated by year for all its years.
    """
    if alternatives := re.search(r"\{([^{}]*)\}", pattern):
        prefix = pattern[: alternatives.start()]
        suffix = pattern[alternatives.end() :]
        paths: list[KeyPath] = []
        for name in alternatives[1].split(","):
            paths += reach(f"{prefix}{name.strip()}{suffix}", stated)
        return paths
    keys = tuple(pattern.split("."))
    fields: list[KeyPath] = []
    for path, content in _walk(keys, stated, ()):
        # What is stated by year is one figure to its user: all its years are drawn alike.
        years = []
        if isinstance(content, dict):
            years = list(content)
        are_years = all(str(key).isdecimal() for key in years)
        # Nothing at all is no list of years.
        if years and are_years:
            fields += [(*path, year) for year in years]
        else:
            fields.append(path)
    return fields


def _walk(keys: tuple[str, ...], content: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Yield the paths below some content that match keys, each with what it holds."""
    if not keys:
        yield path, content
        return
    key, *rest = keys
    matches: list[str | int] = []
    if isinstance(content, dict):
        matches += fnmatch.filter(content, key)
    elif _is_place(key, content):
        matches.append(int(key))
    deeper_keys = tuple(rest)
    for match in matches:
        yield from _walk(deeper_keys, content[match], (*path, match))


def _is_place(key: str, content: Any) -> bool:
    """Return whether a key of a path is the number of an entry of a list."""
    is_list = isinstance(content, tuple | list)
    return is_list and key.isdigit() and int(key) < len(content)


def bounds(path: KeyPath) -> tuple[float | None, float | None]:
    """Return the lowest and highest number a scenario's field allows, None where there is no limit."""
    schema = _SCENARIO_SCHEMA()
    nodes = _alternatives(schema, schema["$defs"])
    for key in path:
        children: list[dict[str, Any]] = []
        for node in nodes:
            # Names of workloads and clusters are free, so their schema has no properties.
            child = node.get("additionalProperties") or node.get("items")
            if "properties" in node:
                child = node["properties"].get(key)
            if isinstance(child, dict):
                children += _alternatives(child, schema["$defs"])
        nodes = children
    ends: dict[str, list[float]] = {"low": [], "high": []}
    for node in nodes:
        # An open end counts as a closed one: a draw never lies exactly on it.
        for side, limits in _LIMITS.items():
            if side in node:
                ends[limits].append(float(node[side]))
    low = max(ends["low"], default=None)
    high = min(ends["high"], default=None)
    return low, high


_SCENARIO_SCHEMA = functools.cache(Scenario.model_json_schema)
_LIMITS = {
    "minimum": "low",
    "exclusiveMinimum": "low",
    "maximum": "high",
    "exclusiveMaximum": "high",
}
"""Keywords of JSON Schema for the ends of a number's range."""


def _alternatives(node: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a node of a JSON schema and all its alternatives."""
    parts: list[dict[str, Any]] = []
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts += node.get(keyword, ())
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        parts.append(definitions[name])
    nodes = [node]
    for part in parts:
        nodes += _alternatives(part, definitions)
    return nodes


def resolve_inputs(study: language.Study, scenarios: Mapping[str, Stated]) -> UncertainInputs:
    """Return every input with its fields and distribution; raise one ScenarioError with all problems."""
    problems: list[Problem] = []
    inputs: list[UncertainInput] = []
    for name, distribution in study.uncertain.items():
        try:
            uncertain = _resolve(study, scenarios, name, distribution)
            inputs.append(uncertain)
        except ScenarioError as error:
            problems += error.problems
    if study.throughput_error:
        inputs += _throughput_errors(scenarios)
    mixing = None
    names = [entry.name for entry in inputs]
    try:
        mixing = mixing_of(study, names)
    except ScenarioError as error:
        problems += error.problems
    raise_all(problems)
    return UncertainInputs(entries=tuple(inputs), mixing=mixing)


def _resolve(
    study: language.Study,
    scenarios: Mapping[str, Stated],
    name: str,
    distribution: language.Distribution,
) -> UncertainInput:
    """Return one input with its fields, after checking its extremes on every scenario."""
    location: KeyPath = ("uncertain", name)
    # Scenarios share their months, and compiled parts are kept by catalogue and calibration.
    section, *_ = name.split(".")
    if section in FIXED:
        raise ScenarioError(study.problem(location, f"a study cannot vary {section}"))
    targets = []
    fields: list[tuple[Stated, KeyPath]] = []
    for base in scenarios.values():
        paths = reach(name, base.dump)
        targets.append(tuple(paths))
        fields += [(base, path) for path in paths]
    if not fields:
        message = "no scenario of the study has this field"
        hint = _nearest_key(name, scenarios)
        raise ScenarioError(study.problem(location, message, hint))
    for base, path in fields:
        stated_value = value_at(base.dump, path)
        if isinstance(stated_value, dict | tuple):
            message = f"{dotted(path)} is a section, not a value"
            raise ScenarioError(study.problem(location, message))
        if distribution.times_stated and not _is_number(stated_value):
            message = f"{dotted(path)} of {base.name} states no number for times_stated to multiply"
            raise ScenarioError(study.problem(location, message))
    # Priors and bounds are those of the first field: a path reaches fields of one kind.
    base, path = fields[0]
    if isinstance(distribution, language.Prior):
        distribution = _prior(study, distribution, location, base.scenario)
    if isinstance(distribution, language.Percentiles):
        distribution = _bounded(study, distribution, location, path)
    uncertain = UncertainInput(
        name=name,
        distribution=distribution,
        times_stated=distribution.times_stated,
        targets=tuple(targets),
    )
    _try_extremes(study, scenarios, uncertain)
    return uncertain


def _is_number(value: object) -> bool:
    """Return whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nearest_key(name: str, scenarios: Mapping[str, Stated]) -> str:
    """Return a hint on a path that no scenario has: the nearest key at the level where it goes astray."""
    keys = name.split(".")
    # From the end on: the longest part of the path that leads somewhere.
    for depth in reversed(range(len(keys))):
        names: set[str] = set()
        prefix = tuple(keys[:depth])
        for base in scenarios.values():
            for _, content in _walk(prefix, base.dump, ()):
                if isinstance(content, dict):
                    names |= set(map(str, content))
        if names:
            return nearest(keys[depth], names) or f"there are {choices(names)}"
    return "write paths as for --set"


def _bounded(
    study: language.Study, stated: language.Percentiles, location: KeyPath, path: KeyPath
) -> language.Percentiles:
    """Return percentiles bounded by the range of their field, where they state no bounds of their own."""
    low, high = bounds(path)
    # What multiplies a stated value has no limit but zero.
    if stated.times_stated:
        low = 0.0
        high = None
    # Where a percentile lies beyond the field's own limit, that limit says what is wrong better
    # than a curve that cannot be drawn.
    is_below = low is not None and low >= stated.p10
    is_above = high is not None and high <= stated.p90
    if stated.low is not None or is_below:
        low = stated.low
    if stated.high is not None or is_above:
        high = stated.high
    limits = {"low": low, "high": high}
    percentiles = stated.model_copy(update=limits)
    if not is_smooth(percentiles):
        figures = f"{stated.p10:g}, {stated.p50:g}, {stated.p90:g}"
        lowest = "-∞" if low is None else f"{low:g}"
        highest = "∞" if high is None else f"{high:g}"
        message = (
            f"no smooth distribution has the percentiles {figures} between {lowest} and {highest}"
        )
        problem = study.problem(location, message, "try kind: triangular or pert")
        raise ScenarioError(problem)
    return percentiles


def _prior(
    study: language.Study, stated: language.Prior, location: KeyPath, scenario: Scenario
) -> language.Percentiles:
    """Return a prior from the catalogue of the first scenario that has the field."""
    location = (*location, "prior")
    priors = scenario.load_catalog().priors
    if stated.prior not in priors:
        hint = nearest(stated.prior, priors) or f"the catalogue has {choices(priors)}"
        message = f"unknown prior {stated.prior!r}"
        raise ScenarioError(study.problem(location, message, hint))
    prior = priors[stated.prior]
    scale = prior.base if stated.times_stated else 1.0
    is_spread = prior.low < prior.base < prior.high
    # A base of zero has no factors around it.
    if not is_spread or scale == 0.0:
        figures = f"{prior.low:g}, {prior.base:g}, {prior.high:g}"
        message = f"prior {stated.prior} ({figures}) has no spread on both sides of its base"
        hint = "state a distribution of your own"
        raise ScenarioError(study.problem(location, message, hint))
    high = stated.high
    if high is None and prior.highest is not None:
        high = prior.highest / scale
    return language.Percentiles(
        kind="percentiles",
        p10=prior.low / scale,
        p50=prior.base / scale,
        p90=prior.high / scale,
        low=stated.low,
        high=high,
        times_stated=stated.times_stated,
    )


def _extremes(distribution: Resolved) -> Floats:
    """Return the draws at which a field would reject a distribution, if it does at all."""
    if not isinstance(distribution, language.Discrete):
        ends = np.array([TAIL, 1.0 - TAIL])
        return quantile(distribution, ends)
    if is_numeric(distribution):
        # A field's range lets through all between two values that it lets through.
        values = np.array(distribution.values, dtype=np.float64)
        return np.array([values.min(), values.max()])
    # Each name is tried, or of a long list some that are spread over it.
    count = len(distribution.values)
    tried = np.linspace(0, count - 1, min(count, _MOST_TRIED))
    return tried.round()


def _try_extremes(
    study: language.Study, scenarios: Mapping[str, Stated], uncertain: UncertainInput
) -> None:
    """Raise an error for a distribution whose ends (or listed values) its field would reject."""
    distribution = uncertain.distribution
    is_listed = isinstance(distribution, language.Discrete)
    hint = None if is_listed else "cut it with low and high, or narrow it"
    inputs = UncertainInputs(entries=(uncertain,), mixing=None)
    problems: dict[Problem, None] = {}
    for place, base in enumerate(scenarios.values()):
        if not uncertain.targets[place]:
            continue
        path = uncertain.targets[place][0]
        stated_value = value_at(base.dump, path)
        for draw in _extremes(distribution).tolist():
            value = new_value(uncertain, stated_value, draw)
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            try:
                draws = np.array([draw])
                scenario, _ = changed(base, place, inputs, draws)
                if not is_numeric(distribution):  # a name or a date may contradict another field
                    check_scenario(scenario)
            except ValidationError as error:
                reason = error.errors(include_url=False)[0]["msg"]
                # In the words of this program, whose messages say "must be".
                reason = reason.replace("Input should be", "must be")
                reason = reason.removeprefix("Value error, ")
                message = f"reaches {text}, which {dotted(path)} does not allow: {reason}"
            except PlannerError as error:
                message = f"reaches {text}: {str(error).splitlines()[0]}"
            else:
                continue
            problem = study.problem(("uncertain", uncertain.name), message, hint)
            problems[problem] = None
    raise_all(list(problems))


def far_ends(
    study: language.Study, scenarios: Mapping[str, Stated], inputs: UncertainInputs
) -> dict[str, str]:
    """Return, by input, a warning where P10 or P90 lies outside its field's plausible range."""
    warnings: dict[str, str] = {}
    for uncertain in inputs.entries:
        # An error of the throughput model has no field, and a name no range.
        is_of_model = uncertain.throughput_of is not None
        if is_of_model or not is_numeric(uncertain.distribution):
            continue
        p10_and_p90 = np.array([0.1, 0.9])
        draws = quantile(uncertain.distribution, p10_and_p90).tolist()
        bases = enumerate(scenarios.values())
        for draw, (place, base) in itertools.product(draws, bases):
            for path in uncertain.targets[place]:
                limits = plausible_range(base.scenario, path)
                if limits is None:
                    continue
                stated_value = value_at(base.dump, path)
                value = new_value(uncertain, stated_value, draw)
                catalog = base.scenario.load_catalog()
                warning = implausibility(path, value, limits, catalog)
                if warning:
                    problem = study.problem(("uncertain", uncertain.name), *warning)
                    warnings[uncertain.name] = str(problem)
    return warnings


def _throughput_errors(scenarios: Mapping[str, Stated]) -> list[UncertainInput]:
    """Return the throughput model's error as inputs, for each pair of accelerator and model in use.

    A pair's error is its own, and where its model or its accelerator was never measured under the engine also that of
    all pairs of the same model, or of the same accelerator: a factor they share, so that they are wrong together.
    """
    spreads: dict[tuple[str, str, str], tuple[float, float]] = {}
    for base in scenarios.values():
        for of_pair, uncertainty in _pair_errors(base.scenario):
            accelerator, engine, model = of_pair
            of_model = ("", engine, model)
            of_part = (accelerator, engine, "")
            # Only a pair lags: software may be missing for it, not for a model or a part as such.
            for key, sigma, lag in (
                (of_pair, uncertainty.pair, uncertainty.lag),
                (of_model, uncertainty.model, 0.0),
                (of_part, uncertainty.part, 0.0),
            ):
                # Clusters of one pair may differ in layout: the least certain one counts.
                widest_sigma, widest_lag = spreads.get(key, (0.0, 0.0))
                widest_sigma = max(widest_sigma, sigma)
                widest_lag = max(widest_lag, lag)
                spreads[key] = (widest_sigma, widest_lag)
    errors = []
    for key, (sigma, lag) in spreads.items():
        if sigma <= 0.0:
            continue
        error: Resolved = language.Lognormal(kind="lognormal", median=1.0, sigma=sigma)
        if lag:  # wider towards slow: software may be missing
            slow_deviation = np.hypot(sigma, lag)
            deviations = np.array([-slow_deviation, sigma])
            slow, fast = np.exp(_NORMAL_80 * deviations).tolist()
            error = language.Percentiles(kind="percentiles", p10=slow, p50=1.0, p90=fast, low=0.0)
        parts = filter(None, key)
        name = ".".join([ERROR_PREFIX, *parts])
        uncertain = UncertainInput(name=name, distribution=error, throughput_of=key)
        errors.append(uncertain)
    return errors


def _pair_errors(scenario: Scenario) -> Iterator[tuple[tuple[str, str, str], Uncertainty]]:
    """Yield each pair of accelerator and model in use, with its engine and the error of its throughput."""
    reuse = Reuse(scenario)
    services: Mapping[tuple[str, str], Service] = {}
    # A workload that nothing serves is reported where its plan is built.
    with contextlib.suppress(ScenarioError):
        services, _ = build_services(scenario, reuse, {})
    machines = scenario.machines.items()
    pairs = itertools.product(machines, scenario.workloads.items())
    for (cluster_name, cluster), (workload_name, workload) in pairs:
        service = services.get((cluster_name, workload_name))
        if service is not None:
            engine = service.spec.engine
            evidence = service.evidence
            uncertainty = evidence.uncertainty if evidence else None
        else:  # not served as stated: some replication's figures may let it
            options = engine_options(cluster, workload, reuse.catalog)
            # No figure lets an engine serve what it does not support.
            if not options:
                continue
            option = options[0]
            engine = option.engine
            shape = shape_of(workload.model, reuse.catalog)
            precision = str(option.precision)
            groups = groups_of(shape.measured_as, cluster.accelerator, engine, precision)
            is_mixture = shape.experts > 0
            uncertainty = reuse.calibration.uncertainty(groups, is_mixture)
        # Without public measurements of anything like it there is no error to state.
        if uncertainty is not None:
            pair = (cluster.accelerator, engine, workload.model)
            yield pair, uncertainty


def mixing_of(study: language.Study, names: list[str]) -> Floats | None:
    """Return the factor of the correlation matrix, or raise an error where no inputs can have it."""
    if not study.correlations:
        return None
    ranks = np.eye(len(names))
    problems: list[Problem] = []
    pairs: dict[tuple[int, int], int] = {}
    for number, entry in enumerate(study.correlations):
        location: KeyPath = ("correlations", number)
        unknown = [name for name in entry.between if name not in names]
        for name in unknown:
            hint = nearest(name, names) or f"there are {choices(names)}"
            message = f"{name!r} is not an input"
            problems.append(study.problem(location, message, hint))
        if unknown:
            continue
        # Either order of the two names is the same pair.
        row, column = sorted(names.index(name) for name in entry.between)
        if row == column:
            message = f"{entry.between[0]} is correlated with itself"
            problems.append(study.problem(location, message))
        elif (row, column) in pairs:
            message = f"the pair is already at correlations[{pairs[row, column]}]"
            problems.append(study.problem(location, message))
        else:
            pairs[row, column] = number
            ranks[row, column] = entry.rank
            ranks[column, row] = entry.rank
    raise_all(problems)
    if distributions.is_valid(ranks):
        return distributions.factor(ranks)
    message = "no inputs can have all of these rank correlations at once"
    hint = "move some of them closer to zero"
    raise ScenarioError(study.problem(("correlations",), message, hint))
