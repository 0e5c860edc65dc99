"""The report of a zoom: who was in time, the distributions of latency, and the queue over time."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence

from planner.output.picture import Line, Panel, Picture, even_axis, ratio_axis, svg_of
from planner.output.report.contents import Contents, Table
from planner.output.report.html import Html, element, join, paragraph, table
from planner.output.report.page import Section
from planner.output.report.words import percent

QUANTITIES = {
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
    summary = contents.json("summary.json")
    names = ("in_time", "in_time_low", "in_time_high", "late", "shed", "hourly_in_time", "hourly_late", "hourly_shed")
    figures = ("requests", *(f"{name}_fraction" for name in names))
    rows = [
        (name, f"{requests or 0:,.0f}", *(percent(share, 2) for share in shares))
        for name, requests, *shares in workloads.rows("workload", numbers=figures)
    ]
    header = (
        "workload", "requests", "in time", "from", "to", "late", "shed", "hourly: in time", "hourly: late",
        "hourly: shed",
    )  # fmt: skip
    share = float(summary.get("simulated_share_fraction", 1.0))
    sampled = "the whole fleet" if share >= 1.0 else f"{percent(share, 2)} of the fleet and of its traffic"
    said = (
        f"{summary.get('minutes')} minutes from {summary.get('at')}, request by request, on {sampled}. The interval "
        "holds 95 of 100 samples like this one."
    )
    body = [paragraph(said), table(header, rows, "What became of the requests", numeric=range(1, 10))]
    body.append(_reasons(contents))
    return Section(key="answer", asks="Who was in time", body=join(body, "\n"))


def _reasons(contents: Contents) -> Html:
    """Return why requests were not in time."""
    reasons = contents.table("reasons")
    if reasons is None:
        return Html("")
    shares = reasons.rows("workload", "reason", numbers=["fraction"])
    rows = [(workload, reason, percent(share, 2)) for workload, reason, share in shares if share]
    if not rows:
        return paragraph("Every request was in time.")
    return table(("workload", "why not in time", "of its requests"), rows, "Why not in time", numeric=(2,))


def latency_section(contents: Contents) -> Section | None:
    """Return percentiles and distributions of latency."""
    latencies, curves = contents.table("latencies"), contents.table("distributions")
    if latencies is None or curves is None:
        return None
    percentiles = list(dict.fromkeys(latencies.texts("percentile")))
    header = ("workload", *(f"P{100 * float(p.replace(',', '.')):g}" for p in percentiles))
    parts: list[Html] = []
    for quantity, words in QUANTITIES.items():
        of_quantity = latencies.where("quantity", quantity)
        rows: dict[str, list[str]] = {}
        for workload, value, low, high in of_quantity.rows("workload", totals=("value", "low", "high")):
            rows.setdefault(workload, []).append(f"{value:.3g} ({low:.3g} to {high:.3g})")
        caption = f"{words}, seconds, with 95% intervals"
        numbers = table(
            header, [(name, *cells) for name, cells in rows.items()], caption, numeric=range(1, len(header))
        )
        parts += [chart(words, "seconds", _curves(curves.where("quantity", quantity)), logarithmic=True), numbers]
    said = "Each curve says which share of the requests had answered by then."
    return Section(key="latency", asks="How long requests took", body=join([paragraph(said), *parts], "\n"))


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
    parts = []
    for column, words in (
        ("waiting", "Requests waiting or in prefill"),
        ("running", "Sequences that decode"),
        ("cache_fraction", "Share of the cache in use"),
    ):
        lines: dict[str, list[tuple[float, float]]] = {}
        for name, second, value in seconds.rows("replicas", totals=("second", column)):
            lines.setdefault(name, []).append((second / 60.0, value))
        parts.append(chart(words, "minutes", [(name, _thinned(points)) for name, points in lines.items()]))
    return Section(key="queue", asks="How the queue went", body=join(parts, "\n"))


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the highest point of each of some equal stretches: a queue's peaks are what is looked for."""
    step = max(1, math.ceil(len(points) / _MOST_POINTS))
    return [max(points[i : i + step], key=lambda point: point[1]) for i in range(0, len(points), step)]


def chart(title: str, unit: str, lines: Sequence[NamedLine], *, logarithmic: bool = False) -> Html:
    """Return a picture with one line for each name."""
    points = [point for _, line in lines for point in line]
    if not points:
        return Html("")
    across = [x for x, _ in points]
    x_axis = ratio_axis(across, unit) if logarithmic else even_axis(min(across), max(across), unit)
    y_axis = even_axis(0.0, max((1e-9, *(y for _, y in points))))
    panel = Panel(x=x_axis, y=y_axis, marks=[Line(points=line, colour=i) for i, (_, line) in enumerate(lines)])
    picture = Picture(title=title, panels=[panel], keys={name: i for i, (name, _) in enumerate(lines)})
    drawn = base64.b64encode(svg_of(picture).encode()).decode()
    source = f"data:image/svg+xml;base64,{drawn}"  # a page of its own, so that its names cannot clash with others'
    return element("figure", element("img", src=source, alt=f"{title}, by {unit}", width="100%"))
