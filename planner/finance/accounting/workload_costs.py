"""What each workload costs over the horizon, in present value: a rate that can be charged, and that recovers the whole.

    absorbed = marginal + own capacity + share of unallocated idle capacity

summed over workloads is the fleet's net present cost before income and tax, to the cent. Nothing of it depends on book
lives: a purchase counts on its day, what is owned on the last day as if sold then.

**Marginal** is what a token more costs where it is routed: a cluster that is full sends it to the next, to an API or to
rented machines. Each workload's requests are simulated again at a few percent more, with the same random numbers and on
the replicas that reviews placed, and the cost that follows use and load is compared. Where rules buy more machines for
it, it is the running cost of :mod:`planner.finance.accounting.unit_economics`, on the machines that are there.

**Capacity** is all other cost, K. It stands for the hours that size the fleet: of each month, those in which demand
that cannot wait is within its highest 1% (every hour under by-use). Let u_w be what a request of a workload takes of
the cluster on which it takes least, in dollars: min over clusters of the capacity cost of a node-hour over the requests
that it serves. In those hours workload w runs n_w = Σ requests · u_w of the C = Σ node-hours · their cost that is on
site. Each month weighs by its discount factor. Its own capacity is

    own_w = K · n_w / max(C, Σ n)

What is left is idle capacity, held for the same hours: a workload shares it as it runs in them,

    idle_w = (K − Σ own) · n_w / Σ n

So batch bears no capacity but where it runs in the peaks. u and the peak hours depend on demand and on what
machines cost and serve, not on how many there are: a fleet twice as large leaves n as it is, and doubles K.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Cents, Floats
from planner.elementwise import in_hours
from planner.engine.driver import run_plan
from planner.engine.hourly import joined
from planner.engine.monthly import sum_months
from planner.engine.rental import rent_for_shed
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.accounting.cohorts import cohorts_of
from planner.finance.accounting.measures import measures, present_cost_usd, running_factors
from planner.finance.accounting.posting import write_ledger
from planner.finance.accounting.unit_economics import (
    DEFERRABLE,
    PEAK_FRACTION,
    behaving,
    hourly_rent_cents,
    unit_economics,
)
from planner.finance.ledger import MONTH_CLUSTER_ACCOUNT, Ledger, cents, split_cents, usd
from planner.finance.present_value import per_million_tokens, ratio
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.records import record

_MORE = 0.03
"""By how much requests are raised: many steps of the table of power, which is read at the nearest, and few of its
bend."""


@record
class WorkloadCosts:
    """Present values by workload, shape (workloads,) where not stated."""

    marginal_cents: Cents
    own_capacity_cents: Cents
    idle_capacity_cents: Cents
    """Its share of unallocated idle capacity."""
    income_and_tax_cents: int
    """Tax less income of the whole plan, which no workload bears: with it the costs sum to net present cost."""
    tokens: Floats
    """Discounted, by kind, shape (workloads, kinds)."""
    kind_shares: Floats
    """Of the cost, by kind of token, shape (workloads, kinds)."""

    @property
    def absorbed_cents(self) -> Cents:
        """Marginal cost, own capacity and the share of idle capacity."""
        return self.marginal_cents + self.own_capacity_cents + self.idle_capacity_cents

    def per_million(self, amount_cents: Cents, *, output_only: bool = False) -> Floats:
        """Return a cost per million tokens, levelised; NaN for a workload that is served nothing."""
        tokens = self.tokens[:, -1] if output_only else self.tokens.sum(axis=1)
        return per_million_tokens(usd(amount_cents), tokens)

    def rates(self) -> Floats:
        """Return the price of a million tokens of each kind that recovers absorbed cost, shape (workloads, kinds)."""
        by_kind = usd(self.absorbed_cents)[:, None] * self.kind_shares
        return per_million_tokens(by_kind, self.tokens)


@per_run
def workload_costs(result: BookedRun) -> WorkloadCosts:
    """Return what each workload costs over the horizon."""
    plan = result.plan
    factors = running_factors(plan)
    economics = unit_economics(result)
    workloads = len(plan.workloads)
    # Over months; clusters and the site as a whole are left beside workloads.
    running_usd = usd(economics.running_cents)
    running_pv = np.einsum("m,mcw->cw", factors, running_usd)
    marginal = _marginal_cents(result)
    if marginal is None:
        marginal = cents(running_pv[:, :workloads].sum(axis=0))
    present_usd = present_cost_usd(result)
    total_cents = int(cents(present_usd.sum()))
    capacity_cents = total_cents - int(marginal.sum())
    node_h = factors @ result.monthly.present_node_h
    cluster_capacity_usd = present_usd[:-1] - running_pv[:-1].sum(axis=1)
    node_h_usd = np.maximum(np.nan_to_num(ratio(cluster_capacity_usd, node_h)), 0.0)
    own, idle = _capacity_shares(result, node_h_usd)
    # One split of both, so that they sum to the whole to the cent.
    parts = split_cents(np.array(capacity_cents), np.concatenate([own, idle]))
    net_present_cents = round(-100 * (measures(result)["npv_usd"] or 0.0))
    tokens = np.einsum("m,mcwk->wk", factors, economics.tokens)[:workloads]
    kind_usd = np.einsum("m,mcwk->wk", factors, usd(economics.kind_cents))[:workloads]
    return WorkloadCosts(
        marginal_cents=marginal,
        own_capacity_cents=parts[:workloads],
        idle_capacity_cents=parts[workloads:],
        income_and_tax_cents=net_present_cents - total_cents,
        tokens=tokens,
        # Where no layout says what takes how long, a token is a token.
        kind_shares=quantities.shares(kind_usd, tokens),
    )


def _marginal_cents(result: BookedRun) -> Cents | None:
    """Return the present value of what each workload's tokens cost at the margin; None where machines follow demand."""
    plan = result.plan
    demand = plan.demand
    base_usd = _running_present_usd(plan, result.ledger)
    marginal_usd = np.zeros(len(plan.workloads))
    for w in range(len(plan.workloads)):
        if not demand.expected_requests_per_s[w].any():
            continue
        factor = np.ones((len(plan.workloads), 1))
        factor[w] += _MORE
        # The forecast stays: reviews place what they did.
        more_demand = replace(
            demand,
            expected_requests_per_s=demand.expected_requests_per_s * factor,
            noise_base_requests_per_s=demand.noise_base_requests_per_s * factor,
        )
        more = replace(plan, demand=more_demand)
        run = run_plan(more, result.seed, result.replication, processes=result.processes)
        monthly = sum_months(more, run)
        if not np.array_equal(monthly.present_node_h, result.monthly.present_node_h):
            return None
        cohorts = cohorts_of(more, run.log)
        rented = rent_for_shed(more, run.windows, run.on_offer)
        ledger = write_ledger(more, run, monthly, cohorts, rented)
        marginal_usd[w] = (_running_present_usd(more, ledger) - base_usd) / _MORE
    return cents(marginal_usd)


def _running_present_usd(plan: Plan, ledger: Ledger) -> float:
    """Return the present value of the cost that follows use and load, rent by the hour included."""
    table = ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    running = behaving(table, "use") + behaving(table, "load") + hourly_rent_cents(plan, table)
    return float(running_factors(plan) @ usd(running.sum(axis=1)))


def _request_usd(result: BookedRun, node_h_usd: Floats) -> Floats:
    """Return the capacity that a request takes on the cluster where it takes least, in dollars; (months, workloads)."""
    plan = result.plan
    # Clusters that no machine is in cost nothing: they are no measure of anything.
    is_measure = (node_h_usd > 0)[:, None, None] & (plan.requests_per_node_h > 0)
    usd_per_request = np.full(plan.requests_per_node_h.shape, np.inf)
    node_usd = np.broadcast_to(node_h_usd[:, None, None], usd_per_request.shape)
    np.divide(node_usd, plan.requests_per_node_h, out=usd_per_request, where=is_measure)
    least_usd = usd_per_request.min(axis=0)
    # What no cluster of ours can serve takes no capacity of ours.
    least_usd[np.isinf(least_usd)] = 0.0
    shape = (least_usd.shape[0], plan.months.period_count)
    return np.broadcast_to(least_usd, shape).T


def _capacity_shares(result: BookedRun, node_h_usd: Floats) -> tuple[Floats, Floats]:
    """Return each workload's shares of capacity cost: its own, and of what is idle; all together sum to one."""
    plan = result.plan
    hours = plan.months.hour_periods
    factors = running_factors(plan)
    request_usd = in_hours(np.ascontiguousarray(_request_usd(result, node_h_usd).T), hours)
    is_urgent = np.array([load.priority < DEFERRABLE for load in plan.workloads])
    is_peak = _peak_hours(result, request_usd, is_urgent)
    weight = factors[hours] * is_peak
    served = joined("served_requests", result.run.windows)
    is_own = np.array([cluster.api is None for cluster in plan.clusters])
    own_served = served[is_own].sum(axis=0)
    needed = (own_served * request_usd) @ weight
    present = joined("present", result.run.node_hours)
    capacity = node_h_usd @ present @ weight
    # In overload more is served than fits: then all capacity is somebody's own.
    own = needed / max(capacity, needed.sum(), np.finfo(float).tiny)
    # Where no machine of ours serves anyone, a token is a token.
    bearers = quantities.shares(needed, result.tokens(result.monthly.demand_requests).sum(axis=0))
    idle_fraction = max(1.0 - float(own.sum()), 0.0)
    shares = np.concatenate([own, idle_fraction * bearers])
    shares /= shares.sum()
    return shares[: own.size], shares[own.size :]


def _peak_hours(result: BookedRun, request_usd: Floats, is_urgent: Bools) -> Bools:
    """Return the hours that capacity stands for: of each month, those of highest demand that cannot wait."""
    if result.scenario.finance.allocation == "by-use":
        return np.ones(result.plan.hours, dtype=np.bool_)
    demand = joined("demand_requests", result.run.windows) * request_usd
    # Where all work can wait, all of it sizes the fleet.
    sizing = demand[is_urgent] if is_urgent.any() else demand
    is_peak = []
    for month in np.split(sizing.sum(axis=0), result.plan.month_edges_h[1:-1]):
        threshold = np.quantile(month, 1.0 - PEAK_FRACTION, method="lower")
        is_peak.append(month >= threshold)
    return np.concatenate(is_peak)
