"""Orders up to a forecast: by hand, without a look ahead, and in a run exactly what the functions say."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.engine import orders
from planner.engine.driver import Simulation
from planner.engine.log import streams
from planner.engine.review import MonthFigures, Review
from planner.errors import ScenarioError
from planner.plan.distributions import ThreePoint
from planner.plan.plan import Plan
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from tests.engine.plans import cluster_plan, expansion_plan, make_plan, order_plan, workload_plan
from tests.engine.test_expansion import Recorder, rule
from tests.engine.worlds import BASE, merged, plan_of


def forecasting(**changes: Any) -> Any:
    plain = {
        "when": "forecast_load_above", "threshold": 0.8, "target": 0.5, "months": 1, "cooldown_months": 0, "nodes": 2,
    }  # fmt: skip
    return rule(**(plain | changes))


def test_the_peak_need_is_the_99th_percentile_of_the_nodes_that_urgent_requests_take() -> None:
    """A cluster that does 100 and 50 requests an hour of two urgent workloads, and from February on half as many."""
    work = [workload_plan(name, months=2) for name in ("one", "two", "late", "elsewhere")]
    work[2] = dataclasses.replace(work[2], deadline_h=5)
    plan = make_plan(workloads=work, months=2)
    rates = np.array([[[100.0, 50.0], [50.0, 25.0], [1.0, 1.0], [0.0, 0.0]]])
    plan = dataclasses.replace(plan, requests_per_node_h=rates)
    requests = np.ones((4, plan.hours)) * np.array([[300.0], [100.0], [1e6], [1e6]])
    requests[0, :744] = np.arange(744.0)
    peaks = orders.peak_needs(plan, 0, requests)
    assert peaks.tolist() == pytest.approx([0.99 * 743 / 100 + 2, 300 / 50 + 100 / 25])
    both = orders.peak_needs(plan, 0, np.stack([requests, 2.0 * requests]))
    np.testing.assert_allclose(both, [peaks, 2.0 * peaks])
    constant = dataclasses.replace(plan, requests_per_node_h=rates[..., :1])
    assert orders.peak_needs(constant, 0, requests)[1] == pytest.approx(300 / 100 + 100 / 50)


def test_a_node_is_worth_what_it_does_of_the_first_months_requests_that_both_serve() -> None:
    clusters = [cluster_plan(name) for name in "abcd"]
    work = [workload_plan(name, clusters=range(4), months=2) for name in ("one", "two", "late")]
    work[2] = dataclasses.replace(work[2], deadline_h=5)
    plan = make_plan(clusters, work, months=2)
    rates = np.array([[100.0, 50.0, 7.0], [200.0, 200.0, 9.0], [300.0, 0.0, 9.0], [0.0, 0.0, 9.0]])[
        ..., None
    ]
    plan = dataclasses.replace(plan, requests_per_node_h=rates)
    requests = np.full((3, plan.hours), 1.0)
    requests[1, :744] = 3.0
    requests[:, 744:] = [[1e6], [0.0], [0.0]]  # what comes later moves nothing
    a = 1 / 100 + 3 / 50
    b = 1 / 200 + 3 / 200
    assert orders.node_values(plan, 0, requests).tolist() == pytest.approx([1.0, a / b, 3.0, 0.0])
    assert orders.node_values(plan, 3, requests).tolist() == [0.0, 0.0, 0.0, 1.0]
    assert (
        orders.node_values(plan, 1, np.stack([requests, 7.0 * requests])).tolist()
        == [pytest.approx([b / a, 1.0, 1.5, 0.0])] * 2
    )


@given(
    st.floats(0.1, 1e5), st.floats(-0.5, 4.0), st.integers(1, 30), st.integers(0, 30), st.integers(1, 3)
)  # fmt: skip
def test_a_forecast_of_clean_growth_is_exact(
    level: float, growth: float, seen: int, ahead: int, rows: int
) -> None:
    """Whatever is seen of it, where the growth expected is the growth there is."""
    factor = (1.0 + growth) ** (1 / 12)
    peaks = np.tile(level * factor ** np.arange(seen), (rows, 1))
    expected = level * factor ** (seen - 1 + ahead)
    assert orders.forecast_peak(peaks, ahead, growth).tolist() == pytest.approx([expected] * rows)
    assert np.nan_to_num(orders.forecast_log_error(peaks, ahead, growth)) == pytest.approx(
        np.zeros(rows), abs=1e-6
    )


def test_a_forecast_weighs_the_trend_seen_against_six_months_of_the_one_expected() -> None:
    """Four months at 10% a month in logarithms: the last three's middle is a month ago, and 4/10 of the trend count."""
    peaks = np.exp(0.1 * np.arange(4))
    assert np.log(orders.forecast_peak(peaks, 5, 0.0)) == pytest.approx(0.2 + 0.4 * 0.1 * 6)
    assert np.log(orders.forecast_peak(peaks, 5, 1.0)) == pytest.approx(
        0.2 + (0.4 * 0.1 + 0.6 * np.log(2) / 12) * 6
    )
    assert np.log(orders.forecast_peak(peaks[:1], 5, 1.0)) == pytest.approx(
        5 * np.log(2) / 12
    )  # of one, no trend
    assert np.log(orders.forecast_peak(peaks[:2], 5, 0.0)) == pytest.approx(
        0.05 + 2 / 8 * 0.1 * 5.5
    )
    old = np.concatenate([[1e9] * 7, np.exp(0.1 * np.arange(12))])  # more than a year ago
    assert np.log(orders.forecast_peak(old, 5, 0.0)) == pytest.approx(1.0 + 12 / 18 * 0.1 * 6)


def test_months_without_need_are_not_seen() -> None:
    launched = np.array([0.0, 0.0, 3.0, 3.3])
    assert orders.forecast_peak(launched, 4, 0.2) == pytest.approx(
        orders.forecast_peak(launched[2:], 4, 0.2)
    )
    assert orders.forecast_peak(np.array([[0.0, 0.0], [5.0, 5.0]]), 4, 0.0).tolist() == [
        0.0,
        pytest.approx(5.0),
    ]
    assert np.isnan(orders.forecast_log_error(launched, 4, 0.2))


@pytest.mark.parametrize("seen", [4, 9, 20])
def test_the_standard_error_is_the_scatter_of_what_came_around_the_forecast(seen: int) -> None:
    """Peaks that scatter by 5% a month around clean growth, forecast 4,000 times."""
    ahead = 6
    growth = 0.5
    count = 4000
    noise = np.random.default_rng(5).normal(0.0, 0.05, (count, seen + ahead))
    peaks = np.exp(np.arange(seen + ahead) * np.log(1.5) / 12 + noise)
    missed = np.log(orders.forecast_peak(peaks[:, :seen], ahead, growth) / peaks[:, -1])
    scale = missed.var() / (orders.forecast_log_error(peaks[:, :seen], ahead, growth) ** 2).mean()
    months = min(seen, 12)
    spread = np.sqrt(2 / count) + np.sqrt(2 / (count * (months - 2)))
    assert abs(scale - 1.0) < 4 * spread
    assert abs(missed.mean()) < 4 * missed.std() / np.sqrt(count)


def test_an_order_brings_the_forecast_load_down_to_the_target_in_whole_steps() -> None:
    """Ten nodes at a forecast of 8 hold 80%; at 9 they become 15 for 60%, in steps of four 18, cut to what there is."""
    forecast = np.array([0.0, 8.0, 9.0, 9.0, 100.0])
    installed = np.array([10.0, 10.0, 10.0, 14.5, 0.0])
    assert orders.order_up_to(forecast, installed, 0.8, 0.6, 4, np.inf).tolist() == [
        0,
        0,
        8,
        0,
        168,
    ]
    assert orders.order_up_to(forecast, installed, 0.8, 0.6, 1, np.inf).tolist() == [
        0,
        0,
        5,
        0,
        167,
    ]
    assert orders.order_up_to(forecast, installed, 0.8, 0.6, 4, np.full(5, 7.9)).tolist() == [
        0,
        0,
        4,
        0,
        4,
    ]
    assert orders.order_up_to(forecast, installed, 0.8, 0.6, 4, 3.0).tolist() == [0] * 5
    assert orders.order_up_to(forecast, installed, 0.8, 0.6, 4, -8.0).tolist() == [0] * 5


def test_installed_is_what_is_due_and_not_yet_gone_by_the_month_forecast() -> None:
    """From two thirds of an order on their way, one that is not due, one that leaves, and one that rules change."""
    order = order_plan(placed_h=100.0, lead_h=200.0, deliveries=3, interval_h=50.0)
    clusters = [
        cluster_plan("ordered", nodes=10, online_h=None, order=order),
        cluster_plan("later", nodes=5, online_h=400.0),
        cluster_plan("leaves", nodes=7, retire_h=380.0),
        cluster_plan("changes", nodes=4),
    ]
    plan = make_plan(clusters)
    bought = np.array([0.0, 0.0, 2.0, 6.0])
    gone = np.array([0.0, 0.0, 0.0, 3.0])
    worth = np.array([1.0, 10.0, 100.0, 1000.0])

    def by(hour: float) -> float:
        return float(orders.installed_nodes(plan, hour, bought, gone, worth))

    assert [by(hour) for hour in (299.0, 300.0, 350.0, 379.0)] == [7900.0, 7903.0, 7907.0, 7907.0]
    assert [by(hour) for hour in (380.0, 399.0, 400.0)] == [7007.0, 7007.0, 7060.0]
    many = orders.installed_nodes(plan, 400.0, np.stack([bought, bought + 1.0]), gone, worth)
    assert many.tolist() == [7060.0, 8071.0]
    assert orders.forecast_hour(make_plan(months=3), 1, 2) == float(
        make_plan(months=3).month_edges_h[3]
    )
    assert (
        orders.forecast_hour(make_plan(months=3), 2, 3)
        == float(make_plan(months=3).month_edges_h[3]) + 2 * 730.5
    )


def growing_plan(*rules: Any, months: int = 14) -> Plan:
    """Ten nodes of one request a second each, under 7 requests a second that grow by 6% a month, step by step."""
    plan = make_plan([cluster_plan()], months=months, requests_per_s=[7.0])
    steps = np.asarray(7.0 * 1.06 ** plan.months.hour_periods[None, :], dtype=np.float64)
    demand = dataclasses.replace(
        plan.demand, expected_requests_per_s=steps, noise_base_requests_per_s=steps
    )
    return dataclasses.replace(plan, demand=demand, expansion=expansion_plan(rules=rules))


def orders_of(plan: Plan, **limits: Any) -> list[tuple[int, int]]:
    """Return the month and the nodes of each order that a review places."""
    plan = dataclasses.replace(plan, expansion=dataclasses.replace(plan.expansion, **limits))
    supply = Recorder()
    review = Review(plan, supply, plan.demand.expected_requests_per_s * 3600.0)  # type: ignore[arg-type]
    placed: list[tuple[int, int]] = []
    for month in range(1, plan.month_edges_h.size):
        before = len(supply.bought)
        review.close_month(
            MonthFigures(utilisation={"a": 0.0}, shed_fraction=0.0, missed_fraction=0.0)
        )
        placed += [(month, nodes) for _, nodes, _, _ in supply.bought[before:]]
    return placed


def test_a_review_orders_as_the_functions_say_and_stays_within_every_limit() -> None:
    """Growth as expected is seen at once: at 7 · 1.06³ of ten nodes, 83%, the first order brings it to half."""
    expected = 1.06**12 - 1.0
    grows = forecasting(growth_per_year=expected)
    first = (1, 8)
    needed = [7.0 * 1.06**n for n in range(40)]
    assert first[1] == 2 * np.ceil((needed[3] / 0.5 - 10) / 2)
    assert orders_of(growing_plan(grows))[0] == first
    second = next(m for m in range(1, 15) if needed[m + 2] > 0.8 * 18)
    assert orders_of(growing_plan(grows))[1] == (
        second,
        int(2 * np.ceil((needed[second + 2] / 0.5 - 18) / 2)),
    )
    price = sum(growing_plan().clusters[0].prices_usd)
    assert orders_of(growing_plan(grows), budget_usd=5.9 * price) == [(1, 4)]
    assert orders_of(growing_plan(grows), it_power_cap_kw=155.0) == [(1, 4)]
    assert orders_of(growing_plan(dataclasses.replace(grows, max_nodes=15))) == [(1, 4)]
    assert orders_of(growing_plan(dataclasses.replace(grows, max_nodes_per_order=3.0)))[:2] == [
        (1, 2),
        (4, 2),
    ]
    late = dataclasses.replace(grows, windows=(3, 14))
    assert [month for month, _ in orders_of(growing_plan(late))] == [3, 14]
    assert orders_of(growing_plan(dataclasses.replace(grows, nodes=100), months=3)) == [(1, 100)]
    gone = growing_plan(grows)
    gone = dataclasses.replace(
        gone, clusters=(dataclasses.replace(gone.clusters[0], retire_h=5000.0),)
    )
    assert [month for month, _ in orders_of(gone)] == [
        1
    ]  # what would come when the cluster has left is not ordered


def test_a_slip_delays_an_order_and_is_drawn_by_its_number() -> None:
    slip = ThreePoint(low=10.0, base=50.0, high=400.0)
    plan = growing_plan(forecasting(slip_h=slip, lead_h=1000.0, target=0.75))
    run, _ = run_engine(plan, 3)
    paid = [purchase.time_h for purchase in run.log.purchases[1:]]
    told = [note.time_h for note in run.log.notes]
    assert len(paid) >= 3
    late = [orders.slip_h(slip, streams(3, 0), "H200/0", number + 1) for number in range(len(paid))]
    assert paid == pytest.approx(
        [at + 1000.0 + slipped for at, slipped in zip(told, late, strict=False)]
    )
    assert len(set(late)) == len(late)
    review = Review(plan, Recorder(), np.zeros((1, plan.hours)))  # type: ignore[arg-type]
    assert review.unmoved_until_h() == plan.month_edges_h[1] + 1010.0


GROWS = {
    "horizon_months": 12,
    "workloads": {"chat": {"growth": {"kind": "compound", "per_year": 1.5}, "requests_per_s": 1500}},
    "clusters": {"old": {"accelerator": "H200", "nodes": 2, "retire": "2026-09-20"}, "mi325x": {"nodes": 1}},
    "expansion": {"rules": [
        {"when": "forecast_load_above", "threshold_fraction": 0.4, "target_fraction": 0.3, "cluster": "h200",
         "nodes": 1, "lead_weeks": 6, "slip_weeks": {"low": 1, "base": 2, "high": 6}},
        {"when": "forecast_load_above", "threshold_fraction": 0.3, "cluster": "mi325x", "nodes": 2, "lead_weeks": 9,
         "windows": "quarterly", "max_nodes_per_order": 4},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("until", [3, 7])
def test_no_order_knows_what_demand_comes_later(until: int) -> None:
    """A thirtyfold launch after month 3 or 7 changes orders from its end on, and none before."""
    plan = plan_of(GROWS)
    edge = int(plan.month_edges_h[until])
    runs = [Simulation(plan, streams(2, 0)) for _ in range(2)]
    changed = runs[1].demand_requests.copy()
    changed[:, edge:] *= 30.0
    runs[1].demand_requests = changed
    one, other = (run.run([plan.hours]).log.notes for run in runs)
    assert [n for n in one if n.time_h <= edge] == [n for n in other if n.time_h <= edge]
    assert [n for n in one if n.time_h > edge] != [n for n in other if n.time_h > edge]


def test_the_defaults_of_a_forecast_are_its_own() -> None:
    of = {"threshold_fraction": 0.5, "cluster": "h200", "nodes": 1, "lead_weeks": 10}
    plan = plan_of({"horizon_months": 7, "expansion": {"rules": [
        {"when": "forecast_load_above", **of}, {"when": "shed_above", **of, "windows": ["2026-03-01", "2026-05-02"]},
    ]}})  # fmt: skip
    forecasts, fixed = plan.expansion.rules
    assert (
        forecasts.months,
        forecasts.cooldown_months,
        forecasts.target,
        forecasts.forecast_months,
    ) == (1, 0, 0.5, 6)
    assert (fixed.months, fixed.cooldown_months, fixed.windows) == (2, 3, (2, 5))
    assert forecasts.windows == tuple(range(1, 8))


def test_a_rule_of_any_kind_waits_for_its_window() -> None:
    plan = make_plan(
        months=12, expansion=expansion_plan(rules=(rule(windows=(6, 12), cooldown_months=0),))
    )
    review = Review(plan, Recorder(), np.zeros((1, 0)))  # type: ignore[arg-type]
    assert review.unmoved_until_h() == plan.month_edges_h[6] + 100.0
    for month in range(1, 13):
        review.close_month(
            MonthFigures(utilisation={"a": 0.9}, shed_fraction=0.0, missed_fraction=0.0)
        )
        assert review.ordered == [10 + 2 * (month // 6)]
    assert review.unmoved_until_h() == np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"target_fraction": 0.9},
            "target_fraction, 0.9, must be above 0 and at most threshold_fraction, 0.8",
        ),
        ({"threshold_fraction": 0}, "must be above 0"),
        ({"months": 2}, "months must be 1 under forecast_load_above, not 2"),
        ({"max_nodes_per_order": 3}, "max_nodes_per_order, 3, is less than one step, 4"),
        ({"watch": "h200"}, "expansion.rules[0].watch"),
        ({"windows": "yearly"}, "expansion.rules[0].windows"),
        ({"windows": []}, "expansion.rules[0].windows"),
        ({"target_fractoin": 0.5}, "target_fraction"),
        ({"when": "shed_above", "target_fraction": 0.5}, "has no effect under when: shed_above"),
        ({"when": "shed_above", "growth_per_year": 0.5}, "expansion.rules[0].growth_per_year"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    of = {"when": "forecast_load_above", "threshold_fraction": 0.8, "cluster": "h200", "nodes": 4}
    whole = merged(BASE, {"expansion": {"rules": [of | changes]}})
    with pytest.raises(ScenarioError) as caught:
        load_scenario(whole)
    assert message in str(caught.value)
