"""The SLO capacity of a node at the stated percentile, and the shares late and rejected at any load.

Prompts may be prefilled by accelerators of their own: two pools in balance, by mean times and at a percentile. A worker
that only prefills is one whose replies have a single token, and one that only decodes finds every prompt in its cache:
the late shares of both are those of a replica (``planner.physics.slo_model``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.errors import CapacityError
from planner.physics.operating import OperatingPoint, Traffic, at_objective, disaggregated
from planner.physics.replica import Lengths, Replicas, ReplicaSpec, ReplicaTimes, ServiceTerms
from planner.physics.slo_model import Curve, late_curve, most_rates, refusing, sustains_more, too_long_fraction
from planner.plan.plan import MOST_LOAD
from planner.scenario.cluster import Cluster
from planner.scenario.workload import Length, Workload

# Cells of probability: a long prompt makes itself and others late, and promises are about the last hundredths, so
# cells are finest there, and those of the longest two thousandths each half the one before; a short reply has few
# tokens over which a wait is shared, so cells of replies are finest where short.
_PROMPT_EDGES = (
    *(0.00245 * n for n in range(400)),
    *(0.98 + 0.0005 * n for n in range(37)),
    *(1.0 - 0.002 * 0.5**n for n in range(1, 7)),
    1.0,
)
_OUTPUT_EDGES = (0.0, 0.005, 0.015, 0.03, 0.06, 0.11, 0.18, 0.28, 0.42, 0.6, 0.8, 0.95, 1.0)
_POINTS_IN_CELL = 3
_MOST_POOLED = 64  # beyond which a larger pool changes nothing that shows
POOL_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, _MOST_POOLED)
"""Nodes and replicas behind a router for which figures are worked out."""


@functools.cache
def pooled_nodes(nodes: int) -> int:
    """Return a router's pool size rounded down to the grid of sizes for which figures are computed.

    So plans that differ by a few nodes share them, and a node more never lowers what each sustains.
    """
    return max((step for step in POOL_STEPS if step <= nodes), default=1)


_ROUNDING = 1e-9  # of requests: a share that is summed over cells of probability is no more exact


def traffic_of(workload: Workload, growth: Floats | float = 1.0) -> Traffic:
    """Return a workload's requests as the throughput formula takes them."""
    tokens = workload.lengths
    return Traffic(
        input_tokens=tokens.input.mean * growth,
        output_tokens=tokens.output.mean * growth,
        cached_fraction=workload.prefix_cache_hit_fraction,
        input_cv=tokens.input.distribution.coefficient_of_variation,
        output_cv=tokens.output.distribution.coefficient_of_variation,
    )


def lengths_of(workload: Workload, growth: float = 1.0) -> Lengths:
    """Return a workload's length distributions as lengths with weights, scaled by a growth factor."""
    tokens = workload.lengths
    return Lengths(
        prompt_tokens=np.maximum(_cells(tokens.input, _PROMPT_EDGES) * growth, 1.0),
        prompt_weights=np.diff(_PROMPT_EDGES),
        output_tokens=np.maximum(_cells(tokens.output, _OUTPUT_EDGES) * growth, 1.0),
        output_weights=np.diff(_OUTPUT_EDGES),
        cached_fraction=workload.prefix_cache_hit_fraction,
    )


@functools.lru_cache(maxsize=64)
def _cells(length: Length, edges: tuple[float, ...]) -> Floats:
    """Return the mean length in each probability cell."""
    return length.distribution.cells(edges, _POINTS_IN_CELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidate layouts of a cluster, and the size of the router pool."""

    replicas: Replicas
    mean_rates: Floats
    """Requests per second and accelerator by mean times, shape (layouts,): in their order layouts are tried, those
    below zero not at all."""
    router_pool: str
    nodes: int
    accelerators_per_node: int
    most_replicas: float = np.inf
    """Replicas that the workload's own traffic takes, beyond which there are none to choose from."""
    share: float = 1.0
    """Of the accelerators, those that do this part of the work."""
    pooling: float = 1.0
    """Power of the number of replicas that counts: below 1 where the wait of one makes those of the others longer."""

    def asked(self, index: int, workload: Workload) -> ServiceTerms:
        """Return a workload's latency objectives and the number of replicas its router pools in a layout."""
        per_node = max(self.accelerators_per_node / float(self.replicas["accelerators"][index]), 1.0)
        pooled = {"cluster": pooled_nodes(self.nodes) * per_node, "node": per_node, "replica": 1.0}[self.router_pool]
        return ServiceTerms(
            ttft_s=workload.slo.ttft_s,
            tpot_s=workload.slo.tpot_s,
            percentile=workload.slo.share,
            pooled_replicas=float(np.clip(min(pooled, self.most_replicas) * self.share, 1.0, _MOST_POOLED))
            ** self.pooling,
        )

    def best(
        self, speed: float, workload: Workload, lengths: Lengths, floor: float = 0.0
    ) -> tuple[int, Curve, float] | None:
        """Return the layout with the highest SLO capacity per accelerator, its curve and that rate.

        None where no layout sustains more than ``floor``.

        Mean times say in which order layouts are tried, so that few curves are worked out, and no more: they may rank
        the best of them far below another. A layout on which more prompts than may be late are too long, however idle
        it is, keeps no objective. It is taken only where all are so, and then the one on which fewest are: until then
        none of these is worked out.
        """
        order = np.argsort(-self.mean_rates, kind="stable")
        order = order[self.mean_rates[order] >= 0.0]
        together, slo = ReplicaTimes(self.replicas, order, speed, lengths), workload.slo
        keeping = too_long_fraction(together, slo.ttft_s) <= 1.0 - slo.share + _ROUNDING
        trials = list(zip(order.tolist(), keeping.tolist(), most_rates(together, slo.tpot_s).tolist(), strict=True))
        chosen: tuple[int, Curve, float] | None = None
        for tried in ([trial for trial in trials if trial[1]], trials):
            chosen, best = None, (floor > 0.0, floor or -1.0)
            for index, may_keep, most in tried:
                count = float(self.replicas["accelerators"][index])
                if best[0] and best[1] * count >= most:
                    continue
                times, asked = ReplicaTimes(self.replicas, index, speed, lengths), self.asked(index, workload)
                if best[0] and not sustains_more(times, asked, best[1] * count):
                    continue
                curve = late_curve(times, asked)
                rate = curve.capacity_requests_per_s / count
                keeps = rate > 0.0 and may_keep
                worth = (keeps, rate if keeps else -curve.too_long_fraction if rate > 0.0 else -1.0)
                if worth > best or (chosen is None and not floor):
                    chosen, best = (index, curve, rate), worth
            if floor > 0.0 or (chosen is not None and chosen[2] > 0.0):
                break
        return chosen


def stated_over_formula(cluster: Cluster, workload: Workload, candidates: Candidates) -> float | None:
    """Return the user's stated throughput over the formula's, at the lengths it was measured at.

    stated output tokens per second / output tokens of a request / the formula's requests per second, of an accelerator.
    Times the formula's requests at other lengths it is the stated throughput scaled to them. Objective, spread of
    lengths and cached share are the workload's on both sides, so that only the lengths differ; at either lengths the
    replica is the one that serves most. None where the user states none.
    """
    stated, lengths = cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at
    if stated is None or lengths is None:  # never one without the other: validation sees to it
        return None
    replicas = candidates.replicas
    there = replace(traffic_of(workload), input_tokens=lengths.input_tokens, output_tokens=lengths.output_tokens)
    which = np.arange(replicas["accelerators"].size)
    point = at_objective(replicas, which, there, workload.slo.ttft_s, workload.slo.tpot_s)
    rates = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0) / replicas["accelerators"]
    rates = np.where(candidates.mean_rates < 0.0, -1.0, rates)
    formula = float(rates.max())
    if workload.priority != "deferrable":
        planned, tokens = lengths_of(workload), workload.lengths
        prompts = planned.prompt_tokens * (lengths.input_tokens / tokens.input.mean)
        outputs = planned.output_tokens * (lengths.output_tokens / tokens.output.mean)
        measured = replace(planned, prompt_tokens=prompts, output_tokens=outputs)
        best = replace(candidates, mean_rates=rates).best(1.0, workload, measured)
        formula = best[2] if best else 0.0
    if formula <= 0:
        raise CapacityError(
            f"its stated throughput, measured at {lengths.input_tokens:g} prompt and {lengths.output_tokens:g} "
            f"generated tokens, cannot be scaled to {workload.lengths.input.mean:g} and "
            f"{workload.lengths.output.mean:g}: within the workload's objective the formula serves nothing at the "
            "lengths measured; state a measurement nearer to them"
        )
    return stated / lengths.output_tokens / formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A replica's operating point at its SLO, and its growth over the years."""

    yearly: Floats
    """Requests per second and accelerator after 0, 1, 2, ... years of growth in tokens."""
    outgrown_years: float
    """When its requests have grown so long that none is in time any more; infinity for never."""
    batch: float
    tpot_s: float
    """Mean, at the formula's speed."""
    prefill_fraction: float
    held_tpot_s: float
    """The mean time per token up to which a router that refuses admits requests, at the formula's speed."""
    lateness: Lateness = SHARP


def as_tokens_grow(workload: Workload, horizon_months: int, rate: Callable[[float], float]) -> tuple[Floats, float]:
    """Return the rates after 0, 1, 2, ... years of token growth, and the years after which the SLO is infeasible.

    ``rate`` has that of requests so many times as long as on day one. Once they are too long for the objective nothing
    is served at it: the rate stays what it last was, to be read until then alone; the month is found by halving.
    """
    yearly_growth = 1.0 + workload.lengths.growth_per_year
    years = np.arange(horizon_months // 12 + 2 if workload.lengths.growth_per_year else 1)
    rates = np.array([rate(float(yearly_growth**year)) for year in years])
    gone = int(np.argmax(rates <= 0.0))
    if rates[gone] > 0.0 or gone == 0:
        return rates, np.inf
    low, high = 12 * (gone - 1), 12 * gone
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rate(yearly_growth ** (middle / 12)) > 0.0 else (low, middle)
    return np.where(years < gone, rates, rate(yearly_growth ** (low / 12))), high / 12


def slo_point(
    candidates: Candidates, workload: Workload, horizon_months: int, speeds: tuple[float, float], floor: float = 0.0
) -> tuple[int, Point] | None:
    """Return the best layout, and its operating point at the SLO percentile.

    ``speeds`` are that of the steps, and a factor on the rates that come of it. None where no layout sustains more than
    ``floor`` requests per second and accelerator.
    """
    lengths, replicas, (speed, factor) = lengths_of(workload), candidates.replicas, speeds
    chosen = candidates.best(speed, workload, lengths, floor / factor)
    if chosen is None:
        return None
    best, curve, rate = chosen
    accelerators = float(replicas["accelerators"][best])
    times, asked = ReplicaTimes(replicas, best, speed, lengths), candidates.asked(best, workload)

    def after(growth: float) -> float:
        if growth == 1.0:
            return curve.capacity_requests_per_s / accelerators
        later = ReplicaTimes(replicas, best, speed, lengths_of(workload, growth))
        return late_curve(later, asked).capacity_requests_per_s / accelerators

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, after)
    batch, tpot_s = curve.at(rate * accelerators)
    _, peak_tpot_s = curve.at(curve.slo_capacity_requests_per_s())
    # Above the pace at capacity fewer are in time than is promised; above that of the peak, fewer at all.
    held_s = 0.5 * (tpot_s + peak_tpot_s)
    if curve.capacity_requests_per_s <= 0.0:
        lateness = SHARP
    elif workload.admission == "queue":
        lateness = without_end(*_up_to_all(curve), curve)
    else:
        lateness = _refusing_lateness(curve, times, asked, held_s)
    return best, Point(
        yearly=yearly * factor,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed,
        prefill_fraction=_prefill_fraction(replicas, best, workload, rate * accelerators / speed),
        held_tpot_s=held_s * speed,
        lateness=lateness,
    )


def mean_point(
    replicas: Replicas, best: int, workload: Workload, point: OperatingPoint, horizon_months: int, speed: float
) -> Point:
    """Return the operating point of deferrable work, by mean times since its deadline is hours away."""

    def after(growth: float) -> float:
        later, place = point, best
        if growth != 1.0:
            traffic, slo = traffic_of(workload, growth), workload.slo
            later, place = at_objective(replicas, np.array([best]), traffic, slo.ttft_s, slo.tpot_s), 0
        rate = float(later.requests_per_s[place])
        return rate / float(replicas["accelerators"][best]) if np.isfinite(rate) else 0.0

    rates, outgrown_years = as_tokens_grow(workload, horizon_months, after)
    return Point(
        yearly=rates * speed,
        outgrown_years=outgrown_years,
        batch=float(point.running_sequences[best]),
        tpot_s=float(point.tpot_s[best]),
        held_tpot_s=float(point.tpot_s[best]),
        prefill_fraction=_prefill_fraction(replicas, best, workload, float(point.requests_per_s[best])),
    )


def _prefill_fraction(replicas: Replicas, best: int, workload: Workload, requests_per_s: float) -> float:
    """Return the share of a loaded replica's time spent in prefill."""
    prompt = workload.lengths.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
    prefill_s = prompt * replicas["prefill_s_per_token"][best]
    prefill_s += prompt * workload.lengths.input.mean * replicas["attention_s_per_token2"][best]
    return float(np.clip(requests_per_s * prefill_s, 0.0, 0.95))


_OVERLOADS = (1.05, 1.1, 1.2, 1.35, 1.5, 1.75, MOST_LOAD)  # loads beyond capacity at which refusals are worked out
_FAR_BEYOND = (2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # the same where few are missed at the last of those
_BY_PACE = 3  # of those, at which the pace alone is worked out where more are missed: there the best choice is unknown
_FEW_MISSED = 0.025
"""Share missed at twice the capacity, beyond what is too long on an idle replica, up to which capacity says little of
what a replica can do: a few long prompts that nothing may delay make it small. Held against the zoom."""
_MANY_MISSED = 0.1  # of the same: from there on no more is offered
_EVEN = 5.0
"""A request is refused in proportion to this times the share refused, and its prompt over the mean prompt, where the
pace is held: the more are refused, the less it hangs on their length. Fitted to the zoom's routers at 120 to 300% load
on 33 pairs of traffic and machines, which they match by 3 points of requests missed."""
_REFUSED = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Shares refused between which that at a load is interpolated."""
_BATCHES = np.linspace(0.0, 1.0, 200)[1:]  # over the largest, between which that of a pace is interpolated


def without_end(loads: Floats, late: Floats, curve: Curve) -> Lateness:
    """Return miss shares by load that reach 1 at the largest load a replica can carry.

    ``curve`` is that of the replica on which a first token waits.
    """
    return Lateness(
        loads=(*loads.tolist(), float(loads[-1]) * (1.0 + 1e-6)),
        late_fractions=(*late.tolist(), 1.0),
        refused_fractions=(0.0,) * (loads.size + 1),
        too_long_fraction=curve.too_long_fraction,
        alone_s=curve.alone_s,
        refuses=False,
    )


def _refusing_lateness(curve: Curve, times: ReplicaTimes, asked: ServiceTerms, held_s: float) -> Lateness:
    """Return the shares late and rejected where the router rejects requests that would be late.

    Beyond capacity as many are missed as by the best choice of whom to refuse, or more, where a router that holds the
    pace of its replicas, a mean time per token, has to refuse more.
    """
    capacity, (loads, late) = curve.capacity_requests_per_s, _up_to_all(curve)
    # What is refused counts as missed as much as what is late, and more load never leaves fewer missed.
    at_capacity = float(np.interp(1.0, loads, late))
    rates, admitted = _admitted_by_pace(times, held_s)

    def by_pace(overloads: tuple[float, ...]) -> Floats:
        rate = capacity * np.array(overloads)
        return np.asarray(np.maximum(1.0 - np.interp(rate, rates, admitted) / rate, 0.0))

    def beyond_capacity(overloads: tuple[float, ...]) -> tuple[Floats, Floats]:
        refused, beyond = refusing(times, asked, capacity * np.array(overloads))
        best = np.maximum(refused + (1.0 - refused) * beyond, at_capacity)
        missed = np.maximum.accumulate(np.maximum(best, by_pace(overloads)))
        return np.minimum(np.maximum.accumulate(np.maximum(refused, by_pace(overloads))), missed), missed

    overloads: tuple[float, ...] = _OVERLOADS
    refused, missed = beyond_capacity(overloads)
    if missed[-1] - curve.too_long_fraction < _FEW_MISSED:
        refused, missed = beyond_capacity(overloads + _FAR_BEYOND)
        kept = min(int((missed - curve.too_long_fraction < _MANY_MISSED).sum()) + 1, missed.size)
        overloads, refused, missed = (overloads + _FAR_BEYOND)[:kept], refused[:kept], missed[:kept]
    else:
        further = _FAR_BEYOND[:_BY_PACE]
        overloads += further
        refused, missed = (np.append(share, np.maximum(share[-1], by_pace(further))) for share in (refused, missed))
    below = loads < 1.0
    return Lateness(
        loads=(*loads[below].tolist(), 1.0, *overloads),
        late_fractions=(*late[below].tolist(), at_capacity, *(missed - refused).tolist()),
        refused_fractions=(0.0,) * (int(below.sum()) + 1) + tuple(refused.tolist()),
        too_long_fraction=curve.too_long_fraction,
        alone_s=curve.alone_s,
    )


def _up_to_all(curve: Curve) -> tuple[Floats, Floats]:
    """Return loads over capacity and the miss share at each, from zero to the largest load."""
    loads = np.append(0.0, curve.requests_per_s / curve.capacity_requests_per_s)
    return loads, np.append(curve.too_long_fraction, curve.late_fraction)


def _admitted_by_pace(times: ReplicaTimes, held_s: float) -> tuple[Floats, Floats]:
    """Return rising request rates, and the rates a router admits of them to hold a mean time per token.

    It admits a request where the batch with it keeps the pace, whoever comes, so that with a share q refused the rate
    admitted, λ·(1 − q), is the one whose batch B has TPOT(B) = held. Long prompts wait longer for their first token and
    are refused more often, and what is left is faster: q is refused at λ = B / (E[output]·held) / (1 − q).
    """
    lengths = times.lengths
    relative = lengths.prompt_tokens / (lengths.prompt_weights @ lengths.prompt_tokens)
    rates, admitted = [], []
    for share in _REFUSED:
        even = _EVEN * share
        left = lengths.prompt_weights * (1.0 - np.minimum(share * (even + relative) / (even + 1.0), 1.0))
        thinned = times.weighted(left / left.sum())
        batches = max(thinned.most_batch, 1.0) * _BATCHES
        batch = np.interp([held_s], thinned.tpot_s(batches), batches)
        admitted.append(float(thinned.requests_per_s(batch)[0]))
        rates.append(admitted[-1] / float(left.sum()))
    return np.maximum.accumulate(rates), np.array(admitted)


_TO_FIRST_TOKENS = 0.8
"""Of the requests that may be late, those left to first tokens: the time per token hardly varies where no prompt is
computed beside it, so little room is enough for it (assumption)."""
_PREFILL_POOLING = 0.5
"""Power of the number of prefill workers among which a router is as good as choosing freely: a long prompt that holds
one of them up sends what it would have taken to the others. Held to the zoom."""
_PREFILL_FILL = 0.92
"""What a pool of prefill workers sustains over what the waits of one by itself allow: held to the zoom, where a queue
of prompts, once there, drains slowly."""
_NO_OBJECTIVE_S = 60.0  # to the first token of a worker that computes no prompt, per token of one that only does


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A balanced pair of prefill pool and decode pool (disaggregated serving)."""

    rate: float
    """Requests per second and accelerator of both together."""
    prefill: int
    """The prefill workers' layout, by its place among the candidates."""
    decode: int
    """The decode workers'."""
    prefill_share: float
    """Share of the accelerators that prefill."""
    transfer_s: float
    """Time in which a mean prompt's cache moves from one pool to the other."""
    point: OperatingPoint
    """Of the decode workers, by layout."""
    mean_rates: tuple[Floats, Floats]
    """Requests per second and accelerator of prefill and of decode workers by mean times, shape (layouts,) each."""


def separate(specs: list[ReplicaSpec], candidates: Candidates, workload: Workload, growth: float = 1.0) -> Apart:
    """Return the best prefill workers balanced with the best decode workers, by mean times.

    1/rate = 1/prefill rate + 1/decode rate. Workers that decode are among the layouts that may be tried, where the
    chunk is the smallest, as they compute no prompt; those that prefill are any, with the largest.
    """
    replicas, chunks = candidates.replicas, candidates.replicas["chunk_tokens"]
    may_decode = candidates.mean_rates >= 0.0
    may_decode &= chunks == chunks[may_decode].min()
    traffic = traffic_of(workload, growth)
    prompt = workload.lengths.input.mean * growth * (1.0 - workload.prefix_cache_hit_fraction)
    cached = [spec.part.formats[spec.precision].cache_bytes for spec in specs]
    moved = np.array([s.shape.kv_bytes_per_token(width) * prompt for s, width in zip(specs, cached, strict=True)])
    network = np.array([spec.part.network_bytes_per_s * spec.accelerators for spec in specs])
    objectives_s = (workload.slo.ttft_s, workload.slo.tpot_s)
    prefills, point = disaggregated(replicas, traffic, objectives_s, moved / network)
    decoded = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0)
    prefill = np.where(chunks == chunks.max(), prefills / replicas["accelerators"], -1.0)
    decode = np.where(may_decode, decoded / replicas["accelerators"], -1.0)
    first, second = int(np.argmax(prefill)), int(np.argmax(decode))
    total = float(prefill[first] + decode[second])
    return Apart(
        rate=float(prefill[first] * decode[second]) / total if total > 0.0 else 0.0,
        prefill=first,
        decode=second,
        prefill_share=float(decode[second]) / total if total > 0.0 else 0.0,
        transfer_s=float((moved / network)[first]),
        point=point,
        mean_rates=(prefill, decode),
    )


def workers(accelerators: int, sizes: tuple[int, int], rates: tuple[float, float]) -> tuple[int, int]:
    """Return the whole prefill and decode workers that serve most with some accelerators; none where two do not fit.

    ``sizes`` are the accelerators of one worker of each kind, and ``rates`` what each accelerator of it sustains.
    """
    first, second = sizes
    prefill = np.arange(1, max((accelerators - second) // first, 0) + 1)
    decode = (accelerators - prefill * first) // second
    if not prefill.size:
        return 0, 0
    best = int(np.argmax(np.minimum(prefill * first * rates[0], decode * second * rates[1])))
    return int(prefill[best]), int(decode[best])


def apart_point(
    candidates: Candidates,
    specs: list[ReplicaSpec],
    workload: Workload,
    months: int,
    speeds: tuple[float, float],
    floor: float = 0.0,
) -> tuple[Apart, Point] | None:
    """Return the disaggregated pools and their operating point at the SLO; by mean times for deferrable work.

    ``speeds`` are that of the steps, and a factor on the rates that come of it; ``months`` are the horizon's. None
    where no pools sustain more than ``floor`` requests per second and accelerator.
    """
    speed, factor = speeds
    lateness = SHARP
    if workload.priority == "deferrable":
        by_mean = functools.partial(separate, specs, candidates, workload)
        apart, factor = by_mean(), speed * factor
        if apart.rate * factor <= floor and floor > 0.0:
            return None
        yearly, outgrown_years = as_tokens_grow(workload, months, lambda growth: by_mean(growth).rate)
        batch, tpot_s = (float(of[apart.decode]) for of in (apart.point.running_sequences, apart.point.tpot_s))
    else:
        pools = _within_slo(candidates, specs, workload, speed, floor=floor / factor)
        if pools is None:
            return None
        apart, prefill, decode = pools

        def after(growth: float) -> float:
            later = pools if growth == 1.0 else _within_slo(candidates, specs, workload, speed, growth)
            return later[0].rate if later is not None else 0.0

        yearly, outgrown_years = as_tokens_grow(workload, months, after)
        batch, tpot_s = decode.at(decode.capacity_requests_per_s)
        tpot_s *= speed
        lateness = _lateness_of_both(prefill, decode)
        lateness = lateness if workload.admission == "queue" else lateness.up_to_capacity()
    return apart, Point(
        yearly=yearly * factor,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s,
        held_tpot_s=tpot_s,
        lateness=lateness,
        prefill_fraction=apart.prefill_share,
    )


def _within_slo(
    candidates: Candidates,
    specs: list[ReplicaSpec],
    workload: Workload,
    speed: float,
    growth: float = 1.0,
    floor: float = 0.0,
) -> tuple[Apart, Curve, Curve] | None:
    """Return the balanced pools at the SLO percentile, and the miss curves of a worker of each.

    A router sees the workers of its pool alone, as many as mean times would make it. Both kinds must stand on the
    accelerators there are: the larger ones of either are left out, and where no two fit nothing is served. Pools in
    balance sustain p·d/(p + d): None as soon as that is seen to be no more than ``floor``.
    """
    mean, lengths = separate(specs, candidates, workload, growth), lengths_of(workload, growth)
    slo, may_be_late = workload.slo, 1.0 - workload.slo.share
    first_s = max(slo.ttft_s - mean.transfer_s - slo.tpot_s, 1e-3)
    to_first = {"ttft_s": first_s, "tpot_s": _NO_OBJECTIVE_S, "percentile": 1.0 - _TO_FIRST_TOKENS * may_be_late}
    to_tokens = {"ttft_s": _NO_OBJECTIVE_S, "percentile": 1.0 - (1.0 - _TO_FIRST_TOKENS) * may_be_late}

    counts = candidates.replicas["accelerators"]
    most = pooled_nodes(candidates.nodes) if candidates.router_pool == "cluster" else 1
    there = most * candidates.accelerators_per_node

    def best(
        pool: int, room: float, asked: dict[str, float], work: Lengths, least: float
    ) -> tuple[int, Curve, float] | None:
        """Return the best workers of a pool that leave room for another, the miss curve of one, and its rate."""
        terms = workload.model_copy(update={"slo": slo.model_copy(update=asked)})
        rates, share = mean.mean_rates[pool], mean.prefill_share if pool == 0 else 1.0 - mean.prefill_share
        fitting = np.where(counts <= room, rates, -1.0)
        rates = fitting if fitting.max() >= 0.0 else rates
        pooling = _PREFILL_POOLING if pool == 0 else 1.0
        return replace(candidates, mean_rates=rates, share=share, pooling=pooling).best(speed, terms, work, least)

    bare = replace(lengths, output_tokens=np.ones(1), output_weights=np.ones(1))
    room = there - counts[mean.mean_rates[1] >= 0.0].min()
    if (prefills := best(0, room, to_first, bare, floor / _PREFILL_FILL)) is None:
        return None
    first, prefill, prefill_rate = prefills
    prefill_rate *= _PREFILL_FILL
    least = 1.0 / (1.0 / floor - 1.0 / prefill_rate) if floor > 0.0 else 0.0
    decodes = best(1, there - counts[first], to_tokens, replace(lengths, cached_fraction=1.0), least)
    if decodes is None:
        return None
    second, decode, decode_rate = decodes
    sizes = specs[first].accelerators, specs[second].accelerators
    pool = int(min(there, candidates.most_replicas * sum(sizes)))
    split = workers(pool, sizes, (prefill_rate, decode_rate))
    rate = min(split[0] * sizes[0] * prefill_rate, split[1] * sizes[1] * decode_rate) / pool
    if rate <= floor and floor > 0.0:
        return None
    apart = replace(mean, rate=rate, prefill=first, decode=second, prefill_share=split[0] * sizes[0] / pool)
    return apart, prefill, decode


def _lateness_of_both(prefill: Curve, decode: Curve) -> Lateness:
    """Return the miss share by load over capacity of requests that must pass both pools within the SLO."""
    if min(prefill.capacity_requests_per_s, decode.capacity_requests_per_s) <= 0.0:
        return SHARP
    pools = (prefill, decode)
    by_pool = [(curve.requests_per_s / curve.capacity_requests_per_s, curve.late_fraction) for curve in pools]
    last = min(float(loads[-1]) for loads, _ in by_pool)
    loads = np.unique(np.concatenate([[0.0], *(loads[loads <= last] for loads, _ in by_pool), [last]]))
    attainment = np.ones_like(loads)
    for at, late in by_pool:
        attainment *= 1.0 - np.interp(loads, at, late)
    return without_end(loads, np.maximum.accumulate(1.0 - attainment), prefill)
