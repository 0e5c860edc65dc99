"""A plan's verdict: its SLO target, how many of its replications meet it, and where it is missed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from planner.answers.json_records import OPTIONAL
from planner.arrays import Floats
from planner.plan.attainment import Status, Verdict, met_months_over
from planner.records import record
from planner.run.slo_misses import LongPrompts
from planner.scenario.scenario import Scenario


@record
class LowestMonth:
    """The month in which SLO attainment is lowest."""

    month: str
    slo_attainment_fraction: float


@record
class BaseCase:
    """Where the base case, the first replication, falls shortest of its SLO target."""

    month: str
    workload: str | None
    """None where the target is of all workloads together."""
    slo_attainment_fraction: float


@record
class Estimate:
    """A figure over replications, with its 95% interval; None where too few replications could be run."""

    value: float | None
    low: float | None
    high: float | None


def first_missed_month(met_months: Floats, confidence: float, labels: Sequence[str]) -> str | None:
    """Return the first month that too many replications miss; None where the plan lasts to the horizon.

    ``met_months`` are the months before the first that a replication misses.
    """
    through = int(met_months_over(met_months, confidence))
    if through < len(labels):
        return labels[through]
    return None


@record
class PlanVerdict:
    """The verdict on one plan over its replications: the same on every surface, and as summary.json holds it."""

    status: Status
    attainment: float
    """SLO attainment that is targeted, and the target's other terms as a scenario states them."""
    per: str
    scope: str
    workloads: Mapping[str, float]
    """Attainment of workloads that are held to another."""
    confidence: float
    """Share of replications that must meet the target."""
    stated: bool
    """Whether the scenario states a target; False where it is the default one."""
    met_replications: int
    replications: int
    met_fraction: float | None
    """Share of replications that meet the target, within its interval; None without any."""
    met_low_fraction: float
    met_high_fraction: float
    settled_by_replications: int | None
    """Replications that would settle an INCONCLUSIVE verdict."""
    shortfall_fraction: float | None
    """How far the plan falls short, over its replications; 0 where enough of them meet the target."""
    first_missed_month: str | None
    """First month that too many replications miss."""
    lowest_fraction: float | None = None
    """Lowest SLO attainment of any replication."""
    base_case: BaseCase | None = None
    """None where there was no request to serve."""
    past_mending: Mapping[str, int] | None = None
    """Replications that miss the target whatever is bought, by cause."""
    run_out_fraction: Mapping[str, float] | None = None
    """Share of replications that first miss the target in a month, by month."""
    missed_months: Mapping[str, int] | None = None
    """Replications that miss the target in a month, by month."""
    assumed_apis: Sequence[str] | None = field(default=None, metadata=OPTIONAL)
    """APIs of the plan, whose requests are assumed to meet their SLO; None without any."""
    long_prompts: Sequence[LongPrompts] | None = field(default=None, metadata=OPTIONAL)
    """Workloads whose prompts alone miss the target, whatever is bought; None of a plan without any."""
    otherwise_missed_month: str | None = field(default=None, metadata=OPTIONAL)
    """First month that the base case misses all the same, with late requests of those workloads set aside."""
    best_fraction: Estimate | None = field(default=None, metadata=OPTIONAL)
    """Share of a study's replications in which no other plan does better; None of all but studies."""

    @property
    def counts(self) -> Verdict:
        """The replications behind the verdict, from which everything statistical follows."""
        return Verdict(self.met_replications, self.replications, self.confidence)

    @classmethod
    def of(
        cls,
        counts: Verdict,
        scenario: Scenario,
        *,
        shortfall_fraction: float | None,
        first_missed_month: str | None,
    ) -> PlanVerdict:
        """Return the verdict on a scenario from its counted replications; ``replace`` adds what else is known."""
        low, high = counts.interval
        target = scenario.slo_target
        apis = [name for name, cluster in scenario.clusters.items() if cluster.is_api]
        return cls(
            status=counts.status,
            attainment=target.attainment,
            per=target.per,
            scope=target.scope,
            workloads=target.workloads,
            confidence=target.confidence,
            stated=scenario.states("slo_target"),
            met_replications=counts.met,
            replications=counts.replications,
            met_fraction=None if math.isnan(counts.share) else round(counts.share, 6),
            met_low_fraction=round(low, 6),
            met_high_fraction=round(high, 6),
            settled_by_replications=counts.settled_by if counts.status == "INCONCLUSIVE" else None,
            shortfall_fraction=shortfall_fraction,
            first_missed_month=first_missed_month,
            assumed_apis=apis or None,
        )
