"""A million accelerators in one cluster, a few or as many as a scenario may have: what ``planner run`` takes."""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "benchmarks" / "november" / "mixed-fleet.yaml"
NODES = 125_000
CLUSTERS = (1, 10, 64)
MOST_S = 30.0
"""Processor time in which a run with one draw ends, its tables, workbook and report written."""


def million_scenario(clusters: int) -> str:
    """The reference with as much more traffic, its kinds of machines in turn; eight accelerators a node."""
    whole = yaml.safe_load(REFERENCE.read_text())
    kinds = list(whole["clusters"].values())
    before = sum(cluster["nodes"] for cluster in whole["clusters"].values())
    shares = [NODES // clusters + (number < NODES % clusters) for number in range(clusters)]
    whole["clusters"] = {
        f"pool-{number}": {**{key: kind[key] for key in kind.keys() - {"online"}}, "nodes": nodes}
        for number, (kind, nodes) in enumerate(zip(itertools.cycle(kinds), shares, strict=False))
    }
    for workload in whole["workloads"].values():
        workload["requests_per_s"] *= NODES / before
    return yaml.safe_dump(whole, sort_keys=False)


def million_s(clusters: int) -> float:
    """Return the processor time of ``planner run --replications 1``, from its start to the finished folder."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "million.yaml"
        scenario.write_text(million_scenario(clusters))
        command = "from planner.cli.app import main; main()"
        options = ["--replications", "1", "--quiet", "--out", f"{folder}/out"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", command, "run", str(scenario), *options], check=True, cwd=ROOT
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
