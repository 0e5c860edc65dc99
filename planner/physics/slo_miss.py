"""Which share of requests is late at a batch, by the first token and by the time per token, as distributions.

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

from typing import TYPE_CHECKING

import numpy as np
from numpy import fft  # before anybody forks: each process would import it for itself

if TYPE_CHECKING:
    from planner.arrays import Complexes, Floats, Ints
    from planner.physics.replica_times import Asked, ReplicaTimes

CELLS = 256
"""Grid cells up to an objective."""
_GRID = 9 * CELLS // 8
_CELL = np.arange(_GRID)
_FADED = 1e-6 ** (_CELL / _GRID)
"""rʲ: the 288th power of r is what is left of what comes back, and its 256th, 5e-6, costs no digit that shows."""
_LONGEST = 2.0 * CELLS  # cells: a prefill that takes longer makes all behind it late, however long it is
MOST_PROMPT_SHARE = 0.98  # of a replica's time: beyond it a queue of prompts has no steady state within the hour
_NEVER = 1e-17  # of requests
_NO_BETTER = 0.6
"""Share of prompts, over the square of the time in prefill, that a router of many replicas sends behind another all the
same: fitted to the zoom's routers at 70 to 125% of capacity, where without it half of what is late was missed."""
_LOOKED_AT = 0.5  # of the first-token objective: up to it routers count requests, beyond it they look at waits
_AVERAGED = 0.74  # variance of a mean over one's own time of a quantity that forgets in that time, 2/e
_NORMAL_NODES = np.array([-2.857, -1.3556, 0.0, 1.3556, 2.857])  # Gauss–Hermite
_NORMAL_WEIGHTS = np.array([0.01126, 0.22208, 0.53333, 0.22208, 0.01126])


def late_first(times: ReplicaTimes, asked: Asked, rate: Floats, step_s: Floats, ttft_s: Floats) -> Floats:
    """Return the share of requests whose first token is late by each objective at each rate, shape (objectives, rates).

    Objectives may be the one asked for or stricter: they share its grid of waits. Waits that leave the first token
    within half the objective asked for are unseen by routers, which then send prompts behind others.
    """
    looked_at_s = _LOOKED_AT * asked.ttft_s
    if ttft_s.min() >= looked_at_s:
        return np.array([_late_by_all(times, asked, rate, step_s, objective_s) for objective_s in ttft_s.tolist()])
    taken_s = times.overhead_s + times.prefill_s + times.chunks * step_s[:, None]
    waits = _Waits(times, asked, rate, step_s)
    looked_at = waits.beyond(looked_at_s - taken_s)
    behind = _sent_behind(asked, rate * times.mean_prefill_s)[:, None]
    late = np.empty((ttft_s.size, rate.size))
    for number, objective_s in enumerate(ttft_s.tolist()):
        beyond = waits.beyond(objective_s - taken_s)
        missed = _of_all(beyond, asked)
        if objective_s < looked_at_s:
            missed += behind * np.maximum(beyond - np.maximum(looked_at, missed), 0.0)
        late[number] = missed @ times.prompt_weights
    return late


def _late_by_all(times: ReplicaTimes, asked: Asked, rate: Floats, step_s: Floats, objective_s: float) -> Floats:
    """Return the share of requests that all replicas of a pool would keep waiting for too long, shape (rates,).

    With many replicas what is late is too long by itself, but for prompts that all but are, at high rates: no others
    are looked at.
    """
    reach_s = _reach_s(times, asked, rate, step_s)
    longest_s = times.overhead_s + times.prefill_s + times.chunks * step_s.max()
    prompts = np.flatnonzero(longest_s > objective_s - reach_s.max())
    slack_s = objective_s - times.overhead_s - times.prefill_s[prompts] - times.chunks[prompts] * step_s[:, None]
    missed = (slack_s < 0.0).astype(float)
    near = ((slack_s >= 0.0) & (slack_s < reach_s[:, None])).any(axis=1)
    if near.any():
        missed[near] = _of_all(_Waits(times, asked, rate[near], step_s[near]).beyond(slack_s[near]), asked)
    return np.asarray(missed @ times.prompt_weights[prompts])


def _of_all(beyond: Floats, asked: Asked) -> Floats:
    """Return P(V > slack)ⁿ; nothing where it is next to none, since a power takes as long as all else."""
    missed = np.zeros_like(beyond)
    return np.asarray(np.power(beyond, asked.pooled_replicas, out=missed, where=beyond > _NEVER**asked.alone))


def _reach_s(times: ReplicaTimes, asked: Asked, rate: Floats, step_s: Floats) -> Floats:
    """Return the slack from which on all replicas of a pool at once keep next to no request waiting, shape (rates,).

    By Markov P(V > s) ≤ E[V] / s, with Pollaczek and Khinchine's mean, and so P(V > s)ⁿ ≤ (E[V] / s)ⁿ. Beyond the step
    under way a request waits for prompts alone, so P(V > D) is at most the share of time ρ that these take.
    """
    next_to_none = _NEVER**asked.alone
    extra_s, busy = _service(times, rate, step_s)
    mean_s = times.mean_prefill_s + extra_s
    square_s2 = times.square_prefill_s2 + extra_s * (2.0 * times.mean_prefill_s + extra_s)
    wait_s = 0.5 * step_s + busy / (1.0 - busy) * 0.5 * square_s2 / mean_s
    rounded_s = step_s + asked.ttft_s / CELLS  # the grid has steps of whole cells
    return np.asarray(np.minimum(wait_s / next_to_none, np.where(busy < next_to_none, rounded_s, np.inf)))


class _Waits:
    """How long arrivals wait at some rates, on the grid of the objective asked for."""

    def __init__(self, times: ReplicaTimes, asked: Asked, rate: Floats, step_s: Floats) -> None:
        self._cell_s = asked.ttft_s / CELLS
        self._over = waits_beyond(times, self._cell_s, rate, step_s)
        self._rows = (CELLS + 1) * np.arange(rate.size)[:, None]

    def beyond(self, slack_s: Floats) -> Floats:
        """Return the share of arrivals that wait for longer than slacks of shape (rates, prompts); all below none."""
        place = np.clip(slack_s / self._cell_s, 0.0, float(CELLS))
        low = np.minimum(place.astype(np.intp), CELLS - 1)
        place -= low
        low += self._rows
        under, above = self._over.take(low), self._over.take(low + 1)
        return np.where(slack_s < 0.0, 1.0, np.clip(under + (above - under) * place, 0.0, 1.0))


def _service(times: ReplicaTimes, rate: Floats, step_s: Floats) -> tuple[Floats, Floats]:
    """Return what a step adds to the service of a prompt, and the share of time that prompts take with it.

    Prompts computed together share a step: each brings 1 / (1 + λ·(E[S] + D)) of one.
    """
    extra_s = step_s / (1.0 + rate * (times.mean_prefill_s + step_s))
    return extra_s, np.minimum(rate * (times.mean_prefill_s + extra_s), MOST_PROMPT_SHARE)


def waits_beyond(times: ReplicaTimes, cell_s: float, rate: Floats, step_s: Floats) -> Floats:
    """Return the share of arrivals that wait longer than each cell's edge, shape (rates, cells + 1).

    The residual of a prefill has density P(S > x) / E[S], which stands on the grid as the part of each cell that
    prefills reach.
    """
    extra_s, busy = _service(times, rate, step_s)
    share = busy[:, None]
    service = np.minimum((times.prefill_s + extra_s[:, None]) / cell_s, _LONGEST)
    cells = service.astype(np.intp)
    ends = _histograms(cells, np.broadcast_to(times.prompt_weights, service.shape))
    reached = np.maximum(1.0 - np.cumsum(ends, axis=1), 0.0)
    reached += _histograms(cells, times.prompt_weights * (service - cells))
    reached[:, 1:] = 0.5 * (reached[:, 1:] + reached[:, :-1])  # a cell's mass lies in its middle, not at its edge
    reached[:, 0] *= 0.5
    residual = reached / (service @ times.prompt_weights)[:, None]
    steps = np.maximum(np.rint(step_s / cell_s), 1.0)[:, None]
    under_way = (steps > _CELL) / steps
    return np.maximum(
        1.0 - _cumulated((1.0 - share) / (1.0 - share * _transformed(residual)) * _transformed(under_way)), 0.0
    )


def _histograms(cells: Ints, weights: Floats) -> Floats:
    """Return the weight in each cell of a grid, row by row, shape (rows, grid); what lies beyond it is left out."""
    count = cells.shape[0]
    flat = np.minimum(cells, _GRID) + (_GRID + 1) * np.arange(count)[:, None]
    mass = np.bincount(flat.ravel(), weights.ravel(), count * (_GRID + 1)).astype(float, copy=False)
    return mass.reshape(count, _GRID + 1)[:, :-1]


def _transformed(mass: Floats) -> Complexes:
    """Return the Fourier transform of masses on a grid that fade, shape (rows, frequencies)."""
    return fft.rfft(mass * _FADED)


def _cumulated(transform: Complexes) -> Floats:
    """Return the mass up to and with each cell as far as the objective, shape (rows, cells + 1)."""
    return np.asarray(np.cumsum(fft.irfft(transform, _GRID)[:, : CELLS + 1] / _FADED[: CELLS + 1], axis=1))


def late_tokens(times: ReplicaTimes, asked: Asked, batch: Floats, rate: Floats) -> Floats:
    """Return the share of requests whose tokens come too slowly at each batch, shape (batches,)."""
    return late_tokens_within(times, asked, batch, rate, room_for_prefills(times, asked, batch, rate))


def late_tokens_within(times: ReplicaTimes, asked: Asked, batch: Floats, rate: Floats, room: Floats) -> Floats:
    """Return the same where the room that steps leave is known already."""
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
    ended = 1.0 - asked.alone * (1.0 - pace)  # the share of those to come that come before the reply's end
    within = _cumulated(_beside(times, window_s, arriving, behind, ended))
    low = np.minimum(np.maximum(room.astype(np.intp), 0), CELLS - 1)
    at = low + (CELLS + 1) * np.arange(batch.size)[:, None]
    under, above = within.take(at), within.take(at + 1)
    replies = float(times.output_weights @ several)
    inside = np.minimum(np.maximum(under + (above - under) * (room - low), 0.0), replies)
    return np.asarray(np.where(room < 0.0, replies, replies - inside) @ _NORMAL_WEIGHTS)


def least_late_tokens(times: ReplicaTimes, room: Floats) -> Floats:
    """Return a share that is too slow for certain, shape (batches,): where steps alone take longer than promised."""
    return np.asarray(((room < 0.0) @ _NORMAL_WEIGHTS) * float(times.output_weights @ (times.output_tokens > 1.0)))


def room_for_prefills(times: ReplicaTimes, asked: Asked, batch: Floats, rate: Floats) -> Floats:
    """Return what steps leave of an objective to prefills beside them, in cells, shape (batches, nodes).

    At each node of the normal distribution of the sequences that run beside one's own; the same for every reply, whose
    grid is its own objective's.
    """
    prompts = np.minimum(rate * times.mean_prefill_s, MOST_PROMPT_SHARE)
    step_s = times.decode_s(np.maximum(batch, 1.0))
    stretch = np.maximum((1.0 - times.sequence_s * batch / step_s) * (1.0 - prompts), 0.1)
    spread = np.sqrt(_AVERAGED * batch * asked.alone / stretch)
    seen = np.maximum(batch[:, None] + asked.alone + spread[:, None] * _NORMAL_NODES, 1.0)
    return (1.0 - times.decode_s(seen) / asked.tpot_s) * CELLS


def _beside(times: ReplicaTimes, window_s: Floats, arriving: Floats, behind: Floats, ended: Floats) -> Complexes:
    """Return the transform of the prefills beside a reply, over all replies by weight, shape (batches, frequencies).

    With φ the transform of one prefill on the grid of a reply's time t, n the mean number behind a reply, λ the rate at
    which others come and e the share of these that come before its end,

        1 / (1 + n·(1 − φ)) · (1 − e + e·exp(−λ·t·(1 − φ))).

    In real arithmetic, of which numpy has vector forms, and batch by batch, so that all stays in the processor's cache:
    with a tangent of half an angle, h, its cosine is 2/(1 + h²) − 1 and its sine 2h/(1 + h²).
    """
    jumps = _jumps(times, window_s)
    left, turned = (1.0 - jumps.real).ravel(), jumps.imag.ravel()
    reply_s = np.repeat(window_s, jumps.shape[1])
    fewer, half = -reply_s * left, 0.5 * reply_s * turned
    weights = np.repeat(times.output_weights[times.output_tokens > 1.0], jumps.shape[1])
    transform = np.empty((behind.size, jumps.shape[1]), dtype=complex)
    for row, (rate, number, early) in enumerate(zip(arriving.tolist(), behind.tolist(), ended.tolist(), strict=True)):
        size, tangent = early * np.exp(rate * fewer), np.tan(rate * half)
        doubled = 2.0 / (1.0 + tangent * tangent)
        real, imaginary = 1.0 - early + size * (doubled - 1.0), size * doubled * tangent
        across, along = 1.0 + number * left, number * turned
        shrunk = weights / (across * across + along * along)
        transform.real[row] = (shrunk * (across * real - along * imaginary)).reshape(jumps.shape).sum(axis=0)
        transform.imag[row] = (shrunk * (across * imaginary + along * real)).reshape(jumps.shape).sum(axis=0)
    return transform


def _jumps(times: ReplicaTimes, window_s: Floats) -> Complexes:
    """Return the transform of one prefill on the grid of each objective, shape (objectives, frequencies).

    Each prefill is split between the two cells nearest to it.
    """
    cells, upper = times.placed(window_s / CELLS, CELLS, _GRID)
    weights = np.empty((2, *upper.shape))
    np.multiply(times.prompt_weights, upper, out=weights[1])
    np.subtract(times.prompt_weights, weights[1], out=weights[0])
    mass = np.bincount(cells, weights.ravel(), window_s.size * _GRID).astype(float, copy=False)
    return _transformed(mass.reshape(window_s.size, _GRID))


def prompts_behind(times: ReplicaTimes, asked: Asked, rate: Floats, step_s: Floats) -> Floats:
    """Return the mean number of prompts behind a reply that begins, shape (rates,): λ · its own wait and prefill.

    Wait and prefill are Pollaczek and Khinchine's mean. A router that sees n replicas sends few behind others.
    """
    busy = np.minimum(rate * times.mean_prefill_s, MOST_PROMPT_SHARE)
    stay_s = times.mean_prefill_s + 0.5 * rate * times.square_prefill_s2 / (1.0 - busy)
    return np.asarray(rate * np.minimum(step_s + stay_s, asked.ttft_s) * _sent_behind(asked, busy))


def _sent_behind(asked: Asked, busy: Floats) -> Floats:
    """Return the share of prompts that a router sends behind others on a replica, shape (rates,)."""
    alone2 = asked.pooled_replicas**-2.0
    return np.asarray(alone2 + (1.0 - alone2) * _NO_BETTER * busy**2)
