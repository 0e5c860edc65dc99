"""The sections of a comparison's and of a sweep's report."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from planner.answers import judgement
from planner.answers.sections import section
from planner.answers.timelines import Calendar, by_name, colours
from planner.errors import Problem, ScenarioError
from planner.output.blocks import (
    Block,
    Grid,
    Line,
    Mark,
    Panel,
    Part,
    Path,
    Picture,
    Section,
    Sentence,
    Series,
    Shade,
    bar_grid,
    sentences,
)
from planner.output.folder import Contents
from planner.output.scales import TOTAL
from planner.output.svg import even_axis
from planner.output.tables import Table
from planner.output.words import NOTHING, dollars, measured, unit_price

ACCRUED = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (judgement.COST, ACCRUED, "cost_usd", "npv_usd", judgement.IN_TIME, judgement.SHED)
SWEPT = (judgement.IN_TIME, judgement.COST, ACCRUED, "cost_usd", "utilisation_fraction", judgement.SHED)
JUDGED = (judgement.COST, judgement.IN_TIME, judgement.SHED, judgement.WORST, judgement.SHORTFALL)
SHOWN_POINTS = 60
MOST_TINTED = 24
"""Values of an input that a heat map still shows side by side."""
SAME_LUCK = (
    "All scenarios had the same traffic and the same luck, so the differences are the plans'. `planner montecarlo` "
    "says how often the order holds when prices, growth and throughput are not as stated."
)
PER_TOKEN = (
    "Why a token costs more or less than in the baseline: the difference, shared among its causes. The parts sum to "
    "the whole (Shapley values)."
)
IN_DOLLARS = (
    "The same in dollars of accrued cost, which sum to the cent. Policy is what other books (life, method or residual "
    "of depreciation) move: no price, and no cash."
)
MONTHLY = (
    (ACCRUED, "Cost per million tokens by scenario", "Accrued cost over tokens served, by month."),
    (
        "cumulative_cost_per_million_tokens_usd",
        "The same from the start",
        "Accrued cost so far over tokens so far.",
    ),
    ("cash_saving_usd", "Cash against the baseline", "Cash flow less the baseline's, by month."),
)
"""Column, title and what is to be seen of each chart by month."""
_SPOKEN = {
    judgement.COST: "levelised per M tokens",
    ACCRUED: "accrued per M tokens",
    "npv_usd": "NPV",
    judgement.IN_TIME: "in time",
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
    return figures, judgement.plans_of(figures, contents.summary.get("promise", {})), baseline


def advice(contents: Contents) -> str:
    """Say which scenario of a comparison to take."""
    _, plans, baseline = judged(contents)
    return judgement.recommendation(plans, baseline, contents.summary)


def answer_section(contents: Contents) -> Section | None:
    """Return which scenario to take: the cheapest that serves well, and how it stands against the baseline."""
    figures, plans, baseline = judged(contents)
    if not figures:
        return None
    summary, choice = contents.summary, judgement.choose(plans)
    promised = judgement.promise_lines(summary["promise"]) if summary.get("promise") else []
    told = [
        *(f"Warning: {warning}" for warning in summary.get("warnings", ())),
        *(f"Note: {note}" for note in summary.get("notes", ())),
        SAME_LUCK,
    ]
    return section(
        "answer",
        [
            *sentences([*judgement.much_shed(plans), advice(contents)], "headline"),
            *sentences([*promised, *(judgement.warnings_of(choice) if choice.best else ())], "note"),
            _scenario_grid(figures, {plan.name: plan for plan in choice.ranked}, baseline),
            *sentences(told, "note"),
        ],
    )


def _scenario_grid(by_plan: Figures, plans: Mapping[str, judgement.Served], baseline: str) -> Grid:
    names = [name for name in SHOWN_MEASURES if any(figures.get(name) is not None for figures in by_plan.values())]
    palette, base = colours(by_plan), plans[baseline]
    most = max((plan.cost or 0.0 for plan in plans.values()), default=0.0) or 1.0
    rows = []
    for name, plan in plans.items():
        stands = judgement.against(plan.cost, base.cost) if judgement.comparable(plan, base) else ""
        part = Part(name=name, share=(plan.cost or 0.0) / most, colour=palette[name], shown=unit_price(plan.cost))
        numbers = [measured(by_plan[name].get(measure), measure) for measure in names]
        label = f"{name} (baseline)" if name == baseline else name
        rows.append((label, [plan.standing or NOTHING, *numbers, stands or NOTHING], [part]))
    last = ("a token, against the baseline", "per million tokens, levelised")
    return bar_grid(("scenario", "promise", *map(_words, names), *last), rows, "The scenarios side by side")


def _words(name: str) -> str:
    return _SPOKEN.get(name, name.removesuffix("_usd").removesuffix("_fraction").replace("_", " "))


def timeline_section(contents: Contents) -> Section | None:
    """Return cost per token and cash by scenario over time."""
    monthly = contents.table("comparison_monthly")
    if not monthly:
        return None
    calendar = Calendar(monthly.texts("month"))
    charts = []
    for column, title, said in MONTHLY:
        points = by_name(monthly, "scenario", "month", column, calendar.middle)
        palette = colours(points)
        series = [Series(name=name, points=line, colour=palette[name]) for name, line in points.items()]
        charts.append(calendar.chart(column.replace("_", "-"), title, said, "usd", series))
    return section("time", charts)


def bridge_section(contents: Contents) -> Section | None:
    """Return why a token costs more or less than in the baseline."""

    def cells(part: float) -> list[str]:
        return [f"{'+' if part > 0 else ''}{unit_price(part)}", "dearer" if part > 0 else "cheaper" if part else ""]

    def caption(scenario: str, total: float) -> str:
        return f"{scenario}: {unit_price(abs(total))} per million tokens {'dearer' if total > 0 else 'cheaper'}"

    bridge = contents.table("bridge")
    if not bridge:
        return None
    sums = bridge.sums("scenario", "cause", "difference_per_million_tokens_usd")
    largest = {name: dict(sorted(parts.items(), key=lambda part: -abs(part[1]))) for name, parts in sums.items()}
    header = ("cause", "per million tokens", "which is", "size")
    return section("money", [Sentence(text=PER_TOKEN), *_bridge_grids(largest, header, cells, unit_price, caption)])


def dollars_section(contents: Contents) -> Section | None:
    """Return why a plan costs more or less in all than the baseline, in dollars."""

    def caption(scenario: str, total: float) -> str:
        return f"{scenario}: {dollars(abs(total))} {'more' if total > 0 else 'less'} over the horizon"

    bridge = contents.table("bridge_usd")
    if not bridge:
        return None
    sums = bridge.sums("scenario", "cause", "difference_usd")
    grids = _bridge_grids(sums, ("cause", "USD", "size"), lambda part: [f"{part:+,.2f}"], dollars, caption)
    return section("money", [Sentence(text=IN_DOLLARS), *grids])


def _bridge_grids(
    sums: Mapping[str, Mapping[str, float]],
    header: Sequence[str],
    cells: Callable[[float], list[str]],
    shown: Callable[[float], str],
    caption: Callable[[str, float], str],
) -> list[Grid]:
    """Return the parts of each scenario's difference to the baseline, dearer and cheaper in two colours."""
    most = max((abs(part) for parts in sums.values() for part in parts.values()), default=0.0) or 1.0
    grids = []
    for scenario, parts in sums.items():
        rows = [
            (
                cause.replace("_", " "),
                cells(part),
                [Part(name=cause, share=abs(part) / most, colour=1 if part > 0 else 2, shown=shown(part))],
            )
            for cause, part in parts.items()
        ]
        grids.append(bar_grid(header, rows, caption(scenario, sum(parts.values()))))
    return grids


def swept_plans(contents: Contents) -> list[tuple[judgement.Served, list[str]]]:
    """Return the points of a sweep in the file's order, each with the settings that make it."""
    sweep, vary = contents.table("sweep"), contents.manifest.get("vary", {})
    if sweep is None or judgement.COST not in sweep:
        return []
    columns = {name: sweep.numbers(name) if name in sweep else [None] * len(sweep) for name in JUDGED}
    swept = []
    for values, *figures in zip(itertools.product(*vary.values()), *columns.values(), strict=True):
        settings = list(zip(vary, values, strict=True))
        name = ", ".join(f"{path} = {value}" for path, value in settings)
        plan = judgement.served(name, dict(zip(columns, figures, strict=True)))
        swept.append((plan, [f"{path}={value}" for path, value in settings]))
    return swept


def frontier_picture(contents: Contents) -> Picture | None:
    """Draw cost against service: every combination of a sweep, and those that no other beats in both."""
    plans = [plan for plan, _ in swept_plans(contents) if plan.cost is not None and plan.worst_fraction is not None]
    if len(plans) < 2:
        return None

    def dots(shown: Sequence[judgement.Served]) -> list[tuple[float, float | None]]:
        return [(plan.cost or 0.0, plan.worst_fraction) for plan in shown]

    costs, low = [plan.cost or 0.0 for plan in plans], min(plan.worst_fraction or 0.0 for plan in plans)
    room = 0.06 * ((max(costs) - min(costs)) or max(costs))
    left, right, beyond = min(costs) - room, max(costs) + room, 1.0 - low + 1e-6
    marks: list[Mark] = [Line(points=dots(judgement.frontier(plans)), colour=TOTAL, stroke=1.6)]
    for kept, colour in ((False, 1), (True, 2)):
        alike = dots([plan for plan in plans if plan.keeps_promise is kept])
        marks.append(Line(points=alike, colour=colour, stroke=0.0, radius=5.0))
    promise, vary = contents.manifest.get("promise"), contents.manifest.get("vary", ())
    if isinstance(promise, dict) and not any(path.startswith("promise") for path in vary):
        marks.append(Line(points=[(left, promise["in_time"]), (right, promise["in_time"])], colour=4, stroke=1.4))
    if (best := judgement.choose(plans).best) is not None:
        marks.append(Line(points=dots([best]), colour=2, stroke=0.0, radius=9.0))
    worst = "Worst share of requests in time that the promise is about"
    y = even_axis(max(0.0, low - 0.06 * beyond), 1.0 + 0.03 * beyond, worst, unit="percent")
    x = even_axis(left, right, "USD per million tokens, levelised", unit="usd")
    return Picture(
        title="Cost against service",
        panels=[Panel(x=x, y=y, marks=marks)],
        keys={"keeps its promise": 2, "breaks it": 1, "promised": 4},
        shape="dot",
        note="The line joins what no other beats in both; the one to take is large.",
    )


def _heat_map(contents: Contents, plans: Sequence[judgement.Served]) -> list[Grid]:
    """Return cost by two inputs as a tinted table, where two were varied; what breaks its promise is struck out."""
    vary = contents.manifest.get("vary", {})
    if len(vary) != 2 or min(map(len, vary.values())) < 2 or max(map(len, vary.values())) > MOST_TINTED:
        return []
    (down, rows), (across, columns) = vary.items()
    kept = [plan.cost for plan in plans if plan.keeps_promise and plan.cost is not None]
    low, high = (min(kept), max(kept)) if kept else (0.0, 0.0)

    def tinted(plan: judgement.Served) -> str | Shade:
        if plan.cost is None:
            return NOTHING
        depth = round(4 * (plan.cost - low) / ((high - low) or 1.0)) if plan.keeps_promise else None
        return Shade(text=unit_price(plan.cost), depth=depth, hint=plan.service)

    grid = Grid(
        caption="Cost per million tokens, levelised: the deeper the tint the dearer; struck out breaks its promise",
        header=(Path(text=f"{down} \\ {across}"), *columns),
        rows=[
            (str(value), *map(tinted, plans[place * len(columns) : (place + 1) * len(columns)]))
            for place, value in enumerate(rows)
        ],
        numeric=range(1, len(columns) + 1),
    )
    return [grid]


def sweep_section(contents: Contents) -> Section | None:
    """Return the points of a sweep: those that serve well, cheapest first, then the others."""
    sweep, plans = contents.table("sweep"), [plan for plan, _ in swept_plans(contents)]
    if sweep is None or not plans:
        return None
    choice, promise, picture = judgement.choose(plans), contents.manifest.get("promise"), frontier_picture(contents)
    said = f"Promise: {judgement.promise_words(promise)}. " if isinstance(promise, dict) else ""
    blocks: list[Block] = [
        Sentence(text=judgement.sweep_advice(choice), tone="headline"),
        Sentence(
            text=f"{said}Combinations that break it come last, by how far: a fleet too small is cheap too.", tone="note"
        ),
        *([replace(picture, title=f"{picture.title}, {contents.name}")] if picture else []),
        *_heat_map(contents, plans),
        _point_grid(contents, sweep, plans, choice),
    ]
    return section("answer", blocks)


def _point_grid(contents: Contents, sweep: Table, plans: Sequence[judgement.Served], choice: judgement.Choice) -> Grid:
    """Return the first points in the order in which they are recommended."""
    axes = [name for name in contents.manifest.get("vary", ()) if name in sweep]
    columns = [name for name in SWEPT if name in sweep]
    places = {plan.name: place for place, plan in enumerate(plans)}
    rows = [
        (
            *(sweep.texts(axis)[places[plan.name]] for axis in axes),
            plan.standing or NOTHING,
            *(measured(sweep.numbers(name)[places[plan.name]], name) for name in columns),
        )
        for plan in choice.ranked[:SHOWN_POINTS]
    ]
    header = (*axes, "promise", *map(_words, columns))
    shown = f"{len(rows):,} of {len(plans):,} combinations"
    return Grid(
        caption=f"{shown}: those that keep their promise, cheapest first, then by how far",
        header=header,
        rows=rows,
        numeric=[place for place in range(len(header)) if place != len(axes)],
        unbroken=(len(axes),),
    )
