"""Out of space, forbidden to write: what is there afterwards is whole, or does not look finished."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from planner import files
from planner.answers.report import rebuild_report
from planner.answers.run import write_run
from planner.errors import ScenarioError
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from tests.conftest import TINY, files_of
from tests.hardening.killing import faults_of


class FullDisk(io.BytesIO):
    """A file on a disk that fills up after some bytes."""

    def __init__(self, room: list[int]) -> None:
        super().__init__()
        self.room = room
        self.real = tempfile.TemporaryFile()  # noqa: SIM115 - something that can be synced; closed with this

    def fileno(self) -> int:
        return self.real.fileno()

    def close(self) -> None:
        self.real.close()
        super().close()

    def write(self, content: Any, /) -> int:
        self.room[0] -= len(content)
        if self.room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return len(content)


@pytest.fixture
def result(tmp_path: Path) -> Any:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return simulate(load_scenario(tmp_path / "tiny.yaml"))


@pytest.mark.parametrize("room_bytes", [0, 1_000, 50_000, 120_000])
def test_a_full_disk_is_a_message_and_leaves_the_earlier_results(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    write_run(result, tmp_path / "o")
    before = files_of(tmp_path / "o")
    room = [room_bytes]
    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        return FullDisk(room) if "w" in mode else real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(ScenarioError, match="No space left on device"):
        write_run(result, tmp_path / "o")
    monkeypatch.undo()
    assert files_of(tmp_path / "o") == before
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "o"}


def test_a_report_on_a_full_disk_leaves_the_earlier_one(
    result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(result, tmp_path / "o")
    before = (tmp_path / "o" / "report.html").read_bytes()

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(ScenarioError, match="No space left on device"):
        rebuild_report(tmp_path / "o")
    monkeypatch.undo()
    assert (tmp_path / "o" / "report.html").read_bytes() == before
    assert faults_of(tmp_path / "o") == []
    assert {path.name for path in tmp_path.iterdir()} == {"tiny.yaml", "o"}
