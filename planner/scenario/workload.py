"""Workloads: traffic, its growth, its lengths and its service-level objectives."""

from __future__ import annotations

import datetime
import functools
import itertools
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from planner.catalog.load import (
    reuse_curve,
    reuse_curve_names,
    workload_preset_names,
)
from planner.demand.bursts import LOWEST_MEASURED_REQUESTS_PER_S, Bursts
from planner.demand.tokens import LengthDistribution
from planner.errors import ScenarioError
from planner.physics.prefix_cache import ReuseCurve, from_points, from_sessions
from planner.scenario.cluster import TokenPrice
from planner.scenario.fields import (
    BelowOne,
    EntryName,
    Fraction,
    Plausible,
    Positive,
    PositiveFraction,
    YearlyChange,
)
from planner.validation import Strict, choices

_LEAST_REQUESTS_PER_S = 1e-9
"""Stands for none where traffic is divided by."""

# A shrinking workload may lose almost all of itself, never more.
GrowthRate = Annotated[
    float,
    Field(gt=-1, le=100),
    Plausible(-0.9, 10.0, "assumption: growth of tenfold a year has not lasted anywhere"),
]


class Compound(Strict):
    """Compound growth at a constant yearly rate."""

    kind: Literal["compound"]
    """Compound growth."""
    per_year: GrowthRate
    """Growth in requests per year: 0.8 is 80% more after twelve months."""


def _check_year(year: str) -> str:
    # Keys are text in YAML here: 26 would sort and compare as another year.
    is_year = year.isdecimal() and len(year) == 4
    if not is_year:
        raise ValueError("growth by year is keyed by calendar years, e.g. {2026: 0.6, 2027: 0.4}")
    return year


class GrowthByYear(Strict):
    """Compound growth at a different rate in each calendar year."""

    kind: Literal["by-year"]
    """Growth by calendar year."""
    per_year: Annotated[
        dict[Annotated[str, AfterValidator(_check_year)], GrowthRate],
        Field(min_length=1, max_length=120),
    ]
    """Growth in requests per year, by calendar year: {2026: 0.6, 2027: 0.4}. A year that is not stated has the rate of
    the last stated year before it. If there is none, it has the rate of the first stated year."""

    def rate(self, year: int) -> float:
        """Return the growth per year of a calendar year."""
        # Four digits each, so that years sort as text.
        past_years = [stated for stated in self.per_year if int(stated) <= year]
        # Before the first stated year its rate holds already.
        applicable_year = max(past_years, default=min(self.per_year))
        return self.per_year[applicable_year]


class Flat(Strict):
    """No growth."""

    kind: Literal["flat"]
    """No growth over the horizon."""


class SCurve(Strict):
    """Growth that starts slowly, accelerates and saturates (logistic)."""

    kind: Literal["s-curve"]
    """Logistic growth."""
    ceiling_multiplier: Annotated[float, Field(gt=1, le=1e6), Plausible(1, 1000)]
    """Traffic at saturation, as a multiple of day one."""
    midpoint_years: Annotated[float, Field(gt=0, le=50), Plausible(0.1, 15)]
    """Years from the start until half of the rise has happened."""
    steepness_per_year: Annotated[float, Field(gt=0, le=100), Plausible(0.1, 30)] = 3.0
    """Steepness of the rise. If an early midpoint needs a steeper rise, ln 2 / midpoint_years is used. Default 3: most
    of the rise happens within two years."""


class Step(Strict):
    """A jump of traffic on a date."""

    date: datetime.date
    """Day from which the new level applies."""
    multiplier: Annotated[float, Field(ge=0, le=1e6), Plausible(0.01, 1000)]
    """Traffic from that date on, as a multiple of day one."""


class GrowthSteps(Strict):
    """Growth by jumps on dates."""

    kind: Literal["steps"]
    """Steps on dates."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=1000)]
    """The jumps, in date order."""


class GrowthTable(Strict):
    """Growth read from a CSV file."""

    kind: Literal["csv"]
    """Growth from a file."""
    file: str
    """CSV file with the columns date and multiplier; its path is relative to the scenario file. Between dates the
    multiplier changes linearly."""


Growth = Annotated[
    Compound | GrowthByYear | Flat | SCurve | GrowthSteps | GrowthTable, Field(discriminator="kind")
]


class Season(Strict):
    """A yearly seasonal wave."""

    amplitude_fraction: Annotated[Fraction, Plausible(0, 0.9)]
    """Height of the yearly peak above the yearly mean, as a share of the mean."""
    peak_day: Annotated[float, Field(ge=1, le=366), Plausible(1, 366, "the days of a year")] = 335.0
    """Day of the year on which the peak lies. Default 335: 1 December."""


class Holiday(Strict):
    """A holiday with its own traffic factor."""

    date: datetime.date
    """Date of the holiday, in local time."""
    multiplier: Annotated[float, Field(ge=0, le=100), Plausible(0.05, 10)] = 0.6
    """Traffic of the holiday divided by that of a normal day. Default 0.6: the level of a weekend day."""


class LoadProfile(Strict):
    """Traffic by hour of day, day of week and season."""

    timezone: str = "UTC"
    """IANA time zone of the users. Default UTC: no zone is assumed."""
    peak_to_mean: Annotated[
        float,
        Field(ge=1, le=24),
        Plausible(1, 12, "workload presets have 1.17 to 2.99; the rest is an assumption"),
    ] = 1.67
    """Traffic of the busiest hour of the week divided by the week's mean. Default 1.67: chat traffic of a large cloud
    in one week of 2024."""
    trough_to_mean: (
        Annotated[Fraction, Plausible(0, 1, "the quietest hour is not above the mean")] | None
    ) = None
    """Traffic of the quietest hour of the week divided by the week's mean. Default: the value of a smooth daily
    curve."""
    weekend_fraction: Annotated[
        float,
        Field(gt=0, le=3),
        Plausible(0.05, 2.5, "workload presets have 0.33 to 1; the rest is an assumption"),
    ] = 0.57
    """Mean traffic at weekends divided by that on weekdays. Default 0.57: chat traffic of a large cloud in one week of
    2024."""
    weekly_profile: Annotated[tuple[float, ...], Field(min_length=168, max_length=168)] | None = (
        None
    )
    """Factors for the 168 hours of a week, Monday 00:00 first, in place of peak_to_mean, trough_to_mean and
    weekend_fraction. Default: none."""
    season: Season | None = None
    """Yearly wave of traffic. Default: none."""
    holidays: Annotated[tuple[Holiday, ...], Field(max_length=1000)] = ()
    """Days with different traffic. Default: none."""


class Length(Strict):
    """A distribution of request lengths in tokens: a lognormal by mean and p95, or any shape by quantiles."""

    stated_mean: (
        Annotated[
            float,
            Field(gt=0, le=1e8),
            Plausible(1, 2000000, "from one token to the longest contexts sold"),
        ]
        | None
    ) = Field(default=None, alias="mean")
    """Mean number of tokens; state either this or quantiles. Default: the mean of the quantiles."""
    p95: (
        Annotated[
            float,
            Field(gt=0, le=1e9),
            Plausible(1, 8000000, "up to 3.86 times the longest plausible mean"),
        ]
        | None
    ) = None
    """95th percentile, tokens. Default: 3.0 times the mean, as in chat traffic."""
    quantiles: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=1e9)]],
        Field(max_length=200),
        Plausible(1, 8000000, "from one token to four times the longest contexts sold"),
    ] = Field(default_factory=dict)
    """Lengths in tokens by share of requests, in place of mean and p95: in ``{0.5: 1020, 0.9: 3000, 0.99: 7400}`` half
    of the requests have at most 1020 tokens. Between two quantiles the distribution is lognormal, and beyond the first
    and the last it continues in the same way. The keys 0 and 1 state the shortest and the longest length. Default: mean
    and p95 are used; if quantiles state no longest length, it is the model's context."""

    @model_validator(mode="after")
    def _reachable(self) -> Length:
        mean = self.stated_mean
        if self.quantiles:
            self._check_quantiles()
        elif mean is None:
            raise ValueError("needs mean, or quantiles such as {0.5: 1020, 0.9: 3000, 0.99: 7400}")
        # A lognormal's p95 / mean is exp(1.645 s − s²/2): 1 at s = 0, at most exp(1.645²/2) = 3.87.
        elif self.p95 is not None and not mean <= self.p95 <= 3.86 * mean:
            raise ValueError(
                f"p95 must lie between the mean and 3.86 times the mean ({mean:g} to {3.86 * mean:g}) "
                f"for a lognormal, not {self.p95:g}; for another distribution state quantiles"
            )
        return self

    def _check_quantiles(self) -> None:
        """Raise ValueError where quantiles contradict another field, one another, or have no share as key."""
        if self.stated_mean is not None or self.p95 is not None:
            stated = "mean" if self.stated_mean is not None else "p95"
            raise ValueError(f"quantiles replace mean and p95: leave out {stated}")
        shares = set()
        for share in self.quantiles:
            try:
                shares.add(float(share))
            except ValueError:
                raise ValueError(
                    f"the key of a quantile must be a share of requests, such as 0.95, not {share!r}"
                ) from None
        # 0.9 and 0.90 are two keys and one share.
        if len(shares) < len(self.quantiles):
            raise ValueError("a quantile is stated twice")
        try:
            _ = self.distribution
        except ScenarioError as error:
            raise ValueError(str(error)) from None

    # Plans cache curves by length; a model that holds a dict has no hash of its own.
    def __hash__(self) -> int:
        quantiles = tuple(self.quantiles.items())
        return hash((self.stated_mean, self.p95, quantiles))

    def within(self, longest_tokens: float) -> Length:
        """Return quantiles with a longest length where they state none; a lognormal unchanged."""
        # Without an end the last line goes on for ever, beyond what the model accepts.
        states_longest = any(float(share) == 1.0 for share in self.quantiles)
        if not self.quantiles or states_longest:
            return self
        quantiles = {**self.quantiles, "1": float(longest_tokens)}
        return self.model_copy(update={"quantiles": quantiles})

    @property
    def distribution(self) -> LengthDistribution:
        """The distribution of lengths."""
        if self.stated_mean is None:
            quantiles = {float(share): tokens for share, tokens in self.quantiles.items()}
            return LengthDistribution.from_quantiles(quantiles)
        # A lognormal of 3.0 is about as wide as public chat logs.
        p95 = self.p95 or 3.0 * self.stated_mean
        return LengthDistribution.from_mean_p95(self.stated_mean, p95)

    @property
    def mean(self) -> float:
        """Mean number of tokens."""
        if self.stated_mean is not None:
            return self.stated_mean
        return self.distribution.mean_tokens


class TokenLengths(Strict):
    """Prompt and output lengths of a request."""

    input: Length
    """Prompt length, including the cached part."""
    output: Length
    """Length of the generated text."""
    growth_per_year: Annotated[YearlyChange, Plausible(-0.7, 3)] = 0.0
    """Growth of both lengths per year. Default 0: mean prompts have grown only because the mix of workloads changed."""


class Noise(Strict):
    """Random deviation of an hour from its load profile."""

    sigma: Annotated[
        float,
        Field(ge=0, le=2),
        Plausible(0, 1, "workload presets have 0.04 to 0.31; the rest is an assumption"),
    ] = 0.1
    """Standard deviation of ln(hourly traffic). Default 0.1: the scatter of API traffic from hour to hour."""
    correlation_h: Annotated[
        float, Field(ge=0, le=1000), Plausible(0.25, 336, "assumption: from minutes to two weeks")
    ] = 6.0
    """Hours in which a deviation from the load profile decays to 1/e (37%). Default 6: a quarter of a day."""


class Spike(Strict):
    """A traffic spike at a launch or news event."""

    date: datetime.date
    """Day on which the spike begins."""
    multiplier: Annotated[float, Field(ge=1, le=1000), Plausible(1, 50)]
    """Traffic at the height of the spike divided by normal traffic."""
    decay_days: Annotated[float, Field(gt=0, le=1000), Plausible(0.1, 180)] = 7.0
    """Days in which the spike falls to 1/e (37%) of its height. Default 7: a week of attention."""


class Tenant(Strict):
    """A large customer whose traffic is on or off."""

    name: EntryName
    """Name of the customer. The customer's random numbers depend on it."""
    share_fraction: Annotated[PositiveFraction, Plausible(0.001, 1)]
    """The customer's share of the workload's mean traffic."""
    mean_on_h: Annotated[
        Positive, Plausible(0.1, 17532, "assumption: from minutes to two years")
    ] = 72.0
    """Mean hours for which the customer's traffic stays on. Default 72: three days of work (assumption)."""
    mean_off_h: Annotated[
        Positive, Plausible(0.1, 17532, "assumption: from minutes to two years")
    ] = 24.0
    """Mean hours for which the customer's traffic stays off. Default 24: assumption."""


class Objective(Strict):
    """The latency SLO of a workload: TTFT, TPOT and percentile."""

    ttft_s: Annotated[Positive, Plausible(0.05, 300, "from code completion to batch work")] = 2.0
    """Time to first token that a request must not exceed. Default 2.0: MLPerf's server objective for a 70B model."""
    tpot_s: Annotated[
        Positive, Plausible(0.002, 2, "from 500 tokens a second to one token in two seconds")
    ] = 0.1
    """Mean time per output token after the first that a request must not exceed. Default 0.1: ten tokens a second,
    faster than most people read."""
    percentile: Annotated[float, Field(ge=0.5, le=0.9999), Plausible(0.8, 0.9999)] | None = None
    """Share of requests that must meet both objectives; a node's capacity is the highest rate at which this share meets
    them. Default: slo_target.attainment, the share required of the plan."""

    @property
    def share(self) -> float:
        """The percentile, which a scenario gives every workload that states none."""
        # The scenario's validator fills it in; a workload alone is never planned.
        assert self.percentile is not None
        return self.percentile


def _is_shipped(name: str) -> str:
    if name not in workload_preset_names():
        raise ValueError(f"must be one of {choices(workload_preset_names())}")
    return name


def _is_curve(name: str) -> str:
    if name not in reuse_curve_names():
        raise ValueError(f"must be one of {choices(reuse_curve_names())}")
    return name


ReusePreset = Annotated[
    str,
    AfterValidator(_is_curve),
    WithJsonSchema({"enum": list(reuse_curve_names()), "type": "string"}),
]


Preset = Annotated[
    str,
    AfterValidator(_is_shipped),
    WithJsonSchema({"enum": list(workload_preset_names()), "type": "string"}),
]


class Sessions(Strict):
    """Sessions of equal length, whose prompts grow by equal steps around the workload's mean prompt."""

    turns: Annotated[
        int,
        Field(ge=2, le=10_000),
        Plausible(2, 500, "sessions in the log of agents have up to 561 turns"),
    ]
    """Number of requests in a session."""
    median_gap_s: Annotated[
        float,
        Field(gt=0, le=1e6),
        Plausible(0.5, 3600, "typically 10 s for agents, minutes for people"),
    ]
    """Median time from the end of a reply to the next request."""
    p90_gap_s: Annotated[
        float,
        Field(gt=0, le=1e7),
        Plausible(1, 36_000, "typically a minute for agents, an hour for people"),
    ]
    """90th percentile of the time from the end of a reply to the next request. With the median it defines a lognormal
    distribution."""
    growth_tokens: Annotated[
        float,
        Field(ge=0, le=1e7),
        Plausible(0, 50_000, "the log of agents has 4,500 tokens a turn"),
    ]
    """Tokens by which a prompt is longer than the prompt of the turn before."""
    shared_tokens: Annotated[
        float, Field(ge=0, le=1e7), Plausible(0, 100_000, "from a system prompt to a document")
    ] = 0.0
    """Tokens at the beginning of a prompt that are the same in other sessions. Default 0: none."""
    prefixes: Annotated[
        int,
        Field(ge=1, le=10_000_000),
        Plausible(1, 1_000_000, "from one for all to one for each customer"),
    ] = 1
    """Number of different beginnings of prompts; each is shared by one group of sessions. Default 1: one system prompt
    for all."""

    @model_validator(mode="after")
    def _gaps_rise(self) -> Sessions:
        if self.p90_gap_s < self.median_gap_s:
            raise ValueError(
                f"p90_gap_s, {self.p90_gap_s:g}, is below median_gap_s, {self.median_gap_s:g}; swapped?"
            )
        return self


class Reuse(Strict):
    """When input tokens are used again: by points, by sessions, or by the name of a curve of the catalogue."""

    # An editor must offer the names as well as the mapping: the model itself only knows the latter.
    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema.update(
            anyOf=[{"type": schema.pop("type")}, {"enum": list(reuse_curve_names())}]
        )
    )

    curve: ReusePreset | None = None
    """Name of a curve of the catalogue: agentic, long-context or chat. Default: none."""
    points: Annotated[
        dict[str, Annotated[float, Field(ge=0, lt=1)]],
        Field(max_length=200),
        Plausible(0, 0.98, "agentic logs reach 0.96"),
    ] = Field(default_factory=dict)
    """Points of the curve: seconds, and the share of input tokens that were last used at most that many seconds before,
    ``{10: 0.4, 60: 0.8, 3600: 0.95}``. Time is counted from the end of a request to the next arrival. Default: none."""
    sessions: Sessions | None = None
    """Turns, gaps and growth of sessions, from which the planner computes the curve. Default: none."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, stated: Any) -> Any:
        if isinstance(stated, str):
            return {"curve": stated}
        return stated

    @model_validator(mode="after")
    def _one_of_them(self) -> Reuse:
        kinds = [self.curve, self.points or None, self.sessions]
        if kinds.count(None) != 2:
            raise ValueError(
                f"needs one of {choices(reuse_curve_names())}, points such as {{10: 0.4, 60: 0.8, 3600: 0.95}}, "
                "or sessions"
            )
        for seconds in self.points:
            try:
                is_gap = float(seconds) > 0.0
            except ValueError:
                is_gap = False
            if not is_gap:
                raise ValueError(
                    f"the key of a point must be seconds above 0, such as 60, not {seconds!r}"
                )
        by_gap = sorted((float(gap_s), found) for gap_s, found in self.points.items())
        for (gap_s, found), (later_s, later) in itertools.pairwise(by_gap):
            if later_s <= gap_s or later < found:
                raise ValueError(
                    f"points must rise with the seconds, not go from {found:g} at {gap_s:g} to {later:g} at {later_s:g}"
                )
        return self

    # Plans cache layouts by reuse; a model that holds a dict has no hash of its own.
    def __hash__(self) -> int:
        return hash((self.curve, tuple(self.points.items()), self.sessions))


@functools.lru_cache(maxsize=64)
def _reuse_curve(reuse: Reuse, shared_gap_s: float, mean_tokens: float) -> ReuseCurve:
    """Return the curve of a reuse as stated, for prompts of a mean length."""
    if reuse.curve is not None:
        return reuse_curve(reuse.curve)
    sessions = reuse.sessions
    if sessions is None:
        return from_points({float(gap_s): found for gap_s, found in reuse.points.items()})
    return from_sessions(
        turns=sessions.turns,
        median_gap_s=sessions.median_gap_s,
        p90_gap_s=sessions.p90_gap_s,
        growth_tokens=sessions.growth_tokens,
        shared_tokens=sessions.shared_tokens,
        shared_gap_s=shared_gap_s,
        mean_tokens=mean_tokens,
    )


class ModelChange(Strict):
    """Another model to which a workload's customers are moved on a date."""

    begins: Annotated[datetime.date, Field(alias="from")]
    """First day on which the requests are for the new model."""
    model: str
    """Model that is served from that day on, by its catalogue name."""
    token_price: TokenPrice | None = None
    """Price at which tokens are sold from that day on. Default: the workload's price; if that is the word api, the
    catalogue's price of the new model."""


class Workload(Strict):
    """One stream of requests for one model."""

    preset: Preset | None = None
    """Workload preset of the catalogue whose values are used for keys that are not stated. Default: none, so lengths
    must be stated."""
    model: str
    """Model that serves the workload, by its catalogue name."""
    models: Annotated[tuple[ModelChange, ...], Field(max_length=100)] = ()
    """Models that replace the first one on later dates: ``[{from: 2027-01-01, model: gpt-oss-120b}]``. From each date
    on, the same traffic is planned and reported as a separate workload, NAME-DATE. Default: one model throughout."""
    begins: datetime.date | None = None
    """First day of the workload's requests. Growth still counts from the start of the scenario. Default: the start of
    the scenario."""
    ends: datetime.date | None = None
    """First day on which the workload has no requests any more. Default: none, so requests go on to the end."""
    fine_tunes: Annotated[
        int,
        Field(ge=1, le=100_000),
        Plausible(1, 2000, "from one model to a fine-tune for each of many tenants"),
    ] = 1
    """Number of fine-tuned models of the same architecture, among which requests are spread evenly. Each has its own
    weights, which must be in memory to serve it. Default 1: one model."""
    precisions: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Precisions in which the answers are good enough, e.g. [fp8, fp4]. Each cluster uses its own precision if it is in
    the list, otherwise the one in the list in which a node serves most. The catalogue's notes on accuracy are in
    assumptions.csv. Default: the cluster's precision; if none is stated, fp8, the catalogue's default, which public
    serving runs use."""
    requests_per_s: Annotated[
        float,
        Field(ge=0, le=1e9),
        Plausible(
            0.0005,
            100000,
            "from two an hour to three times ChatGPT's 2.5 billion prompts a day in 2025",
        ),
    ]
    """Mean requests per second on day one."""
    growth: Growth = Flat(kind="flat")
    """How traffic grows. Default flat: only you know how traffic grows."""
    load_profile: LoadProfile = LoadProfile()
    """Daily, weekly and yearly shape. Default: the profile of chat traffic."""
    lengths: TokenLengths
    """Prompt and output lengths."""
    prefix_cache_hit_fraction: Annotated[
        BelowOne, Plausible(0, 0.98, "agentic logs reach 0.96")
    ] = 0.0
    """Share of prompt tokens found in the prefix cache, as you measured it at your own load. This share does not change
    with memory. Default 0: no saving unless stated."""
    reuse: Reuse | None = None
    """How soon input tokens are used again: the name of a curve (agentic, long-context, chat), points or sessions. If
    stated, the share found in the prefix cache is computed from memory, load and routing. Default:
    prefix_cache_hit_fraction is used as stated."""
    prefix_routing: Literal["session", "prefix", "random"] = "session"
    """Where a router sends the requests of a workload that states its reuse: to the replica of the session (session),
    to a replica that holds the same beginning (prefix), or to any (random). With random routing, a request finds only
    what an earlier turn of its session left on that replica. Default session: gateways offer this kind of affinity."""
    noise: Noise = Noise()
    """Random deviation of hourly traffic from the load profile. Default: as in API traffic."""
    burst_index_of_dispersion: Annotated[
        float,
        Field(ge=1, le=10_000),
        Plausible(1, 1000, "workload presets have 3 to 12; the rest is an assumption"),
    ] = 12.0
    """Variance over mean of the number of requests in a minute; 1 is Poisson. Default 12: API traffic at 28 to 45
    requests/s."""
    burst_index_requests_per_s: Annotated[
        float,
        Field(gt=0, le=1e9),
        Plausible(0.0005, 100000, "same range as requests_per_s"),
    ] = LOWEST_MEASURED_REQUESTS_PER_S
    """Lowest rate at which burst_index_of_dispersion was measured. At lower rates, pooled bursts have the same size
    relative to the mean as at this rate, so the index falls towards 1. Default 6: public chat traffic; if you state
    your own index, requests_per_s if that is lower."""
    burst_scaling: Literal["pooled", "proportional"] = "pooled"
    """How the size of bursts changes with the rate. Pooled: bursts of many users even out as traffic grows; variance
    over mean is the same at any rate from burst_index_requests_per_s on. Proportional: bursts of one client do not even
    out; at any rate they have the same size, relative to the hour's mean, as at requests_per_s. Default pooled: in chat
    traffic the variance over mean is 7 to 16 at 6 requests/s and 11 to 13 at 28 to 45."""
    spikes: Annotated[tuple[Spike, ...], Field(max_length=1000)] = ()
    """Traffic spikes from launches and news, by date. Default: none."""
    tenants: Annotated[tuple[Tenant, ...], Field(max_length=100)] = ()
    """Large customers whose traffic is on or off. Default: none."""
    model_launch: datetime.date | None = None
    """Day on which the model is released. The workload has no requests before. From that day on, each stack has to
    bring the model up on each accelerator type that is on site. Default: the model has long been served."""
    slo: Objective = Objective()
    """Latency objective of the workload. Default: that of MLPerf's server scenario."""
    admission: Literal["reject", "queue"] = "reject"
    """What admission control does with a request that cannot meet its SLO: reject it, so that it counts as shed, or
    queue it, so that others are late. Requests may grow so long that no batch can serve them within the SLO. All of
    them are then rejected or, if queued, served late; of all tokens served, the workload's share does not rise above
    what it was before. Default reject: admitted requests meet their SLO."""
    priority: Literal["interactive", "standard", "deferrable"] = "interactive"
    """Priority of the workload's requests: interactive are served first, deferrable last. Default interactive: requests
    do not wait unless stated."""
    completion_window_h: (
        Annotated[
            float, Field(ge=1, le=2000), Plausible(1, 336, "assumption: from an hour to two weeks")
        ]
        | None
    ) = None
    """Hours that deferrable work may wait before it counts as shed. Default: 24 for deferrable work."""
    allow_api: bool = True
    """Whether the workload's requests may go to an API (a cluster with contract: {kind: api}); false for data that must
    not leave the site. Default true: a plan without an API is not affected."""
    token_price: TokenPrice | None = None
    """Price at which the workload's tokens are sold: prices, or the word api for the catalogue's API price of the
    model. Needed for revenue, margin and break-even. Default: tokens are not sold, and only cost is reported."""
    cluster_preference: tuple[EntryName, ...] = ()
    """Order in which the workload's requests are offered to clusters if routing is preference; clusters that are not
    listed come last. Default: all clusters, cheapest first."""

    _follows: str | None = PrivateAttr(None)

    @property
    def follows(self) -> str | None:
        """The stated workload whose customers it has from a change of model on, and with them its random traffic."""
        return self._follows

    @model_validator(mode="before")
    @classmethod
    def _index_kept_where_stated(cls, stated: object) -> object:
        """Return a workload's keys with the rate at which an index of its own was measured: at most that of day one.

        As a key, so that a workload written out with all its defaults and read again is the same.
        """
        if not isinstance(stated, dict) or "burst_index_requests_per_s" in stated:
            return stated
        rate = stated.get("requests_per_s")
        # What is no number is refused by its own field; a workload switched off by 0 says no rate.
        is_low = isinstance(rate, int | float) and 0.0 < rate < LOWEST_MEASURED_REQUESTS_PER_S
        if is_low and "burst_index_of_dispersion" in stated:
            return {**stated, "burst_index_requests_per_s": rate}
        return stated

    def successors(self, name: str, end: datetime.date) -> dict[str, Workload]:
        """Return the workload as those that follow one another up to a day, each of one model, by name.

        What changes later stays in ``models`` of the last.
        """
        changes = [change for change in self.models if change.begins < end]
        successors = {}
        current = self
        current_name = name
        for number, change in enumerate(changes, start=1):
            ends = {"models": (), "ends": change.begins}
            successors[current_name] = current.model_copy(update=ends)
            current_name = f"{name}-{change.begins}"
            changed = {
                "model": change.model,
                "models": self.models[number:],
                "begins": change.begins,
                # A model that customers are moved to is run in already.
                "model_launch": None,
                "token_price": change.token_price or self.token_price,
            }
            current = self.model_copy(update=changed)
            current._follows = name
        successors[current_name] = current
        return successors

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        if self.begins and self.ends and self.ends <= self.begins:
            raise ValueError(f"ends on {self.ends}, before it begins on {self.begins}")
        if self.completion_window_h is not None and self.priority != "deferrable":
            raise ValueError("completion_window_h is for priority: deferrable")
        shares = sum(tenant.share_fraction for tenant in self.tenants)
        # Thirds in decimals add up to a little more than one.
        if shares > 1 + 1e-9:
            raise ValueError(f"the tenants' shares add up to {shares:g}, more than the whole")
        return self

    @property
    def first_day(self) -> datetime.date:
        """First day of its requests; the earliest date there is for what was there before the start."""
        return self.begins or datetime.date.min

    @property
    def day_one_requests_per_s(self) -> float:
        """Requests per second on day one: none where it begins later, so that it decides nothing before it comes."""
        return 0.0 if self.begins else self.requests_per_s

    @property
    def reuse_curve(self) -> ReuseCurve | None:
        """When its input tokens are used again; None where the share in the cache is stated."""
        if self.reuse is None:
            return None
        # One beginning for all is always in use; others come back with the requests of their group.
        shared_gap_s = 0.0
        sessions = self.reuse.sessions
        if sessions is not None and sessions.prefixes > 1:
            shared_gap_s = sessions.prefixes / max(self.requests_per_s, _LEAST_REQUESTS_PER_S)
        return _reuse_curve(self.reuse, shared_gap_s, self.lengths.input.mean)

    @property
    def bursts(self) -> Bursts:
        """Variation of its requests from minute to minute, at the mean rate of day one."""
        # A workload may be switched off by 0, and its bursts are still over its rate.
        rate = max(self.requests_per_s, _LEAST_REQUESTS_PER_S)
        index = self.burst_index_of_dispersion
        bursts = Bursts(
            requests_per_s=rate,
            index_of_dispersion=index,
            scaling=self.burst_scaling,
            lowest_requests_per_s=self.burst_index_requests_per_s,
        )
        # As they are at that rate: one object for all rates below the lowest measured.
        return bursts.at(rate)
