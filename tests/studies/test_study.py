from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planner.answers.run_summary import key_figures
from planner.answers.study_screen import study_text
from planner.answers.study_summary import study_summary
from planner.files import MANIFEST
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.scenario.study import load_study
from planner.studies.inputs import UncertainInputs, changed, stated
from planner.studies.prepare import prepare
from tests.conftest import ROOT, WriteScenario
from tests.studies.conftest import run_study


def test_a_notebook_runs_and_extends_a_study(study_file: WriteScenario, tmp_path: Path) -> None:
    short = run_study(study_file(), 8, tmp_path / "out")
    cost = short.output("cost_usd")
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["replications"] == 8
    longer = run_study(study_file(), 24, tmp_path / "out")
    assert (short.rows, longer.rows) == (8, 24)
    assert longer.output("cost_usd").shape == (24, 2)
    assert np.array_equal(longer.output("cost_usd")[:8], cost)
    assert np.unique(longer.input("site.electricity_usd_per_kwh")).size == 24
    assert {row.statistic for row in longer.statistics()} >= {"mean", "p5", "p95", "cvar95"}
    months = [
        month
        for scenario, output, month, *_ in longer.bands()
        if (scenario, output) == ("both", "spend_usd")
    ]
    assert months == ["2026-01", "2026-02", "2026-03"]
    for *_, p5, p10, p50, p90, p95, _ in longer.bands():
        assert p5 <= p10 <= p50 <= p90 <= p95


def test_a_study_that_starts_within_a_month_has_a_month_more(
    study_file: WriteScenario, tmp_path: Path
) -> None:
    finished = run_study(study_file(), 8, tmp_path / "out", ["start=2026-01-15"])
    assert len({month for _, _, month, *_ in finished.bands()}) == 4


@pytest.fixture(scope="module")
def shipped() -> Path:
    return ROOT / "scenarios" / "mixed-fleet-study.yaml"


def test_the_fleets_of_the_shipped_study_serve_about_alike(shipped: Path) -> None:
    _, scenarios = load_study(shipped)
    for name, scenario in scenarios.items():
        fleet = key_figures(simulate(scenario, seed=1)).fleet
        assert (fleet.slo_attainment_fraction or 0.0) > 0.995, name


def test_the_shipped_study_is_sound(shipped: Path) -> None:
    prepared = prepare(shipped)
    assert prepared.names == ("mixed", "half-b200", "all-b200", "all-h200", "all-mi325x")
    assert (
        len(prepared.inputs) == 28
    )  # 17 stated, and the throughput errors of pairs, models and parts: a cluster has one engine
    reached = {
        found.name: [len(paths) for paths in found.targets]
        for found in prepared.inputs.entries
        if found.targets
    }
    assert reached["clusters.h200-*.accelerator_price_usd"] == [0, 0, 0, 2, 0]
    assert reached["clusters.mi325x*.resale_multiplier"] == [1, 1, 0, 0, 2]
    assert reached["finance.resale_multiplier"] == [1, 1, 1, 1, 1]
    assert reached["workloads.*.requests_per_s"] == [4, 4, 4, 4, 4]


def test_a_draw_that_varies_nothing_is_the_scenario_as_loaded() -> None:
    """What the catalogue fills in is there too: figures of vendors, and the longest of lengths stated as quantiles."""
    lengths = (
        "workloads.chat.lengths.input={mean: null, p95: null, quantiles: {0.5: 500, 0.9: 4000}}"
    )
    scenario = load_scenario(ROOT / "scenarios" / "mixed-fleet.yaml", [lengths])
    nothing = UncertainInputs(entries=(), mixing=None)
    drawn, _ = changed(stated(scenario.name, scenario), 0, nothing, np.zeros(0))
    assert drawn.model_dump() == scenario.model_dump()
    assert drawn.software.rollback_impossible_fraction["amd"] > 0.0


def test_the_share_of_replications_that_gain_is_stated_of_what_sells(
    study_file: WriteScenario, tmp_path: Path
) -> None:
    """A list price drawn around one at which some draws gain and some lose; one plan sells nothing."""
    text = """\
name: gains
scenarios:
  sells: {extends: tiny.yaml, set: {workloads: {chat: {requests_per_s: 900, token_price: SOLD}}}}
  sells-nothing: {extends: tiny.yaml}
uncertain:
  finance.token_price_change_per_year: {prior: token_price_change}
scramblings: 4
"""
    sold = "{input_usd_per_million_tokens: 0.075, output_usd_per_million_tokens: 0.22}"
    out = tmp_path / "out"
    finished = run_study(study_file(text.replace("SOLD", sold)), 64, out, ["horizon_months=24"])
    npv_usd = finished.by_scenario("npv_usd")[0]
    gained = float((npv_usd > 0).mean())
    assert 0.1 < gained < 0.9
    shares = [row for row in finished.statistics() if row.statistic == "above_zero"]
    assert [(row.scenario, row.output) for row in shares] == [("sells", "npv_usd")]
    assert shares[0].estimate.value == pytest.approx(gained)
    summary = study_summary(finished)
    assert f"P(NPV > 0): sells {gained:.0%}" in study_text(summary)
    assert f"P(NPV &gt; 0): sells {gained:.0%}" in (out / "report.html").read_text()
    # The prior's ends: one draw in ten below each, and none beyond its limits.
    drawn = finished.input("finance.token_price_change_per_year")
    assert np.percentile(drawn, [10, 50, 90]) == pytest.approx([-0.58, 0.0, 0.17], abs=0.06)
    assert -1 < drawn.min() < drawn.max() < 1
