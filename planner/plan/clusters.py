"""Clusters, compiled: machines, prices, orders and power."""

from __future__ import annotations

import datetime
import functools

import numpy as np

from planner.catalog.entries import Accelerator, Sourced
from planner.catalog.load import Catalog
from planner.errors import ScenarioError
from planner.finance.money_plan import ApiPlan, PriceBook
from planner.finance.months import MonthGrid
from planner.finance.pricing import api_plan, last_day, lease_terms, rent_plan
from planner.physics.power import (
    HOST_IDLE_W,
    BoardRating,
    NodePower,
    NodeRating,
    ServingMix,
    build_node_power,
)
from planner.plan.choice import Service, Services
from planner.plan.distributions import ThreePoint
from planner.plan.plan import ClusterPlan, OrderPlan, OwnedPlan, PaymentPlan, Prices
from planner.plan.reuse import Reuse
from planner.scenario.cluster import ON_SITE, Cluster, Order, Owned
from planner.scenario.scenario import Scenario
from planner.scenario.site import dated_quotes, standing_price
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK


# 70 kB each, and others in every replication of a study: more would fill its memory.
@functools.lru_cache(maxsize=64)
def _node_power(rating: NodeRating, mix: ServingMix) -> NodePower:
    return build_node_power(rating, mix)


def cluster_plan(
    scenario: Scenario, name: str, services: Services, months: MonthGrid, reuse: Reuse
) -> ClusterPlan:
    """Compile one cluster into its plan."""
    catalog = reuse.catalog
    cluster = scenario.clusters[name]
    start = scenario.start
    online_h = None
    if not cluster.order:
        online_day = cluster.online or start
        online_h = (online_day - start).days * HOURS_PER_DAY
    # An API has no accelerators, so nothing below applies to it.
    if (api := api_plan(scenario, name, months, catalog)) is not None:
        return _api_cluster(name, api, online_h, _hours_until(cluster.retire, start))
    entry = catalog.accelerator(cluster.accelerator)
    vendor = entry.vendor.value
    per_node = entry.accelerators_per_node.value
    served = {
        workload: services[name, workload]
        for workload in scenario.workloads
        if (name, workload) in services
    }
    # A fault takes the widest replica that it may hit, or the node where replicas do not divide it.
    # What begins later changes nothing before it.
    widths = [
        service.tensor_parallel
        for workload, service in served.items()
        if scenario.workloads[workload].begins is None
    ]
    widest = max(widths, default=per_node)
    loses_node = catalog.vendor(vendor).lost_with_accelerator.value == "node"
    divides_node = per_node % widest == 0
    group = min(widest, per_node) if divides_node and not loses_node else per_node
    book = _price_book(cluster, entry, start)
    new_prices_usd = _new_prices_usd(scenario, cluster, entry, book, reuse.catalog)
    rent = rent_plan(scenario, name, months, catalog)
    lease = lease_terms(cluster)
    # Of its price: what is owed for it under a lease, or nothing where it is rented.
    booked_fraction = lease.owed_fraction if lease else float(rent is None)
    board = BoardRating(tdp_w=entry.tdp_w.value, idle_w=entry.idle_w.value)
    # The host's figure is that of a node of eight boards.
    host_idle_w = HOST_IDLE_W * per_node / 8.0
    rating = NodeRating(board=board, boards=per_node, host_idle_w=host_idle_w)
    owned = None
    if cluster.owned:
        owned = _owned(scenario, name, cluster.owned, cluster.nodes, new_prices_usd)
    return ClusterPlan(
        name=name,
        accelerator=cluster.accelerator,
        vendor=vendor,
        nodes=cluster.nodes,
        accelerators_per_node=per_node,
        group_accelerators=group,
        online_h=online_h,
        order=_order(scenario, cluster.order) if cluster.order else None,
        retire_h=_hours_until(last_day(cluster, start), start),
        failure_multiplier=scenario.reliability.vendor_failure_multiplier[vendor],
        node_power=_node_power(rating, _serving_mix(scenario, served)),
        nameplate_kw=entry.node_max_kw.value,
        prices_usd=tuple(price * booked_fraction for price in new_prices_usd),
        owned=owned,
        rent=rent,
        lease=lease,
        leased_prices_usd=new_prices_usd if isinstance(cluster.contract, ON_SITE) else None,
        price_book=book if rent is None else None,
    )


def _hours_until(day: datetime.date | None, start: datetime.date) -> float:
    """Return the hours from the start to a day; infinity for never."""
    if day is None:
        return np.inf
    return (day - start).days * HOURS_PER_DAY


def _api_cluster(name: str, api: ApiPlan, online_h: float | None, retire_h: float) -> ClusterPlan:
    """Return a cluster that stands for an API: it has no machines, so its ratings are those of none."""
    board = BoardRating(tdp_w=1.0, idle_w=0.5)
    return ClusterPlan(
        name=name,
        accelerator="",
        vendor="",
        nodes=0,
        accelerators_per_node=1,
        group_accelerators=1,
        online_h=online_h,
        order=None,
        retire_h=retire_h,
        failure_multiplier=0.0,
        nameplate_kw=0.0,
        node_power=build_node_power(NodeRating(board=board), _IDLE),
        prices_usd=(0.0,) * 4,
        api=api,
    )


def _price_book(cluster: Cluster, entry: Accelerator, start: datetime.date) -> PriceBook:
    """Compile the list price of a cluster's accelerators and the quotes for them."""
    list_usd = cluster.accelerator_price_usd
    if list_usd is None:
        # The absence of both was refused with the scenario.
        list_usd = entry.accelerator_price_usd.value if entry.accelerator_price_usd else 0.0
    return PriceBook(
        start=start,
        list_price=standing_price(cluster, list_usd),
        quotes=dated_quotes(cluster),
    )


def _new_prices_usd(
    scenario: Scenario, cluster: Cluster, entry: Accelerator, book: PriceBook, catalog: Catalog
) -> Prices:
    """Return what a new node costs in the cluster's first order: accelerators, host, network, storage."""
    per_node = entry.accelerators_per_node.value

    def node_usd(fact: Sourced[float] | None) -> float:
        return fact.value * per_node if fact else 0.0

    # Of a cluster that begins empty, the price of one node.
    accelerators = max(cluster.nodes, 1) * per_node
    accelerator_usd = book.accelerator_usd(order_date(scenario, cluster), accelerators)
    host_usd = cluster.host_usd_per_node
    if host_usd is None:
        host_usd = node_usd(entry.host_usd_per_accelerator)
        host_usd = max(host_usd + _further_memory_usd(cluster, entry, catalog), 0.0)
    return (
        accelerator_usd * per_node,
        host_usd,
        node_usd(entry.network_usd_per_accelerator),
        node_usd(entry.storage_usd_per_accelerator),
    )


def _further_memory_usd(cluster: Cluster, entry: Accelerator, catalog: Catalog) -> float:
    """Return the price of the host memory of a node beyond the catalogue's; below 0 for less."""
    if cluster.host_memory_gb is None or entry.host_memory_gb is None:
        return 0.0
    usd_per_gb = cluster.host_memory_usd_per_gb
    if usd_per_gb is None:
        usd_per_gb = catalog.prior("host_memory_price").base
    return (cluster.host_memory_gb - entry.host_memory_gb.value) * usd_per_gb


def _owned(
    scenario: Scenario, name: str, stated: Owned, nodes: int, prices_usd: Prices
) -> OwnedPlan:
    """Compile owned machines, with their cost split over a node's parts in the ratio of the cluster's prices."""
    cost_usd = stated.cost_usd
    if cost_usd is None:
        cost_usd = sum(prices_usd) * nodes
    # Books hold no more than what was paid.
    if (stated.book_value_usd or 0.0) > cost_usd:
        message = f"a book value of {stated.book_value_usd:,.2f} is above the {cost_usd:,.2f} they cost at list prices"
        place = ("clusters", name, "owned", "book_value_usd")
        raise ScenarioError(scenario.document.problem(place, message, "state owned.cost_usd"))
    if stated.cost_usd is not None and nodes:
        # Without list prices there is no ratio, and all of it is accelerators.
        weights = prices_usd if sum(prices_usd) else (1.0, 0.0, 0.0, 0.0)
        node_usd = cost_usd / nodes
        prices_usd = tuple(node_usd * part / sum(weights) for part in weights)
    book_value_usd = stated.book_value_usd
    return OwnedPlan(
        bought_h=(stated.bought - scenario.start).days * HOURS_PER_DAY,
        prices_usd=prices_usd,
        book_value_usd=None if book_value_usd is None else book_value_usd / max(nodes, 1),
        remaining_months=stated.remaining_months,
    )


def _order(scenario: Scenario, order: Order) -> OrderPlan:
    """Compile a purchase order."""
    return OrderPlan(
        placed_h=(order.placed - scenario.start).days * HOURS_PER_DAY,
        lead_h=order.lead_weeks * HOURS_PER_WEEK,
        slip_h=ThreePoint.of(order.slip_weeks, HOURS_PER_WEEK),
        deliveries=order.deliveries,
        interval_h=order.delivery_interval_weeks * HOURS_PER_WEEK,
        acceptance_failure_fraction=order.acceptance_failure_fraction,
        payments=tuple(
            PaymentPlan(
                fraction=payment.fraction,
                from_order=payment.when == "order",
                after_h=payment.weeks * HOURS_PER_WEEK,
            )
            for payment in order.payments
        ),
    )


def order_date(scenario: Scenario, cluster: Cluster) -> datetime.date:
    """Return the day on which a cluster's first nodes are ordered, by which quotes are chosen."""
    if cluster.owned is not None:
        return cluster.owned.bought
    if cluster.order is not None:
        return cluster.order.placed
    # Without an order it is bought on the day on which it is there.
    return cluster.online or scenario.start


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


def _serving_mix(scenario: Scenario, services: dict[str, Service]) -> ServingMix:
    """Return a cluster's mean serving mix, with workloads weighted by the node-hours they would take."""
    if not services:
        return _IDLE
    # Without requests there is no mean: a trickle stands for none.
    needs = [max(scenario.workloads[name].day_one_requests_per_s, 1e-9) for name in services]
    node_rates = [service.requests_per_s for service in services.values()]
    weights = np.array(needs) / node_rates
    weights /= weights.sum()

    def mean(field: str) -> float:
        figures = np.array([getattr(service, field) for service in services.values()])
        # Rounded, so that a mix whose workloads all grow alike is the same mix to the last digit.
        return float(f"{weights @ figures:.10g}")

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
