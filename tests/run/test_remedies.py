"""What is said to mend a loss does: the scenario is changed as advised, and simulated."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.run import slo_misses as late
from planner.run.simulate import RunResult, simulate
from planner.run.slo_misses import REASONS, lost_requests, worst_reasons
from planner.units import rounded_up
from tests.engine.worlds import QUIET, merged, scenario_of

CHAT = {
    "model": "llama-3.1-70b",
    "requests_per_s": 40.0,
    "tokens": {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}},
    "slo": {"ttft_s": 2.0, "tpot_s": 0.05},
    "noise": {"sigma": 0.0},
}
LONG = {
    "model": "llama-3.1-70b",
    "requests_per_s": 3.8,
    "tokens": {"input": {"mean": 12000, "p95": 39600}, "output": {"mean": 250, "p95": 750}},
    "slo": {"ttft_s": 2.0, "tpot_s": 0.1},
    "noise": {"sigma": 0.0},
}


def world(*changes: dict[str, Any]) -> dict[str, Any]:
    """Chat on eight nodes of H200 for two months, with nothing that happens to them."""
    fleet = {"h200": {"accelerator": "H200", "nodes": 8}, "mi325x": None}
    return merged(
        QUIET, {"horizon_months": 2, "workloads": {"chat": CHAT, "nightly": None}, "clusters": fleet}, *changes
    )


def advice(result: RunResult, reason: str, workload: str = "chat") -> dict[str, Any]:
    """What takes most of a workload for a reason, and what would mend it."""
    worst = worst_reasons(result, most=len(REASONS) * len(result.plan.workloads))
    return next(row for row in worst if (row["reason"], row["workload"]) == (reason, workload))


def missed(result: RunResult, told: dict[str, Any]) -> float:
    """Share of the workload's requests that were not in time in the month that was worst for the reason."""
    month = result.plan.months.labels.index(told["worst_month"])
    w = [load.name for load in result.plan.workloads].index(told["workload"])
    return float(lost_requests(result).fraction[:, month, w].sum())


def carried_out(stated: dict[str, Any], told: dict[str, Any]) -> RunResult:
    """The run with what was said to mend it."""
    amount, mend = told["mend_amount"], told["mend"]
    if "power_cap_kw" in mend:
        return simulate(
            scenario_of(merged(stated, {"site": {"power_cap_kw": stated["site"]["power_cap_kw"] + amount}}))
        )
    if "ttft_s" in mend:
        slo = {"ttft_s": rounded_up(amount, 3)}
        return simulate(scenario_of(merged(stated, {"workloads": {told["workload"]: {"slo": slo}}})))
    name = re.search(r"nodes of ([\w-]+)", mend)[1]  # type: ignore[index]
    cluster = stated["clusters"][name]
    more = {name: {"nodes": cluster["nodes"] + math.ceil(amount)}}
    if "in service in that month" in mend:
        more = {"sooner": {**cluster, "online": None, "nodes": math.ceil(amount)}}
    return simulate(scenario_of(merged(stated, {"clusters": more})))


LATER = {"clusters": {"h200": {"online": "2026-02-01"}}}
BURSTS = {"workloads": {"chat": {"burst_index_of_dispersion": 200.0, "requests_per_s": 120.0}}}
CAP = {"site": {"power_cap_kw": 45.0}, "workloads": {"chat": {"requests_per_s": 120.0}}}
FAILING = {"reliability": {"failure_multiplier": 8.0}, "workloads": {"chat": {"requests_per_s": 120.0}}}
SLOW = {"software": {"incident_multiplier": 20.0}, "workloads": {"chat": {"requests_per_s": 110.0}}}
QUEUES = {"workloads": {"chat": {"burst_index_of_dispersion": 1.0, "requests_per_s": 120.0}}}
STRICT = {"workloads": {"chat": {**LONG, "slo": {"ttft_s": 0.5, "tpot_s": 0.1}}}}


@pytest.mark.parametrize(
    ("changes", "reason", "share"),
    [
        ({"clusters": {"h200": {"nodes": 1}}}, "no_capacity", 0.9),
        (LATER, "no_capacity", 0.9),
        (BURSTS, "bursts", 0.5),
        (CAP, "power_cap", 0.9),
        (FAILING, "outage", 0.9),
        (SLOW, "incident", 0.9),
        (QUEUES, "queueing", 0.5),
        (STRICT, "too_long", 0.5),
    ],
    ids=["no_capacity", "not there yet", "bursts", "power_cap", "outage", "incident", "queueing", "too_long"],
)
def test_what_is_said_to_mend_a_loss_does(changes: dict[str, Any], reason: str, share: float) -> None:
    stated = world(changes)
    result = simulate(scenario_of(stated))
    told = advice(result, reason)
    assert told["mend_amount"] is not None
    assert told["worst_lost_fraction"] > 1e-3
    less = missed(result, told) - missed(carried_out(stated, told), told)
    assert less >= 0.85 * share * told["worst_lost_fraction"]


def test_nodes_of_a_cluster_that_comes_later_are_asked_for_in_time() -> None:
    """More of a cluster that is delivered in February serve nobody in January."""
    told = advice(simulate(scenario_of(world(LATER))), "no_capacity")
    assert (told["worst_month"], told["worst_lost_fraction"]) == ("2026-01", 1.0)
    assert told["mend"] == "nodes of h200 in service in that month would carry it"


def test_who_is_served_later_needs_what_those_before_it_lack_too() -> None:
    """On two nodes long prompts go before chat and are short of machines themselves: one node more is all theirs."""
    second = {"workloads": {"chat": {"priority": "standard", "requests_per_s": 5.0}, "long": LONG}}
    stated = world(second, {"clusters": {"h200": {"nodes": 2}}})
    result = simulate(scenario_of(stated))
    told = advice(result, "no_capacity")
    own = told["worst_lost_fraction"] * 2.0 * 5.0 * 3600 / result.plan.requests_per_node_h[0, 0, 0]
    assert told["mend_amount"] > 2.0 * own + 1.0
    less = missed(result, told) - missed(carried_out(stated, told), told)
    assert less >= 0.75 * told["worst_lost_fraction"]


def test_what_mends_nothing_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the formula wrong, so that what it names changes nothing, nothing would be named."""
    result = simulate(scenario_of(world(BURSTS)))
    assert advice(result, "bursts")["mend_amount"] is not None
    monkeypatch.setattr(late, "_missed_with", lambda result, *_: result.missed_requests())
    assert advice(result, "bursts")["mend_amount"] is None


def test_where_too_little_is_worked_out_more_is_tried() -> None:
    result = simulate(
        scenario_of(world({"clusters": {"h200": {"nodes": 1}}, "workloads": {"chat": {"requests_per_s": 90.0}}}))
    )
    lost, r = lost_requests(result), [*REASONS].index("no_capacity")
    place = (result.plan.months.labels.index(advice(result, "no_capacity")["worst_month"]), 0)
    enough = lost.mend_amount[r, place[0], 0]
    assert late._enough(result, lost, r, *place) == enough > 4.0

    def told(share: float) -> float | None:
        short = lost.mends[r][0]._replace(amount=lost.mend_amount[r, :, 0] / share)
        mends = tuple((short,) if at == r else of for at, of in enumerate(lost.mends))
        return late._enough(result, replace(lost, mends=mends), r, *place)

    assert told(5.0) in (math.ceil(1.5 * enough / 5.0), math.ceil(2.0 * enough / 5.0))
    assert told(20.0) is None


@pytest.mark.parametrize(
    ("number", "up"),
    [(1.5251, 1.53), (1.53, 1.53), (0.09999, 0.1), (5.521, 5.53), (9.995, 10.0), (120.1, 121.0), (0.0, 0.0)],
)
def test_what_is_said_to_be_enough_is_never_rounded_down(number: float, up: float) -> None:
    assert rounded_up(number, 3) == pytest.approx(up, rel=1e-12)


def test_the_cluster_that_serves_best_is_one_that_is_there() -> None:
    """B200 does more by the node, and comes in February; of two that come then it is the better in January too."""
    later = {"b200": {"accelerator": "B200", "nodes": 4, "online": "2026-02-01"}}
    for h200, best in ({}, [0, 1]), ({"online": "2026-02-01"}, [1, 1]):
        result = simulate(scenario_of(world({"clusters": {**later, "h200": h200}})))
        assert [cluster.name for cluster in result.plan.clusters] == ["h200", "b200"]
        assert late._Remedies(result, 0).best.tolist() == best


def test_nodes_are_added_to_a_cluster_of_one() -> None:
    result = simulate(scenario_of(world({"clusters": {"h200": {"nodes": 1}}})))
    remedy = late.Remedy(np.array([2.0, 2.0]), ("", ""), "nodes", np.array([0, 0]))
    scenario, more = late._changed(result, remedy, month=1, w=0, amount=2.0)
    assert scenario.clusters["h200"].nodes == 3
    assert more is not None
    assert {float(nodes.min()) for nodes in more} == {float(nodes.max()) for nodes in more} == {2.0}


def test_nodes_of_a_cluster_that_is_not_there_are_added_in_the_month_alone() -> None:
    """January has 744 hours, whatever the windows."""
    result = simulate(scenario_of(world(LATER)))
    remedy = late.Remedy(np.array([2.0, 2.0]), ("", ""), "nodes", np.array([0, 0]))
    scenario, more = late._changed(result, remedy, month=0, w=0, amount=2.0)
    assert scenario is result.scenario
    assert more is not None
    added = np.concatenate(more, axis=1)[0]
    assert (added[:744] == 2.0).all()
    assert not added[744:].any()


def test_a_mend_is_tried_at_the_sizes_that_the_mended_plan_knows() -> None:
    """One node that rules enlarge sustains less alone than among many; with enough from the start no size differs."""
    rule = {"when": "utilisation_above", "threshold_fraction": 0.9, "months": 1, "cluster": "h200", "nodes": 1}
    grows = {"clusters": {"h200": {"nodes": 1}}, "horizon_months": 4, "expansion": {"rules": [rule]},
             "workloads": {"chat": {"requests_per_s": 400.0}}}  # fmt: skip
    result = simulate(scenario_of(world(grows)))
    assert 0 in result.plan.sizes
    told = advice(result, "no_capacity")
    assert told["mend_amount"] > 8
    more = {"clusters": {"h200": {"nodes": 1 + math.ceil(told["mend_amount"])}}}
    assert 0 not in simulate(scenario_of(world(merged(grows, more)))).plan.sizes
