"""Compiles what a scenario states of money into a :class:`MoneyPlan`: prices, rates and contracts by month.

A figure that the scenario leaves open is the catalogue's; a price whose rise is left open rises with inflation.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from planner.arrays import Bools, Floats
from planner.catalog.entries import Model
from planner.catalog.load import Catalog
from planner.errors import ScenarioError
from planner.finance import financing
from planner.finance.accounts import Account
from planner.finance.depreciation import LossRule, ResaleCurve, TaxRules
from planner.finance.financing import LeaseTerms, mean_prices
from planner.finance.money_plan import (
    TOKEN_KINDS,
    ApiPlan,
    BookLives,
    BurstPlan,
    CapitalPlan,
    HourlyTerms,
    MarketPlan,
    MoneyPlan,
    PowerPricePlan,
    RentPlan,
    UpkeepPlan,
)
from planner.finance.months import MonthGrid, add_months
from planner.finance.present_value import CashFlowTiming
from planner.finance.tariffs import escalation, hourly_prices_usd_per_kwh
from planner.scenario.cluster import (
    Api,
    Cluster,
    Components,
    FinanceLease,
    HourlyRental,
    OnDemand,
    OperatingLease,
    Reserved,
    Spot,
    TokenPrice,
)
from planner.scenario.finance import Finance, Loan, Tax
from planner.scenario.scenario import Scenario
from planner.scenario.site import tariff_of, window_zone
from planner.scenario.workload import Workload
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR
from planner.yaml_io import KeyPath

BATCH_WINDOW_H = 24.0
"""Hours that work must be able to wait to be sold, or bought, at the price of batch: what batch APIs promise."""
_SUPPORT_USD = {"none": 0.0, "standard": 300.0, "premium": 900.0}
"""Price of a support contract per accelerator and year."""


class PricedNodes(Protocol):
    """What the compiled money needs to know of a compiled cluster, which lies a storey above."""

    @property
    def upkeep_prices_usd(self) -> tuple[float, ...]:
        """Price of a node's accelerators, host, network and storage."""

    @property
    def accelerators_per_node(self) -> int:
        """Accelerators of a node."""


def money_plan(
    scenario: Scenario,
    catalog: Catalog,
    clusters: Sequence[PricedNodes],
    grid: MonthGrid,
    requests_per_node_h: Floats,
) -> MoneyPlan:
    """Compile all prices, rates and contracts.

    ``requests_per_node_h`` is the plan's capacity, shape (clusters, workloads, months or 1).
    """
    node_accelerators_usd = np.array([cluster.upkeep_prices_usd[0] for cluster in clusters])
    accelerators_per_node = np.array([cluster.accelerators_per_node for cluster in clusters])
    # NaN where a cluster has no layout for a workload: it serves none of it.
    requests_per_h = np.nan_to_num(requests_per_node_h)
    requests_per_accelerator_h = requests_per_h / accelerators_per_node[:, None, None]
    return MoneyPlan(
        capital=_capital(scenario, catalog),
        power=_power(scenario, catalog, grid),
        upkeep=_upkeep(scenario, node_accelerators_usd / accelerators_per_node),
        market=_market(scenario, catalog, grid, requests_per_accelerator_h),
    )


def _or_inflation(finance: Finance, stated_rise: float | None) -> float:
    """Return the yearly rise of a price: its own, or else the general one."""
    if stated_rise is None:
        return finance.inflation_per_year
    return stated_rise


def _upkeep(scenario: Scenario, accelerator_usd: Floats) -> UpkeepPlan:
    finance = scenario.finance
    software = scenario.software
    support_usd = software.support_usd_per_accelerator_year
    if support_usd is None:
        support_usd = _SUPPORT_USD[software.support_contract]
    return UpkeepPlan(
        # A new yearly cost is one more line here, beside its row in accounts.csv.
        yearly_usd={
            Account.MAINTENANCE: finance.operations_fraction_per_year,
            Account.INSURANCE: finance.insurance_fraction_per_year,
            Account.SOFTWARE_ENGINEERS: software.engineer_usd_per_year,
            Account.OPERATIONS_STAFF: finance.operations_staff_usd_per_year,
            Account.SUPPORT_CONTRACTS: support_usd,
            Account.LICENCES: finance.licence_usd_per_accelerator_year,
        },
        staff_per_accelerator=finance.operations_staff_per_1000_accelerators / 1000.0,
        crew_usd_per_year=finance.repair_crew_usd_per_year,
        escalator_per_year=_or_inflation(finance, finance.people_escalator_per_year),
        part_usd=accelerator_usd * finance.spare_part_price_fraction,
        rma_usd=finance.rma_usd_per_repair,
        replacement_usd=accelerator_usd * finance.replacement_price_fraction,
        warranty_h=finance.warranty_months * HOURS_PER_YEAR / MONTHS_PER_YEAR,
    )


def _market(
    scenario: Scenario, catalog: Catalog, grid: MonthGrid, requests_per_accelerator_h: Floats
) -> MarketPlan:
    finance = scenario.finance
    token_prices = [load.token_price for load in scenario.workloads.values()]
    api_prices = [finance.api_price] * len(token_prices)
    return MarketPlan(
        token_price=_token_prices(scenario, catalog, grid, token_prices),
        is_listed=_are_listed(token_prices),
        api_price=_token_prices(scenario, catalog, grid, api_prices, ("finance", "api_price")),
        is_api_listed=bool(_are_listed([finance.api_price])[0]),
        price_change_per_year=finance.token_price_change_per_year,
        burst=_burst_rental(scenario, catalog, grid, requests_per_accelerator_h),
        sla_objective_fraction=finance.sla_objective_fraction,
        sla_credit_usd_per_million_tokens=finance.sla_credit_usd_per_million_tokens,
        tax=_tax_rules(finance.tax) if finance.tax else None,
    )


def _burst_rental(
    scenario: Scenario, catalog: Catalog, grid: MonthGrid, requests_per_accelerator_h: Floats
) -> BurstPlan | None:
    burst = scenario.finance.burst_rental
    if burst is None:
        return None
    # Accelerators rented for bursts serve like the best cluster of the plan; where none serves, never.
    fastest = requests_per_accelerator_h.max(axis=0)
    hours = np.full(fastest.shape, np.inf)
    np.divide(1.0, fastest, out=hours, where=fastest > 0)
    return BurstPlan(
        most_accelerators=burst.most_accelerators,
        accelerators_per_instance=burst.accelerators_per_instance,
        hourly=_hourly_terms(
            scenario,
            ("finance", "burst_rental"),
            burst,
            burst.accelerator,
            "ondemand",
            grid,
            catalog,
        ),
        accelerator_h_per_request=hours,
    )


def _capital(scenario: Scenario, catalog: Catalog) -> CapitalPlan:
    finance = scenario.finance
    clusters = scenario.clusters.values()
    books = [_cluster_books(finance, cluster) for cluster in clusters]
    # The discount rate has inflation in it (Fisher): (1 + r)·(1 + π) − 1 where r is a real one.
    inflation = finance.inflation_per_year if finance.discount_rate_basis == "real" else 0.0
    rate = finance.discount_rate_per_year
    declining = finance.depreciation_method == "declining-balance"
    return CapitalPlan(
        depreciation_months=tuple(months for months, _ in books),
        declining_factor=finance.declining_balance_ratio if declining else 0.0,
        residual_fraction=tuple(residual for _, residual in books),
        components={
            index: _component_books(cluster.components, *books[index])
            for index, cluster in enumerate(clusters)
            if cluster.components is not None
        },
        resale=tuple(_resale(finance, cluster, catalog) for cluster in clusters),
        end_value=finance.end_value,
        discount_rate_per_year=rate + inflation * (1.0 + rate),
        timing=CashFlowTiming(finance.cash_flow_timing),
        fiscal_year_start_month=finance.fiscal_year_start_month,
        opening_cash_usd=finance.opening_cash_usd,
        books=financing.Books(finance.books),
        borrowing_rate_per_year=_borrowing_rate(finance),
        receivable_days=finance.receivable_days,
        payable_days=finance.payable_days,
        property_tax_fraction_per_year=finance.property_tax_fraction_per_year,
        loan=_loan_terms(finance.loan) if finance.loan else None,
    )


def _cluster_books(finance: Finance, cluster: Cluster) -> tuple[int, float | None]:
    """Return a cluster's book life and residual; what goes back to a lessor is written off to nothing by then."""
    lease = lease_terms(cluster)
    if lease is not None and not lease.is_bought:
        return lease.term_months, 0.0
    residual = cluster.residual_fraction
    if residual is None and finance.residual_basis != "vendor-prior":
        residual = finance.residual_fraction
    return cluster.depreciation_months or finance.depreciation_months, residual


def _component_books(parts: Components, life_months: int, residual: float | None) -> BookLives:
    """Return book life and residual of accelerators, hosts, network and storage, the cluster's where left open."""
    return tuple(
        (
            part.depreciation_months or life_months,
            residual if part.residual_fraction is None else part.residual_fraction,
        )
        for part in (parts.accelerators, parts.hosts, parts.network, parts.storage)
    )


def _resale(finance: Finance, cluster: Cluster, catalog: Catalog) -> ResaleCurve:
    """Return what a cluster's used servers fetch by age: as stated, or the catalogue's curve."""
    fractions = {point.age_months: point.fraction_of_new for point in cluster.resale_curve}
    if not fractions and cluster.is_api:
        fractions = {1.0: 1.0}  # an API has no machines: any curve does
    if not fractions:
        fractions = catalog.resale_fractions(cluster.accelerator)
    lease = lease_terms(cluster)
    is_kept = lease is None or lease.is_bought
    multiplier = finance.resale_multiplier * cluster.resale_multiplier * is_kept
    multiplier *= 1.0 - finance.selling_cost_fraction
    return ResaleCurve(
        age_months=tuple(fractions), fractions=tuple(fractions.values()), multiplier=multiplier
    )


def _borrowing_rate(finance: Finance) -> float:
    """Return the rate at which rent to come is discounted: its own, else the loan's, else the discount rate."""
    if finance.borrowing_rate_per_year is not None:
        return finance.borrowing_rate_per_year
    if finance.loan is not None:
        return finance.loan.rate_per_year
    return finance.discount_rate_per_year


def _tax_rules(tax: Tax) -> TaxRules:
    return TaxRules(
        rate_fraction=tax.rate_fraction,
        bonus_fraction=tax.bonus_fraction,
        losses=LossRule(tax.losses.replace("-", "_")),
        future_profit=tax.future_profit,
    )


def _loan_terms(loan: Loan) -> financing.LoanTerms:
    return financing.LoanTerms(
        share_fraction=loan.share_of_purchases_fraction,
        rate_per_year=loan.rate_per_year,
        term_months=loan.term_months,
        grace_months=loan.grace_months,
        amortisation=financing.Amortisation(loan.amortisation),
        fee_fraction=loan.fee_fraction,
        least_cover_ratio=loan.least_cover_ratio,
        balloon_fraction=loan.balloon_fraction,
        ltv_cap_fraction=loan.ltv_cap_fraction,
        auction_fraction=loan.auction_fraction,
        undrawn_fee_per_year=loan.undrawn_fee_per_year,
    )


def _power(scenario: Scenario, catalog: Catalog, grid: MonthGrid) -> PowerPricePlan:
    site = scenario.site
    finance = scenario.finance
    entry = catalog.tariff(site.tariff)
    usd_per_kwh = site.electricity_usd_per_kwh
    if usd_per_kwh is None:
        usd_per_kwh = entry.energy_usd_per_kwh.value
    carbon_g_per_kwh = site.grid_carbon_g_per_kwh
    if carbon_g_per_kwh is None:
        carbon_g_per_kwh = entry.grid_carbon_g_per_kwh.value
    tariff = replace(
        tariff_of(site, usd_per_kwh),
        escalator_per_year=_or_inflation(finance, site.electricity.escalator_per_year),
    )
    hourly_usd_per_kwh = None
    if site.electricity.windows:
        hourly_usd_per_kwh = hourly_prices_usd_per_kwh(tariff, grid, window_zone(site, entry))
    carbon_rise = escalation(grid, _or_inflation(finance, finance.carbon_change_per_year))
    embodied_kg = [_embodied_kg(cluster, catalog) for cluster in scenario.clusters.values()]
    return PowerPricePlan(
        tariff=tariff,
        monthly_usd_per_kwh=usd_per_kwh * escalation(grid, tariff.escalator_per_year),
        hourly_usd_per_kwh=hourly_usd_per_kwh,
        colocation_usd_per_kw_month=site.colocation_usd_per_kw_month,
        colocation_escalator_per_year=_or_inflation(finance, site.colocation_escalator_per_year),
        colocation_term_months=site.colocation_term_months,
        grid_carbon_g_per_kwh=carbon_g_per_kwh,
        carbon_usd_per_tonne=finance.carbon_usd_per_tonne * carbon_rise,
        embodied_kg=np.array(embodied_kg),
        service_life_months=float(finance.service_life_months),
    )


def _embodied_kg(cluster: Cluster, catalog: Catalog) -> float:
    """Return the emissions of making a node: as stated, or as published; NaN where nobody has published any."""
    if cluster.embodied_kg_per_node is not None:
        return cluster.embodied_kg_per_node
    if cluster.is_api:
        return np.nan
    published = catalog.accelerator(cluster.accelerator).embodied_kg_per_node
    if published:
        return published.value
    return np.nan


def _token_prices(
    scenario: Scenario,
    catalog: Catalog,
    grid: MonthGrid,
    prices: list[TokenPrice | None],
    key: KeyPath | None = None,
) -> Floats | None:
    """Return the prices of the workloads' tokens as the mean of each month; None where none is stated.

    Shape (months, workloads, kinds). ``key`` is the scenario's key that states them, unless the workloads do.
    """
    if all(price is None for price in prices):
        return None
    edge_months = grid.edge_coordinates - grid.edge_coordinates[0]
    shape = (edge_months.size - 1, len(prices), len(TOKEN_KINDS))
    table = np.zeros(shape)
    by_workload = zip(scenario.workloads, prices, strict=True)
    for place, (name, price) in enumerate(by_workload):
        if price is not None:
            path = key or ("workloads", name, "token_price")
            usd = _usd_by_kind(scenario, catalog, scenario.workloads[name], price, path)
            change = price.change_per_year
            if change is None:
                change = scenario.finance.token_price_change_per_year
            # All kinds of tokens change alike, so one course of prices serves them.
            rise = mean_prices(1.0, change, edge_months)
            table[:, place] = np.outer(rise, usd)
    return table


def _are_listed(prices: Sequence[TokenPrice | None]) -> Bools:
    """Return whether each price changes as the market's lists do, having no yearly change of its own."""
    return np.array([price is not None and price.change_per_year is None for price in prices])


def _usd_by_kind(
    scenario: Scenario, catalog: Catalog, workload: Workload, price: TokenPrice, path: KeyPath
) -> tuple[float, float, float]:
    """Return prices of fresh input, cached input and output of a workload's model.

    The catalogue's where they are not stated; work that a batch API would take is at its price. Cached input is at the
    model's listed ratio to fresh input, or the catalogue's where no list has it.
    """
    entry = catalog.model(workload.model)
    window_h = workload.completion_window_h
    # Deferrable work that states no window has a day.
    can_wait = window_h is None or window_h >= BATCH_WINDOW_H
    list_ratio = 1.0
    if workload.priority == "deferrable" and can_wait:
        list_ratio = catalog.prior("batch_price_ratio").base
    fresh = price.input_usd_per_million_tokens
    if fresh is None and entry.api_input_usd_per_million_tokens:
        fresh = list_ratio * entry.api_input_usd_per_million_tokens.value
    output = price.output_usd_per_million_tokens
    if output is None and entry.api_output_usd_per_million_tokens:
        output = list_ratio * entry.api_output_usd_per_million_tokens.value
    if fresh is None or output is None:
        message = f"the catalogue has no API price of {workload.model}"
        hint = "state input_usd_per_million_tokens and output_usd_per_million_tokens"
        if "contract" in path:
            hint += ", or allow_api: false"
        raise ScenarioError(scenario.document.problem(path, message, hint))
    cached = price.cached_input_usd_per_million_tokens
    if cached is None:
        cached = _cached_ratio(entry, catalog) * fresh
    return fresh, cached, output


def _cached_ratio(entry: Model, catalog: Catalog) -> float:
    """Return a model's price of cached over fresh input: by its own list, or of lists in general."""
    listed = entry.api_input_usd_per_million_tokens
    cached = entry.api_cached_input_usd_per_million_tokens
    if listed and cached:
        return cached.value / listed.value
    return catalog.prior("cached_input_price_ratio").base


def api_plan(scenario: Scenario, name: str, grid: MonthGrid, catalog: Catalog) -> ApiPlan | None:
    """Compile a cluster that is an API, at the stated or the catalogue's prices by model; None for machines."""
    contract = scenario.clusters[name].contract
    if not isinstance(contract, Api):
        return None
    loads = scenario.workloads.values()
    served = [load.allow_api for load in loads]
    stated: list[TokenPrice | None] = []
    for load in loads:
        # A model whose price is not stated has the catalogue's: a price with nothing in it.
        price = contract.token_prices.get(load.model, TokenPrice())
        stated.append(price if load.allow_api else None)
    place = ("clusters", name, "contract")
    prices = _token_prices(scenario, catalog, grid, stated, place)
    if prices is None:
        shape = (grid.period_count, len(stated), len(TOKEN_KINDS))
        prices = np.zeros(shape)
    most_tokens_per_h = np.inf
    if contract.max_tokens_per_s is not None:
        most_tokens_per_h = contract.max_tokens_per_s * SECONDS_PER_HOUR
    return ApiPlan(
        prices=prices,
        is_listed=_are_listed(stated),
        workloads=tuple(np.flatnonzero(served).tolist()),
        serves_all=contract.serves == "all",
        most_tokens_per_h=most_tokens_per_h,
    )


def _or_prior(
    scenario: Scenario, path: KeyPath, stated: float | None, prior: str, catalog: Catalog
) -> float:
    """Return a figure as stated, or the base value of its prior; raise ScenarioError where there is neither."""
    if stated is not None:
        return stated
    if prior not in catalog.priors:
        message = f"the catalogue has no figure for this contract (prior {prior})"
        *parent, key = path
        hint = f"state {key}"
        raise ScenarioError(scenario.document.problem(tuple(parent), message, hint))
    return catalog.priors[prior].base


def hourly_priors(accelerator: str, kind: str, catalog: Catalog) -> dict[str, str]:
    """Return the catalogue's priors for what a rental by the hour leaves open, by key."""
    part = accelerator.lower()
    vendor = catalog.accelerator(accelerator).vendor.value
    priors = {
        "usd_per_accelerator_h": f"rent_{kind}_{part}",
        "startup_h": f"rental_startup_{vendor}",
        "available_fraction": f"rental_available_{part}",
        "gap_days": f"rental_gap_{part}",
    }
    if kind == "spot":
        priors["interruptions_per_year"] = "spot_interruptions"
        priors["together_fraction"] = "spot_co_interruption"
    return priors


def _hourly_terms(
    scenario: Scenario,
    place: KeyPath,
    stated: HourlyRental,
    accelerator: str,
    kind: str,
    grid: MonthGrid,
    catalog: Catalog,
) -> HourlyTerms:
    """Compile the terms of a rental by the hour, the catalogue's of the accelerator where not stated."""
    priors = hourly_priors(accelerator, kind, catalog)

    def figure(key: str) -> float:
        path = (*place, key)
        return _or_prior(scenario, path, getattr(stated, key), priors[key], catalog)

    available = figure("available_fraction")
    edge_months = grid.edge_coordinates - grid.edge_coordinates[0]
    return HourlyTerms(
        accelerator=accelerator,
        usd_per_accelerator_h=mean_prices(
            figure("usd_per_accelerator_h"), stated.change_per_year, edge_months
        ),
        startup_h=figure("startup_h"),
        hold_h=max(stated.hold_h, stated.minimum_h),
        available_fraction=available,
        # Machines that can always be had, or never, have no gaps, and need no figure for them.
        gap_days=figure("gap_days") if 0.0 < available < 1.0 else 0.0,
    )


_TERM_PRIORS: Mapping[int, str] = {12: "1yr", 36: "3yr"}
"""Terms in months for which the catalogue may have rents, by the word in its names."""


def rent_plan(scenario: Scenario, name: str, grid: MonthGrid, catalog: Catalog) -> RentPlan | None:
    """Compile the contract of a rented cluster, at the stated or the catalogue's rent; None for others."""
    contract = scenario.clusters[name].contract
    place = ("clusters", name, "contract")
    match contract:
        case OnDemand() | Spot():
            cluster = scenario.clusters[name]
            return _hourly_rent(scenario, cluster, contract, place, grid, catalog)
        case Reserved() | OperatingLease():
            cluster = scenario.clusters[name]
            return _term_rent(scenario, cluster, contract, place, grid, catalog)
    return None


def _hourly_rent(
    scenario: Scenario,
    cluster: Cluster,
    contract: OnDemand | Spot,
    place: KeyPath,
    grid: MonthGrid,
    catalog: Catalog,
) -> RentPlan:
    """Compile nodes rented by the hour, on demand or at spot prices."""
    kind = contract.kind.replace("-", "")
    terms = _hourly_terms(scenario, place, contract, cluster.accelerator, kind, grid, catalog)
    rented = RentPlan(
        usd_per_accelerator_h=terms.usd_per_accelerator_h,
        is_hosted=True,
        hourly=terms,
        warm_nodes=np.inf if contract.warm_nodes == "all" else contract.warm_nodes,
    )
    if not isinstance(contract, Spot):
        return rented
    per_year = contract.interruptions_per_year
    if per_year is None:
        per_year = catalog.prior("spot_interruptions").base
    co_interruption = contract.together_fraction
    if co_interruption is None:
        co_interruption = catalog.prior("spot_co_interruption").base
    return replace(
        rented,
        interruptions_per_h=per_year / HOURS_PER_YEAR,
        interruption_h=contract.interruption_h,
        together_fraction=co_interruption,
    )


def _term_rent(
    scenario: Scenario,
    cluster: Cluster,
    contract: Reserved | OperatingLease,
    place: KeyPath,
    grid: MonthGrid,
    catalog: Catalog,
) -> RentPlan:
    """Compile rent for a term: its price by month, renewals included, and the price of leaving."""
    rent_usd = _or_prior(
        scenario,
        (*place, "usd_per_accelerator_h"),
        contract.usd_per_accelerator_h,
        rent_prior(cluster),
        catalog,
    )
    signed = cluster.online or grid.start
    edges = [signed]
    # One term beyond the horizon, and beyond the cluster's own end: the term that runs then has an end to be left by.
    end_of_use = cluster.retire or grid.end
    while edges[-1] <= max(grid.end, end_of_use):
        months = len(edges) * contract.term_months
        edges.append(add_months(signed, months))
    days = [(day - grid.start).days for day in edges]
    edge_h = np.array(days, dtype=np.float64) * HOURS_PER_DAY
    prices = financing.term_prices_usd_per_h(rent_usd, contract.change_per_year, edge_h[:-1])
    end = min(end_of_use, grid.end)
    end_h = (end - grid.start).days * HOURS_PER_DAY
    owed_usd = financing.left_of_term_usd(end_h, edge_h, prices)
    leaves_early = end < grid.end
    month_edges_h = grid.edge_hours.astype(np.float64)
    return RentPlan(
        usd_per_accelerator_h=financing.mean_price_usd_per_h(month_edges_h, edge_h, prices),
        is_hosted=isinstance(contract, Reserved),
        # Whoever leaves pays a fee on the rest of the term; who stays is bound by all of it.
        exit_usd_per_accelerator=owed_usd * contract.exit_fee_fraction if leaves_early else 0.0,
        bound_usd_per_accelerator=0.0 if leaves_early else owed_usd,
        term_edge_h=tuple(edge_h.tolist()),
        term_usd_per_h=tuple(prices.tolist()),
        is_lease=isinstance(contract, OperatingLease) or contract.identified_machines,
    )


def lease_terms(cluster: Cluster) -> LeaseTerms | None:
    """Compile the contract of a cluster under a finance lease; None for others."""
    lease = cluster.contract
    if not isinstance(lease, FinanceLease):
        return None
    return LeaseTerms(
        rate_per_year=lease.rate_per_year,
        term_months=lease.term_months,
        buy_out_fraction=lease.buy_out_fraction,
        is_bought=lease.at_end == "buy",
        exit_fee_fraction=lease.exit_fee_fraction,
    )


def last_day(cluster: Cluster, start: datetime.date) -> datetime.date | None:
    """Return the day on which a cluster leaves service: as stated, or when its finance lease ends."""
    lease = cluster.contract
    if not isinstance(lease, FinanceLease) or lease.at_end == "buy":
        return cluster.retire
    end = add_months(cluster.online or start, lease.term_months)
    return min(end, cluster.retire or end)


def rent_prior(cluster: Cluster) -> str:
    """Return the name of the catalogue's prior for the rent of a cluster's contract."""
    match cluster.contract:
        case Reserved(term_months=months):
            span = _TERM_PRIORS.get(months, f"{months}m")
        case OnDemand():
            span = "ondemand"
        case _:
            span = "spot"
    return f"rent_{span}_{cluster.accelerator.lower()}"
