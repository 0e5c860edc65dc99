"""The hours of a window walked one by one, each a linear program of another library: what the arrays should say."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from planner.engine.hourly import WindowInput, WindowResult
from planner.plan.plan import Plan
from planner.plan.site import allowed_it_kw

Floats = NDArray[np.float64]
SLACK = 2e-7
"""By how much what is settled may be short: twice the other library's tolerance."""
PRICED = 1e-6
"""Of the common share: a workload that costs more of it is held by a limit."""


class Oracle:
    """One hour, program after program, each holding what those before it settled."""

    def __init__(
        self, limits: Floats, sizes: Floats, served: Floats, demand: Floats, highest: Floats
    ) -> None:
        """Start with nothing settled: columns up to their highest, that take of sizes and serve demand."""
        self.served = served
        self.demand = demand
        self.rows = [np.append(row, 0.0) for row in limits]
        self.bounds = sizes.tolist()
        self.box = [(0.0, most) for most in (*highest, 1.0)]
        self.shares: dict[int, float] = {}
        self.slack = SLACK

    def least(self, cost: Floats, rows: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the columns of least cost, the last a common share, and the prices of further rows that bound it."""
        bounds = [*self.bounds, *np.zeros(len(rows))]
        matrix = np.array([*self.rows, *rows])
        found = linprog(cost, A_ub=matrix, b_ub=bounds, bounds=self.box)
        assert found.x is not None, found.message
        return np.asarray(found.x), -np.asarray(found.ineqlin.marginals)[len(self.bounds) :]

    def level(self, workloads: list[int]) -> None:
        """Settle the shares of a rank: the lowest as high as can be, then the next lowest, and so on."""
        self.shares |= {w: 1.0 for w in workloads if self.demand[w] <= 0.0}
        while rising := [w for w in workloads if w not in self.shares]:
            rows = [np.append(-self.served[w], self.demand[w]) for w in rising]
            plan, prices = self.least(-np.eye(1, len(self.box), len(self.box) - 1)[0], rows)
            # The prices sum to 1, or to nothing where all are served.
            priced = [w for w, price in zip(rising, prices, strict=True) if price > PRICED]
            for w in priced or rising:
                self.shares[w] = float(plan[-1])
                self.rows.append(np.append(-self.served[w], 0.0))
                self.bounds.append(self.slack - plan[-1] * self.demand[w])


class Queue:
    """Work served first come, first served, and dropped at its deadline."""

    def __init__(self, deadline_h: int) -> None:
        self.deadline_h = deadline_h
        self.jobs: deque[list[float]] = deque()
        """Hour of arrival and requests that wait, of each hour that is not past its deadline."""

    def waiting(self) -> float:
        return sum(requests for _, requests in self.jobs)

    def take(self, now: int, served: float) -> float:
        """Serve some requests; return those that are dropped."""
        for job in self.jobs:
            part = min(served, job[1])
            job[1] -= part
            served -= part
        dropped = 0.0
        while self.jobs and now - self.jobs[0][0] >= self.deadline_h:
            dropped += self.jobs.popleft()[1]
        return dropped


class Naive:
    """A site, hour by hour."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.queues = [Queue(workload.deadline_h) for workload in plan.workloads]

    def run(self, window: WindowInput) -> tuple[Floats, Floats]:
        """Return the requests served and shed, shape (workloads, hours) each."""
        hours = [self.hour(window, h) for h in range(window.nodes.shape[1])]
        served, shed = (np.array(rows).T for rows in zip(*hours, strict=True))
        return served, shed

    def hour(self, window: WindowInput, h: int) -> tuple[Floats, Floats]:
        plan = self.plan
        came = window.demand_requests[:, h]
        asked = came if window.lit_fraction is None else came * window.lit_fraction[h]
        asked = asked.copy()
        ranks: dict[tuple[int, int], list[int]] = {}
        for place, w in enumerate(plan.by_priority):
            workload = plan.workloads[w]
            # What can wait is served workload by workload.
            rank = (1, place) if workload.deadline_h else (0, workload.priority)
            ranks.setdefault(rank, []).append(w)
            if workload.deadline_h:
                self.queues[w].jobs.append([h, float(came[w])])
                asked[w] = self.queues[w].waiting()
        oracle = self.oracle(window, h, asked)
        for rank in sorted(ranks):
            oracle.level(ranks[rank])
        served = asked * [oracle.shares[w] for w in range(came.size)]
        shed = came - served
        for w, workload in enumerate(plan.workloads):
            if workload.deadline_h:
                shed[w] = self.queues[w].take(h, float(served[w]))
        return served, shed

    def oracle(self, window: WindowInput, h: int, asked: Floats) -> Oracle:
        """Return an hour's program.

        Unknown are the share of each workload that each cluster serves and of each step of power that is used. Every
        row is divided by its limit: the library's tolerance is absolute.
        """
        plan = self.plan
        nodes = window.nodes[:, h]
        rates = np.zeros((len(plan.clusters), len(plan.workloads)))
        for w, workload in enumerate(plan.workloads):
            for c in workload.cluster_order:
                speed = float(window.speed[c, w][h]) if (c, w) in window.speed else 1.0
                rates[c, w] = plan.requests_per_node_h[c, w, 0] * speed
        able = (rates > 0) & (asked > 0) & (nodes > 0)[:, None]
        size = able.size
        frontiers = [cluster.node_power.frontier() for cluster in plan.clusters]
        steps = len(frontiers[0][0]) if plan.site.cap_kw is not None else 0
        columns = size + len(nodes) * steps
        served = np.zeros((asked.size, columns))
        served[:, :size] = np.tile(np.eye(asked.size), len(nodes))
        limits = np.zeros((len(nodes) + 1, columns))
        limits[:-1, :size] = np.repeat(np.eye(len(nodes)), asked.size, axis=1)
        limits[:-1, :size] *= (asked / np.where(able, rates * nodes[:, None], np.inf)).ravel()
        sizes = np.ones(len(limits))
        if plan.site.cap_kw is not None:
            now = np.array([window.first_hour + h])
            allowed = float(allowed_it_kw(plan, plan.site.cap_kw[now], now)[0])
            for c, (work, kw) in enumerate(frontiers):  # work on a cluster is the sum of its steps
                own = slice(size + c * steps, size + (c + 1) * steps)
                limits[c, own] = -np.diff(work, prepend=0.0)
                limits[-1, own] = np.diff(kw, prepend=0.0) * nodes[c] / max(allowed, 1e-9)
            sizes[:-1] = 0.0
            sizes[-1] = float(allowed > 0.0)
        demand = (asked > 0).astype(np.float64)
        return Oracle(limits, sizes, served, demand, np.append(able, np.ones(columns - size)))


TOLERANCE = 1e-5
"""Share of the site: the library is off by 1e-7 of a row in each level and hour, and what waits adds its hours up."""


def assert_same(
    naive: Naive, walked: tuple[Floats, Floats], result: WindowResult, scale: float
) -> None:
    """Hold a walked window against an evaluated one; requests to a share of ``scale``."""
    served, shed = walked
    atol = TOLERANCE * scale
    np.testing.assert_allclose(result.served_requests.sum(axis=0), served, rtol=0.0, atol=atol)
    np.testing.assert_allclose(result.shed_requests, shed, rtol=0.0, atol=atol)
    for queue, waiting in zip(naive.queues, result.waiting_requests, strict=True):
        assert abs(queue.waiting() - waiting.sum()) <= atol * served.shape[1]
