"""The pages of every key a scenario, and a study, may hold."""

from __future__ import annotations

from docs.generate.fields import ScenarioField, Section, scenario_sections
from docs.generate.markdown import code, page, table, text
from planner.scenario.study import Study

_INTRODUCTION = """\
Every key that a scenario file may hold. A path is what `--set` takes: `--set clusters.h200.nodes=80`. `<name>` stands
for a name of your own. *x* in a range is the value; one outside the plausible range is accepted with a warning that
names the likely slip, and refused under `--strict`. Zero, where it is allowed, is never warned of. The same text is in
the JSON schema that `planner schema` prints, so an editor shows it as you type.

Where a value comes from, weakest first: the default below; the file at the end of the `extends` chain, then each file
that extends it; `--set`, in the order given. Mappings merge key by key, lists and plain values replace, and `null`
takes a key away again."""


def scenario_page() -> str:
    """Return the page of scenario fields."""
    return page("Scenario fields", _INTRODUCTION, *(_section_text(section) for section in scenario_sections()))


_STUDY_INTRODUCTION = """\
Every key that a study file may hold. [Run a study](../how-to/run-a-study.md) shows one; what the distributions mean is
in [How uncertainty is treated](../explanation/uncertainty.md)."""


def study_page() -> str:
    """Return the page of study fields."""
    sections = scenario_sections(Study.model_json_schema(by_alias=True))
    return page("Study fields", _STUDY_INTRODUCTION, *(_section_text(section) for section in sections))


def _section_text(section: Section) -> str:
    """Return one mapping with a table of its keys."""
    level = "#" * min(2 + section.path.count(".") - section.path.count(".<name>"), 4)
    title = f"`{section.path}`" if section.path else "Top level"
    if section.tag is not None:
        title += f" with `kind: {section.tag}`"
    rows = [_row(field) for field in section.fields]
    header: tuple[str, ...] = ("path", "what it means", "type", "unit", "range", "plausible", "default")
    if not any(field.plausible for field in section.fields):
        header, rows = _without_plausible(header), [_without_plausible(row) for row in rows]
    return f"{level} {title}\n\n{text(section.description)}\n\n{table(header, rows)}"


def _without_plausible(cells: tuple[str, ...]) -> tuple[str, ...]:
    return (*cells[:5], cells[6])


def _row(field: ScenarioField) -> tuple[str, ...]:
    if field.required:
        default = "required"
    else:
        default = ": ".join(filter(None, (code(field.default) if field.default else "", text(field.reason))))
    return (
        code(field.path),
        text(field.meaning),
        field.kind,
        field.unit or "",
        text(field.allowed),
        text(field.plausible),
        default,
    )
