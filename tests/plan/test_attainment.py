"""The SLO target against figures worked out by hand, and against a count by exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from planner.plan.attainment import SloResult, Verdict, run_out, shortfall_over
from planner.plan.attainment import judge as judge_plan
from planner.plan.plan import Plan
from planner.scenario.scenario import SloTarget

PROMISE = SloTarget()

# Months by workloads: chat keeps 99% in every month; code, a hundredth of it, misses half of the third month.
SETTLED = np.array([[1e6, 1e4], [1e6, 1e4], [1e6, 1e4], [1e6, 1e4]])
MISSED = np.array([[1e3, 0.0], [1e4, 100.0], [1e3, 5e3], [0.0, 6e3]])


def judge(missed: np.ndarray, settled: np.ndarray, target: SloTarget) -> SloResult:
    """Judge requests by a target, those of a plan whose workloads are called 0 and 1."""
    loads = [SimpleNamespace(name=str(w)) for w in range(missed.shape[1])]
    plan = SimpleNamespace(slo_target=target, workloads=loads)
    plan.slo_attainments = Plan.slo_attainments.__get__(plan)
    return judge_plan(plan, missed, settled)  # type: ignore[arg-type]


def where(verdict: SloResult) -> tuple[Any, ...]:
    assert verdict.first_missed is not None
    first = verdict.first_missed
    return first.month, first.workload, first.slo_attainment_fraction


def test_each_month_and_workload_must_keep_it() -> None:
    """99% exactly is kept; the third month's code breaks with 50%, the fourth is worst with 40%."""
    verdict = judge(MISSED, SETTLED, PROMISE)
    assert not verdict.is_met
    assert where(verdict) == (2, 1, pytest.approx(0.5))
    assert verdict.worst is not None
    assert (verdict.worst.month, verdict.worst.workload) == (3, 1)
    assert verdict.shortfall_fraction == pytest.approx(0.59)
    assert verdict.met_months(4) == 2


def test_what_nobody_asked_for_is_kept() -> None:
    nothing = np.zeros((3, 2))
    verdict = judge(nothing, nothing, PROMISE)
    assert verdict.is_met
    assert verdict.worst is None
    late = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert where(judge(late, np.array([[0.0, 5.0], [0.0, 2.0], [0.0, 0.0]]), PROMISE)) == (
        1,
        1,
        0.5,
    )


counts = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=6)
slo_targets = st.builds(
    SloTarget,
    attainment=st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]),
    per=st.sampled_from(["month", "horizon"]),
    scope=st.sampled_from(["workload", "fleet"]),
    confidence=st.sampled_from([0.5, 0.9, 0.99]),
)


@st.composite
def served(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Missed and settled requests, whole numbers, of some months and two workloads."""
    settled = draw(counts)
    missed = [tuple(draw(st.integers(0, most)) for most in month) for month in settled]
    return np.array(missed, dtype=np.float64), np.array(settled, dtype=np.float64)


def counted(
    missed: np.ndarray, settled: np.ndarray, slo_target: SloTarget
) -> tuple[Fraction, int | None]:
    """Return the worst share and the first month that breaks, counted request by request in whole numbers."""
    groups = [[0], [1]] if slo_target.scope == "workload" else [[0, 1]]
    worst = Fraction(1)
    first = None
    for columns in groups:
        rows = [
            (int(m[columns].sum()), int(s[columns].sum()))
            for m, s in zip(missed, settled, strict=True)
        ]
        if slo_target.per == "horizon":
            whole = sum(s for _, s in rows)
            rows = [(sum(m for m, _ in rows[: end + 1]), whole) for end in range(len(rows))]
        for month, (lost, whole) in enumerate(rows):
            if whole:
                share = 1 - Fraction(lost, whole)
                worst = min(worst, share)
                if share < Fraction(str(slo_target.attainment)) and (
                    first is None or month < first
                ):
                    first = month
    return worst, first


@given(served(), slo_targets)
def test_it_agrees_with_a_count_in_whole_numbers(
    requests: tuple[np.ndarray, np.ndarray], slo_target: SloTarget
) -> None:
    missed, settled = requests
    verdict, (worst, first) = (
        judge(missed, settled, slo_target),
        counted(missed, settled, slo_target),
    )
    assert verdict.is_met == (first is None)
    assert (None if verdict.first_missed is None else verdict.first_missed.month) == first
    assert verdict.shortfall_fraction == pytest.approx(
        max(0.0, slo_target.attainment - float(worst)), abs=1e-6
    )
    if verdict.worst is not None:
        assert verdict.worst.slo_attainment_fraction == pytest.approx(float(worst), abs=1e-12)


@given(served(), slo_targets, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_workloads_with_attainments_of_their_own_are_judged_as_each_would_be_alone(
    requests: tuple[np.ndarray, np.ndarray], slo_target: SloTarget, first: float, second: float
) -> None:
    target = slo_target.model_copy(update={"scope": "workload"})
    together = judge(*requests, target.model_copy(update={"workloads": {"0": first, "1": second}}))
    alone = [
        judge(
            requests[0][:, [w]],
            requests[1][:, [w]],
            target.model_copy(update={"attainment": share}),
        )
        for w, share in enumerate((first, second))
    ]
    assert together.is_met == all(one.is_met for one in alone)
    assert together.shortfall_fraction == pytest.approx(
        max(one.shortfall_fraction for one in alone), abs=1e-12
    )
    assert together.met_months(99) == min(one.met_months(99) for one in alone)


def test_enough_replications_must_keep_it() -> None:
    """Of 20 replications 18 make nine in ten; with 17 the 18th is what it falls short by."""
    kept = np.zeros(20)
    kept[[3, 7]] = 0.2, 0.1
    assert shortfall_over(kept, 0.9) == 0.0
    kept[0] = 0.05
    assert shortfall_over(kept, 0.9) == pytest.approx(0.05)
    assert shortfall_over(kept, 1.0) == pytest.approx(0.2)
    assert shortfall_over(np.append(kept[[3, 7]], np.nan), 0.5) == pytest.approx(0.1)
    assert math.isnan(shortfall_over(np.array([np.nan]), 0.9))


@given(st.integers(1, 400), st.data())
def test_a_verdict_is_what_the_posterior_of_its_replications_says(
    number: int, data: st.DataObject
) -> None:
    """Jeffreys' interval by scipy; MET and MISSED are 95% sure, and more of the same never unsettles them."""
    met = data.draw(st.integers(0, number))
    confidence = data.draw(st.sampled_from([0.5, 0.9, 0.95, 0.99]))
    verdict = Verdict(met, number, confidence)
    posterior = beta(met + 0.5, number - met + 0.5)
    low, high = verdict.interval
    assert low == pytest.approx(posterior.ppf(0.05) if met else 0.0, abs=2e-4)
    assert high == pytest.approx(posterior.ppf(0.95) if met < number else 1.0, abs=2e-4)
    assert 0.0 <= low <= verdict.share <= high <= 1.0
    surely = {"MET": posterior.sf(confidence), "MISSED": posterior.cdf(confidence)}
    if abs(low - confidence) > 3e-4 and abs(high - confidence) > 3e-4:
        assert verdict.status == next((s for s, p in surely.items() if p > 0.95), "INCONCLUSIVE")
    if verdict.status != "INCONCLUSIVE":
        assert Verdict(2 * met, 2 * number, confidence).status == verdict.status
    elif (more := verdict.settled_by) is not None:
        assert Verdict(round(met / number * more), more, confidence).status != "INCONCLUSIVE"


def test_nineteen_of_nineteen_are_the_fewest_round_number_that_meets_nine_in_ten() -> None:
    assert Verdict(19, 19, 0.9).status == "MET"
    assert Verdict(17, 17, 0.9).status == "INCONCLUSIVE"
    assert Verdict(0, 1, 0.9).status == "MISSED"
    assert Verdict(1, 1, 0.9).settled_by == 19
    assert Verdict(0, 0, 0.9).status == "INCONCLUSIVE"
    assert Verdict(0, 0, 0.9).settled_by is None


def test_every_missed_month_is_named_and_run_out_is_the_share_that_first_misses_in_each() -> None:
    missed = np.array([[0.0], [5.0], [0.0], [9.0]])
    settled = np.full((4, 1), 100.0)
    verdict = judge(missed, settled, SloTarget(attainment=0.98))
    assert verdict.missed_months == (1, 3)
    assert verdict.met_months(4) == 1
    assert judge(0.0 * missed, settled, SloTarget(attainment=0.98)).missed_months == ()
    labels = ("2026-01", "2026-02", "2026-03", "2026-04")
    shares = run_out(
        np.array([1.0, 4.0, 1.0, 3.0, np.nan]), labels
    )  # one meets all, one could not be run
    assert shares == {"2026-02": 0.5, "2026-04": 0.25}
    assert run_out(np.array([4.0, 4.0]), labels) == {}
