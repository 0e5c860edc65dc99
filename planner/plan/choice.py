"""The choice of a service: the engine, precision and layout in which each cluster serves most of each workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.demand.bursts import SHARP, Lateness
from planner.errors import CapacityError, Problem, ScenarioError
from planner.physics import model_on_part
from planner.physics.coefficients import (
    DISAGGREGATED,
    SERVING,
    Evidence,
    roofline_calibration,
)
from planner.physics.replica import (
    OperatingPoint,
    ReplicaSpec,
    ReplicaWork,
    Traffic,
    at_concurrency,
    at_speed,
    price_replicas,
)
from planner.plan.cache_hits import CacheUse, replica_cache
from planner.plan.candidates import (
    CHUNKS,
    CandidateLayouts,
    are_measured,
    as_first_bought,
    engine_options,
    hardware_key,
    layout_key,
    maturity_factor,
    pooled_nodes,
    refused_options,
    traffic_of,
)
from planner.plan.disaggregation import PoolPair, disaggregated_point
from planner.plan.reuse import Reuse
from planner.plan.shrinkage import belief
from planner.plan.slo_capacity import (
    LayoutSearch,
    ServicePoint,
    Speed,
    lengths_of,
    mean_point,
    mean_rates,
    rates_by_mean_times,
    shared_cache_terms,
    slo_point,
)
from planner.plan.software import dated_log_gain
from planner.records import record
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import SECONDS_PER_HOUR, counted

PREFERRED_UTILISATION = 0.85
"""Clusters are filled to it in order, and replicas placed for it: spill before queues build up (assumption)."""
SECOND_ENGINE = 0.05
"""Of a cluster's nodes, what each engine beyond the first has to save: images, tests and people for one more stack
(assumption)."""
_NO_WORK = 1e-9
"""Requests a second of a workload without demand: it takes part in the choice of engines where nothing else does."""
_TIE = 1e-9
"""Relative difference below which two services are as fast, as all are of a stated throughput: the first is taken."""
_NO_MORE = "another engine or precision serves equally much"
_POOLS_WITH_REUSE = (
    "prefill_decode: disaggregated needs a stated share of prompts in the cache: state prefix_cache_hit_fraction in "
    "place of reuse, or prefill_decode: auto"
)


@record
class PrefillWorkers:
    """Accelerators that only prefill prompts, whose caches move to the accelerators that decode."""

    spec: ReplicaSpec
    """One worker."""
    share: float
    """Of the accelerators that serve the workload."""
    transfer_s_per_token: float
    """Time in which the cache of one prompt token moves."""


@record
class Service:
    """Layout and SLO capacity of a workload on a cluster on day one."""

    tensor_parallel: int
    accelerators_per_node: int
    requests_per_s: float
    """Of one node, stack and user multipliers included."""
    yearly: tuple[float, ...]
    """The same after 0, 1, 2, ... years of growth in tokens per request."""
    outgrown_years: float
    """When its requests have grown so long that no batch meets the objective any more; infinity for never."""
    batch: float
    tpot_s: float
    single_tpot_s: float
    prefill_fraction: float
    """Share of a loaded replica's time spent in prefill."""
    token_time: tuple[float, float, float]
    """Shares of its time by kind of token: of prefill, tokens in the cache take the attention to them; then decode."""
    single_stream_s: float
    """Bytes that one board moves in the step of a single sequence, over its bandwidth."""
    stream_s: float
    """The same in a step of the full batch."""
    compute_s_per_token: float
    """Operations of one token on one board, over its dense rate at the precision served."""
    prefill_compute_fraction: float
    """Operations of prefill over its time and the dense rate at the precision served."""
    wide_factor: float
    """Speed in the next wider precision over this one; 0 where it does not fit."""
    roofline_factor: float
    """Throughput of the same replica under perfect software over the formula's."""
    spec: ReplicaSpec
    """The replica that serves it."""
    speed: float = 1.0
    """Speed over the throughput formula's: the stack's maturity times the user's factor, or the user's claim."""
    admission_tpot_s: float = 0.0
    """The mean time per token up to which a router that refuses admits requests, at the formula's speed."""
    lateness: Lateness = SHARP
    """The shares of requests late and refused by load over capacity, without bursts."""
    layout: str = ""
    """How a replica is laid out, in words."""
    prefill: PrefillWorkers | None = None
    """Where prompts are prefilled by accelerators of their own, those."""
    cache: CacheUse | None = None
    """What is found in the cache by load, where that follows from memory."""
    evidence: Evidence | None = None
    """How near measurements stand to it and how far it may be off; None where the calibration knows nothing of it."""

    def faster(self, factor: float) -> Service:
        """Return the service at a multiple of its speed."""
        if factor == 1.0:
            return self
        return replace(
            self,
            speed=self.speed * factor,
            requests_per_s=self.requests_per_s * factor,
            yearly=tuple(rate * factor for rate in self.yearly),
        )

    def as_keys(self) -> dict[str, object]:
        """Return the keys of a cluster that state this layout."""
        spec = self.spec
        return {
            "engine": spec.engine,
            "precision": spec.precision,
            "tensor_parallel": spec.accelerators,
            "attention": "data-parallel" if spec.attention_data_parallel > 1 else "tensor-parallel",
            "chunk_tokens": spec.chunk_tokens,
            "prefill_decode": "disaggregated" if self.prefill else "colocated",
        }


Services = dict[tuple[str, str], Service]
"""By cluster and workload."""


Factors = Mapping[tuple[str, str, str], float]
"""Throughput over the model's, by accelerator, engine and model; an empty accelerator or model stands for any."""


def build_services(
    scenario: Scenario, reuse: Reuse, factors: Factors
) -> tuple[Services, list[str]]:
    """Return the service of each feasible (cluster, workload) pair, and the reasons why others are infeasible.

    A workload that no cluster can serve is an error.
    """
    services: Services = {}
    refused: list[str] = []
    problems: list[Problem] = []
    # Clusters of the same machines serve alike: a fleet bought in waves is worked out once.
    by_kind: dict[Hashable, dict[str, Service | CapacityError]] = {}
    by_cluster: dict[str, dict[str, Service | CapacityError]] = {}
    for cluster_name in scenario.machines:
        cluster = as_first_bought(scenario, cluster_name)
        speed = (cluster.throughput_multiplier, cluster.engine_date)
        kind = (hardware_key(cluster), speed, pooled_nodes(cluster.nodes))
        if kind not in by_kind:
            services_of_kind = _cluster_services(cluster, scenario, reuse)
            by_kind[kind] = {
                name: _off_by(one, cluster, scenario.workloads[name], factors)
                for name, one in services_of_kind.items()
            }
        by_cluster[cluster_name] = by_kind[kind]
    for workload_name, workload in scenario.workloads.items():
        reasons = []
        for cluster_name, of_cluster in by_cluster.items():
            service = of_cluster[workload_name]
            if isinstance(service, CapacityError):
                reasons.append(f"{cluster_name}: {service}")
            else:
                services[cluster_name, workload_name] = service
        refused += [f"workload {workload_name} cannot run on {reason}" for reason in reasons]
        # Clusters without machines are APIs.
        has_api = workload.allow_api and len(scenario.machines) < len(scenario.clusters)
        is_refused_everywhere = len(reasons) == len(scenario.machines)
        if is_refused_everywhere and not has_api:
            message = "no cluster can serve it: " + "; ".join(reasons)
            path = ("workloads", workload_name)
            problems.append(scenario.document.problem(path, message))
    if problems:
        raise ScenarioError(problems)
    return services, refused


def _cluster_services(
    cluster: Cluster, scenario: Scenario, reuse: Reuse
) -> dict[str, Service | CapacityError]:
    """Return how a cluster serves each workload, by its name, with as few engines as do all of the work.

    They are the set S of engines that needs least nodes: Σ over workloads of requests a second over what a node serves
    of them with the best of S, times 1.05 for each engine beyond the first.
    """
    workloads = scenario.workloads

    def served(engine: str, name: str, floor: float = 0.0) -> Service | CapacityError:
        workload = workloads[name]
        # As one that is stated an engine would be taken though there are better known ones.
        if engine != cluster.engine and engine not in _expected_rates(cluster, workload, reuse):
            return CapacityError(_NO_MORE)
        stated = cluster.model_copy(update={"engine": engine})
        return _served_best(stated, workload, scenario, reuse, math.inf, floor)

    if cluster.engine != "auto":
        return {name: served(cluster.engine, name) for name in workloads}
    work = {
        name: workload.day_one_requests_per_s or _NO_WORK for name, workload in workloads.items()
    }
    leader, *others = _engines_by_expected_nodes(cluster, work, scenario, reuse)
    exact = {leader: {name: served(leader, name) for name in workloads}}
    # Of the others only what they serve more of than the leader need be known: where they stand beside it the rest is
    # the leader's, and without it the leader's rate is more than theirs.
    at_most = {leader: exact[leader]}
    for engine in others:
        better = {name: served(engine, name, _rate(exact[leader][name])) for name in workloads}
        if any(_rate(one) for one in better.values()):
            at_most[engine] = {
                name: one if _rate(one) else exact[leader][name] for name, one in better.items()
            }
    servable = [
        name
        for name, workload in workloads.items()
        if workload.begins is None and any(_rate(of[name]) for of in at_most.values())
    ]

    def nodes(services: Mapping[str, Service | CapacityError]) -> float:
        return sum(work[name] / (_rate(services[name]) or _NO_WORK) for name in servable)

    fewest = exact[leader]
    least_nodes = math.inf
    for count in range(1, len(at_most) + 1):
        toll = (1.0 + SECOND_ENGINE) ** (count - 1)
        for engines in itertools.combinations(at_most, count):
            mixed = _best_of([at_most[engine] for engine in engines])
            if leader not in engines and nodes(mixed) * toll < least_nodes:
                for engine in engines:
                    if engine not in exact:
                        exact[engine] = {name: served(engine, name) for name in workloads}
                mixed = _best_of([exact[engine] for engine in engines])
            # One that comes later has to save something.
            if nodes(mixed) * toll < least_nodes * (1.0 - _TIE):
                least_nodes = nodes(mixed) * toll
                fewest = mixed
    # Those that no engine serves are refused in the words of the choice among all; what comes later has that choice
    # too, and none in what is there before it.
    refused = [name for name in workloads if name not in servable]
    return fewest | {name: served("auto", name) for name in refused}


def _best_of(
    alternatives: Sequence[dict[str, Service | CapacityError]],
) -> dict[str, Service | CapacityError]:
    """Return the service of each workload that serves most; the first of equals."""
    return {
        name: max((services[name] for services in alternatives), key=_rate)
        for name in alternatives[0]
    }


def _engines_by_expected_nodes(
    cluster: Cluster, work: Mapping[str, float], scenario: Scenario, reuse: Reuse
) -> list[str]:
    """Return the engines of a cluster's vendor, by the nodes that all workloads need by mean times."""
    vendor = reuse.catalog.accelerator(cluster.accelerator).vendor.value
    nodes = {}
    for engine in reuse.catalog.engines(vendor):
        nodes[engine] = 0.0
        for name, workload in scenario.workloads.items():
            if workload.begins:
                continue
            rate = _expected_rates(cluster, workload, reuse).get(engine, 0.0)
            nodes[engine] += work[name] / (rate or _NO_WORK)
    # Stable, so that of equals the one that the catalogue has first leads.
    return sorted(nodes, key=lambda engine: nodes[engine])


def _expected_rates(cluster: Cluster, workload: Workload, reuse: Reuse) -> Mapping[str, float]:
    """Return what an accelerator serves with each engine that is an option, in its best precision, by mean times."""

    def rates() -> dict[str, float]:
        by_engine: dict[str, float] = {}
        for option in engine_options(cluster, workload, reuse.catalog):
            rate = _expected_rate(option, workload, reuse)
            by_engine[option.engine] = max(by_engine.get(option.engine, 0.0), rate)
        return by_engine

    nodes = pooled_nodes(cluster.nodes)
    return reuse.once(("expected rates", _options_key(cluster, workload), nodes), rates)


def _expected_rate(option: Cluster, workload: Workload, reuse: Reuse) -> float:
    """Return what an accelerator serves with one engine and precision by mean times; 0 where that says nothing."""
    if option.throughput_tokens_per_s_per_accelerator is not None:
        return 0.0

    def most_by_mean_times() -> float:
        try:
            _, _, rates = rates_by_mean_times(option, workload, reuse)
        except CapacityError:
            return 0.0
        return float(rates.max())

    nodes = pooled_nodes(option.nodes)
    most = reuse.once(
        ("most by mean times", layout_key(option, workload), nodes), most_by_mean_times
    )
    return most * maturity_factor(option, workload, reuse.catalog)


def _rate(service: Service | CapacityError) -> float:
    """Return what a node serves; 0 for a refusal."""
    return service.requests_per_s if isinstance(service, Service) else 0.0


def served_by(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    factors: Factors,
    max_replicas: float = math.inf,
) -> Service | CapacityError:
    """Return how a cluster, as first bought, serves most of a workload of a scenario, or why it cannot.

    A router chooses among ``max_replicas`` at the most.
    The choice is made by what the model predicts: by how much that is off, ``factors``, nobody knows when choosing.
    """
    best = _served_best(cluster, workload, scenario, reuse, max_replicas)
    return _off_by(best, cluster, workload, factors)


def _served_best(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    max_replicas: float,
    floor: float = 0.0,
) -> Service | CapacityError:
    """Return how a cluster serves most of a workload by prediction; what serves no more than ``floor`` is none."""

    def best() -> Service | CapacityError:
        options = engine_options(cluster, workload, reuse.catalog)
        if not options:
            reasons = refused_options(cluster, workload, reuse.catalog)
            return CapacityError("; ".join(dict.fromkeys(reasons)))
        if cluster.layouts == "measured":
            options = [one for one in options if has_measured(one, workload, reuse)] or options
        return _best_service(options, workload, scenario, reuse, max_replicas, floor)

    # What shares a cache hangs on all workloads of the cluster.
    if workload.reuse is not None:
        return best()
    pool = _pool_key(cluster, workload, scenario, max_replicas)
    months = scenario.horizon_months
    speed = cluster.throughput_multiplier
    key = ("best service", _options_key(cluster, workload), months, pool, speed, floor)
    return reuse.once(key, best)


def _options_key(cluster: Cluster, workload: Workload) -> Hashable:
    """Return the figures that decide the engines, precisions and layouts among which a cluster chooses."""
    return layout_key(cluster, workload), tuple(workload.precisions)


def _pool_key(
    cluster: Cluster, workload: Workload, scenario: Scenario, max_replicas: float
) -> Hashable:
    """Return the figures that decide how a router pools requests; mean times, by which work waits, know of none."""
    if workload.priority == "deferrable":
        return None
    return scenario.router_pool, max_replicas, pooled_nodes(cluster.nodes), workload.admission


def has_measured(option: Cluster, workload: Workload, reuse: Reuse) -> bool:
    """Return whether rows measured a layout in which a cluster may serve a workload with one engine and precision."""
    try:
        layouts, _, _ = rates_by_mean_times(option, workload, reuse)
    except CapacityError:
        return False
    return bool((layouts.is_allowed & are_measured(layouts.specs, reuse.calibration)).any())


def _off_by(
    service: Service | CapacityError, cluster: Cluster, workload: Workload, factors: Factors
) -> Service | CapacityError:
    """Return a service at a drawn error of its prediction."""
    if isinstance(service, CapacityError):
        return service
    # Errors of a pair, of its model on any part, and of its part with any model: they multiply.
    engine = service.spec.engine
    pair = (cluster.accelerator, engine, workload.model)
    model_on_any_part = ("", engine, workload.model)
    part_with_any_model = (cluster.accelerator, engine, "")
    factor = factors.get(pair, 1.0)
    factor *= factors.get(model_on_any_part, 1.0)
    factor *= factors.get(part_with_any_model, 1.0)
    return service.faster(factor)


def runner_up(
    cluster: Cluster, workload: Workload, service: Service, scenario: Scenario, reuse: Reuse
) -> Service | None:
    """Return the best that a cluster could do instead: with another engine, precision or place of prefill."""
    # Another engine or precision as it is, and the same one with prefill in the other place.
    alternatives = []
    chosen = (service.spec.engine, service.spec.precision)
    # A throughput that the user states is that of whole replicas, so it says nothing of the other place.
    is_stated = cluster.throughput_tokens_per_s_per_accelerator is not None
    for option in engine_options(cluster, workload, reuse.catalog):
        if (option.engine, option.precision) != chosen:
            alternatives.append(option)
        elif option.prefill_decode == "auto" and not is_stated:
            place = "disaggregated" if service.prefill is None else "colocated"
            alternatives.append(option.model_copy(update={"prefill_decode": place}))
    if not alternatives:
        return None
    best = _best_service(alternatives, workload, scenario, reuse)
    return best if isinstance(best, Service) else None


def _best_service(
    options: list[Cluster],
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    max_replicas: float = math.inf,
    floor: float = 0.0,
) -> Service | CapacityError:
    """Return the service of the option that serves most, or why the first serves nothing.

    Mean times set the order in which options are tried: the best comes early, and others are left as soon as they are
    seen to serve no more.
    """

    def order() -> list[int]:
        # Stable, so that of equals the one stated first is tried first.
        return sorted(
            range(len(options)), key=lambda place: -_expected_rate(options[place], workload, reuse)
        )

    # What an engine does not support is not left open any more.
    kinds = tuple(
        (
            option.engine,
            option.precision,
            option.prefill_decode,
            option.attention,
            option.speculation,
        )
        for option in options
    )
    is_deferrable = workload.priority == "deferrable"
    key = ("order", layout_key(options[0], workload), is_deferrable, kinds)
    best: Service | None = None
    # The user's own factor comes last.
    least_rate = floor / options[0].throughput_multiplier
    for place in reuse.once(key, order):
        service = _served(options[place], workload, scenario, reuse, max_replicas, least_rate)
        if isinstance(service, Service) and service.requests_per_s > least_rate:
            best = service
            # Only what serves more than the best so far, and not by a tie, need be worked out.
            least_rate = service.requests_per_s * (1.0 + _TIE)
    if best is not None:
        return best.faster(options[0].throughput_multiplier)
    if floor > 0.0:
        return CapacityError(_NO_MORE)
    # Without a floor, so that the reason is the option's own and not that another serves more.
    return _served(options[0], workload, scenario, reuse, max_replicas)


def _served(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    max_replicas: float,
    floor: float = 0.0,
) -> Service | CapacityError:
    """Return how a cluster serves a workload with its engine and precision, or why it serves no more than a floor."""
    # A dated image may be faster than the calibration's: the floor is on what it serves in the end.
    log_gain = dated_log_gain(cluster, cluster.engine, workload, reuse.calibration, reuse.catalog)
    dated = math.exp(log_gain)
    undated_floor = floor / max(dated, 1.0)
    service = service_of(cluster, workload, scenario, reuse, max_replicas, undated_floor)
    if isinstance(service, CapacityError):
        return service
    # No image is faster than perfect software.
    roofline_gain = max(service.roofline_factor / service.speed, 1.0)
    return service.faster(min(dated, roofline_gain))


def service_of(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    max_replicas: float = math.inf,
    floor: float = 0.0,
) -> Service | CapacityError:
    """Return the cached service before the user's own factor, or the CapacityError that says why there is none.

    A router chooses among ``max_replicas`` at the most. What serves no more than ``floor`` is none.
    """

    def computed() -> Service | CapacityError:
        try:
            return _computed_service(cluster, workload, scenario, reuse, max_replicas, floor)
        except CapacityError as error:
            return error

    pool = _pool_key(cluster, workload, scenario, max_replicas)
    months = scenario.horizon_months
    sharing: Hashable = None
    if workload.reuse is not None:
        terms = shared_cache_terms(cluster, workload, scenario, reuse)
        sharing = (None if terms is None else terms.key, pooled_nodes(cluster.nodes))
    key = ("service", layout_key(cluster, workload), months, pool, floor, sharing)
    return reuse.once(key, computed)


def _computed_service(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    max_replicas: float,
    floor: float,
) -> Service:
    """Return the service in the layout with most requests per accelerator within the SLO."""
    layouts, operating_point, rates = rates_by_mean_times(cluster, workload, reuse)
    replicas = layouts.replicas
    part = layouts.specs[0].part
    search = LayoutSearch(
        replicas=replicas,
        mean_rates=rates,
        router_pool=scenario.router_pool,
        nodes=cluster.nodes,
        accelerators_per_node=part.accelerators_per_node,
        max_replicas=max_replicas,
        cache=shared_cache_terms(cluster, workload, scenario, reuse),
    )
    # A claim is throughput, so it moves rates; all else moves the steps, and with them the waits.
    claim = stated_over_formula(cluster, workload, search)
    speed = Speed(steps=1.0, rates=claim or 1.0)
    if claim is None:
        speed = Speed(steps=maturity_factor(cluster, workload, reuse.catalog), rates=1.0)
    # All counts as far as it is known: a layout's steps run at so much of what is predicted of them.
    believed = belief(cluster, workload, reuse)
    own_speeds = np.exp(believed.of(layouts.specs))
    own_pool_speed = math.exp(believed.pools.get(cluster.engine, 0.0))
    pool_search = replace(search, replicas=at_speed(layouts.predicted, own_pool_speed))
    if search.cache is not None:
        # What is served over the formula's rate passes through the caches too.
        time_share = search.cache.time_share * speed.rates
        search = replace(search, cache=replace(search.cache, time_share=time_share))
    least_rate = floor / part.accelerators_per_node
    months = scenario.horizon_months
    best, point, pools = _best_point(
        cluster, workload, months, layouts, operating_point, search, pool_search, speed, least_rate
    )
    if point.cache is not None:
        # From here on as if it had been measured at this load.
        found = point.cache.found_fractions[-1]
        workload = workload.model_copy(update={"prefix_cache_hit_fraction": found})
    own_speed = float(own_speeds[best]) if pools is None else own_pool_speed
    traffic = traffic_of(workload)
    slo = workload.slo
    if point.yearly[0] <= 0:
        # The message says how near the fastest layout comes.
        single = at_concurrency(replicas, np.arange(rates.size), traffic, 1.0)
        allowed_tpot_s = np.where(layouts.is_allowed, single.tpot_s, np.inf)
        fastest = int(np.argmin(allowed_tpot_s))
        raise CapacityError(
            f"no batch of {workload.model} on {cluster.accelerator} meets {slo.ttft_s:g} s to the first token "
            f"and {slo.tpot_s:g} s per token; a single request takes {single.ttft_s[fastest]:.3g} s and "
            f"{single.tpot_s[fastest]:.3g} s on {layouts.specs[fastest].accelerators} accelerators"
        )
    spec = layouts.specs[best]
    prefill = None
    if pools is not None:
        prompt = workload.lengths.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
        prefill = PrefillWorkers(
            spec=layouts.specs[pools.prefill],
            share=pools.prefill_share,
            transfer_s_per_token=pools.transfer_s / max(prompt, 1.0),
        )
    # From one accelerator to a node.
    yearly = point.yearly * part.accelerators_per_node
    compute_s = float(layouts.work["flops_s_per_token"][best])
    prefill_s = layouts.predicted["prefill_s_per_token"][best]
    attention_s_per_token2 = layouts.predicted["attention_s_per_token2"][best]
    attention_s = workload.lengths.input.mean * attention_s_per_token2
    # Of a prompt's time, what attention to the cached tokens takes: they are not computed again.
    cached = float(workload.prefix_cache_hit_fraction * attention_s / (prefill_s + attention_s))
    batches = np.array([1.0, point.batch])
    single_stream_s, full_stream_s = stream_s(layouts.work, best, spec, traffic, batches)
    predicted = {name: column[best : best + 1] for name, column in layouts.predicted.items()}
    mean_rate = float(mean_rates(predicted, traffic, slo)[1][0])
    alone = _alone(layouts, best, workload, mean_rate, reuse)
    return Service(
        spec=spec,
        speed=speed.steps * speed.rates * own_speed,
        tensor_parallel=spec.accelerators,
        accelerators_per_node=part.accelerators_per_node,
        requests_per_s=float(yearly[0]),
        yearly=tuple(yearly.tolist()),
        outgrown_years=point.outgrown_years,
        batch=point.batch,
        tpot_s=point.tpot_s * own_speed,
        admission_tpot_s=point.admission_tpot_s * own_speed,
        prefill_fraction=point.prefill_fraction,
        single_tpot_s=alone.tpot_s,
        single_stream_s=single_stream_s,
        stream_s=full_stream_s,
        compute_s_per_token=compute_s,
        token_time=(
            point.prefill_fraction * (1.0 - cached),
            point.prefill_fraction * cached,
            1.0 - point.prefill_fraction,
        ),
        prefill_compute_fraction=min(1.0, compute_s / float(prefill_s)),
        wide_factor=alone.wide_factor,
        roofline_factor=alone.roofline_factor,
        layout=_layout_in_words(spec, prefill),
        prefill=prefill,
        cache=point.cache,
        evidence=spec.evidence(reuse.calibration, DISAGGREGATED if prefill else SERVING),
        # The formula serves more than what keeps the objective, and more of it late; of a stated throughput nobody
        # knows what it would take beyond: it is a ceiling.
        lateness=point.lateness if claim is None else point.lateness.up_to_capacity(),
    )


class _Alone(NamedTuple):
    """Figures of one replica by mean times, whatever its pool; a service has the same."""

    tpot_s: float
    wide_factor: float
    roofline_factor: float


def _alone(
    layouts: CandidateLayouts, best: int, workload: Workload, mean_rate: float, reuse: Reuse
) -> _Alone:
    """Return the figures of one replica by mean times, worked out once for all pools of a layout."""
    spec = layouts.specs[best]

    def computed() -> _Alone:
        traffic = traffic_of(workload)
        single = at_concurrency(layouts.predicted, np.array([best]), traffic, 1.0)
        # What a response to wrong numerics costs, and what is left to gain: both as ratios.
        wider_precision = model_on_part.wider_precision(spec.part, spec.shape, spec.precision)
        wider = replace(spec, precision=wider_precision)
        wider_replica = price_replicas([wider], reuse.calibration)
        roofline_replica = price_replicas([spec], roofline_calibration())
        _, wide_rates = mean_rates(wider_replica, traffic, workload.slo)
        _, roofline_rates = mean_rates(roofline_replica, traffic, workload.slo)
        has_wider = mean_rate > 0 and wider.memory().fits
        return _Alone(
            tpot_s=float(single.tpot_s[0]),
            wide_factor=min(1.0, float(wide_rates[0]) / mean_rate) if has_wider else 0.0,
            roofline_factor=float(roofline_rates[0]) / (mean_rate or math.inf),
        )

    requests = (workload.lengths, workload.prefix_cache_hit_fraction, workload.slo)
    limits = (spec.max_sequences, spec.mean_acceptance_length)
    replica = (spec.part.name, spec.shape.name, spec.layout, limits)
    return reuse.once(("alone", replica, requests, mean_rate), computed)


def _best_point(
    cluster: Cluster,
    workload: Workload,
    horizon_months: int,
    layouts: CandidateLayouts,
    operating_point: OperatingPoint,
    search: LayoutSearch,
    pool_search: LayoutSearch,
    speed: Speed,
    floor: float,
) -> tuple[int, ServicePoint, PoolPair | None]:
    """Return the layout that decodes and the operating point of the better of colocated and disaggregated serving.

    The pools come with it where prefill and decode are disaggregated. Raise CapacityError where neither serves more
    than ``floor``.
    """
    colocated = None
    if cluster.prefill_decode == "disaggregated" and search.cache is not None:
        raise CapacityError(_POOLS_WITH_REUSE)
    if cluster.prefill_decode != "disaggregated":
        if workload.priority == "deferrable":
            best = int(np.argmax(search.mean_rates))
            total_speed = speed.steps * speed.rates
            cache = None
            if search.cache is not None:
                has_host = any(search.cache.tiers)
                accelerators = layouts.specs[best].accelerators
                per_node = layouts.specs[best].part.accelerators_per_node
                pooled = pooled_nodes(cluster.nodes) * per_node / accelerators
                cache = replica_cache(
                    layouts.replicas,
                    best,
                    search.cache,
                    pooled,
                    lengths_of(workload),
                    has_host=has_host,
                )
            point = mean_point(
                layouts.replicas,
                best,
                workload,
                operating_point,
                horizon_months,
                total_speed,
                cache,
            )
            # Without a floor even nothing is a point: its message says why.
            exceeds_floor = not floor or point.yearly[0] > floor
            colocated = (best, point) if exceeds_floor else None
        else:
            colocated = slo_point(search, workload, horizon_months, speed, floor)
    if colocated is not None:
        # Pools have to beat colocated serving, so most of their layouts need no curve.
        floor = max(floor, float(colocated[1].yearly[0]))
    pools = None
    # A throughput that the user states is that of whole replicas.
    is_stated = cluster.throughput_tokens_per_s_per_accelerator is not None
    # Pools apart are worked out where the share in the cache is stated.
    has_pools = cluster.prefill_decode != "colocated" and search.cache is None
    if has_pools and not is_stated:
        pools = disaggregated_point(
            pool_search, layouts.specs, workload, horizon_months, speed, floor
        )
    if pools is not None:
        pair, pool_point = pools
        # Where neither keeps the objective, what serves colocated says so.
        if colocated is None or pool_point.yearly[0] > floor:
            return pair.decode, pool_point, pair
    if colocated is None:
        raise CapacityError(_NO_MORE)
    return *colocated, None


def _layout_in_words(spec: ReplicaSpec, prefill: PrefillWorkers | None) -> str:
    """Return how a replica is laid out, in words."""
    words = f"{counted(spec.accelerators, 'accelerator')} a replica"
    if spec.attention_data_parallel > 1:
        words += f", attention in {spec.attention_data_parallel} groups"
    if prefill is None:
        words += f", {spec.chunk_tokens:,} prompt tokens a step"
    else:
        size = prefill.spec.accelerators
        words += f", prompts on a pool of {prefill.share:.0%} in replicas of {size}"
    if spec.drafted_tokens:
        words += f", {spec.drafted_tokens} tokens drafted"
    return words


def stated_over_formula(cluster: Cluster, workload: Workload, search: LayoutSearch) -> float | None:
    """Return the user's stated throughput over the formula's, at the lengths it was measured at.

    stated output tokens per second / output tokens of a request / the formula's requests per second, of an accelerator.
    Times the formula's requests at other lengths it is the stated throughput scaled to them. Objective, spread of
    lengths and cached share are the workload's on both sides, so that only the lengths differ; at either lengths the
    replica is the one that serves most. None where the user states none.
    """
    tokens_per_s = cluster.throughput_tokens_per_s_per_accelerator
    measured_at = cluster.throughput_measured_at
    if tokens_per_s is None or measured_at is None:
        # Never one without the other: validation sees to it.
        return None
    traffic = replace(
        traffic_of(workload),
        input_tokens=measured_at.input_tokens,
        output_tokens=measured_at.output_tokens,
    )
    _, rates = mean_rates(search.replicas, traffic, workload.slo)
    rates = np.where(search.mean_rates < 0.0, -1.0, rates)
    formula = float(rates.max())
    lengths = workload.lengths
    if workload.priority != "deferrable":
        planned = lengths_of(workload)
        input_ratio = measured_at.input_tokens / lengths.input.mean
        output_ratio = measured_at.output_tokens / lengths.output.mean
        measured = replace(
            planned,
            prompt_tokens=planned.prompt_tokens * input_ratio,
            output_tokens=planned.output_tokens * output_ratio,
        )
        # The best replica at the lengths measured may be another than at the workload's.
        best = replace(search, mean_rates=rates).best(1.0, workload.slo, measured)
        formula = best.rate if best else 0.0
    if formula <= 0:
        raise CapacityError(
            f"its stated throughput, measured at {measured_at.input_tokens:g} prompt and "
            f"{measured_at.output_tokens:g} generated tokens, cannot be scaled to {lengths.input.mean:g} and "
            f"{lengths.output.mean:g}: at the lengths measured, the formula serves nothing within the workload's "
            "objective; state a measurement at lengths closer to the workload's"
        )
    return tokens_per_s / measured_at.output_tokens / formula


def stream_s(
    work: ReplicaWork, best: int, spec: ReplicaSpec, traffic: Traffic, batch: Floats
) -> list[float]:
    """Return the memory traffic of one board in a decode step, in seconds at full bandwidth, shape (batches,).

    Weights that every step reads, the experts that a batch touches, 1 − (1 − k/E)^B of them, and the cache of each
    sequence halfway through its output.
    """
    fit = spec.memory()
    # A sequence halfway through its output stands for all.
    context = traffic.input_tokens + traffic.output_tokens / 2
    bytes_per_s = spec.accelerators * spec.part.hbm_bytes_per_s
    cache_s = fit.kv_bytes_per_token * context / bytes_per_s
    # expm1 keeps its digits where a batch touches few of many experts.
    touched_fraction = -np.expm1(batch * work["log_expert_missed"][best])
    experts_s = work["routed_stream_s"][best] * touched_fraction
    stream = work["shared_stream_s"][best] + experts_s + batch * cache_s
    seconds: list[float] = stream.tolist()
    return seconds


def evidence_notes(scenario: Scenario, services: Services) -> Iterator[str]:
    """Yield which layouts nobody measured, and which lie at an edge of what is tried."""
    unmeasured = {}
    at_edge: dict[int, list[str]] = {}
    for (cluster, workload), service in services.items():
        spec = service.spec
        # What is stated needs no evidence.
        is_stated = scenario.clusters[cluster].throughput_tokens_per_s_per_accelerator is not None
        if is_stated:
            continue
        evidence = service.evidence
        if evidence is not None and evidence.grade == "extrapolated":
            low, high = evidence.interval(1.0)
            place = " with pools apart" if service.prefill else ""
            pair = f"{workload} on {cluster} ({spec.engine}{place}, −{1.0 - low:.0%} to +{high - 1.0:.0%})"
            unmeasured[pair] = evidence.log_error
        # Decode workers compute no prompts, and what can wait takes the usual chunk.
        is_chosen = scenario.clusters[cluster].chunk_tokens is None and service.prefill is None
        if is_chosen and spec.chunk_tokens in (CHUNKS[0], CHUNKS[-1]):
            at_edge.setdefault(spec.chunk_tokens, []).append(f"{workload} on {cluster}")
    if unmeasured:
        widest_first = sorted(unmeasured, key=lambda pair: -unmeasured[pair])
        yield (
            f"throughput is extrapolated, because no public run has this model under this engine on this accelerator: "
            f"{', '.join(widest_first)}"
        )
    for chunk, pairs in at_edge.items():
        edge = "smallest" if chunk == CHUNKS[0] else "largest"
        yield (
            f"chunk_tokens: the {edge} value tried, {chunk:,}, serves most for {', '.join(pairs)}; to try values "
            "beyond it, state them"
        )


def token_time_table(scenario: Scenario, services: Services) -> Floats:
    """Return the shares of a request's machine time by kind of token, shape (clusters, workloads, 3); 0 for none."""
    # Clusters and workloads in the order of the scenario, as in every table of a plan.
    table = np.zeros((len(scenario.clusters), len(scenario.workloads), 3))
    for c, cluster in enumerate(scenario.clusters):
        for w, workload in enumerate(scenario.workloads):
            if (service := services.get((cluster, workload))) is not None:
                table[c, w] = service.token_time
    return table


def capacity_table(scenario: Scenario, services: Services, month_mid_years: Floats) -> Floats:
    """Return requests per node and hour, shape (clusters, workloads, months or 1); zero where infeasible.

    So a workload that has outgrown its objective on a cluster is refused there and takes no share of it.
    """
    grows = any(workload.lengths.growth_per_year for workload in scenario.workloads.values())
    periods = month_mid_years.size if grows else 1
    table = np.zeros((len(scenario.clusters), len(scenario.workloads), periods))
    for c, cluster in enumerate(scenario.clusters):
        for w, workload in enumerate(scenario.workloads):
            if (service := services.get((cluster, workload))) is None:
                continue
            table[c, w] = service.requests_per_s
            # Geometric between years, since tokens grow by a factor a year.
            if grows:
                yearly = np.log(service.yearly)
                years = np.arange(yearly.size)
                table[c, w] = np.exp(np.interp(month_mid_years, years, yearly))
            is_outgrown = month_mid_years[:periods] >= service.outgrown_years
            table[c, w, is_outgrown] = 0.0
    return table * SECONDS_PER_HOUR
