"""Spreading one workload's requests over clusters, for all hours at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.elementwise import Hours, at_least, divisor, in_hours, part_of

_UNEVEN = 1e-6  # of the preferred nodes: less is rounding
_FEW = 0.25  # below this share of hours, working on the hours alone is cheaper than on whole arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What clusters have room for; arrays of shape (clusters, hours)."""

    usable: Floats
    """Nodes that may work."""
    preferred_utilisation: float
    """Share of those that is filled in order; beyond it work is spread."""
    used: Floats
    """Nodes at work, updated by routing."""

    @staticmethod
    def empty(usable: Floats, preferred_utilisation: float) -> Room:
        """Return the room of clusters on which nothing runs yet."""
        return Room(usable=usable, preferred_utilisation=preferred_utilisation, used=np.zeros_like(usable))

    def preferred(self, cluster: int, hours: Hours) -> Floats:
        """Return the nodes of a cluster that are filled in order, shape (some hours,)."""
        return part_of(self.usable[cluster], hours) * self.preferred_utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where one workload may go and how fast it is served there."""

    tiers: Sequence[Sequence[int]]
    """Clusters in the order in which they are offered the work; those of one tier are offered it together."""
    rates: Sequence[Floats]
    """Requests per node and hour, by cluster, each of shape (1,) or (hours,)."""
    tokens_per_request: Floats
    """Shape (1,) or (hours,)."""
    rented: int = 0
    """How many tiers at the end are rented by the hour: they are offered what the others' waits do not allow."""
    allowed: Floats | None = None
    """Share of their nodes up to which the others' waits allow it, shape (clusters, hours or 1); None where none is
    rented."""
    outgrown: NDArray[np.bool_] | None = None
    """Hours in which no cluster meets its objective any more, shape (hours,); None where a rate is never zero."""
    divisors: Mapping[int, Floats] = field(init=False)
    """By cluster, the rates to divide by: infinity in place of zero, for where nothing is served nothing works."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "divisors", {cluster: divisor(self.rates[cluster]) for cluster in self.order})

    @property
    def order(self) -> list[int]:
        """Return the clusters in the order in which they are offered the work."""
        return [cluster for tier in self.tiers for cluster in tier]

    @property
    def paid_tiers(self) -> Sequence[Sequence[int]]:
        """Return the tiers that are paid whether they work or not."""
        return self.tiers[: len(self.tiers) - self.rented]

    @property
    def rented_tiers(self) -> Sequence[Sequence[int]]:
        """Return the tiers that are rented by the hour."""
        return self.tiers[len(self.tiers) - self.rented :]

    def tokens(self, hours: Hours) -> Floats:
        """Return the tokens of a request in some hours, of shape (1,) or (some hours,)."""
        return self.tokens_per_request if self.tokens_per_request.size == 1 else self.tokens_per_request[hours]

    def rate(self, cluster: int, hours: Hours) -> Floats:
        """Return a cluster's rate in some hours, of shape (1,) or (some hours,)."""
        rate = self.rates[cluster]
        return rate if rate.size == 1 else part_of(rate, hours)

    def nodes(self, requests: Floats, cluster: int, hours: Hours) -> Floats:
        """Return the node-equivalents that requests take; none where the rate is zero, since none are served there."""
        rate = self.divisors[cluster]
        return requests / (rate if rate.size == 1 else part_of(rate, hours))


def serving(ways: Sequence[Way], workloads: Sequence[int]) -> NDArray[np.intp]:
    """Return the clusters that serve any of some workloads, in their order."""
    return np.array(sorted({cluster for workload in workloads for cluster in ways[workload].order}), dtype=np.intp)


def spare(room: Room, way: Way) -> Floats:
    """Return the requests an hour that a workload's clusters have room for, shape (hours,)."""
    room_left = np.zeros(room.usable.shape[1])
    for cluster in way.order:
        room_left += _free_requests(room.usable[cluster], room, way, cluster, slice(None))
    return room_left


def crowded(room: Room, clusters: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Say in which hours one of some clusters works beyond its preferred nodes while another has some of those free."""
    is_crowded = np.zeros(room.usable.shape[1], dtype=np.bool_)
    if room.preferred_utilisation == 1.0:
        return is_crowded
    for c in clusters:
        is_crowded |= room.used[c] > room.preferred(c, slice(None))
    hours = np.flatnonzero(is_crowded)  # few
    preferred = np.stack([room.preferred(c, hours) for c in clusters])
    beyond = np.stack([in_hours(room.used[c], hours) for c in clusters]) - preferred
    is_crowded[hours] = np.any(beyond > _UNEVEN * preferred, axis=0) & np.any(beyond < -_UNEVEN * preferred, axis=0)
    return is_crowded


def fill(wanted: Floats, room: Room, way: Way, served: Mapping[int, Floats]) -> tuple[Hours, Floats]:
    """Offer requests to clusters in order up to the preferred nodes of each; spread the rest over what is still free.

    Machines rented by the hour are offered what the others, filled as far as their waits allow, have no room for.
    Clusters that are alike take in proportion to what each has free, as one of all their nodes would.
    ``wanted`` has shape (hours,). What each cluster takes is written to ``served``, by cluster, so far zeros of shape
    (hours,), and the node-equivalents to ``room.used``. Returns the hours, and the requests, that found no room.
    """
    hours, left = _offer(wanted, slice(None), way.paid_tiers, room, way, served)
    if way.allowed is not None and left.size:
        if room.preferred_utilisation < 1.0:
            left = _spread(left, hours, room, way, served, way.allowed)
        hours, left = _offer(left, hours, way.rented_tiers, room, way, served)
    if not left.size or room.preferred_utilisation == 1.0:
        return hours, left
    return hours, _spread(left, hours, room, way, served)


def _offer(
    left: Floats, hours: Hours, tiers: Sequence[Sequence[int]], room: Room, way: Way, served: Mapping[int, Floats]
) -> tuple[Hours, Floats]:
    """Offer requests to tiers in order up to their preferred nodes; return the hours, and the requests, left over."""
    for tier in tiers:
        free = [_free_requests(room.preferred(cluster, hours), room, way, cluster, hours) for cluster in tier]
        total = free[0] if len(tier) == 1 else sum(free[1:], start=free[0].copy())
        short = np.flatnonzero(total < left)
        taken = np.minimum(total, left)
        share = taken / divisor(total) if len(tier) > 1 else None
        for cluster, most in zip(tier, free, strict=True):
            given = taken if share is None else most * share
            served[cluster][hours] = given
            room.used[cluster][hours] += way.nodes(given, cluster, hours)
        if short.size < _FEW * left.size:
            left = in_hours(left, short) - in_hours(taken, short)
            hours = short if isinstance(hours, slice) else hours[short]
        else:
            left = left - taken
        if not short.size:
            break
    return hours, left


def _spread(
    left: Floats, hours: Hours, room: Room, way: Way, served: Mapping[int, Floats], allowed: Floats | None = None
) -> Floats:
    """Spread requests over clusters in proportion to what each has free in some hours; return what found no room.

    With a share allowed of each one's nodes, over those that are not rented by the hour, up to that.
    """
    over = way.order if allowed is None else [c for tier in way.paid_tiers for c in tier]
    usable = [part_of(room.usable[c], hours) for c in over]
    if allowed is not None:
        share = allowed if allowed.shape[1] == 1 else allowed[:, hours]
        usable = [nodes * share[c] for c, nodes in zip(over, usable, strict=True)]
    free = [_free_requests(nodes, room, way, c, hours) for c, nodes in zip(over, usable, strict=True)]
    total = sum(free, start=np.zeros_like(left))
    share = np.minimum(left, total) / divisor(total)
    for cluster, most in zip(over, free, strict=True):
        taken = np.multiply(most, share, out=most)
        served[cluster][hours] += taken
        room.used[cluster][hours] += way.nodes(taken, cluster, hours)
    return at_least(0.0, left - total)


def _free_requests(nodes: Floats, room: Room, way: Way, cluster: int, hours: Hours) -> Floats:
    """Return the requests an hour for which a cluster has some of its nodes free, shape (some hours,)."""
    free = at_least(0.0, nodes - part_of(room.used[cluster], hours))
    free *= way.rate(cluster, hours)
    return free
