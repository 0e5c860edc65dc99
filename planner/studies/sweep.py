"""Parameter sweeps: every combination of the values given for some keys of a scenario."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from planner.errors import Problem, ScenarioError, raise_all, refuse
from planner.plan.build import build_plan
from planner.plan.contradictions import hardly_meant
from planner.plan.plan import Plan
from planner.run.replications import figures_of
from planner.run.simulate import simulate_plan
from planner.scenario.loading import Source, load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.engines import Crew
from planner.studies.work import LinesWork, scenario_identity
from planner.yaml_io import parse_scalar

ASK_ABOVE = 10_000
"""Points above which a sweep must be confirmed."""
SECONDS_PER_POINT = 0.1
"""About what a point of a three-year scenario takes, for the question's sake."""
MOST_VALUES = 10_000_000
"""Values of one axis beyond which it is not even listed."""
FORM = "path=start:stop:step or path=a,b,c"


class SweepAxis(NamedTuple):
    """One key and the values it takes."""

    path: str
    values: tuple[str, ...]
    """As written, so that ``--set`` reads them."""


def axis_text(path: str, values: Iterable[object]) -> str:
    """Return a key and its Python values in the form that ``--vary`` takes."""
    if isinstance(values, str):
        return f"{path}={values}"
    return f"{path}=" + ",".join(_written(value) for value in values)


def _written(value: object) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, str):  # quoted only where it would be read as something else than text
        return (
            value
            if parse_scalar(value) == value and not set(value) & set(",:[]{}'\"#&*")
            else json.dumps(value)
        )
    if isinstance(value, bool | list | tuple | dict | None):
        return json.dumps(value)
    return str(value)


def parse_axis(text: str) -> SweepAxis:
    """Read one ``--vary``: a range with its end included, or a list."""
    path, equals, values = text.partition("=")
    path = path.strip()
    if not equals or not path or not values.strip():
        raise _refused(text, f"is not of the form {FORM}")
    if values.count(":") == 2 and not values.strip().startswith(("[", "{", '"', "'")):
        try:
            start, stop, step = (Decimal(bound.strip()) for bound in values.split(":"))
        except InvalidOperation:
            raise _refused(
                text, "has a range whose start, stop and step are not all numbers"
            ) from None
        if not all(number.is_finite() for number in (start, stop, step)):
            raise _refused(text, "has a range that is not finite")
        if step == 0 or (stop - start) * step < 0:
            raise _refused(text, "has a range whose step never reaches its stop")
        count = int((stop - start) / step) + 1  # in exact decimals
        if count > MOST_VALUES:
            raise _refused(text, f"has {count:,} values; a sweep of that many points would not end")
        return SweepAxis(path=path, values=tuple(f"{start + step * k:f}" for k in range(count)))
    parts = [""]
    depth = 0
    for sign in values:  # split at commas that are outside brackets
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    listed = tuple(part.strip() for part in parts)
    if not all(listed):
        raise _refused(text, "has an empty value")
    if len(set(listed)) != len(listed):
        raise _refused(text, "names a value twice")
    return SweepAxis(path=path, values=listed)


def _refused(text: str, message: str) -> ScenarioError:
    return ScenarioError(
        Problem(
            message=f"--vary {text!r} {message}", hint="for example clusters.h200.nodes=0:128:16"
        )
    )


def parse_axes(texts: Sequence[str]) -> tuple[SweepAxis, ...]:
    """Read every ``--vary``."""
    axes = tuple(parse_axis(text) for text in texts)
    paths = [axis.path for axis in axes]
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ScenarioError(
            Problem(message=f"{twice} is varied twice", hint="list all its values in one --vary")
        )
    return axes


def count_points(axes: Sequence[SweepAxis]) -> int:
    """Return the number of combinations."""
    return math.prod(len(axis.values) for axis in axes)


def check_size(axes: Sequence[SweepAxis], *, confirmed: bool) -> None:
    """Raise an error for a large sweep that was not confirmed, with its size and estimated time."""
    points = count_points(axes)
    if points > ASK_ABOVE and not confirmed:
        hours = points * SECONDS_PER_POINT / 3600.0
        sizes = " × ".join(f"{len(axis.values):,}" for axis in axes)
        message = f"the sweep has {sizes} = {points:,} points: about {hours:,.0f} h of computing"
        raise ScenarioError(
            Problem(message=message, hint="take larger steps, or add --yes to go on")
        )


def number_of(value: str) -> float | int | None:
    """Return an axis value as a number, or None where it is not one."""
    read = parse_scalar(value)
    return read if isinstance(read, int | float) and not isinstance(read, bool) else None


@dataclass(frozen=True, slots=True, kw_only=True)
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
        for value in dict.fromkeys((axis.values[0], axis.values[-1], *axis.values[1 : 1 + 50])):
            try:
                load_scenario(scenario, [f"{axis.path}={value}"])
            except ScenarioError as error:
                problems += error.problems
    raise_all(list(dict.fromkeys(problems)))


def check_warnings(scenario: Source, axes: Sequence[SweepAxis]) -> None:
    """Raise an error for the first combination with a warning, before any run."""
    base = load_scenario(scenario)
    for values in itertools.product(*(axis.values for axis in axes)):
        try:
            loaded, plan = _plan(base, axes, values)
        except ScenarioError:  # a row of the answer says why it is no scenario
            continue
        refuse(hardly_meant(loaded, plan), strict=True)


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
    known = {} if work is None else dict(work.kept)
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    missing = [values for values in combinations if values not in known]
    with contextlib.closing(
        Crew(tuple, (base, tuple(axes), seed), min(workers, max(len(missing), 1)))
    ) as crew:
        for point in crew.map(_point, [(values,) for values in missing]):
            progress(len(known))
            known[point.values] = point
            if work is not None:
                work.write(dataclasses.asdict(point))
    return tuple(known[values] for values in combinations)


def _point(
    grid: tuple[Scenario, tuple[SweepAxis, ...], int | None], values: tuple[str, ...]
) -> SweepPoint:
    """Run one combination and return its point."""
    base, axes, seed = grid
    try:
        loaded, plan = _plan(base, axes, values)
        result = simulate_plan(loaded, plan, plan.seed if seed is None else seed)
    except ScenarioError as error:
        return SweepPoint(values=values, figures=None, problem=str(error).splitlines()[0])
    warnings = tuple(hardly_meant(loaded, plan))
    return SweepPoint(values=values, figures=figures_of(result), problem="", warnings=warnings)


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
        who = {
            **scenario_identity({scenario.name: scenario}),
            "vary": {axis.path: list(axis.values) for axis in axes},
            "overrides": list(overrides),
            "seed": seed,
        }
        super().__init__(folder, "sweep", who)
        self.kept: dict[tuple[str, ...], SweepPoint] = {}
        """Points that were done before, by their values."""

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and read the points of an interrupted sweep."""
        super().open(resume=resume, restart=restart)
        for line in self.lines:
            lists = {name: tuple(line[name]) for name in ("values", "warnings")}
            self.kept[lists["values"]] = SweepPoint(**line | lists)


def warnings_of_points(points: Sequence[SweepPoint]) -> list[str]:
    """Return the distinct warnings of all points, each with the number of points concerned."""
    counts = Counter(warning for point in points for warning in point.warnings)
    return [
        f"{warning} ({count:,} of {len(points):,} combinations)"
        for warning, count in counts.items()
    ]


def _plan(
    base: Scenario, axes: Sequence[SweepAxis], values: tuple[str, ...]
) -> tuple[Scenario, Plan]:
    """Return the scenario and plan of one combination."""
    loaded = load_scenario(
        base, [f"{axis.path}={value}" for axis, value in zip(axes, values, strict=True)]
    )
    return loaded, build_plan(loaded)
