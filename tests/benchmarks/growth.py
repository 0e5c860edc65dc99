"""How the cost of a replication grows with months, clusters, workloads and rules, each beside a yardstick.

That is the draw of the hourly noise of the same plan.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import yaml

from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.run.simulate import simulate_plan
from planner.scenario.loading import load_scenario
from tests.benchmarks.lines import figure, least_ms
from tests.benchmarks.waiting import REFERENCE

MONTHS = (1, 12, 36, 120)
WIDE_MONTHS = 3
"""Horizon on which clusters and workloads are multiplied: larger plans would take minutes."""
PAIRS = ((4, 4), (16, 4), (64, 4), (4, 16), (4, 64), (16, 16), (64, 64))
FIXED_MS = 6.0
"""Most that a replication may take whatever its horizon."""
RULES = (
    "expansion.rules=[{when: utilisation_above, threshold_fraction: 0.6, cluster: h200-0, nodes: 8},"
    " {when: shed_above, threshold_fraction: 0.01, cluster: b200-0, nodes: 8, lead_weeks: 20}]"
)


def grown(clusters: int = 4, workloads: int = 4, times: int = 1) -> dict[str, object]:
    """The frozen reference, all there from the start, split over so many clusters and workloads, kinds in turn."""
    stated = yaml.safe_load(REFERENCE.read_text())
    for part, count, size in (
        ("clusters", clusters, "nodes"),
        ("workloads", workloads, "requests_per_s"),
    ):
        kinds = list(stated[part].items())
        turns = list(itertools.islice(itertools.cycle(range(len(kinds))), count))
        stated[part] = {}
        for number, kind in enumerate(turns):
            name, one = kinds[kind]
            total = one[size] * times
            parts = turns.count(kind)
            nth = turns[:number].count(kind)
            # Whole nodes, as many together as before.
            share = total // parts + (nth < total % parts) if size == "nodes" else total / parts
            stated[part][f"{name}-{nth}"] = {
                **{key: one[key] for key in one.keys() - {"online"}},
                size: share,
            }
    return dict(stated)


class Cost(NamedTuple):
    """Processor milliseconds of a replication of a plan, and of its noise draw."""

    what: str
    replication: float
    noise: float

    def line(self) -> str:
        """Return its row of the table."""
        return f"{self.what:<30}{self.replication:>13,.1f}{self.replication / self.noise:>13,.1f}"


HEAD = f"{'plan':<30}{'replication':>13}{'noise draws':>13}   ms"


def noise_draw(plan: Plan) -> Callable[[], object]:
    """What numpy needs to draw the hourly noise of the run's demand: one normal per workload and hour."""
    generator = np.random.default_rng(1)
    shape = (len(plan.workloads), plan.hours)
    return lambda: generator.standard_normal(shape)


def cost_of(what: str, stated: dict[str, object], *changes: str) -> Cost:
    """Measure one plan: the mean over three replications, with their ledger, of the least of two runs of each."""
    scenario = load_scenario(stated, changes)
    plan = build_plan(scenario)
    simulate_plan(scenario, plan, 1, 3)
    runs = [functools.partial(simulate_plan, scenario, plan, 1, number) for number in range(3)]
    return Cost(
        what=what,
        replication=statistics.mean(least_ms(run, 2) for run in runs),
        noise=least_ms(noise_draw(plan), 9),
    )


def growth_lines() -> Iterator[str]:
    """Measure months first, then rules, then clusters and workloads on a short horizon; yield each as it is known."""
    yield HEAD
    yield cost_of("36 months, as stated", yaml.safe_load(REFERENCE.read_text())).line()
    months = dict[int, Cost]()
    rules = dict[int, Cost]()
    pairs = dict[tuple[int, int], Cost]()
    for count in MONTHS:
        months[count] = cost_of(
            f"{count} month{'s' * (count > 1)}", grown(), f"horizon_months={count}"
        )
        yield months[count].line()
    for count in MONTHS[-2:]:
        changes = (f"horizon_months={count}", RULES)
        rules[count] = cost_of(f"{count} months with rules", grown(), *changes)
        yield rules[count].line()
    tenfold = cost_of("36 months, ten times as large", grown(times=10), "horizon_months=36")
    yield tenfold.line()
    for pair in PAIRS:
        what = "{} clusters x {} workloads".format(*pair)
        pairs[pair] = cost_of(what, grown(*pair), f"horizon_months={WIDE_MONTHS}")
        yield pairs[pair].line()
    yield ""
    one_ms = months[1].replication
    noise_ms = months[36].noise
    yield figure("fixed part: a replication of one month, ms", one_ms, at_most=FIXED_MS)
    yield figure("the same, in noise draws of 36 months", one_ms / noise_ms)
    yield figure(
        "ten times as large / one time", tenfold.replication / months[36].replication, at_most=3
    )
    for (
        count,
        cost,
    ) in rules.items():  # in ten years the rules buy one and a half times the fleet, in 46 orders
        ratio = cost.replication / months[count].replication
        at_most = 2 if count <= 36 else None
        yield figure(f"with rules / without, {count} months", ratio, at_most=at_most)
    for what, small, large, times in (
        ("months, 36 to 120", months[36], months[120], 120 / 36),
        ("clusters, 16 to 64", pairs[16, 4], pairs[64, 4], 4),
        ("workloads, 16 to 64", pairs[4, 16], pairs[4, 64], 4),
        ("clusters x workloads, 4 x 4 to 16 x 16", pairs[4, 4], pairs[16, 16], 16),
        ("clusters x workloads, 16 x 16 to 64 x 64", pairs[16, 16], pairs[64, 64], 16),
    ):
        yield figure(
            f"power of {what}", math.log(large.replication / small.replication, times), at_most=1
        )
