"""Timelines as Parquet hold what the CSV files hold."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from planner.output.folder import parquet_bytes
from planner.output.tables import Column, ColumnKind, Table, TableDescription, text_column
from tests.conftest import Planner, WriteScenario


def test_a_table_comes_back_as_it_was_and_always_as_the_same_bytes() -> None:
    columns: dict[str, Any] = {
        "month": ["2026-01", "2026-02"],
        "served_tokens": np.array([1.5, np.nan]),
        "nodes": np.array([1, 2]),
    }
    month = Column(name="month", kind=ColumnKind.MONTH, description="Month.")
    described = (month, text_column("served_tokens", "X."), text_column("nodes", "X."))
    table = Table(TableDescription(name="t", description="T.", columns=described), columns)
    content = parquet_bytes(table)
    assert content == parquet_bytes(table)
    frame = pd.read_parquet(io.BytesIO(content))
    assert frame.pop("month").tolist() == [date(2026, 1, 1), date(2026, 2, 1)]
    del columns["month"]
    pd.testing.assert_frame_equal(frame, pd.DataFrame(columns), check_dtype=False)


def test_a_run_writes_its_timelines_as_parquet_on_request(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    outcome = planner(
        "run", str(write()), "--out", str(tmp_path / "out"), "--hourly", "--parquet", "-n", "1"
    )
    assert outcome.code == 0
    for name in ("timeline_monthly", "timeline_daily", "timeline_hourly", "timeline_workloads"):
        typed = pd.read_parquet(tmp_path / "out" / f"{name}.parquet")
        text = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        assert list(typed.columns) == list(text.columns)
        np.testing.assert_allclose(typed["served_tokens"], text["served_tokens"], atol=0.5)
