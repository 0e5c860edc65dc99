"""What ``--advise`` names is run: carried out it meets the SLO target, and one node fewer does not."""

from __future__ import annotations

from typing import Any

import pytest

from planner.finance.accounting.measures import measures
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.studies.remedy import NoRemedy, Remedy, find_remedy
from tests.conftest import Planner, WriteScenario

SHORT: dict[str, Any] = {
    "name": "short", "start": "2026-01-01", "horizon_months": 3,
    "workloads": {
        "chat": {"model": "llama-3.1-70b", "requests_per_s": 60, "growth": {"kind": "compound", "per_year": 3.0},
                 "lengths": {"input": {"mean": 1200}, "output": {"mean": 300}}, "slo": {"ttft_s": 2.0, "tpot_s": 0.1}},
    },
    "clusters": {
        "sold": {"accelerator": "MI325X", "nodes": 1, "retire": "2026-02-01"},
        "h200": {"accelerator": "H200", "nodes": 1},
        "b200": {"accelerator": "B200", "nodes": 1, "accelerator_price_usd": 90_000},
    },
}  # fmt: skip


def scenario(**change: Any) -> Scenario:
    return load_scenario(SHORT | change)


@pytest.mark.parametrize("requests_per_s", [60, 110, 240])
def test_the_nodes_named_meet_the_target_and_one_fewer_misses_it(requests_per_s: int) -> None:
    short = scenario().laid_over([f"workloads.chat.requests_per_s={requests_per_s}"])
    result = simulate(short)
    assert not result.slo_result().is_met
    found = find_remedy(result, 1, lambda _: None)
    assert isinstance(found, Remedy)
    assert found.cluster in ("h200", "b200")  # not what is sold by then
    stated = short.clusters[found.cluster].nodes

    def larger(more: int) -> Any:
        return simulate(short.laid_over([f"clusters.{found.cluster}.nodes={stated + more}"]))

    assert larger(found.nodes).slo_result().is_met
    assert not larger(found.nodes - 1).slo_result().is_met
    before, after = (measures(one)["npv_usd"] for one in (result, larger(found.nodes)))
    assert before is not None
    assert after is not None
    assert found.net_present_cost_usd == pytest.approx(before - after)


def test_all_replications_agree_and_the_cheaper_cluster_is_named() -> None:
    result = simulate(scenario())
    found = find_remedy(result, 5, lambda _: None)
    assert isinstance(found, Remedy)
    assert found.slo_met_replications == found.replications == 5  # nine in ten of five are five
    dear = scenario().laid_over([f"clusters.{found.cluster}.accelerator_price_usd=900000"])
    other = find_remedy(simulate(dear), 1, lambda _: None)
    assert isinstance(other, Remedy)
    assert {found.cluster, other.cluster} == {"h200", "b200"}


def test_what_nodes_cannot_mend_is_left_to_sizing() -> None:
    """Prompts that take longer than their objective on an idle replica are late with any number of nodes."""
    late = scenario(clusters={"h200": SHORT["clusters"]["h200"]}).laid_over(
        ["workloads.chat.slo.ttft_s=0.06"]
    )
    found = find_remedy(simulate(late), 1, lambda _: None)
    assert isinstance(found, NoRemedy)
    words = "prompts of chat take longer than the TTFT objective"
    assert found.reason == f"{words} even on idle replicas"
    dark = scenario(clusters={"h200": SHORT["clusters"]["h200"]}).laid_over(
        ["site.facility_power_cap_kw=12"]
    )
    found = find_remedy(simulate(dark), 1, lambda _: None)
    assert isinstance(found, NoRemedy)
    assert found.reason == "adding nodes to h200 does not meet the target"


OWNED = {"accelerator": "H200", "nodes": 1, "owned": {"bought": "2025-01-01"}}


def test_a_quote_of_no_nodes_is_bought_and_what_is_owned_is_not() -> None:
    """More of owned machines at their book value is nothing that anybody sells."""
    quoted = {"accelerator": "B200", "nodes": 0, "accelerator_price_usd": 900_000}
    short = scenario(clusters={"owned": OWNED, "quoted": quoted})
    found = find_remedy(simulate(short), 1, lambda _: None)
    assert isinstance(found, Remedy)
    assert (found.cluster, found.nodes) == ("quoted", found.nodes_in_all)
    assert found.from_month == "2026-01"
    late = short.laid_over(["clusters.quoted.online=2026-03-20", "slo_target.attainment=0.5"])
    month = late.laid_over(["workloads.chat.growth.per_year=0.1"])
    reason = find_remedy(simulate(month), 1, lambda _: None)
    assert isinstance(reason, NoRemedy)
    assert reason.reason == "no cluster that can be bought is in service in 2026-01"
    alone = find_remedy(simulate(scenario(clusters={"owned": OWNED})), 1, lambda _: None)
    assert isinstance(alone, NoRemedy)
    assert alone.reason.startswith("no cluster that can be bought")


def test_the_nodes_named_are_confirmed_in_replications_that_the_search_has_not_seen() -> None:
    result = simulate(scenario())
    found = find_remedy(result, 5, lambda _: None)
    assert isinstance(found, Remedy)
    enlarged = scenario().laid_over([f"clusters.{found.cluster}.nodes={found.nodes_in_all}"])
    met = [simulate(enlarged, result.seed, place).slo_result().is_met for place in range(5, 10)]
    assert met.count(True) == found.slo_met_replications


def test_a_run_says_it_when_asked(planner: Planner, write: WriteScenario) -> None:
    path = write()
    few = ("run", path, "-n", "1", "--set", "workloads.chat.requests_per_s=8000")
    without_advice = planner(*few, "--out", "a").out.replace("\n  ", " ")
    assert (
        "how many more nodes of one cluster meet the target: planner run --advise."
        in without_advice
    )
    said = planner(*few, "--advise", "--out", "b").out.replace("\n  ", " ")
    assert (
        "the plan meets the target in 19/19 further replications; net present cost rises by $"
        in said
    )
