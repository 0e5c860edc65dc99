"""Machines rented by the hour."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from planner.engine.hourly import WindowInput, WindowResult
from planner.engine.window import evaluate_window
from planner.finance.money_plan import RentPlan
from planner.plan.plan import Plan
from tests.engine.plans import cluster_plan, hourly_terms, make_plan, workload_plan
from tests.engine.test_window import Recipe, built, scale

_BY_THE_HOUR = RentPlan(
    usd_per_accelerator_h=np.full(1, 3.0), hourly=hourly_terms(), is_hosted=True
)
_NODE_REQUESTS = 3600.0  # of a node in an hour


def batch_beside_chat(
    batch: list[int], chat: list[int], deadline_h: int, rented: int
) -> WindowResult:
    """Ten nodes that are owned, on which chat comes first, and some by the hour that batch may go to as well."""
    work = [
        workload_plan("chat", (0,)),
        workload_plan("batch", (0, 1), priority=2, deadline_h=deadline_h, rented_tiers=1),
    ]
    plan = make_plan(
        [cluster_plan("owned"), cluster_plan("hourly", nodes=rented, rent=_BY_THE_HOUR)], work
    )
    window = WindowInput(
        first_hour=0,
        demand_requests=np.array([chat, batch]) * _NODE_REQUESTS,
        nodes=np.array([[10.0], [float(rented)]]) * np.ones(len(batch)),
        speed={},
        incidents={},
        waiting_requests=(np.zeros(0), np.zeros(deadline_h)),
    )
    return evaluate_window(plan, window)


def test_work_that_can_wait_rents_nothing_while_an_idle_hour_will_do() -> None:
    """Chat has all nodes by day and half by night: what batch comes by day waits for the night, and rents no hour."""
    result = batch_beside_chat([2] * 24, [10] * 12 + [5] * 12, deadline_h=24, rented=8)
    assert result.busy_nodes[1].sum() == 0.0
    assert result.shed_requests.sum() == 0.0
    hurried = batch_beside_chat([2] * 24, [10] * 12 + [5] * 12, deadline_h=2, rented=8)
    assert hurried.busy_nodes[1, :12].tolist() == pytest.approx(
        [0, 0, *[2] * 10]
    )  # as late as it may be


@settings(max_examples=60)
@given(
    hours=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 10)), min_size=6, max_size=20),
    deadline_h=st.integers(1, 6),
    rented=st.integers(0, 6),
)
def test_work_that_can_wait_rents_no_more_than_a_linear_program(
    hours: list[tuple[int, int]], deadline_h: int, rented: int
) -> None:
    """It leaves as little undone as any plan of all hours, and of those rents least."""
    batch, chat = map(list, zip(*hours, strict=True))
    result = batch_beside_chat(batch, chat, deadline_h, rented)
    count = len(hours)
    routes = [(came, at, kind) for came in range(count) for at in range(came, min(came + deadline_h + 1, count))
            for kind in (0, 1)]  # fmt: skip
    ends = [
        came for came in range(count) if came + deadline_h < count
    ]  # the rest may still be served
    cost = np.array([0.001 * kind for _, _, kind in routes] + [1.0] * len(ends))
    came_rows = np.zeros((count, cost.size))
    rooms = np.zeros((2 * count, cost.size))
    for place, (came, at, kind) in enumerate(routes):
        came_rows[came, place] = 1.0
        rooms[kind * count + at, place] = 1.0
    for place, came in enumerate(ends):
        came_rows[came, len(routes) + place] = 1.0
    late = came_rows[ends]
    limits = [10.0 - taken for taken in chat] + [float(rented)] * count
    solved = linprog(
        cost, A_ub=np.vstack((rooms, came_rows)), b_ub=[*limits, *batch], A_eq=late if ends else None,
        b_eq=[batch[came] for came in ends] if ends else None,
    )  # fmt: skip
    assert solved.x is not None
    assert result.shed_requests[1].sum() / _NODE_REQUESTS == pytest.approx(
        solved.x[len(routes) :].sum(), abs=1e-6
    )
    used = sum(part for part, (_, _, kind) in zip(solved.x, routes, strict=False) if kind)
    assert result.busy_nodes[1].sum() == pytest.approx(used, abs=1e-6)


def with_hours(seed: int) -> tuple[Plan, Plan, WindowInput]:
    """A random site whose last cluster is paid by the hour, the same with its work offered like any, and a window."""
    random = np.random.default_rng(seed)
    recipe = Recipe(
        seed=seed,
        hours=int(random.integers(6, 40)),
        clusters=int(random.integers(2, 4)),
        deadlines=tuple(
            int(hours) for hours in random.choice([0, 0, 1, 3, 12], random.integers(1, 5))
        ),
        level=float(random.choice([0.3, 0.8, 1.5])),
        tightest=float(random.choice([math.inf, math.inf, 0.4, 0.7])),
        preferred_utilisation=float(random.choice([0.0, 0.5, 0.8, 1.0])),
    )
    plan, window = built(recipe)
    last = len(plan.clusters) - 1
    lit = window.lit_fraction
    nodes = window.nodes.copy()
    plan = dataclasses.replace(
        plan,
        clusters=(*plan.clusters[:-1], dataclasses.replace(plan.clusters[-1], rent=_BY_THE_HOUR)),
    )
    if lit is not None:  # a provider has power when the site has none
        nodes[last] = np.where(
            lit > 0, nodes[last] / np.where(lit > 0, lit, 1.0), plan.clusters[last].nodes
        )
    loads = []
    for load in plan.workloads:
        paid = tuple(tier for tier in load.cluster_tiers if last not in tier)
        hourly = ((last,),) * (len(load.cluster_tiers) - len(paid))
        loads.append(
            dataclasses.replace(load, cluster_tiers=paid + hourly, rented_tiers=len(hourly))
        )
    window = dataclasses.replace(window, nodes=nodes, lit_fraction=None if seed % 2 else lit)
    like_any = tuple(dataclasses.replace(load, rented_tiers=0) for load in loads)
    return (
        dataclasses.replace(plan, workloads=tuple(loads)),
        dataclasses.replace(plan, workloads=like_any),
        window,
    )


@pytest.mark.parametrize("seed", [5, 30, 45, 61, 68, 69, 439, 812, 881, 1080, 1264, 1458])
def test_with_machines_by_the_hour_nothing_is_lost_and_no_more_is_shed(seed: int) -> None:
    """Under a cap beside machines that draw none; in hours partly dark; where waiting would leave more undone."""
    plan, like_any, window = with_hours(seed)
    result = evaluate_window(plan, window)
    waiting = np.array([row.sum() for row in result.waiting_requests])
    left = result.served_requests.sum(axis=(0, 2)) + result.shed_requests.sum(axis=1) + waiting
    came = window.demand_requests.sum(axis=1)
    np.testing.assert_allclose(left, came, rtol=1e-9, atol=1e-6)
    assert (result.busy_nodes <= window.nodes + 1e-6).all()
    shed = [
        each.shed_requests.sum(axis=1).sum() for each in (result, evaluate_window(like_any, window))
    ]
    assert shed[0] <= shed[1] + 1e-3 * came.sum() + 1e-9 * scale(plan, window)
