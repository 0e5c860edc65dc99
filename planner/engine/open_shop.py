"""The repair shop in SimPy: crews and parts that other processes of a run can ask for and wait on.

It mends the same failures as :class:`planner.engine.repair_shop.RepairShop` in the same order, with an event for
each step, so that a process may take a crew or a part in between, or take nodes out of service itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.engine.failures import HARD, SEVERITIES, SOFT, Failures
from planner.engine.log import Outage
from planner.engine.repair_shop import Outages
from planner.engine.staffing import Staffing
from planner.plan.plan import ClusterPlan
from planner.plan.reliability_plan import ReliabilityPlan

Steps = Generator[simpy.Event, Any, None]
GroupKey = tuple[int, int, int]
"""Cluster, node and group of a node's accelerators."""
_OPEN = float("inf")
DOMAIN, PLANNED = "domain", "planned"
"""What stands for the severity of a repair where a domain failed, and where nodes are drained for planned work."""


class Pool:
    """Crews or parts: whoever asks waits in turn, ``yield pool.take()``, and gives back with ``pool.give()``."""

    def __init__(self, env: simpy.Environment, free: int) -> None:
        self.env = env
        self.free = free
        self.leaving = 0
        """How many of those at work go for good when they are done."""
        self.waiting: deque[simpy.Event] = deque()

    def take(self) -> simpy.Event:
        """Return an event that happens when one is free; it is then taken."""
        turn = self.env.event()
        if self.free:
            self.free -= 1
            turn.succeed()
        else:
            self.waiting.append(turn)
        return turn

    def give(self) -> None:
        """Hand one to whoever waits longest, or put it back."""
        if self.leaving:
            self.leaving -= 1
        elif self.waiting:
            self.waiting.popleft().succeed()
        else:
            self.free += 1

    def leave(self, count: int) -> None:
        """Let some go for good: those that are free now, and others when they are done."""
        now = min(count, self.free)
        self.free -= now
        self.leaving += count - now


@dataclass(eq=False, slots=True)
class Claim:
    """What keeps groups of accelerators down: a failure until it is repaired, or a process until it is done."""

    cause: str
    severity: str
    """Of a failure's repair; :data:`DOMAIN`, :data:`PLANNED`, or empty for what a process took out."""
    cluster: int
    node: int
    whole_node: bool
    """Whether the node is down as a whole, and cannot fail."""
    turn: simpy.Event | None = None
    """The crew or part it waits for."""
    begin_h: float | None = None
    """When its repair began."""
    over: bool = False


@dataclass(eq=False, slots=True)
class _Group:
    """A group of accelerators, and who keeps it down, the first of whom its outage is put down to."""

    claims: list[Claim] = field(default_factory=list)
    row: int = -1


class OpenShop:
    """Crews shared by all clusters and spares kept per cluster, as events; which accelerators are down, and why."""

    def __init__(self, env: simpy.Environment, plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...]) -> None:
        self.env = env
        self.plan = plan
        self.clusters = clusters
        self.staff = Staffing(plan, clusters)
        self.crews = Pool(env, plan.crews.fixed)
        self.spares = [Pool(env, plan.spares.fixed) for _ in clusters]
        self.service_h: list[list[float]] = [[] for _ in clusters]
        """When each node of a cluster enters service."""
        self.entered_h: list[list[float]] = [[] for _ in clusters]
        """The same in order."""
        self.retired = [0] * len(clusters)
        """Nodes that have left for good: those with the lowest numbers."""
        self.groups: dict[GroupKey, _Group] = {}
        self.whole_down: Counter[tuple[int, int]] = Counter()
        self.claims: Counter[tuple[int, int]] = Counter()
        """Claims on each node."""
        self.nodes_down = [0] * len(clusters)
        """Nodes of each cluster on which there is one."""
        self._back = [env.event() for _ in clusters]
        """What happens when the next node of a cluster comes back."""
        self.rows: list[tuple[Claim, float, float]] = []
        """Every outage of a group: who keeps it down, from when, until when."""
        self.broken: list[tuple[float, int, int]] = []
        """When a part broke, in which cluster and node."""

    def admit(self, cluster: int, service_h: Floats) -> int:
        """Take in nodes of a cluster that enter service at these times, rising; return the index of the first."""
        first = len(self.service_h[cluster])
        for pool, times in (
            (self.crews, self.staff.crews_from(cluster, service_h)),
            (self.spares[cluster], self.staff.spares_from(cluster, service_h)),
        ):
            for time_h in times:
                self.env.process(self._give_at(pool, time_h - self.env.now))
        self.service_h[cluster] += service_h.tolist()
        self.entered_h[cluster] = sorted(self.service_h[cluster])
        self.staff.on_site[cluster] += service_h.size
        return first

    def _give_at(self, pool: Pool, after_h: float) -> Steps:
        """Add a crew or a part after some hours."""
        if after_h > 0:
            yield self.env.timeout(after_h)
        pool.give()

    def expect(self, cluster: int, failures: Failures) -> None:
        """Let failures drawn for nodes of a cluster happen at their times."""
        self.env.process(self._fail(cluster, failures.where(np.argsort(failures.time_h, kind="stable"))))

    def work_until(self, end_h: float) -> None:
        """Do nothing: the clock of the run is this shop's too."""

    def _fail(self, cluster: int, failures: Failures) -> Steps:
        columns = (failures.time_h, failures.node, failures.group, failures.cause, failures.severity, failures.repair_h)
        for time_h, node, group, cause, severity, repair_h in zip(*(c.tolist() for c in columns), strict=True):
            yield self.env.timeout(time_h - self.env.now)
            keys = self._keys(cluster, node, group)
            if node < self.retired[cluster] or self.whole_down[cluster, node] or all(self._is_down(k) for k in keys):
                continue  # what is down cannot fail again
            claim = Claim(self.plan.causes[cause].name, SEVERITIES[severity], cluster, node, whole_node=group < 0)
            self._claim(claim, keys)
            if severity == HARD:
                self.broken.append((float(self.env.now), cluster, node))
            # A provider mends its machines itself: none of them waits for a crew or a part of the site's.
            needs = SOFT if self.clusters[cluster].is_hosted else severity
            self.env.process(self._repair(claim, keys, needs, repair_h))

    def _keys(self, cluster: int, node: int, group: int = -1) -> list[GroupKey]:
        per_node = self.clusters[cluster].accelerators_per_node // self.clusters[cluster].group_accelerators
        return [(cluster, node, member) for member in (range(per_node) if group < 0 else [group])]

    def _is_down(self, key: GroupKey) -> bool:
        return key in self.groups and bool(self.groups[key].claims)

    def _repair(self, claim: Claim, keys: list[GroupKey], severity: int, repair_h: float) -> Steps:
        """Wait for a part and a crew where they are needed, and mend."""
        if severity == HARD:
            claim.turn = self.take_spare(claim.cluster)
            yield claim.turn
        if severity != SOFT:
            claim.turn = self.crews.take()
            yield claim.turn
        claim.begin_h = float(self.env.now)
        yield self.env.timeout(repair_h)
        if severity != SOFT:
            self.crews.give()
        self._release(claim, keys)

    def take_spare(self, cluster: int) -> simpy.Event:
        """Return an event that happens when a part is there; its replacement is ordered at once."""
        self.env.process(self._give_at(self.spares[cluster], self.plan.rma_h))
        return self.spares[cluster].take()

    def _claim(self, claim: Claim, keys: Sequence[GroupKey]) -> None:
        """Keep groups down; an outage counts from when those who came before are done."""
        self.whole_down[claim.cluster, claim.node] += claim.whole_node
        self.claims[claim.cluster, claim.node] += 1
        self.nodes_down[claim.cluster] += self.claims[claim.cluster, claim.node] == 1
        for key in keys:
            group = self.groups.setdefault(key, _Group())
            group.claims.append(claim)
            if len(group.claims) == 1:
                self._open(group)

    def _open(self, group: _Group) -> None:
        group.row = len(self.rows)
        self.rows.append((group.claims[0], float(self.env.now), _OPEN))

    def _release(self, claim: Claim, keys: Sequence[GroupKey]) -> None:
        """Let groups come back, unless another claim keeps them down."""
        if claim.over:
            return  # its node has left for good
        claim.over = True
        self.whole_down[claim.cluster, claim.node] -= claim.whole_node
        for key in keys:
            group = self.groups[key]
            carries = group.claims[0] is claim
            group.claims.remove(claim)
            if carries:
                self.rows[group.row] = (*self.rows[group.row][:2], float(self.env.now))
                if group.claims:
                    self._open(group)
        self.claims[claim.cluster, claim.node] -= 1
        if not self.claims[claim.cluster, claim.node]:
            self.nodes_down[claim.cluster] -= 1
            if self._back[claim.cluster].callbacks:  # somebody waits for it
                self._back[claim.cluster].succeed()
                self._back[claim.cluster] = self.env.event()

    def next_back(self, cluster: int) -> simpy.Event:
        """Return an event that happens when a node of a cluster comes back."""
        return self._back[cluster]

    def hold(self, cluster: int, node: int, cause: str, severity: str = "") -> Claim:
        """Take a node out of service until :meth:`release`; it does not fail meanwhile."""
        claim = Claim(cause, severity, cluster, node, whole_node=True, begin_h=float(self.env.now))
        self._claim(claim, self._keys(cluster, node))
        return claim

    def release(self, claim: Claim) -> None:
        """Bring a node back that was held; one that is also broken stays down until it is repaired."""
        self._release(claim, self._keys(claim.cluster, claim.node))

    def nodes(self, cluster: int) -> list[int]:
        """Return the nodes of a cluster that have entered service and are still there, down or not."""
        now_h, retired = self.env.now, self.retired[cluster]
        return [node for node, time_h in enumerate(self.service_h[cluster]) if time_h <= now_h and node >= retired]

    def count(self, cluster: int) -> int:
        """Return how many they are."""
        return bisect_right(self.entered_h[cluster], self.env.now) - self.retired[cluster]

    def is_there(self, cluster: int, node: int) -> bool:
        """Say whether a node is among them."""
        service_h = self.service_h[cluster]
        return self.retired[cluster] <= node < len(service_h) and service_h[node] <= self.env.now

    def up(self, cluster: int) -> list[int]:
        """Return those of which nothing is down."""
        return [node for node in self.nodes(cluster) if not self.claims[cluster, node]]

    def drop(self, cluster: int, first: int, last: int, now_h: float) -> None:  # noqa: ARG002 - as the kernel's
        """End what keeps nodes down that leave for good, and its place in any queue; crews that they needed go too."""
        before = self.staff.crews()
        self.staff.on_site[cluster] -= last - first
        self.crews.leave(before - max(1, self.staff.crews()))
        self.retired[cluster] = last
        pools = (self.crews, self.spares[cluster])
        for node in range(first, last):
            keys = self._keys(cluster, node)
            claims = {id(c): c for key in keys if key in self.groups for c in self.groups[key].claims}
            for claim in claims.values():
                for pool in pools:
                    if claim.turn is not None and claim.turn in pool.waiting:
                        pool.waiting.remove(claim.turn)
                self._release(claim, [key for key in keys if key in self.groups and claim in self.groups[key].claims])

    @property
    def outage_count(self) -> int:
        """Return how many outages of groups there have been so far."""
        return len(self.rows)

    def outage_arrays(self, some: Sequence[int] = (), since: int = 0) -> Outages:
        """Return some outages of groups, and all from one on."""
        rows = [*(self.rows[row] for row in some), *self.rows[since:]]
        return Outages(
            cluster=np.array([claim.cluster for claim, _, _ in rows], dtype=np.int64),
            groups=np.ones(len(rows), dtype=np.int64),
            start_h=np.array([start_h for _, start_h, _ in rows], dtype=np.float64),
            end_h=np.array([end_h for _, _, end_h in rows], dtype=np.float64),
        )

    def hard_failures(self) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return when a part broke, in which cluster and in which of its nodes."""
        times, clusters, nodes = zip(*self.broken, strict=True) if self.broken else ((), (), ())
        return np.array(times, dtype=np.float64), np.array(clusters, dtype=np.int64), np.array(nodes, dtype=np.int64)

    def outages(self) -> list[Outage]:
        """Return every outage with its cause, groups that one claim took at once together."""
        together: Counter[tuple[Claim, float, float]] = Counter(self.rows)
        outages = []
        for (claim, start_h, end_h), groups in together.items():
            cluster = self.clusters[claim.cluster]
            if start_h >= min(end_h, cluster.retire_h):
                continue
            begin_h = min(end_h, float(self.env.now)) if claim.begin_h is None else claim.begin_h
            outages.append(
                Outage(
                    start_h=start_h,
                    end_h=min(end_h, cluster.retire_h),
                    cluster=claim.cluster,
                    node=claim.node,
                    accelerators=groups * cluster.group_accelerators,
                    cause=claim.cause,
                    severity=claim.severity,
                    wait_h=max(begin_h - start_h, 0.0),
                )
            )
        return outages
