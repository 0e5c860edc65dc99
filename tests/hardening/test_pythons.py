"""Finding the interpreters that ``make pythons`` checks; the check itself takes minutes and is not part of this."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.hardening.pythons import COMMANDS, find_pythons, version_of


def test_this_interpreter_has_its_version() -> None:
    assert version_of(Path(sys.executable)) == sys.version_info[:2]


def _fake(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("text", ["exit 1", "echo nonsense", "echo 3", ""])
def test_what_is_no_working_python_is_left_out(tmp_path: Path, text: str) -> None:
    assert version_of(_fake(tmp_path / "python3.12", text)) is None


def test_one_of_each_version_is_taken_and_old_ones_are_not(tmp_path: Path) -> None:
    own = _fake(tmp_path / "versions" / "3.12.1" / "bin" / "python3", "echo 3 12")
    _fake(tmp_path / "versions" / "3.9.18" / "bin" / "python3", "echo 3 9")
    _fake(tmp_path / "bin" / "python3.12", "echo 3 12")
    newest = _fake(tmp_path / "bin" / "python3.14", "echo 3 14")
    found = find_pythons([tmp_path / "bin", tmp_path / "nowhere"], tmp_path / "versions")
    assert found == {(3, 12): own, (3, 14): newest}


def test_every_kind_of_folder_is_made_reported_and_drawn() -> None:
    made = {command[-1] for command in COMMANDS if "--out" in command}
    for verb in ("report", "charts"):
        assert {command[1] for command in COMMANDS if command[0] == verb} == made
