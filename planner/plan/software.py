"""Software stacks, their incidents and the engineers who fix them, compiled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

import numpy as np

from planner.catalog.entries import ArchitectureClass, Stack
from planner.catalog.load import Catalog
from planner.plan import parts
from planner.plan.capacity import Services, dated_log_gain
from planner.plan.parts import Headcount, StackPlan, TeamPlan, ThreePoint, as_stated
from planner.plan.plan import ClusterPlan, Plan
from planner.plan.reuse import Reuse
from planner.scenario.fields import PerThousand
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR
from planner.yaml_io import KeyPath

POLICIES = {"latest": "low", "staged": "base", "pinned": "high"}  # of the catalogue's production operators
_FIX_MULTIPLIER = {"none": 1.5, "standard": 1.0, "premium": 0.6}
SUPPORT_USD = {"none": 0.0, "standard": 300.0, "premium": 900.0}


def policy_days(policy: str, catalog: Catalog) -> float:
    """Return the mean days from one upgrade to the next under an upgrade policy."""
    return float(getattr(catalog.prior("upgrade_interval_production"), POLICIES[policy]))


def upgrade_days(scenario: Scenario, catalog: Catalog) -> float:
    """Return the mean days from one upgrade to the next: those stated, or those of the upgrade policy."""
    return scenario.software.upgrade_days or policy_days(scenario.software.upgrade_policy, catalog)


def stack_name(stack: Stack) -> str:
    """Return a stack's name, as used by clusters and random streams."""
    return f"{stack.platform.value}-{stack.engine.value}"


def headcount(stated: float | PerThousand, least: int = 0) -> Headcount:
    """Compile a number of people or spare parts: a fixed number rounded to whole, or a rate."""
    if isinstance(stated, PerThousand):
        return Headcount(per_accelerator=stated.per_1000_accelerators / 1000.0, rounding=stated.rounding, least=least)
    return Headcount(fixed=Headcount(per_accelerator=stated).number(1.0))


def software_plan(
    scenario: Scenario, clusters: tuple[ClusterPlan, ...], services: Services, reuse: Reuse
) -> parts.SoftwarePlan:
    """Compile stacks, engineers and the response to accuracy regressions.

    There is one team for every stack where a number of engineers is stated, and one for each vendor's otherwise.
    """
    stated, catalog, calibration = scenario.software, reuse.catalog, reuse.calibration
    measured_on, staffed = calibration.measured_on, stated.engineers
    if staffed is not None and not isinstance(staffed, dict):
        teams = [TeamPlan(name="all", clusters=tuple(range(len(clusters))), engineers=headcount(staffed))]
    else:
        teams = []
        for vendor in sorted({cluster.vendor for cluster in clusters if cluster.api is None}):
            usual = stated.engineers_per_800.get(vendor, catalog.vendor(vendor).engineers_per_800.value)
            by_rate = PerThousand(per_1000_accelerators=usual * 1000.0 / 800.0, rounding="up")
            people = (staffed or {}).get(vendor, by_rate)
            served = tuple(index for index, cluster in enumerate(clusters) if cluster.vendor == vendor)
            teams.append(TeamPlan(name=vendor, clusters=served, engineers=headcount(people)))
    stacks = {}
    shape = (len(scenario.clusters), len(scenario.workloads))
    wide, roofline, dated = np.full(shape, np.nan), np.zeros(shape), np.zeros(shape)
    stack_of = np.full(shape, "", dtype="U64")
    gains: dict[tuple[str, str, str], float] = {}
    places = {}
    for pair, service in services.items():
        cluster, load, engine = scenario.clusters[pair[0]], scenario.workloads[pair[1]], service.spec.engine
        at = list(scenario.clusters).index(pair[0]), list(scenario.workloads).index(pair[1])
        stack = catalog.stack(clusters[at[0]].vendor, engine)
        stack_of[at] = name = stack_name(stack)
        if name not in stacks:
            team = next(number for number, team in enumerate(teams) if at[0] in team.clusters)
            stacks[name] = _stack(scenario, catalog, stack, team)
        dated[at] = dated_log_gain(cluster, engine, load, calibration, catalog)
        if stated.accuracy_regression_response == "higher_precision":
            wide[at] = service.wide_factor
        places[at] = key = (cluster.accelerator, engine, load.model)
        gain = math.log(max(1.0, service.roofline_factor / service.speed))
        gains[key] = min(gains.get(key, math.inf), gain)
    for at, key in places.items():
        # The nearest roofline of all workloads of a model on a part, so that one history of speed serves them all.
        roofline[at] = gains[key]
    loads, of = scenario.workloads.values(), scenario.clusters.values()
    ahead_h = 0.0 if measured_on is None else (scenario.start - measured_on).days * 24.0
    return parts.SoftwarePlan(
        stacks=tuple(stacks[name] for name in sorted(stacks)),
        teams=tuple(teams),
        fix_time_multiplier=_FIX_MULTIPLIER[stated.support_contract],
        engineer_h=stated.fix_engineer_h,
        canary_fraction=stated.canary_fraction,
        bake_h=stated.bake_h if stated.canary_fraction < 1.0 else 0.0,
        rollback_h=as_stated(ThreePoint, catalog.prior("rollback_fleet")),
        architectures=tuple(catalog.model(workload.model).architecture_class.value for workload in loads),
        clock_h=tuple(0.0 if cluster.engine_date is None else ahead_h for cluster in of),
        stack_of=stack_of,
        dated_log_gain=dated,
        roofline_log_gain=roofline,
        wide_precision_factor=wide,
    )


def _stack(scenario: Scenario, catalog: Catalog, stack: Stack, team: int) -> StackPlan:
    """Compile a stack, its releases, its upgrades and the incidents that come with them or at any time."""
    stated, vendor = scenario.software, stack.vendor.value
    usual = catalog.vendor(vendor).ratio("maturing_multiplier")
    multiplier = stated.software_speedup_multiplier * stated.vendor_software_speedup_multiplier.get(vendor, usual)
    spread = stack.release_spread_fraction.value if stack.release_spread_fraction else 0.0
    young = stack.new_model_incident_multiplier
    maturity = {}
    for name in get_args(ArchitectureClass):
        if name in stack.maturity:
            gain, months = stack.maturity[name].ceiling_gain_fraction, stack.maturity[name].closing_months
            maturity[name] = parts.MaturityPlan(
                gain=ThreePoint(low=gain.low * multiplier, base=gain.base * multiplier, high=gain.high * multiplier),
                months=as_stated(ThreePoint, months),
            )
    usual = catalog.vendor(vendor).ratio("incident_multiplier")
    often = stated.incident_multiplier * stated.vendor_incident_multiplier.get(vendor, usual)
    incidents = []
    for kind, told in catalog.incidents.items():
        figures = catalog.incident(stack, kind)
        if not figures.per_year and not figures.per_upgrade:
            continue
        loss = stated.hang_loss_fraction if told.effect.value == "resets" else 0.0
        noticed = told.detection_h or ThreePoint(low=0.0, base=0.0, high=0.0)
        incidents.append(
            parts.IncidentPlan(
                kind=kind,
                per_year=figures.per_year.base * often if figures.per_year else 0.0,
                per_upgrade=figures.per_upgrade.base * often if figures.per_upgrade else 0.0,
                loss=as_stated(ThreePoint, figures.loss_fraction or ThreePoint(low=loss, base=loss, high=loss)),
                most_loss=figures.most_loss_fraction.value if figures.most_loss_fraction else 0.0,
                detection_h=as_stated(ThreePoint, noticed),
                subtle_detection_h=as_stated(ThreePoint, told.subtle_detection_h or noticed),
                subtle_fraction=told.subtle_fraction.value if told.subtle_fraction else 0.0,
                subtle_below=told.subtle_below_loss_fraction.value if told.subtle_below_loss_fraction else 0.0,
                fix_days=as_stated(ThreePoint, figures.fix_days),
                falsifies=told.effect.value == "falsifies",
            )
        )
    return StackPlan(
        name=stack_name(stack),
        releases_per_year=stack.releases_per_year.base,
        upgrade_h=upgrade_days(scenario, catalog) * HOURS_PER_DAY,
        rollback_impossible_fraction=stated.rollback_impossible_fraction.get(vendor, 0.0),
        release_sigma=spread * min(multiplier, 1.0),
        maturity=maturity,
        steps=tuple(
            parts.StepPlan(
                time_h=float((step.date - scenario.start).days * HOURS_PER_DAY),
                model=step.model or "",
                log_gain=math.log1p(step.gain_fraction),
            )
            for step in sorted(stated.steps, key=lambda step: step.date)
            if step.vendor in (None, vendor) and step.engine in (None, stack.engine.value)
        ),
        incidents=tuple(incidents),
        bring_up_weeks=as_stated(ThreePoint, stack.bring_up_weeks),
        bring_up_fraction=as_stated(ThreePoint, stack.bring_up_throughput_fraction),
        new_model_incident_multiplier=young.value if young else 1.0,
        team=team,
    )


MOST_EVENTS = 2_000_000
"""A run keeps every event, in about half a kilobyte: this many fill a gigabyte."""


def expected_events(plan: Plan) -> Iterator[tuple[KeyPath, str, float]]:
    """Yield the key path, the kind and the expected number over the horizon of each kind of event."""
    failures = sum(expected_failures(plan, cluster) for cluster in plan.clusters)
    yield ("reliability", "failure_multiplier"), "failures", failures
    years, models = plan.hours / HOURS_PER_YEAR, {workload.model for workload in plan.workloads}
    per_year = sum(i.per_year + i.per_upgrade * s.upgrades_per_year for s in plan.software.stacks for i in s.incidents)
    yield ("software", "incident_multiplier"), "incidents", per_year * years * len(models)
    if plan.site.outages_per_year > 0:
        outages = plan.hours / (HOURS_PER_YEAR / plan.site.outages_per_year + plan.site.outage_h)
        yield ("site", "outages_per_year"), "outages", outages
    for name, tenants in zip(plan.demand.names, plan.demand.tenants, strict=True):
        for index, tenant in enumerate(tenants):
            switches = 2.0 * plan.hours / (tenant.mean_on_h + tenant.mean_off_h)
            yield ("workloads", name, "tenants", index), "starts and stops", switches


def expected_failures(plan: Plan, cluster: ClusterPlan) -> float:
    """Return the expected failures of a cluster's n nodes in T hours: n·λ·(T + (m − 1)·τ·(1 − exp(−T/τ)))."""
    reliability, order = plan.reliability, cluster.order
    start_h = order.placed_h + order.lead_h + order.slip_h.low if order else cluster.online_h or 0.0
    hours = max(0.0, min(plan.hours, cluster.retire_h) - max(0.0, start_h))
    early = (reliability.early_life_multiplier - 1.0) * reliability.early_life_h
    exposure_h = hours - early * np.expm1(-hours / reliability.early_life_h)
    per_node_h = sum(cause.per_node_h for cause in reliability.causes) * cluster.failure_multiplier
    return float(cluster.nodes * per_node_h * exposure_h)
