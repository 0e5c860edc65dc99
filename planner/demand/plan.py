"""A workload's demand compiled once, and one replication of it drawn in a few array operations.

Growth is a multiplier, 1 at the start; what no forecast knows is hour-to-hour noise, launch spikes, and large tenants
that come and go. Random numbers are drawn in one block per stream; every function takes the generator of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Floats
from planner.demand.shape import Horizon, Shape, shape_factor, weekly_profile
from planner.errors import Problem, raise_all
from planner.units import HOURS_PER_WEEK, HOURS_PER_YEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class CompoundGrowth:
    """Growth by a constant fraction a year: m(t) = (1 + per_year)^t, t in years."""

    per_year: float
    """Fraction a year; 0.6 is +60% a year, negative shrinks."""


_FAR_H = 1e7
"""A millennium: past the end of any horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangingGrowth:
    """Compound growth whose yearly rate changes at some hours: ln m(t) = ∫ ln(1 + per_year) dt, t in years."""

    per_year: tuple[float, ...]
    """Fraction a year, of each span in turn; the first from the start on."""
    begins_h: tuple[float, ...]
    """Hours since start at which the later ones begin, above 0 and rising."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SCurveGrowth:
    """Logistic adoption from 1 towards a ceiling, half of the rise behind at the midpoint.

    m(t) = 1 + (ceiling − 1) (exp(kt) − 1) / (exp(kt) + exp(k t_mid) − 2): the logistic L(t) = 1 / (1 + exp(−k (t − τ)))
    taken from L(0), with exp(kτ) = exp(k t_mid) − 2, so that it is exactly 1 at the start, half up at t_mid and at the
    ceiling in the far future. A midpoint before ln 2 / k is earlier than any logistic of steepness k can be; k is then
    ln 2 / t_mid, at which the S has become an exponential approach.
    """

    ceiling_multiple: float
    """Requests in the far future ÷ requests at the start."""
    midpoint_years: float
    """When half of the rise is behind, in years since start."""
    steepness_per_year: float
    """k: 10–90% of a full logistic takes 4.4 / k years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrowth:
    """Jumps on dates: from each step's hour on, its factor is the multiplier (not a product of steps)."""

    steps: tuple[tuple[float, float], ...]
    """(hour since start, multiplier from then on), in any order."""

    def __post_init__(self) -> None:
        twice = [
            hour for hour, count in Counter(hour for hour, _ in self.steps).items() if count > 1
        ]
        raise_all(
            [
                Problem(path="step growth", message=f"two steps at hour {hour}")
                for hour in sorted(twice)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGrowth:
    """A user's own forecast: points joined by straight lines, constant before the first and after the last."""

    hours_h: tuple[float, ...]
    """Hours since start, rising."""
    factors: tuple[float, ...]
    """Multiplier at each."""


Growth: TypeAlias = CompoundGrowth | ChangingGrowth | SCurveGrowth | StepGrowth | TableGrowth


def growth_multiplier(growth: Growth, hours_h: ArrayLike) -> Floats:
    """Return the growth multiplier at times in hours since start, in the shape of ``hours_h``."""
    time_h = np.asarray(hours_h, dtype=np.float64)
    match growth:
        case CompoundGrowth(per_year=per_year):
            return np.asarray(
                np.exp(np.log1p(per_year) / HOURS_PER_YEAR * time_h), dtype=np.float64
            )
        case ChangingGrowth(per_year=rates, begins_h=begins_h):
            knots_h = np.array((0.0, *begins_h, _FAR_H))
            logs = np.cumsum((0.0, *np.log1p(rates) / HOURS_PER_YEAR * np.diff(knots_h)))
            return np.asarray(np.exp(np.interp(time_h, knots_h, logs)), dtype=np.float64)
        case SCurveGrowth():
            # What is left of the rise, (exp(k t_mid) − 1) / (exp(k t_mid) − 2 + exp(kt)), with both sides divided by
            # exp(k t_mid), so that a steep or late curve does not overflow; beyond exp(700) nothing is left.
            k = max(growth.steepness_per_year, math.log(2.0) / growth.midpoint_years)
            middle = growth.midpoint_years
            tail = math.exp(-k * middle)
            late = np.minimum(k * (time_h / HOURS_PER_YEAR - middle), 700.0)
            left = (1.0 - tail) / (1.0 - 2.0 * tail + np.exp(late))
            return np.asarray(
                1.0 + (growth.ceiling_multiple - 1.0) * (1.0 - left), dtype=np.float64
            )
        case StepGrowth(steps=steps):
            ordered = sorted(steps)
            level = np.array([1.0, *(factor for _, factor in ordered)])
            return level[np.searchsorted([hour for hour, _ in ordered], time_h, side="right")]
        case TableGrowth(hours_h=at_h, factors=factors):
            return np.asarray(np.interp(time_h, at_h, factors), dtype=np.float64)


def hourly_growth(growth: Growth, hours: int) -> Floats:
    """Return the growth multiplier in the middle of each hour, shape (hours,)."""
    if isinstance(
        growth, CompoundGrowth
    ):  # a day's 24 factors times each day's: exponentials of hours cost the most
        days = growth_multiplier(growth, np.arange(0.0, hours, 24.0))
        return np.outer(days, growth_multiplier(growth, np.arange(24) + 0.5)).reshape(-1)[:hours]
    return growth_multiplier(growth, np.arange(hours) + 0.5)


LN_2 = float(np.log(2.0))
_BLOCK_HOURS = 24  # fastest of 8..64 where measured; a whole number of days needs no padding
_CHUNK_ROWS = 256  # 256 × 24 × 24 multiplications: OpenBLAS starts threads at 262,144, and at 9,216 for a vector


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalNoise:
    """Multiplicative noise N(t) = exp(X(t) − σ²/2), X a stationary Gaussian AR(1): E[N] = 1 at every hour."""

    sigma: float = 0.0
    """Standard deviation of the logarithm."""
    correlation_h: float = 0.0
    """Hours in which the correlation of X falls to 1/e; 0 is independent from hour to hour."""

    @property
    def hourly_correlation(self) -> float:
        """Return φ = exp(−1 / correlation_h), the correlation of X between neighbouring hours."""
        return float(np.exp(-1.0 / self.correlation_h)) if self.correlation_h > 0.0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpike:
    """A launch or news event: requests jump to a multiple and decay: 1 + (multiple − 1) exp(−(t − t₀) / decay)."""

    hour_h: float
    """When it strikes, in hours since start."""
    multiple: float
    """Requests just after ÷ without it; below 1 is an outage of interest."""
    decay_days: float
    """Days in which the excess falls to 1/e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStream:
    """A large client as an on/off stream: exponential on and off times, a fixed share of the long-run mean."""

    name: str
    """Names its random stream."""
    share_fraction: float
    """Its requests ÷ the workload's, over the long run."""
    mean_on_h: float
    """Mean hours it sends without a break."""
    mean_off_h: float
    """Mean hours it is silent."""


def log2_noise(noise: LognormalNoise, hours: int, generator: np.random.Generator) -> Floats:
    """Return X(t) / ln 2, X the stationary Gaussian AR(1) with standard deviation σ, shape (hours,).

    In powers of two because numpy raises 2 to a power a tenth faster than e.
    One block of standard normals ε is drawn, one an hour; X(0) = σ ε(0), X(t) = φ X(t−1) + σ √(1−φ²) ε(t).
    """
    phi = noise.hourly_correlation
    sigma = noise.sigma / LN_2
    innovations = generator.standard_normal(hours)
    if phi == 0.0 or sigma == 0.0:
        innovations *= sigma
        return innovations
    innovations[0] /= np.sqrt(1.0 - phi * phi)
    return _autoregress(innovations, phi, sigma * float(np.sqrt(1.0 - phi * phi)))


def _autoregress(innovations: Floats, phi: float, scale: float = 1.0) -> Floats:
    """Return scale · y with y(t) = φ y(t−1) + ε(t), y(−1) = 0, by matrix products; overwrites ``innovations``.

    A block of 24 hours is one row times an upper-triangular matrix of powers of φ. What a block hands on is the same
    recursion with φ²⁴ over block ends, solved by calling itself. This is as fast as scipy.signal.lfilter without its
    second of import.
    """
    hours = innovations.size
    blocks = -(-hours // _BLOCK_HOURS)
    if blocks * _BLOCK_HOURS != hours:
        innovations = np.concatenate([innovations, np.zeros(blocks * _BLOCK_HOURS - hours)])
    rows = innovations.reshape(blocks, _BLOCK_HOURS)
    if blocks > 1:
        left = np.ascontiguousarray(
            _powers(phi, 1.0)[:, -1]
        )  # what each hour of a block leaves at its end, φ^(23−i)
        block_ends = _autoregress(_times(rows, left), phi**_BLOCK_HOURS)
        rows[1:, 0] += phi * block_ends[:-1]
    return _times(rows, _powers(phi, scale)).reshape(-1)[:hours]


def _times(rows: Floats, matrix: Floats) -> Floats:
    """Return rows @ matrix in chunks too small for BLAS threads, since replications run in parallel."""
    if len(rows) <= _CHUNK_ROWS:
        return np.asarray(rows @ matrix, dtype=np.float64)
    product = np.empty(rows.shape[:1] + matrix.shape[1:])
    for begin in range(0, len(rows), _CHUNK_ROWS):
        np.matmul(
            rows[begin : begin + _CHUNK_ROWS], matrix, out=product[begin : begin + _CHUNK_ROWS]
        )
    return product


@lru_cache(maxsize=256)
def _powers(phi: float, scale: float) -> Floats:
    """Return the matrix with scale · φ^(j−i) at (i, j) for j ≥ i and 0 below, shape (24, 24)."""
    lag = np.subtract.outer(-np.arange(_BLOCK_HOURS), -np.arange(_BLOCK_HOURS))
    return np.where(lag >= 0, scale * phi ** np.maximum(lag, 0), 0.0)


def spike_factor(spikes: tuple[LaunchSpike, ...], hours: int) -> Floats:
    """Return the product of all launch spikes, each averaged over its hour exactly, shape (hours,)."""
    factor = np.ones(hours)
    for spike in spikes:
        decay_h = spike.decay_days * 24.0
        since_h = np.maximum(np.arange(hours + 1, dtype=np.float64) - spike.hour_h, 0.0)
        excess_h = -decay_h * np.expm1(
            -since_h / decay_h
        )  # the integral of the decaying excess from the strike on
        factor *= 1.0 + (spike.multiple - 1.0) * np.diff(excess_h)
    return factor


def on_off_fraction(
    mean_on_h: float, mean_off_h: float, hours: int, generator: np.random.Generator
) -> Floats:
    """Return the part of each hour that something is on, shape (hours,), starting in its stationary state.

    Exponential times have no memory, so the state at the start is on with probability on / (on + off) and the first
    period is an ordinary one. Each switch adds to its own hour the part that is left of it and to all later hours 1.
    """
    if mean_off_h == 0.0:
        return np.ones(hours)
    starts_on = bool(generator.random() < mean_on_h / (mean_on_h + mean_off_h))
    means_h = np.array([mean_on_h, mean_off_h] if starts_on else [mean_off_h, mean_on_h])
    expected = hours / means_h.sum()
    switches_h = np.zeros(1)
    while switches_h[-1] < hours:  # in blocks of an even number of exponentials
        periods_h = (
            generator.standard_exponential((int(expected + 6.0 * np.sqrt(expected) + 8.0), 2))
            * means_h
        )
        switches_h = np.append(switches_h, switches_h[-1] + np.cumsum(periods_h.reshape(-1)))
    switches_h = switches_h[1:][switches_h[1:] < hours]
    sign = np.where(np.arange(switches_h.size) % 2 == int(not starts_on), -1.0, 1.0)
    hour = switches_h.astype(np.int64)
    past = (switches_h - hour) * sign
    change = np.bincount(hour, weights=sign - past, minlength=hours + 1).astype(
        np.float64, copy=False
    )
    np.add.at(change, hour + 1, past)
    change[0] += starts_on
    np.cumsum(change, out=change)
    return np.clip(change, 0.0, 1.0, out=change)[
        :hours
    ]  # clipped for the last bit that rounding leaves


Streams: TypeAlias = "Callable[[str], np.random.Generator]"
"""From a stream's name to its generator, fresh for each replication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDemand:
    """All inputs of one workload's demand: rate, growth, profile, spikes, noise and tenants."""

    name: str
    """Names its random streams: the same name sees the same noise in every scenario compared."""
    requests_per_s: float
    """Mean over a week at the start."""
    growth: Growth = field(default_factory=lambda: CompoundGrowth(per_year=0.0))
    """Multiplier over the horizon."""
    shape: Shape = field(
        default_factory=lambda: Shape(weekly_profile=weekly_profile(peak_to_mean=1.0))
    )
    """Day, week, season, holidays."""
    spikes: tuple[LaunchSpike, ...] = ()
    """Launches on dates."""
    noise: LognormalNoise = field(default_factory=LognormalNoise)
    """Hour-to-hour noise."""
    tenants: tuple[TenantStream, ...] = ()
    """Large clients, each with its share of the mean."""
    launch_h: float = 0.0
    """When there is first anything to ask for; no request comes before."""

    def __post_init__(self) -> None:
        twice = [
            name
            for name, count in Counter(tenant.name for tenant in self.tenants).items()
            if count > 1
        ]
        problems = [f"two tenants named {name!r}" for name in sorted(twice)]
        raise_all([Problem(path=f"workloads.{self.name}", message=message) for message in problems])


class Rates(NamedTuple):
    """Lowest and highest request rates of a workload over the hours with demand."""

    slackest_hour: float
    slackest_week: float
    busiest_hour: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemandPlan:
    """All demand figures that are the same in every replication; compared by identity."""

    names: tuple[str, ...]
    """Workloads in column order."""
    expected_requests_per_s: Floats
    """Growth · shape · spikes, the mean over replications, shape (workloads, hours)."""
    noise_base_requests_per_s: Floats
    """The same times exp(−σ²/2), so that the noise of median 1 restores the mean, shape (workloads, hours)."""
    noises: tuple[LognormalNoise, ...]
    """Per workload."""
    tenants: tuple[tuple[TenantStream, ...], ...]
    """Per workload."""

    @property
    def hours(self) -> int:
        """Return the horizon's length in hours."""
        return int(self.expected_requests_per_s.shape[1])

    def rates(self, name: str) -> Rates:
        """Return a workload's lowest and highest request rates per second."""
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
    """Draw one replication of demand in requests per second, shape (hours, workloads).

    Streams are asked for by name: ``demand/<workload>/noise`` and ``demand/<workload>/tenant/<tenant>``, so a workload
    or tenant added, removed or moved never shifts another's draws, and hour t always takes the t-th normal whatever
    the horizon. The array is a transposed view: each workload's hours lie contiguous in memory.
    """
    requests_per_s = np.empty_like(plan.noise_base_requests_per_s)
    for index, (name, noise, tenants) in enumerate(
        zip(plan.names, plan.noises, plan.tenants, strict=True)
    ):
        row = requests_per_s[index]
        base = plan.noise_base_requests_per_s[index]
        if noise.sigma > 0.0:
            np.exp2(log2_noise(noise, plan.hours, streams(f"demand/{name}/noise")), out=row)
            row *= base
        else:
            row[:] = base
        if tenants:  # 1 − Σ share + Σ share · on(t) / P(on), of mean 1
            factor = np.full(plan.hours, 1.0 - sum(tenant.share_fraction for tenant in tenants))
            for tenant in tenants:
                generator = streams(f"demand/{name}/tenant/{tenant.name}")
                on = on_off_fraction(tenant.mean_on_h, tenant.mean_off_h, plan.hours, generator)
                on *= tenant.share_fraction / (
                    tenant.mean_on_h / (tenant.mean_on_h + tenant.mean_off_h)
                )
                factor += on
            row *= factor
    return requests_per_s.T


def _read_only(array: Floats) -> Floats:
    """Return the array made read-only, since all replications share a plan."""
    array.flags.writeable = False
    return array
