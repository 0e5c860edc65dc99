"""Bursts within the hour: the shares of requests late and rejected although the hourly mean fits.

Requests arrive as a Poisson stream whose rate is redrawn every minute. If counts per minute have index of dispersion I
(variance ÷ mean; Poisson: 1), the minute's rate has squared coefficient of variation

    c² = (I − 1) / (60 λ),        λ the hour's mean rate in requests/s,

because Var[count] = 60 λ + (60 λ c)². Where many users make the traffic, variance and mean grow alike with their
number: I is the same at any rate, and bursts are the smaller beside the mean the more users there are. One client's
bursts grow with its traffic: c is then at any rate what it is at that of day one.

That I is the same has been seen from some lowest rate λ₀ up. A lower rate is taken for a part p = λ/λ₀ of the stream at
λ₀, each request of it kept by chance: its counts have the index 1 + p (I − 1), and so the same c as at λ₀. For the same
reason a pool that serves a part of a stream has the c of the whole.

A minute whose rate is G times the mean (G gamma with mean 1) loads a pool at ρ to ρG, at which a share ℓ(ρG) of
requests is late, or refused, without any burst (``planner.physics.slo_model``). The hour's share is E[G ℓ(ρG)],
weighted by G because requests see their own crowd.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import Literal

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from planner.arrays import Floats
from planner.records import record

DEFAULT_INDEX_OF_DISPERSION = 12.0
"""One-minute index of dispersion at 28–45 requests/s: 11–13 in the public Azure week of 2024 (as published)."""
LOWEST_MEASURED_REQUESTS_PER_S = 6.0
"""Lowest rate at which that index has been seen: 7–16 in public chat traffic."""
BURST_S = 60.0
"""The minute over which the index of dispersion is defined and a burst's rate is taken to last."""
_MAX_RATE_CV = 3.0
"""Most variation that Wilson and Hilferty's cube root can carry: beyond it every quadrature point is clipped to zero.
A stream that varies more has less than a request a minute, and no burst of it fills a machine."""
_NODES = 48
"""Nodes of the quadrature over the minutes of an hour."""
_NO_LOAD = 1e-12
"""Load over capacity that stands for none, as a divisor."""
_NO_REQUEST = 1e-16
"""Share of requests of which the last digit of a share knows nothing."""


@record
class Lateness:
    """The shares of requests late and rejected without bursts, by load over capacity; loads rise."""

    loads: tuple[float, ...] = (0.0, 1.0)
    late_fractions: tuple[float, ...] = (0.0, 0.0)
    """Served, but not in time."""
    refused_fractions: tuple[float, ...] = (0.0, 0.0)
    too_long_fraction: float = 0.0
    """Requests whose own prompt takes longer than the objective on an idle replica: part of the late at any load."""
    alone_s: float = np.nan
    """The first-token objective at which half as many prompts, and no more than its percentile allows, are too long."""
    refuses: bool = True
    """Whether what exceeds the last load is refused; otherwise it is served, as late as at that load."""

    def at(self, load: Floats) -> tuple[Floats, Floats]:
        """Return the shares late and rejected at loads, in the shape of the loads.

        Beyond the last load no more is admitted: a share a is late and r refused of what is admitted then, L, and so
        of a load ρ > L late a·L/ρ and refused 1 − (1 − r)·L/ρ.
        """
        late = np.interp(load, self.loads, self.late_fractions)
        refused = np.interp(load, self.loads, self.refused_fractions)
        if self.refuses:
            most_load = self.loads[-1]
            admitted = most_load / np.maximum(load, most_load)
            late = late * admitted
            refused = 1.0 - (1.0 - refused) * admitted
        return late, refused

    def up_to_capacity(self) -> Lateness:
        """Return the table up to a load of 1, beyond which nothing more is admitted."""
        lower_loads = [load for load in self.loads if load < 1.0]
        count = len(lower_loads)
        # The table may have no load of exactly 1.
        late_at_capacity = float(np.interp(1.0, self.loads, self.late_fractions))
        return Lateness(
            loads=(*lower_loads, 1.0),
            late_fractions=(*self.late_fractions[:count], late_at_capacity),
            refused_fractions=(0.0,) * (count + 1),
            too_long_fraction=self.too_long_fraction,
            alone_s=self.alone_s,
        )


SHARP = Lateness()
"""All in time up to capacity, and beyond it refused: what mean times say."""


@record
class Bursts:
    """How much a stream of requests varies from minute to minute."""

    requests_per_s: float
    """Mean rate."""
    index_of_dispersion: float = DEFAULT_INDEX_OF_DISPERSION
    """Variance ÷ mean of requests per minute at that rate, or at the lowest measured where that is higher."""
    scaling: Literal["pooled", "proportional"] = "pooled"
    """What stays at another rate: variance ÷ mean, as of many users, or the size beside the mean, as of one client."""
    lowest_requests_per_s: float = LOWEST_MEASURED_REQUESTS_PER_S
    """Lowest rate at which pooled bursts have that index; a lower rate varies as much from minute to minute."""

    def at(self, requests_per_s: float) -> Bursts:
        """Return the bursts of an hour with another mean rate; below the lowest measured, they are those at it."""
        # One client's bursts grow with its traffic, so they are those of day one at any rate.
        if self.scaling == "proportional":
            return self
        # One object for all rates below the lowest: what is worked out for one of them serves them all.
        return replace(self, requests_per_s=max(requests_per_s, self.lowest_requests_per_s))

    def continued_to(self, requests_per_s: float) -> Bursts:
        """Return the bursts at a rate as if the index were the same below the lowest measured, too."""
        return replace(self, requests_per_s=requests_per_s, lowest_requests_per_s=0.0)

    @property
    def minute_rate_cv(self) -> float:
        """Return c, the coefficient of variation of the rate from minute to minute."""
        is_thinned = self.scaling == "pooled" and self.requests_per_s < self.lowest_requests_per_s
        rate = self.lowest_requests_per_s if is_thinned else self.requests_per_s
        minute_requests = BURST_S * rate
        excess = self.index_of_dispersion - 1.0
        return float(np.sqrt(excess / minute_requests))


def shares_with_bursts(lateness: Lateness, bursts: Bursts, load: Floats) -> tuple[Floats, Floats]:
    """Return the shares of requests late and rejected at loads with bursts, shape (loads,).

    The tables are lines f + s (x − l) between their loads l. So of the minutes of rate G in between, at a mean load ρ,
    the share of requests is f Σ p + s (ρ Σ p G − l Σ p): two sums from each load of the table to the last minute.
    """
    rate_cv = min(bursts.minute_rate_cv, _MAX_RATE_CV)
    rate, requests = _minutes(rate_cv)
    loads = np.array(lateness.loads)
    # A load a rounding below zero is none.
    some_load = np.maximum(load, _NO_LOAD)
    limits = loads / some_load[:, np.newaxis]
    beyond = np.searchsorted(rate, limits, side="right")
    requests_beyond = _sums_to_end(requests)[beyond]
    loads_beyond = _sums_to_end(requests * rate)[beyond] * some_load[:, np.newaxis]
    between = -np.diff(requests_beyond, axis=1)
    over_line_start = -np.diff(loads_beyond, axis=1) - loads[:-1] * between
    calm_requests = requests.sum() - requests_beyond[:, 0]
    overloaded_requests = requests_beyond[:, -1]

    def shares(table: Floats) -> Floats:
        slopes = np.diff(table) / np.diff(loads)
        of_lines = (between * table[:-1] + over_line_start * slopes).sum(axis=1)
        of_all: Floats = of_lines + calm_requests * table[0] + overloaded_requests * table[-1]
        return of_all

    late_table = np.array(lateness.late_fractions)
    refused_table = np.array(lateness.refused_fractions)
    late = shares(late_table)
    refused = shares(refused_table)
    if lateness.refuses:
        # Minutes beyond the last load L were read at it; of theirs, a part L/(ρG) is admitted.
        minutes = _sums_to_end(requests / rate)[beyond[:, -1]]
        turned_away = overloaded_requests - minutes * limits[:, -1]
        # What is turned away is refused, in place of what was read for it.
        late -= turned_away * late_table[-1]
        refused += turned_away * (1.0 - refused_table[-1])
    return np.clip(late, 0.0, 1.0), np.clip(refused, 0.0, 1.0)


def _sums_to_end(series: Floats) -> Floats:
    """Return the sum from each element to the last, and 0 after the last."""
    # A reversed cumulative sum.
    sums = np.cumsum(series[::-1])
    return np.append(sums[::-1], 0.0)


@lru_cache(maxsize=64)
def _minutes(rate_cv: float) -> tuple[Floats, Floats]:
    """Return minute rates over the mean (gamma with mean 1), and the share of requests in each.

    Minutes so rare that no request in 10¹⁶ comes in them are left out: a third of all.
    """
    if rate_cv == 0.0:
        return np.ones(1), np.ones(1)
    gauss, weights = _normal()
    # Wilson and Hilferty's gamma: the cube of a normal variable, cut above zero.
    root = 1.0 - rate_cv**2 / 9.0 + rate_cv * gauss / 3.0
    rate = np.maximum(root, 1e-9) ** 3
    rate /= weights @ rate
    requests = rate * weights
    is_frequent = requests > _NO_REQUEST
    return rate[is_frequent], requests[is_frequent]


@cache
def _normal() -> tuple[Floats, Floats]:
    """Return nodes and weights of the Gauss–Hermite quadrature for the normal distribution; weights sum to 1."""
    nodes, weights = hermegauss(_NODES)
    return nodes, weights / weights.sum()
