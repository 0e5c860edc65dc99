"""New hardware, a model, a precision, a vendor, an incident kind are catalogue entries: no code knows their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd
import pytest

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.model_on_part import compute_flops_per_s, memory_fit, wider_precision
from planner.plan.build import build_plan
from planner.run.simulate import run_engine, simulate
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario
from tests.contracts.source import trees

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
    dense_tflops: {bf16: 5000, fp8: 10000}
    tdp_w: 1500
    idle_w: 200
    scaleup_gb_per_s: 900
    scaleup_accelerators: 8
    scaleup_switched: true
    accelerators_per_node: 8
    node_max_kw: 18
    available: 2026-06-01
    accelerator_price_usd: {value: 41000, source: our quote, grade: A, date: 2026-07-01}
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
def scenario(write: WriteScenario, tiny: str, tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    write(OVERLAY, "deep/own.yaml")
    text = tiny.replace("MI325X", "X900").replace("llama-3.1-8b", "house-30b")
    return write(text + "catalog: {overlay: own.yaml}\n", "deep/new.yaml")


def test_a_scenario_runs_on_hardware_and_a_model_of_the_users_own(scenario: Path) -> None:
    result = simulate(load_scenario(scenario))
    frame = result.timeline_monthly(clusters=True)
    assert frame.loc[frame["cluster"] == "mi325x", "cost_usd"].sum() > 0
    assert frame["served_tokens"].sum() > 0


def test_the_assumptions_name_the_users_sources(
    planner: Planner, scenario: Path, tmp_path: Path
) -> None:
    assert planner("run", scenario, "--out", "o", "-q").code == 0
    text = (tmp_path / "o" / "assumptions.csv").read_text()
    assert (
        "catalog.accelerators.X900.accelerator_price_usd,41000,USD,our quote,2026-07-01,A" in text
    )
    assert '"Vendor X datasheet, revision 3",2026-06-01,B' in text
    assert "catalog.models.house-30b.layers,48,,our own configuration file,2026-07-01,A" in text


def test_the_overlay_is_found_beside_the_scenario_and_through_extends(
    write: WriteScenario, scenario: Path
) -> None:
    top = write("extends: deep/new.yaml\nname: top\n", "top.yaml")
    assert load_scenario(top).load_catalog().accelerator("X900").hbm_gb.value == 512


NEW_FACTS = """\
precisions:
  fp6:
    source: "OCP Microscaling Formats 1.0: six bits and one byte of scale per 32 weights"
    grade: A
    date: 2023-09-07
    weight_bytes: 0.78125
    cache_bytes: 1.0
    cache_stream_bytes: 1.0
    wider: fp8
    aliases: [mxfp6]
vendors:
  intel:
    source: our own reading of the forum
    grade: D
    date: 2026-07-01
    lost_with_accelerator: replica
    failure_multiplier: 1.7
    engineers_per_800: 3
incidents:
  memory-leak:
    source: our own tickets
    grade: B
    date: 2026-07-01
    effect: slows
    most_loss_fraction: 0.5
    per_year: {low: 20, base: 30, high: 40}
    loss_fraction: {low: 0.25, base: 0.25, high: 0.25}
stacks:
  synapse-vllm:
    source: our own tickets
    grade: B
    date: 2026-07-01
    platform: synapse
    vendor: intel
    engine: vllm
    support: community
    dense_multiplier: 0.8
    mixture_of_experts_multiplier: 0.7
    custom_attention_multiplier: 0.6
    fix_days: {low: 2, base: 2, high: 2}
    releases_per_year: {low: 2, base: 4, high: 6}
    bring_up_weeks: {low: 1, base: 2, high: 4}
    bring_up_throughput_fraction: {low: 0.5, base: 0.6, high: 0.7}
accelerators:
  Gaudi3:
    source: our own copy of the datasheet
    grade: B
    date: 2026-07-01
    vendor: intel
    architecture: Gaudi 3
    hbm_gb: 128
    hbm_tb_per_s: 3.7
    dense_tflops: {bf16: 1835, fp6: 1835}
    tdp_w: 900
    idle_w: 150
    scaleup_gb_per_s: 525
    scaleup_accelerators: 8
    scaleup_switched: false
    accelerators_per_node: 8
    node_max_kw: 12
    available: 2024-12-01
    accelerator_price_usd: 15600
priors:
  resale_24m_intel: {low: 0.2, base: 0.3, high: 0.5, unit: fraction, source: our guess, grade: D, date: 2026-07-01}
"""


@pytest.fixture
def new_facts(write: WriteScenario, tiny: str) -> Path:
    """The tiny scenario with a vendor, a precision and an incident kind that only an overlay knows."""
    write(NEW_FACTS, "facts.yaml")
    text = tiny.replace("accelerator: MI325X", "accelerator: Gaudi3\n    precision: fp6")
    return write(text + "catalog: {overlay: facts.yaml}\n", "facts-scenario.yaml")


def test_a_vendor_a_precision_and_an_incident_kind_are_entries_alone(
    planner: Planner, new_facts: Path, tmp_path: Path
) -> None:
    """Figures by hand: 0.78125 bytes a weight, heads at 16 bits, 1,835 TFLOP/s; 1.7 and 3 / 800 as the overlay says."""
    plan = build_plan(load_scenario(new_facts))
    gaudi = plan.clusters[1]
    assert (gaudi.vendor, gaudi.failure_multiplier) == ("intel", 1.7)
    assert set(plan.software.stack_of[1]) == {"synapse-vllm"}
    assert {team.name: team.engineers.per_accelerator for team in plan.software.teams}[
        "intel"
    ] == pytest.approx(3 / 800)
    assert (
        gaudi.group_accelerators == 1
    )  # an 8B model on one accelerator: its replica, not the node
    catalog = load_scenario(new_facts).load_catalog()
    part = part_of("Gaudi3", catalog)
    shape = shape_of("llama-3.1-8b", catalog)
    assert compute_flops_per_s(part, shape, "fp6") == 1835e12
    assert wider_precision(part, shape, "fp6") == "bf16"  # fp8 lies between, but this part has none
    head = shape.vocabulary * shape.hidden_size
    weights = (shape.shared_parameters - head) * 0.78125 + head * 2.0
    assert memory_fit(part, shape, "fp6", 1).weight_bytes == pytest.approx(weights + head * 2.0)
    assert planner("run", new_facts, "--out", "o", "-q", "--replications", "1").code == 0
    events = pd.read_csv(tmp_path / "o" / "events.csv")
    leaks = events[events["cause"] == "memory-leak"]
    assert set(leaks["cluster"]) == {"h200", "mi325x"}  # the kind states a rate for every stack
    assert leaks["detail"].str.endswith("-25.0% throughput").all()
    text = (tmp_path / "o" / "assumptions.csv").read_text()
    for fact in ("precisions.fp6.weight_bytes,0.78125,bytes", "vendors.intel.failure_multiplier,1.7,ratio",
                 "incidents.memory-leak.per_year,20 / 30 / 40,1/year"):  # fmt: skip
        assert f"catalog.{fact}," in text


def test_a_new_incident_kind_shifts_no_other(write: WriteScenario, tiny: str) -> None:
    """What the shipped kinds draw stays what it was, to the last digit."""
    leaks = NEW_FACTS[NEW_FACTS.index("incidents:") : NEW_FACTS.index("stacks:")]
    write(leaks, "leaks.yaml")
    text = tiny + "software: {incident_multiplier: 20}\n"
    changed = write(text + "catalog: {overlay: leaks.yaml}\n", "changed.yaml")

    def shipped(path: Path) -> list[tuple[float, str, float]]:
        changes = run_engine(build_plan(load_scenario(path)), 3)[0].log.speeds()
        return [
            (c.time_h, c.kind, c.log_factor)
            for c in changes
            if "fixed" not in c.kind and c.kind != "memory-leak"
        ]

    before = shipped(write(text, "plain.yaml"))
    assert {"regression", "hang"} <= {kind for _, kind, _ in before}
    assert shipped(changed) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("vendor: intel\n    arch", "vendor: intle\n    arch"), "unknown vendor 'intle' (did you mean intel?)"),
        (("fp6: 1835}", "fp5: 1835}"), "dense_tflops.fp5: unknown precision 'fp5' (did you mean fp8?)"),
        (("{bf16: 1835, fp6: 1835}", "{fp6: 1835}"), "accelerators.Gaudi3.dense_tflops: needs bf16"),
        (("wider: fp8", "wider: int8\n    role: default"), "one precision must have the role default, not 2"),
        (("wider: fp8", "wider: fp4"), "precisions.fp6.wider: fp4 has weights no larger than fp6"),
        (("loss_fraction: {low: 0.25, base: 0.25, high: 0.25}", ""), "memory-leak slows the stack: state its loss"),
        (("most_loss_fraction: 0.5", ""), "memory-leak costs throughput: state its most_loss_fraction"),
        (("per_year: {low: 20, base: 30, high: 40}", "per_upgrade: {low: 0.1, base: 0.2, high: 0.3}"),
         "memory-leak comes with upgrades: state its detection_h"),
        (("fix_days: {low: 2", "incidents: {hnag: {}}\n    fix_days: {low: 2"), "unknown incident 'hnag' (did you"),
        (("  resale_24m_intel", "  resale_24m_ntel"), "no resale values for servers of intel"),
    ],
)  # fmt: skip
def test_a_fact_that_cannot_be_is_one_clear_message(
    planner: Planner, write: WriteScenario, new_facts: Path, change: tuple[str, str], message: str
) -> None:
    assert change[0] in NEW_FACTS
    write(NEW_FACTS.replace(*change), "facts.yaml")
    planner("run", new_facts).refused(message)


def test_an_unknown_precision_or_vendor_of_a_scenario_is_one_clear_message(
    planner: Planner, write: WriteScenario
) -> None:
    done = planner("run", write(), "--set", "clusters.h200.precision=fp9", "--set", "workloads.chat.precisions=[fp16]",
                   "--set", "software.engineers_per_800.amdd=1")  # fmt: skip
    done.refused("clusters.h200.precision: unknown precision 'fp9' (did you mean fp8?)",
                 "workloads.chat.precisions[0]: unknown precision 'fp16'",
                 "software.engineers_per_800.amdd: unknown vendor 'amdd' (did you mean amd?)")  # fmt: skip


def test_no_code_decides_by_the_name_of_an_entry() -> None:
    """Comparing with, matching or looking up such a name is a fact in the wrong room."""
    catalog = load_catalog()
    names = {
        *catalog.accelerators,
        *catalog.models,
        *catalog.precisions,
        *catalog.vendors,
        *catalog.incidents,
    }
    for path, tree in trees().items():
        for node in ast.walk(tree):
            match node:
                case ast.Compare() | ast.Subscript() | ast.MatchValue() | ast.Dict():
                    parts = node.keys if isinstance(node, ast.Dict) else ast.walk(node)
                    used = {part.value for part in parts if isinstance(part, ast.Constant)}
                    assert not used & names, (path, node.lineno, used & names)
