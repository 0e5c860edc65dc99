"""The promise: which share of requests is to be in time, over what, and whether a plan keeps it.

A plan is judged by its requests that missed their objective and its requests settled, by month and workload; over
several replications by how many of them keep the promise. Whoever ranks, advises or searches calls these functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.plan.quantities import in_time
from planner.scenario.scenario import SloTarget

LEAST_SHORTFALL = 5e-7
"""Shortfalls below it are none: files hold shares to six decimals, and a verdict must not contradict them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A month, and the workload that it is about."""

    month: int
    workload: int | None
    """None where the promise is of all workloads together."""
    in_time_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one replication of a plan stands to its promise."""

    shortfall_fraction: float
    """By how much the worst share falls short of what is promised; 0 where the promise is kept."""
    worst: Moment | None
    """Where the share in time is least; None where no request was settled."""
    first_broken: Moment | None
    """Where the promise first breaks, the month in which the plan runs out; None where it is kept."""

    @property
    def kept(self) -> bool:
        """Whether the promise is kept; without a request to serve it is."""
        return self.first_broken is None

    def kept_months(self, months: int) -> int:
        """Return the months before the first that breaks the promise: all of them where it is kept."""
        return months if self.first_broken is None else self.first_broken.month


def promised_shares(missed: Floats, settled: Floats, promise: SloTarget) -> Floats:
    """Return the shares in time that a promise is about, shape (months, workloads) or (months, 1) of all together.

    Each month: 1 − missed / settled, NaN where nothing was settled. Over the horizon: 1 − missed so far / settled in
    all months, the most that the whole can still come to after that month, so it never rises and ends at the share
    of the horizon; the month in which it falls below the promise is the one that spends what may be missed.
    """
    if not promise.of_workload:
        missed, settled = missed.sum(axis=1, keepdims=True), settled.sum(axis=1, keepdims=True)
    if promise.each_month:
        return in_time(missed, settled)
    return in_time(np.cumsum(missed, axis=0), np.broadcast_to(settled.sum(axis=0), missed.shape))


def judge(missed: Floats, settled: Floats, promise: SloTarget) -> Verdict:
    """Return whether a replication keeps a promise, where it is worst, where it first breaks and by how much.

    ``missed`` and ``settled`` are requests, shape (months, workloads). The shortfall is max(0, promised − worst
    share), and what is less than :data:`LEAST_SHORTFALL` is none.
    """
    shares = promised_shares(missed, settled, promise)
    if np.isnan(shares).all():
        return Verdict(shortfall_fraction=0.0, worst=None, first_broken=None)

    def moment(month: int, of: int) -> Moment:
        return Moment(
            month=month, workload=of if promise.of_workload else None, in_time_fraction=float(shares[month, of])
        )

    month, of = (int(place) for place in np.unravel_index(np.nanargmin(shares), shares.shape))
    shortfall = promise.in_time - float(shares[month, of])
    worst = moment(month, of)
    if shortfall < LEAST_SHORTFALL:
        return Verdict(shortfall_fraction=0.0, worst=worst, first_broken=None)
    broken = promise.in_time - shares >= LEAST_SHORTFALL  # a comparison with NaN is false: nothing to serve
    first = int(np.argmax(broken.any(axis=1)))
    return Verdict(
        shortfall_fraction=shortfall, worst=worst, first_broken=moment(first, int(np.nanargmin(shares[first])))
    )


def shortfall_over(shortfalls: Floats, in_replications_fraction: float) -> float:
    """Return how far a plan falls short over replications: 0 exactly where enough of them keep the promise.

    That is the ⌈share · n⌉-th smallest of n shortfalls, the least that the promised share of replications does not
    exceed. Replications that could not be run are NaN and left out; NaN where there is none.
    """
    known = np.sort(shortfalls[np.isfinite(shortfalls)])
    if not known.size:
        return math.nan
    enough = math.ceil(in_replications_fraction * known.size - 1e-9)  # 0.9 · 20 is 18, whatever its last digit
    return float(known[max(enough, 1) - 1])


def kept_months_over(kept_months: Floats, in_replications_fraction: float) -> float:
    """Return the months that enough replications keep the promise through: the ⌈share · n⌉-th largest of n."""
    return -shortfall_over(-kept_months, in_replications_fraction)


def lacking_nodes(
    missed: Floats, settled: Floats, requests_per_node_h: Floats, hours: Floats, promise: SloTarget
) -> Floats:
    """Return the nodes of each cluster whose full load is what the worst month misses beyond a monthly promise.

    Shape (clusters,); infinity for a cluster that cannot take a workload that is short. Of a month, Σ over workloads
    of excess / (requests of a node and hour) / hours, with excess = max(0, missed − (1 − promised) · settled), shared
    by what each missed where the promise is of all together. Rates have shape (clusters, workloads, months or 1).
    """
    allowed = 1.0 - promise.in_time
    if promise.of_workload:
        excess = np.maximum(missed - allowed * settled, 0.0)
    else:
        total = missed.sum(axis=1, keepdims=True)
        beyond = np.maximum(total - allowed * settled.sum(axis=1, keepdims=True), 0.0)
        excess = missed * np.divide(beyond, total, out=np.zeros_like(total), where=total > 0)
    rates = np.moveaxis(requests_per_node_h, 2, 0)  # (months or 1, clusters, workloads)
    asked = np.broadcast_to(excess[:, None, :], (len(excess), *rates.shape[1:]))
    work_h = np.where(asked > 0, np.inf, 0.0)
    np.divide(asked, rates, out=work_h, where=np.broadcast_to(rates > 0, asked.shape))
    return np.asarray((work_h.sum(axis=2) / hours[:, None]).max(axis=0), dtype=np.float64)
