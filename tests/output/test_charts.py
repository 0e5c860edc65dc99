from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from planner.answers.charts import figures_of, write_charts
from planner.answers.report import rebuild_report
from planner.answers.run import write_run
from planner.errors import ScenarioError
from planner.output.folder import Contents, read_contents
from planner.output.svg import PNG_WIDTH, png_of, svg_of
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY, Planner, WriteScenario

SIDE_BY_SIDE = ("utilisation", "cost-per-token", "money", "losses")
"""What plans have beside one another; a run alone has more."""
CHARTS = ("demand", "power", *SIDE_BY_SIDE)
"""What a single run has."""


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


def draw_charts(contents: Contents) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name, picture in figures_of(contents).items():
        svg = svg_of(picture)
        files |= {f"charts/{name}.png": png_of(svg), f"charts/{name}.svg": svg.encode()}
    return files


def colours_of(picture: Image.Image) -> set[int]:
    """Return the colours in a picture, each as one number."""
    red, green, blue = np.moveaxis(np.asarray(picture.convert("RGB"), dtype=np.int32), -1, 0)
    return set(np.unique((red << 16) + (green << 8) + blue).tolist())


@pytest.mark.parametrize("name", CHARTS)
def test_a_png_is_a_picture_with_something_on_it(drawn: dict[str, bytes], name: str) -> None:
    with Image.open(io.BytesIO(drawn[f"charts/{name}.png"])) as picture:
        assert picture.size[0] == PNG_WIDTH
        assert 300 < picture.size[1] < PNG_WIDTH
        colours = colours_of(picture)
        assert not picture.info.get("Software")
    assert len(colours) > 50
    assert 0x0067A5 in colours or name == "losses"


@pytest.mark.parametrize("name", CHARTS)
def test_an_svg_is_xml_without_a_date(drawn: dict[str, bytes], name: str) -> None:
    content = drawn[f"charts/{name}.svg"]
    assert ElementTree.fromstring(content).tag.endswith("svg")
    assert b"dc:date" not in content


def test_the_same_folder_gives_the_same_bytes(kept: Path, drawn: dict[str, bytes]) -> None:
    assert draw_charts(read_contents(kept)) == drawn


def test_charts_join_the_folder_and_stay_through_a_new_report(folder: Path) -> None:
    before = (folder / "report.html").read_bytes()
    written = write_charts(folder)
    assert [path.name for path in written[1::2]] == [f"{name}.svg" for name in CHARTS]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {f"charts/{name}.svg" for name in CHARTS} <= set(manifest["files"])
    rebuild_report(folder)
    assert all(path.exists() for path in written)
    assert (folder / "report.html").read_bytes() == before


def test_the_command_line_draws_and_refuses(planner: Planner, folder: Path) -> None:
    told = json.loads(planner("charts", folder, "--json").out)
    assert [Path(path).suffix for path in told["charts"]] == [".png", ".svg"] * len(CHARTS)
    planner("charts", folder.parent).refused("manifest.json: cannot be read")


def test_a_folder_without_tables_is_refused(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {}
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ScenarioError, match="no timeline, ledger or losses"):
        write_charts(tmp_path / "bare")


STUDY = (
    "name: s\nscenarios:\n  one: {extends: tiny.yaml}\n  two: {extends: tiny.yaml, set: {site: {pue_ratio: 1.6}}}\n"
    "uncertain:\n  clusters.*.nodes: {kind: discrete, values: [3, 4, 5]}\n"
    "  finance.discount_rate_per_year: {kind: pert, low: 0.05, mode: 0.1, high: 0.2}\n"
)
COMMANDS = {
    "compare": (("compare", "tiny.yaml", "dear.yaml"), {*SIDE_BY_SIDE, "bridge"}),
    "montecarlo": (
        ("montecarlo", "s.yaml", "-n", "4", "--workers", "1"),
        {*SIDE_BY_SIDE, "fan", "histogram", "tornado"},
    ),
    "sensitivity": (
        ("sensitivity", "s.yaml", "-n", "4", "--workers", "1"),
        {*SIDE_BY_SIDE, "tornado"},
    ),
}


@pytest.fixture
def inputs(write: WriteScenario, tiny: str) -> None:
    write()
    write(tiny.replace("name: tiny", "name: dear").replace("nodes: 4", "nodes: 9"), "dear.yaml")
    write(STUDY, "s.yaml")


@pytest.mark.prove
@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize("kind", COMMANDS)
def test_every_kind_of_folder_has_its_charts(planner: Planner, tmp_path: Path, kind: str) -> None:
    command, wanted = COMMANDS[kind]
    assert planner(*command, "--out", "o", "-q").code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    assert planner("charts", "o", "-q").code == 0
    folder = tmp_path / "o"
    assert {path.name for path in (folder / "charts").iterdir()} == {
        f"{name}.{suffix}" for name in wanted for suffix in ("png", "svg")
    }
    for path in (folder / "charts").iterdir():
        if path.suffix == ".svg":
            assert ElementTree.fromstring(path.read_bytes()).tag.endswith("svg")
            assert b"&lt;" not in path.read_bytes()  # an axis that shows its markup
        else:
            with Image.open(path) as picture:
                assert len(colours_of(picture)) > 30
    for name in set(before) - {"manifest.json"}:
        assert (folder / name).read_bytes() == before[name], name
    known = json.loads((folder / "manifest.json").read_text())["files"]
    assert {f"charts/{path.name}" for path in (folder / "charts").iterdir()} <= set(known)
    assert planner("report", "o", "-q").code == 0


def test_a_file_of_the_folder_that_is_gone_is_named(folder: Path) -> None:
    (folder / "workbook.xlsx").unlink()
    with pytest.raises(ScenarioError, match=r"workbook\.xlsx: is not there"):
        write_charts(folder)
    assert not (folder / "charts").exists()
