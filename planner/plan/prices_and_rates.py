"""Prices and rates, compiled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.arrays import Floats
from planner.catalog.load import Catalog
from planner.finance.depreciation import ResaleCurve
from planner.finance.loan import Amortisation, LoanTerms
from planner.finance.months import MonthGrid
from planner.finance.present_value import Timing
from planner.finance.tariffs import escalation, hourly_prices_usd_per_kwh
from planner.finance.tax import LossRule, TaxRules
from planner.finance.unit_costs import price_path
from planner.plan.contracts import lease_terms
from planner.plan.money import (
    BuildingPlan,
    BurstPlan,
    CapitalPlan,
    MarketPlan,
    MoneyPlan,
    PowerPricePlan,
    PricePath,
    UpkeepPlan,
)
from planner.plan.plan import ClusterPlan
from planner.plan.software import SUPPORT_USD
from planner.scenario.cluster import Cluster
from planner.scenario.finance import Finance, Loan, TokenPrice
from planner.scenario.prices import tariff_of, window_zone
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR

_DECLINING = "declining-balance"


def money_plan(
    scenario: Scenario, catalog: Catalog, clusters: tuple[ClusterPlan, ...], grid: MonthGrid, rates: Floats
) -> MoneyPlan:
    """Compile everything about money; ``rates`` is the plan's requests per node and hour."""
    return MoneyPlan(
        capital=_capital(scenario, catalog),
        power=_power(scenario, catalog, grid),
        upkeep=_upkeep(scenario, clusters),
        market=_market(scenario, catalog, clusters, grid, rates),
    )


def _resale(finance: Finance, catalog: Catalog, cluster: Cluster) -> ResaleCurve:
    """Return the cluster's own resale curve or the catalogue's, under both multipliers; nothing for what goes back."""
    lease = lease_terms(cluster)
    stated = {point.age_months: point.fraction_of_new for point in cluster.resale_curve}
    points = stated or catalog.resale_fractions(cluster.accelerator)
    return ResaleCurve(
        age_months=tuple(points),
        fractions=tuple(points.values()),
        multiplier=finance.resale_multiplier * cluster.resale_multiplier * (lease is None or lease.is_bought),
    )


def _book_life(finance: Finance, cluster: Cluster) -> tuple[int, float | None]:
    """Return a cluster's book life in months and its residual; what goes back is written off to nothing by then."""
    lease = lease_terms(cluster)
    if lease is not None and not lease.is_bought:
        return lease.term_months, 0.0
    common = None if finance.residual_basis == "vendor-prior" else finance.residual_fraction
    residual = common if cluster.residual_fraction is None else cluster.residual_fraction
    return cluster.depreciation_months or finance.depreciation_months, residual


def _components(finance: Finance, cluster: Cluster) -> tuple[tuple[int, float | None], ...] | None:
    """Return book life and residual of accelerators, hosts, network and storage; None where all have the cluster's."""
    if cluster.components is None:
        return None
    life, residual = _book_life(finance, cluster)
    parts = cluster.components
    return tuple(
        (
            part.depreciation_months or life,
            residual if part.residual_fraction is None else part.residual_fraction,
        )
        for part in (parts.accelerators, parts.hosts, parts.network, parts.storage)
    )


def _capital(scenario: Scenario, catalog: Catalog) -> CapitalPlan:
    finance, clusters = scenario.finance, scenario.clusters.values()
    lives, residuals = zip(*(_book_life(finance, cluster) for cluster in clusters), strict=True)
    return CapitalPlan(
        depreciation_months=lives,
        declining_factor=finance.declining_balance_ratio if finance.depreciation_method == _DECLINING else 0.0,
        residual_fraction=residuals,
        components=tuple(_components(finance, cluster) for cluster in clusters),
        resale=tuple(_resale(finance, catalog, cluster) for cluster in clusters),
        end_value=finance.end_value,
        discount_rate_per_year=_nominal_rate(finance),
        inflation_per_year=finance.inflation_per_year,
        timing=Timing(finance.cash_flow_timing),
        fiscal_year_start_month=finance.fiscal_year_start_month,
        opening_cash_usd=finance.opening_cash_usd,
        property_tax_fraction_per_year=finance.property_tax_fraction_per_year,
        loan=_loan(finance.loan) if finance.loan else None,
        building=_building(scenario) if scenario.site.building else None,
    )


def _building(scenario: Scenario) -> BuildingPlan:
    building = scenario.site.building
    assert building is not None
    return BuildingPlan(
        cost_usd=building.cost_usd,
        land_usd=building.land_usd,
        opened_h=(building.opened - scenario.start).days * HOURS_PER_DAY,
        life_months=building.life_months,
        upkeep_fraction_per_year=building.upkeep_fraction_per_year,
        property_tax_fraction_per_year=building.property_tax_fraction_per_year,
    )


def _loan(loan: Loan) -> LoanTerms:
    return LoanTerms(
        share_fraction=loan.share_of_purchases_fraction,
        rate_per_year=loan.rate_per_year,
        term_months=loan.term_months,
        grace_months=loan.grace_months,
        amortisation=Amortisation(loan.amortisation),
        fee_fraction=loan.fee_fraction,
        least_cover_ratio=loan.least_cover_ratio,
        balloon_fraction=loan.balloon_fraction,
    )


def _rise(finance: Finance, stated: float | None) -> float:
    """Return the yearly rise of a price: as stated, or with all others."""
    return finance.inflation_per_year if stated is None else stated


def _nominal_rate(finance: Finance) -> float:
    """Return the discount rate with inflation in it (Fisher): (1 + r)·(1 + π) − 1 where r is a real one."""
    inflation = finance.inflation_per_year if finance.discount_rate_basis == "real" else 0.0
    return finance.discount_rate_per_year + inflation * (1.0 + finance.discount_rate_per_year)


def _power(scenario: Scenario, catalog: Catalog, grid: MonthGrid) -> PowerPricePlan:
    site, finance = scenario.site, scenario.finance
    entry = catalog.tariff(site.tariff)
    flat = entry.energy_usd_per_kwh.value if site.electricity_usd_per_kwh is None else site.electricity_usd_per_kwh
    tariff = replace(tariff_of(site, flat), escalator_per_year=_rise(finance, site.electricity.escalator_per_year))
    by_hour = bool(site.electricity.windows)
    zone = window_zone(site, entry)
    stated = site.grid_carbon_g_per_kwh
    accelerators = [catalog.accelerator(cluster.accelerator) for cluster in scenario.clusters.values()]
    published = [entry.embodied_kg_per_node for entry in accelerators]
    embodied = [
        cluster.embodied_kg_per_node if cluster.embodied_kg_per_node is not None else fact.value if fact else np.nan
        for cluster, fact in zip(scenario.clusters.values(), published, strict=True)
    ]
    return PowerPricePlan(
        tariff=tariff,
        monthly_usd_per_kwh=flat * escalation(grid, tariff.escalator_per_year),
        hourly_usd_per_kwh=hourly_prices_usd_per_kwh(tariff, grid, zone) if by_hour else None,
        colocation_usd_per_kw_month=site.colocation_usd_per_kw_month,
        colocation_escalator_per_year=_rise(finance, site.colocation_escalator_per_year),
        grid_carbon_g_per_kwh=entry.grid_carbon_g_per_kwh.value if stated is None else stated,
        carbon_usd_per_tonne=finance.carbon_usd_per_tonne
        * escalation(grid, _rise(finance, finance.carbon_change_per_year)),
        embodied_kg=np.array(embodied),
        service_life_months=float(finance.service_life_months),
    )


def _upkeep(scenario: Scenario, clusters: tuple[ClusterPlan, ...]) -> UpkeepPlan:
    finance, software = scenario.finance, scenario.software
    support = software.support_usd_per_accelerator_year
    accelerator_usd = np.array([cluster.upkeep_prices_usd[0] / cluster.accelerators_per_node for cluster in clusters])
    return UpkeepPlan(
        operations_fraction_per_year=finance.operations_fraction_per_year,
        insurance_fraction_per_year=finance.insurance_fraction_per_year,
        engineer_usd_per_year=software.engineer_usd_per_year,
        staff_per_accelerator=finance.operations_staff_per_1000_accelerators / 1000.0,
        staff_usd_per_year=finance.operations_staff_usd_per_year,
        crew_usd_per_year=finance.repair_crew_usd_per_year,
        support_usd_per_accelerator_year=SUPPORT_USD[software.support_contract] if support is None else support,
        licence_usd_per_accelerator_year=finance.licence_usd_per_accelerator_year,
        escalator_per_year=_rise(finance, finance.people_escalator_per_year),
        part_usd=accelerator_usd * finance.spare_part_price_fraction,
        rma_usd=finance.rma_usd_per_repair,
        replacement_usd=accelerator_usd * finance.replacement_price_fraction,
        warranty_h=finance.warranty_months * HOURS_PER_YEAR / MONTHS_PER_YEAR,
    )


def _path(price: TokenPrice | None, catalog: Catalog, grid: MonthGrid) -> PricePath | None:
    """Return a price of tokens by month; cached prompt tokens at the catalogue's share where no price is stated."""
    if price is None:
        return None
    cached = price.cached_input_usd_per_million_tokens
    if cached is None:
        cached = catalog.prior("cached_input_price_ratio").base * price.input_usd_per_million_tokens
    plain, output, kept = (
        price_path(usd, -price.change_per_year, grid.offset_months)
        for usd in (price.input_usd_per_million_tokens, price.output_usd_per_million_tokens, cached)
    )
    return PricePath(
        input_usd_per_million_tokens=plain,
        output_usd_per_million_tokens=output,
        cached_input_usd_per_million_tokens=kept,
    )


def _market(
    scenario: Scenario, catalog: Catalog, clusters: tuple[ClusterPlan, ...], grid: MonthGrid, rates: Floats
) -> MarketPlan:
    finance = scenario.finance
    rental, tax = finance.rental, finance.tax
    losses = LossRule.CARRY_FORWARD if tax and tax.losses == "carry-forward" else LossRule.OFFSET
    return MarketPlan(
        token_price=_path(finance.token_price, catalog, grid),
        api_price=_path(finance.api_price, catalog, grid),
        rental_usd_per_accelerator_h=price_path(
            rental.usd_per_accelerator_h, -rental.change_per_year, grid.offset_months
        )
        if rental
        else None,
        burst=_burst(finance, clusters, rates),
        sla_objective_fraction=finance.sla_objective_fraction,
        sla_credit_usd_per_million_tokens=finance.sla_credit_usd_per_million_tokens,
        tax=TaxRules(rate_fraction=tax.rate_fraction, bonus_fraction=tax.bonus_fraction, losses=losses)
        if tax
        else None,
    )


def _burst(finance: Finance, clusters: tuple[ClusterPlan, ...], rates: Floats) -> BurstPlan | None:
    """Let rented accelerators serve like the best cluster of the plan."""
    if finance.burst_rental is None:
        return None
    per_node = np.array([cluster.accelerators_per_node for cluster in clusters])
    best = (np.nan_to_num(rates) / per_node[:, None, None]).max(axis=0)
    return BurstPlan(
        usd_per_accelerator_h=finance.burst_rental.usd_per_accelerator_h,
        most_accelerators=float(finance.burst_rental.most_accelerators),
        accelerator_h_per_request=np.divide(1.0, best, out=np.full(best.shape, np.inf), where=best > 0),
    )
