"""The outcome of a zoom: latency percentiles and SLO misses by reason, each with its sampling interval.

Requests of one minute share a burst and a queue, so they count for fewer than they are. For any share p of n requests
in m minutes, with a_i of the n_i requests of minute i, the variance of p is that of a ratio of sums,

    Var = m / (m − 1) · Σ (a_i − p·n_i)² / n²,

and a percentile's interval runs between the order statistics at q ± 1.96 √Var of the share above it. Minutes differ
by their bursts too, which a sample shares with the whole fleet: the interval is on the wide side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.demand.bursts import BURST_S
from planner.records import record
from planner.requests.batching import Request
from planner.requests.zoom import Zoom

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Percentiles of latency that are reported."""
QUANTITIES = ("ttft_s", "tpot_s", "total_s")
"""Latencies that are reported: to the first token, per token after it, of the whole request."""
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
MAX_LAG_FRACTION = 0.05
"""Of the minutes that count: where replies of deferrable work take longer, the window is too short to judge by."""
_BURST_FACTOR = 1.1
"""Rate of a minute over its hour's from which a miss is put down to a burst."""
_Z = 1.959963984540054
"""Standard errors on either side of a 95% interval."""


@record
class Estimate:
    """A figure of a sample and its 95% interval."""

    value: float
    low: float
    high: float


UNKNOWN = Estimate(value=np.nan, low=np.nan, high=np.nan)
"""What a sample says where it says nothing."""


@record
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
        due_fraction = self.due_fraction if self.is_deferrable else 1.0
        return self.arrived_s.size * due_fraction

    @property
    def is_deferrable(self) -> bool:
        """Whether it is judged by what is finished of what was due."""
        return not np.isnan(self.due_fraction)

    def attained(self) -> Estimate:
        """Return the share within the SLO; of deferrable work finished of due, NaN where the minutes cannot tell."""
        if not self.is_deferrable:
            return self.share(self.attainment)
        if not self.due or self.lag_fraction > MAX_LAG_FRACTION:
            return UNKNOWN
        share = self.finished_s.size / self.due
        arrivals = _per_minute(self.arrived_s, self.minutes)
        due = self.due_fraction * arrivals
        finished = _per_minute(self.finished_s, self.minutes)
        half = _Z * _ratio_error(finished, due)
        # More may be finished than were due: what lay ready before. That attains no more than all.
        estimates = np.clip([share, share - half, share + half], 0.0, 1.0)
        value, low, high = estimates.tolist()
        # Short of enough, but by no more than chance: the minutes cannot tell.
        if value < ENOUGH_FINISHED <= high:
            return UNKNOWN
        return Estimate(value=value, low=low, high=high)

    def share(self, chosen: Bools) -> Estimate:
        """Return the share of requests for which a condition is true."""
        if not chosen.size:
            return UNKNOWN
        half = _Z * share_error(chosen, self.arrived_s, self.minutes)
        value = float(chosen.mean())
        low = max(value - half, 0.0)
        high = min(value + half, 1.0)
        return Estimate(value=value, low=low, high=high)

    def percentile(self, quantity: str, probability: float) -> Estimate:
        """Return a percentile of ttft_s, tpot_s or total_s over the requests that have it."""
        figures: Floats = getattr(self, quantity)
        is_measured = np.isfinite(figures)
        if not is_measured.any():
            return UNKNOWN
        figures = figures[is_measured]
        arrived_s = self.arrived_s[is_measured]
        value = float(np.quantile(figures, probability))
        # The error of the share above it; at the very end of a sample, at least that of independent requests.
        clustered_error = share_error(figures > value, arrived_s, self.minutes)
        variance = probability * (1.0 - probability) / figures.size
        independent_error = float(np.sqrt(variance))
        error = max(
            clustered_error,
            independent_error,
        )
        half = _Z * error
        ends = np.clip([probability - half, probability + half], 0.0, 1.0)
        low, high = np.quantile(figures, ends)
        return Estimate(value=value, low=float(low), high=float(high))

    def reasons(self) -> dict[str, int]:
        """Return the number of requests that missed their SLO for each reason."""
        return {name: int((self.reason == place).sum()) for place, name in enumerate(REASONS)}


def share_error(chosen: Bools, arrived_s: Floats, minutes: int) -> float:
    """Return the standard error of a share of requests whose minutes are correlated."""
    if minutes < 2:
        # One minute shows no variance between minutes: independent requests, and at least one of them either way.
        share = chosen.mean()
        variance = max(share * (1.0 - share), 1.0 / chosen.size)
        return float(np.sqrt(variance / chosen.size))
    hits = _per_minute(arrived_s[chosen], minutes)
    return _ratio_error(hits, _per_minute(arrived_s, minutes))


def _per_minute(times_s: Floats, minutes: int) -> Floats:
    """Return how many of some times lie in each minute."""
    # A request on the very end of the last minute counts to it.
    minute_numbers = times_s // BURST_S
    minute = np.clip(minute_numbers, 0, minutes - 1).astype(np.intp)
    return np.bincount(minute, minlength=minutes).astype(np.float64)


def _ratio_error(hits: Floats, counts: Floats) -> float:
    """Return the standard error of a ratio of sums over minutes; of one minute, that of independent requests."""
    total = counts.sum()
    share = hits.sum() / counts.sum()
    residual = hits - share * counts
    if hits.size < 2:
        return float(np.sqrt(2.0 / total))
    unbiased = hits.size / (hits.size - 1.0)
    return float(np.sqrt(unbiased * (residual @ residual)) / total)


def outcomes(zoom: Zoom) -> tuple[Outcome, ...]:
    """Return the outcome of each workload's requests."""
    workloads = range(len(zoom.slos))
    return tuple(_outcome(zoom, w) for w in workloads)


def _outcome(zoom: Zoom, w: int) -> Outcome:
    """Return the outcome of one workload's requests."""
    slo = zoom.slos[w]
    requests = [request for request in zoom.requests if request.workload == w]

    def column(field: str) -> Floats:
        values = [getattr(request, field) for request in requests]
        return np.array(values, dtype=np.float64)

    arrived_s = column("arrived_s")
    retries = column("retries")
    preemptions = column("preemptions")
    refused = np.isfinite(column("refused_s"))
    finished_s = column("finished_s")
    # A request may be refused after its first token, where its replica went down: that token is lost.
    first_token_s = np.where(refused, np.nan, column("first_token_s"))
    ttft_s = first_token_s - arrived_s
    output_tokens = column("output_tokens")
    tokens_after_first = np.maximum(output_tokens - 1.0, 1.0)
    tpot_s = (finished_s - first_token_s) / tokens_after_first
    in_flight = ~refused & np.isnan(finished_s)
    # A reply that goes on is late once its time is over, and until then it is not.
    end_s = (zoom.span.minutes + zoom.span.drain) * BURST_S
    tpot_so_far_s = (end_s - first_token_s) / tokens_after_first
    judged_tpot_s = np.where(in_flight, tpot_so_far_s, tpot_s)
    attainment = (ttft_s <= slo.ttft_s) & (judged_tpot_s <= slo.tpot_s)
    if slo.is_deferrable:
        attainment = np.isfinite(finished_s)  # it has a deadline of hours, not of seconds
    minute = np.clip(arrived_s // BURST_S, 0, zoom.span.minutes - 1)
    minute = minute.astype(np.intp)
    measured_factors = zoom.arrivals[w].minute_factors[zoom.span.warm_up :]
    conditions = {
        "breakdown": retries > 0,
        "long prompt": _alone_ttft_s(zoom, w, requests) > slo.ttft_s,
        "full cache": preemptions > 0,
        "burst": measured_factors[minute] >= _BURST_FACTOR,
        "no capacity": refused,
        # Not "ttft_s > slo": a request without a first token (NaN) waits in the queue.
        "queue": ~(ttft_s <= slo.ttft_s),
        "crowded batch": np.ones(arrived_s.size, dtype=bool),
    }
    reason = np.full(arrived_s.size, -1, dtype=np.intp)
    if not slo.is_deferrable:
        for name, holds in conditions.items():
            # The first reason that holds stays: those after it do not overwrite it.
            is_open = ~attainment & (reason < 0)
            reason = np.where(is_open & holds, REASONS.index(name), reason)
    due_fraction = np.nan
    if slo.is_deferrable:
        due_fraction = float(np.nan_to_num(zoom.hour.served_fraction[w]))
    # Replies that take longer than the warm-up leave the first minutes without an end.
    reply_s = zoom.hour.lengths[w].output_mean_tokens * slo.tpot_s
    warm_up_s = zoom.span.warm_up * BURST_S
    lag_s = max(reply_s - warm_up_s, 0.0)
    return Outcome(
        name=slo.name,
        arrived_s=arrived_s,
        prompt_tokens=column("prompt_tokens"),
        cached_tokens=column("cached_tokens"),
        output_tokens=output_tokens,
        retries=retries,
        preemptions=preemptions,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        total_s=finished_s - arrived_s,
        refused=refused,
        in_flight=in_flight,
        attainment=attainment,
        reason=reason,
        minutes=zoom.span.minutes,
        finished_s=zoom.finished_s[w],
        due_fraction=due_fraction,
        lag_fraction=lag_s / (zoom.span.minutes * BURST_S),
    )


def _alone_ttft_s(zoom: Zoom, w: int, requests: Sequence[Request]) -> Floats:
    """Return each request's time to first token on the fastest replica with nothing else to do; inf without one."""
    ttft_s = np.full(len(requests), np.inf)
    for group in zoom.hour.replica_groups:
        if w in group.served:
            times = group.times
            for place, request in enumerate(requests):
                prefill_s = times.prefill_s(request.prompt_tokens, request.cached_tokens)
                alone_s = prefill_s + times.fixed_s + times.overhead_s
                ttft_s[place] = min(ttft_s[place], alone_s)
    return ttft_s
