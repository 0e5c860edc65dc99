"""Clusters, compiled: machines, prices, power and failures; their software, its incidents and its engineers."""

from __future__ import annotations

import datetime
import functools
import math
from typing import Any, get_args

import numpy as np

from planner.catalog.entries import ArchitectureClass, Stack
from planner.catalog.load import Catalog
from planner.errors import ScenarioError
from planner.finance.months import MonthGrid
from planner.physics.power import (
    HOST_IDLE_W,
    BoardRating,
    NodePower,
    NodeRating,
    ServingMix,
    build_node_power,
)
from planner.plan import parts
from planner.plan.capacity import Service, Services, dated_log_gain
from planner.plan.money import api_plan, last_day, lease_terms, rent_plan
from planner.plan.parts import (
    CausePlan,
    Headcount,
    PlannedWork,
    PriceBook,
    StackPlan,
    TeamPlan,
    ThreePoint,
    as_stated,
)
from planner.plan.plan import ClusterPlan, OrderPlan, OwnedPlan, PaymentPlan, Prices, Reuse
from planner.scenario.cluster import ON_SITE, Cluster, Order, Owned, Spot
from planner.scenario.fields import PerThousand, Spread
from planner.scenario.scenario import Scenario
from planner.scenario.site import dated_quotes, standing_price
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR, MONTHS_PER_YEAR


@functools.lru_cache(
    maxsize=64
)  # 70 kB each, and others in every replication of a study: more would fill its memory
def _node_power(rating: NodeRating, mix: ServingMix) -> NodePower:
    return build_node_power(rating, mix)


def cluster_plan(
    scenario: Scenario, name: str, services: Services, months: MonthGrid, reuse: Reuse
) -> ClusterPlan:
    """Compile one cluster into its plan."""
    catalog = reuse.catalog
    cluster = scenario.clusters[name]
    online_h = (
        None
        if cluster.order
        else ((cluster.online or scenario.start) - scenario.start).days * HOURS_PER_DAY
    )
    if (api := api_plan(scenario, name, months, catalog)) is not None:
        board = BoardRating(tdp_w=1.0, idle_w=0.5)  # of which there is none
        retire_h = (
            (cluster.retire - scenario.start).days * HOURS_PER_DAY if cluster.retire else np.inf
        )
        return ClusterPlan(
            name=name, accelerator="", vendor="", nodes=0, accelerators_per_node=1, group_accelerators=1,
            online_h=online_h, order=None, retire_h=retire_h, failure_multiplier=0.0, nameplate_kw=0.0,
            node_power=build_node_power(NodeRating(board=board), _IDLE), prices_usd=(0.0,) * 4, api=api,
        )  # fmt: skip
    entry = catalog.accelerator(cluster.accelerator)
    vendor = entry.vendor.value
    per_node = entry.accelerators_per_node.value
    served = {
        workload: services[name, workload]
        for workload in scenario.workloads
        if (name, workload) in services
    }
    widest = max((service.tensor_parallel for service in served.values()), default=per_node)
    loses_node = catalog.vendor(vendor).lost_with_accelerator.value == "node"
    list_usd = cluster.accelerator_price_usd
    if list_usd is None:  # the absence of both was refused with the scenario
        list_usd = entry.accelerator_price_usd.value if entry.accelerator_price_usd else 0.0
    book = PriceBook(
        start=scenario.start,
        list_price=standing_price(cluster, list_usd),
        quotes=dated_quotes(cluster),
    )
    unit_usd = book.accelerator_usd(order_date(scenario, cluster), max(cluster.nodes, 1) * per_node)
    around = (
        entry.host_usd_per_accelerator,
        entry.network_usd_per_accelerator,
        entry.storage_usd_per_accelerator,
    )
    host, network, storage = (fact.value * per_node if fact else 0.0 for fact in around)
    host = host if cluster.host_usd_per_node is None else cluster.host_usd_per_node
    new = (unit_usd * per_node, host, network, storage)
    rent = rent_plan(scenario, name, months, catalog)
    lease = lease_terms(cluster)
    retire = last_day(cluster, scenario.start)
    booked = (
        lease.owed_fraction if lease else float(rent is None)
    )  # of its price: what is owed for it, or nothing
    board = BoardRating(tdp_w=entry.tdp_w.value, idle_w=entry.idle_w.value)
    rating = NodeRating(board=board, boards=per_node, host_idle_w=HOST_IDLE_W * per_node / 8.0)
    mix = _mix(scenario, served)
    return ClusterPlan(
        name=name,
        accelerator=cluster.accelerator,
        vendor=vendor,
        nodes=cluster.nodes,
        accelerators_per_node=per_node,
        group_accelerators=per_node if loses_node or per_node % widest else min(widest, per_node),
        online_h=online_h,
        order=_order(scenario, cluster.order) if cluster.order else None,
        retire_h=(retire - scenario.start).days * HOURS_PER_DAY if retire else np.inf,
        failure_multiplier=scenario.reliability.vendor_failure_multiplier[vendor],
        node_power=_node_power(rating, mix),
        nameplate_kw=entry.node_max_kw.value,
        prices_usd=tuple(price * booked for price in new),
        owned=_owned(scenario, name, cluster.owned, cluster.nodes, new) if cluster.owned else None,
        rent=rent,
        lease=lease,
        leased_prices_usd=new if isinstance(cluster.contract, ON_SITE) else None,
        price_book=book if rent is None else None,
    )


def _owned(
    scenario: Scenario, name: str, stated: Owned, nodes: int, prices_usd: Prices
) -> OwnedPlan:
    """Compile owned machines, with their cost split over a node's parts in the ratio of the cluster's prices."""
    cost_usd = sum(prices_usd) * nodes if stated.cost_usd is None else stated.cost_usd
    if (stated.book_value_usd or 0.0) > cost_usd:
        message = f"a book value of {stated.book_value_usd:,.2f} is above the {cost_usd:,.2f} they cost at list prices"
        place = ("clusters", name, "owned", "book_value_usd")
        raise ScenarioError(scenario.document.problem(place, message, "state owned.cost_usd"))
    if stated.cost_usd is not None and nodes:
        # Without list prices there is no ratio, and all of it is accelerators.
        weights = prices_usd if sum(prices_usd) else (1.0, 0.0, 0.0, 0.0)
        prices_usd = tuple(cost_usd / nodes * part / sum(weights) for part in weights)
    return as_stated(
        OwnedPlan,
        stated,
        bought_h=(stated.bought - scenario.start).days * HOURS_PER_DAY,
        prices_usd=prices_usd,
        book_value_usd=None
        if stated.book_value_usd is None
        else stated.book_value_usd / max(nodes, 1),
    )


def _order(scenario: Scenario, order: Order) -> OrderPlan:
    week = HOURS_PER_WEEK
    return as_stated(
        OrderPlan,
        order,
        placed_h=(order.placed - scenario.start).days * HOURS_PER_DAY,
        lead_h=order.lead_weeks * week,
        slip_h=weeks_in_h(order.slip_weeks),
        interval_h=order.delivery_interval_weeks * week,
        payments=tuple(
            as_stated(
                PaymentPlan, stated, from_order=stated.when == "order", after_h=stated.weeks * week
            )
            for stated in order.payments
        ),
    )


def weeks_in_h(spread: Spread) -> parts.ThreePoint:
    """Return a spread of weeks in hours."""
    low, base, high = (weeks * HOURS_PER_WEEK for weeks in (spread.low, spread.base, spread.high))
    return parts.ThreePoint(low=low, base=base, high=high)


def order_date(scenario: Scenario, cluster: Cluster) -> datetime.date:
    """Return the day on which a cluster's first nodes are ordered, by which quotes are chosen."""
    if cluster.owned is not None:
        return cluster.owned.bought
    return cluster.order.placed if cluster.order else cluster.online or scenario.start


_IDLE = ServingMix(
    batch=1.0,
    stream_fixed_s=1e-4,
    stream_per_sequence_s=0.0,
    compute_per_sequence_s=1e-6,
    step_fixed_s=0.01,
    step_per_sequence_s=0.0,
    prefill_compute_fraction=0.5,
)
"""Of a cluster that serves nothing: it idles."""


def _mix(scenario: Scenario, services: dict[str, Service]) -> ServingMix:
    """Return a cluster's mean serving mix, with workloads weighted by the node-hours they would take."""
    if not services:
        return _IDLE
    needs = [max(scenario.workloads[name].requests_per_s, 1e-9) for name in services]
    weights = np.array(needs) / [service.requests_per_s for service in services.values()]
    weights /= weights.sum()

    def mean(field: str) -> float:
        # Rounded, so that a mix whose workloads all grow alike is the same mix to the last digit.
        return float(
            f"{weights @ np.array([getattr(service, field) for service in services.values()]):.10g}"
        )

    batch = max(mean("batch"), 1.0)
    prefill = mean("prefill_fraction")
    single_s = mean("single_tpot_s")
    full_s = mean("tpot_s") * (1.0 - prefill)
    # Time and traffic of a step are straight lines in the batch through what they are for one sequence and for all.
    further = max(batch - 1.0, 1.0)
    slope = max(full_s - single_s, 0.0) / further
    single_stream_s = mean("single_stream_s")
    stream_slope = max(mean("stream_s") - single_stream_s, 0.0) / further
    return ServingMix(
        batch=batch,
        stream_fixed_s=max(single_stream_s - stream_slope, 0.0),
        stream_per_sequence_s=stream_slope,
        compute_per_sequence_s=mean("compute_s_per_token"),
        step_fixed_s=max(min(single_s, full_s) - slope, 1e-6),
        step_per_sequence_s=slope,
        prefill_time_fraction=prefill,
        prefill_compute_fraction=mean("prefill_compute_fraction"),
    )


def reliability_plan(scenario: Scenario, catalog: Catalog) -> parts.ReliabilityPlan:
    """Compile failures, repair crews and spares."""
    stated = scenario.reliability
    causes = tuple(
        CausePlan(
            name=name,
            per_node_h=cause.per_1000_node_days.value
            / (1000.0 * HOURS_PER_DAY)
            * stated.failure_multiplier,
            whole_node=cause.scope.value == "node",
            soft_fraction=cause.soft_fraction.value,
            medium_fraction=cause.medium_fraction.value,
        )
        for name, cause in catalog.failures.items()
    )
    # Of no rate of its own: a spot contract says how often, and for its own nodes alone.
    if any(isinstance(cluster.contract, Spot) for cluster in scenario.clusters.values()):
        name = parts.INTERRUPTION
        causes += (
            CausePlan(
                name=name, per_node_h=0.0, whole_node=True, soft_fraction=1.0, medium_fraction=0.0
            ),
        )
    left_open = stated.left_open()
    priors = {path: catalog.prior(name).base for path, name in left_open.items()}

    def figure(*path: str) -> float:
        """Return a figure as stated, or the base value of its prior where it is not stated."""
        figure_of: Any = stated
        for key in path:
            figure_of = figure_of[key] if isinstance(figure_of, dict) else getattr(figure_of, key)
        return float(priors.get(path, figure_of) or 0.0)

    domains = tuple(
        parts.DomainPlan(
            name=name.replace("_", " "),
            nodes=round(figure("failure_domains", name, "nodes")),
            per_year=figure("failure_domains", name, "failures_per_year"),
            repair_h=figure("failure_domains", name, "repair_h"),
        )
        for name in stated.failure_domains
    )
    maintenance = firmware = None
    if stated.maintenance:
        every_h = stated.maintenance.every_weeks * HOURS_PER_WEEK
        fraction = figure("maintenance", "per_1000_node_days") / 1000.0 * every_h / HOURS_PER_DAY
        length_h = figure("maintenance", "length_h")
        maintenance = PlannedWork(every_h=every_h, length_h=length_h, nodes_fraction=fraction)
    if stated.firmware:
        every_h = HOURS_PER_YEAR / figure("firmware", "rollouts_per_year")
        firmware = PlannedWork(every_h=every_h, length_h=figure("firmware", "length_h"))
    # The stock of spare parts has at least one where it has any.
    if (share := stated.spare_fraction) is not None:
        spares = parts.Headcount(per_node=share, least=int(share > 0))
    else:
        some = isinstance(stated.spares, PerThousand) and stated.spares.per_1000_accelerators > 0
        spares = headcount(stated.spares, least=int(some))
    return as_stated(
        parts.ReliabilityPlan,
        stated,
        causes=causes,
        early_life_h=stated.early_life_months * HOURS_PER_YEAR / MONTHS_PER_YEAR,
        repair_h=(stated.soft_repair_h, stated.medium_repair_h, stated.hard_repair_h),
        repair_cv=stated.repair_cv_ratio,
        crews=headcount(stated.repair_crews, least=1),
        spares=spares,
        rma_h=stated.rma_weeks * HOURS_PER_WEEK,
        domains=domains,
        maintenance=maintenance,
        firmware=firmware,
        reserve_nodes=stated.reserve_nodes or 1,
        reserve_fraction=figure("reserve_fraction"),
    )


POLICIES = {
    "latest": "low",
    "staged": "base",
    "pinned": "high",
}  # of the catalogue's production operators
_FIX_MULTIPLIER = {"none": 1.5, "standard": 1.0, "premium": 0.6}


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
        return Headcount(
            per_accelerator=stated.per_1000_accelerators / 1000.0,
            rounding=stated.rounding,
            least=least,
        )
    return Headcount(fixed=Headcount(per_accelerator=stated).number(1.0))


def software_plan(
    scenario: Scenario, clusters: tuple[ClusterPlan, ...], services: Services, reuse: Reuse
) -> parts.SoftwarePlan:
    """Compile stacks, engineers and the response to accuracy regressions.

    There is one team for every stack where a number of engineers is stated, and one for each vendor's otherwise.
    """
    stated = scenario.software
    catalog = reuse.catalog
    calibration = reuse.calibration
    measured_on = calibration.measured_on
    staffed = stated.engineers
    if staffed is not None and not isinstance(staffed, dict):
        teams = [
            TeamPlan(name="all", clusters=tuple(range(len(clusters))), engineers=headcount(staffed))
        ]
    else:
        teams = []
        for vendor in sorted({cluster.vendor for cluster in clusters if cluster.api is None}):
            per_1000 = stated.engineers_per_800[vendor] * 1000.0 / 800.0
            by_rate = PerThousand(per_1000_accelerators=per_1000, rounding="up")
            people = (staffed or {}).get(vendor, by_rate)
            served = tuple(
                index for index, cluster in enumerate(clusters) if cluster.vendor == vendor
            )
            teams.append(TeamPlan(name=vendor, clusters=served, engineers=headcount(people)))
    stacks = {}
    shape = (len(scenario.clusters), len(scenario.workloads))
    wide = np.full(shape, np.nan)
    roofline = np.zeros(shape)
    dated = np.zeros(shape)
    stack_of = np.full(shape, "", dtype="U64")
    gains: dict[tuple[str, str, str], float] = {}
    places = {}
    for pair, service in services.items():
        cluster = scenario.clusters[pair[0]]
        load = scenario.workloads[pair[1]]
        engine = service.spec.engine
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
    loads = scenario.workloads.values()
    of = scenario.clusters.values()
    ahead_h = 0.0 if measured_on is None else (scenario.start - measured_on).days * 24.0
    return parts.SoftwarePlan(
        stacks=tuple(stacks[name] for name in sorted(stacks)),
        teams=tuple(teams),
        fix_time_multiplier=_FIX_MULTIPLIER[stated.support_contract],
        engineer_h=stated.fix_engineer_h,
        canary_fraction=stated.canary_fraction,
        bake_h=stated.bake_h if stated.canary_fraction < 1.0 else 0.0,
        rollback_h=as_stated(ThreePoint, catalog.prior("rollback_fleet")),
        architectures=tuple(
            catalog.model(workload.model).architecture_class.value for workload in loads
        ),
        clock_h=tuple(0.0 if cluster.engine_date is None else ahead_h for cluster in of),
        stack_of=stack_of,
        dated_log_gain=dated,
        roofline_log_gain=roofline,
        wide_precision_factor=wide,
    )


def _stack(scenario: Scenario, catalog: Catalog, stack: Stack, team: int) -> StackPlan:
    """Compile a stack, its releases, its upgrades and the incidents that come with them or at any time."""
    stated = scenario.software
    vendor = stack.vendor.value
    multiplier = (
        stated.software_speedup_multiplier * stated.vendor_software_speedup_multiplier[vendor]
    )
    spread = stack.release_spread_fraction.value if stack.release_spread_fraction else 0.0
    young = stack.new_model_incident_multiplier
    maturity = {}
    for name in get_args(ArchitectureClass):
        if name in stack.maturity:
            gain = stack.maturity[name].ceiling_gain_fraction
            months = stack.maturity[name].closing_months
            maturity[name] = parts.MaturityPlan(
                gain=ThreePoint(
                    low=gain.low * multiplier,
                    base=gain.base * multiplier,
                    high=gain.high * multiplier,
                ),
                months=as_stated(ThreePoint, months),
            )
    often = stated.incident_multiplier * stated.vendor_incident_multiplier[vendor]
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
                loss=as_stated(
                    ThreePoint, figures.loss_fraction or ThreePoint(low=loss, base=loss, high=loss)
                ),
                most_loss=figures.most_loss_fraction.value if figures.most_loss_fraction else 0.0,
                detection_h=as_stated(ThreePoint, noticed),
                subtle_detection_h=as_stated(ThreePoint, told.subtle_detection_h or noticed),
                subtle_fraction=told.subtle_fraction.value if told.subtle_fraction else 0.0,
                subtle_below=told.subtle_below_loss_fraction.value
                if told.subtle_below_loss_fraction
                else 0.0,
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
