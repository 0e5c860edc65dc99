"""Spreading one workload's requests over clusters, for all hours at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.elementwise import at_least, in_hours, quotient

Floats = NDArray[np.float64]
Hours = slice | NDArray[np.intp]
_UNEVEN = 1e-6  # of the preferred nodes: less is rounding
_FEW = 0.4  # below this share of hours, working on the hours alone is cheaper than on whole arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What clusters have room for; arrays of shape (clusters, hours)."""

    usable: Floats
    """Nodes that may work."""
    preferred: Floats
    """Of those, the nodes that are filled in order; beyond them work is spread."""
    used: Floats
    """Nodes at work, updated by routing."""

    @staticmethod
    def empty(usable: Floats, preferred_utilisation: float) -> Room:
        """Return the room of clusters on which nothing runs yet."""
        preferred = usable if preferred_utilisation == 1.0 else usable * preferred_utilisation
        return Room(usable=usable, preferred=preferred, used=np.zeros_like(usable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where one workload may go and how fast it is served there."""

    tiers: Sequence[Sequence[int]]
    """Clusters in the order in which they are offered the work; those of one tier are offered it together."""
    rates: Sequence[Floats]
    """Requests per node and hour, by cluster, each of shape (1,) or (hours,)."""
    tokens_per_request: Floats
    """Shape (1,) or (hours,)."""
    outgrown: NDArray[np.bool_] | None = None
    """Hours in which no cluster meets its objective any more, shape (hours,); None where a rate is never zero."""

    @property
    def order(self) -> list[int]:
        """Return the clusters in the order in which they are offered the work."""
        return [cluster for tier in self.tiers for cluster in tier]

    def tokens(self, hours: Hours) -> Floats:
        """Return the tokens of a request in some hours, of shape (1,) or (some hours,)."""
        return self.tokens_per_request if self.tokens_per_request.size == 1 else self.tokens_per_request[hours]

    def rate(self, cluster: int, hours: Hours) -> Floats:
        """Return a cluster's rate in some hours, of shape (1,) or (some hours,)."""
        rate = self.rates[cluster]
        return rate if rate.size == 1 else rate[hours]

    def nodes(self, requests: Floats, cluster: int, hours: Hours) -> Floats:
        """Return the node-equivalents that requests take; none where the rate is zero, since none are served there."""
        return quotient(requests, self.rate(cluster, hours))


def serving(ways: Sequence[Way], workloads: Sequence[int]) -> NDArray[np.intp]:
    """Return the clusters that serve any of some workloads, in their order."""
    return np.array(sorted({cluster for workload in workloads for cluster in ways[workload].order}), dtype=np.intp)


def spare(room: Room, way: Way) -> Floats:
    """Return the requests an hour that a workload's clusters have room for, shape (hours,)."""
    room_left = np.zeros(room.usable.shape[1])
    for cluster in way.order:
        room_left += _free_requests(room.usable, room, way, cluster, slice(None))
    return room_left


def crowded(room: Room, clusters: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Say in which hours one of some clusters works beyond its preferred nodes while another has some of those free."""
    if room.preferred is room.usable:
        return np.zeros(room.usable.shape[1], dtype=np.bool_)
    beyond = room.used[clusters] - room.preferred[clusters]
    worst = beyond.max(axis=0)
    hours = np.flatnonzero(worst > 0.0)  # few
    beyond, preferred = in_hours(beyond, hours), in_hours(room.preferred[clusters], hours)
    is_crowded = np.zeros(worst.size, dtype=np.bool_)
    is_crowded[hours] = np.any(beyond > _UNEVEN * preferred, axis=0) & np.any(beyond < -_UNEVEN * preferred, axis=0)
    return is_crowded


def fill(wanted: Floats, room: Room, way: Way, served: Floats) -> tuple[Hours, Floats]:
    """Offer requests to clusters in order up to the preferred nodes of each; spread the rest over what is still free.

    Clusters that are alike take in proportion to what each has free, as one of all their nodes would.
    ``wanted`` has shape (hours,). What each cluster takes is written to ``served``, so far zeros of shape (clusters,
    hours), and the node-equivalents to ``room.used``. Returns the hours, and the requests, that found no room.
    """
    left = wanted
    hours: Hours = slice(None)
    for tier in way.tiers:
        free = [_free_requests(room.preferred, room, way, cluster, hours) for cluster in tier]
        taken = free[0] if len(tier) == 1 else sum(free[1:], start=free[0].copy())
        short = np.flatnonzero(taken < left)
        share = quotient(np.minimum(taken, left), taken) if len(tier) > 1 else None
        np.minimum(taken, left, out=taken)
        for cluster, most in zip(tier, free, strict=True):
            given = taken if share is None else most * share
            served[cluster][hours] = given
            room.used[cluster][hours] += way.nodes(given, cluster, hours)
        if short.size < _FEW * left.size:
            left = left[short] - taken[short]
            hours = short if isinstance(hours, slice) else hours[short]
        else:
            left = left - taken
        if not short.size:
            return hours, left
    return hours, left if room.preferred is room.usable else _spread(left, hours, room, way, served)


def _spread(left: Floats, hours: Hours, room: Room, way: Way, served: Floats) -> Floats:
    """Spread requests over clusters in proportion to what each has free in some hours; return what found no room."""
    free = [_free_requests(room.usable, room, way, cluster, hours) for cluster in way.order]
    total = sum(free[1:], start=free[0].copy())
    share = quotient(np.minimum(left, total), total)
    for cluster, most in zip(way.order, free, strict=True):
        taken = most * share
        served[cluster][hours] += taken
        room.used[cluster][hours] += way.nodes(taken, cluster, hours)
    return at_least(0.0, left - total)


def _free_requests(nodes: Floats, room: Room, way: Way, cluster: int, hours: Hours) -> Floats:
    """Return the requests an hour for which a cluster has some of its nodes free, shape (some hours,)."""
    free = at_least(0.0, nodes[cluster][hours] - room.used[cluster][hours])
    free *= way.rate(cluster, hours)
    return free
