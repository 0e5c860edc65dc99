"""The sections of a sizing: what to buy, order and rent; cost against probability; what would change it."""

from __future__ import annotations

from planner.answers.sections import section
from planner.answers.sentences import verdict_line
from planner.answers.summaries import SizingSummary
from planner.answers.sweep_report import Dots, cost_against_service
from planner.answers.timelines import Calendar
from planner.output.blocks import Grid, Picture, Section, Sentence, Series, TimeChart, sentences
from planner.output.folder import Contents
from planner.output.words import NOTHING, dollars, percent, unit_price

MONTHLY_SHARES = {"slo_attainment_fraction": "SLO lowest", "utilisation_fraction": "utilised"}
"""What is drawn and tabled by month, by column."""
WORST_TENTH = ("worst_tenth_attainment_fraction", "objective_worst_tenth_usd")
"""What the worst tenth of replications come to, by column."""
RUNS_AS_IT_IS = "The plan as a scenario is policy.yaml, next to this report. To run it: `planner run policy.yaml`."


def _money(summary: SizingSummary, cost: float) -> str:
    """Return a cost as the objective counts it."""
    if summary.objective == "levelised":
        return unit_price(cost)
    return dollars(cost)


def answer_section(contents: Contents, summary: SizingSummary) -> Section:
    """Return the policy, cost against probability, and what there is to say of it."""
    said = summary.sentences
    headline, *conditions = said.answer
    verdict = verdict_line(summary.verdict, on_page=contents.on_page)
    columns = ("cluster", "accelerator", "date", "nodes")
    bought = [
        (*cells, dollars(usd))
        for *cells, usd in contents.tables["plan"].rows(*columns, numbers=["capital_usd"])
    ]
    bought_caption = "What to buy, without waiting for a signal"
    if not summary.is_confirmed:
        bought_caption = "The nearest plan, which is not confirmed"
    return section(
        "answer",
        [
            Sentence(text=headline, tone="headline"),
            # Without a frontier, one plan was all there was to find: then its months are drawn.
            frontier_picture(contents, summary) or months_chart(contents),
            *sentences([*conditions, verdict, *said.certainty]),
            Grid(
                caption=bought_caption,
                header=(*columns, "paid"),
                rows=bought,
                numeric=(3, 4),
            ),
            _frontier_grid(contents, summary),
            *sentences([*said.orders, *said.alternatives, *said.sensitivities]),
            Sentence(text=RUNS_AS_IT_IS),
        ],
    )


def _frontier_grid(contents: Contents, summary: SizingSummary) -> Grid | None:
    """Return cost against service, of every policy that was simulated; None where the search was stopped before."""
    frontier = contents.table("frontier")
    if not frontier:
        return None
    rows = []
    texts = ("plan", "answers_fraction", "is_knee", "is_cliff", "is_answer")
    numbers = ("slo_met_fraction", "objective_usd", "missed_requests", *WORST_TENTH)
    for plan, answers, is_knee, is_cliff, is_answer, *figures in frontier.rows(
        *texts, totals=numbers
    ):
        marks = [f"cheapest at {float(level):.0%}" for level in answers.split()]
        marks += ["knee"] * (is_knee == "true") + ["cliff"] * (is_cliff == "true")
        marks += ["the answer"] * (is_answer == "true")
        met, cost, missed, worst, dearest = figures
        rows.append(
            (
                plan,
                ", ".join(marks),
                percent(met, 1),
                _money(summary, cost),
                f"{missed:,.0f}",
                percent(worst, 1),
                _money(summary, dearest),
            )
        )
    return Grid(
        caption="Cost against service, for every plan simulated",
        header=(
            "plan",
            "which is",
            "P(SLO met)",
            "cost",
            "missed requests",
            "worst tenth",
            "dearest tenth",
        ),
        rows=rows,
        numeric=(2, 3, 4, 5, 6),
    )


def frontier_picture(contents: Contents, summary: SizingSummary) -> Picture | None:
    """Draw the cost of policies against their probability to meet the SLO target, and what is required."""
    frontier = contents.table("frontier")
    if not frontier:
        return None
    columns = ("objective_usd", "slo_met_fraction")
    answer = frontier.where("is_answer", "true").rows(totals=columns)
    others = frontier.where("is_answer", "false").rows(totals=columns)
    groups = {
        "the answer": Dots(points=[*answer], colour=0, radius=9.0),
        "other plans": Dots(points=[*others], colour=1),
    }
    return cost_against_service(groups, summary.verdict.confidence, "P(SLO met)", "cost")


def policies_section(contents: Contents, summary: SizingSummary) -> Section:
    """Return the ways to decide at equal service, and the reviews of orders on a signal."""
    rows = []
    for way, cost, met, saving, worst_tenth, utilisation in contents.tables["policies"].rows(
        "ways",
        numbers=(
            "objective_usd",
            "slo_met_fraction",
            "answer_saves",
            "worst_tenth_attainment_fraction",
            "utilisation_fraction",
        ),
    ):
        rows.append(
            (
                way,
                _money(summary, cost or 0.0),
                percent(met, 0),
                percent(worst_tenth, 1),
                percent(utilisation, 0),
                NOTHING if saving is None else _money(summary, saving),
            )
        )
    policies = Grid(
        caption="Kinds of plan, at equal service",
        header=("levers", "cost", "P(SLO met)", "worst tenth", "utilised", "the answer saves"),
        rows=rows,
        numeric=(1, 2, 3, 4, 5),
    )
    blocks = [policies, _triggers_grid(contents), _sensitivity_grid(contents, summary)]
    return section("review", blocks, "Ways to decide")


def _sensitivity_grid(contents: Contents, summary: SizingSummary) -> Grid | None:
    """Return what each uncertain input moves at equal service; None where nothing is uncertain."""
    table = contents.table("sensitivity")
    if not table:
        return None
    columns = [name for name in table.columns if name != "input"]
    rows = []
    for name, *figures in table.rows("input", numbers=columns):
        low, high, *costs, met_low, met_high, saved = figures
        money = [NOTHING if cost is None else _money(summary, cost) for cost in (*costs, saved)]
        met = (percent(met_low, 0), percent(met_high, 0))
        rows.append((name, f"{low:.3g}", f"{high:.3g}", *money[:-1], *met, money[-1]))
    return Grid(
        caption="Inputs that move the cost of meeting the SLO target (estimated)",
        header=(
            "input",
            "P10",
            "P90",
            "sized at P10",
            "sized at P90",
            "this policy at P10",
            "at P90",
            "P(SLO met) at P10",
            "at P90",
            "knowing it saves",
        ),
        rows=rows,
        numeric=tuple(range(1, 10)),
    )


def _triggers_grid(contents: Contents) -> Grid | None:
    """Return the dates at which orders are reviewed, and what was ordered there; None where none are."""
    triggers = contents.table("triggers")
    if triggers is None:
        return None
    numbers = (
        "load_fraction",
        "trigger_nodes",
        "ordered_p10_nodes",
        "ordered_p50_nodes",
        "ordered_p90_nodes",
    )
    rows = []
    trigger_rows = triggers.rows("cluster", "date", numbers=numbers)
    for cluster, date, load, *nodes in trigger_rows:
        cells = (f"{number or 0.0:,.0f}" for number in nodes)
        rows.append((cluster, date, percent(load, 0), *cells))
    return Grid(
        caption="When to order, and how much",
        header=(
            "cluster",
            "review",
            "load",
            "order when forecast passes, nodes",
            "P10",
            "P50",
            "P90 ordered",
        ),
        rows=rows,
        numeric=(2, 3, 4, 5, 6),
    )


def months_chart(contents: Contents) -> TimeChart:
    """Draw the lowest SLO attainment and the utilisation by month."""
    table = contents.tables["months"]
    calendar = Calendar(table.texts("month"))
    places = [calendar.middle(month) for month in table.texts("month")]
    series = [
        Series(name, list(zip(places, table.numbers(column), strict=True)), colour)
        for colour, (column, name) in enumerate(MONTHLY_SHARES.items())
    ]
    return calendar.chart(
        "size-months",
        "SLO attainment and utilisation by month",
        "The SLO attainment that the required share of replications reaches, and mean utilisation.",
        "percent",
        series,
    )


def months_section(contents: Contents) -> Section:
    """Return what binds in each month."""
    rows = []
    for month, workload, capacity_binds, power_binds, attainment, utilisation in contents.tables[
        "months"
    ].rows("month", "workload", "capacity_binds", "power_binds", numbers=[*MONTHLY_SHARES]):
        binding = []
        if capacity_binds == "true":
            binding.append("capacity")
        if power_binds == "true":
            binding.append("power")
        constraint = ", ".join(binding) or "nothing"
        shares = (percent(attainment, 2), percent(utilisation))
        rows.append((month[:7], workload, *shares, constraint))
    grid = Grid(
        caption="The workload with the lowest SLO attainment, month by month",
        header=("month", "workload", *MONTHLY_SHARES.values(), "binding constraint"),
        rows=rows,
        numeric=(2, 3),
    )
    return section("time", [grid], "Binding constraints by month")
