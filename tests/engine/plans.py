"""Compiled plans made by hand: no catalogue, no physics, every figure plain."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.demand.plan import DemandPlan, LognormalNoise
from planner.finance.money_plan import HourlyTerms
from planner.finance.months import MonthGrid
from planner.physics.power import NodePower
from planner.plan.distributions import ThreePoint
from planner.plan.expansion import ExpansionPlan
from planner.plan.load_tables import LOAD_CELLS
from planner.plan.plan import ClusterPlan, OrderPlan, Plan, SitePlan, WorkloadPlan
from planner.plan.reliability import CausePlan, ReliabilityPlan
from planner.plan.software import IncidentPlan, SoftwarePlan, StackPlan, TeamPlan
from planner.plan.staffing import Headcount
from planner.scenario.scenario import SloTarget
from tests.engine.money import money_plan

START = datetime.date(2026, 1, 1)


def node_power(idle_kw: float = 2.0, full_kw: float = 10.0, points: int = 8193) -> NodePower:
    """A concave power curve between two figures."""
    load = np.linspace(0.0, 1.0, points)
    cap_kw = np.linspace(idle_kw, full_kw, 65)
    return NodePower(
        idle_kw=idle_kw,
        full_kw=full_kw,
        load_kw=idle_kw + (full_kw - idle_kw) * load**0.6,
        cap_kw=cap_kw,
        cap_throughput_fraction=np.linspace(0.0, 1.0, 65) ** 0.4,
    )


def cluster_plan(name: str = "a", nodes: int = 10, **changes: Any) -> ClusterPlan:
    """A cluster that is there from the start and serves to the end."""
    plain = ClusterPlan(
        name=name,
        accelerator="H200",
        vendor="nvidia",
        nodes=nodes,
        accelerators_per_node=8,
        group_accelerators=8,
        online_h=0.0,
        order=None,
        retire_h=np.inf,
        failure_multiplier=1.0,
        node_power=node_power(),
        nameplate_kw=10.0,
        prices_usd=(200_000.0, 40_000.0, 20_000.0, 5_000.0),
    )
    return dataclasses.replace(plain, **changes)


def hourly_terms(**changes: Any) -> HourlyTerms:
    """Machines that are always to be had, start at once and are held for the hour."""
    plain = HourlyTerms(
        accelerator="H200", usd_per_accelerator_h=np.full(1, 3.0), startup_h=0.0, hold_h=1, available_fraction=1.0,
        gap_days=6.5,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def order_plan(**changes: Any) -> OrderPlan:
    """An order that arrives at once, whole and sound."""
    plain = OrderPlan(
        placed_h=0.0,
        lead_h=0.0,
        slip_h=ThreePoint(low=0.0, base=0.0, high=0.0),
        deliveries=1,
        interval_h=0.0,
        acceptance_failure_fraction=0.0,
    )
    return dataclasses.replace(plain, **changes)


def workload_plan(
    name: str = "chat", clusters: Sequence[int] = (0,), months: int = 1, **changes: Any
) -> WorkloadPlan:
    """A workload of requests with 100 tokens in and 50 out."""
    plain = WorkloadPlan(
        name=name,
        model="llama",
        input_tokens=np.full(months, 100.0),
        output_tokens=np.full(months, 50.0),
        priority=0,
        deadline_h=0,
        cluster_tiers=tuple((cluster,) for cluster in clusters),
        launch_h=None,
    )
    return dataclasses.replace(plain, **changes)


def cause_plan(**changes: Any) -> CausePlan:
    """A cause that fails every node once in a hundred days, always softly."""
    plain = CausePlan(
        name="gpu", per_node_h=1 / 2400, whole_node=False, soft_fraction=1.0, medium_fraction=0.0
    )
    return dataclasses.replace(plain, **changes)


def reliability_plan(**changes: Any) -> ReliabilityPlan:
    """No failures unless causes are given; plenty of crews and parts. ``spare_fraction`` is a share of nodes."""
    if isinstance(crews := changes.get("crews"), int):
        changes["crews"] = Headcount(fixed=crews)
    if (fraction := changes.pop("spare_fraction", None)) is not None:
        changes["spares"] = Headcount(per_node=fraction, minimum=int(fraction > 0))
    plain = ReliabilityPlan(
        causes=(cause_plan(per_node_h=0.0),),
        lemon_fraction=0.0,
        lemon_multiplier=1.0,
        early_life_multiplier=1.0,
        early_life_h=1000.0,
        repair_h=(2.0, 12.0, 60.0),
        repair_cv=0.6,
        crews=Headcount(fixed=4),
        spares=Headcount(),
        rma_h=500.0,
    )
    return dataclasses.replace(plain, **changes)


def certain(figure: float) -> ThreePoint:
    """A figure without spread."""
    return ThreePoint(low=figure, base=figure, high=figure)


def incident_plans(
    *, regression: float = 0.0, wrong_numerics: float = 0.0, hang: float = 0.0, **changes: Any
) -> Any:
    """Three shipped kinds, the first two by upgrade and the last by year, each fixed after five days."""
    kinds = (
        ("regression", 0.2, regression),
        ("wrong-numerics", 0.0, wrong_numerics),
        ("hang", 0.05, hang),
    )
    plain = tuple(
        IncidentPlan(
            kind=kind,
            per_year=often if kind == "hang" else 0.0,
            per_upgrade=0.0 if kind == "hang" else often,
            loss=certain(loss),
            most_loss=0.65,
            detection_h=certain(4.0),
            subtle_detection_h=certain(100.0),
            subtle_fraction=0.0,
            subtle_below=0.0,
            fix_days=certain(5.0),
            falsifies=kind == "wrong-numerics",
        )
        for kind, loss, often in kinds
    )
    return tuple(dataclasses.replace(incident, **changes) for incident in plain)


def stack_plan(**changes: Any) -> StackPlan:
    """A stack to which nothing happens."""
    plain = StackPlan(
        name="cuda-vllm",
        releases_per_year=0.0,
        upgrade_h=np.inf,
        rollback_impossible_fraction=0.0,
        release_sigma=0.0,
        maturity={},
        steps=(),
        incidents=incident_plans(),
        bring_up_weeks=certain(3.0),
        bring_up_fraction=certain(0.5),
        new_model_incident_multiplier=1.0,
    )
    return dataclasses.replace(plain, **changes)


def software_plan(clusters: int = 1, workloads: int = 1, **changes: Any) -> SoftwarePlan:
    """Engineers with nothing to do; ``engineers`` are one team for all stacks."""
    team = TeamPlan(
        name="all",
        clusters=tuple(range(clusters)),
        engineers=Headcount(fixed=changes.pop("engineers", 2)),
    )
    plain = SoftwarePlan(
        stacks=(stack_plan(),),
        teams=(team,),
        fix_time_multiplier=1.0,
        engineer_h=40.0,
        canary_fraction=0.1,
        bake_h=0.0,
        rollback_h=certain(3.0),
        architectures=("dense",) * workloads,
        clock_h=(0.0,) * clusters,
        stack_of=np.full((clusters, workloads), "cuda-vllm"),
        dated_log_gain=np.zeros((clusters, workloads)),
        roofline_log_gain=np.full((clusters, workloads), 10.0),
        wide_precision_factor=np.full((clusters, workloads), np.nan),
    )
    return dataclasses.replace(plain, **changes)


def site_plan(hours: int, clusters: int = 1, **changes: Any) -> SitePlan:
    """A site without cap, season, blocks or outages."""
    plain = SitePlan(
        cap_kw=None,
        overhead_ratio=np.full(hours, 0.3),
        fixed_fraction=0.3,
        most_it_kw=np.inf,
        rated_kw=np.full(hours, 100.0 * clusters),
        block_h=np.zeros(0),
        block_kw=np.zeros(0),
        outages_per_year=0.0,
        outage_h=4.0,
        commissioning_crews=4,
        commissioning_h=6.0,
    )
    return dataclasses.replace(plain, **changes)


def expansion_plan(**changes: Any) -> ExpansionPlan:
    """A review without rules."""
    plain = ExpansionPlan(
        rules=(), budget_usd=np.inf, it_power_cap_kw=np.inf, price_change_per_year=0.0
    )
    return dataclasses.replace(plain, **changes)


def demand_plan(
    workloads: Sequence[WorkloadPlan], hours: int, requests_per_s: Sequence[float]
) -> DemandPlan:
    """Steady demand without noise, from each model's launch on."""
    expected = np.repeat(np.asarray(requests_per_s, dtype=np.float64)[:, None], hours, axis=1)
    for row, workload in zip(expected, workloads, strict=True):
        row[: max(0, int(workload.launch_h or 0.0))] = 0.0
    return DemandPlan(
        names=tuple(workload.name for workload in workloads),
        streams=tuple(workload.name for workload in workloads),
        expected_requests_per_s=expected,
        noise_base_requests_per_s=expected,
        noises=tuple(LognormalNoise() for _ in workloads),
        tenants=tuple(() for _ in workloads),
    )


def make_plan(
    clusters: Sequence[ClusterPlan] | None = None,
    workloads: Sequence[WorkloadPlan] | None = None,
    *,
    months: int = 1,
    requests_per_s: Sequence[float] | None = None,
    rate_per_node_h: float = 3600.0,
    **changes: Any,
) -> Plan:
    """A plan in which every node serves one request a second of every workload, unless stated otherwise."""
    clusters = clusters or [cluster_plan()]
    workloads = workloads or [workload_plan(clusters=range(len(clusters)), months=months)]
    requests_per_s = requests_per_s or [1.0] * len(workloads)
    workloads = [
        dataclasses.replace(workload, is_wanted=rate > 0.0)
        for workload, rate in zip(workloads, requests_per_s, strict=True)
    ]
    grid = MonthGrid(start=START, horizon_months=months)
    hours = grid.hour_count
    sizes = (len(clusters), len(workloads))
    plain = Plan(
        seed=1,
        start=START,
        hours=hours,
        months=grid,
        month_edges_h=grid.edge_hours,
        workloads=tuple(workloads),
        clusters=tuple(clusters),
        demand=demand_plan(workloads, hours, requests_per_s),
        requests_per_node_h=np.full((*sizes, 1), rate_per_node_h),
        late_tables=np.zeros((*sizes, LOAD_CELLS + 1)),
        refused_tables=np.zeros((*sizes, LOAD_CELLS + 1)),
        most_loads=np.ones(sizes),
        by_priority=tuple(
            sorted(range(len(workloads)), key=lambda w: (workloads[w].priority, workloads[w].name))
        ),
        preferred_utilisation=1.0,
        reliability=reliability_plan(),
        software=software_plan(*sizes),
        site=site_plan(hours, len(clusters)),
        expansion=expansion_plan(),
        money=money_plan(grid, len(clusters)),
        slo_target=SloTarget(),
        warnings=(),
        notes=(),
    )
    return dataclasses.replace(plain, **changes)
