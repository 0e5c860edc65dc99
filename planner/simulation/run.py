"""One replication from a scenario to a checked result."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.build import build_plan
from planner.demand.plan import hourly_requests_per_s
from planner.errors import ConservationError
from planner.fleet.plan import Plan
from planner.fleet.scan import time_weighted
from planner.fleet.window import WindowResult, empty_backlog, evaluate_window
from planner.scenario.scenario import Scenario
from planner.simulation.accounting import write_ledger
from planner.simulation.fleet import run_processes
from planner.simulation.log import Change, Kind
from planner.simulation.result import Monthly, RunResult
from planner.simulation.streams import streams
from planner.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]


def simulate(scenario: Scenario, seed: int | None = None, replication: int = 0) -> RunResult:
    """Run a scenario once and return its checked result; ``seed`` takes the place of the scenario's own."""
    plan = build_plan(scenario)
    return simulate_plan(scenario, plan, plan.seed if seed is None else seed, replication)


def simulate_plan(scenario: Scenario, plan: Plan, seed: int, replication: int) -> RunResult:
    """Run a compiled scenario once."""
    stream = streams(seed, replication)
    changes = run_processes(plan, stream)
    nodes, delivered = _node_hours(plan, changes)
    demand = np.ascontiguousarray(hourly_requests_per_s(plan.demand, stream).T) * SECONDS_PER_HOUR
    window = evaluate_window(plan, demand, nodes, empty_backlog(plan))
    monthly = _monthly(plan, window, delivered)
    check(plan, monthly, changes, window)
    return RunResult(
        scenario=scenario,
        plan=plan,
        seed=seed,
        replication=replication,
        monthly=monthly,
        ledger=write_ledger(plan, monthly.energy_kwh),
        changes=tuple(changes),
    )


def _node_hours(plan: Plan, changes: list[Change]) -> tuple[Floats, Floats]:
    """Return nodes in service and nodes delivered, averaged over each hour, shape (clusters, hours)."""
    shape = (len(plan.clusters), plan.hours)
    in_service, delivered = np.zeros(shape), np.zeros(shape)
    times = np.array([change.time_h for change in changes])
    deltas = np.array([change.nodes for change in changes], dtype=np.float64)
    owner = np.array([change.cluster for change in changes], dtype=np.int64)
    is_delivery = np.array([change.kind is Kind.DELIVERED for change in changes], dtype=bool)
    for index in range(len(plan.clusters)):
        own = owner == index
        in_service[index] = time_weighted(times[own], deltas[own], plan.hours)
        own &= is_delivery
        delivered[index] = time_weighted(times[own], deltas[own], plan.hours)
    return np.maximum(in_service, 0.0), delivered


def _monthly(plan: Plan, window: WindowResult, delivered: Floats) -> Monthly:
    """Sum hours into months."""
    edges = plan.months.edge_hours[:-1]

    def by_month(hourly: Floats) -> Floats:
        return np.add.reduceat(hourly, edges, axis=-1).T

    per_node = np.array([cluster.accelerators_per_node for cluster in plan.clusters])
    total = np.array([workload.tokens_per_request for workload in plan.workloads])
    output = np.array([workload.output_tokens for workload in plan.workloads])
    served = np.add.reduceat(window.served_requests, edges, axis=-1)  # (clusters, workloads, months)
    demand, shed = by_month(window.demand_requests) * total, by_month(window.shed_requests) * total
    by_workload = np.einsum("cwm,w->mw", served, total)
    return Monthly(
        accelerator_hours_in_service=by_month(window.nodes) * per_node,
        accelerator_hours_delivered=by_month(delivered) * per_node,
        busy_accelerator_hours=by_month(window.busy_nodes) * per_node,
        served_tokens=np.einsum("cwm,w->mc", served, total),
        served_output_tokens=np.einsum("cwm,w->mc", served, output),
        energy_kwh=by_month(window.it_kw),
        demand_tokens=demand,
        shed_tokens=shed,
        served_by_workload_tokens=by_workload,
        backlog_tokens=np.cumsum(demand - shed - by_workload, axis=0),
    )


def check(plan: Plan, monthly: Monthly, changes: list[Change], window: WindowResult) -> None:
    """Raise ConservationError unless tokens and machines add up."""
    waiting = np.array([row.sum() for row in window.backlog.waiting_requests])
    tokens = np.array([workload.tokens_per_request for workload in plan.workloads])
    difference = np.abs(monthly.backlog_tokens[-1] - waiting * tokens)
    allowed = 1e-9 * monthly.demand_tokens.sum(axis=0) + 1.0
    if np.any(difference > allowed):
        raise ConservationError(
            f"tokens demanded are not served + shed + waiting: off by {difference.max():.6g} tokens in workload "
            f"{plan.workloads[int(difference.argmax())].name}"
        )
    in_service = sum(change.nodes for change in changes)
    down = sum(change.kind is Kind.FAILED for change in changes) - sum(c.kind is Kind.REPAIRED for c in changes)
    delivered = sum(change.nodes for change in changes if change.kind is Kind.DELIVERED)
    if in_service != delivered - down:
        raise ConservationError(f"{in_service} nodes in service, but {delivered} delivered and {down} down")
    if np.any(window.busy_nodes > window.nodes * (1 + 1e-9) + 1e-9):
        raise ConservationError("more nodes at work than in service")
