"""What a node sustains with the stated share of requests in time, and the share late at any load."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner.demand.bursts import BurstConditions, missed_share
from planner.errors import CapacityError
from planner.fleet.window import MISS_CELLS
from planner.physics.operating import OperatingPoint, Traffic, at_objective, separate_pools
from planner.physics.promptness import Asked, Curve, Lengths, late_curve
from planner.physics.replica import Replicas, ReplicaSpec
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Length, Workload

if TYPE_CHECKING:
    from planner.build.capacity import Service

Floats = NDArray[np.float64]
_EVEN_SHARE = 0.99  # of requests in cells of even weight; the longest hundredth in cells each half the one before
_TAIL_CELLS = 8
_PROMPT_CELLS = 100
_OUTPUT_CELLS = 14  # each has a transform of its own
_MOST_POOLED = 64  # beyond which a larger pool changes nothing that shows
_RANKING_SLACK = 1.3  # by how much the ranking by mean times may misjudge a layout


def cv(length: Length) -> float:
    """Return standard deviation over mean of a lognormal length."""
    return float(np.sqrt(np.expm1(length.sigma**2)))


def traffic_of(workload: Workload, growth: Floats | float = 1.0) -> Traffic:
    """Return a workload's requests as the throughput formula takes them."""
    tokens = workload.tokens
    return Traffic(
        input_tokens=tokens.input.mean * growth,
        output_tokens=tokens.output.mean * growth,
        cached_fraction=workload.prefix_cache_hit_fraction,
        input_cv=cv(tokens.input),
        output_cv=cv(tokens.output),
    )


def lengths_of(workload: Workload, growth: float = 1.0) -> Lengths:
    """Return a workload's lengths as sets of lengths with weights, all times a factor."""
    prompts, prompt_weights = _cells(workload.tokens.input, _PROMPT_CELLS)
    outputs, output_weights = _cells(workload.tokens.output, _OUTPUT_CELLS)
    return Lengths(
        prompt_tokens=np.maximum(prompts * growth, 1.0),
        prompt_weights=prompt_weights,
        output_tokens=np.maximum(outputs * growth, 1.0),
        output_weights=output_weights,
        cached_fraction=workload.prefix_cache_hit_fraction,
    )


def _cells(length: Length, even: int) -> tuple[Floats, Floats]:
    """Return the lengths in the middle of cells of probability, scaled to the stated mean, and the cells' weights."""
    tail = 1.0 - (1.0 - _EVEN_SHARE) * 0.5 ** np.arange(1, _TAIL_CELLS + 1)
    edges = np.concatenate((np.linspace(0.0, _EVEN_SHARE, even + 1), tail, [1.0]))
    weights = np.diff(edges)
    tokens = np.array([length.quantile(p) for p in (0.5 * (edges[:-1] + edges[1:])).tolist()])
    return tokens * (length.mean / float(weights @ tokens)), weights


def asked_of(workload: Workload, router_pool: str, nodes: int, replicas_per_node: float) -> Asked:
    """Return what a workload is promised by replicas that are pooled as the scenario says."""
    pooled = {"cluster": nodes * replicas_per_node, "node": replicas_per_node, "replica": 1.0}[router_pool]
    return Asked(
        ttft_s=workload.slo.ttft_s,
        tpot_s=workload.slo.tpot_s,
        percentile=workload.slo.percentile,
        pooled_replicas=float(np.clip(pooled, 1.0, _MOST_POOLED)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Layouts among which a cluster chooses, and how its requests reach them."""

    replicas: Replicas
    mean_rates: Floats
    """Requests per second and accelerator by mean times, shape (layouts,): in their order layouts are tried."""
    router_pool: str
    nodes: int
    accelerators_per_node: int

    def curve(self, index: int, speed: float, workload: Workload, lengths: Lengths) -> Curve:
        """Return the late share of one layout."""
        per_node = self.accelerators_per_node / float(self.replicas.accelerators[index])
        asked = asked_of(workload, self.router_pool, self.nodes, max(per_node, 1.0))
        return late_curve(self.replicas, index, speed, lengths, asked)

    def best(self, speed: float, workload: Workload, lengths: Lengths) -> tuple[int, Curve, float]:
        """Return the layout that keeps most requests a second and accelerator in time, its curve and that rate.

        A layout serves less in time than its mean times allow, so those that allow little are not tried.
        """
        chosen: tuple[int, Curve, float] | None = None
        for index in np.argsort(-self.mean_rates, kind="stable").tolist():
            if chosen is not None and self.mean_rates[index] * speed * _RANKING_SLACK <= chosen[2]:
                break
            curve = self.curve(index, speed, workload, lengths)
            rate = curve.most_requests_per_s(workload.slo.percentile) / float(self.replicas.accelerators[index])
            if chosen is None or rate > chosen[2]:
                chosen = (index, curve, rate)
        assert chosen is not None  # there is always a layout: none at all is an error before
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
        own = lengths_of(workload)
        tokens = workload.tokens
        measured = dataclasses.replace(
            own,
            prompt_tokens=own.prompt_tokens * (lengths.input_tokens / tokens.input.mean),
            output_tokens=own.output_tokens * (lengths.output_tokens / tokens.output.mean),
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
    loads: tuple[float, ...] = (0.0, 1.0)
    late_fractions: tuple[float, ...] = (0.0, 0.0)
    too_long_fraction: float = 0.0


def _as_tokens_grow(workload: Workload, horizon_months: int, rate: Callable[[float], float]) -> tuple[Floats, float]:
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
        return later.most_requests_per_s(workload.slo.percentile) / accelerators

    yearly, outgrown_years = _as_tokens_grow(workload, horizon_months, after)
    batch, tpot_s = curve.at(rate * accelerators)
    scale = max(rate * accelerators, 1e-12)
    return best, Point(
        yearly=yearly * factor,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed,
        prefill_fraction=_prefill_fraction(candidates.replicas, best, workload, rate * accelerators / speed),
        loads=(0.0, *(curve.requests_per_s / scale).tolist()),
        late_fractions=(curve.too_long_fraction, *curve.late_fraction.tolist()),
        too_long_fraction=curve.too_long_fraction,
    )


def mean_point(
    replicas: Replicas, best: int, workload: Workload, point: OperatingPoint, horizon_months: int, speed: float
) -> Point:
    """Return the point of deferrable work, which has a deadline of hours: by mean times."""

    def after(growth: float) -> float:
        which, slo = np.array([best]), workload.slo
        later = at_objective(replicas, which, traffic_of(workload, growth), slo.ttft_s, slo.tpot_s)
        found = float(later.requests_per_s[0])
        return found / float(replicas.accelerators[best]) if np.isfinite(found) else 0.0

    rates, outgrown_years = _as_tokens_grow(workload, horizon_months, after)
    return Point(
        yearly=rates * speed,
        outgrown_years=outgrown_years,
        batch=float(point.running_sequences[best]),
        tpot_s=float(point.tpot_s[best]),
        prefill_fraction=_prefill_fraction(replicas, best, workload, float(point.requests_per_s[best])),
    )


def apart_point(
    specs: list[ReplicaSpec], replicas: Replicas, workload: Workload, apart: Apart, horizon_months: int, speed: float
) -> Point:
    """Return the point of a decode pool in balance with its prefill pool."""
    rates, outgrown_years = _as_tokens_grow(
        workload, horizon_months, lambda growth: separate(specs, replicas, workload, growth).rate
    )
    return Point(
        yearly=rates * speed,
        outgrown_years=outgrown_years,
        batch=float(apart.point.running_sequences[apart.decode]),
        tpot_s=float(apart.point.tpot_s[apart.decode]),
        prefill_fraction=apart.prefill_share,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A prefill pool and a decode pool in balance."""

    rate: float
    """Requests per second and accelerator of both together."""
    decode: int
    """The decode workers' layout, by its place among the candidates."""
    prefill_accelerators: int
    """Accelerators of one prefill worker."""
    prefill_share: float
    """Share of the accelerators that prefill."""
    point: OperatingPoint


def separate(specs: list[ReplicaSpec], replicas: Replicas, workload: Workload, growth: float = 1.0) -> Apart:
    """Balance the best prefill workers with the best decode workers: 1/rate = 1/prefill rate + 1/decode rate."""
    traffic = traffic_of(workload, growth)
    prompt = workload.tokens.input.mean * growth * (1.0 - workload.prefix_cache_hit_fraction)
    cached = [spec.part.formats[spec.precision].cache_bytes for spec in specs]
    moved = np.array([s.shape.kv_bytes_per_token(each) * prompt for s, each in zip(specs, cached, strict=True)])
    network = np.array([spec.part.network_bytes_per_s * spec.accelerators for spec in specs])
    pools = separate_pools(replicas, traffic, (workload.slo.ttft_s, workload.slo.tpot_s), moved / network)
    prefill = pools.prefill_requests_per_s / replicas.accelerators
    decoded = np.where(np.isfinite(pools.decode.requests_per_s), pools.decode.requests_per_s, 0.0)
    decode = decoded / replicas.accelerators
    first, second = int(np.argmax(prefill)), int(np.argmax(decode))
    total = float(prefill[first] + decode[second])
    return Apart(
        rate=float(prefill[first] * decode[second] / total) if total > 0 else 0.0,
        decode=second,
        prefill_accelerators=specs[first].accelerators,
        prefill_share=float(decode[second] / total) if total > 0 else 0.0,
        point=pools.decode,
    )


def _prefill_fraction(replicas: Replicas, best: int, workload: Workload, requests_per_s: float) -> float:
    """Return the share of a loaded replica's time that prompts take."""
    prompt = workload.tokens.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
    prefill_s = prompt * replicas.prefill_s_per_token[best]
    prefill_s += prompt * workload.tokens.input.mean * replicas.attention_s_per_token2[best]
    return float(np.clip(requests_per_s * prefill_s, 0.0, 0.95))


def miss_tables(scenario: Scenario, services: Mapping[tuple[str, str], Service]) -> Floats:
    """Return the share of requests late or refused at each utilisation, shape (clusters, workloads, cells + 1)."""
    tables = np.zeros((len(scenario.clusters), len(scenario.workloads), MISS_CELLS + 1))
    grid = np.arange(MISS_CELLS + 1) / MISS_CELLS
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        if workload.requests_per_s <= 0 or workload.priority == "deferrable":
            continue
        for c, cluster in enumerate(scenario.clusters):
            if (service := services.get((cluster, name))) is not None:
                conditions = BurstConditions(
                    requests_per_s=workload.requests_per_s,
                    slack_s=max(workload.slo.ttft_s - service.single_ttft_s, 0.0),
                    index_of_dispersion=workload.burst_index_of_dispersion,
                    refuses=workload.on_overload == "refuse",
                    loads=service.loads,
                    late_fractions=service.late_fractions,
                )
                tables[c, w] = np.maximum.accumulate(missed_share(conditions, grid))
                if not conditions.refuses:
                    # An hour that is full says not how far beyond: a queue that never empties makes all of it late.
                    tables[c, w, -1] = 1.0
    return tables
