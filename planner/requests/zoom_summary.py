"""What a zoom found, as its summary.json holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from planner.answers.json_records import OPTIONAL, Json, fields_json, read_record
from planner.output.folder import SUMMARY, Contents
from planner.output.tables import SCHEMA_VERSION
from planner.records import record
from planner.requests.outcome import PERCENTILES, QUANTITIES, Estimate, Outcome
from planner.requests.router import LatencySlo
from planner.requests.zoom import Zoom

Percentiles = Mapping[str, Estimate]
"""Seconds with their 95% intervals, by percentile: p50, p99.9."""


@record
class LatencyObjectives:
    """The latency objectives of a workload that is not deferrable."""

    ttft_s: float
    tpot_s: float


@record
class WorkloadOutcome:
    """What became of a workload's requests, and what the hourly model says of the same hour."""

    requests: int
    due: int
    finished: int
    status: str
    """MEASURED, or INCONCLUSIVE where the minutes are too few to judge deferrable work by."""
    slo_attainment_fraction: float | None
    slo_attainment_low_fraction: float | None
    slo_attainment_high_fraction: float | None
    late_fraction: float
    shed_fraction: float
    in_flight_fraction: float
    hourly_slo_attainment_fraction: float | None
    hourly_late_fraction: float | None
    hourly_shed_fraction: float | None
    slo: LatencyObjectives | None = field(default=None, metadata=OPTIONAL)
    ttft_s: Percentiles | None = field(default=None, metadata=OPTIONAL)
    tpot_s: Percentiles | None = field(default=None, metadata=OPTIONAL)
    total_s: Percentiles | None = field(default=None, metadata=OPTIONAL)
    slo_miss_causes: Mapping[str, int]
    """Requests that missed their SLO, by the first cause that holds."""

    def latencies(self) -> dict[str, Percentiles]:
        """Return the latencies that some request has, by their names."""
        by_name = {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s, "total_s": self.total_s}
        return {name: latency for name, latency in by_name.items() if latency is not None}


@record
class RequestCounts:
    """Requests of the whole simulation, those before and after the minutes that count included."""

    asked_for: int
    arrived: int
    finished: int
    refused: int
    in_flight: int


@record
class GroupReplicas:
    """How many replicas of a group were simulated."""

    name: str
    simulated: int
    in_service: int


@record
class ZoomSummary:
    """The headline figures of a zoom."""

    schema_version: str = SCHEMA_VERSION
    scenario: str
    at: str
    minutes: int
    seed: int
    replication: int
    simulated_share_fraction: float
    requests: RequestCounts
    replicas: list[GroupReplicas]
    utilisation_fraction: Mapping[str, float | None]
    """By cluster; None where it has no replica."""
    hourly_utilisation_fraction: Mapping[str, float | None]
    workloads: Mapping[str, WorkloadOutcome]

    def to_json(self) -> Json:
        """Return summary.json."""
        return fields_json(self)

    @staticmethod
    def from_json(contents: Contents) -> ZoomSummary:
        """Return the summary in a folder; raise ScenarioError where it does not fit."""
        return read_record(ZoomSummary, contents.summary, SUMMARY)


def zoom_summary(zoom: Zoom, by_workload: Sequence[Outcome]) -> ZoomSummary:
    """Return the headline figures of a zoom."""
    clusters = [cluster.name for cluster in zoom.plan.clusters]
    simulated = map(known, zoom.utilisation_fraction.tolist())
    hourly = map(known, zoom.hour.utilisation_fraction.tolist())
    arrived, finished, refused, in_flight = zoom.counts
    groups = zip(group_names(zoom), zoom.replicas, zoom.hour.replica_groups, strict=True)
    return ZoomSummary(
        scenario=zoom.scenario.name,
        at=zoom.request.start.isoformat(),
        minutes=zoom.request.minutes,
        seed=zoom.seed,
        replication=zoom.request.replication,
        simulated_share_fraction=zoom.share,
        requests=RequestCounts(
            asked_for=zoom.request.requests,
            arrived=arrived,
            finished=finished,
            refused=refused,
            in_flight=in_flight,
        ),
        replicas=[
            GroupReplicas(name=name, simulated=count, in_service=group.replicas)
            for name, count, group in groups
        ],
        utilisation_fraction=dict(zip(clusters, simulated, strict=True)),
        hourly_utilisation_fraction=dict(zip(clusters, hourly, strict=True)),
        workloads={
            outcome.name: _workload_outcome(zoom, w, outcome)
            for w, outcome in enumerate(by_workload)
            if outcome.arrived_s.size
        },
    )


def _workload_outcome(zoom: Zoom, w: int, outcome: Outcome) -> WorkloadOutcome:
    """Return what became of one workload's requests."""
    attained = outcome.attained()
    late = float(zoom.hour.late_fraction[w])
    shed = float(zoom.hour.shed_fraction[w])
    # Deferrable work in flight has hours left: it is not late.
    is_waiting = outcome.in_flight & outcome.is_deferrable
    is_late = ~outcome.attainment & ~outcome.refused & ~is_waiting
    latencies = {name: _percentiles(outcome, name) for name in QUANTITIES}
    return WorkloadOutcome(
        requests=outcome.arrived_s.size,
        due=round(outcome.due),
        finished=outcome.finished_s.size,
        status="INCONCLUSIVE" if math.isnan(attained.value) else "MEASURED",
        slo_attainment_fraction=known(attained.value),
        slo_attainment_low_fraction=known(attained.low),
        slo_attainment_high_fraction=known(attained.high),
        late_fraction=float(is_late.mean()),
        shed_fraction=float(outcome.refused.mean()),
        in_flight_fraction=float(outcome.in_flight.mean()),
        hourly_slo_attainment_fraction=known(1.0 - late - shed),
        hourly_late_fraction=known(late),
        hourly_shed_fraction=known(shed),
        slo=_objectives(zoom.slos[w]),
        **latencies,
        slo_miss_causes=outcome.reasons(),
    )


def _objectives(slo: LatencySlo) -> LatencyObjectives | None:
    """Return the latency objectives of a workload; None of one that is deferrable."""
    if slo.is_deferrable:
        return None
    return LatencyObjectives(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s)


def _percentiles(outcome: Outcome, quantity: str) -> Percentiles | None:
    """Return the percentiles of a latency; None where no request has it."""
    estimates = {f"p{100 * p:g}": outcome.percentile(quantity, p) for p in PERCENTILES}
    if math.isnan(estimates["p50"].value):
        return None
    return estimates


def known(value: float) -> float | None:
    """Return a figure; None where there is none (NaN)."""
    if math.isnan(value):
        return None
    return value


def group_names(zoom: Zoom) -> list[str]:
    """Return what each group of replicas is called."""
    return [
        f"{zoom.plan.clusters[group.cluster].name} {group.model} x{group.accelerators}"
        for group in zoom.hour.replica_groups
    ]
