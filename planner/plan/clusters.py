"""Clusters, compiled: machines, prices, power, failures."""

from __future__ import annotations

import datetime
import functools
from typing import Any

import numpy as np

from planner.catalog.load import Catalog
from planner.errors import ScenarioError
from planner.physics.power import HOST_IDLE_W, BoardRating, NodePower, NodeRating, ServingMix, build_node_power
from planner.plan import parts
from planner.plan.capacity import Service, Services
from planner.plan.money import api_plan, last_day, lease_terms, rent_plan
from planner.plan.parts import CausePlan, PlannedWork, PriceBook, as_stated
from planner.plan.plan import ClusterPlan, OrderPlan, OwnedPlan, PaymentPlan, Prices
from planner.plan.reuse import Reuse
from planner.plan.software import headcount
from planner.scenario.cluster import ON_SITE, Cluster, Order, Owned, Spot
from planner.scenario.fields import PerThousand, Spread
from planner.scenario.scenario import Scenario
from planner.scenario.site import dated_quotes, standing_price
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR, MONTHS_PER_YEAR


@functools.lru_cache(maxsize=64)  # 70 kB each, and others in every replication of a study: more would fill its memory
def _node_power(rating: NodeRating, mix: ServingMix) -> NodePower:
    return build_node_power(rating, mix)


def cluster_plan(scenario: Scenario, name: str, services: Services, reuse: Reuse) -> ClusterPlan:
    """Compile one cluster into its plan."""
    catalog, cluster = reuse.catalog, scenario.clusters[name]
    online_h = None if cluster.order else ((cluster.online or scenario.start) - scenario.start).days * HOURS_PER_DAY
    if (api := api_plan(scenario, name, catalog)) is not None:
        board = BoardRating(tdp_w=1.0, idle_w=0.5)  # of which there is none
        retire_h = (cluster.retire - scenario.start).days * HOURS_PER_DAY if cluster.retire else np.inf
        return ClusterPlan(
            name=name, accelerator="", vendor="", nodes=0, accelerators_per_node=1, group_accelerators=1,
            online_h=online_h, order=None, retire_h=retire_h, failure_multiplier=0.0, nameplate_kw=0.0,
            node_power=build_node_power(NodeRating(board=board), _IDLE), prices_usd=(0.0,) * 4, api=api,
        )  # fmt: skip
    entry = catalog.accelerator(cluster.accelerator)
    vendor, per_node = entry.vendor.value, entry.accelerators_per_node.value
    maker = catalog.vendor(vendor)
    served = {workload: services[name, workload] for workload in scenario.workloads if (name, workload) in services}
    widest = max((service.tensor_parallel for service in served.values()), default=per_node)
    loses_node = maker.lost_with_accelerator.value == "node"
    list_usd = cluster.accelerator_price_usd
    if list_usd is None:  # the absence of both was refused with the scenario
        list_usd = entry.accelerator_price_usd.value if entry.accelerator_price_usd else 0.0
    book = PriceBook(start=scenario.start, list_price=standing_price(cluster, list_usd), quotes=dated_quotes(cluster))
    unit_usd = book.accelerator_usd(order_date(scenario, cluster), max(cluster.nodes, 1) * per_node)
    around = (entry.host_usd_per_accelerator, entry.network_usd_per_accelerator, entry.storage_usd_per_accelerator)
    host, network, storage = (fact.value * per_node if fact else 0.0 for fact in around)
    host = host if cluster.host_usd_per_node is None else cluster.host_usd_per_node
    new = (unit_usd * per_node, host, network, storage)
    rent, lease, retire = rent_plan(scenario, name, catalog), lease_terms(cluster), last_day(cluster, scenario.start)
    booked = lease.owed_fraction if lease else float(rent is None)  # of its price: what is owed for it, or nothing
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
        failure_multiplier=scenario.reliability.vendor_failure_multiplier.get(vendor, maker.failure_multiplier.value),
        node_power=_node_power(rating, mix),
        nameplate_kw=entry.node_max_kw.value,
        prices_usd=tuple(price * booked for price in new),
        owned=_owned(scenario, name, cluster.owned, cluster.nodes, new) if cluster.owned else None,
        rent=rent,
        lease=lease,
        leased_prices_usd=new if isinstance(cluster.contract, ON_SITE) else None,
        price_book=book if rent is None else None,
    )


def _owned(scenario: Scenario, name: str, stated: Owned, nodes: int, prices_usd: Prices) -> OwnedPlan:
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
        book_value_usd=None if stated.book_value_usd is None else stated.book_value_usd / max(nodes, 1),
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
            as_stated(PaymentPlan, stated, from_order=stated.when == "order", after_h=stated.weeks * week)
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
        return float(f"{weights @ np.array([getattr(service, field) for service in services.values()]):.10g}")

    batch, prefill = max(mean("batch"), 1.0), mean("prefill_fraction")
    single_s, full_s = mean("single_tpot_s"), mean("tpot_s") * (1.0 - prefill)
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
            per_node_h=cause.per_1000_node_days.value / (1000.0 * HOURS_PER_DAY) * stated.failure_multiplier,
            whole_node=cause.scope.value == "node",
            soft_fraction=cause.soft_fraction.value,
            medium_fraction=cause.medium_fraction.value,
        )
        for name, cause in catalog.failures.items()
    )
    # Of no rate of its own: a spot contract says how often, and for its own nodes alone.
    if any(isinstance(cluster.contract, Spot) for cluster in scenario.clusters.values()):
        name = parts.INTERRUPTION
        causes += (CausePlan(name=name, per_node_h=0.0, whole_node=True, soft_fraction=1.0, medium_fraction=0.0),)
    priors = {path: catalog.prior(name).base for path, name in stated.left_open().items()}

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
