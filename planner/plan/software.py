"""Software stacks, what goes wrong with them and the engineers who mend it, compiled."""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import numpy as np

from planner.arrays import Floats
from planner.catalog.entries import ArchitectureClass, Range, Stack
from planner.catalog.load import Catalog
from planner.plan.capacity import dated_log_gain
from planner.plan.plan import ClusterPlan
from planner.plan.reuse import Reuse
from planner.plan.service import Service
from planner.plan.software_plan import (
    Headcount,
    IncidentPlan,
    MaturityPlan,
    SoftwarePlan,
    StackPlan,
    StepPlan,
    TeamPlan,
    ThreePoint,
)
from planner.scenario.fields import PerThousand
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK

_POLICY = {  # release delay in hours (None: never), share of regressions met
    "latest": (0.0, 1.0),
    "staged": (8 * HOURS_PER_WEEK, 0.5),
    "pinned": (None, 0.25),
}
_FIX_MULTIPLIER = {"none": 1.5, "standard": 1.0, "premium": 0.6}
SUPPORT_USD = {"none": 0.0, "standard": 300.0, "premium": 900.0}


def release_delay_h(upgrade_policy: str) -> float | None:
    """Return how long a release waits before it is taken; None for never."""
    return _POLICY[upgrade_policy][0]


def stack_name(stack: Stack) -> str:
    """Return the name by which clusters and random streams know a stack."""
    return f"{stack.platform.value}-{stack.engine.value}"


def headcount(stated: float | PerThousand, least: int = 0) -> Headcount:
    """Compile people or parts: a number as it is, to the nearest whole, or a rate."""
    if isinstance(stated, PerThousand):
        return Headcount(per_accelerator=stated.per_1000_accelerators / 1000.0, rounding=stated.rounding, least=least)
    return Headcount(fixed=Headcount(per_accelerator=stated).number(1.0))


def _teams(scenario: Scenario, catalog: Catalog, clusters: tuple[ClusterPlan, ...]) -> tuple[TeamPlan, ...]:
    """Return one team for every stack where a number is stated, and one for each vendor's otherwise."""
    stated = scenario.software.engineers
    if stated is not None and not isinstance(stated, dict):
        return (TeamPlan(name="all", clusters=tuple(range(len(clusters))), engineers=headcount(stated)),)
    teams = []
    for vendor in sorted({cluster.vendor for cluster in clusters}):
        usual = scenario.software.engineers_per_800.get(vendor, catalog.vendor(vendor).engineers_per_800.value)
        staffed = (stated or {}).get(vendor, PerThousand(per_1000_accelerators=usual * 1000.0 / 800.0))
        served = tuple(index for index, cluster in enumerate(clusters) if cluster.vendor == vendor)
        teams.append(TeamPlan(name=vendor, clusters=served, engineers=headcount(staffed)))
    return tuple(teams)


def software_plan(
    scenario: Scenario, clusters: tuple[ClusterPlan, ...], services: dict[tuple[str, str], Service], reuse: Reuse
) -> SoftwarePlan:
    """Compile stacks, engineers and the response to wrong numerics."""
    stated, catalog, calibration = scenario.software, reuse.catalog, reuse.calibration
    measured_on = calibration.measured_on
    teams = _teams(scenario, catalog, clusters)
    stacks = {}
    for index, cluster in enumerate(scenario.clusters.values()):
        stack = catalog.stack(clusters[index].vendor, cluster.engine)
        team = next(number for number, team in enumerate(teams) if index in team.clusters)
        stacks[stack_name(stack)] = dataclasses.replace(_stack(scenario, catalog, stack), team=team)
    wide = np.full((len(scenario.clusters), len(scenario.workloads)), np.nan)
    if stated.wrong_numerics_response == "widen":
        for c, cluster_name in enumerate(scenario.clusters):
            for w, workload_name in enumerate(scenario.workloads):
                if (service := services.get((cluster_name, workload_name))) is not None:
                    wide[c, w] = service.wide_factor
    return SoftwarePlan(
        stacks=tuple(stacks[name] for name in sorted(stacks)),
        teams=teams,
        fix_time_multiplier=_FIX_MULTIPLIER[stated.support_contract],
        engineer_h=stated.fix_engineer_h,
        architectures=tuple(
            catalog.model(workload.model).architecture_class.value for workload in scenario.workloads.values()
        ),
        clock_h=tuple(
            0.0 if cluster.engine_date is None or measured_on is None else (scenario.start - measured_on).days * 24.0
            for cluster in scenario.clusters.values()
        ),
        dated_log_gain=np.array(
            [
                [dated_log_gain(cluster, workload, calibration, catalog) for workload in scenario.workloads.values()]
                for cluster in scenario.clusters.values()
            ]
        ),
        roofline_log_gain=_roofline_log_gain(scenario, services),
        wide_precision_factor=wide,
    )


def _roofline_log_gain(scenario: Scenario, services: dict[tuple[str, str], Service]) -> Floats:
    """Return how far the roofline lies above what is predicted, the same for all workloads of a model on a part.

    The nearest of them is taken, so that one history of speed serves them all.
    """
    gains: dict[tuple[str, str, str], float] = {}
    table = np.zeros((len(scenario.clusters), len(scenario.workloads)))
    keys = {}
    for (cluster_name, workload_name), service in services.items():
        cluster, model = scenario.clusters[cluster_name], scenario.workloads[workload_name].model
        keys[cluster_name, workload_name] = key = (cluster.accelerator, cluster.engine, model)
        gain = math.log(max(1.0, service.roofline_factor / service.speed))
        gains[key] = min(gains.get(key, math.inf), gain)
    for c, cluster_name in enumerate(scenario.clusters):
        for w, workload_name in enumerate(scenario.workloads):
            if (cluster_name, workload_name) in keys:
                table[c, w] = gains[keys[cluster_name, workload_name]]
    return table


def _points(fact: Range) -> ThreePoint:
    return ThreePoint(low=fact.low, base=fact.base, high=fact.high)


def _incidents(scenario: Scenario, catalog: Catalog, stack: Stack) -> tuple[IncidentPlan, ...]:
    """Compile what goes wrong with a stack; the upgrade policy meets only a share of what comes with releases."""
    stated = scenario.software
    met = _POLICY[stated.upgrade_policy][1]
    vendor = stack.vendor.value
    usual = catalog.vendor(vendor).ratio("incident_multiplier")
    multiplier = stated.incident_multiplier * stated.vendor_incident_multiplier.get(vendor, usual)
    plans = []
    for kind, told in catalog.incidents.items():
        figures = catalog.incident(stack, kind)
        if figures.per_year is None or figures.fix_days is None:
            continue
        loss = stated.hang_loss_fraction if told.effect.value == "resets" else 0.0
        plans.append(
            IncidentPlan(
                kind=kind,
                per_year=figures.per_year.base * multiplier * (met if told.comes_with_releases.value else 1.0),
                loss=_points(figures.loss_fraction)
                if figures.loss_fraction
                else ThreePoint(low=loss, base=loss, high=loss),
                fix_days=_points(figures.fix_days),
                falsifies=told.effect.value == "falsifies",
            )
        )
    return tuple(plans)


def _stack(scenario: Scenario, catalog: Catalog, stack: Stack) -> StackPlan:
    stated = scenario.software
    usual = catalog.vendor(stack.vendor.value).ratio("maturing_multiplier")
    multiplier = stated.release_gain_multiplier * stated.vendor_maturing_multiplier.get(stack.vendor.value, usual)
    spread = stack.release_spread_fraction.value if stack.release_spread_fraction else 0.0
    young = stack.new_model_incident_multiplier
    return StackPlan(
        name=stack_name(stack),
        releases_per_year=stack.releases_per_year.base,
        release_delay_h=release_delay_h(stated.upgrade_policy),
        release_sigma=spread * min(multiplier, 1.0),
        maturity={
            name: MaturityPlan(
                gain=_scaled(stack.maturity[name].ceiling_gain_fraction, multiplier),
                months=_points(stack.maturity[name].closing_months),
            )
            for name in get_args(ArchitectureClass)
            if name in stack.maturity
        },
        steps=tuple(
            StepPlan(
                time_h=float((step.date - scenario.start).days * HOURS_PER_DAY),
                model=step.model or "",
                log_gain=math.log1p(step.gain_fraction),
            )
            for step in sorted(stated.steps, key=lambda step: step.date)
            if step.vendor in (None, stack.vendor.value) and step.engine in (None, stack.engine.value)
        ),
        incidents=_incidents(scenario, catalog, stack),
        bring_up_weeks=_points(stack.bring_up_weeks),
        bring_up_fraction=_points(stack.bring_up_throughput_fraction),
        new_model_incident_multiplier=young.value if young else 1.0,
    )


def _scaled(fact: Range, factor: float) -> ThreePoint:
    return ThreePoint(low=fact.low * factor, base=fact.base * factor, high=fact.high * factor)
