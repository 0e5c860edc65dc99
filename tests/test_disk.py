"""Nothing is said to be on the disk before it is, and what the disk refuses is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from planner.errors import ScenarioError
from planner.output.folder import write_folder

NAMES = [f"{number}.csv" for number in range(20)]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the names of what the disk is asked for, in the order in which it has answered."""
    names = list[str]()
    real = os.fsync

    def noted(handle: int) -> None:
        real(handle)
        names.append(Path(f"/proc/self/fd/{handle}").readlink().name)

    monkeypatch.setattr(os, "fsync", noted)
    return names


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="names of open files are known on Linux"
)


@needs_proc
def test_every_file_is_on_the_disk_before_the_manifest_says_so(
    tmp_path: Path, synced: list[str]
) -> None:
    write_folder(tmp_path / "o", dict.fromkeys([*NAMES, "charts/a.png"], b"x"), {"kind": "run"})
    before = synced[: synced.index("manifest.json")]
    assert sorted(before) == sorted([*NAMES, "a.png", "new", "charts"])
    assert set(before[-2:]) == {"new", "charts"}, "the names of files after the files"
    assert synced[len(before) :] == ["manifest.json", "new", tmp_path.name]


def test_a_file_that_the_disk_does_not_take_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    asked = list[int]()

    def full(handle: int) -> None:
        asked.append(handle)
        if len(asked) == 11:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScenarioError, match="No space left on device"):
        write_folder(tmp_path / "o", dict.fromkeys(NAMES, b"x"), {"kind": "run"})
    assert list(tmp_path.iterdir()) == []
