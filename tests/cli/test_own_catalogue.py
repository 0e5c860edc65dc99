"""A model, an accelerator and benchmark rows of one's own end in a run, without a file written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.catalog.load import load_catalog
from planner.catalog.own import model_entry
from tests.benchmarks.tables import write_table
from tests.conftest import Planner, WriteScenario

# Published configurations as far as they count, and the entry that each must give again.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-70b": {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "max_position_embeddings": 131072, "model_type": "llama", "num_attention_heads": 64, "num_hidden_layers": 80,
        "num_key_value_heads": 8, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
    },
    "deepseek-v3": {
        "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
        "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
        "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
        "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
        "quantization_config": {"fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "qwen3-30b-a3b": {
        "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
        "model_type": "qwen3_moe", "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
        "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "sliding_window": None,
        "use_sliding_window": False, "vocab_size": 151936,
    },
    "gpt-oss-120b": {
        "head_dim": 64, "hidden_size": 2880, "intermediate_size": 2880, "max_position_embeddings": 131072,
        "layer_types": ["sliding_attention", "full_attention"] * 18, "model_type": "gpt_oss",
        "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 8,
        "num_local_experts": 128, "sliding_window": 128, "vocab_size": 201088,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_configuration_gives_the_shipped_entry(name: str, write: WriteScenario) -> None:
    _, entry = model_entry(write(json.dumps(CONFIGS[name]), "config.json"))
    shipped = load_catalog().models[name]
    facts = {key: fact.value for key, fact, _ in shipped.facts() if not key.startswith("api_")}  # type: ignore[union-attr]
    made = {key: value for key, value in entry.items() if key not in ("source", "grade")}
    assert made == {key: value for key, value in facts.items() if key not in ("family", "released")}


def test_formats_are_read_from_what_a_configuration_says_of_them(write: WriteScenario) -> None:
    def format_of(**quantised: Any) -> Any:
        config = CONFIGS["llama-3.1-70b"] | {"quantization_config": quantised}
        return model_entry(write(json.dumps({"text_config": config}), "config.json"))[1].get(
            "native_precision"
        )

    assert format_of(quant_method="awq", bits=4) == "int4"
    assert format_of(quant_method="modelopt", quant_algo="NVFP4") == "fp4"
    weights = {"num_bits": 8, "type": "float"}
    assert (
        format_of(quant_method="compressed-tensors", config_groups={"a": {"weights": weights}})
        == "fp8"
    )
    assert format_of(quant_method="bitsandbytes") is None


def test_an_own_part_and_model_and_their_measurement_end_in_a_run(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write(json.dumps(CONFIGS["llama-3.1-70b"] | {"_name_or_path": "us/Ours-70B"}), "config.json")
    own = ("--overlay", "own.yaml")
    assert planner("catalog", "add-model", "config.json", *own).code == 0
    stated = (
        "hbm_gb=288",
        "dense_tflops.fp8=9000",
        "tdp_w=1400",
        "source=Preview of May 2026",
        "grade=C",
    )
    told = planner(
        "catalog",
        "add-accelerator",
        "NEXT-1",
        "--like",
        "B200",
        *own,
        *(f"--set={one}" for one in stated),
    )
    assert told.code == 0, told.err
    row = {"model": "ours-70b", "accelerator": "NEXT-1", "tpot_ms": "12", "ttft_ms": ""}
    write_table(tmp_path / "rows.csv", row, {**row, "concurrency": "64", "tpot_ms": "17"})
    planner("check-benchmarks", "rows.csv")  # without the overlay nothing is known of them
    checked = planner("check-benchmarks", "rows.csv", *own, "--json")
    assert json.loads(checked.out)["summary"]["predicted"] == 2
    assert planner("calibrate", "rows.csv", *own, "--out", "measured.yaml").code == 0
    write("timestamp,input_tokens,output_tokens,model\n" + "".join(
        f"{1.79e9 + at},{500 + at % 7},{90 + at % 5},us/Ours-70B\n" for at in range(900)
    ), "chat.csv")  # fmt: skip
    assert planner("init", "plan", "--from", "chat.csv", *own).code == 0
    text = (tmp_path / "plan.yaml").read_text()
    assert "model: ours-70b  # served as us/Ours-70B" in text
    assert "catalog: {overlay: own.yaml}" in text
    sets = ("calibration=measured.yaml", "clusters.h200=null", "clusters.b200=null",
            "clusters.next={accelerator: NEXT-1, nodes: 2}")  # fmt: skip
    words = [word for one in sets for word in ("--set", one)]
    done = planner("run", "plan.yaml", "-n", "1", *words)
    assert done.code == 0, done.err
    assumed = (tmp_path / "outputs" / "plan" / "assumptions.csv").read_text()
    assert "catalog.accelerators.NEXT-1.hbm_gb,288,GB,Preview of May 2026" in assumed
    assert "Assumed: as for B200" in assumed
    assert "measured.yaml" in assumed
    kept = planner("throughput", "plan.yaml", *words)
    assert "NEXT-1" in kept.out or "next" in kept.out


def test_an_overlay_is_extended_and_its_comments_stay(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write("# ours\naccelerators:  # parts\n  # none yet\ntariffs: {}\n", "own.yaml")
    for name in ("X1", "X2"):
        words = ("catalog", "add-accelerator", name, "--like", "H200", "--overlay", "own.yaml")
        assert planner(*words, "--set", "source=a guess").code == 0
    text = (tmp_path / "own.yaml").read_text()
    assert text.startswith("# ours\naccelerators:  # parts\n  X2:\n")
    assert "# none yet" in text
    assert set(yaml.safe_load(text)["accelerators"]) == {"X1", "X2"}
    before = text
    planner(*words, "--set", "source=another").refused("own.yaml", "duplicate key accelerators.X2")
    planner(
        "catalog",
        "add-accelerator",
        "X3",
        "--overlay",
        "own.yaml",
        "--set",
        "hbm_gb=1",
        "--set",
        "tpd_w",
    ).refused("'tpd_w' is not KEY=VALUE")
    assert (tmp_path / "own.yaml").read_text() == before


def test_every_field_that_is_needed_is_named_at_once(planner: Planner, tmp_path: Path) -> None:
    told = planner(
        "catalog", "add-accelerator", "X1", "--overlay", "own.yaml", "--set", "vendor=nvidia"
    )
    told.refused(
        "X1.source",
        "hbm_gb: is needed: Usable accelerator memory. (--set hbm_gb=VALUE, in GB)",
        "X1.available",
    )
    assert "vendor" not in told.err
    assert len(told.err.splitlines()) == 13
    assert not (tmp_path / "own.yaml").exists()


@pytest.mark.parametrize("text", ["[1]", "{", "{}", '{"num_hidden_layers": "many"}'])
def test_what_is_no_configuration_is_refused(
    planner: Planner, write: WriteScenario, tmp_path: Path, text: str
) -> None:
    write(text, "config.json")
    planner("catalog", "add-model", "config.json", "--name", "x", "--overlay", "own.yaml").refused(
        ""
    )
    assert not (tmp_path / "own.yaml").exists()
