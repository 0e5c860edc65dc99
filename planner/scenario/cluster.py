"""Clusters: machines bought, leased or rented, their prices, and their dates in service."""

import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from planner.scenario.fields import (
    BelowOne,
    Fraction,
    LifeMonths,
    NonNegative,
    Plausible,
    Positive,
    PositiveFraction,
    Price,
    Spread,
    Weeks,
    YearlyChange,
)
from planner.validation import Strict

# From the cheapest offer known, spot, to the dearest, the newest part on demand.
Rent = Annotated[Positive, Plausible.prior("rent_spot_h200", "rent_ondemand_b200")]
# A module alone is the lowest price, a whole server's share the highest.
AcceleratorPrice = Annotated[Price, Plausible.prior("gpu_module_price_mi325x", "capex_allin_b200")]
# Rents have risen as fast as they fell: both directions are wide.
RentChange = Annotated[
    YearlyChange,
    Plausible(-0.75, 0.9, "three-year rents rose by 21 to 81% from August 2025 to July 2026"),
]
BookLife = Annotated[
    LifeMonths, Plausible(12, 96, "prior book_life has 3 to 6 years; two years more on either side")
]
Residual = Annotated[
    Fraction,
    Plausible(
        0, 0.6, "resale values: 0.1 (prior resale_36m_amd) to 0.65 (prior resale_12m_nvidia)"
    ),
]
# Ten years at most: no provider offers longer, and a slip of years for months is caught.
TermMonths = Annotated[int, Field(ge=1, le=120), Plausible(1, 60, "from one month to five years")]


TokenPriceChange = Annotated[
    YearlyChange,
    Plausible(
        -0.98, 3, "wider than the priors token_price_change and api_price_decline_fixed_quality"
    ),
]
_APIS = "assumption: from below the cheapest to above the most expensive API"


class TokenPrice(Strict):
    """Prices per million tokens that may change from year to year; the word api means the catalogue's prices."""

    # An editor must offer the word as well as the mapping: the model itself only knows the latter.
    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema.update(
            anyOf=[{"type": schema.pop("type")}, {"const": "api"}]
        )
    )

    input_usd_per_million_tokens: Annotated[Price, Plausible(0.005, 200, _APIS)] | None = None
    """Price of a million prompt tokens on the first day. Default: the catalogue's API price of the model."""
    output_usd_per_million_tokens: Annotated[Price, Plausible(0.005, 1000, _APIS)] | None = None
    """Price of a million generated tokens on the first day. Default: the catalogue's API price of the model."""
    cached_input_usd_per_million_tokens: Annotated[Price, Plausible(0.0002, 100, _APIS)] | None = (
        None
    )
    """Price of a million prompt tokens found in the prefix cache (a workload's prefix_cache_hit_fraction) on the first
    day. Default: the input price times the ratio of the model's cached to its input price in the catalogue, or times
    0.2 (the median of hosts' lists) if the catalogue has no cached price."""
    change_per_year: TokenPriceChange | None = None
    """Yearly change of all these prices; -0.5 means half as much a year later.
    Default: finance.token_price_change_per_year."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, stated: Any) -> Any:
        # Prices left open are the catalogue's, so the word is a mapping that states none.
        if stated == "api":
            return {}
        return stated

    @model_validator(mode="after")
    def _cached_is_not_dearer(self) -> "TokenPrice":
        cached = self.cached_input_usd_per_million_tokens
        plain = self.input_usd_per_million_tokens
        # No list asks more for what is already computed: two figures that changed places.
        if cached is not None and plain is not None and cached > plain:
            raise ValueError(
                f"a cached prompt token at {cached:g} costs more than a fresh one at {plain:g}; swapped?"
            )
        return self


class Reserved(Strict):
    """Machines reserved at a provider, paid whether used or not; the provider pays power, space and repairs."""

    kind: Literal["reserved"]
    """Reserved capacity, take or pay."""
    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour, for a contract signed on the first day. Default: the catalogue's rent for
    the accelerator and a term of 12 or 36 months, if it has one (priors rent_1yr_h200, rent_3yr_h200 and so on)."""
    term_months: TermMonths = 36
    """Months of the contract, which is then renewed at the market rent of that day. Default 36: the longest usual
    term."""
    change_per_year: RentChange = 0.0
    """Yearly change of market rent, which counts only when the contract is signed or renewed. Default 0: market rent
    stays as it is today."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 1, "any share")] = 1.0
    """Share of the rent for the rest of the term that is due if the cluster is retired earlier. Default 1: take or pay,
    so all of it is due."""
    identified_machines: bool = False
    """Whether the contract names machines that the provider may not replace. It is then a lease, and on the balance
    sheet if its term exceeds a year. Default false: a service in which the provider chooses the machines."""


class OperatingLease(Strict):
    """Machines leased for a term and run on your own site: rent replaces capital, and you pay the running costs."""

    kind: Literal["operating-lease"]
    """Operating lease, in which the lessee pays all running costs."""
    usd_per_accelerator_h: Rent
    """Lease rate of one accelerator for an hour, including host and network, for a lease signed on the first day."""
    term_months: TermMonths = 36
    """Months of the lease, which is then renewed at the market rate of that day. Default 36: lessors offer 36 to 60."""
    change_per_year: RentChange = 0.0
    """Yearly change of the market rate, which counts only when the lease is signed or renewed. Default 0: the market
    rate stays as it is today."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 1, "any share")] = 1.0
    """Share of the payments for the rest of the term that is due if the cluster is retired earlier. Default 1: all of
    it is due."""


class FinanceLease(Strict):
    """Machines leased as if bought with a loan: an asset and a debt on the balance sheet; you pay the running costs.

    The monthly payment follows from the cluster's prices, the rate and the buy-out.
    """

    kind: Literal["finance-lease"]
    """Finance lease, which begins on the day the cluster comes online and is paid at the end of each of its months."""
    rate_per_year: Annotated[Fraction, Plausible.prior("lease_rate")]
    """Nominal yearly rate implicit in the payments; one twelfth of it is charged each month."""
    term_months: TermMonths = 36
    """Months of the lease. Default 36: lessors offer 36 to 60."""
    at_end: Literal["buy", "return"] = "buy"
    """What happens when the term ends: the machines are bought out and stay in service, or they go back. Default buy:
    the price of the buy-out is so low that the purchase is certain."""
    buy_out_fraction: Annotated[BelowOne, Plausible(0, 0.5)] = 0.1
    """Price of the buy-out as a share of the machines' cost; the payments cover the rest. If the machines go back, this
    is the value that the lessor expects them to have by then. Default 0.1: lessors offer a buy-out at one dollar or at
    10%."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 0.2)] = 0.0
    """Fee for ending the lease early (retire), as a share of the remaining debt, which is repaid as well. Machines that
    would be bought out are then sold; others go back. Default 0: no public figure was found."""


class HourlyRental(Strict):
    """Terms of machines rented by the hour: they start with a delay, are billed while held, and sell out at times."""

    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour on the first day. Default: the catalogue's rent for the accelerator (priors
    rent_ondemand_h200, rent_spot_h200 and so on)."""
    change_per_year: RentChange = 0.0
    """Yearly change of the rent, applied month by month. Default 0: rents stay as they are today."""
    startup_h: (
        Annotated[
            float,
            Field(ge=0, le=168),
            Plausible(0, 2, "published start-up times are 6 to 60 minutes"),
        ]
        | None
    ) = None
    """Hours from ordering a machine to its first request: it boots, fetches its image, loads the weights and starts the
    engine. These hours are billed. Default: the catalogue's time for the vendor, 0.5 for NVIDIA and 1 for AMD (priors
    rental_startup_nvidia and so on)."""
    hold_h: Annotated[int, Field(ge=1, le=8784), Plausible(1, 336, "from an hour to two weeks")] = (
        24
    )
    """Hours for which a machine that is not needed is kept before it is given back. Default 24: the length of the
    shortest AWS Capacity Block."""
    minimum_h: Annotated[int, Field(ge=1, le=8784), Plausible(1, 168, "from an hour to a week")] = 1
    """Shortest time billed for each start; a machine is held at least this long. Default 1: NVIDIA clouds state no
    minimum, and a run is simulated hour by hour."""
    available_fraction: (
        Annotated[Fraction, Plausible(0.02, 1, "from B200 in 2026 to all accelerators in 2025")]
        | None
    ) = None
    """Share of days on which machines are available. On other days no machine starts, and those already held stay.
    Default: the catalogue's share for the accelerator: H100 0.70, H200 0.21, B200 0.04, MI325X 0 (priors
    rental_available_h200 and so on)."""
    gap_days: (
        Annotated[
            float,
            Field(ge=0.1, le=3650),
            Plausible(0.5, 110, "from the mean gap of H100, 1.5 days, to the longest of B200, 106"),
        ]
        | None
    ) = None
    """Mean number of days for which no machine is available once the accelerator is sold out. It is sold out for all
    clusters that rent it at the same time. Default: the catalogue's figure for the accelerator: H100 1.5, H200 6.5,
    B200 24 (priors rental_gap_h200 and so on)."""


class RentedNodes(HourlyRental):
    """Nodes at a provider, paid while the load needs them; the provider pays power, space and repairs."""

    warm_nodes: (
        Annotated[int, Field(ge=0, le=1_000_000), Plausible(0, 25000, "same range as nodes")]
        | Literal["all"]
    ) = 0
    """Nodes that are held at all times once they are available; the word all holds every node. Default 0: as many are
    held as the load needs to meet the SLO target, in whole replicas, up to the cluster's nodes."""


class OnDemand(RentedNodes):
    """Nodes rented by the hour, as many as the load needs."""

    kind: Literal["on-demand"]
    """Rented by the hour."""


class Spot(RentedNodes):
    """On-demand nodes at a lower rent that the provider may take back; a node that is taken back is not billed."""

    kind: Literal["spot"]
    """Rented by the hour until someone pays more."""
    interruptions_per_year: (
        Annotated[
            float,
            Field(ge=0, le=8760),
            Plausible(0.5, 2000, "from once in two years to five times a day"),
        ]
        | None
    ) = None
    """Number of times a year that a node is taken back. Default: 2.3, the catalogue's prior spot_interruptions."""
    interruption_h: Annotated[
        Positive, Plausible(0.05, 720, "assumption: from minutes to a month")
    ] = 4.0
    """Mean hours until another node replaces a node that was taken back. Default 4: assumption."""
    together_fraction: Annotated[Fraction, Plausible(0, 1, "any share")] | None = None
    """Share of interruptions that take back all nodes of the accelerator at once. Default: 0.92, the catalogue's prior
    spot_co_interruption."""


class Api(Strict):
    """Tokens bought from an API: no machines, power, failures or engineers, and a price per token."""

    kind: Literal["api"]
    """An API that runs on somebody else's machines; all requests sent to it are assumed to meet their SLO."""
    serves: Literal["overflow", "all"] = "overflow"
    """Whether the API serves only requests that the clusters would shed, or all requests of the workloads with
    allow_api, before the clusters do. Default overflow: owned and rented machines work first."""
    token_prices: Annotated[dict[str, TokenPrice], Field(max_length=64, default_factory=dict)]
    """Token prices by model. Default: the catalogue's prices of the model, if it has any (planner catalog show
    MODEL)."""
    max_tokens_per_s: (
        Annotated[Positive, Plausible(100, 1e9, "from a small quota to more than any customer has")]
        | None
    ) = None
    """Highest number of prompt and generated tokens that the API accepts per second. Default: no limit."""


# The tag decides which fields are allowed, so that an error names those of one kind alone.
Contract = Annotated[
    Reserved | OperatingLease | FinanceLease | OnDemand | Spot | Api, Field(discriminator="kind")
]
ON_SITE = (OperatingLease, FinanceLease)
"""Contracts of machines that stand at the own site."""


class OrderPayment(Strict):
    """A deposit or milestone of an order: a share of its price paid on another day than delivery."""

    fraction: Annotated[PositiveFraction, Plausible(0.01, 1, "any share")]
    """Share of the order's price that is paid, the same for each shipment."""
    when: Literal["order", "delivery"] = "order"
    """Day from which the payment date is counted: the day of the order, or the day of each delivery, including slips.
    Default order: the payment is a deposit."""
    weeks: Annotated[Weeks, Plausible(0, 52)] = 0.0
    """Weeks from the day stated in when to the payment. Default 0: on that day."""


class Order(Strict):
    """A purchase order: its lead time, late or split deliveries, and nodes that fail acceptance."""

    placed: datetime.date
    """Day on which the order is placed; it may be before the start."""
    lead_weeks: Annotated[Weeks, Plausible(0.5, 104)] = 16.0
    """Quoted weeks from order to the first delivery. Default 16: four months (assumption)."""
    slip_weeks: Spread = Spread(low=0, base=2, high=12)
    """Weeks by which the delivery may slip. Default 0 / 2 / 12 (lowest / most likely / highest): assumption; newly
    released accelerators slipped two quarters and more."""
    deliveries: Annotated[int, Field(ge=1, le=100), Plausible(1, 52)] = 1
    """Number of equal shipments. Default 1: all nodes at once."""
    delivery_interval_weeks: Annotated[Weeks, Plausible(0.1, 52)] = 4.0
    """Weeks between shipments. Default 4: a month."""
    acceptance_failure_fraction: Annotated[Fraction, Plausible.prior("deployment_doa_rate")] = 0.07
    """Share of nodes that fail acceptance and first need a hard repair (one with a spare part). Default 0.07: 9 of 128
    H100 servers failed it."""
    payments: Annotated[tuple[OrderPayment, ...], Field(max_length=24)] = ()
    """Deposits, milestones and terms; the rest is paid on delivery. Payments are lost for nodes that are never
    delivered because their cluster is retired earlier. Default: all on delivery (assumption; no public terms were
    found)."""

    @model_validator(mode="after")
    def _paid_once(self) -> "Order":
        total = sum(payment.fraction for payment in self.payments)
        # Thirds in decimals add up to a little more than one.
        if total > 1.0 + 1e-9:
            raise ValueError(
                f"the payments are {total:.4g} of the price; together they are at most 1"
            )
        return self


class Owned(Strict):
    """Machines owned before the start, with their original cost and book value."""

    bought: datetime.date
    """Day on which these machines were delivered and paid, before the start. Age, warranty, resale and tax depreciation
    count from that day."""
    cost_usd: (
        Annotated[
            NonNegative, Plausible(1000, 5e10, "from one used accelerator to the largest sites")
        ]
        | None
    ) = None
    """Original cost of all these machines together. Default: the cluster's prices, as quoted on the day they were
    bought."""
    book_value_usd: Annotated[NonNegative, Plausible(0, 5e10, "same range as cost_usd")] | None = (
        None
    )
    """Book value of all these machines on the first day of the scenario. Default: their cost less depreciation since
    the day they were bought."""
    remaining_months: (
        Annotated[
            int,
            Field(ge=0, le=240),
            Plausible(0, 96, "no longer than the longest plausible depreciation_months"),
        ]
        | None
    ) = None
    """Months over which the book value is written off, down to the residual value. Default: what is left of the book
    life, rounded up to whole months."""

    @model_validator(mode="after")
    def _book_within_cost(self) -> "Owned":
        cost = self.cost_usd
        book_value = self.book_value_usd
        # Books write down, never up: a higher value is a slip of one of the two.
        if cost is not None and book_value is not None and book_value > cost:
            raise ValueError(f"a book value of {book_value:,.2f} is above the cost, {cost:,.2f}")
        return self


class VolumeDiscount(Strict):
    """A volume discount from a given number of accelerators."""

    from_accelerators: Annotated[
        int, Field(ge=1, le=10_000_000), Plausible(1, 200000, "the largest clusters announced")
    ]
    """Number of accelerators in one order from which the discount applies."""
    discount_fraction: Annotated[BelowOne, Plausible(0.002, 0.6)]
    """Share taken off the price."""


class PriceQuote(Strict):
    """A vendor's quote: a price, volume discounts, and the order dates for which it is valid."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the quote, such as the vendor's."""
    accelerator_price_usd: AcceleratorPrice
    """Price of one accelerator before volume discount."""
    valid_from: datetime.date | None = None
    """First order date for which the quote is valid. Default: no first date."""
    valid_until: datetime.date | None = None
    """Last order date for which the quote is valid; later orders pay the cluster's unit price. Default: the quote does
    not expire."""
    volume_discounts: Annotated[tuple[VolumeDiscount, ...], Field(max_length=100)] = ()
    """Discounts by number of accelerators, in rising order. Default: none."""
    volume_rule: Literal["whole-order", "marginal"] = "whole-order"
    """Whether the highest tier reached sets the price of every accelerator, or each tier only the price of the
    accelerators within that tier. Default whole-order: the usual rule."""


class ResalePoint(Strict):
    """Resale value of a used server (accelerators and host) at one age; between ages it falls at a constant ratio."""

    age_months: Annotated[float, Field(gt=0, le=600), Plausible(1, 120)]
    """Months since the server was delivered."""
    fraction_of_new: Annotated[
        PositiveFraction, Plausible(0.01, 1, "a used server costs no more than a new one")
    ]
    """Resale price of the server at that age, as a share of its original cost."""


class ComponentBooks(Strict):
    """Depreciation of one kind of component of a cluster."""

    depreciation_months: (
        Annotated[
            int,
            Field(ge=1, le=240),
            Plausible(12, 120, "prior book_life has 3 to 6 years; networks are kept for up to ten"),
        ]
        | None
    ) = None
    """Book life of this kind of component. Default: the cluster's book life."""
    residual_fraction: (
        Annotated[Fraction, Plausible(0, 0.6, "same range as the cluster's residual_fraction")]
        | None
    ) = None
    """Book value of this kind of component at the end of its book life, as a share of its cost. Default: the cluster's
    residual_fraction."""


class Components(Strict):
    """Depreciation by kind of component, each recorded as a separate purchase."""

    accelerators: ComponentBooks = ComponentBooks()
    """Depreciation of the accelerators. Default: the cluster's, since accelerators are most of its cost."""
    hosts: ComponentBooks = ComponentBooks()
    """Depreciation of the servers around the accelerators. Default: the cluster's, since both are replaced together."""
    network: ComponentBooks = ComponentBooks()
    """Depreciation of switches, cables and adapters. Default: the cluster's, since both are replaced together."""
    storage: ComponentBooks = ComponentBooks()
    """Depreciation of storage. Default: the cluster's, since both are replaced together."""


class MeasuredAt(Strict):
    """The request lengths at which a throughput was measured or claimed."""

    input_tokens: Annotated[
        Positive, Plausible(1, 2000000, "from one token to the longest contexts sold")
    ]
    """Prompt tokens of a request."""
    output_tokens: Annotated[
        Positive, Plausible(1, 200000, "from one token to the longest answers sold")
    ]
    """Generated tokens of a request."""


class Speculation(Strict):
    """Speculative decoding: a draft model proposes tokens, and one step of the served model checks all of them."""

    drafted_tokens: Annotated[int, Field(ge=1, le=32), Plausible(1, 16)]
    """Tokens proposed per step."""
    mean_acceptance_length: Annotated[float, Field(ge=1, le=33), Plausible(1, 8)]
    """Mean number of tokens that a step yields: the proposed tokens that are accepted, and one more that the step
    always yields. Measure it on your own text (random tokens are accepted half as often)."""
    use: Literal["always", "auto"] = "always"
    """Which workloads use speculative decoding: all of them (always), with a warning for those of which a node then
    serves less, or only those of which a node then serves more (auto). Default: always."""

    @model_validator(mode="after")
    def _not_more_than_checked(self) -> "Speculation":
        # All drafts and the token that checking them yields: no step can give more.
        if self.mean_acceptance_length > self.drafted_tokens + 1:
            drafts = self.drafted_tokens
            raise ValueError(f"a step that checks {drafts} drafts yields at most {drafts + 1}")
        return self


class Cluster(Strict):
    """Nodes of one accelerator, bought together, run by one engine."""

    accelerator: str
    """Accelerator, by its catalogue name."""
    nodes: Annotated[
        int,
        Field(ge=0, le=1_000_000),
        Plausible(1, 25000, "the largest clusters announced, 200,000 accelerators"),
    ]
    """Number of nodes (servers)."""
    engine: str = "auto"
    """Serving engine. Default auto: among the engines that support the models on the accelerator, the one with which
    the cluster needs fewest nodes for all workloads; a second engine is used if it saves more than 5%. layouts.csv
    names the engines used."""
    engine_date: (
        Annotated[
            datetime.date, Field(ge=datetime.date(2024, 1, 1), le=datetime.date(2100, 12, 31))
        ]
        | None
    ) = None
    """Release date of the engine image that the cluster runs on the first day. Speed is adjusted from the date of the
    calibration's measurements to this date, by the rate at which the stack matures. Default: the date of the
    calibration's measurements."""
    precision: str | None = None
    """Precision in which this cluster serves, except for workloads that do not allow it. Default: among the precisions
    that a workload allows, the one in which a node serves most."""
    tensor_parallel: (
        Annotated[
            int, Field(ge=1, le=1024), Plausible(1, 72, "from one accelerator to a rack of 72")
        ]
        | None
    ) = None
    """Accelerators per replica; if prompts are prefilled on separate accelerators, per replica that decodes. Default:
    the number with which an accelerator serves most within the SLO."""
    attention: Literal["auto", "tensor-parallel", "data-parallel"] = "auto"
    """How attention of mixture-of-experts models is spread over the accelerators of a replica: each layer over all of
    them (tensor-parallel), or whole sequences over groups of them (data-parallel); the experts are spread either way.
    Default auto: the one that serves most, among the ways in which such models are run in practice; layouts.csv names
    it."""
    prefill_decode: Literal["colocated", "disaggregated", "auto"] = "auto"
    """Whether prompts are prefilled on separate accelerators (disaggregated), or by the same replicas that generate
    replies (colocated). Default auto: for each workload the one that serves most, among the ways in which such models
    are run in practice; layouts.csv names it."""
    max_sequences: (
        Annotated[
            int,
            Field(ge=1, le=1_000_000),
            Plausible(1, 16_384, "assumption: up to eight times the engines' default of 2,048"),
        ]
        | None
    ) = None
    """Sequences that the engine admits at the same time, per replica, or with data-parallel attention per group of
    accelerators that serves its own sequences. Default: 2,048, the default of the engines."""
    layouts: Literal["any", "measured"] = "any"
    """Which layouts are considered: all (any), or only the layouts and engines that were measured (measured), for a
    model that was measured on the accelerator. Default any: if nobody measured a layout, only a part of its predicted
    advantage counts."""
    chunk_tokens: (
        Annotated[
            int,
            Field(ge=16, le=1_000_000),
            Plausible(128, 65_536, "the range that engines are run with"),
        ]
        | None
    ) = None
    """Highest number of prompt tokens that one step computes in addition to the sequences that decode; workers that
    only prefill use 16,384. Default: for each workload the number that serves most within the SLO, among 1,024, 2,048
    and so on to 32,768, as in public runs; layouts.csv states it."""
    host_memory_usd_per_gb: Annotated[Price, Plausible.prior("host_memory_price")] | None = None
    """Price of one GB of host memory, for each GB by which host_memory_gb is above (or below) that of the catalogue's
    server. It changes the server's price, unless host_usd_per_node is stated. Default: 11, the catalogue's prior
    host_memory_price."""
    speculation: Speculation | None = None
    """Speculative decoding on this cluster. Default: none."""
    kv_offload: Literal["auto", "none", "host"] = "auto"
    """Whether host memory keeps prompts that are evicted from accelerator memory, for workloads that state their reuse:
    always (host), never (none), or only if a node then serves more (auto). Default auto: whichever serves more;
    layouts.csv says which."""
    host_memory_gb: (
        Annotated[
            float, Field(ge=0, le=1e6), Plausible(100, 12_000, "servers have 256 GB to 12 TB")
        ]
        | None
    ) = None
    """Host memory of one server, which may keep prompts evicted from accelerator memory. Default: the catalogue's
    memory for a server of the accelerator: 1,500 for H200, 3,200 for MI325X."""
    online: datetime.date | None = None
    """Day on which all nodes are paid and, if there is power, begin to serve. Default: the scenario's first day, unless
    the cluster has an order."""
    order: Order | None = None
    """A purchase order in place of a fixed date: lead time, slip, shipments, acceptance. Default: none."""
    contract: Contract | None = None
    """Contract for machines that are not bought: reserved, operating-lease, finance-lease, on-demand or spot. The kind
    api buys tokens instead, so the cluster has no accelerator and no nodes. Default: machines are bought."""
    owned: Owned | None = None
    """Machines already owned, which serve from the first day: no new capital is paid, and depreciation continues.
    Default: none."""
    retire: datetime.date | None = None
    """Day on which the cluster leaves service and is sold at the resale price for its age. Default: the cluster stays
    to the end."""
    depreciation_months: BookLife | None = None
    """Book life of the cluster. Default: finance.depreciation_months."""
    residual_fraction: Residual | None = None
    """Book value of the cluster at the end of its book life, as a share of cost. Default: as finance says
    (residual_fraction and residual_basis)."""
    components: Components | None = None
    """Book lives and residual values by kind of component. Default: those of the cluster, for all kinds."""
    throughput_tokens_per_s_per_accelerator: (
        Annotated[Positive, Plausible(1, 50000, "public benchmarks reach 28,312")] | None
    ) = None
    """Output tokens per second of one accelerator, measured or claimed, in place of what the throughput model predicts.
    It is scaled from the lengths in throughput_measured_at to those of each workload. No more than this throughput is
    served: excess requests are shed or wait. Default: the prediction of the throughput model."""
    throughput_measured_at: MeasuredAt | None = None
    """Request lengths at which the stated throughput was measured. Default none: required if a throughput is stated."""
    throughput_multiplier: Annotated[
        float,
        Field(gt=0, le=100),
        Plausible(
            0.1, 10, "public measurements differ from the throughput model by a factor of two"
        ),
    ] = 1.0
    """Factor on the throughput of an accelerator, e.g. what you measured divided by what the planner predicts. Default
    1: the prediction of the calibrated throughput model."""
    accelerator_price_usd: AcceleratorPrice | None = None
    """Price of one accelerator before discount. Default: the catalogue's price; where it has none, state one."""
    price_source: str = "stated in the scenario"
    """Source of accelerator_price_usd, in words. Default: the scenario itself."""
    discount_fraction: Annotated[BelowOne, Plausible(0, 0.6)] = 0.0
    """Discount on the accelerators. Default 0: list price until a quote says otherwise."""
    volume_discounts: Annotated[tuple[VolumeDiscount, ...], Field(max_length=100)] = ()
    """Further discounts by number of accelerators in one order, in rising order. Default: none."""
    quotes: Annotated[tuple[PriceQuote, ...], Field(max_length=100)] = ()
    """Quotes that replace unit price and discount for orders placed while they are valid. Default: none."""
    host_usd_per_node: Annotated[Price, Plausible.prior("host_price_per_node")] | None = None
    """Price of one server without its accelerators: chassis, CPUs, memory, NICs, disks. From a quote for a whole
    server, subtract its accelerators at accelerator_price_usd. No discount applies to this price. Default: the
    catalogue's price for a server of the accelerator."""
    resale_curve: Annotated[tuple[ResalePoint, ...], Field(max_length=60)] = ()
    """Resale value of the cluster's used servers by age, for retired nodes and for the end value. Default: the
    accelerator's curve in the catalogue if there is one (priors resale_12m_h200 and so on), else the vendor's curve
    (priors resale_12m_nvidia and so on)."""
    resale_multiplier: Annotated[
        NonNegative, Plausible.prior("resale_multiplier_amd", "resale_multiplier")
    ] = 1.0
    """Factor on the cluster's resale curve, in addition to finance.resale_multiplier. Default 1: the curve as it is."""
    embodied_kg_per_node: (
        Annotated[NonNegative, Plausible.prior("embodied_server_h200", "embodied_server_mi325x")]
        | None
    ) = None
    """Emissions from making one node, kgCO2e. Default: the catalogue's figure, if it has one."""

    @model_validator(mode="before")
    @classmethod
    def _without_machines(cls, raw: Any) -> Any:
        """Fill in that an API has no machines."""
        contract = None
        if isinstance(raw, dict):
            contract = raw.get("contract")
        # A mapping from a file, or a model where a scenario is made again from its parts.
        kind = getattr(contract, "kind", "")
        if isinstance(contract, dict):
            kind = contract.get("kind")
        if kind != "api":
            return raw
        # An API has no machines, and its file need not say so.
        return {"accelerator": "", "nodes": 0, **raw}

    @property
    def is_api(self) -> bool:
        """Whether it is an API in place of machines."""
        return isinstance(self.contract, Api)

    @model_validator(mode="after")
    def _consistent(self) -> "Cluster":
        owned = self.owned
        # A book value or life stated for all machines cannot be split by kind of part.
        is_restated = owned is not None and (
            owned.book_value_usd is not None or owned.remaining_months is not None
        )
        has_throughput = self.throughput_tokens_per_s_per_accelerator is not None
        acquisitions = [self.online, self.order, owned]
        ages = [point.age_months for point in self.resale_curve]
        contradictions = [
            (
                self.is_api and (self.accelerator or self.nodes),
                "an API has no machines: leave accelerator and nodes out",
            ),
            (
                has_throughput and self.throughput_measured_at is None,
                "throughput_tokens_per_s_per_accelerator needs the lengths at which it was measured, e.g. "
                "throughput_measured_at: {input_tokens: 1024, output_tokens: 1024}",
            ),
            (
                self.components and self.contract,
                "only machines that are bought have components: leave them out under a contract",
            ),
            (
                self.components and is_restated,
                "a book value or life of owned machines covers all their parts: leave components out",
            ),
            (
                self.contract and (self.order or owned),
                "machines under contract are neither ordered nor owned: state their first day as `online`",
            ),
            (
                acquisitions.count(None) < 2,
                "online, order and owned exclude each other: an order decides when its nodes come online, and owned "
                "machines serve from the first day",
            ),
            (
                has_throughput and self.prefill_decode == "disaggregated",
                "a stated throughput covers the whole cluster: leave prefill_decode out",
            ),
            (
                ages != sorted(set(ages)),
                "the ages of resale_curve must rise from point to point",
            ),
        ]
        for is_contradicted, message in contradictions:
            if is_contradicted:
                raise ValueError(message)
        return self
