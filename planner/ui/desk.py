"""The desk: plans that were turned on the live page, run once each, as the report's sections read them."""

from __future__ import annotations

import functools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from planner.engine.memory import fetch_memory
from planner.errors import PlannerError, Problem, ScenarioError
from planner.files import json_text
from planner.output.comparison import comparison_summary, held_tables
from planner.output.folder import command_line
from planner.output.plan_tables import RUN_COLUMNS
from planner.output.report.contents import Contents, Lazy, Table, table_of
from planner.output.run_columns import RUN_TABLES
from planner.output.run_folder import measure_rows, scenario_file, scenario_sha256
from planner.output.summary import headline_summary
from planner.run.event_table import events
from planner.run.measure_names import DRAWS
from planner.run.replications import Chance, draw_again
from planner.run.result import RunResult
from planner.run.simulate import simulate
from planner.scenario.consistency import hourly_bytes
from planner.scenario.loading import layer_of, load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.compare import side_by_side
from planner.ui.knobs import Knob, check_turns, knobs_of
from planner.verbs import run

PINNED, NOW = "pinned", "this plan"
_MOST_KEPT = 6  # a run of three years is some 25 MB
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")
Turns = tuple[str, ...]
Check = Callable[[], None]
"""Raises where nobody waits for the answer any more."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """One plan on the desk."""

    result: RunResult
    knobs: Sequence[Knob]
    """As they stand in it."""
    drawn: Chance | None = None
    """Its figures over 19 replications, once somebody asked for intervals."""
    contents: dict[tuple[bool, bool], Contents] = field(default_factory=dict)
    """What its run folder would hold, without and with intervals, for the first section and for the others."""


class Desk:
    """A scenario, and the plans that were made of it by turning knobs."""

    def __init__(self, scenario: Scenario, outputs: Path = Path("outputs")) -> None:
        """Take a loaded scenario; run folders are written below ``outputs``."""
        self.stated, self.outputs = scenario, outputs
        self.knobs = knobs_of(scenario)
        self.folders: dict[str, Path] = {}
        """Run folders written from this desk, by name."""
        self._plans: OrderedDict[Turns, Plan] = OrderedDict()
        self._engine = threading.Lock()

    def begin(self) -> None:
        """Run the plan as stated, and fetch the memory of as many as are kept: the first moves would wait for it."""
        self.plan(())
        fetch_memory(_MOST_KEPT * hourly_bytes(self.stated))

    def scenario(self, turns: Turns) -> Scenario:
        """Return the scenario with knobs turned."""
        check_turns(self.stated, turns)
        return load_scenario(self.stated, turns)

    def plan(self, turns: Turns, check: Check = lambda: None) -> Plan:
        """Return the plan of some turns, run before or now; one runs at a time, and what nobody awaits does not."""
        scenario = self.scenario(turns)
        with self._engine:
            check()
            plan = self._plans.pop(turns, None)
            if plan is None:
                plan = Plan(result=simulate(scenario), knobs=knobs_of(scenario))
            self._plans[turns] = plan
            while len(self._plans) > _MOST_KEPT:
                self._plans.popitem(last=False)
        return plan

    def draw(self, plan: Plan, check: Check = lambda: None) -> None:
        """Draw a plan again for its intervals, beside whatever else is run; ``check`` may end it between two draws."""
        if plan.drawn is None:
            plan.drawn = draw_again(plan.result, DRAWS, check)

    def contents(self, plan: Plan, *, intervals: bool, first: bool) -> Contents:
        """Return a plan as its run folder would read, but for days, assumptions, workbook and why requests are late.

        The ``first`` section shows no failures, of which there are thousands, and does not wait for their rows.
        """
        if (intervals, first) not in plan.contents:
            result, chance = plan.result, plan.drawn if intervals else None
            described = {table.name: table for table in RUN_TABLES}

            def table(name: str, make: Callable[[RunResult], Mapping[str, Any]]) -> Callable[[], Table]:
                return lambda: table_of(described[name], make(result))

            makers = {name: table(name, make) for name, make in RUN_COLUMNS.items() if name in described}
            makers["measures"] = table("measures", lambda result: measure_rows(result, chance))
            files: Mapping[str, bytes]
            if first:
                makers["events"] = table("events", lambda result: events(result, with_failures=False))
                files = Lazy({"summary.json": lambda: json_text(headline_summary(result, chance)).encode()})
            else:
                before = self.contents(plan, intervals=intervals, first=True)
                kept, files = before.tables, before.files
                makers |= {name: functools.partial(kept.__getitem__, name) for name in kept if name != "events"}
            identity = {"kind": "run", "scenario": result.scenario.name, "seed": result.seed}
            identity |= {"command": self.command(result.scenario)}
            plan.contents[intervals, first] = Contents(manifest=identity, files=files, tables=Lazy(makers))
        return plan.contents[intervals, first]

    def turned(self, plan: Plan) -> list[tuple[str, str, str]]:
        """Return what was turned: path, what was stated and what stands now."""
        before = {knob.path: knob.value or knob.default for knob in self.knobs}
        after = {knob.path: knob.value or knob.default for knob in plan.knobs if not knob.is_new}
        return [
            (path, before.get(path, ""), now or "none") for path, now in after.items() if before.get(path, "") != now
        ]

    def beside(self, pinned: Plan, now: Plan, *, intervals: bool) -> Contents:
        """Return two plans as the folder of their comparison would read, the pinned one as baseline."""
        named = [
            replace(plan.result, scenario=plan.result.scenario.model_copy(update={"name": name}))
            for plan, name in ((pinned, PINNED), (now, NOW))
        ]
        chances = [plan.drawn if intervals and plan.drawn else draw_again(plan.result, 1) for plan in (pinned, now)]
        held = side_by_side(named, chances)
        tables = {table.name: table_of(table, columns) for table, columns in held_tables(held)}
        files = {"summary.json": json_text(comparison_summary(held)).encode()}
        return Contents(manifest={"kind": "comparison", "baseline": PINNED}, files=files, tables=tables)

    def command(self, scenario: Scenario) -> list[str]:
        """Return the command that runs a plan of this desk; none where the scenario came from no file."""
        file = scenario_file(self.stated)
        return command_line("run", [file], [], scenario.document.overrides) if file else []

    def save(self, turns: Turns, name: str) -> Path:
        """Write a what-if beside the scenario, which it extends: the changes alone, for the same figures."""
        scenario, file = self.scenario(turns), Path(scenario_file(self.stated))
        path = file.with_name(f"{_checked(name)}.yaml")
        layer = layer_of(scenario.document.overrides)
        saved = load_scenario({"name": scenario.name, "extends": str(file), **layer})
        if scenario_sha256(saved) != scenario_sha256(scenario):
            message = "has changed since planner serve read it, so a what-if on it is another plan"
            raise ScenarioError(Problem(file=str(file), message=message, hint="start planner serve again"))
        head = f"# A what-if on {file.name}, turned on the live page: run it with planner run.\n"
        content = {"name": name, "extends": file.name, **layer}
        try:
            with path.open("x", encoding="utf-8") as stream:
                stream.write(head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110))
        except FileExistsError:
            message = "exists already, and is not written over"
            raise ScenarioError(Problem(file=str(path), message=message, hint="choose another name")) from None
        except OSError as error:
            raise PlannerError(f"{path} cannot be written: {error.strerror}") from None
        return path

    def write(self, turns: Turns, name: str) -> Path:
        """Write the plan's run folder, as ``planner run`` with the same overrides does."""
        folder = run(self.scenario(turns), self.outputs / _checked(name)).folder
        self.folders[name] = folder
        return folder

    def file(self, name: str, file: str) -> Path | None:
        """Return a file of a run folder written from this desk; None for any other."""
        folder = self.folders.get(name)
        if folder is None or file not in [entry.name for entry in folder.iterdir() if entry.is_file()]:
            return None
        return folder / file


def _checked(name: str) -> str:
    """Return a name that is one of a file or folder right here, or refuse it."""
    if not _NAME.fullmatch(name):
        raise ScenarioError(f"{name[:80]!r} is no name: letters, digits, '-' and '_', beginning with a letter or digit")
    return name


def turns_of(words: Sequence[str]) -> Turns:
    """Return turns with the last of each path alone, where it was first turned: machines come before their knobs."""
    latest: dict[str, str] = {}
    for word in words:
        latest[word.partition("=")[0]] = word
    return tuple(latest.values())
