"""Selection and confirmation: their limits against another library, their blocks, and the error they spend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from planner.sizing.evaluate import BLOCK, FIRST_CONFIRMATION, SELECTION, Judged
from planner.sizing.policy import Policy
from planner.sizing.selection import (
    ERROR,
    SPENT,
    Arena,
    allowed_misses,
    fewest_runs,
    share_limits,
)
from planner.sizing.size import cost_at, curve_of
from tests.sizing.toys import bought, ordered, problem, toy, whole, written


@pytest.mark.parametrize(("met", "runs"), [(0, 12), (12, 12), (41, 48), (185, 200)])
def test_the_limits_are_those_of_clopper_and_pearson(met: int, runs: int) -> None:
    limits = share_limits(met, runs, 0.025)
    assert limits == pytest.approx(binomtest(met, runs).proportion_ci(0.95, "exact"), abs=1e-9)


def test_attempts_spend_no_more_than_the_error_and_pass_no_poor_policy_more_often() -> None:
    """At the confidence itself, the share of blocks that pass is at most the error of the attempt, counted."""
    assert sum(SPENT) <= 1.0
    rng = np.random.default_rng(2)
    for confidence, runs in ((0.9, 200), (0.8, 75), (0.95, 400)):
        for share in SPENT[:3]:
            spare = allowed_misses(runs, confidence, ERROR * share)
            missed = rng.binomial(runs, 1.0 - confidence, 40_000)
            assert (missed <= spare).mean() <= ERROR * share + 0.003
            # One more would be too many.
            assert share_limits(runs - spare - 1, runs, ERROR * share).low < confidence
    assert allowed_misses(fewest_runs(0.9, ERROR / 8), 0.9, ERROR / 8) == 1


def test_a_confirmation_runs_one_policy_on_a_block_that_nothing_has_seen() -> None:
    with problem(toy(("2026-01-01",), 4)) as search:
        arena = Arena(search.trial, search.archive, 20)
        ample, scarce = bought(search, 4, 3), bought(search, 1, 0)
        raced = arena.race([ample, scarce], 3)
        met = {one.policy: one.verdict.share for one in raced}
        assert met == {ample: 1.0, scarce: 0.0}
        before = set(search.archive.known)
        assert {run[1] // BLOCK for run in before} == {SELECTION}
        first = arena.confirm_safe(scarce)
        second = arena.confirm_safe(ample)
        fresh = [run for run in search.archive.known if run not in before]
        blocks = {(run[0], run[1] // BLOCK) for run in fresh}
        assert blocks == {(scarce, FIRST_CONFIRMATION), (ample, FIRST_CONFIRMATION + 1)}
        assert not first.passed
        # Twenty runs are too few to confirm nine in ten, however many meet it.
        assert not second.passed
        assert second.judged.verdict[:2] == (20, 20)
        assert arena.needed() == 1.0
        longer = Arena(search.trial, search.archive, 200)
        assert 0.93 < longer.needed() < 0.98


def test_what_failed_tells_how_far_the_selection_was_too_kind_to_its_like() -> None:
    """A twin of a policy that failed at 100 of 128 is taken to meet as many; one that met more, that much more."""
    with problem(toy(("2026-01-01",), 4)) as search:
        template = whole(search, bought(search, 4, 3), 1)
        fields = {name: getattr(template, name) for name in template.__dataclass_fields__}
        confidence = template.verdict.confidence

        def judged_by(met: int, runs: int) -> Judged:
            worst = np.where(np.arange(runs) < met, 1.0, 0.5)
            verdict = template.verdict._replace(met=met, replications=runs)
            return template.__class__(**fields | {"worst": worst, "verdict": verdict})

        arena = Arena(search.trial, search.archive, 128)
        twin, better = judged_by(45, 48), judged_by(48, 48)
        hoped = arena.is_enough(better)
        arena.failed.append((judged_by(45, 48), judged_by(100, 128)))
        assert arena._seen(twin) == pytest.approx((145.0, 31.0))
        assert arena._seen(better) == pytest.approx((48.0 + 108.0, 20.0))
        assert hoped
        # Needed is what passes the next block four times of five.
        spare = allowed_misses(128, 0.9, ERROR * SPENT[0])
        assert binom.cdf(spare, 128, 1.0 - arena.needed()) == pytest.approx(0.8)
        assert confidence == 0.9
        assert not arena.is_enough(twin)
        assert not arena.is_enough(better)


def test_blocks_draw_inputs_by_scramblings_of_their_own(tmp_path: Path) -> None:
    with problem(ordered(), study=written(ordered(), tmp_path), replications=2) as search:
        trial = search.trial
        draws = [trial.drawn(block, 0, 64)[:, 0] for block in range(3)]
        for draw in draws:
            # A scrambled net: each eighth of the growth from 0 to 3 has its share of the points.
            shares, _ = np.histogram(draw, bins=8, range=(0.0, 3.0))
            assert shares.max() <= 16
        assert not np.isin(draws[0], draws[1]).any()
        assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 0.5


def test_the_curve_names_the_cheapest_at_each_probability_and_ways_are_brought_to_one() -> None:
    with problem(toy(("2026-01-01",), 4)) as search:
        one = whole(search, bought(search, 4, 3), 1)

        def at(cost: float, met: int) -> Judged:
            policy = Policy(purchases=(int(cost), 0))
            verdict = one.verdict._replace(met=met, replications=100)
            return one.__class__(
                **{name: getattr(one, name) for name in one.__dataclass_fields__}
                | {"policy": policy, "verdict": verdict, "costs": np.full(100, cost)}
            )

        raced = [at(10, 50), at(11, 86), at(12, 93), at(13, 92), at(20, 97)]
        curve = curve_of(raced)
        assert [point.answers for point in curve] == [(), (0.85,), (0.9,), (), (0.95,)]
        assert [point.is_cliff for point in curve] == [False, True, False, False, False]
        assert [point.is_knee for point in curve] == [False, False, True, False, False]
        assert cost_at(raced, 0.9) == pytest.approx((0.9, 11 + 4 / 7))
        assert cost_at(raced, 0.99) == (0.97, 20.0)
