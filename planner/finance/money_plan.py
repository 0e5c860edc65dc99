"""The money of a plan: prices, rates and contracts as the arithmetic reads them, the same in every replication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date

import numpy as np

from planner.arrays import Bools, Floats
from planner.demand.plan import Streams, on_off_fraction
from planner.finance.accounts import Account, Driver
from planner.finance.depreciation import ResaleCurve, TaxRules
from planner.finance.financing import Books, LoanTerms, Quote, choose_quote
from planner.finance.present_value import CashFlowTiming
from planner.finance.tariffs import EnergyTariff
from planner.records import record
from planner.units import HOURS_PER_DAY

BookLives = tuple[tuple[int, float | None], ...]
"""Book life in months and residual of accelerators, hosts, network and storage."""


@record
class CapitalPlan:
    """Depreciation, residual values and resale of purchases."""

    depreciation_months: tuple[int, ...]
    """Book life, by cluster."""
    declining_factor: float
    """0 for straight line."""
    residual_fraction: tuple[float | None, ...]
    """Book value left at the end of book life, as a share of cost, by cluster; None for what the resale curve gives."""
    resale: tuple[ResaleCurve, ...]
    """What used servers fetch, by cluster."""
    components: Mapping[int, BookLives] = field(default_factory=dict)
    """Book life and residual of accelerators, hosts, network and storage, by cluster whose parts do not share its."""
    end_value: str
    """market or none: what is still owned on the last day counts at resale value, or at nothing."""
    discount_rate_per_year: float
    timing: CashFlowTiming
    """When what runs through a month counts."""
    fiscal_year_start_month: int
    opening_cash_usd: float
    books: Books
    borrowing_rate_per_year: float
    """Nominal, at which rent to come is worth what leases owe."""
    receivable_days: float
    payable_days: float
    property_tax_fraction_per_year: float
    loan: LoanTerms | None

    def books_of(self, cluster: int, component: int) -> tuple[int, float | None]:
        """Return book life and residual of one component of a cluster, or of all its components (−1)."""
        if cluster in self.components:
            return self.components[cluster][component]
        return self.depreciation_months[cluster], self.residual_fraction[cluster]


@record
class HourlyTerms:
    """Terms of machines rented by the hour, of clusters and of burst rental alike."""

    accelerator: str
    """Whoever rents it is sold out together."""
    usd_per_accelerator_h: Floats
    """Rent of an hour by month, shape (months,)."""
    startup_h: float
    hold_h: int
    """Hours for which a machine is held after it was last needed, its minimum counted."""
    available_fraction: float
    gap_days: float

    def on_offer(self, hours: int, streams: Streams) -> Bools:
        """Draw the hours in which machines can be had, shape (hours,): spells and gaps of exponential lengths."""
        share = self.available_fraction
        gap_h = self.gap_days * HOURS_PER_DAY
        # Always or never on offer: nothing is drawn, so the stream of other replications does not shift.
        if share in (0.0, 1.0):
            return np.full(hours, share == 1.0)
        generator = streams(f"rental/{self.accelerator}")
        # Mean spell s and gap g give a share s / (s + g) of the time, so s = g · share / (1 − share).
        spell_h = gap_h * share / (1.0 - share)
        return on_off_fraction(spell_h, gap_h, hours, generator) > 0.5


@record
class RentPlan:
    """Rent and terms of a cluster whose machines are not bought."""

    usd_per_accelerator_h: Floats
    """Rent of an hour by month, shape (months,)."""
    is_hosted: bool
    """Whether the provider pays power, space, repairs and those who run the site."""
    hourly: HourlyTerms | None = None
    """By which nodes are held where they are rented by the hour; None where all are, for a term."""
    warm_nodes: float = 0.0
    """Of those, held at all times; infinity for all."""
    exit_usd_per_accelerator: float = 0.0
    """What is owed when the cluster is retired before its term ends."""
    bound_usd_per_accelerator: float = 0.0
    """What the term that runs on the last day binds after it, which no measure counts."""
    term_edge_h: tuple[float, ...] = ()
    """When each term is signed, and the last one ends; none where it is rented by the hour."""
    term_usd_per_h: tuple[float, ...] = ()
    """Rent of an accelerator's hour in each."""
    is_lease: bool = False
    """Whether it is a lease of identified machines, and not a service."""
    interruptions_per_h: float = 0.0
    """How often a node in service is taken back."""
    interruption_h: float = 0.0
    """Mean time until another takes its place."""
    together_fraction: float = 0.0
    """Share of interruptions that take all nodes of the accelerator at once."""


@record
class PowerPricePlan:
    """Prices of energy, space and emissions."""

    tariff: EnergyTariff
    """For the demand charge and its ratchet."""
    monthly_usd_per_kwh: Floats
    """Energy price by month where it does not depend on the hour, shape (months,)."""
    hourly_usd_per_kwh: Floats | None
    """Energy price of every hour, shape (hours,); None where the monthly price says it all."""
    colocation_usd_per_kw_month: float
    colocation_escalator_per_year: float
    colocation_term_months: int
    grid_carbon_g_per_kwh: float
    carbon_usd_per_tonne: Floats
    """Price of emissions by month, shape (months,)."""
    embodied_kg: Floats
    """Emissions of making one node, shape (clusters,); NaN where nobody has published any."""
    service_life_months: float


YEARLY_DRIVERS = (Driver.CAPITAL_IN_SERVICE, Driver.ENGINEERS, Driver.STAFF, Driver.ACCELERATORS)
"""Quantities that are paid for by the year."""


@record
class UpkeepPlan:
    """Costs of staff, support contracts, insurance and spare parts."""

    yearly_usd: Mapping[Account, float]
    """Price of a unit of an account's driver for a year: of an accelerator, a person, a dollar of machines."""
    staff_per_accelerator: float
    crew_usd_per_year: float
    """Of a repair crew, posted with the operations staff."""
    escalator_per_year: float
    """Yearly rise of these prices, but of shares of what machines cost."""
    part_usd: Floats
    """Price of a spare part for the stock, shape (clusters,)."""
    rma_usd: float
    """Freight and handling of each hard failure."""
    replacement_usd: Floats
    """Price of a part after the warranty, shape (clusters,)."""
    warranty_h: float

    def __post_init__(self) -> None:
        """Raise an error for a yearly account without a price: it would cost nothing in silence."""
        for account in Account:
            if account.driver in YEARLY_DRIVERS and account not in self.yearly_usd:
                raise ValueError(
                    f"the account {account} has no price in planner/finance/pricing.py"
                )
            if account in self.yearly_usd and account.driver not in YEARLY_DRIVERS:
                raise ValueError(
                    f"the account {account} has a yearly price and a driver, {account.driver}, that is not in "
                    "YEARLY_DRIVERS of planner/finance/money_plan.py"
                )


TOKEN_KINDS = ("input", "cached_input", "output")
"""Prompt tokens that are computed, those found in the prefix cache, and generated ones: each has a price of its own."""


@record
class ApiPlan:
    """An API in place of a cluster's machines."""

    prices: Floats
    """USD per million tokens, the mean of each month, shape (months, workloads, kinds)."""
    is_listed: Bools
    """Whether what it asks for a workload changes with the market's lists, shape (workloads,)."""
    workloads: tuple[int, ...]
    """Those that it may serve."""
    serves_all: bool
    """Whether it serves before the clusters, or what they would shed."""
    most_tokens_per_h: float


@record
class BurstPlan:
    """Instances rented on demand for requests that would be shed."""

    most_accelerators: float
    accelerators_per_instance: int
    hourly: HourlyTerms
    accelerator_h_per_request: Floats
    """Accelerator-hours a request takes, shape (workloads, months or 1)."""


@record
class MarketPlan:
    """Prices at which the plan sells, SLA credits, tax, and the market prices it is compared with."""

    token_price: Floats | None
    """USD per million tokens, the mean of each month, 0 for a workload that is not sold; shape (months, workloads,
    kinds); None where none is."""
    is_listed: Bools
    """Whether what a workload is sold at changes with the market's lists, shape (workloads,)."""
    api_price: Floats | None
    """The same prices of an API."""
    is_api_listed: bool
    """Whether these change with the market's lists."""
    price_change_per_year: float
    """Yearly change of the market's lists."""
    burst: BurstPlan | None
    sla_objective_fraction: float
    sla_credit_usd_per_million_tokens: float
    tax: TaxRules | None


@record
class MoneyPlan:
    """All prices, rates and contracts that are the same in every replication."""

    capital: CapitalPlan
    power: PowerPricePlan
    upkeep: UpkeepPlan
    market: MarketPlan


@record
class PriceBook:
    """Prices of one cluster's accelerators by order date and order size."""

    start: date
    list_price: Quote
    """The standing price, always there; it moves with the market."""
    quotes: tuple[Quote, ...]
    """Offers that hold for some dates; they do not move."""

    def accelerator_usd(
        self, order_date: date, accelerators: int, list_factor: float = 1.0
    ) -> float:
        """Return the price of one accelerator in an order, from the valid quote that began last."""
        if (quote := choose_quote(self.quotes, order_date)) is not None:
            return quote.order_cents(accelerators) / 100 / accelerators
        return self.list_price.order_cents(accelerators) / 100 / accelerators * list_factor
