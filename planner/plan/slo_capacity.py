"""SLO capacity: what one replica of a layout serves within its latency objectives, and which layout serves most.

Interactive work is held to a percentile (``planner.physics.slo_model``), deferrable work to mean times. Rates are
requests per second and accelerator, so that layouts of different sizes compare.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.physics import model_on_part
from planner.physics.replica import (
    Lengths,
    OperatingPoint,
    Replicas,
    ReplicaTimes,
    ServiceTerms,
    Traffic,
    at_objective,
)
from planner.physics.slo_model import (
    MissCurve,
    late_curve,
    rate_bounds,
    sustains_more,
    too_long_fraction,
)
from planner.plan.candidates import (
    MOST_POOLED,
    CandidateLayouts,
    layout_key,
    layouts_of,
    pooled_nodes,
)
from planner.plan.overload import queueing_lateness, rejecting_lateness
from planner.plan.reuse import Reuse
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.workload import Length, Objective, Workload

# A long prompt makes itself and others late, and SLO targets are about the last hundredths of requests: so cells of
# probability are finest there, and those of the longest two thousandths are each half the one before.
_PROMPT_EDGES = (
    *(0.00245 * cell for cell in range(400)),
    *(0.98 + 0.0005 * cell for cell in range(37)),
    *(1.0 - 0.002 * 0.5**halvings for halvings in range(1, 7)),
    1.0,
)
# A short reply has few tokens over which a wait is shared: so cells of replies are finest where replies are short.
_OUTPUT_EDGES = (0.0, 0.005, 0.015, 0.03, 0.06, 0.11, 0.18, 0.28, 0.42, 0.6, 0.8, 0.95, 1.0)
_POINTS_IN_CELL = 3
"""Lengths whose mean stands for a cell of probability."""
_ROUNDING = 1e-9
"""Of requests: a share that is summed over cells of probability is no more exact."""
_MOST_PREFILL = 0.95
"""Of a loaded replica's time: it decodes what it prefills."""


def traffic_of(workload: Workload, growth: Floats | float = 1.0) -> Traffic:
    """Return a workload's mean requests as the throughput formula takes them, scaled by a growth factor."""
    lengths = workload.lengths
    return Traffic(
        input_tokens=lengths.input.mean * growth,
        output_tokens=lengths.output.mean * growth,
        cached_fraction=workload.prefix_cache_hit_fraction,
        input_cv=lengths.input.distribution.coefficient_of_variation,
        output_cv=lengths.output.distribution.coefficient_of_variation,
    )


def lengths_of(workload: Workload, growth: float = 1.0) -> Lengths:
    """Return a workload's length distributions as lengths with weights, scaled by a growth factor."""
    prompt_tokens = _cells(workload.lengths.input, _PROMPT_EDGES) * growth
    output_tokens = _cells(workload.lengths.output, _OUTPUT_EDGES) * growth
    # The shortest cells of a wide distribution may hold less than a token, which no request has.
    return Lengths(
        prompt_tokens=np.maximum(prompt_tokens, 1.0),
        prompt_weights=np.diff(_PROMPT_EDGES),
        output_tokens=np.maximum(output_tokens, 1.0),
        output_weights=np.diff(_OUTPUT_EDGES),
        cached_fraction=workload.prefix_cache_hit_fraction,
    )


@functools.lru_cache(maxsize=64)
def _cells(length: Length, edges: tuple[float, ...]) -> Floats:
    """Return the mean length in each probability cell."""
    return length.distribution.cells(edges, _POINTS_IN_CELL)


def rates_by_mean_times(
    cluster: Cluster, workload: Workload, reuse: Reuse
) -> tuple[CandidateLayouts, OperatingPoint, Floats]:
    """Return a cluster's layouts, their operating points at the SLO by mean times, and their rates.

    Rates are below zero in layouts in which the cluster may not serve.
    """
    if workload.priority == "deferrable" and cluster.chunk_tokens is None:
        # By mean times no chunk is better than another.
        cluster = cluster.model_copy(update={"chunk_tokens": model_on_part.CHUNK_TOKENS})

    def solved() -> tuple[CandidateLayouts, OperatingPoint, Floats]:
        tokens = workload.lengths.input.mean + workload.lengths.output.mean
        precision = str(cluster.precision)
        layouts = layouts_of(cluster, workload.model, precision, tokens, reuse)
        point, rates = mean_rates(layouts.replicas, traffic_of(workload), workload.slo)
        allowed_rates = np.where(layouts.is_allowed, rates, -1.0)
        return layouts, point, allowed_rates

    key = ("mean times", layout_key(cluster, workload))
    return reuse.once(key, solved)


def mean_rates(
    replicas: Replicas, traffic: Traffic, slo: Objective
) -> tuple[OperatingPoint, Floats]:
    """Return the operating points of all layouts at the SLO by mean times, and their rates."""
    accelerators = replicas["accelerators"]
    layouts = np.arange(accelerators.size)
    point = at_objective(replicas, layouts, traffic, slo.ttft_s, slo.tpot_s)
    # What does not fit has no time per token, so its rate is not a number: it serves nothing.
    rates = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0)
    return point, rates / accelerators


class LayoutCapacity(NamedTuple):
    """SLO capacity of one layout."""

    layout: int
    """By its place among the candidates."""
    curve: MissCurve
    rate: float


@record
class LayoutSearch:
    """The search for the layout with the highest SLO capacity, behind a router of a given pool."""

    replicas: Replicas
    mean_rates: Floats
    """Rates by mean times, shape (layouts,): layouts are tried in their order, those below zero not at all."""
    router_pool: str
    nodes: int
    accelerators_per_node: int
    max_replicas: float = np.inf
    """Replicas that the workload's own traffic takes: a router has no more to choose from."""
    accelerators_fraction: float = 1.0
    """Of the accelerators, those that do this part of the work."""
    pooling_power: float = 1.0
    """Power of the number of replicas that counts: below 1 where the wait of one makes those of the others longer."""

    def terms(self, layout: int, slo: Objective) -> ServiceTerms:
        """Return the latency objectives, and the number of replicas that a router pools in a layout."""
        accelerators = float(self.replicas["accelerators"][layout])
        per_node = max(self.accelerators_per_node / accelerators, 1.0)
        pools = {
            "cluster": pooled_nodes(self.nodes) * per_node,
            "node": per_node,
            "replica": 1.0,
        }
        available = min(pools[self.router_pool], self.max_replicas)
        # Fewer than one replica is still one, and beyond the grid more change nothing.
        pooled = np.clip(available * self.accelerators_fraction, 1.0, MOST_POOLED)
        return ServiceTerms(
            ttft_s=slo.ttft_s,
            tpot_s=slo.tpot_s,
            percentile=slo.share,
            pooled_replicas=float(pooled) ** self.pooling_power,
        )

    def best(
        self, speed: float, slo: Objective, lengths: Lengths, floor: float = 0.0
    ) -> LayoutCapacity | None:
        """Return the layout with the highest SLO capacity; None where no layout sustains more than ``floor``.

        Mean times set the order in which layouts are tried, and nothing else: they may rank the best far below
        another, but a good one early spares most of the others their curve. A layout on which more prompts than may be
        late are too long, however idle it is, keeps no objective. It is taken only where all are so, and then the one
        on which fewest prompts are too long.
        """
        # Stable, so that of equals the first candidate is tried first.
        order = np.argsort(-self.mean_rates, kind="stable")
        order = order[self.mean_rates[order] >= 0.0]
        times = ReplicaTimes(self.replicas, order, speed, lengths)
        may_be_late = 1.0 - slo.share + _ROUNDING
        is_met = too_long_fraction(times, slo.ttft_s) <= may_be_late
        bounds = rate_bounds(times, slo.tpot_s)
        best: LayoutCapacity | None = None
        rate = floor
        candidates = order[is_met].tolist()
        # Each layout found raises the rate that the next has to beat.
        for layout, rate_bound in zip(candidates, bounds[is_met].tolist(), strict=True):
            trial = self._beyond(rate, layout, rate_bound, speed, slo, lengths)
            if trial is not None and trial.rate > rate:
                best = trial
                rate = trial.rate
        # A floor comes from another option that does serve: then nothing here is worth a search.
        if best is not None or floor > 0.0:
            return best
        # No layout keeps the objective: now the others are tried too.
        trials = []
        for layout in order.tolist():
            layout_times = ReplicaTimes(self.replicas, layout, speed, lengths)
            trials.append(self._capacity(layout, layout_times, slo))

        def in_time_rank(trial: LayoutCapacity) -> float:
            # A layout that serves nothing comes after all that serve something.
            return -trial.curve.too_long_fraction if trial.rate > 0.0 else -1.0

        return max(trials, key=in_time_rank, default=None)

    def _beyond(
        self,
        rate: float,
        layout: int,
        rate_bound: float,
        speed: float,
        slo: Objective,
        lengths: Lengths,
    ) -> LayoutCapacity | None:
        """Return a layout's SLO capacity, or None where it is quickly seen to be no more than a rate.

        ``rate_bound`` is a rate that one replica does not exceed, known of all layouts at once. The points of a curve
        around a rate say as much as the whole curve, in less time.
        """
        requests_per_s = rate * float(self.replicas["accelerators"][layout])
        # Against no rate there is nothing to see early. The bound is the cheaper test, so it comes first.
        if rate > 0.0 and requests_per_s >= rate_bound:
            return None
        times = ReplicaTimes(self.replicas, layout, speed, lengths)
        terms = self.terms(layout, slo)
        if rate > 0.0 and not sustains_more(times, terms, requests_per_s):
            return None
        return self._capacity(layout, times, slo)

    def _capacity(self, layout: int, times: ReplicaTimes, slo: Objective) -> LayoutCapacity:
        curve = late_curve(times, self.terms(layout, slo))
        accelerators = float(self.replicas["accelerators"][layout])
        rate = curve.capacity_requests_per_s / accelerators
        return LayoutCapacity(layout, curve, rate)


class Speed(NamedTuple):
    """Speed over the throughput formula's."""

    steps: float
    """Of the steps, and with them of the waits: a stack's maturity."""
    rates: float
    """Factor on the rates that come of it: a throughput that the user states says nothing of the waits."""


@record
class ServicePoint:
    """A replica's operating point at its SLO, and its rates as tokens per request grow over the years."""

    yearly: Floats
    """Rates after 0, 1, 2, ... years of growth in tokens."""
    outgrown_years: float
    """When its requests have grown so long that none is in time any more; infinity for never."""
    batch: float
    tpot_s: float
    """Mean, at the formula's speed."""
    prefill_fraction: float
    admission_tpot_s: float
    """The mean time per token up to which a router that rejects admits requests, at the formula's speed."""
    lateness: Lateness = SHARP


def as_tokens_grow(
    workload: Workload, horizon_months: int, rate: Callable[[float], float]
) -> tuple[Floats, float]:
    """Return the rates after 0, 1, 2, ... years of token growth, and the years after which the SLO is infeasible.

    ``rate`` returns that of requests so many times as long as on day one. Once they are too long for the objective
    nothing is served at it: the rate stays what it last was, to be read until then alone. The month is found by
    halving a year.
    """
    yearly_growth = 1.0 + workload.lengths.growth_per_year
    # A year more than the horizon has, so that its last month lies between two.
    year_count = horizon_months // 12 + 2
    years = np.arange(year_count if workload.lengths.growth_per_year else 1)
    rates = np.array([rate(float(yearly_growth**year)) for year in years])
    # argmax returns 0 both where no year is infeasible and where the first is, of which the caller knows better.
    infeasible_year = int(np.argmax(rates <= 0.0))
    if rates[infeasible_year] > 0.0 or infeasible_year == 0:
        return rates, np.inf
    low = 12 * (infeasible_year - 1)
    high = 12 * infeasible_year
    while high - low > 1:
        middle = (low + high) // 2
        if rate(yearly_growth ** (middle / 12)) > 0.0:
            low = middle
        else:
            high = middle
    final_rate = rate(yearly_growth ** (low / 12))
    rates = np.where(years < infeasible_year, rates, final_rate)
    return rates, high / 12


def slo_point(
    search: LayoutSearch, workload: Workload, horizon_months: int, speed: Speed, floor: float = 0.0
) -> tuple[int, ServicePoint] | None:
    """Return the best layout and its operating point at the SLO percentile; None where none exceeds ``floor``."""
    lengths = lengths_of(workload)
    replicas = search.replicas
    best = search.best(speed.steps, workload.slo, lengths, floor / speed.rates)
    if best is None:
        return None
    layout, curve, rate = best
    accelerators = float(replicas["accelerators"][layout])
    terms = search.terms(layout, workload.slo)

    def rate_after(growth: float) -> float:
        # The curve of day one is there already.
        if growth == 1.0:
            return curve.capacity_requests_per_s / accelerators
        grown = lengths_of(workload, growth)
        times = ReplicaTimes(replicas, layout, speed.steps, grown)
        return late_curve(times, terms).capacity_requests_per_s / accelerators

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, rate_after)
    batch, tpot_s = curve.at(rate * accelerators)
    _, peak_tpot_s = curve.at(curve.slo_capacity_requests_per_s())
    # Above the pace at capacity fewer are in time than the target asks for; above that of the peak, fewer at all.
    admission_s = 0.5 * (tpot_s + peak_tpot_s)
    if curve.capacity_requests_per_s <= 0.0:
        lateness = SHARP
    elif workload.admission == "queue":
        lateness = queueing_lateness(*curve.by_load(), curve)
    else:
        times = ReplicaTimes(replicas, layout, speed.steps, lengths)
        lateness = rejecting_lateness(curve, times, terms, admission_s)
    busy_rate = rate * accelerators / speed.steps
    return layout, ServicePoint(
        yearly=yearly * speed.rates,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed.steps,
        prefill_fraction=_prefill_fraction(replicas, layout, workload, busy_rate),
        admission_tpot_s=admission_s * speed.steps,
        lateness=lateness,
    )


def mean_point(
    replicas: Replicas,
    layout: int,
    workload: Workload,
    point: OperatingPoint,
    horizon_months: int,
    speed: float,
) -> ServicePoint:
    """Return the operating point of deferrable work, by mean times since its deadline is hours away."""

    def rate_after(growth: float) -> float:
        requests_per_s = float(point.requests_per_s[layout])
        if growth != 1.0:
            slo = workload.slo
            grown = traffic_of(workload, growth)
            later = at_objective(replicas, np.array([layout]), grown, slo.ttft_s, slo.tpot_s)
            requests_per_s = float(later.requests_per_s[0])
        if not np.isfinite(requests_per_s):
            return 0.0
        return requests_per_s / float(replicas["accelerators"][layout])

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, rate_after)
    requests_per_s = float(point.requests_per_s[layout])
    return ServicePoint(
        yearly=yearly * speed,
        outgrown_years=outgrown_years,
        batch=float(point.running_sequences[layout]),
        tpot_s=float(point.tpot_s[layout]),
        admission_tpot_s=float(point.tpot_s[layout]),
        prefill_fraction=_prefill_fraction(replicas, layout, workload, requests_per_s),
    )


def _prefill_fraction(
    replicas: Replicas, layout: int, workload: Workload, requests_per_s: float
) -> float:
    """Return the share of a loaded replica's time spent in prefill."""
    context = workload.lengths.input.mean
    prompt = context * (1.0 - workload.prefix_cache_hit_fraction)
    prefill_s = prompt * replicas["prefill_s_per_token"][layout]
    # Each token that is computed attends to the whole prompt, cached tokens included.
    prefill_s += prompt * context * replicas["attention_s_per_token2"][layout]
    busy_fraction = requests_per_s * prefill_s
    return float(np.clip(busy_fraction, 0.0, _MOST_PREFILL))
