"""Compiles a scenario and the catalogue into a plan of arrays; no other package reads both."""

from __future__ import annotations

import dataclasses
import functools
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from planner.demand.plan import build_demand_plan
from planner.demand.shape import Horizon
from planner.finance.months import MonthGrid
from planner.plan.capacity import PREFERRED_UTILISATION, Factors, capacity_table, token_time_table
from planner.plan.clusters import cluster_plan, reliability_plan, weeks_in_h
from planner.plan.contradictions import contradictions, slower_drafts
from planner.plan.money import money_plan
from planner.plan.parts import ProcessPlan, SitePlan, as_stated
from planner.plan.placement import deployments_of, services_of, sharing_notes, with_placement
from planner.plan.plan import ClusterPlan, ExpansionPlan, Plan, RulePlan, full_load_kw
from planner.plan.reuse import Reuse
from planner.plan.sizes import load_tables, sizes_of
from planner.plan.software import software_plan
from planner.plan.workloads import demand_of, queue_outgrown, workload_plan
from planner.scenario.scenario import Rule, Scenario
from planner.units import DAYS_PER_YEAR, HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR, MONTHS_PER_YEAR

_HOTTEST_DAY = 200.0  # 19 July: northern sites
_CURTAILMENT_HOUR = 16.0  # from 16:00 UTC, the American afternoon peak


def build_plan(scenario: Scenario, reuse: Reuse | None = None, throughput_factors: Factors | None = None) -> Plan:
    """Compile a scenario into a plan; raise ScenarioError when a workload or a cluster cannot work.

    ``reuse`` keeps what the plans of one study share; ``throughput_factors`` multiply what the throughput model says,
    by accelerator, engine and model.
    """
    reuse = Reuse(scenario) if reuse is None else reuse
    catalog = reuse.catalog
    months = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    horizon = Horizon(start=scenario.start, hours=months.hour_count)
    factors, years = throughput_factors or {}, months.mid_years
    services, refused = services_of(scenario, factors, reuse)
    clusters = tuple(cluster_plan(scenario, name, services, reuse) for name in scenario.clusters)
    workloads = tuple(workload_plan(scenario, name, clusters, services, years) for name in scenario.workloads)
    capacity = capacity_table(scenario, services, years)
    demands = [demand_of(scenario, name, workload, horizon, reuse) for name, workload in scenario.workloads.items()]
    demand = _demand_plan(tuple(demands), horizon)

    def urgency(index: int) -> tuple[float, ...]:
        """Return a workload's sort key: priority, deadline, and the number of clusters that can serve it.

        The rest only makes the order a matter of figures, not of names or places in the file.
        """
        load = workloads[index]
        tokens = float(load.tokens_per_request[0])
        return (load.priority, load.deadline_h, len(load.cluster_order), tokens, *sorted(capacity[:, index, 0]))

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
        site=_site(scenario, clusters),
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
    warnings, notes = contradictions(scenario, plan, demands)
    warnings += slower_drafts(scenario, services, reuse)
    biased = scenario.load_calibration().biased(service.spec for service in services.values())
    notes = [*refused, *notes, *sharing_notes(scenario, plan), *biased]
    return dataclasses.replace(plan, warnings=tuple(warnings), notes=tuple(notes))


def repriced(plan: Plan, scenario: Scenario, reuse: Reuse) -> Plan:
    """Return a plan with the money of a scenario that differs in nothing else: prices, contracts, tariffs, PUE.

    A sixth of the work of compiling it whole; where :func:`same_machines` holds of both, the result is the same.
    """
    stated = (cluster_plan(scenario, one.name, {}, reuse) for one in plan.clusters)
    clusters = tuple(  # without services, whose figures are those of before
        dataclasses.replace(new, node_power=old.node_power, group_accelerators=old.group_accelerators)
        for new, old in zip(stated, plan.clusters, strict=True)
    )
    money = money_plan(scenario, reuse.catalog, clusters, plan.months, plan.requests_per_node_h)
    market = dataclasses.replace(money.market, burst=plan.money.market.burst)
    money, site = dataclasses.replace(money, market=market), _site(scenario, clusters)
    return dataclasses.replace(plan, clusters=clusters, money=money, site=site)


_MONEY = {
    *("money", "warnings", "notes", "prices_usd", "leased_prices_usd", "price_book", "lease", "prices"),
    *("book_value_usd", "remaining_months", "overhead_ratio", "fixed_fraction", "usd_per_accelerator_h"),
    *("exit_usd_per_accelerator", "bound_usd_per_accelerator", "term_usd_per_h"),
}
"""Fields of a plan and its parts that no simulation reads, beyond what :func:`_steering` returns."""


def _steering(plan: Plan) -> list[object]:
    """Return the money by which a plan's simulation decides.

    Rent by the hour orders clusters, orders by rule or process are bounded by their prices, and a cap on what the
    site draws is one on IT power by way of PUE. What burst rental costs moves nothing, and is not compiled anew.
    """
    decides, site, burst = bool(plan.expansion.rules or plan.processes), plan.site, plan.money.market.burst
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
        first, second = list(first.items()), list(second.items())
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


_demand_plan = functools.lru_cache(maxsize=1)(build_demand_plan)
"""The traffic of a plan; the last one is kept, since plans compiled one after another mostly share it."""


def _site(scenario: Scenario, clusters: tuple[ClusterPlan, ...]) -> SitePlan:
    site = scenario.site
    hours = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months).hour_count
    day = scenario.start.timetuple().tm_yday + np.arange(hours) / HOURS_PER_DAY
    season = np.cos(2.0 * np.pi * (day - _HOTTEST_DAY) / DAYS_PER_YEAR)  # the yearly wave of the cooling load
    overhead = (site.pue_ratio - 1.0) * (1.0 + site.pue_season_fraction * season)
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
        block_h=np.array([max(0.0, (block.date - scenario.start).days * HOURS_PER_DAY) for block in blocks]),
        block_kw=np.cumsum([block.it_kw for block in blocks]),
        commissioning_h=site.commissioning_h_per_node,
    )


def _processes(scenario: Scenario) -> Iterator[ProcessPlan]:
    """Yield the user's processes with their code."""
    for process, (file, source) in zip(scenario.processes, scenario.load_code(), strict=True):
        yield ProcessPlan(function=process.function, file=file, source=source)


def _expansion(scenario: Scenario, months: MonthGrid) -> ExpansionPlan:
    names, stated = list(scenario.clusters), scenario.expansion

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
                cooldown_months=(0 if rule.forecasts else 3) if rule.cooldown_months is None else rule.cooldown_months,
                forecast_months=rule.forecast_months
                or math.ceil(rule.lead_weeks * HOURS_PER_WEEK * MONTHS_PER_YEAR / HOURS_PER_YEAR) + 3,
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
