"""The sections of a comparison and of a sweep."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from planner.reporting.judgement import (
    COST,
    GOOD_SERVICE_FRACTION,
    IN_TIME,
    SHED,
    Choice,
    Served,
    against,
    choose,
    comparable,
    much_shed,
    recommendation,
    served,
    sweep_advice,
    warnings_of,
)
from planner.reporting.report.bars import Part, bar_table
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.html import Html, join, paragraph, table
from planner.reporting.report.page import Section, code
from planner.reporting.report.timechart import Series, TimeChart, draw
from planner.reporting.report.timelines import Calendar, by_name, colours
from planner.reporting.report.words import NOTHING, measured, percent, unit_price

HEADLINE = COST
ACCRUED = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (HEADLINE, ACCRUED, "cost_usd", "npv_usd", IN_TIME, SHED)
SWEPT = ("utilisation_fraction", IN_TIME, SHED, "cost_usd", ACCRUED, HEADLINE)
SHOWN_POINTS = 60


def _measures(comparison: Table) -> dict[str, dict[str, float | None]]:
    """Return measures by scenario."""
    found: dict[str, dict[str, float | None]] = defaultdict(dict)
    rows = zip(comparison.texts("scenario"), comparison.texts("measure"), comparison.numbers("value"), strict=True)
    for scenario, measure, value in rows:
        found[scenario][measure] = value
    return found


def answer_section(contents: Contents) -> Section | None:
    """Return which scenario to take: the cheapest that serves well, and how it stands against the baseline."""
    comparison = contents.table("comparison")
    if comparison is None or not len(comparison):
        return None
    found = _measures(comparison)
    baseline = str(contents.manifest.get("baseline", next(iter(found))))
    plans = [served(name, figures) for name, figures in found.items()]
    summary = contents.json("summary.json")
    choice = choose(plans)
    body = [
        *(paragraph(line, class_="headline") for line in much_shed(plans)),
        paragraph(recommendation(plans, baseline, _saving(choice, summary)), class_="headline"),
        *(paragraph(line, class_="note") for line in (warnings_of(choice) if choice.best else ())),
        _scenario_table(found, {plan.name: plan for plan in plans}, baseline),
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
    return Section(key="answer", title="What should we do?", body=join(body))


def _saving(choice: Choice, summary: dict[str, Any]) -> tuple[float, float, str] | None:
    """Return where the saving of the plan to take lies under other draws of chance."""
    if choice.best is None:
        return None
    interval = summary.get("saving_interval_fraction", {}).get(choice.best.name)
    return None if interval is None else (interval[0], interval[1], summary["chance"][choice.best.name]["words"])


def _scenario_table(found: dict[str, dict[str, float | None]], plans: dict[str, Served], baseline: str) -> Html:
    names = [name for name in SHOWN_MEASURES if any(figures.get(name) is not None for figures in found.values())]
    palette = colours(found)
    most = max((plan.cost or 0.0 for plan in plans.values()), default=0.0) or 1.0
    rows = []
    for scenario, figures in found.items():
        plan, base = plans[scenario], plans[baseline]
        stands = against(plan.cost, base.cost) if comparable(plan, base) else ""
        parts = [
            Part(name=scenario, share=(plan.cost or 0.0) / most, colour=palette[scenario], shown=unit_price(plan.cost))
        ]
        numbers = [measured(figures.get(name), name) for name in names]
        label = f"{scenario} (baseline)" if scenario == baseline else scenario
        rows.append((label, [*numbers, stands or NOTHING], parts))
    header = (
        "scenario",
        *(_words(name) for name in names),
        "a token, against the baseline",
        "per million tokens, levelised",
    )
    return bar_table(header, rows, "The scenarios side by side")


_SPOKEN = {
    HEADLINE: "levelised per M tokens",
    ACCRUED: "accrued per M tokens",
    "npv_usd": "NPV",
    IN_TIME: "in time",
    SHED: "shed",
}


def _words(name: str) -> str:
    return _SPOKEN.get(name, name.removesuffix("_usd").removesuffix("_fraction").replace("_", " "))


def timeline_section(contents: Contents) -> Section | None:
    """Return cost per token and cash by scenario over time."""
    monthly = contents.table("comparison_monthly")
    if monthly is None or not len(monthly):
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
        charts.append(
            draw(
                TimeChart(
                    key=column.replace("_", "-"), title=title, summary=said, unit="usd", start=calendar.start,
                    days=calendar.days, series=series,
                )
            )
        )  # fmt: skip
    return Section(key="time", title="How it goes over time", body=join(charts, "\n"))


def bridge_section(contents: Contents) -> Section | None:
    """Return why a token costs more or less than in the baseline."""
    bridge = contents.table("bridge")
    if bridge is None or not len(bridge):
        return None
    column = "difference_per_million_tokens_usd"
    rows = list(zip(bridge.texts("scenario"), bridge.texts("cause"), bridge.totals(column), strict=True))
    most = max((abs(part) for _, _, part in rows), default=0.0) or 1.0
    tables = []
    for scenario in dict.fromkeys(name for name, _, _ in rows):
        own = [(cause, part) for name, cause, part in rows if name == scenario]
        cells = [
            (
                cause.replace("_", " "),
                [f"{'+' if part > 0 else ''}{unit_price(part)}", "dearer" if part > 0 else "cheaper" if part else ""],
                [Part(name=cause, share=abs(part) / most, colour=1 if part > 0 else 2, shown=unit_price(part))],
            )
            for cause, part in sorted(own, key=lambda pair: -abs(pair[1]))
        ]
        total = sum(part for _, part in own)
        caption = f"{scenario}: {unit_price(abs(total))} per million tokens {'dearer' if total > 0 else 'cheaper'}"
        tables.append(bar_table(("cause", "per million tokens", "which is", "size"), cells, caption))
    said = paragraph(
        "Why a token costs more or less than in the baseline: the difference, shared among its causes. The parts sum "
        "to the whole (Shapley values)."
    )
    return Section(key="money", title="Where the money goes", body=join([said, *tables]))


def swept_plans(contents: Contents) -> list[tuple[Served, list[str]]]:
    """Return the points of a sweep in the file's order, each with the settings that make it."""
    sweep, vary = contents.table("sweep"), contents.manifest.get("vary", {})
    if sweep is None or HEADLINE not in sweep:
        return []
    points = itertools.product(*vary.values()) if vary else [()] * len(sweep)
    columns = {name: sweep.numbers(name) if name in sweep else [None] * len(sweep) for name in (COST, IN_TIME, SHED)}
    found = []
    for values, *figures in zip(points, *columns.values(), strict=True):
        named = ", ".join(f"{path} = {value}" for path, value in zip(vary, values, strict=True))
        settings = [f"{path}={value}" for path, value in zip(vary, values, strict=True)]
        found.append((served(named, dict(zip(columns, figures, strict=True))), settings))
    return found


def sweep_section(contents: Contents) -> Section | None:
    """Return the points of a sweep: those that serve well, cheapest first, then the others."""
    sweep, plans = contents.table("sweep"), [plan for plan, _ in swept_plans(contents)]
    if sweep is None or not plans:
        return None
    axes = [name for name in contents.manifest.get("vary", ()) if name in sweep]
    columns = [name for name in SWEPT if name in sweep]
    figures = [sweep.numbers(name) for name in columns]
    choice = choose(plans)
    places = {id(plan): place for place, plan in enumerate(plans)}
    order = [places[id(plan)] for plan in choice.ranked[:SHOWN_POINTS]]
    rows = [
        (
            *(sweep.texts(axis)[i] for axis in axes),
            *(measured(figure[i], name) for figure, name in zip(figures, columns, strict=True)),
            "yes" if plans[i].serves_well else "no",
        )
        for i in order
    ]
    header = (*axes, *(_words(name) for name in columns), "serves well")
    caption = f"{len(rows):,} of {len(plans):,} combinations: those that serve well, cheapest first, then the others"
    body = join(
        [
            paragraph(sweep_advice(choice), class_="headline"),
            paragraph(
                f"A plan serves well when {percent(GOOD_SERVICE_FRACTION, 0)} of requests are in time and no more than "
                f"{percent(1 - GOOD_SERVICE_FRACTION, 0)} of tokens are shed: a fleet too small is cheap too.",
                class_="note",
            ),
            table(header, rows, caption, numeric=range(len(header) - 1)),
        ]
    )
    return Section(key="answer", title="What should we do?", body=body)
