"""A workload whose prompts alone miss the SLO target: no surface says that capacity is short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.answers.run_summary import plan_verdict
from planner.run.simulate import simulate
from planner.run.slo_misses import long_prompts, without_long_prompts
from planner.scenario.loading import load_scenario
from planner.studies.remedy import NoRemedy, find_remedy
from planner.studies.run_out import missed_without_orders

ATTAINMENT = 0.98
LONG: dict[str, Any] = {
    "name": "long", "start": "2026-01-01", "horizon_months": 3,
    "workloads": {
        "docs": {"model": "llama-3.1-8b", "requests_per_s": 5, "lengths": {"input": {"mean": 4000, "p95": 15000},
                 "output": {"mean": 100}}, "slo": {"ttft_s": 0.15, "tpot_s": 0.1}},
    },
    "clusters": {"h200": {"accelerator": "H200", "nodes": 4}},
    "site": {"outages_per_year": 0},
    "slo_target": {"attainment": ATTAINMENT, "per": "month", "scope": "workload", "confidence": 0.9},
}  # fmt: skip
SHORT = {"chat": {"preset": "chat", "model": "llama-3.1-8b", "requests_per_s": 300,
                  "growth": {"kind": "compound", "per_year": 100}}}  # fmt: skip


def long_scenario(*overrides: str, more: dict[str, Any] | None = None) -> Any:
    content = LONG | {"workloads": LONG["workloads"] | (more or {})}
    return load_scenario(content, overrides)


def test_the_share_is_what_is_late_with_ten_times_the_nodes_and_the_objective_named_mends_it() -> (
    None
):
    (prompts,) = long_prompts(simulate(long_scenario()))
    many = simulate(long_scenario("clusters.h200.nodes=40"))
    worst = many.slo_result().worst
    assert worst is not None
    assert not many.slo_result().is_met
    assert prompts.missed_fraction == pytest.approx(1.0 - worst.slo_attainment_fraction, abs=2e-4)
    assert (prompts.workload, prompts.cluster, prompts.ttft_s) == ("docs", "h200", 0.15)
    verdict = plan_verdict(simulate(long_scenario()))
    assert verdict.long_prompts is not None
    sufficient_s = verdict.long_prompts[0].sufficient_ttft_s
    mended = simulate(long_scenario(f"workloads.docs.slo.ttft_s={sufficient_s}"))
    assert mended.slo_result().is_met
    assert long_prompts(mended) == ()


def test_screen_report_and_memo_name_the_workload_and_never_capacity(tmp_path: Path) -> None:
    answer = api.run({**LONG}, tmp_path / "run", replications=19)
    text = " ".join(answer.text().split())
    needs = "docs needs slo.ttft_s of "
    assert f"NEXT nothing on order; {needs}" in text
    assert "or a faster layout" in text
    assert "% of docs prompts take longer than their TTFT objective even on an idle replica" in text
    assert "More nodes of h200 do not help docs:" in text
    api.memo(tmp_path / "run")
    memo = (tmp_path / "run" / "memo.md").read_text()
    report = (tmp_path / "run" / "report.html").read_text()
    assert "More nodes of h200 do not help docs:" in memo
    assert "If late requests of docs are not counted, the base case meets the target" in memo
    assert "More nodes of h200 do not help docs:" in report
    for surface in (text, memo, report):
        assert "capacity needed" not in surface
        assert "Capacity runs out" not in surface
        assert "When capacity runs out" not in surface
        assert "--advise" not in surface.split("## Alternatives")[0]


def test_what_else_misses_is_said_with_its_month_beside_it() -> None:
    """Chat outgrows its nodes within a quarter: from then on more of them are needed, and docs is as it was."""
    result = simulate(long_scenario(more=SHORT))
    otherwise = without_long_prompts(result).first_missed
    assert otherwise is not None
    month = result.plan.months.labels[otherwise.month]
    verdict = plan_verdict(result)
    assert verdict.otherwise_missed_month == month
    assert verdict.first_missed_month is not None
    assert verdict.first_missed_month < month
    # Twice the nodes are room enough for chat, and docs misses as before.
    larger = simulate(long_scenario("clusters.h200.nodes=8", more=SHORT))
    assert without_long_prompts(larger).is_met
    assert not larger.slo_result().is_met


def test_no_nodes_are_sought_and_no_orders_are_blamed() -> None:
    result = simulate(long_scenario())
    remedy = find_remedy(result, 19, lambda _: pytest.fail("nodes were tried"))
    assert isinstance(remedy, NoRemedy)
    assert "prompts of docs take longer than the TTFT objective" in remedy.reason
    later = "{accelerator: H200, nodes: 1, order: {placed: 2026-01-05, lead_weeks: 3}}"
    ordered = simulate(long_scenario(f"clusters.later={later}"))
    assert missed_without_orders(ordered) == ()


def test_a_share_that_leaves_nothing_to_queues_is_the_cause_too_and_a_faster_quote_is_named() -> (
    None
):
    """All but five in a million of what may be late is too long: what queues add to it is no lack of capacity."""
    held = ("slo_target.attainment=0.97015", "workloads.docs.slo.percentile=0.97")
    result = simulate(long_scenario(*held))
    (prompts,) = long_prompts(result)
    assert prompts.missed_fraction < 1.0 - 0.97015
    assert prompts.faster_cluster is None
    assert not result.slo_result().is_met
    quoted = simulate(long_scenario("clusters.quoted={accelerator: GB300, nodes: 0}"))
    (prompts,) = long_prompts(quoted)
    assert (prompts.cluster, prompts.faster_cluster) == ("h200", "quoted")
    # Named truly: routed there first, docs has no such prompts any more.
    first = simulate(
        long_scenario(
            "clusters.quoted={accelerator: GB300, nodes: 4}",
            "routing=preference",
            "workloads.docs.cluster_preference=[quoted, h200]",
        )
    )
    assert long_prompts(first) == ()


def test_a_sizing_says_what_a_run_of_its_answer_says(tmp_path: Path) -> None:
    """It counts capacity alone; where a run of what it buys is MISSED all the same, it says so, and why."""
    content = LONG | {"sizing": {"clusters": {"h200": {"max_nodes": 4}}}}
    answer = api.size(content, tmp_path / "size", replications=4, confirmations=50, workers=1)
    first, *others = answer.summary()["sentences"]["answer"]
    assert "it meets the SLO target" in first
    run = api.run(tmp_path / "size" / "policy.yaml", tmp_path / "run", replications=19)
    status = run.summary()["verdict"]["status"]
    assert status == "MISSED"
    assert f"the SLO verdict is {status}: 0 of " in others[0]
    assert others[1].startswith("More nodes of h200 do not help docs")
    cause, _, _ = others[1].partition(" docs needs")
    assert cause in " ".join(run.text().split())
