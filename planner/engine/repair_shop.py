"""The repair shop: crews shared by all clusters, spares per cluster, and the outages of accelerators.

It works first come, first served with crews that take one node each; a hard fault also needs a part, which may have to
come back from RMA. It stands here twice, with one book of outages. :class:`RepairShop` walks through the failures of a
window in time order: a heap of the crews' free times (Kiefer and Wolfowitz, 1955) tells when a repair begins, and no
event of SimPy is needed for any of them, which saves a third of a replication. :class:`RepairShopProcess` has an event
for each step, so that another process may take a crew or a part in between, or take nodes out of service itself. A test
holds the two together.
"""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.engine.failures import HARD, SEVERITIES, SOFT, Failures
from planner.engine.log import Outage
from planner.plan.parts import ReliabilityPlan
from planner.plan.plan import ClusterPlan

Steps = Generator[simpy.Event, Any, None]
GroupKey = tuple[int, int, int]
"""Cluster, node and group of a node's accelerators."""
_NEVER = float("inf")  # until its repair has begun
DOMAIN = "domain"
PLANNED = "planned"
"""What stands for the severity of a repair where a domain failed, and where nodes are drained for planned work."""


@dataclass(eq=False, slots=True)
class Claim:
    """A cause of downtime for groups of accelerators: a failure until repaired, or a process until done."""

    cause: str
    severity: str
    """Of a failure's repair; :data:`DOMAIN`, :data:`PLANNED`, or empty for what a process took out."""
    cluster: int
    node: int
    group: int = -1
    """-1 where the node is down as a whole, and cannot fail."""
    begin_h: float | None = None
    """When its repair began."""
    failed_h: float = 0.0
    repair_h: float = 0.0
    rows: list[OutageRow] | None = None
    """Outages that end with its repair, where it had to wait or its node was half down."""
    turn: simpy.Event | None = None
    """The crew or part it waits for, where that is an event."""
    over: bool = False


@dataclass(eq=False, slots=True)
class OutageRow:
    """Groups of accelerators that went down together, and the claim that is the cause."""

    claim: Claim
    start_h: float
    end_h: float
    """Infinity where it is not known yet."""
    groups: int


class _Book:
    """The record of every outage and every broken part of a run, common to both repair shops."""

    def __init__(self, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        self.plan = plan
        self.clusters = clusters
        self.causes = [cause.name for cause in plan.causes]
        self.hosted = [cluster.is_hosted for cluster in clusters]
        self.on_site = [0] * len(clusters)
        """Nodes of each cluster that are there, or known to be on their way into service."""
        self.rows: list[OutageRow] = []
        self.broken: list[tuple[float, int, int]] = []
        """When a part broke, in which cluster and node."""

    def now_h(self) -> float:
        """Return the hour up to which the shop has worked."""
        raise NotImplementedError

    @property
    def accelerators(self) -> int:
        """Accelerators on site; hosted machines are repaired by their provider."""
        nodes = zip(self.on_site, self.clusters, strict=True)
        return sum(
            count * cluster.accelerators_per_node
            for count, cluster in nodes
            if not cluster.is_hosted
        )

    def staff(self, cluster: int, service_h: Floats) -> tuple[list[float], list[float]]:
        """Return the hours at which each further crew and spare part is added for nodes entering service, rising.

        Each comes with the node that makes one more needed.
        """
        there = self.on_site[cluster]
        here = self.accelerators
        size = self.clusters[cluster].accelerators_per_node
        mended = 0 if self.hosted[cluster] else size

        def comes(needed: Callable[[int], int]) -> list[float]:
            wanted = range(needed(0) + 1, needed(service_h.size) + 1)
            # Needs rise with nodes, so the node is found by halving: a few steps for each of thousands of nodes.
            return [
                float(service_h[bisect_left(range(1, service_h.size), count, key=needed)])
                for count in wanted
            ]

        self.on_site[cluster] += service_h.size
        return (
            comes(lambda more: self.plan.crews.number(here + more * mended)),
            comes(lambda more: self.plan.spares.number((there + more) * size, there + more)),
        )

    def groups_of(self, cluster: int) -> int:
        """Return the number of accelerator groups on each node of a cluster."""
        return (
            self.clusters[cluster].accelerators_per_node
            // self.clusters[cluster].group_accelerators
        )

    def fail(
        self, cluster: int, time_h: float, node: int, group: int, cause: int, severity: int
    ) -> tuple[Claim, int]:
        """Record a failure; return its claim, and the severity that decides on crews and parts.

        A provider mends its machines itself: none of them waits for a crew or a part of the site's.
        """
        if severity == HARD:
            self.broken.append((time_h, cluster, node))
        claim = Claim(self.causes[cause], SEVERITIES[severity], cluster, node, group)
        return claim, SOFT if self.hosted[cluster] else severity

    def hard_failures(self) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return time, cluster and node of each broken part."""
        times, clusters, nodes = zip(*self.broken, strict=True) if self.broken else ((), (), ())
        return (
            np.array(times, dtype=np.float64),
            np.array(clusters, dtype=np.int64),
            np.array(nodes, dtype=np.int64),
        )

    def outages(self) -> list[Outage]:
        """Return every outage with its cause, with the groups of one claim combined."""
        together: Counter[tuple[Claim, float, float]] = Counter()
        for row in self.rows:
            together[row.claim, row.start_h, row.end_h] += row.groups
        outages = []
        for (claim, start_h, end_h), groups in together.items():
            cluster = self.clusters[claim.cluster]
            # Some would have joined after the cluster was gone, or after their node was back.
            if start_h >= min(end_h, cluster.retire_h):
                continue
            begin_h = min(end_h, self.now_h()) if claim.begin_h is None else claim.begin_h
            place = (claim.cluster, claim.node, groups * cluster.group_accelerators)
            span_h = (start_h, min(end_h, cluster.retire_h))
            wait_h = max(begin_h - start_h, 0.0)
            outages.append(Outage(*span_h, *place, claim.cause, claim.severity, wait_h))
        return outages


class RepairShop(_Book):
    """The repair shop as a fast kernel: processes all failures up to a time in one pass.

    A repair that finds a crew and its part free, as nearly all do, has its end known when it fails. The few others wait
    in two heaps, for a part and for a crew, and begin before the next failure is looked at.
    """

    def __init__(self, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        super().__init__(plan, clusters)
        self.worked_h = 0.0
        self.crews = [0.0] * plan.crews.fixed
        """A heap: when each crew is free."""
        self.spares = [[0.0] * plan.spares.fixed for _ in clusters]
        """A heap a cluster: when each part is in stock; one that is ordered is there from when it comes."""
        self.node_up: list[list[float]] = [[] for _ in clusters]
        """By cluster and node: when it is up again that has been down as a whole."""
        self.group_up: list[list[list[float]]] = [[] for _ in clusters]
        """By cluster, node and group of its accelerators: when it is up again that has been down by itself."""
        self._expected: list[tuple[int, Failures]] = []
        """What is still to fail: cluster, and failures in time order."""
        self._for_parts: list[tuple[float, int, Claim]] = []
        """A heap by when each could begin but for a crew, and by order: the one whose part comes next is first."""
        self._for_crews: list[tuple[float, int, Claim]] = []
        """The same: the one that has been ready longest is first."""
        self._next_h = _NEVER
        """No repair that waits can begin before this; 0 where that is to be found out anew."""
        self._half_down: dict[tuple[int, int], Claim] = {}
        """By cluster and node, what failed it while groups of it were down."""

    def now_h(self) -> float:
        """Return the hour up to which the shop has worked."""
        return self.worked_h

    def admit(self, cluster: int, service_h: Floats) -> int:
        """Add nodes of a cluster that enter service at rising times; return the index of the first."""
        first = len(self.node_up[cluster])
        for heap, times in zip(
            (self.crews, self.spares[cluster]), self.staff(cluster, service_h), strict=True
        ):
            for time_h in times:
                heapq.heappush(heap, time_h)
        self._reserve_anew(cluster)
        self._next_h = 0.0
        self.node_up[cluster] += [0.0] * service_h.size
        self.group_up[cluster] += [[0.0] * self.groups_of(cluster) for _ in range(service_h.size)]
        return first

    def expect(self, cluster: int, failures: Failures) -> None:
        """Add the failures drawn for nodes of a cluster."""
        self._expected.append((cluster, failures.where(np.argsort(failures.time_h, kind="stable"))))

    def work_until(self, end_h: float) -> None:
        """Process all failures before ``end_h`` in chronological order."""
        due = []
        left = []
        for cluster, failures in self._expected:
            end = int(failures.time_h.searchsorted(end_h))
            due += [(*row, cluster) for row in failures.where(slice(end)).rows()]
            if end < failures.time_h.size:
                left.append((cluster, failures.where(slice(end, None))))
        self._expected = left
        for time_h, node, group, cause, severity, repair_h, cluster in sorted(
            due, key=operator.itemgetter(0)
        ):
            if self._next_h < time_h:
                self._begin_until(
                    time_h
                )  # before this failure is looked at: it may find its node back
            until_h = (
                self.group_up[cluster][node] if group < 0 else [self.group_up[cluster][node][group]]
            )
            if self.node_up[cluster][node] > time_h or min(until_h) > time_h:
                continue  # what is down cannot fail again
            claim, needs = self.fail(cluster, time_h, node, group, cause, severity)
            claim.failed_h, claim.repair_h, back_h = time_h, repair_h, time_h + repair_h
            ready_h = time_h
            if needs == HARD:
                # A part from stock, or the next that comes; its replacement is ordered now. Who fails later gets a part
                # that comes later, so the one that comes next can be promised at once.
                stock = self.spares[cluster]
                ready_h = time_h + self.plan.rma_h
                ready_h = max(heapq.heapreplace(stock, ready_h), time_h) if stock else ready_h
            # With a queue a crew may be free, but then it is not this one's turn.
            if needs == SOFT or (
                ready_h <= time_h and not self._for_crews and self.crews[0] <= time_h
            ):
                claim.begin_h = time_h
                if needs != SOFT:
                    heapq.heapreplace(self.crews, back_h)
            else:
                back_h = _NEVER
                queue = self._for_parts if ready_h > time_h else self._for_crews
                heapq.heappush(queue, (ready_h, len(self.rows), claim))
                self._next_h = min(self._next_h, max(ready_h, self.crews[0]))
            if max(until_h) <= time_h:
                rows = [OutageRow(claim, time_h, back_h, len(until_h))]
            else:
                # Groups that are down already join when they would come back; of those that wait themselves that is not
                # known yet, and they join once it is.
                since = sorted(max(time_h, up_h) for up_h in until_h if up_h < _NEVER)
                rows = [OutageRow(claim, start_h, max(back_h, start_h), 1) for start_h in since]
                self._half_down[cluster, node] = claim
                claim.rows = rows
            if claim.begin_h is None:
                claim.rows = rows
            self.rows += rows
            if group < 0:
                self.node_up[cluster][node] = back_h
            else:
                self.group_up[cluster][node][group] = back_h
        self._begin_until(end_h)
        self.worked_h = end_h

    def _reserve_anew(self, cluster: int) -> None:
        """Reassign spare parts to waiting repairs, oldest first, after new spares were added."""
        stock = self.spares[cluster]
        jobs = [entry for entry in self._for_parts if entry[2].cluster == cluster]
        for ready_h, _, _ in jobs:
            heapq.heappush(stock, ready_h)
        oldest_first = sorted(jobs, key=operator.itemgetter(1))
        anew = [
            (max(heapq.heappop(stock), claim.failed_h), order, claim)
            for _, order, claim in oldest_first
        ]
        self._for_parts = [entry for entry in self._for_parts if entry[2].cluster != cluster] + anew
        heapq.heapify(self._for_parts)

    def _begin_until(self, end_h: float) -> None:
        """Start the repairs that have a part and a crew before ``end_h``, in queue order.

        Parts first: whoever gets one joins the queue for crews with the time at which it came, and that queue is kept
        by these times, so a part that comes later never goes before one that came sooner.
        """
        parts = self._for_parts
        queue = self._for_crews
        crews = self.crews
        while parts and parts[0][0] < end_h:
            if queue or crews[0] > parts[0][0]:
                heapq.heappush(queue, heapq.heappop(parts))
            else:
                ready_h, _, claim = heapq.heappop(parts)
                self._begin(claim, ready_h)
        while queue and (begin_h := max(crews[0], queue[0][0])) < end_h:
            self._begin(heapq.heappop(queue)[2], begin_h)
        self._next_h = min(
            (max(heap[0][0], crews[0]) for heap in (parts, queue) if heap), default=_NEVER
        )

    def _begin(self, claim: Claim, begin_h: float) -> None:
        """Start a waiting repair and set the end of its outages."""
        back_h = begin_h + claim.repair_h
        (cluster, node) = (claim.cluster, claim.node)
        claim.begin_h = begin_h
        heapq.heapreplace(self.crews, back_h)
        assert claim.rows is not None
        for row in claim.rows:
            row.end_h = max(back_h, row.start_h)
        if claim.group < 0:
            self.node_up[cluster][node] = back_h
            return
        self.group_up[cluster][node][claim.group] = back_h
        if (
            self.node_up[cluster][node] > back_h
        ):  # the node failed meanwhile, takes longer, and keeps the group down
            outage = self._half_down[cluster, node]
            self.rows.append(OutageRow(outage, back_h, self.node_up[cluster][node], 1))
            assert outage.rows is not None
            outage.rows.append(self.rows[-1])

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:
        """Remove the failures and outages of nodes that retire, and the crews no longer needed."""

        def leaves(claim: Claim) -> bool:
            return claim.cluster == cluster and first <= claim.node < last

        self.on_site[cluster] -= last - first
        for _ in range(len(self.crews) - max(1, self.plan.crews.number(self.accelerators))):
            heapq.heappop(self.crews)  # the one with least to do
        self._expected = [
            (
                c,
                failures
                if c != cluster
                else failures.where((failures.node < first) | (failures.node >= last)),
            )
            for c, failures in self._expected
        ]
        for row in self.rows:
            if leaves(row.claim) and row.end_h > now_h:
                row.end_h = max(now_h, row.start_h)
        for ready_h, _, claim in [*self._for_parts, *self._for_crews]:
            if leaves(claim) and ready_h > now_h:
                heapq.heappush(
                    self.spares[cluster], ready_h
                )  # the part it was promised is another's now
        self._for_parts = [entry for entry in self._for_parts if not leaves(entry[2])]
        self._for_crews = [entry for entry in self._for_crews if not leaves(entry[2])]
        heapq.heapify(self._for_crews)
        self._reserve_anew(cluster)
        self._next_h = 0.0


class Pool:
    """A pool of crews or parts: ``yield pool.take()`` waits in turn, ``pool.give()`` returns one."""

    def __init__(self, env: simpy.Environment, free: int) -> None:
        self.env = env
        self.free = free
        self.leaving = 0
        """How many of those at work go for good when they are done."""
        self.waiting: deque[simpy.Event] = deque()

    def take(self) -> simpy.Event:
        """Return an event that fires when one is free and taken."""
        turn = self.env.event()
        if self.free:
            self.free -= 1
            turn.succeed()
        else:
            self.waiting.append(turn)
        return turn

    def give(self) -> None:
        """Pass one to the longest-waiting request, or return it to the pool."""
        if self.leaving:
            self.leaving -= 1
        elif self.waiting:
            self.waiting.popleft().succeed()
        else:
            self.free += 1

    def leave(self, count: int) -> None:
        """Remove some for good: free ones now, others when they are returned."""
        now = min(count, self.free)
        self.free -= now
        self.leaving += count - now


class RepairShopProcess(_Book):
    """The repair shop in SimPy: crews and parts that other processes of a run can wait for."""

    def __init__(
        self, env: simpy.Environment, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]
    ) -> None:
        super().__init__(plan, clusters)
        self.env = env
        self.crews = Pool(env, plan.crews.fixed)
        self.spares = [Pool(env, plan.spares.fixed) for _ in clusters]
        self.service_h: list[list[float]] = [[] for _ in clusters]
        """When each node of a cluster enters service."""
        self.entered_h: list[list[float]] = [[] for _ in clusters]
        """The same in order."""
        self.retired = [0] * len(clusters)
        """Nodes that have left for good: those with the lowest numbers."""
        self.held: dict[GroupKey, list[Claim]] = {}
        """Who keeps a group of accelerators down, the first of whom its outage is put down to."""
        self.open: dict[GroupKey, OutageRow] = {}
        """That outage."""
        self.whole_down: Counter[tuple[int, int]] = Counter()
        self.claims: Counter[tuple[int, int]] = Counter()
        """Claims on each node."""
        self.nodes_down = [0] * len(clusters)
        """Nodes of each cluster on which there is one."""
        self.back = [env.event() for _ in clusters]
        """What happens when the next node of a cluster comes back."""

    def now_h(self) -> float:
        """Return the current hour."""
        return float(self.env.now)

    def admit(self, cluster: int, service_h: Floats) -> int:
        """Add nodes of a cluster that enter service at rising times; return the index of the first."""
        first = len(self.service_h[cluster])
        for pool, times in zip(
            (self.crews, self.spares[cluster]), self.staff(cluster, service_h), strict=True
        ):
            for time_h in times:
                self.env.process(self._give_at(pool, time_h - self.env.now))
        self.service_h[cluster] += service_h.tolist()
        self.entered_h[cluster] = sorted(self.service_h[cluster])
        return first

    def _give_at(self, pool: Pool, after_h: float) -> Steps:
        """Add a crew or a part after some hours."""
        if after_h > 0:
            yield self.env.timeout(after_h)
        pool.give()

    def expect(self, cluster: int, failures: Failures) -> None:
        """Schedule the failures drawn for nodes of a cluster."""
        self.env.process(
            self._fail(cluster, failures.where(np.argsort(failures.time_h, kind="stable")))
        )

    def work_until(self, end_h: float) -> None:
        """Do nothing, since the shop runs on the simulation's clock."""

    def _fail(self, cluster: int, failures: Failures) -> Steps:
        for time_h, node, group, cause, severity, repair_h in failures.rows():
            yield self.env.timeout(
                max(0.0, time_h - self.env.now)
            )  # two may come at once, but for rounding
            keys = self._keys(cluster, node, group)
            if (
                node < self.retired[cluster]
                or self.whole_down[cluster, node]
                or all(map(self.held.get, keys))
            ):
                continue  # what is down cannot fail again
            claim, needs = self.fail(cluster, self.now_h(), node, group, cause, severity)
            self._claim(claim, keys)
            self.env.process(self._repair(claim, keys, needs, repair_h))

    def _keys(self, cluster: int, node: int, group: int = -1) -> list[GroupKey]:
        return [
            (cluster, node, member)
            for member in (range(self.groups_of(cluster)) if group < 0 else [group])
        ]

    def _repair(self, claim: Claim, keys: list[GroupKey], severity: int, repair_h: float) -> Steps:
        """Wait for a part and a crew where needed, then repair."""
        if severity == HARD:
            claim.turn = self.take_spare(claim.cluster)
            yield claim.turn
        if severity != SOFT:
            claim.turn = self.crews.take()
            yield claim.turn
        claim.begin_h = self.now_h()
        yield self.env.timeout(repair_h)
        if severity != SOFT:
            self.crews.give()
        self._release(claim, keys)

    def take_spare(self, cluster: int) -> simpy.Event:
        """Return an event that fires when a part is available; a replacement is ordered at once."""
        self.env.process(self._give_at(self.spares[cluster], self.plan.rma_h))
        return self.spares[cluster].take()

    def _claim(self, claim: Claim, keys: Sequence[GroupKey]) -> None:
        """Add a claim to groups; its outage starts when earlier claims on them have ended."""
        self.whole_down[claim.cluster, claim.node] += claim.group < 0
        self.claims[claim.cluster, claim.node] += 1
        self.nodes_down[claim.cluster] += self.claims[claim.cluster, claim.node] == 1
        for key in keys:
            self.held.setdefault(key, []).append(claim)
            if self.held[key] == [claim]:
                self._open(key)

    def _open(self, key: GroupKey) -> None:
        self.open[key] = OutageRow(self.held[key][0], self.now_h(), _NEVER, 1)
        self.rows.append(self.open[key])

    def _release(self, claim: Claim, keys: Sequence[GroupKey]) -> None:
        """End a claim on groups; they return to service unless another claim is open."""
        if claim.over:
            return  # its node has left for good
        claim.over = True
        self.whole_down[claim.cluster, claim.node] -= claim.group < 0
        for key in keys:
            self.held[key].remove(claim)
            if self.open[key].claim is claim:
                self.open[key].end_h = self.now_h()
                if self.held[key]:
                    self._open(key)
        self.claims[claim.cluster, claim.node] -= 1
        if not self.claims[claim.cluster, claim.node]:
            self.nodes_down[claim.cluster] -= 1
            if self.back[claim.cluster].callbacks:  # somebody waits for it
                self.back[claim.cluster].succeed()
                self.back[claim.cluster] = self.env.event()

    def hold(self, cluster: int, node: int, cause: str, severity: str = "") -> Claim:
        """Take a node out of service until :meth:`release`; it does not fail meanwhile."""
        claim = Claim(cause, severity, cluster, node, begin_h=self.now_h())
        self._claim(claim, self._keys(cluster, node))
        return claim

    def release(self, claim: Claim) -> None:
        """Return a node to service; one that also failed stays down until it is repaired."""
        self._release(claim, self._keys(claim.cluster, claim.node))

    def nodes(self, cluster: int) -> list[int]:
        """Return the nodes of a cluster that have entered service and are not retired, down or not."""
        now_h = self.env.now
        retired = self.retired[cluster]
        return [
            node
            for node, time_h in enumerate(self.service_h[cluster])
            if time_h <= now_h and node >= retired
        ]

    def count(self, cluster: int) -> int:
        """Return the number of nodes of a cluster on site, down or not."""
        return bisect_right(self.entered_h[cluster], self.env.now) - self.retired[cluster]

    def is_there(self, cluster: int, node: int) -> bool:
        """Return whether a node of a cluster is on site."""
        service_h = self.service_h[cluster]
        return self.retired[cluster] <= node < len(service_h) and service_h[node] <= self.env.now

    def up(self, cluster: int) -> list[int]:
        """Return the nodes of a cluster with no accelerator down."""
        return [node for node in self.nodes(cluster) if not self.claims[cluster, node]]

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:  # noqa: ARG002 - as the kernel's
        """End the outages of nodes that retire, remove them from queues, and release crews no longer needed."""
        before = self.plan.crews.number(self.accelerators)
        self.on_site[cluster] -= last - first
        self.crews.leave(before - max(1, self.plan.crews.number(self.accelerators)))
        self.retired[cluster] = last
        for node in range(first, last):
            keys = [key for key in self._keys(cluster, node) if key in self.held]
            for claim in dict.fromkeys(claim for key in keys for claim in self.held[key]):
                for pool in (self.crews, self.spares[cluster]):
                    if claim.turn is not None and claim.turn in pool.waiting:
                        pool.waiting.remove(claim.turn)
                self._release(claim, [key for key in keys if claim in self.held[key]])
