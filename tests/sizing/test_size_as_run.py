"""Sizing where predictions leave something out: discounts, people who come whole, hours that are rented at a review."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.finance.ledger import Account
from planner.run.measures import present_cost_usd
from planner.scenario.loading import load_scenario
from planner.sizing.choices import Counts, choices_of
from planner.sizing.evaluate import Archive, Clock, SizingOutcome, Workers
from planner.sizing.replications import Surveyed
from planner.sizing.review import policy_search
from planner.sizing.search import Search, carried_on, cheaper_as_run, fullest
from planner.sizing.search import searched as from_limits
from planner.sizing.size import _search, trial_of
from tests.sizing.test_size import CALM, LAYOUT, exhaustive, keeps, toy, ways, whole
from tests.sizing.test_size_review import REVIEW, cost, fixed_search, uncertain
from tests.sizing.test_size_review import keeps as policy_keeps

PROVE = pytest.mark.prove


def searched(content: dict[str, Any]) -> Search:
    """Return a search among all plans and those of each part alone, at its end."""
    trial = trial_of(load_scenario(content), (), None, "net-present-cost", None)
    workers = Workers(trial, 1)
    main = Search(Surveyed(trial, workers, 3), Archive(workers), Clock(), [True] * len(trial.choices.purchases))
    _search(main, {})
    return main


def discounted(from_accelerators: int, fraction: float, **changes: Any) -> dict[str, Any]:
    """Return a problem in which H200 has a discount from a number of accelerators on, and little else costs much."""
    content = toy(("2026-01-01",), 7, horizon_months=24, **changes)
    content["workloads"]["chat"]["growth"]["per_year"] = 0.0
    content["site"] = {**CALM["site"], "colocation_usd_per_kw_month": 0}
    tier = {"from_accelerators": from_accelerators, "discount_fraction": fraction}
    content["clusters"]["h200"] |= {"volume_discounts": [tier], "host_usd_per_node": 10_000}
    return content


@pytest.mark.slow
@pytest.mark.parametrize(
    ("from_accelerators", "fraction", "bought"),
    [(48, 0.5, (6, 0)), pytest.param(48, 0.3, (3, 1), marks=PROVE), pytest.param(56, 0.5, (3, 1), marks=PROVE)],
)
def test_a_discount_counts_from_where_it_holds(from_accelerators: int, fraction: float, bought: Counts) -> None:
    """Six nodes at half the price cost less than four at all of it; at 30% off, or from seven nodes on, they do not.

    Every choice was predicted at the best price: four H200 were the answer each time, 5% and more above the best.
    """
    search = searched(discounted(from_accelerators, fraction))
    assert search.best == bought == exhaustive(search, 7).counts


@pytest.mark.parametrize("contract", [None, {"kind": "finance-lease", "rate_per_year": 0.1, "term_months": 12}])
@pytest.mark.parametrize("is_quoted", [False, pytest.param(True, marks=PROVE)])
def test_what_a_discount_is_worth_is_predicted_to_the_dollar(contract: dict[str, Any] | None, is_quoted: bool) -> None:
    """What a prediction leaves out is the same of two nodes and of three, though a discount begins between them."""
    content = discounted(24, 0.4)
    h200 = content["clusters"]["h200"]
    if is_quoted:
        tiers = h200.pop("volume_discounts")
        h200["quotes"] = [{"name": "offer", "accelerator_price_usd": 30_000, "volume_discounts": tiers}]
    h200["contract"] = contract
    search = searched(content)
    plans = [(count, 0) for count in (2, 3, 4)]
    a_node, as_run = (
        [later - earlier for earlier, later in itertools.pairwise(costs)]
        for costs in (map(search.surveyed.predicted, plans), [whole(search, counts).cost for counts in plans])
    )
    assert a_node[0] - a_node[1] == pytest.approx(as_run[0] - as_run[1], abs=0.02 * abs(as_run[0] - as_run[1]))


@pytest.mark.prove
def test_people_who_come_whole_are_counted() -> None:
    """From 25 MI325X on an engineer is paid, of whom the few nodes that figures were read off had none.

    All MI325X were the answer, at 2.42 million dollars, beside a plan of H200 alone that it told to cost 2.37.
    """
    content = toy(("2026-01-01",), 80, horizon_months=6)
    content["workloads"]["chat"] |= {"requests_per_s": 180, "growth": {"kind": "compound", "per_year": 0.3}}
    content["clusters"]["mi325x"]["accelerator_price_usd"] = 8000
    search = searched(content)
    assert search.best is not None
    answer = whole(search, search.best)
    assert keeps(search, answer)
    others = [whole(search, counts) for counts in ((18, 0), (0, 25), (3, 21), (2, 23), (4, 20))]
    assert answer.cost <= min(plan.cost for plan in others if keeps(search, plan))


def test_a_team_that_is_paid_whatever_is_bought_is_no_cost_of_a_node() -> None:
    """One MI325X beside six H200 takes three engineers: that was the answer, 39% above the seven H200 that do."""
    content = toy(("2026-01-01",), 80, horizon_months=12)
    content["workloads"]["chat"] |= {"requests_per_s": 60, "growth": {"kind": "compound", "per_year": 0.3}}
    content["clusters"]["mi325x"]["accelerator_price_usd"] = 15_000
    content["software"] = {**CALM["software"], "engineers": {"amd": 3, "nvidia": 2}}
    search = searched(content)
    assert search.best == (7, 0)
    # Three engineers at 280,000 dollars a year, from month to month at 10% a year.
    engineers = 3 * 280_000 / 12 * sum(1.1 ** -((month + 0.5) / 12) for month in range(12))
    more = search.surveyed.lumps((7, 1)) - search.surveyed.lumps((7, 0))
    assert more == pytest.approx(engineers, rel=1e-9)


@pytest.mark.parametrize(
    "people",
    [
        {"software": {"engineers_per_800": {"amd": 30, "nvidia": 12}}},
        {"software": {"engineers": 4}},
        {"finance": {"repair_crew_usd_per_year": 150_000}, "reliability": {"repair_crews": 2}},
    ],
)
def test_people_are_predicted_as_the_ledger_has_them(people: dict[str, Any]) -> None:
    content = toy(("2026-01-01", "2026-03-01"), 8, horizon_months=5)
    content |= {key: {**CALM.get(key, {}), **figures} for key, figures in people.items()}
    trial = trial_of(load_scenario(content), (), None, "net-present-cost", None)
    workers = Workers(trial, 1)
    surveyed = Surveyed(trial, workers, 1)
    for counts in ((3, 0, 2, 1), (0, 5, 0, 0), (1, 1, 8, 8)):
        result = workers.subject.simulate(counts, 0)
        accounts = (Account.SOFTWARE_ENGINEERS, Account.OPERATIONS_STAFF)
        others = () if "finance" in people else accounts[:1]
        paid = present_cost_usd(result).sum() - present_cost_usd(result, others or accounts).sum()
        assert surveyed.lumps(counts) == pytest.approx(paid, rel=1e-6, abs=1.0)


def test_where_a_budget_leaves_one_mix_it_is_found() -> None:
    """Three B200 and one MI325X are too few, as one and four are: of what the money buys, two and three alone do."""
    order = {"placed": "2026-01-01", "lead_weeks": 5, "slip_weeks": {"low": 0, "base": 0, "high": 2}}
    content = toy(("2025-11-02",), 4, horizon_months=3, seed=3, reliability={"failure_multiplier": 10})
    shipments = {"deliveries": 2, "delivery_interval_weeks": 2}
    content["clusters"] = {
        "b200": {**LAYOUT, "accelerator": "B200", "nodes": 0, "order": order},
        "mi325x": {**LAYOUT, "accelerator": "MI325X", "nodes": 0, "order": order | shipments},
    }
    content["sizing"] = {
        "clusters": {name: {"dates": ["2025-11-02"], "max_nodes": 4} for name in content["clusters"]},
        "budget_usd": 1.6e6,
    }
    content["slo_target"] = {"per": "horizon"}
    chat = content["workloads"]["chat"] | {"model": "llama-3.1-8b", "requests_per_s": 250}
    content["workloads"] = {
        "chat": chat,
        "new": chat | {"requests_per_s": 125, "model_launch": "2026-02-01"},
        "std": chat | {"requests_per_s": 75, "priority": "standard"},
    }
    del content["software"]
    search = searched(content)
    assert search.best == exhaustive(search, 4).counts == (2, 3)


def test_a_part_of_which_all_that_may_be_bought_just_does_is_no_part_that_cannot() -> None:
    """Five H200 alone meet the SLO target. Where limits leave the relaxation no margin it began no search for them.

    So it was said that no plan of H200 alone keeps it. Where something else has to be bought there is none.
    """
    content = toy(("2026-01-01",), 5)
    content["clusters"]["b200"] = {**LAYOUT, "accelerator": "B200", "nodes": 0}
    content["sizing"]["clusters"] = {name: {"max_nodes": 5} for name in ("h200", "b200")}
    content["clusters"].pop("mi325x")
    trial = trial_of(load_scenario(content), (), None, "net-present-cost", None)
    workers = Workers(trial, 1)
    rival = Search(Surveyed(trial, workers, 3), Archive(workers), Clock(), trial.choices.of_part("H200"), tries=0)
    rival.surveyed.relaxed = lambda *_: None  # type: ignore[method-assign]
    assert rival.run() is None
    assert from_limits(rival, 6) == (0, 5)
    assert set(fullest(trial.choices, [False, True])) == {(0, 5)}
    content["sizing"]["clusters"]["b200"]["min_nodes"] = 1
    assert not list(fullest(choices_of(load_scenario(content)), [False, True]))


def test_a_bound_counts_no_people_that_fewer_nodes_would_not_take() -> None:
    """One engineer does for the five nodes that are there; each had its share of those for all nodes of the survey."""
    content = toy(("2026-01-01",), 4)
    content["clusters"]["old"] = {**LAYOUT, "accelerator": "H200", "nodes": 5, "owned": {"bought": "2024-06-01"}}
    content["software"] = {**CALM["software"], "engineers_per_800": {"amd": 0, "nvidia": 20}}
    search = searched(content)
    assert search.bound <= exhaustive(search, 4).cost


@pytest.mark.prove
def test_a_policy_counts_the_rent_of_hours(tmp_path: Path) -> None:
    """Machines by the hour cost nothing until they work, so that a search which saw no rent took all that it could.

    It divided by a cost of nothing then. A policy may buy the same whatever is seen, so it is never dearer than that.
    """
    content, study = uncertain(tmp_path)
    hourly = {
        **LAYOUT,
        "accelerator": "H200",
        "nodes": 0,
        "contract": {"kind": "on-demand", "usd_per_accelerator_h": 20},
    }
    content["clusters"]["hourly"] = hourly
    content["sizing"]["clusters"]["hourly"] = {"dates": ["2026-01-01"], "max_nodes": 20}
    main = fixed_search(content, study)
    assert main.best is not None
    fixed = cheaper_as_run(main, main.best)
    policy = policy_search(main, fixed, REVIEW, lambda _: True)
    assert policy.best is not None
    assert policy_keeps(policy, policy.best)
    assert cost(policy, policy.best) <= cost(main, fixed)
    assert sum(nodes for nodes in policy.best) < 20
    assert policy.surveyed.predicted(policy.best) == pytest.approx(cost(policy, policy.best), rel=0.06)


def test_where_nothing_is_paid_at_once_the_fewest_nodes_are_taken(tmp_path: Path) -> None:
    """Of what is reserved nothing is capital, so any number costs the same of it, and the gap is one of nothing."""
    content = ways(reserved="{kind: reserved, usd_per_accelerator_h: 2, term_months: 12}")
    answer = planner.size(
        content, tmp_path / "out", objective="capital", replications=2, confirmations=2, workers=1
    ).summary()
    assert answer["capital_usd"] == answer["gap_fraction"] == 0.0
    assert answer["plan"] == "5 × H200 (reserved) 2026-01-01"
    assert answer["purchases"][0]["slo_met_fewer_fraction"] == 0.0


def test_a_step_is_taken_as_often_as_single_steps_would_be() -> None:
    for start, least, step in itertools.product((0, 1, 7, 80), (0, 1, 6, 50), (1, 3)):
        asked: list[int] = []

        def may(counts: Counts, least: int = least, asked: list[int] = asked) -> bool:
            asked.append(counts[1])
            return counts[1] >= least

        single = start
        while single - step >= least:
            single -= step
        assert carried_on((5, start + step, 0), (5, start, 0), may) == (5, single if start >= least else start, 0)
        assert len(asked) <= 2 * max(1, (start // step).bit_length())


@pytest.mark.parametrize(("before", "after"), [((3, 1), (2, 2)), ((3, 1), (3, 1)), ((3, 1), (4, 1))])
def test_only_what_takes_nodes_away_is_carried_on(before: Counts, after: Counts) -> None:
    assert carried_on(before, after, lambda _: pytest.fail("asked")) == after


def test_a_start_that_is_far_too_large_is_soon_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 60 nodes of H200 to the five that do, one node at a time was 55 choices and more."""
    content = toy(("2026-01-01",), 60)
    del content["clusters"]["mi325x"], content["sizing"]["clusters"]["mi325x"]
    trial = trial_of(load_scenario(content), (), None, "net-present-cost", None)
    workers = Workers(trial, 1)
    search = Search(Surveyed(trial, workers, 3), Archive(workers), Clock(), [True])
    tried: set[Counts] = set()
    outcomes = Archive.outcomes

    def noted(archive: Archive, runs: Any) -> list[SizingOutcome]:
        tried.update(counts for counts, _ in runs)
        return outcomes(archive, runs)

    monkeypatch.setattr(Archive, "outcomes", noted)
    assert search.run((60,)) == (5,)
    assert keeps(search, whole(search, (5,)))
    assert not keeps(search, whole(search, (4,)))
    assert len(tried) < 16
