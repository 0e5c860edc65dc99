from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import ScenarioError
from planner.plan.build import build_plan
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario


def problem_of(path: Path, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, overrides)
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "clusters.h200.accelerator=H20O",
            "clusters.h200.accelerator: unknown accelerator 'H20O' (did you mean H200?)",
        ),
        (
            "clusters.h200.accelerator=TPU",
            "clusters.h200.accelerator: unknown accelerator 'TPU' (the catalogue has B200, ",
        ),
        (
            "workloads.chat.model=llama-3.1-8",
            "workloads.chat.model: unknown model 'llama-3.1-8' (did you mean llama-3.1-8b?)",
        ),
        ("site.tariff=us-ohoi", "site.tariff: unknown tariff 'us-ohoi' (did you mean us-ohio?)"),
        (
            "clusters.mi325x.engine=tensorrt-llm",
            "clusters.mi325x.engine: engine 'tensorrt-llm' does not run on amd",
        ),
        (
            "clusters.mi325x.precision=fp4",
            "clusters.mi325x.precision: MI325X has no fp4 arithmetic",
        ),
        (
            "clusters.h200.online=2025-12-31",
            "clusters.h200.online: 2025-12-31 is before the start of the horizon",
        ),
        (
            "clusters.h200.online=2026-04-01",
            "clusters.h200.online: 2026-04-01 is after the end of the horizon",
        ),
        (
            "workloads.chat.load_profile={timezone: Europe/Berlni}",
            "timezone: unknown time zone 'Europe/Berlni' (did you mean Europe",
        ),
        (
            "workloads.chat.load_profile={timezone: ../../etc/passwd}",
            "unknown time zone '../../etc/passwd'",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, 0.9: 800}, mean: null}",
            "lengths.input: quantiles must not fall as their share rises: 800 tokens at 0.9 after 900 at 0.5",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, 0.9: 1800}}",
            "lengths.input: quantiles replace mean and p95: leave out mean",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, 95: 1800}, mean: null}",
            "lengths.input: the key of a quantile must be a share of requests between 0 and 1, not 95",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, p95: 1800}, mean: null}",
            "lengths.input: the key of a quantile must be a share of requests, such as 0.95, not 'p95'",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, 1: 1800}, mean: null}",
            "lengths.input: a distribution needs at least two quantiles between 0 and 1, not 1",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, 0.50: 900, 0.9: 1000}, mean: null}",
            "lengths.input: a quantile is stated twice",
        ),
        (
            "workloads.chat.lengths.input={quantiles: {0.5: 900, 0.9: 140000}, mean: null}",
            "lengths.input.quantiles.0.9: 140,000 tokens exceed the 131,072 that llama-3.1-8b accepts",
        ),
        (
            "workloads.chat.lengths.input={mean: null}",
            "lengths.input: needs mean, or quantiles such as",
        ),
        ("start=1999-12-31", "start: must be greater than or equal to 2000-01-01, not 1999-12-31"),
        ("start=2101-01-01", "start: must be less than or equal to 2100-12-31, not 2101-01-01"),
    ],
)
def test_a_contradiction_has_its_place(write: WriteScenario, override: str, message: str) -> None:
    found = problem_of(write(), override)
    assert message in found
    assert found.startswith("--set #1: ")


def test_a_request_longer_than_the_model_accepts(write: WriteScenario) -> None:
    found = problem_of(write(), "workloads.chat.lengths.input.mean=200_000")
    assert (
        "tiny.yaml:8: workloads.chat.lengths: a mean request of 200,100 tokens exceeds the 131,072"
        in found
    )


def test_quantiles_are_bounded_by_the_context_where_no_longest_is_stated(
    write: WriteScenario,
) -> None:
    steep = "workloads.chat.lengths.input={quantiles: {0.5: 900, 0.9: 90000}, mean: null}"
    stated = "workloads.chat.lengths.input.quantiles.1=100_000"
    lengths = [
        load_scenario(write(), overrides).workloads["chat"].lengths.input
        for overrides in ([steep], [steep, stated])
    ]
    assert [length.distribution.quantile(0.999) for length in lengths] == [131_072, 100_000]
    assert lengths[0].mean > lengths[1].mean > 0.5 * 900
    assert hash(lengths[0]) != hash(lengths[1])


def test_a_class_lays_no_mean_under_stated_quantiles(write: WriteScenario, tiny: str) -> None:
    text = tiny.replace("lengths: {input: {mean: 500}, output: {mean: 100}}", "preset: chat")
    scenario = load_scenario(
        write(text), ["workloads.chat.lengths={input: {quantiles: {0.5: 900, 0.9: 2000}}}"]
    )
    tokens = scenario.workloads["chat"].lengths
    assert tokens.input.distribution.quantile(0.9) == pytest.approx(2000)
    assert tokens.output.p95 is not None


def test_a_part_without_a_price_is_never_free(write: WriteScenario) -> None:
    path = write()
    sets = ["clusters.mi325x.accelerator=MI355X", "catalog.assumptions=articles-2024"]
    message = problem_of(path, *sets)
    assert (
        "clusters.mi325x: the 'articles-2024' catalogue has no price for MI355X; state accelerator_price_usd"
        in message
    )
    priced = load_scenario(path, [*sets, "clusters.mi325x.accelerator_price_usd=25000"])
    assert priced.clusters["mi325x"].accelerator_price_usd == 25000


def test_a_model_that_does_not_fit_is_named_with_its_reasons(
    write: WriteScenario, tiny: str
) -> None:
    path = write(tiny.replace("llama-3.1-8b", "llama-3.1-405b\n    precisions: [bf16]"))
    sets = ["clusters.mi325x=null", "clusters.h200.accelerator=H100"]
    with pytest.raises(ScenarioError) as caught:
        build_plan(load_scenario(path, sets))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.path) == (str(path), 5, "workloads.chat")
    assert "no cluster can serve it: h200: " in problem.message


def test_a_stated_engine_that_serves_no_model_of_the_scenario_is_refused_with_those_that_do(
    write: WriteScenario,
) -> None:
    """TGI 3.3 has no code of its own for Qwen3."""
    path = write()
    text = path.read_text(encoding="utf-8").replace("llama-3.1-8b", "qwen3-32b")
    path.write_text(text.replace("nodes: 4", "nodes: 4\n    engine: tgi"), encoding="utf-8")
    line = 1 + path.read_text(encoding="utf-8").splitlines().index("    engine: tgi")
    problem = problem_of(path)
    assert f"{path.name}:{line}: clusters.h200.engine: tgi does not serve qwen3-32b" in problem
    assert "not supported as of 2025-12-18" in problem
    assert "vllm, sglang, tensorrt-llm do" in problem


def test_a_stated_engine_that_serves_some_models_is_refused_for_the_others_alone(
    write: WriteScenario,
) -> None:
    path = write()
    second = "workloads.code={model: qwen3-32b, requests_per_s: 1, lengths: {input: {mean: 500}, output: {mean: 100}}}"
    plan = build_plan(load_scenario(path, ["clusters.h200.engine=tgi", second]))
    (refusal,) = [note for note in plan.notes if "tgi does not serve" in note]
    assert refusal.startswith("workload code cannot run on h200: tgi does not serve qwen3-32b")
    assert [load.cluster_order for load in plan.workloads] == [(0, 1), (1,)]


def test_what_one_knows_oneself_of_an_engine_is_taken(write: WriteScenario, tmp_path: Path) -> None:
    overlay = tmp_path / "own.yaml"
    overlay.write_text(
        "engine_support:\n"
        "  tgi-fork: {engine: tgi, model: qwen3-32b, accelerator: H200, status: public-sweep, "
        "source: our own runs, grade: A}\n",
        encoding="utf-8",
    )
    path = write()
    model = "workloads.chat.model=qwen3-32b"
    engine = "clusters.h200.engine=tgi"
    assert "tgi does not serve" in problem_of(path, model, engine)
    load_scenario(path, [model, engine, f"catalog.overlay={overlay}"])
