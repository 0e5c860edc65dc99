"""Several plans side by side in one report: what each did, with the sections of its own run folded below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from planner.output.judgement import choose
from planner.output.report import run_sections, timelines
from planner.output.report.compare_sections import judged as compared
from planner.output.report.contents import Contents
from planner.output.report.html import Html, Part, bar_table, details, group, join, legend, paragraph
from planner.output.report.page import Section
from planner.output.report.study_sections import judged
from planner.output.report.words import NOTHING, dollars, percent

STUDY = "study"


def single(make: Callable[[Contents], Section | None]) -> Callable[[Contents], Section | None]:
    """Return a run's section for folders of one run alone; plans side by side have it folded, one for each."""
    return lambda contents: None if contents.plans else make(contents)


def _plan_by_plan(contents: Contents, make: Callable[[Contents], Section | None], title: str) -> Html:
    """Return one run's section for each plan, folded; that of the plan to take is open, and comes first."""
    ranked = (judged(contents)[1] if contents.kind == STUDY else choose(compared(contents)[1])).ranked
    first = ranked[0].name if ranked else ""
    folded: list[Html] = []
    for plan in sorted(contents.plans, key=lambda name: name != first):
        section = make(contents.of_plan(plan))
        if section is not None:
            folded.append(details(f"{title}: {plan}", section.body, class_="plan", is_open=not folded))
    return join(folded, "\n")


def _chance(contents: Contents) -> str:
    """Say which luck the plans had."""
    if contents.kind == STUDY:
        return "Below, each plan as it is stated, run once: one replication of the many, to see what is inside it."
    return "Below, each plan by itself, under the traffic and the luck that all of them had."


def timeline_section(contents: Contents) -> Section | None:
    """Return every plan's own timelines by cluster and workload, with its events."""
    if not contents.plans:
        return None
    body = join(
        [paragraph(_chance(contents)), _plan_by_plan(contents, timelines.timeline_section, "Clusters and workloads")]
    )
    return Section(key="time", body=body)


def money_section(contents: Contents) -> Section | None:
    """Return accrued cost by account, plans side by side, and each plan's own below."""
    plans = contents.plans
    totals = {plan: run_sections.account_totals(contents.of_plan(plan)) for plan in plans}
    if not any(totals.values()):
        return None
    accounts = {account for sums in totals.values() for account in sums}
    order = sorted(accounts, key=lambda account: -max(sums.get(account, 0.0) for sums in totals.values()))
    palette = timelines.colours(plans)
    longest = max((sums.get(a, 0.0) for a in order for sums in totals.values()), default=0.0) or 1.0
    rows: list[tuple[str, list[str], Html]] = []
    for account in order:
        parts = [
            Part(name=plan, share=sums.get(account, 0.0) / longest, colour=palette[plan],
                 shown=dollars(sums.get(account)))
            for plan, sums in totals.items()
        ]  # fmt: skip
        cells = [dollars(sums[account]) if account in sums else NOTHING for sums in totals.values()]
        rows.append((run_sections.words_of(account), cells, group(parts)))
    rows.append(("all of it", [dollars(sum(sums.values())) for sums in totals.values()], Html("")))
    table = bar_table(("account", *plans, "side by side"), rows, "Accrued cost by account and scenario")
    body = [legend([(plan, palette[plan]) for plan in plans]), table, paragraph(_chance(contents))]
    body.append(_plan_by_plan(contents, run_sections.money_section, "Accounts and months"))
    return Section(key="money", body=join(body))


def losses_section(contents: Contents) -> Section | None:
    """Return what became of the node-hours on site, plans side by side, and each plan's own below."""
    by_plan: dict[str, dict[str, float]] = {}
    for plan in contents.plans:
        lost = run_sections.node_hours(contents.of_plan(plan))
        if lost is not None:
            sums: dict[str, float] = defaultdict(float)
            for row in lost.values():
                for name, hours in row.items():
                    sums[name] += hours
            by_plan[plan] = sums
    if not by_plan:
        return None
    names = list(dict.fromkeys(name for row in by_plan.values() for name in row))
    body = [run_sections.loss_table(by_plan, names, "scenario"), _lost(by_plan, names), paragraph(_chance(contents))]
    body.append(_plan_by_plan(contents, run_sections.losses_section, "Clusters and causes"))
    return Section(key="losses", body=join(body))


def _lost(by_plan: dict[str, dict[str, float]], names: Sequence[str]) -> Html:
    """Say in a sentence which plan lost least."""
    lost_names = [name for name in names if name not in ("at work", run_sections.IDLE)]
    shares = {plan: sum(row[name] for name in lost_names) / (sum(row.values()) or 1.0) for plan, row in by_plan.items()}
    least, most = min(shares, key=lambda plan: shares[plan]), max(shares, key=lambda plan: shares[plan])
    if least == most or shares[least] == shares[most]:
        return Html("")
    return paragraph(
        f"{least} lost least to failures, software, outages and the power cap, {percent(shares[least], 2)} of its "
        f"node-hours; {most} lost most, {percent(shares[most], 2)}."
    )
