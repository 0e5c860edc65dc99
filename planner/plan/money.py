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
from planner.finance.financing import LeaseTerms, mean_prices
from planner.finance.months import MonthGrid, add_months
from planner.finance.present_value import CashFlowTiming
from planner.finance.tariffs import escalation, hourly_prices_usd_per_kwh
from planner.plan import parts
from planner.plan.parts import TOKEN_KINDS, ApiPlan, HourlyTerms, RentPlan, as_stated
from planner.plan.plan import ClusterPlan
from planner.scenario.cluster import (
    Api,
    Cluster,
    FinanceLease,
    HourlyRental,
    OnDemand,
    OperatingLease,
    RentedNodes,
    Reserved,
    Spot,
    TokenPrice,
)
from planner.scenario.finance import Finance
from planner.scenario.scenario import Scenario
from planner.scenario.site import tariff_of, window_zone
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR
from planner.yaml_io import KeyPath

_SUPPORT_USD = {"none": 0.0, "standard": 300.0, "premium": 900.0}  # per accelerator and year


def money_plan(
    scenario: Scenario,
    catalog: Catalog,
    clusters: tuple[ClusterPlan, ...],
    grid: MonthGrid,
    rates: Floats,
) -> parts.MoneyPlan:
    """Compile all prices, rates and contracts; ``rates`` is the plan's requests per node and hour."""
    finance = scenario.finance
    software = scenario.software
    support = software.support_usd_per_accelerator_year
    burst = finance.burst_rental
    tax = finance.tax
    edges = grid.edge_coordinates - grid.edge_coordinates[0]
    accelerator_usd = np.array(
        [cluster.upkeep_prices_usd[0] / cluster.accelerators_per_node for cluster in clusters]
    )
    upkeep = as_stated(
        parts.UpkeepPlan,
        finance,
        engineer_usd_per_year=software.engineer_usd_per_year,
        staff_per_accelerator=finance.operations_staff_per_1000_accelerators / 1000.0,
        staff_usd_per_year=finance.operations_staff_usd_per_year,
        crew_usd_per_year=finance.repair_crew_usd_per_year,
        support_usd_per_accelerator_year=_SUPPORT_USD[software.support_contract]
        if support is None
        else support,
        escalator_per_year=_rise(finance, finance.people_escalator_per_year),
        part_usd=accelerator_usd * finance.spare_part_price_fraction,
        rma_usd=finance.rma_usd_per_repair,
        replacement_usd=accelerator_usd * finance.replacement_price_fraction,
        warranty_h=finance.warranty_months * HOURS_PER_YEAR / MONTHS_PER_YEAR,
    )
    terms = burst and _hourly_terms(
        scenario, ("finance", "burst_rental"), burst, burst.accelerator, "ondemand", grid, catalog
    )
    # Accelerators rented for bursts serve like the best cluster of the plan.
    per_node = np.array([cluster.accelerators_per_node for cluster in clusters])
    best = (np.nan_to_num(rates) / per_node[:, None, None]).max(axis=0)
    hours = np.divide(1.0, best, out=np.full(best.shape, np.inf), where=best > 0)
    market = as_stated(
        parts.MarketPlan,
        finance,
        token_price=_token_prices(
            scenario, catalog, edges, [load.token_price for load in scenario.workloads.values()]
        ),
        api_price=_token_prices(
            scenario,
            catalog,
            edges,
            [finance.api_price] * len(scenario.workloads),
            "finance",
            "api_price",
        ),
        burst=burst
        and as_stated(parts.BurstPlan, burst, hourly=terms, accelerator_h_per_request=hours),
        tax=tax and as_stated(TaxRules, tax, losses=LossRule(tax.losses.replace("-", "_"))),
    )
    power = _power(scenario, catalog, grid)
    return parts.MoneyPlan(
        capital=_capital(scenario, catalog), power=power, upkeep=upkeep, market=market
    )


def _capital(scenario: Scenario, catalog: Catalog) -> parts.CapitalPlan:
    finance, loan = scenario.finance, scenario.finance.loan
    common = None if finance.residual_basis == "vendor-prior" else finance.residual_fraction
    books = []
    resale = []
    components: dict[int, tuple[tuple[int, float | None], ...]] = {}
    for index, cluster in enumerate(scenario.clusters.values()):
        lease = lease_terms(cluster)
        keeps = lease is None or lease.is_bought
        life = cluster.depreciation_months or finance.depreciation_months
        residual = common if cluster.residual_fraction is None else cluster.residual_fraction
        if (
            lease is not None and not keeps
        ):  # what goes back is written off to nothing by then, and fetches nothing
            life = lease.term_months
            residual = 0.0
        books.append((life, residual))
        if (by := cluster.components) is not None:
            kinds = (by.accelerators, by.hosts, by.network, by.storage)
            shares = (
                residual if kind.residual_fraction is None else kind.residual_fraction
                for kind in kinds
            )
            lives = (kind.depreciation_months or life for kind in kinds)
            components[index] = tuple(zip(lives, shares, strict=True))
        stated = {point.age_months: point.fraction_of_new for point in cluster.resale_curve}
        points = stated or (
            {1.0: 1.0} if cluster.is_api else catalog.resale_fractions(cluster.accelerator)
        )
        multiplier = finance.resale_multiplier * cluster.resale_multiplier * keeps
        multiplier *= 1.0 - finance.selling_cost_fraction
        ages = tuple(points)
        fractions = tuple(points.values())
        resale.append(ResaleCurve(age_months=ages, fractions=fractions, multiplier=multiplier))
    # The discount rate has inflation in it (Fisher): (1 + r)·(1 + π) − 1 where r is a real one.
    inflation = finance.inflation_per_year if finance.discount_rate_basis == "real" else 0.0
    declining = finance.depreciation_method == "declining-balance"
    borrowed = (
        finance.borrowing_rate_per_year,
        loan and loan.rate_per_year,
        finance.discount_rate_per_year,
    )
    return as_stated(
        parts.CapitalPlan,
        finance,
        depreciation_months=tuple(life for life, _ in books),
        declining_factor=finance.declining_balance_ratio if declining else 0.0,
        residual_fraction=tuple(residual for _, residual in books),
        components=components,
        resale=tuple(resale),
        discount_rate_per_year=finance.discount_rate_per_year
        + inflation * (1.0 + finance.discount_rate_per_year),
        timing=CashFlowTiming(finance.cash_flow_timing),
        books=financing.Books(finance.books),
        borrowing_rate_per_year=next(rate for rate in borrowed if rate is not None),
        loan=loan
        and as_stated(
            financing.LoanTerms,
            loan,
            share_fraction=loan.share_of_purchases_fraction,
            amortisation=financing.Amortisation(loan.amortisation),
        ),
    )


def _rise(finance: Finance, stated: float | None) -> float:
    """Return the yearly rise of a price: its own, or else the general one."""
    return finance.inflation_per_year if stated is None else stated


def _power(scenario: Scenario, catalog: Catalog, grid: MonthGrid) -> parts.PowerPricePlan:
    site = scenario.site
    finance = scenario.finance
    entry = catalog.tariff(site.tariff)
    flat = (
        entry.energy_usd_per_kwh.value
        if site.electricity_usd_per_kwh is None
        else site.electricity_usd_per_kwh
    )
    tariff = replace(
        tariff_of(site, flat),
        escalator_per_year=_rise(finance, site.electricity.escalator_per_year),
    )
    by_hour = (
        hourly_prices_usd_per_kwh(tariff, grid, window_zone(site, entry))
        if site.electricity.windows
        else None
    )
    stated_g = site.grid_carbon_g_per_kwh
    embodied = []
    for cluster in scenario.clusters.values():
        published = (
            None
            if cluster.is_api
            else catalog.accelerator(cluster.accelerator).embodied_kg_per_node
        )
        unstated = published.value if published else np.nan
        embodied.append(
            unstated if cluster.embodied_kg_per_node is None else cluster.embodied_kg_per_node
        )
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


def _token_prices(
    scenario: Scenario,
    catalog: Catalog,
    edge_months: Floats,
    prices: list[TokenPrice | None],
    *where: str,
) -> Floats | None:
    """Return given prices of the workloads' tokens as the mean of each month; None where none is stated.

    What is not stated is the catalogue's, and cached input at its ratio where no list has it. Shape (months, workloads,
    kinds); ``where`` is the key that states them, unless the workloads do.
    """
    keys = [f"{kind}_usd_per_million_tokens" for kind in TOKEN_KINDS]
    table = np.zeros((edge_months.size - 1, len(prices), len(keys)))
    for place, (name, price) in enumerate(zip(scenario.workloads, prices, strict=True)):
        if price is None:
            continue
        model = scenario.workloads[name].model
        stated = [getattr(price, key) for key in keys]
        facts = [getattr(catalog.model(model), f"api_{key}") for key in keys]
        listed = [fact.value if fact else None for fact in facts]
        fresh, cached, output = (
            mine if mine is not None else its for mine, its in zip(stated, listed, strict=True)
        )
        if fresh is None or output is None:
            message = f"the catalogue has no API price of {model}"
            hint = f"state {keys[0]} and {keys[2]}"
            hint += ", or allow_api: false" if "contract" in where else ""
            raise ScenarioError(
                scenario.document.problem(
                    where or ("workloads", name, "token_price"), message, hint
                )
            )
        if cached is None or stated[:2] == [
            fresh,
            None,
        ]:  # a list's price of cached tokens goes with its own of others
            cached = catalog.prior("cached_input_price_ratio").base * fresh
        table[:, place] = np.outer(
            mean_prices(1.0, price.change_per_year, edge_months), (fresh, cached, output)
        )
    return table if any(price is not None for price in prices) else None


def api_plan(scenario: Scenario, name: str, grid: MonthGrid, catalog: Catalog) -> ApiPlan | None:
    """Compile a cluster that is an API, at the stated or the catalogue's prices by model; None for machines."""
    contract = scenario.clusters[name].contract
    if not isinstance(contract, Api):
        return None
    loads = scenario.workloads.values()
    asked = [
        contract.token_prices.get(load.model, TokenPrice()) if load.allow_api else None
        for load in loads
    ]
    edges = grid.edge_coordinates - grid.edge_coordinates[0]
    prices = _token_prices(scenario, catalog, edges, asked, "clusters", name, "contract")
    most = (
        np.inf
        if contract.max_tokens_per_s is None
        else contract.max_tokens_per_s * SECONDS_PER_HOUR
    )
    return ApiPlan(
        prices=np.zeros((edges.size - 1, len(asked), len(TOKEN_KINDS)))
        if prices is None
        else prices,
        workloads=tuple(w for w, load in enumerate(loads) if load.allow_api),
        serves_all=contract.serves == "all",
        most_tokens_per_h=most,
    )


def _or_prior(
    scenario: Scenario, path: KeyPath, stated: float | None, prior: str, catalog: Catalog
) -> float:
    """Return a figure as stated, or the base value of its prior; raise ScenarioError where there is neither."""
    if stated is None and prior not in catalog.priors:
        message = f"the catalogue has no figure for this contract (prior {prior})"
        raise ScenarioError(scenario.document.problem(path[:-1], message, f"state {path[-1]}"))
    return catalog.priors[prior].base if stated is None else stated


def hourly_priors(accelerator: str, kind: str, catalog: Catalog) -> dict[str, str]:
    """Return the catalogue's priors for what a rental by the hour leaves open, by key."""
    part = accelerator.lower()
    vendor = catalog.accelerator(accelerator).vendor.value
    priors = {
        "usd_per_accelerator_h": f"rent_{kind}_{part}",
        "startup_h": f"rental_startup_{vendor}",
    }
    priors |= {"available_fraction": f"rental_available_{part}", "gap_days": f"rental_gap_{part}"}
    spot = {
        "interruptions_per_year": "spot_interruptions",
        "together_fraction": "spot_co_interruption",
    }
    return priors | (spot if kind == "spot" else {})


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
        return _or_prior(scenario, (*place, key), getattr(stated, key), priors[key], catalog)

    rent = figure("usd_per_accelerator_h")
    available = figure("available_fraction")
    return HourlyTerms(
        accelerator=accelerator,
        usd_per_accelerator_h=mean_prices(
            rent, stated.change_per_year, grid.edge_coordinates - grid.edge_coordinates[0]
        ),
        startup_h=figure("startup_h"),
        hold_h=max(stated.hold_h, stated.minimum_h),
        available_fraction=available,
        gap_days=figure("gap_days") if 0.0 < available < 1.0 else 0.0,
    )


_TERM_PRIORS = {12: "1yr", 36: "3yr"}
"""Terms in months for which the catalogue may have rents, by the word in its names."""


def rent_plan(scenario: Scenario, name: str, grid: MonthGrid, catalog: Catalog) -> RentPlan | None:
    """Compile the contract of a rented cluster, at the stated or the catalogue's rent; None for others.

    A term has its price by month, renewals included, and the price of leaving.
    """
    cluster = scenario.clusters[name]
    contract = cluster.contract
    if contract is None or isinstance(contract, FinanceLease | Api):
        return None
    place = ("clusters", name, "contract")
    prior = rent_prior(cluster)
    if isinstance(contract, RentedNodes):
        kind = contract.kind.replace("-", "")
        warm = np.inf if contract.warm_nodes == "all" else contract.warm_nodes
        terms = _hourly_terms(scenario, place, contract, cluster.accelerator, kind, grid, catalog)
        rented = RentPlan(
            usd_per_accelerator_h=terms.usd_per_accelerator_h,
            is_hosted=True,
            hourly=terms,
            warm_nodes=warm,
        )
        if not isinstance(contract, Spot):
            return rented
        often = contract.interruptions_per_year
        together = contract.together_fraction
        return replace(
            rented,
            interruptions_per_h=(
                catalog.prior("spot_interruptions").base if often is None else often
            )
            / HOURS_PER_YEAR,
            interruption_h=contract.interruption_h,
            together_fraction=catalog.prior("spot_co_interruption").base
            if together is None
            else together,
        )
    rent = _or_prior(
        scenario, (*place, "usd_per_accelerator_h"), contract.usd_per_accelerator_h, prior, catalog
    )
    signed = cluster.online or grid.start
    edges = [signed]
    while edges[-1] <= max(grid.end, cluster.retire or grid.end):
        edges.append(add_months(signed, len(edges) * contract.term_months))
    edge_h = np.array([(day - grid.start).days * HOURS_PER_DAY for day in edges], dtype=np.float64)
    prices = financing.term_prices_usd_per_h(rent, contract.change_per_year, edge_h[:-1])
    leaves = min(cluster.retire or grid.end, grid.end)
    left = financing.left_of_term_usd((leaves - grid.start).days * HOURS_PER_DAY, edge_h, prices)
    return RentPlan(
        usd_per_accelerator_h=financing.mean_price_usd_per_h(
            grid.edge_hours.astype(np.float64), edge_h, prices
        ),
        is_hosted=isinstance(contract, Reserved),
        exit_usd_per_accelerator=left * contract.exit_fee_fraction if leaves < grid.end else 0.0,
        bound_usd_per_accelerator=left if leaves == grid.end else 0.0,
        term_edge_h=tuple(edge_h.tolist()),
        term_usd_per_h=tuple(prices.tolist()),
        is_lease=isinstance(contract, OperatingLease) or contract.identified_machines,
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
