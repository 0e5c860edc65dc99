"""Uncertain inputs: their distributions, the fields they set, and a scenario with drawn values.

Dotted paths say which fields an input reaches; resolving a study finds every path's fields and every distribution's
figures, and all that is wrong at once.
"""

from __future__ import annotations

import contextlib
import csv
import fnmatch
import functools
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from planner.arrays import Floats
from planner.catalog.load import shape_of
from planner.errors import PlannerError, Problem, ScenarioError, raise_all
from planner.physics.coefficients import groups_of
from planner.plan.capacity import Service, build_services, options
from planner.plan.plan import Reuse
from planner.scenario import study as language
from planner.scenario.consistency import check_scenario, far_off, mark_at
from planner.scenario.loading import SHARED, with_catalog
from planner.scenario.scenario import Scenario
from planner.studies import distributions
from planner.studies.distributions import TAIL, Resolved, is_numeric, is_smooth, quantile, value_of
from planner.validation import choices, frozen, nearest
from planner.yaml_io import KeyPath, at, dotted, parse_scalar, replaced

FIXED = (*SHARED, "catalog", "calibration")
"""What a study cannot vary: the months that scenarios share, and the catalogue and the calibration that compiled parts
are kept by."""
ERROR_PREFIX = "throughput_error"
_NORMAL_80 = 1.2815515655446004  # a normal variable lies within this many standard deviations eight times in ten
_MOST_TRIED = 1000  # of a long list of names, its ends and some between: each takes a validation of the whole scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertainInput:
    """One uncertain input."""

    name: str
    distribution: Resolved
    times_stated: bool = False
    targets: tuple[tuple[KeyPath, ...], ...] = ()
    """Fields it sets, by scenario."""
    throughput_of: tuple[str, str, str] | None = None
    """Accelerator, engine and model whose modelled throughput it multiplies, for model error; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        return tuple(drawn.name for drawn in self.entries)

    def drawn(self, points: Floats) -> Floats:
        """Return the inputs' values at points of the unit cube, both of shape (points, inputs)."""
        if self.mixing is not None:
            points = distributions.correlate(points, self.mixing)
        columns = [
            quantile(uncertain.distribution, points[:, place])
            for place, uncertain in enumerate(self.entries)
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))


@dataclass(frozen=True, slots=True, kw_only=True)
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
    return Stated(
        name=name, scenario=scenario, content=content, dump=scenario.model_dump(by_alias=True)
    )


def changed(
    base: Stated, which: int, inputs: UncertainInputs, values: Floats
) -> tuple[Scenario, dict[tuple[str, str, str], float]]:
    """Return a scenario with every input's value set, and the throughput factors, which are not scenario fields."""
    content = base.content
    factors: dict[tuple[str, str, str], float] = {}
    for uncertain, drawn in zip(inputs.entries, values, strict=True):
        if uncertain.throughput_of is not None:
            factors[uncertain.throughput_of] = float(drawn)
            continue
        for path in uncertain.targets[which]:
            content = replaced(
                content, path, new_value(uncertain, at(base.dump, path), float(drawn))
            )
    scenario = Scenario.model_validate(content)
    scenario._document = base.scenario.document
    return with_catalog(scenario), factors


def new_value(uncertain: UncertainInput, before: Any, drawn: float) -> Any:
    """Return a field's value for a draw; whole numbers stay whole."""
    value = value_of(uncertain.distribution, drawn)
    if uncertain.times_stated and isinstance(value, int | float):
        value = before * value
    if type(before) is int and isinstance(value, float):
        return round(value)
    return value


def reach(pattern: str, stated: dict[str, Any]) -> list[KeyPath]:
    """Return the fields of a dumped scenario that match a dotted path, in which ``*`` matches any part of a name.

    ``{a,b}`` stands for either name, and what is stated by year for all its years.
    """
    if (choice := re.search(r"\{([^{}]*)\}", pattern)) is not None:
        before = pattern[: choice.start()]
        after = pattern[choice.end() :]
        return [
            path
            for name in choice[1].split(",")
            for path in reach(f"{before}{name.strip()}{after}", stated)
        ]
    paths: list[KeyPath] = []
    for path, held in _walk(tuple(pattern.split(".")), stated, ()):
        by_year = isinstance(held, dict) and held and all(str(key).isdecimal() for key in held)
        paths += [(*path, year) for year in held] if by_year else [path]
    return paths


def _walk(rest: tuple[str, ...], content: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not rest:
        yield path, content
        return
    if isinstance(content, dict):
        for key in fnmatch.filter(content, rest[0]):
            yield from _walk(rest[1:], content[key], (*path, key))
    elif isinstance(content, tuple | list) and rest[0].isdigit() and int(rest[0]) < len(content):
        yield from _walk(rest[1:], content[int(rest[0])], (*path, int(rest[0])))


def bounds(path: KeyPath) -> tuple[float | None, float | None]:
    """Return the lowest and highest number a scenario's field allows, None where there is no limit."""
    schema = _SCENARIO_SCHEMA()
    fields = list(_alternatives(schema, schema["$defs"]))
    for key in path:
        below = (
            node["properties"].get(key)
            if "properties" in node
            else node.get("additionalProperties") or node.get("items")
            for node in fields
        )
        fields = [
            part
            for node in below
            if isinstance(node, dict)
            for part in _alternatives(node, schema["$defs"])
        ]
    low = [
        float(node[side])
        for node in fields
        for side in ("minimum", "exclusiveMinimum")
        if side in node
    ]
    high = [
        float(node[side])
        for node in fields
        for side in ("maximum", "exclusiveMaximum")
        if side in node
    ]
    return max(low, default=None), min(high, default=None)


_SCENARIO_SCHEMA = functools.cache(Scenario.model_json_schema)


def _alternatives(node: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a JSON schema and all its alternatives."""
    yield node
    named = [definitions[node["$ref"].rpartition("/")[2]]] if "$ref" in node else []
    for part in (*named, *node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("allOf", ())):
        yield from _alternatives(part, definitions)


def resolve_inputs(study: language.Study, scenarios: Mapping[str, Stated]) -> UncertainInputs:
    """Return every input with its fields and distribution; raise one ScenarioError with all problems."""
    problems: list[Problem] = []
    inputs: list[UncertainInput] = []
    for name, written in study.uncertain.items():
        try:
            inputs.append(_resolve(study, scenarios, name, written))
        except ScenarioError as error:
            problems += error.problems
    if study.throughput_error:
        inputs += _throughput_errors(scenarios)
    mixing = None
    try:
        mixing = mixing_of(study, [entry.name for entry in inputs])
    except ScenarioError as error:
        problems += error.problems
    raise_all(problems)
    return UncertainInputs(entries=tuple(inputs), mixing=mixing)


def _resolve(
    study: language.Study,
    scenarios: Mapping[str, Stated],
    name: str,
    written: language.Distribution,
) -> UncertainInput:
    """Return one input with its fields, after checking its extremes on every scenario."""
    where: KeyPath = ("uncertain", name)
    if name.split(".", maxsplit=1)[0] in FIXED:
        raise ScenarioError(
            study.problem(where, f"a study cannot vary {name.split('.', maxsplit=1)[0]}")
        )
    targets = tuple(tuple(reach(name, base.dump)) for base in scenarios.values())
    reached = [
        (base, path)
        for base, paths in zip(scenarios.values(), targets, strict=True)
        for path in paths
    ]
    if not reached:
        hint = "write paths as for --set"
        parts = name.split(".")
        for depth in range(len(parts), 0, -1):  # the nearest key at the level where it goes astray
            answer = (
                _walk(tuple(parts[: depth - 1]), base.dump, ()) for base in scenarios.values()
            )
            known = {
                str(key)
                for held in answer
                for _, content in held
                if isinstance(content, dict)
                for key in content
            }
            if known:
                hint = nearest(parts[depth - 1], known) or f"there are {choices(known)}"
                break
        raise ScenarioError(study.problem(where, "no scenario of the study has this field", hint))
    for base, path in reached:
        before = at(base.dump, path)
        if isinstance(before, dict | tuple):
            raise ScenarioError(study.problem(where, f"{dotted(path)} is a section, not a value"))
        if written.times_stated and (
            isinstance(before, bool) or not isinstance(before, int | float)
        ):
            message = f"{dotted(path)} of {base.name} states no number for times_stated to multiply"
            raise ScenarioError(study.problem(where, message))
    if isinstance(written, language.Empirical):
        written = _empirical(study, written, where)
    if isinstance(written, language.Prior):
        written = _prior(study, written, where, reached[0][0].scenario)
    if isinstance(written, language.Percentiles):  # bounded by the range of their field
        low, high = bounds(reached[0][1]) if not written.times_stated else (0.0, None)
        low = low if written.low is None else written.low
        high = high if written.high is None else written.high
        if low is not None and low >= written.p10 and written.low is None:
            low = None  # the field's own limit says what is wrong better than a curve that cannot be drawn
        if high is not None and high <= written.p90 and written.high is None:
            high = None
        written = written.model_copy(update={"low": low, "high": high})
        if not is_smooth(written):
            message = (
                f"no smooth distribution has percentiles {written.p10:g}, {written.p50:g}, {written.p90:g} "
                f"between {'-∞' if low is None else f'{low:g}'} and {'∞' if high is None else f'{high:g}'}"
            )
            raise ScenarioError(study.problem(where, message, "try kind: triangular or pert"))
    made = UncertainInput(
        name=name, distribution=written, times_stated=written.times_stated, targets=targets
    )
    _try_extremes(study, scenarios, made)
    return made


def _prior(
    study: language.Study, written: language.Prior, where: KeyPath, scenario: Scenario
) -> language.Percentiles:
    """Return a prior from the catalogue of the first scenario that has the field."""
    catalog = scenario.load_catalog()
    if written.prior not in catalog.priors:
        hint = (
            nearest(written.prior, catalog.priors) or f"the catalogue has {choices(catalog.priors)}"
        )
        raise ScenarioError(
            study.problem((*where, "prior"), f"unknown prior {written.prior!r}", hint)
        )
    prior = catalog.priors[written.prior]
    scale = prior.base if written.times_stated else 1.0
    figures = f"{prior.low:g}, {prior.base:g}, {prior.high:g}"
    if not prior.low < prior.base < prior.high or scale == 0.0:
        message = f"prior {written.prior} ({figures}) has no spread on both sides of its base"
        raise ScenarioError(
            study.problem((*where, "prior"), message, "state a distribution of your own")
        )
    p10, p50, p90 = (figure / scale for figure in (prior.low, prior.base, prior.high))
    low = written.low
    high = written.high
    times = written.times_stated
    return language.Percentiles(
        kind="percentiles", p10=p10, p50=p50, p90=p90, low=low, high=high, times_stated=times
    )


def _empirical(
    study: language.Study, written: language.Empirical, where: KeyPath
) -> language.Discrete:
    """Return the observed values of a file, which are equally likely."""
    path, content = study.document.file_at((*where, "file"), written.file)
    values: list[float] = []
    problems: list[Problem] = []
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if written.column not in (reader.fieldnames or ()):
            hint = (
                nearest(written.column, reader.fieldnames or ())
                or f"it has {choices(reader.fieldnames or ())}"
            )
            raise ScenarioError(
                Problem(file=str(path), line=1, message=f"no column {written.column!r}", hint=hint)
            )
        for row in reader:
            value = parse_scalar((row[written.column] or "").strip())
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not np.isfinite(value)
            ):
                message = f"{written.column} must be a finite number, not {row[written.column]!r}"
                problems.append(Problem(file=str(path), line=reader.line_num, message=message))
            else:
                values.append(float(value))
    except (UnicodeDecodeError, csv.Error) as error:
        problems.append(Problem(file=str(path), message=f"cannot be read as CSV: {error}"))
    if not problems and not 2 <= len(values) <= language.MOST_VALUES:
        message = f"needs 2 to {language.MOST_VALUES:,} values, has {len(values):,}"
        problems.append(Problem(file=str(path), message=message))
    raise_all(problems[:20])
    return language.Discrete(
        kind="discrete", values=tuple(sorted(values)), times_stated=written.times_stated
    )


def _try_extremes(
    study: language.Study, scenarios: Mapping[str, Stated], made: UncertainInput
) -> None:
    """Raise an error for a distribution whose ends (or listed values) its field would reject."""
    distribution = made.distribution
    tried = quantile(distribution, np.array([TAIL, 1.0 - TAIL]))
    if isinstance(distribution, language.Discrete):
        last = len(distribution.values) - 1
        tried = (
            np.arange(last + 1.0)
            if last < _MOST_TRIED
            else np.linspace(0, last, _MOST_TRIED).round()
        )
        if is_numeric(distribution):
            known = np.array(distribution.values, dtype=np.float64)
            tried = np.array(
                [known.min(), known.max()]
            )  # a field's range lets through all between two that it does
    alone = UncertainInputs(entries=(made,), mixing=None)
    problems: dict[Problem, None] = {}
    for which, base in enumerate(scenarios.values()):
        for drawn in tried if made.targets[which] else ():
            path = made.targets[which][0]
            value = new_value(made, at(base.dump, path), float(drawn))
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            try:
                scenario, _ = changed(base, which, alone, np.array([drawn]))
                if not is_numeric(distribution):  # a name or a date may contradict another field
                    check_scenario(scenario)
            except ValidationError as error:
                reason = error.errors(include_url=False)[0]["msg"].replace(
                    "Input should be", "must be"
                )
                reason = reason.removeprefix("Value error, ")
                message = f"reaches {shown}, which {dotted(path)} does not allow: {reason}"
            except PlannerError as error:
                message = f"reaches {shown}: {str(error).splitlines()[0]}"
            else:
                continue
            hint = (
                None
                if isinstance(distribution, language.Discrete)
                else "cut it with low and high, or narrow it"
            )
            problems[study.problem(("uncertain", made.name), message, hint)] = None
    if problems:
        raise ScenarioError(list(problems))


def far_ends(
    study: language.Study, scenarios: Mapping[str, Stated], inputs: UncertainInputs
) -> dict[str, str]:
    """Return, by input, a warning where P10 or P90 lies outside its field's plausible range."""
    warnings: dict[str, str] = {}
    for uncertain in inputs.entries:
        numeric = uncertain.throughput_of is None and is_numeric(uncertain.distribution)
        for drawn in quantile(uncertain.distribution, np.array([0.1, 0.9])) if numeric else ():
            for base, targets in zip(scenarios.values(), uncertain.targets, strict=True):
                for path in targets:
                    mark = mark_at(base.scenario, path)
                    value = new_value(uncertain, at(base.dump, path), float(drawn))
                    if mark and (said := far_off(path, value, mark, base.scenario.load_catalog())):
                        warnings[uncertain.name] = str(
                            study.problem(("uncertain", uncertain.name), *said)
                        )
    return warnings


def _throughput_errors(scenarios: Mapping[str, Stated]) -> list[UncertainInput]:
    """Return the throughput model's error as inputs, for each pair of accelerator and model in use.

    A pair's error is its own, and where its model or its accelerator was never measured under the engine also that of
    all pairs of the same model, or of the same accelerator: a factor they share, so that they are wrong together.
    """
    spreads: dict[tuple[str, str, str], tuple[float, float]] = {}
    for base in scenarios.values():
        reuse = Reuse(base.scenario)
        services: Mapping[tuple[str, str], Service] = {}
        with contextlib.suppress(
            ScenarioError
        ):  # a workload that nothing serves is told where its plan is built
            services, _ = build_services(base.scenario, reuse, {})
        for cluster_name, cluster in base.scenario.machines.items():
            for workload_name, workload in base.scenario.workloads.items():
                first = options(cluster, workload, reuse.catalog)[0]
                engine = first.engine
                if service := services.get((cluster_name, workload_name)):
                    doubt = service.doubt
                    engine = service.spec.engine
                else:  # not served as stated: some replication's figures may let it
                    shape = shape_of(workload.model, reuse.catalog)
                    groups = groups_of(
                        shape.measured_as, cluster.accelerator, engine, str(first.precision)
                    )
                    doubt = reuse.calibration.doubt(groups, shape.experts > 0)
                if doubt is None:
                    continue
                for key, sigma, lag in (
                    ((cluster.accelerator, engine, workload.model), doubt.pair, doubt.lag),
                    (("", engine, workload.model), doubt.model, 0.0),
                    ((cluster.accelerator, engine, ""), doubt.part, 0.0),
                ):
                    before = spreads.get(key, (0.0, 0.0))
                    spreads[key] = max(before[0], sigma), max(before[1], lag)
    errors = []
    for key, (sigma, lag) in spreads.items():
        if sigma <= 0.0:
            continue
        error: Resolved = language.Lognormal(kind="lognormal", median=1.0, sigma=sigma)
        if lag:  # wider towards slow: software may be missing
            slow, fast = np.exp(_NORMAL_80 * np.array([-np.hypot(sigma, lag), sigma])).tolist()
            error = language.Percentiles(kind="percentiles", p10=slow, p50=1.0, p90=fast, low=0.0)
        name = ".".join([ERROR_PREFIX, *filter(None, key)])
        errors.append(UncertainInput(name=name, distribution=error, throughput_of=key))
    return errors


def mixing_of(study: language.Study, names: list[str]) -> Floats | None:
    """Return the factor of the correlation matrix, or raise an error with the nearest valid one."""
    if not study.correlations:
        return None
    ranks = np.eye(len(names))
    problems: list[Problem] = []
    pairs: dict[tuple[int, int], int] = {}
    for number, entry in enumerate(study.correlations):
        where: KeyPath = ("correlations", number)
        unknown = [name for name in entry.between if name not in names]
        for name in unknown:
            hint = nearest(name, names) or f"there are {choices(names)}"
            problems.append(study.problem(where, f"{name!r} is not an input", hint))
        if unknown:
            continue
        first, second = sorted(names.index(name) for name in entry.between)
        if first == second:
            problems.append(study.problem(where, f"{entry.between[0]} is correlated with itself"))
        elif (first, second) in pairs:
            problems.append(
                study.problem(where, f"the pair is already at correlations[{pairs[first, second]}]")
            )
        else:
            pairs[first, second] = number
            ranks[first, second] = ranks[second, first] = entry.rank
    raise_all(problems)
    if not distributions.is_valid(ranks):
        near = distributions.nearest_valid(ranks)
        for (first, second), number in pairs.items():
            asked = ranks[first, second]
            valid = near[first, second]
            if abs(valid - asked) > 2e-3:
                both = f"{names[first]} and {names[second]}"
                message = f"{both} cannot have rank correlation {asked:g} with the others"
                hint = f"the nearest valid matrix has {np.trunc(valid * 1000) / 1000:g}"
                problems.append(study.problem(("correlations", number), message, hint))
        raise ScenarioError(problems)
    return distributions.factor(ranks)
