"""Which share of requests is in time at a load: first token and time per token as distributions, not means.

A replica at B running sequences takes steps of D(B) seconds, stretched by the prompts computed beside them. With λ
requests a second and prefills S of their own, uncached lengths, φ = λ E[S] of its time goes to prompts, and

    B = λ · E[output] · TPOT,       TPOT = D(B) + B·E[S] / E[output] = D(B) / (1 − φ).

``planner.physics.slo_miss`` has the share that is late at a batch; here are the curves over all batches, what a
replica sustains with the stated share in time, and what a router that refuses does beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.physics.slo_miss import (
    MOST_PROMPT_SHARE,
    late_first,
    late_tokens,
    late_tokens_within,
    least_late_tokens,
    room_for_prefills,
)

if TYPE_CHECKING:
    from planner.arrays import Floats
    from planner.physics.replica_times import Asked, Lengths, ReplicaTimes

_BATCHES = 14
"""Batches at which a curve is worked out, closer together where there are few."""
_BETWEEN = 3
"""Points of a curve for each."""
_POINTS = np.linspace(0.0, 1.0, _BETWEEN * _BATCHES + 1)[_BETWEEN:] ** 1.6
"""Batches of a curve over the largest, after that of a replica which is all but idle."""
_WORKED_OUT = np.append(0, np.arange(1, _POINTS.size + 1, _BETWEEN))
"""Places in a curve, the idle batch first, at which it is worked out."""
_REFUSED_SHARES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45)
"""Shares of requests that an overloaded router may turn away, of which it takes the one that leaves most in time."""
_LOADS = np.linspace(0.0, 1.0, 200)[1:]  # batches over the largest between which a rate's batch is interpolated
_REFUSED_POWER = 2.0
"""A prompt is refused in proportion to this power of its length: fitted to the zoom's routers at 110 to 200% load,
where refused prompts are two to three times as long as the mean."""
_STRICTER = np.concatenate([[1.0], np.geomspace(0.97, 0.25, 16)])
"""First-token objectives over the one asked for, at which capacity is worked out where prompts are too long for it."""
_IDLE_BATCH = 1e-3  # sequences of a replica with next to no load: what is late then is late at any
_LEAST_LATE = 1e-9  # of requests: so that it has a logarithm
_MOST_TOO_LONG = 0.5  # of requests: beyond it a replica does not serve the workload at all


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


def late_curve(times: ReplicaTimes, asked: Asked) -> Curve:
    """Return which share of requests is not in time, from hardly any load to the most that a replica takes.

    A replica that does not hold a sequence has all of them late.
    """
    batch, too_long = _batches(times, asked), too_long_fraction(times, asked)
    rates = times.requests_per_s(batch)
    objectives = _late_by_objective(times, asked, batch[_WORKED_OUT], batch)
    return Curve(
        requests_per_s=rates,
        late_fraction=objectives[0],
        batch=batch,
        tpot_s=times.tpot_s(batch),
        capacity_requests_per_s=max(_most_requests_per_s(rates, row, asked.percentile) for row in objectives),
        too_long_fraction=too_long,
        alone_s=_quantile(times.alone_s, times.prompt_weights, max(asked.percentile, 1.0 - 0.5 * too_long)),
    )


def sustains_more(times: ReplicaTimes, asked: Asked, requests_per_s: float) -> bool:
    """Return whether the capacity of a replica's curve is more than a rate, from the points beside that rate alone."""
    batch = _batches(times, asked)
    rates = times.requests_per_s(batch)
    if requests_per_s >= rates[-1]:
        return False
    place = int(np.searchsorted(rates[_WORKED_OUT], requests_per_s, side="right"))
    low, high = int(_WORKED_OUT[max(place - 1, 0)]), int(_WORKED_OUT[max(place, 1)])
    idle = [0] if low else []  # what is late when idle says what may be
    between = [*idle, *range(low, high + 1)]
    late = _late_by_objective(times, asked, batch[[*idle, low, high]], batch[between])
    return any(
        np.interp(requests_per_s, rates[between], row) < _allowed(float(row[0]), asked.percentile) for row in late
    )


def _batches(times: ReplicaTimes, asked: Asked) -> Floats:
    """Return the batches of a curve: next to none, and up to the largest worth looking at."""
    return np.append(_IDLE_BATCH, _most_batch(times, asked.tpot_s) * _POINTS)


def too_long_fraction(times: ReplicaTimes, asked: Asked) -> float:
    """Return the share of requests whose own prompt takes longer than the objective on an idle replica."""
    return float(times.prompt_weights @ (times.alone_s > asked.ttft_s))


def _late_by_objective(times: ReplicaTimes, asked: Asked, worked_out: Floats, batch: Floats) -> list[Floats]:
    """Return the late share at each batch by the objective asked for, and by stricter ones where prompts are too long.

    It is worked out at some batches, and interpolated between them in its logarithm, being all but exponential.
    """
    too_long = too_long_fraction(times, asked)
    tight = too_long > 0.25 * (1.0 - asked.percentile)
    ttft_s = asked.ttft_s * (_STRICTER if tight else _STRICTER[:1])
    first, tokens = _late_parts(times, asked, worked_out, ttft_s)
    late = np.clip(1.0 - (1.0 - first) * (1.0 - tokens), _LEAST_LATE, 1.0)
    late[:, times.requests_per_s(worked_out) * times.mean_prefill_s > MOST_PROMPT_SHARE] = 1.0
    logarithms = np.log(np.maximum.accumulate(late, axis=1))
    rows = [np.asarray(np.exp(np.interp(batch, worked_out, row))) for row in logarithms]
    return [np.maximum(rows[0], too_long), *rows[1:]]


def _quantile(numbers: Floats, weights: Floats, share: float) -> float:
    """Return the least of the numbers that a share of the weight does not exceed."""
    order = np.argsort(numbers)
    place = int(np.searchsorted(np.cumsum(weights[order]), share - 1e-9))
    return float(numbers[order][min(place, numbers.size - 1)])


def _most_requests_per_s(rates: Floats, late: Floats, percentile: float) -> float:
    """Return the largest rate at which the stated share is in time; 0 where there is none."""
    allowed = _allowed(float(late[0]), percentile)
    return float(np.interp(allowed, late, rates)) if allowed > 0.0 else 0.0


def _allowed(idle: float, percentile: float) -> float:
    """Return the share of requests that may be late where a share is on an idle replica; 0 where it keeps no objective.

    Some requests are late on a replica that does next to nothing else, and so at any rate. Where they take up more than
    half of what may be late, half of it is left to the others, so that these can still be served:

        in time ≥ min(p, (1 − late when idle) · (1 − (1 − p)/2));

    where most are late, the objective is none that this replica can keep.
    """
    if idle > _MOST_TOO_LONG:
        return 0.0
    return max(1.0 - percentile, 1.0 - (1.0 - idle) * (1.0 - 0.5 * (1.0 - percentile)))


def refusing(times: ReplicaTimes, asked: Asked, requests_per_s: Floats) -> tuple[Floats, Floats]:
    """Return the shares refused, and late of those admitted, at rates beyond capacity, both of shape (rates,).

    A router that refuses what would be late turns away long prompts first: in proportion to the square of their
    length, at most all of them. Of the shares it may turn away it has the one, q, that leaves most in time:

        min over q of  q + (1 − q) · late of the rest at λ·(1 − q).
    """
    thinning = Thinning(times.lengths)
    refused, late = np.zeros_like(requests_per_s), np.ones_like(requests_per_s)
    for share in _REFUSED_SHARES:
        missed = refused + (1.0 - refused) * late
        tried = np.flatnonzero(missed > share)  # a larger share cannot do better elsewhere
        if not tried.size:
            break
        rest = times.weighted(thinning.left(share))
        batches = max(_most_batch(rest, asked.tpot_s), 1e-9) * _LOADS
        rates = rest.requests_per_s(batches)
        rate = requests_per_s[tried] * (1.0 - share)
        beyond = np.ones_like(rate)  # all of them, where more come than the replica takes at all
        taken = np.flatnonzero(rate <= rates[-1])
        worth = (missed[tried[taken]] - share) / (1.0 - share)  # late shares from which on this one is no better
        beyond[taken] = _late(rest, asked, np.interp(rate[taken], rates, batches), worth)
        better = share + (1.0 - share) * beyond < missed[tried]
        refused[tried[better]], late[tried[better]] = share, beyond[better]
    return refused, late


class Thinning:
    """Prompts of which a router refuses each with min(1, a·length²).

    With prompts from the shortest, and all from the i-th on refused, Σ_{j<i} w_j·a·l_j² + Σ_{j≥i} w_j is the share.
    Prompt i is refused for certain from a = 1/l_i² on, so i is the first at which the share with that a is no more.
    """

    def __init__(self, lengths: Lengths) -> None:
        """Put prompts in order."""
        self._weights = lengths.prompt_weights
        self._likely = (lengths.prompt_tokens / lengths.prompt_tokens.max()) ** _REFUSED_POWER
        order = np.argsort(self._likely)
        rising, weights = self._likely[order], self._weights[order]
        self._in_part = np.append(0.0, np.cumsum(weights * rising))
        self._certain = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        self._at_most = -(self._in_part[:-1] / rising + self._certain[:-1])  # rises with i

    def left(self, refused: float) -> Floats:
        """Return the weights of prompts when a share of requests is refused."""
        if refused == 0.0:
            return self._weights
        first = int(np.searchsorted(self._at_most, -refused))
        factor = (refused - self._certain[first]) / self._in_part[first]
        left = self._weights * (1.0 - np.minimum(factor * self._likely, 1.0))
        return np.asarray(left / left.sum())


def _late(times: ReplicaTimes, asked: Asked, batch: Floats, worth: Floats) -> Floats:
    """Return the share of requests not in time at each batch, shape (batches,); 1 where it is not below what is worth.

    Most rates beyond capacity are too many for certain at most shares refused, which steps alone tell, or tokens.
    """
    late = np.ones_like(batch)
    if times.room < 1.0:
        return late
    rate = times.requests_per_s(batch)
    room = room_for_prefills(times, asked, batch, rate)
    is_steady = rate * times.mean_prefill_s <= MOST_PROMPT_SHARE
    rows = np.flatnonzero(is_steady & (least_late_tokens(times, room) < worth))
    if rows.size:
        tokens = late_tokens_within(times, asked, batch[rows], rate[rows], room[rows])
        rows, tokens = rows[tokens < worth[rows]], tokens[tokens < worth[rows]]
    if rows.size:
        first = late_first(times, asked, rate[rows], times.decode_s(batch[rows]), np.array([asked.ttft_s]))
        late[rows] = 1.0 - (1.0 - first[0]) * (1.0 - tokens)
    return late


def _late_parts(times: ReplicaTimes, asked: Asked, batch: Floats, ttft_s: Floats) -> tuple[Floats, Floats]:
    """Return the shares late by the first token, shape (objectives, batches), and by their tokens, shape (batches,)."""
    if times.room < 1.0:
        return np.ones((ttft_s.size, batch.size)), np.ones_like(batch)
    rate = times.requests_per_s(batch)
    return late_first(times, asked, rate, times.decode_s(batch), ttft_s), late_tokens(times, asked, batch, rate)


def _most_batch(times: ReplicaTimes, tpot_s: float) -> float:
    """Return the largest batch worth looking at: memory's, or that with a mean half beyond the objective."""
    slope_s = times.sequence_s + times.mean_prefill_s / times.output
    slow = (1.5 * tpot_s - times.fixed_s) / slope_s
    return float(np.clip(slow, 1.0, max(times.most_batch, 1.0)))
