"""Parameter sweeps: every combination of the values given for some keys of a scenario."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from planner.errors import Problem, ScenarioError, raise_all, refuse
from planner.plan.build import build_plan
from planner.plan.contradictions import all_warnings
from planner.plan.plan import Plan
from planner.records import record
from planner.run.replications import figures_of
from planner.run.simulate import simulate_plan
from planner.scenario.loading import Source, load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.engines import Crew
from planner.studies.work import LinesWork, scenario_identity
from planner.yaml_io import parse_scalar

MOST_POINTS = 1_000_000
"""Points of a sweep, and so values of one axis: beyond them it would not end, and its list fill the memory."""
FORM = "path=start:stop:step or path=a,b,c"
"""Of ``--vary``, for messages."""


class SweepAxis(NamedTuple):
    """One key and the values it takes."""

    path: str
    values: tuple[str, ...]
    """As written, so that ``--set`` reads them."""


def axis_text(path: str, values: Iterable[object]) -> str:
    """Return a key and its Python values in the form that ``--vary`` takes."""
    if isinstance(values, str):
        return f"{path}={values}"
    texts = [_written(value) for value in values]
    return f"{path}={','.join(texts)}"


def _written(value: object) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, str):
        is_text = parse_scalar(value) == value
        # Quoted only where it would be read as something else than text.
        is_plain = is_text and not set(value) & set(",:[]{}'\"#&*")
        if is_plain:
            return value
        return json.dumps(value)
    if isinstance(value, bool | list | tuple | dict | None):
        return json.dumps(value)
    return str(value)


def parse_axis(text: str) -> SweepAxis:
    """Read one ``--vary``: a range with its end included, or a list."""
    path, equals, values = text.partition("=")
    path = path.strip()
    values = values.strip()
    if not equals or not path or not values:
        raise _refused(text, f"is not of the form {FORM}")
    # Times such as "10:30:00" are quoted, and a list or a mapping may hold colons.
    is_quoted = values.startswith(("[", "{", '"', "'"))
    if values.count(":") == 2 and not is_quoted:
        numbers = _range_values(text, values)
        return SweepAxis(path=path, values=numbers)
    listed = _listed_values(values)
    if not all(listed):
        raise _refused(text, "has an empty value")
    if len(set(listed)) != len(listed):
        raise _refused(text, "names a value twice")
    return SweepAxis(path=path, values=listed)


def _range_values(text: str, values: str) -> tuple[str, ...]:
    """Return the values of a range start:stop:step, its end included, in exact decimals."""
    try:
        # Decimals: 0.1 added ten times is 1, so that a range ends where it says.
        texts = values.split(":")
        bounds = [Decimal(text.strip()) for text in texts]
    except InvalidOperation:
        message = "has a range whose start, stop and step are not all numbers"
        raise _refused(text, message) from None
    if not all(bound.is_finite() for bound in bounds):
        raise _refused(text, "has an infinite range")
    start, stop, step = bounds
    width = stop - start
    if step == 0 or width * step < 0:
        raise _refused(text, "has a range whose step never reaches its stop")
    count = int(width / step) + 1
    # Refused before they are listed, which alone would take all memory.
    if count > MOST_POINTS:
        raise _refused(
            text, f"has {count:,} values; a sweep of that many points would take too long"
        )
    return tuple(f"{start + step * place:f}" for place in range(count))


def _listed_values(values: str) -> tuple[str, ...]:
    """Return the values of a list, split at commas that are outside brackets."""
    parts = [""]
    depth = 0
    for sign in values:
        # A list or a mapping may be one value, commas within it and all.
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return tuple(part.strip() for part in parts)


def _refused(text: str, message: str) -> ScenarioError:
    hint = "for example clusters.h200.nodes=0:128:16"
    message = f"--vary {text!r} {message}"
    return ScenarioError(Problem(message=message, hint=hint))


def parse_axes(texts: Sequence[str]) -> tuple[SweepAxis, ...]:
    """Read every ``--vary``."""
    axes = tuple(parse_axis(text) for text in texts)
    paths = Counter(axis.path for axis in axes)
    for path, count in paths.items():
        if count > 1:
            message = f"{path} is varied twice"
            hint = "list all its values in one --vary"
            raise ScenarioError(Problem(message=message, hint=hint))
    points = count_points(axes)
    if points > MOST_POINTS:
        sizes = " × ".join(f"{len(axis.values):,}" for axis in axes)
        message = f"the sweep has {sizes} = {points:,} points, and {MOST_POINTS:,} are the most"
        raise ScenarioError(Problem(message=message, hint="take larger steps"))
    return axes


def count_points(axes: Sequence[SweepAxis]) -> int:
    """Return the number of combinations."""
    return math.prod(len(axis.values) for axis in axes)


def number_of(value: str) -> float | int | None:
    """Return an axis value as a number, or None where it is not one."""
    number = parse_scalar(value)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return number if is_number else None


@record
class SweepPoint:
    """One combination and its result."""

    values: tuple[str, ...]
    """One for each axis."""
    figures: dict[str, float | None] | None
    """Measures; None where the combination is not a scenario."""
    problem: str
    """Why not."""
    warnings: tuple[str, ...] = ()
    """What is hardly meant about it."""


def check_values(scenario: Source, axes: Sequence[SweepAxis]) -> None:
    """Raise an error for an unknown key or an invalid value, before any run."""
    problems: list[Problem] = []
    for axis in axes:
        # Both ends and some between: a field's range lets through all that lies between two of them.
        ends = (axis.values[0], axis.values[-1])
        values_between = axis.values[1:51]
        for value in dict.fromkeys((*ends, *values_between)):
            try:
                load_scenario(scenario, [f"{axis.path}={value}"])
            except ScenarioError as error:
                problems += error.problems
    raise_all(list(dict.fromkeys(problems)))


def check_warnings(scenario: Source, axes: Sequence[SweepAxis]) -> None:
    """Raise an error for the first combination with a warning, before any run."""
    base = load_scenario(scenario)
    grid = [axis.values for axis in axes]
    for values in itertools.product(*grid):
        try:
            loaded, plan = _plan(base, axes, values)
        except ScenarioError:  # a row of the answer says why it is no scenario
            continue
        refuse(all_warnings(loaded, plan), strict=True)


def sweep(
    scenario: Source,
    axes: Sequence[SweepAxis],
    seed: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    work: SweepWork | None = None,
    workers: int = 1,
) -> tuple[SweepPoint, ...]:
    """Run every combination under one seed, the last axis moving fastest; ``work`` stores points as they finish.

    The scenario's files are read once, before the first point: what is edited meanwhile changes none of them.
    """
    base = load_scenario(scenario)
    points = {} if work is None else dict(work.points)
    axis_values = [axis.values for axis in axes]
    combinations = list(itertools.product(*axis_values))
    missing = [(values,) for values in combinations if values not in points]
    grid = (base, tuple(axes), seed)
    # No more workers than points; one even where nothing is missing.
    count = min(workers, max(len(missing), 1))
    with contextlib.closing(Crew(tuple, grid, count)) as crew:
        for point in crew.map(_point, missing):
            progress(len(points))
            points[point.values] = point
            if work is not None:
                work.write(dataclasses.asdict(point))
    return tuple(points[values] for values in combinations)


def _point(
    grid: tuple[Scenario, tuple[SweepAxis, ...], int | None], values: tuple[str, ...]
) -> SweepPoint:
    """Run one combination and return its point."""
    base, axes, seed = grid
    try:
        loaded, plan = _plan(base, axes, values)
        result = simulate_plan(loaded, plan, plan.seed if seed is None else seed)
    except ScenarioError as error:
        # A combination that is no scenario is a row of the answer, which says why.
        problem = str(error).splitlines()[0]
        return SweepPoint(values=values, figures=None, problem=problem)
    warnings = tuple(all_warnings(loaded, plan))
    figures = figures_of(result)
    return SweepPoint(values=values, figures=figures, problem="", warnings=warnings)


class SweepWork(LinesWork):
    """The folder of a sweep: one line per finished point, until all are finished."""

    def __init__(
        self,
        folder: Path,
        scenario: Scenario,
        axes: Sequence[SweepAxis],
        overrides: Sequence[str],
        seed: int,
    ) -> None:
        """Set the folder; nothing is read or written yet."""
        identity = {
            **scenario_identity({scenario.name: scenario}),
            "vary": {axis.path: list(axis.values) for axis in axes},
            "overrides": list(overrides),
            "seed": seed,
        }
        super().__init__(folder, "sweep", identity)
        self.points: dict[tuple[str, ...], SweepPoint] = {}
        """Points of an interrupted sweep, by their values."""

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and read the points of an interrupted sweep."""
        super().open(resume=resume, restart=restart)
        for line in self.lines:
            # JSON has lists for tuples.
            values = tuple(line["values"])
            warnings = tuple(line["warnings"])
            stored = {**line, "values": values, "warnings": warnings}
            self.points[values] = SweepPoint(**stored)


def warnings_of_points(points: Sequence[SweepPoint]) -> list[str]:
    """Return the distinct warnings of all points, each with the number of points concerned."""
    counts: Counter[str] = Counter()
    for point in points:
        counts.update(point.warnings)
    combinations = f"{len(points):,} combinations"
    return [f"{warning} ({count:,} of {combinations})" for warning, count in counts.items()]


def _plan(
    base: Scenario, axes: Sequence[SweepAxis], values: tuple[str, ...]
) -> tuple[Scenario, Plan]:
    """Return the scenario and plan of one combination."""
    pairs = zip(axes, values, strict=True)
    overrides = [f"{axis.path}={value}" for axis, value in pairs]
    loaded = load_scenario(base, overrides)
    return loaded, build_plan(loaded)
