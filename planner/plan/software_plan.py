"""The part of a plan that is about software: its stacks, how they mature, their incidents, and who mends them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.units import HOURS_PER_WEEK

_WORK_H_PER_WEEK = 40.0  # of an engineer: assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreePoint:
    """P10, P50 and P90 of a figure."""

    low: float
    base: float
    high: float

    def lognormal(self, generator: np.random.Generator) -> float:
        """Draw from the lognormal with this median and this P90 / P10."""
        if self.base <= 0 or self.low <= 0:
            return max(0.0, self.normal(generator))
        return self.base * math.exp(math.log(self.high / self.low) / 2.5631 * generator.standard_normal())

    @property
    def lognormal_mean(self) -> float:
        """Mean of that lognormal: median · exp(σ²/2)."""
        if self.base <= 0 or self.low <= 0:
            return max(0.0, self.base)
        return self.base * math.exp(0.5 * (math.log(self.high / self.low) / 2.5631) ** 2)

    def normal(self, generator: np.random.Generator) -> float:
        """Draw from the normal with this median and this P90 − P10."""
        return self.base + (self.high - self.low) / 2.5631 * generator.standard_normal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Headcount:
    """Whole people or parts: so many, or so many per accelerator or node on site."""

    fixed: int = 0
    per_accelerator: float = 0.0
    per_node: float = 0.0
    rounding: str = "nearest"
    least: int = 0
    """How many there are at least, once there is a machine."""

    def number(self, accelerators: float, nodes: float = 0.0) -> int:
        """Return fixed + max(least, rounded(per accelerator · accelerators + per node · nodes)).

        A hair beside a whole number is that number: 400 at 0.0025 are one, whichever way is rounded.
        """
        if accelerators <= 0.0:
            return self.fixed
        part = self.per_accelerator * accelerators + self.per_node * nodes
        shift = {"nearest": 0.5 + 1e-9, "up": 1.0 - 1e-9, "down": 1e-9}[self.rounding]
        return self.fixed + max(self.least, math.floor(part + shift))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPlan:
    """One kind of software incident on one stack."""

    kind: str
    per_year: float
    """Rate per served model, as the upgrade policy meets it."""
    loss: ThreePoint
    """Throughput lost while it lasts."""
    fix_days: ThreePoint
    """What its vendor takes."""
    falsifies: bool
    """Whether outputs are wrong: the stack is rolled back or serves in a wider precision, whatever the loss."""

    def difficulty(self, fix_days: float) -> float:
        """Return how hard an incident is that takes the vendor so long: its days / their median."""
        return fix_days / self.fix_days.base if self.fix_days.base > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MaturityPlan:
    """How far a stack has still to go on one class of models."""

    gain: ThreePoint
    """Throughput over today's, less one, in the end."""
    months: ThreePoint
    """Time constant of the gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A gain or loss from a day on."""

    time_h: float
    model: str
    """Whose; the empty string for every model."""
    log_gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """One software stack: its releases and incidents."""

    name: str
    releases_per_year: float
    release_delay_h: float | None
    """How long a release waits before it is taken; None for never."""
    release_sigma: float
    """Spread of releases about the course of maturing, in the logarithm of speed."""
    maturity: Mapping[str, MaturityPlan]
    """What is left to gain, by class of models, in the catalogue's order of classes, in which they are drawn."""
    steps: tuple[StepPlan, ...]
    """Stated gains and losses, by day."""
    incidents: tuple[IncidentPlan, ...]
    """Kinds in the catalogue's order, in which they are drawn: one that is added shifts no other."""
    bring_up_weeks: ThreePoint
    bring_up_fraction: ThreePoint
    new_model_incident_multiplier: float
    team: int = 0
    """Which of the teams of engineers mends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamPlan:
    """Engineers who work together on one thing at a time."""

    name: str
    clusters: tuple[int, ...]
    """Clusters whose accelerators they grow with, and whose cost they are."""
    engineers: Headcount

    @staticmethod
    def hours(work_h: float, engineers: int) -> float:
        """Return the hours that engineer's hours of work take: work / engineers · 168 / 40."""
        return work_h / engineers * HOURS_PER_WEEK / _WORK_H_PER_WEEK


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwarePlan:
    """Stacks and the engineers who mend them."""

    stacks: tuple[StackPlan, ...]
    teams: tuple[TeamPlan, ...]
    fix_time_multiplier: float
    engineer_h: float
    """Engineer's hours that an incident takes whose fix takes the vendor its median time."""
    architectures: tuple[str, ...]
    """Class of each workload's model."""
    clock_h: tuple[float, ...]
    """By cluster, hours by which its maturing is ahead of the first day: 0 unless its first image is dated."""
    dated_log_gain: Floats
    """Logarithm of what its first image's date makes of its speed, shape (clusters, workloads); 0 unless dated."""
    roofline_log_gain: Floats
    """Logarithm of speed at the part's roofline over that of day one, shape (clusters, workloads)."""
    wide_precision_factor: Floats
    """Speed in the next wider precision over the usual, shape (clusters, workloads); NaN under a roll-back policy."""
