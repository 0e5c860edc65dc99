"""Which share of requests is in time at a load: first token and time per token as distributions, not means.

A replica at B running sequences takes steps of D(B) seconds, stretched by the prompts computed beside them. With λ
requests a second and prefills S of their own, uncached lengths, φ = λ E[S] of its time goes to prompts, and

    B = λ · E[output] · TPOT,       TPOT = D(B) + B·E[S] / E[output] = D(B) / (1 − φ).

**First token.** An arrival waits for the step under way (a uniform share of D), for the prompts ahead of it on its
replica, V, and then for its own prefill and as many steps as carry its chunks. V is the workload of an M/G/1 queue,
which by Pollaczek and Khinchine is a geometric sum of residual prefills; a router that sees n replicas leaves a
request late only where all n would: P(V > slack)ⁿ. Waits that matter little to the objective it does not look at.

**Time per token.** A reply of o tokens is late where o·D and the prefills beside it take longer than t = o·τ. Those
that wait behind it when it begins, Y, came while it waited and was computed itself; their number is geometric, as what
an M/M/1 queue leaves behind is. Those that come within t are compound Poisson, X(t), and one that comes after the
reply's end does no harm. With s = t − o·D

    P(late) = P(Y > s) + (P(Y + X(t) > s) − P(Y > s)) · min(1, TPOT / τ),

exact to the first order both for a single long prompt and at a mean on the objective. D itself moves with the
sequences that happen to be there: as those of n replicas are pooled, their variance is B / n, of which a reply's own
time averages out a quarter.

Both sums are inverted by the fast Fourier transform on grids of their own objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from planner.physics.memory import PREFILL_CHUNK_TOKENS

if TYPE_CHECKING:
    from planner.physics.arrays import Floats
    from planner.physics.replica import Replicas

_BATCHES = 14
"""Batches at which a curve is worked out, closer together where there are few."""
_BETWEEN = 3
"""Points of a curve for each: between, the late share is interpolated in its logarithm, being all but exponential."""
_REFUSED_SHARES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45)
"""Shares of requests that an overloaded router may turn away, of which it takes the one that leaves most in time."""
_REFUSED_POWER = 2.0
"""A prompt is refused in proportion to this power of its length: fitted to the zoom's routers at 110 to 200% load,
where refused prompts are two to three times as long as the mean."""
_CELLS = 256
"""Grid cells up to an objective; grids run four times as far, so that next to nothing wraps around."""
_GRID = 4 * _CELLS
_MOST_PROMPT_SHARE = 0.98  # of a replica's time: beyond it a queue of prompts has no steady state within the hour
_STRICTER = np.concatenate([[1.0], np.geomspace(0.97, 0.25, 16)])
"""First-token objectives over the one asked for, at which capacity is worked out where prompts are too long for it."""
_IDLE_BATCH = 1e-3  # sequences of a replica with next to no load: what is late then is late at any
_LEAST_LATE = 1e-9  # of requests: so that it has a logarithm
_MOST_TOO_LONG = 0.5  # of requests: beyond it a replica does not serve the workload at all
_NO_BETTER = 0.6
"""Share of prompts, over the square of the time in prefill, that a router of many replicas sends behind another all the
same: fitted to the zoom's routers at 70 to 125% of capacity, where without it half of what is late was missed."""
_LOOKED_AT = 0.5  # of the first-token objective: up to it routers count requests, beyond it they look at waits
_AVERAGED = 0.74  # variance of a mean over one's own time of a quantity that forgets in that time, 2/e
_NORMAL = ((-2.857, -1.3556, 0.0, 1.3556, 2.857), (0.01126, 0.22208, 0.53333, 0.22208, 0.01126))  # Gauss–Hermite


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Requests by length: prompts and outputs independent, each a set of lengths with weights that add up to 1."""

    prompt_tokens: Floats
    prompt_weights: Floats
    output_tokens: Floats
    output_weights: Floats
    cached_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is promised, and how requests reach replicas."""

    ttft_s: float
    tpot_s: float
    percentile: float
    pooled_replicas: float
    """Replicas that one router chooses between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The share of requests not in time by load of one replica; arrays of shape (loads,), rising."""

    requests_per_s: Floats
    late_fraction: Floats
    batch: Floats
    tpot_s: Floats
    """Mean time per token."""
    capacity_requests_per_s: float
    """The largest rate at which the stated share is in time; 0 where there is none. What keeps a stricter first-token
    objective keeps this one, so it is no less than at any of those."""
    too_long_fraction: float
    """Requests whose own prompt takes longer than the objective on an idle replica: late at any load."""
    alone_s: float
    """The first-token objective at which half as many prompts, and no more than its percentile allows, are too long."""

    def most_in_time_requests_per_s(self) -> float:
        """Return the rate at which rate · share in time peaks: beyond it more requests are fewer in time."""
        rates = np.linspace(0.0, self.requests_per_s[-1], 1000)
        return float(rates[np.argmax(rates * (1.0 - np.interp(rates, self.requests_per_s, self.late_fraction)))])

    def at(self, requests_per_s: float) -> tuple[float, float]:
        """Return batch and mean time per token at a rate."""
        batch = float(np.interp(requests_per_s, self.requests_per_s, self.batch))
        return batch, float(np.interp(requests_per_s, self.requests_per_s, self.tpot_s))


class _Replica:
    """One replica's step and prefill times for one workload's lengths."""

    def __init__(self, replicas: Replicas, index: int, speed: float, lengths: Lengths) -> None:
        def of(name: str) -> float:
            return float(getattr(replicas, name)[index])

        self.overhead_s = of("ttft_fixed_s")
        self.fixed_s, self.routed_s = of("fixed_s") / speed, of("routed_s") / speed
        self.log_missed = of("log_expert_missed")
        output, weights = lengths.output_tokens, lengths.output_weights
        self.output = float(weights @ output)
        # Distributions have tails that no model attends to: what is longer is cut, as requests are.
        prompt = np.minimum(lengths.prompt_tokens, max(of("longest_tokens") - self.output, 1.0))
        window, windowed, attends = of("window_tokens"), of("windowed_fraction"), of("attended_tokens")

        def kept(tokens: Floats) -> Floats:
            return np.asarray(tokens - windowed * np.maximum(tokens - window, 0.0))

        cached = np.floor(prompt * lengths.cached_fraction)
        attended = np.minimum(kept(0.5 * prompt), attends)
        self.prefill_s = of("prefill_s_per_token") * (prompt - cached)
        self.prefill_s += of("attention_s_per_token2") * attended / prompt * (prompt**2 - cached**2)
        self.prefill_s /= speed
        self.chunks = np.ceil((prompt - cached) / PREFILL_CHUNK_TOKENS)
        self.mean_prefill_s = float(lengths.prompt_weights @ self.prefill_s)
        halfway = float(weights @ output**2) / self.output / 2.0
        mean_prompt = float(lengths.prompt_weights @ prompt)
        context = min(float(lengths.prompt_weights @ kept(prompt + halfway)), attends)
        self.sequence_s = (of("sequence_s") + of("kv_s_per_token") * context) / speed
        held = float(kept(np.array(mean_prompt + 2.0 * halfway * of("reserved_output_fraction"))))
        self.room = of("kv_capacity_tokens") / held
        self.most_batch = min(self.room, of("max_sequences"))

    def decode_s(self, batch: Floats) -> Floats:
        """Return a step without prompts."""
        touched = -np.expm1(batch * self.log_missed)
        return np.asarray(self.fixed_s + self.routed_s * touched + self.sequence_s * batch)

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the mean time per token: a step and its share of the prompts computed beside it."""
        return self.decode_s(batch) + batch * self.mean_prefill_s / self.output


def late_curve(replicas: Replicas, index: int, speed: float, lengths: Lengths, asked: Asked) -> Curve:
    """Return which share of requests is not in time, from hardly any load to the most that a replica takes.

    ``speed`` is that of the replica over the formula's. A replica that does not hold a sequence has all of them late.
    """
    replica = _Replica(replicas, index, speed, lengths)
    alone_s = replica.prefill_s + replica.chunks * replica.fixed_s + replica.overhead_s
    too_long = float(lengths.prompt_weights @ (alone_s > asked.ttft_s))
    most = _most_batch(replica, asked.tpot_s)
    points = np.linspace(0.0, 1.0, _BETWEEN * _BATCHES + 1)[_BETWEEN:]
    batch = np.append(_IDLE_BATCH, most * points**1.6)
    few = np.append(_IDLE_BATCH, most * points[::_BETWEEN] ** 1.6)
    tpot_s = replica.tpot_s(batch)
    rates = batch / (replica.output * tpot_s)
    tight = too_long > 0.25 * (1.0 - asked.percentile)
    first, tokens = _late_parts(replica, lengths, asked, few, asked.ttft_s * (_STRICTER if tight else _STRICTER[:1]))

    def at_every_batch(late_first: Floats) -> Floats:
        late = np.clip(1.0 - (1.0 - late_first) * (1.0 - tokens), _LEAST_LATE, 1.0)
        late[few * replica.mean_prefill_s > _MOST_PROMPT_SHARE * replica.output * replica.tpot_s(few)] = 1.0
        return np.asarray(np.exp(np.interp(batch, few, np.log(np.maximum.accumulate(late)))))

    late = np.maximum(at_every_batch(first[0]), too_long)
    objectives = [late, *(at_every_batch(row) for row in first[1:])]
    return Curve(
        requests_per_s=rates,
        late_fraction=late,
        batch=batch,
        tpot_s=tpot_s,
        capacity_requests_per_s=max(_most_requests_per_s(rates, row, asked.percentile) for row in objectives),
        too_long_fraction=too_long,
        alone_s=_quantile(alone_s, lengths.prompt_weights, max(asked.percentile, 1.0 - 0.5 * too_long)),
    )


def _quantile(numbers: Floats, weights: Floats, share: float) -> float:
    """Return the least of the numbers that a share of the weight does not exceed."""
    order = np.argsort(numbers)
    place = int(np.searchsorted(np.cumsum(weights[order]), share - 1e-9))
    return float(numbers[order][min(place, numbers.size - 1)])


def _most_requests_per_s(rates: Floats, late: Floats, percentile: float) -> float:
    """Return the largest rate at which the stated share is in time; 0 where there is none.

    Some requests are late on a replica that does next to nothing else, and so at any rate. Where they take up more than
    half of what may be late, half of it is left to the others, so that these can still be served:

        in time ≥ min(p, (1 − late when idle) · (1 − (1 − p)/2));

    where most are late, the objective is none that this replica can keep.
    """
    idle = float(late[0])
    if idle > _MOST_TOO_LONG:
        return 0.0
    allowed = max(1.0 - percentile, 1.0 - (1.0 - idle) * (1.0 - 0.5 * (1.0 - percentile)))
    return float(np.interp(allowed, late, rates))


def refusing(
    replicas: Replicas, index: int, speed: float, lengths: Lengths, asked: Asked, requests_per_s: Floats
) -> tuple[Floats, Floats]:
    """Return the shares refused, and late of those admitted, at rates beyond capacity, both of shape (rates,).

    A router that refuses what would be late turns away long prompts first: in proportion to the square of their
    length, at most all of them. Of the shares it may turn away it has the one, q, that leaves most in time:

        min over q of  q + (1 − q) · late of the rest at λ·(1 − q).
    """
    refused, late = np.zeros_like(requests_per_s), np.ones_like(requests_per_s)
    for share in _REFUSED_SHARES:
        tried = np.flatnonzero(refused + (1.0 - refused) * late > share)  # a larger share cannot do better elsewhere
        if not tried.size:
            break
        admitted = _thinned(lengths, share)
        replica = _Replica(replicas, index, speed, admitted)
        rate = requests_per_s[tried] * (1.0 - share)
        batches = max(_most_batch(replica, asked.tpot_s), 1e-9) * np.linspace(0.0, 1.0, 200)[1:]
        rates = batches / (replica.output * replica.tpot_s(batches))
        beyond = _late(replica, admitted, asked, np.interp(rate, rates, batches))
        beyond[rate > rates[-1]] = 1.0
        better = share + (1.0 - share) * beyond < refused[tried] + (1.0 - refused[tried]) * late[tried]
        refused[tried[better]], late[tried[better]] = share, beyond[better]
    return refused, late


def _thinned(lengths: Lengths, refused: float) -> Lengths:
    """Return the lengths that are left when a share of requests is refused, each prompt with min(1, a·length²)."""
    if refused == 0.0:
        return lengths
    likely = (lengths.prompt_tokens / lengths.prompt_tokens.max()) ** _REFUSED_POWER
    low, high = 0.0, 1.0 / float(likely.min())
    for _ in range(60):
        middle = 0.5 * (low + high)
        few = float(lengths.prompt_weights @ np.minimum(middle * likely, 1.0)) < refused
        low, high = (middle, high) if few else (low, middle)
    left = lengths.prompt_weights * (1.0 - np.minimum(high * likely, 1.0))
    return replace(lengths, prompt_weights=left / left.sum())


def _late(replica: _Replica, lengths: Lengths, asked: Asked, batch: Floats) -> Floats:
    """Return the share of requests not in time at each batch, shape (batches,)."""
    first, tokens = _late_parts(replica, lengths, asked, batch, np.array([asked.ttft_s]))
    prompts = batch * replica.mean_prefill_s / (replica.output * replica.tpot_s(batch))
    return np.where(prompts > _MOST_PROMPT_SHARE, 1.0, 1.0 - (1.0 - first[0]) * (1.0 - tokens))


def _late_parts(
    replica: _Replica, lengths: Lengths, asked: Asked, batch: Floats, ttft_s: Floats
) -> tuple[Floats, Floats]:
    """Return the shares late by the first token, shape (objectives, batches), and by their tokens, shape (batches,)."""
    if replica.room < 1.0:
        return np.ones((ttft_s.size, batch.size)), np.ones_like(batch)
    rate = batch / (replica.output * replica.tpot_s(batch))
    first = _late_first(replica, lengths, asked, rate, replica.decode_s(batch), ttft_s)
    return first, _late_tokens(replica, lengths, asked, batch, rate)


def _most_batch(replica: _Replica, tpot_s: float) -> float:
    """Return the largest batch worth looking at: memory's, or that with a mean half beyond the objective."""
    slope_s = replica.sequence_s + replica.mean_prefill_s / replica.output
    slow = (1.5 * tpot_s - replica.fixed_s) / slope_s
    return float(np.clip(slow, 1.0, max(replica.most_batch, 1.0)))


def _late_first(
    replica: _Replica, lengths: Lengths, asked: Asked, rate: Floats, step_s: Floats, ttft_s: Floats
) -> Floats:
    """Return the share of requests whose first token is late by each objective at each rate, shape (objectives, rates).

    Objectives may be the one asked for or stricter: they share its grid of waits. Waits that leave the first token
    within half the objective asked for are unseen by routers, which then send prompts behind others.
    """
    cell_s = asked.ttft_s / _CELLS
    over = _waits_beyond(replica, lengths, cell_s, rate, step_s)
    taken_s = replica.overhead_s + replica.prefill_s + replica.chunks * step_s[:, None]
    rows = np.arange(rate.size)[:, None]

    def beyond(objective_s: float) -> Floats:
        slack_s = objective_s - taken_s
        place = np.clip(slack_s / cell_s, 0.0, float(_CELLS))
        low = np.minimum(place.astype(np.intp), _CELLS - 1)
        waits = over[rows, low] + (over[rows, low + 1] - over[rows, low]) * (place - low)
        return np.where(slack_s < 0.0, 1.0, np.clip(waits, 0.0, 1.0))

    late = np.empty((ttft_s.size, rate.size))
    looked_at_s = _LOOKED_AT * asked.ttft_s
    for number, objective_s in enumerate(ttft_s.tolist()):
        waits = beyond(objective_s)
        missed = waits**asked.pooled_replicas
        if objective_s < looked_at_s:
            unseen = np.maximum(waits - np.maximum(beyond(looked_at_s), missed), 0.0)
            missed = missed + _sent_behind(asked, rate * replica.mean_prefill_s)[:, None] * unseen
        late[number] = missed @ lengths.prompt_weights
    return late


def _waits_beyond(replica: _Replica, lengths: Lengths, cell_s: float, rate: Floats, step_s: Floats) -> Floats:
    """Return the share of arrivals that wait longer than each cell's edge, shape (rates, cells of the grid).

    Prompts computed together share a step: each brings 1 / (1 + λ·(E[S] + D)) of one. The residual of a prefill has
    density P(S > x) / E[S], which stands on the grid as the part of each cell that prefills reach.
    """
    extra_s = step_s / (1.0 + rate * (replica.mean_prefill_s + step_s))
    busy = np.minimum(rate * (replica.mean_prefill_s + extra_s), _MOST_PROMPT_SHARE)
    residual, under_way = np.zeros((rate.size, _GRID)), np.zeros((rate.size, _GRID))
    for row in range(rate.size):
        service = np.minimum((replica.prefill_s + extra_s[row]) / cell_s, _GRID / 2.0)
        whole = service.astype(np.intp)
        ends = np.bincount(whole, lengths.prompt_weights, _GRID)
        residual[row] = 1.0 - np.cumsum(ends) + np.bincount(whole, lengths.prompt_weights * (service - whole), _GRID)
        under_way[row, : max(round(step_s[row] / cell_s), 1)] = 1.0
    np.maximum(residual, 0.0, out=residual)
    residual = 0.5 * (residual + np.roll(residual, 1, axis=1))  # a cell's mass lies in its middle, not at its edge
    waited = np.fft.rfft(residual / residual.sum(axis=1, keepdims=True))
    step = np.fft.rfft(under_way / under_way.sum(axis=1, keepdims=True))
    share = busy[:, None]
    waits = np.fft.irfft((1.0 - share) / (1.0 - share * waited) * step, _GRID)
    return np.asarray(np.maximum(1.0 - np.cumsum(waits, axis=1), 0.0))


def _late_tokens(replica: _Replica, lengths: Lengths, asked: Asked, batch: Floats, rate: Floats) -> Floats:
    """Return the share of requests whose tokens come too slowly at each batch, shape (batches,)."""
    gaps = np.maximum(lengths.output_tokens - 1.0, 0.0)
    several = gaps > 0.0
    if not several.any():
        return np.zeros_like(batch)  # replies of one token have no time between tokens
    window_s = gaps[several] * asked.tpot_s
    alone = 1.0 / asked.pooled_replicas
    mean_step_s = replica.decode_s(np.maximum(batch, 1.0))
    mean_s = mean_step_s / np.maximum(1.0 - rate * replica.mean_prefill_s, 1e-6)
    pace = np.minimum(mean_s / asked.tpot_s, 1.0)
    others = np.maximum(1.0 - 1.0 / batch, 0.0)
    counts = (rate * (alone + (1.0 - alone) * pace * others))[:, None] * window_s
    transform = np.stack([_jumps(replica, lengths, t / _CELLS) for t in window_s.tolist()])
    waiting = 1.0 / (1.0 + _behind(replica, lengths, asked, rate, mean_step_s)[:, None, None] * (1.0 - transform))
    ended = (1.0 - alone * (1.0 - pace))[:, None, None]  # the share of those to come that come before the reply's end
    beside = waiting * (1.0 - ended + ended * np.exp(counts[..., None] * (transform - 1.0)))
    within = np.cumsum(np.fft.irfft(beside, _GRID, axis=-1), axis=-1)
    nodes, weights = np.array(_NORMAL[0]), np.array(_NORMAL[1])
    prompts = np.minimum(rate * replica.mean_prefill_s, _MOST_PROMPT_SHARE)
    stretch = np.maximum((1.0 - replica.sequence_s * batch / mean_step_s) * (1.0 - prompts), 0.1)
    spread = np.sqrt(_AVERAGED * batch * alone / stretch)
    seen = np.maximum(batch[:, None] + alone + spread[:, None] * nodes, 1.0)
    step_s = replica.decode_s(seen)
    place = (1.0 - step_s / asked.tpot_s) * _CELLS
    low = np.clip(place.astype(np.intp), 0, _CELLS - 1)
    rows = np.arange(batch.size)[:, None, None]
    column = np.arange(window_s.size)[None, :, None]
    part = (place - low)[:, None, :]
    low = low[:, None, :]
    inside = within[rows, column, low] * (1.0 - part) + within[rows, column, low + 1] * part
    late = np.where((place < 0.0)[:, None, :], 1.0, 1.0 - np.clip(inside, 0.0, 1.0))
    return np.asarray(np.einsum("bok,o,k->b", late, lengths.output_weights[several], weights))


def _behind(replica: _Replica, lengths: Lengths, asked: Asked, rate: Floats, step_s: Floats) -> Floats:
    """Return the mean number of prompts behind a reply that begins, shape (rates,): λ · its own wait and prefill.

    Wait and prefill are Pollaczek and Khinchine's mean. A router that sees n replicas sends few behind others.
    """
    busy = np.minimum(rate * replica.mean_prefill_s, _MOST_PROMPT_SHARE)
    square_s2 = float(lengths.prompt_weights @ replica.prefill_s**2)
    stay_s = replica.mean_prefill_s + 0.5 * rate * square_s2 / (1.0 - busy)
    return np.asarray(rate * np.minimum(step_s + stay_s, asked.ttft_s) * _sent_behind(asked, busy))


def _sent_behind(asked: Asked, busy: Floats) -> Floats:
    """Return the share of prompts that a router sends behind others on a replica, shape (rates,)."""
    alone2 = asked.pooled_replicas**-2.0
    return np.asarray(alone2 + (1.0 - alone2) * _NO_BETTER * busy**2)


def _jumps(replica: _Replica, lengths: Lengths, cell_s: float) -> Floats:
    """Return the transform of one prefill on a grid, each split between the two cells nearest to it."""
    place = np.minimum(replica.prefill_s / cell_s, float(_CELLS))
    low = place.astype(np.intp)
    mass = np.bincount(low, lengths.prompt_weights * (1.0 - (place - low)), _GRID)
    mass += np.bincount(low + 1, lengths.prompt_weights * (place - low), _GRID)
    return np.asarray(np.fft.rfft(mass))
