from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from planner.errors import ScenarioError
from planner.reporting.chart_style import DOTS_PER_INCH, SIZE_INCHES
from planner.reporting.charts import draw_charts, write_charts
from planner.reporting.report.build import rebuild_report
from planner.reporting.report.contents import Contents, read_contents
from planner.reporting.run_folder import write_run
from planner.scenario.loading import load_scenario
from planner.simulation.run import simulate
from tests.conftest import TINY

Planner = Callable[..., Any]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("charts")
    (place / "tiny.yaml").write_text(TINY)
    write_run(simulate(load_scenario(place / "tiny.yaml")), place / "out")
    return place / "out"


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "out"))


@pytest.fixture(scope="module")
def drawn(kept: Path) -> dict[str, bytes]:
    return draw_charts(read_contents(kept))


def test_each_chart_is_there_in_both_forms(drawn: dict[str, bytes]) -> None:
    assert set(drawn) == {f"charts/{name}.{suffix}" for name in CHARTS for suffix in ("png", "svg")}


@pytest.mark.parametrize("name", CHARTS)
def test_a_png_is_a_picture_with_something_on_it(drawn: dict[str, bytes], name: str) -> None:
    with Image.open(io.BytesIO(drawn[f"charts/{name}.png"])) as picture:
        assert picture.size == tuple(int(inches * DOTS_PER_INCH) for inches in SIZE_INCHES)
        colours = np.asarray(picture.convert("RGB")).reshape(-1, 3)
        assert not picture.info.get("Software")
    assert len(np.unique(colours, axis=0)) > 50
    assert (colours == [0x00, 0x67, 0xA5]).all(axis=1).any() or name == "losses"


@pytest.mark.parametrize("name", CHARTS)
def test_an_svg_is_xml_without_a_date(drawn: dict[str, bytes], name: str) -> None:
    content = drawn[f"charts/{name}.svg"]
    assert ElementTree.fromstring(content).tag.endswith("svg")
    assert b"dc:date" not in content


def test_the_same_folder_gives_the_same_bytes(kept: Path, drawn: dict[str, bytes]) -> None:
    assert draw_charts(read_contents(kept)) == drawn


def test_charts_join_the_folder_and_stay_through_a_new_report(folder: Path) -> None:
    before = (folder / "report.html").read_bytes()
    written = write_charts(folder, ["svg"])
    assert [path.name for path in written] == [f"{name}.svg" for name in CHARTS]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {f"charts/{name}.svg" for name in CHARTS} <= set(manifest["files"])
    rebuild_report(folder)
    assert all(path.exists() for path in written)
    assert (folder / "report.html").read_bytes() == before


def test_nothing_to_draw_is_said(kept: Path) -> None:
    assert draw_charts(Contents(manifest={}, files={})) == {}


def test_the_command_line_draws_and_refuses(planner: Planner, folder: Path) -> None:
    told = json.loads(planner("charts", folder, "--format", "svg", "--json").out)
    assert [Path(path).suffix for path in told["charts"]] == [".svg"] * len(CHARTS)
    planner("charts", folder, "--format", "gif").refused("--format: takes png, svg by comma, not 'gif'")
    planner("charts", folder.parent).refused("manifest.json: cannot be read")


def test_a_folder_without_tables_is_refused(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {}
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ScenarioError, match="no timeline, ledger or losses"):
        write_charts(tmp_path / "bare")
