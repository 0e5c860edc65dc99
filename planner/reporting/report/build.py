"""From an output folder to its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError
from planner.reporting.folder import replace_file
from planner.reporting.report import compare_sections, evidence, run_sections, study_sections, timelines
from planner.reporting.report.contents import REPORT, Contents, read_contents
from planner.reporting.report.page import Section, page

SectionMaker = Callable[[Contents], Section | None]

SECTIONS: Sequence[SectionMaker] = (
    run_sections.answer_section,
    compare_sections.answer_section,
    compare_sections.sweep_section,
    study_sections.answer_section,
    timelines.timeline_section,
    compare_sections.timeline_section,
    study_sections.fan_section,
    run_sections.money_section,
    compare_sections.bridge_section,
    run_sections.losses_section,
    evidence.hangs_section,
    study_sections.hangs_section,
    evidence.assumptions_section,
    evidence.error_section,
    evidence.reproduce_section,
)
"""The report in its order; each maker looks for its files and stays away where they are not."""


def build_report(contents: Contents) -> bytes:
    """Return report.html for a folder's files; the same files give the same bytes."""
    made = [make(contents) for make in SECTIONS]
    name = _name(contents.manifest)
    summary = contents.json("summary.json")
    lead = ""
    if "horizon_months" in summary:
        lead = f"{summary['horizon_months']} months from {summary['start']}, seed {summary['seed']}"
    return page(f"{name}: {contents.kind} report", lead, [section for section in made if section is not None])


def _name(manifest: Mapping[str, Any]) -> str:
    """Return what the report is called: the scenario, the study, or the scenarios compared."""
    if name := manifest.get("scenario") or manifest.get("name"):
        return str(name)
    scenarios = manifest.get("scenarios") or manifest.get("identity", {}).get("scenarios", ())
    return ", ".join(map(str, scenarios)) or "plan"


def checked_report(contents: Contents, name: str) -> bytes:
    """Return the report of files that may have been changed, hashes and all; what does not fit is refused."""
    try:
        return build_report(contents)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its files do not fit together: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(file=name, message=message, hint="run again")) from None


def rebuild_report(folder: Path) -> Path:
    """Write a folder's report anew from its tables and return its path; nothing is run, no other file is touched."""
    page = checked_report(read_contents(folder), str(folder))
    replace_file(folder, REPORT, page)
    return folder / REPORT


def with_report(files: Mapping[str, str | bytes], manifest: Mapping[str, Any]) -> dict[str, str | bytes]:
    """Return a folder's files with their report among them."""
    encoded = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    return {**files, REPORT: build_report(Contents(manifest=manifest, files=encoded))}
