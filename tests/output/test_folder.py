from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from planner import files
from planner.errors import ScenarioError
from planner.files import MANIFEST, PRODUCT, check_target, json_text
from planner.output.folder import write_folder
from tests.conftest import files_of

FILES: dict[str, bytes] = {"a.csv": b"x\n1\n", "deep/b.bin": b"\x00\xff"}


def test_the_manifest_names_every_file_with_its_sum(tmp_path: Path) -> None:
    target = tmp_path / "new" / "run"
    write_folder(target, FILES, {"kind": "run"})
    manifest = json.loads((target / MANIFEST).read_text())
    assert manifest["product"] == PRODUCT
    assert manifest["kind"] == "run"
    assert manifest["files"] == {
        "a.csv": hashlib.sha256(b"x\n1\n").hexdigest(), "deep/b.bin": hashlib.sha256(b"\x00\xff").hexdigest(),
    }  # fmt: skip
    assert set(files_of(target)) == {"a.csv", "deep/b.bin", MANIFEST}
    assert [path.name for path in target.parent.iterdir()] == ["run"]
    assert stat.S_IMODE(target.stat().st_mode) & 0o500 == 0o500


def test_a_second_run_replaces_the_first_whole(tmp_path: Path) -> None:
    target = tmp_path / "run"
    write_folder(target, FILES, {})
    write_folder(target, {"c.csv": b"y\n"}, {})
    assert set(files_of(target)) == {"c.csv", MANIFEST}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    "manifest",
    [
        None, b"", b"not json", b"[]", b"3", b'{"files": []}', b'{"product": "other", "files": []}', b"\xff\xfe",
        b'{"product": "datacenter-planner"}', b'{"product": "datacenter-planner", "files": 3}', b"[" * 100_000,
        b'{"product": "datacenter-planner", "files": [{}]}', b'{"product": "datacenter-planner", "files": [3]}',
    ],
)  # fmt: skip
def test_a_folder_of_someone_else_is_refused_and_left_alone(
    tmp_path: Path, manifest: bytes | None
) -> None:
    target = tmp_path / "theirs"
    target.mkdir()
    (target / "thesis.txt").write_text("years of work")
    if manifest is not None:
        (target / MANIFEST).write_bytes(manifest)
    before = files_of(target)
    with pytest.raises(
        ScenarioError, match=r"theirs: (was not written by planner|holds 'thesis\.txt')"
    ):
        write_folder(target, FILES, {})
    assert files_of(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize("stranger", ["notes.txt", "deep/notes.txt", "empty/", "link"])
def test_anything_added_to_our_folder_is_kept(tmp_path: Path, stranger: str) -> None:
    target = tmp_path / "run"
    write_folder(target, FILES, {})
    if stranger == "link":
        (target / stranger).symlink_to(tmp_path)
    elif stranger.endswith("/"):
        (target / stranger).mkdir()
    else:
        (target / stranger).write_text("mine")
    before = files_of(target)
    with pytest.raises(
        ScenarioError, match=f"holds '{stranger.rstrip('/')}', which planner did not write"
    ):
        write_folder(target, {"c.csv": b"y\n"}, {})
    assert files_of(target) == before


def test_a_file_or_a_link_in_the_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(ScenarioError, match=f"{name}: exists and is not a folder"):
            write_folder(tmp_path / name, FILES, {})
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_without_permission_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ScenarioError, match="cannot be written: no permission to write in"):
        check_target(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_only_copy_of_earlier_results_is_never_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "exchange", lambda one, other: False)
    target = tmp_path / "run"
    write_folder(target, FILES, {})
    before = files_of(target)
    real = os.replace
    calls = []

    def only_the_first(source: Path, destination: Path) -> None:
        calls.append(source)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        real(source, destination)

    monkeypatch.setattr(os, "replace", only_the_first)
    with pytest.raises(ScenarioError, match="Input/output error"):
        write_folder(target, {"c.csv": b"y\n"}, {})
    (scratch,) = tmp_path.iterdir()
    assert files_of(scratch / "old") == before
    monkeypatch.undo()
    check_target(
        target
    )  # the next command that names it completes the swap: the new results were whole
    assert set(files_of(target)) == {"c.csv", MANIFEST}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_json_is_written_the_same_way_and_without_nan() -> None:
    assert json_text({"b": 1, "a": "é"}) == '{\n  "b": 1,\n  "a": "é"\n}\n'
    with pytest.raises(ValueError, match="Out of range"):
        json_text({"a": float("nan")})
    assert MANIFEST == "manifest.json"
