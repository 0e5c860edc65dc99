"""Folders that change while others look, or are killed while they change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from planner import files
from planner.errors import ScenarioError
from planner.files import MANIFEST, change_files, check_target, settle
from planner.output.folder import write_folder
from tests.conftest import files_of
from tests.hardening.killing import faults_of, killed_at, operations_of

EARLIER: dict[str, bytes] = {"a.csv": b"x\n1\n", "report.html": b"old"}
PICTURES = {"charts/a.png": b"picture", "report.html": b"new"}


def test_two_folders_change_places_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "mine").write_text("")
    if not files.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two names")
    assert (tmp_path / "b" / "mine").exists()
    assert not files.exchange(tmp_path / "a", tmp_path / "missing")


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_killed_while_it_is_replaced_is_the_earlier_one_or_the_new_one(
    tmp_path: Path, exchange: bool
) -> None:
    target = tmp_path / "place" / "o"
    write_folder(target, EARLIER, {"kind": "first"})
    before = files_of(target)
    after = 0
    while True:
        shutil.rmtree(tmp_path / "place")
        write_folder(target, EARLIER, {"kind": "first"})
        if not killed_at(
            lambda: write_folder(target, {"b.csv": b"y\n"}, {"kind": "second"}),
            after,
            exchange=exchange,
        ):
            break
        if exchange:
            assert files_of(target) == before or set(files_of(target)) == {"b.csv", MANIFEST}
        check_target(target)  # any command that names it
        assert faults_of(target) == []
        assert set(files_of(target)) in ({"a.csv", "report.html", MANIFEST}, {"b.csv", MANIFEST})
        write_folder(target, {"b.csv": b"y\n"}, {"kind": "second"})
        assert [path.name for path in target.parent.iterdir()] == ["o"]
        after += 1
    assert after > 10


def test_charts_killed_at_any_operation_never_move_what_they_are_drawn_from(tmp_path: Path) -> None:
    target = tmp_path / "o"
    write_folder(target, EARLIER, {"kind": "run"})
    place = (target / "a.csv").stat().st_ino
    shutil.copytree(target, tmp_path / "copy")
    for after in range(operations_of(lambda: change_files(tmp_path / "copy", PICTURES))):
        shutil.rmtree(target)
        write_folder(target, EARLIER, {"kind": "run"})
        place = (target / "a.csv").stat().st_ino
        assert killed_at(lambda: change_files(target, PICTURES), after)
        assert (target / MANIFEST).exists()
        assert (target / "a.csv").stat().st_ino == place
        settle(target)
        assert faults_of(target) == []
        change_files(target, PICTURES)
        assert (target / "a.csv").stat().st_ino == place
        assert files_of(target)["charts/a.png"] == b"picture"
        assert files_of(target)["report.html"] == b"new"
        assert faults_of(target) == []
        assert not list(target.rglob(".*"))
        check_target(target)


def test_a_change_that_cannot_be_written_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "o", EARLIER, {"kind": "run"})
    before = files_of(tmp_path / "o")
    real = files.write_synced

    def full(path: Path, content: bytes) -> None:
        if "a.png" in path.name:
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(ScenarioError, match="No space left on device"):
        change_files(tmp_path / "o", {"report.html": b"new", "charts/a.png": b"picture"})
    assert files_of(tmp_path / "o") == before
