"""The window driver: SimPy to the end of a window, then its hours in a few array operations.

Windows are half-open. With a monthly review they are calendar months, since the review reads finished months only;
without one the whole horizon is a single window. Results do not depend on where the windows end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from planner.demand.plan import hourly_requests_per_s
from planner.fleet.plan import Plan
from planner.fleet.scan import time_weighted
from planner.fleet.window import WindowInput, WindowResult, evaluate_window
from planner.simulation.expansion import MonthFigures, Review
from planner.simulation.failures import RepairShop
from planner.simulation.log import ChangeLog
from planner.simulation.site import site_outages
from planner.simulation.software import SoftwareDesk
from planner.simulation.streams import Streams
from planner.simulation.supply import Supply
from planner.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHours:
    """Machines by hour, in nodes; shape (clusters, hours)."""

    present: Floats
    """Delivered and not retired."""
    failed: Floats
    """Of those, out of service for a hardware fault."""
    dark: Floats
    """Of the rest, without power in a site outage."""

    @property
    def healthy(self) -> Floats:
        """Nodes that can work."""
        return np.maximum(self.present - self.failed - self.dark, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation: windows in order, and the log."""

    windows: tuple[WindowResult, ...]
    node_hours: tuple[NodeHours, ...]
    log: ChangeLog


class Simulation:
    """One replication in progress."""

    def __init__(self, plan: Plan, streams: Streams) -> None:
        self.plan = plan
        self.env = simpy.Environment()
        self.log = ChangeLog()
        self.shop = RepairShop(plan.reliability, plan.clusters)
        self.supply = Supply(self.env, plan, self.shop, self.log, streams)
        self.supply.start()
        SoftwareDesk(self.env, plan, self.log, streams).start()
        self.env.process(site_outages(self.env, plan, self.log, streams))
        self.demand_requests = hourly_requests_per_s(plan.demand, streams).T
        self.demand_requests *= SECONDS_PER_HOUR

    def run(self, window_edges_h: list[int]) -> Run:
        """Run all windows between the given hours, the last being the end of the horizon."""
        review = Review(self.plan, self.supply) if self.plan.expansion.rules else None
        waiting = tuple(np.zeros(workload.deadline_h) for workload in self.plan.workloads)
        windows, node_hours = [], []
        for first, last in zip(window_edges_h[:-1], window_edges_h[1:], strict=True):
            self.env.run(until=last)
            self.shop.work_until(last)
            machines = self._node_hours(first, last)
            window = evaluate_window(
                self.plan,
                WindowInput(
                    first_hour=first,
                    demand_requests=self.demand_requests[:, first:last],
                    nodes=machines.healthy,
                    speed=self._speed(first, last),
                    waiting_requests=waiting,
                ),
            )
            waiting = window.waiting_requests
            windows.append(window)
            node_hours.append(machines)
            if review is not None:
                review.close_month(_figures(window))
        self.shop.close(float(self.plan.hours))
        self.log.outages.extend(self.shop.outages)
        return Run(windows=tuple(windows), node_hours=tuple(node_hours), log=self.log)

    def _node_hours(self, first: int, last: int) -> NodeHours:
        """Turn the change log into time-weighted nodes by hour."""
        shape = (len(self.plan.clusters), last - first)
        present, failed, dark = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        lit = self._lit_fraction(first, last)
        for index, cluster in enumerate(self.plan.clusters):
            own = [change for change in self.log.changes if change.cluster == index]
            times = np.array([change.time_h for change in own])
            deltas = np.array([change.accelerators for change in own], dtype=np.float64)
            present[index] = time_weighted(times, deltas, first, last - first)
            down = np.array(self.shop.down_accelerators[index], dtype=np.float64)
            failed[index] = -time_weighted(np.array(self.shop.down_times[index]), down, first, last - first)
            present[index] /= cluster.accelerators_per_node
            failed[index] /= cluster.accelerators_per_node
            np.clip(failed[index], 0.0, present[index], out=failed[index])
            if lit is not None:
                dark[index] = (present[index] - failed[index]) * (1.0 - lit)
        return NodeHours(present=present, failed=failed, dark=dark)

    def _lit_fraction(self, first: int, last: int) -> Floats | None:
        """Return the share of each hour in which the site has power; None where it always has."""
        events = [event for event in self.log.site if event.start_h < last and event.end_h > first]
        if not events:
            return None
        times = np.array([time_h for event in events for time_h in event])
        deltas = np.tile([-1.0, 1.0], len(events))
        return np.clip(1.0 + time_weighted(times, deltas, first, last - first), 0.0, 1.0)

    def _speed(self, first: int, last: int) -> dict[tuple[int, int], Floats]:
        """Return speed against the usual for each cluster and workload that ever differs from it."""
        changes: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for change in self.log.speeds:
            if change.time_h < last:
                changes.setdefault((change.cluster, change.workload), []).append((change.time_h, change.log_factor))
        speed, seen = {}, {}
        for pair, steps in changes.items():
            key = (pair[0], tuple(steps))
            if key not in seen:  # workloads of one model share their history
                times, factors = np.array(steps).T
                seen[key] = np.exp(time_weighted(times, factors, first, last - first))
            speed[pair] = seen[key]
        return speed


def _figures(window: WindowResult) -> MonthFigures:
    """Return what the review looks at."""
    nodes, busy = window.nodes.sum(axis=1), window.busy_nodes.sum(axis=1)
    demand, served = window.demand_requests.sum(), window.served_requests.sum()
    return MonthFigures(
        utilisation=tuple(np.divide(busy, nodes, out=np.zeros_like(busy), where=nodes > 0).tolist()),
        shed_fraction=float(window.shed_requests.sum() / demand) if demand > 0 else 0.0,
        late_fraction=float(window.late_requests.sum() / served) if served > 0 else 0.0,
    )
