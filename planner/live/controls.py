"""The live page as HTML: its controls, and beside them the report's own sections of the plan they make."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.language.scenario import Scenario
from planner.live.desk import Desk, Plan
from planner.live.knobs import Knob, knobs_of
from planner.reporting.report.build import FIRST, SECTIONS, sections_of
from planner.reporting.report.html import Html, environment, join
from planner.reporting.report.page import Section, asset, policy
from planner.reporting.report.words import percent, unit_price
from planner.results.measure_names import FLEET

_FOLDER = Path(__file__).parent
BESIDE = "Against the pinned plan"


@functools.cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _macros() -> Any:
    return environment().from_string(_file("live.html")).module


def live_policy() -> str:
    """Return the report's content policy, with both scripts, for a page that speaks to its own server."""
    return f"{policy(asset('report.js'), _file('live.js'))}; connect-src 'self'; frame-ancestors 'none'"


def page(scenario: Scenario) -> str:
    """Return the page as it is before its first plan comes."""
    scripts = Html(asset("report.js")), Html(_file("live.js"))
    styles = Html(asset("report.css") + _file("live.css"))
    return str(_macros().page(scenario, controls(scenario), styles, scripts))


def controls(scenario: Scenario) -> Html:
    """Return the knobs of a scenario, by group and by cluster or workload."""
    groups: dict[str, dict[str, list[Knob]]] = {}
    added = []
    for knob in knobs_of(scenario):
        if knob.is_new:
            added.append((f"{knob.path}={knob.turn.written.replace('%', knob.choices[0])}", knob.choices[0]))
        else:
            groups.setdefault(knob.turn.group, {}).setdefault(knob.owner, []).append(knob)
    return Html(_macros().controls(groups, added))


def answer(desk: Desk, plan: Plan, pinned: Plan | None, *, intervals: bool) -> Html:
    """Return what was turned, how the plan stands against the pinned one, and the report's first section."""
    sections = sections_of(desk.contents(plan, intervals=intervals, first=True), SECTIONS[:FIRST])
    if pinned is not None:
        sections = [*_beside(desk, plan, pinned, intervals=intervals), *sections]
    return join([_macros().changes(desk.turned(plan)), _sections(sections)], "\n")


def line(desk: Desk, plan: Plan, *, intervals: bool) -> str:
    """Return the answer in a line, which stays in sight: what a token costs, and whether the promise is kept."""
    summary = desk.contents(plan, intervals=intervals, first=True).json("summary.json")
    fleet, promise = summary["clusters"][FLEET], summary["promise"]
    since = f" from {promise['first_broken_month']}" if promise["each"] == "month" else ""
    kept = "kept" if promise["kept"] else f"broken{since}"
    if promise["replications"] > 1:
        kept += f" (kept in {promise['kept_replications']} of {promise['replications']} replications)"
    price, in_time = unit_price(fleet["cost_per_million_tokens_usd"]), percent(fleet["slo_attainment_fraction"], 2)
    return f"{price} per million tokens, {in_time} in time, promise {kept}"


def _beside(desk: Desk, plan: Plan, pinned: Plan, *, intervals: bool) -> list[Section]:
    """Return the comparison's own sections as one: which plan to take, why a token costs more or less, and when."""
    sections = sections_of(desk.beside(pinned, plan, intervals=intervals))
    body = join([section.body for section in sections if section.key in ("answer", "time", "money")], "\n")
    return [replace(sections[0], key="beside", title=BESIDE, body=body)]


def rest(desk: Desk, plan: Plan) -> Html:
    """Return the report's other sections."""
    return _sections(sections_of(desk.contents(plan, intervals=False, first=False), SECTIONS[FIRST:]))


def _sections(sections: Sequence[Section]) -> Html:
    return join([_macros().section(section) for section in sections], "\n")
