"""Timelines of a run: utilisation, cost per token and tokens, by cluster and by workload, with what happened."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from planner.answers.sections import section
from planner.data_files import data_rows
from planner.output.blocks import Block, Marker, Section, Sentence, Series, TimeChart
from planner.output.folder import Contents
from planner.output.scales import TOTAL, Points
from planner.output.tables import Table
from planner.run.measure_names import FLEET

SHOWN_EVENTS = {
    "delivered": "delivery",
    "retired": "retired",
    "software": "software",
    "outage": "outage",
}
"""Events with a lane of their own; failures are too many and have their own section."""
MAX_MARKERS = 400
READ_A_CHART = "Point at a chart or use the arrow keys to read it, drag across it to zoom, press a name to hide it."
LINE_CHARTS = {
    row.pop("key"): tuple(row.values()) for row in data_rows(__file__, "line_charts.csv")
}
"""Whose lines, column, title, unit and what is to be seen of each chart of lines by month, by key."""


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
        return (
            datetime.fromisoformat(stamp) - datetime.combine(self.start, time())
        ).total_seconds() / 86400

    def chart(
        self, key: str, title: str, summary: str, unit: str, series: Sequence[Series], **more: Any
    ) -> TimeChart:
        """Return a chart over these months."""
        return TimeChart(key, title, summary, unit, self.start, self.days, series, **more)


def _first(month: str) -> date:
    return date.fromisoformat(month)


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
    if (events := contents.table("events")) is None:
        return []
    names = ("event", "time", "end_time", "cluster", "cause", "detail")
    marks = []
    rows = events.rows(*names, totals=("lost_capacity_tokens", "accelerators"))
    for event, time_of, end, cluster, cause, detail, lost, accelerators in rows:
        if event in SHOWN_EVENTS and time_of:
            size = f"{accelerators:,.0f} accelerators" if accelerators else ""
            label = ", ".join(part for part in (f"{cluster}: {event}", cause, size, detail) if part)
            start = calendar.day(time_of)
            stop = calendar.day(end or time_of)
            marks.append(
                (lost, Marker(kind=SHOWN_EVENTS[event], start=start, end=stop, label=label))
            )
    kept = sorted(marks, key=lambda pair: -pair[0])[:MAX_MARKERS]
    lanes = list(SHOWN_EVENTS.values())
    return sorted(
        (marker for _, marker in kept), key=lambda m: (lanes.index(m.kind), m.start, m.label)
    )


def line_chart(contents: Contents, key: str) -> TimeChart | None:
    """Return lines by month of clusters, with their days faint behind, or of workloads; of the fleet for several plans.

    Prices of machines that differ widely have a logarithmic scale.
    """
    of, column, title, unit, said = LINE_CHARTS[key]
    of = "scenario" if of == "cluster" and contents.plans else of
    names = {
        "workload": "timeline_workloads",
        "cluster": "timeline_monthly_clusters",
        "scenario": "timeline_monthly",
    }
    table, daily, fleet = contents.table(names[of]), None, contents.table("timeline_monthly")
    if not table:
        return None
    if of == "scenario":
        title = title.replace(
            "by cluster", "by scenario, as stated" if contents.kind == "study" else "by scenario"
        )
    calendar = Calendar(table.texts("month"))
    points = by_name(table, of, "month", column, calendar.middle)
    if of == "cluster" and fleet is not None:
        points[FLEET] = [
            (calendar.middle(month), value)
            for month, value in fleet.rows("month", numbers=[column])
        ]
    if column == "slo_attainment_fraction":  # what was missed is what can be seen
        points = {
            name: [(x, v if v is None else 1.0 - v) for x, v in line]
            for name, line in points.items()
        }
    fine: Mapping[str, Points] = {}
    if (
        of == "cluster"
        and (daily := contents.table("timeline_daily_clusters")) is not None
        and column in daily
    ):
        fine = by_name(daily, "cluster", "date", column, calendar.day)
    palette = colours(points)
    series = [
        Series(name, line, palette[name], fine=fine.get(name, ()))
        for name, line in points.items()
        if any(value is not None for _, value in line)  # a cluster without a node has none
    ]
    values = [v for line in points.values() for _, v in line if v]
    wide = of != "workload" and unit == "usd" and bool(values) and max(values) > 8 * min(values)
    said = (
        said.format(days="" if daily is None else "; months bold, days faint")
        + " Logarithmic scale." * wide
    )
    more = {"stacked": unit in ("tokens", "accelerator-hours"), "logarithmic": wide}
    happened = markers(contents, calendar) if of == "cluster" else []
    return calendar.chart(
        contents.anchor + key, title, said, unit, series, markers=happened, **more
    )


def _fleet_lines(
    contents: Contents, lines: Mapping[str, tuple[str, int]]
) -> tuple[Calendar, list[Series]] | None:
    """Return columns of the fleet's months as lines, each with its name and colour; those with figures alone."""
    if not (monthly := contents.table("timeline_monthly")):
        return None
    calendar = Calendar(monthly.texts("month"))
    places = [calendar.middle(month) for month in calendar.months]
    return calendar, [
        Series(
            name=name, colour=colour, points=list(zip(places, monthly.numbers(column), strict=True))
        )
        for name, (column, colour) in lines.items()
        if any(value is not None for value in monthly.numbers(column))
    ]


def demand_chart(contents: Contents) -> TimeChart | None:
    """Return demand against capacity in accelerators, with events below."""
    lines = {
        "in service": ("accelerators_in_service", TOTAL),
        "needed in the highest hour": ("peak_accelerators_needed", 1),
        "needed on average": ("accelerators_needed", 0),
    }
    if (answer := _fleet_lines(contents, lines)) is None:
        return None
    calendar, series = answer
    happened = markers(contents, calendar)
    record = {} if contents.plan else contents.summary.get("verdict", {})
    for place, (month, number) in enumerate((record.get("missed_months") or {}).items()):
        start = calendar.day(f"{month}-01")
        middle = calendar.middle(f"{month}-01")
        label = f"SLO missed in {month}, in {number} of {record['replications']} replications"
        happened.insert(
            place, Marker(kind="missed", start=start, end=2 * middle - start, label=label)
        )
    said = "Accelerators in service, and accelerators that all demand would keep busy at its mix, routing and speed."
    key = f"{contents.anchor}demand"
    return calendar.chart(
        key, "Demand against capacity", said, "accelerators", series, markers=happened
    )


def run_out_chart(contents: Contents) -> list[TimeChart]:
    """Return by when how many replications of each plan have run out; none where no replication does."""
    records = contents.summary.get("verdicts") or {
        contents.name: contents.summary.get("verdict", {})
    }
    tables = map(contents.table, ("comparison_monthly", "timeline_monthly", "monthly_bands"))
    monthly = next((table for table in tables if table), None)
    if monthly is None or not any(record.get("run_out_fraction") for record in records.values()):
        return []
    calendar = Calendar(monthly.texts("month"))
    series = list[Series]()
    palette = colours(records)
    for name, record in records.items():
        shares = [
            (record.get("run_out_fraction") or {}).get(month[:7], 0.0) for month in calendar.months
        ]
        points = list(
            zip(map(calendar.middle, calendar.months), itertools.accumulate(shares), strict=True)
        )
        series.append(Series(name=name, points=points, colour=palette[name]))
    said = "Share of replications that have missed their SLO target by the end of each month."
    return [calendar.chart(f"{contents.kind}-run-out", "When it runs out", said, "percent", series)]


def power_chart(contents: Contents) -> TimeChart | None:
    """Return the power at the meter against its limit."""
    lines = {"highest hour": ("peak_facility_kw", 0), "limit": ("facility_power_cap_kw", TOTAL)}
    if (answer := _fleet_lines(contents, lines)) is None:
        return None
    calendar, series = answer
    limited = "" if len(series) > 1 else " No limit is stated."
    said = f"Highest hour of each month at the meter, cooling and distribution included, in kW.{limited}"
    return calendar.chart(f"{contents.anchor}power", "Power against its limit", said, "kW", series)


def timeline_section(contents: Contents) -> Section | None:
    """Return utilisation and cost per token over time, by cluster and by workload."""
    if not contents.table("timeline_monthly"):
        return None
    charts = [line_chart(contents, key) for key in LINE_CHARTS]
    charts.insert(2, power_chart(contents))
    blocks: list[Block] = [
        Sentence(text=READ_A_CHART),
        *(chart for chart in charts if chart is not None),
    ]
    return section("time", blocks)
