"""The sections of a comparison and of a sweep."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from planner.errors import Problem, ScenarioError
from planner.output import judgement
from planner.output.picture import Line, Mark, Panel, Picture, even_axis, svg_of
from planner.output.report.contents import Contents, Table
from planner.output.report.html import Html, Part, bar_table, breakable, element, join, paragraph, table
from planner.output.report.page import Section, code
from planner.output.report.timechart import Series, draw
from planner.output.report.timelines import Calendar, by_name, colours
from planner.output.report.words import NOTHING, measured, unit_price
from planner.output.scales import TOTAL

HEADLINE = judgement.COST
ACCRUED = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (HEADLINE, ACCRUED, "cost_usd", "npv_usd", judgement.IN_TIME, judgement.SHED)
SWEPT = (judgement.IN_TIME, HEADLINE, ACCRUED, "cost_usd", "utilisation_fraction", judgement.SHED)
JUDGED = (judgement.COST, judgement.IN_TIME, judgement.SHED, judgement.WORST, judgement.SHORTFALL)
SHOWN_POINTS = 60
MOST_TINTED = 24
"""Values of an input that a heat map still shows side by side."""


def _measures(comparison: Table) -> dict[str, dict[str, float | None]]:
    """Return measures by scenario."""
    by_plan: dict[str, dict[str, float | None]] = defaultdict(dict)
    for scenario, measure, value in comparison.rows("scenario", "measure", numbers=["value"]):
        by_plan[scenario][measure] = value
    return by_plan


def judged(contents: Contents) -> tuple[dict[str, dict[str, float | None]], list[judgement.Served], str]:
    """Return measures by scenario, the scenarios as advice sees them, and which is the baseline."""
    comparison = contents.table("comparison")
    if not comparison:
        return {}, [], ""
    figures, promises = _measures(comparison), contents.json("summary.json").get("promise", {})
    plans = [
        judgement.served(name, row, promises.get(name, {}).get("shortfall_fraction")) for name, row in figures.items()
    ]
    baseline = str(contents.manifest.get("baseline", next(iter(figures))))
    if baseline not in figures:
        message = f"names {baseline!r} as the baseline, of which comparison.csv has no row"
        raise ScenarioError(Problem(file="manifest.json", message=message))
    return figures, plans, baseline


def advice(contents: Contents) -> str:
    """Say which scenario of a comparison to take."""
    _, plans, baseline = judged(contents)
    return judgement.recommendation(plans, baseline, _saving(judgement.choose(plans), contents.json("summary.json")))


def answer_section(contents: Contents) -> Section | None:
    """Return which scenario to take: the cheapest that serves well, and how it stands against the baseline."""
    figures, plans, baseline = judged(contents)
    if not figures:
        return None
    summary = contents.json("summary.json")
    promises = summary.get("promise", {})
    choice = judgement.choose(plans)
    body = [
        *(paragraph(line, class_="headline") for line in judgement.much_shed(plans)),
        paragraph(advice(contents), class_="headline"),
        *(paragraph(line, class_="note") for line in (judgement.promise_lines(promises) if promises else ())),
        *(paragraph(line, class_="note") for line in (judgement.warnings_of(choice) if choice.best else ())),
        _scenario_table(figures, {plan.name: plan for plan in choice.ranked}, baseline),
    ]
    body.extend(paragraph(f"Warning: {warning}", class_="note") for warning in summary.get("warnings", ()))
    body.extend(paragraph(f"Note: {note}", class_="note") for note in summary.get("notes", ()))
    body.append(
        paragraph(
            "All scenarios had the same traffic and the same luck, so the differences are the plans'. ",
            code("planner montecarlo"), " says how often the order holds when prices, growth and throughput are not as "
            "stated.", class_="note",
        )
    )  # fmt: skip
    return Section(key="answer", body=join(body))


def _saving(choice: judgement.Choice, summary: dict[str, Any]) -> tuple[float, float, str] | None:
    """Return where the saving of the plan to take lies in other replications."""
    if choice.best is None:
        return None
    interval = summary.get("saving_interval_fraction", {}).get(choice.best.name)
    return None if interval is None else (interval[0], interval[1], summary["chance"][choice.best.name]["words"])


def _scenario_table(
    by_plan: dict[str, dict[str, float | None]], plans: dict[str, judgement.Served], baseline: str
) -> Html:
    names = [name for name in SHOWN_MEASURES if any(figures.get(name) is not None for figures in by_plan.values())]
    palette = colours(by_plan)
    most = max((plan.cost or 0.0 for plan in plans.values()), default=0.0) or 1.0
    rows = []
    for scenario, plan in plans.items():
        figures, base = by_plan[scenario], plans[baseline]
        stands = judgement.against(plan.cost, base.cost) if judgement.comparable(plan, base) else ""
        parts = [
            Part(name=scenario, share=(plan.cost or 0.0) / most, colour=palette[scenario], shown=unit_price(plan.cost))
        ]
        numbers = [measured(figures.get(name), name) for name in names]
        label = f"{scenario} (baseline)" if scenario == baseline else scenario
        rows.append((label, [plan.standing or NOTHING, *numbers, stands or NOTHING], parts))
    header = (
        "scenario",
        "promise",
        *(_words(name) for name in names),
        "a token, against the baseline",
        "per million tokens, levelised",
    )
    return bar_table(header, rows, "The scenarios side by side")


_SPOKEN = {
    HEADLINE: "levelised per M tokens",
    ACCRUED: "accrued per M tokens",
    "npv_usd": "NPV",
    judgement.IN_TIME: "in time",
    judgement.SHED: "shed",
}


def _words(name: str) -> str:
    return _SPOKEN.get(name, name.removesuffix("_usd").removesuffix("_fraction").replace("_", " "))


def timeline_section(contents: Contents) -> Section | None:
    """Return cost per token and cash by scenario over time."""
    monthly = contents.table("comparison_monthly")
    if not monthly:
        return None
    calendar = Calendar(monthly.texts("month"))
    charts = []
    for column, title, said in (
        (ACCRUED, "Cost per million tokens by scenario", "Accrued cost over tokens served, by month."),
        (
            "cumulative_cost_per_million_tokens_usd",
            "The same from the start",
            "Accrued cost so far over tokens so far.",
        ),
        ("cash_saving_usd", "Cash against the baseline", "Cash flow less the baseline's, by month."),
    ):
        points = by_name(monthly, "scenario", "month", column, calendar.middle)
        palette = colours(points)
        series = [Series(name=name, points=line, colour=palette[name]) for name, line in points.items()]
        charts.append(draw(calendar.chart((column.replace("_", "-"), title, said, "usd"), series)))
    return Section(key="time", body=join(charts, "\n"))


def bridge_section(contents: Contents) -> Section | None:
    """Return why a token costs more or less than in the baseline."""
    bridge = contents.table("bridge")
    if not bridge:
        return None
    column = "difference_per_million_tokens_usd"
    rows = list(bridge.rows("scenario", "cause", totals=[column]))
    most = max((abs(part) for _, _, part in rows), default=0.0) or 1.0
    tables = []
    for scenario in dict.fromkeys(name for name, _, _ in rows):
        parts = [(cause, part) for name, cause, part in rows if name == scenario]
        cells = [
            (
                cause.replace("_", " "),
                [f"{'+' if part > 0 else ''}{unit_price(part)}", "dearer" if part > 0 else "cheaper" if part else ""],
                [Part(name=cause, share=abs(part) / most, colour=1 if part > 0 else 2, shown=unit_price(part))],
            )
            for cause, part in sorted(parts, key=lambda pair: -abs(pair[1]))
        ]
        total = sum(part for _, part in parts)
        caption = f"{scenario}: {unit_price(abs(total))} per million tokens {'dearer' if total > 0 else 'cheaper'}"
        tables.append(bar_table(("cause", "per million tokens", "which is", "size"), cells, caption))
    said = paragraph(
        "Why a token costs more or less than in the baseline: the difference, shared among its causes. The parts sum "
        "to the whole (Shapley values)."
    )
    return Section(key="money", body=join([said, *tables]))


def swept_plans(contents: Contents) -> list[tuple[judgement.Served, list[str]]]:
    """Return the points of a sweep in the file's order, each with the settings that make it."""
    sweep, vary = contents.table("sweep"), contents.manifest.get("vary", {})
    if sweep is None or HEADLINE not in sweep:
        return []
    points = itertools.product(*vary.values()) if vary else [()] * len(sweep)
    columns = {name: sweep.numbers(name) if name in sweep else [None] * len(sweep) for name in JUDGED}
    swept = []
    for values, *figures in zip(points, *columns.values(), strict=True):
        named = ", ".join(f"{path} = {value}" for path, value in zip(vary, values, strict=True))
        settings = [f"{path}={value}" for path, value in zip(vary, values, strict=True)]
        swept.append((judgement.served(named, dict(zip(columns, figures, strict=True))), settings))
    return swept


def frontier_picture(contents: Contents) -> Picture | None:
    """Draw cost against service: every combination of a sweep, and those that no other beats in both."""
    plans = [plan for plan, _ in swept_plans(contents) if plan.cost is not None and plan.worst_fraction is not None]
    if len(plans) < 2:
        return None
    places = {id(plan): (plan.cost or 0.0, plan.worst_fraction) for plan in plans}
    costs, worst = zip(*places.values(), strict=True)
    room = 0.06 * ((max(costs) - min(costs)) or max(costs))
    left, right, low = min(costs) - room, max(costs) + room, min(worst)
    marks: list[Mark] = [
        Line(points=[places[id(plan)] for plan in judgement.frontier(plans)], colour=TOTAL, stroke=1.6)
    ]
    for kept, colour in ((False, 1), (True, 2)):
        dots = [places[id(plan)] for plan in plans if plan.keeps_promise is kept]
        marks.append(Line(points=dots, colour=colour, stroke=0.0, radius=5.0))
    promise = contents.manifest.get("promise")
    if isinstance(promise, dict) and not any(path.startswith("promise") for path in contents.manifest.get("vary", ())):
        marks.append(Line(points=[(left, promise["in_time"]), (right, promise["in_time"])], colour=4, stroke=1.4))
    if (best := judgement.choose(plans).best) is not None:
        marks.append(Line(points=[places[id(best)]], colour=2, stroke=0.0, radius=9.0))
    y = even_axis(max(0.0, low - 0.06 * (1.0 - low + 1e-6)), 1.0 + 0.03 * (1.0 - low + 1e-6), unit="percent",
                  label="Worst share of requests in time that the promise is about")  # fmt: skip
    x = even_axis(left, right, "USD per million tokens, levelised", unit="usd")
    keys = {"keeps its promise": 2, "breaks it": 1, "promised": 4}
    title = f"Cost against service, {contents.name}"
    return Picture(title=title, panels=[Panel(x=x, y=y, marks=marks)], keys=keys, shape="dot",
                   note="The line joins what no other beats in both; the one to take is large.")  # fmt: skip


def _frontier(contents: Contents) -> Html:
    """Return the picture of cost against service as part of a page."""
    picture = frontier_picture(contents)
    return (
        Html("")
        if picture is None
        else element("div", Html(svg_of(picture).partition("?>")[2].strip()), class_="picture")
    )


def _swept_promise(contents: Contents) -> str:
    """Say what the plans of a sweep promise, and why cost alone does not rank them."""
    promise = contents.manifest.get("promise")
    said = f"Promise: {judgement.promise_words(promise)}. " if isinstance(promise, dict) else ""
    return f"{said}Combinations that break it come last, by how far: a fleet too small is cheap too."


def _heat_map(contents: Contents, plans: list[judgement.Served]) -> Html:
    """Return cost by two inputs as a tinted table, where two were varied; what breaks its promise is struck out."""
    vary = contents.manifest.get("vary", {})
    if len(vary) != 2 or min(map(len, vary.values())) < 2 or max(map(len, vary.values())) > MOST_TINTED:
        return Html("")
    (down, rows), (across, columns) = vary.items()
    kept = [plan.cost for plan in plans if plan.keeps_promise and plan.cost is not None]
    low, high = (min(kept), max(kept)) if kept else (0.0, 0.0)
    cells = []
    for place, value in enumerate(rows):
        row_plans = plans[place * len(columns) : (place + 1) * len(columns)]
        cells.append((str(value), *(_tinted(plan, low, high) for plan in row_plans)))
    caption = "Cost per million tokens, levelised: the deeper the tint the dearer; struck out breaks its promise"
    head = join([breakable(down), " \\ ", breakable(across)])
    return table((head, *columns), cells, caption, numeric=range(1, len(columns) + 1))


def _tinted(plan: judgement.Served, low: float, high: float) -> Html:
    if plan.cost is None:
        return Html(NOTHING)
    if not plan.keeps_promise:
        return element("s", unit_price(plan.cost), title=plan.service)
    depth = round(4 * (plan.cost - low) / ((high - low) or 1.0))
    return element("span", unit_price(plan.cost), class_=f"tint t{depth}", title=plan.service)


def sweep_section(contents: Contents) -> Section | None:
    """Return the points of a sweep: those that serve well, cheapest first, then the others."""
    sweep, plans = contents.table("sweep"), [plan for plan, _ in swept_plans(contents)]
    if sweep is None or not plans:
        return None
    axes = [name for name in contents.manifest.get("vary", ()) if name in sweep]
    columns = [name for name in SWEPT if name in sweep]
    figures = [sweep.numbers(name) for name in columns]
    choice = judgement.choose(plans)
    places = {id(plan): place for place, plan in enumerate(plans)}
    order = [places[id(plan)] for plan in choice.ranked[:SHOWN_POINTS]]
    rows = [
        (
            *(sweep.texts(axis)[i] for axis in axes),
            plans[i].standing or NOTHING,
            *(measured(figure[i], name) for figure, name in zip(figures, columns, strict=True)),
        )
        for i in order
    ]
    header = (*axes, "promise", *(_words(name) for name in columns))
    caption = (
        f"{len(rows):,} of {len(plans):,} combinations: those that keep their promise, cheapest first, then by how far"
    )
    body = join(
        [
            paragraph(judgement.sweep_advice(choice), class_="headline"),
            paragraph(_swept_promise(contents), class_="note"),
            _frontier(contents),
            _heat_map(contents, plans),
            table(header, rows, caption, numeric=set(range(len(header))) - {len(axes)}, unbroken=(len(axes),)),
        ]
    )
    return Section(key="answer", body=body)
