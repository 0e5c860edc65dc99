"""Contracts compiled: what an accelerator-hour costs month by month, and what leaving early does."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np

from planner.catalog.load import Catalog
from planner.errors import ScenarioError
from planner.finance.lease import LeaseTerms
from planner.finance.months import MonthGrid, add_months
from planner.finance.rent import left_of_term_usd, mean_price_usd_per_h, term_prices_usd_per_h
from planner.finance.unit_costs import price_path
from planner.plan.money import RentPlan
from planner.scenario.cluster import Cluster
from planner.scenario.contract import FinanceLease, OnDemand, OperatingLease, Reserved, Spot
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR

_TERM_PRIORS = {12: "1yr", 36: "3yr"}
"""Terms in months for which the catalogue may have rents, by the word in its names."""


def rent_plan(scenario: Scenario, name: str, catalog: Catalog) -> RentPlan | None:
    """Compile the contract of a cluster that is rented; None for others."""
    cluster, grid = scenario.clusters[name], MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    contract = cluster.contract
    if contract is None or isinstance(contract, FinanceLease):
        return None
    rent = _rent_usd_per_h(scenario, name, catalog)
    match contract:
        case Reserved() | OperatingLease():
            return _term(cluster, contract, rent, grid)
        case OnDemand() | Spot():
            path = price_path(rent, -contract.change_per_year, grid.offset_months)
            by_the_hour = RentPlan(usd_per_accelerator_h=path, when_used=True, is_hosted=True)
            if isinstance(contract, OnDemand):
                return by_the_hour
            per_h = contract.interruptions_per_year / HOURS_PER_YEAR
            return replace(by_the_hour, interruptions_per_h=per_h, interruption_h=contract.interruption_h)


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
    """Return the day on which a cluster leaves service: as stated, or as its lease ends and it goes back."""
    lease = cluster.contract
    if not isinstance(lease, FinanceLease) or lease.at_end == "buy":
        return cluster.retire
    ends = add_months(cluster.online or start, lease.term_months)
    return min(ends, cluster.retire or ends)


def _rent_usd_per_h(scenario: Scenario, name: str, catalog: Catalog) -> float:
    """Return the rent stated, or the catalogue's for the part and kind of contract."""
    cluster = scenario.clusters[name]
    contract = cluster.contract
    assert isinstance(contract, Reserved | OperatingLease | OnDemand | Spot)
    if contract.usd_per_accelerator_h is not None:
        return contract.usd_per_accelerator_h
    prior = rent_prior(cluster)
    if prior not in catalog.priors:
        message = f"the catalogue has no rent of {cluster.accelerator} for this contract (prior {prior})"
        place = ("clusters", name, "contract")
        raise ScenarioError(scenario.document.problem(place, message, "state usd_per_accelerator_h"))
    return catalog.priors[prior].base


def rent_prior(cluster: Cluster) -> str:
    """Return the name under which the catalogue has the rent of a cluster's contract, if at all."""
    match cluster.contract:
        case Reserved(term_months=months):
            span = _TERM_PRIORS.get(months, f"{months}m")
        case OnDemand():
            span = "ondemand"
        case _:
            span = "spot"
    return f"rent_{span}_{cluster.accelerator.lower()}"


def _term(cluster: Cluster, contract: Reserved | OperatingLease, rent: float, grid: MonthGrid) -> RentPlan:
    """Compile a term: its price by month, renewals included, and the price of leaving."""
    signed = cluster.online or grid.start
    edges = [signed]
    while edges[-1] <= max(grid.end, cluster.retire or grid.end):
        edges.append(add_months(signed, len(edges) * contract.term_months))
    edge_h = np.array([(day - grid.start).days * HOURS_PER_DAY for day in edges], dtype=np.float64)
    prices = term_prices_usd_per_h(rent, contract.change_per_year, edge_h[:-1])
    leaves = min(cluster.retire or grid.end, grid.end)
    left = left_of_term_usd((leaves - grid.start).days * HOURS_PER_DAY, edge_h, prices)
    return RentPlan(
        usd_per_accelerator_h=mean_price_usd_per_h(grid.edge_hours.astype(np.float64), edge_h, prices),
        when_used=False,
        is_hosted=isinstance(contract, Reserved),
        exit_usd_per_accelerator=left * contract.exit_fee_fraction if leaves < grid.end else 0.0,
        bound_usd_per_accelerator=left if leaves == grid.end else 0.0,
    )
