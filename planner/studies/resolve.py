"""Resolving a study's inputs: every path to its fields, every distribution to figures, all that is wrong at once."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Mapping

import numpy as np
from pydantic import ValidationError

from planner.catalog.physics import shape_of
from planner.errors import PlannerError, Problem, ScenarioError, raise_all
from planner.physics.coefficients import groups_of
from planner.plan.capacity import build_services, served_precision
from planner.plan.reuse import Reuse
from planner.plan.service import Service
from planner.scenario import study as language
from planner.scenario.consistency import check_scenario
from planner.scenario.plausible import far_off, mark_at
from planner.scenario.scenario import Scenario
from planner.studies import paths
from planner.studies.correlation import mixing_of
from planner.studies.distributions import TAIL, Resolved, is_numeric, is_smooth, quantile
from planner.studies.inputs import Input, Inputs, Stated, changed, new_value
from planner.validation import choices, nearest
from planner.yaml_io import KeyPath, dotted, parse_scalar

ERROR_PREFIX = "throughput_error"
_MOST_TRIED = 1000  # of a long list of names, its ends and some between: each takes a validation of the whole scenario


def resolve_inputs(study: language.Study, scenarios: Mapping[str, Stated]) -> Inputs:
    """Find every input's fields and distribution; raise one ScenarioError with all that is wrong."""
    problems: list[Problem] = []
    inputs: list[Input] = []
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
    return Inputs(entries=tuple(inputs), mixing=mixing)


def _resolve(
    study: language.Study, scenarios: Mapping[str, Stated], name: str, written: language.Distribution
) -> Input:
    """Resolve one input and try its extremes on every scenario."""
    where: KeyPath = ("uncertain", name)
    if name.split(".", maxsplit=1)[0] in paths.FIXED:
        raise ScenarioError(study.problem(where, f"a study cannot vary {name.split('.', maxsplit=1)[0]}"))
    targets = tuple(tuple(paths.reach(name, base.dump)) for base in scenarios.values())
    reached = [(base, path) for base, paths in zip(scenarios.values(), targets, strict=True) for path in paths]
    if not reached:
        hint = paths.why_unreachable(name, [base.dump for base in scenarios.values()])
        raise ScenarioError(study.problem(where, "no scenario of the study has this field", hint))
    for base, path in reached:
        before = paths.at(base.dump, path)
        if isinstance(before, dict | tuple):
            raise ScenarioError(study.problem(where, f"{dotted(path)} is a section, not a value"))
        if written.times_stated and (isinstance(before, bool) or not isinstance(before, int | float)):
            message = f"{dotted(path)} of {base.name} states no number for times_stated to multiply"
            raise ScenarioError(study.problem(where, message))
    distribution = _distribution(study, written, where, reached)
    made = Input(name=name, distribution=distribution, times_stated=written.times_stated, targets=targets)
    _try_extremes(study, scenarios, made)
    return made


def _distribution(
    study: language.Study, written: language.Distribution, where: KeyPath, reached: list[tuple[Stated, KeyPath]]
) -> Resolved:
    """Turn priors into percentiles and files into values; bound percentiles by the range of their field."""
    if isinstance(written, language.Empirical):
        return _empirical(study, written, where)
    if isinstance(written, language.Prior):
        written = _prior(study, written, where, reached[0][0].scenario)
    if isinstance(written, language.Percentiles):
        low, high = paths.bounds(reached[0][1]) if not written.times_stated else (0.0, None)
        low, high = (low if written.low is None else written.low), (high if written.high is None else written.high)
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
    return written


def _prior(study: language.Study, written: language.Prior, where: KeyPath, scenario: Scenario) -> language.Percentiles:
    """Look a prior up in the catalogue of the first scenario that has the field."""
    catalog = scenario.load_catalog()
    if written.prior not in catalog.priors:
        hint = nearest(written.prior, catalog.priors) or f"the catalogue has {choices(catalog.priors)}"
        raise ScenarioError(study.problem((*where, "prior"), f"unknown prior {written.prior!r}", hint))
    prior = catalog.priors[written.prior]
    scale = prior.base if written.times_stated else 1.0
    figures = f"{prior.low:g}, {prior.base:g}, {prior.high:g}"
    if not prior.low < prior.base < prior.high or scale == 0.0:
        message = f"prior {written.prior} ({figures}) has no spread on both sides of its base"
        raise ScenarioError(study.problem((*where, "prior"), message, "state a distribution of your own"))
    return language.Percentiles(
        kind="percentiles",
        p10=prior.low / scale,
        p50=prior.base / scale,
        p90=prior.high / scale,
        low=written.low,
        high=written.high,
        times_stated=written.times_stated,
    )


def _empirical(study: language.Study, written: language.Empirical, where: KeyPath) -> language.Discrete:
    """Read observed values; each is as likely as the others."""
    path, content = study.document.file_at((*where, "file"), written.file)
    values: list[float] = []
    problems: list[Problem] = []
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        if written.column not in (reader.fieldnames or ()):
            hint = nearest(written.column, reader.fieldnames or ()) or f"it has {choices(reader.fieldnames or ())}"
            raise ScenarioError(Problem(file=str(path), line=1, message=f"no column {written.column!r}", hint=hint))
        for row in reader:
            value = parse_scalar((row[written.column] or "").strip())
            if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
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
    return language.Discrete(kind="discrete", values=tuple(sorted(values)), times_stated=written.times_stated)


def _try_extremes(study: language.Study, scenarios: Mapping[str, Stated], made: Input) -> None:
    """Refuse a distribution whose ends (or, of a list, whose values) its field would not accept."""
    distribution = made.distribution
    tried = quantile(distribution, np.array([TAIL, 1.0 - TAIL]))
    if isinstance(distribution, language.Discrete):
        last = len(distribution.values) - 1
        tried = np.arange(last + 1.0) if last < _MOST_TRIED else np.linspace(0, last, _MOST_TRIED).round()
        if is_numeric(distribution):
            known = np.array(distribution.values, dtype=np.float64)
            tried = np.array([known.min(), known.max()])  # a field's range lets through all between two that it does
    alone = Inputs(entries=(made,), mixing=None)
    problems: dict[Problem, None] = {}
    for which, base in enumerate(scenarios.values()):
        for drawn in tried if made.targets[which] else ():
            path = made.targets[which][0]
            value = new_value(made, paths.at(base.dump, path), float(drawn))
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            try:
                scenario, _ = changed(base, which, alone, np.array([drawn]))
                if not is_numeric(distribution):  # a name or a date may contradict another field
                    check_scenario(scenario)
            except ValidationError as error:
                reason = error.errors(include_url=False)[0]["msg"].replace("Input should be", "must be")
                message = (
                    f"reaches {shown}, which {dotted(path)} does not allow: {reason.removeprefix('Value error, ')}"
                )
            except PlannerError as error:
                message = f"reaches {shown}: {str(error).splitlines()[0]}"
            else:
                continue
            hint = None if isinstance(distribution, language.Discrete) else "cut it with low and high, or narrow it"
            problems[study.problem(("uncertain", made.name), message, hint)] = None
    if problems:
        raise ScenarioError(list(problems))


def far_ends(study: language.Study, scenarios: Mapping[str, Stated], inputs: Inputs) -> dict[str, str]:
    """Return, by input, a warning where one draw in ten lies beyond what its field plausibly holds."""
    warnings: dict[str, str] = {}
    for uncertain in inputs.entries:
        numeric = uncertain.throughput_of is None and is_numeric(uncertain.distribution)
        for drawn in quantile(uncertain.distribution, np.array([0.1, 0.9])) if numeric else ():
            for base, targets in zip(scenarios.values(), uncertain.targets, strict=True):
                for path in targets:
                    mark, value = (
                        mark_at(base.scenario, path),
                        new_value(uncertain, paths.at(base.dump, path), float(drawn)),
                    )
                    said = mark and far_off(path, value, mark, base.scenario.load_catalog())
                    if said:
                        warnings[uncertain.name] = str(study.problem(("uncertain", uncertain.name), *said))
    return warnings


def _throughput_errors(scenarios: Mapping[str, Stated]) -> list[Input]:
    """Return the throughput model's error for each pair of accelerator and model that the scenarios use.

    A pair's error is its own, and where its model or its accelerator was never measured under the engine also that of
    all pairs of the same model, or of the same accelerator: a factor they share, so that they are wrong together.
    """
    spreads: dict[tuple[str, str, str], float] = {}
    for base in scenarios.values():
        reuse = Reuse(base.scenario)
        services: Mapping[tuple[str, str], Service] = {}
        with contextlib.suppress(ScenarioError):  # a workload that nothing serves is told where its plan is built
            services, _ = build_services(base.scenario, reuse, {})
        for cluster_name, cluster in base.scenario.clusters.items():
            for workload_name, workload in base.scenario.workloads.items():
                if service := services.get((cluster_name, workload_name)):
                    doubt = service.doubt
                else:  # not served as stated: some replication's figures may let it
                    shape = shape_of(workload.model, reuse.catalog)
                    precision = served_precision(cluster, workload, reuse.catalog)
                    groups = groups_of(shape.measured_as, cluster.accelerator, cluster.engine, precision)
                    doubt = reuse.calibration.doubt(groups, shape.experts > 0)
                if doubt is None:
                    continue
                for key, sigma in (
                    ((cluster.accelerator, cluster.engine, workload.model), doubt.pair),
                    (("", cluster.engine, workload.model), doubt.model),
                    ((cluster.accelerator, cluster.engine, ""), doubt.part),
                ):
                    spreads[key] = max(spreads.get(key, 0.0), sigma)
    return [
        Input(
            name=".".join([ERROR_PREFIX, *filter(None, key)]),
            distribution=language.Lognormal(kind="lognormal", median=1.0, sigma=sigma),
            throughput_of=key,
        )
        for key, sigma in spreads.items()
        if sigma > 0.0
    ]
