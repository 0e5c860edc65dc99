"""From an answer's contents to its report; what a folder cannot say is a line that names the command which says it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from planner.answers import actuals_report, comparison_report, evidence, run_report, size_report, study_report
from planner.answers import zoom_report as zoomed
from planner.answers.futures import futures_section
from planner.answers.judgement import choose
from planner.answers.memo import has_memo, memo_sections
from planner.answers.sections import SectionMaker, section
from planner.files import change_files, json_text
from planner.output.blocks import Command, Section, Sentence
from planner.output.folder import REPORT, SUMMARY, Contents, command_line, fitting, openable, read_contents
from planner.output.html import page
from planner.output.tables import DEFAULT_FORMAT, CsvFormat, csv_files

_NO_RUN = "None of the plans could be run as stated, so there is nothing to show here; `planner run` says why."
_SWEPT = "A sweep keeps whole-horizon figures. This gives the {what} of the combination to take:"
_KEPT = {"time": "months", "money": "ledger", "losses": "losses"}
SENSITIVITIES = {
    "run": "One run cannot say which input moves its answer. `planner sensitivity STUDY` draws the tornado, of a study "
    "file that names this scenario and what is uncertain about it; planner montecarlo gives the interval.",
    "comparison": "One replication and one value for each input cannot say which of them decides. Put these scenarios "
    "into a study: `planner sensitivity STUDY` draws the tornado of their difference, and planner montecarlo says how "
    "often the order holds.",
    "sweep": "The table above shows what was varied. `planner sensitivity STUDY` measures it for everything uncertain.",
    "study": "Nothing in this study is uncertain but chance itself; state inputs under uncertain, and "
    "`planner sensitivity STUDY` draws the tornado.",
}
POINTERS: dict[str, dict[str, str]] = {
    **{key: {"sweep": _SWEPT.format(what=what), "study": _NO_RUN} for key, what in _KEPT.items()},
    "sensitivities": SENSITIVITIES,
}
"""What is said where a folder has nothing to say to a question, by the question's anchor and the folder's kind."""


def _pointer(contents: Contents, *, key: str) -> Section | None:
    """Return the one line of a section."""
    if (said := POINTERS[key].get(contents.kind)) is None:
        return None
    if not said.endswith(":"):
        return section(key, [Sentence(text=said)])
    # The command runs the combination of a sweep that is recommended, or comes nearest to it.
    manifest, points = contents.manifest, comparison_report.swept_plans(contents)
    chosen = choose([plan for plan, _ in points]).ranked[0] if points else None
    settings: list[str] = next((settings for plan, settings in points if plan is chosen), [])
    file = str(manifest.get("scenario_file") or f"{manifest['scenario']}.yaml")
    laid = [*map(str, manifest.get("overrides", ())), *settings]
    words = command_line("run", [file], {"--seed": manifest.get("seed")}, laid)
    # What a user may have written stands in a block of its own: it may hold backticks.
    return section(key, [Sentence(text=said), Command(text=shlex.join(words))])


POINTED = tuple(partial(_pointer, key=key) for key in POINTERS)
_DESIGNS = {"montecarlo": "Monte Carlo", "sobol": "Sobol"}
OWN: Mapping[str, Sequence[SectionMaker]] = {
    "zoom": (zoomed.answer_section, zoomed.latency_section, zoomed.queue_section),
    "size": (size_report.answer_section, size_report.policies_section, futures_section, size_report.months_section),
    "actuals": (actuals_report.answer_section, actuals_report.forecast_section, actuals_report.figures_section),
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
    POINTED[0],
    comparison_report.bridge_section,
    partial(comparison_report.bridge_section, name="bridge_usd"),
    partial(comparison_report.bridge_section, name="bridge_accounts"),
    study_report.money_section,
    POINTED[1],
    study_report.losses_section,
    run_report.late_section,
    run_report.routing_section,
    POINTED[2],
    study_report.hangs_section,
    POINTED[3],
    *EVIDENCE,
)
"""The report in its order; each maker looks for what it needs and stays away where that is not there. What several of
them say to one question stands together."""


def sections_of(contents: Contents, makers: Iterable[SectionMaker] = SECTIONS) -> list[Section]:
    """Return the questions that a folder's contents answer, in the report's order."""
    sections: dict[str, Section] = {}
    for make in makers:
        made = make(contents)
        if made is None or (make in POINTED and made.key in sections):
            continue
        before = sections.get(made.key)
        sections[made.key] = made if before is None else replace(before, blocks=[*before.blocks, *made.blocks])
    return list(sections.values())


def build_report(contents: Contents) -> bytes:
    """Return report.html; the same contents give the same bytes."""
    summary, kind, lead = contents.summary, contents.kind, ""
    if "horizon_months" in summary:
        lead = f"{summary['horizon_months']} months from {summary['start']}, seed {summary['seed']}"
    if kind == "study":
        design = study_report.design_of(contents) or "montecarlo"
        kind = _DESIGNS.get(design, design)
    made = sections_of(contents, (*OWN[kind], *EVIDENCE) if kind in OWN else SECTIONS)
    return page(f"{contents.name}: {kind} report", lead, made, memo_sections(contents) if has_memo(contents) else [])


def rebuild_report(folder: Path) -> Path:
    """Write a folder's report anew from its tables and return its path; nothing is run, no other file is touched."""
    contents = read_contents(folder)
    with fitting(str(folder)):
        made = build_report(contents)
    change_files(folder, {REPORT: made})
    return folder / REPORT


def answer_files(
    contents: Contents, name: str, form: CsvFormat = DEFAULT_FORMAT, more: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """Return the files of an answer's folder: tables and their dictionary, summary, report, and what more there is."""
    files = csv_files(name, contents.tables.values(), form)
    if contents.summary:
        files[SUMMARY] = json_text(contents.summary).encode()
    files |= more or {}
    return {**files, REPORT: build_report(replace(contents, beside=openable(files)))}
