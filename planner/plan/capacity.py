"""The SLO capacity of one node of each cluster for each workload: candidate layouts, and the best of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.arrays import Bools, Floats
from planner.catalog.load import Catalog, part_of, shape_of
from planner.demand.bursts import SHARP, Lateness
from planner.errors import CapacityError, Problem, ScenarioError
from planner.physics import model_on_part
from planner.physics.coefficients import Calibration, Doubt, roofline_calibration
from planner.physics.model_on_part import AcceleratorSpec, ModelShape, memory_fit
from planner.physics.operating import OperatingPoint, at_concurrency, at_objective
from planner.physics.replica import Replicas, ReplicaSpec, ReplicaWork, describe, price_replicas, price_work
from planner.plan import slo_capacity
from planner.plan.parts import as_stated
from planner.plan.quantities import matured
from planner.plan.reuse import Reuse
from planner.plan.slo_capacity import POOL_STEPS, pooled_nodes, traffic_of
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
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
        yearly, rate = tuple(rate * factor for rate in self.yearly), self.requests_per_s * factor
        return dataclasses.replace(self, speed=self.speed * factor, requests_per_s=rate, yearly=yearly)

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


def layouts_of(cluster: Cluster, model: str, precision: str, tokens: float, reuse: Reuse) -> Layouts:
    """Return a cluster's candidate layouts for requests of this many tokens; raise CapacityError where none fits.

    Workloads of one model mostly share them, whatever is asked, and one that a cluster states is among all.
    """
    catalog = reuse.catalog
    part = reuse.once(("part", cluster.accelerator), lambda: part_of(cluster.accelerator, catalog))
    shape = reuse.once(("model", model), lambda: shape_of(model, catalog))
    stated = (cluster.accelerator, cluster.engine, model, precision, cluster.max_sequences, cluster.speculation)

    def priced() -> Layouts:
        work = describe(every)
        return Layouts(every, work, price_work(work, every, reuse.calibration), np.ones(len(every), dtype=bool))

    free = cluster.model_copy(update={"tensor_parallel": None, "attention": "auto", "chunk_tokens": None})
    every, bound = (candidates(of, part, shape, precision, tokens) for of in (free, cluster))
    usual, wanted = {spec.layout for spec in every}, {spec.layout for spec in bound}
    every += [spec for spec in bound if spec.layout not in usual]
    known = reuse.once(("layouts", stated, tuple(spec.layout for spec in every)), priced)
    return known._replace(is_allowed=np.array([spec.layout in wanted for spec in every]))


def candidates(
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
    layouts = [(degree, 1) for degree in degrees if cluster.attention != "data-parallel" or not shape.experts]
    if shape.experts and cluster.attention != "tensor-parallel":
        # Each of the groups holds its own sequences: one must fit in a group's share of the cache.
        layouts += [
            (degree, degree)
            for degree in degrees
            if degree > 1 and memory_fit(part, shape, precision, degree, degree).kv_capacity_tokens >= degree * tokens
        ]
    if not layouts:
        raise CapacityError(
            f"{shape.name} at {precision} does not fit with attention in data parallel on {max(degrees)} x "
            f"{cluster.accelerator}; tensor-parallel would hold it"
        )
    draft, drafts = cluster.speculation, [(0, 1.0)]
    if draft is not None:
        drafts = [*(drafts if draft.use == "auto" else []), (draft.drafted_tokens, draft.mean_acceptance_length)]
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


def build_services(scenario: Scenario, reuse: Reuse, factors: Factors) -> tuple[Services, list[str]]:
    """Return the service of each feasible (cluster, workload) pair, and the reasons why others are infeasible.

    A workload that no cluster can serve is an error.
    """
    services: dict[tuple[str, str], Service] = {}
    refused: list[str] = []
    problems: list[Problem] = []
    bought = [as_first_bought(scenario, name) for name in scenario.machines]
    kinds = [(*_hardware(of), of.throughput_multiplier, of.engine_date, pooled_nodes(of.nodes)) for of in bought]
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
    factor, model, engine = 1.0, workload.model, best.spec.engine
    for part, of in ((cluster.accelerator, model), ("", model), (cluster.accelerator, "")):
        factor *= factors.get((part, engine, of), 1.0)
    return best.faster(factor)


def runner_up(
    cluster: Cluster, workload: Workload, service: Service, scenario: Scenario, reuse: Reuse
) -> Service | None:
    """Return the best that a cluster could do instead: with another engine, precision or place of prefill."""
    other, tried = "disaggregated" if service.prefill is None else "colocated", []
    for one in options(cluster, workload, reuse.catalog):
        if (one.engine, one.precision) != (service.spec.engine, service.spec.precision):
            tried.append(one)
        elif cluster.prefill_decode == "auto" and cluster.throughput_tokens_per_s_per_accelerator is None:
            tried.append(one.model_copy(update={"prefill_decode": other}))
    best = _most(tried, workload, scenario, reuse) if tried else None
    return best if isinstance(best, Service) else None


def _most(tried: list[Cluster], workload: Workload, scenario: Scenario, reuse: Reuse) -> Service | CapacityError:
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
    for cluster in (tried[place] for place in reuse.once(key, lambda: sorted(range(len(tried)), key=expected))):
        floor = best.requests_per_s * (1.0 + _TIE) if best is not None else 0.0
        service = _served(cluster, workload, scenario, reuse, floor)
        if isinstance(service, Service) and service.requests_per_s > floor:
            best = service
    return _served(tried[0], workload, scenario, reuse) if best is None else best.faster(tried[0].throughput_multiplier)


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
    dated = math.exp(dated_log_gain(cluster, cluster.engine, workload, reuse.calibration, reuse.catalog))
    service = service_of(cluster, workload, scenario, reuse, floor=floor / max(dated, 1.0))
    if isinstance(service, CapacityError):
        return service
    loads = scenario.workloads.values()
    others = sum(load.requests_per_s for load in loads if load.model != workload.model)
    alone = others <= _NEXT_TO_NONE * workload.requests_per_s
    if scenario.router_pool == "cluster" and not alone and workload.priority != "deferrable":
        nodes = workload.busiest_requests_per_s(scenario.horizon_months) / service.requests_per_s
        for load in loads:  # those that cannot wait and are served by the same replicas
            is_other = load is not workload and max(load.fine_tunes, workload.fine_tunes) == 1
            if is_other and load.model == workload.model and load.priority != "deferrable":
                beside = service_of(cluster, load, scenario, reuse)
                if isinstance(beside, Service) and beside.spec == service.spec:
                    nodes += load.busiest_requests_per_s(scenario.horizon_months) / beside.requests_per_s
        busiest = nodes * service.requests_per_s / PREFERRED_UTILISATION
        laid_out = cluster.model_copy(update=service.as_keys())

        def carried(service: Service, replicas: int) -> float:
            return replicas * service.requests_per_s * service.tensor_parallel / service.accelerators_per_node

        most = pooled_nodes(cluster.nodes) * service.accelerators_per_node // service.tensor_parallel
        for replicas in POOL_STEPS:
            if replicas < most and carried(service, replicas) >= busiest:
                few = service_of(laid_out, workload, scenario, reuse, replicas)
                if isinstance(few, Service) and carried(few, replicas) >= busiest:
                    service = few
                    break
    return service.faster(min(dated, max(service.roofline_factor / service.speed, 1.0)))


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
    return max(matured(math.log1p(course.ceiling_gain_fraction.base), constant_h, hours), math.log(_FIRST_LIGHT))


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
    return _hardware(cluster), (workload.model, workload.lengths, workload.prefix_cache_hit_fraction, workload.slo)


def _hardware(cluster: Cluster) -> tuple[Hashable, ...]:
    """Return the figures of a cluster that decide its layouts, whatever the workload and the number of nodes."""
    layout = (cluster.tensor_parallel, cluster.attention, cluster.chunk_tokens, cluster.prefill_decode)
    stated = (cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at)
    engine = (cluster.engine, cluster.precision, cluster.max_sequences, cluster.speculation)
    return cluster.accelerator, engine, layout, stated


def _by_mean_times(cluster: Cluster, workload: Workload, reuse: Reuse) -> tuple[Layouts, OperatingPoint, Floats]:
    """Return a cluster's layouts, their operating points at the SLO by mean times, and their requests per accelerator.

    Requests are per second; below zero in layouts in which the cluster may not serve.
    """
    if workload.priority == "deferrable" and cluster.chunk_tokens is None:  # by mean times no chunk is better
        cluster = cluster.model_copy(update={"chunk_tokens": model_on_part.CHUNK_TOKENS})

    def solved() -> tuple[Layouts, OperatingPoint, Floats]:
        tokens = workload.lengths.input.mean + workload.lengths.output.mean
        layouts = layouts_of(cluster, workload.model, str(cluster.precision), tokens, reuse)
        point, rates = _mean_rates(layouts.replicas, workload)
        return layouts, point, np.where(layouts.is_allowed, rates, -1.0)

    return reuse.once(("mean times", _layout_key(cluster, workload)), solved)


def _mean_rates(replicas: Replicas, workload: Workload) -> tuple[OperatingPoint, Floats]:
    """Return operating points at the SLO by mean times, and their requests per second and accelerator."""
    every = np.arange(replicas["accelerators"].size)
    point = at_objective(replicas, every, traffic_of(workload), workload.slo.ttft_s, workload.slo.tpot_s)
    return point, np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0) / replicas["accelerators"]


def _maturity(cluster: Cluster, workload: Workload, catalog: Catalog) -> float:
    """Return the speed of a cluster's stack over the throughput formula's."""
    kind = catalog.model(workload.model).architecture_class.value.replace("-", "_")
    stack = catalog.stack(catalog.accelerator(cluster.accelerator).vendor.value, cluster.engine)
    return float(getattr(stack, f"{kind}_multiplier").value)


def _serve(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse, most_replicas: float, floor: float
) -> Service:
    """Return the service in the layout with most requests per accelerator within the SLO."""
    catalog, horizon_months, slo = reuse.catalog, scenario.horizon_months, workload.slo
    layouts, point, rate = _by_mean_times(cluster, workload, reuse)
    specs, work, replicas = layouts.specs, layouts.work, layouts.replicas
    part, shape, best = specs[0].part, specs[0].shape, int(np.argmax(rate))
    candidates = slo_capacity.Candidates(
        replicas=replicas,
        mean_rates=rate,
        router_pool=scenario.router_pool,
        nodes=cluster.nodes,
        accelerators_per_node=part.accelerators_per_node,
        most_replicas=most_replicas,
    )
    claim = slo_capacity.stated_over_formula(cluster, workload, candidates)
    speed = _maturity(cluster, workload, catalog) if claim is None else claim
    # A claim is throughput, so it moves rates; the stack's maturity moves the steps, and with them the waits.
    speeds = (1.0, claim) if claim else (speed, 1.0)
    apart, held, least = None, None, floor / part.accelerators_per_node
    if cluster.prefill_decode != "colocated" and claim is None:
        pools = slo_capacity.apart_point(candidates, specs, workload, horizon_months, speeds, least)
        if pools is not None:
            apart, held = pools
            least = float(held.yearly[0])
    if cluster.prefill_decode != "disaggregated":
        if workload.priority == "deferrable":
            together = slo_capacity.mean_point(replicas, best, workload, point, horizon_months, speed)
            tried = (best, together) if together.yearly[0] > least or not least else None
        else:
            tried = slo_capacity.slo_point(candidates, workload, horizon_months, speeds, least)
        if tried is not None:
            apart, (best, held) = None, tried
    if held is None:
        raise CapacityError(_NO_MORE)
    if apart is not None:
        best = apart.decode
    if held.yearly[0] <= 0:
        single = at_concurrency(replicas, np.arange(rate.size), traffic_of(workload), 1.0)
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
        prefill = PrefillWorkers(spec=specs[apart.prefill], share=apart.prefill_share, transfer_s_per_token=moved_s)
        layout += f", prompts on a pool of {prefill.share:.0%} in replicas of {prefill.spec.accelerators}"
    if spec.drafted_tokens:
        layout += f", {spec.drafted_tokens} tokens drafted"
    yearly = held.yearly * part.accelerators_per_node
    compute_s, mean = float(work["flops_s_per_token"][best]), workload.lengths.input.mean
    attention_s, prefill_s = mean * replicas["attention_s_per_token2"][best], replicas["prefill_s_per_token"][best]
    cached = float(workload.prefix_cache_hit_fraction * attention_s / (prefill_s + attention_s))
    single_stream_s, full_stream_s = stream_s(work, best, spec, workload, np.array([1.0, held.batch]))
    wider = dataclasses.replace(spec, precision=model_on_part.wider_precision(part, shape, spec.precision))
    _, wide = _mean_rates(price_replicas([wider], reuse.calibration), workload)
    _, roofline = _mean_rates(price_replicas([spec], roofline_calibration()), workload)
    return as_stated(
        Service,
        held,
        spec=spec,
        speed=speed,
        tensor_parallel=spec.accelerators,
        accelerators_per_node=part.accelerators_per_node,
        requests_per_s=float(yearly[0]),
        yearly=tuple(yearly.tolist()),
        single_tpot_s=float(at_concurrency(replicas, np.array([best]), traffic_of(workload), 1.0).tpot_s[0]),
        single_stream_s=single_stream_s,
        stream_s=full_stream_s,
        compute_s_per_token=compute_s,
        token_time=(
            held.prefill_fraction * (1.0 - cached),
            held.prefill_fraction * cached,
            1.0 - held.prefill_fraction,
        ),
        prefill_compute_fraction=min(1.0, compute_s / float(prefill_s)),
        wide_factor=min(1.0, float(wide[0] / rate[best])) if rate[best] > 0 and wider.memory().fits else 0.0,
        roofline_factor=float(roofline[0]) / (float(rate[best]) or math.inf),
        layout=layout,
        prefill=prefill,
        doubt=spec.doubt(reuse.calibration),
        # The formula serves more than what keeps the objective, and more of it late; of a stated throughput nobody
        # knows what it would take beyond: it is a ceiling.
        lateness=held.lateness if claim is None else held.lateness.up_to_capacity(),
    )


def stream_s(work: ReplicaWork, best: int, spec: ReplicaSpec, workload: Workload, batch: Floats) -> list[float]:
    """Return the memory traffic of one board in a decode step, in seconds at full bandwidth, shape (batches,).

    Weights that every step reads, the experts that a batch touches, 1 − (1 − k/E)^B of them, and the cache of each
    sequence halfway through its output.
    """
    fit = spec.memory()
    context = workload.lengths.input.mean + workload.lengths.output.mean / 2
    cache_s = fit.kv_bytes_per_token * context / (spec.accelerators * spec.part.hbm_bytes_per_s)
    experts_s = work["routed_stream_s"][best] * -np.expm1(batch * work["log_expert_missed"][best])
    seconds: list[float] = (work["shared_stream_s"][best] + experts_s + batch * cache_s).tolist()
    return seconds


def token_time_table(scenario: Scenario, services: Services) -> Floats:
    """Return the shares of a request's machine time by kind of token, shape (clusters, workloads, 3); 0 for none."""
    rows = [[services.get((c, w)) for w in scenario.workloads] for c in scenario.clusters]
    return np.array([[service.token_time if service else (0.0, 0.0, 0.0) for service in row] for row in rows])


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
