"""The live page as HTML: its controls, and beside them the report's own sections of the plan they make."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from planner.errors import printable
from planner.output.report.build import FIRST, SECTIONS, SectionMaker, sections_of
from planner.output.report.html import Html, join
from planner.output.report.page import Section, asset, policy
from planner.output.report.words import percent, unit_price
from planner.run.measure_names import FLEET
from planner.scenario.scenario import Scenario
from planner.ui.desk import Check, Desk, Plan
from planner.ui.knobs import Knob, knobs_of

_FOLDER = Path(__file__).parent
BESIDE = "Against the pinned plan"
MORE = "measures"


@functools.cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _macros() -> Any:
    """Return the page's macros; what they are given is text, and escaped, unless it is :class:`Html` already."""
    templates = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=lambda content: content if isinstance(content, Html) else printable(str(content)),
    )  # fmt: skip
    return templates.from_string(_file("live.html")).module


def live_policy() -> str:
    """Return the report's content policy, with both scripts, for a page that speaks to its own server."""
    return f"{policy(asset('report.js'), _file('live.js'))}; connect-src 'self'; frame-ancestors 'none'"


def page(scenario: Scenario) -> str:
    """Return the page as it is before its first plan comes."""
    scripts = Html(asset("report.js")), Html(_file("live.js"))
    styles, knobs = Html(asset("report.css") + _file("live.css")), knobs_of(scenario)
    return str(_macros().page(scenario, controls(knobs), form_of(knobs), styles, scripts))


def controls(knobs: Sequence[Knob]) -> Html:
    """Return the knobs of a scenario, by group and by cluster or workload."""
    groups: dict[str, dict[str, list[Knob]]] = {}
    added = []
    for knob in knobs:
        if knob.is_new:
            added.append((f"{knob.path}={knob.turn.written.replace('%', knob.choices[0])}", knob.choices[0]))
        else:
            groups.setdefault(knob.turn.group, {}).setdefault(knob.owner, []).append(knob)
    return Html(_macros().controls(groups, added))


def form_of(knobs: Sequence[Knob]) -> str:
    """Return a name for the controls without what they hold: most moves change no more than that."""
    parts = [(knob.path, knob.choices, knob.is_date, knob.is_optional, knob.slider is None) for knob in knobs]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def held(knobs: Sequence[Knob], known: str) -> dict[str, Any]:
    """Return what the controls hold, and the controls themselves for a page that does not know them yet."""
    form = form_of(knobs)
    values = [(knob.path, knob.shown, knob.placeholder) for knob in knobs if not knob.is_new]
    return {"form": form, "knobs": values} | ({} if form == known else {"controls": controls(knobs)})


def answer(desk: Desk, plan: Plan, pinned: Plan | None, *, intervals: bool) -> list[tuple[str, Html]]:
    """Return what was turned, how the plan stands against the pinned one, and the report's first section."""
    sections = sections_of(desk.contents(plan, intervals=intervals, first=True), SECTIONS[:FIRST])
    if pinned is not None:
        sections = [*_beside(desk, plan, pinned, intervals=intervals), *sections]
    return [("turned", _macros().changes(desk.turned(plan))), *_sections(sections)]


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
    return [replace(sections[0], key="beside", asks=BESIDE, body=body)]


def rest(desk: Desk, plan: Plan, check: Check = lambda: None) -> list[tuple[str, Html]]:
    """Return what is left of the report's first section, which stands below it without a heading, and the others.

    ``check`` may end it between two sections: whoever drags a slider does not wait for the rest of the plan before.
    """

    def awaited() -> Iterator[SectionMaker]:
        for make in SECTIONS[FIRST:]:
            check()
            yield make

    more, *sections = sections_of(desk.contents(plan, intervals=False, first=False), awaited())
    return [(MORE, _macros().more(MORE, more).strip()), *_sections(sections)]


def _sections(sections: Sequence[Section]) -> list[tuple[str, Html]]:
    """Return sections by their names, so that the page puts up anew only those that read otherwise than before."""
    return [(section.key, _macros().section(section).strip()) for section in sections]
