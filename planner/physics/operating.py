"""Operating points for arrays of cases: at a concurrency, at a latency objective, at saturation.

With B sequences decoding, every step also carries the prefill of the requests that replace finished ones, B/O a step,
so the time per output token is explicit in B and so is everything else:

    TPOT(B) = fixed + routed·(1 − (1 − k/E)^B) + B·(per sequence + cache·context + prefill/O)
    TTFT    = first + prefills ahead + steps·TPOT
    C       = B·(1 + TTFT / (O·TPOT))                                  (Little's law over one request)

A given concurrency is solved for B as a quadratic (the experts' term by its tangent, five times); an objective by
bracketing B.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.arrays import Bools, FloatLike, Floats, Ints
    from planner.physics.replica import Replicas

TANGENT_STEPS = 5
BRACKET_STEPS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Request lengths, cached share and burstiness; every field is a number or an array of shape (cases,)."""

    input_tokens: FloatLike
    """Mean prompt length, cached prefix included."""
    output_tokens: FloatLike
    cached_fraction: FloatLike = 0.0
    """Share of the prompt found in the prefix cache: no prefill, but it occupies memory and is read every step."""
    input_cv: FloatLike = 0.0
    """Coefficient of variation of prompt lengths; attention grows with the square."""
    output_cv: FloatLike = 0.0
    """Coefficient of variation of output lengths; a token sees the context of longer outputs more often."""
    burst_fraction: FloatLike = 0.0
    """1 for a benchmark client that starts its whole concurrency at once, 0 for independent arrivals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Latencies and throughput of replicas, shape (cases,) each; infeasible cases have infinite latency, no tokens."""

    ttft_s: Floats
    tpot_s: Floats
    running_sequences: Floats
    """Sequences decoding at once."""
    concurrency: Floats
    """Requests in the replica: decoding, in prefill or waiting."""
    output_tokens_per_s_per_accelerator: Floats
    requests_per_s: Floats
    fits: Bools
    """Whether the model and one sequence fit in memory."""
    memory_limited: Bools
    """Whether requests wait for cache memory."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of the throughput formula by case, shape (cases,)."""

    output_tokens: Floats
    accelerators: Floats
    fixed_s: Floats
    routed_s: Floats
    log_missed: Floats
    sequence_s: Floats
    """Cost of one more running sequence, its share of prefill included."""
    prefill_s: Floats
    first_s: Floats
    ahead_s: Floats
    """Waiting for prefills ahead, per request in the replica."""
    queue_s: Floats
    """Mean residual prefill, (1 + cv²)/2 of one: what an arrival that finds the replica prefilling waits."""
    steps: Floats
    largest_batch: Floats
    fits: Bools

    def only(self, cases: Ints) -> _Terms:
        """Return the terms of some of the cases."""
        return _Terms(*(getattr(self, field.name).take(cases) for field in fields(self)))

    def tpot_s(self, batch: Floats) -> Floats:
        """Return the time per output token with ``batch`` sequences decoding."""
        touched = -np.expm1(batch * self.log_missed)
        return self.fixed_s + self.routed_s * touched + self.sequence_s * batch

    def at_batch(self, batch: Floats) -> tuple[Floats, Floats, Floats]:
        """Return TPOT, TTFT and concurrency with ``batch`` sequences decoding and none queued for memory."""
        tpot_s = self.tpot_s(batch)
        decode_s = self.output_tokens * tpot_s
        base_s = self.first_s + self.steps * tpot_s + self.waited_s(batch, decode_s)
        ahead = self.ahead_s * batch / decode_s
        concurrency = batch * (1.0 + base_s / decode_s) / (1.0 - np.minimum(ahead, 0.99))
        return tpot_s, base_s + self.ahead_s * concurrency, concurrency

    def waited_s(self, batch: Floats, decode_s: Floats) -> Floats:
        """Return the wait for prefills under way (Pollaczek–Khinchine at the share of time spent in prefill)."""
        share = np.minimum(batch * self.prefill_s / decode_s, 0.95)
        waited: Floats = self.queue_s * share / (1.0 - share)
        return waited


def at_concurrency(replicas: Replicas, replica: Ints, traffic: Traffic, concurrency: FloatLike) -> OperatingPoint:
    """Return the operating points at a fixed concurrency (closed loop); ``replica`` selects replicas by index."""
    return _solved(replicas, replica, traffic, _solve_concurrency, concurrency)


def at_objective(
    replicas: Replicas, replica: Ints, traffic: Traffic, ttft_s: FloatLike, tpot_s: FloatLike
) -> OperatingPoint:
    """Return the largest load at which mean TTFT and TPOT meet their objectives (infinity: no objective)."""
    return _solved(replicas, replica, traffic, _solve_objective, ttft_s, tpot_s)


def disaggregated(
    replicas: Replicas, traffic: Traffic, objectives_s: tuple[float, float], transfer_s: Floats
) -> tuple[Floats, OperatingPoint]:
    """Return the requests each replica prefills a second within the TTFT objective, and its point as a decode worker.

    A prefill worker is a queue with one server: at the share ρ of time it works, an arrival waits (1 + cv²)/2·ρ/(1 − ρ)
    prefills (Pollaczek–Khinchine), so the objective leaves room for ρ = s/(s + (1 + cv²)/2·prefill), s being what is
    left of it after the prefill, the cache's transfer and the first step. A decode worker prefills nothing.
    """
    ttft_s, tpot_s = objectives_s
    index = np.arange(replicas["accelerators"].size)
    terms = _terms(replicas, index, traffic)
    decode = at_objective(replicas, index, replace(traffic, cached_fraction=1.0), np.inf, tpot_s)
    slack_s = np.maximum(ttft_s - terms.first_s - transfer_s - decode.tpot_s, 0.0)
    busy = np.minimum(slack_s / (slack_s + terms.queue_s), 0.95)
    return np.where(decode.fits, busy / terms.prefill_s, 0.0), decode


HANDOVER_S, OWN_PREFILL, STEPS_APART, BURST_SHARE, BLUR = 0.34, 0.64, 10.0, 0.116, 0.23
"""First token behind a prefill pool: fixed time (router, transfer of the cache, second scheduler), own prefills, decode
steps, share of a round's prefills ahead of a request as clients start together, and how gradually the pool fills up;
fitted to 82 public runs that state their workers, 29% off in the median and 21 to 45% on a part left out."""


def first_token_apart_s(
    replicas: Replicas, replica: Ints, traffic: Traffic, tpot_s: Floats, per_prefill_accelerator: Floats, busy: Floats
) -> Floats:
    """Return the mean TTFT of closed-loop clients with a separate prefill pool, shape (cases,).

    The pool takes R = C·prefill/W for one request of each of C clients. It keeps up where R is below the O·TPOT that
    they decode meanwhile; beyond, a client waits for what is left of a round, R − O·TPOT. The pool is given by C over
    its accelerators, and by the share of time for which it works at most.
    """
    terms = _terms(replicas, replica, traffic)
    decode_s = terms.output_tokens * tpot_s
    round_s = np.minimum(terms.prefill_s * terms.accelerators * per_prefill_accelerator, busy * decode_s)
    late_s = round_s - decode_s
    late_s = 0.5 * (late_s + np.hypot(late_s, BLUR * round_s))
    first_s: Floats = HANDOVER_S + OWN_PREFILL * terms.prefill_s + STEPS_APART * tpot_s + BURST_SHARE * round_s + late_s
    return first_s


def at_saturation(replicas: Replicas, replica: Ints, traffic: Traffic) -> OperatingPoint:
    """Return the operating points at saturation (offline): the largest batch that memory or the engine allows."""
    return _solved(replicas, replica, traffic, _solve_saturation)


_Solution: TypeAlias = "tuple[Floats, Floats, Floats, Floats]"
"""Batch, TPOT, TTFT and concurrency, each of shape (cases,)."""


def _solve_concurrency(terms: _Terms, concurrency: Floats) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency at a fixed concurrency (closed loop).

    Little's law with TPOT = s₀ + s₁·B is D·s₁·B² + (D·s₀ + G − C·s₁)·B − C·s₀ = 0, D = 1 + steps/O and G the rest of
    TTFT over O. What exceeds the largest batch waits for memory: C/B_max cycles fill one.
    """
    output = terms.output_tokens
    one_and_steps = 1.0 + terms.steps / output
    first_s = terms.first_s + terms.ahead_s * concurrency
    guess_s = queue_s = np.zeros_like(first_s)
    most_queue_s = concurrency * terms.queue_s  # no more than half the others' prefills can lie ahead
    batch = np.minimum(concurrency, terms.largest_batch)
    before: tuple[Floats, Floats] | None = None
    for _ in range(TANGENT_STEPS):
        first = (first_s + guess_s) / output
        missed = np.exp(batch * terms.log_missed)
        slope = terms.sequence_s - terms.routed_s * terms.log_missed * missed
        start = terms.fixed_s + terms.routed_s * (1.0 - missed) + (terms.sequence_s - slope) * batch
        half = 0.5 * (one_and_steps * start + first - concurrency * slope)
        square = one_and_steps * slope
        batch = (np.sqrt(half * half + square * concurrency * start) - half) / square
        queue_s = np.minimum(terms.waited_s(batch, output * (start + slope * batch)), most_queue_s)
        # A longer wait makes a smaller batch, which waits less: putting the result in as the next guess swings around
        # the answer, and halves the miss at best. So it is the secant through this guess and the one before.
        miss_s, following_s = queue_s - guess_s, queue_s
        if before is not None:
            turn_s = miss_s - before[1]
            step_s = np.divide(guess_s - before[0], turn_s, out=np.zeros_like(turn_s), where=turn_s != 0.0)
            following_s = np.maximum(guess_s - miss_s * step_s, 0.0)
        before, guess_s = (guess_s, miss_s), following_s
    batch = np.minimum(batch, terms.largest_batch)
    tpot_s = terms.tpot_s(batch)
    decode_s = output * tpot_s
    ttft_s = first_s + queue_s + terms.steps * tpot_s
    waiting_s = concurrency / batch * decode_s - decode_s - ttft_s
    ttft_s = np.where(batch >= terms.largest_batch, ttft_s + np.maximum(waiting_s, 0.0), ttft_s)
    return batch, tpot_s, ttft_s, concurrency


def _solve_objective(terms: _Terms, ttft_s: Floats, tpot_s: Floats) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency of the largest feasible load; batch 0 where one sequence is too slow."""
    one = np.ones_like(terms.largest_batch)
    # The experts' term is never negative, so no batch beyond this meets TPOT: a bracket that a dense model ends at.
    high = np.clip((tpot_s - terms.fixed_s) / terms.sequence_s, 1.0, terms.largest_batch)
    excess_low, excess_high = _excess(terms, one, ttft_s, tpot_s), _excess(terms, high, ttft_s, tpot_s)
    feasible = excess_low <= 0.0
    batch = np.where(feasible, high, 0.0)
    open_cases = np.flatnonzero(feasible & (excess_high > 0.0))
    if open_cases.size:
        # The largest batch within the objectives, by false position that halves the retained end (Illinois).
        some, objectives, low = terms.only(open_cases), (ttft_s[open_cases], tpot_s[open_cases]), one[open_cases]
        high, excess_low, excess_high = high[open_cases], excess_low[open_cases], excess_high[open_cases]
        for step in range(BRACKET_STEPS):
            if step % 4 == 1:  # the experts' term bends the curve: now and then halve the bracket's ratio instead
                middle = np.sqrt(low * high)
            else:
                falls = np.minimum(excess_low - excess_high, -1e-12)
                middle = np.clip(low + (high - low) * excess_low / falls, low, high)
            excess = _excess(some, middle, *objectives)
            below = excess <= 0.0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            excess_low = np.where(below, excess, 0.5 * excess_low)
            excess_high = np.where(below, 0.5 * excess_high, excess)
        batch[open_cases] = low
    reached_tpot_s, reached_ttft_s, concurrency = terms.at_batch(np.maximum(batch, 1.0))
    return batch, reached_tpot_s, reached_ttft_s, np.where(feasible, concurrency, 0.0)


def _excess(terms: _Terms, batch: Floats, ttft_s: Floats, tpot_s: Floats) -> Floats:
    """Return by what fraction the worse of the two objectives is exceeded; negative where both are met."""
    reached_tpot_s, reached_ttft_s, _ = terms.at_batch(batch)
    over: Floats = np.maximum(reached_tpot_s / tpot_s, reached_ttft_s / ttft_s) - 1.0
    return over


def _solve_saturation(terms: _Terms) -> _Solution:
    """Return batch, TPOT, TTFT and concurrency at saturation, where the queue and the wait are endless."""
    batch = terms.largest_batch
    endless = np.full_like(batch, np.inf)
    return batch, terms.tpot_s(batch), endless, endless


def _terms(replicas: Replicas, replica: Ints, traffic: Traffic) -> _Terms:
    """Return the throughput formula's terms by case, gathered by replica."""

    def of(name: str) -> Floats:
        return replicas[name].take(replica)

    lengths, spreads = (traffic.input_tokens, traffic.output_tokens), (traffic.input_cv, traffic.output_cv)
    given = np.broadcast_arrays(replica, *lengths, *spreads, traffic.cached_fraction, traffic.burst_fraction)[1:]
    prompt, output, input_cv, output_cv, cached, burst = (np.asarray(column, dtype=float) for column in given)
    input_cv2, output_cv2 = 1.0 + input_cv**2, 1.0 + output_cv**2
    windowed, window, indexed = of("windowed_fraction"), of("window_tokens"), of("index_fraction")

    def kept(context: Floats) -> Floats:
        tokens: Floats = context - windowed * np.maximum(context - window, 0.0)
        return tokens

    def read(context: Floats) -> Floats:
        """Return the tokens read of a context: those attended to, and an indexer's share of each."""
        tokens: Floats = np.minimum(context, of("attended_tokens")) + indexed * context
        return tokens

    attended = read(kept(0.5 * prompt))
    prefill_s = of("prefill_s_per_token") * prompt * (1.0 - cached)
    prefill_s += of("attention_s_per_token2") * prompt * attended * input_cv2 * (1.0 - cached * cached)
    context = read(kept(prompt + 0.5 * output * output_cv2))
    held = kept(prompt + output * of("reserved_output_fraction") * output_cv2)
    room = of("kv_capacity_tokens") / held
    return _Terms(
        output,
        of("accelerators"),
        of("fixed_s"),
        of("routed_s"),
        of("log_expert_missed"),
        of("sequence_s") + of("kv_s_per_token") * context + prefill_s / output,
        prefill_s,
        of("ttft_fixed_s") + of("ttft_prefill") * prefill_s,
        of("ttft_burst") * burst * prefill_s * input_cv2,
        0.5 * prefill_s * input_cv2 * (1.0 - burst),
        of("ttft_burst_steps") * burst + of("ttft_arrival_steps") * (1.0 - burst),
        np.clip(room, 1.0, of("max_sequences")),
        room >= 1.0,
    )


def _solved(
    replicas: Replicas, replica: Ints, traffic: Traffic, solve: Callable[..., _Solution], *targets: FloatLike
) -> OperatingPoint:
    """Return the operating points of all cases, one for each replica selected, each at its own target or all at one."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        terms = _terms(replicas, replica, traffic)
        wanted = (np.broadcast_to(np.asarray(target, dtype=float), replica.shape) for target in targets)
        batch, tpot_s, ttft_s, concurrency = solve(terms, *wanted)
        served = np.where(terms.fits, batch, 0.0)  # what does not fit serves nothing and answers never
        rate = served / tpot_s
        return OperatingPoint(
            ttft_s=np.where(terms.fits, ttft_s, np.inf),
            tpot_s=np.where(terms.fits, tpot_s, np.inf),
            running_sequences=served,
            concurrency=concurrency,
            output_tokens_per_s_per_accelerator=rate / terms.accelerators,
            requests_per_s=rate / terms.output_tokens,
            fits=terms.fits,
            memory_limited=batch >= terms.largest_batch,
        )
