"""The SLO capacity of one node of each cluster for each workload: candidate layouts, and the best of them.

Below, what a layout serves at the stated percentile, and the shares late and rejected at any load. Prompts may be
prefilled by accelerators of their own: two pools in balance, by mean times and at a percentile. A worker that only
prefills is one whose replies have a single token, and one that only decodes finds every prompt in its cache: the late
shares of both are those of a replica (``planner.physics.slo_model``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.catalog.load import Catalog, part_of, shape_of
from planner.demand.bursts import SHARP, Lateness
from planner.errors import CapacityError, Problem, ScenarioError
from planner.physics import model_on_part
from planner.physics.coefficients import Calibration, Doubt, roofline_calibration
from planner.physics.model_on_part import AcceleratorSpec, ModelShape, memory_fit
from planner.physics.replica import (
    Lengths,
    OperatingPoint,
    Replicas,
    ReplicaSpec,
    ReplicaTimes,
    ReplicaWork,
    ServiceTerms,
    Traffic,
    at_concurrency,
    at_objective,
    describe,
    disaggregated,
    price_replicas,
    price_work,
)
from planner.physics.slo_model import (
    Curve,
    late_curve,
    most_rates,
    refusing,
    sustains_more,
    too_long_fraction,
)
from planner.plan.parts import as_stated, matured
from planner.plan.plan import MOST_LOAD, Reuse
from planner.scenario import workload as workloads
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Length, Objective, Workload
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillWorkers:
    """Accelerators that only prefill prompts, whose caches move to the accelerators that decode."""

    spec: ReplicaSpec
    """One worker."""
    share: float
    """Of the accelerators that serve the workload."""
    transfer_s_per_token: float
    """Time in which the cache of one prompt token moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    held_tpot_s: float = 0.0
    """The mean time per token up to which a router that refuses admits requests, at the formula's speed."""
    lateness: Lateness = SHARP
    """The shares of requests late and refused by load over capacity, without bursts."""
    layout: str = ""
    """How a replica is laid out, in words."""
    prefill: PrefillWorkers | None = None
    """Where prompts are prefilled by accelerators of their own, those."""
    doubt: Doubt | None = None
    """How far the throughput may be off; None where the calibration knows nothing of it."""

    def faster(self, factor: float) -> Service:
        """Return the service at a multiple of its speed."""
        if factor == 1.0:
            return self
        yearly = tuple(rate * factor for rate in self.yearly)
        rate = self.requests_per_s * factor
        return replace(self, speed=self.speed * factor, requests_per_s=rate, yearly=yearly)

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


class Layouts(NamedTuple):
    """Layouts of one model on one accelerator; arrays have one element for each layout."""

    specs: list[ReplicaSpec]
    work: ReplicaWork
    replicas: Replicas
    is_allowed: Bools
    """Those in which the cluster may serve; prompts may be prefilled apart in the others too."""


CHUNKS = tuple(256 * 2**n for n in range(7))
"""Prompt tokens of a step among which the planner chooses."""


def layouts_of(
    cluster: Cluster, model: str, precision: str, tokens: float, reuse: Reuse
) -> Layouts:
    """Return a cluster's candidate layouts for requests of this many tokens; raise CapacityError where none fits.

    Workloads of one model mostly share them, whatever is asked, and one that a cluster states is among all.
    """

    def entries() -> tuple[AcceleratorSpec, ModelShape]:
        return part_of(cluster.accelerator, reuse.catalog), shape_of(model, reuse.catalog)

    part, shape = reuse.once(("part and model", cluster.accelerator, model), entries)
    stated = (
        cluster.accelerator,
        cluster.engine,
        model,
        precision,
        cluster.max_sequences,
        cluster.speculation,
    )

    def priced() -> Layouts:
        work = describe(every)
        return Layouts(
            every, work, price_work(work, every, reuse.calibration), np.ones(len(every), dtype=bool)
        )

    free = cluster.model_copy(
        update={"tensor_parallel": None, "attention": "auto", "chunk_tokens": None}
    )
    every, bound = (replica_specs(of, part, shape, precision, tokens) for of in (free, cluster))
    usual = {spec.layout for spec in every}
    wanted = {spec.layout for spec in bound}
    every += [spec for spec in bound if spec.layout not in usual]
    known = reuse.once(("layouts", stated, tuple(spec.layout for spec in every)), priced)
    return known._replace(is_allowed=np.array([spec.layout in wanted for spec in every]))


def replica_specs(
    cluster: Cluster, part: AcceleratorSpec, shape: ModelShape, precision: str, tokens: float
) -> list[ReplicaSpec]:
    """Return the replica layouts in which a cluster can serve a model; raise CapacityError where none fits."""
    smallest = model_on_part.smallest_fit(part, shape, precision, tokens).accelerators
    degrees = [d for d in model_on_part.candidate_degrees(part, shape) if d >= smallest]
    if cluster.tensor_parallel is not None:
        if cluster.tensor_parallel not in degrees:
            raise CapacityError(
                f"{shape.name} at {precision} runs on {', '.join(map(str, degrees))} x {cluster.accelerator}, "
                f"not on {cluster.tensor_parallel}"
            )
        degrees = [cluster.tensor_parallel]
    layouts = [
        (degree, 1)
        for degree in degrees
        if cluster.attention != "data-parallel" or not shape.experts
    ]
    if shape.experts and cluster.attention != "tensor-parallel":
        # Each of the groups holds its own sequences: one must fit in a group's share of the cache.
        layouts += [
            (degree, degree)
            for degree in degrees
            if degree > 1
            and memory_fit(part, shape, precision, degree, degree).kv_capacity_tokens
            >= degree * tokens
        ]
    if not layouts:
        raise CapacityError(
            f"{shape.name} at {precision} does not fit with attention in data parallel on {max(degrees)} x "
            f"{cluster.accelerator}; tensor-parallel would hold it"
        )
    draft = cluster.speculation
    drafts = [(0, 1.0)]
    if draft is not None:
        drafts = [
            *(drafts if draft.use == "auto" else []),
            (draft.drafted_tokens, draft.mean_acceptance_length),
        ]
    return [
        ReplicaSpec(
            part=part,
            shape=shape,
            precision=precision,
            accelerators=degree,
            engine=cluster.engine,
            attention_data_parallel=groups,
            expert_parallel=groups > 1,
            max_sequences=cluster.max_sequences,
            chunk_tokens=chunk,
            drafted_tokens=drafted,
            mean_acceptance_length=accepted,
        )
        for drafted, accepted in drafts
        for degree, groups in layouts
        for chunk in ([cluster.chunk_tokens] if cluster.chunk_tokens else CHUNKS)
    ]


def options(cluster: Cluster, workload: Workload, catalog: Catalog) -> list[Cluster]:
    """Return a cluster in every engine and precision in which it may serve a workload.

    What either states binds, and of the precisions that a workload allows no cluster serves another. Where neither
    states one it is what public serving runs use.
    """
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    engines = catalog.engines(vendor) if cluster.engine == "auto" else [cluster.engine]
    precisions: tuple[str, ...] = workload.precisions
    if cluster.precision in precisions or not precisions:
        precisions = (cluster.precision or catalog.precision_with("default"),)
    return [
        cluster.model_copy(update={"engine": engine, "precision": precision})
        for engine in engines
        for precision in dict.fromkeys(precisions)
    ]


_FIRST_LIGHT = 0.3
"""Slowest that an old image is taken to be: a new model's first light on MI355X, 1/2.9 to 1/3.6 of its ceiling."""
PREFERRED_UTILISATION = 0.85
"""Clusters are filled to it in order, and replicas placed for it: spill before queues build up (assumption)."""
Factors = Mapping[tuple[str, str, str], float]
"""Throughput over the model's, by accelerator, engine and model; an empty accelerator or model stands for any."""


def build_services(
    scenario: Scenario, reuse: Reuse, factors: Factors
) -> tuple[Services, list[str]]:
    """Return the service of each feasible (cluster, workload) pair, and the reasons why others are infeasible.

    A workload that no cluster can serve is an error.
    """
    services: dict[tuple[str, str], Service] = {}
    refused: list[str] = []
    problems: list[Problem] = []
    bought = [as_first_bought(scenario, name) for name in scenario.machines]
    kinds = [
        (*_hardware(of), of.throughput_multiplier, of.engine_date, pooled_nodes(of.nodes))
        for of in bought
    ]
    for workload_name, workload in scenario.workloads.items():
        reasons = []
        by_kind: dict[Hashable, Service | CapacityError] = {}
        for cluster_name, cluster, kind in zip(scenario.machines, bought, kinds, strict=True):
            if kind not in by_kind:
                by_kind[kind] = served_by(cluster, workload, scenario, reuse, factors)
            service = by_kind[kind]
            if isinstance(service, CapacityError):
                reasons.append(f"{cluster_name}: {service}")
            else:
                services[cluster_name, workload_name] = service
        refused += [f"workload {workload_name} cannot run on {reason}" for reason in reasons]
        by_api = workload.allow_api and len(scenario.machines) < len(scenario.clusters)
        if len(reasons) == len(scenario.machines) and not by_api:
            message = "no cluster can serve it: " + "; ".join(reasons)
            problems.append(scenario.document.problem(("workloads", workload_name), message))
    if problems:
        raise ScenarioError(problems)
    return services, refused


_TIE = 1e-9
"""Relative difference below which two services are as fast, as all are of a stated throughput: the first is taken."""
_NEXT_TO_NONE = 1e-3
"""Requests for other models over a workload's own, up to which its model counts as alone."""
_NO_MORE = "it serves no more than with another engine or precision"


def served_by(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse, factors: Factors
) -> Service | CapacityError:
    """Return how a cluster, as first bought, serves most of a workload of a scenario, or why it cannot.

    It is chosen by what the model says; by how much that is off, ``factors``, nobody knows when choosing.
    """
    best = _most(options(cluster, workload, reuse.catalog), workload, scenario, reuse)
    if isinstance(best, CapacityError):
        return best
    factor = 1.0
    model = workload.model
    engine = best.spec.engine
    for part, of in ((cluster.accelerator, model), ("", model), (cluster.accelerator, "")):
        factor *= factors.get((part, engine, of), 1.0)
    return best.faster(factor)


def runner_up(
    cluster: Cluster, workload: Workload, service: Service, scenario: Scenario, reuse: Reuse
) -> Service | None:
    """Return the best that a cluster could do instead: with another engine, precision or place of prefill."""
    other = "disaggregated" if service.prefill is None else "colocated"
    tried = []
    for one in options(cluster, workload, reuse.catalog):
        if (one.engine, one.precision) != (service.spec.engine, service.spec.precision):
            tried.append(one)
        elif (
            cluster.prefill_decode == "auto"
            and cluster.throughput_tokens_per_s_per_accelerator is None
        ):
            tried.append(one.model_copy(update={"prefill_decode": other}))
    best = _most(tried, workload, scenario, reuse) if tried else None
    return best if isinstance(best, Service) else None


def _most(
    tried: list[Cluster], workload: Workload, scenario: Scenario, reuse: Reuse
) -> Service | CapacityError:
    """Return the service of the cluster that serves most, or why the first serves nothing.

    Mean times say in which order they are tried: the best comes early, and others are left as soon as they are seen to
    serve no more.
    """

    def expected(place: int) -> float:
        cluster = tried[place]
        if cluster.throughput_tokens_per_s_per_accelerator is not None:
            return 0.0
        try:
            _, _, rates = _by_mean_times(cluster, workload, reuse)
        except CapacityError:
            return 0.0
        return -float(rates.max()) * _maturity(cluster, workload, reuse.catalog)

    choices = tuple((one.engine, one.precision, one.prefill_decode) for one in tried)
    key = ("order", _layout_key(tried[0], workload), workload.priority == "deferrable", choices)
    best: Service | None = None
    for cluster in (
        tried[place] for place in reuse.once(key, lambda: sorted(range(len(tried)), key=expected))
    ):
        floor = best.requests_per_s * (1.0 + _TIE) if best is not None else 0.0
        service = _served(cluster, workload, scenario, reuse, floor)
        if isinstance(service, Service) and service.requests_per_s > floor:
            best = service
    return (
        _served(tried[0], workload, scenario, reuse)
        if best is None
        else best.faster(tried[0].throughput_multiplier)
    )


def _served(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse, floor: float = 0.0
) -> Service | CapacityError:
    """Return how a cluster serves a workload with its engine and precision, or why it cannot, or no more than a floor.

    The router chooses among the replicas which the workload's own traffic takes. However large the cluster, a model
    that is asked little beside others stands on few of its accelerators, and few replicas keep fewer requests apiece in
    time than many. The number is the least, n, that carries the busiest hour at the preferred use: n · what one of n
    sustains. More than the cluster has are none, and where n of them could not even as part of the whole cluster,
    nothing need be worked out: so most pairs are worked out once. A model that is alone, or beside next to no
    requests for others, has every replica there is.
    Workloads that share a model's replicas choose among those that all of them take.
    """
    dated = math.exp(
        dated_log_gain(cluster, cluster.engine, workload, reuse.calibration, reuse.catalog)
    )
    service = service_of(cluster, workload, scenario, reuse, floor=floor / max(dated, 1.0))
    if isinstance(service, CapacityError):
        return service
    loads = scenario.workloads.values()
    others = sum(load.requests_per_s for load in loads if load.model != workload.model)
    alone = others <= _NEXT_TO_NONE * workload.requests_per_s
    if scenario.router_pool == "cluster" and not alone and workload.priority != "deferrable":
        nodes = busiest_requests_per_s(workload, scenario.horizon_months) / service.requests_per_s
        for load in loads:  # those that cannot wait and are served by the same replicas
            is_other = load is not workload and max(load.fine_tunes, workload.fine_tunes) == 1
            if is_other and load.model == workload.model and load.priority != "deferrable":
                beside = service_of(cluster, load, scenario, reuse)
                if isinstance(beside, Service) and beside.spec == service.spec:
                    nodes += (
                        busiest_requests_per_s(load, scenario.horizon_months)
                        / beside.requests_per_s
                    )
        busiest = nodes * service.requests_per_s / PREFERRED_UTILISATION
        laid_out = cluster.model_copy(update=service.as_keys())

        def carried(service: Service, replicas: int) -> float:
            return (
                replicas
                * service.requests_per_s
                * service.tensor_parallel
                / service.accelerators_per_node
            )

        most = (
            pooled_nodes(cluster.nodes) * service.accelerators_per_node // service.tensor_parallel
        )
        for replicas in POOL_STEPS:
            if replicas < most and carried(service, replicas) >= busiest:
                few = service_of(laid_out, workload, scenario, reuse, replicas)
                if isinstance(few, Service) and carried(few, replicas) >= busiest:
                    service = few
                    break
    return service.faster(min(dated, max(service.roofline_factor / service.speed, 1.0)))


def busiest_requests_per_s(workload: Workload, horizon_months: int) -> float:
    """Return an upper bound on the forecast's hourly rates; infinity for growth from a table."""
    shape = workload.load_profile
    profile = workload.load_profile.weekly_profile
    peak = shape.peak_to_mean if profile is None else max(profile) * len(profile) / sum(profile)
    peak *= 1.0 + (shape.season.amplitude_fraction if shape.season else 0.0)
    peak *= max((1.0, *(holiday.multiplier for holiday in shape.holidays)))
    peak *= math.prod(spike.multiplier for spike in workload.spikes)
    match workload.growth:
        case workloads.Compound(per_year=rate):
            growth = max(1.0, (1.0 + rate) ** (horizon_months / MONTHS_PER_YEAR))
        case workloads.GrowthByYear(per_year=rates):
            growth = max(1.0, (1.0 + max(rates.values())) ** (horizon_months / MONTHS_PER_YEAR))
        case workloads.Flat():
            growth = 1.0
        case workloads.SCurve(ceiling_multiplier=ceiling):
            growth = ceiling
        case workloads.GrowthSteps(steps=steps):
            growth = max(1.0, *(step.multiplier for step in steps))
        case workloads.GrowthTable():
            growth = math.inf
    return float(workload.requests_per_s * peak * growth)


def as_first_bought(scenario: Scenario, name: str) -> Cluster:
    """Return a cluster with the node count that layouts and queueing delays are computed for.

    One that is empty until a rule enlarges it is never smaller, while it serves, than what that rule first brings: as a
    cluster of one node, or of none, it would have the long waits and the shared memory of one for good.
    """
    cluster = scenario.clusters[name]
    rules = scenario.expansion.enlarging(name)
    if cluster.nodes or not rules:
        return cluster
    first = min(min(rule.nodes, rule.max_nodes or rule.nodes) for rule in rules)
    return cluster.model_copy(update={"nodes": first})


def dated_log_gain(
    cluster: Cluster, engine: str, workload: Workload, calibration: Calibration, catalog: Catalog
) -> float:
    """Return the log speed change due to the date of a cluster's engine image; 0 where it has no date.

    The stack's course of maturing, at its base figures, from the calibration's measurements to that date.
    """
    is_stated = cluster.throughput_tokens_per_s_per_accelerator is not None
    if cluster.engine_date is None or calibration.measured_on is None or is_stated:
        return 0.0
    stack = catalog.stack(catalog.accelerator(cluster.accelerator).vendor.value, engine)
    course = stack.maturity.get(catalog.model(workload.model).architecture_class.value)
    if course is None:
        return 0.0
    hours = (cluster.engine_date - calibration.measured_on).days * HOURS_PER_DAY
    constant_h = course.closing_months.base * HOURS_PER_YEAR / MONTHS_PER_YEAR
    return max(
        matured(math.log1p(course.ceiling_gain_fraction.base), constant_h, hours),
        math.log(_FIRST_LIGHT),
    )


def service_of(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    replicas: float = math.inf,
    floor: float = 0.0,
) -> Service | CapacityError:
    """Return the cached service before the user's own factor, or the CapacityError that says why there is none.

    ``replicas`` are the most among which a router chooses. What serves no more than ``floor`` is none.
    """

    def serve() -> Service | CapacityError:
        try:
            return _serve(cluster, workload, scenario, reuse, replicas, floor)
        except CapacityError as error:
            return error

    pool = (scenario.router_pool, replicas, pooled_nodes(cluster.nodes))
    late = (workload.priority == "deferrable", workload.admission)
    key = ("service", _layout_key(cluster, workload), scenario.horizon_months, pool, late, floor)
    return reuse.once(key, serve)


def _layout_key(cluster: Cluster, workload: Workload) -> Hashable:
    """Return what decides the layouts of a cluster for a workload and their mean times."""
    return _hardware(cluster), (
        workload.model,
        workload.lengths,
        workload.prefix_cache_hit_fraction,
        workload.slo,
    )


def _hardware(cluster: Cluster) -> tuple[Hashable, ...]:
    """Return the figures of a cluster that decide its layouts, whatever the workload and the number of nodes."""
    layout = (
        cluster.tensor_parallel,
        cluster.attention,
        cluster.chunk_tokens,
        cluster.prefill_decode,
    )
    stated = (cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at)
    engine = (cluster.engine, cluster.precision, cluster.max_sequences, cluster.speculation)
    return cluster.accelerator, engine, layout, stated


def _by_mean_times(
    cluster: Cluster, workload: Workload, reuse: Reuse
) -> tuple[Layouts, OperatingPoint, Floats]:
    """Return a cluster's layouts, their operating points at the SLO by mean times, and their requests per accelerator.

    Requests are per second; below zero in layouts in which the cluster may not serve.
    """
    if (
        workload.priority == "deferrable" and cluster.chunk_tokens is None
    ):  # by mean times no chunk is better
        cluster = cluster.model_copy(update={"chunk_tokens": model_on_part.CHUNK_TOKENS})

    def solved() -> tuple[Layouts, OperatingPoint, Floats]:
        tokens = workload.lengths.input.mean + workload.lengths.output.mean
        layouts = layouts_of(cluster, workload.model, str(cluster.precision), tokens, reuse)
        point, rates = _mean_rates(layouts.replicas, traffic_of(workload), workload.slo)
        return layouts, point, np.where(layouts.is_allowed, rates, -1.0)

    return reuse.once(("mean times", _layout_key(cluster, workload)), solved)


def _mean_rates(
    replicas: Replicas, traffic: Traffic, slo: Objective
) -> tuple[OperatingPoint, Floats]:
    """Return operating points at the SLO by mean times, and their requests per second and accelerator."""
    point = at_objective(
        replicas, np.arange(replicas["accelerators"].size), traffic, slo.ttft_s, slo.tpot_s
    )
    return point, np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0) / replicas[
        "accelerators"
    ]


def _maturity(cluster: Cluster, workload: Workload, catalog: Catalog) -> float:
    """Return the speed of a cluster's stack over the throughput formula's."""
    kind = catalog.model(workload.model).architecture_class.value.replace("-", "_")
    stack = catalog.stack(catalog.accelerator(cluster.accelerator).vendor.value, cluster.engine)
    return float(getattr(stack, f"{kind}_multiplier").value)


def _serve(
    cluster: Cluster,
    workload: Workload,
    scenario: Scenario,
    reuse: Reuse,
    most_replicas: float,
    floor: float,
) -> Service:
    """Return the service in the layout with most requests per accelerator within the SLO."""
    catalog = reuse.catalog
    horizon_months = scenario.horizon_months
    slo = workload.slo
    traffic = traffic_of(workload)
    layouts, point, rate = _by_mean_times(cluster, workload, reuse)
    specs = layouts.specs
    work = layouts.work
    replicas = layouts.replicas
    part = specs[0].part
    shape = specs[0].shape
    best = int(np.argmax(rate))
    candidates = Candidates(
        replicas=replicas,
        mean_rates=rate,
        router_pool=scenario.router_pool,
        nodes=cluster.nodes,
        accelerators_per_node=part.accelerators_per_node,
        most_replicas=most_replicas,
    )
    claim = stated_over_formula(cluster, workload, candidates)
    speed = _maturity(cluster, workload, catalog) if claim is None else claim
    # A claim is throughput, so it moves rates; the stack's maturity moves the steps, and with them the waits.
    speeds = (1.0, claim) if claim else (speed, 1.0)
    apart = None
    held = None
    least = floor / part.accelerators_per_node
    if cluster.prefill_decode != "colocated" and claim is None:
        pools = apart_point(candidates, specs, workload, horizon_months, speeds, least)
        if pools is not None:
            apart, held = pools
            least = float(held.yearly[0])
    if cluster.prefill_decode != "disaggregated":
        if workload.priority == "deferrable":
            together = mean_point(replicas, best, workload, point, horizon_months, speed)
            tried = (best, together) if together.yearly[0] > least or not least else None
        else:
            tried = slo_point(candidates, workload, horizon_months, speeds, least)
        if tried is not None:
            apart = None
            (best, held) = tried
    if held is None:
        raise CapacityError(_NO_MORE)
    if apart is not None:
        best = apart.decode
    if held.yearly[0] <= 0:
        single = at_concurrency(replicas, np.arange(rate.size), traffic, 1.0)
        fastest = int(np.argmin(np.where(layouts.is_allowed, single.tpot_s, np.inf)))
        raise CapacityError(
            f"no batch of {workload.model} on {cluster.accelerator} meets {slo.ttft_s:g} s to the first token "
            f"and {slo.tpot_s:g} s per token; a single request takes {single.ttft_s[fastest]:.3g} s and "
            f"{single.tpot_s[fastest]:.3g} s on {specs[fastest].accelerators} accelerators"
        )
    spec = specs[best]
    layout = f"{counted(spec.accelerators, 'accelerator')} a replica"
    if spec.attention_data_parallel > 1:
        layout += f", attention in {spec.attention_data_parallel} groups"
    prefill = None
    if apart is None:
        layout += f", {spec.chunk_tokens:,} prompt tokens a step"
    else:
        prompt = workload.lengths.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
        moved_s = apart.transfer_s / max(prompt, 1.0)
        prefill = PrefillWorkers(
            spec=specs[apart.prefill], share=apart.prefill_share, transfer_s_per_token=moved_s
        )
        layout += (
            f", prompts on a pool of {prefill.share:.0%} in replicas of {prefill.spec.accelerators}"
        )
    if spec.drafted_tokens:
        layout += f", {spec.drafted_tokens} tokens drafted"
    yearly = held.yearly * part.accelerators_per_node
    compute_s = float(work["flops_s_per_token"][best])
    mean = workload.lengths.input.mean
    attention_s = mean * replicas["attention_s_per_token2"][best]
    prefill_s = replicas["prefill_s_per_token"][best]
    cached = float(workload.prefix_cache_hit_fraction * attention_s / (prefill_s + attention_s))
    single_stream_s, full_stream_s = stream_s(
        work, best, spec, traffic, np.array([1.0, held.batch])
    )
    wider = replace(spec, precision=model_on_part.wider_precision(part, shape, spec.precision))
    _, wide = _mean_rates(price_replicas([wider], reuse.calibration), traffic, slo)
    _, roofline = _mean_rates(price_replicas([spec], roofline_calibration()), traffic, slo)
    return as_stated(
        Service,
        held,
        spec=spec,
        speed=speed,
        tensor_parallel=spec.accelerators,
        accelerators_per_node=part.accelerators_per_node,
        requests_per_s=float(yearly[0]),
        yearly=tuple(yearly.tolist()),
        single_tpot_s=float(at_concurrency(replicas, np.array([best]), traffic, 1.0).tpot_s[0]),
        single_stream_s=single_stream_s,
        stream_s=full_stream_s,
        compute_s_per_token=compute_s,
        token_time=(
            held.prefill_fraction * (1.0 - cached),
            held.prefill_fraction * cached,
            1.0 - held.prefill_fraction,
        ),
        prefill_compute_fraction=min(1.0, compute_s / float(prefill_s)),
        wide_factor=min(1.0, float(wide[0] / rate[best]))
        if rate[best] > 0 and wider.memory().fits
        else 0.0,
        roofline_factor=float(roofline[0]) / (float(rate[best]) or math.inf),
        layout=layout,
        prefill=prefill,
        doubt=spec.doubt(reuse.calibration),
        # The formula serves more than what keeps the objective, and more of it late; of a stated throughput nobody
        # knows what it would take beyond: it is a ceiling.
        lateness=held.lateness if claim is None else held.lateness.up_to_capacity(),
    )


def stream_s(
    work: ReplicaWork, best: int, spec: ReplicaSpec, traffic: Traffic, batch: Floats
) -> list[float]:
    """Return the memory traffic of one board in a decode step, in seconds at full bandwidth, shape (batches,).

    Weights that every step reads, the experts that a batch touches, 1 − (1 − k/E)^B of them, and the cache of each
    sequence halfway through its output.
    """
    fit = spec.memory()
    context = traffic.input_tokens + traffic.output_tokens / 2
    cache_s = fit.kv_bytes_per_token * context / (spec.accelerators * spec.part.hbm_bytes_per_s)
    experts_s = work["routed_stream_s"][best] * -np.expm1(batch * work["log_expert_missed"][best])
    seconds: list[float] = (work["shared_stream_s"][best] + experts_s + batch * cache_s).tolist()
    return seconds


def token_time_table(scenario: Scenario, services: Services) -> Floats:
    """Return the shares of a request's machine time by kind of token, shape (clusters, workloads, 3); 0 for none."""
    rows = [[services.get((c, w)) for w in scenario.workloads] for c in scenario.clusters]
    return np.array(
        [[service.token_time if service else (0.0, 0.0, 0.0) for service in row] for row in rows]
    )


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
            if grows:
                yearly = np.log(service.yearly)
                table[c, w] = np.exp(np.interp(month_mid_years, np.arange(yearly.size), yearly))
            table[c, w, month_mid_years[:periods] >= service.outgrown_years] = 0.0
    return table * SECONDS_PER_HOUR


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

    def asked(self, index: int, slo: Objective) -> ServiceTerms:
        """Return latency objectives and the number of replicas that a router pools in a layout."""
        per_node = max(
            self.accelerators_per_node / float(self.replicas["accelerators"][index]), 1.0
        )
        pooled = {"cluster": pooled_nodes(self.nodes) * per_node, "node": per_node, "replica": 1.0}[
            self.router_pool
        ]
        return ServiceTerms(
            ttft_s=slo.ttft_s,
            tpot_s=slo.tpot_s,
            percentile=slo.share,
            pooled_replicas=float(
                np.clip(min(pooled, self.most_replicas) * self.share, 1.0, _MOST_POOLED)
            )
            ** self.pooling,
        )

    def best(
        self, speed: float, slo: Objective, lengths: Lengths, floor: float = 0.0
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
        together = ReplicaTimes(self.replicas, order, speed, lengths)
        keeping = too_long_fraction(together, slo.ttft_s) <= 1.0 - slo.share + _ROUNDING
        trials = list(
            zip(
                order.tolist(),
                keeping.tolist(),
                most_rates(together, slo.tpot_s).tolist(),
                strict=True,
            )
        )
        chosen: tuple[int, Curve, float] | None = None
        for tried in ([trial for trial in trials if trial[1]], trials):
            chosen = None
            best = (floor > 0.0, floor or -1.0)
            for index, may_keep, most in tried:
                count = float(self.replicas["accelerators"][index])
                if best[0] and best[1] * count >= most:
                    continue
                times = ReplicaTimes(self.replicas, index, speed, lengths)
                asked = self.asked(index, slo)
                if best[0] and not sustains_more(times, asked, best[1] * count):
                    continue
                curve = late_curve(times, asked)
                rate = curve.capacity_requests_per_s / count
                keeps = rate > 0.0 and may_keep
                worth = (keeps, rate if keeps else -curve.too_long_fraction if rate > 0.0 else -1.0)
                if worth > best or (chosen is None and not floor):
                    chosen = (index, curve, rate)
                    best = worth
            if floor > 0.0 or (chosen is not None and chosen[2] > 0.0):
                break
        return chosen


def stated_over_formula(
    cluster: Cluster, workload: Workload, candidates: Candidates
) -> float | None:
    """Return the user's stated throughput over the formula's, at the lengths it was measured at.

    stated output tokens per second / output tokens of a request / the formula's requests per second, of an accelerator.
    Times the formula's requests at other lengths it is the stated throughput scaled to them. Objective, spread of
    lengths and cached share are the workload's on both sides, so that only the lengths differ; at either lengths the
    replica is the one that serves most. None where the user states none.
    """
    stated = cluster.throughput_tokens_per_s_per_accelerator
    lengths = cluster.throughput_measured_at
    if stated is None or lengths is None:  # never one without the other: validation sees to it
        return None
    there = replace(
        traffic_of(workload), input_tokens=lengths.input_tokens, output_tokens=lengths.output_tokens
    )
    rates = np.where(
        candidates.mean_rates < 0.0, -1.0, _mean_rates(candidates.replicas, there, workload.slo)[1]
    )
    formula = float(rates.max())
    if workload.priority != "deferrable":
        planned = lengths_of(workload)
        tokens = workload.lengths
        prompts = planned.prompt_tokens * (lengths.input_tokens / tokens.input.mean)
        outputs = planned.output_tokens * (lengths.output_tokens / tokens.output.mean)
        measured = replace(planned, prompt_tokens=prompts, output_tokens=outputs)
        best = replace(candidates, mean_rates=rates).best(1.0, workload.slo, measured)
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


def as_tokens_grow(
    workload: Workload, horizon_months: int, rate: Callable[[float], float]
) -> tuple[Floats, float]:
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
    low = 12 * (gone - 1)
    high = 12 * gone
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rate(yearly_growth ** (middle / 12)) > 0.0 else (low, middle)
    return np.where(years < gone, rates, rate(yearly_growth ** (low / 12))), high / 12


def slo_point(
    candidates: Candidates,
    workload: Workload,
    horizon_months: int,
    speeds: tuple[float, float],
    floor: float = 0.0,
) -> tuple[int, Point] | None:
    """Return the best layout, and its operating point at the SLO percentile.

    ``speeds`` are that of the steps, and a factor on the rates that come of it. None where no layout sustains more than
    ``floor`` requests per second and accelerator.
    """
    lengths = lengths_of(workload)
    replicas = candidates.replicas
    (speed, factor) = speeds
    chosen = candidates.best(speed, workload.slo, lengths, floor / factor)
    if chosen is None:
        return None
    best, curve, rate = chosen
    accelerators = float(replicas["accelerators"][best])
    times = ReplicaTimes(replicas, best, speed, lengths)
    asked = candidates.asked(best, workload.slo)

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
    replicas: Replicas,
    best: int,
    workload: Workload,
    point: OperatingPoint,
    horizon_months: int,
    speed: float,
) -> Point:
    """Return the operating point of deferrable work, by mean times since its deadline is hours away."""

    def after(growth: float) -> float:
        later = point
        place = best
        if growth != 1.0:
            traffic = traffic_of(workload, growth)
            slo = workload.slo
            later = at_objective(replicas, np.array([best]), traffic, slo.ttft_s, slo.tpot_s)
            place = 0
        rate = float(later.requests_per_s[place])
        return rate / float(replicas["accelerators"][best]) if np.isfinite(rate) else 0.0

    rates, outgrown_years = as_tokens_grow(workload, horizon_months, after)
    return Point(
        yearly=rates * speed,
        outgrown_years=outgrown_years,
        batch=float(point.running_sequences[best]),
        tpot_s=float(point.tpot_s[best]),
        held_tpot_s=float(point.tpot_s[best]),
        prefill_fraction=_prefill_fraction(
            replicas, best, workload, float(point.requests_per_s[best])
        ),
    )


def _prefill_fraction(
    replicas: Replicas, best: int, workload: Workload, requests_per_s: float
) -> float:
    """Return the share of a loaded replica's time spent in prefill."""
    prompt = workload.lengths.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
    prefill_s = prompt * replicas["prefill_s_per_token"][best]
    prefill_s += prompt * workload.lengths.input.mean * replicas["attention_s_per_token2"][best]
    return float(np.clip(requests_per_s * prefill_s, 0.0, 0.95))


_OVERLOADS = (
    1.05,
    1.1,
    1.2,
    1.35,
    1.5,
    1.75,
    MOST_LOAD,
)  # loads beyond capacity at which refusals are worked out
_FAR_BEYOND = (
    2.5,
    3.0,
    4.0,
    6.0,
    8.0,
    12.0,
    16.0,
)  # the same where few are missed at the last of those
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
_BATCHES = np.linspace(0.0, 1.0, 200)[
    1:
]  # over the largest, between which that of a pace is interpolated


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


def _refusing_lateness(
    curve: Curve, times: ReplicaTimes, asked: ServiceTerms, held_s: float
) -> Lateness:
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
        return np.minimum(
            np.maximum.accumulate(np.maximum(refused, by_pace(overloads))), missed
        ), missed

    overloads: tuple[float, ...] = _OVERLOADS
    refused, missed = beyond_capacity(overloads)
    if missed[-1] - curve.too_long_fraction < _FEW_MISSED:
        refused, missed = beyond_capacity(overloads + _FAR_BEYOND)
        kept = min(int((missed - curve.too_long_fraction < _MANY_MISSED).sum()) + 1, missed.size)
        overloads = (overloads + _FAR_BEYOND)[:kept]
        refused = refused[:kept]
        missed = missed[:kept]
    else:
        further = _FAR_BEYOND[:_BY_PACE]
        overloads += further
        refused, missed = (
            np.append(share, np.maximum(share[-1], by_pace(further))) for share in (refused, missed)
        )
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
    rates = []
    admitted = []
    for share in _REFUSED:
        even = _EVEN * share
        left = lengths.prompt_weights * (
            1.0 - np.minimum(share * (even + relative) / (even + 1.0), 1.0)
        )
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
_NO_OBJECTIVE_S = (
    60.0  # to the first token of a worker that computes no prompt, per token of one that only does
)


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


def separate(
    specs: list[ReplicaSpec], candidates: Candidates, traffic: Traffic, slo: Objective
) -> Apart:
    """Return the best prefill workers balanced with the best decode workers, by mean times.

    1/rate = 1/prefill rate + 1/decode rate. Workers that decode are among the layouts that may be tried, where the
    chunk is the smallest, as they compute no prompt; those that prefill are any, with the largest.
    """
    replicas, chunks = candidates.replicas, candidates.replicas["chunk_tokens"]
    may_decode = candidates.mean_rates >= 0.0
    may_decode &= chunks == chunks[may_decode].min()
    prompt = traffic.input_tokens * (1.0 - traffic.cached_fraction)
    cached = [spec.part.formats[spec.precision].cache_bytes for spec in specs]
    moved = np.array(
        [s.shape.kv_bytes_per_token(width) * prompt for s, width in zip(specs, cached, strict=True)]
    )
    network = np.array([spec.part.network_bytes_per_s * spec.accelerators for spec in specs])
    prefills, point = disaggregated(replicas, traffic, (slo.ttft_s, slo.tpot_s), moved / network)
    decoded = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0)
    prefill = np.where(chunks == chunks.max(), prefills / replicas["accelerators"], -1.0)
    decode = np.where(may_decode, decoded / replicas["accelerators"], -1.0)
    first = int(np.argmax(prefill))
    second = int(np.argmax(decode))
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


def workers(
    accelerators: int, sizes: tuple[int, int], rates: tuple[float, float]
) -> tuple[int, int]:
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

        def by_mean(growth: float) -> Apart:
            return separate(specs, candidates, traffic_of(workload, growth), workload.slo)

        apart = by_mean(1.0)
        factor = speed * factor
        if apart.rate * factor <= floor and floor > 0.0:
            return None
        yearly, outgrown_years = as_tokens_grow(
            workload, months, lambda growth: by_mean(growth).rate
        )
        batch, tpot_s = (
            float(of[apart.decode]) for of in (apart.point.running_sequences, apart.point.tpot_s)
        )
    else:
        pools = _within_slo(candidates, specs, workload, speed, floor=floor / factor)
        if pools is None:
            return None
        apart, prefill, decode = pools

        def after(growth: float) -> float:
            later = (
                pools if growth == 1.0 else _within_slo(candidates, specs, workload, speed, growth)
            )
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
    slo, lengths, may_be_late = workload.slo, lengths_of(workload, growth), 1.0 - workload.slo.share
    mean = separate(specs, candidates, traffic_of(workload, growth), slo)
    first_s = max(slo.ttft_s - mean.transfer_s - slo.tpot_s, 1e-3)
    to_first = {
        "ttft_s": first_s,
        "tpot_s": _NO_OBJECTIVE_S,
        "percentile": 1.0 - _TO_FIRST_TOKENS * may_be_late,
    }
    to_tokens = {
        "ttft_s": _NO_OBJECTIVE_S,
        "percentile": 1.0 - (1.0 - _TO_FIRST_TOKENS) * may_be_late,
    }

    counts = candidates.replicas["accelerators"]
    most = pooled_nodes(candidates.nodes) if candidates.router_pool == "cluster" else 1
    there = most * candidates.accelerators_per_node

    def best(
        pool: int, room: float, asked: dict[str, float], work: Lengths, least: float
    ) -> tuple[int, Curve, float] | None:
        """Return the best workers of a pool that leave room for another, the miss curve of one, and its rate."""
        terms = slo.model_copy(update=asked)
        rates = mean.mean_rates[pool]
        share = mean.prefill_share if pool == 0 else 1.0 - mean.prefill_share
        fitting = np.where(counts <= room, rates, -1.0)
        rates = fitting if fitting.max() >= 0.0 else rates
        pooling = _PREFILL_POOLING if pool == 0 else 1.0
        return replace(candidates, mean_rates=rates, share=share, pooling=pooling).best(
            speed, terms, work, least
        )

    bare = replace(lengths, output_tokens=np.ones(1), output_weights=np.ones(1))
    room = there - counts[mean.mean_rates[1] >= 0.0].min()
    if (prefills := best(0, room, to_first, bare, floor / _PREFILL_FILL)) is None:
        return None
    first, prefill, prefill_rate = prefills
    prefill_rate *= _PREFILL_FILL
    least = 1.0 / (1.0 / floor - 1.0 / prefill_rate) if floor > 0.0 else 0.0
    decodes = best(
        1, there - counts[first], to_tokens, replace(lengths, cached_fraction=1.0), least
    )
    if decodes is None:
        return None
    second, decode, decode_rate = decodes
    sizes = specs[first].accelerators, specs[second].accelerators
    pool = int(min(there, candidates.most_replicas * sum(sizes)))
    split = workers(pool, sizes, (prefill_rate, decode_rate))
    rate = min(split[0] * sizes[0] * prefill_rate, split[1] * sizes[1] * decode_rate) / pool
    if rate <= floor and floor > 0.0:
        return None
    apart = replace(
        mean, rate=rate, prefill=first, decode=second, prefill_share=split[0] * sizes[0] / pool
    )
    return apart, prefill, decode


def _lateness_of_both(prefill: Curve, decode: Curve) -> Lateness:
    """Return the miss share by load over capacity of requests that must pass both pools within the SLO."""
    if min(prefill.capacity_requests_per_s, decode.capacity_requests_per_s) <= 0.0:
        return SHARP
    pools = (prefill, decode)
    by_pool = [
        (curve.requests_per_s / curve.capacity_requests_per_s, curve.late_fraction)
        for curve in pools
    ]
    last = min(float(loads[-1]) for loads, _ in by_pool)
    loads = np.unique(
        np.concatenate([[0.0], *(loads[loads <= last] for loads, _ in by_pool), [last]])
    )
    attainment = np.ones_like(loads)
    for at, late in by_pool:
        attainment *= 1.0 - np.interp(loads, at, late)
    return without_end(loads, np.maximum.accumulate(1.0 - attainment), prefill)
