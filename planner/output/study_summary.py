"""The headline of a study: the few numbers a reader wants first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.errors import PlannerError, printable
from planner.output import judgement
from planner.output.csv_table import SCHEMA_VERSION
from planner.output.study_rows import completed_rows
from planner.output.text_table import text_table, wrapped
from planner.studies.analysis import MOST_DROPPED, Driver, Finished, first_broken_month
from planner.studies.headlines import HEADLINES, headline_names
from planner.studies.intervals import Estimate
from planner.studies.prepare import Prepared
from planner.studies.runner import Goal

_DRIVERS = 5


def study_summary(finished: Finished) -> dict[str, Any]:
    """Return a study's headline statistics, decisions, drivers and failures as plain data."""
    headline = finished.prepared.headline.name
    statistics: dict[str, dict[str, Any]] = {name: {} for name in finished.prepared.names}
    service: dict[str, dict[str, float | None]] = {name: {} for name in finished.prepared.names}
    for statistic in finished.statistics((headline, judgement.IN_TIME, judgement.SHED)):
        if statistic.output == headline:
            statistics[statistic.scenario][statistic.statistic] = _figure(statistic.estimate)
        if statistic.output in (judgement.IN_TIME, judgement.SHED) and statistic.statistic == "mean":
            service[statistic.scenario][statistic.output] = _known(statistic.estimate.value)
    drivers = list(finished.drivers())
    return {
        "schema_version": SCHEMA_VERSION,
        "study": finished.prepared.study.name,
        "replications": finished.rows,
        "completed": completed_rows(finished.by_scenario(headline)),
        "headline": headline,
        "scenarios": statistics,
        "service": service,
        "promise": _promises(finished),
        "decisions": [
            {
                "scenario": decision.scenario,
                "against": decision.against,
                "probability_better": _figure(decision.probability_better),
                "mean_difference": _figure(decision.mean_difference),
                "mean_regret": _figure(decision.mean_regret),
            }
            for decision in finished.decisions()
        ],
        "drivers": _top(drivers, finished.prepared.names[0]),
        "flips": [
            {"input": driver.input, "against": driver.against, "threshold": driver.value}
            for driver in drivers
            if driver.method == "flip"
        ],
        "information": [
            {"input": driver.input, "measure": driver.measure, "value": driver.value}
            for driver in drivers
            if driver.method == "information"
        ],
        "warnings": list(finished.prepared.warnings),
        "failures": [
            {"replication": row, "scenario": scenario, "error": message}
            for row, scenario, message in finished.failures()
        ],
        "dropped": finished.dropped(),
    }


def _promises(finished: Finished) -> dict[str, dict[str, Any]]:
    """Return what each scenario promises, how often that is kept, and how often it is best of those that keep it."""
    return {
        standing.scenario: {
            **base.scenario.promise.model_dump(),
            "stated": base.scenario.states("promise"),
            "kept": standing.keeps_promise,
            "kept_fraction": _figure(standing.kept_fraction),
            "shortfall_fraction": _known(standing.shortfall_fraction),
            "first_broken_month": first_broken_month(finished.prepared, standing),
            "best_fraction": _figure(standing.best_fraction),
        }
        for base, standing in zip(finished.prepared.scenarios, finished.standings(), strict=True)
    }


def _figure(estimate: Estimate) -> dict[str, float | None]:
    return {name: _known(getattr(estimate, name)) for name in ("value", "low", "high")}


def _known(number: float) -> float | None:
    return float(number) + 0.0 if math.isfinite(number) else None  # −0 is 0


def _top(drivers: list[Driver], scenario: str) -> list[dict[str, Any]]:
    """Return the inputs that explain most of the first scenario's variance, with the ends of their bars."""
    ranked = [driver for driver in drivers if driver.scenario == scenario and not driver.against]
    told = [driver for driver in ranked if driver.method == "variance-share"]
    shares = {driver.input: driver.value for driver in told if driver.measure == "first_order"}
    noise = {driver.input: driver.value for driver in told if driver.measure == "noise_level"}
    bars = [driver for driver in ranked if driver.method == "conditional-mean"]
    largest = sorted(bars, key=lambda bar: (shares[bar.input], bar.value), reverse=True)[:_DRIVERS]
    return [
        {
            "input": bar.input,
            "variance_share": shares[bar.input],
            "noise_share": noise[bar.input],
            "low": bar.low,
            "high": bar.high,
        }
        for bar in largest
    ]


def study_table(summary: dict[str, Any]) -> str:
    """Lay out a study for a terminal: what keeps its promise, by the headline, then what does not, by how far."""
    rows, spreads, choice = [], [], _choice(summary)
    for plan in choice.ranked:
        figures, promise = summary["scenarios"][plan.name], summary["promise"][plan.name]
        kept, best, mean = promise["kept_fraction"], promise["best_fraction"], _number(figures["mean"]["value"])
        in_time = "" if plan.in_time_fraction is None else f"{plan.in_time_fraction:.2%}"
        shares = (_percent(kept["value"]), _percent(_half(kept)), in_time)
        rows.append((plan.name, plan.standing, *shares, mean, _percent(best["value"])))
        cells = (_number(figures[which]["value"]) for which in ("p5", "p10", "p50", "p90", "p95"))
        spreads.append((plan.name, mean, _number(_half(figures["mean"])), *cells))
    header = ("scenario", "promise", "P(kept)", "±95%", "in time", "mean", "P(best)")
    spread = ("scenario", "mean", "±95%", "P5", "P10", "P50", "P90", "P95")
    over = f"{summary['replications']:,} replications"
    if summary["completed"] < summary["replications"]:
        over += f", of which {summary['completed']:,} could be run in every scenario"
    lines = [*wrapped(judgement.much_shed(choice.ranked)), *wrapped(judgement.promise_lines(summary["promise"]))]
    lines += [f"{summary['headline']} over {over}", "", text_table(header, rows), "", text_table(spread, spreads), ""]
    return "\n".join([*lines, *_sentences(summary, choice)]).rstrip()


def _choice(summary: dict[str, Any]) -> judgement.Choice:
    """Judge a study's scenarios: by their promise over the replications, then by the mean of the headline."""
    sign = 1.0 if HEADLINES[headline_names().index(summary["headline"])].lower_is_better else -1.0
    plans = []
    for name, figures in summary["service"].items():
        mean = summary["scenarios"][name]["mean"]["value"]
        plan = judgement.served(name, figures, summary["promise"][name]["shortfall_fraction"])
        plans.append(replace(plan, cost=None if mean is None else sign * mean))
    return judgement.choose(plans)


def _half(figure: dict[str, float | None]) -> float | None:
    """Return half the interval about a figure."""
    value, low = figure["value"], figure["low"]
    return None if value is None or low is None else value - low


def driver_table(prepared: Prepared, drivers: Sequence[Driver]) -> str:
    """Lay out what drives the first scenario, and its difference to the others, largest first."""
    order = ("swing", "mu_star", "total", "threshold")
    lines: list[str] = []
    for against in dict.fromkeys(driver.against for driver in drivers):
        shown = [d for d in drivers if d.against == against and d.scenario == prepared.names[0] and d.measure in order]
        shown.sort(key=lambda driver: (order.index(driver.measure), -abs(driver.value)))
        rows = [(d.input, d.method, d.measure, *(_number(_known(n)) for n in (d.value, d.low, d.high))) for d in shown]
        title = f"{prepared.names[0]} less {against}" if against else prepared.names[0]
        header = ("input", "method", "measure", "value", "low", "high")
        lines += [f"{title}: {prepared.headline.name}", "", text_table(header, rows), ""]
    worths = [(d.input, d.measure, d.value) for d in drivers if d.method == "information"]
    told = information_lines(worths)
    if not told and len(prepared.names) > 1 and any(drawn.throughput_of for drawn in prepared.inputs.entries):
        told = ["what a measurement would be worth: planner montecarlo, then planner sensitivity --method importance"]
    return "\n".join([*lines, *wrapped(told)]).rstrip()


def information_lines(rows: Sequence[tuple[str, str, float]]) -> list[str]:
    """Say which measurement is worth what before the choice; ``rows`` are pair, measure and worth, largest first."""
    if not rows:
        return []
    told = [
        f"{name.removeprefix('throughput.')} {_number(worth)}{' USD' if measure == 'worth_usd' else ''}"
        for name, measure, worth in rows[:_DRIVERS]
        if worth > 0.0
    ]
    if not told:
        return ["knowing any one pair's throughput beforehand would not change the choice"]
    return ["worth of measuring a pair's throughput before the choice: " + ", ".join(told)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _sentences(summary: dict[str, Any], choice: judgement.Choice) -> list[str]:
    """Say in words what the table does not show."""
    lines = []
    clear = [row for row in summary["drivers"] if row["variance_share"] > row["noise_share"]]
    if summary["drivers"]:
        first, noise = next(iter(summary["scenarios"])), max(row["noise_share"] for row in summary["drivers"])
        parts = [f"{row['input']} {row['variance_share']:.0%}" for row in clear] or ["no input"]
        about = f", above the {noise:.0%} that chance shows" if clear else f" stands out from the {noise:.0%} of chance"
        lines.append(f"share of the variance of {first}: " + ", ".join(parts) + about)
    for row in summary["flips"][:_DRIVERS]:
        first = next(iter(summary["scenarios"]))
        lines.append(f"{first} and {row['against']} change places where {row['input']} passes {row['threshold']:.4g}")
    lines += information_lines([(row["input"], row["measure"], row["value"]) for row in summary["information"]])
    kept = {name: promise["kept_fraction"] for name, promise in summary["promise"].items()}
    open_still = judgement.undecided(
        summary["promise"], {n: (share["low"], share["high"]) for n, share in kept.items()}
    )
    lines += judgement.warnings_of(choice, open_still) if choice.best else [judgement.none_keeps(choice)]
    lines += judgement.undecided_lines(open_still)
    lines += summary["dropped"]
    return wrapped(lines)


def study_remarks(finished: Finished, goal: Goal) -> Iterator[str]:
    """Yield how narrow an interval became, what is not of all replications, and which of them could not be run.

    A study without any is refused.
    """
    if goal.until is not None:
        reached = goal.until.width(finished.interval(goal))
        width = "is not known" if reached != reached else f"is ±{reached:.2%}"  # noqa: PLR0124 - NaN: too few rows
        more = "" if reached <= goal.until.share else "; extend with --resume and more"
        yield f"the interval of {goal.until.words()} {width} after {finished.rows:,} replications{more}"
    if finished.detailed < finished.rows:
        yield f"fans by month and what drives the headline are of the first {finished.detailed:,} replications"
    if finished.dropped_share() > MOST_DROPPED:
        yield from (f"warning: {printable(line)}" for line in finished.dropped())
    if finished.is_void():
        raise PlannerError(f"every run failed, the first with: {finished.failures()[0].message}")
