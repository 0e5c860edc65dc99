from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from planner.scenario import study as language
from planner.studies.distributions import TAIL, is_numeric, is_smooth, quantile, value_of

U = np.linspace(0.001, 0.999, 501)


def test_triangular_is_scipys() -> None:
    ours = quantile(language.Triangular(kind="triangular", low=2, mode=3, high=7), U)
    assert ours == pytest.approx(stats.triang(c=0.2, loc=2, scale=5).ppf(U), rel=1e-12)


def test_pert_is_a_beta_with_the_classic_mean() -> None:
    ours = quantile(language.Pert(kind="pert", low=2, mode=3, high=7), U)
    assert ours == pytest.approx(
        stats.beta(1 + 4 * 0.2, 1 + 4 * 0.8, loc=2, scale=5).ppf(U), rel=1e-9
    )
    fine = quantile(
        language.Pert(kind="pert", low=2, mode=3, high=7), (np.arange(20000) + 0.5) / 20000
    )
    assert fine.mean() == pytest.approx((2 + 4 * 3 + 7) / 6, rel=1e-4)


def test_normal_and_lognormal_are_scipys() -> None:
    assert quantile(language.Normal(kind="normal", mean=5, sd=2), U) == pytest.approx(
        stats.norm(5, 2).ppf(U)
    )
    ours = quantile(language.Lognormal(kind="lognormal", median=3, sigma=0.4), U)
    assert ours == pytest.approx(stats.lognorm(0.4, scale=3).ppf(U))


def test_cut_tails_are_scipys_truncated_normal() -> None:
    ours = quantile(language.Normal(kind="normal", mean=0, sd=1, low=-0.5, high=2), U)
    assert ours == pytest.approx(stats.truncnorm(-0.5, 2).ppf(U), rel=1e-8, abs=1e-10)
    logs = quantile(language.Lognormal(kind="lognormal", median=1, sigma=1, low=0.5, high=4), U)
    assert logs.min() >= 0.5
    assert logs.max() <= 4


@given(
    low=st.floats(-1000, 1000),
    steps=st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)),
    bound=st.sampled_from([(None, None), ("low", None), (None, "high"), ("low", "high")]),
)
def test_percentiles_go_through_their_three_points(
    low: float, steps: tuple[float, float], bound: tuple[str | None, str | None]
) -> None:
    p10 = low
    p50 = low + steps[0]
    p90 = low + steps[0] + steps[1]
    distribution = language.Percentiles(
        kind="percentiles",
        p10=p10,
        p50=p50,
        p90=p90,
        low=p10 - 50 if bound[0] else None,
        high=p90 + 50 if bound[1] else None,
    )
    at = quantile(distribution, np.array([0.1, 0.5, 0.9]))
    assert at == pytest.approx([p10, p50, p90], rel=1e-9, abs=1e-6)
    drawn = quantile(distribution, U)
    if is_smooth(distribution):
        assert np.all(np.diff(drawn) >= 0)
    if bound[0]:
        assert drawn.min() >= p10 - 50
    if bound[1]:
        assert drawn.max() <= p90 + 50


def test_lopsided_percentiles_are_found_out() -> None:
    assert not is_smooth(language.Percentiles(kind="percentiles", p10=1, p50=1.0001, p90=5))
    assert not is_smooth(language.Percentiles(kind="percentiles", p10=1, p50=2, p90=3, low=1.0))


def test_discrete_takes_its_weights() -> None:
    distribution = language.Discrete(kind="discrete", values=(10, 20, 30), weights=(1, 2, 1))
    drawn = quantile(distribution, (np.arange(1000) + 0.5) / 1000)
    assert [(drawn == v).mean() for v in (10, 20, 30)] == [0.25, 0.5, 0.25]
    assert is_numeric(distribution)
    assert value_of(distribution, 20.0) == 20.0


def test_words_and_dates_are_drawn_by_place() -> None:
    day = datetime.date(2026, 9, 1)
    distribution = language.Discrete(kind="discrete", values=(day, "never"))
    assert not is_numeric(distribution)
    assert quantile(distribution, np.array([0.2, 0.8])).tolist() == [0.0, 1.0]
    assert value_of(distribution, 0.0) == day
    assert value_of(distribution, 1.0) == "never"


def test_no_tail_is_endless() -> None:
    drawn = quantile(language.Normal(kind="normal", mean=0, sd=1), np.array([0.0, 1.0]))
    assert drawn == pytest.approx(stats.norm.ppf([TAIL, 1 - TAIL]))
