"""The outcome of a zoom: latency percentiles and SLO misses by reason, each with its sampling interval.

Requests of one minute share a burst and a queue, so they count for fewer than they are. For any share p of n requests
in m minutes, with a_i of the n_i requests of minute i, the variance of p is that of a ratio of sums,

    Var = m / (m − 1) · Σ (a_i − p·n_i)² / n²,

and a percentile's interval runs between the order statistics at q ± 1.96 √Var of the share above it. Minutes differ
by their bursts too, which a sample shares with the whole fleet: the interval is on the wide side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.demand.bursts import BURST_S
from planner.requests.zoom import Zoom

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
QUANTITIES = ("ttft_s", "tpot_s", "total_s")
REASONS = (
    "breakdown",
    "long prompt",
    "full cache",
    "burst",
    "queue",
    "crowded batch",
    "no capacity",
)
"""Why a request was not in time, the first that holds: its replica went down; its own prefill takes longer than the
objective; it was evicted; its minute was busier than the hour by a tenth or more; prompts ahead of it; too many beside
it; or, of those refused, none of these."""
ENOUGH_FINISHED = 0.95
"""Of deferrable work due in the minutes that count: fewer finished are a shortfall, where the interval says so too."""
MOST_LAG_FRACTION = 0.05
"""Of the minutes that count: where replies of deferrable work take longer, the window is too short to judge by."""
_BURST_FACTOR = 1.1
_Z = 1.959963984540054  # two-sided 95%


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure of a sample and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Latencies and results of one workload's requests; arrays of shape (requests,)."""

    name: str
    arrived_s: Floats
    prompt_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    ttft_s: Floats
    """NaN without a first token."""
    tpot_s: Floats
    """(last − first token) / (output tokens − 1); 0 for a single token, NaN for what is not finished."""
    total_s: Floats
    refused: Bools
    in_flight: Bools
    attainment: Bools
    """Met both objectives, or has not missed them yet, in flight; of deferrable work, what is finished."""
    reason: Ints
    """Index into REASONS of what was not in time; −1 for the rest."""
    retries: Floats
    preemptions: Floats
    minutes: int
    finished_s: Floats
    """When requests were finished in the minutes that count, whenever they arrived."""
    due_fraction: float = np.nan
    """Of deferrable requests that arrive, those that the hourly model serves in the hour; NaN for all others."""
    lag_fraction: float = 0.0
    """Of the minutes that count, how long its mean reply takes beyond the minutes before, at its own objective."""

    @property
    def due(self) -> float:
        """Number of requests that were to be finished: of deferrable work, as many as the hourly model serves."""
        return self.arrived_s.size * (self.due_fraction if self.is_deferrable else 1.0)

    @property
    def is_deferrable(self) -> bool:
        """Whether it is judged by what is finished of what was due."""
        return not np.isnan(self.due_fraction)

    def attained(self) -> Estimate:
        """Return the share within the SLO; of deferrable work finished of due, NaN where the minutes cannot tell."""
        if not self.is_deferrable:
            return self.share(self.attainment)
        unknown = Estimate(value=np.nan, low=np.nan, high=np.nan)
        if not self.due or self.lag_fraction > MOST_LAG_FRACTION:
            return unknown
        value = self.finished_s.size / self.due
        due = self.due_fraction * _per_minute(self.arrived_s, self.minutes)
        half = _Z * _ratio_error(_per_minute(self.finished_s, self.minutes), due)
        value, low, high = (
            float(np.clip(end, 0.0, 1.0)) for end in (value, value - half, value + half)
        )
        return (
            unknown
            if value < ENOUGH_FINISHED <= high
            else Estimate(value=value, low=low, high=high)
        )

    def share(self, chosen: Bools) -> Estimate:
        """Return the share of requests for which a condition is true."""
        if not chosen.size:
            return Estimate(value=np.nan, low=np.nan, high=np.nan)
        half = _Z * share_error(chosen, self.arrived_s, self.minutes)
        value = float(chosen.mean())
        return Estimate(value=value, low=max(value - half, 0.0), high=min(value + half, 1.0))

    def percentile(self, quantity: str, probability: float) -> Estimate:
        """Return a percentile of ttft_s, tpot_s or total_s over the requests that have it."""
        figures: Floats = getattr(self, quantity)
        known = np.isfinite(figures)
        if not known.any():
            return Estimate(value=np.nan, low=np.nan, high=np.nan)
        figures = figures[known]
        arrived_s = self.arrived_s[known]
        value = float(np.quantile(figures, probability))
        # The error of the share above it; at the very end of a sample, at least that of independent requests.
        error = max(
            share_error(figures > value, arrived_s, self.minutes),
            float(np.sqrt(probability * (1.0 - probability) / figures.size)),
        )
        low, high = np.quantile(
            figures, np.clip([probability - _Z * error, probability + _Z * error], 0.0, 1.0)
        )
        return Estimate(value=value, low=float(low), high=float(high))

    def reasons(self) -> dict[str, int]:
        """Return the number of requests that missed their SLO for each reason."""
        return {name: int((self.reason == place).sum()) for place, name in enumerate(REASONS)}


def share_error(chosen: Bools, arrived_s: Floats, minutes: int) -> float:
    """Return the standard error of a share of requests whose minutes are correlated."""
    if minutes < 2:
        return float(
            np.sqrt(max(chosen.mean() * (1.0 - chosen.mean()), 1.0 / chosen.size) / chosen.size)
        )
    return _ratio_error(_per_minute(arrived_s[chosen], minutes), _per_minute(arrived_s, minutes))


def _per_minute(times_s: Floats, minutes: int) -> Floats:
    """Return how many of some times lie in each minute."""
    minute = np.clip(times_s // BURST_S, 0, minutes - 1).astype(np.intp)
    return np.bincount(minute, minlength=minutes).astype(np.float64)


def _ratio_error(hits: Floats, counts: Floats) -> float:
    """Return the standard error of a ratio of sums over minutes; of one minute, that of independent requests."""
    total = counts.sum()
    residual = hits - hits.sum() / counts.sum() * counts
    if hits.size < 2:
        return float(np.sqrt(2.0 / total))
    return float(np.sqrt(hits.size / (hits.size - 1.0) * (residual @ residual)) / total)


def outcomes(zoom: Zoom) -> tuple[Outcome, ...]:
    """Return the outcome of each workload's requests."""
    return tuple(_outcome(zoom, w) for w in range(len(zoom.slos)))


def _outcome(zoom: Zoom, w: int) -> Outcome:
    slo = zoom.slos[w]
    requests = [request for request in zoom.requests if request.workload == w]

    def column(field: str) -> Floats:
        return np.array([getattr(request, field) for request in requests], dtype=np.float64)

    same = (
        "arrived_s",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "retries",
        "preemptions",
    )
    columns = {name: column(name) for name in same}
    arrived_s = columns["arrived_s"]
    output_tokens = columns["output_tokens"]
    refused = np.isfinite(column("refused_s"))
    finished_s = column("finished_s")
    first_s = np.where(refused, np.nan, column("first_token_s"))
    ttft_s = first_s - arrived_s
    tpot_s = (finished_s - first_s) / np.maximum(output_tokens - 1.0, 1.0)
    in_flight = ~refused & np.isnan(finished_s)
    # A reply that goes on is late once its time is over, and until then it is not.
    end_s = (zoom.span.minutes + zoom.span.after) * BURST_S
    so_far_s = (end_s - first_s) / np.maximum(output_tokens - 1.0, 1.0)
    attainment = (ttft_s <= slo.ttft_s) & (np.where(in_flight, so_far_s, tpot_s) <= slo.tpot_s)
    if slo.is_deferrable:
        attainment = np.isfinite(finished_s)  # it has a deadline of hours, not of seconds
    minute = np.clip(arrived_s // BURST_S, 0, zoom.span.minutes - 1).astype(np.intp)
    # Its time to first token on the fastest replica with nothing else to do.
    times = [group.times for group in zoom.hour.replica_groups if w in group.served]
    own_s = np.full(arrived_s.size, np.inf)
    for place, request in enumerate(requests if times else ()):
        prompt = request.prompt_tokens
        cached = request.cached_tokens
        own_s[place] = min(
            on.prefill_s(prompt, cached) + on.fixed_s + on.overhead_s for on in times
        )
    conditions = {
        "breakdown": columns["retries"] > 0,
        "long prompt": own_s > slo.ttft_s,
        "full cache": columns["preemptions"] > 0,
        "burst": zoom.arrivals[w].minute_factors[zoom.span.before :][minute] >= _BURST_FACTOR,
        "no capacity": refused,
        "queue": ~(ttft_s <= slo.ttft_s),
        "crowded batch": np.ones(arrived_s.size, dtype=bool),
    }
    lasts_s = zoom.hour.lengths[w].output_mean_tokens * slo.tpot_s
    reason = np.full(arrived_s.size, -1, dtype=np.intp)
    for name, holds in conditions.items() if not slo.is_deferrable else ():
        reason = np.where(~attainment & (reason < 0) & holds, REASONS.index(name), reason)
    return Outcome(
        name=slo.name,
        **columns,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        total_s=finished_s - arrived_s,
        refused=refused,
        in_flight=in_flight,
        attainment=attainment,
        reason=reason,
        minutes=zoom.span.minutes,
        finished_s=zoom.finished_s[w],
        due_fraction=float(np.nan_to_num(zoom.hour.served_fraction[w]))
        if slo.is_deferrable
        else np.nan,
        lag_fraction=max(lasts_s - zoom.span.before * BURST_S, 0.0) / (zoom.span.minutes * BURST_S),
    )
