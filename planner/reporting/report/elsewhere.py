"""What a folder cannot say, and in one line which command says it."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from planner.reporting.folder import command_line
from planner.reporting.judgement import choose
from planner.reporting.report.compare_sections import swept_plans
from planner.reporting.report.contents import Contents
from planner.reporting.report.html import paragraph
from planner.reporting.report.page import Section, code

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


MAKERS = {key: _maker(key) for key in ("answer", "time", "money", "losses", "hangs")}
"""What makes the one line of a section, for folders that should have it."""
