"""The window driver: SimPy to the end of a window, then its hours in a few array operations.

Windows are half-open. With a monthly review they are as many calendar months as nothing can come of what it decides
meanwhile; without one the whole horizon is a single window. Results do not depend on where the windows end.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from planner.arrays import Floats
from planner.demand.plan import DemandPlan, hourly_requests_per_s
from planner.engine.domains import stated
from planner.engine.expansion import MonthFigures, Review
from planner.engine.histories import Histories
from planner.engine.hourly import WindowInput, WindowResult
from planner.engine.log import ChangeLog
from planner.engine.memory import keep_memory
from planner.engine.open_shop import OpenShop
from planner.engine.outages import site_outages
from planner.engine.processes import Process, Surroundings, World, guarded, numbered
from planner.engine.rented import rent_for_shed
from planner.engine.repair_shop import RepairShop
from planner.engine.scan import steps_by_hour
from planner.engine.software import SoftwareDesk
from planner.engine.streams import Streams
from planner.engine.streams import streams as streams_of
from planner.engine.supply import Supply
from planner.engine.window import evaluate_window
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.plan.sizes import sizes_by_hour
from planner.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHours:
    """Machines by hour, in nodes; shape (clusters, hours)."""

    present: Floats
    """Delivered and not retired."""
    failed: Floats
    """Of those, out of service for a hardware fault."""
    dark: Floats
    """Of the rest, on site and without power in an outage of it."""

    healthy: Floats
    """The rest: nodes that can work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation: windows in order, and the log."""

    inputs: tuple[WindowInput, ...]
    """What each window was evaluated from."""
    windows: tuple[WindowResult, ...]
    node_hours: tuple[NodeHours, ...]
    log: ChangeLog
    shop: RepairShop | OpenShop


class Simulation:
    """One replication in progress."""

    def __init__(self, plan: Plan, streams: Streams, processes: Sequence[Process] = ()) -> None:
        self.plan = plan
        self.watched = bool(processes) or bool(plan.expansion.rules)
        """Whether somebody looks at finished months."""
        self.env = simpy.Environment()
        self.log = ChangeLog()
        # Another process may want a crew at any time, which only a shop inside the clock can give it.
        started = {**stated(plan.reliability), **numbered(processes)}
        self.shop: RepairShop | OpenShop = (
            OpenShop(self.env, plan.reliability, plan.clusters)
            if started
            else RepairShop(plan.reliability, plan.clusters)
        )
        self.histories = Histories(plan, self.log, self.shop)
        self.supply = Supply(self.env, plan, self.shop, self.log, streams)
        self.supply.start()
        self.desk = SoftwareDesk(self.env, plan, self.log, streams, self.supply.arrived)
        self.desk.start()
        self.env.process(site_outages(self.env, plan, self.log, streams))
        self.months: list[MonthFigures] = []
        if isinstance(self.shop, OpenShop):
            self._start(started, self.shop, streams)
        self.demand_requests = _demand_requests(plan.demand, streams)

    def _start(self, processes: Mapping[str, Process], shop: OpenShop, streams: Streams) -> None:
        """Set processes going, each with random numbers of its own."""
        shared = Surroundings(plan=self.plan, shop=shop, supply=self.supply, log=self.log, months=self.months)
        for name, process in processes.items():
            world = World(self.env, name, streams(f"process/{name}"), shared)
            self.env.process(guarded(process, world))

    def run(self, window_edges_h: Sequence[int]) -> Run:
        """Run all windows between the given hours, the last being the end of the horizon.

        With a review there are further ends, before which nothing that it may decide can have an effect.
        """
        review = Review(self.plan, self.supply) if self.plan.expansion.rules else None
        waiting = tuple(np.zeros(workload.deadline_h) for workload in self.plan.workloads)
        inputs: list[WindowInput] = []
        windows: list[WindowResult] = []
        node_hours: list[NodeHours] = []
        last = 0
        while last < window_edges_h[-1]:
            first, last = last, self._end(last, window_edges_h, review)
            self.env.run(until=last)
            self.shop.work_until(last)
            self.histories.take_up(last)
            for begin, end, sizes in self._parts(first, last):
                speed, incidents = self.histories.speeds(begin, end)
                lit = self._lit_fraction(begin, end)
                machines = self._node_hours(begin, end, lit)
                inputs.append(
                    WindowInput(
                        first_hour=begin,
                        demand_requests=self.demand_requests[:, begin:end],
                        nodes=machines.healthy,
                        speed=speed,
                        incidents=incidents,
                        waiting_requests=waiting,
                        lit_fraction=lit,
                        replicas_before=windows[-1].replicas_after if windows else None,
                        awake_before=windows[-1].awake_after if windows else None,
                        sizes=sizes,
                    )
                )
                windows.append(evaluate_window(self.plan, inputs[-1]))
                waiting = windows[-1].waiting_requests
                node_hours.append(machines)
            if self.watched:
                self._close_months(last, windows, node_hours, review)
        return Run(
            inputs=tuple(inputs),
            windows=tuple(windows),
            node_hours=tuple(node_hours),
            log=self.log,
            shop=self.shop,
        )

    def _end(self, first: int, window_edges_h: Sequence[int], review: Review | None) -> int:
        """Return where the window ends that begins in an hour."""
        stated = next(edge for edge in window_edges_h if edge > first)
        if review is None:
            return stated
        months = self.plan.month_edges_h
        following = int(np.searchsorted(months, first, side="right"))
        unmoved = int(np.searchsorted(months, review.unmoved_until_h(), side="right")) - 1
        return min(stated, int(months[max(following, unmoved)]))

    def _parts(self, first: int, last: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return the stretches of a window in which every cluster has one size, with the sizes."""
        if not self.plan.sizes:
            return [(first, last, ())]
        present = np.stack([course.by_hour(first, last) for course in self.histories.present])
        which = sizes_by_hour(self.plan, present)
        cuts = 1 + np.flatnonzero(np.any(which[:, 1:] != which[:, :-1], axis=0))
        edges = [0, *cuts.tolist(), last - first]
        return [
            (first + begin, first + end, tuple(which[:, begin].tolist())) for begin, end in itertools.pairwise(edges)
        ]

    def _close_months(
        self, end_h: int, windows: list[WindowResult], node_hours: list[NodeHours], review: Review | None
    ) -> None:
        """Sum up the months that have ended, and let the review look at each."""
        edges = self.plan.month_edges_h
        finished = range(len(self.months), int(np.searchsorted(edges, end_h, side="right")) - 1)
        if not finished:
            return
        begun = next(n for n, w in enumerate(windows) if w.first_hour + w.nodes.shape[1] > edges[finished.start])
        for figures in _figures(self.plan, finished, windows[begun:], node_hours[begun:]):
            self.months.append(figures)
            if review is not None:
                review.close_month(figures)

    def _node_hours(self, first: int, last: int, lit: Floats | None) -> NodeHours:
        """Return nodes by hour in a part of the window, each averaged over its hour."""
        known = self.histories
        present, failed = (
            np.stack([course.by_hour(first, last) for course in courses]) for courses in (known.present, known.failed)
        )
        np.maximum(failed, 0.0, out=failed)
        np.minimum(failed, present, out=failed)
        healthy = present - failed
        dark = np.zeros(present.shape)
        if lit is not None:
            np.multiply(healthy, 1.0 - lit, out=dark, where=self.plan.on_site[:, None] > 0.0)
            healthy -= dark
        return NodeHours(present=present, failed=failed, dark=dark, healthy=healthy)

    def _lit_fraction(self, first: int, last: int) -> Floats | None:
        """Return the share of each hour in which the site has power; None where it always has."""
        events = [event for event in self.log.site if event.start_h < last and event.end_h > first]
        if not events:
            return None
        times = np.array([time_h for event in events for time_h in event])  # outages follow one another
        return steps_by_hour(times, np.tile([0.0, 1.0], len(events)), first, last - first)


def _figures(
    plan: Plan, months: range, windows: Sequence[WindowResult], node_hours: Sequence[NodeHours]
) -> Iterator[MonthFigures]:
    """Return what the review looks at of some months, from the windows they lie in, as the timeline will show it."""
    which = slice(months.start, months.stop)
    edges = [plan.month_edges_h[months.start : months.stop + 1] - window.first_hour for window in windows]
    spans = [
        (number, place, slice(*span))
        for place, (window, hours) in enumerate(zip(windows, edges, strict=True))
        for number, span in enumerate(itertools.pairwise(np.clip(hours, 0, window.nodes.shape[1]).tolist()))
        if span[0] < span[1]
    ]
    """The parts of months that windows have: month, window, and its hours within that."""

    def totals(series: Sequence[Floats], axis: int | tuple[int, ...] = 1) -> Floats:
        """Return monthly sums of an hourly series of each window, shape (months, rows)."""
        sums = np.zeros((len(months), series[0].shape[-2]))
        for number, place, hours in spans:
            sums[number] += series[place][..., hours].sum(axis=axis)
        return sums

    present, failed = (totals([getattr(machines, name) for machines in node_hours]) for name in ("present", "failed"))
    demand = totals([window.demand_requests for window in windows])
    refused = totals([window.shed_requests for window in windows])
    late = totals([window.late_requests for window in windows])
    served = totals([window.served_requests for window in windows], (0, 2))
    busy = totals([window.busy_nodes for window in windows])
    shed = quantities.shed_requests(refused, rent_for_shed(plan, windows).requests[which])
    missed, settled = quantities.missed_requests(late, shed), quantities.settled_requests(served, refused)
    lost, asked = (
        np.array([row @ tokens for row, tokens in zip(requests, plan.tokens_per_request[which], strict=True)])
        for requests in (shed, demand)
    )
    figures = (
        quantities.utilisation(busy, quantities.in_service(present, failed)),
        quantities.shed_share(lost, asked),
        1.0 - quantities.in_time(missed.sum(axis=1), settled.sum(axis=1)),
    )
    # A month without machines or requests gives no reason to act: nothing to divide by counts as nothing.
    for utilisation, shed_fraction, missed_fraction in zip(*(np.nan_to_num(f).tolist() for f in figures), strict=True):
        yield MonthFigures(utilisation=tuple(utilisation), shed_fraction=shed_fraction, missed_fraction=missed_fraction)


@functools.lru_cache(maxsize=1)
def _demand_requests(demand: DemandPlan, streams: Streams) -> Floats:
    """Return the requests of each hour, shape (workloads, hours), read-only; a sweep's plans share those of a seed."""
    requests = hourly_requests_per_s(demand, streams).T
    requests *= SECONDS_PER_HOUR
    requests.flags.writeable = False
    return requests


def run_plan(
    plan: Plan, seed: int, replication: int = 0, window_h: int | None = None, processes: Sequence[Process] = ()
) -> Run:
    """Run a plan's events and hours once, and processes of the user's with them.

    Windows end with the months where a process looks at them, where a review may have had an effect, and with the
    horizon; ``window_h`` adds further ends, every so many hours.
    """
    keep_memory()
    edges = {0, plan.hours}
    if processes:
        edges.update(plan.month_edges_h.tolist())
    if window_h is not None:
        edges.update(range(0, plan.hours, window_h))
    return Simulation(plan, streams_of(seed, replication), processes).run(sorted(edges))
