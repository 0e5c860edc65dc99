"""What a node sustains with the stated share of requests in time, and the share late at any load."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.errors import CapacityError
from planner.physics.operating import OperatingPoint, Traffic, at_objective
from planner.physics.replica import Replicas
from planner.physics.replica_times import Asked, Lengths, ReplicaTimes
from planner.physics.slo_model import Curve, late_curve, refusing, sustains_more, too_long_fraction
from planner.plan import overload
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
    """Return the nodes behind a router in steps of at most a half, rounded down, for which figures are worked out once.

    So plans that differ by a few nodes share them, and a node more never lowers what each sustains.
    """
    return max((step for step in POOL_STEPS if step <= nodes), default=1)


_ROUNDING = 1e-9  # of requests: a share that is summed over cells of probability is no more exact


def traffic_of(workload: Workload, growth: Floats | float = 1.0) -> Traffic:
    """Return a workload's requests as the throughput formula takes them."""
    tokens = workload.tokens
    return Traffic(
        input_tokens=tokens.input.mean * growth,
        output_tokens=tokens.output.mean * growth,
        cached_fraction=workload.prefix_cache_hit_fraction,
        input_cv=tokens.input.distribution.coefficient_of_variation,
        output_cv=tokens.output.distribution.coefficient_of_variation,
    )


def lengths_of(workload: Workload, growth: float = 1.0) -> Lengths:
    """Return a workload's lengths as sets of lengths with weights, all times a factor."""
    tokens = workload.tokens
    return Lengths(
        prompt_tokens=np.maximum(_cells(tokens.input, _PROMPT_EDGES) * growth, 1.0),
        prompt_weights=np.diff(_PROMPT_EDGES),
        output_tokens=np.maximum(_cells(tokens.output, _OUTPUT_EDGES) * growth, 1.0),
        output_weights=np.diff(_OUTPUT_EDGES),
        cached_fraction=workload.prefix_cache_hit_fraction,
    )


@functools.lru_cache(maxsize=64)
def _cells(length: Length, edges: tuple[float, ...]) -> Floats:
    """Return the mean lengths of cells of probability."""
    return length.distribution.cells(edges, _POINTS_IN_CELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Layouts among which a cluster chooses, and how its requests reach them."""

    replicas: Replicas
    mean_rates: Floats
    """Requests per second and accelerator by mean times, shape (layouts,): in their order layouts are tried."""
    router_pool: str
    nodes: int
    accelerators_per_node: int
    most_replicas: float = np.inf
    """Replicas that the workload's own traffic takes, beyond which there are none to choose from."""
    share: float = 1.0
    """Of the accelerators, those that do this part of the work."""

    def asked(self, index: int, workload: Workload) -> Asked:
        """Return what a workload is promised by replicas of one layout that are pooled as the scenario says."""
        per_node = max(self.accelerators_per_node / float(self.replicas.accelerators[index]), 1.0)
        pooled = {"cluster": pooled_nodes(self.nodes) * per_node, "node": per_node, "replica": 1.0}[self.router_pool]
        return Asked(
            ttft_s=workload.slo.ttft_s,
            tpot_s=workload.slo.tpot_s,
            percentile=workload.slo.percentile,
            pooled_replicas=float(np.clip(min(pooled, self.most_replicas) * self.share, 1.0, _MOST_POOLED)),
        )

    def curve(self, index: int, speed: float, workload: Workload, lengths: Lengths) -> Curve:
        """Return the late share of one layout."""
        return late_curve(ReplicaTimes(self.replicas, index, speed, lengths), self.asked(index, workload))

    def best(self, speed: float, workload: Workload, lengths: Lengths) -> tuple[int, Curve, float]:
        """Return the layout that keeps most requests a second and accelerator in time, its curve and that rate.

        A layout on which more prompts than may be late are too long, however idle it is, keeps no objective. It is
        taken only where all are so, and then the one on which fewest are: until then none of these is worked out.
        """
        order = np.argsort(-self.mean_rates, kind="stable").tolist()
        layouts = [
            _Layout(index, ReplicaTimes(self.replicas, index, speed, lengths), self.asked(index, workload))
            for index in order
        ]
        chosen = _best_of([layout for layout in layouts if layout.may_keep], self.replicas.accelerators)
        if chosen is None or not chosen[2] > 0.0:
            chosen = _best_of(layouts, self.replicas.accelerators)
        assert chosen is not None  # there is always a layout: none at all is an error before
        return chosen


class _Layout(NamedTuple):
    """A layout under trial."""

    place: int
    times: ReplicaTimes
    asked: Asked

    @property
    def may_keep(self) -> bool:
        """Whether no more prompts are too long for it than may be late."""
        return too_long_fraction(self.times, self.asked) <= 1.0 - self.asked.percentile + _ROUNDING


def _best_of(layouts: Iterable[_Layout], accelerators: Floats) -> tuple[int, Curve, float] | None:
    """Return the best of some layouts, its curve and its rate; None where there is none.

    Mean times say in which order layouts are tried, so that few curves are worked out, and no more: they may rank the
    best of them far below another.
    """
    chosen: tuple[int, Curve, float] | None = None
    best = (False, -1.0)
    for layout in layouts:
        keeps, most = best
        count = float(accelerators[layout.place])
        if keeps and not sustains_more(layout.times, layout.asked, most * count):
            continue
        curve = late_curve(layout.times, layout.asked)
        rate = curve.capacity_requests_per_s / count
        if rate > 0.0 and layout.may_keep:
            worth = (True, rate)
        else:
            worth = (False, -curve.too_long_fraction if rate > 0.0 else -1.0)
        if chosen is None or worth > best:
            chosen, best = (layout.place, curve, rate), worth
    return chosen


def stated_over_formula(cluster: Cluster, workload: Workload, candidates: Candidates) -> float | None:
    """Return the throughput that the user states over the formula's, both at the lengths it was measured at.

    stated output tokens per second / output tokens of a request / the formula's requests per second, of an accelerator.
    Times the formula's requests at other lengths it is the stated throughput scaled to them. Objective, spread of
    lengths and cached share are the workload's on both sides, so that only the lengths differ; at either lengths the
    replica is the one that serves most. None where the user states none.
    """
    stated, lengths = cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at
    if stated is None or lengths is None:  # never one without the other: validation sees to it
        return None
    replicas = candidates.replicas
    there = dataclasses.replace(
        traffic_of(workload), input_tokens=lengths.input_tokens, output_tokens=lengths.output_tokens
    )
    which = np.arange(replicas.accelerators.size)
    point = at_objective(replicas, which, there, workload.slo.ttft_s, workload.slo.tpot_s)
    rates = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0) / replicas.accelerators
    formula = float(rates.max())
    if workload.priority != "deferrable":
        planned = lengths_of(workload)
        tokens = workload.tokens
        measured = dataclasses.replace(
            planned,
            prompt_tokens=planned.prompt_tokens * (lengths.input_tokens / tokens.input.mean),
            output_tokens=planned.output_tokens * (lengths.output_tokens / tokens.output.mean),
        )
        _, _, formula = dataclasses.replace(candidates, mean_rates=rates).best(1.0, workload, measured)
    if formula <= 0:
        raise CapacityError(
            f"its stated throughput, measured at {lengths.input_tokens:g} prompt and {lengths.output_tokens:g} "
            f"generated tokens, cannot be scaled to {workload.tokens.input.mean:g} and "
            f"{workload.tokens.output.mean:g}: within the workload's objective the formula serves nothing at the "
            "lengths measured; state a measurement nearer to them"
        )
    return stated / lengths.output_tokens / formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a replica works at the objective."""

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
    """Return rates after 0, 1, 2, ... years of growth in tokens, and the years after which there is none.

    ``rate`` has that of requests so many times as long as on day one. Once they are too long for the objective nothing
    is served at it: the rate stays what it last was, to be read until then alone; the month is found by halving.
    """
    yearly_growth = 1.0 + workload.tokens.growth_per_year
    years = np.arange(horizon_months // 12 + 2 if workload.tokens.growth_per_year else 1)
    rates = np.array([rate(float(yearly_growth**year)) for year in years])
    gone = int(np.argmax(rates <= 0.0))
    if rates[gone] > 0.0 or gone == 0:
        return rates, np.inf
    low, high = 12 * (gone - 1), 12 * gone
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rate(yearly_growth ** (middle / 12)) > 0.0 else (low, middle)
    return np.where(years < gone, rates, rate(yearly_growth ** (low / 12))), high / 12


def in_time_point(
    candidates: Candidates, workload: Workload, horizon_months: int, speeds: tuple[float, float]
) -> tuple[int, Point]:
    """Return the layout, and the point, at which the stated share of requests is in time.

    ``speeds`` are that of the steps and a factor on the rates that come of it.
    """
    speed, factor = speeds
    best, curve, rate = candidates.best(speed, workload, lengths_of(workload))
    accelerators = float(candidates.replicas.accelerators[best])

    def after(growth: float) -> float:
        later = curve if growth == 1.0 else candidates.curve(best, speed, workload, lengths_of(workload, growth))
        return later.capacity_requests_per_s / accelerators

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, after)
    batch, tpot_s = curve.at(rate * accelerators)
    _, peak_tpot_s = curve.at(curve.most_in_time_requests_per_s())
    # Above the pace at capacity fewer are in time than is promised; above that of the peak, fewer at all.
    held_s = 0.5 * (tpot_s + peak_tpot_s)
    return best, Point(
        yearly=yearly * factor,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed,
        prefill_fraction=_prefill_fraction(candidates.replicas, best, workload, rate * accelerators / speed),
        held_tpot_s=held_s * speed,
        lateness=_lateness(candidates, (best, speed), workload, curve, held_s),
    )


def _lateness(
    candidates: Candidates, chosen: tuple[int, float], workload: Workload, curve: Curve, held_s: float
) -> Lateness:
    """Return the shares late and refused by load over capacity, for what becomes of late requests by the scenario."""
    if workload.on_overload == "queue":
        return overload.queueing(curve)
    (index, speed), lengths, replicas = chosen, lengths_of(workload), candidates.replicas
    times = ReplicaTimes(replicas, index, speed, lengths)
    refuse = functools.partial(refusing, times, candidates.asked(index, workload))
    return overload.refusing(curve, refuse, (times, lengths, held_s))


def mean_point(
    replicas: Replicas, best: int, workload: Workload, point: OperatingPoint, horizon_months: int, speed: float
) -> Point:
    """Return the point of deferrable work, which has a deadline of hours: by mean times."""

    def after(growth: float) -> float:
        later, place = point, best
        if growth != 1.0:
            traffic, slo = traffic_of(workload, growth), workload.slo
            later, place = at_objective(replicas, np.array([best]), traffic, slo.ttft_s, slo.tpot_s), 0
        rate = float(later.requests_per_s[place])
        return rate / float(replicas.accelerators[best]) if np.isfinite(rate) else 0.0

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
    """Return the share of a loaded replica's time that prompts take."""
    prompt = workload.tokens.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
    prefill_s = prompt * replicas.prefill_s_per_token[best]
    prefill_s += prompt * workload.tokens.input.mean * replicas.attention_s_per_token2[best]
    return float(np.clip(requests_per_s * prefill_s, 0.0, 0.95))
