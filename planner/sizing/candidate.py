"""A choice over several replications, and how long the search for one may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.arrays import Bools, Floats
from planner.plan.slo_target import LEAST_SHORTFALL
from planner.sizing.choices import Counts
from planner.sizing.evaluate import Outcome


class TimeUp(Exception):  # noqa: N818 - not an error: the best so far stands
    """The time that was given is over."""


@dataclass(slots=True)
class Clock:
    """How long the search may take, and whom to tell."""

    minutes: float = math.inf
    say: Callable[[str], None] = lambda _: None
    started_s: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise TimeUp where the time is over."""
        if time.monotonic() - self.started_s > 60.0 * self.minutes:
            raise TimeUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A choice over several replications."""

    counts: Counts
    cost: float
    """Mean over the replications."""
    net_present_cost_usd: float
    capital_usd: float
    worst: Floats
    """The least share in time of each replication, shape (replications,)."""
    shares: Floats
    """In time, shape (replications, months, workloads or 1)."""
    utilisation: Floats
    """Mean over the replications, shape (months,)."""

    def kept(self, in_time: float) -> Bools:
        """Say which replications keep a promised share, shape (replications,)."""
        return np.asarray(self.worst > in_time - LEAST_SHORTFALL)

    def keeps(self, in_time: float, in_replications: float) -> bool:
        """Say whether as many replications keep a promised share as is asked for."""
        return bool(self.kept(in_time).sum() >= math.ceil(in_replications * self.worst.size - 1e-9))

    def service(self, in_replications: float) -> float:
        """Return the share in time that so many replications reach: their ⌈p·n⌉-th best."""
        enough = max(1, math.ceil(in_replications * self.worst.size - 1e-9))
        return float(np.sort(self.worst)[::-1][enough - 1])


def gap_fraction(cost: float, bound: float) -> float:
    """Return how much less than a cost a plan could cost at most, as a share of it; 0 where it costs nothing."""
    return max(0.0, cost - bound) / abs(cost) if cost else 0.0


def judged(counts: Counts, outcomes: Sequence[Outcome]) -> Judged:
    """Return a choice over its outcomes."""
    return Judged(
        counts=counts,
        cost=float(np.mean([outcome.cost for outcome in outcomes])),
        net_present_cost_usd=float(np.mean([outcome.net_present_cost_usd for outcome in outcomes])),
        capital_usd=float(np.mean([outcome.capital_usd for outcome in outcomes])),
        worst=np.array([outcome.worst for outcome in outcomes]),
        shares=np.stack([outcome.shares for outcome in outcomes]),
        utilisation=np.mean([outcome.utilisation for outcome in outcomes], axis=0),
    )
