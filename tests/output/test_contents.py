from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.answers.charts import write_charts
from planner.errors import ScenarioError
from planner.output.folder import Contents, contents_of, read_contents


@pytest.fixture
def folder(kept_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept_folder, tmp_path / "copy"))


def forge(folder: Path, name: str, content: bytes) -> None:
    """Change a file and its hash in the manifest, as someone with a will would."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_table_is_read_back_as_it_was_written(contents: Contents) -> None:
    table = contents.table("timeline_monthly_clusters")
    assert table is not None
    assert len(table) == 6
    assert table.texts("month")[:3] == ["2026-01-01", "2026-01-01", "2026-02-01"]
    assert table.texts("cluster")[:3] == ["h200", "mi325x", "h200"]
    assert table.numbers("utilisation_fraction")[1] is None
    assert table.totals("utilisation_fraction")[1] == 0.0
    assert "cost_usd" in table
    assert contents.table("nowhere") is None


def test_the_apostrophe_against_formulas_is_taken_off() -> None:
    contents = contents_of({}, {"t.csv": b"a\n'=1+1\n'tis\n"})
    table = contents.table("t")
    assert table is not None
    assert table.texts("a") == ["=1+1", "'tis"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,b\n1\n", "t.csv:2: has 1 cells where the heading has 2"),
        (b'a\n"open\n', "is not a CSV file"),
        (b"a\n\xff\n", "is not a CSV file"),
    ],
)
def test_a_broken_table_says_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        contents_of({}, {"t.csv": content}).table("t")


def test_a_missing_column_and_a_word_for_a_number() -> None:
    table = contents_of({}, {"t.csv": b"a\nx\n"}).table("t")
    assert table is not None
    with pytest.raises(ScenarioError, match=r"t\.csv:2: a: holds 'x', which is not a number"):
        table.numbers("a")
    with pytest.raises(ScenarioError, match=r"t\.csv: b: the column is not there"):
        table.texts("b")


def test_a_changed_file_is_refused(folder: Path) -> None:
    (folder / "ledger.csv").write_text("month\n")
    (folder / "events.csv").unlink()
    with pytest.raises(ScenarioError) as refused:
        read_contents(folder)
    assert {str(problem).split(": ")[1].split(" (")[0] for problem in refused.value.problems} == {
        "has changed since planner wrote it",
        "cannot be read",
    }


@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd.csv", "a/../../b.json", "../picture.png"]
)
@pytest.mark.parametrize("read", [read_contents, write_charts])
def test_a_manifest_cannot_name_files_outside(
    folder: Path, name: str, read: Callable[[Path], object]
) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ScenarioError, match="outside the folder"):
        read(folder)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"product": "other", "files": {}}', '{"product": "datacenter-planner"}'],
)
def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ScenarioError, match=r"is not JSON|was not written by planner"):
        read_contents(tmp_path)


def test_json_that_is_none(folder: Path) -> None:
    forge(folder, "summary.json", b"[1]")
    with pytest.raises(ScenarioError, match="is not a JSON object"):
        read_contents(folder)
