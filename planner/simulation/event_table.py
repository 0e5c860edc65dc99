"""Every event of a run, with what it cost in tokens of capacity."""

from __future__ import annotations

import datetime
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.simulation.result import FLEET, RunResult

Floats = NDArray[np.float64]


class _Row(NamedTuple):
    start_h: float
    end_h: float
    cluster: str
    event: str
    cause: str
    detail: str
    accelerators: int
    lost_tokens: float


def events(result: RunResult) -> dict[str, Any]:
    """One row per event in time order; ``lost_capacity_tokens`` is what the machines concerned would have carried.

    A node's capacity is counted in its usual mix: the tokens that the cluster would serve in an hour if each workload
    it can take had the share of its nodes that the plan's demand gives it.
    """
    rows = sorted([*_deliveries(result), *_waiting(result), *_outages(result), *_software(result), *_site(result)])
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
        "lost_capacity_tokens": np.array([row.lost_tokens for row in rows], dtype=np.float64),
    }


def tokens_per_node_h(result: RunResult) -> Floats:
    """Return the tokens an hour that one node of each cluster carries in its usual mix, shape (clusters,)."""
    plan = result.plan
    rates = plan.requests_per_node_h.mean(axis=2)
    demand = plan.demand.expected_requests_per_s.mean(axis=1)
    tokens = np.array([workload.tokens_per_request.mean() for workload in plan.workloads])
    need = np.divide(demand, rates, out=np.zeros_like(rates), where=rates > 0)  # nodes each workload would take
    share = np.divide(
        need, need.sum(axis=1, keepdims=True), out=np.zeros_like(need), where=need.sum(axis=1, keepdims=True) > 0
    )
    carried: Floats = (share * rates * tokens).sum(axis=1)
    return carried


def _deliveries(result: RunResult) -> list[_Row]:
    names = [cluster.name for cluster in result.plan.clusters]
    return [
        _Row(
            change.time_h,
            change.time_h,
            names[change.cluster],
            change.kind,
            "",
            change.detail,
            change.accelerators,
            0.0,
        )
        for change in result.run.log.changes
        if change.time_h <= result.plan.hours
    ]


def _waiting(result: RunResult) -> list[_Row]:
    """One row per cohort between delivery and service, where power comes in blocks."""
    plan = result.plan
    return [
        _Row(
            cohort.bought_h,
            min(cohort.in_service_h, cohort.retired_h),
            plan.clusters[cohort.cluster].name,
            "waiting",
            "site power",
            f"{cohort.nodes} nodes paid, not in service",
            cohort.nodes * plan.clusters[cohort.cluster].accelerators_per_node,
            0.0,
        )
        for cohort in result.cohorts
        if plan.site.block_h.size and cohort.in_service_h > cohort.bought_h
    ]


def _outages(result: RunResult) -> list[_Row]:
    plan, carried = result.plan, tokens_per_node_h(result)
    rows = []
    for outage in result.run.shop.outages():
        if outage.start_h >= plan.hours:
            continue  # a group that would have stayed down with its node, had the run gone on
        cluster = plan.clusters[outage.cluster]
        hours = min(outage.end_h, float(plan.hours)) - outage.start_h
        lost = hours * outage.accelerators / cluster.accelerators_per_node * carried[outage.cluster]
        detail = f"node {outage.node}, {outage.severity} repair, waited {outage.wait_h:.1f} h"
        rows.append(
            _Row(outage.start_h, outage.end_h, cluster.name, "failure", outage.cause, detail, outage.accelerators, lost)
        )
    return rows


def _software(result: RunResult) -> list[_Row]:
    """One row per incident and cluster, from its beginning to its fix; a release has no end."""
    plan, carried, changes = result.plan, tokens_per_node_h(result), result.run.log.speeds()
    ends = {
        (change.incident, change.cluster): change.time_h
        for change in changes
        if change.incident >= 0 and change.kind.endswith(("fixed", "done"))
    }
    rows, seen = [], set()
    for change in changes:
        key = (change.incident, change.cluster, change.time_h)
        if change.kind.endswith(("fixed", "done")) or key in seen:
            continue
        seen.add(key)
        end_h = ends.get((change.incident, change.cluster), math.inf) if change.incident >= 0 else change.time_h
        cluster = plan.clusters[change.cluster]
        loss = -math.expm1(change.log_factor)
        hours = max(0.0, min(end_h, float(plan.hours)) - change.time_h)
        model = plan.workloads[change.workload].model if change.incident >= 0 else "all models"
        detail = f"{cluster.stack}, {model}, {-loss:+.1%} throughput"
        lost = loss * hours * cluster.nodes * carried[change.cluster] if change.incident >= 0 else 0.0
        rows.append(_Row(change.time_h, end_h, cluster.name, "software", change.kind, detail, 0, lost))
    return rows


def _site(result: RunResult) -> list[_Row]:
    plan, carried = result.plan, tokens_per_node_h(result)
    rows = []
    for event in result.run.log.site:
        hours = min(event.end_h, float(plan.hours)) - event.start_h
        present = sum(change.accelerators for change in result.run.log.changes if change.time_h <= event.start_h)
        lost = hours * float(carried @ np.array([cluster.nodes for cluster in plan.clusters]))
        rows.append(_Row(event.start_h, event.end_h, FLEET, "outage", "site power", "", present, lost))
    return rows
