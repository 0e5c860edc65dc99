"""A grid of what-ifs: every combination of the values given for some keys of a scenario."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.compile import build_plan
from planner.compile.contradictions import hardly_meant
from planner.errors import Problem, ScenarioError, refuse
from planner.files import replace_synced
from planner.fleet.plan import Plan
from planner.language.loading import Source, load_scenario
from planner.language.scenario import Scenario
from planner.results.chance import figures_of
from planner.results.run import simulate_plan
from planner.studies.axes import Axis
from planner.studies.engines import in_order
from planner.studies.identity import scenario_identity
from planner.studies.work import Work

_POINTS, _SYNC_S = "points.jsonl", 1.0


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


def check_values(scenario: Source, axes: Sequence[Axis], overrides: Sequence[str] = ()) -> None:
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
    grid = _Grid(load_scenario(scenario), tuple(axes), seed)
    known = {} if work is None else dict(work.kept)
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    missing = [values for values in combinations if values not in known]
    for point in in_order(_Grid.point, grid, missing, workers):
        progress(len(known))
        known[point.values] = point
        if work is not None:
            work.add(point)
    return tuple(known[values] for values in combinations)


@dataclass(frozen=True, slots=True)
class _Grid:
    """What all points of a sweep share."""

    base: Scenario
    axes: tuple[Axis, ...]
    seed: int | None

    def point(self, values: tuple[str, ...]) -> Point:
        """Run one combination."""
        try:
            loaded, plan = _plan(self.base, self.axes, values)
            result = simulate_plan(loaded, plan, plan.seed if self.seed is None else self.seed)
        except ScenarioError as error:
            return Point(values=values, figures=None, problem=str(error).splitlines()[0])
        warnings = tuple(hardly_meant(loaded, plan))
        return Point(values=values, figures=figures_of(result), problem="", warnings=warnings)


class SweepWork(Work):
    """The folder of a sweep: a line for each point that is done, with a hash of it, until all of them are."""

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
        self._synced_s = 0.0

    def open(self, *, resume: bool, restart: bool) -> None:
        """Lock the folder, and take in the points of a sweep that was stopped."""
        super().open(resume=resume, restart=restart)
        path = self.shards / _POINTS
        lines = path.read_bytes().splitlines() if path.exists() else []
        sound = [line for line in lines if _sum_of(line[17:]) == line[:16]]
        for line in sound:
            point = Point(**json.loads(line[17:]))
            self.kept[tuple(point.values)] = dataclasses.replace(
                point, values=tuple(point.values), warnings=tuple(point.warnings)
            )
        if len(sound) < len(lines):
            self.notes.append(f"{path} has {len(lines) - len(sound)} damaged lines; their points are run again")
        replace_synced(path, b"".join(line + b"\n" for line in sound))

    def add(self, point: Point) -> None:
        """Keep a point; at most a second of them is not on the disk yet."""
        line = json.dumps(dataclasses.asdict(point)).encode()
        try:
            with (self.shards / _POINTS).open("ab") as stream:
                stream.write(_sum_of(line) + b" " + line + b"\n")
                if time.monotonic() - self._synced_s > _SYNC_S:
                    stream.flush()
                    os.fsync(stream.fileno())
                    self._synced_s = time.monotonic()
        except OSError as error:
            raise self.unwritable(error) from None


def _sum_of(line: bytes) -> bytes:
    return hashlib.sha256(line).hexdigest()[:16].encode()


def warnings_of_points(points: Sequence[Point]) -> list[str]:
    """Return what points are warned of, each once, with how many of them it concerns."""
    counts = Counter(warning for point in points for warning in point.warnings)
    return [f"{warning} ({count:,} of {len(points):,} combinations)" for warning, count in counts.items()]


def _plan(base: Scenario, axes: Sequence[Axis], values: tuple[str, ...]) -> tuple[Scenario, Plan]:
    """Return the scenario and plan of one combination."""
    loaded = load_scenario(base, [f"{axis.path}={value}" for axis, value in zip(axes, values, strict=True)])
    return loaded, build_plan(loaded)
