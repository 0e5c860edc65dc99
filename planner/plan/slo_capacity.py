"""SLO capacity: what one replica of a layout serves within its latency objectives, and which layout serves most.

Interactive work is held to a percentile (``planner.physics.slo_model``), deferrable work to mean times. Rates are
requests per second and accelerator, so that layouts of different sizes compare.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.catalog.load import Catalog
from planner.demand.bursts import SHARP, Lateness
from planner.errors import CapacityError
from planner.physics import model_on_part
from planner.physics.prefix_cache import always_found
from planner.physics.replica import (
    Lengths,
    OperatingPoint,
    Replicas,
    ReplicaTimes,
    ServiceTerms,
    Traffic,
    at_objective,
    at_speed,
)
from planner.physics.slo_model import (
    MissCurve,
    decodes_in_time,
    late_curve,
    rate_bounds,
    sustains_more,
    too_long_fraction,
)
from planner.plan.cache_hits import (
    CacheStates,
    CacheTerms,
    CacheUse,
    ReplicaCache,
    SharingWorkload,
    cache_terms,
    cache_use,
    found_by_mean_times,
    replica_cache,
)
from planner.plan.candidates import (
    MOST_POOLED,
    CandidateLayouts,
    layout_key,
    layouts_of,
    pooled_nodes,
    traffic_of,
)
from planner.plan.overload import queueing_lateness, rejecting_lateness
from planner.plan.reuse import Figure, Reuse, digest, once
from planner.plan.shrinkage import belief
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
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
_OF_CHUNK = ("chunk_tokens", "kv_capacity_tokens")
"""What layouts differ in that differ in the chunk: a larger one also leaves less room for the cache."""
_NOTED_CUT = 0.05
"""Of prompt tokens cut to the model's context: less is the tail of a lognormal."""
_MOST_PREFILL = 0.95
"""Of a loaded replica's time: it decodes what it prefills."""


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


def cut_prompts(scenario: Scenario, catalog: Catalog) -> Iterator[str]:
    """Yield a note on each workload of whose prompts a share that counts is longer than its model attends to."""
    for name, workload in scenario.workloads.items():
        longest = catalog.models[workload.model].max_context_tokens.value
        lengths = lengths_of(workload)
        room = longest - workload.lengths.output.mean
        prompts = lengths.prompt_tokens
        tokens = lengths.prompt_weights @ prompts
        cut = float(lengths.prompt_weights @ np.maximum(prompts - room, 0.0) / tokens)
        if cut > _NOTED_CUT:
            longer = float(lengths.prompt_weights @ (prompts > room))
            yield (
                f"{longer:.0%} of the prompts of {name} are longer than the {longest:,} tokens that {workload.model} "
                f"accepts together with a reply: {cut:.0%} of its prompt tokens are cut off, but counted and paid; "
                "state shorter lengths, or a model with a longer context"
            )


def _lengths_key(lengths: Lengths) -> Hashable:
    """Return what tells distributions of lengths from all others, as part of a key."""
    prompts = (lengths.prompt_tokens, lengths.prompt_weights)
    outputs = (lengths.output_tokens, lengths.output_weights)
    found = (np.atleast_1d(lengths.cached_fraction), np.atleast_1d(lengths.host_fraction))
    return digest([*prompts, *outputs, *found])


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
        log_gains = belief(cluster, workload, reuse).of(layouts.specs)
        layouts = layouts._replace(replicas=at_speed(layouts.predicted, np.exp(log_gains)))
        traffic = traffic_of(workload)
        terms = cache_terms(cluster, workload)
        if terms is not None:
            per_node = layouts.specs[0].part.accelerators_per_node
            accelerators = layouts.replicas["accelerators"]
            pooled = pooled_nodes(cluster.nodes) * per_node / accelerators
            found = found_by_mean_times(layouts.replicas, traffic, workload.slo, terms, pooled)
            traffic = replace(traffic, cached_fraction=found)
        point, rates = mean_rates(layouts.replicas, traffic, workload.slo)
        allowed_rates = np.where(layouts.is_allowed, rates, -1.0)
        return layouts, point, allowed_rates

    # Caches of a workload that states its reuse are as many as its replicas.
    nodes = None if workload.reuse is None else pooled_nodes(cluster.nodes)
    key = ("mean times", layout_key(cluster, workload), nodes)
    return reuse.once(key, solved)


_CLASS = {"interactive": 0, "standard": 1, "deferrable": 2}
"""Rank of a workload's priority: a cache lets prompts of a lower class go first."""


def shared_cache_terms(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse
) -> CacheTerms | None:
    """Return what decides the hits of a workload on a cluster beside others of its model; None where it is stated.

    Those that replicas of the same size serve best share them, each with the machine time that its traffic of day one
    takes. What is of a lower class is not counted: its prompts make room first.
    """
    terms = cache_terms(cluster, workload)
    if terms is None:
        return None
    own = _mean_use(cluster, workload, reuse)
    if own is None or workload.fine_tunes > 1:
        return terms
    others = list(scenario.workloads.values())
    itself = next((other for other in others if _is_same(other, workload)), None)
    if itself is not None:
        others.remove(itself)
    tokens_per_s = workload.requests_per_s * workload.lengths.input.mean
    sharing = []
    all_accelerators = own.accelerators
    for other in others:
        is_lower = _CLASS[other.priority] > _CLASS[workload.priority]
        # One that comes later changes nothing before it.
        comes_later = other.first_day > workload.first_day
        if other.model != workload.model or other.fine_tunes > 1 or is_lower or comes_later:
            continue
        use = _mean_use(cluster, other, reuse)
        # Replicas of another size are not shared.
        if use is None or use.replica != own.replica:
            continue
        all_accelerators += use.accelerators
        other_tokens_per_s = other.requests_per_s * other.lengths.input.mean
        sharing.append(
            SharingWorkload(
                tokens_ratio=other_tokens_per_s / tokens_per_s,
                requests_ratio=other.requests_per_s / workload.requests_per_s,
                # What is stated is found whatever the cache keeps.
                curve=other.reuse_curve or always_found(other.prefix_cache_hit_fraction),
                routing=other.prefix_routing,
            )
        )
    if not sharing:
        return terms
    return replace(terms, time_share=own.accelerators / all_accelerators, sharing=tuple(sharing))


def _is_same(stated: Workload, tried: Workload) -> bool:
    """Return whether a workload is one of the scenario, perhaps tried without growth or with another admission."""
    lengths = tried.lengths.model_copy(update={"growth_per_year": stated.lengths.growth_per_year})
    return stated == tried.model_copy(update={"admission": stated.admission, "lengths": lengths})


class _MeanUse(NamedTuple):
    """What a workload of day one takes by mean times."""

    accelerators: float
    replica: tuple[int, int]
    """Accelerators and attention groups of the replica that serves most."""


def _mean_use(cluster: Cluster, workload: Workload, reuse: Reuse) -> _MeanUse | None:
    """Return what a workload of day one takes of a cluster by mean times; None where it cannot be served."""
    catalog = reuse.catalog
    precision = cluster.precision or catalog.precision_with("default")
    in_precision = cluster.model_copy(update={"precision": precision})
    try:
        layouts, _, rates = rates_by_mean_times(in_precision, workload, reuse)
    except CapacityError:
        return None
    best = int(np.argmax(rates))
    spec = layouts.specs[best]
    if rates[best] <= 0.0 or not workload.requests_per_s:
        return None
    replica = (spec.accelerators, spec.attention_data_parallel)
    return _MeanUse(workload.requests_per_s / float(rates[best]), replica)


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
    cache: ReplicaCache | None = None
    """Where what is found in the cache follows from memory."""
    state: CacheStates | None = None
    """What it finds at the capacity, the one load there."""


_FIXED_POINT_STEPS = 14
_PASSES = 3
_LOADS_A_PASS = 17
_FIRST_RISE = 2.3
"""By how much a second of prefill lengthens 1 / capacity, before two curves say it: late prompts delay others."""
_FIXED_POINT = 1e-3
"""Relative distance at which two loads, one that a cache lasts at and one that it does not, are as good as one."""


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
    room: float = np.inf
    """Accelerators on which its replicas must stand: whole ones."""
    pooling_power: float = 1.0
    """Power of the number of replicas that counts: below 1 where the wait of one makes those of the others longer."""
    cache: CacheTerms | None = None
    """What decides the hits of a workload that states its reuse; None where the share in the cache is stated."""

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
        if self.cache is not None and self.cache.routing != "random":
            # A session waits for its own replica, however free the others are.
            available = 1.0
        # Part of a replica is none: a router never chooses among more than there is room for.
        here = min(available * self.accelerators_fraction, np.floor(self.room / accelerators))
        # Fewer than one replica is still one, and beyond the grid more change nothing.
        pooled = np.clip(here, 1.0, MOST_POOLED)
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
        if self.cache is not None:
            # No cache finds more: so bounds with all of it hold for any.
            lengths = replace(lengths, cached_fraction=self.cache.curve.most_found)
        order, too_long, bounds = self._bounds(speed, slo, lengths)
        is_met = too_long <= 1.0 - slo.share + _ROUNDING
        best: LayoutCapacity | None = None
        rate = floor
        candidates = order[is_met].tolist()
        too_slow: dict[Hashable, float] = {}
        """The smallest chunk with which a layout's tokens are late at the rate to beat, by all else of the layout."""
        # Each layout found raises the rate that the next has to beat.
        for layout, rate_bound in zip(candidates, bounds[is_met].tolist(), strict=True):
            chunk = float(self.replicas["chunk_tokens"][layout])
            layout_but_chunk = self._but_chunk(layout)
            # What is late beside small chunks is late beside larger ones.
            if chunk > too_slow.get(layout_but_chunk, np.inf):
                continue
            trial = self._beyond(rate, layout, rate_bound, speed, slo, lengths)
            if trial is not None and trial.rate > rate:
                best = trial
                rate = trial.rate
            elif self._is_within(rate, layout, rate_bound) and not self._decodes_in_time(
                layout, rate, speed, slo, lengths
            ):
                too_slow[layout_but_chunk] = chunk
        # A floor comes from another option that does serve: then nothing here is worth a search.
        if best is not None or floor > 0.0:
            return best
        # No layout keeps the objective: now the others are tried too.
        trials = []
        for layout in order.tolist():
            if self.cache is not None:
                cached = self.cached_capacity(layout, speed, slo, lengths, 0.0)
                trials += [cached] if cached is not None else []
                continue
            terms = self.terms(layout, slo)
            trials.append(self.capacity(layout, speed, terms, lengths))

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
        # Against no rate there is nothing to see early. The bound is the cheaper test, so it comes first.
        if rate > 0.0 and not self._is_within(rate, layout, rate_bound):
            return None
        requests_per_s = rate * float(self.replicas["accelerators"][layout])
        if self.cache is not None:
            return self.cached_capacity(layout, speed, slo, lengths, requests_per_s)
        terms = self.terms(layout, slo)
        if rate > 0.0 and not self.once_timed(
            ("more", requests_per_s),
            layout,
            speed,
            terms,
            lengths,
            lambda times, terms: sustains_more(times, terms, requests_per_s),
        ):
            return None
        return self.capacity(layout, speed, terms, lengths)

    def _is_within(self, rate: float, layout: int, rate_bound: float) -> bool:
        """Return whether a rate of an accelerator is some, and below the bound of a replica of a layout."""
        return 0.0 < rate * float(self.replicas["accelerators"][layout]) < rate_bound

    def _but_chunk(self, layout: int) -> Hashable:
        """Return what layouts have in common that differ in the chunk alone."""
        columns = self.replicas.items()
        return tuple(float(column[layout]) for name, column in columns if name not in _OF_CHUNK)

    def _decodes_in_time(
        self, layout: int, rate: float, speed: float, slo: Objective, lengths: Lengths
    ) -> bool:
        """Return whether a layout keeps the time per token at a rate of an accelerator, whatever first tokens do."""
        requests_per_s = rate * float(self.replicas["accelerators"][layout])
        times = ReplicaTimes(self.replicas, layout, speed, lengths)
        return decodes_in_time(times, self.terms(layout, slo), requests_per_s)

    def rate_bound(self, speed: float, slo: Objective, lengths: Lengths) -> float:
        """Return a rate that the SLO capacity of no layout exceeds."""
        order, _, bounds = self._bounds(speed, slo, lengths)
        return float((bounds / self.replicas["accelerators"][order]).max(initial=0.0))

    def _bounds(
        self, speed: float, slo: Objective, lengths: Lengths
    ) -> tuple[Ints, Floats, Floats]:
        """Return the layouts in the order of their mean rates, what is too long in each, and rate bounds.

        What is too long is a share of prompts. A bound is a rate that one replica of the layout does not exceed.
        """
        # Stable, so that of equals the first candidate is tried first.
        order = np.argsort(-self.mean_rates, kind="stable")
        order = order[self.mean_rates[order] >= 0.0]

        def bounds() -> tuple[Ints, Floats, Floats]:
            times = ReplicaTimes(self.replicas, order, speed, lengths)
            too_long = too_long_fraction(times, slo.ttft_s)
            return order, too_long, rate_bounds(times, slo.tpot_s)

        figures = digest([order, *self.replicas.values()])
        objectives = (slo.ttft_s, slo.tpot_s)
        return once(("bounds", figures, speed, objectives, _lengths_key(lengths)), bounds)

    def capacity(
        self, layout: int, speed: float, terms: ServiceTerms, lengths: Lengths
    ) -> LayoutCapacity:
        """Return a layout's SLO capacity, whatever others sustain."""
        curve = self.once_timed("curve", layout, speed, terms, lengths, late_curve)
        accelerators = float(self.replicas["accelerators"][layout])
        rate = curve.capacity_requests_per_s / accelerators
        return LayoutCapacity(layout, curve, rate)

    def once_timed(
        self,
        name: Hashable,
        layout: int,
        speed: float,
        terms: ServiceTerms,
        lengths: Lengths,
        compute: Callable[[ReplicaTimes, ServiceTerms], Figure],
    ) -> Figure:
        """Return what is computed of a layout's times, once for all clusters and pools in which these are the same."""

        def computed() -> Figure:
            return compute(ReplicaTimes(self.replicas, layout, speed, lengths), terms)

        figures = tuple(float(column[layout]) for column in self.replicas.values())
        return once((name, figures, speed, terms, _lengths_key(lengths)), computed)

    def cached_capacity(
        self, layout: int, speed: float, slo: Objective, lengths: Lengths, floor: float
    ) -> LayoutCapacity | None:
        """Return a layout's SLO capacity with the better choice of tiers; None where none exceeds a floor.

        ``floor`` is in requests per second of one replica.
        """
        assert self.cache is not None
        accelerators = float(self.replicas["accelerators"][layout])
        pooled = pooled_nodes(self.nodes) * self.accelerators_per_node / accelerators
        terms = self.terms(layout, slo)
        best: LayoutCapacity | None = None
        for has_host in self.cache.tiers:
            if has_host and not self.replicas["host_tokens"][layout]:
                continue
            caches = min(pooled, self.max_replicas)
            cache = replica_cache(
                self.replicas, layout, self.cache, caches, lengths, has_host=has_host
            )
            least = max(floor, best.rate * accelerators if best is not None else 0.0)
            if least > 0.0:
                state = cache.states(speed, np.array([least]))
                times = self._cached_times(cache, speed, lengths, state, 0)
                if not state.is_settled[0] or not sustains_more(times, terms, least):
                    continue
            curve, found = self._at_fixed_point(cache, speed, terms, lengths)
            rate = curve.capacity_requests_per_s / accelerators
            best = LayoutCapacity(layout, curve, rate, cache, found)
        return best

    def _cached_times(
        self, cache: ReplicaCache, speed: float, lengths: Lengths, states: CacheStates, load: int
    ) -> ReplicaTimes:
        """Return a replica's times with what its caches find at one of some loads."""
        of_steps = speed * float(states.speed[load])
        return ReplicaTimes(self.replicas, cache.layout, of_steps, states.lengths(load, lengths))

    def _at_fixed_point(
        self, cache: ReplicaCache, speed: float, terms: ServiceTerms, lengths: Lengths
    ) -> tuple[MissCurve, CacheStates]:
        """Return a replica's curve and cache at the largest load at which what it then finds keeps its SLO.

        More load leaves less in the cache, with which less is sustained: so what is sustained at the state of a load
        falls as the load rises, and the load lies between any trial and what is sustained there. What is found at all
        loads costs little, a curve much. So the next trial is where the load meets what is to be expected of it:
        1 / capacity rises as a prompt's prefill does, by as much as the last two curves say.
        """
        # Somewhere near: it only says where to look first.
        likely = float(self.mean_rates[cache.layout] * self.replicas["accelerators"][cache.layout])

        def solved() -> tuple[MissCurve, CacheStates]:
            loads = np.linspace(0.0, max(likely, 0.0), _LOADS_A_PASS)
            states = cache.states(speed, loads)
            # No load at all is always settled.
            trial = int(np.flatnonzero(states.is_settled)[-1])
            low = 0.0
            high = np.inf
            further_s = _FIRST_RISE
            known: tuple[float, float] | None = None
            for _ in range(_FIXED_POINT_STEPS):
                load = float(loads[trial])
                times = self._cached_times(cache, speed, lengths, states, trial)
                curve = late_curve(times, terms)
                sustained = curve.capacity_requests_per_s
                if sustained >= load:
                    low = load
                    high = min(high, sustained)
                    # Just beyond it the cache goes cold, and no longer keeps up.
                    if trial + 1 < loads.size and not states.is_settled[trial + 1]:
                        high = min(high, float(loads[trial + 1]))
                else:
                    # Less load finds more, so what is sustained here lasts.
                    low = max(low, sustained)
                    high = load
                if high - low <= _FIXED_POINT * high:
                    break
                prefill_s = float(states.prefill_s[trial])
                request_s = 1.0 / max(sustained, 1e-12)
                if known is not None and prefill_s != known[0]:
                    further_s = (request_s - known[1]) / (prefill_s - known[0])
                    further_s = min(max(further_s, 0.1), 10.0)
                known = prefill_s, request_s
                begin = low
                end = high
                # Each pass looks between two neighbours of the one before.
                for _ in range(_PASSES):
                    loads = np.linspace(begin, end, _LOADS_A_PASS)
                    states = cache.states(speed, loads)
                    expected_s = request_s + further_s * (states.prefill_s - prefill_s)
                    is_kept = states.is_settled & (loads * expected_s <= 1.0)
                    beyond = np.flatnonzero(~is_kept[1:])
                    trial = int(beyond[0]) if beyond.size else loads.size - 1
                    begin = float(loads[trial])
                    end = float(loads[min(trial + 1, loads.size - 1)])
                # What is known to last need not be tried again.
                if trial == 0 and states.is_settled[1]:
                    trial = 1
            return replace(curve, capacity_requests_per_s=low), cache.states(speed, np.array([low]))

        figures = tuple(float(column[cache.layout]) for column in self.replicas.values())
        caches = (digest([cache.traffic.found_fraction, cache.traffic.distinct_s]), cache.has_host)
        return once(
            ("fixed point", figures, caches, speed, terms, _lengths_key(lengths), likely), solved
        )


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
    cache: CacheUse | None = None
    """Where what is found in the cache follows from memory."""


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
    layout = best.layout
    curve = best.curve
    rate = best.rate
    accelerators = float(replicas["accelerators"][layout])
    terms = search.terms(layout, workload.slo)
    steps = speed.steps
    found = workload.prefix_cache_hit_fraction
    use = None
    if best.cache is not None and best.state is not None:
        use = cache_use(best.cache, steps, rate * accelerators)
        found = float(best.state.found_fraction[0])
        lengths = best.state.lengths(0, lengths)
        steps *= float(best.state.speed[0])

    def rate_after(growth: float) -> float:
        # The curve of day one is there already.
        if growth == 1.0:
            return rate
        grown = lengths_of(workload, growth)
        if search.cache is not None:
            later = search.cached_capacity(layout, speed.steps, workload.slo, grown, 0.0)
            return 0.0 if later is None else later.rate
        return search.capacity(layout, speed.steps, terms, grown).rate

    yearly, outgrown_years = as_tokens_grow(workload, horizon_months, rate_after)
    batch, tpot_s = curve.at(rate * accelerators)
    _, peak_tpot_s = curve.at(curve.slo_capacity_requests_per_s())
    # Above the pace at capacity fewer are in time than the target asks for; above that of the peak, fewer at all.
    admission_s = 0.5 * (tpot_s + peak_tpot_s)
    if curve.capacity_requests_per_s <= 0.0:
        lateness = SHARP
    elif use is not None:
        # Beyond it the cache goes cold, so no more is admitted.
        lateness = queueing_lateness(*curve.by_load(), curve).up_to_capacity()
    elif workload.admission == "queue":
        lateness = queueing_lateness(*curve.by_load(), curve)
    else:
        lateness = search.once_timed(
            "rejecting",
            layout,
            speed.steps,
            terms,
            lengths,
            lambda times, _: rejecting_lateness(curve, times, terms, admission_s),
        )
    busy_rate = rate * accelerators / steps
    return layout, ServicePoint(
        yearly=yearly * speed.rates,
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot_s * speed.steps,
        prefill_fraction=_prefill_fraction(replicas, layout, workload, busy_rate, found),
        admission_tpot_s=admission_s * speed.steps,
        lateness=lateness,
        cache=use,
    )


def mean_point(
    replicas: Replicas,
    layout: int,
    workload: Workload,
    point: OperatingPoint,
    horizon_months: int,
    speed: float,
    cache: ReplicaCache | None = None,
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
    found = workload.prefix_cache_hit_fraction
    use = None
    if cache is not None:
        use = cache_use(cache, speed, requests_per_s)
        found = use.found_fractions[-1]
    return ServicePoint(
        yearly=yearly * speed,
        outgrown_years=outgrown_years,
        batch=float(point.running_sequences[layout]),
        tpot_s=float(point.tpot_s[layout]),
        admission_tpot_s=float(point.tpot_s[layout]),
        prefill_fraction=_prefill_fraction(replicas, layout, workload, requests_per_s, found),
        cache=use,
    )


def _prefill_fraction(
    replicas: Replicas, layout: int, workload: Workload, requests_per_s: float, found: float
) -> float:
    """Return the share of a loaded replica's time spent in prefill."""
    context = workload.lengths.input.mean
    prompt = context * (1.0 - found)
    prefill_s = prompt * replicas["prefill_s_per_token"][layout]
    # Each token that is computed attends to the whole prompt, cached tokens included.
    prefill_s += prompt * context * replicas["attention_s_per_token2"][layout]
    busy_fraction = requests_per_s * prefill_s
    return float(np.clip(busy_fraction, 0.0, _MOST_PREFILL))
