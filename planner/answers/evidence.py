"""What a result rests on: every measure's definition, its assumptions, the model's error, and how to get it again."""

from __future__ import annotations

import shlex
from collections import Counter

from planner.answers.sections import section
from planner.output import blocks as show
from planner.output.blocks import Block, Folded, Grid, Section, Sentence
from planner.output.folder import Contents
from planner.output.words import NOTHING, figure, measured, percent
from planner.run.measure_names import AGAINST_BASELINE, DEFINITIONS, MEASURES

FORMULAS = DEFINITIONS | {
    measure.name: measure.formula for measure in (*MEASURES, *AGAINST_BASELINE)
}
VIEWS = {measure.name: measure.view for measure in (*MEASURES, *AGAINST_BASELINE)}
KEY = (
    "v is the discount factor of the month. Accrual is P&L and capital charge, cash is money that changes hands, "
    "economic is cash and the value of what is still owned at the end."
)
QUANTITIES = {
    "tpot_s": "time per output token",
    "ttft_s": "time to first token",
    "output_tokens_per_s_per_accelerator": "tokens per second at saturation",
}


def warnings_section(contents: Contents) -> Section | None:
    """Return what is hardly meant about a sweep's or a study's plans, below their answer."""
    told = [f"Warning: {warning}" for warning in contents.manifest.get("warnings", ())]
    plans = contents.table("warnings")
    drawn = contents.table("uncertain")
    if contents.kind == "study" and plans is not None:
        rows = plans.rows("scenario", "severity", "text")
        told += [
            f"{severity.capitalize()}: {scenario}: {text}" for scenario, severity, text in rows
        ]
    if drawn is not None and "warning" in drawn:
        told += [f"Warning: {text}" for text in drawn.texts("warning") if text]
    return section("answer", show.sentences(told, "note")) if told else None


def uncertain_section(contents: Contents) -> Section | None:
    """Return what the study draws, with percentiles, source and grade."""
    if not (inputs := contents.table("uncertain")):
        return None
    names = ("input", "p10", "p50", "p90", "unit", "distribution", "source", "date", "grade")
    rows = [(name, *map(figure, cells[:3]), *cells[3:]) for name, *cells in inputs.rows(*names)]
    header = ("uncertain input", "P10", "P50", "P90", *names[4:])
    caption = f"{len(rows)} uncertain inputs"
    grid = Grid(caption=caption, header=header, rows=rows, numeric=(1, 2, 3), unbroken=(4, 5, 7, 8))
    said = "What is uncertain, and where its spread comes from. Everything else is held as stated."
    return section("assumptions", [Sentence(text=said), grid])


def assumptions_section(contents: Contents) -> Section | None:
    """Return every input with its source and grade; a row in which scenarios say the same ends in their names."""
    if not (assumed := contents.table("assumptions")):
        return None
    names: tuple[str, ...] = ("path", "value", "unit", "source", "date", "grade")
    rows: list[tuple[str, ...]] = list(assumed.rows(*names))
    scenarios = assumed.texts("scenario") if "scenario" in assumed else []
    plans = set(scenarios)
    plans_of = dict[tuple[str, ...], list[str]]()
    if several := len(plans) > 1:
        for row, scenario in zip(rows, scenarios, strict=True):
            plans_of.setdefault(row, []).append(scenario)
        names = (*names, "in")
        rows = [
            (*row, "all" if len(by) == len(plans) else ", ".join(by))
            for row, by in plans_of.items()
        ]
    grades = Counter(row[5] for row in rows)
    told = ", ".join(
        f"{number} graded {grade}" for grade, number in sorted(grades.items()) if len(grade) == 1
    )
    whose = "scenarios" if several else "scenario"
    said = f"{grades['user']} values come from the {whose}, {grades['default']} are defaults; "
    blocks: list[Block] = [
        Sentence(text=f"{said}of the catalogue's, {told}."),
        Sentence(
            text="A is a datasheet or a log, B a credible report, C derived, D assumed.",
            tone="note",
        ),
    ]
    titles = {
        "D": "Assumed values (grade D): replace these with your own first",
        "user": f"Your {whose}",
        "default": "Defaults",
        "": "The catalogue",
    }
    for grade, title in titles.items():
        if part := [row for row in rows if (row[5] if row[5] in titles else "") == grade]:
            grid = Grid(caption=title, header=names, rows=part, numeric=(1,), unbroken=(2, 4, 5))
            blocks.append(Folded(title=f"{title}: {len(part)} values", blocks=[grid]))
    return section("assumptions", blocks)


def error_section(contents: Contents) -> Section | None:
    """Return how far the throughput formula is from public measurements."""
    if not (errors := contents.table("model_error")):
        return None
    rows = []
    figures = ("fitted_median_fraction", "holdout_median_fraction", "rows")
    for quantity, group, fitted, unseen, number in errors.rows(
        "quantity", "group", numbers=figures
    ):
        name = f"{QUANTITIES.get(quantity, quantity)}, {group}"
        rows.append((name, f"{number or 0:,.0f}", percent(fitted), percent(unseen)))
    header = ("quantity", "measurements", "error, fitted", "error, model left out")
    said = (
        "Median distance between the throughput formula and public measurements. The last figure is for a model whose "
        "measurements the fit had never seen, as a new model of yours will be."
    )
    grid = Grid(
        caption="The model's own measured error", header=header, rows=rows, numeric=(1, 2, 3)
    )
    return section("error", [Sentence(text=said), grid])


def reproduce_section(contents: Contents) -> Section:
    """Return how to get the same bytes again."""
    manifest = contents.manifest
    catalog = manifest.get("catalog", {})
    identity = manifest.get("identity", {})
    hashes = manifest.get("scenarios") or identity.get("scenarios", {})
    facts = {
        "version": manifest.get("version", identity.get("version")),
        "seed": manifest.get("seed", identity.get("seed")),
        "replications": manifest.get("replications"),
        "replication": manifest.get("replication"),
        "scenario": manifest.get("scenario"),
        "scenario SHA-256": manifest.get("scenario_sha256"),
        "catalogue": f"{catalog.get('assumptions')} {catalog.get('version')}" if catalog else None,
        "catalogue SHA-256": catalog.get("sha256", identity.get("catalogue")),
        "study SHA-256": identity.get("study"),
        **{f"scenario {name}, SHA-256": digest for name, digest in hashes.items()},
    }
    rows = [(name, str(fact)) for name, fact in facts.items() if fact is not None]
    blocks: list[Block] = []
    if given := [str(word) for word in manifest.get("command", ())]:
        said = "In the folder in which it was first given, so that the files it names are found:"
        blocks += [Sentence(text=said), show.Command(text=shlex.join(given))]
    if contents.beside:
        said = "The files behind this page, where it lies in its folder:"
        blocks += [Sentence(text=said), show.Links(names=contents.beside)]
    again = (
        "The same command, files and version give the same bytes in every file; manifest.json has the hash of each. "
        "`planner report DIR` writes this page again from the files beside it."
    )
    identified = Grid(caption="What identifies this result", header=("what", "which"), rows=rows)
    return section("reproduce", [*blocks, identified, Sentence(text=again)])


def measures_section(contents: Contents) -> Section | None:
    """Return the measures, one row each, folded: what each plan comes to, and how that is defined."""
    single = contents.table("measures")
    compared = contents.table("comparison")
    by_plan: dict[str, dict[str, float | None]] = {}
    if single is not None:
        by_plan["this plan"] = dict(single.rows("measure", numbers=["value"]))
    elif compared is not None:
        for plan, measure, value in compared.rows("scenario", "measure", numbers=["value"]):
            by_plan.setdefault(plan, {})[measure] = value
    names = list(dict.fromkeys(name for figures in by_plan.values() for name in figures))
    known = [
        name for name in names if any(figures.get(name) is not None for figures in by_plan.values())
    ]
    if not known:
        return None
    rows = []
    for name in known:
        figures = (measured(plan.get(name), name) for plan in by_plan.values())
        rows.append((_words(name), *figures, FORMULAS.get(name, ""), VIEWS.get(name, "")))
    header = ("measure", *by_plan, "definition", "view")
    numeric = range(1, 1 + len(by_plan))
    blocks: list[Block] = [
        Grid(caption="The measures", header=header, rows=rows, numeric=numeric),
        Sentence(text=KEY, tone="note"),
    ]
    if missing := [_words(name) for name in names if name not in known]:
        blocks.append(Sentence(text=f"Without meaning here: {', '.join(missing)}.", tone="note"))
    title = f"All {len(known)} measures and how each is defined"
    return section("answer", [Folded(title=title, blocks=blocks, css="roomy")])


def _words(name: str) -> str:
    """Return a measure's name as words, its unit in the trade's spelling."""
    shown = (
        name.removesuffix("_usd").removesuffix("_fraction").removesuffix("_ratio").replace("_", " ")
    )
    words = (
        word.upper() if word in ("npv", "tco", "irr", "api") else word for word in shown.split(" ")
    )
    return " ".join(words) or NOTHING
