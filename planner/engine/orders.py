"""Order-up-to on a forecast: the peak need seen, its forecast, the capacity installed, and the order.

Functions of arrays alone, with any leading axes, so that a run and a search over many replications decide by the same.
"""

from __future__ import annotations

import itertools

import numpy as np

from planner.arrays import Floats, Ints
from planner.engine.log import Streams
from planner.plan.parts import ThreePoint
from planner.plan.plan import Plan
from planner.units import HOURS_PER_YEAR, MONTHS_PER_YEAR

PEAK_PERCENTILE = 99.0
"""Of a month's hours: one in a hundred, seven a month, may need more."""
PRIOR_MONTHS = 6.0
"""Months of observations that the growth stated beforehand weighs as."""
TREND_MONTHS = 12
"""Most months whose trend is taken, a year: seasons of a year cancel."""
_LEVEL_MONTHS = 3
_ROUNDING = 1e-9


def peak_needs(plan: Plan, cluster: int, requests: Floats) -> Floats:
    """Return the peak need of each month in nodes of a cluster, shape (..., months).

    The 99th percentile over the month's hours of Σ requests / requests that a node sustains, over workloads that cannot
    wait and that the cluster serves. ``requests`` have the shape (..., workloads, hours).
    """
    urgent = [w for w, workload in enumerate(plan.workloads) if workload.deadline_h == 0]
    rates = np.broadcast_to(
        plan.requests_per_node_h[cluster], (len(plan.workloads), plan.month_edges_h.size - 1)
    )
    with np.errstate(divide="ignore"):
        nodes = np.where(rates > 0.0, 1.0 / rates, 0.0)[urgent]
    spans = itertools.pairwise(plan.month_edges_h.tolist())
    needs = (
        np.einsum("...wh,w->...h", requests[..., urgent, first:last], nodes[:, m])
        for m, (first, last) in enumerate(spans)
    )
    return np.stack([np.percentile(need, PEAK_PERCENTILE, axis=-1) for need in needs], axis=-1)


def worths(plan: Plan, cluster: int, requests: Floats) -> Floats:
    """Return the nodes of a cluster that one node of each cluster is worth, shape (..., clusters).

    (Σ d/rate of the cluster) / (Σ d/rate of the other) with d the first month's requests of each workload that cannot
    wait and that both serve; 0 where they share none. ``requests`` have the shape (..., workloads, hours).
    """
    urgent = [w for w, workload in enumerate(plan.workloads) if workload.deadline_h == 0]
    asked = requests[..., urgent, : int(plan.month_edges_h[1])].sum(axis=-1)
    rates = plan.requests_per_node_h[:, urgent, 0]
    with np.errstate(divide="ignore"):
        nodes = np.where((rates > 0.0) & (rates[cluster] > 0.0), 1.0 / rates, 0.0)
    both = np.where(nodes > 0.0, nodes[cluster], 0.0)
    theirs = asked @ nodes.T
    worth: Floats = np.divide(asked @ both.T, theirs, out=np.zeros_like(theirs), where=theirs > 0.0)
    worth[..., cluster] = 1.0
    return worth


def _fit(peaks: Floats, ahead_months: float, growth_per_year: float) -> tuple[Floats, Floats]:
    """Return the logarithm of the forecast and its standard error, of shape (...); −∞ where nothing was needed."""
    seen = peaks[..., -TREND_MONTHS:]
    count = min(peaks.shape[-1], TREND_MONTHS)
    logs = np.log(np.where(seen > 0.0, seen, 1.0))
    time = np.arange(count) - (count - 1.0)

    def mean(of: Floats, weights: Floats) -> Floats:
        return np.asarray(
            (of * weights).sum(axis=-1) / np.maximum(weights.sum(axis=-1), 1.0), dtype=np.float64
        )

    has = np.asarray(seen > 0.0, dtype=np.float64)
    last = has * (time > -_LEVEL_MONTHS)
    level = mean(logs, last)
    middle = mean(time, last)
    months = has.sum(axis=-1)
    late_months = last.sum(axis=-1)
    off = (time - mean(time, has)[..., None]) * has
    spread = np.maximum(
        (off**2).sum(axis=-1), 0.5
    )  # of two months in a row, the least that has a slope
    slope = (off * logs).sum(axis=-1) / spread
    prior = np.log1p(growth_per_year) / MONTHS_PER_YEAR
    weight = np.where(months >= 2, months / (PRIOR_MONTHS + months), 0.0)
    ahead = ahead_months - middle
    log_peak = np.where(
        late_months > 0, level + ((1.0 - weight) * prior + weight * slope) * ahead, -np.inf
    )
    residuals = (logs - mean(logs, has)[..., None] - slope[..., None] * off) * has
    variance = (residuals**2).sum(axis=-1) / np.where(months > 2, months - 2.0, np.nan)
    reach = weight * ahead
    level_slope = (
        middle - mean(time, has)
    ) / spread  # the covariance of level and slope, over the variance of a month
    factor = (
        1.0 + 1.0 / np.maximum(late_months, 1.0) + reach**2 / spread + 2.0 * reach * level_slope
    )
    return log_peak, np.sqrt(variance * factor)


def forecast_peak(peaks: Floats, ahead_months: float, growth_per_year: float) -> Floats:
    """Return the forecast of the monthly peak, ``ahead_months`` after the last month seen, shape (...).

    The geometric mean of the last quarter, from its middle on at exp((6·g0 + m·g)/(6 + m)) a month: g is the
    least-squares slope of the logarithms of the last m ≤ 12 months, counted from two on, and g0 = ln(1 + growth) / 12.
    ``peaks`` have the shape (..., months seen); months without any need count as not seen.
    """
    return np.exp(_fit(peaks, ahead_months, growth_per_year)[0])


def forecast_log_error(peaks: Floats, ahead_months: float, growth_per_year: float) -> Floats:
    """Return the standard error of that forecast's logarithm, shape (...), NaN where fewer than three months are seen.

    From the residuals of the trend: of level and slope, which go together, and of the one month forecast.
    """
    return _fit(peaks, ahead_months, growth_per_year)[1]


def looks_to_h(plan: Plan, month: int, ahead_months: int) -> float:
    """Return the hour ``ahead_months`` after the end of a month, counted from 1, also beyond the horizon."""
    edges = plan.month_edges_h
    until = month + ahead_months
    beyond = max(0, until - (edges.size - 1))
    return float(edges[until - beyond]) + beyond * HOURS_PER_YEAR / MONTHS_PER_YEAR


def installed_nodes(
    plan: Plan, by_h: float, bought: Floats, retired: Floats, worth: Floats
) -> Floats:
    """Return the nodes installed and on order by an hour, in nodes of one cluster, shape (...).

    Stated purchases count from the day they are due, and slips are not foreseen; what rules bought counts from its
    order. ``bought``, ``retired`` by rules and ``worth`` have the shape (..., clusters).
    """
    due = np.zeros(len(plan.clusters))
    for c, cluster in enumerate(plan.clusters):
        if (order := cluster.order) is None:
            due[c] = cluster.nodes if (cluster.online_h or 0.0) <= by_h else 0
        else:
            shares = np.linspace(0, cluster.nodes, order.deliveries + 1).round()
            dates_h = order.placed_h + order.lead_h + np.arange(order.deliveries) * order.interval_h
            due[c] = shares[np.searchsorted(dates_h, by_h, side="right")]
    stays = np.array([cluster.retire_h > by_h for cluster in plan.clusters])
    return np.asarray((np.maximum(due + bought - retired, 0.0) * stays * worth).sum(axis=-1))


def order_up_to(
    forecast: Floats,
    installed: Floats,
    threshold: float,
    target: float,
    step: int,
    most: Floats | float,
) -> Ints:
    """Return the whole nodes to order, which bring the forecast load down to the target, shape (...).

    None while forecast ≤ threshold · installed; else ⌈(forecast / target − installed) / step⌉ steps, at most ``most``
    nodes.
    """
    steps = np.ceil((forecast / target - installed) / step - _ROUNDING)
    steps = np.minimum(steps, np.floor(np.asarray(most) / step + _ROUNDING))
    return (np.where(forecast > threshold * installed, np.maximum(steps, 0.0), 0.0) * step).astype(
        np.int64
    )


def slip_h(slip: ThreePoint | None, streams: Streams, key: str, number: int) -> float:
    """Return the hours by which the n-th order of a cluster slips, from a stream of its own."""
    return 0.0 if slip is None else slip.triangular(streams(f"orders/{key}/{number}"))
