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
BookLife = Annotated[LifeMonths, Plausible(12, 96, "prior book_life, 3 to 6 years, and two beyond")]
Residual = Annotated[
    Fraction, Plausible(0, 0.6, "priors resale_36m_amd 0.1 to resale_12m_nvidia 0.65")
]
# Ten years at most: no provider offers longer, and a slip of years for months is caught.
TermMonths = Annotated[int, Field(ge=1, le=120), Plausible(1, 60, "one month to five years")]


TokenPriceChange = Annotated[
    YearlyChange,
    Plausible(
        -0.98, 3, "priors token_price_change and api_price_decline_fixed_quality, and beyond"
    ),
]
_APIS = "assumption: below the cheapest and above the most expensive API"


class TokenPrice(Strict):
    """Prices per million tokens that may change from year to year; the word api stands for the catalogue's."""

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
    day. Default: the catalogue's with its input price, or else 0.2 of the input price: the median of hosts' lists."""
    change_per_year: TokenPriceChange | None = None
    """Yearly change of all; -0.5 is half as much a year later. Default: finance.token_price_change_per_year."""

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
    """Machines at a provider, reserved for a term and paid used or not; it pays power, space and repairs."""

    kind: Literal["reserved"]
    """Reserved capacity, take or pay."""
    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour if signed on the first day. Default: the catalogue's for the part and a
    term of 12 or 36 months, where it has one (priors rent_1yr_h200, rent_3yr_h200 and so on)."""
    term_months: TermMonths = 36
    """Months it is fixed for; then it is renewed at the rent of that day. Default 36: the longest usual."""
    change_per_year: RentChange = 0.0
    """Yearly change of the rent that is asked: it counts when signing and renewing. Default 0: today's."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 1, "a share")] = 1.0
    """Share of the rent to the term's end that is due when the cluster is retired before. Default 1: take or pay."""
    identified_machines: bool = False
    """Whether the contract names machines that the provider may not swap: then it is a lease, on the balance sheet
    where its term exceeds a year. Default false: a service, as capacity from a pool is."""


class OperatingLease(Strict):
    """Machines leased for a term and run on the own site: rent instead of capital, with own running costs."""

    kind: Literal["operating-lease"]
    """Operating lease, in which the lessee pays all running costs."""
    usd_per_accelerator_h: Rent
    """Lease rate of one accelerator, host and network included, for an hour if signed on the first day."""
    term_months: TermMonths = 36
    """Months it is fixed for; then it is renewed at the rate of that day. Default 36: 36 to 60 are offered."""
    change_per_year: RentChange = 0.0
    """Yearly change of the rate that is asked: it counts when signing and renewing. Default 0: today's."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 1, "a share")] = 1.0
    """Share of the rate to the term's end that is due when the cluster is retired before. Default 1: no way out."""


class FinanceLease(Strict):
    """Machines leased like a loan on their price: an asset and a debt on the balance sheet, own running costs.

    The monthly payment follows from the cluster's prices, the rate and the buy-out.
    """

    kind: Literal["finance-lease"]
    """Finance lease, paid at the end of each of its months from the day the cluster comes online."""
    rate_per_year: Annotated[Fraction, Plausible.prior("lease_rate")]
    """Nominal yearly rate implicit in the payments, a twelfth of it charged a month."""
    term_months: TermMonths = 36
    """Months of the lease. Default 36: 36 to 60 are offered."""
    at_end: Literal["buy", "return"] = "buy"
    """Whether the machines are bought out when the term ends and serve on, or go back and serve no longer. Default
    buy: a bargain price makes it sure."""
    buy_out_fraction: Annotated[BelowOne, Plausible(0, 0.5)] = 0.1
    """Price of the buy-out as a share of what the machines cost; the payments cover the rest. Where they go back it is
    what the lessor counts on. Default 0.1: one dollar or 10% are offered."""
    exit_fee_fraction: Annotated[Fraction, Plausible(0, 0.2)] = 0.0
    """Share of what is still owed that leaving before the term's end (retire) costs besides paying it off; machines
    that would be bought out are sold then, others go back. Default 0: no public figure was found."""


class HourlyRental(Strict):
    """Terms of machines rented by the hour: whole ones, started with a delay, billed while held, at times sold out."""

    usd_per_accelerator_h: Rent | None = None
    """Rent of one accelerator for an hour on the first day. Default: the catalogue's for the part (priors
    rent_ondemand_h200, rent_spot_h200 and so on)."""
    change_per_year: RentChange = 0.0
    """Yearly change of the rent, month by month. Default 0: today's."""
    startup_h: (
        Annotated[float, Field(ge=0, le=168), Plausible(0, 2, "6 to 60 minutes, published")] | None
    ) = None
    """Hours from asking for a machine to its first request: start, image, weights and engine. They are billed.
    Default: the catalogue's for the vendor, 0.5 of NVIDIA's and 1 of AMD's (priors rental_startup_nvidia and so on)."""
    hold_h: Annotated[int, Field(ge=1, le=8784), Plausible(1, 336, "an hour to two weeks")] = 24
    """Hours after which a machine that is not needed is given back. Default 24: the shortest AWS Capacity Block."""
    minimum_h: Annotated[int, Field(ge=1, le=8784), Plausible(1, 168, "an hour to a week")] = 1
    """Hours that are billed at least from each start; a machine is held for them. Default 1: NVIDIA clouds state no
    minimum, and the hour is the step of a run."""
    available_fraction: (
        Annotated[Fraction, Plausible(0.02, 1, "B200 in 2026 to all in 2025")] | None
    ) = None
    """Share of days on which machines can be had; at other times none starts, and those held stay. Default: the
    catalogue's for the part: H100 0.70, H200 0.21, B200 0.04, MI325X 0 (priors rental_available_h200 and so on)."""
    gap_days: (
        Annotated[
            float,
            Field(ge=0.1, le=3650),
            Plausible(0.5, 110, "1.5 days, H100, to the longest gap of B200"),
        ]
        | None
    ) = None
    """Mean days for which none can be had; whoever rents the same part is sold out together. Default: the catalogue's
    for the part: H100 1.5, H200 6.5, B200 24 (priors rental_gap_h200 and so on)."""


class RentedNodes(HourlyRental):
    """Nodes at a provider, held and paid while the load needs them; the provider pays power, space and repairs."""

    warm_nodes: (
        Annotated[int, Field(ge=0, le=1_000_000), Plausible(0, 25000, "as nodes")] | Literal["all"]
    ) = 0
    """Nodes that are held at all times, from when they can be had; all holds every node. Default 0: as many are held
    as the load needs within the SLO target, whole replicas counted, up to the cluster's nodes."""


class OnDemand(RentedNodes):
    """Nodes rented by the hour, as many as the load needs."""

    kind: Literal["on-demand"]
    """Rented by the hour."""


class Spot(RentedNodes):
    """On-demand nodes that the provider may reclaim, for a lower rent; a node that is taken back is not billed."""

    kind: Literal["spot"]
    """Rented by the hour until someone pays more."""
    interruptions_per_year: (
        Annotated[float, Field(ge=0, le=8760), Plausible(0.5, 2000, "twice a year to five a day")]
        | None
    ) = None
    """Times a year that a node is taken back. Default: the catalogue's, 2.3 (prior spot_interruptions)."""
    interruption_h: Annotated[Positive, Plausible(0.05, 720, "assumption: minutes to a month")] = (
        4.0
    )
    """Mean hours until another takes its place. Default 4: assumption."""
    together_fraction: Annotated[Fraction, Plausible(0, 1, "a share")] | None = None
    """Share of interruptions that take all nodes of the part at once. Default: the catalogue's, 0.92 (prior
    spot_co_interruption)."""


class Api(Strict):
    """Tokens bought from an API: no machines, power, failures or engineers, and a price per token."""

    kind: Literal["api"]
    """An API of somebody else's machines, taken to serve what it is sent within the SLO."""
    serves: Literal["overflow", "all"] = "overflow"
    """Whether it serves what the clusters would shed, or all requests of the workloads that allow_api, before them.
    Default overflow: what is owned or rented works first."""
    token_prices: Annotated[dict[str, TokenPrice], Field(max_length=64, default_factory=dict)]
    """Prices by model. Default: the catalogue's for the model, where it has one (planner catalog show MODEL)."""
    max_tokens_per_s: (
        Annotated[Positive, Plausible(100, 1e9, "a small quota to more than anyone has")] | None
    ) = None
    """Prompt and generated tokens that it takes at most. Default: as many as come."""


# The tag decides which fields are allowed, so that an error names those of one kind alone.
Contract = Annotated[
    Reserved | OperatingLease | FinanceLease | OnDemand | Spot | Api, Field(discriminator="kind")
]
ON_SITE = (OperatingLease, FinanceLease)
"""Contracts of machines that stand at the own site."""


class OrderPayment(Strict):
    """A deposit or milestone of an order: a share of its price paid on another day than delivery."""

    fraction: Annotated[PositiveFraction, Plausible(0.01, 1, "a share")]
    """Share of the price, of each shipment alike."""
    when: Literal["order", "delivery"] = "order"
    """What it is counted from: the day of the order, or that of each delivery, slips included. Default order: a
    deposit."""
    weeks: Annotated[Weeks, Plausible(0, 52)] = 0.0
    """Weeks after it. Default 0: on the day."""


class Order(Strict):
    """A purchase order: its lead time, late or split deliveries, and nodes that fail acceptance."""

    placed: datetime.date
    """Day the order is placed; may lie before the start."""
    lead_weeks: Annotated[Weeks, Plausible(0.5, 104)] = 16.0
    """Quoted weeks from order to the first delivery. Default 16: four months (assumption)."""
    slip_weeks: Spread = Spread(low=0, base=2, high=12)
    """Weeks by which the delivery may slip. Default 0 / 2 / 12: assumption; new parts slipped two quarters and more."""
    deliveries: Annotated[int, Field(ge=1, le=100), Plausible(1, 52)] = 1
    """Number of equal shipments. Default 1: all at once."""
    delivery_interval_weeks: Annotated[Weeks, Plausible(0.1, 52)] = 4.0
    """Weeks between shipments. Default 4: a month."""
    acceptance_failure_fraction: Annotated[Fraction, Plausible.prior("deployment_doa_rate")] = 0.07
    """Share of nodes that fail acceptance and go through a hard repair first. Default 0.07: 9 of 128 H100 servers."""
    payments: Annotated[tuple[OrderPayment, ...], Field(max_length=24)] = ()
    """Deposits, milestones and terms; the rest is paid on delivery. What is paid on nodes that never come, since their
    cluster is retired before, is lost. Default: all on delivery (assumption; no public terms were found)."""

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
    """Day they were delivered and paid, before the start: age, warranty, resale and tax depreciation count from it."""
    cost_usd: (
        Annotated[NonNegative, Plausible(1000, 5e10, "one used accelerator to the largest sites")]
        | None
    ) = None
    """What all of them cost. Default: the cluster's prices, as quoted on the day they were bought."""
    book_value_usd: Annotated[NonNegative, Plausible(0, 5e10, "as what they cost")] | None = None
    """What they stand at in the books on the first day. Default: cost less depreciation since that day."""
    remaining_months: (
        Annotated[int, Field(ge=0, le=240), Plausible(0, 96, "as depreciation_months")] | None
    ) = None
    """Months over which that book value is written off to the residual. Default: what is left of the book life, up to
    the next whole month."""

    @model_validator(mode="after")
    def _book_within_cost(self) -> "Owned":
        cost = self.cost_usd
        book_value = self.book_value_usd
        # Books write down, never up: a higher value is a slip of one of the two.
        if cost is not None and book_value is not None and book_value > cost:
            raise ValueError(f"a book value of {book_value:,.2f} is above the cost, {cost:,.2f}")
        return self


class VolumeDiscount(Strict):
    """A volume discount from a number of accelerators on."""

    from_accelerators: Annotated[
        int, Field(ge=1, le=10_000_000), Plausible(1, 200000, "the largest clusters announced")
    ]
    """Accelerators in one order from which it holds."""
    discount_fraction: Annotated[BelowOne, Plausible(0.002, 0.6)]
    """Share taken off the price."""


class PriceQuote(Strict):
    """A vendor's quote: a price, volume discounts, and the order dates for which it is valid."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Whose offer it is."""
    accelerator_price_usd: AcceleratorPrice
    """Price of one accelerator before volume discount."""
    valid_from: datetime.date | None = None
    """First order date. Default: any time before."""
    valid_until: datetime.date | None = None
    """Last order date, included; later orders pay the cluster's unit price. Default: it does not expire."""
    volume_discounts: Annotated[tuple[VolumeDiscount, ...], Field(max_length=100)] = ()
    """Discounts by rising number of accelerators. Default: none."""
    volume_rule: Literal["whole-order", "marginal"] = "whole-order"
    """Whether the tier reached prices every accelerator, or each tier those inside it. Default whole-order: usual."""


class ResalePoint(Strict):
    """Resale value of a used server (accelerators and host) at one age; between ages it falls at a constant ratio."""

    age_months: Annotated[float, Field(gt=0, le=600), Plausible(1, 120)]
    """Months since it was delivered."""
    fraction_of_new: Annotated[PositiveFraction, Plausible(0.01, 1, "used costs no more than new")]
    """Price as a share of what it cost."""


class ComponentBooks(Strict):
    """Depreciation of one kind of component of a cluster."""

    depreciation_months: (
        Annotated[
            int,
            Field(ge=1, le=240),
            Plausible(12, 120, "prior book_life, and ten years for networks"),
        ]
        | None
    ) = None
    """Its book life. Default: the cluster's."""
    residual_fraction: Annotated[Fraction, Plausible(0, 0.6, "as the cluster's")] | None = None
    """Its book value at the end of book life, as a share of its cost. Default: the cluster's."""


class Components(Strict):
    """Depreciation by kind of component, each a purchase cohort of its own."""

    accelerators: ComponentBooks = ComponentBooks()
    """Of the accelerators. Default: as the cluster, of which they are most."""
    hosts: ComponentBooks = ComponentBooks()
    """Of the servers around them. Default: as the cluster, with which they are replaced."""
    network: ComponentBooks = ComponentBooks()
    """Of switches, cables and adapters. Default: as the cluster, with which they are replaced."""
    storage: ComponentBooks = ComponentBooks()
    """Of storage. Default: as the cluster, with which it is replaced."""


class MeasuredAt(Strict):
    """The request lengths at which a throughput was measured or claimed."""

    input_tokens: Annotated[
        Positive, Plausible(1, 2000000, "one token to the longest contexts sold")
    ]
    """Prompt tokens of a request."""
    output_tokens: Annotated[
        Positive, Plausible(1, 200000, "one token to the longest answers sold")
    ]
    """Generated tokens of a request."""


class Speculation(Strict):
    """Speculative decoding: a draft proposes tokens, one step of the model checks them all."""

    drafted_tokens: Annotated[int, Field(ge=1, le=32), Plausible(1, 16)]
    """Tokens proposed per step."""
    mean_acceptance_length: Annotated[float, Field(ge=1, le=33), Plausible(1, 8)]
    """Mean tokens a step yields, the certain one included; measure it on your own text (random tokens give half)."""
    use: Literal["always", "auto"] = "always"
    """Whether every workload decodes so, with a warning where that serves less, or those alone of which a node then
    serves more. Default: always."""

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
    """Servers bought."""
    engine: str = "auto"
    """Serving engine. Default auto: of those that support the models on the accelerator the one with which the cluster
    needs fewest nodes for all workloads; a second one where it saves more than 5%. layouts.csv says which."""
    engine_date: (
        Annotated[
            datetime.date, Field(ge=datetime.date(2024, 1, 1), le=datetime.date(2100, 12, 31))
        ]
        | None
    ) = None
    """Release date of the image that the cluster runs on the first day; speed is moved along the stack's course of
    maturing from the date of the calibration's measurements to it. Default: as those were measured."""
    precision: str | None = None
    """Arithmetic this cluster serves in, but for workloads that do not allow it. Default: of what each workload allows
    that in which a node serves most."""
    tensor_parallel: (
        Annotated[int, Field(ge=1, le=1024), Plausible(1, 72, "one accelerator to a rack of 72")]
        | None
    ) = None
    """Accelerators per replica; of those that decode where prompts are prefilled apart. Default: the number that serves
    most per accelerator within the objective."""
    attention: Literal["auto", "tensor-parallel", "data-parallel"] = "auto"
    """How mixtures of experts spread attention: each layer over all accelerators of a replica, or sequences over them
    while the experts stay spread. Default auto: what serves most, of what somebody runs for such models; layouts.csv
    says which."""
    prefill_decode: Literal["colocated", "disaggregated", "auto"] = "auto"
    """Whether prompts are prefilled by accelerators of their own, or by every replica beside its replies.
    Default auto: what serves most, by workload, of what somebody runs for such models; layouts.csv says which."""
    max_sequences: (
        Annotated[
            int,
            Field(ge=1, le=1_000_000),
            Plausible(1, 16_384, "assumption: eight times the engines' own 2,048"),
        ]
        | None
    ) = None
    """Sequences the engine admits at once, per attention group. Default: 2,048, the engines' own."""
    layouts: Literal["any", "measured"] = "any"
    """Which layouts are tried: any, or of a model that was measured on the accelerator only those that were, under the
    engines under which they were. Default any: what nobody measured counts by how well it is known."""
    chunk_tokens: (
        Annotated[int, Field(ge=16, le=1_000_000), Plausible(128, 65_536, "engines' range")] | None
    ) = None
    """Prompt tokens that one step computes at most, beside the sequences that decode; workers that only prefill take
    16,384. Default: what serves most within the objective, of 1,024, 2,048 and so on to 32,768 as engines are run in
    public, by workload; layouts.csv says which."""
    host_memory_usd_per_gb: Annotated[Price, Plausible.prior("host_memory_price")] | None = None
    """Price of a GB by which host_memory_gb differs from the catalogue's; it is part of the server, and not counted
    where host_usd_per_node is stated. Default: the catalogue's prior host_memory_price, 11."""
    speculation: Speculation | None = None
    """Speculative decoding on this cluster. Default: none."""
    kv_offload: Literal["auto", "none", "host"] = "auto"
    """Whether the memory of the server holds prompts that its accelerators let go, for workloads that state their
    reuse: always (host), never, or where a node then serves more. Default auto: what serves most; layouts.csv says
    which."""
    host_memory_gb: (
        Annotated[float, Field(ge=0, le=1e6), Plausible(100, 12_000, "256 GB to 12 TB a server")]
        | None
    ) = None
    """Memory of one server's processors for such prompts. Default: the catalogue's for the accelerator, 1,500 of an
    H200 server, 3,200 of an MI325X server."""
    online: datetime.date | None = None
    """Day all nodes are paid, and serve if there is power. Default: the first day, unless an order is given."""
    order: Order | None = None
    """A purchase order in place of a fixed date: lead time, slip, shipments, acceptance. Default: none."""
    contract: Contract | None = None
    """How its machines are had without buying them: reserved, operating-lease, finance-lease, on-demand or spot; or, in
    place of machines, an api, which has no accelerator and no nodes. Default: bought."""
    owned: Owned | None = None
    """Machines owned already, which serve from the first day: no new capital, depreciation goes on. Default: none."""
    retire: datetime.date | None = None
    """Day the cluster leaves service, sold by its age. Default: it stays to the end."""
    depreciation_months: BookLife | None = None
    """Its book life. Default: that of finance."""
    residual_fraction: Residual | None = None
    """Its book value at the end of book life, as a share of cost. Default: that of finance."""
    components: Components | None = None
    """Lives and residuals by kind of part. Default: all parts have the cluster's."""
    throughput_tokens_per_s_per_accelerator: (
        Annotated[Positive, Plausible(1, 50000, "public benchmarks: up to 28,312")] | None
    ) = None
    """Output tokens per second of one accelerator, measured or claimed, in place of the model; scaled from the lengths
    in throughput_measured_at to each workload's. More is never served: what exceeds it is shed or waits. Default: the
    model's."""
    throughput_measured_at: MeasuredAt | None = None
    """Request lengths at which that throughput was measured. Default none: needed wherever a throughput is stated."""
    throughput_multiplier: Annotated[
        float,
        Field(gt=0, le=100),
        Plausible(0.1, 10, "public measurements differ from the model by a factor of two"),
    ] = 1.0
    """Factor on what an accelerator sustains, e.g. your measurement over ours. Default 1: the calibrated model."""
    accelerator_price_usd: AcceleratorPrice | None = None
    """Price of one accelerator before discount. Default: the catalogue's, which must have one."""
    price_source: str = "stated in the scenario"
    """Where accelerator_price_usd comes from. Default: this file."""
    discount_fraction: Annotated[BelowOne, Plausible(0, 0.6)] = 0.0
    """Discount on the accelerators. Default 0: list price until a quote says otherwise."""
    volume_discounts: Annotated[tuple[VolumeDiscount, ...], Field(max_length=100)] = ()
    """Further discounts by rising number of accelerators in one order. Default: none."""
    quotes: Annotated[tuple[PriceQuote, ...], Field(max_length=100)] = ()
    """Offers in place of unit price and discount for orders placed while they hold. Default: none."""
    host_usd_per_node: Annotated[Price, Plausible.prior("host_price_per_node")] | None = None
    """Price of one server without its accelerators: chassis, CPUs, memory, NICs, disks. From a quote for a whole server
    take off its accelerators at accelerator_price_usd; no discount is taken off it. Default: the catalogue's."""
    resale_curve: Annotated[tuple[ResalePoint, ...], Field(max_length=60)] = ()
    """What its used servers fetch by age, for what retires and for the end value. Default: its part's curve in the
    catalogue where it has one (priors resale_12m_h200 and so on), else its vendor's (resale_12m_nvidia)."""
    resale_multiplier: Annotated[
        NonNegative, Plausible.prior("resale_multiplier_amd", "resale_multiplier")
    ] = 1.0
    """Factor on its resale curve, beside that of finance. Default 1: the curve as it is."""
    embodied_kg_per_node: (
        Annotated[NonNegative, Plausible.prior("embodied_server_h200", "embodied_server_mi325x")]
        | None
    ) = None
    """Emissions of making one node, kgCO2e. Default: the catalogue's, where it has one."""

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
