"""Workloads compiled: demand over the horizon, and the routing order of clusters."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.arrays import Floats
from planner.demand import plan as demands
from planner.demand import shape as shapes
from planner.demand.plan import WorkloadDemand
from planner.demand.shape import Horizon
from planner.errors import Problem, ScenarioError
from planner.plan.capacity import Services
from planner.plan.parts import as_stated
from planner.plan.plan import ClusterPlan, Plan, WorkloadPlan
from planner.plan.reuse import Reuse
from planner.scenario import workload as traffic
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Compound, Flat, GrowthSteps, GrowthTable, LoadProfile, SCurve, Workload
from planner.units import HOURS_PER_DAY

_SAME_POWER = 0.02  # difference in power at which machines are the same to a router
_PRIORITY = {"interactive": 0, "standard": 1, "deferrable": 2}
_DEFAULT_DEADLINE_H = 24.0
_SHOWN_PROBLEMS = 20


def demand_of(scenario: Scenario, name: str, workload: Workload, horizon: Horizon, reuse: Reuse) -> WorkloadDemand:
    """Compile one workload's demand."""
    growth: demands.Growth
    match workload.growth:
        case Compound(per_year=rate):
            growth = demands.CompoundGrowth(per_year=rate)
        case traffic.GrowthByYear() as stated:
            last = (horizon.start_utc + datetime.timedelta(hours=horizon.hours - 1)).year
            years = range(horizon.start.year, last + 1)
            begins_h = tuple(horizon.hour_of(datetime.date(year, 1, 1)) for year in years[1:])
            growth = demands.ChangingGrowth(per_year=tuple(map(stated.rate, years)), begins_h=begins_h)
        case Flat():
            growth = demands.CompoundGrowth(per_year=0.0)
        case SCurve() as curve:
            growth = as_stated(demands.SCurveGrowth, curve, ceiling_multiple=curve.ceiling_multiplier)
        case GrowthSteps(steps=steps):
            growth = demands.StepGrowth(steps=tuple((horizon.hour_of(step.date), step.multiplier) for step in steps))
        case GrowthTable(file=file):
            path, content = scenario.document.file_at(("workloads", name, "growth", "file"), file)
            growth = reuse.once(("growth", content, horizon), lambda: read_growth_table(path, content, horizon))
    return WorkloadDemand(
        name=name,
        requests_per_s=workload.requests_per_s,
        growth=growth,
        shape=reuse.once(("shape", workload.load_profile), lambda: _shape(workload.load_profile)),
        noise=as_stated(demands.LognormalNoise, workload.noise),
        spikes=tuple(
            as_stated(demands.LaunchSpike, spike, hour_h=horizon.hour_of(spike.date), multiple=spike.multiplier)
            for spike in workload.spikes
        ),
        tenants=tuple(as_stated(demands.TenantStream, tenant) for tenant in workload.tenants),
        launch_h=horizon.hour_of(workload.model_launch) if workload.model_launch else 0.0,
    )


def _shape(shape: LoadProfile) -> shapes.Shape:
    if shape.weekly_profile is not None:
        profile = shapes.normalised_profile(shape.weekly_profile)
    else:
        profile = shapes.weekly_profile(
            peak_to_mean=shape.peak_to_mean,
            weekend_fraction=shape.weekend_fraction,
            trough_to_mean=shape.trough_to_mean,
        )
    season = as_stated(shapes.SeasonalWave, shape.season) if shape.season else shapes.SeasonalWave()
    holidays = tuple((holiday.date, holiday.multiplier) for holiday in shape.holidays)
    return shapes.Shape(weekly_profile=profile, timezone=shape.timezone, season=season, holidays=holidays)


def read_growth_table(path: Path, content: bytes, horizon: Horizon) -> demands.TableGrowth:
    """Read a growth table from CSV content with the columns date and multiplier; ``path`` names it in messages."""
    problems: list[Problem] = []
    hours: list[float] = []
    factors: list[float] = []
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        header = [cell.strip() for cell in next(rows, ())]
        if not {"date", "multiplier"} <= set(header):
            raise ScenarioError(Problem(file=str(path), line=1, message="needs columns date, multiplier"))
        date_at, factor_at = header.index("date"), header.index("multiplier")
        start = horizon.start.toordinal()
        for row in rows:
            if len(problems) == _SHOWN_PROBLEMS:
                break
            try:  # a table may have a million rows: no more than must be is done for each
                day, factor = datetime.date.fromisoformat(row[date_at].strip()), float(row[factor_at])
            except (ValueError, IndexError):
                factor = -1.0
            if 0.0 <= factor < np.inf:
                hours.append((day.toordinal() - start) * HOURS_PER_DAY)
                factors.append(factor)
            elif row:  # an empty line is none
                message = f"needs a date and a multiplier of at least 0, not {', '.join(map(repr, row))[:80]}"
                problems.append(Problem(file=str(path), line=rows.line_num, message=message))
    except (UnicodeDecodeError, csv.Error) as error:
        problems.append(Problem(file=str(path), message=f"cannot be read as CSV: {error}"))
    if not problems and not hours:
        problems.append(Problem(file=str(path), message="holds no rows; it needs columns date, multiplier"))
    if not problems and np.any(np.diff(hours) <= 0):
        problems.append(Problem(file=str(path), message="dates must rise from row to row"))
    if problems:
        raise ScenarioError(problems)
    return demands.TableGrowth(hours_h=tuple(hours), factors=tuple(factors))


def workload_plan(
    scenario: Scenario, name: str, clusters: Sequence[ClusterPlan], services: Services, years: Floats
) -> WorkloadPlan:
    """Compile one workload for routing and accounting; ``years`` are times to the middle of each month.

    Machines bought in several waves are one pool to a router: the same replica at the same speed, paid in the same way,
    at about the same power, which the mix that each was bought for moves a little.
    """
    workload = scenario.workloads[name]
    deadline_h = _DEFAULT_DEADLINE_H if workload.completion_window_h is None else workload.completion_window_h
    growth = (1.0 + workload.lengths.growth_per_year) ** years
    launch = workload.model_launch
    wanted = workload.cluster_preference if scenario.routing == "preference" else ()
    position = {ranked: place for place, ranked in enumerate(wanted)}
    rank = [position.get(cluster.name, len(position)) for cluster in clusters]

    def kind(index: int) -> tuple[object, ...]:
        service = services[clusters[index].name, name]
        return rank[index], service.spec, service.speed, _rent_usd_per_h(clusters[index])

    tiers: list[list[int]] = []
    for index in _order(scenario, name, clusters, services, rank):
        kw = clusters[index].node_power.full_kw
        for tier in tiers:
            is_as_strong = math.isclose(clusters[tier[0]].node_power.full_kw, kw, rel_tol=_SAME_POWER)
            if is_as_strong and kind(tier[0]) == kind(index):
                tier.append(index)
                break
        else:
            tiers.append([index])
    return WorkloadPlan(
        name=name,
        model=workload.model,
        input_tokens=workload.lengths.input.mean * growth,
        output_tokens=workload.lengths.output.mean * growth,
        priority=_PRIORITY[workload.priority],
        deadline_h=max(1, round(deadline_h)) if workload.priority == "deferrable" else 0,
        cluster_tiers=tuple(map(tuple, tiers)),
        # At the end, unless the user has ranked them.
        rented_tiers=sum(clusters[c].is_paid_by_the_hour and rank[c] == len(wanted) for c, *_ in tiers),
        launch_h=(launch - scenario.start).days * HOURS_PER_DAY if launch else None,
        cached_input_fraction=workload.prefix_cache_hit_fraction,
    )


_MOST_IDLE_LATE = 0.5
"""Share of what an SLO target allows that may be late on an idle cluster which goes by its energy; assumption."""


def _order(
    scenario: Scenario, name: str, clusters: Sequence[ClusterPlan], services: Services, rank: list[int]
) -> list[int]:
    """Return the clusters that can serve a workload, in the order set by the routing policy.

    What another request costs decides: rent where only hours at work are paid, and energy among what is paid anyway.
    Clusters on which much of what the target allows is late even when they are idle come after others paid alike.
    """
    able = [index for index, cluster in enumerate(clusters) if (cluster.name, name) in services]

    def rent(index: int) -> float:
        cluster = clusters[index]
        per_node = _rent_usd_per_h(cluster) * cluster.accelerators_per_node
        return per_node / services[cluster.name, name].requests_per_s

    def another(index: int) -> tuple[float, bool, float, str]:
        cluster, service = clusters[index], services[clusters[index].name, name]
        allowed = 1.0 - scenario.slo_target.attainment_of(name)
        is_slow = service.lateness.late_fractions[0] > _MOST_IDLE_LATE * allowed
        return rent(index), is_slow, cluster.node_power.full_kw / service.requests_per_s, cluster.name

    return sorted(able, key=lambda index: (rank[index] if scenario.routing == "preference" else 0, *another(index)))


def _rent_usd_per_h(cluster: ClusterPlan) -> float:
    """Return the rent of an accelerator's busy hour at the start; 0 where idle hours are paid as well."""
    return float(cluster.rent.usd_per_accelerator_h[0]) if cluster.rent and cluster.is_paid_by_the_hour else 0.0


def queue_outgrown(scenario: Scenario, plan: Plan) -> Plan:
    """Return the plan in which queueing workloads are served late once no batch meets their SLO.

    The share is that of its tokens in all tokens asked for in the last month in which a cluster met the objective. A
    node then serves as many of its tokens as it last did in time: more would only make them later.
    """
    table, workloads = plan.requests_per_node_h.copy(), list(plan.workloads)
    asked = np.add.reduceat(plan.demand.expected_requests_per_s, plan.month_edges_h[:-1], axis=1)
    asked *= plan.tokens_per_request.T
    for w, workload in enumerate(plan.workloads):
        order = list(workload.cluster_order)
        past = np.all(table[order, w] <= 0.0, axis=0)
        refuses = scenario.workloads[workload.name].admission == "reject"
        if refuses or workload.deadline_h or not past.any():
            continue
        last = max(int(past.argmax()) - 1, 0)
        for c in order:
            met = int(np.flatnonzero(table[c, w] > 0.0)[-1])
            tokens = workload.tokens_per_request
            table[c, w, past] = table[c, w, met] * tokens[met] / tokens[past]
        share = asked[w, last] / asked[:, last].sum()
        workloads[w] = dataclasses.replace(workload, overdue_share=np.where(past, share, 0.0))
    return dataclasses.replace(plan, workloads=tuple(workloads), requests_per_node_h=table)
