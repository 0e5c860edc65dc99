"""What reports of several plans show of them side by side, and of each plan by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from planner.answers import run_report, timelines
from planner.answers.ranking import Ranking
from planner.answers.sections import section
from planner.output.blocks import Block, Folded, Grid, Section, Sentence
from planner.output.folder import Contents
from planner.output.words import dollars

AS_STATED = "Below: one replication of each plan, all under the same random numbers."


def _plan_by_plan(
    contents: Contents,
    ranking: Ranking,
    section_of: Callable[[Contents], Section | None],
    title: str,
) -> list[Block]:
    """Return one run's section for each plan, folded but for that of the plan to take."""
    preferred = ""
    if ranking.plans:
        preferred = ranking.plans[0].name
    blocks: list[Block] = [Sentence(text=AS_STATED)]
    # Stable: the plan to take first, the others in the order of the file.
    for plan in sorted(contents.plans, key=lambda name: name != preferred):
        plan_section = section_of(contents.of_plan(plan))
        if plan_section is not None:
            is_open = len(blocks) == 1  # nothing but the lead stands before it
            blocks.append(
                Folded(f"{title}: {plan}", plan_section.blocks, is_open=is_open, css="plan")
            )
    return blocks


def timeline_section(contents: Contents, ranking: Ranking) -> Section | None:
    """Return every plan's timelines by cluster and workload, with its events."""
    if not contents.plans:
        return None
    title = "Clusters and workloads"
    return section("time", _plan_by_plan(contents, ranking, timelines.timeline_section, title))


def money_section(contents: Contents, ranking: Ranking) -> Section | None:
    """Return accrued cost by account, of the plans side by side, and each plan's own below."""
    totals = {plan: run_report.account_totals(contents.of_plan(plan)) for plan in contents.plans}
    if not any(totals.values()):
        return None
    rows = []
    # Ranked over all plans together, so that accounts stand in one order.
    for account in run_report.largest_first(run_report.account_sums(contents)):
        cells = (dollars(sums.get(account)) for sums in totals.values())
        rows.append((account.replace("_", " "), *cells))
    plan_totals = (sum(sums.values()) for sums in totals.values())
    in_all = map(dollars, plan_totals)
    rows.append(("all of it", *in_all))
    grid = Grid(
        caption="Accrued cost by account and scenario",
        header=("account", *totals),
        rows=rows,
        numeric=range(1, 1 + len(totals)),
    )
    title = "Accounts and months"
    return section(
        "money", [grid, *_plan_by_plan(contents, ranking, run_report.money_section, title)]
    )


def losses_section(contents: Contents, ranking: Ranking) -> Section | None:
    """Return what became of node-hours, of the plans side by side, and each plan's own below."""
    by_plan: dict[str, dict[str, float]] = {}
    for plan in contents.plans:
        for by_use in run_report.node_hours(contents.of_plan(plan)).values():
            sums = by_plan.setdefault(plan, defaultdict(float))
            for use, hours in by_use.items():
                sums[use] += hours
    if not by_plan:
        return None
    grid = run_report.node_hours_grid(by_plan, "scenario")
    title = "Clusters and causes"
    return section(
        "losses", [grid, *_plan_by_plan(contents, ranking, run_report.losses_section, title)]
    )
