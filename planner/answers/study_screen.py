"""What the terminal says of a study: verdicts, the line that answers, the plans, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from planner.answers.ranking import RankedPlan, rank, ranked_plans
from planner.answers.sentences import (
    gain_lines,
    inconclusive_lines,
    no_alternatives,
    none_met,
    past_mending_lines,
    plans_that_shed,
    target_lines,
)
from planner.answers.study_summary import MAX_DRIVERS, finite
from planner.answers.summaries import StudySummary
from planner.errors import PlannerError, printable
from planner.output.terminal import cell, text_table, wrapped
from planner.studies.analysis import MOST_DROPPED, Finished
from planner.studies.prepare import Prepared
from planner.studies.runner import Goal
from planner.studies.sensitivity import Driver

DRIVER_MEASURES = ("swing", "total", "threshold")
"""Measures of sensitivity that a terminal shows, in their order."""


def study_text(summary: StudySummary, *, verbose: bool = False) -> str:
    """Lay out a study for a terminal: verdicts, the line that answers, the plans, and what follows from them."""
    objective = summary.objective
    means = {
        name: {**service, objective: summary.scenarios[name]["mean"].value}
        for name, service in summary.service.items()
    }
    ranking = rank(ranked_plans(means, summary.verdicts, objective))
    best = none_met(ranking)
    if ranking.best is not None:
        best = f"Cheapest plan that is MET: {ranking.best.name}."
    lead = [
        *plans_that_shed(ranking.plans),
        *target_lines(summary.verdicts),
        best,
        *gain_lines(summary.npv_above_zero),
        *inconclusive_lines(ranking),
        *past_mending_lines(summary.verdicts),
    ]
    header = ("scenario", "SLO", "mean", "P5", "P50", "P95", "P(best)")
    rows = [_plan_cells(plan, summary) for plan in ranking.plans]
    lines = [
        f"{summary.study}   {_replications_words(summary)}",
        *wrapped(list(filter(None, lead))),
        "",
        f"{objective}:",
        text_table(header, rows),
    ]
    findings = [*no_alternatives(ranking), *driver_lines(summary), *summary.dropped]
    if verbose:
        spread_header = ("scenario", "P(met) low", "high", "attained", "mean ±95%", "P10", "P90")
        spreads = [_spread_cells(plan, summary) for plan in ranking.plans]
        lines += ["", text_table(spread_header, spreads)]
        first_plan = next(iter(summary.scenarios))
        findings += [
            f"{first_plan} and {flip.against} change places where {flip.input} passes {flip.threshold:.4g}."
            for flip in summary.flips[:MAX_DRIVERS]
        ]
    lines += ["", *wrapped(findings)]
    return "\n".join(lines).rstrip()


def _replications_words(summary: StudySummary) -> str:
    """Say how many replications there are, and of how many of them what is known."""
    words = f"{summary.replications:,} replications, inputs drawn"
    # Nested rows share a simulation and differ in prices.
    if summary.simulated < summary.replications:
        words += f", {summary.simulated:,} of them simulated and the others with their machines and other prices"
    if summary.completed < summary.replications:
        words += f"; {summary.completed:,} could be run in every scenario"
    return words


def _plan_cells(plan: RankedPlan, summary: StudySummary) -> tuple[str, ...]:
    """Return a plan's verdict, the objective's mean and percentiles, and how often it is the best."""
    statistics = summary.scenarios[plan.name]
    estimates = (statistics[name] for name in ("mean", "p5", "p50", "p95"))
    figures = (number_words(estimate.value) for estimate in estimates)
    best = summary.verdicts[plan.name].best_fraction
    probability = best.value if best else None
    return (plan.name, plan.standing, *figures, cell(probability, ".0%"))


def _spread_cells(plan: RankedPlan, summary: StudySummary) -> tuple[str, ...]:
    """Return the interval of a plan's probability to meet its target, and the spread of its objective."""
    verdict = summary.verdicts[plan.name]
    statistics = summary.scenarios[plan.name]
    mean = statistics["mean"]
    half_width = None
    if mean.value is not None and mean.low is not None:
        half_width = mean.value - mean.low
    return (
        plan.name,
        cell(verdict.met_low_fraction, ".1%"),
        cell(verdict.met_high_fraction, ".1%"),
        cell(plan.slo_attainment_fraction, ".2%"),
        number_words(half_width),
        number_words(statistics["p10"].value),
        number_words(statistics["p90"].value),
    )


def driver_lines(summary: StudySummary) -> list[str]:
    """Say which inputs explain the first scenario's variance, beyond what sampling noise shows."""
    if not summary.drivers:
        return []
    clear = [driver for driver in summary.drivers if driver.variance_share > driver.noise_share]
    # The largest of their noise levels: below it none can be told from none.
    noise = max(driver.noise_share for driver in summary.drivers)
    if not clear:
        return [
            f"No single input stands out: at this n one would have to explain {noise:.0%} of the variance."
        ]
    shares = ", ".join(f"{driver.input} {driver.variance_share:.0%}" for driver in clear)
    first_plan = next(iter(summary.scenarios))
    return [f"Variance of {first_plan}: {shares}; sampling noise {noise:.0%}."]


def driver_text(prepared: Prepared, drivers: Sequence[Driver]) -> str:
    """Lay out what drives the first scenario, and its difference to the others, largest first."""
    first_plan = prepared.names[0]
    lines: list[str] = []
    for against in dict.fromkeys(driver.against for driver in drivers):
        of_difference = [
            driver
            for driver in drivers
            if (driver.scenario, driver.against) == (first_plan, against)
        ]
        largest = sorted(
            (driver for driver in of_difference if driver.measure in DRIVER_MEASURES),
            key=lambda driver: (DRIVER_MEASURES.index(driver.measure), -abs(driver.value)),
        )
        rows = []
        for driver in largest:
            numbers = (driver.value, driver.low, driver.high)
            cells = (number_words(finite(number)) for number in numbers)
            rows.append((driver.input, driver.method, driver.measure, *cells))
        title = f"{first_plan} less {against}" if against else first_plan
        header = ("input", "method", "measure", "value", "low", "high")
        lines += [f"{title}: {prepared.objective.name}", "", text_table(header, rows), ""]
    return "\n".join(lines).rstrip()


def number_words(value: float | None) -> str:
    """Return a number with four digits, and a large one with all before the point."""
    if value is None:
        return ""
    if abs(value) < 1e6:
        return f"{value:,.4g}"
    return f"{value:,.0f}"


def study_remarks(finished: Finished, goal: Goal) -> Iterator[str]:
    """Yield how narrow an interval became, what is not of all replications, and which of them could not be run.

    A study without any is refused.
    """
    if goal.until:
        outputs = [finished.by_scenario(name) for name in goal.columns]
        reached = goal.reached(outputs, finished.replications)
        furthest = max(reached, key=lambda one: one.excess)
        after = f"after {finished.rows:,} replications"
        if furthest.excess > 1.0:
            after += "; extend with --resume and more"
        yield f"{furthest.words}, {after}"
    if finished.detailed < finished.rows:
        yield f"fans by month and what drives the headline are of the first {finished.detailed:,} replications"
    failures = finished.failures()
    by_scenario = Counter(failure.scenario for failure in failures)
    most_dropped = max(by_scenario.values(), default=0)
    if most_dropped / finished.rows > MOST_DROPPED:
        yield from (f"warning: {printable(line)}" for line in finished.dropped())
    # Said last, so that the reasons above are read before the refusal.
    if not np.isfinite(finished.output("cost_usd")).any():
        raise PlannerError(f"every run failed, the first with: {failures[0].message}")
