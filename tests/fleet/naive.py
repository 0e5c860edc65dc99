"""The hours of a window walked one by one in plain Python: an independent statement of what the arrays should say."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from planner.fleet.plan import Plan
from planner.fleet.window import WindowInput, WindowResult


@dataclass
class Hour:
    """What one hour came to."""

    served: dict[tuple[int, int], float] = field(default_factory=dict)
    shed: dict[int, float] = field(default_factory=dict)
    used: list[float] = field(default_factory=list)
    wanted: list[float] = field(default_factory=list)
    it_kw: list[float] = field(default_factory=list)
    facility_kw: float = 0.0


class Naive:
    """A site, hour by hour; backlogs are queues of (hour of arrival, requests)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rated = sum(c.nodes * c.node_power.full_kw for c in plan.clusters)
        self.queues: list[deque[list[float]]] = [deque() for _ in plan.workloads]

    def rate(self, c: int, w: int, hour: int, speed: float) -> float:
        table = self.plan.requests_per_node_h[c, w]
        month = 0
        if table.size > 1:
            month = max(m for m in range(table.size) if self.plan.month_edges_h[m] <= hour)
        return float(table[month]) * speed

    def node_kw(self, c: int, load: float) -> float:
        table = self.plan.clusters[c].node_power.load_kw
        return float(table[min(math.floor(load * (len(table) - 1) + 0.5), len(table) - 1)])

    def power(self, used: list[float], nodes: list[float], on: list[bool]) -> list[float]:
        return [
            n * self.node_kw(c, u / n) if n > 0 and on[c] else 0.0
            for c, (u, n) in enumerate(zip(used, nodes, strict=True))
        ]

    def facility(self, it: float, hour: int) -> float:
        site = self.plan.site
        fixed = site.fixed_fraction
        return it + float(site.overhead_ratio[hour]) * (fixed * self.rated + (1 - fixed) * it)

    def fill(
        self, requests: float, room: tuple[list[float], list[float]], rates: list[float], order: tuple[int, ...]
    ) -> list[float]:
        """Add requests to clusters; return the node-equivalents taken, and update what is used."""
        usable, used = room
        taken = [0.0] * len(used)
        for c in order:
            part = min(max(usable[c] * self.plan.preferred_utilisation - used[c], 0.0), requests / rates[c])
            used[c] += part
            taken[c] += part
            requests -= part * rates[c]
        free = {c: max(usable[c] - used[c], 0.0) for c in order}
        whole = sum(free[c] * rates[c] for c in order)
        for c in order:
            part = free[c] * min(requests, whole) / whole if whole > 0 else 0.0
            used[c] += part
            taken[c] += part
        return taken

    def run(self, window: WindowInput) -> list[Hour]:
        return [self.hour(window, h) for h in range(window.nodes.shape[1])]

    def hour(self, window: WindowInput, h: int) -> Hour:
        plan, now = self.plan, window.first_hour + h
        nodes = [float(n) for n in window.nodes[:, h]]
        rates = [
            [
                self.rate(c, w, now, float(window.speed[c, w][h]) if (c, w) in window.speed else 1.0)
                for c in range(len(nodes))
            ]
            for w in range(len(plan.workloads))
        ]
        urgent = [w for w in plan.by_priority if not plan.workloads[w].deadline_h]
        cap = math.inf if plan.site.cap_kw is None else float(plan.site.cap_kw[now])
        out = Hour()
        everything_on = [True] * len(nodes)
        out.used = self.urgent(out, window, h, (nodes, rates), urgent)
        out.wanted = list(out.used)
        on, usable = everything_on, list(nodes)
        if self.facility(sum(self.power(out.used, nodes, on)), now) > cap * (1 + 1e-9):
            on, usable = self.throttled(out.used, nodes, now, cap)
            out.used = self.urgent(out, window, h, (usable, rates), urgent)
        for w in plan.by_priority:
            if plan.workloads[w].deadline_h:
                self.deferrable(out, (w, now, float(window.demand_requests[w, h])), rates[w], (nodes, usable, on, cap))
        out.it_kw = self.power(out.used, nodes, on)
        out.facility_kw = self.facility(sum(out.it_kw), now)
        return out

    def urgent(
        self, out: Hour, window: WindowInput, h: int, room: tuple[list[float], list[list[float]]], which: list[int]
    ) -> list[float]:
        usable, rates = room
        used = [0.0] * len(usable)
        for w in which:
            came = float(window.demand_requests[w, h])
            wanted = came if window.lit_fraction is None else came * float(window.lit_fraction[h])
            taken = self.fill(wanted, (usable, used), rates[w], self.plan.workloads[w].cluster_order)
            for c, part in enumerate(taken):
                out.served[c, w] = part * rates[w][c]
            out.shed[w] = max(0.0, came - sum(part * rates[w][c] for c, part in enumerate(taken)))
        return used

    def throttled(self, used: list[float], nodes: list[float], now: int, cap: float) -> tuple[list[bool], list[float]]:
        """Take work from clusters in order, one point of the power table at a time, then switch clusters off."""
        left, on = list(used), [True] * len(nodes)

        def over() -> bool:
            return self.facility(sum(self.power(left, nodes, on)), now) > cap * (1 + 1e-9)

        for c in self.plan.site.throttle_order:
            if nodes[c] <= 0 or left[c] <= 0 or not over():
                continue
            points = len(self.plan.clusters[c].node_power.load_kw) - 1
            low, high = 0, math.floor(used[c] / nodes[c] * points + 0.5)  # power fits at low, not at high
            left[c] = 0.0
            if over():
                continue
            while high - low > 1:
                middle = (low + high) // 2
                left[c] = nodes[c] * middle / points
                low, high = (low, middle) if over() else (middle, high)
            left[c] = min(used[c], nodes[c] * low / points)
        for c in self.plan.site.throttle_order:
            if over() and nodes[c] > 0:
                on[c], left[c] = False, 0.0
        return on, left

    def deferrable(
        self,
        out: Hour,
        work: tuple[int, int, float],
        rates: list[float],
        site: tuple[list[float], list[float], list[bool], float],
    ) -> None:
        (w, now, arrivals), (nodes, usable, on, cap) = work, site
        order, queue = self.plan.workloads[w].cluster_order, self.queues[w]
        queue.append([now, arrivals])
        backlog = sum(requests for _, requests in queue)
        room = sum(max(usable[c] - out.used[c], 0.0) * rates[c] for c in order)

        def fits(requests: float) -> bool:
            used = list(out.used)
            self.fill(requests, (usable, used), rates, order)
            return self.facility(sum(self.power(used, nodes, on)), now) <= cap * (1 + 1e-9)

        share = 1.0
        if not fits(room):
            share, high = 0.0, 1.0
            for _ in range(50):
                middle = (share + high) / 2
                share, high = (middle, high) if fits(room * middle) else (share, middle)
            share *= 1 - 1e-7  # clear of the step of the power table at which the bisection ends
        free = sum(max(nodes[c] - out.wanted[c], 0.0) * rates[c] for c in order)
        self.fill(min(arrivals, free), (nodes, out.wanted), rates, order)
        served = min(backlog, room * share)
        taken = self.fill(served, (usable, out.used), rates, order)
        for c, part in enumerate(taken):
            out.served[c, w] = part * rates[c]
        while queue and served > 0:  # first come, first served
            part = min(served, queue[0][1])
            queue[0][1] -= part
            served -= part
            if queue[0][1] > 0:
                break
            queue.popleft()
        out.shed[w] = 0.0
        while queue and now - queue[0][0] >= self.plan.workloads[w].deadline_h:
            out.shed[w] += queue.popleft()[1]


def assert_same(naive: Naive, hours: list[Hour], result: WindowResult, scale: float) -> None:
    """Hold a walked window against an evaluated one; requests to a share of ``scale``."""
    for h, hour in enumerate(hours):
        for (c, w), served in hour.served.items():
            assert abs(result.served_requests[c, w, h] - served) <= 1e-6 * scale, (h, c, w)
        for w, shed in hour.shed.items():
            assert abs(result.shed_requests[w, h] - shed) <= 1e-6 * scale, (h, w)
        np.testing.assert_allclose(result.busy_nodes[:, h], hour.used, atol=1e-5)
        lost = np.maximum(np.array(hour.wanted) - hour.used, 0.0)
        np.testing.assert_allclose(result.throttled_nodes[:, h], lost, atol=1e-5)
        # Power is read at the nearest point of a table, 0.3% apart near idle: rounding may pick either neighbour.
        np.testing.assert_allclose(result.it_kw[:, h], hour.it_kw, rtol=4e-3, atol=1e-3)
        assert abs(result.facility_kw[h] - hour.facility_kw) <= 4e-3 * hour.facility_kw + 1e-9
    for queue, waiting in zip(naive.queues, result.waiting_requests, strict=True):
        assert abs(sum(requests for _, requests in queue) - waiting.sum()) <= 1e-6 * scale
