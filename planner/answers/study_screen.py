"""What the terminal says of a study: verdicts, the line that answers, the plans, and what follows from them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from planner.answers.ranking import RankedPlan, rank, ranked_plans
from planner.answers.sentences import (
    gain_lines,
    inconclusive_lines,
    no_alternatives,
    none_met,
    past_mending_lines,
    plans_that_shed,
    probability_words,
    target_lines,
)
from planner.answers.study_summary import MAX_DRIVERS
from planner.answers.summaries import StudySummary
from planner.errors import PlannerError, printable
from planner.output.terminal import cell, text_table, wrapped
from planner.output.words import input_words, measured, spoken
from planner.studies.analysis import MOST_DROPPED, Finished
from planner.studies.prepare import Prepared
from planner.studies.runner import Goal
from planner.studies.sensitivity import Driver

DRIVER_MEASURES = ("at_p10", "at_p90", "swing")
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
        assert ranking.best.verdict is not None  # every plan of a study has one
        probability = probability_words(ranking.best.verdict)
        best = f"Cheapest plan that is MET: {ranking.best.name}, with {probability}."
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
            f"{first_plan} and {flip.against} cost the same where {input_words(flip.input)} is {flip.threshold:.4g}; "
            "beyond it the other one is better."
            for flip in summary.flips[:MAX_DRIVERS]
        ]
    lines += ["", *wrapped(findings)]
    return "\n".join(lines).rstrip()


def _replications_words(summary: StudySummary) -> str:
    """Say how many replications there are, and of how many of them what is known."""
    words = f"{summary.replications:,} replications, inputs drawn"
    # Nested rows share a simulation and differ in prices.
    if summary.simulated < summary.replications:
        words += f", {summary.simulated:,} of them simulated; the others reuse a simulation at other prices"
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
            f"No single input stands out. At this number of replications, an input stands out only if it explains more "
            f"than {noise:.0%} of the variance."
        ]
    shares = ", ".join(f"{driver.input} {driver.variance_share:.0%}" for driver in clear)
    first_plan = next(iter(summary.scenarios))
    return [
        f"Inputs explain these shares of the variance of {first_plan}: {shares} (sampling noise {noise:.0%})."
    ]


def driver_text(prepared: Prepared, drivers: Sequence[Driver]) -> str:
    """Say what moves the first scenario, and its difference to the others, with a table of each; largest first."""
    objective = prepared.objective.name
    first_plan = prepared.names[0]
    figures: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for driver in drivers:
        if driver.scenario == first_plan:
            figures[driver.against][driver.input][driver.measure] = driver.value
    lines: list[str] = []
    for against, by_input in figures.items():
        # An input whose rows could not be run has no swing.
        largest = sorted(
            (name for name in by_input if math.isfinite(by_input[name]["swing"])),
            key=lambda name: -by_input[name]["swing"],
        )
        rows = []
        for name in largest:
            cells = (number_words(by_input[name][measure]) for measure in DRIVER_MEASURES)
            rows.append((name, *cells))
        lines += [
            *wrapped([_drivers_sentence(first_plan, against, objective, by_input, largest)]),
            "",
            text_table(("input", "at P10", "at P90", "swing"), rows),
            "",
        ]
    return "\n".join(lines).rstrip()


def _drivers_sentence(
    plan: str,
    against: str,
    objective: str,
    by_input: Mapping[str, Mapping[str, float]],
    largest: Sequence[str],
) -> str:
    """Say which inputs move a plan's objective most, or decide whether it is better than another."""
    title = f"{plan} less {against}" if against else plan
    subject = f"{title}, {spoken(objective)}"
    if not largest:
        return f"{subject}: no replication could be run."
    base = measured(by_input[largest[0]]["base"], objective)
    lead = f"{subject}: {base} with every input at its median."
    moving = [name for name in largest if by_input[name]["swing"] > 0.0]
    if not moving:
        return f"{lead} No input moves it."
    first = by_input[moving[0]]
    ends = [measured(first[end], objective) for end in ("at_p10", "at_p90")]
    words = f"{lead} {input_words(moving[0])} moves it most: {ends[0]} at its P10, {ends[1]} at its P90."
    if not against:
        return words
    turning = [
        input_words(name)
        for name in moving
        if by_input[name]["at_p10"] * by_input[name]["at_p90"] < 0
    ]
    if turning:
        return f"{words} Which plan is better depends on {', '.join(turning[:MAX_DRIVERS])}."
    return f"{words} No single input changes which plan is better."


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
            after += "; for a narrower interval add --resume and a larger -n"
        yield f"{furthest.words}, {after}"
    if finished.detailed < finished.rows:
        yield f"monthly bands and sensitivities use the first {finished.detailed:,} replications"
    failures = finished.failures()
    by_scenario = Counter(failure.scenario for failure in failures)
    most_dropped = max(by_scenario.values(), default=0)
    if most_dropped / finished.rows > MOST_DROPPED:
        yield from (f"warning: {printable(line)}" for line in finished.dropped())
    # Said last, so that the reasons above are read before the refusal.
    if not np.isfinite(finished.output("cost_usd")).any():
        raise PlannerError(f"every run failed; the first error: {failures[0].message}")
