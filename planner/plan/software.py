"""Software stacks as a plan states them: releases, maturity, incidents, and the engineers who fix them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.arrays import Floats, Names
from planner.catalog.entries import Stack
from planner.catalog.load import Catalog
from planner.physics.coefficients import Calibration
from planner.plan.distributions import ThreePoint
from planner.plan.staffing import Headcount
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR, MONTHS_PER_YEAR

_WORK_H_PER_WEEK = 40.0
"""Of an engineer: assumption."""


@record
class IncidentPlan:
    """One kind of software incident on one stack."""

    kind: str
    per_year: float
    """Rate per served model of those that come at any time."""
    per_upgrade: float
    """Probability per served model that an upgrade brings one."""
    loss: ThreePoint
    """Throughput lost while it lasts."""
    most_loss: float
    """Where that is cut."""
    detection_h: ThreePoint
    """From an upgrade until what came with it is noticed."""
    subtle_detection_h: ThreePoint
    subtle_fraction: float
    """Share that is subtle whatever the loss."""
    subtle_below: float
    """Loss below which one is subtle."""
    fix_days: ThreePoint
    """What its vendor takes."""
    falsifies: bool
    """Whether outputs are wrong: the stack is rolled back or serves in a wider precision, whatever the loss."""

    def difficulty(self, fix_days: float) -> float:
        """Return an incident's difficulty: the vendor's days to fix it over their median."""
        # A fix that takes no time has no median to divide by: all are as difficult.
        if self.fix_days.base <= 0:
            return 1.0
        return fix_days / self.fix_days.base


@record
class MaturityPlan:
    """Speed still to be gained by a stack on one class of models, and the months that takes."""

    gain: ThreePoint
    """Throughput over today's, less one, in the end."""
    months: ThreePoint
    """Time constant of the gap."""


def matured(gain: float, constant_h: float, after_h: float) -> float:
    """Return the part of a gap in log speed that has closed after some hours: g·(1 − exp(−t/τ)).

    Before the moment from which the gap is counted it is negative: older software is slower.
    """
    # Without a time constant all is gained at once.
    if constant_h <= 0.0:
        return gain
    return -gain * math.expm1(-after_h / constant_h)


@record
class StepPlan:
    """A gain or loss of speed from a date on."""

    time_h: float
    model: str
    """Whose; the empty string for every model."""
    log_gain: float


@record
class StackPlan:
    """One software stack: its releases and incidents."""

    name: str
    releases_per_year: float
    upgrade_h: float
    """Mean hours from one upgrade to the next, each of which takes the newest release."""
    rollback_impossible_fraction: float
    """Share of incidents after which no older release serves."""
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

    @property
    def upgrades_per_year(self) -> float:
        """Mean upgrades of a year."""
        return HOURS_PER_YEAR / self.upgrade_h


MOST_ENGINEERS = 3
"""Who can work on one incident without waiting for one another: assumption. More of them mend more at once."""


@record
class TeamPlan:
    """Engineers who mend incidents, a few on each."""

    name: str
    clusters: tuple[int, ...]
    """Clusters whose accelerators they grow with, and whose cost they are."""
    engineers: Headcount

    @staticmethod
    def at_once(engineers: int) -> int:
        """Return how many incidents engineers mend at once: as many as there are threes, at least one."""
        return max(1, engineers // MOST_ENGINEERS)

    @staticmethod
    def hours(work_h: float, engineers: int) -> float:
        """Return the elapsed hours for some engineer-hours of work: work / min(engineers, 3) · 168 / 40."""
        on_it = min(engineers, MOST_ENGINEERS)
        return work_h / on_it * HOURS_PER_WEEK / _WORK_H_PER_WEEK


@record
class SoftwarePlan:
    """Software stacks and the engineers who fix their incidents."""

    stacks: tuple[StackPlan, ...]
    teams: tuple[TeamPlan, ...]
    fix_time_multiplier: float
    engineer_h: float
    """Engineer's hours that an incident takes whose fix takes the vendor its median time."""
    canary_fraction: float
    """Share of a stack that runs a release first."""
    bake_h: float
    """For how long, before the rest takes it; 0 where all take it at once."""
    rollback_h: ThreePoint
    """What a return of the stack to the release before takes."""
    architectures: tuple[str, ...]
    """Class of each workload's model."""
    clock_h: tuple[float, ...]
    """By cluster, hours by which its maturing is ahead of the first day: 0 unless its first image is dated."""
    stack_of: Names
    """Stack that serves each pair, shape (clusters, workloads); empty where none does."""
    dated_log_gain: Floats
    """Logarithm of what its first image's date makes of its speed, shape (clusters, workloads); 0 unless dated."""
    roofline_log_gain: Floats
    """Logarithm of speed at the part's roofline over that of day one, shape (clusters, workloads)."""
    wide_precision_factor: Floats
    """Speed in the next wider precision over the usual, shape (clusters, workloads); NaN under a roll-back policy."""


UPGRADE_POLICIES = {"latest": "low", "staged": "base", "pinned": "high"}
"""Which of the catalogue's intervals between upgrades a policy takes: those of production operators."""
_FIRST_LIGHT = 0.3
"""Slowest that an old image is taken to be: a new model's first light on MI355X, 1/2.9 to 1/3.6 of its ceiling."""


def policy_days(policy: str, catalog: Catalog) -> float:
    """Return the mean days from one upgrade to the next under an upgrade policy."""
    interval = catalog.prior("upgrade_interval_production")
    return float(getattr(interval, UPGRADE_POLICIES[policy]))


def upgrade_days(scenario: Scenario, catalog: Catalog) -> float:
    """Return the mean days from one upgrade to the next: those stated, or those of the upgrade policy."""
    software = scenario.software
    return software.upgrade_days or policy_days(software.upgrade_policy, catalog)


def stack_name(stack: Stack) -> str:
    """Return a stack's name, as used by clusters and random streams."""
    return f"{stack.platform.value}-{stack.engine.value}"


def dated_log_gain(
    cluster: Cluster, engine: str, workload: Workload, calibration: Calibration, catalog: Catalog
) -> float:
    """Return the log speed change due to the date of a cluster's engine image; 0 where it has no date.

    The stack's course of maturing, at its base figures, from the calibration's measurements to that date.
    """
    # A throughput that the user states is that of the image which runs.
    is_stated = cluster.throughput_tokens_per_s_per_accelerator is not None
    if cluster.engine_date is None or calibration.measured_on is None or is_stated:
        return 0.0
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    architecture = catalog.model(workload.model).architecture_class.value
    maturity = catalog.stack(vendor, engine).maturity.get(architecture)
    # A class of models that the catalogue leaves out is mature.
    if maturity is None:
        return 0.0
    hours = (cluster.engine_date - calibration.measured_on).days * HOURS_PER_DAY
    constant_h = maturity.closing_months.base * HOURS_PER_YEAR / MONTHS_PER_YEAR
    ceiling = math.log1p(maturity.ceiling_gain_fraction.base)
    # Far enough before the measurements the exponential law would have an image do nothing at all.
    log_gain = matured(ceiling, constant_h, hours)
    return max(log_gain, math.log(_FIRST_LIGHT))
