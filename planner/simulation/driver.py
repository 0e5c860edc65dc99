"""The window driver: SimPy to the end of a window, then its hours in a few array operations.

Windows are half-open. With a monthly review they are as many calendar months as nothing can come of what it decides
meanwhile; without one the whole horizon is a single window. Results do not depend on where the windows end.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import simpy

from planner.arrays import Floats
from planner.demand.plan import DemandPlan, hourly_requests_per_s
from planner.fleet import quantities
from planner.fleet.hourly import Slowdown, WindowInput, WindowResult
from planner.fleet.plan import Plan
from planner.fleet.rented import rent_for_shed
from planner.fleet.scan import hours_within, steps_by_hour, time_weighted
from planner.fleet.sizes import sizes_by_hour
from planner.fleet.window import evaluate_window
from planner.records import dataclass
from planner.simulation.domains import stated
from planner.simulation.expansion import MonthFigures, Review
from planner.simulation.log import ChangeLog
from planner.simulation.memory import keep_memory
from planner.simulation.open_shop import OpenShop
from planner.simulation.outages import site_outages
from planner.simulation.processes import Process, Surroundings, World, guarded, numbered
from planner.simulation.repair_shop import RepairShop
from planner.simulation.software import SoftwareDesk
from planner.simulation.streams import Streams
from planner.simulation.streams import streams as streams_of
from planner.simulation.supply import Supply
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
        self.twins = _twins(plan)
        # Another process may want a crew at any time, which only a shop inside the clock can give it.
        started = {**stated(plan.reliability), **numbered(processes)}
        self.shop: RepairShop | OpenShop = (
            OpenShop(self.env, plan.reliability, plan.clusters)
            if started
            else RepairShop(plan.reliability, plan.clusters)
        )
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
            for begin, end, sizes in self._parts(first, last):
                speed, incidents = self._speeds(begin, end)
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
        which = sizes_by_hour(self.plan, self._node_hours(first, last, None).present)
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
        rented = rent_for_shed(self.plan, windows[begun:]).requests
        for number in finished:
            parts = list(zip(windows[begun:], node_hours[begun:], strict=True))
            self.months.append(_figures(self.plan, number, parts, rented[number]))
            if review is not None:
                review.close_month(self.months[-1])

    def _node_hours(self, first: int, last: int, lit: Floats | None) -> NodeHours:
        """Turn the log into nodes by hour, each averaged over its hour."""
        shape = (len(self.plan.clusters), last - first)
        present, failed = np.empty(shape), np.empty(shape)
        for index, (times, deltas) in enumerate(self.shop.down()):
            per_node = self.plan.clusters[index].accelerators_per_node
            changes = sorted(
                change for change in self.log.changes if change.cluster == index
            )  # known ahead of their time
            moments = np.array([change.time_h for change in changes])
            nodes = np.cumsum([change.accelerators / per_node for change in changes])
            present[index] = steps_by_hour(moments, nodes, first, last - first, before=0.0)
            failed[index] = time_weighted(times, deltas / per_node, first, last - first)
        np.maximum(failed, 0.0, out=failed)
        np.minimum(failed, present, out=failed)
        healthy = present - failed
        dark = np.zeros(shape)
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

    def _speeds(self, first: int, last: int) -> tuple[dict[Pair, Floats], dict[Pair, Slowdown]]:
        """Return speed against day one, and what open incidents take of it, where there is any of either."""
        histories: dict[Pair, list[Step]] = {pair: [] for pair in self.twins.values()}
        for event in sorted(self.log.software, key=lambda event: event.time_h):
            if event.time_h < last:
                for pair, factor in zip(event.pairs, event.log_factors, strict=True):
                    if factor != 0.0 and pair in histories:
                        histories[pair].append((event.time_h, factor, event.incident))
        speed = {pair: _series(steps, _levels(steps), first, last) for pair, steps in histories.items() if steps}
        slowed = {pair: _slowdown(steps, first, last) for pair, steps in histories.items() if steps}
        return (
            {pair: speed[twin] for pair, twin in self.twins.items() if twin in speed},
            {pair: slow for pair, twin in self.twins.items() if (slow := slowed.get(twin)) is not None},
        )


Pair = tuple[int, int]
Step = tuple[float, float, int]
"""A change of speed: when, by how much in its logarithm, and the incident behind it, -1 for none."""


def _twins(plan: Plan) -> dict[Pair, Pair]:
    """Return for each cluster and workload the first that shares its history of speed.

    Clusters of one stack and workloads of one model do, but for precision, for the roofline and the date of the first
    image, which decide what releases gain, and for bring-ups, which each part has of its own.
    """
    first: dict[tuple[str, str, int, str, float, tuple[float, ...]], Pair] = {}
    twins: dict[Pair, Pair] = {}
    for w, workload in enumerate(plan.workloads):
        for c in workload.cluster_order:
            cluster, wide = plan.clusters[c], float(plan.software.wide_precision_factor[c, w])
            apart = (-1, "") if workload.launch_h is None else (w, cluster.accelerator)
            ends = (float(plan.software.roofline_log_gain[c, w]), float(plan.software.dated_log_gain[c, w]))
            course = (*ends, plan.software.clock_h[c])
            key = (cluster.stack, workload.model, *apart, -1.0 if math.isnan(wide) else wide, course)
            twins[c, w] = first.setdefault(key, (c, w))
    return twins


def _levels(steps: list[Step]) -> list[float]:
    """Return the speed after each of some changes, exactly 1 again when everything that slowed it is fixed."""
    return [math.exp(round(level, 12)) for level in itertools.accumulate(factor for _, factor, _ in steps)]


def _series(steps: list[Step], levels: list[float], first: int, last: int) -> Floats:
    """Return the speed that a history of changes amounts to, by hour."""
    return steps_by_hour(np.array([step[0] for step in steps]), np.array(levels), first, last - first)


def _slowdown(steps: list[Step], first: int, last: int) -> Slowdown | None:
    """Return the hours that open incidents slow; None where there are none."""
    incidents = [step for step in steps if step[2] >= 0]
    levels = _levels(incidents)
    times = [*(step[0] for step in incidents), float(last)]
    slow = [span for span, level in zip(itertools.pairwise(times), levels, strict=True) if level != 1.0]
    hours = hours_within(slow, first, last - first)
    if not hours.size:
        return None
    return Slowdown(hours=hours, lost_fraction=1.0 - _series(incidents, levels, first, last)[hours])


def _figures(plan: Plan, number: int, parts: Sequence[tuple[WindowResult, NodeHours]], rented: Floats) -> MonthFigures:
    """Return what the review looks at of a month, from the windows it lies in, as the timeline will show it.

    ``rented`` is what was served on rented accelerators, shape (workloads,).
    """
    first, last = plan.month_edges_h[number : number + 2]

    def total(name: str, axis: int | tuple[int, ...]) -> Floats:
        sums = []
        for window, machines in parts:
            hours = slice(max(first - window.first_hour, 0), max(last - window.first_hour, 0))
            source = window if hasattr(window, name) else machines
            sums.append(getattr(source, name)[..., hours].sum(axis=axis))
        return np.asarray(np.sum(sums, axis=0), dtype=np.float64)

    in_service = quantities.in_service(total("present", 1), total("failed", 1))
    demand, refused, late = (total(f"{name}_requests", 1) for name in ("demand", "shed", "late"))
    served = total("served_requests", (0, 2))
    shed = quantities.shed_requests(refused, rented)
    tokens = plan.tokens_per_request[number]
    missed, settled = quantities.missed_requests(late, shed), quantities.settled_requests(served, refused)
    # A month without machines or requests gives no reason to act: nothing to divide by counts as nothing.
    return MonthFigures(
        utilisation=tuple(np.nan_to_num(quantities.utilisation(total("busy_nodes", 1), in_service)).tolist()),
        shed_fraction=float(np.nan_to_num(quantities.shed_share(shed @ tokens, demand @ tokens))),
        missed_fraction=float(np.nan_to_num(1.0 - quantities.in_time(missed.sum(), settled.sum()))),
    )


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
