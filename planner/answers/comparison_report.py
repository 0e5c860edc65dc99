"""The sections of a comparison's and of a sweep's report."""

from __future__ import annotations

import itertools
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.answers import judgement
from planner.answers.run_report import account_sums, account_totals, largest_first, layers_of
from planner.answers.sections import section
from planner.answers.timelines import Calendar, by_name, colours, run_out_chart
from planner.errors import Problem, ScenarioError
from planner.output import blocks as show
from planner.output.blocks import Block, Grid, Line, Section, Sentence, Series, sentences
from planner.output.folder import Contents, command_line
from planner.output.scales import TOTAL, Points
from planner.output.svg import bars, even_axis
from planner.output.words import NOTHING, dollars, input_words, measured, spoken, unit_price
from planner.units import MILLION

ACCRUED = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (
    judgement.COST,
    ACCRUED,
    "cost_usd",
    "npv_usd",
    judgement.ATTAINED,
    judgement.SHED,
)
SWEPT = (
    judgement.ATTAINED,
    judgement.COST,
    ACCRUED,
    "cost_usd",
    "utilisation_fraction",
    judgement.SHED,
)
JUDGED = (judgement.COST, judgement.ATTAINED, judgement.SHED, judgement.WORST, judgement.SHORTFALL)
SHOWN_POINTS = 60
MOST_COLUMNS = 24
"""Values of an input that a table still shows side by side."""
SAME_CHANCE = (
    "All scenarios had the same random numbers, so differences follow from what they state. `planner montecarlo` "
    "says how often the order holds when prices, growth and throughput are not as stated."
)
BRIDGES = {
    "bridge": "Why a token costs more or less than in the baseline: the difference, shared among its causes. The parts "
    "sum to the whole (Shapley values).",
    "bridge_usd": "The same in dollars of accrued cost, which sum to the cent. Policy is what other books (life, "
    "method or residual of depreciation) move: no price, and no cash.",
    "bridge_accounts": "Net present cost less the baseline's by account, which sums to the cent; by cluster too in "
    "bridge_accounts.csv.",
}
"""What is said of each bridge, by its table."""
MONTHLY = (
    (ACCRUED, "Cost per million tokens by scenario", "Accrued cost over tokens served, by month."),
    (f"cumulative_{ACCRUED}", "The same from the start", "Accrued cost so far over tokens so far."),
    ("cash_saving_usd", "Cash against the baseline", "Cash flow less the baseline's, by month."),
)
"""Column, title and what is to be seen of each chart by month."""
_SPOKEN = {
    judgement.COST: "levelised per M tokens",
    ACCRUED: "accrued per M tokens",
    "npv_usd": "NPV",
    judgement.ATTAINED: "SLO attainment",
    judgement.SHED: "shed",
}
Figures = dict[str, dict[str, float | None]]
"""Measures by scenario."""


def judged(contents: Contents) -> tuple[Figures, list[judgement.Served], str]:
    """Return measures by scenario, the scenarios as advice sees them, and which is the baseline."""
    comparison = contents.table("comparison")
    if not comparison:
        return {}, [], ""
    figures: Figures = defaultdict(dict)
    for scenario, measure, value in comparison.rows("scenario", "measure", numbers=["value"]):
        figures[scenario][measure] = value
    baseline = str(contents.manifest.get("baseline", next(iter(figures))))
    if baseline not in figures:
        message = f"names {baseline!r} as the baseline, of which comparison.csv has no row"
        raise ScenarioError(Problem(file="manifest.json", message=message))
    return figures, judgement.plans_of(figures, contents.summary.get("verdicts", {})), baseline


def answer_section(contents: Contents) -> Section | None:
    """Return which scenario to take: the cheapest that serves well, and how it stands against the baseline."""
    figures, plans, baseline = judged(contents)
    if not figures:
        return None
    summary = contents.summary
    choice = judgement.choose(plans)
    names = [
        name
        for name in SHOWN_MEASURES
        if any(row.get(name) is not None for row in figures.values())
    ]
    base = next(plan for plan in plans if plan.name == baseline)
    rows = []
    for plan in choice.ranked:
        name = plan.name
        stands = judgement.against(plan.cost, base.cost) if judgement.comparable(plan, base) else ""
        numbers = [measured(figures[name].get(measure), measure) for measure in names]
        label = f"{name} (baseline)" if name == baseline else name
        rows.append(
            (label, plan.standing or NOTHING, *numbers[:1], stands or NOTHING, *numbers[1:])
        )
    first, *others = map(_words, names)
    header = ("scenario", "SLO", first, "against the baseline", *others)
    caption = "The scenarios side by side"
    targeted = judgement.target_lines(summary["verdicts"]) if summary else []
    told = [f"Warning: {warning}" for warning in summary.get("warnings", ())]
    told += [f"Note: {note}" for note in summary.get("notes", ())]
    return section(
        "answer",
        [
            *sentences(
                [*judgement.much_shed(plans), judgement.recommendation(plans, baseline, summary)],
                "headline",
            ),
            *sentences([*targeted, *judgement.inconclusive_lines(choice.ranked)], "note"),
            Grid(caption=caption, header=header, rows=rows, numeric=range(2, len(header)), drawn=2),
            *([picture] if (picture := costs_picture(contents)) else []),
            *run_out_chart(contents),
            *sentences(judgement.warnings_of(choice) if choice.best else (), "note"),
            *sentences(judgement.resale_lines(summary.get("scenarios", {}), baseline), "note"),
            *sentences([*told, SAME_CHANCE], "note"),
        ],
    )


def side_by_side(
    title: str, layers: Mapping[str, Mapping[str, float]], label: str, first: int = 0
) -> show.Picture:
    """Draw bars that lie down, one for each name; the layers are {layer: {name: width}}."""
    names = list(next(iter(layers.values())))
    panel = bars(
        names, {layer: [row[name] for name in names] for layer, row in layers.items()}, label, first
    )
    keys = {layer: colour for colour, layer in enumerate(layers, start=first)}
    return show.Picture(title=title, panels=[panel], keys=keys, shape="square")


def costs_picture(contents: Contents) -> show.Picture | None:
    """Draw the accrued cost of plans side by side, by account."""
    totals = {plan: account_totals(contents.of_plan(plan)) for plan in contents.plans}
    layers = {
        layer: {
            plan: sum(sums.get(part, 0.0) for part in parts) / MILLION
            for plan, sums in totals.items()
        }
        for layer, parts in layers_of(largest_first(account_sums(contents))).items()
    }
    return (
        side_by_side("Where the money goes", layers, "accrued cost, million USD")
        if layers
        else None
    )


def _words(name: str) -> str:
    return _SPOKEN.get(name, spoken(name))


def timeline_section(contents: Contents) -> Section | None:
    """Return cost per token and cash by scenario over time."""
    if not (monthly := contents.table("comparison_monthly")):
        return None
    calendar = Calendar(monthly.texts("month"))
    charts = []
    for column, title, said in MONTHLY:
        points = by_name(monthly, "scenario", "month", column, calendar.middle)
        series = [
            Series(name=name, points=line, colour=colours(points)[name])
            for name, line in points.items()
        ]
        charts.append(calendar.chart(column.replace("_", "-"), title, said, "usd", series))
    return section("time", charts)


def bridge_section(contents: Contents, *, name: str = "bridge") -> Section | None:
    """Return why a token, or a plan in all, costs more or less than in the baseline, parts in two colours."""
    if not (bridge := contents.table(name)):
        return None
    per_token = name == "bridge"
    of = "account" if name == "bridge_accounts" else "cause"
    sums = bridge.sums(
        "scenario", of, f"difference{'_per_million_tokens' if per_token else ''}_usd"
    )
    shown = unit_price if per_token else dollars
    header = (of, "per million tokens", "which is") if per_token else (of, "USD")
    blocks: list[Block] = [Sentence(text=BRIDGES[name])]
    for scenario, parts in sums.items():
        rows = []
        total = sum(parts.values())
        for cause, part in (
            sorted(parts.items(), key=lambda item: -abs(item[1]))
            if name != "bridge_usd"
            else parts.items()
        ):
            which = "dearer" if part > 0 else "cheaper" if part else ""
            cells = (
                [f"{'+' if part > 0 else ''}{unit_price(part)}", which]
                if per_token
                else [f"{part:+,.2f}"]
            )
            rows.append((cause.replace("_", " "), *cells))
        said = f"per million tokens {'dearer' if total > 0 else 'cheaper'}"
        said = said if per_token else f"{'more' if total > 0 else 'less'} over the horizon, by {of}"
        caption = f"{scenario}: {shown(abs(total))} {said}"
        blocks.append(Grid(caption=caption, header=header, rows=rows, numeric=(1,), drawn=1))
    return section("money", blocks)


def swept_plans(contents: Contents) -> list[tuple[judgement.Served, list[str]]]:
    """Return the points of a sweep in the file's order, each with the settings that make it."""
    if (sweep := contents.table("sweep")) is None:
        return []
    vary = contents.manifest["vary"]
    swept = []
    for values, *figures in zip(
        itertools.product(*vary.values()), *map(sweep.numbers, JUDGED), strict=True
    ):
        settings = list(zip(vary, values, strict=True))
        name = ", ".join(f"{input_words(path)} = {value}" for path, value in settings)
        plan = judgement.served(name, dict(zip(JUDGED, figures, strict=True)))
        swept.append((plan, [f"{path}={value}" for path, value in settings]))
    return swept


def cost_against_service(
    groups: Mapping[str, tuple[Points, int, float]],
    target: float | None,
    service: str,
    cost: str,
    line: Points = (),
) -> show.Picture:
    """Draw groups of (cost, share) points, each with its colour and radius, the target, and a line that joins some."""
    points = [point for dots, _, _ in groups.values() for point in dots]
    costs = [x for x, _ in points]
    low = min(y or 0.0 for _, y in points)
    room = 0.06 * ((max(costs) - min(costs)) or max(costs))
    beyond = 1.0 - low + 1e-6
    left = min(costs) - room
    right = max(costs) + room
    marks: list[show.Mark] = [Line(points=line, colour=TOTAL, stroke=1.6)]
    marks += [
        Line(points=dots, colour=colour, stroke=0.0, radius=size)
        for dots, colour, size in groups.values()
    ]
    if target is not None:
        marks.append(Line(points=[(left, target), (right, target)], colour=4, stroke=1.4))
        low = min(low, target)
    y = even_axis(max(0.0, low - 0.06 * beyond), 1.0 + 0.03 * beyond, service, unit="percent")
    panel = show.Panel(x=even_axis(left, right, cost, unit="usd"), y=y, marks=marks, height=260.0)
    keys = {name: colour for name, (_, colour, _) in groups.items()} | (
        {"target": 4} if target is not None else {}
    )
    return show.Picture(title="Cost against service", panels=[panel], keys=keys, shape="dot")


def frontier_picture(contents: Contents) -> show.Picture | None:
    """Draw cost against service for every combination of a sweep, the frontier, and the one to take large."""
    plans = [
        plan
        for plan, _ in swept_plans(contents)
        if plan.cost is not None and plan.worst_fraction is not None
    ]
    if len(plans) < 2:
        return None

    def dots(shown: Sequence[judgement.Served]) -> Points:
        return [(plan.cost or 0.0, plan.worst_fraction) for plan in shown]

    best = judgement.choose(plans).best
    stated = not any(path.startswith("slo_t") for path in contents.manifest["vary"])
    groups = {
        "meets its SLO target": (dots([plan for plan in plans if plan.meets_slo]), 2, 5.0),
        "misses it": (dots([plan for plan in plans if not plan.meets_slo]), 1, 5.0),
        "the one to take": (dots([best] if best else []), 0, 9.0),
    }
    target = contents.manifest["slo_target"]["attainment"] if stated else None
    cost = "USD per million tokens, levelised"
    line = dots(judgement.frontier(plans))
    return cost_against_service(groups, target, "Lowest SLO attainment", cost, line)


def sweep_section(contents: Contents) -> Section | None:
    """Return the points of a sweep: the SLO target met, cheapest first; then missed, by how far.

    Where two inputs were varied, cost by both is a table too.
    """
    sweep = contents.table("sweep")
    settings = swept_plans(contents)
    plans = [plan for plan, _ in settings]
    if sweep is None or not plans:
        return None
    choice = judgement.choose(plans)
    vary = contents.manifest["vary"]
    picture = frontier_picture(contents)
    target = judgement.target_words(contents.manifest["slo_target"])
    said = f"SLO target: {target}. Combinations that miss it come last, by how far: a fleet too small is cheap too."
    manifest = contents.manifest
    taken = next(words for plan, words in settings if plan is choice.ranked[0])
    file = str(manifest.get("scenario_file") or f"{contents.name}.yaml")
    again = command_line(
        "run", [file], {"--seed": manifest.get("seed")}, [*manifest.get("overrides", ()), *taken]
    )
    blocks: list[Block] = [
        Sentence(text=judgement.sweep_advice(choice), tone="headline"),
        show.Command(text=shlex.join(again)),
        Sentence(text=said, tone="note"),
        *([replace(picture, title=f"{picture.title}, {contents.name}")] if picture else []),
    ]
    if len(vary) == 2 and all(2 <= len(values) <= MOST_COLUMNS for values in vary.values()):
        (down, values), (across, columns) = vary.items()
        cells = iter(
            f"{unit_price(plan.cost)}{'' if plan.meets_slo else ' MISSED'}" for plan in plans
        )
        table = [(str(value), *itertools.islice(cells, len(columns))) for value in values]
        header = (f"{input_words(down)} \\ {input_words(across)}", *columns)
        caption = "Cost per million tokens, levelised, by both inputs"
        blocks.append(
            Grid(caption=caption, header=header, rows=table, numeric=range(1, len(columns) + 1))
        )
    rows = []
    place = len(vary)
    for plan in choice.ranked[:SHOWN_POINTS]:
        row = plans.index(plan)
        axes = [sweep.texts(axis)[row] for axis in vary]
        figures = [measured(sweep.numbers(n)[row], n) for n in SWEPT]
        rows.append((*axes, plan.standing or NOTHING, *figures))
    head = (*map(input_words, vary), "SLO", *map(_words, SWEPT))
    shown = f"{len(rows):,} of {len(plans):,} combinations"
    caption = f"{shown}: base case meets the SLO target, cheapest first; then misses, by how far"
    numeric = [column for column in range(len(head)) if column != place]
    blocks.append(Grid(caption=caption, header=head, rows=rows, numeric=numeric, unbroken=(place,)))
    return section("answer", blocks)
