"""The live page's plans: scenario variants run once each, and the page that shows them as the report does."""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from planner.answers.comparison import comparison_summary, held_tables
from planner.answers.report import FIRST, SECTIONS, sections_of
from planner.answers.run import PLAN_COLUMNS, key_figures, measure_table, scenario_file, scenario_sha256
from planner.answers.sections import SectionMaker
from planner.answers.tables import TABLES
from planner.api import run
from planner.engine.driver import fetch_memory
from planner.errors import PlannerError, Problem, ScenarioError
from planner.output.blocks import Section
from planner.output.folder import Contents, command_line
from planner.output.html import asset, blocks_html, macros, policy, section_html
from planner.output.tables import Table
from planner.output.words import percent, unit_price
from planner.run.measure_names import DRAWS, FLEET
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, simulate
from planner.scenario.consistency import hourly_bytes
from planner.scenario.loading import layer_of, load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.compare import side_by_side
from planner.ui.knobs import Knob, check_turns, knobs_of

PINNED, NOW, BESIDE = "pinned", "this plan", "Against the pinned plan"
MORE = "measures"
_MOST_KEPT = 6  # a run of three years is some 25 MB
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")
Turns = tuple[str, ...]
Check = Callable[[], None]
"""Raises where nobody waits for the answer any more."""


@dataclass(slots=True, kw_only=True)
class DeskPlan:
    """One plan of the live page, with its run."""

    result: RunResult
    knobs: Sequence[Knob]
    """As they stand in it."""
    drawn: Replications | None = None
    """Its figures over 19 replications, once somebody asked for intervals."""
    contents: dict[bool, Contents] = field(default_factory=dict)
    """What its run folder would hold, without and with intervals."""


class Desk:
    """A scenario, and the plans made from it by turning knobs."""

    def __init__(self, scenario: Scenario, outputs: Path = Path("outputs")) -> None:
        """Take a loaded scenario; run folders are written below ``outputs``."""
        self.stated, self.outputs = scenario, outputs
        self.knobs = knobs_of(scenario)
        self.folders: dict[str, Path] = {}
        """Run folders written from this desk, by name."""
        self._plans: OrderedDict[Turns, DeskPlan] = OrderedDict()
        self._engine = threading.Lock()

    def begin(self) -> None:
        """Run the plan as stated, and allocate the memory of cached plans so that first moves are fast."""
        self.plan(())
        fetch_memory(_MOST_KEPT * hourly_bytes(self.stated))

    def scenario(self, turns: Turns) -> Scenario:
        """Return the scenario with some knobs turned."""
        check_turns(self.stated, turns)
        return load_scenario(self.stated, turns)

    def plan(self, turns: Turns, check: Check = lambda: None) -> DeskPlan:
        """Return the plan for some turns, cached or run now; one runs at a time."""
        scenario = self.scenario(turns)
        with self._engine:
            check()
            plan = self._plans.pop(turns, None)
            if plan is None:
                plan = DeskPlan(result=simulate(scenario), knobs=knobs_of(scenario))
            self._plans[turns] = plan
            while len(self._plans) > _MOST_KEPT:
                self._plans.popitem(last=False)
        return plan

    def draw(self, plan: DeskPlan, check: Check = lambda: None) -> None:
        """Run further replications of a plan for its intervals; ``check`` may stop it between two."""
        if plan.drawn is None:
            plan.drawn = draw_again(plan.result, DRAWS, check)

    def contents(self, plan: DeskPlan, *, intervals: bool) -> Contents:
        """Return a plan's run folder contents, except for days, assumptions, workbook and SLO miss causes."""
        if intervals not in plan.contents:
            result, chance = plan.result, plan.drawn if intervals else None
            columns = {name: make for name, make in PLAN_COLUMNS.items() if name != "software_practices"}
            made = {name: Table(TABLES[name], make(result)) for name, make in columns.items()}
            made["measures"] = measure_table(result, chance)
            identity = {"kind": "run", "scenario": result.scenario.name, "seed": result.seed}
            identity |= {"command": self.command(result.scenario)}
            summary = key_figures(result, chance)
            plan.contents[intervals] = Contents(manifest=identity, tables=made, summary=summary)
        return plan.contents[intervals]

    def turned(self, plan: DeskPlan) -> list[tuple[str, str, str]]:
        """Return the changed knobs: path, stated value and present value."""
        before = {knob.path: knob.value or knob.default for knob in self.knobs}
        after = {knob.path: knob.value or knob.default for knob in plan.knobs if not knob.is_new}
        both = [(path, before.get(path, ""), now) for path, now in after.items()]
        return [(path, stated, now or "none") for path, stated, now in both if stated != now]

    def beside(self, pinned: DeskPlan, now: DeskPlan, *, intervals: bool) -> Contents:
        """Return the contents of a comparison of two plans, with the pinned one as baseline."""
        named = [
            replace(plan.result, scenario=plan.result.scenario.model_copy(update={"name": name}))
            for plan, name in ((pinned, PINNED), (now, NOW))
        ]
        chances = [plan.drawn if intervals and plan.drawn else draw_again(plan.result, 1) for plan in (pinned, now)]
        held = side_by_side(named, chances)
        tables = {table.name: table for table in held_tables(held)}
        identity = {"kind": "comparison", "baseline": PINNED}
        return Contents(manifest=identity, tables=tables, summary=comparison_summary(held))

    def command(self, scenario: Scenario) -> list[str]:
        """Return the command that runs a plan of this page; none where the scenario has no file."""
        file = scenario_file(self.stated)
        return command_line("run", [file], {}, scenario.document.overrides) if file else []

    def save(self, turns: Turns, name: str) -> Path:
        """Write a what-if file beside the scenario, which it extends with the changes only."""
        scenario, file = self.scenario(turns), Path(scenario_file(self.stated))
        path = file.with_name(f"{_checked(name)}.yaml")
        layer = layer_of(scenario.document)
        saved = load_scenario({"name": scenario.name, "extends": str(file), **layer})
        if scenario_sha256(saved) != scenario_sha256(scenario):
            message = "has changed since planner ui read it, so a what-if on it is another plan"
            raise ScenarioError(Problem(file=str(file), message=message, hint="start planner ui again"))
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
        """Return a file of a run folder written from this page; None for any other."""
        entries = self.folders[name].iterdir() if name in self.folders else ()
        return next((entry for entry in entries if entry.name == file and entry.is_file()), None)


def _checked(name: str) -> str:
    """Return a name of a file or folder without a path, or raise an error."""
    if not _NAME.fullmatch(name):
        raise ScenarioError(f"{name[:80]!r} is no name: letters, digits, '-' and '_', beginning with a letter or digit")
    return name


def turns_of(words: Sequence[str]) -> Turns:
    """Return turns with only the last one of each path, at its first position."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


_HERE = Path(__file__).parent
_macros = functools.partial(macros, "live.html", _HERE)


def live_policy() -> str:
    """Return the report's content security policy, extended for the live page's scripts and server."""
    return f"{policy(asset('report.js'), asset('live.js', _HERE))}; connect-src 'self'; frame-ancestors 'none'"


def page(scenario: Scenario) -> str:
    """Return the page's HTML before its first plan."""
    scripts = Markup(asset("report.js")), Markup(asset("live.js", _HERE))
    styles, knobs = Markup(asset("report.css") + asset("live.css", _HERE)), knobs_of(scenario)
    return str(_macros().page(scenario, controls(knobs), form_of(knobs), styles, scripts))


def controls(knobs: Sequence[Knob]) -> Markup:
    """Return the knobs of a scenario as HTML, by group and by cluster or workload."""
    groups: dict[str, dict[str, list[Knob]]] = {}
    added = []
    for knob in knobs:
        if knob.is_new:
            added.append((f"{knob.path}={knob.turn.written.replace('%', knob.choices[0])}", knob.choices[0]))
        else:
            groups.setdefault(knob.turn.group, {}).setdefault(knob.owner, []).append(knob)
    return Markup(_macros().controls(groups, added))


def form_of(knobs: Sequence[Knob]) -> str:
    """Return a hash of the controls without their values, which most moves leave unchanged."""
    parts = [(knob.path, knob.choices, knob.is_date, knob.is_optional, knob.slider is None) for knob in knobs]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def held(knobs: Sequence[Knob], known: str) -> dict[str, Any]:
    """Return the controls' values, and the controls themselves where the page lacks them."""
    form = form_of(knobs)
    values = [(knob.path, knob.shown, knob.placeholder) for knob in knobs if not knob.is_new]
    return {"form": form, "knobs": values} | ({} if form == known else {"controls": controls(knobs)})


def answer(desk: Desk, plan: DeskPlan, pinned: DeskPlan | None, *, intervals: bool) -> list[tuple[str, Markup]]:
    """Return the changes, the comparison with the pinned plan, and the report's first section."""
    sections = sections_of(desk.contents(plan, intervals=intervals), FIRST)
    if pinned is not None:  # the comparison's own sections as one: which plan to take, why a token costs more, and when
        held = sections_of(desk.beside(pinned, plan, intervals=intervals))
        blocks = [block for section in held if section.key in ("answer", "time", "money") for block in section.blocks]
        sections = [Section(key="beside", title=BESIDE, blocks=blocks), *sections]
    return [("turned", _macros().changes(desk.turned(plan))), *_sections(sections)]


def line(desk: Desk, plan: DeskPlan, *, intervals: bool) -> str:
    """Return the summary line that stays visible: cost per token, and whether the SLO target is met."""
    summary = desk.contents(plan, intervals=intervals).summary
    fleet, record = summary["clusters"][FLEET], summary["verdict"]
    since = f" from {record['first_missed_month']}" if record["first_missed_month"] else ""
    verdict = f"SLO {record['status']} in {record['met_replications']} of {record['replications']} replications{since}"
    price, attained = unit_price(fleet["cost_per_million_tokens_usd"]), percent(fleet["slo_attainment_fraction"], 2)
    return f"{price} per million tokens, SLO attainment {attained}, {verdict}"


def rest(desk: Desk, plan: DeskPlan, check: Check = lambda: None) -> list[tuple[str, Markup]]:
    """Return the remainder of the report's first section, and the report's other sections.

    ``check`` may end it between two sections: whoever drags a slider does not wait for the rest of the plan before.
    """

    def awaited() -> Iterator[SectionMaker]:
        for make in SECTIONS[len(FIRST) :]:
            check()
            yield make

    more, *sections = sections_of(desk.contents(plan, intervals=False), awaited())
    return [(MORE, _macros().more(MORE, blocks_html(more.blocks)).strip()), *_sections(sections)]


def _sections(sections: Sequence[Section]) -> list[tuple[str, Markup]]:
    """Return sections by name, so that the page updates only changed ones."""
    return [(section.key, section_html(section).strip()) for section in sections]
