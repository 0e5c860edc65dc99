"""Waiting for the disk: what was written is there only once the system says so."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

_AT_ONCE = 8
"""Files that the disk is asked for at a time; assumption: it writes these together, and more hardly sooner."""


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync(path: Path) -> None:
    """Wait until the disk has a file written by others, or a folder's names; not every system can do the latter."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_all(paths: Sequence[Path]) -> None:
    """Wait until the disk has all of some files; it is asked for several at a time, and so writes them together.

    One after another, each waits for what the system writes about it, which takes longer than what it holds.
    """
    failed: list[OSError] = []

    def wait_for(some: Sequence[Path]) -> None:
        for path in some:
            try:
                with path.open("r+b") as stream:  # not every system syncs what is open for reading
                    os.fsync(stream.fileno())
            except OSError as error:
                failed.append(error)

    portions = [paths[first::_AT_ONCE] for first in range(min(_AT_ONCE, len(paths)))]
    threads = [threading.Thread(target=wait_for, args=(portion,)) for portion in portions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
