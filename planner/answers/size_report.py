"""The sections of a sizing: the frontier of cost against service first, then the plan and why it is this one."""

from __future__ import annotations

from planner.answers.sections import section
from planner.output.blocks import BarPart, Block, Grid, Section, Sentence, bar_grid, sentences
from planner.output.folder import Contents
from planner.output.words import NOTHING, dollars, percent, unit_price


def answer_section(contents: Contents) -> Section:
    """Return the frontier, the plan, and what there is to say of it."""
    frontier, plan, summary = contents.tables["frontier"], contents.tables["plan"], contents.summary
    shown = unit_price if summary["objective"] == "levelised" else dollars
    longest, rows = max(frontier.totals("objective_usd"), default=0.0) or 1.0, []
    shares = ("slo_attainment_fraction", "slo_met_fraction")
    plans = frontier.rows("plan", "is_answer", numbers=shares, totals=["objective_usd"])
    for bought, answer, service, kept, cost in plans:
        named, colour = (f"{bought} (the answer)", 0) if answer == "true" else (bought, 1)
        bar = BarPart(name="cost", share=cost / longest, colour=colour, shown=shown(cost))
        rows.append((named, [shown(cost), percent(service, 2), percent(kept, 0)], [bar]))
    caption = "Cost against service: plans that no other found beats"
    said = [str(sentence) for sentence in summary["sentences"]]
    columns = ("cluster", "accelerator", "date", "nodes", "breaks_month", "breaks_workload")
    bought_rows = [
        (*cells, dollars(usd), month or NOTHING, load or NOTHING)
        for *cells, month, load, usd in plan.rows(*columns, numbers=["capital_usd"])
    ]
    header = ("cluster", "accelerator", "date", "nodes", "paid", "breaks with one fewer", "workload")
    blocks: list[Block] = [
        *sentences(said[:1], "headline"),
        bar_grid(("plan", "cost", "attained", "P(met)", ""), rows, caption),
        *sentences(said[1:]),
        Grid(caption="What to buy", header=header, rows=bought_rows, numeric=(3, 4)),
        Sentence(text="The plan lies beside this report and runs as it is: `planner run plan.yaml`."),
    ]
    return section("answer", blocks)


def months_section(contents: Contents) -> Section:
    """Return what binds in each month."""
    shares = ("slo_attainment_fraction", "utilisation_fraction")
    months = contents.tables["months"].rows("month", "workload", "binding_constraint", numbers=shares)
    rows = [(month, load, percent(share, 2), percent(used), binds) for month, load, binds, share, used in months]
    header = ("month", "workload", "SLO lowest", "utilised", "binding constraint")
    caption = "The workload with the lowest SLO attainment, month by month"
    grid = Grid(caption=caption, header=header, rows=rows, numeric=(2, 3))
    return section("time", [grid], "Binding constraints by month")


def review_section(contents: Contents) -> Section | None:
    """Return what a review is worth, and what is bought on what is seen there; nothing without a review."""
    if "review" not in contents.tables:
        return None
    shown = unit_price if contents.summary["objective"] == "levelised" else dollars
    amounts = ("objective_usd", "review_saves", "review_saves_low", "review_saves_high", "slo_met_fraction")
    ways = [
        (name, *(shown(cost) for cost in costs), percent(kept, 0), plan)
        for name, plan, *costs, kept in contents.tables["review"].rows("decided", "plan", numbers=amounts)
    ]
    shares = ("replications_fraction", "forecast_low_ratio", "forecast_high_ratio")
    branches = contents.tables["branches"].rows("branch", "late", "plan", numbers=shares)
    seen = [
        (level, percent(share), "late" if late == "true" else "on time", f"{percent(low)} to {percent(high)}", plan)
        for level, late, plan, share, low, high in branches
    ]
    header = ("decided", "cost", "the review saves", "at least", "at most", "kept", "plan")
    below = ("level", "of replications", "deliveries", "forecast of the mean one", "plan")
    decided = "Ways to decide, on the same fresh replications (95% interval)"
    bought = "What may be seen at the review, and what is bought on it"
    blocks = [
        Grid(caption=decided, header=header, rows=ways, numeric=(1, 2, 3, 4, 5)),
        Grid(caption=bought, header=below, rows=seen, numeric=(0, 1)),
    ]
    return section("review", blocks, "Decision dates")
