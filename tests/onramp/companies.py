"""Made-up companies whose level, growth and lengths are known: season, outages, launches, noise and a day of their own.

Their ranges are chosen here, without a look at what the fit believes of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HOURS_PER_YEAR = 8766.0
START_S = 1_704_067_200.0  # Monday 2024-01-01 00:00 UTC


@dataclass(frozen=True, kw_only=True)
class Company:
    """Hourly requests and tokens, and the truth behind them."""

    requests: NDArray[np.float64]
    input_tokens: NDArray[np.float64]
    output_tokens: NDArray[np.float64]
    requests_per_s: float
    """At the end, without its season."""
    growth_per_year: float
    input_mean: float
    output_mean: float

    @property
    def end_s(self) -> float:
        """Return the end of the last hour."""
        return START_S + 3600.0 * self.requests.size

    def table(self) -> str:
        """Return what such a company exports: a row an hour."""
        lines = ["timestamp,requests,input_tokens,output_tokens"]
        columns = zip(self.requests, self.input_tokens, self.output_tokens, strict=True)
        for hour, (requests, prompt, reply) in enumerate(columns):
            lines.append(f"{START_S + 3600 * hour:.0f},{requests:.0f},{prompt:.0f},{reply:.0f}")
        return "\n".join(lines) + "\n"


def company(seed: int) -> Company:
    """Return a company of one to 150 weeks."""
    generator = np.random.default_rng([59, seed])
    weeks = int(np.exp(generator.uniform(np.log(3), np.log(150))))
    if seed % 2:
        weeks = int(generator.integers(26, 104))  # half of them where growth and season are one
    hours = np.arange(weeks * 168)
    years = np.asarray((hours + 0.5 - hours.size) / HOURS_PER_YEAR, dtype=np.float64)
    growth = float(np.expm1(generator.normal(0.35, 0.35)))
    level = float(np.exp(generator.uniform(np.log(0.05), np.log(80.0))))
    rate = level * (1.0 + growth) ** years * _season(generator, years)
    for _ in range(generator.poisson(0.8 * weeks / 52)):
        moment = -generator.uniform(0.0, weeks / 52.18)
        size = generator.normal(0.2, 0.2)
        weeks_to_take_effect = generator.uniform(0.01, 3.0)
        done = np.clip((years - moment) * 52.18 / weeks_to_take_effect, 0.0, 1.0)
        rate = rate * np.exp(size * (done - done[-1]))
    rate = rate * _week(generator)[hours % 168] * _noise(generator, hours.size)
    for _ in range(generator.poisson(0.05 * weeks)):
        begin = int(generator.integers(0, hours.size))
        rate[begin : begin + int(generator.integers(1, 30))] = 0.0
    requests = generator.poisson(rate * 3600.0).astype(float)
    means = np.exp(generator.uniform(np.log([150.0, 40.0]), np.log([9000.0, 900.0])))
    tokens = [_tokens(generator, requests, float(mean)) for mean in means]
    return Company(
        requests=requests,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        requests_per_s=level,
        growth_per_year=growth,
        input_mean=float(means[0]),
        output_mean=float(means[1]),
    )


def _season(generator: np.random.Generator, years: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a wave of up to 30% with a dip of some weeks; its mean over a year is one."""
    amplitude = generator.uniform(0.0, 0.3)
    phase = generator.uniform()
    dip = generator.uniform(0.0, 0.15)
    width = generator.uniform(0.03, 0.12)

    def wave(times: NDArray[np.float64]) -> NDArray[np.float64]:
        distance = np.abs((times + phase + 0.3) % 1.0 - 0.5)
        cosine = amplitude * np.cos(2 * np.pi * (times + phase))
        return np.asarray(1.0 + cosine - dip * np.exp(-0.5 * (distance / width) ** 2))

    whole_year = np.linspace(0.0, 1.0, 1000, endpoint=False)
    return np.asarray(wave(years) / wave(whole_year).mean())


def _week(generator: np.random.Generator) -> NDArray[np.float64]:
    """Return the 168 hours of a week: a day of its own, and weekends at 0.3 to 1.1."""
    depth = generator.uniform(0.1, 0.9)
    peak = generator.uniform(0, 24)
    day = 1.0 + depth * np.cos(2 * np.pi * (np.arange(24) - peak) / 24)
    week = np.concatenate([np.tile(day, 5), np.tile(day * generator.uniform(0.3, 1.1), 2)])
    return np.asarray(week / week.mean())


def _noise(generator: np.random.Generator, hours: int) -> NDArray[np.float64]:
    """Return noise of hours and of days, both correlated, of mean one."""
    noise = np.zeros(hours)
    for sigma, correlation_h in (
        (generator.uniform(0.02, 0.15), generator.uniform(1, 6)),
        (generator.uniform(0.01, 0.08), generator.uniform(20, 150)),
    ):
        kept = float(np.exp(-1.0 / correlation_h))
        shocks = sigma * np.sqrt(1.0 - kept**2) * generator.standard_normal(hours)
        state = sigma * generator.standard_normal()
        for hour, shock in enumerate(shocks.tolist()):
            state = kept * state + shock
            noise[hour] += state
        noise -= sigma**2 / 2
    return np.asarray(np.exp(noise))


def _tokens(
    generator: np.random.Generator, requests: NDArray[np.float64], mean: float
) -> NDArray[np.float64]:
    """Return the tokens of each hour: lengths of requests, whose mean wanders a little from day to day."""
    spread = generator.uniform(0.6, 2.0)
    drift = _noise(generator, requests.size)
    # The sum of n lengths that vary by the spread, as a gamma of that mean and variance.
    relative = generator.gamma(np.maximum(requests, 1e-9) / spread**2) * spread**2
    return np.asarray(np.rint(relative * mean * drift) * (requests > 0))
