"""What is known of speeds and machines, as it becomes known: steps in time, and their means by hour.

A run of several windows asks for each of them. What happened before a window is settled, and kept as the level at which
the window begins: a long horizon is not gone through from its beginning again for each few months of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import Slowdown
from planner.engine.log import Change, ChangeLog, SoftwareEvent
from planner.engine.open_shop import OpenShop
from planner.engine.repair_shop import RepairShop
from planner.engine.scan import hours_within, steps_by_hour
from planner.plan.plan import Plan

Pair = tuple[int, int]
"""A cluster and a workload."""
Step = tuple[float, float, int]
"""A change of speed: when, by how much in its logarithm, and the incident behind it, -1 for none."""


class Course:
    """A level that moves in steps: where a window finds it, and its steps within."""

    def __init__(self, level: float) -> None:
        self.before = level
        self.times_h = self.levels = np.zeros(0)
        """Of the window's steps in time order: when, and the level from then on."""
        self.had_moved = False
        """Whether it had any step before the window."""

    @property
    def level(self) -> float:
        """Where it stands at the window's end."""
        return float(self.levels[-1]) if self.levels.size else self.before

    def go_on(self, times_h: Sequence[float] | Floats, levels: Sequence[float] | Floats) -> None:
        """Begin the next window, which has these steps."""
        if self.levels.size:
            self.before, self.had_moved = self.level, True
        self.times_h, self.levels = np.asarray(times_h, dtype=np.float64), np.asarray(levels, dtype=np.float64)

    def has_moved(self, by_h: float) -> bool:
        """Say whether it has had any step before a moment of the window."""
        return self.had_moved or bool(self.levels.size and self.times_h[0] < by_h)

    def by_hour(self, first: int, last: int) -> Floats:
        """Return its mean over each hour of a part of the window."""
        if not self.levels.size:
            return np.full(last - first, self.before)
        return steps_by_hour(self.times_h, self.levels, first, last - first, before=self.before)


class _Speed:
    """The speed of a cluster on a workload, and what it would be for its incidents alone."""

    def __init__(self) -> None:
        self.speed, self.slowed = Course(1.0), Course(1.0)
        self.logs = [0.0, 0.0]
        """The logarithms that they stand at."""

    def go_on(self, steps: Sequence[Step]) -> None:
        """Begin a window with these changes; speed is exactly 1 again when everything that slowed it is fixed."""
        incidents = [step for step in steps if step[2] >= 0]
        for which, course, chosen in ((0, self.speed, steps), (1, self.slowed, incidents)):
            logs = [*itertools.accumulate((factor for _, factor, _ in chosen), initial=self.logs[which])]
            self.logs[which] = logs[-1]
            course.go_on([step[0] for step in chosen], [math.exp(round(log, 12)) for log in logs[1:]])

    def slowdown(self, first: int, last: int) -> Slowdown | None:
        """Return the hours of a part of the window that open incidents slow; None where there are none."""
        slowed = self.slowed
        steps = slice(slowed.times_h.searchsorted(last))
        times = [0.0, *slowed.times_h[steps].tolist(), float(last)]
        levels = [slowed.before, *slowed.levels[steps].tolist()]
        slow = [span for span, level in zip(itertools.pairwise(times), levels, strict=True) if level != 1.0]
        hours = hours_within(slow, first, last - first)
        if not hours.size:
            return None
        return Slowdown(hours=hours, lost_fraction=1.0 - slowed.by_hour(first, last)[hours])


class Histories:
    """Speeds by cluster and workload, and machines by cluster, window after window."""

    def __init__(self, plan: Plan, log: ChangeLog, shop: RepairShop | OpenShop) -> None:
        self.log, self.shop = log, shop
        self.twins = _twins(plan)
        self._speeds = {twin: _Speed() for twin in self.twins.values()}
        self.present, self.failed = ([Course(0.0) for _ in plan.clusters] for _ in range(2))
        """By cluster, nodes delivered and not retired, and those out of service for a hardware fault."""
        self._per_node = np.array([cluster.accelerators_per_node for cluster in plan.clusters])
        self._per_group = np.array([float(cluster.group_accelerators) for cluster in plan.clusters])
        self._retire_h = np.array([cluster.retire_h for cluster in plan.clusters])
        self._until_h = -math.inf
        """Up to when everything is taken up."""
        self._software: list[SoftwareEvent] = []
        self._changes: list[Change] = []
        """What is known ahead of its time; and how much of the log has been read."""
        self._read_software = self._read_changes = 0
        self._open: list[int] = []
        """Outages that have not ended; and how many are known at all."""
        self._outages = 0

    def take_up(self, until_h: float) -> None:
        """Begin a window with all that happens before its end, which has to be known by now."""
        self._take_up_software(until_h)
        self._take_up_changes(until_h)
        self._take_up_outages(until_h)
        self._until_h = until_h

    def _take_up_software(self, until_h: float) -> None:
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

    def _take_up_changes(self, until_h: float) -> None:
        self._changes += self.log.changes[self._read_changes :]
        self._read_changes = len(self.log.changes)
        due = sorted(change for change in self._changes if change.time_h < until_h)
        self._changes = [change for change in self._changes if change.time_h >= until_h]
        for index, (course, per_node) in enumerate(zip(self.present, self._per_node.tolist(), strict=True)):
            here = [change for change in due if change.cluster == index]
            nodes = itertools.accumulate((change.accelerators / per_node for change in here), initial=course.level)
            course.go_on([change.time_h for change in here], list(nodes)[1:])

    def _take_up_outages(self, until_h: float) -> None:
        """Take up when those outages begin and end that are new, or had not ended."""
        down = self.shop.outage_arrays(self._open, self._outages)
        rows = np.concatenate((np.array(self._open, dtype=np.int64), np.arange(self._outages, self.shop.outage_count)))
        self._outages = self.shop.outage_count
        times_h = np.concatenate((down.start_h, down.end_h))
        np.minimum(times_h, np.tile(self._retire_h[down.cluster], 2), out=times_h)
        self._open = rows[times_h[rows.size :] >= until_h].tolist()
        due = np.flatnonzero((times_h >= self._until_h) & (times_h < until_h))
        due = due[np.argsort(times_h[due], kind="stable")]
        nodes = down.groups * self._per_group[down.cluster] / self._per_node[down.cluster]
        times_h, owner, deltas = times_h[due], np.tile(down.cluster, 2)[due], np.concatenate((nodes, -nodes))[due]
        for index, course in enumerate(self.failed):
            here = np.flatnonzero(owner == index)
            levels = np.cumsum(np.concatenate(([course.level], deltas[here])))
            course.go_on(times_h[here], levels[1:])

    def speeds(self, first: int, last: int) -> tuple[dict[Pair, Floats], dict[Pair, Slowdown]]:
        """Return speed against day one, and what open incidents take of it, where there is any of either.

        Of a part of the window, shape (hours,) each.
        """
        moved = {twin: course for twin, course in self._speeds.items() if course.speed.has_moved(last)}
        speed = {twin: course.speed.by_hour(first, last) for twin, course in moved.items()}
        slowed = {twin: course.slowdown(first, last) for twin, course in moved.items()}
        return (
            {pair: speed[twin] for pair, twin in self.twins.items() if twin in speed},
            {pair: slow for pair, twin in self.twins.items() if (slow := slowed.get(twin)) is not None},
        )


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
