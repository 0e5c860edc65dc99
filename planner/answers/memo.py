"""The memo for the board: two pages of any output folder that decides something, as Markdown and as HTML."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.answers import comparison_report, judgement, run_report, size_report, study_report
from planner.answers.timelines import demand_chart
from planner.errors import Problem, ScenarioError
from planner.files import change_files
from planner.finance.ledger import ACCOUNT_ORDER, Account, View
from planner.output.blocks import Grid, Picture, Section, sentences
from planner.output.folder import Contents, fitting, read_contents
from planner.output.html import markdown, memo_page
from planner.output.svg import picture_of
from planner.output.tables import Table
from planner.output.words import (
    NOTHING,
    dollars,
    input_words,
    measured,
    percent,
    spoken,
    unit_price,
)
from planner.run.measure_names import HIGHER_IS_BETTER

MARKDOWN = "memo.md"
PAGE = "memo.html"
NEEDED = {"comparison": "comparison", "sweep": "sweep", "study": "percentiles", "size": "plan"}
"""Folders that decide something, and the table without which they do not."""
FIGURES = {
    judgement.COST: "per million tokens, levelised",
    "cost_per_million_tokens_usd": "per million tokens, incl. capital charge",
    "pl_cost_usd": "P&L cost",
    "cost_usd": "cost incl. capital charge",
    "capex_usd": "purchases",
    "cash_usd": "cash paid",
    "npv_usd": "net present value",
    "resale_pv_usd": "of which resale of used hardware",
    run_report.BARE: "per million tokens, levelised, if it fetched nothing",
    judgement.ATTAINED: "SLO attainment",
}
"""The figures of a plan that a board asks for."""
SHOWN = 6
"""Rows of a table, and sentences of a list, that leave the memo on two pages."""


def _part(
    heading: str,
    lines: Sequence[str] = (),
    header: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
) -> Section:
    """Return one heading of the memo: sentences, then a table where there is one."""
    table = [Grid(caption=heading, header=header, rows=rows)] if rows else []
    return Section(key="memo", title=heading, blocks=[*sentences(lines), *table])


def has_memo(contents: Contents) -> bool:
    """Say whether a folder decides something that a memo could say."""
    if contents.kind == "run":
        return "clusters" in contents.summary
    return bool(contents.table(NEEDED.get(contents.kind, "")))


def memo_sections(contents: Contents) -> list[Section]:
    """Return the memo of a run's, comparison's, sweep's, study's or sizing's folder; raise ScenarioError for others."""
    kind = contents.kind
    summary = contents.summary
    manifest = contents.manifest
    if not has_memo(contents):
        message = f"a folder of {kind} decides nothing that a memo could say"
        raise ScenarioError(
            Problem(message=message, hint="give that of a run, comparison, sweep, study or sizing")
        )
    plan = ""
    beside = "Alternatives at equal service"
    target = list[str]()
    others = list[str]()
    header = tuple[str, ...]()
    rows = list[tuple[str, ...]]()
    match kind:
        case "run":
            span = f"over {summary['horizon_months']} months from {summary['start']}"
            question = (
                f"Does the plan {contents.name} meet its SLO target {span}, and what does it cost?"
            )
            status = summary["verdict"]["status"]
            lead = {"MET": "Yes: SLO MET.", "MISSED": "No: SLO MISSED."}.get(
                status, "Not known yet: SLO INCONCLUSIVE."
            )
            answer = [f"{lead} {run_report.objective(summary)}", *run_report.verdict(summary)[1:]]
            target = [judgement.verdict_line(summary["verdict"]), _runs_out(summary["verdict"])]
            others = [
                "One plan alone: `planner compare` holds it against another, under the same random numbers."
            ]
        case "sweep":
            points = [point for point, _ in comparison_report.swept_plans(contents)]
            varied = " and ".join(map(input_words, manifest["vary"]))
            question = f"Which values of {varied} are best for {contents.name}?"
            answer = [judgement.sweep_advice(judgement.choose(points))]
            target = [
                f"Target: {judgement.target_words(manifest['slo_target'])}. One replication: no verdict."
            ]
            beside = "Cost against service"
            header = ("no other beats", "base case", "SLO lowest", FIGURES[judgement.COST])
            rows = [
                (
                    point.name,
                    point.standing,
                    percent(point.worst_fraction, 2),
                    unit_price(point.cost),
                )
                for point in judgement.frontier(points)[-SHOWN:]
            ]
        case "size":
            said = judgement.target_words(summary["verdict"])
            question = f"What to buy for {contents.name}, and when, to attain {said} at least cost?"
            lines = [str(line) for line in summary["sentences"]]
            answer = lines[:1]
            target = lines[1:2]
            others = lines[2:SHOWN]
        case "comparison":
            figures, plans, baseline = comparison_report.judged(contents)
            choice = judgement.choose(plans)
            output = judgement.COST
            plan = choice.ranked[0].name
            question = f"Which of these plans to take: {', '.join(figures)}?"
            answer = [judgement.recommendation(plans, baseline, summary)]
            record = summary["verdicts"][plan]
            target = [f"{plan}: {judgement.verdict_line(record)}", _runs_out(record)]
        case _:
            (statistics, choice), output = (
                study_report.judged(contents),
                study_report.objective_of(contents),
            )
            plan = choice.ranked[0].name if choice.ranked else ""
            inputs = contents.table("uncertain")
            which = (
                f"which of {', '.join(statistics)} to take"
                if len(statistics) > 1
                else f"what {plan} comes to"
            )
            question = f"Not knowing {len(inputs) if inputs is not None else 'any'} inputs for certain, {which}?"
            answer = [study_report.advice(contents)]
            if record := study_report.verdicts_of(contents).get(plan, {}):
                target = [f"{plan}: {judgement.verdict_line(record)}"]
    if kind in ("comparison", "study"):
        sign = -1.0 if output in HIGHER_IS_BETTER else 1.0
        for one in choice.ranked[:SHOWN]:
            cost = None if one.cost is None else sign * one.cost
            rows.append(
                (
                    one.name,
                    one.standing,
                    percent(one.slo_attainment_fraction, 2),
                    measured(cost, output),
                )
            )
        header = ("plan", "SLO", "attained", spoken(output))
        others = judgement.inconclusive_lines(choice.ranked)
        others += judgement.resale_lines(summary.get("scenarios", {}), manifest.get("baseline", ""))
        others += (
            ["A plan that is MISSED is no alternative, however cheap."] if choice.breaking else []
        )
    of_plan = contents.of_plan(plan) if plan in contents.plans else contents
    version = manifest.get("version", manifest.get("identity", {}).get("version"))
    parts = [
        _part("Question", [question]),
        Section(key="memo", title="Answer", blocks=[*sentences(answer), *_chart(contents)]),
        _part("SLO target", target),
        _cost(contents, plan),
        _part(
            "Reconciliation of cost", (), ("line", "USD"), run_report.reconciliation_rows(summary)
        ),
        _accounts(contents, plan),
        _part("Unit economics", (), run_report.UNITS, run_report.unit_rows(of_plan)[:SHOWN]),
        _cash(contents, of_plan, plan),
        _part(beside, others, header, rows),
        _part("Sensitivities", _hangs(contents, plan)),
        _part("Risks", _risks(contents, of_plan)),
        _assumptions(contents),
        _part(
            "Reproduce",
            [f"{shlex.join(map(str, manifest.get('command', ())))} (version {version})"],
        ),
    ]
    return [part for part in parts if part.blocks]


def _chart(contents: Contents) -> list[Picture]:
    """Return the one chart of a memo: demand, cost by account, the spread of replications or cost against service."""
    drawn = {
        "run": demand_chart,
        "comparison": comparison_report.costs_picture,
        "sweep": comparison_report.frontier_picture,
        "size": size_report.frontier_picture,
    }.get(contents.kind, study_report.spread_picture)(contents)
    return [] if drawn is None else [picture_of(drawn)]


def _runs_out(record: Mapping[str, Any]) -> str:
    """Say in which month a plan runs out of capacity for its SLO target."""
    month = record["first_missed_month"]
    return f"It runs out in {month}." if month else "It does not run out before the horizon ends."


def _cost(contents: Contents, plan: str) -> Section:
    heading = f"Cost of {plan}" if plan else "Cost"
    summary = contents.summary
    if contents.kind == "size":
        cost = dollars(summary["net_present_cost_usd"])
        nodes = dollars(summary["capital_usd"])
        used = f"Utilisation {percent(summary['utilisation_fraction'], 0)} in the mean."
        return _part(heading, [f"Net present cost {cost}, of which {nodes} for nodes. {used}"])
    rows = []
    for name, (value, low, high) in _figures(contents, plan).items():
        ends = [measured(end, name) for end in (low, high) if end is not None]
        rows.append(
            (FIGURES[name], measured(value, name), " to ".join(dict.fromkeys(ends)) or NOTHING)
        )
    what = "nine in ten replications" if contents.kind == "study" else "in other replications"
    return _part(
        heading, (), ("figure", "mean" if contents.kind == "study" else "base case", what), rows
    )


def _figures(contents: Contents, plan: str) -> dict[str, study_report.Figure]:
    """Return the board's figures of the plan to take, each with its interval where there is one."""
    if (percentiles := contents.table("percentiles")) is not None:
        known = {name: study_report.statistics_of(percentiles, name)[plan] for name in FIGURES}
        return {
            name: (row["mean"][0], row["p5"][0], row["p95"][0])
            for name, row in known.items()
            if "mean" in row
        }
    plans = [plan for plan, _ in comparison_report.swept_plans(contents)]
    if (swept := contents.table("sweep")) is not None and plans:
        place = plans.index(judgement.choose(plans).ranked[0])
        return {name: (swept.numbers(name)[place], None, None) for name in FIGURES if name in swept}
    table = contents.table("measures") or contents.table("comparison")
    if table is None:
        return {}
    table = table.where("scenario", plan) if plan else table
    rows = table.rows("measure", numbers=("value", "low", "high"))
    values = {name: (value, low, high) for name, value, low, high in rows if value is not None}
    return {name: values[name] for name in FIGURES if name in values}


def _accounts(contents: Contents, plan: str) -> Section:
    """Return the accounts that most of the difference to the baseline's net present cost lies in, and the rest."""
    if not (bridge := contents.table("bridge_accounts")):
        return _part("")
    plan = plan if plan in (others := bridge.texts("scenario")) else others[0]
    heading = f"{plan} less {contents.manifest['baseline']}, by account"
    sums = bridge.where("scenario", plan).summed("account", "difference_usd")
    steps = dict(sorted(sums.items(), key=lambda item: -abs(item[1]))[: SHOWN - 1])
    steps |= {
        "all others": sum(sums.values()) - sum(steps.values()),
        "net present cost": sum(sums.values()),
    }
    return _part(
        heading,
        (),
        ("account", "USD"),
        [(name.replace("_", " "), dollars(n)) for name, n in steps.items()],
    )


def _cash(contents: Contents, of_plan: Contents, plan: str) -> Section:
    heading = f"Cash by year, {plan}" if plan else "Cash by year"
    if contents.kind == "size":
        sums: dict[str, float] = defaultdict(float)
        for date, usd in contents.tables["plan"].rows("date", totals=["capital_usd"]):
            sums[date[:4]] += usd
        said = "Nodes alone, by the year of their order; planner run policy.yaml gives the rest."
        return _part(
            heading,
            [said],
            ("year", "nodes"),
            [(year, dollars(usd)) for year, usd in sorted(sums.items())],
        )
    if (ledger := of_plan.table("ledger")) is None:
        return _part(heading)
    years = cash_by_year(ledger)
    columns = list(next(iter(years.values()), {}))
    total = {name: sum(row[name] for row in years.values()) for name in columns}
    rows = [
        (year, *(dollars(row[name]) for name in columns))
        for year, row in [*years.items(), ("all", total)]
    ]
    one = ["As the plan is stated, in one replication."] if contents.kind == "study" else []
    return _part(heading, one, ("year", *columns), rows)


def _hangs(contents: Contents, plan: str) -> list[str]:
    output = study_report.objective_of(contents)
    panels = study_report.panels(study_report.rows_of(contents))
    first = next((panel for panel in panels if (panel.scenario, panel.against) == (plan, "")), None)
    if first is None:
        told = "Not measured here: planner sensitivity draws what is uncertain, and ranks it."
        return [told] if contents.kind in ("run", "comparison", "size") else []
    clear = [swing for swing in first.longest(SHOWN - 1) if swing[0] not in first.noise]
    swings = [
        f"{input_words(name)}: {measured(min(low, high), output)} to {measured(max(low, high), output)}"
        for name, low, high in clear
    ]
    if not swings:
        return ["No single input stands out of the sampling noise: run more replications (-n)."]
    return [f"{first.title}, {spoken(output)}: {'; '.join(swings)}."]


def _risks(contents: Contents, of_plan: Contents) -> list[str]:
    summary = contents.summary
    told = (
        *summary.get("warnings", ()),
        *contents.manifest.get("warnings", ()),
        *summary.get("notes", ()),
    )
    lines = [str(line) for line in told]
    if contents.kind == "study" and (listed := of_plan.table("warnings")) is not None:
        lines += listed.texts("text")
    if (delivered := of_plan.table("events")) is not None and "delivered" in delivered.texts(
        "event"
    ):
        lines.append(
            "A delivery that comes late serves nobody meanwhile: ask what the plan does a quarter later."
        )
    return [*dict.fromkeys(lines)][:SHOWN]


def _assumptions(contents: Contents) -> Section:
    heading = "Assumptions"
    table = contents.table("assumptions")
    if table is None:
        return _part(heading)
    rows = list(dict.fromkeys(table.rows("path", "value", "unit", "grade")))
    counts = Counter(grade for *_, grade in rows)
    told = ", ".join(
        f"{number} {grade}" for grade, number in sorted(counts.items()) if len(grade) == 1
    )
    said = (
        f"{counts['user']} values stated, {counts['default']} defaults; of the catalogue's by grade: {told} (A a "
        "datasheet or a log, B a credible report, C derived, D assumed). Assumed values, to be replaced first:"
    )
    weak = [row for row in rows if row[3] == "D"]
    weak = [row for row in weak if "usd" in row[0]] + [row for row in weak if "usd" not in row[0]]
    shown = [(path, f"{value} {unit}".strip(), grade) for path, value, unit, grade in weak[:SHOWN]]
    return _part(heading, [said], ("input", "value", "grade"), shown)


def cash_by_year(ledger: Table) -> dict[str, dict[str, float]]:
    """Return cash paid by year: for purchases, running, received by sales and resale, and in all; USD."""
    cash = {account.value for account in ACCOUNT_ORDER if View.CASH in account.views}
    years: dict[str, dict[str, float]] = {}
    for month, account, amount in ledger.rows("month", "account", totals=["amount_usd"]):
        row = years.setdefault(
            month[:4], {"purchases": 0.0, "running": 0.0, "received": 0.0, "paid in all": 0.0}
        )
        if account in cash:
            is_income = account == Account.RECEIVABLES or (
                amount < 0 and account != Account.PAYABLES
            )
            kind = (
                "purchases"
                if account.startswith("capex_")
                else "received"
                if is_income
                else "running"
            )
            row[kind] += amount
            row["paid in all"] += amount
    return years


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
