"""The sections of a zoom: SLO attainment, latency distributions, and the queue over time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

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
from planner.requests.zoom_summary import ZoomSummary

TITLES = {
    "ttft_s": "Time to the first token",
    "tpot_s": "Time per token after the first",
    "total_s": "Whole request",
}
"""Latencies by their names in the tables."""
_MAX_POINTS = 360
"""Points of a line over time: more are not told apart on a page."""
_MIN_SECONDS = 1e-4
"""Shortest latency that is drawn: an axis of ratios has no zero."""
_PANEL_HEIGHT = 260.0

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Points of a chart, by the name of their line."""


def zoom_sections(contents: Contents) -> list[Section]:
    """Return the sections of a zoom's report."""
    summary = ZoomSummary.from_json(contents)
    return [
        answer_section(contents, summary),
        latency_section(contents, summary),
        queue_section(contents),
    ]


def answer_section(contents: Contents, summary: ZoomSummary) -> Section:
    """Return SLO attainment request by request, beside that of the hourly model."""
    counts = ("requests", "finished", "due")
    shares = (
        "slo_attainment",
        "slo_attainment_low",
        "slo_attainment_high",
        "late",
        "shed",
        "hourly_slo_attainment",
        "hourly_late",
        "hourly_shed",
    )
    share_columns = (f"{name}_fraction" for name in shares)
    columns = [*counts, *share_columns]
    rows = list[tuple[str, ...]]()
    table_rows = contents.tables["workloads"].rows("workload", "status", numbers=columns)
    for name, status, *numbers in table_rows:
        numbers_text = [f"{number or 0:,.0f}" for number in numbers[:3]]
        attained, *shares_text = [percent(share, 2) for share in numbers[3:]]
        # Deferrable work that the minutes are too few to judge by has a status in place of a share.
        if numbers[3] is None:
            attained = status
        rows.append((name, *numbers_text, attained, *shares_text))
    hourly = ("hourly: attained", "hourly: late", "hourly: shed")
    header = ("workload", *counts, "attained", "from", "to", "late", "shed", *hourly)
    grid = Grid(
        caption="What became of the requests",
        header=header,
        rows=rows,
        numeric=range(1, len(header)),
    )
    sample = "the whole fleet"
    if summary.simulated_share_fraction < 1.0:
        sample = f"{percent(summary.simulated_share_fraction, 2)} of the fleet and of its traffic"
    headline = (
        f"{summary.minutes} minutes from {summary.at}, simulated request by request on {sample}. The interval "
        "contains 95 of 100 samples like this one."
    )
    chart = _latency_chart(contents, summary, "ttft_s")
    answer = Sentence(text=headline, tone="headline")
    blocks = [answer, *chart, grid, _causes(contents)]
    return section("answer", blocks, "SLO attainment")


def _causes(contents: Contents) -> Block:
    """Return why requests missed their SLO, as a grid; a sentence where none did."""
    table = contents.tables["slo_miss_causes"]
    causes = table.rows("workload", "cause", numbers=["missed_fraction"])
    rows = [(workload, cause, percent(share, 2)) for workload, cause, share in causes if share]
    if not rows:
        return Sentence(text="No request missed a latency objective.")
    header = ("workload", "why missed", "of its requests")
    return Grid(caption="Why requests missed their SLO", header=header, rows=rows, numeric=(2,))


def _latency_chart(contents: Contents, summary: ZoomSummary, quantity: str) -> list[Picture]:
    """Draw which share of requests had answered by when, up to P99.9, with each workload's objective upright."""
    lines = defaultdict[str, list[tuple[float, float]]](list)
    curves = contents.tables["distributions"].where("quantity", quantity)
    rows = curves.rows("workload", totals=("share_fraction", "value"))
    for name, share, seconds in rows:
        # A request without a wait has no place on an axis of ratios.
        lines[name].append((max(seconds, _MIN_SECONDS), share))
    names_by_limit = defaultdict[float, list[str]](list)
    for name, outcome in summary.workloads.items():
        # Deferrable work has no objective of seconds, and the whole request has none either.
        limit = None
        if outcome.slo is not None:
            limit = getattr(outcome.slo, quantity, None)
        if limit is not None and name in lines:
            names_by_limit[limit].append(name)
    # Workloads of one objective share a line: two notes in one place could not be read.
    rules: list[Mark] = [
        VerticalRule(x=limit, note=f"SLO {limit:g} s, {', '.join(names)}", is_dashed=True)
        for limit, names in sorted(names_by_limit.items())
    ]
    all_points = chain.from_iterable(lines.values())
    seconds = [x for x, _ in all_points]
    if not seconds:
        return []
    # The objectives too are on the axis, also where no request took as long.
    seconds_axis = ratio_axis([*seconds, *names_by_limit], "seconds")
    panel = Panel(
        x=seconds_axis,
        y=even_axis(0.0, 1.0, unit="percent"),
        marks=[*_line_marks(lines), *rules],
        height=_PANEL_HEIGHT,
    )
    title = f"{TITLES[quantity]}, share of requests by then"
    return [_picture(title, panel, lines)]


def latency_section(contents: Contents, summary: ZoomSummary) -> Section:
    """Return percentiles and distributions of latency."""
    latencies = contents.tables["latencies"]
    percentiles = dict.fromkeys(latencies.texts("percentile"))
    percentile_names = (f"P{100 * float(percentile):g}" for percentile in percentiles)
    header = ("workload", *percentile_names)
    blocks: list[Block] = [
        Sentence(text="Each curve shows the share of requests that were answered by then.")
    ]
    for quantity, title in TITLES.items():
        cells = defaultdict[str, list[str]](list)
        estimates = latencies.where("quantity", quantity)
        table_rows = estimates.rows("workload", totals=("value", "low", "high"))
        for name, value, low, high in table_rows:
            cells[name].append(f"{value:.3g} ({low:.3g} to {high:.3g})")
        if quantity != "ttft_s":  # which the answer has
            blocks += _latency_chart(contents, summary, quantity)
        rows = [(name, *row) for name, row in cells.items()]
        blocks.append(
            Grid(
                caption=f"{title}, seconds, with 95% intervals",
                header=header,
                rows=rows,
                numeric=range(1, len(header)),
            )
        )
    return section("latency", blocks, "Latency")


def queue_section(contents: Contents) -> Section:
    """Return queue, batch and cache over time."""
    titles = {
        "waiting": "Requests waiting or in prefill",
        "running": "Sequences that decode",
        "cache_fraction": "Share of the cache in use",
    }
    blocks: list[Block] = []
    for column, title in titles.items():
        points = defaultdict[str, list[tuple[float, float]]](list)
        seconds = contents.tables["seconds"]
        rows = seconds.rows("replicas", totals=("second", column))
        for name, second, height in rows:
            points[name].append((second / 60.0, height))
        lines = {name: _peaks(line) for name, line in points.items()}
        all_points = list(chain.from_iterable(lines.values()))
        if not all_points:
            continue  # an hour without replicas
        minutes = [x for x, _ in all_points]
        # Above zero: an axis needs a length, also where nothing waits.
        highest = max((1e-9, *(y for _, y in all_points)))
        panel = Panel(
            x=even_axis(min(minutes), max(minutes), "minutes"),
            y=even_axis(0.0, highest),
            marks=_line_marks(lines),
            height=_PANEL_HEIGHT,
        )
        blocks.append(_picture(title, panel, lines))
    return section("queue", blocks, "Queue")


def _peaks(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the highest point of each of equal stretches: readers look for peaks."""
    # Rounded up, so that no chart has more points than it may.
    step = max(1, math.ceil(len(points) / _MAX_POINTS))
    starts = range(0, len(points), step)
    stretches = [points[i : i + step] for i in starts]
    return [max(stretch, key=lambda point: point[1]) for stretch in stretches]


def _line_marks(lines: Lines) -> list[Mark]:
    """Return a line of its own colour for each name."""
    return [Line(points=points, colour=i) for i, points in enumerate(lines.values())]


def _picture(title: str, panel: Panel, lines: Lines) -> Picture:
    """Return a picture of one panel with a key to its lines."""
    keys = {name: i for i, name in enumerate(lines)}
    return Picture(title=title, panels=[panel], keys=keys)
