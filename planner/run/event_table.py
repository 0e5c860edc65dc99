"""Every event of a run, with the node-hours it took and the tokens they would have carried."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.engine.log import SpeedChange
from planner.engine.open_shop import PLANNED
from planner.errors import ConservationError
from planner.plan import quantities
from planner.run.measure_names import FLEET
from planner.run.replication import Replication
from planner.units import counted


class _Row(NamedTuple):
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
Rows = tuple[list[_Row], Floats]
"""Events of one kind, and the node-hours they took of each cluster, shape (clusters,)."""


def events(result: Replication, *, with_failures: bool = True) -> dict[str, Any]:
    """One row per event in time order, with the node-hours it took and the tokens they would have carried.

    An event takes the node-hours that ``losses.csv`` counts for its kind, so its rows sum to the columns there; a node
    that is not yet delivered loses nothing. Tokens are those node-hours in the cluster's usual mix of work. Failures
    are a thousand rows or more, for whom does without them.
    """
    tokens, monthly = tokens_per_node_h(result), result.monthly
    kinds = [
        ("software incidents", _software(result, tokens), monthly.drag_node_h),
        ("outages", _outages(result, tokens), monthly.dark_node_h),
    ]
    if with_failures:
        kinds.append(("failures", _failures(result, tokens), monthly.failed_node_h))
    rows = [*_deliveries(result), *_waiting(result), *_notes(result)]
    for kind, (times, taken), node_h in kinds:
        rows += times
        lost = node_h.sum(axis=0)
        if np.any(np.abs(taken - lost) > 1e-6 * lost + 1e-6):
            taken_h, lost_h = taken.tolist(), lost.tolist()
            raise ConservationError(f"node-hours lost to {kind} by event are {taken_h}, by month {lost_h}")
    rows.sort()
    # By columns, and times all at once: a million accelerators have half a million failures.
    start_h, end_h = (np.array([row[side] for row in rows], dtype=np.float64) for side in (0, 1))
    return {
        "time": _stamps(result, start_h),
        "end_time": _stamps(result, np.where(end_h == start_h, np.inf, end_h)),
        **{name: [row[place] for row in rows] for place, name in enumerate(("cluster", "event", "cause", "detail"), 2)},
        "accelerators": np.array([row.accelerators for row in rows], dtype=np.int64),
        "duration_h": np.minimum(end_h, result.plan.hours) - start_h,
        "lost_node_h": np.array([row.lost_node_h for row in rows], dtype=np.float64),
        "lost_capacity_tokens": np.array([row.lost_tokens for row in rows], dtype=np.float64),
    }


def _stamps(result: Replication, hours: Floats) -> list[str]:
    """Return hours since the start as dates and times to the second, empty beyond the run."""
    within = hours <= result.plan.hours
    microseconds = np.rint(np.where(within, hours, 0.0) * 3.6e9).astype("timedelta64[us]")
    moments = np.datetime_as_string(np.datetime64(result.plan.start, "us") + microseconds, unit="s")
    stamps: list[str] = np.where(within, moments, "").tolist()
    return stamps


def tokens_per_node_h(result: Replication) -> Floats:
    """Return the tokens an hour that one node of each cluster carries, months averaged, shape (clusters,)."""
    plan = result.plan
    demand, tokens = plan.demand.expected_requests_per_s.mean(axis=1), plan.tokens_per_request.mean(axis=0)
    return quantities.usual_tokens_per_node_h(plan.requests_per_node_h.mean(axis=2), demand, tokens)


def _deliveries(result: Replication) -> list[_Row]:
    plan = result.plan
    return [
        _Row(
            change.time_h,
            change.time_h,
            plan.clusters[change.cluster].name,
            change.kind,
            "",
            change.detail,
            change.accelerators,
        )
        for change in result.run.log.changes
        if change.time_h <= plan.hours
    ]


def _waiting(result: Replication) -> list[_Row]:
    """One row per cohort between delivery and service, where power comes in blocks."""
    plan = result.plan
    return [
        _Row(
            max(cohort.bought_h, 0.0),
            min(cohort.in_service_h, cohort.retired_h),
            plan.clusters[cohort.cluster].name,
            "waiting",
            "site power",
            f"{counted(cohort.nodes, 'node')} paid, not in service",
            cohort.nodes * plan.clusters[cohort.cluster].accelerators_per_node,
        )
        for cohort in result.cohorts
        if plan.site.block_h.size and cohort.machines and cohort.in_service_h > max(cohort.bought_h, 0.0)
    ]


def _failures(result: Replication, tokens: Floats) -> Rows:
    """One row per failure that took accelerators, or time for which a process took a node out."""
    plan, shape = result.plan, len(result.plan.clusters)
    # One that begins after the end is of a group that would have stayed down with its node, had the run gone on.
    outages = [outage for outage in result.run.shop.outages() if outage.start_h < plan.hours]
    if not outages:
        return [], np.zeros(shape)
    start_h, end_h, index, node, accelerators, cause, severity, wait_h = zip(*outages, strict=True)
    clusters = np.array(index)
    hours = np.minimum(end_h, float(plan.hours)) - start_h
    lost = quantities.failure_node_h(hours, np.array(accelerators), plan.accelerators_per_node[clusters])
    events = [_EVENTS.get(repair, "failure") for repair in severity]
    details = [
        f"node {number}, {repair} repair, waited {waited:.1f} h" if event == "failure" else f"node {number}, taken out"
        for number, event, repair, waited in zip(node, events, severity, wait_h, strict=True)
    ]
    names = [cluster.name for cluster in plan.clusters]
    rows = map(
        _Row,
        start_h,
        end_h,
        [names[c] for c in index],
        events,
        cause,
        details,
        accelerators,
        lost.tolist(),
        (lost * tokens[clusters]).tolist(),
    )
    return list(rows), np.bincount(clusters, lost, shape).astype(np.float64)


def _notes(result: Replication) -> list[_Row]:
    """One row per line that a process wrote."""
    return [
        _Row(note.time_h, note.time_h, note.cluster or FLEET, "process", note.process, note.text, 0)
        for note in result.run.log.notes
        if note.time_h <= result.plan.hours
    ]


def _software(result: Replication, tokens: Floats) -> Rows:
    """One row per incident and cluster, from its beginning to its fix; a release has no end."""
    plan, changes = result.plan, result.run.log.speeds()
    ends = {(change.incident, change.cluster): change.time_h for change in changes if _is_end(change)}
    taken = _incident_node_h(result, changes)
    rows, seen, lost_node_h = [], set[tuple[object, ...]](), np.zeros(len(plan.clusters))
    for change in changes:
        key = (change.incident, change.cluster)
        model = plan.workloads[change.workload].model
        told = key if change.incident >= 0 else (*key, change.time_h, model)  # what eases an incident is no other
        if _is_end(change) or told in seen:
            continue
        seen.add(told)
        end_h = ends.get(key, math.inf) if change.incident >= 0 else change.time_h
        cluster = plan.clusters[change.cluster]
        detail = f"{cluster.stack}, {model}, {math.expm1(change.log_factor):+.1%} throughput"
        lost = taken.get(key, 0.0) if change.incident >= 0 else 0.0
        of = (cluster.name, "software", change.kind, detail)
        rows.append(_Row(change.time_h, end_h, *of, 0, lost, lost * float(tokens[change.cluster])))
        lost_node_h[change.cluster] += lost
    return rows, lost_node_h


def _is_end(change: SpeedChange) -> bool:
    return change.incident >= 0 and change.kind.endswith(("fixed", "done"))


def _incident_node_h(result: Replication, changes: list[SpeedChange]) -> dict[tuple[int, int], float]:
    """Return the node-hours at work for nothing that each incident took of each cluster."""
    begun: dict[tuple[int, int], list[SpeedChange]] = defaultdict(list)
    ends = {(c.incident, c.cluster, c.workload): c.time_h for c in changes if _is_end(c)}
    for change in changes:
        if change.incident >= 0 and not _is_end(change):
            begun[change.cluster, change.workload].append(change)
    taken: dict[tuple[int, int], float] = defaultdict(float)
    for window in result.run.windows:
        for pair, drag in window.drags.items():
            hours = (drag.hours + window.first_hour).astype(np.float64)
            slowness = [
                -change.log_factor
                * quantities.open_fraction(hours, change.time_h, ends.get((change.incident, *pair), math.inf))
                for change in begun[pair]
            ]
            lost = quantities.incident_node_h(drag.nodes, np.array(slowness).reshape(-1, hours.size))
            for change, node_h in zip(begun[pair], lost.tolist(), strict=True):
                taken[change.incident, change.cluster] += node_h
    return taken


def _outages(result: Replication, tokens: Floats) -> Rows:
    """One row per outage of the site: the healthy nodes that were there, for as long as it was dark."""
    plan, log = result.plan, result.run.log
    parts = [quantities.in_service(machines.present, machines.failed) for machines in result.run.node_hours]
    in_service = np.concatenate(parts, axis=1)
    rows, taken = [], np.zeros(len(plan.clusters))
    for event in log.site:
        present = sum(change.accelerators for change in log.changes if change.time_h <= event.start_h)
        hours = np.arange(int(event.start_h), min(math.ceil(event.end_h), plan.hours))
        dark = quantities.open_fraction(hours.astype(np.float64), *event)
        lost = in_service[:, hours] @ dark
        told = (FLEET, "outage", "site power", "", present, float(lost.sum()), float(lost @ tokens))
        rows.append(_Row(event.start_h, event.end_h, *told))
        taken += lost
    return rows, taken
