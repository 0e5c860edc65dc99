"""A window of hours: what it brings, and what it yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """The hours of a window in which incidents slow a cluster on a workload."""

    hours: Ints
    """Within the window, shape (some hours,)."""
    lost_fraction: Floats
    """Share of speed lost in each, shape (some hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowInput:
    """What the window's hours bring; arrays have the window's hours as last axis."""

    first_hour: int
    demand_requests: Floats
    """Arrivals, shape (workloads, hours)."""
    nodes: Floats
    """Healthy nodes with power, shape (clusters, hours)."""
    speed: Mapping[tuple[int, int], Floats]
    """Speed of a cluster on a workload against day one, where it differs from 1, shape (hours,)."""
    incidents: Mapping[tuple[int, int], Slowdown]
    """What open incidents take of that speed, where there are any."""
    waiting_requests: tuple[Floats, ...]
    """Per workload, requests still waiting by hour of arrival, oldest first, shape (deadline,)."""
    lit_fraction: Floats | None = None
    """Share of each hour in which the site has power, shape (hours,); None where it always has. ``nodes`` are means
    over the whole hour, so those on site fall with it."""
    carried_requests: Mapping[tuple[int, int], Floats] = field(default_factory=dict)
    """Arrivals while the site is dark for which a provider's machines have room, by cluster and workload, shape
    (hours,); none where the site is never dark or nothing stands elsewhere."""
    replicas_before: Floats | None = None
    """Replicas of each deployment in the hour before the window, shape (deployments,); None at the start."""
    awake_before: Floats | None = None
    """Nodes on and parked in the hour before, shape (2, clusters or pools); None at the start and without parking."""

    sizes: tuple[int, ...] = ()
    """By cluster, which of its sizes in the plan it has, −1 for that of the plan; none where no rule resizes any."""

    @property
    def hours(self) -> slice:
        """The window's hours within the horizon."""
        return slice(self.first_hour, self.first_hour + self.nodes.shape[1])

    def reached_requests(self, workload: int) -> Floats:
        """Return the arrivals of a workload that find machines with power, shape (hours,): all but the dark ones."""
        came: Floats = self.demand_requests[workload]
        if self.lit_fraction is None:
            return came
        return came * self.lit_fraction + sum(self.carried_by(workload).values())

    def dark_requests(self, workload: int) -> Floats | float:
        """Return the arrivals of a workload that an outage of the site loses, shape (hours,); 0 where there is none.

        Requests come evenly within an hour, so demand × dark share come in the dark. Machines that are lit for the rest
        of the hour cannot serve them, however much room they have: who cannot wait is gone, but for those whom machines
        elsewhere carry.
        """
        if self.lit_fraction is None:
            return 0.0
        dark: Floats = self.demand_requests[workload] * (1.0 - self.lit_fraction)
        return np.maximum(dark - sum(self.carried_by(workload).values()), 0.0)

    def carried_by(self, workload: int) -> dict[int, Floats]:
        """Return what each of a provider's clusters carries of a workload in the dark, shape (hours,)."""
        return {c: requests for (c, w), requests in self.carried_requests.items() if w == workload}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drag:
    """What slow software cost a cluster on a workload."""

    hours: Ints
    """Within the window, shape (some hours,)."""
    nodes: Floats
    """Node-equivalents at work for nothing in each, shape (some hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Hourly arrays of one window."""

    first_hour: int
    demand_requests: Floats
    """Shape (workloads, hours)."""
    served_requests: Floats
    """Shape (clusters, workloads, hours)."""
    late_requests: Floats
    """Served, but not in time, shape (workloads, hours)."""
    shed_requests: Floats
    """Refused or expired, shape (workloads, hours)."""
    waiting_requests: tuple[Floats, ...]
    """Per workload, what still waits at the end, by hour of arrival, oldest first."""
    nodes: Floats
    """Healthy nodes with power, shape (clusters, hours)."""
    busy_nodes: Floats
    """Node-equivalents at work, shape (clusters, hours)."""
    drag_nodes: Floats
    """Of those, what open software incidents cost, shape (clusters, hours)."""
    drags: Mapping[tuple[int, int], Drag]
    """The same by cluster and workload, where there is any."""
    throttled_nodes: Floats
    """Node-equivalents that had work and lost it to the power cap, shape (clusters, hours)."""
    it_kw: Floats
    """Shape (clusters, hours)."""
    facility_kw: Floats
    """IT, cooling and distribution, shape (hours,)."""
    replicas: Floats
    """Whole replicas of each deployment where they count, 0 elsewhere, shape (deployments, hours)."""
    loading_nodes: Floats
    """Nodes that load weights, mean of the hour, of the same shape."""
    slower_requests: Mapping[tuple[int, int], Floats] = field(default_factory=dict)
    """By cluster and workload, what the machines would have served beyond what they did, had all of it been served in
    the layout that is best for it alone; shape (hours,). Only where some was served in another."""
    parked_nodes: Floats | None = None
    """Nodes that are parked, or still waking, mean of the hour, shape (clusters, hours); None where none are parked."""
    woken_nodes: Floats | None = None
    """Nodes woken from parking, shape (clusters, hours); None where none are parked."""
    awake_after: Floats | None = None
    """What the next window has as ``awake_before``."""

    @property
    def replicas_after(self) -> Floats:
        """Replicas in the last hour, shape (deployments,)."""
        return self.replicas[:, -1]
