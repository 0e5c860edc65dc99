"""A workload's demand compiled once, and one replication of it drawn in a few array operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from planner.arrays import Floats
from planner.demand.calendar import Horizon
from planner.demand.growth import CompoundGrowth, Growth, hourly_growth
from planner.demand.noise import (
    LaunchSpike,
    LognormalNoise,
    Tenant,
    log2_noise,
    spike_factor,
    tenant_on_fraction,
)
from planner.demand.shape import Shape, shape_factor, weekly_profile
from planner.errors import Problem, ScenarioError
from planner.units import HOURS_PER_WEEK

Streams: TypeAlias = "Callable[[str], np.random.Generator]"
"""From a stream's name to its generator, fresh for each replication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDemand:
    """All that decides one workload's requests."""

    name: str
    """Names its random streams: the same name sees the same noise in every scenario compared."""
    requests_per_s: float
    """Mean over a week at the start."""
    growth: Growth = field(default_factory=lambda: CompoundGrowth(per_year=0.0))
    """Multiplier over the horizon."""
    shape: Shape = field(default_factory=lambda: Shape(weekly_profile=weekly_profile(peak_to_mean=1.0)))
    """Day, week, season, holidays."""
    spikes: tuple[LaunchSpike, ...] = ()
    """Launches on dates."""
    noise: LognormalNoise = field(default_factory=LognormalNoise)
    """Hour-to-hour noise."""
    tenants: tuple[Tenant, ...] = ()
    """Large clients, each with its share of the mean."""
    launch_h: float = 0.0
    """When there is first anything to ask for; no request comes before."""

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 <= self.requests_per_s < np.inf:
            problems.append(f"requests_per_s must be at least 0, not {self.requests_per_s}")
        shares = sum(tenant.share_fraction for tenant in self.tenants)
        if shares > 1.0 + 1e-12:
            problems.append(f"the tenants' shares add up to {shares:g}, more than the whole")
        names = [tenant.name for tenant in self.tenants]
        problems += [f"two tenants named {name!r}" for name in sorted(set(names)) if names.count(name) > 1]
        if problems:
            raise ScenarioError([Problem(path=f"workloads.{self.name}", message=text) for text in problems])


class Rates(NamedTuple):
    """How far a workload's requests per second range over the hours in which any are expected."""

    slackest_hour: float
    slackest_week: float
    busiest_hour: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemandPlan:
    """Everything about demand that does not change between replications; known by its identity, as arrays are."""

    names: tuple[str, ...]
    """Workloads in column order."""
    expected_requests_per_s: Floats
    """Growth · shape · spikes, the mean over replications, shape (workloads, hours)."""
    noise_base_requests_per_s: Floats
    """The same times exp(−σ²/2), so that the noise of median 1 restores the mean, shape (workloads, hours)."""
    noises: tuple[LognormalNoise, ...]
    """Per workload."""
    tenants: tuple[tuple[Tenant, ...], ...]
    """Per workload."""

    @property
    def hours(self) -> int:
        """Return the horizon's length."""
        return int(self.expected_requests_per_s.shape[1])

    def rates(self, name: str) -> Rates:
        """Return how far a workload's requests per second range."""
        expected = self.expected_requests_per_s[self.names.index(name)]
        asked = expected[expected > 0.0]
        if not asked.size:
            return Rates(0.0, 0.0, 0.0)
        week = min(int(HOURS_PER_WEEK), asked.size)
        weekly = asked[: asked.size // week * week].reshape(-1, week).mean(axis=1)
        return Rates(float(asked.min()), float(weekly.min()), float(asked.max()))


def build_demand_plan(workloads: Sequence[WorkloadDemand], horizon: Horizon) -> DemandPlan:
    """Compile workloads over a horizon."""
    names = tuple(workload.name for workload in workloads)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ScenarioError([Problem(path="workloads", message=f"two workloads named {name!r}") for name in twice])
    expected = np.empty((len(names), horizon.hours))
    for index, workload in enumerate(workloads):
        expected[index] = shape_factor(workload.shape, horizon)
        expected[index] *= hourly_growth(workload.growth, horizon.hours)
        expected[index] *= spike_factor(workload.spikes, horizon.hours)
        expected[index] *= workload.requests_per_s
        expected[index, : max(0, math.ceil(workload.launch_h))] = 0.0
    sigma = np.array([workload.noise.sigma for workload in workloads])
    return DemandPlan(
        names=names,
        expected_requests_per_s=_read_only(expected),
        noise_base_requests_per_s=_read_only(expected * np.exp(-0.5 * sigma**2)[:, np.newaxis]),
        noises=tuple(workload.noise for workload in workloads),
        tenants=tuple(workload.tenants for workload in workloads),
    )


def hourly_requests_per_s(plan: DemandPlan, streams: Streams) -> Floats:
    """Draw one replication of demand, shape (hours, workloads).

    Streams are asked for by name: ``demand/<workload>/noise`` and ``demand/<workload>/tenant/<tenant>``, so a workload
    or tenant added, removed or moved never shifts another's draws, and hour t always takes the t-th normal whatever
    the horizon. The array is a transposed view: each workload's hours lie contiguous in memory.
    """
    requests_per_s = np.empty_like(plan.noise_base_requests_per_s)
    for index, (name, noise, tenants) in enumerate(zip(plan.names, plan.noises, plan.tenants, strict=True)):
        row, base = requests_per_s[index], plan.noise_base_requests_per_s[index]
        if noise.sigma > 0.0:
            np.exp2(log2_noise(noise, plan.hours, streams(f"demand/{name}/noise")), out=row)
            row *= base
        else:
            row[:] = base
        if tenants:
            row *= _tenant_factor(tenants, name, plan.hours, streams)
    return requests_per_s.T


def _tenant_factor(tenants: tuple[Tenant, ...], workload: str, hours: int, streams: Streams) -> Floats:
    """Return 1 − Σ share + Σ share · on(t) / P(on), mean 1, shape (hours,)."""
    factor = np.full(hours, 1.0 - sum(tenant.share_fraction for tenant in tenants))
    for tenant in tenants:
        on = tenant_on_fraction(tenant, hours, streams(f"demand/{workload}/tenant/{tenant.name}"))
        on *= tenant.share_fraction / tenant.on_fraction
        factor += on
    return factor


def _read_only(array: Floats) -> Floats:
    """Return the array, locked: a plan is shared by all replications."""
    array.flags.writeable = False
    return array
