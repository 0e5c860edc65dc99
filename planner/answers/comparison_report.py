"""The sections of a comparison's report."""

from __future__ import annotations

from collections.abc import Mapping

from planner.answers.ranking import (
    ATTAINMENT,
    COST,
    SHED,
    RankedPlan,
    is_comparable,
    rank,
    ranked_plans,
)
from planner.answers.run_report import account_sums, account_totals, chart_layers, largest_first
from planner.answers.sections import section
from planner.answers.sentences import (
    break_even_lines,
    cost_change_words,
    inconclusive_lines,
    no_alternatives,
    plans_that_shed,
    recommendation,
    target_lines,
)
from planner.answers.summaries import ComparisonSummary
from planner.answers.timelines import Calendar, colours, points_by_name, run_out_chart
from planner.errors import Problem, ScenarioError
from planner.output.blocks import Block, Grid, Picture, Section, Sentence, Series, sentences
from planner.output.folder import SUMMARY, Contents
from planner.output.svg import bars
from planner.output.words import NOTHING, dollars, measured, spoken, unit_price
from planner.units import MILLION

ACCRUED_COST = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (COST, ACCRUED_COST, "cost_usd", "npv_usd", ATTAINMENT, SHED)
SAME_RANDOM_NUMBERS = (
    "All scenarios were run with the same random numbers, so they differ only by what they state. To see how often the "
    "ranking holds when prices, growth and throughput vary, run `planner montecarlo`."
)
BRIDGE_PER_TOKEN = (
    "Why a token costs more or less than in the baseline: the difference is divided among its causes (Shapley "
    "values), and the parts add up to it."
)
BRIDGE_ACCOUNTS = (
    "Net present cost less the baseline's, by account; the amounts add up to the whole difference."
)
MONTHLY_CHARTS = {
    ACCRUED_COST: (
        "Accrued cost per million tokens by scenario",
        "Accrued cost divided by tokens served, by month.",
    ),
    f"cumulative_{ACCRUED_COST}": (
        "Cumulative, from the start",
        "Accrued cost to date divided by tokens to date.",
    ),
    "cash_saving_usd": (
        "Cash compared with the baseline",
        "Cash flow less the baseline's, by month.",
    ),
}
"""Title, and what is to be seen, of each chart by month, by the column that it draws."""
HEADINGS = {
    COST: "levelised per M tokens",
    ACCRUED_COST: "accrued per M tokens",
    "npv_usd": "NPV",
    ATTAINMENT: "SLO attainment",
    SHED: "shed",
}


def heading(measure: str) -> str:
    """Return the heading of a measure's column."""
    return HEADINGS.get(measure, spoken(measure))


def compared_plans(summary: ComparisonSummary) -> list[RankedPlan]:
    """Return the plans of a comparison with their verdicts."""
    if summary.baseline not in summary.scenarios:
        message = f"names {summary.baseline!r} as the baseline, which is not one of its scenarios"
        raise ScenarioError(Problem(file=SUMMARY, message=message))
    return ranked_plans(summary.scenarios, summary.verdicts)


def answer_section(contents: Contents, summary: ComparisonSummary) -> Section:
    """Return which scenario to take: the cheapest that serves well, and how it stands against the baseline."""
    plans = compared_plans(summary)
    ranking = rank(plans)
    on_page = contents.on_page
    cautions = [
        *(f"Warning: {warning}" for warning in summary.warnings),
        *(f"Note: {note}" for note in summary.notes),
        SAME_RANDOM_NUMBERS,
    ]
    headlines = [*plans_that_shed(plans), recommendation(plans, summary, on_page=on_page)]
    target_notes = [
        *target_lines(summary.verdicts),
        *inconclusive_lines(ranking, on_page=on_page),
    ]
    monthly = contents.table("comparison_monthly")
    return section(
        "answer",
        [
            *sentences(headlines, "headline"),
            *sentences(target_notes, "note"),
            _plan_grid(summary, ranking.plans),
            costs_picture(contents),
            run_out_chart(contents, monthly, summary.verdicts),
            *sentences(no_alternatives(ranking), "note"),
            *sentences(break_even_lines(summary.scenarios, summary.baseline), "note"),
            *sentences(cautions, "note"),
        ],
    )


def _plan_grid(summary: ComparisonSummary, plans: tuple[RankedPlan, ...]) -> Grid:
    """Return the plans in the order in which they are recommended, with the measures that any of them has."""
    baseline = next(plan for plan in plans if plan.name == summary.baseline)
    # A measure that no plan has would be a column of dashes.
    all_figures = summary.scenarios.values()
    measures = [
        measure
        for measure in SHOWN_MEASURES
        if any(figures.get(measure) is not None for figures in all_figures)
    ]
    rows = []
    for plan in plans:
        change = ""
        # A cheaper plan that serves worse saves nothing, so that its cell stays empty.
        if is_comparable(plan, baseline):
            change = cost_change_words(plan.cost, baseline.cost)
        figures = summary.scenarios[plan.name]
        cells = [measured(figures.get(measure), measure) for measure in measures]
        cells[1:1] = [change or NOTHING]  # beside the cost that it is of
        label = f"{plan.name} (baseline)" if plan is baseline else plan.name
        rows.append((label, plan.standing or NOTHING, *cells))
    headings = [heading(measure) for measure in measures]
    headings[1:1] = ["against the baseline"]
    header = ("scenario", "SLO", *headings)
    return Grid(
        caption="The scenarios side by side",
        header=header,
        rows=rows,
        numeric=range(2, len(header)),
        drawn=2,
    )


def side_by_side(
    title: str, layers: Mapping[str, Mapping[str, float]], label: str, colour: int = 0
) -> Picture:
    """Draw bars that lie down, one for each name; the layers are {layer: {name: width}}, in colours from one on."""
    # Every layer has every name.
    names = list(next(iter(layers.values())))
    widths = {layer: [row[name] for name in names] for layer, row in layers.items()}
    keys = {layer: place for place, layer in enumerate(layers, start=colour)}
    panel = bars(names, widths, label, colour)
    return Picture(title=title, panels=[panel], keys=keys, shape="square")


def costs_picture(contents: Contents) -> Picture | None:
    """Draw the accrued cost of plans side by side, by account."""
    totals = {plan: account_totals(contents.of_plan(plan)) for plan in contents.plans}
    layers = {}
    # Ranked over all plans, so that a colour is one account in every bar.
    ranked = largest_first(account_sums(contents))
    for layer, accounts in chart_layers(ranked).items():
        layers[layer] = {
            plan: sum(sums.get(account, 0.0) for account in accounts) / MILLION
            for plan, sums in totals.items()
        }
    if not layers:
        return None
    return side_by_side("Where the money goes", layers, "accrued cost, million USD")


def timeline_section(contents: Contents) -> Section | None:
    """Return cost per token and cash by scenario over time."""
    monthly = contents.table("comparison_monthly")
    if not monthly:
        return None
    calendar = Calendar(monthly.texts("month"))
    charts = []
    for column, (title, summary) in MONTHLY_CHARTS.items():
        points = points_by_name(monthly, "scenario", "month", column, calendar.middle)
        palette = colours(points)
        series = [Series(name, line, palette[name]) for name, line in points.items()]
        key = column.replace("_", "-")
        charts.append(calendar.chart(key, title, summary, "usd", series))
    return section("time", charts)


def bridge_section(contents: Contents) -> Section | None:
    """Return why a token, and a plan in all, costs more or less than in the baseline: by cause, and by account."""
    per_token = contents.table("bridge")
    by_account = contents.table("bridge_accounts")
    blocks: list[Block] = []
    # Scenario by scenario: the baseline has no bridge to itself.
    if per_token:
        blocks.append(Sentence(text=BRIDGE_PER_TOKEN))
        sums = per_token.sums("scenario", "cause", "difference_per_million_tokens_usd")
        blocks += [_token_bridge(scenario, parts) for scenario, parts in sums.items()]
    if by_account:
        by_cluster = "" if contents.on_page else " By cluster: bridge_accounts.csv."
        blocks.append(Sentence(text=f"{BRIDGE_ACCOUNTS}{by_cluster}"))
        sums = by_account.sums("scenario", "account", "difference_usd")
        blocks += [_account_bridge(scenario, parts) for scenario, parts in sums.items()]
    if blocks:
        return section("money", blocks)
    return None


def largest_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of a difference, the largest first, whatever its sign."""
    by_size = sorted(parts.items(), key=lambda part: -abs(part[1]))
    return dict(by_size)


def _token_bridge(scenario: str, parts: Mapping[str, float]) -> Grid:
    """Return the causes for which a token of a plan costs more or less than the baseline's."""
    rows = []
    for cause, amount in largest_parts(parts).items():
        sign = "+" if amount > 0 else ""
        effect = _dearer(amount) if amount else ""  # a cause of nothing is neither
        label = cause.replace("_", " ")
        rows.append((label, f"{sign}{unit_price(amount)}", effect))
    total = sum(parts.values())
    return Grid(
        caption=f"{scenario}: {unit_price(abs(total))} per million tokens {_dearer(total)}",
        header=("cause", "per million tokens", "which is"),
        rows=rows,
        numeric=(1,),
        drawn=1,
    )


def _dearer(difference: float) -> str:
    return "dearer" if difference > 0 else "cheaper"


def _account_bridge(scenario: str, parts: Mapping[str, float]) -> Grid:
    """Return the accounts in which a plan's cost differs from the baseline's, in dollars."""
    total = sum(parts.values())
    direction = "more" if total > 0 else "less"
    # To the cent, so that a reader who adds them up finds the total.
    rows = [
        (part.replace("_", " "), f"{amount:+,.2f}") for part, amount in largest_parts(parts).items()
    ]
    return Grid(
        caption=f"{scenario}: {dollars(abs(total))} {direction} over the horizon, by account",
        header=("account", "USD"),
        rows=rows,
        numeric=(1,),
        drawn=1,
    )
