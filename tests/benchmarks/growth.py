"""How the cost of a replication grows: months, clusters, workloads and rows, each beside three yardsticks.

``python -m tests.benchmarks.growth`` prints the tables of docs/explanation/performance.md. The yardsticks are the draw
of the run's hourly noise, a SimPy loop that walks every hour, and a monthly sheet of means in pandas, of the same plan.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import yaml

from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.run.simulate import simulate_plan
from planner.scenario.loading import load_scenario
from tests.benchmarks.monthly_sheet import monthly_sheet
from tests.benchmarks.naive_simpy import NaiveFleet
from tests.benchmarks.study import Pace, paces
from tests.benchmarks.waiting import REFERENCE

MONTHS = (1, 12, 36, 120)
WIDE_MONTHS = 3
"""Horizon on which clusters and workloads are multiplied: the SimPy loop walks every hour of every pair."""
PAIRS = ((4, 4), (16, 4), (64, 4), (4, 16), (4, 64), (16, 16))
ROWS = (100, 1_000, 10_000, 100_000, 1_000_000)


def grown(clusters: int = 4, workloads: int = 4) -> dict[str, object]:
    """The frozen reference, all there from the start, split over so many clusters and workloads, kinds in turn."""
    whole = yaml.safe_load(REFERENCE.read_text())
    for part, count, size in (("clusters", clusters, "nodes"), ("workloads", workloads, "requests_per_s")):
        kinds = list(whole[part].items())
        turns = list(itertools.islice(itertools.cycle(range(len(kinds))), count))
        whole[part] = {}
        for number, kind in enumerate(turns):
            name, stated = kinds[kind]
            share = stated[size] / turns.count(kind)
            nth = turns[:number].count(kind)
            if size == "nodes":  # whole nodes, as many together as before
                share = stated[size] // turns.count(kind) + (nth < stated[size] % turns.count(kind))
            whole[part][f"{name}-{nth}"] = {**{key: stated[key] for key in stated.keys() - {"online"}}, size: share}
    return dict(whole)


class Cost(NamedTuple):
    """Processor milliseconds of a plan: its compilation, a replication, and what the yardsticks take."""

    what: str
    compiled: float
    replication: float
    noise: float
    simpy: float
    sheet: float


def _least_ms(action: Callable[[], object], repetitions: int) -> float:
    times = []
    for _ in range(repetitions):
        start = time.thread_time()
        action()
        times.append(time.thread_time() - start)
    return min(times) * 1e3


def cost_of(what: str, stated: dict[str, object], months: int) -> Cost:
    """Measure one plan: the least of five replications with their ledger, and of each yardstick."""
    scenario = load_scenario(stated, [f"horizon_months={months}"])
    start = time.thread_time()
    plan = build_plan(scenario)
    compiled = (time.thread_time() - start) * 1e3
    simulate_plan(scenario, plan, 1, 0)
    numbers = itertools.count(1)
    replication = _least_ms(lambda: simulate_plan(scenario, plan, 1, next(numbers)), 5)
    return Cost(what, compiled, replication, _noise_ms(plan), _least_ms(lambda: NaiveFleet(plan, 1).run(), 1),
                _least_ms(lambda: monthly_sheet(plan), 2))  # fmt: skip


def _noise_ms(plan: Plan) -> float:
    generator, shape = np.random.default_rng(1), (len(plan.workloads), plan.hours)
    return _least_ms(lambda: generator.standard_normal(shape), 9)


def plan_costs() -> list[Cost]:
    """Measure months first, then clusters and workloads on a short horizon."""
    costs = [cost_of(f"{months} months", grown(), months) for months in MONTHS]
    return costs + [cost_of(f"{c} clusters x {w} workloads", grown(c, w), WIDE_MONTHS) for c, w in PAIRS]


def plan_lines(costs: Sequence[Cost]) -> list[str]:
    """Return the table of plans, a line each."""
    lines = [f"{'plan':<28}{'compiled':>10}{'replication':>12}{'/ noise':>9}{'SimPy /':>9}{'/ sheet':>9}   ms"]
    for cost in costs:
        ratios = (cost.replication / cost.noise, cost.simpy / cost.replication, cost.replication / cost.sheet)
        figures = f"{cost.compiled:>10,.0f}{cost.replication:>12,.1f}"
        lines.append(f"{cost.what:<28}{figures}{''.join(f'{ratio:>9,.1f}' for ratio in ratios)}")
    return lines


def row_lines(two: Pace, dask: Pace, measured: int) -> list[str]:
    """Return the table of rows of the reference study on two workers: start and pace times rows."""
    lines = [f"{'rows':<12}{'processes, s':>14}{'Dask, s':>10}{'Dask / processes':>18}"]
    for rows in ROWS:
        ours, theirs = two.study_s(rows), dask.study_s(rows)
        said = "" if rows <= measured else "   extrapolated"
        lines.append(f"{rows:<12,}{ours:>14,.1f}{theirs:>10,.1f}{theirs / ours:>18.2f}{said}")
    return lines


if __name__ == "__main__":
    print("\n".join(plan_lines(plan_costs())))
    _, processes, cluster, rows_measured = paces()
    print("\n".join(["", *row_lines(processes, cluster, rows_measured)]))
