"""From a finished study to its summary: the objective by plan, verdicts, decisions and what drives the answer."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

from planner.answers.ranking import ATTAINMENT, SHED
from planner.answers.summaries import (
    FailedReplication,
    PairDecision,
    RankFlip,
    StudySummary,
    VarianceDriver,
)
from planner.answers.verdicts import Estimate, PlanVerdict
from planner.arrays import Floats
from planner.output.tables import SCHEMA_VERSION
from planner.plan.attainment import run_out
from planner.studies.analysis import ABOVE_ZERO, Finished, first_missed_month, month_labels
from planner.studies.decision import IntervalEstimate, sound_rows
from planner.studies.sensitivity import Driver

MAX_DRIVERS = 5
"""Inputs that a summary and a terminal name."""


def study_summary(finished: Finished) -> StudySummary:
    """Return a study's headline statistics, decisions, drivers and failures."""
    objective = finished.prepared.objective.name
    names = finished.prepared.names
    statistics: dict[str, dict[str, Estimate]] = {name: {} for name in names}
    service: dict[str, dict[str, float | None]] = {name: {} for name in names}
    gains: dict[str, Estimate] = {}
    outputs = (objective, ATTAINMENT, SHED, "npv_usd")
    for scenario, output, statistic, estimate in finished.statistics(outputs):
        if statistic == ABOVE_ZERO:
            gains[scenario] = _estimate(estimate)
            continue
        if output == objective:
            statistics[scenario][statistic] = _estimate(estimate)
        # Not else: the objective may itself be a figure of service.
        if output in (ATTAINMENT, SHED) and statistic == "mean":
            service[scenario][output] = finite(estimate.value)
    drivers = _drivers_by_method(finished)
    return StudySummary(
        schema_version=SCHEMA_VERSION,
        study=finished.prepared.study.name,
        replications=finished.rows,
        simulated=finished.simulated().size,
        completed=completed_rows(finished.by_scenario(objective)),
        objective=objective,
        scenarios=statistics,
        service=service,
        npv_above_zero=gains,
        verdicts=_verdicts(finished),
        decisions=[
            PairDecision(
                scenario=pair.scenario,
                against=pair.against,
                probability_better=_estimate(pair.probability_better),
                mean_difference=_estimate(pair.mean_difference),
                mean_regret=_estimate(pair.mean_regret),
            )
            for pair in finished.decisions()
        ],
        drivers=_variance_drivers(drivers["variance-share"], drivers["conditional-mean"]),
        flips=[
            RankFlip(input=flip.input, against=flip.against, threshold=flip.value)
            for flip in drivers["flip"]
        ],
        warnings=list(finished.prepared.warnings),
        failures=[
            FailedReplication(
                replication=failure.replication, scenario=failure.scenario, error=failure.message
            )
            for failure in finished.failures()
        ],
        dropped=finished.dropped(),
    )


def completed_rows(objective: Floats) -> int:
    """Return the rows in which every scenario could be run."""
    return int(sound_rows(objective).sum())


def _verdicts(finished: Finished) -> dict[str, PlanVerdict]:
    """Return the verdict on each plan, with how often it is the best."""
    prepared = finished.prepared
    labels = month_labels(prepared)
    verdicts = {}
    for base, standing, met_months in zip(
        prepared.scenarios,
        finished.standings(),
        finished.output("slo_met_months").T,
        strict=True,
    ):
        verdict = PlanVerdict.of(
            standing.verdict,
            base.scenario,
            shortfall_fraction=finite(standing.shortfall_fraction),
            first_missed_month=first_missed_month(prepared, standing),
        )
        verdicts[standing.scenario] = replace(
            verdict,
            past_mending=standing.past_mending,
            run_out_fraction=run_out(met_months, labels),
            best_fraction=_estimate(standing.best_fraction),
        )
    return verdicts


def _drivers_by_method(finished: Finished) -> dict[str, list[Driver]]:
    """Return the drivers of the first plan's objective; of flips those of every pair."""
    by_method: dict[str, list[Driver]] = defaultdict(list)
    first_plan = finished.prepared.names[0]
    for driver in finished.drivers():
        # The summary is short: shares and bars are of the first plan alone.
        is_of_first_plan = driver.scenario == first_plan and not driver.against
        if is_of_first_plan or driver.method == "flip":
            by_method[driver.method].append(driver)
    return by_method


def _variance_drivers(shares: list[Driver], bars: list[Driver]) -> list[VarianceDriver]:
    """Return the inputs that explain most of the variance, with the ends of their bars."""
    share_of = {(share.measure, share.input): share.value for share in shares}
    # Of inputs that explain as much the one with the longer bar.
    largest = sorted(
        bars, key=lambda bar: (share_of["first_order", bar.input], bar.value), reverse=True
    )
    return [
        VarianceDriver(
            input=bar.input,
            variance_share=share_of["first_order", bar.input],
            noise_share=share_of["noise_level", bar.input],
            low=bar.low,
            high=bar.high,
        )
        for bar in largest[:MAX_DRIVERS]
    ]


def _estimate(estimate: IntervalEstimate) -> Estimate:
    return Estimate(
        value=finite(estimate.value), low=finite(estimate.low), high=finite(estimate.high)
    )


def finite(number: float) -> float | None:
    """Return a number as JSON holds it; None where it is not known."""
    if not math.isfinite(number):
        return None
    return float(number) + 0.0  # −0 is 0
