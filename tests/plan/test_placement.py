"""What the accelerators of a cluster hold, from scenarios as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import linprog

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.model_on_part import memory_fit
from planner.plan import deployments
from planner.plan.choice import build_services
from planner.plan.plan import Deployment
from planner.plan.reuse import Reuse
from planner.run.simulate import simulate
from tests.engine.worlds import QUIET, SHARED, merged, plan_of, scenario_of

Floats = NDArray[np.float64]
SEVEN = (
    "llama-3.1-405b",
    "deepseek-v3",
    "llama-3.1-70b",
    "qwen3-235b-a22b",
    "gpt-oss-120b",
    "qwen3-32b",
    "kimi-k2.5",
)


def models_on_a_node(names: tuple[str, ...] = SEVEN, nodes: int = 1, **load: Any) -> dict[str, Any]:
    """A cluster of H200 and a little steady traffic for each of some models."""
    steady = {
        "requests_per_s": 0.2,
        "load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0},
        "noise": {"sigma": 0},
    }
    tokens = {
        "lengths": {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}}
    }
    slo = {"slo": {"ttft_s": 4.0, "tpot_s": 0.1}}
    works = {
        f"w{index}": {"model": name, **steady, **tokens, **slo, **load}
        for index, name in enumerate(names)
    }
    change = {"workloads": works | {"chat": None, "nightly": None}, "clusters": {"mi325x": None}}
    return merged(QUIET, change, {"clusters": {"h200": SHARED | {"nodes": nodes}}})


def held(change: dict[str, Any]) -> list[Deployment]:
    """What each model is in the largest pool that it may have."""
    placed = plan_of(change).placement
    assert placed is not None
    return [placed.deployments[group[-1]] for group in placed.groups]


def test_seven_models_of_two_terabytes_do_not_run_on_one_node_of_one() -> None:
    """Some fit beside each other on its eight accelerators; the others are shed, with a warning for each."""
    result = simulate(scenario_of(models_on_a_node()))
    placed = result.plan.placement
    (window, *_) = result.run.windows
    assert placed is not None
    resident = sum(
        replicas * each.resident_bytes
        for replicas, each in zip(window.replicas[:, 0], placed.deployments, strict=True)
    )
    assert resident <= 0.9 * 8 * part_of("H200", load_catalog()).hbm_bytes
    served = result.monthly.served_requests.sum(axis=(0, 1)) / result.monthly.demand_requests.sum(
        axis=0
    )
    groups = [list(placed.groups[placed.group_of[0, w]]) for w in range(7)]
    held_at_all = np.array([window.replicas[group].any() for group in groups])
    assert served == pytest.approx(held_at_all.astype(float), abs=1e-3)
    assert 4 <= held_at_all.sum() <= 5
    assert not held_at_all[[1, 6]].any()  # deepseek-v3 and kimi-k2.5 take a node each
    table = result.routing_monthly().query("month == '2026-01-01'").set_index("workload")
    assert table["served_tokens"].sum() == pytest.approx(
        result.tokens(result.monthly.served_requests)[0].sum()
    )
    rate = result.plan.requests_per_node_h[0, :, 0]
    (w2,) = [placed.deployments[d] for d in groups[2] if window.replicas[d].any()]
    speed = w2.speed * w2.pool_speed.get(2, 1.0)
    nodes = w2.nodes_per_replica * table["replicas"]["w2"]
    by_hand = 0.2 * 3600 / (rate[2] * speed) / nodes
    assert table["utilisation_fraction"]["w2"] == pytest.approx(by_hand, rel=1e-3)
    told = [text for text in result.warnings if "never served" in text]
    assert len(told) == 7 - held_at_all.sum()
    assert any(
        "workload w1 was never served: deepseek-v3 takes at least 1 of 1 nodes of h200" in text
        for text in told
    )
    enough = simulate(scenario_of(models_on_a_node(nodes=4)))
    assert enough.monthly.shed_requests.sum() / enough.monthly.demand_requests.sum() < 1e-3


def test_models_share_accelerators_at_the_speed_that_their_cache_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two models on one accelerator of H200: what both leave free, over the cache of the one that needs more."""
    monkeypatch.setattr(deployments, "_room", lambda scenario, name, per_node: 1)
    pair = ("qwen3-32b", "llama-3.1-70b")
    change = merged(
        models_on_a_node(pair, slo={"ttft_s": 30.0, "tpot_s": 0.15}),
        {"clusters": {"h200": {"tensor_parallel": 1}}},
    )
    groups = held(change)
    assert [set(each.workloads) for each in groups] == [{0, 1}]
    monkeypatch.setattr(deployments, "_room", lambda scenario, name, per_node: 2)
    assert [set(each.workloads) for each in held(change)] == [{1}, {0}]  # just enough for each
    part = part_of("H200", load_catalog())
    fits = [memory_fit(part, shape_of(name, load_catalog()), "fp8", 1) for name in pair]
    weights = sum(fit.weight_bytes + fit.overhead_bytes for fit in fits)
    assert groups[0].resident_bytes == pytest.approx(weights)
    scenario = scenario_of(change)
    reuse = Reuse(scenario)
    services, _ = build_services(scenario, reuse, {})
    compiler = deployments.Compiler(
        scenario=scenario, plan=plan_of(change), services=services, factors={}, reuse=reuse
    )
    batches: dict[int, float] = {}
    for in_pool in deployments.deployed_services(compiler):
        for w, service in in_pool.items():
            batches.setdefault(w, service.batch)  # in the smallest pool, which comes first
    cache = max(batches[w] * 1350 * fit.kv_bytes_per_token for w, fit in enumerate(fits))
    assert groups[0].speed == pytest.approx(min(1.0, (0.9 * part.hbm_bytes - weights) / cache))
    assert groups[0].load_h == pytest.approx(
        sum(fit.weight_bytes for fit in fits) * 8 / 4.3e9 / 3600
    )


def test_a_part_with_more_memory_holds_more_fine_tunes() -> None:
    """Weights and engine of the 32B model are 36.5 GB: 3 on 136 GB usable of an H200, 6 on 248 of an MI325X."""
    change = models_on_a_node(
        ("qwen3-32b",), nodes=9, fine_tunes=200, slo={"ttft_s": 2.0, "tpot_s": 0.05}
    )
    small = held(change)[0]
    large = held(merged(change, {"clusters": {"h200": {"accelerator": "MI325X"}}}))[0]
    accelerators = [round(each.min_nodes * 8) for each in (small, large)]
    assert accelerators == [68, 34]  # in replicas of two H200, which hold six, and of one MI325X
    result = simulate(scenario_of(merged(change, {"clusters": {"h200": {"nodes": 4}}})))
    served = result.monthly.served_requests.sum() / result.monthly.demand_requests.sum()
    assert result.plan.placement is not None
    assert served == pytest.approx(16 / 34, rel=1e-3)


def day_and_night(
    batch: str | None, requests_per_s: float = 120.0, nodes: int = 12
) -> dict[str, Any]:
    """Chat whose peaks take a cluster of H200 whole, and batch that may wait for the night."""
    chat = {
        "model": "llama-3.1-70b",
        "requests_per_s": 160,
        "load_profile": {"peak_to_mean": 1.6, "weekend_fraction": 0.7},
        "lengths": {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}},
        "slo": {"ttft_s": 2.0, "tpot_s": 0.05},
    }
    waits = {
        "model": batch,
        "requests_per_s": requests_per_s,
        "load_profile": {"peak_to_mean": 1.1, "weekend_fraction": 1.0},
        "lengths": {"input": {"mean": 900, "p95": 2500}, "output": {"mean": 250, "p95": 700}},
        "slo": {"ttft_s": 60.0, "tpot_s": 0.2},
        "priority": "deferrable",
        "completion_window_h": 24,
    }
    works = {"chat": chat, "nightly": None} | ({"batch": waits} if batch else {})
    clusters = {"mi325x": None, "h200": SHARED | {"nodes": nodes}}
    return merged(QUIET, {"horizon_months": 1, "workloads": works, "clusters": clusters})


def most_served(arrivals: Floats, room: Floats, deadline_h: int) -> float:
    """The most that can be served of arrivals, each within its deadline, by a linear program of another library."""
    hours = np.arange(arrivals.size)
    of, at = (each.ravel() for each in np.meshgrid(hours, np.arange(deadline_h), indexing="ij"))
    of, at = of[of + at < hours.size], (of + at)[of + at < hours.size]
    ones = np.ones(of.size)
    pairs = np.arange(of.size)
    rows = scipy.sparse.vstack(
        [
            scipy.sparse.csr_array((ones, (row, pairs)), shape=(hours.size, of.size))
            for row in (of, at)
        ]
    )
    scale = arrivals.max()
    limits = np.append(arrivals, room) / scale
    found = linprog(-ones, A_ub=rows, b_ub=limits)  # type: ignore[call-overload]  # its stubs know no sparse matrix
    return float(-found.fun * scale)


@pytest.mark.parametrize(("model", "requests_per_s"), [("llama-3.1-70b", 60.0), ("llama-3.1-70b", 160.0),
                                                       ("qwen3-32b", 40.0)])  # fmt: skip
def test_what_can_wait_is_served_by_what_would_stand_idle(
    model: str, requests_per_s: float
) -> None:
    """Between what a linear program serves at 75% use and at the speed of chat's replicas, and at best.

    At best: every node-hour that chat leaves, at the speed of the layout that batch would choose. A quarter and more
    was shed where batch had none but its own few replicas.
    """
    result = simulate(scenario_of(day_and_night(model, requests_per_s)))
    (window,) = result.run.windows
    plan = result.plan
    assert plan.placement is not None
    chat, batch = window.demand_requests
    rates = plan.requests_per_node_h[0, :, 0]
    of_chat = plan.placement.groups[plan.placement.group_of[0, 0]]
    largest = plan.placement.deployments[of_chat[-1]]
    (slower,) = largest.waiting_speed.get(1, np.ones(1))
    assert 0.5 < slower < 0.9 if model == "llama-3.1-70b" else slower == 1.0

    def bound(utilisation: float, speed: float) -> float:
        idle = np.maximum(12 - chat / rates[0] / utilisation, 0.0)
        return most_served(batch, idle * rates[1] * speed, 24)

    sizes = [each.nodes_per_replica for each in plan.placement.deployments]
    node_h = window.replicas.sum(axis=1) * sizes
    chat_h, batch_h = (node_h[list(group)].sum() for group in plan.placement.groups)
    if 1 in largest.waiting_speed:
        batch_h += chat_h  # it may use what either holds
    use = result.routing_monthly().set_index("workload")["utilisation_fraction"]
    at_work = use["chat"] * chat_h + use["batch"] * batch_h
    assert at_work == pytest.approx(window.busy_nodes.sum())
    served = float(window.served_requests[0, 1].sum())
    assert bound(0.75, slower) * 0.99 <= served <= bound(1.0, 1.0) * (1 + 1e-9)
    assert window.shed_requests[1].sum() < 0.01 * batch.sum() or requests_per_s > 100
    alone = simulate(scenario_of(day_and_night(None)))
    late = [
        run.monthly.late_requests[0, 0] / run.monthly.demand_requests[0, 0]
        for run in (result, alone)
    ]
    assert late[0] == pytest.approx(late[1], abs=1e-3)
