"""A grid of what-ifs: every combination of the values given for some keys of a scenario."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import Problem, ScenarioError, raise_all, refuse
from planner.plan.build import build_plan
from planner.plan.contradictions import hardly_meant
from planner.plan.plan import Plan
from planner.run.replications import figures_of
from planner.run.simulate import simulate_plan
from planner.scenario.loading import Source, load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.axes import Axis
from planner.studies.engines import Crew
from planner.studies.identity import scenario_identity
from planner.studies.work import LinesWork


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


def check_values(scenario: Source, axes: Sequence[Axis]) -> None:
    """Refuse a key that does not exist or a value it cannot have, before any run."""
    problems: list[Problem] = []
    for axis in axes:
        ends = dict.fromkeys((axis.values[0], axis.values[-1], *axis.values[1 : 1 + 50]))
        for value in ends:
            try:
                load_scenario(scenario, [f"{axis.path}={value}"])
            except ScenarioError as error:
                problems += error.problems
    raise_all(list(dict.fromkeys(problems)))


def check_warnings(scenario: Source, axes: Sequence[Axis]) -> None:
    """Refuse the first combination that is warned of, before any is run or anything is written."""
    base = load_scenario(scenario)
    for values in itertools.product(*(axis.values for axis in axes)):
        try:
            loaded, plan = _plan(base, axes, values)
        except ScenarioError:  # a row of the answer says why it is no scenario
            continue
        refuse(hardly_meant(loaded, plan), strict=True)


def sweep(
    scenario: Source,
    axes: Sequence[Axis],
    seed: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    work: SweepWork | None = None,
    workers: int = 1,
) -> tuple[Point, ...]:
    """Run every combination under one seed, the last axis moving fastest; ``work`` keeps points as they come.

    The scenario's files are read once, before the first point: what is edited meanwhile changes none of them.
    """
    base = load_scenario(scenario)
    known = {} if work is None else dict(work.kept)
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    missing = [values for values in combinations if values not in known]
    crew = Crew(_Grid.of, (base, tuple(axes), seed), min(workers, max(len(missing), 1)))
    try:
        for point in crew.map(_Grid.point, [(values,) for values in missing]):
            progress(len(known))
            known[point.values] = point
            if work is not None:
                work.add(point)
    finally:
        crew.close()
    return tuple(known[values] for values in combinations)


@dataclass(frozen=True, slots=True)
class _Grid:
    """What all points of a sweep share."""

    base: Scenario
    axes: tuple[Axis, ...]
    seed: int | None

    @classmethod
    def of(cls, given: tuple[Scenario, tuple[Axis, ...], int | None]) -> _Grid:
        """Return the grid of a scenario, some axes and a seed."""
        return cls(*given)

    def point(self, values: tuple[str, ...]) -> Point:
        """Run one combination."""
        try:
            loaded, plan = _plan(self.base, self.axes, values)
            result = simulate_plan(loaded, plan, plan.seed if self.seed is None else self.seed)
        except ScenarioError as error:
            return Point(values=values, figures=None, problem=str(error).splitlines()[0])
        warnings = tuple(hardly_meant(loaded, plan))
        return Point(values=values, figures=figures_of(result), problem="", warnings=warnings)


class SweepWork(LinesWork):
    """The folder of a sweep: a line for each point that is done, until all of them are."""

    def __init__(
        self, folder: Path, scenario: Scenario, axes: Sequence[Axis], overrides: Sequence[str], seed: int
    ) -> None:
        """Point at a folder; nothing is read or written yet."""
        who = {
            **scenario_identity({scenario.name: scenario}),
            "vary": {axis.path: list(axis.values) for axis in axes},
            "overrides": list(overrides),
            "seed": seed,
        }
        super().__init__(folder, "sweep", who)
        self.kept: dict[tuple[str, ...], Point] = {}
        """Points that were done before, by their values."""

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and take in the points of a sweep that was stopped."""
        super().open(resume=resume, restart=restart)
        for line in self.lines:
            point = Point(**line)
            self.kept[tuple(point.values)] = dataclasses.replace(
                point, values=tuple(point.values), warnings=tuple(point.warnings)
            )

    def add(self, point: Point) -> None:
        """Keep a point."""
        self.write(dataclasses.asdict(point))


def warnings_of_points(points: Sequence[Point]) -> list[str]:
    """Return what points are warned of, each once, with how many of them it concerns."""
    counts = Counter(warning for point in points for warning in point.warnings)
    return [f"{warning} ({count:,} of {len(points):,} combinations)" for warning, count in counts.items()]


def _plan(base: Scenario, axes: Sequence[Axis], values: tuple[str, ...]) -> tuple[Scenario, Plan]:
    """Return the scenario and plan of one combination."""
    loaded = load_scenario(base, [f"{axis.path}={value}" for axis, value in zip(axes, values, strict=True)])
    return loaded, build_plan(loaded)
