"""Selection and confirmation: their limits against another library, their blocks, and the error they spend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from planner.sizing.archive import Archive
from planner.sizing.evaluate import (
    BLOCK,
    FIRST_CONFIRMATION,
    SELECTION,
    Judged,
    Run,
    SizingOutcome,
)
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


def test_the_first_confirmation_passes_after_the_fewest_runs_or_after_all_of_them() -> None:
    with problem(toy(("2026-01-01",), 4)) as search:
        policy = bought(search, 4, 3)
        met, missed = search.archive.outcomes(
            [(policy, SELECTION * BLOCK), (bought(search, 1, 0), SELECTION * BLOCK)]
        )

        def confirmed(*misses: int) -> tuple[bool, int]:
            """Return whether a block with these misses passes, and how many of its runs were made."""
            arena = Arena(search.trial, _Scripted(search.archive, met, missed, misses), 128)
            confirmation = arena.confirm_safe(policy)
            return confirmation.passed, confirmation.judged.verdict.replications

        fewest = fewest_runs(0.9, ERROR * SPENT[0] / 2)
        spare = allowed_misses(128, 0.9, ERROR * SPENT[0] / 2)
        assert (fewest, spare) == (77, 4)
        assert confirmed() == (True, 77)
        assert confirmed(5) == (True, 77)
        assert confirmed(5, 76) == (True, 128)
        assert confirmed(5, 77) == (True, 77)
        assert confirmed(5, 20, 77, 127) == (True, 128)
        # After the batch of sixteen that holds the fifth miss no further one is run.
        assert confirmed(5, 20, 77, 78, 79) == (False, 93)
    # At the confidence itself both looks together pass no more often than the error of the attempt.
    rng = np.random.default_rng(3)
    misses = (rng.random((40_000, 128)) < 0.1).cumsum(axis=1)
    passed = (misses[:, 76] <= 1) | (misses[:, 127] <= 4)
    assert passed.mean() <= ERROR * SPENT[0]


class _Scripted(Archive):
    """An archive in which a policy misses the target in given places of every block."""

    def __init__(
        self, archive: Archive, met: SizingOutcome, missed: SizingOutcome, misses: tuple[int, ...]
    ) -> None:
        super().__init__(archive.workers, archive.clock)
        self.by_place = [missed if place in misses else met for place in range(128)]

    def outcomes(self, runs: Sequence[Run]) -> list[SizingOutcome]:
        return [self.by_place[replication % BLOCK] for _, replication in runs]


def test_a_prediction_counts_as_runs_and_the_block_goes_where_it_is_likely_to_save_most() -> None:
    with problem(toy(("2026-01-01",), 4)) as search:
        template = whole(search, bought(search, 4, 3), 1)
        fields = {name: getattr(template, name) for name in template.__dataclass_fields__}

        def at(cost: float, met: int) -> Judged:
            verdict = template.verdict._replace(met=met, replications=12)
            changes = {"policy": Policy(purchases=(int(cost), 0)), "verdict": verdict}
            return template.__class__(**fields | changes | {"costs": np.full(12, cost)})

        predicted = {10: 0.5, 60: 0.8, 80: 0.97, 99: 0.99, 100: 0.99}
        arena = Arena(
            search.trial, search.archive, 128, lambda policy: predicted[policy.purchases[0]]
        )
        assert arena._seen(at(60, 11)) == pytest.approx((11 + 0.8 * 32, 1 + 0.2 * 32))
        # Needed is what passes the next block four times of five.
        spare = allowed_misses(128, 0.9, ERROR * SPENT[0])
        assert binom.cdf(spare, 128, 1.0 - arena.needed()) == pytest.approx(0.8)
        candidates = [at(10, 12), at(60, 12), at(80, 12), at(99, 12)]
        # Before any is confirmed, the cheapest that is likely to pass.
        likely = [one for one in candidates if arena.is_enough(one)]
        assert arena._next(candidates, np.inf, 12).judged.cost == min(one.cost for one in likely)
        # The cheapest would save most and hardly pass; the dearest would pass and save nothing.
        assert arena._next(candidates, 100.0, 12).judged.cost == 80.0
        assert not list(arena.confirmations([at(99, 12)], at(100, 12)))
        assert arena.attempts == 0  # no block for one percent


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
        seen = Arena(search.trial, search.archive, 128).likelihood
        assert cost_at(raced, 0.9, seen) == pytest.approx((0.9, 11 + 4 / 7))
        assert cost_at(raced, 0.99, seen) == (0.97, 20.0)
        # What is predicted counts as 32 runs beside the hundred that were seen.
        known = Arena(search.trial, search.archive, 128, lambda policy: 0.5).likelihood
        assert known(raced[2]) == pytest.approx((93 + 16) / 132)
