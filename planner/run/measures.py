"""The measures of a run: what finance asks for, each a formula over the ledger's sums.

Every measure is defined once, in :mod:`planner.run.measure_names`, from which docs/reference/metrics.md is
written; docs/explanation/finance.md says what they rest on. One that has no meaning for a run (a margin without a
price, a cost per token without tokens) is None, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.finance.accounts import (
    ACCOUNT_CODES,
    CAPEX_ACCOUNTS,
    COST_OF_SERVING_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    OPERATING_EXPENSE_ACCOUNTS,
    Account,
    View,
)
from planner.finance.carbon import embodied_kg, operational_kg
from planner.finance.cents import usd
from planner.finance.ledger import Dimension, view_cents
from planner.finance.present_value import CashFlows, running_months
from planner.finance.unit_costs import (
    break_even_rental_utilisation,
    break_even_utilisation,
    levelised_cost,
    margin,
    per_million_tokens,
    price_path,
)
from planner.plan import quantities
from planner.plan.money import PricePath
from planner.run.caching import per_run
from planner.run.cohorts import assets_of
from planner.run.measure_names import MEASURES, SERVICE
from planner.run.ownership import Ownership, flows_of, ownership
from planner.run.replication import Replication
from planner.units import MILLION

Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What a run came to by period and cluster, the fleet last: shape (periods, clusters + 1) unless stated.

    Every figure of service and of accrued cost, by month or over the run, is a quantity of these sums.
    """

    on_site_h: Floats
    """Accelerator-hours delivered and not retired."""
    in_service_h: Floats
    """Accelerator-hours in service."""
    busy_h: Floats
    """Accelerator-hours at work."""
    drag_h: Floats
    """Of those, what slow software cost."""
    served_tokens: Floats
    """The fleet's include those served on rented accelerators."""
    served_output_tokens: Floats
    energy_kwh: Floats
    """At the meter."""
    cost_usd: Floats
    """Accrued, without income and tax; the fleet's includes what belongs to the site as a whole."""
    demand_tokens: Floats
    """Shape (periods,), as are the following: they belong to no cluster."""
    shed_tokens: Floats
    settled_requests: Floats
    missed_requests: Floats

    def over_run(self) -> Sums:
        """Return the sums over all periods, as one period."""
        return Sums(**{field.name: getattr(self, field.name).sum(axis=0, keepdims=True) for field in fields(Sums)})

    def figures(self) -> dict[str, Floats]:
        """Return the figures of every cluster and the fleet, by their names in :data:`DEFINITIONS`."""
        return {
            "availability_fraction": quantities.availability(self.in_service_h, self.on_site_h),
            "utilisation_fraction": quantities.utilisation(self.busy_h, self.in_service_h),
            "served_tokens": self.served_tokens,
            "energy_kwh": self.energy_kwh,
            "cost_usd": self.cost_usd,
            "cost_per_million_tokens_usd": per_million_tokens(self.cost_usd, self.served_tokens),
            "served_output_tokens": self.served_output_tokens,
            "cost_per_million_output_tokens_usd": per_million_tokens(self.cost_usd, self.served_output_tokens),
        }

    def fleet_figures(self) -> dict[str, Floats]:
        """Return the figures that only the fleet has, shape (periods,)."""
        return {
            "demand_tokens": self.demand_tokens,
            "shed_tokens": self.shed_tokens,
            "shed_fraction": quantities.shed_share(self.shed_tokens, self.demand_tokens),
            "slo_attainment_fraction": quantities.in_time(self.missed_requests, self.settled_requests),
        }


@per_run
def sums_of(result: Replication) -> Sums:
    """Return a run's sums by month."""
    monthly, rented = result.monthly, result.rented.requests
    per_node = result.plan.accelerators_per_node
    cents = result.cost_cents()

    def served(*, output_only: bool) -> Floats:
        tokens = result.tokens(monthly.served_requests, output_only=output_only).sum(axis=2)
        return with_fleet(tokens, elsewhere=result.tokens(rented, output_only=output_only).sum(axis=1))

    return Sums(
        on_site_h=with_fleet(monthly.present_node_h * per_node),
        in_service_h=with_fleet(monthly.in_service_node_h * per_node),
        busy_h=with_fleet(monthly.busy_node_h * per_node),
        drag_h=with_fleet(monthly.drag_node_h * per_node),
        served_tokens=served(output_only=False),
        served_output_tokens=served(output_only=True),
        energy_kwh=with_fleet(monthly.facility_kwh),
        cost_usd=usd(with_fleet(cents[:, :-1], elsewhere=cents[:, -1])),
        demand_tokens=result.tokens(monthly.demand_requests).sum(axis=1),
        shed_tokens=result.tokens(result.shed_requests()).sum(axis=1),
        settled_requests=result.settled_requests().sum(axis=1),
        missed_requests=result.missed_requests().sum(axis=1),
    )


def with_fleet(per_cluster: NDArray[Any], elsewhere: NDArray[Any] | float = 0.0) -> NDArray[Any]:
    """Append the fleet as a last column: the sum of clusters, and what belongs to none of them."""
    return np.column_stack((per_cluster, per_cluster.sum(axis=1) + elsewhere))


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The monthly series of the fleet behind the measures, shape (months,) each."""

    sums: Sums
    economic_usd: Floats
    """Cost in the economic view, without income and tax."""
    cash_flow_usd: Floats
    """Gains less losses in cash, by month."""
    economic: CashFlows
    """Gains less losses in the economic view, income and tax included, each at its time."""
    cash: CashFlows
    """Gains less losses in cash, each at its time."""

    @property
    def tokens(self) -> Floats:
        """Served, rented included."""
        return self.sums.served_tokens[:, -1]

    @property
    def output_tokens(self) -> Floats:
        """Generated tokens served, rented included."""
        return self.sums.served_output_tokens[:, -1]

    @property
    def accrued_usd(self) -> Floats:
        """Cost in the accrual view, without income and tax."""
        return self.sums.cost_usd[:, -1]


@per_run
def series_of(result: Replication) -> Series:
    """Return the monthly series of the whole fleet."""
    cents = result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    return Series(
        sums=sums_of(result),
        economic_usd=usd(view_cents(cents, View.ECONOMIC, leave_out=NOT_COST_ACCOUNTS)),
        cash_flow_usd=-usd(view_cents(cents, View.CASH)),
        economic=flows_of(result, cents, View.ECONOMIC),
        cash=flows_of(result, cents, View.CASH),
    )


@per_run
def measures(result: Replication) -> Mapping[str, float | None]:
    """Return every measure of a run by name, in the order of :data:`MEASURES`."""
    series, plan, ledger = series_of(result), result.plan, result.ledger
    owner, sums = ownership(result), series.sums.over_run()
    accrued = sums.figures()
    tax = ledger.account_cents(Account.TAX_CASH) + ledger.account_cents(Account.TAX_DEFERRED)
    figures: Figures = {
        **{measure.name: _known(accrued[measure.name]) for measure in MEASURES if measure.name in accrued},
        "tco_usd": float(series.economic_usd.sum()),
        "npv_usd": series.economic.net_present_value(plan.money.capital.discount_rate_per_year),
        "capex_usd": float(usd(sum(ledger.account_cents(account) for account in CAPEX_ACCOUNTS))),
        "cash_usd": float(-series.cash_flow_usd.sum()),
        "end_value_usd": float(-usd(ledger.account_cents(Account.RESIDUAL_VALUE))),
        "levelised_cost_per_accelerator_h_usd": owner.price_usd(series.sums.in_service_h[:, -1]),
        "levelised_cost_per_million_tokens_usd": owner.price_usd(series.tokens / MILLION),
        "levelised_cost_per_million_output_tokens_usd": owner.price_usd(series.output_tokens / MILLION),
        "tax_usd": float(usd(tax)) if plan.money.market.tax else None,
        **_real(result, series, owner),
    }
    figures |= _against_market(result, series, owner) | _sold(result, series, sums) | _per_token(result, sums)
    return MappingProxyType({measure.name: figures[measure.name] for measure in MEASURES})


def _real(result: Replication, series: Series, owner: Ownership) -> Figures:
    """Return cost in dollars of the first day; None where there is no inflation to take out."""
    figures: Figures = dict.fromkeys(("real_cost_usd", "real_levelised_cost_per_million_tokens_usd"))
    inflation = result.plan.money.capital.inflation_per_year
    if inflation:
        level = price_path(1.0, -inflation, running_months(series.economic.edge_months, series.economic.timing))
        figures["real_cost_usd"] = float((series.accrued_usd / level).sum())
        figures["real_levelised_cost_per_million_tokens_usd"] = owner.price_usd(series.tokens / MILLION * level)
    return figures


def service(result: Replication) -> Figures:
    """Return how a plan served over the whole horizon, by the names of :data:`SERVICE`."""
    sums = sums_of(result).over_run()
    figures = sums.figures() | sums.fleet_figures()
    promised = promise_figures(result)
    return {name: promised[name] if name in promised else _known(figures[name]) for name in SERVICE}


def promise_figures(result: Replication) -> Figures:
    """Return how a run stands to its promise; the worst share is None where no request was settled."""
    verdict = result.verdict()
    return {
        "worst_in_time_fraction": None if verdict.worst is None else verdict.worst.in_time_fraction,
        "promise_shortfall_fraction": verdict.shortfall_fraction,
        "promise_kept_months": float(verdict.kept_months(len(result.plan.months.labels))),
    }


def _known(figures: Floats) -> float | None:
    """Return the fleet's figure, the last, or None where there was nothing to divide by."""
    number = float(figures.flat[-1])
    return None if np.isnan(number) else number


def revenue_usd(result: Replication) -> Floats:
    """Return what the tokens of each month were sold for, shape (months, clusters + 1), the fleet last; NaN unsold."""
    cents = -result.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    sold = cents[:, :, ACCOUNT_CODES[Account.REVENUE]]
    if result.plan.money.market.token_price is None:
        return np.full(sold.shape, np.nan)
    return usd(with_fleet(sold[:, :-1], elsewhere=sold[:, -1]))


def _bill_usd(result: Replication, price: PricePath) -> Floats:
    """Return what the tokens served would cost at a price, shape (months,)."""
    requests = result.monthly.served_requests.sum(axis=1) + result.rented.requests
    bill: Floats = (requests * result.plan.request_usd(price)).sum(axis=1)
    return bill


def _against_market(result: Replication, series: Series, owner: Ownership) -> Figures:
    """Return the break-evens against rent and against an API."""
    market = result.plan.money.market
    figures: Figures = dict.fromkeys(
        ("break_even_rental_utilisation_fraction", "break_even_api_price_ratio", "api_saving_npv_usd")
    )
    if market.rental_usd_per_accelerator_h is not None:
        by_the_hour = [cluster.is_paid_by_the_hour for cluster in result.plan.clusters]
        paid_h = np.where(by_the_hour, series.sums.busy_h[:, :-1], series.sums.in_service_h[:, :-1])
        accelerator_h = paid_h.sum(axis=1)
        weights, owned = accelerator_h * owner.running_factors, owner.price_usd(accelerator_h)
        rent = levelised_cost(float(market.rental_usd_per_accelerator_h @ weights), float(weights.sum()))
        if owned is not None and rent is not None:
            figures["break_even_rental_utilisation_fraction"] = break_even_rental_utilisation(owned, rent)
    if market.api_price is not None:
        bill = _bill_usd(result, market.api_price)
        figures["break_even_api_price_ratio"] = owner.price_usd(bill)
        figures["api_saving_npv_usd"] = owner.value_usd(bill)
    return figures


def _sold(result: Replication, series: Series, sums: Sums) -> Figures:
    """Return what selling the tokens earns."""
    names = ("revenue_usd", "gross_margin_fraction", "operating_margin_fraction",
             "margin_after_capital_charge_fraction", "break_even_utilisation_fraction", "irr_per_year",
             "payback_months", "discounted_payback_months")  # fmt: skip
    figures: Figures = dict.fromkeys(names)
    if result.plan.money.market.token_price is None:
        return figures
    plan, ledger = result.plan, result.ledger
    revenue = float(-usd(ledger.account_cents(Account.REVENUE)))
    with_use = float(usd(ledger.account_cents(Account.ENERGY) + ledger.account_cents(Account.COOLING)))
    with_use += _rent_by_the_hour_usd(result)
    accrued, tokens, used = (
        float(figures[0, -1])
        for figures in (sums.cost_usd, sums.served_tokens, quantities.utilisation(sums.busy_h, sums.in_service_h))
    )
    figures["revenue_usd"] = revenue
    serving, running = (
        float(usd(sum(ledger.account_cents(account) for account in accounts)))
        for accounts in (COST_OF_SERVING_ACCOUNTS, OPERATING_EXPENSE_ACCOUNTS)
    )
    figures["gross_margin_fraction"] = _known(margin(revenue, serving))
    figures["operating_margin_fraction"] = _known(margin(revenue, serving + running))
    figures["margin_after_capital_charge_fraction"] = _known(margin(revenue, accrued))
    if tokens > 0 and used > 0:
        figures["break_even_utilisation_fraction"] = break_even_utilisation(
            accrued - with_use, tokens / used, revenue / tokens, with_use / tokens
        )
    figures["irr_per_year"] = series.economic.internal_rate()
    figures["payback_months"] = series.cash.payback_months()
    figures["discounted_payback_months"] = series.cash.payback_months(plan.money.capital.discount_rate_per_year)
    return figures


def _rent_by_the_hour_usd(result: Replication) -> float:
    """Return the rent of machines of which only hours at work are paid."""
    rents = result.ledger.totals_cents(Dimension.CLUSTER, Dimension.ACCOUNT)[:, ACCOUNT_CODES[Account.RENT]]
    by_the_hour = [cluster.is_paid_by_the_hour for cluster in result.plan.clusters]
    return float(usd(rents[:-1] @ np.array(by_the_hour)))


def _per_token(result: Replication, sums: Sums) -> Figures:
    """Return energy and emissions per million tokens served at the site."""
    plan, power = result.plan, result.plan.money.power
    tokens = (sums.served_tokens[0, :-1] * plan.on_site).sum()
    emitted = operational_kg(sums.energy_kwh[0, -1], power.grid_carbon_g_per_kwh)
    figures: Figures = {
        "energy_kwh_per_million_tokens": _known(per_million_tokens(sums.energy_kwh[0, -1], tokens)),
        "operational_kg_per_million_tokens": _known(per_million_tokens(emitted, tokens)),
        "embodied_kg_per_million_tokens": None,
    }
    if result.cohorts:
        assets = assets_of(plan, result.cohorts)
        made = np.array([power.embodied_kg[cohort.cluster] * cohort.machines for cohort in result.cohorts])
        if not np.isnan(made).any():
            service = (assets.in_service_months, assets.retired_months)
            spread = embodied_kg(made, service, power.service_life_months, plan.months.edge_coordinates)
            figures["embodied_kg_per_million_tokens"] = _known(per_million_tokens(spread.sum(), tokens))
    return figures
