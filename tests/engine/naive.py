"""The hours of a window walked one by one, each a linear program of another library: what the arrays should say."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from planner.engine.hourly import WindowInput, WindowResult
from planner.plan.plan import Plan
from planner.plan.site import allowed_it_kw

Floats = NDArray[np.float64]


@dataclass
class Hour:
    """What one hour came to, by workload."""

    served: dict[int, float] = field(default_factory=dict)
    shed: dict[int, float] = field(default_factory=dict)


@dataclass
class Program:
    """One hour's linear program: node-equivalents by cluster and workload, and by cluster and step of power."""

    plan: Plan
    nodes: Floats
    rates: Floats
    """Requests per node and hour, shape (clusters, workloads); 0 where it cannot serve."""
    allowed_kw: float | None

    def most(
        self, asked: dict[int, float], level: list[int], targeted: dict[int, float]
    ) -> dict[int, float]:
        """Return the requests served of each workload when a level's tokens are maximised and others are promised.

        Unknown are the share of each workload that each cluster serves and the share of each step of power that is
        used, and every row is divided by its limit: the library's tolerance is absolute.
        """
        clusters, workloads = self.rates.shape
        frontiers = [cluster.node_power.frontier() for cluster in self.plan.clusters]
        steps = len(frontiers[0][0]) if self.allowed_kw is not None else 0
        tokens = np.array([workload.tokens_per_request[0] for workload in self.plan.workloads])
        requests = np.array([asked.get(w, 0.0) for w in range(workloads)])
        worth = np.where(np.isin(np.arange(workloads), level), requests * tokens, 0.0)
        able = (self.rates > 0) & (requests > 0) & (self.nodes > 0)[:, None]
        taken = requests / np.where(
            able, self.rates * self.nodes[:, None], np.inf
        )  # of a cluster's nodes, for all
        size = clusters * workloads
        rows: list[Floats] = []
        limits: list[float] = []
        for c in range(clusters):
            row = np.zeros(size + clusters * steps)
            row[c * workloads : (c + 1) * workloads] = taken[c]
            if steps:  # work on a cluster is the sum of its steps
                row[size + c * steps : size + (c + 1) * steps] = -np.diff(
                    frontiers[c][0], prepend=0.0
                )
            rows.append(row)
            limits.append(0.0 if steps else 1.0)
        for w in asked:
            row = np.zeros(size + clusters * steps)
            row[w:size:workloads] = 1.0
            rows.append(row)
            limits.append(1.0)
            if w in targeted and requests[w] > 0:
                # What was promised to the levels before may be short by the tolerance of the library.
                rows.append(-row)
                limits.append(
                    -(targeted[w] - 2e-7 * float(self.nodes @ self.rates[:, w])) / requests[w]
                )
        bounds = [(0.0, 1.0 if serves else 0.0) for serves in able.ravel()] + [(0.0, 1.0)] * (
            clusters * steps
        )
        if steps:
            kw = np.zeros(size)
            for c, (_, power) in enumerate(frontiers):
                kw = np.append(kw, np.diff(power, prepend=0.0) * self.nodes[c])
            rows.append(kw / max(self.allowed_kw or 0.0, 1e-9))
            limits.append(1.0 if self.allowed_kw else 0.0)
        cost = -np.append(
            np.tile(worth / max(worth.max(), 1e-9), clusters), np.zeros(clusters * steps)
        )
        found = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=bounds)
        assert found.x is not None, found.message
        shares = found.x[:size].reshape(clusters, workloads).sum(axis=0)
        return {w: float(requests[w] * shares[w]) for w in asked}


class Naive:
    """A site, hour by hour; backlogs are queues of (hour of arrival, requests)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.queues: list[deque[list[float]]] = [deque() for _ in plan.workloads]

    def run(self, window: WindowInput) -> list[Hour]:
        return [self.hour(window, h) for h in range(window.nodes.shape[1])]

    def hour(self, window: WindowInput, h: int) -> Hour:
        plan = self.plan
        out = Hour()
        rates = np.zeros((len(plan.clusters), len(plan.workloads)))
        for w, workload in enumerate(plan.workloads):
            for c in workload.cluster_order:
                speed = float(window.speed[c, w][h]) if (c, w) in window.speed else 1.0
                rates[c, w] = plan.requests_per_node_h[c, w, 0] * speed
        allowed = None
        if plan.site.cap_kw is not None:
            now = np.array([window.first_hour + h])
            allowed = float(allowed_it_kw(plan, plan.site.cap_kw[now], now)[0])
        program = Program(plan, window.nodes[:, h], rates, allowed)
        asked: dict[int, float] = {}
        targeted: dict[int, float] = {}
        urgent = [w for w in plan.by_priority if not plan.workloads[w].deadline_h]
        for priority in sorted({plan.workloads[w].priority for w in urgent}):
            level = [w for w in urgent if plan.workloads[w].priority == priority]
            lit = 1.0 if window.lit_fraction is None else float(window.lit_fraction[h])
            asked |= {w: float(window.demand_requests[w, h]) * lit for w in level}
            served = program.most(asked, level, targeted)
            targeted |= {w: served[w] for w in level}
        for w in urgent:
            out.served[w] = targeted[w]
            out.shed[w] = float(window.demand_requests[w, h]) - targeted[w]
        for w in plan.by_priority[len(urgent) :]:
            queue = self.queues[w]
            queue.append([window.first_hour + h, float(window.demand_requests[w, h])])
            asked[w] = sum(requests for _, requests in queue)
            targeted[w] = program.most(asked, [w], targeted)[w]
            self.take(out, w, window.first_hour + h, targeted[w])
        return out

    def take(self, out: Hour, w: int, now: int, served: float) -> None:
        """Serve a queue first come, first served, and drop what has waited too long."""
        queue = self.queues[w]
        out.served[w] = served
        out.shed[w] = 0.0
        while queue and served > 0:
            part = min(served, queue[0][1])
            queue[0][1] -= part
            served -= part
            if queue[0][1] > 0:
                break
            queue.popleft()
        while queue and now - queue[0][0] >= self.plan.workloads[w].deadline_h:
            out.shed[w] += queue.popleft()[1]


TOLERANCE = 1e-5
"""Share of the site: programs may be short by 2e-7 in each level and hour, and what waits adds its hours up."""


def assert_same(naive: Naive, hours: list[Hour], result: WindowResult, scale: float) -> None:
    """Hold a walked window against an evaluated one; requests to a share of ``scale``."""
    for h, hour in enumerate(hours):
        for w, served in hour.served.items():
            assert abs(result.served_requests[:, w, h].sum() - served) <= TOLERANCE * scale, (h, w)
            assert abs(result.shed_requests[w, h] - hour.shed[w]) <= TOLERANCE * scale, (h, w)
    for queue, waiting in zip(naive.queues, result.waiting_requests, strict=True):
        assert abs(
            sum(requests for _, requests in queue) - waiting.sum()
        ) <= TOLERANCE * scale * len(hours)
