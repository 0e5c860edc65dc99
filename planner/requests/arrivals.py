"""The requests of one hour: when they come and how long they are, drawn from the scenario or read from a log.

Within the hour the rate is redrawn every minute, as the hourly model's bursts are (``planner.demand.bursts``): gamma
with the variation that the workload's index of dispersion leaves at the hour's rate, scaled so that the minutes of the
hour keep that rate; within a minute requests come independently. A sample of the fleet gets its share of every minute,
so it sees the bursts that the whole fleet sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Bools, Floats
from planner.demand.bursts import BURST_S
from planner.demand.tokens import RequestLog
from planner.engine.streams import Streams
from planner.errors import Problem, ScenarioError
from planner.scenario.workload import Length, Workload

Ints = NDArray[np.int64]
_SHOWN_ROWS = 5
_MOST_BEYOND_FRACTION = 0.05  # of drawn requests longer than the model's context, before it is an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests of one workload in order of time; arrays of shape (requests,)."""

    times_s: Floats
    """Since the moment zoomed at; those of the minutes before it are below 0."""
    prompt_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    minute_factors: Floats
    """Rate of each minute over the hour's, from the first that is simulated, shape (minutes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The minutes simulated: some before the moment zoomed at, those that count, some after them."""

    before: int
    minutes: int
    after: int

    @property
    def all_minutes(self) -> int:
        """All of them together."""
        return self.before + self.minutes + self.after

    def counts(self, times_s: Floats) -> Bools:
        """Say which requests count."""
        return np.asarray((times_s >= 0.0) & (times_s < self.minutes * BURST_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRate:
    """How much comes of a workload in the hour."""

    workload: str
    """Its name, which names its random streams."""
    requests_per_s: float
    """Of the whole fleet."""
    share: float
    """Of them that falls to the replicas simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What decides how long a workload's requests are in the month zoomed at."""

    input_mean_tokens: float
    output_mean_tokens: float
    longest_tokens: float
    """Prompt and output together that the model's context and one replica's memory hold."""
    longest_is: str
    """Which of the two that is, in words."""


def draw_arrivals(workload: Workload, rate: HourRate, lengths: Lengths, span: Span, streams: Streams) -> Arrivals:
    """Draw a workload's requests at the rate that falls to the replicas simulated.

    The streams are the workload's own, and the minutes' factors do not depend on the share simulated.
    """
    name = rate.workload
    factors = minute_factors(workload, rate.requests_per_s, span, streams(f"zoom/{name}/minutes"))
    generator = streams(f"zoom/{name}/arrivals")
    counts = generator.poisson(rate.requests_per_s * rate.share * BURST_S * factors)
    minute = np.repeat(np.arange(counts.size) - span.before, counts)
    times_s = np.sort((minute + generator.random(minute.size)) * BURST_S)
    generator = streams(f"zoom/{name}/lengths")
    prompt = _drawn(workload.tokens.input, lengths.input_mean_tokens, times_s.size, generator)
    output = _drawn(workload.tokens.output, lengths.output_mean_tokens, times_s.size, generator)
    beyond = prompt + output > lengths.longest_tokens
    if times_s.size and beyond.mean() > _MOST_BEYOND_FRACTION:
        message = f"{beyond.mean():.0%} of its requests are longer than the {lengths.longest_tokens:,.0f} tokens that "
        raise ScenarioError(Problem(path=f"workloads.{name}.tokens", message=message + lengths.longest_is))
    output = np.minimum(output, int(lengths.longest_tokens) // 2)
    prompt = np.minimum(prompt, int(lengths.longest_tokens) - output)
    cached = np.floor(prompt * workload.prefix_cache_hit_fraction).astype(np.int64)
    return Arrivals(
        times_s=times_s,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        minute_factors=factors,
    )


def minute_factors(workload: Workload, requests_per_s: float, span: Span, generator: np.random.Generator) -> Floats:
    """Return each minute's rate over the hour's, shape (minutes simulated,); the minutes that count have mean 1."""
    if requests_per_s <= 0.0:
        return np.ones(span.all_minutes)
    variance = workload.bursts.at(requests_per_s).minute_rate_cv ** 2
    if variance <= 0.0:
        return np.ones(span.all_minutes)
    factors = generator.gamma(1.0 / variance, variance, span.all_minutes)
    mean = factors[span.before : span.before + span.minutes].mean()
    return np.asarray(factors / mean if mean > 0.0 else np.ones(span.all_minutes))


def _drawn(length: Length, mean_tokens: float, size: int, generator: np.random.Generator) -> Ints:
    """Draw lengths that have grown to a mean."""
    tokens = length.distribution.at_scores(generator.standard_normal(size)) * (mean_tokens / length.mean)
    return np.maximum(np.rint(tokens), 1.0).astype(np.int64)


def replay(log: RequestLog, lengths: Lengths, span: Span, share: float, generator: np.random.Generator) -> Arrivals:
    """Return a log's requests as they came, from its first on; of a sampled fleet, the share that falls to it."""
    times_s = log.times_s - log.times_s[0]
    if not log.one_clock and log.clients is not None:
        # Every client's clock starts at zero: as nothing says when each began, they begin evenly over the minutes.
        clients = int(log.clients.max()) + 1
        times_s = log.times_s + (log.clients / clients) * span.minutes * BURST_S
    kept = np.flatnonzero(times_s < span.minutes * BURST_S)
    kept = kept[np.argsort(times_s[kept], kind="stable")]
    if share < 1.0:
        kept = kept[generator.random(kept.size) < share]
    prompt = np.maximum(np.rint(log.input_tokens[kept]), 1.0)
    output = np.maximum(np.rint(log.output_tokens[kept]), 1.0)
    beyond = np.flatnonzero(prompt + output > lengths.longest_tokens)
    if beyond.size:
        longest = float((prompt + output)[beyond].max())
        message = (
            f"{beyond.size} of {kept.size} requests are longer than the {lengths.longest_tokens:,.0f} tokens that "
            f"{lengths.longest_is}; the longest has {longest:,.0f}"
        )
        raise ScenarioError(Problem(path="--trace", message=message, hint="choose another model, or cut the log"))
    cached = np.zeros(kept.size)
    if log.cached_tokens is not None:
        cached = np.minimum(log.cached_tokens[kept], prompt - 1.0)
    minute = (times_s[kept] // BURST_S).astype(np.int64)
    counts = np.bincount(minute, minlength=span.minutes)[: span.minutes].astype(np.float64)
    return Arrivals(
        times_s=times_s[kept],
        prompt_tokens=prompt.astype(np.int64),
        cached_tokens=np.maximum(cached, 0.0).astype(np.int64),
        output_tokens=output.astype(np.int64),
        minute_factors=counts / counts.mean() if counts.sum() else np.ones(span.minutes),
    )
