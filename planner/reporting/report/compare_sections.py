"""The sections of a comparison and of a sweep."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from planner.reporting.report.bars import Part, bar_table
from planner.reporting.report.contents import Contents, Table
from planner.reporting.report.html import Html, join, paragraph, table
from planner.reporting.report.page import Section, code
from planner.reporting.report.timechart import Series, TimeChart, draw
from planner.reporting.report.timelines import Calendar, by_name, colours
from planner.reporting.report.words import NOTHING, WORSE_SERVED, measured, percent, unit_price

HEADLINE = "cost_per_million_tokens_usd"
SHOWN_MEASURES = (HEADLINE, "cost_usd", "npv_usd", "slo_attainment_fraction")
SWEPT = ("utilisation_fraction", "slo_attainment_fraction", "cost_usd", HEADLINE)
SHOWN_POINTS = 60


def _measures(comparison: Table) -> dict[str, dict[str, float | None]]:
    """Return measures by scenario."""
    found: dict[str, dict[str, float | None]] = defaultdict(dict)
    rows = zip(comparison.texts("scenario"), comparison.texts("measure"), comparison.numbers("value"), strict=True)
    for scenario, measure, value in rows:
        found[scenario][measure] = value
    return found


def answer_section(contents: Contents) -> Section | None:
    """Return which scenario is cheapest, by how much, against the baseline."""
    comparison = contents.table("comparison")
    if comparison is None or not len(comparison):
        return None
    found = _measures(comparison)
    baseline = str(contents.manifest.get("baseline", next(iter(found))))
    priced = {name: figures[HEADLINE] for name, figures in found.items() if figures.get(HEADLINE)}
    summary = contents.json("summary.json")
    worse = _worse_served(found, baseline)
    body = [
        paragraph(_headline({name: each for name, each in priced.items() if name not in worse}, baseline, summary),
                  class_="headline"),
        *(paragraph(line, class_="note") for line in worse.values()),
        _scenario_table(found, priced, baseline),
    ]  # fmt: skip
    body.extend(paragraph(f"Warning: {warning}", class_="note") for warning in summary.get("warnings", ()))
    body.append(
        paragraph(
            "All scenarios had the same traffic and the same luck, so the differences are the plans'. ",
            code("planner montecarlo"), " says how often the order holds when prices, growth and throughput are not as "
            "stated.", class_="note",
        )
    )  # fmt: skip
    return Section(key="answer", title="What should we do?", body=join(body))


def _worse_served(found: dict[str, dict[str, float | None]], baseline: str) -> dict[str, str]:
    """Return, of the scenarios that serve clearly worse than the baseline, what there is to say."""
    reference = found[baseline].get("slo_attainment_fraction")
    said = {}
    for name, figures in found.items():
        attained = figures.get("slo_attainment_fraction")
        if attained is not None and reference is not None and attained < reference - WORSE_SERVED:
            said[name] = (
                f"{name} is no alternative as it stands: it serves {percent(attained)} of requests within their "
                f"objective, {baseline} {percent(reference)}. What it saves, it saves by doing less."
            )
    return said


def _headline(priced: dict[str, Any], baseline: str, summary: dict[str, Any]) -> str:
    """Say which of the plans that serve as well as the baseline is cheapest, and by how much."""
    if not priced:
        return "None of these plans served a token."
    best = min(priced, key=lambda name: (priced[name], name != baseline))
    said = f"{best} serves a token for least: {unit_price(priced[best])} per million"
    if best == baseline:
        others = sorted(value for name, value in priced.items() if name != baseline)
        margin = f", {percent(1 - priced[best] / others[0])} below the next" if others else ""
        return f"{said}{margin}. It is the baseline: none of the others saves anything and serves as well."
    if baseline not in priced:
        return f"{said}."
    saved = f"{said}, {percent(1 - priced[best] / priced[baseline])} less than the baseline {baseline}"
    interval = summary.get("saving_interval_fraction", {}).get(best)
    if interval is None:
        return f"{saved}."
    words = summary["chance"][best]["words"]
    return f"{saved} ({percent(interval[0])} to {percent(interval[1])} in {words})."


def _scenario_table(found: dict[str, dict[str, float | None]], priced: dict[str, Any], baseline: str) -> Html:
    names = [name for name in SHOWN_MEASURES if any(figures.get(name) is not None for figures in found.values())]
    palette = colours(found)
    most = max(priced.values(), default=0.0) or 1.0
    rows = []
    for scenario, figures in found.items():
        each, reference = priced.get(scenario), priced.get(baseline)
        saves = percent(1 - each / reference) if each and reference and scenario != baseline else NOTHING
        parts = [Part(name=scenario, share=(each or 0.0) / most, colour=palette[scenario], shown=unit_price(each))]
        numbers = [measured(figures.get(name), name) for name in names]
        label = f"{scenario} (baseline)" if scenario == baseline else scenario
        rows.append((label, [*numbers, saves], parts))
    header = ("scenario", *(_words(name) for name in names), "saves per token", "per million tokens")
    return bar_table(header, rows, "The scenarios side by side")


_SPOKEN = {HEADLINE: "per M tokens", "npv_usd": "NPV", "slo_attainment_fraction": "in objective"}


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
        (HEADLINE, "Cost per million tokens by scenario", "Accrued cost over tokens served, by month."),
        (
            "cumulative_cost_per_million_tokens_usd",
            "The same from the start",
            "Accrued cost so far over tokens so far.",
        ),
        ("cash_saving_usd", "Cash saved against the baseline", "Cash flow less the baseline's, by month."),
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


def sweep_section(contents: Contents) -> Section | None:
    """Return the points of a sweep, cheapest first."""
    sweep = contents.table("sweep")
    if sweep is None or not len(sweep) or HEADLINE not in sweep:
        return None
    axes = [name for name in contents.manifest.get("vary", ()) if name in sweep]
    columns = [name for name in SWEPT if name in sweep]
    figures = [sweep.numbers(name) for name in columns]
    order = sorted(
        range(len(sweep)), key=lambda i: (sweep.numbers(HEADLINE)[i] is None, sweep.numbers(HEADLINE)[i] or 0.0)
    )
    rows = [
        (
            *(sweep.texts(axis)[i] for axis in axes),
            *(measured(figure[i], name) for figure, name in zip(figures, columns, strict=True)),
        )
        for i in order[:SHOWN_POINTS]
    ]
    header = (*axes, *(_words(name) for name in columns))
    best = ", ".join(f"{axis} = {cell}" for axis, cell in zip(axes, rows[0], strict=False))
    body = join(
        [
            paragraph(f"Of {len(sweep):,} combinations a token costs least with {best}.", class_="headline"),
            paragraph(
                "Look at what is shed before choosing the cheapest: a fleet too small is cheap too.", class_="note"
            ),
            table(header, rows, f"The cheapest {len(rows):,}", numeric=range(len(header))),
        ]
    )
    return Section(key="answer", title="What should we do?", body=body)
