"""The plan: a scenario compiled to the arrays that every replication reads, and what plans of it share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats, Ints
from planner.demand.plan import DemandPlan
from planner.finance.financing import LeaseTerms
from planner.finance.months import MonthGrid
from planner.physics.power import NodePower
from planner.plan import parts
from planner.plan.parts import BurstTables, ProcessPlan
from planner.scenario.scenario import Scenario, SloTarget
from planner.units import HOURS_PER_YEAR, MILLION

LOAD_CELLS = 256
"""Cells of a table by load up to :data:`MOST_LOAD`; between their edges it is interpolated."""
MOST_LOAD = 2.0
"""The load at which tables end, unless some cluster is offered more: then at the next multiple of it. What exceeds a
cluster's own most is shed at once."""


def load_grid(cells: int) -> Floats:
    """Return the loads at the edges of a table's cells, shape (cells + 1,)."""
    return np.asarray(np.arange(cells + 1) * (MOST_LOAD / LOAD_CELLS), dtype=np.float64)


Prices = tuple[float, ...]
"""What a node costs: accelerators, host, network, storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """One workload, compiled for routing and accounting."""

    name: str
    model: str
    input_tokens: Floats
    """Mean prompt tokens of a request by month, shape (months,)."""
    output_tokens: Floats
    """Mean generated tokens of a request by month, shape (months,)."""
    priority: int
    """0 interactive, 1 standard, 2 deferrable; lower is served first."""
    deadline_h: int
    """Hours that work may wait; 0 for work that is shed at once."""
    cluster_tiers: tuple[tuple[int, ...], ...]
    """Clusters that can serve it, in the order in which they are offered it; those of one tier are alike and share."""
    launch_h: float | None
    """When its model is new to the world; None for a model long served."""
    cached_input_fraction: float = 0.0
    """Share of its prompt tokens found in the prefix cache: they have a price of their own."""

    rented_tiers: int = 0
    """How many of the tiers, at the end, are rented by the hour, and take only what the others' waits do not allow."""
    overdue_share: Floats | None = None
    """Share of the fleet within which it is served late in months in which no batch meets its objective, 0 in others,
    shape (months,); None where it always meets it, or is refused then."""

    @property
    def cluster_order(self) -> tuple[int, ...]:
        """Return the clusters that can serve the workload, in routing order."""
        return tuple(cluster for tier in self.cluster_tiers for cluster in tier)

    @property
    def tokens_per_request(self) -> Floats:
        """Prompt and generated tokens together, shape (months,)."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentPlan:
    """A share of an order's price that is paid on another day than delivery."""

    fraction: float
    from_order: bool
    """Whether it is counted from the order, or from each delivery."""
    after_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPlan:
    """A purchase order."""

    placed_h: float
    lead_h: float
    slip_h: parts.ThreePoint
    """Its lowest, most likely and highest."""
    deliveries: int
    interval_h: float
    acceptance_failure_fraction: float
    payments: tuple[PaymentPlan, ...] = ()
    """The rest is paid on delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPlan:
    """Machines owned before the start."""

    bought_h: float
    """When they were delivered and paid, below zero."""
    prices_usd: Prices
    """What a node cost: accelerators, host, network, storage."""
    book_value_usd: float | None
    """Book value of a node on the first day; None for cost less depreciation."""
    remaining_months: int | None
    """Book life left on the first day; None for what is left of the book life since it was bought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """One cluster, compiled for the simulation."""

    name: str
    accelerator: str
    vendor: str
    nodes: int
    accelerators_per_node: int
    group_accelerators: int
    """Accelerators lost with one of them: its tensor-parallel group, or the whole node, as its vendor's parts are."""
    online_h: float | None
    """When all nodes enter service at once; None where an order decides."""
    order: OrderPlan | None
    retire_h: float
    """When it leaves service; infinity for never."""
    failure_multiplier: float
    node_power: NodePower
    nameplate_kw: float
    """Nameplate IT power of one node: what colocation and power blocks count."""
    prices_usd: Prices
    """Per node: accelerators after discount, host, network, storage."""
    owned: OwnedPlan | None = None
    """What is known of machines that are owned before the start; None where they are bought."""
    rent: parts.RentPlan | None = None
    """The contract of machines that are rented; their prices are zero."""
    lease: LeaseTerms | None = None
    """The finance lease of machines that are on the books without having been paid for."""
    leased_prices_usd: Prices | None = None
    """What a node that is leased, on whatever terms, costs new; None where its own prices say it."""
    api: parts.ApiPlan | None = None
    """The API that it stands for; None where it has machines."""
    price_book: parts.PriceBook | None = None
    """What later orders of its accelerators cost; None where only the list price moves."""

    @property
    def is_hosted(self) -> bool:
        """Whether the machines are hosted by a provider."""
        return self.api is not None or (self.rent is not None and self.rent.is_hosted)

    @property
    def is_paid_by_the_hour(self) -> bool:
        """Whether the machines are rented by the hour and held as the load needs them."""
        return (
            self.rent is not None and self.rent.hourly is not None and self.rent.warm_nodes < np.inf
        )

    @property
    def upkeep_prices_usd(self) -> Prices:
        """Return a node's prices when new, as the base of upkeep cost, also for leased machines."""
        return self.prices_usd if self.leased_prices_usd is None else self.leased_prices_usd

    @property
    def first_prices_usd(self) -> Prices:
        """Return a node's prices in the purchase that the plan itself states."""
        return (
            self.prices_usd
            if self.owned is None or self.order is not None
            else self.owned.prices_usd
        )

    def order_prices_usd(self, order_h: float, nodes: int, list_factor: float) -> Prices:
        """Return a node's prices in a later order: list prices times the factor, quotes while valid."""
        prices = tuple(price * list_factor for price in self.prices_usd)
        if self.price_book is None:
            return prices
        order_date = self.price_book.start + timedelta(hours=order_h)
        unit_usd = self.price_book.accelerator_usd(
            order_date, nodes * self.accelerators_per_node, list_factor
        )
        return unit_usd * self.accelerators_per_node, *prices[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePlan:
    """A rule that buys, rents or retires nodes once a condition has lasted some months, or by a forecast."""

    when: str
    threshold: float
    target: float
    """Load that an order by forecast brings the peak down to."""
    months: int
    watched: int
    """Cluster whose utilisation counts."""
    cluster: int
    """Cluster that is enlarged or reduced."""
    nodes: int
    max_nodes: float
    """Of the cluster at once; infinity for no ceiling."""
    max_nodes_per_order: float
    windows: tuple[int, ...]
    """Months at whose ends it may act, counted from 1, rising."""
    lead_h: float
    slip_h: parts.ThreePoint | None
    cooldown_months: int
    forecast_months: int
    """After the review; and the growth expected before any is seen."""
    growth_per_year: float

    @property
    def forecasts(self) -> bool:
        """Whether it orders up to a forecast; the others order a fixed number."""
        return self.when == "forecast_load_above"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionPlan:
    """The monthly expansion review: its rules, budget and limits."""

    rules: tuple[RulePlan, ...]
    budget_usd: float
    it_power_cap_kw: float
    price_change_per_year: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model, or several that share the same accelerators, deployed on a cluster."""

    cluster: int
    workloads: tuple[int, ...]
    """Workloads that it serves."""
    nodes_per_replica: float
    """Accelerators of a replica over those of a node."""
    speed: float
    """What its accelerators do over what they do for one model alone: less cache makes smaller batches."""
    resident_bytes: float
    """Weights and engines of one replica."""
    memory_bytes: float
    """Memory of one replica's accelerators."""
    load_h: float
    """Hours to read the weights of one replica, at most one: an hour that loads longer is lost whole."""
    least_replicas: int = 1
    """Replicas that hold all fine-tunes of its model between them; with fewer, requests for the others are shed."""
    waiting_speed: Mapping[int, Floats] = field(default_factory=dict)
    """Work that can wait and whose best layout is another: its speed here over that layout's, shape (months or 1,)."""

    @property
    def min_nodes(self) -> float:
        """Nodes of the smallest number of replicas that hold every fine-tune."""
        return self.least_replicas * self.nodes_per_replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Division of a plan's clusters among their models."""

    deployments: tuple[Deployment, ...]
    """Of all clusters; those of one cluster follow each other, the highest priority first."""
    placed: tuple[bool, ...]
    """Of each cluster, whether whole replicas count on it; otherwise any share of it may serve any model."""
    review_requests: Floats
    """What the monthly review places replicas for, shape (workloads, months)."""
    pools: Plan
    """The plan with pools in place of clusters; work that can wait is offered its own pools before those in which it
    uses what idles."""
    pool_cluster: tuple[int, ...]
    """The cluster of each pool."""
    pool_deployment: tuple[int | None, ...]
    """What each pool holds; None for a cluster left whole, and, last of a placed one, for nodes that hold nothing."""
    pool_speed: Floats
    """Each pool's speed on a workload over that of its best layout alone, 0 for no service, shape (pools, workloads,
    months or 1)."""
    deployment_of: Mapping[tuple[int, int], int]
    """Which deployment serves a workload on a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """A cluster's figures at another number of nodes than the plan's."""

    nodes: int
    speed: Floats
    """Requests that a node sustains over those of the plan, shape (workloads,)."""
    late_table: Floats
    """As the plan's, shape (workloads, cells + 1)."""
    refused_table: Floats
    no_burst_tables: Floats
    """Shape (2, workloads, cells + 1)."""
    most_loads: Floats
    """Shape (workloads,)."""
    burst_tables: Mapping[int, BurstTables] = field(default_factory=dict)
    """By workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All figures of a scenario that are the same in every replication."""

    seed: int
    start: date
    hours: int
    months: MonthGrid
    month_edges_h: NDArray[np.int64]
    """Hour at which each month begins, and the end, shape (months + 1,)."""
    workloads: tuple[WorkloadPlan, ...]
    clusters: tuple[ClusterPlan, ...]
    demand: DemandPlan
    requests_per_node_h: Floats
    """Most requests an hour that a healthy node sustains at the objective, shape (clusters, workloads, months or 1)."""
    late_tables: Floats
    """Share of requests served late, on the :func:`load_grid` of loads over capacity, shape (clusters,
    workloads, cells + 1)."""
    refused_tables: Floats
    """Share of requests refused, in the same shape."""
    most_loads: Floats
    """What a cluster is offered at most of a workload that finds no room, over what it sustains at the objective; shape
    (clusters, workloads)."""
    by_priority: tuple[int, ...]
    """Workloads in the order in which they are served."""
    preferred_utilisation: float
    """Clusters are filled in order up to it; what is left is spread in proportion to what each has free."""
    reliability: parts.ReliabilityPlan
    software: parts.SoftwarePlan
    site: parts.SitePlan
    expansion: ExpansionPlan
    money: parts.MoneyPlan
    slo_target: SloTarget
    warnings: tuple[str, ...]
    """What is hardly meant: contradictions that are not errors, with their numbers."""
    notes: tuple[str, ...]
    """What follows from the plan and may well be meant, with its numbers."""
    no_burst_tables: Floats | None = None
    """Late and refused tables without bursts, shape (2, clusters, workloads, cells + 1); None where the tables have
    none."""
    burst_tables: Mapping[tuple[int, int], BurstTables] = field(default_factory=dict)
    """By cluster and workload, where bursts even out as the rate grows, and tell; the tables above are of day one."""
    alone_s: Floats | None = None
    """The first-token objective at which half as many prompts, and no more than its percentile allows, are too long
    for an idle replica, shape (clusters, workloads); NaN where nothing says it."""
    token_time: Floats | None = None
    """Shares of a request's machine time by kind of token, prefill and decode, shape (clusters, workloads, 3)."""
    placement: Placement | None = None
    """How models share clusters; None where any share of a cluster may serve any model."""
    processes: tuple[ProcessPlan, ...] = ()
    """The user's own, that run with the simulation."""
    sizes: Mapping[int, tuple[ClusterSize, ...]] = field(default_factory=dict)
    """By cluster that rules enlarge or reduce, what it is at other sizes, rising, where that is another."""

    def crew_load(self, nodes: Floats, crews: int) -> float:
        """Return the load of the repair crews: Σ nodes on site · crew hours per node and hour / crews.

        Crew hours are the vendor's factor · those of the failures, and f · repair / n for each domain of n nodes that
        fails f times an hour.
        """
        factor = np.array([cluster.failure_multiplier for cluster in self.clusters])
        nodes = nodes * self.on_site
        shared = sum(
            d.per_year / HOURS_PER_YEAR * d.repair_h / d.nodes for d in self.reliability.domains
        )
        return float(nodes @ (factor * self.reliability.crew_h_per_node_h + shared)) / crews

    def engineer_load(self, team: int, engineers: int) -> float:
        """Return the load of a team: Σ over stacks and models of incidents a year · mean hours each / hours a year.

        Of those that upgrades bring, what cannot be rolled back counts. Incidents that the vendor mends first take
        less, so this is the load were there no vendor.
        """
        hours = 0.0
        for stack in (stack for stack in self.software.stacks if stack.team == team):
            runs = np.any(self.software.stack_of == stack.name, axis=0)
            models = {
                workload.model
                for workload, is_there in zip(self.workloads, runs, strict=True)
                if is_there
            }
            for incident in stack.incidents:
                work_h = (
                    incident.difficulty(incident.fix_days.lognormal_mean) * self.software.engineer_h
                )
                stuck_per_year = (
                    incident.per_upgrade
                    * stack.upgrades_per_year
                    * stack.rollback_impossible_fraction
                )
                often = len(models) * (incident.per_year + stuck_per_year)
                hours += often * parts.TeamPlan.hours(work_h, engineers)
        return hours / HOURS_PER_YEAR

    @property
    def slo_attainments(self) -> Floats:
        """The attainment that each workload is held to, shape (workloads,), (1,) where all are held to one."""
        target = self.slo_target
        return np.array(
            [
                target.attainment_of(load.name)
                for load in self.workloads
                if target.scope == "workload"
            ]
            or [target.attainment]
        )

    @property
    def accelerators_per_node(self) -> Floats:
        """Accelerators of a node, shape (clusters,)."""
        return np.array(
            [cluster.accelerators_per_node for cluster in self.clusters], dtype=np.float64
        )

    @property
    def on_site(self) -> Floats:
        """1 for clusters on the own site, 0 for those hosted by a provider; shape (clusters,)."""
        return np.array([0.0 if cluster.is_hosted else 1.0 for cluster in self.clusters])

    @property
    def is_here(self) -> list[bool]:
        """Whether all that may serve a workload is on the own site, by workload."""
        bought = {
            w for cluster in self.clusters if cluster.api is not None for w in cluster.api.workloads
        }
        here = (bool(self.on_site[list(load.cluster_order)].all()) for load in self.workloads)
        return [is_here and w not in bought for w, is_here in enumerate(here)]

    @property
    def tokens_per_request(self) -> Floats:
        """Mean prompt and generated tokens of a request, shape (months, workloads)."""
        return np.stack([workload.tokens_per_request for workload in self.workloads], axis=-1)

    @property
    def request_tokens(self) -> Floats:
        """Mean tokens of a request by kind (:data:`~planner.plan.parts.TOKEN_KINDS`), shape (months, workloads, 3)."""
        columns = [
            (
                load.input_tokens * (1.0 - (h := load.cached_input_fraction)),
                load.input_tokens * h,
                load.output_tokens,
            )
            for load in self.workloads
        ]
        return np.moveaxis(np.array(columns), 2, 0)

    def request_usd(self, price: Floats) -> Floats:
        """Return the price of a request, Σ tokens·price / 10⁶ over the kinds of tokens, shape (months, workloads)."""
        return np.asarray((self.request_tokens * price).sum(axis=2) / MILLION, dtype=np.float64)

    def api_request_usd(self, cluster: int) -> Floats:
        """Return what an API asks for a request, shape (months, workloads); 0 of what it may not serve."""
        api = self.clusters[cluster].api
        return (
            np.zeros(self.tokens_per_request.shape) if api is None else self.request_usd(api.prices)
        )

    @property
    def refusal_free_load(self) -> Floats:
        """Load below which fewer than a millionth of requests are rejected, shape (clusters, workloads)."""
        cells = (self.refused_tables < 1e-6).sum(axis=2)  # tables rise with load
        return np.asarray(np.maximum(cells - 1, 0) * (MOST_LOAD / LOAD_CELLS), dtype=np.float64)


def on_site_kw(
    clusters: Iterable[ClusterPlan], hours: int, kw: Callable[[ClusterPlan], float]
) -> list[float]:
    """Return the total power on site by a given figure per node, at each cluster's first hour and at the end.

    A cluster is there from its first day, at the earliest, until it is retired.
    """
    here = [cluster for cluster in clusters if cluster.nodes and not cluster.is_hosted]
    begins = [
        max(o.placed_h + o.lead_h + o.slip_h.low, 0.0) if (o := c.order) else c.online_h or 0.0
        for c in here
    ]
    return [
        sum(
            c.nodes * kw(c)
            for c, begin_h in zip(here, begins, strict=True)
            if begin_h <= at_h < c.retire_h
        )
        for at_h in (*begins, hours - 1.0)
    ]


def full_load_kw(clusters: Iterable[ClusterPlan], hours: int) -> float:
    """Return the highest IT power of the machines on site at full load at any one time."""
    return max(on_site_kw(clusters, hours, lambda cluster: cluster.node_power.full_kw))


def facility_kw(plan: Plan, it: Floats, hours: slice | Ints) -> Floats:
    """Return facility power, shape (hours,): IT + (PUE − 1)·s(h)·(f·rated + (1 − f)·IT).

    s is the season, rated the IT power for which the cooling is built and f the share of overhead that does not fall
    with load, so that PUE is the stated one at rated load in a mean season and rises as load falls.
    """
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    power: Floats = it + overhead * (fixed * plan.site.rated_kw + (1.0 - fixed) * it)
    return power


def allowed_it_kw(plan: Plan, cap_kw: Floats, hours: slice | Ints) -> Floats:
    """Return the IT power at which facility power meets the cap: the inverse of :func:`facility_kw`."""
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    allowed: Floats = (cap_kw - overhead * fixed * plan.site.rated_kw) / (
        1.0 + overhead * (1.0 - fixed)
    )
    return np.maximum(allowed, 0.0)


Kept = TypeVar("Kept")


@functools.lru_cache(
    maxsize=4096
)  # a table is 2 kB and a workload's hours are 210 kB: some 100 MB at the very most
def _place(*_key: Hashable) -> list[Any]:
    """Return the cache slot of a key, empty at first; the least recently used slot is dropped first."""
    return []


class Reuse:
    """A cache of figures that plans of one scenario have in common, computed once per process.

    A study, a sweep or a notebook compiles the same scenario many times with a few figures changed. Most of a plan does
    not depend on them: what a node sustains depends on models, parts and objectives, the hours of a week on a time
    zone. Each part is kept under the figures that decide it, so whatever was compiled before, the plan is the same.
    """

    def __init__(self, stated: Scenario) -> None:
        """Load the catalogue and the calibration, which no study can vary."""
        self.catalog = stated.load_catalog()
        self._file = stated.load_calibration()
        self.calibration = self.once("calibration", self._file.calibration)

    def once(self, key: Hashable, compute: Callable[[], Kept]) -> Kept:
        """Return the cached result of a key for this catalogue and calibration, or compute it now."""
        place = _place(id(self.catalog), id(self._file), key)
        if not place:  # both are held beside it, so that their numbers are not given again; threads may compute twice
            place.append((compute(), self.catalog, self._file))
        kept: Kept = place[0][0]
        return kept
