"""The sections of a sizing: what to buy, order and rent; cost against probability; what would change it."""

from __future__ import annotations

from planner.answers.comparison_report import cost_against_service
from planner.answers.judgement import verdict_line
from planner.answers.sections import section
from planner.answers.timelines import Calendar
from planner.output import blocks as show
from planner.output.blocks import Block, Grid, Section, Sentence, Series, sentences
from planner.output.folder import Contents
from planner.output.scales import Points
from planner.output.words import NOTHING, dollars, percent, unit_price


def answer_section(contents: Contents) -> Section:
    """Return the policy, cost against probability, and what there is to say of it."""
    plan = contents.tables["plan"]
    summary = contents.summary
    shown = unit_price if summary["objective"] == "levelised" else dollars
    said = [str(sentence) for sentence in summary["sentences"]]
    columns = ("cluster", "accelerator", "date", "nodes")
    bought = [
        (*cells, dollars(usd)) for *cells, usd in plan.rows(*columns, numbers=["capital_usd"])
    ]
    blocks: list[Block] = [
        *sentences(said[:1], "headline"),
        frontier_picture(contents) or months_chart(contents),
        *sentences([verdict_line(summary["verdict"]), *said[1:3]]),
        Grid(
            caption="What to buy whatever is seen",
            header=(*columns, "paid"),
            rows=bought,
            numeric=(3, 4),
        ),
    ]
    if (frontier := contents.table("frontier")) is not None:
        plans = frontier.rows(
            "plan", "is_answer", numbers=["probability_fraction"], totals=["objective_usd"]
        )
        rows = [
            (
                f"{words} (the answer)" if answer == "true" else words,
                percent(probability, 1),
                shown(cost),
            )
            for words, answer, probability, cost in plans
        ]
        caption = "Cost against the probability to meet the SLO target"
        named = ("plan", "P(SLO met)", "cost")
        blocks.append(Grid(caption=caption, header=named, rows=rows, numeric=(1, 2)))
    blocks += [
        *sentences(said[3:]),
        Sentence(
            text="The policy lies beside this report and runs as it is: `planner run policy.yaml`."
        ),
    ]
    return section("answer", blocks)


def frontier_picture(contents: Contents) -> show.Picture | None:
    """Draw the cost of plans against their probability to meet the SLO target, and what is required."""
    if not (frontier := contents.table("frontier")):
        return None
    groups: dict[str, tuple[Points, int, float]] = {}
    for name, said, colour, size in (
        ("the answer", "true", 0, 9.0),
        ("other plans", "false", 1, 5.0),
    ):
        dots = frontier.where("is_answer", said).rows(
            totals=["objective_usd", "probability_fraction"]
        )
        groups[name] = [*dots], colour, size
    return cost_against_service(
        groups, float(contents.summary["verdict"]["confidence"]), "P(SLO met)", "cost"
    )


def policies_section(contents: Contents) -> Section | None:
    """Return the ways to decide on the same fresh replications, and the reviews of orders on a signal."""
    shown = unit_price if contents.summary["objective"] == "levelised" else dollars
    shares = ("slo_met_fraction", "worst_tenth_attainment_fraction", "utilisation_fraction")
    amounts = ("objective_usd", *shares, "answer_saves")
    ways = [
        (
            name,
            shown(cost),
            *map(percent, parts, (0, 1, 0)),
            NOTHING if saves is None else shown(saves),
        )
        for name, cost, *parts, saves in contents.tables["policies"].rows(
            "decided", numbers=amounts
        )
        if cost is not None
    ]
    header = ("decided", "cost", "SLO met", "worst tenth", "utilised", "the answer saves")
    caption = "Ways to decide, on the same fresh replications"
    blocks: list[Block] = [Grid(caption=caption, header=header, rows=ways, numeric=(1, 2, 3, 4, 5))]
    if (triggers := contents.table("triggers")) is not None:
        numbers = (
            "load_fraction",
            "trigger_nodes",
            "ordered_p10_nodes",
            "ordered_p50_nodes",
            "ordered_p90_nodes",
        )
        rows = [
            (cluster, date, percent(load, 0), *(f"{nodes or 0.0:,.0f}" for nodes in figures))
            for cluster, date, load, *figures in triggers.rows("cluster", "date", numbers=numbers)
        ]
        heads = (
            "cluster",
            "review",
            "load",
            "order when forecast passes, nodes",
            "P10",
            "P50",
            "P90 ordered",
        )
        blocks.append(
            Grid(
                caption="When to order, and how much",
                header=heads,
                rows=rows,
                numeric=(2, 3, 4, 5, 6),
            )
        )
    return section("review", blocks, "Ways to decide")


_SHARES = {"slo_attainment_fraction": "SLO lowest", "utilisation_fraction": "utilised"}


def months_chart(contents: Contents) -> Block:
    """Draw the lowest SLO attainment and the utilisation by month."""
    table = contents.tables["months"]
    calendar = Calendar(contents.tables["months"].texts("month"))
    places = [calendar.middle(month) for month in table.texts("month")]
    series = [
        Series(name, list(zip(places, table.numbers(column), strict=True)), colour)
        for colour, (column, name) in enumerate(_SHARES.items())
    ]
    told = "SLO attainment that the required share of replications reaches, and utilisation in the mean."
    return calendar.chart(
        "size-months", "SLO attainment and utilisation by month", told, "percent", series
    )


def months_section(contents: Contents) -> Section:
    """Return what binds in each month."""
    months = contents.tables["months"].rows(
        "month", "workload", "capacity_binds", "power_binds", numbers=[*_SHARES]
    )
    said = {
        ("true", "true"): "capacity, power",
        ("true", "false"): "capacity",
        ("false", "true"): "power",
    }
    rows = [
        (m[:7], load, percent(met, 2), percent(used), said.get((*by,), "nothing"))
        for m, load, *by, met, used in months
    ]
    header = ("month", "workload", *_SHARES.values(), "binding constraint")
    caption = "The workload with the lowest SLO attainment, month by month"
    grid = Grid(caption=caption, header=header, rows=rows, numeric=(2, 3))
    return section("time", [grid], "Binding constraints by month")
