"""The stated intervals hold what they should: companies with seasons, outages and launches, read from a file."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from planner.catalog.load import load_catalog
from planner.onramp.first_scenario import fit_workloads
from planner.onramp.traffic_fit import TrafficOptions
from tests.onramp.companies import company


def _covered(seeds: range, folder: Path) -> dict[str, list[bool]]:
    """Return by figure whether its interval holds the truth, for each company that shows it."""
    catalog = load_catalog()
    covered: dict[str, list[bool]] = {}
    for seed in seeds:
        truth = company(seed)
        path = folder / "counts.csv"
        path.write_text(truth.table())
        end = datetime.datetime.fromtimestamp(truth.end_s, tz=datetime.UTC).date()
        (fitted,), _ = fit_workloads([str(path)], TrafficOptions(), catalog, end)
        planted = {
            "requests_per_s": truth.requests_per_s,
            "growth.per_year": truth.growth_per_year,
            "lengths.input.mean": truth.input_mean,
            "lengths.output.mean": truth.output_mean,
        }
        for figure in fitted.figures:
            if figure.interval is not None:
                low, high = figure.interval
                is_within = low <= planted[figure.field] <= high
                covered.setdefault(figure.field, []).append(is_within)
    return covered


def test_intervals_hold_the_truth_of_most(tmp_path: Path) -> None:
    """Of 16 with an interval that holds nine in ten, fewer than 11 do so once in 340 tries."""
    covered = _covered(range(16), tmp_path)
    assert len(covered) == 4
    for figure, cases in covered.items():
        assert sum(cases) >= 0.65 * len(cases), figure


@pytest.mark.prove
def test_ninety_percent_intervals_hold_ninety_percent(tmp_path: Path) -> None:
    for figure, cases in _covered(range(200), tmp_path).items():
        share = sum(cases) / len(cases)
        print(f"{figure}: {share:.1%} of {len(cases)}")
        assert 0.85 <= share <= 0.95, figure
