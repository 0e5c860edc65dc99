"""A scenario compiled to arrays: all that a replication needs, none of what it does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.demand.plan import DemandPlan
from planner.finance.months import MonthGrid

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """One workload, as routing and accounting see it."""

    name: str
    input_tokens: float
    """Mean prompt tokens of a request."""
    output_tokens: float
    """Mean generated tokens of a request."""
    priority: int
    """0 interactive, 1 standard, 2 deferrable; lower is served first."""
    deadline_h: int
    """Hours that work may wait; 0 for work that is shed at once."""
    cluster_order: tuple[int, ...]
    """Clusters that can serve it, in the order in which they are offered it."""

    @property
    def tokens_per_request(self) -> float:
        """Prompt and generated tokens together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """One cluster, as the simulation sees it."""

    name: str
    accelerator: str
    vendor: str
    nodes: int
    accelerators_per_node: int
    online_h: float
    failures_per_node_h: float
    mean_repair_h: float
    node_idle_kw: float
    node_full_kw: float
    provisioned_kw: float
    """Nameplate IT power of the whole cluster: what colocation is paid for."""
    capital_usd: tuple[float, float, float, float]
    """What is bought for it: accelerators after discount, hosts, network, storage."""
    engineers: float
    """Software engineers its platform needs beyond the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPlan:
    """Prices and rates that turn a run into dollars."""

    depreciation_months: int
    residual_fraction: float
    discount_rate_per_year: float
    operations_fraction_per_year: float
    engineer_usd_per_year: float
    electricity_usd_per_kwh: float
    pue_ratio: float
    colocation_usd_per_kw_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything about a scenario that does not change between replications."""

    name: str
    seed: int
    months: MonthGrid
    workloads: tuple[WorkloadPlan, ...]
    clusters: tuple[ClusterPlan, ...]
    demand: DemandPlan
    requests_per_s_per_node: Floats
    """Largest sustained load of one healthy node at the workload's objective, shape (clusters, workloads)."""
    repair_crews: int
    money: MoneyPlan

    @property
    def hours(self) -> int:
        """Hours of the horizon."""
        return self.months.hour_count
