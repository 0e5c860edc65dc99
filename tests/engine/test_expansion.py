"""The monthly review: what makes it act, and what holds it back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from planner.engine.driver import Simulation, run_plan
from planner.engine.log import ChangeLog, streams
from planner.engine.review import MonthFigures, Review
from planner.finance.money_plan import RentPlan
from planner.plan.expansion import RulePlan
from planner.plan.plan import Plan
from planner.run.simulate import RunResult, run_engine, simulate
from planner.scenario.loading import load_scenario
from tests.engine.plans import cluster_plan, expansion_plan, hourly_terms, make_plan, workload_plan
from tests.engine.worlds import SHARED, plan_of

NO_DEMAND = np.zeros((1, 0))


class Recorder:
    """Stands in for supply: notes what is bought or retired."""

    def __init__(self) -> None:
        self.bought: list[tuple[int, int, float, float]] = []
        self.placed_h: list[float] = []
        self.retired = [0]
        self.streams, self.keys, self.log = streams(1), ["H200/0"], ChangeLog()

    def expand(
        self,
        index: int,
        nodes: int,
        placed_h: float,
        arrival_h: float,
        prices_usd: tuple[float, ...],
    ) -> None:
        self.bought.append((index, nodes, arrival_h, prices_usd[0]))
        self.placed_h.append(placed_h)

    def retire(self, index: int, nodes: int) -> int:
        self.retired[index] += nodes
        return nodes


def rule(**changes: Any) -> RulePlan:
    plain = RulePlan(
        when="utilisation_above", threshold=0.7, months=2, watched=0, cluster=0, nodes=2, max_nodes=np.inf,
        lead_h=100.0, cooldown_months=3, target=0.7, max_nodes_per_order=np.inf, windows=tuple(range(1, 121)),
        slip_h=None, forecast_months=3, growth_per_year=0.0,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)


def reviewed(plan: Plan, months: list[float], **figures: Any) -> Recorder:
    supply = Recorder()
    review = Review(plan, supply, NO_DEMAND)  # type: ignore[arg-type]
    for utilisation in months:
        plain = MonthFigures(
            utilisation={plan.clusters[0].name: utilisation}, shed_fraction=0.0, missed_fraction=0.0
        )
        review.close_month(dataclasses.replace(plain, **figures))
    return supply


def plan_with(*rules: RulePlan, **changes: Any) -> Plan:
    return make_plan(months=12, expansion=expansion_plan(rules=rules, **changes))


def test_a_rule_acts_once_it_has_held_for_its_months() -> None:
    plan = plan_with(rule())
    assert reviewed(plan, [0.8]).bought == []
    assert reviewed(plan, [0.8, 0.6, 0.8]).bought == []
    ordered_h = float(plan.month_edges_h[3])
    price_usd = plan.clusters[0].prices_usd[0]
    supply = reviewed(plan, [0.6, 0.8, 0.8])
    assert supply.bought == [(0, 2, ordered_h + 100.0, price_usd)]
    assert supply.placed_h == [ordered_h]
    assert reviewed(plan, [0.7, 0.7]).bought == []  # over the threshold, not at it


def test_a_rule_rests_after_it_has_acted() -> None:
    """It acts in month 2 and then, after a rest of three months, in months 6 and 10."""
    assert len(reviewed(plan_with(rule()), [0.9] * 5).bought) == 1
    assert len(reviewed(plan_with(rule()), [0.9] * 6).bought) == 2
    assert len(reviewed(plan_with(rule()), [0.9] * 10).bought) == 3
    assert len(reviewed(plan_with(rule(cooldown_months=0, months=1)), [0.9] * 4).bought) == 4


@pytest.mark.parametrize(
    ("when", "figures"),
    [("shed_above", {"shed_fraction": 0.1}), ("slo_miss_above", {"missed_fraction": 0.1})],
)
def test_other_things_may_be_watched(when: str, figures: dict[str, float]) -> None:
    plan = plan_with(rule(when=when, threshold=0.05))
    assert len(reviewed(plan, [0.0, 0.0], **figures).bought) == 1
    assert reviewed(plan, [0.99, 0.99]).bought == []


def test_later_purchases_cost_what_prices_have_become_by_the_day_of_the_order() -> None:
    """Ordered after January and February, 59 days; that they come ten months later changes no price agreed then."""
    plan = plan_with(rule(lead_h=7300.0), price_change_per_year=-0.2)
    (_, _, _, price_usd) = reviewed(plan, [0.9, 0.9]).bought[0]
    assert price_usd == pytest.approx(0.8 ** (59 * 24 / 8766.0) * plan.clusters[0].prices_usd[0])


def test_retired_nodes_give_their_room_in_the_envelope_back() -> None:
    """Full at 110 kW with ten nodes of 10 kW; four retired make room for two purchases of two."""
    shrink = rule(when="utilisation_below", threshold=0.2, months=1, nodes=4, cooldown_months=99)
    plan = plan_with(rule(months=1, cooldown_months=0), shrink, it_power_cap_kw=110.0)
    assert reviewed(plan, [0.9] * 6).bought == []
    assert len(reviewed(plan, [0.1] + [0.9] * 6).bought) == 2


def test_idle_nodes_are_retired() -> None:
    plan = plan_with(rule(when="utilisation_below", threshold=0.2, nodes=3))
    assert reviewed(plan, [0.1, 0.1]).retired == [3]
    assert reviewed(plan, [0.3, 0.3]).retired == [0]


def test_in_a_run_the_review_buys_after_the_months_and_the_lead() -> None:
    """Two months at 90% of ten nodes: bought at the end of February, there 500 hours and one commissioning later."""
    plan = make_plan(
        months=5,
        requests_per_s=[9.0],
        expansion=expansion_plan(rules=(rule(lead_h=500.0, cooldown_months=9),)),
    )
    run, monthly = run_engine(plan, 1)
    second = float(plan.month_edges_h[2])
    added = [change for change in run.log.changes if change.time_h > 0]
    assert [(change.time_h, change.accelerators) for change in added] == [(second + 506.0, 16)]
    assert monthly.present_node_h[4, 0] == pytest.approx(12 * 744)
    assert run.log.purchases[-1].nodes == 2


def test_an_order_is_of_its_review_though_the_clock_has_run_on() -> None:
    """Nothing ordered comes within five months: when the second to the fourth are reviewed, the clock is past them."""
    lead_h = 17 * 168.0
    rules = (rule(lead_h=lead_h, cooldown_months=0),)
    plan = make_plan(months=8, requests_per_s=[9.0], expansion=expansion_plan(rules=rules))
    run, _ = run_engine(plan, 1)
    reviews_h = [float(edge_h) for edge_h in plan.month_edges_h[2:8]]
    ordered = [(order.time_h, order.arrival_h) for order in run.log.orders]
    assert ordered[:6] == [(review_h, review_h + lead_h) for review_h in reviews_h]


def test_what_is_shed_counts_in_tokens_as_it_is_documented() -> None:
    """Of two workloads of one request a second each, the long one is shed: half the requests, nine tenths of tokens."""
    long = {
        "input_tokens": np.full(3, 900.0),
        "output_tokens": np.full(3, 450.0),
    }  # nine times the short one's 150
    work = [workload_plan("short", [0], months=3), workload_plan("long", [1], months=3, **long)]
    clusters = [cluster_plan("a", nodes=4), cluster_plan("b", nodes=0)]
    for threshold, bought in ((0.8, 1), (0.95, 0)):
        watch = rule(when="shed_above", threshold=threshold, months=1, cluster=0, cooldown_months=9)
        run, _ = run_engine(
            make_plan(clusters, work, months=3, expansion=expansion_plan(rules=(watch,))), 1
        )
        assert len(run.log.purchases) == 1 + bought


def test_no_more_is_bought_than_the_site_can_run() -> None:
    """Ten nodes of 10 kW at full load under a cap for 135: one lot of two fits, and a second would not."""
    plan = plan_with(rule(cooldown_months=0, months=1))
    capped = dataclasses.replace(plan, site=dataclasses.replace(plan.site, most_it_kw=135.0))
    assert len(reviewed(capped, [0.9] * 6).bought) == 1
    blocks = dataclasses.replace(plan.site, block_h=np.zeros(1), block_kw=np.array([145.0]))
    assert len(reviewed(dataclasses.replace(plan, site=blocks), [0.9] * 6).bought) == 2
    assert len(reviewed(plan, [0.9] * 6).bought) == 6


def test_a_ceiling_holds_for_what_is_ordered_and_gives_way_to_what_is_retired() -> None:
    """Ten nodes and a ceiling of thirteen: two, then the one that is left; three retired make room for two and one."""
    bought = reviewed(
        plan_with(rule(months=1, cooldown_months=0, max_nodes=13.0)), [0.9] * 4
    ).bought
    assert [nodes for _, nodes, _, _ in bought] == [2, 1]
    shrink = rule(when="utilisation_below", threshold=0.2, months=1, nodes=3, cooldown_months=99)
    both = plan_with(rule(months=1, cooldown_months=0, max_nodes=13.0), shrink)
    assert [nodes for _, nodes, _, _ in reviewed(both, [0.9, 0.9, 0.1, 0.9, 0.9, 0.9]).bought] == [
        2,
        1,
        2,
        1,
    ]


def overflow(rented: RentPlan, **changes: Any) -> Plan:
    """Return ten nodes at 90% whose work may overflow to rented ones, none at first."""
    lent = cluster_plan("rented", nodes=0, rent=rented, prices_usd=(0.0, 0.0, 0.0, 0.0))
    clusters = [cluster_plan("own", nodes=10), lent]
    watch = rule(
        watched=0, cluster=1, nodes=3, max_nodes=5.0, lead_h=500.0, cooldown_months=0, **changes
    )
    site = make_plan(months=6).site
    return make_plan(
        clusters, [workload_plan("chat", [0, 1], months=6)], months=6, requests_per_s=[9.0],
        expansion=expansion_plan(rules=(watch,), it_power_cap_kw=101.0),
        site=dataclasses.replace(site, most_it_kw=101.0),
    )  # fmt: skip


def test_work_overflows_to_rented_nodes_after_the_lead_and_up_to_the_ceiling() -> None:
    """Watched are the own nodes. Rented ones take no power, no crew and no capital; three come, then the two left."""
    plan = overflow(
        RentPlan(
            usd_per_accelerator_h=np.full(6, 4.0),
            hourly=hourly_terms(),
            warm_nodes=9,
            is_hosted=True,
        )
    )
    run, monthly = run_engine(plan, 1)
    edges = plan.month_edges_h
    came = [
        (change.time_h, change.accelerators) for change in run.log.changes if change.cluster == 1
    ]
    assert came == [(edges[2] + 500.0, 24), (edges[3] + 500.0, 16)]
    assert not any(
        sum(purchase.prices_usd) for purchase in run.log.purchases if purchase.cluster == 1
    )
    assert monthly.present_node_h[5, 1] == 5 * np.diff(edges)[5]
    on_site = overflow(RentPlan(usd_per_accelerator_h=np.full(6, 4.0), is_hosted=False))
    assert not [
        change for change in run_engine(on_site, 1)[0].log.changes if change.cluster == 1
    ]  # no power for them


@pytest.mark.parametrize(
    ("months", "rules", "until"),
    [
        ([], [rule(lead_h=100.0)], "2+100"),
        ([0.1], [rule(lead_h=100.0)], "3+100"),  # its two months begin anew
        ([0.9], [rule(lead_h=100.0)], "2+100"),  # the next may complete them
        ([0.9, 0.9], [rule(lead_h=100.0)], "6+100"),  # it has acted, and rests for three
        ([], [rule(when="utilisation_below", months=3)], "3+0"),  # who retires does so at once
        ([], [rule(lead_h=100.0, months=5), rule(lead_h=9000.0)], "5+100"),
        ([0.1] * 12, [rule()], "never"),
        ([0.9, 0.9], [rule(max_nodes=12)], "never"),  # it has bought all it may
        ([0.9, 0.9], [rule(max_nodes=13)], "6+100"),  # one more
        (
            [0.9, 0.9],
            [rule(max_nodes=12), rule(when="utilisation_below", months=3)],
            "5+0",
        ),  # until some retire
        (
            [0.1, 0.1],
            [rule(when="utilisation_below", nodes=10)],
            "never",
        ),  # it has retired all there were
        ([0.1, 0.1], [rule(when="utilisation_below", nodes=9)], "6+0"),  # one is left
    ],
)
def test_no_review_moves_anything_before_its_months_its_rest_and_its_lead(
    months: list[float], rules: list[RulePlan], until: str
) -> None:
    plan = plan_with(*rules)
    review = Review(plan, Recorder(), NO_DEMAND)  # type: ignore[arg-type]
    for utilisation in months:
        review.close_month(
            MonthFigures(
                utilisation={plan.clusters[0].name: utilisation},
                shed_fraction=0.0,
                missed_fraction=0.0,
            )
        )
    month, _, lead_h = until.partition("+")
    expected = np.inf if until == "never" else float(plan.month_edges_h[int(month)]) + float(lead_h)
    assert review.unmoved_until_h() == expected


BUYS = {"when": "utilisation_above", "threshold_fraction": 0.02, "cluster": "h200", "nodes": 1}
OVERFLOWS = BUYS | {
    "cluster": "cloud",
    "watch": "h200",
    "nodes": 2,
    "max_nodes": 3,
    "lead_weeks": 6,
}
SHRINKS = {
    "when": "utilisation_below",
    "threshold_fraction": 0.9,
    "cluster": "mi325x",
    "nodes": 1,
    "months": 4,
}


@pytest.mark.parametrize(
    ("rules", "envelope_kw"),
    [
        ([BUYS | {"lead_weeks": 9}, SHRINKS], 115),
        ([BUYS | {"lead_weeks": 17}], 95),  # room when the old ones have gone
        ([OVERFLOWS, SHRINKS], 10),  # a provider's need none
        (
            [BUYS | {"lead_weeks": 5, "max_nodes": 6}, OVERFLOWS],
            1000,
        ),  # each has soon bought all it may
        (
            [BUYS | {"lead_weeks": 9}, SHRINKS | {"nodes": 50, "months": 2}],
            1000,
        ),  # all of them are gone soon
    ],
)
def test_months_evaluated_together_are_the_same_months(
    rules: list[dict[str, Any]], envelope_kw: float
) -> None:
    """Ten months of a fleet that buys, retires by rule and by date, in a few windows and month by month."""
    cloud = {
        "accelerator": "H200",
        "nodes": 0,
        "contract": {"kind": "on-demand", "usd_per_accelerator_h": 3},
    }
    more = {
        "clusters": {
            "old": {"accelerator": "H200", "nodes": 2, "retire": "2026-04-20"},
            "cloud": cloud,
        }
    }
    plan = plan_of(
        {"horizon_months": 10, "expansion": {"rules": rules, "it_power_cap_kw": envelope_kw}}, more
    )
    together = run_plan(plan, 1)
    apart = Simulation(plan, streams(1, 0)).run(plan.month_edges_h[1:].tolist())
    assert len(together.windows) < len(apart.windows) == 10
    assert {change.kind for change in apart.log.changes} == {"delivered", "retired"}
    assert len(apart.log.purchases) > 3  # the review has bought
    assert together.log.changes == apart.log.changes
    assert together.log.purchases == apart.log.purchases
    assert together.log.orders == apart.log.orders
    assert together.shop.outages() == apart.shop.outages()
    for name in ("served_requests", "shed_requests", "late_requests", "it_kw"):
        one, other = (
            np.concatenate([getattr(w, name) for w in run.windows], axis=-1)
            for run in (together, apart)
        )
        np.testing.assert_allclose(
            one, other, rtol=1e-7, atol=1e-9 * float(other.max()) + 1e-9, err_msg=name
        )


STATED = SHARED | {"accelerator": "H200", "attention": "tensor-parallel"}
GROWING: dict[str, Any] = {
    "name": "growing", "start": "2026-01-01", "horizon_months": 5,
    "workloads": {"chat": {
        "model": "deepseek-v3", "requests_per_s": 30, "growth": {"kind": "flat"}, "noise": {"sigma": 0.05},
        "lengths": {"input": {"mean": 2000}, "output": {"mean": 400}},
    }},
    "clusters": {"h200": STATED | {"nodes": 8}},
    "reliability": {"failure_multiplier": 0}, "site": {"outages_per_year": 0},
}  # fmt: skip


def resized(nodes: int, stated: dict[str, Any] | None = None) -> RunResult:
    """Return a run of a cluster that one rule changes in its first month, on which nothing else does."""
    clusters = {"h200": STATED | {"nodes": nodes}}
    rules = (
        [{"threshold_fraction": 0.01, "months": 1, "cluster": "h200", **stated}] if stated else []
    )
    return simulate(
        load_scenario({**GROWING, "clusters": clusters, "expansion": {"rules": rules}}), seed=1
    )


@pytest.mark.parametrize(
    ("begins", "rule", "ends"),
    [
        (1, {"when": "utilisation_above", "nodes": 7, "max_nodes": 8, "lead_weeks": 1}, 8),
        (
            0,
            {
                "when": "shed_above",
                "nodes": 4,
                "max_nodes": 8,
                "lead_weeks": 0.1,
                "cooldown_months": 1,
            },
            8,
        ),
        (
            9,
            {
                "when": "utilisation_below",
                "threshold_fraction": 0.6,
                "nodes": 8,
                "cooldown_months": 9,
            },
            1,
        ),
    ],
)
def test_a_cluster_that_a_rule_resizes_serves_as_one_of_the_size_it_has_come_to(
    begins: int, rule: dict[str, Any], ends: int
) -> None:
    """Its last month is that of a cluster which had the size all along: the same load, the same requests late.

    Power at a load is that of the batches it begins with, which are a little smaller or larger.
    """
    grown = resized(begins, rule).monthly
    always = resized(ends).monthly
    hours = grown.present_node_h[-1] / always.present_node_h[-1]
    assert hours.tolist() == [1.0]
    for name, relative in (
        ("busy_node_h", 1e-3),
        ("late_requests", 1e-3),
        ("shed_requests", 1e-3),
        ("it_kwh", 0.03),
    ):
        last = getattr(grown, name)[-1]
        wanted = getattr(always, name)[-1]
        # A hundred requests shed of fifty million are none.
        next_to_none = 1e-5 * always.demand_requests[-1].sum()
        assert last.tolist() == pytest.approx(wanted.tolist(), rel=relative, abs=next_to_none)
