"""Workloads: what traffic arrives, how it grows, what it may wait for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.scenario.fields import BelowOne, NonNegative, Positive, Precision
from planner.validation import Strict


class Compound(Strict):
    """Growth by the same factor every year."""

    kind: Literal["compound"] = "compound"
    """Compound growth. Default compound: the plainest assumption."""
    per_year: Annotated[float, Field(gt=-1, le=100)]
    """Growth in requests per year: 0.8 is 80% more after twelve months."""


class Flat(Strict):
    """No growth."""

    kind: Literal["flat"]
    """No growth over the horizon."""


Growth = Annotated[Compound | Flat, Field(discriminator="kind")]


class Shape(Strict):
    """How the hours of a day and the days of a week differ."""

    timezone: str = "UTC"
    """IANA time zone of the users. Default UTC: where no zone is named, none is assumed."""
    peak_to_mean: Annotated[float, Field(ge=1, le=10)] = 1.67
    """Busiest hour of a weekday over that day's mean. Default 1.67: chat traffic of a large cloud, one week of 2024."""
    weekend_fraction: Annotated[float, Field(gt=0, le=3)] = 0.65
    """Weekend mean over weekday mean. Default 0.65: the same week."""


class Length(Strict):
    """A distribution of lengths in tokens (lognormal)."""

    mean: Annotated[float, Field(gt=0, le=1e8)]
    """Mean number of tokens."""
    p95: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """95th percentile, tokens. Default: as wide as chat traffic, 3.0 times the mean."""

    @model_validator(mode="after")
    def _reachable(self) -> Length:
        # A lognormal's p95 / mean is exp(1.645 s − s²/2), at most exp(1.645²/2) = 3.87 and above 1 - whatever - only
        # when s > 0; the smallest p95 is the mean itself (no spread).
        if self.p95 is not None and not self.mean <= self.p95 <= 3.86 * self.mean:
            raise ValueError(
                f"p95 must lie between the mean and 3.86 times the mean ({self.mean:g} to {3.86 * self.mean:g}) "
                f"for a lognormal, not {self.p95:g}"
            )
        return self


class Tokens(Strict):
    """Lengths of what a request brings and takes."""

    input: Length
    """Prompt length, cached part included."""
    output: Length
    """Generated length."""


class Objective(Strict):
    """What users are promised."""

    ttft_s: Positive = 2.0
    """Time to first token, 99% of requests. Default 2.0: MLPerf's server objective for a 70B model."""
    tpot_s: Positive = 0.1
    """Time per output token after the first. Default 0.1: ten tokens a second, faster than most people read."""


class Workload(Strict):
    """One stream of requests for one model."""

    model: str
    """Served model, by its catalogue name."""
    precision: Precision = "fp8"
    """Arithmetic it is served in, unless a cluster says otherwise. Default fp8: what public serving runs use."""
    requests_per_s: Annotated[float, Field(ge=0, le=1e9)]
    """Mean requests per second on day one."""
    growth: Growth = Compound(kind="compound", per_year=0.0)
    """How traffic grows. Default none: growth is the user's to state."""
    shape: Shape = Shape()
    """Daily and weekly shape. Default: chat traffic."""
    tokens: Tokens
    """Prompt and output lengths."""
    prefix_cache_hit_fraction: BelowOne = 0.0
    """Share of prompt tokens found in the prefix cache. Default 0: no saving unless stated."""
    noise_sigma: Annotated[float, Field(ge=0, le=2)] = 0.1
    """Standard deviation of ln(hourly traffic) around its shape. Default 0.1: hour-to-hour scatter of API traffic."""
    noise_correlation_h: Annotated[float, Field(ge=0, le=1000)] = 6.0
    """Hours over which that noise forgets. Default 6: a quarter of a day."""
    slo: Objective = Objective()
    """Latency objective. Default: MLPerf's server scenario."""
    priority: Literal["interactive", "standard", "deferrable"] = "interactive"
    """Who is served first. Default interactive: nobody waits unless stated."""
    deferrable_within_h: NonNegative | None = None
    """Hours that deferrable work may wait before it counts as shed. Default 24 for deferrable work."""

    @model_validator(mode="after")
    def _deadline_fits_priority(self) -> Workload:
        if self.deferrable_within_h is not None and self.priority != "deferrable":
            raise ValueError("deferrable_within_h is for priority: deferrable")
        return self
