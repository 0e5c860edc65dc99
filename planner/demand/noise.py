"""What no forecast knows: hour-to-hour noise, launch spikes, and large tenants that come and go.

Random numbers are drawn in one block per stream; every function takes the generator of its own stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.arrays import Floats
from planner.errors import Problem, raise_all

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

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 <= self.sigma < 10.0:
            problems.append(Problem(path="noise.sigma", message=f"must lie in 0..10, not {self.sigma}"))
        if not 0.0 <= self.correlation_h < np.inf:
            problems.append(
                Problem(path="noise.correlation_h", message=f"must be at least 0, not {self.correlation_h}")
            )
        raise_all(problems)

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

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 <= self.multiple < np.inf:
            problems.append(Problem(path="event.multiple", message=f"must be at least 0, not {self.multiple}"))
        if not 0.0 < self.decay_days < np.inf:
            problems.append(Problem(path="event.decay_days", message=f"must be above 0, not {self.decay_days}"))
        raise_all(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A large client as an on/off stream: exponential on and off times, a fixed share of the long-run mean."""

    name: str
    """Names its random stream."""
    share_fraction: float
    """Its requests ÷ the workload's, over the long run."""
    mean_on_h: float
    """Mean hours it sends without a break."""
    mean_off_h: float
    """Mean hours it is silent."""

    def __post_init__(self) -> None:
        path = f"tenants.{self.name}"
        problems = []
        if not 0.0 <= self.share_fraction <= 1.0:
            problems.append(
                Problem(path=f"{path}.share_fraction", message=f"must lie in 0..1, not {self.share_fraction}")
            )
        if not 0.0 < self.mean_on_h < np.inf:
            problems.append(Problem(path=f"{path}.mean_on_h", message=f"must be above 0, not {self.mean_on_h}"))
        if not 0.0 <= self.mean_off_h < np.inf:
            problems.append(Problem(path=f"{path}.mean_off_h", message=f"must be at least 0, not {self.mean_off_h}"))
        raise_all(problems)

    @property
    def on_fraction(self) -> float:
        """Return the long-run fraction of time it sends, on / (on + off)."""
        return self.mean_on_h / (self.mean_on_h + self.mean_off_h)


def log2_noise(noise: LognormalNoise, hours: int, generator: np.random.Generator) -> Floats:
    """Return X(t) / ln 2, X the stationary Gaussian AR(1) with standard deviation σ, shape (hours,).

    In powers of two because numpy raises 2 to a power a tenth faster than e.
    One block of standard normals ε is drawn, one an hour; X(0) = σ ε(0), X(t) = φ X(t−1) + σ √(1−φ²) ε(t).
    """
    phi, sigma = noise.hourly_correlation, noise.sigma / LN_2
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
        block_ends = _autoregress(_times(rows, _powers_to_the_end(phi)), phi**_BLOCK_HOURS)
        rows[1:, 0] += phi * block_ends[:-1]
    return _times(rows, _powers(phi, scale)).reshape(-1)[:hours]


def _times(rows: Floats, matrix: Floats) -> Floats:
    """Return rows @ matrix in chunks so small that no BLAS starts threads for them: replications run side by side."""
    if len(rows) <= _CHUNK_ROWS:
        return np.asarray(rows @ matrix, dtype=np.float64)
    product = np.empty(rows.shape[:1] + matrix.shape[1:])
    for begin in range(0, len(rows), _CHUNK_ROWS):
        np.matmul(rows[begin : begin + _CHUNK_ROWS], matrix, out=product[begin : begin + _CHUNK_ROWS])
    return product


@lru_cache(maxsize=256)
def _powers(phi: float, scale: float) -> Floats:
    """Return the matrix with scale · φ^(j−i) at (i, j) for j ≥ i and 0 below, shape (24, 24)."""
    lag = np.subtract.outer(-np.arange(_BLOCK_HOURS), -np.arange(_BLOCK_HOURS))
    return np.where(lag >= 0, scale * phi ** np.maximum(lag, 0), 0.0)


@lru_cache(maxsize=256)
def _powers_to_the_end(phi: float) -> Floats:
    """Return φ^(23−i), what each hour of a block leaves at its end, shape (24,), contiguous for speed."""
    return np.ascontiguousarray(_powers(phi, 1.0)[:, -1])


def spike_factor(spikes: tuple[LaunchSpike, ...], hours: int) -> Floats:
    """Return the product of all launch spikes, each averaged over its hour exactly, shape (hours,)."""
    factor = np.ones(hours)
    for spike in spikes:
        decay_h = spike.decay_days * 24.0
        since_h = np.maximum(np.arange(hours + 1, dtype=np.float64) - spike.hour_h, 0.0)
        excess_h = -decay_h * np.expm1(-since_h / decay_h)  # the integral of the decaying excess from the strike on
        factor *= 1.0 + (spike.multiple - 1.0) * np.diff(excess_h)
    return factor


def tenant_on_fraction(tenant: Tenant, hours: int, generator: np.random.Generator) -> Floats:
    """Return the part of each hour a tenant is on, shape (hours,), starting in its stationary state.

    Exponential times have no memory, so the state at the start is on with probability on / (on + off) and the first
    period is an ordinary one. Each switch adds to its own hour the part that is left of it and to all later hours 1.
    """
    if tenant.mean_off_h == 0.0:
        return np.ones(hours)
    starts_on = bool(generator.random() < tenant.on_fraction)
    switches_h = _switch_times_h(tenant, hours, starts_on, generator)
    sign = np.where(np.arange(switches_h.size) % 2 == int(not starts_on), -1.0, 1.0)
    hour = switches_h.astype(np.int64)
    past = (switches_h - hour) * sign
    change = np.bincount(hour, weights=sign - past, minlength=hours + 1).astype(np.float64, copy=False)
    np.add.at(change, hour + 1, past)
    change[0] += starts_on
    np.cumsum(change, out=change)
    return np.clip(change, 0.0, 1.0, out=change)[:hours]  # clipped for the last bit that rounding leaves


def _switch_times_h(tenant: Tenant, hours: int, starts_on: bool, generator: np.random.Generator) -> Floats:
    """Return when a tenant switches within the horizon, in blocks of an even number of exponentials."""
    means_h = np.array([tenant.mean_on_h, tenant.mean_off_h] if starts_on else [tenant.mean_off_h, tenant.mean_on_h])
    expected = hours / means_h.sum()
    block = int(expected + 6.0 * np.sqrt(expected) + 8.0)
    times_h: list[Floats] = []
    reached_h = 0.0
    while reached_h < hours:
        periods_h = generator.standard_exponential((block, 2)) * means_h
        block_h = reached_h + np.cumsum(periods_h.reshape(-1))
        reached_h = float(block_h[-1])
        times_h.append(block_h)
    all_h = np.concatenate(times_h)
    return all_h[all_h < hours]
