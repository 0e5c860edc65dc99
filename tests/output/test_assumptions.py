from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pytest

from planner.answers.assumptions import assumptions
from planner.catalog.calibration import shipped_file, write_calibration
from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario

Row = dict[str, str]


def rows_of(path: Path, *overrides: str) -> dict[str, Row]:
    columns = assumptions(load_scenario(path, overrides)).columns
    assert list(columns) == ["path", "value", "unit", "source", "date", "grade"]
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    assert len({row["path"] for row in rows}) == len(rows)
    return {row["path"]: row for row in rows}


@pytest.mark.parametrize("assumption_set", ["measured", "articles-2024"])
def test_every_row_has_a_source_and_a_grade(write: WriteScenario, assumption_set: str) -> None:
    rows = rows_of(write(), f"catalog.assumptions={assumption_set}")
    assert all(row["source"] for row in rows.values())
    assert all(row["value"] for path, row in rows.items() if path != "description")
    for path, row in rows.items():
        if path.startswith("catalog.") and path.count(".") >= 3:
            assert row["grade"] in ("A", "B", "C", "D"), path
            assert row["date"], path


def test_a_slo_target_left_out_is_told_as_a_default_and_a_stated_one_with_its_line(
    write: WriteScenario, tiny: str
) -> None:
    rows = rows_of(write())
    assert rows["slo_target.attainment"]["value"] == "0.99"
    assert rows["slo_target.attainment"]["grade"] == "default"
    assert rows["slo_target.scope"]["source"].startswith("default: workload")
    rows = rows_of(write(tiny + "slo_target: {attainment: 0.999, scope: fleet}\n", "stated.yaml"))
    assert rows["slo_target.attainment"]["source"].startswith("stated.yaml:")
    assert (rows["slo_target.attainment"]["value"], rows["slo_target.scope"]["value"]) == (
        "0.999",
        "fleet",
    )
    assert rows["slo_target.per"]["grade"] == "default"


def test_a_default_gives_its_reason(write: WriteScenario) -> None:
    rows = rows_of(write())
    default = [row for row in rows.values() if row["grade"] == "default"]
    assert len(default) > 10
    for row in default:
        assert row["source"].startswith("default: "), row


def test_what_the_user_wrote_has_its_line(write: WriteScenario) -> None:
    rows = rows_of(write(), "clusters.h200.nodes=7")
    assert rows["horizon_months"]["source"] == "tiny.yaml:3"
    assert rows["horizon_months"]["unit"] == "months"
    assert rows["clusters.mi325x.online"]["value"] == "2026-02-01"
    assert (rows["clusters.h200.nodes"]["source"], rows["clusters.h200.nodes"]["value"]) == (
        "--set #1",
        "7",
    )
    assert {rows[path]["grade"] for path in ("name", "start", "clusters.h200.nodes")} == {"user"}


def test_a_value_taken_back_is_a_default_again(write: WriteScenario) -> None:
    write("extends: tiny.yaml\nname: base\nsite: {pue_ratio: 1.5}\n", "base.yaml")
    write()
    top = write("extends: base.yaml\nname: top\nsite: {pue_ratio: null}\n", "top.yaml")
    assert rows_of(top)["site.pue_ratio"]["grade"] == "default"
    assert rows_of(top)["name"]["source"] == "top.yaml:2"


def test_only_what_the_scenario_uses_is_listed(write: WriteScenario) -> None:
    paths = " ".join(rows_of(write()))
    assert "catalog.accelerators.H200.hbm_gb" in paths
    assert "catalog.models.llama-3.1-8b.layers" in paths
    assert "catalog.stacks.rocm-vllm." in paths
    assert "B200" not in paths
    assert "deepseek" not in paths


def test_a_price_of_the_users_own_is_told_from_the_catalogues(write: WriteScenario) -> None:
    stated = rows_of(
        write(), "clusters.h200.accelerator_price_usd=30000", "clusters.h200.price_source='a quote'"
    )
    assert stated["clusters.h200.accelerator_price_usd"]["unit"] == "USD"
    assert stated["clusters.h200.price_source"]["value"] == "a quote"
    assert "clusters.h200.accelerator_price_usd" not in rows_of(write())


def test_the_resale_curve_is_listed_with_its_grade_unless_the_cluster_states_its_own(
    write: WriteScenario,
) -> None:
    own = "clusters.h200.resale_curve=[{age_months: 36, fraction_of_new: 0.3}]"
    listed, stated = (
        assumptions(load_scenario(write(), overrides)).columns for overrides in ([], [own])
    )
    rows = dict(
        zip(listed["path"], zip(listed["value"], listed["grade"], strict=True), strict=True)
    )
    assert rows["catalog.priors.resale_36m_nvidia"] == ("0.25 / 0.3 / 0.45", "C")
    assert rows["catalog.priors.resale_36m_amd"][1] == "D"
    assert "catalog.priors.resale_36m_nvidia" not in stated["path"]
    assert "catalog.priors.resale_36m_amd" in stated["path"]


def test_a_calibration_of_ones_own_is_listed_with_its_hash_and_moves_the_throughput(
    write: WriteScenario,
) -> None:
    path = write()
    own = path.parent / "mine.yaml"
    label = "llama-3.1-8b / H200 / vllm / fp8 / serving"
    shipped = shipped_file()
    slower = shipped.groups | {label: shipped.groups[label] + math.log(1.25)}
    write_calibration(shipped.model_copy(update={"groups": slower}), own)
    stated = "clusters.h200.engine=vllm"
    before = rows_of(path, stated)
    after = rows_of(path, stated, f"calibration={own}")
    assert "calibration.sha256" not in before
    assert after["calibration.sha256"]["value"] == hashlib.sha256(own.read_bytes()).hexdigest()
    rate = "throughput.h200.chat.output_tokens_per_s_per_accelerator"
    # Its objective leaves room, so a batch limited by memory serves 1/1.25 as much.
    assert float(after[rate]["value"]) < float(before[rate]["value"]) / 1.15
    mi325x = "throughput.mi325x.chat.output_tokens_per_s_per_accelerator"
    assert after[mi325x] == before[mi325x]


def test_a_cluster_too_small_for_the_best_layouts_tells_those_it_has(write: WriteScenario) -> None:
    """One node holds three models, one of them on half the accelerators that are best for it: it serves less."""
    words = "requests_per_s: 4, lengths: {input: {mean: 800}, output: {mean: 150}}, slo: {ttft_s: 1.0, tpot_s: 0.03}"
    overrides = ["clusters.mi325x.nodes=1", "clusters.h200.nodes=0"]
    for name, model in (("second", "qwen3-32b"), ("third", "llama-3.1-70b")):
        overrides.append(f"workloads.{name}={{model: {model}, {words}}}")
    path = write()
    rows = rows_of(path, *overrides)
    plan = build_plan(load_scenario(path, overrides))
    place = [cluster.name for cluster in plan.clusters].index("mi325x")
    for w, load in enumerate(plan.workloads):
        row = rows[f"throughput.mi325x.{load.name}.output_tokens_per_s_per_accelerator"]
        served = plan.requests_per_node_h[place, w, 0] / 3600 / 8 * load.output_tokens[0]
        assert float(row["value"]) == pytest.approx(served, rel=1e-4), load.name
