"""The measures of a run: what finance asks for, each a formula over the ledger's sums.

Every measure is defined once, in :mod:`planner.simulation.measure_names`, from which docs/reference/metrics.md is
written; docs/explanation/finance.md says what they rest on. One that has no meaning for a run (a margin without a
price, a cost per token without tokens) is None, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import (
    CAPEX_ACCOUNTS,
    COST_OF_SERVING_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    OPERATING_EXPENSE_ACCOUNTS,
    Account,
    View,
)
from planner.finance.carbon import embodied_kg, operational_kg
from planner.finance.ledger import Dimension, view_cents
from planner.finance.measures import CashFlows
from planner.finance.money import usd
from planner.finance.unit_costs import (
    break_even_rental_utilisation,
    break_even_utilisation,
    levelised_cost,
    margin,
    per_million_tokens,
    usd_per_million_tokens,
)
from planner.simulation.cohorts import assets_of
from planner.simulation.measure_names import MEASURES
from planner.simulation.ownership import Ownership, flows_of, ownership
from planner.units import MILLION

if TYPE_CHECKING:
    from planner.fleet.money import PricePath
    from planner.simulation.result import RunResult

Floats = NDArray[np.float64]
Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The monthly series behind the measures, shape (months,) each."""

    tokens: Floats
    """Served, rented included."""
    output_tokens: Floats
    accrued_usd: Floats
    """Cost in the accrual view, without income and tax."""
    economic_usd: Floats
    """Cost in the economic view, without income and tax."""
    cash_flow_usd: Floats
    """Gains less losses in cash, by month."""
    economic: CashFlows
    """Gains less losses in the economic view, income and tax included, each at its time."""
    cash: CashFlows
    """Gains less losses in cash, each at its time."""
    accelerator_h: Floats
    """Accelerator-hours in service."""


def series_of(result: RunResult) -> Series:
    """Return the monthly series of the whole fleet."""
    ledger, monthly = result.ledger, result.monthly
    each = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters])
    served, rented = monthly.served_requests.sum(axis=1), result.rented.requests
    cents = ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    return Series(
        tokens=result.tokens(served + rented).sum(axis=1),
        output_tokens=result.tokens(served + rented, output_only=True).sum(axis=1),
        accrued_usd=usd(view_cents(cents, View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS)),
        economic_usd=usd(view_cents(cents, View.ECONOMIC, leave_out=NOT_COST_ACCOUNTS)),
        cash_flow_usd=-usd(view_cents(cents, View.CASH)),
        economic=flows_of(result, cents, View.ECONOMIC),
        cash=flows_of(result, cents, View.CASH),
        accelerator_h=(monthly.in_service_node_h * each).sum(axis=1),
    )


def measures(result: RunResult, series: Series | None = None) -> Figures:
    """Return every measure of a run by name, in the order of :data:`MEASURES`.

    ``series`` are the run's monthly series, where the caller has them already.
    """
    series, plan, ledger = series_of(result) if series is None else series, result.plan, result.ledger
    owner = ownership(result)
    accrued, tokens = series.accrued_usd.sum(), series.tokens.sum()
    tax = ledger.account_cents(Account.TAX_CASH) + ledger.account_cents(Account.TAX_DEFERRED)
    found: Figures = {
        "cost_usd": float(accrued),
        "cost_per_million_tokens_usd": _known(usd_per_million_tokens(accrued, tokens)),
        "cost_per_million_output_tokens_usd": _known(usd_per_million_tokens(accrued, series.output_tokens.sum())),
        "tco_usd": float(series.economic_usd.sum()),
        "npv_usd": series.economic.net_present_value(plan.money.capital.discount_rate_per_year),
        "capex_usd": float(usd(sum(ledger.account_cents(account) for account in CAPEX_ACCOUNTS))),
        "cash_usd": float(-series.cash_flow_usd.sum()),
        "end_value_usd": float(-usd(ledger.account_cents(Account.RESIDUAL_VALUE))),
        "levelised_cost_per_accelerator_h_usd": owner.price_usd(series.accelerator_h),
        "tax_usd": float(usd(tax)) if plan.money.market.tax else None,
    }
    for name, quantity in (("", series.tokens), ("output_", series.output_tokens)):
        levelled = owner.price_usd(quantity / MILLION)
        found[f"levelised_cost_per_million_{name}tokens_usd"] = levelled
    found |= _against_market(result, series, owner) | _sold(result, series) | _per_token(result, series)
    return {measure.name: found[measure.name] for measure in MEASURES}


def service(result: RunResult) -> Figures:
    """Return how a plan served over the whole horizon, by the names of :data:`SERVICE`."""
    monthly = result.monthly
    each = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters])
    present, in_service, busy = (
        float((hours * each).sum())
        for hours in (monthly.present_node_h, monthly.in_service_node_h, monthly.busy_node_h)
    )
    wanted, shed = result.tokens(monthly.demand_requests).sum(), result.tokens(result.shed_requests()).sum()
    missed, requests = result.shed_requests().sum() + monthly.late_requests.sum(), monthly.demand_requests.sum()
    return {
        "availability_fraction": in_service / present if present > 0 else None,
        "utilisation_fraction": busy / in_service if in_service > 0 else None,
        "shed_fraction": float(shed / wanted) if wanted > 0 else None,
        "slo_attainment_fraction": float(1.0 - missed / requests) if requests > 0 else None,
        "energy_kwh": float(monthly.facility_kwh.sum()),
    }


def _known(number: Floats | float) -> float | None:
    """Return a figure, or None where there was nothing to divide by."""
    return None if np.isnan(number) else float(number)


def _bill_usd(result: RunResult, price: PricePath) -> Floats:
    """Return what the tokens served would cost at a price, shape (months,)."""
    requests = result.monthly.served_requests.sum(axis=1) + result.rented.requests
    bill: Floats = (requests * result.plan.request_usd(price)).sum(axis=1)
    return bill


def _against_market(result: RunResult, series: Series, owner: Ownership) -> Figures:
    """Return the break-evens against rent and against an API."""
    market = result.plan.money.market
    figures: Figures = dict.fromkeys(
        ("break_even_rental_utilisation_fraction", "break_even_api_price_ratio", "api_saving_npv_usd")
    )
    if market.rental_usd_per_accelerator_h is not None:
        weights = series.accelerator_h * owner.running_factors
        owned = owner.price_usd(series.accelerator_h)
        rent = levelised_cost(float(market.rental_usd_per_accelerator_h @ weights), float(weights.sum()))
        if owned is not None and rent is not None:
            figures["break_even_rental_utilisation_fraction"] = break_even_rental_utilisation(owned, rent)
    if market.api_price is not None:
        bill = _bill_usd(result, market.api_price)
        figures["break_even_api_price_ratio"] = owner.price_usd(bill)
        figures["api_saving_npv_usd"] = owner.value_usd(bill)
    return figures


def _sold(result: RunResult, series: Series) -> Figures:
    """Return what selling the tokens earns."""
    names = ("revenue_usd", "gross_margin_fraction", "operating_margin_fraction",
             "margin_after_capital_charge_fraction", "break_even_utilisation_fraction", "irr_per_year",
             "payback_months", "discounted_payback_months")  # fmt: skip
    figures: Figures = dict.fromkeys(names)
    if result.plan.money.market.token_price is None:
        return figures
    plan, ledger, monthly = result.plan, result.ledger, result.monthly
    revenue = float(-usd(ledger.account_cents(Account.REVENUE)))
    energy = float(usd(ledger.account_cents(Account.ENERGY) + ledger.account_cents(Account.COOLING)))
    accrued, tokens = float(series.accrued_usd.sum()), float(series.tokens.sum())
    in_service, busy = monthly.in_service_node_h.sum(), monthly.busy_node_h.sum()
    figures["revenue_usd"] = revenue
    serving, running = (
        float(usd(sum(ledger.account_cents(account) for account in accounts)))
        for accounts in (COST_OF_SERVING_ACCOUNTS, OPERATING_EXPENSE_ACCOUNTS)
    )
    figures["gross_margin_fraction"] = _known(margin(revenue, serving))
    figures["operating_margin_fraction"] = _known(margin(revenue, serving + running))
    figures["margin_after_capital_charge_fraction"] = _known(margin(revenue, accrued))
    if tokens > 0 and busy > 0:
        figures["break_even_utilisation_fraction"] = break_even_utilisation(
            accrued - energy, tokens * float(in_service / busy), revenue / tokens, energy / tokens
        )
    figures["irr_per_year"] = series.economic.internal_rate().annual_rate
    figures["payback_months"] = series.cash.payback_months()
    figures["discounted_payback_months"] = series.cash.payback_months(plan.money.capital.discount_rate_per_year)
    return figures


def _per_token(result: RunResult, series: Series) -> Figures:
    """Return energy and emissions per million tokens."""
    plan, tokens = result.plan, series.tokens.sum()
    power = plan.money.power
    energy = result.monthly.facility_kwh.sum()
    emitted = operational_kg(energy, power.grid_carbon_g_per_kwh)
    figures: Figures = {
        "energy_kwh_per_million_tokens": _known(per_million_tokens(energy, tokens)),
        "operational_kg_per_million_tokens": _known(per_million_tokens(emitted, tokens)),
        "embodied_kg_per_million_tokens": None,
    }
    if result.cohorts:
        assets = assets_of(plan, result.cohorts)
        made = np.array([power.embodied_kg[cohort.cluster] * cohort.nodes for cohort in result.cohorts])
        if not np.isnan(made).any():
            service = (assets.in_service_months, assets.retired_months)
            spread = embodied_kg(made, service, power.service_life_months, plan.months.edge_coordinates)
            figures["embodied_kg_per_million_tokens"] = _known(per_million_tokens(spread.sum(), tokens))
    return figures
