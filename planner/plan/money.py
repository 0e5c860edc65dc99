"""Prices and rates that turn a run into dollars, compiled."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from planner.arrays import Floats
from planner.finance.depreciation import ResaleCurve
from planner.finance.loan import LoanTerms
from planner.finance.present_value import Timing
from planner.finance.purchase import Quote, choose_quote
from planner.finance.tariffs import Tariff
from planner.finance.tax import TaxRules


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildingPlan:
    """A building that the site owns."""

    cost_usd: float
    land_usd: float
    """Never written off."""
    opened_h: float
    """When it is paid and in service; below zero for one owned before the start."""
    life_months: int
    upkeep_fraction_per_year: float
    property_tax_fraction_per_year: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapitalPlan:
    """How purchases are written off, and what they are worth."""

    depreciation_months: tuple[int, ...]
    """Book life, by cluster."""
    declining_factor: float
    """0 for straight line."""
    residual_fraction: tuple[float | None, ...]
    """Book value left at the end of book life, as a share of cost, by cluster; None for what the resale curve gives."""
    resale: tuple[ResaleCurve, ...]
    """What used servers fetch, by cluster."""
    components: tuple[tuple[tuple[int, float | None], ...] | None, ...] = ()
    """Book life and residual of accelerators, hosts, network and storage, by cluster; None or nothing at all where they
    share the cluster's."""
    end_value: str
    """market or none: what is still owned on the last day counts at resale value, or at nothing."""
    discount_rate_per_year: float
    timing: Timing
    """When what runs through a month counts."""
    inflation_per_year: float
    """By which nominal dollars are turned into those of the first day."""
    fiscal_year_start_month: int
    opening_cash_usd: float
    property_tax_fraction_per_year: float
    loan: LoanTerms | None
    building: BuildingPlan | None

    def has_components(self, cluster: int) -> bool:
        """Return whether the parts of a cluster have books of their own."""
        return bool(self.components) and self.components[cluster] is not None

    def books_of(self, cluster: int, component: int) -> tuple[int, float | None]:
        """Return book life and residual of a cluster's parts of one kind, or of all of them (−1)."""
        parts = self.components[cluster] if self.components else None
        return (
            (self.depreciation_months[cluster], self.residual_fraction[cluster]) if parts is None else parts[component]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RentPlan:
    """What a cluster's machines cost where they are not bought."""

    usd_per_accelerator_h: Floats
    """Rent of an hour by month, shape (months,)."""
    when_used: bool
    """Whether only hours at work are paid, or all of them."""
    is_hosted: bool
    """Whether the provider pays power, space, repairs and those who run the site."""
    exit_usd_per_accelerator: float = 0.0
    """What is owed when the cluster is retired before its term ends."""
    bound_usd_per_accelerator: float = 0.0
    """What the term that runs on the last day binds after it, which no figure counts."""
    interruptions_per_h: float = 0.0
    """How often a node in service is taken back."""
    interruption_h: float = 0.0
    """Mean time until another takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPricePlan:
    """What energy, space and emissions cost."""

    tariff: Tariff
    """For the demand charge and its ratchet."""
    monthly_usd_per_kwh: Floats
    """Energy price by month where it does not depend on the hour, shape (months,)."""
    hourly_usd_per_kwh: Floats | None
    """Energy price of every hour, shape (hours,); None where the monthly price says it all."""
    colocation_usd_per_kw_month: float
    colocation_escalator_per_year: float
    grid_carbon_g_per_kwh: float
    carbon_usd_per_tonne: Floats
    """Price of emissions by month, shape (months,)."""
    embodied_kg: Floats
    """Emissions of making one node, shape (clusters,); NaN where nobody has published any."""
    service_life_months: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPlan:
    """People, contracts and parts."""

    operations_fraction_per_year: float
    insurance_fraction_per_year: float
    engineer_usd_per_year: float
    staff_per_accelerator: float
    staff_usd_per_year: float
    crew_usd_per_year: float
    support_usd_per_accelerator_year: float
    licence_usd_per_accelerator_year: float
    escalator_per_year: float
    """Yearly rise of salaries, support and licences."""
    part_usd: Floats
    """Price of a spare part for the stock, shape (clusters,)."""
    rma_usd: float
    """Freight and handling of each hard failure."""
    replacement_usd: Floats
    """Price of a part after the warranty, shape (clusters,)."""
    warranty_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePath:
    """Prices of tokens by month, shape (months,) each."""

    input_usd_per_million_tokens: Floats
    """Of prompt tokens that have to be computed."""
    cached_input_usd_per_million_tokens: Floats
    """Of prompt tokens found in the prefix cache."""
    output_usd_per_million_tokens: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstPlan:
    """Accelerators rented by the hour for what would be shed."""

    usd_per_accelerator_h: float
    most_accelerators: float
    accelerator_h_per_request: Floats
    """Accelerator-hours a request takes, shape (workloads, months or 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPlan:
    """What the plan sells, promises, and is held against."""

    token_price: PricePath | None
    api_price: PricePath | None
    rental_usd_per_accelerator_h: Floats | None
    """Rent elsewhere by month, shape (months,)."""
    burst: BurstPlan | None
    sla_objective_fraction: float
    sla_credit_usd_per_million_tokens: float
    tax: TaxRules | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPlan:
    """Everything about money that does not change between replications."""

    capital: CapitalPlan
    power: PowerPricePlan
    upkeep: UpkeepPlan
    market: MarketPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceBook:
    """What orders of one cluster's accelerators cost, by date and size."""

    start: date
    list_price: Quote
    """The standing price, always there; it moves with the market."""
    quotes: tuple[Quote, ...]
    """Offers that hold for some dates; they do not move."""

    def accelerator_usd(self, order_date: date, accelerators: int, list_factor: float = 1.0) -> float:
        """Return the price of one accelerator in an order; of the offers that hold, the one that began last counts."""
        holding = [quote for quote in self.quotes if quote.holds_on(order_date)]
        if holding:
            return choose_quote(holding, order_date).order_cents(accelerators) / 100 / accelerators
        return self.list_price.order_cents(accelerators) / 100 / accelerators * list_factor
