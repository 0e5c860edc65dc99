"""The sections of a sizing: what to buy, order and rent; cost against probability; what would change it."""

from __future__ import annotations

from planner.answers.sections import section
from planner.output.blocks import BarPart, Block, Grid, Section, Sentence, bar_grid, sentences
from planner.output.folder import Contents
from planner.output.words import NOTHING, dollars, percent, unit_price


def answer_section(contents: Contents) -> Section:
    """Return the policy, cost against probability, and what there is to say of it."""
    plan, summary = contents.tables["plan"], contents.summary
    shown = unit_price if summary["objective"] == "levelised" else dollars
    said = [str(sentence) for sentence in summary["sentences"]]
    columns = ("cluster", "accelerator", "date", "nodes")
    bought = [(*cells, dollars(usd)) for *cells, usd in plan.rows(*columns, numbers=["capital_usd"])]
    header = ("cluster", "accelerator", "date", "nodes", "paid")
    blocks: list[Block] = [
        *sentences(said[:1], "headline"),
        *sentences(said[1:3]),
        Grid(caption="What to buy whatever is seen", header=header, rows=bought, numeric=(3, 4)),
    ]
    if (frontier := contents.table("frontier")) is not None:
        longest, rows = max(frontier.totals("objective_usd"), default=0.0) or 1.0, []
        for words, answer, probability, cost in frontier.rows(
            "plan", "is_answer", numbers=["probability_fraction"], totals=["objective_usd"]
        ):
            named, colour = (f"{words} (the answer)", 0) if answer == "true" else (words, 1)
            bar = BarPart(name="cost", share=cost / longest, colour=colour, shown=shown(cost))
            rows.append((named, [percent(probability, 1), shown(cost)], [bar]))
        blocks.append(
            bar_grid(("plan", "P(SLO met)", "cost", ""), rows, "Cost against the probability to meet the SLO target")
        )
    blocks += [
        *sentences(said[3:]),
        Sentence(text="The policy lies beside this report and runs as it is: `planner run policy.yaml`."),
    ]
    return section("answer", blocks)


def policies_section(contents: Contents) -> Section | None:
    """Return the ways to decide on the same fresh replications, and the reviews of orders on a signal."""
    shown = unit_price if contents.summary["objective"] == "levelised" else dollars
    amounts = (
        "objective_usd",
        "slo_met_fraction",
        "worst_tenth_attainment_fraction",
        "utilisation_fraction",
        "answer_saves",
    )
    ways = [
        (
            name,
            shown(cost),
            percent(met, 0),
            percent(worst, 1),
            percent(used, 0),
            NOTHING if saves is None else shown(saves),
        )
        for name, cost, met, worst, used, saves in contents.tables["policies"].rows("decided", numbers=amounts)
        if cost is not None
    ]
    header = ("decided", "cost", "SLO met", "worst tenth", "utilised", "the answer saves")
    caption = "Ways to decide, on the same fresh replications"
    blocks: list[Block] = [Grid(caption=caption, header=header, rows=ways, numeric=(1, 2, 3, 4, 5))]
    if (triggers := contents.table("triggers")) is not None:
        numbers = ("load_fraction", "trigger_nodes", "ordered_p10_nodes", "ordered_p50_nodes", "ordered_p90_nodes")
        rows = [
            (cluster, date, percent(load, 0), *(f"{nodes or 0.0:,.0f}" for nodes in figures))
            for cluster, date, load, *figures in triggers.rows("cluster", "date", numbers=numbers)
        ]
        heads = ("cluster", "review", "load", "order when forecast passes, nodes", "P10", "P50", "P90 ordered")
        blocks.append(Grid(caption="When to order, and how much", header=heads, rows=rows, numeric=(2, 3, 4, 5, 6)))
    return section("review", blocks, "Ways to decide")


def months_section(contents: Contents) -> Section:
    """Return what binds in each month."""
    shares = ("slo_attainment_fraction", "utilisation_fraction")
    months = contents.tables["months"].rows("month", "workload", "capacity_binds", "power_binds", numbers=shares)
    said = {("true", "true"): "capacity, power", ("true", "false"): "capacity", ("false", "true"): "power"}
    rows = [
        (m[:7], load, percent(met, 2), percent(used), said.get((*by,), "nothing")) for m, load, *by, met, used in months
    ]
    header = ("month", "workload", "SLO lowest", "utilised", "binding constraint")
    caption = "The workload with the lowest SLO attainment, month by month"
    grid = Grid(caption=caption, header=header, rows=rows, numeric=(2, 3))
    return section("time", [grid], "Binding constraints by month")
