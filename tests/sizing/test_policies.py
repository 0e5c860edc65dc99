"""Policies: orders on a signal, rent and sale, against exhaustive search and against the run of the policy itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import planner
from planner.errors import ScenarioError
from planner.finance.accounting.measures import present_cost_usd, running_factors
from planner.finance.accounts import Account
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.sizing.evaluate import SizingOutcome
from planner.sizing.explain import sensitivity
from planner.sizing.policy import Policy
from planner.sizing.search import Search
from planner.sizing.size import _shortlist
from tests.sizing.toys import (
    bought,
    every_policy,
    keeps,
    ordered,
    ordered_up_to,
    problem,
    solved,
    toy,
    whole,
    written,
)


def whole_run(search: Search, policy: Policy) -> SizingOutcome:
    """Return a policy's outcome in the first replication of the search."""
    return search.archive.outcomes([(policy, 0)])[0]


@pytest.mark.parametrize("limits", [{}, {"it_power_cap_kw": 42.0}, {"budget_usd": 1.4e6}])
def test_the_surrogate_orders_what_the_run_orders(tmp_path: Path, limits: dict[str, float]) -> None:
    """Also where power or budget cut the orders, by the functions of the run."""
    content = ordered(orders="reactive", **limits)
    with problem(content, study=written(content, tmp_path), replications=8) as search:
        policy = bought(search, 2, 0, 0, 0, load=100)
        predicted = search.surrogate.nodes(policy).sum(axis=1)
        evaluator = search.archive.workers.subject
        runs = [evaluator.simulate(policy, replication) for replication in range(8)]
        simulated = [sum(purchase.nodes for purchase in run.run.log.purchases) for run in runs]
        assert np.abs(predicted - simulated).max() <= 1.0
        if limits:
            # What binds in the run binds in the search: four nodes are all that either has.
            assert max(simulated) == predicted.max() == 4
        else:
            assert np.corrcoef(predicted, simulated)[0, 1] > 0.9
            assert predicted.max() == 5  # so that both limits bind above


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_ways_are_compared_at_whatever_probability_is_asked(
    tmp_path: Path, confidence: float
) -> None:
    content = ordered(orders="reactive")
    content["slo_target"] = {**content.get("slo_target", {}), "confidence": confidence}
    with problem(content, study=written(content, tmp_path), replications=8) as search:
        levers = search.levers(rules=True)
        search.confidence = confidence
        policy = bought(search, 4, 0, 0, 0, load=100)
        listed = _shortlist(search, policy, policy, levers, needed=1.0)
        # Fixed purchases stand beside what is ordered on a signal.
        assert {one.orders for one in listed} == {True, False}


def test_a_policy_that_is_to_serve_more_orders_at_a_lower_load(tmp_path: Path) -> None:
    """Where nothing more may be bought by date, the rule alone can serve more."""
    content = ordered(orders="reactive")
    with problem(content, study=written(content, tmp_path), replications=8) as search:
        late = bought(search, 3, 0, 0, 0, load=120)
        search.confidence = search.value(late)[1] + 0.05
        enlarged = search._enlarged(late, (False,) * len(late.purchases))
        assert enlarged is not None
        assert enlarged.purchases == late.purchases
        rule = enlarged.rules[0]
        assert rule is not None
        assert rule.load_percent < 120
        assert search.value(enlarged)[1] >= search.confidence


def test_what_one_part_is_not_allotted_another_is_ordered_for(tmp_path: Path) -> None:
    """One node of each part a quarter: two rules order side by side, as predicted."""
    content = ordered(orders="reactive")
    content["clusters"]["mi325x"] = {**content["clusters"]["h200"], "accelerator": "MI325X"}
    limit = {**content["sizing"]["clusters"]["h200"], "max_nodes_per_date": 1}
    content["sizing"]["clusters"] = {"h200": limit, "mi325x": limit}
    with problem(content, study=written(content, tmp_path), replications=8) as search:
        nodes = [int(purchase.date.year == 2025) for purchase in search.choices.purchases]
        one = bought(search, *nodes, load=80)
        both = ordered_up_to(search, one, 1, 80)
        choices = search.choices
        by_run = np.zeros((8, 2))
        for replication in range(8):
            run = search.archive.workers.subject.simulate(both, replication)
            for purchase in run.run.log.purchases:
                by_run[replication, int("mi325x" in run.plan.clusters[purchase.cluster].name)] += (
                    purchase.nodes
                )
        predicted = search.surrogate.nodes(both)
        is_amd = np.array(["mi325x" in purchase.cluster for purchase in choices.purchases])
        by_part = np.stack(
            [predicted[:, ~is_amd].sum(axis=1), predicted[:, is_amd].sum(axis=1)], axis=1
        )
        assert np.abs(by_part - by_run).max() <= 1.0
        assert (by_run.min(axis=0) > 0).all()
        near = list(search.neighbours(one, 1, search.levers(rules=True)))
        assert both in near  # the second is switched on beside the first
        assert bought(search, *nodes) in near


def test_a_policy_that_orders_on_a_signal_costs_less_and_is_a_scenario_with_its_rule_and_triggers(
    tmp_path: Path,
) -> None:
    """Growth between none and fourfold a year: what is seen by spring tells how much autumn needs."""
    study = written(ordered(orders="reactive"), tmp_path)
    out = tmp_path / "out"
    answer = planner.size(
        tmp_path / "toy.yaml", out, study=study, replications=6, confirmations=4, workers=1
    )
    policy = load_scenario(out / "policy.yaml")
    (rule,) = policy.expansion.rules
    (chosen,) = answer.result.plan.policy.rules
    assert chosen is not None
    assert rule.when == "forecast_load_above"
    assert rule.threshold_fraction == pytest.approx(chosen.load_percent / 100.0)
    assert rule.nodes == chosen.step_nodes
    assert answer.result.as_stated().cost_cents().sum() == simulate(policy).cost_cents().sum()
    triggers = answer.result.explanation.triggers
    assert [trigger.date for trigger in triggers] == [*rule.windows]
    assert all(
        low <= middle <= high for low, middle, high in (trigger.ordered for trigger in triggers)
    )
    said = " ".join(answer.summary()["sentences"]["orders"])
    assert "forecast of peak load passes" in said
    fixed, rule_way = answer.result.ways
    assert "rule" not in fixed.name
    assert "orders by rule" in rule_way.name
    assert rule_way.is_answer
    assert fixed.saved > 0.03 * fixed.cost
    assert (out / "triggers.csv").exists()


def test_an_input_moves_what_a_sized_plan_costs_as_far_as_plans_sized_for_it_do(
    tmp_path: Path,
) -> None:
    """Against every number of nodes tried, with growth stated at its P10 and P90 and nothing left uncertain."""
    content = toy(("2026-01-01",), 8, horizon_months=8)
    del content["sizing"]["clusters"]["mi325x"]
    chat = content["workloads"]["chat"]
    chat |= {"requests_per_s": 25, "growth": {"kind": "by-year", "per_year": {"2026": 1.5}}}
    study = written(content, tmp_path)
    study.write_text(f"{study.read_text()}throughput_error: false\n")
    with problem(content, study=study, replications=32) as search:
        confirmed = search.solve(search.levers())
        assert confirmed is not None
        (swing,) = sensitivity(search, confirmed)
    assert swing.values == pytest.approx((0.3, 2.7), abs=0.01)
    assert swing.known_saves >= 0.0
    assert swing.probabilities[0] > 0.99
    assert swing.probabilities[0] > swing.probabilities[1]
    for growth, cost in zip(swing.values, swing.sized, strict=True):
        chat["growth"]["per_year"]["2026"] = growth
        with problem(content, replications=2) as known:
            plans = [whole(known, policy) for policy in every_policy(known, 8)]
        assert cost == pytest.approx(min(plan.cost for plan in plans if keeps(plan)), rel=0.04)


def test_rent_is_a_choice_and_none_of_it_is_one_too(tmp_path: Path) -> None:
    """At a hundredth of its price rent never makes it cost more; at a hundred times its price none is taken."""
    instances = {}
    for usd in (0.05, 500.0):
        content = ordered(max_rented_accelerators=64)
        rent = {
            "usd_per_accelerator_h": usd,
            "available_fraction": 1.0,
            "startup_h": 0,
            "hold_h": 1,
        }
        content["finance"] = {"burst_rental": rent}
        with problem(content, study=written(content, tmp_path), replications=2) as search:
            fixed = search.solve(search.levers())
            assert fixed is not None
            found = search.solve(search.levers(rent=True), fixed)
            assert found is not None
            instances[usd] = found.rented_instances
            assert whole(search, found).cost <= 1.001 * whole(search, fixed).cost
            rent = search.choices.content(found)["finance"]["burst_rental"]
            assert (rent is None) == (found.rented_instances == 0)
    assert instances[500.0] == 0


def test_what_is_bought_may_be_sold(tmp_path: Path) -> None:
    """A policy that sells what it bought has the day in its scenario, for each date of purchase."""
    content = ordered()
    content["sizing"]["retire"] = {"h200": ["2026-12-01"]}
    written(content, tmp_path)
    with problem(content) as search:
        sold = bought(search, 2, 1, 0, 0, retired=1)
        clusters = search.choices.content(sold)["clusters"]
        assert {str(cluster["retire"]) for cluster in clusters.values()} == {"2026-12-01"}
        assert search.cost(sold) != search.cost(sold.with_retirement(0, 0))
        assert search.value(sold)[1] < 0.5  # nothing serves the last months


@pytest.mark.parametrize(
    "usd", [0.01, *(pytest.param(usd, marks=pytest.mark.prove) for usd in (0.0, 0.001, 1.0))]
)
def test_what_a_miss_costs_is_traded_for_nodes(usd: float) -> None:
    """Every policy of one part on two dates, simulated: the search's own costs no more than the best by a hundredth."""
    content = toy(most=6, horizon_months=3)
    content["clusters"] = {"h200": content["clusters"]["h200"]}
    content["sizing"] = {
        "clusters": {"h200": content["sizing"]["clusters"]["h200"]},
        "miss_cost_usd": usd,
    }
    with problem(content, replications=2) as search:
        least = min(whole(search, policy).cost for policy in every_policy(search, 6))
        made = solved(content, confirmations=6).policy
        assert whole(search, made).cost <= 1.01 * least
        result = search.archive.workers.subject.simulate(made, 0)
        months = result.missed_requests().sum(axis=1) @ running_factors(result.plan)
        outcome = whole_run(search, made)
        assert outcome.overflow_usd == pytest.approx(usd * months)
        assert outcome.cost == pytest.approx(outcome.net_present_cost_usd + outcome.overflow_usd)


def test_dearer_misses_buy_more(tmp_path: Path) -> None:
    content = toy(most=6, horizon_months=3)
    content["clusters"] = {"h200": content["clusters"]["h200"]}
    content["sizing"] = {"clusters": {"h200": content["sizing"]["clusters"]["h200"]}}
    nodes = []
    for usd in (0.0, 1.0):
        content["sizing"]["miss_cost_usd"] = usd
        written(content, tmp_path)
        answer = planner.size(
            tmp_path / "toy.yaml",
            tmp_path / f"out-{usd}",
            replications=2,
            confirmations=2,
            workers=1,
            rivals=False,
        )
        nodes.append(sum(answer.result.plan.policy.purchases))
        assert "No confidence is required" in answer.summary()["sentences"]["answer"][0]
    assert nodes[0] < nodes[1]
    with pytest.raises(ScenarioError, match="the objective is another"):
        planner.size(tmp_path / "toy.yaml", tmp_path / "none", objective="levelised")


def test_every_way_is_run_in_every_future(tmp_path: Path) -> None:
    """A future that changes nothing that counts gives the answer's own figures; one of more traffic misses more."""
    content = toy()
    content["futures"] = {
        "same": {"set": {"workloads.chat.requests_per_s": 40}, "weight": 1.0},
        "busier": {"set": {"workloads.chat.requests_per_s": "×2"}, "weight": 1.0},
    }
    written(content, tmp_path)
    answer = planner.size(
        tmp_path / "toy.yaml", tmp_path / "out", replications=2, confirmations=2, workers=1
    )
    grid = {(row.way, row.future): row.outcome for row in answer.result.futures}
    (way,) = answer.result.ways
    same = grid[way.name, "same"].costs
    few = min(same.size, way.judged.costs.size)
    assert (same[:few] == way.judged.costs[:few]).all()
    assert grid[way.name, "busier"].worst.max() < way.judged.worst.min()
    lines = (tmp_path / "out" / "futures.csv").read_text().splitlines()
    assert len(lines) == 1 + 3  # as stated, and two futures
    assert "busier" in answer.text()


@pytest.mark.parametrize(
    "usd", [0.3, *(pytest.param(usd, marks=pytest.mark.prove) for usd in (0.01, 3.0))]
)
def test_what_an_api_charges_is_traded_for_nodes(usd: float) -> None:
    """An API takes the overflow at a price: the search costs no more than the best of all policies."""
    content = toy(most=6, horizon_months=3)
    prices = {
        "llama-3.1-70b": {"input_usd_per_million_tokens": usd, "output_usd_per_million_tokens": usd}
    }
    api = {"contract": {"kind": "api", "token_prices": prices}}
    content["clusters"] = {"h200": content["clusters"]["h200"], "api": api}
    content["sizing"] = {"clusters": {"h200": content["sizing"]["clusters"]["h200"]}}
    with problem(content, replications=2) as search:
        plans = [whole(search, policy) for policy in every_policy(search, 6)]
        least = min((plan for plan in plans if keeps(plan)), key=lambda plan: plan.cost)
        made = solved(content, confirmations=36).policy
        assert whole(search, made).cost <= 1.01 * least.cost
        nodes = sum(least.policy.purchases)
        assert {0.01: nodes == 0, 0.3: True, 3.0: nodes >= 2}[usd]
        result = search.archive.workers.subject.simulate(made, 0)
        charged = present_cost_usd(result).sum() - present_cost_usd(result, (Account.API,)).sum()
        assert whole_run(search, made).overflow_usd == pytest.approx(charged)
