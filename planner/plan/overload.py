"""Overload: the shares of requests late and rejected at any load over capacity, where work queues or is rejected."""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import Lateness
from planner.physics.replica import ReplicaTimes, ServiceTerms
from planner.physics.slo_model import MissCurve, refusing
from planner.plan.load_tables import MOST_LOAD

Overloads = tuple[float, ...]
"""Loads over capacity, rising."""
OVERLOADS: Overloads = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, MOST_LOAD)
"""Loads beyond capacity at which rejections are worked out."""
FAR_OVERLOADS = (2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Loads beyond those, worked out where few requests are missed at the last of them."""
_PACED_OVERLOADS = 3
"""How many of the far ones are worked out by the pace alone where many are missed: there the best choice is unknown."""
_FEW_MISSED = 0.025
"""Share missed at twice the capacity, beyond what is too long on an idle replica, up to which capacity says little of
what a replica can do: a few long prompts that nothing may delay make it small. Held against the zoom."""
_MANY_MISSED = 0.1
"""The same share from which on no more load is offered."""
_EVENNESS = 5.0
"""Where the pace is held, a request is rejected in proportion to this times the share rejected, plus its prompt over
the mean prompt: the more are rejected, the less it hangs on their length. Fitted to the zoom's routers at 120 to 300%
load on 33 pairs of traffic and machines, which they match by 3 points of requests missed."""
_REJECTED = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares rejected between which that at a load is interpolated."""
_BATCHES = np.linspace(0.0, 1.0, 200)[1:]
"""Batches over the largest, between which that of a pace is interpolated."""


def queueing_lateness(loads: Floats, late: Floats, curve: MissCurve) -> Lateness:
    """Return miss shares by load that reach 1 at the largest load a replica can carry.

    ``curve`` is that of the replica on which a first token waits.
    """
    # Beyond the largest load the queue has no end: a last point just above it lets interpolation jump to 1.
    beyond_largest = float(loads[-1]) * (1.0 + 1e-6)
    return Lateness(
        loads=(*loads.tolist(), beyond_largest),
        late_fractions=(*late.tolist(), 1.0),
        refused_fractions=(0.0,) * (loads.size + 1),
        too_long_fraction=curve.too_long_fraction,
        alone_s=curve.alone_s,
        refuses=False,
    )


def rejecting_lateness(
    curve: MissCurve, times: ReplicaTimes, terms: ServiceTerms, admission_tpot_s: float
) -> Lateness:
    """Return the shares late and rejected where the router rejects requests that would be late.

    Beyond capacity as many are missed as by the best choice of whom to reject, or more, where a router that holds the
    pace of its replicas, a mean time per token, has to reject more.
    """
    capacity = curve.capacity_requests_per_s
    loads, late = curve.by_load()
    # What is rejected counts as missed as much as what is late, and more load never leaves fewer missed.
    late_at_capacity = float(np.interp(1.0, loads, late))
    rates, admitted = admitted_by_pace(times, admission_tpot_s)

    def rejected_by_pace(overloads: Overloads) -> Floats:
        rate = capacity * np.array(overloads)
        admitted_rate = np.interp(rate, rates, admitted)
        # Where all are admitted, interpolation may say a hair more than all.
        return np.asarray(np.maximum(1.0 - admitted_rate / rate, 0.0))

    def beyond_capacity(overloads: Overloads) -> tuple[Floats, Floats]:
        paced = rejected_by_pace(overloads)
        requests_per_s = capacity * np.array(overloads)
        rejected, late_admitted = refusing(times, terms, requests_per_s)
        missed_by_choice = rejected + (1.0 - rejected) * late_admitted
        chosen = np.maximum(missed_by_choice, late_at_capacity)
        # Each load is worked out alone: small steps back between them are the search's, not the router's.
        missed = np.maximum.accumulate(np.maximum(chosen, paced))
        rejected = np.maximum.accumulate(np.maximum(rejected, paced))
        return np.minimum(rejected, missed), missed

    overloads = OVERLOADS
    rejected, missed = beyond_capacity(overloads)
    if missed[-1] - curve.too_long_fraction < _FEW_MISSED:
        overloads += FAR_OVERLOADS
        rejected, missed = beyond_capacity(overloads)
        # Up to the first load at which many are missed: nothing is offered beyond it.
        is_few = missed - curve.too_long_fraction < _MANY_MISSED
        offered = int(is_few.sum()) + 1
        overloads = overloads[:offered]
        rejected = rejected[:offered]
        missed = missed[:offered]
    else:
        further = FAR_OVERLOADS[:_PACED_OVERLOADS]
        paced = rejected_by_pace(further)
        overloads += further
        rejected = np.append(rejected, np.maximum(rejected[-1], paced))
        missed = np.append(missed, np.maximum(missed[-1], paced))
    # Up to capacity nobody is rejected; capacity itself is a point of its own, where the curves meet.
    fits = loads < 1.0
    late_below = late[fits].tolist()
    late_beyond = (missed - rejected).tolist()
    none_rejected = [0.0] * (len(late_below) + 1)
    return Lateness(
        loads=(*loads[fits].tolist(), 1.0, *overloads),
        late_fractions=(*late_below, late_at_capacity, *late_beyond),
        refused_fractions=(*none_rejected, *rejected.tolist()),
        too_long_fraction=curve.too_long_fraction,
        alone_s=curve.alone_s,
    )


def admitted_by_pace(times: ReplicaTimes, tpot_s: float) -> tuple[Floats, Floats]:
    """Return rising request rates, and the rates a router admits of them to hold a mean time per token.

    It admits a request where the batch with it keeps the pace, whoever comes, so that with a share q rejected the rate
    admitted, λ·(1 − q), is the one whose batch B has TPOT(B) = the pace. Long prompts wait longer for their first token
    and are rejected more often, and what is left is faster: q is rejected at λ = B / (E[output]·pace) / (1 − q).
    """
    lengths = times.lengths
    mean_prompt = lengths.prompt_weights @ lengths.prompt_tokens
    relative = lengths.prompt_tokens / mean_prompt
    rates = []
    admitted = []
    for share in _REJECTED:
        evenness = _EVENNESS * share
        by_length = share * (evenness + relative) / (evenness + 1.0)
        rejected = np.minimum(by_length, 1.0)
        weights = lengths.prompt_weights * (1.0 - rejected)
        admitted_share = weights.sum()
        thinned = times.weighted(weights / admitted_share)
        # The pace is not to be inverted in closed form, so the batch is read off a grid.
        batches = max(thinned.most_batch, 1.0) * _BATCHES
        batch = np.interp([tpot_s], thinned.tpot_s(batches), batches)
        admitted_rate = float(thinned.requests_per_s(batch)[0])
        admitted.append(admitted_rate)
        rates.append(admitted_rate / float(admitted_share))
    # Interpolation needs rising rates, which a larger share rejected does not ensure.
    return np.maximum.accumulate(rates), np.array(admitted)
