"""Which engine serves what: the most specific statement counts, faults before pages, one's own before all."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from planner.catalog.entries import Status
from planner.catalog.load import load_catalog
from planner.catalog.support import SupportMatrix, shipped_support
from planner.errors import ScenarioError


def matrix_with(tmp_path: Path, text: str) -> SupportMatrix:
    path = tmp_path / "own.yaml"
    path.write_text(text, encoding="utf-8")
    return load_catalog(overlay=path).support


def own_rows(*rows: str) -> str:
    lines = ["engine_support:"]
    for number, row in enumerate(rows):
        lines.append(f"  row-{number}: {{{row}, source: our own runs, grade: A}}")
    return "\n".join(lines) + "\n"


def test_shipped_rows_name_what_the_catalogue_has() -> None:
    catalog = load_catalog()
    engines = {stack.engine.value for stack in catalog.stacks.values()}
    parts = {*catalog.accelerators, *catalog.vendors, "any"}
    for row in shipped_support():
        assert row.engine in engines
        assert parts.issuperset(row.accelerators), row
        assert {*catalog.precisions, "any"}.issuperset(row.precisions), row
        assert row.source in catalog.sources, row
        assert row.until is None or row.since is None or row.since < row.until, row


# As public configurations, recipes and documentation have it.
@pytest.mark.parametrize(
    ("engine", "model", "accelerator", "precision", "status"),
    [
        ("vllm", "llama-3.3-70b", "MI325X", "fp8", "public-sweep"),
        ("vllm", "llama-3.1-70b", "MI325X", "fp8", "public-sweep"),  # by its family
        ("sglang", "deepseek-r1", "MI325X", "fp8", "public-sweep"),
        ("sglang", "qwen3.5-397b-a17b", "MI325X", "fp8", "public-sweep"),
        ("vllm", "deepseek-v4-pro", "MI325X", "fp8", "public-sweep"),  # its recipe says no
        ("vllm", "minimax-m3", "MI325X", "fp8", "public-sweep"),
        ("vllm", "llama-3.1-405b", "MI325X", "fp8", "documented"),
        ("atom", "llama-3.1-70b", "MI325X", "fp8", "experimental"),  # documented for AMD at large
        ("atom", "deepseek-v4-pro", "MI325X", "fp4", "not-supported"),
        ("tensorrt-llm", "llama-3.1-70b", "H200", "fp4", "not-supported"),  # a table of formats
        ("tensorrt-llm", "gpt-oss-120b", "H200", "fp4", "public-sweep"),  # which it breaks
        ("tensorrt-llm", "deepseek-v4-pro", "H200", "fp8", "not-supported"),
        ("tensorrt-llm", "deepseek-v4-pro", "B200", "fp4", "public-sweep"),
        ("tgi", "qwen3-32b", "H200", "fp8", "not-supported"),
        ("tgi", "llama-3.1-8b", "H200", "fp8", "experimental"),
    ],
)
def test_what_is_known_of_an_engine(
    engine: str, model: str, accelerator: str, precision: str, status: Status
) -> None:
    row = load_catalog().support.row(engine, model, accelerator, precision)
    assert row is not None
    assert row.status == status


def test_what_nobody_speaks_of_is_unknown() -> None:
    support = load_catalog().support
    assert support.row("sglang", "llama-3.1-70b", "H200", "fp4") is None
    assert support.refusal("sglang", "llama-3.1-70b", "H200", "fp4") is None


def test_features_are_known_apart() -> None:
    support = load_catalog().support
    pools = support.row("sglang", "deepseek-r1", "MI325X", "fp8", "disaggregated")
    assert pools is not None
    assert pools.status == "experimental"
    groups = support.row("atom", "glm-5", "MI300X", "fp8", "data-parallel")
    assert groups is None  # stated of glm-5.2 alone, which is no relative
    drafts = support.refusal("sglang", "glm-5", "MI355X", "fp8", "speculation")
    assert drafts is None  # a public run goes before the page


def test_a_refusal_names_who_serves_instead() -> None:
    refusal = load_catalog().support.refusal("tgi", "qwen3-32b", "H200", "fp8")
    assert refusal is not None
    assert refusal.startswith("tgi does not serve qwen3-32b at fp8 on H200: not supported")
    assert "2025-12-18" in refusal
    assert refusal.endswith("; vllm, sglang, tensorrt-llm do")


def test_a_fault_counts_while_it_lasts(tmp_path: Path) -> None:
    fault = "engine: vllm, model: qwen3-8b, accelerator: H200, status: broken"
    support = matrix_with(tmp_path, own_rows(f"{fault}, since: 2026-01-15, until: 2026-02-26"))
    key = ("vllm", "qwen3-8b", "H200", "fp8")
    for day, is_refused in (("2026-01-14", 0), ("2026-01-15", 1), ("2026-02-26", 0)):
        image_date = datetime.date.fromisoformat(day)
        assert bool(support.refusal(*key, image_date=image_date)) == bool(is_refused), day
    # The newest image is mended.
    assert support.refusal(*key) is None


def test_an_image_from_before_support_has_none() -> None:
    support = load_catalog().support
    key = ("vllm", "kimi-k2.5", "H200", "int4")
    newest = support.row(*key)
    assert newest is not None
    assert newest.status == "public-sweep"
    assert newest.since is not None
    before = newest.since - datetime.timedelta(days=1)
    older = support.row(*key, image_date=before)
    assert older is None or older.status != "public-sweep"
    # What is not supported today was not supported then.
    assert support.refusal("tgi", "qwen3-32b", "H200", "fp8", image_date=datetime.date(2025, 1, 1))


def test_the_most_specific_row_counts_whatever_its_status(tmp_path: Path) -> None:
    general = "engine: sglang, model: any, accelerator: nvidia, status: not-supported"
    specific = "engine: sglang, model: qwen3-8b, accelerator: H200 B200, status: documented"
    support = matrix_with(tmp_path, own_rows(general, specific))
    assert support.refusal("sglang", "qwen3-8b", "H200", "fp8") is None
    assert support.refusal("sglang", "qwen3-32b", "H200", "fp8")
    assert support.refusal("sglang", "qwen3-32b", "MI325X", "fp8") is None


def test_of_rows_that_each_know_better_in_something_a_fault_counts(tmp_path: Path) -> None:
    by_model = "engine: sglang, model: qwen3-8b, accelerator: any, status: not-supported"
    by_part = "engine: sglang, model: any, accelerator: H200, status: documented"
    support = matrix_with(tmp_path, own_rows(by_model, by_part))
    assert support.refusal("sglang", "qwen3-8b", "H200", "fp8")


def test_ones_own_row_goes_before_all_shipped_ones(tmp_path: Path) -> None:
    assert load_catalog().support.refusal("tgi", "qwen3-32b", "H200", "fp8")
    mine = own_rows("engine: tgi, model: dense, accelerator: any, status: public-sweep")
    support = matrix_with(tmp_path, mine)
    assert support.refusal("tgi", "qwen3-32b", "H200", "fp8") is None
    assert support.refusal("tgi", "qwen3-30b-a3b", "H200", "fp8")  # no dense model


MODEL = """\
models:
  mine:
    architecture_class: {kind}
    {family}
    attention: grouped-query
    layers: 32
    hidden_size: 4096
    intermediate_size: 14336
    heads: 32
    kv_heads: 8
    head_dim: 128
    vocabulary: 128256
    max_context_tokens: 131072
    source: our own model
    grade: A
"""


def test_a_model_of_ones_own_is_known_by_its_family_or_its_class(tmp_path: Path) -> None:
    key = ("mine", "H200", "fp8")
    tuned = matrix_with(tmp_path, MODEL.format(kind="dense", family="family: qwen3-32b"))
    assert tuned.refusal("tgi", *key)  # as the model that it descends from
    row = tuned.row("sglang", *key)
    assert row is not None
    assert "qwen3-32b" in row.models
    # Without a family what others of its class do is a hint, and what they do not is none.
    stranger = matrix_with(tmp_path, MODEL.format(kind="dense", family=""))
    assert stranger.refusal("tgi", *key) is None
    row = stranger.row("sglang", *key)
    assert row is not None
    assert row.status == "documented"
    assert "of its class" in row.note


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("engine: vlm, model: any, accelerator: any, status: documented", "choose from"),
        ("engine: vllm, model: qwen3-33b, accelerator: any, status: documented", "qwen3-32b"),
        ("engine: vllm, model: any, accelerator: H20, status: documented", "H200"),
        ("engine: vllm, model: any, accelerator: any, status: works", "not-supported"),
    ],
)
def test_a_mistake_in_ones_own_rows_is_named_with_its_line(
    tmp_path: Path, row: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        matrix_with(tmp_path, own_rows(row))
    assert message in str(caught.value)
    assert "own.yaml:2" in str(caught.value)
