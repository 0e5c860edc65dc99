"""What a result rests on: every measure's definition, its assumptions, the model's error, and how to get it again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from planner.answers.manifests import Manifest
from planner.answers.sections import section
from planner.finance.measure_names import AGAINST_BASELINE, DEFINITIONS, MEASURES
from planner.output.blocks import (
    Block,
    Command,
    Folded,
    Grid,
    Links,
    Section,
    Sentence,
    sentences,
)
from planner.output.folder import Contents
from planner.output.tables import Table
from planner.output.words import NOTHING, figure, measured, percent

FORMULAS = DEFINITIONS | {
    measure.name: measure.formula for measure in (*MEASURES, *AGAINST_BASELINE)
}
VIEWS = {measure.name: measure.view for measure in (*MEASURES, *AGAINST_BASELINE)}
VIEWS_EXPLAINED = (
    "v is the discount factor of the month, or of the day of a purchase or sale. The accrual view counts P&L and the "
    "capital charge. The cash view counts money that changes hands. The economic view counts cash and the value of "
    "what is still owned at the end."
)
QUANTITIES = {
    "tpot_s": "time per output token",
    "ttft_s": "time to first token",
    "output_tokens_per_s_per_accelerator": "tokens per second at saturation",
}
"""What the model's error is of, in words."""
ASSUMPTION_COLUMNS = ("path", "value", "unit", "source", "date", "grade")
GRADE = ASSUMPTION_COLUMNS.index("grade")
GRADED_BY = ASSUMPTION_COLUMNS.index("source")
"""Columns before it say what has a grade."""
REPRODUCED = (
    "The same command, files and version give the same bytes in every file; manifest.json has the hash of each file. "
    "`planner report DIR` writes this page again from the files in its folder."
)


def warnings_section(warnings: Sequence[str]) -> Section | None:
    """Return what is hardly meant about a sweep's or a study's plans, below their answer."""
    if warnings:
        return section("answer", sentences(warnings, "note"))
    return None


def manifest_warnings(manifest: Manifest) -> list[str]:
    """Return the warnings that a manifest holds, as sentences."""
    return [f"Warning: {warning}" for warning in manifest.warnings]


def study_warnings(contents: Contents, manifest: Manifest) -> list[str]:
    """Return the warnings of a study: its own, those of its plans, and of inputs drawn far off."""
    lines = manifest_warnings(manifest)
    plans = contents.table("warnings")
    if plans is not None:
        lines += [
            f"{severity.capitalize()}: {scenario}: {text}"
            for scenario, severity, text in plans.rows("scenario", "severity", "text")
        ]
    inputs = contents.table("uncertain")
    if inputs is not None and "warning" in inputs:
        lines += [f"Warning: {text}" for text in inputs.texts("warning") if text]
    return lines


def evidence_sections(contents: Contents) -> Iterator[Section | None]:
    """Yield what every report ends with."""
    yield assumptions_section(contents)
    yield error_section(contents)
    yield reproduce_section(contents)


def uncertain_section(contents: Contents) -> Section | None:
    """Return what the study draws, with percentiles, source and grade; nothing where no input is uncertain."""
    table = contents.table("uncertain")
    if not table:
        return None
    columns = ("input", "p10", "p50", "p90", "unit", "distribution", "source", "date", "grade")
    # Percentiles are text in the file, as an input may be a word.
    rows = []
    for name, p10, p50, p90, *origin in table.rows(*columns):
        percentiles = map(figure, (p10, p50, p90))
        rows.append((name, *percentiles, *origin))
    grid = Grid(
        caption=f"{len(rows)} uncertain inputs",
        header=("uncertain input", "P10", "P50", "P90", *columns[4:]),
        rows=rows,
        numeric=(1, 2, 3),
        unbroken=(4, 5, 7, 8),
    )
    lead = (
        "The uncertain inputs, each with the source of its range. All other inputs are as stated."
    )
    return section("assumptions", [Sentence(text=lead), grid])


def assumptions_section(contents: Contents) -> Section | None:
    """Return every input with its source and grade; a row in which scenarios say the same ends in their names."""
    assumed = contents.table("assumptions")
    if not assumed:
        return None
    rows = list(assumed.rows(*ASSUMPTION_COLUMNS))
    header: Sequence[str] = ASSUMPTION_COLUMNS
    has_scenarios = "scenario" in assumed
    scenarios = set(assumed.texts("scenario")) if has_scenarios else set()
    if len(scenarios) > 1:
        rows = _shared_rows(assumed, scenarios)
        header = (*header, "in")
    owner = "scenarios" if len(scenarios) > 1 else "scenario"
    # A value with two sources is one value.
    values = {(*row[:GRADED_BY], row[GRADE]) for row in rows}
    grades = Counter(grade for *_, grade in values)
    # Grades of the catalogue are letters; "user" and "default" are of the scenario.
    by_grade = sorted(grades.items())
    letters = ", ".join(f"{number} graded {grade}" for grade, number in by_grade if len(grade) == 1)
    lead = (
        f"{grades['user']} values come from the {owner} and {grades['default']} are defaults; "
        f"of those from the catalogue, {letters}."
    )
    explained = "A is a datasheet or a log, B a credible report, C derived, D assumed."
    note = Sentence(text=explained, tone="note")
    blocks: list[Block] = [Sentence(text=lead), note]
    titles = {
        "D": "Assumed values (grade D): replace these with your own first",
        "user": f"Your {owner}",
        "default": "Defaults",
        "": "The catalogue",
    }
    for grade, title in titles.items():
        # Grades without a heading of their own are the catalogue's.
        part = [row for row in rows if (row[GRADE] if row[GRADE] in titles else "") == grade]
        if part:
            grid = Grid(caption=title, header=header, rows=part, numeric=(1,), unbroken=(2, 4, 5))
            blocks.append(Folded(title=f"{title}: {len(part)} values", blocks=[grid]))
    return section("assumptions", blocks)


def _shared_rows(assumed: Table, scenarios: set[str]) -> list[tuple[str, ...]]:
    """Return each row once, with the scenarios that say so."""
    scenarios_by_row: dict[tuple[str, ...], list[str]] = {}
    for scenario, *row in assumed.rows("scenario", *ASSUMPTION_COLUMNS):
        # What all scenarios assume alike is one row, not as many as there are scenarios.
        scenarios_by_row.setdefault(tuple(row), []).append(scenario)
    # Names of all plans say nothing: "all" is shorter.
    return [
        (*row, "all" if len(names) == len(scenarios) else ", ".join(names))
        for row, names in scenarios_by_row.items()
    ]


def error_section(contents: Contents) -> Section | None:
    """Return how far the throughput formula is from public measurements."""
    errors = contents.table("model_error")
    if not errors:
        return None
    rows = []
    table_rows = errors.rows(
        "quantity",
        "group",
        numbers=("fitted_median_fraction", "holdout_median_fraction", "rows"),
    )
    for quantity, group, fitted, holdout, number in table_rows:
        name = f"{QUANTITIES.get(quantity, quantity)}, {group}"
        shares = (percent(fitted), percent(holdout))
        rows.append((name, f"{number or 0:,.0f}", *shares))
    lead = (
        "Median error of the throughput formula against public measurements. The last column is the error for a model "
        "whose measurements were left out of the fit, as a new model of yours would be."
    )
    grid = Grid(
        caption="The model's own measured error",
        header=("quantity", "measurements", "error, fitted", "error, model left out"),
        rows=rows,
        numeric=(1, 2, 3),
    )
    return section("error", [Sentence(text=lead), grid])


def reproduce_section(contents: Contents) -> Section:
    """Return how to get the same bytes again."""
    manifest = Manifest.read(contents)
    identity = manifest.identity
    catalogue = manifest.catalog
    catalogue_name = f"{catalogue.assumptions} {catalogue.version}" if catalogue.version else None
    # A study and a sizing have them in the identity of their work.
    hashes = manifest.scenarios or identity.scenarios
    # Not every kind of answer has each of these: what is None is left out below.
    facts: Mapping[str, object] = {
        "version": manifest.version or identity.version,
        "seed": identity.seed if manifest.seed is None else manifest.seed,
        "replications": manifest.replications,
        "replication": manifest.replication,
        "scenario": manifest.scenario,
        "scenario SHA-256": manifest.scenario_sha256,
        "catalogue": catalogue_name,
        "catalogue SHA-256": catalogue.sha256 or identity.catalogue,
        "study SHA-256": identity.study,
        **{f"scenario {name}, SHA-256": digest for name, digest in hashes.items()},
    }
    blocks: list[Block] = []
    if manifest.command:
        lead = "Run this command in the same folder as before, so that it finds the files that it names:"
        command = shlex.join(manifest.command)
        blocks += [Sentence(text=lead), Command(text=command)]
    if contents.beside:
        lead = "The files behind this page (the links work while the page is in its folder):"
        blocks += [Sentence(text=lead), Links(names=contents.beside)]
    rows = [(name, str(fact)) for name, fact in facts.items() if fact is not None]
    identified = Grid(
        caption="What identifies this result",
        header=("what", "which"),
        rows=rows,
    )
    blocks.append(identified)
    if not contents.on_page:
        blocks.append(Sentence(text=REPRODUCED))
    return section("reproduce", blocks)


def run_measures(contents: Contents) -> dict[str, dict[str, float | None]]:
    """Return the measures of a run's plan."""
    table = contents.tables["measures"]
    values = table.rows("measure", numbers=["value"])
    return {"this plan": dict(values)}


def compared_measures(contents: Contents) -> dict[str, dict[str, float | None]]:
    """Return the measures of a comparison by plan."""
    measures: dict[str, dict[str, float | None]] = {}
    table = contents.tables["comparison"]
    rows = table.rows("scenario", "measure", numbers=["value"])
    for plan, measure, value in rows:
        measures.setdefault(plan, {})[measure] = value
    return measures


def measures_section(by_plan: Mapping[str, Mapping[str, float | None]]) -> Section:
    """Return the measures, one row each, folded: what each plan comes to, and how that is defined."""
    # In the order of the first plan that has each: plans of one kind have the same.
    names = dict.fromkeys(name for measures in by_plan.values() for name in measures)
    rows = []
    without_meaning = []
    for name in names:
        values = [measures.get(name) for measures in by_plan.values()]
        # What has no meaning for any plan is named below, not tabled.
        if all(value is None for value in values):
            without_meaning.append(_words(name))
            continue
        cells = (measured(value, name) for value in values)
        formula = FORMULAS.get(name, "")
        view = VIEWS.get(name, "")
        rows.append((_words(name), *cells, formula, view))
    blocks: list[Block] = [
        Grid(
            caption="The measures",
            header=("measure", *by_plan, "definition", "view"),
            rows=rows,
            numeric=range(1, 1 + len(by_plan)),
        ),
        Sentence(text=VIEWS_EXPLAINED, tone="note"),
    ]
    if without_meaning:
        missing = f"Not defined here: {', '.join(without_meaning)}."
        blocks.append(Sentence(text=missing, tone="note"))
    title = f"All {len(rows)} measures and how each is defined"
    folded = Folded(title=title, blocks=blocks, css="roomy")
    return section("answer", [folded])


def _words(name: str) -> str:
    """Return a measure's name as words, its unit in the trade's spelling."""
    # One suffix after another: a name may end in a unit and a kind.
    for suffix in ("_usd", "_fraction", "_ratio"):
        name = name.removesuffix(suffix)
    acronyms = ("npv", "tco", "irr", "api")
    words = name.split("_")
    for place, word in enumerate(words):
        if word in acronyms:
            words[place] = word.upper()
    return " ".join(words) or NOTHING
