"""The surrogate against the linear program it bounds, closed forms and the simulation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from planner.sizing.evaluate import Judged
from planner.sizing.policy import Policy
from planner.sizing.search import Search
from planner.sizing.selection import Arena, Confirmation, share_limits
from planner.sizing.size import _as_seen
from planner.sizing.survey import _clip_level
from tests.sizing.toys import CALM, bought, problem, toy, whole, written


def test_a_clip_leaves_the_share_that_is_asked() -> None:
    rng = np.random.default_rng(3)
    requests = rng.lognormal(0.0, 0.6, (3, 700))
    for share in (0.9, 0.98, 1.0):
        level = _clip_level(requests, np.full(3, share))
        left = np.minimum(requests, level[:, None]).sum(axis=1) / requests.sum(axis=1)
        assert left == pytest.approx(share, abs=1e-9)


def test_pooled_prices_bound_the_program_and_learnt_ones_meet_it() -> None:
    content = toy()
    chat = content["workloads"]["chat"]
    content["workloads"]["code"] = chat | {
        "model": "qwen3-32b",
        "requests_per_s": 30,
        "slo": {"ttft_s": 1.0, "tpot_s": 0.04},
    }
    with problem(content) as search:
        surrogate = search.surrogate
        policy = bought(search, 2, 1, 1, 2)
        fleet = surrogate.fleet(policy)
        exact = np.zeros((4, 2))
        for r, m in np.ndindex(4, 2):
            solved = surrogate._solve(r, m, fleet[r, m])
            assert solved is not None
            exact[r, m] = solved[0]
        assert (surrogate.scales(fleet).min(axis=0) >= exact - 1e-6).all()
        surrogate.learn(policy)
        logs, months = surrogate.log_loads(fleet)
        assert np.exp(logs) == pytest.approx(exact[np.arange(4), months], rel=0.01)
        assert np.exp(logs) == pytest.approx(exact.min(axis=1), rel=0.01)


def test_lambda_of_one_part_is_capacity_over_demand() -> None:
    """One part, one workload: the factor is nodes times rate over the clipped demand of the busiest hours."""
    content = toy(("2026-01-01",), 6, horizon_months=1)
    with problem(content) as search:
        surrogate = search.surrogate
        logs, _ = surrogate.log_loads(surrogate.fleet(bought(search, 4, 0)))
        group = len(surrogate.standing)
        rate = surrogate.rates[:, group, 0, 0]
        busiest = surrogate.urgent[:, 0].max(axis=1)[:, 0]
        assert np.exp(logs) == pytest.approx(4 * rate / busiest, rel=1e-6)


def test_the_smoothed_probability_is_the_integral_of_a_normal() -> None:
    """With log λ linear in one normal input the probability is Φ in closed form."""
    with problem(toy(("2026-01-01",), 6)) as search:
        surrogate = search.surrogate
        logs = np.linspace(-0.1, 0.3, len(surrogate.surveys))
        drawn = norm.ppf((np.arange(4096) + 0.5) / 4096)
        surrogate.regression = surrogate.regression.__class__(
            np.linalg.pinv(np.stack([np.ones(4), logs], axis=1)),
            np.stack([np.ones(4), logs], axis=1),
            np.stack([np.ones(4096), 0.1 + 0.2 * drawn], axis=1),
            ((0, -1),),
        )
        surrogate.log_loads = lambda _: (logs, np.zeros(4, dtype=np.intp))  # type: ignore[method-assign,assignment]
        surrogate.threshold = surrogate.threshold._replace(log=0.0, spread=0.05)
        surrogate.fixable = 0.95
        expected = 0.95 * norm.cdf(0.1 / np.hypot(0.2, 0.05))
        assert surrogate.probability_of(surrogate.fleet(bought(search, 1, 1))) == pytest.approx(
            expected, abs=2e-3
        )


def test_a_case_weighs_the_replications_so_that_their_mean_input_is_the_case_s(
    tmp_path: Path,
) -> None:
    content = toy(("2026-01-01",), 6)
    chat = content["workloads"]["chat"]
    chat["growth"] = {"kind": "by-year", "per_year": {"2026": 1.0}}
    study = written(content, tmp_path)
    study.write_text(f"{study.read_text()}throughput_error: false\n")
    with problem(content, study=study, replications=12) as search:
        surrogate = search.surrogate
        policy = bought(search, 1, 1)
        values, scores = surrogate.scores(0, (0.1, 0.9))
        assert values == pytest.approx([0.3, 2.7], abs=0.01)
        surveyed, _ = surrogate.standardised
        for score in scores.tolist():
            case = surrogate.given(0, score)
            assert case.chances.sum() == pytest.approx(1.0)
            mean = surveyed[:, 0].mean()
            assert case.chances @ surveyed[:, 0] == pytest.approx(mean + score)
            # log λ of every draw is then about what a replication with that growth has.
            logs, of_draws, _ = case.predicted_logs(case.fleet(policy))
            near = float(
                np.interp(score, *np.array(sorted(zip(surveyed[:, 0], logs, strict=True))).T)
            )
            assert of_draws.std() < 1e-9
            assert of_draws.mean() == pytest.approx(near, abs=0.05)
        assert surrogate.chances == pytest.approx(1.0 / 12)


def seen(search: Search, policy: Policy, met: int) -> Judged:
    """Return a policy that met the target in so many of a thousand replications."""
    one = whole(search, policy, 1)
    return dataclasses.replace(one, verdict=one.verdict._replace(met=met, replications=1000))


def test_predictions_are_moved_to_what_was_seen_of_a_policy(tmp_path: Path) -> None:
    content = toy(("2026-01-01",), 6)
    content["workloads"]["chat"]["growth"] = {"kind": "by-year", "per_year": {"2026": 1.0}}
    with problem(content, study=written(content, tmp_path), replications=12) as search:
        before = search.find(search.levers())
        assert before is not None
        search.expect(seen(search, before, 700))
        assert search.value(before)[1] == pytest.approx(0.7, abs=0.01)
        after = search.find(search.levers())
        assert after is not None
        assert search.value(after)[1] >= 0.9
        assert search.cost(after) > search.cost(before)
        # What one that serves more was seen to do tells how far that one is from enough.
        predicted = search.value(after)[1]
        for met in (940, 998):
            search.expect(seen(search, before, 700), seen(search, after, met))
            assert abs(search.value(after)[1] - met / 1000) < abs(predicted - met / 1000) + 0.002
            assert 0.65 < search.value(before)[1] < search.value(after)[1]


def test_after_a_block_that_passed_with_room_to_spare_a_cheaper_policy_is_a_candidate(
    tmp_path: Path,
) -> None:
    content = toy(("2026-01-01",), 6)
    content["workloads"]["chat"]["growth"] = {"kind": "by-year", "per_year": {"2026": 1.0}}
    with problem(content, study=written(content, tmp_path), replications=12) as search:
        levers = search.levers()
        ample = search.fullest(levers)
        arena = Arena(search.trial, search.archive, 200)
        block = seen(search, ample, 1000)
        arena.blocks.append(block)
        confirmation = Confirmation(
            judged=block,
            passed=True,
            attempt=1,
            interval=share_limits(1000, 1000, 0.025),
            lower_limit=0.99,
        )
        raced = [whole(search, ample, 4)]
        (cheaper,) = _as_seen(search, arena, confirmation, raced, levers)
        assert search.cost(cheaper.policy) < search.cost(ample)
        assert cheaper.worst.size == 4


@pytest.mark.parametrize("calm", [True, False])
def test_cost_is_predicted_within_some_hundredths(calm: bool) -> None:
    content = toy(("2026-01-01", "2026-02-01"), 6)
    for key in () if calm else CALM:
        del content[key]
    with problem(content) as search:
        for nodes in ((3, 0, 2, 0), (1, 2, 3, 0), (5, 0, 0, 0)):
            policy = bought(search, *nodes)
            assert search.cost(policy) == pytest.approx(whole(search, policy).cost, rel=0.04)
