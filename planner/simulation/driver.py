"""The window driver: SimPy to the end of a window, then its hours in a few array operations.

Windows are half-open. With a monthly review they are calendar months, since the review reads finished months only;
without one the whole horizon is a single window. Results do not depend on where the windows end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from planner.demand.plan import hourly_requests_per_s
from planner.fleet.plan import Plan
from planner.fleet.scan import steps_by_hour, time_weighted
from planner.fleet.window import WindowInput, WindowResult, evaluate_window
from planner.simulation.expansion import MonthFigures, Review
from planner.simulation.failures import RepairShop
from planner.simulation.log import ChangeLog, SpeedChange
from planner.simulation.site import site_outages
from planner.simulation.software import SoftwareDesk
from planner.simulation.streams import Streams
from planner.simulation.supply import Supply
from planner.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]
CHUNK_H = 4392  # half a year: a series of 35 kB


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHours:
    """Machines by hour, in nodes; shape (clusters, hours)."""

    present: Floats
    """Delivered and not retired."""
    failed: Floats
    """Of those, out of service for a hardware fault."""
    dark: Floats
    """Of the rest, without power in a site outage."""

    healthy: Floats
    """The rest: nodes that can work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation: windows in order, and the log."""

    windows: tuple[WindowResult, ...]
    node_hours: tuple[NodeHours, ...]
    log: ChangeLog
    shop: RepairShop


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

    def run(self, window_edges_h: list[int], chunk_h: int = CHUNK_H) -> Run:
        """Run all windows between the given hours, the last being the end of the horizon.

        A window's hours are evaluated in chunks, since arrays that stay in the cache cost a fraction of fresh memory.
        """
        review = Review(self.plan, self.supply) if self.plan.expansion.rules else None
        waiting = tuple(np.zeros(workload.deadline_h) for workload in self.plan.workloads)
        windows: list[WindowResult] = []
        node_hours: list[NodeHours] = []
        for first, last in itertools.pairwise(window_edges_h):
            self.env.run(until=last)
            self.shop.work_until(last)
            speed, incidents = self._speeds(first, last)
            lit = self._lit_fraction(first, last)
            present = [self._present(index, first, last) for index in range(len(self.plan.clusters))]
            failed = self._failed(first, last)
            begun = len(windows)
            for start in range(first, last, chunk_h):
                hours = slice(start - first, min(start + chunk_h, last) - first)
                machines = _machines(present, failed, lit, hours)
                window = evaluate_window(
                    self.plan,
                    WindowInput(
                        first_hour=start,
                        demand_requests=self.demand_requests[:, first + hours.start : first + hours.stop],
                        nodes=machines.healthy,
                        speed={pair: series[hours] for pair, series in speed.items()},
                        incidents={pair: series[hours] for pair, series in incidents.items()},
                        waiting_requests=waiting,
                    ),
                )
                waiting = window.waiting_requests
                windows.append(window)
                node_hours.append(machines)
            if review is not None:
                review.close_month(_figures(windows[begun:]))
        return Run(windows=tuple(windows), node_hours=tuple(node_hours), log=self.log, shop=self.shop)

    def _present(self, index: int, first: int, last: int) -> Floats:
        """Return nodes delivered and not retired, by hour."""
        own = [change for change in self.log.changes if change.cluster == index]
        times = np.array([change.time_h for change in own])
        deltas = np.array([change.accelerators for change in own], dtype=np.float64)
        nodes = time_weighted(times, deltas, first, last - first)
        nodes /= self.plan.clusters[index].accelerators_per_node
        return nodes

    def _failed(self, first: int, last: int) -> list[Floats]:
        """Return nodes of each cluster out of service for a fault, by hour."""
        series = [time_weighted(times, deltas, first, last - first) for times, deltas in self.shop.down()]
        return [nodes / self.plan.clusters[c].accelerators_per_node for c, nodes in enumerate(series)]

    def _lit_fraction(self, first: int, last: int) -> Floats | None:
        """Return the share of each hour in which the site has power; None where it always has."""
        events = [event for event in self.log.site if event.start_h < last and event.end_h > first]
        if not events:
            return None
        times = np.array([time_h for event in events for time_h in event])
        deltas = np.tile([-1.0, 1.0], len(events))
        return np.clip(1.0 + time_weighted(times, deltas, first, last - first), 0.0, 1.0)

    def _speeds(self, first: int, last: int) -> tuple[Speeds, Speeds]:
        """Return speed against day one, and the part due to open incidents, where either ever differs from 1."""
        changes: dict[tuple[int, int], list[SpeedChange]] = {}
        for change in self.log.speeds:
            if change.time_h < last:
                changes.setdefault((change.cluster, change.workload), []).append(change)
        known: dict[tuple[str, int, bool], Floats] = {}
        speed: Speeds = {}
        incidents: Speeds = {}
        for pair, own in changes.items():
            workload = self.plan.workloads[pair[1]]
            shared = (self.plan.clusters[pair[0]].stack + "/" + workload.model, pair[1] if workload.launch_h else -1)
            for only, series in ((False, speed), (True, incidents)):
                key = (*shared, only)
                if key not in known:  # clusters of one stack and workloads of one model share their history
                    steps = [change for change in own if change.incident >= 0 or not only]
                    times = np.array([change.time_h for change in steps])
                    levels = np.exp(np.cumsum([change.log_factor for change in steps]))
                    known[key] = steps_by_hour(times, levels, first, last - first) if steps else _NONE
                if known[key] is not _NONE:
                    series[pair] = known[key]
        return speed, incidents


Speeds = dict[tuple[int, int], Floats]
_NONE = np.zeros(0)


def _machines(present: list[Floats], failed: list[Floats], lit: Floats | None, hours: slice) -> NodeHours:
    """Return one chunk of machines by hour."""
    on_site = np.array([series[hours] for series in present])
    down = np.array([series[hours] for series in failed])
    np.maximum(down, 0.0, out=down)
    np.minimum(down, on_site, out=down)
    healthy = on_site - down
    dark = np.zeros_like(healthy)
    if lit is not None and (lit[hours] < 1.0).any():
        dark = healthy * (1.0 - lit[hours])
        healthy -= dark
    return NodeHours(present=on_site, failed=down, dark=dark, healthy=healthy)


def _figures(windows: list[WindowResult]) -> MonthFigures:
    """Return what the review looks at."""
    nodes = sum(window.nodes.sum(axis=1) for window in windows)
    busy = sum(window.busy_nodes.sum(axis=1) for window in windows)
    demand = sum(float(window.demand_requests.sum()) for window in windows)
    served = sum(float(window.served_requests.sum()) for window in windows)
    shed = sum(float(window.shed_requests.sum()) for window in windows)
    late = sum(float(window.late_requests.sum()) for window in windows)
    share = np.divide(busy, nodes, out=np.zeros_like(busy), where=np.asarray(nodes) > 0)
    return MonthFigures(
        utilisation=tuple(np.asarray(share).tolist()),
        shed_fraction=shed / demand if demand > 0 else 0.0,
        late_fraction=late / served if served > 0 else 0.0,
    )
