"""Compiles a scenario and the catalogue into a plan of arrays; no other package reads both."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import functools
import io
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.demand import plan as demands
from planner.demand import shape as shapes
from planner.demand.plan import WorkloadDemand, build_demand_plan
from planner.demand.shape import Horizon
from planner.errors import Problem, ScenarioError
from planner.finance.months import MonthGrid
from planner.plan.capacity import (
    PREFERRED_UTILISATION,
    Factors,
    Services,
    capacity_table,
    token_time_table,
)
from planner.plan.clusters import cluster_plan, reliability_plan, software_plan, weeks_in_h
from planner.plan.contradictions import contradictions, slower_drafts
from planner.plan.money import money_plan
from planner.plan.parts import ProcessPlan, SitePlan, as_stated
from planner.plan.placement import deployments_of, services_of, sharing_notes, with_placement
from planner.plan.plan import (
    ClusterPlan,
    ExpansionPlan,
    Plan,
    Reuse,
    RulePlan,
    WorkloadPlan,
    full_load_kw,
)
from planner.plan.sizes import load_tables, sizes_of
from planner.scenario.scenario import Rule, Scenario
from planner.scenario.workload import (
    Compound,
    Flat,
    GrowthByYear,
    GrowthSteps,
    GrowthTable,
    LoadProfile,
    SCurve,
)
from planner.units import (
    DAYS_PER_YEAR,
    HOURS_PER_DAY,
    HOURS_PER_WEEK,
    HOURS_PER_YEAR,
    MONTHS_PER_YEAR,
)

_HOTTEST_DAY = 200.0  # 19 July: northern sites
_CURTAILMENT_HOUR = 16.0  # from 16:00 UTC, the American afternoon peak
_SAME_POWER = 0.02  # difference in power at which machines are the same to a router
_PRIORITY = {"interactive": 0, "standard": 1, "deferrable": 2}
_DEFAULT_DEADLINE_H = 24.0
_SHOWN_PROBLEMS = 20


def build_plan(
    scenario: Scenario, reuse: Reuse | None = None, throughput_factors: Factors | None = None
) -> Plan:
    """Compile a scenario into a plan; raise ScenarioError when a workload or a cluster cannot work.

    ``reuse`` keeps what the plans of one study share; ``throughput_factors`` multiply what the throughput model says,
    by accelerator, engine and model.
    """
    reuse = Reuse(scenario) if reuse is None else reuse
    catalog = reuse.catalog
    months = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    horizon = Horizon(start=scenario.start, hours=months.hour_count)
    factors = throughput_factors or {}
    years = months.mid_years
    services, refused = services_of(scenario, factors, reuse)
    clusters = tuple(
        cluster_plan(scenario, name, services, months, reuse) for name in scenario.clusters
    )
    workloads = tuple(
        workload_plan(scenario, name, clusters, services, years) for name in scenario.workloads
    )
    capacity = capacity_table(scenario, services, years)
    traffic = [demand_of(scenario, name, horizon, reuse) for name in scenario.workloads]
    demand = _demand_plan(tuple(traffic), horizon)

    def urgency(index: int) -> tuple[float, ...]:
        """Return a workload's sort key: priority, deadline, and the number of clusters that can serve it.

        The rest only makes the order a matter of figures, not of names or places in the file.
        """
        load = workloads[index]
        tokens = float(load.tokens_per_request[0])
        return (
            load.priority,
            load.deadline_h,
            len(load.cluster_order),
            tokens,
            *sorted(capacity[:, index, 0]),
        )

    plan = Plan(
        seed=scenario.seed,
        start=scenario.start,
        hours=months.hour_count,
        months=months,
        month_edges_h=months.edge_hours,
        workloads=workloads,
        by_priority=tuple(sorted(range(len(workloads)), key=urgency)),
        clusters=clusters,
        demand=demand,
        requests_per_node_h=capacity,
        token_time=token_time_table(scenario, services),
        **load_tables(scenario, services, demand, reuse)._asdict(),
        preferred_utilisation=0.0 if scenario.routing == "proportional" else PREFERRED_UTILISATION,
        reliability=reliability_plan(scenario, catalog),
        software=software_plan(scenario, clusters, services, reuse),
        site=_site(scenario, clusters, months.hour_count),
        expansion=_expansion(scenario, months),
        money=money_plan(scenario, catalog, clusters, months, capacity),
        slo_target=scenario.slo_target,
        warnings=(),
        notes=(),
        sizes=sizes_of(scenario, services, factors, demand, reuse),
        processes=tuple(_processes(scenario)),
    )
    plan = queue_outgrown(scenario, plan)
    plan = with_placement(plan, deployments_of(scenario, plan, services, factors, reuse))
    warnings, notes = contradictions(scenario, plan, traffic)
    warnings += slower_drafts(scenario, services, reuse)
    biased = scenario.load_calibration().biased(service.spec for service in services.values())
    notes = [*refused, *notes, *sharing_notes(scenario, plan), *biased]
    return dataclasses.replace(plan, warnings=tuple(warnings), notes=tuple(notes))


def repriced(plan: Plan, scenario: Scenario, reuse: Reuse) -> Plan:
    """Return a plan with the money of a scenario that differs in nothing else: prices, contracts, tariffs, PUE.

    A sixth of the work of compiling it whole; where :func:`same_machines` holds of both, the result is the same.
    """
    stated = (cluster_plan(scenario, one.name, {}, plan.months, reuse) for one in plan.clusters)
    clusters = tuple(  # without services, whose figures are those of before
        dataclasses.replace(
            new, node_power=old.node_power, group_accelerators=old.group_accelerators
        )
        for new, old in zip(stated, plan.clusters, strict=True)
    )
    money = money_plan(scenario, reuse.catalog, clusters, plan.months, plan.requests_per_node_h)
    market = dataclasses.replace(money.market, burst=plan.money.market.burst)
    money = dataclasses.replace(money, market=market)
    site = _site(scenario, clusters, plan.hours)
    return dataclasses.replace(plan, clusters=clusters, money=money, site=site)


_MONEY = {
    *(
        "money",
        "warnings",
        "notes",
        "prices_usd",
        "leased_prices_usd",
        "price_book",
        "lease",
        "prices",
    ),
    *(
        "book_value_usd",
        "remaining_months",
        "overhead_ratio",
        "fixed_fraction",
        "usd_per_accelerator_h",
    ),
    *("exit_usd_per_accelerator", "bound_usd_per_accelerator", "term_usd_per_h"),
}
"""Fields of a plan and its parts that no simulation reads, beyond what :func:`_steering` returns."""


def _steering(plan: Plan) -> list[object]:
    """Return the money by which a plan's simulation decides.

    Rent by the hour orders clusters, orders by rule or process are bounded by their prices, and a cap on what the
    site draws is one on IT power by way of PUE. What burst rental costs moves nothing, and is not compiled anew.
    """
    decides = bool(plan.expansion.rules or plan.processes)
    site = plan.site
    burst = plan.money.market.burst
    hourly = [one.rent for one in plan.clusters if one.rent is not None and one.is_paid_by_the_hour]
    orders = [(one.prices_usd, one.price_book) for one in plan.clusters if decides]
    rents = [terms.usd_per_accelerator_h for terms in (*hourly, *([burst.hourly] if burst else ()))]
    return [
        burst,
        rents,
        orders,
        *((site.overhead_ratio, site.fixed_fraction) if decides or site.cap_kw is not None else ()),
    ]


def same_machines(first: Plan, second: Plan) -> bool:
    """Return whether two plans have the same simulation for the same seed and differ at most in money."""
    return _same([first, _steering(first)], [second, _steering(second)])


def _same(first: Any, second: Any) -> bool:
    """Return whether two parts of plans are equal to the last bit, money aside."""
    if first is second or type(first) is not type(second):
        return first is second
    if isinstance(first, np.ndarray):
        return bool(first.shape == second.shape and first.tobytes() == second.tobytes())
    if dataclasses.is_dataclass(first):
        names = [field.name for field in dataclasses.fields(first) if field.name not in _MONEY]
        first, second = ([getattr(part, name) for name in names] for part in (first, second))
    if isinstance(first, Mapping):
        first = list(first.items())
        second = list(second.items())
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


_demand_plan = functools.lru_cache(maxsize=1)(build_demand_plan)
"""The traffic of a plan; the last one is kept, since plans compiled one after another mostly share it."""


@functools.lru_cache(maxsize=4)
def _season(start: datetime.date, hours: int) -> Floats:
    """Return the yearly wave of the cooling load, from −1 to 1, shape (hours,)."""
    day = start.timetuple().tm_yday + np.arange(hours) / HOURS_PER_DAY
    return np.asarray(np.cos(2.0 * np.pi * (day - _HOTTEST_DAY) / DAYS_PER_YEAR))


def _site(scenario: Scenario, clusters: tuple[ClusterPlan, ...], hours: int) -> SitePlan:
    site = scenario.site
    overhead = (site.pue_ratio - 1.0) * (
        1.0 + site.pue_season_fraction * _season(scenario.start, hours)
    )
    full_kw = full_load_kw(clusters, hours)
    blocks = sorted(site.power_blocks, key=lambda block: block.date)
    hottest = 1.0 + (site.pue_ratio - 1.0) * (1.0 + site.pue_season_fraction)
    stated_kw = np.inf if site.facility_power_cap_kw is None else site.facility_power_cap_kw
    most_kw = stated_kw / hottest
    cap_kw = np.full(hours, stated_kw)
    for cut in site.curtailments:
        since = np.arange(hours) - (cut.date - scenario.start).days * HOURS_PER_DAY
        within = (since >= 0) & (since < cut.length_days * HOURS_PER_DAY)
        if cut.hours_per_day < HOURS_PER_DAY:
            within &= (np.arange(hours) - _CURTAILMENT_HOUR) % HOURS_PER_DAY < cut.hours_per_day
        reference = full_kw * site.pue_ratio if stated_kw == np.inf else stated_kw
        cap_kw[within] = np.minimum(cap_kw[within], reference * (1.0 - cut.cut_fraction))
    return as_stated(
        SitePlan,
        site,
        cap_kw=cap_kw if site.curtailments or stated_kw < np.inf else None,
        overhead_ratio=overhead,
        fixed_fraction=site.pue_fixed_fraction,
        most_it_kw=most_kw,
        rated_kw=min(full_kw, most_kw),  # nobody builds cooling for more than the site may draw
        block_h=np.array(
            [max(0.0, (block.date - scenario.start).days * HOURS_PER_DAY) for block in blocks]
        ),
        block_kw=np.cumsum([block.it_kw for block in blocks]),
        commissioning_h=site.commissioning_h_per_node,
    )


def _processes(scenario: Scenario) -> Iterator[ProcessPlan]:
    """Yield the user's processes with their code."""
    for process, (file, source) in zip(scenario.processes, scenario.load_code(), strict=True):
        yield ProcessPlan(function=process.function, file=file, source=source)


def _expansion(scenario: Scenario, months: MonthGrid) -> ExpansionPlan:
    names = list(scenario.clusters)
    stated = scenario.expansion

    return as_stated(
        ExpansionPlan,
        stated,
        rules=tuple(
            as_stated(
                RulePlan,
                rule,
                threshold=rule.threshold_fraction,
                target=rule.target_fraction or rule.threshold_fraction,
                months=rule.months or (1 if rule.forecasts else 2),
                watched=names.index(rule.watch or rule.cluster),
                cluster=names.index(rule.cluster),
                max_nodes=rule.max_nodes or np.inf,
                max_nodes_per_order=rule.max_nodes_per_order or np.inf,
                windows=_windows(rule, months),
                lead_h=rule.lead_weeks * HOURS_PER_WEEK,
                slip_h=rule.slip_weeks and weeks_in_h(rule.slip_weeks),
                cooldown_months=(0 if rule.forecasts else 3)
                if rule.cooldown_months is None
                else rule.cooldown_months,
                forecast_months=rule.forecast_months
                or math.ceil(rule.lead_weeks * HOURS_PER_WEEK * MONTHS_PER_YEAR / HOURS_PER_YEAR)
                + 3,
            )
            for rule in stated.rules
        ),
        budget_usd=np.inf if stated.budget_usd is None else stated.budget_usd,
        it_power_cap_kw=np.inf if stated.it_power_cap_kw is None else stated.it_power_cap_kw,
    )


def _windows(rule: Rule, months: MonthGrid) -> tuple[int, ...]:
    """Return the months at whose ends a rule may act, counted from 1."""
    if isinstance(rule.windows, str):
        every = 1 if rule.windows == "monthly" else 3
        return tuple(range(every, len(months.edges), every))
    firsts = {max(1, bisect_left(months.edges, day)) for day in rule.windows}
    return tuple(sorted(month for month in firsts if month < len(months.edges)))


def demand_of(scenario: Scenario, name: str, horizon: Horizon, reuse: Reuse) -> WorkloadDemand:
    """Compile one workload's demand."""
    workload = scenario.workloads[name]
    growth: demands.Growth
    match workload.growth:
        case Compound(per_year=rate):
            growth = demands.CompoundGrowth(per_year=rate)
        case GrowthByYear() as stated:
            last = (horizon.start_utc + datetime.timedelta(hours=horizon.hours - 1)).year
            years = range(horizon.start.year, last + 1)
            begins_h = tuple(horizon.hour_of(datetime.date(year, 1, 1)) for year in years[1:])
            growth = demands.ChangingGrowth(
                per_year=tuple(map(stated.rate, years)), begins_h=begins_h
            )
        case Flat():
            growth = demands.CompoundGrowth(per_year=0.0)
        case SCurve() as curve:
            growth = as_stated(
                demands.SCurveGrowth, curve, ceiling_multiple=curve.ceiling_multiplier
            )
        case GrowthSteps(steps=steps):
            growth = demands.StepGrowth(
                steps=tuple((horizon.hour_of(step.date), step.multiplier) for step in steps)
            )
        case GrowthTable(file=file):
            path, content = scenario.document.file_at(("workloads", name, "growth", "file"), file)
            growth = reuse.once(
                ("growth", content, horizon), lambda: read_growth_table(path, content, horizon)
            )
    return WorkloadDemand(
        name=name,
        requests_per_s=workload.requests_per_s,
        growth=growth,
        shape=reuse.once(("shape", workload.load_profile), lambda: _shape(workload.load_profile)),
        noise=as_stated(demands.LognormalNoise, workload.noise),
        spikes=tuple(
            as_stated(
                demands.LaunchSpike,
                spike,
                hour_h=horizon.hour_of(spike.date),
                multiple=spike.multiplier,
            )
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
    return shapes.Shape(
        weekly_profile=profile, timezone=shape.timezone, season=season, holidays=holidays
    )


def read_growth_table(path: Path, content: bytes, horizon: Horizon) -> demands.TableGrowth:
    """Read a growth table from CSV content with the columns date and multiplier; ``path`` names it in messages."""
    problems: list[Problem] = []
    hours: list[float] = []
    factors: list[float] = []
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        header = [cell.strip() for cell in next(rows, ())]
        if not {"date", "multiplier"} <= set(header):
            raise ScenarioError(
                Problem(file=str(path), line=1, message="needs columns date, multiplier")
            )
        date_at = header.index("date")
        factor_at = header.index("multiplier")
        start = horizon.start.toordinal()
        for row in rows:
            if len(problems) == _SHOWN_PROBLEMS:
                break
            try:  # a table may have a million rows: no more than must be is done for each
                day = datetime.date.fromisoformat(row[date_at].strip())
                factor = float(row[factor_at])
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
        problems.append(
            Problem(file=str(path), message="holds no rows; it needs columns date, multiplier")
        )
    if not problems and np.any(np.diff(hours) <= 0):
        problems.append(Problem(file=str(path), message="dates must rise from row to row"))
    if problems:
        raise ScenarioError(problems)
    return demands.TableGrowth(hours_h=tuple(hours), factors=tuple(factors))


def workload_plan(
    scenario: Scenario,
    name: str,
    clusters: Sequence[ClusterPlan],
    services: Services,
    years: Floats,
) -> WorkloadPlan:
    """Compile one workload for routing and accounting; ``years`` are times to the middle of each month.

    Machines bought in several waves are one pool to a router: the same replica at the same speed, paid in the same way,
    at about the same power, which the mix that each was bought for moves a little.
    """
    workload = scenario.workloads[name]
    deadline_h = (
        _DEFAULT_DEADLINE_H
        if workload.completion_window_h is None
        else workload.completion_window_h
    )
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
            is_as_strong = math.isclose(
                clusters[tier[0]].node_power.full_kw, kw, rel_tol=_SAME_POWER
            )
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
        rented_tiers=sum(
            clusters[c].is_paid_by_the_hour and rank[c] == len(wanted) for c, *_ in tiers
        ),
        launch_h=(launch - scenario.start).days * HOURS_PER_DAY if launch else None,
        cached_input_fraction=workload.prefix_cache_hit_fraction,
    )


_MOST_IDLE_LATE = 0.5
"""Share of what an SLO target allows that may be late on an idle cluster which goes by its energy; assumption."""


def _order(
    scenario: Scenario,
    name: str,
    clusters: Sequence[ClusterPlan],
    services: Services,
    rank: list[int],
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
        cluster = clusters[index]
        service = services[clusters[index].name, name]
        allowed = 1.0 - scenario.slo_target.attainment_of(name)
        is_slow = service.lateness.late_fractions[0] > _MOST_IDLE_LATE * allowed
        return (
            rent(index),
            is_slow,
            cluster.node_power.full_kw / service.requests_per_s,
            cluster.name,
        )

    return sorted(
        able,
        key=lambda index: (rank[index] if scenario.routing == "preference" else 0, *another(index)),
    )


def _rent_usd_per_h(cluster: ClusterPlan) -> float:
    """Return the rent of an accelerator's busy hour at the start; 0 where idle hours are paid as well."""
    return (
        float(cluster.rent.usd_per_accelerator_h[0])
        if cluster.rent and cluster.is_paid_by_the_hour
        else 0.0
    )


def queue_outgrown(scenario: Scenario, plan: Plan) -> Plan:
    """Return the plan in which queueing workloads are served late once no batch meets their SLO.

    The share is that of its tokens in all tokens asked for in the last month in which a cluster met the objective. A
    node then serves as many of its tokens as it last did in time: more would only make them later.
    """
    table = plan.requests_per_node_h.copy()
    workloads = list(plan.workloads)
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
