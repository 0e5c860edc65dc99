"""The share of requests in time against queueing theory, draws, and what must hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.catalog.calibration import shipped_calibration
from planner.catalog.load import load_catalog
from planner.catalog.physics import part_of, shape_of
from planner.physics import promptness
from planner.physics.promptness import Asked, Lengths, late_curve
from planner.physics.replica import Replicas, ReplicaSpec, price_replicas

ASKED = Asked(ttft_s=2.0, tpot_s=0.05, percentile=0.99, pooled_replicas=8.0)


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
    part = part_of("H200", catalog.accelerator("H200"))
    shape = shape_of("llama-3.1-70b", catalog.model("llama-3.1-70b"))
    spec = ReplicaSpec(part=part, shape=shape, precision="fp8", accelerators=2, engine="vllm")
    return price_replicas([spec], shipped_calibration())


def _bare(h200: Replicas) -> Replicas:
    """The same replica whose steps take nothing: prompts alone."""
    nothing = np.zeros(1)
    return dataclasses.replace(
        h200, fixed_s=np.full(1, 1e-9), sequence_s=nothing, kv_s_per_token=nothing, attention_s_per_token2=nothing,
        ttft_fixed_s=nothing, prefill_s_per_token=np.full(1, 1e-3),
    )  # fmt: skip


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_exponential_prompts_wait_as_in_an_m_m_1_queue(h200: Replicas, busy: float) -> None:
    """P(wait > t) = ρ exp(−(1 − ρ) t / E[S])."""
    cells = (np.arange(2000) + 0.5) / 2000
    prompts = -np.log1p(-cells) * 100.0  # 0.1 s each on the average
    of = Lengths(
        prompt_tokens=prompts, prompt_weights=np.full(2000, 1 / 2000), output_tokens=np.ones(1),
        output_weights=np.ones(1), cached_fraction=0.0,
    )  # fmt: skip
    replica = promptness._Replica(_bare(h200), 0, 1.0, of)
    rate = np.array([busy / replica.mean_prefill_s])
    cell_s = 2.0 / promptness._CELLS
    over = promptness._waits_beyond(replica, of, cell_s, rate, np.full(1, 1e-9))[0]
    for t in (0.1, 0.3, 1.0):
        expected = busy * np.exp(-(1.0 - busy) * t / replica.mean_prefill_s)
        # A node's mass lies half on either side of it.
        place = round(t / cell_s)
        seen = 0.5 * float(over[place - 1] + over[place])
        assert seen == pytest.approx(
            expected * np.exp((1 - busy) * (t - place * cell_s) / replica.mean_prefill_s), rel=0.03, abs=1e-4
        )


def test_prompts_beside_a_reply_are_those_of_draws(h200: Replicas) -> None:
    """One output length, many replicas pooled: late where the prefills beside it take more than o (τ − D)."""
    of = dataclasses.replace(lengths(), output_tokens=np.full(1, 60.0), output_weights=np.ones(1))
    asked = dataclasses.replace(ASKED, pooled_replicas=1e9)
    replica = promptness._Replica(h200, 0, 1.0, of)
    batch = np.array([26.0])
    tpot_s = replica.decode_s(batch) + batch * replica.mean_prefill_s / replica.output
    rate = batch / (replica.output * tpot_s)
    late = float(promptness._late_tokens(replica, of, asked, batch, rate)[0])
    generator = np.random.default_rng(2)
    counts = generator.poisson(float(rate[0] * tpot_s[0]) * 59.0 * 25.0 / 26.0, 40_000)
    owner = np.repeat(np.arange(counts.size), counts)
    beside_s = np.bincount(owner, generator.choice(replica.prefill_s, counts.sum()), counts.size)
    seen = float(np.mean(beside_s > 59.0 * (0.05 - float(replica.decode_s(batch)[0]))))
    assert 0.01 < seen < 0.9
    assert late == pytest.approx(seen, abs=0.015)


def test_more_load_is_never_more_in_time_and_a_router_that_sees_more_keeps_more(h200: Replicas) -> None:
    rates = []
    for pooled in (1.0, 4.0, 64.0):
        curve = late_curve(h200, 0, 1.0, lengths(), dataclasses.replace(ASKED, pooled_replicas=pooled))
        assert np.all(np.diff(curve.late_fraction) >= 0.0)
        assert np.all(np.diff(curve.requests_per_s) > 0.0)
        rates.append(curve.most_requests_per_s(0.99))
    assert rates == sorted(rates)
    assert rates[0] < 0.95 * rates[-1]


def test_a_stricter_share_serves_less_and_a_prompt_too_long_is_late_at_any_load(h200: Replicas) -> None:
    curve = late_curve(h200, 0, 1.0, lengths(), ASKED)
    assert curve.most_requests_per_s(0.9) > 1.05 * curve.most_requests_per_s(0.99) > curve.most_requests_per_s(0.999)
    few = lengths()
    few.prompt_tokens[:30] = 100_000.0  # three in a hundred take ten seconds each
    long = late_curve(h200, 0, 1.0, few, ASKED)
    assert long.too_long_fraction == pytest.approx(0.03, abs=0.004)
    assert long.late_fraction[0] >= long.too_long_fraction


def test_a_replica_twice_as_slow_serves_less_than_half(h200: Replicas) -> None:
    fast, slow = (late_curve(h200, 0, speed, lengths(), ASKED).most_requests_per_s(0.99) for speed in (1.0, 0.5))
    assert 0.0 < slow < 0.5 * fast
