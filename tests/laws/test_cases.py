"""Small scenarios, as a user would state them, whose placement once was wrong, with what is right."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from planner import api
from tests.laws.findings import check_law
from tests.laws.laws import longer_horizon, same_hours
from tests.laws.outcomes import Outcome, Runs, lost, outcome_of
from tests.laws.worlds import Nodes, Stream, World, random_world


def stream(name: str, model: str, requests_per_s: float, tokens: tuple[int, int]) -> Stream:
    """Return an interactive workload with loose objectives."""
    input_tokens, output_tokens = tokens
    return Stream(
        name=name,
        model=model,
        requests_per_s=requests_per_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        ttft_s=5.0,
        tpot_s=0.1,
    )


def site(accelerator: str, count: int, *workloads: Stream, months: int = 1) -> World:
    """Return a world of one cluster, which fails as a scenario's does by default."""
    cluster = Nodes(name="k", accelerator=accelerator, count=count)
    return World(number=0, months=months, workloads=workloads, clusters=(cluster,), is_quiet=False)


RUNS = Runs()


def two_models(nodes: int, load: float = 1.0) -> Outcome:
    """Return what an 8B and a 70B with long prompts get on some nodes, at a multiple of a load."""
    scale = load * nodes / 80
    small = replace(stream("small", "llama-3.1-8b", 176.4 * scale, (12000, 400)), tpot_s=0.04)
    large = replace(stream("large", "llama-3.1-70b", 79.8 * scale, (12000, 400)), tpot_s=0.06)
    return RUNS.outcome(site("MI325X", nodes, small, large))


def test_two_models_on_one_cluster_are_served_as_well_as_on_two() -> None:
    """16 nodes of the 80 for the small model and 64 for the large one serve 0.946 and 0.876 in time."""
    shares = [served.share for served in two_models(80).workloads.values()]
    assert min(shares) >= 0.876


def test_more_demand_of_two_models_serves_no_fewer_tokens() -> None:
    assert two_models(80, load=5 / 3).tokens >= two_models(80).tokens


def test_a_larger_site_serves_as_many_tokens_per_node_of_two_models() -> None:
    tokens = [two_models(nodes).tokens / nodes for nodes in (8, 16, 80)]
    assert tokens[1] >= 0.98 * tokens[0]
    assert tokens[2] >= 0.98 * tokens[1]


REASON = replace(stream("reason", "deepseek-v3", 70.0, (1200, 300)), ttft_s=2.0, tpot_s=0.04)
CHAT = replace(stream("chat", "llama-3.1-70b", 120.0, (300, 200)), ttft_s=2.0, priority="standard")
EXTRA = replace(stream("extra", "gpt-oss-120b", 0.001, (300, 200)), ttft_s=10.0, tpot_s=0.06)


def test_a_tiny_third_workload_takes_one_replica() -> None:
    result = api.simulate(site("MI355X", 4, REASON, CHAT, EXTRA).document())
    table = result.placement()
    replicas = table["replicas"][table["workload"] == "extra"]
    assert outcome_of(result).workloads["extra"].share > 0.99
    assert replicas.max() <= 1.0


def test_a_tiny_third_workload_costs_the_others_no_more_than_the_node_it_is_on() -> None:
    three = RUNS.outcome(site("MI355X", 4, REASON, CHAT, EXTRA))
    two_on_fewer = RUNS.outcome(site("MI355X", 3, REASON, CHAT))
    assert lost(two_on_fewer, three) == 0.0


LONG = replace(stream("long", "llama-3.1-405b", 0.2, (12000, 400)), ttft_s=10.0)
NIGHTLY = Stream(
    name="nightly",
    model="llama-3.1-70b",
    requests_per_s=0.0005,
    input_tokens=1200,
    output_tokens=300,
    ttft_s=60.0,
    tpot_s=0.2,
    priority="deferrable",
    window_h=24.0,
)


@pytest.mark.parametrize(
    "workloads",
    [
        pytest.param([LONG], id="alone"),
        pytest.param([LONG, NIGHTLY], id="beside"),
    ],
)
def test_what_is_urgent_is_served_as_well_beside_a_batch_that_does_not_fit(
    workloads: list[Stream],
) -> None:
    outcome = RUNS.outcome(site("B200", 1, *workloads))
    assert outcome.workloads["long"].share >= 1.0 - 0.205


def test_growth_dated_after_the_horizon_changes_nothing() -> None:
    chat = stream("chat", "deepseek-v3", 3.0, (1200, 300))
    other = replace(stream("other", "qwen3-32b", 5.0, (1200, 300)), ttft_s=2.0)
    grown = replace(chat, step=(datetime.date(2029, 2, 1), 50.0))
    flat = RUNS.outcome(site("H200", 12, chat, other, months=2))
    later = RUNS.outcome(site("H200", 12, grown, other, months=2))
    longer = RUNS.outcome(site("H200", 12, chat, other, months=14))
    assert same_hours()(flat, later) == 0.0
    assert same_hours()(flat, longer) == 0.0
    assert later.energy_kwh == flat.energy_kwh


def test_a_month_that_is_served_in_full_is_placed_alike_beside_one_that_is_short() -> None:
    """What rounding left of its needs took a replica, if another month of the horizon had to be levelled."""
    change = longer_horizon(random_world(1, 15))
    assert change.reference is not None
    shorter = RUNS.outcome(change.reference)
    assert change.expectation(shorter, RUNS.outcome(change.world)) == 0.0


@pytest.mark.parametrize(
    ("law", "number"),
    [
        pytest.param("more-cache", 12, id="hours lent what the target needed"),
        pytest.param("partition", 6, id="a pool had the sizes of its largest workload alone"),
        pytest.param("reordered", 44, id="workloads alike but for their rate had the file's order"),
        pytest.param("truncated", 52, id="a tier rounded otherwise before its second cluster came"),
    ],
)
def test_worlds_that_broke_a_law_keep_it(law: str, number: int) -> None:
    assert check_law(law, random_world(1, number), Runs()) is None
