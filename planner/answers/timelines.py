"""Timelines of a run: utilisation, cost per token and tokens, by cluster and by workload, with what happened."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from planner.answers.sections import section
from planner.output.blocks import Block, Grid, Marker, Section, Sentence, Series, TimeChart
from planner.output.folder import Contents
from planner.output.scales import TOTAL, Points
from planner.output.tables import Table
from planner.output.words import count
from planner.run.measure_names import FLEET

SHOWN_EVENTS = {"delivered": "delivery", "retired": "retired", "software": "software", "outage": "outage"}
"""Events with a lane of their own; failures are too many and have their own section."""
MAX_MARKERS = 400
READ_A_CHART = (
    "Point at a chart, or move through it with the arrow keys, to read it; drag across it to zoom; press a name to "
    "hide it everywhere. Events lie below the charts."
)
WORKLOAD_CHARTS = (
    (
        "workload-cost",
        "cost_per_million_tokens_usd",
        "Cost per million tokens by workload",
        "Each workload's share of accrued cost, by the machine time it takes, over its tokens served.",
        "usd",
    ),
    (
        "workload-hours",
        "accelerator_h",
        "Accelerator-hours at work by workload",
        "Whose work keeps the machines busy.",
        "accelerator-hours",
    ),
    (
        "workload-tokens",
        "served_tokens",
        "Tokens served by workload",
        "Prompt and generated tokens a month.",
        "tokens",
    ),
    (
        "objective",
        "slo_attainment_fraction",
        "Requests refused or late",
        "Share of each workload's requests that missed its objective.",
        "percent",
    ),
)
"""Key, column, title, what is to be seen and unit of each chart by workload."""


class Calendar:
    """Months of a run as days since its start."""

    def __init__(self, months: Iterable[str]) -> None:
        """Take the months as they stand in a file, repeats and all."""
        self.months = list(dict.fromkeys(months))
        self.start = _first(self.months[0])
        self.days = float((_after(_first(self.months[-1])) - self.start).days)

    def middle(self, month: str) -> float:
        """Return the middle of a month."""
        first = _first(month)
        return ((first - self.start).days + (_after(first) - self.start).days) / 2

    def day(self, stamp: str) -> float:
        """Return a date or time as days since start."""
        return _days_between(self.start, stamp)

    def chart(self, key: str, title: str, summary: str, unit: str, series: Sequence[Series], **more: Any) -> TimeChart:
        """Return a chart over these months."""
        return TimeChart(
            key=key, title=title, summary=summary, unit=unit, start=self.start, days=self.days, series=series, **more
        )


@functools.lru_cache(maxsize=4096)  # every cluster and workload has the same days
def _days_between(start: date, stamp: str) -> float:
    return (datetime.fromisoformat(stamp) - datetime.combine(start, datetime.min.time())).total_seconds() / 86400


def _first(month: str) -> date:
    return date.fromisoformat(f"{month}-01")


def _after(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def by_name(
    table: Table, name: str, x: str, column: str, place: Callable[[str], float]
) -> dict[str, list[tuple[float, float | None]]]:
    """Return (x, value) points of a column for each name in another."""
    points: dict[str, list[tuple[float, float | None]]] = {}
    for key, stamp, value in table.rows(name, x, numbers=[column]):
        points.setdefault(key, []).append((place(stamp), value))
    return points


def colours(names: Iterable[str]) -> dict[str, int]:
    """Give each name a colour of its own; the fleet has that of text."""
    others = [name for name in dict.fromkeys(names) if name != FLEET]
    return {**{name: i for i, name in enumerate(others)}, FLEET: TOTAL}


def markers(contents: Contents, calendar: Calendar) -> list[Marker]:
    """Return the events worth a mark: deliveries, software incidents, outages; the costliest where there are many."""
    events = contents.table("events")
    if events is None:
        return []
    names = ("event", "time", "end_time", "cluster", "cause", "detail")
    rows = events.rows(*names, totals=("lost_capacity_tokens", "accelerators"))
    marks = []
    for event, time, end, cluster, cause, detail, lost, accelerators in rows:
        if event not in SHOWN_EVENTS or not time:
            continue
        start = calendar.day(time)
        size = f"{accelerators:,.0f} accelerators" if accelerators else ""
        words = ", ".join(part for part in (f"{cluster}: {event}", cause, size, detail) if part)
        stop = calendar.day(end) if end else start
        marks.append((lost, Marker(kind=SHOWN_EVENTS[event], start=start, end=stop, label=words)))
    kept = sorted(marks, key=lambda pair: -pair[0])[:MAX_MARKERS]
    lane = {kind: i for i, kind in enumerate(SHOWN_EVENTS.values())}
    return sorted((marker for _, marker in kept), key=lambda m: (lane[m.kind], m.start, m.label))


def line_chart(
    calendar: Calendar,
    points: Mapping[str, Points],
    key: str,
    title: str,
    summary: str,
    unit: str,
    fine: Mapping[str, Points] | None = None,
    happened: Sequence[Marker] = (),
) -> TimeChart:
    """Return lines by name; prices that differ widely on a logarithmic scale."""
    palette = colours(points)
    series = [
        Series(name=name, points=line, colour=palette[name], fine=(fine or {}).get(name, ()) if name != FLEET else ())
        for name, line in points.items()
    ]
    values = [v for line in points.values() for _, v in line if v]
    wide = unit == "usd" and bool(values) and max(values) > 8 * min(values)
    said = summary + (" Logarithmic scale." if wide else "")
    return calendar.chart(key, title, said, unit, series, logarithmic=wide, markers=happened)


def cluster_chart(contents: Contents, column: str, key: str, title: str, summary: str, unit: str) -> TimeChart | None:
    """Return a figure of the clusters by month, and by day faint behind where the folder has days."""
    monthly, daily = contents.table("timeline_monthly"), contents.table("timeline_daily")
    if not monthly or column not in monthly:
        return None
    calendar = Calendar(monthly.texts("month"))
    points = by_name(monthly, "cluster", "month", column, calendar.middle)
    fine = by_name(daily, "cluster", "date", column, calendar.day) if daily is not None and column in daily else {}
    happened = markers(contents, calendar)
    return line_chart(calendar, points, contents.anchor + key, title, summary, unit, fine, happened)


def utilisation_chart(contents: Contents) -> TimeChart | None:
    """Return how busy each cluster was."""
    days = "; months bold, days faint" if contents.table("timeline_daily") is not None else ""
    said = f"Share of accelerator-hours in service that were at work{days}."
    return cluster_chart(contents, "utilisation_fraction", "utilisation", "Utilisation by cluster", said, "percent")


def cost_chart(contents: Contents) -> TimeChart | None:
    """Return what a token cost on each cluster."""
    said = "Accrued cost over prompt and generated tokens served, by month."
    title = "Cost per million tokens by cluster"
    return cluster_chart(contents, "cost_per_million_tokens_usd", "cost", title, said, "usd")


def _workload_chart(contents: Contents, key: str, column: str, title: str, said: str, unit: str) -> TimeChart | None:
    table = contents.table("timeline_workloads")
    if not table or column not in table:
        return None
    calendar = Calendar(table.texts("month"))
    points = by_name(table, "workload", "month", column, calendar.middle)
    if column == "slo_attainment_fraction":  # what was missed is what can be seen
        points = {name: [(x, v if v is None else 1.0 - v) for x, v in line] for name, line in points.items()}
    series = [Series(name=name, points=line, colour=i) for i, (name, line) in enumerate(points.items())]
    stacked = unit in ("tokens", "accelerator-hours")
    return calendar.chart(contents.anchor + key, title, said, unit, series, stacked=stacked)


def _fleet_lines(contents: Contents, lines: Mapping[str, tuple[str, int]]) -> tuple[Calendar, list[Series]] | None:
    """Return columns of the fleet's months as lines, each with its name and colour; those with figures alone."""
    monthly = contents.table("timeline_monthly")
    if not monthly or any(column not in monthly for column, _ in lines.values()):
        return None
    fleet, calendar = monthly.where("cluster", FLEET), Calendar(monthly.texts("month"))
    places = [calendar.middle(month) for month in fleet.texts("month")]
    return calendar, [
        Series(name=name, colour=colour, points=list(zip(places, fleet.numbers(column), strict=True)))
        for name, (column, colour) in lines.items()
        if any(value is not None for value in fleet.numbers(column))
    ]


def demand_chart(contents: Contents) -> TimeChart | None:
    """Return what was asked for against what was there, in accelerators, with what happened below."""
    lines = {
        "in service": ("accelerators_in_service", TOTAL),
        "needed in the highest hour": ("peak_accelerators_needed", 1),
        "needed on average": ("accelerators_needed", 0),
    }
    if (lines_of_fleet := _fleet_lines(contents, lines)) is None:
        return None
    calendar, series = lines_of_fleet
    broken = []
    if first := (contents.summary.get("promise") or {}).get("first_broken_month"):
        start, middle = calendar.day(f"{first}-01"), calendar.middle(first)
        label = f"the promise first breaks in {first}"
        broken.append(Marker(kind="promise", start=start, end=2 * middle - start, label=label))
    said = "Accelerators in service, and those that all work asked for would keep busy at its mix, routing and speed."
    happened = [*broken, *markers(contents, calendar)]
    key = f"{contents.anchor}demand"
    return calendar.chart(key, "Demand against capacity", said, "accelerators", series, markers=happened)


def power_chart(contents: Contents) -> TimeChart | None:
    """Return the power at the meter against its limit."""
    lines = {"highest hour": ("peak_facility_kw", 0), "limit": ("power_limit_kw", TOTAL)}
    if (lines_of_fleet := _fleet_lines(contents, lines)) is None:
        return None
    calendar, series = lines_of_fleet
    limited = "" if len(series) > 1 else " No limit is stated."
    said = f"Highest hour of each month at the meter, cooling and distribution included, in kW.{limited}"
    return calendar.chart(f"{contents.anchor}power", "Power against its limit", said, "kW", series)


def timeline_section(contents: Contents) -> Section | None:
    """Return utilisation and cost per token over time, by cluster and by workload."""
    if not contents.table("timeline_monthly"):
        return None
    charts = [utilisation_chart(contents), cost_chart(contents), power_chart(contents)]
    charts += [_workload_chart(contents, *chart) for chart in WORKLOAD_CHARTS]
    drawn: list[Block] = [chart for chart in charts if chart is not None]
    return section("time", [Sentence(text=READ_A_CHART), *drawn, *_worst_events(contents)])


def _worst_events(contents: Contents, shown: int = 12) -> list[Grid]:
    """Return the events that cost most."""
    events = contents.table("events")
    if not events:
        return []
    lost, times = events.totals("lost_capacity_tokens"), events.texts("time")
    worst = heapq.nsmallest(shown, range(len(events)), key=lambda row: (-lost[row], times[row], row))
    names = [events.texts(name) for name in ("cluster", "event", "cause", "detail")]
    hours = events.totals("duration_h")
    cells = [
        (times[row][:10], *(column[row] for column in names), f"{hours[row]:,.1f}", count(lost[row]))
        for row in worst
        if lost[row] > 0
    ]
    header = ("day", "cluster", "event", "cause", "what", "hours", "tokens of capacity")
    caption = f"The {len(cells)} events that cost most capacity"
    return [Grid(caption=caption, header=header, rows=cells, numeric=(5, 6), unbroken=range(5))] if cells else []
