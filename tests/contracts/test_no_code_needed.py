"""New hardware and a new model are catalogue entries: no code knows their names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.catalog.load import load_catalog
from planner.scenario.loading import load_scenario
from planner.simulation.run import simulate

Planner = Callable[..., Any]
Write = Callable[..., Path]

OVERLAY = """\
sources:
  vendor-x: {title: "Vendor X datasheet, revision 3", date: 2026-06-01}
accelerators:
  X900:
    source: vendor-x
    grade: B
    vendor: amd
    architecture: Next
    hbm_gb: 512
    hbm_tb_per_s: 16
    bf16_dense_tflops: 5000
    fp8_dense_tflops: 10000
    tdp_w: 1500
    idle_w: 200
    scaleup_gb_per_s: 900
    scaleup_accelerators: 8
    scaleup_switched: true
    accelerators_per_node: 8
    node_max_kw: 18
    available: 2026-06-01
    unit_price_usd: {value: 41000, source: our quote, grade: A, date: 2026-07-01}
models:
  house-30b:
    source: "our own configuration file"
    grade: A
    date: 2026-07-01
    architecture_class: dense
    attention: grouped-query
    layers: 48
    hidden_size: 6144
    intermediate_size: 24576
    heads: 48
    kv_heads: 8
    head_dim: 128
    vocabulary: 64000
    max_context_tokens: 65536
"""


@pytest.fixture
def scenario(write: Write, tiny: str, tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    write(OVERLAY, "deep/own.yaml")
    text = tiny.replace("MI325X", "X900").replace("llama-3.1-8b", "house-30b")
    return write(text + "catalog: {overlay: own.yaml}\n", "deep/new.yaml")


def test_a_scenario_runs_on_hardware_and_a_model_of_the_users_own(scenario: Path) -> None:
    result = simulate(load_scenario(scenario))
    frame = result.timeline_monthly()
    assert frame.loc[frame["cluster"] == "mi325x", "cost_usd"].sum() > 0
    assert frame["served_tokens"].sum() > 0


def test_the_assumptions_name_the_users_sources(planner: Planner, scenario: Path, tmp_path: Path) -> None:
    assert planner("run", scenario, "--out", "o", "-q").code == 0
    text = (tmp_path / "o" / "assumptions.csv").read_text()
    assert "catalog.accelerators.X900.unit_price_usd,41000,USD,our quote,2026-07-01,A" in text
    assert '"Vendor X datasheet, revision 3",2026-06-01,B' in text
    assert "catalog.models.house-30b.layers,48,,our own configuration file,2026-07-01,A" in text


def test_the_overlay_is_found_beside_the_scenario_and_through_extends(write: Write, scenario: Path) -> None:
    top = write("extends: deep/new.yaml\nname: top\n", "top.yaml")
    assert load_scenario(top).load_catalog().accelerator("X900").hbm_gb.value == 512


def test_the_shipped_catalogue_is_untouched(scenario: Path) -> None:
    load_scenario(scenario)
    assert "X900" not in load_catalog().accelerators


def test_no_code_names_a_part_or_a_model(root: Path) -> None:
    catalog = load_catalog()
    names = [*catalog.accelerators, *catalog.models]
    for path in (root / "planner").rglob("*.py"):
        if path.name == "starter.py":  # the starter is a scenario, and scenarios name parts
            continue
        code = "\n".join(line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines())
        for name in names:
            assert f'== "{name}"' not in code, (path, name)
