"""From an answer's contents to its report: which sections each kind of answer has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.answers import (
    comparison_report,
    evidence,
    plan_sections,
    run_report,
    sensitivity_report,
    size_report,
    study_report,
    timelines,
)
from planner.answers.evidence import evidence_sections
from planner.answers.futures import futures_section
from planner.answers.json_records import read_record
from planner.answers.lender_report import loan_section
from planner.answers.manifests import Manifest
from planner.answers.ranking import rank
from planner.answers.study_results import StudyResults
from planner.answers.summaries import ComparisonSummary, RunSummary, SizingSummary
from planner.answers.sweep_report import sweep_section
from planner.files import change_files, json_text
from planner.output.blocks import Section
from planner.output.folder import REPORT, SUMMARY, Contents, fitting, openable, read_contents
from planner.output.html import page
from planner.output.tables import csv_files
from planner.records import record

DESIGN_TITLES = {"montecarlo": "Monte Carlo"}
"""Designs of a study, as the title of its report has them."""
Sections = Iterator[Section | None]
"""Sections in the report's order; None where a folder lacks the table that one needs."""


def run_body(contents: Contents, summary: RunSummary) -> Sections:
    """Yield the sections of a run's report after its first."""
    yield evidence.measures_section(evidence.run_measures(contents))
    yield timelines.timeline_section(contents)
    yield run_report.money_section(contents, summary)
    yield loan_section(contents)
    yield run_report.losses_section(contents)
    yield run_report.slo_misses_section(summary)
    yield run_report.routing_section(contents)
    yield from evidence_sections(contents)


def run_sections(contents: Contents) -> Sections:
    """Yield the sections of a run's report."""
    summary = RunSummary.read(contents)
    yield run_report.answer_section(contents, summary)
    yield from run_body(contents, summary)


def comparison_sections(contents: Contents) -> Sections:
    """Yield the sections of a comparison's report."""
    summary = ComparisonSummary.read(contents)
    ranking = rank(comparison_report.compared_plans(summary))
    yield comparison_report.answer_section(contents, summary)
    yield evidence.measures_section(evidence.compared_measures(contents))
    yield futures_section(contents.table("futures"))
    yield comparison_report.timeline_section(contents)
    yield plan_sections.timeline_section(contents, ranking)
    yield comparison_report.bridge_section(contents)
    yield plan_sections.money_section(contents, ranking)
    yield plan_sections.losses_section(contents, ranking)
    yield from evidence_sections(contents)


def sweep_sections(contents: Contents) -> Sections:
    """Yield the sections of a sweep's report."""
    manifest = Manifest.read(contents)
    yield sweep_section(contents, manifest)
    yield evidence.warnings_section(evidence.manifest_warnings(manifest))
    yield from evidence_sections(contents)


def study_sections(contents: Contents) -> Sections:
    """Yield the sections of a study's report."""
    study = StudyResults.read(contents)
    yield study_report.answer_section(contents, study)
    yield evidence.warnings_section(evidence.study_warnings(contents, study.manifest))
    yield study_report.fan_section(contents, study)
    yield plan_sections.timeline_section(contents, study.ranking)
    yield plan_sections.money_section(contents, study.ranking)
    yield plan_sections.losses_section(contents, study.ranking)
    yield sensitivity_report.sensitivities_section(contents, study)
    yield evidence.uncertain_section(contents)
    yield from evidence_sections(contents)


def size_sections(contents: Contents) -> Sections:
    """Yield the sections of a sizing's report."""
    summary = SizingSummary.read(contents)
    yield size_report.answer_section(contents, summary)
    yield size_report.policies_section(contents, summary)
    yield futures_section(contents.table("futures"))
    yield size_report.months_section(contents)
    yield from evidence_sections(contents)


REPORTS: Mapping[str, Callable[[Contents], Sections]] = {
    "run": run_sections,
    "comparison": comparison_sections,
    "sweep": sweep_sections,
    "study": study_sections,
    "size": size_sections,
}
"""What makes the sections of a report, by the kind of folder; kinds that only their own rooms know bring theirs."""
SectionsOf = Callable[[Contents], Sequence[Section]]
"""Makes the sections of a report that only folders of one kind have, before the evidence that all have."""


def sections_of(contents: Contents, own_sections: SectionsOf | None = None) -> list[Section]:
    """Return the sections of a folder's report, in its order."""
    if own_sections is None:
        return merged(REPORTS.get(contents.kind, evidence_sections)(contents))
    return merged([*own_sections(contents), *evidence_sections(contents)])


def merged(sections: Iterable[Section | None]) -> list[Section]:
    """Return sections with those of one anchor as one: what several say to one question stands together."""
    by_key: dict[str, Section] = {}
    for section in sections:
        if section is None:
            continue
        # Sections of one anchor would be two headings of one name.
        if section.key in by_key:
            earlier = by_key[section.key]
            section = replace(earlier, blocks=[*earlier.blocks, *section.blocks])  # noqa: PLW2901
        by_key[section.key] = section
    return list(by_key.values())


@record
class _Period:
    """The months that an answer is of, where its summary says so."""

    horizon_months: int | None = None
    start: str = ""
    seed: int = 0


def build_report(contents: Contents, own_sections: SectionsOf | None = None) -> bytes:
    """Return report.html; the same contents give the same bytes.

    ``own_sections`` makes the sections of a kind of folder that only its own room knows.
    """
    period = read_record(_Period, contents.summary, SUMMARY)
    lead = ""
    if period.horizon_months is not None:
        lead = f"{period.horizon_months} months from {period.start}, seed {period.seed}"
    kind = contents.kind
    if kind == "study":
        design = Manifest.read(contents).identity.design.name or "montecarlo"
        kind = DESIGN_TITLES.get(design, design)
    sections = sections_of(contents, own_sections)
    return page(f"{contents.name}: {kind} report", lead, sections)


def rebuild_report(folder: Path, own_sections: Mapping[str, SectionsOf] = {}) -> Path:
    """Write a folder's report anew from its tables and return its path; nothing is run, no other file is touched.

    ``own_sections`` makes the sections of kinds of folders that only their own rooms know, by kind.
    """
    contents = read_contents(folder)
    with fitting(str(folder)):
        report = build_report(contents, own_sections.get(contents.kind))
    change_files(folder, {REPORT: report})
    return folder / REPORT


def answer_files(
    contents: Contents,
    name: str,
    further_files: Mapping[str, bytes] | None = None,
    own_sections: SectionsOf | None = None,
) -> dict[str, bytes]:
    """Return the files of an answer's folder: tables and their dictionary, summary, report, and what more there is."""
    files = csv_files(name, contents.tables.values())
    # A sweep and a study have tables alone.
    if contents.summary:
        files[SUMMARY] = json_text(contents.summary).encode()
    files |= further_files or {}
    report = build_report(replace(contents, beside=openable(files)), own_sections)
    return {**files, REPORT: report}
