"""SLO attainment: which share of requests meets its objective, as a target counts it, and whether that is enough.

One replication is judged by its requests that missed their objective and its requests settled, by month and workload;
a plan by how many of its replications meet the target. Whoever ranks, advises or searches calls these functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.plan.plan import Plan
from planner.plan.quantities import attainment
from planner.records import record
from planner.scenario.scenario import Scenario

LEAST_SHORTFALL = 5e-7
"""Shortfalls below it are none: files hold shares to six decimals, and a verdict must not contradict them."""

CEILINGS = ("slo_ceiling_outages_fraction", "slo_ceiling_fraction")
"""SLO attainment that no further node raises: with site outages alone, and with prompts that are too long as well."""


@record
class Moment:
    """SLO attainment in one month, of one workload or of all."""

    month: int
    workload: int | None
    """None where the SLO target is of all workloads together."""
    slo_attainment_fraction: float


@record
class SloResult:
    """How one replication of a plan stands to its SLO target."""

    shortfall_fraction: float
    """By how much the worst share falls short of what is promised; 0 where the SLO target is met."""
    worst: Moment | None
    """Where the share in time falls shortest of its target; None where no request was settled."""
    first_missed: Moment | None
    """Where the SLO target is first missed, the month in which the plan runs out; None where it is kept."""
    missed_months: tuple[int, ...] = ()
    """Every month that misses the SLO target."""

    @property
    def is_met(self) -> bool:
        """Whether the SLO target is met; it is met where there are no requests."""
        return self.first_missed is None

    def met_months(self, months: int) -> int:
        """Return the number of months before the first that misses the SLO target: all where it is met."""
        return months if self.first_missed is None else self.first_missed.month


Status = Literal["MET", "MISSED", "INCONCLUSIVE"]
_BELIEF = 0.95
"""Probability at which a verdict is given, on either side; assumption."""
_SETTLING = (19, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Numbers of replications that a user may be told to run."""


class Verdict(NamedTuple):
    """Whether a plan meets its SLO target, by how many of its replications do: the one answer on every surface."""

    met: int
    """Replications that meet the target."""
    replications: int
    """Replications that could be run."""
    confidence: float
    """Share of replications that is to meet it."""

    @classmethod
    def of(cls, scenario: Scenario, met: int, replications: int) -> Verdict:
        """Return the verdict on a scenario, of whose replications some meet its target."""
        return cls(met, replications, scenario.slo_target.confidence)

    @property
    def share(self) -> float:
        """Share of replications that meet the target; NaN without any."""
        # A sample size may be zero where no replication could be run.
        if not self.replications:
            return math.nan
        return self.met / self.replications

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the probability that a replication meets the target, 95% sure of each end (Jeffreys)."""
        return _interval(self.met, self.replications)

    @property
    def status(self) -> Status:
        """MET or MISSED where the interval lies on one side of the confidence that is required, else INCONCLUSIVE."""
        low, high = self.interval
        if low >= self.confidence:
            return "MET"
        return "MISSED" if high < self.confidence else "INCONCLUSIVE"

    @property
    def settled_by(self) -> int | None:
        """Replications that would settle an inconclusive verdict at the same share; None where none of those would."""
        if not self.replications:
            return None
        for number in _SETTLING:
            met = round(self.share * number)
            larger = Verdict(met, number, self.confidence)
            is_settled = larger.status != "INCONCLUSIVE"
            if number > self.replications and is_settled:
                return number
        # A share next to the confidence itself stays open at any affordable number.
        return None


@functools.cache
def _interval(met: int, replications: int) -> tuple[float, float]:
    """Return Jeffreys' interval of a probability that was seen ``met`` of ``replications`` times.

    The posterior of p = sin²θ has the density sin(θ)^(2·met) · cos(θ)^(2·missed) over θ from 0 to π/2.
    """
    # In the angle the density is finite at both ends, so that a plain sum will do. Logarithms keep powers in range.
    grid = np.linspace(0.0, math.pi / 2, 65_537)
    # Not the ends themselves, where a logarithm is infinite.
    angle = grid[1:-1]
    missed = replications - met
    log_met = 2 * met * np.log(np.sin(angle))
    log_missed = 2 * missed * np.log(np.cos(angle))
    log_density = log_met + log_missed
    # The highest density becomes 1: of the rest only what is next to nothing underflows.
    density = np.exp(log_density - log_density.max())
    cumulative = np.cumsum(density)
    levels = [1.0 - _BELIEF, _BELIEF]
    ends = np.searchsorted(cumulative / cumulative[-1], levels)
    low, high = np.sin(angle[ends]) ** 2
    # Without a success, or without a failure, that end is the bound itself.
    lower_bound = float(low) if met else 0.0
    upper_bound = float(high) if missed > 0 else 1.0
    return lower_bound, upper_bound


def targeted_shares(plan: Plan, missed: Floats, settled: Floats) -> Floats:
    """Return the SLO attainment that a plan's target applies to, shape (months, workloads or 1).

    Each month: 1 − missed / settled, NaN where nothing was settled. Over the horizon: 1 − missed so far / settled in
    all months, the most that the whole can still come to after that month, so it never rises and ends at the share
    of the horizon; the month in which it falls below the SLO target is the one that spends what may be missed.
    """
    if plan.slo_target.scope == "fleet":
        missed = missed.sum(axis=1, keepdims=True)
        settled = settled.sum(axis=1, keepdims=True)
    if plan.slo_target.per == "month":
        return attainment(missed, settled)
    missed_so_far = np.cumsum(missed, axis=0)
    # The whole horizon's requests in every month: what is missed is spent from one budget.
    all_settled = np.broadcast_to(settled.sum(axis=0), missed.shape)
    return attainment(missed_so_far, all_settled)


def lowest_share(plan: Plan, missed: Floats, settled: Floats) -> float:
    """Return the lowest SLO attainment that a plan's target applies to; NaN without requests.

    That of a workload with an attainment of its own is as far from the common one as from its own.
    """
    # Shifted to the common attainment, so that one number compares all workloads.
    to_common = plan.slo_target.attainment - plan.slo_attainments
    shares = targeted_shares(plan, missed, settled) + to_common
    # numpy warns of a minimum over nothing but NaN.
    if np.isnan(shares).all():
        return math.nan
    return float(np.nanmin(shares))


def judge(plan: Plan, missed: Floats, settled: Floats) -> SloResult:
    """Return whether a replication meets its plan's target, where it is worst, where it first breaks and by how much.

    ``missed`` and ``settled`` are requests, shape (months, workloads). The shortfall is max(0, attainment − share)
    where that is largest, and what is less than :data:`LEAST_SHORTFALL` is none.
    """
    shares = targeted_shares(plan, missed, settled)
    short = plan.slo_attainments - shares
    if np.isnan(shares).all():
        return SloResult(shortfall_fraction=0.0, worst=None, first_missed=None)

    def moment(month: int, column: int) -> Moment:
        workload = None if plan.slo_target.scope == "fleet" else column
        share = float(shares[month, column])
        return Moment(month=month, workload=workload, slo_attainment_fraction=share)

    # Of equal shortfalls the earliest month, and in it the first workload.
    month, column = divmod(int(np.nanargmax(short)), shares.shape[1])
    shortfall = float(short[month, column])
    worst = moment(month, column)
    if shortfall < LEAST_SHORTFALL:
        return SloResult(shortfall_fraction=0.0, worst=worst, first_missed=None)
    # A comparison with NaN is false: where nothing was to be served, nothing is missed.
    is_missed = short >= LEAST_SHORTFALL
    is_missed_month = is_missed.any(axis=1)
    months = tuple(np.flatnonzero(is_missed_month).tolist())
    # The workload that is furthest below its target in that month stands for it.
    furthest = int(np.nanargmax(short[months[0]]))
    missed_first = moment(months[0], furthest)
    return SloResult(
        shortfall_fraction=shortfall, worst=worst, first_missed=missed_first, missed_months=months
    )


def run_out(met_months: Floats, labels: Sequence[str]) -> dict[str, float]:
    """Return the share of replications that first miss their SLO target in a month, by month, where any does.

    ``met_months`` are the months before the first that is missed; NaN for a replication that could not be run.
    """
    has_run = np.isfinite(met_months)
    months = met_months[has_run].astype(np.intp)
    # Replications that miss nothing have the number of months, beyond all labels.
    counts = np.bincount(months, minlength=len(labels))
    return {
        label: int(misses) / months.size
        for label, misses in zip(labels, counts, strict=False)
        if misses
    }


def past_mending(ceilings: Floats, attainment: float) -> dict[str, int]:
    """Return how many replications miss an SLO attainment whatever is bought, by cause.

    ``ceilings`` are those of :data:`CEILINGS`, shape (2, replications); NaN where one could not be run.
    """
    # A comparison with NaN is false, so that replications that could not be run count nowhere.
    is_out_of_reach = attainment - ceilings >= LEAST_SHORTFALL
    outages, outages_or_prompts = is_out_of_reach.sum(axis=1).tolist()
    return {"site_outages": outages, "prompts_too_long": outages_or_prompts - outages}


def shortfall_over(shortfalls: Floats, confidence: float) -> float:
    """Return a plan's shortfall over replications: 0 exactly where enough of them meet the SLO target.

    That is the ⌈share · n⌉-th smallest of n shortfalls, the least that the promised share of replications does not
    exceed. Replications that could not be run are NaN and left out; NaN where there is none.
    """
    has_run = np.isfinite(shortfalls)
    finite = np.sort(shortfalls[has_run])
    if not finite.size:
        return math.nan
    # 0.9 · 20 is 18, whatever its last digit.
    rank = math.ceil(confidence * finite.size - 1e-9)
    return float(finite[max(rank, 1) - 1])


def met_months_over(met_months: Floats, confidence: float) -> float:
    """Return the months up to which enough replications meet the SLO target: the ⌈share · n⌉-th largest."""
    return -shortfall_over(-met_months, confidence)
