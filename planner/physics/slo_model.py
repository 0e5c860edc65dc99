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

import numpy as np
from numpy import fft

from planner.arrays import Complexes, Floats, Ints
from planner.physics.replica import Lengths, ReplicaTimes, ServiceTerms
from planner.records import record

CELLS = 256
"""Grid cells up to an objective."""
_GRID = 9 * CELLS // 8
"""Cells of a grid, an eighth of them beyond the objective."""
_CELL = np.arange(_GRID)
_FADED = 1e-6 ** (_CELL / _GRID)
"""rʲ: the 288th power of r is what is left of what comes back, and its 256th, 5e-6, costs no digit that shows."""
_LONGEST = 2.0 * CELLS
"""Cells: a prefill that takes longer makes all behind it late, however long it is."""
MOST_PROMPT_SHARE = 0.98
"""Of a replica's time: beyond it a queue of prompts has no steady state within the hour."""
_MOST_BUSY = 0.88
"""Of a replica's time in steps with prompts, those steps' sequences included: held to the zoom."""
_NEVER = 1e-17
"""Of requests."""
_NO_BETTER = 0.6
"""Share of prompts, over the square of the time in prefill, that a router of many replicas sends behind another all the
same: fitted to the zoom's routers at 70 to 125% of capacity, where without it half of what is late was missed."""
_LOOKED_AT = 0.5
"""Of the TTFT objective: up to it routers count requests, beyond it they look at waits."""
_AVERAGED = 0.74
"""Variance of a mean over one's own time of a quantity that forgets in that time, 2/e."""
_NORMAL_NODES = np.array([-2.857, -1.3556, 0.0, 1.3556, 2.857])
"""Nodes of the Gauss–Hermite quadrature of five points."""
_NORMAL_WEIGHTS = np.array([0.01126, 0.22208, 0.53333, 0.22208, 0.01126])
"""Their weights."""


def late_first(
    times: ReplicaTimes,
    terms: ServiceTerms,
    rate: Floats,
    step_s: Floats,
    ttft_s: Floats,
    exceedance: Floats | None = None,
) -> Floats:
    """Return the share of requests that miss each TTFT objective at each rate, shape (objectives, rates).

    Objectives may be the one asked for or stricter: they share its grid of waits, and what :func:`waits_beyond` says
    of it, which may be given where it is known. Waits that leave the first token within half the objective asked for
    are unseen by routers, which then send prompts behind others.
    """
    looked_at_s = _LOOKED_AT * terms.ttft_s
    # Own prefill, and as many steps as carry its chunks.
    chunk_steps_s = times.chunks * step_s[:, None]
    taken_s = times.overhead_s + times.prefill_s + chunk_steps_s
    cell_s = terms.ttft_s / CELLS
    if exceedance is None:
        exceedance = waits_beyond(times, cell_s, rate, step_s)
    # Where each rate's row begins in the flat table: take on one axis is faster than indexing on two.
    numbers = np.arange(rate.size)[:, None]
    rows = (CELLS + 1) * numbers

    def waiting(slack_s: Floats) -> Floats:
        """Return the share of arrivals that wait longer than slacks of shape (..., rates, prompts); 1 for negative."""
        place = np.clip(slack_s / cell_s, 0.0, float(CELLS))
        # The last edge belongs to the last cell, so that there is a cell above each.
        low = place.astype(np.intp)
        np.minimum(low, CELLS - 1, out=low)
        place -= low
        low += rows
        lower = exceedance.take(low)
        low += 1
        upper = exceedance.take(low)
        share = lower + (upper - lower) * place
        np.clip(share, 0.0, 1.0, out=share)
        share[slack_s < 0.0] = 1.0
        return share

    beyond = waiting(ttft_s[:, None, None] - taken_s)
    # A power takes as long as all else, so it is taken only where it is not next to nothing.
    likely = beyond > _NEVER**terms.alone
    missed = np.zeros_like(beyond)
    np.power(beyond, terms.pooled_replicas, out=missed, where=likely)
    # Prompts that a router sends behind others although it sees them late: waits it does not look at.
    is_unseen = ttft_s < looked_at_s
    if is_unseen.any():
        unseen = waiting(looked_at_s - taken_s)
        busy = rate * times.mean_prefill_s
        behind = _sent_behind(terms, busy)[:, None]
        late_unseen = beyond[is_unseen] - np.maximum(unseen, missed[is_unseen])
        missed[is_unseen] += behind * np.maximum(late_unseen, 0.0)
    return np.asarray(missed @ times.prompt_weights)


def waits_beyond(times: ReplicaTimes, cell_s: float, rate: Floats, step_s: Floats) -> Floats:
    """Return the share of arrivals that wait longer than each grid cell's edge, shape (rates, cells + 1).

    The residual of a prefill has density P(S > x) / E[S], which stands on the grid as the part of each cell that
    prefills reach.
    """
    # Prompts computed together share a step: each brings 1 / (1 + λ·(E[S] + D)) of one, or as many as its chunks fill.
    prompts_a_step = 1.0 + rate * (times.mean_prefill_s + step_s)
    step_share = 1.0 / prompts_a_step
    steps = np.maximum(times.steps, step_share[:, None])
    service_s = times.prefill_s + steps * step_s[:, None]
    busy = rate * (service_s @ times.prompt_weights)
    share = np.minimum(busy, MOST_PROMPT_SHARE)[:, None]
    service = np.minimum(service_s / cell_s, _LONGEST)
    cells = service.astype(np.intp)
    weights = np.broadcast_to(times.prompt_weights, service.shape)
    ends = _histograms(cells, weights)
    # Of each cell, what prefills cross whole, and then the part of a cell in which each ends.
    reached = 1.0 - np.cumsum(ends, axis=1)
    np.maximum(reached, 0.0, out=reached)
    ended_parts = times.prompt_weights * (service - cells)
    reached += _histograms(cells, ended_parts)
    # A cell's mass lies in its middle, not at its edge.
    in_two_cells = reached[:, 1:] + reached[:, :-1]
    in_two_cells *= 0.5
    reached[:, 1:] = in_two_cells
    reached[:, 0] *= 0.5
    mean_service = service @ times.prompt_weights
    residual = reached / mean_service[:, None]
    # The step under way: a uniform share of it is left, over at least one cell.
    step_cells = np.rint(step_s / cell_s)[:, None]
    np.maximum(step_cells, 1.0, out=step_cells)
    under_way = (step_cells > _CELL) / step_cells
    # Pollaczek and Khinchine: the geometric sum of residuals in transforms.
    geometric = 1.0 - share * _transformed(residual)
    queue = (1.0 - share) / geometric
    waits = _cumulated(queue * _transformed(under_way))
    return np.maximum(1.0 - waits, 0.0)


def _histograms(cells: Ints, weights: Floats) -> Floats:
    """Return the weight in each cell of a grid by row, shape (rows, grid), without weight beyond the grid."""
    count = cells.shape[0]
    # One bincount for all rows; a cell more in each holds what lies beyond the grid, and is cut off.
    width = _GRID + 1
    flat = np.minimum(cells, _GRID)
    flat += width * np.arange(count)[:, None]
    weight = np.bincount(flat.ravel(), weights.ravel(), count * width)
    mass = weight.astype(float, copy=False)
    return mass.reshape(count, width)[:, :-1]


def _transformed(mass: Floats) -> Complexes:
    """Return the Fourier transform of masses on a grid, damped against wrap-around, shape (rows, frequencies)."""
    return fft.rfft(mass * _FADED)


def _cumulated(transform: Complexes) -> Floats:
    """Return the cumulative mass up to each cell, as far as the objective, shape (rows, cells + 1)."""
    edges = CELLS + 1
    faded = fft.irfft(transform, _GRID)[:, :edges]
    mass = faded / _FADED[:edges]
    return np.asarray(np.cumsum(mass, axis=1))


def late_tokens(times: ReplicaTimes, terms: ServiceTerms, batch: Floats, rate: Floats) -> Floats:
    """Return the share of requests that miss the TPOT objective at each batch, shape (batches,)."""
    room = room_for_prefills(times, terms, batch, rate)
    return late_tokens_within(times, terms, batch, rate, room)


def late_tokens_within(
    times: ReplicaTimes, terms: ServiceTerms, batch: Floats, rate: Floats, room: Floats
) -> Floats:
    """Return the share of requests that miss the TPOT objective, given :func:`room_for_prefills`."""
    has_tokens_between = times.output_tokens > 1.0
    if not has_tokens_between.any():
        # Replies of one token have no time between tokens.
        return np.zeros_like(batch)
    tokens_between = times.output_tokens[has_tokens_between] - 1.0
    window_s = tokens_between * terms.tpot_s
    mean_step_s = times.decode_s(np.maximum(batch, 1.0))
    # Prompts that take all the time leave none to decode: a millionth stands for that.
    decode_share = np.maximum(1.0 - rate * times.mean_prefill_s, 1e-6)
    mean_s = mean_step_s / decode_share
    pace = np.minimum(mean_s / terms.tpot_s, 1.0)
    share_of_others = np.maximum(1.0 - 1.0 / batch, 0.0)
    pooled = (1.0 - terms.alone) * pace * share_of_others
    arriving = rate * (terms.alone + pooled)
    behind = prompts_behind(times, terms, rate, mean_step_s)
    # The share of those to come that come before the reply's end.
    ended = 1.0 - terms.alone * (1.0 - pace)
    transform = _beside(times, window_s, arriving, behind, ended)
    cumulative = _cumulated(transform)
    # Read at the room left, linear between cells; below zero there is none, and every reply is late.
    low = np.maximum(room.astype(np.intp), 0)
    np.minimum(low, CELLS - 1, out=low)
    rows = (CELLS + 1) * np.arange(batch.size)[:, None]
    cells = low + rows
    lower = cumulative.take(cells)
    upper = cumulative.take(cells + 1)
    replies = float(times.output_weights @ has_tokens_between)
    part_of_cell = room - low
    inside = lower + (upper - lower) * part_of_cell
    np.maximum(inside, 0.0, out=inside)
    np.minimum(inside, replies, out=inside)
    # Beside chunks that fit into what steps leave of the objective no reply is late, however many there are.
    room_s = room * (terms.tpot_s / CELLS)
    slow_share = times.slow_chunks(room_s)
    inside = replies - (replies - inside) * slow_share
    late = np.where(room < 0.0, replies, replies - inside)
    return np.asarray(late @ _NORMAL_WEIGHTS)


def least_late_tokens(times: ReplicaTimes, room: Floats) -> Floats:
    """Return a lower bound on the share that misses TPOT, shape (batches,): decode steps alone exceed it."""
    has_tokens_between = times.output_tokens > 1.0
    replies = float(times.output_weights @ has_tokens_between)
    too_slow = (room < 0.0) @ _NORMAL_WEIGHTS
    return np.asarray(too_slow * replies)


def room_for_prefills(
    times: ReplicaTimes, terms: ServiceTerms, batch: Floats, rate: Floats
) -> Floats:
    """Return the part of the TPOT objective that decode steps leave for prefills, in cells, shape (batches, nodes).

    At each node of the normal distribution of the sequences that run beside one's own; the same for every reply, whose
    grid is its own objective's.
    """
    prompts = np.minimum(rate * times.mean_prefill_s, MOST_PROMPT_SHARE)
    # A larger batch makes longer steps and so a larger batch: fluctuations are stretched by that feedback, which is
    # bounded, since near saturation the linear law has no limit.
    step_s = times.decode_s(np.maximum(batch, 1.0))
    steady = 1.0 - times.sequence_s * batch / step_s
    stretch = np.maximum(steady * (1.0 - prompts), 0.1)
    spread = np.sqrt(_AVERAGED * batch * terms.alone / stretch)
    deviations = spread[:, None] * _NORMAL_NODES
    # One's own sequence at least is there.
    sequences = batch[:, None] + terms.alone + deviations
    np.maximum(sequences, 1.0, out=sequences)
    step_share = times.decode_s(sequences) / terms.tpot_s
    return (1.0 - step_share) * CELLS


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
    weight = np.bincount(cells, split.ravel(), window_s.size * _GRID)
    mass = weight.astype(float, copy=False)
    jumps = _transformed(mass.reshape(window_s.size, _GRID))
    frequencies = jumps.shape[1]
    loss = (1.0 - jumps.real).ravel()
    turn = jumps.imag.ravel()
    reply_s = np.repeat(window_s, frequencies)
    decay = -reply_s * loss
    half = 0.5 * reply_s * turn
    has_tokens_between = times.output_tokens > 1.0
    weights = np.repeat(times.output_weights[has_tokens_between], frequencies)
    transform = np.empty((behind.size, frequencies), dtype=complex)
    replies = zip(arriving.tolist(), behind.tolist(), ended.tolist(), strict=True)
    for row, (rate, number, early) in enumerate(replies):
        size = early * np.exp(rate * decay)
        tangent = np.tan(rate * half)
        doubled = 2.0 / (1.0 + tangent * tangent)
        real = 1.0 - early + size * (doubled - 1.0)
        imaginary = size * doubled * tangent
        real_part = 1.0 + number * loss
        imaginary_part = number * turn
        square = real_part * real_part + imaginary_part * imaginary_part
        shrunk = weights / square
        # The quotient of two complex numbers, weighted, and summed over replies.
        product = shrunk * (real_part * real - imaginary_part * imaginary)
        transform.real[row] = product.reshape(jumps.shape).sum(axis=0)
        product = shrunk * (real_part * imaginary + imaginary_part * real)
        transform.imag[row] = product.reshape(jumps.shape).sum(axis=0)
    return transform


def prompts_behind(
    times: ReplicaTimes, terms: ServiceTerms, rate: Floats, step_s: Floats
) -> Floats:
    """Return the mean number of prompts queued behind a starting reply, shape (rates,): λ · (wait + prefill).

    Wait and prefill are Pollaczek and Khinchine's mean. A router that sees n replicas sends few behind others.
    """
    busy = np.minimum(rate * times.mean_prefill_s, MOST_PROMPT_SHARE)
    wait_s = 0.5 * rate * times.square_prefill_s2 / (1.0 - busy)
    stay_s = times.mean_prefill_s + wait_s
    # Up to the objective: who waits longer is late by the first token already.
    counted_s = np.minimum(step_s + stay_s, terms.ttft_s)
    return np.asarray(rate * counted_s * _sent_behind(terms, busy))


def _sent_behind(terms: ServiceTerms, busy: Floats) -> Floats:
    """Return the share of prompts that a router queues behind others on a replica, shape (rates,)."""
    alone2 = terms.pooled_replicas**-2.0
    behind_others = (1.0 - alone2) * _NO_BETTER * busy**2
    return np.asarray(alone2 + behind_others)


_BATCHES = 14
"""Batches at which a curve is worked out, closer together where there are few."""
_BETWEEN = 3
"""Points of a curve for each."""
_CURVE = np.linspace(0.0, 1.0, _BETWEEN * _BATCHES + 1)
"""Even steps of a curve."""
_POINTS = _CURVE[_BETWEEN:] ** 1.6
"""Batches of a curve over the largest, after that of a replica which is all but idle."""
_WORKED_OUT = np.append(0, np.arange(1, _POINTS.size + 1, _BETWEEN))
"""Places in a curve, the idle batch first, at which it is worked out."""
_REFUSED_SHARES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45)
"""Shares of requests that an overloaded router may turn away, of which it takes the one that leaves most in time."""
_LOADS = np.linspace(0.0, 1.0, 200)[1:]
"""Batches over the largest between which a rate's batch is interpolated."""
_REFUSED_POWER = 2.0
"""A prompt is refused in proportion to this power of its length: fitted to the zoom's routers at 110 to 200% load,
where refused prompts are two to three times as long as the mean."""
_AS_ASKED = np.ones(1)
"""The TTFT objective asked for, over itself."""
_STRICTER = np.geomspace(0.97, 0.25, 16)
"""TTFT objectives over the one asked for, at which capacity is worked out where prompts are too long for it."""
_IDLE_BATCH = 1e-3
"""Sequences of a replica with next to no load: what is late then is late at any."""
_LEAST_LATE = 1e-9
"""Of requests: so that it has a logarithm."""
_MOST_TOO_LONG = 0.5
"""Of requests: beyond it a replica does not serve the workload at all."""


@record
class MissCurve:
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
        late = np.interp(rates, self.requests_per_s, self.late_fraction)
        goodput = rates * (1.0 - late)
        return float(rates[np.argmax(goodput)])

    def at(self, requests_per_s: float) -> tuple[float, float]:
        """Return batch and mean time per token at a request rate."""
        batch = float(np.interp(requests_per_s, self.requests_per_s, self.batch))
        tpot_s = float(np.interp(requests_per_s, self.requests_per_s, self.tpot_s))
        return batch, tpot_s

    def by_load(self) -> tuple[Floats, Floats]:
        """Return loads over capacity and the miss share at each, from zero to the largest load."""
        loads = self.requests_per_s / self.capacity_requests_per_s
        late = np.append(self.too_long_fraction, self.late_fraction)
        return np.append(0.0, loads), late


def late_curve(times: ReplicaTimes, terms: ServiceTerms) -> MissCurve:
    """Return the SLO miss share by load, from an idle replica to the largest load it can carry.

    A replica that does not hold a sequence has all of them late.
    """
    batch = _batches(times, terms)
    rates = times.requests_per_s(batch)
    misses = _Misses(times, terms, batch[_WORKED_OUT], batch)
    (late,) = misses.within(_AS_ASKED)
    late = np.maximum(late, misses.too_long)
    allowed = _allowed(float(late[0]), terms.percentile)
    capacity = float(np.interp(allowed, late, rates)) if allowed > 0.0 else 0.0
    # What keeps a stricter objective keeps this one: the largest of all capacities is this one's.
    if misses.has_stricter and capacity < rates[-1]:
        worked_out, places = _around(rates, capacity)
        nearby = _Misses(times, terms, batch[worked_out], batch[places])
        for stricter_late in misses.within(nearby.stricter_kept(capacity, allowed)):
            stricter_allowed = _allowed(float(stricter_late[0]), terms.percentile)
            sustained = float(np.interp(stricter_allowed, stricter_late, rates))
            capacity = max(capacity, sustained)
    alone_share = max(terms.percentile, 1.0 - 0.5 * misses.too_long)
    return MissCurve(
        requests_per_s=rates,
        late_fraction=late,
        batch=batch,
        tpot_s=times.tpot_s(batch),
        capacity_requests_per_s=capacity,
        too_long_fraction=misses.too_long,
        alone_s=_quantile(times.alone_s, times.prompt_weights, alone_share),
    )


def sustains_more(times: ReplicaTimes, terms: ServiceTerms, requests_per_s: float) -> bool:
    """Return whether a replica's SLO capacity exceeds a rate, from only the curve's points around that rate."""
    batch = _batches(times, terms)
    rates = times.requests_per_s(batch)
    if requests_per_s >= rates[-1]:
        return False
    batch_at_rate = np.interp([requests_per_s], rates, batch)
    # Steps that take too long by themselves need no distribution.
    if times.decode_s(batch_at_rate)[0] > terms.tpot_s:
        return False
    worked_out, places = _around(rates, requests_per_s)
    misses = _Misses(times, terms, batch[worked_out], batch[places])
    (late,) = misses.within(_AS_ASKED)
    late = np.maximum(late, misses.too_long)
    late_at_rate = float(np.interp(requests_per_s, rates[places], late))
    if late_at_rate < _allowed(float(late[0]), terms.percentile):
        return True
    return misses.has_stricter and misses.stricter_kept(requests_per_s, late_at_rate).size > 0


def decodes_in_time(times: ReplicaTimes, terms: ServiceTerms, requests_per_s: float) -> bool:
    """Return whether a replica keeps the TPOT objective at a rate, whatever its first tokens do.

    Where one does not, neither does one of the same layout that computes more prompt tokens in a step.
    """
    batch = _batches(times, terms)
    rates = times.requests_per_s(batch)
    if requests_per_s >= rates[-1]:
        return False
    batch_at_rate = np.interp([requests_per_s], rates, batch)
    if times.decode_s(batch_at_rate)[0] > terms.tpot_s:
        return False
    late = late_tokens(times, terms, batch_at_rate, np.array([requests_per_s]))
    return bool(late[0] < 1.0 - terms.percentile)


def _around(rates: Floats, requests_per_s: float) -> tuple[list[int], list[int]]:
    """Return the places of a curve around a rate: those at which it is worked out, and those with all in between.

    Both begin with the idle replica: what is late there says what may be late at all.
    """
    place = int(np.searchsorted(rates[_WORKED_OUT], requests_per_s, side="right"))
    low = int(_WORKED_OUT[max(place - 1, 0)])
    high = int(_WORKED_OUT[max(place, 1)])
    idle = [0] if low else []
    return [*idle, low, high], [*idle, *range(low, high + 1)]


def rate_bounds(times: ReplicaTimes, tpot_s: float) -> Floats:
    """Return rates that the SLO capacity of no replica exceeds, shape (replicas,): where steps alone take too long."""
    batch = _most_batch(times, tpot_s) * _LOADS
    rates = times.requests_per_s(batch)
    is_busy = _busy(times, batch, rates) > _MOST_BUSY
    is_slow = times.decode_s(batch) > tpot_s
    is_beyond = is_busy | is_slow
    # The largest batch ends the search where none is beyond.
    is_beyond[:, -1] = True
    rates_beyond = np.where(is_beyond, rates, np.inf)
    return np.asarray(rates_beyond.min(axis=1))


def _batches(times: ReplicaTimes, terms: ServiceTerms) -> Floats:
    """Return the batches of a curve, from nearly idle to the largest worth evaluating."""
    largest = _most_batch(times, terms.tpot_s)
    trials = largest * _LOADS
    rates = times.requests_per_s(trials)
    busy = _busy(times, trials, rates)
    most_batch = float(np.interp(_MOST_BUSY, busy, trials))
    return np.append(_IDLE_BATCH, most_batch * _POINTS)


def too_long_fraction(times: ReplicaTimes, ttft_s: float) -> Floats:
    """Return the share of requests whose own prompt takes longer than a TTFT objective on idle replicas."""
    is_too_long = times.alone_s > ttft_s
    return np.asarray(is_too_long @ times.prompt_weights)


class _Misses:
    """The SLO miss share of a replica by batch, for the TTFT objective asked for and for stricter ones."""

    def __init__(
        self, times: ReplicaTimes, terms: ServiceTerms, worked_out: Floats, batch: Floats
    ) -> None:
        """Compute what hangs on no TTFT objective at the batches worked out, the first of which is idle.

        At all batches the share is interpolated between these in its logarithm, being all but exponential.
        """
        self._times = times
        self._terms = terms
        self._worked_out = worked_out
        self._batch = batch
        self._rate = times.requests_per_s(worked_out)
        self.too_long = float(too_long_fraction(times, terms.ttft_s))
        # Only where prompts too long take up a quarter of what may be late: each further objective costs a pass.
        self.has_stricter = self.too_long > 0.25 * (1.0 - terms.percentile)
        self._holds_one = times.room >= 1.0
        if self._holds_one:
            self._step_s = times.decode_s(worked_out)
            cell_s = terms.ttft_s / CELLS
            self._exceedance = waits_beyond(times, cell_s, self._rate, self._step_s)
            self._late_tpot = late_tokens(times, terms, worked_out, self._rate)

    def _at(self, strictness: Floats, count: int) -> Floats:
        """Return the miss share at the first of the batches worked out, shape (objectives, count)."""
        # A replica that does not hold one sequence has all of them late.
        if not self._holds_one:
            return np.ones((strictness.size, count))
        late_ttft = late_first(
            self._times,
            self._terms,
            self._rate[:count],
            self._step_s[:count],
            self._terms.ttft_s * strictness,
            self._exceedance[:count],
        )
        in_time = (1.0 - late_ttft) * (1.0 - self._late_tpot[:count])
        return np.asarray(np.clip(1.0 - in_time, _LEAST_LATE, 1.0))

    def within(self, strictness: Floats) -> list[Floats]:
        """Return the miss share by batch for TTFT objectives that are such parts of the one asked for."""
        if not strictness.size:
            return []
        late = self._at(strictness, self._worked_out.size)
        # More load never makes fewer late: what falls is the error of the grids.
        rising = np.maximum.accumulate(late, axis=1)
        logarithms = np.log(rising)
        return [np.exp(np.interp(self._batch, self._worked_out, row)) for row in logarithms]

    def stricter_kept(self, requests_per_s: float, late: float) -> Floats:
        """Return the stricter TTFT objectives, over the one asked for, that are kept at more than a rate.

        ``late`` is the share that misses the one asked for at that rate. A stricter one is missed by no fewer, so only
        those are worked out that allow more than that, as more prompts are too long for them.
        """
        percentile = self._terms.percentile
        idle_late = self._at(_STRICTER, 1)[:, 0]
        allowed = np.array([_allowed(share, percentile) for share in idle_late.tolist()])
        is_open = allowed > late
        rates = self._times.requests_per_s(self._batch)
        rows = self.within(_STRICTER[is_open])
        late_at_rate = np.array([np.interp(requests_per_s, rates, row) for row in rows])
        return _STRICTER[is_open][late_at_rate < allowed[is_open]]


def _busy(times: ReplicaTimes, batch: Floats, rate: Floats) -> Floats:
    """Return the share of time in steps of at most a chunk that compute prompts, shape (batches,); it rises."""
    steps_s = times.mean_steps * times.decode_s(batch)
    return np.asarray(rate * (times.mean_prefill_s + steps_s))


def _quantile(numbers: Floats, weights: Floats, share: float) -> float:
    """Return the weighted quantile: the smallest number with at least a share of the weight at or below it."""
    order = np.argsort(numbers)
    # A share that is a sum of weights may fall a rounding short of the one it is.
    cumulative = np.cumsum(weights[order])
    place = int(np.searchsorted(cumulative, share - 1e-9))
    place = min(place, numbers.size - 1)
    return float(numbers[order][place])


def _allowed(idle: float, percentile: float) -> float:
    """Return the allowed miss share, given the miss share when idle; 0 where the replica cannot meet the objective.

    Some requests are late on a replica that does next to nothing else, and so at any rate. Where they take up more than
    half of what may be late, half of it is left to the others, so that these can still be served:

        in time ≥ min(p, (1 − late when idle) · (1 − (1 − p)/2));

    where most are late, the objective is none that this replica can keep.
    """
    if idle > _MOST_TOO_LONG:
        return 0.0
    allowed = 1.0 - percentile
    in_time = (1.0 - idle) * (1.0 - 0.5 * allowed)
    return max(allowed, 1.0 - in_time)


def refusing(
    times: ReplicaTimes, terms: ServiceTerms, requests_per_s: Floats
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
        # A larger share cannot do better than what is missed already.
        open_rates = np.flatnonzero(missed > share)
        if not open_rates.size:
            break
        rest = times.weighted(thinning.admitted_weights(share))
        # Above 0, so that rates rise and can be interpolated.
        most_batch = _most_batch(rest, terms.tpot_s)
        most_batch = np.maximum(most_batch, 1e-9)
        batches = most_batch * _LOADS
        rates = rest.requests_per_s(batches)
        rate = requests_per_s[open_rates] * (1.0 - share)
        # All of them are late where more come than the replica takes at all.
        rest_late = np.ones_like(rate)
        sustained = np.flatnonzero(rate <= rates[-1])
        open_missed = missed[open_rates]
        # Late shares from which on this share refused is no better than those before.
        worth = (open_missed[sustained] - share) / (1.0 - share)
        batch = np.interp(rate[sustained], rates, batches)
        rest_late[sustained] = _late(rest, terms, batch, worth)
        is_better = share + (1.0 - share) * rest_late < open_missed
        better_rates = open_rates[is_better]
        refused[better_rates] = share
        late[better_rates] = rest_late[is_better]
    return refused, late


class Thinning:
    """Prompt lengths under admission control that rejects a prompt with probability min(1, a·length²).

    With prompts from the shortest, and all from the i-th on refused, Σ_{j<i} w_j·a·l_j² + Σ_{j≥i} w_j is the share.
    Prompt i is refused for certain from a = 1/l_i² on, so i is the first at which the share with that a is no more.
    """

    def __init__(self, lengths: Lengths) -> None:
        """Sort the prompts by length."""
        self._weights = lengths.prompt_weights
        relative_length = lengths.prompt_tokens / lengths.prompt_tokens.max()
        self._likely = relative_length**_REFUSED_POWER
        order = np.argsort(self._likely)
        rising = self._likely[order]
        weights = self._weights[order]
        refused_in_part = np.cumsum(weights * rising)
        self._in_part = np.append(0.0, refused_in_part)
        # From each prompt to the longest: a reversed cumulative sum.
        refused_whole = np.cumsum(weights[::-1])[::-1]
        self._certain = np.append(refused_whole, 0.0)
        # Negative, so that it rises with i, as searchsorted needs.
        self._at_most = -(self._in_part[:-1] / rising + refused_whole)

    def admitted_weights(self, refused: float) -> Floats:
        """Return the weights of prompt lengths when a share of requests is rejected."""
        if refused == 0.0:
            return self._weights
        certain_from = int(np.searchsorted(self._at_most, -refused))
        in_part = refused - self._certain[certain_from]
        factor = in_part / self._in_part[certain_from]
        refused_shares = np.minimum(factor * self._likely, 1.0)
        weights = self._weights * (1.0 - refused_shares)
        return np.asarray(weights / weights.sum())


def _late(times: ReplicaTimes, terms: ServiceTerms, batch: Floats, worth: Floats) -> Floats:
    """Return the SLO miss share at each batch, shape (batches,); 1 where it is not below ``worth``.

    Most rates beyond capacity are too many for certain at most shares refused, which steps alone tell, or tokens.
    """
    late = np.ones_like(batch)
    if times.room < 1.0:
        return late
    rate = times.requests_per_s(batch)
    room = room_for_prefills(times, terms, batch, rate)
    is_steady = _busy(times, batch, rate) <= _MOST_BUSY
    is_worth = least_late_tokens(times, room) < worth
    rows = np.flatnonzero(is_steady & is_worth)
    if rows.size:
        open_batch = batch[rows]
        open_rate = rate[rows]
        late_tpot = late_tokens_within(times, terms, open_batch, open_rate, room[rows])
        is_open = late_tpot < worth[rows]
        rows = rows[is_open]
        late_tpot = late_tpot[is_open]
    if rows.size:
        step_s = times.decode_s(batch[rows])
        ttft_s = np.array([terms.ttft_s])
        late_ttft = late_first(times, terms, rate[rows], step_s, ttft_s)
        in_time = (1.0 - late_ttft[0]) * (1.0 - late_tpot)
        late[rows] = 1.0 - in_time
    return late


def _most_batch(times: ReplicaTimes, tpot_s: float) -> Floats:
    """Return the largest batch worth evaluating, of several replicas a column.

    Where memory ends, mean TPOT is 1.5 times the objective, or prompts take all but a fiftieth of the time.
    """
    sequence_s = times.sequence_s + times.mean_prefill_s / times.output
    slow_batch = (1.5 * tpot_s - times.fixed_s) / sequence_s
    step_s = times.fixed_s + times.routed_s
    # Where all prompts are cached no batch is too large for them.
    prefill_s = np.maximum(times.mean_prefill_s, 1e-12)
    prompts_to_steps = MOST_PROMPT_SHARE / (1.0 - MOST_PROMPT_SHARE)
    full_batch = prompts_to_steps * times.output * step_s / prefill_s
    # At least one sequence, whatever memory and objective say.
    memory_batch = np.maximum(times.most_batch, 1.0)
    batch = np.clip(slow_batch, 1.0, memory_batch)
    return np.asarray(np.minimum(batch, full_batch))
