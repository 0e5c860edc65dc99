"""The memo for the board: two pages of any output folder that decides something, as Markdown and as HTML."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.answers import comparison_report, judgement, run_report, study_report
from planner.answers.run_report import account_totals
from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.finance.ledger import ACCOUNT_ORDER, Account, View
from planner.output.blocks import Block, Grid, Section, sentences
from planner.output.folder import Contents, fitting, read_contents
from planner.output.html import markdown, memo_page
from planner.output.tables import Table
from planner.output.words import NOTHING, dollars, input_words, measured, percent, unit_price
from planner.run.measure_names import FLEET, HIGHER_IS_BETTER

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


BOUGHT = tuple(account.value for account in ACCOUNT_ORDER if account.value.startswith("capex_"))
FOLLOW_THE_PRICE = frozenset(
    {Account.DEPRECIATION, Account.DISPOSAL_LOSS, Account.COST_OF_CAPITAL, Account.MAINTENANCE, Account.INSURANCE}
)
"""Accrued accounts that are a share of what hardware cost."""
PRICE_FALL = 0.2
"""How much cheaper the accelerators of the question what if are."""


def _part(
    heading: str, lines: Sequence[str] = (), header: Sequence[str] = (), rows: Sequence[Sequence[str]] = ()
) -> Section:
    """Return one heading of the memo: sentences, then a table where there is one."""
    blocks: list[Block] = list(sentences(lines))
    if rows:
        blocks.append(Grid(caption=heading, header=header, rows=rows))
    return Section(key="memo", title=heading, blocks=blocks)


def has_memo(contents: Contents) -> bool:
    """Say whether a folder decides something that a memo could say."""
    if contents.kind == "run":
        return "clusters" in contents.summary
    table = contents.table(NEEDED.get(contents.kind, ""))
    return table is not None and len(table) > 0


def memo_sections(contents: Contents) -> list[Section]:
    """Return the memo of a run's, comparison's, sweep's, study's or sizing's folder; raise ScenarioError for others."""
    if not has_memo(contents):
        message = f"a folder of {contents.kind} decides nothing that a memo could say"
        raise ScenarioError(Problem(message=message, hint="give that of a run, comparison, sweep, study or sizing"))
    plan = chosen_plan(contents)
    of_plan = contents.of_plan(plan) if plan and plan in contents.plans else contents
    parts = [
        _part("Question", [_question(contents)]),
        _part("Answer", _answer(contents)),
        _part("Promise, and when it runs out", _promise(contents, plan)),
        _cost(contents, of_plan, plan),
        _cash(contents, of_plan, plan),
        _alternatives(contents),
        _part("What it hangs on", _hangs(contents, plan)),
        _part("Risks", _risks(contents, of_plan)),
        _assumptions(contents),
        _part("To get it again", _again(contents)),
    ]
    return [part for part in parts if part.blocks]


def chosen_plan(contents: Contents) -> str:
    """Return the scenario to take of several, or the one that comes nearest; empty for a folder of one plan."""
    choice = study_report.judged(contents)[1] if contents.kind == "study" else _compared(contents)
    return choice.ranked[0].name if choice.ranked else ""


def _compared(contents: Contents) -> judgement.Choice:
    return judgement.choose(comparison_report.judged(contents)[1] if contents.kind == "comparison" else [])


def _question(contents: Contents) -> str:
    summary, manifest = contents.summary, contents.manifest
    match contents.kind:
        case "run":
            span = f"over {summary['horizon_months']} months from {summary['start']}"
            return f"Does the plan {contents.name} keep its promise {span}, and what does it cost?"
        case "comparison":
            return f"Which of these plans to take: {', '.join(comparison_report.judged(contents)[0])}?"
        case "sweep":
            return f"Which values of {' and '.join(manifest.get('vary', ()))} are best for {contents.name}?"
        case "size":
            said = judgement.promise_words(summary["promise"])
            return f"What to buy for {contents.name}, and when, so that {said} are kept at least cost?"
        case _:
            statistics, inputs = study_report.judged(contents)[0], contents.table("uncertain")
            which = (
                f"which of {', '.join(statistics)} to take"
                if len(statistics) > 1
                else f"what {', '.join(statistics)} comes to"
            )
            return f"Not knowing {len(inputs) if inputs is not None else 'any'} inputs for certain, {which}?"


def _answer(contents: Contents) -> list[str]:
    summary = contents.summary
    match contents.kind:
        case "run":
            return [run_report.headline(summary), *run_report.verdict(summary)[1:]]
        case "comparison":
            return [comparison_report.advice(contents)]
        case "sweep":
            plans = [plan for plan, _ in comparison_report.swept_plans(contents)]
            return [judgement.sweep_advice(judgement.choose(plans))]
        case "size":
            return [str(line) for line in summary.get("sentences", ())[:1]]
        case _:
            return [study_report.advice(contents)]


def _promise(contents: Contents, plan: str) -> list[str]:
    summary = contents.summary
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
        case "study" if plan in (known := study_report.promises_of(contents)):
            row = known[plan]
            often = f"{percent(row['kept_low'])} to {percent(row['kept_high'])} with 95% confidence"
            kept = f"{percent(row['kept_fraction'])} of replications ({often})"
            said = f"{plan} keeps {judgement.promise_words(row)} in {kept}"
            broken = row["first_broken_month"]
            return [
                f"{said}; {percent(row['in_replications'], 0)} are promised. "
                + (
                    f"Where it breaks, it does so from {broken} on."
                    if broken
                    else "It does not run out in the horizon."
                )
            ]
    return []


def _runs_out(promise: Mapping[str, Any]) -> str:
    """Say in which month a plan runs out of capacity for its promise."""
    month = promise["first_broken_month"]
    return f"It runs out in {month}." if month else "It does not run out before the horizon ends."


def _cost(contents: Contents, of_plan: Contents, plan: str) -> Section:
    heading, summary = f"Cost of {plan}" if plan else "Cost", contents.summary
    if contents.kind == "size":
        sum_, gap = dollars(summary["net_present_cost_usd"]), percent(summary["gap_fraction"])
        said = (
            f"Net present cost {sum_}, of which {dollars(summary['capital_usd'])} for nodes. A better plan could save "
        )
        return _part(heading, [f"{said}at most {gap}."])
    rows = []
    for name, (value, low, high) in _figures(contents, plan).items():
        ends = [measured(end, name) for end in (low, high) if end is not None]
        span = " to ".join(dict.fromkeys(ends)) or NOTHING
        rows.append((FIGURES[name], measured(value, name), span))
    what = "nine in ten replications" if contents.kind == "study" else "in other replications"
    lines = [line] if (line := price_line(of_plan)) else []
    return _part(heading, lines, ("figure", "expected", what), rows)


def _figures(contents: Contents, plan: str) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Return the board's figures of the plan to take, each with its interval where there is one."""
    if (percentiles := contents.table("percentiles")) is not None:
        statistics = {name: study_report.statistics_of(percentiles, name).get(plan, {}) for name in FIGURES}
        none = study_report.NO_FIGURE
        return {
            name: (row["mean"][0], row.get("p5", none)[0], row.get("p95", none)[0])
            for name, row in statistics.items()
            if "mean" in row
        }
    plans = [plan for plan, _ in comparison_report.swept_plans(contents)]
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


def _cash(contents: Contents, of_plan: Contents, plan: str) -> Section:
    heading = f"Cash by year, {plan}" if plan else "Cash by year"
    if contents.kind == "size" and (bought := contents.table("plan")) is not None:
        sums: dict[str, float] = defaultdict(float)
        for date, usd in bought.rows("date", totals=["capital_usd"]):
            sums[date[:4]] += usd
        said = "Nodes alone, by the year of their order; planner run plan.yaml gives the rest."
        paid = [(year, dollars(usd)) for year, usd in sorted(sums.items())]
        return _part(heading, [said], ("year", "nodes"), paid)
    ledger = of_plan.table("ledger")
    if ledger is None:
        return _part(heading)
    years = cash_by_year(ledger)
    columns = list(next(iter(years.values()), {}))
    total = {name: sum(row[name] for row in years.values()) for name in columns}
    rows = [(year, *(dollars(row[name]) for name in columns)) for year, row in [*years.items(), ("all", total)]]
    one = ["As the plan is stated, in one replication."] if contents.kind == "study" else []
    return _part(heading, one, ("year", *columns), rows)


def _alternatives(contents: Contents) -> Section:
    """Return what else there is: plans that keep their promise beside it, and those that do not."""
    heading = "Alternatives at equal service"
    rows: list[Sequence[str]] = []
    match contents.kind:
        case "comparison" | "study":
            choice = study_report.judged(contents)[1] if contents.kind == "study" else _compared(contents)
            output = study_report.headline_of(contents) if contents.kind == "study" else judgement.COST
            sign = -1.0 if output in HIGHER_IS_BETTER else 1.0
            for plan in choice.ranked[:SHOWN]:
                cost = None if plan.cost is None else sign * plan.cost
                kept = "kept" if plan.keeps_promise else f"short by {judgement.points(plan.shortfall_fraction)}"
                shown = (kept, percent(plan.in_time_fraction, 2), measured(cost, output))
                rows.append((plan.name, *shown, *books(contents, plan.name)))
            cheaper = f"accelerators {percent(PRICE_FALL, 0)} cheaper"
            header = ("plan", "promise", "in time", study_report.spoken(output), "as stated, in the books", cheaper)
            lines = ["What breaks its promise is no alternative, however cheap."] if choice.breaking else []
            return _part(heading, lines, header, rows)
        case "sweep":
            best = judgement.frontier([plan for plan, _ in comparison_report.swept_plans(contents)])[-SHOWN:]
            rows += [
                (plan.name, plan.standing, percent(plan.worst_fraction, 2), unit_price(plan.cost)) for plan in best
            ]
            titles = ("no other beats", "promise", "worst in time", "per million tokens, levelised")
            return _part("Cost against service", [], titles, rows)
        case "size":
            lines = [str(line) for line in contents.summary.get("sentences", ())[2:SHOWN]]
            return _part(heading, lines)
    said = "One plan alone: planner compare holds it against another, on the same traffic and the same luck."
    return _part(heading, [said])


def _hangs(contents: Contents, plan: str) -> list[str]:
    rows, output = study_report.rows_of(contents), study_report.headline_of(contents)
    panels = list(study_report.panels(rows)) if rows else []
    first = next((panel for panel in panels if (panel.scenario, panel.against) == (plan, "")), None)
    if first is None:
        if contents.kind in ("run", "comparison", "size"):
            return ["Not measured here: planner sensitivity draws what is uncertain, and ranks it."]
        return []
    title = f"{first.title}, {study_report.spoken(output)}"
    swings = [
        f"{input_words(name)}: {measured(min(low, high), output)} to {measured(max(low, high), output)}"
        + (" (no more than noise)" if name in first.noise else "")
        for name, low, high in first.longest(SHOWN - 1)
    ]
    return [f"{title}: {'; '.join(swings)}."]


def _risks(contents: Contents, of_plan: Contents) -> list[str]:
    summary = contents.summary
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


def _assumptions(contents: Contents) -> Section:
    heading, table = "What it rests on", contents.table("assumptions")
    if table is None:
        return _part(heading)
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
    return _part(heading, [said], ("input", "value", "grade"), shown)


def _again(contents: Contents) -> list[str]:
    manifest = contents.manifest
    version = manifest.get("version", manifest.get("identity", {}).get("version"))
    return [f"{shlex.join(map(str, manifest.get('command', ())))} (version {version})"]


def cash_by_year(ledger: Table) -> dict[str, dict[str, float]]:
    """Return cash paid by year: for purchases, running, received by sales and resale, and in all; USD."""
    cash = {account.value for account in ACCOUNT_ORDER if View.CASH in account.views}
    years: dict[str, dict[str, float]] = {}
    for month, account, amount in ledger.rows("month", "account", totals=["amount_usd"]):
        row = years.setdefault(month[:4], {"purchases": 0.0, "running": 0.0, "received": 0.0, "paid in all": 0.0})
        if account in cash:
            kind = "purchases" if account in BOUGHT else "received" if amount < 0 else "running"
            row[kind] += amount
            row["paid in all"] += amount
    return years


def price_effect(contents: Contents, fall: float) -> tuple[float, float] | None:
    """Return what purchases and accrued cost lose, USD, where accelerators cost a share less; None without purchases.

    Of each cluster's capital and of the accounts that are a share of it (depreciation, cost of capital, maintenance,
    insurance) the accelerators' part falls. Machines owned before the start were paid long ago.
    """
    ledger, assumptions = contents.table("ledger"), contents.table("assumptions")
    if ledger is None:
        return None
    paths = assumptions.texts("path") if assumptions is not None else []
    bought = accrued = 0.0
    for cluster, by_account in ledger.sums("cluster", "account", "amount_usd").items():
        capital = sum(by_account[account] for account in BOUGHT)
        if capital <= 0.0 or any(path.startswith(f"clusters.{cluster}.owned") for path in paths):
            continue
        accelerators = by_account[Account.CAPEX_ACCELERATORS] * fall
        bought += accelerators
        accrued += accelerators / capital * sum(by_account[account] for account in FOLLOW_THE_PRICE)
    return (bought, accrued) if bought else None


def _tokens(contents: Contents) -> float:
    monthly = contents.table("timeline_monthly")
    return sum(monthly.where("cluster", FLEET).totals("served_tokens")) if monthly is not None else 0.0


def books(contents: Contents, plan: str) -> tuple[str, str]:
    """Return a plan's cost per million tokens in the books, as it is and with accelerators a fifth cheaper."""
    if plan not in contents.plans or not (tokens := _tokens(of_plan := contents.of_plan(plan)) / 1e6):
        return NOTHING, NOTHING
    cost = sum(account_totals(of_plan).values())
    _, less = price_effect(of_plan, PRICE_FALL) or (0.0, 0.0)
    return unit_price(cost / tokens), unit_price((cost - less) / tokens)


def price_line(of_plan: Contents) -> str:
    """Say what the plan would cost if accelerators cost a fifth less."""
    effect, tokens = price_effect(of_plan, PRICE_FALL), _tokens(of_plan)
    if effect is None or not tokens:
        return ""
    bought, accrued = effect
    return (
        f"If accelerators cost {percent(PRICE_FALL, 0)} less, purchases fall by {dollars(bought)} and the cost in the "
        f"books by {dollars(accrued)}, {unit_price(accrued / tokens * 1e6)} per million tokens, before tax."
    )


def write_memo(folder: str | os.PathLike[str]) -> list[Path]:
    """Write memo.md and memo.html of any output folder from the files in it, as ``planner memo`` does."""
    folder = Path(folder)
    contents = read_contents(folder)
    title = f"{contents.name}: memo"
    with fitting(str(folder)):
        sections = memo_sections(contents)
        files = {MARKDOWN: markdown(title, sections).encode(), PAGE: memo_page(title, sections)}
    change_files(folder, files)
    return [folder / name for name in files]
