"""What the verbs share: where a folder goes, what is told on the way, and what an interrupt leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from planner.errors import printable

Place = str | os.PathLike[str]
Say = Callable[[str], None]


def silent(_: str) -> None:
    """Say nothing."""


class Stopped(KeyboardInterrupt):
    """An interrupted sweep or study: what is done is kept, and ``resume=True`` continues it."""


def folder_of(out: Place | None, name: str) -> Path:
    """Return the output folder: the one asked for, or one of the plan's name under outputs."""
    return Path("outputs") / name if out is None else Path(out)


def listed(words: Sequence[str]) -> Sequence[str]:
    """Return a list of words; a single one that was not put into a list is one."""
    return [words] if isinstance(words, str) else words


def tell(notes: Iterable[str], progress: Say, kind: str = "note") -> None:
    """Say what was found in a folder: a lock taken over, damaged files."""
    for note in notes:
        progress(f"{kind}: {printable(note)}")
