"""The window driver: runs SimPy to the end of a window, then evaluates its hours as arrays.

Windows are half-open. With a monthly review of how months went they are as many calendar months as nothing can come of
what it decides meanwhile; without one, and where rules look at demand alone, the whole horizon is a single window.
Results do not depend on where the windows end.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from planner.arrays import Bools, Floats
from planner.demand.plan import DemandPlan, hourly_requests_per_s
from planner.engine.hourly import NodeHours, SpeedLoss, WindowInput, WindowResult
from planner.engine.log import Change, ChangeLog, SoftwareEvent, Streams
from planner.engine.log import streams as streams_of
from planner.engine.processes import (
    Process,
    RunContext,
    SimulationContext,
    guarded,
    load_process,
    numbered,
    site_outages,
    stated,
)
from planner.engine.rental import Rentals, rent_for_shed
from planner.engine.repair_shop import OutageRow, RepairShop, RepairShopProcess
from planner.engine.scan import hours_within, steps_by_hour
from planner.engine.software import IncidentProcess
from planner.engine.supply import NOT_LOOKED_AT, MonthFigures, Review, Supply
from planner.engine.window import evaluate_window
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.plan.sizes import sizes_by_hour
from planner.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished simulation: its windows in order, and the log."""

    inputs: tuple[WindowInput, ...]
    """What each window was evaluated from."""
    windows: tuple[WindowResult, ...]
    node_hours: tuple[NodeHours, ...]
    log: ChangeLog
    shop: RepairShop | RepairShopProcess
    on_offer: Bools | None
    """Hours in which instances can be had by burst rental, shape (hours,); None without it."""
    offers: Mapping[int, Bools]
    """By cluster that is rented by the hour, the hours in which its nodes can be had, shape (hours,)."""

    @property
    def is_capped(self) -> bool:
        """Whether anything limits what the site draws in any window."""
        return any(given.cap_kw is not None for given in self.inputs)


class Simulation:
    """One replication in progress."""

    def __init__(self, plan: Plan, streams: Streams, processes: Sequence[Process] = ()) -> None:
        self.plan = plan
        users = numbered([*map(load_process, plan.processes), *processes])
        self.watched = bool(users) or any(not rule.forecasts for rule in plan.expansion.rules)
        """Whether somebody looks at how finished months went."""
        self.env = simpy.Environment()
        self.log = ChangeLog()
        # Another process may want a crew at any time, which only a shop inside the clock can give it.
        started = stated(plan.reliability) | users
        self.shop: RepairShop | RepairShopProcess = (
            RepairShopProcess(self.env, plan.reliability, plan.clusters)
            if started
            else RepairShop(plan.reliability, plan.clusters)
        )
        self.histories = Histories(plan, self.log, self.shop, has_processes=bool(users))
        self.supply = Supply(self.env, plan, self.shop, self.log, streams)
        self.supply.start()
        self.desk = IncidentProcess(self.env, plan, self.log, streams, self.supply.arrived)
        self.desk.start()
        self.env.process(site_outages(self.env, plan, self.log, streams))
        self.months: list[MonthFigures] = []
        if isinstance(self.shop, RepairShopProcess):
            shared = RunContext(
                plan=plan, shop=self.shop, supply=self.supply, log=self.log, months=self.months
            )
            for name, process in started.items():  # each has random numbers of its own
                world = SimulationContext(self.env, name, streams, shared)
                self.env.process(guarded(process, world))
        self.demand_requests = _demand_requests(plan.demand, streams)
        burst = plan.money.market.burst
        self.on_offer = None if burst is None else burst.hourly.on_offer(plan.hours, streams)
        self.rentals = Rentals(plan, streams)

    def run(self, window_edges_h: Sequence[int]) -> Run:
        """Run all windows between the given hours, the last being the end of the horizon.

        With a review there are further ends, before which nothing that it may decide can have an effect.
        """
        review = (
            Review(self.plan, self.supply, self.demand_requests)
            if self.plan.expansion.rules
            else None
        )
        waiting = tuple(np.zeros(workload.deadline_h) for workload in self.plan.workloads)
        inputs: list[WindowInput] = []
        windows: list[WindowResult] = []
        node_hours: list[NodeHours] = []
        first = last = 0
        while last < window_edges_h[-1]:
            last = self._end(last, window_edges_h, review)
            self.env.run(until=last)
            self.shop.work_until(last)
            is_end = self.watched or last in window_edges_h
            if is_end:
                self.histories.take_up(last)
            for begin, end, sizes in self._parts(first, last) if is_end else ():
                speed, incidents = self.histories.speeds(begin, end)
                lit, machines = self._node_hours(begin, end)
                demand, cap_kw = self._load(begin, end)
                window = WindowInput(
                    first_hour=begin,
                    demand_requests=demand,
                    nodes=machines.healthy,
                    speed=speed,
                    incidents=incidents,
                    waiting_requests=waiting,
                    lit_fraction=lit,
                    cap_kw=cap_kw,
                    replicas_before=windows[-1].replicas_after if windows else None,
                    sizes=sizes,
                )
                window, machines = self.rentals.hold(window, machines)
                inputs.append(window)
                windows.append(evaluate_window(self.plan, window))
                waiting = windows[-1].waiting_requests
                node_hours.append(machines)
            first = last if is_end else first
            edges = self.plan.month_edges_h
            ended = range(len(self.months), int(np.searchsorted(edges, last, side="right")) - 1)
            finished: Iterable[MonthFigures] = itertools.repeat(NOT_LOOKED_AT, len(ended))
            if self.watched and ended:
                begun = next(
                    n
                    for n, w in enumerate(windows)
                    if w.first_hour + w.nodes.shape[1] > edges[ended.start]
                )
                rented = rent_for_shed(self.plan, windows, self.on_offer).requests
                finished = _figures(self.plan, ended, windows[begun:], node_hours[begun:], rented)
            for figures in finished:
                self.months.append(figures)
                if review is not None:
                    review.close_month(figures)
        return Run(
            inputs=(*inputs,),
            windows=(*windows,),
            node_hours=(*node_hours,),
            log=self.log,
            shop=self.shop,
            on_offer=self.on_offer,
            offers=self.rentals.on_offer,
        )

    def _end(self, first: int, window_edges_h: Sequence[int], review: Review | None) -> int:
        """Return the hour at which a window that begins at ``first`` ends."""
        stated = next(edge for edge in window_edges_h if edge > first)
        if review is None:
            return stated
        months = self.plan.month_edges_h
        following = int(np.searchsorted(months, first, side="right"))
        unmoved = int(np.searchsorted(months, review.unmoved_until_h(), side="right")) - 1
        return min(stated, int(months[max(following, unmoved)]))

    def _parts(self, first: int, last: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Return the parts of a window in which no cluster changes its size, with the sizes."""
        if not self.plan.sizes:
            return [(first, last, ())]
        which = sizes_by_hour(
            self.plan, np.stack([course.by_hour(first, last) for course in self.histories.present])
        )
        cuts = 1 + np.flatnonzero(np.any(which[:, 1:] != which[:, :-1], axis=0))
        edges = [0, *cuts.tolist(), last - first]
        return [
            (first + begin, first + end, tuple(which[:, begin].tolist()))
            for begin, end in itertools.pairwise(edges)
        ]

    def _load(self, first: int, last: int) -> tuple[Floats, Floats | None]:
        """Return a part of the window's arrivals and the site's power cap, with what processes change of them."""
        demand = self.demand_requests[:, first:last]
        cap_kw = self.plan.site.cap_kw
        cap_kw = None if cap_kw is None else cap_kw[first:last]
        if self.log.effects:
            names = [workload.name for workload in self.plan.workloads]
            demand = demand + self.log.added_requests(names, first, last - first)
        hours = np.arange(first, last, dtype=np.float64)
        for effect in self.log.effects:
            within = quantities.open_fraction(hours, effect.start_h, effect.end_h)
            if (
                effect.kind == "curtailment" and within.any()
            ):  # an hour that it begins or ends in, as a whole
                before = np.full(hours.size, np.inf) if cap_kw is None else cap_kw
                cap_kw = np.where(within > 0.0, np.minimum(before, effect.amount), before)
        return demand, cap_kw

    def _node_hours(self, first: int, last: int) -> tuple[Floats | None, NodeHours]:
        """Return the powered share of each hour, None if always 1, and the nodes by state and hour.

        Of a part of the window, each averaged over its hour.
        """
        known = self.histories
        present, failed, taken = (
            np.stack([course.by_hour(first, last) for course in courses])
            for courses in (known.present, known.failed, known.taken)
        )
        np.clip(failed, 0.0, present, out=failed)
        np.clip(taken, 0.0, failed, out=taken)
        lit = None
        healthy = present - failed
        dark = np.zeros(present.shape)
        if events := [
            event for event in self.log.site if event.start_h < last and event.end_h > first
        ]:
            times = np.array(
                [time_h for event in events for time_h in event]
            )  # outages follow one another
            lit = steps_by_hour(times, np.tile([0.0, 1.0], len(events)), first, last - first)
            np.multiply(healthy, 1.0 - lit, out=dark, where=self.plan.on_site[:, None] > 0.0)
            healthy -= dark
        return lit, NodeHours(
            present=present, failed=failed, taken=taken, dark=dark, healthy=healthy
        )


def _figures(
    plan: Plan,
    months: range,
    windows: Sequence[WindowResult],
    node_hours: Sequence[NodeHours],
    rented: Floats,
) -> Iterator[MonthFigures]:
    """Yield the figures of finished months that the expansion review uses."""
    which = slice(months.start, months.stop)
    edges = [
        plan.month_edges_h[months.start : months.stop + 1] - window.first_hour for window in windows
    ]
    spans = [
        (number, place, slice(*span))
        for place, (window, hours) in enumerate(zip(windows, edges, strict=True))
        for number, span in enumerate(
            itertools.pairwise(np.clip(hours, 0, window.nodes.shape[1]).tolist())
        )
        if span[0] < span[1]
    ]
    """The parts of months that windows have: month, window, and its hours within that."""

    def totals(
        name: str, parts: Sequence[object] = windows, axis: int | tuple[int, ...] = 1
    ) -> Floats:
        """Return monthly sums of an hourly series of each window, shape (months, rows)."""
        series = [getattr(part, name) for part in parts]
        sums = np.zeros((len(months), series[0].shape[-2]))
        for number, place, hours in spans:
            sums[number] += series[place][..., hours].sum(axis=axis)
        return sums

    present, failed = (totals(name, node_hours) for name in ("present", "failed"))
    demand, refused, late = (totals(f"{fate}_requests") for fate in ("demand", "shed", "late"))
    served = totals("served_requests", axis=(0, 2))
    busy = totals("busy_nodes")
    shed = quantities.shed_requests(refused, rented[which])
    missed = quantities.missed_requests(late, shed)
    settled = quantities.settled_requests(served, refused)
    lost, asked = (
        np.array(
            [
                row @ tokens
                for row, tokens in zip(requests, plan.tokens_per_request[which], strict=True)
            ]
        )
        for requests in (shed, demand)
    )
    figures = (
        quantities.utilisation(busy, quantities.in_service(present, failed)),
        quantities.shed_share(lost, asked),
        1.0 - quantities.attainment(missed.sum(axis=1), settled.sum(axis=1)),
    )
    # A month without machines or requests gives no reason to act: nothing to divide by counts as nothing.
    for utilisation, shed_fraction, missed_fraction in zip(
        *(np.nan_to_num(f).tolist() for f in figures), strict=True
    ):
        by_cluster = {
            cluster.name: use for cluster, use in zip(plan.clusters, utilisation, strict=True)
        }
        yield MonthFigures(
            utilisation=by_cluster, shed_fraction=shed_fraction, missed_fraction=missed_fraction
        )


@functools.lru_cache(maxsize=1)
def _demand_requests(demand: DemandPlan, streams: Streams) -> Floats:
    """Return the requests of each hour, shape (workloads, hours), read-only and shared by plans of one seed."""
    requests = hourly_requests_per_s(demand, streams).T
    requests *= SECONDS_PER_HOUR
    requests.flags.writeable = False
    return requests


def run_plan(
    plan: Plan,
    seed: int,
    replication: int = 0,
    window_h: int | None = None,
    processes: Sequence[Process] = (),
) -> Run:
    """Run one replication of a plan, with the user's own processes.

    Windows end with the months where a process looks at them, where a review may have had an effect, and with the
    horizon; ``window_h`` adds further ends, every so many hours.
    """
    keep_memory()
    edges = {0, plan.hours}
    if processes or plan.processes:
        edges.update(plan.month_edges_h.tolist())
    if window_h is not None:
        edges.update(range(0, plan.hours, window_h))
    return Simulation(plan, streams_of(seed, replication), processes).run(sorted(edges))


Pair = tuple[int, int]
"""A cluster and a workload."""
Step = tuple[float, float, int]
"""A change of speed: when, by how much in its logarithm, and the incident behind it, -1 for none."""


class Course:
    """A piecewise constant quantity: its level at the start of a window, and its steps within."""

    def __init__(self, level: float) -> None:
        self.before = level
        self.times_h = self.levels = np.zeros(0)
        """Of the window's steps in time order: when, and the level from then on."""
        self.had_moved = False
        """Whether it had any step before the window."""

    @property
    def level(self) -> float:
        """The level at the window's end."""
        return float(self.levels[-1]) if self.levels.size else self.before

    def go_on(self, times_h: Sequence[float] | Floats, levels: Sequence[float] | Floats) -> None:
        """Start the next window with these steps."""
        if self.levels.size:
            self.before = self.level
            self.had_moved = True
        self.times_h, self.levels = (
            np.asarray(times_h, dtype=np.float64),
            np.asarray(levels, dtype=np.float64),
        )

    def has_moved(self, by_h: float) -> bool:
        """Return whether it has had any step before a time in the window."""
        return self.had_moved or bool(self.levels.size and self.times_h[0] < by_h)

    def by_hour(self, first: int, last: int) -> Floats:
        """Return its mean in each hour of a part of the window."""
        if not self.levels.size:
            return np.full(last - first, self.before)
        return steps_by_hour(self.times_h, self.levels, first, last - first, before=self.before)


class _Speed:
    """The speed of a cluster on a workload, and its speed under incidents alone."""

    def __init__(self) -> None:
        self.speed, self.slowed = Course(1.0), Course(1.0)
        self.logs = [0.0, 0.0]
        """The logarithms that they stand at."""

    def go_on(self, steps: Sequence[Step]) -> None:
        """Start a window with these changes; speed returns to exactly 1 when every incident is fixed."""
        incidents = [step for step in steps if step[2] >= 0]
        for which, course, chosen in ((0, self.speed, steps), (1, self.slowed, incidents)):
            logs = [
                *itertools.accumulate((factor for _, factor, _ in chosen), initial=self.logs[which])
            ]
            self.logs[which] = logs[-1]
            course.go_on(
                [step[0] for step in chosen], [math.exp(round(log, 12)) for log in logs[1:]]
            )

    def slowdown(self, first: int, last: int) -> SpeedLoss | None:
        """Return the hours slowed by open incidents in a part of the window; None where there are none."""
        slowed = self.slowed
        steps = slice(slowed.times_h.searchsorted(last))
        times = [0.0, *slowed.times_h[steps].tolist(), float(last)]
        levels = [slowed.before, *slowed.levels[steps].tolist()]
        slow = [
            span
            for span, level in zip(itertools.pairwise(times), levels, strict=True)
            if level != 1.0
        ]
        hours = hours_within(slow, first, last - first)
        if not hours.size:
            return None
        return SpeedLoss(hours=hours, lost_fraction=1.0 - slowed.by_hour(first, last)[hours])


class Histories:
    """Speeds by cluster and workload, and nodes by cluster, window after window."""

    def __init__(
        self,
        plan: Plan,
        log: ChangeLog,
        shop: RepairShop | RepairShopProcess,
        *,
        has_processes: bool,
    ) -> None:
        self.log = log
        self.shop = shop
        software = plan.software
        self.twins: dict[Pair, Pair] = {}
        """For each cluster and workload the first that shares its history of speed. Clusters of one stack and workloads
        of one model do, but for precision, for the roofline and the date of the first image, which decide what releases
        gain, and for bring-ups, which each part has of its own."""
        first: dict[tuple[str, str, int, str, float, tuple[float, ...]], Pair] = {}
        for w, workload in enumerate(plan.workloads):
            for c in workload.cluster_order:
                cluster = plan.clusters[c]
                wide = float(software.wide_precision_factor[c, w])
                apart = (-1, "") if workload.launch_h is None else (w, cluster.accelerator)
                apart = (
                    (w, cluster.name) if has_processes else apart
                )  # which may slow any of them alone
                ends = (
                    float(software.roofline_log_gain[c, w]),
                    float(software.dated_log_gain[c, w]),
                )
                course = (*ends, software.clock_h[c])
                key = (
                    str(software.stack_of[c, w]),
                    workload.model,
                    *apart,
                    -1.0 if math.isnan(wide) else wide,
                    course,
                )
                self.twins[c, w] = first.setdefault(key, (c, w))
        self._speeds = {twin: _Speed() for twin in self.twins.values()}
        self.present, self.failed, self.taken = (
            [Course(0.0) for _ in plan.clusters] for _ in range(3)
        )
        """By cluster, nodes delivered and not retired, those out of service, and those that a user's process has."""
        self._per_node = np.array([cluster.accelerators_per_node for cluster in plan.clusters])
        self._per_group = np.array([float(cluster.group_accelerators) for cluster in plan.clusters])
        self._retire_h = np.array([cluster.retire_h for cluster in plan.clusters])
        self._until_h = -math.inf
        """Up to when everything is taken up."""
        self._software: list[SoftwareEvent] = []
        self._changes: list[Change] = []
        """What is known ahead of its time; and how much of the log has been read."""
        self._read_software = self._read_changes = 0
        self._open: list[OutageRow] = []
        """Outages that have not ended; and how many are known at all."""
        self._outages = 0

    def take_up(self, until_h: float) -> None:
        """Start a window with all logged events before its end."""
        self._software += self.log.software[self._read_software :]
        self._read_software = len(self.log.software)
        steps: dict[Pair, list[Step]] = {twin: [] for twin in self._speeds}
        due = (event for event in self._software if event.time_h < until_h)
        for event in sorted(due, key=lambda event: event.time_h):
            for pair, factor in zip(event.pairs, event.log_factors, strict=True):
                if factor != 0.0 and pair in steps:
                    steps[pair].append((event.time_h, factor, event.incident))
        self._software = [event for event in self._software if event.time_h >= until_h]
        for twin, speed in self._speeds.items():
            speed.go_on(steps[twin])
        self._changes += self.log.changes[self._read_changes :]
        self._read_changes = len(self.log.changes)
        changes = sorted(change for change in self._changes if change.time_h < until_h)
        self._changes = [change for change in self._changes if change.time_h >= until_h]
        for index, (course, per_node) in enumerate(
            zip(self.present, self._per_node.tolist(), strict=True)
        ):
            moves = [change for change in changes if change.cluster == index]
            counts = itertools.accumulate(
                (change.accelerators / per_node for change in moves), initial=course.level
            )
            course.go_on([change.time_h for change in moves], list(counts)[1:])
        # When those outages begin and end that are new, or had not ended.
        rows = self._open + self.shop.rows[self._outages :]
        self._outages = len(self.shop.rows)
        cluster = np.array([row.claim.cluster for row in rows], dtype=np.intp)
        times_h = np.array([row.start_h for row in rows] + [row.end_h for row in rows])
        np.minimum(times_h, np.tile(self._retire_h[cluster], 2), out=times_h)
        self._open = [
            row
            for row, end_h in zip(rows, times_h[len(rows) :].tolist(), strict=True)
            if end_h >= until_h
        ]
        ends = np.flatnonzero((times_h >= self._until_h) & (times_h < until_h))
        ends = ends[np.argsort(times_h[ends], kind="stable")]
        groups = np.array([row.groups for row in rows], dtype=np.intp)
        nodes = groups * self._per_group[cluster] / self._per_node[cluster]
        times_h = times_h[ends]
        owner = np.tile(cluster, 2)[ends]
        deltas = np.concatenate((nodes, -nodes))[ends]
        by_process = np.tile([row.claim.severity == "" for row in rows], 2).astype(bool)[ends]
        for courses, which in ((self.failed, np.ones_like(by_process)), (self.taken, by_process)):
            for index, course in enumerate(courses):
                here = np.flatnonzero((owner == index) & which)
                course.go_on(
                    times_h[here], np.cumsum(np.concatenate(([course.level], deltas[here])))[1:]
                )
        self._until_h = until_h

    def speeds(self, first: int, last: int) -> tuple[dict[Pair, Floats], dict[Pair, SpeedLoss]]:
        """Return speed over day one, and its loss to open incidents, for pairs where either has changed.

        Of a part of the window, shape (hours,) each.
        """
        moved = {
            twin: course for twin, course in self._speeds.items() if course.speed.has_moved(last)
        }
        speed = {twin: course.speed.by_hour(first, last) for twin, course in moved.items()}
        slowed = {twin: course.slowdown(first, last) for twin, course in moved.items()}
        return (
            {pair: speed[twin] for pair, twin in self.twins.items() if twin in speed},
            {
                pair: slow
                for pair, twin in self.twins.items()
                if (slow := slowed.get(twin)) is not None
            },
        )


_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
_M_TRIM_THRESHOLD = -1
_M_ARENA_MAX = -8
_LARGEST = 2**31 - 1
_MADV_HUGEPAGE = 14  # sys/mman.h of Linux
_HUGE_PAGE_BYTES = 2**21
_HUGE_BYTES = 2**26
"""Memory that is asked for in huge pages: a replication's, and room beside it. What is not used is never fetched."""


@functools.cache
def keep_memory() -> bool:
    """Configure the C library, once, to reuse freed memory for the next replication.

    A replication allocates and frees some tens of megabytes of hourly arrays; fetching them afresh costs it a quarter
    of its time in page faults. All threads share what is kept: one that a server works in would give back its own.
    Only glibc can be asked; elsewhere nothing happens. Returns whether it was.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        options = library.mallopt
    except (AttributeError, OSError):  # musl has no mallopt
        return False
    asked = ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, _LARGEST), (_M_ARENA_MAX, 1))
    if not all(options(*option) for option in asked):
        return False
    # What it will hand out next comes in pages of 2 MB: a replication, a fork's too, fetches its memory in tens of
    # steps and not in thousands, which takes a thirtieth off its time. The array is let go at once, and its place kept.
    with contextlib.suppress(MemoryError):  # a system that promises no more than it has
        place = np.empty(_HUGE_BYTES, dtype=np.uint8)
        begin = -(-place.ctypes.data // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        size = place.ctypes.data + _HUGE_BYTES - begin
        library.madvise(
            ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_HUGEPAGE
        )  # one that has none says so
    return True


def fetch_memory(size_bytes: int) -> None:
    """Allocate memory ahead of use where it is reused, so that page faults do not delay a run."""
    if keep_memory():
        np.empty(size_bytes, dtype=np.uint8).fill(0)
