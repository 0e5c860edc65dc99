"""SLO attainment of a replica at a load: TTFT and TPOT as distributions, not means.

A replica at B running sequences takes steps of D(B) seconds, stretched by the prompts computed beside them. With λ
requests a second and prefills S of their own, uncached lengths, φ = λ E[S] of its time goes to prompts, and

    B = λ · E[output] · TPOT,       TPOT = D(B) + B·E[S] / E[output] = D(B) / (1 − φ).

First the share that is late at a batch; then the curves over all batches, what a replica sustains with the stated share
in time, and what a router that refuses does beyond it.

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

Both sums are inverted by the fast Fourier transform on grids of their own objective. What lies beyond a grid comes back
at its beginning, so masses are made to fade, that of each cell j by rʲ, which leaves 1e-6 of what would come back
(Abate and Whitt, Numerical inversion of probability generating functions, 1992).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import fft

from planner.arrays import Complexes, Floats, Ints
from planner.physics.replica import Lengths, ReplicaTimes, ServiceTerms

CELLS = 256
"""Grid cells up to an objective."""
_GRID = 9 * CELLS // 8
_CELL = np.arange(_GRID)
_FADED = 1e-6 ** (_CELL / _GRID)
"""rʲ: the 288th power of r is what is left of what comes back, and its 256th, 5e-6, costs no digit that shows."""
_LONGEST = (
    2.0 * CELLS
)  # cells: a prefill that takes longer makes all behind it late, however long it is
MOST_PROMPT_SHARE = (
    0.98  # of a replica's time: beyond it a queue of prompts has no steady state within the hour
)
_MOST_BUSY = 0.88  # of a replica's time in steps with prompts, those steps' sequences included: held to the zoom
_NEVER = 1e-17  # of requests
_NO_BETTER = 0.6
"""Share of prompts, over the square of the time in prefill, that a router of many replicas sends behind another all the
same: fitted to the zoom's routers at 70 to 125% of capacity, where without it half of what is late was missed."""
_LOOKED_AT = 0.5  # of the first-token objective: up to it routers count requests, beyond it they look at waits
_AVERAGED = (
    0.74  # variance of a mean over one's own time of a quantity that forgets in that time, 2/e
)
_NORMAL_NODES = np.array([-2.857, -1.3556, 0.0, 1.3556, 2.857])  # Gauss–Hermite
_NORMAL_WEIGHTS = np.array([0.01126, 0.22208, 0.53333, 0.22208, 0.01126])


def late_first(
    times: ReplicaTimes, asked: ServiceTerms, rate: Floats, step_s: Floats, ttft_s: Floats
) -> Floats:
    """Return the share of requests that miss each TTFT objective at each rate, shape (objectives, rates).

    Objectives may be the one asked for or stricter: they share its grid of waits. Waits that leave the first token
    within half the objective asked for are unseen by routers, which then send prompts behind others.
    """
    looked_at_s = _LOOKED_AT * asked.ttft_s
    taken_s = times.overhead_s + times.prefill_s + times.chunks * step_s[:, None]
    cell_s = asked.ttft_s / CELLS
    rows = (CELLS + 1) * np.arange(rate.size)[:, None]
    over = waits_beyond(times, cell_s, rate, step_s)

    def waiting(slack_s: Floats) -> Floats:
        """Return the share of arrivals that wait longer than slacks of shape (rates, prompts); 1 for negative slack."""
        place = np.clip(slack_s / cell_s, 0.0, float(CELLS))
        low = np.minimum(place.astype(np.intp), CELLS - 1)
        place -= low
        low += rows
        under = over.take(low)
        above = over.take(low + 1)
        return np.where(slack_s < 0.0, 1.0, np.clip(under + (above - under) * place, 0.0, 1.0))

    late = np.empty((ttft_s.size, rate.size))
    if ttft_s.min() < looked_at_s:
        unseen = waiting(looked_at_s - taken_s)
        behind = _sent_behind(asked, rate * times.mean_prefill_s)[:, None]
    for number, objective_s in enumerate(ttft_s.tolist()):
        beyond = waiting(objective_s - taken_s)
        likely = beyond > _NEVER**asked.alone  # a power takes as long as all else
        missed = np.power(beyond, asked.pooled_replicas, out=np.zeros_like(beyond), where=likely)
        if objective_s < looked_at_s:
            missed += behind * np.maximum(beyond - np.maximum(unseen, missed), 0.0)
        late[number] = missed @ times.prompt_weights
    return late


def waits_beyond(times: ReplicaTimes, cell_s: float, rate: Floats, step_s: Floats) -> Floats:
    """Return the share of arrivals that wait longer than each grid cell's edge, shape (rates, cells + 1).

    The residual of a prefill has density P(S > x) / E[S], which stands on the grid as the part of each cell that
    prefills reach.
    """
    # Prompts computed together share a step: each brings 1 / (1 + λ·(E[S] + D)) of one, or as many as its chunks fill.
    together = 1.0 / (1.0 + rate * (times.mean_prefill_s + step_s))
    service_s = times.prefill_s + np.maximum(times.steps, together[:, None]) * step_s[:, None]
    share = np.minimum(rate * (service_s @ times.prompt_weights), MOST_PROMPT_SHARE)[:, None]
    service = np.minimum(service_s / cell_s, _LONGEST)
    cells = service.astype(np.intp)
    ends = _histograms(cells, np.broadcast_to(times.prompt_weights, service.shape))
    reached = np.maximum(1.0 - np.cumsum(ends, axis=1), 0.0)
    reached += _histograms(cells, times.prompt_weights * (service - cells))
    reached[:, 1:] = 0.5 * (
        reached[:, 1:] + reached[:, :-1]
    )  # a cell's mass lies in its middle, not at its edge
    reached[:, 0] *= 0.5
    residual = reached / (service @ times.prompt_weights)[:, None]
    steps = np.maximum(np.rint(step_s / cell_s), 1.0)[:, None]
    under_way = (steps > _CELL) / steps
    queue = (1.0 - share) / (1.0 - share * _transformed(residual))
    return np.maximum(1.0 - _cumulated(queue * _transformed(under_way)), 0.0)


def _histograms(cells: Ints, weights: Floats) -> Floats:
    """Return the weight in each cell of a grid by row, shape (rows, grid), without weight beyond the grid."""
    count = cells.shape[0]
    flat = np.minimum(cells, _GRID) + (_GRID + 1) * np.arange(count)[:, None]
    mass = np.bincount(flat.ravel(), weights.ravel(), count * (_GRID + 1)).astype(float, copy=False)
    return mass.reshape(count, _GRID + 1)[:, :-1]


def _transformed(mass: Floats) -> Complexes:
    """Return the Fourier transform of masses on a grid, damped against wrap-around, shape (rows, frequencies)."""
    return fft.rfft(mass * _FADED)


def _cumulated(transform: Complexes) -> Floats:
    """Return the cumulative mass up to each cell, as far as the objective, shape (rows, cells + 1)."""
    return np.asarray(
        np.cumsum(fft.irfft(transform, _GRID)[:, : CELLS + 1] / _FADED[: CELLS + 1], axis=1)
    )


def late_tokens(times: ReplicaTimes, asked: ServiceTerms, batch: Floats, rate: Floats) -> Floats:
    """Return the share of requests that miss the TPOT objective at each batch, shape (batches,)."""
    return late_tokens_within(
        times, asked, batch, rate, room_for_prefills(times, asked, batch, rate)
    )


def late_tokens_within(
    times: ReplicaTimes, asked: ServiceTerms, batch: Floats, rate: Floats, room: Floats
) -> Floats:
    """Return the share of requests that miss the TPOT objective, given :func:`room_for_prefills`."""
    several = times.output_tokens > 1.0
    if not several.any():
        return np.zeros_like(batch)  # replies of one token have no time between tokens
    window_s = (times.output_tokens[several] - 1.0) * asked.tpot_s
    mean_step_s = times.decode_s(np.maximum(batch, 1.0))
    mean_s = mean_step_s / np.maximum(1.0 - rate * times.mean_prefill_s, 1e-6)
    pace = np.minimum(mean_s / asked.tpot_s, 1.0)
    others = np.maximum(1.0 - 1.0 / batch, 0.0)
    arriving = rate * (asked.alone + (1.0 - asked.alone) * pace * others)
    behind = prompts_behind(times, asked, rate, mean_step_s)
    ended = 1.0 - asked.alone * (
        1.0 - pace
    )  # the share of those to come that come before the reply's end
    within = _cumulated(_beside(times, window_s, arriving, behind, ended))
    low = np.minimum(np.maximum(room.astype(np.intp), 0), CELLS - 1)
    at = low + (CELLS + 1) * np.arange(batch.size)[:, None]
    under = within.take(at)
    above = within.take(at + 1)
    replies = float(times.output_weights @ several)
    inside = np.minimum(np.maximum(under + (above - under) * (room - low), 0.0), replies)
    # Beside chunks that fit into what steps leave of the objective no reply is late, however many there are.
    inside = replies - (replies - inside) * times.slow_chunks(room * (asked.tpot_s / CELLS))
    return np.asarray(np.where(room < 0.0, replies, replies - inside) @ _NORMAL_WEIGHTS)


def least_late_tokens(times: ReplicaTimes, room: Floats) -> Floats:
    """Return a lower bound on the share that misses TPOT, shape (batches,): decode steps alone exceed it."""
    return np.asarray(
        ((room < 0.0) @ _NORMAL_WEIGHTS) * float(times.output_weights @ (times.output_tokens > 1.0))
    )


def room_for_prefills(
    times: ReplicaTimes, asked: ServiceTerms, batch: Floats, rate: Floats
) -> Floats:
    """Return the part of the TPOT objective that decode steps leave for prefills, in cells, shape (batches, nodes).

    At each node of the normal distribution of the sequences that run beside one's own; the same for every reply, whose
    grid is its own objective's.
    """
    prompts = np.minimum(rate * times.mean_prefill_s, MOST_PROMPT_SHARE)
    step_s = times.decode_s(np.maximum(batch, 1.0))
    stretch = np.maximum((1.0 - times.sequence_s * batch / step_s) * (1.0 - prompts), 0.1)
    spread = np.sqrt(_AVERAGED * batch * asked.alone / stretch)
    seen = np.maximum(batch[:, None] + asked.alone + spread[:, None] * _NORMAL_NODES, 1.0)
    return (1.0 - times.decode_s(seen) / asked.tpot_s) * CELLS


def _beside(
    times: ReplicaTimes, window_s: Floats, arriving: Floats, behind: Floats, ended: Floats
) -> Complexes:
    """Return the transform of the prefill time during a reply, weighted over replies, shape (batches, frequencies).

    With φ the transform of one prefill on the grid of a reply's time t, n the mean number behind a reply, λ the rate at
    which others come and e the share of these that come before its end,

        1 / (1 + n·(1 − φ)) · (1 − e + e·exp(−λ·t·(1 − φ))).

    In real arithmetic, of which numpy has vector forms, and batch by batch, so that all stays in the processor's cache:
    with a tangent of half an angle, h, its cosine is 2/(1 + h²) − 1 and its sine 2h/(1 + h²).
    """
    # One prefill on the grid of each objective, split between the two cells nearest to it; (objectives, frequencies).
    cells, upper = times.placed(window_s / CELLS, CELLS, _GRID)
    split = np.empty((2, *upper.shape))
    np.multiply(times.prompt_weights, upper, out=split[1])
    np.subtract(times.prompt_weights, split[1], out=split[0])
    mass = np.bincount(cells, split.ravel(), window_s.size * _GRID).astype(float, copy=False)
    jumps = _transformed(mass.reshape(window_s.size, _GRID))
    left = (1.0 - jumps.real).ravel()
    turned = jumps.imag.ravel()
    reply_s = np.repeat(window_s, jumps.shape[1])
    fewer = -reply_s * left
    half = 0.5 * reply_s * turned
    weights = np.repeat(times.output_weights[times.output_tokens > 1.0], jumps.shape[1])
    transform = np.empty((behind.size, jumps.shape[1]), dtype=complex)
    for row, (rate, number, early) in enumerate(
        zip(arriving.tolist(), behind.tolist(), ended.tolist(), strict=True)
    ):
        size = early * np.exp(rate * fewer)
        tangent = np.tan(rate * half)
        doubled = 2.0 / (1.0 + tangent * tangent)
        real = 1.0 - early + size * (doubled - 1.0)
        imaginary = size * doubled * tangent
        across = 1.0 + number * left
        along = number * turned
        shrunk = weights / (across * across + along * along)
        transform.real[row] = (
            (shrunk * (across * real - along * imaginary)).reshape(jumps.shape).sum(axis=0)
        )
        transform.imag[row] = (
            (shrunk * (across * imaginary + along * real)).reshape(jumps.shape).sum(axis=0)
        )
    return transform


def prompts_behind(
    times: ReplicaTimes, asked: ServiceTerms, rate: Floats, step_s: Floats
) -> Floats:
    """Return the mean number of prompts queued behind a starting reply, shape (rates,): λ · (wait + prefill).

    Wait and prefill are Pollaczek and Khinchine's mean. A router that sees n replicas sends few behind others.
    """
    busy = np.minimum(rate * times.mean_prefill_s, MOST_PROMPT_SHARE)
    stay_s = times.mean_prefill_s + 0.5 * rate * times.square_prefill_s2 / (1.0 - busy)
    return np.asarray(rate * np.minimum(step_s + stay_s, asked.ttft_s) * _sent_behind(asked, busy))


def _sent_behind(asked: ServiceTerms, busy: Floats) -> Floats:
    """Return the share of prompts that a router queues behind others on a replica, shape (rates,)."""
    alone2 = asked.pooled_replicas**-2.0
    return np.asarray(alone2 + (1.0 - alone2) * _NO_BETTER * busy**2)


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
_LOADS = np.linspace(0.0, 1.0, 200)[
    1:
]  # batches over the largest between which a rate's batch is interpolated
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
    """SLO miss share of one replica by load; arrays of shape (loads,), rising."""

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

    def slo_capacity_requests_per_s(self) -> float:
        """Return the rate of highest goodput: beyond it, more requests mean fewer within the SLO."""
        rates = np.linspace(0.0, self.requests_per_s[-1], 1000)
        return float(
            rates[
                np.argmax(rates * (1.0 - np.interp(rates, self.requests_per_s, self.late_fraction)))
            ]
        )

    def at(self, requests_per_s: float) -> tuple[float, float]:
        """Return batch and mean time per token at a request rate."""
        batch = float(np.interp(requests_per_s, self.requests_per_s, self.batch))
        return batch, float(np.interp(requests_per_s, self.requests_per_s, self.tpot_s))


def late_curve(times: ReplicaTimes, asked: ServiceTerms) -> Curve:
    """Return the SLO miss share by load, from an idle replica to the largest load it can carry.

    A replica that does not hold a sequence has all of them late.
    """
    batch = _batches(times, asked)
    too_long = float(too_long_fraction(times, asked.ttft_s))
    rates = times.requests_per_s(batch)
    objectives = _late_by_objective(times, asked, batch[_WORKED_OUT], batch)
    capacity = 0.0
    for late in objectives:
        allowed = _allowed(float(late[0]), asked.percentile)
        capacity = max(capacity, float(np.interp(allowed, late, rates)) if allowed > 0.0 else 0.0)
    return Curve(
        requests_per_s=rates,
        late_fraction=objectives[0],
        batch=batch,
        tpot_s=times.tpot_s(batch),
        capacity_requests_per_s=capacity,
        too_long_fraction=too_long,
        alone_s=_quantile(
            times.alone_s, times.prompt_weights, max(asked.percentile, 1.0 - 0.5 * too_long)
        ),
    )


def sustains_more(times: ReplicaTimes, asked: ServiceTerms, requests_per_s: float) -> bool:
    """Return whether a replica's SLO capacity exceeds a rate, from only the curve's points around that rate."""
    batch = _batches(times, asked)
    rates = times.requests_per_s(batch)
    at = np.interp([requests_per_s], rates, batch)
    if requests_per_s >= rates[-1] or times.decode_s(at)[0] > asked.tpot_s:
        return False
    place = int(np.searchsorted(rates[_WORKED_OUT], requests_per_s, side="right"))
    low = int(_WORKED_OUT[max(place - 1, 0)])
    high = int(_WORKED_OUT[max(place, 1)])
    idle = [0] if low else []  # what is late when idle says what may be
    between = [*idle, *range(low, high + 1)]
    late = _late_by_objective(times, asked, batch[[*idle, low, high]], batch[between])
    allowed = [_allowed(float(row[0]), asked.percentile) for row in late]
    return any(
        np.interp(requests_per_s, rates[between], row) < most
        for row, most in zip(late, allowed, strict=True)
    )


def most_rates(times: ReplicaTimes, tpot_s: float) -> Floats:
    """Return rates that the SLO capacity of no replica exceeds, shape (replicas,): where steps alone take too long."""
    batch = _most_batch(times, tpot_s) * _LOADS
    rates = times.requests_per_s(batch)
    is_beyond = (_busy(times, batch, rates) > _MOST_BUSY) | (times.decode_s(batch) > tpot_s)
    is_beyond[:, -1] = True
    return np.asarray(np.where(is_beyond, rates, np.inf).min(axis=1))


def _batches(times: ReplicaTimes, asked: ServiceTerms) -> Floats:
    """Return the batches of a curve, from nearly idle to the largest worth evaluating."""
    most = _most_batch(times, asked.tpot_s)
    tried = most * _LOADS
    busy = _busy(times, tried, times.requests_per_s(tried))
    return np.append(_IDLE_BATCH, float(np.interp(_MOST_BUSY, busy, tried)) * _POINTS)


def too_long_fraction(times: ReplicaTimes, ttft_s: float) -> Floats:
    """Return the share of requests whose own prompt takes longer than a TTFT objective on idle replicas."""
    return np.asarray((times.alone_s > ttft_s) @ times.prompt_weights)


def _late_by_objective(
    times: ReplicaTimes, asked: ServiceTerms, worked_out: Floats, batch: Floats
) -> list[Floats]:
    """Return the miss share by batch for the TTFT objective, and for stricter ones where prompts are too long.

    It is worked out at some batches, and interpolated between them in its logarithm, being all but exponential.
    """
    too_long = float(too_long_fraction(times, asked.ttft_s))
    ttft_s = asked.ttft_s * (
        _STRICTER if too_long > 0.25 * (1.0 - asked.percentile) else _STRICTER[:1]
    )
    rate = times.requests_per_s(worked_out)
    late = np.ones((ttft_s.size, worked_out.size))
    if times.room >= 1.0:
        first = late_first(times, asked, rate, times.decode_s(worked_out), ttft_s)
        tokens = late_tokens(times, asked, worked_out, rate)
        late = np.clip(1.0 - (1.0 - first) * (1.0 - tokens), _LEAST_LATE, 1.0)
    logarithms = np.log(np.maximum.accumulate(late, axis=1))
    rows = [np.asarray(np.exp(np.interp(batch, worked_out, row))) for row in logarithms]
    return [np.maximum(rows[0], too_long), *rows[1:]]


def _busy(times: ReplicaTimes, batch: Floats, rate: Floats) -> Floats:
    """Return the share of time in steps of at most a chunk that compute prompts, shape (batches,); it rises."""
    return np.asarray(rate * (times.mean_prefill_s + times.mean_steps * times.decode_s(batch)))


def _quantile(numbers: Floats, weights: Floats, share: float) -> float:
    """Return the weighted quantile: the smallest number with at least a share of the weight at or below it."""
    order = np.argsort(numbers)
    place = int(np.searchsorted(np.cumsum(weights[order]), share - 1e-9))
    return float(numbers[order][min(place, numbers.size - 1)])


def _allowed(idle: float, percentile: float) -> float:
    """Return the allowed miss share, given the miss share when idle; 0 where the replica cannot meet the objective.

    Some requests are late on a replica that does next to nothing else, and so at any rate. Where they take up more than
    half of what may be late, half of it is left to the others, so that these can still be served:

        in time ≥ min(p, (1 − late when idle) · (1 − (1 − p)/2));

    where most are late, the objective is none that this replica can keep.
    """
    if idle > _MOST_TOO_LONG:
        return 0.0
    return max(1.0 - percentile, 1.0 - (1.0 - idle) * (1.0 - 0.5 * (1.0 - percentile)))


def refusing(
    times: ReplicaTimes, asked: ServiceTerms, requests_per_s: Floats
) -> tuple[Floats, Floats]:
    """Return the shares rejected, and late of the admitted, at rates beyond capacity, both of shape (rates,).

    A router that refuses what would be late turns away long prompts first: in proportion to the square of their
    length, at most all of them. Of the shares it may turn away it has the one, q, that leaves most in time:

        min over q of  q + (1 − q) · late of the rest at λ·(1 − q).
    """
    thinning = Thinning(times.lengths)
    refused = np.zeros_like(requests_per_s)
    late = np.ones_like(requests_per_s)
    for share in _REFUSED_SHARES:
        missed = refused + (1.0 - refused) * late
        tried = np.flatnonzero(missed > share)  # a larger share cannot do better elsewhere
        if not tried.size:
            break
        rest = times.weighted(thinning.left(share))
        batches = np.maximum(_most_batch(rest, asked.tpot_s), 1e-9) * _LOADS
        rates = rest.requests_per_s(batches)
        rate = requests_per_s[tried] * (1.0 - share)
        beyond = np.ones_like(rate)  # all of them, where more come than the replica takes at all
        taken = np.flatnonzero(rate <= rates[-1])
        worth = (missed[tried[taken]] - share) / (
            1.0 - share
        )  # late shares from which on this one is no better
        beyond[taken] = _late(rest, asked, np.interp(rate[taken], rates, batches), worth)
        better = share + (1.0 - share) * beyond < missed[tried]
        refused[tried[better]], late[tried[better]] = share, beyond[better]
    return refused, late


class Thinning:
    """Prompt lengths under admission control that rejects a prompt with probability min(1, a·length²).

    With prompts from the shortest, and all from the i-th on refused, Σ_{j<i} w_j·a·l_j² + Σ_{j≥i} w_j is the share.
    Prompt i is refused for certain from a = 1/l_i² on, so i is the first at which the share with that a is no more.
    """

    def __init__(self, lengths: Lengths) -> None:
        """Sort the prompts by length."""
        self._weights = lengths.prompt_weights
        self._likely = (lengths.prompt_tokens / lengths.prompt_tokens.max()) ** _REFUSED_POWER
        order = np.argsort(self._likely)
        rising = self._likely[order]
        weights = self._weights[order]
        self._in_part = np.append(0.0, np.cumsum(weights * rising))
        self._certain = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        self._at_most = -(self._in_part[:-1] / rising + self._certain[:-1])  # rises with i

    def left(self, refused: float) -> Floats:
        """Return the weights of prompt lengths when a share of requests is rejected."""
        if refused == 0.0:
            return self._weights
        first = int(np.searchsorted(self._at_most, -refused))
        factor = (refused - self._certain[first]) / self._in_part[first]
        left = self._weights * (1.0 - np.minimum(factor * self._likely, 1.0))
        return np.asarray(left / left.sum())


def _late(times: ReplicaTimes, asked: ServiceTerms, batch: Floats, worth: Floats) -> Floats:
    """Return the SLO miss share at each batch, shape (batches,); 1 where it is not below ``worth``.

    Most rates beyond capacity are too many for certain at most shares refused, which steps alone tell, or tokens.
    """
    late = np.ones_like(batch)
    if times.room < 1.0:
        return late
    rate = times.requests_per_s(batch)
    room = room_for_prefills(times, asked, batch, rate)
    rows = np.flatnonzero(
        (_busy(times, batch, rate) <= _MOST_BUSY) & (least_late_tokens(times, room) < worth)
    )
    if rows.size:
        tokens = late_tokens_within(times, asked, batch[rows], rate[rows], room[rows])
        rows, tokens = rows[tokens < worth[rows]], tokens[tokens < worth[rows]]
    if rows.size:
        first = late_first(
            times, asked, rate[rows], times.decode_s(batch[rows]), np.array([asked.ttft_s])
        )
        late[rows] = 1.0 - (1.0 - first[0]) * (1.0 - tokens)
    return late


def _most_batch(times: ReplicaTimes, tpot_s: float) -> Floats:
    """Return the largest batch worth evaluating, of several replicas a column.

    Where memory ends, mean TPOT is 1.5 times the objective, or prompts take all but a fiftieth of the time.
    """
    slow = (1.5 * tpot_s - times.fixed_s) / (times.sequence_s + times.mean_prefill_s / times.output)
    step_s = times.fixed_s + times.routed_s
    prefill_s = np.maximum(times.mean_prefill_s, 1e-12)
    full = MOST_PROMPT_SHARE / (1.0 - MOST_PROMPT_SHARE) * times.output * step_s / prefill_s
    return np.asarray(np.minimum(np.clip(slow, 1.0, np.maximum(times.most_batch, 1.0)), full))
