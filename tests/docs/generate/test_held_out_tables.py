from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from docs.generate.held_out_tables import labelled_rows, lower_end_rows, own_rows_rows
from docs.generate.left_out import fitted_rows
from docs.generate.lower_ends import LowerEnd, kept_shares, lower_ends
from docs.generate.own_rows import DRAWS, OWN_ROWS, Pair, errors_of, pairs_of_five
from docs.generate.validation_page import (
    DATED_RUNS,
    labelled_check,
    shipped_own_rows,
)
from planner.calibration.benchmarks import read_benchmarks
from planner.catalog.calibration import SHIPPED_MEASUREMENTS, shipped_file
from planner.catalog.load import load_catalog
from planner.physics.coefficients import NORMAL_90
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from tests.benchmarks.tables import write_table
from tests.conftest import ROOT
from tests.shipped import shipped_calibration


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(ROOT / "scenarios" / "mixed-fleet.yaml")


def test_a_lower_end_stands_beside_what_littles_law_says_was_served(
    tmp_path: Path, scenario: Scenario
) -> None:
    """By hand: 16 clients of 1,024 tokens, 0.3157 seconds and 1,023 times 24.72 ms, on one accelerator."""
    table = write_table(tmp_path / "runs.csv", {}, {"tpot_ms": "5"})
    frame = read_benchmarks(table)
    ends = list(lower_ends(frame, load_catalog(), shipped_calibration(), scenario))
    usual, impossible = ends
    assert usual.measured == pytest.approx(16 * 1024 / (0.315761 + 1023 * 0.0247244))
    assert (usual.vendor, usual.is_mixture) == ("nvidia", False)
    assert 0.0 < usual.low < usual.proportional_low < usual.capacity
    # No load keeps five milliseconds there: nothing is promised.
    assert (impossible.capacity, impossible.proportional_low, impossible.low) == (0.0, 0.0, 0.0)
    assert len(list(lower_ends(frame, load_catalog(), shipped_calibration(), scenario, 2))) == 1


def test_shares_of_lower_ends_are_counted() -> None:
    numbers = {"vendor": "amd", "is_mixture": True, "measured": 100.0}
    ends = [
        LowerEnd(**numbers, capacity=90.0, proportional_low=80.0, low=70.0),  # type: ignore[arg-type]
        LowerEnd(**numbers, capacity=120.0, proportional_low=100.0, low=90.0),  # type: ignore[arg-type]
        LowerEnd(**numbers, capacity=130.0, proportional_low=110.0, low=100.0),  # type: ignore[arg-type]
        LowerEnd(**numbers, capacity=180.0, proportional_low=150.0, low=120.0),  # type: ignore[arg-type]
    ]
    assert kept_shares(ends) == (0.25, 0.5, 0.75)
    assert lower_end_rows(ends) == [
        ("all", "4", "25%", "50%", "75%"),
        ("amd mixture-of-experts", "4", "25%", "50%", "75%"),
    ]


def test_errors_of_own_rows_are_counted() -> None:
    logs = np.log([1.1, 0.8, 1.0])
    pair = Pair("amd", False, 2.0 * logs, logs, np.full(3, 0.1 / NORMAL_90))
    errors = errors_of([pair, pair])
    assert errors.rows == 6
    assert errors.mean_after == pytest.approx(0.1)
    assert errors.median_after == pytest.approx(0.1)
    assert errors.mean_before == pytest.approx((0.21 + 0.36) / 3)
    # Of 1.1, 0.8 and 1 only ln(0.8) lies beyond a tenth.
    assert errors.covered == pytest.approx(2 / 3)
    ((label, campaigns, *_), _) = own_rows_rows([pair, pair], 2)
    assert (label, campaigns) == ("amd", "1")


def test_five_rows_of_a_pair_bring_the_others_nearer() -> None:
    """One campaign of ``shipped_own_rows``, which is a fifth slower than a fit without it says."""
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    of_fit = frame[frame["scenario"] != "Disaggregated"]
    catalog = load_catalog()
    rows = fitted_rows(frame, catalog, shipped_calibration())
    campaign = {"deepseek-v3 MI300X sglang fp8"}
    first, second = pairs_of_five(campaign, of_fit, shipped_file(), rows, catalog)
    for pair in (first, second):
        assert (pair.vendor, pair.is_mixture) == ("amd", True)
        assert pair.after.size == 15 - OWN_ROWS
        assert -0.3 < pair.before.mean() < -0.15
        assert np.abs(pair.after).mean() < 0.5 * np.abs(pair.before).mean()
    assert not np.array_equal(first.after, second.after)


def test_labelled_runs_are_all_of_the_table() -> None:
    rows = labelled_rows(labelled_check())
    in_all = [row for row in rows if row[0].startswith("**")]
    assert sum(int(row[1]) for row in in_all) == len(read_benchmarks(DATED_RUNS))
    assert sum(int(row[1]) for row in rows) == 2 * len(read_benchmarks(DATED_RUNS))


@pytest.mark.prove
def test_five_own_rows_bring_pairs_to_their_bars() -> None:
    """Campaigns left out: the median error with five rows is 11% on AMD and 7% on NVIDIA at most."""
    pairs = shipped_own_rows()
    bars = {"amd": 0.11, "nvidia": 0.07}
    for vendor, most in bars.items():
        own = [pair for pair in pairs if pair.vendor == vendor]
        errors = errors_of(own)
        assert len(own) >= 10 * DRAWS
        assert errors.median_after <= most
        assert errors.mean_after < errors.mean_before
        assert 0.85 <= errors.covered <= 0.95


@pytest.mark.prove
def test_lower_ends_are_at_most_what_was_measured(scenario: Scenario) -> None:
    """Of all closed loops, 95% served no less than the lower end of a P98 capacity at their time per token."""
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    ends = list(lower_ends(frame, load_catalog(), shipped_calibration(), scenario))
    assert len(ends) >= 1000
    _, _, stated = kept_shares(ends)
    assert stated >= 0.95
    for vendor in ("amd", "nvidia"):
        for is_mixture in (False, True):
            own = [one for one in ends if (one.vendor, one.is_mixture) == (vendor, is_mixture)]
            assert kept_shares(own)[2] >= 0.93
