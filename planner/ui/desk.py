"""The live page's plans: scenario variants run once each, in several futures, and the page that shows them."""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from planner.answers.comparison import COMPARISON_TABLES, comparison_summary, held_tables
from planner.answers.futures import future_row, futures_section
from planner.answers.judgement import verdict_line
from planner.answers.report import FIRST, OWN, SECTIONS, sections_of
from planner.answers.run import (
    PLAN_COLUMNS,
    key_figures,
    measure_table,
    scenario_file,
    scenario_sha256,
)
from planner.answers.sections import SectionMaker
from planner.answers.tables import TABLES
from planner.engine.driver import fetch_memory
from planner.errors import PlannerError, Problem, ScenarioError
from planner.output.blocks import Section
from planner.output.folder import REPORT, Contents, command_line, read_contents
from planner.output.html import asset, badged, blocks_html, macros, policy, section_html
from planner.output.html import page as report_page
from planner.output.tables import Table
from planner.output.words import unit_price
from planner.run.measure_names import DRAWS, FLEET
from planner.run.replications import Replications, draw_again
from planner.run.simulate import RunResult, simulate
from planner.scenario.consistency import hourly_bytes
from planner.scenario.loading import layer_of, load_scenario, under
from planner.scenario.scenario import Scenario
from planner.studies.compare import side_by_side
from planner.studies.futures import AS_STATED, in_futures, stated_futures
from planner.ui.knobs import FUTURE, Knob, check_turns, future_of, future_words, knobs_of

BESIDE = "The plans side by side"
MORE = "measures"
SHARED = "share.html"
_MOST_KEPT = 6  # a run of three years is some 25 MB
_SIZING_MINUTES = 20
_SIZING_EFFORT = ("--replications", "32", "--confirmations", "100")
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")
EXAMPLES = Path(__file__).parent / "examples"
Turns = tuple[str, ...]
"""A plan: the name of its scenario, then what is turned. Of a future, what is turned alone."""
Check = Callable[[], object]
"""Raises where nobody waits for the answer any more."""


@dataclass(slots=True, kw_only=True)
class DeskPlan:
    """One plan of the live page, with its run."""

    result: RunResult
    knobs: Sequence[Knob]
    """As they stand in it."""
    drawn: Replications | None = None
    """Its figures over 19 replications, once they are drawn."""
    contents: Contents | None = None
    """What its run folder would hold, with intervals once they are drawn."""


class SizeRun:
    """A sizing in a process of its own, which says what it has while it searches."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        """Start the command with some words; it writes a folder."""
        program = [
            sys.executable,
            "-c",
            "from planner.cli.app import main; main()",
            *words,
            "--out",
            str(folder),
        ]
        self.folder, self._log = folder, tempfile.TemporaryFile("a+", encoding="utf-8")  # noqa: SIM115 - while it runs
        self.process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=self._log)

    @property
    def is_running(self) -> bool:
        """Whether it searches still."""
        return self.process.poll() is None

    @property
    def lines(self) -> list[str]:
        """The last lines that it said."""
        self._log.seek(0)
        return self._log.read().splitlines()[-6:]


class Desk:
    """Scenarios, and the plans made from them by turning knobs."""

    def __init__(self, scenarios: Sequence[Scenario], outputs: Path = Path("outputs")) -> None:
        """Take loaded scenarios; sizings and shared pages are written below ``outputs``."""
        self.scenarios = {scenario.name: scenario for scenario in scenarios}
        self.outputs = outputs
        if len(self.scenarios) < len(scenarios):
            raise ScenarioError("two of these scenarios have one name; give one of them another")
        self.folders: dict[str, Path] = {}
        """Sizings and shared pages written from this desk, by name."""
        self.sizing: SizeRun | None = None
        self._plans: OrderedDict[Turns, DeskPlan] = OrderedDict()
        self._cells: dict[tuple[Turns, str], tuple[Any, ...]] = {}
        self._engine = threading.Lock()

    def begin(self) -> None:
        """Run the first scenario as stated, and allocate the memory of cached plans so that first moves are fast."""
        first = next(iter(self.scenarios.values()))
        self.plan((first.name,))
        fetch_memory(_MOST_KEPT * hourly_bytes(first))

    def stated(self, name: str) -> Scenario:
        """Return a scenario as its file states it; the first where no name is given."""
        name = name or next(iter(self.scenarios))
        if name not in self.scenarios:
            raise ScenarioError(
                f"no scenario is called {name[:80]!r}; there are {', '.join(self.scenarios)}"
            )
        return self.scenarios[name]

    def decided(self, plan: Turns) -> tuple[Scenario, Turns]:
        """Return a plan's scenario with what is decided turned, and the turns of its future."""
        stated = self.stated(plan[0])
        check_turns(stated, plan[1:])
        return load_scenario(stated, _decided(plan)[1:]), _future(plan)

    def scenario(self, plan: Turns) -> Scenario:
        """Return a plan's scenario in its future."""
        scenario, turns = self.decided(plan)
        future = future_of(scenario, turns)
        return (under(scenario, future)[0] or scenario) if future else scenario

    def plan(self, plan: Turns, check: Check = lambda: None) -> DeskPlan:
        """Return a plan with its run, cached or run now; one runs at a time."""
        with self._engine:
            check()
            made = self._plans.pop(plan, None)
            if made is None:
                knobs = knobs_of(*self.decided(plan))
                made = DeskPlan(result=simulate(self.scenario(plan)), knobs=knobs)
            self._plans[plan] = made
            while len(self._plans) > _MOST_KEPT:
                self._plans.popitem(last=False)
        return made

    def draw(self, plan: DeskPlan, check: Check = lambda: None) -> Replications:
        """Return 19 replications of a plan; ``check`` may stop it between two."""
        if plan.drawn is None:
            plan.drawn = draw_again(plan.result, DRAWS, lambda _: bool(check()))
            plan.contents = None
        return plan.drawn

    def contents(self, plan: DeskPlan) -> Contents:
        """Return a plan's run folder contents, except for days, assumptions, workbook and SLO miss causes."""
        if plan.contents is None:
            result = plan.result
            columns = {
                name: make for name, make in PLAN_COLUMNS.items() if name != "software_practices"
            }
            made = {name: Table(TABLES[name], make(result)) for name, make in columns.items()}
            made["measures"] = measure_table(result, plan.drawn)
            identity = {"kind": "run", "scenario": result.scenario.name, "seed": result.seed}
            identity |= {"command": self.command(result.scenario)}
            summary = key_figures(result, plan.drawn)
            plan.contents = Contents(manifest=identity, tables=made, summary=summary)
        return plan.contents

    def turned(self, plan: DeskPlan) -> list[tuple[str, str, str]]:
        """Return the changed knobs: path, stated value and present value."""
        before = {
            knob.path: knob.value or knob.default
            for knob in knobs_of(self.stated(plan.result.scenario.name))
        }
        after = {knob.path: knob.value or knob.default for knob in plan.knobs if not knob.is_new}
        both = [(path, before.get(path, ""), now) for path, now in after.items()]
        return [(path, stated, now or "none") for path, stated, now in both if stated != now]

    def beside(self, plans: Sequence[Turns], check: Check = lambda: None) -> Contents | None:
        """Return the contents of a comparison of plans in the first one's future, the others before it.

        None for one plan alone, or plans of other months.
        """
        together = [(*_decided(plan), *_future(plans[0])) for plan in (*plans[1:], plans[0])]
        made = {plan_words(plan): self.plan(plan, check) for plan in together}
        spans = {
            (one.result.scenario.start, one.result.scenario.horizon_months) for one in made.values()
        }
        if len(made) < 2 or len(spans) > 1:
            return None
        named = [
            replace(one.result, scenario=one.result.scenario.model_copy(update={"name": name}))
            for name, one in made.items()
        ]
        drawn = [one.drawn for one in made.values() if one.drawn]
        chances = (
            drawn
            if len(drawn) == len(made)
            else [draw_again(one.result, 1) for one in made.values()]
        )
        held = side_by_side(named, chances)
        tables = {table.name: table for table in held_tables(held)}
        identity = {"kind": "comparison", "baseline": next(iter(made))}
        return Contents(manifest=identity, tables=tables, summary=comparison_summary(held))

    def grid(
        self, plans: Sequence[Turns], futures: Sequence[Turns], check: Check
    ) -> tuple[Section, int]:
        """Return plans by futures as far as they are known, having run one more cell, and the cells that are left.

        Futures are those that the plans' scenarios state, and those turned on the page; a plan's own is one of them.
        """
        for turns in futures:
            check_turns(self.stated(""), turns)
        decided = list(dict.fromkeys(_decided(plan) for plan in plans))
        turned = dict.fromkeys([*futures, *(_future(plan) for plan in plans)])
        stated = stated_futures([self.stated(plan[0]) for plan in decided])
        columns: dict[str, Turns] = {AS_STATED: (), **dict.fromkeys(stated, ())}
        columns |= {future_words(turns): turns for turns in turned if future_words(turns)}
        cells = [(plan, name) for plan in decided for name in columns]
        missing = [cell for cell in cells if cell not in self._cells]
        for plan, name in missing[:1]:
            if name in stated:
                scenario = self.decided(plan)[0]
                one = DeskPlan(
                    result=simulate(under(scenario, stated[name])[0] or scenario), knobs=()
                )
            else:
                one = self.plan((*plan, *columns[name]), check)
            drawn, *_ = in_futures([(one.result, self.draw(one, check))], {}, {}, lambda _: check())
            weight = stated[name].weight if name in stated else None
            self._cells[plan, name] = future_row(
                replace(drawn, scenario=plan_words(plan), future=name, weight=weight)
            )
        pending = ("…", *([None] * 3), "", *([None] * 3), "", None, None)
        rows = [
            self._cells.get((plan, name), (plan_words(plan), name, None, *pending))
            for plan, name in cells
        ]
        contents = Contents(
            manifest={}, tables={"futures": COMPARISON_TABLES["futures"].of_rows(rows)}
        )
        section = futures_section(contents)
        assert section is not None
        return section, len(missing[1:])

    def command(self, scenario: Scenario) -> list[str]:
        """Return the command that runs a plan of this page; none where the scenario has no file."""
        file = scenario_file(scenario)
        return command_line("run", [file], {}, scenario.document.overrides) if file else []

    def save(self, plan: Turns, name: str) -> Path:
        """Write a what-if file beside the scenario, which it extends with the changes only; its future as such."""
        scenario, turns = self.decided(plan)
        file = Path(scenario_file(scenario))
        is_example = file.parent == EXAMPLES  # which lies where nobody writes
        path = (
            Path(f"{_checked(name)}.yaml")
            if is_example
            else file.with_name(f"{_checked(name)}.yaml")
        )
        layer = layer_of(scenario.document)
        future = future_of(scenario, turns)
        saved = load_scenario({"name": scenario.name, "extends": str(file), **layer})
        if scenario_sha256(saved) != scenario_sha256(scenario):
            message = "has changed since planner ui read it, so a what-if on it is another plan"
            raise ScenarioError(
                Problem(file=str(file), message=message, hint="start planner ui again")
            )
        head = f"# A what-if on {file.name}, turned on the live page: run it with planner run.\n"
        content = {"name": name, "extends": str(file) if is_example else file.name, **layer}
        content |= {"futures": {"turned": {"set": future.set}}} if future else {}
        _write(
            path,
            (
                head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
            ).encode(),
        )
        return path

    def share(self, plans: Sequence[Turns], futures: Sequence[Turns], name: str) -> Path:
        """Write what the page shows as one HTML file: the grid, the plans side by side, and the first one's report."""
        grid, left = self.grid(plans, futures, lambda: None)
        while left:
            grid, left = self.grid(plans, futures, lambda: None)
        sections = [
            grid,
            *_beside(self.beside(plans)),
            *sections_of(self.contents(self.plan(plans[0]))),
        ]
        path = self.outputs / f"{_checked(name)}.html"
        self.outputs.mkdir(parents=True, exist_ok=True)
        _write(path, report_page(name, "Shared from the live page", sections))
        self.folders[name] = path
        return path

    def size(self, plan: Turns, name: str) -> None:
        """Begin to search for the cheapest plan that meets the SLO target, in a process of its own."""
        if self.sizing is not None and self.sizing.is_running:
            raise ScenarioError("a sizing is running: stop it first")
        scenario = self.scenario(plan)
        words = [
            *self.command(scenario),
            "--minutes",
            str(_SIZING_MINUTES),
            "--no-rivals",
            *_SIZING_EFFORT,
        ]
        if scenario.sizing is None:
            bought = {
                cluster: {"max_nodes": max(16, 4 * one.nodes)}
                for cluster, one in scenario.clusters.items()
                if one.owned is None and one.contract is None
            }
            words += [
                "--set",
                f"sizing={yaml.safe_dump({'clusters': bought}, default_flow_style=True, width=9999)}",
            ]
        self.sizing = SizeRun(["size", *words[2:]], self.outputs / f"{_checked(name)}-size")

    def sized(self) -> dict[str, Any]:
        """Return what the sizing has so far: its lines, and the report's first section once it is done."""
        if (sizing := self.sizing) is None:
            return {"running": False, "lines": [], "parts": []}
        parts: list[tuple[str, Markup]] = []
        if not sizing.is_running and (sizing.folder / REPORT).exists():
            section, *_ = sections_of(read_contents(sizing.folder), OWN["size"][:1])
            parts = _sections([replace(section, key="sized", title="Sized")])
            self.folders[sizing.folder.name] = sizing.folder
        href = f"folder/{sizing.folder.name}/{REPORT}" if parts else ""
        return {"running": sizing.is_running, "lines": sizing.lines, "parts": parts, "href": href}

    def file(self, name: str, file: str) -> Path | None:
        """Return a file of a sizing, or a page, written from this desk; None for any other."""
        written = self.folders.get(name)
        if written is None or written.is_file():
            return written if file == SHARED else None
        return next(
            (entry for entry in written.iterdir() if entry.name == file and entry.is_file()), None
        )


def _write(path: Path, content: bytes) -> None:
    """Write a new file, or raise an error where it exists or cannot be written."""
    try:
        with path.open("xb") as stream:
            stream.write(content)
    except FileExistsError:
        message = "exists already, and is not written over"
        raise ScenarioError(
            Problem(file=str(path), message=message, hint="choose another name")
        ) from None
    except OSError as error:
        raise PlannerError(f"{path} cannot be written: {error.strerror}") from None


def _checked(name: str) -> str:
    """Return a name of a file or folder without a path, or raise an error."""
    if not _NAME.fullmatch(name):
        raise ScenarioError(
            f"{name[:80]!r} is no name: letters, digits, '-' and '_', beginning with a letter or digit"
        )
    return name


def turns_of(words: Sequence[str]) -> Turns:
    """Return turns with only the last one of each path, at its first position."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


def _future(plan: Turns) -> Turns:
    return tuple(turn for turn in plan[1:] if turn.partition("=")[0] in FUTURE)


def _decided(plan: Turns) -> Turns:
    return tuple(turn for turn in plan if turn not in _future(plan))


def plan_words(plan: Turns) -> str:
    """Return what a plan is called: its scenario, and what is turned, as all-b200: b200 nodes 30."""
    named = (turn.partition("=") for turn in _decided(plan)[1:])
    turned = ", ".join(
        f"{re.sub('[._]', ' ', path.partition('.')[2])} {text}" for path, _, text in named
    )
    return ", ".join(
        filter(None, [f"{plan[0]}: {turned}" if turned else plan[0], future_words(_future(plan))])
    )


_HERE = Path(__file__).parent
_macros = functools.partial(macros, "live.html", _HERE)


def live_policy() -> str:
    """Return the report's content security policy, extended for the live page's scripts and server."""
    return f"{policy(asset('report.js'), asset('live.js', _HERE))}; connect-src 'self'; frame-ancestors 'none'"


def page(desk: Desk, name: str) -> str:
    """Return the page's HTML before its first plan, of the scenario of a name."""
    scripts = Markup(asset("report.js")), Markup(asset("live.js", _HERE))
    scenario = desk.stated(name)
    styles = Markup(asset("report.css") + asset("live.css", _HERE))
    knobs = knobs_of(scenario)
    gallery = list(desk.scenarios.values())
    return str(_macros().page(scenario, gallery, controls(knobs), form_of(knobs), styles, scripts))


def controls(knobs: Sequence[Knob]) -> Markup:
    """Return the knobs of a scenario as HTML, by group and by cluster or workload."""
    groups: dict[str, dict[str, list[Knob]]] = {}
    added = []
    for knob in knobs:
        if knob.is_new:
            added.append(
                (f"{knob.path}={knob.turn.written.replace('%', knob.choices[0])}", knob.choices[0])
            )
        else:
            groups.setdefault(knob.turn.group, {}).setdefault(knob.owner, []).append(knob)
    return Markup(_macros().controls(groups, added))


def form_of(knobs: Sequence[Knob]) -> str:
    """Return a hash of the controls without their values, which most moves leave unchanged."""
    parts = [
        (knob.path, knob.choices, knob.is_date, knob.is_optional, knob.slider is None)
        for knob in knobs
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def held(knobs: Sequence[Knob], known: str) -> dict[str, Any]:
    """Return the controls' values, and the controls themselves where the page lacks them."""
    form = form_of(knobs)
    values = [(knob.path, knob.shown, knob.placeholder) for knob in knobs if not knob.is_new]
    return {"form": form, "knobs": values} | (
        {} if form == known else {"controls": controls(knobs)}
    )


def _beside(held: Contents | None) -> list[Section]:
    """Return a comparison's own sections as one: which plan to take, why a token costs more, and when."""
    sections = sections_of(held) if held else []
    blocks = [
        block for one in sections if one.key in ("answer", "time", "money") for block in one.blocks
    ]
    return [Section(key="beside", title=BESIDE, blocks=blocks)] if blocks else []


def answer(
    desk: Desk, plans: Sequence[Turns], check: Check = lambda: None
) -> list[tuple[str, Markup]]:
    """Return the changes, the first plan beside the others, and its report's first section."""
    plan = desk.plan(plans[0], check)
    sections = [*_beside(desk.beside(plans, check)), *sections_of(desk.contents(plan), FIRST)]
    return [("turned", _macros().changes(desk.turned(plan))), *_sections(sections)]


def line(desk: Desk, plan: DeskPlan) -> Markup:
    """Return the summary line that stays visible: cost per token, and whether the SLO target is met."""
    summary = desk.contents(plan).summary
    price = unit_price(summary["clusters"][FLEET]["cost_per_million_tokens_usd"])
    return badged(f"{price} per million tokens. {verdict_line(summary['verdict'])}")


def rest(desk: Desk, plan: DeskPlan, check: Check = lambda: None) -> list[tuple[str, Markup]]:
    """Return the remainder of the report's first section, and the report's other sections.

    ``check`` may end it between two sections: whoever drags a slider does not wait for the rest of the plan before.
    """

    def awaited() -> Iterator[SectionMaker]:
        for make in SECTIONS[len(FIRST) :]:
            check()
            yield make

    more, *sections = sections_of(desk.contents(plan), awaited())
    return [(MORE, _macros().more(MORE, blocks_html(more.blocks)).strip()), *_sections(sections)]


def _sections(sections: Sequence[Section]) -> list[tuple[str, Markup]]:
    """Return sections by name, so that the page updates only changed ones."""
    return [(section.key, section_html(section).strip()) for section in sections]
