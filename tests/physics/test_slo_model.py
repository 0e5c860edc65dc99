"""The share of requests in time against queueing theory, draws, and what must hold."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.replica import (
    Lengths,
    Replicas,
    ReplicaSpec,
    ReplicaTimes,
    ServiceTerms,
    price_replicas,
)
from planner.physics.slo_model import (
    CELLS,
    MissCurve,
    Thinning,
    late_curve,
    late_first,
    late_tokens,
    prompts_behind,
    rate_bounds,
    refusing,
    sustains_more,
    waits_beyond,
)
from tests.shipped import shipped_calibration

ASKED = ServiceTerms(ttft_s=2.0, tpot_s=0.05, percentile=0.99, pooled_replicas=8.0)


def lengths(spread: float = 0.8) -> Lengths:
    """A thousand prompts of 1,200 tokens and twenty outputs of 300, spread about as chat is."""
    generator = np.random.default_rng(5)
    prompts = generator.lognormal(np.log(1200.0) - spread**2 / 2, spread, 1000)
    outputs = np.sort(generator.lognormal(np.log(300.0) - spread**2 / 2, spread, 20))
    even = np.full(1000, 1e-3)
    return Lengths(
        prompt_tokens=np.maximum(prompts, 1.0), prompt_weights=even, output_tokens=np.maximum(outputs, 1.0),
        output_weights=np.full(20, 0.05), cached_fraction=0.3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def h200() -> Replicas:
    catalog = load_catalog()
    part = part_of("H200", catalog)
    shape = shape_of("llama-3.1-70b", catalog)
    spec = ReplicaSpec(part=part, shape=shape, precision="fp8", accelerators=2, engine="vllm")
    return price_replicas([spec], shipped_calibration())


def _bare(h200: Replicas) -> Replicas:
    """The same replica whose steps take nothing: prompts alone."""
    nothing = np.zeros(1)
    return {
        **h200,
        "fixed_s": np.full(1, 1e-9),
        "sequence_s": nothing,
        "kv_s_per_token": nothing,
        "attention_s_per_token2": nothing,
        "ttft_fixed_s": nothing,
        "prefill_s_per_token": np.full(1, 1e-3),
        "stream_s": nothing,
        "routed_s": nothing,
    }  # fmt: skip


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_exponential_prompts_wait_as_in_an_m_m_1_queue(h200: Replicas, busy: float) -> None:
    """P(wait > t) = ρ exp(−(1 − ρ) t / E[S])."""
    cells = (np.arange(2000) + 0.5) / 2000
    prompts = -np.log1p(-cells) * 100.0  # 0.1 s each on the average
    of = Lengths(
        prompt_tokens=prompts, prompt_weights=np.full(2000, 1 / 2000), output_tokens=np.ones(1),
        output_weights=np.ones(1), cached_fraction=0.0,
    )  # fmt: skip
    replica = ReplicaTimes(_bare(h200), 0, 1.0, of)
    rate = np.array([busy / replica.mean_prefill_s])
    cell_s = 2.0 / CELLS
    over = waits_beyond(replica, cell_s, rate, np.full(1, 1e-9))[0]
    for t in (0.1, 0.3, 1.0):
        expected = busy * np.exp(-(1.0 - busy) * t / replica.mean_prefill_s)
        # A node's mass lies half on either side of it.
        place = round(t / cell_s)
        seen = 0.5 * float(over[place - 1] + over[place])
        assert seen == pytest.approx(
            expected * np.exp((1 - busy) * (t - place * cell_s) / replica.mean_prefill_s),
            rel=0.03,
            abs=1e-4,
        )


def test_prompts_beside_a_reply_are_those_of_draws(h200: Replicas) -> None:
    """One output length, many replicas pooled: late where the prefills beside it take more than o (τ − D)."""
    of = dataclasses.replace(lengths(), output_tokens=np.full(1, 60.0), output_weights=np.ones(1))
    asked = dataclasses.replace(ASKED, pooled_replicas=1e9)
    replica = ReplicaTimes(h200, 0, 1.0, of)
    batch = np.array([26.0])
    tpot_s = replica.decode_s(batch) + batch * replica.mean_prefill_s / replica.output
    rate = batch / (replica.output * tpot_s)
    late = float(late_tokens(replica, asked, batch, rate)[0])
    generator = np.random.default_rng(2)
    counts = generator.poisson(float(rate[0] * tpot_s[0]) * 59.0 * 25.0 / 26.0, 40_000)
    owner = np.repeat(np.arange(counts.size), counts)
    beside_s = np.bincount(owner, generator.choice(replica.prefill_s, counts.sum()), counts.size)
    seen = float(np.mean(beside_s > 59.0 * (0.05 - float(replica.decode_s(batch)[0]))))
    assert 0.01 < seen < 0.9
    assert late == pytest.approx(seen, abs=0.015)


def test_more_load_is_never_more_in_time_and_a_router_that_sees_more_keeps_more(
    h200: Replicas,
) -> None:
    rates = []
    for pooled in (1.0, 4.0, 64.0):
        curve = late_curve(
            ReplicaTimes(h200, 0, 1.0, lengths()),
            dataclasses.replace(ASKED, pooled_replicas=pooled),
        )
        assert np.all(np.diff(curve.late_fraction) >= 0.0)
        assert np.all(np.diff(curve.requests_per_s) > 0.0)
        rates.append(curve.capacity_requests_per_s)
    assert rates == sorted(rates)
    assert rates[0] < 0.95 * rates[-1]


def test_a_stricter_share_serves_less_and_a_prompt_too_long_is_late_at_any_load(
    h200: Replicas,
) -> None:
    curve = late_curve(ReplicaTimes(h200, 0, 1.0, lengths()), ASKED)
    loose, strict = (
        late_curve(
            ReplicaTimes(h200, 0, 1.0, lengths()), dataclasses.replace(ASKED, percentile=share)
        ).capacity_requests_per_s
        for share in (0.9, 0.999)
    )
    assert loose > 1.05 * curve.capacity_requests_per_s > strict
    few = lengths()
    few.prompt_tokens[:30] = 100_000.0  # three in a hundred take ten seconds each
    long = late_curve(ReplicaTimes(h200, 0, 1.0, few), ASKED)
    assert long.too_long_fraction == pytest.approx(0.03, abs=0.004)
    assert long.late_fraction[0] >= long.too_long_fraction


def test_half_of_what_may_be_late_is_left_to_those_that_are_not_too_long(h200: Replicas) -> None:
    curve = late_curve(
        ReplicaTimes(h200, 0, 1.0, lengths()), dataclasses.replace(ASKED, ttft_s=0.15)
    )
    assert curve.too_long_fraction > 0.05
    late = float(
        np.interp(curve.capacity_requests_per_s, curve.requests_per_s, curve.late_fraction)
    )
    assert 1.0 - late <= (1.0 - curve.late_fraction[0]) * (1.0 - 0.005) * (1.0 + 1e-9)
    assert (
        curve.capacity_requests_per_s
        > 0.1 * late_curve(ReplicaTimes(h200, 0, 1.0, lengths()), ASKED).capacity_requests_per_s
    )
    halved = late_curve(
        ReplicaTimes(h200, 0, 1.0, lengths()),
        dataclasses.replace(ASKED, ttft_s=curve.alone_s * 1.001),
    )
    assert (
        halved.too_long_fraction <= 0.5 * curve.too_long_fraction + 0.002
    )  # what would mend it, does


def test_refused_prompts_are_the_stated_share_and_long(h200: Replicas) -> None:
    """Each refused with min(1, a·length²): thinned by draws of that, the same mean is left."""
    of = lengths()
    for share in (0.01, 0.2, 0.45):
        left = Thinning(of).admitted_weights(share)
        kept = left * (1.0 - share) / of.prompt_weights  # each one's chance to be admitted
        assert float(of.prompt_weights @ kept) == pytest.approx(1.0 - share)
        partly = (kept > 1e-9) & (of.prompt_tokens > 0)
        odds = (1.0 - kept[partly]) / of.prompt_tokens[partly] ** 2
        assert odds == pytest.approx(odds[0])
    assert (
        float(Thinning(of).admitted_weights(0.1) @ of.prompt_tokens)
        < 0.85 * of.prompt_tokens.mean()
    )


def test_refusing_long_prompts_keeps_more_in_time_than_taking_all(h200: Replicas) -> None:
    curve = late_curve(ReplicaTimes(h200, 0, 1.0, lengths()), ASKED)
    rates = curve.capacity_requests_per_s * np.array([1.02, 1.2, 1.5, 2.0])
    refused, late = refusing(ReplicaTimes(h200, 0, 1.0, lengths()), ASKED, rates)
    missed = refused + (1.0 - refused) * late
    taken = np.where(
        rates > curve.requests_per_s[-1],
        1.0,
        np.interp(rates, curve.requests_per_s, curve.late_fraction),
    )
    assert np.all(np.diff(missed) > 0.0)
    assert np.all(missed <= taken + 2e-3)
    assert missed[2] < 0.5 * taken[2]
    assert missed[3] < 0.5  # no less than what capacity alone would serve of twice as many


def _lognormal(mean: float, sigma: float, cells: int = 400) -> Lengths:
    scores = np.array([NormalDist().inv_cdf((cell + 0.5) / cells) for cell in range(cells)])
    tokens = np.exp(sigma * scores)
    return Lengths(
        prompt_tokens=tokens * mean / tokens.mean(), prompt_weights=np.full(cells, 1 / cells),
        output_tokens=np.full(1, 50.0), output_weights=np.ones(1), cached_fraction=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("busy", [0.3, 0.6])
def test_prompts_behind_a_reply_are_those_a_queue_of_draws_leaves(
    h200: Replicas, busy: float
) -> None:
    """One server, first come first served (Lindley's recursion): whoever came during one's wait and service."""
    of = _lognormal(100.0, 0.8)
    replica = ReplicaTimes(_bare(h200), 0, 1.0, of)
    rate = busy / replica.mean_prefill_s
    random = np.random.default_rng(3)
    count = 200_000
    arrived = np.cumsum(random.exponential(1.0 / rate, count))
    service = random.choice(replica.prefill_s, count)
    ended = np.empty(count)
    last = 0.0
    for number, (came, takes) in enumerate(zip(arrived.tolist(), service.tolist(), strict=True)):
        last = max(last, came) + takes
        ended[number] = last
    behind = np.searchsorted(arrived, ended) - np.arange(1, count + 1)
    asked = ServiceTerms(ttft_s=1e9, tpot_s=0.05, percentile=0.99, pooled_replicas=1.0)
    mean = prompts_behind(replica, asked, np.array([rate]), np.zeros(1))[0]
    assert mean == pytest.approx(behind.mean(), rel=0.05)
    assert 1.0 / (1.0 + mean) == pytest.approx(np.mean(behind == 0), rel=0.1)  # geometric, all but
    pooled = dataclasses.replace(asked, pooled_replicas=8.0)
    assert prompts_behind(replica, pooled, np.array([rate]), np.zeros(1))[0] < 0.25 * mean


def test_what_waits_behind_a_short_reply_makes_it_late_whatever_its_pace(h200: Replicas) -> None:
    """A reply much faster than promised ends before others come, but not before those that wait behind it."""
    of = dataclasses.replace(_lognormal(2000.0, 0.8), output_tokens=np.full(1, 10.0))
    quick = {**_bare(h200), "fixed_s": np.full(1, 0.005)}
    replica = ReplicaTimes(quick, 0, 1.0, of)  # 2 s of prefill against 0.45 s for nine tokens
    rate = np.array([0.2 / replica.mean_prefill_s])
    asked = ServiceTerms(ttft_s=100.0, tpot_s=0.05, percentile=0.99, pooled_replicas=1.0)
    late = late_tokens(replica, asked, np.full(1, 0.5), rate)
    mean = prompts_behind(replica, asked, rate, np.zeros(1))[0]
    some_behind = mean / (1.0 + mean)
    too_long = float(of.prompt_weights @ (replica.prefill_s > 9 * 0.05))
    assert late[0] > 0.9 * some_behind * too_long


def test_prompts_are_cut_to_what_the_model_attends_to(h200: Replicas) -> None:
    of = dataclasses.replace(_lognormal(1000.0, 0.5), prompt_tokens=np.full(400, 500_000.0))
    replica = ReplicaTimes(h200, 0, 1.0, of)
    cut = dataclasses.replace(
        of, prompt_tokens=np.full(400, float(h200["longest_tokens"][0]) - 50.0)
    )
    assert h200["longest_tokens"][0] <= 131_072
    np.testing.assert_allclose(replica.prefill_s, ReplicaTimes(h200, 0, 1.0, cut).prefill_s)


def test_routers_look_at_waits_beyond_half_the_objective_alone(h200: Replicas) -> None:
    of = _lognormal(100.0, 0.8)
    replica = ReplicaTimes(_bare(h200), 0, 1.0, of)
    rate = np.array([0.6 / replica.mean_prefill_s])
    step_s = np.full(1, 1e-9)
    ttft_s = np.array([0.5, 1.2])
    one = ServiceTerms(ttft_s=2.0, tpot_s=0.05, percentile=0.99, pooled_replicas=1.0)
    eight = dataclasses.replace(one, pooled_replicas=8.0)
    alone, pooled = (
        late_first(replica, asked, rate, step_s, ttft_s)[:, 0] for asked in (one, eight)
    )
    # Beyond half of two seconds all eight would have to keep a prompt waiting; below it a share is sent all the same,
    # 1/64 + 63/64 · 0.6 · 0.6², of those that one replica by itself would keep waiting until then.
    until = late_first(replica, one, rate, step_s, np.array([1.0]))[0, 0]
    strict = dataclasses.replace(
        eight, ttft_s=0.9
    )  # of whose objective half a second is more than half: all are seen
    seen = late_first(replica, strict, rate, step_s, ttft_s[:1])[0, 0]
    assert pooled[1] < 0.02 * alone[1]
    assert pooled[0] == pytest.approx(
        seen + (1 / 64 + 63 / 64 * 0.6**3) * (alone[0] - until), rel=0.1
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.floats(0.05, 3.0),
    st.floats(0.3, 0.99),
    st.sampled_from([1.0, 8.0]),
    st.sampled_from([0.9, 0.99]),
)
def test_whether_more_is_sustained_is_told_by_the_points_beside_a_rate(
    h200: Replicas, ttft_s: float, load: float, pooled: float, percentile: float
) -> None:
    """By those the whole curve has, so that a layout that is not worked out is none that would have been chosen."""
    asked = ServiceTerms(ttft_s=ttft_s, tpot_s=0.05, percentile=percentile, pooled_replicas=pooled)
    capacity = late_curve(ReplicaTimes(h200, 0, 1.0, lengths()), asked).capacity_requests_per_s
    for over in (load, 1.0 - 1e-6, 1.0 + 1e-6, 1.0 / load):
        assert sustains_more(ReplicaTimes(h200, 0, 1.0, lengths()), asked, capacity * over) == (
            over < 1.0 and capacity > 0.0
        )


def test_nothing_comes_back_from_beyond_a_grid(h200: Replicas) -> None:
    """Prompts that take up nearly all of a replica's time wait for many times the objective: none of it returns."""
    of = _lognormal(1000.0, 0.8)
    replica = ReplicaTimes(_bare(h200), 0, 1.0, of)
    rate = np.array([0.95 / replica.mean_prefill_s])
    short, long = (
        waits_beyond(replica, objective_s / CELLS, rate, np.full(1, 1e-9))[0]
        for objective_s in (2.0, 20.0)
    )
    assert long[-1] > 0.3  # of arrivals wait longer than twenty seconds
    assert short[-1] == pytest.approx(
        0.5 * (long[25] + long[26]), rel=0.01
    )  # two seconds on a coarser grid


def test_most_requests_are_in_time_at_the_rate_of_highest_goodput() -> None:
    """Of up to ten a second with a tenth of the rate late, r·(1 − r / 10) is highest at five."""
    rates = np.array([0.0, 10.0])
    curve = MissCurve(
        requests_per_s=rates, late_fraction=rates / 10.0, batch=rates, tpot_s=rates,
        capacity_requests_per_s=0.0, too_long_fraction=0.0, alone_s=0.0,
    )  # fmt: skip
    assert curve.slo_capacity_requests_per_s() == pytest.approx(5.0, rel=0.01)


def test_replies_of_one_token_are_late_by_their_first_alone(h200: Replicas) -> None:
    several = lengths()
    one = dataclasses.replace(several, output_tokens=np.ones(1), output_weights=np.ones(1))
    curve = late_curve(ReplicaTimes(h200, 0, 1.0, one), ASKED)
    assert curve.capacity_requests_per_s > 0.0
    hurried = late_curve(ReplicaTimes(h200, 0, 1.0, one), dataclasses.replace(ASKED, tpot_s=1e-3))
    assert hurried.late_fraction[0] == curve.late_fraction[0] < 0.01


@pytest.mark.parametrize(("model", "precision"), [("llama-3.1-70b", "fp8"), ("deepseek-r1", "fp8")])
def test_replicas_looked_at_together_are_those_looked_at_one_by_one(
    model: str, precision: str
) -> None:
    """What is left out by the rate that none exceeds could never have been chosen, and what is left in is near."""
    catalog = load_catalog()
    part = part_of("H200", catalog)
    shape = shape_of(model, catalog)
    specs = [
        ReplicaSpec(
            part=part, shape=shape, precision=precision, accelerators=count, engine="vllm", chunk_tokens=chunk
        )
        for count in (2, 4, 8)[2 if shape.experts else 0 :]
        for chunk in (256, 2048, 16384)
    ]  # fmt: skip
    replicas = price_replicas(specs, shipped_calibration())
    of = lengths()
    for ttft_s, tpot_s in ((2.0, 0.05), (0.5, 0.02), (5.0, 0.2)):
        asked = dataclasses.replace(ASKED, ttft_s=ttft_s, tpot_s=tpot_s)
        together = ReplicaTimes(replicas, np.arange(len(specs)), 0.9, of)
        most = rate_bounds(together, tpot_s)
        for index in range(len(specs)):
            alone = ReplicaTimes(replicas, index, 0.9, of)
            for name in ("alone_s", "sequence_s", "mean_prefill_s", "most_batch", "room", "steps"):
                np.testing.assert_allclose(
                    getattr(together, name)[index], getattr(alone, name), rtol=1e-12
                )
            capacity = late_curve(alone, asked).capacity_requests_per_s
            beyond = float(most[index]) * (1.0 + 1e-12)  # rows are summed in another order
            assert capacity <= beyond
            assert not sustains_more(alone, asked, beyond)
            if ttft_s == 5.0:
                assert capacity > 0.2 * beyond
