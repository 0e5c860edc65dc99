"""Failures, compiled: causes, failure domains, planned work, repair crews and spares."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.catalog.load import Catalog
from planner.plan.staffing import Headcount, headcount
from planner.records import record
from planner.scenario.cluster import Spot
from planner.scenario.fields import PerThousand
from planner.scenario.scenario import Reliability, Scenario
from planner.units import HOURS_PER_DAY, HOURS_PER_WEEK, HOURS_PER_YEAR, MONTHS_PER_YEAR

INTERRUPTION = "spot interruption"
"""Cause of an outage of a spot node, the last of a plan's causes where one has such a contract."""


@record
class CausePlan:
    """One cause of node failures: its rate, and its shares of soft and medium severity."""

    name: str
    per_node_h: float
    whole_node: bool
    soft_fraction: float
    medium_fraction: float


@record
class DomainPlan:
    """A failure domain, such as a rack, whose failure takes all its nodes out of service."""

    name: str
    nodes: int
    per_year: float
    """Failures of each."""
    repair_h: float


@record
class PlannedWork:
    """Planned work that drains nodes at regular intervals."""

    every_h: float
    length_h: float
    nodes_fraction: float = 1.0
    """Mean share of nodes that come up for it each time."""


@record
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
        # A hair above a whole number is that number: 0.1 of 30 nodes are three.
        share = math.ceil(self.reserve_fraction * nodes - 1e-9)
        return max(self.reserve_nodes, share)

    @property
    def crew_h_per_node_h(self) -> float:
        """Crew hours of repair per node and hour: Σ rate · (medium share · repair + hard share · repair)."""
        # Soft failures mend themselves, without a crew.
        _, medium_h, hard_h = self.repair_h
        crew_h = 0.0
        for cause in self.causes:
            hard_fraction = 1.0 - cause.soft_fraction - cause.medium_fraction
            repair_h = cause.medium_fraction * medium_h + hard_fraction * hard_h
            crew_h += cause.per_node_h * repair_h
        return crew_h


def reliability_plan(scenario: Scenario, catalog: Catalog) -> ReliabilityPlan:
    """Compile failures, repair crews and spares."""
    stated = scenario.reliability
    priors = {path: catalog.prior(name).base for path, name in stated.left_open().items()}

    def figure(value: float | None, *path: str) -> float:
        """Return a figure as stated, or the base value of its prior where it is not stated."""
        return float(priors.get(path, value) or 0.0)

    domains = tuple(
        DomainPlan(
            name=name.replace("_", " "),
            nodes=round(figure(domain.nodes, "failure_domains", name, "nodes")),
            per_year=figure(domain.failures_per_year, "failure_domains", name, "failures_per_year"),
            repair_h=figure(domain.repair_h, "failure_domains", name, "repair_h"),
        )
        for name, domain in stated.failure_domains.items()
    )
    maintenance = None
    if (drains := stated.maintenance) is not None:
        every_h = drains.every_weeks * HOURS_PER_WEEK
        # A rate of nodes and days becomes a share of the nodes at each round of maintenance.
        per_1000 = figure(drains.per_1000_node_days, "maintenance", "per_1000_node_days")
        maintenance = PlannedWork(
            every_h=every_h,
            length_h=figure(drains.length_h, "maintenance", "length_h"),
            nodes_fraction=per_1000 / 1000.0 * every_h / HOURS_PER_DAY,
        )
    firmware = None
    if (rollouts := stated.firmware) is not None:
        per_year = figure(rollouts.rollouts_per_year, "firmware", "rollouts_per_year")
        firmware = PlannedWork(
            every_h=HOURS_PER_YEAR / per_year,
            length_h=figure(rollouts.length_h, "firmware", "length_h"),
        )
    return ReliabilityPlan(
        causes=tuple(_causes(scenario, catalog)),
        lemon_fraction=stated.lemon_fraction,
        lemon_multiplier=stated.lemon_multiplier,
        early_life_multiplier=stated.early_life_multiplier,
        early_life_h=stated.early_life_months * HOURS_PER_YEAR / MONTHS_PER_YEAR,
        repair_h=(stated.soft_repair_h, stated.medium_repair_h, stated.hard_repair_h),
        repair_cv=stated.repair_cv_ratio,
        # A site with machines has someone to mend them.
        crews=headcount(stated.repair_crews, minimum=1),
        spares=_spares(stated),
        rma_h=stated.rma_weeks * HOURS_PER_WEEK,
        domains=domains,
        maintenance=maintenance,
        firmware=firmware,
        reserve_nodes=stated.reserve_nodes or 1,
        reserve_fraction=figure(stated.reserve_fraction, "reserve_fraction"),
    )


def _causes(scenario: Scenario, catalog: Catalog) -> Iterator[CausePlan]:
    """Yield the catalogue's causes of failure, and the interruptions of spot contracts where there are any."""
    multiplier = scenario.reliability.failure_multiplier
    for name, cause in catalog.failures.items():
        yield CausePlan(
            name=name,
            # From failures in 1,000 node-days to failures of a node in an hour.
            per_node_h=cause.per_1000_node_days.value / (1000.0 * HOURS_PER_DAY) * multiplier,
            # Others take one accelerator, and its replica's.
            whole_node=cause.scope.value == "node",
            soft_fraction=cause.soft_fraction.value,
            medium_fraction=cause.medium_fraction.value,
        )
    if any(isinstance(cluster.contract, Spot) for cluster in scenario.clusters.values()):
        # It has no rate here: each spot contract states how often, and for its own nodes alone.
        yield CausePlan(
            name=INTERRUPTION,
            per_node_h=0.0,
            whole_node=True,
            soft_fraction=1.0,
            medium_fraction=0.0,
        )


def _spares(stated: Reliability) -> Headcount:
    """Compile the stock of spare parts, which has at least one where it has any."""
    if stated.spare_fraction is not None:
        return Headcount(per_node=stated.spare_fraction, minimum=int(stated.spare_fraction > 0))
    is_rate = isinstance(stated.spares, PerThousand) and stated.spares.per_1000_accelerators > 0
    return headcount(stated.spares, minimum=int(is_rate))
