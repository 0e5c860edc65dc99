"""Failures and the repair shop.

Nodes fail as independent Poisson processes, drawn in one block when they enter service. The shop works first come,
first served with crews that take one node each; a hard fault also needs a part, which may have to come back from RMA.
Under that discipline a repair's beginning and end are known the moment the failure happens, so a heap of the crews'
free times (Kiefer and Wolfowitz, 1955) replaces one event per repair, and SimPy is woken only when the fleet changes.
The same shop written with SimPy resources, kept in the tests, gives the same repairs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

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

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Failures:
        """Return the failures that a mask or an order chooses."""
        return Failures(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    @staticmethod
    def joined(parts: Sequence[Failures]) -> Failures:
        """Return several sets as one."""
        if len(parts) == 1:
            return parts[0]
        return Failures(
            **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Failures)}
        )


def draw_failures(
    plan: ReliabilityPlan,
    cluster: ClusterPlan,
    start_h: Floats,
    first_node: int,
    end_h: float,
    draw: np.random.Generator,
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
    place, moment, kind, heal = draw.random((4, count))
    spread = draw.standard_normal(count)
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


def _repair_h(plan: ReliabilityPlan, severity: NDArray[np.int64], standard: Floats) -> Floats:
    """Return lognormal repair times with each severity's mean and the common coefficient of variation."""
    sigma = np.sqrt(np.log1p(plan.repair_cv**2))
    times: Floats = np.array(plan.repair_h)[severity] * np.exp(sigma * standard - 0.5 * sigma**2)
    return times


class RepairShop:
    """Crews shared by all clusters, spares kept per cluster, and which groups of accelerators are down until when.

    Outages are kept in columns (lists, one entry an outage) because there are a thousand in every run.
    """

    def __init__(self, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        self.plan = plan
        self.clusters = clusters
        self.groups = [cluster.accelerators_per_node // cluster.group_accelerators for cluster in clusters]
        self.crews = [0.0] * plan.crews
        self.spares = [self._initial_spares(cluster) for cluster in clusters]
        self.nodes = [0] * len(clusters)
        self.node_up: dict[int, float] = {}
        """When a node that has been down as a whole is up again."""
        self.group_up: dict[tuple[int, int], float] = {}
        """When a group of accelerators that has been down by itself is up again."""
        self.node_last: dict[int, float] = {}
        """When everything of a node is up again."""
        self.start_h: list[float] = []
        self.end_h: list[float] = []
        self.lost_cluster: list[int] = []
        self.lost_groups: list[int] = []
        """How many groups of accelerators are down together."""
        self.failure: list[int] = []
        """Number of the failure behind an outage; a failure that takes groups at different times has several."""
        self.wait_h: list[float] = []
        self.failed: list[Failures] = []
        self._expected: list[tuple[int, Failures]] = []
        self._waiting_parts: list[tuple[float, int, float, int, int]] = []

    def _initial_spares(self, cluster: ClusterPlan) -> list[float]:
        if self.plan.spare_fraction <= 0:
            return []
        return [0.0] * max(1, round(self.plan.spare_fraction * cluster.nodes))

    def admit(self, cluster: int, nodes: int) -> int:
        """Make room for new nodes of a cluster; return the index of the first."""
        first = self.nodes[cluster]
        self.nodes[cluster] += nodes
        return first

    def expect(self, cluster: int, failures: Failures) -> None:
        """Take in failures drawn for nodes of a cluster."""
        self._expected.append((cluster, failures))

    def work_until(self, end_h: float) -> None:
        """Let everything happen that fails before ``end_h``, in time order."""
        group_up, node_up, node_last = self.group_up, self.node_up, self.node_last
        crews, waiting, replace = self.crews, self._waiting_parts, heapq.heapreplace
        starts, ends, clusters, groups = self.start_h, self.end_h, self.lost_cluster, self.lost_groups
        failures, waits = self.failure, self.wait_h
        for number, time_h, cluster, node, group, severity, repair_h in self._due(end_h):
            if waiting and waiting[0][0] <= time_h:
                self._parts_until(time_h)
            if node_up.get(node, 0.0) > time_h:
                continue  # it is down already, and cannot fail again
            whole = group < 0
            if whole and node_last.get(node, 0.0) > time_h:
                self._fail_rest(number, time_h, cluster, severity, repair_h, node)
                continue
            if not whole and group_up.get((node, group), 0.0) > time_h:
                continue
            wait_h = 0.0
            if severity == SOFT:
                back_h = time_h + repair_h
            elif severity == HARD and (ready_h := self._part_ready_h(cluster, time_h)) > time_h:
                heapq.heappush(waiting, (ready_h, len(starts), repair_h, node, group))
                back_h = np.inf
            else:
                begin_h = crews[0]
                begin_h = max(begin_h, time_h)
                back_h = begin_h + repair_h
                replace(crews, back_h)
                wait_h = begin_h - time_h
            starts.append(time_h)
            ends.append(back_h)
            clusters.append(cluster)
            groups.append(self.groups[cluster] if whole else 1)
            failures.append(number)
            waits.append(wait_h)
            if whole:
                node_up[node] = back_h
            else:
                group_up[node, group] = back_h
            if back_h > node_last.get(node, 0.0):
                node_last[node] = back_h
        self._parts_until(end_h)

    def _due(self, end_h: float) -> Iterator[tuple[int, float, int, int, int, int, float]]:
        """Return what fails before ``end_h`` in time order: number, time, cluster, node, group, severity, repair."""
        parts = [(cluster, failures, failures.time_h < end_h) for cluster, failures in self._expected]
        self._expected = [(c, f.where(~due)) for c, f, due in parts if not due.all()]
        parts = [part for part in parts if part[2].any()]
        if not parts:
            return iter(())
        due = [failures if mask.all() else failures.where(mask) for _, failures, mask in parts]
        owner = np.concatenate([np.full(f.time_h.size, c) for (c, _, _), f in zip(parts, due, strict=True)])
        whole = Failures.joined(due)
        order = np.argsort(whole.time_h, kind="stable")
        whole, owner = whole.where(order), owner[order]
        first = sum(part.time_h.size for part in self.failed)
        self.failed.append(whole)
        node = whole.node * len(self.clusters) + owner  # a number of its own for every node of every cluster
        numbers = range(first, first + order.size)
        columns = (whole.time_h, owner, node, whole.group, whole.severity, whole.repair_h)
        return zip(numbers, *(column.tolist() for column in columns), strict=True)

    def _parts_until(self, end_h: float) -> None:
        """Begin the repairs whose parts arrive before ``end_h``."""
        waiting, crews = self._waiting_parts, self.crews
        while waiting and waiting[0][0] < end_h:
            ready_h, row, repair_h, node, group = heapq.heappop(waiting)
            begin_h = max(crews[0], ready_h)
            back_h = begin_h + repair_h
            heapq.heapreplace(crews, back_h)
            number, last = self.failure[row], len(self.failure)
            while row < last and self.failure[row] == number:  # its groups lie side by side
                start_h = self.start_h[row]
                self.end_h[row] = back_h if back_h > start_h else start_h
                self.wait_h[row] = max(begin_h - start_h, 0.0)
                row += 1
            if group < 0:
                self.node_up[node] = back_h
            else:
                self.group_up[node, group] = back_h
            many = self.groups[node % len(self.clusters)] > 1
            self.node_last[node] = self._last_h(node, back_h) if many else back_h

    def _last_h(self, node: int, back_h: float) -> float:
        """Return when the last of a node's groups is up again."""
        groups = self.groups[node % len(self.clusters)]
        return max([back_h, *(self.group_up.get((node, group), 0.0) for group in range(groups))])

    def _fail_rest(self, number: int, time_h: float, cluster: int, severity: int, repair_h: float, node: int) -> None:
        """Take a node down of which some groups are down already; those join when they would come back."""
        groups = range(self.groups[cluster])
        until = [self.group_up.get((node, group), 0.0) for group in groups]
        if min(until) > time_h:
            return
        since = sorted(max(time_h, up_h) for up_h in until if up_h < np.inf)
        wait_h, back_h = 0.0, time_h + repair_h
        if severity == HARD and (ready_h := self._part_ready_h(cluster, time_h)) > time_h:
            heapq.heappush(self._waiting_parts, (ready_h, len(self.start_h), repair_h, node, -1))
            back_h = np.inf
        elif severity != SOFT:
            begin_h = max(self.crews[0], time_h)
            wait_h, back_h = begin_h - time_h, begin_h + repair_h
            heapq.heapreplace(self.crews, back_h)
        for start_h in since:
            if start_h < back_h:
                self.start_h.append(start_h)
                self.end_h.append(back_h)
                self.lost_cluster.append(cluster)
                self.lost_groups.append(1)
                self.failure.append(number)
                self.wait_h.append(wait_h)
        self.node_up[node] = back_h
        self.node_last[node] = max(back_h, *until)

    def _part_ready_h(self, cluster: int, time_h: float) -> float:
        """Take a part from stock, or the next that comes back; a replacement is ordered the moment one is needed."""
        spares = self.spares[cluster]
        back_h = time_h + self.plan.rma_h
        return heapq.heapreplace(spares, back_h) if spares else back_h

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:
        """Forget the failures and end the outages of nodes that leave for good."""
        self._expected = [
            (c, f if c != cluster else f.where((f.node < first) | (f.node >= last))) for c, f in self._expected
        ]
        node = Failures.joined(self.failed).node if self.failed else np.zeros(0, dtype=np.int64)
        gone = set()
        for row, end_h in enumerate(self.end_h):
            if self.lost_cluster[row] == cluster and end_h > now_h and first <= node[self.failure[row]] < last:
                self.end_h[row] = max(now_h, self.start_h[row])
                gone.add(row)
        kept = [job for job in self._waiting_parts if job[1] not in gone]
        heapq.heapify(kept)
        self._waiting_parts[:] = kept

    def down(self) -> list[tuple[Floats, Floats]]:
        """Return the jumps of each cluster's accelerators out of service: times and changes, shape (2 × outages,)."""
        owner = np.array(self.lost_cluster, dtype=np.int64)
        groups = np.array(self.lost_groups, dtype=np.float64)
        start_h, end_h = np.array(self.start_h), np.array(self.end_h)
        jumps = []
        for index, cluster in enumerate(self.clusters):
            own = owner == index
            size = groups[own] * cluster.group_accelerators
            times = np.minimum(np.concatenate((start_h[own], end_h[own])), cluster.retire_h)
            jumps.append((times, np.concatenate((size, -size))))
        return jumps

    def outages(self) -> list[Outage]:
        """Return every outage with its cause, for the record."""
        if not self.failed:
            return []
        whole = Failures.joined(self.failed)
        rows = []
        for row, number in enumerate(self.failure):
            index, groups = self.lost_cluster[row], self.lost_groups[row]
            cluster = self.clusters[index]
            if self.start_h[row] >= cluster.retire_h:
                continue  # it would have joined after the cluster was gone
            rows.append(
                Outage(
                    start_h=self.start_h[row],
                    end_h=min(self.end_h[row], cluster.retire_h),
                    cluster=index,
                    node=int(whole.node[number]),
                    accelerators=groups * cluster.group_accelerators,
                    cause=self.plan.causes[whole.cause[number]].name,
                    severity=SEVERITIES[whole.severity[number]],
                    wait_h=self.wait_h[row],
                )
            )
        return rows
