from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.physics.power import (
    BoardRating,
    NodePower,
    NodeRating,
    ServingMix,
    board_power_at_load_w,
    build_node_power,
    power_fraction,
    throughput_fraction_at_cap,
)

H200 = BoardRating(tdp_w=700.0, idle_w=110.0)
B200 = BoardRating(tdp_w=1000.0, idle_w=140.0)
H200_BANDWIDTH = 4.8e12
H200_RATE = 1979e12
B200_BANDWIDTH = 8.0e12
B200_RATE = 9000e12
NODE = NodeRating(board=H200)


def _mix(**changes: float) -> ServingMix:
    # llama-3.1-70b in FP8 on one H200: step times of the shipped kernel measurements at 1,024 tokens of context.
    numbers: dict[str, float] = {
        "batch": 64.0,
        "stream_fixed_s": 70e9 / H200_BANDWIDTH,
        "stream_per_sequence_s": 1024 * 327_680.0 / H200_BANDWIDTH,
        "compute_per_sequence_s": 141e9 / H200_RATE,
        "step_fixed_s": 0.0195,
        "step_per_sequence_s": 1.0e-4,
        "prefill_time_fraction": 0.2,
    }
    return ServingMix(**(numbers | changes))


@pytest.fixture(scope="module")
def node_power() -> NodePower:
    return build_node_power(NODE, _mix())


def test_a_single_sequence_around_the_clock_draws_what_was_measured() -> None:
    # At the load whose mean batch is large enough never to be empty, and small, decode draws about 500 W.
    mix = _mix(prefill_time_fraction=0.0)
    loads = np.linspace(0.0, 1.0, 2001)
    at_four = int(np.argmin(np.abs(mix.sequences_at(loads) - 4.0)))
    assert float(board_power_at_load_w(H200, mix, loads[at_four])) == pytest.approx(520.0, rel=0.06)


def test_sequences_follow_littles_law() -> None:
    mix = _mix(prefill_time_fraction=0.0)
    load = np.array([0.1, 0.5, 1.0])
    sequences = mix.sequences_at(load)
    rate = load * 64.0 / float(mix.step_s(64.0))
    np.testing.assert_allclose(sequences, rate * mix.step_s(sequences))
    assert sequences[-1] == pytest.approx(64.0)


def test_node_power_is_idle_at_no_load_and_three_quarters_of_nameplate_at_full() -> None:
    power = build_node_power(NODE, _mix(batch=256.0))
    assert power.idle_kw == pytest.approx((1800.0 + 8 * 110.0) / 1000.0)
    # DGX H200 nameplate 10.2 kW; nodes under MLPerf load were measured at 60 to 73% with boards at 71 to 100%.
    assert 0.70 < power.full_kw / 10.2 < 0.80


@given(
    batch=st.floats(2.0, 512.0),
    share=st.floats(0.0, 0.8),
    per_sequence_s=st.floats(1e-6, 3e-4),
)
def test_power_is_concave_and_within_the_board(
    batch: float, share: float, per_sequence_s: float
) -> None:
    mix = _mix(batch=batch, prefill_time_fraction=share, step_per_sequence_s=per_sequence_s)
    power_w = board_power_at_load_w(H200, mix, np.linspace(0.0, 1.0, 201))
    chord = power_w[0] + (power_w[-1] - power_w[0]) * np.linspace(0.0, 1.0, 201)
    assert np.all(power_w >= chord - 1e-6)
    assert H200.idle_w <= power_w.min()
    assert power_w.max() <= H200.tdp_w + 1e-9


mixes = st.builds(
    ServingMix,
    batch=st.floats(1.0, 5000.0),
    stream_fixed_s=st.floats(0.0, 0.1),
    stream_per_sequence_s=st.floats(0.0, 1e-2),
    compute_per_sequence_s=st.floats(0.0, 1e-3),
    step_fixed_s=st.floats(1e-4, 0.1),
    step_per_sequence_s=st.floats(0.0, 1e-2),
    prefill_time_fraction=st.floats(0.0, 0.99),
)


@given(mixes, st.sampled_from([H200, B200]))
def test_power_never_falls_with_load(mix: ServingMix, board: BoardRating) -> None:
    """Whatever is served: mixtures whose steps lengthen faster than their traffic too."""
    power_w = board_power_at_load_w(board, mix, np.linspace(0.0, 1.0, 401))
    assert np.diff(power_w).min() >= -1e-9 * board.tdp_w


@given(mixes)
def test_the_hottest_batch_is_where_the_formula_for_boards_peaks(mix: ServingMix) -> None:
    """By brute force over batches: nothing on the grid draws more than the closed form's batch, clipping included."""
    hottest = mix.hottest_batch()
    batch = np.append(np.geomspace(1.0, 1e6, 500), min(hottest, 1e6))
    drawn = power_fraction(*mix.decode_activity(batch))
    assert drawn[batch <= hottest].max() >= drawn.max() * (1 - 1e-9)
    assert np.diff(drawn[:-1][batch[:-1] <= hottest]).min(initial=0.0) >= -1e-12


def test_work_without_arithmetic_is_hottest_at_one_sequence() -> None:
    assert _mix(compute_per_sequence_s=0.0).hottest_batch() == 1.0


def test_the_table_agrees_with_the_formula(node_power: NodePower) -> None:
    load = np.random.default_rng(3).random(5000)
    exact_kw = NODE.wall_w(board_power_at_load_w(H200, _mix(), load)) / 1000.0
    np.testing.assert_allclose(node_power.node_kw(load), exact_kw, rtol=3e-3)
    assert node_power.node_kw(load).mean() == pytest.approx(exact_kw.mean(), rel=1e-4)


def test_wall_and_board_power_are_inverse() -> None:
    board_w = np.linspace(110.0, 700.0, 9)
    np.testing.assert_allclose(NODE.board_w(NODE.wall_w(board_w)), board_w)


def _kept(power: NodePower, cap_kw: float | np.ndarray) -> np.ndarray:
    """Return the share of full throughput that a node reaches under a cap on its wall power."""
    return np.asarray(np.interp(cap_kw, power.cap_kw, power.cap_throughput_fraction, left=0.0))


def test_an_uncapped_node_keeps_all_and_a_capped_one_less(node_power: NodePower) -> None:
    kept = _kept(node_power, np.array([0.5, 5.0, 6.0, 7.0, node_power.full_kw, 99.0]))
    assert kept[0] == 0.0
    assert kept[-1] == kept[-2] == 1.0
    assert np.all(np.diff(kept) >= 0.0)
    assert kept[1] < kept[2] < kept[3] < 1.0


def test_the_node_cap_agrees_with_the_board_cap_for_pure_decode() -> None:
    mix = _mix(prefill_time_fraction=0.0, batch=128.0)
    power = build_node_power(NODE, mix)
    cap_kw = power.cap_kw[40]
    expected = throughput_fraction_at_cap(
        *mix.decode_activity(128.0), float(NODE.board_w(1000.0 * cap_kw)) / H200.tdp_w
    )
    assert float(_kept(power, cap_kw)) == pytest.approx(float(expected), rel=1e-9)


def test_a_b200_node_at_its_limit_draws_what_lenovo_measured() -> None:
    mix = ServingMix(
        batch=1000.0,
        stream_fixed_s=40e9 / B200_BANDWIDTH,
        stream_per_sequence_s=440 * 164e3 / B200_BANDWIDTH,
        compute_per_sequence_s=280e9 / B200_RATE,
        step_fixed_s=0.010,
        step_per_sequence_s=6.8e-5,
        prefill_time_fraction=0.3,
    )
    full_kw = build_node_power(NodeRating(board=B200), mix).full_kw
    assert full_kw == pytest.approx(10.47, rel=0.02)
