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
        self.up_again: dict[int, float] = {}
        """When a group that has been down is up again; groups are numbered by :meth:`_group`."""
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
        self._waiting_parts: list[tuple[float, int, float, int]] = []

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
        rows = self._due(end_h)
        up_again, crews, waiting = self.up_again, self.crews, self._waiting_parts
        one_group = [(cluster, 1) for cluster in range(len(self.clusters))]
        for number, time_h, cluster, member, severity, repair_h in rows:
            if waiting and waiting[0][0] <= time_h:
                self._parts_until(time_h)
            if member < 0:
                self._fail_node(number, time_h, cluster, severity, repair_h, -1 - member)
                continue
            if up_again.get(member, 0.0) > time_h:
                continue  # it is down already, and cannot fail again
            if severity == SOFT:
                self._down(number, time_h, time_h + repair_h, one_group[cluster], 0.0)
                up_again[member] = time_h + repair_h
                continue
            if severity == HARD:
                ready_h = self._part_ready_h(cluster, time_h)
                if ready_h > time_h:
                    up_again[member] = np.inf
                    self._hold(number, time_h, ready_h, one_group[cluster], repair_h, member)
                    continue
            free_h = crews[0]
            begin_h = free_h if free_h > time_h else time_h
            heapq.heapreplace(crews, begin_h + repair_h)
            self._down(number, time_h, begin_h + repair_h, one_group[cluster], begin_h - time_h)
            up_again[member] = begin_h + repair_h
        self._parts_until(end_h)

    def _due(self, end_h: float) -> Iterator[tuple[int, float, int, int, int, float]]:
        """Return what fails before ``end_h`` in time order: number, time, cluster, group, severity, repair."""
        parts = [(cluster, failures, failures.time_h < end_h) for cluster, failures in self._expected]
        self._expected = [(c, f.where(~due)) for c, f, due in parts if not due.all()]
        parts = [part for part in parts if part[2].any()]
        if not parts:
            return iter(())
        due = [failures.where(mask) for _, failures, mask in parts]
        owner = np.concatenate([np.full(f.time_h.size, c) for (c, _, _), f in zip(parts, due, strict=True)])
        whole = Failures.joined(due)
        order = np.argsort(whole.time_h, kind="stable")
        whole, owner = whole.where(order), owner[order]
        first = sum(part.time_h.size for part in self.failed)
        self.failed.append(whole)
        groups = np.array(self.groups)[owner]
        member = (owner << 40) + whole.node * groups + np.maximum(whole.group, 0)
        member = np.where((whole.group < 0) & (groups > 1), -1 - member, member)
        numbers = range(first, first + order.size)
        columns = (whole.time_h, owner, member, whole.severity, whole.repair_h)
        return zip(numbers, *(column.tolist() for column in columns), strict=True)

    def _parts_until(self, end_h: float) -> None:
        """Begin the repairs whose parts arrive before ``end_h``."""
        waiting, crews = self._waiting_parts, self.crews
        while waiting and waiting[0][0] < end_h:
            ready_h, row, repair_h, member = heapq.heappop(waiting)
            begin_h = max(crews[0], ready_h)
            back_h = begin_h + repair_h
            heapq.heapreplace(crews, back_h)
            number = self.failure[row]
            while row < len(self.failure) and self.failure[row] == number:  # its groups lie side by side
                self.end_h[row] = max(back_h, self.start_h[row])
                self.wait_h[row] = begin_h - self.start_h[row]
                row += 1
            for group in self._members(member, self.lost_cluster[row - 1]):
                if self.up_again.get(group) == np.inf:
                    self.up_again[group] = back_h

    def _members(self, member: int, cluster: int) -> range:
        """Return the groups that a number stands for: one, or (negative) all of a node."""
        return range(member, member + 1) if member >= 0 else range(-1 - member, -1 - member + self.groups[cluster])

    def _fail_node(self, number: int, time_h: float, cluster: int, severity: int, repair_h: float, first: int) -> None:
        """Take a whole node of several groups down; groups that are down already join when they would come back."""
        members = range(first, first + self.groups[cluster])
        until = [self.up_again.get(member, 0.0) for member in members]
        if min(until) > time_h:
            return
        together = max(until) <= time_h
        since = [time_h] if together else [max(time_h, end_h) for end_h in until if end_h < np.inf]
        groups = len(members) if together else 1
        if severity == HARD and (ready_h := self._part_ready_h(cluster, time_h)) > time_h:
            self._hold(number, since[0], ready_h, (cluster, groups), repair_h, -1 - first)
            for start_h in since[1:]:
                self._down(number, start_h, np.inf, (cluster, 1), 0.0)
            self.up_again.update(dict.fromkeys(members, np.inf))
            return
        begin_h = time_h
        if severity != SOFT:
            begin_h = max(self.crews[0], time_h)
            heapq.heapreplace(self.crews, begin_h + repair_h)
        end_h = begin_h + repair_h
        for start_h in since:
            if start_h < end_h:
                self._down(number, start_h, end_h, (cluster, groups), begin_h - time_h)
        for member, up_h in zip(members, until, strict=True):
            self.up_again[member] = max(end_h, up_h)

    def _part_ready_h(self, cluster: int, time_h: float) -> float:
        """Take a part from stock, or the next that comes back; a replacement is ordered the moment one is needed."""
        spares = self.spares[cluster]
        back_h = time_h + self.plan.rma_h
        return heapq.heapreplace(spares, back_h) if spares else back_h

    def _hold(
        self, number: int, time_h: float, ready_h: float, lost: tuple[int, int], repair_h: float, member: int
    ) -> None:
        """Take what waits for a part out of service for as long as that takes."""
        heapq.heappush(self._waiting_parts, (ready_h, len(self.start_h), repair_h, member))
        self._down(number, time_h, np.inf, lost, 0.0)

    def _down(self, number: int, start_h: float, end_h: float, lost: tuple[int, int], wait_h: float) -> None:
        """Write one outage; ``lost`` is the cluster and the number of its groups."""
        self.start_h.append(start_h)
        self.end_h.append(end_h)
        self.lost_cluster.append(lost[0])
        self.lost_groups.append(lost[1])
        self.failure.append(number)
        self.wait_h.append(wait_h)

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:
        """Forget the failures and end the outages of nodes that leave for good."""
        self._expected = [
            (c, f if c != cluster else f.where((f.node < first) | (f.node >= last))) for c, f in self._expected
        ]
        node = Failures.joined(self.failed).node if self.failed else np.zeros(0, dtype=np.int64)
        for row, end_h in enumerate(self.end_h):
            if self.lost_cluster[row] == cluster and end_h > now_h and first <= node[self.failure[row]] < last:
                self.end_h[row] = max(now_h, self.start_h[row])
        kept = [job for job in self._waiting_parts if self.end_h[job[1]] > now_h]
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
            times = np.concatenate((start_h[own], np.minimum(end_h[own], cluster.retire_h)))
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
