"""Timelines of a run: utilisation, cost per token and tokens, by cluster and by workload, with what happened."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import NamedTuple

from planner.answers.sections import section
from planner.answers.verdicts import PlanVerdict
from planner.data_files import data_rows
from planner.finance.measure_names import FLEET
from planner.output.blocks import Marker, Section, Sentence, Series, TimeChart
from planner.output.folder import Contents
from planner.output.scales import TOTAL, Points
from planner.output.tables import Table

EVENT_LANES = {
    "ordered": "order",
    "delivered": "delivery",
    "retired": "retired",
    "software": "software",
    "outage": "outage",
}
"""Events with a lane of their own; failures are too many and have their own section."""
MAX_MARKERS = 400
SECONDS_PER_DAY = 86400
LOGARITHMIC_RATIO = 8
"""Times the lowest price from which on a linear scale would flatten the cheap clusters; assumption."""
READ_A_CHART = "Point at a chart or use the arrow keys to read values; drag to zoom; click a name to hide its line."


class LineChart(NamedTuple):
    """A chart of lines by month, as a line of ``line_charts.csv`` describes it."""

    names: str
    """What has a line each: cluster or workload."""
    column: str
    title: str
    unit: str
    summary: str
    """What is to be seen."""


LINE_CHARTS = {
    row.pop("key"): LineChart(*row.values()) for row in data_rows(__file__, "line_charts.csv")
}
"""The charts of lines by month, by key."""
LINE_TABLES = {
    "workload": "timeline_workloads",
    "cluster": "timeline_monthly_clusters",
    "scenario": "timeline_monthly",
}
"""The table of a chart, by what has a line each."""


class Calendar:
    """Months of a run as days since its start."""

    def __init__(self, months: Iterable[str]) -> None:
        """Take the months as they stand in a file, repeats and all."""
        # A table by cluster has each month once per cluster.
        self.months = list(dict.fromkeys(months))
        self.start = date.fromisoformat(self.months[0])
        end = _next_month(date.fromisoformat(self.months[-1]))
        self.days = float((end - self.start).days)

    def middle(self, month: str) -> float:
        """Return the middle of a month."""
        begin = date.fromisoformat(month)
        begin_days = (begin - self.start).days
        end_days = (_next_month(begin) - self.start).days
        return (begin_days + end_days) / 2

    def day(self, stamp: str) -> float:
        """Return a date or time as days since start."""
        midnight = datetime.combine(self.start, time())
        elapsed = datetime.fromisoformat(stamp) - midnight
        return elapsed.total_seconds() / SECONDS_PER_DAY

    def chart(
        self,
        key: str,
        title: str,
        summary: str,
        unit: str,
        series: Sequence[Series],
        *,
        markers: Sequence[Marker] = (),
        stacked: bool = False,
        logarithmic: bool = False,
    ) -> TimeChart:
        """Return a chart over these months."""
        return TimeChart(
            key,
            title,
            summary,
            unit,
            self.start,
            self.days,
            series,
            markers=markers,
            stacked=stacked,
            logarithmic=logarithmic,
        )


def _next_month(month: date) -> date:
    # December is the only month whose successor is in another year.
    year = month.year + month.month // 12
    return date(year, month.month % 12 + 1, 1)


def points_by_name(
    table: Table, names: str, x: str, column: str, place: Callable[[str], float]
) -> dict[str, list[tuple[float, float | None]]]:
    """Return (x, value) points of a column for each name in another."""
    points: dict[str, list[tuple[float, float | None]]] = {}
    rows = table.rows(names, x, numbers=[column])
    for name, stamp, value in rows:
        # In the order of the table, in which the months of each name follow one another.
        point = (place(stamp), value)
        points.setdefault(name, []).append(point)
    return points


def colours(names: Iterable[str]) -> dict[str, int]:
    """Give each name a colour of its own; the fleet has that of text."""
    # The fleet takes no colour, so that clusters have the same ones with and without it.
    without_fleet = (name for name in dict.fromkeys(names) if name != FLEET)
    numbered = enumerate(without_fleet)
    return {name: colour for colour, name in numbered} | {FLEET: TOTAL}


def event_markers(contents: Contents, calendar: Calendar) -> list[Marker]:
    """Return the events worth a mark: deliveries, software incidents, outages; the costliest where there are many."""
    events = contents.table("events")
    if events is None:
        return []
    columns = ("event", "time", "end_time", "cluster", "cause", "detail")
    costs_and_markers = []
    rows = events.rows(*columns, totals=("lost_capacity_tokens", "accelerators"))
    for event, begin, end, cluster, cause, detail, lost_tokens, accelerators in rows:
        # An order that never came has no time.
        if event not in EVENT_LANES or not begin:
            continue
        size = f"{accelerators:,.0f} accelerators" if accelerators else ""
        # Parts that an event does not have leave no comma behind.
        parts = (f"{cluster}: {event}", cause, size, detail)
        label = ", ".join(filter(None, parts))
        marker = Marker(
            kind=EVENT_LANES[event],
            start=calendar.day(begin),
            end=calendar.day(end or begin),
            label=label,
        )
        costs_and_markers.append((lost_tokens, marker))
    # A long horizon has thousands of events: more marks than pixels tell nothing.
    by_cost = sorted(costs_and_markers, key=lambda pair: -pair[0])
    costliest = by_cost[:MAX_MARKERS]
    lanes = list(EVENT_LANES.values())
    # By lane and time, since the page lists them in that order.
    markers = (marker for _, marker in costliest)
    return sorted(
        markers,
        key=lambda marker: (lanes.index(marker.kind), marker.start, marker.label),
    )


def line_chart(contents: Contents, key: str) -> TimeChart | None:
    """Return lines by month of clusters or of workloads; of the fleet for several plans.

    Prices of machines that differ widely have a logarithmic scale.
    """
    described = LINE_CHARTS[key]
    column = described.column
    names = described.names
    # Of plans side by side each is one line.
    if names == "cluster" and contents.plans:
        names = "scenario"
        plans = "by scenario, as stated" if contents.kind == "study" else "by scenario"
        described = described._replace(title=described.title.replace("by cluster", plans))
    table = contents.table(LINE_TABLES[names])
    if not table:
        return None
    calendar = Calendar(table.texts("month"))
    points = points_by_name(table, names, "month", column, calendar.middle)
    if column == "slo_attainment_fraction":  # what was missed is what can be seen
        points = {
            name: [(x, None if share is None else 1.0 - share) for x, share in line]
            for name, line in points.items()
        }
    if names != "cluster":
        return _lines(contents, calendar, key, described, points)
    fleet = contents.table("timeline_monthly")
    # The fleet is a line among its clusters, in the colour of text.
    if fleet is not None:
        months = fleet.rows("month", numbers=[column])
        points[FLEET] = [(calendar.middle(month), value) for month, value in months]
    markers = event_markers(contents, calendar)
    return _lines(contents, calendar, key, described, points, markers)


def _lines(
    contents: Contents,
    calendar: Calendar,
    key: str,
    described: LineChart,
    points: Mapping[str, Points],
    markers: Sequence[Marker] = (),
) -> TimeChart:
    """Return a chart of a line each; those without any figure, as of a cluster without a node, are left out."""
    palette = colours(points)
    series = [
        Series(name, line, palette[name])
        for name, line in points.items()
        if any(value is not None for _, value in line)
    ]
    # Zeros have no place on a logarithmic scale, and say nothing of how far prices differ.
    values = [value for line in points.values() for _, value in line if value]
    is_price = described.names != "workload" and described.unit == "usd"
    is_wide = is_price and bool(values) and max(values) > LOGARITHMIC_RATIO * min(values)
    summary = described.summary
    return calendar.chart(
        contents.anchor + key,
        described.title,
        f"{summary} Logarithmic scale." if is_wide else summary,
        described.unit,
        series,
        markers=markers,
        stacked=described.unit in ("tokens", "accelerator-hours"),
        logarithmic=is_wide,
    )


def _fleet_lines(
    monthly: Table, calendar: Calendar, lines: Mapping[str, tuple[str, int]]
) -> list[Series]:
    """Return columns of the fleet's months as lines, each with its name and colour; those with figures alone."""
    places = [calendar.middle(month) for month in calendar.months]
    # Limits and the like may not be stated: a line without figures is left out.
    return [
        Series(name, list(zip(places, monthly.numbers(column), strict=True)), colour)
        for name, (column, colour) in lines.items()
        if any(value is not None for value in monthly.numbers(column))
    ]


def demand_chart(contents: Contents, verdict: PlanVerdict | None = None) -> TimeChart | None:
    """Return demand against capacity in accelerators, with events, and the months that miss the SLO target, below."""
    monthly = contents.table("timeline_monthly")
    if not monthly:
        return None
    calendar = Calendar(monthly.texts("month"))
    lines = {
        "in service": ("accelerators_in_service", TOTAL),
        "needed in the highest hour": ("peak_accelerators_needed", 1),
        "needed on average": ("accelerators_needed", 0),
    }
    series = _fleet_lines(monthly, calendar, lines)
    markers = [*_missed_months(calendar, verdict), *event_markers(contents, calendar)]
    return calendar.chart(
        f"{contents.anchor}demand",
        "Demand against capacity",
        "Accelerators in service, and accelerators that would be busy if all demand were served.",
        "accelerators",
        series,
        # Missed months first: their lane is the one that a reader looks for.
        markers=markers,
    )


def _missed_months(calendar: Calendar, verdict: PlanVerdict | None) -> list[Marker]:
    """Return a mark for each month in which a replication misses the SLO target."""
    if verdict is None:
        return []
    markers = []
    for month, number in (verdict.missed_months or {}).items():
        start = calendar.day(f"{month}-01")
        # The middle lies halfway between both ends of the month.
        middle = calendar.middle(f"{month}-01")
        end = 2 * middle - start
        label = f"SLO missed in {month}, in {number} of {verdict.replications} replications"
        marker = Marker(kind="missed", start=start, end=end, label=label)
        markers.append(marker)
    return markers


def run_out_chart(
    contents: Contents, monthly: Table | None, verdicts: Mapping[str, PlanVerdict]
) -> TimeChart | None:
    """Return by when how many replications of each plan have run out; None where no replication does.

    A plan whose prompts alone miss the target runs out of nothing. ``monthly`` is a table that has all months.
    """
    running_out = {name: verdict for name, verdict in verdicts.items() if not verdict.long_prompts}
    if not monthly or not any(verdict.run_out_fraction for verdict in running_out.values()):
        return None
    calendar = Calendar(monthly.texts("month"))
    places = [calendar.middle(month) for month in calendar.months]
    palette = colours(verdicts)
    series = []
    for name, verdict in running_out.items():
        by_month = verdict.run_out_fraction or {}
        # Who has run out stays so: the share by a month is that of all months up to it.
        by_calendar = (by_month.get(month[:7], 0.0) for month in calendar.months)
        shares = itertools.accumulate(by_calendar)
        points = list(zip(places, shares, strict=True))
        series.append(Series(name, points, palette[name]))
    summary = "Share of replications that have missed their SLO target by the end of each month."
    return calendar.chart(
        f"{contents.kind}-run-out", "When capacity runs out", summary, "percent", series
    )


def hits_chart(contents: Contents) -> TimeChart | None:
    """Return the share of prompt tokens found in prefix caches, by month, for each workload on each cluster.

    None where no workload of a single run states its reuse: then the shares are stated and do not move.
    """
    routing = contents.table("routing_monthly")
    if not routing or contents.plans:
        return None
    calendar = Calendar(routing.texts("month"))
    points: dict[str, list[tuple[float, float | None]]] = {}
    for month, cluster, workload, share in routing.rows(
        "month", "cluster", "workload", numbers=["hit_fraction"]
    ):
        if share is not None:
            line = points.setdefault(f"{workload} on {cluster}", [])
            line.append((calendar.middle(month), share))
    if not points:
        return None
    palette = colours(points)
    series = [Series(name, line, palette[name]) for name, line in points.items()]
    summary = (
        "Share of prompt tokens found in the memory of accelerators or servers. "
        "On a given replica the share falls as load rises."
    )
    key = f"{contents.anchor}cache-hits"
    return calendar.chart(key, "Prefix cache hits", summary, "percent", series)


def power_chart(contents: Contents) -> TimeChart | None:
    """Return the power at the meter against its limit."""
    monthly = contents.table("timeline_monthly")
    if not monthly:
        return None
    calendar = Calendar(monthly.texts("month"))
    lines = {"highest hour": ("peak_facility_kw", 0), "limit": ("facility_power_cap_kw", TOTAL)}
    series = _fleet_lines(monthly, calendar, lines)
    summary = "Highest hour of each month at the meter in kW, including cooling and distribution."
    # A column without figures has no line: then no limit is stated.
    if len(series) < len(lines):
        summary += " No limit is stated."
    key = f"{contents.anchor}power"
    return calendar.chart(key, "Power against its limit", summary, "kW", series)


def timeline_section(contents: Contents) -> Section | None:
    """Return utilisation and cost per token over time, by cluster and by workload."""
    if not contents.table("timeline_monthly"):
        return None
    charts = [line_chart(contents, key) for key in LINE_CHARTS]
    # After utilisation and cost, before tokens.
    charts[2:2] = [power_chart(contents), hits_chart(contents)]
    return section("time", [Sentence(text=READ_A_CHART), *charts])
