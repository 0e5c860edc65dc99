"""The quantities of a fleet, each defined by one function of arrays that all callers share.

Arguments are sums over the same hours and machines: of a cluster's month, of the fleet's whole run. Machine time is
counted in accelerator-hours (node-hours where one cluster stands alone, which is the same ratio), so that nodes of
different sizes weigh what they hold. A ratio without a denominator is NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.finance.present_value import ratio


def in_service(present: Floats, failed: Floats) -> Floats:
    """Return machine time in service: on site − out for a hardware fault, whether powered or busy or not."""
    return present - failed


def availability(in_service_h: Floats, on_site_h: Floats) -> Floats:
    """Return in service / on site: the share of machine time not lost to hardware faults."""
    return ratio(in_service_h, on_site_h)


def utilisation(busy_h: Floats, in_service_h: Floats) -> Floats:
    """Return utilisation: busy / in service.

    Machines without power in an outage count as in service: they are paid for, and it is not their fault.
    """
    return ratio(busy_h, in_service_h)


def shed_requests(refused: Floats, rented: Floats) -> Floats:
    """Return shed requests: rejected or expired − served on rented accelerators instead."""
    return np.maximum(refused - rented, 0.0)


def settled_requests(served: Floats, refused: Floats) -> Floats:
    """Return requests with a known outcome: served on own machines + rejected or expired.

    Work that waits is settled when it is served or given up, which may be a month after it came.
    """
    return served + refused


def missed_requests(late: Floats, shed: Floats) -> Floats:
    """Return requests that missed their SLO: late + shed."""
    return late + shed


def attainment(missed: Floats, settled: Floats) -> Floats:
    """Return SLO attainment: 1 − missed / settled, the share of settled requests within their objective.

    What cannot wait is settled in the hour in which it arrives, so settled is what arrived; of deferrable work it is
    what was served or given up in the month, whenever it came, and the rest is still waiting within its deadline.
    """
    return 1.0 - ratio(missed, settled)


def shed_share(shed_tokens: Floats, demand_tokens: Floats) -> Floats:
    """Return tokens shed / tokens demanded."""
    return ratio(shed_tokens, demand_tokens)


def needed(busy: Floats, served: Floats, refused: Floats) -> Floats:
    """Return the machine time that all demand would take: busy · (served + rejected) / served.

    What was refused is taken to need as much as what was served, at its mix, routing and speed; NaN where nothing was
    served. ``served`` is what own machines served, in tokens as ``refused`` is.
    """
    return busy * (1.0 + ratio(refused, served))


def fates(
    *,
    present: Floats,
    failed: Floats,
    by_process: tuple[Floats, Floats],
    dark: Floats,
    busy: Floats,
    drag: Floats,
    throttled: Floats,
) -> NodeHoursByUse:
    """Return node-hours on site by use or cause of loss; the parts sum to ``present``.

    At work for nothing (``drag``) is part of at work, so working = busy − drag; without demand is what no other cause
    took. ``by_process`` is what users' processes took of those failed and of those at work, and the latter alone.
    """
    process_node_h, slowed = by_process
    return {
        "working": busy - drag,
        "lost_to_failures": failed - (process_node_h - slowed),
        "lost_to_software": drag - slowed,
        "lost_to_processes": process_node_h,
        "lost_to_outages": dark,
        "lost_to_power_cap": throttled,
        # Means over parts of hours may be a rounding apart; nothing is less than nothing.
        "idle": np.maximum(present - failed - dark - busy - throttled, 0.0),
    }


NodeHoursByUse = dict[str, Floats]


def failure_node_h(
    hours: Floats, accelerators: NDArray[np.int64], accelerators_per_node: Floats
) -> Floats:
    """Return node-hours lost to failures: hours · accelerators down / accelerators of a node."""
    return hours * accelerators / accelerators_per_node


def open_fraction(hours: Floats, start_h: float, end_h: float) -> Floats:
    """Return the fraction of each hour, given by its start, that lies between two times."""
    overlap: Floats = np.minimum(hours + 1.0, end_h) - np.maximum(hours, start_h)
    return np.maximum(overlap, 0.0)


def incident_node_h(drag: Floats, slowness: Floats) -> Floats:
    """Return the node-hours lost to each incident in each hour, shape (incidents, hours).

    drag · s / Σ s, with s = −ln(speed) · part of the hour for which it is open, ``slowness`` of shape
    (incidents, hours): speeds multiply, so each incident has the share of the loss that it has of their logarithm.
    """
    total_slowness = slowness.sum(axis=0)
    # An hour without an open incident has nothing to divide.
    per_slowness = np.divide(
        drag, total_slowness, out=np.zeros_like(drag), where=total_slowness > 0
    )
    return np.asarray(slowness * per_slowness, dtype=np.float64)


def usual_tokens_per_node_h(
    requests_per_node_h: Floats, demand: Floats, tokens_per_request: Floats
) -> Floats:
    """Return the tokens per hour of a node of each cluster at its usual workload mix, shape (clusters,).

    The mix gives each workload that the cluster can take the share of its nodes that demand asks for:
    Σ share · rate · tokens with share ∝ demand / rate. Rates have shape (clusters, workloads).
    """
    is_served = requests_per_node_h > 0
    # The nodes that each workload's demand asks for; none where the cluster cannot take it.
    nodes = np.divide(
        demand, requests_per_node_h, out=np.zeros_like(requests_per_node_h), where=is_served
    )
    return np.asarray(shares(nodes) * requests_per_node_h @ tokens_per_request, dtype=np.float64)


def machine_time(served_requests: Floats, requests_per_node_h: Floats) -> Floats:
    """Return the node-hours that requests take at full speed: requests / requests per node and hour; 0 if infeasible.

    Both have shape (months, clusters, workloads), of which rates may have one month for all.
    """
    is_served = requests_per_node_h > 0
    return np.divide(
        served_requests, requests_per_node_h, out=np.zeros_like(served_requests), where=is_served
    )


def shares(*weights: Floats) -> Floats:
    """Return weights as shares that sum to one along the last axis.

    Where the first are all zero the next decide, and where all are, everyone has the same. Shapes broadcast.
    """
    *preferred, fallback = np.broadcast_arrays(*weights)
    # Written from the last choice to the first: each overwrites where it has any weight.
    split = np.full(fallback.shape, 1.0 / fallback.shape[-1])
    for table in (fallback, *reversed(preferred)):
        total = table.sum(axis=-1, keepdims=True)
        np.divide(table, total, out=split, where=total > 0)
    return split
