"""A process that is killed at a chosen file operation: really gone, with no handler, no cleaning up, no lock."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner import files

OPERATIONS = (
    "unlink",
    "replace",
    "rename",
    "rmdir",
    "mkdir",
    "fsync",
    "ftruncate",
    "pwrite",
    "link",
)
KILLED = 86
FAILED = 87
"""Exit codes of a process that was killed where it should be, and of one that failed otherwise."""


def killed_at(work: Callable[[], object], after: int, *, exchange: bool = True) -> bool:
    """Do some work in a forked process, gone before the file operation of that number; say whether it came so far.

    An operation is a call that changes what is on the disk: making, renaming, removing and syncing files and folders,
    and the exchange of two folders. ``exchange`` False plays a file system that has no such step.
    """
    return _forked(work, after, exchange=exchange)[0]


def operations_of(work: Callable[[], object]) -> int:
    """Return how many file operations some work makes, done to its end in a forked process."""
    return _forked(work, sys.maxsize, exchange=True)[1]


def _forked(work: Callable[[], object], after: int, *, exchange: bool) -> tuple[bool, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = FAILED
        taken = [0]
        try:
            _arm(after, taken, exchange=exchange)
            work()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os.write(writer, str(taken[0]).encode())
            os._exit(code)
    os.close(writer)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reader) as stream:
        operations = int(stream.read() or 0)
    assert code in (0, KILLED), f"the process ended with {code}"
    return code == KILLED, operations


def _arm(after: int, taken: list[int], *, exchange: bool) -> None:
    """Let this process end at its next operation after so many."""

    def step(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            taken[0] += 1
            if taken[0] > after:
                os._exit(KILLED)
            return real(*arguments, **options)

        return operation

    for name in OPERATIONS:
        setattr(os, name, step(getattr(os, name)))
    files.exchange = step(files.exchange) if exchange else lambda path, partner: False


def faults_of(folder: Path) -> list[str]:
    """Return what is wrong with a folder that looks finished; one without a manifest does not look so."""
    if not (folder / "manifest.json").exists():
        return []
    listed = json.loads((folder / "manifest.json").read_bytes())["files"]
    return [
        name
        for name, digest in listed.items()
        if not (folder / name).is_file()
        or hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]
