"""A grid of what-ifs: every combination of the values given for some keys of a scenario."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike

from planner.build import build_plan
from planner.build.contradictions import hardly_meant
from planner.build.reuse import Reuse
from planner.errors import Problem, ScenarioError
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.simulation.chance import figures_of
from planner.simulation.run import simulate_plan
from planner.studies.axes import Axis

_MOST_KEPT = 4
_PLAIN = re.compile(
    r"(seed$|finance\.|reliability\.|software\.|expansion\.|site\.(tariff$|electricity|colocation|pue|grid|outage)"
    r"|clusters\.[^.]+\.(nodes|online|retire|unit_price_usd|discount_fraction|quotes|volume_discounts)$)"
)
"""Keys that change neither throughput nor the chance of being late: points that differ in them share both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One combination and what came of it."""

    values: tuple[str, ...]
    """One for each axis."""
    figures: dict[str, float | None] | None
    """Measures; None where the combination is not a scenario."""
    problem: str
    """Why not."""
    warnings: tuple[str, ...] = ()
    """What is hardly meant about it."""


def check_values(scenario: str | PathLike[str], axes: Sequence[Axis], overrides: Sequence[str] = ()) -> None:
    """Refuse a key that does not exist or a value it cannot have, before any run."""
    problems: list[Problem] = []
    for axis in axes:
        ends = dict.fromkeys((axis.values[0], axis.values[-1], *axis.values[1 : 1 + 50]))
        for value in ends:
            try:
                load_scenario(scenario, [*overrides, f"{axis.path}={value}"])
            except ScenarioError as error:
                problems += error.problems
    if problems:
        raise ScenarioError(list(dict.fromkeys(problems)))


def sweep(
    scenario: str | PathLike[str],
    axes: Sequence[Axis],
    overrides: Sequence[str] = (),
    seed: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    strict: bool = False,
) -> tuple[Point, ...]:
    """Run every combination under one seed, the last axis moving fastest; ``strict`` refuses one that is warned of."""
    points = []
    kept: dict[tuple[str, ...], Reuse] = {}
    for number, values in enumerate(itertools.product(*(axis.values for axis in axes))):
        progress(number)
        settings = [f"{axis.path}={value}" for axis, value in zip(axes, values, strict=True)]
        try:
            loaded = load_scenario(scenario, [*overrides, *settings])
            plan = build_plan(loaded, _reuse(kept, axes, values, loaded))
            result = simulate_plan(loaded, plan, plan.seed if seed is None else seed)
        except ScenarioError as error:
            points.append(Point(values=values, figures=None, problem=str(error).splitlines()[0]))
        else:
            warnings = tuple(hardly_meant(loaded, plan))
            if strict and warnings:
                raise ScenarioError([Problem(message=warning) for warning in warnings])
            points.append(Point(values=values, figures=figures_of(result), problem="", warnings=warnings))
    return tuple(points)


def warnings_of_points(points: Sequence[Point]) -> list[str]:
    """Return what points are warned of, each once, with how many of them it concerns."""
    counts = Counter(warning for point in points for warning in point.warnings)
    return [f"{warning} ({count:,} of {len(points):,} combinations)" for warning, count in counts.items()]


def _reuse(
    kept: dict[tuple[str, ...], Reuse], axes: Sequence[Axis], values: tuple[str, ...], loaded: Scenario
) -> Reuse:
    """Return what points with the same traffic, machines and catalogue share; only a few are kept at a time."""
    key = tuple(value for axis, value in zip(axes, values, strict=True) if not _PLAIN.match(axis.path))
    if key not in kept:
        if len(kept) >= _MOST_KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = Reuse(loaded)
    return kept[key]
