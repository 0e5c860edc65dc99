"""The sections of a zoom: who was in time, the distributions of latency, and the queue over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.answers.sections import section
from planner.output.blocks import Block, Grid, Line, Panel, Picture, Section, Sentence
from planner.output.folder import Contents
from planner.output.svg import even_axis, ratio_axis
from planner.output.tables import Table
from planner.output.words import percent

TITLES = {
    "ttft_s": "Time to the first token",
    "tpot_s": "Time per token after the first",
    "total_s": "Whole request",
}
_MOST_POINTS = 360

NamedLine = tuple[str, Sequence[tuple[float, float]]]


def answer_section(contents: Contents) -> Section | None:
    """Return who was in time, beside what the hourly model says."""
    workloads = contents.table("workloads")
    if workloads is None or contents.kind != "zoom":
        return None
    summary = contents.summary
    names = ("in_time", "in_time_low", "in_time_high", "late", "shed", "hourly_in_time", "hourly_late", "hourly_shed")
    figures = ("requests", *(f"{name}_fraction" for name in names))
    rows = [
        (name, f"{requests or 0:,.0f}", *(percent(share, 2) for share in shares))
        for name, requests, *shares in workloads.rows("workload", numbers=figures)
    ]
    header = (
        "workload",
        "requests",
        "in time",
        "from",
        "to",
        "late",
        "shed",
        "hourly: in time",
        "hourly: late",
        "hourly: shed",
    )
    share = float(summary.get("simulated_share_fraction", 1.0))
    sampled = "the whole fleet" if share >= 1.0 else f"{percent(share, 2)} of the fleet and of its traffic"
    said = (
        f"{summary.get('minutes')} minutes from {summary.get('at')}, request by request, on {sampled}. The interval "
        "holds 95 of 100 samples like this one."
    )
    grid = Grid(caption="What became of the requests", header=header, rows=rows, numeric=range(1, 10))
    return section("answer", [Sentence(text=said), grid, *_reasons(contents)], "Who was in time")


def _reasons(contents: Contents) -> list[Block]:
    """Return why requests were not in time."""
    reasons = contents.table("reasons")
    if reasons is None:
        return []
    shares = reasons.rows("workload", "reason", numbers=["fraction"])
    rows = [(workload, reason, percent(share, 2)) for workload, reason, share in shares if share]
    if not rows:
        return [Sentence(text="Every request was in time.")]
    header = ("workload", "why not in time", "of its requests")
    return [Grid(caption="Why not in time", header=header, rows=rows, numeric=(2,))]


def latency_section(contents: Contents) -> Section | None:
    """Return percentiles and distributions of latency."""
    latencies, curves = contents.table("latencies"), contents.table("distributions")
    if latencies is None or curves is None:
        return None
    percentiles = list(dict.fromkeys(latencies.texts("percentile")))
    header = ("workload", *(f"P{100 * float(p.replace(',', '.')):g}" for p in percentiles))
    blocks: list[Block] = []
    for quantity, words in TITLES.items():
        of_quantity = latencies.where("quantity", quantity)
        rows: dict[str, list[str]] = {}
        for workload, value, low, high in of_quantity.rows("workload", totals=("value", "low", "high")):
            rows.setdefault(workload, []).append(f"{value:.3g} ({low:.3g} to {high:.3g})")
        caption = f"{words}, seconds, with 95% intervals"
        cells = [(name, *shown) for name, shown in rows.items()]
        blocks += chart(words, "seconds", _curves(curves.where("quantity", quantity)), logarithmic=True)
        blocks.append(Grid(caption=caption, header=header, rows=cells, numeric=range(1, len(header))))
    said = "Each curve says which share of the requests had answered by then."
    return section("latency", [Sentence(text=said), *blocks], "How long requests took")


def _curves(latencies: Table) -> list[NamedLine]:
    """Return the share of requests at or below each value, by workload."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, share, value in latencies.rows("workload", totals=("share_fraction", "value")):
        lines.setdefault(name, []).append((max(value, 1e-4), share))
    return list(lines.items())


def queue_section(contents: Contents) -> Section | None:
    """Return queue, batch and cache over time."""
    seconds = contents.table("seconds")
    if seconds is None:
        return None
    blocks: list[Block] = []
    for column, words in (
        ("waiting", "Requests waiting or in prefill"),
        ("running", "Sequences that decode"),
        ("cache_fraction", "Share of the cache in use"),
    ):
        lines: dict[str, list[tuple[float, float]]] = {}
        for name, second, value in seconds.rows("replicas", totals=("second", column)):
            lines.setdefault(name, []).append((second / 60.0, value))
        blocks += chart(words, "minutes", [(name, _thinned(points)) for name, points in lines.items()])
    return section("queue", blocks, "How the queue went")


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the highest point of each of some equal stretches: a queue's peaks are what is looked for."""
    step = max(1, math.ceil(len(points) / _MOST_POINTS))
    return [max(points[i : i + step], key=lambda point: point[1]) for i in range(0, len(points), step)]


def chart(title: str, unit: str, lines: Sequence[NamedLine], *, logarithmic: bool = False) -> list[Picture]:
    """Return a picture with one line for each name; none where there is nothing to draw."""
    points = [point for _, line in lines for point in line]
    if not points:
        return []
    across = [x for x, _ in points]
    x_axis = ratio_axis(across, unit) if logarithmic else even_axis(min(across), max(across), unit)
    y_axis = even_axis(0.0, max((1e-9, *(y for _, y in points))))
    panel = Panel(x=x_axis, y=y_axis, marks=[Line(points=line, colour=i) for i, (_, line) in enumerate(lines)])
    return [Picture(title=title, panels=[panel], keys={name: i for i, (name, _) in enumerate(lines)})]
