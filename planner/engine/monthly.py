"""Hours summed into months, and the conservation checks of every run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import in_hours
from planner.engine.driver import Run
from planner.engine.hourly import NodeHours, WindowResult, joined
from planner.engine.log import SpeedChange
from planner.errors import ConservationError
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.plan.quantities import fates, in_service, shares
from planner.records import record

_RELATIVE = 1e-9
"""Of a sum: what adding up in another order may be off by."""
Pair = tuple[int, int]
"""A cluster and a workload."""


@record
class Monthly:
    """Monthly sums; shape (months, clusters) unless stated.

    Node-hours are split so that the parts sum to the whole: present = failed + dark + busy + throttled + idle.
    """

    present_node_h: Floats
    """Delivered and not retired."""
    failed_node_h: Floats
    """Out of service for a hardware fault, or taken out by a user's process."""
    process_node_h: Floats
    """What users' processes took: nodes taken out, and what slowing others cost of those at work."""
    process_drag_node_h: Floats
    """Of that, the latter."""
    dark_node_h: Floats
    """Healthy, but the site had no power."""
    busy_node_h: Floats
    """At work."""
    drag_node_h: Floats
    """Of those at work, what slow software cost."""
    throttled_node_h: Floats
    """Had work and lost it to the power cap."""
    served_requests: Floats
    """Shape (months, clusters, workloads)."""
    it_kwh: Floats
    facility_kwh: Floats
    """IT, and cooling and distribution in proportion to it; by rated power where a month has none."""
    peak_facility_kw: Floats
    """Highest hour of each month, shape (months,)."""
    demand_requests: Floats
    """Shape (months, workloads)."""
    shed_requests: Floats
    """Shape (months, workloads)."""
    late_requests: Floats
    """Shape (months, workloads)."""

    @property
    def fates_node_h(self) -> dict[str, Floats]:
        """Node-hours on site by use or cause of loss; the parts sum to the whole."""
        return fates(
            present=self.present_node_h,
            failed=self.failed_node_h,
            by_process=(self.process_node_h, self.process_drag_node_h),
            dark=self.dark_node_h,
            busy=self.busy_node_h,
            drag=self.drag_node_h,
            throttled=self.throttled_node_h,
        )

    @property
    def in_service_node_h(self) -> Floats:
        """Healthy node-hours, powered or not."""
        return in_service(self.present_node_h, self.failed_node_h)


def sum_months(plan: Plan, run: Run) -> Monthly:
    """Sum a run's hours into months."""
    starts = plan.month_edges_h[:-1]

    def by_month(name: str, parts: Sequence[WindowResult | NodeHours] = run.windows) -> Floats:
        hourly = joined(name, parts)
        sums = np.add.reduceat(hourly, starts, axis=-1)
        return np.moveaxis(sums, -1, 0)

    it_kwh = by_month("it_kw")
    no_hours = np.zeros_like(it_kwh)
    slowed = np.zeros_like(it_kwh)
    # Without a process no slowed hour is one of its making, and the walk over all of them is saved.
    if any(event.process for event in run.log.software):
        for (c, _), hours, changes, share, worked, _ in slowed_hours(run):
            is_process = [bool(change.process) for change in changes]
            process_share = share[is_process].sum(axis=0)
            # Unlike indexing, add.at adds up all hours of one month.
            month = plan.months.hour_periods[hours]
            np.add.at(slowed[:, c], month, process_share * worked)
    is_dark = any(part.dark.any() for part in run.node_hours)
    facility_kwh, peak_facility_kw = facility_months(plan, run, it_kwh)
    # Most runs have no dark hour and no power cap: a table of zeros costs less than summing hours of zeros.
    return Monthly(
        present_node_h=by_month("present", run.node_hours),
        failed_node_h=by_month("failed", run.node_hours),
        process_node_h=by_month("taken_out", run.node_hours) + slowed,
        process_drag_node_h=slowed,
        dark_node_h=by_month("dark", run.node_hours) if is_dark else no_hours,
        busy_node_h=by_month("busy_nodes"),
        drag_node_h=by_month("drag_nodes"),
        throttled_node_h=by_month("throttled_nodes") if run.is_capped else no_hours,
        served_requests=by_month("served_requests"),
        it_kwh=it_kwh,
        facility_kwh=facility_kwh,
        peak_facility_kw=peak_facility_kw,
        demand_requests=by_month("demand_requests"),
        shed_requests=by_month("shed_requests"),
        late_requests=by_month("late_requests"),
    )


def facility_months(plan: Plan, run: Run, it_kwh: Floats) -> tuple[Floats, Floats]:
    """Return the site's energy by month and cluster, shape (months, clusters), and its peak power by month."""
    drawn_kw = joined("facility_kw", run.windows)
    starts = plan.month_edges_h[:-1]
    site_kwh = np.add.reduceat(drawn_kw, starts)
    cluster_shares = shares_of_power(plan, it_kwh)
    energy = site_kwh[:, None] * cluster_shares
    return energy, np.maximum.reduceat(drawn_kw, starts)


def slowed_hours(
    run: Run,
) -> Iterator[tuple[Pair, Ints, list[SpeedChange], Floats, Floats, Floats]]:
    """Yield the hours in which incidents or processes slow a cluster on a workload, and the changes of speed.

    With each change's share of the loss, shape (changes, hours), the node-hours at work for nothing, and those that
    the cluster has less, whether at work or not. A change counts until its incident has ended there: until its steps
    sum to nothing.
    """
    changes_by_pair = defaultdict[Pair, list[SpeedChange]](list)
    level = defaultdict[Any, float](float)
    ends = dict[Any, float]()
    for change in run.log.speeds():
        # What belongs to no incident is a release, which has no end and is no fault.
        if change.incident < 0:
            continue
        pair = (change.cluster, change.workload)
        changes_by_pair[pair].append(change)
        key = (change.incident, *pair)
        # Steps up and down sum to zero but for rounding; then the incident is over there.
        level[key] = round(level[key] + change.log_factor, 12)
        ends[key] = math.inf if level[key] else change.time_h
    for inputs, window in zip(run.inputs, run.windows, strict=True):
        for pair, drag in window.drags.items():
            hours = drag.hours + window.first_hour
            starts_h = hours.astype(np.float64)
            changes = changes_by_pair[pair]
            slowness = np.empty((len(changes), hours.size))
            for row, change in zip(slowness, changes, strict=True):
                end_h = ends[change.incident, *pair]
                open_fraction = quantities.open_fraction(starts_h, change.time_h, end_h)
                np.multiply(-change.log_factor, open_fraction, out=row)
            share = quantities.incident_node_h(np.ones(hours.size), slowness)
            cluster, _ = pair
            nodes = in_hours(inputs.nodes[cluster], drag.hours)
            missing_nodes = nodes * inputs.incidents[pair].lost_fraction
            yield pair, hours, changes, share, drag.nodes, missing_nodes


def shares_of_power(plan: Plan, it_kwh: Floats) -> Floats:
    """Return each cluster's share of the site's non-IT power, shape (months, clusters).

    By IT energy; in a month in which nothing ran by rated power, of which machines at a provider's have none here.
    """
    rated_kw = [cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters]
    on_site_kw = np.array(rated_kw) * plan.on_site
    return shares(it_kwh, on_site_kw)


def check_run(plan: Plan, run: Run, monthly: Monthly) -> None:
    """Raise ConservationError unless tokens, machines, energy and capacity add up."""
    problems = [*_work(plan, run, monthly)]
    problems += _machines(plan, run)
    problems += _energy(plan, run, monthly)
    # Node-hours present = the sum of what became of them, none of it negative.
    all_node_h = sum(monthly.fates_node_h.values())
    difference = np.abs(all_node_h - monthly.present_node_h)
    # A millionth of the whole: hours are summed in another order here than there.
    tolerance = 1e-6 * monthly.present_node_h + 1e-6
    if np.any(difference > tolerance):
        problems.append(f"node-hours by cause are off by {difference.max():.3g}")
    if problems:
        raise ConservationError("internal error, this run does not add up: " + "; ".join(problems))


def _work(plan: Plan, run: Run, monthly: Monthly) -> Iterator[str]:
    """Yield violations of demand = served + shed + waiting, by workload, and of shedding in outages.

    Shed ≥ demand × dark share of the hour, for workloads that can neither wait nor be served at a provider's. Nothing
    is asked of a model before its launch, and nothing served.
    """
    demand = monthly.demand_requests.sum(axis=0)
    served = monthly.served_requests.sum(axis=(0, 1))
    last_window = run.windows[-1]
    waiting = np.array([row.sum() for row in last_window.waiting_requests])
    shed = monthly.shed_requests.sum(axis=0)
    difference = np.abs(demand - served - shed - waiting)
    tolerance = _RELATIVE * demand + 1e-3
    for w in np.flatnonzero(difference > tolerance).tolist():
        yield (
            f"{plan.workloads[w].name}: {demand[w]:.9g} requests came, {served[w]:.9g} were served, the rest is off by "
            f"{difference[w]:.3g}"
        )
    if run.log.site:
        yield from _served_in_the_dark(plan, run)
    for w, workload in enumerate(plan.workloads):
        launch_hour = math.ceil(workload.launch_h or 0.0)
        for window in run.windows:
            before_launch = slice(max(0, launch_hour - window.first_hour))
            is_asked = window.demand_requests[w, before_launch].any()
            is_served = window.served_requests[:, w, before_launch].any()
            if is_asked or is_served:
                yield f"{workload.name}: served before its model's launch"


def _served_in_the_dark(plan: Plan, run: Run) -> Iterator[str]:
    """Yield the workloads of which requests were served that arrived in an outage of the site."""
    # Outages follow one another: start, end, start, end, so every other gap is dark.
    moments = np.array(run.log.site).ravel()
    is_dark = np.arange(moments.size - 1) % 2 == 0
    # Dark hours to date grow evenly within an outage and not between them, so interp reads them at hour edges.
    dark_h = np.cumsum(np.diff(moments) * is_dark)
    dark_to_date_h = np.concatenate(([0.0], dark_h))
    for window in run.windows:
        end = window.first_hour + window.nodes.shape[1]
        edges = np.arange(window.first_hour, end + 1)
        dark_h_at_edges = np.interp(edges, moments, dark_to_date_h)
        dark_fraction = np.diff(dark_h_at_edges)
        least_shed = window.demand_requests * dark_fraction
        tolerance = _RELATIVE * window.demand_requests + 1e-6
        is_short = least_shed - window.shed_requests > tolerance
        for w, workload in enumerate(plan.workloads):
            must_shed = plan.is_here[w] and not workload.deadline_h
            if must_shed and is_short[w].any():
                yield f"{workload.name}: requests that arrived in an outage were served"


def _machines(plan: Plan, run: Run) -> Iterator[str]:
    """Yield violations of in service = delivered − failed + repaired − retired, at the last hour's end."""
    last_h = plan.hours - 1
    for index, cluster in enumerate(plan.clusters):
        changes = [change for change in run.log.changes if change.cluster == index]
        present = sum(change.accelerators for change in changes if change.time_h <= last_h)
        # A change within the last hour is only partly in it, so that hour is not compared.
        has_late_change = any(change.time_h > last_h for change in changes)
        nodes = run.node_hours[-1].present[index, -1]
        counted = nodes * cluster.accelerators_per_node
        difference = counted - present
        # Of machines rented by the hour there may be fewer than on offer, never more.
        if index not in run.offers:
            difference = abs(difference)
        if not has_late_change and difference > 1e-6 * max(present, 1):
            yield f"{cluster.name}: {counted:.6g} accelerators on site, {present} delivered less retired"
    for machines in run.node_hours:
        if np.any(machines.healthy > machines.present):
            yield "more nodes healthy than present"
            break


def _energy(plan: Plan, run: Run, monthly: Monthly) -> Iterator[str]:
    """Yield violations of kWh = Σ kW·h, and of node power between idle and full load."""
    it_kwh = sum(float(window.it_kw.sum()) for window in run.windows)
    facility_kwh = sum(float(window.facility_kw.sum()) for window in run.windows)
    monthly_it_kwh = monthly.it_kwh.sum()
    if abs(monthly_it_kwh - it_kwh) > _RELATIVE * it_kwh:
        yield f"IT energy by month {monthly_it_kwh:.9g} kWh, by hour {it_kwh:.9g}"
    node_h = monthly.in_service_node_h - monthly.dark_node_h
    node_h = node_h * plan.on_site
    idle_kw = np.array([cluster.node_power.idle_kw for cluster in plan.clusters])
    full_kw = np.array([cluster.node_power.full_kw for cluster in plan.clusters])
    # Under a cap nodes may draw less than at rest: they are switched off to stay below it.
    least_kwh = np.zeros_like(node_h) if run.is_capped else node_h * idle_kw
    most_kwh = (1.0 + _RELATIVE) * node_h * full_kw
    is_above = monthly.it_kwh > most_kwh + 1e-6
    is_below = monthly.it_kwh < (1.0 - _RELATIVE) * least_kwh - 1e-6
    if np.any(is_above | is_below):
        yield "a cluster draws more than its nodes do at full load, or less than at rest"
    monthly_kwh = monthly.facility_kwh.sum()
    # A millionth: shares of clusters are multiplied in, and add up to 1 but for rounding.
    if it_kwh > 0 and abs(monthly_kwh - facility_kwh) > 1e-6 * facility_kwh:
        yield f"facility energy by month {monthly_kwh:.9g} kWh, by hour {facility_kwh:.9g}"
