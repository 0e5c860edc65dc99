"""The memo for the board: two pages from any output folder, as Markdown and as HTML that prints to two pages."""

from __future__ import annotations

import html
import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.output import judgement
from planner.output.report import compare_sections, drivers, run_answer, study_sections
from planner.output.report.contents import Contents, fitting, read_contents
from planner.output.report.html import Html, element, filled, join
from planner.output.report.memo_money import PRICE_FALL, books, cash_by_year, price_line
from planner.output.report.page import asset
from planner.output.report.words import NOTHING, dollars, input_words, measured, percent, unit_price
from planner.run.measure_names import HIGHER_IS_BETTER

MARKDOWN, PAGE = "memo.md", "memo.html"
NEEDED = {"comparison": "comparison", "sweep": "sweep", "study": "percentiles", "size": "plan"}
"""Folders that decide something, and the table without which they do not."""
FIGURES = {
    judgement.COST: "per million tokens, levelised",
    "cost_per_million_tokens_usd": "per million tokens, as the books have it",
    "cost_usd": "cost in the books, all of it",
    "capex_usd": "purchases",
    "cash_usd": "cash paid",
    "npv_usd": "net present value",
    judgement.IN_TIME: "requests in time",
}
"""The figures of a plan that a board asks for."""
SHOWN = 6
"""Rows of a table, and sentences of a list, that leave the memo on two pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One heading of the memo: sentences, then a table where there is one."""

    heading: str
    lines: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def has_memo(contents: Contents) -> bool:
    """Say whether a folder decides something that a memo could say."""
    if contents.kind == "run":
        return "clusters" in contents.json("summary.json")
    table = contents.table(NEEDED.get(contents.kind, ""))
    return table is not None and len(table) > 0


def memo_parts(contents: Contents) -> list[Part]:
    """Return the memo of a run's, comparison's, sweep's, study's or sizing's folder; raise ScenarioError for others."""
    if not has_memo(contents):
        message = f"a folder of {contents.kind} decides nothing that a memo could say"
        raise ScenarioError(Problem(message=message, hint="give that of a run, comparison, sweep, study or sizing"))
    plan = chosen_plan(contents)
    of_plan = contents.of_plan(plan) if plan and plan in contents.plans else contents
    parts = [
        Part(heading="Question", lines=[_question(contents)]),
        Part(heading="Answer", lines=_answer(contents)),
        Part(heading="Promise, and when it runs out", lines=_promise(contents, plan)),
        _cost(contents, of_plan, plan),
        _cash(contents, of_plan, plan),
        _alternatives(contents),
        Part(heading="What it hangs on", lines=_hangs(contents, plan)),
        Part(heading="Risks", lines=_risks(contents, of_plan)),
        _assumptions(contents),
        Part(heading="To get it again", lines=_again(contents)),
    ]
    return [part for part in parts if part.lines or part.rows]


def chosen_plan(contents: Contents) -> str:
    """Return the scenario to take of several, or the one that comes nearest; empty for a folder of one plan."""
    choice = study_sections.judged(contents)[1] if contents.kind == "study" else _compared(contents)
    return choice.ranked[0].name if choice.ranked else ""


def _compared(contents: Contents) -> judgement.Choice:
    return judgement.choose(compare_sections.judged(contents)[1] if contents.kind == "comparison" else [])


def _question(contents: Contents) -> str:
    summary, manifest = contents.json("summary.json"), contents.manifest
    match contents.kind:
        case "run":
            span = f"over {summary['horizon_months']} months from {summary['start']}"
            return f"Does the plan {contents.name} keep its promise {span}, and what does it cost?"
        case "comparison":
            return f"Which of these plans to take: {', '.join(compare_sections.judged(contents)[0])}?"
        case "sweep":
            return f"Which values of {' and '.join(manifest.get('vary', ()))} are best for {contents.name}?"
        case "size":
            said = judgement.promise_words(summary["promise"])
            return f"What to buy for {contents.name}, and when, so that {said} are kept at least cost?"
        case _:
            statistics, inputs = study_sections.judged(contents)[0], contents.table("uncertain")
            which = (
                f"which of {', '.join(statistics)} to take"
                if len(statistics) > 1
                else f"what {', '.join(statistics)} comes to"
            )
            return f"Not knowing {len(inputs) if inputs is not None else 'any'} inputs for certain, {which}?"


def _answer(contents: Contents) -> list[str]:
    summary = contents.json("summary.json")
    match contents.kind:
        case "run":
            return [run_answer.headline(summary), *run_answer.verdict(summary)[1:]]
        case "comparison":
            return [compare_sections.advice(contents)]
        case "sweep":
            return [
                judgement.sweep_advice(judgement.choose([plan for plan, _ in compare_sections.swept_plans(contents)]))
            ]
        case "size":
            return [str(line) for line in summary.get("sentences", ())[:1]]
        case _:
            return [study_sections.advice(contents)]


def _promise(contents: Contents, plan: str) -> list[str]:
    summary = contents.json("summary.json")
    promise = summary.get("promise")
    match contents.kind:
        case "run" if promise:
            return [judgement.promise_verdict(promise), _runs_out(promise)]
        case "comparison" if promise:
            return [f"{plan}: {judgement.promise_verdict(promise[plan])}", _runs_out(promise[plan])]
        case "size":
            return [str(line) for line in summary.get("sentences", ())[1:2]]
        case "sweep" if isinstance(contents.manifest.get("promise"), dict):
            return [f"Promised are {judgement.promise_words(contents.manifest['promise'])}."]
        case "study" if plan in (known := study_sections.promises_of(contents)):
            row = known[plan]
            often = f"{percent(row['kept_low'])} to {percent(row['kept_high'])} with 95% confidence"
            kept = f"{percent(row['kept_fraction'])} of replications ({often})"
            said = f"{plan} keeps {judgement.promise_words(row)} in {kept}"
            broken = row["first_broken_month"]
            return [f"{said}; {percent(row['in_replications'], 0)} are promised. " + (
                f"Where it breaks, it does so from {broken} on." if broken else "It does not run out in the horizon."
            )]  # fmt: skip
    return []


def _runs_out(promise: Mapping[str, Any]) -> str:
    """Say in which month a plan runs out of capacity for its promise."""
    month = promise["first_broken_month"]
    return f"It runs out in {month}." if month else "It does not run out before the horizon ends."


def _cost(contents: Contents, of_plan: Contents, plan: str) -> Part:
    heading, summary = f"Cost of {plan}" if plan else "Cost", contents.json("summary.json")
    if contents.kind == "size":
        sum_, gap = dollars(summary["net_present_cost_usd"]), percent(summary["gap_fraction"])
        said = (
            f"Net present cost {sum_}, of which {dollars(summary['capital_usd'])} for nodes. A better plan could save "
        )
        return Part(heading=heading, lines=[f"{said}at most {gap}."])
    rows = []
    for name, (value, low, high) in _figures(contents, plan).items():
        ends = [measured(end, name) for end in (low, high) if end is not None]
        span = " to ".join(dict.fromkeys(ends)) or NOTHING
        rows.append((FIGURES[name], measured(value, name), span))
    what = "nine in ten replications" if contents.kind == "study" else "in other replications"
    lines = [line] if (line := price_line(of_plan)) else []
    return Part(heading=heading, lines=lines, header=("figure", "expected", what), rows=rows)


def _figures(contents: Contents, plan: str) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Return the board's figures of the plan to take, each with its interval where there is one."""
    if (percentiles := contents.table("percentiles")) is not None:
        statistics = {name: study_sections.statistics_of(percentiles, name).get(plan, {}) for name in FIGURES}
        none = study_sections.NO_FIGURE
        return {
            name: (row["mean"][0], row.get("p5", none)[0], row.get("p95", none)[0])
            for name, row in statistics.items()
            if "mean" in row
        }
    plans = [plan for plan, _ in compare_sections.swept_plans(contents)]
    if (swept := contents.table("sweep")) is not None and plans:
        place = plans.index(judgement.choose(plans).ranked[0])
        return {name: (swept.numbers(name)[place], None, None) for name in FIGURES if name in swept}
    table = contents.table("measures") or contents.table("comparison")
    if table is None:
        return {}
    table = table.where("scenario", plan) if "scenario" in table else table
    rows = table.rows("measure", numbers=("value", "low", "high"))
    known = {name: (value, low, high) for name, value, low, high in rows if value is not None}
    return {name: known[name] for name in FIGURES if name in known}


def _cash(contents: Contents, of_plan: Contents, plan: str) -> Part:
    heading = f"Cash by year, {plan}" if plan else "Cash by year"
    if contents.kind == "size" and (bought := contents.table("plan")) is not None:
        sums: dict[str, float] = defaultdict(float)
        for date, usd in bought.rows("date", totals=["capital_usd"]):
            sums[date[:4]] += usd
        said = "Nodes alone, by the year of their order; planner run plan.yaml gives the rest."
        paid = [(year, dollars(usd)) for year, usd in sorted(sums.items())]
        return Part(heading=heading, lines=[said], header=("year", "nodes"), rows=paid)
    ledger = of_plan.table("ledger")
    if ledger is None:
        return Part(heading=heading)
    years = cash_by_year(ledger)
    columns = list(next(iter(years.values()), {}))
    total = {name: sum(row[name] for row in years.values()) for name in columns}
    rows = [(year, *(dollars(row[name]) for name in columns)) for year, row in [*years.items(), ("all", total)]]
    one = ["As the plan is stated, in one replication."] if contents.kind == "study" else []
    return Part(heading=heading, lines=one, header=("year", *columns), rows=rows)


def _alternatives(contents: Contents) -> Part:
    """Return what else there is: plans that keep their promise beside it, and those that do not."""
    heading = "Alternatives at equal service"
    rows: list[Sequence[str]] = []
    match contents.kind:
        case "comparison" | "study":
            choice = study_sections.judged(contents)[1] if contents.kind == "study" else _compared(contents)
            output = study_sections.headline_of(contents) if contents.kind == "study" else judgement.COST
            sign = -1.0 if output in HIGHER_IS_BETTER else 1.0
            for plan in choice.ranked[:SHOWN]:
                cost = None if plan.cost is None else sign * plan.cost
                kept = "kept" if plan.keeps_promise else f"short by {judgement.points(plan.shortfall_fraction)}"
                shown = (kept, percent(plan.in_time_fraction, 2), measured(cost, output))
                rows.append((plan.name, *shown, *books(contents, plan.name)))
            cheaper = f"accelerators {percent(PRICE_FALL, 0)} cheaper"
            header = ("plan", "promise", "in time", study_sections.spoken(output), "as stated, in the books", cheaper)
            lines = ["What breaks its promise is no alternative, however cheap."] if choice.breaking else []
            return Part(heading=heading, lines=lines, header=header, rows=rows)
        case "sweep":
            best = judgement.frontier([plan for plan, _ in compare_sections.swept_plans(contents)])[-SHOWN:]
            rows += [
                (plan.name, plan.standing, percent(plan.worst_fraction, 2), unit_price(plan.cost)) for plan in best
            ]
            titles = ("no other beats", "promise", "worst in time", "per million tokens, levelised")
            return Part(heading="Cost against service", header=titles, rows=rows)
        case "size":
            lines = [str(line) for line in contents.json("summary.json").get("sentences", ())[2:SHOWN]]
            return Part(heading=heading, lines=lines)
    said = "One plan alone: planner compare holds it against another, on the same traffic and the same luck."
    return Part(heading=heading, lines=[said])


def _hangs(contents: Contents, plan: str) -> list[str]:
    rows, output = drivers.rows_of(contents), study_sections.headline_of(contents)
    panels = list(drivers.panels(rows)) if rows else []
    first = next((panel for panel in panels if (panel.scenario, panel.against) == (plan, "")), None)
    if first is None:
        if contents.kind in ("run", "comparison", "size"):
            return ["Not measured here: planner sensitivity draws what is uncertain, and ranks it."]
        return []
    title = f"{first.title}, {study_sections.spoken(output)}"
    swings = [
        f"{input_words(name)}: {measured(min(low, high), output)} to {measured(max(low, high), output)}"
        + (" (no more than noise)" if name in first.noise else "")
        for name, low, high in first.longest(SHOWN - 1)
    ]
    return [f"{title}: {'; '.join(swings)}."]


def _risks(contents: Contents, of_plan: Contents) -> list[str]:
    summary = contents.json("summary.json")
    lines = [str(line) for line in (*summary.get("warnings", ()), *contents.manifest.get("warnings", ()))]
    lines += [str(line) for line in summary.get("notes", ())]
    if worst := summary.get("worst_month"):
        lines.append(f"Worst month {worst['month']}: {percent(worst['missed_fraction'], 2)} of requests shed or late.")
    listed = of_plan.table("warnings")
    if contents.kind == "study" and listed is not None and "text" in listed:
        lines += listed.texts("text")
    delivered = of_plan.table("events")
    if delivered is not None and "delivered" in delivered.texts("event"):
        lines.append("A delivery that comes late serves nobody meanwhile: ask what the plan does a quarter later.")
    return [*dict.fromkeys(lines)][:SHOWN]


def _assumptions(contents: Contents) -> Part:
    heading, table = "What it rests on", contents.table("assumptions")
    if table is None:
        return Part(heading=heading)
    rows = list(dict.fromkeys(table.rows("path", "value", "unit", "grade")))
    counts = Counter(grade for *_, grade in rows)
    told = ", ".join(f"{number} {grade}" for grade, number in sorted(counts.items()) if len(grade) == 1)
    said = (
        f"{counts['user']} values stated, {counts['default']} defaults; of the catalogue's by grade: {told} (A a "
        "datasheet or a log, B a credible report, C derived, D assumed). Assumed values, to be replaced first:"
    )
    weak = [row for row in rows if row[3] == "D"]
    weak = [row for row in weak if "usd" in row[0]] + [row for row in weak if "usd" not in row[0]]
    shown = [(path, f"{value} {unit}".strip(), grade) for path, value, unit, grade in weak[:SHOWN]]
    return Part(heading=heading, lines=[said], header=("input", "value", "grade"), rows=shown)


def _again(contents: Contents) -> list[str]:
    manifest = contents.manifest
    version = manifest.get("version", manifest.get("identity", {}).get("version"))
    return [f"{shlex.join(map(str, manifest.get('command', ())))} (version {version})"]


def memo_markdown(contents: Contents) -> str:
    """Return the memo as Markdown."""
    lines = [f"# {contents.name}: memo"]
    for part in memo_parts(contents):
        lines += ["", f"## {part.heading}", *(text for line in part.lines for text in ("", html.escape(line, False)))]
        if part.rows:
            cells = [part.header, ["---"] * len(part.header), *part.rows]
            lines += ["", *("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in cells)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("\n", " ")


def memo_body(contents: Contents) -> Html:
    """Return the memo as part of a page."""
    parts_html: list[Html] = []
    for part in memo_parts(contents):
        parts_html.append(element("h2", part.heading))
        parts_html += [element("p", line) for line in part.lines]
        if part.rows:
            head = element("tr", *(element("th", cell, scope="col") for cell in part.header))
            body = [element("tr", *(element("td", cell) for cell in row)) for row in part.rows]
            caption = element("caption", part.heading)  # for those who meet the table without its heading
            parts_html.append(element("table", caption, element("thead", head), element("tbody", *body)))
    return join(parts_html, "\n")


def write_memo(folder: str | os.PathLike[str]) -> list[Path]:
    """Write memo.md and memo.html of any output folder from the files in it, as ``planner memo`` does."""
    folder = Path(folder)
    contents = read_contents(folder)
    with fitting(str(folder)):
        body, text = memo_body(contents), memo_markdown(contents)
    page = filled("memo.html", title=f"{contents.name}: memo", style=Html(asset("memo.css")), body=body)
    change_files(folder, {MARKDOWN: text.encode(), PAGE: f"{page}\n".encode()})
    return [folder / MARKDOWN, folder / PAGE]
