"""The parts of a plan that concern all its clusters: money, software, reliability, site, bursts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from planner.arrays import Bools, Floats, Ints, Names
from planner.demand.plan import Streams, on_off_fraction
from planner.elementwise import Hours, pad_edge, part_of
from planner.finance.depreciation import ResaleCurve, TaxRules
from planner.finance.financing import Books, LoanTerms, Quote, choose_quote
from planner.finance.present_value import CashFlowTiming
from planner.finance.tariffs import EnergyTariff
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Compiled = TypeVar("Compiled", bound="DataclassInstance")


def as_stated(compiled: type[Compiled], stated: object, **others: Any) -> Compiled:
    """Return a compiled part with the figures stated under the same names, except for those given."""
    same = {
        figure.name: getattr(stated, figure.name)
        for figure in fields(compiled)
        if figure.name not in others
    }
    return compiled(**same, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    components: Mapping[int, tuple[tuple[int, float | None], ...]] = field(default_factory=dict)
    """Book life and residual of accelerators, hosts, network and storage, by cluster whose parts do not share its."""
    end_value: str
    """market or none: what is still owned on the last day counts at resale value, or at nothing."""
    discount_rate_per_year: float
    timing: CashFlowTiming
    """When what runs through a month counts."""
    inflation_per_year: float
    """By which nominal dollars are turned into those of the first day."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
        if share in (0.0, 1.0):
            return np.full(hours, share == 1.0)
        generator = streams(f"rental/{self.accelerator}")
        return on_off_fraction(gap_h * share / (1.0 - share), gap_h, hours, generator) > 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPlan:
    """Costs of staff, support contracts, insurance and spare parts."""

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


TOKEN_KINDS = ("input", "cached_input", "output")
"""Prompt tokens that are computed, those found in the prefix cache, and generated ones: each has a price of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlan:
    """An API in place of a cluster's machines."""

    prices: Floats
    """USD per million tokens, the mean of each month, shape (months, workloads, kinds)."""
    workloads: tuple[int, ...]
    """Those that it may serve."""
    serves_all: bool
    """Whether it serves before the clusters, or what they would shed."""
    most_tokens_per_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstPlan:
    """Instances rented on demand for requests that would be shed."""

    most_accelerators: float
    accelerators_per_instance: int
    hourly: HourlyTerms
    accelerator_h_per_request: Floats
    """Accelerator-hours a request takes, shape (workloads, months or 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPlan:
    """Prices at which the plan sells, SLA credits, tax, and the market prices it is compared with."""

    token_price: Floats | None
    """USD per million tokens, the mean of each month, 0 for a workload that is not sold; shape (months, workloads,
    kinds); None where none is."""
    api_price: Floats | None
    """The same of an API."""
    burst: BurstPlan | None
    sla_objective_fraction: float
    sla_credit_usd_per_million_tokens: float
    tax: TaxRules | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPlan:
    """All prices, rates and contracts that are the same in every replication."""

    capital: CapitalPlan
    power: PowerPricePlan
    upkeep: UpkeepPlan
    market: MarketPlan


@dataclass(frozen=True, slots=True, kw_only=True)
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


_WORK_H_PER_WEEK = 40.0  # of an engineer: assumption


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreePoint:
    """P10, P50 and P90 of a figure, or the lowest, most likely and highest value of a triangular distribution."""

    low: float
    base: float
    high: float

    def lognormal(self, generator: np.random.Generator) -> float:
        """Draw from the lognormal with this median and this P90 / P10."""
        return self.lognormal_at(generator.standard_normal())

    def lognormal_at(self, z: float) -> float:
        """Return the quantile of that lognormal at a standard normal one; of a normal where the figures reach zero."""
        if self.base <= 0 or self.low <= 0:
            return max(0.0, self.base + (self.high - self.low) / 2.5631 * z)
        return self.base * math.exp(math.log(self.high / self.low) / 2.5631 * z)

    @property
    def lognormal_mean(self) -> float:
        """Mean of the lognormal with this median and this P90 / P10: median · exp(σ²/2)."""
        if self.base <= 0 or self.low <= 0:
            return max(0.0, self.base)
        return self.base * math.exp(0.5 * (math.log(self.high / self.low) / 2.5631) ** 2)

    def below(self, most: float) -> tuple[float, float, float]:
        """Return E[Xⁿ·1(X < x)] of that lognormal for n = 0, 1, 2.

        It is mⁿ · exp(n²σ²/2) · Φ(u − nσ) with u = ln(x / m) / σ and the median m. Without a spread, or where its
        figures reach zero, X is its mean.
        """
        if self.low <= 0.0 or self.high <= self.low or most <= 0.0:
            mean = self.lognormal_mean
            is_below = float(self.lognormal_mean < most)
            return is_below, mean * is_below, mean**2 * is_below
        sigma = math.log(self.high / self.low) / 2.5631
        score = math.log(most / self.base) / sigma
        odds, first, second = (
            self.base**n
            * math.exp(0.5 * (n * sigma) ** 2)
            * 0.5
            * math.erfc((n * sigma - score) / math.sqrt(2.0))
            for n in range(3)
        )
        return odds, first, second

    def mean_within(self, span: float) -> float:
        """Return the mean part of that lognormal time that lies in a span, from a random moment of it on.

        E[min(X, U)] with U uniform from 0 to T is E[(X − X²/2T)·1(X < T)] + T/2 · P(X ≥ T).
        """
        odds, first, second = self.below(span)
        return first - 0.5 * second / span + 0.5 * span * (1.0 - odds)

    def normal(self, generator: np.random.Generator) -> float:
        """Draw from the normal with this median and this P90 − P10."""
        return self.base + (self.high - self.low) / 2.5631 * generator.standard_normal()

    def triangular(self, generator: np.random.Generator) -> float:
        """Draw from the triangular distribution."""
        return (
            self.low
            if self.high <= self.low
            else float(generator.triangular(self.low, self.base, self.high))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Headcount:
    """A whole number of people or spare parts: fixed, or a rate per accelerator or node on site."""

    fixed: int = 0
    per_accelerator: float = 0.0
    per_node: float = 0.0
    rounding: str = "nearest"
    least: int = 0
    """How many there are at least, once there is a machine."""

    def number(self, accelerators: float, nodes: float = 0.0) -> int:
        """Return fixed + max(least, rounded(per accelerator · accelerators + per node · nodes)).

        A hair beside a whole number is that number: 400 at 0.0025 are one, whichever way is rounded.
        """
        if accelerators <= 0.0:
            return self.fixed
        part = self.per_accelerator * accelerators + self.per_node * nodes
        shift = {"nearest": 0.5 + 1e-9, "up": 1.0 - 1e-9, "down": 1e-9}[self.rounding]
        return self.fixed + max(self.least, math.floor(part + shift))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPlan:
    """One kind of software incident on one stack."""

    kind: str
    per_year: float
    """Rate per served model of those that come at any time."""
    per_upgrade: float
    """Probability per served model that an upgrade brings one."""
    loss: ThreePoint
    """Throughput lost while it lasts."""
    most_loss: float
    """Where that is cut."""
    detection_h: ThreePoint
    """From an upgrade until what came with it is noticed."""
    subtle_detection_h: ThreePoint
    subtle_fraction: float
    """Share that is subtle whatever the loss."""
    subtle_below: float
    """Loss below which one is subtle."""
    fix_days: ThreePoint
    """What its vendor takes."""
    falsifies: bool
    """Whether outputs are wrong: the stack is rolled back or serves in a wider precision, whatever the loss."""

    def difficulty(self, fix_days: float) -> float:
        """Return an incident's difficulty: the vendor's days to fix it over their median."""
        return fix_days / self.fix_days.base if self.fix_days.base > 0 else 1.0

    @property
    def mean_loss(self) -> float:
        """Mean of the throughput lost: of the lognormal cut at the most."""
        odds, partly, _ = self.loss.below(self.most_loss)
        return partly + (1.0 - odds) * self.most_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class MaturityPlan:
    """Speed still to be gained by a stack on one class of models, and the months that takes."""

    gain: ThreePoint
    """Throughput over today's, less one, in the end."""
    months: ThreePoint
    """Time constant of the gap."""


def matured(gain: float, constant_h: float, after_h: float) -> float:
    """Return the part of a gap in log speed that has closed after some hours: g·(1 − exp(−t/τ)).

    Before the moment from which the gap is counted it is negative: older software is slower.
    """
    return -gain * math.expm1(-after_h / constant_h) if constant_h > 0.0 else gain


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A gain or loss of speed from a date on."""

    time_h: float
    model: str
    """Whose; the empty string for every model."""
    log_gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """One software stack: its releases and incidents."""

    name: str
    releases_per_year: float
    upgrade_h: float
    """Mean hours from one upgrade to the next, each of which takes the newest release."""
    rollback_impossible_fraction: float
    """Share of incidents after which no older release serves."""
    release_sigma: float
    """Spread of releases about the course of maturing, in the logarithm of speed."""
    maturity: Mapping[str, MaturityPlan]
    """What is left to gain, by class of models, in the catalogue's order of classes, in which they are drawn."""
    steps: tuple[StepPlan, ...]
    """Stated gains and losses, by day."""
    incidents: tuple[IncidentPlan, ...]
    """Kinds in the catalogue's order, in which they are drawn: one that is added shifts no other."""
    bring_up_weeks: ThreePoint
    bring_up_fraction: ThreePoint
    new_model_incident_multiplier: float
    team: int = 0
    """Which of the teams of engineers mends it."""

    @property
    def upgrades_per_year(self) -> float:
        """Mean upgrades of a year."""
        return HOURS_PER_YEAR / self.upgrade_h


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamPlan:
    """Engineers who work together on one incident at a time."""

    name: str
    clusters: tuple[int, ...]
    """Clusters whose accelerators they grow with, and whose cost they are."""
    engineers: Headcount

    @staticmethod
    def hours(work_h: float, engineers: int) -> float:
        """Return the elapsed hours for some engineer-hours of work: work / engineers · 168 / 40."""
        return work_h / engineers * HOURS_PER_WEEK / _WORK_H_PER_WEEK


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwarePlan:
    """Software stacks and the engineers who fix their incidents."""

    stacks: tuple[StackPlan, ...]
    teams: tuple[TeamPlan, ...]
    fix_time_multiplier: float
    engineer_h: float
    """Engineer's hours that an incident takes whose fix takes the vendor its median time."""
    canary_fraction: float
    """Share of a stack that runs a release first."""
    bake_h: float
    """For how long, before the rest takes it; 0 where all take it at once."""
    rollback_h: ThreePoint
    """What a return of the stack to the release before takes."""
    architectures: tuple[str, ...]
    """Class of each workload's model."""
    clock_h: tuple[float, ...]
    """By cluster, hours by which its maturing is ahead of the first day: 0 unless its first image is dated."""
    stack_of: Names
    """Stack that serves each pair, shape (clusters, workloads); empty where none does."""
    dated_log_gain: Floats
    """Logarithm of what its first image's date makes of its speed, shape (clusters, workloads); 0 unless dated."""
    roofline_log_gain: Floats
    """Logarithm of speed at the part's roofline over that of day one, shape (clusters, workloads)."""
    wide_precision_factor: Floats
    """Speed in the next wider precision over the usual, shape (clusters, workloads); NaN under a roll-back policy."""


INTERRUPTION = "spot interruption"
"""Cause of an outage of a spot node, the last of a plan's causes where one has such a contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausePlan:
    """One cause of node failures: its rate, and its shares of soft and medium severity."""

    name: str
    per_node_h: float
    whole_node: bool
    soft_fraction: float
    medium_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """A user's process that runs with the simulation."""

    function: str
    file: str
    """Where its code is from; empty for an installed package's."""
    source: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPlan:
    """A failure domain, such as a rack, whose failure takes all its nodes out of service."""

    name: str
    nodes: int
    per_year: float
    """Failures of each."""
    repair_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWork:
    """Planned work that drains nodes at regular intervals."""

    every_h: float
    length_h: float
    nodes_fraction: float = 1.0
    """Mean share of nodes that come up for it each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityPlan:
    """Failures, crews and spares."""

    causes: tuple[CausePlan, ...]
    lemon_fraction: float
    lemon_multiplier: float
    early_life_multiplier: float
    early_life_h: float
    repair_h: tuple[float, float, float]
    """Mean soft, medium and hard repair."""
    repair_cv: float
    crews: Headcount
    spares: Headcount
    """For each cluster, by its own machines."""
    rma_h: float
    domains: tuple[DomainPlan, ...] = ()
    maintenance: PlannedWork | None = None
    firmware: PlannedWork | None = None
    reserve_nodes: int = 1
    reserve_fraction: float = 0.0

    def reserve(self, nodes: int) -> int:
        """Return the nodes of a cluster that may be down before planned work waits: max(stated, ⌈share · nodes⌉)."""
        return max(self.reserve_nodes, math.ceil(self.reserve_fraction * nodes - 1e-9))

    @property
    def crew_h_per_node_h(self) -> float:
        """Crew hours of repair per node and hour: Σ rate · (medium share · repair + hard share · repair)."""
        _, medium_h, hard_h = self.repair_h
        return sum(
            cause.per_node_h
            * (
                cause.medium_fraction * medium_h
                + (1.0 - cause.soft_fraction - cause.medium_fraction) * hard_h
            )
            for cause in self.causes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """Power, cooling and outages of the site, hour by hour."""

    cap_kw: Floats | None
    """Facility power that may be drawn, shape (hours,); None without a cap or curtailment."""
    overhead_ratio: Floats
    """(PUE − 1) by season, shape (hours,)."""
    fixed_fraction: float
    """Share of that overhead which does not fall with IT load."""
    most_it_kw: float
    """IT power that fits under the cap in the hottest hour of a year; infinity without a cap."""
    rated_kw: float
    """IT power for which the cooling is built: nodes that are there together at full load, or what the cap allows."""
    block_h: Floats
    """When each power block is energised, shape (blocks,)."""
    block_kw: Floats
    """IT power energised by then in all, shape (blocks,)."""
    outages_per_year: float
    outage_h: float
    commissioning_crews: int
    commissioning_h: float


LITTLE_LATE = 1e-4
"""Share of requests: bursts that add less up to the preferred use are not followed to other clusters or by rate, and
where they are followed by rate not in hours in which they add less."""
_MANTISSA_BITS = 52  # of a number of 64 bits: IEEE 754
_NO_EXPONENT = 1023


class Between(NamedTuple):
    """Interpolation of hourly request rates between the rates of burst tables."""

    row: Ints
    """The lower of them, shape (hours,)."""
    times: Floats
    """The hours' rate over the first of all, shape (hours,)."""

    @property
    def further(self) -> Floats:
        """Interpolation weight of the next higher rate, shape (hours,).

        What bursts add goes about with their variance, and so with one over the rate: at x times a rate, 1 ≤ x < 2,
        the next has the weight (1 − 1/x) / (1 − 1/2).
        """
        half, _ = np.frexp(self.times)  # of x
        return np.asarray(2.0 - 1.0 / half)

    def part(self, hours: Hours) -> Between:
        """Return the interpolation for some of the hours."""
        row = self.row[hours] if isinstance(hours, slice) else self.row.take(hours, mode="clip")
        return Between(row, part_of(self.times, hours))


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstTables:
    """Misses of a workload on a cluster that bursts add, by load and request rate."""

    first_requests: float
    """Requests an hour at the first rate; each of the others is twice the one before."""
    added: Floats
    """Shares late and refused less those without bursts, shape (2, rates, cells + 1)."""
    calm_cells: Floats
    """Cells from the first up to which bursts make nobody late, and up to which nobody is refused, shape (2, rates)."""
    even_cells: float
    """Cells from the first up to which nobody is refused without bursts."""
    _steps: Floats = field(init=False, repr=False, compare=False)
    """From each cell to the next; none beyond the end, where a table stays as it is."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_steps", np.diff(self.added, append=self.added[..., -1:]))

    def between(self, requests: Floats) -> Between:
        """Return the interpolation of hourly requests between the tables' rates, shape (hours,)."""
        times = requests * (1.0 / self.first_requests)
        np.clip(times, 1.0, 2.0 ** (self.added.shape[1] - 1), out=times)
        # ⌊log₂⌋, as the number has it: a logarithm takes ten times as long.
        row = times.view(np.int64) >> _MANTISSA_BITS
        row -= _NO_EXPONENT
        return Between(row, times)

    def adding(self, kind: int, place: Floats, between: Between) -> Ints:
        """Return the hours at whose loads bursts make requests late (kind 0) or rejected (kind 1).

        Loads are places along the cells of a table, shape (hours,).
        """
        return np.flatnonzero(place > self.calm_cells[kind].take(between.row, mode="clip"))

    def refusing(self, place: Floats, bursts_at: Floats, between: Between) -> Ints:
        """Return the hours in which requests are rejected at a load, or by bursts at the load ``bursts_at``."""
        by_bursts = bursts_at > self.calm_cells[1].take(between.row, mode="clip")
        return np.flatnonzero(np.logical_or(by_bursts, place > self.even_cells, out=by_bursts))

    def read(self, kind: int, place: Floats, between: Between) -> Floats:
        """Return the share that bursts add to late (kind 0) or rejected (1) at table positions, shape (hours,).

        Linear between cells and between rates.
        """
        cells = self.added.shape[2]
        cell = np.minimum(place.astype(np.intp), cells - 1)
        along = place - cell
        cell += between.row * cells
        table = self.added[kind].reshape(-1)
        steps = self._steps[kind].reshape(-1)
        share = steps.take(cell, mode="clip")
        share *= along
        share += table.take(cell, mode="clip")
        cell += cells  # beyond the last rate there is none, and no weight
        after = steps.take(cell, mode="clip")
        after *= along
        after += table.take(cell, mode="clip")
        after -= share
        after *= between.further
        share += after
        return np.asarray(share)

    def pad_edge(self, cells: int) -> BurstTables:
        """Return the tables extended to this many cells with their last value."""
        return (
            self
            if cells == self.added.shape[2]
            else replace(self, added=pad_edge(self.added, cells))
        )
