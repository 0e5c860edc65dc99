"""Histories of the fleet: nodes by cluster and speeds by cluster and workload, window after window.

Events come from the log as changes at a moment; a window needs their mean in each of its hours. What a history has come
to by a window's end is a single level, so a long run never goes through its early events again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import SpeedLoss
from planner.engine.log import Change, ChangeLog, SoftwareEvent
from planner.engine.repair_shop import OutageRow, RepairShop
from planner.engine.scan import hours_within, steps_by_hour
from planner.plan.plan import Plan

Pair = tuple[int, int]
"""A cluster and a workload."""


class StepFunction:
    """A piecewise constant quantity: its level at the start of a window, and its steps within."""

    def __init__(self, level: float) -> None:
        self.opening_level = level
        self.times_h = np.zeros(0)
        """When each step of the window comes, in time order."""
        self.levels = np.zeros(0)
        """The level from each step on."""
        self.has_past_steps = False
        """Whether it had any step before the window."""

    @property
    def closing_level(self) -> float:
        """The level at the window's end."""
        if self.levels.size:
            return float(self.levels[-1])
        return self.opening_level

    def start_window(
        self, times_h: Sequence[float] | Floats, levels: Sequence[float] | Floats
    ) -> None:
        """Start the next window with these steps."""
        # What came before is one level: a window never goes through the steps of earlier ones.
        if self.levels.size:
            self.opening_level = self.closing_level
            self.has_past_steps = True
        self.times_h = np.asarray(times_h, dtype=np.float64)
        self.levels = np.asarray(levels, dtype=np.float64)

    def has_stepped(self, by_h: float) -> bool:
        """Return whether it has had any step before a time in the window."""
        is_new = self.levels.size > 0 and self.times_h[0] < by_h
        return self.has_past_steps or bool(is_new)

    def by_hour(self, begin: int, end: int) -> Floats:
        """Return its mean in each hour of a part of the window."""
        hours = end - begin
        if not self.levels.size:
            return np.full(hours, self.opening_level)
        opening = self.opening_level
        return steps_by_hour(self.times_h, self.levels, begin, hours, opening_level=opening)


class SpeedStep(NamedTuple):
    """A change of speed of a cluster on a workload."""

    time_h: float
    log_factor: float
    incident: int
    """The incident behind it, -1 for none."""


class SpeedHistory:
    """The speed of a cluster on a workload, and its speed under incidents alone."""

    def __init__(self) -> None:
        self.speed = StepFunction(1.0)
        self.incident_speed = StepFunction(1.0)
        self.log_speed = 0.0
        self.log_incident_speed = 0.0

    def start_window(self, steps: Sequence[SpeedStep]) -> None:
        """Start the next window with these changes."""
        incident_steps = [step for step in steps if step.incident >= 0]
        self.log_speed = _start_speed(self.speed, self.log_speed, steps)
        log_speed = self.log_incident_speed
        self.log_incident_speed = _start_speed(self.incident_speed, log_speed, incident_steps)

    def slowdown(self, begin: int, end: int) -> SpeedLoss | None:
        """Return the hours slowed by open incidents in a part of the window; None where there are none."""
        history = self.incident_speed
        # Steps after this part of the window slow nothing in it.
        step_count = int(history.times_h.searchsorted(end))
        steps_h = history.times_h[:step_count].tolist()
        step_levels = history.levels[:step_count].tolist()
        levels = [history.opening_level, *step_levels]
        spans_h = itertools.pairwise([0.0, *steps_h, float(end)])
        # Exactly 1, since speeds are rounded to it where nothing is open.
        slow_spans_h = []
        for span_h, level in zip(spans_h, levels, strict=True):
            if level != 1.0:
                slow_spans_h.append(span_h)
        hours = hours_within(slow_spans_h, begin, end - begin)
        if not hours.size:
            return None
        speed = history.by_hour(begin, end)[hours]
        return SpeedLoss(hours=hours, lost_fraction=1.0 - speed)


def _start_speed(history: StepFunction, log_level: float, steps: Sequence[SpeedStep]) -> float:
    """Start a window of a speed with these changes; return the logarithm that it comes to."""
    log_levels = [log_level]
    for step in steps:
        log_levels.append(log_levels[-1] + step.log_factor)
    # Rounded, so that speed returns to exactly 1 when every incident is fixed: sums of logarithms leave a rest.
    speeds = [math.exp(round(log_level, 12)) for log_level in log_levels[1:]]
    times_h = [step.time_h for step in steps]
    history.start_window(times_h, speeds)
    return log_levels[-1]


def speed_twins(plan: Plan, *, has_processes: bool) -> dict[Pair, Pair]:
    """Return for each cluster and workload the first that shares its history of speed.

    Clusters of one stack and workloads of one model do, but for precision, for the roofline and the date of the first
    image, which decide what releases gain, and for bring-ups, which each accelerator has of its own. A user's process
    may slow any pair by itself.
    """
    software = plan.software
    pair_of_history: dict[tuple[object, ...], Pair] = {}
    twins: dict[Pair, Pair] = {}
    for w, workload in enumerate(plan.workloads):
        for c in workload.cluster_order:
            cluster = plan.clusters[c]
            separate: tuple[int, str] = (-1, "")
            if has_processes:
                separate = (w, cluster.name)
            elif workload.launch_h is not None:
                separate = (w, cluster.accelerator)
            wide = float(software.wide_precision_factor[c, w])
            if math.isnan(wide):
                wide = -1.0  # NaN is no key: it equals nothing, itself included
            history_key = (
                str(software.stack_of[c, w]),
                workload.model,
                separate,
                wide,
                float(software.roofline_log_gain[c, w]),
                float(software.dated_log_gain[c, w]),
                software.clock_h[c],
            )
            # The first pair of a history stands for all: speeds are worked out once for each.
            twins[c, w] = pair_of_history.setdefault(history_key, (c, w))
    return twins


class Histories:
    """Speeds by cluster and workload, and nodes by cluster, window after window."""

    def __init__(
        self, plan: Plan, log: ChangeLog, shop: RepairShop, *, has_processes: bool
    ) -> None:
        self.log = log
        self.shop = shop
        self.twins = speed_twins(plan, has_processes=has_processes)
        self._speeds = {twin: SpeedHistory() for twin in self.twins.values()}
        self.present = [StepFunction(0.0) for _ in plan.clusters]
        """By cluster, nodes delivered and not retired."""
        self.failed = [StepFunction(0.0) for _ in plan.clusters]
        """By cluster, nodes out of service."""
        self.taken_out = [StepFunction(0.0) for _ in plan.clusters]
        """By cluster, nodes that a user's process has taken out of service."""
        clusters = plan.clusters
        self._node_size = np.array([cluster.accelerators_per_node for cluster in clusters])
        self._group_size = np.array([float(cluster.group_accelerators) for cluster in clusters])
        self._retire_h = np.array([cluster.retire_h for cluster in clusters])
        self._window_end_h = -math.inf
        self._future_software: list[SoftwareEvent] = []
        """Logged ahead of their time."""
        self._future_changes: list[Change] = []
        """Logged ahead of their time."""
        self._open_outages: list[OutageRow] = []
        """Those that had not ended by the end of the window."""
        self._software_count = 0
        self._change_count = 0
        self._outage_count = 0
        """How much of each log has been read."""

    def start_window(self, end_h: float) -> None:
        """Start a window with all logged events before its end."""
        self._start_speeds(end_h)
        self._start_deliveries(end_h)
        self._start_outages(end_h)
        self._window_end_h = end_h

    def _start_speeds(self, end_h: float) -> None:
        new_events = self.log.software[self._software_count :]
        events = self._future_software + new_events
        self._software_count = len(self.log.software)
        self._future_software = [event for event in events if event.time_h >= end_h]
        due = [event for event in events if event.time_h < end_h]
        steps: dict[Pair, list[SpeedStep]] = {twin: [] for twin in self._speeds}
        # Stable: events of one moment stay in the order in which they were logged.
        for event in sorted(due, key=lambda event: event.time_h):
            for pair, log_factor in zip(event.pairs, event.log_factors, strict=True):
                # Only the first of all twins has a history; a factor of 0 is no step.
                if log_factor != 0.0 and pair in steps:
                    step = SpeedStep(event.time_h, log_factor, event.incident)
                    steps[pair].append(step)
        for twin, history in self._speeds.items():
            history.start_window(steps[twin])

    def _start_deliveries(self, end_h: float) -> None:
        new_changes = self.log.changes[self._change_count :]
        changes = self._future_changes + new_changes
        self._change_count = len(self.log.changes)
        self._future_changes = [change for change in changes if change.time_h >= end_h]
        due = sorted(change for change in changes if change.time_h < end_h)
        for cluster, history in enumerate(self.present):
            moves = [change for change in due if change.cluster == cluster]
            size = int(self._node_size[cluster])
            level = history.closing_level
            levels = []
            for change in moves:
                level += change.accelerators / size
                levels.append(level)
            times_h = [change.time_h for change in moves]
            history.start_window(times_h, levels)

    def _start_outages(self, end_h: float) -> None:
        """Start a window of the nodes out of service, from outages that are new or had not ended."""
        new_rows = self.shop.rows[self._outage_count :]
        rows = self._open_outages + new_rows
        self._outage_count = len(self.shop.rows)
        cluster = np.array([row.claim.cluster for row in rows], dtype=np.intp)
        # Begins first, then ends: one array, of which a stable sort keeps a begin before an end of the same moment.
        begins_h = [row.start_h for row in rows]
        ends_h = [row.end_h for row in rows]
        times_h = np.array(begins_h + ends_h)
        # What is down when its cluster leaves is out of service no more.
        retire_h = np.tile(self._retire_h[cluster], 2)
        np.minimum(times_h, retire_h, out=times_h)
        ends_h = times_h[len(rows) :].tolist()
        self._open_outages = [
            row for row, time_h in zip(rows, ends_h, strict=True) if time_h >= end_h
        ]
        is_due = times_h < end_h
        is_in_window = is_due & (times_h >= self._window_end_h)
        moments = np.flatnonzero(is_in_window)
        order = np.argsort(times_h[moments], kind="stable")
        moments = moments[order]
        groups = np.array([len(row.groups) for row in rows], dtype=np.intp)
        accelerators = groups * self._group_size[cluster]
        nodes = accelerators / self._node_size[cluster]
        node_steps = np.concatenate((nodes, -nodes))[moments]
        owner = np.tile(cluster, 2)[moments]
        # A claim without a severity is a process's; the type is stated for windows without any row.
        by_process = np.array([row.claim.severity == "" for row in rows], dtype=bool)
        by_process = np.tile(by_process, 2)[moments]
        times_h = times_h[moments]
        # Cluster by cluster, since a step function is one cluster's; few outages make masks cheap.
        for c in range(len(self.failed)):
            on_cluster = owner == c
            taken_out = on_cluster & by_process
            for history, chosen in ((self.failed[c], on_cluster), (self.taken_out[c], taken_out)):
                # The level before goes first, so that sums are the levels themselves.
                steps = np.concatenate(([history.closing_level], node_steps[chosen]))
                levels = np.cumsum(steps)
                history.start_window(times_h[chosen], levels[1:])

    def speeds(self, begin: int, end: int) -> tuple[dict[Pair, Floats], dict[Pair, SpeedLoss]]:
        """Return speed over day one, and its loss to open incidents, for pairs where either has changed.

        Of a part of the window, shape (hours,) each.
        """
        speed: dict[Pair, Floats] = {}
        losses: dict[Pair, SpeedLoss] = {}
        for twin, history in self._speeds.items():
            # A pair that never changed is left out: the window then takes its rate as it is planned.
            if history.speed.has_stepped(end):
                speed[twin] = history.speed.by_hour(begin, end)
                loss = history.slowdown(begin, end)
                if loss is not None:
                    losses[twin] = loss
        twins = self.twins.items()
        speed_by_pair = {pair: speed[twin] for pair, twin in twins if twin in speed}
        loss_by_pair = {pair: losses[twin] for pair, twin in twins if twin in losses}
        return speed_by_pair, loss_by_pair
