"""What one node of each cluster sustains for each workload, from the throughput model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.catalog.load import Catalog
from planner.catalog.physics import part_of, shape_of
from planner.compile.reuse import Reuse
from planner.demand.bursts import BurstConditions
from planner.errors import CapacityError, Problem, ScenarioError
from planner.fleet.quantities import matured
from planner.fleet.window import MISS_CELLS
from planner.language.cluster import Cluster
from planner.language.scenario import Scenario
from planner.language.workload import Length, Workload
from planner.physics.coefficients import SERVING, Calibration, roofline_calibration
from planner.physics.doubt import Doubt
from planner.physics.memory import candidate_degrees, memory_fit, smallest_fit
from planner.physics.model_shape import ModelShape
from planner.physics.operating import OperatingPoint, Traffic, at_concurrency, at_objective, separate_pools
from planner.physics.part import Part
from planner.physics.precision import wider_precision
from planner.physics.replica import Replicas, ReplicaSpec, describe, price_replicas
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a cluster serves a workload on day one."""

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
    single_ttft_s: float
    prefill_fraction: float
    """Share of a loaded replica's time spent in prefill."""
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
    roofline_factor: float = 1.0
    """Throughput of the same replica under perfect software over the formula's."""
    spec: ReplicaSpec | None = None
    """The replica that serves it; None where a cluster serves nothing."""
    speed: float = 1.0
    """Speed over the throughput formula's: the stack's maturity times the user's factor, or the user's claim."""
    layout: str = ""
    """How a replica is laid out, in words."""
    doubt: Doubt | None = None
    """How far the throughput may be off; None where the calibration knows nothing of it."""


def served_precision(cluster: Cluster, workload: Workload, catalog: Catalog) -> str:
    """Return the arithmetic in which a cluster serves a workload: the wider of what both state.

    What a workload states is a floor of quality, which no cluster may undercut; where it states nothing the cluster
    decides, and where neither does it is what public serving runs use.
    """
    stated = [name for name in (cluster.precision, workload.precision) if name is not None]
    if not stated:
        return catalog.precision_with("default")
    return max(stated, key=lambda name: catalog.precisions[name].weight_bytes.value)


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


_FIRST_LIGHT = 0.3
"""Slowest that an old image is taken to be: a new model's first light on MI355X, 1/2.9 to 1/3.6 of its ceiling."""
Factors = Mapping[tuple[str, str, str], float]
"""Throughput over the model's, by accelerator, engine and model; an empty accelerator or model stands for any."""


def build_services(
    scenario: Scenario, calibration: Calibration, reuse: Reuse, factors: Factors
) -> tuple[dict[tuple[str, str], Service], list[str]]:
    """Return the service of each (cluster, workload) that works, and why others do not.

    A workload that no cluster can serve is an error.
    """
    services: dict[tuple[str, str], Service] = {}
    refused: list[str] = []
    problems: list[Problem] = []
    for workload_name, workload in scenario.workloads.items():
        reasons = []
        for cluster_name, cluster in scenario.clusters.items():
            found = _service(cluster, workload, calibration, scenario.horizon_months, reuse)
            if isinstance(found, CapacityError):
                reasons.append(f"{cluster_name}: {found}")
                continue
            dated = dated_log_gain(cluster, workload, calibration, reuse.catalog)
            factor = cluster.throughput_multiplier * min(math.exp(dated), max(found.roofline_factor / found.speed, 1.0))
            for accelerator, model in (
                (cluster.accelerator, workload.model),
                ("", workload.model),
                (cluster.accelerator, ""),
            ):
                factor *= factors.get((accelerator, cluster.engine, model), 1.0)
            services[cluster_name, workload_name] = dataclasses.replace(
                found,
                speed=found.speed * factor,
                requests_per_s=found.requests_per_s * factor,
                yearly=tuple(rate * factor for rate in found.yearly),
            )
        refused += [f"workload {workload_name} cannot run on {reason}" for reason in reasons]
        if len(reasons) == len(scenario.clusters):
            message = "no cluster can serve it: " + "; ".join(reasons)
            problems.append(scenario.document.problem(("workloads", workload_name), message))
    if problems:
        raise ScenarioError(problems)
    return services, refused


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


def _service(
    cluster: Cluster, workload: Workload, calibration: Calibration, horizon_months: int, reuse: Reuse
) -> Service | CapacityError:
    """Return the service before the user's own factor, or why there is none, worked out once for the same figures."""

    def serve() -> Service | CapacityError:
        try:
            return _serve(cluster, workload, reuse.catalog, calibration, horizon_months)
        except CapacityError as error:
            return error

    layout = (cluster.tensor_parallel, cluster.attention, cluster.pools, cluster.max_sequences, cluster.speculation)
    hardware = (cluster.accelerator, cluster.engine, served_precision(cluster, workload, reuse.catalog), layout)
    traffic = (workload.model, workload.tokens, workload.prefix_cache_hit_fraction, workload.slo)
    stated = (cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at)
    key = ("service", hardware, stated, traffic, horizon_months)
    return reuse.once(key, serve)


def _serve(
    cluster: Cluster, workload: Workload, catalog: Catalog, calibration: Calibration, horizon_months: int
) -> Service:
    """Choose the layout that serves most per accelerator within the objective."""
    part, shape = part_of(cluster.accelerator, catalog), shape_of(workload.model, catalog)
    precision = served_precision(cluster, workload, catalog)
    tokens = workload.tokens.input.mean + workload.tokens.output.mean
    specs = _candidates(cluster, part, shape, precision, tokens)
    replicas = price_replicas(specs, calibration)
    which = np.arange(len(specs))
    point = at_objective(replicas, which, traffic_of(workload), workload.slo.ttft_s, workload.slo.tpot_s)
    rate = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0) / replicas.accelerators
    best = int(np.argmax(rate))
    apart = None if cluster.pools == "shared" else _separate(specs, replicas, workload)
    if apart is not None and cluster.pools == "auto" and apart.rate <= rate[best]:
        apart = None
    if apart is not None:
        best, point = apart.decode, apart.point
    single = at_concurrency(replicas, which, traffic_of(workload), 1.0)
    if (rate[best] if apart is None else apart.rate) <= 0:
        fastest = int(np.argmin(single.tpot_s))
        raise CapacityError(
            f"no batch of {workload.model} on {cluster.accelerator} meets {workload.slo.ttft_s:g} s to the first token "
            f"and {workload.slo.tpot_s:g} s per token; a single request takes {single.ttft_s[fastest]:.3g} s and "
            f"{single.tpot_s[fastest]:.3g} s on {specs[fastest].accelerators} accelerators"
        )
    spec = specs[best]
    years = np.arange(horizon_months // 12 + 2)
    factor = _stated_over_formula(cluster, workload, replicas) or _multiplier(cluster, workload, catalog)
    factor *= part.accelerators_per_node
    if apart is None:
        each, outgrown_years = _yearly(replicas, best, workload, years)
        yearly = each / spec.accelerators * factor
    else:
        yearly, outgrown_years = _yearly_apart(specs, replicas, workload, years) * factor, np.inf
    batch, tpot = float(point.running_sequences[best]), float(point.tpot_s[best])
    single_stream_s, full_stream_s = stream_s(specs[best], workload, np.array([1.0, batch]))
    return Service(
        spec=spec,
        speed=factor / part.accelerators_per_node,
        tensor_parallel=spec.accelerators,
        accelerators_per_node=part.accelerators_per_node,
        requests_per_s=float(yearly[0]),
        yearly=tuple(yearly.tolist()),
        outgrown_years=outgrown_years,
        batch=batch,
        tpot_s=tpot,
        single_tpot_s=float(single.tpot_s[best]),
        single_ttft_s=float(single.ttft_s[best]),
        prefill_fraction=_prefill_fraction(replicas, best, workload, point) if apart is None else apart.prefill_share,
        single_stream_s=single_stream_s,
        stream_s=full_stream_s,
        compute_s_per_token=float(describe([spec]).flops_s_per_token[0]),
        prefill_compute_fraction=min(
            1.0, float(describe([spec]).flops_s_per_token[0] / replicas.prefill_s_per_token[best])
        ),
        wide_factor=_wide_factor(spec, workload, calibration, float(rate[best])),
        roofline_factor=_rate(spec, workload, roofline_calibration())
        / (_rate(spec, workload, calibration) or math.inf),
        layout=_layout_in_words(spec, apart),
        doubt=calibration.doubt(spec.groups(SERVING), shape.experts > 0),
    )


def stream_s(spec: ReplicaSpec, workload: Workload, batch: Floats) -> list[float]:
    """Return what one board moves in a decode step, in seconds at its full bandwidth, shape (batches,).

    Weights that every step reads, the experts that a batch touches, 1 − (1 − k/E)^B of them, and the cache of each
    sequence halfway through its output.
    """
    work = describe([spec])
    fit = memory_fit(spec.part, spec.shape, spec.precision, spec.accelerators, spec.attention_data_parallel)
    context = workload.tokens.input.mean + workload.tokens.output.mean / 2
    cache_s = fit.kv_bytes_per_token * context / (spec.accelerators * spec.part.hbm_bytes_per_s)
    experts_s = work.routed_stream_s * -np.expm1(batch * work.log_expert_missed)
    seconds: list[float] = (work.shared_stream_s + experts_s + batch * cache_s).tolist()
    return seconds


def _stated_over_formula(cluster: Cluster, workload: Workload, replicas: Replicas) -> float | None:
    """Return the throughput that the user states over the formula's, both at the lengths it was measured at.

    stated output tokens per second / output tokens of a request / the formula's requests per second, of an accelerator.
    Times the formula's requests at other lengths it is the stated throughput scaled to them. Objective, spread of
    lengths and cached share are the workload's on both sides, so that only the lengths differ; at either lengths the
    replica is the one that serves most. None where the user states none.
    """
    stated, lengths = cluster.throughput_tokens_per_s_per_accelerator, cluster.throughput_measured_at
    if stated is None or lengths is None:  # never one without the other: validation sees to it
        return None
    there = dataclasses.replace(
        traffic_of(workload), input_tokens=lengths.input_tokens, output_tokens=lengths.output_tokens
    )
    which = np.arange(replicas.accelerators.size)
    point = at_objective(replicas, which, there, workload.slo.ttft_s, workload.slo.tpot_s)
    rates = np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0) / replicas.accelerators
    formula = float(rates.max())
    if formula <= 0:
        raise CapacityError(
            f"its stated throughput, measured at {lengths.input_tokens:g} prompt and {lengths.output_tokens:g} "
            f"generated tokens, cannot be scaled to {workload.tokens.input.mean:g} and "
            f"{workload.tokens.output.mean:g}: within the workload's objective the formula serves nothing at the "
            "lengths measured; state a measurement nearer to them"
        )
    return stated / lengths.output_tokens / formula


def _candidates(cluster: Cluster, part: Part, shape: ModelShape, precision: str, tokens: float) -> list[ReplicaSpec]:
    """Return the layouts a cluster may serve a model in; raise CapacityError where none holds it."""
    smallest = smallest_fit(part, shape, precision, tokens).accelerators
    degrees = [d for d in candidate_degrees(part, shape) if d >= smallest]
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
    speculation = cluster.speculation
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
            drafted_tokens=speculation.drafted_tokens if speculation else 0,
            accepted_tokens=speculation.accepted_tokens if speculation else 1.0,
        )
        for degree, groups in layouts
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Apart:
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


def _separate(specs: list[ReplicaSpec], replicas: Replicas, workload: Workload, growth: float = 1.0) -> _Apart:
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
    return _Apart(
        rate=float(prefill[first] * decode[second] / total) if total > 0 else 0.0,
        decode=second,
        prefill_accelerators=specs[first].accelerators,
        prefill_share=float(decode[second] / total) if total > 0 else 0.0,
        point=pools.decode,
    )


def _yearly_apart(specs: list[ReplicaSpec], replicas: Replicas, workload: Workload, years: NDArray[np.int64]) -> Floats:
    """Return requests per second and accelerator of both pools as tokens per request grow, one figure a year."""
    if workload.tokens.growth_per_year == 0.0:
        years = years[:1]
    growth = (1.0 + workload.tokens.growth_per_year) ** years
    found = np.array([_separate(specs, replicas, workload, float(factor)).rate for factor in growth])
    return np.asarray(np.maximum(found, found[0] * 1e-6))


def _layout_in_words(spec: ReplicaSpec, apart: _Apart | None) -> str:
    """Say how a replica is laid out, for those who set it up."""
    words = f"{spec.accelerators} accelerator{'s' if spec.accelerators > 1 else ''} a replica"
    if spec.attention_data_parallel > 1:
        words += f", attention in {spec.attention_data_parallel} groups"
    if apart is not None:
        words += f", prompts on a pool of {apart.prefill_share:.0%} in replicas of {apart.prefill_accelerators}"
    if spec.drafted_tokens:
        words += f", {spec.drafted_tokens} tokens drafted"
    return words


def _multiplier(cluster: Cluster, workload: Workload, catalog: Catalog) -> float:
    """Return the stack's maturity on this kind of model."""
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    kind = catalog.model(workload.model).architecture_class.value.replace("-", "_")
    maturity: float = getattr(catalog.stack(vendor, cluster.engine), f"{kind}_multiplier").value
    return maturity


def _yearly(replicas: Replicas, best: int, workload: Workload, years: NDArray[np.int64]) -> tuple[Floats, float]:
    """Return requests per second of the replica as tokens per request grow, one figure a year, and when it meets none.

    Once its requests are too long for the objective a replica serves nothing at it: the rate stays what it last was, to
    be read until then alone, and the month from which on there is none is found on a monthly grid.
    """

    def rates(after_years: Floats) -> Floats:
        growth = (1.0 + workload.tokens.growth_per_year) ** after_years
        which = np.full(growth.size, best)
        point = at_objective(replicas, which, traffic_of(workload, growth), workload.slo.ttft_s, workload.slo.tpot_s)
        return np.where(np.isfinite(point.requests_per_s), point.requests_per_s, 0.0)

    if workload.tokens.growth_per_year == 0.0:
        years = years[:1]
    found = rates(years.astype(np.float64))
    if np.all(found > 0.0):
        return found, np.inf
    monthly = np.arange(years[-1] * MONTHS_PER_YEAR + 1) / MONTHS_PER_YEAR
    month = int(np.argmax(rates(monthly) <= 0.0))
    last = rates(monthly[month - 1 : month])
    return np.where(years < monthly[month], found, last), float(monthly[month])


def _prefill_fraction(replicas: Replicas, best: int, workload: Workload, point: OperatingPoint) -> float:
    """Return the share of a loaded replica's time that prompts take."""
    prompt = workload.tokens.input.mean * (1.0 - workload.prefix_cache_hit_fraction)
    prefill_s = prompt * replicas.prefill_s_per_token[best]
    prefill_s += prompt * workload.tokens.input.mean * replicas.attention_s_per_token2[best]
    return float(np.clip(point.requests_per_s[best] * prefill_s, 0.0, 0.95))


def _wide_factor(spec: ReplicaSpec, workload: Workload, calibration: Calibration, rate: float) -> float:
    """Return the speed of the same replica in the next wider precision over its own; 0 where that does not fit."""
    wider = wider_precision(spec.part, spec.shape, spec.precision)
    wide = dataclasses.replace(spec, precision=wider)
    held = memory_fit(spec.part, spec.shape, wider, spec.accelerators, spec.attention_data_parallel)
    if rate <= 0 or not held.fits:
        return 0.0
    return min(1.0, _rate(wide, workload, calibration) / rate)


def _rate(spec: ReplicaSpec, workload: Workload, calibration: Calibration) -> float:
    """Return requests per second and accelerator of a replica within the objective; 0 where no batch meets it."""
    replicas = price_replicas([spec], calibration)
    point = at_objective(
        replicas, np.zeros(1, dtype=int), traffic_of(workload), workload.slo.ttft_s, workload.slo.tpot_s
    )
    found = float(point.requests_per_s[0]) / spec.accelerators
    return found if np.isfinite(found) else 0.0


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


def miss_tables(scenario: Scenario, services: dict[tuple[str, str], Service], reuse: Reuse) -> Floats:
    """Return the share of requests late at each utilisation, shape (clusters, workloads, cells + 1)."""
    tables = np.zeros((len(scenario.clusters), len(scenario.workloads), MISS_CELLS + 1))
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
                )
                tables[c, w] = reuse.late_shares((cluster, name), conditions)
    return tables
