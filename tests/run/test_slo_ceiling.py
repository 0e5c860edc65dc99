"""What no purchase mends: site outages and prompts too long, against closed forms and against ten times the nodes."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
import yaml

import planner
from planner.answers.sentences import past_mending_lines
from planner.answers.verdicts import PlanVerdict
from planner.engine import driver
from planner.engine.log import ChangeLog, SiteEvent
from planner.engine.processes import Steps
from planner.errors import CapacityError
from planner.plan.attainment import CEILINGS, Verdict, past_mending
from planner.run.simulate import RunResult, simulate
from planner.run.slo_misses import _outgrown, slo_ceilings
from planner.scenario.loading import load_scenario
from planner.sizing.evaluate import Evaluator
from planner.sizing.policy import Policy
from planner.sizing.size import trial_of
from tests.engine.plans import make_plan, workload_plan

STEADY = """\
name: steady
start: 2026-01-01
horizon_months: 3
workloads:
  chat:
    model: llama-3.1-8b
    requests_per_s: 5
    lengths: {input: {mean: 500}, output: {mean: 100}}
    load_profile: {peak_to_mean: 1.0, weekend_fraction: 1.0}
    noise: {sigma: 0}
    growth: {kind: flat}
clusters:
  h200: {accelerator: H200, nodes: 4}
site: {outages_per_year: 0}
slo_target: {attainment: 0.98, per: month, scope: workload, confidence: 0.5}
"""
JANUARY_H = 744
HORIZON_H = 2160
HOSTED = "clusters.hosted={accelerator: H200, nodes: 1, contract: {kind: on-demand, usd_per_accelerator_h: 4}}"
LONG_PROMPTS = (
    "workloads.chat.lengths.input={mean: 4000, p95: 15000}",
    "workloads.chat.slo={ttft_s: 0.15, tpot_s: 0.1}",
)
OFTEN = ("site.outages_per_year=6", "site.outage_h=8")


def run(*overrides: str, replication: int = 0) -> RunResult:
    return simulate(
        load_scenario(yaml.safe_load(STEADY), overrides), seed=1, replication=replication
    )


def ceilings(*overrides: str) -> tuple[float, float]:
    first, both = slo_ceilings(run(*overrides)).values()
    return first, both


@pytest.fixture
def dark(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let the site be dark once, in January, for so many hours."""

    def once(env: simpy.Environment, _plan: object, log: ChangeLog, _streams: object) -> Steps:
        yield env.timeout(100.25)
        log.site.append(SiteEvent(100.25, 116.0))

    monkeypatch.setattr(driver, "site_outages", once)
    return 15.75


def test_a_dark_site_leaves_a_month_of_steady_traffic_what_is_lit_of_it(dark: float) -> None:
    result = run()
    outages, both = slo_ceilings(result).values()
    assert outages == pytest.approx(1.0 - dark / JANUARY_H, rel=1e-12)
    tables = result.plan.no_burst_tables
    assert tables is not None
    assert both == pytest.approx(outages * (1.0 - tables[0, 0, 0, 0]), rel=1e-12)
    assert ceilings("slo_target.per=horizon")[0] == pytest.approx(1.0 - dark / HORIZON_H, rel=1e-12)
    assert run().slo_result().worst.slo_attainment_fraction <= both + 1e-12  # type: ignore[union-attr]


def test_what_a_provider_serves_what_waits_and_what_is_rented_is_not_lost_to_the_dark(
    dark: float,
) -> None:
    assert dark > 0.0
    assert ceilings(HOSTED)[0] == 1.0
    assert ceilings("workloads.chat.priority=deferrable")[0] == 1.0
    at_once = "accelerators_per_instance: 1, available_fraction: 1, startup_h: 0"
    burst = f"finance.burst_rental={{usd_per_accelerator_h: 4, most_accelerators: %g, {at_once}}}"
    assert ceilings(burst % 1000)[0] == pytest.approx(1.0, abs=1e-12)
    few = "workloads.chat.requests_per_s=500"
    assert 1.0 - dark / JANUARY_H < ceilings(burst % 4, few)[0] < 1.0
    started = (burst % 1000).replace("startup_h: 0", "startup_h: 3")
    assert ceilings(started)[0] == pytest.approx(1.0 - 2.75 / JANUARY_H)  # from 100.25 until 103


def test_of_all_workloads_together_a_site_takes_the_share_of_those_that_cannot_wait(
    dark: float,
) -> None:
    """Two alike, one of which waits: half of what comes in the dark is lost."""
    chat = yaml.safe_load(STEADY)["workloads"]["chat"]
    more = f"workloads.later={yaml.safe_dump({**chat, 'priority': 'deferrable'}, default_flow_style=True, width=999)}"
    assert ceilings(more)[0] == pytest.approx(1.0 - dark / JANUARY_H, rel=1e-12)
    assert ceilings(more, "slo_target.scope=fleet")[0] == pytest.approx(
        1.0 - 0.5 * dark / JANUARY_H, rel=1e-4
    )


def test_prompts_too_long_are_the_cause_only_where_outages_are_not() -> None:
    outages, both = ceilings(*LONG_PROMPTS)
    assert outages == 1.0
    assert both < 0.98
    by_cause = np.array([[1.0, 0.97, 1.0, np.nan], [0.99, 0.96, 0.979, np.nan]])
    assert past_mending(by_cause, 0.98) == {"site_outages": 1, "prompts_too_long": 1}
    assert past_mending(np.full((2, 3), 0.98 - 1e-7), 0.98) == {
        "site_outages": 0,
        "prompts_too_long": 0,
    }


def test_months_in_which_a_workload_has_outgrown_its_objective_are_past_mending() -> None:
    lengths = "{input: {mean: 1200, p95: 4000}, output: {mean: 300, p95: 900}, growth_per_year: 10}"
    slow = (
        "workloads.chat.model=llama-3.1-70b",
        "workloads.chat.slo={ttft_s: 0.1, tpot_s: 0.05}",
        "horizon_months=9",
    )
    grown = run(*slow, f"workloads.chat.lengths={lengths}")
    assert grown.plan.requests_per_node_h[0, 0, 0] > 0.0
    assert slo_ceilings(grown) == {CEILINGS[0]: 1.0, CEILINGS[1]: pytest.approx(0.0)}
    queued = [
        workload_plan("late", months=2, overdue_share=np.array([0.0, 0.25])),
        workload_plan("chat", months=2),
    ]
    assert _outgrown(make_plan(months=2, workloads=queued)).tolist() == [
        [False, False],
        [True, False],
    ]


@functools.cache
def drawn(nodes: int, replication: int) -> tuple[bool, bool]:
    """Return whether a replication is past mending, and whether it meets its target with so many nodes."""
    result = run(*OFTEN, f"clusters.h200.nodes={nodes}", replication=replication)
    named = past_mending(np.array([*slo_ceilings(result).values()])[:, None], 0.98)
    return bool(sum(named.values())), result.slo_result().is_met


def test_ten_times_the_nodes_mend_every_replication_but_those_that_are_named() -> None:
    small = [drawn(1, replication) for replication in range(24)]
    large = [drawn(10, replication) for replication in range(24)]
    named = [is_past for is_past, _ in small]
    assert [is_past for is_past, _ in large] == named
    assert 3 < sum(named) < 21
    assert [is_met for _, is_met in large] == [not is_past for is_past in named]


def test_failures_and_incidents_are_no_ceiling() -> None:
    worn = run(
        "reliability.failure_multiplier=50",
        "software.incident_multiplier=20",
        "clusters.h200.nodes=1",
    )
    calm = run(
        "reliability.failure_multiplier=0",
        "software.incident_multiplier=0",
        "clusters.h200.nodes=1",
    )
    assert worn.missed_requests().sum() > 2.0 * calm.missed_requests().sum()
    assert slo_ceilings(worn) == slo_ceilings(calm)


def study(tmp_path: Path, rows: int, *overrides: str) -> tuple[str, dict[str, Any]]:
    (tmp_path / "steady.yaml").write_text(STEADY)
    scenarios = "{one: {extends: steady.yaml}, two: {extends: steady.yaml, set: {clusters: {h200: {nodes: 6}}}}}"
    text = f"name: outages\nscenarios: {scenarios}\nuncertain: {{}}\nscramblings: 4\n"
    (tmp_path / "study.yaml").write_text(text)
    answer = planner.study(
        tmp_path / "study.yaml", rows, tmp_path / "out", overrides=overrides, workers=1
    )  # fmt: skip
    return str(answer), answer.summary()


def test_a_study_names_the_replications_that_nothing_mends(tmp_path: Path) -> None:
    said, summary = study(tmp_path, 16, *OFTEN)
    past = [sum(record["past_mending"].values()) for record in summary["verdicts"].values()]
    assert past[0] == past[1] > 0
    line = f"{past[0]} of 16 replications of one, two miss the SLO target whatever is bought: site outages {past[0]}."
    assert line in " ".join(said.split())
    table = (tmp_path / "out" / "slo_target.csv").read_text().splitlines()
    cells = dict(zip(table[0].split(","), table[1].split(","), strict=True))
    assert cells["past_mending_site_outages"] == str(past[0])
    assert cells["past_mending_prompts_too_long"] == "0"
    missed = [
        record["replications"] - record["met_replications"]
        for record in summary["verdicts"].values()
    ]
    assert all(named <= number for named, number in zip(past, missed, strict=True))


def test_a_study_without_outages_says_nothing_of_mending(tmp_path: Path) -> None:
    said, summary = study(tmp_path, 4)
    assert "whatever is bought" not in said
    assert not any(any(record["past_mending"].values()) for record in summary["verdicts"].values())


def test_the_line_counts_each_cause_and_plans_alike_together() -> None:
    both = {"site_outages": 4, "prompts_too_long": 2}
    none = {"site_outages": 0, "prompts_too_long": 0}
    scenario = load_scenario(yaml.safe_load(STEADY))
    verdict = PlanVerdict.of(
        Verdict(50, 64, 0.9), scenario, shortfall_fraction=0.1, first_missed_month=None
    )
    records = {
        name: replace(verdict, past_mending=past)
        for name, past in (
            ("a", both),
            ("b", none),
            ("c", both),
            ("d", {**none, "site_outages": 1}),
        )
    }
    assert past_mending_lines(records) == [
        "6 of 64 replications of a, c miss the SLO target whatever is bought: site outages 4, prompts too long 2.",
        "1 of 64 replications of d misses the SLO target whatever is bought: site outages 1.",
    ]


def sizing(*hosted: str) -> dict[str, Any]:
    content = load_scenario(yaml.safe_load(STEADY), [*OFTEN, *hosted]).document.content
    open_to = {"dates": ["2026-01-01"], "max_nodes": 3}
    return {**content, "sizing": {"clusters": dict.fromkeys(content["clusters"], open_to)}}


def test_a_sizing_says_on_how_many_fresh_replications_nothing_helps(tmp_path: Path) -> None:
    answer = planner.size(sizing(), tmp_path / "out", replications=2, confirmations=8, workers=1)
    record = answer.summary()["verdict"]
    past = record["past_mending"]["site_outages"]
    assert 0 < past <= 8
    # They are not held against a capacity that could not help.
    assert record["met_replications"] == 8
    said = f"whatever is bought (site outages {past} of 8; they are left out above)"
    assert said in " ".join(answer.summary()["sentences"]["certainty"])
    assert said in " ".join(str(answer).split())


def test_a_target_that_includes_outages_counts_them(tmp_path: Path) -> None:
    content = sizing("slo_target.include=site-outages", "site.outages_per_year=50")
    with pytest.raises(CapacityError, match="miss the SLO target whatever is bought"):
        planner.size(content, tmp_path / "out", replications=4, confirmations=8, workers=1)


def test_a_provider_that_may_be_chosen_mends_what_a_plan_without_it_misses() -> None:
    scenario = load_scenario(sizing(HOSTED, "slo_target.include=site-outages"))
    evaluator = Evaluator(trial_of(scenario, (), None, "net-present-cost", None))
    names = [purchase.name for purchase in evaluator.trial.choices.purchases]
    nodes = tuple(0 if name.startswith("hosted") else 2 for name in names)
    policy = Policy(purchases=nodes)
    found = [evaluator.outcome(policy, replication) for replication in range(6)]
    assert min(outcome.worst for outcome in found) < 0.98
    assert all(outcome.ceilings[0] == 1.0 for outcome in found)
    assert len(CEILINGS) == found[0].ceilings.size
