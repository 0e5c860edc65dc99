from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from planner import simulate
from planner.answers.run import write_run
from planner.answers.tables import RUN_TABLES
from planner.api import load
from planner.errors import ConservationError
from planner.finance.measure_names import TIMELINE
from planner.output.tables import ColumnKind, TableDescription
from planner.run import tables
from planner.units import unit_of
from tests.conftest import ROOT, csv_rows

LOAN = "finance.loan={share_of_purchases_fraction: 0.6, rate_per_year: 0.08}"
SHORT = ["horizon_months=2", "clusters.b200-2027=null"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = load(ROOT / "scenarios" / "mixed-fleet.yaml", [*SHORT, LOAN])
    target = tmp_path_factory.mktemp("run") / "out"
    write_run(simulate(scenario), target)
    return target


def test_every_csv_file_is_described(folder: Path) -> None:
    assert {path.stem for path in folder.glob("*.csv")} == {table.name for table in RUN_TABLES}


@pytest.mark.parametrize("table", RUN_TABLES, ids=lambda table: table.name)
def test_columns_described_are_the_columns_written(folder: Path, table: TableDescription) -> None:
    header, *_ = (folder / f"{table.name}.csv").read_text().splitlines()
    assert header.split(",") == [column.name for column in table.columns]


@pytest.mark.parametrize("table", RUN_TABLES, ids=lambda table: table.name)
def test_key_names_each_row_once(folder: Path, table: TableDescription) -> None:
    rows = [tuple(row[key] for key in table.key) for row in csv_rows(folder / f"{table.name}.csv")]
    assert not table.key or len(set(rows)) == len(rows)


@pytest.mark.parametrize("table", RUN_TABLES, ids=lambda table: table.name)
def test_cells_are_of_the_kind_described(folder: Path, table: TableDescription) -> None:
    for row in csv_rows(folder / f"{table.name}.csv"):
        for column in table.columns:
            cell = row[column.name]
            if not cell:
                continue
            if column.kind is ColumnKind.INTEGER:
                int(cell)
            elif column.kind is ColumnKind.DECIMAL:
                if column.measured_by:  # the measure's unit decides: cents on dollars
                    assert len(cell.partition(".")[2]) in {2, column.decimals}
                    float(cell)
                    continue
                assert len(cell.partition(".")[2]) == column.decimals
                float(cell)
            elif column.kind is ColumnKind.MONTH:
                assert date.fromisoformat(cell).day == 1


def test_units_are_what_the_names_say() -> None:
    for table in RUN_TABLES:
        for column in (
            table.columns if table.name != "focus" else ()
        ):  # which has names of its standard
            if column.kind is not ColumnKind.TEXT:
                assert column.unit == (unit_of(column.name) or "")
                # Whole numbers are counts, such as accelerators_per_node.
                is_ratio = column.kind is ColumnKind.DECIMAL and "_per_" in column.name
                assert column.unit or not is_ratio, f"planner/units.csv: {column.name}"
            assert column.description.endswith(".")


def test_a_figure_without_its_line_or_its_sum_stops_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = simulate(load(ROOT / "scenarios" / "mixed-fleet.yaml", SHORT))
    without_sum = (*TIMELINE, "facility_kw_mean")
    without_line = tuple(name for name in TIMELINE if name != "accelerator_h")
    for ranked, name in ((without_sum, "facility_kw_mean"), (without_line, "accelerator_h")):
        monkeypatch.setattr(tables, "TIMELINE", ranked)
        with pytest.raises(ConservationError, match=f"figures.csv differ: {name}$"):
            tables.timeline_monthly(result)
