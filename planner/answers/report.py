"""From an answer's contents to its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from planner.answers import (
    actuals_report,
    comparison_report,
    evidence,
    run_report,
    size_report,
    study_report,
)
from planner.answers import zoom_report as zoomed
from planner.answers.futures import futures_section
from planner.answers.memo import has_memo, memo_sections
from planner.answers.sections import SectionMaker
from planner.files import change_files, json_text
from planner.output.blocks import Picture, Section, TimeChart
from planner.output.folder import REPORT, SUMMARY, Contents, fitting, openable, read_contents
from planner.output.html import page
from planner.output.svg import picture_of
from planner.output.tables import DEFAULT_FORMAT, CsvFormat, csv_files

_DESIGNS = {"montecarlo": "Monte Carlo", "sobol": "Sobol"}
OWN: Mapping[str, Sequence[SectionMaker]] = {
    "zoom": (zoomed.answer_section, zoomed.latency_section, zoomed.queue_section),
    "size": (
        size_report.answer_section,
        size_report.policies_section,
        futures_section,
        size_report.months_section,
    ),
    "actuals": (
        actuals_report.answer_section,
        actuals_report.forecast_section,
        actuals_report.figures_section,
    ),
}
"""The sections that only folders of one kind have: all there is of these but the evidence."""
EVIDENCE = (
    evidence.uncertain_section,
    evidence.assumptions_section,
    evidence.error_section,
    evidence.reproduce_section,
)
FIRST: Sequence[SectionMaker] = (
    run_report.answer_section,
    comparison_report.answer_section,
    comparison_report.sweep_section,
    study_report.answer_section,
    evidence.warnings_section,
)
"""What the live page draws before the others: the first section but for its folded measures."""
SECTIONS: Sequence[SectionMaker] = (
    *FIRST,
    evidence.measures_section,
    futures_section,
    comparison_report.timeline_section,
    study_report.fan_section,
    study_report.timeline_section,
    comparison_report.bridge_section,
    partial(comparison_report.bridge_section, name="bridge_usd"),
    partial(comparison_report.bridge_section, name="bridge_accounts"),
    study_report.money_section,
    study_report.losses_section,
    run_report.late_section,
    run_report.routing_section,
    study_report.hangs_section,
    *EVIDENCE,
)
"""The report in its order; each maker looks for what it needs and stays away where that is not there. What several of
them say to one question stands together."""


def sections_of(contents: Contents, makers: Iterable[SectionMaker] = SECTIONS) -> list[Section]:
    """Return the questions that a folder's contents answer, in the report's order."""
    sections: dict[str, Section] = {}
    for make in makers:
        made = make(contents)
        if made is None:
            continue
        before = sections.get(made.key)
        sections[made.key] = (
            made if before is None else replace(before, blocks=[*before.blocks, *made.blocks])
        )
    return list(sections.values())


def head_of(contents: Contents) -> tuple[Section, Picture | None]:
    """Return the first section of a report, and its first chart, wherever that stands."""
    sections = sections_of(contents, OWN.get(contents.kind, SECTIONS))
    blocks = (block for made in sections for block in made.blocks)
    first = next((block for block in blocks if isinstance(block, Picture | TimeChart)), None)
    return sections[0], None if first is None else picture_of(first)


def build_report(contents: Contents) -> bytes:
    """Return report.html; the same contents give the same bytes."""
    summary = contents.summary
    kind = contents.kind
    lead = ""
    if "horizon_months" in summary:
        lead = f"{summary['horizon_months']} months from {summary['start']}, seed {summary['seed']}"
    if kind == "study":
        design = study_report.design_of(contents) or "montecarlo"
        kind = _DESIGNS.get(design, design)
    made = sections_of(contents, (*OWN[kind], *EVIDENCE) if kind in OWN else SECTIONS)
    return page(
        f"{contents.name}: {kind} report",
        lead,
        made,
        memo_sections(contents) if has_memo(contents) else [],
    )


def rebuild_report(folder: Path) -> Path:
    """Write a folder's report anew from its tables and return its path; nothing is run, no other file is touched."""
    contents = read_contents(folder)
    with fitting(str(folder)):
        made = build_report(contents)
    change_files(folder, {REPORT: made})
    return folder / REPORT


def answer_files(
    contents: Contents,
    name: str,
    form: CsvFormat = DEFAULT_FORMAT,
    more: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return the files of an answer's folder: tables and their dictionary, summary, report, and what more there is."""
    files = csv_files(name, contents.tables.values(), form)
    if contents.summary:
        files[SUMMARY] = json_text(contents.summary).encode()
    files |= more or {}
    return {**files, REPORT: build_report(replace(contents, beside=openable(files)))}
