"""What one node of each cluster sustains for each workload, from the throughput model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterator, Mapping

import numpy as np

from planner.arrays import Floats
from planner.catalog.load import Catalog
from planner.errors import CapacityError, Problem, ScenarioError
from planner.physics.coefficients import SERVING, Calibration
from planner.physics.memory import memory_fit
from planner.physics.operating import at_concurrency, at_objective
from planner.physics.replica import ReplicaSpec, ReplicaWork
from planner.plan.disaggregation import apart_point
from planner.plan.layouts import layout_in_words, layouts_of
from planner.plan.quantities import matured
from planner.plan.reuse import Reuse
from planner.plan.service import Service
from planner.plan.slo_capacity import (
    POOL_STEPS,
    Candidates,
    in_time_point,
    mean_point,
    pooled_nodes,
    stated_over_formula,
    traffic_of,
)
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR


def served_precision(cluster: Cluster, workload: Workload, catalog: Catalog) -> str:
    """Return the arithmetic in which a cluster serves a workload: the wider of what both state.

    What a workload states is a floor of quality, which no cluster may undercut; where it states nothing the cluster
    decides, and where neither does it is what public serving runs use.
    """
    stated = [name for name in (cluster.precision, workload.precision) if name is not None]
    if not stated:
        return catalog.precision_with("default")
    return max(stated, key=lambda name: catalog.precisions[name].weight_bytes.value)


_FIRST_LIGHT = 0.3
"""Slowest that an old image is taken to be: a new model's first light on MI355X, 1/2.9 to 1/3.6 of its ceiling."""
PREFERRED_UTILISATION = 0.85
"""Clusters are filled to it in order, and replicas placed for it: spill before queues build up (assumption)."""
Factors = Mapping[tuple[str, str, str], float]
"""Throughput over the model's, by accelerator, engine and model; an empty accelerator or model stands for any."""


def build_services(
    scenario: Scenario, reuse: Reuse, factors: Factors
) -> tuple[dict[tuple[str, str], Service], list[str]]:
    """Return the service of each (cluster, workload) that works, and why others do not.

    A workload that no cluster can serve is an error.
    """
    services: dict[tuple[str, str], Service] = {}
    refused: list[str] = []
    problems: list[Problem] = []
    bought = [as_first_bought(scenario, name) for name in scenario.clusters]
    reuse.work_out(dict(_to_serve(c, w, scenario, reuse) for c in bought for w in scenario.workloads.values()))
    for workload_name, workload in scenario.workloads.items():
        reasons = []
        for cluster_name, cluster in zip(scenario.clusters, bought, strict=True):
            service = served_by(cluster, workload, scenario, reuse, factors)
            if isinstance(service, CapacityError):
                reasons.append(f"{cluster_name}: {service}")
            else:
                services[cluster_name, workload_name] = service
        refused += [f"workload {workload_name} cannot run on {reason}" for reason in reasons]
        if len(reasons) == len(scenario.clusters):
            message = "no cluster can serve it: " + "; ".join(reasons)
            problems.append(scenario.document.problem(("workloads", workload_name), message))
    if problems:
        raise ScenarioError(problems)
    return services, refused


def served_by(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse, factors: Factors
) -> Service | CapacityError:
    """Return how a cluster, as first bought, serves a workload of a scenario, or why it cannot."""
    service = _among_its_own(cluster, workload, scenario, reuse)
    if isinstance(service, CapacityError):
        return service
    dated = dated_log_gain(cluster, workload, reuse.calibration, reuse.catalog)
    factor = cluster.throughput_multiplier * min(math.exp(dated), max(service.roofline_factor / service.speed, 1.0))
    for accelerator, model in ((cluster.accelerator, workload.model), ("", workload.model), (cluster.accelerator, "")):
        factor *= factors.get((accelerator, cluster.engine, model), 1.0)
    return dataclasses.replace(
        service,
        speed=service.speed * factor,
        requests_per_s=service.requests_per_s * factor,
        yearly=tuple(rate * factor for rate in service.yearly),
    )


def as_first_bought(scenario: Scenario, name: str) -> Cluster:
    """Return a cluster with the nodes for which layouts and waits are worked out.

    One that is empty until a rule enlarges it is never smaller, while it serves, than what that rule first brings: as a
    cluster of one node, or of none, it would have the long waits and the shared memory of one for good.
    """
    cluster = scenario.clusters[name]
    rules = scenario.expansion.enlarging(name)
    if cluster.nodes or not rules:
        return cluster
    first = min(min(rule.nodes, rule.most_nodes or rule.nodes) for rule in rules)
    return cluster.model_copy(update={"nodes": first})


def dated_log_gain(cluster: Cluster, workload: Workload, calibration: Calibration, catalog: Catalog) -> float:
    """Return what the date of a cluster's first image makes of its speed, in the logarithm; 0 where it is not dated.

    The stack's course of maturing, at its base figures, from the calibration's measurements to that date.
    """
    stack = catalog.stack(catalog.accelerator(cluster.accelerator).vendor.value, cluster.engine)
    course = stack.maturity.get(catalog.model(workload.model).architecture_class.value)
    is_stated = cluster.throughput_tokens_per_s_per_accelerator is not None
    if cluster.engine_date is None or calibration.measured_on is None or course is None or is_stated:
        return 0.0
    hours = (cluster.engine_date - calibration.measured_on).days * HOURS_PER_DAY
    constant_h = course.closing_months.base * HOURS_PER_YEAR / MONTHS_PER_YEAR
    return max(matured(math.log1p(course.ceiling_gain_fraction.base), constant_h, hours), math.log(_FIRST_LIGHT))


def _among_its_own(cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse) -> Service | CapacityError:
    """Return the service by a router that chooses among the replicas which the workload's own traffic takes.

    However large the cluster, a model that is asked little beside others stands on few of its accelerators, and few
    replicas keep fewer requests apiece in time than many. The number is the least, n, that carries the busiest hour at
    the preferred use: n · what one of n sustains. More than the cluster has are none, and where n of them could not
    even as part of the whole cluster, nothing need be worked out: so most pairs are worked out once. A model that is
    alone has every replica there is. Workloads that share a model's replicas choose among those that all of them take.
    """
    by_all = service_of(cluster, workload, scenario, reuse)
    alone = all(load.model == workload.model for load in scenario.workloads.values() if load.requests_per_s > 0)
    waits = workload.priority == "deferrable"
    if isinstance(by_all, CapacityError) or scenario.router_pool != "cluster" or alone or waits:
        return by_all
    nodes = sum(
        load.busiest_requests_per_s(scenario.horizon_months) / service.requests_per_s
        for load, service in _on_its_replicas(cluster, workload, by_all, scenario, reuse)
    )
    busiest = nodes * by_all.requests_per_s / PREFERRED_UTILISATION
    laid_out = cluster.model_copy(update={"tensor_parallel": by_all.tensor_parallel})

    def carried(service: Service, replicas: int) -> float:
        return replicas * service.requests_per_s * service.tensor_parallel / service.accelerators_per_node

    most = pooled_nodes(cluster.nodes) * by_all.accelerators_per_node // by_all.tensor_parallel
    for replicas in (step for step in POOL_STEPS if step < most and carried(by_all, step) >= busiest):
        few = service_of(laid_out, workload, scenario, reuse, replicas)
        if isinstance(few, Service) and carried(few, replicas) >= busiest:
            return few
    return by_all


def _on_its_replicas(
    cluster: Cluster, workload: Workload, by_all: Service, scenario: Scenario, reuse: Reuse
) -> Iterator[tuple[Workload, Service]]:
    """Yield the workloads that cannot wait and are served by the same replicas, itself first, and how."""
    yield workload, by_all
    for load in scenario.workloads.values():
        is_other = load is not workload and max(load.fine_tunes, workload.fine_tunes) == 1
        if not is_other or load.model != workload.model or load.priority == "deferrable":
            continue
        service = service_of(cluster, load, scenario, reuse)
        if isinstance(service, Service) and service.spec == by_all.spec:
            yield load, service


def service_of(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse, replicas: float = math.inf
) -> Service | CapacityError:
    """Return the service before the user's own factor, or why there is none, worked out once for the same figures.

    ``replicas`` are the most among which a router chooses.
    """
    return reuse.once(*_to_serve(cluster, workload, scenario, reuse, replicas))


def _to_serve(
    cluster: Cluster, workload: Workload, scenario: Scenario, reuse: Reuse, replicas: float = math.inf
) -> tuple[Hashable, Callable[[], Service | CapacityError]]:
    """Return the figures that decide a service, and what works it out."""

    def serve() -> Service | CapacityError:
        try:
            return _serve(cluster, workload, reuse, scenario.horizon_months, (scenario.router_pool, replicas))
        except CapacityError as error:
            return error

    layout = (cluster.tensor_parallel, cluster.attention, cluster.pools, cluster.max_sequences, cluster.speculation)
    hardware = (cluster.accelerator, cluster.engine, served_precision(cluster, workload, reuse.catalog), layout)
    traffic = (workload.model, workload.tokens, workload.prefix_cache_hit_fraction, workload.slo)
    stated = (cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at)
    pool = (scenario.router_pool, replicas, pooled_nodes(cluster.nodes))
    late = (workload.priority == "deferrable", workload.on_overload)
    return ("service", hardware, stated, traffic, scenario.horizon_months, pool, late), serve


def _serve(cluster: Cluster, workload: Workload, reuse: Reuse, horizon_months: int, pool: tuple[str, float]) -> Service:
    """Choose the layout that serves most per accelerator within the objective.

    ``pool`` says what a router chooses between: what the scenario states, and how many replicas there are at most.
    """
    catalog, calibration = reuse.catalog, reuse.calibration
    tokens = workload.tokens.input.mean + workload.tokens.output.mean
    layouts = layouts_of(cluster, workload.model, served_precision(cluster, workload, catalog), tokens, reuse)
    specs, work, replicas, slo = layouts.specs, layouts.work, layouts.replicas, workload.slo
    part, shape = specs[0].part, specs[0].shape
    point = at_objective(layouts.beside_others, np.arange(3 * len(specs)), traffic_of(workload), slo.ttft_s, slo.tpot_s)
    rates = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0).reshape(3, -1)
    rate, roofline, wide = rates / replicas.accelerators
    best = int(np.argmax(rate))
    single = at_concurrency(replicas, np.arange(len(specs)), traffic_of(workload), 1.0)
    candidates = Candidates(
        replicas=replicas,
        mean_rates=rate,
        router_pool=pool[0],
        nodes=cluster.nodes,
        accelerators_per_node=part.accelerators_per_node,
        most_replicas=pool[1],
    )
    claim = stated_over_formula(cluster, workload, candidates)
    speed = _multiplier(cluster, workload, catalog) if claim is None else claim
    # A claim is throughput, so it moves rates; the stack's maturity moves the steps, and with them the waits.
    speeds = (1.0, claim) if claim else (speed, 1.0)
    if workload.priority == "deferrable":
        held = mean_point(replicas, best, workload, point, horizon_months, speed)
    else:
        best, held = in_time_point(candidates, workload, horizon_months, speeds)
    apart = None
    if cluster.pools != "shared":
        apart, pooled = apart_point(candidates, specs, workload, horizon_months, speeds)
        if cluster.pools == "auto" and pooled.yearly[0] <= held.yearly[0]:
            apart = None
        else:
            best, held = apart.decode, pooled
    if held.yearly[0] <= 0:
        fastest = int(np.argmin(single.tpot_s))
        raise CapacityError(
            f"no batch of {workload.model} on {cluster.accelerator} meets {slo.ttft_s:g} s to the first token "
            f"and {slo.tpot_s:g} s per token; a single request takes {single.ttft_s[fastest]:.3g} s and "
            f"{single.tpot_s[fastest]:.3g} s on {specs[fastest].accelerators} accelerators"
        )
    spec = specs[best]
    yearly = held.yearly * part.accelerators_per_node
    compute_s = float(work.flops_s_per_token[best])
    single_stream_s, full_stream_s = stream_s(work, best, spec, workload, np.array([1.0, held.batch]))
    wide_fits = memory_fit(part, shape, layouts.wider, spec.accelerators, spec.attention_data_parallel).fits
    return Service(
        spec=spec,
        speed=speed,
        tensor_parallel=spec.accelerators,
        accelerators_per_node=part.accelerators_per_node,
        requests_per_s=float(yearly[0]),
        yearly=tuple(yearly.tolist()),
        outgrown_years=held.outgrown_years,
        batch=held.batch,
        tpot_s=held.tpot_s,
        single_tpot_s=float(single.tpot_s[best]),
        prefill_fraction=held.prefill_fraction,
        single_stream_s=single_stream_s,
        stream_s=full_stream_s,
        compute_s_per_token=compute_s,
        prefill_compute_fraction=min(1.0, compute_s / float(replicas.prefill_s_per_token[best])),
        wide_factor=min(1.0, float(wide[best] / rate[best])) if rate[best] > 0 and wide_fits else 0.0,
        roofline_factor=float(roofline[best]) / (float(rate[best]) or math.inf),
        layout=layout_in_words(spec, apart),
        is_apart=apart is not None,
        doubt=calibration.doubt(spec.groups(SERVING), shape.experts > 0),
        held_tpot_s=held.held_tpot_s,
        # The formula serves more than what keeps the objective, and more of it late; of a stated throughput nobody
        # knows what it would take beyond: it is a ceiling.
        lateness=held.lateness if claim is None else held.lateness.up_to_capacity(),
    )


def stream_s(work: ReplicaWork, best: int, spec: ReplicaSpec, workload: Workload, batch: Floats) -> list[float]:
    """Return what one board moves in a decode step, in seconds at its full bandwidth, shape (batches,).

    Weights that every step reads, the experts that a batch touches, 1 − (1 − k/E)^B of them, and the cache of each
    sequence halfway through its output.
    """
    fit = memory_fit(spec.part, spec.shape, spec.precision, spec.accelerators, spec.attention_data_parallel)
    context = workload.tokens.input.mean + workload.tokens.output.mean / 2
    cache_s = fit.kv_bytes_per_token * context / (spec.accelerators * spec.part.hbm_bytes_per_s)
    experts_s = work.routed_stream_s[best] * -np.expm1(batch * work.log_expert_missed[best])
    seconds: list[float] = (work.shared_stream_s[best] + experts_s + batch * cache_s).tolist()
    return seconds


def _multiplier(cluster: Cluster, workload: Workload, catalog: Catalog) -> float:
    """Return the stack's maturity on this kind of model."""
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    kind = catalog.model(workload.model).architecture_class.value.replace("-", "_")
    maturity: float = getattr(catalog.stack(vendor, cluster.engine), f"{kind}_multiplier").value
    return maturity


def capacity_table(scenario: Scenario, services: dict[tuple[str, str], Service], month_mid_years: Floats) -> Floats:
    """Return requests per node and hour, shape (clusters, workloads, months or 1); zero where it cannot serve.

    So a workload that has outgrown its objective on a cluster is refused there and takes no share of it.
    """
    grows = any(workload.tokens.growth_per_year for workload in scenario.workloads.values())
    periods = month_mid_years.size if grows else 1
    table = np.zeros((len(scenario.clusters), len(scenario.workloads), periods))
    for c, cluster in enumerate(scenario.clusters):
        for w, workload in enumerate(scenario.workloads):
            if (service := services.get((cluster, workload))) is None:
                continue
            yearly = np.log(service.yearly)
            table[c, w] = (
                np.exp(np.interp(month_mid_years[:periods], np.arange(yearly.size), yearly))
                if grows
                else (service.requests_per_s)
            )
            table[c, w, month_mid_years[:periods] >= service.outgrown_years] = 0.0
    return table * SECONDS_PER_HOUR
