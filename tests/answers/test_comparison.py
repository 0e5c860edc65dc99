"""Plans side by side: the files and what the terminal says of comparisons and sweeps."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from planner.answers.comparison import (
    COMPARISON_TABLES,
    comparison_summary,
    comparison_text,
    measured_layouts_lines,
    write_comparison,
)
from planner.answers.json_records import fields_json
from planner.answers.ranking import COST, SHORTFALL
from planner.answers.run import PLAN_COLUMNS
from planner.answers.summaries import ComparisonSummary, Measures
from planner.answers.sweep import sweep_description, sweep_rows, sweep_text, write_sweep
from planner.answers.tables import TABLES, by_scenario
from planner.finance.accounting.measures import measures
from planner.finance.bridge import CAUSES
from planner.finance.measure_names import MEASURES
from planner.output.folder import Contents
from planner.output.tables import ColumnKind
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.studies.compare import Comparison, compare
from planner.studies.sweep import SweepPoint, parse_axes, sweep
from tests.conftest import TINY, WriteScenario, csv_rows


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    path = tmp_path_factory.mktemp("compared") / "tiny.yaml"
    path.write_text(TINY)
    small = {**yaml.safe_load(TINY), "name": "small"}
    del small["clusters"]["mi325x"]
    path.with_name("small.yaml").write_text(yaml.safe_dump(small))
    return compare(
        [load_scenario(path.with_name(name), ["seed=1"]) for name in ("tiny.yaml", "small.yaml")]
    )


def test_the_folder_is_whole_and_described(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    stacked = [by_scenario(TABLES[name]) for name in (*PLAN_COLUMNS, "assumptions")]
    held = (
        table for name, table in COMPARISON_TABLES.items() if name != "futures"
    )  # none is named
    described = (*held, *stacked, TABLES["model_error"])
    tables = {f"{table.name}.csv" for table in described}
    assert names == tables | {
        "datapackage.json",
        "manifest.json",
        "report.html",
        "summary.json",
        "workbook.xlsx",
    }
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["baseline"], manifest["overrides"]) == (
        "comparison",
        "tiny",
        ["seed=1"],
    )
    for table in described:
        written = csv_rows(tmp_path / "out" / f"{table.name}.csv")
        header = (
            (tmp_path / "out" / f"{table.name}.csv").read_text(encoding="utf-8").splitlines()[0]
        )
        assert header.split(",") == [column.name for column in table.columns]
        keys = [tuple(row[name] for name in table.key) for row in written]
        assert not table.key or len(set(keys)) == len(keys)


def test_the_bridge_in_the_file_sums_to_the_difference_in_the_file(
    comparison: Comparison, tmp_path: Path
) -> None:
    write_comparison(comparison, tmp_path / "out")
    sums: dict[str, float] = defaultdict(float)
    for row in csv_rows(tmp_path / "out" / "bridge.csv"):
        sums[row["scenario"]] += float(row["difference_per_million_tokens_usd"])
    difference = {
        row["scenario"]: float(row["difference"])
        for row in csv_rows(tmp_path / "out" / "comparison.csv")
        if row["measure"] == "cost_per_million_tokens_usd"
    }
    assert set(sums) == {"small"}
    assert sums["small"] == pytest.approx(difference["small"], abs=1e-6)
    assert difference["tiny"] == 0


def test_months_sum_to_the_measures(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path / "out")
    table = csv_rows(tmp_path / "out" / "comparison_monthly.csv")
    for name, figures in zip(comparison.names, comparison.figures, strict=True):
        own = [row for row in table if row["scenario"] == name]
        assert sum(float(row["cost_usd"]) for row in own) == pytest.approx(
            figures["cost_usd"], abs=0.01
        )
        assert -sum(float(row["cash_flow_usd"]) for row in own) == pytest.approx(
            figures["cash_usd"], abs=0.01
        )
        assert float(own[-1]["cumulative_cost_per_million_tokens_usd"]) == pytest.approx(
            figures["cost_per_million_tokens_usd"], abs=1e-6
        )


def test_the_printed_table_fits_a_terminal(comparison: Comparison) -> None:
    lines = comparison_text(comparison).splitlines()
    assert all(len(line) <= 80 for line in lines)
    table = next(place for place, line in enumerate(lines) if line.startswith("scenario"))
    assert [line.split()[0] for line in lines[table + 2 : table + 4]] == [
        "small",
        "tiny",
    ]  # the cheaper first
    verbose = comparison_text(comparison, verbose=True)
    assert "Difference from tiny in USD per million tokens, by cause" in verbose


def test_the_summary_says_the_same(comparison: Comparison) -> None:
    summary = comparison_summary(comparison)
    assert summary.baseline == "tiny"
    assert set(summary.scenarios) == {"tiny", "small"}
    assert list(summary.bridge_per_million_tokens_usd["small"]) == list(CAUSES)
    content = json.loads(json.dumps(fields_json(summary)))
    assert ComparisonSummary.read(Contents(manifest={}, tables={}, summary=content)) == summary


def test_axes_are_numbers_where_all_their_values_are() -> None:
    axes = parse_axes(["a.nodes=1,2", "b.price_usd=-1.25,3", "c=x,1"])
    kinds = [column.kind for column in sweep_description(axes).columns[:3]]
    assert kinds == [ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.TEXT]
    assert sweep_description(axes).columns[1].decimals == 2
    assert sweep_description(axes).columns[1].unit == "USD"


def test_the_table_is_tidy(write: WriteScenario, tmp_path: Path) -> None:
    path = write()
    axes = parse_axes(["clusters.h200.nodes=0:4:2", "finance.residual_fraction=0.1,0.25"])
    points = sweep(load_scenario(path, ["horizon_months=1", "clusters.mi325x=null"]), axes)
    write_sweep(load_scenario(path), axes, points, tmp_path / "out", {"seed": 1})
    written = csv_rows(tmp_path / "out" / "sweep.csv")
    assert [row["clusters.h200.nodes"] for row in written] == ["0", "0", "2", "2", "4", "4"]
    assert written[1]["finance.residual_fraction"] == "0.25"
    assert written[0]["cost_per_million_tokens_usd"] == ""  # no machines, no tokens
    assert written[-1]["cost_per_million_tokens_usd"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["vary"] == {
        "clusters.h200.nodes": ["0", "2", "4"],
        "finance.residual_fraction": ["0.1", "0.25"],
    }
    package = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    assert package["resources"][0]["schema"]["primaryKey"] == [
        "clusters.h200.nodes",
        "finance.residual_fraction",
    ]


def test_what_could_not_be_run_says_why() -> None:
    axes = parse_axes(["horizon_months=1,2"])
    figures: dict[str, float | None] = {
        column.name: 1.0 for column in sweep_description(axes).columns[1:-1]
    }
    points = (
        SweepPoint(values=("1",), figures=None, problem="=too short"),
        SweepPoint(values=("2",), figures=figures, problem=""),
    )
    columns = sweep_rows(axes, points).columns
    assert columns["problem"] == ["=too short", ""]
    assert all(columns[measure.name] == [None, 1.0] for measure in MEASURES)
    assert "1 of 2 combinations could not be run; the first: =too short" in sweep_text(axes, points)


def test_a_long_sweep_prints_its_beginning() -> None:
    axes = parse_axes(["seed=1:100:1"])
    figures: dict[str, float | None] = {
        column.name: None for column in sweep_description(axes).columns[1:-1]
    }
    text = sweep_text(
        axes, [SweepPoint(values=(value,), figures=figures, problem="") for value in axes[0].values]
    )
    lines = text.splitlines()
    assert lines[2 + 40] == "and 60 more in sweep.csv"
    assert lines[2 + 40 + 1 :] == ["", "None of these combinations had a request to serve."]


def test_what_measured_layouts_alone_would_give_is_one_line(comparison: Comparison) -> None:
    """Each plan's base case once more, with ``layouts: measured`` on every cluster."""
    summary = comparison_summary(comparison)
    assert summary.measured_layouts is not None
    assert list(summary.measured_layouts) == list(comparison.names)
    for result, figures in zip(comparison.results, summary.measured_layouts.values(), strict=True):
        alone = simulate(
            result.scenario.with_({"clusters.*.layouts": "measured"}), seed=result.seed
        )
        cost = measures(alone)[COST]
        assert cost is not None
        assert figures[COST] == pytest.approx(cost, rel=1e-6)
    (line,) = measured_layouts_lines(summary)
    assert line in " ".join(comparison_text(comparison).split())


def test_the_order_with_measured_layouts_alone_is_told(comparison: Comparison) -> None:
    """By hand: one plan then costs half more, and the other serves worse than its SLO target."""
    summary = comparison_summary(comparison)
    first, second = comparison.names
    cost = summary.scenarios[first][COST]
    assert cost
    measured: dict[str, Measures] = {
        first: {COST: 1.5 * cost, SHORTFALL: 0.0},
        second: {COST: summary.scenarios[second][COST], SHORTFALL: 0.2},
    }
    (line,) = measured_layouts_lines(dataclasses.replace(summary, measured_layouts=measured))
    assert f"{first} ${1.5 * cost:.3g} (+50%)" in line
    assert "(+0%, SLO missed)" in line
    assert line.endswith(f"{first} is then the cheapest plan that meets its target.")
    as_chosen: dict[str, Measures] = {
        name: {**summary.scenarios[name], SHORTFALL: 0.0} for name in (first, second)
    }
    (line,) = measured_layouts_lines(dataclasses.replace(summary, measured_layouts=as_chosen))
    assert "no plan's cost changes by as much as 1%" in line
    assert not measured_layouts_lines(dataclasses.replace(summary, measured_layouts=None))
