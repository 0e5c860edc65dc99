"""The first section of a single run's report: what it costs, what to look at, and what it cannot say."""

from __future__ import annotations

from typing import Any

from planner.output.judgement import dearest_cluster, much_shed, promise_verdict, served, sizing
from planner.output.report.contents import Contents
from planner.output.report.html import Html, Part, bar_table, element, join, paragraph
from planner.output.report.page import Section, code
from planner.output.report.timechart import draw
from planner.output.report.timelines import colours, demand_chart
from planner.output.report.words import count, dollars, percent, unit_price
from planner.run.measure_names import FLEET


def answer_section(contents: Contents) -> Section | None:
    """Return the headline of one run: what it costs, what to look at, and what it cannot say."""
    summary = contents.json("summary.json")
    if "clusters" not in summary:
        return None
    listed = element("ul", *(element("li", line) for line in findings(summary)))
    body = join(
        [
            *(
                paragraph(line, class_="headline")
                for line in much_shed([served("This plan", summary["clusters"][FLEET])])
            ),
            *(paragraph(line, class_="headline") for line in verdict(summary)),
            paragraph(headline(summary), class_="headline"),
            _cards(summary),
            draw(chart) if (chart := demand_chart(contents)) else Html(""),
            listed,
            _cluster_table(summary),
            _baseline(summary),
        ]
    )
    return Section(key="answer", body=body)


def verdict(summary: dict[str, Any]) -> list[str]:
    """Say whether the promise is kept, when it first breaks, and what it lacks; nothing of an older folder."""
    promise = summary.get("promise")
    if promise is None:
        return []
    return [line for line in (promise_verdict(promise), "" if promise["kept"] else sizing(summary)) if line]


def _cards(summary: dict[str, Any]) -> Html:
    """Return the headline figures, each with the range that chance gives it where the plan was drawn again."""
    fleet = summary["clusters"][FLEET]
    intervals = (summary.get("chance") or {}).get("intervals", {})
    months = f"over {summary['horizon_months']} months"
    cards = (
        ("per million tokens", fleet["cost_per_million_tokens_usd"], unit_price, "cost_per_million_tokens_usd"),
        ("per million generated", fleet["cost_per_million_output_tokens_usd"], unit_price,
         "cost_per_million_output_tokens_usd"),
        (months, fleet["cost_usd"], dollars, "cost_usd"),
        ("tokens served", fleet["served_tokens"], count, ""),
        ("utilised", fleet["utilisation_fraction"], percent, "utilisation_fraction"),
        ("requests in time", fleet.get("slo_attainment_fraction"), _two_digits, "slo_attainment_fraction"),
    )  # fmt: skip
    shown = []
    for term, value, form, name in cards:
        parts = [element("dt", term), element("dd", form(value))]
        if name in intervals:
            low, high = (form(end) for end in intervals[name])
            parts.append(element("dd", low if low == high else f"{low} to {high}", class_="range"))
        shown.append(element("div", *parts, class_="card"))
    return element("dl", *shown, class_="cards")


def _two_digits(share: float | None) -> str:
    return percent(share, 2)


def headline(summary: dict[str, Any]) -> str:
    """Say in a sentence what a run serves, and for how much."""
    fleet = summary["clusters"][FLEET]
    attained = fleet.get("slo_attainment_fraction")
    served = f", and serves {percent(attained, 2)} of requests in time" if attained is not None else ""
    return (
        f"This plan serves {count(fleet['served_tokens'])} tokens in {summary['horizon_months']} months for "
        f"{dollars(fleet['cost_usd'])}: {unit_price(fleet['cost_per_million_tokens_usd'])} per million tokens{served}."
    )


def findings(summary: dict[str, Any]) -> list[str]:
    """Say what the figures suggest: the size of the fleet, what is dear, what is late, what was warned of."""
    clusters = {name: row for name, row in summary["clusters"].items() if name != FLEET}
    told = verdict(summary)
    lines = [advice] if (advice := sizing(summary)) and advice not in told else []
    lines += [said] if (said := dearest_cluster(summary)) else []
    unused = [name for name, row in clusters.items() if not row["served_tokens"]]
    if unused:
        lines.append(f"{', '.join(unused)} served nothing: no workload that it can take was routed to it.")
    if (
        (worst := summary.get("worst_month"))
        and worst["missed_fraction"] > 0.001
        and worst["month"] not in " ".join(told)
    ):
        missed = percent(worst["missed_fraction"], 2)
        lines.append(f"The worst month is {worst['month']}: {missed} of requests shed or late.")
    lines += [f"Warning: {warning}" for warning in summary.get("warnings", ())]
    return [*lines, *(f"Note: {note}" for note in summary.get("notes", ()))]


def _cluster_table(summary: dict[str, Any]) -> Html:
    palette = colours(summary["clusters"])
    most = max((row["cost_per_million_tokens_usd"] or 0.0) for row in summary["clusters"].values()) or 1.0
    names = [*(name for name in summary["clusters"] if name != FLEET), FLEET]
    rows = []
    for name in names:
        row = summary["clusters"][name]
        cost = row["cost_per_million_tokens_usd"]
        parts = [Part(name=name, share=(cost or 0.0) / most, colour=palette[name], shown=unit_price(cost))]
        numbers = (
            percent(row["availability_fraction"]), percent(row["utilisation_fraction"]), count(row["served_tokens"]),
            dollars(row["cost_usd"]), unit_price(row["cost_per_million_output_tokens_usd"]), unit_price(cost),
        )  # fmt: skip
        rows.append((name, numbers, parts))
    header = (
        "cluster",
        "available",
        "utilised",
        "tokens",
        "cost",
        "USD/M generated",
        "USD/M tokens",
        "per million tokens",
    )
    return bar_table(header, rows, "The clusters side by side")


def _baseline(summary: dict[str, Any]) -> Html:
    chance = summary.get("chance")
    if chance is None:
        said = "This is one plan and one replication of it, so it has no interval and no baseline. "
    else:
        said = (
            f"The small figures are where {chance['words']} lie ({chance['draws']} replications of traffic noise, "
            "failures, incidents and slips, every input as stated). The plan has no baseline here. "
        )
    return paragraph(
        said, code("planner compare"), " puts it beside another plan on the same traffic and the same luck; ",
        code("planner montecarlo"), " adds what is not known about prices, growth and throughput.", class_="note",
    )  # fmt: skip
