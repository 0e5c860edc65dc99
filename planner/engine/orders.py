"""Order-up-to on a forecast: the peak need seen, its forecast, the capacity installed, and the order.

Functions of arrays alone, with any leading axes, so that a run and a search over many replications decide by the same.
"""

from __future__ import annotations

import itertools

import numpy as np

from planner.arrays import Floats, Ints
from planner.engine.log import Streams
from planner.engine.supply import SAME_KW
from planner.plan.distributions import ThreePoint
from planner.plan.plan import ClusterPlan, Plan
from planner.units import HOURS_PER_YEAR, MONTHS_PER_YEAR

PEAK_PERCENTILE = 99.0
"""Of a month's hours: one in a hundred, seven a month, may need more."""
PRIOR_MONTHS = 6.0
"""Months of observations that the growth stated beforehand weighs as."""
TREND_MONTHS = 12
"""Most months whose trend is taken, a year: seasons of a year cancel."""
_LEVEL_MONTHS = 3
"""Months, a quarter, whose mean is the level that the trend goes on from."""
_ROUNDING = 1e-9


def peak_needs(plan: Plan, cluster: int, requests: Floats) -> Floats:
    """Return the peak need of each month in nodes of a cluster, shape (..., months).

    The 99th percentile over the month's hours of Σ requests / requests that a node sustains, over workloads that cannot
    wait and that the cluster serves. ``requests`` have the shape (..., workloads, hours).
    """
    urgent = _urgent(plan)
    months = plan.month_edges_h.size - 1
    # A rate that never changes is stored for one month alone.
    shape = (len(plan.workloads), months)
    rates = np.broadcast_to(plan.requests_per_node_h[cluster], shape)
    nodes_per_request = _inverse(rates)[urgent]
    edges_h = plan.month_edges_h.tolist()
    peaks = []
    for month, (begin, end) in enumerate(itertools.pairwise(edges_h)):
        arrivals = requests[..., urgent, begin:end]
        month_nodes = nodes_per_request[:, month]
        nodes = np.einsum("...wh,w->...h", arrivals, month_nodes)
        peak = np.percentile(nodes, PEAK_PERCENTILE, axis=-1)
        peaks.append(peak)
    return np.stack(peaks, axis=-1)


def node_values(plan: Plan, cluster: int, requests: Floats) -> Floats:
    """Return the nodes of a cluster that one node of each cluster is worth, shape (..., clusters).

    (Σ d/rate of the cluster) / (Σ d/rate of the other) with d the first month's requests of each workload that cannot
    wait and that both serve; 0 where they share none. ``requests`` have the shape (..., workloads, hours).
    """
    urgent = _urgent(plan)
    first_month_h = int(plan.month_edges_h[1])
    first_month = requests[..., urgent, :first_month_h]
    demand = first_month.sum(axis=-1)
    rates = plan.requests_per_node_h[:, urgent, 0]
    is_served = rates[cluster] > 0.0
    nodes_per_request = np.where(is_served, _inverse(rates), 0.0)
    # Of the cluster itself, by the workloads that it shares with each of the others.
    shared = np.where(nodes_per_request > 0.0, nodes_per_request[cluster], 0.0)
    nodes = demand @ nodes_per_request.T
    shared_nodes = demand @ shared.T
    node_value: Floats = np.zeros_like(nodes)
    np.divide(shared_nodes, nodes, out=node_value, where=nodes > 0.0)
    node_value[..., cluster] = 1.0
    return node_value


def _urgent(plan: Plan) -> list[int]:
    """Return the workloads that cannot wait."""
    workloads = enumerate(plan.workloads)
    return [w for w, workload in workloads if workload.deadline_h == 0]


def _inverse(rates: Floats) -> Floats:
    """Return 1 / rates, and 0 where a rate is 0."""
    with np.errstate(divide="ignore"):
        return np.where(rates > 0.0, 1.0 / rates, 0.0)


def _weighted_mean(numbers: Floats, weights: Floats) -> Floats:
    """Return the mean by weights of 0 and 1 over the last axis; 0 where all are 0."""
    total = np.maximum(weights.sum(axis=-1), 1.0)
    weighted = (numbers * weights).sum(axis=-1)
    return np.asarray(weighted / total, dtype=np.float64)


def _fit(peaks: Floats, ahead_months: float, growth_per_year: float) -> tuple[Floats, Floats]:
    """Return the logarithm of the forecast and its standard error, of shape (...); −∞ where nothing was needed."""
    recent = peaks[..., -TREND_MONTHS:]
    is_needed = recent > 0.0
    count = recent.shape[-1]
    time = np.arange(count) - (count - 1.0)  # in months, 0 for the latest
    # Months without any need count as not seen: they weigh 0, and 1 stands in for what has no logarithm.
    logs = np.log(np.where(is_needed, recent, 1.0))
    weights = np.asarray(is_needed, dtype=np.float64)
    level_weights = weights * (time > -_LEVEL_MONTHS)
    level = _weighted_mean(logs, level_weights)
    level_time = _weighted_mean(time, level_weights)
    months = weights.sum(axis=-1)
    level_months = level_weights.sum(axis=-1)
    mean_time = _weighted_mean(time, weights)
    deviation = (time - mean_time[..., None]) * weights
    # A half is that of two months in a row, the least that has a slope: one month divides by it and not by 0.
    squares = (deviation**2).sum(axis=-1)
    spread = np.maximum(squares, 0.5)
    slope = (deviation * logs).sum(axis=-1) / spread
    prior = np.log1p(growth_per_year) / MONTHS_PER_YEAR
    # One month has no slope, and leaves the growth to the prior.
    trend_weight = months / (PRIOR_MONTHS + months)
    weight = np.where(months >= 2, trend_weight, 0.0)
    horizon = ahead_months - level_time
    growth = (1.0 - weight) * prior + weight * slope
    log_forecast = level + growth * horizon
    log_peak = np.where(level_months > 0, log_forecast, -np.inf)
    mean_log = _weighted_mean(logs, weights)
    trend = slope[..., None] * deviation
    residuals = (logs - mean_log[..., None] - trend) * weights
    # Level and slope take two degrees of freedom: up to two months there is no error to speak of.
    freedom = np.where(months > 2, months - 2.0, np.nan)
    variance = (residuals**2).sum(axis=-1) / freedom
    reach = weight * horizon
    # The covariance of level and slope, over the variance of a month: both go by the same last months.
    covariance = (level_time - mean_time) / spread
    of_level = 1.0 / np.maximum(level_months, 1.0)
    of_slope = reach**2 / spread
    factor = 1.0 + of_level + of_slope + 2.0 * reach * covariance
    return log_peak, np.sqrt(variance * factor)


def forecast_peak(peaks: Floats, ahead_months: float, growth_per_year: float) -> Floats:
    """Return the forecast of the monthly peak, ``ahead_months`` after the last month seen, shape (...).

    The geometric mean of the last quarter, from its middle on at exp((6·g0 + m·g)/(6 + m)) a month: g is the
    least-squares slope of the logarithms of the last m ≤ 12 months, counted from two on, and g0 = ln(1 + growth) / 12.
    ``peaks`` have the shape (..., months seen); months without any need count as not seen.
    """
    log_peak, _ = _fit(peaks, ahead_months, growth_per_year)
    return np.exp(log_peak)


def forecast_log_error(peaks: Floats, ahead_months: float, growth_per_year: float) -> Floats:
    """Return the standard error of that forecast's logarithm, shape (...), NaN where fewer than three months are seen.

    From the residuals of the trend: of level and slope, which go together, and of the one month forecast.
    """
    _, log_error = _fit(peaks, ahead_months, growth_per_year)
    return log_error


def forecast_hour(plan: Plan, month: int, ahead_months: int) -> float:
    """Return the hour ``ahead_months`` after the end of a month, counted from 1, also beyond the horizon."""
    edges_h = plan.month_edges_h
    target = month + ahead_months
    months = edges_h.size - 1
    beyond_months = max(0, target - months)
    beyond_h = beyond_months * HOURS_PER_YEAR / MONTHS_PER_YEAR
    return float(edges_h[target - beyond_months]) + beyond_h


def installed_nodes(
    plan: Plan, by_h: float, bought: Floats, retired: Floats, node_value: Floats
) -> Floats:
    """Return the nodes installed and on order by an hour, in nodes of one cluster, shape (...).

    Stated purchases count from the day they are due, and slips are not foreseen; what rules bought counts from its
    order. ``bought``, ``retired`` by rules and ``node_value`` have the shape (..., clusters).
    """
    due = np.zeros(len(plan.clusters))
    for c, cluster in enumerate(plan.clusters):
        order = cluster.order
        if order is None:
            is_due = (cluster.online_h or 0.0) <= by_h
            due[c] = cluster.nodes if is_due else 0
            continue
        # The same shares as the shipments have: whole nodes, as even as can be.
        edges = np.linspace(0, cluster.nodes, order.deliveries + 1)
        shares = edges.round()
        delays_h = np.arange(order.deliveries) * order.interval_h
        dates_h = order.placed_h + order.lead_h + delays_h
        shipments = np.searchsorted(dates_h, by_h, side="right")
        due[c] = shares[shipments]
    stays = np.array([cluster.retire_h > by_h for cluster in plan.clusters])
    nodes = np.maximum(due + bought - retired, 0.0)
    values = nodes * stays * node_value
    return np.asarray(values.sum(axis=-1))


def order_up_to(
    forecast: Floats,
    installed: Floats,
    threshold: float,
    target: float,
    step: int,
    max_nodes: Floats | float,
) -> Ints:
    """Return the whole nodes to order, which bring the forecast load down to the target, shape (...).

    None while forecast ≤ threshold · installed; else ⌈(forecast / target − installed) / step⌉ steps, at most
    ``max_nodes``.
    """
    # A hair beside a whole number of steps is that number, on both sides.
    missing_nodes = forecast / target - installed
    steps = np.ceil(missing_nodes / step - _ROUNDING)
    max_steps = np.floor(np.asarray(max_nodes) / step + _ROUNDING)
    steps = np.maximum(np.minimum(steps, max_steps), 0.0)
    is_needed = forecast > threshold * installed
    nodes = np.where(is_needed, steps, 0.0) * step
    return nodes.astype(np.int64)


class PowerRoom:
    """The nodes of a cluster that the site has power for beside others.

    It must be able to run them all at full load, and have blocks for their nameplate: nodes that only lower clocks
    would make room for add their cost and next to no work. What is at a provider's takes none of it.
    """

    def __init__(self, plan: Plan, cluster: int, it_power_cap_kw: float) -> None:
        """Take the cluster whose nodes are to be added."""
        self._bought = plan.clusters[cluster]
        site = plan.site
        # The last block holds all power there will be; none is stated where power does not come in blocks.
        final_block_kw = site.block_kw[-1:].tolist()
        self._most_kw = site.most_it_kw + SAME_KW
        self._most_nameplate_kw = min([it_power_cap_kw, *final_block_kw]) + SAME_KW
        on_site = [not one.is_hosted for one in plan.clusters]
        full_kw = [one.node_power.full_kw for one in plan.clusters]
        nameplate_kw = [one.nameplate_kw for one in plan.clusters]
        self._full_kw = np.where(on_site, full_kw, 0.0)
        self._nameplate_kw = np.where(on_site, nameplate_kw, 0.0)

    def beside(self, nodes: Floats) -> Floats:
        """Return how many nodes there is power for beside ``nodes`` of all clusters, shape (..., clusters)."""
        if self._bought.is_hosted:
            return np.full(nodes.shape[:-1], np.inf)
        free_kw = self._most_kw - nodes @ self._full_kw
        free_nameplate_kw = self._most_nameplate_kw - nodes @ self._nameplate_kw
        room = free_kw / self._bought.node_power.full_kw
        return np.asarray(np.minimum(room, free_nameplate_kw / self._bought.nameplate_kw))


def order_room(
    max_nodes: float, max_nodes_per_order: float, owned: Floats, power: Floats, step: int
) -> Floats:
    """Return the nodes that one order may have: within a ceiling, an allotment and power; 0 below a whole step."""
    room = np.minimum(np.minimum(max_nodes - owned, max_nodes_per_order), power)
    return np.where(room >= step, room, 0.0)


def affordable_order(
    cluster: ClusterPlan, nodes: int, step: int, rest_usd: float, now_h: float, price_factor: float
) -> tuple[int, tuple[float, ...]]:
    """Return the nodes of an order that the rest of a budget pays for, in whole steps, and a node's prices."""
    while nodes > 0:
        prices_usd = cluster.order_prices_usd(now_h, nodes, price_factor)
        if nodes * sum(prices_usd) <= rest_usd:
            return nodes, prices_usd
        # At least a step fewer each time, so this ends; again and again, since fewer nodes may cost more each.
        affordable = int(rest_usd / sum(prices_usd) / step)
        nodes = min(nodes // step - 1, affordable) * step
    return 0, ()


def slip_h(slip: ThreePoint | None, streams: Streams, key: str, number: int) -> float:
    """Return the hours by which the n-th order of a cluster slips, from a stream of its own."""
    if slip is None:
        return 0.0
    draw = streams(f"orders/{key}/{number}")
    return slip.triangular(draw)
