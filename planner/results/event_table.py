"""Every event of a run, with the node-hours it took and the tokens they would have carried."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.errors import ConservationError
from planner.fleet import quantities
from planner.results.measure_names import FLEET
from planner.results.result import RunResult
from planner.simulation.log import SpeedChange
from planner.units import counted

Floats = NDArray[np.float64]


class _Row(NamedTuple):
    start_h: float
    end_h: float
    cluster: str
    event: str
    cause: str
    detail: str
    accelerators: int
    lost_node_h: tuple[float, ...]
    """By cluster."""


def events(result: RunResult, *, with_failures: bool = True) -> dict[str, Any]:
    """One row per event in time order, with the node-hours it took and the tokens they would have carried.

    An event takes the node-hours that ``losses.csv`` counts for its kind, so its rows sum to the columns there; a node
    that is not yet delivered loses nothing. Tokens are those node-hours in the cluster's usual mix of work. Failures
    are a thousand rows or more, for whom does without them.
    """
    failures, incidents, outages = _failures(result) if with_failures else [], _software(result), _outages(result)
    monthly = result.monthly
    if with_failures:
        _agree("failures", failures, monthly.failed_node_h)
    _agree("software incidents", incidents, monthly.drag_node_h)
    _agree("outages", outages, monthly.dark_node_h)
    rows = sorted([*_deliveries(result), *_waiting(result), *failures, *incidents, *outages, *_notes(result)])
    lost = np.array([row.lost_node_h for row in rows]).reshape(len(rows), len(result.plan.clusters))
    start = datetime.datetime.combine(result.plan.start, datetime.time())

    def stamp(hour: float) -> str:
        if not math.isfinite(hour) or hour > result.plan.hours:
            return ""
        return (start + datetime.timedelta(hours=hour)).isoformat(timespec="seconds")

    return {
        "time": [stamp(row.start_h) for row in rows],
        "end_time": [stamp(row.end_h) if row.end_h != row.start_h else "" for row in rows],
        "cluster": [row.cluster for row in rows],
        "event": [row.event for row in rows],
        "cause": [row.cause for row in rows],
        "detail": [row.detail for row in rows],
        "accelerators": np.array([row.accelerators for row in rows], dtype=np.int64),
        "duration_h": np.array([min(row.end_h, result.plan.hours) - row.start_h for row in rows], dtype=np.float64),
        "lost_node_h": lost.sum(axis=1),
        "lost_capacity_tokens": lost @ tokens_per_node_h(result),
    }


def _agree(kind: str, rows: list[_Row], node_h: Floats) -> None:
    """Raise ConservationError unless what events took is what the months lost, cluster by cluster."""
    taken = np.sum([row.lost_node_h for row in rows], axis=0) if rows else np.zeros(node_h.shape[1])
    lost = node_h.sum(axis=0)
    if np.any(np.abs(taken - lost) > 1e-6 * lost + 1e-6):
        raise ConservationError(f"node-hours lost to {kind} by event are {taken.tolist()}, by month {lost.tolist()}")


def tokens_per_node_h(result: RunResult) -> Floats:
    """Return the tokens an hour that one node of each cluster carries, months averaged, shape (clusters,)."""
    plan = result.plan
    demand, tokens = plan.demand.expected_requests_per_s.mean(axis=1), plan.tokens_per_request.mean(axis=0)
    return quantities.usual_tokens_per_node_h(plan.requests_per_node_h.mean(axis=2), demand, tokens)


def _of(result: RunResult, cluster: int, node_h: float) -> tuple[float, ...]:
    """Return node-hours of one cluster as a row has them."""
    return tuple(node_h if index == cluster else 0.0 for index in range(len(result.plan.clusters)))


def _deliveries(result: RunResult) -> list[_Row]:
    plan, nothing = result.plan, _of(result, 0, 0.0)
    return [
        _Row(
            change.time_h,
            change.time_h,
            plan.clusters[change.cluster].name,
            change.kind,
            "",
            change.detail,
            change.accelerators,
            nothing,
        )
        for change in result.run.log.changes
        if change.time_h <= plan.hours
    ]


def _waiting(result: RunResult) -> list[_Row]:
    """One row per cohort between delivery and service, where power comes in blocks."""
    plan, nothing = result.plan, _of(result, 0, 0.0)
    return [
        _Row(
            max(cohort.bought_h, 0.0),
            min(cohort.in_service_h, cohort.retired_h),
            plan.clusters[cohort.cluster].name,
            "waiting",
            "site power",
            f"{counted(cohort.nodes, 'node')} paid, not in service",
            cohort.nodes * plan.clusters[cohort.cluster].accelerators_per_node,
            nothing,
        )
        for cohort in result.cohorts
        if plan.site.block_h.size and cohort.machines and cohort.in_service_h > max(cohort.bought_h, 0.0)
    ]


def _failures(result: RunResult) -> list[_Row]:
    plan, rows = result.plan, []
    for outage in result.run.shop.outages():
        if outage.start_h >= plan.hours:
            continue  # a group that would have stayed down with its node, had the run gone on
        cluster = plan.clusters[outage.cluster]
        hours = min(outage.end_h, float(plan.hours)) - outage.start_h
        taken = quantities.failure_node_h(hours, outage.accelerators, cluster.accelerators_per_node)
        lost = _of(result, outage.cluster, taken)
        event, detail = "process", f"node {outage.node}, taken out"
        if outage.severity:
            event, detail = "failure", f"node {outage.node}, {outage.severity} repair, waited {outage.wait_h:.1f} h"
        rows.append(
            _Row(outage.start_h, outage.end_h, cluster.name, event, outage.cause, detail, outage.accelerators, lost)
        )
    return rows


def _notes(result: RunResult) -> list[_Row]:
    """One row per line that a process wrote."""
    nothing = _of(result, 0, 0.0)
    return [
        _Row(note.time_h, note.time_h, note.cluster or FLEET, "process", note.process, note.text, 0, nothing)
        for note in result.run.log.notes
        if note.time_h <= result.plan.hours
    ]


def _software(result: RunResult) -> list[_Row]:
    """One row per incident and cluster, from its beginning to its fix; a release has no end."""
    plan, changes = result.plan, result.run.log.speeds()
    ends = {(change.incident, change.cluster): change.time_h for change in changes if _is_end(change)}
    taken = _incident_node_h(result, changes)
    rows, seen = [], set[tuple[object, ...]]()
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
        lost = _of(result, change.cluster, taken.get(key, 0.0) if change.incident >= 0 else 0.0)
        rows.append(_Row(change.time_h, end_h, cluster.name, "software", change.kind, detail, 0, lost))
    return rows


def _is_end(change: SpeedChange) -> bool:
    return change.incident >= 0 and change.kind.endswith(("fixed", "done"))


def _incident_node_h(result: RunResult, changes: list[SpeedChange]) -> dict[tuple[int, int], float]:
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


def _outages(result: RunResult) -> list[_Row]:
    """One row per outage of the site: the healthy nodes that were there, for as long as it was dark."""
    plan, log = result.plan, result.run.log
    parts = [quantities.in_service(machines.present, machines.failed) for machines in result.run.node_hours]
    in_service = np.concatenate(parts, axis=1)
    rows = []
    for event in log.site:
        present = sum(change.accelerators for change in log.changes if change.time_h <= event.start_h)
        hours = np.arange(int(event.start_h), min(math.ceil(event.end_h), plan.hours))
        dark = quantities.open_fraction(hours.astype(np.float64), *event)
        lost = tuple((in_service[:, hours] @ dark).tolist())
        rows.append(_Row(event.start_h, event.end_h, FLEET, "outage", "site power", "", present, lost))
    return rows
