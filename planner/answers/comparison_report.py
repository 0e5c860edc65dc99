"""The sections of a comparison's and of a sweep's report."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from planner.answers import judgement
from planner.answers.sections import section
from planner.answers.timelines import Calendar, by_name, colours
from planner.errors import Problem, ScenarioError
from planner.output import blocks as show
from planner.output.blocks import BarPart, Block, Grid, Line, Section, Sentence, Series, bar_grid, sentences
from planner.output.folder import Contents
from planner.output.scales import TOTAL
from planner.output.svg import even_axis
from planner.output.words import NOTHING, dollars, measured, spoken, unit_price

ACCRUED = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (judgement.COST, ACCRUED, "cost_usd", "npv_usd", judgement.ATTAINED, judgement.SHED)
SWEPT = (judgement.ATTAINED, judgement.COST, ACCRUED, "cost_usd", "utilisation_fraction", judgement.SHED)
JUDGED = (judgement.COST, judgement.ATTAINED, judgement.SHED, judgement.WORST, judgement.SHORTFALL)
SHOWN_POINTS = 60
MOST_TINTED = 24
"""Values of an input that a heat map still shows side by side."""
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
    summary, choice = contents.summary, judgement.choose(plans)
    names = [name for name in SHOWN_MEASURES if any(row.get(name) is not None for row in figures.values())]
    palette, base = colours(figures), next(plan for plan in plans if plan.name == baseline)
    most = max((plan.cost or 0.0 for plan in plans), default=0.0) or 1.0
    rows = []
    for plan in choice.ranked:
        name, stands = plan.name, judgement.against(plan.cost, base.cost) if judgement.comparable(plan, base) else ""
        part = BarPart(name=name, share=(plan.cost or 0.0) / most, colour=palette[name], shown=unit_price(plan.cost))
        numbers = [measured(figures[name].get(measure), measure) for measure in names]
        label = f"{name} (baseline)" if name == baseline else name
        rows.append((label, [plan.standing or NOTHING, *numbers, stands or NOTHING], [part]))
    last = ("a token, against the baseline", "per million tokens, levelised")
    targeted = judgement.target_lines(summary["verdicts"]) if summary else []
    told = [f"Warning: {warning}" for warning in summary.get("warnings", ())]
    told += [f"Note: {note}" for note in summary.get("notes", ())]
    return section(
        "answer",
        [
            *sentences([*judgement.much_shed(plans), judgement.recommendation(plans, baseline, summary)], "headline"),
            *sentences([*targeted, *judgement.inconclusive_lines(choice.ranked)], "note"),
            *sentences(judgement.warnings_of(choice) if choice.best else (), "note"),
            *sentences(judgement.resale_lines(summary.get("scenarios", {}), baseline), "note"),
            bar_grid(("scenario", "SLO", *map(_words, names), *last), rows, "The scenarios side by side"),
            *sentences([*told, SAME_CHANCE], "note"),
        ],
    )


def _words(name: str) -> str:
    return _SPOKEN.get(name, spoken(name))


def timeline_section(contents: Contents) -> Section | None:
    """Return cost per token and cash by scenario over time."""
    if not (monthly := contents.table("comparison_monthly")):
        return None
    calendar, charts = Calendar(monthly.texts("month")), []
    for column, title, said in MONTHLY:
        points = by_name(monthly, "scenario", "month", column, calendar.middle)
        series = [Series(name=name, points=line, colour=colours(points)[name]) for name, line in points.items()]
        charts.append(calendar.chart(column.replace("_", "-"), title, said, "usd", series))
    return section("time", charts)


def bridge_section(contents: Contents, *, name: str = "bridge") -> Section | None:
    """Return why a token, or a plan in all, costs more or less than in the baseline, parts in two colours."""
    if not (bridge := contents.table(name)):
        return None
    per_token, of = name == "bridge", "account" if name == "bridge_accounts" else "cause"
    sums = bridge.sums("scenario", of, f"difference{'_per_million_tokens' if per_token else ''}_usd")
    shown = unit_price if per_token else dollars
    header = (of, "per million tokens", "which is", "size") if per_token else (of, "USD", "size")
    blocks: list[Block] = [Sentence(text=BRIDGES[name])]
    most = max((abs(part) for parts in sums.values() for part in parts.values()), default=0.0) or 1.0
    for scenario, parts in sums.items():
        rows, total = [], sum(parts.values())
        for cause, part in (
            sorted(parts.items(), key=lambda item: -abs(item[1])) if name != "bridge_usd" else parts.items()
        ):
            which = "dearer" if part > 0 else "cheaper" if part else ""
            cells = [f"{'+' if part > 0 else ''}{unit_price(part)}", which] if per_token else [f"{part:+,.2f}"]
            bar = BarPart(name=cause, share=abs(part) / most, colour=1 if part > 0 else 2, shown=shown(part))
            rows.append((cause.replace("_", " "), cells, [bar]))
        said = f"per million tokens {'dearer' if total > 0 else 'cheaper'}"
        said = said if per_token else f"{'more' if total > 0 else 'less'} over the horizon, by {of}"
        blocks.append(bar_grid(header, rows, f"{scenario}: {shown(abs(total))} {said}"))
    return section("money", blocks)


def swept_plans(contents: Contents) -> list[tuple[judgement.Served, list[str]]]:
    """Return the points of a sweep in the file's order, each with the settings that make it."""
    if (sweep := contents.table("sweep")) is None:
        return []
    vary, swept = contents.manifest["vary"], []
    for values, *figures in zip(itertools.product(*vary.values()), *map(sweep.numbers, JUDGED), strict=True):
        settings = list(zip(vary, values, strict=True))
        name = ", ".join(f"{path} = {value}" for path, value in settings)
        plan = judgement.served(name, dict(zip(JUDGED, figures, strict=True)))
        swept.append((plan, [f"{path}={value}" for path, value in settings]))
    return swept


def frontier_picture(contents: Contents) -> show.Picture | None:
    """Draw cost against service for every combination of a sweep, and the frontier."""
    plans = [plan for plan, _ in swept_plans(contents) if plan.cost is not None and plan.worst_fraction is not None]
    if len(plans) < 2:
        return None

    def dots(shown: Sequence[judgement.Served]) -> list[tuple[float, float | None]]:
        return [(plan.cost or 0.0, plan.worst_fraction) for plan in shown]

    costs, low = [plan.cost or 0.0 for plan in plans], min(plan.worst_fraction or 0.0 for plan in plans)
    room = 0.06 * ((max(costs) - min(costs)) or max(costs))
    left, right, beyond = min(costs) - room, max(costs) + room, 1.0 - low + 1e-6
    marks: list[show.Mark] = [Line(points=dots(judgement.frontier(plans)), colour=TOTAL, stroke=1.6)]
    for kept, colour in ((False, 1), (True, 2)):
        alike = dots([plan for plan in plans if plan.meets_slo is kept])
        marks.append(Line(points=alike, colour=colour, stroke=0.0, radius=5.0))
    if not any(path.startswith("slo_target") for path in contents.manifest["vary"]):
        asked = contents.manifest["slo_target"]["attainment"]
        marks.append(Line(points=[(left, asked), (right, asked)], colour=4, stroke=1.4))
    if (best := judgement.choose(plans).best) is not None:
        marks.append(Line(points=dots([best]), colour=2, stroke=0.0, radius=9.0))
    y = even_axis(max(0.0, low - 0.06 * beyond), 1.0 + 0.03 * beyond, "Lowest SLO attainment", unit="percent")
    x = even_axis(left, right, "USD per million tokens, levelised", unit="usd")
    keys, panel = {"meets its SLO target": 2, "misses it": 1, "target": 4}, show.Panel(x=x, y=y, marks=marks)
    note = "The line joins what no other beats in both; the one to take is large."
    return show.Picture(title="Cost against service", panels=[panel], keys=keys, shape="dot", note=note)


def sweep_section(contents: Contents) -> Section | None:
    """Return the points of a sweep: the SLO target met, cheapest first; then missed, by how far.

    Where two inputs were varied, cost by both is a tinted table, and what misses its SLO target is struck out.
    """
    sweep, plans = contents.table("sweep"), [plan for plan, _ in swept_plans(contents)]
    if sweep is None or not plans:
        return None
    choice, vary, picture = judgement.choose(plans), contents.manifest["vary"], frontier_picture(contents)
    said = (
        f"SLO target: {judgement.target_words(contents.manifest['slo_target'])}. Combinations that miss it come "
        "last, by how far: a fleet too small is cheap too."
    )
    blocks: list[Block] = [
        Sentence(text=judgement.sweep_advice(choice), tone="headline"),
        Sentence(text=said, tone="note"),
        *([replace(picture, title=f"{picture.title}, {contents.name}")] if picture else []),
    ]
    if len(vary) == 2 and all(2 <= len(values) <= MOST_TINTED for values in vary.values()):
        (down, values), (across, columns) = vary.items()
        kept = [plan.cost for plan in plans if plan.meets_slo and plan.cost is not None] or [0.0]

        def tinted(plan: judgement.Served) -> str | show.Shade:
            if plan.cost is None:
                return NOTHING
            depth = round(4 * (plan.cost - min(kept)) / ((max(kept) - min(kept)) or 1.0)) if plan.meets_slo else None
            return show.Shade(text=unit_price(plan.cost), depth=depth, hint=plan.service)

        points = iter(plans)
        tints = [(str(value), *map(tinted, itertools.islice(points, len(columns)))) for value in values]
        caption = "Cost per million tokens, levelised: the deeper the tint the dearer; struck out misses its SLO target"
        header = (show.Path(text=f"{down} \\ {across}"), *columns)
        blocks.append(Grid(caption=caption, header=header, rows=tints, numeric=range(1, len(columns) + 1)))
    rows, place = [], len(vary)
    for plan in choice.ranked[:SHOWN_POINTS]:
        row = plans.index(plan)
        axes, figures = [sweep.texts(axis)[row] for axis in vary], [measured(sweep.numbers(n)[row], n) for n in SWEPT]
        rows.append((*axes, plan.standing or NOTHING, *figures))
    head = (*vary, "SLO", *map(_words, SWEPT))
    shown = f"{len(rows):,} of {len(plans):,} combinations"
    caption = f"{shown}: base case meets the SLO target, cheapest first; then misses, by how far"
    numeric = [column for column in range(len(head)) if column != place]
    blocks.append(Grid(caption=caption, header=head, rows=rows, numeric=numeric, unbroken=(place,)))
    return section("answer", blocks)
