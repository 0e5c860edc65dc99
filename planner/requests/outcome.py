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
REASONS = ("breakdown", "long prompt", "full cache", "burst", "queue", "crowded batch", "no capacity")
"""Why a request was not in time, the first that holds: its replica went down; its own prefill takes longer than the
objective; it was evicted; its minute was busier than the hour by a tenth or more; prompts ahead of it; too many beside
it; or, of those refused, none of these."""
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
    """Met both objectives, or has not missed them yet, in flight; of deferrable work, all that is not refused."""
    reason: Ints
    """Index into REASONS of what was not in time; −1 for the rest."""
    retries: Floats
    preemptions: Floats
    minutes: int

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
        figures, arrived_s = figures[known], self.arrived_s[known]
        value = float(np.quantile(figures, probability))
        # The error of the share above it; at the very end of a sample, at least that of independent requests.
        error = max(
            share_error(figures > value, arrived_s, self.minutes),
            float(np.sqrt(probability * (1.0 - probability) / figures.size)),
        )
        low, high = np.quantile(figures, np.clip([probability - _Z * error, probability + _Z * error], 0.0, 1.0))
        return Estimate(value=value, low=float(low), high=float(high))

    def reasons(self) -> dict[str, int]:
        """Return the number of requests that missed their SLO for each reason."""
        return {name: int((self.reason == place).sum()) for place, name in enumerate(REASONS)}


def share_error(chosen: Bools, arrived_s: Floats, minutes: int) -> float:
    """Return the standard error of a share of requests whose minutes are correlated."""
    if minutes < 2:
        return float(np.sqrt(max(chosen.mean() * (1.0 - chosen.mean()), 1.0 / chosen.size) / chosen.size))
    minute = np.clip(arrived_s // BURST_S, 0, minutes - 1).astype(np.intp)
    counts = np.bincount(minute, minlength=minutes)
    hits = np.bincount(minute, weights=chosen, minlength=minutes)
    residual = hits - chosen.mean() * counts
    return float(np.sqrt(minutes / (minutes - 1.0) * (residual @ residual)) / chosen.size)


def outcomes(zoom: Zoom) -> tuple[Outcome, ...]:
    """Return the outcome of each workload's requests."""
    return tuple(_outcome(zoom, w) for w in range(len(zoom.slos)))


def _outcome(zoom: Zoom, w: int) -> Outcome:
    slo = zoom.slos[w]
    requests = [request for request in zoom.requests if request.workload == w]

    def column(field: str) -> Floats:
        return np.array([getattr(request, field) for request in requests], dtype=np.float64)

    same = ("arrived_s", "prompt_tokens", "cached_tokens", "output_tokens", "retries", "preemptions")
    columns = {name: column(name) for name in same}
    arrived_s, output_tokens = columns["arrived_s"], columns["output_tokens"]
    refused, finished_s = np.isfinite(column("refused_s")), column("finished_s")
    first_s = np.where(refused, np.nan, column("first_token_s"))
    ttft_s = first_s - arrived_s
    tpot_s = (finished_s - first_s) / np.maximum(output_tokens - 1.0, 1.0)
    in_flight = ~refused & np.isnan(finished_s)
    # A reply that goes on is late once its time is over, and until then it is not.
    end_s = (zoom.span.minutes + zoom.span.after) * BURST_S
    so_far_s = (end_s - first_s) / np.maximum(output_tokens - 1.0, 1.0)
    attainment = (ttft_s <= slo.ttft_s) & (np.where(in_flight, so_far_s, tpot_s) <= slo.tpot_s)
    if slo.is_deferrable:
        attainment = ~refused  # it has a deadline of hours, not of seconds
    minute = np.clip(arrived_s // BURST_S, 0, zoom.span.minutes - 1).astype(np.intp)
    # Its time to first token on the fastest replica with nothing else to do.
    times = [group.times for group in zoom.hour.replica_groups if w in group.served]
    own_s = np.full(arrived_s.size, np.inf)
    for place, request in enumerate(requests if times else ()):
        prompt, cached = request.prompt_tokens, request.cached_tokens
        own_s[place] = min(on.prefill_s(prompt, cached) + on.fixed_s + on.overhead_s for on in times)
    conditions = {
        "breakdown": columns["retries"] > 0,
        "long prompt": own_s > slo.ttft_s,
        "full cache": columns["preemptions"] > 0,
        "burst": zoom.arrivals[w].minute_factors[zoom.span.before :][minute] >= _BURST_FACTOR,
        "no capacity": refused,
        "queue": ~(ttft_s <= slo.ttft_s),
        "crowded batch": np.ones(arrived_s.size, dtype=bool),
    }
    reason = np.full(arrived_s.size, -1, dtype=np.intp)
    for name, holds in conditions.items():
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
    )
