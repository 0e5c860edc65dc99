"""The events of a run as a table: what happened when, the node-hours it took and the tokens they would have carried."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import joined
from planner.engine.log import SpeedChange
from planner.engine.monthly import slowed_hours
from planner.engine.repair_shop import PLANNED
from planner.errors import ConservationError
from planner.finance.accounting.booked_run import BookedRun
from planner.finance.measure_names import SITE
from planner.plan import quantities
from planner.units import counted


class EventRow(NamedTuple):
    """One event; rows sort by time."""

    start_h: float
    end_h: float
    cluster: str
    event: str
    cause: str
    detail: str
    accelerators: int
    lost_node_h: float = 0.0
    lost_tokens: float = 0.0


_EVENTS = {"": "process", PLANNED: "maintenance"}
"""What a row is that is no failure, by what stands for the severity of its repair."""
LossEvents = tuple[list[EventRow], Floats]
"""Events of one kind, and the node-hours they took of each cluster, shape (clusters,)."""


def events(result: BookedRun) -> dict[str, Any]:
    """One row per event in chronological order, with its node-hours and the tokens they would have served.

    An event takes the node-hours that ``losses.csv`` counts for its kind, so its rows sum to the columns there; a node
    that is not yet delivered loses nothing. Tokens are those node-hours in the cluster's usual mix of work.
    """
    tokens = tokens_per_node_h(result)
    monthly = result.monthly
    hours = result.plan.hours
    rows = list(_deliveries(result))
    rows += _orders(result)
    rows += _waits_for_power(result)
    rows += _notes(result)
    rows += _model_changes(result)
    kinds = (
        ("software incidents", _software(result, tokens), monthly.drag_node_h),
        ("outages", _site_outages(result, tokens), monthly.dark_node_h),
        ("failures", _failures(result, tokens), monthly.failed_node_h),
    )
    for kind, (kind_rows, event_node_h), node_h in kinds:
        rows += kind_rows
        _check_sums(kind, event_node_h, node_h.sum(axis=0))
    # By time, then by all else, so that the order does not depend on who logged first.
    rows.sort()
    # By columns, and times all at once: a million accelerators have half a million failures.
    start_h = np.array([row.start_h for row in rows], float)
    end_h = np.array([row.end_h for row in rows], float)
    # What has no duration has no end: infinity is written as an empty cell.
    shown_end_h = np.where(end_h == start_h, np.inf, end_h)
    return {
        "time": _timestamps(result, start_h),
        "end_time": _timestamps(result, shown_end_h),
        "cluster": [row.cluster for row in rows],
        "event": [row.event for row in rows],
        "cause": [row.cause for row in rows],
        "detail": [row.detail for row in rows],
        "accelerators": np.array([row.accelerators for row in rows], dtype=np.int64),
        "duration_h": np.minimum(end_h, hours) - start_h,
        "lost_node_h": np.array([row.lost_node_h for row in rows], dtype=np.float64),
        "lost_capacity_tokens": np.array([row.lost_tokens for row in rows], dtype=np.float64),
    }


def _check_sums(kind: str, event_node_h: Floats, monthly_node_h: Floats) -> None:
    """Raise an error where the events of a kind took other node-hours than the months count for it."""
    difference = np.abs(event_node_h - monthly_node_h)
    # Both are sums of the same hours in another order, and differ by rounding.
    tolerance = 1e-6 * monthly_node_h + 1e-6
    if np.any(difference > tolerance):
        raise ConservationError(
            f"node-hours lost to {kind} by event are {event_node_h.tolist()}, "
            f"by month {monthly_node_h.tolist()}"
        )


def _timestamps(result: BookedRun, hours: Floats) -> list[str]:
    """Return hours since the start as timestamps to the second, empty beyond the run."""
    is_inside = hours <= result.plan.hours
    # Infinity has no timestamp: it is read as the start, and left empty below.
    finite_h = np.where(is_inside, hours, 0.0)
    # To the nearest microsecond first: cut off, noon could become 11:59:59.
    microseconds = np.rint(finite_h * 3.6e9).astype("timedelta64[us]")
    start = np.datetime64(result.plan.start, "us")
    moments = np.datetime_as_string(start + microseconds, unit="s")
    texts = np.where(is_inside, moments, "")
    timestamps: list[str] = texts.tolist()
    return timestamps


def tokens_per_node_h(result: BookedRun) -> Floats:
    """Return the tokens per hour of one node of each cluster, averaged over months, shape (clusters,)."""
    plan = result.plan
    demand = plan.demand.expected_requests_per_s.mean(axis=1)
    tokens = plan.tokens_per_request.mean(axis=0)
    requests_per_node_h = plan.requests_per_node_h.mean(axis=2)
    return quantities.usual_tokens_per_node_h(requests_per_node_h, demand, tokens)


def _deliveries(result: BookedRun) -> Iterator[EventRow]:
    """Yield one row per delivery or retirement within the horizon."""
    plan = result.plan
    for change in result.run.log.changes:
        if change.time_h <= plan.hours:
            name = plan.clusters[change.cluster].name
            yield EventRow(
                change.time_h,
                change.time_h,
                name,
                change.kind,
                "",
                change.detail,
                change.accelerators,
            )


def _orders(result: BookedRun) -> Iterator[EventRow]:
    """Yield one row per order that is placed within the horizon; of what states its day of service alone, none."""
    plan = result.plan
    for order in result.run.log.orders:
        has_lead = order.arrival_h > order.time_h
        if has_lead and order.time_h <= plan.hours:
            cluster = plan.clusters[order.cluster]
            yield EventRow(
                order.time_h,
                order.time_h,
                cluster.name,
                "ordered",
                "",
                counted(order.nodes, "node"),
                order.nodes * cluster.accelerators_per_node,
            )


def _waits_for_power(result: BookedRun) -> Iterator[EventRow]:
    """Yield one row per cohort that is paid and waits; where power comes in blocks, some wait for theirs."""
    plan = result.plan
    if not plan.site.block_h.size:
        return
    for cohort in result.cohorts:
        start_h = max(cohort.bought_h, 0.0)
        if cohort.machines and cohort.in_service_h > start_h:
            cluster = plan.clusters[cohort.cluster]
            yield EventRow(
                start_h,
                min(cohort.in_service_h, cohort.retired_h),
                cluster.name,
                "waiting",
                "site power",
                f"{counted(cohort.nodes, 'node')} paid, not in service",
                cohort.nodes * cluster.accelerators_per_node,
            )


def _notes(result: BookedRun) -> Iterator[EventRow]:
    """Yield one row per line that a review or a user's process wrote."""
    for note in result.run.log.notes:
        if note.time_h <= result.plan.hours:
            cluster = note.cluster or SITE
            yield EventRow(note.time_h, note.time_h, cluster, "process", note.process, note.text, 0)


def _model_changes(result: BookedRun) -> Iterator[EventRow]:
    """Yield one row per workload whose customers come from another, on the day they do."""
    stated = result.scenario.workloads
    for load in result.plan.workloads:
        if stated[load.name].follows:
            yield EventRow(
                load.begins_h, load.begins_h, SITE, "model change", load.name, load.model, 0
            )


def _failures(result: BookedRun, tokens: Floats) -> LossEvents:
    """Return one row per outage of accelerators by a failure, or by a process that took a node out."""
    plan = result.plan
    # One that begins after the end is of a group that would have stayed down with its node, had the run gone on.
    outages = result.run.shop.outages()
    outages = [outage for outage in outages if outage.start_h < plan.hours]
    cluster = np.array([outage.cluster for outage in outages], dtype=np.intp)
    start_h = np.array([outage.start_h for outage in outages])
    end_h = np.array([outage.end_h for outage in outages])
    accelerators = np.array([outage.accelerators for outage in outages])
    hours = np.minimum(end_h, float(plan.hours)) - start_h
    per_node = plan.accelerators_per_node[cluster]
    lost = quantities.failure_node_h(hours, accelerators, per_node)
    node_h = np.bincount(cluster, lost, len(plan.clusters))
    # Of what is rented by the hour, what failed was held for a share of the time.
    for c in result.run.offers:
        counted_node_h = result.monthly.failed_node_h[:, c].sum()
        # Without a failure there is nothing to scale, and no division by zero.
        held_fraction = counted_node_h / max(node_h[c], 1e-9)
        lost[cluster == c] *= held_fraction
    lost_tokens = lost * tokens[cluster]
    rows = []
    # As plain floats: rows are sorted and written one by one, which arrays make slow.
    losses = (lost.tolist(), lost_tokens.tolist())
    figures = zip(outages, *losses, strict=True)
    for outage, outage_node_h, outage_tokens in figures:
        event = _EVENTS.get(outage.severity, "failure")
        detail = f"node {outage.node}, taken out"
        if event == "failure":
            detail = f"node {outage.node}, {outage.severity} repair, waited {outage.wait_h:.1f} h"
        rows.append(
            EventRow(
                outage.start_h,
                outage.end_h,
                plan.clusters[outage.cluster].name,
                event,
                outage.cause,
                detail,
                outage.accelerators,
                outage_node_h,
                outage_tokens,
            )
        )
    counted_node_h = np.bincount(cluster, lost, len(plan.clusters))
    return rows, counted_node_h.astype(np.float64)


class Incident(NamedTuple):
    """How an incident went on one cluster."""

    end_h: float
    """Infinity where it is still open."""
    lowest_log_speed: float


def _incidents(changes: list[SpeedChange]) -> dict[tuple[int, int], Incident]:
    """Return by number and cluster how incidents went, from their changes of speed in chronological order.

    An incident spreads, eases and ends step by step. It has ended where its steps sum to nothing, and its size is the
    lowest that they come to.
    """
    levels: dict[tuple[int, int, int], float] = defaultdict(float)
    incidents: dict[tuple[int, int], Incident] = {}
    for change in changes:
        if change.incident < 0:
            continue
        number = (change.incident, change.cluster)
        step = (*number, change.workload)
        # Rounded: logarithms that cancel leave a rest.
        level = round(levels[step] + change.log_factor, 12)
        levels[step] = level
        earlier = incidents.get(number)
        lowest = 0.0 if earlier is None else earlier.lowest_log_speed
        # Open again by any later step, so the last step to nothing is the end.
        end_h = math.inf if level else change.time_h
        incidents[number] = Incident(end_h, min(lowest, level))
    return incidents


def _software(result: BookedRun, tokens: Floats) -> LossEvents:
    """Return one row per incident and cluster, from its start to its end; an upgrade has no end."""
    plan = result.plan
    changes = result.run.log.speeds()
    incidents = _incidents(changes)
    node_h: dict[tuple[int, int], float] = defaultdict(float)
    for _, _, slowing, share, worked, _ in slowed_hours(result.run):
        slowed_node_h = (share @ worked).tolist()
        for change, change_node_h in zip(slowing, slowed_node_h, strict=True):
            node_h[change.incident, change.cluster] += change_node_h
    rows = []
    reported = set[tuple[object, ...]]()
    cluster_node_h = np.zeros(len(plan.clusters))
    for change in changes:
        number = (change.incident, change.cluster)
        is_incident = change.incident >= 0
        model = plan.workloads[change.workload].model
        # What eases an incident is no other; an upgrade is one for each model.
        key = number if is_incident else (*number, change.time_h, model)
        if key in reported:
            continue
        reported.add(key)
        upgrade = Incident(change.time_h, change.log_factor)
        # An upgrade has no end, and its size is what it changed.
        end_h, log_speed = incidents[number] if is_incident else upgrade
        lost = 0.0
        if is_incident:
            lost = node_h.get(number, 0.0)
        pair = (change.cluster, change.workload)
        stack = change.process or plan.software.stack_of[pair]
        rows.append(
            EventRow(
                change.time_h,
                end_h,
                plan.clusters[change.cluster].name,
                "process" if change.process else "software",
                change.kind,
                f"{stack}, {model}, {math.expm1(log_speed):+.1%} throughput",
                0,
                lost,
                lost * float(tokens[change.cluster]),
            )
        )
        cluster_node_h[change.cluster] += lost
    return rows, cluster_node_h


def _site_outages(result: BookedRun, tokens: Floats) -> LossEvents:
    """Return one row per outage of the site: the healthy nodes on site, and its duration."""
    plan = result.plan
    log = result.run.log
    present = joined("present", result.run.node_hours)
    failed = joined("failed", result.run.node_hours)
    in_service = quantities.in_service(present, failed)
    rows = []
    node_h = np.zeros(len(plan.clusters))
    for outage in log.site:
        changes = [change for change in log.changes if change.time_h <= outage.start_h]
        end_h = min(math.ceil(outage.end_h), plan.hours)
        # Every hour it touches, each by the part that it is dark.
        hours = np.arange(int(outage.start_h), end_h)
        hour_starts = hours.astype(np.float64)
        dark_fraction = quantities.open_fraction(hour_starts, *outage)
        lost = in_service[:, hours] @ dark_fraction
        rows.append(
            EventRow(
                outage.start_h,
                outage.end_h,
                SITE,
                "outage",
                "site power",
                "",
                sum(change.accelerators for change in changes),
                float(lost.sum()),
                float(lost @ tokens),
            )
        )
        node_h += lost
    return rows, node_h
