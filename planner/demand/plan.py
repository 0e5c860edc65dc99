"""A workload's demand compiled once, and one replication of it drawn in a few array operations.

Growth is a multiplier, 1 at the start; what no forecast knows is hour-to-hour noise, launch spikes, and large tenants
that come and go. Random numbers are drawn in one block per stream; every function takes the generator of its own.
"""

from __future__ import annotations

import dataclasses
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
from planner.records import record
from planner.units import HOURS_PER_WEEK, HOURS_PER_YEAR


@record
class CompoundGrowth:
    """Growth by a constant fraction a year: m(t) = (1 + per_year)^t, t in years."""

    per_year: float
    """Fraction a year; 0.6 is +60% a year, negative shrinks."""


_FAR_H = 1e7
"""A millennium: past the end of any horizon."""


@record
class ChangingGrowth:
    """Compound growth whose yearly rate changes at some hours: ln m(t) = ∫ ln(1 + per_year) dt, t in years."""

    per_year: tuple[float, ...]
    """Fraction a year, of each span in turn; the first from the start on."""
    begins_h: tuple[float, ...]
    """Hours since start at which the later ones begin, above 0 and rising."""


@record
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


@record
class StepGrowth:
    """Jumps on dates: from each step's hour on, its factor is the multiplier (not a product of steps)."""

    steps: tuple[tuple[float, float], ...]
    """(hour since start, multiplier from then on), in any order."""

    def __post_init__(self) -> None:
        counts = Counter(hour for hour, _ in self.steps)
        duplicates = [hour for hour, count in counts.items() if count > 1]
        problems = []
        for hour in sorted(duplicates):
            message = f"two steps at hour {hour}"
            problems.append(Problem(path="step growth", message=message))
        raise_all(problems)


@record
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
            log_growth = np.log1p(per_year) / HOURS_PER_YEAR * time_h
            return np.asarray(np.exp(log_growth), dtype=np.float64)
        case ChangingGrowth(per_year=rates, begins_h=begins_h):
            knots_h = np.array((0.0, *begins_h, _FAR_H))
            # Growth is linear in its logarithm, so that interp joins the spans exactly.
            log_rates = np.log1p(rates) / HOURS_PER_YEAR
            log_growths = log_rates * np.diff(knots_h)
            logs = np.cumsum((0.0, *log_growths))
            log_multiplier = np.interp(time_h, knots_h, logs)
            return np.asarray(np.exp(log_multiplier), dtype=np.float64)
        case SCurveGrowth():
            # What is left of the rise, (exp(k t_mid) − 1) / (exp(k t_mid) − 2 + exp(kt)), with both sides divided by
            # exp(k t_mid), so that a steep or late curve does not overflow; beyond exp(700) nothing is left.
            middle = growth.midpoint_years
            # A midpoint earlier than a logistic of this steepness can have makes it steeper.
            least_steepness = math.log(2.0) / middle
            k = max(growth.steepness_per_year, least_steepness)
            tail = math.exp(-k * middle)
            years = time_h / HOURS_PER_YEAR
            late = np.minimum(k * (years - middle), 700.0)
            denominator = 1.0 - 2.0 * tail + np.exp(late)
            remaining = (1.0 - tail) / denominator
            rise = (growth.ceiling_multiple - 1.0) * (1.0 - remaining)
            return np.asarray(1.0 + rise, dtype=np.float64)
        case StepGrowth(steps=steps):
            ordered = sorted(steps)
            hours = [hour for hour, _ in ordered]
            factors_in_order = [factor for _, factor in ordered]
            levels = np.array([1.0, *factors_in_order])
            # From its very hour on a step counts.
            place = np.searchsorted(hours, time_h, side="right")
            return levels[place]
        case TableGrowth(hours_h=at_h, factors=factors):
            return np.asarray(np.interp(time_h, at_h, factors), dtype=np.float64)


def hourly_growth(growth: Growth, hours: int) -> Floats:
    """Return the growth multiplier in the middle of each hour, shape (hours,)."""
    if isinstance(growth, CompoundGrowth):
        # A day's 24 factors times each day's: exponentials of hours cost the most.
        midnights_h = np.arange(0.0, hours, 24.0)
        middles_h = np.arange(24) + 0.5
        days = growth_multiplier(growth, midnights_h)
        day_hours = growth_multiplier(growth, middles_h)
        by_day = np.outer(days, day_hours)
        return by_day.reshape(-1)[:hours]
    return growth_multiplier(growth, np.arange(hours) + 0.5)


LN_2 = float(np.log(2.0))
_BLOCK_HOURS = 24
"""Hours of a block of the noise's recursion: fastest of 8 to 64, and a whole number of days needs no padding."""
_CHUNK_ROWS = 256
"""Rows multiplied at a time: 256 × 24 × 24 multiplications, where OpenBLAS starts threads at 262,144."""


@record
class LognormalNoise:
    """Multiplicative noise N(t) = exp(X(t) − σ²/2), X a stationary Gaussian AR(1): E[N] = 1 at every hour."""

    sigma: float = 0.0
    """Standard deviation of the logarithm."""
    correlation_h: float = 0.0
    """Hours in which the correlation of X falls to 1/e; 0 is independent from hour to hour."""

    @property
    def hourly_correlation(self) -> float:
        """Return φ = exp(−1 / correlation_h), the correlation of X between neighbouring hours."""
        if self.correlation_h > 0.0:
            return float(np.exp(-1.0 / self.correlation_h))
        return 0.0


@record
class LaunchSpike:
    """A launch or news event: requests jump to a multiple and decay: 1 + (multiple − 1) exp(−(t − t₀) / decay)."""

    hour_h: float
    """When it strikes, in hours since start."""
    multiple: float
    """Requests just after ÷ without it; below 1 is an outage of interest."""
    decay_days: float
    """Days in which the excess falls to 1/e."""


@record
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
    # The first hour has the stationary spread, which the scale of the others is divided out of.
    phi = noise.hourly_correlation
    sigma = noise.sigma / LN_2
    innovations = generator.standard_normal(hours)
    if phi == 0.0 or sigma == 0.0:
        innovations *= sigma
        return innovations
    innovation = np.sqrt(1.0 - phi * phi)
    innovations[0] /= innovation
    return _autoregress(innovations, phi, sigma * float(innovation))


def _autoregress(innovations: Floats, phi: float, scale: float = 1.0) -> Floats:
    """Return scale · y with y(t) = φ y(t−1) + ε(t), y(−1) = 0, by matrix products; overwrites ``innovations``.

    A block of 24 hours is one row times an upper-triangular matrix of powers of φ. What a block hands on is the same
    recursion with φ²⁴ over block ends, solved by calling itself. This is as fast as scipy.signal.lfilter without its
    second of import.
    """
    hours = innovations.size
    blocks = -(-hours // _BLOCK_HOURS)
    filler = blocks * _BLOCK_HOURS - hours
    if filler:
        innovations = np.concatenate([innovations, np.zeros(filler)])
    rows = innovations.reshape(blocks, _BLOCK_HOURS)
    if blocks > 1:
        # What each hour of a block leaves at its end: φ^(23−i).
        last_column = _powers(phi, 1.0)[:, -1]
        carry = np.ascontiguousarray(last_column)
        left_at_end = _times(rows, carry)
        block_ends = _autoregress(left_at_end, phi**_BLOCK_HOURS)
        rows[1:, 0] += phi * block_ends[:-1]
    series = _times(rows, _powers(phi, scale))
    return series.reshape(-1)[:hours]


def _times(rows: Floats, matrix: Floats) -> Floats:
    """Return rows @ matrix in chunks too small for BLAS threads, since replications run in parallel."""
    if len(rows) <= _CHUNK_ROWS:
        return np.asarray(rows @ matrix, dtype=np.float64)
    product = np.empty(rows.shape[:1] + matrix.shape[1:])
    for begin in range(0, len(rows), _CHUNK_ROWS):
        chunk = slice(begin, begin + _CHUNK_ROWS)
        np.matmul(rows[chunk], matrix, out=product[chunk])
    return product


@lru_cache(maxsize=256)
def _powers(phi: float, scale: float) -> Floats:
    """Return the matrix with scale · φ^(j−i) at (i, j) for j ≥ i and 0 below, shape (24, 24)."""
    hour = np.arange(_BLOCK_HOURS)
    lag = np.subtract.outer(-hour, -hour)
    # Below the diagonal nothing is carried back in time; negative powers might overflow.
    powers = phi ** np.maximum(lag, 0)
    return np.where(lag >= 0, scale * powers, 0.0)


def spike_factor(spikes: tuple[LaunchSpike, ...], hours: int) -> Floats:
    """Return the product of all launch spikes, each averaged over its hour exactly, shape (hours,)."""
    factor = np.ones(hours)
    edges_h = np.arange(hours + 1, dtype=np.float64)
    for spike in spikes:
        decay_h = spike.decay_days * 24.0
        since_h = np.maximum(edges_h - spike.hour_h, 0.0)
        # The integral of the decaying excess from the strike on: its differences are exact means of hours.
        excess_h = -decay_h * np.expm1(-since_h / decay_h)
        excess = (spike.multiple - 1.0) * np.diff(excess_h)
        factor *= 1.0 + excess
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
    # This draw comes first, whatever follows: streams are read in a fixed order.
    on_share = mean_on_h / (mean_on_h + mean_off_h)
    starts_on = bool(generator.random() < on_share)
    means_h = np.array([mean_on_h, mean_off_h])
    if not starts_on:
        means_h = means_h[::-1]
    expected = hours / means_h.sum()
    switches_h = np.zeros(1)
    # Six standard deviations more than expected, so that one block mostly does; an even number of periods, so that
    # each block begins in the same state.
    periods = int(expected + 6.0 * np.sqrt(expected) + 8.0)
    while switches_h[-1] < hours:
        periods_h = generator.standard_exponential((periods, 2)) * means_h
        elapsed_h = np.cumsum(periods_h.reshape(-1))
        switches_h = np.append(switches_h, switches_h[-1] + elapsed_h)
    # Without the start, which is no switch.
    switches_h = switches_h[1:]
    switches_h = switches_h[switches_h < hours]
    # A switch on adds what is left of its hour, a switch off takes it away.
    number = np.arange(switches_h.size)
    is_off = number % 2 == int(not starts_on)
    sign = np.where(is_off, -1.0, 1.0)
    hour = switches_h.astype(np.int64)
    past = (switches_h - hour) * sign
    switched = np.bincount(hour, weights=sign - past, minlength=hours + 1)
    change = switched.astype(np.float64, copy=False)
    np.add.at(change, hour + 1, past)
    change[0] += starts_on
    np.cumsum(change, out=change)
    # Clipped for the last bit that rounding leaves.
    np.clip(change, 0.0, 1.0, out=change)
    return change[:hours]


Streams: TypeAlias = "Callable[[str], np.random.Generator]"
"""From a stream's name to its generator, fresh for each replication."""


@record
class WorkloadDemand:
    """All inputs of one workload's demand: rate, growth, profile, spikes, noise and tenants."""

    name: str
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
    begins_h: float = 0.0
    """When there is first anything to ask for; no request comes before."""
    ends_h: float = math.inf
    """When its last request has come."""
    stream: str = ""
    """Names its random streams: the same name sees the same noise in every scenario compared. Empty: its own name."""

    def __post_init__(self) -> None:
        counts = Counter(tenant.name for tenant in self.tenants)
        duplicates = [name for name, count in counts.items() if count > 1]
        problems = []
        for name in sorted(duplicates):
            message = f"two tenants named {name!r}"
            problems.append(Problem(path=f"workloads.{self.name}", message=message))
        raise_all(problems)


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
    streams: tuple[str, ...]
    """Names of their random streams, in the same order."""
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
        workload = self.names.index(name)
        expected = self.expected_requests_per_s[workload]
        busy_rates = expected[expected > 0.0]
        if not busy_rates.size:
            return Rates(0.0, 0.0, 0.0)
        # Whole weeks only, so that a weekend cut in half is no slack week; a short run is one week.
        week = min(int(HOURS_PER_WEEK), busy_rates.size)
        weeks = busy_rates.size // week
        whole_weeks = busy_rates[: weeks * week].reshape(-1, week)
        weekly = whole_weeks.mean(axis=1)
        return Rates(
            slackest_hour=float(busy_rates.min()),
            slackest_week=float(weekly.min()),
            busiest_hour=float(busy_rates.max()),
        )


_BLOCK_H = 64
"""Hours that are worked out together, as wide as any processor takes numbers at once."""


def _whole_blocks(hours: int) -> int:
    """Return the hours of whole blocks that hold some hours.

    The last hours of an array that does not fill a block are worked out in another way, and would differ in their last
    digit from the same hours of a longer horizon.
    """
    return math.ceil(hours / _BLOCK_H) * _BLOCK_H


def build_demand_plan(workloads: Sequence[WorkloadDemand], horizon: Horizon) -> DemandPlan:
    """Compile workloads over a horizon."""
    names = tuple(workload.name for workload in workloads)
    whole = dataclasses.replace(horizon, hours=_whole_blocks(horizon.hours))
    padded = np.empty((len(names), whole.hours))
    expected = padded[:, : horizon.hours]
    for row, workload in zip(padded, workloads, strict=True):
        row[:] = shape_factor(workload.shape, whole)
        growth = hourly_growth(workload.growth, whole.hours)
        np.multiply(row, growth, out=row)
        spikes = spike_factor(workload.spikes, whole.hours)
        np.multiply(row, spikes, out=row)
        np.multiply(row, workload.requests_per_s, out=row)
        # Before it is there a model has no requests, whatever the forecast.
        first_hour = max(0, math.ceil(workload.begins_h))
        row[:first_hour] = 0.0
        # Nor is anything asked of it once its customers have moved on.
        last_hour = max(0, math.ceil(min(workload.ends_h, whole.hours)))
        row[last_hour:] = 0.0
    sigma = np.array([workload.noise.sigma for workload in workloads])
    # The mean of a lognormal lies above its median by this much, which noise of median 1 then restores.
    noise_median = np.exp(-0.5 * sigma**2)
    noise_base = expected * noise_median[:, np.newaxis]
    return DemandPlan(
        names=names,
        streams=tuple(workload.stream or workload.name for workload in workloads),
        expected_requests_per_s=_read_only(expected.copy()),
        noise_base_requests_per_s=_read_only(noise_base),
        noises=tuple(workload.noise for workload in workloads),
        tenants=tuple(workload.tenants for workload in workloads),
    )


def hourly_requests_per_s(plan: DemandPlan, streams: Streams) -> Floats:
    """Draw one replication of demand in requests per second, shape (hours, workloads).

    Streams are asked for by name: ``demand/<stream>/noise`` and ``demand/<stream>/tenant/<tenant>``, so a workload
    or tenant added, removed or moved never shifts another's draws, and hour t always takes the t-th normal whatever
    the horizon. The array is a transposed view: each workload's hours lie contiguous in memory.
    """
    requests_per_s = np.empty_like(plan.noise_base_requests_per_s)
    for index, name in enumerate(plan.streams):
        noise = plan.noises[index]
        tenants = plan.tenants[index]
        row = requests_per_s[index]
        base = plan.noise_base_requests_per_s[index]
        if noise.sigma > 0.0:
            generator = streams(f"demand/{name}/noise")
            log2_factor = log2_noise(noise, _whole_blocks(plan.hours), generator)
            np.multiply(np.exp2(log2_factor)[: plan.hours], base, out=row)
        else:
            row[:] = base
        if not tenants:
            continue
        # 1 − Σ share + Σ share · on(t) / P(on), of mean 1.
        tenant_share = sum(tenant.share_fraction for tenant in tenants)
        factor = np.full(plan.hours, 1.0 - tenant_share)
        for tenant in tenants:
            generator = streams(f"demand/{name}/tenant/{tenant.name}")
            on_h = tenant.mean_on_h
            off_h = tenant.mean_off_h
            activity = on_off_fraction(on_h, off_h, plan.hours, generator)
            on_share = on_h / (on_h + off_h)
            activity *= tenant.share_fraction / on_share
            factor += activity
        row *= factor
    return requests_per_s.T


def _read_only(array: Floats) -> Floats:
    """Return the array made read-only, since all replications share a plan."""
    array.flags.writeable = False
    return array
