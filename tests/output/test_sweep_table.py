from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

from planner.output.columns import ColumnKind
from planner.output.csv_table import CsvFormat
from planner.output.sweep_table import sweep_description, sweep_rows, sweep_text, write_sweep
from planner.run.measure_names import MEASURES
from planner.scenario.loading import load_scenario
from planner.studies.axes import parse_axes
from planner.studies.sweep import Point, sweep

Write = Callable[..., Path]


def test_axes_are_numbers_where_all_their_values_are() -> None:
    axes = parse_axes(["a.nodes=1,2", "b.price_usd=-1.25,3", "c=x,1"])
    kinds = [column.kind for column in sweep_description(axes).columns[:3]]
    assert kinds == [ColumnKind.INTEGER, ColumnKind.DECIMAL, ColumnKind.TEXT]
    assert sweep_description(axes).columns[1].decimals == 2
    assert sweep_description(axes).columns[1].unit == "USD"


def test_the_table_is_tidy(write: Write, tmp_path: Path) -> None:
    path = write()
    axes = parse_axes(["clusters.h200.nodes=0:4:2", "finance.residual_fraction=0.1,0.25"])
    points = sweep(load_scenario(path, ["horizon_months=1", "clusters.mi325x=null"]), axes)
    for form in (CsvFormat(), CsvFormat(decimal_comma=True)):
        write_sweep(load_scenario(path), axes, points, tmp_path / "out", {"seed": 1}, form)
        with (tmp_path / "out" / "sweep.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter=form.separator))
        assert [row["clusters.h200.nodes"] for row in rows] == ["0", "0", "2", "2", "4", "4"]
        assert rows[1]["finance.residual_fraction"] == f"0{form.decimal_mark}25"
        assert rows[0]["cost_per_million_tokens_usd"] == ""  # no machines, no tokens
        assert rows[-1]["cost_per_million_tokens_usd"]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["vary"] == {"clusters.h200.nodes": ["0", "2", "4"], "finance.residual_fraction": ["0.1", "0.25"]}
    package = json.loads((tmp_path / "out" / "datapackage.json").read_text())
    assert package["resources"][0]["schema"]["primaryKey"] == ["clusters.h200.nodes", "finance.residual_fraction"]


def test_what_could_not_be_run_says_why() -> None:
    axes = parse_axes(["horizon_months=1,2"])
    figures: dict[str, float | None] = {column.name: 1.0 for column in sweep_description(axes).columns[1:-1]}
    points = (
        Point(values=("1",), figures=None, problem="=too short"),
        Point(values=("2",), figures=figures, problem=""),
    )
    columns = sweep_rows(axes, points)
    assert columns["problem"] == ["=too short", ""]
    assert all(columns[measure.name] == [None, 1.0] for measure in MEASURES)
    assert "1 of 2 combinations could not be run; the first: =too short" in sweep_text(axes, points)


def test_a_long_sweep_prints_its_beginning() -> None:
    axes = parse_axes(["seed=1:100:1"])
    figures: dict[str, float | None] = {column.name: None for column in sweep_description(axes).columns[1:-1]}
    text = sweep_text(axes, [Point(values=(value,), figures=figures, problem="") for value in axes[0].values])
    lines = text.splitlines()
    assert lines[2 + 40] == "and 60 more in sweep.csv"
    assert lines[2 + 40 + 1 :] == ["", "None of these combinations had a request to serve."]
