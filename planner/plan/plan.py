"""The plan: a scenario compiled to the arrays that every replication reads, and what plans of it share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import field
from datetime import date, timedelta
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.demand.plan import DemandPlan
from planner.finance.financing import LeaseTerms
from planner.finance.money_plan import ApiPlan, MoneyPlan, PriceBook, RentPlan
from planner.finance.months import MonthGrid
from planner.physics.power import NodePower
from planner.plan.cache_hits import CacheUse
from planner.plan.distributions import ThreePoint
from planner.plan.expansion import ExpansionPlan
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD, BurstTables, MissTables
from planner.plan.reliability import ReliabilityPlan
from planner.plan.software import SoftwarePlan, TeamPlan
from planner.records import record
from planner.scenario.scenario import SloTarget
from planner.units import HOURS_PER_YEAR, MILLION

Prices = tuple[float, ...]
"""What a node costs: accelerators, host, network, storage."""


@record
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
    begins_h: float = 0.0
    """When it is first served."""
    ends_h: float = math.inf
    """When its customers have moved on."""
    cached_input_fraction: float = 0.0
    """Share of its prompt tokens found in the prefix cache: they have a price of their own."""

    is_wanted: bool = True
    """Whether the scenario states requests of it, whenever they come."""
    rented_tiers: int = 0
    """How many of the tiers, at the end, are rented by the hour, and take only what the others' waits do not allow."""
    overdue_share: Floats | None = None
    """Share of the fleet within which it is served late in months in which no batch meets its objective, 0 in others,
    shape (months,); None where it always meets it, or is refused then."""

    @property
    def cluster_order(self) -> tuple[int, ...]:
        """Return the clusters that can serve the workload, in routing order."""
        return tuple(chain.from_iterable(self.cluster_tiers))

    @property
    def tokens_per_request(self) -> Floats:
        """Prompt and generated tokens together, shape (months,)."""
        return self.input_tokens + self.output_tokens


@record
class PaymentPlan:
    """A share of an order's price that is paid on another day than delivery."""

    fraction: float
    from_order: bool
    """Whether it is counted from the order, or from each delivery."""
    after_h: float


@record
class OrderPlan:
    """A purchase order."""

    placed_h: float
    lead_h: float
    slip_h: ThreePoint
    """Its lowest, most likely and highest."""
    deliveries: int
    interval_h: float
    acceptance_failure_fraction: float
    payments: tuple[PaymentPlan, ...] = ()
    """The rest is paid on delivery."""

    @property
    def earliest_h(self) -> float:
        """Hour of the first delivery where nothing slips."""
        return self.placed_h + self.lead_h + self.slip_h.low


@record
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


@record
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
    rent: RentPlan | None = None
    """The contract of machines that are rented; their prices are zero."""
    lease: LeaseTerms | None = None
    """The finance lease of machines that are on the books without having been paid for."""
    leased_prices_usd: Prices | None = None
    """What a node that is leased, on whatever terms, costs new; None where its own prices say it."""
    api: ApiPlan | None = None
    """The API that it stands for; None where it has machines."""
    price_book: PriceBook | None = None
    """What later orders of its accelerators cost; None where only the list price moves."""

    @property
    def earliest_h(self) -> float:
        """First hour at which the cluster can be there: its order's without delay, or its stated date."""
        if self.order is None:
            return self.online_h or 0.0
        return max(self.order.earliest_h, 0.0)

    @property
    def is_hosted(self) -> bool:
        """Whether the machines are hosted by a provider."""
        return self.api is not None or (self.rent is not None and self.rent.is_hosted)

    @property
    def is_paid_by_the_hour(self) -> bool:
        """Whether the machines are rented by the hour and held as the load needs them."""
        if self.rent is None or self.rent.hourly is None:
            return False
        # Infinitely many warm nodes are all of them, held whatever the load.
        return self.rent.warm_nodes < np.inf

    @property
    def upkeep_prices_usd(self) -> Prices:
        """Return a node's prices when new, as the base of upkeep cost, also for leased machines."""
        # The prices of a leased node are what is owed for it, not what it costs new.
        if self.leased_prices_usd is None:
            return self.prices_usd
        return self.leased_prices_usd

    @property
    def first_prices_usd(self) -> Prices:
        """Return a node's prices in the purchase that the plan itself states."""
        # Owned machines may have cost something else than an order would today.
        if self.owned is None or self.order is not None:
            return self.prices_usd
        return self.owned.prices_usd

    def order_prices_usd(self, order_h: float, nodes: int, list_factor: float) -> Prices:
        """Return a node's prices in a later order: list prices times the factor, quotes while valid."""
        # The market moves list prices; a quote holds what it says while it is valid.
        prices = tuple(price * list_factor for price in self.prices_usd)
        if self.price_book is None:
            return prices
        # Quotes are chosen by the day of the order, not of delivery.
        order_date = self.price_book.start + timedelta(hours=order_h)
        unit_usd = self.price_book.accelerator_usd(
            order_date, nodes * self.accelerators_per_node, list_factor
        )
        return unit_usd * self.accelerators_per_node, *prices[1:]


@record
class Deployment:
    """One model, or several that share the same accelerators, in a layout and a pool of some size on a cluster."""

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
    layout: Hashable = None
    """What is loaded: a pool that grows in the same layout keeps what it has."""
    least_nodes: float = 0.0
    """Nodes of its pool from which its figures hold: a router over more replicas keeps each busier."""
    pool_speed: Mapping[int, float] = field(default_factory=dict)
    """By workload, what a node of this pool sustains over the plan's figure, where that is another."""
    tables: Mapping[int, MissTables] = field(default_factory=dict)
    """By workload, the misses by load in this pool, where they are others than the plan's."""

    @property
    def min_nodes(self) -> float:
        """Nodes of the smallest number of replicas that hold every fine-tune."""
        return self.least_replicas * self.nodes_per_replica


@record
class Placement:
    """Division of a plan's clusters among their models."""

    deployments: tuple[Deployment, ...]
    """Of all clusters; those of one cluster follow each other, the highest priority first."""
    groups: tuple[tuple[int, ...], ...]
    """Deployments that are the same models on the same cluster, by rising size of their pool: one of them is held."""
    group_of: Mapping[tuple[int, int], int]
    """Which group serves a workload on a cluster."""
    placed: tuple[bool, ...]
    """Of each cluster, whether whole replicas count on it; otherwise any share of it may serve any model."""
    target_requests: Floats
    """Capacity at which equal steps of a workload's SLO target are served in time of a month's forecast, requests an
    hour, shape (workloads, months, steps + 1)."""
    beyond_requests: Floats
    """The same for equal steps from the target to all requests, up to the capacity below."""
    full_requests: Floats
    """Capacity that a month's review would have for a workload if there were room, shape (workloads, months)."""
    pools: Plan
    """The plan with pools in place of clusters; work that can wait is offered its own pools before those in which it
    uses what idles. Its rates and tables are by size of pool: their first axis has the sizes of all pools."""
    pool_cluster: tuple[int, ...]
    """The cluster of each pool; those that serve something come first."""
    pool_group: tuple[int | None, ...]
    """The group of which each pool holds replicas; None for what serves whatever comes, or holds nothing."""
    pool_sizes: tuple[tuple[int, ...], ...]
    """The sizes of each pool, by rising number of nodes: in an hour it has the figures of one of them."""
    size_deployment: tuple[int | None, ...]
    """The deployment whose figures each size has; None for the plan's own."""
    size_least_nodes: Floats
    """Nodes from which the figures of each size hold, shape (sizes,)."""
    size_worth: Floats
    """What capacity at each size counts for over that of the cluster that is offered a workload first, where the same
    share is to be in time, shape (sizes, workloads)."""
    size_calm_load: Floats
    """The load of each size up to which hardly more of a workload is late than on idle machines, of the same shape."""
    size_speed: Floats
    """Speed of each size on a workload over the plan's figure, 0 for no service, shape (sizes, workloads, months or
    1)."""


@record
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
    rated_kw: Floats
    """IT power for which cooling has been built: the most nodes that were there together by then at full load, or what
    the cap allows, shape (hours,)."""
    block_h: Floats
    """When each power block is energised, shape (blocks,)."""
    block_kw: Floats
    """IT power energised by then in all, shape (blocks,)."""
    outages_per_year: float
    outage_h: float
    commissioning_crews: int
    commissioning_h: float


@record
class ProcessPlan:
    """A user's process that runs with the simulation."""

    function: str
    file: str
    """Where its code is from; empty for an installed package's."""
    source: bytes


@record
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
    reliability: ReliabilityPlan
    software: SoftwarePlan
    site: SitePlan
    expansion: ExpansionPlan
    money: MoneyPlan
    slo_target: SloTarget
    warnings: tuple[str, ...]
    """What is implausible: contradictions that are not errors, with their numbers."""
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
    caches: Mapping[tuple[int, int], CacheUse] = field(default_factory=dict)
    """By cluster and workload, what is found in the prefix cache by load, where that follows from memory."""
    placement: Placement | None = None
    """How models share clusters; None where any share of a cluster may serve any model."""
    throughput_factors: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    """What a study multiplies the throughput model's figures by, by accelerator, engine and model."""
    processes: tuple[ProcessPlan, ...] = ()
    """The user's own, that run with the simulation."""

    def crew_load(self, nodes: Floats, crews: int) -> float:
        """Return the load of the repair crews: Σ nodes on site · crew hours per node and hour / crews.

        Crew hours are the vendor's factor · those of the failures, and f · repair / n for each domain of n nodes that
        fails f times an hour.
        """
        # A provider's own crews mend hosted machines.
        factor = np.array([cluster.failure_multiplier for cluster in self.clusters])
        nodes = nodes * self.on_site
        shared_h = sum(
            domain.per_year / HOURS_PER_YEAR * domain.repair_h / domain.nodes
            for domain in self.reliability.domains
        )
        crew_h_per_node_h = factor * self.reliability.crew_h_per_node_h + shared_h
        return float(nodes @ crew_h_per_node_h) / crews

    def engineer_load(self, team: int, engineers: int) -> float:
        """Return the load of a team: Σ over stacks and models of incidents a year · mean hours each / hours a year.

        Over the number of incidents that the team mends at once.

        What is rolled back is mended too, so that the release can be taken again. Incidents that the vendor mends first
        take less, so this is the load were there no vendor.
        """
        hours = 0.0
        for stack in self.software.stacks:
            if stack.team != team:
                continue
            is_served = np.any(self.software.stack_of == stack.name, axis=0)
            models = {self.workloads[w].model for w in np.flatnonzero(is_served)}
            for incident in stack.incidents:
                difficulty = incident.difficulty(incident.fix_days.lognormal_mean)
                work_h = difficulty * self.software.engineer_h
                by_upgrades = incident.per_upgrade * stack.upgrades_per_year
                # Rates are by served model: each has its own incidents.
                per_year = len(models) * (incident.per_year + by_upgrades)
                hours += per_year * TeamPlan.hours(work_h, engineers)
        return hours / HOURS_PER_YEAR / TeamPlan.at_once(engineers)

    @property
    def idle_late_shares(self) -> Floats:
        """Shares of the prompts too long for an idle replica to meet their objective, shape (clusters, workloads)."""
        assert self.no_burst_tables is not None  # a compiled plan has them
        # The first cell is an idle replica.
        return self.no_burst_tables[0, :, :, 0]

    @property
    def slo_attainments(self) -> Floats:
        """The attainment that each workload is held to, shape (workloads,), (1,) where all are held to one."""
        target = self.slo_target
        if target.scope != "workload":
            return np.array([target.attainment])
        return np.array([target.attainment_of(workload.name) for workload in self.workloads])

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
        apis = [cluster.api.workloads for cluster in self.clusters if cluster.api is not None]
        has_api = set(chain.from_iterable(apis))
        is_here = []
        for w, workload in enumerate(self.workloads):
            clusters = list(workload.cluster_order)
            # A workload that nothing serves is nowhere else either.
            is_own = bool(self.on_site[clusters].all())
            is_here.append(is_own and w not in has_api)
        return is_here

    @property
    def tokens_per_request(self) -> Floats:
        """Mean prompt and generated tokens of a request, shape (months, workloads)."""
        return np.stack([workload.tokens_per_request for workload in self.workloads], axis=-1)

    @property
    def request_tokens(self) -> Floats:
        """Mean tokens of a request, shape (months, workloads, 3).

        The last axis is the kinds of :data:`~planner.finance.money_plan.TOKEN_KINDS`.
        """
        columns = []
        for workload in self.workloads:
            cached = workload.cached_input_fraction
            computed_tokens = workload.input_tokens * (1.0 - cached)
            cached_tokens = workload.input_tokens * cached
            columns.append((computed_tokens, cached_tokens, workload.output_tokens))
        # From (workloads, kinds, months) to (months, workloads, kinds).
        return np.moveaxis(np.array(columns), 2, 0)

    def request_usd(self, price: Floats) -> Floats:
        """Return the price of a request, Σ tokens·price / 10⁶ over the kinds of tokens, shape (months, workloads)."""
        by_kind = self.request_tokens * price
        return np.asarray(by_kind.sum(axis=2) / MILLION, dtype=np.float64)

    def api_request_usd(self, cluster: int) -> Floats:
        """Return what an API asks for a request, shape (months, workloads); 0 of what it may not serve."""
        api = self.clusters[cluster].api
        if api is None:
            return np.zeros(self.tokens_per_request.shape)
        return self.request_usd(api.prices)

    @property
    def refusal_free_load(self) -> Floats:
        """Load below which fewer than a millionth of requests are rejected, shape (clusters, workloads)."""
        # Tables rise with load, so the cells below the limit come first.
        cells = (self.refused_tables < 1e-6).sum(axis=2)
        cell_width = MOST_LOAD / LOAD_CELLS
        return np.asarray(np.maximum(cells - 1, 0) * cell_width, dtype=np.float64)
