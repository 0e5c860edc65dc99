"""From an output folder to its report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.files import change_files
from planner.reporting.report import (
    compare_sections,
    drivers,
    elsewhere,
    evidence,
    plans,
    run_answer,
    run_sections,
    size_sections,
    study_sections,
    timelines,
    variance_sections,
    zoom_sections,
)
from planner.reporting.report.contents import REPORT, Contents, fitting, openable, read_contents
from planner.reporting.report.html import Html, join
from planner.reporting.report.memo import has_memo, memo_body
from planner.reporting.report.page import Section, page

SectionMaker = Callable[[Contents], Section | None]

SECTIONS: Sequence[SectionMaker] = (
    run_answer.answer_section,
    zoom_sections.answer_section,
    zoom_sections.latency_section,
    zoom_sections.queue_section,
    compare_sections.answer_section,
    compare_sections.sweep_section,
    study_sections.answer_section,
    size_sections.answer_section,
    size_sections.review_section,
    size_sections.months_section,
    variance_sections.answer_section,
    variance_sections.forecast_section,
    variance_sections.figures_section,
    evidence.warnings_section,
    evidence.measures_section,
    elsewhere.MAKERS["answer"],
    compare_sections.timeline_section,
    study_sections.fan_section,
    plans.single(timelines.timeline_section),
    plans.timeline_section,
    elsewhere.MAKERS["time"],
    compare_sections.bridge_section,
    variance_sections.dollars_section,
    plans.single(run_sections.money_section),
    plans.money_section,
    elsewhere.MAKERS["money"],
    plans.single(run_sections.losses_section),
    run_sections.late_section,
    plans.single(run_sections.routing_section),
    plans.losses_section,
    elsewhere.MAKERS["losses"],
    drivers.hangs_section,
    elsewhere.MAKERS["hangs"],
    evidence.uncertain_section,
    evidence.assumptions_section,
    evidence.error_section,
    evidence.reproduce_section,
)
"""The report in its order; each maker looks for its files and stays away where they are not. What several of them say
to one question stands together."""


def build_report(contents: Contents) -> bytes:
    """Return report.html for a folder's files; the same files give the same bytes."""
    summary = contents.json("summary.json")
    lead = ""
    if "horizon_months" in summary:
        lead = f"{summary['horizon_months']} months from {summary['start']}, seed {summary['seed']}"
    prints = memo_body(contents) if has_memo(contents) else Html("")
    return page(f"{contents.name}: {contents.title} report", lead, sections_of(contents), prints)


FIRST = SECTIONS.index(evidence.measures_section)
"""How many of the makers the live page draws before the others: the first section but for its folded measures."""


def sections_of(contents: Contents, makers: Iterable[SectionMaker] = SECTIONS) -> list[Section]:
    """Return the questions that a folder's files answer, in the report's order."""
    sections: dict[str, Section] = {}
    for make in makers:
        section = make(contents)
        if section is None or (make in elsewhere.MAKERS.values() and section.key in sections):
            continue
        if before := sections.get(section.key):
            section = replace(before, body=join([before.body, section.body], "\n"))
        sections[section.key] = section
    return list(sections.values())


def checked_report(contents: Contents, name: str) -> bytes:
    """Return the report of files that may have been changed, hashes and all; what does not fit is refused."""
    with fitting(name):
        return build_report(contents)


def rebuild_report(folder: Path) -> Path:
    """Write a folder's report anew from its tables and return its path; nothing is run, no other file is touched."""
    page = checked_report(read_contents(folder), str(folder))
    change_files(folder, {REPORT: page})
    return folder / REPORT


def report_of(files: Mapping[str, bytes], manifest: Mapping[str, Any], also: Sequence[str] = ()) -> bytes:
    """Return the report of a folder's files; ``also`` names those beside them of which it needs no more."""
    return build_report(Contents(manifest=manifest, files=files, beside=openable((*files, *also))))


def with_report(files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """Return a folder's files with their report among them."""
    return {**files, REPORT: report_of(files, manifest)}
