"""The closed form for bursts against request-level runs and against queueing theory."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.demand.bursts import BurstConditions, ServerPool, erlang_c, miss_share, miss_table, refused_share
from planner.errors import ScenarioError

SLACKS_S = (0.5, 2.0, 8.0)


def _arrivals_s(
    requests_per_s: float, dispersion: float, minutes: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Arrival times of a Poisson stream whose rate is a fresh gamma draw every minute."""
    variance_ratio = (dispersion - 1.0) / (60.0 * requests_per_s)
    rates = (
        generator.gamma(1 / variance_ratio, requests_per_s * variance_ratio, minutes)
        if dispersion > 1
        else requests_per_s
    )
    counts = generator.poisson(np.broadcast_to(rates, minutes) * 60.0)
    return np.sort(np.repeat(np.arange(minutes) * 60.0, counts) + 60.0 * generator.random(counts.sum()))


def _waits_s(times_s: NDArray[np.float64], services_s: NDArray[np.float64], servers: int) -> NDArray[np.float64]:
    """Waits of requests served in order: Lindley's recursion, or a heap of the times servers are free."""
    if servers == 1:
        behind = np.concatenate([[0.0], np.cumsum(services_s[:-1])]) - times_s
        return np.asarray(behind - np.minimum.accumulate(behind))
    free = [0.0] * servers
    waits = np.empty(times_s.size)
    for i, (arrival, service) in enumerate(zip(times_s.tolist(), services_s.tolist(), strict=True)):
        begin = max(arrival, free[0])
        waits[i] = begin - arrival
        heapq.heapreplace(free, begin + service)
    return waits


@pytest.mark.parametrize(
    ("requests_per_s", "dispersion", "servers", "minutes"),
    [
        (36.0, 12.0, None, 4000),
        (5.0, 12.0, None, 20_000),
        (5.0, 4.0, 1, 20_000),
        (2.0, 12.0, 1, 30_000),
        (5.0, 12.0, 16, 3000),
    ],
)
@pytest.mark.parametrize("utilisation", [0.8, 0.9])
def test_share_that_misses_is_that_of_a_request_level_run(
    requests_per_s: float, dispersion: float, servers: int | None, minutes: int, utilisation: float
) -> None:
    """Within a quarter (and four standard errors over twenty batches) of the run, down to shares of half a percent."""
    generator = np.random.default_rng(20)
    times_s = _arrivals_s(requests_per_s, dispersion, minutes, generator)
    if servers is None:  # so many slots that the pool drains work like one fast, even server
        services_s = np.full(times_s.size, utilisation / requests_per_s)
    else:
        services_s = generator.standard_exponential(times_s.size) * servers * utilisation / requests_per_s
    waits_s = _waits_s(times_s, services_s, servers or 1)
    pool = None if servers is None else ServerPool(servers=servers)
    for slack_s in SLACKS_S:
        conditions = BurstConditions(
            requests_per_s=requests_per_s, slack_s=slack_s, index_of_dispersion=dispersion, pool=pool
        )
        batches = np.array([np.mean(batch > slack_s) for batch in np.array_split(waits_s, 20)])
        error = batches.std(ddof=1) / np.sqrt(20)
        seen = batches.mean()
        assert abs(float(miss_share(conditions, utilisation)) - seen) < max(0.25 * seen, 0.005) + 4 * error


def _poisson(servers: int, slack_s: float, service_cv: float = 1.0) -> BurstConditions:
    pool = ServerPool(servers=servers, service_cv=service_cv)
    return BurstConditions(requests_per_s=10.0, slack_s=slack_s, index_of_dispersion=1.0, pool=pool)


@settings(deadline=None)
@given(st.floats(0.05, 0.98), st.floats(0.0, 5.0))
def test_poisson_arrivals_at_one_server_are_m_m_1(rho: float, slack_s: float) -> None:
    """P(W > t) = ρ exp(−(μ − λ) t)."""
    expected = rho * math.exp(-(10.0 / rho - 10.0) * slack_s)
    assert float(miss_share(_poisson(1, slack_s), rho)) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@settings(deadline=None)
@given(st.integers(1, 40), st.floats(0.05, 0.98), st.floats(0.0, 5.0))
def test_poisson_arrivals_at_many_servers_are_m_m_c(servers: int, rho: float, slack_s: float) -> None:
    """P(W > t) = C(c, a) exp(−(cμ − λ) t), C from its defining sum."""
    load = servers * rho
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) / (1 - rho)
    expected = last / (sum(terms) + last) * math.exp(-(10.0 / rho - 10.0) * slack_s)
    assert float(miss_share(_poisson(servers, slack_s), rho)) == pytest.approx(expected, rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("service_cv", [0.0, 0.5, 1.0, 2.0])
def test_mean_wait_is_pollaczek_and_khinchines(service_cv: float) -> None:
    """∫ P(W > t) dt = ρ (1 + cv²) / (2 μ (1 − ρ)) for M/G/1."""
    rho = 0.8
    grid_s = np.linspace(0.0, 20.0, 4001)
    tail = np.array([float(miss_share(_poisson(1, float(t), service_cv), rho)) for t in grid_s])
    expected = rho * (1 + service_cv**2) / (2 * (10.0 / rho) * (1 - rho))
    assert np.trapezoid(tail, grid_s) == pytest.approx(expected, rel=1e-3)


def test_erlang_c_of_a_textbook_case() -> None:
    assert float(erlang_c(10, 8.0)) == pytest.approx(0.40918, abs=1e-5)  # 10 agents, 8 erlangs
    np.testing.assert_allclose(erlang_c(1, [0.3, 0.9]), [0.3, 0.9])


@settings(deadline=None, max_examples=30)
@given(st.floats(1.0, 60.0), st.floats(0.5, 500.0), st.floats(0.0, 20.0))
def test_share_is_a_probability_that_rises_with_load(dispersion: float, requests_per_s: float, slack_s: float) -> None:
    table = miss_table(BurstConditions(requests_per_s=requests_per_s, slack_s=slack_s, index_of_dispersion=dispersion))
    share = table.share(np.linspace(0.0, 1.2, 500))
    assert np.all((share >= -1e-12) & (share <= 1.0 + 1e-12))
    assert np.all(np.diff(share) >= -1e-9)
    assert share[0] == 0.0
    assert share[-1] == 1.0


def test_share_rises_with_bursts_and_falls_with_slack() -> None:
    def share(dispersion: float, slack_s: float) -> float:
        return float(
            miss_share(BurstConditions(requests_per_s=36.0, slack_s=slack_s, index_of_dispersion=dispersion), 0.9)
        )

    assert share(1.0, 2.0) < share(4.0, 2.0) < share(12.0, 2.0) < share(40.0, 2.0)
    assert share(12.0, 0.0) > share(12.0, 1.0) > share(12.0, 10.0)


def test_poisson_limit_is_reached_smoothly() -> None:
    almost = BurstConditions(requests_per_s=10.0, slack_s=0.5, index_of_dispersion=1.0001, pool=ServerPool(servers=1))
    exact = float(miss_share(_poisson(1, 0.5), 0.9))
    assert float(miss_share(almost, 0.9)) == pytest.approx(exact, rel=0.03)


def test_table_follows_the_formula_between_its_points() -> None:
    conditions = BurstConditions(requests_per_s=36.0, slack_s=2.0)
    loads = np.random.default_rng(2).random((40, 5))
    got, exact = miss_table(conditions).share(loads), miss_share(conditions, loads)
    assert got.shape == (40, 5)
    assert miss_table(conditions).share([-0.5, 0.0, 1.0, 7.0]).tolist() == [0.0, 0.0, 1.0, 1.0]
    np.testing.assert_allclose(got, exact, atol=0.002)


def test_size_of_bursts_follows_from_the_index() -> None:
    """At 36 requests/s an index of 12 is a rate that varies by 7% from minute to minute."""
    conditions = BurstConditions(requests_per_s=36.0, slack_s=1.0)
    counts = np.bincount((_arrivals_s(36.0, 12.0, 4000, np.random.default_rng(1)) // 60).astype(int))
    assert counts.var() / counts.mean() == pytest.approx(12.0, rel=4 * math.sqrt(2 / 4000))
    assert conditions.minute_rate_cv == pytest.approx(math.sqrt(11 / 2160))


def test_bad_conditions_are_refused_all_at_once() -> None:
    with pytest.raises(ScenarioError, match=r"(?s)requests_per_s.*slack_s.*burst_index_of_dispersion.*servers"):
        BurstConditions(requests_per_s=0.0, slack_s=-1.0, index_of_dispersion=0.5, pool=ServerPool(servers=0))


@pytest.mark.parametrize("dispersion", [50.0, 1e3, 1e5])
def test_a_trickle_with_any_variation_has_a_share(dispersion: float) -> None:
    for rate in (1e-3, 1e-12, 5e-324):
        conditions = BurstConditions(requests_per_s=rate, slack_s=2.0, index_of_dispersion=dispersion)
        share = miss_share(conditions, np.linspace(0.0, 1.0, 11))
        assert np.all((share >= 0.0) & (share <= 1.0))


@pytest.mark.parametrize(("requests_per_s", "slack_s", "rho"), [(40.0, 0.0, 0.95), (40.0, 2.0, 1.0), (5.0, 2.0, 0.8)])
def test_refused_requests_are_what_a_bounded_queue_has_no_room_for(
    requests_per_s: float, slack_s: float, rho: float
) -> None:
    conditions = BurstConditions(requests_per_s=requests_per_s, slack_s=slack_s, index_of_dispersion=12.0)
    variance = 11.0 / (60.0 * requests_per_s)
    factors = np.random.default_rng(1).gamma(1.0 / variance, variance, 200_000)
    lost_s = np.maximum(rho * factors * 60.0 - 60.0 - slack_s, 0.0)  # work of a minute that finds no room
    error = lost_s.std() / np.sqrt(factors.size) / (60.0 * rho)
    assert float(refused_share(conditions, rho)) == pytest.approx(lost_s.mean() / (60.0 * rho), abs=4.0 * error)


def test_without_bursts_nothing_is_refused_up_to_capacity() -> None:
    conditions = BurstConditions(requests_per_s=40.0, slack_s=0.0, index_of_dispersion=1.0)
    assert refused_share(conditions, np.array([0.0, 0.5, 1.0])) == pytest.approx([0.0, 0.0, 0.0])
