"""Plans of one accelerator alone beside the H200 that is there, and what of their size each choice accounts for.

``python -m tests.sizing.single_plans``, part of ``make prove``, sizes them and writes the table into
docs/explanation/what-moves-the-answer.md.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from planner.scenario.loading import load_scenario
from planner.sizing.evaluate import Evaluator
from planner.sizing.size import trial_of
from tests.conftest import ROOT

SETTINGS = {
    "engine": "clusters.*.engine=vllm",
    "precision": "workloads.*.precisions=[fp8]",
    "layout": "clusters.*={prefill_decode: colocated, chunk_tokens: 8192}",
    "incidents": "software.incident_multiplier=0",
    "bursts": "workloads.*.burst_index_of_dispersion=1",
}
"""What each step of the table no longer states: the first row states all of them, the last none."""
NODES = {"B200": (26, 90), "MI325X": (95, 265), "H200": (85, 245)}
"""Nodes of each accelerator in 2026 and 2027 that the tutorial's plans have; both are scaled together."""
REPLICATIONS = 24
INCLUDE = "slo_target.include=site-outages"
"""What no node mends counts as well, as it does in a run."""
PAGE = ROOT / "docs" / "explanation" / "what-moves-the-answer.md"
BEGIN = "<!-- single plans -->"
END = "<!-- end of single plans -->"


class Single(NamedTuple):
    """The smallest plan of one accelerator that meets the SLO target, by halving the ratio between two sizes."""

    nodes: int
    net_present_cost_usd: float


def steps() -> Iterator[tuple[str, list[str]]]:
    """Yield each step's name and the settings it is run with."""
    stated = dict(SETTINGS)
    yield "hardware", list(stated.values())
    for name in SETTINGS:
        del stated[name]
        yield name, list(stated.values())


def single(part: str, settings: list[str], precision: float = 0.02) -> Single:
    """Return the smallest plan of a part under some settings."""
    scenario = load_scenario(ROOT / "scenarios" / "which-mix.yaml", [*settings, INCLUDE])
    study = ROOT / "scenarios" / "mixed-fleet-study.yaml"
    trial = trial_of(scenario, [part], study, "net-present-cost", None)
    evaluator = Evaluator(trial)
    target = scenario.slo_target
    nothing = trial.choices.nothing()
    may_miss = int(REPLICATIONS * (1.0 - target.confidence) + 1e-9)

    def cost_usd(scale: float) -> float | None:
        """Return the mean net present cost of a plan, or None where it misses the target too often."""
        nodes = tuple(max(round(number * scale), 1) for number in NODES[part])
        policy = dataclasses.replace(nothing, purchases=nodes)
        missed = 0
        costs = []
        for replication in range(REPLICATIONS):
            outcome = evaluator.outcome(policy, replication)
            missed += outcome.worst < target.attainment
            costs.append(outcome.net_present_cost_usd)
            if missed > may_miss:
                return None
        return sum(costs) / len(costs)

    low = 0.4
    high = 1.0
    while (cost := cost_usd(high)) is None:
        low = high
        high = 1.4 * high
    while high / low > 1.0 + precision:
        middle = (low * high) ** 0.5
        if (tried := cost_usd(middle)) is None:
            low = middle
        else:
            high = middle
            cost = tried
    return Single(sum(max(round(nodes * high), 1) for nodes in NODES[part]), cost)


def main() -> int:
    """Size every plan, print the table and write it into its page."""
    rows = [(step, settings, part) for step, settings in steps() for part in NODES]
    with ProcessPoolExecutor(2) as pool:
        jobs = {(step, part): pool.submit(single, part, settings) for step, settings, part in rows}
    plans = {key: job.result() for key, job in jobs.items()}
    lines = [
        "| step | no longer stated | " + " | ".join(NODES) + " |",
        "|---|---|" + "---|" * len(NODES),
    ]
    for step, _ in steps():
        cells = [
            f"{plans[step, part].nodes}, ${plans[step, part].net_present_cost_usd / 1e6:.0f} M"
            for part in NODES
        ]
        lines.append(
            f"| {step} | {f'`{SETTINGS[step]}`' if step in SETTINGS else ''} | {' | '.join(cells)} |"
        )
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
