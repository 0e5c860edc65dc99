"""The live page's HTML: its frame, the controls of its settings, and sections of reports."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from planner.answers.identity import scenario_file
from planner.answers.report import sections_of
from planner.output.blocks import Block, Section
from planner.output.folder import Contents
from planner.output.html import asset, macros, policy, section_html
from planner.scenario.scenario import Scenario
from planner.ui.intake import QUESTIONS, TYPED_COLUMNS, Question, choices
from planner.ui.settings import Setting, settings_of

Parts = list[tuple[str, Markup]]
"""HTML of parts of the page by their names, so that the page redraws only those that changed."""
_FOLDER = Path(__file__).parent
_macros = functools.partial(macros, "live.html", _FOLDER)


def live_policy() -> str:
    """Return the report's content security policy, extended for the live page's scripts and server."""
    own = policy(asset("report.js"), asset("live.js", _FOLDER))
    return f"{own}; connect-src 'self'; frame-ancestors 'none'"


def start_policy() -> str:
    """Return the content security policy of the page of questions."""
    own = policy(asset("start.js", _FOLDER))
    return f"{own}; connect-src 'self'; frame-ancestors 'none'"


def start_html(examples: Sequence[Scenario]) -> str:
    """Return the page of questions, with links to examples."""
    script = Markup(asset("start.js", _FOLDER))
    asked: dict[str, list[Question]] = {}
    for question in QUESTIONS:
        asked.setdefault(question.question, []).append(question)
    template = macros("start.html", _FOLDER)
    return str(template.page(asked, TYPED_COLUMNS, choices(), examples, _styles(), script))


def _styles() -> Markup:
    return Markup(asset("report.css") + asset("live.css", _FOLDER))


def page_html(scenario: Scenario, gallery: Sequence[Scenario], *, is_draft: bool = False) -> str:
    """Return the page of a scenario before its first plan, with links to the others."""
    settings = settings_of(scenario)
    scripts = Markup(asset("report.js")), Markup(asset("live.js", _FOLDER))
    controls = controls_html(settings)
    form = controls_hash(settings)
    file = f"{scenario.name}.yaml" if is_draft else scenario_file(scenario)
    return str(
        _macros().page(scenario, gallery, controls, form, _styles(), scripts, file, is_draft)
    )


def controls_html(settings: Sequence[Setting]) -> Markup:
    """Return the controls of settings, by group and by cluster or workload."""
    groups: dict[str, dict[str, list[Setting]]] = {}
    new_clusters = []
    for setting in settings:
        if setting.is_new_cluster:
            accelerator = setting.choices[0]
            text = setting.kind.template.replace("%", accelerator)
            new_clusters.append((f"{setting.path}={text}", accelerator))
        else:
            # Groups and owners keep the order of the settings.
            owners = groups.setdefault(setting.kind.group, {})
            owners.setdefault(setting.owner, []).append(setting)
    return Markup(_macros().controls(groups, new_clusters))


def controls_hash(settings: Sequence[Setting]) -> str:
    """Return a hash of the controls without their values, which most changes leave as it is."""
    forms = [
        (
            setting.path,
            setting.choices,
            setting.is_date,
            setting.is_optional,
            setting.slider is None,
        )
        for setting in settings
    ]
    content = repr(forms).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def controls_update(settings: Sequence[Setting], page_hash: str) -> dict[str, Any]:
    """Return the controls' values, and the controls themselves where the page has others."""
    # Controls that are replaced lose focus and a drag under way, so only values are sent if possible.
    own_hash = controls_hash(settings)
    values = [
        (setting.path, setting.input_text, setting.placeholder)
        for setting in settings
        if not setting.is_new_cluster
    ]
    update: dict[str, Any] = {"form": own_hash, "settings": values}
    if own_hash != page_hash:
        update["controls"] = controls_html(settings)
    return update


def changes_html(changes: Sequence[tuple[str, str, str]], *, is_draft: bool = False) -> Markup:
    """Return the list of changed settings: path, stated value and present value."""
    return Markup(_macros().changes(changes, is_draft))


def measures_html(key: str, body: Markup) -> Markup:
    """Return the remainder of a report's first section, as a part of its own."""
    return Markup(_macros().more(key, body).strip())


def comparison_sections(contents: Contents | None) -> list[Section]:
    """Return a comparison's own sections as one: which plan to take, why a token costs more, and when."""
    blocks: list[Block] = []
    for section in sections_of(contents) if contents else ():
        # The other sections are those of the first plan, which the page shows below.
        if section.key in ("answer", "time", "money"):
            blocks += section.blocks
    if not blocks:
        return []
    return [Section(key="beside", title="The plans side by side", blocks=blocks)]


def section_parts(sections: Sequence[Section]) -> Parts:
    """Return sections of a report as parts of the page."""
    return [(section.key, section_html(section).strip()) for section in sections]
