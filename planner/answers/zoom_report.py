"""The sections of a zoom: SLO attainment, latency distributions, and the queue over time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from planner.answers.sections import section
from planner.output.blocks import (
    Block,
    Grid,
    Line,
    Mark,
    Panel,
    Picture,
    Section,
    Sentence,
    VerticalRule,
)
from planner.output.folder import Contents
from planner.output.svg import even_axis, ratio_axis
from planner.output.words import percent

TITLES = {
    "ttft_s": "Time to the first token",
    "tpot_s": "Time per token after the first",
    "total_s": "Whole request",
}
_MOST_POINTS = 360


def answer_section(contents: Contents) -> Section:
    """Return SLO attainment request by request, beside that of the hourly model."""
    summary = contents.summary
    in_time = "slo_attainment"
    names = (in_time, f"{in_time}_low", f"{in_time}_high", "late", "shed")
    columns = [
        f"{name}_fraction" for name in (*names, f"hourly_{in_time}", "hourly_late", "hourly_shed")
    ]
    counts = ("requests", "finished", "due")
    rows = list[tuple[str, ...]]()
    for name, status, *numbers in contents.tables["workloads"].rows(
        "workload", "status", numbers=[*counts, *columns]
    ):
        attained, *shares = (percent(share, 2) for share in numbers[3:])
        known = attained if numbers[3] is not None else status
        rows.append((name, *(f"{number or 0:,.0f}" for number in numbers[:3]), known, *shares))
    hourly = ("hourly: attained", "hourly: late", "hourly: shed")
    header = ("workload", *counts, "attained", "from", "to", "late", "shed", *hourly)
    share = float(summary["simulated_share_fraction"])
    sampled = (
        "the whole fleet"
        if share >= 1.0
        else f"{percent(share, 2)} of the fleet and of its traffic"
    )
    said = (
        f"{summary['minutes']} minutes from {summary['at']}, request by request, on {sampled}. The interval "
        "holds 95 of 100 samples like this one."
    )
    grid = Grid(
        caption="What became of the requests",
        header=header,
        rows=rows,
        numeric=range(1, len(header)),
    )
    missed = contents.tables["slo_miss_causes"].rows(
        "workload", "cause", numbers=["missed_fraction"]
    )
    why = [(workload, reason, percent(share, 2)) for workload, reason, share in missed if share]
    named = ("workload", "why missed", "of its requests")
    causes = Grid(caption="Why requests missed their SLO", header=named, rows=why, numeric=(2,))
    last: Block = causes if why else Sentence(text="No request missed a latency objective.")
    first = _latency_chart(contents, "ttft_s")
    return section(
        "answer", [Sentence(text=said, tone="headline"), *first, grid, last], "SLO attainment"
    )


def _latency_chart(contents: Contents, quantity: str) -> list[Picture]:
    """Draw which share of requests had answered by when, up to P99.9, with each workload's objective upright."""
    lines = defaultdict[str, list[tuple[float, float]]](list)
    curves = contents.tables["distributions"].where("quantity", quantity)
    for name, share, value in curves.rows("workload", totals=("share_fraction", "value")):
        lines[name].append((max(value, 1e-4), share))
    limits = defaultdict[float, list[str]](list)
    for name, workload in contents.summary["workloads"].items():
        if (limit := workload.get("slo", {}).get(quantity)) is not None and name in lines:
            limits[limit].append(name)
    notes = {
        limit: f"SLO {limit:g} s, {', '.join(names)}" for limit, names in sorted(limits.items())
    }
    return chart(f"{TITLES[quantity]}, share of requests by then", "seconds", lines, notes)


def latency_section(contents: Contents) -> Section:
    """Return percentiles and distributions of latency."""
    latencies = contents.tables["latencies"]
    header = (
        "workload",
        *(f"P{100 * float(p):g}" for p in dict.fromkeys(latencies.texts("percentile"))),
    )
    blocks: list[Block] = [
        Sentence(text="Each curve says which share of the requests had answered by then.")
    ]
    for quantity, words in TITLES.items():
        cells = defaultdict[str, list[str]](list)
        figures = latencies.where("quantity", quantity)
        for name, value, low, high in figures.rows("workload", totals=("value", "low", "high")):
            cells[name].append(f"{value:.3g} ({low:.3g} to {high:.3g})")
        if quantity != "ttft_s":  # which the answer has
            blocks += _latency_chart(contents, quantity)
        rows = [(name, *shown) for name, shown in cells.items()]
        caption = f"{words}, seconds, with 95% intervals"
        blocks.append(
            Grid(caption=caption, header=header, rows=rows, numeric=range(1, len(header)))
        )
    return section("latency", blocks, "Latency")


def queue_section(contents: Contents) -> Section:
    """Return queue, batch and cache over time: of equal stretches the highest points, as peaks are looked for."""
    blocks: list[Block] = []
    for column, words in (
        ("waiting", "Requests waiting or in prefill"),
        ("running", "Sequences that decode"),
        ("cache_fraction", "Share of the cache in use"),
    ):
        lines = defaultdict[str, list[tuple[float, float]]](list)
        for name, second, value in contents.tables["seconds"].rows(
            "replicas", totals=("second", column)
        ):
            lines[name].append((second / 60.0, value))
        for name, points in lines.items():
            step = max(1, math.ceil(len(points) / _MOST_POINTS))
            stretches = [points[i : i + step] for i in range(0, len(points), step)]
            lines[name] = [max(stretch, key=lambda point: point[1]) for stretch in stretches]
        blocks += chart(words, "minutes", lines)
    return section("queue", blocks, "Queue")


Lines = Mapping[str, Sequence[tuple[float, float]]]


def chart(
    title: str, unit: str, lines: Lines, limits: Mapping[float, str] | None = None
) -> list[Picture]:
    """Return a picture with one line for each name; none where there is nothing to draw.

    Distributions have limits, to be drawn as lines with a note, an axis of ratios across and one of shares upwards.
    """
    points = [point for line in lines.values() for point in line]
    if not points:
        return []
    across = [*(x for x, _ in points), *(limits or ())]
    x_axis = (
        even_axis(min(across), max(across), unit) if limits is None else ratio_axis(across, unit)
    )
    top = max((1e-9, *(y for _, y in points)))
    y_axis = even_axis(0.0, top) if limits is None else even_axis(0.0, 1.0, unit="percent")
    marks: list[Mark] = [Line(points=line, colour=i) for i, line in enumerate(lines.values())]
    marks += [
        VerticalRule(x=limit, note=note, is_dashed=True) for limit, note in (limits or {}).items()
    ]
    panel = Panel(x=x_axis, y=y_axis, marks=marks, height=260.0)
    return [Picture(title=title, panels=[panel], keys={name: i for i, name in enumerate(lines)})]
