"""From an output folder to its report; what a folder cannot say is one line that names the command which says it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.files import change_files
from planner.output.folder import command_line
from planner.output.judgement import choose
from planner.output.report import (
    compare_sections,
    drivers,
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
from planner.output.report.compare_sections import swept_plans
from planner.output.report.contents import REPORT, Contents, fitting, openable, read_contents
from planner.output.report.html import Html, join, paragraph
from planner.output.report.memo import has_memo, memo_body
from planner.output.report.page import Section, code, page

NO_RUN = "None of the plans could be run as stated, so there is nothing to show here; {} says why."
POINTERS: dict[tuple[str, str], tuple[str, str]] = {
    ("run", "hangs"): (
        "One run cannot say which input moves its answer. {} draws the tornado, of a study file that names this "
        "scenario and what is uncertain about it; planner montecarlo gives the interval.",
        "planner sensitivity STUDY",
    ),
    ("comparison", "hangs"): (
        "One replication and one value for each input cannot say which of them decides. Put these scenarios into a "
        "study: {} draws the tornado of their difference, and planner montecarlo says how often the order holds.",
        "planner sensitivity STUDY",
    ),
    ("sweep", "time"): ("A sweep keeps whole-horizon figures. {} gives the months of one combination.", "{run}"),
    ("sweep", "money"): ("A sweep keeps whole-horizon figures. {} gives the ledger of one combination.", "{run}"),
    ("sweep", "losses"): ("A sweep keeps whole-horizon figures. {} gives the losses of one combination.", "{run}"),
    ("sweep", "hangs"): (
        "The table above is what the answer hangs on, for what was varied. {} measures it for everything uncertain.",
        "planner sensitivity STUDY",
    ),
    ("study", "time"): (NO_RUN, "planner run"),
    ("study", "money"): (NO_RUN, "planner run"),
    ("study", "losses"): (NO_RUN, "planner run"),
    ("study", "hangs"): (
        "Nothing in this study is uncertain but chance itself; state inputs under uncertain, and {} draws the tornado.",
        "planner sensitivity STUDY",
    ),
}
"""What is said, and the command it names, by kind of folder and section."""


def _maker(key: str) -> Callable[[Contents], Section | None]:
    def make(contents: Contents) -> Section | None:
        if (contents.kind, key) not in POINTERS:
            return None
        said, command = POINTERS[contents.kind, key]
        before, _, after = said.partition("{}")
        shown = command.replace("{run}", _run_of_choice(contents))
        return Section(key=key, body=paragraph(before, code(shown), after))

    return make


def _run_of_choice(contents: Contents) -> str:
    """Return the command that runs the combination of a sweep that is recommended, or comes nearest to it."""
    manifest, points = contents.manifest, swept_plans(contents)
    file = str(manifest.get("scenario_file") or f"{manifest.get('scenario')}.yaml")
    chosen = choose([plan for plan, _ in points]).ranked[0] if points else None
    settings = next((settings for plan, settings in points if plan is chosen), [])
    options = ["--seed", str(manifest["seed"])] if "seed" in manifest else []
    return shlex.join(command_line("run", [file], options, [*map(str, manifest.get("overrides", ())), *settings]))


POINTED = {key: _maker(key) for key in ("answer", "time", "money", "losses", "hangs")}
"""What makes the one line of a section, for folders that should have it."""


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
    POINTED["answer"],
    compare_sections.timeline_section,
    study_sections.fan_section,
    plans.single(timelines.timeline_section),
    plans.timeline_section,
    POINTED["time"],
    compare_sections.bridge_section,
    variance_sections.dollars_section,
    plans.single(run_sections.money_section),
    plans.money_section,
    POINTED["money"],
    plans.single(run_sections.losses_section),
    run_sections.late_section,
    plans.single(run_sections.routing_section),
    plans.losses_section,
    POINTED["losses"],
    drivers.hangs_section,
    POINTED["hangs"],
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
        if section is None or (make in POINTED.values() and section.key in sections):
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
