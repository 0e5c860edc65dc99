"""Prices, rates and contracts, compiled to monthly figures."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np

from planner.arrays import Floats
from planner.catalog.load import Catalog
from planner.errors import ScenarioError
from planner.finance import financing
from planner.finance.depreciation import LossRule, ResaleCurve, TaxRules
from planner.finance.financing import LeaseTerms
from planner.finance.months import MonthGrid, add_months
from planner.finance.present_value import CashFlowTiming, price_path
from planner.finance.tariffs import escalation, hourly_prices_usd_per_kwh
from planner.plan import parts
from planner.plan.parts import PricePath, RentPlan, as_stated
from planner.plan.plan import ClusterPlan
from planner.plan.software import SUPPORT_USD
from planner.scenario.cluster import Cluster, FinanceLease, OnDemand, Reserved, Spot
from planner.scenario.finance import Finance, TokenPrice
from planner.scenario.scenario import Scenario
from planner.scenario.site import tariff_of, window_zone
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR


def money_plan(
    scenario: Scenario, catalog: Catalog, clusters: tuple[ClusterPlan, ...], grid: MonthGrid, rates: Floats
) -> parts.MoneyPlan:
    """Compile all prices, rates and contracts; ``rates`` is the plan's requests per node and hour."""
    finance, software = scenario.finance, scenario.software
    support, rental = software.support_usd_per_accelerator_year, finance.rental
    burst, tax = finance.burst_rental, finance.tax
    accelerator_usd = np.array([cluster.upkeep_prices_usd[0] / cluster.accelerators_per_node for cluster in clusters])
    upkeep = as_stated(
        parts.UpkeepPlan,
        finance,
        engineer_usd_per_year=software.engineer_usd_per_year,
        staff_per_accelerator=finance.operations_staff_per_1000_accelerators / 1000.0,
        staff_usd_per_year=finance.operations_staff_usd_per_year,
        crew_usd_per_year=finance.repair_crew_usd_per_year,
        support_usd_per_accelerator_year=SUPPORT_USD[software.support_contract] if support is None else support,
        escalator_per_year=_rise(finance, finance.people_escalator_per_year),
        part_usd=accelerator_usd * finance.spare_part_price_fraction,
        rma_usd=finance.rma_usd_per_repair,
        replacement_usd=accelerator_usd * finance.replacement_price_fraction,
        warranty_h=finance.warranty_months * HOURS_PER_YEAR / MONTHS_PER_YEAR,
    )
    # Accelerators rented for bursts serve like the best cluster of the plan.
    per_node = np.array([cluster.accelerators_per_node for cluster in clusters])
    best = (np.nan_to_num(rates) / per_node[:, None, None]).max(axis=0)
    hours = np.divide(1.0, best, out=np.full(best.shape, np.inf), where=best > 0)
    market = as_stated(
        parts.MarketPlan,
        finance,
        token_price=_path(finance.token_price, catalog, grid),
        api_price=_path(finance.api_price, catalog, grid),
        rental_usd_per_accelerator_h=rental
        and price_path(rental.usd_per_accelerator_h, -rental.change_per_year, grid.offset_months),
        burst=burst and as_stated(parts.BurstPlan, burst, accelerator_h_per_request=hours),
        tax=tax and as_stated(TaxRules, tax, losses=LossRule(tax.losses.replace("-", "_"))),
    )
    power = _power(scenario, catalog, grid)
    return parts.MoneyPlan(capital=_capital(scenario, catalog), power=power, upkeep=upkeep, market=market)


def _capital(scenario: Scenario, catalog: Catalog) -> parts.CapitalPlan:
    finance, building, loan = scenario.finance, scenario.site.building, scenario.finance.loan
    common = None if finance.residual_basis == "vendor-prior" else finance.residual_fraction
    books, resale = [], []
    components: dict[int, tuple[tuple[int, float | None], ...]] = {}
    for index, cluster in enumerate(scenario.clusters.values()):
        lease = lease_terms(cluster)
        keeps = lease is None or lease.is_bought
        life = cluster.depreciation_months or finance.depreciation_months
        residual = common if cluster.residual_fraction is None else cluster.residual_fraction
        if lease is not None and not keeps:  # what goes back is written off to nothing by then, and fetches nothing
            life, residual = lease.term_months, 0.0
        books.append((life, residual))
        if (by := cluster.components) is not None:
            kinds = (by.accelerators, by.hosts, by.network, by.storage)
            shares = (residual if kind.residual_fraction is None else kind.residual_fraction for kind in kinds)
            lives = (kind.depreciation_months or life for kind in kinds)
            components[index] = tuple(zip(lives, shares, strict=True))
        stated = {point.age_months: point.fraction_of_new for point in cluster.resale_curve}
        points = stated or catalog.resale_fractions(cluster.accelerator)
        multiplier = finance.resale_multiplier * cluster.resale_multiplier * keeps
        ages, fractions = tuple(points), tuple(points.values())
        resale.append(ResaleCurve(age_months=ages, fractions=fractions, multiplier=multiplier))
    # The discount rate has inflation in it (Fisher): (1 + r)·(1 + π) − 1 where r is a real one.
    inflation = finance.inflation_per_year if finance.discount_rate_basis == "real" else 0.0
    declining = finance.depreciation_method == "declining-balance"
    return as_stated(
        parts.CapitalPlan,
        finance,
        depreciation_months=tuple(life for life, _ in books),
        declining_factor=finance.declining_balance_ratio if declining else 0.0,
        residual_fraction=tuple(residual for _, residual in books),
        components=components,
        resale=tuple(resale),
        discount_rate_per_year=finance.discount_rate_per_year + inflation * (1.0 + finance.discount_rate_per_year),
        timing=CashFlowTiming(finance.cash_flow_timing),
        loan=loan
        and as_stated(
            financing.LoanTerms,
            loan,
            share_fraction=loan.share_of_purchases_fraction,
            amortisation=financing.Amortisation(loan.amortisation),
        ),
        building=building
        and as_stated(parts.BuildingPlan, building, opened_h=(building.opened - scenario.start).days * HOURS_PER_DAY),
    )


def _rise(finance: Finance, stated: float | None) -> float:
    """Return the yearly rise of a price: its own, or else the general one."""
    return finance.inflation_per_year if stated is None else stated


def _power(scenario: Scenario, catalog: Catalog, grid: MonthGrid) -> parts.PowerPricePlan:
    site, finance = scenario.site, scenario.finance
    entry = catalog.tariff(site.tariff)
    flat = entry.energy_usd_per_kwh.value if site.electricity_usd_per_kwh is None else site.electricity_usd_per_kwh
    tariff = replace(tariff_of(site, flat), escalator_per_year=_rise(finance, site.electricity.escalator_per_year))
    by_hour = hourly_prices_usd_per_kwh(tariff, grid, window_zone(site, entry)) if site.electricity.windows else None
    stated_g = site.grid_carbon_g_per_kwh
    embodied = []
    for cluster in scenario.clusters.values():
        published = catalog.accelerator(cluster.accelerator).embodied_kg_per_node
        unstated = published.value if published else np.nan
        embodied.append(unstated if cluster.embodied_kg_per_node is None else cluster.embodied_kg_per_node)
    rise = escalation(grid, _rise(finance, finance.carbon_change_per_year))
    return as_stated(
        parts.PowerPricePlan,
        site,
        tariff=tariff,
        monthly_usd_per_kwh=flat * escalation(grid, tariff.escalator_per_year),
        hourly_usd_per_kwh=by_hour,
        colocation_escalator_per_year=_rise(finance, site.colocation_escalator_per_year),
        grid_carbon_g_per_kwh=entry.grid_carbon_g_per_kwh.value if stated_g is None else stated_g,
        carbon_usd_per_tonne=finance.carbon_usd_per_tonne * rise,
        embodied_kg=np.array(embodied),
        service_life_months=float(finance.service_life_months),
    )


def _path(price: TokenPrice | None, catalog: Catalog, grid: MonthGrid) -> PricePath | None:
    """Return token prices by month; cached input is priced at the catalogue's ratio where not stated."""
    if price is None:
        return None
    cached = price.cached_input_usd_per_million_tokens
    if cached is None:
        cached = catalog.prior("cached_input_price_ratio").base * price.input_usd_per_million_tokens
    stated = {"cached_input": cached, "input": price.input_usd_per_million_tokens}
    stated["output"] = price.output_usd_per_million_tokens
    paths = {kind: price_path(usd, -price.change_per_year, grid.offset_months) for kind, usd in stated.items()}
    return PricePath(**{f"{kind}_usd_per_million_tokens": path for kind, path in paths.items()})


_TERM_PRIORS = {12: "1yr", 36: "3yr"}
"""Terms in months for which the catalogue may have rents, by the word in its names."""


def rent_plan(scenario: Scenario, name: str, catalog: Catalog) -> RentPlan | None:
    """Compile the contract of a rented cluster, at the stated or the catalogue's rent; None for others.

    A term has its price by month, renewals included, and the price of leaving.
    """
    cluster, grid = scenario.clusters[name], MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    contract = cluster.contract
    if contract is None or isinstance(contract, FinanceLease):
        return None
    rent, prior = contract.usd_per_accelerator_h, rent_prior(cluster)
    if rent is None and prior not in catalog.priors:
        message = f"the catalogue has no rent of {cluster.accelerator} for this contract (prior {prior})"
        place = ("clusters", name, "contract")
        raise ScenarioError(scenario.document.problem(place, message, "state usd_per_accelerator_h"))
    rent = catalog.priors[prior].base if rent is None else rent
    if isinstance(contract, OnDemand | Spot):
        path = price_path(rent, -contract.change_per_year, grid.offset_months)
        by_the_hour = RentPlan(usd_per_accelerator_h=path, when_used=True, is_hosted=True)
        if isinstance(contract, OnDemand):
            return by_the_hour
        per_h = contract.interruptions_per_year / HOURS_PER_YEAR
        return replace(by_the_hour, interruptions_per_h=per_h, interruption_h=contract.interruption_h)
    signed = cluster.online or grid.start
    edges = [signed]
    while edges[-1] <= max(grid.end, cluster.retire or grid.end):
        edges.append(add_months(signed, len(edges) * contract.term_months))
    edge_h = np.array([(day - grid.start).days * HOURS_PER_DAY for day in edges], dtype=np.float64)
    prices = financing.term_prices_usd_per_h(rent, contract.change_per_year, edge_h[:-1])
    leaves = min(cluster.retire or grid.end, grid.end)
    left = financing.left_of_term_usd((leaves - grid.start).days * HOURS_PER_DAY, edge_h, prices)
    return RentPlan(
        usd_per_accelerator_h=financing.mean_price_usd_per_h(grid.edge_hours.astype(np.float64), edge_h, prices),
        when_used=False,
        is_hosted=isinstance(contract, Reserved),
        exit_usd_per_accelerator=left * contract.exit_fee_fraction if leaves < grid.end else 0.0,
        bound_usd_per_accelerator=left if leaves == grid.end else 0.0,
    )


def lease_terms(cluster: Cluster) -> LeaseTerms | None:
    """Compile the contract of a cluster under a finance lease; None for others."""
    lease = cluster.contract
    if not isinstance(lease, FinanceLease):
        return None
    return as_stated(LeaseTerms, lease, is_bought=lease.at_end == "buy")


def last_day(cluster: Cluster, start: datetime.date) -> datetime.date | None:
    """Return the day on which a cluster leaves service: as stated, or when its finance lease ends."""
    lease = cluster.contract
    if not isinstance(lease, FinanceLease) or lease.at_end == "buy":
        return cluster.retire
    ends = add_months(cluster.online or start, lease.term_months)
    return min(ends, cluster.retire or ends)


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
