"""What becomes of requests by load over capacity: late where they queue, late or refused where a router refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.physics.replica_times import Lengths, ReplicaTimes
from planner.physics.slo_model import Curve
from planner.plan.plan import MOST_LOAD

_OVERLOADS = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, MOST_LOAD)  # loads beyond capacity at which refusals are worked out
_FAR_BEYOND = (2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # the same where few are missed at the last of those
_BY_PACE = 3  # of those, at which the pace alone is worked out where more are missed: there the best choice is unknown
_FEW_MISSED = 0.025
"""Share missed at twice the capacity, beyond what is too long on an idle replica, up to which capacity says little of
what a replica can do: a few long prompts that nothing may delay make it small. Held against the zoom."""
_MANY_MISSED = 0.1  # of the same: from there on no more is offered
_EVEN = 5.0
"""A request is refused in proportion to this times the share refused, and its prompt over the mean prompt, where the
pace is held: the more are refused, the less it hangs on their length. Fitted to the zoom's routers at 120 to 300% load
on 33 pairs of traffic and machines, which they match by 3 points of requests missed."""
_REFUSED = (
    0.0,
    0.025,
    0.05,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
)  # shares refused between which that at a load is interpolated
_BATCHES = np.linspace(0.0, 1.0, 200)[1:]  # over the largest, between which that of a pace is interpolated

Refuse = Callable[[Floats], tuple[Floats, Floats]]
"""Of rates beyond capacity, the shares refused and late of those admitted, by a router that has most in time."""


def queueing(curve: Curve) -> Lateness:
    """Return the shares late where requests queue."""
    if curve.capacity_requests_per_s <= 0.0:
        return SHARP
    return without_end(*_up_to_all(curve), curve)


def without_end(loads: Floats, late: Floats, curve: Curve) -> Lateness:
    """Return late shares by load that end where a replica takes no more: beyond, all queue up and nothing is in time.

    ``curve`` is that of the replica on which a first token waits.
    """
    return Lateness(
        loads=(*loads.tolist(), float(loads[-1]) * (1.0 + 1e-6)),
        late_fractions=(*late.tolist(), 1.0),
        refused_fractions=(0.0,) * (loads.size + 1),
        too_long_fraction=curve.too_long_fraction,
        alone_s=curve.alone_s,
        refuses=False,
    )


def refusing(curve: Curve, refuse: Refuse, held: tuple[ReplicaTimes, Lengths, float]) -> Lateness:
    """Return the shares late and refused where a router refuses what would be late.

    Beyond capacity as many are missed as by the best choice of whom to refuse, or more, where a router that holds the
    pace of its replicas has to refuse more. ``held`` is the replica, its requests and the mean time per token held.
    """
    capacity = curve.capacity_requests_per_s
    if capacity <= 0.0:
        return SHARP
    loads, late = _up_to_all(curve)
    # What is refused counts as missed as much as what is late, and more load never leaves fewer missed.
    at_capacity = float(np.interp(1.0, loads, late))
    rates, admitted = _admitted_by_pace(*held)

    def by_pace(overloads: tuple[float, ...]) -> Floats:
        rate = capacity * np.array(overloads)
        return np.asarray(np.maximum(1.0 - np.interp(rate, rates, admitted) / rate, 0.0))

    def beyond_capacity(overloads: tuple[float, ...]) -> tuple[Floats, Floats]:
        refused, beyond = refuse(capacity * np.array(overloads))
        best = np.maximum(refused + (1.0 - refused) * beyond, at_capacity)
        missed = np.maximum.accumulate(np.maximum(best, by_pace(overloads)))
        return np.minimum(np.maximum.accumulate(np.maximum(refused, by_pace(overloads))), missed), missed

    overloads: tuple[float, ...] = _OVERLOADS
    refused, missed = beyond_capacity(overloads)
    if missed[-1] - curve.too_long_fraction < _FEW_MISSED:
        refused, missed = beyond_capacity(overloads + _FAR_BEYOND)
        kept = min(int((missed - curve.too_long_fraction < _MANY_MISSED).sum()) + 1, missed.size)
        overloads, refused, missed = (overloads + _FAR_BEYOND)[:kept], refused[:kept], missed[:kept]
    else:
        further = _FAR_BEYOND[:_BY_PACE]
        overloads += further
        refused, missed = (np.append(share, np.maximum(share[-1], by_pace(further))) for share in (refused, missed))
    below = loads < 1.0
    return Lateness(
        loads=(*loads[below].tolist(), 1.0, *overloads),
        late_fractions=(*late[below].tolist(), at_capacity, *(missed - refused).tolist()),
        refused_fractions=(0.0,) * (int(below.sum()) + 1) + tuple(refused.tolist()),
        too_long_fraction=curve.too_long_fraction,
        alone_s=curve.alone_s,
    )


def _up_to_all(curve: Curve) -> tuple[Floats, Floats]:
    """Return loads over capacity and the late share at each, from none to what a replica takes at most."""
    loads = np.append(0.0, curve.requests_per_s / curve.capacity_requests_per_s)
    return loads, np.append(curve.too_long_fraction, curve.late_fraction)


def _admitted_by_pace(times: ReplicaTimes, lengths: Lengths, held_s: float) -> tuple[Floats, Floats]:
    """Return rates of requests, rising, and those that a router admits of each to hold a mean time per token.

    It admits a request where the batch with it keeps the pace, whoever comes, so that with a share q refused the rate
    admitted, λ·(1 − q), is the one whose batch B has TPOT(B) = held. Long prompts wait longer for their first token and
    are refused more often, and what is left is faster: q is refused at λ = B / (E[output]·held) / (1 − q).
    """
    relative = lengths.prompt_tokens / (lengths.prompt_weights @ lengths.prompt_tokens)
    rates, admitted = [], []
    for share in _REFUSED:
        even = _EVEN * share
        left = lengths.prompt_weights * (1.0 - np.minimum(share * (even + relative) / (even + 1.0), 1.0))
        thinned = times.weighted(left / left.sum())
        batches = max(thinned.most_batch, 1.0) * _BATCHES
        batch = np.interp([held_s], thinned.tpot_s(batches), batches)
        admitted.append(float(thinned.requests_per_s(batch)[0]))
        rates.append(admitted[-1] / float(left.sum()))
    return np.maximum.accumulate(rates), np.array(admitted)
