"""The repair shop.

It works first come, first served with crews that take one node each; a hard fault also needs a part, which may have to
come back from RMA. Under that discipline a repair's beginning and end are known the moment the failure happens, so a
heap of the crews' free times (Kiefer and Wolfowitz, 1955) replaces one event per repair, and SimPy is woken only when
the fleet changes. The same shop written with SimPy resources, kept in the tests, gives the same repairs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import ClusterPlan, ReliabilityPlan
from planner.simulation.failures import HARD, SEVERITIES, SOFT, Failures
from planner.simulation.log import Outage

Floats = NDArray[np.float64]
_NEVER = float("inf")  # until its part has come


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """Everything that was down, from a failure until its repair; arrays of shape (outages,)."""

    failure: NDArray[np.int64]
    """Number of the failure behind it; a failure that takes groups at different times has several."""
    cluster: NDArray[np.int64]
    groups: NDArray[np.int64]
    """How many groups of accelerators are down together."""
    start_h: Floats
    end_h: Floats


class RepairShop:
    """Crews shared by all clusters, spares kept per cluster, and which groups of accelerators are down until when.

    There are a thousand outages in every run. An outage is its failure's number and its end; what the failure tells is
    looked up for all at once (:meth:`outage_arrays`), and the few that differ from their failure are kept apart.
    """

    def __init__(self, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        self.plan = plan
        self.clusters = clusters
        self.groups = [cluster.accelerators_per_node // cluster.group_accelerators for cluster in clusters]
        self.crews = [0.0] * plan.crews
        self.spares = [self._initial_spares(cluster) for cluster in clusters]
        self.nodes = [0] * len(clusters)
        self.node_up: list[float] = []
        """When a node that has been down as a whole is up again; a node's number is its index times the clusters,
        plus its cluster's."""
        self.stride = max(self.groups, default=1)
        self.group_up: list[float] = []
        """When each group of a node's accelerators that has been down by itself is up again, a stride a node."""
        self.failure: list[int] = []
        """Number of the failure behind each outage."""
        self.end_h: list[float] = []
        self.wait_h: dict[int, float] = {}
        """Hours that an outage waited for a crew or a part, where it did."""
        self.joined_h: dict[int, float] = {}
        """When a group joined an outage of its node, where it was down already when the node failed."""
        self.failed: list[Failures] = []
        self.owner: list[NDArray[np.int64]] = []
        """Cluster of each failure."""
        self._expected: list[tuple[int, Failures]] = []
        """What is still to fail, by cluster, in time order."""
        self._waiting_parts: list[tuple[float, int, float, int, int, float]] = []
        """When the part comes, the outage, hours of repair, node, group, and when it failed."""

    def _initial_spares(self, cluster: ClusterPlan) -> list[float]:
        if self.plan.spare_fraction <= 0:
            return []
        return [0.0] * max(1, round(self.plan.spare_fraction * cluster.nodes))

    def admit(self, cluster: int, nodes: int) -> int:
        """Make room for new nodes of a cluster; return the index of the first."""
        first = self.nodes[cluster]
        self.nodes[cluster] += nodes
        more = max(self.nodes) * len(self.clusters) - len(self.node_up)
        self.node_up += [0.0] * more
        self.group_up += [0.0] * (more * self.stride)
        return first

    def expect(self, cluster: int, failures: Failures) -> None:
        """Take in failures drawn for nodes of a cluster."""
        self._expected.append((cluster, failures.where(np.argsort(failures.time_h, kind="stable"))))

    def work_until(self, end_h: float) -> None:
        """Let everything happen that fails before ``end_h``, in time order."""
        group_up, node_up = self.group_up, self.node_up
        crews, waiting, replace = self.crews, self._waiting_parts, heapq.heapreplace
        failures, ends, stride, groups = self.failure, self.end_h, self.stride, self.groups
        for number, time_h, cluster, node, group, severity, repair_h in self._due(end_h):
            if waiting and waiting[0][0] <= time_h:
                self._parts_until(time_h)
            if node_up[node] > time_h:
                continue  # it is down already, and cannot fail again
            if group >= 0:
                if group_up[node * stride + group] > time_h:
                    continue
            elif groups[cluster] > 1 and max(group_up[node * stride : node * stride + groups[cluster]]) > time_h:
                self._fail_rest(number, time_h, cluster, severity, repair_h, node)
                continue
            if severity == SOFT:
                back_h = time_h + repair_h
            elif severity == HARD and (ready_h := self._part_ready_h(cluster, time_h)) > time_h:
                heapq.heappush(waiting, (ready_h, len(ends), repair_h, node, group, time_h))
                back_h = _NEVER
            elif (begin_h := crews[0]) > time_h:
                self.wait_h[len(ends)] = begin_h - time_h
                back_h = begin_h + repair_h
                replace(crews, back_h)
            else:
                back_h = time_h + repair_h
                replace(crews, back_h)
            failures.append(number)
            ends.append(back_h)
            if group < 0:
                node_up[node] = back_h
            else:
                group_up[node * stride + group] = back_h
        self._parts_until(end_h)

    def _due(self, end_h: float) -> Iterator[tuple[int, float, int, int, int, int, float]]:
        """Return what fails before ``end_h`` in time order: number, time, cluster, node, group, severity, repair."""
        counts = [int(np.searchsorted(failures.time_h, end_h)) for _, failures in self._expected]
        parts = [(c, f.where(slice(n))) for (c, f), n in zip(self._expected, counts, strict=True) if n]
        if not parts:
            return iter(())
        left = [(c, f.where(slice(n, None)) if n else f) for (c, f), n in zip(self._expected, counts, strict=True)]
        self._expected = [(c, failures) for c, failures in left if failures.time_h.size]
        owner = np.concatenate([np.full(failures.time_h.size, c) for c, failures in parts])
        whole = Failures.joined([failures for _, failures in parts])
        order = np.argsort(whole.time_h, kind="stable")
        whole, owner = whole.where(order), owner[order]
        first = sum(part.time_h.size for part in self.failed)
        self.failed.append(whole)
        self.owner.append(owner)
        node = whole.node * len(self.clusters) + owner
        numbers = range(first, first + order.size)
        columns = (whole.time_h, owner, node, whole.group, whole.severity, whole.repair_h)
        return zip(numbers, *(column.tolist() for column in columns), strict=True)

    def _parts_until(self, end_h: float) -> None:
        """Begin the repairs whose parts arrive before ``end_h``."""
        waiting, crews, joined_h = self._waiting_parts, self.crews, self.joined_h
        while waiting and waiting[0][0] < end_h:
            ready_h, row, repair_h, node, group, failed_h = heapq.heappop(waiting)
            begin_h = max(crews[0], ready_h)
            back_h = begin_h + repair_h
            heapq.heapreplace(crews, back_h)
            number, last = self.failure[row], len(self.failure)
            while row < last and self.failure[row] == number:  # its groups lie side by side
                start_h = joined_h.get(row, failed_h)
                self.end_h[row] = back_h if back_h > start_h else start_h
                self.wait_h[row] = begin_h - start_h if begin_h > start_h else 0.0
                row += 1
            if group < 0:
                self.node_up[node] = back_h
            else:
                self.group_up[node * self.stride + group] = back_h

    def _fail_rest(self, number: int, time_h: float, cluster: int, severity: int, repair_h: float, node: int) -> None:
        """Take a node down of which some groups are down already; those join when they would come back."""
        until = self.group_up[node * self.stride : node * self.stride + self.groups[cluster]]
        if min(until) > time_h:
            return
        since = sorted(max(time_h, up_h) for up_h in until if up_h < _NEVER)
        wait_h, back_h = 0.0, time_h + repair_h
        if severity == HARD and (ready_h := self._part_ready_h(cluster, time_h)) > time_h:
            heapq.heappush(self._waiting_parts, (ready_h, len(self.end_h), repair_h, node, -1, time_h))
            back_h = _NEVER
        elif severity != SOFT:
            begin_h = max(self.crews[0], time_h)
            wait_h, back_h = begin_h - time_h, begin_h + repair_h
            heapq.heapreplace(self.crews, back_h)
        for start_h in since:
            if start_h < back_h:
                self.joined_h[len(self.end_h)] = start_h
                self.wait_h[len(self.end_h)] = wait_h
                self.failure.append(number)
                self.end_h.append(back_h)
        self.node_up[node] = back_h

    def _part_ready_h(self, cluster: int, time_h: float) -> float:
        """Take a part from stock, or the next that comes back; a replacement is ordered the moment one is needed."""
        spares = self.spares[cluster]
        back_h = time_h + self.plan.rma_h
        return heapq.heapreplace(spares, back_h) if spares else back_h

    def outage_arrays(self) -> Outages:
        """Return all outages so far."""
        if not self.failed:
            none, never = np.zeros(0, dtype=np.int64), np.zeros(0)
            return Outages(failure=none, cluster=none, groups=none, start_h=never, end_h=never)
        failure = np.array(self.failure, dtype=np.int64)
        cluster = np.concatenate(self.owner)[failure]
        group = np.concatenate([part.group for part in self.failed])[failure]
        start_h = np.concatenate([part.time_h for part in self.failed])[failure]
        groups = np.where(group < 0, np.array(self.groups)[cluster], 1)
        joined = list(self.joined_h)
        groups[joined] = 1
        start_h[joined] = list(self.joined_h.values())
        return Outages(failure=failure, cluster=cluster, groups=groups, start_h=start_h, end_h=np.array(self.end_h))

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:
        """Forget the failures and end the outages of nodes that leave for good."""
        self._expected = [
            (c, f if c != cluster else f.where((f.node < first) | (f.node >= last))) for c, f in self._expected
        ]
        if not self.failed:
            return
        all_ = self.outage_arrays()
        node = Failures.joined(self.failed).node[all_.failure]
        gone = np.flatnonzero((all_.cluster == cluster) & (all_.end_h > now_h) & (node >= first) & (node < last))
        for row in gone.tolist():
            self.end_h[row] = max(now_h, float(all_.start_h[row]))
        kept = [job for job in self._waiting_parts if job[1] not in set(gone.tolist())]
        heapq.heapify(kept)
        self._waiting_parts[:] = kept

    def down(self) -> list[tuple[Floats, Floats]]:
        """Return the jumps of each cluster's accelerators out of service: times and changes, shape (2 × outages,)."""
        everything = self.outage_arrays()
        jumps = []
        for index, cluster in enumerate(self.clusters):
            own = everything.cluster == index
            size = everything.groups[own] * float(cluster.group_accelerators)
            times = np.concatenate((everything.start_h[own], everything.end_h[own]))
            jumps.append((np.minimum(times, cluster.retire_h), np.concatenate((size, -size))))
        return jumps

    def outages(self) -> list[Outage]:
        """Return every outage with its cause, for the record."""
        if not self.failed:
            return []
        whole, everything = Failures.joined(self.failed), self.outage_arrays()
        rows = []
        columns = (everything.failure, everything.cluster, everything.groups, everything.start_h, everything.end_h)
        for row, (number, index, groups, start_h, end_h) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            cluster = self.clusters[index]
            if start_h >= cluster.retire_h:
                continue  # it would have joined after the cluster was gone
            rows.append(
                Outage(
                    start_h=start_h,
                    end_h=min(end_h, cluster.retire_h),
                    cluster=index,
                    node=int(whole.node[number]),
                    accelerators=groups * cluster.group_accelerators,
                    cause=self.plan.causes[whole.cause[number]].name,
                    severity=SEVERITIES[whole.severity[number]],
                    wait_h=self.wait_h.get(row, 0.0),
                )
            )
        return rows
