"""The repair shop, by a fast kernel.

It works first come, first served with crews that take one node each; a hard fault also needs a part, which may have to
come back from RMA. A thousand failures a run are walked through in time order: a heap of the crews' free times (Kiefer
and Wolfowitz, 1955) tells when a repair begins, and no event of SimPy is needed for any of them. Where another process
wants crews or spares too, :mod:`planner.engine.open_shop` is the same shop in SimPy; a test holds them together.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.elementwise import distinct
from planner.engine.failures import HARD, SEVERITIES, SOFT, Failures
from planner.engine.log import Outage
from planner.engine.staffing import Staffing
from planner.plan.plan import ClusterPlan
from planner.plan.reliability_plan import ReliabilityPlan

_NEVER = float("inf")  # until its part has come


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """Everything that was down, from a failure until its repair; arrays of shape (outages,)."""

    cluster: NDArray[np.int64]
    groups: NDArray[np.int64]
    """How many groups of accelerators are down together."""
    start_h: Floats
    end_h: Floats


@dataclass(slots=True)
class _Waiting:
    """A repair that has not begun, for want of a part or a crew."""

    failed_h: float
    cluster: int
    node: int
    group: int
    repair_h: float
    rows: list[int]
    """Outages that end with it; they are numbered as failures come, so of two ready at once the older has the lower."""


class RepairShop:
    """Crews shared by all clusters, spares kept per cluster, and which groups of accelerators are down until when.

    There are a thousand outages in every run. An outage is its failure's number and its end; what the failure tells is
    looked up for all at once (:meth:`outage_arrays`), and the few that differ from their failure are kept apart.
    """

    def __init__(self, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        self.plan = plan
        self.clusters = clusters
        self.groups = [cluster.accelerators_per_node // cluster.group_accelerators for cluster in clusters]
        self.staff = Staffing(plan, clusters)
        self.worked_h = 0.0
        self.crews = [0.0] * plan.crews.fixed
        """A heap: when each crew is free."""
        self.spares = [[0.0] * plan.spares.fixed for _ in clusters]
        """A heap a cluster: when each part is in stock; one that is ordered is there from when it comes."""
        self.nodes = [0] * len(clusters)
        self.node_up: list[float] = []
        """When a node that has been down as a whole is up again; a node's number is its index times the clusters,
        plus its cluster's."""
        self.stride = max(self.groups, default=1)
        self.group_up: list[float] = []
        """When each group of a node's accelerators that has been down by itself is up again, a stride a node."""
        self.failure: list[int] = []
        """Number of the failure behind each outage; one that takes groups at different times has several."""
        self.end_h: list[float] = []
        self.wait_h: dict[int, float] = {}
        """Hours that an outage waited for a crew or a part, where it did."""
        self.joined_h: dict[int, float] = {}
        """When a group joined an outage of its node, where it was down already when the node failed."""
        self.failed: list[Failures] = []
        self.owner: list[NDArray[np.int64]] = []
        """Cluster of each failure."""
        self._expected: list[tuple[int, Failures, int]] = []
        """What is still to fail: cluster, failures in time order, and the first of them that has not been."""
        self._for_parts: list[tuple[float, int, _Waiting]] = []
        """A heap by when each could begin but for a crew, and by order: the one whose part comes next is first."""
        self._for_crews: list[tuple[float, int, _Waiting]] = []
        """The same: the one that has been ready longest is first."""
        self._next_h = _NEVER
        """No repair that waits can begin before this; 0 where that is to be found out anew."""
        self._half_down: dict[int, tuple[int, _Waiting | None]] = {}
        """Nodes that failed while groups of them were down: the failure, and its repair where that had to wait."""

    def admit(self, cluster: int, service_h: Floats) -> int:
        """Take in nodes of a cluster that enter service at these times, rising; return the index of the first."""
        first = self.nodes[cluster]
        self.nodes[cluster] += service_h.size
        for time_h in self.staff.crews_from(cluster, service_h):
            heapq.heappush(self.crews, time_h)
        for time_h in self.staff.spares_from(cluster, service_h):
            heapq.heappush(self.spares[cluster], time_h)
        self._promise_anew(cluster)
        self.staff.on_site[cluster] += service_h.size
        self._next_h = 0.0
        more = max(self.nodes) * len(self.clusters) - len(self.node_up)
        self.node_up += [0.0] * more
        self.group_up += [0.0] * (more * self.stride)
        return first

    def expect(self, cluster: int, failures: Failures) -> None:
        """Take in failures drawn for nodes of a cluster."""
        self._expected.append((cluster, failures.where(np.argsort(failures.time_h, kind="stable")), 0))

    def work_until(self, end_h: float) -> None:
        """Let everything happen that fails before ``end_h``, in time order."""
        # Local names: this loop is a quarter of a replication.
        group_up, node_up = self.group_up, self.node_up
        crews, queue, replace = self.crews, self._for_crews, heapq.heapreplace
        failures, ends, stride, groups = self.failure, self.end_h, self.stride, self.groups
        for number, time_h, cluster, node, group, severity, repair_h in self._due(end_h):
            if self._next_h < time_h:
                self._begin_until(time_h)  # before this failure is looked at: it may find its node back
            if node_up[node] > time_h:
                continue  # it is down already, and cannot fail again
            if group >= 0:
                if group_up[node * stride + group] > time_h:
                    continue
            elif groups[cluster] > 1 and max(group_up[node * stride : node * stride + groups[cluster]]) > time_h:
                self._fail_rest(number, time_h, cluster, severity, repair_h, node)
                continue
            ready_h = time_h if severity != HARD else self._part_ready_h(cluster, time_h)
            if severity == SOFT:
                back_h = time_h + repair_h
            elif ready_h <= time_h and not queue and crews[0] <= time_h:
                # The common case by far: somebody is free. With a queue one may be, but then it is not his turn.
                back_h = time_h + repair_h
                replace(crews, back_h)
            else:
                back_h = _NEVER
                self._wait(ready_h, _Waiting(time_h, cluster, node, group, repair_h, [len(ends)]))
            failures.append(number)
            ends.append(back_h)
            if group < 0:
                node_up[node] = back_h
            else:
                group_up[node * stride + group] = back_h
        self._begin_until(end_h)
        self.worked_h = end_h

    def _due(self, end_h: float) -> Iterator[tuple[int, float, int, int, int, int, float]]:
        """Return what fails before ``end_h`` in time order: number, time, cluster, node, group, severity, repair."""
        parts, left = [], []
        for c, failures, begun in self._expected:
            end = int(failures.time_h.searchsorted(end_h))
            if end > begun:
                parts.append((c, failures.where(slice(begun, end))))
            if end < failures.time_h.size:
                left.append((c, failures, end))
        self._expected = left
        if not parts:
            return iter(())
        owner = np.concatenate([np.full(failures.time_h.size, c) for c, failures in parts])
        joined = Failures.joined([failures for _, failures in parts])
        order = np.argsort(joined.time_h, kind="stable")
        joined, owner = joined.where(order), owner[order]
        first = sum(part.time_h.size for part in self.failed)
        self.failed.append(joined)
        self.owner.append(owner)
        node = joined.node * len(self.clusters) + owner
        numbers = range(first, first + order.size)
        # A provider mends its machines itself: none of them waits for a crew or a part of the site's.
        hosted = np.array([plan.is_hosted for plan in self.clusters])[owner]
        severity = np.where(hosted, SOFT, joined.severity)
        columns = (joined.time_h, owner, node, joined.group, severity, joined.repair_h)
        return zip(numbers, *(column.tolist() for column in columns), strict=True)

    def _part_ready_h(self, cluster: int, time_h: float) -> float:
        """Take a part from stock, or the next that comes; a replacement is ordered the moment one is needed.

        Who fails later gets a part that comes later, so the one that comes next can be promised at once.
        """
        stock, back_h = self.spares[cluster], time_h + self.plan.rma_h
        return max(heapq.heapreplace(stock, back_h), time_h) if stock else back_h

    def _promise_anew(self, cluster: int) -> None:
        """Hand new spares to those who wait longest, where they come before the parts they were promised."""
        stock, jobs = self.spares[cluster], [entry for entry in self._for_parts if entry[2].cluster == cluster]
        if not jobs:
            return
        for ready_h, _, _ in jobs:
            heapq.heappush(stock, ready_h)
        others = [entry for entry in self._for_parts if entry[2].cluster != cluster]
        oldest_first = sorted((order, job) for _, order, job in jobs)
        anew = [(max(heapq.heappop(stock), job.failed_h), order, job) for order, job in oldest_first]
        self._for_parts[:] = others + anew
        heapq.heapify(self._for_parts)

    def _wait(self, ready_h: float, job: _Waiting) -> None:
        """Put a repair into the queue for its part, or for a crew."""
        heapq.heappush(self._for_parts if ready_h > job.failed_h else self._for_crews, (ready_h, job.rows[0], job))
        self._next_h = min(self._next_h, max(ready_h, self.crews[0]))

    def _begin_until(self, end_h: float) -> None:
        """Begin the repairs for which a part and a crew are there before ``end_h``, each in its turn.

        Parts first: whoever gets one joins the queue for crews with the time at which it came, and that queue is kept
        by these times, so a part that comes later never goes before one that came sooner.
        """
        parts, queue, crews = self._for_parts, self._for_crews, self.crews
        while parts and parts[0][0] < end_h:
            if queue or crews[0] > parts[0][0]:
                heapq.heappush(queue, heapq.heappop(parts))
            else:
                ready_h, _, job = heapq.heappop(parts)
                self._begin(job, ready_h)
        while queue and (begin_h := max(crews[0], queue[0][0])) < end_h:
            self._begin(heapq.heappop(queue)[2], begin_h)
        self._next_h = max(parts[0][0], crews[0]) if parts else _NEVER
        if queue:
            self._next_h = min(self._next_h, max(queue[0][0], crews[0]))

    def _begin(self, job: _Waiting, begin_h: float) -> None:
        """Begin a repair that waited: now it is known when its outages end."""
        back_h = begin_h + job.repair_h
        heapq.heapreplace(self.crews, back_h)
        for row in job.rows:
            start_h = self.joined_h.get(row, job.failed_h)
            self.end_h[row] = max(back_h, start_h)
            self.wait_h[row] = max(begin_h - start_h, 0.0)
        if job.group < 0:
            self.node_up[job.node] = back_h
            return
        self.group_up[job.node * self.stride + job.group] = back_h
        if self.node_up[job.node] > back_h:  # the node failed meanwhile and takes longer: the group stays down with it
            number, repair = self._half_down[job.node]
            row = self._join(number, back_h, self.node_up[job.node])
            if repair is not None:
                repair.rows.append(row)

    def _join(self, number: int, start_h: float, end_h: float) -> int:
        """Note that a group is down with its node from when it would have come back; return the outage."""
        self.joined_h[len(self.end_h)] = start_h
        self.failure.append(number)
        self.end_h.append(end_h)
        return len(self.end_h) - 1

    def _fail_rest(self, number: int, time_h: float, cluster: int, severity: int, repair_h: float, node: int) -> None:
        """Take a node down of which some groups are down already; those join when they would come back."""
        until = self.group_up[node * self.stride : node * self.stride + self.groups[cluster]]
        if min(until) > time_h:
            return  # nothing of it is left to fail
        # Those that wait themselves are not known to return yet, and join once they are.
        since = sorted(max(time_h, up_h) for up_h in until if up_h < _NEVER)
        rows = list(range(len(self.end_h), len(self.end_h) + len(since)))
        ready_h = time_h if severity != HARD else self._part_ready_h(cluster, time_h)
        job = _Waiting(time_h, cluster, node, -1, repair_h, rows)
        back_h = time_h + repair_h
        if severity != SOFT:
            if ready_h > time_h or self._for_crews or self.crews[0] > time_h:
                self._wait(ready_h, job)
                back_h = _NEVER
            else:
                heapq.heapreplace(self.crews, back_h)
        for start_h in since:
            self._join(number, start_h, max(back_h, start_h))
        self.node_up[node] = back_h
        self._half_down[node] = (number, job if back_h == _NEVER else None)

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:
        """Forget the failures and end the outages of nodes that leave for good; the crews that they needed go too."""
        self.staff.on_site[cluster] -= last - first
        for _ in range(len(self.crews) - max(1, self.staff.crews())):
            heapq.heappop(self.crews)  # the one with least to do
        ahead = [(c, failures.where(slice(begun, None))) for c, failures, begun in self._expected]
        self._expected = [(c, f if c != cluster else f.where((f.node < first) | (f.node >= last)), 0) for c, f in ahead]
        if not self.failed:
            return
        known = self.outage_arrays()
        node = Failures.joined(self.failed).node[self.failure]
        gone = np.flatnonzero((known.cluster == cluster) & (known.end_h > now_h) & (node >= first) & (node < last))
        for row in gone.tolist():
            self.end_h[row] = max(now_h, float(known.start_h[row]))
        left = set(gone.tolist())
        for ready_h, _, job in [*self._for_parts, *self._for_crews]:
            if left & set(job.rows):
                self.wait_h |= {row: max(now_h - self.joined_h.get(row, job.failed_h), 0.0) for row in job.rows}
                if ready_h > now_h:
                    heapq.heappush(self.spares[cluster], ready_h)  # the part it was promised is another's now
        for queue in (self._for_parts, self._for_crews):
            queue[:] = [entry for entry in queue if not left & set(entry[2].rows)]
            heapq.heapify(queue)
        self._promise_anew(cluster)
        self._next_h = 0.0

    @property
    def outage_count(self) -> int:
        """Return how many outages there have been so far."""
        return len(self.end_h)

    def outage_arrays(self, some: Sequence[int] = (), since: int = 0) -> Outages:
        """Return some outages, and all from one on."""
        if not self.failed:
            none, never = np.zeros(0, dtype=np.int64), np.zeros(0)
            return Outages(cluster=none, groups=none, start_h=never, end_h=never)
        failure = np.array([*(self.failure[row] for row in some), *self.failure[since:]], dtype=np.int64)
        end_h = np.array([*(self.end_h[row] for row in some), *self.end_h[since:]])
        cluster = np.concatenate(self.owner)[failure]
        group = np.concatenate([part.group for part in self.failed])[failure]
        start_h = np.concatenate([part.time_h for part in self.failed])[failure]
        groups = np.where(group < 0, np.array(self.groups)[cluster], 1)
        places = {row: place for place, row in enumerate(some)}
        places |= {row: len(some) + row - since for row in self.joined_h if row >= since}
        joined = [places[row] for row in self.joined_h if row in places]
        groups[joined] = 1
        start_h[joined] = [time_h for row, time_h in self.joined_h.items() if row in places]
        return Outages(cluster=cluster, groups=groups, start_h=start_h, end_h=end_h)

    def hard_failures(self) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return when a part broke, in which cluster and in which of its nodes; what was down already broke none."""
        if not self.failure:
            none = np.zeros(0, dtype=np.int64)
            return np.zeros(0), none, none
        joined, numbers = Failures.joined(self.failed), distinct(np.array(self.failure))
        numbers = numbers[joined.severity[numbers] == HARD]
        return joined.time_h[numbers], np.concatenate(self.owner)[numbers], joined.node[numbers]

    def outages(self) -> list[Outage]:
        """Return every outage with its cause, for the record."""
        if not self.failed:
            return []
        joined, known = Failures.joined(self.failed), self.outage_arrays()
        retire_h = np.array([cluster.retire_h for cluster in self.clusters])[known.cluster]
        # Some would have joined after the cluster was gone, or after their node was back.
        rows = np.flatnonzero(known.start_h < np.minimum(known.end_h, retire_h))
        number = np.array(self.failure, dtype=np.int64)[rows]
        index, start_h, end_h = (x[rows] for x in (known.cluster, known.start_h, known.end_h))
        wait_h = np.where(end_h < _NEVER, 0.0, np.maximum(self.worked_h - start_h, 0.0))
        waited = {at: self.wait_h[row] for at, row in enumerate(rows.tolist()) if row in self.wait_h}
        wait_h[list(waited)] = list(waited.values())
        size = np.array([cluster.group_accelerators for cluster in self.clusters])[index]
        columns = (start_h, np.minimum(end_h, retire_h[rows]), index, joined.node[number], known.groups[rows] * size)
        causes = [self.plan.causes[cause].name for cause in joined.cause[number].tolist()]
        severities = [SEVERITIES[severity] for severity in joined.severity[number].tolist()]
        return list(map(Outage, *(column.tolist() for column in columns), causes, severities, wait_h.tolist()))
