"""Failures as drawn: counts, times, causes and repairs against what the plan says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from planner.engine.failures import HARD, MEDIUM, SOFT, Failures, draw_failures, draw_interruptions
from planner.engine.log import streams
from planner.finance.money_plan import RentPlan
from planner.plan.contradictions import expected_failures
from tests.engine.plans import cause_plan, cluster_plan, make_plan, reliability_plan

HOURS = 20_000.0


def drawn(seed: int = 1, nodes: int = 400, **changes: Any) -> Failures:
    plan = reliability_plan(causes=(cause_plan(),), **changes)
    cluster = cluster_plan(nodes=nodes)
    failures = draw_failures(plan, cluster, np.zeros(nodes), 0, HOURS, streams(seed), "a")
    return failures.where(np.argsort(failures.time_h))


def test_the_number_of_failures_is_poisson() -> None:
    """Renewal counts: 40 draws with mean and variance n·λ·T."""
    expected = 400 * HOURS / 2400
    counts = np.array([drawn(seed).time_h.size for seed in range(40)])
    assert abs(counts.mean() - expected) < 4 * math.sqrt(expected / 40)
    low, high = (float(stats.chi2.ppf(p, 39)) / 39 for p in (1e-5, 1 - 1e-5))
    assert low < counts.var(ddof=1) / expected < high


def test_times_between_failures_of_a_fleet_are_exponential() -> None:
    gaps = np.diff(drawn(nodes=2000).time_h)
    assert stats.kstest(gaps, stats.expon(scale=2400 / 2000).cdf).pvalue > 1e-4


def test_early_life_follows_its_rate() -> None:
    """λ(t) = λ (1 + (m − 1) e^(−t/τ)): the count, and by Kolmogorov and Smirnov the moments."""
    failures = drawn(nodes=1000, early_life_multiplier=4.0, early_life_h=2000.0)
    expected = 1000 / 2400 * (HOURS + 3 * 2000 * -math.expm1(-HOURS / 2000))
    assert abs(failures.time_h.size - expected) < 4 * math.sqrt(expected)

    def cumulative(t: Any) -> Any:
        return (t + 3 * 2000 * -np.expm1(-t / 2000)) / (
            HOURS + 3 * 2000 * -math.expm1(-HOURS / 2000)
        )

    assert stats.kstest(failures.time_h, cumulative).pvalue > 1e-4
    plan = make_plan(
        [cluster_plan(nodes=1000)],
        reliability=reliability_plan(
            causes=(cause_plan(),), early_life_multiplier=4.0, early_life_h=2000.0
        ),
    )
    hours = plan.hours
    told = 1000 / 2400 * (hours + 3 * 2000 * -math.expm1(-hours / 2000))
    assert expected_failures(plan, plan.clusters[0]) == pytest.approx(told)


def test_lemons_fail_more_and_keep_the_fleets_mean() -> None:
    counts = np.zeros(400)
    totals = []
    for seed in range(30):
        failures = drawn(seed, lemon_fraction=0.05, lemon_multiplier=10.0)
        totals.append(failures.time_h.size)
        counts += np.bincount(failures.node, minlength=400)
    expected = 400 * HOURS / 2400
    spread = np.std(totals, ddof=1) / math.sqrt(30)
    assert abs(np.mean(totals) - expected) < 4 * spread
    one = np.bincount(drawn(3, lemon_fraction=0.05, lemon_multiplier=10.0).node, minlength=400)
    plain = np.bincount(drawn(3).node, minlength=400)
    assert one.var() / one.mean() > 5 * plain.var() / plain.mean()
    plain_rate = 1 / (1 + 0.05 * 9)
    lemons = one > 4 * HOURS / 2400 * plain_rate
    assert 5 <= lemons.sum() <= 40  # 20 ± 4 standard deviations
    assert one[lemons].mean() / one[~lemons].mean() == pytest.approx(10.0, rel=0.15)


def test_nodes_fail_only_while_in_service() -> None:
    plan = reliability_plan(causes=(cause_plan(per_node_h=1 / 10),))
    start_h = np.array([0.0, 500.0, 5000.0])
    cluster = cluster_plan(nodes=3, retire_h=1000.0)
    failures = draw_failures(plan, cluster, start_h, 7, HOURS, streams(1), "a")
    assert set(failures.node.tolist()) == {7, 8}
    assert np.all(failures.time_h >= start_h[failures.node - 7])
    assert failures.time_h.max() < 1000.0


def test_spot_nodes_are_taken_back_at_their_rate_while_they_are_under_contract() -> None:
    """A thousand from hour 4,000 to 6,000, once in a hundred hours: 20,000, |z| < 4, for 5 hours in the mean."""
    rent = RentPlan(
        usd_per_accelerator_h=np.ones(1),
        is_hosted=True,
        interruptions_per_h=0.01,
        interruption_h=5.0,
    )
    cluster = cluster_plan(nodes=1000, retire_h=6000.0, rent=rent)
    plan = reliability_plan(causes=(cause_plan(), cause_plan(name="taken back")))
    taken = draw_interruptions(plan, cluster, np.full(1000, 4000.0), 7, HOURS, streams(1), "a")
    assert abs(taken.time_h.size - 20_000) < 4 * math.sqrt(20_000)
    assert stats.kstest(taken.time_h, stats.uniform(4000.0, 2000.0).cdf).pvalue > 1e-4
    assert taken.repair_h.mean() == pytest.approx(5.0, rel=4 / math.sqrt(20_000))
    assert {*taken.node.tolist()} == set(range(7, 1007))
    assert {*taken.cause.tolist()} == {1}


def test_spot_nodes_of_one_part_are_taken_back_together_in_their_share() -> None:
    """Nine in ten take all nodes of both clusters at the same hours; a node's own rate stays what it is, |z| < 4."""
    rent = RentPlan(
        usd_per_accelerator_h=np.ones(1), is_hosted=True, interruptions_per_h=0.01, interruption_h=5.0,
        together_fraction=0.9,
    )  # fmt: skip
    plan = reliability_plan(causes=(cause_plan(), cause_plan(name="taken back")))
    drawn = [
        draw_interruptions(
            plan, cluster_plan(name, nodes=50, rent=rent), np.zeros(50), 0, HOURS, streams(1), name
        )
        for name in ("a", "b")
    ]
    hours, counts = zip(
        *(np.unique(taken.time_h, return_counts=True) for taken in drawn), strict=True
    )
    together = [times[count > 1] for times, count in zip(hours, counts, strict=True)]
    assert together[0].tolist() == together[1].tolist()
    assert abs(together[0].size - 0.009 * HOURS) < 4 * math.sqrt(0.009 * HOURS)
    assert all(set(count[count > 1].tolist()) == {50} for count in counts)
    alone = sum(int((count == 1).sum()) for count in counts)
    assert abs(alone - 100 * 0.001 * HOURS) < 4 * math.sqrt(100 * 0.001 * HOURS)
    gone = drawn[0].repair_h[drawn[0].time_h == together[0][0]]
    assert len({*gone.tolist()}) == 1  # they come back together too


def test_causes_severities_and_groups_come_in_their_shares() -> None:
    causes = (
        cause_plan(name="gpu", per_node_h=3e-3, soft_fraction=0.5, medium_fraction=0.3),
        cause_plan(
            name="switch", per_node_h=1e-3, whole_node=True, soft_fraction=0.0, medium_fraction=1.0
        ),
    )
    plan = reliability_plan(causes=causes)
    cluster = cluster_plan(nodes=200, group_accelerators=2)
    failures = draw_failures(plan, cluster, np.zeros(200), 0, HOURS, streams(1), "a")
    count = failures.time_h.size
    assert abs((failures.cause == 0).mean() - 0.75) < 4 * math.sqrt(0.75 * 0.25 / count)
    assert np.all(failures.group[failures.cause == 1] == -1)
    assert np.all(failures.severity[failures.cause == 1] == MEDIUM)
    first = failures.where(failures.cause == 0)
    assert stats.chisquare(np.bincount(first.group)).pvalue > 1e-4
    assert np.bincount(first.group).size == 4
    seen = np.bincount(first.severity)
    assert stats.chisquare(seen, np.array([0.5, 0.3, 0.2]) * first.time_h.size).pvalue > 1e-4
    # what picks the cause, the severity and the group must not be tied to one another
    table = np.histogram2d(first.group, first.severity, bins=(4, 3))[0]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_repairs_have_their_means_and_spread() -> None:
    causes = (cause_plan(per_node_h=1e-2, soft_fraction=0.4, medium_fraction=0.3),)
    plan = reliability_plan(causes=causes)
    failures = draw_failures(
        plan, cluster_plan(nodes=200), np.zeros(200), 0, HOURS, streams(1), "a"
    )
    for severity, mean_h in zip((SOFT, MEDIUM, HARD), (2.0, 12.0, 60.0), strict=True):
        repair_h = failures.repair_h[failures.severity == severity]
        error = mean_h * 0.6 / math.sqrt(repair_h.size)
        assert abs(repair_h.mean() - mean_h) < 4 * error
        assert repair_h.std() / repair_h.mean() == pytest.approx(0.6, rel=0.05)
