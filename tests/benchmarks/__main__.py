"""Measure the planner where people wait and print each figure as soon as it is there: ``make bench``.

Times are processor times unless a line says waited: what else the machine does hardly moves them.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # before numpy: one thread, as replications run side by side

from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.benchmarks.growth import growth_lines, noise_draw
from tests.benchmarks.lines import figure, least_ms
from tests.benchmarks.memory import sizing_lines
from tests.benchmarks.study import study_lines
from tests.benchmarks.waiting import REFERENCE, waiting_lines


def main() -> None:
    """Measure and print."""
    begun = time.monotonic()
    lap = time.monotonic()
    waited = waiting_lines()
    first = next(waited)  # before anything is compiled
    plan = build_plan(load_scenario(REFERENCE))
    accelerators = sum(cluster.nodes * cluster.accelerators_per_node for cluster in plan.clusters)
    noise_ms = least_ms(noise_draw(plan), 20)
    print(
        f"{REFERENCE.name}: {accelerators:,} accelerators, {len(plan.workloads)} workloads, {plan.hours:,} hours"
    )
    print(figure("its noise draw, ms", noise_ms), first, sep="\n", flush=True)
    for name, part in (
        ("waiting", waited),
        ("growth", growth_lines()),
        ("studies", study_lines(noise_ms)),
        ("sizing", sizing_lines()),
    ):
        for line in part:
            print(line, flush=True)
        print(figure(f"{name}, minutes", (time.monotonic() - lap) / 60.0), end="\n\n", flush=True)
        lap = time.monotonic()
    print(figure("all of this, minutes", (time.monotonic() - begun) / 60.0, at_most=10))


if __name__ == "__main__":
    main()
