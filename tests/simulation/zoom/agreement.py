"""The hourly model beside the zoom, cell by cell: one workload on one part at one load.

``python -m tests.simulation.zoom.agreement`` runs every cell and prints the tables of docs/explanation/zoom.md.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from planner.build import Reuse
from planner.build.capacity import Service, build_services
from planner.catalog.calibration import shipped_calibration
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.simulation.zoom.outcome import outcomes
from planner.simulation.zoom.zoom import Asked, zoom

TEMPLATE = """\
name: cell
start: 2026-01-01
horizon_months: 1
router_pool: {pool}
workloads:
  work:
    {work}
    requests_per_s: {rate}
    shape: {{peak_to_mean: 1.0, weekend_fraction: 1.0}}
    noise: {{sigma: 0}}
    burst_index_of_dispersion: {dispersion}
    on_overload: {overload}
clusters:
  one: {{{part}, nodes: {nodes}}}
site: {{outages_per_year: 0}}
reliability: {{failure_multiplier: 0}}
software: {{incident_multiplier: 0, release_gain_multiplier: 0}}
"""
# The three scenarios: what the reference asks of a node, workload by workload.
WORK = {
    "chat": """model: llama-3.1-70b
    tokens: {input: {mean: 1200, p95: 4000}, output: {mean: 300, p95: 900}}
    prefix_cache_hit_fraction: 0.3
    slo: {ttft_s: 2.0, tpot_s: 0.05}""",
    "code-completion": """model: qwen3-32b
    tokens: {input: {mean: 2500, p95: 6500}, output: {mean: 28, p95: 80}}
    prefix_cache_hit_fraction: 0.5
    slo: {ttft_s: 1.0, tpot_s: 0.04}""",
    "long-context": """model: llama-3.1-70b
    tokens: {input: {mean: 12000, p95: 40000}, output: {mean: 343, p95: 1200}}
    prefix_cache_hit_fraction: 0.37
    slo: {ttft_s: 10.0, tpot_s: 0.1}""",
}
PARTS = {
    "H200": "accelerator: H200",
    "MI325X": "accelerator: MI325X",
    "B200": "accelerator: B200, engine: tensorrt-llm, precision: fp4",
}
NODES = {"chat": 1, "code-completion": 1, "long-context": 6}
NOON = datetime(2026, 1, 10, 12)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison."""

    work: str
    part: str
    load: float
    """Of the hourly model's capacity."""
    dispersion: float = 1.0
    overload: str = "refuse"
    pool: str = "cluster"
    minutes: int = 4


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What both say: requests not in time over those that came."""

    cell: Cell
    requests: int
    zoomed: float
    hourly: float
    ttft_p99_s: float

    @property
    def agrees(self) -> bool:
        """Within two points, or a quarter of the zoom's figure above 8%."""
        return abs(self.hourly - self.zoomed) <= max(0.02, 0.25 * self.zoomed)


def scenario_of(cell: Cell, rate: float) -> Scenario:
    """Return one cluster under one workload."""
    text = TEMPLATE.format(
        pool=cell.pool, work=WORK[cell.work], rate=rate, dispersion=cell.dispersion, overload=cell.overload,
        part=PARTS[cell.part], nodes=NODES[cell.work],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.yaml"
        path.write_text(text, encoding="utf-8")
        return load_scenario(path)


@functools.cache
def service_of(work: str, part: str, pool: str) -> Service:
    """Return what one node sustains."""
    scenario = scenario_of(Cell(work=work, part=part, load=1.0, pool=pool), 1.0)
    return build_services(scenario, shipped_calibration(), Reuse(scenario), {})[0]["one", "work"]


def compare(cell: Cell) -> Compared:
    """Run both models on a cell."""
    service = service_of(cell.work, cell.part, cell.pool)
    rate = cell.load * service.requests_per_s * NODES[cell.work]
    zoomed = zoom(scenario_of(cell, rate), Asked(at=NOON, minutes=cell.minutes))
    (outcome,) = outcomes(zoomed)
    hourly = float(zoomed.hour.late_fraction[0] + zoomed.hour.shed_fraction[0])
    if cell.overload == "queue":  # the hour's router never takes more than the capacity: the distribution itself
        hourly = float(np.interp(cell.load, service.loads, service.late_fractions))
    return Compared(
        cell=cell,
        requests=outcome.in_time.size,
        zoomed=1.0 - float(outcome.in_time.mean()),
        hourly=hourly,
        ttft_p99_s=float(np.nanquantile(outcome.ttft_s, 0.99)),
    )


def cells() -> Iterator[Cell]:
    """Return every cell of the table."""
    for work, part in itertools.product(WORK, PARTS):
        minutes = {"chat": 4, "code-completion": 3, "long-context": 10}[work]
        for load in (0.3, 0.6, 0.9, 1.2):
            yield Cell(work=work, part=part, load=load, minutes=minutes)
        for load in (0.6, 0.9):
            yield Cell(work=work, part=part, load=load, dispersion=12.0, minutes=2 * minutes)
        for load in (0.7, 1.0, 1.3):
            yield Cell(work=work, part=part, load=load, overload="queue", minutes=minutes)


def capacity_ratio(rows: list[Compared], work: str, part: str) -> float:
    """Return the load at which the zoom has as many in time as the hourly model at its capacity, over that capacity."""
    service = service_of(work, part, "cluster")
    allowed = float(np.interp(1.0, service.loads, service.late_fractions))
    own = [r for r in rows if (r.cell.work, r.cell.part, r.cell.overload) == (work, part, "queue")]
    late = np.maximum.accumulate([r.zoomed for r in own])
    return float(np.interp(np.log(allowed), np.log(np.maximum(late, 1e-5)), [r.cell.load for r in own]))


def main() -> None:
    """Print the tables."""
    rows = []
    print("| workload | part | load | bursts | overload | requests | zoom | hour | agrees |")
    print("|---|---|---|---|---|---|---|---|---|")
    for cell in cells():
        row = compare(cell)
        rows.append(row)
        print(
            f"| {cell.work} | {cell.part} | {cell.load:.0%} | {'yes' if cell.dispersion > 1 else 'no'} | "
            f"{cell.overload} | {row.requests:,} | {row.zoomed:.2%} | {row.hourly:.2%} | "
            f"{'yes' if row.agrees else 'no'} |",
            flush=True,
        )
    print(f"\n{sum(r.agrees for r in rows)} of {len(rows)} agree.\n")
    print("| workload | part | capacity, requests/s and node | by the zoom |")
    print("|---|---|---|---|")
    for work, part in itertools.product(WORK, PARTS):
        rate = service_of(work, part, "cluster").requests_per_s
        print(f"| {work} | {part} | {rate:.2f} | {rate * capacity_ratio(rows, work, part):.2f} |")


if __name__ == "__main__":
    main()
