"""What is too large is refused with its size; what is merely large is read in time."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest

from planner.demand.plan import growth_multiplier
from planner.demand.shape import Horizon
from planner.errors import ScenarioError
from planner.plan.demand import read_growth_table
from planner.scenario.consistency import MOST_BYTES, expected_bytes
from planner.scenario.loading import load_scenario
from tests.conftest import Planner, WriteScenario

HORIZON = Horizon(start=datetime.date(2026, 1, 1), hours=26_304)


def scenario_of(workloads: int, clusters: int, months: int) -> str:
    traffic = "{model: llama-3.1-8b, requests_per_s: 5, lengths: {input: {mean: 500}, output: {mean: 100}}}"
    lines = ["name: large", "start: 2026-01-01", f"horizon_months: {months}", "workloads:"]
    lines += [f"  w{number}: {traffic}" for number in range(workloads)]
    lines += [
        "clusters:",
        *(f"  c{number}: {{accelerator: H200, nodes: 1}}" for number in range(clusters)),
    ]
    return "\n".join(lines) + "\n"


def test_a_run_that_does_not_fit_into_memory_is_refused_with_its_size(
    planner: Planner, write: WriteScenario
) -> None:
    write(scenario_of(64, 64, 120))
    planner("run", "tiny.yaml").refused(
        "tiny.yaml:3: horizon_months: 64 workloads on 64 clusters over 120 months", "6.8 GB"
    )
    assert not Path("outputs").exists()


def test_the_size_said_is_the_size_measured(write: WriteScenario) -> None:
    """Peaks of planner run, measured: 141 MB for 8 × 8 × 36 months, 781 MB for 24 × 24 × 60."""
    for shape, measured in (((8, 8, 36), 141e6), ((24, 24, 60), 781e6)):
        expected = expected_bytes(load_scenario(write(scenario_of(*shape))))
        assert 0.75 < expected / measured < 1.5
        assert expected < MOST_BYTES


@pytest.mark.prove
def test_a_million_rows_of_growth(tmp_path: Path) -> None:
    day = datetime.date(1, 1, 1)
    path = tmp_path / "growth.csv"
    with path.open("w", encoding="utf-8") as stream:
        stream.write("date,multiplier\n")
        stream.writelines(
            f"{day + datetime.timedelta(days=n)},{1 + n / 1e6:.6f}\n" for n in range(1_000_000)
        )
    begun = time.process_time()
    growth = read_growth_table(path, path.read_bytes(), HORIZON)
    assert time.process_time() - begun < 3.0
    first = (HORIZON.start - day).days
    assert growth_multiplier(growth, [0.0, 24.0]) == pytest.approx(
        [1 + first / 1e6, 1 + (first + 1) / 1e6], abs=1e-6
    )


@pytest.mark.parametrize("rows", ["date,multiplier\n2026-01-01,1\nx,2\n", "date,multiplier\n2026-01-01,1\n2026-02-01\n",
                                  "date,multiplier\n2026-01-01,1\n2026-02-01,nan\n"])  # fmt: skip
def test_a_bad_row_of_growth_is_named_by_its_line(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "growth.csv"
    with pytest.raises(ScenarioError, match=r"growth\.csv:3: needs a date and a multiplier"):
        read_growth_table(path, rows.encode(), HORIZON)


LONG = "n" * 300


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (f"name={LONG}", "a name is 1 to 64 letters"),
        (f"workloads.{LONG}={{model: llama-3.1-8b}}", "a name is 1 to 64 letters"),
        (f"clusters.{LONG}={{accelerator: H200, nodes: 1}}", "a name is 1 to 64 letters"),
        (
            f"workloads.chat.growth={{kind: csv, file: {LONG}.csv}}",
            "cannot be read: File name too long",
        ),
        (f"catalog.overlay={LONG}.yaml", "cannot be read: File name too long"),
        (f"workloads.chat.model={LONG}", "unknown model"),
        (f"workloads.chat.load_profile.timezone={LONG}", "unknown time zone"),
    ],
)
def test_names_of_three_hundred_characters(
    planner: Planner, write: WriteScenario, tiny: str, change: str, told: str
) -> None:
    write(tiny)
    outcome = planner("run", "tiny.yaml", "--set", change).refused(told)
    assert all(len(line) < 1500 for line in outcome.err.splitlines())
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    "key", ["workloads.chat.load_profile.timezone", "site.electricity.timezone"]
)
def test_the_machines_own_time_zone_is_refused(
    planner: Planner, write: WriteScenario, tiny: str, key: str
) -> None:
    write(tiny)
    windows = ("--set", "site.electricity.windows=[{name: all, usd_per_kwh: 0.1}]")
    planner("run", "tiny.yaml", *windows, "--set", f"{key}=localtime").refused(
        "unknown time zone 'localtime'"
    )
