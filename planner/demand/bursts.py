"""Bursts inside the hour: the share of requests that miss their objective although the hourly mean fits.

Requests arrive as a Poisson stream whose rate is redrawn every minute. If counts per minute have index of dispersion I
(variance ÷ mean; Poisson: 1), the minute's rate has squared coefficient of variation

    c² = (I − 1) / (60 λ),        λ the mean rate in requests/s,

because Var[count] = 60 λ + (60 λ c)². A pool that can serve μ requests/s at utilisation ρ = λ/μ then faces two queues.

*Between minutes.* Work waiting, in seconds, is a random walk reflected at zero with steps 60 (ρ − 1 + ρ c Z), Z standard
normal. In units of one step's standard deviation s = 60 ρ c the drift is −β, β = (1 − ρ) / (ρ c), and a wait of t is
b = t / s. At minute boundaries P(wait > 0) = 1 − exp(−Σ Φ(−β √k) / k) (Spitzer 1956) and the tail falls as exp(−2 β b)
(the exponential martingale of the Gaussian walk). Within the minute the wait moves on a straight line, so at a moment
drawn by an arriving request it is V + u (Z − β) with u uniform and Z weighted by 1 + c Z.

*Within the minute.* Poisson arrivals at c_s servers wait with probability C (Erlang C) and an exponential tail whose
mean is Allen and Cunneen's (1 + cv²) / (2 c_s μ₁ (1 − ρ)): exact for M/M/c, with the exact Pollaczek–Khinchine mean for M/G/1.

The two are joined by adding mean waits, 1/θ = 1/θ_between + 1/θ_within, so that either alone is recovered when the other
vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.errors import Problem, ScenarioError

DEFAULT_INDEX_OF_DISPERSION = 12.0
"""One-minute index of dispersion at 28–45 requests/s: 11–13 in public API traffic (ServeGen, 14 days)."""
BURST_S = 60.0
"""The minute over which the index of dispersion is defined and a burst's rate is taken to last."""
_TABLE_CELLS = 1024
_SIEGMUND = 0.5825971579390106  # −ζ(1/2) / √(2π), the mean overshoot of a Gaussian walk (Siegmund 1979)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_U = 0.5 * (_NODES + 1.0)
_U_WEIGHTS = 0.5 * _WEIGHTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPool:
    """The request slots behind a queue, for waiting between the arrivals of one minute."""

    servers: int
    """Requests served at once."""
    service_cv: float = 1.0
    """Standard deviation ÷ mean of the service time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstConditions:
    """What decides how a pool stands up to bursts, apart from its utilisation."""

    requests_per_s: float
    """Rate at which the index of dispersion holds; the relative size of bursts is taken from it."""
    slack_s: float
    """Wait a request can bear: the objective less what an empty pool takes."""
    index_of_dispersion: float = DEFAULT_INDEX_OF_DISPERSION
    """Variance ÷ mean of requests per minute."""
    pool: ServerPool | None = None
    """Slots; None: so many that only the minutes' own bursts make requests wait."""

    def __post_init__(self) -> None:
        problems = []
        if not 0.0 < self.requests_per_s < np.inf:
            problems.append(Problem(path="requests_per_s", message=f"must be above 0, not {self.requests_per_s}"))
        if not 0.0 <= self.slack_s < np.inf:
            problems.append(Problem(path="slack_s", message=f"must be at least 0, not {self.slack_s}"))
        if not 1.0 <= self.index_of_dispersion < np.inf:
            message = f"must be at least 1 (Poisson), not {self.index_of_dispersion}"
            problems.append(Problem(path="burst_index_of_dispersion", message=message))
        if self.pool is not None and self.pool.servers < 1:
            problems.append(Problem(path="servers", message=f"must be at least 1, not {self.pool.servers}"))
        if problems:
            raise ScenarioError(problems)

    @property
    def minute_rate_cv(self) -> float:
        """Return c, the coefficient of variation of the rate from minute to minute."""
        return float(np.sqrt((self.index_of_dispersion - 1.0) / (BURST_S * self.requests_per_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MissTable:
    """The share of requests that miss as a function of utilisation, tabulated on a uniform grid over 0..1."""

    intercepts: NDArray[np.float64]
    """Share at utilisation 0 on each cell's straight line, shape (cells + 1,)."""
    slopes: NDArray[np.float64]
    """Slope of each cell, shape (cells + 1,)."""

    def share(self, utilisation: ArrayLike) -> NDArray[np.float64]:
        """Return the share that misses, in the shape of ``utilisation``; at or above 1 every request misses."""
        load = np.asarray(utilisation, dtype=np.float64)
        cell = np.minimum(load * _TABLE_CELLS, _TABLE_CELLS).astype(np.intp)
        return np.asarray(self.intercepts[cell] + self.slopes[cell] * load, dtype=np.float64)


def miss_table(conditions: BurstConditions) -> MissTable:
    """Tabulate :func:`miss_share` for hourly use: a few array operations an hour instead of special functions."""
    grid = np.arange(_TABLE_CELLS + 1) / _TABLE_CELLS
    share = np.maximum.accumulate(miss_share(conditions, grid))
    slopes = np.append(np.diff(share) * _TABLE_CELLS, 0.0)
    return MissTable(intercepts=share - slopes * grid, slopes=slopes)


def miss_share(conditions: BurstConditions, utilisation: ArrayLike) -> NDArray[np.float64]:
    """Return the stationary share of requests that wait longer than the slack, in the shape of ``utilisation``."""
    rho = np.asarray(utilisation, dtype=np.float64)
    stable = np.clip(rho, 1e-12, 1.0 - 1e-9)
    between_mean_s = BURST_S * (stable * conditions.minute_rate_cv) ** 2 / (2.0 * (1.0 - stable))
    within_mean_s = _within_mean_wait_s(conditions, stable)
    total_mean_s = np.maximum(between_mean_s + within_mean_s, 1e-300)
    slack_s = conditions.slack_s
    between = _between_minutes_share(conditions.minute_rate_cv, stable, slack_s * between_mean_s / total_mean_s)
    within = np.zeros_like(stable)
    if conditions.pool is not None:
        offered = conditions.pool.servers * stable
        within = erlang_c(conditions.pool.servers, offered) * np.exp(-slack_s / total_mean_s)
    share = 1.0 - (1.0 - between) * (1.0 - within)
    return np.where(rho >= 1.0, 1.0, np.where(rho <= 0.0, 0.0, share))


def erlang_c(servers: int, offered_load: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that a request waits in M/M/c (Erlang C), in the shape of ``offered_load`` (erlangs).

    Erlang B comes from its stable recursion 1/B_k = 1 + (k/a) / B_{k−1}; then C = B / (1 − ρ (1 − B)).
    """
    load = np.asarray(offered_load, dtype=np.float64)
    blocking = np.ones_like(load)
    for k in range(1, servers + 1):
        blocking = load * blocking / (k + load * blocking)
    return np.asarray(blocking / (1.0 - load / servers * (1.0 - blocking)), dtype=np.float64)


def _within_mean_wait_s(conditions: BurstConditions, rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean wait of those who wait for a slot, 1/θ_within; the service rate is the reference rate over ρ."""
    if conditions.pool is None:
        return np.zeros_like(rho)
    capacity_per_s = conditions.requests_per_s / rho
    return (1.0 + conditions.pool.service_cv**2) / (2.0 * capacity_per_s * (1.0 - rho))


def _between_minutes_share(
    rate_cv: float, rho: NDArray[np.float64], slack_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P(V + u (Z − β) > b) over arriving requests, by Gauss–Legendre over u; see the module's head.

    V is 0 with probability 1 − p, else x₀ + an exponential of rate 2β, the shift chosen so that the far tail is
    Siegmund's exp(−2β (x + 0.5826)). With D = b/u + β the atom gives Φ(−D) + c φ(D), c φ(D) being the weight of requests;
    the rest, with r = 2βu and D moved by x₀, gives Φ(−D) + (1 + c r) exp(−r D + r²/2) Φ(D − r).
    """
    if rate_cv == 0.0:
        return np.zeros_like(rho)
    from scipy.special import log_ndtr, ndtr  # noqa: PLC0415 - not needed where there are no bursts

    beta = ((1.0 - rho) / (rho * rate_cv))[..., np.newaxis]
    b = (slack_s / (BURST_S * rho * rate_cv))[..., np.newaxis]
    waiting = _waiting_probability(beta)
    shift = np.maximum(-np.log(np.maximum(waiting, 1e-300)) / (2.0 * beta) - _SIEGMUND, 0.0)
    distance = b / _U + beta
    atom = ndtr(-distance) + rate_cv * np.exp(-0.5 * distance**2) / np.sqrt(2.0 * np.pi)
    distance = (b - shift) / _U + beta
    r = 2.0 * beta * _U
    tail = ndtr(-distance) + (1.0 + rate_cv * r) * np.exp(-r * distance + 0.5 * r**2 + log_ndtr(distance - r))
    share = (1.0 - waiting) * atom + waiting * tail
    return np.minimum(share @ _U_WEIGHTS, 1.0)


def _waiting_probability(beta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return P(M > 0) for the all-time maximum M of a Gaussian walk with unit steps and drift −β.

    Spitzer's sum for β ≥ 0.1; below, P(M = 0) = √2 β exp(−0.5826 β) (Chang and Peres 1997, leading terms).
    """
    grid, log_empty = _spitzer_table()
    waiting = -np.expm1(np.interp(beta, grid, log_empty, right=0.0))
    expansion = 1.0 - np.sqrt(2.0) * beta * np.exp(-_SIEGMUND * beta)
    return np.where(beta < grid[0], expansion, waiting)


@lru_cache(maxsize=1)
def _spitzer_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return drifts β and ln P(M = 0) = −Σ Φ(−β √k) / k at each; 4,096 terms leave 1e-13 at the smallest β."""
    from scipy.special import ndtr  # noqa: PLC0415 - as above

    beta = np.linspace(0.1, 9.0, 256)
    k = np.arange(1, 4097)
    return beta, -(ndtr(-np.multiply.outer(beta, np.sqrt(k))) / k).sum(axis=-1)
