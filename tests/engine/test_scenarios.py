"""Every scenario that is shipped runs, and the ones that pose a question answer it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner import simulate
from planner.api import load
from planner.yaml_io import read_document
from tests.conftest import ROOT, Planner

SCENARIOS = [
    path
    for path in sorted((ROOT / "scenarios").rglob("*.yaml"))
    if {"workloads", "extends"} & set(read_document(path).content)  # a study is no scenario
]


GALLERY = [path for path in SCENARIOS if path.parent.name == "gallery"]
"""Loaded here, and of each question the file that the others extend is checked strictly: working out layouts is what
costs. The pages of docs/gallery run them all, and show what they give."""


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_every_scenario_of_the_gallery_is_named_and_loads_without_a_warning(
    path: Path, planner: Planner
) -> None:
    scenario = load(path)
    assert scenario.name == path.stem
    assert scenario.description
    assert path.read_text(encoding="utf-8").startswith("# "), "the question comes first"
    if "extends" not in read_document(path).content:
        assert planner("validate", "--strict", path).code == 0


@pytest.mark.parametrize(
    "path", [path for path in SCENARIOS if path not in GALLERY], ids=lambda path: path.stem
)
def test_every_scenario_runs_without_a_warning(path: Path, planner: Planner) -> None:
    scenario = load(path)
    result = simulate(scenario)
    assert scenario.name.endswith(path.stem)
    assert scenario.description
    assert result.monthly.served_requests.sum() > 0
    assert result.cost_cents().sum() > 0
    assert np.isfinite(result.timeline_monthly()["cost_usd"]).all()
    assert (
        planner("validate", "--strict", path).code == 0
    )  # what it takes was worked out for the run


def test_the_reference_is_as_large_as_it_says() -> None:
    scenario = load(ROOT / "scenarios" / "mixed-fleet.yaml")
    assert len({cluster.accelerator for cluster in scenario.clusters.values()}) == 3
    assert len(scenario.workloads) >= 4
    assert sum(cluster.nodes * 8 for cluster in scenario.clusters.values()) >= 1400
    assert scenario.horizon_months == 36
    assert scenario.reliability.failure_multiplier > 0
    assert scenario.software.incident_multiplier > 0
