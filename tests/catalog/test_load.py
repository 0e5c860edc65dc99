from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.entries import FOLDER, Range, with_provenance
from planner.catalog.load import ASSUMPTION_SETS, Catalog, load_catalog
from planner.errors import ScenarioError
from planner.units import unit_of
from tests.conftest import WriteScenario


def all_facts(catalog: Catalog) -> list[tuple[str, Any]]:
    facts = [
        (f"{s}.{n}.{key}", fact)
        for s, n, entry in catalog.entries()
        for key, fact, _ in entry.facts()
    ]
    return facts + [(f"priors.{name}", prior) for name, prior in catalog.priors.items()]


def problem_of(overlay: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_catalog("measured", overlay)
    return str(caught.value)


@pytest.mark.parametrize("assumption_set", ASSUMPTION_SETS)
def test_every_value_has_source_date_and_grade(assumption_set: str) -> None:
    catalog = load_catalog(assumption_set)
    for path, fact in all_facts(catalog):
        title, date = catalog.provenance(fact)
        assert len(title) > 8, path
        assert (
            datetime.date(2005, 1, 1)
            <= datetime.date.fromisoformat(date)
            <= datetime.date(2030, 1, 1)
        ), path
        assert fact.grade in "ABCD", path


@pytest.mark.parametrize("assumption_set", ASSUMPTION_SETS)
def test_every_measured_value_has_a_unit_or_is_a_count(assumption_set: str) -> None:
    for path, fact in all_facts(load_catalog(assumption_set)):
        named = (
            path.removesuffix(f".{path.rpartition('.')[2]}") if ".dense_tflops." in path else path
        )
        if isinstance(fact, Range):
            assert fact.unit or unit_of(named), path
        elif isinstance(fact.value, float):
            assert unit_of(named), path


def test_the_articles_lay_over_the_measurements_value_by_value() -> None:
    measured = load_catalog("measured")
    articles = load_catalog("articles-2024")
    assert articles.accelerators["MI325X"].accelerator_price_usd.source == "articles"  # type: ignore[union-attr]
    assert articles.accelerators["MI325X"].hbm_gb == measured.accelerators["MI325X"].hbm_gb
    assert articles.models == measured.models
    assert articles.accelerators["MI355X"].accelerator_price_usd is None


def test_measured_parts_agree_with_common_sense() -> None:
    parts = load_catalog().accelerators
    for name, part in parts.items():
        assert part.idle_w.value < part.tdp_w.value, name
        assert (
            part.tdp_w.value * part.accelerators_per_node.value / 1000 < part.node_max_kw.value
        ), name
        rates = [rate.value for rate in part.dense_tflops.values()]  # widest first
        assert rates == sorted(rates), name
    assert list(parts["MI300X"].dense_tflops) == list(parts["H200"].dense_tflops) == ["bf16", "fp8"]
    assert "fp4" in parts["B200"].dense_tflops


def test_an_unknown_set_and_an_unknown_name_are_refused() -> None:
    with pytest.raises(
        ScenarioError, match="unknown assumption set 'guessed'; choose from articles-2024, measured"
    ):
        load_catalog("guessed")
    catalog = load_catalog()
    with pytest.raises(ScenarioError, match=r"unknown accelerator 'h20' \(did you mean H200\?\)"):
        catalog.accelerator("h20")
    with pytest.raises(
        ScenarioError, match=r"unknown model 'zzzz' \(the catalogue has deepseek-r1, "
    ):
        catalog.model("zzzz")
    with pytest.raises(ScenarioError, match="unknown tariff"):
        catalog.tariff("mars")
    with pytest.raises(ScenarioError, match="unknown prior"):
        catalog.prior("fortune")
    with pytest.raises(
        ScenarioError, match="engine 'vlm' does not run on nvidia accelerators; choose from sglang"
    ):
        catalog.stack("nvidia", "vlm")
    assert catalog.stack("amd", "vllm").platform.value == "rocm"


def test_an_overlay_changes_one_value_and_keeps_the_rest(write: WriteScenario) -> None:
    overlay = write(
        "accelerators: {H200: {accelerator_price_usd: {value: 30000, source: our quote, grade: A, date: 2026-05-05}}}\n"
    )
    ours = load_catalog("measured", overlay)
    shipped = load_catalog()
    price = ours.accelerator("H200").accelerator_price_usd
    assert price is not None
    assert price.value == 30000
    assert ours.provenance(price) == ("our quote", "2026-05-05")
    assert ours.accelerator("H200").hbm_gb == shipped.accelerator("H200").hbm_gb
    assert ours.accelerator("B200") == shipped.accelerator("B200")


def test_an_overlay_lies_over_either_set(write: WriteScenario) -> None:
    overlay = write("sources: {quote: {title: our quote, date: 2026-05-05}}\ntariffs:\n  home:\n    source: quote\n"
                    "    grade: A\n    energy_usd_per_kwh: 0.3\n    grid_carbon_g_per_kwh: 20\n")  # fmt: skip
    for name in ASSUMPTION_SETS:
        assert load_catalog(name, overlay).tariff("home").energy_usd_per_kwh.value == 0.3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tiny.yaml:1: expected a mapping with accelerators, models"),
        ("[1]", "tiny.yaml:1: expected a mapping"),
        ("acelerators: {}", "tiny.yaml:1: acelerators: unknown key (did you mean accelerators?)"),
        ("accelerators: 3", "tiny.yaml:1: accelerators: must be a mapping"),
        ("accelerators: {H200: 3}", "tiny.yaml:1: accelerators.H200: must be a mapping"),
        ("accelerators: {X1: {}}", "tiny.yaml:1: accelerators.X1.vendor: is required"),
        (
            "accelerators:\n  H200: {hbm_gb: 9}",
            "tiny.yaml:2: accelerators.H200.hbm_gb.source: is required",
        ),
        (
            "accelerators: {H200: {source: a quote, grade: A, hbm_gbb: 9}}",
            "accelerators.H200.hbm_gbb: unknown key (did you mean hbm_gb?)",
        ),
        (
            "accelerators: {H200: {source: a quote, grade: E, hbm_gb: 9}}",
            "hbm_gb.grade: must be one of 'A', 'B', 'C'",
        ),
        (
            "accelerators: {H200: {source: a quote, grade: A, hbm_gb: -9}}",
            "hbm_gb.value: must be greater than 0, not -9",
        ),
        (
            "accelerators: {H200: {source: a quote, grade: A, hbm_gb: '9'}}",
            "hbm_gb.value: must be a number, not '9'",
        ),
        (
            "accelerators: {H200: {source: vender-spec, grade: A, hbm_gb: 9}}",
            "'vender-spec' is not in sources; add it",
        ),
        (
            "priors: {colo_rent: {low: 3, base: 2, high: 1, source: a quote, grade: D}}",
            "priors.colo_rent: low, base, high",
        ),
        ("tariffs: null", "tariffs: must be a mapping"),
        (
            "accelerators: {H200: {source: a quote, grade: A, idle_w: 900}}",
            "tiny.yaml:1: accelerators.H200.idle_w: must be below tdp_w, 700",
        ),
        (
            "models: {mixtral-8x7b: {source: a card, grade: A, experts_per_token: 9}}",
            "tiny.yaml:1: models.mixtral-8x7b.experts_per_token: must lie between 1 and 8, its experts",
        ),
        (
            "models: {llama-3.1-8b: {source: a card, grade: A, experts: 4}}",
            "models.llama-3.1-8b.experts_per_token: must lie between 1 and 4, its experts",
        ),
        (
            "models: {llama-3.1-8b: {source: a card, grade: A, cache_fraction: 0}}",
            "cache_fraction.value: must be greater than 0, not 0",
        ),
    ],
)
def test_a_bad_overlay_is_refused_with_its_place(
    write: WriteScenario, text: str, message: str
) -> None:
    assert message in problem_of(write(text))


def test_a_missing_overlay_is_refused(tmp_path: Path) -> None:
    assert "no-overlay.yaml: no such file" in problem_of(tmp_path / "no-overlay.yaml")
    assert "cannot be read" in problem_of(tmp_path / "a\0b")


def test_provenance_at_the_top_holds_for_what_names_none() -> None:
    entry = {"source": "s", "grade": "A", "x": 1, "y": {"value": 2, "grade": "D"}, "z": None}
    assert with_provenance(entry) == {
        "x": {"value": 1, "source": "s", "grade": "A"}, "y": {"value": 2, "source": "s", "grade": "D"}, "z": None,
    }  # fmt: skip
    assert with_provenance(with_provenance(entry)) == with_provenance(entry)


PARTS = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(max_size=4) | st.sampled_from(["A", "a quote"]),
    lambda part: (
        st.dictionaries(
            st.sampled_from(
                [
                    "accelerators",
                    "models",
                    "priors",
                    "sources",
                    "H200",
                    "hbm_gb",
                    "value",
                    "source",
                    "grade",
                    "low",
                ]
            ),
            part,
            max_size=4,
        )
        | st.lists(part, max_size=2)
    ),
    max_leaves=12,
)


@settings(max_examples=25)
@given(PARTS)
def test_any_overlay_is_used_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: Any
) -> None:
    import yaml  # noqa: PLC0415 - only this test writes YAML

    path = tmp_path_factory.getbasetemp() / "any-overlay.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    try:
        load_catalog("measured", path)
    except ScenarioError as error:
        assert error.problems


def test_an_incident_has_its_stacks_figures_else_its_kinds(write: WriteScenario) -> None:
    text = """
incidents:
  leak: {source: our tickets, grade: B, effect: slows, per_year: {low: 1, base: 2, high: 3}, most_loss_fraction: 0.5,
         loss_fraction: {low: 0.1, base: 0.1, high: 0.1}, fix_days: {low: 30, base: 30, high: 30}}
stacks:
  rocm-vllm: {source: our tickets, grade: B, incidents: {leak: {per_year: {low: 8, base: 9, high: 10}}}}
"""
    catalog = load_catalog("measured", write(text))
    here, elsewhere = (
        catalog.incident(catalog.stacks[name], "leak") for name in ("rocm-vllm", "cuda-vllm")
    )
    assert [fact.base for fact in (here.per_year, elsewhere.per_year) if fact] == [9, 2]
    assert [fact.base for fact in (here.fix_days, elsewhere.fix_days) if fact] == [30, 30]
    usual = catalog.incident(catalog.stacks["cuda-vllm"], "hang")
    assert usual.fix_days == catalog.stacks["cuda-vllm"].fix_days


def test_who_contradicts_a_shipped_file_is_told_its_line(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "precisions: {bf16: {weight_bytes: {value: 0.5, source: a datasheet, grade: A}}}\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load_catalog("measured", overlay)
    lines = (FOLDER / "precisions.yaml").read_text().splitlines()
    told = caught.value.problems[0]
    assert told.file == str(FOLDER / "precisions.yaml")
    assert told.line is not None
    assert "wider" in lines[told.line - 1]
