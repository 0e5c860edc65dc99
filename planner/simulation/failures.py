"""Failures and the repair shop.

Nodes fail as independent Poisson processes, drawn in one block when they enter service. The shop works first come,
first served with crews that take one node each; a hard fault also needs a part, which may have to come back from RMA.
Under that discipline a repair's beginning and end are known the moment the failure happens, so a heap of the crews'
free times (Kiefer and Wolfowitz, 1955) replaces one event per repair, and SimPy is woken only when the fleet changes.
The same shop written with SimPy resources, kept in the tests, gives the same repairs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import ClusterPlan, ReliabilityPlan
from planner.simulation.log import Outage

Floats = NDArray[np.float64]
SEVERITIES = ("soft", "medium", "hard")
SOFT, MEDIUM, HARD = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failures drawn for some nodes, in time order; arrays of shape (failures,)."""

    time_h: Floats
    node: NDArray[np.int64]
    """Index within the cluster."""
    group: NDArray[np.int64]
    """Which tensor-parallel group of the node; -1 for the whole node."""
    cause: NDArray[np.int64]
    severity: NDArray[np.int64]
    repair_h: Floats


def draw_failures(
    plan: ReliabilityPlan, cluster: ClusterPlan, start_h: Floats, first_node: int, end_h: float, draw: np.random.Generator
) -> Failures:
    """Draw every failure of nodes that enter service at ``start_h`` (shape (nodes,)) until the horizon's end.

    A node's rate is λ·w·(1 + (m − 1)·exp(−age/τ)): w tells lemons from the rest with mean 1, m and τ are early life.
    """
    nodes = start_h.size
    exposure = np.maximum(min(end_h, cluster.retire_h) - start_h, 0.0)
    total_rate = sum(cause.per_node_h for cause in plan.causes) * cluster.failure_multiplier
    plain = 1.0 / (1.0 + plan.lemon_fraction * (plan.lemon_multiplier - 1.0))
    weight = np.where(draw.random(nodes) < plan.lemon_fraction, plan.lemon_multiplier * plain, plain)
    tau = plan.early_life_h
    reached = -np.expm1(-exposure / tau)
    steady = total_rate * weight * exposure
    early = total_rate * weight * (plan.early_life_multiplier - 1.0) * tau * reached
    steady_count, early_count = draw.poisson(steady.sum()), draw.poisson(early.sum())
    count = int(steady_count + early_count)
    place, moment, kind, heal, spread = draw.random((5, count))
    node = np.empty(count, dtype=np.int64)
    age = np.empty(count)
    for part, expected in ((slice(0, steady_count), steady), (slice(steady_count, count), early)):
        if part.stop > part.start:
            running = np.cumsum(expected)
            node[part] = np.minimum(np.searchsorted(running, place[part] * running[-1], side="right"), nodes - 1)
    age[:steady_count] = moment[:steady_count] * exposure[node[:steady_count]]
    age[steady_count:] = -tau * np.log1p(-moment[steady_count:] * reached[node[steady_count:]])
    time_h = start_h[node] + age
    order = np.argsort(time_h, kind="stable")
    severity, cause, group = _marks(plan, cluster, kind[order], heal[order])
    return Failures(
        time_h=time_h[order],
        node=node[order] + first_node,
        group=group,
        cause=cause,
        severity=severity,
        repair_h=_repair_h(plan, severity, spread[order]),
    )


def _marks(
    plan: ReliabilityPlan, cluster: ClusterPlan, kind: Floats, heal: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return severity, cause and group from uniform numbers; the fraction left over picks the group."""
    rates = np.array([cause.per_node_h for cause in plan.causes])
    edges = np.cumsum(rates) / rates.sum() if rates.sum() > 0 else np.ones(len(plan.causes))
    cause = np.minimum(np.searchsorted(edges, kind, side="right"), len(plan.causes) - 1)
    soft = np.array([c.soft_fraction for c in plan.causes])[cause]
    medium = soft + np.array([c.medium_fraction for c in plan.causes])[cause]
    severity = np.where(heal < soft, SOFT, np.where(heal < medium, MEDIUM, HARD))
    groups = cluster.accelerators_per_node // cluster.group_accelerators
    whole = np.array([c.whole_node for c in plan.causes])[cause] | (groups == 1)
    below = np.where(cause > 0, edges[cause - 1], 0.0)
    width = np.maximum(edges[cause] - below, 1e-300)
    within = np.clip((kind - below) / width, 0.0, 1.0 - 1e-12)
    group = np.where(whole, -1, (within * groups).astype(np.int64))
    return severity.astype(np.int64), cause.astype(np.int64), group


def _repair_h(plan: ReliabilityPlan, severity: NDArray[np.int64], uniform: Floats) -> Floats:
    """Return lognormal repair times with each severity's mean and the common coefficient of variation."""
    from scipy.special import ndtri  # noqa: PLC0415 - 20 ms that only a simulation should pay

    sigma = np.sqrt(np.log1p(plan.repair_cv**2))
    standard = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    times: Floats = np.array(plan.repair_h)[severity] * np.exp(sigma * standard - 0.5 * sigma**2)
    return times


Failure = tuple[float, int, int, int, int, int, float]
"""Time, cluster, node, group, cause, severity, repair hours: a tuple, since there are a thousand in every run."""


class RepairShop:
    """Crews shared by all clusters, spares kept per cluster, and which groups of accelerators are down until when."""

    def __init__(self, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        self.plan = plan
        self.clusters = clusters
        self.groups = [cluster.accelerators_per_node // cluster.group_accelerators for cluster in clusters]
        self.crews = [0.0] * plan.crews
        self.spares = [self._initial_spares(cluster) for cluster in clusters]
        self.up_again: list[list[float]] = [[] for _ in clusters]
        self.down_times: list[list[float]] = [[] for _ in clusters]
        self.down_accelerators: list[list[int]] = [[] for _ in clusters]
        self.outages: list[Outage] = []
        self._pending: list[Failure] = []
        self._waiting_parts: list[tuple[float, int, Failure, dict[int, float]]] = []
        self._number = 0

    def _initial_spares(self, cluster: ClusterPlan) -> list[float]:
        if self.plan.spare_fraction <= 0:
            return []
        return [0.0] * max(1, round(self.plan.spare_fraction * cluster.nodes))

    def admit(self, cluster: int, nodes: int) -> int:
        """Make room for new nodes of a cluster; return the index of the first."""
        first = len(self.up_again[cluster]) // self.groups[cluster]
        self.up_again[cluster].extend([0.0] * (nodes * self.groups[cluster]))
        return first

    def expect(self, cluster: int, failures: Failures) -> None:
        """Take in failures drawn for nodes of a cluster."""
        owner = [cluster] * failures.time_h.size
        marks = (failures.node, failures.group, failures.cause, failures.severity, failures.repair_h)
        rows = zip(failures.time_h.tolist(), owner, *(column.tolist() for column in marks), strict=True)
        self._pending.extend(rows)

    def work_until(self, end_h: float) -> None:
        """Let everything happen that fails before ``end_h``, in time order."""
        self._pending.sort()
        done = 0
        for failure in self._pending:
            if failure[0] >= end_h:
                break
            done += 1
            if self._waiting_parts:
                self._parts_until(failure[0])
            self._fail(failure)
        del self._pending[:done]
        self._parts_until(end_h)

    def close(self, end_h: float) -> None:
        """At the end of the horizon, write the outages whose parts have not come."""
        for _, _, failure, since in self._waiting_parts:
            self._write(failure, since, np.inf, end_h - failure[0])

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:
        """Forget the failures and end the outages of nodes that leave for good."""
        groups = self.groups[cluster]
        up_again = self.up_again[cluster]
        for member in range(first * groups, last * groups):
            if now_h < up_again[member] < np.inf:
                self._log(cluster, now_h, self.clusters[cluster].group_accelerators)
                self._log(cluster, up_again[member], -self.clusters[cluster].group_accelerators)
        gone = range(first, last)
        self._pending = [f for f in self._pending if not (f[1] == cluster and f[2] in gone)]

    def _parts_until(self, end_h: float) -> None:
        while self._waiting_parts and self._waiting_parts[0][0] < end_h:
            ready_h, _, failure, since = heapq.heappop(self._waiting_parts)
            self._repair(failure, since, ready_h)

    def _fail(self, failure: Failure) -> None:
        time_h, cluster, node, group, _, severity, repair_h = failure
        groups = self.groups[cluster]
        up_again = self.up_again[cluster]
        first = node * groups
        if group >= 0 or groups == 1:
            member = first + max(group, 0)
            if up_again[member] > time_h:
                return  # it is down already, and cannot fail again
            since = {member: time_h}
        else:
            until = {member: up_again[member] for member in range(first, first + groups)}
            if min(until.values()) > time_h:
                return
            since = {member: max(time_h, end_h) for member, end_h in until.items() if end_h < np.inf}
        if severity == SOFT:
            self._down(failure, since, time_h + repair_h, 0.0)
        elif severity == MEDIUM:
            self._repair(failure, since, time_h)
        else:
            ready_h = self._part_ready_h(cluster, time_h)
            if ready_h <= time_h:
                self._repair(failure, since, time_h)
            else:
                self._hold(failure, since, ready_h)

    def _part_ready_h(self, cluster: int, time_h: float) -> float:
        """Take a part from stock, or the next that comes back; a replacement is ordered the moment one is needed."""
        spares = self.spares[cluster]
        back_h = time_h + self.plan.rma_h
        return max(time_h, heapq.heapreplace(spares, back_h)) if spares else back_h

    def _hold(self, failure: Failure, since: dict[int, float], ready_h: float) -> None:
        """Take what waits for a part out of service for as long as that takes."""
        cluster = failure[1]
        for member, down_h in since.items():
            self._log(cluster, down_h, -self.clusters[cluster].group_accelerators)
            self.up_again[cluster][member] = np.inf
        self._number += 1
        heapq.heappush(self._waiting_parts, (ready_h, self._number, failure, since))

    def _repair(self, failure: Failure, since: dict[int, float], ready_h: float) -> None:
        """Give a fault to the first crew that is free."""
        start_h = max(self.crews[0], ready_h)
        end_h = start_h + failure[6]
        heapq.heapreplace(self.crews, end_h)
        self._down(failure, since, end_h, start_h - failure[0])

    def _down(self, failure: Failure, since: dict[int, float], end_h: float, wait_h: float) -> None:
        """Take groups out of service, unless they wait for a part and are out already, and bring them back at the end."""
        cluster = failure[1]
        up_again = self.up_again[cluster]
        accelerators = self.clusters[cluster].group_accelerators
        for member, down_h in since.items():
            held = up_again[member] == np.inf
            if not held and down_h >= end_h:
                continue
            if not held:
                self._log(cluster, down_h, -accelerators)
            up_again[member] = max(end_h, down_h)
            self._log(cluster, up_again[member], accelerators)
        self._write(failure, since, end_h, wait_h)

    def _log(self, cluster: int, time_h: float, accelerators: int) -> None:
        self.down_times[cluster].append(time_h)
        self.down_accelerators[cluster].append(accelerators)

    def _write(self, failure: Failure, since: dict[int, float], end_h: float, wait_h: float) -> None:
        """Write down an outage."""
        time_h, cluster, node, _, cause, severity, _ = failure
        retire_h = self.clusters[cluster].retire_h
        accelerators = len(since) * self.clusters[cluster].group_accelerators
        name, level = self.plan.causes[cause].name, SEVERITIES[severity]
        self.outages.append(Outage(time_h, min(end_h, retire_h), cluster, node, accelerators, name, level, wait_h))
