"""From a scenario to arrays: the only file that knows both."""

from __future__ import annotations

import numpy as np

from planner.catalog.calibration import shipped_calibration
from planner.catalog.entries import Accelerator, Model
from planner.catalog.load import Catalog
from planner.demand.calendar import Horizon
from planner.demand.growth import CompoundGrowth
from planner.demand.noise import LognormalNoise
from planner.demand.plan import WorkloadDemand, build_demand_plan
from planner.demand.shape import Shape, weekly_profile
from planner.documents import KeyPath, dotted
from planner.errors import CapacityError, Problem, ScenarioError
from planner.finance.months import MonthGrid
from planner.fleet.plan import ClusterPlan, MoneyPlan, Plan, WorkloadPlan
from planner.physics.model_shape import ModelShape
from planner.physics.part import Part
from planner.physics.sizing import Service, best_replica
from planner.scenario.cluster import Cluster
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from planner.units import GIB, GIGA, HOURS_PER_DAY, TB, TERA

_PRIORITY = {"interactive": 0, "standard": 1, "deferrable": 2}
_DEFAULT_DEADLINE_H = 24
_FULL_LOAD_OF_NAMEPLATE = 0.70  # nodes under MLPerf load draw 63 to 73% of nameplate (H200, B200)
_HOST_IDLE_OF_NAMEPLATE = 0.12  # node idle less boards idle, the same logs


def build_plan(scenario: Scenario) -> Plan:
    """Compile a scenario; raise ScenarioError when a workload or a cluster cannot work."""
    catalog = scenario.load_catalog()
    months = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    horizon = Horizon(start=scenario.start, hours=months.hour_count)
    capacity = _capacity(scenario, catalog)
    clusters = tuple(_cluster_plan(scenario, catalog, name) for name in scenario.clusters)
    return Plan(
        name=scenario.name,
        seed=scenario.seed,
        months=months,
        workloads=tuple(
            _workload_plan(name, workload, capacity[:, index], clusters)
            for index, (name, workload) in enumerate(scenario.workloads.items())
        ),
        clusters=clusters,
        demand=build_demand_plan([_demand(name, load) for name, load in scenario.workloads.items()], horizon),
        requests_per_s_per_node=capacity,
        repair_crews=scenario.site.repair_crews,
        money=_money(scenario, catalog),
    )


def part_of(name: str, entry: Accelerator) -> Part:
    """Turn a catalogue accelerator into what the throughput formula needs."""
    rates = {"bf16": entry.bf16_dense_tflops, "fp8": entry.fp8_dense_tflops, "fp4": entry.fp4_dense_tflops}
    return Part(
        name=name,
        vendor=entry.vendor.value,
        hbm_bytes=entry.hbm_gb.value * GIB,
        hbm_bytes_per_s=entry.hbm_tb_per_s.value * TB,
        dense_flops_per_s={precision: rate.value * TERA for precision, rate in rates.items() if rate is not None},
        fp8_dialect=entry.fp8_dialect.value if entry.fp8_dialect else "ocp",
        tdp_w=entry.tdp_w.value,
        link_bytes_per_s=entry.scaleup_gb_per_s.value * GIGA,
        scaleup_accelerators=entry.scaleup_accelerators.value,
        switched=entry.scaleup_switched.value,
        accelerators_per_node=entry.accelerators_per_node.value,
    )


def shape_of(name: str, entry: Model) -> ModelShape:
    """Turn a catalogue model into what the throughput formula needs."""

    def optional(field: str) -> int:
        fact = getattr(entry, field)
        return 0 if fact is None else int(fact.value)

    return ModelShape(
        name=name,
        layers=entry.layers.value,
        hidden=entry.hidden_size.value,
        intermediate=entry.intermediate_size.value,
        heads=entry.heads.value,
        kv_heads=entry.kv_heads.value,
        head_dim=entry.head_dim.value,
        vocab=entry.vocabulary.value,
        experts=optional("experts"),
        experts_per_token=optional("experts_per_token"),
        moe_intermediate=optional("expert_intermediate_size"),
        shared_experts=optional("shared_experts"),
        dense_layers=optional("dense_layers"),
        q_lora_rank=optional("q_lora_rank"),
        kv_lora_rank=optional("kv_lora_rank"),
        qk_rope_head_dim=optional("qk_rope_head_dim"),
        qk_nope_head_dim=optional("qk_nope_head_dim"),
        v_head_dim=optional("v_head_dim"),
        sliding_window=optional("sliding_window_tokens"),
        sliding_layers_fraction=entry.sliding_layers_fraction.value if entry.sliding_layers_fraction else 0.0,
        tied_embeddings=bool(entry.tied_embeddings and entry.tied_embeddings.value),
        max_context=entry.max_context_tokens.value,
        architecture_class="moe"
        if entry.architecture_class.value == "mixture-of-experts"
        else entry.architecture_class.value,
        native_precision=entry.native_precision.value if entry.native_precision else "bf16",
    )


def _problem(scenario: Scenario, path: KeyPath, message: str) -> Problem:
    place = scenario.document.locate(path)
    file, line = (place.file, place.line) if place else (None, None)
    return Problem(file=file, line=line, path=dotted(path), message=message)


def _capacity(scenario: Scenario, catalog: Catalog) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return sustained requests per second of one node, shape (clusters, workloads); 0 where a model does not fit."""
    capacity = np.zeros((len(scenario.clusters), len(scenario.workloads)))
    problems: list[Problem] = []
    for w, (workload_name, workload) in enumerate(scenario.workloads.items()):
        reasons: list[str] = []
        for c, (cluster_name, cluster) in enumerate(scenario.clusters.items()):
            try:
                capacity[c, w] = _node_rate(cluster, workload, catalog)
            except CapacityError as error:
                reasons.append(f"{cluster_name}: {error}")
        if not capacity[:, w].any():
            message = "no cluster can serve it: " + "; ".join(reasons)
            problems.append(_problem(scenario, ("workloads", workload_name), message))
    if problems:
        raise ScenarioError(problems)
    return capacity


def _node_rate(cluster: Cluster, workload: Workload, catalog: Catalog) -> float:
    """Return the requests per second that one node of a cluster sustains for a workload."""
    accelerator = catalog.accelerator(cluster.accelerator)
    stack = catalog.stack(accelerator.vendor.value, cluster.engine)
    model = catalog.model(workload.model)
    multiplier: float = getattr(stack, f"{model.architecture_class.value.replace('-', '_')}_multiplier").value
    service = Service(
        input_tokens=workload.tokens.input.mean,
        output_tokens=workload.tokens.output.mean,
        input_p95_tokens=workload.tokens.input.p95,
        output_p95_tokens=workload.tokens.output.p95,
        prefix_cache_hit_fraction=workload.prefix_cache_hit_fraction,
        precision=cluster.precision or workload.precision,
        ttft_s=workload.slo.ttft_s,
        tpot_s=workload.slo.tpot_s,
    )
    part, shape = part_of(cluster.accelerator, accelerator), shape_of(workload.model, model)
    replica = best_replica(part, shape, cluster.engine, service, shipped_calibration())
    per_node = accelerator.accelerators_per_node.value / replica.tensor_parallel
    return replica.requests_per_s * per_node * multiplier


def _workload_plan(
    name: str,
    workload: Workload,
    capacity: np.ndarray[tuple[int], np.dtype[np.float64]],
    clusters: tuple[ClusterPlan, ...],
) -> WorkloadPlan:
    """Offer work to the cluster that spends least energy on it first."""
    deadline_h = workload.deferrable_within_h
    if deadline_h is None:
        deadline_h = _DEFAULT_DEADLINE_H if workload.priority == "deferrable" else 0
    able = [index for index in range(len(clusters)) if capacity[index] > 0]
    order = sorted(able, key=lambda c: (clusters[c].node_full_kw / capacity[c], clusters[c].name))
    return WorkloadPlan(
        name=name,
        input_tokens=workload.tokens.input.mean,
        output_tokens=workload.tokens.output.mean,
        priority=_PRIORITY[workload.priority],
        deadline_h=round(deadline_h),
        cluster_order=tuple(order),
    )


def _cluster_plan(scenario: Scenario, catalog: Catalog, name: str) -> ClusterPlan:
    cluster = scenario.clusters[name]
    part = catalog.accelerator(cluster.accelerator)
    vendor = part.vendor.value
    per_node = part.accelerators_per_node.value
    accelerators = cluster.nodes * per_node
    online = cluster.online or scenario.start
    reliability = scenario.reliability
    rate = reliability.node_failures_per_1000_node_days / (1000 * HOURS_PER_DAY)
    nameplate_kw = part.node_max_kw.value
    platform = [part.host_usd_per_accelerator, part.network_usd_per_accelerator, part.storage_usd_per_accelerator]
    price = cluster.unit_price_usd
    if price is None:
        assert part.unit_price_usd is not None
        price = part.unit_price_usd.value
    each = (price * (1 - cluster.discount_fraction), *(fact.value if fact is not None else 0.0 for fact in platform))
    finance = scenario.finance
    return ClusterPlan(
        name=name,
        accelerator=cluster.accelerator,
        vendor=vendor,
        nodes=cluster.nodes,
        accelerators_per_node=per_node,
        online_h=(online - scenario.start).days * HOURS_PER_DAY,
        failures_per_node_h=rate * (reliability.amd_failure_multiplier if vendor == "amd" else 1.0),
        mean_repair_h=reliability.mean_repair_h,
        node_idle_kw=nameplate_kw * _HOST_IDLE_OF_NAMEPLATE + per_node * part.idle_w.value / 1000,
        node_full_kw=nameplate_kw * _FULL_LOAD_OF_NAMEPLATE,
        provisioned_kw=nameplate_kw * cluster.nodes,
        capital_usd=(each[0] * accelerators, each[1] * accelerators, each[2] * accelerators, each[3] * accelerators),
        engineers=finance.software_engineers_per_800_amd * accelerators / 800 if vendor == "amd" else 0.0,
    )


def _demand(name: str, workload: Workload) -> WorkloadDemand:
    growth = workload.growth.per_year if workload.growth.kind == "compound" else 0.0
    shape = workload.shape
    profile = weekly_profile(peak_to_mean=shape.peak_to_mean, weekend_fraction=shape.weekend_fraction)
    return WorkloadDemand(
        name=name,
        requests_per_s=workload.requests_per_s,
        growth=CompoundGrowth(per_year=growth),
        shape=Shape(weekly_profile=profile, timezone=shape.timezone),
        noise=LognormalNoise(sigma=workload.noise_sigma, correlation_h=workload.noise_correlation_h),
    )


def _money(scenario: Scenario, catalog: Catalog) -> MoneyPlan:
    site, finance = scenario.site, scenario.finance
    price = site.electricity_usd_per_kwh
    return MoneyPlan(
        depreciation_months=finance.depreciation_months,
        residual_fraction=finance.residual_fraction,
        discount_rate_per_year=finance.discount_rate_per_year,
        operations_fraction_per_year=finance.operations_fraction_per_year,
        engineer_usd_per_year=finance.engineer_usd_per_year,
        electricity_usd_per_kwh=catalog.tariff(site.tariff).energy_usd_per_kwh.value if price is None else price,
        pue_ratio=site.pue_ratio,
        colocation_usd_per_kw_month=site.colocation_usd_per_kw_month,
    )
