"""The page of every key a study may hold."""

from __future__ import annotations

from planner.language.study import Study
from planner.tools.reference.fields import scenario_sections
from planner.tools.reference.markdown import page
from planner.tools.reference.scenario_page import section_text

_INTRODUCTION = """\
Every key that a study file may hold. [Run a study](../how-to/run-a-study.md) shows one; what the distributions mean is
in [How uncertainty is treated](../explanation/uncertainty.md)."""


def study_page() -> str:
    """Return the page of study fields."""
    sections = scenario_sections(Study.model_json_schema(by_alias=True))
    return page("Study fields", _INTRODUCTION, *(section_text(section) for section in sections))
