from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from planner.cli.throughput import probe
from tests.calibration.probe_rows import read_rows

app = typer.Typer()
app.command()(probe)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch (the extra [gpu]) is not installed"
)


def test_without_torch_one_line_and_exit_code_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without_torch(name: str, package: str | None = None) -> object:
        if name == "torch":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without_torch)
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "probe.csv")])
    assert result.exit_code == 2
    assert result.stderr.strip().count("\n") == 0
    assert "torch" in result.stderr
    assert not list(tmp_path.iterdir())


@needs_torch
def test_json_holds_the_rows_that_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "probe.csv"
    arguments = ["--device", "cpu", "--quick", "--seconds", "0.01", "--out", str(path), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)["rows"]
    assert [row["phase"] for row in printed] == [row.phase for row in read_rows(path)]
    assert "decode" in result.stderr


@needs_torch
def test_an_unknown_device_is_bad_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "probe.csv"), "--device", "tpu"])
    assert result.exit_code == 2
    assert "one of auto, cuda" in result.stderr
