"""The sections of a sizing: the frontier of cost against service first, then the plan and why it is this one."""

from __future__ import annotations

from planner.output.report.contents import Contents
from planner.output.report.html import Part, bar_table, join, paragraph, table
from planner.output.report.page import Section, code
from planner.output.report.words import NOTHING, dollars, percent, unit_price


def answer_section(contents: Contents) -> Section | None:
    """Return the frontier, the plan, and what there is to say of it."""
    frontier, plan, summary = contents.table("frontier"), contents.table("plan"), contents.json("summary.json")
    if frontier is None or plan is None or contents.kind != "size":
        return None
    shown = unit_price if summary.get("objective") == "levelised" else dollars
    longest = max(frontier.totals("cost"), default=0.0) or 1.0
    rows = [
        (
            f"{bought}{' (the answer)' if answer == 'true' else ''}",
            [shown(cost), percent(service, 2), percent(kept, 0)],
            [Part(name="cost", share=cost / longest, colour=0 if answer == "true" else 1, shown=shown(cost))],
        )
        for bought, answer, service, kept, cost in frontier.rows(
            "plan", "is_answer", numbers=("in_time_fraction", "kept_fraction"), totals=["cost"]
        )
    ]
    said = [str(sentence) for sentence in summary.get("sentences", ())]
    columns = ("cluster", "accelerator", "date", "nodes", "breaks_month", "breaks_workload")
    bought_rows = [
        (*cells, dollars(usd), month or NOTHING, load or NOTHING)
        for *cells, month, load, usd in plan.rows(*columns, numbers=["capital_usd"])
    ]
    body = [
        *(paragraph(sentence, class_="headline") for sentence in said[:1]),
        bar_table(
            ("plan", "cost", "in time", "kept", ""), rows, "Cost against service: plans that no other found beats"
        ),
        *(paragraph(sentence) for sentence in said[1:]),
        table(
            ("cluster", "part", "date", "nodes", "paid", "breaks with one fewer", "workload"),
            bought_rows,
            "What to buy",
            numeric=(3, 4),
        ),
        paragraph("The plan lies beside this report and runs as it is: ", code("planner run plan.yaml"), "."),
    ]
    return Section(key="answer", asks="What to buy, and when", body=join(body, "\n"))


def months_section(contents: Contents) -> Section | None:
    """Return what binds in each month."""
    months = contents.table("months")
    if months is None or contents.kind != "size":
        return None
    rows = [
        (month, load, percent(share, 2), percent(used), binds)
        for month, load, binds, share, used in months.rows(
            "month", "workload", "binds", numbers=("in_time_fraction", "utilisation_fraction")
        )
    ]
    header = ("month", "workload", "in time", "utilised", "what binds")
    month_table = table(header, rows, "The workload with the least share in time, month by month", numeric=(2, 3))
    return Section(key="time", asks="What binds in each month", body=month_table)


def review_section(contents: Contents) -> Section | None:
    """Return what a review is worth, and what is bought on what is seen there."""
    review, levels = contents.table("review"), contents.table("levels")
    if review is None or levels is None or contents.kind != "size":
        return None
    shown = unit_price if contents.json("summary.json").get("objective") == "levelised" else dollars
    amounts = ("cost", "review_saves", "review_saves_low", "review_saves_high", "kept_fraction")
    ways = [
        (name, *(NOTHING if cell is None else shown(cell) for cell in costs), percent(kept, 0), plan)
        for name, plan, *costs, kept in review.rows("decided", "plan", numbers=amounts)
    ]
    shares = ("replications_fraction", "forecast_low_ratio", "forecast_high_ratio")
    seen = [
        (level, percent(share), "late" if late == "true" else "as promised", f"{percent(low)} to {percent(high)}", plan)
        for level, late, plan, share, low, high in levels.rows("level", "late", "plan", numbers=shares)
    ]
    header = ("decided", "cost", "the review saves", "at least", "at most", "kept", "plan")
    below = ("level", "of replications", "deliveries", "forecast of the mean one", "plan")
    body = [
        table(header, ways, "Ways to decide, on the same fresh replications (95% interval)", numeric=(1, 2, 3, 4, 5)),
        table(below, seen, "What may be seen at the review, and what is bought on it", numeric=(0, 1)),
    ]
    return Section(key="review", asks="Now or later", body=join(body, "\n"))
