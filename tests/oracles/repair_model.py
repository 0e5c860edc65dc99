"""The repair shop as a textbook SimPy model: one process a failure, crews a resource, parts a store."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import simpy

from planner.engine.failures import HARD, SOFT, Failures
from planner.plan.plan import ClusterPlan
from planner.plan.reliability import ReliabilityPlan

Steps = Generator[simpy.Event, Any, None]


class Loss(NamedTuple):
    """One group of accelerators out of service."""

    cluster: int
    node: int
    start_h: float
    end_h: float
    wait_h: float


@dataclass(eq=False)
class Claim:
    """A failure that keeps a group down, until it is repaired."""

    over: simpy.Event
    ended_h: float | None = None


@dataclass(eq=False)
class Group:
    """Accelerators that fail together."""

    claims: list[Claim] = field(default_factory=list)

    @property
    def is_down(self) -> bool:
        return bool(self.claims)


class RepairModel:
    """Crews shared by all clusters; parts per cluster, each used one replaced after the RMA time."""

    def __init__(self, plan: ReliabilityPlan, clusters: Sequence[ClusterPlan]) -> None:
        self.plan = plan
        self.env = simpy.Environment()
        self.crews = simpy.Resource(self.env, capacity=plan.crews.fixed)
        self.stocks = []
        for cluster in clusters:
            spares = plan.spares.number(
                cluster.nodes * cluster.accelerators_per_node, cluster.nodes
            )
            self.stocks.append(simpy.Container(self.env, init=spares))
        self.per_node = [
            cluster.accelerators_per_node // cluster.group_accelerators for cluster in clusters
        ]
        self.groups: dict[tuple[int, int, int], Group] = {}
        self.nodes_down: set[tuple[int, int]] = set()
        """Nodes that are down as a whole."""
        self.losses: list[Loss] = []

    def run(self, drawn: Sequence[Failures]) -> list[Loss]:
        """Let everything happen that was drawn; return what it cost, longest-standing first."""
        for cluster, failures in enumerate(drawn):
            for index in range(failures.time_h.size):
                self.env.process(self._failure(cluster, failures, index))
        self.env.run()
        return sorted(loss for loss in self.losses if loss.end_h > loss.start_h)

    def _members(self, cluster: int, node: int, group: int) -> list[Group]:
        chosen = range(self.per_node[cluster]) if group < 0 else [group]
        return [self.groups.setdefault((cluster, node, member), Group()) for member in chosen]

    def _failure(self, cluster: int, failures: Failures, index: int) -> Steps:
        yield self.env.timeout(float(failures.time_h[index]))
        node = int(failures.node[index])
        severity = int(failures.severity[index])
        whole = failures.group[index] < 0
        members = self._members(cluster, node, int(failures.group[index]))
        if (cluster, node) in self.nodes_down or all(member.is_down for member in members):
            return  # what is down cannot fail again
        if whole:
            self.nodes_down.add((cluster, node))
        struck_h = self.env.now
        claim = Claim(over=self.env.event())
        if severity == HARD:
            self.env.process(self._replace(cluster))
            part = self.stocks[cluster].get(1)
        for member in members:
            self.env.process(self._keep_down(member, claim, (cluster, node, struck_h)))
        if severity == HARD:
            yield part
        begin_h = self.env.now
        if severity == SOFT:
            yield self.env.timeout(float(failures.repair_h[index]))
        else:
            with self.crews.request() as turn:
                yield turn
                begin_h = self.env.now
                yield self.env.timeout(float(failures.repair_h[index]))
        claim.ended_h = self.env.now
        if whole:
            self.nodes_down.remove((cluster, node))
        claim.over.succeed(begin_h)

    def _replace(self, cluster: int) -> Steps:
        yield self.env.timeout(self.plan.rma_h)
        yield self.stocks[cluster].put(1)

    def _keep_down(self, group: Group, claim: Claim, struck: tuple[int, int, float]) -> Steps:
        """Hold a group down; the outage counts from when earlier claims on it are over."""
        cluster, node, struck_h = struck
        earlier = list(group.claims)
        group.claims.append(claim)
        begin_h = yield claim.over
        group.claims.remove(claim)
        ends_h = [before.ended_h for before in earlier]
        start_h = max([struck_h, *(math.inf if end_h is None else end_h for end_h in ends_h)])
        self.losses.append(Loss(cluster, node, start_h, float(self.env.now), begin_h - struck_h))
