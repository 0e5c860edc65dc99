"""The SLO target: which share of requests is to be in time, over what, and whether a plan keeps it.

A plan is judged by its requests that missed their objective and its requests settled, by month and workload; over
several replications by how many of them meet the SLO target. Whoever ranks, advises or searches calls these functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.plan.quantities import attainment
from planner.scenario.scenario import SloTarget

LEAST_SHORTFALL = 5e-7
"""Shortfalls below it are none: files hold shares to six decimals, and a verdict must not contradict them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A month, and the workload that it is about."""

    month: int
    workload: int | None
    """None where the SLO target is of all workloads together."""
    slo_attainment_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one replication of a plan stands to its SLO target."""

    shortfall_fraction: float
    """By how much the worst share falls short of what is promised; 0 where the SLO target is met."""
    worst: Moment | None
    """Where the share in time is least; None where no request was settled."""
    first_missed: Moment | None
    """Where the SLO target is first missed, the month in which the plan runs out; None where it is kept."""

    @property
    def is_met(self) -> bool:
        """Whether the SLO target is met; without a request to serve it is."""
        return self.first_missed is None

    def met_months(self, months: int) -> int:
        """Return the months before the first that misses the SLO target: all of them where it is kept."""
        return months if self.first_missed is None else self.first_missed.month


def targeted_shares(missed: Floats, settled: Floats, slo_target: SloTarget) -> Floats:
    """Return the shares in time that an SLO target is about, shape (months, workloads) or (months, 1) of all together.

    Each month: 1 − missed / settled, NaN where nothing was settled. Over the horizon: 1 − missed so far / settled in
    all months, the most that the whole can still come to after that month, so it never rises and ends at the share
    of the horizon; the month in which it falls below the SLO target is the one that spends what may be missed.
    """
    if not slo_target.is_per_workload:
        missed, settled = missed.sum(axis=1, keepdims=True), settled.sum(axis=1, keepdims=True)
    if slo_target.is_per_month:
        return attainment(missed, settled)
    return attainment(np.cumsum(missed, axis=0), np.broadcast_to(settled.sum(axis=0), missed.shape))


def judge(missed: Floats, settled: Floats, slo_target: SloTarget) -> Verdict:
    """Return whether a replication meets an SLO target, where it is worst, where it first breaks and by how much.

    ``missed`` and ``settled`` are requests, shape (months, workloads). The shortfall is max(0, promised − worst
    share), and what is less than :data:`LEAST_SHORTFALL` is none.
    """
    shares = targeted_shares(missed, settled, slo_target)
    if np.isnan(shares).all():
        return Verdict(shortfall_fraction=0.0, worst=None, first_missed=None)

    def moment(month: int, of: int) -> Moment:
        workload = of if slo_target.is_per_workload else None
        return Moment(month=month, workload=workload, slo_attainment_fraction=float(shares[month, of]))

    month, of = (int(place) for place in np.unravel_index(np.nanargmin(shares), shares.shape))
    shortfall = slo_target.attainment - float(shares[month, of])
    worst = moment(month, of)
    if shortfall < LEAST_SHORTFALL:
        return Verdict(shortfall_fraction=0.0, worst=worst, first_missed=None)
    broken = slo_target.attainment - shares >= LEAST_SHORTFALL  # a comparison with NaN is false: nothing to serve
    first = int(np.argmax(broken.any(axis=1)))
    missed_first = moment(first, int(np.nanargmin(shares[first])))
    return Verdict(shortfall_fraction=shortfall, worst=worst, first_missed=missed_first)


def shortfall_over(shortfalls: Floats, confidence: float) -> float:
    """Return how far a plan falls short over replications: 0 exactly where enough of them meet the SLO target.

    That is the ⌈share · n⌉-th smallest of n shortfalls, the least that the promised share of replications does not
    exceed. Replications that could not be run are NaN and left out; NaN where there is none.
    """
    known = np.sort(shortfalls[np.isfinite(shortfalls)])
    if not known.size:
        return math.nan
    enough = math.ceil(confidence * known.size - 1e-9)  # 0.9 · 20 is 18, whatever its last digit
    return float(known[max(enough, 1) - 1])


def met_months_over(met_months: Floats, confidence: float) -> float:
    """Return the months that enough replications meet the SLO target through: the ⌈share · n⌉-th largest of n."""
    return -shortfall_over(-met_months, confidence)
