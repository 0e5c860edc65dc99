"""Study files: what is refused, where, and with which advice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.errors import ScenarioError
from planner.scenario.workload import GrowthByYear
from planner.studies.inputs import changed
from planner.studies.prepare import prepare
from tests.conftest import Planner, WriteScenario
from tests.studies.conftest import SMALL


def refusal(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        prepare(path)
    return str(caught.value)


def with_input(line: str) -> str:
    return SMALL.replace("uncertain:\n", f"uncertain:\n  {line}\n")


def test_a_sound_study_is_taken(study_file: WriteScenario) -> None:
    prepared = prepare(study_file())
    assert prepared.names == ("both", "nvidia")
    assert prepared.inputs.names[:3] == (
        "workloads.*.requests_per_s",
        "clusters.h200.accelerator_price_usd",
        "site.electricity_usd_per_kwh",
    )
    assert prepared.inputs.names[3:] == (
        "throughput_error.H200.vllm.llama-3.1-8b",
        "throughput_error.MI325X.vllm.llama-3.1-8b",
    )


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            "clusters.h200.discount_fraction: {kind: normal, mean: 0.2, sd: 0.2}",
            (
                "study.yaml:6",
                "uncertain.clusters.h200.discount_fraction",
                "reaches -",
                "greater than or equal to 0",
            ),
        ),
        (
            "clusters.h200.discount_fraction: {kind: uniform, low: 0.5, high: 1.5}",
            ("clusters.h200.discount_fraction does not allow", "less than 1"),
        ),
        (
            "clusters.h200.accelerator_price: {kind: uniform, low: 1, high: 2}",
            ("no scenario", "did you mean accelerator_price_usd?"),
        ),
        (
            "cluster.h200.nodes: {kind: uniform, low: 1, high: 2}",
            ("no scenario", "did you mean clusters?"),
        ),
        ("site: {kind: uniform, low: 1, high: 2}", ("is a section",)),
        (
            "start: {kind: discrete, values: [2026-01-01, 2026-02-01]}",
            ("a study cannot vary start",),
        ),
        (
            "site.pue_ratio: {prior: pue_new_kolo}",
            ("unknown prior 'pue_new_kolo'", "did you mean pue_new_colo?"),
        ),
        ("site.pue_ratio: {prior: gpu_tdp_h200}", ("has no spread",)),
        ("site.pue_ratio: {prior: goodput_loss}", ("has no spread",)),
        (
            "site.pue_ratio: {kind: percentiles, p10: 1.2, p50: 1.2001, p90: 2.5}",
            ("no smooth distribution",),
        ),
        (
            "site.pue_ratio: {kind: triangular, low: 2, mode: 1, high: 3}",
            ("low, mode, high must rise",),
        ),
        ("site.pue_ratio: {kind: gaussian, mean: 1, sd: 2}", ("needs kind", "triangular")),
        (
            "site.pue_ratio: {kind: uniform, low: 1.1, hihg: 1.2}",
            ("unknown key", "did you mean high?"),
        ),
        (
            "site.tariff: {kind: discrete, values: [us-ohio, us-oihio]}",
            ("reaches us-oihio", "unknown tariff"),
        ),
        (
            "clusters.h200.online: {kind: discrete, values: [2026-01-01, 2029-01-01]}",
            ("reaches 2029-01-01", "after"),
        ),
        (
            "site.facility_power_cap_kw: {kind: uniform, low: 1, high: 2, times_stated: true}",
            ("states no number",),
        ),
        (
            "site.pue_ratio: {kind: discrete, values: [1.1, 1.2], weights: [1]}",
            ("needs 2 weights",),
        ),
        ("workloads.chat.lengths.input.mean: {kind: uniform, low: 1.0e+6, high: 2.0e+6}", ()),
    ],
)
def test_a_bad_input_is_named_with_its_place(
    study_file: WriteScenario, line: str, parts: tuple[str, ...]
) -> None:
    if parts:
        message = refusal(study_file(with_input(line)))
        for part in ("study.yaml", *parts) if "nowhere" not in line else parts:
            assert part in message, message
    else:
        prepare(study_file(with_input(line)))


def test_all_problems_come_at_once(study_file: WriteScenario) -> None:
    text = with_input("site.pue_ratio: {prior: nothing}").replace(
        "scramblings: 4", "correlations:\n  - {between: [a, b], rank: 0.5}\nscramblings: 4"
    )
    message = refusal(study_file(text))
    assert "unknown prior" in message
    assert "'a' is not an input" in message


def correlated(*entries: str) -> str:
    lines = "".join(f"  - {entry}\n" for entry in entries)
    return SMALL.replace("scramblings: 4", f"correlations:\n{lines}scramblings: 4")


DEMAND = "workloads.*.requests_per_s"
PRICE = "clusters.h200.accelerator_price_usd"
POWER = "site.electricity_usd_per_kwh"


def test_an_impossible_correlation_matrix_is_refused(
    study_file: WriteScenario,
) -> None:
    message = refusal(
        study_file(
            correlated(
                f"{{between: ['{DEMAND}', {PRICE}], rank: 0.9}}",
                f"{{between: [{PRICE}, {POWER}], rank: 0.9}}",
                f"{{between: ['{DEMAND}', {POWER}], rank: -0.9}}",
            )
        )
    )
    assert "correlations: no inputs can have all of these rank correlations at once" in message


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ((f"{{between: [{PRICE}, {PRICE}], rank: 0.5}}",), "correlated with itself"),
        (
            (
                f"{{between: [{PRICE}, {POWER}], rank: 0.5}}",
                f"{{between: [{POWER}, {PRICE}], rank: 0.1}}",
            ),
            "already at",
        ),
        (
            (f"{{between: [{PRICE}, site.electricity], rank: 0.5}}",),
            "did you mean site.electricity_usd_per_kwh?",
        ),
        ((f"{{between: [{PRICE}, {POWER}], rank: 1.5}}",), "less than or equal to 1"),
        ((f"{{between: [{PRICE}], rank: 0.5}}",), "correlations[0].between"),
    ],
)
def test_bad_correlations(study_file: WriteScenario, entries: tuple[str, ...], part: str) -> None:
    assert part in refusal(study_file(correlated(*entries)))


def test_other_mistakes_of_a_study(study_file: WriteScenario) -> None:
    assert "unknown output 'cost'" in refusal(study_file(SMALL + "objective: cost\n"))
    assert "no such file" in refusal(
        study_file(SMALL.replace("both: {extends: tiny", "both: {extends: tni"))
    )
    message = refusal(
        study_file(
            SMALL.replace("{clusters: {mi325x: null", "{horizon_months: 2, clusters: {mi325x: null")
        )
    )
    assert "must have the same months" in message
    assert "unknown key" in refusal(
        study_file(SMALL.replace("mi325x: null,", "mi325x: null, b200: {nodse: 1},"))
    )
    assert "scenarios" in refusal(study_file("name: x\n"))


def test_one_draw_sets_every_field_its_path_reaches(study_file: WriteScenario) -> None:
    prepared = prepare(study_file())
    values = np.array([2.0, 30000.0, 0.1, 1.1, 0.9])
    for which, base in enumerate(prepared.scenarios):
        scenario, factors = changed(base, which, prepared.inputs, values)
        assert scenario.workloads["chat"].requests_per_s == 10.0
        assert scenario.clusters["h200"].accelerator_price_usd == 30000.0
        assert scenario.site.electricity_usd_per_kwh == 0.1
        assert factors == {
            ("H200", "vllm", "llama-3.1-8b"): 1.1,
            ("MI325X", "vllm", "llama-3.1-8b"): 0.9,
        }
    assert (
        prepared.scenarios[0].scenario.workloads["chat"].requests_per_s == 5.0
    )  # what was stated stays


def test_whole_numbers_stay_whole_and_lists_are_reached(study_file: WriteScenario) -> None:
    text = with_input("clusters.*.nodes: {kind: uniform, low: 0.5, high: 1.5, times_stated: true}")
    prepared = prepare(study_file(text))
    scenario, _ = changed(
        prepared.scenarios[0], 0, prepared.inputs, np.array([1.2, 1, 30000, 0.1, 1, 1])
    )
    assert (scenario.clusters["h200"].nodes, scenario.clusters["mi325x"].nodes) == (5, 4)


BY_YEAR = "{extends: tiny.yaml, set: {workloads: {chat: {growth: {kind: by-year, per_year: {2026: 0.6, 2027: 0.4}}}}}}"


@pytest.mark.parametrize(
    ("path", "rates"),
    [("per_year.2027", [0.6, 0.8]), ("per_year", [1.2, 0.8]), ("per_year.*", [1.2, 0.8])],
)
def test_growth_of_one_year_or_of_all_is_drawn(
    study_file: WriteScenario, path: str, rates: list[float]
) -> None:
    line = f"workloads.*.growth.{path}: {{kind: pert, low: 0.4, mode: 1.0, high: 2.5, times_stated: true}}"
    text = with_input(line).replace("{extends: tiny.yaml}", BY_YEAR)
    prepared = prepare(study_file(text))
    scenario, _ = changed(
        prepared.scenarios[0], 0, prepared.inputs, np.array([2.0, 1, 30000, 0.1, 1, 1])
    )
    growth = scenario.workloads["chat"].growth
    assert isinstance(growth, GrowthByYear)
    assert list(growth.per_year.values()) == pytest.approx(rates)


def test_a_prior_takes_its_field_range_and_its_percentiles(study_file: WriteScenario) -> None:
    prepared = prepare(study_file(with_input("site.pue_ratio: {prior: pue_new_colo}")))
    drawn = prepared.inputs.drawn(
        np.stack([[u] * len(prepared.inputs) for u in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6)])
    )
    assert drawn[1:4, 0] == pytest.approx([1.2, 1.3, 1.4])
    assert drawn[0, 0] >= 1.0
    assert drawn[4, 0] <= 3.0


def test_a_prior_can_be_a_factor_on_what_is_stated(study_file: WriteScenario) -> None:
    line = "site.colocation_usd_per_kw_month: {prior: electricity_price, times_stated: true}"
    prepared = prepare(study_file(with_input(line)))
    drawn = prepared.inputs.drawn(np.full((1, len(prepared.inputs)), 0.9))
    assert drawn[0, 0] == pytest.approx(0.13 / 0.075)


IMPOSSIBLE = "workloads.chat.slo.ttft_s=0.0001"


@pytest.mark.parametrize("arguments", [("montecarlo",), ("sensitivity",)])
def test_a_scenario_that_cannot_be_planned_is_one_error_and_nothing_is_written(
    study_file: WriteScenario, tmp_path: Path, planner: Planner, arguments: tuple[str, ...]
) -> None:
    path = study_file()
    out = tmp_path / "out"
    told = planner(arguments[0], path, *arguments[1:], "-n", 8, "--out", out, "--set", IMPOSSIBLE)
    told.refused(
        "workloads.chat: no cluster can serve it",
        "meets 0.0001 s",
        "(scenario both)",
        "(scenario nvidia)",
    )
    assert not out.exists()


def test_one_scenario_that_cannot_be_planned_is_told_beside_bad_inputs(
    study_file: WriteScenario,
) -> None:
    text = with_input("site.pue_ratio: {prior: nothing}").replace(
        "h200: {nodes: 6}", "h200: {tensor_parallel: 3}"
    )
    message = refusal(study_file(text))
    assert "unknown prior 'nothing'" in message
    assert "not on 3 (scenario nvidia)" in message
    assert "(scenario both)" not in message


def test_a_study_all_of_whose_runs_fail_ends_with_their_reason(
    study_file: WriteScenario, tmp_path: Path, planner: Planner
) -> None:
    path = study_file(
        with_input("workloads.chat.slo.ttft_s: {kind: discrete, values: [0.0001, 0.0002]}")
    )
    options = ("-n", 4, "--workers", 1, "--out", tmp_path / "out")
    told = planner("montecarlo", path, *options)
    assert told.code == 1
    assert "every run failed; the first error: ScenarioError: " in told.err
    assert "no cluster can serve it" in told.err
    assert (tmp_path / "out" / "samples.csv").exists()


def test_an_interval_that_stays_too_wide_is_told(
    study_file: WriteScenario, tmp_path: Path, planner: Planner
) -> None:
    options = ("-n", 16, "--workers", 1, "--out", tmp_path / "out")
    told = planner("montecarlo", study_file(), *options, "--until", "0.001%")
    assert told.code == 0
    assert "the mean ±" in told.err
    assert (
        "%, to be ±0.00%, after 16 replications; for a narrower interval add --resume and a larger -n"
        in told.err
    )
