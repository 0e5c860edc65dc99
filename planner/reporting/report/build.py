"""From an output folder to its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from planner.errors import Problem, ScenarioError
from planner.reporting.folder import write_folder
from planner.reporting.report import evidence, run_sections, timelines
from planner.reporting.report.contents import REPORT, Contents, read_contents
from planner.reporting.report.page import Section, page

SectionMaker = Callable[[Contents], Section | None]

SECTIONS: Sequence[SectionMaker] = (
    run_sections.answer_section,
    timelines.timeline_section,
    run_sections.money_section,
    run_sections.losses_section,
    evidence.hangs_section,
    evidence.assumptions_section,
    evidence.error_section,
    evidence.reproduce_section,
)
"""The report in its order; each maker looks for its files and stays away where they are not."""


def build_report(contents: Contents) -> bytes:
    """Return report.html for a folder's files; the same files give the same bytes."""
    made = [make(contents) for make in SECTIONS]
    name = str(contents.manifest.get("scenario", "plan"))
    summary = contents.json("summary.json")
    lead = ""
    if "horizon_months" in summary:
        lead = f"{summary['horizon_months']} months from {summary['start']}, seed {summary['seed']}"
    return page(f"{name}: {contents.kind} report", lead, [section for section in made if section is not None])


def checked_report(contents: Contents, name: str) -> bytes:
    """Return the report of files that may have been changed, hashes and all; what does not fit is refused."""
    try:
        return build_report(contents)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"its files do not fit together: {type(error).__name__}: {error}"
        raise ScenarioError(Problem(file=name, message=message, hint="run again")) from None


def rebuild_report(folder: Path) -> Path:
    """Write a folder's report anew from its other files, and return its path; nothing is run."""
    contents = read_contents(folder)
    files: dict[str, str | bytes] = {**contents.files, REPORT: checked_report(contents, str(folder))}
    write_folder(folder, files, contents.manifest)
    return folder / REPORT
