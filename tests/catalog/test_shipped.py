"""What is kept of the catalogue's own files is what they say, whatever becomes of either."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.catalog import shipped
from planner.catalog.calibration import shipped_file
from planner.catalog.load import ASSUMPTION_SETS, load_catalog
from planner.errors import ScenarioError
from planner.scenario.loading import load_scenario
from planner.yaml_io import read_document

SCENARIO = Path(__file__).parents[2] / "scenarios" / "mixed-fleet.yaml"
NAMES = sorted(path.name for path in shipped.FOLDER.glob("*.yaml"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let the catalogue lie where a test may change it."""
    for path in shipped.FOLDER.glob("*.*"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "KEPT", tmp_path / shipped.KEPT.name)
    shipped._kept.cache_clear()
    yield tmp_path
    shipped._kept.cache_clear()


def test_what_is_kept_is_of_the_files_as_they_are() -> None:
    assert shipped.KEPT.read_text() == shipped.kept_text(), "the catalogue has changed: run make reference"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_what_the_parser_says_to_the_type(name: str) -> None:
    kept = shipped.shipped_document(name)
    assert kept.locate(()).line is None, "it was parsed"  # type: ignore[union-attr]
    assert repr(kept.content) == repr(read_document(shipped.FOLDER / name).content)


def test_a_file_that_has_changed_is_parsed(folder: Path) -> None:
    changed = (folder / "vendors.yaml").read_text().replace("nvidia:", "another:")
    (folder / "vendors.yaml").write_text(changed)
    assert "another" in shipped.shipped_document("vendors.yaml").content


@pytest.mark.parametrize("spoilt", [b"", b"{", b"\xff", None])
def test_files_are_parsed_where_nothing_is_kept(folder: Path, spoilt: bytes | None) -> None:
    kept = folder / shipped.KEPT.name
    if spoilt is None:
        kept.unlink()
    else:
        kept.write_bytes(spoilt)
    document = shipped.shipped_document("vendors.yaml")
    assert document.content == read_document(folder / "vendors.yaml").content
    assert document.locate(("nvidia",)).line is not None  # type: ignore[union-attr]


def test_who_contradicts_a_shipped_file_is_told_its_line(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("precisions: {fp8: {known_dialects: {value: [other], source: a datasheet, grade: A}}}\n")
    with pytest.raises(ScenarioError) as caught:
        load_catalog("measured", overlay)
    lines = (shipped.FOLDER / "accelerators.yaml").read_text().splitlines()
    told = caught.value.problems[0]
    assert told.file == str(shipped.FOLDER / "accelerators.yaml")
    assert told.line is not None
    assert "dialects" in lines[told.line - 1]


def test_nobody_changes_what_is_kept(tmp_path: Path) -> None:
    before = repr(shipped._kept())
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("accelerators: {H200: {fp8_dense_tflops: {value: 1900, source: a datasheet, grade: A}}}\n")
    for assumption_set in ASSUMPTION_SETS:
        load_catalog(assumption_set)
        load_catalog(assumption_set, overlay)
    shipped_file.cache_clear()
    shipped_file()
    load_scenario(SCENARIO)
    assert repr(shipped._kept()) == before
