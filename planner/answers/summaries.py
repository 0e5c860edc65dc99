"""What each command found, as typed records: summary.json, and what ``--json`` prints, are these written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from planner.answers.json_records import OPTIONAL, Json, fields_json, read_record
from planner.answers.verdicts import Estimate, LowestMonth, PlanVerdict
from planner.finance.measure_names import FLEET
from planner.output.folder import SUMMARY, Contents
from planner.records import record
from planner.run.placement_bound import PlacementGap
from planner.run.slo_misses import SloMiss
from planner.studies.remedy import NoRemedy, Remedy

Measures = Mapping[str, float | None]
"""Figures by the registered names of their measures; None where a measure has no meaning."""
TableRows = Sequence[Mapping[str, object]]
"""The rows of a table as JSON has them, by column."""


@record
class UseAndCost:
    """How much of some machines was used, and what that cost, over the horizon."""

    availability_fraction: float | None
    utilisation_fraction: float | None
    """None of an API, which has no machines."""
    served_tokens: int
    energy_kwh: float
    cost_usd: float
    cost_per_million_tokens_usd: float | None
    cost_per_million_output_tokens_usd: float | None


@record
class ClusterFigures(UseAndCost):
    """Use and cost of one cluster."""

    nodes: int
    """Most nodes present in a month."""
    note: str
    """When it comes and goes, where that is within the horizon."""


@record
class FleetFigures(UseAndCost):
    """Use and cost of all clusters together, how they serve, and how tight they are."""

    demand_tokens: int
    shed_tokens: int
    shed_fraction: float | None
    slo_attainment_fraction: float | None
    idle_capacity_cost_usd: float
    """Accrued cost of capacity that no workload uses."""
    one_off_cost_usd: float
    peak_headroom_fraction: float | None
    peak_headroom_month: str | None
    peak_facility_kw: float


@record
class WorkloadFigures:
    """How one workload is served, and what that costs."""

    demand_tokens: int
    shed_tokens: int
    slo_attainment_fraction: float | None
    marginal_cost_per_million_tokens_usd: float | None
    """Levelised, as are the following: what one token more moves."""
    absorbed_cost_per_million_tokens_usd: float | None
    """With its own capacity and its share of what is idle."""
    absorbed_cost_per_million_output_tokens_usd: float | None
    lowest: LowestMonth | None
    """None where it had no request."""


@record
class CacheFigures:
    """What a workload finds in the prefix caches of a cluster over the run, where that follows from memory."""

    cluster: str
    workload: str
    hit_fraction: float
    """Of its prompt tokens."""
    host_hit_fraction: float
    """Of its prompt tokens, those copied from host memory."""
    cached_contexts: float
    """Mean prompts that its replicas hold at capacity, at most in any month."""


@record
class OrderFigures:
    """Nodes that are yet to be ordered, or to come, on the first day; orders of one day and cluster are one."""

    cluster: str
    nodes: int
    placed: str | None
    """Day of the order; None where the plan states the day of service alone."""
    on_site: str
    """Day of the first delivery in the base case, slips included."""


@record
class ReplicationsSummary:
    """How many replications a plan was run in, and where its figures lie."""

    number: int
    coverage_fraction: float
    words: str
    """The coverage in words, for a sentence."""
    intervals: Mapping[str, tuple[float, float]]


@record
class ReconciliationLine:
    """A line on the way from P&L cost to net present cost."""

    line: str
    kind: str
    """``sum`` of the lines above, or an ``item``."""
    amount_usd: float


@record
class RunSummary:
    """The key figures of a run."""

    schema_version: str
    scenario: str
    start: str
    horizon_months: int
    seed: int
    replication: int
    verdict: PlanVerdict
    fleet: FleetFigures
    clusters: Mapping[str, ClusterFigures]
    workloads: Mapping[str, WorkloadFigures]
    measures: Measures
    replications: ReplicationsSummary | None
    """None where the plan was run once."""
    slo_misses: Sequence[SloMiss]
    """The largest causes, worst first; none of a first screen, for which work is not routed anew."""
    placement: Sequence[PlacementGap] = ()
    """What of each workload could be served at most; none of a first screen."""
    capacity_fraction: Mapping[str, float]
    """Where the node-hours on site went, as shares that sum to one."""
    reconciliation: Sequence[ReconciliationLine]
    caches: Sequence[CacheFigures] | None = field(default=None, metadata=OPTIONAL)
    """Where workloads state their reuse, those that find most first."""
    orders: Sequence[OrderFigures] = ()
    """What is bought next and by when, in the base case."""
    missed_without_orders: str | None = None
    """Month in which the base case first misses its SLO target if none of these orders is placed."""
    warnings: Sequence[str]
    notes: Sequence[str]
    remedy: Remedy | NoRemedy | None = field(default=None, metadata=OPTIONAL)
    """What would meet a target that is missed, where ``--advise`` looked for it."""

    def to_json(self) -> Json:
        """Return summary.json, which has the fleet beside its clusters."""
        content = fields_json(self)
        fleet = content.pop("fleet")
        clusters = {name: fields_json(figures) for name, figures in self.clusters.items()}
        return content | {"clusters": {FLEET: fleet, **clusters}}

    @classmethod
    def read(cls, contents: Contents) -> RunSummary:
        """Return the summary of a run's folder."""
        content = dict[str, object](contents.summary)
        match content.get("clusters"):
            case {"fleet": fleet, **clusters}:
                content |= {"fleet": fleet, "clusters": clusters}
        return read_record(cls, content, SUMMARY)


@record
class ComparisonSummary:
    """Plans side by side under the same random numbers."""

    schema_version: str
    baseline: str
    seed: int
    scenarios: Mapping[str, Measures]
    bridge_per_million_tokens_usd: Mapping[str, Mapping[str, float]]
    """Why a token costs more or less than in the baseline, by plan and cause."""
    verdicts: Mapping[str, PlanVerdict]
    replications: Mapping[str, ReplicationsSummary]
    saving_interval_fraction: Mapping[str, tuple[float, float]]
    """Where the saving of each plan against the baseline lies over replications."""
    futures: TableRows | None = field(default=None, metadata=OPTIONAL)
    measured_layouts: Mapping[str, Measures] | None = field(default=None, metadata=OPTIONAL)
    """Cost and shortfall of each plan's base case with layouts alone that rows measured."""
    warnings: Sequence[str]
    notes: Sequence[str]

    @classmethod
    def read(cls, contents: Contents) -> ComparisonSummary:
        """Return the summary of a comparison's folder."""
        return read_record(cls, contents.summary, SUMMARY)


@record
class PairDecision:
    """How a plan stands against another over a study's replications."""

    scenario: str
    against: str
    """Empty for all others together."""
    probability_better: Estimate
    mean_difference: Estimate
    mean_regret: Estimate


@record
class VarianceDriver:
    """An input that explains some of the first plan's variance, with the ends of its bar."""

    input: str
    variance_share: float
    noise_share: float
    """Share that an input without effect would show."""
    low: float
    high: float


@record
class RankFlip:
    """The value of an input at which the first plan and another change places."""

    input: str
    against: str
    threshold: float


@record
class FailedReplication:
    """A replication of a scenario that could not be run."""

    replication: int
    scenario: str
    error: str


@record
class StudySummary:
    """A study's objective by plan, verdicts, decisions and drivers; printed, its folder has tables."""

    schema_version: str
    study: str
    replications: int
    simulated: int
    completed: int
    """Replications in which every scenario could be run."""
    objective: str
    scenarios: Mapping[str, Mapping[str, Estimate]]
    """The objective by plan and statistic."""
    service: Mapping[str, Measures]
    """Mean SLO attainment and share of tokens shed, by plan."""
    npv_above_zero: Mapping[str, Estimate]
    """Share of replications with a positive NPV, by plan that sells tokens."""
    verdicts: Mapping[str, PlanVerdict]
    decisions: Sequence[PairDecision]
    drivers: Sequence[VarianceDriver]
    flips: Sequence[RankFlip]
    warnings: Sequence[str]
    failures: Sequence[FailedReplication]
    dropped: Sequence[str]


@record
class SizingSentences:
    """What a sizing says, by what it is about."""

    answer: Sequence[str]
    """What to buy where a plan is confirmed, else that none is."""
    certainty: Sequence[str]
    """How deep misses go, and what no purchase prevents."""
    alternatives: Sequence[str]
    """Other ways to decide and plans of one accelerator."""
    orders: Sequence[str]
    """On what signal to order, and by when."""
    sensitivities: Sequence[str]
    """What looser limits, hindsight and measurements are worth."""

    def lines(self) -> list[str]:
        """Return all of them, the answer first."""
        return [
            *self.answer,
            *self.certainty,
            *self.orders,
            *self.alternatives,
            *self.sensitivities,
        ]


@record
class SizingSummary:
    """The cheapest plan that meets its SLO target, on fresh replications."""

    schema_version: str
    scenario: str
    objective: str
    verdict: PlanVerdict
    plan: TableRows
    """What to buy, a row each."""
    family: str
    objective_usd: float
    objective_low_usd: float
    objective_high_usd: float
    net_present_cost_usd: float
    capital_usd: float
    utilisation_fraction: float
    probability_fraction: float
    """Share of the confirmation's replications that meet the SLO target, counted."""
    probability_low_fraction: float
    """Lower end of its 95% interval."""
    probability_high_fraction: float
    is_confirmed: bool
    """Whether the lower limit of that share, at the error of its attempt, reaches what is asked."""
    perfect_information_saves: float | None
    """At most what any policy could save, in the unit of ``objective_usd``; None where it was not worked out."""
    unfixable_fraction: float
    """Share of replications that miss the target whatever is bought."""
    fresh_replications: int
    seed: int
    runs: int
    stopped: str
    """Why the search was not finished; empty where it was."""
    sentences: SizingSentences
    policies: TableRows
    futures: TableRows
    triggers: TableRows
    frontier: TableRows
    single_accelerator_plans: TableRows
    limits: TableRows
    sensitivity: TableRows
    regret: TableRows
    months: TableRows

    @classmethod
    def read(cls, contents: Contents) -> SizingSummary:
        """Return the summary of a sizing's folder."""
        return read_record(cls, contents.summary, SUMMARY)
