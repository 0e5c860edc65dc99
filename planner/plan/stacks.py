"""Software stacks, compiled from a scenario and the catalogue for what each cluster serves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

import numpy as np

from planner.catalog.entries import ArchitectureClass, Range, Sourced, Stack
from planner.catalog.load import Catalog
from planner.plan.choice import Services
from planner.plan.distributions import ThreePoint
from planner.plan.plan import ClusterPlan
from planner.plan.reuse import Reuse
from planner.plan.software import (
    IncidentPlan,
    MaturityPlan,
    SoftwarePlan,
    StackPlan,
    StepPlan,
    TeamPlan,
    dated_log_gain,
    stack_name,
    upgrade_days,
)
from planner.plan.staffing import headcount
from planner.scenario.fields import PerThousand
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY

_FIX_MULTIPLIER = {"none": 1.5, "standard": 1.0, "premium": 0.6}
"""Time of a vendor's fix by support contract, over its median; assumption."""

_ServedModel = tuple[str, str, str]
"""Accelerator, engine and model."""


def software_plan(
    scenario: Scenario, clusters: tuple[ClusterPlan, ...], services: Services, reuse: Reuse
) -> SoftwarePlan:
    """Compile stacks, engineers and the response to accuracy regressions."""
    stated = scenario.software
    catalog = reuse.catalog
    calibration = reuse.calibration
    teams = _teams(scenario, clusters)
    stacks: dict[str, StackPlan] = {}
    cluster_names = list(scenario.clusters)
    workload_names = list(scenario.workloads)
    shape = (len(cluster_names), len(workload_names))
    wide = np.full(shape, np.nan)
    roofline = np.zeros(shape)
    dated = np.zeros(shape)
    stack_of = np.full(shape, "", dtype="U64")
    gains: dict[_ServedModel, float] = {}
    cells: dict[tuple[int, int], _ServedModel] = {}
    for (cluster_name, workload_name), service in services.items():
        cluster = scenario.clusters[cluster_name]
        workload = scenario.workloads[workload_name]
        engine = service.spec.engine
        c = cluster_names.index(cluster_name)
        cell = c, workload_names.index(workload_name)
        stack = catalog.stack(clusters[c].vendor, engine)
        name = stack_name(stack)
        stack_of[cell] = name
        if name not in stacks:
            # A stack is of one vendor, so any of its clusters leads to the team that mends it.
            team = next(place for place, team in enumerate(teams) if c in team.clusters)
            stacks[name] = compiled_stack(scenario, catalog, stack, team)
        dated[cell] = dated_log_gain(cluster, engine, workload, calibration, catalog)
        if stated.accuracy_regression_response == "higher_precision":
            wide[cell] = service.wide_factor
        # Kept until all are known: the nearest roofline is the smallest of them.
        key = (cluster.accelerator, engine, workload.model)
        cells[cell] = key
        # Software that is faster than the roofline's formula has nothing left to gain, and loses nothing.
        speed_gain = max(1.0, service.roofline_factor / service.speed)
        gain = math.log(speed_gain)
        gains[key] = min(gains.get(key, gain), gain)
    for cell, key in cells.items():
        # The nearest roofline of all workloads of a model on a part, so that one history of speed serves them all.
        roofline[cell] = gains[key]
    ahead_h = 0.0
    if calibration.measured_on is not None:
        ahead_h = (scenario.start - calibration.measured_on).days * HOURS_PER_DAY
    return SoftwarePlan(
        stacks=tuple(stacks[name] for name in sorted(stacks)),
        teams=tuple(teams),
        fix_time_multiplier=_FIX_MULTIPLIER[stated.support_contract],
        engineer_h=stated.fix_engineer_h,
        canary_fraction=stated.canary_fraction,
        # Where all take a release at once there is no canary to wait for.
        bake_h=stated.bake_h if stated.canary_fraction < 1.0 else 0.0,
        rollback_h=ThreePoint.of(catalog.prior("rollback_fleet")),
        architectures=tuple(
            catalog.model(workload.model).architecture_class.value
            for workload in scenario.workloads.values()
        ),
        clock_h=tuple(
            0.0 if cluster.engine_date is None else ahead_h
            for cluster in scenario.clusters.values()
        ),
        stack_of=stack_of,
        dated_log_gain=dated,
        roofline_log_gain=roofline,
        wide_precision_factor=wide,
    )


def _teams(scenario: Scenario, clusters: tuple[ClusterPlan, ...]) -> list[TeamPlan]:
    """Compile the teams: one for all stacks where one number of engineers is stated, else one for each vendor's."""
    stated = scenario.software
    engineers = stated.engineers
    if engineers is not None and not isinstance(engineers, dict):
        everything = tuple(range(len(clusters)))
        return [TeamPlan(name="all", clusters=everything, engineers=headcount(engineers))]
    teams = []
    # An API has no vendor and needs no engineers of one's own.
    vendors = {cluster.vendor for cluster in clusters if cluster.api is None}
    for vendor in sorted(vendors):
        per_1000 = stated.engineers_per_800[vendor] * 1000.0 / 800.0
        rate = PerThousand(per_1000_accelerators=per_1000, rounding="up")
        served = tuple(index for index, cluster in enumerate(clusters) if cluster.vendor == vendor)
        stated_people = (engineers or {}).get(vendor, rate)
        people = headcount(stated_people)
        teams.append(TeamPlan(name=vendor, clusters=served, engineers=people))
    return teams


def compiled_stack(scenario: Scenario, catalog: Catalog, stack: Stack, team: int) -> StackPlan:
    """Compile a stack, its releases, its upgrades and the incidents that come with them or at any time."""
    stated = scenario.software
    vendor = stack.vendor.value
    speedup = stated.software_speedup_multiplier * stated.vendor_software_speedup_multiplier[vendor]
    spread = stack.release_spread_fraction.value if stack.release_spread_fraction else 0.0
    young = stack.new_model_incident_multiplier
    maturity = {}
    # In the catalogue's order of classes, in which they are drawn.
    for name in get_args(ArchitectureClass):
        if name in stack.maturity:
            entry = stack.maturity[name]
            maturity[name] = MaturityPlan(
                gain=ThreePoint.of(entry.ceiling_gain_fraction, speedup),
                months=ThreePoint.of(entry.closing_months),
            )
    steps = []
    for step in sorted(stated.steps, key=lambda step: step.date):
        # A step that names no vendor or engine is of all of them.
        is_of_vendor = step.vendor in (None, vendor)
        if not is_of_vendor or step.engine not in (None, stack.engine.value):
            continue
        time_h = float((step.date - scenario.start).days * HOURS_PER_DAY)
        log_gain = math.log1p(step.gain_fraction)
        steps.append(StepPlan(time_h=time_h, model=step.model or "", log_gain=log_gain))
    return StackPlan(
        name=stack_name(stack),
        releases_per_year=stack.releases_per_year.base,
        upgrade_h=upgrade_days(scenario, catalog) * HOURS_PER_DAY,
        rollback_impossible_fraction=stated.rollback_impossible_fraction.get(vendor, 0.0),
        # Where the user expects less to be gained, releases scatter less; never more than the catalogue's.
        release_sigma=spread * min(speedup, 1.0),
        maturity=maturity,
        steps=tuple(steps),
        incidents=tuple(_incidents(scenario, catalog, stack)),
        bring_up_weeks=ThreePoint.of(stack.bring_up_weeks),
        bring_up_fraction=ThreePoint.of(stack.bring_up_throughput_fraction),
        new_model_incident_multiplier=young.value if young else 1.0,
        team=team,
    )


def _incidents(scenario: Scenario, catalog: Catalog, stack: Stack) -> Iterator[IncidentPlan]:
    """Yield the kinds of incident that a stack has, in the catalogue's order, in which they are drawn."""
    stated = scenario.software
    vendor_multiplier = stated.vendor_incident_multiplier[stack.vendor.value]
    multiplier = stated.incident_multiplier * vendor_multiplier
    none_h = ThreePoint(low=0.0, base=0.0, high=0.0)

    def fact(sourced: Sourced[float] | None) -> float:
        return sourced.value if sourced else 0.0

    def yearly(rate: Range | None) -> float:
        return rate.base * multiplier if rate else 0.0

    for kind, incident in catalog.incidents.items():
        figures = catalog.incident(stack, kind)
        if not figures.per_year and not figures.per_upgrade:
            continue
        effect = incident.effect.value
        # What only resets machines has no loss of its own in the catalogue: the scenario states that of a hang.
        hang = stated.hang_loss_fraction if effect == "resets" else 0.0
        loss = figures.loss_fraction or ThreePoint(low=hang, base=hang, high=hang)
        # Where the catalogue says nothing of detection, what happens is seen at once.
        detection_h = incident.detection_h or none_h
        yield IncidentPlan(
            kind=kind,
            per_year=yearly(figures.per_year),
            per_upgrade=yearly(figures.per_upgrade),
            loss=ThreePoint.of(loss),
            most_loss=fact(figures.most_loss_fraction),
            detection_h=ThreePoint.of(detection_h),
            subtle_detection_h=ThreePoint.of(incident.subtle_detection_h or detection_h),
            subtle_fraction=fact(incident.subtle_fraction),
            subtle_below=fact(incident.subtle_below_loss_fraction),
            fix_days=ThreePoint.of(figures.fix_days or stack.fix_days),
            falsifies=effect == "falsifies",
        )
