from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from docs.generate.frontier import Point, measured_frontiers, part_ratios
from docs.generate.validation_page import frontier_rows, part_ratio_rows, shipped_points
from planner.calibration.benchmarks import read_benchmarks
from planner.catalog.load import load_catalog
from tests.benchmarks.tables import write_table
from tests.shipped import shipped_calibration

ROW = {"tp": "2", "input_tokens": "1000", "output_tokens": "501", "source": "by hand"}
"""What differs from the row of a small table."""
POINT = Point(
    model="llama-3.1-70b",
    accelerator="H200",
    precision="fp8",
    is_mixture=False,
    input_tokens=1024.0,
    output_tokens=1024.0,
    tpot_s=0.02,
    measured=100.0,
    chosen=110.0,
    log_error=0.1,
    engine="vllm",
    grade="measured",
)


def frontier(tmp_path: Path, *rows: dict[str, str]) -> dict[float, float]:
    """Return the measured frontier of rows of one cell, by time per token."""
    table = write_table(tmp_path / "runs.csv", *rows)
    frame = read_benchmarks(table)
    points = measured_frontiers(frame, load_catalog(), shipped_calibration())
    return dict(zip(points["tpot_s"].tolist(), points["measured"].tolist(), strict=True))


def run(concurrency: int, tpot_ms: float, ttft_ms: float, **other: str) -> dict[str, str]:
    loads = {"concurrency": str(concurrency), "tpot_ms": str(tpot_ms), "ttft_ms": str(ttft_ms)}
    return ROW | loads | other


def test_a_frontier_is_read_between_the_loads_of_the_best_configuration(tmp_path: Path) -> None:
    """By hand, Little's law: 16 clients of 501 tokens, one second and 500 times 18 ms, on two accelerators."""
    loads = [run(4, 10.0, 1000.0), run(16, 18.0, 1000.0), run(64, 40.0, 2000.0)]
    rates = [4 * 501 / 6.0 / 2, 16 * 501 / 10.0 / 2, 64 * 501 / 22.0 / 2]
    shown = frontier(tmp_path, *loads)
    # Beyond the slowest run nobody looked.
    assert list(shown) == [0.015, 0.02, 0.03]
    logs = np.interp(np.log([15.0, 20.0, 30.0]), np.log([10.0, 18.0, 40.0]), np.log(rates))
    assert list(shown.values()) == pytest.approx(np.exp(logs))
    # Another configuration that is faster everywhere takes its place; one that drafts tokens does not.
    faster = [run(4, 5.0, 500.0, tp="1"), run(16, 9.0, 500.0, tp="1"), run(64, 40.0, 500.0, tp="1")]
    assert all(rate > shown[at] for at, rate in frontier(tmp_path, *loads, *faster).items())
    drafted = [load | {"speculative": "mtp"} for load in faster]
    plain = [load | {"speculative": "none"} for load in loads]
    assert frontier(tmp_path, *plain, *drafted) == pytest.approx(shown)


def test_separate_pools_count_the_accelerators_that_prefill(tmp_path: Path) -> None:
    """By hand: 30 clients over three decode workers of two accelerators and one prefill worker of four."""
    apart = {
        "scenario": "Disaggregated",
        "prefill_tp": "4",
        "prefill_workers": "1",
        "decode_workers": "3",
        "speculative": "none",
    }
    shown = frontier(tmp_path, run(30, 15.0, 1500.0, **apart))
    assert shown == pytest.approx({0.015: 30 * 501 / 9.0 / 10})
    # Where the workers are not stated nobody knows how many accelerators there are.
    unstated = run(90, 12.0, 500.0, **{**apart, "prefill_workers": "", "decode_workers": ""})
    assert frontier(tmp_path, run(30, 15.0, 1500.0, **apart), unstated) == pytest.approx(shown)
    # And where drafts are not stated, whether a token took a step.
    unlabelled = run(90, 12.0, 500.0, **{**apart, "speculative": ""})
    assert frontier(tmp_path, run(30, 15.0, 1500.0, **apart), unlabelled) == pytest.approx(shown)


def test_a_sweep_that_ended_early_says_nothing_of_longer_times(tmp_path: Path) -> None:
    """The fastest configuration stops at 18 ms: of what it would serve at 20 and 30 ms nobody knows."""
    slower = [run(4, 10.0, 1000.0), run(16, 22.0, 1000.0), run(64, 40.0, 2000.0)]
    assert list(frontier(tmp_path, *slower)) == [0.015, 0.02, 0.03]
    quick = [run(16, 6.0, 500.0, tp="1"), run(64, 17.0, 500.0, tp="1")]
    assert list(frontier(tmp_path, *slower, *quick)) == [0.015]
    # A run within a tenth of the time stands for it.
    assert list(frontier(tmp_path, *slower, quick[0], run(64, 19.0, 500.0, tp="1"))) == [
        0.015,
        0.02,
    ]


def test_ratios_compare_alike_lengths_in_the_best_precision_of_each() -> None:
    slower = POINT._replace(accelerator="MI325X", input_tokens=921.6, measured=50.0, chosen=88.0)
    points = [POINT, slower, slower._replace(precision="bf16", measured=60.0, chosen=44.0)]
    points.append(slower._replace(tpot_s=0.05))
    (ratio,) = part_ratios(points, "H200")
    assert (ratio.accelerator, ratio.measured, ratio.chosen) == ("MI325X", 0.6, 0.8)
    assert ratio.log_error == pytest.approx(math.hypot(0.1, 0.1))


@pytest.mark.prove
def test_what_is_chosen_of_measured_layouts_serves_what_was_measured() -> None:
    """Dense models on the accelerators with most rows; the page names the cells in which it does not."""
    points = [point for point in shipped_points() if not point.is_mixture]
    measured = [point for point in points if point.grade == "measured"]
    for part in ("H200", "B200"):
        ratios = [point.ratio for point in measured if point.accelerator == part]
        assert len(ratios) >= 3
        assert 0.95 <= np.median(ratios) <= 1.05
    ratios_of_70b = [
        ratio.chosen / ratio.measured
        for ratio in part_ratios(points, "H200")
        if (ratio.model, ratio.accelerator) == ("llama-3.1-70b", "B200")
    ]
    assert 0.9 <= np.median(ratios_of_70b) <= 1.1
    shown = frontier_rows(shipped_points())
    assert sum(int(row[1]) for row in shown) == len(shipped_points())
    assert any(row[0].startswith("llama-3.1-70b, B200") for row in part_ratio_rows(points))
