"""Bursts inside the hour: the share of requests that miss their objective although the hourly mean fits.

Requests arrive as a Poisson stream whose rate is redrawn every minute. If counts per minute have index of dispersion I
(variance ÷ mean; Poisson: 1), the minute's rate has squared coefficient of variation

    c² = (I − 1) / (60 λ),        λ the mean rate in requests/s,

because Var[count] = 60 λ + (60 λ c)². A pool that can serve μ requests/s at utilisation ρ = λ/μ then faces two queues.

Work waiting, in seconds the pool needs for it, is then a Brownian motion reflected at zero:
within a minute whose rate is G times the mean, its drift is ρG − 1 and its variance (1 + c_s²) / μ a second, c_s being
the coefficient of variation of service times. Given the wait x at the minute's start, the wait at u seconds into it
exceeds y with probability

    Φ((x − y + m u) / (σ √u)) + exp(2 m y / σ²) Φ((−x − y − m u) / (σ √u))       (Harrison 1985, §1.8).

The share that misses is its mean over u (uniform), G (gamma with mean 1, weighted by G because requests see their own
crowd) and x, where x is max(0, E − κ): E exponential with the stationary decay rate θ = 2 (1 − ρ) / (variance a second,
both kinds) and κ Siegmund's mean overshoot of a walk in minutes. A pool of few slots keeps requests waiting less often:
y is the slack plus −ln C / θ', C the probability of waiting by Erlang, so that with Poisson arrivals (I = 1) the result
is C exp(−θ' t): exact for M/M/c, with the exact Pollaczek–Khinchine mean for M/G/1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.errors import Problem, ScenarioError

DEFAULT_INDEX_OF_DISPERSION = 12.0
"""One-minute index of dispersion at 28–45 requests/s: 11–13 in the public Azure week of 2024 (as published)."""
BURST_S = 60.0
"""The minute over which the index of dispersion is defined and a burst's rate is taken to last."""
_LEAST_RATE_PER_S = 1e-9
"""A request in thirty years: less is as good as none, and its inverse would overflow."""
_MAX_RATE_CV = 3.0
"""Most variation that Wilson and Hilferty's cube root can carry: beyond it every quadrature point is clipped to zero.
A stream that varies more has less than a request a minute, and no burst of it fills a machine."""
_TABLE_CELLS = 512
_SIEGMUND = 0.5825971579390106  # −ζ(1/2) / √(2π), the mean overshoot of a Gaussian walk (Siegmund 1979)


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
    refuses: bool = False
    """Whether requests that would be late are refused at the door."""
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
        load = np.maximum(np.asarray(utilisation, dtype=np.float64), 0.0)
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
    stable = np.clip(rho, 1e-9, 1.0 - 1e-9)
    pool = conditions.pool or ServerPool(servers=1, service_cv=0.0)
    local_variance_s = (1.0 + pool.service_cv**2) * stable / max(conditions.requests_per_s, _LEAST_RATE_PER_S)
    decay_per_s = 2.0 * (1.0 - stable) / local_variance_s
    log_waiting = np.zeros_like(stable)
    if conditions.pool is not None:
        log_waiting = np.log(np.maximum(erlang_c(pool.servers, pool.servers * stable), 1e-300))
    threshold_s = conditions.slack_s - log_waiting / decay_per_s
    if conditions.minute_rate_cv == 0.0:
        share = np.exp(-decay_per_s * threshold_s)
    else:
        share = _bursty_share(conditions.minute_rate_cv, stable, local_variance_s, threshold_s)
    return np.where(rho >= 1.0, 1.0, np.where(rho <= 0.0, 0.0, np.minimum(share, 1.0)))


def refused_share(conditions: BurstConditions, utilisation: ArrayLike) -> NDArray[np.float64]:
    """Return the share of requests refused where those that would be late are, in the shape of ``utilisation``.

    A pool that never lets its queue grow beyond the slack s loses, of a minute whose rate is G times the mean, the work
    in excess of what it serves and of what may wait: max(0, ρ G − 1 − s/60) of each 60 s. Over G gamma with mean 1 and
    shape k = 1/c² that is, as a share of all requests and with a = (1 + s/60)/ρ,

        E[max(0, G − a)] = Q(k + 1, k a) − a Q(k, k a),       Q the upper regularised incomplete gamma function.
    """
    rho = np.clip(np.asarray(utilisation, dtype=np.float64), 1e-9, 1.0)
    excess = (1.0 + conditions.slack_s / BURST_S) / rho
    if conditions.minute_rate_cv == 0.0:
        return np.asarray(np.maximum(1.0 - excess, 0.0))
    from scipy.special import gammaincc  # noqa: PLC0415 - not needed where there are no bursts

    shape = 1.0 / conditions.minute_rate_cv**2
    share = gammaincc(shape + 1.0, shape * excess) - excess * gammaincc(shape, shape * excess)
    return np.asarray(np.clip(share, 0.0, 1.0), dtype=np.float64)


def erlang_c(servers: int, offered_load: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that a request waits in M/M/c (Erlang C), in the shape of ``offered_load`` (erlangs).

    Erlang B comes from its stable recursion 1/B_k = 1 + (k/a) / B_{k−1}; then C = B / (1 − ρ (1 − B)).
    """
    load = np.asarray(offered_load, dtype=np.float64)
    blocking = np.ones_like(load)
    for k in range(1, servers + 1):
        blocking = load * blocking / (k + load * blocking)
    return np.asarray(blocking / (1.0 - load / servers * (1.0 - blocking)), dtype=np.float64)


def _bursty_share(
    rate_cv: float,
    rho: NDArray[np.float64],
    local_variance_s: NDArray[np.float64],
    threshold_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the reflected motion's tail, averaged over a minute's rate, start and moment: see the module's head."""
    from scipy.special import erfcx, ndtr  # noqa: PLC0415 - not needed where there are no bursts

    expand = (..., np.newaxis, np.newaxis, np.newaxis)
    start, start_weights, gauss, gauss_weights, moment, moment_weights = _quadrature()
    rate_cv = min(rate_cv, _MAX_RATE_CV)
    rate = np.maximum(1.0 - rate_cv**2 / 9.0 + rate_cv * gauss / 3.0, 0.0) ** 3  # Wilson and Hilferty's gamma
    rate_weights = gauss_weights * rate / (gauss_weights @ rate)
    rate /= gauss_weights @ rate
    step_variance = (BURST_S * rho * rate_cv) ** 2
    total_variance = step_variance + BURST_S * local_variance_s
    decay_per_s = 2.0 * (1.0 - rho) * BURST_S / total_variance
    overshoot_s = _SIEGMUND * step_variance / np.sqrt(total_variance)
    start_s = np.maximum(start[:, np.newaxis, np.newaxis] / decay_per_s[expand] - overshoot_s[expand], 0.0)
    drift = rho[expand] * rate[:, np.newaxis] - 1.0
    moment_s = BURST_S * moment
    y = threshold_s[expand]
    spread = np.sqrt(local_variance_s[expand] * moment_s)
    ahead = (start_s - y + drift * moment_s) / spread
    behind = (start_s + y + drift * moment_s) / spread
    # exp(2my/σ²) Φ(−behind), written for a rising queue (m > 0) so that no factor overflows
    rising = (
        np.exp(-0.5 * ahead**2 - 2.0 * start_s * y / spread**2) * 0.5 * erfcx(np.maximum(behind, 0.0) / np.sqrt(2.0))
    )
    falling = np.exp(np.minimum(2.0 * drift * y / local_variance_s[expand], 0.0)) * ndtr(-behind)
    reflected = np.where(drift > 0.0, rising, falling)
    share = np.minimum(ndtr(ahead) + reflected, 1.0)
    return np.asarray(
        np.einsum("...xgu,x,g,u->...", share, start_weights, rate_weights, moment_weights), dtype=np.float64
    )


@lru_cache(maxsize=1)
def _quadrature() -> tuple[NDArray[np.float64], ...]:
    """Return nodes and weights for an exponential start, a standard normal and a moment uniform on 0..1."""
    start, start_weights = np.polynomial.laguerre.laggauss(8)
    gauss, gauss_weights = np.polynomial.hermite_e.hermegauss(16)
    moment, moment_weights = np.polynomial.legendre.leggauss(4)
    return (
        start,
        start_weights,
        gauss,
        gauss_weights / gauss_weights.sum(),
        0.5 * (moment + 1.0),
        0.5 * moment_weights,
    )
