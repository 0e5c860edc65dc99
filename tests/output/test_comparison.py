from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from planner.finance.bridge import CAUSES
from planner.output.comparison import (
    COMPARISON_TABLES,
    comparison_rows,
    comparison_summary,
    comparison_table,
    write_comparison,
)
from planner.output.csv_table import CsvFormat
from planner.output.plan_tables import BY_SCENARIO
from planner.output.run_columns import TABLES
from planner.scenario.loading import load_scenario
from planner.studies.compare import Comparison, compare

Write = Callable[..., Path]


@pytest.fixture
def comparison(write: Write) -> Comparison:
    path = write()
    small = {**yaml.safe_load(path.read_text()), "name": "small"}
    del small["clusters"]["mi325x"]
    write(yaml.safe_dump(small), "small.yaml")
    return compare([load_scenario(path.with_name(name), ["seed=1"]) for name in ("tiny.yaml", "small.yaml")])


def rows(path: Path, separator: str = ",") -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        return list(csv.DictReader(stream, delimiter=separator))


def test_the_folder_is_whole_and_described(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    described = (*COMPARISON_TABLES.values(), *BY_SCENARIO.values(), TABLES["model_error"])
    tables = {f"{table.name}.csv" for table in described}
    assert names == tables | {"datapackage.json", "manifest.json", "report.html", "summary.json", "workbook.xlsx"}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["baseline"], manifest["overrides"]) == ("comparison", "tiny", ["seed=1"])
    for table in described:
        written = rows(tmp_path / "out" / f"{table.name}.csv")
        header = (tmp_path / "out" / f"{table.name}.csv").read_text(encoding="utf-8").splitlines()[0]
        assert header.split(",") == [column.name for column in table.columns]
        keys = [tuple(row[name] for name in table.key) for row in written]
        assert not table.key or len(set(keys)) == len(keys)


def test_the_bridge_in_the_file_sums_to_the_difference_in_the_file(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path / "out")
    sums: dict[str, float] = defaultdict(float)
    for row in rows(tmp_path / "out" / "bridge.csv"):
        sums[row["scenario"]] += float(row["difference_per_million_tokens_usd"])
    difference = {
        row["scenario"]: float(row["difference"])
        for row in rows(tmp_path / "out" / "comparison.csv")
        if row["measure"] == "cost_per_million_tokens_usd"
    }
    assert set(sums) == {"small"}
    assert sums["small"] == pytest.approx(difference["small"], abs=1e-6)
    assert difference["tiny"] == 0


def test_months_sum_to_the_measures(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path / "out")
    table = rows(tmp_path / "out" / "comparison_monthly.csv")
    for name, figures in zip(comparison.names, comparison.figures, strict=True):
        own = [row for row in table if row["scenario"] == name]
        assert sum(float(row["cost_usd"]) for row in own) == pytest.approx(figures["cost_usd"], abs=0.01)
        assert -sum(float(row["cash_flow_usd"]) for row in own) == pytest.approx(figures["cash_usd"], abs=0.01)
        assert float(own[-1]["cumulative_cost_per_million_tokens_usd"]) == pytest.approx(
            figures["cost_per_million_tokens_usd"], abs=1e-6
        )


def test_spreadsheets_with_a_decimal_comma_are_served(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path / "out", form=CsvFormat(decimal_comma=True, byte_order_mark=True))
    content = (tmp_path / "out" / "comparison.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    plain = dict(zip(("scenario", "measure"), comparison_rows(comparison).values(), strict=False))
    first = rows(tmp_path / "out" / "comparison.csv", ";")[0]
    assert first["scenario"] == plain["scenario"][0]
    assert "," in first["value"]
    package = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    assert package["resources"][0]["dialect"]["delimiter"] == ";"


def test_the_printed_table_fits_a_terminal(comparison: Comparison) -> None:
    lines = comparison_table(comparison).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[:2] for line in lines[2:4]] == [["small", "kept"], ["tiny", "kept"]]  # the cheaper first
    assert "against tiny, by cause" in comparison_table(comparison)


def test_the_summary_says_the_same(comparison: Comparison) -> None:
    content = comparison_summary(comparison)
    assert content["baseline"] == "tiny"
    assert set(content["scenarios"]) == {"tiny", "small"}
    assert list(content["bridge_per_million_tokens_usd"]["small"]) == list(CAUSES)
    assert json.dumps(content)
