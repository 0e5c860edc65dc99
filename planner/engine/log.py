"""The change log: all output of the SimPy processes."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.plan.quantities import open_fraction
from planner.units import SECONDS_PER_HOUR


class Change(NamedTuple):
    """One change of the number of accelerators in service."""

    time_h: float
    kind: str
    """delivered or retired."""
    cluster: int
    accelerators: int
    """Accelerators that enter (positive) or leave (negative)."""
    detail: str
    purchase: int = -1
    """Position in the log of the purchase that those who enter belong to."""


class Outage(NamedTuple):
    """Accelerators out of service from a failure until their repair."""

    start_h: float
    end_h: float
    cluster: int
    node: int
    accelerators: int
    cause: str
    severity: str
    """Of its repair; "domain" where what fails takes several nodes, "planned" for nodes drained, empty for those that a
    process took out."""
    wait_h: float
    """Hours of it spent waiting for a crew or a part."""


class SoftwareEvent(NamedTuple):
    """A change of a stack's speed from a moment on."""

    time_h: float
    pairs: tuple[tuple[int, int], ...]
    """Clusters and workloads it concerns."""
    log_factors: tuple[float, ...]
    """What the logarithm of speed changes by, for each pair."""
    kind: str
    incident: int
    """Number that ties the end of an incident to its beginning; -1 for a release, which has no end."""
    process: str = ""
    """The user's process that slows it; empty for software."""


class SpeedChange(NamedTuple):
    """The effect of a software event on one cluster's speed for one workload."""

    time_h: float
    cluster: int
    workload: int
    log_factor: float
    kind: str
    incident: int
    process: str


class PlacedOrder(NamedTuple):
    """Nodes ordered within the horizon, by the plan's dates, a review or a user's process."""

    time_h: float
    """When it is placed, by a review at the end of its month; the day of service where a cluster states that alone."""
    cluster: int
    nodes: int
    arrival_h: float
    """When the first of them are delivered, slips included."""
    is_stated: bool
    """Whether the plan states it, rather than a review or a process."""


class Note(NamedTuple):
    """A line of the event log written by a user's process."""

    time_h: float
    process: str
    text: str
    cluster: str


class Effect(NamedTuple):
    """What a user's process changes for some hours besides nodes and speed."""

    start_h: float
    end_h: float
    process: str
    kind: str
    """demand in requests/s, curtailment in kW, or price as a factor."""
    target: str
    """The workload or account; empty for the site."""
    amount: float


class SiteEvent(NamedTuple):
    """An outage of the whole site."""

    start_h: float
    end_h: float


@dataclass(slots=True)
class ChangeLog:
    """All events of the fleet, in the order in which they became known."""

    changes: list[Change] = field(default_factory=list)
    software: list[SoftwareEvent] = field(default_factory=list)
    site: list[SiteEvent] = field(default_factory=list)
    purchases: list[Purchase] = field(default_factory=list)
    undelivered: list[Purchase] = field(default_factory=list)
    """Shipments of orders that come after the horizon, or would after their cluster is gone."""
    orders: list[PlacedOrder] = field(default_factory=list)
    """Nodes yet to be ordered, or to come, on the first day."""
    notes: list[Note] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    incidents: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Numbers of incidents to come."""

    def added_requests(self, workloads: Sequence[str], first_hour: int, hours: int) -> Floats:
        """Return the further requests that users' processes let come in each hour, shape (workloads, hours)."""
        # Part of an hour counts as that part of its requests.
        added = np.zeros((len(workloads), hours))
        starts_h = np.arange(first_hour, first_hour + hours, dtype=np.float64)
        for effect in self.effects:
            if effect.kind != "demand":
                continue
            open_h = open_fraction(starts_h, effect.start_h, effect.end_h)
            workload = workloads.index(effect.target)
            added[workload] += effect.amount * SECONDS_PER_HOUR * open_h
        return added

    def speeds(self) -> list[SpeedChange]:
        """Return every change of speed of every cluster on every workload, in chronological order."""
        changes = []
        # Stable: events of one moment stay in the order in which they became known.
        for event in sorted(self.software, key=lambda event: event.time_h):
            for (cluster, workload), factor in zip(event.pairs, event.log_factors, strict=True):
                if factor != 0.0:
                    changes.append(
                        SpeedChange(
                            event.time_h,
                            cluster,
                            workload,
                            factor,
                            event.kind,
                            event.incident,
                            event.process,
                        )
                    )
        return changes


class Purchase(NamedTuple):
    """Nodes delivered together at one price; paid on delivery, or as their order states."""

    time_h: float
    cluster: int
    nodes: int
    prices_usd: tuple[float, ...]
    """Price of a node: accelerators, host, network, storage."""
    placed_h: float = math.inf
    """When it was ordered, where its order says how it is paid; infinity where it is paid on delivery."""


Streams = Callable[[str], np.random.Generator]
_DIGEST_BYTES = 64  # the most BLAKE2b gives; SFC64 takes 24


class _Digest(ISeedSequence):
    """A seed sequence whose words are those of a digest."""

    def __init__(self, digest: bytes) -> None:
        self.digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return the first words of the digest."""
        return np.frombuffer(self.digest, dtype=dtype, count=n_words).copy()


@dataclass(frozen=True, slots=True)
class _Seeded:
    """Returns a stream's random generator by name; the same seed and name give the same numbers."""

    seed: int
    replication: int = 0

    def __call__(self, name: str) -> np.random.Generator:
        stream = f"{self.seed}/{self.replication}/{name}"
        digest = hashlib.blake2b(stream.encode(), digest_size=_DIGEST_BYTES).digest()
        bits = np.random.SFC64(_Digest(digest))  # type: ignore[arg-type]  # stubs want SeedSequence itself
        return np.random.Generator(bits)


def stream_keys(accelerators: Sequence[str]) -> list[str]:
    """Return the name of each cluster's streams: its accelerator, and its place among the clusters that have it.

    So neither a cluster's name, nor clusters of other accelerators, nor later ones of its own change what is drawn.
    """
    keys = []
    for place, part in enumerate(accelerators):
        earlier = accelerators[:place].count(part)
        keys.append(f"{part}/{earlier}")
    return keys


def streams(seed: int, replication: int = 0) -> Streams:
    """Return a function from a stream's name to its random generator."""
    return _Seeded(seed, replication)
